//! Invites: an address and a pairing code in one piece of text that a person can pass on.
//!
//! Two forms are spoken, a link (`cctl://<peer id>@<ip:port>/k/<16 hex>`) and a relay code (21 base32 characters).
//! Word phrases and hive links are recognised and refused by name, so that nobody hunts for a typing mistake.

mod code;

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::net::SocketAddr;

use zeroize::Zeroizing;

use super::pairing::PairingCode;
use crate::text::PeerId;

/// The port a relay listens on unless told otherwise.
pub const DEFAULT_PORT: u16 = 9847;

const SCHEME: &str = "cctl://";
const PHRASE_WORDS: usize = 13;

/// What an invite says, whichever form it came in.
#[derive(Clone, Debug)]
pub struct Invite {
    /// The inviting peer's id; a relay code does not carry it.
    pub peer: Option<PeerId>,
    /// Where the inviting peer listens.
    pub addr: SocketAddr,
    /// The secret: its key is the one that the inviting peer holds as pending.
    pub code: PairingCode,
}

impl Invite {
    /// Reads a link or a relay code, telling them apart by their shape alone.
    ///
    /// # Errors
    /// Names what the text was taken for and what is wrong with it; never repeats any of the text.
    pub fn parse(text: &str) -> Result<Self, InviteError> {
        let text = text.trim();
        if let Some(rest) = text.strip_prefix(SCHEME) {
            parse_link(rest)
        } else if is_phrase(text) {
            Err(InviteError::Phrase)
        } else {
            let (addr, code) = code::parse(text)?;
            Ok(Self { peer: None, addr, code })
        }
    }
}

/// Writes the link of an invite. `None` where it could not be followed: port 0, or an address that stands for every
/// interface.
#[must_use]
pub fn mint_link(peer: &PeerId, addr: SocketAddr, code: &PairingCode) -> Option<Zeroizing<String>> {
    let reachable = addr.port() != 0 && !addr.ip().is_unspecified();
    reachable.then(|| Zeroizing::new(format!("{SCHEME}{peer}@{addr}/k/{}", code.to_hex().as_str())))
}

/// Writes the relay code of an invite, in seven groups of three characters.
///
/// `None` where a code would decode to another address: anything but IPv4, ports outside 9847..=10102, and 9975,
/// whose port byte already means 9847. The link serves those.
#[must_use]
pub fn mint_code(addr: SocketAddr, code: &PairingCode) -> Option<Zeroizing<String>> {
    code::mint(addr, code)
}

/// Why a text is no invite that this node can use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InviteError {
    /// Thirteen words: a word phrase, whose table this node does not carry.
    Phrase,
    /// A link into a hive, not to a relay.
    HiveLink,
    /// A pairing code, which holds no address.
    PairingCode,
    /// A link without its `@`, or without `/k/` and what follows.
    LinkShape,
    /// A link whose peer id breaks the rule for peer ids.
    LinkPeer,
    /// A link whose address is no literal `ip:port`, or one that nobody can dial.
    LinkAddress,
    /// A link whose key is not 16 hex digits.
    LinkKey,
    /// A relay code with a letter or digit outside `A-Z 2-7`.
    CodeCharacter,
    /// A relay code of another length than 21 characters.
    CodeLength,
    /// A relay code whose spare bit is set or whose address nobody can dial: mistyped.
    CodeMistyped,
}

impl fmt::Display for InviteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Phrase => {
                "word phrases are not understood here; ask for the link or the relay code of the same invite"
            }
            Self::HiveLink => "this is a hive link; it joins a hive, not a relay",
            Self::PairingCode => "this is a pairing code, which holds no address; it is for `accept`",
            Self::LinkShape => "the link is not of the form cctl://PEER@IP:PORT/k/KEY",
            Self::LinkPeer => "the link's peer id is not 1 to 128 of A-Z a-z 0-9 - _",
            Self::LinkAddress => {
                "the link's address is not a literal IP:PORT that can be dialled (IPv6 goes in brackets)"
            }
            Self::LinkKey => "the link's key is not 16 hex digits",
            Self::CodeCharacter => "a relay code has only the letters A to Z and the digits 2 to 7",
            Self::CodeLength => "a relay code has 21 characters, in 7 groups of 3",
            Self::CodeMistyped => "the relay code does not decode to an address; a character is mistyped",
        })
    }
}

