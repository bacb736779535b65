//! Test cases about several writers of one conversation.
//!
//! They are cases 3 and 7 of the reference, W3, W8, W20, W30.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use super::fixture::{Fixture, add, alice, bob, fold, items, kept, numbers, seen, turn};
use super::scripted_summarizer::Action;
use crate::config::Strategy;
use crate::identity::Identity;
use crate::memory::ConversationMemory;
use crate::turn::NewTurn;

/// Adds `turns` turns `<writer>.<n>` one after the other, and gives their ids.
fn write(
    memory: &ConversationMemory,
    writer: usize,
    turns: usize,
) -> tokio::task::JoinHandle<Vec<String>> {
    let memory = memory.clone();
    tokio::spawn(async move {
        let mut ids = Vec::new();
        for number in 0..turns {
            let added = memory
                .add_turn(&alice(), turn(format!("{writer}.{number}")))
                .await
                .unwrap();
            ids.push(added.id.unwrap().to_string());
        }
        ids
    })
}

/// Checks that what is seen is every turn of every writer once, and each writer's own in their
/// order.
fn check(seen: &[String], writers: usize, turns: usize) {
    assert_eq!(seen.len(), writers * turns);
    assert_eq!(
        seen.iter().collect::<HashSet<_>>().len(),
        seen.len(),
        "a turn is there twice"
    );
    for writer in 0..writers {
        let prefix = format!("{writer}.");
        let own: Vec<_> = seen
            .iter()
            .filter(|mark| mark.starts_with(&prefix))
            .cloned()
            .collect();
        assert_eq!(
            own,
            (0..turns)
                .map(|number| format!("{writer}.{number}"))
                .collect::<Vec<_>>()
        );
    }
}

/// Case 3: N writers on one key while summaries take their time and finish when they like.
pub(super) async fn writers_of_one_conversation_lose_nothing(s: Fixture) {
    let slow = (0..200).map(|n| match n % 4 {
        3 => Action::Fail(crate::summarizer::Failure::Unavailable),
        n => Action::Slow(Duration::from_millis(n * 3)),
    });
    s.summarizer.next(slow);
    let memory = s.open();
    let writers: Vec<_> = (0..16).map(|writer| write(&memory, writer, 8)).collect();
    let mut ids = BTreeSet::new();
    for (number, writer) in writers.into_iter().enumerate() {
        let own = writer.await.unwrap();
        // The id that an add returns is that of the added turn, whatever other writers add.
        let detail = memory.get_turn(&alice(), &own[7]).await.unwrap();
        assert_eq!(
            super::marks(&detail.turn.user_message),
            [format!("{number}.7")]
        );
        ids.extend(own);
    }
    assert_eq!(ids.len(), 128);
    check(&seen(&memory, &alice()).await, 16, 8);
    fold(&memory, &alice()).await;
    let all = seen(&memory, &alice()).await;
    check(&all, 16, 8);
    assert_eq!(
        kept(&memory, &alice()).await,
        all,
        "the order is that of the log"
    );
    assert_eq!(seen(&s.another().open(), &alice()).await, all);
    assert_eq!(
        s.summarizer.overlaps(),
        0,
        "one summary of a conversation at a time"
    );
    if s.rolls() {
        assert_eq!(memory.trace(&alice()).await.unwrap().covers_through, 124);
        // What succeeded joins without gap or repeat.
        let summarised: Vec<_> = s
            .summarizer
            .calls()
            .into_iter()
            .filter(|call| call.answered)
            .flat_map(|call| call.turns)
            .collect();
        assert_eq!(summarised, all[..124]);
    }
    assert_eq!(s.dropped(), []);
}

/// Case 7: two processes on one store.
pub(super) async fn two_processes_lose_nothing_of_each_other(s: Fixture) {
    let other = s.another();
    let open = |s: &Fixture| s.open_with(|config| config.hot_for = Duration::ZERO);
    let (here, there) = (open(&s), open(&other));
    let writers: Vec<_> = (0..8)
        .map(|writer| write(if writer % 2 == 0 { &here } else { &there }, writer, 12))
        .collect();
    let mut ids = HashSet::new();
    for writer in writers {
        ids.extend(writer.await.unwrap());
    }
    assert_eq!(ids.len(), 96, "no id is given twice");
    for memory in [&here, &there] {
        check(&seen(memory, &alice()).await, 8, 12);
    }
    fold(&here, &alice()).await;
    fold(&there, &alice()).await;
    let all = seen(&here, &alice()).await;
    check(&all, 8, 12);
    assert_eq!(seen(&there, &alice()).await, all, "both see the same order");
    assert_eq!(items(&here, &alice()).await, items(&there, &alice()).await);
    if s.rolls() {
        let calls = [s.summarizer.calls(), other.summarizer.calls()].concat();
        let summarised: HashSet<_> = calls
            .iter()
            .filter(|call| call.answered)
            .flat_map(|call| call.turns.clone())
            .collect();
        assert_eq!(summarised.len(), 92);
        assert_eq!(
            (s.summarizer.overlaps(), other.summarizer.overlaps()),
            (0, 0)
        );
        assert_eq!(
            here.trace(&alice()).await.unwrap(),
            there.trace(&alice()).await.unwrap()
        );
    }
}

