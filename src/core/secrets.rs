//! Credentials for handlers and pipeline: by name, with the value only at the moment of use.

use std::fmt;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use crate::caller::Glob;
use crate::error::Result;
use crate::{Identity, PackName};

/// Prefix of the tags of answers made with a credential. Callers cannot set or purge such a tag.
pub const CREDENTIAL_TAG: &str = "credential:";

/// Returns the tag of every cached answer that was made with a credential.
#[must_use]
pub fn credential_tag(name: &str) -> String {
    format!("{CREDENTIAL_TAG}{}", name.to_lowercase())
}

/// Returns whether a tag looks like one of [`credential_tag`]. Tags are compared in lower case.
#[must_use]
pub fn is_credential_tag(tag: &str) -> bool {
    tag.to_lowercase().starts_with(CREDENTIAL_TAG)
}

/// A secret text with its attributes and the hosts that may receive it.
///
/// `Debug` shows nothing; the memory is cleared when the last clone is dropped.
#[derive(Clone)]
pub struct Secret {
    text: Arc<SecretString>,
    /// `None` = any.
    hosts: Option<Arc<[Glob]>>,
    user: Option<Arc<str>>,
    passphrase: Option<Arc<SecretString>>,
}

impl Secret {
    /// Wraps a secret that may be sent anywhere.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self {
            text: Arc::new(SecretString::from(text)),
            hosts: None,
            user: None,
            passphrase: None,
        }
    }

    /// Binds the secret to hosts: patterns over names in lower case, without a port.
    #[must_use]
    pub fn for_hosts(mut self, hosts: Arc<[Glob]>) -> Self {
        self.hosts = Some(hosts);
        self
    }

    /// Says whose password it is.
    #[must_use]
    pub fn of_user(mut self, user: &str) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Adds what opens the secret, if it is a key that is encrypted itself.
    #[must_use]
    pub fn with_passphrase(mut self, passphrase: String) -> Self {
        self.passphrase = Some(Arc::new(SecretString::from(passphrase)));
        self
    }

    /// Returns the user of a login, `None` for other credentials. It is no secret, and never
    /// without one.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns what opens an encrypted key; a secret too.
    #[must_use]
    pub fn passphrase(&self) -> Option<&str> {
        self.passphrase.as_deref().map(ExposeSecret::expose_secret)
    }

    /// Returns whether the secret is bound to hosts and this host is one of them.
    ///
    /// A secret without hosts is bound to none: it is not sent to a host that comes from the input
    /// of a call.
    #[must_use]
    pub fn is_bound_to(&self, host: &str) -> bool {
        self.hosts.is_some() && self.expose_for(host).is_ok()
    }

    /// Returns the secret itself, for looking for it. To send it, ask with [`Secret::expose_for`].
    #[must_use]
    pub fn expose(&self) -> &str {
        self.text.expose_secret()
    }

    /// Returns the secret to send it to a host (a name or an address, without a port).
    ///
    /// Keep it only for the moment of use.
    ///
    /// # Errors
    /// `forbidden` if it is not for that host.
    pub fn expose_for(&self, host: &str) -> Result<&str> {
        // A URL writes an IPv6 address in brackets.
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .trim_end_matches('.')
            .to_ascii_lowercase();
        match &self.hosts {
            Some(hosts) if !hosts.iter().any(|glob| glob.matches(&host)) => Err(crate::Error::new(
                crate::Code::Forbidden,
                format!("the credential is not for the host {host:?}"),
            )),
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
/// It names the principal, not the token: a refreshed token of the same credential keeps its cache
/// entries, a changed version or a revoked grant does not.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grant {
    /// The credential's name.
    pub name: String,
    /// Its version: changes when the principal behind the name may have changed.
    pub version: u64,
}

/// Where credentials come from: an environment variable per name, or the vault.
pub trait Secrets: Send + Sync + 'static {
    /// Returns the grant of a named credential, `None` if the credential does not exist.
    ///
    /// # Errors
    /// `forbidden` if this caller or pack may not use it; `credential_invalid` if it exists but
    /// cannot be read.
    fn grant(&self, name: &str, identity: &Identity, pack: &PackName) -> Result<Option<Grant>>;

    /// Returns the secret behind a grant.
    ///
    /// # Errors
    /// As [`Secrets::grant`].
    fn reveal(&self, grant: &Grant, identity: &Identity, pack: &PackName) -> Result<Secret>;

    /// Returns the error for a credential that does not exist.
    ///
    /// Where credentials are restricted, it must equal the error of a refused caller: a caller
    /// without a grant must not learn whether a credential exists.
    fn missing(&self, name: &str) -> crate::Error {
        let message = format!("credential \"{}\" does not exist", name.escape_debug());
        crate::Error::new(crate::Code::CredentialInvalid, message)
    }

    /// Returns why credentials cannot be read; `None` if they can.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Returns a number that changes with every change of a grant or credential.
    ///
    /// An answer with another number is looked up again.
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
        Err(self.missing(&grant.name))
    }

    fn generation(&self) -> u64 {
        0
    }
}

/// The credentials of one call: those that the manifest declares, already resolved to grants.
pub trait CallSecrets: Send + Sync {
    /// Returns the grants in the order of the manifest.
    ///
    /// A credential that does not exist is left out, unless the call names it.
    fn grants(&self) -> &[Grant];

    /// Returns a secret and remembers it, so that it is taken out of whatever leaves the handler.
    ///
    /// # Errors
    /// `forbidden` for a name that the manifest does not declare; `credential_invalid` if it cannot
    /// be read.
    fn get(&self, name: &str) -> Result<Option<Secret>>;

    /// Returns the secrets that were handed out so far.
    fn revealed(&self) -> Vec<Secret>;
}

/// The pack that calls another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallingPack {
    /// Its name, for what the other one writes down.
    pub name: PackName,
    /// Whether callers share its answer, so that nothing of one of them may be in it.
    pub shared: bool,
    /// If they do: the grants that its answer is shared under. What it calls may use these and no
    /// others.
    pub grants: Vec<Grant>,
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
