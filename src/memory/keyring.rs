//! Keyring: the current memory key, which seals, and previous keys, which only open.
//!
//! Every namespace and purpose has its own key, derived from the master and kept in a small bounded
//! cache. The ring hands out seals and MACs, never key bytes.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use aes_gcm::{AeadInOut, Aes256Gcm, KeyInit, Nonce};
use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::entry::{Kind, Namespace};
use crate::error::{Result, StoreError};
use crate::framing::Framed;
use crate::key::{ID_BYTES, MemoryKey, hex};
use crate::xaes::{NONCE_BYTES, Xaes256Gcm};

/// Length that a seal adds to a value, in bytes.
pub(crate) const TAG_BYTES: usize = 16;

/// Number of cached derived keys, each about 1 KiB.
const MAX_DERIVED_KEYS: usize = 2048;

/// Keyring of the memory keys. Cheap to clone; clones share the derived keys.
///
/// # Examples
/// ```
/// use helmdeck_memory::{KeyRing, MemoryKey};
///
/// let (current, previous) = (MemoryKey::generate()?, MemoryKey::generate()?);
/// let ring = KeyRing::parse(("CURRENT_KEY", current.expose()), Some(("PREVIOUS_KEYS", previous.expose())))?;
/// assert_eq!(ring.ids().next(), Some(ring.current_id()));
/// assert_eq!(ring.ids().count(), 2);
/// # Ok::<(), helmdeck_memory::StoreError>(())
/// ```
#[derive(Clone)]
pub struct KeyRing(Arc<Inner>);

struct Inner {
    /// The current key first.
    keys: Vec<MemoryKey>,
    ciphers: DerivedKeyCache<(SealedBy, Purpose), Arc<Cipher>>,
    macs: DerivedKeyCache<(usize, &'static str), Hmac<Sha256>>,
}

/// Purpose of a derived key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Row(Kind),
    Blob(&'static str),
}

/// Format of a seal. The id of the key tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// AES-256-GCM with a random nonce of 96 bits, and key ids of 64 bits. It is opened, and never
    /// made.
    First,
    /// XAES-256-GCM with a random nonce of 192 bits, and key ids of 128 bits.
    Second,
}

/// The key and the format of a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SealedBy {
    /// Position in the ring.
    index: usize,
    pub(crate) format: Format,
}

/// What seals are made with: the current key, and the second format.
const CURRENT: SealedBy = SealedBy {
    index: 0,
    format: Format::Second,
};

/// A derived key that is ready for use.
enum Cipher {
    First(Aes256Gcm),
    Second(Xaes256Gcm),
}

/// What a blob of the second format begins with. One of the first format begins with a hex digit.
const SECOND: u8 = 2;
/// Length of a nonce of the first format in bytes.
const FIRST_NONCE_BYTES: usize = 12;
/// Length of a key id in a blob of the first format: hex digits.
const FIRST_ID_BYTES: usize = 16;

impl KeyRing {
    /// Makes a keyring of parsed keys.
    #[must_use]
    pub fn new(current: MemoryKey, previous: Vec<MemoryKey>) -> Self {
        let mut keys = vec![current];
        for key in previous {
            if keys.iter().all(|known| known.id() != key.id()) {
                keys.push(key);
            }
        }
        Self(Arc::new(Inner {
            keys,
            ciphers: DerivedKeyCache::default(),
            macs: DerivedKeyCache::default(),
        }))
    }

    /// Parses a keyring: the current key, and previous keys separated by commas.
    ///
    /// Each text comes with a label for errors, such as the name of its environment variable.
    ///
    /// # Errors
    /// `MalformedKey`, which names the label and the expected form, never the text.
    pub fn parse(current: (&str, &str), previous: Option<(&str, &str)>) -> Result<Self> {
        let first = MemoryKey::parse(current.0, current.1)?;
        let rest = match previous {
            None => Vec::new(),
            Some((label, list)) => list
                .split(',')
                .enumerate()
                .map(|(index, text)| {
                    MemoryKey::parse(&format!("{label} (key {})", index + 1), text)
                })
                .collect::<Result<_>>()?,
        };
        Ok(Self::new(first, rest))
    }

