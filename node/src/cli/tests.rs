use std::io::{self, Read, Write};
use std::time::{Duration, SystemTime};

use super::*;

struct Fixed;

impl System for Fixed {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)
    }

    fn random(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        bytes.fill(0xab);
        Ok(())
    }

    fn host_name(&self) -> String {
        "Test.example".to_owned()
    }

    fn addresses(&self) -> io::Result<Addresses> {
        Ok(["127.0.0.1", "fe80::1", "2001:db8::1", "169.254.0.1", "10.0.0.7"]
            .map(|ip| ip.parse().unwrap())
            .to_vec())
    }
}

struct Ran {
    code: u8,
    out: String,
    err: String,
}

struct Setting {
    dir: tempfile::TempDir,
    vars: Vec<(&'static str, &'static str)>,
    terminals: Terminals,
    stdin: &'static str,
}

impl Setting {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, vars: Vec::new(), terminals: Terminals::default(), stdin: "" }
    }

    fn run(&self, args: &[&str]) -> Ran {
        let mut out = Vec::new();
        let (code, err) = self.run_into(args, &mut out);
        Ran { code, out: String::from_utf8(out).unwrap(), err }
    }

    fn run_into(&self, args: &[&str], stdout: &mut dyn Write) -> (u8, String) {
        let mut stderr = Vec::new();
        let mut stdin = self.stdin.as_bytes();
        let mut vars: std::collections::BTreeMap<OsString, OsString> =
            self.vars.iter().map(|(name, value)| (name.into(), value.into())).collect();
        vars.insert("RELAY_HOME".into(), self.dir.path().join("home").into());
        let mut world = World {
            vars,
            terminals: self.terminals,
            stdin: &mut stdin as &mut dyn Read,
            stdout,
            stderr: &mut stderr,
            system: &mut Fixed,
        };
        let code = run(["relay"].iter().chain(args).map(OsString::from), &mut world);
        (code, String::from_utf8(stderr).unwrap())
    }
}

/// A stream that fails in one way.
struct Failing(io::ErrorKind);

