//! `relay config`: the configuration as it counts.

use clap::Subcommand;
use serde::Serialize;
use serde_json::Value;

use super::Context;
use crate::config::{self, KEYS};
use crate::failure::Failure;

/// Show and check the configuration
#[derive(Clone, Copy, PartialEq, Eq, Debug, Subcommand)]
#[command(disable_help_subcommand = true, after_help = "Example:\n  relay config show")]
pub(super) enum Config {
    /// Show every key with its value and where that comes from
    #[command(after_help = "Example:\n  relay config show --template > ~/.relay/config.toml")]
    Show {
        /// Show a file instead that explains every key, to start from
        #[arg(long)]
        template: bool,
    },
    /// Check the file and list every fault in it
    #[command(after_help = "Example:\n  relay config check")]
    Check,
    /// Show which file is read
    #[command(after_help = "Example:\n  relay config path")]
    Path,
}

#[derive(Serialize)]
struct Setting<'a> {
    key: &'a str,
    value: Value,
    source: &'a str,
}

#[derive(Serialize)]
struct Template {
    template: String,
}

#[derive(Serialize)]
struct Checked<'a> {
    path: String,
    ok: bool,
    faults: &'a [String],
}

#[derive(Serialize)]
struct Place {
    path: String,
    exists: bool,
}

impl Config {
    pub(super) fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        match self {
            Self::Show { template: true } => {
                let template = config::template();
                if context.out.is_json() {
                    context.out.object(&Template { template });
                } else {
                    context.out.text(&template);
                }
                Ok(())
            }
            Self::Show { template: false } => show(context),
            Self::Check => check(context),
            Self::Path => {
                path(context);
                Ok(())
            }
        }
    }
}

fn show(context: &mut Context<'_>) -> Result<(), Failure> {
    let config = context.config()?;
    let mut rows = Vec::new();
    for key in KEYS {
        let (value, given) = config.value(key.name).expect("every documented key has a value");
        let source = if given { "file" } else { "default" };
        if context.out.is_json() {
            context.out.object(&Setting { key: key.name, value, source });
        } else {
            rows.push(vec![key.name.to_owned(), plain(&value), source.to_owned()]);
        }
    }
    if !context.out.is_json() {
        context.out.table(&["KEY", "VALUE", "SOURCE"], rows);
    }
    Ok(())
}

fn check(context: &mut Context<'_>) -> Result<(), Failure> {
    let (path, named) = &context.config_place;
    let faults = config::Config::read(path, *named).err().unwrap_or_default();
    let path = path.display().to_string();
    if context.out.is_json() {
        context.out.object(&Checked { path: path.clone(), ok: faults.is_empty(), faults: &faults });
    } else if faults.is_empty() {
        context.out.line("ok");
    } else {
        faults.iter().for_each(|fault| context.out.line(fault));
    }
    match faults.len() {
        0 => Ok(()),
        1 => Err(Failure::check(format!("{path} has a fault"), "Mend it and check again.")),
        n => Err(Failure::check(format!("{path} has {n} faults"), "Mend them and check again.")),
    }
}

fn path(context: &mut Context<'_>) {
    let place = &context.config_place.0;
    let (path, exists) = (place.display().to_string(), place.exists());
    if context.out.is_json() {
        context.out.object(&Place { path, exists });
    } else {
        context.out.line(&path);
        if !exists {
            context.out.talk("There is no such file; every key has its default.");
        }
    }
}

/// A value for people: text without quotes, a list with commas.
fn plain(value: &Value) -> String {
    if let Some(text) = value.as_str() {
        return text.to_owned();
    }
    let list = value.as_array().map(|items| items.iter().map(plain).collect::<Vec<_>>().join(", "));
    list.unwrap_or_else(|| value.to_string())
}
