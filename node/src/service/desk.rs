//! Carries requests out on a node: the one place where both a control client's and a command's own end up.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use relay_core::message::Kind;
use relay_core::peer::{Answer, Command, Failure as Cause};
use relay_core::text::PeerId;
use relay_runtime::CallError;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::engine::NodeHandle;
use super::lease::Claim;
use super::line::Link;
use super::records::Records;
use super::request::{Connected, Forgotten, Live, Pong, Reply, Request, Sent, Status};
use super::{Launched, explain};
use crate::actor::Turn;
use crate::failure::{Exit, Failure};
use crate::held::Held;
use crate::keys::Keys;

/// The longest time for an answer that takes no dial.
const AT_ONCE: Duration = Duration::from_secs(10);
/// The longest time for dials: a node ends each by itself, after eight addresses at most.
const DIALS: Duration = Duration::from_secs(240);
/// How often it is looked whether an answer is wanted still; the answer itself is never late for it.
const GLANCE: Duration = Duration::from_millis(100);
/// The longest wait for a reply that can be asked for.
pub(crate) const LONGEST_WAIT: u64 = 3600;

/// A node, and the key files that go with it.
#[derive(Clone, Debug)]
pub struct Desk {
    handle: NodeHandle,
    keys: Keys,
    status: Status,
    /// Held while files and node change together: the node's own writes wait, so that what was read before one of them
    /// never undoes it.
    turn: Turn,
    held: Arc<Held>,
    /// The peer that keeps the fleet's leases, where it is not this node.
    authority: Option<PeerId>,
    journal_fails: Arc<AtomicBool>,
    stopped: Arc<AtomicBool>,
}

impl Desk {
    pub(super) fn new(launched: &Launched, keys: Keys, held: Arc<Held>, status: Status) -> Self {
        Self {
            handle: launched.handle.clone(),
            keys,
            status,
            turn: Turn::clone(&launched.turn),
            held,
            authority: launched.authority.clone(),
            journal_fails: Arc::default(),
            stopped: Arc::default(),
        }
    }

    /// Does it; the answer is a JSON value whose type [`Request`] names.
    ///
    /// # Errors
    /// What the node or the system refused, as the command line shows it.
    pub fn carry_out(&self, request: Request) -> Result<Box<RawValue>, Failure> {
        self.carry_out_while(request, &|| true)
    }

