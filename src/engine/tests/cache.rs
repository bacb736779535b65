//! The read-through cache: freshness, staleness, revalidation, directives, purges, refusals,
//! savings.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use helmdeck_core::{CacheStatus, Clock, Code, Directive, Error, Json, Outcome, Reply};
use helmdeck_engine::{CacheConfig, Config, Engine, Memory, Selector};
use helmdeck_system::System;
use helmdeck_testkit::{ManualClock, call, function, manifest, memory, patient};

use crate::support::{EngineFixture, echo, status, with_input};

pub(crate) fn directed(input: &str, directive: Directive) -> helmdeck_core::Call {
    let mut call = call("t.echo", input);
    call.directive = directive;
    call
}

fn n(outcome: &Outcome) -> u64 {
    outcome.output.to_value()["n"].as_u64().unwrap()
}

#[tokio::test]
async fn the_second_call_hits_until_the_ttl_ends() {
    let (pack, counted) = echo("");
    let engine = EngineFixture::open(vec![pack]).await;
    let first = engine.run("t.echo", "{\"repo\":\"a/b\"}").await;
    assert_eq!(status(&first), CacheStatus::Miss);
    engine.advance(59);
    let second = engine.run("t.echo", "{\"repo\":\"a/b\"}").await;
    let info = second.cache.unwrap();
    assert_eq!(
        (info.status, info.age, info.ttl),
        (
            CacheStatus::Hit,
            Duration::from_secs(59),
            Duration::from_secs(60)
        )
    );
    assert_eq!(second.output, first.output);
    engine.advance(1);
    assert_eq!(
        status(&engine.run("t.echo", "{\"repo\":\"a/b\"}").await),
        CacheStatus::Miss
    );
    assert_eq!(counted.runs(), 2);
}

#[tokio::test]
async fn every_spelling_of_a_call_is_one_call() {
    let (pack, counted) = echo("");
    let engine = EngineFixture::open(vec![pack]).await;
    for input in [
        "{\"repo\":\"a\",\"n\":1}",
        "{ \"n\":1.0, \"repo\":\"\\u0061\" }",
        "{\"n\":10e-1,\"state\":\"open\",\"repo\":\"a\"}",
        "{\"n\":1,\"repo\":\"a\"} ",
    ] {
        engine.run("t.echo", input).await;
    }
    assert_eq!(counted.runs(), 1);
    engine
        .run("t.echo", "{\"repo\":\"a\",\"n\":9007199254740992}")
        .await;
    engine
        .run("t.echo", "{\"repo\":\"a\",\"n\":9007199254740993}")
        .await;
    assert_eq!(counted.runs(), 3);
}

#[tokio::test]
async fn handler_gets_the_canonical_input() {
    let of = |name: &str, memory: &str| {
        let input = format!(
            "[input]\ntype = \"object\"\n[input.properties]\nid = {{ type = \"integer\" }}\n{memory}"
        );
        function(
            &manifest(name, "read_only = true", &input),
            |_, input: Json| async move { Reply::value(&input.as_str()) },
        )
    };
    let (pack, counted) = of(
        "t.byid",
        "[memory]\ncache = true\nttl = \"60s\"\ntags = [\"id:{id}\"]",
    );
    let (plain, _) = of("t.plain", "");
    let input = "[input]\ntype = \"object\"\n[input.properties]\nid = { type = \"integer\" }\n[memory]\ninvalidates = [\"id:{id}\"]";
    let (write, _) = function(&manifest("t.write", "", input), |_, _| async {
        Reply::value(&1)
    });
    let engine = EngineFixture::open(vec![pack, plain, write]).await;
    let mut runs = 0;
    for (spelled, plain) in [
        ("1234567890123456789.0", "1234567890123456789"),
        ("-0.0", "0"),
        ("1e1", "10"),
        (
            "123456789012345678901234567890.0",
            "123456789012345678901234567890",
        ),
    ] {
        runs += 1;
        for directive in [Directive::Default, Directive::Bypass] {
            let mut first = directed(&format!("{{ \"id\": {spelled} }}"), directive);
            first.pack = helmdeck_core::PackName::new("t.byid").unwrap();
            let output = engine.call(first).await.unwrap().output;
            assert_eq!(
                output.to_value(),
                format!("{{\"id\":{plain}}}"),
                "{directive:?}"
            );
        }
        let second = engine.run("t.byid", &format!("{{\"id\":{plain}}}")).await;
        assert_eq!(status(&second), CacheStatus::Hit);
        runs += 1;
        assert_eq!(counted.runs(), runs);
    }
    let tagged = engine
        .engine
        .explain(call("t.byid", "{\"id\":1234567890123456789.0}"))
        .await
        .unwrap()
        .tags;
    assert!(
        tagged.contains(&"id:1234567890123456789".to_owned()),
        "{tagged:?}"
    );
    // A write finds the entry, however it spells the number.
    engine.settle().await;
    engine
        .run("t.write", "{\"id\":1234567890123456789.0}")
        .await;
    assert_eq!(
        status(&engine.run("t.byid", "{\"id\":1234567890123456789}").await),
        CacheStatus::Miss
    );
    // Without a cache the handler gets the input as the caller wrote it.
    let raw = engine.run("t.plain", "{ \"id\": 1e1 }").await;
    assert_eq!(raw.output.to_value(), "{ \"id\": 1e1 }");
    for input in ["{\"id\":1e-1000000000}", "{\"id\":1.00000000000000000001}"] {
        for pack in ["t.byid", "t.plain"] {
            assert_eq!(
                engine.call(call(pack, input)).await.unwrap_err().code(),
                Code::InvalidInput,
                "{pack} {input}"
            );
        }
    }
}

