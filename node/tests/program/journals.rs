//! `relay journal` on journals that hold, that are damaged and that are not there.

use std::fs;

use relay_core::journal::{Journal, Records, Seq};
use relay_node::journal::SqliteJournal;

use crate::support::{Home, mode};

/// A home whose journal has these records, and is closed.
fn home(records: &[&str]) -> Home {
    let home = Home::new();
    let mut journal = SqliteJournal::open(&home.path("link.db")).unwrap();
    let mut batch = Records::reuse(Records::default(), Seq::new(1));
    for record in records {
        batch.push(|out| out.extend_from_slice(record.as_bytes()));
    }
    journal.append(journal.epoch(), &batch).unwrap();
    home
}

/// Changes a byte of the file where `text` is.
fn damage(home: &Home, text: &str) {
    let mut bytes = fs::read(home.path("link.db")).unwrap();
    let at = bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
    bytes[at] ^= 1;
    fs::write(home.path("link.db"), bytes).unwrap();
}

#[test]
fn a_journal_that_holds_is_verified_exported_and_backed_up() {
    let home = home(&["{\"a\":1}", "none"]);
    let verified = &home.json(&["journal", "verify"])[0];
    assert_eq!(verified["ok"], true);
    assert_eq!((&verified["records"], &verified["newest"]), (&2.into(), &2.into()));
    assert_eq!(verified["written_by"], env!("CARGO_PKG_VERSION"));
    assert!(home.run(&["journal", "verify", "--journal", "link"]).out.contains("faults\t0\n"));
    let rows = home.json(&["journal", "export"]);
    assert_eq!(
        (rows.len(), &rows[0]["text"], &rows[1]["base64"]),
        (2, &"{\"a\":1}".into(), &"bm9uZQ==".into())
    );
    assert_eq!(home.run(&["journal", "export"]).out.lines().count(), 2);
    let copy = home.path("copy.db");
    let copied = &home.json(&["journal", "backup", copy.to_str().unwrap()])[0];
    assert_eq!((&copied["ok"], &copied["newest"]), (&true.into(), &2.into()));
    assert_eq!(mode(&copy), 0o600);
    let again = home.run(&["journal", "backup", copy.to_str().unwrap()]);
    assert!(again.code == 1 && again.err.contains("is there already"), "{}", again.err);
}

#[test]
fn a_damaged_journal_is_a_check_that_failed_and_names_the_record() {
    let home = home(&["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"]);
    damage(&home, "{\"b\"");
    let ran = home.run(&["journal", "verify", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &answer["ok"], &answer["first_fault"]["seq"]), (4, &false.into(), &2.into()));
    assert!(ran.err.contains("record 2: its checksum does not hold. What can be read:"), "{}", ran.err);
    let ran = home.run(&["journal", "export"]);
    assert!(ran.code == 4 && ran.out.lines().count() == 3, "{}{}", ran.out, ran.err);
    let copy = home.path("copy.db");
    let ran = home.run(&["journal", "backup", copy.to_str().unwrap()]);
    assert!(
        ran.code == 4 && copy.exists() && ran.err.contains("copy.db is damaged: record 2"),
        "{}",
        ran.err
    );
}

#[test]
fn a_journal_that_is_not_there_is_not_made_by_looking_for_it() {
    let home = Home::new();
    for verb in ["verify", "export", "backup"] {
        let file: &[&str] = if verb == "backup" { &["copy.db"] } else { &[] };
        let ran = home.run(&[&["journal", verb], file].concat());
        assert_eq!((ran.code, ran.out.as_str()), (1, ""));
        assert!(ran.err.contains("there is no journal at") && ran.err.contains("--home"), "{}", ran.err);
    }
    assert!(!home.path("link.db").exists());
    assert_eq!(home.run(&["journal", "verify", "--journal", "other"]).code, 2);
}
