//! The defects of the original, W1 to W32, and where each has a test that fails on its behaviour.
//!
//! | defect | tested by |
//! |---|---|
//! | W1 recovery destroys history | here; `conformance::outages` |
//! | W2 a batch is summarised twice | here |
//! | W3 overlapping summaries lose turns | here; `conformance::writers` |
//! | W4 a late summary brings back what was flushed | `conformance::flights` on every driver |
//! | W5 a turn over the budget is lost | `conformance::budgets` |
//! | W6 a restart loses health and backlog | here; `conformance::restarts` |
//! | W7 what waits for a summary is out of sight | here; `conformance::outages` |
//! | W8 two replicas overwrite each other | here; `conformance::writers`; the product's `conversation::replicas` |
//! | W9 a driver keeps nothing of its own | `own_storage` |
//! | W10 one ledger of migrations for all | does not apply: the store has one schema and one ledger, and no second subsystem migrates |
//! | W11 a failed write is added twice | here; `conformance::faults` |
//! | W12 a restore keeps backlog and health | `conformance::flights`, `conformance::snapshots` |
//! | W13 a switch of strategy overwrites | `conformance::switches` |
//! | W14 `rolling_summary` has no budget | here; `conformance::budgets` |
//! | W15 close waits; one slow tenant stalls all | here; `conformance::closing` |
//! | W16 the caller pays for the summary | here; `conformance::outages` |
//! | W17 nothing ever leaves memory | `room` |
//! | W18 the run is part of the key | `conformance::identities` |
//! | W19 ids change | here; `conformance::items` |
//! | W20 put and delete mix up concurrent turns | `conformance::items` |
//! | W21 a list of everybody is always empty | here; `conformance::identities` |
//! | W22 "redacted" values are not | does not apply: no redaction is promised; rows are sealed (`own_storage`), and texts are in no event or log |
//! | W23 a search sees JSON, not text | `conformance::items` |
//! | W24 ends are never told | `conformance::identities`, `conformance::retention` |
//! | W25 tokens are bytes | `conformance::basics`; `tokens` |
//! | W26 health is not told, a flush changes it silently | here; `conformance::basics` |
//! | W27 rejections flood, `<missing>` is a name | here (flood); `conformance::identities` |
//! | W28 no sealing, no limits, no retention, aliases | `own_storage`, `conformance::retention`; here (aliases) |
//! | W29 looking writes | `conformance::items` |
//! | W30 writers of one slot get errors | `conformance::writers` on PostgreSQL |
//! | W31 a drained batch takes another one with it | here; `conformance::outages` |
//! | W32 documents that are wrong | does not apply to code; documents are tested where they have examples |

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::ManualClock;
use helmdeck_events::Bus;
use helmdeck_memory::drivers::memory::Memory;
use helmdeck_memory::{Config as StoreConfig, DriverStore, Store};

use crate::conformance::subject::{STUCK, add, alice, bob, fold, items, numbers, recent, seen, sight, sized};
use crate::conformance::{Act, Fixture, eventually, marks};
use crate::summarizer::Failure;
use crate::{ConversationError, ConversationMemory, Health, Identity, SessionFilter, Strategy};

fn subject(strategy: Strategy) -> Fixture {
    let clock = Arc::new(ManualClock::default());
    let store: Arc<dyn Store> = Arc::new(DriverStore::plain(Memory::new(), &StoreConfig::default(), clock.clone()));
    Fixture::new(strategy, store, clock)
}

fn rolling() -> Fixture {
    subject(Strategy::RollingSummary)
}

async fn until(memory: &ConversationMemory, health: Health) {
    eventually(health.as_str(), async || memory.health(&alice()).await.unwrap() == health).await;
}

