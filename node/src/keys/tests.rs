use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use super::*;

const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

struct Folder {
    _temp: tempfile::TempDir,
    keys: Keys,
}

impl Folder {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let keys = Keys::at(temp.path().join("peers"));
        Self { _temp: temp, keys }
    }

    fn put(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        atomic::make_dir(&self.keys.dir).unwrap();
        fs::write(self.keys.dir.join(name), content).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let mut names = self.keys.names(&mut Vec::new()).unwrap();
        names.sort();
        names
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.keys.dir.join(name)).unwrap().permissions().mode() & 0o777
    }
}

fn id(text: &str) -> PeerId {
    PeerId::parse(text).unwrap()
}

fn key(n: u8) -> Key {
    Key::from_bytes([n; 32])
}

fn addr(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, n], 9847))
}

#[test]
fn key_files_are_64_hex_digits_for_their_owner_alone() {
    let folder = Folder::new();
    assert!(!folder.keys.add(&id("a"), &Key::from_hex(HEX).unwrap()).unwrap());
    assert_eq!(fs::read_to_string(folder.keys.dir.join("a.key")).unwrap(), HEX);
    assert_eq!(folder.mode("a.key"), 0o600);
    assert_eq!(fs::metadata(&folder.keys.dir).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_key_file_may_have_space_round_it_and_upper_case() {
    let folder = Folder::new();
    folder.put("a.key", format!("\n {}\r\n", HEX.to_uppercase()));
    assert_eq!(folder.keys.key(&id("a")).unwrap(), Stored::Paired(Key::from_hex(HEX).unwrap()));
}

#[test]
fn a_key_of_the_wrong_length_counts_as_unpaired_with_a_warning() {
    let folder = Folder::new();
    folder.put("a.key", &HEX[2..]);
    folder.put("b.key", HEX);
    let listing = folder.keys.list().unwrap();
    let paired: Vec<_> = listing.peers.iter().map(|p| (p.id.as_str(), p.is_paired())).collect();
    assert_eq!(paired, [("a", false), ("b", true)]);
    assert_eq!(listing.warnings.len(), 1);
    assert!(listing.warnings[0].contains("a.key holds no key: not 64 hex digits"), "{listing:?}");
}

#[test]
fn a_replaced_key_is_said_to_be_one() {
    let folder = Folder::new();
    assert!(!folder.keys.add(&id("a"), &key(1)).unwrap());
    assert!(!folder.keys.add(&id("a"), &key(1)).unwrap());
    assert!(folder.keys.add(&id("a"), &key(2)).unwrap());
}

#[test]
fn a_hostile_folder_is_survived() {
    let folder = Folder::new();
    folder.keys.add(&id("good"), &key(1)).unwrap();
    fs::create_dir(folder.keys.dir.join("dir.key")).unwrap();
    folder.put("huge.key", vec![b'0'; 1 << 20]);
    folder.put("huge.meta", vec![b'{'; 1 << 20]);
    folder.put("a b.key", HEX);
    folder.put("bytes.key", [0xff, 0xfe]);
    folder.put(OsStr::from_bytes(b"\xff\x1b[31m.key"), HEX);
    folder.put(".key", HEX);
    let pipe = folder.keys.dir.join("pipe.key");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    std::os::unix::fs::symlink("loop.key", folder.keys.dir.join("loop.key")).unwrap();
    let listing = folder.keys.list().unwrap();
    let paired: Vec<_> = listing.peers.iter().filter(|p| p.is_paired()).map(|p| p.id.as_str()).collect();
    assert_eq!(paired, ["good"]);
    assert!(listing.warnings.iter().all(|w| !w.contains('\u{1b}')), "{:?}", listing.warnings);
    for name in ["huge", "bytes", "pipe", "loop"] {
        assert!(listing.warnings.iter().any(|w| w.contains(name)), "{name}: {:?}", listing.warnings);
        folder.keys.forget(&id(name)).unwrap();
    }
    assert_eq!(folder.keys.forget(&id("dir")).unwrap(), Vec::<String>::new());
    folder.keys.prune(SystemTime::now()).unwrap();
}

#[test]
fn forgetting_leaves_no_file_of_the_peer_and_all_of_the_others() {
    let folder = Folder::new();
    for name in [
        "a.key",
        "a.meta",
        "a.caps",
        "a.beat",
        "a.future.kind",
        ".a.key.1.2.tmp",
        "ab.key",
        "ab.meta",
        "A.key",
    ] {
        folder.put(name, HEX);
    }
    let gone = folder.keys.forget(&id("a")).unwrap();
    assert_eq!(gone, [".a.key.1.2.tmp", "a.beat", "a.caps", "a.future.kind", "a.key", "a.meta"]);
    assert_eq!(folder.names(), ["A.key", "ab.key", "ab.meta"]);
    assert_eq!(folder.keys.forget(&id("a")).unwrap(), Vec::<String>::new());
}

#[test]
fn forgetting_leaves_what_is_being_written() {
    let folder = Folder::new();
    folder.put(".a.key.1.2.tmp", HEX);
    folder.put(".a.key.1.3.tmp", HEX);
    let writer = fs::File::open(folder.keys.dir.join(".a.key.1.2.tmp")).unwrap();
    rustix::fs::flock(&writer, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(folder.keys.forget(&id("a")).unwrap(), [".a.key.1.3.tmp"]);
    drop(writer);
    assert_eq!(folder.keys.forget(&id("a")).unwrap(), [".a.key.1.2.tmp"]);
}

#[test]
fn a_key_that_is_added_while_its_peer_is_forgotten_is_added() {
    let folder = Folder::new();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                folder.keys.forget(&id("a")).unwrap();
            }
        });
        let added: Vec<_> = (0..300).map(|n| folder.keys.add(&id("a"), &key(n as u8))).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(added.iter().all(Result::is_ok), "{added:?}");
    });
    assert!(folder.names().iter().all(|name| !name.ends_with(".tmp")));
}

