//! Memory key: 32 bytes that an operator keeps.
//!
//! It never appears in `Debug`, logs or errors, and is wiped when dropped.

pub(crate) use helmdeck_core::hex;

use aes_gcm::aead::Generate;
use helmdeck_core::Secret;
use hkdf::Hkdf;
use hmac::Hmac;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::error::{Result, StoreError};
use crate::framing::Framed;

/// Length of a key in bytes.
pub const KEY_BYTES: usize = 32;
/// Length of the id of a key in bytes.
pub(crate) const ID_BYTES: usize = 16;

/// A memory key.
pub struct MemoryKey {
    bytes: Zeroizing<[u8; KEY_BYTES]>,
    id: String,
    id_bytes: [u8; ID_BYTES],
    /// The id in seals of the first format.
    first_id: String,
}

impl MemoryKey {
    /// Returns HMAC-SHA-256 with a key of at most 64 bytes: RFC 2104 fills it up with zeros.
    pub(crate) fn mac_key(key: &[u8]) -> Hmac<Sha256> {
        let mut block = Zeroizing::new([0; 64]);
        block
            .iter_mut()
            .zip(key)
            .for_each(|(byte, key)| *byte = *key);
        <Hmac<Sha256> as hmac::KeyInit>::new(&(*block).into())
    }

    /// Parses a key: exactly 64 hex digits of either case, ignoring surrounding white space.
    ///
    /// `label` names the source of the text in errors, for example an environment variable.
    ///
    /// # Errors
    /// `MalformedKey`, which names `label` and the expected form, never the text.
    pub fn parse(label: &str, text: &str) -> Result<Self> {
        let digits = text.trim().as_bytes();
        let malformed = |what: &str| {
            StoreError::MalformedKey(format!(
                "{label} {what}; expected 64 hex digits (32 bytes), as `helmdeck key generate` makes them"
            ))
        };
        if digits.is_empty() {
            return Err(malformed("is empty"));
        }
        if digits.len() != 2 * KEY_BYTES {
            return Err(malformed(&format!("has {} characters", digits.len())));
        }
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let (Some(high), Some(low)) = (nibble(pair[0]), nibble(pair[1])) else {
                return Err(malformed("has a character that is not a hex digit"));
            };
            *byte = high << 4 | low;
        }
        Ok(Self::from_bytes(bytes))
    }

    fn from_bytes(bytes: Zeroizing<[u8; KEY_BYTES]>) -> Self {
        let (mut id, mut first_id) = ([0; ID_BYTES], [0; 8]);
        expand(
            &bytes,
            Framed::new("helmdeck/memory/key-id/v2").as_slice(),
            &mut id,
        );
        expand(
            &bytes,
            Framed::new("helmdeck/memory/key-id/v1").as_slice(),
            &mut first_id,
        );
        Self {
            bytes,
            id: hex(&id),
            id_bytes: id,
            first_id: hex(&first_id),
        }
    }

    /// Makes a new random key, as text in the form that [`MemoryKey::parse`] reads.
    ///
    /// # Errors
    /// `Unavailable` if the system cannot provide randomness.
    pub fn generate() -> Result<Secret> {
        let bytes =
            Zeroizing::new(<[u8; KEY_BYTES]>::try_generate().map_err(StoreError::unavailable)?);
        Ok(Secret::new(hex(bytes.as_slice())))
    }

    /// Returns the id: 32 hex digits, safe to show. Every seal carries it.
    ///
    /// It is a MAC of the key (the HMAC of HKDF), so that it commits a seal to its key: a seal
    /// opens under the key of its id only, and another key with the same id takes 2^128 tries to
    /// find.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the bytes of the id.
    pub(crate) const fn id_bytes(&self) -> &[u8; ID_BYTES] {
        &self.id_bytes
    }

    /// Returns the id in seals of the first format: 16 hex digits.
    pub(crate) fn first_id(&self) -> &str {
        &self.first_id
    }

    /// Derives the key of one purpose (HKDF-SHA-256, [RFC
    /// 5869](https://www.rfc-editor.org/rfc/rfc5869)).
    pub(crate) fn derive(&self, info: &Framed) -> Zeroizing<[u8; KEY_BYTES]> {
        let mut derived = Zeroizing::new([0; KEY_BYTES]);
        expand(&self.bytes, info.as_slice(), derived.as_mut_slice());
        derived
    }
}

helmdeck_core::redacted_debug!(MemoryKey, this => id = this.id);

fn expand(master: &[u8; KEY_BYTES], info: &[u8], out: &mut [u8]) {
    let expanded = Hkdf::<Sha256>::new(None, master).expand(info, out);
    // RFC 5869 allows up to 255 * 32 bytes; ours are 8, 16 and 32.
    debug_assert!(expanded.is_ok());
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    #[test]
    fn a_key_is_64_hex_digits_of_either_case() {
        let lower = MemoryKey::parse("K", KEY).unwrap();
        let upper = MemoryKey::parse("K", &format!(" {}\n", KEY.to_uppercase())).unwrap();
        assert_eq!(lower.id(), upper.id());
        assert_eq!(lower.bytes[..3], [0x00, 0x11, 0x22]);
    }

    #[test]
    fn malformed_key_error_shows_label_only() {
        for text in [
            "",
            "   ",
            "zz",
            &KEY[1..],
            &KEY.replace('a', "x"),
            &KEY.replace('a', "é"),
        ] {
            let message = MemoryKey::parse("HELMDECK_MEMORY_KEY", text)
                .unwrap_err()
                .to_string();
            assert!(message.starts_with("HELMDECK_MEMORY_KEY "), "{message}");
            assert!(message.contains("64 hex digits"), "{message}");
            assert!(
                text.trim().is_empty() || !message.contains(text.trim()),
                "{message}"
            );
        }
    }

    #[test]
    fn debug_shows_the_id_and_nothing_else() {
        let key = MemoryKey::parse("K", KEY).unwrap();
        assert_eq!(
            format!("{key:?}"),
            format!("MemoryKey {{ id: \"{}\", .. }}", key.id())
        );
        assert!(!KEY.contains(key.id()));
    }

    #[test]
    fn ids_are_known_answers() {
        let key = MemoryKey::parse("K", &"a".repeat(64)).unwrap();
        assert_eq!((key.id().len(), key.first_id().len()), (2 * ID_BYTES, 16));
        assert_eq!(
            (key.id(), key.first_id()),
            ("7b29db5d451bb75d91073a5346ef020a", "8c861caddb6ba2a3")
        );
    }

    #[test]
    fn generated_keys_parse_and_differ() {
        let (one, two) = (
            MemoryKey::generate().unwrap(),
            MemoryKey::generate().unwrap(),
        );
        assert_ne!(one.expose(), two.expose());
        assert_ne!(
            MemoryKey::parse("K", one.expose()).unwrap().id(),
            MemoryKey::parse("K", two.expose()).unwrap().id()
        );
    }
}
