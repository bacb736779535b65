//! Sign-in at the identity provider: the authorization code flow of OpenID Connect, with PKCE,
//! state and nonce.
//!
//! The ID token says who signed in, for this browser and this attempt. The rights come from the
//! access token, which must be good for the REST routes too; or from the scope of the ID token, if
//! it has one.

use std::time::Duration;

use aes_gcm::aead::Generate;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use helmdeck_core::{Caller, Clock, Secret, hex};
use helmdeck_egress::Egress;
use helmdeck_server_config::{AuthConfig, is_safe};
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, StatusCode};
use jsonwebtoken::Algorithm;
use parking_lot::Mutex;
use reqwest::{RequestBuilder, Url};
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::jwt::{Rules, Unverified};
use super::pages::{cookie_named, is_local, port_of};
use super::{Access, Trouble};

/// How long a person may take at the identity provider.
const ATTEMPT_LIVES: Duration = Duration::from_secs(10 * 60);
/// How long the provider's addresses are kept.
const KNOWN_FOR: Duration = Duration::from_secs(5 * 60);
/// Time limit of a request to the provider.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of an answer of the provider.
const MAX_BYTES: usize = 256 << 10;
/// Path that the provider sends the browser back to.
pub(crate) const CALLBACK: &str = "/ui/sign-in/callback";

/// Settings of the sign-in at an identity provider.
#[derive(Debug, Clone)]
pub(super) struct ProviderConfig {
    pub(super) issuer: Url,
    /// The issuer as tokens write it.
    pub(super) issuer_text: String,
    pub(super) client_id: String,
    /// Secret of a confidential client.
    pub(super) secret: Option<Secret>,
    pub(super) egress: Egress,
}

impl ProviderConfig {
    /// Returns the settings of the provider that people sign in at, `None` if there is none.
    pub(super) fn new(config: &AuthConfig, egress: &Egress) -> Option<Self> {
        if config.client_id.is_empty() {
            return None;
        }
        Some(Self {
            issuer: Url::parse(&config.issuer).ok()?,
            issuer_text: config.issuer.clone(),
            client_id: config.client_id.clone(),
            secret: None,
            egress: egress.clone(),
        })
    }
}

/// The identity provider.
pub(super) struct Provider {
    config: ProviderConfig,
    /// Its addresses, and when they were read.
    known: Mutex<Option<(Duration, Endpoints)>>,
}

helmdeck_core::redacted_debug!(Provider);

/// Addresses of a provider (OpenID Connect Discovery 1.0, section 3).
#[derive(Debug, Clone, Deserialize)]
struct Endpoints {
    issuer: String,
    authorization_endpoint: Url,
    token_endpoint: Url,
}

/// Answer of the token endpoint (OpenID Connect Core 1.0, section 3.1.3.3).
#[derive(Deserialize)]
struct Tokens {
    id_token: String,
    access_token: Option<String>,
}

/// Values of one sign-in. The browser keeps them until it comes back.
struct Attempt {
    state: String,
    nonce: String,
    /// The code verifier of PKCE (RFC 7636).
    verifier: String,
}

impl Attempt {
    fn new() -> Result<Self, String> {
        let random = || {
            <[u8; 32]>::try_generate()
                .map(|bytes| hex(&bytes))
                .map_err(|_| "no random numbers".to_owned())
        };
        Ok(Self {
            state: random()?,
            nonce: random()?,
            verifier: random()?,
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.').map(str::to_owned);
        let attempt = Self {
            state: parts.next()?,
            nonce: parts.next()?,
            verifier: parts.next()?,
        };
        let whole = [&attempt.state, &attempt.nonce, &attempt.verifier]
            .iter()
            .all(|part| part.len() == 64);
        whole.then_some(attempt)
    }

    fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()))
    }
}

/// A step to the provider: where to send the browser, and the cookie that it keeps.
pub(crate) struct Departure {
    pub(crate) location: String,
    pub(crate) cookie: HeaderValue,
}

impl Provider {
    pub(super) fn new(config: ProviderConfig) -> Self {
        Self {
            config,
            known: Mutex::new(None),
        }
    }

    async fn endpoints(&self, clock: &dyn Clock) -> Result<Endpoints, String> {
        let now = clock.monotonic();
        if let Some((at, known)) = &*self.known.lock()
            && now.saturating_sub(*at) < KNOWN_FOR
        {
            return Ok(known.clone());
        }
        let mut url = self.config.issuer.clone();
        url.set_path(&format!(
            "{}/.well-known/openid-configuration",
            url.path().trim_end_matches('/')
        ));
        let client = self
            .config
            .egress
            .naming(&url)
            .client()
            .await
            .map_err(|error| error.to_string())?;
        let found: Endpoints = read(client.get(url)).await?;
        // OpenID Connect Discovery 1.0, section 4.3.
        if found.issuer != self.config.issuer_text {
            return Err("the identity provider names another issuer".to_owned());
        }
        for endpoint in [&found.authorization_endpoint, &found.token_endpoint] {
            if !is_safe(endpoint) {
                return Err("an address of the identity provider is not https".to_owned());
            }
        }
        *self.known.lock() = Some((now, found.clone()));
        Ok(found)
    }

