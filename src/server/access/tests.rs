//! Authentication through the whole router: which requests are admitted, and what they may do.

use std::path::{Path, PathBuf};

use helmdeck_system::tokens::{NewToken, TokenReach};
use helmdeck_testkit::{Issuer, key_set, until};
use http::Method;
use serde_json::{Value, json};

use super::*;
use crate::ServerConfig;
use crate::fixture::{Answer, Fixture, START};

const SECRET: &[u8] = b"a shared secret of 32 bytes or so";
const RUN: &str = "/api/v1/packs/test.plain";
const CACHED: &str = "/api/v1/packs/test.cached";

fn egress() -> Egress {
    Egress::new(helmdeck_egress::Config::default())
}

fn auth(config: &AuthConfig, folder: &Path) -> Auth {
    let secret = Secret::new(String::from_utf8(SECRET.to_vec()).unwrap());
    let system = System::at(folder.join("helmdeck.db"));
    Auth::new(config, Some(secret), Some(system), &egress())
        .unwrap()
        .unwrap()
}

/// A server that accepts tokens of the shared secret, of the key set and of the database.
struct TestServer {
    fixture: Fixture,
    system: System,
    folder: tempfile::TempDir,
}

/// The system database, while it cannot be read.
struct Away {
    files: Vec<(PathBuf, PathBuf)>,
    _aside: tempfile::TempDir,
}

impl Away {
    fn put_back(self) {
        std::fs::remove_dir(&self.files[0].0).unwrap();
        for (from, to) in self.files.iter().filter(|(_, to)| to.exists()) {
            std::fs::rename(to, from).unwrap();
        }
    }
}

impl TestServer {
    fn take_database_away(&self) -> Away {
        let aside = tempfile::tempdir().unwrap();
        let files = ["", "-wal", "-shm"].map(|suffix| {
            let name = format!("helmdeck.db{suffix}");
            (self.folder.path().join(&name), aside.path().join(&name))
        });
        for (from, to) in files.iter().filter(|(from, _)| from.exists()) {
            std::fs::rename(from, to).unwrap();
        }
        std::fs::create_dir(&files[0].0).unwrap();
        Away {
            files: files.into(),
            _aside: aside,
        }
    }

    async fn open(config: AuthConfig, issuers: &[&Issuer]) -> Self {
        Self::over(ServerConfig::default(), config, issuers).await
    }

    async fn over(server: ServerConfig, mut config: AuthConfig, issuers: &[&Issuer]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        if !issuers.is_empty() {
            let path = folder.path().join("jwks.json");
            std::fs::write(&path, key_set(issuers)).unwrap();
            config.jwks = path.to_str().unwrap().to_owned();
            config.audience = vec!["helmdeck".to_owned()];
        }
        config.api_tokens = true;
        let fixture = Fixture::with_auth(server, auth(&config, folder.path())).await;
        Self {
            fixture,
            system: System::at(folder.path().join("helmdeck.db")),
            folder,
        }
    }

    async fn plain() -> Self {
        Self::open(AuthConfig::default(), &[]).await
    }

    async fn send(&self, method: Method, path: &str, token: &str, body: &str) -> Answer {
        let bearer = format!("Bearer {token}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
        ];
        self.fixture
            .send(
                method,
                path,
                &headers[usize::from(token.is_empty())..],
                body,
            )
            .await
    }

    async fn post(&self, path: &str, token: &str, body: &str) -> Answer {
        self.send(Method::POST, path, token, body).await
    }

    async fn get(&self, path: &str, token: &str) -> Answer {
        self.send(Method::GET, path, token, "").await
    }

    /// Makes an API token and returns its id and text.
    async fn api_token(
        &self,
        tenant: &str,
        user: &str,
        scope: &str,
        expires_at: Option<Timestamp>,
    ) -> (String, String) {
        let token = NewToken {
            name: String::new(),
            tenant: tenant.to_owned(),
            subject: user.to_owned(),
            scope: scope.to_owned(),
            created_at: START,
            expires_at,
            ancestors: Vec::new(),
        };
        let (made, text) = self.system.create_token(token).await.unwrap();
        (made.id, text.expose().to_owned())
    }
}

fn claims(user: &str, scope: &str) -> Value {
    let now = START.micros() / 1_000_000;
    json!({"sub": user, "tenant": "acme", "scope": scope, "exp": now + 600, "iat": now})
}

fn for_us(user: &str, scope: &str) -> Value {
    let mut claims = claims(user, scope);
    claims["aud"] = "helmdeck".into();
    claims
}

