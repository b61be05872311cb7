//! The smol driver.

use std::io;

use relay_core::journal::Seq;
use relay_smol::{Events, Handle, Listener, Options};

use super::Rig;
use crate::probe::{Probe, Seen};

/// The smol driver.
#[derive(Clone, Copy, Debug)]
pub struct Smol;

impl Rig for Smol {
    fn name(&self) -> &'static str {
        "smol"
    }

    fn start(
        &self,
        probe: Probe,
        newest: Seq,
        listeners: Vec<Listener>,
        options: Options,
    ) -> io::Result<(Handle<Probe>, Events<Seen>)> {
        relay_smol::start(probe, newest, listeners, options)
    }
}
