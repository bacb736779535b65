//! Tests of attempt times, on a paused clock, and of fairness.

use std::time::Duration;

use helmdeck_events::EventKind;

use super::summarizer::Action;
use super::{Fixture, LONG, add, id, names, rolling, shown, turn, until};
use crate::config::{Config, SummarizerConfig};
use crate::health::Health;
use crate::identity::Identity;
use crate::summarizer::Failure;

const SECOND: Duration = Duration::from_secs(1);

/// Returns the waits between the calls of the summarizer.
fn waits(fixture: &Fixture) -> Vec<Duration> {
    let calls = fixture.summarizer.calls();
    calls
        .windows(2)
        .map(|pair| pair[1].at - pair[0].at)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn attempts_back_off_to_longest_wait() {
    let fixture = Fixture::new(rolling()).await;
    fixture
        .summarizer
        .always(Action::Fail(Failure::Unavailable));
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..3).await;
    until("many attempts", async || {
        fixture.summarizer.calls().len() >= 13
    })
    .await;
    for (number, wait) in waits(&fixture).into_iter().enumerate() {
        let step = Duration::from_secs(1 << number).min(Duration::from_secs(300));
        assert!(
            wait >= step / 2 && wait <= step + SECOND / 2,
            "wait {number} was {wait:?}, not {step:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_turn_does_not_shorten_the_wait() {
    let fixture = Fixture::new(rolling()).await;
    let config = SummarizerConfig {
        retry_wait: 100 * SECOND,
        ..rolling().summarizer
    };
    fixture
        .summarizer
        .next([Action::Fail(Failure::Unavailable)]);
    let memory = fixture.open_with(Config {
        summarizer: config,
        ..rolling()
    });
    let me = id("s");
    add(&memory, &me, 0..3).await;
    until("failed", async || {
        memory.health(&me).await.unwrap() == Health::Retry
    })
    .await;
    for name in 3..40 {
        add(&memory, &me, [name]).await;
        memory.context(&me).await.unwrap();
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(fixture.summarizer.calls().len(), 1);
    fixture.until_settled(&memory, &me).await;
    assert!(waits(&fixture)[0] >= 50 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn retry_after_holds() {
    let fixture = Fixture::new(rolling()).await;
    fixture
        .summarizer
        .next([Action::Later(40 * SECOND), Action::Later(100_000 * SECOND)]);
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..3).await;
    fixture.until_settled(&memory, &me).await;
    let waits = waits(&fixture);
    assert!(
        waits[0] >= 40 * SECOND && waits[0] <= 41 * SECOND,
        "{waits:?}"
    );
    assert!(
        waits[1] >= 300 * SECOND && waits[1] <= 301 * SECOND,
        "no longer than the longest wait: {waits:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn forced_summary_skips_the_wait() {
    let fixture = Fixture::new(rolling()).await;
    fixture
        .summarizer
        .next([Action::Fail(Failure::Unavailable)]);
    let config = SummarizerConfig {
        retry_wait: 200 * SECOND,
        ..rolling().summarizer
    };
    let memory = fixture.open_with(Config {
        summarizer: config,
        ..rolling()
    });
    let me = id("s");
    add(&memory, &me, 0..20).await;
    until("failed", async || {
        memory.health(&me).await.unwrap() == Health::Retry
    })
    .await;
    assert_eq!(memory.summarise(&me, SECOND).await.unwrap(), 0);
    assert_eq!(shown(&memory, &me).await, names(0..20));
    assert!(waits(&fixture)[0] < 100 * SECOND);
    assert_eq!(
        memory.summarise(&me, SECOND).await.unwrap(),
        0,
        "nothing is due"
    );
}

#[tokio::test(start_paused = true)]
async fn forced_summary_ends_in_time_with_backlog() {
    let fixture = Fixture::new(rolling()).await;
    fixture.summarizer.always(Action::Hang);
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..20).await;
    let before = tokio::time::Instant::now();
    assert_eq!(memory.summarise(&me, 3 * SECOND).await.unwrap(), 18);
    assert!(before.elapsed() <= 4 * SECOND);
    assert_eq!(
        fixture
            .open_with(super::truncating())
            .summarise(&me, SECOND)
            .await
            .unwrap(),
        0,
        "nothing folds there"
    );
}

#[tokio::test(start_paused = true)]
async fn wait_survives_restart_and_other_process() {
    let config = SummarizerConfig {
        retry_wait: 200 * SECOND,
        ..rolling().summarizer
    };
    let config = Config {
        summarizer: config,
        hot_for: Duration::ZERO,
        ..rolling()
    };
    let fixture = Fixture::new(config).await;
    fixture
        .summarizer
        .next([Action::Fail(Failure::Unavailable)]);
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..3).await;
    until("failed", async || {
        memory.health(&me).await.unwrap() == Health::Retry
    })
    .await;
    memory.close(SECOND).await;
    let (one, two) = (fixture.open(), fixture.open());
    add(&one, &me, 3..5).await;
    add(&two, &me, 5..7).await;
    tokio::time::sleep(90 * SECOND).await;
    assert_eq!(
        fixture.summarizer.calls().len(),
        1,
        "both knew that it had failed"
    );
    fixture.until_settled(&one, &me).await;
    assert!(waits(&fixture)[0] >= 90 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn busy_tenant_delays_another_by_one_round() {
    let config = Config {
        summarizer: SummarizerConfig {
            concurrency: 1,
            ..rolling().summarizer
        },
        ..rolling()
    };
    let fixture = Fixture::new(config).await;
    fixture.summarizer.always(Action::Slow(SECOND));
    let memory = fixture.open();
    for number in 0..300 {
        let me = Identity::new("many", "u", &format!("m{number}"));
        add(&memory, &me, 0..3).await;
    }
    let single = Identity::new("one", "u", "single");
    until("asked", async || fixture.summarizer.is_asked()).await;
    let before = fixture.summarizer.calls().len();
    add(&memory, &single, 0..3).await;
    until("folded", async || {
        fixture.rows(&single).await.1.covers_through == 1
    })
    .await;
    let calls = fixture.summarizer.calls();
    let at = calls
        .iter()
        .position(|call| call.session == "single")
        .unwrap();
    assert!(at - before <= 1, "{} others came first", at - before);
    // Within the tenant every conversation has its turn before another one has a second.
    for number in 0..20 {
        let me = Identity::new("many", "u", "m0");
        memory.add_turn(&me, turn(100 + number)).await.unwrap();
    }
    until("all", async || fixture.summarizer.calls().len() >= 301).await;
    let firsts: std::collections::HashSet<_> = fixture.summarizer.calls()[..301]
        .iter()
        .map(|call| call.session.clone())
        .collect();
    assert!(firsts.len() >= 300, "{}", firsts.len());
}

#[tokio::test(start_paused = true)]
async fn event_follows_its_stored_change() {
    let fixture = Fixture::new(rolling()).await;
    // Each takes its whole time, so that nothing else is stored before the check.
    fixture.summarizer.next((0..4).map(|_| Action::Hang));
    let (memory, me) = (fixture.open(), id("s"));
    let mut events = fixture.bus.subscribe();
    add(&memory, &me, 0..3).await;
    let mut checked = 0;
    let watch = async {
        while let Some(Ok(event)) = events.next().await {
            if let EventKind::MemoryHealthChanged { new, .. } = &event.kind {
                assert_eq!(fixture.rows(&me).await.1.health.as_str(), *new);
                checked += 1;
            }
            if checked == 5 {
                return;
            }
        }
    };
    tokio::time::timeout(LONG, watch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn repeated_requests_flood_no_failing_endpoint() {
    let fixture = Fixture::new(rolling()).await;
    fixture
        .summarizer
        .always(Action::Fail(Failure::Unavailable));
    let config = SummarizerConfig {
        retry_wait: 200 * SECOND,
        ..rolling().summarizer
    };
    let memory = fixture.open_with(Config {
        summarizer: config,
        ..rolling()
    });
    let me = id("s");
    add(&memory, &me, 0..3).await;
    until("failed", async || {
        memory.health(&me).await.unwrap() == Health::Retry
    })
    .await;
    for _ in 0..10 {
        assert_eq!(memory.summarise(&me, SECOND).await.unwrap(), 1);
    }
    assert_eq!(fixture.summarizer.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn retry_after_holds_for_forced_summaries() {
    let fixture = Fixture::new(rolling()).await;
    fixture.summarizer.next([Action::Later(100 * SECOND)]);
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..3).await;
    until("failed", async || {
        memory.health(&me).await.unwrap() == Health::Retry
    })
    .await;
    assert_eq!(memory.summarise(&me, 5 * SECOND).await.unwrap(), 1);
    assert_eq!(memory.summarise(&me, LONG).await.unwrap(), 0);
    assert!(waits(&fixture)[0] >= 100 * SECOND);
}
