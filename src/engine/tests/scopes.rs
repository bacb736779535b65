//! Scopes of cached answers: which callers share an answer.

use std::sync::Arc;

use helmdeck_core::{CacheStatus, Code, Directive, Identity};
use helmdeck_testkit::call;

use crate::cache::directed;
use crate::support::{EngineFixture, echo, status};

#[tokio::test]
async fn scopes_separate_callers_and_shared_joins_tenant() {
    let who = |tenant: &str, user: &str, session: Option<&str>| {
        let identity = Identity::new(tenant, user).unwrap();
        Arc::new(match session {
            Some(session) => identity.with_session(session).unwrap(),
            None => identity,
        })
    };
    let callers = [
        who("t", "a", None),
        who("t", "b", None),
        who("u", "a", None),
        who("t", "a", Some("s1")),
        who("t", "a", Some("s2")),
    ];
    // Without a session, an answer of scope `session` is not stored: those three callers run twice.
    for (memory, runs) in [
        ("scope = \"caller\"", 3),
        ("scope = \"session\"", 8),
        ("scope = \"shared\"", 2),
    ] {
        let (pack, counted) = echo(memory);
        let engine = EngineFixture::open(vec![pack]).await;
        for _ in 0..2 {
            for caller in &callers {
                let mut call = call("t.echo", "{}");
                call.identity = Arc::clone(caller);
                engine.call(call).await.unwrap();
            }
        }
        assert_eq!(counted.runs(), runs, "{memory}");
    }
}

#[tokio::test]
async fn session_scope_without_session_bypasses_with_reason() {
    let (pack, counted) = echo("scope = \"session\"");
    let engine = EngineFixture::open(vec![pack]).await;
    for runs in 1..=2 {
        let info = engine.run("t.echo", "{}").await.cache.unwrap();
        assert_eq!(
            (info.status, info.reason, counted.runs()),
            (CacheStatus::Bypass, Some("no_session"), runs)
        );
    }
    let rows = engine
        .engine
        .memory()
        .unwrap()
        .store()
        .stats()
        .await
        .unwrap()
        .rows_by_kind
        .get("cache")
        .copied();
    assert_eq!(rows, None);
    let told = engine
        .engine
        .explain(call("t.echo", "{}"))
        .await
        .unwrap_err();
    assert!(
        told.code() == Code::Conflict && told.message().contains("no_session"),
        "{told:?}"
    );
    let only = engine
        .call(directed("{}", Directive::OnlyIfCached))
        .await
        .unwrap_err();
    assert_eq!(only.code(), Code::CacheMiss);
}

#[tokio::test]
async fn anonymous_callers_are_cached_only_where_all_share() {
    for (memory, runs) in [("", 2), ("scope = \"shared\"", 1)] {
        let (pack, counted) = echo(memory);
        let engine = EngineFixture::open(vec![pack]).await;
        for _ in 0..2 {
            let mut call = call("t.echo", "{}");
            call.identity = Arc::new(Identity::anonymous());
            engine.call(call).await.unwrap();
        }
        assert_eq!(counted.runs(), runs);
    }
}

#[tokio::test]
async fn anonymous_caller_never_shares_with_a_tenant() {
    let (pack, counted) = echo("scope = \"shared\"");
    let engine = EngineFixture::open(vec![pack]).await;
    let mut ask = call("t.echo", "{}");
    ask.identity = Arc::new(Identity::new("local", "somebody").unwrap());
    assert_eq!(
        status(&engine.call(ask.clone()).await.unwrap()),
        CacheStatus::Miss
    );
    ask.identity = Arc::new(Identity::anonymous());
    assert_eq!(
        status(&engine.call(ask.clone()).await.unwrap()),
        CacheStatus::Miss
    );
    assert_eq!(
        status(&engine.call(ask.clone()).await.unwrap()),
        CacheStatus::Hit
    );
    ask.identity = Arc::new(Identity::new("local", "else").unwrap());
    assert_eq!(
        status(&engine.call(ask).await.unwrap()),
        CacheStatus::Hit,
        "the answer of somebody, of the same tenant"
    );
    assert_eq!(counted.runs(), 2);
}

#[tokio::test]
async fn answers_of_pinned_sessions_are_never_shared() {
    for scope in ["caller", "session", "shared"] {
        let (pack, counted) = echo(&format!("scope = \"{scope}\""));
        let engine = EngineFixture::open(vec![pack]).await;
        let run = async |user: &str, input: &str| {
            let mut call = call("t.echo", input);
            call.identity = Arc::new(Identity::new("t", user).unwrap());
            status(&engine.call(call).await.unwrap())
        };
        let pinned = "{\"_session_id\": \"s\"}";
        assert_eq!(run("a", pinned).await, CacheStatus::Miss);
        assert_eq!(
            run("a", " {\"_session_id\": \"s\"}").await,
            CacheStatus::Hit,
            "{scope}"
        );
        let unpinned = if scope == "session" {
            CacheStatus::Bypass
        } else {
            CacheStatus::Miss
        };
        for (user, input, wanted) in [
            ("b", pinned, CacheStatus::Miss),
            ("b", "{}", unpinned),
            ("a", "{\"_session_id\": \"other\"}", CacheStatus::Miss),
        ] {
            assert_eq!(run(user, input).await, wanted, "{scope}: {user} {input}");
        }
        assert_eq!(counted.runs(), 4, "{scope}");
    }
}
