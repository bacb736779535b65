//! Rate limit of a caller.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::ServerConfig;

#[tokio::test]
async fn rate_is_per_caller_over_all_sessions() {
    let config = ServerConfig {
        rate_per_second: 1,
        rate_burst: 7,
        ..ServerConfig::default()
    };
    let fixture = Fixture::build(config, false).await;
    // Two requests each.
    let sessions = [
        begin(&fixture, "2025-11-25").await,
        begin(&fixture, "2025-06-18").await,
    ];
    let list = async |session: &str| {
        post(
            &fixture,
            &[("mcp-session-id", session)],
            &request("tools/list", &json!({})),
        )
        .await
        .status
        .as_u16()
    };
    for session in &sessions {
        assert_eq!(list(session).await, 200);
    }
    assert_eq!(
        post_newest(&fixture, "tools/list", json!({}))
            .await
            .status
            .as_u16(),
        200
    );
    for session in &sessions {
        assert_eq!(list(session).await, 429);
    }
    assert_eq!(
        post_newest(&fixture, "tools/list", json!({}))
            .await
            .status
            .as_u16(),
        429
    );
    let initialize = request(
        "initialize",
        &json!({"protocolVersion": "2025-11-25", "capabilities": {}}),
    );
    assert_eq!(
        post(&fixture, &[], &initialize).await.status.as_u16(),
        429,
        "a new session brings nothing"
    );
    assert_eq!(
        fixture.get("/api/v1/packs").await.status.as_u16(),
        429,
        "nor does another door"
    );
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(list(&sessions[0]).await, 200);
    assert_eq!(list(&sessions[1]).await, 429);
}
