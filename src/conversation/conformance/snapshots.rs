//! Test cases about export and import: case 12 of the reference, W12.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use std::sync::Arc;
use std::time::Duration;

use helmdeck_memory::drivers::memory::Memory;
use helmdeck_memory::{DriverStore, Store};
use serde_json::{Value, json};

use super::fixture::{Fixture, add, alice, bob, fold, kept, numbers, recent, seen, sized, turn};
use crate::config::Strategy;
use crate::error::ConversationError;
use crate::health::Health;
use crate::patch::LlmContextPatch;
use crate::snapshot::Snapshot;

/// What a patch shows, but for the ids.
fn shown(patch: &LlmContextPatch) -> impl PartialEq + std::fmt::Debug + use<> {
    let turns: Vec<_> = patch
        .recent_turns
        .iter()
        .map(|recent| crate::wire::write_turn(&recent.turn))
        .collect();
    (
        patch.summary.clone(),
        patch.goal.clone(),
        turns,
        patch.tokens,
        patch.omitted_turns,
        patch.over_budget,
    )
}

fn of(strategy: Strategy, json: &Value) -> Snapshot {
    Snapshot {
        strategy: Some(strategy),
        bytes: json.to_string().into(),
    }
}

/// Case 12: snapshot, flush, restore: the restored conversation shows the same turns.
///
/// It is restored in the same conversation, in another one, and in a store of another driver.
pub(super) async fn a_snapshot_restores_what_was_seen(s: Fixture) {
    let memory = s.open();
    add(&memory, &alice(), 0..11).await;
    fold(&memory, &alice()).await;
    let before = memory.context(&alice()).await.unwrap();
    let snapshot = memory.snapshot(&alice()).await.unwrap();
    assert_eq!(snapshot.strategy, Some(s.strategy));
    memory.flush(&alice()).await.unwrap();
    memory.restore(&alice(), &snapshot).await.unwrap();
    memory.restore(&bob(), &snapshot).await.unwrap();
    let config = helmdeck_memory::Config::default();
    let elsewhere: Arc<dyn Store> =
        Arc::new(DriverStore::plain(Memory::new(), &config, s.clock.clone()));
    let elsewhere = Fixture::new(s.strategy, elsewhere, s.clock.clone()).open();
    elsewhere.restore(&alice(), &snapshot).await.unwrap();
    for (memory, identity) in [
        (&memory, alice()),
        (&memory, bob()),
        (&s.another().open(), alice()),
        (&elsewhere, alice()),
    ] {
        let patch = memory.context(&identity).await.unwrap();
        assert_eq!(shown(&patch), shown(&before));
        let again = memory.snapshot(&identity).await.unwrap();
        assert!(
            again == snapshot,
            "the snapshot of what was restored is another one"
        );
        assert_eq!(memory.health(&identity).await.unwrap(), Health::Healthy);
    }
    let moves = s.moves(&alice(), Health::Healthy);
    assert_eq!(
        moves,
        [(Health::Healthy, "flushed"), (Health::Healthy, "restored")]
    );
    // It goes on from there.
    add(&memory, &alice(), 11..20).await;
    fold(&memory, &alice()).await;
    assert_eq!(seen(&memory, &alice()).await, numbers(0..20));
}

/// A snapshot restores turns that did not fit the budget.
///
/// As many turns are hidden as before, and one that is too large is in it.
pub(super) async fn a_snapshot_restores_what_did_not_fit(s: Fixture) {
    // No summarizer works, so hidden turns stay hidden.
    let open = |s: &Fixture| {
        s.summarizer
            .always(super::Action::Fail(crate::summarizer::Failure::Unavailable));
        s.open_with(|config| config.budget_tokens = 64)
    };
    let memory = open(&s);
    for number in 0..5 {
        memory
            .add_turn(&alice(), sized(number, 52, 52))
            .await
            .unwrap();
    }
    // The goal takes the room of one turn.
    for (over_budget, omitted) in [(false, 4), (true, 5)] {
        if over_budget {
            memory.add_turn(&alice(), sized(5, 200, 200)).await.unwrap();
        }
        let before = memory.context(&alice()).await.unwrap();
        assert_eq!(
            (before.over_budget, before.omitted_turns),
            (over_budget, omitted)
        );
        let snapshot = memory.snapshot(&alice()).await.unwrap();
        memory.flush(&alice()).await.unwrap();
        memory.restore(&alice(), &snapshot).await.unwrap();
        memory.restore(&bob(), &snapshot).await.unwrap();
        let other = open(&s.another());
        for (memory, identity) in [(&memory, alice()), (&memory, bob()), (&other, alice())] {
            let patch = memory.context(&identity).await.unwrap();
            assert_eq!(shown(&patch), shown(&before));
            assert_eq!(
                memory.estimate_tokens(&identity).await.unwrap(),
                before.tokens
            );
            assert_eq!(
                kept(memory, &identity).await,
                numbers(0..if over_budget { 6 } else { 5 })
            );
            let again = memory.snapshot(&identity).await.unwrap();
            assert!(
                again == snapshot,
                "the snapshot of what was restored is another one"
            );
        }
        other.close(super::fixture::STUCK).await;
    }
}

