//! The `github.*` packs against recorded exchanges with the real GitHub, through the whole engine
//! over a sealed file: what is fetched, what is only confirmed, what a limit or a failure means.
//! Nothing here talks to GitHub.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{CacheStatus, Clock, Code, Error, Outcome, Result, SystemClock};
use helmdeck_engine::Engine;
use helmdeck_system::Counter;
use helmdeck_system::System;
use helmdeck_testkit::{ManualClock, call};
use serde_json::{Value, json};

use crate::stand_in::GitHub;
use crate::support::engine::{self, Wallet, status};

const LIST: &str = "github.list_issues";
const GET: &str = "github.get_issue";
/// The cache time of the packs used here.
const TTL: Duration = Duration::from_secs(5 * 60);

/// GitHub, and an engine that is pointed at it.
struct Fixture {
    github: GitHub,
    clock: Arc<ManualClock>,
    engine: Engine,
    wallet: Arc<Wallet>,
    folder: tempfile::TempDir,
}

impl Fixture {
    /// An engine with the default credential of the packs.
    async fn open() -> Self {
        Self::with(Wallet::of(&[("github-token", "a-token-of-nobody")])).await
    }

    async fn with(wallet: Arc<Wallet>) -> Self {
        let (github, clock) = (GitHub::start(), Arc::new(ManualClock::default()));
        let folder = tempfile::tempdir().unwrap();
        let packs = engine::builtins(&github.url(), &clock);
        let memory = engine::memory(folder.path(), &clock).await;
        let engine = engine::engine(packs, &clock, &wallet, folder.path(), Some(memory));
        Self {
            github,
            clock,
            engine,
            wallet,
            folder,
        }
    }

    /// Ends the engine and starts another one on the same file, as a new process would.
    async fn restart(&mut self) {
        self.engine.shutdown().await;
        let packs = engine::builtins(&self.github.url(), &self.clock);
        let memory = engine::memory(self.folder.path(), &self.clock).await;
        self.engine = engine::engine(
            packs,
            &self.clock,
            &self.wallet,
            self.folder.path(),
            Some(memory),
        );
    }

    async fn call(&self, pack: &str, input: &Value) -> Result<Outcome> {
        self.engine.call(call(pack, &input.to_string())).await
    }

    #[track_caller]
    fn outcome(result: Result<Outcome>) -> (CacheStatus, Value) {
        let outcome = result.unwrap_or_else(|error| panic!("{error}: {}", error.cause()));
        (status(&outcome), outcome.output.to_value())
    }

    async fn read(&self, pack: &str, input: &Value) -> (CacheStatus, Value) {
        Self::outcome(self.call(pack, input).await)
    }

    async fn refused(&self, pack: &str, input: &Value) -> Error {
        self.call(pack, input).await.unwrap_err()
    }

    /// Returns how many requests there were, and how many of them were conditional.
    fn asked(&self) -> (usize, usize) {
        let log = self.github.log();
        (
            log.len(),
            log.iter()
                .filter(|entry| entry["if_none_match"].is_string())
                .count(),
        )
    }
}

/// A list of 13 issues on five recorded pages.
fn paged() -> Value {
    json!({"repo": "octokit-fixture-org/paginate-issues", "per_page": 3})
}

fn issue() -> Value {
    json!({"repo": "PyGithub/PyGithub", "number": 28})
}

#[tokio::test]
async fn polled_list_is_fetched_once_then_revalidated() {
    let mut fixture = Fixture::open().await;
    // Just what one full fetch costs: any further request that is not free would be refused.
    fixture.github.control(&json!({"rate": 5}));
    let mut counted = BTreeMap::new();
    let (_, first) = fixture.read(LIST, &paged()).await;
    counted.insert(CacheStatus::Miss, 1);
    for _ in 1..100 {
        fixture.clock.advance(TTL / 10);
        if counted.values().sum::<i32>() == 55 {
            fixture.restart().await;
        }
        let (status, output) = fixture.read(LIST, &paged()).await;
        *counted.entry(status).or_insert(0) += 1;
        assert_eq!(output, first);
    }
    let expected = [
        (CacheStatus::Hit, 90),
        (CacheStatus::Miss, 1),
        (CacheStatus::Revalidated, 9),
    ];
    assert_eq!(counted, BTreeMap::from(expected));
    assert_eq!(fixture.asked(), (5 + 9 * 5, 9 * 5));
    let log = fixture.github.log();
    assert!(
        log[..5]
            .iter()
            .all(|entry| entry["if_none_match"].is_null()),
        "the first fetch has nothing to confirm"
    );
    assert!(
        log.iter()
            .all(|entry| entry["with_credential"] == true && entry["method"] == "GET")
    );
}

