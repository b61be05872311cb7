//! The mio driver.

use std::io;

use relay_core::journal::Seq;
use relay_mio::{Events, Handle, Listener, Options};

use super::Rig;
use crate::probe::{Probe, Seen};

/// The mio driver.
#[derive(Clone, Copy, Debug)]
pub struct Mio;

impl Rig for Mio {
    fn name(&self) -> &'static str {
        "mio"
    }

    fn start(
        &self,
        probe: Probe,
        newest: Seq,
        listeners: Vec<Listener>,
        options: Options,
    ) -> io::Result<(Handle<Probe>, Events<Seen>)> {
        relay_mio::start(probe, newest, listeners, options)
    }
}
