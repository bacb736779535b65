//! A credential as a row of the database, and back.
//!
//! Layout of the sealed column: the length of the first seal (4 bytes, big endian), the seal over
//! what the credential is for, the seal over the secret. Both bind name, version and times of the
//! row.

use helmdeck_core::Timestamp;
use helmdeck_memory::keyring::blob_key_id;
use helmdeck_memory::{KeyRing, Namespace};
use helmdeck_system::vault::VaultRow;
use zeroize::Zeroizing;

use crate::error::{Result, VaultError};
use crate::record::{About, Material, StoredAbout};

/// Purpose of a derived key, besides the credential's name.
const ABOUT: &str = "helmdeck/vault/about/v1";
const SECRET: &str = "helmdeck/vault/secret/v1";

/// Clear fields of a row, bound by its seals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

impl From<&VaultRow> for Fields {
    fn from(row: &VaultRow) -> Self {
        Self {
            name: row.name.clone(),
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

impl Fields {
    fn bound(&self) -> Vec<u8> {
        let mut bound = Vec::with_capacity(32 + self.name.len());
        bound.extend_from_slice(&self.version.to_be_bytes());
        bound.extend_from_slice(&self.created_at.micros().to_be_bytes());
        bound.extend_from_slice(&self.updated_at.micros().to_be_bytes());
        bound.extend_from_slice(self.name.as_bytes());
        bound
    }

    fn namespace(&self) -> Namespace {
        Namespace::new("helmdeck/vault", &self.name, None)
    }
}

/// Seals and opens rows. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Sealer(pub(crate) KeyRing);

impl Sealer {
    /// Seals a credential with the current key.
    pub(crate) fn seal(
        &self,
        fields: Fields,
        about: &About,
        material: &Material,
    ) -> Result<VaultRow> {
        let (namespace, bound) = (fields.namespace(), fields.bound());
        let text = serde_json::to_vec(&StoredAbout::from(about))
            .map_err(|error| VaultError::Invalid(error.to_string()))?;
        let about = self.0.seal_blob(&namespace, ABOUT, &bound, &text)?;
        let secret = self
            .0
            .seal_blob(&namespace, SECRET, &bound, &write(material))?;
        let length = u32::try_from(about.len()).unwrap_or(u32::MAX).to_be_bytes();
        Ok(VaultRow {
            name: fields.name,
            version: fields.version,
            key_id: self.0.current_id().to_owned(),
            sealed: [length.as_slice(), &about, &secret].concat(),
            created_at: fields.created_at,
            updated_at: fields.updated_at,
        })
    }

    /// Opens the attributes of a credential. The secret stays sealed.
    pub(crate) fn about(&self, row: &VaultRow) -> Result<About> {
        let plain = self.open(row, ABOUT)?;
        let written: StoredAbout =
            serde_json::from_slice(&plain).map_err(|_| unreadable(row, "of another version"))?;
        About::try_from(written).map_err(|_| unreadable(row, "of another version"))
    }

    /// Opens the secret.
    pub(crate) fn material(&self, row: &VaultRow) -> Result<Material> {
        read(&self.open(row, SECRET)?).ok_or_else(|| unreadable(row, "of another version"))
    }

    fn open(&self, row: &VaultRow, purpose: &'static str) -> Result<Zeroizing<Vec<u8>>> {
        let (about, secret) =
            parts(&row.sealed).ok_or_else(|| unreadable(row, "too short to be sealed"))?;
        let blob = if purpose == ABOUT { about } else { secret };
        if !self.0.knows(&row.key_id) {
            let given = self.0.ids().collect::<Vec<_>>().join(", ");
            let reason = format!(
                "it is sealed with key {}; the key given is {given}",
                row.key_id
            );
            return Err(VaultError::Unreadable {
                name: row.name.clone(),
                reason,
            });
        }
        if blob_key_id(blob).as_ref() != Some(&row.key_id) {
            return Err(unreadable(row, "altered"));
        }
        let fields = Fields::from(row);
        match self
            .0
            .open_blob(&fields.namespace(), purpose, &fields.bound(), blob)
        {
            Ok(plain) => Ok(Zeroizing::new(plain)),
            Err(_) => Err(unreadable(
                row,
                "altered, moved, or sealed with another key",
            )),
        }
    }
}

pub(crate) fn unreadable(row: &VaultRow, reason: &str) -> VaultError {
    VaultError::Unreadable {
        name: row.name.clone(),
        reason: reason.to_owned(),
    }
}

fn parts(sealed: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = sealed.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

/// Writes a secret: its length (4 bytes, big endian), itself, then 1 and the passphrase or 0.
fn write(material: &Material) -> Zeroizing<Vec<u8>> {
    let passphrase = material.passphrase.as_ref();
    // Exactly as long as needed: a vector that grows leaves copies behind.
    let mut plain = Zeroizing::new(Vec::with_capacity(
        5 + material.text.len() + passphrase.map_or(0, |passphrase| passphrase.len()),
    ));
    plain.extend_from_slice(
        &u32::try_from(material.text.len())
            .unwrap_or(u32::MAX)
            .to_be_bytes(),
    );
    plain.extend_from_slice(material.text.as_bytes());
    plain.push(u8::from(passphrase.is_some()));
    if let Some(passphrase) = passphrase {
        plain.extend_from_slice(passphrase.as_bytes());
    }
    plain
}

fn read(plain: &[u8]) -> Option<Material> {
    let text = |bytes: &[u8]| Some(Zeroizing::new(std::str::from_utf8(bytes).ok()?.to_owned()));
    let (secret, rest) = parts(plain)?;
    let passphrase = match rest.split_first()? {
        (0, []) => None,
        (1, passphrase) => Some(text(passphrase)?),
        _ => return None,
    };
    Some(Material {
        text: text(secret)?,
        passphrase,
    })
}
