//! What a link does with every frame that a peer may send: a row of the reading table a test.

use relay_sim::Splits;
use relay_tests::fleet::{Fleet, Raw, Relay, Talk, wire};

/// A relay with a link under test and another one beside it, which must not be hurt.
struct Rig {
    fleet: Fleet,
    relay: Relay,
    raw: Raw,
    link: Talk,
    beside: Talk,
    binary: bool,
}

impl Rig {
    fn new(binary: bool) -> Self {
        let mut fleet = Fleet::new(3);
        let relay = fleet.relay("relay", |spec| {
            spec.knows("raw");
            spec.knows("beside");
        });
        let raw = fleet.raw();
        let features = if binary { wire::ALL_FEATURES } else { r#""proto":1,"features":["unknown-ok"]"# };
        let link = fleet.join(&raw, relay, "raw", features);
        let beside = fleet.join(&raw, relay, "beside", features);
        Self { fleet, relay, raw, link, beside, binary }
    }

    fn both() -> [Self; 2] {
        [Self::new(false), Self::new(true)]
    }

    fn framed(&self, text: &[u8]) -> Vec<u8> {
        if self.binary { wire::frame(text.len() as u32 + 1, 0, text) } else { [text, b"\n"].concat() }
    }

    /// Whether a link is answered.
    fn answers(&mut self, which: bool, name: &str) -> bool {
        let talk = if which { self.link.clone() } else { self.beside.clone() };
        let request = self.framed(
            wire::text(name, "lease_list", "raw", &format!(r#"{{"request_id":"{name}"}}"#)).as_bytes(),
        );
        self.fleet.send(&talk, &request);
        talk.of_type("lease_result").iter().any(|sent| sent.payload["request_id"] == name)
    }

    fn accepted(mut self, text: &str) -> Self {
        let frame = self.framed(text.as_bytes());
        self.fleet.send(&self.link.clone(), &frame);
        let shown: String = text.chars().take(200).collect();
        assert!(self.link.is_open(), "{shown}: {:?}", self.fleet.told(self.relay));
        assert!(self.answers(true, "after"), "{shown}");
        self
    }

    /// Sends what is a fault, with a message in front that is executed and one behind that is not.
    fn refused_bytes(&mut self, bytes: &[u8], fault: &str) {
        self.fleet.world.splits(Splits::Whole);
        let task = |name: &str| self.framed(wire::text(name, "delegate_task", "raw", "{}").as_bytes());
        let all = [&task("before")[..], bytes, &task("behind")].concat();
        self.fleet.send(&self.link.clone(), &all);
        let shown = bytes[..bytes.len().min(100)].escape_ascii().to_string();
        assert!(self.link.is_over(), "{shown}");
        let told: Vec<_> =
            self.fleet.told_of(self.relay, "").into_iter().filter(|line| !line.starts_with("up")).collect();
        assert_eq!(told[0], "message raw delegate_task", "{shown}: what came before is executed");
        assert!(told[1].starts_with(&format!("down raw Fault({fault}")), "{shown}: {told:?}");
        assert_eq!(told.len(), 2, "{shown}: nothing behind the fault is executed");
        assert!(self.answers(false, "still"), "{shown}: the other link is unhurt");
        let again = self.fleet.join(&self.raw.clone(), self.relay, "raw", "");
        assert_eq!(again.status(), "ok", "{shown}: the peer may come back at once");
        assert_eq!(self.fleet.gauge(self.relay, "faults"), 1);
    }

    fn refused(text: &[u8], fault: &str) {
        for mut rig in Self::both() {
            let frame = rig.framed(text);
            rig.refused_bytes(&frame, fault);
        }
    }
}

fn message(members: &str) -> String {
    format!("{{{members}}}")
}

const FIVE: &str = r#""id":"i","msg_type":"ack","from_peer":"raw","timestamp":1,"payload":{}"#;

#[test]
fn all_five_keys_are_required() {
    for key in ["id", "msg_type", "from_peer", "timestamp", "payload"] {
        let members: Vec<_> =
            FIVE.split(',').filter(|member| !member.starts_with(&format!("\"{key}\""))).collect();
        assert_eq!(members.len(), 4);
        Rig::refused(message(&members.join(",")).as_bytes(), "Message(Missing");
    }
}

#[test]
fn a_key_of_another_type_is_a_fault() {
    for (good, bad) in [
        (r#""id":"i""#, r#""id":1"#),
        (r#""id":"i""#, r#""id":null"#),
        (r#""msg_type":"ack""#, r#""msg_type":7"#),
        (r#""msg_type":"ack""#, r#""msg_type":["ack"]"#),
        (r#""from_peer":"raw""#, r#""from_peer":{}"#),
        (r#""timestamp":1"#, r#""timestamp":-1"#),
        (r#""timestamp":1"#, r#""timestamp":1.5"#),
        (r#""timestamp":1"#, r#""timestamp":18446744073709551616"#),
        (r#""timestamp":1"#, r#""timestamp":"1""#),
    ] {
        Rig::refused(message(&FIVE.replace(good, bad)).as_bytes(), "Message(Not");
    }
}

#[test]
fn extra_keys_are_ignored_however_often_and_a_known_one_twice_is_a_fault() {
    for rig in Rig::both() {
        rig.accepted(&message(&format!(r#"{FIVE},"x":1,"x":[2]"#)));
    }
    Rig::refused(message(&format!(r#"{FIVE},"id":"i""#)).as_bytes(), "Message(Repeated(Id))");
}

#[test]
fn a_payload_may_be_any_json() {
    for payload in ["null", "[]", "1", "\"text\"", "true", "{\"a\":1,\"a\":2}"] {
        for rig in Rig::both() {
            rig.accepted(&message(&FIVE.replace("{}", payload)));
        }
    }
}

#[test]
fn strings_may_be_empty_or_long_and_the_timestamp_any_u64() {
    for rig in Rig::both() {
        rig.accepted(
            r#"{"id":"","msg_type":"ack","from_peer":"","timestamp":18446744073709551615,"payload":{}}"#,
        );
    }
    let long = "x".repeat(200_000);
    for rig in Rig::both() {
        let mut rig = rig.accepted(&message(
            &FIVE.replace("\"i\"", &format!("\"{long}\"")).replace("ack", "delegate_task"),
        ));
        assert_eq!(rig.fleet.told_of(rig.relay, "message"), ["message raw delegate_task"]);
        rig = rig.accepted(&message(
            &FIVE.replace("\"i\"", &format!("\"{long}\"")).replace("ack", "delegate_task"),
        ));
        assert_eq!(rig.fleet.told_of(rig.relay, "message").len(), 1, "a long id is remembered too");
        rig = rig.accepted(&message(&FIVE.replace("\"i\"", "\"\"").replace("ack", "delegate_task")));
        rig = rig.accepted(&message(&FIVE.replace("\"i\"", "\"\"").replace("ack", "delegate_task")));
        assert_eq!(rig.fleet.told_of(rig.relay, "message").len(), 2, "and an empty one");
    }
}

#[test]
fn an_array_of_the_five_values_and_an_object_for_the_type_are_read() {
    for rig in Rig::both() {
        let rig = rig.accepted(r#"["1","lease_list","raw",1,{"request_id":"array"}]"#);
        let rig = rig.accepted(
            r#"{"id":"2","msg_type":{"lease_list":null},"from_peer":"raw","timestamp":1,"payload":{"request_id":"object"}}"#,
        );
        let answered: Vec<_> =
            rig.link.of_type("lease_result").iter().map(|sent| sent.payload["request_id"].clone()).collect();
        assert_eq!(answered, ["array", "after", "object", "after"]);
    }
    Rig::refused(br#"["1","lease_list","raw",1]"#, "Message(");
    Rig::refused(br#"["1","lease_list","raw",1,{},2]"#, "Message(");
}

#[test]
fn numbers_and_escapes_that_cannot_be_are_faults() {
    let digits = "9".repeat(400);
    for value in ["1e400", &digits, "NaN", "Infinity", r#""\ud800""#, r#""\udc00\ud800""#, "01", "+1", "'x'"]
    {
        let text = message(&FIVE.replace("{}", &format!(r#"{{"x":{value}}}"#)));
        Rig::refused(text.as_bytes(), "Message(NotJson");
    }
    for rig in Rig::both() {
        rig.accepted(&message(&FIVE.replace("{}", "{\"x\":\"\\u0000\"}")));
    }
}

#[test]
fn a_payload_may_nest_125_deep_below_its_key() {
    let nested = |depth| format!(r#"{{"x":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    for rig in Rig::both() {
        rig.accepted(&message(&FIVE.replace("{}", &nested(125))));
    }
    for depth in [126, 10_000] {
        Rig::refused(message(&FIVE.replace("{}", &nested(depth))).as_bytes(), "Message(NotJson");
    }
}

#[test]
fn white_space_round_a_message_is_trimmed() {
    for text in [format!("\t {{{FIVE}}} \r"), format!("\u{a0}{{{FIVE}}}\u{2003}")] {
        for rig in Rig::both() {
            rig.accepted(&text);
        }
    }
}

#[test]
fn what_is_not_one_json_text_is_a_fault() {
    let whole = message(FIVE);
    for text in [
        format!("\u{feff}{whole}"),
        format!("{whole}\0"),
        format!("{whole}{whole}"),
        "\r".to_owned(),
        "   ".to_owned(),
        "{".to_owned(),
        whole[..whole.len() - 1].to_owned(),
        "GET / HTTP/1.1".to_owned(),
    ] {
        Rig::refused(text.as_bytes(), "Message(");
    }
    Rig::refused(b"\xff", "Message(NotUtf8");
    Rig::refused(&[br#"{"id":""#, &b"\xc3\x28"[..], b"\"}"].concat(), "Message(NotUtf8");
}

#[test]
fn a_blank_line_ends_the_stream() {
    Rig::new(false).refused_bytes(b"\n", "Frame(BlankLine");
}

#[test]
fn a_line_of_a_mebibyte_is_read_and_one_byte_more_is_not() {
    let padded = |bytes: usize| {
        let bare = message(&FIVE.replace("{}", r#"{"x":""}"#)).len();
        message(&FIVE.replace("{}", &format!(r#"{{"x":"{}"}}"#, "x".repeat(bytes - bare))))
    };
    let rig = Rig::new(false);
    assert_eq!(padded(1 << 20).len(), 1 << 20);
    rig.accepted(&padded(1 << 20));
    Rig::new(false).refused_bytes((padded((1 << 20) + 1) + "\n").as_bytes(), "Frame(LineTooLong");
    let rig = Rig::new(true);
    rig.accepted(&padded((1 << 20) - 1));
    let long = padded(1 << 20);
    Rig::new(true).refused_bytes(&wire::frame(long.len() as u32 + 1, 0, long.as_bytes()), "Frame(TooLong");
}

/// A compressed frame: what its header says of the text's length, and the text.
fn compressed(raw: [u8; 4], text: &[u8]) -> Vec<u8> {
    let body = [&raw[..], &lz4(text)].concat();
    wire::frame(body.len() as u32 + 1, 1, &body)
}

/// An LZ4 block of literals alone, which every decoder must take: the writer need not know how to compress.
fn lz4(text: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    if text.len() < 15 {
        block.push((text.len() as u8) << 4);
    } else {
        block.push(0xf0);
        let mut rest = text.len() - 15;
        while rest >= 255 {
            block.push(255);
            rest -= 255;
        }
        block.push(rest as u8);
    }
    block.extend_from_slice(text);
    block
}

fn text_of(bytes: usize) -> String {
    let bare = message(&FIVE.replace("{}", r#"{"x":""}"#)).len();
    message(&FIVE.replace("{}", &format!(r#"{{"x":"{}"}}"#, "x".repeat(bytes - bare))))
}

#[test]
fn a_compressed_frame_is_read_down_to_1024_bytes_of_text() {
    let mut rig = Rig::new(true);
    for bytes in [1024, 5000, 1 << 19] {
        let text = text_of(bytes);
        let frame = compressed((bytes as u32).to_le_bytes(), text.as_bytes());
        rig.fleet.send(&rig.link.clone(), &frame);
        assert!(rig.link.is_open() && rig.answers(true, &format!("{bytes}")), "{bytes}");
    }
}

#[test]
fn every_fault_of_a_binary_frame_ends_the_link() {
    let text = text_of(2000);
    let good = compressed(2000_u32.to_le_bytes(), text.as_bytes());
    let mut behind = compressed(2000_u32.to_le_bytes(), text.as_bytes());
    behind.extend_from_slice(b"junk");
    let longer = behind.len() as u32 - 4;
    behind[..4].copy_from_slice(&longer.to_be_bytes());
    for (frame, fault) in [
        (wire::frame(0, 0, b""), "Frame(Empty"),
        (wire::frame((1 << 20) + 1, 0, b""), "Frame(TooLong"),
        (wire::frame(u32::MAX, 0, b""), "Frame(TooLong"),
        (wire::frame(3, 2, b"{}"), "Frame(ReservedFlags"),
        (wire::frame(3, 0x80, b"{}"), "Frame(ReservedFlags"),
        (wire::frame(4, 1, b"\0\0\0"), "Frame(ShortBody"),
        (compressed(1023_u32.to_le_bytes(), text.as_bytes()), "Frame(RawLength"),
        (compressed(((4 << 20) + 1_u32).to_le_bytes(), text.as_bytes()), "Frame(RawLength"),
        (compressed(2000_u32.to_be_bytes(), text.as_bytes()), "Frame(RawLength"),
        (compressed(1999_u32.to_le_bytes(), text.as_bytes()), "Frame(Block"),
        (compressed(2001_u32.to_le_bytes(), text.as_bytes()), "Frame(Block"),
        (wire::frame(2005, 1, &[&2000_u32.to_le_bytes()[..], &[0xff; 2000]].concat()), "Frame(Block"),
        (behind, "Frame(Block"),
    ] {
        Rig::new(true).refused_bytes(&frame, fault);
    }
    let mut rig = Rig::new(true);
    rig.fleet.send(&rig.link.clone(), &good);
    assert!(rig.link.is_open());
}

#[test]
fn an_unknown_type_of_3_mib_is_opened_and_skipped() {
    let mut rig = Rig::new(true);
    let text = message(
        &FIVE
            .replace("ack", "from_the_future")
            .replace("{}", &format!(r#"{{"x":"{}"}}"#, "x".repeat(3 << 20))),
    );
    let block = relay_core::frame::encode;
    let mut frame = Vec::new();
    block(relay_core::frame::Framing::Binary, text.as_bytes(), &mut frame).unwrap();
    assert!(frame.len() < 1 << 20);
    rig.fleet.send(&rig.link.clone(), &frame);
    assert!(rig.link.is_open() && rig.answers(true, "after"));
    assert_eq!(rig.fleet.told_of(rig.relay, "unknown"), ["unknown raw from_the_future"]);
}

#[test]
fn the_other_framing_is_a_fault() {
    let line = wire::line("ack", "{}");
    Rig::new(true).refused_bytes(&line, "Frame(TooLong");
    let mut rig = Rig::new(false);
    let frame = wire::binary(&wire::text("1", "ack", "raw", "{}"));
    rig.fleet.send(&rig.link.clone(), &[frame, b"\n".to_vec()].concat());
    assert!(rig.link.is_over());
    assert!(rig.fleet.told_of(rig.relay, "down raw Fault(Message(NotJson").len() == 1);
}

#[test]
fn a_frame_that_the_end_cuts_is_not_executed() {
    for mut rig in Rig::both() {
        let frame = rig.framed(wire::text("1", "delegate_task", "raw", "{}").as_bytes());
        rig.fleet.send_last(&rig.link.clone(), &frame[..frame.len() - 1]);
        assert!(rig.link.is_over());
        assert_eq!(rig.fleet.told_of(rig.relay, "message"), [""; 0]);
        assert_eq!(rig.fleet.told_of(rig.relay, "down"), ["down raw Fault(Frame(Truncated))"]);
        assert!(rig.answers(false, "still"));
    }
}

#[test]
fn a_request_and_a_half_close_are_answered_and_then_the_link_ends() {
    for mut rig in Rig::both() {
        let frame = rig.framed(wire::text("1", "lease_list", "raw", r#"{"request_id":"r"}"#).as_bytes());
        rig.fleet.send_last(&rig.link.clone(), &frame);
        assert_eq!(rig.link.of_type("lease_result").len(), 1);
        assert!(rig.link.closed().is_some());
        assert_eq!(rig.fleet.told_of(rig.relay, "down"), ["down raw PeerClosed"]);
    }
}

#[test]
fn a_frame_may_pause_for_less_than_30_s_and_no_longer() {
    for pause in [28, 33] {
        for mut rig in Rig::both() {
            rig.fleet.pass(1);
            let frame =
                rig.framed(wire::text("1", "lease_list", "raw", r#"{"request_id":"slow"}"#).as_bytes());
            let (first, second) = frame.split_at(30);
            rig.fleet.send(&rig.link.clone(), first);
            rig.fleet.pass(pause);
            rig.fleet.send(&rig.link.clone(), second);
            let answered = rig.link.of_type("lease_result").len();
            let slow = rig.fleet.told_of(rig.relay, "down raw Fault(SlowFrame)").len();
            assert_eq!((answered, slow), if pause < 30 { (1, 0) } else { (0, 1) });
        }
    }
}

#[test]
fn the_time_of_a_frame_runs_from_its_own_first_byte() {
    for mut rig in Rig::both() {
        let frame = rig.framed(wire::text("1", "ack", "raw", "{}").as_bytes());
        // Every piece ends one frame and begins the next, for longer than one frame may take.
        rig.fleet.send(&rig.link.clone(), &frame[..9]);
        for _ in 0..10 {
            rig.fleet.pass(20);
            rig.fleet.send(&rig.link.clone(), &[&frame[9..], &frame[..9]].concat());
        }
        assert!(rig.link.is_open(), "{:?}", rig.fleet.told(rig.relay));
    }
}

#[test]
fn messages_out_of_their_place_say_nothing_on_a_link() {
    for mut rig in Rig::both() {
        for msg_type in ["challenge", "handshake", "handshake_ack", "ack"] {
            let frame = rig.framed(wire::text(msg_type, msg_type, "raw", "{}").as_bytes());
            rig.fleet.send(&rig.link.clone(), &frame);
        }
        let told = rig.fleet.told(rig.relay).len();
        assert_eq!(told, 2, "the two links alone");
        for msg_type in
            ["lease_result", "task_status", "session_received", "knowledge_sync", "knowledge_rejected"]
        {
            let frame = rig.framed(wire::text(msg_type, msg_type, "raw", "{}").as_bytes());
            rig.fleet.send(&rig.link.clone(), &frame);
        }
        assert!(rig.link.is_open() && rig.answers(true, "after"));
        assert_eq!(rig.link.of_type("lease_result").len(), 1);
    }
}

#[test]
fn the_type_unknown_is_a_type_that_is_unknown() {
    for mut rig in Rig::both() {
        for msg_type in ["unknown", "Ack", "lease-list", "", "from_the_future", "from_the_future"] {
            let frame = rig.framed(wire::text("1", msg_type, "raw", "{}").as_bytes());
            rig.fleet.send(&rig.link.clone(), &frame);
        }
        let told = rig.fleet.told_of(rig.relay, "unknown");
        assert_eq!(
            told,
            [
                "unknown raw unknown",
                "unknown raw Ack",
                "unknown raw lease-list",
                "unknown raw ",
                "unknown raw from_the_future"
            ]
        );
    }
}

#[test]
fn unknown_types_are_told_once_a_peer_and_type_and_not_without_bound() {
    let mut rig = Rig::new(false);
    for n in 0..200 {
        let frame = rig.framed(wire::text("1", &format!("new_{n}"), "raw", "{}").as_bytes());
        rig.fleet.send(&rig.link.clone(), &frame);
    }
    let told = rig.fleet.told_of(rig.relay, "unknown raw").len();
    assert_eq!(told, 64);
    let frame = rig.framed(wire::text("1", "new_0", "beside", "{}").as_bytes());
    rig.fleet.send(&rig.beside.clone(), &frame);
    assert_eq!(rig.fleet.told_of(rig.relay, "unknown beside").len(), 1, "another peer's are its own");
    let again = rig.fleet.join(&rig.raw.clone(), rig.relay, "raw", "");
    rig.fleet.send(&again, &wire::line("new_0", "{}"));
    assert_eq!(rig.fleet.told_of(rig.relay, "unknown raw").len(), told, "also over its next link");
}

#[test]
fn whatever_the_segments_the_same_is_done() {
    for binary in [false, true] {
        for splits in [Splits::Bytes, Splits::Whole, Splits::Drawn] {
            let mut rig = Rig::new(binary);
            rig.fleet.world.splits(splits);
            let frames: Vec<_> = (0..5)
                .map(|n| rig.framed(wire::text(&format!("{n}"), "delegate_task", "raw", "{}").as_bytes()))
                .collect();
            rig.fleet.send(&rig.link.clone(), &frames.concat());
            assert_eq!(rig.fleet.told_of(rig.relay, "message").len(), 5);
        }
    }
}
