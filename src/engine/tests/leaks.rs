//! The cache stores every answer except those in which the leak scan finds a credential. Facts and
//! notes with one are refused, unless their writer allows it.

use std::sync::Arc;

use helmdeck_core::memory::{Forget, ListFacts, NewFact, NewNote, RecallFacts};
use helmdeck_core::{CacheStatus, Code, Identity};
use helmdeck_engine::CallFilter;
use helmdeck_memory::Namespace;
use helmdeck_testkit::leaks::{credentials, lookalikes};

use crate::handles::{Probed, fact};
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
    let refused = format!(
        "helmdeck_cache_refused_total{{reason=\"token_format\"}} {}",
        counted.runs()
    );
    assert!(engine.engine.metrics().contains(&refused));
}

#[tokio::test]
async fn answers_that_only_look_like_credentials_are_stored() {
    let (pack, counted) = echo("max_bytes = \"1MiB\"");
    let engine = EngineFixture::open(vec![pack]).await;
    let texts = lookalikes();
    for text in &texts {
        let input = input(text);
        let seen = [
            status(&engine.run("t.echo", &input).await),
            status(&engine.run("t.echo", &input).await),
        ];
        assert_eq!(
            seen,
            [CacheStatus::Miss, CacheStatus::Hit],
            "{}",
            &text[..text.len().min(200)]
        );
    }
    assert_eq!(counted.runs(), texts.len());
}

/// Calls of the caller that the audit keeps with a finding.
async fn audited(probed: &Probed) -> Vec<(String, String)> {
    let me = Namespace::of_caller(&Identity::local());
    let filter = CallFilter {
        limit: 1_000,
        ..CallFilter::default()
    };
    let calls = probed
        .engine
        .memory()
        .unwrap()
        .calls(&me, filter)
        .await
        .unwrap()
        .calls;
    let found = calls.into_iter().flat_map(|call| {
        call.findings
            .into_iter()
            .map(move |finding| (call.pack.clone(), finding))
    });
    found
        .map(|(pack, finding)| {
            (
                format!("{pack} {} {}", finding.code, finding.file),
                finding.severity,
            )
        })
        .collect()
}

#[tokio::test]
async fn facts_with_any_credential_are_refused_unless_allowed() {
    let (probed, _) = Probed::new().await;
    let me = Arc::new(Identity::local());
    let facts = [
        probed.facts(Identity::local()).await,
        probed.engine.memory().unwrap().facts(&me).unwrap(),
    ];
    let mut expected = Vec::new();
    for (rule, credential) in credentials() {
        let first_piece = credential.chars().skip(8).take(12).collect::<String>();
        for (facts, writer) in facts.iter().zip(["t.probe", "memory.store"]) {
            let in_value = fact("note", &format!("I was told {credential}, they said"));
            let in_key = fact(&credential, "v");
            let in_tag = NewFact {
                tags: vec!["a".into(), credential.clone()],
                ..fact("k", "v")
            };
            for refused in [in_value.clone(), in_key, in_tag] {
                let error = facts.store(refused).await.unwrap_err();
                assert_eq!(error.code(), Code::InvalidInput, "{credential}");
                assert!(
                    error.message().contains(" (rule ") && error.message().contains("allow_secret"),
                    "{error}"
                );
                assert!(!error.message().contains(&first_piece), "{error}");
            }
            assert!(
                facts
                    .list(ListFacts::default())
                    .await
                    .unwrap()
                    .facts
                    .is_empty(),
                "{rule}"
            );
            facts
                .store(NewFact {
                    allow_secret: true,
                    ..in_value
                })
                .await
                .unwrap();
            let stored = facts
                .recall(RecallFacts {
                    key: Some("note".into()),
                    ..RecallFacts::default()
                })
                .await
                .unwrap();
            assert!(stored.facts[0].value.contains(&credential));
            facts
                .forget(Forget {
                    all: true,
                    ..Forget::default()
                })
                .await
                .unwrap();
            expected.push(format!("{writer} secret_allowed fact"));
        }
    }
    let mut audited: Vec<String> = audited(&probed)
        .await
        .into_iter()
        .map(|(what, _)| what)
        .collect();
    audited.sort();
    expected.sort();
    assert_eq!(audited, expected);
    let count = 2 * credentials().len();
    let metrics = probed.engine.metrics();
    for (outcome, count) in [("refused", 3 * count), ("allowed", count)] {
        let line =
            format!("helmdeck_memory_secrets_total{{kind=\"fact\",outcome=\"{outcome}\"}} {count}");
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
}

#[tokio::test]
async fn notes_with_any_credential_are_refused_unless_allowed() {
    let (probed, _) = Probed::new().await;
    let notes = probed.notes(Identity::local()).await;
    let mut large = vec![0xff_u8; 200 << 10];
    for (rule, credential) in credentials() {
        large.truncate(200 << 10);
        large.extend_from_slice(format!("\n{credential}\n").as_bytes());
        for note in [
            NewNote::new("k", credential.clone()),
            NewNote::new("k", large.clone()),
            NewNote::new(credential.clone(), "v"),
            NewNote::new("k", "v").with_category(credential.clone()),
        ] {
            let error = notes.store(note.clone()).await.unwrap_err();
            assert_eq!(error.code(), Code::InvalidInput, "{rule}");
            assert!(
                error.message().starts_with("the note looks like"),
                "{error}"
            );
        }
        notes
            .store(NewNote::new("k", large.clone()).allowing_secret())
            .await
            .unwrap();
    }
    assert_eq!(audited(&probed).await.len(), credentials().len());
}

#[tokio::test]
async fn facts_that_only_look_like_credentials_are_stored() {
    let (probed, _) = Probed::new().await;
    let facts = probed.facts(Identity::local()).await;
    for text in lookalikes() {
        facts.store(fact("note", &text)).await.unwrap();
    }
    // The key may say what the value is.
    assert!(
        facts
            .store(fact("the database password", "Blue42!Horse"))
            .await
            .is_err()
    );
    facts
        .store(fact("the database", "Blue42!Horse"))
        .await
        .unwrap();
    assert_eq!(audited(&probed).await, []);
}
