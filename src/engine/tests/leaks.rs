//! The cache stores every answer except those in which the leak scan finds a credential.

use helmdeck_core::CacheStatus;
use helmdeck_testkit::leaks::{credentials, lookalikes};

use crate::support::{EngineFixture, echo, status};

fn input(text: &str) -> String {
    serde_json::json!({ "repo": format!("first\n{text}\nlast") }).to_string()
}

#[tokio::test]
async fn answers_with_any_credential_are_not_stored() {
    let (pack, counted) = echo("");
    let engine = EngineFixture::open(vec![pack]).await;
    let credentials = credentials();
    for (rule, credential) in &credentials {
        for _ in 0..2 {
            assert_eq!(
                status(&engine.run("t.echo", &input(credential)).await),
                CacheStatus::Miss,
                "{rule}: {credential}"
            );
        }
    }
    assert_eq!(counted.runs(), 2 * credentials.len());
    let refused = format!("helmdeck_cache_refused_total{{reason=\"token_format\"}} {}", counted.runs());
    assert!(engine.engine.metrics().contains(&refused));
}

#[tokio::test]
async fn answers_that_only_look_like_credentials_are_stored() {
    let (pack, counted) = echo("max_bytes = \"1MiB\"");
    let engine = EngineFixture::open(vec![pack]).await;
    let texts = lookalikes();
    for text in &texts {
        let input = input(text);
        let seen = [status(&engine.run("t.echo", &input).await), status(&engine.run("t.echo", &input).await)];
        assert_eq!(seen, [CacheStatus::Miss, CacheStatus::Hit], "{}", &text[..text.len().min(200)]);
    }
    assert_eq!(counted.runs(), texts.len());
}
