//! Durable before visible.

use std::time::Duration;

use relay_core::machine::{CloseReason, Refused};
use relay_tests::client::is_over;
use relay_tests::probe::{Ask, Seen};
use relay_tests::rig::{Over, PATIENCE, Rig, Running};

crate::everywhere![
    nothing_is_said_before_it_is_durable,
    a_fin_before_the_journal_has_answered_is_answered,
    a_full_disk_acknowledges_nothing_and_recovers,
    a_slow_journal_stops_reading_and_recovers,
    a_slow_journal_stops_accepting_and_recovers,
];

fn nothing_is_said_before_it_is_durable(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let (mut writer, mut other) = (running.client(), running.client());
    running.disk.hold();
    writer.send("keep a\necho behind\ntell held\n");
    assert!(running.disk.wait_begun(1, PATIENCE));
    let held = running.handle.command(Ask::Keep(7)).unwrap();
    // What rests on nothing is said meanwhile, to others.
    assert_eq!(other.ask("free here"), "here");
    writer.patience(Duration::from_millis(100));
    assert!(writer.try_line().is_err());
    assert!(held.wait_timeout(Duration::from_millis(1)).is_err());
    while let Ok(seen) = running.events.try_recv() {
        assert!(matches!(seen, Seen::Opened(..)), "{seen:?} before the record is durable");
    }
    running.disk.release();
    writer.patience(PATIENCE);
    assert_eq!([writer.line(), writer.line()], ["kept a", "behind"]);
    assert_eq!(held.wait(), Some(Ok(7)));
    running.until(|seen| *seen == Seen::Told(0, "held".into()));
    assert_eq!(running.disk.records(), ["a", "7"]);
}

fn a_fin_before_the_journal_has_answered_is_answered(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    running.disk.hold();
    let mut client = running.client();
    client.send("keep a\n");
    client.finish();
    running.until(|seen| *seen == Seen::Eof(0));
    assert!(running.disk.wait_begun(1, PATIENCE));
    running.disk.release();
    assert_eq!(client.rest().unwrap(), b"kept a\n");
    running.until(|seen| *seen == Seen::Closed(0, CloseReason::Finished));
}

fn a_full_disk_acknowledges_nothing_and_recovers(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let (mut holder, mut idle) = (running.client(), running.client());
    assert_eq!(holder.ask("keep a"), "kept a");
    assert_eq!(idle.ask("echo idle"), "idle");
    running.disk.hold();
    running.disk.fill(true);
    holder.send("keep b\n");
    assert!(running.disk.wait_begun(2, PATIENCE));
    let refused = running.handle.command(Ask::Keep(1)).unwrap();
    // The command is behind the record before the disk fails.
    assert!(running.gauge("unanswered_commands") > 0);
    running.disk.release();
    running.until(|seen| *seen == Seen::Failing);
    match holder.rest() {
        Ok(rest) => assert!(over == Over::Unix && rest.is_empty(), "{rest:?}"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    assert_eq!(refused.wait(), Some(Err(Refused::NotDurable)));
    running.until(|seen| *seen == Seen::Closed(0, CloseReason::NotDurable));
    assert_eq!(idle.ask("keep c"), "refused");
    assert_eq!(running.disk.records(), ["a"]);
    running.disk.fill(false);
    running.until(|seen| *seen == Seen::Resumed);
    assert_eq!(idle.ask("keep d"), "kept d");
    assert_eq!(running.disk.records(), ["a", "b", "1", "d"]);
}

fn a_slow_journal_stops_reading_and_recovers(rig: &dyn Rig, over: Over) {
    const NOTES: usize = 64 << 10;
    let running = Running::start(rig, over);
    let (mut writer, mut other) = (running.client(), running.client());
    assert_eq!(other.ask("echo here"), "here");
    running.disk.hold();
    let notes = format!("note {}\n", "n".repeat(1019)).repeat(NOTES);
    writer.patience(Duration::from_millis(500));
    let sent = writer.send_until_full(notes.as_bytes());
    assert!(sent >= 16 << 20, "only {sent} bytes went before the host was congested");
    assert!(sent < 48 << 20, "{sent} bytes went: the driver reads though the host is congested");
    assert!(running.gauge("journal_pending_bytes") > 16 << 20);
    running.disk.release();
    writer.patience(PATIENCE);
    writer.send(&notes.as_bytes()[sent..]);
    assert_eq!(writer.ask("keep last"), "kept last");
    assert_eq!(other.ask("echo still here"), "still here");
    assert_eq!(running.disk.records().len(), NOTES + 1);
}

fn a_slow_journal_stops_accepting_and_recovers(rig: &dyn Rig, over: Over) {
    let running = Running::start(rig, over);
    let mut writer = running.client();
    running.disk.hold();
    writer.send("bulk 17000000\n");
    running.until_gauge("journal_pending_bytes", |bytes| bytes > 16 << 20);
    // The system takes the caller, and the driver leaves it there.
    let mut caller = running.client();
    caller.send("echo at last\n");
    caller.patience(Duration::from_millis(300));
    assert!(caller.try_line().is_err_and(|error| is_over(&error)));
    assert_eq!(running.gauge("connections"), 1, "{} accepts though the host is congested", rig.name());
    running.disk.release();
    caller.patience(PATIENCE);
    assert_eq!(caller.line(), "at last");
    assert_eq!(running.gauge("connections"), 2);
}
