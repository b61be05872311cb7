//! Laws that hold for the payload of every kind.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use quickcheck::{Arbitrary, Gen, quickcheck};
use serde::Serialize;

use super::connection::{Challenge, Handshake, HandshakeAck};
use super::heartbeat::Heartbeat;
use super::hive::{
    HiveJoinRequest, HiveJoinResult, KnowledgeRejected, KnowledgeRequest, KnowledgeSnapshot, KnowledgeSync,
};
use super::lease::{LeaseClaim, LeaseList, LeaseRelease, LeaseResult};
use super::task::{DelegateTask, TaskHandoff, TaskInterrupt, TaskStatus};
use super::transfer::{SessionReceived, SessionTransfer};
use super::{Envelope, Kind, RawValue, write};

/// A payload of each kind with all that it can say, as we write it.
fn sample(kind: Kind) -> &'static str {
    match kind {
        Kind::Challenge => r#"{"nonce":"00"}"#,
        Kind::Handshake => {
            r#"{"proof":"ab","version":"1","proto":1,"features":["frame-bin"],"listen_port":9847,"transient":true}"#
        }
        Kind::HandshakeAck => r#"{"status":"ok","proto":1,"features":["frame-bin","unknown-ok"]}"#,
        Kind::Heartbeat => {
            r#"{"worker_id":"w","sessions":[{"session_id":"s"}],"capabilities":{"claudectl_version":"1","os":"l","arch":"x","tools":{"git":{"state":"present","version":"2","credential":true},"go":{"state":"missing"}}},"listen_addrs":["10.0.0.1:1"],"headroom":{"mem_free_mb":1,"disk_free_mb":2,"load_per_core":0.5,"running_tasks":0,"max_tasks":3,"tags":["a"]}}"#
        }
        Kind::Ack => "{}",
        Kind::DelegateTask => {
            r#"{"task_id":"t","prompt":"p","cwd":"/a","context":{"git_remote":"r","git_ref":"b","git_commit":"c","relevant_files":{"f":"x"},"brain_context":"n","dependency_graph":{"blocks":["y"],"blocked_by":["z"]},"supervised":{"worktree_key":"k","branch":"b","verify_run":["v"],"permission_mode":"m","model":"o"}}}"#
        }
        Kind::TaskStatus => r#"{"task_id":"t","state":"running","stats":{"tokens_used":1}}"#,
        Kind::TaskHandoff => {
            r#"{"task_id":"t","state":"completed","summary":"s","artifacts":[],"total_cost_usd":0.5,"total_tokens":1,"model":"m","usage":{},"git_ref":"b","verifications":[{"command":"c","passed":true,"output":"o"}],"refused":true}"#
        }
        Kind::TaskInterrupt => r#"{"task_id":"t","interrupt_type":"nudge","reason":"r"}"#,
        Kind::KnowledgeSync => {
            r#"{"units":[{"id":"k","scope":{"type":"project","value":"p"},"category":"technique","content":{"type":"temporal","description":"d","strength":0.5},"evidence_count":1,"propagation_count":2,"version":3,"confidence":0.5,"source_peer":"p","originated_at":4,"last_validated_at":5,"revalidation_interval_secs":6,"injection_state":"draft","injection_stats":{"injected_count":1,"accepted_count":2,"overridden_count":3,"last_injected_at":4,"last_outcome_at":5},"sharing_consent":{"expires_at":1,"allow_peers":["a"],"exclude_peers":["b"],"min_trust_tier":"any"},"origin_agents":["g"]}],"sync_epoch":7}"#
        }
        Kind::KnowledgeRequest => r#"{"since_epoch":7}"#,
        Kind::KnowledgeSnapshot => r#"{"units":[],"page":1,"total_pages":2}"#,
        Kind::HiveJoinRequest => r#"{"hive_id":"h","label":"l","grant":null}"#,
        Kind::HiveJoinResult => {
            r#"{"state":"member","hive_id":"h","name":"n","reason":null,"role":"reader"}"#
        }
        Kind::KnowledgeRejected => r#"{"reason":"r","units":1}"#,
        Kind::SessionTransfer => {
            r#"{"session_id":"s","cwd":"/a","seq":0,"total":1,"digest":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","data":"YWJj"}"#
        }
        Kind::SessionReceived => r#"{"session_id":"s","path":"/p","cwd":"/a","resume":"r"}"#,
        Kind::LeaseClaim => {
            r#"{"request_id":"r","lease_id":"l","session":"s","kind":"k","value":"v","mode":"exclusive","ttl_secs":60,"reason":"x","wait":true,"waiter_id":"w"}"#
        }
        Kind::LeaseRelease => r#"{"request_id":"r","lease_id":"l","session":"s"}"#,
        Kind::LeaseList => r#"{"request_id":"r"}"#,
        Kind::LeaseResult => {
            r#"{"request_id":"r","outcome":"granted","lease":{"id":"l","owner_session_id":"s@p","owner_agent":"claude-code","resource_kind":"k","resource_value":"v","mode":"exclusive","reason":"","acquired_at":"2024-01-01T00:00:00Z","expires_at":"2024-01-01T00:01:00Z","status":"active","ttl_secs":60,"fencing_token":7}}"#
        }
    }
}

