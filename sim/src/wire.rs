//! What comes over the network, and whom it is told.

use core::mem;
use core::time::Duration;

use relay_core::machine::{Address, CloseReason, ConnId, DialError, Endpoint, ListenerId};
use relay_core::port::Ending;

use crate::link::{EndStage, Landed, LinkId, Side};
use crate::node::{Node, NodeId, State};
use crate::queue::Happening;
use crate::watch::Subject;
use crate::world::World;

impl<M: Subject> World<M> {
    pub(crate) fn knock(&mut self, id: LinkId) {
        let Some(link) = self.core.net.links.get_mut(&id) else { return };
        let address = link.address.clone();
        let unix = matches!(address, Address::Unix(_));
        let (dialler, target) = (link.end(Side::Dialler).node, self.core.net.resolve(&address));
        let Some((node, listener)) = target else {
            let why = if unix { DialError::NoSuchSocket } else { DialError::Unreachable };
            self.fail_dial(id, why);
            return;
        };
        if let Some(link) = self.core.net.links.get_mut(&id) {
            link.end_mut(Side::Acceptor).node = node;
        }
        let net = &self.core.net;
        let backlog = net.backlog;
        let unheard = net.hung.contains(&address) || net.is_cut(dialler, node);
        let refused = net.refused.contains(&address);
        let Some(Node { shell, .. }) = self.nodes.get_mut(usize::from(node.0)) else {
            self.fail_dial(id, DialError::Unreachable);
            return;
        };
        let own = listener.and_then(|listener| shell.listeners.get_mut(usize::from(listener)));
        let full = own.as_ref().is_some_and(|own| own.backlog.len() >= backlog);
        if unheard || shell.state == State::Dark || (full && !refused) {
            self.core.knock_again(id);
            return;
        }
        match (own, listener) {
            (Some(own), Some(listener)) if shell.state == State::Up && !refused => {
                own.backlog.push_back(id);
                if let Some(link) = self.core.net.links.get_mut(&id) {
                    link.end_mut(Side::Acceptor).stage = EndStage::Waiting;
                }
                self.core.answer(id);
                self.accept(node, listener);
            }
            (Some(_) | None, Some(_) | None) => self.core.reset(id, Side::Acceptor),
        }
    }

    fn fail_dial(&mut self, id: LinkId, why: DialError) {
        let Some(link) = self.core.net.links.remove(&id) else { return };
        let end = link.end(Side::Dialler);
        if let Some(conn) = end.conn {
            self.end_conn(end.node, id, conn, CloseReason::DialFailed(why));
        }
    }

    /// Takes from a listener's backlog while it accepts.
    pub(crate) fn accept(&mut self, node: NodeId, listener: u16) {
        loop {
            let shell = self.shell_mut(node);
            if shell.state != State::Up || shell.frozen.is_some() || shell.congested {
                return;
            }
            let Some(own) = shell.listeners.get_mut(usize::from(listener)) else { return };
            if !own.accepting {
                return;
            }
            let Some(id) = own.backlog.pop_front() else { return };
            let unix = matches!(own.address, Address::Unix(_));
            let Some(link) = self.core.net.links.get(&id) else { continue };
            let peer = endpoint(unix, link.end(Side::Dialler).node, 32768 + (id.0 % 28232) as u16);
            let number = u64::from(id.0);
            self.turn(node, "accepted", number, format!("{peer:?}").as_bytes(), |host, now, shell, core| {
                let Some(conn) = host.accepted(now, ListenerId(listener), &peer, None) else {
                    core.close(id, Side::Acceptor, Ending::Reset);
                    return;
                };
                shell.conns.insert(conn, (id, Side::Acceptor));
                core.open(id, Side::Acceptor, conn);
            });
            self.read(id, Side::Acceptor);
        }
    }

    pub(crate) fn answered(&mut self, id: LinkId) {
        let Some(link) = self.core.net.links.get(&id) else { return };
        let (dialler, acceptor) = (link.end(Side::Dialler), link.end(Side::Acceptor).node);
        let (node, Some(conn)) = (dialler.node, dialler.conn) else {
            // A node without power answers nothing, until it has some again.
            if self.shell(dialler.node).state != State::Dark {
                self.core.reset(id, Side::Dialler);
            }
            return;
        };
        if dialler.stage != EndStage::Opening {
            return;
        }
        if self.core.net.is_cut(acceptor, node) {
            self.core.queue.push(self.core.after(Duration::from_secs(1)), Happening::Answered { link: id });
            return;
        }
        let peer = if let Address::Tcp(address) = link.address {
            Endpoint::Tcp(address)
        } else {
            endpoint(true, acceptor, 0)
        };
        self.core.open(id, Side::Dialler, conn);
        self.turn(node, "dialled", u64::from(id.0), &[], |host, now, _, _| {
            host.dialled(now, conn, &peer, None);
        });
        self.read(id, Side::Dialler);
    }

