//! An upstream in trouble is left alone: it fails, limits, hangs or is slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use helmdeck_core::{
    Builtin, CacheInfo, CacheStatus, Caching, Code, Context, Directive, Error, Handler, Identity,
    Json, Outcome, Quota, Reply, Result, Upstream,
};
use helmdeck_engine::{Engine, Memory, Selector};
use helmdeck_system::System;
use helmdeck_testkit::{ManualClock, call, manifest, memory, patient};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::support::{EngineFixture, status};

/// An upstream whose answers a test decides, and that counts requests.
#[derive(Default)]
struct Service {
    requests: AtomicUsize,
    trouble: Mutex<Option<Error>>,
    /// Remaining requests of the quota, if it tells them.
    remaining: AtomicU64,
    /// While it is set, an answer needs a permit.
    slow: Mutex<Option<Arc<Semaphore>>>,
    caching: Mutex<Caching>,
    covered: AtomicUsize,
}

const NO_QUOTA: u64 = 0;

impl Service {
    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn fails(&self, error: Error) {
        *self.trouble.lock() = Some(error);
    }

    fn works(&self) {
        *self.trouble.lock() = None;
    }

    /// Makes a pack that asks this service.
    fn pack(self: &Arc<Self>, name: &str, memory: &str) -> Builtin {
        let input = "[input]\ntype = \"object\"\n";
        let text = manifest(
            name,
            "read_only = true",
            &format!("{input}[memory]\ncache = true\nttl = \"60s\"\n{memory}"),
        );
        Builtin {
            file: "test.toml",
            schemas: "",
            manifest: Box::leak(text.into_boxed_str()),
            handler: Arc::new(Asks(Arc::clone(self))),
            need: helmdeck_core::Need::Nothing,
        }
    }
}

struct Asks(Arc<Service>);

#[async_trait]
impl Handler for Asks {
    async fn run(&self, context: Context, _: Json) -> Result<Reply> {
        let n = self.0.requests.fetch_add(1, Ordering::SeqCst) + 1;
        self.0
            .covered
            .fetch_add(usize::from(context.covered), Ordering::SeqCst);
        let gate = self.0.slow.lock().clone();
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
        if let Some(error) = self.0.trouble.lock().clone() {
            return Err(error);
        }
        let remaining = self.0.remaining.load(Ordering::SeqCst);
        let quota = (remaining != NO_QUOTA).then_some(Quota {
            remaining,
            reset: Duration::from_secs(900),
        });
        if context.stale.is_some() {
            return Ok(Reply::not_modified().with_quota(quota));
        }
        let output = Json::parse(format!("{{\"n\":{n}}}")).unwrap();
        let reply = Reply::json(output)
            .with_validator("v")
            .with_quota(quota)
            .with_upstream_calls(1);
        Ok(reply.with_caching(*self.0.caching.lock()))
    }

    fn upstream(&self) -> Option<Upstream> {
        Some(Upstream {
            name: "api.example".to_owned(),
            keep_quota: 100,
        })
    }
}

fn limited(seconds: u64) -> Error {
    Error::new(Code::RateLimited, "slow down").with_retry_after(Duration::from_secs(seconds))
}

fn failed() -> Error {
    Error::new(Code::HandlerFailed, "status 500")
}

fn info(outcome: &Outcome) -> CacheInfo {
    outcome.cache.unwrap()
}

const COVERED: &str = "stale_if_error = \"1h\"";

#[tokio::test]
async fn covered_upstream_is_asked_once_a_wait() {
    let service = Arc::new(Service::default());
    let fixture = EngineFixture::open(vec![service.pack("t.a", COVERED)]).await;
    fixture.run("t.a", "{}").await;
    fixture.advance(61);
    service.fails(limited(7));
    for second in 0..30 {
        for n in 0..20 {
            let outcome = fixture.run("t.a", "{}").await;
            let info = info(&outcome);
            let asked = second % 7 == 0 && n == 0 && second < 28;
            assert_eq!(info.status, CacheStatus::Stale);
            if !asked {
                assert_eq!(info.reason, Some("upstream_backoff"), "{second} {n}");
                assert!(
                    info.retry_after
                        .is_some_and(|after| after <= Duration::from_secs(10)),
                    "{info:?}"
                );
            }
        }
        fixture.advance(1);
    }
    assert!(
        service.requests() <= 1 + 5,
        "{} requests in 30 s",
        service.requests()
    );
    assert_eq!(
        service.covered.load(Ordering::SeqCst),
        service.requests() - 1,
        "no handler repeats what is covered"
    );
    service.works();
    fixture.advance(10);
    assert_eq!(status(&fixture.run("t.a", "{}").await), CacheStatus::Miss);
    fixture.advance(61);
    assert_eq!(
        status(&fixture.run("t.a", "{}").await),
        CacheStatus::Miss,
        "the wait is over"
    );
}