#[tokio::test]
async fn cold_hot_tier_reads_the_store() {
    let (pack, counted) = echo("");
    let config = Config {
        cache: CacheConfig {
            hot_bytes: 0,
            ..patient().cache
        },
        ..Config::default()
    };
    let engine = EngineFixture::with(vec![pack], config).await;
    engine.run("t.echo", "{}").await;
    engine.settle().await;
    let hit = engine.run("t.echo", "{}").await;
    assert_eq!(
        (status(&hit), n(&hit), counted.runs()),
        (CacheStatus::Hit, 1, 1)
    );
}

#[tokio::test]
async fn answer_from_the_future_is_stale_everywhere() {
    for hot_bytes in [64 << 20, 0] {
        let (pack, counted) = echo("stale_if_error = \"1h\"");
        let cache = CacheConfig {
            hot_bytes,
            ..patient().cache
        };
        let engine = EngineFixture::with(
            vec![pack],
            Config {
                cache,
                ..Config::default()
            },
        )
        .await;
        engine.advance(10 * 365 * 86_400);
        engine.run("t.echo", "{}").await;
        engine.settle().await;
        engine.clock.set(helmdeck_core::Timestamp(
            engine.clock.now().micros() - 5_000_000,
        ));
        assert_eq!(
            status(&engine.run("t.echo", "{}").await),
            CacheStatus::Hit,
            "within what clocks differ"
        );
        engine.clock.set(helmdeck_core::Timestamp(
            engine.clock.now().micros() - 6_000_000,
        ));
        for spelling in ["{}", " {}"] {
            let only = directed(spelling, Directive::OnlyIfCached);
            assert_eq!(engine.call(only).await.unwrap_err().code(), Code::CacheMiss);
        }
        assert_eq!(
            engine
                .engine
                .explain(call("t.echo", "{}"))
                .await
                .unwrap()
                .entry,
            "stale"
        );
        assert_eq!(status(&engine.run("t.echo", "{}").await), CacheStatus::Miss);
        engine.settle().await;
        let hit = engine.run("t.echo", "{}").await;
        assert_eq!(
            (status(&hit), n(&hit), counted.runs()),
            (CacheStatus::Hit, 2, 2),
            "refreshed"
        );
    }
}

#[tokio::test]
async fn directives_bypass_refresh_and_only_if_cached() {
    let (pack, counted) = echo("");
    let engine = EngineFixture::open(vec![pack]).await;
    assert_eq!(
        engine
            .call(directed("{}", Directive::OnlyIfCached))
            .await
            .unwrap_err()
            .code(),
        Code::CacheMiss
    );
    assert_eq!(
        status(
            &engine
                .call(directed("{}", Directive::Bypass))
                .await
                .unwrap()
        ),
        CacheStatus::Bypass
    );
    assert_eq!(
        status(&engine.run("t.echo", "{}").await),
        CacheStatus::Miss,
        "a bypass stores nothing"
    );
    assert_eq!(
        n(&engine
            .call(directed("{}", Directive::OnlyIfCached))
            .await
            .unwrap()),
        2
    );
    assert_eq!(
        n(&engine
            .call(directed("{}", Directive::Refresh))
            .await
            .unwrap()),
        3
    );
    assert_eq!(n(&engine.run("t.echo", "{}").await), 3, "a refresh stores");
    assert_eq!(counted.runs(), 3);
}

