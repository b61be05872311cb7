//! Leases through the real program: claimed, refused, waited for, kept over a kill, and asked of another node.

use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::running::{Running, until};
use crate::support::Home;

/// The records of a home's journal.
fn recorded(home: &Home) -> String {
    home.run(&["journal", "export"]).out
}

fn claim(home: &Home, args: &[&str]) -> Value {
    home.json(&[&["lease", "claim"], args].concat()).remove(0)
}

fn ids(leases: &[Value]) -> Vec<&str> {
    leases.iter().map(|lease| lease["id"].as_str().unwrap()).collect()
}

/// Starts a claim that waits, and waits until it has its place.
fn waiting(home: &Home, args: &[&str]) -> Child {
    let before = recorded(home).matches("lease_queued").count();
    let mut command = home.command(&[&["lease", "claim", "--json", "--wait"], args].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("it has a place", || (recorded(home).matches("lease_queued").count() > before).then_some(()));
    child
}

#[test]
fn a_lease_is_claimed_shown_refused_to_others_and_released() {
    let home = Home::new();
    let (mut serve, _) = home.serve(&[]);
    let granted = claim(&home, &["res:demo", "--id", "l1", "--reason", "why", "--ttl", "2m"]);
    let (id, session) = (home.id(), granted["session"].as_str().unwrap().to_owned());
    let owner = format!("{session}@{id}");
    let token = &granted["fencing_token"];
    assert!(
        token.is_u64() && granted["certain_for"].as_f64().is_some_and(|secs| (100.0..=120.0).contains(&secs))
    );
    assert_eq!(granted["authority"], json!(id));
    let told = serve.event("lease");
    assert_eq!(
        (&told["id"], &told["resource"], &told["owner"], &told["change"], &told["fencing_token"]),
        (&json!("l1"), &json!("res:demo"), &json!(owner), &json!("granted"), token)
    );

    let refused = home.run(&["lease", "claim", "res:demo"]);
    assert_eq!((refused.code, refused.out.as_str()), (1, ""));
    for part in [&format!("res:demo is held by {owner} until 20"), "(lease l1)", "--wait"] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }

    let listed = home.json(&["lease", "list"]);
    let expires = &granted["lease"]["expires_at"];
    assert!(expires.as_str().unwrap().ends_with(".000Z"), "{expires}");
    let shape = json!({"authority": id, "id": "l1", "resource": "res:demo", "owner": owner, "mode": "exclusive",
        "reason": "why", "acquired_at": granted["lease"]["acquired_at"], "expires_at": expires, "ttl": 120,
        "fencing_token": token});
    assert_eq!(listed, [shape]);
    assert_eq!(home.json(&["lease", "show", "l1"]), listed);
    let text = home.run(&["lease", "list"]).out;
    assert_eq!(
        text,
        format!("l1\tres:demo\t{owner}\texclusive\t{}\t{token}\twhy\n", expires.as_str().unwrap())
    );

    assert_eq!(home.json(&["lease", "release", "l1"]), [json!({"authority": id, "id": "l1"})]);
    assert_eq!(serve.event("lease")["change"], json!("released"));
    let again = home.run(&["lease", "release", "l1"]);
    assert!(again.code == 1 && again.err.contains("knows no lease l1. relay lease list"), "{}", again.err);
    let again = home.run(&["lease", "release", "l1", "--session", &session]);
    assert!(again.code == 1 && again.err.contains("lease l1 had ended before: released"), "{}", again.err);
    assert_eq!(home.run(&["lease", "show", "l1"]).code, 1);
    assert!(home.json(&["lease", "list"]).is_empty());
}

#[test]
fn a_claim_is_repeated_by_its_id_and_its_session() {
    let home = Home::new();
    let (_serve, _) = home.serve(&["--runtime", "mio"]);
    let args = ["res:x", "--id", "l", "--session", "s"];
    let first = claim(&home, &args);
    assert_eq!(claim(&home, &args)["fencing_token"], first["fencing_token"]);
    let other = home.run(&["lease", "claim", "res:x", "--id", "l", "--session", "t"]);
    assert!(other.code == 1 && other.err.contains("another owner's lease"), "{}", other.err);
    let foreign = home.run(&["lease", "release", "l", "--session", "t"]);
    assert!(
        foreign.code == 1 && foreign.err.contains(&format!("is held by s@{}", home.id())),
        "{}",
        foreign.err
    );
}