fn shared(user: &str, scope: &str) -> String {
    Issuer::shared(SECRET).token(&claims(user, scope))
}

#[track_caller]
fn assert_refused(answer: &Answer, what: &str) {
    assert_eq!(
        (answer.status.as_u16(), answer.problem().as_str()),
        (401, "unauthenticated"),
        "{what}"
    );
    assert_eq!(
        answer.header("www-authenticate"),
        "Bearer realm=\"helmdeck\", error=\"invalid_token\"",
        "{what}"
    );
    // The answer gives no reason.
    assert_eq!(answer.json()["detail"], bearer::INVALID, "{what}");
}

#[tokio::test]
async fn a_token_of_each_kind_lets_its_caller_in() {
    let issuers = [Issuer::rsa("r"), Issuer::ec("e"), Issuer::ed("d")];
    let client = TestServer::open(AuthConfig::default(), &issuers.iter().collect::<Vec<_>>()).await;
    let mut tokens: Vec<_> = issuers
        .iter()
        .map(|issuer| issuer.token(&for_us("alice", "packs:run")))
        .collect();
    tokens.push(Issuer::shared(SECRET).token(&for_us("alice", "packs:run")));
    tokens.push(client.api_token("acme", "alice", "packs:run", None).await.1);
    for token in &tokens {
        for _ in 0..2 {
            let answer = client.post(RUN, token, "{}").await;
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }
    // Tokens of one person are one caller: a call with the second token hits the answer of the
    // first.
    let mut statuses = Vec::new();
    for token in &tokens {
        statuses.push(
            client.post(CACHED, token, "{}").await.json()["cache"]["status"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    assert_eq!(statuses, ["miss", "hit", "hit", "hit", "hit"]);
    let other = Issuer::shared(SECRET).token(&for_us("bob", "packs:run"));
    assert_eq!(
        client.post(CACHED, &other, "{}").await.json()["cache"]["status"],
        "miss"
    );
}

#[tokio::test]
async fn without_a_token_only_what_is_open_answers() {
    let client = TestServer::plain().await;
    for path in [
        "/api/v1/packs",
        RUN,
        "/api/v1/memory/facts",
        "/api/v1/nothing",
        "/mcp",
        "/metrics",
    ] {
        let answer = client.get(path, "").await;
        assert_eq!(
            (answer.status.as_u16(), answer.problem().as_str()),
            (401, "unauthenticated"),
            "{path}"
        );
        assert_eq!(
            answer.header("www-authenticate"),
            "Bearer realm=\"helmdeck\"",
            "{path}"
        );
    }
    for path in [
        "/healthz",
        "/readyz",
        "/docs",
        "/docs.css",
        "/api/v1/openapi.json",
    ] {
        let answer = client.get(path, "").await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(
            !answer.body.contains("test.plain"),
            "{path} names a pack that nobody may run"
        );
        // An invalid token is refused even where no token is needed.
        assert_refused(&client.get(path, "nonsense").await, path);
    }
    let all = shared("alice", "packs:run");
    assert!(
        client
            .get("/api/v1/openapi.json", &all)
            .await
            .body
            .contains("/api/v1/packs/test.plain")
    );
    assert_eq!(client.fixture.probe.runs(), 0);
}

#[tokio::test]
async fn alg_confusion_hs256_signed_with_the_public_key_is_refused() {
    let rsa = Issuer::rsa("r");
    let client = TestServer::open(AuthConfig::default(), &[&rsa]).await;
    assert_eq!(
        client
            .post(RUN, &rsa.token(&for_us("alice", "packs:run")), "{}")
            .await
            .status,
        200
    );
    for form in rsa.public_forms() {
        let forged = Issuer::shared(&form).token(&for_us("alice", "packs:run"));
        assert_refused(&client.post(RUN, &forged, "{}").await, "no key id");
        let header = json!({"alg": "HS256", "typ": "JWT", "kid": "r"});
        let forged = Issuer::shared(&form).token_with(&header, &for_us("alice", "packs:run"));
        assert_refused(&client.post(RUN, &forged, "{}").await, "with its key id");
    }
    // The reverse: a signature by the shared secret does not match any key.
    for algorithm in ["RS256", "ES256", "EdDSA", "HS512", "PS256"] {
        let header = json!({"alg": algorithm, "kid": "r"});
        let forged = Issuer::shared(SECRET).token_with(&header, &for_us("alice", "packs:run"));
        assert_refused(&client.post(RUN, &forged, "{}").await, algorithm);
    }
}

#[tokio::test]
async fn alg_confusion_without_a_shared_secret_an_empty_or_public_one_does_not_do() {
    let rsa = Issuer::rsa("r");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    std::fs::write(&path, key_set(&[&rsa])).unwrap();
    let (jwks, audience) = (
        path.to_str().unwrap().to_owned(),
        vec!["helmdeck".to_owned()],
    );
    let config = AuthConfig {
        jwks,
        audience,
        ..AuthConfig::default()
    };
    let auth = Auth::new(&config, None, None, &egress()).unwrap().unwrap();
    let fixture = Fixture::with_auth(ServerConfig::default(), auth).await;
    let mut secrets = rsa.public_forms();
    secrets.push(Vec::new());
    for secret in secrets {
        let bearer = format!(
            "Bearer {}",
            Issuer::shared(&secret).token(&for_us("alice", "packs:run"))
        );
        let answer = fixture
            .send(Method::POST, RUN, &[("authorization", &bearer)], "{}")
            .await;
        assert_refused(&answer, "HS256");
    }
    // API tokens are off here: a well-formed one is not recognized.
    let bearer = format!("Bearer hd_{}_{}", "0".repeat(16), "0".repeat(72));
    assert_refused(
        &fixture
            .send(Method::POST, RUN, &[("authorization", &bearer)], "{}")
            .await,
        "hd_",
    );
}

#[tokio::test]
async fn alg_none_is_refused_in_every_spelling() {
    let client = TestServer::plain().await;
    let unsigned = Issuer::shared(SECRET);
    for algorithm in ["none", "None", "NONE", "nOnE", ""] {
        let token = unsigned.token_with(&json!({"alg": algorithm}), &claims("alice", "admin"));
        let (message, _) = token.rsplit_once('.').unwrap();
        for token in [token.as_str(), &format!("{message}."), message] {
            assert_refused(&client.post(RUN, token, "{}").await, algorithm);
        }
    }
}

#[tokio::test]
async fn key_id_tricks_reach_no_key_and_no_file() {
    let (ours, theirs) = (Issuer::ec("ours"), Issuer::ec("theirs"));
    let client = TestServer::open(AuthConfig::default(), &[&ours]).await;
    for id in [
        "theirs",
        "ours",
        "",
        "../../../dev/null",
        "/dev/null",
        "' OR 1=1 --",
        "ours\0",
        "https://evil.example/k",
    ] {
        let header = json!({"alg": "ES256", "kid": id});
        assert_refused(
            &client
                .post(
                    RUN,
                    &theirs.token_with(&header, &for_us("alice", "admin")),
                    "{}",
                )
                .await,
            id,
        );
    }
    // A key of this server under another name or kind is not found either.
    for header in [
        json!({"alg": "ES256", "kid": "theirs"}),
        json!({"alg": "RS256", "kid": "ours"}),
    ] {
        let token = ours.token_with(&header, &for_us("alice", "packs:run"));
        assert_refused(&client.post(RUN, &token, "{}").await, &header.to_string());
    }
    let nameless = ours.token_with(&json!({"alg": "ES256"}), &for_us("alice", "packs:run"));
    assert_eq!(client.post(RUN, &nameless, "{}").await.status, 200);
}

#[tokio::test]
async fn keys_named_by_the_token_are_ignored() {
    let (ours, theirs) = (Issuer::ec("ours"), Issuer::ec("theirs"));
    let client = TestServer::open(AuthConfig::default(), &[&ours]).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let link = format!("http://{}/keys", listener.local_addr().unwrap());
    let hostile = json!({
        "alg": "ES256", "kid": "theirs", "jwk": theirs.jwk(), "jku": link, "x5u": link, "x5c": ["MIIB"], "x5t": "AQAB",
    });
    assert_refused(
        &client
            .post(
                RUN,
                &theirs.token_with(&hostile, &for_us("alice", "admin")),
                "{}",
            )
            .await,
        "jwk, jku",
    );
    // They are no reason to refuse a good token; they are nothing at all.
    let mut harmless = hostile;
    harmless["kid"] = "ours".into();
    assert_eq!(
        client
            .post(
                RUN,
                &ours.token_with(&harmless, &for_us("alice", "packs:run")),
                "{}"
            )
            .await
            .status,
        200
    );
    assert!(listener.accept().is_err(), "the link was followed");
}

#[tokio::test]
async fn crit_and_types_of_other_tokens_are_refused() {
    let client = TestServer::plain().await;
    let issuer = Issuer::shared(SECRET);
    for header in [
        json!({"alg": "HS256", "crit": ["exp"], "exp": 1}),
        json!({"alg": "HS256", "crit": ["b64"], "b64": false}),
        json!({"alg": "HS256", "typ": "dpop+jwt"}),
        json!({"alg": "HS256", "typ": "logout+jwt"}),
    ] {
        let token = issuer.token_with(&header, &claims("alice", "admin"));
        assert_refused(&client.post(RUN, &token, "{}").await, &header.to_string());
    }
}

#[tokio::test]
async fn tokens_outside_their_time_are_refused() {
    let client = TestServer::plain().await;
    let now = START.micros() / 1_000_000;
    let change = |name: &str, value: Value| {
        let mut claims = claims("alice", "packs:run");
        claims[name] = value;
        Issuer::shared(SECRET).token(&claims)
    };
    assert_refused(
        &client
            .post(RUN, &change("exp", json!(now - 31)), "{}")
            .await,
        "expired",
    );
    assert_refused(
        &client
            .post(RUN, &change("nbf", json!(now + 31)), "{}")
            .await,
        "not yet valid",
    );
    assert_refused(
        &client
            .post(RUN, &change("iat", json!(now + 31)), "{}")
            .await,
        "issued in the future",
    );
    assert_refused(
        &client.post(RUN, &change("exp", json!(null)), "{}").await,
        "null as end",
    );
    let mut endless = claims("alice", "packs:run");
    endless.as_object_mut().unwrap().remove("exp");
    assert_refused(
        &client
            .post(RUN, &Issuer::shared(SECRET).token(&endless), "{}")
            .await,
        "no end",
    );

    // A valid token is cached, but not beyond its expiry: 600 s and the leeway.
    let good = shared("alice", "packs:run");
    assert_eq!(client.post(RUN, &good, "{}").await.status, 200);
    client.fixture.clock.advance(Duration::from_secs(629));
    assert_eq!(client.post(RUN, &good, "{}").await.status, 200);
    client.fixture.clock.advance(Duration::from_secs(1));
    assert_refused(
        &client.post(RUN, &good, "{}").await,
        "expired while it was remembered",
    );
}

#[tokio::test]
async fn wrong_audience_and_wrong_issuer_are_refused() {
    let ec = Issuer::ec("e");
    let config = AuthConfig {
        issuer: "https://issuer.example".to_owned(),
        ..AuthConfig::default()
    };
    let client = TestServer::open(config, &[&ec]).await;
    let with = |issuer: Value, audience: Value| {
        let mut claims = claims("alice", "packs:run");
        (claims["iss"], claims["aud"]) = (issuer, audience);
        ec.token(&claims)
    };
    let (issuer, audience) = (json!("https://issuer.example"), json!("helmdeck"));
    assert_eq!(
        client
            .post(RUN, &with(issuer.clone(), audience.clone()), "{}")
            .await
            .status,
        200
    );
    assert_eq!(
        client
            .post(RUN, &with(issuer.clone(), json!(["x", "helmdeck"])), "{}")
            .await
            .status,
        200
    );
    for bad in [
        json!("https://evil.example"),
        json!("https://issuer.example/"),
        json!(null),
    ] {
        assert_refused(
            &client
                .post(RUN, &with(bad.clone(), audience.clone()), "{}")
                .await,
            &format!("issuer {bad}"),
        );
    }
    for bad in [
        json!("another"),
        json!("helmdeck "),
        json!(["x"]),
        json!(null),
    ] {
        assert_refused(
            &client
                .post(RUN, &with(issuer.clone(), bad.clone()), "{}")
                .await,
            &format!("audience {bad}"),
        );
    }
}

#[tokio::test]
async fn url_tokens_and_second_headers_are_refused() {
    let client = TestServer::plain().await;
    let good = shared("alice", "packs:run");
    for name in ["access_token", "token", "api_key"] {
        for token in ["", good.as_str()] {
            let answer = client
                .get(&format!("/api/v1/packs?{name}={good}"), token)
                .await;
            assert_eq!(
                (answer.status.as_u16(), answer.problem().as_str()),
                (400, "invalid_input"),
                "{name}"
            );
            assert!(
                answer
                    .header("www-authenticate")
                    .contains("error=\"invalid_request\""),
                "{name}"
            );
            assert!(!answer.body.contains(&good));
        }
    }
    let bearer = format!("Bearer {good}");
    let both = [
        ("authorization", bearer.as_str()),
        ("authorization", bearer.as_str()),
    ];
    let answer = client
        .fixture
        .send(Method::GET, "/api/v1/packs", &both, "")
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.problem().as_str()),
        (400, "invalid_input")
    );
    let basic = [("authorization", "Basic YTpi")];
    let answer = client
        .fixture
        .send(Method::GET, "/api/v1/packs", &basic, "")
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("www-authenticate")),
        (401, "Bearer realm=\"helmdeck\"")
    );
}