#[tokio::test]
async fn the_operator_may_forbid_directives_per_scope() {
    let (pack, _) = echo("");
    let forbid_directives = [(
        helmdeck_core::manifest::Scope::Caller,
        vec!["refresh".to_owned()],
    )]
    .into();
    let cache = CacheConfig {
        forbid_directives,
        ..patient().cache
    };
    let engine = EngineFixture::with(
        vec![pack],
        Config {
            cache,
            ..Config::default()
        },
    )
    .await;
    assert_eq!(
        engine
            .call(directed("{}", Directive::Refresh))
            .await
            .unwrap_err()
            .code(),
        Code::Forbidden
    );
    assert!(engine.call(directed("{}", Directive::Bypass)).await.is_ok());
}

#[tokio::test]
async fn forbidden_refresh_is_forbidden_by_every_age() {
    // From the hot tier, and from the store.
    for hot_bytes in [64 << 20, 0] {
        let (pack, counted) = echo("stale_if_error = \"1h\"");
        let forbid_directives = [(
            helmdeck_core::manifest::Scope::Caller,
            vec!["refresh".to_owned()],
        )]
        .into();
        let cache = helmdeck_engine::CacheConfig {
            forbid_directives,
            hot_bytes,
            ..Default::default()
        };
        let engine = EngineFixture::with(
            vec![pack],
            Config {
                cache,
                ..Config::default()
            },
        )
        .await;
        let aged = |seconds| {
            let mut call = call("t.echo", "{}");
            call.max_age = Some(Duration::from_secs(seconds));
            call
        };
        assert_eq!(
            n(&engine.call(aged(0)).await.unwrap()),
            1,
            "nothing is stored yet"
        );
        engine.settle().await;
        engine.advance(30);
        for seconds in [0, 1, 29] {
            assert_eq!(
                engine.call(aged(seconds)).await.unwrap_err().code(),
                Code::Forbidden,
                "{hot_bytes} {seconds}"
            );
        }
        assert_eq!(
            status(&engine.call(aged(30)).await.unwrap()),
            CacheStatus::Hit
        );
        engine.advance(60);
        assert_eq!(
            n(&engine.call(aged(0)).await.unwrap()),
            2,
            "it is stale for everybody"
        );
        assert_eq!(counted.runs(), 2);
    }
}

#[tokio::test]
async fn callers_may_bound_age_and_take_stale() {
    let (pack, counted) = echo("stale_if_error = \"1h\"");
    let engine = EngineFixture::open(vec![pack]).await;
    engine.run("t.echo", "{}").await;
    engine.advance(30);
    let mut young = call("t.echo", "{}");
    young.max_age = Some(Duration::from_secs(10));
    assert_eq!(n(&engine.call(young).await.unwrap()), 2);
    engine.advance(90);
    let mut relaxed = call("t.echo", "{}");
    relaxed.max_stale = Some(Duration::from_secs(3600));
    let stale = engine.call(relaxed).await.unwrap();
    assert_eq!(
        (status(&stale), n(&stale), counted.runs()),
        (CacheStatus::Stale, 2, 2)
    );
}

#[tokio::test]
async fn stale_while_revalidate_answers_and_refreshes_once() {
    let (pack, counted) = echo("stale_while_revalidate = \"60s\"");
    let engine = EngineFixture::open(vec![pack]).await;
    engine.run("t.echo", "{}").await;
    engine.advance(61);
    for _ in 0..10 {
        let stale = engine.run("t.echo", "{}").await;
        assert!(matches!(
            (status(&stale), n(&stale)),
            (CacheStatus::Stale, 1) | (CacheStatus::Hit, 2)
        ));
    }
    while counted.runs() < 2 {
        tokio::task::yield_now().await;
    }
    engine.settle().await;
    assert_eq!(
        (n(&engine.run("t.echo", "{}").await), counted.runs()),
        (2, 2)
    );
    engine.advance(121);
    let late = engine.run("t.echo", "{}").await;
    assert_eq!(
        (status(&late), n(&late)),
        (CacheStatus::Miss, 3),
        "past the window nobody is served stale"
    );
}