/// Reads a payload as its kind and writes it again; `None` where it is refused.
fn again(kind: Kind, payload: &RawValue) -> Option<String> {
    match kind {
        Kind::Challenge => Challenge::parse(payload).map(json),
        Kind::Handshake => Some(json(Handshake::parse(payload))),
        Kind::HandshakeAck => Some(json(HandshakeAck::parse(payload))),
        Kind::Heartbeat => Some(json(Heartbeat::parse(payload))),
        Kind::Ack => Some("{}".to_string()),
        Kind::DelegateTask => DelegateTask::parse(payload).map(json),
        Kind::TaskStatus => TaskStatus::parse(payload).map(json),
        Kind::TaskHandoff => TaskHandoff::parse(payload).map(json),
        Kind::TaskInterrupt => TaskInterrupt::parse(payload).map(json),
        Kind::KnowledgeSync => Some(json(KnowledgeSync::parse(payload))),
        Kind::KnowledgeRequest => Some(json(KnowledgeRequest::parse(payload))),
        Kind::KnowledgeSnapshot => Some(json(KnowledgeSnapshot::parse(payload))),
        Kind::HiveJoinRequest => Some(json(HiveJoinRequest::parse(payload))),
        Kind::HiveJoinResult => HiveJoinResult::parse(payload).map(json),
        Kind::KnowledgeRejected => Some(json(KnowledgeRejected::parse(payload))),
        Kind::SessionTransfer => SessionTransfer::parse(payload).ok().map(json),
        Kind::SessionReceived => SessionReceived::parse(payload).ok().map(json),
        Kind::LeaseClaim => LeaseClaim::parse(payload).ok().map(json),
        Kind::LeaseRelease => LeaseRelease::parse(payload).ok().map(json),
        Kind::LeaseList => LeaseList::parse(payload).ok().map(json),
        Kind::LeaseResult => LeaseResult::parse(payload).map(json),
    }
}

fn json<P: Serialize>(payload: P) -> String {
    serde_json::to_string(&payload).unwrap()
}

fn raw(text: &str) -> &RawValue {
    serde_json::from_str(text).unwrap()
}

#[test]
fn every_message_type_round_trips() {
    for kind in Kind::ALL {
        let mut frame = Vec::new();
        write(&mut frame, "m", kind, "p", 1, raw(sample(kind))).unwrap();
        let message = Envelope::parse(&frame).unwrap();
        assert_eq!(message.msg_type.known(), Some(kind));
        assert_eq!(again(kind, message.payload).as_deref(), Some(sample(kind)), "{kind}");
    }
}

