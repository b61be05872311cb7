//! Delegation: a task, its state, its end, and a word in between.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;

use super::object::each;
use super::{Object, RawValue};
use crate::text::{TaskId, clip};

/// Longest text for people that is kept of these messages, in bytes.
pub const MAX_SUMMARY: usize = 4096;

/// `delegate_task`: asks a worker to run a prompt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DelegateTask {
    /// The delegator's name for the task.
    pub task_id: TaskId,
    /// What to do.
    pub prompt: String,
    /// Where. Always sent, as null where it is unset.
    pub cwd: Option<String>,
    /// What the worker should know. Defaulted where it is absent or does not parse.
    #[serde(skip_serializing_if = "Context::is_default")]
    pub context: Context,
}

impl DelegateTask {
    /// Reads a payload; `None` without a valid task id and a prompt.
    #[must_use]
    pub fn parse(payload: &RawValue) -> Option<Self> {
        let object = Object::new(payload, &["task_id", "prompt", "cwd", "context"]);
        Some(Self {
            task_id: task_id(&object)?,
            prompt: object.string("prompt")?,
            cwd: object.string("cwd"),
            context: object.raw("context").and_then(Context::parse).unwrap_or_default(),
        })
    }
}

/// What a delegator tells of a task's surroundings.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Context {
    /// The repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_remote: Option<String>,
    /// The branch or tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_ref: Option<String>,
    /// The commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_commit: Option<String>,
    /// Files by path; the sender keeps them within [`Self::MAX_FILES`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub relevant_files: BTreeMap<String, String>,
    /// Notes for the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brain_context: Option<String>,
    /// What the task waits for, and what waits for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dependency_graph: Option<DependencyGraph>,
    /// The terms of a supervised task; sent only where `supervised-task` was agreed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supervised: Option<Supervised>,
}

/// How a task stands to others, by their ids.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct DependencyGraph {
    /// Tasks that wait for this one.
    pub blocks: Vec<String>,
    /// Tasks that this one waits for.
    pub blocked_by: Vec<String>,
}

/// The terms of a supervised task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Supervised {
    /// Names the worktree: the same for all attempts, of which one runs at a time.
    pub worktree_key: String,
    /// The branch to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Shell commands that must succeed afterwards, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verify_run: Vec<String>,
    /// Passed to the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<String>,
    /// Passed to the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl Context {
    /// Most bytes of files that a sender may add: 50 KB, over all of them.
    pub const MAX_FILES: usize = 50 * 1024;

    /// Reads a context; `None` where it is no object or a key is of another type.
    #[must_use]
    pub fn parse(context: &RawValue) -> Option<Self> {
        if !context.get().starts_with('{') {
            return None;
        }
        let object = Object::new(
            context,
            &[
                "git_remote",
                "git_ref",
                "git_commit",
                "relevant_files",
                "brain_context",
                "dependency_graph",
                "supervised",
            ],
        );
        Some(Self {
            git_remote: object.optional("git_remote")?,
            git_ref: object.optional("git_ref")?,
            git_commit: object.optional("git_commit")?,
            relevant_files: object.optional("relevant_files")?.unwrap_or_default(),
            brain_context: object.optional("brain_context")?,
            dependency_graph: match object.value("dependency_graph") {
                Some(graph) => Some(DependencyGraph::parse(graph)?),
                None => None,
            },
            supervised: match object.value("supervised") {
                Some(terms) => Some(Supervised::parse(terms)?),
                None => None,
            },
        })
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl DependencyGraph {
    fn parse(graph: &RawValue) -> Option<Self> {
        let object = Object::new(graph, &["blocks", "blocked_by"]);
        Some(Self { blocks: object.defaulted("blocks")?, blocked_by: object.defaulted("blocked_by")? })
    }
}

impl Supervised {
    fn parse(terms: &RawValue) -> Option<Self> {
        let object =
            Object::new(terms, &["worktree_key", "branch", "verify_run", "permission_mode", "model"]);
        Some(Self {
            worktree_key: object.string("worktree_key")?,
            branch: object.optional("branch")?,
            verify_run: object.optional("verify_run")?.unwrap_or_default(),
            permission_mode: object.optional("permission_mode")?,
            model: object.optional("model")?,
        })
    }
}

/// `task_status`: how a task stands.
#[derive(Clone, Debug, Serialize)]
pub struct TaskStatus<'a> {
    /// The task.
    pub task_id: TaskId,
    /// A word, clipped: `running` where the peer sent none.
    pub state: String,
    /// `{tokens_used, cost_usd, context_pct, files_modified[], elapsed_secs?, last_activity?}`, kept as the worker
    /// wrote it: see [`Stats`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<&'a RawValue>,
}