impl core::error::Error for InviteError {}

fn parse_link(rest: &str) -> Result<Invite, InviteError> {
    if rest.starts_with("hive/") {
        return Err(InviteError::HiveLink);
    }
    let (place, key) = rest.split_once("/k/").ok_or(InviteError::LinkShape)?;
    let (peer, addr) = place.split_once('@').ok_or(InviteError::LinkShape)?;
    let peer = PeerId::parse(peer).ok_or(InviteError::LinkPeer)?;
    let addr: SocketAddr = addr.parse().map_err(|_| InviteError::LinkAddress)?;
    if addr.port() == 0 || addr.ip().is_unspecified() {
        return Err(InviteError::LinkAddress);
    }
    let code = PairingCode::from_hex(key).ok_or(InviteError::LinkKey)?;
    Ok(Invite { peer: Some(peer), addr, code })
}

/// Thirteen dash-separated segments, all of letters. A relay code of letters only has seven.
fn is_phrase(text: &str) -> bool {
    let words = text.split('-');
    words.clone().count() == PHRASE_WORDS
        && words.into_iter().all(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphabetic()))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use core::net::{Ipv4Addr, Ipv6Addr};

    use quickcheck::{TestResult, quickcheck};

    use super::*;

    const P: [u8; 8] = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
    const LINK: &str = "cctl://build-2@192.168.1.20:9847/k/0123456789abcdef";
    const CODE: &str = "YCU-ACF-EAA-ERU-KZ4-JVP-G66";

    fn id(text: &str) -> PeerId {
        PeerId::parse(text).unwrap()
    }

    fn error(text: &str) -> InviteError {
        Invite::parse(text).unwrap_err()
    }

    #[test]
    fn link_and_code_of_one_invite_derive_one_key() {
        let (link, code) = (Invite::parse(LINK).unwrap(), Invite::parse(CODE).unwrap());
        assert_eq!(link.addr, code.addr);
        assert_eq!(link.code.key(), code.code.key());
        assert_eq!(
            link.code.key().to_hex(),
            "0123456789abcdef0cefa825d0c8e8e9532ee8a118abe7d8570762cd38be9818"
        );
        assert_eq!(link.peer, Some(id("build-2")));
        assert_eq!(code.peer, None);
        let secret = PairingCode::from_bytes(P);
        assert_eq!(mint_link(&id("build-2"), link.addr, &secret).unwrap().as_str(), LINK);
        assert_eq!(mint_code(link.addr, &secret).unwrap().as_str(), CODE);
    }

    #[test]
    fn an_ipv6_address_stands_in_brackets() {
        let addr = SocketAddr::from((Ipv6Addr::LOCALHOST, 9900));
        let link = mint_link(&id("a"), addr, &PairingCode::from_bytes(P)).unwrap();
        assert_eq!(link.as_str(), "cctl://a@[::1]:9900/k/0123456789abcdef");
        assert_eq!(Invite::parse(&link).unwrap().addr, addr);
        assert_eq!(error("cctl://a@::1:9900/k/0123456789abcdef"), InviteError::LinkAddress);
    }

    #[test]
    fn a_link_is_refused_part_by_part() {
        for (text, expected) in [
            ("cctl://", InviteError::LinkShape),
            ("cctl://a@1.2.3.4:5", InviteError::LinkShape),
            ("cctl://1.2.3.4:5/k/0123456789abcdef", InviteError::LinkShape),
            ("cctl://../x@1.2.3.4:5/k/0123456789abcdef", InviteError::LinkPeer),
            ("cctl://_pending@1.2.3.4:5/k/0123456789abcdef", InviteError::LinkPeer),
            ("cctl://@1.2.3.4:5/k/0123456789abcdef", InviteError::LinkPeer),
            ("cctl://a@host.example:5/k/0123456789abcdef", InviteError::LinkAddress),
            ("cctl://a@1.2.3.4/k/0123456789abcdef", InviteError::LinkAddress),
            ("cctl://a@1.2.3.4:0/k/0123456789abcdef", InviteError::LinkAddress),
            ("cctl://a@0.0.0.0:5/k/0123456789abcdef", InviteError::LinkAddress),
            ("cctl://a@1.2.3.4:5/k/0123456789abcde", InviteError::LinkKey),
            ("cctl://a@1.2.3.4:5/k/0123456789abcdefg", InviteError::LinkKey),
        ] {
            assert_eq!(error(text), expected, "{text}");
        }
    }

    #[test]
    fn a_hive_link_is_refused_by_name() {
        assert_eq!(error("cctl://hive/hv_1a2b3c?a=p@1.2.3.4:5&k=0123456789abcdef"), InviteError::HiveLink);
        assert_eq!(Invite::parse("cctl://hive@1.2.3.4:5/k/0123456789abcdef").unwrap().peer, Some(id("hive")));
    }

    #[test]
    fn thirteen_words_are_a_phrase_and_refused_by_name() {
        assert_eq!(error(&["Xyz"; 13].join("-")), InviteError::Phrase);
        assert!(InviteError::Phrase.to_string().contains("link or the relay code"));
        assert_eq!(error(&["xyz"; 12].join("-")), InviteError::CodeLength);
        assert_eq!(error(&["xyz"; 14].join("-")), InviteError::CodeLength);
    }

    #[test]
    fn a_code_of_letters_only_is_no_phrase() {
        let code = mint_code(SocketAddr::from(([10, 0, 0, 7], 9848)), &PairingCode::from_bytes([0; 8]));
        let code = code.unwrap();
        assert!(code.chars().all(|c| c.is_ascii_alphabetic() || c == '-'), "{}", code.as_str());
        assert_eq!(Invite::parse(&code).unwrap().addr.port(), 9848);
    }

    #[test]
    fn a_pairing_code_is_told_apart() {
        assert_eq!(error("0123-4567-89ab-cdef"), InviteError::PairingCode);
    }

    #[test]
    fn a_link_that_nobody_could_follow_is_not_minted() {
        let secret = PairingCode::from_bytes(P);
        assert!(mint_link(&id("a"), SocketAddr::from(([0, 0, 0, 0], 9847)), &secret).is_none());
        assert!(mint_link(&id("a"), SocketAddr::from(([1, 2, 3, 4], 0)), &secret).is_none());
    }

    quickcheck! {
        fn what_is_minted_decodes_to_the_same(ip: u32, port: u16, p: u64, kind: u8) -> TestResult {
            let ip = Ipv4Addr::from(ip);
            let addr = match kind % 3 {
                0 => SocketAddr::from((ip.to_ipv6_mapped(), port)),
                1 => SocketAddr::from((ip, port)),
                _ => SocketAddr::from((ip, DEFAULT_PORT + port % 256)),
            };
            let secret = PairingCode::from_bytes(p.to_be_bytes());
            let minted = [mint_link(&id("p-1"), addr, &secret), mint_code(addr, &secret)];
            let minted: Vec<_> = minted.into_iter().flatten().collect();
            if minted.is_empty() {
                return TestResult::discard();
            }
            TestResult::from_bool(minted.iter().all(|text| {
                let read = Invite::parse(text).unwrap();
                read.addr == addr && read.code.key() == secret.key()
            }))
        }

        fn no_text_makes_the_reader_panic(text: String) -> bool {
            let link = format!("{SCHEME}{text}");
            let _ = (Invite::parse(&text), Invite::parse(&link));
            true
        }
    }
}
