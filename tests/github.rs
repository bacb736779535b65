//! The `github.*` packs against recorded exchanges with the real GitHub, through the whole engine over a sealed file: what
//! is fetched, what is only confirmed, what a limit or a failure means. Nothing here talks to GitHub.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{CacheStatus, Clock, Code, Error, Outcome, Result, SystemClock};
use helmdeck_engine::Engine;
use helmdeck_system::Counter;
use helmdeck_system::System;
use helmdeck_testkit::{ManualClock, call};
use serde_json::{Value, json};

use crate::deck::{self, Wallet, status};
use crate::stand_in::GitHub;

const LIST: &str = "github.list_issues";
const GET: &str = "github.get_issue";
/// The cache time of the packs used here.
const TTL: Duration = Duration::from_secs(5 * 60);

/// GitHub, and an engine that is pointed at it.
struct Desk {
    github: GitHub,
    clock: Arc<ManualClock>,
    engine: Engine,
    wallet: Arc<Wallet>,
    folder: tempfile::TempDir,
}

impl Desk {
    /// An engine with the credential that the packs use unless told otherwise.
    async fn open() -> Self {
        Self::with(Wallet::of(&[("github-token", "a-token-of-nobody")])).await
    }

    async fn with(wallet: Arc<Wallet>) -> Self {
        let (github, clock) = (GitHub::start(), Arc::new(ManualClock::default()));
        let folder = tempfile::tempdir().unwrap();
        let packs = deck::builtins(&github.url(), &clock);
        let memory = deck::memory(folder.path(), &clock).await;
        let engine = deck::engine(packs, &clock, &wallet, folder.path(), Some(memory));
        Self { github, clock, engine, wallet, folder }
    }