    async fn tokens(
        &self,
        endpoints: &Endpoints,
        code: &str,
        verifier: &str,
        back: &str,
    ) -> Result<Tokens, String> {
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", back)
            .append_pair("code_verifier", verifier)
            .append_pair("client_id", &self.config.client_id)
            .finish();
        let url = endpoints.token_endpoint.clone();
        let client = self
            .config
            .egress
            .naming(&url)
            .client()
            .await
            .map_err(|error| error.to_string())?;
        let mut request = client
            .post(url)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(secret) = &self.config.secret {
            // RFC 6749, section 2.3.1: both are form-encoded first.
            let encoded =
                |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            request = request.basic_auth(
                encoded(&self.config.client_id),
                Some(encoded(secret.expose())),
            );
        }
        read(request.body(form)).await
    }
}

impl Access {
    /// Says whether people can sign in at an identity provider.
    pub(crate) fn has_provider(&self) -> bool {
        self.provider.is_some()
    }

    /// Begins a sign-in at the identity provider.
    ///
    /// # Errors
    /// What is wrong, for the person.
    pub(crate) async fn depart(&self, headers: &HeaderMap) -> Result<Departure, String> {
        let provider = self
            .provider
            .as_ref()
            .ok_or("this server has no identity provider")?;
        let (attempt, back) = (Attempt::new()?, callback(headers)?);
        let endpoints = provider
            .endpoints(&*self.clock)
            .await
            .map_err(unreachable)?;
        let mut location = endpoints.authorization_endpoint;
        location
            .query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &provider.config.client_id)
            .append_pair("redirect_uri", &back)
            .append_pair("scope", "openid")
            .append_pair("state", &attempt.state)
            .append_pair("nonce", &attempt.nonce)
            .append_pair("code_challenge", &attempt.challenge())
            .append_pair("code_challenge_method", "S256");
        let value = format!("{}.{}.{}", attempt.state, attempt.nonce, attempt.verifier);
        Ok(Departure {
            location: location.into(),
            cookie: attempt_cookie(headers, &value, ATTEMPT_LIVES)?,
        })
    }

    /// Ends a sign-in with what the provider sent back, and returns the caller.
    ///
    /// # Errors
    /// What is wrong, for the person.
    pub(crate) async fn arrive(&self, query: &str, headers: &HeaderMap) -> Result<Caller, String> {
        let provider = self
            .provider
            .as_ref()
            .ok_or("this server has no identity provider")?;
        let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect();
        let get = |name: &str| {
            pairs
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.as_str())
        };
        let attempt = cookie_named(headers, &attempt_cookie_name(headers)).and_then(Attempt::parse);
        // The state ties the answer to this browser: nobody is signed in by a link of somebody
        // else.
        let attempt = attempt
            .filter(|attempt| get("state") == Some(attempt.state.as_str()))
            .ok_or("this sign-in was not begun in this browser, or took too long; begin again")?;
        // RFC 9207: an answer of another provider is not sent to this one.
        if get("iss").is_some_and(|issuer| issuer != provider.config.issuer_text) {
            return Err("the answer is of another identity provider".to_owned());
        }
        let Some(code) = get("code") else {
            let word: String = get("error")
                .unwrap_or("no code")
                .chars()
                .filter(char::is_ascii_graphic)
                .take(60)
                .collect();
            return Err(format!("the identity provider did not sign you in: {word}"));
        };
        let endpoints = provider
            .endpoints(&*self.clock)
            .await
            .map_err(unreachable)?;
        let back = callback(headers)?;
        let tokens = provider
            .tokens(&endpoints, code, &attempt.verifier, &back)
            .await
            .map_err(unreachable)?;
        let caller = self
            .identified(provider, &tokens.id_token, &attempt.nonce)
            .await
            .map_err(|reason| {
                tracing::info!(reason, "a sign-in was refused: its ID token is not valid");
                "the identity provider's answer is not valid; the log of the server says why"
                    .to_owned()
            })?;
        self.with_rights(caller, tokens.access_token.as_deref())
            .await
    }

    /// Checks an ID token (OpenID Connect Core 1.0, section 3.1.3.7), and returns its caller.
    async fn identified(
        &self,
        provider: &Provider,
        token: &str,
        nonce: &str,
    ) -> Result<Caller, String> {
        let reason = |trouble| match trouble {
            Trouble::Bad(reason) => reason.to_string(),
            Trouble::Unavailable(error) => error.to_string(),
        };
        let unverified = Unverified::open(token).map_err(|reason| reason.to_string())?;
        if unverified.algorithm == Algorithm::HS256 {
            return Err("it is signed with a shared secret".to_owned());
        }
        let (claims, _) = self.verified(&unverified).await.map_err(reason)?;
        let client = &provider.config.client_id;
        if claims.get("nonce").and_then(Value::as_str) != Some(nonce) {
            return Err("it is of another sign-in (nonce)".to_owned());
        }
        if claims
            .get("azp")
            .is_some_and(|party| party.as_str() != Some(client))
            || has_other_audience(&claims, client)
        {
            return Err("it is for another client (azp, aud)".to_owned());
        }
        let rules = Rules {
            issuer: Some(provider.config.issuer_text.clone()),
            audience: vec![client.clone()],
            ..self.rules.clone()
        };
        rules
            .caller(&claims, self.clock.now())
            .map(|(caller, _)| caller)
            .map_err(|reason| reason.to_string())
    }

    /// Gives a caller the rights of its access token; without a usable one, those of its ID token.
    async fn with_rights(
        &self,
        caller: Caller,
        access_token: Option<&str>,
    ) -> Result<Caller, String> {
        if let Some(token) = access_token
            && let Ok(proof) = self.check_jwt(token).await
            && proof.caller.identity.tenant() == caller.identity.tenant()
            && proof.caller.identity.user() == caller.identity.user()
        {
            return Ok(proof.caller);
        }
        if caller.permissions.is_empty() {
            return Err("you are known, but the identity provider gave you no rights here: neither its access token \
                        (audience, scope) nor the scope of its ID token names any"
                .to_owned());
        }
        Ok(caller)
    }
}