    /// Returns the id of the current key, which seals.
    #[must_use]
    pub fn current_id(&self) -> &str {
        self.0.keys[0].id()
    }

    /// Returns the bytes of that id.
    pub(crate) fn current_id_bytes(&self) -> &[u8; ID_BYTES] {
        self.0.keys[CURRENT.index].id_bytes()
    }

    /// Returns the ids of all keys, current first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.keys.iter().map(MemoryKey::id)
    }

    /// Returns whether a key of the ring has an id, in seals of any format.
    #[must_use]
    pub fn knows(&self, id: &str) -> bool {
        self.find(id).is_ok()
    }

    /// Returns the key with an id, and the format of the seals that carry it.
    ///
    /// # Errors
    /// `Unreadable` if the ring has no such key.
    pub(crate) fn find(&self, id: &str) -> Result<SealedBy> {
        let of = |of: fn(&MemoryKey) -> &str| self.0.keys.iter().position(|key| of(key) == id);
        let second = of(MemoryKey::id).map(|index| SealedBy {
            index,
            format: Format::Second,
        });
        second
            .or_else(|| {
                of(MemoryKey::first_id).map(|index| SealedBy {
                    index,
                    format: Format::First,
                })
            })
            .ok_or(UNKNOWN_KEY)
    }

    /// Returns HMAC-SHA-256 over `parts` (each length-prefixed) under a derived key.
    ///
    /// The key is derived from the current key for a namespace and a purpose. Takes less than a
    /// microsecond for small parts once the key is ready.
    ///
    /// A new current key gives other MACs: names made with the old key are not found again.
    #[must_use]
    pub fn mac(&self, namespace: &Namespace, purpose: &'static str, parts: &[&[u8]]) -> [u8; 32] {
        self.mac_by(CURRENT.index, namespace, purpose, parts)
    }

    /// Returns [`KeyRing::mac`] under each key, that of the current one first.
    pub(crate) fn macs<'a>(
        &'a self,
        namespace: &'a Namespace,
        purpose: &'static str,
        parts: &'a [&'a [u8]],
    ) -> impl Iterator<Item = [u8; 32]> + 'a {
        (0..self.0.keys.len()).map(move |index| self.mac_by(index, namespace, purpose, parts))
    }

    fn mac_by(
        &self,
        index: usize,
        namespace: &Namespace,
        purpose: &'static str,
        parts: &[&[u8]],
    ) -> [u8; 32] {
        let mut mac = self.0.macs.get_or(namespace, (index, purpose), || {
            let key =
                self.0.keys[index].derive(&info("helmdeck/memory/v1/mac", namespace, purpose));
            MemoryKey::mac_key(key.as_slice())
        });
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    /// Seals bytes stored outside the store (a job's result, a kept answer) under a derived key.
    ///
    /// The key is derived for a namespace and a purpose. `bound` is not part of the result; pass
    /// the same bytes to open it.
    ///
    /// # Errors
    /// `Unavailable` if the system cannot provide randomness.
    pub fn seal_blob(
        &self,
        namespace: &Namespace,
        purpose: &'static str,
        bound: &[u8],
        plaintext: &[u8],
    ) -> Result<Vec<u8>> {
        self.seal_blob_like(None, namespace, purpose, bound, plaintext)
    }

    /// As [`KeyRing::seal_blob`], with the key of another blob if the ring has it: whoever opened
    /// that one opens this one.
    ///
    /// # Errors
    /// `Unavailable` if the system cannot provide randomness.
    pub fn seal_blob_like(
        &self,
        other: Option<&[u8]>,
        namespace: &Namespace,
        purpose: &'static str,
        bound: &[u8],
        plaintext: &[u8],
    ) -> Result<Vec<u8>> {
        let like = other
            .and_then(Blob::read)
            .and_then(|blob| self.find(&blob.key_id).ok());
        let by = SealedBy {
            index: like.map_or(CURRENT.index, |by| by.index),
            ..CURRENT
        };
        let key = &self.0.keys[by.index];
        let aad = Framed::new("helmdeck/memory/v2/blob")
            .text(key.id())
            .bytes(bound);
        let cipher = self.cipher(by, namespace, Purpose::Blob(purpose));
        let (nonce, sealed) = seal(&cipher, &aad, plaintext)?;
        Ok([&[SECOND], key.id_bytes().as_slice(), &nonce, &sealed].concat())
    }

    /// Opens the result of [`KeyRing::seal_blob`], with any key of the ring.
    ///
    /// # Errors
    /// `Unreadable` if no key of the ring sealed it for this namespace, purpose and `bound`.
    pub fn open_blob(
        &self,
        namespace: &Namespace,
        purpose: &'static str,
        bound: &[u8],
        blob: &[u8],
    ) -> Result<Vec<u8>> {
        let blob = Blob::read(blob).ok_or(SHORT)?;
        let by = self.find(&blob.key_id)?;
        if by.format != blob.format {
            return Err(ALTERED);
        }
        let domain = match by.format {
            Format::First => "helmdeck/memory/v1/blob",
            Format::Second => "helmdeck/memory/v2/blob",
        };
        let aad = Framed::new(domain).text(&blob.key_id).bytes(bound);
        open(
            &self.cipher(by, namespace, Purpose::Blob(purpose)),
            &aad,
            blob.nonce,
            blob.sealed.to_vec(),
        )
    }

    /// Seals a row's value with the current key; returns the nonce and the sealed value.
    pub(crate) fn seal_row(
        &self,
        namespace: &Namespace,
        kind: Kind,
        aad: &Framed,
        plaintext: &[u8],
    ) -> Result<(Vec<u8>, Vec<u8>)> {
        let (nonce, value) = seal(
            &self.cipher(CURRENT, namespace, Purpose::Row(kind)),
            aad,
            plaintext,
        )?;
        Ok((nonce.to_vec(), value))
    }

    /// Opens a row's value with the key that it names.
    pub(crate) fn open_row(
        &self,
        by: SealedBy,
        namespace: &Namespace,
        kind: Kind,
        aad: &Framed,
        nonce: &[u8],
        sealed: Vec<u8>,
    ) -> Result<Vec<u8>> {
        open(
            &self.cipher(by, namespace, Purpose::Row(kind)),
            aad,
            nonce,
            sealed,
        )
    }

    fn cipher(&self, by: SealedBy, namespace: &Namespace, purpose: Purpose) -> Arc<Cipher> {
        self.0.ciphers.get_or(namespace, (by, purpose), || {
            let (domain, name) = match (by.format, purpose) {
                (Format::First, Purpose::Row(kind)) => ("helmdeck/memory/v1", kind.as_str()),
                (Format::First, Purpose::Blob(name)) => ("helmdeck/memory/v1/blob", name),
                (Format::Second, Purpose::Row(kind)) => ("helmdeck/memory/v2", kind.as_str()),
                (Format::Second, Purpose::Blob(name)) => ("helmdeck/memory/v2/blob", name),
            };
            let key = self.0.keys[by.index].derive(&info(domain, namespace, name));
            Arc::new(match by.format {
                Format::First => Cipher::First(Aes256Gcm::new(&(*key).into())),
                Format::Second => Cipher::Second(Xaes256Gcm::new(&key)),
            })
        })
    }
}