    /// As [`carry_out`](Self::carry_out), for somebody who may leave: once `wanted` says no, what is waited for is taken
    /// back within a tenth of a second.
    ///
    /// # Errors
    /// As for [`carry_out`](Self::carry_out), and that nobody wants it any more.
    pub fn carry_out_while(
        &self,
        request: Request,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Box<RawValue>, Failure> {
        tracing::debug!(cmd = request.name(), "asked");
        match request {
            Request::Status => json(&self.status),
            Request::Peers => json(&self.peers()?),
            Request::Reload => self.reload().and_then(|_| json(&serde_json::Map::new())),
            Request::Pending => self.reload_pending().and_then(|_| json(&serde_json::Map::new())),
            Request::Forget { peer } => json(&self.forget(&peer)?),
            Request::Connect { addr, peer, invite, keep } => {
                let who = shown(peer.as_ref().map(AsRef::as_ref), Some(addr));
                let (named, invited) = (peer.clone(), invite.is_some());
                let invite = invite.map(|key| key.0);
                let command = Command::Connect { address: addr, peer, invite, keep };
                let answer = self.call_while(command, DIALS, wanted)?;
                if let Answer::Failed(cause) = &answer {
                    return Err(if invited {
                        explain::invite(&who, named.as_ref(), cause)
                    } else {
                        explain::failure(&who, cause)
                    });
                }
                let Answer::Connected { peer, paired } = answer else { return Err(unexpected(&who)) };
                json(&Connected { peer: peer.to_string(), paired })
            }
            Request::Send { peer, msg_type, payload, reply_within } => {
                self.send(peer, &msg_type, payload, reply_within, wanted)
            }
            Request::Ping { peer } => {
                let answer = self.call_while(Command::Ping { peer: peer.clone() }, DIALS, wanted)?;
                if let Answer::Failed(cause) = &answer {
                    let who = self.dialled(&peer, cause);
                    let link = if *cause == Cause::NoAddress { self.link(&peer)? } else { None };
                    return Err(match link {
                        Some(link) => explain::no_address_to_ping(&who, &link),
                        None => explain::failure(&who, cause),
                    });
                }
                let Answer::Pong(time) = answer else {
                    return Err(unexpected(&shown(Some(peer.as_str()), None)));
                };
                json(&Pong { seconds: seconds_exact(time) })
            }
            Request::LeaseClaim {
                authority,
                lease_id,
                session,
                resource,
                mode,
                ttl,
                reason,
                wait,
                wait_within,
            } => {
                let claim = Claim { lease_id, session, resource, mode, ttl, reason, wait, wait_within };
                json(&self.claim(authority, claim, wanted)?)
            }
            Request::LeaseRelease { authority, lease_id, session } => {
                json(&self.release(authority, lease_id, session, wanted)?)
            }
            Request::LeaseList { authority } => json(&self.leases(authority, wanted)?),
        }
    }

    /// A peer, with where it was dialled where that is what failed.
    fn dialled(&self, peer: &PeerId, cause: &Cause) -> String {
        let who = shown(Some(peer.as_str()), None);
        if !matches!(cause, Cause::Connection(_) | Cause::NoHandshake | Cause::TimedOut) {
            return who;
        }
        let addresses = self.keys.addresses(peer).0;
        let places: Vec<_> = addresses.iter().map(|known| known.address.to_string()).collect();
        if places.is_empty() { who } else { format!("{who} at {}", places.join(", ")) }
    }

    fn send(
        &self,
        peer: PeerId,
        msg_type: &str,
        payload: Box<RawValue>,
        reply_within: Option<u64>,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Box<RawValue>, Failure> {
        let who = shown(Some(peer.as_str()), None);
        let kind = kind(msg_type)?;
        let wait = reply_within.map(|secs| Duration::from_secs(secs.clamp(1, LONGEST_WAIT)));
        let command = Command::Send { peer: peer.clone(), kind, payload, reply_within: wait };
        let answer = self.call_while(command, DIALS + wait.unwrap_or_default(), wanted)?;
        if let Answer::Failed(cause) = &answer {
            return Err(explain::failure(&self.dialled(&peer, cause), cause));
        }
        if let Answer::Sent { taken } = answer {
            return json(&Sent { taken, reply: None });
        }
        let Answer::Replied(message) = answer else { return Err(unexpected(&who)) };
        let (msg_type, id) = (message.kind.to_string(), message.id);
        let reply = Reply { msg_type, id, payload: message.payload };
        json(&Sent { taken: true, reply: Some(reply) })
    }

    /// Tells the node what the key files hold now, and returns what was odd about them.
    ///
    /// # Errors
    /// They cannot be read, or the node does not answer.
    pub fn reload(&self) -> Result<Vec<String>, Failure> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.hold()?;
        let Records { peers, pending, warnings } = Records::read(&self.keys)?;
        self.ask("the node", Command::Reload { peers, pending }, AT_ONCE)?;
        Ok(warnings)
    }

    /// Tells the node which invite is open now, without a look at the peers' keys, and returns what was odd about it.
    ///
    /// # Errors
    /// As for [`reload`](Self::reload).
    pub fn reload_pending(&self) -> Result<Option<String>, Failure> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.hold()?;
        let (key, warning) = Records::pending(&self.keys)?;
        self.ask("the node", Command::Pend { key }, AT_ONCE)?;
        Ok(warning)
    }

    /// Checks that the home is still the one in which the node was started.
    ///
    /// # Errors
    /// It was moved away, or another stands at its place.
    pub(super) fn hold(&self) -> Result<(), Failure> {
        if self.held.is_in_place() { Ok(()) } else { Err(self.held.lost()) }
    }

    /// The peer that keeps the fleet's leases, where it is not this node.
    pub(super) const fn authority(&self) -> Option<&PeerId> {
        self.authority.as_ref()
    }

    /// This node's id.
    pub(super) fn id(&self) -> &str {
        &self.status.id
    }

    /// Whether the node's journal fails, as far as it said.
    pub(super) fn journal_fails(&self) -> bool {
        self.journal_fails.load(Ordering::SeqCst)
    }

