//! Test cases about summaries that come late: case 5 of the reference, W4, W12.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::ops::Range;
use std::time::Duration;

use super::eventually;
use super::fixture::{Fixture, STUCK, add, alice, fold, items, kept, numbers, seen, sight};
use super::scripted_summarizer::Action;
use crate::config::Strategy;
use crate::health::Health;
use crate::memory::ConversationMemory;
use crate::snapshot::Snapshot;
use crate::summarizer::Failure;

/// What happens to a conversation while a summary of it is on its way.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    Flush,
    Restore,
    Delete,
    Forget,
}

const CHANGES: [Change; 4] = [
    Change::Flush,
    Change::Restore,
    Change::Delete,
    Change::Forget,
];

/// Does it, in this process or in another one, and returns what is to be seen afterwards.
///
/// `had` are the marks of the turns that are there.
async fn change(
    memory: &ConversationMemory,
    change: Change,
    snapshot: &Snapshot,
    had: Range<usize>,
) -> Vec<String> {
    match change {
        Change::Flush => memory.flush(&alice()).await.unwrap(),
        Change::Restore => memory.restore(&alice(), snapshot).await.unwrap(),
        Change::Forget => drop(memory.forget(&alice()).await.unwrap()),
        Change::Delete => {
            let key = items(memory, &alice()).await[1].key.to_string();
            memory.delete_turn(&alice(), &key).await.unwrap();
            let mut left = numbers(had);
            left.remove(1);
            return left;
        }
    }
    if change == Change::Restore {
        numbers(3000..3003)
    } else {
        Vec::new()
    }
}

async fn snapshot(s: &Fixture) -> Snapshot {
    let memory = s.another().open();
    let other = crate::Identity {
        session: "elsewhere".into(),
        ..alice()
    };
    add(&memory, &other, 3000..3003).await;
    let snapshot = memory.snapshot(&other).await.unwrap();
    memory.forget(&other).await.unwrap();
    snapshot
}

/// A summary that comes after a flush, a restore, a delete or a forget is discarded.
///
/// Nothing of it comes back, in no row.
pub(super) async fn a_late_summary_is_thrown_away(s: Fixture) {
    let snapshot = snapshot(&s).await;
    for what in CHANGES {
        // The summary comes before the next turn is added, or after it: then the conversation was
        // read again, and may have started again.
        for (elsewhere, added) in [(false, false), (true, false), (true, true)] {
            let case = format!("{what:?}, elsewhere: {elsewhere}, added before it comes: {added}");
            let s = s.another();
            s.summarizer.always(Action::Wait);
            // Added while no worker summarises, so that the first batch is a whole one.
            let before = s.under(Strategy::Truncation).open();
            before.forget(&alice()).await.unwrap();
            add(&before, &alice(), 1000..1008).await;
            before.close(STUCK).await;
            let memory = s.open();
            memory.context(&alice()).await.unwrap();
            s.summarizer.reached(1).await;
            assert_eq!(s.summarizer.calls()[0].turns, numbers(1000..1004));
            let other = s.another().open();
            let mut expected = change(
                if elsewhere { &other } else { &memory },
                what,
                &snapshot,
                1000..1008,
            )
            .await;
            expected.extend(numbers(2000..2006));
            s.clock
                .advance(memory.config().hot_for + Duration::from_millis(1));
            if added {
                add(&memory, &alice(), 2000..2006).await;
                assert_eq!(seen(&memory, &alice()).await, expected, "{case}");
                s.summarizer.let_go();
            } else {
                s.summarizer.let_go();
                add(&memory, &alice(), 2000..2006).await;
            }
            fold(&memory, &alice()).await;
            assert_eq!(seen(&memory, &alice()).await, expected, "{case}");
            assert_eq!(
                seen(&s.another().open(), &alice()).await,
                expected,
                "{case}"
            );
            let gone = if what == Change::Delete {
                "1001"
            } else {
                "100"
            };
            assert_eq!(s.rows_with(&format!("[{gone}")).await, 0, "{case}");
            let late = |call: &super::Call| {
                call.turns
                    .iter()
                    .chain(&call.previous)
                    .any(|mark| mark.starts_with(gone))
            };
            assert!(
                !s.summarizer.calls()[1..].iter().any(late),
                "{case}: nobody is told what is gone"
            );
            memory.close(STUCK).await;
            other.close(STUCK).await;
        }
    }
}