/// The parts of a sealed blob, before it is opened.
struct Blob<'a> {
    format: Format,
    key_id: String,
    nonce: &'a [u8],
    sealed: &'a [u8],
}

impl<'a> Blob<'a> {
    fn read(blob: &'a [u8]) -> Option<Self> {
        let (format, id, rest, nonce_bytes) = if let [SECOND, rest @ ..] = blob {
            let (id, rest) = rest.split_at_checked(ID_BYTES)?;
            (Format::Second, hex(id), rest, NONCE_BYTES)
        } else {
            let (id, rest) = blob.split_at_checked(FIRST_ID_BYTES)?;
            (
                Format::First,
                std::str::from_utf8(id).ok()?.to_owned(),
                rest,
                FIRST_NONCE_BYTES,
            )
        };
        let (nonce, sealed) = rest.split_at_checked(nonce_bytes)?;
        Some(Self {
            format,
            key_id: id,
            nonce,
            sealed,
        })
    }
}

/// Returns the id of the key that a blob names; `None` if it is too short to be sealed.
#[must_use]
pub fn blob_key_id(blob: &[u8]) -> Option<String> {
    Blob::read(blob).map(|blob| blob.key_id)
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

const SHORT: StoreError = StoreError::Unreadable {
    reason: "too short to be sealed",
};
const UNKNOWN_KEY: StoreError = StoreError::Unreadable {
    reason: "sealed with a key that is not in the ring",
};
const ALTERED: StoreError = StoreError::Unreadable {
    reason: "altered, moved, or sealed with another key",
};

fn info(domain: &str, namespace: &Namespace, purpose: &str) -> Framed {
    Framed::new(domain)
        .text(&namespace.tenant)
        .text(&namespace.subject)
        .optional(namespace.session.as_deref())
        .text(purpose)
}

fn seal(cipher: &Cipher, aad: &Framed, plaintext: &[u8]) -> Result<([u8; NONCE_BYTES], Vec<u8>)> {
    let Cipher::Second(cipher) = cipher else {
        return Err(StoreError::Corrupt(
            "nothing is sealed in the first format".to_owned(),
        ));
    };
    let mut value = Vec::with_capacity(plaintext.len() + TAG_BYTES);
    value.extend_from_slice(plaintext);
    let nonce = cipher.seal(aad.as_slice(), &mut value)?;
    Ok((nonce, value))
}

fn open(cipher: &Cipher, aad: &Framed, nonce: &[u8], mut value: Vec<u8>) -> Result<Vec<u8>> {
    match cipher {
        Cipher::First(cipher) => {
            let nonce: [u8; FIRST_NONCE_BYTES] = nonce.try_into().map_err(|_| ALTERED)?;
            cipher
                .decrypt_in_place(&Nonce::from(nonce), aad.as_slice(), &mut value)
                .map_err(|_| ALTERED)?;
        }
        Cipher::Second(cipher) => {
            let nonce: &[u8; NONCE_BYTES] = nonce.try_into().map_err(|_| ALTERED)?;
            cipher
                .open(nonce, aad.as_slice(), &mut value)
                .map_err(|_| ALTERED)?;
        }
    }
    Ok(value)
}

/// Cache of what was derived for a namespace and a purpose: up to [`MAX_DERIVED_KEYS`] values. When
/// full, it starts anew.
struct DerivedKeyCache<P, V>(RwLock<DerivedKeys<P, V>>);

struct DerivedKeys<P, V> {
    /// A namespace has a few purposes: they are compared one by one.
    by_namespace: HashMap<Namespace, Vec<(P, V)>, ahash::RandomState>,
    count: usize,
}

impl<P, V> Default for DerivedKeys<P, V> {
    fn default() -> Self {
        Self {
            by_namespace: HashMap::default(),
            count: 0,
        }
    }
}

impl<P, V> Default for DerivedKeyCache<P, V> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<P: PartialEq, V: Clone> DerivedKeys<P, V> {
    fn get(&self, namespace: &Namespace, purpose: &P) -> Option<V> {
        let values = self.by_namespace.get(namespace)?;
        values
            .iter()
            .find(|(known, _)| known == purpose)
            .map(|(_, value)| value.clone())
    }
}

impl<P: PartialEq, V: Clone> DerivedKeyCache<P, V> {
    fn get_or(&self, namespace: &Namespace, purpose: P, make: impl FnOnce() -> V) -> V {
        if let Some(value) = self.0.read().get(namespace, &purpose) {
            return value;
        }
        let value = make();
        let mut ready = self.0.write();
        // Another thread may have made it meanwhile.
        if let Some(value) = ready.get(namespace, &purpose) {
            return value;
        }
        if ready.count >= MAX_DERIVED_KEYS {
            *ready = DerivedKeys::default();
        }
        ready.count += 1;
        ready
            .by_namespace
            .entry(namespace.clone())
            .or_default()
            .push((purpose, value.clone()));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(digit: &str) -> String {
        digit.repeat(64)
    }

    fn ring(current: &str, previous: Option<&str>) -> KeyRing {
        KeyRing::parse(
            ("K", &key(current)),
            previous.map(key).as_deref().map(|text| ("P", text)),
        )
        .unwrap()
    }

    fn alice() -> Namespace {
        Namespace::new("t", "alice", None)
    }

    #[test]
    fn previous_keys_are_parsed_with_position_of_errors() {
        let list = format!("{},{}", key("b"), key("c"));
        assert_eq!(
            KeyRing::parse(("K", &key("a")), Some(("P", &list)))
                .unwrap()
                .ids()
                .count(),
            3
        );
        let message = KeyRing::parse(("K", &key("a")), Some(("P", &format!("{list},nonsense"))))
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with("P (key 3) ") && !message.contains("nonsense"),
            "{message}"
        );
    }

    #[test]
    fn a_key_that_is_current_and_previous_counts_once() {
        assert_eq!(ring("a", Some("a")).ids().count(), 1);
    }

    #[test]
    fn macs_differ_by_every_input() {
        let ring_a = ring("a", None);
        let base = ring_a.mac(&alice(), "cache", &[b"ab", b"c"]);
        assert_eq!(
            base,
            ring("a", Some("b")).mac(&alice(), "cache", &[b"ab", b"c"])
        );
        assert_ne!(base, ring_a.mac(&alice(), "cache", &[b"a", b"bc"]));
        assert_ne!(base, ring_a.mac(&alice(), "other", &[b"ab", b"c"]));
        assert_ne!(
            base,
            ring_a.mac(&Namespace::new("t", "bob", None), "cache", &[b"ab", b"c"])
        );
        assert_ne!(
            base,
            ring_a.mac(
                &Namespace::new("t", "alice", Some("")),
                "cache",
                &[b"ab", b"c"]
            )
        );
        assert_ne!(base, ring("b", None).mac(&alice(), "cache", &[b"ab", b"c"]));
    }

    #[test]
    fn a_blob_opens_only_where_it_belongs() {
        let old = ring("a", None);
        let blob = old.seal_blob(&alice(), "job", b"id-1", b"result").unwrap();
        assert_eq!(
            ring("b", Some("a"))
                .open_blob(&alice(), "job", b"id-1", &blob)
                .unwrap(),
            b"result"
        );
        assert!(old.open_blob(&alice(), "job", b"id-2", &blob).is_err());
        assert!(old.open_blob(&alice(), "answer", b"id-1", &blob).is_err());
        assert!(
            old.open_blob(&Namespace::new("t", "bob", None), "job", b"id-1", &blob)
                .is_err()
        );
        assert!(
            ring("b", None)
                .open_blob(&alice(), "job", b"id-1", &blob)
                .is_err()
        );
        for index in 0..blob.len() {
            let mut altered = blob.clone();
            altered[index] ^= 1;
            assert!(
                old.open_blob(&alice(), "job", b"id-1", &altered).is_err(),
                "byte {index}"
            );
            assert!(
                old.open_blob(&alice(), "job", b"id-1", &blob[..index])
                    .is_err(),
                "cut at {index}"
            );
        }
    }

    #[test]
    fn debug_shows_ids_only() {
        let text = format!("{:?}", ring("a", Some("b")));
        assert!(
            !text.contains(&key("a")) && text.contains(ring("a", None).current_id()),
            "{text}"
        );
    }

    #[test]
    fn the_cache_of_ready_keys_is_bounded() {
        let ring = ring("a", None);
        for index in 0..2 * MAX_DERIVED_KEYS {
            let _ = ring.mac(&Namespace::new("t", &index.to_string(), None), "cache", &[]);
        }
        let ready = ring.0.macs.0.read();
        assert!(
            ready.by_namespace.values().map(Vec::len).sum::<usize>() == ready.count
                && ready.count <= MAX_DERIVED_KEYS
        );
    }
}
