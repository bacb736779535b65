//! The summarizer fails: nothing is lost, and the health shows it.
//!
//! In the end the summary holds every turn once and in order.

use std::time::Duration;

use super::summarizer::Action;
use super::{Fixture, add, id, names, rolling, shown, until};
use crate::config::{Config, SummarizerConfig};
use crate::health::Health;
use crate::summarizer::Failure;

#[tokio::test(start_paused = true)]
async fn health_follows_its_state_table() {
    let fixture = Fixture::new(rolling()).await;
    fixture
        .summarizer
        .next((0..5).map(|_| Action::Fail(Failure::Unavailable)));
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..8).await;
    fixture.until_settled(&memory, &me).await;
    let moves = fixture.moves("s").await;
    let moves: Vec<_> = moves
        .iter()
        .map(|(new, reason)| (new.as_str(), reason.as_str()))
        .collect();
    let failed = [
        ("recovering", "recovery_loop_attempt"),
        ("degraded", "recovery_batch_failed"),
    ];
    let mut expected = vec![
        ("retry", "summarizer_failed"),
        ("retry", "summarizer_failed"),
        ("degraded", "retries_exhausted"),
    ];
    expected.extend(failed);
    expected.extend(failed);
    expected.push(("recovering", "recovery_loop_attempt"));
    expected.push(("degraded", "recovery_batch_drained"));
    expected.push(("recovering", "recovery_loop_attempt"));
    expected.push(("healthy", "recovery_loop_drained"));
    assert_eq!(moves, expected);
    let metrics = memory.metrics();
    assert_eq!(metrics.summary_failures["unavailable"], 5);
    assert_eq!((metrics.summaries, metrics.backlog), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn large_backlog_is_summarised_oldest_first() {
    let config = Config {
        recovery_backlog_max: 2,
        ..rolling()
    };
    let fixture = Fixture::new(config).await;
    fixture
        .summarizer
        .always(Action::Fail(Failure::Unavailable));
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..40).await;
    until("degraded", async || {
        memory.health(&me).await.unwrap() == Health::Degraded
    })
    .await;
    // More comes while the oldest is being summarised: it must not push that out.
    fixture.summarizer.always(Action::Held);
    until("asked", async || fixture.summarizer.is_asked()).await;
    add(&memory, &me, 40..60).await;
    fixture.summarizer.always(Action::Answer);
    fixture.summarizer.release(1);
    fixture.until_settled(&memory, &me).await;
    assert_eq!(shown(&memory, &me).await, names(0..60));
    assert_eq!(fixture.summarizer.summarised().concat(), names(0..58));
    assert!(fixture.dropped().await.is_empty());
    assert_eq!(
        memory.metrics().long_backlogs,
        1,
        "told once, not at each attempt"
    );
}

#[tokio::test(start_paused = true)]
async fn too_large_batch_is_halved() {
    let config = Config {
        summarizer: SummarizerConfig {
            batch_turns: 8,
            ..rolling().summarizer
        },
        ..rolling()
    };
    let fixture = Fixture::new(config).await;
    fixture.summarizer.next([
        Action::Fail(Failure::TooLong),
        Action::Fail(Failure::Truncated),
    ]);
    let (memory, me) = (fixture.open(), id("s"));
    // All at once, so that the first batch is a full one.
    let other = fixture.open_with(super::truncating());
    add(&other, &me, 0..18).await;
    assert_eq!(memory.summarise(&me, super::LONG).await.unwrap(), 0);
    let sizes: Vec<_> = fixture
        .summarizer
        .calls()
        .iter()
        .map(|call| call.turns.len())
        .collect();
    assert_eq!(sizes, [8, 4, 2, 4, 8, 2], "halved, then doubled again");
    assert_eq!(shown(&memory, &me).await, names(0..18));
}

