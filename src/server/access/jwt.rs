//! JSON Web Token: parsing, signature check and claims (RFC 7515, RFC 7519).
//!
//! It follows the advice of RFC 8725. The token never decides how it is checked. The matching key
//! decides the algorithm. A key embedded in the token, or linked from it, is ignored. A token with
//! `crit` is refused.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use helmdeck_core::json::read_strict;
use helmdeck_core::{Caller, Credential, Identity, Permissions, Timestamp};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::{Map, Value};

/// Tenant of a token without a tenant claim.
pub(crate) const DEFAULT_TENANT: &str = "default";

/// Why a token is refused. It is for the log, and never repeats the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reason(pub(crate) &'static str);

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// A token with an unverified signature.
#[derive(Debug)]
pub(crate) struct Unverified<'a> {
    /// Signature algorithm that the header names; one of the four supported ones.
    pub(crate) algorithm: Algorithm,
    /// Key id that the header names.
    pub(crate) key_id: Option<String>,
    /// Header and claims, as they were signed.
    message: &'a str,
    claims: &'a str,
    signature: &'a str,
}

impl<'a> Unverified<'a> {
    /// Splits a token and reads its header.
    pub(crate) fn open(token: &'a str) -> Result<Self, Reason> {
        let (message, signature) = token
            .rsplit_once('.')
            .ok_or(Reason("it is not a token that we know"))?;
        let (header, claims) = message
            .split_once('.')
            .ok_or(Reason("it is not a token that we know"))?;
        if claims.contains('.') {
            return Err(Reason("it has more than three parts"));
        }
        let header = object(header, "its header is not a JSON object")?;
        if header.contains_key("crit") {
            return Err(Reason("it demands an extension (crit)"));
        }
        let algorithm = match header.get("alg").and_then(Value::as_str) {
            Some("HS256") => Algorithm::HS256,
            Some("RS256") => Algorithm::RS256,
            Some("ES256") => Algorithm::ES256,
            Some("EdDSA") => Algorithm::EdDSA,
            _ => return Err(Reason("its algorithm is not one that is accepted")),
        };
        // RFC 8725, section 3.11: a token issued for another purpose (a log-out, a proof of
        // possession) is not an access token.
        let typed = match header.get("typ") {
            None => true,
            Some(Value::String(kind)) => {
                let kind = kind.to_ascii_lowercase();
                matches!(
                    kind.strip_prefix("application/").unwrap_or(&kind),
                    "jwt" | "at+jwt"
                )
            }
            Some(_) => false,
        };
        if !typed {
            return Err(Reason("its type is not that of an access token"));
        }
        let key_id = match header.get("kid") {
            None => None,
            Some(Value::String(id)) => Some(id.clone()),
            Some(_) => return Err(Reason("its key id is not text")),
        };
        Ok(Self {
            algorithm,
            key_id,
            message,
            claims,
            signature,
        })
    }

    /// Checks the signature with a key for the token's algorithm, and returns the claims.
    pub(crate) fn verify(&self, key: &DecodingKey) -> Result<Map<String, Value>, Reason> {
        let good = jsonwebtoken::crypto::verify(
            self.signature,
            self.message.as_bytes(),
            key,
            self.algorithm,
        );
        if !matches!(good, Ok(true)) {
            return Err(Reason("its signature does not fit"));
        }
        object(self.claims, "its claims are not a JSON object")
    }
}

fn object(part: &str, otherwise: &'static str) -> Result<Map<String, Value>, Reason> {
    let bytes = URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| Reason(otherwise))?;
    match read_strict(&bytes) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(Reason(otherwise)),
    }
}

/// Requirements on the claims of a token.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// Required issuer; `None` = any issuer with the key.
    pub(crate) issuer: Option<String>,
    /// Accepted audiences, one of which the token must name; empty = the token must have no
    /// audience.
    pub(crate) audience: Vec<String>,
    /// The claim with the tenant.
    pub(crate) tenant_claim: String,
    /// The claim with the session (one conversation of the user).
    pub(crate) session_claim: String,
    /// Maximum difference between the clocks.
    pub(crate) leeway: Duration,
}

impl Rules {
    /// Returns the caller of verified claims, and the expiry of the token.
    pub(crate) fn caller(
        &self,
        claims: &Map<String, Value>,
        now: Timestamp,
    ) -> Result<(Caller, Timestamp), Reason> {
        let expires = time(claims, "exp")?
            .ok_or(Reason("it has no end (exp)"))?
            .saturating_add(self.leeway);
        if now >= expires {
            return Err(Reason("it has expired"));
        }
        let soon = now.saturating_add(self.leeway);
        if time(claims, "nbf")?.is_some_and(|begin| begin > soon) {
            return Err(Reason("it is not valid yet (nbf)"));
        }
        if time(claims, "iat")?.is_some_and(|issued| issued > soon) {
            return Err(Reason("it was issued in the future (iat)"));
        }
        if self
            .issuer
            .as_deref()
            .is_some_and(|issuer| claims.get("iss").and_then(Value::as_str) != Some(issuer))
        {
            return Err(Reason("its issuer is another"));
        }
        self.check_audience(claims.get("aud"))?;
        let user = text(claims, "sub")?.ok_or(Reason("it names nobody (sub)"))?;
        let tenant = text(claims, &self.tenant_claim)?.unwrap_or(DEFAULT_TENANT);
        let identity = Identity::new(tenant, user)
            .map_err(|_| Reason("its tenant or subject is not acceptable"))?;
        let identity = match claims.get(&self.session_claim) {
            None => identity,
            Some(Value::String(session)) => identity
                .with_session(session)
                .map_err(|_| Reason("its session is not acceptable"))?,
            Some(_) => return Err(Reason("its session is not text")),
        };
        let permissions = match claims.get("scope") {
            None => Permissions::none(),
            Some(Value::String(scope)) => Permissions::of_scope(scope),
            Some(Value::Array(words)) => words
                .iter()
                .filter_map(Value::as_str)
                .filter_map(|word| word.parse().ok())
                .collect(),
            Some(_) => return Err(Reason("its scope is neither text nor a list")),
        };
        Ok((
            Caller::proven(
                identity,
                permissions,
                Credential::Jwt {
                    expires_at: expires,
                },
            ),
            expires,
        ))
    }

    /// Checks `aud`: a server that is not named must refuse the token, even if it has no name.
    ///
    /// RFC 7519, section 4.1.3.
    fn check_audience(&self, audience: Option<&Value>) -> Result<(), Reason> {
        let ours = |value: &Value| {
            value
                .as_str()
                .is_some_and(|name| self.audience.iter().any(|known| known == name))
        };
        let good = match audience {
            None => self.audience.is_empty(),
            Some(Value::Array(names)) => names.iter().any(ours),
            Some(name) => ours(name),
        };
        if good {
            Ok(())
        } else {
            Err(Reason("it is for another audience (aud)"))
        }
    }
}

fn text<'a>(claims: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, Reason> {
    match claims.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Reason("its tenant or subject is not text")),
    }
}

/// Reads a `NumericDate` (RFC 7519, section 2): seconds, perhaps with a fraction.
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<Timestamp>, Reason> {
    let Some(value) = claims.get(name) else {
        return Ok(None);
    };
    let seconds = value
        .as_f64()
        .filter(|seconds| (0.0..1e15).contains(seconds));
    let seconds = seconds.ok_or(Reason("one of its times is not a number of seconds"))?;
    Ok(Some(
        Timestamp(0).saturating_add(Duration::from_secs_f64(seconds)),
    ))
}

#[cfg(test)]
mod tests;