/// A late summary stays out of a conversation that another process forgot and started again.
///
/// The new conversation reuses the numbers of the former one.
pub(super) async fn a_late_summary_stays_out_of_a_conversation_begun_anew(s: Fixture) {
    s.summarizer.always(Action::Wait);
    let other = s.under(Strategy::Truncation).open();
    add(&other, &alice(), 1000..1008).await;
    let memory = s.open();
    memory.context(&alice()).await.unwrap();
    s.summarizer.reached(1).await;
    other.forget(&alice()).await.unwrap();
    add(&other, &alice(), 2000..2008).await;
    s.summarizer.let_go();
    eventually("the late one to be over", async || {
        s.summarizer.running() == 0
    })
    .await;
    s.clock
        .advance(memory.config().hot_for + Duration::from_millis(1));
    fold(&memory, &alice()).await;
    for memory in [&memory, &other] {
        assert_eq!(seen(memory, &alice()).await, numbers(2000..2008));
    }
    assert_eq!(s.rows_with("[100").await, 0);
}

/// W12: the same for an attempt to recover; and the health is clean from then on.
pub(super) async fn a_late_recovery_is_thrown_away(s: Fixture) {
    let snapshot = snapshot(&s).await;
    for what in CHANGES {
        let s = s.another();
        s.summarizer.always(Action::Fail(Failure::Unavailable));
        let memory = s.open();
        memory.forget(&alice()).await.unwrap();
        add(&memory, &alice(), 1000..1012).await;
        eventually("degraded", async || {
            memory.health(&alice()).await.unwrap() == Health::Degraded
        })
        .await;
        s.summarizer.always(Action::Wait);
        eventually("an attempt to recover", async || {
            s.summarizer.running() == 1
        })
        .await;
        assert_eq!(memory.health(&alice()).await.unwrap(), Health::Recovering);
        let started = s.summarizer.calls().len();
        let expected = change(&memory, what, &snapshot, 1000..1012).await;
        // What is left of a conversation of which a turn was deleted is still to be summarised.
        let health = if what == Change::Delete {
            Health::Recovering
        } else {
            Health::Healthy
        };
        assert_eq!(memory.health(&alice()).await.unwrap(), health, "{what:?}");
        s.summarizer.let_go();
        fold(&memory, &alice()).await;
        eventually("all to be well", async || {
            memory.health(&alice()).await.unwrap() == Health::Healthy
        })
        .await;
        eventually("the late one to be over", async || {
            s.summarizer.running() == 0
        })
        .await;
        for memory in [&memory, &s.another().open()] {
            assert_eq!(seen(memory, &alice()).await, expected, "{what:?}");
            let trace = memory.trace(&alice()).await.unwrap();
            assert_eq!(
                (trace.health, trace.failures, trace.backlog_turns),
                (Health::Healthy, 0, 0),
                "{what:?}"
            );
            assert_eq!(trace.last_failure, None);
        }
        let gone = if what == Change::Delete { "1001" } else { "10" };
        assert_eq!(s.rows_with(&format!("[{gone}")).await, 0, "{what:?}");
        let calls = &s.summarizer.calls()[started..];
        let late = |call: &super::Call| {
            call.turns
                .iter()
                .chain(&call.previous)
                .any(|mark| mark.starts_with(gone))
        };
        assert!(
            !calls.iter().any(late),
            "{what:?}: nobody is told what is gone"
        );
        let word = match what {
            Change::Flush | Change::Forget => "flushed",
            Change::Restore => "restored",
            Change::Delete => "recovery_loop_drained",
        };
        assert_eq!(
            s.moves_to(&alice(), Health::Healthy).await.last(),
            Some(&(Health::Healthy, word)),
            "{what:?}"
        );
        memory.close(STUCK).await;
    }
}

