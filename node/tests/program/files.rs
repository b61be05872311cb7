//! What the program leaves on the disk, and what it survives there.

use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Home, Ran, mode};

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

#[test]
fn processes_that_make_an_identity_at_once_agree_on_it() {
    for _ in 0..5 {
        let home = Home::new();
        let start = |_| home.command(&["identity"]).stdout(Stdio::piped()).spawn().unwrap();
        let children: Vec<_> = (0..8).map(start).collect();
        let ids: Vec<_> = children.into_iter().map(|c| Ran::of(c.wait_with_output().unwrap()).out).collect();
        assert!(ids.iter().all(|id| *id == home.read("identity")), "{ids:?}");
        assert_eq!(fs::read_dir(home.path("")).unwrap().count(), 1);
    }
}

#[test]
fn no_secret_is_readable_by_others_at_any_moment() {
    let home = Home::new();
    let peers = home.path("peers");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut seen = 0;
            while !done.load(Ordering::Relaxed) {
                for entry in fs::read_dir(&peers).into_iter().flatten().flatten() {
                    // A temporary file may be gone again by now.
                    if let Ok(meta) = entry.metadata() {
                        assert_eq!(meta.permissions().mode() & 0o777, 0o600, "{:?}", entry.file_name());
                        seen += 1;
                    }
                }
            }
            seen
        });
        for _ in 0..10 {
            for command in ["pair", "invite --addr 10.0.0.1:9847", "peers add a --key-file -"] {
                // The widest umask there is: modes must come from the program.
                let script = format!("umask 000; printf {KEY} | {} {command}", env!("CARGO_BIN_EXE_relay"));
                let mut shell = Command::new("sh");
                let ran =
                    Ran::of(shell.args(["-c", &script]).env("RELAY_HOME", home.path("")).output().unwrap());
                assert_eq!(ran.code, 0, "{}", ran.err);
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(watch.join().unwrap() > 0);
    });
    assert_eq!((mode(&home.path("")), mode(&peers)), (0o700, 0o700));
    assert_eq!((mode(&home.path("peers/_pending.key")), mode(&home.path("peers/a.key"))), (0o600, 0o600));
}

#[test]
fn a_home_that_another_program_made_is_used_as_it_is() {
    let home = Home::new();
    home.put("identity", "old-machine-0badcafe");
    home.put("peers/far-1a2b3c4d.key", format!("{}\n", KEY.to_uppercase()));
    home.put("peers/far-1a2b3c4d.meta", r#"{"addr":"10.0.0.9:9847","last_seen":1700000000000,"addrs":[{"addr":"10.0.0.9:9847","last_seen":1700000000000}]}"#);
    home.put("peers/far-1a2b3c4d.caps", "{}");
    assert_eq!(home.run(&["identity"]).out, "old-machine-0badcafe\n");
    let listed = &home.json(&["peers", "list"])[0];
    assert_eq!((listed["id"].as_str(), listed["paired"].as_bool()), (Some("far-1a2b3c4d"), Some(true)));
    assert_eq!(home.json(&["peers", "prune"])[0]["removed"].as_array().unwrap().len(), 0);
}

#[test]
fn a_hostile_peers_folder_is_survived() {
    let home = Home::new();
    home.put("peers/good.key", KEY);
    home.put("peers/huge.key", vec![b'0'; 4 << 20]);
    home.put("peers/good.meta", vec![b'['; 4 << 20]);
    fs::create_dir_all(home.path("peers/dir.key/deeper")).unwrap();
    fs::write(home.path("peers").join(OsStr::from_bytes(b"\xff\xfe.key")), KEY).unwrap();
    symlink("/dev/zero", home.path("peers/zero.key")).unwrap();
    symlink("nowhere", home.path("peers/dangling.key")).unwrap();
    let ran = home.run(&["peers", "list", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let paired = ran.out.lines().filter(|line| line.contains("\"paired\":true"));
    assert_eq!(paired.count(), 1, "{}", ran.out);
    for name in ["huge.key", "good.meta", "dir.key", "zero.key"] {
        assert!(ran.err.contains(name), "{name}: {}", ran.err);
    }
    for args in [
        &["peers", "prune"] as &[&str],
        &["peers", "forget", "huge"],
        &["peers", "forget", "zero"],
        &["pair"],
    ] {
        assert_eq!(home.run(args).code, 0, "{args:?}");
    }
    assert!(home.path("peers/dir.key/deeper").exists());
}

#[test]
fn a_home_that_cannot_be_made_is_an_error_that_names_it() {
    let home = Home::new();
    fs::write(home.dir.path().join("home"), "a file").unwrap();
    let ran = home.run(&["identity"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("home") && ran.err.contains("--home"), "{}", ran.err);
}

#[test]
fn a_pipe_whose_reader_left_ends_the_answer_quietly() {
    let home = Home::new();
    let mut child = home.command(&["config", "show", "--template"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

#[test]
fn whatever_lies_in_a_key_files_place_is_ignored_with_a_warning() {
    type Lay = fn(&Path);
    let kinds: [(&str, Lay); 6] = [
        ("loop", |path| symlink(path.file_name().unwrap(), path).unwrap()),
        ("socket", |path| drop(UnixListener::bind(path).unwrap())),
        ("folder", |path| fs::create_dir(path).unwrap()),
        ("pipe", |path| {
            rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RUSR).unwrap();
        }),
        ("device", |path| symlink("/dev/zero", path).unwrap()),
        ("nowhere", |path| symlink("a-file/below", path).unwrap()),
    ];
    for (kind, lay) in kinds {
        let home = Home::new();
        home.put("peers/good.key", KEY);
        home.put("peers/a-file", "");
        for name in ["_pending", "x"] {
            lay(&home.path(&format!("peers/{name}.key")));
        }
        let (serve, addr) = home.serve(&[]);
        let listed = home.json(&["peers", "list"]);
        let paired = listed.iter().filter(|peer| peer["live"]["paired"] == true).count();
        assert_eq!(paired, 1, "{kind}: {listed:?}");
        let invited = home.run(&["invite", "--addr", &addr]);
        assert_eq!(invited.code, i32::from(kind == "folder"), "{kind}: {}", invited.err);
        let ran = serve.terminate();
        assert_eq!(ran.code, 0, "{kind}: {}", ran.err);
        for name in ["_pending.key", "x.key"] {
            assert!(ran.err.contains(name), "{kind}: {}", ran.err);
        }
    }
}
