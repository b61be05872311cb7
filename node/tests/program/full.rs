//! Leases where the disk of the home is really full.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::running::until;
use crate::support::Home;

/// Where the filesystem is that the second half of the test runs on.
const MOUNTED: &str = "RELAY_TEST_MOUNTED";

/// Mounts a filesystem of 4 MiB that no other process sees, and runs the other half of the test there. Where the system
/// refuses that, the test says so and tests nothing.
#[test]
fn a_full_disk_refuses_claims_and_leaves_all_else_and_passes() {
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=4m,mode=700 tmpfs \"$1\" && echo mounted && \
                  exec \"$0\" full::on_the_mounted_disk --exact --ignored --nocapture";
    let ours: &[&str] = &["--mount"];
    let users: &[&str] = &["--user", "--map-root-user", "--mount"];
    for namespace in [ours, users] {
        let mut command = Command::new("unshare");
        command.args(namespace).args(["sh", "-c", script]).arg(std::env::current_exe().unwrap());
        let Ok(output) = command.arg(dir.path()).env(MOUNTED, dir.path()).output() else { continue };
        let said = String::from_utf8_lossy(&output.stdout);
        if !said.starts_with("mounted\n") {
            continue;
        }
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{said}{told}");
        return;
    }
    println!("NOT TESTED: this system lets nobody mount a tmpfs in a namespace of its own");
}

/// Takes all the room there is.
fn fill(path: &Path) {
    let mut ballast = OpenOptions::new().create(true).append(true).open(path).unwrap();
    let mut size = 1 << 20;
    while size > 0 {
        if ballast.write_all(&vec![0; size]).is_err() {
            size /= 2;
        }
    }
}

fn leases(home: &Home) -> Vec<Value> {
    home.json(&["lease", "list"])
}

#[test]
#[ignore = "the other test of this file runs it, on a disk of its own"]
fn on_the_mounted_disk() {
    let Ok(mounted) = std::env::var(MOUNTED) else { return };
    let home = Home::on(Path::new(&mounted));
    let (mut serve, addr) = home.serve(&[]);
    let other = Home::new();
    other.json(&["join", &home.invite(&addr)]);
    other.put("config.toml", format!("authority = \"{}\"\n", home.id()));
    let (_other, _) = other.serve(&[]);
    serve.event("link_up");
    home.json(&["lease", "claim", "res:before", "--id", "before", "--ttl", "7d"]);

    let ballast = Path::new(&mounted).join("ballast");
    fill(&ballast);
    // The file of the log may have room left that is its own already.
    let mut tried = Vec::new();
    let refused = until("a claim is refused", || {
        let id = format!("l{}", tried.len());
        let ran =
            home.run(&["lease", "claim", &format!("res:{id}"), "--id", &id, "--session", "s", "--ttl", "7d"]);
        tried.push(id);
        fill(&ballast);
        (ran.code != 0).then_some(ran)
    });
    let doubtful = tried.pop().unwrap();
    assert!(refused.code == 1 && refused.err.contains("journal"), "{}", refused.err);
    assert!(refused.err.contains("Free some space"), "{}", refused.err);
    assert_eq!(serve.event("journal")["state"], json!("failing"));

    // Refused at once now, here and to other nodes, and nothing is given back.
    let refused = home.run(&["lease", "claim", "res:more"]);
    assert!(refused.code == 1 && refused.err.contains("the authority's journal fails"), "{}", refused.err);
    assert!(refused.err.contains("Free some space"), "{}", refused.err);
    let refused = other.run(&["lease", "claim", "res:more"]);
    assert!(refused.code == 1 && refused.err.contains("the authority's journal fails"), "{}", refused.err);
    assert_eq!(home.run(&["lease", "release", "before"]).code, 1);

    // What is durable is told, to both, and heartbeats go on.
    let held = leases(&home);
    assert!(held.iter().any(|lease| lease["id"] == "before"), "{held:?}");
    assert!(held.iter().all(|lease| lease["id"] != json!(doubtful)), "{held:?}");
    assert_eq!(leases(&other), held);
    let beat = || other.live(&home.id())["live"]["heartbeat_at"].as_str().map(str::to_owned);
    for _ in 0..2 {
        let seen = beat();
        until("a heartbeat comes", || (beat() != seen).then_some(()));
    }
    assert!(home.live(&other.id())["live"]["link"].is_object());

    fs::remove_file(&ballast).unwrap();
    assert_eq!(serve.event("journal")["state"], json!("working"));
    home.json(&["lease", "claim", "res:after", "--id", "after"]);
    // What was in doubt is granted to whoever claims it again.
    let again = ["lease", "claim", &format!("res:{doubtful}"), "--id", &doubtful, "--session", "s"];
    home.json(&again);
    let held = leases(&home);
    serve.kill();
    let (_serve, _) = home.serve(&[]);
    assert_eq!(leases(&home), held);
}