#[test]
fn an_advisory_lease_is_in_nobodys_way_and_paths_overlap() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    claim(&home, &["src/*", "--id", "tree"]);
    claim(&home, &["src/a.rs", "--mode", "advisory", "--id", "note"]);
    let refused = home.run(&["lease", "claim", "src/a/b.rs"]);
    assert!(refused.code == 1 && refused.err.contains("path_glob:src/a/b.rs is held by"), "{}", refused.err);
    claim(&home, &["docs", "--id", "docs"]);
    assert_eq!(ids(&home.json(&["lease", "list"])), ["docs", "note", "tree"]);
}

#[test]
fn a_claim_that_waits_is_granted_when_the_lease_is_free() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    let first = claim(&home, &["res:x", "--id", "first"]);
    let waits = waiting(&home, &["res:x", "--id", "second"]);
    home.json(&["lease", "release", "first"]);
    let output = waits.wait_with_output().unwrap();
    let second: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success() && second["fencing_token"].as_u64() > first["fencing_token"].as_u64());
}

#[test]
fn a_wait_in_vain_leaves_the_queue_and_is_told_apart_from_a_conflict() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    claim(&home, &["res:x", "--id", "first"]);
    let vain = home.run(&["lease", "claim", "res:x", "--wait", "--timeout", "1s"]);
    assert_eq!((vain.code, vain.out.as_str()), (3, ""));
    assert!(vain.err.contains("res:x was still held when the time to wait was over"), "{}", vain.err);
    home.json(&["lease", "release", "first"]);
    claim(&home, &["res:x"]);
}

#[test]
fn a_client_that_leaves_while_it_waits_leaves_the_queue() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    claim(&home, &["res:x", "--id", "first"]);
    let mut waits = waiting(&home, &["res:x"]);
    waits.kill().unwrap();
    waits.wait().unwrap();
    until("its place is given up", || recorded(&home).contains("lease_unqueued").then_some(()));
    home.json(&["lease", "release", "first"]);
    // Nobody stands before it, which is so at once and not only when a place goes stale.
    claim(&home, &["res:x"]);
}

#[test]
fn leases_and_places_outlive_a_kill_with_their_tokens_and_ends() {
    for runtime in ["smol", "mio"] {
        let home = Home::new();
        let (serve, _) = home.serve(&["--runtime", runtime]);
        claim(&home, &["res:x", "--id", "x"]);
        claim(&home, &["res:y", "--id", "gone"]);
        claim(&home, &["res:z", "--id", "z", "--mode", "advisory"]);
        home.json(&["lease", "release", "gone"]);
        let before = home.json(&["lease", "list"]);
        assert_eq!(ids(&before), ["z", "x"]);
        serve.kill();
        let (_serve, _) = home.serve(&["--runtime", runtime]);
        assert_eq!(home.json(&["lease", "list"]), before);
        assert_eq!(home.run(&["lease", "claim", "res:x"]).code, 1);
        let newest = before[0]["fencing_token"].as_u64();
        assert!(claim(&home, &["res:y"])["fencing_token"].as_u64() > newest);
    }
}

/// A home whose serve keeps the leases of another, and that one.
fn fleet() -> (Home, Running, Home, String) {
    let (keeper, other) = (Home::new(), Home::new());
    let (serve, addr) = keeper.serve(&[]);
    other.json(&["join", &keeper.invite(&addr)]);
    let id = keeper.id();
    other.put("config.toml", format!("authority = \"{id}\"\n"));
    (keeper, serve, other, id)
}

