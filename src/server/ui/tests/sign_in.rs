//! Sign-in to the pages: the link that works once, cookies, and the identity provider.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use helmdeck_egress::Egress;
use helmdeck_system::System;
use helmdeck_system::tokens::{LINK, LINK_LIVES, NewToken, PresentedToken};
use helmdeck_testkit::{Issuer, key_set};
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{FORM, ORIGIN, sign_in, token, with_auth};
use crate::fixture::{Answer, Fixture, START};
use crate::{Auth, AuthConfig, ServerConfig};

async fn link(system: &System) -> String {
    let link = NewToken {
        name: "link".to_owned(),
        tenant: "acme".to_owned(),
        subject: "ann".to_owned(),
        scope: format!("packs:run {LINK}"),
        created_at: START,
        expires_at: Some(START.saturating_add(LINK_LIVES)),
        ancestors: Vec::new(),
    };
    system
        .create_token(link)
        .await
        .unwrap()
        .1
        .expose()
        .to_owned()
}

fn cookie(answer: &Answer) -> String {
    answer
        .header("set-cookie")
        .split(';')
        .next()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn link_signs_in_once() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, system) = with_auth(folder.path()).await;
    let code = link(&system).await;
    // It is neither a token of the API nor a cookie.
    let bearer = format!("Bearer {code}");
    assert_eq!(
        fixture
            .send(
                Method::GET,
                "/api/v1/packs",
                &[("authorization", bearer.as_str())],
                ""
            )
            .await
            .status,
        401
    );
    let as_cookie = format!("helmdeck-80={code}");
    assert_eq!(
        fixture
            .send(Method::GET, "/ui", &[("cookie", as_cookie.as_str())], "")
            .await
            .status,
        303
    );
    let first = sign_in(&fixture, &code).await;
    assert_eq!(
        (first.status.as_u16(), first.header("location")),
        (303, "/ui"),
        "{first:?}"
    );
    let cookie = cookie(&first);
    let page = fixture
        .send(Method::GET, "/ui", &[("cookie", cookie.as_str())], "")
        .await;
    assert!(
        page.body.contains("acme/ann") && !page.body.contains("badge\">admin"),
        "{}",
        page.body
    );
    let second = sign_in(&fixture, &code).await;
    assert!(
        second.status == 401 && second.body.contains("used already"),
        "{second:?}"
    );
}

#[tokio::test]
async fn link_ends_after_a_minute() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, system) = with_auth(folder.path()).await;
    let code = link(&system).await;
    fixture.clock.advance(LINK_LIVES);
    let late = sign_in(&fixture, &code).await;
    assert!(
        late.status == 401 && late.header("set-cookie").is_empty(),
        "{late:?}"
    );
    let page = fixture.get("/ui/sign-in").await;
    let script = page
        .body
        .split("src=\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .to_owned();
    assert_eq!(
        fixture.get(&script).await.header("content-type"),
        "text/javascript; charset=utf-8"
    );
}

#[tokio::test]
async fn new_sign_in_ends_the_previous_one() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, system) = with_auth(folder.path()).await;
    let shown = token(&system, "ann", "packs:run", None).await;
    let before = cookie(&sign_in(&fixture, shown.expose()).await);
    let headers = [FORM, ORIGIN, ("cookie", before.as_str())];
    let again = fixture
        .send(
            Method::POST,
            "/ui/sign-in",
            &headers,
            &format!("token={}", shown.expose()),
        )
        .await;
    assert_eq!(again.status, 303);
    fixture.clock.advance(Duration::from_secs(1));
    let visit = async |cookie: &str| {
        fixture
            .send(Method::GET, "/ui", &[("cookie", cookie)], "")
            .await
            .status
            .as_u16()
    };
    assert_eq!(
        (visit(&before).await, visit(&cookie(&again)).await),
        (303, 200)
    );
}

/// Writes a token with the id of another one, and a secret of one's own.
fn forged(token: &str) -> String {
    let body = format!("{}_{}", &token[..19], "0".repeat(64));
    let check: String = Sha256::digest(body.as_bytes())[..4]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    body + &check
}

