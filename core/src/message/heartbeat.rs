//! Heartbeats and what rides on them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use serde::Serialize;

use super::object::{Text, each, each_entry, each_string, read};
use super::raw::{self, Walk};
use super::{Object, RawValue};
use crate::text::{clip, is_tag};

/// `heartbeat`. Reading it never fails: what is not as it should be counts as absent, and the beat as life.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Heartbeat<'a> {
    /// The name a worker gives itself, clipped; `None` says the same as the sender's identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// The sender's sessions. `None`, as in a beat for liveness only, leaves its worker's state alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Sessions<'a>>,
    /// What the sender's machine can run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Capabilities>,
    /// Where the sender can be reached: distinct, at most [`Self::MAX_ADDRS`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listen_addrs: Vec<SocketAddr>,
    /// What room the sender's machine has; sent only where `headroom` was agreed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom: Option<Headroom>,
}

impl<'a> Heartbeat<'a> {
    /// Longest worker id that is kept, in bytes.
    pub const MAX_WORKER_ID: usize = 128;
    /// How many addresses are read.
    pub const MAX_ADDRS: usize = 8;

    /// Reads a payload.
    #[must_use]
    pub fn parse(payload: &'a RawValue) -> Self {
        let object =
            Object::new(payload, &["worker_id", "sessions", "capabilities", "listen_addrs", "headroom"]);
        Self {
            worker_id: object.str("worker_id").map(|id| clip(&id, Self::MAX_WORKER_ID)),
            sessions: object.raw("sessions").and_then(Sessions::new),
            capabilities: object.raw("capabilities").and_then(Capabilities::parse),
            listen_addrs: object.raw("listen_addrs").map(addresses).unwrap_or_default(),
            headroom: object.raw("headroom").and_then(Headroom::parse),
        }
    }
}

/// A JSON array of session objects, kept as the sender wrote it.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct Sessions<'a>(&'a RawValue);

impl<'a> Sessions<'a> {
    /// Takes an array; `None` for anything else.
    #[must_use]
    pub fn new(list: &'a RawValue) -> Option<Self> {
        list.get().starts_with('[').then_some(Self(list))
    }

    /// The array's text.
    #[must_use]
    pub const fn as_raw(self) -> &'a RawValue {
        self.0
    }

    /// Gives each element to `visit`, whatever it is.
    pub fn each(self, visit: impl FnMut(&'a RawValue)) {
        // It is an array, so there is nothing to report.
        let _ = each(self.0, visit);
    }

    /// Gives the id of each session that is not `Finished` to `visit`. One without a status counts as running, one
    /// without an id does not count.
    pub fn each_running(self, mut visit: impl FnMut(&str)) {
        self.each(|session| {
            let object = Object::new(session, &["session_id", "status"]);
            if object.str("status").as_deref() != Some("Finished")
                && let Some(id) = object.str("session_id")
            {
                visit(&id);
            }
        });
    }
}

/// What a peer's machine can run, as it says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Capabilities {
    /// Its version, clipped.
    pub claudectl_version: String,
    /// Its operating system, clipped.
    pub os: String,
    /// Its processor architecture, clipped.
    pub arch: String,
    /// Its tools by name, at most [`Self::MAX_TOOLS`].
    pub tools: BTreeMap<String, Tool>,
}

/// What a peer says of one tool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Tool {
    /// It is installed.
    Present {
        /// Its version, clipped.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<String>,
        /// Whether it is logged in.
        #[serde(skip_serializing_if = "Option::is_none")]
        credential: Option<Credential>,
    },
    /// It is not.
    Missing,
}

/// A tool's login, in the words of its peer: the reference leaves them open.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum Credential {
    /// There is one, or none.
    Held(bool),
    /// A state by name, clipped.
    Named(String),
}

impl Capabilities {
    /// How many tools a manifest may have.
    pub const MAX_TOOLS: usize = 64;
    /// Longest string in a manifest that is kept, in bytes.
    pub const MAX_TEXT: usize = 64;

    /// Reads a manifest; `None` where a key is missing or mistyped, or there are too many tools.
    #[must_use]
    pub fn parse(manifest: &RawValue) -> Option<Self> {
        let object = Object::new(manifest, &["claudectl_version", "os", "arch", "tools"]);
        let text = |key| object.str(key).map(|text| clip(&text, Self::MAX_TEXT));
        let mut tools = Some(BTreeMap::new());
        let is_object = each_entry(object.raw("tools")?, |name, tool| {
            tools = tools.take().zip(Tool::parse(tool)).and_then(|(mut tools, tool)| {
                tools.insert(clip(&name, Self::MAX_TEXT), tool);
                (tools.len() <= Self::MAX_TOOLS).then_some(tools)
            });
            tools.is_some()
        });
        Some(Self {
            claudectl_version: text("claudectl_version")?,
            os: text("os")?,
            arch: text("arch")?,
            tools: tools.filter(|_| is_object)?,
        })
    }
}

