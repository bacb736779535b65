//! Authentication: turns the token of a request into a [`Caller`] with its permissions.
//!
//! `EntryService` puts the caller into the request's extensions; a handler takes it from there
//! ([`By`]) and checks its permissions. The reason of a refusal is logged; clients get the words of
//! RFC 6750 only. Tokens are never logged.

mod bearer;
mod challenge;
mod extract;
mod jwks;
mod jwt;
#[cfg(feature = "ui")]
mod pages;
#[cfg(feature = "ui")]
pub(crate) mod provider;
mod record;

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::secrets::Secret;
use helmdeck_core::{
    Caller, Clock, Code, Credential, Error, Identity, Permissions, SignIn, Timestamp,
    TokenCredential,
};
use helmdeck_egress::Egress;
use helmdeck_memory::StoreError;
use helmdeck_server_config::{AuthConfig, KeySource};
use helmdeck_system::System;
use helmdeck_system::tokens::{
    ApiToken, LINK, OF_JWT, PAGES, PREFIX, PresentedToken, ProvenToken, USED_EVERY,
};
use http::{HeaderMap, Uri};
use jsonwebtoken::{Algorithm, DecodingKey};
use moka::sync::Cache;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

pub(crate) use challenge::{need, need_run, need_token, reach, revoked};
pub(crate) use extract::By;
#[cfg(feature = "ui")]
pub(crate) use pages::is_local;

use crate::problem::Problem;
use challenge::{Refusal, challenge};
use jwks::{Jwks, Source};
use jwt::{Reason, Rules, Unverified};
use record::TokenRecord;

/// Maximum number of verified tokens in the cache.
const MAX_KNOWN: u64 = 10_000;
/// How long a verified JSON Web Token is cached; at most until it expires or its keys change.
const JWT_KNOWN_FOR: Duration = Duration::from_secs(5 * 60);
/// How long an API token is cached: half the time that a revocation may take to reach every
/// process.
const API_TOKEN_KNOWN_FOR: Duration = Duration::from_millis(500);

/// Authentication of callers: at least one of a shared secret, a key set and API tokens.
#[derive(Debug)]
pub struct Auth {
    rules: Rules,
    secret: Option<Secret>,
    keys: Option<Source>,
    tokens: Option<System>,
    /// Where the tokens of browsers are, also if API tokens are off.
    #[cfg(feature = "ui")]
    browsers: Option<System>,
    /// Where people sign in to the pages.
    #[cfg(feature = "ui")]
    provider: Option<provider::ProviderConfig>,
    anonymous: Option<Permissions>,
    grace: Duration,
}

impl Auth {
    /// Makes it from the settings, `None` if authentication is off.
    ///
    /// `secret` signs JSON Web Tokens (HS256); its bytes are used unchanged. `system` holds the API
    /// tokens. `egress` fetches the key set if it has a URL, and allows exactly that host and port.
    ///
    /// # Errors
    /// A message that names the setting, what is wrong with it and what to do.
    pub fn new(
        config: &AuthConfig,
        secret: Option<Secret>,
        system: Option<System>,
        egress: &Egress,
    ) -> Result<Option<Self>, String> {
        if !config.authenticates(secret.as_ref(), system.is_some())? {
            return Ok(None);
        }
        let keys = config.place()?.map(|place| match place {
            KeySource::File(path) => Source::File(path),
            KeySource::Url(url) => Source::Url(url.clone(), egress.naming(&url)),
        });
        #[cfg(feature = "ui")]
        let browsers = system.clone();
        let tokens = system.filter(|_| config.api_tokens);
        let anonymous = config.anonymous()?;
        let rules = Rules {
            issuer: Some(config.issuer.clone()).filter(|issuer| !issuer.is_empty()),
            audience: config.audience.clone(),
            tenant_claim: config.tenant_claim.clone(),
            session_claim: config.session_claim.clone(),
            leeway: config.leeway,
        };
        Ok(Some(Self {
            rules,
            secret,
            keys,
            tokens,
            #[cfg(feature = "ui")]
            browsers,
            #[cfg(feature = "ui")]
            provider: provider::ProviderConfig::new(config, egress),
            anonymous,
            grace: config.grace,
        }))
    }

