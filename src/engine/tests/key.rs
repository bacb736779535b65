//! Cache keys: which calls share one, and which do not.

use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, TestRunner};
use serde_json::Value;

use crate::support::{EngineFixture, echo};
use helmdeck_testkit::call;

async fn key(engine: &EngineFixture, input: &str) -> String {
    let explained = engine.engine.explain(call("t.echo", input)).await;
    explained
        .unwrap_or_else(|error| panic!("{input}: {error}"))
        .stored_key
        .unwrap()
}

/// Writes a value in one of its many spellings, chosen by `seed`.
fn spell(value: &Value, seed: &mut u64) -> String {
    let mut next = |n: u64| {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % n
    };
    let space = [" ", "", "\n", "\t "][usize::try_from(next(4)).unwrap()];
    match value {
        Value::Number(number) => match (number.as_i64(), next(4)) {
            (Some(n), 1) => format!("{n}.0"),
            (Some(n), 2) => format!("{n}e0"),
            (Some(n), 3) if n % 10 == 0 && n != 0 => format!("{}E+1", n / 10),
            _ => number.to_string(),
        },
        Value::String(text) if next(2) == 0 => {
            format!(
                "\"{}\"",
                text.encode_utf16()
                    .map(|unit| format!("\\u{unit:04x}"))
                    .collect::<String>()
            )
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| spell(item, seed)).collect();
            format!("[{space}{}{space}]", items.join(&format!("{space},")))
        }
        Value::Object(object) => {
            let mut members: Vec<_> = object
                .iter()
                .map(|(name, value)| (name.clone(), spell(value, seed)))
                .collect();
            for index in (1..members.len()).rev() {
                *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                members.swap(
                    index,
                    usize::try_from((*seed >> 33) % (index as u64 + 1)).unwrap(),
                );
            }
            let members: Vec<_> = members
                .into_iter()
                .map(|(name, value)| format!("{}{space}:{value}", Value::from(name)))
                .collect();
            format!("{{{space}{}{space}}}", members.join(","))
        }
        other => other.to_string(),
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(Value::from),
        (-1000_i64..1000).prop_map(|n| Value::from(n * 10)),
        "[a-zA-Zäöü€😀\"\\\\/ ]{0,12}".prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map("[a-zé😀ﬀ]{0,6}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// 10,000 spellings: 500 documents, 20 spellings each.
#[test]
fn ten_thousand_spellings_give_one_key_each_document() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let engine = runtime.block_on(async { EngineFixture::open(vec![echo("").0]).await });
    let mut runner = TestRunner::new(Runs {
        cases: 500,
        failure_persistence: None,
        ..Runs::default()
    });
    let seen = std::cell::RefCell::new(std::collections::HashMap::new());
    let strategy = (values(), any::<u64>(), any::<bool>());
    runner
        .run(&strategy, |(value, mut seed, with_default)| {
            runtime.block_on(async {
                let document = serde_json::json!({"anything": value});
                let mut filled = document.clone();
                filled["state"] = "open".into();
                let expected = key(&engine, &document.to_string()).await;
                for _ in 0..20 {
                    let spelling = spell(if with_default { &filled } else { &document }, &mut seed);
                    assert_eq!(key(&engine, &spelling).await, expected, "{spelling}");
                }
                let other = seen.borrow_mut().insert(expected, filled.clone());
                if let Some(other) = other {
                    assert_eq!(other, filled, "two documents share a key");
                }
            });
            Ok(())
        })
        .unwrap();
}

#[tokio::test]
async fn any_difference_is_another_key() {
    let engine = EngineFixture::open(vec![echo("").0]).await;
    let base = key(&engine, "{\"n\":9007199254740992}").await;
    for input in [
        "{\"n\":9007199254740993}",
        "{\"n\":9007199254740992,\"state\":\"all\"}",
        "{\"n\":9007199254740992.5}",
        "{}",
    ] {
        assert_ne!(key(&engine, input).await, base, "{input}");
    }
    let mut other = call("t.echo", "{\"n\":9007199254740992}");
    other.identity = std::sync::Arc::new(helmdeck_core::Identity::new("local", "eve").unwrap());
    assert_ne!(
        engine
            .engine
            .explain(other)
            .await
            .unwrap()
            .stored_key
            .unwrap(),
        base
    );

    for (memory, from, to) in [
        ("epoch = 2", "", ""),
        ("", "version = \"v1\"", "version = \"v2\""),
        (
            "",
            "n = { type = \"number\" }",
            "n = { type = [\"number\", \"null\"] }",
        ),
        ("scope = \"shared\"", "", ""),
    ] {
        let (mut pack, _) = echo(memory);
        if !from.is_empty() {
            pack.manifest = Box::leak(pack.manifest.replace(from, to).into_boxed_str());
        }
        let engine = EngineFixture::open(vec![pack]).await;
        assert_ne!(
            key(&engine, "{\"n\":9007199254740992}")
                .await
                .rsplit('/')
                .next(),
            base.rsplit('/').next(),
            "{memory}{to}"
        );
    }
}