impl Tool {
    fn parse(tool: &RawValue) -> Option<Self> {
        let object = Object::new(tool, &["state", "version", "credential"]);
        match &*object.str("state")? {
            "missing" => Some(Self::Missing),
            "present" => Some(Self::Present {
                version: object
                    .optional::<Text<'_>>("version")?
                    .map(|version| clip(&version.0, Capabilities::MAX_TEXT)),
                credential: object.value("credential").and_then(Credential::parse),
            }),
            _ => None,
        }
    }
}

impl Credential {
    fn parse(credential: &RawValue) -> Option<Self> {
        read(credential)
            .map(Self::Held)
            .or_else(|| read::<Text<'_>>(credential).map(|t| Self::Named(clip(&t.0, Capabilities::MAX_TEXT))))
    }
}

/// What room a machine has. Readings that are absent are unknown, which fails any floor set on them.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Headroom {
    /// Free memory, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_free_mb: Option<u64>,
    /// Free disk space for worktrees, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_free_mb: Option<u64>,
    /// The load of one minute, divided by the cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_per_core: Option<f64>,
    /// Sessions of the supervisor and delegated tasks.
    pub running_tasks: u32,
    /// The machine's own ceiling on them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tasks: Option<u32>,
    /// Labels to place by: valid ones, at most [`Self::MAX_TAGS`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

impl Headroom {
    /// How many tags are kept.
    pub const MAX_TAGS: usize = 32;

