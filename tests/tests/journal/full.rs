//! A disk without room.

use std::process::Command;

/// Mounts a filesystem of 2 MiB that no other process sees. Where the system refuses that, the test says so and tests
/// nothing; the page limit in the unit tests of the journal is tested everywhere.
#[test]
fn on_a_really_full_tmpfs_of_its_own_nothing_is_acknowledged_and_with_room_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=2m,mode=700 tmpfs \"$1\" && echo mounted && exec \"$0\" fill \"$1\"";
    let ours: &[&str] = &["--mount"];
    let users: &[&str] = &["--user", "--map-root-user", "--mount"];
    for namespace in [ours, users] {
        let mut command = Command::new("unshare");
        command.args(namespace).args(["sh", "-c", script, env!("CARGO_BIN_EXE_journal-under-test")]);
        let Ok(output) = command.arg(dir.path()).output() else { continue };
        let said = String::from_utf8(output.stdout).unwrap();
        let Some(said) = said.strip_prefix("mounted\n") else { continue };
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}{told}");
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines, ["append Full", "again Some(Full)", "held 0", "newest 2 whole true faults 0"]);
        return;
    }
    println!("NOT TESTED: this system lets nobody mount a tmpfs in a namespace of its own");
}