    /// Ends the engine and starts another one on the same file, as a new process would.
    async fn restart(&mut self) {
        self.engine.shutdown().await;
        let packs = deck::builtins(&self.github.url(), &self.clock);
        let memory = deck::memory(self.folder.path(), &self.clock).await;
        self.engine = deck::engine(packs, &self.clock, &self.wallet, self.folder.path(), Some(memory));
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
        (log.len(), log.iter().filter(|entry| entry["if_none_match"].is_string()).count())
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
async fn a_list_polled_for_ten_ttls_is_fetched_once_and_then_only_confirmed() {
    let mut desk = Desk::open().await;
    // Just what one full fetch costs: any further request that is not free would be refused.
    desk.github.control(&json!({"rate": 5}));
    let mut counted = BTreeMap::new();
    let (_, first) = desk.read(LIST, &paged()).await;
    counted.insert(CacheStatus::Miss, 1);
    for _ in 1..100 {
        desk.clock.advance(TTL / 10);
        if counted.values().sum::<i32>() == 55 {
            desk.restart().await;
        }
        let (status, output) = desk.read(LIST, &paged()).await;
        *counted.entry(status).or_insert(0) += 1;
        assert_eq!(output, first);
    }
    let expected = [(CacheStatus::Hit, 90), (CacheStatus::Miss, 1), (CacheStatus::Revalidated, 9)];
    assert_eq!(counted, BTreeMap::from(expected));
    assert_eq!(desk.asked(), (5 + 9 * 5, 9 * 5));
    let log = desk.github.log();
    assert!(log[..5].iter().all(|entry| entry["if_none_match"].is_null()), "the first fetch has nothing to confirm");
    assert!(log.iter().all(|entry| entry["with_credential"] == true && entry["method"] == "GET"));
}

#[tokio::test]
async fn a_list_is_followed_over_three_pages_and_a_new_etag_on_one_brings_new_data() {
    let desk = Desk::open().await;
    let seven = json!({"repo": "octokit-fixture-org/paginate-issues", "per_page": 3, "max_items": 7});
    let (_, output) = desk.read(LIST, &seven).await;
    assert_eq!((&output["count"], &output["truncated"]), (&json!(7), &json!(true)));
    let pages: Vec<String> = desk.github.log().iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect();
    assert_eq!(pages.len(), 3);
    assert!(pages[0].starts_with("/repos/octokit-fixture-org/paginate-issues/issues?"), "{pages:?}");
    assert!(pages[1].contains("page=2") && pages[2].contains("page=3"), "{pages:?}");

    let (_, all) = desk.read(LIST, &paged()).await;
    assert_eq!((&all["count"], &all["truncated"]), (&json!(13), &json!(false)));

    // Every page but the first is at this address.
    desk.github.control(&json!({"touch": "/repositories/1000/issues"}));
    assert_eq!(desk.read(LIST, &paged()).await, (CacheStatus::Hit, all.clone()), "fresh answers are not asked about");
    desk.clock.advance(TTL);
    let (status, renewed) = desk.read(LIST, &paged()).await;
    assert_eq!((status, &renewed["count"]), (CacheStatus::Miss, &json!(13)));
    let touched =
        |output: &Value, index: usize| output["issues"][index]["title"].as_str().unwrap().starts_with("touched: ");
    assert!(!touched(&renewed, 0) && touched(&renewed, 3) && touched(&renewed, 12), "{renewed}");
    desk.clock.advance(TTL);
    assert_eq!(desk.read(LIST, &paged()).await, (CacheStatus::Revalidated, renewed));
}

#[tokio::test]
async fn a_used_up_limit_says_when_to_come_back_or_serves_what_is_known() {
    let desk = Desk::open().await;
    // The stand-in's quota is reset an hour after it is asked, in the time of this machine.
    desk.clock.set(SystemClock::default().now());
    desk.github.control(&json!({"rate": 0}));
    let error = desk.refused(GET, &issue()).await;
    let minutes = error.retry_after().unwrap().as_secs() / 60;
    assert_eq!(error.code(), Code::RateLimited);
    assert!((59..90).contains(&minutes), "{error}: in {minutes} minutes");
    desk.github.control(&json!({"rate": 5000}));

    let limits = [
        (json!({"status": 403, "headers": {"retry-after": "12", "x-ratelimit-remaining": "40"}}), 12),
        (json!({"status": 429, "headers": {"retry-after": "7"}}), 7),
    ];
    for (limit, seconds) in &limits {
        desk.github.control(limit);
        let error = desk.refused(GET, &issue()).await;
        let expected = (Code::RateLimited, Some(Duration::from_secs(*seconds)));
        assert_eq!((error.code(), error.retry_after()), expected, "{limit}");
    }
    assert_eq!(desk.asked(), (3, 0), "a limit is not run against again");

    let (status, known) = desk.read(GET, &issue()).await;
    assert_eq!(status, CacheStatus::Miss, "an error is not stored");
    desk.clock.advance(TTL);
    // A confirmation would be free, so only a secondary limit can stand in its way.
    for (limit, _) in &limits {
        desk.github.control(limit);
        assert_eq!(desk.read(GET, &issue()).await, (CacheStatus::Stale, known.clone()));
    }
    // `stale_if_error` is an hour after the answer has ended.
    desk.clock.advance(Duration::from_secs(3600));
    desk.github.control(&limits[1].0);
    assert_eq!(desk.refused(GET, &issue()).await.code(), Code::RateLimited);
}

#[tokio::test]
async fn refusals_are_told_apart_are_not_covered_up_and_not_kept() {
    let desk = Desk::open().await;
    let bad_credentials = json!({"status": 403, "body": {"message": "Bad credentials"}});
    let (_, known) = desk.read(GET, &issue()).await;
    for (wish, code) in [
        (json!({"status": 401, "body": {"message": "Bad credentials"}}), Code::CredentialInvalid),
        (bad_credentials, Code::CredentialInvalid),
        (json!({"status": 403, "body": {"message": "Resource not accessible"}}), Code::Forbidden),
        (json!({"status": 404, "body": {"message": "Not Found"}}), Code::NotFound),
    ] {
        desk.clock.advance(TTL);
        let before = desk.asked().0;
        desk.github.control(&wish);
        assert_eq!(desk.refused(GET, &issue()).await.code(), code, "{wish}");
        assert_eq!(desk.asked().0, before + 1, "{wish} is not repeated");
        assert_eq!(desk.read(GET, &issue()).await, (CacheStatus::Revalidated, known.clone()), "{wish}");
    }
    let nowhere = json!({"repo": "nobody/nothing", "number": 1});
    for _ in 0..2 {
        let before = desk.asked().0;
        assert_eq!(desk.refused(GET, &nowhere).await.code(), Code::NotFound);
        assert_eq!(desk.asked().0, before + 1, "a refusal is asked for again");
    }
}

#[tokio::test]
async fn a_failing_server_is_asked_again_then_covered_by_what_is_known() {
    let desk = Desk::open().await;
    desk.github.control(&json!({"status": 500, "times": 2}));
    desk.github.control(&json!({"drop": true}));
    let (status, known) = desk.read(GET, &issue()).await;
    assert_eq!((status, &known["number"]), (CacheStatus::Miss, &json!(28)));
    assert_eq!(desk.asked().0, 4);

    let other = json!({"repo": "PyGithub/PyGithub", "number": 31});
    desk.github.control(&json!({"status": 500, "times": 4}));
    let error = desk.refused("github.get_pr", &other).await;
    assert_eq!((error.code(), error.code().http_status()), (Code::HandlerFailed, 502));
    assert_eq!(desk.asked().0, 8);

    desk.clock.advance(TTL);
    desk.github.control(&json!({"status": 502, "times": 4}));
    assert_eq!(desk.read(GET, &issue()).await, (CacheStatus::Stale, known.clone()));
    assert_eq!(desk.read(GET, &issue()).await, (CacheStatus::Revalidated, known));
}

#[tokio::test]
async fn a_new_issue_makes_lists_of_its_repository_fresh_and_of_no_other() {
    let desk = Desk::open().await;
    let mine = json!({"repo": "farrd/PyGithub", "assignee": "farrd"});
    let read = async |input: &Value| desk.read(LIST, input).await.0;
    assert_eq!((read(&mine).await, read(&paged()).await), (CacheStatus::Miss, CacheStatus::Miss));
    assert_eq!((read(&mine).await, read(&paged()).await), (CacheStatus::Hit, CacheStatus::Hit));

    let made = desk.call("github.create_issue", &json!({"repo": "farrd/PyGithub", "title": "t"})).await.unwrap();
    assert!(made.cache.is_none() && made.output.to_value()["html_url"].is_string());
    let before = desk.asked();
    assert_eq!(read(&paged()).await, CacheStatus::Hit);
    assert_eq!(desk.asked(), before);
    assert_eq!(read(&mine).await, CacheStatus::Miss);
    assert_eq!(desk.asked(), (before.0 + 1, before.1), "what was purged is fetched, not confirmed");

    // An answer that got lost may have been a yes; and GitHub does not mind the case of a repository's name.
    for input in [json!({"repo": "farrd/PyGithub", "title": "t"}), json!({"repo": "Farrd/PYGITHUB", "title": "t"})] {
        assert_eq!(read(&mine).await, CacheStatus::Hit);
        desk.github.control(&json!({"drop": true}));
        assert_eq!(desk.refused("github.create_issue", &input).await.code(), Code::HandlerFailed);
        assert_eq!((read(&paged()).await, read(&mine).await), (CacheStatus::Hit, CacheStatus::Miss), "{input}");
    }
    let posts = desk.github.log().iter().filter(|entry| entry["method"] == "POST").count();
    assert_eq!(posts, 3, "a write is never sent twice");
}

#[tokio::test]
async fn a_credential_that_somebody_named_never_means_nobody() {
    let desk = Desk::with(Wallet::of(&[("mine", "a-token-of-nobody")])).await;
    let error = desk.refused(GET, &json!({"repo": "PyGithub/PyGithub", "number": 28, "credential": "yours"})).await;
    assert_eq!(error.code(), Code::CredentialInvalid);
    assert!(error.message().contains("\"yours\""), "{error}");
    assert_eq!(desk.asked(), (0, 0));

    assert_eq!(desk.read(GET, &issue()).await.0, CacheStatus::Miss, "the default is nobody if it is not there");
    let named = json!({"repo": "PyGithub/PyGithub", "number": 28, "credential": "mine"});
    assert_eq!(desk.read(GET, &named).await.0, CacheStatus::Miss, "answers to nobody are not those to somebody");
    let log = desk.github.log();
    assert_eq!((&log[0]["with_credential"], &log[1]["with_credential"]), (&json!(false), &json!(true)));
}

#[tokio::test]
async fn every_body_that_is_sent_is_as_github_describes_it() {
    let desk = Desk::open().await;
    let writes = [
        ("github.create_issue", json!({"repo": "farrd/PyGithub", "title": "t", "body": "b", "labels": ["x"]})),
        ("github.comment", json!({"repo": "sigmavirus24/github3.py", "number": 423, "body": "hello"})),
        ("github.create_pr", json!({"repo": "PyGithub/PyGithub", "title": "t", "head": "u:x", "base": "main"})),
        ("github.create_release", json!({"repo": "PyGithub/PyGithub", "tag_name": "v1", "prerelease": true})),
    ];
    for (pack, input) in &writes {
        let made = desk.call(pack, input).await.unwrap_or_else(|error| panic!("{pack}: {error}"));
        assert!(made.output.to_value()["html_url"].is_string(), "{pack}");
    }
    assert_eq!(desk.github.check_bodies().unwrap().trim(), "4 passed, 0 failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_saved_is_counted_in_the_system_database() {
    let mut desk = Desk::open().await;
    // The first of five requests is held back until the clock has moved: the fetch takes exactly two seconds.
    desk.github.control(&json!({"delay_ms": 1500}));
    let (engine, input) = (desk.engine.clone(), paged().to_string());
    let fetching = tokio::spawn(async move { engine.call(call(LIST, &input)).await });
    while desk.asked().0 == 0 {
        tokio::task::yield_now().await;
    }
    desk.clock.advance(Duration::from_secs(2));
    assert_eq!(Desk::outcome(fetching.await.unwrap()).0, CacheStatus::Miss);
    for _ in 0..3 {
        assert_eq!(desk.read(LIST, &paged()).await.0, CacheStatus::Hit);
    }
    desk.restart().await;
    assert_eq!(desk.read(LIST, &paged()).await.0, CacheStatus::Hit);
    desk.clock.advance(TTL);
    assert_eq!(desk.read(LIST, &paged()).await.0, CacheStatus::Revalidated);
    desk.engine.shutdown().await;

    let counter = |name: &str, value| Counter { pack: LIST.to_owned(), name: name.to_owned(), value };
    let expected = [
        counter("hit", 4),
        counter("miss", 1),
        counter("revalidated", 1),
        // A confirmation saves quota and no time: its round trip was waited for.
        counter("saved_calls", 5),
        counter("saved_upstream_calls", 5 * 5),
        counter("saved_us", 4 * 2_000_000),
    ];
    assert_eq!(System::at(desk.folder.path().join("helmdeck.db")).counters().await.unwrap(), expected);
}
