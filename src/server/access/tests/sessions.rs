//! The session that a request belongs to: a claim of its token, or a header.

use super::*;

const SCOPED: &str = "/api/v1/packs/test.session";

fn token(session: Option<&str>) -> String {
    let mut claims = claims("alice", "packs:run memory:read");
    if let Some(session) = session {
        claims["session_id"] = session.into();
    }
    Issuer::shared(SECRET).token(&claims)
}

async fn call(fixture: &Fixture, token: &str, session: Option<&str>) -> Answer {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("content-type", "application/json")];
    headers.extend((!token.is_empty()).then_some(("authorization", bearer.as_str())));
    headers.extend(session.map(|session| ("helmdeck-session", session)));
    fixture.send(Method::POST, SCOPED, &headers, "{}").await
}

async fn status(fixture: &Fixture, token: &str, session: Option<&str>) -> String {
    call(fixture, token, session).await.json()["cache"]["status"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn session_of_a_token_or_header_keeps_answers_apart() {
    let folder = tempfile::tempdir().unwrap();
    let config = AuthConfig {
        anonymous_scope: "packs:run".to_owned(),
        ..AuthConfig::default()
    };
    let fixture = Fixture::with_session_pack(Some(auth(&config, folder.path()))).await;
    let (none, a, b) = (token(None), token(Some("A")), token(Some("B")));
    for (token, session, wanted) in [
        (&none, None, "bypass"),
        (&none, None, "bypass"),
        (&a, None, "miss"),
        (&a, None, "hit"),
        (&b, None, "miss"),
        (&none, Some("A"), "hit"),
        (&a, Some("A"), "hit"),
        (&none, Some("C"), "miss"),
        (&none, Some("C"), "hit"),
    ] {
        assert_eq!(
            status(&fixture, token, session).await,
            wanted,
            "{session:?}"
        );
    }
    let other = call(&fixture, &a, Some("B")).await;
    assert_eq!(
        (other.status.as_u16(), other.problem()),
        (403, "forbidden".to_owned())
    );
    // Without a token any client could name another caller's session.
    for session in [None, Some("A")] {
        let anonymous = call(&fixture, "", session).await.json();
        assert_eq!(anonymous["cache"]["reason"], "anonymous", "{anonymous}");
    }
}

#[tokio::test]
async fn claim_with_another_name_can_be_configured() {
    let folder = tempfile::tempdir().unwrap();
    let config = AuthConfig {
        session_claim: "sid".to_owned(),
        ..AuthConfig::default()
    };
    let fixture = Fixture::with_session_pack(Some(auth(&config, folder.path()))).await;
    assert_eq!(status(&fixture, &token(Some("A")), None).await, "bypass");
    let mut claims = claims("alice", "packs:run");
    claims["sid"] = "A".into();
    let token = Issuer::shared(SECRET).token(&claims);
    assert_eq!(
        [
            status(&fixture, &token, None).await,
            status(&fixture, &token, None).await
        ],
        ["miss".to_owned(), "hit".to_owned()]
    );
}

#[tokio::test]
async fn sessions_of_a_caller_share_one_rate() {
    let server = ServerConfig {
        rate_per_second: 1,
        rate_burst: 2,
        ..ServerConfig::default()
    };
    let client = TestServer::over(server, AuthConfig::default(), &[]).await;
    let mut refused = 0;
    for session in ["A", "B", "C", "D"] {
        refused += u32::from(client.post(RUN, &token(Some(session)), "{}").await.status == 429);
    }
    assert_eq!(refused, 2);
}