/// Says whether an ID token is for another audience too, and does not say that it was issued for
/// this client.
fn has_other_audience(claims: &Map<String, Value>, client: &str) -> bool {
    let others = claims
        .get("aud")
        .and_then(Value::as_array)
        .is_some_and(|all| all.iter().any(|one| one != client));
    others && !claims.contains_key("azp")
}

fn unreachable(reason: String) -> String {
    tracing::warn!(reason, "the identity provider cannot be used");
    "the identity provider cannot be used now; try again, or sign in with a token".to_owned()
}

/// Returns the address that the provider sends the browser back to. It must be registered there.
fn callback(headers: &HeaderMap) -> Result<String, String> {
    let host = headers
        .get(HOST)
        .and_then(|host| host.to_str().ok())
        .ok_or("the request names no host")?;
    let scheme = if is_local(headers) { "http" } else { "https" };
    Ok(format!("{scheme}://{host}{CALLBACK}"))
}

fn attempt_cookie_name(headers: &HeaderMap) -> String {
    if is_local(headers) {
        format!("helmdeck-sign-in-{}", port_of(headers))
    } else {
        "__Host-helmdeck-sign-in".to_owned()
    }
}

/// Makes the cookie of an attempt. It is lax: the browser comes back by a redirect that another
/// site began.
fn attempt_cookie(
    headers: &HeaderMap,
    value: &str,
    lives: Duration,
) -> Result<HeaderValue, String> {
    let name = attempt_cookie_name(headers);
    let only_https = if is_local(headers) { "" } else { "; Secure" };
    let text = format!(
        "{name}={value}; Path=/; Max-Age={}; HttpOnly; SameSite=Lax{only_https}",
        lives.as_secs()
    );
    let mut value = HeaderValue::try_from(text).map_err(|_| "the cookie cannot be written")?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the cookie that ends an attempt.
///
/// # Errors
/// If the host cannot be part of a cookie.
pub(crate) fn ended_attempt(headers: &HeaderMap) -> Result<HeaderValue, String> {
    attempt_cookie(headers, "", Duration::ZERO)
}

/// Sends a request and reads its JSON. No error repeats an address or a token.
async fn read<T: serde::de::DeserializeOwned>(request: RequestBuilder) -> Result<T, String> {
    let failed = |error: reqwest::Error| match helmdeck_egress::refusal(&error) {
        Some(refused) => refused.to_string(),
        None => error.without_url().to_string(),
    };
    let reading = async {
        let mut answer = request.send().await.map_err(failed)?;
        if answer.status() != StatusCode::OK {
            return Err(format!("the answer was {}", answer.status()));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            if bytes.len() + chunk.len() > MAX_BYTES {
                return Err("the answer is too large".to_owned());
            }
            bytes.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&bytes)
            .map_err(|error| format!("the answer has another form (line {})", error.line()))
    };
    let late = |_| format!("no answer within {} s", TIMEOUT.as_secs());
    tokio::time::timeout(TIMEOUT, reading).await.map_err(late)?
}