#[tokio::test]
async fn oversized_token_is_refused_undecoded() {
    let client = TestServer::plain().await;
    let fits = "x".repeat(bearer::MAX_TOKEN_BYTES - 700);
    let padded = |padding: &str| {
        let mut claims = claims("alice", "packs:run");
        claims["padding"] = padding.into();
        Issuer::shared(SECRET).token(&claims)
    };
    // 3 bytes become 4 in base64url.
    assert_eq!(
        client
            .post(RUN, &padded(&fits[..fits.len() * 3 / 4]), "{}")
            .await
            .status,
        200
    );
    assert_refused(&client.post(RUN, &padded(&fits), "{}").await, "over 8 KiB");
}

#[tokio::test]
async fn revoked_api_token_is_refused_within_a_second() {
    let client = TestServer::plain().await;
    let (id, token) = client.api_token("acme", "alice", "packs:run", None).await;
    assert_eq!(client.post(RUN, &token, "{}").await.status, 200);
    // A second handle stands for another process.
    let elsewhere = System::at(client.folder.path().join("helmdeck.db"));
    assert!(
        elsewhere
            .revoke_token(&id, &TokenReach::all(), START)
            .await
            .unwrap()
    );
    client.fixture.clock.advance(Duration::from_millis(499));
    assert_eq!(
        client.post(RUN, &token, "{}").await.status,
        200,
        "it is remembered for half a second"
    );
    client.fixture.clock.advance(Duration::from_millis(1));
    assert_refused(&client.post(RUN, &token, "{}").await, "revoked");
}