#[tokio::test]
async fn stale_while_revalidate_works_from_the_store_too() {
    let (pack, counted) = echo("stale_while_revalidate = \"60s\"");
    let config = Config {
        cache: CacheConfig {
            hot_bytes: 0,
            ..patient().cache
        },
        ..Config::default()
    };
    let engine = EngineFixture::with(vec![pack], config).await;
    engine.run("t.echo", "{}").await;
    engine.settle().await;
    engine.advance(61);
    assert_eq!(
        status(&engine.run("t.echo", "{}").await),
        CacheStatus::Stale
    );
    while counted.runs() < 2 {
        tokio::task::yield_now().await;
    }
}

/// A pack that fails with the code at the returned index of `Code::ALL`, while there is one.
fn failing(memory: &str) -> (helmdeck_core::Builtin, Arc<AtomicUsize>) {
    let code = Arc::new(AtomicUsize::new(usize::MAX));
    let told = Arc::clone(&code);
    let text = manifest(
        "t.echo",
        "read_only = true",
        &format!("[memory]\ncache = true\nttl = \"60s\"\n{memory}"),
    );
    let (pack, _) = function(&with_input(&text), move |_, _| {
        let code = Code::ALL.get(told.load(Ordering::SeqCst)).copied();
        async move {
            code.map_or_else(
                || Ok(Reply::json(Json::parse("{\"n\":1}").unwrap())),
                |code| Err(Error::new(code, "told to")),
            )
        }
    });
    (pack, code)
}

#[tokio::test]
async fn stale_if_error_covers_host_and_upstream_failures_only() {
    let (pack, fails_with) = failing("stale_if_error = \"1h\"");
    let engine = EngineFixture::open(vec![pack]).await;
    engine.run("t.echo", "{}").await;
    engine.advance(61);
    for (index, code) in Code::ALL.iter().enumerate() {
        fails_with.store(index, Ordering::SeqCst);
        // The longest wait after a failure, with its jitter, is over.
        engine.advance(76);
        let covered = code.fault() == helmdeck_core::Fault::Host
            || matches!(code, Code::HandlerFailed | Code::RateLimited);
        match engine.call(call("t.echo", "{}")).await {
            Ok(outcome) => assert!(covered && status(&outcome) == CacheStatus::Stale, "{code}"),
            Err(error) => assert!(!covered && error.code() == *code, "{code}"),
        }
    }
    engine.advance(3600);
    fails_with.store(
        Code::ALL
            .iter()
            .position(|code| *code == Code::HandlerFailed)
            .unwrap(),
        Ordering::SeqCst,
    );
    assert_eq!(
        engine.call(call("t.echo", "{}")).await.unwrap_err().code(),
        Code::HandlerFailed,
        "past the window"
    );
}

#[tokio::test]
async fn errors_are_never_stored() {
    let (pack, fails_with) = failing("");
    let engine = EngineFixture::open(vec![pack]).await;
    fails_with.store(0, Ordering::SeqCst);
    engine.call(call("t.echo", "{}")).await.unwrap_err();
    fails_with.store(usize::MAX, Ordering::SeqCst);
    assert_eq!(status(&engine.run("t.echo", "{}").await), CacheStatus::Miss);
}

#[tokio::test]
async fn a_handler_may_confirm_an_old_answer() {
    let runs = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&runs);
    let text = manifest(
        "t.echo",
        "read_only = true",
        "[memory]\ncache = true\nttl = \"60s\"\nrevalidate = true",
    );
    let (pack, _) = function(&with_input(&text), move |cx, _| {
        let run = seen.fetch_add(1, Ordering::SeqCst);
        async move {
            match cx.stale {
                Some(stale) if run < 3 => {
                    assert_eq!(
                        (&*stale.validator, stale.output.as_str()),
                        ("etag-0", "{\"n\":1}")
                    );
                    Ok(Reply::not_modified())
                }
                _ => Ok(
                    Reply::json(Json::parse(format!("{{\"n\":{}}}", run + 1)).unwrap())
                        .with_validator(format!("etag-{run}"))
                        .with_upstream_calls(2),
                ),
            }
        }
    });
    for hot_bytes in [0, 1 << 20] {
        runs.store(0, Ordering::SeqCst);
        let cache = CacheConfig {
            hot_bytes,
            ..patient().cache
        };
        let engine = EngineFixture::with(
            vec![pack.clone()],
            Config {
                cache,
                ..Config::default()
            },
        )
        .await;
        engine.run("t.echo", "{}").await;
        for _ in 0..2 {
            engine.settle().await;
            engine.advance(61);
            let confirmed = engine.run("t.echo", "{}").await;
            assert_eq!(
                (
                    status(&confirmed),
                    n(&confirmed),
                    confirmed.cache.unwrap().age
                ),
                (CacheStatus::Revalidated, 1, Duration::ZERO)
            );
            engine.settle().await;
            assert_eq!(status(&engine.run("t.echo", "{}").await), CacheStatus::Hit);
        }
        engine.advance(61);
        assert_eq!(
            n(&engine.run("t.echo", "{}").await),
            4,
            "a changed answer replaces the old one"
        );
        engine.settle().await;
        engine.advance(60 + 86_400);
        assert_eq!(
            status(&engine.run("t.echo", "{}").await),
            CacheStatus::Miss,
            "past its hard end nothing is offered"
        );
        engine.engine.shutdown().await;
    }
}

