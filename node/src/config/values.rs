//! One key's value at a time: checked on its way in, and given back as JSON.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use relay_core::message::{Feature, FeatureSet};
use relay_core::peer::Settings;
use relay_core::peer::invite::DEFAULT_PORT;
use relay_core::text::PeerId;
use serde_json::{Value, json};
use toml::Value as Toml;

use crate::home::peer_id;

use super::{Config, Level, LogFormat, Runtime, unknown};

/// Most addresses that are told to peers.
const MAX_ADVERTISED: usize = 6;

/// Most addresses to listen on.
const MAX_LISTEN: usize = 16;

const RUNTIMES: [(&str, Runtime); 2] = [("smol", Runtime::Smol), ("mio", Runtime::Mio)];
const LEVELS: [(&str, Level); 5] = [
    ("error", Level::Error),
    ("warn", Level::Warn),
    ("info", Level::Info),
    ("debug", Level::Debug),
    ("trace", Level::Trace),
];
const FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];

/// Reads an address to listen on: `IP:PORT`, or an IP alone for the default port.
///
/// # Errors
/// A line for people.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, DEFAULT_PORT)))
        .map_err(|_| format!("{text:?} is no IP:PORT (IPv6 goes in brackets, host names do not go)"))
}

/// Reads an address that others are to dial: a literal `IP:PORT` of one machine.
///
/// # Errors
/// A line for people.
pub fn reachable_address(text: &str) -> Result<SocketAddr, String> {
    let addr = text
        .parse::<SocketAddr>()
        .map_err(|_| format!("{text:?} is no IP:PORT (IPv6 goes in brackets, host names do not go)"))?;
    if addr.port() == 0 || addr.ip().is_unspecified() || addr.ip().is_multicast() {
        return Err(format!("{text:?} cannot be dialled: it names no one machine and port"));
    }
    Ok(addr)
}

/// Checks a value and stores it. `name` is one of [`super::KEYS`].
pub(super) fn set(config: &mut Config, name: &'static str, value: &Toml) -> Result<(), String> {
    match name {
        "listen" => config.listen = listen(value)?,
        "advertise" => config.advertise = advertise(value)?,
        "runtime" => config.runtime = choice(value, &RUNTIMES)?,
        "heartbeat_secs" => config.heartbeat = Duration::from_secs(number(value, 1, 300)?.into()),
        "max_peers" => config.max_peers = number(value, 1, u16::MAX)?,
        "features" => config.features = features(value)?,
        "authority" => config.authority = authority(value)?,
        "log" => config.log = choice(value, &LEVELS)?,
        "log_format" => config.log_format = choice(value, &FORMATS)?,
        other => return Err(format!("{other} has no meaning yet")),
    }
    Ok(())
}

/// A value as JSON. `name` is one of [`super::KEYS`].
pub(super) fn get(config: &Config, name: &'static str) -> Option<Value> {
    let texts = |addrs: &[SocketAddr]| addrs.iter().map(ToString::to_string).collect::<Vec<_>>();
    Some(match name {
        "listen" => json!(texts(&config.listen)),
        "advertise" => json!(texts(&config.advertise)),
        "runtime" => json!(word(config.runtime, &RUNTIMES)),
        "heartbeat_secs" => json!(config.heartbeat.as_secs()),
        "max_peers" => json!(config.max_peers),
        "features" => json!(config.features),
        "authority" => json!(config.authority.as_ref().map_or("", PeerId::as_str)),
        "log" => json!(word(config.log, &LEVELS)),
        "log_format" => json!(word(config.log_format, &FORMATS)),
        _ => return None,
    })
}

/// What is wrong with a file that is no TOML, in one line that says where.
pub(super) fn syntax(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let message: Vec<_> = error.message().split_whitespace().collect();
    format!("line {line}: {}", message.join(" "))
}

fn listen(value: &Toml) -> Result<Vec<SocketAddr>, String> {
    let one = value.as_str().map(|text| vec![text]);
    let texts = one.or_else(|| strings(value)).ok_or("expected \"IP:PORT\" or a list of them")?;
    if texts.is_empty() || texts.len() > MAX_LISTEN {
        return Err(format!("expected 1 to {MAX_LISTEN} addresses, not {}", texts.len()));
    }
    texts.into_iter().map(listen_address).collect()
}

fn advertise(value: &Toml) -> Result<Vec<SocketAddr>, String> {
    let texts = strings(value).ok_or("expected a list of \"IP:PORT\"")?;
    if texts.len() > MAX_ADVERTISED {
        return Err(format!("expected at most {MAX_ADVERTISED} addresses, not {}", texts.len()));
    }
    texts.into_iter().map(reachable_address).collect()
}

fn features(value: &Toml) -> Result<FeatureSet, String> {
    let texts = strings(value).ok_or("expected a list of feature names")?;
    let known = || Feature::ALL.into_iter().map(Feature::as_str);
    let read = |text| Feature::parse(text).ok_or_else(|| unknown("feature", text, known()));
    let named: FeatureSet = texts.into_iter().map(read).collect::<Result<_, _>>()?;
    Ok(named.intersect(Settings::FEATURES))
}

fn authority(value: &Toml) -> Result<Option<PeerId>, String> {
    let text = value.as_str().ok_or("expected a peer id")?;
    if text.is_empty() { Ok(None) } else { peer_id(text).map(Some) }
}

fn strings(value: &Toml) -> Option<Vec<&str>> {
    value.as_array()?.iter().map(Toml::as_str).collect()
}

fn number(value: &Toml, least: u16, most: u16) -> Result<u16, String> {
    let number =
        value.as_integer().and_then(|n| u16::try_from(n).ok()).filter(|n| (least..=most).contains(n));
    number.ok_or_else(|| format!("expected a whole number from {least} to {most}, not {value}"))
}

fn choice<T: Copy>(value: &Toml, choices: &[(&'static str, T)]) -> Result<T, String> {
    let chosen = value.as_str().and_then(|text| choices.iter().find(|(name, _)| *name == text));
    chosen.map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
        format!("expected one of {}, not {value}", names.join(", "))
    })
}

fn word<T: PartialEq>(value: T, choices: &[(&'static str, T)]) -> Option<&'static str> {
    choices.iter().find(|(_, choice)| *choice == value).map(|(name, _)| *name)
}
