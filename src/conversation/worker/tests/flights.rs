//! What happens while a summary is under way: adds, flushes, closing, other processes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::script::Act;
use super::{Fixture, LONG, add, id, names, rolling, shown, truncating, turn, until};
use crate::config::Config;
use crate::health::Health;
use crate::summarizer::Failure;

/// Two processes: what one does not know of the other is asked for at once.
fn shared() -> Config {
    Config { hot_for: Duration::ZERO, ..rolling() }
}

#[tokio::test(start_paused = true)]
async fn adding_never_waits_for_the_summarizer() {
    let fixture = Fixture::new(rolling()).await;
    fixture.script.always(Act::Hang);
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..3).await;
    until("asked", async || fixture.script.is_asked()).await;
    let before = tokio::time::Instant::now();
    add(&memory, &me, 3..30).await;
    assert!(before.elapsed() < Duration::from_secs(1), "time only passes here if somebody waits");
    assert_eq!(shown(&memory, &me).await, names(0..30));
    assert_eq!(fixture.script.most.load(Ordering::SeqCst), 1, "one in flight a conversation");
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_gives_up_changes_no_health() {
    let fixture = Fixture::new(rolling()).await;
    fixture.script.always(Act::Slow(Duration::from_secs(5)));
    let (memory, me) = (fixture.open(), id("s"));
    for name in 0..6 {
        let (memory, me) = (memory.clone(), me.clone());
        let adding = tokio::spawn(async move { memory.add_turn(&me, turn(name)).await.map(drop) });
        tokio::time::sleep(Duration::from_millis(10)).await;
        adding.abort();
    }
    let summarising = tokio::spawn({
        let (memory, me) = (memory.clone(), me.clone());
        async move { memory.summarise(&me, LONG).await.map(drop) }
    });
    until("asked", async || fixture.script.is_asked()).await;
    summarising.abort();
    fixture.until_settled(&memory, &me).await;
    assert!(fixture.moves("s").await.is_empty());
    assert_eq!(shown(&memory, &me).await, names(0..6));
}

