//! When the cache must not answer: no session, another spelling, another program, a shorter ttl, a
//! clock that was wrong.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use helmdeck_core::{
    Builtin, CacheStatus, Call, Clock, Code, Directive, Identity, Json, Reply, Timestamp,
};
use helmdeck_engine::{CacheConfig, Config, Engine, Memory};
use helmdeck_testkit::{ManualClock, call, function, manifest, memory, patient};

use crate::support::{EngineFixture, echo, status, with_input};

fn set_back(clock: &ManualClock, by: Duration) {
    let micros = i64::try_from(by.as_micros()).unwrap();
    clock.set(Timestamp(clock.now().micros() - micros));
}

fn in_session(session: &str) -> Call {
    let mut call = call("t.echo", "{}");
    call.identity = Arc::new(Identity::local().with_session(session).unwrap());
    call
}

#[tokio::test]
async fn session_scope_without_session_bypasses() {
    let (pack, counted) = echo("scope = \"session\"");
    let engine = EngineFixture::open(vec![pack]).await;
    for _ in 0..2 {
        let cache = engine.run("t.echo", "{}").await.cache.unwrap();
        assert_eq!(
            (cache.status, cache.reason),
            (CacheStatus::Bypass, Some("no_session"))
        );
    }
    assert_eq!(counted.runs(), 2);
    let error = engine
        .engine
        .explain(call("t.echo", "{}"))
        .await
        .unwrap_err();
    assert!(error.message().contains("no_session"), "{error}");
    let expected = [
        ("a", CacheStatus::Miss),
        ("b", CacheStatus::Miss),
        ("a", CacheStatus::Hit),
    ];
    for (session, wanted) in expected {
        let outcome = engine.call(in_session(session)).await.unwrap();
        let reason = (wanted == CacheStatus::Miss).then_some("cold");
        assert_eq!(
            (status(&outcome), outcome.cache.unwrap().reason),
            (wanted, reason),
            "{session}"
        );
    }
}

#[tokio::test]
async fn cached_handlers_read_canonical_numbers() {
    let (pack, _) = echo("");
    let engine = EngineFixture::open(vec![pack]).await;
    for (spelled, canonical) in [
        ("1234567890123456789.0", "1234567890123456789"),
        ("-0.0", "0"),
        ("1e1", "10"),
        ("5.50", "5.5"),
    ] {
        let first = engine.run("t.echo", &format!("{{\"n\":{spelled}}}")).await;
        let text = first.output.as_str();
        assert!(text.contains(&format!("\"n\":{canonical},")), "{text}");
        let second = engine
            .run("t.echo", &format!("{{\"n\":{canonical}}}"))
            .await;
        assert_eq!(
            (status(&second), &second.output),
            (CacheStatus::Hit, &first.output)
        );
    }
    let mut bypass = call("t.echo", "{\"n\":1e1}");
    bypass.directive = Directive::Bypass;
    assert!(
        engine
            .call(bypass)
            .await
            .unwrap()
            .output
            .as_str()
            .contains("\"n\":10,")
    );
    let shut = EngineFixture::shut(vec![echo("").0]);
    let output = shut
        .run("t.echo", "{\"n\": 1e1, \"state\":\"x\"}")
        .await
        .output;
    assert!(
        output.as_str().contains("{\"n\":10,\"state\":\"x\"}"),
        "{}",
        output.as_str()
    );
}

#[tokio::test]
async fn integers_of_a_schema_are_exact() {
    let text = manifest(
        "t.echo",
        "",
        "[input]\ntype = \"object\"\n[input.properties]\nid = { type = \"integer\" }\n",
    );
    let (pack, _) = function(&text, |_, _| async {
        Ok(Reply::json(Json::parse("{}").unwrap()))
    });
    let engine = EngineFixture::shut(vec![pack]);
    let tiny = format!("0.{}1", "0".repeat(900_000));
    for number in ["1e-1000000000", "1.00000000000000000000001", tiny.as_str()] {
        let error = engine
            .call(call("t.echo", &format!("{{\"id\":{number}}}")))
            .await
            .unwrap_err();
        assert_eq!(error.code(), Code::InvalidInput);
    }
    for number in ["1.0", "1e3", "-0.0", "9007199254740993"] {
        assert!(
            engine
                .call(call("t.echo", &format!("{{\"id\":{number}}}")))
                .await
                .is_ok(),
            "{number}"
        );
    }
}