impl<'a> TaskStatus<'a> {
    /// Longest state that is kept, in bytes.
    pub const MAX_STATE: usize = 32;

    /// Reads a payload; `None` without a valid task id.
    #[must_use]
    pub fn parse(payload: &'a RawValue) -> Option<Self> {
        let object = Object::new(payload, &["task_id", "state", "stats"]);
        Some(Self {
            task_id: task_id(&object)?,
            state: object.str("state").map_or_else(|| "running".into(), |s| clip(&s, Self::MAX_STATE)),
            stats: object.value("stats"),
        })
    }
}

/// What a running task used so far. Each key that is absent or mistyped is unknown alone.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Stats {
    /// Tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_used: Option<u64>,
    /// US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// How full the agent's context is, in per cent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_pct: Option<f64>,
    /// Paths, clipped, at most [`Self::MAX_FILES`].
    pub files_modified: Vec<String>,
    /// Seconds since it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed_secs: Option<u64>,
    /// What it did last, clipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_activity: Option<String>,
}

impl Stats {
    /// How many modified files are read.
    pub const MAX_FILES: usize = 1000;

    /// Reads the `stats` of a [`TaskStatus`].
    #[must_use]
    pub fn parse(stats: &RawValue) -> Self {
        let keys =
            &["tokens_used", "cost_usd", "context_pct", "files_modified", "elapsed_secs", "last_activity"];
        let object = Object::new(stats, keys);
        let files = object.strings("files_modified", Self::MAX_FILES).unwrap_or_default();
        Self {
            tokens_used: object.u64("tokens_used"),
            cost_usd: object.f64("cost_usd"),
            context_pct: object.f64("context_pct"),
            files_modified: files.iter().map(|path| clip(path, MAX_SUMMARY)).collect(),
            elapsed_secs: object.u64("elapsed_secs"),
            last_activity: object.str("last_activity").map(|text| clip(&text, MAX_SUMMARY)),
        }
    }
}

/// `task_handoff`: a task's end.
#[derive(Clone, Debug, Serialize)]
pub struct TaskHandoff<'a> {
    /// The task.
    pub task_id: TaskId,
    /// How it ended.
    pub state: Ending,
    /// For people, as the worker wrote it: clip it before it is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Always empty today.
    pub artifacts: Vec<String>,
    /// US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_cost_usd: Option<f64>,
    /// Tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
    /// The model that ran it, clipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The agent's own usage object, passed through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<&'a RawValue>,
    /// The branch of its worktree, clipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git_ref: Option<String>,
    /// The verdicts on a supervised task's commands. `None`, which a supervisor reads as failed, where there are
    /// none; entries that do not parse are dropped alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verifications: Option<Vec<Verification>>,
    /// It never started, so this was no attempt.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub refused: bool,
}

/// How a task ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// As asked.
    Completed,
    /// Not so.
    Failed,
}

/// The verdict on one command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Verification {
    /// The command.
    pub command: String,
    /// Whether it succeeded.
    pub passed: bool,
    /// The end of its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

impl<'a> TaskHandoff<'a> {
    /// Longest model and branch name that is kept, in bytes.
    pub const MAX_NAME: usize = 256;

    /// Reads a payload; `None` without a valid task id.
    #[must_use]
    pub fn parse(payload: &'a RawValue) -> Option<Self> {
        let object = Object::new(
            payload,
            &[
                "task_id",
                "state",
                "summary",
                "artifacts",
                "total_cost_usd",
                "total_tokens",
                "model",
                "usage",
                "git_ref",
                "verifications",
                "refused",
            ],
        );
        let name = |key| object.str(key).map(|name| clip(&name, Self::MAX_NAME));
        Some(Self {
            task_id: task_id(&object)?,
            state: match object.raw("state") {
                None => Ending::Completed,
                Some(_) if object.str("state").as_deref() == Some("completed") => Ending::Completed,
                Some(_) => Ending::Failed,
            },
            summary: object.string("summary"),
            artifacts: object.strings("artifacts", usize::MAX).unwrap_or_default(),
            total_cost_usd: object.f64("total_cost_usd"),
            total_tokens: object.u64("total_tokens"),
            model: name("model"),
            usage: object.value("usage"),
            git_ref: name("git_ref"),
            verifications: object.raw("verifications").and_then(Verification::list),
            refused: object.bool_true("refused"),
        })
    }
}

