//! Settings of authentication. Secrets are not among them: they come from the environment only.

use std::path::PathBuf;
use std::time::Duration;

use helmdeck_core::duration::text;
use helmdeck_core::{Permission, Permissions, Secret};
use serde::{Deserialize, Serialize};
use url::Url;

/// The shortest shared secret, in bytes: as long as the digest of HS256 (RFC 7518, section 3.2).
pub const MIN_SECRET_BYTES: usize = 32;

/// Maximum difference between two clocks.
const MAX_LEEWAY: Duration = Duration::from_secs(5 * 60);

/// Maximum time for which a token is good whose record cannot be reached.
const MAX_GRACE: Duration = Duration::from_secs(24 * 3600);

/// Settings of authentication. It is off without `api_tokens`, `jwks` and a shared secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// Whether tokens of `helmdeck token create` are accepted; off by default.
    pub api_tokens: bool,
    /// Location of the issuer's public keys (a JSON Web Key Set): a file or an https address.
    ///
    /// Empty (the default) = JSON Web Tokens of an issuer are not accepted.
    pub jwks: String,
    /// Required issuer of a JSON Web Token (`iss`); empty (the default) = any issuer with the key.
    pub issuer: String,
    /// Client of the pages at the issuer, where people sign in (OpenID Connect). It needs `issuer`
    /// and `jwks`.
    ///
    /// Empty (the default) = people paste a token.
    pub client_id: String,
    /// Accepted audiences of a JSON Web Token (`aud`). Required with `jwks`.
    pub audience: Vec<String>,
    /// Claim that names the tenant; `tenant` by default.
    ///
    /// The tenant of a token without it is `default`.
    pub tenant_claim: String,
    /// Whether a caller with a JSON Web Token may create API tokens; off by default. They expire
    /// with it at the latest.
    pub tokens_by_jwt: bool,
    /// Claim that names the session, one conversation of the user; `session_id` by default.
    ///
    /// A token without it names no session.
    pub session_claim: String,
    /// Maximum clock difference between issuer and server; 30 s by default, at most 5 min.
    #[serde(with = "text")]
    pub leeway: Duration,
    /// How long an API token that was good stays good while its record cannot be reached; 5 min by
    /// default, 0 = not at all.
    #[serde(with = "text")]
    pub grace: Duration,
    /// Scopes of callers without a token; empty (the default) = they are refused.
    ///
    /// Allowed words are `packs:run`, `packs:run:<glob>` and `metrics:read`.
    pub anonymous_scope: String,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            api_tokens: false,
            jwks: String::new(),
            issuer: String::new(),
            client_id: String::new(),
            audience: Vec::new(),
            tenant_claim: "tenant".to_owned(),
            tokens_by_jwt: false,
            session_claim: "session_id".to_owned(),
            leeway: Duration::from_secs(30),
            grace: Duration::from_secs(5 * 60),
            anonymous_scope: String::new(),
        }
    }
}

/// Location that `jwks` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file.
    File(PathBuf),
    /// An https address, or an http address of this machine.
    Url(Url),
}

impl AuthConfig {
    /// Checks each setting by itself.
    ///
    /// # Errors
    /// A message that names the setting, what is wrong with it and what to do.
    pub fn validate(&self) -> Result<(), String> {
        self.place()?;
        if self.audience.iter().any(String::is_empty) {
            return Err("audience has an empty name".to_owned());
        }
        if self.tenant_claim.is_empty() {
            return Err("tenant_claim is empty; name a claim, for example \"tenant\"".to_owned());
        }
        if self.session_claim.is_empty() {
            return Err(
                "session_claim is empty; name a claim, for example \"session_id\"".to_owned(),
            );
        }
        if self.leeway > MAX_LEEWAY {
            return Err("leeway is over 5m; set the clocks instead".to_owned());
        }
        if self.grace > MAX_GRACE {
            return Err("grace is over 1d; a revoked token would be good for as long".to_owned());
        }
        self.anonymous().map(drop)
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// As [`AuthConfig::validate`].
    pub fn validate_together(&self) -> Result<(), String> {
        if !self.jwks.is_empty() && self.audience.is_empty() {
            let message = "jwks needs audience: without it a token that the same issuer made for another service would be \
                           good here too; name what the issuer puts into \"aud\" for this server";
            return Err(message.to_owned());
        }
        if !self.client_id.is_empty() {
            let issuer = Url::parse(&self.issuer)
                .ok()
                .filter(|url| url.has_host() && is_safe(url));
            if issuer.is_none() || self.jwks.is_empty() {
                let message = "client_id needs issuer, as an https address, and jwks: people sign in at the issuer, and \
                               its keys prove who they are";
                return Err(message.to_owned());
            }
        }
        Ok(())
    }

    /// Checks the settings with the shared secret, and says whether callers have to authenticate.
    ///
    /// `has_system` says whether there is a system database, which holds the API tokens.
    ///
    /// # Errors
    /// A message that names the setting, what is wrong with it and what to do.
    pub fn authenticates(&self, secret: Option<&Secret>, has_system: bool) -> Result<bool, String> {
        self.validate().and_then(|()| self.validate_together())?;
        if secret.is_some_and(|secret| secret.expose().len() < MIN_SECRET_BYTES) {
            return Err(format!(
                "the shared secret for tokens is shorter than {MIN_SECRET_BYTES} bytes"
            ));
        }
        if self.api_tokens && !has_system {
            return Err("api_tokens is on, and there is no data folder to keep them in".to_owned());
        }
        let on = self.api_tokens || !self.jwks.is_empty() || secret.is_some();
        if !on && self.anonymous()?.is_some() {
            let message = "anonymous_scope is set and nothing authenticates: without authentication everybody may do \
                           everything; set api_tokens, jwks or HELMDECK_JWT_SECRET, or leave it empty";
            return Err(message.to_owned());
        }
        Ok(on)
    }

    /// Returns the location of the key set, `None` if there is none.
    ///
    /// # Errors
    /// As [`AuthConfig::validate`].
    pub fn place(&self) -> Result<Option<KeySource>, String> {
        if self.jwks.is_empty() {
            return Ok(None);
        }
        if !self.jwks.contains("://") {
            return Ok(Some(KeySource::File(PathBuf::from(&self.jwks))));
        }
        let url =
            Url::parse(&self.jwks).map_err(|error| format!("jwks is not an address: {error}"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("jwks must not hold a user or password; public keys need none".to_owned());
        }
        if url.host_str().is_none() {
            return Err("jwks has no host; write \"https://issuer.example/jwks.json\"".to_owned());
        }
        if !is_safe(&url) {
            let message = "jwks must be a file or an https address: whoever can change the keys can be anybody";
            return Err(message.to_owned());
        }
        Ok(Some(KeySource::Url(url)))
    }

    /// Returns the permissions of callers without a token, `None` if they are refused.
    ///
    /// # Errors
    /// As [`AuthConfig::validate`].
    pub fn anonymous(&self) -> Result<Option<Permissions>, String> {
        let mut permissions = Vec::new();
        for word in self.anonymous_scope.split_ascii_whitespace() {
            match word
                .parse()
                .map_err(|error| format!("anonymous_scope: {error}"))?
            {
                permission
                @ (Permission::MetricsRead | Permission::RunAny | Permission::Run(_)) => {
                    permissions.push(permission);
                }
                _ => {
                    return Err(format!(
                        "anonymous_scope: {word} is for callers who are known; callers without a token can be given \
                         packs:run, packs:run:<glob> and metrics:read"
                    ));
                }
            }
        }
        Ok((!permissions.is_empty()).then(|| permissions.into_iter().collect()))
    }
}

/// Says whether an address is https, or on this machine, where traffic cannot be changed on its
/// way.
#[must_use]
pub fn is_safe(url: &Url) -> bool {
    let here = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    url.scheme() == "https" || (url.scheme() == "http" && here)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut AuthConfig)) -> Result<(), String> {
        let mut config = AuthConfig::default();
        change(&mut config);
        config.validate().and_then(|()| config.validate_together())
    }