/// A late failure means as little as a late summary.
pub(super) async fn a_late_failure_changes_no_health(s: Fixture) {
    for (session, elsewhere) in [("here", false), ("elsewhere", true)] {
        let identity = crate::Identity {
            session: session.into(),
            ..alice()
        };
        let (s, other) = (s.another(), s.under(Strategy::Truncation).open());
        s.summarizer.always(Action::FailLater(Failure::Unavailable));
        // Only a flush or the summarizer ends the request.
        let memory = s.open_with(|config| config.summarizer.timeout = STUCK * 60);
        add(&memory, &identity, 0..8).await;
        s.summarizer.reached(1).await;
        if elsewhere {
            // Of this one the process does not hear, so the request fails after it.
            other.flush(&identity).await.unwrap();
            s.summarizer.let_go();
        } else {
            memory.flush(&identity).await.unwrap();
        }
        eventually("the request to end", async || s.summarizer.running() == 0).await;
        assert_eq!(s.summarizer.cancelled(), usize::from(!elsewhere));
        s.summarizer.always(Action::Answer);
        add(&memory, &identity, 8..10).await;
        fold(&memory, &identity).await;
        let moves = if elsewhere {
            vec![]
        } else {
            vec![(Health::Healthy, "flushed")]
        };
        assert_eq!(s.moves(&identity, Health::Healthy), moves);
        let trace = memory.trace(&identity).await.unwrap();
        assert_eq!(
            (trace.health, trace.failures, trace.last_failure),
            (Health::Healthy, 0, None)
        );
        assert_eq!(seen(&memory, &identity).await, numbers(8..10));
        memory.close(STUCK).await;
    }
}

/// A turn that is deleted is gone from the summary too, which is made anew of the turns that are
/// kept.
pub(super) async fn a_deleted_turn_is_gone_from_the_summary(s: Fixture) {
    let memory = s.open();
    add(&memory, &alice(), 1000..1012).await;
    fold(&memory, &alice()).await;
    let before = memory.context(&alice()).await.unwrap();
    assert_eq!(super::marks(&before.summary), numbers(1000..1008));
    let all = items(&memory, &alice()).await;
    // Nothing is summarised again until it was looked at.
    s.summarizer.always(Action::Wait);
    let deleted = memory
        .delete_turn(&alice(), &all[0].key.to_string())
        .await
        .unwrap();
    assert_eq!(
        (
            deleted.deleted,
            deleted.remaining_turns,
            deleted.summary_rebuilt
        ),
        (true, 11, true)
    );
    // At once, and not only when it is summarised again.
    assert_eq!(s.rows_with("[1000]").await, 0);
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!((sight(&patch), patch.goal), (numbers(1001..1012), None));
    s.summarizer.let_go();
    fold(&memory, &alice()).await;
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!(super::marks(&patch.summary), numbers(1001..1008));
    assert_eq!(sight(&patch), numbers(1001..1012));
    // One that is not in the summary costs the summary nothing.
    let calls = s.summarizer.calls().len();
    let deleted = memory
        .delete_turn(&alice(), &all[10].key.to_string())
        .await
        .unwrap();
    assert_eq!(
        (deleted.remaining_turns, deleted.summary_rebuilt),
        (10, false)
    );
    fold(&memory, &alice()).await;
    assert_eq!(s.summarizer.calls().len(), calls);
    let mut left = numbers(1001..1012);
    left.remove(9);
    assert_eq!(
        (seen(&memory, &alice()).await, kept(&memory, &alice()).await),
        (left.clone(), left)
    );
    assert_eq!(s.dropped(), [], "all could be made anew");
}
