//! Key sets: which keys are accepted, and when a set is read again.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::get;
use helmdeck_testkit::{Issuer, ManualClock, key_set};
use serde_json::json;

use super::*;

fn parse(key: &Value) -> Result<usize, String> {
    KeySet::parse(json!({"keys": [key]}).to_string().as_bytes()).map(|set| set.len())
}

#[test]
fn keys_are_used_for_their_algorithm_only() {
    let (rsa, ec, ed) = (Issuer::rsa("r"), Issuer::ec("e"), Issuer::ed("d"));
    let set = KeySet::parse(key_set(&[&rsa, &ec, &ed]).as_bytes()).unwrap();
    for (issuer, algorithm) in [
        (&rsa, Algorithm::RS256),
        (&ec, Algorithm::ES256),
        (&ed, Algorithm::EdDSA),
    ] {
        for other in [
            Algorithm::HS256,
            Algorithm::RS256,
            Algorithm::ES256,
            Algorithm::EdDSA,
        ] {
            let found = set.candidates(other, Some(&issuer.key_id)).len();
            assert_eq!(
                found,
                usize::from(other == algorithm),
                "{} {other:?}",
                issuer.key_id
            );
        }
        // A token without a key id may use the only key of its kind; a token with another key id
        // may not.
        assert_eq!(set.candidates(algorithm, None).len(), 1);
        assert!(set.candidates(algorithm, Some("x")).is_empty());
    }
    let two = KeySet::parse(key_set(&[&ec, &Issuer::ec("f")]).as_bytes()).unwrap();
    assert!(two.candidates(Algorithm::ES256, None).is_empty());
}

#[test]
fn unsuitable_keys_are_skipped_and_never_logged() {
    let (rsa, ec, ed) = (
        Issuer::rsa("r").jwk(),
        Issuer::ec("e").jwk(),
        Issuer::ed("d").jwk(),
    );
    let change = |key: &Value, name: &str, value: Value| {
        let mut key = key.clone();
        key[name] = value;
        key
    };
    for good in [
        &rsa,
        &ec,
        &ed,
        &change(&ed, "alg", json!("Ed25519")),
        &change(&rsa, "key_ops", json!(["verify"])),
    ] {
        assert_eq!(parse(good), Ok(1), "{good}");
    }
    for bad in [
        Issuer::shared(b"canary-canary-canary-canary-canary").jwk(),
        change(&rsa, "alg", json!("RS512")),
        change(&rsa, "alg", json!("HS256")),
        change(&rsa, "use", json!("enc")),
        change(&rsa, "key_ops", json!(["sign"])),
        change(&rsa, "d", json!("canary")),
        change(&rsa, "n", json!("AQAB")),
        change(&rsa, "n", json!("c@nary")),
        change(&ec, "crv", json!("P-384")),
        change(&ec, "x", json!("AQAB")),
        change(&ec, "kty", json!("oct")),
        change(&ed, "crv", json!("X25519")),
        change(&ed, "x", json!("AQAB")),
        change(&ed, "alg", json!("ES256")),
        json!({"kid": "no kind"}),
        json!("text"),
    ] {
        let message = parse(&bad).unwrap_err();
        assert!(
            message.contains("no key that can be used") && !message.contains("canary"),
            "{message}"
        );
    }
    for text in ["", "[]", "{}", r#"{"keys": 1}"#, r#"{"keys": []}"#] {
        assert!(KeySet::parse(text.as_bytes()).is_err(), "{text}");
    }
    let many = json!({"keys": vec![ec.clone(); MAX_KEYS + 1]});
    assert!(KeySet::parse(many.to_string().as_bytes()).is_err());
    // An invalid key does not exclude the others.
    let mixed = json!({"keys": [change(&rsa, "use", json!("enc")), ec]});
    assert_eq!(
        KeySet::parse(mixed.to_string().as_bytes()).unwrap().len(),
        1
    );
}

/// Local HTTP server that serves a preset answer and counts requests.
struct Host {
    url: Url,
    reads: Arc<AtomicUsize>,
    answer: Arc<RwLock<(u16, String)>>,
}

