//! A link: two ends, and what each sends the other.

use alloc::collections::VecDeque;
use core::fmt;

use relay_core::machine::{Address, ConnId};

use crate::node::NodeId;

/// A link between two ends, in the order in which links were dialled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub(crate) u32);

/// The two ends of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Side {
    Dialler,
    Acceptor,
}

impl Side {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Dialler => Self::Acceptor,
            Self::Acceptor => Self::Dialler,
        }
    }

    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Dialler => 0,
            Self::Acceptor => 1,
        }
    }
}

pub(crate) struct Link {
    pub(crate) entity: u64,
    pub(crate) address: Address,
    pub(crate) ends: [End; 2],
    pub(crate) pipes: [Pipe; 2],
}

pub(crate) struct End {
    pub(crate) node: NodeId,
    pub(crate) stage: EndStage,
    pub(crate) conn: Option<ConnId>,
    pub(crate) reading: bool,
}

/// An end's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndStage {
    /// The dial has not reached it, or it waits for the answer.
    Opening,
    /// It stands, and its owner has not taken it yet.
    Waiting,
    /// It stands.
    Open,
    /// Its owner has forgotten it.
    Gone,
}

/// What one end sends the other.
#[derive(Default)]
pub(crate) struct Pipe {
    /// Place in the stream of the next byte to be written.
    pub(crate) written: u64,
    pub(crate) flight: VecDeque<Segment>,
    pub(crate) last_arrival: u64,
    /// Bytes that arrived and were not read.
    pub(crate) inbox: Vec<u8>,
    pub(crate) fin_arrived: bool,
    pub(crate) fin_sent: bool,
    /// Bytes that count against the window.
    pub(crate) used: usize,
    /// Room that the sender will hear of: when, how much.
    pub(crate) acks: VecDeque<(u64, usize)>,
    pub(crate) blocked: bool,
}

/// What arrived: the most that matters of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Landed {
    Nothing,
    Fin,
    Bytes,
}

pub(crate) struct Segment {
    pub(crate) at: u64,
    /// `None` is the end of the stream.
    pub(crate) bytes: Option<Vec<u8>>,
}

impl Link {
    pub(crate) const fn end(&self, side: Side) -> &End {
        &self.ends[side.index()]
    }

    pub(crate) const fn end_mut(&mut self, side: Side) -> &mut End {
        &mut self.ends[side.index()]
    }

    /// What `side` sends.
    pub(crate) const fn pipe_mut(&mut self, side: Side) -> &mut Pipe {
        &mut self.pipes[side.index()]
    }

    pub(crate) const fn pipe(&self, side: Side) -> &Pipe {
        &self.pipes[side.index()]
    }

    pub(crate) fn is_between(&self, one: NodeId, two: NodeId) -> bool {
        let nodes = (self.ends[0].node, self.ends[1].node);
        nodes == (one, two) || nodes == (two, one)
    }

    pub(crate) fn concerns(&self, node: NodeId) -> bool {
        self.ends.iter().any(|end| end.node == node)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.ends.iter().all(|end| end.stage == EndStage::Gone)
    }

    /// Whether something from `side` is under way.
    pub(crate) fn is_flying(&self, side: Side) -> bool {
        !self.pipe(side).flight.is_empty()
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {}", self.0)
    }
}
