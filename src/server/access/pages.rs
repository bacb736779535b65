//! Browsers: a person signs in with a token, and the browser gets one of its own as a cookie.
//!
//! The cookie is an API token with the rights of the shown one. It is in the lists of tokens, can
//! be revoked like any, and works for the pages only, so that no request that a browser sends by
//! itself reaches the API.

use std::time::Duration;

use helmdeck_core::{Caller, Code, Error, Identity, Permissions, Secret, Timestamp};
use helmdeck_server_config::{host_name, is_local_name};
use helmdeck_system::System;
use helmdeck_system::tokens::{LINK, NewToken, OF_JWT, PAGES, PresentedToken, ProvenToken};
use http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Uri};
use sha2::{Digest, Sha256};

use super::{
    API_TOKEN_KNOWN_FOR, Access, Proof, Reason, Trouble, bearer, caller_of_token,
    unreachable_record,
};
use crate::problem::Problem;

/// How long a browser stays signed in.
pub(crate) const SIGNED_IN_FOR: Duration = Duration::from_secs(12 * 3600);
/// Name of the cookie over HTTPS: browsers take it from this very host only (RFC 6265bis, section
/// 4.1.3.2).
const COOKIE_NAME: &str = "__Host-helmdeck";
/// Start of the cookie's name on a loopback address, which has no HTTPS. The port follows: cookies
/// ignore ports, and servers on two of them must not sign each other out.
const LOCAL_COOKIE_NAME: &str = "helmdeck-";