/// The original: the summary ends as that of the last batch alone, and health says that all is well.
#[tokio::test(flavor = "multi_thread")]
async fn w01_recovery_builds_on_what_was_before() {
    let s = rolling();
    s.scribe.always(Act::Fail(Failure::Unavailable));
    let memory = s.open();
    add(&memory, &alice(), 0..10).await;
    until(&memory, Health::Degraded).await;
    s.scribe.always(Act::Answer);
    until(&memory, Health::Healthy).await;
    assert_eq!(memory.context(&alice()).await.unwrap().summary, "[0][1][2][3][4][5]");
    for call in s.scribe.calls().iter().filter(|call| call.answered) {
        let before: usize = call.turns[0].parse().unwrap();
        assert_eq!(call.previous, numbers(0..before), "each batch is told all that was before it");
    }
}

/// The original: what was pending when it degraded is summarised once from the backlog, and once more.
#[tokio::test(flavor = "multi_thread")]
async fn w02_no_turn_is_summarised_twice() {
    let s = rolling();
    let fails = Act::Fail(Failure::Unavailable);
    s.scribe.next([fails.clone(), fails.clone(), fails.clone(), fails]);
    let memory = s.open();
    add(&memory, &alice(), 0..20).await;
    fold(&memory, &alice()).await;
    until(&memory, Health::Healthy).await;
    let told: Vec<_> = s.scribe.calls().into_iter().filter(|call| call.answered).flat_map(|call| call.turns).collect();
    assert_eq!(told, numbers(0..16));
}

/// The original: two adds at once summarise overlapping batches, and the later one overwrites the other.
#[tokio::test(flavor = "multi_thread")]
async fn w03_one_summary_of_a_conversation_at_a_time() {
    let s = rolling();
    s.scribe.always(Act::Wait);
    let memory = s.open();
    add(&memory, &alice(), 0..8).await;
    s.scribe.reached(1).await;
    let adding: Vec<_> = (8..12)
        .map(|number| {
            let memory = memory.clone();
            tokio::spawn(async move { add(&memory, &alice(), number..=number).await })
        })
        .collect();
    for add in adding {
        add.await.unwrap();
    }
    let folding = tokio::spawn({
        let memory = memory.clone();
        async move { memory.summarise(&alice(), STUCK).await.unwrap() }
    });
    tokio::task::yield_now().await;
    assert_eq!(s.scribe.running(), 1);
    s.scribe.let_go();
    folding.await.unwrap();
    fold(&memory, &alice()).await;
    assert_eq!(s.scribe.overlaps(), 0);
    let mut all = seen(&memory, &alice()).await;
    assert_eq!(all[..8], numbers(0..8));
    all[8..].sort_by_key(|mark| mark.parse::<usize>().unwrap());
    assert_eq!(all, numbers(0..12));
}

/// The original: a restart makes a degraded conversation healthy, and what waited for a summary is gone, without a word.
#[tokio::test(flavor = "multi_thread")]
async fn w06_a_restart_keeps_health_and_what_waits() {
    let s = rolling();
    s.scribe.always(Act::Fail(Failure::Credential));
    let memory = s.open();
    add(&memory, &alice(), 0..12).await;
    until(&memory, Health::Degraded).await;
    memory.close(STUCK).await;
    let two = s.another();
    two.scribe.always(Act::Fail(Failure::Credential));
    let memory = two.open();
    let trace = memory.trace(&alice()).await.unwrap();
    assert_ne!(trace.health, Health::Healthy);
    assert!(trace.failures >= 3);
    assert_eq!((trace.last_failure.as_deref(), trace.backlog_turns), (Some("credential"), 8));
    assert_eq!(seen(&memory, &alice()).await, numbers(0..12));
}

