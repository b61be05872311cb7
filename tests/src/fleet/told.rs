//! What a relay told, as a short line each.

use relay_core::peer::{Event, Message};

/// One event as words: `up PEER inbound`, `down PEER Silent`, `refused PEER WrongProof`, `left out COUNT`, `message PEER KIND`,
/// `unknown PEER TYPE`, `dial failed PEER Denied`, `paired PEER`, `lease granted ID`, `not stored PEER Full`.
pub(super) fn line(event: &Event) -> String {
    let anybody = "-";
    match event {
        Event::LinkUp(view) => format!("up {} {}", view.peer, view.direction.as_str()),
        Event::LinkDown { peer, reason } => format!("down {peer} {reason:?}"),
        Event::HandshakeFailed { claimed, reason, .. } => {
            format!("refused {} {reason:?}", claimed.as_ref().map_or(anybody, |peer| peer.as_str()))
        }
        Event::HandshakesLeftOut(left_out) => format!("left out {}", left_out.count),
        Event::DialFailed { peer, reason, .. } => {
            format!("dial failed {} {reason:?}", peer.as_ref().map_or(anybody, |peer| peer.as_str()))
        }
        Event::Message(Message { peer, kind, one_shot, repeated, .. }) => {
            let how = match (one_shot, repeated) {
                (false, false) => "",
                (false, true) => " again",
                (true, false) => " one-shot",
                (true, true) => " one-shot again",
            };
            format!("message {peer} {kind}{how}")
        }
        Event::UnknownType { peer, msg_type } => format!("unknown {peer} {msg_type}"),
        Event::Paired { peer } => format!("paired {peer}"),
        Event::Lease(change) => format!("lease {} {}", change.lapse.as_str(), change.id),
        Event::Journal { failing } => format!("journal {}", if *failing { "failing" } else { "working" }),
        Event::NotStored { peer, error } => format!("not stored {peer} {error:?}"),
        other => format!("{other:?}"),
    }
}