#[tokio::test(start_paused = true)]
async fn many_writers_and_a_slow_summarizer_lose_and_repeat_nothing() {
    let fixture = Fixture::new(rolling()).await;
    fixture.script.always(Act::Slow(Duration::from_millis(30)));
    let (memory, me) = (fixture.open(), id("s"));
    let writers = (0..8).map(|writer| {
        let (memory, me) = (memory.clone(), me.clone());
        tokio::spawn(async move {
            for number in 0..25 {
                memory.add_turn(&me, turn(writer * 100 + number)).await.unwrap();
                tokio::time::sleep(Duration::from_millis(7)).await;
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    fixture.until_settled(&memory, &me).await;
    let shown = shown(&memory, &me).await;
    let mut sorted = shown.clone();
    sorted.sort_unstable();
    let mut all = names((0..8).flat_map(|writer| (0..25).map(move |number| writer * 100 + number)));
    all.sort_unstable();
    assert_eq!(sorted, all);
    // What was summarised is in the order of the log.
    let summarised = fixture.script.summarised().concat();
    assert_eq!(summarised, shown[..summarised.len()]);
}

#[tokio::test(start_paused = true)]
async fn two_processes_fold_each_turn_once() {
    let fixture = Fixture::new(shared()).await;
    fixture.script.always(Act::Slow(Duration::from_millis(300)));
    let (one, two, me) = (fixture.open(), fixture.open(), id("s"));
    for name in 0..40 {
        add(if name % 2 == 0 { &one } else { &two }, &me, [name]).await;
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    fixture.until_settled(&one, &me).await;
    for memory in [&one, &two] {
        assert_eq!(shown(memory, &me).await, names(0..40));
    }
    assert_eq!(fixture.script.most.load(Ordering::SeqCst), 1, "the other one waits");
    assert_eq!(fixture.script.summarised().concat(), names(0..38));
}

#[tokio::test(start_paused = true)]
async fn a_late_summary_of_a_flushed_conversation_is_thrown_away() {
    // The flush comes from the process that summaries, which drops the request, or from another one, which cannot.
    for foreign in [false, true] {
        let fixture = Fixture::new(shared()).await;
        fixture.script.next([Act::Held]);
        let (memory, me) = (fixture.open(), id("s"));
        let other = if foreign { fixture.open() } else { memory.clone() };
        add(&memory, &me, 0..6).await;
        until("asked", async || fixture.script.is_asked()).await;
        other.flush(&me).await.unwrap();
        add(&other, &me, [100]).await;
        fixture.script.release(1);
        until("over", async || !fixture.script.is_asked() && memory.metrics().backlog == 0).await;
        let (head, checkpoint) = fixture.rows(&me).await;
        assert_eq!((head.turns, checkpoint.covers_through, &*checkpoint.summary), (1, 0, ""), "foreign: {foreign}");
        assert_eq!(shown(&memory, &me).await, names([100]));
        assert_eq!(memory.metrics().folds_discarded, 1);
        assert_eq!(memory.metrics().folds, 0);
        // And it goes on from there.
        add(&memory, &me, 101..105).await;
        fixture.until_settled(&memory, &me).await;
        assert_eq!(shown(&memory, &me).await, names(100..105));
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_summary_never_overwrites_what_was_restored() {
    for foreign in [false, true] {
        let fixture = Fixture::new(shared()).await;
        let memory = fixture.open();
        let (me, source) = (id("s"), id("source"));
        add(&memory, &source, 200..208).await;
        fixture.until_settled(&memory, &source).await;
        let snapshot = memory.snapshot(&source).await.unwrap();
        // Degraded, with a backlog: nothing of that may come back later.
        fixture.script.next((0..3).map(|_| Act::Fail(Failure::Unavailable)));
        fixture.script.next([Act::Held]);
        add(&memory, &me, 0..20).await;
        until("recovering", async || memory.health(&me).await.unwrap() == Health::Recovering).await;
        until("asked", async || fixture.script.is_asked()).await;
        let other = if foreign { fixture.open() } else { memory.clone() };
        other.restore(&me, &snapshot).await.unwrap();
        fixture.script.release(1);
        until("over", async || !fixture.script.is_asked() && memory.metrics().backlog == 0).await;
        fixture.until_settled(&memory, &me).await;
        assert_eq!(shown(&memory, &me).await, names(200..208), "foreign: {foreign}");
        assert_eq!(fixture.rows(&me).await.1.failures, 0);
        assert_eq!(fixture.moves("s").await.pop().unwrap().1, "restored");
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_deleted_while_it_is_being_folded_is_in_no_summary() {
    for foreign in [false, true] {
        let fixture = Fixture::new(shared()).await;
        fixture.script.next([Act::Held]);
        let (writer, me) = (fixture.open_with(truncating()), id("s"));
        add(&writer, &me, [0]).await;
        let second = writer.add_turn(&me, turn(1)).await.unwrap();
        add(&writer, &me, 2..8).await;
        let memory = fixture.open();
        memory.context(&me).await.unwrap();
        until("asked", async || fixture.script.is_asked()).await;
        assert!(fixture.script.calls()[0].turns.contains(&"u1".to_owned()));
        let other = if foreign { fixture.open() } else { memory.clone() };
        other.delete_item(&me, &second.id.unwrap().to_string()).await.unwrap();
        fixture.script.release(1);
        fixture.until_settled(&memory, &me).await;
        assert_eq!(shown(&memory, &me).await, names([0, 2, 3, 4, 5, 6, 7]), "foreign: {foreign}");
        assert!(!fixture.rows(&me).await.1.summary.contains("u1"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_conversation_forgotten_while_it_is_being_folded_leaves_nothing() {
    for foreign in [false, true] {
        let fixture = Fixture::new(shared()).await;
        fixture.script.next([Act::Held]);
        let (memory, me) = (fixture.open(), id("s"));
        add(&memory, &me, 0..6).await;
        until("asked", async || fixture.script.is_asked()).await;
        let other = if foreign { fixture.open() } else { memory.clone() };
        assert_eq!(other.forget(&me).await.unwrap(), 6);
        fixture.script.release(1);
        until("over", async || !fixture.script.is_asked() && memory.metrics().backlog == 0).await;
        assert!(fixture.scan(&me, "").await.is_empty(), "foreign: {foreign}");
        assert!(shown(&memory, &me).await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_failure_of_a_flushed_conversation_makes_it_no_worse() {
    let fixture = Fixture::new(shared()).await;
    fixture.script.next([Act::Hang]);
    let (memory, other, me) = (fixture.open(), fixture.open(), id("s"));
    add(&memory, &me, 0..6).await;
    until("asked", async || fixture.script.is_asked()).await;
    other.flush(&me).await.unwrap();
    until("timed out", async || !fixture.script.is_asked() && memory.metrics().backlog == 0).await;
    assert_eq!(fixture.rows(&me).await.1.health, Health::Healthy);
    let moves = fixture.moves("s").await;
    assert_eq!(moves, [("healthy".to_owned(), "flushed".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn close_does_not_wait_for_a_summarizer_that_hangs() {
    let fixture = Fixture::new(rolling()).await;
    fixture.script.always(Act::Hang);
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..6).await;
    until("asked", async || fixture.script.is_asked()).await;
    let before = tokio::time::Instant::now();
    memory.close(Duration::from_secs(5)).await;
    assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
    until("dropped", async || !fixture.script.is_asked()).await;
    assert_eq!(fixture.rows(&me).await.1.health, Health::Healthy, "a close is no failure");
    memory.close(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn close_does_not_wait_for_a_summarizer_that_keeps_its_thread() {
    let fixture = Fixture::new(rolling()).await;
    fixture.script.always(Act::Block(Duration::from_secs(3)));
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..6).await;
    until("asked", async || fixture.script.is_asked()).await;
    memory.close(Duration::from_millis(200)).await;
    assert!(fixture.script.is_asked(), "the close did not wait for it");
    until("over", async || !fixture.script.is_asked()).await;
    assert_eq!(fixture.rows(&me).await.1.covers_through, 0, "what came after the close is of no effect");
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_on_after_the_memory_is_dropped() {
    let fixture = Fixture::new(rolling()).await;
    fixture.script.always(Act::Hang);
    let (memory, me) = (fixture.open(), id("s"));
    add(&memory, &me, 0..6).await;
    until("asked", async || fixture.script.is_asked()).await;
    drop(memory);
    until("dropped", async || !fixture.script.is_asked()).await;
    until("nobody holds the store", async || Arc::strong_count(&fixture.store) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_hangs_keeps_no_other_waiting() {
    let fixture = Fixture::new(rolling()).await;
    fixture.script.of_session("stuck", Act::Hang);
    let memory = fixture.open();
    let (stuck, others) = (id("stuck"), ["a", "b", "c", "d"].map(id));
    add(&memory, &stuck, 0..6).await;
    until("asked", async || fixture.script.is_asked()).await;
    let before = tokio::time::Instant::now();
    for other in &others {
        add(&memory, other, 0..6).await;
        until("folded", async || fixture.rows(other).await.1.covers_through == 4).await;
    }
    assert!(
        before.elapsed() < Duration::from_secs(30),
        "they waited for the time of the other: {:?}",
        before.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_are_under_way_than_may_be() {
    let fixture = Fixture::new(rolling()).await;
    fixture.script.always(Act::Slow(Duration::from_secs(1)));
    let memory = fixture.open();
    let all: Vec<_> = (0..20).map(|number| id(&format!("s{number}"))).collect();
    for me in &all {
        add(&memory, me, 0..5).await;
    }
    for me in &all {
        fixture.until_settled(&memory, me).await;
    }
    assert_eq!(fixture.script.most.load(Ordering::SeqCst), 2);
}
