//! The configuration: `config.toml` in the home, or the file that `--config` names. All of it is optional.
//!
//! Every key is in [`KEYS`], with what it means and its default. An unknown key is an error that names the nearest
//! known one, and a value that does not fit is an error that names its key, so that a typing mistake never leaves a
//! node running with a default that its owner did not mean.

mod nearest;
mod values;

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::path::{Path, PathBuf};

use relay_core::message::FeatureSet;
use relay_core::peer::Settings;
use relay_core::peer::invite::DEFAULT_PORT;
use relay_core::text::PeerId;
use serde_json::Value;

use crate::atomic;
use crate::failure::Failure;

pub use nearest::nearest;
pub use values::{listen_address, reachable_address};

/// Longest file that is read, in bytes.
const MAX_FILE: usize = 256 * 1024;

/// One key of the file, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyDoc {
    /// Its name.
    pub name: &'static str,
    /// What it means, one or more lines.
    pub doc: &'static str,
    /// A value as the file would have it: the default, or an example where the default is to have none.
    pub example: &'static str,
}

/// Every key, in the order in which they are shown.
pub const KEYS: [KeyDoc; 9] = [
    KeyDoc {
        name: "listen",
        doc: "Where to listen for peers: one IP:PORT or a list. Port 0 takes a free one. Protocol version 1 is not\n\
              encrypted, so listen on other addresses than this machine's own in a network that you trust alone.",
        example: "\"127.0.0.1:9847\"",
    },
    KeyDoc {
        name: "advertise",
        doc: "The IP:PORT list at which peers can reach this machine, at most 6, the best first.\n\
              Without it the addresses of the network interfaces are told.",
        example: "[]",
    },
    KeyDoc { name: "runtime", doc: "The event loop: \"smol\" or \"mio\".", example: "\"smol\"" },
    KeyDoc {
        name: "heartbeat_secs",
        doc: "Seconds between two heartbeats on a link, 1 to 300. A link that misses three is closed.",
        example: "30",
    },
    KeyDoc {
        name: "max_peers",
        doc: "Most lasting links at a time, 1 to 65535. One-shot requests are not counted.",
        example: "256",
    },
    KeyDoc {
        name: "features",
        doc: "The features of a link to offer. Leave one out to switch it off.",
        example: "[\"frame-bin\", \"headroom\", \"lease-fence\", \"lease-fleet\", \"unknown-ok\"]",
    },
    KeyDoc {
        name: "authority",
        doc: "The peer that keeps the fleet's leases, the same on every machine.\n\
              Empty, or this machine's own id: this node keeps its own.",
        example: "\"\"",
    },
    KeyDoc {
        name: "log",
        doc: "How much a service writes to its log: \"error\", \"warn\", \"info\", \"debug\" or \"trace\".",
        example: "\"info\"",
    },
    KeyDoc { name: "log_format", doc: "The log's form: \"text\" or \"json\".", example: "\"text\"" },
];

/// Which event loop runs a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Runtime {
    /// smol.
    Smol,
    /// mio.
    Mio,
}

/// How much is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// What failed.
    Error,
    /// And what is odd.
    Warn,
    /// And what happens.
    Info,
    /// And how.
    Debug,
    /// Everything.
    Trace,
}

/// The form of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// A configuration whose every value was checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Where to listen; never empty.
    pub listen: Vec<SocketAddr>,
    /// Where peers can reach this machine; empty for the interfaces' addresses.
    pub advertise: Vec<SocketAddr>,
    /// The event loop.
    pub runtime: Runtime,
    /// The span between two heartbeats.
    pub heartbeat: Duration,
    /// Most lasting links at a time.
    pub max_peers: u16,
    /// The features to offer: none that this version does not keep.
    pub features: FeatureSet,
    /// The peer that keeps the fleet's leases; `None` for this node.
    pub authority: Option<PeerId>,
    /// How much is logged.
    pub log: Level,
    /// The log's form.
    pub log_format: LogFormat,
    given: Vec<&'static str>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT))],
            advertise: Vec::new(),
            runtime: Runtime::Smol,
            heartbeat: Duration::from_secs(30),
            max_peers: 256,
            features: Settings::FEATURES,
            authority: None,
            log: Level::Info,
            log_format: LogFormat::Text,
            given: Vec::new(),
        }
    }
}