impl Host {
    async fn start(body: String) -> Self {
        let (reads, answer) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(RwLock::new((200, body))),
        );
        let (count, give) = (Arc::clone(&reads), Arc::clone(&answer));
        let handler = get(move || async move {
            count.fetch_add(1, Ordering::SeqCst);
            let (status, body) = give.read().clone();
            (StatusCode::from_u16(status).unwrap(), body)
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        tokio::spawn(
            async move { axum::serve(listener, Router::new().route("/keys", handler)).await },
        );
        Self { url, reads, answer }
    }

    fn answers(&self, status: u16, body: String) {
        *self.answer.write() = (status, body);
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

fn jwks(host: &Host, clock: &Arc<ManualClock>) -> Jwks {
    let egress = Egress::new(helmdeck_egress::Config::default()).naming(&host.url);
    Jwks::new(
        Source::Url(host.url.clone(), egress),
        Arc::clone(clock) as _,
    )
}

async fn knows(jwks: &Jwks, issuer: &Issuer) -> bool {
    let id = Some(issuer.key_id.as_str());
    let current = jwks.keys_for(Algorithm::ES256, id).await;
    current.is_some_and(|current| !current.set.candidates(Algorithm::ES256, id).is_empty())
}

#[tokio::test]
async fn unknown_key_refreshes_the_set_once() {
    let (old, new, never) = (Issuer::ec("old"), Issuer::ec("new"), Issuer::ec("never"));
    let host = Host::start(key_set(&[&old])).await;
    let clock = Arc::new(ManualClock::default());
    let jwks = jwks(&host, &clock);
    assert!(jwks.current().is_none());
    assert!(knows(&jwks, &old).await && knows(&jwks, &old).await);
    assert_eq!(host.reads(), 1);

    host.answers(200, key_set(&[&old, &new]));
    assert!(!knows(&jwks, &new).await, "the last read was a moment ago");
    assert_eq!(host.reads(), 1);
    clock.advance(PAUSE);
    assert!(knows(&jwks, &new).await);
    for _ in 0..50 {
        assert!(!knows(&jwks, &never).await);
    }
    assert_eq!(host.reads(), 2);
    // Concurrent requests cause one read.
    clock.advance(PAUSE);
    let all = (0..20).map(|_| knows(&jwks, &never));
    assert!(
        futures_util::future::join_all(all)
            .await
            .iter()
            .all(|known| !known)
    );
    assert_eq!(host.reads(), 3);
}

#[tokio::test]
async fn old_keys_are_refreshed_and_withdrawn_ones_dropped() {
    let (one, two) = (Issuer::ec("one"), Issuer::ec("two"));
    let host = Host::start(key_set(&[&one])).await;
    let clock = Arc::new(ManualClock::default());
    let jwks = jwks(&host, &clock);
    assert!(knows(&jwks, &one).await);
    let before = jwks.generation();
    host.answers(200, key_set(&[&two]));
    clock.advance(REFRESH - Duration::from_secs(1));
    assert!(knows(&jwks, &one).await);
    assert_eq!((host.reads(), jwks.generation()), (1, before));
    clock.advance(Duration::from_secs(1));
    assert!(!knows(&jwks, &one).await && knows(&jwks, &two).await);
    assert_eq!((host.reads(), jwks.generation()), (2, before + 1));
}

#[tokio::test]
async fn keys_stay_while_they_cannot_be_read_anew() {
    let one = Issuer::ec("one");
    let host = Host::start(key_set(&[&one])).await;
    let clock = Arc::new(ManualClock::default());
    let jwks = jwks(&host, &clock);
    assert!(knows(&jwks, &one).await);
    for (status, body) in [
        (500, key_set(&[&one])),
        (200, "{}".to_owned()),
        (
            200,
            format!("{{\"keys\": [], \"x\": \"{}\"}}", "x".repeat(MAX_BYTES)),
        ),
    ] {
        host.answers(status, body);
        clock.advance(REFRESH);
        let before = host.reads();
        assert!(
            knows(&jwks, &one).await && knows(&jwks, &one).await,
            "{status}"
        );
        assert_eq!(host.reads(), before + 1, "{status}");
    }
}

#[tokio::test]
async fn without_any_keys_the_next_try_waits_too() {
    let one = Issuer::ec("one");
    let host = Host::start(String::new()).await;
    let clock = Arc::new(ManualClock::default());
    let jwks = jwks(&host, &clock);
    assert!(jwks.keys_for(Algorithm::ES256, None).await.is_none());
    host.answers(200, key_set(&[&one]));
    assert!(jwks.keys_for(Algorithm::ES256, None).await.is_none());
    assert_eq!(host.reads(), 1);
    clock.advance(PAUSE);
    assert!(knows(&jwks, &one).await);
}

#[tokio::test]
async fn key_file_is_limited_and_internal_urls_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    let read = |source: Source| async {
        Jwks::new(source, Arc::new(ManualClock::default()))
            .read()
            .await
    };
    assert!(read(Source::File(path.clone())).await.is_err());
    std::fs::write(&path, key_set(&[&Issuer::ed("d")])).unwrap();
    assert_eq!(read(Source::File(path.clone())).await, Ok(1));
    std::fs::write(&path, " ".repeat(MAX_BYTES + 1)).unwrap();
    assert!(
        read(Source::File(path))
            .await
            .unwrap_err()
            .contains("larger")
    );

    let host = Host::start(key_set(&[&Issuer::ed("d")])).await;
    let other: Url = "http://127.0.0.1:9/keys".parse().unwrap();
    let elsewhere = Egress::new(helmdeck_egress::Config::default()).naming(&other);
    let message = read(Source::Url(host.url.clone(), elsewhere))
        .await
        .unwrap_err();
    assert!(message.contains("may not be reached"), "{message}");
    assert_eq!(host.reads(), 0);
}