#[tokio::test]
async fn forged_cookie_revokes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, system) = with_auth(folder.path()).await;
    let own = token(&system, "eve", "packs:run", None).await;
    let signed = cookie(
        &sign_in(
            &fixture,
            token(&system, "ann", "packs:run", None).await.expose(),
        )
        .await,
    );
    let victims = [
        token(&system, "bob", "packs:run", None)
            .await
            .expose()
            .to_owned(),
        token(&system, "root", "admin", None)
            .await
            .expose()
            .to_owned(),
        link(&system).await,
        signed.strip_prefix("helmdeck-80=").unwrap().to_owned(),
    ];
    let mut ids: Vec<&str> = victims.iter().map(|victim| &victim[3..19]).collect();
    ids.sort_unstable();
    for victim in &victims {
        for name in ["helmdeck-80", "__Host-helmdeck"] {
            let shown = format!("{name}={}", forged(victim));
            let headers = [FORM, ORIGIN, ("cookie", shown.as_str())];
            for path in ["/ui/sign-out", "/ui/sign-in"] {
                let body = format!("token={}", own.expose());
                assert_eq!(
                    fixture
                        .send(Method::POST, path, &headers, &body)
                        .await
                        .status,
                    303,
                    "{path}"
                );
            }
            let forged_header = format!("Bearer {}", forged(victim));
            let headers = [("authorization", forged_header.as_str()), ORIGIN];
            let delete = format!("/api/v1/tokens/{}", &victim[3..19]);
            assert_eq!(
                fixture
                    .send(Method::DELETE, &delete, &headers, "")
                    .await
                    .status,
                401
            );
        }
    }
    let mut live: Vec<String> = system
        .tokens()
        .await
        .unwrap()
        .into_iter()
        .filter(|token| token.revoked_at.is_none() && ids.contains(&token.id.as_str()))
        .map(|token| token.id)
        .collect();
    live.sort_unstable();
    assert_eq!(live, ids);
}

#[tokio::test]
async fn browser_is_signed_out_with_what_signed_it_in() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, system) = with_auth(folder.path()).await;
    let short = token(
        &system,
        "ann",
        "packs:run",
        Some(START.saturating_add(Duration::from_secs(40))),
    )
    .await;
    let signed = sign_in(&fixture, short.expose()).await;
    assert!(
        signed.header("set-cookie").contains("Max-Age=40;"),
        "{signed:?}"
    );
    let shown = token(&system, "ann", "packs:run", None).await;
    let signed = cookie(&sign_in(&fixture, shown.expose()).await);
    let visit = async || {
        fixture
            .send(Method::GET, "/ui", &[("cookie", signed.as_str())], "")
            .await
            .status
            .as_u16()
    };
    assert_eq!(visit().await, 200);
    let presented = PresentedToken::parse(shown.expose()).unwrap();
    let proven = system.prove_token(&presented).await.unwrap().unwrap();
    assert!(system.give_up_token(&proven, START).await.unwrap());
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(visit().await, 303);
}

/// An identity provider: it answers each code with tokens that a test has prepared.
struct Provider {
    url: String,
    issuer: Issuer,
    /// What the token endpoint answers, and the code challenge that the verifier must fit.
    prepared: Mutex<(String, Value)>,
}

impl Provider {
    async fn start() -> Arc<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let provider = Arc::new(Self {
            url,
            issuer: Issuer::ec("k1"),
            prepared: Mutex::default(),
        });
        let (of_discovery, of_tokens) = (Arc::clone(&provider), Arc::clone(&provider));
        let routes = Router::new()
            .route(
                "/.well-known/openid-configuration",
                get(move || async move { of_discovery.discovery() }),
            )
            .route(
                "/token",
                post(move |body: String| async move { of_tokens.tokens(&body) }),
            );
        tokio::spawn(async move { axum::serve(listener, routes).await });
        provider
    }

    fn discovery(&self) -> String {
        let url = &self.url;
        json!({
            "issuer": url,
            "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"),
        })
        .to_string()
    }

    fn tokens(&self, body: &str) -> (http::StatusCode, String) {
        let form: HashMap<String, String> = form_urlencoded::parse(body.as_bytes())
            .into_owned()
            .collect();
        let (challenge, answer) = &*self.prepared.lock();
        let fits =
            URL_SAFE_NO_PAD.encode(Sha256::digest(form["code_verifier"].as_bytes())) == *challenge;
        let good =
            fits && form["grant_type"] == "authorization_code" && form["client_id"] == "pages";
        let good = good
            && form["redirect_uri"] == "http://localhost/ui/sign-in/callback"
            && form["code"] == "c1";
        if good {
            (http::StatusCode::OK, answer.to_string())
        } else {
            (http::StatusCode::BAD_REQUEST, String::new())
        }
    }

    /// Claims of an ID token for one attempt.
    fn identity(&self, nonce: &str) -> Value {
        let now = START.micros() / 1_000_000;
        json!({ "iss": self.url, "sub": "ann", "tenant": "acme", "aud": "pages", "exp": now + 300, "iat": now, "nonce": nonce })
    }

    /// Claims of an access token for the server.
    fn access(&self) -> Value {
        let now = START.micros() / 1_000_000;
        json!({ "iss": self.url, "sub": "ann", "tenant": "acme", "aud": "helmdeck", "exp": now + 300, "scope": "packs:run" })
    }

    async fn server(&self, folder: &std::path::Path) -> Fixture {
        let keys = folder.join("jwks.json");
        std::fs::write(&keys, key_set(&[&self.issuer])).unwrap();
        let config = AuthConfig {
            jwks: keys.to_str().unwrap().to_owned(),
            issuer: self.url.clone(),
            client_id: "pages".to_owned(),
            audience: vec!["helmdeck".to_owned()],
            ..AuthConfig::default()
        };
        let egress = Egress::new(helmdeck_egress::Config::default());
        let auth = Auth::new(
            &config,
            None,
            Some(System::at(folder.join("helmdeck.db"))),
            &egress,
        )
        .unwrap()
        .unwrap();
        Fixture::with_auth(ServerConfig::default(), auth).await
    }
}

