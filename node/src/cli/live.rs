//! A list that is shown again and again: redrawn on a terminal, else what changed.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use super::Context;
use crate::failure::Failure;

/// How long a change of what no event tells may take to be shown.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// One thing of the list: its name, its rows, what of it counts as a change, and its JSON object.
pub(super) struct Item {
    pub(super) id: String,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) changes: String,
    pub(super) object: serde_json::Value,
}

/// When to look again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pace {
    /// Whenever the node that runs here tells something, and after a while.
    WithEvents,
    /// So often, whether a node runs here or not.
    Alone(Duration),
}

/// Shows what `look` finds, under a heading where there is one, until the node that runs here ends or nobody reads any more.
pub(super) fn watch(
    heading: Option<&[&str]>,
    pace: Pace,
    context: &mut Context<'_>,
    mut look: impl FnMut(&mut Context<'_>) -> Result<Vec<Item>, Failure>,
) -> Result<(), Failure> {
    let mut events = match (pace, context.serve()?) {
        (Pace::Alone(_), _) => None,
        (Pace::WithEvents, Some(client)) => Some(client.watch()?),
        (Pace::WithEvents, None) => {
            return Err(Failure::refused(
                "relay serve is not running here, so nothing changes",
                "Start it: relay serve. Or leave --watch out.",
            ));
        }
    };
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    while context.out.is_open() {
        let items = look(context)?;
        let gone: Vec<_> =
            shown.keys().filter(|id| items.iter().all(|item| item.id != **id)).cloned().collect();
        let out = &mut context.out;
        if out.is_json() || !out.is_aligned() {
            for item in items.iter().filter(|item| shown.get(&item.id) != Some(&item.changes)) {
                if out.is_json() { out.object(&item.object) } else { out.rows(&item.rows) }
            }
            for id in &gone {
                if out.is_json() {
                    out.object(&serde_json::json!({"id": id, "gone": true}))
                } else {
                    out.line(&format!("{id}\tgone"))
                }
            }
        } else {
            out.clear();
            let rows = items.iter().flat_map(|item| item.rows.clone()).collect();
            match heading {
                Some(heading) => out.table(heading, rows),
                None => out.rows(&rows),
            }
        }
        shown = items.into_iter().map(|item| (item.id, item.changes)).collect();
        match (&mut events, pace) {
            (Some(events), _) => {
                events.next_within(LOOK_AGAIN)?;
                // What comes at once is shown at once.
                while events.next_within(Duration::from_millis(20))?.is_some() {}
            }
            (None, Pace::Alone(every)) => thread::sleep(every),
            (None, Pace::WithEvents) => return Ok(()),
        }
    }
    Ok(())
}