#[tokio::test(start_paused = true)]
async fn long_turn_is_clipped_only_for_model() {
    let config = Config {
        summarizer: SummarizerConfig {
            batch_tokens: 1000,
            ..rolling().summarizer
        },
        ..rolling()
    };
    let fixture = Fixture::new(config).await;
    fixture
        .summarizer
        .next([Action::Fail(Failure::TooLong), Action::Answer]);
    let (memory, me) = (fixture.open(), id("s"));
    let long = crate::turn::NewTurn::new("long ".repeat(4000), "answer ".repeat(4000));
    memory.add_turn(&me, long.clone()).await.unwrap();
    add(&memory, &me, 1..3).await;
    until("folded", async || {
        fixture.rows(&me).await.1.covers_through == 1
    })
    .await;
    let counter = crate::tokens::Counter::Chars;
    let sent: Vec<_> = fixture
        .summarizer
        .calls()
        .iter()
        .map(|call| counter.turn(&call.request.turns[0]))
        .collect();
    assert!(sent[0] <= 1000 && sent[0] > 900, "{sent:?}");
    assert!(
        sent[1] <= 500 && sent[1] > 400,
        "half of it the second time: {sent:?}"
    );
    let rows = fixture.scan(&me, "turn/").await;
    assert!(
        rows[0].1.len() > long.user_message.len() + long.assistant_response.len(),
        "the row is whole"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_no_summary_is_a_failure() {
    let fixture = Fixture::new(rolling()).await;
    fixture
        .summarizer
        .next([Action::Say(" \n".to_owned()), Action::Panic, Action::Hang]);
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..3).await;
    fixture.until_settled(&memory, &me).await;
    let failures = memory.metrics().summary_failures;
    assert_eq!(
        failures.into_iter().collect::<Vec<_>>(),
        [("garbage", 1), ("timeout", 1), ("unavailable", 1)]
    );
    assert_eq!(shown(&memory, &me).await, names(0..3));
}

#[tokio::test(start_paused = true)]
async fn summary_over_its_limit_is_asked_by_halves() {
    let config = Config {
        budget_tokens: 400,
        ..rolling()
    };
    let fixture = Fixture::new(config).await;
    fixture.summarizer.always(Action::Say(format!(
        "{} and the news",
        "word and more ".repeat(1000)
    )));
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..3).await;
    until("folded", async || {
        fixture.rows(&me).await.1.covers_through == 1
    })
    .await;
    let patch = memory.context(&me).await.unwrap();
    let tokens = crate::tokens::Counter::Chars.count(&patch.summary);
    assert!(
        tokens <= 200 && tokens > 150,
        "half of the budget: {tokens}"
    );
    let asked: Vec<_> = fixture
        .summarizer
        .calls()
        .iter()
        .map(|call| call.request.max_tokens)
        .collect();
    assert_eq!(asked, [200, 100, 50], "each time for half as much");
    assert_eq!(memory.metrics().summary_failures["over_limit"], 3);
    assert!(
        patch.summary.ends_with("and the news"),
        "what came last is not lost"
    );
    assert!(patch.tokens <= 400);
}

#[tokio::test(start_paused = true)]
async fn long_restored_summary_does_not_stop_summarising() {
    let fixture = Fixture::new(rolling()).await;
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..2).await;
    let (_, checkpoint) = fixture.rows(&me).await;
    let long = crate::rows::Checkpoint {
        summary: "restored ".repeat(50_000),
        opening: Some("goal ".repeat(50_000)),
        ..checkpoint
    };
    fixture
        .put_row(
            &me.namespace().unwrap(),
            "~checkpoint",
            &serde_json::to_vec(&long).unwrap(),
        )
        .await;
    let memory = fixture.open();
    add(&memory, &me, 2..4).await;
    until("asked", async || !fixture.summarizer.calls().is_empty()).await;
    let request = fixture.summarizer.calls().remove(0).request;
    let counter = crate::tokens::Counter::Chars;
    assert!(counter.count(&request.previous_summary) <= 1024);
    assert!(counter.count(request.goal.as_deref().unwrap()) <= 256);
}