    /// Sets the secret of a confidential client at the identity provider, for sign-in to the pages.
    #[must_use]
    #[cfg_attr(
        not(feature = "ui"),
        expect(unused_mut, reason = "only the pages have a provider")
    )]
    pub fn client_secret(mut self, secret: Option<Secret>) -> Self {
        #[cfg(feature = "ui")]
        if let Some(provider) = &mut self.provider {
            provider.secret = secret;
        }
        #[cfg(not(feature = "ui"))]
        drop(secret);
        self
    }

    /// Reads the key set once, as a test, and returns the number of its keys; `None` without a key
    /// set.
    ///
    /// # Errors
    /// A message with the reason.
    pub async fn try_keys(&self, clock: Arc<dyn Clock>) -> Result<Option<usize>, String> {
        match &self.keys {
            Some(source) => Jwks::new(source.clone(), clock).read().await.map(Some),
            None => Ok(None),
        }
    }
}

/// Check of tokens, with a cache of valid ones.
pub(crate) struct Access {
    rules: Rules,
    secret: Option<DecodingKey>,
    keys: Option<Jwks>,
    tokens: Option<System>,
    #[cfg(feature = "ui")]
    browsers: Option<System>,
    #[cfg(feature = "ui")]
    provider: Option<provider::Provider>,
    /// The caller of requests without a token.
    anonymous: Caller,
    /// Keyed by the SHA-256 of the token.
    known: Cache<[u8; 32], VerifiedToken>,
    /// The record of API tokens and of browsers.
    record: TokenRecord,
    grace: Duration,
    clock: Arc<dyn Clock>,
}

helmdeck_core::redacted_debug!(Access, this => rules = this.rules);

/// State of the record of API tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordState {
    /// API tokens are off.
    Unused,
    /// It can be reached.
    Reachable,
    /// It cannot, and tokens that were good are still good.
    InGrace,
    /// It cannot, for so long that no token is accepted.
    Away,
}

/// A token that was verified recently.
#[derive(Debug, Clone)]
struct VerifiedToken {
    caller: Caller,
    /// When the token expires.
    ends: Timestamp,
    /// When the entry expires, by the monotonic clock.
    until: Duration,
    /// Until when it counts while the record of tokens cannot be reached, by the monotonic clock.
    grace_until: Duration,
    /// The key set that it was verified with; `None` = none.
    keys: Option<u64>,
}

impl Access {
    pub(crate) fn new(auth: Auth, clock: Arc<dyn Clock>) -> Self {
        Self {
            rules: auth.rules,
            secret: auth
                .secret
                .map(|secret| DecodingKey::from_secret(secret.expose().as_bytes())),
            keys: auth
                .keys
                .map(|source| Jwks::new(source, Arc::clone(&clock))),
            tokens: auth.tokens,
            #[cfg(feature = "ui")]
            browsers: auth.browsers,
            #[cfg(feature = "ui")]
            provider: auth.provider.map(provider::Provider::new),
            anonymous: Caller::new(Identity::anonymous(), auth.anonymous.unwrap_or_default()),
            // The cache uses the system clock, only to free memory. Our clock decides.
            known: Cache::builder()
                .max_capacity(MAX_KNOWN)
                .time_to_live(auth.grace.max(JWT_KNOWN_FOR))
                .build(),
            record: TokenRecord::default(),
            grace: auth.grace,
            clock,
        }
    }

    /// Returns the caller of a request.
    ///
    /// Without a token the caller is anonymous, with the permissions of `anonymous_scope`.
    ///
    /// # Errors
    /// 401 or 400 in the words of RFC 6750; 503 if the keys or the record of tokens cannot be read.
    pub(crate) async fn caller(&self, uri: &Uri, headers: &HeaderMap) -> Result<Caller, Problem> {
        let Some(token) = bearer::token(uri, headers)? else {
            return Ok(self.anonymous.clone());
        };
        let digest = Sha256::digest(token.as_bytes()).into();
        match self.remembered(&digest) {
            Some(caller) => Ok(caller),
            // Rare, and boxed so that it does not enlarge the future of every request.
            None => Box::pin(self.proven(token, digest)).await,
        }
    }