impl Verification {
    /// Longest output that a sender adds and a receiver keeps, in bytes: the tail counts.
    pub const MAX_OUTPUT: usize = 4096;

    fn list(list: &RawValue) -> Option<Vec<Self>> {
        let mut verdicts = Vec::new();
        each(list, |verdict| verdicts.extend(Self::parse(verdict))).then_some(verdicts)
    }

    fn parse(verdict: &RawValue) -> Option<Self> {
        let object = Object::new(verdict, &["command", "passed", "output"]);
        Some(Self {
            command: object.string("command")?,
            passed: object.bool_true("passed"),
            output: object.str("output").map(|output| tail(&output, Self::MAX_OUTPUT).into()),
        })
    }
}

/// `task_interrupt`: a word to a running task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TaskInterrupt {
    /// The task.
    pub task_id: TaskId,
    /// What to do.
    pub interrupt_type: Interrupt,
    /// For people, clipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What an interrupt asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Interrupt {
    /// Kill it, then hand it off as failed.
    Stop,
    /// Say how it stands.
    Nudge,
}

impl TaskInterrupt {
    /// Reads a payload; `None`, which is to ignore it, without a valid task id or with a type that we do not know.
    #[must_use]
    pub fn parse(payload: &RawValue) -> Option<Self> {
        let object = Object::new(payload, &["task_id", "interrupt_type", "reason"]);
        let interrupt_type = match &*object.str("interrupt_type")? {
            "stop" => Interrupt::Stop,
            "nudge" => Interrupt::Nudge,
            _ => return None,
        };
        let reason = object.str("reason").map(|reason| clip(&reason, MAX_SUMMARY));
        Some(Self { task_id: task_id(&object)?, interrupt_type, reason })
    }
}

fn task_id<const N: usize>(object: &Object<'_, N>) -> Option<TaskId> {
    TaskId::parse(&object.str("task_id")?)
}

