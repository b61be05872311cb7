//! A node's failures in the words and exit codes of the command line.

use relay_core::machine::{CloseReason, Refused};
use relay_core::peer::{Direction, Failure as Cause};
use relay_core::text::PeerId;
use relay_runtime::CallError;

use super::line::Link;
use crate::failure::{Exit, Failure};

/// What to do about a journal that fails.
pub(super) const JOURNAL_FAILS: &str =
    "Free some space on the disk of the home, or mend it: relay serve goes on by itself, and says so.";

/// What a command about `who` (a peer or an address, as it is to be shown) failed with.
#[must_use]
pub(super) fn failure(who: &str, cause: &Cause) -> Failure {
    let pair = "Pair first: relay invite (there), relay join LINK (here).";
    match cause {
        Cause::UnknownPeer => Failure::refused(
            format!("{who} is not known here"),
            format!("relay peers list shows those that are. {pair}"),
        ),
        Cause::NotPaired => Failure::refused(format!("there is no key for {who}"), pair),
        Cause::NoAddress => Failure::unreachable(
            format!("no address of {who} is known, and no link with it stands"),
            "Give its address once: relay connect IP:PORT.",
        ),
        Cause::Denied { by } => {
            let by = by.as_ref().map_or_else(|| who.to_owned(), |by| format!("peer \"{by}\""));
            Failure::refused(format!("{by} refused the handshake: unknown peer, or another key"), pair)
        }
        Cause::WrongPeer { answered } => {
            let answered =
                answered.as_ref().map_or_else(|| "another peer".to_owned(), |id| format!("peer \"{id}\""));
            Failure::refused(
                format!("{answered} answered in place of {who}"),
                "Check the address; relay peers show ID lists what is known of a peer.",
            )
        }
        Cause::Reflected => Failure::refused(
            format!("{who} sent back a challenge of this very node"),
            "Check the address: something there reflects handshakes.",
        ),
        Cause::Connection(CloseReason::DialFailed(error)) => Failure::unreachable(
            format!("{who} cannot be reached: {error}"),
            "Start it there: relay serve. Check the address and what lies between.",
        ),
        Cause::Connection(reason) => {
            Failure::unreachable(format!("the connection to {who} ended: {reason}"), "Try again.")
        }
        Cause::NoHandshake => Failure::unreachable(
            format!("{who} closed without a handshake"),
            "It is full, has locked this machine out for a minute, or is no relay.",
        ),
        Cause::TimedOut => Failure::unreachable(format!("{who} did not answer in time"), "Try again."),
        Cause::NotTaken => Failure::unreachable(
            format!("{who} closed before it took the message"),
            "It may not understand that type; its log says more.",
        ),
        Cause::Fault(fault) => Failure::refused(
            format!("{who} broke the protocol: {fault}"),
            "Check that a relay listens at that address.",
        ),
        Cause::Unsendable(error) => {
            Failure::refused(format!("the message cannot be sent: {error}"), "Send less at once.")
        }
        Cause::Gone => Failure::unreachable(format!("the connection with {who} has ended"), "Try again."),
        Cause::NotStored(error) => Failure::refused(
            format!("{who} is linked, but its key could not be stored: {error}"),
            "Make the home writable and join again with a new invite.",
        ),
        Cause::BadRequest(why) => Failure::usage((*why).to_owned(), ""),
        Cause::Withdrawn => Failure::new(Exit::Interrupted, "the answer is not wanted any more", ""),
        Cause::Busy => Failure::refused("too many dials are under way", "Try again in a moment."),
        Cause::NoLeases => Failure::refused(
            format!("{who} keeps no leases for the fleet, or its version is older than they are"),
            "Name the peer that keeps them: --authority PEER.",
        ),
        Cause::Stopping => Failure::unreachable("the node is about to end", "Start it again: relay serve."),
        other => Failure::refused(format!("{who}: {other}"), ""),
    }
}

/// What following an invite to `who` failed with; `named` is the peer whose invite it says that it is.
#[must_use]
pub(super) fn invite(who: &str, named: Option<&PeerId>, cause: &Cause) -> Failure {
    let ask = "Ask for a new one: relay invite (there).";
    let other = |answered: &Option<PeerId>| {
        answered.as_ref().filter(|answered| named.is_some_and(|named| named != *answered)).cloned()
    };
    let (Cause::Denied { by: answered } | Cause::WrongPeer { answered }) = cause else {
        return failure(who, cause);
    };
    match (named, other(answered), cause) {
        (Some(named), Some(answered), _) => Failure::refused(
            format!("the invite is one of peer \"{named}\", and peer \"{answered}\" answered at its address"),
            format!("It may be an old one, or that machine has a new identity. {ask}"),
        ),
        (_, None, Cause::Denied { by }) => {
            let by = by.as_ref().map_or_else(|| who.to_owned(), |by| format!("peer \"{by}\""));
            Failure::refused(
                format!("{by} refused the handshake: the invite was used, was replaced, or is not its own"),
                ask,
            )
        }
        _ => failure(who, cause),
    }
}

/// A link with `who` stands, and a ping has nothing to dial.
#[must_use]
pub(super) fn no_address_to_ping(who: &str, link: &Link) -> Failure {
    let whence =
        if link.direction == Direction::Inbound.as_str() { "which it dialled" } else { "dialled from here" };
    Failure::unreachable(
        format!(
            "a link with {who} stands, {whence}, but no address of it is known, and a ping needs one to dial"
        ),
        "Its heartbeats tell its addresses once it listens: relay serve (there).",
    )
}

/// Why a node gave no answer at all.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "errors of later versions are told in their own words")]
pub(super) fn unanswered(error: CallError) -> Failure {
    match error {
        CallError::Full => Failure::refused("the node has too much to do", "Try again in a moment."),
        CallError::TimedOut => {
            Failure::new(Exit::Unreachable, "the node did not answer in time", "Try again.")
        }
        CallError::Refused(Refused::NotDurable) => Failure::refused(
            "the journal failed meanwhile; what was asked is done only if it works again",
            JOURNAL_FAILS,
        ),
        other => {
            Failure::unreachable(format!("the node gave no answer: {other}"), "Start it again: relay serve.")
        }
    }
}
