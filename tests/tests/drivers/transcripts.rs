//! One list of inputs gives one transcript, whatever drives the machine and whatever carries its bytes.

use relay_core::machine::{CloseReason, Refused};
use relay_tests::probe::{Ask, Seen};
use relay_tests::rig::Over;
use relay_tests::script::Deed;

use crate::alike::{alike, alike_behind, alike_over, come_to, send};

#[test]
fn a_conversation_reads_the_same_everywhere() {
    let transcript = alike(&[
        Deed::Connect,
        Deed::Connect,
        send(0, "echo a\nkeep b\nfree c\n", 4),
        Deed::Line(0),
        Deed::Line(0),
        Deed::Line(0),
        Deed::Ask(Ask::Keep(41)),
        send(1, "tell d\nstay\nlater 30 e\n", 7),
        Deed::Finish(1),
        Deed::Rest(1),
        Deed::Until(Seen::Closed(1, CloseReason::Finished)),
        send(0, "echo f\nclose\n", 100),
        Deed::Rest(0),
        Deed::Finish(0),
        Deed::Until(Seen::Closed(0, CloseReason::Asked)),
        Deed::Ask(Ask::Echo(42)),
    ]);
    assert_eq!(transcript.clients, [vec!["a", "kept b", "c", "f\n"], vec!["e\n"]]);
    assert_eq!(transcript.answers, [Ok(41), Ok(42)]);
    assert_eq!(transcript.records, ["b", "41"]);
    assert_eq!(
        transcript.events[&Some(1)],
        [
            Seen::Opened(1, false),
            Seen::Told(1, "d".into()),
            Seen::Eof(1),
            Seen::Closed(1, CloseReason::Finished),
        ]
    );
}

#[test]
fn a_fin_before_the_journal_has_answered_reads_the_same_everywhere() {
    let transcript = alike(&[
        Deed::Connect,
        Deed::Hold(true),
        send(0, "keep a\n", 3),
        Deed::Finish(0),
        Deed::Until(Seen::Eof(0)),
        come_to("journal_pending_bytes", 1),
        Deed::Hold(false),
        Deed::Rest(0),
        Deed::Until(Seen::Closed(0, CloseReason::Finished)),
    ]);
    assert_eq!(transcript.clients, [["kept a\n"]]);
    assert_eq!(transcript.records, ["a"]);
}

#[test]
fn half_closes_both_ways_read_the_same_everywhere() {
    let transcript = alike(&[
        Deed::Connect,
        send(0, "echo last\nfinish\necho unheard\n", 100),
        Deed::Rest(0),
        send(0, "tell still here\n", 5),
        Deed::Until(Seen::Told(0, "still here".into())),
        Deed::Finish(0),
        Deed::Until(Seen::Closed(0, CloseReason::Finished)),
        Deed::Connect,
        send(1, "stay\nlater 20 first\nlater 40 second\n", 9),
        Deed::Finish(1),
        Deed::Until(Seen::Eof(1)),
        Deed::Rest(1),
        Deed::Until(Seen::Closed(1, CloseReason::Finished)),
    ]);
    assert_eq!(transcript.clients, [["last\n"], ["first\nsecond\n"]]);
}

#[test]
fn a_peer_that_stops_reading_and_reads_on_reads_the_same_everywhere() {
    let flood = "limit 65536 16384 40000000\nflood 20000000\n";
    let transcript = alike(&[
        Deed::Connect,
        Deed::Connect,
        send(0, flood, 100),
        come_to("received", flood.len() as u64),
        // The probe has paused it, so that this is heard when the flood has gone.
        send(0, "tell behind\necho last\n", 100),
        send(1, "echo here\n", 100),
        Deed::Line(1),
        Deed::Gauge("drained", 0..1),
        Deed::Line(0),
        Deed::Line(0),
        Deed::Gauge("drained", 1..2),
        Deed::Until(Seen::Told(0, "behind".into())),
    ]);
    assert!(transcript.clients[0][0].contains("20000000 bytes"), "{:?}", transcript.clients[0]);
    assert_eq!((&*transcript.clients[0][1], &*transcript.clients[1][0]), ("last", "here"));
}

#[test]
fn a_peer_that_never_reads_on_is_closed_the_same_everywhere() {
    let flood = "limit 65536 16384 262144\n".to_owned() + &"flood 100000\n".repeat(200);
    let transcript = alike(&[
        Deed::Connect,
        Deed::Connect,
        send(0, &flood, 4000),
        Deed::Until(Seen::Closed(0, CloseReason::Overflow)),
        send(1, "echo after\n", 100),
        Deed::Line(1),
    ]);
    assert_eq!(transcript.clients[1], ["after"]);
    assert_eq!(transcript.events[&Some(0)].len(), 2);
}