/// A step to the provider: the browser's cookie and the parameters that the provider gets.
async fn depart(fixture: &Fixture) -> (String, HashMap<String, String>) {
    let away = fixture.get("/ui/sign-in/provider").await;
    assert_eq!(away.status, 303, "{away:?}");
    let (address, query) = away.header("location").split_once('?').unwrap();
    assert!(address.ends_with("/authorize"), "{address}");
    let set = away.header("set-cookie");
    assert!(
        set.contains("HttpOnly") && set.contains("SameSite=Lax"),
        "{set}"
    );
    (
        cookie(&away),
        form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect(),
    )
}

async fn arrive(fixture: &Fixture, cookie: &str, query: &str) -> Answer {
    fixture
        .send(
            Method::GET,
            &format!("/ui/sign-in/callback?{query}"),
            &[("cookie", cookie)],
            "",
        )
        .await
}

#[tokio::test]
async fn provider_signs_a_person_in() {
    let (provider, folder) = (Provider::start().await, tempfile::tempdir().unwrap());
    let fixture = provider.server(folder.path()).await;
    assert!(
        fixture
            .get("/ui/sign-in")
            .await
            .body
            .contains("identity provider</a>")
    );
    let (attempt, sent) = depart(&fixture).await;
    assert_eq!(
        (
            sent["response_type"].as_str(),
            sent["code_challenge_method"].as_str()
        ),
        ("code", "S256")
    );
    let tokens = json!({
        "id_token": provider.issuer.token(&provider.identity(&sent["nonce"])),
        "access_token": provider.issuer.token(&provider.access()),
    });
    *provider.prepared.lock() = (sent["code_challenge"].clone(), tokens);
    let back = arrive(
        &fixture,
        &attempt,
        &format!("code=c1&state={}", sent["state"]),
    )
    .await;
    assert!(
        back.status == 200 && back.body.contains("http-equiv=\"refresh\""),
        "{back:?}"
    );
    let cookies: Vec<_> = back
        .headers
        .get_all("set-cookie")
        .iter()
        .map(|value| value.to_str().unwrap())
        .collect();
    assert!(
        cookies[0].contains("SameSite=Strict") && cookies[1].contains("Max-Age=0"),
        "{cookies:?}"
    );
    let page = fixture
        .send(
            Method::GET,
            "/ui",
            &[("cookie", cookies[0].split(';').next().unwrap())],
            "",
        )
        .await;
    assert!(
        page.status == 200 && page.body.contains("acme/ann"),
        "{page:?}"
    );
}