#[tokio::test]
async fn what_must_not_be_stored_is_not() {
    let token = format!("{{\"t\":\"ghp_{}\"}}", "a".repeat(36));
    let large = format!("{{\"x\":\"{}\"}}", "x".repeat(2000));
    for (name, memory, output, no_store) in [
        ("token", "", token.as_str(), false),
        ("large", "max_bytes = \"1KiB\"", large.as_str(), false),
        ("asked", "", "{}", true),
    ] {
        let text = manifest(
            "t.echo",
            "read_only = true",
            &format!("[memory]\ncache = true\nttl = \"60s\"\n{memory}"),
        );
        let output = output.to_owned();
        let (pack, counted) = function(&with_input(&text), move |_, _| {
            let reply = Reply::json(Json::parse(output.clone()).unwrap());
            async move { Ok(if no_store { reply.no_store() } else { reply }) }
        });
        let engine = EngineFixture::open(vec![pack]).await;
        engine.run("t.echo", "{}").await;
        engine.settle().await;
        assert_eq!(
            (status(&engine.run("t.echo", "{}").await), counted.runs()),
            (CacheStatus::Miss, 2),
            "{name}"
        );
        assert!(
            engine
                .engine
                .metrics()
                .contains("helmdeck_cache_refused_total{reason="),
            "{name}"
        );
        assert_eq!(
            engine
                .engine
                .memory()
                .unwrap()
                .store()
                .stats()
                .await
                .unwrap()
                .rows_by_kind
                .get("cache"),
            None,
            "{name}"
        );
    }
}

#[tokio::test]
async fn purges_reach_every_tier_and_nothing_else() {
    let (pack, counted) = echo("tags = [\"repo:{repo}\"]");
    let engine = EngineFixture::open(vec![pack]).await;
    let memory = engine.engine.memory().unwrap().clone();
    for repo in ["A/b", "c/d"] {
        engine
            .run("t.echo", &format!("{{\"repo\":\"{repo}\"}}"))
            .await;
    }
    let purged = memory.purge(Selector::Tag("repo:a/B".into())).await;
    assert_eq!((purged.rows, purged.pending), (1, false));
    assert_eq!(
        status(&engine.run("t.echo", "{\"repo\":\"c/d\"}").await),
        CacheStatus::Hit
    );
    assert_eq!(
        status(&engine.run("t.echo", "{\"repo\":\"A/b\"}").await),
        CacheStatus::Miss
    );
    let local = helmdeck_memory::Namespace::new("local", "local", None);
    for selector in [
        Selector::Pack(helmdeck_core::PackName::new("t.echo").unwrap()),
        Selector::Namespace(local),
        Selector::All,
    ] {
        engine.run("t.echo", "{\"repo\":\"c/d\"}").await;
        let before = counted.runs();
        assert!(memory.purge(selector).await.rows >= 1);
        engine.run("t.echo", "{\"repo\":\"c/d\"}").await;
        assert_eq!(counted.runs(), before + 1);
    }
    assert_eq!(
        memory
            .purge(Selector::Pack(
                helmdeck_core::PackName::new("t.ech").unwrap()
            ))
            .await
            .rows,
        0,
        "a prefix is not a pack"
    );
}