#[test]
fn pauses_with_nothing_unsent_read_the_same_everywhere() {
    let mut deeds = vec![Deed::Connect, send(0, "limit 0 0 1000000\n", 5)];
    for number in 0..50 {
        deeds.extend([send(0, &format!("echo {number}\n"), 3), Deed::Line(0)]);
    }
    deeds.push(come_to("drained", 50));
    let transcript = alike(&deeds);
    assert!((0..50).map(|number| number.to_string()).eq(transcript.clients[0].iter().cloned()));
}

#[test]
fn a_full_disk_that_recovers_reads_the_same_everywhere() {
    let deeds = [
        Deed::Connect,
        Deed::Connect,
        send(0, "keep a\n", 100),
        Deed::Line(0),
        Deed::Hold(true),
        Deed::Fill(true),
        send(0, "keep b\n", 2),
        come_to("journal_pending_bytes", 1),
        Deed::Order(Ask::Keep(1)),
        come_to("unanswered_commands", 1),
        Deed::Hold(false),
        Deed::Until(Seen::Failing),
        Deed::Until(Seen::Closed(0, CloseReason::NotDurable)),
        Deed::Rest(0),
        send(1, "keep c\n", 3),
        Deed::Line(1),
        // Recorded while it fails, and answered when that is durable after all.
        Deed::Order(Ask::Keep(2)),
        come_to("unanswered_commands", 1),
        Deed::Fill(false),
        Deed::Until(Seen::Resumed),
        send(1, "keep d\n", 3),
        Deed::Line(1),
    ];
    // A unix socket has no reset.
    for (over, end) in [(Over::Tcp, "(reset)"), (Over::Unix, "")] {
        let transcript = alike_over(over, &deeds);
        assert_eq!(transcript.clients, [["kept a", end], ["refused", "kept d"]]);
        assert_eq!(transcript.answers, [Err(Refused::NotDurable), Ok(2)]);
        assert_eq!(transcript.records, ["a", "b", "1", "2", "d"]);
    }
}

#[test]
fn a_journal_that_is_too_far_behind_reads_the_same_everywhere() {
    let transcript = alike(&[
        Deed::Connect,
        Deed::Hold(true),
        send(0, "bulk 17000000\n", 100),
        come_to("journal_pending_bytes", 16 << 20),
        // Nothing is read and nobody is accepted meanwhile, though the system lets a caller in.
        Deed::Connect,
        send(0, "tell late\necho behind\n", 100),
        send(1, "echo at last\n", 100),
        Deed::Gauge("connections", 1..2),
        Deed::Hold(false),
        Deed::Line(1),
        Deed::Line(0),
    ]);
    assert_eq!(transcript.clients, [["behind"], ["at last"]]);
    assert_eq!(transcript.records.len(), 1);
}

#[test]
fn a_full_event_channel_reads_the_same_everywhere() {
    let mut deeds = vec![Deed::Connect];
    deeds.extend((0..100).map(|number| send(0, &format!("tell {number}\n"), 100)));
    deeds.extend([
        send(0, "echo through\n", 100),
        Deed::Line(0),
        // Behind all that was told.
        Deed::Ask(Ask::Echo(1)),
        Deed::Until(Seen::Told(0, "0".into())),
        // Two were taken, so that there is room for two.
        send(0, "tell late\ntell later\ntell too late\necho still\n", 100),
        Deed::Line(0),
        Deed::Ask(Ask::Echo(2)),
    ]);
    let transcript = alike_behind(4, &deeds);
    assert_eq!(transcript.clients, [["through", "still"]]);
    let told = ["0", "1", "2", "late", "later"].map(|text| Seen::Told(0, text.into()));
    assert_eq!(transcript.events[&Some(0)][1..], told);
    // All others of the hundred, one of the three, and the three that tell of the end.
    assert_eq!(transcript.dropped, 97 + 1 + 3);
}

#[test]
fn a_reset_in_the_middle_reads_the_same_everywhere() {
    let flood = "limit 65536 16384 40000000\nflood 20000000\n";
    let deeds = [
        Deed::Connect,
        Deed::Connect,
        send(0, flood, 100),
        come_to("received", flood.len() as u64),
        // Unread bytes turn the end into a reset over a unix socket as well.
        Deed::Reset(0),
        Deed::Until(Seen::Closed(0, CloseReason::Reset)),
        send(1, "echo here\n", 100),
        Deed::Line(1),
        Deed::Reset(1),
        Deed::Gauge("links", 0..1),
    ];
    for (over, end) in [(Over::Tcp, CloseReason::Reset), (Over::Unix, CloseReason::Finished)] {
        let transcript = alike_over(over, &deeds);
        assert_eq!(transcript.clients[1], ["here"]);
        assert_eq!(transcript.events[&Some(1)].last(), Some(&Seen::Closed(1, end)), "{over:?}");
    }
}

