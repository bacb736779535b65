//! Sealing of values, or storing them plain.
//!
//! A driver seals inside its write transaction, when version and times of the row are known, so
//! that the seal binds them. It never learns a key. New entries are sealed before the transaction:
//! nothing is left to resolve. There is no fallback: a plain row in a sealed store does not open.

use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::entry::{Entry, EntryMeta, Fingerprint, Namespace};
use crate::error::{Result, StoreError};
use crate::framing::Framed;
use crate::key::hex;
use crate::keyring::{Format, KeyRing, TAG_BYTES};
use crate::ops::Walked;

/// Stored value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedValue {
    /// The id of the key; empty if it is not sealed.
    pub key_id: String,
    /// The nonce; empty if it is not sealed.
    pub nonce: Vec<u8>,
    /// The bytes.
    pub value: Vec<u8>,
}

/// Row as read by a driver, not yet verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawRow {
    /// Metadata of the row. Namespace, kind and key are those of the request.
    pub meta: EntryMeta,
    /// The stored value.
    pub sealed: SealedValue,
}

impl RawRow {
    /// Opens the row for a walk, which reports rows that do not open.
    pub(crate) fn walk(self, seal: &dyn Seal) -> Walked {
        let (meta, key_id) = (self.meta.clone(), self.sealed.key_id.clone());
        let value = seal
            .open(self)
            .map(|entry| entry.value)
            .map_err(|error| match error {
                StoreError::Unreadable { reason } => reason,
                _ => "the seal could not be asked",
            });
        Walked {
            meta,
            key_id,
            value,
        }
    }
}

/// Seal: seals values, and opens rows.
pub trait Seal: Send + Sync + 'static {
    /// Returns the fingerprint of a plaintext.
    fn fingerprint(&self, namespace: &Namespace, plaintext: &[u8]) -> String;

    /// Returns how many bytes a seal adds to a plaintext.
    fn overhead(&self) -> u64;

    /// Seals a value and binds it to everything in `meta` but `size`.
    ///
    /// # Errors
    /// `Unavailable` if the system cannot provide randomness.
    fn seal(&self, meta: &EntryMeta, plaintext: &[u8]) -> Result<SealedValue>;

    /// Opens a row.
    ///
    /// # Errors
    /// `Unreadable` if it was not sealed in this form, for this place, by a known key.
    fn open(&self, row: RawRow) -> Result<Entry>;
}

/// XAES-256-GCM under a key derived for each namespace and kind, with a random nonce of 192 bits
/// for each write.
///
/// Rows of the first format (AES-256-GCM) open too; a rotation converts them.
#[derive(Debug)]
pub struct RowSeal {
    ring: KeyRing,
    fingerprint: Fingerprint,
}

impl RowSeal {
    /// Makes a seal from a keyring.
    #[must_use]
    pub fn new(ring: KeyRing, fingerprint: Fingerprint) -> Arc<Self> {
        Arc::new(Self { ring, fingerprint })
    }
}

impl Seal for RowSeal {
    fn fingerprint(&self, namespace: &Namespace, plaintext: &[u8]) -> String {
        match self.fingerprint {
            Fingerprint::Plain => plain_fingerprint(plaintext),
            Fingerprint::Keyed => hex(&self.ring.mac(namespace, "fingerprint", &[plaintext])[..8]),
        }
    }

    fn overhead(&self) -> u64 {
        TAG_BYTES as u64
    }

    fn seal(&self, meta: &EntryMeta, plaintext: &[u8]) -> Result<SealedValue> {
        let key_id = self.ring.current_id();
        let (nonce, value) = self.ring.seal_row(
            &meta.namespace,
            meta.kind,
            &bound(Format::Second, key_id, meta),
            plaintext,
        )?;
        Ok(SealedValue {
            key_id: key_id.to_owned(),
            nonce,
            value,
        })
    }

    fn open(&self, row: RawRow) -> Result<Entry> {
        let RawRow { meta, sealed } = row;
        if sealed.key_id.is_empty() {
            return Err(StoreError::Unreadable {
                reason: "not sealed",
            });
        }
        // Before anything is opened: the id commits the row to one key.
        let by = self.ring.find(&sealed.key_id)?;
        let aad = bound(by.format, &sealed.key_id, &meta);
        let value = self.ring.open_row(
            by,
            &meta.namespace,
            meta.kind,
            &aad,
            &sealed.nonce,
            sealed.value,
        )?;
        Ok(Entry {
            meta,
            value: value.into(),
        })
    }
}

/// No seal: values are stored in the clear. For tests, and for stores in memory only.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSeal;

impl Seal for NoSeal {
    fn fingerprint(&self, _: &Namespace, plaintext: &[u8]) -> String {
        plain_fingerprint(plaintext)
    }

    fn overhead(&self) -> u64 {
        0
    }

    fn seal(&self, _: &EntryMeta, plaintext: &[u8]) -> Result<SealedValue> {
        Ok(SealedValue {
            key_id: String::new(),
            nonce: Vec::new(),
            value: plaintext.to_vec(),
        })
    }

    fn open(&self, row: RawRow) -> Result<Entry> {
        if !row.sealed.key_id.is_empty() {
            return Err(StoreError::Unreadable {
                reason: "sealed, and this store has no key",
            });
        }
        Ok(Entry {
            meta: row.meta,
            value: Bytes::from(row.sealed.value),
        })
    }
}

fn plain_fingerprint(plaintext: &[u8]) -> String {
    hex(&Sha256::digest(plaintext)[..8])
}

