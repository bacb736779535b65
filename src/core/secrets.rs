//! Credentials as a handler and the pipeline see them: by name, never by value until the moment of use.

use std::fmt;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};

use crate::error::Result;
use crate::{Identity, PackName};

/// A secret text. `Debug` shows nothing; the memory is cleared when the last clone goes.
#[derive(Clone)]
pub struct Secret(Arc<SecretString>);

impl Secret {
    /// Wraps a secret.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Arc::new(SecretString::from(text)))
    }

    /// Returns the secret itself; for the moment of use only.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A credential that this caller and this pack may use.
///
/// It names the principal, not the token: a refreshed token of the same credential keeps its cache entries, a changed
/// version or a revoked grant does not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The credential's name.
    pub name: String,
    /// Its version: changes when the principal behind the name may have changed.
    pub version: u64,
}

/// Where credentials come from: an environment variable per name, or the vault.
pub trait Secrets: Send + Sync + 'static {
    /// Returns the grant of a named credential, `None` if there is no such credential.
    ///
    /// # Errors
    /// `forbidden` if this caller or pack may not use it; `credential_invalid` if it exists but cannot be read.
    fn grant(&self, name: &str, identity: &Identity, pack: &PackName) -> Result<Option<Grant>>;

    /// Returns the secret behind a grant.
    ///
    /// # Errors
    /// As [`Secrets::grant`].
    fn reveal(&self, grant: &Grant, identity: &Identity, pack: &PackName) -> Result<Secret>;

    /// Returns a number that changes whenever any grant or credential changes. What was answered under another number is
    /// looked up afresh.
    fn generation(&self) -> u64;
}

/// No credentials at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSecrets;

impl Secrets for NoSecrets {
    fn grant(&self, _: &str, _: &Identity, _: &PackName) -> Result<Option<Grant>> {
        Ok(None)
    }

    fn reveal(&self, grant: &Grant, _: &Identity, _: &PackName) -> Result<Secret> {
        Err(crate::Error::new(crate::Code::CredentialInvalid, format!("credential \"{}\" does not exist", grant.name)))
    }

    fn generation(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", Secret::new("canary".into())), "Secret(..)");
    }
}