/// The original: the model sees four turns during the whole outage, and no summary.
#[tokio::test(flavor = "multi_thread")]
async fn w07_what_waits_for_a_summary_is_in_sight() {
    let s = rolling();
    let memory = s.open();
    add(&memory, &alice(), 0..6).await;
    fold(&memory, &alice()).await;
    s.scribe.always(Act::Fail(Failure::Unavailable));
    add(&memory, &alice(), 6..16).await;
    until(&memory, Health::Degraded).await;
    for _ in 0..20 {
        let patch = memory.context(&alice()).await.unwrap();
        assert_eq!((marks(&patch.summary), recent(&patch)), (numbers(0..2), numbers(2..16)));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The original: A shows [0, 2], B shows [0, 1], and [0, 2] is stored.
#[tokio::test(flavor = "multi_thread")]
async fn w08_replicas_see_each_others_turns() {
    for strategy in [Strategy::Truncation, Strategy::RollingSummary] {
        let s = subject(strategy);
        let (a, b) = (s.open(), s.another().open());
        add(&a, &alice(), 0..1).await;
        assert_eq!(seen(&b, &alice()).await, numbers(0..1));
        add(&b, &alice(), 1..2).await;
        add(&a, &alice(), 2..3).await;
        assert_eq!(seen(&a, &alice()).await, numbers(0..3), "whoever writes sees what it wrote upon");
        s.clock.advance(a.config().hot_for + Duration::from_millis(1));
        assert_eq!(seen(&b, &alice()).await, numbers(0..3));
    }
}

/// The original: the cache has the turn though the write failed, so the caller's second try stores it twice.
#[tokio::test(flavor = "multi_thread")]
async fn w11_a_second_try_adds_once() {
    for strategy in [Strategy::Truncation, Strategy::RollingSummary] {
        let s = subject(strategy);
        let memory = s.open();
        add(&memory, &alice(), 0..1).await;
        s.tap.fail_writes(1_000);
        assert!(memory.add_turn(&alice(), sized(1, 40, 40)).await.is_err());
        s.tap.fail_writes(0);
        assert_eq!(seen(&memory, &alice()).await, numbers(0..1));
        memory.add_turn(&alice(), sized(1, 40, 40)).await.unwrap();
        assert_eq!(seen(&memory, &alice()).await, numbers(0..2));
    }
}

/// The original: a budget of 10 tokens shows 5077.
#[tokio::test(flavor = "multi_thread")]
async fn w14_rolling_summary_has_a_budget() {
    let s = rolling();
    let memory = s.open_with(|config| config.budget_tokens = 100);
    for number in 0..50 {
        memory.add_turn(&alice(), sized(number, 40, 40)).await.unwrap();
        assert!(memory.context(&alice()).await.unwrap().tokens <= 100);
        assert!(memory.estimate_tokens(&alice()).await.unwrap() <= 100);
    }
    fold(&memory, &alice()).await;
    assert!(memory.context(&alice()).await.unwrap().tokens <= 100);
}

/// The original: recovery goes from conversation to conversation, so one that hangs stalls all others.
#[tokio::test(flavor = "multi_thread")]
async fn w15_a_slow_tenant_stalls_nobody() {
    let s = rolling();
    s.scribe.next([Act::Hang]);
    let memory = s.open();
    add(&memory, &alice(), 0..9).await;
    s.scribe.reached(1).await;
    for session in 0..20 {
        let identity = Identity { session: format!("s{session}").into(), ..bob() };
        add(&memory, &identity, 0..9).await;
        eventually("another tenant to be folded", async || memory.trace(&identity).await.unwrap().covers_through == 5)
            .await;
    }
    assert_eq!(s.scribe.running(), 1, "the first one still hangs");
    tokio::time::timeout(STUCK, memory.close(STUCK)).await.unwrap();
}

/// The original: an add waits for the model, and a caller that goes away makes the conversation unhealthy.
#[tokio::test(flavor = "multi_thread")]
async fn w16_adding_asks_no_model() {
    let s = rolling();
    s.scribe.always(Act::Hang);
    let memory = s.open();
    tokio::time::timeout(STUCK, add(&memory, &alice(), 0..30)).await.unwrap();
    s.scribe.reached(1).await;
    assert_eq!(memory.health(&alice()).await.unwrap(), Health::Healthy);
    assert_eq!((s.scribe.running(), s.moves(&alice(), Health::Healthy)), (1, vec![]));
}

/// The original: one eviction changes all ids.
#[tokio::test(flavor = "multi_thread")]
async fn w19_ids_survive_what_goes_before_them() {
    let s = subject(Strategy::Truncation);
    let memory = s.open_with(|config| {
        config.budget_tokens = 100;
        // So few that there is no slack.
        config.max_turns = 15;
        config.sweep_interval = Duration::from_millis(10);
    });
    let added = add(&memory, &alice(), 0..30).await;
    eventually("the oldest to go", async || memory.trace(&alice()).await.unwrap().kept_turns == 15).await;
    let left: Vec<_> = items(&memory, &alice()).await.iter().map(|item| item.key).collect();
    assert_eq!(left, added[15..].iter().map(|added| added.id.unwrap()).collect::<Vec<_>>());
    let detail = memory.get_item(&alice(), &left[0].to_string()).await.unwrap();
    assert_eq!(marks(&detail.turn.user_message), ["15"]);
}

/// The original: whoever may see all tenants sees an empty page.
#[tokio::test(flavor = "multi_thread")]
async fn w21_a_list_of_everybody_has_everybody() {
    let s = subject(Strategy::Truncation);
    let memory = s.open();
    add(&memory, &alice(), 0..1).await;
    add(&memory, &bob(), 0..2).await;
    let page = memory.sessions(&SessionFilter::default()).await.unwrap();
    assert_eq!(page.sessions.iter().map(|session| session.turns).collect::<Vec<_>>(), [1, 2]);
}

/// The original: a flush makes healthy without an event, so who follows the events believes in an outage for ever.
#[tokio::test(flavor = "multi_thread")]
async fn w26_a_flush_tells_that_all_is_well() {
    let s = rolling();
    s.scribe.always(Act::Fail(Failure::Unavailable));
    let memory = s.open();
    add(&memory, &alice(), 0..9).await;
    until(&memory, Health::Degraded).await;
    memory.flush(&alice()).await.unwrap();
    assert_eq!(s.moves(&alice(), Health::Healthy).last(), Some(&(Health::Healthy, "flushed")));
    assert_eq!(memory.health(&alice()).await.unwrap(), Health::Healthy);
}

/// The original: each call without an identity takes a place in a ring that all tenants share, and nobody counts what falls out.
#[tokio::test(flavor = "multi_thread")]
async fn w27_a_flood_of_rejections_is_bounded_and_counted() {
    let mut s = rolling();
    s.bus = Bus::new(100, s.clock.clone());
    let memory = s.open();
    let nobody = Identity::new("", "user-1", "session-1");
    for _ in 0..10_000 {
        assert!(matches!(memory.context(&nobody).await, Err(ConversationError::IdentityRequired { .. })));
    }
    assert_eq!(memory.metrics().identities_rejected, 10_000);
    assert_eq!(memory.sessions(&SessionFilter::default()).await.unwrap().identity_rejected_24h, 10_000);
    assert!(s.bus.subscribe_after(9_900).is_ok(), "one event each");
    assert_eq!(s.bus.subscribe_after(0).err().unwrap().missed, 9_900, "a hundred are kept");
    // Whoever has a name is served as before.
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
    Arc::make_mut(&mut patch.recent_turns[0].turn).user_message.push_str("more");
    patch.recent_turns.pop();
    assert_eq!(memory.context(&alice()).await.unwrap(), before);
}

/// The original: the head of a full backlog is dropped while it is summarised, and then the next one too.
#[tokio::test(flavor = "multi_thread")]
async fn w31_an_overflow_during_recovery_drops_nothing() {
    let s = rolling();
    s.scribe.always(Act::Fail(Failure::Unavailable));
    let memory = s.open_with(|config| config.recovery_backlog_max = 2);
    add(&memory, &alice(), 0..16).await;
    until(&memory, Health::Degraded).await;
    s.scribe.always(Act::Wait);
    until(&memory, Health::Recovering).await;
    eventually("the attempt", async || s.scribe.running() == 1).await;
    add(&memory, &alice(), 16..40).await;
    s.scribe.let_go();
    until(&memory, Health::Healthy).await;
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!((sight(&patch), s.dropped()), (numbers(0..40), vec![]));
    assert_eq!(marks(&patch.summary), numbers(0..36));
}
