//! A node for one question: without listeners, lock or control socket, gone when it is dropped.

use core::time::Duration;
use std::sync::Arc;

use relay_core::peer::Report;
use relay_runtime::Events;
use serde_json::value::RawValue;

use super::engine::NodeHandle;
use super::lease::keeps_none;
use super::{Desk, Keeping, Request, Setup, Status, launch};
use crate::failure::Failure;
use crate::held::Held;

/// How long a node that has answered may take to close its connections and write its files.
const GRACE: Duration = Duration::from_secs(2);

/// A node for one question.
#[derive(Debug)]
pub struct Brief {
    desk: Desk,
    handle: NodeHandle,
}

impl Brief {
    /// Starts it.
    ///
    /// # Errors
    /// The key files cannot be read, or the system refuses something.
    pub fn start(mut setup: Setup) -> Result<Self, Failure> {
        setup.listen.clear();
        setup.dial_known = false;
        let (id, runtime, keys) = (setup.id.to_string(), setup.config.runtime.as_str(), setup.home.keys());
        let held = Arc::new(Held::take(&setup.home)?);
        let (launched, events) = launch(setup, Vec::new(), &[], &held, Keeping::Nothing, &Report::default())?;
        ignore(events);
        let (runtime, pid) = (runtime.to_owned(), std::process::id());
        let status = Status { id, listen: Vec::new(), runtime, pid, command: "brief".to_owned() };
        let handle = launched.handle.clone();
        Ok(Self { desk: Desk::new(&launched, keys, held, status), handle })
    }

    /// Asks it.
    ///
    /// # Errors
    /// As for [`Desk::carry_out`]. It keeps no leases itself.
    pub fn ask(&self, request: Request) -> Result<Box<RawValue>, Failure> {
        if let Request::LeaseClaim { authority, .. }
        | Request::LeaseRelease { authority, .. }
        | Request::LeaseList { authority } = &request
        {
            let authority = authority.as_ref().or_else(|| self.desk.authority());
            if authority.is_none_or(|authority| authority.as_str() == self.desk.id()) {
                return Err(keeps_none());
            }
        }
        self.desk.carry_out(request)
    }
}

impl Drop for Brief {
    /// Waits until what it wrote is written: an answer that was given holds.
    fn drop(&mut self) {
        self.handle.shutdown(GRACE);
        let _ = self.handle.join();
    }
}

/// Nobody listens: the node drops what it tells once the queue is full, and counts it.
fn ignore<T>(events: Events<T>) {
    drop(events);
}