impl Access {
    /// Returns the caller of a page: by the browser's cookie, or by a token in the header as for
    /// any request.
    ///
    /// A browser whose token has ended is as one that never signed in.
    ///
    /// # Errors
    /// As [`Access::caller`].
    pub(crate) async fn page_caller(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Caller, Problem> {
        let Some(token) = cookie(headers).filter(|_| !headers.contains_key(AUTHORIZATION)) else {
            return self.caller(uri, headers).await;
        };
        // The same bytes in the header are another request, so they have another digest.
        let digest = Sha256::new_with_prefix("cookie:")
            .chain_update(token.as_bytes())
            .finalize()
            .into();
        if let Some(caller) = self.remembered(&digest) {
            return Ok(caller);
        }
        match self
            .proven_by_record(digest, self.check_browser(token))
            .await
        {
            Ok(caller) => Ok(caller),
            Err(Trouble::Bad(_)) => Ok(self.anonymous.clone()),
            Err(Trouble::Unavailable(error)) => Err(error.into()),
        }
    }

    async fn check_browser(&self, token: &str) -> Result<Proof, Trouble> {
        let found = self
            .browser_token(token)
            .await?
            .ok_or(Reason("the browser is not signed in"))?;
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

    /// Returns the token of a browser that is valid.
    async fn browser_token(&self, token: &str) -> Result<Option<ProvenToken>, Error> {
        let (Some(system), Some(presented)) = (&self.browsers, PresentedToken::parse(token)) else {
            return Ok(None);
        };
        let found = system
            .prove_token(&presented)
            .await
            .map_err(unreachable_record)?;
        let browsers = |token: &ProvenToken| token.has_word(PAGES) && !token.has_word(LINK);
        Ok(found.filter(|token| browsers(token) && token.is_live(self.clock.now())))
    }

    /// Exchanges the token of a sign-in link for its caller, once. `None` if it is not such a
    /// token.
    async fn link_caller(&self, token: &str) -> Result<Option<Caller>, String> {
        let (Some(system), Some(presented)) = (&self.browsers, PresentedToken::parse(token)) else {
            return Ok(None);
        };
        let unavailable = |error| {
            tracing::warn!(%error, "a sign-in link could not be checked");
            "the link could not be checked; the log of the server says why".to_owned()
        };
        let found = system.prove_token(&presented).await.map_err(unavailable)?;
        let Some(link) = found.filter(|token| token.has_word(LINK)) else {
            return Ok(None);
        };
        if !system
            .use_up_token(&link, self.clock.now())
            .await
            .map_err(unavailable)?
        {
            return Err(
                "this link was used already, or is older than a minute; run `helmdeck ui` again"
                    .to_owned(),
            );
        }
        // The link is used up, so the browser's token does not descend from it.
        let identity = Identity::new(&link.tenant, &link.subject)?;
        Ok(Some(Caller::new(
            identity,
            Permissions::of_scope(&link.scope),
        )))
    }

    /// Signs a browser in with a token, or with that of a sign-in link, and returns the
    /// `Set-Cookie` header.
    ///
    /// # Errors
    /// What is wrong, for the person: with the token, or with how the server is reached.
    pub(crate) async fn sign_in(
        &self,
        token: &str,
        headers: &HeaderMap,
    ) -> Result<HeaderValue, String> {
        let secure = headers
            .get(ORIGIN)
            .is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
        if !secure && !is_local(headers) {
            return Err(
                "sign in over HTTPS: without it, others could read the token on its way".to_owned(),
            );
        }
        let caller = match self.link_caller(token.trim()).await? {
            Some(caller) => caller,
            None => {
                let mut shown = HeaderMap::new();
                let header = HeaderValue::try_from(format!("Bearer {}", token.trim()))
                    .map_err(|_| bearer::INVALID)?;
                shown.insert(AUTHORIZATION, header);
                self.caller(&Uri::from_static("/ui/sign-in"), &shown)
                    .await
                    .map_err(|_| bearer::INVALID)?
            }
        };
        self.signed_in(&caller, secure, headers).await
    }

    /// Gives a browser a token with the rights of a caller, and returns the `Set-Cookie` header.
    ///
    /// That token ends with the credential of the caller, and at the latest after
    /// [`SIGNED_IN_FOR`]. The browser's previous token is revoked.
    ///
    /// # Errors
    /// What is wrong, for the person.
    pub(crate) async fn signed_in(
        &self,
        caller: &Caller,
        secure: bool,
        headers: &HeaderMap,
    ) -> Result<HeaderValue, String> {
        let system = self
            .browsers
            .as_ref()
            .ok_or("this server has no data folder to keep sign-ins in")?;
        if caller.identity.is_anonymous() {
            return Err(bearer::INVALID.to_owned());
        }
        if caller.identity.session().is_some() {
            // The browser's token would reach the other sessions of its user too.
            return Err(
                "this token is for one session only; sign in with one that is not".to_owned(),
            );
        }
        let now = self.clock.now();
        let ends = now.saturating_add(SIGNED_IN_FOR);
        let ends = caller
            .credential
            .expires_at()
            .map_or(ends, |expires| ends.min(expires));
        let of_jwt = if caller.credential.is_of_jwt() {
            format!(" {OF_JWT}")
        } else {
            String::new()
        };
        let browser = NewToken {
            name: "web".to_owned(),
            tenant: caller.identity.tenant().to_owned(),
            subject: caller.identity.user().to_owned(),
            scope: format!("{} {PAGES}{of_jwt}", caller.permissions.to_scope()),
            created_at: now,
            expires_at: Some(ends),
            ancestors: caller.credential.ancestors_of_child(),
        };
        let (_, text) = system.create_token(browser).await.map_err(|error| {
            tracing::warn!(%error, "a sign-in could not be stored");
            "the sign-in could not be stored; the log of the server says why"
        })?;
        if let Err(error) = self.give_up_cookie(system, headers).await {
            tracing::warn!(%error, "the previous sign-in of a browser could not be revoked");
        }
        set_cookie(&text, headers, secure, ends.since(now).as_secs())
    }

    /// Revokes the token of a browser, if its cookie proves it.
    async fn give_up_cookie(&self, system: &System, headers: &HeaderMap) -> Result<(), Error> {
        let Some(token) = cookie(headers) else {
            return Ok(());
        };
        if let Some(token) = self.browser_token(token).await? {
            let given_up = system.give_up_token(&token, self.clock.now()).await;
            given_up.map_err(|error| {
                Error::new(Code::Overloaded, "the token was not revoked").with_source(error)
            })?;
        }
        Ok(())
    }

    /// Revokes the token of a browser, and returns the `Set-Cookie` header that deletes it there.
    ///
    /// # Errors
    /// A sentence for the person if the token could not be revoked.
    pub(crate) async fn sign_out(&self, headers: &HeaderMap) -> Result<HeaderValue, String> {
        if let Some(system) = &self.browsers {
            self.give_up_cookie(system, headers)
                .await
                .map_err(|error| {
                    tracing::warn!(%error, "a sign-in could not be revoked");
                    "the sign-out could not be stored; try again, or revoke the token at a shell"
                })?;
        }
        set_cookie(&Secret::new(String::new()), headers, !is_local(headers), 0)
    }
}

fn set_cookie(
    token: &Secret,
    headers: &HeaderMap,
    secure: bool,
    seconds: u64,
) -> Result<HeaderValue, String> {
    let local = local_cookie_name(headers);
    let (name, only_https) = if secure {
        (COOKIE_NAME, "; Secure")
    } else {
        (local.as_str(), "")
    };
    let text = format!(
        "{name}={}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{only_https}",
        token.expose()
    );
    let mut value = HeaderValue::try_from(text).map_err(|_| "the cookie cannot be written")?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the token in a browser's cookie.
///
/// The plain name counts on this machine only: a neighbour of a public host could set it.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let local = is_local(headers).then(|| local_cookie_name(headers));
    let local = local.and_then(|name| cookie_named(headers, &name));
    cookie_named(headers, COOKIE_NAME).or(local)
}

/// Returns the value of a cookie.
pub(super) fn cookie_named<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let pairs = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(';'));
    let mut pairs = pairs.filter_map(|pair| pair.trim().split_once('='));
    pairs.find_map(|(name, value)| (name == wanted).then_some(value))
}

