//! Credentials for packs: environment variables named in `[credentials]` first, then the vault.
//!
//! Variables are read once, at the start. No value is ever shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use helmdeck_core::secrets::{Grant, Secrets};
use helmdeck_core::{Code, Error, Identity, PackName, Result, Secret};

use crate::env::ProcessEnvironment;

/// Credentials of the environment and the vault.
///
/// A name in `[credentials]` is never looked up in the vault.
pub(crate) struct Credentials {
    environment: EnvironmentSecrets,
    vault: Option<Arc<dyn Secrets>>,
}

helmdeck_core::redacted_debug!(Credentials, this => environment = this.environment);

impl Credentials {
    /// Combines the two.
    pub(crate) const fn new(
        environment: EnvironmentSecrets,
        vault: Option<Arc<dyn Secrets>>,
    ) -> Self {
        Self { environment, vault }
    }

    /// Returns the source of a name.
    fn of(&self, name: &str) -> &dyn Secrets {
        match &self.vault {
            Some(vault) if !self.environment.credentials.contains_key(name) => &**vault,
            _ => &self.environment,
        }
    }
}

impl Secrets for Credentials {
    fn grant(&self, name: &str, identity: &Identity, pack: &PackName) -> Result<Option<Grant>> {
        self.of(name).grant(name, identity, pack)
    }

    fn reveal(&self, grant: &Grant, identity: &Identity, pack: &PackName) -> Result<Secret> {
        self.of(&grant.name).reveal(grant, identity, pack)
    }

    fn missing(&self, name: &str) -> Error {
        self.of(name).missing(name)
    }

    fn trouble(&self) -> Option<String> {
        self.vault.as_ref().and_then(|vault| vault.trouble())
    }

    fn generation(&self) -> u64 {
        // The environment was read once at the start; only the vault changes.
        self.vault.as_ref().map_or(0, |vault| vault.generation())
    }
}

/// A vault that does not open. Packs without credentials still run; the others get the reason.
#[derive(Debug)]
pub(crate) struct ShutVault(pub(crate) String);

impl Secrets for ShutVault {
    fn grant(&self, name: &str, _: &Identity, _: &PackName) -> Result<Option<Grant>> {
        Err(self.missing(name))
    }

    fn reveal(&self, grant: &Grant, _: &Identity, _: &PackName) -> Result<Secret> {
        Err(self.missing(&grant.name))
    }

    fn missing(&self, name: &str) -> Error {
        Error::new(
            Code::CredentialInvalid,
            format!("credential \"{name}\": the vault does not open: {}", self.0),
        )
    }

    fn generation(&self) -> u64 {
        0
    }
}

/// The credentials of `[credentials]`, which every caller and pack may use.
///
/// Without authentication there is one caller, and a pack can use only what its manifest names.
#[derive(Debug)]
pub(crate) struct EnvironmentSecrets {
    credentials: BTreeMap<String, Credential>,
}

#[derive(Debug)]
struct Credential {
    variable: String,
    /// `None` if the variable is not set, or empty.
    secret: Option<Secret>,
}

/// Version of every credential from a variable, which has no history.
///
/// A refreshed token of the same principal keeps its cache entries. To point a name at another
/// user's token, give it another name, or purge.
const VERSION: u64 = 1;

impl EnvironmentSecrets {
    /// Reads the variables.
    pub(crate) fn new(variables: &BTreeMap<String, String>, env: &ProcessEnvironment) -> Self {
        let credential = |(name, variable): (&String, &String)| {
            let text = env
                .text(variable)
                .ok()
                .flatten()
                .map(str::trim)
                .filter(|text| !text.is_empty());
            let secret = text.map(|text| Secret::new(text.to_owned()));
            (
                name.clone(),
                Credential {
                    variable: variable.clone(),
                    secret,
                },
            )
        };
        Self {
            credentials: variables.iter().map(credential).collect(),
        }
    }

    /// Returns the credentials whose variable is not set, as (credential, variable).
    pub(crate) fn unset(&self) -> impl Iterator<Item = (&str, &str)> {
        self.credentials
            .iter()
            .filter(|(_, credential)| credential.secret.is_none())
            .map(|(name, credential)| (name.as_str(), credential.variable.as_str()))
    }

    fn find(&self, name: &str) -> Result<Option<&Secret>> {
        let Some(credential) = self.credentials.get(name) else {
            return Ok(None);
        };
        credential.secret.as_ref().map(Some).ok_or_else(|| {
            let variable = &credential.variable;
            Error::new(
                Code::CredentialInvalid,
                format!(
                    "credential \"{name}\" comes from the variable {variable}, which is not set"
                ),
            )
        })
    }
}

impl Secrets for EnvironmentSecrets {
    fn grant(&self, name: &str, _: &Identity, _: &PackName) -> Result<Option<Grant>> {
        Ok(self.find(name)?.map(|_| Grant {
            name: name.to_owned(),
            version: VERSION,
        }))
    }

    fn reveal(&self, grant: &Grant, _: &Identity, _: &PackName) -> Result<Secret> {
        let found = self.find(&grant.name)?.ok_or_else(|| {
            Error::new(
                Code::CredentialInvalid,
                format!("credential \"{}\" does not exist", grant.name),
            )
        })?;
        Ok(found.clone())
    }

    fn generation(&self) -> u64 {
        // Read once at the start, so nothing changes while the process runs.
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(token: &str) -> EnvironmentSecrets {
        let env = ProcessEnvironment::of(&[("GITHUB_TOKEN", token)]);
        let names = [("github-token", "GITHUB_TOKEN"), ("other", "OTHER")];
        let variables = names
            .map(|(name, variable)| (name.to_owned(), variable.to_owned()))
            .into();
        EnvironmentSecrets::new(&variables, &env)
    }

    fn ask(secrets: &EnvironmentSecrets, name: &str) -> Result<Option<Grant>> {
        secrets.grant(name, &Identity::local(), &PackName::new("a.b").unwrap())
    }

    #[test]
    fn a_named_variable_is_granted_and_revealed() {
        let secrets = secrets(" token\n");
        let grant = ask(&secrets, "github-token").unwrap().unwrap();
        let revealed = secrets
            .reveal(&grant, &Identity::local(), &PackName::new("a.b").unwrap())
            .unwrap();
        assert_eq!(revealed.expose(), "token");
        assert_eq!(secrets.unset().collect::<Vec<_>>(), [("other", "OTHER")]);
    }

    #[test]
    fn an_unknown_credential_is_absent_and_an_unset_variable_is_an_error() {
        let secrets = secrets("token");
        assert_eq!(ask(&secrets, "nobody").unwrap(), None);
        let error = ask(&secrets, "other").unwrap_err();
        assert_eq!(error.code(), Code::CredentialInvalid);
        assert!(error.message().contains("OTHER"), "{error}");
        assert!(ask(&self::secrets(""), "github-token").is_err());
    }

    #[test]
    fn a_refreshed_token_keeps_its_grant_and_nothing_shows_it() {
        let grant = |token| ask(&secrets(token), "github-token").unwrap().unwrap();
        assert_eq!(grant("canary"), grant("refreshed"));
        assert!(!format!("{:?}", secrets("canary")).contains("canary"));
    }
}
