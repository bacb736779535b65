//! Head of the vault: which rows it has, sealed.
//!
//! A seal cannot tell that its row is an older one that was put back. The head has a digest of each
//! row, and a counter that grows with every change. It is written in the transaction of the change.
//! So a row that is older than the head, and one that was removed, is refused. A vault that was put
//! back whole, with its head, is seen by a process that knows a higher counter, and by no other.

use std::collections::BTreeMap;

use helmdeck_core::Timestamp;
use helmdeck_memory::framing::Framed;
use helmdeck_memory::{KeyRing, Namespace};
use helmdeck_system::vault::{VaultChange, VaultRow, VaultState};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Result, VaultError};
use crate::seal::unreadable;

/// Purpose of the derived key.
const HEAD: &str = "helmdeck/vault/head/v1";

/// Content of a head.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Content {
    /// Grows with every change.
    pub(crate) counter: u64,
    /// The digest of each row, by name.
    rows: BTreeMap<String, String>,
}

/// Head as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Head {
    /// There is none: a new vault, or one that was written before there were heads.
    Absent,
    /// It does not open.
    Broken,
    /// It opens.
    Known(Content),
}

/// No credential has this name.
fn namespace() -> Namespace {
    Namespace::new("helmdeck/vault", "", None)
}

impl Head {
    /// Opens the head of a vault. An empty vault that belongs to nobody has none.
    pub(crate) fn read(ring: &KeyRing, state: &VaultState, rows: &[VaultRow]) -> Self {
        let Some(sealed) = &state.head else {
            return Self::Absent;
        };
        let opened = ring.open_blob(&namespace(), HEAD, b"", sealed).ok();
        match opened.and_then(|plain| serde_json::from_slice(&plain).ok()) {
            Some(content) => Self::Known(content),
            None if rows.is_empty() => Self::Absent,
            None => Self::Broken,
        }
    }

    /// Returns the counter; 0 without one.
    pub(crate) const fn counter(&self) -> u64 {
        match self {
            Self::Known(content) => content.counter,
            Self::Absent | Self::Broken => 0,
        }
    }

    /// Checks that a row is the one that was written last.
    ///
    /// # Errors
    /// `Unreadable`.
    pub(crate) fn admit(&self, row: &VaultRow) -> Result<()> {
        let refused = |reason| Err(unreadable(row, reason));
        match self {
            // Rows of the first format are from before there were heads.
            Self::Absent if row.key_id.len() == 16 => Ok(()),
            Self::Absent => refused("the head of the vault was removed; set the credential again"),
            Self::Broken => {
                refused("the head of the vault does not open; set the credential again")
            }
            Self::Known(content) => match content.rows.get(&row.name) {
                Some(known) if *known == digest(row) => Ok(()),
                Some(_) => refused(
                    "another row than the one written last: an older one was put back, or it was altered",
                ),
                None => refused("it was removed, and put back"),
            },
        }
    }

    /// Returns whether a credential of this name should be there.
    pub(crate) fn names(&self, name: &str) -> bool {
        matches!(self, Self::Known(content) if content.rows.contains_key(name))
    }

    /// Returns the names of credentials that should be there and are not.
    pub(crate) fn missing<'a>(
        &'a self,
        rows: &'a [VaultRow],
    ) -> impl Iterator<Item = VaultError> + 'a {
        let names = match self {
            Self::Known(content) => Some(content.rows.keys()),
            Self::Absent | Self::Broken => None,
        };
        let missing = names
            .into_iter()
            .flatten()
            .filter(|name| rows.iter().all(|row| row.name != **name));
        missing.map(|name| VaultError::Unreadable {
            name: name.clone(),
            reason: "it is missing: it was removed without the vault key, or by another program"
                .to_owned(),
        })
    }

    /// Adds the head after a change to it, sealed with the key of the head before it, if that is
    /// given. A row that this head refuses, and the change leaves alone, stays refused.
    ///
    /// # Errors
    /// `Store` if the system cannot provide randomness.
    pub(crate) fn add_to(
        &self,
        (ring, like): (&KeyRing, Option<&[u8]>),
        rows: &[VaultRow],
        change: &mut VaultChange,
        now: Timestamp,
    ) -> Result<()> {
        let mut content = match self {
            Self::Known(content) => content.clone(),
            Self::Absent | Self::Broken => {
                let admitted = rows.iter().filter(|row| self.admit(row).is_ok());
                Content {
                    counter: 0,
                    rows: admitted
                        .map(|row| (row.name.clone(), digest(row)))
                        .collect(),
                }
            }
        };
        // By the clock, so that a change is newer than any head that was put back.
        content.counter = (content.counter + 1).max(now.micros().unsigned_abs());
        content.rows.retain(|name, _| !change.remove.contains(name));
        content
            .rows
            .extend(change.put.iter().map(|row| (row.name.clone(), digest(row))));
        let plain =
            serde_json::to_vec(&content).map_err(|error| VaultError::Invalid(error.to_string()))?;
        change.head = Some(ring.seal_blob_like(like, &namespace(), HEAD, b"", &plain)?);
        Ok(())
    }
}

fn digest(row: &VaultRow) -> String {
    let framed = Framed::new("helmdeck/vault/row")
        .text(&row.name)
        .number(row.version)
        .text(&row.key_id)
        .bytes(&row.sealed)
        .number(row.created_at.micros().cast_unsigned())
        .number(row.updated_at.micros().cast_unsigned());
    Sha256::digest(framed.as_slice())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