    /// Returns the caller of a request to a page, or to anything else.
    ///
    /// # Errors
    /// As [`Access::caller`].
    pub(crate) async fn caller_of(
        &self,
        page: bool,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Caller, Problem> {
        #[cfg(feature = "ui")]
        if page {
            return Box::pin(self.page_caller(uri, headers)).await;
        }
        #[cfg(not(feature = "ui"))]
        let _ = page;
        self.caller(uri, headers).await
    }

    /// Returns the caller of a token in the cache, if the token is still valid.
    fn remembered(&self, digest: &[u8; 32]) -> Option<Caller> {
        let known = self.known.get(digest)?;
        let keys = known.keys.is_none_or(|keys| {
            self.keys
                .as_ref()
                .is_some_and(|now| now.generation() == keys)
        });
        let good = keys && self.clock.monotonic() < known.until && self.clock.now() < known.ends;
        good.then_some(known.caller)
    }

    /// Returns the caller of a token that was good a short while ago, for as long as its record
    /// cannot be reached.
    fn in_grace(&self, digest: &[u8; 32]) -> Option<Caller> {
        let known = self.known.get(digest)?;
        let good = self.clock.monotonic() < known.grace_until && self.clock.now() < known.ends;
        good.then_some(known.caller)
    }

    /// Asks the record of tokens for a proof, and remembers it. While the record cannot be reached,
    /// a token that was good a short while ago is good.
    async fn proven_by_record(
        &self,
        digest: [u8; 32],
        question: impl Future<Output = Result<Proof, Trouble>>,
    ) -> Result<Caller, Trouble> {
        let began = self.clock.monotonic();
        let good = self.in_grace(&digest);
        if let Some(caller) = &good
            && !self.record.is_due(began)
        {
            return Ok(caller.clone());
        }
        match self
            .record
            .ask(good.is_some(), &*self.clock, question)
            .await
        {
            Ok(proof) => Ok(self.remember(digest, proof, began)),
            Err(Trouble::Unavailable(error)) => good.ok_or(Trouble::Unavailable(error)),
            Err(Trouble::Bad(reason)) => {
                self.known.invalidate(&digest);
                Err(Trouble::Bad(reason))
            }
        }
    }

    fn remember(&self, digest: [u8; 32], proof: Proof, began: Duration) -> Caller {
        let Proof {
            caller,
            ends,
            keys,
            lives,
        } = proof;
        let until = began.saturating_add(lives);
        let grace_until = if keys.is_none() {
            until.max(began.saturating_add(self.grace))
        } else {
            until
        };
        self.known.insert(
            digest,
            VerifiedToken {
                caller: caller.clone(),
                ends,
                until,
                grace_until,
                keys,
            },
        );
        caller
    }

    /// Asks the record of API tokens whether it can be reached.
    pub(crate) async fn record_state(&self) -> RecordState {
        let Some(system) = &self.tokens else {
            return RecordState::Unused;
        };
        let question = async {
            system
                .vault_generation()
                .await
                .map_err(|error| Trouble::Unavailable(unreachable_record(error)))
        };
        if self.record.is_due(self.clock.monotonic()) {
            let _ = self.record.ask(true, &*self.clock, question).await;
        }
        match self.record.away_for(self.clock.monotonic()) {
            None => RecordState::Reachable,
            Some(away) if away < self.grace => RecordState::InGrace,
            Some(_) => RecordState::Away,
        }
    }

    async fn proven(&self, token: &str, digest: [u8; 32]) -> Result<Caller, Problem> {
        let began = self.clock.monotonic();
        let caller = match &self.tokens {
            Some(system) if token.starts_with(PREFIX) => {
                self.proven_by_record(digest, self.check_api_token(system, token))
                    .await
            }
            _ => self
                .check_jwt(token)
                .await
                .map(|proof| self.remember(digest, proof, began)),
        };
        match caller {
            Ok(caller) => Ok(caller),
            Err(Trouble::Bad(reason)) => {
                tracing::info!(%reason, "a request was refused: its token is not valid");
                Err(challenge(Refusal::InvalidToken, bearer::INVALID))
            }
            Err(Trouble::Unavailable(error)) => Err(error.into()),
        }
    }

    async fn check_jwt(&self, token: &str) -> Result<Proof, Trouble> {
        let (claims, keys) = self.verified(&Unverified::open(token)?).await?;
        let (caller, ends) = self.rules.caller(&claims, self.clock.now())?;
        Ok(Proof {
            caller,
            ends,
            keys,
            lives: JWT_KNOWN_FOR,
        })
    }

    /// Checks the signature of a JSON Web Token, and returns its claims and the key set that it was
    /// checked with.
    async fn verified(
        &self,
        token: &Unverified<'_>,
    ) -> Result<(Map<String, Value>, Option<u64>), Trouble> {
        if token.algorithm == Algorithm::HS256 {
            let key = self.secret.as_ref().ok_or(Reason(
                "it is signed with a shared secret, and there is none",
            ))?;
            return Ok((token.verify(key)?, None));
        }
        let keys = self
            .keys
            .as_ref()
            .ok_or(Reason("it is signed with a key, and there is no key set"))?;
        let id = token.key_id.as_deref();
        let current = keys.keys_for(token.algorithm, id).await.ok_or_else(|| {
            let message = "the keys that tokens are checked with are not available";
            Trouble::Unavailable(
                Error::new(Code::Overloaded, message).with_retry_after(jwks::PAUSE),
            )
        })?;
        let mut answer = Err(Reason("there is no key for it"));
        for key in current.set.candidates(token.algorithm, id) {
            answer = token.verify(key);
            if answer.is_ok() {
                break;
            }
        }
        Ok((answer?, Some(current.generation)))
    }

    async fn check_api_token(&self, system: &System, token: &str) -> Result<Proof, Trouble> {
        let presented =
            PresentedToken::parse(token).ok_or(Reason("it is not written as an API token"))?;
        let found = system.prove_token(&presented).await;
        let found = found.map_err(|error| Trouble::Unavailable(unreachable_record(error)))?;
        let found = found.ok_or(Reason("there is no such API token"))?;
        if is_for_pages(&found) {
            return Err(Reason("it is for the pages only").into());
        }
        let now = self.clock.now();
        if !found.is_live(now) {
            return Err(Reason("the API token is revoked or has expired").into());
        }
        self.note_use(system, &found, now);
        let caller = caller_of_token(&found)
            .map_err(|_| Reason("its tenant or subject is not acceptable"))?;
        let ends = found.expires_at.unwrap_or(Timestamp::MAX);
        Ok(Proof {
            caller,
            ends,
            keys: None,
            lives: API_TOKEN_KNOWN_FOR,
        })
    }

    /// Records a use in the background. A failure is no reason to refuse the request.
    fn note_use(&self, system: &System, token: &ApiToken, now: Timestamp) {
        if token
            .used_at
            .is_some_and(|before| now.since(before) < USED_EVERY)
        {
            return;
        }
        let (system, id) = (system.clone(), token.id.clone());
        tokio::spawn(async move {
            if let Err(error) = system.token_used(&id, now).await {
                tracing::debug!(%error, "the use of an API token could not be noted");
            }
        });
    }
}

fn unreachable_record(error: StoreError) -> Error {
    Error::new(
        Code::Overloaded,
        "the record of API tokens is not available",
    )
    .with_source(error)
}

/// Returns the caller that a token proves.
fn caller_of_token(token: &ProvenToken) -> Result<Caller, String> {
    let signed_in = match (token.has_word(OF_JWT), token.ancestors.is_empty()) {
        (true, _) => SignIn::Jwt,
        (false, true) => SignIn::Link,
        (false, false) => SignIn::Token,
    };
    let credential = TokenCredential {
        id: token.id.clone(),
        ancestors: token.ancestors.clone(),
        expires_at: token.expires_at,
        browser: is_for_pages(token).then_some(signed_in),
    };
    let identity = Identity::new(&token.tenant, &token.subject)?;
    Ok(Caller::proven(
        identity,
        Permissions::of_scope(&token.scope),
        Credential::Token(Arc::new(credential)),
    ))
}

/// Says whether a token is that of a browser or of a sign-in link, which are for the pages only.
fn is_for_pages(token: &ApiToken) -> bool {
    token.has_word(PAGES) || token.has_word(LINK)
}

/// Caller that a token proves, and how long to cache it.
struct Proof {
    caller: Caller,
    ends: Timestamp,
    keys: Option<u64>,
    lives: Duration,
}

/// Why authentication failed: the token is not valid, or it cannot be checked.
enum Trouble {
    Bad(Reason),
    Unavailable(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Unavailable(error)
    }
}

impl From<Reason> for Trouble {
    fn from(reason: Reason) -> Self {
        Self::Bad(reason)
    }
}

#[cfg(test)]
mod tests;