#[tokio::test]
async fn an_expired_api_token_is_refused_at_its_end() {
    let client = TestServer::plain().await;
    let ends = START.saturating_add(Duration::from_millis(100));
    let (_, token) = client
        .api_token("acme", "alice", "packs:run", Some(ends))
        .await;
    assert_eq!(client.post(RUN, &token, "{}").await.status, 200);
    client.fixture.clock.advance(Duration::from_millis(99));
    assert_eq!(client.post(RUN, &token, "{}").await.status, 200);
    client.fixture.clock.advance(Duration::from_millis(1));
    assert_refused(
        &client.post(RUN, &token, "{}").await,
        "expired while it was remembered",
    );
    let almost = format!("{}0", &token[..token.len() - 1]);
    for bad in [almost.as_str(), "hd_", &token.to_ascii_uppercase()] {
        assert_refused(&client.post(RUN, bad, "{}").await, bad);
    }
}

#[tokio::test]
async fn tokens_that_were_good_survive_a_record_that_is_away() {
    let config = AuthConfig {
        grace: Duration::from_secs(60),
        ..AuthConfig::default()
    };
    let client = TestServer::open(config, &[]).await;
    let ends = START.saturating_add(Duration::from_secs(30));
    let (_, token) = client.api_token("acme", "alice", "packs:run", None).await;
    let (_, short) = client
        .api_token("acme", "alice", "packs:run", Some(ends))
        .await;
    let (_, unknown) = client.api_token("acme", "bob", "packs:run", None).await;
    let (id, revoked) = client.api_token("acme", "carol", "packs:run", None).await;
    let ask = async |token: &str| client.post(RUN, token, "{}").await.status.as_u16();
    let ready = async || {
        let answer = client.get("/readyz", "").await;
        let body = answer.json();
        (
            answer.status.as_u16(),
            body["status"].as_str().unwrap().to_owned(),
            body["checks"]["tokens"] == "ok",
        )
    };
    assert_eq!(
        (ask(&token).await, ask(&short).await, ask(&revoked).await),
        (200, 200, 200)
    );
    assert_eq!(ready().await, (200, "ready".to_owned(), true));
    assert!(
        client
            .system
            .revoke_token(&id, &TokenReach::all(), START)
            .await
            .unwrap()
    );
    client.fixture.clock.advance(Duration::from_secs(1));
    assert_eq!((ask(&token).await, ask(&revoked).await), (200, 401));

    let away = client.take_database_away();
    client.fixture.clock.advance(Duration::from_secs(1));
    assert_eq!((ask(&token).await, ask(&short).await), (200, 200));
    assert_eq!(ask(&unknown).await, 503, "nobody knows whether it is good");
    assert_eq!(
        ask(&revoked).await,
        503,
        "what the record refused once is not good again"
    );
    assert_eq!(ready().await, (200, "degraded".to_owned(), false));
    client.fixture.clock.advance(Duration::from_secs(28));
    assert_eq!(
        (ask(&token).await, ask(&short).await),
        (200, 503),
        "its own end"
    );
    client.fixture.clock.advance(Duration::from_secs(40));
    assert_eq!(ask(&token).await, 503, "a minute is over");
    assert_eq!(ready().await, (503, "not_ready".to_owned(), false));

    away.put_back();
    client.fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(
        (ask(&token).await, ask(&unknown).await, ask(&revoked).await),
        (200, 200, 401)
    );
    assert_eq!(ready().await, (200, "ready".to_owned(), true));
}