    pub(crate) fn dial_timed_out(&mut self, id: LinkId) {
        let Some(link) = self.core.net.links.get(&id) else { return };
        let end = link.end(Side::Dialler);
        let (node, conn) = (end.node, end.conn);
        if end.stage != EndStage::Opening {
            return;
        }
        self.core.close(id, Side::Dialler, Ending::Reset);
        if let Some(conn) = conn {
            self.end_conn(node, id, conn, CloseReason::DialFailed(DialError::TimedOut));
        }
    }

    pub(crate) fn arrive(&mut self, id: LinkId, from: Side) {
        let Some(link) = self.core.net.links.get(&id) else { return };
        let (sender, to) = (link.end(from).node, link.end(from.other()));
        // What is lost here is sent again when the way is whole.
        if self.core.net.is_cut(sender, to.node) || self.shell(to.node).state == State::Dark {
            return;
        }
        let gone = to.stage == EndStage::Gone;
        match self.core.land(id, from) {
            Landed::Nothing => {}
            // Both ends have ended their streams in order.
            Landed::Fin if gone && self.core.has_finished(id, from.other()) => {}
            Landed::Fin | Landed::Bytes if gone => self.core.reset(id, from.other()),
            Landed::Fin | Landed::Bytes => self.read(id, from.other()),
        }
    }

    /// A side takes what arrived for it, if it reads.
    pub(crate) fn read(&mut self, id: LinkId, at: Side) {
        let Some(link) = self.core.net.links.get(&id) else { return };
        let end = link.end(at);
        let (node, Some(conn)) = (end.node, end.conn) else { return };
        if end.stage != EndStage::Open || !end.reading || !self.shell(node).reads() {
            return;
        }
        let from = at.other();
        let bytes = self.core.take_inbox(id, from);
        if !bytes.is_empty() {
            self.turn(node, "read", u64::from(id.0), &bytes, |host, now, _, _| {
                host.received(now, conn, &bytes);
            });
        }
        let Some(link) = self.core.net.links.get_mut(&id) else { return };
        // Paused by what it read, it hears of the end of the stream when it reads again.
        if !link.end(at).reading || link.end(at).stage != EndStage::Open {
            return;
        }
        if mem::take(&mut link.pipe_mut(from).fin_arrived) {
            self.turn(node, "eof", u64::from(id.0), &[], |host, now, _, _| host.eof(now, conn));
        }
    }

    pub(crate) fn reset_arrived(&mut self, id: LinkId, from: Side) {
        let Some(link) = self.core.net.links.get(&id) else { return };
        let (sender, at) = (link.end(from).node, from.other());
        let end = link.end(at);
        let (node, stage, conn) = (end.node, end.stage, end.conn);
        if self.core.net.is_cut(sender, node) || self.shell(node).state == State::Dark {
            return;
        }
        self.core.forget(id, at);
        let why = match stage {
            EndStage::Gone => return,
            EndStage::Waiting => {
                for listener in &mut self.shell_mut(node).listeners {
                    listener.backlog.retain(|waiting| *waiting != id);
                }
                return;
            }
            EndStage::Opening => CloseReason::DialFailed(DialError::Refused),
            EndStage::Open => CloseReason::Reset,
        };
        if let Some(conn) = conn {
            self.end_conn(node, id, conn, why);
        }
    }

    pub(crate) fn window_opened(&mut self, id: LinkId, of: Side) {
        let Some(link) = self.core.net.links.get(&id) else { return };
        let (node, conn) = (link.end(of).node, link.end(of).conn);
        if let Some(conn) = conn
            && self.core.unblock(id, of)
        {
            self.turn(node, "writable", u64::from(id.0), &[], |host, _, _, _| host.writable(conn));
        }
    }

    /// Tells a host that a connection ended.
    fn end_conn(&mut self, node: NodeId, id: LinkId, conn: ConnId, why: CloseReason) {
        let text = format!("{why:?}");
        self.turn(node, "closed", u64::from(id.0), text.as_bytes(), |host, now, shell, _| {
            shell.conns.remove(&conn);
            shell.tails.remove(&conn);
            shell.ended.push(conn);
            host.closed(now, conn, why);
        });
    }
}

fn endpoint(unix: bool, node: NodeId, port: u16) -> Endpoint {
    if unix {
        Endpoint::Unix { uid: Some(1000), pid: Some(node.number() + 100) }
    } else {
        Endpoint::Tcp(node.at(port))
    }
}
