//! Every `msg_type` there is.

use alloc::borrow::Cow;
use core::fmt;

/// A message type of the reference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Listener to dialler, the first frame.
    Challenge,
    /// Dialler to listener.
    Handshake,
    /// Listener to dialler, the last frame before the link.
    HandshakeAck,
    /// Both ways, on every interval.
    Heartbeat,
    /// Reserved: never sent, never handled.
    Ack,
    /// Delegator to worker.
    DelegateTask,
    /// Worker to delegator, while the task runs.
    TaskStatus,
    /// Worker to delegator, when it ended.
    TaskHandoff,
    /// Delegator to worker.
    TaskInterrupt,
    /// Units of knowledge, pushed.
    KnowledgeSync,
    /// Asks for units of knowledge.
    KnowledgeRequest,
    /// Answers [`Kind::KnowledgeRequest`].
    KnowledgeSnapshot,
    /// Joiner to host.
    HiveJoinRequest,
    /// Host to joiner.
    HiveJoinResult,
    /// Host to the sender of refused knowledge.
    KnowledgeRejected,
    /// One chunk of a conversation.
    SessionTransfer,
    /// Answers the last chunk of a conversation.
    SessionReceived,
    /// Requester to authority.
    LeaseClaim,
    /// Requester to authority.
    LeaseRelease,
    /// Requester to authority.
    LeaseList,
    /// Authority to requester.
    LeaseResult,
}

impl Kind {
    /// All kinds, in the order of the reference.
    pub const ALL: [Self; 21] = [
        Self::Challenge,
        Self::Handshake,
        Self::HandshakeAck,
        Self::Heartbeat,
        Self::Ack,
        Self::DelegateTask,
        Self::TaskStatus,
        Self::TaskHandoff,
        Self::TaskInterrupt,
        Self::KnowledgeSync,
        Self::KnowledgeRequest,
        Self::KnowledgeSnapshot,
        Self::HiveJoinRequest,
        Self::HiveJoinResult,
        Self::KnowledgeRejected,
        Self::SessionTransfer,
        Self::SessionReceived,
        Self::LeaseClaim,
        Self::LeaseRelease,
        Self::LeaseList,
        Self::LeaseResult,
    ];

    /// Reads the exact `snake_case` name; `None` for any other text.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Challenge => "challenge",
            Self::Handshake => "handshake",
            Self::HandshakeAck => "handshake_ack",
            Self::Heartbeat => "heartbeat",
            Self::Ack => "ack",
            Self::DelegateTask => "delegate_task",
            Self::TaskStatus => "task_status",
            Self::TaskHandoff => "task_handoff",
            Self::TaskInterrupt => "task_interrupt",
            Self::KnowledgeSync => "knowledge_sync",
            Self::KnowledgeRequest => "knowledge_request",
            Self::KnowledgeSnapshot => "knowledge_snapshot",
            Self::HiveJoinRequest => "hive_join_request",
            Self::HiveJoinResult => "hive_join_result",
            Self::KnowledgeRejected => "knowledge_rejected",
            Self::SessionTransfer => "session_transfer",
            Self::SessionReceived => "session_received",
            Self::LeaseClaim => "lease_claim",
            Self::LeaseRelease => "lease_release",
            Self::LeaseList => "lease_list",
            Self::LeaseResult => "lease_result",
        }
    }

    /// The kind that answers this one on the connection that asked; `None` for what is no request.
    #[must_use]
    pub const fn answer(self) -> Option<Self> {
        match self {
            Self::LeaseClaim | Self::LeaseRelease | Self::LeaseList => Some(Self::LeaseResult),
            Self::SessionTransfer => Some(Self::SessionReceived),
            Self::KnowledgeRequest => Some(Self::KnowledgeSnapshot),
            Self::HiveJoinRequest => Some(Self::HiveJoinResult),
            Self::Challenge
            | Self::Handshake
            | Self::HandshakeAck
            | Self::Heartbeat
            | Self::Ack
            | Self::DelegateTask
            | Self::TaskStatus
            | Self::TaskHandoff
            | Self::TaskInterrupt
            | Self::KnowledgeSync
            | Self::KnowledgeSnapshot
            | Self::HiveJoinResult
            | Self::KnowledgeRejected
            | Self::SessionReceived
            | Self::LeaseResult => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The `msg_type` of a message that came: one we know, or a name to skip.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MsgType<'a> {
    /// A type of the reference.
    Known(Kind),
    /// Any other string, as it came: unbounded and unfiltered. Such a message is skipped, never a fault.
    Unknown(Cow<'a, str>),
}

impl<'a> MsgType<'a> {
    /// Sorts a name.
    #[must_use]
    pub fn of(name: Cow<'a, str>) -> Self {
        Kind::parse(&name).map_or(Self::Unknown(name), Self::Known)
    }

    /// The kind, where it is known.
    #[must_use]
    pub const fn known(&self) -> Option<Kind> {
        match self {
            Self::Known(kind) => Some(*kind),
            Self::Unknown(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_and_no_other_spelling_does() {
        for kind in Kind::ALL {
            assert_eq!(Kind::parse(kind.as_str()), Some(kind));
            assert_eq!(Kind::parse(&kind.as_str().to_uppercase()), None);
        }
        for other in ["", "unknown", "lease-list", "LeaseList", " ack"] {
            assert_eq!(Kind::parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn all_lists_each_kind_once_in_order() {
        assert!(Kind::ALL.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(Kind::ALL[20] as usize, 20);
    }

    #[test]
    fn an_answer_is_no_request_itself() {
        let answers = Kind::ALL.into_iter().filter_map(Kind::answer);
        assert!(answers.into_iter().all(|answer| answer.answer().is_none()));
    }
}
