use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use super::*;
use crate::failure::Exit;

fn sessions() -> (tempfile::TempDir, Sessions) {
    let dir = tempfile::tempdir().unwrap();
    let sessions = Sessions::at(dir.path().join("home/sessions"));
    (dir, sessions)
}

fn process() -> Child {
    Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_session_is_a_private_file_and_reads_back() {
    let (_dir, sessions) = sessions();
    assert_eq!(sessions.list().unwrap(), []);
    let pid = std::process::id();
    let session = sessions.start("my work/1 ü", pid, Some(Path::new("/srv/app"))).unwrap();
    assert_eq!(sessions.list().unwrap(), std::slice::from_ref(&session));
    assert_eq!((session.life(), session.project.as_deref()), (Life::Alive, Some("app")));
    let mode = fs::metadata(sessions.path("my work/1 ü")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(sessions.end("my work/1 ü").unwrap(), session);
    assert_eq!(sessions.list().unwrap(), []);
    assert_eq!(sessions.end("my work/1 ü").unwrap_err().exit, Exit::Refused);
}

#[test]
fn a_name_is_unique_while_its_process_lives_and_free_when_it_has_ended() {
    let (_dir, sessions) = sessions();
    let child = process();
    let pid = child.id();
    sessions.start("a", pid, None).unwrap();
    let failure = sessions.start("a", std::process::id(), None).unwrap_err();
    assert!(
        failure.exit == Exit::Refused && failure.message.contains(&format!("process {pid}")),
        "{failure}"
    );
    end(child);
    assert_eq!(sessions.start("a", std::process::id(), None).unwrap().pid, std::process::id());
    assert_eq!(sessions.list().unwrap().len(), 1);
}

#[test]
fn a_session_has_ended_though_its_number_is_used_again() {
    let (_dir, sessions) = sessions();
    let mut session = sessions.start("a", std::process::id(), None).unwrap();
    session.process_start = Born::new("1 an earlier process").unwrap();
    fs::write(sessions.path("a"), serde_json::to_vec(&session).unwrap()).unwrap();
    assert_eq!(sessions.list().unwrap()[0].life(), Life::Ended);
    sessions.start("a", std::process::id(), None).unwrap();
}

#[test]
fn a_session_of_no_process_and_a_name_against_the_rule_are_refused() {
    let (_dir, sessions) = sessions();
    let child = process();
    let pid = child.id();
    end(child);
    assert_eq!(sessions.start("a", pid, None).unwrap_err().exit, Exit::Refused);
    for name in ["", "a@b", "a\nb", &"x".repeat(129)] {
        assert_eq!(sessions.start(name, std::process::id(), None).unwrap_err().exit, Exit::Usage, "{name}");
    }
    sessions.start(&"ü".repeat(64), std::process::id(), None).unwrap();
}

#[test]
fn what_another_took_over_is_not_ended_for_the_one_before() {
    let (_dir, sessions) = sessions();
    let child = process();
    let first = sessions.start("a", child.id(), None).unwrap();
    end(child);
    let second = sessions.start("a", std::process::id(), None).unwrap();
    assert!(!sessions.end_this(&first).unwrap());
    assert_eq!(sessions.list().unwrap(), std::slice::from_ref(&second));
    assert!(sessions.end_this(&second).unwrap());
}

#[test]
fn files_that_are_no_sessions_are_passed_over() {
    let (_dir, sessions) = sessions();
    let session = sessions.start("a", std::process::id(), None).unwrap();
    for (name, text) in [
        ("x.json", "{}".to_owned()),
        ("y.json", "\u{0}".to_owned()),
        ("z.json", serde_json::to_string(&session).unwrap()),
        ("big.json", " ".repeat(MAX_FILE + 1)),
    ] {
        fs::write(sessions.dir().join(name), text).unwrap();
    }
    fs::create_dir(sessions.dir().join("folder.json")).unwrap();
    assert_eq!(sessions.list().unwrap(), [session]);
}