/// Returns the clear fields of a row as associated data.
///
/// A row that was moved, renamed, retagged or extended has other bytes here and does not open.
fn bound(format: Format, key_id: &str, meta: &EntryMeta) -> Framed {
    let mut framed = Framed::new("helmdeck/memory/row")
        .number(match format {
            Format::First => 1,
            Format::Second => 2,
        })
        .text(key_id)
        .text(&meta.namespace.tenant)
        .text(&meta.namespace.subject)
        .optional(meta.namespace.session.as_deref())
        .text(meta.kind.as_str())
        .text(&meta.key)
        .text(&meta.category)
        .number(meta.tags.len() as u64);
    for tag in &meta.tags {
        framed = framed.text(tag);
    }
    framed = framed.number(meta.attributes.len() as u64);
    for (name, value) in &meta.attributes {
        framed = framed.text(name).text(value);
    }
    framed = framed
        .text(&meta.fingerprint)
        .number(meta.version)
        .number(meta.created_at.micros().cast_unsigned())
        .number(meta.updated_at.micros().cast_unsigned());
    match meta.expires_at {
        None => framed.number(0),
        Some(end) => framed.number(1).number(end.micros().cast_unsigned()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use helmdeck_core::Timestamp;

    use super::*;
    use crate::entry::Kind;

    fn meta() -> EntryMeta {
        EntryMeta {
            namespace: Namespace::new("t", "alice", Some("s")),
            kind: Kind::Fact,
            key: "k".into(),
            category: "c".into(),
            tags: vec!["one".into(), "two".into()],
            attributes: BTreeMap::from([("a".into(), "b".into())]),
            fingerprint: "f".into(),
            version: 3,
            created_at: Timestamp(1),
            updated_at: Timestamp(2),
            expires_at: Some(Timestamp(9)),
            size: 21,
        }
    }

    fn seal(digit: &str) -> Arc<RowSeal> {
        RowSeal::new(
            KeyRing::parse(("K", &digit.repeat(64)), None).unwrap(),
            Fingerprint::Plain,
        )
    }

    #[test]
    fn a_sealed_value_opens_and_hides_the_plaintext() {
        let sealed = seal("a").seal(&meta(), b"value").unwrap();
        assert_eq!(sealed.value.len() as u64, 5 + seal("a").overhead());
        assert!(!sealed.value.windows(5).any(|part| part == b"value"));
        assert_eq!(
            &seal("a")
                .open(RawRow {
                    meta: meta(),
                    sealed
                })
                .unwrap()
                .value[..],
            b"value"
        );
    }

    #[test]
    fn every_clear_field_but_the_size_is_bound() {
        let changes: [fn(&mut EntryMeta); 17] = [
            |m| m.namespace.tenant = "u".into(),
            |m| m.namespace.subject = "bob".into(),
            |m| m.namespace.session = None,
            |m| m.namespace.session = Some("".into()),
            |m| m.kind = Kind::Cache,
            |m| m.key = "K".into(),
            |m| m.category = String::new(),
            |m| m.tags = vec!["two".into(), "one".into()],
            |m| m.tags = vec!["onetwo".into()],
            |m| m.attributes = BTreeMap::new(),
            |m| m.attributes = BTreeMap::from([("a".into(), "c".into())]),
            |m| m.fingerprint = "g".into(),
            |m| m.version = 4,
            |m| m.created_at = Timestamp(0),
            |m| m.updated_at = Timestamp(3),
            |m| m.expires_at = Some(Timestamp(10)),
            |m| m.expires_at = None,
        ];
        let sealed = seal("a").seal(&meta(), b"value").unwrap();
        for (index, change) in changes.into_iter().enumerate() {
            let mut changed = meta();
            change(&mut changed);
            assert!(
                seal("a")
                    .open(RawRow {
                        meta: changed,
                        sealed: sealed.clone()
                    })
                    .is_err(),
                "change {index}"
            );
        }
        assert!(
            seal("b")
                .open(RawRow {
                    meta: meta(),
                    sealed
                })
                .is_err()
        );
    }

    #[test]
    fn plain_and_sealed_rows_never_mix() {
        let plain = NoSeal.seal(&meta(), b"value").unwrap();
        assert!(
            seal("a")
                .open(RawRow {
                    meta: meta(),
                    sealed: plain
                })
                .is_err()
        );
        let sealed = seal("a").seal(&meta(), b"value").unwrap();
        assert!(
            NoSeal
                .open(RawRow {
                    meta: meta(),
                    sealed
                })
                .is_err()
        );
    }

    #[test]
    fn two_writes_of_one_value_share_no_nonce() {
        let (one, two) = (
            seal("a").seal(&meta(), b"v").unwrap(),
            seal("a").seal(&meta(), b"v").unwrap(),
        );
        assert_ne!(one.nonce, two.nonce);
        assert_ne!(one.value, two.value);
    }

    #[test]
    fn the_plain_fingerprint_is_the_start_of_sha_256() {
        // FIPS 180-2, appendix B.1: SHA-256("abc") = ba7816bf 8f01cfea ...
        assert_eq!(
            seal("a").fingerprint(&meta().namespace, b"abc"),
            "ba7816bf8f01cfea"
        );
    }

    #[test]
    fn keyed_fingerprint_depends_on_key_and_namespace() {
        let ring = |digit: &str| KeyRing::parse(("K", &digit.repeat(64)), None).unwrap();
        let keyed = |digit: &str, subject| {
            RowSeal::new(ring(digit), Fingerprint::Keyed)
                .fingerprint(&Namespace::new("t", subject, None), b"abc")
        };
        assert_eq!(keyed("a", "alice"), keyed("a", "alice"));
        assert_eq!(keyed("a", "alice").len(), 16);
        assert_ne!(keyed("a", "alice"), keyed("b", "alice"));
        assert_ne!(keyed("a", "alice"), keyed("a", "bob"));
        assert_ne!(keyed("a", "alice"), "ba7816bf8f01cfea");
    }
}