#[tokio::test]
async fn a_use_of_an_api_token_is_noted() {
    let client = TestServer::plain().await;
    let (_, token) = client.api_token("acme", "alice", "packs:run", None).await;
    client.post(RUN, &token, "{}").await;
    until("the use", async || {
        client.system.tokens().await.unwrap()[0].used_at == Some(START)
    })
    .await;
}

#[tokio::test]
async fn withdrawn_key_invalidates_cached_tokens() {
    let (old, new) = (Issuer::ec("old"), Issuer::ec("new"));
    let client = TestServer::open(AuthConfig::default(), &[&old]).await;
    let mut long = for_us("alice", "packs:run");
    long["exp"] = (START.micros() / 1_000_000 + 86_400).into();
    let (of_old, of_new) = (old.token(&long), new.token(&long));
    assert_eq!(client.post(RUN, &of_old, "{}").await.status, 200);
    std::fs::write(client.folder.path().join("jwks.json"), key_set(&[&new])).unwrap();
    client.fixture.clock.advance(jwks::PAUSE);
    assert_eq!(
        client.post(RUN, &of_old, "{}").await.status,
        200,
        "nothing asked for the new keys yet"
    );
    assert_eq!(
        client.post(RUN, &of_new, "{}").await.status,
        200,
        "an unknown key id has the keys read"
    );
    assert_refused(&client.post(RUN, &of_old, "{}").await, "its key is gone");
}