macro_rules! fixtures {
    ($($name:literal),* $(,)?) => {
        /// Snapshots in the form of the original: their names and texts.
        const FIXTURES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../fixtures/", $name, ".json")).trim_ascii_end())),*];
    };
}

fixtures!(
    "truncation_empty",
    "truncation_one",
    "truncation_three",
    "rolling_summary",
    "rolling_summary_only",
    "nulls_and_empty_lists",
    "html",
    "unicode",
    "times",
    "unknown_members",
    "artifacts_shown",
);

/// The fixtures of the strategy go through the store and come out byte for byte.
///
/// They do so here and in another process.
pub(super) async fn the_fixtures_come_out_byte_for_byte(s: Fixture) {
    let memory = s.open_with(|config| config.recent_turns = 1000);
    let mut tried = 0;
    for (name, text) in FIXTURES {
        let record: Value = serde_json::from_str(text).unwrap();
        if record["strategy"] != s.strategy.as_str() {
            continue;
        }
        tried += 1;
        memory
            .restore(
                &alice(),
                &Snapshot {
                    strategy: Some(s.strategy),
                    bytes: (*text).into(),
                },
            )
            .await
            .unwrap();
        let turns = record["turns"].as_array().map_or(0, Vec::len);
        let other = s.another().open_with(|config| config.recent_turns = 1000);
        for memory in [&memory, &other] {
            let snapshot = memory.snapshot(&alice()).await.unwrap();
            assert_eq!(
                String::from_utf8(snapshot.bytes.to_vec()).unwrap(),
                *text,
                "{name}"
            );
            let patch = memory.context(&alice()).await.unwrap();
            assert_eq!(
                patch.summary,
                record["summary"].as_str().unwrap_or_default(),
                "{name}"
            );
            for (index, recent) in patch.recent_turns.iter().enumerate() {
                assert_eq!(
                    recent.turn.user_message,
                    record["turns"][index]["UserMessage"].as_str().unwrap(),
                    "{name}"
                );
            }
            assert_eq!(
                (patch.recent_turns.len(), patch.unreadable),
                (turns, 0),
                "{name}"
            );
            assert_eq!(
                memory.trace(&alice()).await.unwrap().kept_turns,
                turns as u64,
                "{name}"
            );
        }
        other.close(super::fixture::STUCK).await;
    }
    assert!(tried >= 2, "{tried} fixtures");
}