    /// The journal began to fail, or works again.
    pub(super) fn journal(&self, fails: bool) {
        self.journal_fails.store(fails, Ordering::SeqCst);
    }

    /// Whether the node still takes commands.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.stopped.load(Ordering::SeqCst)
    }

    /// The node has ended.
    pub(super) fn stopped(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    fn peers(&self) -> Result<Vec<Live>, Failure> {
        let answer = self.ask("the node", Command::Peers, AT_ONCE)?;
        let Answer::Peers(peers) = answer else { return Err(unexpected("the node")) };
        Ok(peers.iter().map(Live::from).collect())
    }

    fn link(&self, peer: &PeerId) -> Result<Option<Link>, Failure> {
        let live = self.peers()?.into_iter().find(|live| live.id == peer.as_str());
        Ok(live.and_then(|live| live.link))
    }

    /// The node forgets first, so that nothing it does afterwards brings a file back; then every file goes.
    fn forget(&self, peer: &PeerId) -> Result<Forgotten, Failure> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.hold()?;
        let who = shown(Some(peer.as_str()), None);
        let forgot = self.ask(&who, Command::Forget { peer: peer.clone() }, AT_ONCE);
        let removed = self.keys.forget(peer)?;
        if removed.is_empty() {
            forgot?;
        }
        Ok(Forgotten { removed })
    }

    fn call(&self, command: Command, within: Duration) -> Result<Answer, Failure> {
        self.handle.call(command, within).map_err(explain::unanswered)
    }

    /// As [`call`](Self::call), until nobody wants the answer: the node is told then, so that it stops as well.
    pub(super) fn call_while(
        &self,
        command: Command,
        within: Duration,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Answer, Failure> {
        let until = Instant::now() + within;
        let pending =
            self.handle.command(command).map_err(|rejected| explain::unanswered(rejected.into()))?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match pending.outcome(left.min(GLANCE)) {
                Err(CallError::TimedOut) if left > GLANCE => {}
                outcome => return outcome.map_err(explain::unanswered),
            }
            if !wanted()
                && let Some(ticket) = pending.ticket()
                // Where it has too much to do to hear of it, it is told at the next glance.
                && self.handle.command(Command::Withdraw { ticket }).is_ok()
            {
                return Err(Failure::new(Exit::Interrupted, "the answer is not wanted any more", ""));
            }
        }
    }

    fn ask(&self, who: &str, command: Command, within: Duration) -> Result<Answer, Failure> {
        let answer = self.call(command, within)?;
        if let Answer::Failed(cause) = &answer {
            return Err(explain::failure(who, cause));
        }
        Ok(answer)
    }
}

/// The message types that can be sent by hand: all but those of the handshake.
pub fn sendable() -> impl Iterator<Item = Kind> {
    let of_a_handshake = |kind: &Kind| matches!(kind, Kind::Challenge | Kind::Handshake | Kind::HandshakeAck);
    Kind::ALL.into_iter().filter(move |kind| !of_a_handshake(kind))
}

/// Reads a message type that can be sent by hand.
///
/// # Errors
/// It is not one.
pub fn kind(name: &str) -> Result<Kind, Failure> {
    Kind::parse(name).ok_or_else(|| {
        let hint = crate::config::nearest(name, sendable().map(Kind::as_str)).map_or_else(
            || "relay send --help lists them.".to_owned(),
            |near| format!("Did you mean {near}?"),
        );
        Failure::usage(format!("{name:?} is no message type"), hint)
    })
}

/// A peer or an address, as messages name it.
fn shown(peer: Option<&str>, addr: Option<SocketAddr>) -> String {
    match (peer, addr) {
        (Some(peer), Some(addr)) => format!("peer \"{peer}\" at {addr}"),
        (Some(peer), None) => format!("peer \"{peer}\""),
        (None, Some(addr)) => addr.to_string(),
        (None, None) => "the node".to_owned(),
    }
}

fn unexpected(who: &str) -> Failure {
    Failure::refused(format!("{who}: the node answered something else"), "")
}

fn json<T: Serialize>(answer: &T) -> Result<Box<RawValue>, Failure> {
    to_raw_value(answer).map_err(|error| Failure::refused(format!("the answer is no JSON: {error}"), ""))
}

fn seconds_exact(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}
