//! Archive format: writes and reads one record at a time, in bounded memory. Blocks on the file.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};

use aes_gcm::aead::Generate;
use bytes::Bytes;
use helmdeck_core::Timestamp;
use serde::{Deserialize, Serialize};

use super::ArchiveError;
use crate::audit;
use crate::entry::{Entry, Kind, Namespace};
use crate::error::StoreError;
use crate::floors;
use crate::framing::Framed;
use crate::key::hex;
use crate::keyring::KeyRing;
use crate::ops::{Put, Restore};

const MAGIC: &[u8; 8] = b"HELMDECK";
/// The format that is written; format 1 is read too.
const FORMAT: u32 = 2;
const ID_BYTES: usize = 16;
const HEADER_BYTES: usize = MAGIC.len() + 4 + 16 + ID_BYTES;
/// The longest sealed record: far above any limit on values, and small enough to hold.
const MAX_RECORD_BYTES: usize = 64 << 20;
const PURPOSE: &str = "archive";

/// What a record begins with.
const ENTRY: u8 = b'E';
const END: u8 = b'Z';

/// An entry without its value, inside a record.
#[derive(Serialize, Deserialize)]
struct Meta {
    tenant: String,
    subject: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    kind: Kind,
    key: String,
    category: String,
    tags: Vec<String>,
    attributes: BTreeMap<String, String>,
    version: u64,
    created_at: Timestamp,
    updated_at: Timestamp,
    expires_at: Option<Timestamp>,
}

/// Seals and opens the records of one archive.
struct Records {
    ring: KeyRing,
    header: [u8; HEADER_BYTES],
    place: Namespace,
    number: u64,
}

impl Records {
    fn new(ring: KeyRing, header: [u8; HEADER_BYTES]) -> Self {
        // A namespace that no entry has: the key that is derived for it seals this archive and
        // nothing else.
        let place = Namespace::new("", "", Some(&hex(&header[HEADER_BYTES - ID_BYTES..])));
        Self {
            ring,
            header,
            place,
            number: 0,
        }
    }

    fn bound(&mut self) -> Framed {
        let bound = Framed::new("helmdeck/memory/archive")
            .bytes(&self.header)
            .number(self.number);
        self.number += 1;
        bound
    }
}

/// Writes an archive.
pub(super) struct Writer<W> {
    out: W,
    records: Records,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    pub(super) fn new(mut out: W, ring: KeyRing) -> Result<Self, ArchiveError> {
        let id = <[u8; ID_BYTES]>::try_generate().map_err(StoreError::unavailable)?;
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&FORMAT.to_be_bytes());
        header[12..28].copy_from_slice(ring.current_id_bytes());
        header[28..].copy_from_slice(&id);
        out.write_all(&header)?;
        Ok(Self {
            out,
            records: Records::new(ring, header),
        })
    }

    /// Writes an entry.
    pub(super) fn entry(&mut self, entry: &Entry) -> Result<(), ArchiveError> {
        let meta = Meta {
            tenant: entry.meta.namespace.tenant.to_string(),
            subject: entry.meta.namespace.subject.to_string(),
            session: entry.meta.namespace.session.as_deref().map(str::to_owned),
            kind: entry.meta.kind,
            key: entry.meta.key.clone(),
            category: entry.meta.category.clone(),
            tags: entry.meta.tags.clone(),
            attributes: entry.meta.attributes.clone(),
            version: entry.meta.version,
            created_at: entry.meta.created_at,
            updated_at: entry.meta.updated_at,
            expires_at: entry.meta.expires_at,
        };
        let meta =
            serde_json::to_vec(&meta).map_err(|error| ArchiveError::Io(error.to_string()))?;
        let length = u32::try_from(meta.len()).map_err(|_| ArchiveError::TooLarge)?;
        let mut plain = Vec::with_capacity(5 + meta.len() + entry.value.len());
        plain.push(ENTRY);
        plain.extend_from_slice(&length.to_be_bytes());
        plain.extend_from_slice(&meta);
        plain.extend_from_slice(&entry.value);
        self.record(&plain)
    }

    /// Writes the end and gives the sink back.
    pub(super) fn finish(mut self) -> Result<W, ArchiveError> {
        let count = self.records.number.to_be_bytes();
        self.record(&[&[END][..], &count].concat())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn record(&mut self, plain: &[u8]) -> Result<(), ArchiveError> {
        let bound = self.records.bound();
        let sealed =
            self.records
                .ring
                .seal_blob(&self.records.place, PURPOSE, bound.as_slice(), plain)?;
        if sealed.len() > MAX_RECORD_BYTES {
            return Err(ArchiveError::TooLarge);
        }
        // Bounded above, so it fits.
        let length = u32::try_from(sealed.len()).unwrap_or(u32::MAX);
        self.out.write_all(&length.to_be_bytes())?;
        self.out.write_all(&sealed)?;
        Ok(())
    }
}