    /// Reads a reading; `None`, for the whole, where it is no object or a key is of another type. Tags of another
    /// form are dropped alone.
    #[must_use]
    pub fn parse(headroom: &RawValue) -> Option<Self> {
        if !headroom.get().starts_with('{') {
            return None;
        }
        let keys = &["mem_free_mb", "disk_free_mb", "load_per_core", "running_tasks", "max_tasks", "tags"];
        let object = Object::new(headroom, keys);
        Some(Self {
            mem_free_mb: object.optional("mem_free_mb")?,
            disk_free_mb: object.optional("disk_free_mb")?,
            load_per_core: object.optional_f64("load_per_core")?,
            running_tasks: object.defaulted("running_tasks")?,
            max_tasks: object.optional("max_tasks")?,
            tags: object.raw("tags").map_or_else(|| Some(Vec::new()), tags)?,
        })
    }
}

/// The valid tags of a list, as many as are kept; `None` where it is no list of strings.
fn tags(list: &RawValue) -> Option<Vec<String>> {
    let mut tags = Vec::new();
    for element in Walk::array(list)? {
        if !element.starts_with('"') {
            return None;
        }
        if tags.len() < Headroom::MAX_TAGS
            && let Some(tag) = raw::text(element)
            && is_tag(&tag)
        {
            tags.push(tag.into_owned());
        }
    }
    Some(tags)
}

fn addresses(list: &RawValue) -> Vec<SocketAddr> {
    let mut addrs = Vec::new();
    // What is no array has no addresses.
    let _ = each_string(list, |text| {
        if let Ok(addr) = text.parse()
            && !addrs.contains(&addr)
        {
            addrs.push(addr);
        }
        addrs.len() < Heartbeat::MAX_ADDRS
    });
    addrs
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    fn json(beat: &Heartbeat<'_>) -> String {
        serde_json::to_string(beat).unwrap()
    }

    #[test]
    fn a_beat_for_liveness_only_is_an_empty_object() {
        assert_eq!(json(&Heartbeat::default()), "{}");
        for empty in ["{}", "null", "[]", r#"{"sessions":{},"listen_addrs":7,"worker_id":1,"timestamp":-1}"#]
        {
            assert_eq!(json(&Heartbeat::parse(raw(empty))), "{}", "{empty}");
        }
    }

    #[test]
    fn sessions_are_verbatim_and_empty_is_not_absent() {
        let text = r#"{"sessions":[{"session_id":"s1", "x":1.0},7]}"#;
        assert_eq!(json(&Heartbeat::parse(raw(text))), text);
        assert_eq!(json(&Heartbeat::parse(raw(r#"{"sessions":[]}"#))), r#"{"sessions":[]}"#);
        assert!(Heartbeat::parse(raw(r#"{"sessions":null}"#)).sessions.is_none());
    }

    #[test]
    fn a_session_runs_unless_it_is_finished() {
        let list = raw(
            r#"[{"session_id":"a"},{"session_id":"b","status":"Finished"},{"session_id":"c","status":"Idle"},
               {"session_id":7},{"status":"Idle"},3,{"session_id":"d","status":null}]"#,
        );
        let mut running = Vec::new();
        Sessions::new(list).unwrap().each_running(|id| running.push(id.to_string()));
        assert_eq!(running, ["a", "c", "d"]);
    }

    #[test]
    fn addresses_are_literals_distinct_and_at_most_8() {
        let text =
            r#"{"listen_addrs":["10.0.0.1:1","host:1",7,"10.0.0.1","[::1]:2","10.0.0.1:1","0.0.0.0:0"]}"#;
        assert_eq!(
            json(&Heartbeat::parse(raw(text))),
            r#"{"listen_addrs":["10.0.0.1:1","[::1]:2","0.0.0.0:0"]}"#
        );
        let many: Vec<_> = (1..20).map(|port| format!("10.0.0.1:{port}")).collect();
        let text = format!("{{\"listen_addrs\":{many:?}}}");
        assert_eq!(Heartbeat::parse(raw(&text)).listen_addrs.len(), 8);
    }

    #[test]
    fn capabilities_that_do_not_parse_are_ignored_whole() {
        let good = r#"{"claudectl_version":"1","os":"linux","arch":"x","tools":{"git":{"state":"present","version":"2"},"go":{"state":"missing"}}}"#;
        assert_eq!(serde_json::to_string(&Capabilities::parse(raw(good)).unwrap()).unwrap(), good);
        for (from, to) in [
            ("\"os\"", "\"so\""),
            ("\"linux\"", "1"),
            ("\"missing\"", "\"lost\""),
            ("\"tools\":{", "\"tools\":{\"x\":1,"),
            ("\"version\":\"2\"", "\"version\":2"),
        ] {
            assert_eq!(Capabilities::parse(raw(&good.replacen(from, to, 1))), None, "{to}");
        }
        for none in ["[]", "null", r#"{"claudectl_version":"1","os":"l","arch":"x","tools":[]}"#] {
            assert_eq!(Capabilities::parse(raw(none)), None, "{none}");
        }
    }

    #[test]
    fn a_credential_is_a_flag_or_a_word_and_never_voids_a_manifest() {
        let tool = |credential: &str| {
            Tool::parse(raw(&format!("{{\"state\":\"present\",\"credential\":{credential}}}")))
        };
        let present = |credential| Some(Tool::Present { version: None, credential });
        assert_eq!(tool("true"), present(Some(Credential::Held(true))));
        assert_eq!(tool("\"ok\""), present(Some(Credential::Named("ok".into()))));
        assert_eq!(tool("null"), present(None));
        assert_eq!(tool("[1]"), present(None));
    }

    #[test]
    fn a_manifest_has_at_most_64_tools() {
        for (count, taken) in [(64, true), (65, false)] {
            let tools: Vec<_> = (0..count).map(|n| format!("\"t{n}\":{{\"state\":\"missing\"}}")).collect();
            let text = format!(
                "{{\"claudectl_version\":\"\",\"os\":\"\",\"arch\":\"\",\"tools\":{{{}}}}}",
                tools.join(",")
            );
            assert_eq!(Capabilities::parse(raw(&text)).is_some(), taken);
        }
    }

    #[test]
    fn headroom_with_a_mistyped_key_is_ignored_whole_and_a_bad_tag_alone() {
        let good = r#"{"mem_free_mb":1,"load_per_core":0.5,"running_tasks":2,"tags":["gpu","a b","x.y"]}"#;
        let reading = Headroom::parse(raw(good)).unwrap();
        assert_eq!(
            (reading.mem_free_mb, reading.disk_free_mb, reading.load_per_core),
            (Some(1), None, Some(0.5))
        );
        assert_eq!((reading.running_tasks, reading.max_tasks), (2, None));
        assert_eq!(reading.tags, ["gpu", "x.y"]);
        assert_eq!(Headroom::parse(raw("{}")), Some(Headroom::default()));
        assert_eq!(Headroom::parse(raw(r#"{"mem_free_mb":null}"#)), Some(Headroom::default()));
        for bad in [
            r#"{"mem_free_mb":-1}"#,
            r#"{"running_tasks":null}"#,
            r#"{"running_tasks":1.0}"#,
            r#"{"max_tasks":4294967296}"#,
            r#"{"load_per_core":"1"}"#,
            r#"{"tags":["a",1]}"#,
            r#"{"tags":"a"}"#,
            "[]",
            "null",
        ] {
            assert_eq!(Headroom::parse(raw(bad)), None, "{bad}");
        }
        let tags: Vec<_> = (0..40).map(|n| format!("t{n}")).collect();
        assert_eq!(Headroom::parse(raw(&format!("{{\"tags\":{tags:?}}}"))).unwrap().tags.len(), 32);
    }
}
