//! The relay code: 13 bytes (four IPv4 octets, a port byte, the eight bytes of the pairing code) in base32.
//!
//! Base32 is RFC 4648's without padding: 21 characters carry 105 bits, and the last, spare one is zero.

use alloc::string::String;
use core::net::{Ipv4Addr, SocketAddr};

use zeroize::Zeroizing;

use super::{DEFAULT_PORT, InviteError, PairingCode};

const BYTES: usize = 4 + 1 + PairingCode::BYTES;
const CHARACTERS: usize = 21;
const GROUP: usize = 3;
const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// The port byte that means the default port; every other means that many ports above it.
const DEFAULT_PORT_BYTE: u8 = 128;

pub(super) fn mint(addr: SocketAddr, code: &PairingCode) -> Option<Zeroizing<String>> {
    let SocketAddr::V4(addr) = addr else {
        return None;
    };
    if addr.ip().is_unspecified() {
        return None;
    }
    let mut bytes = Zeroizing::new([0; BYTES]);
    bytes[..4].copy_from_slice(&addr.ip().octets());
    bytes[4] = port_byte(addr.port())?;
    bytes[5..].copy_from_slice(code.as_bytes());
    Some(encode(&bytes))
}

pub(super) fn parse(text: &str) -> Result<(SocketAddr, PairingCode), InviteError> {
    let bytes = decode(text)?;
    let ip = Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]);
    if ip.is_unspecified() {
        return Err(InviteError::CodeMistyped);
    }
    let mut secret = Zeroizing::new([0; PairingCode::BYTES]);
    secret.copy_from_slice(&bytes[5..]);
    Ok((SocketAddr::from((ip, port_of(bytes[4]))), PairingCode::from_bytes(*secret)))
}

/// The byte for a port, where one decodes back to it.
fn port_byte(port: u16) -> Option<u8> {
    if port == DEFAULT_PORT {
        return Some(DEFAULT_PORT_BYTE);
    }
    let above = u8::try_from(port.checked_sub(DEFAULT_PORT)?).ok()?;
    (above != DEFAULT_PORT_BYTE).then_some(above)
}

fn port_of(byte: u8) -> u16 {
    if byte == DEFAULT_PORT_BYTE { DEFAULT_PORT } else { DEFAULT_PORT + u16::from(byte) }
}

fn encode(bytes: &[u8; BYTES]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(CHARACTERS + CHARACTERS / GROUP));
    for place in 0..CHARACTERS {
        if place > 0 && place % GROUP == 0 {
            text.push('-');
        }
        let (byte, offset) = (place * 5 / 8, place * 5 % 8);
        let low = bytes.get(byte + 1).copied().unwrap_or(0);
        let window = u16::from_be_bytes([bytes[byte], low]);
        text.push(char::from(ALPHABET[usize::from(window >> (11 - offset) & 31)]));
    }
    text
}

fn decode(text: &str) -> Result<Zeroizing<[u8; BYTES]>, InviteError> {
    if text.chars().filter(|c| c.is_alphanumeric()).count() != CHARACTERS {
        let pairing = PairingCode::parse(text).is_some();
        return Err(if pairing { InviteError::PairingCode } else { InviteError::CodeLength });
    }
    let mut bytes = Zeroizing::new([0; BYTES]);
    let mut held: u16 = 0;
    let mut bits = 0;
    let mut filled = 0;
    for character in text.chars().filter(|c| c.is_alphanumeric()) {
        let value = value_of(character).ok_or(InviteError::CodeCharacter)?;
        held = held << 5 | u16::from(value);
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes[filled] = (held >> bits) as u8;
            held &= (1 << bits) - 1;
            filled += 1;
        }
    }
    // 21 characters fill 13 bytes and leave one bit.
    if held == 0 { Ok(bytes) } else { Err(InviteError::CodeMistyped) }
}

fn value_of(character: char) -> Option<u8> {
    match character.to_ascii_uppercase() {
        letter @ 'A'..='Z' => Some(letter as u8 - b'A'),
        digit @ '2'..='7' => Some(digit as u8 - b'2' + 26),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;

    const P: [u8; 8] = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];

    fn mint_at(ip: [u8; 4], port: u16) -> Option<Zeroizing<String>> {
        mint(SocketAddr::from((ip, port)), &PairingCode::from_bytes(P))
    }

    #[test]
    fn codes_are_the_base32_of_thirteen_bytes() {
        for (ip, port, code) in [
            ([192, 168, 1, 20], 9847, "YCU-ACF-EAA-ERU-KZ4-JVP-G66"),
            ([10, 0, 0, 7], 9848, "BIA-AAB-YBA-ERU-KZ4-JVP-G66"),
            ([203, 0, 113, 9], 10102, "ZMA-HCC-P7A-ERU-KZ4-JVP-G66"),
        ] {
            assert_eq!(mint_at(ip, port).unwrap().as_str(), code);
            assert_eq!(parse(code).unwrap().0, SocketAddr::from((ip, port)));
        }
    }

    #[test]
    fn a_code_is_minted_only_where_it_decodes_to_the_right_port() {
        let minted = (0..=u16::MAX).filter(|port| mint_at([10, 0, 0, 7], *port).is_some());
        assert!(minted.eq((9847..=10102).filter(|port| *port != 9975)));
    }

    #[test]
    fn no_code_is_minted_for_ipv6_or_for_every_interface() {
        let v6 = SocketAddr::from((core::net::Ipv6Addr::LOCALHOST, 9847));
        assert!(mint(v6, &PairingCode::from_bytes(P)).is_none());
        assert!(mint_at([0, 0, 0, 0], 9847).is_none());
    }

    #[test]
    fn case_and_punctuation_do_not_matter() {
        let code = mint_at([10, 0, 0, 7], 9848).unwrap();
        let plain = code.replace('-', "").to_lowercase();
        let odd = code.replace('-', " . ");
        for text in [plain.as_str(), odd.as_str()] {
            assert_eq!(parse(text).unwrap().0, SocketAddr::from(([10, 0, 0, 7], 9848)), "{text}");
        }
    }

    #[test]
    fn a_mistyped_code_is_refused() {
        let code = mint_at([10, 0, 0, 7], 9848).unwrap();
        assert_eq!(parse(&code[1..]).unwrap_err(), InviteError::CodeLength);
        assert_eq!(parse(&code.replacen('A', "1", 1)).unwrap_err(), InviteError::CodeCharacter);
        assert_eq!(parse(&code.replacen('A', "é", 1)).unwrap_err(), InviteError::CodeCharacter);
        let mut spare = String::from(&code[..code.len() - 1]);
        spare.push('B');
        assert_eq!(parse(&spare).unwrap_err(), InviteError::CodeMistyped);
        assert_eq!(parse(&"A".repeat(21)).unwrap_err(), InviteError::CodeMistyped);
        assert_eq!(parse("").unwrap_err(), InviteError::CodeLength);
    }

    quickcheck! {
        fn every_thirteen_bytes_read_back(head: (u32, u8), p: u64) -> bool {
            let mut bytes = [0; BYTES];
            bytes[..4].copy_from_slice(&head.0.to_be_bytes());
            bytes[4] = head.1;
            bytes[5..].copy_from_slice(&p.to_be_bytes());
            *decode(&encode(&bytes)).unwrap() == bytes
        }
    }
}
