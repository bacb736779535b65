//! Singleflight: one run per key.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use helmdeck_core::{Builtin, CacheStatus, Code, Context, Json, Outcome, Reply};
use helmdeck_engine::{Engine, Selector};
use helmdeck_testkit::{Counted, ManualClock, call, function, manifest, memory, patient};
use tokio::sync::{Notify, Semaphore, mpsc};

use crate::credentials::Wallet;
use crate::support::{EngineFixture, status};

/// A cached pack whose runs wait for a permit each.
///
/// It reports when a run starts, and when one is dropped before its end.
struct Gated {
    pack: Builtin,
    counted: Counted,
    permits: Arc<Semaphore>,
    started: Arc<Notify>,
    dropped: mpsc::UnboundedReceiver<()>,
}

/// Reply of the handler in a run, once it has a permit.
type Deed = fn(&Context, usize) -> Reply;

fn gated(memory: &str) -> Gated {
    gated_with(memory, |_, n| {
        Reply::json(Json::parse(format!("{{\"n\":{n}}}")).unwrap())
    })
}

fn gated_with(memory: &str, reply: Deed) -> Gated {
    let (permits, started) = (Arc::new(Semaphore::new(0)), Arc::new(Notify::new()));
    let (signal, dropped) = mpsc::unbounded_channel();
    let (gate, start, runs) = (
        Arc::clone(&permits),
        Arc::clone(&started),
        AtomicUsize::new(0),
    );
    let top = "read_only = true\ncredentials = [\"main\"]";
    let text = manifest(
        "t.gated",
        top,
        &format!("[memory]\ncache = true\nttl = \"60s\"\n{memory}"),
    );
    let (pack, counted) = function(&text, move |cx, _| {
        let (gate, start, signal) = (Arc::clone(&gate), Arc::clone(&start), signal.clone());
        let n = runs.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            let mut guard = Dropped(Some(signal));
            start.notify_one();
            cx.report(Some(50.0), "half way");
            gate.acquire().await.unwrap().forget();
            guard.0 = None;
            Ok(reply(&cx, n))
        }
    });
    Gated {
        pack,
        counted,
        permits,
        started,
        dropped,
    }
}

struct Dropped(Option<mpsc::UnboundedSender<()>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        if let Some(signal) = self.0.take() {
            let _ = signal.send(());
        }
    }
}

#[tokio::test]
async fn failed_or_panicked_run_fails_its_waiters_and_is_not_kept() {
    for panics in [false, true] {
        let (gate, runs) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let (held, counted) = (Arc::clone(&gate), Arc::clone(&runs));
        let text = manifest(
            "t.failing",
            "read_only = true",
            "[memory]\ncache = true\nttl = \"60s\"",
        );
        let (pack, _) = function(&text, move |_, _| {
            let (gate, first) = (
                Arc::clone(&held),
                counted.fetch_add(1, Ordering::SeqCst) == 0,
            );
            async move {
                gate.acquire().await.unwrap().forget();
                assert!(!(first && panics), "a handler that panics");
                if first {
                    return Err(helmdeck_core::Error::new(Code::HandlerFailed, "no"));
                }
                Ok(Reply::json(Json::parse("{}").unwrap()))
            }
        });
        let engine = Arc::new(EngineFixture::open(vec![pack]).await);
        let callers: Vec<_> = (0..50)
            .map(|_| {
                let engine = Arc::clone(&engine);
                tokio::spawn(async move { engine.call(call("t.failing", "{}")).await })
            })
            .collect();
        // On one thread, all callers wait before this task goes on.
        while runs.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        gate.add_permits(2);
        for caller in callers {
            assert_eq!(
                caller.await.unwrap().unwrap_err().code(),
                Code::HandlerFailed
            );
        }
        assert_eq!(runs.load(Ordering::SeqCst), 1, "no waiter ran it again");
        assert_eq!(
            status(&engine.run("t.failing", "{}").await),
            CacheStatus::Miss
        );
        assert_eq!(
            status(&engine.run("t.failing", "{}").await),
            CacheStatus::Hit
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn identical_misses_run_handler_once() {
    let gated = gated("");
    let engine = Arc::new(EngineFixture::open(vec![gated.pack]).await);
    for round in 1..=3 {
        let callers: Vec<_> = (0..50)
            .map(|_| {
                let engine = Arc::clone(&engine);
                tokio::spawn(async move { engine.run("t.gated", "{}").await })
            })
            .collect();
        gated.started.notified().await;
        gated.permits.add_permits(1);
        let mut misses = 0;
        for caller in callers {
            let outcome = caller.await.unwrap();
            assert_eq!(outcome.output.as_str(), format!("{{\"n\":{round}}}"));
            misses += usize::from(status(&outcome) == CacheStatus::Miss);
        }
        assert_eq!((gated.counted.runs(), misses), (round, 1));
        engine.advance(61);
    }
}

#[tokio::test]
async fn first_caller_may_leave_others_are_answered() {
    let gated = gated("");
    let engine = Arc::new(EngineFixture::open(vec![gated.pack]).await);
    let first = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { engine.run("t.gated", "{}").await }
    });
    gated.started.notified().await;
    let others: Vec<_> = (0..5)
        .map(|_| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move { engine.run("t.gated", "{}").await })
        })
        .collect();
    tokio::task::yield_now().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    gated.permits.add_permits(1);
    for other in others {
        assert_eq!(status(&other.await.unwrap()), CacheStatus::Coalesced);
    }
    assert_eq!(gated.counted.runs(), 1);
}