fn script(path: &Path, text: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// An engine over a folder with one cached pack that runs `command`. Nothing reads the folder
/// again.
async fn running(folder: &Path, command: &str, ttl: &str) -> Engine {
    let clock = Arc::new(ManualClock::default());
    let memory = memory(Arc::clone(&clock) as Arc<dyn Clock>).await;
    over(folder, command, ttl, memory, clock)
}

fn over(
    folder: &Path,
    command: &str,
    ttl: &str,
    memory: Memory,
    clock: Arc<ManualClock>,
) -> Engine {
    let manifest = format!(
        "name = \"cmd.one\"\nversion = \"v1\"\ndescription = \"x\"\nread_only = true\n[handler]\ncommand = [\"{command}\"]\n\
         [memory]\ncache = true\nttl = \"{ttl}\"\n"
    );
    std::fs::write(folder.join("one.toml"), manifest).unwrap();
    let engine = Engine::builder(patient())
        .packs_dir(folder)
        .memory(memory)
        .clock(clock as _)
        .build();
    assert!(engine.refused().is_empty(), "{:?}", engine.refused());
    engine
}

async fn told(engine: &Engine) -> (CacheStatus, String) {
    let outcome = engine.call(call("cmd.one", "{}")).await.unwrap();
    (status(&outcome), outcome.output.as_str().to_owned())
}

#[tokio::test]
async fn changed_program_is_never_served_old() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let outside = elsewhere.path().join("tool");
    for (program, command) in [
        (folder.path().join("one.sh"), "./one.sh".to_owned()),
        (outside.clone(), outside.display().to_string()),
    ] {
        script(&program, "echo 1");
        let engine = running(folder.path(), &command, "1h").await;
        assert_eq!(told(&engine).await, (CacheStatus::Miss, "1".to_owned()));
        assert_eq!(told(&engine).await, (CacheStatus::Hit, "1".to_owned()));
        // Of the same size, and at once.
        script(&program, "echo 2");
        assert_eq!(
            told(&engine).await,
            (CacheStatus::Miss, "2".to_owned()),
            "{command}"
        );
        assert_eq!(
            told(&engine).await,
            (CacheStatus::Hit, "2".to_owned()),
            "{command}"
        );
        script(&program, "echo 1");
        assert_eq!(
            told(&engine).await.1,
            "1",
            "what is put back is not answered by what replaced it"
        );
    }
}

#[tokio::test]
async fn changed_import_is_never_served_old() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("lib")).unwrap();
    let library = folder.path().join("lib/help.sh");
    script(&library, "echo 1");
    script(&folder.path().join("one.sh"), ". ./lib/help.sh");
    let engine = running(folder.path(), "./one.sh", "1h").await;
    assert_eq!(told(&engine).await, (CacheStatus::Miss, "1".to_owned()));
    assert_eq!(told(&engine).await, (CacheStatus::Hit, "1".to_owned()));
    script(&library, "echo 2");
    assert_eq!(told(&engine).await, (CacheStatus::Miss, "2".to_owned()));
}

#[tokio::test]
async fn answer_of_replaced_program_is_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    // It puts another program in its own place while it runs.
    script(&folder.path().join("next"), "echo 2");
    script(
        &folder.path().join("one.sh"),
        "mv next one.sh 2>/dev/null; echo 1",
    );
    let engine = running(folder.path(), "./one.sh", "1h").await;
    assert_eq!(told(&engine).await, (CacheStatus::Miss, "1".to_owned()));
    engine.memory().unwrap().flush().await;
    assert!(
        engine.metrics().contains("program_changed"),
        "the refusal is counted"
    );
    assert_eq!(told(&engine).await, (CacheStatus::Miss, "2".to_owned()));
}

#[tokio::test]
async fn shortened_ttl_counts_for_stored_answers() {
    let folder = tempfile::tempdir().unwrap();
    script(&folder.path().join("one.sh"), "echo 1");
    let clock = Arc::new(ManualClock::default());
    let memory = memory(Arc::clone(&clock) as Arc<dyn Clock>).await;
    let before = over(
        folder.path(),
        "./one.sh",
        "6m",
        memory.clone(),
        Arc::clone(&clock),
    );
    assert_eq!(told(&before).await.0, CacheStatus::Miss);
    before.memory().unwrap().flush().await;
    clock.advance(Duration::from_secs(2));
    let same = over(
        folder.path(),
        "./one.sh",
        "6m",
        memory.clone(),
        Arc::clone(&clock),
    );
    assert_eq!(told(&same).await.0, CacheStatus::Hit);
    let shorter = over(folder.path(), "./one.sh", "1s", memory, clock);
    assert_eq!(told(&shorter).await.0, CacheStatus::Miss);
}

#[tokio::test]
async fn answer_of_the_future_is_stale() {
    for hot_bytes in [0, 1 << 20] {
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
        engine.run("t.echo", "{}").await;
        engine.settle().await;
        set_back(&engine.clock, Duration::from_secs(5));
        assert_eq!(
            status(&engine.run("t.echo", "{}").await),
            CacheStatus::Hit,
            "within the leeway"
        );
        set_back(&engine.clock, Duration::from_secs(3600));
        assert_eq!(status(&engine.run("t.echo", "{}").await), CacheStatus::Miss);
        engine.settle().await;
        assert_eq!(
            (status(&engine.run("t.echo", "{}").await), counted.runs()),
            (CacheStatus::Hit, 2)
        );
    }
}

