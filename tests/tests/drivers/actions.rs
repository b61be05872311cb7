//! Actions, carried out by an actor on files.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use relay_mio::Options;
use relay_tests::actor::Folder;
use relay_tests::probe::Ask;
use relay_tests::rig::{Over, Rig, Running};
use tempfile::TempDir;

crate::everywhere![
    files_are_written_read_and_removed,
    a_slow_action_holds_nobody_up_and_ends_before_the_driver,
];

fn files_are_written_read_and_removed(rig: &dyn Rig, over: Over) {
    let (home, _, running) = start(rig, over);
    let mut client = running.client();
    assert_eq!(client.ask("write notes/one some text"), "done");
    assert_eq!(std::fs::read(home.path().join("notes/one")).unwrap(), b"some text");
    assert_eq!(client.ask("read notes/one 9"), "some text");
    assert_eq!(client.ask("read notes/one 8"), "the file is too large");
    assert_eq!(client.ask("remove notes/one"), "done");
    assert!(!home.path().join("notes/one").exists());
    assert_eq!(client.ask("read notes/one 9"), "no such file");
    // A folder stands in the way.
    assert_eq!(client.ask("write notes text"), "it failed");
}

fn a_slow_action_holds_nobody_up_and_ends_before_the_driver(rig: &dyn Rig, over: Over) {
    let (home, gate, running) = start(rig, over);
    let mut client = running.client();
    let held = gate.lock().unwrap();
    // They end in the order in which they began, behind what is said meanwhile.
    client.send("write a one\nread a 9\nfree meanwhile\n");
    assert_eq!(client.line(), "meanwhile");
    drop(held);
    assert_eq!([client.line(), client.line()], ["done", "one"]);
    let held = gate.lock().unwrap();
    client.send("write b two\nwrite c three\nwrite d four\nfree begun\n");
    assert_eq!(client.line(), "begun");
    assert_eq!(running.ask(Ask::Echo(1)), 1);
    running.handle.shutdown(Duration::ZERO);
    drop(held);
    assert!(running.handle.join());
    for (name, text) in [("b", "two"), ("c", "three"), ("d", "four")] {
        assert_eq!(std::fs::read_to_string(home.path().join(name)).unwrap(), text);
    }
}

fn start(rig: &dyn Rig, over: Over) -> (TempDir, Arc<Mutex<()>>, Running) {
    let home = TempDir::new().unwrap();
    let folder = Folder::new(home.path());
    let gate = folder.gate();
    let running = Running::with(rig, over, Options { actor: Box::new(folder), ..Options::default() });
    (home, gate, running)
}