#[tokio::test]
async fn write_invalidates_reads_even_if_it_fails() {
    let (read, counted) = echo("tags = [\"repo:{repo}\"]");
    let fail = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&fail);
    let text = manifest("t.write", "", "[memory]\ninvalidates = [\"repo:{repo}\"]");
    let (write, _) = function(&with_input(&text), move |_, _| {
        let fails = told.load(Ordering::SeqCst) == 1;
        async move {
            if fails {
                Err(Error::new(Code::HandlerFailed, "told to"))
            } else {
                Ok(Reply::json(Json::parse("{}").unwrap()))
            }
        }
    });
    let engine = EngineFixture::open(vec![read, write]).await;
    let read = async |repo: &str| {
        engine
            .run("t.echo", &format!("{{\"repo\":\"{repo}\"}}"))
            .await
    };
    let (a, b) = ("a/b", "c/d");
    for fails in [0, 1] {
        read(a).await;
        read(b).await;
        let before = counted.runs();
        fail.store(fails, Ordering::SeqCst);
        let _ = engine.call(call("t.write", "{\"repo\":\"a/b\"}")).await;
        assert_eq!(status(&read(a).await), CacheStatus::Miss);
        assert_eq!(status(&read(b).await), CacheStatus::Hit);
        assert_eq!(counted.runs(), before + 1);
    }
    engine
        .call(call("t.write", "{\"repo\":7}"))
        .await
        .unwrap_err();
    assert_eq!(
        status(&read(a).await),
        CacheStatus::Hit,
        "a refused write wrote nothing"
    );
}

#[tokio::test]
async fn answers_with_artifacts_hit_while_artifacts_exist() {
    let text = manifest(
        "t.file",
        "read_only = true",
        "[memory]\ncache = true\nttl = \"60s\"",
    );
    let (pack, counted) = function(&text, |cx, _| async move {
        cx.put_artifact("a.txt", "text/plain", "x").await?;
        Ok(Reply::json(Json::parse("{}").unwrap()))
    });
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(helmdeck_testkit::ManualClock::default());
    let memory = helmdeck_testkit::memory(Arc::clone(&clock) as _).await;
    let engine = helmdeck_engine::Engine::builder(patient())
        .builtins(vec![pack])
        .memory(memory)
        .artifacts(folder.path())
        .clock(clock)
        .build();
    let first = engine.call(call("t.file", "")).await.unwrap();
    engine.memory().unwrap().flush().await;
    let hit = engine.call(call("t.file", "")).await.unwrap();
    assert_eq!(
        (status(&hit), &hit.artifacts),
        (CacheStatus::Hit, &first.artifacts)
    );
    let (files, mut open) = (
        folder.path().join("files"),
        vec![folder.path().join("files")],
    );
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap().flatten() {
            if entry.path().is_dir() {
                open.push(entry.path());
            } else {
                std::fs::write(entry.path(), "xy").unwrap();
            }
        }
    }
    assert_eq!(
        status(&engine.call(call("t.file", "")).await.unwrap()),
        CacheStatus::Miss,
        "it was replaced"
    );
    std::fs::remove_dir_all(files).unwrap();
    assert_eq!(
        status(&engine.call(call("t.file", "")).await.unwrap()),
        CacheStatus::Miss
    );
    assert_eq!(counted.runs(), 3);
}

#[tokio::test]
async fn tightened_output_schema_abandons_answers() {
    let clock = Arc::new(ManualClock::default());
    let memory = memory(Arc::clone(&clock) as _).await;
    let engine = |output: &str| {
        let rest =
            format!("[output]\ntype = \"object\"\n{output}[memory]\ncache = true\nttl = \"60s\"");
        let (pack, counted) = function(
            &manifest("t.schema", "read_only = true", &rest),
            |_, _| async { Ok(Reply::json(Json::parse("{\"n\":1}").unwrap())) },
        );
        let clock = Arc::clone(&clock) as _;
        let engine = Engine::builder(patient())
            .builtins(vec![pack])
            .memory(memory.clone())
            .clock(clock)
            .build();
        (engine, counted)
    };
    for (output, runs) in [
        ("", 1),
        ("", 0),
        ("required = [\"n\"]\n", 1),
        ("required = [\"n\"]\n", 0),
    ] {
        let (engine, counted) = engine(output);
        engine.call(call("t.schema", "{}")).await.unwrap();
        engine.memory().unwrap().flush().await;
        assert_eq!(counted.runs(), runs, "{output}");
    }
    let (engine, counted) = engine("required = [\"m\"]\n");
    assert_eq!(
        engine
            .call(call("t.schema", "{}"))
            .await
            .unwrap_err()
            .code(),
        Code::InvalidOutput
    );
    assert_eq!(counted.runs(), 1);
}