#[tokio::test]
async fn renewals_end_before_the_engine_does() {
    let gate = Arc::new(tokio::sync::Semaphore::new(1));
    let (runs, opened) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&gate));
    let text = manifest(
        "t.echo",
        "read_only = true",
        "[memory]\ncache = true\nttl = \"60s\"\nstale_while_revalidate = \"1h\"",
    );
    let (pack, _) = function(&with_input(&text), move |_, _| {
        let (runs, gate) = (Arc::clone(&runs), Arc::clone(&opened));
        async move {
            gate.acquire().await.unwrap().forget();
            let n = runs.fetch_add(1, Ordering::SeqCst) + 1;
            Ok(Reply::json(Json::parse(format!("{{\"n\":{n}}}")).unwrap()))
        }
    });
    let engine = EngineFixture::open(vec![pack]).await;
    engine.run("t.echo", "{}").await;
    engine.advance(61);
    assert_eq!(
        status(&engine.run("t.echo", "{}").await),
        CacheStatus::Stale
    );
    let inner = engine.engine.clone();
    let mut finished = tokio::spawn(async move { inner.memory().unwrap().finish_renewals().await });
    assert!(
        tokio::time::timeout(Duration::from_millis(50), &mut finished)
            .await
            .is_err(),
        "the renewal is under way"
    );
    gate.add_permits(1);
    finished.await.unwrap();
    let renewed = engine.run("t.echo", "{}").await;
    assert_eq!(
        (status(&renewed), renewed.output.as_str()),
        (CacheStatus::Hit, "{\"n\":2}")
    );
}

fn writer(tag: &str) -> Builtin {
    let text = manifest(
        "t.write",
        "",
        &format!("[memory]\ninvalidates = [\"{tag}\"]"),
    );
    function(&with_input(&text), |_, _| async {
        Ok(Reply::json(Json::parse("{}").unwrap()))
    })
    .0
}

#[tokio::test]
async fn long_tags_are_stored_and_purged() {
    let (pack, counted) = echo("tags = [\"svc:{repo}\"]");
    let cache = CacheConfig {
        hot_bytes: 0,
        ..patient().cache
    };
    let engine = EngineFixture::with(
        vec![pack, writer("svc:{repo}")],
        Config {
            cache,
            ..Config::default()
        },
    )
    .await;
    let input = format!("{{\"repo\":\"{}\"}}", "R".repeat(300));
    engine.run("t.echo", &input).await;
    engine.settle().await;
    assert_eq!(
        status(&engine.run("t.echo", &input).await),
        CacheStatus::Hit,
        "it is in the store"
    );
    engine.run("t.write", &input).await;
    assert_eq!(
        (status(&engine.run("t.echo", &input).await), counted.runs()),
        (CacheStatus::Miss, 2)
    );
}

#[tokio::test]
async fn write_without_tag_value_purges_the_family() {
    for (write, purged) in [
        ("svc:{repo}", true),
        ("{repo}", true),
        ("other:{repo}", false),
    ] {
        let (pack, _) = echo("tags = [\"svc:{repo}\"]");
        let engine = EngineFixture::open(vec![pack, writer(write)]).await;
        engine.run("t.echo", "{\"repo\":\"a\"}").await;
        engine.run("t.write", "{}").await;
        let wanted = if purged {
            CacheStatus::Miss
        } else {
            CacheStatus::Hit
        };
        assert_eq!(
            status(&engine.run("t.echo", "{\"repo\":\"a\"}").await),
            wanted,
            "{write}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_within_stale_if_error_serves_stale() {
    for hot_bytes in [0, 1 << 20] {
        let hangs = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&hangs);
        let text = manifest(
            "t.echo",
            "read_only = true",
            "[memory]\ncache = true\nttl = \"60s\"\nstale_if_error = \"1h\"",
        );
        let (pack, _) = function(&with_input(&text), move |_, _| {
            let hangs = told.load(Ordering::SeqCst) > 0;
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                Ok(Reply::json(Json::parse("{\"n\":1}").unwrap()))
            }
        });
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
        engine.run("t.echo", "{}").await;
        engine.settle().await;
        hangs.store(1, Ordering::SeqCst);
        engine.advance(61);
        let late = || {
            let mut call = call("t.echo", "{}");
            call.deadline = Some(Instant::now() + Duration::from_millis(50));
            engine.call(call)
        };
        assert_eq!(status(&late().await.unwrap()), CacheStatus::Stale);
        engine.advance(3600);
        assert_eq!(
            late().await.unwrap_err().code(),
            Code::Timeout,
            "past the window"
        );
    }
}
