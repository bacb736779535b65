//! Credentials as a handler and the pipeline see them: by name, never by value until the moment of use.

use std::fmt;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};

use serde::{Deserialize, Serialize};

use crate::caller::Glob;
use crate::error::Result;
use crate::{Identity, PackName};

/// A secret text, and the hosts that it may be sent to. `Debug` shows nothing; the memory is cleared when the last clone goes.
#[derive(Clone)]
pub struct Secret {
    text: Arc<SecretString>,
    /// `None` = any.
    hosts: Option<Arc<[Glob]>>,
}

impl Secret {
    /// Wraps a secret that may be sent anywhere.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self { text: Arc::new(SecretString::from(text)), hosts: None }
    }

    /// Binds the secret to hosts: patterns over names in lower case, without a port.
    #[must_use]
    pub fn for_hosts(mut self, hosts: Arc<[Glob]>) -> Self {
        self.hosts = Some(hosts);
        self
    }

    /// Returns the secret itself, for looking for it. To send it, ask with [`Secret::expose_for`].
    #[must_use]
    pub fn expose(&self) -> &str {
        self.text.expose_secret()
    }

    /// Returns the secret itself to be sent to a host (a name or an address, without a port); for the moment of use only.
    ///
    /// # Errors
    /// `forbidden` if it is not for that host.
    pub fn expose_for(&self, host: &str) -> Result<&str> {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        match &self.hosts {
            Some(hosts) if !hosts.iter().any(|glob| glob.matches(&host)) => {
                Err(crate::Error::new(crate::Code::Forbidden, format!("the credential is not for the host {host:?}")))
            }
            _ => Ok(self.text.expose_secret()),
        }
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
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

    #[test]
    fn a_bound_secret_goes_to_its_hosts_only() {
        let hosts = ["api.example.com", "*.internal"].map(|glob| glob.parse().unwrap());
        let secret = Secret::new("canary".into()).for_hosts(Arc::new(hosts));
        assert_eq!(secret.expose_for("API.example.com.").unwrap(), "canary");
        assert_eq!(secret.expose_for("a.internal").unwrap(), "canary");
        let error = secret.expose_for("api.example.com.evil.test").unwrap_err();
        assert_eq!(error.code(), crate::Code::Forbidden);
        assert!(!error.to_string().contains("canary"));
        assert!(Secret::new("canary".into()).expose_for("anywhere").is_ok());
    }
}
