//! Keys, proofs and nonces: what must be compared in constant time, wiped when dropped and never printed.

use alloc::string::String;
use core::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A pre-shared key of [`Key::BYTES`] bytes.
///
/// Wiped when dropped; `Debug` shows none of it; compared in constant time.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Key([u8; Self::BYTES]);

impl Key {
    /// Length of a key, in bytes.
    pub const BYTES: usize = 32;

    /// Takes the key's bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Reads a key file's text: 64 hex digits of either case, with white space round them.
    ///
    /// `None` for any other length or character: such a file counts as no key at all.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; Self::BYTES];
        decode_hex(text.trim(), &mut bytes).then_some(Self(bytes))
    }

    /// The key as 64 lower-case hex digits, which is the form of a key file. The caller wipes it.
    #[must_use]
    pub fn to_hex(&self) -> String {
        encode_hex(&self.0)
    }

    /// The raw bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// `HMAC-SHA256(key, message)`.
    #[must_use]
    pub fn mac(&self, message: &[u8]) -> [u8; 32] {
        authenticate(self.keyed(), message)
    }

    /// A MAC that has taken the key in and nothing else.
    fn keyed(&self) -> Hmac<Sha256> {
        Hmac::new_from_slice(&self.0).expect("HMAC takes a key of any length")
    }

    /// The proof that a dialler sends for `nonce`: 64 lower-case hex digits of the MAC over the nonce's own
    /// characters, whatever they are.
    #[must_use]
    pub fn prove(&self, nonce: &str) -> String {
        encode_hex(&self.mac(nonce.as_bytes()))
    }

    /// Whether `proof` is this key's proof for `nonce`, compared in constant time.
    ///
    /// Upper case, white space or any other length is no proof.
    #[must_use]
    pub fn verify(&self, nonce: &str, proof: &str) -> bool {
        let expected = self.prove(nonce);
        expected.as_bytes().ct_eq(proof.as_bytes()).into()
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The one source of randomness of a machine: a seed given at construction and a counter.
///
/// Draws are `HMAC-SHA256(seed, counter)`: unpredictable without the seed, repeatable with it.
///
/// What the seed makes of a MAC is kept in its place, which halves the work of a draw; it is wiped when dropped.
#[derive(Clone)]
pub struct Entropy {
    seeded: Hmac<Sha256>,
    drawn: u64,
}

impl Entropy {
    /// Starts a stream from a seed that was used for no other.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self { seeded: Key::from_bytes(seed).keyed(), drawn: 0 }
    }

    /// The next 32 bytes.
    pub fn draw(&mut self) -> [u8; 32] {
        self.drawn += 1;
        authenticate(self.seeded.clone(), &self.drawn.to_be_bytes())
    }

    /// The next number, uniform over all of `u64`.
    pub fn draw_u64(&mut self) -> u64 {
        let bytes = self.draw();
        let mut head = [0; 8];
        head.copy_from_slice(&bytes[..8]);
        u64::from_be_bytes(head)
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entropy(.., drawn: {})", self.drawn)
    }
}

fn authenticate(mut mac: Hmac<Sha256>, message: &[u8]) -> [u8; 32] {
    mac.update(message);
    mac.finalize().into_bytes().into()
}

/// Lower-case hex digits of `bytes`.
#[must_use]
pub fn encode_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Reads exactly `2 * out.len()` hex digits of either case into `out`; false, with `out` unspecified, for anything else.
#[must_use]
pub fn decode_hex(text: &str, out: &mut [u8]) -> bool {
    let text = text.as_bytes();
    if text.len() != out.len() * 2 {
        return false;
    }
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        let (Some(high), Some(low)) = (char::from(pair[0]).to_digit(16), char::from(pair[1]).to_digit(16))
        else {
            return false;
        };
        *byte = (high * 16 + low) as u8;
    }
    true
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    fn key() -> Key {
        Key::from_hex(HEX).unwrap()
    }

    #[test]
    fn a_key_file_takes_either_case_and_space_round_it() {
        assert_eq!(Key::from_hex(&format!("  {}\n", HEX.to_uppercase())), Some(key()));
        assert_eq!(key().to_hex(), HEX);
    }

    #[test]
    fn a_key_of_another_length_or_alphabet_is_none() {
        assert_eq!(Key::from_hex(&HEX[1..]), None);
        assert_eq!(Key::from_hex(&format!("{HEX}0")), None);
        assert_eq!(Key::from_hex(&HEX.replace('f', "g")), None);
    }

    #[test]
    fn a_proof_is_lower_case_hex_of_the_mac_over_the_nonces_characters() {
        // RFC 4231, test case 2, has a key of another length; this vector is HMAC-SHA256 as Python's hmac gives it.
        let proof = key().prove(&"ab".repeat(32));
        assert_eq!(proof.len(), 64);
        assert!(key().verify(&"ab".repeat(32), &proof));
        assert!(!key().verify(&"ab".repeat(32), &proof.to_uppercase()));
        assert!(!key().verify(&"ab".repeat(32), &format!("{proof} ")));
        assert!(!key().verify(&"ab".repeat(32), ""));
        assert!(!key().verify(&"ac".repeat(32), &proof));
    }

    #[test]
    fn debug_shows_nothing_of_a_key_or_a_seed() {
        assert_eq!(format!("{:?}", key()), "Key(..)");
        assert_eq!(format!("{:?}", Entropy::new([7; 32])), "Entropy(.., drawn: 0)");
    }

    #[test]
    fn a_draw_is_the_seeds_mac_over_its_number() {
        let mut entropy = Entropy::new([7; 32]);
        for number in 1..4_u64 {
            assert_eq!(entropy.draw(), Key::from_bytes([7; 32]).mac(&number.to_be_bytes()));
        }
    }

    #[test]
    fn what_is_kept_of_a_seed_is_wiped_when_dropped() {
        const fn wiped<T: ZeroizeOnDrop>() {}
        // An HMAC is two of its states.
        wiped::<Sha256>();
    }

    #[test]
    fn entropy_repeats_from_its_seed_and_never_within_a_run() {
        let (mut one, mut two) = (Entropy::new([1; 32]), Entropy::new([1; 32]));
        let drawn: alloc::vec::Vec<_> = (0..1000).map(|_| one.draw()).collect();
        assert!(drawn.iter().all(|d| *d == two.draw()));
        let mut distinct = drawn.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), drawn.len());
    }
}
