//! Test cases about how long and how much is kept: W28.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::time::Duration;

use super::eventually;
use super::fixture::{Fixture, STUCK, add, alice, bob, fold, kept, numbers, seen, sized};
use super::scripted_summarizer::Action;
use crate::health::Health;
use crate::summarizer::Failure;
use crate::views::ConversationFilter;

/// The oldest turns go first; an event and a counter report those that no summary holds.
pub(super) async fn the_oldest_turns_go_first(s: Fixture) {
    s.summarizer.always(Action::Fail(Failure::Unavailable));
    let memory = s.open_with(|config| {
        // So few have no slack, whenever the sweep comes by.
        config.max_turns = 15;
        config.sweep_interval = Duration::from_millis(20);
    });
    add(&memory, &alice(), 0..70).await;
    eventually("the oldest to go", async || {
        memory.trace(&alice()).await.unwrap().kept_turns == 15
    })
    .await;
    assert_eq!(kept(&memory, &alice()).await, numbers(55..70));
    assert_eq!(seen(&memory, &alice()).await, numbers(55..70));
    assert_eq!(
        seen(&s.open_to_look(|_| ()), &alice()).await,
        numbers(55..70)
    );
    let dropped = s.dropped();
    if s.rolls() {
        eventually("all to be told", async || {
            s.dropped().iter().map(|(_, count)| count).sum::<u64>() == 55
        })
        .await;
        assert!(
            s.dropped().iter().all(|(reason, _)| *reason == "max_turns"),
            "{dropped:?}"
        );
        s.summarizer.always(Action::Answer);
        fold(&memory, &alice()).await;
        assert_eq!(seen(&memory, &alice()).await, numbers(55..70));
        s.moves(&alice(), Health::Healthy);
    }
}

/// What a summary holds is not lost when its turns go: the summary stays, and later ones build on
/// it.
pub(super) async fn a_summary_outlives_its_turns(s: Fixture) {
    let memory = s.open_with(|config| {
        config.max_turns = 8;
        config.sweep_interval = Duration::from_millis(20);
    });
    for number in 0..60 {
        add(&memory, &alice(), number..=number).await;
        fold(&memory, &alice()).await;
        assert_eq!(seen(&memory, &alice()).await, numbers(0..=number));
    }
    eventually("the oldest to go", async || {
        memory.trace(&alice()).await.unwrap().kept_turns == 8
    })
    .await;
    assert_eq!(kept(&memory, &alice()).await, numbers(52..60));
    assert_eq!(seen(&memory, &alice()).await, numbers(0..60));
    assert_eq!(s.dropped(), [], "nothing was dropped that is in no summary");
    // A turn that is still kept can be deleted out of the summary; what it was built upon stays.
    let all = super::fixture::items(&memory, &alice()).await;
    let deleted = memory
        .delete_turn(&alice(), &all[2].key.to_string())
        .await
        .unwrap();
    assert!(deleted.summary_rebuilt);
    fold(&memory, &alice()).await;
    let after = seen(&memory, &alice()).await;
    assert!(!after.contains(&"54".to_owned()), "{after:?}");
    let lost = 59 - after.len() as u64;
    let reported: u64 = s
        .dropped()
        .iter()
        .filter(|(reason, _)| *reason == "summary_rebuilt")
        .map(|(_, count)| count)
        .sum();
    assert!(
        reported >= lost,
        "{lost} turns are no longer in sight, {reported} were reported"
    );
    assert_eq!(after[after.len() - 5..], numbers(55..60));
}

pub(super) async fn a_conversation_is_bounded_in_bytes(s: Fixture) {
    // A sixteenth more may stay, so that a full conversation is not pruned at every turn.
    const MOST: u64 = 20_000 + 20_000 / 16;
    let memory = s.open_with(|config| {
        config.max_bytes = 20_000;
        config.sweep_interval = Duration::from_millis(20);
    });
    for number in 0..60 {
        memory
            .add_turn(&alice(), sized(number, 1000, 0))
            .await
            .unwrap();
    }
    eventually("the oldest to go", async || {
        let all = super::fixture::items(&memory, &alice()).await;
        all.iter().map(|item| item.size_bytes).sum::<u64>() <= MOST
    })
    .await;
    let all = kept(&memory, &alice()).await;
    assert!(all.len() >= 10, "{} are left", all.len());
    assert_eq!(all, numbers(60 - all.len()..60));
}

/// W28, W24: an idle conversation ends, at once in every method, and its rows go.
pub(super) async fn an_idle_conversation_ends(s: Fixture) {
    let hour = |config: &mut crate::Config| {
        config.ttl = Duration::from_secs(3600);
        config.sweep_interval = Duration::from_millis(20);
    };
    let memory = s.open_with(|config| {
        hour(config);
        config.sweep_interval = Duration::from_secs(3600);
    });
    add(&memory, &alice(), 1000..1009).await;
    fold(&memory, &alice()).await;
    s.clock.advance(Duration::from_secs(3599));
    assert_eq!(seen(&memory, &alice()).await, numbers(1000..1009));
    add(&memory, &bob(), 2000..2001).await;
    s.clock.advance(Duration::from_secs(2));
    let fresh = s.another();
    let fresh = fresh.open_with(|config| {
        hour(config);
        config.sweep_interval = Duration::from_secs(3600);
    });
    for memory in [&memory, &fresh] {
        assert!(memory.context(&alice()).await.unwrap().is_empty());
        assert_eq!(memory.health(&alice()).await.unwrap(), Health::Healthy);
        assert_eq!(memory.estimate_tokens(&alice()).await.unwrap(), 0);
        assert_eq!(memory.trace(&alice()).await.unwrap().kept_turns, 0);
        assert_eq!(kept(memory, &alice()).await, Vec::<String>::new());
        let sessions = memory
            .list_conversations(&ConversationFilter::default())
            .await
            .unwrap();
        assert_eq!(
            (sessions.total, sessions.sessions[0].user.as_str()),
            (1, "user-9")
        );
        assert_eq!(seen(memory, &bob()).await, numbers(2000..2001));
    }
    // It begins anew, and nothing of the former one comes up.
    add(&memory, &alice(), 3000..3002).await;
    assert_eq!(seen(&memory, &alice()).await, numbers(3000..3002));
    assert_eq!(kept(&memory, &alice()).await, numbers(3000..3002));
    s.clock.advance(Duration::from_secs(7200));
    memory.close(STUCK).await;
    fresh.close(STUCK).await;
    let sweeping = s.another();
    let _memory = sweeping.open_with(hour);
    eventually("the rows to go", async || {
        s.rows_with("is asked").await == 0
    })
    .await;
}