#[tokio::test(start_paused = true)]
async fn summarising_ends_on_permanent_refusal() {
    for failure in [Failure::Credential, Failure::Refused] {
        let fixture = Fixture::new(rolling()).await;
        fixture.summarizer.always(Action::Fail(failure));
        let (memory, me) = (fixture.open(), id("s"));
        add(&memory, &me, 0..5).await;
        let begin = tokio::time::Instant::now();
        let waiting = memory
            .summarise(&me, std::time::Duration::from_secs(3600))
            .await
            .unwrap();
        assert!(waiting > 0, "{failure:?}");
        assert!(
            begin.elapsed() < std::time::Duration::from_secs(600),
            "it does not try until the end: {failure:?}"
        );
        assert!(
            fixture.summarizer.calls().len() <= 3,
            "{failure:?}: {} requests",
            fixture.summarizer.calls().len()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn summarizer_always_gets_first_question() {
    let fixture = Fixture::new(rolling()).await;
    let (memory, me) = (fixture.open(), id("s"));
    for name in 0..12 {
        add(&memory, &me, [name]).await;
        fixture.until_settled(&memory, &me).await;
    }
    let openings: Vec<_> = fixture
        .summarizer
        .calls()
        .into_iter()
        .map(|call| call.request.goal)
        .collect();
    assert!(
        openings.len() > 5
            && openings
                .iter()
                .all(|opening| opening.as_deref() == Some("u0")),
        "{openings:?}"
    );
    assert_eq!(
        memory.context(&me).await.unwrap().goal.as_deref(),
        Some("u0")
    );
}

#[tokio::test(start_paused = true)]
async fn brief_store_failure_costs_no_second_summary() {
    use helmdeck_testkit::Fault;
    let fixture = Fixture::new(rolling()).await;
    fixture.summarizer.always(Action::Held);
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..3).await;
    until("asked", async || fixture.summarizer.is_asked()).await;
    fixture.store.set(Fault::All);
    fixture.summarizer.release(1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    fixture.store.set(Fault::None);
    fixture.until_settled(&memory, &me).await;
    assert_eq!(fixture.summarizer.calls().len(), 1);
    assert_eq!(shown(&memory, &me).await, names(0..3));
    assert_eq!(
        memory.health(&me).await.unwrap(),
        Health::Healthy,
        "a store is no summarizer"
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_long_changes_nothing() {
    use helmdeck_testkit::Fault;
    let fixture = Fixture::new(rolling()).await;
    fixture.summarizer.always(Action::Held);
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..3).await;
    until("asked", async || fixture.summarizer.is_asked()).await;
    fixture.store.set(Fault::All);
    fixture.summarizer.release(100);
    tokio::time::sleep(Duration::from_secs(60)).await;
    fixture.store.set(Fault::None);
    fixture.until_settled(&memory, &me).await;
    assert!(fixture.moves("s").await.is_empty());
    assert_eq!(shown(&memory, &me).await, names(0..3));
}

#[tokio::test(start_paused = true)]
async fn unusable_turn_stops_no_conversation() {
    for failure in [
        Failure::Truncated,
        Failure::Looping,
        Failure::Garbage,
        Failure::Refused,
    ] {
        let config = Config {
            summarizer: SummarizerConfig {
                batch_tokens: 6000,
                ..rolling().summarizer
            },
            ..rolling()
        };
        let fixture = Fixture::new(config).await;
        fixture.summarizer.always(Action::Choke(failure));
        let (writer, me) = (fixture.open_with(super::truncating()), id("s"));
        add(&writer, &me, 0..2).await;
        let poison = crate::turn::NewTurn::new("u2", format!("{} poison", "word ".repeat(300)));
        writer.add_turn(&me, poison).await.unwrap();
        add(&writer, &me, 3..9).await;
        let memory = fixture.open();
        fixture.until_settled(&memory, &me).await;
        assert_eq!(shown(&memory, &me).await, names(0..9), "{failure:?}");
        let rows = fixture.scan(&me, "turn/").await;
        assert!(
            String::from_utf8_lossy(&rows[2].1).contains("poison"),
            "the row is whole"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn healthy_without_backlog_has_no_failure() {
    let fixture = Fixture::new(rolling()).await;
    fixture
        .summarizer
        .always(Action::Fail(Failure::Unavailable));
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..3).await;
    until("degraded", async || {
        memory.health(&me).await.unwrap() == Health::Degraded
    })
    .await;
    let first = memory
        .list_turns(&me, &crate::views::TurnFilter::default())
        .await
        .unwrap()
        .items[0]
        .key;
    memory.delete_turn(&me, &first.to_string()).await.unwrap();
    until("well", async || {
        fixture.rows(&me).await.1.health == Health::Healthy
    })
    .await;
    let checkpoint = fixture.rows(&me).await.1;
    assert_eq!((checkpoint.failures, checkpoint.last_failure), (0, None));
}
