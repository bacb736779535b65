//! Artifacts when the S3-compatible server fails: errors are reported, and contain no secret.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use helmdeck_core::{Code, Error, Identity, Secret};
use helmdeck_engine::{Config, Engine, S3Credentials, S3Location};
use helmdeck_memory::JanitorConfig;
use helmdeck_testkit::{S3, call, function, manifest};

use crate::files::{credentials, noise, until};

fn engine(url: &str, credentials: S3Credentials) -> Engine {
    let (pack, _) = function(&manifest("t.put", "", ""), |cx, _| async move {
        cx.put_artifact("a.txt", "text/plain", noise(20 << 20))
            .await?;
        Ok(helmdeck_core::Reply::json(
            helmdeck_core::Json::parse("{}".to_owned()).unwrap(),
        ))
    });
    let mut config = Config::default();
    config.artifacts.sweep_interval = Duration::from_millis(5);
    Engine::builder(config)
        .builtins(vec![pack])
        .artifacts_in(S3Location::parse(url).unwrap(), credentials)
        .build()
}

fn reports_trouble(engine: &Engine) -> bool {
    // Without a store it reads nothing, so it is done at once.
    engine
        .ready()
        .now_or_never()
        .unwrap()
        .iter()
        .any(|(name, state)| *name == "artifacts" && state.is_err())
}

/// An error of the place names it, and nothing secret.
fn check(error: &Error, s3: &S3, credentials: &S3Credentials) {
    assert_eq!(error.code(), Code::ArtifactFailed, "{error}");
    assert!(
        error.message().contains("s3://") && error.message().contains(s3.authority()),
        "{error}"
    );
    let all = format!("{error} {} {error:?}", error.cause());
    assert!(
        !all.contains(credentials.secret.expose()) && !all.contains(&credentials.key_id),
        "{all}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_are_told_and_not_repeated() {
    let s3 = S3::shared();
    let bucket = s3.bucket();
    for wrong in [
        S3Credentials {
            key_id: "canary-key".into(),
            secret: Secret::new("canary-secret".into()),
            token: None,
        },
        S3Credentials {
            key_id: s3.key_id().into(),
            secret: Secret::new("canary-secret".into()),
            token: None,
        },
    ] {
        let wrong = S3Credentials {
            key_id: format!("{}-x", wrong.key_id),
            ..wrong
        };
        let engine = engine(&s3.url(&bucket, "p"), wrong.clone());
        assert!(!reports_trouble(&engine), "nothing was asked yet");
        check(
            &engine.call(call("t.put", "{}")).await.unwrap_err(),
            &s3,
            &wrong,
        );
        check(&engine.probe_artifacts().await.unwrap_err(), &s3, &wrong);
        check(&engine.reach_artifacts().await.unwrap_err(), &s3, &wrong);
        assert!(reports_trouble(&engine));
        assert!(!format!("{engine:?} {wrong:?}").contains("canary"));
        assert!(
            engine
                .metrics()
                .contains("helmdeck_artifact_failures_total{operation=\"store\"} ")
        );
    }
    assert_eq!(s3.keys(&bucket), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_goes_is_no_missing_file() {
    let s3 = S3::shared();
    let bucket = s3.bucket();
    let own = credentials(&s3);
    let engine = engine(&s3.url(&bucket, "p"), own.clone());
    let key = engine.call(call("t.put", "{}")).await.unwrap().artifacts[0]
        .key
        .clone();
    let me = Identity::local();
    assert_eq!(engine.artifact(&me, &key).await.unwrap().1.len(), 20 << 20);
    s3.drop_bucket(&bucket);
    check(&engine.artifact(&me, &key).await.unwrap_err(), &s3, &own);
    check(
        &engine
            .artifacts(Some(&me), None, 10, None)
            .await
            .unwrap_err(),
        &s3,
        &own,
    );
    check(
        &engine.forget_artifacts("local", "local").await.unwrap_err(),
        &s3,
        &own,
    );
    check(
        &engine.call(call("t.put", "{}")).await.unwrap_err(),
        &s3,
        &own,
    );
    assert!(reports_trouble(&engine));
}

#[tokio::test(flavor = "multi_thread")]
async fn bucket_outage_during_upload_fails_it_and_recovers() {
    let s3 = Arc::new(tokio::task::spawn_blocking(S3::start).await.unwrap());
    let bucket = s3.bucket();
    let own = credentials(&s3);
    let engine = Arc::new(engine(&s3.url(&bucket, "p"), own.clone()));
    let key = engine.call(call("t.put", "{}")).await.unwrap().artifacts[0]
        .key
        .clone();

    let me = Identity::local();
    let (_, mut pieces) = engine.open_artifact(Some(&me), &key).await.unwrap();
    let first = futures_util::StreamExt::next(&mut pieces)
        .await
        .unwrap()
        .unwrap();
    let writing = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { engine.call(call("t.put", "{}")).await }
    });
    until(
        || {
            s3.keys(&bucket)
                .iter()
                .filter(|key| key.contains("/owners/"))
                .count()
                == 2
        },
        "the second entry",
    )
    .await;
    s3.kill9();
    check(&writing.await.unwrap().unwrap_err(), &s3, &own);
    // The read in progress ends with an error, however much was already in transit.
    let mut seen = first.len();
    loop {
        match futures_util::StreamExt::next(&mut pieces).await {
            Some(Ok(piece)) => seen += piece.len(),
            Some(Err(error)) => break check(&error, &s3, &own),
            None => break assert_eq!(seen, 20 << 20, "half a file looked whole"),
        }
    }
    assert!(reports_trouble(&engine));
    check(&engine.artifact(&me, &key).await.unwrap_err(), &s3, &own);

    engine.start_sweeping(JanitorConfig::default());
    let again = Arc::clone(&s3);
    tokio::task::spawn_blocking(move || again.start_again())
        .await
        .unwrap();
    until(|| !reports_trouble(&engine), "a sweep that succeeds").await;
    // It lists names before all of it is up.
    let reads = async || {
        engine
            .artifact(&me, &key)
            .await
            .is_ok_and(|(_, bytes)| bytes == noise(20 << 20))
    };
    helmdeck_testkit::until("the artifact of before", reads).await;
    assert_eq!(
        engine
            .artifacts(Some(&me), None, 10, None)
            .await
            .unwrap()
            .artifacts
            .len(),
        1
    );
    engine.call(call("t.put", "{}")).await.unwrap();
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_bucket_affects_only_packs_with_artifacts() {
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let own = S3Credentials {
        key_id: "k".into(),
        secret: Secret::new("canary".into()),
        token: None,
    };
    let (pack, _) = function(&manifest("t.plain", "", ""), |_, input| async move {
        Ok(helmdeck_core::Reply::json(input))
    });
    let location = S3Location::parse(&format!("s3://bucket/p?endpoint=http://{nowhere}")).unwrap();
    let engine = Engine::builder(Config::default())
        .builtins(vec![pack])
        .artifacts_in(location, own)
        .build();
    engine.start_sweeping(JanitorConfig::default());
    engine.call(call("t.plain", "{}")).await.unwrap();
    until(|| reports_trouble(&engine), "the first sweep").await;
    engine.shutdown().await;
}