#[test]
fn an_address_is_noted_first_and_for_paired_peers_alone() {
    let folder = Folder::new();
    assert!(!folder.keys.prefer(&id("a"), addr(1)).unwrap());
    assert_eq!(folder.names(), Vec::<String>::new());
    folder.keys.add(&id("a"), &key(1)).unwrap();
    folder.put("a.meta", r#"{"addrs":[{"addr":"10.0.0.2:9847","last_seen":5}],"note":1}"#);
    assert!(folder.keys.prefer(&id("a"), addr(1)).unwrap());
    let (addresses, warning) = folder.keys.addresses(&id("a"));
    assert_eq!((addresses.iter().next().unwrap().address, warning), (addr(1), None));
    assert!(fs::read_to_string(folder.keys.dir.join("a.meta")).unwrap().contains("\"note\":1"));
}

#[test]
fn a_broken_record_of_addresses_is_ignored_with_a_warning() {
    let folder = Folder::new();
    for text in ["", "{\"addrs\":{}}", &" ".repeat(70_000)] {
        folder.put("a.meta", text);
        let (addresses, warning) = folder.keys.addresses(&id("a"));
        assert!(addresses.is_empty() && warning.unwrap().contains("a.meta is ignored"));
    }
}

#[test]
fn a_redeemed_invite_whose_file_a_crash_left_lets_nobody_in_again() {
    let folder = Folder::new();
    for close in [Keys::close_redeemed as fn(&Keys) -> _, |keys| keys.forget(&id("a")).map(|_| true)] {
        folder.keys.set_pending(&key(1)).unwrap();
        folder.keys.add(&id("a"), &key(2)).unwrap();
        assert!(!folder.keys.close_redeemed().unwrap());
        assert_eq!(folder.keys.pending().unwrap(), Stored::Paired(key(1)));
        folder.keys.add(&id("a"), &key(1)).unwrap();
        assert!(close(&folder.keys).unwrap());
        assert_eq!(folder.keys.pending().unwrap(), Stored::Absent);
    }
}

#[test]
fn pruning_removes_state_without_a_key_and_old_temporary_files_only() {
    let folder = Folder::new();
    for name in [
        "a.key",
        "a.meta",
        "b.meta",
        "b.caps",
        "c.headroom",
        "c.beat",
        "c.notes",
        "README",
        ".b.key.1.2.tmp",
        "_pending.key",
    ] {
        folder.put(name, HEX);
    }
    let now = SystemTime::now();
    let fresh = ["b.caps", "b.meta", "c.beat", "c.headroom"];
    assert_eq!(folder.keys.stale(now).unwrap(), fresh);
    let later = now + STALE + Duration::from_secs(60);
    let gone = folder.keys.prune(later).unwrap();
    assert_eq!(gone, [".b.key.1.2.tmp", "b.caps", "b.meta", "c.beat", "c.headroom"]);
    assert_eq!(folder.names(), ["README", "_pending.key", "a.key", "a.meta", "c.notes"]);
}

#[test]
fn one_key_is_pending_at_a_time_and_private() {
    let folder = Folder::new();
    assert_eq!(folder.keys.pending().unwrap(), Stored::Absent);
    folder.keys.set_pending(&key(1)).unwrap();
    folder.keys.set_pending(&key(2)).unwrap();
    assert_eq!(folder.keys.pending().unwrap(), Stored::Paired(key(2)));
    assert_eq!(folder.mode("_pending.key"), 0o600);
    assert_eq!(folder.keys.list().unwrap(), Listing::default());
}