/// What is in memory is taken for true no longer than it may be.
pub(super) async fn what_another_process_wrote_is_seen_in_time(s: Fixture) {
    let (here, there) = (s.open(), s.another().open());
    add(&here, &alice(), 0..2).await;
    assert_eq!(seen(&there, &alice()).await, numbers(0..2));
    add(&there, &alice(), 2..3).await;
    assert_eq!(
        seen(&there, &alice()).await,
        numbers(0..3),
        "what it wrote itself it sees at once"
    );
    s.clock
        .advance(here.config().hot_for + Duration::from_millis(1));
    assert_eq!(seen(&here, &alice()).await, numbers(0..3));
    there.flush(&alice()).await.unwrap();
    s.clock
        .advance(here.config().hot_for + Duration::from_millis(1));
    assert!(seen(&here, &alice()).await.is_empty());
    // A write never rests on what is out of date.
    add(&there, &alice(), 3..4).await;
    add(&here, &alice(), 4..5).await;
    assert_eq!(seen(&here, &alice()).await, numbers(3..5));
    // Nor on a conversation that was forgotten and started again.
    there.forget(&alice()).await.unwrap();
    add(&there, &alice(), 5..6).await;
    add(&here, &alice(), 6..7).await;
    assert_eq!(seen(&here, &alice()).await, numbers(5..7));
    s.clock
        .advance(here.config().hot_for + Duration::from_millis(1));
    assert_eq!(seen(&there, &alice()).await, numbers(5..7));
    assert_eq!(kept(&there, &alice()).await, numbers(5..7));
}

/// What is in memory costs nothing to read.
pub(super) async fn a_read_from_memory_asks_nobody(s: Fixture) {
    // A sweep reads too.
    let unswept = s.unswept().await;
    let memory = s.open();
    add(&memory, &alice(), 0..4).await;
    memory.context(&alice()).await.unwrap();
    let reads = s.faults.reads();
    for _ in 0..100 {
        assert_eq!(seen(&memory, &alice()).await.len(), 4);
        memory.estimate_tokens(&alice()).await.unwrap();
        memory.health(&alice()).await.unwrap();
    }
    assert_eq!(s.faults.reads(), reads);
    unswept.release().await.unwrap();
}

/// The cost of an add does not depend on the length of the conversation.
///
/// The cost is its writes and reads, and the bytes of its rows.
pub(super) async fn an_add_costs_the_same_however_long_the_conversation_is(s: Fixture) {
    let memory = s.open_with(|config| {
        config.recent_turns = 1_000;
        config.sweep_interval = Duration::from_secs(3600);
    });
    if s.rolls() {
        // Soon after the start it is looked once for what waits for a summary, however seldom it is
        // swept.
        super::eventually("the first sweep", async || s.faults.reads() > 0).await;
    }
    let mut costs = Vec::new();
    for number in 0..300 {
        let before = (s.faults.reads(), s.faults.writes());
        add(&memory, &alice(), number..=number).await;
        costs.push((s.faults.reads() - before.0, s.faults.writes() - before.1));
    }
    assert!(
        costs.iter().all(|(_, writes)| *writes == 1),
        "one write each: {costs:?}"
    );
    // What is read besides is the conversation at first, and what is left of the sweep.
    let reads: u64 = costs.iter().map(|(reads, _)| reads).sum();
    assert!(reads <= 20, "no reads: {costs:?}");
}

/// A turn that was given a name is there once, however often it is added, and by whom.
pub(super) async fn a_turn_that_was_named_is_added_once(s: Fixture) {
    let (here, there) = (s.open(), s.another().open());
    let named = |mark: usize| NewTurn {
        once: Some("order/1 [%_]".into()),
        ..turn(mark)
    };
    let first = here.add_turn(&alice(), named(0)).await.unwrap();
    assert!(!first.repeated);
    for memory in [&here, &there, &here] {
        let again = memory.add_turn(&alice(), named(0)).await.unwrap();
        assert_eq!(
            (again.id, again.repeated, again.tokens),
            (first.id, true, first.tokens)
        );
    }
    let other = there.add_turn(&alice(), named(9)).await;
    assert!(
        matches!(other, Err(crate::ConversationError::OnceReused)),
        "another turn is not taken for it: {other:?}"
    );
    // The same key of another user is another key.
    assert!(!here.add_turn(&bob(), named(5)).await.unwrap().repeated);
    let other = Identity {
        session: "session-2".into(),
        ..alice()
    };
    assert!(!here.add_turn(&other, named(6)).await.unwrap().repeated);
    assert_eq!(seen(&here, &bob()).await, numbers(5..6));
    // Many at once, from two processes.
    let adding: Vec<_> = (0..24)
        .map(|n| {
            let (memory, n) = (
                if n % 2 == 0 {
                    here.clone()
                } else {
                    there.clone()
                },
                n,
            );
            tokio::spawn(async move {
                let named = NewTurn {
                    once: Some(format!("n{}", n % 3)),
                    ..turn(10 + n % 3)
                };
                memory.add_turn(&alice(), named).await.unwrap()
            })
        })
        .collect();
    let mut ids = HashSet::new();
    let mut fresh = 0;
    for add in adding {
        let added = add.await.unwrap();
        fresh += usize::from(!added.repeated);
        ids.insert(added.id.unwrap());
    }
    assert_eq!((ids.len(), fresh), (3, 3));
    s.clock
        .advance(here.config().hot_for + Duration::from_millis(1));
    let mut all = seen(&here, &alice()).await;
    assert_eq!(all.remove(0), "0");
    all.sort();
    assert_eq!(all, numbers(10..13));
    // A day later the name is free, and a flush frees all names.
    s.clock.advance(Duration::from_secs(86_400 + 1));
    assert!(!here.add_turn(&alice(), named(1)).await.unwrap().repeated);
    here.flush(&alice()).await.unwrap();
    assert!(!here.add_turn(&alice(), named(2)).await.unwrap().repeated);
    assert_eq!(seen(&here, &alice()).await, numbers(2..3));
    assert_ne!(s.strategy, Strategy::None);
}
