//! `relay identity`.

use clap::Args;
use relay_core::text::PeerId;
use serde::Serialize;

use super::Context;
use crate::failure::Failure;

/// Show this node's peer id, made on first use
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  relay identity")]
pub(super) struct Identity {}

#[derive(Serialize)]
struct Answer<'a> {
    id: &'a PeerId,
    home: String,
}

impl Identity {
    pub(super) fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        let Self {} = self;
        let id = context.identity()?;
        if context.out.is_json() {
            let home = context.home.dir().display().to_string();
            context.out.object(&Answer { id: &id, home });
        } else {
            context.out.line(id.as_str());
        }
        Ok(())
    }
}