#[tokio::test]
async fn when_all_leave_the_handler_is_cancelled() {
    let mut gated = gated("");
    let engine = Arc::new(EngineFixture::open(vec![gated.pack]).await);
    let callers: Vec<_> = (0..3)
        .map(|_| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move { engine.run("t.gated", "{}").await })
        })
        .collect();
    gated.started.notified().await;
    tokio::task::yield_now().await;
    for caller in &callers {
        caller.abort();
    }
    gated.dropped.recv().await.unwrap();
    gated.permits.add_permits(1);
    assert_eq!(
        status(&engine.run("t.gated", "{}").await),
        CacheStatus::Miss
    );
    assert_eq!(gated.counted.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn each_waiter_keeps_its_own_deadline() {
    let gated = gated("");
    let engine = EngineFixture::open(vec![gated.pack]).await;
    let mut hurried = call("t.gated", "{}");
    // It passes when everything waits, so after its run has begun.
    hurried.deadline = Some(Instant::now() + Duration::from_secs(1));
    let hurried = async {
        let hurried = engine.call(hurried).await;
        assert_eq!(hurried.unwrap_err().code(), Code::Timeout);
        gated.permits.add_permits(1);
    };
    let patient = async {
        gated.started.notified().await;
        engine.run("t.gated", "{}").await
    };
    let ((), patient) = tokio::join!(hurried, patient);
    assert_eq!(
        (status(&patient), gated.counted.runs()),
        (CacheStatus::Coalesced, 1)
    );
}

#[tokio::test]
async fn purge_during_flight_drops_answer_and_reruns() {
    let gated = gated("");
    let engine = Arc::new(EngineFixture::open(vec![gated.pack]).await);
    let before = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { engine.run("t.gated", "{}").await }
    });
    gated.started.notified().await;
    engine.engine.memory().unwrap().purge(Selector::All).await;
    let after = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { engine.run("t.gated", "{}").await }
    });
    gated.started.notified().await;
    gated.permits.add_permits(2);
    assert_eq!(
        (
            status(&before.await.unwrap()),
            status(&after.await.unwrap())
        ),
        (CacheStatus::Miss, CacheStatus::Miss)
    );
    assert_eq!(
        engine.run("t.gated", "{}").await.output.as_str(),
        "{\"n\":2}",
        "what was asked before the purge is not kept"
    );
}

#[tokio::test]
async fn progress_reaches_everybody_who_waits() {
    struct Sink(mpsc::UnboundedSender<String>);
    impl helmdeck_core::context::ProgressSink for Sink {
        fn report(&self, _: Option<f32>, message: &str) {
            let _ = self.0.send(message.to_owned());
        }
    }
    let gated = gated("");
    let engine = EngineFixture::open(vec![gated.pack]).await;
    let (sender, mut seen) = mpsc::unbounded_channel();
    let mut calls = Vec::new();
    for _ in 0..2 {
        let mut call = call("t.gated", "{}");
        call.progress = Some(Arc::new(Sink(sender.clone())));
        calls.push(engine.call(call));
    }
    gated.permits.add_permits(1);
    let results = futures_util::future::join_all(calls).await;
    assert!(results.into_iter().all(|result| result.is_ok()));
    assert_eq!(
        (seen.recv().await.unwrap(), seen.recv().await.unwrap()),
        ("half way".to_owned(), "half way".to_owned())
    );
}

