//! The pipeline without memory: order, refusals, deadlines, panics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use helmdeck_core::{Code, Error, Json, Reply};
use helmdeck_testkit::{call, function, manifest, patient};

use crate::support::{EngineFixture, with_input};

#[tokio::test]
async fn output_is_unchanged_byte_for_byte() {
    let (pack, _) = function(&manifest("t.raw", "", ""), |_, _| async {
        Ok(Reply::json(
            Json::parse("{ \"x\" : 1.0,\n\"y\":1e2}").unwrap(),
        ))
    });
    let outcome = EngineFixture::shut(vec![pack]).run("t.raw", "{}").await;
    assert_eq!(outcome.output.as_str(), "{ \"x\" : 1.0,\n\"y\":1e2}");
    assert!(outcome.cache.is_none());
}

#[tokio::test]
async fn handler_sees_defaults_and_exact_numbers() {
    let (pack, _) = function(
        &with_input(&manifest("t.seen", "", "")),
        |_, input: Json| async move { Ok(Reply::json(input)) },
    );
    let engine = EngineFixture::shut(vec![pack]);
    let outcome = engine
        .run(
            "t.seen",
            "{\"n\": 9007199254740993, \"_session_id\": \"s\"}",
        )
        .await;
    assert_eq!(
        outcome.output.as_str(),
        "{\"n\":9007199254740993,\"state\":\"open\"}"
    );
    assert_eq!(
        engine.run("t.seen", "").await.output.as_str(),
        "{\"state\":\"open\"}"
    );
}

#[tokio::test]
async fn bad_input_is_refused_before_the_handler_runs() {
    let (pack, counted) = function(&with_input(&manifest("t.no", "", "")), |_, _| async {
        Ok(Reply::json(Json::parse("{}").unwrap()))
    });
    let engine = EngineFixture::shut(vec![pack]);
    for input in [
        "{",
        "[]",
        "{\"n\":\"x\"}",
        "{\"n\":1,\"n\":2}",
        "\"\\ud800\"",
        "{\"_session_id\":1}",
        "{\"_session_id\":\"\"}",
        "{\"_session_id\":\"a\\nb\"}",
    ] {
        let error = engine.call(call("t.no", input)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidInput, "{input}: {error}");
    }
    assert_eq!(counted.runs(), 0);
    let error = engine
        .call(call("t.no", "{\"n\":\"x\"}"))
        .await
        .unwrap_err();
    assert_eq!(error.violations()[0].pointer, "/n");
}

