//! What the journal keeps of leases, one JSON object a record, and a snapshot made of such records.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::str;

use serde::{Deserialize, Serialize};

use super::Ended;
use crate::journal::Seq;
use crate::machine::BadRecord;
use crate::message::lease::Mode;

/// Which start of the machine the monotonic clock counts from. Instants of two starts have nothing in common.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BootId(Box<str>);

impl BootId {
    /// The longest that is kept, in bytes.
    pub const MAX_BYTES: usize = 64;

    /// Takes what the system calls its start, clipped.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(crate::text::clip(text, Self::MAX_BYTES).into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One change of the leases. A lease and a place in a queue are called by the number of the record that made them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Record<'a> {
    /// The monotonic clock counts from another start: every lease has its full time again.
    LeaseBoot {
        /// Which.
        #[serde(borrow)]
        boot: Cow<'a, str>,
        /// When this was noticed, in nanoseconds of that clock.
        mono: u64,
    },
    /// A lease was granted; this record's number is its fencing token.
    LeaseGranted {
        /// The requester's name for it.
        #[serde(borrow)]
        id: Cow<'a, str>,
        /// Whose it is.
        #[serde(borrow)]
        session: Cow<'a, str>,
        /// The peer that was authenticated.
        #[serde(borrow)]
        peer: Cow<'a, str>,
        /// On what kind of resource.
        #[serde(borrow)]
        kind: Cow<'a, str>,
        /// The resource's value.
        #[serde(borrow)]
        value: Cow<'a, str>,
        /// Whether it excludes others.
        mode: Mode,
        /// What a renewal gives, in seconds.
        ttl_secs: u64,
        /// For people.
        #[serde(borrow)]
        reason: Cow<'a, str>,
        /// When, in milliseconds of the wall clock, to be shown.
        wall: u64,
        /// When, in nanoseconds of the monotonic clock.
        mono: u64,
        /// Whether a heartbeat named its session then.
        listed: bool,
        /// The place in the queue that it took up.
        #[serde(skip_serializing_if = "Option::is_none")]
        place: Option<u64>,
    },
    /// A lease ended.
    LeaseEnded {
        /// Its fencing token.
        token: u64,
        /// How.
        how: Ended,
        /// The request that gave it back; empty where it expired.
        #[serde(borrow)]
        request_id: Cow<'a, str>,
    },
    /// A claim waits; this record's number is its place.
    LeaseQueued {
        /// The lease that it asks for.
        #[serde(borrow)]
        id: Cow<'a, str>,
        /// Who waits.
        #[serde(borrow)]
        session: Cow<'a, str>,
        /// The peer that was authenticated.
        #[serde(borrow)]
        peer: Cow<'a, str>,
        /// For what kind of resource.
        #[serde(borrow)]
        kind: Cow<'a, str>,
        /// The resource's value.
        #[serde(borrow)]
        value: Cow<'a, str>,
    },
    /// A place was left without a grant.
    LeaseUnqueued {
        /// Which.
        place: u64,
    },
    /// A heartbeat names a session that holds leases.
    LeaseSessionListed {
        /// Whose.
        #[serde(borrow)]
        session: Cow<'a, str>,
        /// The peer that was authenticated.
        #[serde(borrow)]
        peer: Cow<'a, str>,
    },
    /// It names it no more.
    LeaseSessionGone {
        /// Whose.
        #[serde(borrow)]
        session: Cow<'a, str>,
        /// The peer that was authenticated.
        #[serde(borrow)]
        peer: Cow<'a, str>,
        /// Until when it renewed, in nanoseconds of the monotonic clock.
        mono: u64,
    },
    /// In a snapshot: a lease that ended, so that its id is not granted again.
    LeaseSettled {
        /// The requester's name for it.
        #[serde(borrow)]
        id: Cow<'a, str>,
        /// Whose it was.
        #[serde(borrow)]
        session: Cow<'a, str>,
        /// The peer that was authenticated.
        #[serde(borrow)]
        peer: Cow<'a, str>,
        /// How it ended.
        how: Ended,
        /// The request that gave it back.
        #[serde(borrow)]
        request_id: Cow<'a, str>,
    },
}

impl<'a> Record<'a> {
    /// Writes the record.
    pub fn write(&self, into: &mut Vec<u8>) {
        let written = serde_json::to_writer(into, self);
        debug_assert!(written.is_ok(), "a record of texts and numbers is JSON");
    }

    /// Reads a record.
    ///
    /// # Errors
    /// It is none that this version knows.
    pub fn read(bytes: &'a [u8]) -> Result<Self, BadRecord> {
        serde_json::from_slice(bytes).map_err(|_| BadRecord { reason: "no record of a lease" })
    }
}

/// Writes one record of a snapshot: its number and itself, a line each.
pub(super) fn write_line(seq: Seq, record: &Record<'_>, into: &mut Vec<u8>) {
    into.extend_from_slice(alloc::format!("{} ", seq.number()).as_bytes());
    record.write(into);
    into.push(b'\n');
}

/// Gives each record of a snapshot.
pub(super) fn read_lines<'a>(
    snapshot: &'a [u8],
    mut each: impl FnMut(Seq, Record<'a>) -> Result<(), BadRecord>,
) -> Result<(), BadRecord> {
    let bad = BadRecord { reason: "a snapshot of leases is lines of a number and a record" };
    for line in snapshot.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let at = line.iter().position(|byte| *byte == b' ').ok_or_else(|| bad.clone())?;
        let seq = str::from_utf8(&line[..at]).ok().and_then(|text| text.parse().ok());
        each(Seq::new(seq.ok_or_else(|| bad.clone())?), Record::read(&line[at + 1..])?)?;
    }
    Ok(())
}
