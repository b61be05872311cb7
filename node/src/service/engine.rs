//! A node on one of the two event loops.

use std::io;

use relay_core::journal::Seq;
use relay_core::peer::{Event, Node};
use relay_runtime::{Events, Handle, Listener, Options};

use crate::config::Runtime;

/// A node's handle.
pub type NodeHandle = Handle<Node>;

/// A node's events.
pub type NodeEvents = Events<Event>;

impl Runtime {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Smol => "smol",
            Self::Mio => "mio",
        }
    }

    pub(super) fn start(
        self,
        node: Node,
        newest: Seq,
        listeners: Vec<Listener>,
        options: Options,
    ) -> io::Result<(NodeHandle, NodeEvents)> {
        match self {
            Self::Smol => relay_smol::start(node, newest, listeners, options),
            Self::Mio => relay_mio::start(node, newest, listeners, options),
        }
    }
}
