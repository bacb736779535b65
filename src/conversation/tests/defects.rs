//! Defects of the Go original, W1 to W32, and the test of each.
//!
//! | defect | tested by |
//! |---|---|
//! | W1 recovery destroys history | here; `conformance::outages` |
//! | W2 a batch is summarised twice | `conformance::outages` |
//! | W3 overlapping summaries lose turns | `conformance::writers` |
//! | W4 a late summary brings back what was flushed | `conformance::late_summaries` on every driver |
//! | W5 a turn over the budget is lost | `conformance::budgets` |
//! | W6 a restart loses health and backlog | `conformance::restarts` |
//! | W7 what waits for a summary is out of sight | `conformance::outages` |
//! | W8 two replicas overwrite each other | `conformance::writers`; the product's `conversation::replicas` |
//! | W9 a driver stores nothing | `own_storage` |
//! | W10 one ledger of migrations for all | does not apply: the store has one schema and one ledger, and no second subsystem migrates |
//! | W11 a failed write is added twice | `conformance::faults` |
//! | W12 a restore keeps backlog and health | `conformance::late_summaries`, `conformance::snapshots` |
//! | W13 a switch of strategy overwrites | `conformance::switches` |
//! | W14 `rolling_summary` has no budget | `conformance::budgets` |
//! | W15 close waits; one slow tenant stalls all | `conformance::closing`; `worker::tests::concurrency` |
//! | W16 the caller pays for the summary | `conformance::outages` |
//! | W17 nothing ever leaves memory | `memory_limits` |
//! | W18 the run is part of the key | `conformance::identities` |
//! | W19 ids change | here; `conformance::turns` |
//! | W20 put and delete mix up concurrent turns | `conformance::turns` |
//! | W21 a list of all conversations is always empty | `conformance::identities` |
//! | W22 "redacted" values are not | does not apply: no redaction is promised; rows are sealed (`own_storage`), and texts are in no event or log |
//! | W23 a search sees JSON, not text | `conformance::turns` |
//! | W24 ends publish no event | `conformance::identities`, `conformance::retention` |
//! | W25 tokens are bytes | `conformance::basics`; `tokens` |
//! | W26 health publishes no event, a flush changes it silently | here; `conformance::basics` |
//! | W27 rejections flood, `<missing>` is a name | here (flood); `conformance::identities` |
//! | W28 no sealing, no limits, no retention, aliases | `own_storage`, `conformance::retention`; here (aliases) |
//! | W29 looking writes | `conformance::turns` |
//! | W30 writers of one slot get errors | `conformance::writers` on PostgreSQL |
//! | W31 a drained batch takes another one with it | `conformance::outages` |
//! | W32 documents that are wrong | does not apply to code; documents are tested where they have examples |

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::ManualClock;
use helmdeck_events::Bus;
use helmdeck_memory::drivers::memory::Memory;
use helmdeck_memory::{Config as StoreConfig, DriverStore, Store};

use crate::conformance::fixture::{add, alice, fold, items, numbers, seen};
use crate::conformance::{Action, Fixture, eventually, marks};
use crate::summarizer::Failure;
use crate::{
    ConversationError, ConversationFilter, ConversationMemory, Health, Identity, Strategy,
};

fn fixture(strategy: Strategy) -> Fixture {
    let clock = Arc::new(ManualClock::default());
    let store: Arc<dyn Store> = Arc::new(DriverStore::plain(
        Memory::new(),
        &StoreConfig::default(),
        clock.clone(),
    ));
    Fixture::new(strategy, store, clock)
}

fn rolling() -> Fixture {
    fixture(Strategy::RollingSummary)
}

async fn until(memory: &ConversationMemory, health: Health) {
    eventually(health.as_str(), async || {
        memory.health(&alice()).await.unwrap() == health
    })
    .await;
}

