//! No secret leaves the files that are there for it.

use std::fs;
use std::path::Path;

use crate::running::until;
use crate::support::Home;

#[test]
fn nothing_that_is_printed_logged_or_written_holds_a_secret() {
    let (a, b) = (Home::new(), Home::new());
    let mut printed = String::new();
    for json in [true, false] {
        let flags: &[&str] = if json { &["-vv", "--json"] } else { &["-vv"] };
        let with =
            |args: &[&str]| [args, flags].concat().iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
        let run = |home: &Home, args: &[&str]| {
            let args = with(args);
            let ran = home.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
            format!("{}\n{}\n", ran.out, ran.err)
        };
        let (mut a_serve, addr) = a.serve(&["-vv"]);
        // The one line that is meant to show it is kept apart.
        let link = a.invite(&addr);
        printed += &run(&b, &["join", &link]);
        let (mut b_serve, _) = b.serve(&["-vv"]);
        b_serve.event("link_up");
        a_serve.event("link_up");
        let id = a.id();
        for args in [
            &["send", &id, "lease_list", "{\"request_id\":\"r\"}", "--reply-within", "20"] as &[&str],
            &["send", &id, "task_status", "{}"],
            &["ping", &id],
            &["peers", "list"],
            &["peers", "show", &id],
            &["config", "show"],
            &["join", &link],
        ] {
            printed += &run(&b, args);
            printed += &run(&a, args);
        }
        a_serve.event("message");
        for ran in [b_serve.terminate(), a_serve.terminate()] {
            printed += &format!("{}\n{}\n", ran.out, ran.err);
        }
        let code = link.rsplit('/').next().unwrap().to_owned();
        let key = a.read(&format!("peers/{}.key", b.id())).trim().to_owned();
        assert_eq!(key.len(), 64);
        for secret in [&code, &key, &key[..16].to_owned()] {
            assert!(!printed.contains(secret.as_str()), "a secret was printed:\n{printed}");
        }
        for home in [&a, &b] {
            until("a redeemed invite's file is gone", || {
                (!home.path("peers/_pending.key").exists()).then_some(())
            });
            no_file_but_keys_holds(&home.path(""), &key[..16]);
        }
        // Proofs and nonces are 64 hex digits as well: none of any kind may be there.
        let hex = |c: char| c.is_ascii_hexdigit();
        let longest = printed.split(|c| !hex(c)).map(str::len).max().unwrap();
        assert!(longest < 64, "something like a proof was printed:\n{printed}");
        for (home, peer) in [(&a, b.id()), (&b, a.id())] {
            home.run(&["peers", "forget", &peer]);
        }
    }
}

fn no_file_but_keys_holds(dir: &Path, secret: &str) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            no_file_but_keys_holds(&path, secret);
        } else if path.extension().is_none_or(|ending| ending != "key") {
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            assert!(!text.contains(secret), "{}", path.display());
        }
    }
}
