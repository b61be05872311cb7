//! The pairing code: eight random bytes that two people can read to each other, and the key that both derive.

use alloc::string::String;
use core::fmt;

use sha2::{Digest, Sha256};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::secret::{Key, decode_hex, encode_hex};

/// Eight secret bytes P, shown as `xxxx-xxxx-xxxx-xxxx`.
///
/// The key is P followed by bytes 8 to 32 of SHA-256(P): it is no stronger than P's 64 bits, so a code is used once
/// and soon. Wiped when dropped; `Debug` shows none of it.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct PairingCode([u8; Self::BYTES]);

impl PairingCode {
    /// Length of P, in bytes.
    pub const BYTES: usize = 8;

    /// A code from bytes that the caller drew at random.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Reads what a person typed: every character that is no hex digit is skipped, case does not matter, and exactly
    /// 16 digits must be left.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = Zeroizing::new([0_u8; Self::BYTES]);
        let mut digits = 0;
        for digit in text.chars().filter_map(|c| c.to_digit(16)) {
            let byte = bytes.get_mut(digits / 2)?;
            *byte = *byte << 4 | digit as u8;
            digits += 1;
        }
        (digits == 2 * Self::BYTES).then_some(Self(*bytes))
    }

    /// Reads exactly 16 hex digits of either case and nothing else, which is the form inside a link.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = Zeroizing::new([0; Self::BYTES]);
        decode_hex(text, &mut *bytes).then_some(Self(*bytes))
    }

    /// The key that both ends derive from this code.
    #[must_use]
    pub fn key(&self) -> Key {
        let mut bytes = Zeroizing::new([0; Key::BYTES]);
        let mut digest: [u8; 32] = Sha256::digest(self.0).into();
        bytes[..Self::BYTES].copy_from_slice(&self.0);
        bytes[Self::BYTES..].copy_from_slice(&digest[Self::BYTES..]);
        digest.zeroize();
        Key::from_bytes(*bytes)
    }

    /// 16 lower-case hex digits.
    #[must_use]
    pub fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(encode_hex(&self.0))
    }

    /// The form to show: four groups of four lower-case digits.
    #[must_use]
    pub fn shown(&self) -> Zeroizing<String> {
        let hex = self.to_hex();
        let mut text = Zeroizing::new(String::with_capacity(hex.len() + 3));
        for (place, digit) in hex.chars().enumerate() {
            if place > 0 && place % 4 == 0 {
                text.push('-');
            }
            text.push(digit);
        }
        text
    }

    /// The raw bytes P.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Debug for PairingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairingCode(..)")
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use quickcheck::quickcheck;

    use super::*;

    const P: [u8; 8] = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];

    #[test]
    fn the_key_is_p_and_the_tail_of_its_hash() {
        let expected = "0123456789abcdef0cefa825d0c8e8e9532ee8a118abe7d8570762cd38be9818";
        assert_eq!(PairingCode::from_bytes(P).key().to_hex(), expected);
    }

    #[test]
    fn a_code_is_shown_in_four_groups_of_four() {
        assert_eq!(*PairingCode::from_bytes(P).shown(), "0123-4567-89ab-cdef");
    }

    #[test]
    fn what_is_no_hex_digit_is_skipped_and_case_is_ignored() {
        for text in
            ["0123-4567-89ab-cdef", "0123456789ABCDEF", " 0123 4567:89Ab_cdEf\n", "zz0123é4567/89abcdef"]
        {
            assert_eq!(PairingCode::parse(text).unwrap().as_bytes(), &P, "{text}");
        }
    }

    #[test]
    fn fifteen_or_seventeen_digits_are_no_code() {
        for text in ["", "0123-4567-89ab-cde", "0123-4567-89ab-cdef0", "no digits: xyz"] {
            assert!(PairingCode::parse(text).is_none(), "{text}");
        }
        assert!(PairingCode::from_hex("0123-4567-89ab-cdef").is_none());
    }

    #[test]
    fn debug_shows_nothing_of_a_code() {
        assert_eq!(format!("{:?}", PairingCode::from_bytes(P)), "PairingCode(..)");
    }

    quickcheck! {
        fn a_shown_code_reads_back(p: u64) -> bool {
            let code = PairingCode::from_bytes(p.to_be_bytes());
            let shown = PairingCode::parse(&code.shown()).unwrap();
            let hex = PairingCode::from_hex(&code.to_hex()).unwrap();
            shown.as_bytes() == code.as_bytes() && hex.key() == code.key()
        }

        fn no_text_makes_the_reader_panic(text: String) -> bool {
            let digits = text.chars().filter(char::is_ascii_hexdigit).count();
            PairingCode::parse(&text).is_some() == (digits == 16)
        }
    }
}
