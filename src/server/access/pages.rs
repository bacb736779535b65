//! Browsers: a person signs in with a token, and the browser gets one of its own as a cookie.
//!
//! The cookie is an API token with the rights of the shown one. It is in the lists of tokens, can be revoked like any,
//! and works for the pages only, so that no request that a browser sends by itself reaches the API.

use std::time::Duration;

use helmdeck_core::{Caller, Code, Error, Identity, Permissions, Secret};
use helmdeck_system::tokens::{ApiToken, Shown};
use http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Uri};
use sha2::{Digest, Sha256};

use super::{API_TOKEN_KNOWN_FOR, Access, PAGES, VerifiedToken, bearer, is_for_pages};
use crate::guard;
use crate::problem::Problem;

/// How long a browser stays signed in.
pub(crate) const SIGNED_IN_FOR: Duration = Duration::from_secs(12 * 3600);
/// Name of the cookie over HTTPS: browsers take it from this very host only (RFC 6265bis, section 4.1.3.2).
const COOKIE_NAME: &str = "__Host-helmdeck";
/// Name of the cookie on a loopback address, which has no HTTPS.
const LOCAL_COOKIE_NAME: &str = "helmdeck";

impl Access {
    /// Returns the caller of a page: by the browser's cookie, or by a token in the header as for any request.
    ///
    /// A browser whose token has ended is as one that never signed in.
    ///
    /// # Errors
    /// As [`Access::caller`].
    pub(crate) async fn page_caller(&self, uri: &Uri, headers: &HeaderMap) -> Result<Caller, Problem> {
        let Some(token) = cookie(headers).filter(|_| !headers.contains_key(AUTHORIZATION)) else {
            return self.caller(uri, headers).await;
        };
        // The same bytes in the header are another request, so they have another digest.
        let digest = Sha256::new_with_prefix("cookie:").chain_update(token.as_bytes()).finalize().into();
        if let Some(caller) = self.remembered(&digest) {
            return Ok(caller);
        }
        let began = self.clock.monotonic();
        let Some(found) = self.browser_token(token).await? else { return Ok(self.anonymous.clone()) };
        let Ok(identity) = Identity::new(&found.tenant, &found.subject) else { return Ok(self.anonymous.clone()) };
        let permissions = Permissions::of_scope(&found.scope);
        let caller = Caller { identity: identity.into(), permissions: permissions.into() };
        let until = began.saturating_add(API_TOKEN_KNOWN_FOR);
        let ends = found.expires_at.unwrap_or(helmdeck_core::Timestamp::MAX);
        self.known.insert(digest, VerifiedToken { caller: caller.clone(), ends, until, keys: None });
        Ok(caller)
    }

    async fn browser_token(&self, token: &str) -> Result<Option<ApiToken>, Problem> {
        let (Some(system), Some(shown)) = (&self.browsers, Shown::parse(token)) else { return Ok(None) };
        let found = system.find_token(&shown).await.map_err(|error| {
            Error::new(Code::Overloaded, "the record of tokens is not available").with_source(error)
        })?;
        Ok(found.filter(|token| is_for_pages(token) && token.is_live(self.clock.now())))
    }

    /// Signs a browser in with a token, and returns the `Set-Cookie` header.
    ///
    /// # Errors
    /// What is wrong, for the person: with the token, or with how the server is reached.
    pub(crate) async fn sign_in(&self, token: &str, headers: &HeaderMap) -> Result<HeaderValue, String> {
        let secure = headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
        if !secure && !is_local(headers) {
            return Err("sign in over HTTPS: without it, others could read the token on its way".to_owned());
        }
        let system = self.browsers.as_ref().ok_or("this server has no data folder to keep sign-ins in")?;
        let mut shown = HeaderMap::new();
        let header = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| bearer::INVALID)?;
        shown.insert(AUTHORIZATION, header);
        let caller = self.caller(&Uri::from_static("/ui/sign-in"), &shown).await.map_err(|_| bearer::INVALID)?;
        if caller.identity.session().is_some() {
            // The browser's token would reach the other sessions of its user too.
            return Err("this token is for one session only; sign in with one that is not".to_owned());
        }
        let now = self.clock.now();
        let browser = ApiToken {
            id: String::new(),
            name: "web".to_owned(),
            tenant: caller.identity.tenant().to_owned(),
            subject: caller.identity.user().to_owned(),
            scope: format!("{} {PAGES}", caller.permissions.to_scope()),
            created_at: now,
            expires_at: Some(now.saturating_add(SIGNED_IN_FOR)),
            revoked_at: None,
            used_at: None,
        };
        let (_, text) = system.create_token(browser).await.map_err(|error| {
            tracing::warn!(%error, "a sign-in could not be stored");
            "the sign-in could not be stored; the log of the server says why"
        })?;
        set_cookie(&text, secure, SIGNED_IN_FOR.as_secs())
    }

    /// Revokes the token of a browser, and returns the `Set-Cookie` header that deletes it there.
    ///
    /// # Errors
    /// A sentence for the person if the token could not be revoked.
    pub(crate) async fn sign_out(&self, headers: &HeaderMap) -> Result<HeaderValue, String> {
        if let (Some(system), Some(shown)) = (&self.browsers, cookie(headers).and_then(Shown::parse)) {
            system.revoke_token(shown.id(), self.clock.now()).await.map_err(|error| {
                tracing::warn!(%error, "a sign-in could not be revoked");
                "the sign-out could not be stored; try again, or revoke the token at a shell"
            })?;
        }
        set_cookie(&Secret::new(String::new()), !is_local(headers), 0)
    }
}

fn set_cookie(token: &Secret, secure: bool, seconds: u64) -> Result<HeaderValue, String> {
    let (name, only_https) = if secure { (COOKIE_NAME, "; Secure") } else { (LOCAL_COOKIE_NAME, "") };
    let text = format!("{name}={}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{only_https}", token.expose());
    let mut value = HeaderValue::try_from(text).map_err(|_| "the cookie cannot be written")?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the token in a browser's cookie.
///
/// The plain name counts on this machine only: a neighbour of a public host could set it.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let local = is_local(headers);
    let pairs = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(';'));
    pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(name, value)| (name == COOKIE_NAME || (local && name == LOCAL_COOKIE_NAME)).then_some(value))
}

/// Says whether the browser addressed this machine by a loopback name.
fn is_local(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).and_then(guard::host_name);
    host.is_some_and(guard::is_local_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(host: &str, cookies: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
        for cookie in cookies {
            headers.append(COOKIE, cookie.parse().unwrap());
        }
        headers
    }

    #[test]
    fn plain_cookie_counts_on_this_machine_only() {
        assert_eq!(cookie(&headers("localhost:7700", &["a=b; helmdeck=x"])), Some("x"));
        assert_eq!(cookie(&headers("deck.example", &["helmdeck=x"])), None);
        assert_eq!(cookie(&headers("deck.example", &["helmdeck=x", "__Host-helmdeck=y"])), Some("y"));
        assert_eq!(cookie(&headers("localhost", &["xhelmdeck=x"])), None);
    }

    #[test]
    fn cookie_is_for_scripts_of_nobody() {
        let secret = Secret::new("hd_x".to_owned());
        let value = set_cookie(&secret, true, 5).unwrap();
        let expected = "__Host-helmdeck=hd_x; Path=/; Max-Age=5; HttpOnly; SameSite=Strict; Secure";
        assert_eq!(value.to_str().unwrap(), expected);
        assert!(value.is_sensitive());
        assert!(!set_cookie(&secret, false, 5).unwrap().to_str().unwrap().contains("Secure"));
    }
}