/// The last whole characters of `text` within `max_bytes`.
fn tail(text: &str, max_bytes: usize) -> &str {
    let mut from = text.len().saturating_sub(max_bytes);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    fn delegate(text: &str) -> Option<DelegateTask> {
        DelegateTask::parse(raw(text))
    }

    #[test]
    fn cwd_is_always_sent() {
        let task = delegate(r#"{"task_id":"t","prompt":"p"}"#).unwrap();
        assert_eq!(serde_json::to_string(&task).unwrap(), r#"{"task_id":"t","prompt":"p","cwd":null}"#);
        assert_eq!(delegate(r#"{"task_id":"t","prompt":"p","cwd":7}"#).unwrap().cwd, None);
    }

    #[test]
    fn a_task_needs_a_valid_id_and_a_prompt() {
        for bad in [
            "{}",
            "null",
            r#"{"task_id":"t"}"#,
            r#"{"prompt":"p"}"#,
            r#"{"task_id":"../../t6","prompt":"p"}"#,
            r#"{"task_id":7,"prompt":"p"}"#,
            r#"{"task_id":"t","prompt":null}"#,
        ] {
            assert_eq!(delegate(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_context_that_does_not_parse_is_the_default() {
        for bad in [
            "7",
            "[]",
            "null",
            r#"{"git_ref":7}"#,
            r#"{"relevant_files":{"a":1}}"#,
            r#"{"dependency_graph":{"blocks":[1]}}"#,
            r#"{"supervised":{}}"#,
            r#"{"git_remote":"r","supervised":{"worktree_key":"k","verify_run":"x"}}"#,
        ] {
            let task = delegate(&format!(r#"{{"task_id":"t","prompt":"p","context":{bad}}}"#)).unwrap();
            assert_eq!(task.context, Context::default(), "{bad}");
        }
    }

    #[test]
    fn a_supervised_context_is_written_as_it_is_read() {
        let text = r#"{"git_ref":"main","relevant_files":{"a":"b"},"dependency_graph":{"blocks":["x"],"blocked_by":[]},"supervised":{"worktree_key":"k","branch":"b","verify_run":["true"]}}"#;
        assert_eq!(serde_json::to_string(&Context::parse(raw(text)).unwrap()).unwrap(), text);
    }

    #[test]
    fn a_status_is_running_unless_it_says_else() {
        let state = |text: &str| TaskStatus::parse(raw(text)).map(|status| status.state);
        assert_eq!(state(r#"{"task_id":"t"}"#).as_deref(), Some("running"));
        assert_eq!(state(r#"{"task_id":"t","state":7}"#).as_deref(), Some("running"));
        assert_eq!(state(r#"{"task_id":"t","state":"queued\n"}"#).as_deref(), Some("queued"));
        assert_eq!(state(r#"{"state":"running"}"#), None);
    }

    #[test]
    fn stats_are_read_key_by_key() {
        let stats = Stats::parse(raw(r#"{"tokens_used":"x","cost_usd":1,"files_modified":["a",1,"b\n"]}"#));
        assert_eq!((stats.tokens_used, stats.cost_usd), (None, Some(1.0)));
        assert_eq!(stats.files_modified, ["a", "b"]);
        assert_eq!(Stats::parse(raw("[]")), Stats::default());
    }

    #[test]
    fn a_handoff_is_completed_by_default_and_failed_by_any_other_word() {
        for (state, ending) in [
            ("", Ending::Completed),
            (r#","state":"completed""#, Ending::Completed),
            (r#","state":"failed""#, Ending::Failed),
            (r#","state":"done""#, Ending::Failed),
            (r#","state":7"#, Ending::Failed),
        ] {
            let text = format!("{{\"task_id\":\"t\"{state}}}");
            assert_eq!(TaskHandoff::parse(raw(&text)).unwrap().state, ending, "{text}");
        }
        assert!(TaskHandoff::parse(raw(r#"{"task_id":""}"#)).is_none());
    }

    #[test]
    fn a_handoff_is_written_as_it_is_read() {
        let text = r#"{"task_id":"t","state":"failed","summary":"s","artifacts":[],"total_cost_usd":0.5,"total_tokens":3,"model":"m","usage":{"a": 1},"git_ref":"b","verifications":[{"command":"c","passed":false,"output":"o"}],"refused":true}"#;
        assert_eq!(serde_json::to_string(&TaskHandoff::parse(raw(text)).unwrap()).unwrap(), text);
        let text =
            r#"{"task_id":"t","model":null,"usage":null,"verifications":7,"refused":1,"total_cost_usd":"1"}"#;
        assert_eq!(
            serde_json::to_string(&TaskHandoff::parse(raw(text)).unwrap()).unwrap(),
            r#"{"task_id":"t","state":"completed","artifacts":[]}"#
        );
    }

    #[test]
    fn a_verdict_without_a_command_is_dropped_alone_and_one_without_passed_failed() {
        let text = r#"{"task_id":"t","verifications":[7,{"passed":true},{"command":"c"}]}"#;
        let verdicts = TaskHandoff::parse(raw(text)).unwrap().verifications.unwrap();
        assert_eq!(verdicts, [Verification { command: "c".into(), passed: false, output: None }]);
    }

    #[test]
    fn of_a_long_output_the_end_is_kept() {
        let text = format!("{{\"command\":\"c\",\"output\":\"é{}\"}}", "x".repeat(4095));
        assert_eq!(Verification::parse(raw(&text)).unwrap().output.unwrap(), "x".repeat(4095));
        assert_eq!(tail("aé", 9), "aé");
    }

    #[test]
    fn interrupts_of_another_type_are_ignored() {
        let interrupt = |text: &str| TaskInterrupt::parse(raw(text)).map(|i| i.interrupt_type);
        assert_eq!(interrupt(r#"{"task_id":"t","interrupt_type":"stop"}"#), Some(Interrupt::Stop));
        assert_eq!(interrupt(r#"{"task_id":"t","interrupt_type":"nudge"}"#), Some(Interrupt::Nudge));
        for bad in [
            r#"{"task_id":"t","interrupt_type":"Stop"}"#,
            r#"{"task_id":"t"}"#,
            r#"{"interrupt_type":"stop"}"#,
        ] {
            assert_eq!(interrupt(bad), None, "{bad}");
        }
    }
}