#[tokio::test]
async fn failures_double_the_wait_up_to_a_minute() {
    let service = Arc::new(Service::default());
    let fixture = EngineFixture::open(vec![service.pack("t.a", COVERED)]).await;
    fixture.run("t.a", "{}").await;
    fixture.advance(61);
    service.fails(failed());
    for _ in 0..600 {
        assert_eq!(status(&fixture.run("t.a", "{}").await), CacheStatus::Stale);
        fixture.clock.advance(Duration::from_millis(100));
    }
    let in_a_minute = service.requests() - 1;
    assert!((5..=7).contains(&in_a_minute), "{in_a_minute}");
    for _ in 0..10 {
        fixture.advance(76);
        fixture.run("t.a", "{}").await;
    }
    assert_eq!(
        service.requests() - 1 - in_a_minute,
        10,
        "no wait is longer"
    );
}

#[tokio::test]
async fn limited_upstream_fails_misses_of_all_its_packs_at_once() {
    let service = Arc::new(Service::default());
    let fixture =
        EngineFixture::open(vec![service.pack("t.a", COVERED), service.pack("t.b", "")]).await;
    for error in [limited(5), failed().of_upstream()] {
        service.fails(error.clone());
        let before = service.requests();
        assert_eq!(
            fixture.call(call("t.b", "{}")).await.unwrap_err().code(),
            error.code()
        );
        for pack in ["t.a", "t.b"] {
            for directive in [Directive::Default, Directive::Refresh, Directive::Bypass] {
                let mut call = call(pack, "{\"x\":1}");
                call.directive = directive;
                let refused = fixture.call(call).await.unwrap_err();
                assert_eq!(refused.code(), Code::RateLimited);
                assert!(
                    refused
                        .retry_after()
                        .is_some_and(|after| after <= Duration::from_secs(5)),
                    "{refused:?}"
                );
                assert!(
                    !refused.message().contains("slow down"),
                    "another call's error is nobody else's"
                );
            }
        }
        assert_eq!(service.requests(), before + 1);
        fixture.advance(6);
        service.works();
        assert!(fixture.call(call("t.a", "{\"x\":2}")).await.is_ok());
        assert!(
            fixture
                .call(call("t.b", &format!("{{\"x\":{before}}}")))
                .await
                .is_ok(),
            "one success ends the wait"
        );
    }
    // What one request comes to is not the upstream's trouble.
    service.fails(failed());
    let before = service.requests();
    for n in 0..3 {
        fixture
            .call(call("t.b", &format!("{{\"y\":{n}}}")))
            .await
            .unwrap_err();
    }
    assert_eq!(service.requests(), before + 3);
}