#[tokio::test]
async fn output_that_breaks_its_schema_never_leaves() {
    let text = manifest(
        "t.bad",
        "",
        "[output]\ntype = \"object\"\nrequired = [\"ok\"]",
    );
    let (pack, _) = function(&text, |_, _| async {
        Ok(Reply::json(
            Json::parse("{\"canary\":\"canary-value\"}").unwrap(),
        ))
    });
    let error = EngineFixture::shut(vec![pack])
        .call(call("t.bad", "{}"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::InvalidOutput);
    assert!(!error.problem().to_string().contains("canary-value"));
}

#[tokio::test]
async fn panic_is_handler_failed_with_fixed_text() {
    let (pack, _) = function(&manifest("t.panic", "", ""), |_, input: Json| async move {
        assert!(input.as_str().is_empty(), "canary-in-panic");
        Ok(Reply::not_modified())
    });
    let error = EngineFixture::shut(vec![pack])
        .call(call("t.panic", "{}"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::HandlerFailed);
    assert_eq!(error.message(), "the handler of pack \"t.panic\" panicked");
    assert!(!error.cause().contains("canary"));
}

#[tokio::test(start_paused = true)]
async fn pack_timeout_and_caller_deadline_both_apply() {
    let text = manifest("t.slow", "", "timeout = \"2s\"");
    let (pack, _) = function(&text, |_, _| async {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        Ok(Reply::json(Json::parse("{}").unwrap()))
    });
    let engine = EngineFixture::shut(vec![pack]);
    let started = tokio::time::Instant::now();
    assert_eq!(
        engine.call(call("t.slow", "{}")).await.unwrap_err().code(),
        Code::Timeout
    );
    assert!(started.elapsed() >= Duration::from_millis(1990));
    let mut short = call("t.slow", "{}");
    short.deadline = Some(Instant::now() + Duration::from_millis(50));
    let started = tokio::time::Instant::now();
    assert_eq!(engine.call(short).await.unwrap_err().code(), Code::Timeout);
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn a_cancelled_call_stops_its_handler() {
    let (dropped, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let (pack, _) = function(&manifest("t.wait", "", ""), move |_, _| {
        let guard = DropSignal(dropped.clone());
        async move {
            let _guard = guard;
            std::future::pending::<()>().await;
            Ok(Reply::not_modified())
        }
    });
    let engine = EngineFixture::shut(vec![pack]);
    let mut waiting = call("t.wait", "{}");
    let cancel = tokio_util::sync::CancellationToken::new();
    waiting.cancel = Some(cancel.clone());
    let (result, ()) = tokio::join!(engine.call(waiting), async { cancel.cancel() });
    assert_eq!(result.unwrap_err().code(), Code::Cancelled);
    seen.recv().await.unwrap();
}

struct DropSignal(tokio::sync::mpsc::UnboundedSender<()>);

impl Drop for DropSignal {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[tokio::test]
async fn nested_calls_keep_caller_up_to_depth_eight() {
    let (pack, counted) = function(&manifest("t.deep", "", ""), |cx, input: Json| async move {
        assert_eq!(cx.identity.user(), "local");
        cx.call("t.deep", input)
            .await
            .map(|outcome| Reply::json(outcome.output))
    });
    let error = EngineFixture::shut(vec![pack])
        .call(call("t.deep", "{}"))
        .await
        .unwrap_err();
    assert_eq!((error.code(), counted.runs()), (Code::InvalidInput, 9));
}

#[tokio::test]
async fn pack_without_session_runtime_is_refused() {
    let (pack, counted) = function(
        &manifest("t.session", "", "[session]\ntimeout = \"5m\""),
        |_, _| async { Ok(Reply::not_modified()) },
    );
    let error = EngineFixture::shut(vec![pack])
        .call(call("t.session", "{}"))
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), counted.runs()),
        (Code::SessionUnavailable, 0)
    );
}

#[tokio::test]
async fn unknown_packs_get_a_suggestion() {
    let (pack, _) = function(&manifest("t.known", "", ""), |_, _| async {
        Ok(Reply::not_modified())
    });
    let engine = EngineFixture::shut(vec![pack]);
    let error = engine.call(call("t.knwon", "{}")).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(
        error.message().contains("did you mean \"t.known\"?"),
        "{error}"
    );
    let mut other = call("t.known", "{}");
    other.version = helmdeck_core::Version::new(7);
    assert!(
        engine
            .call(other)
            .await
            .unwrap_err()
            .message()
            .contains("has no version v7; it has v1")
    );
    // Confirming an answer that was never given is the handler's fault.
    assert_eq!(
        engine.call(call("t.known", "{}")).await.unwrap_err().code(),
        Code::InvalidOutput
    );
}

#[tokio::test]
async fn highest_version_is_latest_duplicates_are_refused() {
    let make = |version: &str, answer: &'static str| {
        let text = manifest("t.many", "", "").replace("\"v1\"", &format!("\"{version}\""));
        function(&text, move |_, _| async move {
            Ok(Reply::json(Json::parse(answer).unwrap()))
        })
        .0
    };
    let clock = Arc::new(helmdeck_testkit::ManualClock::default());
    let packs = vec![
        make("v1", "1"),
        make("v10", "10"),
        make("v9", "9"),
        make("v9", "99"),
    ];
    let engine = helmdeck_engine::Engine::builder(patient())
        .builtins(packs)
        .clock(clock)
        .build();
    assert_eq!(
        engine
            .call(call("t.many", ""))
            .await
            .unwrap()
            .output
            .as_str(),
        "10"
    );
    let mut pinned = call("t.many", "");
    pinned.version = helmdeck_core::Version::new(9);
    assert_eq!(engine.call(pinned).await.unwrap().output.as_str(), "9");
    assert_eq!(engine.refused().len(), 1);
    assert!(engine.refused()[0].message.contains("already defined"));
    assert_eq!(engine.pack("t.many", None).unwrap().versions.len(), 3);
}

#[tokio::test]
async fn artifacts_belong_to_their_run_and_owner() {
    let (pack, _) = function(&manifest("t.files", "", ""), |cx, _| async move {
        cx.put_artifact("a.txt", "text/plain", "first").await?;
        tokio::task::yield_now().await;
        cx.put_artifact("a.txt", "text/plain", "second").await?;
        assert_eq!(
            cx.put_artifact("../x", "text/plain", "x")
                .await
                .unwrap_err()
                .code(),
            Code::InvalidInput
        );
        Ok(Reply::json(Json::parse("{}").unwrap()))
    });
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("artifacts");
    let engine = helmdeck_engine::Engine::builder(patient())
        .builtins(vec![pack])
        .artifacts(&kept)
        .build();
    assert!(!kept.exists());
    let (a, b) = tokio::join!(
        engine.call(call("t.files", "")),
        engine.call(call("t.files", ""))
    );
    let (a, b): (helmdeck_core::Outcome, helmdeck_core::Outcome) = (a.unwrap(), b.unwrap());
    assert_eq!((a.artifacts.len(), b.artifacts.len()), (1, 1));
    assert_ne!(a.artifacts[0].key, b.artifacts[0].key);
    let local = helmdeck_core::Identity::local();
    let (about, bytes) = engine.artifact(&local, &a.artifacts[0].key).await.unwrap();
    assert_eq!((about.size, &bytes[..]), (6, &b"second"[..]));
    let other = helmdeck_core::Identity::new("local", "eve").unwrap();
    let refused: Error = engine
        .artifact(&other, &a.artifacts[0].key)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    for key in ["../../etc/passwd", "t.files/none/a.txt", ""] {
        assert_eq!(
            engine.artifact(&local, key).await.unwrap_err().code(),
            Code::NotFound,
            "{key}"
        );
    }
}
