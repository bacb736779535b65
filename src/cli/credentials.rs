//! Credentials from the environment: `[credentials]` names a variable for each, read once at the start. Never shows a value.

use std::collections::BTreeMap;

use helmdeck_core::secrets::{Grant, Secrets};
use helmdeck_core::{Code, Error, Identity, PackName, Result, Secret};
use helmdeck_memory::{KeyRing, Namespace};

use crate::env::Environment;

/// The credentials of `[credentials]`. Every caller and pack may use each: without authentication there is one caller, and a
/// pack can ask only for what its manifest names.
#[derive(Debug)]
pub(crate) struct EnvironmentSecrets {
    credentials: BTreeMap<String, Credential>,
}

#[derive(Debug)]
struct Credential {
    variable: String,
    /// `None` if the variable is not set, or empty.
    secret: Option<(Secret, u64)>,
}

impl EnvironmentSecrets {
    /// Reads the variables.
    ///
    /// A variable does not say whose token it holds, so a changed token counts as a changed principal: the version is a
    /// digest of the token, keyed with the memory key so that it tells nothing to who does not have it.
    pub(crate) fn new(variables: &BTreeMap<String, String>, env: &Environment, ring: Option<&KeyRing>) -> Self {
        let credential = |(name, variable): (&String, &String)| {
            let text = env.text(variable).ok().flatten().map(str::trim).filter(|text| !text.is_empty());
            let secret = text.map(|text| (Secret::new(text.to_owned()), version(name, text, ring)));
            (name.clone(), Credential { variable: variable.clone(), secret })
        };
        Self { credentials: variables.iter().map(credential).collect() }
    }

    /// Returns the credentials whose variable is not set, as (credential, variable).
    pub(crate) fn unset(&self) -> impl Iterator<Item = (&str, &str)> {
        self.credentials
            .iter()
            .filter(|(_, credential)| credential.secret.is_none())
            .map(|(name, credential)| (name.as_str(), credential.variable.as_str()))
    }

    fn find(&self, name: &str) -> Result<Option<&(Secret, u64)>> {
        let Some(credential) = self.credentials.get(name) else { return Ok(None) };
        credential.secret.as_ref().map(Some).ok_or_else(|| {
            let variable = &credential.variable;
            Error::new(
                Code::CredentialInvalid,
                format!("credential \"{name}\" comes from the variable {variable}, which is not set"),
            )
        })
    }
}

fn version(name: &str, secret: &str, ring: Option<&KeyRing>) -> u64 {
    let Some(ring) = ring else { return 0 };
    let digest = ring.mac(&Namespace::new("local", "", None), "credential", &[name.as_bytes(), secret.as_bytes()]);
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Secrets for EnvironmentSecrets {
    fn grant(&self, name: &str, _: &Identity, _: &PackName) -> Result<Option<Grant>> {
        Ok(self.find(name)?.map(|(_, version)| Grant { name: name.to_owned(), version: *version }))
    }

    fn reveal(&self, grant: &Grant, _: &Identity, _: &PackName) -> Result<Secret> {
        let found = self.find(&grant.name)?.ok_or_else(|| {
            Error::new(Code::CredentialInvalid, format!("credential \"{}\" does not exist", grant.name))
        })?;
        Ok(found.0.clone())
    }

    fn generation(&self) -> u64 {
        // Read once at the start, so nothing changes while the process runs.
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(token: &str, ring: Option<&KeyRing>) -> EnvironmentSecrets {
        let env = Environment::of(&[("GITHUB_TOKEN", token)]);
        let names = [("github-token", "GITHUB_TOKEN"), ("other", "OTHER")];
        let variables = names.map(|(name, variable)| (name.to_owned(), variable.to_owned())).into();
        EnvironmentSecrets::new(&variables, &env, ring)
    }

    fn ask(secrets: &EnvironmentSecrets, name: &str) -> Result<Option<Grant>> {
        secrets.grant(name, &Identity::local(), &PackName::new("a.b").unwrap())
    }

    #[test]
    fn a_named_variable_is_granted_and_revealed() {
        let secrets = secrets(" token\n", None);
        let grant = ask(&secrets, "github-token").unwrap().unwrap();
        let revealed = secrets.reveal(&grant, &Identity::local(), &PackName::new("a.b").unwrap()).unwrap();
        assert_eq!(revealed.expose(), "token");
        assert_eq!(secrets.unset().collect::<Vec<_>>(), [("other", "OTHER")]);
    }

    #[test]
    fn an_unknown_credential_is_absent_and_an_unset_variable_is_an_error() {
        let secrets = secrets("token", None);
        assert_eq!(ask(&secrets, "nobody").unwrap(), None);
        let error = ask(&secrets, "other").unwrap_err();
        assert_eq!(error.code(), Code::CredentialInvalid);
        assert!(error.message().contains("OTHER"), "{error}");
        assert!(ask(&self::secrets("", None), "github-token").is_err());
    }

    #[test]
    fn another_token_is_another_version_and_nothing_shows_it() {
        let ring = KeyRing::parse(("K", &"a".repeat(64)), None).unwrap();
        let version = |token| ask(&secrets(token, Some(&ring)), "github-token").unwrap().unwrap().version;
        assert_eq!(version("canary"), version("canary"));
        assert_ne!(version("canary"), version("other"));
        assert!(!format!("{:?}", secrets("canary", Some(&ring))).contains("canary"));
    }
}
