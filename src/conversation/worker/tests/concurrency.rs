//! What happens while a summary is under way: adds, flushes, closing, other processes.

use std::sync::Arc;
use std::time::Duration;

use super::summarizer::Action;
use super::{Fixture, add, id, names, rolling, shown, until};
use crate::config::Config;

/// Two processes: each asks the store at once for writes of the other.
fn shared() -> Config {
    Config {
        hot_for: Duration::ZERO,
        ..rolling()
    }
}

#[tokio::test(start_paused = true)]
async fn late_summary_after_flush_is_discarded() {
    // The flush comes from the process that summaries, which drops the request, or from another
    // one, which cannot.
    for foreign in [false, true] {
        let fixture = Fixture::new(shared()).await;
        fixture.summarizer.next([Action::Held]);
        let (memory, me) = (fixture.open(), id("s"));
        let other = if foreign {
            fixture.open()
        } else {
            memory.clone()
        };
        add(&memory, &me, 0..6).await;
        until("asked", async || fixture.summarizer.is_asked()).await;
        other.flush(&me).await.unwrap();
        add(&other, &me, [100]).await;
        fixture.summarizer.release(1);
        until("over", async || {
            !fixture.summarizer.is_asked() && memory.metrics().backlog == 0
        })
        .await;
        let (head, checkpoint) = fixture.rows(&me).await;
        assert_eq!(
            (head.turns, checkpoint.covers_through, &*checkpoint.summary),
            (1, 0, ""),
            "foreign: {foreign}"
        );
        assert_eq!(shown(&memory, &me).await, names([100]));
        assert_eq!(memory.metrics().summaries_discarded, 1);
        assert_eq!(memory.metrics().summaries, 0);
        // And it goes on from there.
        add(&memory, &me, 101..105).await;
        fixture.until_settled(&memory, &me).await;
        assert_eq!(shown(&memory, &me).await, names(100..105));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn close_does_not_wait_for_blocking_summarizer() {
    let fixture = Fixture::new(rolling()).await;
    fixture
        .summarizer
        .always(Action::Block(Duration::from_secs(1)));
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..6).await;
    until("asked", async || fixture.summarizer.is_asked()).await;
    memory.close(Duration::from_millis(200)).await;
    assert!(
        fixture.summarizer.is_asked(),
        "the close did not wait for it"
    );
    until("over", async || !fixture.summarizer.is_asked()).await;
    assert_eq!(
        fixture.rows(&me).await.1.covers_through,
        0,
        "what came after the close is of no effect"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_on_after_the_memory_is_dropped() {
    let fixture = Fixture::new(rolling()).await;
    fixture.summarizer.always(Action::Hang);
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..6).await;
    until("asked", async || fixture.summarizer.is_asked()).await;
    drop(memory);
    until("dropped", async || !fixture.summarizer.is_asked()).await;
    until("nobody holds the store", async || {
        Arc::strong_count(&fixture.store) == 1
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_hangs_keeps_no_other_waiting() {
    let fixture = Fixture::new(rolling()).await;
    fixture.summarizer.of_session("stuck", Action::Hang);
    let memory = fixture.open();
    let (stuck, others) = (id("stuck"), ["a", "b", "c", "d"].map(id));
    add(&memory, &stuck, 0..6).await;
    until("asked", async || fixture.summarizer.is_asked()).await;
    let before = tokio::time::Instant::now();
    for other in &others {
        add(&memory, other, 0..6).await;
        until("folded", async || {
            fixture.rows(other).await.1.covers_through == 4
        })
        .await;
    }
    assert!(
        before.elapsed() < Duration::from_secs(30),
        "they waited for the time of the other: {:?}",
        before.elapsed()
    );
}