/// Returns the cookie's name on a loopback address: it ends in the port that the browser addressed.
fn local_cookie_name(headers: &HeaderMap) -> String {
    format!("{LOCAL_COOKIE_NAME}{}", port_of(headers))
}

/// Returns the port that the browser addressed.
pub(super) fn port_of(headers: &HeaderMap) -> &str {
    let host = headers
        .get(HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default();
    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
    if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) {
        port
    } else {
        "80"
    }
}

/// Says whether the browser addressed this machine by a loopback name.
pub(crate) fn is_local(headers: &HeaderMap) -> bool {
    let host = headers
        .get(HOST)
        .and_then(|host| host.to_str().ok())
        .and_then(host_name);
    host.is_some_and(is_local_name)
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
        assert_eq!(
            cookie(&headers("localhost:7700", &["a=b; helmdeck-7700=x"])),
            Some("x")
        );
        assert_eq!(
            cookie(&headers("localhost:7701", &["helmdeck-7700=x"])),
            None,
            "another server"
        );
        assert_eq!(
            cookie(&headers("[::1]:7700", &["helmdeck-7700=x"])),
            Some("x")
        );
        assert_eq!(cookie(&headers("[::1]", &["helmdeck-80=x"])), Some("x"));
        assert_eq!(
            cookie(&headers("deck.example:7700", &["helmdeck-7700=x"])),
            None
        );
        assert_eq!(
            cookie(&headers(
                "deck.example",
                &["helmdeck-80=x", "__Host-helmdeck=y"]
            )),
            Some("y")
        );
        assert_eq!(cookie(&headers("localhost", &["xhelmdeck-80=x"])), None);
    }

    #[test]
    fn cookie_is_for_scripts_of_nobody() {
        let secret = Secret::new("hd_x".to_owned());
        let local = headers("localhost:7700", &[]);
        let value = set_cookie(&secret, &local, true, 5).unwrap();
        let expected = "__Host-helmdeck=hd_x; Path=/; Max-Age=5; HttpOnly; SameSite=Strict; Secure";
        assert_eq!(value.to_str().unwrap(), expected);
        assert!(value.is_sensitive());
        let expected = "helmdeck-7700=hd_x; Path=/; Max-Age=5; HttpOnly; SameSite=Strict";
        assert_eq!(
            set_cookie(&secret, &local, false, 5)
                .unwrap()
                .to_str()
                .unwrap(),
            expected
        );
    }
}