#[test]
fn a_node_claims_at_the_authority_that_it_is_configured_with() {
    let (keeper, mut keeper_serve, other, id) = fleet();
    // First without a service of its own, then through it.
    for name in ["alone", "through"] {
        let serve = (name == "through").then(|| other.serve(&[]));
        let granted = claim(&other, &[&format!("res:{name}"), "--id", name, "--session", "s"]);
        assert_eq!(granted["authority"], json!(id));
        assert!(granted["fencing_token"].is_u64());
        let told = keeper_serve.event("lease");
        assert_eq!((&told["id"], &told["owner"]), (&json!(name), &json!(format!("s@{}", other.id()))));
        let refused = keeper.run(&["lease", "claim", &format!("res:{name}")]);
        assert!(refused.code == 1 && refused.err.contains(&format!("s@{}", other.id())), "{}", refused.err);
        let foreign = keeper.run(&["lease", "release", name]);
        assert!(foreign.code == 1 && foreign.err.contains("not of this node"), "{}", foreign.err);
        assert_eq!(other.json(&["lease", "list"]), keeper.json(&["lease", "list"]));
        other.json(&["lease", "release", name]);
        assert_eq!(keeper_serve.event("lease")["change"], json!("released"));
        drop(serve);
    }
}

#[test]
fn an_authority_that_is_named_is_asked_in_place_of_ones_own() {
    let (keeper, _keeper_serve, other, id) = fleet();
    let (_serve, _) = other.serve(&["--authority", &other.id()]);
    claim(&other, &["res:x", "--id", "own"]);
    claim(&other, &["res:x", "--id", "fleets", "--authority", &id]);
    assert_eq!(ids(&keeper.json(&["lease", "list"])), ["fleets"]);
    let unknown = other.run(&["lease", "list", "--authority", "nobody"]);
    assert!(unknown.code == 1 && unknown.err.contains("\"nobody\" is not known here"), "{}", unknown.err);
    assert_eq!(ids(&other.json(&["lease", "list"])), ["own"]);
}

#[test]
fn an_authority_that_is_away_is_unreachable() {
    let (_keeper, serve, other, id) = fleet();
    serve.kill();
    let ran = other.run(&["lease", "list"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    for part in [&format!("lease authority \"{id}\" gave no answer in 3 attempts"), "relay serve"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
}

#[test]
fn what_is_wrong_with_a_request_is_named() {
    let home = Home::new();
    for (args, part) in [
        (&["claim", "Res:x"][..], "the resource's kind"),
        (&["claim", "res:"], "the resource's value"),
        (&["claim", "res:x", "--ttl", "8d"], "1 second to 7 days"),
        (&["claim", "res:x", "--ttl", "5w"], "a span is 90, 90s, 5m, 2h or 7d"),
        (&["claim", "res:x", "--session", "a@b"], "a session is"),
        (&["claim", "res:x", "--id", "a b"], "the id of a lease is"),
        (&["claim", "res:x", "--timeout", "5s"], "--wait"),
        (&["claim", "res:x", "--mode", "shared"], "shared"),
        (&["list", "--authority", "a b"], "a peer id is"),
    ] {
        let ran = home.run(&[&["lease"], args].concat());
        assert!(ran.code == 2 && ran.err.contains(part), "{args:?}: {}", ran.err);
    }
    let ran = home.run(&["lease", "list"]);
    assert!(ran.code == 1 && ran.err.contains("relay serve is not running here"), "{}", ran.err);
    assert!(!home.path("link.db").exists(), "a command alone keeps no leases");
}

#[test]
fn a_list_that_is_watched_prints_grants_and_ends() {
    let home = Home::new();
    let (_serve, _) = home.serve(&[]);
    let mut watch = home.start(&["lease", "list", "--watch"]);
    for (args, gone) in [(&["claim", "res:x", "--id", "x"][..], false), (&["release", "x"], true)] {
        home.json(&[&["lease"], args].concat());
        let line = watch.line();
        assert_eq!((&line["id"], line["gone"] == json!(true)), (&json!("x"), gone), "{line}");
    }
}

#[test]
fn a_journal_that_cannot_be_used_refuses_the_start_by_its_name() {
    let home = Home::new();
    let (serve, _) = home.serve(&[]);
    claim(&home, &["res:x"]);
    assert_eq!(serve.terminate().code, 0);
    let path = home.path("link.db");
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 9).unwrap();
    let ran = home.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    for part in [path.to_str().unwrap(), "in format 9", "or later, or put a backup"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    std::fs::write(&path, "no database at all, and long enough to be looked at").unwrap();
    let ran = home.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(ran.code != 0 && ran.err.contains("link.db"), "{}", ran.err);
    assert!(!home.path("run/link.sock").exists());
}
