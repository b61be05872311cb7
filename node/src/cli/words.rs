//! What a running node knows of a peer, in words.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::service::Live;

/// What the running node knows of a peer.
pub(super) fn of_live(live: &Live) -> Vec<(&'static str, String)> {
    let mut facts = vec![("link", live.state())];
    if let Some(link) = &live.link {
        facts.push(("features", format!("{} {}", link.framing, link.features.join(" "))));
        facts.extend(link.addr.map(|addr| ("over", addr.to_string())));
    }
    facts.extend(live.heartbeat_age.map(|age| ("heartbeat", format!("{age:.0} s ago"))));
    facts.extend(live.capabilities.as_ref().map(|raw| ("machine", machine(raw))));
    facts.extend(live.listen_addrs.iter().map(|addr| ("listens", addr.to_string())));
    facts.extend(live.headroom.as_ref().map(|raw| ("spare", spare(raw))));
    facts
}

/// A manifest for people: system, relay and the tools that are there.
fn machine(manifest: &RawValue) -> String {
    let manifest: Value = serde_json::from_str(manifest.get()).unwrap_or_default();
    let text = |key: &str| manifest[key].as_str().unwrap_or("?").to_owned();
    let mut said =
        vec![format!("{} {}", text("os"), text("arch")), format!("relay {}", text("claudectl_version"))];
    for (name, tool) in manifest["tools"].as_object().into_iter().flatten() {
        if tool["state"] == "present" {
            said.push(
                format!("{name} {}", tool["version"].as_str().unwrap_or_default()).trim_end().to_owned(),
            );
        }
    }
    said.join(", ")
}

/// What a machine has to spare, for people.
fn spare(headroom: &RawValue) -> String {
    let headroom: Value = serde_json::from_str(headroom.get()).unwrap_or_default();
    let mut said = Vec::new();
    for (key, what) in [("mem_free_mb", "MiB of memory"), ("disk_free_mb", "MiB of disk")] {
        said.extend(headroom[key].as_u64().map(|mib| format!("{mib} {what}")));
    }
    said.extend(headroom["load_per_core"].as_f64().map(|load| format!("load {load:.2} a core")));
    let tasks = headroom["running_tasks"].as_u64().unwrap_or(0);
    let most = headroom["max_tasks"].as_u64().map(|most| format!(" of {most}")).unwrap_or_default();
    said.push(format!("{tasks}{most} tasks running"));
    said.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn a_machine_is_its_system_its_version_and_the_tools_that_are_there() {
        let manifest = r#"{"claudectl_version":"0.92.4","os":"linux","arch":"x86_64","tools":{
            "cargo":{"state":"missing"},"git":{"state":"present","version":"2.47.1"},"node":{"state":"present"}}}"#;
        assert_eq!(machine(&raw(manifest)), "linux x86_64, relay 0.92.4, git 2.47.1, node");
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        assert_eq!(spare(&raw(r#"{"running_tasks":0}"#)), "0 tasks running");
        let known =
            r#"{"mem_free_mb":1,"disk_free_mb":2,"load_per_core":0.5,"running_tasks":1,"max_tasks":4}"#;
        assert_eq!(
            spare(&raw(known)),
            "1 MiB of memory, 2 MiB of disk, load 0.50 a core, 1 of 4 tasks running"
        );
    }
}
