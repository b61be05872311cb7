//! Invites, minted at either end and joined at the other.

use relay_tests::peers::{ClaudectlHome, Runtime, Version};

use super::Test;
use super::links::ours;

pub(super) const TESTS: &[(&str, Test)] = &[
    ("a_link_minted_here_is_joined_there", |runtime| minted_here(runtime, "link")),
    ("a_code_minted_here_is_joined_there", |runtime| minted_here(runtime, "code")),
    ("a_link_minted_there_is_joined_here", minted_there),
    ("a_pairing_code_of_ours_is_accepted_there", paired_here),
];

fn minted_here(runtime: Runtime, format: &str) {
    let listen = relay_tests::peers::free_code_address();
    let home = ours("relay-a", runtime).listen(listen);
    let theirs = ClaudectlHome::new(Version::Current, "ctl-b", 1);
    let mut relay = home.serve();
    let invite = home.ask(&["invite", "--addr", &relay.address.to_string(), "--format", format]);
    let text = invite[format].as_str().unwrap_or_else(|| panic!("a {format} in {invite}"));
    let mut joined = theirs.start(&["relay", "join", text]);
    joined.says("relay-a");
    let up = relay.event("link_up", |_| true);
    assert_eq!(up["peer"], "ctl-b");
    // Used once: the next one who comes with it is refused.
    let late = ClaudectlHome::new(Version::Current, "ctl-late", 1);
    let _late = late.start(&["relay", "join", text]);
    let failed = relay.event("handshake_failed", |_| true);
    assert!(!failed.to_string().contains("link_up"), "{failed}");
}

fn minted_there(runtime: Runtime) {
    let home = ours("relay-a", runtime);
    let theirs = ClaudectlHome::new(Version::Current, "ctl-b", 1);
    let _peer = theirs.serve();
    let output = theirs.run(&["relay", "invite"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let link = text.split_whitespace().find(|word| word.starts_with("cctl://"));
    let link = link.unwrap_or_else(|| panic!("the peer minted no link: {text}"));
    // Its link names the address of an interface; here it listens on loopback.
    let (head, tail) = link.split_once('@').expect("a link has an address");
    let (_, key) = tail.split_once("/k/").expect("a link has a key");
    let link = format!("{head}@{}/k/{key}", theirs.address);
    let joined = home.ask(&["join", &link]);
    assert_eq!(joined["peer"], "ctl-b", "{joined}");
    // From here on a plain serve finds it again.
    let mut relay = home.serve();
    let up = relay.event("link_up", |_| true);
    assert_eq!(up["peer"], "ctl-b");
}

fn paired_here(runtime: Runtime) {
    let home = ours("relay-a", runtime);
    let theirs = ClaudectlHome::new(Version::Current, "ctl-b", 1);
    let pair = home.ask(&["pair"]);
    let code = pair["code"].as_str().unwrap_or_else(|| panic!("a code in {pair}"));
    let accepted = theirs.run(&["relay", "accept", code, "relay-a"]);
    assert!(accepted.status.success(), "{accepted:?}");
    let mut relay = home.serve();
    let _peer = theirs.start(&["relay", "connect", &relay.address.to_string()]);
    assert_eq!(relay.event("link_up", |_| true)["peer"], "ctl-b");
}