#[tokio::test]
async fn one_probe_at_a_time_ends_a_wait() {
    let service = Arc::new(Service::default());
    let fixture = Arc::new(EngineFixture::open(vec![service.pack("t.a", COVERED)]).await);
    fixture.run("t.a", "{}").await;
    fixture.advance(61);
    service.fails(limited(5));
    fixture.run("t.a", "{}").await;
    fixture.advance(7);
    let gate = Arc::new(Semaphore::new(0));
    *service.slow.lock() = Some(Arc::clone(&gate));
    let before = service.requests();
    let probe = tokio::spawn({
        let fixture = Arc::clone(&fixture);
        async move { fixture.run("t.a", "{\"x\":1}").await }
    });
    while service.requests() == before {
        tokio::task::yield_now().await;
    }
    let refused = fixture.call(call("t.a", "{\"x\":2}")).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.retry_after()),
        (Code::RateLimited, Some(Duration::from_secs(1)))
    );
    assert_eq!(
        info(&fixture.run("t.a", "{}").await).reason,
        Some("upstream_backoff")
    );
    // A probe that nobody waits for any more lets the next one go.
    probe.abort();
    assert!(probe.await.unwrap_err().is_cancelled());
    *service.slow.lock() = None;
    service.works();
    helmdeck_testkit::until("the next probe", async || {
        fixture.call(call("t.a", "{\"x\":3}")).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn failing_renewal_waits_too() {
    let service = Arc::new(Service::default());
    let fixture = EngineFixture::open(vec![
        service.pack("t.a", "stale_while_revalidate = \"10m\""),
    ])
    .await;
    fixture.run("t.a", "{}").await;
    fixture.advance(61);
    service.fails(failed());
    for _ in 0..400 {
        assert_eq!(status(&fixture.run("t.a", "{}").await), CacheStatus::Stale);
        fixture.clock.advance(Duration::from_millis(10));
        tokio::task::yield_now().await;
    }
    assert!(
        (2..=4).contains(&(service.requests() - 1)),
        "{} renewals in 4 s",
        service.requests() - 1
    );
    assert_eq!(
        info(&fixture.run("t.a", "{}").await).reason,
        Some("upstream_backoff")
    );
}

#[tokio::test]
async fn kept_quota_is_for_confirmations_only() {
    let service = Arc::new(Service::default());
    let memory = format!("{COVERED}\nrevalidate = true");
    let fixture = EngineFixture::open(vec![service.pack("t.a", &memory)]).await;
    service.remaining.store(101, Ordering::SeqCst);
    fixture.run("t.a", "{}").await;
    service.remaining.store(100, Ordering::SeqCst);
    fixture.run("t.a", "{\"x\":1}").await;
    let refused = fixture.call(call("t.a", "{\"x\":2}")).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.retry_after()),
        (Code::RateLimited, Some(Duration::from_secs(900)))
    );
    assert!(refused.message().contains("quota"), "{refused}");
    fixture.advance(61);
    assert_eq!(
        status(&fixture.run("t.a", "{}").await),
        CacheStatus::Revalidated
    );
    assert_eq!(service.requests(), 3);
    fixture.advance(900);
    service.remaining.store(5000, Ordering::SeqCst);
    assert!(
        fixture.call(call("t.a", "{\"x\":2}")).await.is_ok(),
        "the quota is full again"
    );
}

#[tokio::test]
async fn kept_quota_serves_stale_and_says_so() {
    let service = Arc::new(Service::default());
    let fixture = EngineFixture::open(vec![service.pack("t.a", COVERED)]).await;
    service.remaining.store(100, Ordering::SeqCst);
    fixture.run("t.a", "{}").await;
    fixture.advance(61);
    let info = info(&fixture.run("t.a", "{}").await);
    assert_eq!(
        (info.status, info.reason),
        (CacheStatus::Stale, Some("quota_kept"))
    );
    assert_eq!(info.retry_after, Some(Duration::from_secs(900 - 61)));
    assert_eq!(service.requests(), 1);
}

#[tokio::test]
async fn waits_are_shared_and_outlive_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let service = Arc::new(Service::default());
    let engine = async || -> Engine {
        let system = System::at(data.path().join("helmdeck.db"));
        let memory = Memory {
            system: Some(system),
            ..memory(Arc::clone(&clock) as _).await
        };
        let pack = service.pack("t.a", COVERED);
        Engine::builder(patient())
            .builtins(vec![pack])
            .memory(memory)
            .clock(Arc::clone(&clock) as _)
            .build()
    };
    let (one, two) = (engine().await, engine().await);
    service.fails(limited(30));
    assert_eq!(
        one.call(call("t.a", "{}")).await.unwrap_err().code(),
        Code::RateLimited
    );
    for other in [&two, &engine().await] {
        let refused = other.call(call("t.a", "{}")).await.unwrap_err();
        assert!(
            refused
                .retry_after()
                .is_some_and(|after| after > Duration::from_secs(20)),
            "{refused:?}"
        );
    }
    assert_eq!(service.requests(), 1);
    clock.advance(Duration::from_secs(40));
    service.works();
    assert!(one.call(call("t.a", "{}")).await.is_ok());
    assert!(
        two.call(call("t.a", "{}")).await.is_ok(),
        "it is over everywhere"
    );
}