impl Config {
    /// Reads and checks the file at `path`; the defaults if there is none, unless the user named it (`required`).
    ///
    /// # Errors
    /// Every fault in the file, each a line for people; one alone if it cannot be read or is no TOML.
    pub fn read(path: &Path, required: bool) -> Result<Self, Vec<String>> {
        match atomic::read_text(path, MAX_FILE) {
            Ok(Some(text)) => Self::parse(&text),
            Ok(None) if required => Err(vec!["there is no such file".to_owned()]),
            Ok(None) => Ok(Self::default()),
            Err(error) => Err(vec![format!("it cannot be read: {error}")]),
        }
    }

    /// [`Config::read`] for a command that needs the configuration: any fault is a usage failure.
    ///
    /// # Errors
    /// A usage failure that names the file and its first fault.
    pub fn load(path: &Path, required: bool) -> Result<Self, Failure> {
        Self::read(path, required).map_err(|faults| {
            let rest =
                if faults.len() > 1 { format!(" (and {} more)", faults.len() - 1) } else { String::new() };
            let first = faults.into_iter().next().unwrap_or_default();
            let hint = if path.exists() {
                "Mend the file; relay config check lists every fault."
            } else {
                "Check the path."
            };
            Failure::usage(format!("{}: {first}{rest}", path.display()), hint)
        })
    }

    /// Checks a whole file.
    ///
    /// # Errors
    /// Every fault, each a line for people.
    pub fn parse(text: &str) -> Result<Self, Vec<String>> {
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| vec![values::syntax(text, &error)])?;
        let mut config = Self::default();
        let mut faults = Vec::new();
        for (name, value) in &table {
            match KEYS.iter().find(|key| key.name == name) {
                Some(key) => match values::set(&mut config, key.name, value) {
                    Ok(()) => config.given.push(key.name),
                    Err(fault) => faults.push(format!("{}: {fault}", key.name)),
                },
                None => faults.push(unknown("key", name, KEYS.iter().map(|key| key.name))),
            }
        }
        if faults.is_empty() { Ok(config) } else { Err(faults) }
    }

    /// The value of a key as JSON, and whether the file gave it. `None` for a name that is no key.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<(Value, bool)> {
        let key = KEYS.iter().find(|key| key.name == name)?;
        Some((values::get(self, key.name)?, self.given.contains(&key.name)))
    }
}

/// The file with every key in it, commented out, and what each means.
#[must_use]
pub fn template() -> String {
    let mut text =
        String::from("# Everything here is optional. Take the # off a line to change its value.\n");
    for key in KEYS {
        text.push('\n');
        for line in key.doc.lines() {
            text.push_str(&format!("# {line}\n"));
        }
        text.push_str(&format!("#{} = {}\n", key.name, key.example));
    }
    text
}

/// Which file to read, and whether it must exist.
#[must_use]
pub fn place(flag: Option<&Path>, default: PathBuf) -> (PathBuf, bool) {
    flag.map_or((default, false), |path| (path.to_owned(), true))
}