#[tokio::test]
async fn answer_up_to_max_bytes_is_stored_for_other_processes() {
    let clock = Arc::new(ManualClock::default());
    let memory = memory(Arc::clone(&clock) as _).await;
    let rest = "[memory]\ncache = true\nttl = \"60s\"\nmax_bytes = \"8MiB\"";
    let (pack, counted) = function(
        &manifest("t.large", "read_only = true", rest),
        |_, _| async {
            Ok(Reply::json(
                Json::parse(format!("\"{}\"", "x".repeat(5 << 20))).unwrap(),
            ))
        },
    );
    for _ in 0..2 {
        let clock = Arc::clone(&clock) as _;
        let engine = Engine::builder(patient())
            .builtins(vec![pack.clone()])
            .memory(memory.clone())
            .clock(clock)
            .build();
        let outcome = engine.call(call("t.large", "{}")).await.unwrap();
        assert_eq!(outcome.cache.unwrap().not_kept, None);
        engine.memory().unwrap().flush().await;
    }
    assert_eq!(counted.runs(), 1);
}

#[tokio::test]
async fn explain_names_a_changed_contract_and_version() {
    let clock = Arc::new(ManualClock::default());
    let memory = memory(Arc::clone(&clock) as _).await;
    let engine = |version: &str, epoch: u32| {
        let rest = format!("[memory]\ncache = true\nttl = \"60s\"\nepoch = {epoch}");
        let text = manifest("t.changed", "read_only = true", &rest)
            .replace("\"v1\"", &format!("\"{version}\""));
        let (pack, _) = function(&text, |_, _| async {
            Ok(Reply::json(Json::parse("{}").unwrap()))
        });
        Engine::builder(patient())
            .builtins(vec![pack])
            .memory(memory.clone())
            .clock(Arc::clone(&clock) as _)
            .build()
    };
    let first = engine("v1", 1);
    first.call(call("t.changed", "{}")).await.unwrap();
    first.memory().unwrap().flush().await;
    for (version, epoch, differs_in) in [
        ("v1", 2, &["contract"][..]),
        ("v2", 1, &["version"]),
        ("v2", 2, &["version", "contract"]),
    ] {
        let explained = engine(version, epoch)
            .explain(call("t.changed", "{}"))
            .await
            .unwrap();
        assert_eq!(
            explained.nearest.unwrap().differs_in,
            differs_in,
            "{version} {epoch}"
        );
    }
}

#[tokio::test]
async fn explain_says_without_a_key_what_needs_none() {
    let memory = "tags = [\"repo:{repo}\"]";
    let input = "{\"repo\":\"A/b\"}";
    let open = EngineFixture::open(vec![echo(memory).0])
        .await
        .engine
        .explain(call("t.echo", input))
        .await
        .unwrap();
    let shut = EngineFixture::shut(vec![echo(memory).0])
        .engine
        .explain(call("t.echo", input))
        .await
        .unwrap();
    assert_eq!(
        (shut.key.is_none(), shut.stored_key.is_none(), shut.entry),
        (true, true, "none")
    );
    assert_eq!(
        (&shut.tags, shut.tags.as_slice()),
        (&open.tags, &["repo:a/b".to_owned()][..])
    );
    for (name, value) in &shut.key_parts {
        assert_eq!(open.key_parts.get(name), Some(value), "{name}");
    }
    assert!(
        ["pack", "version", "scope", "namespace", "contract"]
            .iter()
            .all(|name| shut.key_parts.contains_key(name))
    );
    assert!(
        shut.render().contains("no memory key is set"),
        "{}",
        shut.render()
    );
    let session = EngineFixture::shut(vec![echo("scope = \"session\"").0]);
    let error = session
        .engine
        .explain(call("t.echo", "{}"))
        .await
        .unwrap_err();
    assert!(error.message().contains("no_session"), "{error}");
}

