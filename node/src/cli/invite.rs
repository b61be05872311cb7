//! `relay invite`: an address and a key in one piece of text.

use core::net::{IpAddr, SocketAddr};

use clap::{Args, ValueEnum};
use relay_core::peer::invite::{mint_code, mint_link};
use relay_core::text::PeerId;
use serde::Serialize;

use super::{Context, pairing};
use crate::config::reachable_address;
use crate::failure::Failure;
use crate::service::Status;

/// Invite one other machine: a link or code with this node's address and a new key
///
/// The key becomes this node's one pending key, in place of any earlier code or invite that was not used. The link
/// holds the peer id, address and key; the relay code is shorter, without the id, and is made only where it can hold
/// the address (IPv4, ports 9847 to 10102 but 9975).
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  relay invite --addr 192.168.1.20:9847")]
pub(super) struct Invite {
    /// Where the other machine reaches this one [default: the first advertise of the configuration, else what the
    /// running serve listens on, else the configuration's listen]
    #[arg(long, value_name = "IP:PORT", value_parser = reachable_address)]
    addr: Option<SocketAddr>,
    /// Show only one of both forms
    #[arg(long, value_enum)]
    format: Option<Format>,
}

/// A form of an invite.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// The link.
    Link,
    /// The relay code.
    Code,
}

#[derive(Serialize)]
struct Answer<'a> {
    id: &'a PeerId,
    addr: SocketAddr,
    link: &'a str,
    code: Option<&'a str>,
}

impl Invite {
    pub(super) fn run(self, context: &mut Context<'_>) -> Result<(), Failure> {
        let running = pairing::taker(context)?;
        let addr = match self.addr {
            Some(addr) => addr,
            None => own_address(running.as_ref(), context)?,
        };
        let id = context.identity()?;
        let secret = context.new_code()?;
        let link =
            mint_link(&id, addr, &secret).ok_or_else(|| no_address(&format!("{addr} cannot be dialled")))?;
        let code = mint_code(addr, &secret);
        let code = code.as_ref().map(|code| code.as_str());
        if self.format == Some(Format::Code) && code.is_none() {
            return Err(Failure::refused(
                format!("a relay code cannot hold {addr}: only IPv4 and ports 9847 to 10102 but 9975"),
                "Use the link: relay invite --format link.",
            ));
        }
        pairing::open(&secret, running.as_ref(), context)?;
        if addr.ip().is_loopback() {
            context
                .out
                .warn(&format!("{addr} is reached from this machine alone; relay serve --listen 0.0.0.0:9847 takes others, and --addr names another address"));
        }
        let out = &mut context.out;
        if out.is_json() {
            out.object(&Answer { id: &id, addr, link: &link, code });
            return Ok(());
        }
        match (self.format, code) {
            (Some(Format::Link), _) => out.line(&link),
            (Some(Format::Code), Some(code)) => out.line(code),
            (Some(Format::Code) | None, None) => {
                out.facts(&[("link", &link)]);
                out.talk(&format!("There is no relay code: it cannot hold {addr}."));
            }
            (None, Some(code)) => out.facts(&[("link", &link), ("code", code)]),
        }
        // Quoted: a shell takes an IPv6 address's brackets for a pattern.
        let join = match (self.format, code) {
            (Some(Format::Code), Some(code)) => format!("relay join {code}"),
            _ => format!("relay join '{}'", link.as_str()),
        };
        out.talk(&format!("On the other machine: {join}"));
        Ok(())
    }
}

/// The address to put into an invite: the first advertised one, else one that is listened on, else that of an
/// interface which a wildcard covers.
fn own_address(running: Option<&Status>, context: &mut Context<'_>) -> Result<SocketAddr, Failure> {
    let config = context.config()?;
    if let Some(addr) = config.advertise.first() {
        return Ok(*addr);
    }
    // Where a node runs, what it listens on counts: it may have been told on its command line.
    let listen = running.map_or(config.listen, |running| running.listen.clone());
    let interfaces = context.reachable_addresses()?;
    choose(&listen, &interfaces).ok_or_else(|| {
        no_address("this machine has no address to invite to: nothing but loopback, or port 0, is configured")
    })
}

fn choose(listen: &[SocketAddr], interfaces: &[IpAddr]) -> Option<SocketAddr> {
    let listen = || listen.iter().copied().filter(|addr| addr.port() != 0);
    let specific = listen().find(|addr| !addr.ip().is_unspecified() && !addr.ip().is_loopback());
    let covered = || {
        listen().filter(|addr| addr.ip().is_unspecified()).find_map(|addr| {
            // An IPv6 wildcard takes IPv4 too.
            let ip = interfaces.iter().find(|ip| addr.is_ipv6() || ip.is_ipv4())?;
            Some(SocketAddr::new(*ip, addr.port()))
        })
    };
    let loopback = || listen().find(|addr| addr.ip().is_loopback());
    specific.or_else(covered).or_else(loopback)
}

fn no_address(why: &str) -> Failure {
    Failure::refused(why, "Name the address at which the other machine reaches this one: --addr IP:PORT.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn chosen(listen: &str, interfaces: &[&str]) -> Option<String> {
        let config = Config::parse(&format!("listen = {listen}")).unwrap();
        let interfaces: Vec<_> = interfaces.iter().map(|ip| ip.parse().unwrap()).collect();
        choose(&config.listen, &interfaces).map(|addr| addr.to_string())
    }

    #[test]
    fn the_address_is_a_specific_one_that_is_listened_on_else_an_interfaces() {
        let interfaces = ["10.0.0.5", "2001:db8::5"];
        for (listen, address) in [
            (r#"["127.0.0.1:1", "0.0.0.0:2", "192.168.0.1:3"]"#, "192.168.0.1:3"),
            (r#"["127.0.0.1:1", "0.0.0.0:2"]"#, "10.0.0.5:2"),
            (r#""[::]:2""#, "10.0.0.5:2"),
            (r#""127.0.0.1:1""#, "127.0.0.1:1"),
        ] {
            assert_eq!(chosen(listen, &interfaces).as_deref(), Some(address), "{listen}");
        }
        assert_eq!(chosen(r#""[::]:2""#, &["2001:db8::5"]).as_deref(), Some("[2001:db8::5]:2"));
        assert_eq!(chosen(r#""0.0.0.0:2""#, &["2001:db8::5"]), None);
        assert_eq!(chosen(r#""0.0.0.0:0""#, &interfaces), None);
    }
}