#[tokio::test(start_paused = true)]
async fn slow_upstream_keeps_nobody_waiting_beside_an_answer() {
    let service = Arc::new(Service::default());
    let fixture = EngineFixture::open(vec![service.pack("t.a", COVERED)]).await;
    fixture.run("t.a", "{}").await;
    fixture.advance(61);
    let gate = Arc::new(Semaphore::new(0));
    *service.slow.lock() = Some(Arc::clone(&gate));
    let started = tokio::time::Instant::now();
    for _ in 0..20 {
        let outcome = fixture.run("t.a", "{}").await;
        assert_eq!(
            (status(&outcome), info(&outcome).reason),
            (CacheStatus::Stale, Some("upstream_slow"))
        );
    }
    assert_eq!(
        started.elapsed(),
        Duration::from_secs(1),
        "counted from the start of the run, which all share"
    );
    assert_eq!(service.requests(), 2);
    // The run goes on without its callers, and renews the answer.
    gate.add_permits(1);
    helmdeck_testkit::until("the renewed answer", async || {
        status(&fixture.run("t.a", "{}").await) == CacheStatus::Hit
    })
    .await;
    assert_eq!(service.requests(), 2);
}

#[tokio::test]
async fn one_run_satisfies_every_age() {
    let service = Arc::new(Service::default());
    let fixture = Arc::new(EngineFixture::open(vec![service.pack("t.a", "")]).await);
    let gate = Arc::new(Semaphore::new(0));
    *service.slow.lock() = Some(Arc::clone(&gate));
    let calls: Vec<_> = (0..30)
        .map(|n| {
            let fixture = Arc::clone(&fixture);
            let mut call = call("t.a", "{}");
            call.max_age = Some(Duration::from_secs(100 + n));
            call.max_stale = (n % 2 == 0).then_some(Duration::from_secs(n));
            tokio::spawn(async move { fixture.call(call).await.unwrap() })
        })
        .collect();
    while service.requests() == 0 {
        tokio::task::yield_now().await;
    }
    gate.add_permits(30);
    for call in calls {
        let outcome = call.await.unwrap();
        assert!(matches!(
            status(&outcome),
            CacheStatus::Miss | CacheStatus::Coalesced | CacheStatus::Hit
        ));
    }
    assert_eq!(service.requests(), 1);
}

#[tokio::test]
async fn no_cache_confirms_what_is_stored() {
    let service = Arc::new(Service::default());
    let fixture = EngineFixture::open(vec![service.pack("t.a", "revalidate = true")]).await;
    fixture.run("t.a", "{}").await;
    let mut refresh = call("t.a", "{}");
    refresh.directive = Directive::Refresh;
    let outcome = fixture.call(refresh.clone()).await.unwrap();
    assert_eq!(
        (status(&outcome), outcome.output.as_str()),
        (CacheStatus::Revalidated, "{\"n\":1}")
    );
    // What is stored is never served to it unconfirmed.
    service.fails(failed());
    assert_eq!(
        fixture.call(refresh).await.unwrap_err().code(),
        Code::HandlerFailed
    );
}