/// The original: the summary ends as that of the last batch alone, and health says that all is
/// well.
#[tokio::test(flavor = "multi_thread")]
async fn w01_recovery_builds_on_what_was_before() {
    let s = rolling();
    s.summarizer.always(Action::Fail(Failure::Unavailable));
    let memory = s.open();
    add(&memory, &alice(), 0..10).await;
    until(&memory, Health::Degraded).await;
    s.summarizer.always(Action::Answer);
    until(&memory, Health::Healthy).await;
    assert_eq!(
        memory.context(&alice()).await.unwrap().summary,
        "[0][1][2][3][4][5]"
    );
    for call in s.summarizer.calls().iter().filter(|call| call.answered) {
        let before: usize = call.turns[0].parse().unwrap();
        assert_eq!(
            call.previous,
            numbers(0..before),
            "each batch is told all that was before it"
        );
    }
}

/// The original: one eviction changes all ids.
#[tokio::test(flavor = "multi_thread")]
async fn w19_ids_survive_what_goes_before_them() {
    let s = fixture(Strategy::Truncation);
    let memory = s.open_with(|config| {
        config.budget_tokens = 100;
        // Few enough to leave no slack.
        config.max_turns = 15;
        config.sweep_interval = Duration::from_millis(10);
    });
    let added = add(&memory, &alice(), 0..30).await;
    eventually("the oldest to go", async || {
        memory.trace(&alice()).await.unwrap().kept_turns == 15
    })
    .await;
    let left: Vec<_> = items(&memory, &alice())
        .await
        .iter()
        .map(|item| item.key)
        .collect();
    assert_eq!(
        left,
        added[15..]
            .iter()
            .map(|added| added.id.unwrap())
            .collect::<Vec<_>>()
    );
    let detail = memory
        .get_turn(&alice(), &left[0].to_string())
        .await
        .unwrap();
    assert_eq!(marks(&detail.turn.user_message), ["15"]);
}

/// The original: a flush restores health without an event.
///
/// A subscriber to the events then believes in an outage for ever.
#[tokio::test(flavor = "multi_thread")]
async fn w26_a_flush_tells_that_all_is_well() {
    let s = rolling();
    s.summarizer.always(Action::Fail(Failure::Unavailable));
    let memory = s.open();
    add(&memory, &alice(), 0..9).await;
    until(&memory, Health::Degraded).await;
    memory.flush(&alice()).await.unwrap();
    assert_eq!(
        s.moves(&alice(), Health::Healthy).last(),
        Some(&(Health::Healthy, "flushed"))
    );
    assert_eq!(memory.health(&alice()).await.unwrap(), Health::Healthy);
}

/// The original: each call without an identity takes a place in a ring that all tenants share.
///
/// Nothing counts what falls out.
#[tokio::test(flavor = "multi_thread")]
async fn w27_flood_of_rejections_is_bounded() {
    let mut s = rolling();
    s.bus = Bus::new(100, s.clock.clone());
    let memory = s.open();
    let nobody = Identity::new("", "user-1", "session-1");
    for _ in 0..10_000 {
        assert!(matches!(
            memory.context(&nobody).await,
            Err(ConversationError::IdentityRequired { .. })
        ));
    }
    assert_eq!(memory.metrics().identities_rejected, 10_000);
    assert_eq!(
        memory
            .list_conversations(&ConversationFilter::default())
            .await
            .unwrap()
            .identity_rejected_24h,
        10_000
    );
    assert!(s.bus.subscribe_after(9_900).is_ok(), "one event each");
    assert_eq!(
        s.bus.subscribe_after(0).err().unwrap().missed,
        9_900,
        "a hundred are kept"
    );
    // A caller with an identity is served as before.
    add(&memory, &alice(), 0..3).await;
    assert_eq!(seen(&memory, &alice()).await, numbers(0..3));
}

/// The original: what a caller does to a patch it does to the memory.
#[tokio::test(flavor = "multi_thread")]
async fn w28_a_patch_is_the_callers_own() {
    let s = rolling();
    let memory = s.open();
    add(&memory, &alice(), 0..7).await;
    fold(&memory, &alice()).await;
    let mut patch = memory.context(&alice()).await.unwrap();
    let before = patch.clone();
    patch.summary.push_str("more");
    Arc::make_mut(&mut patch.recent_turns[0].turn)
        .user_message
        .push_str("more");
    patch.recent_turns.pop();
    assert_eq!(memory.context(&alice()).await.unwrap(), before);
}