#[tokio::test]
async fn explain_remembers_why_the_last_answer_was_not_kept() {
    let (pack, _) = echo("max_bytes = \"16B\"");
    let data = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let open = async || -> Engine {
        let system = Some(System::at(data.path().join("helmdeck.db")));
        let memory = Memory {
            system,
            ..memory(Arc::clone(&clock)).await
        };
        Engine::builder(patient())
            .builtins(vec![pack.clone()])
            .memory(memory)
            .clock(Arc::clone(&clock))
            .build()
    };
    let (first, long) = (open().await, "{\"repo\":\"longer than sixteen bytes\"}");
    let refused = async |engine: &Engine, input: &str| {
        engine.explain(call("t.echo", input)).await.unwrap().refused
    };
    assert_eq!(refused(&first, long).await, None);
    first.call(call("t.echo", long)).await.unwrap();
    assert_eq!(refused(&first, long).await.as_deref(), Some("too_large"));
    assert_eq!(refused(&first, "{}").await, None);
    // Another process reads it from the system database.
    let second = open().await;
    let explained = second.explain(call("t.echo", long)).await.unwrap();
    assert_eq!(explained.refused.as_deref(), Some("too_large"));
    assert!(
        explained.render().contains("too_large"),
        "{}",
        explained.render()
    );
}

#[tokio::test]
async fn explain_names_the_parts_and_what_differs() {
    let (pack, counted) = echo("tags = [\"repo:{repo}\"]");
    let engine = EngineFixture::open(vec![pack]).await;
    let wanted = || call("t.echo", "{\"repo\":\"a/b\"}");
    let nothing = engine.engine.explain(wanted()).await.unwrap();
    assert_eq!((nothing.entry, nothing.nearest.is_none()), ("none", true));
    engine
        .run("t.echo", "{\"repo\":\"a/b\",\"state\":\"all\"}")
        .await;
    engine.settle().await;
    let other = engine.engine.explain(wanted()).await.unwrap();
    assert_eq!(other.nearest.as_ref().unwrap().differs_in, ["input"]);
    assert!(
        other.render().contains("differs in input"),
        "{}",
        other.render()
    );
    engine.run("t.echo", "{\"repo\":\"a/b\"}").await;
    let there = engine.engine.explain(wanted()).await.unwrap();
    assert_eq!(
        (there.entry, there.tags.as_slice()),
        ("fresh", &["repo:a/b".to_owned()][..])
    );
    engine.advance(61);
    assert_eq!(
        engine.engine.explain(wanted()).await.unwrap().entry,
        "none",
        "past its hard end"
    );
    let mut credential = wanted();
    credential.identity = Arc::new(helmdeck_core::Identity::new("local", "somebody").unwrap());
    assert!(
        engine
            .engine
            .explain(credential)
            .await
            .unwrap()
            .nearest
            .is_none(),
        "answers of others are not near"
    );
    assert_eq!(counted.runs(), 2, "explaining runs nothing");
}

#[tokio::test]
async fn metrics_agree_with_the_audit() {
    let (pack, _) = echo("");
    let engine = EngineFixture::open(vec![pack]).await;
    for _ in 0..5 {
        engine.run("t.echo", "{}").await;
    }
    engine.call(call("t.echo", "[]")).await.unwrap_err();
    let metrics = engine.engine.metrics();
    for line in [
        "helmdeck_calls_total{pack=\"t.echo\",outcome=\"ok\"} 5",
        "helmdeck_calls_total{pack=\"t.echo\",outcome=\"invalid_input\"} 1",
        "helmdeck_cache_answers_total{pack=\"t.echo\",status=\"hit\"} 4",
        "helmdeck_cache_answers_total{pack=\"t.echo\",status=\"miss\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    let store = Arc::clone(engine.engine.memory().unwrap().store());
    let local = helmdeck_memory::Namespace::new("local", "local", None);
    // The audit writes behind the response; shutting down waits for it but also closes the store,
    // so wait here instead.
    let rows = loop {
        let scan = store
            .scan(
                &local,
                helmdeck_memory::Kind::Audit,
                "pack/t.echo/",
                helmdeck_memory::Order::KeyAscending,
                100,
            )
            .await
            .unwrap();
        let pages = scan.entries.iter().map(|page| {
            serde_json::from_slice::<helmdeck_engine::AuditPage>(&page.value)
                .unwrap()
                .rows
        });
        let rows: Vec<_> = pages.flatten().collect();
        if rows.len() == 6 {
            break rows;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(
        rows.iter()
            .filter(|row| row.cache.as_deref() == Some("hit"))
            .count(),
        4
    );
    assert_eq!(
        rows.iter()
            .filter(|row| row.outcome == "invalid_input")
            .count(),
        1
    );
}