#[tokio::test]
async fn changed_page_refreshes_a_list() {
    let fixture = Fixture::open().await;
    let seven =
        json!({"repo": "octokit-fixture-org/paginate-issues", "per_page": 3, "max_items": 7});
    let (_, output) = fixture.read(LIST, &seven).await;
    assert_eq!(
        (&output["count"], &output["truncated"]),
        (&json!(7), &json!(true))
    );
    let pages: Vec<String> = fixture
        .github
        .log()
        .iter()
        .map(|entry| entry["path"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(pages.len(), 3);
    assert!(
        pages[0].starts_with("/repos/octokit-fixture-org/paginate-issues/issues?"),
        "{pages:?}"
    );
    assert!(
        pages[1].contains("page=2") && pages[2].contains("page=3"),
        "{pages:?}"
    );

    let (_, all) = fixture.read(LIST, &paged()).await;
    assert_eq!(
        (&all["count"], &all["truncated"]),
        (&json!(13), &json!(false))
    );

    // Every page but the first is at this address.
    fixture
        .github
        .control(&json!({"touch": "/repositories/1000/issues"}));
    assert_eq!(
        fixture.read(LIST, &paged()).await,
        (CacheStatus::Hit, all.clone()),
        "fresh answers are not asked about"
    );
    fixture.clock.advance(TTL);
    let (status, renewed) = fixture.read(LIST, &paged()).await;
    assert_eq!((status, &renewed["count"]), (CacheStatus::Miss, &json!(13)));
    let touched = |output: &Value, index: usize| {
        output["issues"][index]["title"]
            .as_str()
            .unwrap()
            .starts_with("touched: ")
    };
    assert!(
        !touched(&renewed, 0) && touched(&renewed, 3) && touched(&renewed, 12),
        "{renewed}"
    );
    fixture.clock.advance(TTL);
    assert_eq!(
        fixture.read(LIST, &paged()).await,
        (CacheStatus::Revalidated, renewed)
    );
}

#[tokio::test]
async fn rate_limit_gives_retry_time_or_stale_answer() {
    let fixture = Fixture::open().await;
    // The stand-in's quota is reset an hour after it is asked, in the time of this machine.
    fixture.clock.set(SystemClock::default().now());
    fixture.github.control(&json!({"rate": 0}));
    let error = fixture.refused(GET, &issue()).await;
    let minutes = error.retry_after().unwrap().as_secs() / 60;
    assert_eq!(error.code(), Code::RateLimited);
    assert!((59..90).contains(&minutes), "{error}: in {minutes} minutes");
    fixture.github.control(&json!({"rate": 5000}));
    fixture.clock.advance(Duration::from_secs(90 * 60));

    let limits = [
        (
            json!({"status": 403, "headers": {"retry-after": "12", "x-ratelimit-remaining": "40"}}),
            12,
        ),
        (json!({"status": 429, "headers": {"retry-after": "7"}}), 7),
    ];
    for (limit, seconds) in &limits {
        fixture.github.control(limit);
        let error = fixture.refused(GET, &issue()).await;
        let expected = (Code::RateLimited, Some(Duration::from_secs(*seconds)));
        assert_eq!((error.code(), error.retry_after()), expected, "{limit}");
        let refused = fixture.refused(LIST, &paged()).await;
        assert_eq!(
            (refused.code(), refused.retry_after()),
            expected,
            "it is one of all packs, which ask nothing"
        );
        fixture.clock.advance(Duration::from_secs(*seconds));
    }
    assert_eq!(fixture.asked(), (3, 0), "a limit is not run against again");

    let (status, known) = fixture.read(GET, &issue()).await;
    assert_eq!(status, CacheStatus::Miss, "an error is not stored");
    fixture.clock.advance(TTL);
    // A confirmation would be free, so only a secondary limit can stop it.
    for (limit, _) in &limits {
        fixture.github.control(limit);
        for _ in 0..20 {
            assert_eq!(
                fixture.read(GET, &issue()).await,
                (CacheStatus::Stale, known.clone())
            );
        }
        fixture.clock.advance(Duration::from_secs(15));
    }
    assert_eq!(
        fixture.asked(),
        (6, 2),
        "twenty calls are one request, which would be free"
    );
    // `stale_if_error` is an hour after the answer has ended.
    fixture.clock.advance(Duration::from_secs(3600));
    fixture.github.control(&limits[1].0);
    assert_eq!(
        fixture.refused(GET, &issue()).await.code(),
        Code::RateLimited
    );
}

#[tokio::test]
async fn refusals_are_distinct_and_never_cached() {
    let fixture = Fixture::open().await;
    let bad_credentials = json!({"status": 403, "body": {"message": "Bad credentials"}});
    let (_, known) = fixture.read(GET, &issue()).await;
    for (wish, code) in [
        (
            json!({"status": 401, "body": {"message": "Bad credentials"}}),
            Code::CredentialInvalid,
        ),
        (bad_credentials, Code::CredentialInvalid),
        (
            json!({"status": 403, "body": {"message": "Resource not accessible"}}),
            Code::Forbidden,
        ),
        (
            json!({"status": 404, "body": {"message": "Not Found"}}),
            Code::NotFound,
        ),
    ] {
        fixture.clock.advance(TTL);
        let before = fixture.asked().0;
        fixture.github.control(&wish);
        assert_eq!(fixture.refused(GET, &issue()).await.code(), code, "{wish}");
        assert_eq!(fixture.asked().0, before + 1, "{wish} is not repeated");
        assert_eq!(
            fixture.read(GET, &issue()).await,
            (CacheStatus::Revalidated, known.clone()),
            "{wish}"
        );
    }
    let nowhere = json!({"repo": "nobody/nothing", "number": 1});
    for _ in 0..2 {
        let before = fixture.asked().0;
        assert_eq!(fixture.refused(GET, &nowhere).await.code(), Code::NotFound);
        assert_eq!(
            fixture.asked().0,
            before + 1,
            "a refusal is asked for again"
        );
    }
}

#[tokio::test]
async fn failing_server_is_retried_then_stale_served() {
    let fixture = Fixture::open().await;
    fixture.github.control(&json!({"status": 500, "times": 2}));
    fixture.github.control(&json!({"drop": true}));
    let (status, known) = fixture.read(GET, &issue()).await;
    assert_eq!((status, &known["number"]), (CacheStatus::Miss, &json!(28)));
    assert_eq!(fixture.asked().0, 4);

    let other = json!({"repo": "PyGithub/PyGithub", "number": 31});
    fixture.github.control(&json!({"status": 500, "times": 4}));
    let error = fixture.refused("github.get_pr", &other).await;
    assert_eq!(
        (error.code(), error.code().http_status()),
        (Code::HandlerFailed, 502)
    );
    assert_eq!(fixture.asked().0, 8);

    fixture.clock.advance(TTL);
    fixture.github.control(&json!({"status": 502}));
    assert_eq!(
        fixture.read(GET, &issue()).await,
        (CacheStatus::Stale, known.clone())
    );
    assert_eq!(
        fixture.asked().0,
        9,
        "what a stored answer covers is not repeated"
    );
    fixture.clock.advance(Duration::from_secs(2));
    assert_eq!(
        fixture.read(GET, &issue()).await,
        (CacheStatus::Revalidated, known)
    );
}

#[tokio::test]
async fn new_issue_purges_lists_of_its_repository() {
    let fixture = Fixture::open().await;
    let mine = json!({"repo": "farrd/PyGithub", "assignee": "farrd"});
    let read = async |input: &Value| fixture.read(LIST, input).await.0;
    assert_eq!(
        (read(&mine).await, read(&paged()).await),
        (CacheStatus::Miss, CacheStatus::Miss)
    );
    assert_eq!(
        (read(&mine).await, read(&paged()).await),
        (CacheStatus::Hit, CacheStatus::Hit)
    );

    let made = fixture
        .call(
            "github.create_issue",
            &json!({"repo": "farrd/PyGithub", "title": "t"}),
        )
        .await
        .unwrap();
    assert!(made.cache.is_none() && made.output.to_value()["html_url"].is_string());
    let before = fixture.asked();
    assert_eq!(read(&paged()).await, CacheStatus::Hit);
    assert_eq!(fixture.asked(), before);
    assert_eq!(read(&mine).await, CacheStatus::Miss);
    assert_eq!(
        fixture.asked(),
        (before.0 + 1, before.1),
        "what was purged is fetched, not confirmed"
    );

    // An answer that got lost may have been a yes; and GitHub does not mind the case of a
    // repository's name.
    for input in [
        json!({"repo": "farrd/PyGithub", "title": "t"}),
        json!({"repo": "Farrd/PYGITHUB", "title": "t"}),
    ] {
        assert_eq!(read(&mine).await, CacheStatus::Hit);
        fixture.github.control(&json!({"drop": true}));
        assert_eq!(
            fixture.refused("github.create_issue", &input).await.code(),
            Code::HandlerFailed
        );
        assert_eq!(
            (read(&paged()).await, read(&mine).await),
            (CacheStatus::Hit, CacheStatus::Miss),
            "{input}"
        );
    }
    let posts = fixture
        .github
        .log()
        .iter()
        .filter(|entry| entry["method"] == "POST")
        .count();
    assert_eq!(posts, 3, "a write is never sent twice");
}

#[tokio::test]
async fn a_credential_that_somebody_named_never_means_nobody() {
    let fixture = Fixture::with(Wallet::of(&[("mine", "a-token-of-nobody")])).await;
    let error = fixture
        .refused(
            GET,
            &json!({"repo": "PyGithub/PyGithub", "number": 28, "credential": "yours"}),
        )
        .await;
    assert_eq!(error.code(), Code::CredentialInvalid);
    assert!(error.message().contains("\"yours\""), "{error}");
    assert_eq!(fixture.asked(), (0, 0));

    assert_eq!(
        fixture.read(GET, &issue()).await.0,
        CacheStatus::Miss,
        "the default is nobody if it is not there"
    );
    let named = json!({"repo": "PyGithub/PyGithub", "number": 28, "credential": "mine"});
    assert_eq!(
        fixture.read(GET, &named).await.0,
        CacheStatus::Miss,
        "answers to nobody are not those to somebody"
    );
    let log = fixture.github.log();
    assert_eq!(
        (&log[0]["with_credential"], &log[1]["with_credential"]),
        (&json!(false), &json!(true))
    );
}

#[tokio::test]
async fn request_bodies_match_github_schema() {
    let fixture = Fixture::open().await;
    let writes = [
        (
            "github.create_issue",
            json!({"repo": "farrd/PyGithub", "title": "t", "body": "b", "labels": ["x"]}),
        ),
        (
            "github.comment",
            json!({"repo": "sigmavirus24/github3.py", "number": 423, "body": "hello"}),
        ),
        (
            "github.create_pr",
            json!({"repo": "PyGithub/PyGithub", "title": "t", "head": "u:x", "base": "main"}),
        ),
        (
            "github.create_release",
            json!({"repo": "PyGithub/PyGithub", "tag_name": "v1", "prerelease": true}),
        ),
    ];
    for (pack, input) in &writes {
        let made = fixture
            .call(pack, input)
            .await
            .unwrap_or_else(|error| panic!("{pack}: {error}"));
        assert!(made.output.to_value()["html_url"].is_string(), "{pack}");
    }
    assert_eq!(
        fixture.github.check_bodies().unwrap().trim(),
        "4 passed, 0 failed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn savings_are_counted_in_system_database() {
    let mut fixture = Fixture::open().await;
    // The first of five requests is held back until the clock has moved: the fetch takes exactly
    // two seconds.
    fixture.github.control(&json!({"delay_ms": 1500}));
    let (engine, input) = (fixture.engine.clone(), paged().to_string());
    let fetching = tokio::spawn(async move { engine.call(call(LIST, &input)).await });
    while fixture.asked().0 == 0 {
        tokio::task::yield_now().await;
    }
    fixture.clock.advance(Duration::from_secs(2));
    assert_eq!(
        Fixture::outcome(fetching.await.unwrap()).0,
        CacheStatus::Miss
    );
    for _ in 0..3 {
        assert_eq!(fixture.read(LIST, &paged()).await.0, CacheStatus::Hit);
    }
    fixture.restart().await;
    assert_eq!(fixture.read(LIST, &paged()).await.0, CacheStatus::Hit);
    fixture.clock.advance(TTL);
    assert_eq!(
        fixture.read(LIST, &paged()).await.0,
        CacheStatus::Revalidated
    );
    fixture.engine.shutdown().await;

    let counter = |name: &str, value| Counter {
        pack: LIST.to_owned(),
        name: name.to_owned(),
        value,
    };
    let expected = [
        counter("hit", 4),
        counter("miss", 1),
        counter("revalidated", 1),
        // A confirmation saves quota, but neither a request nor its time.
        counter("saved_calls", 4),
        counter("saved_upstream_calls", 4 * 5),
        counter("saved_us", 4 * 2_000_000),
    ];
    assert_eq!(
        System::at(fixture.folder.path().join("helmdeck.db"))
            .counters()
            .await
            .unwrap(),
        expected
    );
}