#[tokio::test]
async fn unavailable_keys_are_a_server_error() {
    let ec = Issuer::ec("e");
    let client = TestServer::open(AuthConfig::default(), &[&ec]).await;
    std::fs::remove_file(client.folder.path().join("jwks.json")).unwrap();
    let answer = client
        .post(RUN, &ec.token(&for_us("alice", "packs:run")), "{}")
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.problem().as_str()),
        (503, "overloaded")
    );
    assert_eq!(answer.header("retry-after"), "30");
    // Callers with the shared secret are not affected.
    let shared = Issuer::shared(SECRET).token(&for_us("alice", "packs:run"));
    assert_eq!(client.post(RUN, &shared, "{}").await.status, 200);
}

#[test]
fn insecure_settings_are_refused() {
    let new = |config: &AuthConfig, secret: Option<&str>| {
        let secret = secret.map(|secret| Secret::new(secret.to_owned()));
        Auth::new(config, secret, None, &egress()).map(|auth| auth.is_some())
    };
    assert_eq!(new(&AuthConfig::default(), None), Ok(false));
    assert_eq!(new(&AuthConfig::default(), Some(&"s".repeat(32))), Ok(true));
    let message = new(&AuthConfig::default(), Some("canary")).unwrap_err();
    assert!(
        message.contains("32 bytes") && !message.contains("canary"),
        "{message}"
    );
    let anonymous = AuthConfig {
        anonymous_scope: "packs:run".to_owned(),
        ..AuthConfig::default()
    };
    assert!(
        new(&anonymous, None)
            .unwrap_err()
            .contains("nothing authenticates")
    );
    let tokens = AuthConfig {
        api_tokens: true,
        ..AuthConfig::default()
    };
    assert!(new(&tokens, None).unwrap_err().contains("data folder"));
}

mod listeners;
mod scopes;
mod sessions;