#[tokio::test]
async fn error_that_the_manifest_names_is_stored() {
    let service = Arc::new(Service::default());
    let writer = manifest("t.write", "", "[memory]\ninvalidates = [\"x\"]");
    let (writer, _) = helmdeck_testkit::function(&writer, |_, _| async { Reply::value(&1) });
    let pack = service.pack(
        "t.a",
        "tags = [\"x\"]\nerrors = { not_found = \"30s\" }\nstale_if_error = \"1h\"",
    );
    let fixture = EngineFixture::open(vec![pack, writer]).await;
    let none = || Error::new(Code::NotFound, "there is no such thing");
    service.fails(none());
    let told = async |spelled: &str| fixture.call(call("t.a", spelled)).await.unwrap_err();
    for spelled in ["{}", "{}", " {}"] {
        let error = told(spelled).await;
        assert_eq!(
            (error.code(), error.message()),
            (Code::NotFound, none().message())
        );
    }
    fixture.settle().await;
    assert_eq!(service.requests(), 1);
    fixture.advance(31);
    told("{}").await;
    assert_eq!(service.requests(), 2, "for so long only");
    fixture.run("t.write", "{}").await;
    told("{}").await;
    assert_eq!(service.requests(), 3, "a write purges it");
    // It covers nothing, and other errors are not stored.
    service.fails(failed());
    fixture.advance(31);
    for requests in 4..6 {
        assert_eq!(told("{}").await.code(), Code::HandlerFailed);
        assert_eq!(service.requests(), requests);
    }
    service.fails(Error::new(
        Code::NotFound,
        "no ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    ));
    for requests in 6..8 {
        told("{}").await;
        assert_eq!(service.requests(), requests, "no secret is stored");
    }
}

#[tokio::test]
async fn every_miss_says_why() {
    let service = Arc::new(Service::default());
    let fixture = EngineFixture::open(vec![service.pack("t.a", "tags = [\"x\"]")]).await;
    let why = async |call| info(&fixture.call(call).await.unwrap()).reason;
    let plain = || call("t.a", "{}");
    assert_eq!(why(plain()).await, Some("cold"));
    assert_eq!(why(plain()).await, None, "a hit");
    fixture.settle().await;
    fixture.advance(10);
    let young = || helmdeck_core::Call {
        max_age: Some(Duration::from_secs(5)),
        ..plain()
    };
    assert_eq!(why(young()).await, Some("too_old"));
    let fresh = || helmdeck_core::Call {
        directive: Directive::Refresh,
        ..plain()
    };
    assert_eq!(why(fresh()).await, Some("refresh"));
    fixture.settle().await;
    fixture.advance(60);
    assert_eq!(why(plain()).await, Some("expired"));
}

#[tokio::test]
async fn answer_that_is_not_kept_says_why() {
    use helmdeck_core::NotKept;
    const TOKEN: &str = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
    let text = manifest(
        "t.b",
        "read_only = true",
        "[memory]\ncache = true\nttl = \"60s\"\nmax_bytes = \"1KiB\"",
    );
    let (pack, _) = helmdeck_testkit::function(&text, |_, input: Json| async move {
        let asked = input.to_value();
        Ok(match asked["kind"].as_str().unwrap_or_default() {
            "large" => Reply::value(&"x".repeat(2000))?,
            "secret" => Reply::value(&TOKEN)?,
            "no_store" => Reply::value(&1)?.no_store(),
            _ => Reply::value(&1)?,
        })
    });
    let fixture = EngineFixture::open(vec![pack]).await;
    let kinds = [
        ("large", Some(NotKept::Because("too_large"))),
        ("secret", Some(NotKept::Secret("github-token"))),
        ("no_store", Some(NotKept::Because("no_store"))),
        ("plain", None),
    ];
    for (kind, expected) in kinds {
        let outcome = fixture
            .run("t.b", &format!("{{\"kind\":\"{kind}\"}}"))
            .await;
        assert_eq!(
            (status(&outcome), info(&outcome).not_kept),
            (CacheStatus::Miss, expected),
            "{kind}"
        );
        let json = String::from_utf8(outcome.to_json()).unwrap();
        assert_eq!(
            json.contains("\"kept\":false"),
            expected.is_some(),
            "{json}"
        );
    }
}

#[tokio::test]
async fn hot_answer_is_renewed_before_its_end() {
    let service = Arc::new(Service::default());
    let gate = Arc::new(Semaphore::new(0));
    *service.slow.lock() = Some(Arc::clone(&gate));
    let fixture = Arc::new(EngineFixture::open(vec![service.pack("t.a", "early = true")]).await);
    // The run takes 3 s of the clock.
    let first = tokio::spawn({
        let fixture = Arc::clone(&fixture);
        async move { fixture.run("t.a", "{}").await }
    });
    while service.requests() == 0 {
        tokio::task::yield_now().await;
    }
    fixture.advance(3);
    gate.add_permits(1);
    assert_eq!(status(&first.await.unwrap()), CacheStatus::Miss);
    fixture.advance(29);
    for _ in 0..1000 {
        assert_eq!(status(&fixture.run("t.a", "{}").await), CacheStatus::Hit);
    }
    assert_eq!(service.requests(), 1, "31 s before its end there is time");
    fixture.advance(30);
    gate.add_permits(1);
    // With 1 s left, a call renews it with a probability of 0.7.
    for _ in 0..1000 {
        assert_eq!(status(&fixture.run("t.a", "{}").await), CacheStatus::Hit);
        tokio::task::yield_now().await;
    }
    assert_eq!(service.requests(), 2);
    fixture.advance(5);
    assert_eq!(
        status(&fixture.run("t.a", "{}").await),
        CacheStatus::Hit,
        "nobody waited for it"
    );
}

#[tokio::test]
async fn caller_may_ask_for_freshness_and_take_stale_answers_after_a_failure() {
    let service = Arc::new(Service::default());
    let fixture = EngineFixture::open(vec![
        service.pack("t.a", "stale_while_revalidate = \"0s\"\nrevalidate = true"),
    ])
    .await;
    fixture.run("t.a", "{}").await;
    fixture.advance(50);
    let with = |min_fresh: u64| helmdeck_core::Call {
        min_fresh: Some(Duration::from_secs(min_fresh)),
        ..call("t.a", "{}")
    };
    assert_eq!(
        status(&fixture.call(with(10)).await.unwrap()),
        CacheStatus::Hit
    );
    assert_eq!(
        status(&fixture.call(with(11)).await.unwrap()),
        CacheStatus::Revalidated
    );
    fixture.settle().await;
    fixture.advance(61);
    service.fails(failed());
    let covered = |seconds: u64| helmdeck_core::Call {
        stale_if_error: Some(Duration::from_secs(seconds)),
        ..call("t.a", "{}")
    };
    assert_eq!(
        status(&fixture.call(covered(60)).await.unwrap()),
        CacheStatus::Stale
    );
    assert_eq!(
        fixture.call(call("t.a", "{}")).await.unwrap_err().code(),
        Code::HandlerFailed
    );
}

#[tokio::test]
async fn jittered_answers_do_not_end_together() {
    let service = Arc::new(Service::default());
    let fixture = EngineFixture::open(vec![service.pack("t.a", "ttl_jitter = 0.5")]).await;
    let mut ttls = std::collections::BTreeSet::new();
    for n in 0..50 {
        let ttl = info(&fixture.run("t.a", &format!("{{\"x\":{n}}}")).await).ttl;
        assert!(
            (Duration::from_secs(30)..=Duration::from_secs(60)).contains(&ttl),
            "{ttl:?}"
        );
        ttls.insert(ttl);
    }
    assert!(ttls.len() > 25, "{ttls:?}");
}

#[tokio::test]
async fn young_shared_answer_is_made_anew_for_administrators_only() {
    use helmdeck_core::manifest::Scope;
    use helmdeck_engine::{CacheConfig, Config, MinAge};
    let asking = |ask: usize, administrator| {
        let mut call = call("t.a", "{}");
        call.administrator = administrator;
        match ask {
            0 => call.directive = Directive::Refresh,
            1 => call.directive = Directive::Bypass,
            2 => call.max_age = Some(Duration::ZERO),
            _ => call.min_fresh = Some(Duration::from_secs(3600)),
        }
        call
    };
    for (scope, min_age) in [
        ("shared", None),
        ("shared", Some(10)),
        ("caller", Some(10)),
        ("caller", None),
    ] {
        let service = Arc::new(Service::default());
        let kind = if scope == "shared" {
            Scope::Shared
        } else {
            Scope::Caller
        };
        let min_ages = min_age.map(|seconds| (kind, MinAge(Duration::from_secs(seconds))));
        let cache = CacheConfig {
            min_age: min_ages.into_iter().collect(),
            ..patient().cache
        };
        let pack = service.pack("t.a", &format!("scope = \"{scope}\""));
        let fixture = EngineFixture::with(
            vec![pack],
            Config {
                cache,
                ..Config::default()
            },
        )
        .await;
        for ask in 0..4 {
            fixture.call(asking(0, true)).await.unwrap();
            fixture.advance(5);
            let before = service.requests();
            let outcome = fixture.call(asking(ask, false)).await.unwrap();
            let kept = scope == "shared" || min_age.is_some();
            assert_eq!(
                service.requests() == before,
                kept,
                "{scope} {min_age:?} {ask}: {:?}",
                status(&outcome)
            );
            fixture.advance(1);
            fixture.call(asking(ask, true)).await.unwrap();
            assert_eq!(
                service.requests(),
                before + 1 + usize::from(!kept),
                "{scope} {min_age:?} {ask}"
            );
        }
        fixture.call(asking(0, true)).await.unwrap();
        fixture.advance(11);
        let before = service.requests();
        fixture.call(asking(0, false)).await.unwrap();
        let anew = min_age.is_some() || scope == "caller";
        assert_eq!(
            service.requests() - before,
            usize::from(anew),
            "{scope} {min_age:?}"
        );
    }
}

#[tokio::test]
async fn nobody_gets_the_stale_answer_that_another_caller_allowed() {
    let service = Arc::new(Service::default());
    let fixture =
        Arc::new(EngineFixture::open(vec![service.pack("t.a", "revalidate = true")]).await);
    fixture.run("t.a", "{}").await;
    fixture.settle().await;
    fixture.advance(61);
    let gate = Arc::new(Semaphore::new(0));
    *service.slow.lock() = Some(Arc::clone(&gate));
    service.fails(failed());
    let calling = |stale_if_error: Option<u64>| {
        let mut call = call("t.a", "{}");
        call.stale_if_error = stale_if_error.map(Duration::from_secs);
        let fixture = Arc::clone(&fixture);
        tokio::spawn(async move { fixture.call(call).await })
    };
    let lenient = calling(Some(60));
    while service.requests() < 2 {
        tokio::task::yield_now().await;
    }
    let strict = calling(None);
    tokio::task::yield_now().await;
    gate.add_permits(2);
    assert_eq!(status(&lenient.await.unwrap().unwrap()), CacheStatus::Stale);
    assert_eq!(
        strict.await.unwrap().unwrap_err().code(),
        Code::HandlerFailed
    );
}

#[tokio::test]
async fn bad_request_does_not_prolong_the_wait_of_others() {
    let service = Arc::new(Service::default());
    let fixture = EngineFixture::open(vec![service.pack("t.a", "")]).await;
    service.fails(limited(5));
    fixture.call(call("t.a", "{}")).await.unwrap_err();
    fixture.advance(7);
    // The upstream answers again, but this request.
    service.fails(failed());
    assert_eq!(
        fixture
            .call(call("t.a", "{\"bad\":1}"))
            .await
            .unwrap_err()
            .code(),
        Code::HandlerFailed
    );
    service.works();
    assert!(fixture.call(call("t.a", "{}")).await.is_ok());
}

#[tokio::test]
async fn what_an_upstream_gives_to_one_caller_goes_to_no_other() {
    let private = Caching {
        private: true,
        ..Caching::default()
    };
    let no_store = Caching {
        no_store: true,
        ..Caching::default()
    };
    for (scope, caching, reused) in [
        ("shared", Caching::default(), true),
        ("shared", private, false),
        ("shared", no_store, false),
        ("caller", private, true),
        ("caller", no_store, true),
    ] {
        for purged in [false, true] {
            let service = Arc::new(Service::default());
            let pack = service.pack("t.a", &format!("scope = \"{scope}\"\ntags = [\"x\"]"));
            let fixture = Arc::new(EngineFixture::open(vec![pack]).await);
            let gate = Arc::new(Semaphore::new(0));
            (*service.slow.lock(), *service.caching.lock()) = (Some(Arc::clone(&gate)), caching);
            // Callers of a shared scope are different people.
            let calling = |user| {
                let mut call = call("t.a", "{}");
                if scope == "shared" {
                    call.identity = Arc::new(Identity::new("t", user).unwrap());
                }
                let fixture = Arc::clone(&fixture);
                tokio::spawn(async move { fixture.call(call).await.unwrap() })
            };
            let first = calling("alice");
            while service.requests() == 0 {
                tokio::task::yield_now().await;
            }
            let second = calling("bob");
            tokio::task::yield_now().await;
            if purged {
                fixture.engine.memory().unwrap().purge(Selector::All).await;
            }
            gate.add_permits(2);
            let (first, second) = (first.await.unwrap(), second.await.unwrap());
            assert_eq!(status(&first), CacheStatus::Miss);
            let case = format!("{scope} {caching:?} purged: {purged}");
            assert_eq!(first.output == second.output, reused, "{case}");
            assert_eq!(service.requests(), if reused { 1 } else { 2 }, "{case}");
            if !reused {
                assert_eq!(info(&second).reason, Some("of_another"), "{case}");
            }
        }
    }
}