impl Write for Failing {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn leaves(command: &clap::Command, path: &str, all: &mut Vec<(String, clap::Command)>) {
    for sub in command.get_subcommands() {
        let path = format!("{path} {}", sub.get_name());
        all.push((path.clone(), sub.clone()));
        leaves(sub, &path, all);
    }
}

#[test]
fn every_commands_help_ends_with_one_example_of_itself() {
    let mut all = vec![("relay".to_owned(), help::command())];
    leaves(&help::command(), "relay", &mut all);
    for (path, command) in all {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines: Vec<_> = help.lines().collect();
        assert!(lines.len() == 2 && lines[0] == "Example:", "{path}: {help}");
        assert!(lines[1].trim().starts_with(&path), "{path}: {help}");
    }
}

#[test]
fn the_page_on_the_command_line_has_every_command_key_and_event() {
    let page = include_str!("../../../docs/cli.md");
    let mut all = Vec::new();
    leaves(&help::command(), "", &mut all);
    let has = |name: &str| page.contains(&format!("`{name}`")) || page.contains(&format!("| `{name} "));
    for (path, command) in all.iter().filter(|(_, command)| !command.has_subcommands()) {
        let path = path.trim();
        assert!(has(path) || path.starts_with("config "), "{path}");
        let options =
            command.get_arguments().filter_map(|arg| arg.get_long()).filter(|long| *long == "watch");
        assert!(options.count() == 0 || page.contains(&format!("{path} ")), "{path}");
    }
    for key in crate::config::KEYS {
        assert!(page.contains(&format!("| `{}` |", key.name)), "{}", key.name);
    }
}

#[test]
fn every_command_is_in_a_group_of_the_help() {
    for sub in help::command().get_subcommands() {
        let name = sub.get_name();
        assert!(help::GROUPS.iter().any(|(_, names)| names.contains(&name)), "{name}");
    }
    let ran = Setting::new().run(&["--help"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let at = |text: &str| ran.out.find(text).unwrap_or_else(|| panic!("{text}: {}", ran.out));
    assert!(at("Node:\n") < at("  identity  ") && at("  identity  ") < at("Fleet:\n"));
    assert!(at("Fleet:\n") < at("  peers  ") && at("  peers  ") < at("Everywhere:\n"));
    assert!(ran.out.trim_end().ends_with("relay invite --format link"), "{}", ran.out);
}

#[test]
fn help_is_a_command_too_and_has_no_line_of_blanks() {
    let setting = Setting::new();
    let mut all = vec![(String::new(), help::command())];
    leaves(&help::command(), "", &mut all);
    for (path, _) in all {
        let words: Vec<_> = path.split_whitespace().collect();
        let (help, flag) = (
            setting.run(&[&["help"], &words[..]].concat()),
            setting.run(&[&words[..], &["--help"]].concat()),
        );
        assert_eq!((help.code, help.err.as_str()), (0, ""), "{path}");
        assert_eq!(help.out, flag.out, "{path}");
        assert!(flag.out.lines().all(|line| line == line.trim_end()), "{path}: {}", flag.out);
    }
    assert_eq!(setting.run(&["help", "nothing"]).code, 2);
}

#[test]
fn the_definition_of_the_command_line_is_sound() {
    help::command().debug_assert();
}

#[test]
fn the_help_of_send_lists_every_type_and_which_have_a_reply() {
    let ran = Setting::new().run(&["send", "--help"]);
    let text = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let (with, without) = text.split_once("With a reply: ").unwrap().1.split_once(" Without: ").unwrap();
    assert!(with.contains("lease_list.") && with.contains("session_transfer,"), "{text}");
    assert!(without.contains("task_status,") && without.contains("lease_result"), "{text}");
    assert!(!text.contains("handshake_ack"), "{text}");
    let ran = Setting::new().run(&["send", "a", "quite_another", "{}"]);
    assert!(ran.code == 2 && ran.err.ends_with("relay send --help lists them.\n"), "{}", ran.err);
}

#[test]
fn the_version_names_the_protocol() {
    let ran = Setting::new().run(&["--version"]);
    assert_eq!(ran.code, 0);
    assert!(ran.out.starts_with("relay 0.") && ran.out.contains("protocol 1"), "{}", ran.out);
}

#[test]
fn an_invite_takes_the_first_ipv4_address_that_others_can_reach() {
    let setting = Setting::new();
    let home = setting.dir.path().join("home");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("config.toml"), "listen = \"0.0.0.0:9847\"").unwrap();
    let ran = setting.run(&["invite"]);
    let rows: Vec<_> = ran.out.lines().map(|line| line.split('\t').collect::<Vec<_>>()).collect();
    assert_eq!(rows[0], ["link", "cctl://test-abababab@10.0.0.7:9847/k/abababababababab"]);
    assert_eq!(rows[1][0], "code");
    assert_eq!((ran.code, rows.len()), (0, 2), "{}", ran.err);
}

#[test]
fn tables_are_aligned_on_a_terminal_and_tabbed_without() {
    let mut setting = Setting::new();
    setting.run(&["peers", "add", "a", "--key", &"0".repeat(64)]);
    setting.run(&["peers", "add", "bcd", "--key", &"0".repeat(64), "--addr", "10.0.0.1:1"]);
    assert_eq!(setting.run(&["peers", "list"]).out, "a\tpaired\t-\t-\t-\nbcd\tpaired\t-\t10.0.0.1:1\t-\n");
    setting.terminals.stdout = true;
    let table = "PEER  STATE   LINK  ADDRESS     LAST SEEN\na     paired  -     -           -\nbcd   paired  -     10.0.0.1:1  -\n";
    assert_eq!(setting.run(&["peers", "list"]).out, table);
}

#[test]
fn a_time_is_an_age_on_a_terminal_and_whole_elsewhere() {
    let mut setting = Setting::new();
    setting.run(&["peers", "add", "a", "--key", &"0".repeat(64)]);
    let meta = setting.dir.path().join("home/peers/a.meta");
    std::fs::write(meta, r#"{"addrs":[{"addr":"10.0.0.1:1","last_seen":999988000}]}"#).unwrap();
    assert_eq!(setting.run(&["peers", "list"]).out, "a\tpaired\t-\t10.0.0.1:1\t1970-01-12T13:46:28.000Z\n");
    setting.terminals.stdout = true;
    let shown = setting.run(&["peers", "list"]).out;
    assert!(shown.ends_with("a     paired  -     10.0.0.1:1  12 s ago\n"), "{shown}");
}

#[test]
fn colour_is_for_terminals_unless_no_color_is_set_or_a_flag_says_otherwise() {
    let mut setting = Setting::new();
    let coloured = |setting: &Setting, args: &[&str]| setting.run(args).err.contains('\u{1b}');
    let (refused, misused) = (["peers", "show", "x"], ["peers", "nothing"]);
    for args in [&refused, &misused as &[&str]] {
        setting.terminals.stderr = false;
        assert!(!coloured(&setting, args));
        assert!(coloured(&setting, &[args, &["--color", "always"]].concat()));
        setting.terminals.stderr = true;
        setting.vars.clear();
        assert!(coloured(&setting, args));
        assert!(!coloured(&setting, &[args, &["--color=never"]].concat()));
        setting.vars.push(("NO_COLOR", "1"));
        assert!(!coloured(&setting, args));
        assert!(coloured(&setting, &[args, &["--color=always"]].concat()));
    }
}

#[test]
fn a_reader_that_left_ends_the_answer_quietly() {
    let setting = Setting::new();
    for args in [&["config", "show"] as &[&str], &["--help"]] {
        let (code, err) = setting.run_into(args, &mut Failing(io::ErrorKind::BrokenPipe));
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure() {
    let setting = Setting::new();
    let (code, err) = setting.run_into(&["identity"], &mut Failing(io::ErrorKind::StorageFull));
    assert_eq!(code, 1);
    assert!(err.starts_with("relay: the answer could not be written"), "{err}");
}

#[test]
fn quiet_leaves_only_errors_and_verbose_says_more() {
    let setting = Setting::new();
    assert!(setting.run(&["pair"]).err.contains("relay accept CODE test-abababab"));
    assert_eq!(setting.run(&["pair", "--quiet"]).err, "");
    assert!(setting.run(&["-v", "identity"]).err.starts_with("home: "));
    assert!(
        setting.run(&["-q", "peers", "show", "x"]).err.starts_with("relay: peer \"x\" is not known here.")
    );
}

#[test]
fn a_stored_address_cannot_move_the_cursor() {
    let setting = Setting::new();
    setting.run(&["peers", "add", "a", "--key", &"0".repeat(64)]);
    let meta = setting.dir.path().join("home/peers/a.meta");
    std::fs::write(meta, r#"{"addrs":[{"addr":"\u001b[2J\n1","last_seen":18446744073709551615}]}"#).unwrap();
    for command in ["list", "show"] {
        let args: Vec<_> = ["peers", command].into_iter().chain((command == "show").then_some("a")).collect();
        let ran = setting.run(&args);
        assert!(ran.code == 0 && !ran.out.contains('\u{1b}'), "{}", ran.out);
    }
}

#[test]
fn a_secret_comes_from_stdin_where_a_dash_stands_for_it() {
    let mut setting = Setting::new();
    setting.stdin = "0123-4567-89ab-cdef\n";
    assert_eq!(setting.run(&["accept", "-", "other"]).code, 0);
    setting.stdin = " 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
    assert_eq!(setting.run(&["peers", "add", "b", "--key", "-"]).code, 0);
    assert_eq!(setting.run(&["peers", "add", "c", "--key-file", "-"]).code, 0);
}