#[test]
fn every_outcome_of_a_lease_request_round_trips() {
    for text in [
        r#"{"request_id":"r","outcome":"conflict","holder":"s@p","holder_lease":"l","expires_at":"2024-01-01T00:00:00Z"}"#,
        r#"{"request_id":"r","outcome":"conflict","ahead":3}"#,
        r#"{"request_id":"r","outcome":"queued","ahead":3,"waiter_id":"w"}"#,
        r#"{"request_id":"r","outcome":"waiter_gone"}"#,
        r#"{"request_id":"r","outcome":"released"}"#,
        r#"{"request_id":"r","outcome":"not_owner","holder":"s@p"}"#,
        r#"{"request_id":"r","outcome":"not_owner"}"#,
        r#"{"request_id":"r","outcome":"not_found"}"#,
        r#"{"request_id":"r","outcome":"not_active","status":"released"}"#,
        r#"{"request_id":"r","outcome":"list","leases":[],"truncated":true}"#,
        r#"{"request_id":"r","outcome":"list","leases":[]}"#,
        r#"{"request_id":"","outcome":"error","message":"m"}"#,
    ] {
        assert_eq!(again(Kind::LeaseResult, raw(text)).as_deref(), Some(text));
    }
}

/// A payload near a kind's own: some of its values put in other keys' places, dropped, or replaced by other JSON.
#[derive(Clone, Debug)]
struct Near(Kind, String);

impl Arbitrary for Near {
    fn arbitrary(g: &mut Gen) -> Self {
        let kind = *g.choose(&Kind::ALL).unwrap();
        let sample: serde_json::Value = serde_json::from_str(sample(kind)).unwrap();
        Self(kind, mutate(&sample, g).to_string())
    }
}

/// The value with about one in six of its parts changed.
fn mutate(value: &serde_json::Value, g: &mut Gen) -> serde_json::Value {
    use serde_json::Value;
    if u8::arbitrary(g) < 20 {
        return other(g);
    }
    match value {
        Value::Object(map) => {
            let kept = map.iter().map(|(key, value)| (key.clone(), mutate(value, g)));
            let mut kept: serde_json::Map<_, _> = kept.collect();
            if u8::arbitrary(g) < 40
                && let Some(key) = map.keys().nth(usize::arbitrary(g) % map.len().max(1))
            {
                kept.remove(key);
            }
            Value::Object(kept)
        }
        Value::Array(list) => Value::Array(list.iter().map(|value| mutate(value, g)).collect()),
        Value::String(_) if u8::arbitrary(g) < 30 => Value::String(String::arbitrary(g)),
        Value::Number(_) if u8::arbitrary(g) < 60 => u64::arbitrary(g).into(),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Number(_) => value.clone(),
    }
}

/// Some JSON.
fn other(g: &mut Gen) -> serde_json::Value {
    let text = String::arbitrary(g);
    let number = f64::arbitrary(g);
    let choices = [
        serde_json::Value::Null,
        true.into(),
        false.into(),
        u64::arbitrary(g).into(),
        i64::arbitrary(g).into(),
        number.into(),
        text.clone().into(),
        serde_json::json!([]),
        serde_json::json!({}),
        serde_json::json!([text, number, {}, null]),
        serde_json::json!({ text: number }),
    ];
    g.choose(&choices).unwrap().clone()
}

quickcheck! {
    fn what_was_read_once_is_written_as_it_reads(near: Near) -> () {
        let Near(kind, text) = near;
        if let Some(once) = again(kind, raw(&text)) {
            assert_eq!(again(kind, raw(&once)).as_ref(), Some(&once), "{kind} from {text}");
        }
    }

    fn any_json_as_any_payload_is_read_or_refused(text: String, pieces: Vec<u8>) -> bool {
        let tokens = ["{", "}", "[", "]", "\"units\":", "\"id\":", ",", "1", "null", "\"x\"", "1.5", "-0"];
        let built: String = pieces.iter().map(|&at| tokens[usize::from(at) % tokens.len()]).collect();
        for text in [text, built, format!("{{\"task_id\":\"t\",\"state\":{}}}", pieces.len())] {
            if let Ok(payload) = serde_json::from_str::<&RawValue>(&text) {
                for kind in Kind::ALL {
                    let _ = again(kind, payload);
                }
            }
        }
        true
    }
}