/// Makes two calls with one run, then a third as soon as the first has its answer.
///
/// Returns how each of the three was answered. The third call is made while the second still holds
/// the answer, and long before its result is read.
async fn two_on_board_and_one_too_late(
    mut gated: Gated,
    between: impl AsyncFnOnce(&EngineFixture),
) -> (String, [(CacheStatus, String); 3]) {
    let (clock, wallet) = (
        Arc::new(ManualClock::default()),
        Arc::new(Wallet::default()),
    );
    wallet.set("main", Some(1));
    let builder = Engine::builder(patient())
        .builtins(vec![gated.pack])
        .secrets(wallet);
    let memory = memory(Arc::clone(&clock) as _).await;
    let engine = EngineFixture {
        engine: builder
            .memory(memory)
            .clock(Arc::clone(&clock) as _)
            .build(),
        clock,
    };
    let answer = |outcome: Outcome| {
        (
            status(&outcome),
            outcome.output.as_str().chars().take(7).collect(),
        )
    };
    let [mut first, mut second] = [(); 2].map(|()| Box::pin(engine.run("t.gated", "{}")));
    tokio::select! {
        biased;
        () = gated.started.notified() => {}
        _ = &mut first => unreachable!("its run waits for a permit"),
    }
    assert!(
        (&mut second).now_or_never().is_none(),
        "it is on board, and not looked at again until the others are through"
    );
    between(&engine).await;
    gated.permits.add_permits(2);
    let first = answer(first.await);
    let late = answer(engine.run("t.gated", "{}").await);
    assert_eq!(
        gated.counted.runs(),
        2,
        "one for those on board, one for who came later"
    );
    assert!(gated.dropped.try_recv().is_err());
    let second = answer(second.await);
    (engine.engine.metrics(), [first, second, late])
}

#[tokio::test]
async fn unstored_answer_reaches_only_current_waiters() {
    fn text(n: usize, rest: &str) -> Json {
        Json::parse(format!("{{\"n\":{n},\"rest\":\"{rest}\"}}")).unwrap()
    }
    let cases: [(&str, &str, Deed); 4] = [
        ("no_store", "", |_, n| Reply::json(text(n, "")).no_store()),
        ("too_large", "max_bytes = \"1KiB\"", |_, n| {
            Reply::json(text(n, &"x".repeat(2000)))
        }),
        ("secret", "", |cx, n| {
            let secret = cx.credential().unwrap().unwrap();
            Reply::json(text(n, &secret.expose().replace('"', "\\\"")))
        }),
        ("token_format", "", |_, n| {
            Reply::json(text(n, &format!("ghp_{}", "a1".repeat(18))))
        }),
    ];
    for (what, memory, reply) in cases {
        let (metrics, answers) =
            two_on_board_and_one_too_late(gated_with(memory, reply), async |_| ()).await;
        let [one, two] = ["{\"n\":1,", "{\"n\":2,"].map(str::to_owned);
        assert!(
            metrics.contains(&format!(
                "helmdeck_cache_refused_total{{reason=\"{what}\"}} 2"
            )),
            "{what}: {metrics}"
        );
        let expected = [
            (CacheStatus::Miss, one.clone()),
            (CacheStatus::Coalesced, one),
            (CacheStatus::Miss, two),
        ];
        assert_eq!(answers, expected, "{what}");
    }
}

#[tokio::test]
async fn answer_purged_during_run_reaches_no_later_caller() {
    let purge = async |engine: &EngineFixture| {
        engine.engine.memory().unwrap().purge(Selector::All).await;
    };
    let (_, answers) = two_on_board_and_one_too_late(gated(""), purge).await;
    let [one, two] = ["{\"n\":1}", "{\"n\":2}"].map(str::to_owned);
    assert_eq!(
        answers,
        [
            (CacheStatus::Miss, one.clone()),
            (CacheStatus::Coalesced, one),
            (CacheStatus::Miss, two)
        ]
    );
}