/// A snapshot of the original goes in and comes out byte for byte, with its unknown members.
pub(super) async fn a_snapshot_of_the_original_comes_out_byte_for_byte(s: Fixture) {
    let memory = s.open();
    let name = s.strategy.as_str();
    let bodies = [
        format!("{{\"strategy\":\"{name}\"}}"),
        format!(
            "{{\"strategy\":\"{name}\",\"turns\":[{{\"UserMessage\":\"[0] a \\u003c b \\u0026 c\",\"AssistantResponse\":\"é 漢\",\
             \"TrajectoryDigest\":null,\"ArtifactsShown\":null,\"ArtifactsHiddenRefs\":null,\
             \"Timestamp\":\"2026-06-02T10:11:12.123456789Z\"}}]}}"
        ),
        format!(
            "{{\"strategy\":\"{name}\",\"turns\":[{{\"UserMessage\":\"[0]\",\"AssistantResponse\":\"\",\
             \"TrajectoryDigest\":{{\"ToolsInvoked\":[\"t\"],\"ObservationsSummary\":\"o\",\"ReasoningSummary\":\"\",\
             \"ArtifactsRefs\":null,\"Later\":1}},\"ArtifactsShown\":{{\"b\":1.0,\"a\":12345678901234567890}},\
             \"ArtifactsHiddenRefs\":[],\"Timestamp\":\"0001-01-01T00:00:00Z\",\"More\":{{\"z\":[1,2]}}}}],\
             \"version\":7,\"zz\":{{\"k\":\"v\"}}}}"
        ),
    ];
    for body in bodies {
        memory
            .restore(
                &alice(),
                &Snapshot {
                    strategy: Some(s.strategy),
                    bytes: body.clone().into(),
                },
            )
            .await
            .unwrap();
        for memory in [&memory, &s.another().open()] {
            let snapshot = memory.snapshot(&alice()).await.unwrap();
            assert_eq!(String::from_utf8(snapshot.bytes.to_vec()).unwrap(), body);
        }
    }
    add(&memory, &alice(), 1..2).await;
    let snapshot: Value =
        serde_json::from_slice(&memory.snapshot(&alice()).await.unwrap().bytes).unwrap();
    assert_eq!(
        (&snapshot["zz"], &snapshot["version"]),
        (&json!({"k": "v"}), &json!(7)),
        "unknown members stay"
    );
    if s.rolls() {
        let summary = json!({"strategy": name, "turns": [], "summary": "[5][6]"});
        memory
            .restore(&alice(), &of(s.strategy, &summary))
            .await
            .unwrap();
        assert_eq!(memory.context(&alice()).await.unwrap().summary, "[5][6]");
        let snapshot = memory.snapshot(&alice()).await.unwrap();
        assert_eq!(
            &snapshot.bytes[..],
            format!("{{\"strategy\":\"{name}\",\"summary\":\"[5][6]\"}}").as_bytes()
        );
        // More turns than are kept out of a summary are summarised on top of it.
        let turns: Vec<_> = (7..16)
            .map(|n| json!({"UserMessage": format!("[{n}]"), "AssistantResponse": ""}))
            .collect();
        let both = json!({"strategy": name, "turns": turns, "summary": "[5][6]"});
        memory
            .restore(&alice(), &of(s.strategy, &both))
            .await
            .unwrap();
        assert_eq!(seen(&memory, &alice()).await, numbers(5..16));
        fold(&memory, &alice()).await;
        let patch = memory.context(&alice()).await.unwrap();
        assert_eq!(
            (super::marks(&patch.summary), recent(&patch)),
            (numbers(5..12), numbers(12..16))
        );
    }
}

/// What is no snapshot, or that of another strategy, is refused, and what is there stays.
pub(super) async fn what_is_no_snapshot_is_refused(s: Fixture) {
    let memory = s.open();
    add(&memory, &alice(), 0..3).await;
    let before = memory.context(&alice()).await.unwrap();
    let name = s.strategy.as_str();
    let turn = json!({"UserMessage": "u", "AssistantResponse": "a"});
    let mut bad: Vec<Snapshot> = [
        "",
        "null",
        "[]",
        "{",
        "7",
        "\"s\"",
        "{}x",
        "\u{0}",
        "{\"strategy\":1}",
    ]
    .into_iter()
    .skip(1)
    .map(|text| Snapshot {
        strategy: Some(s.strategy),
        bytes: text.to_owned().into(),
    })
    .collect();
    bad.push(Snapshot {
        strategy: Some(s.strategy),
        bytes: vec![0xff, 0xfe].into(),
    });
    for strategy in Strategy::ALL
        .into_iter()
        .filter(|strategy| *strategy != s.strategy)
    {
        bad.push(Snapshot {
            strategy: Some(strategy),
            ..Snapshot::default()
        });
        bad.push(of(strategy, &json!({"strategy": name, "turns": [turn]})));
        bad.push(of(
            strategy,
            &json!({"strategy": strategy.as_str(), "turns": [turn]}),
        ));
        bad.push(of(
            s.strategy,
            &json!({"strategy": strategy.as_str(), "turns": [turn]}),
        ));
    }
    for turns in [
        json!([{"user_message": "u", "assistant_response": "a"}]),
        json!([{}]),
        json!([turn, 7]),
        json!({"0": turn}),
        json!([{"UserMessage": 7, "AssistantResponse": "a"}]),
        json!([{"UserMessage": "u", "AssistantResponse": "a", "Timestamp": "yesterday"}]),
    ] {
        bad.push(of(s.strategy, &json!({"strategy": name, "turns": turns})));
    }
    if s.strategy == Strategy::None {
        bad.push(of(
            s.strategy,
            &json!({"strategy": "none", "turns": [turn]}),
        ));
        bad.push(of(s.strategy, &json!({"strategy": "none", "summary": "s"})));
    }
    for snapshot in bad {
        let refused = memory.restore(&alice(), &snapshot).await;
        assert!(
            matches!(refused, Err(ConversationError::InvalidSnapshot(_))),
            "{:?}: {refused:?}",
            snapshot.bytes
        );
    }
    assert_eq!(memory.context(&alice()).await.unwrap(), before);
    assert_eq!(s.events(), []);
}