fn unknown(what: &str, name: &str, known: impl Iterator<Item = &'static str> + Clone) -> String {
    match nearest(name, known.clone()) {
        Some(near) => format!("unknown {what} {name:?}; did you mean {near:?}?"),
        None => format!("unknown {what} {name:?}; known are {}", known.collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use relay_core::message::Feature;

    use super::*;
    use crate::failure::Exit;

    fn fault(text: &str) -> String {
        let faults = Config::parse(text).unwrap_err();
        assert_eq!(faults.len(), 1, "{faults:?}");
        faults[0].clone()
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        assert_eq!(Config::parse("").unwrap(), Config::default());
    }

    #[test]
    fn the_template_is_the_defaults_and_names_every_key() {
        assert_eq!(Config::parse(&template()).unwrap(), Config::default());
        let taken: String = template()
            .lines()
            .filter_map(|l| l.strip_prefix('#'))
            .filter(|l| !l.starts_with(' '))
            .fold(String::new(), |text, line| text + line + "\n");
        let mut config = Config::parse(&taken).unwrap();
        assert_eq!(config.given.len(), KEYS.len());
        config.given.clear();
        assert_eq!(config, Config::default());
    }

    #[test]
    fn every_key_can_be_set_and_shown() {
        let text = r#"
            listen = ["127.0.0.1:1", "[::1]:0", "10.0.0.1"]
            advertise = ["10.0.0.1:9847"]
            runtime = "mio"
            heartbeat_secs = 5
            max_peers = 3
            features = ["frame-bin"]
            authority = "build-2"
            log = "debug"
            log_format = "json"
        "#;
        let config = Config::parse(text).unwrap();
        assert_eq!(config.listen, ["127.0.0.1:1", "[::1]:0", "10.0.0.1:9847"].map(|a| a.parse().unwrap()));
        assert_eq!(
            (config.runtime, config.heartbeat, config.max_peers),
            (Runtime::Mio, Duration::from_secs(5), 3)
        );
        assert_eq!(config.features, FeatureSet::EMPTY.with(Feature::FrameBin));
        assert_eq!((config.log, config.log_format), (Level::Debug, LogFormat::Json));
        for key in KEYS {
            let (value, given) = config.value(key.name).unwrap();
            assert!(given && !value.is_null(), "{}", key.name);
        }
        assert_eq!(config.value("nothing"), None);
        assert!(!Config::default().value("listen").unwrap().1);
    }

    #[test]
    fn a_feature_that_this_version_does_not_keep_is_not_offered() {
        let config = Config::parse("features = [\"supervised-task\", \"headroom\"]").unwrap();
        assert_eq!(config.value("features").unwrap().0, serde_json::json!(["headroom"]));
    }

    #[test]
    fn an_unknown_key_is_named_with_the_nearest_known_one() {
        assert_eq!(fault("listn = 1"), "unknown key \"listn\"; did you mean \"listen\"?");
        assert!(fault("[relay]\nlisten = 1").starts_with("unknown key \"relay\"; known are listen, "));
    }

    #[test]
    fn a_value_that_does_not_fit_is_named_by_its_key() {
        for (text, part) in [
            ("listen = 9847", "listen: "),
            ("listen = []", "listen: "),
            ("listen = \"host:1\"", "listen: \"host:1\" is no IP:PORT"),
            ("advertise = [\"0.0.0.0:1\"]", "advertise: \"0.0.0.0:1\" "),
            ("advertise = [\"1.2.3.4:0\"]", "advertise: \"1.2.3.4:0\" "),
            (
                "advertise = [\"1.2.3.4:1\", \"1.2.3.4:2\", \"1.2.3.4:3\", \"1.2.3.4:4\", \"1.2.3.4:5\", \"1.2.3.4:6\", \"1.2.3.4:7\"]",
                "advertise: ",
            ),
            ("runtime = \"tokio\"", "runtime: "),
            ("heartbeat_secs = 0", "heartbeat_secs: "),
            ("heartbeat_secs = 301", "heartbeat_secs: "),
            ("heartbeat_secs = 1.5", "heartbeat_secs: "),
            ("max_peers = -1", "max_peers: "),
            ("features = \"frame-bin\"", "features: "),
            (
                "features = [\"frame_bin\"]",
                "features: unknown feature \"frame_bin\"; did you mean \"frame-bin\"?",
            ),
            ("authority = 1", "authority: "),
            ("authority = \"a b\"", "authority: a peer id is "),
            ("log = true", "log: "),
            ("log_format = \"yaml\"", "log_format: "),
        ] {
            assert!(fault(text).starts_with(part), "{text}: {}", fault(text));
        }
    }

    #[test]
    fn every_fault_is_told_and_a_command_hears_the_first() {
        assert_eq!(Config::parse("lsten = 1\nmax_peers = 0").unwrap_err().len(), 2);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        assert_eq!(Config::load(&path, false).unwrap(), Config::default());
        let missing = Config::load(&path, true).unwrap_err();
        assert_eq!((missing.exit, missing.hint.as_str()), (Exit::Usage, "Check the path."));
        std::fs::write(&path, "lsten = 1\nmax_peers = 0").unwrap();
        let failure = Config::load(&path, false).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.message.contains("lsten") && failure.message.contains("and 1 more"), "{failure}");
    }

    #[test]
    fn what_is_no_toml_is_told_by_its_line_in_one_line() {
        let fault = fault("listen = \"a\"\nmax_peers = = 3\n");
        assert!(fault.starts_with("line 2: ") && !fault.contains('\n'), "{fault}");
    }
}