/// What a reader came by.
pub(super) enum ArchiveRecord {
    /// An entry, as what writes it.
    Entry(Box<Put>),
    /// A record that does not open, or makes no sense.
    Unreadable,
    /// The end; every record before it was read.
    End,
}

/// Reads an archive.
pub(super) struct Reader<R> {
    input: R,
    records: Records,
}

impl<R: Read> Reader<R> {
    /// Reads the header and finds the key.
    pub(super) fn new(mut input: R, ring: KeyRing) -> Result<Self, ArchiveError> {
        let mut header = [0; HEADER_BYTES];
        input
            .read_exact(&mut header)
            .map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => ArchiveError::NotAnArchive,
                _ => error.into(),
            })?;
        if &header[..8] != MAGIC {
            return Err(ArchiveError::NotAnArchive);
        }
        let format = header[8..12]
            .iter()
            .fold(0, |number, byte| number << 8 | u32::from(*byte));
        let archive = match format {
            1 => String::from_utf8_lossy(&header[12..28])
                .escape_debug()
                .to_string(),
            FORMAT => hex(&header[12..28]),
            other => return Err(ArchiveError::OtherFormat(other)),
        };
        if !ring.knows(&archive) {
            return Err(ArchiveError::WrongKey {
                archive,
                given: ring.ids().collect::<Vec<_>>().join(", "),
            });
        }
        Ok(Self {
            input,
            records: Records::new(ring, header),
        })
    }

    /// Returns the archive's id, in hex.
    pub(super) fn id(&self) -> String {
        hex(&self.records.header[HEADER_BYTES - ID_BYTES..])
    }

    /// Reads the next record.
    ///
    /// # Errors
    /// `Damaged` if the boundaries of records are lost or something follows the end; `Incomplete`;
    /// `Io`.
    pub(super) fn next(&mut self) -> Result<ArchiveRecord, ArchiveError> {
        let number = self.records.number;
        let incomplete = ArchiveError::Incomplete { read: number };
        let mut length = [0; 4];
        match self.input.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(incomplete),
            Err(error) => return Err(error.into()),
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > MAX_RECORD_BYTES {
            return Err(ArchiveError::Damaged(format!(
                "record {number} says it has {length} bytes"
            )));
        }
        let mut sealed = Vec::new();
        self.input
            .by_ref()
            .take(length as u64)
            .read_to_end(&mut sealed)?;
        if sealed.len() < length {
            return Err(incomplete);
        }
        let bound = self.records.bound();
        let opened =
            self.records
                .ring
                .open_blob(&self.records.place, PURPOSE, bound.as_slice(), &sealed);
        let Ok(plain) = opened else {
            return Ok(ArchiveRecord::Unreadable);
        };
        match plain.first() {
            Some(&ENTRY) => Ok(entry(plain).map_or(ArchiveRecord::Unreadable, |put| {
                ArchiveRecord::Entry(Box::new(put))
            })),
            Some(&END) if plain[1..] == number.to_be_bytes() => {
                if self.input.read(&mut [0])? > 0 {
                    return Err(ArchiveError::Damaged(
                        "something follows its end".to_owned(),
                    ));
                }
                Ok(ArchiveRecord::End)
            }
            _ => Ok(ArchiveRecord::Unreadable),
        }
    }
}

fn entry(plain: Vec<u8>) -> Option<Put> {
    let length = plain
        .get(1..5)?
        .iter()
        .fold(0, |number: usize, byte| number << 8 | usize::from(*byte));
    let meta: Meta = serde_json::from_slice(plain.get(5..5_usize.checked_add(length)?)?).ok()?;
    let namespace = Namespace::new(&meta.tenant, &meta.subject, meta.session.as_deref());
    let mut put = Put::new(
        namespace,
        meta.kind,
        meta.key,
        Bytes::from(plain).slice(5 + length..),
    );
    put.category = meta.category;
    put.tags = meta.tags;
    put.attributes = meta.attributes;
    match put.kind {
        Kind::Audit => audit::unlink(&mut put.attributes),
        Kind::Fact => floors::unlink(&mut put.attributes),
        _ => {}
    }
    put.restore = Some(Restore {
        version: meta.version,
        created_at: meta.created_at,
        updated_at: meta.updated_at,
        expires_at: meta.expires_at,
    });
    Some(put)
}