/// W12: a restore leaves nothing behind of what was there: no turn, no summary, no health, no
/// backlog.
pub(super) async fn a_restore_leaves_nothing_behind(s: Fixture) {
    let memory = s.open();
    add(&memory, &bob(), 3000..3002).await;
    let snapshot = memory.snapshot(&bob()).await.unwrap();
    s.summarizer
        .always(super::Action::Fail(crate::summarizer::Failure::Refused));
    add(&memory, &alice(), 1000..1012).await;
    if s.rolls() {
        super::eventually("degraded", async || {
            memory.health(&alice()).await.unwrap() == Health::Degraded
        })
        .await;
    }
    memory.restore(&alice(), &snapshot).await.unwrap();
    s.summarizer.always(super::Action::Answer);
    fold(&memory, &alice()).await;
    for memory in [&memory, &s.another().open()] {
        assert_eq!(seen(memory, &alice()).await, numbers(3000..3002));
        assert_eq!(kept(memory, &alice()).await, numbers(3000..3002));
        let trace = memory.trace(&alice()).await.unwrap();
        assert_eq!(
            (trace.health, trace.failures, trace.backlog_turns),
            (Health::Healthy, 0, 0)
        );
    }
    assert_eq!(s.rows_with("[10").await, 0);
    // The empty one clears.
    memory
        .restore(&alice(), &Snapshot::default())
        .await
        .unwrap();
    assert!(memory.context(&alice()).await.unwrap().is_empty());
    assert_eq!(kept(&memory, &alice()).await, Vec::<String>::new());
    assert_eq!(s.rows_with("[3000").await, 2, "bob's turn, and the goal");
    memory
        .restore(
            &bob(),
            &Snapshot {
                strategy: Some(s.strategy),
                ..Snapshot::default()
            },
        )
        .await
        .unwrap();
    assert_eq!(s.rows_with("[3000").await, 0);
    s.moves(&alice(), Health::Healthy);
}

/// A conversation larger than a batch of the store is restored whole or not at all.
///
/// It is cut off at every place.
pub(super) async fn a_large_restore_is_all_or_nothing(s: Fixture) {
    let turns: Vec<_> = (0..1000)
        .map(|n| json!({"UserMessage": format!("[{n}]"), "AssistantResponse": "a"}))
        .collect();
    let snapshot = of(
        s.strategy,
        &json!({"strategy": s.strategy.as_str(), "turns": turns}),
    );
    let quiet = |config: &mut crate::Config| {
        config.recent_turns = 10_000;
        config.sweep_interval = Duration::from_secs(3600);
    };
    let mut whole = false;
    for crash in 0..12 {
        let one = s.another();
        let memory = one.open_with(quiet);
        memory.forget(&alice()).await.unwrap();
        add(&memory, &alice(), 5000..5003).await;
        one.faults.cut_after(crash);
        let restored = memory.restore(&alice(), &snapshot).await;
        let cut = one.faults.is_cut();
        memory.close(Duration::ZERO).await;
        let memory = s.another().open_with(quiet);
        let seen = seen(&memory, &alice()).await;
        if restored.is_ok() {
            assert_eq!(seen.len(), 1000, "crash {crash}");
        }
        assert!(
            seen == numbers(5000..5003) || seen == numbers(0..1000),
            "crash {crash}: {} turns",
            seen.len()
        );
        let trace = memory.trace(&alice()).await.unwrap();
        assert_eq!(trace.kept_turns, seen.len() as u64);
        // It can be written to, and what was left behind of a restore comes never up again.
        add(&memory, &alice(), 7000..7002).await;
        let mut expected = seen;
        expected.extend(numbers(7000..7002));
        assert_eq!(super::fixture::seen(&memory, &alice()).await, expected);
        memory.close(super::fixture::STUCK).await;
        whole = restored.is_ok();
        if !cut {
            break;
        }
    }
    assert!(whole, "twelve writes are enough for 1000 turns");
    let memory = s.another().open_with(quiet);
    memory.flush(&alice()).await.unwrap();
    memory.add_turn(&alice(), turn(1)).await.unwrap();
    assert_eq!(seen(&memory, &alice()).await, numbers(1..2));
}