/// Where the system has no poll for it, a driver finds out by its next write.
#[test]
#[cfg(any(target_os = "linux", target_os = "android"))]
fn a_reset_behind_a_half_close_reads_the_same_everywhere() {
    let transcript = alike_over(
        Over::Tcp,
        &[
            Deed::Connect,
            send(0, "stay\nlater 600000 nobody hears this\n", 100),
            Deed::Finish(0),
            Deed::Until(Seen::Eof(0)),
            Deed::Reset(0),
            Deed::Until(Seen::Closed(0, CloseReason::Reset)),
        ],
    );
    assert_eq!(transcript.events[&Some(0)].len(), 3);
}

#[test]
fn flushes_and_aborts_read_the_same_everywhere() {
    let held = "keep a\necho b\n";
    let flushed = "flood 3000000\nclose\n";
    let deeds = [
        Deed::Connect,
        send(0, flushed, 100),
        // What still comes must not turn into a reset that overtakes the answer.
        send(0, &"echo nobody\n".repeat(20_000), 1 << 16),
        Deed::Rest(0),
        Deed::Finish(0),
        Deed::Until(Seen::Closed(0, CloseReason::Asked)),
        Deed::Connect,
        Deed::Hold(true),
        send(1, held, 100),
        come_to("received", (flushed.len() + held.len()) as u64),
        send(1, "abort\n", 100),
        Deed::Until(Seen::Closed(1, CloseReason::Asked)),
        Deed::Rest(1),
        Deed::Hold(false),
        Deed::Connect,
        send(2, "echo c\n", 100),
        Deed::Line(2),
        Deed::Ask(Ask::AbortAll),
        Deed::Rest(2),
    ];
    for (over, end) in [(Over::Tcp, "(reset)"), (Over::Unix, "")] {
        let transcript = alike_over(over, &deeds);
        assert!(transcript.clients[0][0].contains("(3000001 bytes"), "{:?}", transcript.clients[0]);
        assert_eq!(transcript.clients[1..], [vec![end], vec!["c", end]]);
        assert_eq!(transcript.answers, [Ok(1)]);
        assert_eq!(transcript.records, ["a"]);
    }
}

#[test]
fn files_read_the_same_everywhere() {
    let said = [
        ("write notes/one some text", "done"),
        ("read notes/one 9", "some text"),
        ("read notes/one 8", "the file is too large"),
        ("write notes/one other", "done"),
        ("read notes/one 9", "other"),
        ("remove notes/one", "done"),
        ("remove notes/one", "done"),
        ("read notes/one 9", "no such file"),
        ("write ../one text", "no path"),
    ];
    let mut deeds = vec![Deed::Connect];
    for (line, _) in said {
        deeds.extend([send(0, &format!("{line}\n"), 6), Deed::Line(0)]);
    }
    // An action rests on what was recorded before it.
    deeds.extend([
        Deed::Hold(true),
        send(0, "note a\nwrite late x\nread late 9\n", 100),
        come_to("journal_pending_bytes", 1),
        Deed::Hold(false),
        Deed::Line(0),
        Deed::Line(0),
    ]);
    let transcript = alike(&deeds);
    assert!(said.map(|(_, heard)| heard).into_iter().chain(["done", "x"]).eq(&transcript.clients[0]));
}

#[test]
fn a_dial_reads_the_same_everywhere() {
    let transcript =
        alike(&[Deed::Dial, Deed::Until(Seen::Heard(0, "hello".into())), Deed::Gauge("links", 0..1)]);
    let closed = |number| Some(Seen::Closed(number, CloseReason::Finished));
    assert_eq!(transcript.events[&Some(0)].last().cloned(), closed(0));
    assert_eq!(transcript.events[&Some(1)].last().cloned(), closed(1));
}

#[test]
fn a_shutdown_of_what_is_under_way_reads_the_same_everywhere() {
    let asked = "keep a\nflood 2000000\n";
    let transcript = alike(&[
        Deed::Connect,
        Deed::Hold(true),
        send(0, asked, 100),
        come_to("received", asked.len() as u64),
        Deed::Shutdown,
        Deed::Until(Seen::Draining),
        Deed::Hold(false),
        Deed::Rest(0),
        Deed::Leave(0),
        Deed::Until(Seen::Closed(0, CloseReason::Asked)),
    ]);
    assert!(transcript.clients[0][0].contains("(2000008 bytes"), "{:?}", transcript.clients[0]);
    assert_eq!(transcript.records, ["a"]);
}