#[tokio::test]
async fn foreign_answer_of_provider_signs_nobody_in() {
    let (provider, folder) = (Provider::start().await, tempfile::tempdir().unwrap());
    let fixture = provider.server(folder.path()).await;
    let (attempt, sent) = depart(&fixture).await;
    let (other, _) = depart(&fixture).await;
    let challenge = sent["code_challenge"].clone();
    let id = |claims: Value| provider.issuer.token(&claims);
    let good = provider.identity(&sent["nonce"]);
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        claims
    };
    let state = format!("code=c1&state={}", sent["state"]);
    let access = provider.issuer.token(&provider.access());
    for (what, cookie, query, id_token, access_token, challenge) in [
        (
            "no cookie",
            "",
            state.as_str(),
            id(good.clone()),
            access.as_str(),
            challenge.as_str(),
        ),
        (
            "the cookie of another attempt",
            other.as_str(),
            &state,
            id(good.clone()),
            &access,
            &challenge,
        ),
        (
            "another state",
            &attempt,
            "code=c1&state=x",
            id(good.clone()),
            &access,
            &challenge,
        ),
        (
            "another code",
            &attempt,
            &state.replace("c1", "c2"),
            id(good.clone()),
            &access,
            &challenge,
        ),
        (
            "another provider",
            &attempt,
            &format!("{state}&iss=https://evil.example"),
            id(good.clone()),
            &access,
            &challenge,
        ),
        (
            "another verifier",
            &attempt,
            &state,
            id(good.clone()),
            &access,
            "x",
        ),
        (
            "another nonce",
            &attempt,
            &state,
            id(with("nonce", json!("x"))),
            &access,
            &challenge,
        ),
        (
            "another audience",
            &attempt,
            &state,
            id(with("aud", json!("other"))),
            &access,
            &challenge,
        ),
        (
            "two audiences",
            &attempt,
            &state,
            id(with("aud", json!(["pages", "other"]))),
            &access,
            &challenge,
        ),
        (
            "another party",
            &attempt,
            &state,
            id(with("azp", json!("other"))),
            &access,
            &challenge,
        ),
        (
            "another issuer",
            &attempt,
            &state,
            id(with("iss", json!("https://evil.example"))),
            &access,
            &challenge,
        ),
        (
            "an old token",
            &attempt,
            &state,
            id(with("exp", json!(1))),
            &access,
            &challenge,
        ),
        (
            "another key",
            &attempt,
            &state,
            Issuer::ec("k1").token(&good),
            &access,
            &challenge,
        ),
        (
            "a shared secret",
            &attempt,
            &state,
            Issuer::shared(&[7; 32]).token(&good),
            &access,
            &challenge,
        ),
        (
            "no rights",
            &attempt,
            &state,
            id(good.clone()),
            "opaque",
            &challenge,
        ),
        (
            "rights of somebody else",
            &attempt,
            &state,
            id(with("sub", json!("bob"))),
            &access,
            &challenge,
        ),
        (
            "a refusal",
            &attempt,
            &format!("error=%3Cb%3E&state={}", sent["state"]),
            id(good.clone()),
            &access,
            &challenge,
        ),
    ] {
        *provider.prepared.lock() = (
            challenge.to_owned(),
            json!({ "id_token": id_token, "access_token": access_token }),
        );
        let back = arrive(&fixture, cookie, query).await;
        assert!(
            back.status == 401 && back.header("set-cookie").is_empty(),
            "{what}: {back:?}"
        );
        assert!(
            !back.body.contains("<b>") && !back.body.contains(&id_token),
            "{what}: {}",
            back.body
        );
    }
    *provider.prepared.lock() = (
        challenge.clone(),
        json!({ "id_token": id(with("scope", json!("packs:run"))) }),
    );
    assert_eq!(
        arrive(&fixture, &attempt, &state).await.status,
        200,
        "the scope of an ID token is enough"
    );
}

#[tokio::test]
async fn server_without_provider_has_no_such_sign_in() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, _) = with_auth(folder.path()).await;
    assert!(
        !fixture
            .get("/ui/sign-in")
            .await
            .body
            .contains("identity provider</a>")
    );
    assert_eq!(fixture.get("/ui/sign-in/provider").await.status, 401);
    assert_eq!(
        fixture
            .get("/ui/sign-in/callback?code=c&state=s")
            .await
            .status,
        401
    );
}

#[test]
fn client_needs_issuer_and_keys() {
    let with = |issuer: &str, jwks: &str| {
        let (issuer, jwks) = (issuer.to_owned(), jwks.to_owned());
        let audience = vec!["helmdeck".to_owned()];
        AuthConfig {
            client_id: "pages".to_owned(),
            issuer,
            jwks,
            audience,
            ..AuthConfig::default()
        }
        .validate_together()
    };
    assert_eq!(with("https://issuer.example", "/jwks.json"), Ok(()));
    for (issuer, jwks) in [
        ("", "/jwks.json"),
        ("issuer", "/jwks.json"),
        ("http://issuer.example", "/k"),
        ("https://i.example", ""),
    ] {
        assert!(
            with(issuer, jwks).unwrap_err().contains("client_id"),
            "{issuer} {jwks}"
        );
    }
}