    #[test]
    fn key_set_needs_safe_source_and_audience() {
        let jwks = |place: &str| {
            with(|config| {
                (config.jwks, config.audience) = (place.to_owned(), vec!["helmdeck".to_owned()])
            })
        };
        for good in [
            "/etc/jwks.json",
            "keys.json",
            "https://issuer.example/keys",
            "http://127.0.0.1:1/k",
            "http://localhost/k",
        ] {
            assert_eq!(jwks(good), Ok(()), "{good}");
        }
        for bad in [
            "http://issuer.example/keys",
            "http://localhost.evil.example/k",
            "https://user:canary@issuer.example/k",
            "ftp://issuer.example/k",
            "https://",
        ] {
            let message = jwks(bad).unwrap_err();
            assert!(
                message.contains("jwks") && !message.contains("canary"),
                "{message}"
            );
        }
        assert!(
            with(|config| config.jwks = "/etc/jwks.json".to_owned())
                .unwrap_err()
                .contains("audience")
        );
    }

    #[test]
    fn anonymous_scope_excludes_private_permissions() {
        let scope = |scope: &str| with(|config| config.anonymous_scope = scope.to_owned());
        assert_eq!(scope("packs:run:github.* metrics:read"), Ok(()));
        for bad in [
            "admin",
            "memory:read",
            "packs:run memory:write",
            "packs:walk",
        ] {
            assert!(scope(bad).unwrap_err().contains("anonymous_scope"), "{bad}");
        }
        assert!(with(|config| config.leeway = Duration::from_secs(301)).is_err());
        assert!(with(|config| config.tenant_claim = String::new()).is_err());
        assert!(with(|config| config.session_claim = String::new()).is_err());
    }
    #[test]
    fn any_way_to_authenticate_turns_it_on() {
        let secret = |bytes: usize| Secret::new("s".repeat(bytes));
        let config = |change: fn(&mut AuthConfig)| {
            let mut config = AuthConfig::default();
            change(&mut config);
            config
        };
        let off = AuthConfig::default();
        assert_eq!(off.authenticates(None, false), Ok(false));
        assert_eq!(
            off.authenticates(Some(&secret(MIN_SECRET_BYTES)), false),
            Ok(true)
        );
        assert!(
            off.authenticates(Some(&secret(MIN_SECRET_BYTES - 1)), true)
                .unwrap_err()
                .contains("32 bytes")
        );
        let tokens = config(|config| config.api_tokens = true);
        assert_eq!(tokens.authenticates(None, true), Ok(true));
        assert!(
            tokens
                .authenticates(None, false)
                .unwrap_err()
                .contains("api_tokens")
        );
        let keys = config(|config| {
            (config.jwks, config.audience) = ("/keys.json".to_owned(), vec!["helmdeck".to_owned()])
        });
        assert_eq!(keys.authenticates(None, false), Ok(true));
        let anonymous = config(|config| config.anonymous_scope = "packs:run".to_owned());
        assert!(
            anonymous
                .authenticates(None, true)
                .unwrap_err()
                .contains("anonymous_scope")
        );
        assert_eq!(
            anonymous.authenticates(Some(&secret(MIN_SECRET_BYTES)), true),
            Ok(true)
        );
    }
}
