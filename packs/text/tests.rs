use std::sync::Arc;

use helmdeck_core::clock::SystemClock;
use helmdeck_core::{Clock, Context, Identity, Json, Manifest, RunId};
use serde_json::{Value, json};

/// Runs `text.count_tokens` with a complete input.
async fn count(text: &str, encoding: &str) -> Value {
    let builtin = super::packs().remove(0);
    let manifest =
        Manifest::check_builtin(builtin.file, builtin.manifest, builtin.schemas).unwrap();
    let run = RunId::next(SystemClock::default().now());
    let context = Context::new(
        manifest.name,
        manifest.version,
        Arc::new(Identity::local()),
        run,
    );
    let input = Json::from(json!({"text": text, "encoding": encoding}));
    builtin
        .handler
        .run(context, input)
        .await
        .unwrap()
        .output
        .unwrap()
        .read()
        .unwrap()
}

#[tokio::test]
async fn known_texts_have_their_known_tokens() {
    for (text, encoding, tokens, characters, bytes) in [
        ("", "o200k_base", 0, 0, 0),
        ("hello world", "o200k_base", 2, 11, 11),
        ("hello world", "cl100k_base", 2, 11, 11),
        ("Grüße", "o200k_base", 3, 5, 7),
        ("<|endoftext|>", "cl100k_base", 7, 13, 13),
    ] {
        let expected = json!({"tokens": tokens, "characters": characters, "bytes": bytes});
        assert_eq!(
            count(text, encoding).await,
            expected,
            "{text:?} in {encoding}"
        );
    }
}

#[tokio::test]
async fn longest_text_without_spaces_is_counted() {
    let counted = count(&"x".repeat(262_144), "o200k_base").await;
    assert!(counted["tokens"].as_u64().unwrap() > 10_000, "{counted}");
}
