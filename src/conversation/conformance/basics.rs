//! Test cases about what goes in and comes out.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use helmdeck_core::Json;

use super::fixture::{
    Fixture, add, alice, bob, fold, items, kept, numbers, recent, seen, sized, turn,
};
use crate::health::{Health, Reason};
use crate::snapshot::Snapshot;
use crate::turn::{ConversationTurn, NewDigest, NewTurn};
use crate::wire;

pub(super) async fn a_fresh_conversation_is_empty(s: Fixture) {
    let memory = s.open();
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!(patch.strategy, s.strategy);
    assert!(patch.is_empty());
    assert_eq!(
        (
            patch.tokens,
            patch.omitted_turns,
            patch.over_budget,
            patch.unreadable
        ),
        (0, 0, false, 0)
    );
    assert_eq!(memory.estimate_tokens(&alice()).await.unwrap(), 0);
    assert_eq!(memory.health(&alice()).await.unwrap(), Health::Healthy);
    assert_eq!(items(&memory, &alice()).await, []);
    let trace = memory.trace(&alice()).await.unwrap();
    assert_eq!(
        (
            trace.strategy,
            trace.health,
            trace.kept_turns,
            trace.generation
        ),
        (s.strategy, Health::Healthy, 0, 0)
    );
    assert_eq!(
        memory
            .summarise(&alice(), super::fixture::STUCK)
            .await
            .unwrap(),
        0
    );
    assert_eq!(memory.forget(&alice()).await.unwrap(), 0);
    assert_eq!(
        s.bare.stats().await.unwrap().rows,
        0,
        "looking makes nothing"
    );
}

pub(super) async fn none_keeps_nothing(s: Fixture) {
    let memory = s.open();
    let added = memory
        .add_turn(&alice(), sized("a", 400, 400))
        .await
        .unwrap();
    assert_eq!((added.id, added.repeated), (None, false));
    let added = memory.put_turn(&alice(), turn("b")).await.unwrap();
    assert_eq!(added.id, None);
    assert!(memory.context(&alice()).await.unwrap().is_empty());
    assert_eq!(memory.estimate_tokens(&alice()).await.unwrap(), 0);
    let snapshot = memory.snapshot(&alice()).await.unwrap();
    assert_eq!(
        (snapshot.strategy, snapshot.bytes.len()),
        (Some(s.strategy), 0)
    );
    assert_eq!(s.bare.stats().await.unwrap().rows, 0);
    let puts = s
        .events()
        .into_iter()
        .filter(|event| matches!(event, helmdeck_events::EventKind::MemoryItemPut { .. }));
    assert_eq!(puts.count(), 0, "nothing was put, so nothing is told");
}

/// Reference suite: `Truncation_AddTurn_PersistsAndAccumulates`, with data.
pub(super) async fn turns_come_back_whole_and_in_order(s: Fixture) {
    let memory = s.open();
    let full = NewTurn {
        user_message: "[0] <b>&\u{2028} é 漢字 \u{1f600} \"quoted\"\n\t\u{0}".to_owned(),
        assistant_response: String::new(),
        timestamp: Some("2026-11-22T16:00:00.123456789+01:00".to_owned()),
        trajectory_digest: Some(NewDigest {
            tools_invoked: vec!["a".into(), "b".into()],
            observations_summary: "seen".into(),
            reasoning_summary: "thought".into(),
            artifacts_refs: vec!["r".into()],
        }),
        artifacts_shown: Some(
            Json::parse(r#"{"b":12345678901234567890,"a":{"x":[1.50]}}"#).unwrap(),
        ),
        artifacts_hidden_refs: Some(vec!["h".into()]),
        once: None,
    };
    let first = memory.add_turn(&alice(), full.clone()).await.unwrap();
    let rest = add(&memory, &alice(), 1..3).await;
    let ids: Vec<_> = std::iter::once(&first)
        .chain(&rest)
        .map(|added| added.id.unwrap())
        .collect();
    assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] != pair[1]));
    let expected: ConversationTurn = full
        .into_turn(helmdeck_core::Clock::now(&*s.clock))
        .unwrap();
    // From memory, and from the store by another process.
    for memory in [memory, s.another().open()] {
        let patch = memory.context(&alice()).await.unwrap();
        assert_eq!(
            patch
                .recent_turns
                .iter()
                .map(|recent| recent.id)
                .collect::<Vec<_>>(),
            ids
        );
        assert_eq!(recent(&patch), ["0", "1", "2"]);
        let turn = &patch.recent_turns[0].turn;
        assert!(**turn == expected, "the turn is another one");
        assert_eq!(wire::write_turn(turn), wire::write_turn(&expected));
        let detail = memory
            .get_turn(&alice(), &ids[0].to_string())
            .await
            .unwrap();
        assert!(*detail.turn == expected);
        assert_eq!(
            (detail.item.key, detail.item.tokens),
            (ids[0], first.tokens)
        );
        assert_eq!(detail.item.timestamp, "2026-11-22T16:00:00.123456789+01:00");
        let tokens: u64 = first.tokens + rest.iter().map(|added| added.tokens).sum::<u64>();
        assert_eq!(
            (
                patch.tokens,
                memory.estimate_tokens(&alice()).await.unwrap()
            ),
            (tokens, tokens)
        );
    }
}

/// Tokens are exact: a quarter for each ASCII character and one for each text, as in the reference.
pub(super) async fn tokens_are_exact(s: Fixture) {
    let memory = s.open();
    let added = memory
        .add_turn(&alice(), sized("a", 200, 200))
        .await
        .unwrap();
    assert_eq!(added.tokens, 102);
    let added = memory.add_turn(&alice(), sized("b", 40, 0)).await.unwrap();
    assert_eq!(added.tokens, 12);
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!((patch.tokens, patch.recent_turns.len()), (114, 2));
    // W25: characters that are words of their own count as such, whatever bytes they take.
    let added = memory
        .add_turn(&alice(), NewTurn::new("漢".repeat(100), ""))
        .await
        .unwrap();
    assert!((100..=110).contains(&added.tokens), "{}", added.tokens);
    // What no prompt shows costs nothing of the budget.
    let digest = NewDigest {
        observations_summary: "o".repeat(400),
        ..NewDigest::default()
    };
    let with = NewTurn {
        trajectory_digest: Some(digest),
        ..sized("c", 40, 0)
    };
    assert!(memory.add_turn(&alice(), with).await.unwrap().tokens == 12);
    let shown = Json::parse(format!("{{\"a\":\"{}\"}}", "o".repeat(400))).unwrap();
    let with = NewTurn {
        artifacts_shown: Some(shown),
        ..sized("c", 40, 0)
    };
    assert!(memory.add_turn(&alice(), with).await.unwrap().tokens == 12);
}

pub(super) async fn what_is_no_turn_is_refused_and_nothing_written(s: Fixture) {
    let memory = s.open_with(|config| config.max_turn_bytes = 1000);
    let bad = [
        NewTurn {
            timestamp: Some("yesterday".into()),
            ..turn("a")
        },
        NewTurn {
            artifacts_shown: Some(Json::parse("[1]").unwrap()),
            ..turn("a")
        },
        NewTurn {
            once: Some(String::new()),
            ..turn("a")
        },
        NewTurn {
            once: Some("o".repeat(257)),
            ..turn("a")
        },
        sized("a", 1000, 0),
    ];
    for (index, turn) in bad.into_iter().enumerate() {
        let refused = memory.add_turn(&alice(), turn).await;
        let expected = if index == 4 {
            "limit is 1000"
        } else {
            "memory: "
        };
        assert!(
            refused
                .as_ref()
                .is_err_and(|error| error.to_string().contains(expected)),
            "{index}: {refused:?}"
        );
    }
    assert_eq!(
        (
            seen(&memory, &alice()).await.len(),
            s.bare.stats().await.unwrap().rows
        ),
        (0, 0)
    );
    memory
        .add_turn(
            &alice(),
            NewTurn {
                once: Some("o".repeat(256)),
                ..turn("a")
            },
        )
        .await
        .unwrap();
    memory
        .add_turn(&alice(), NewTurn::new("", ""))
        .await
        .unwrap();
    assert_eq!(items(&memory, &alice()).await.len(), 2);
}

pub(super) async fn flushing_what_is_not_there_is_fine(s: Fixture) {
    let memory = s.open();
    memory.flush(&alice()).await.unwrap();
    memory.flush(&alice()).await.unwrap();
    assert!(memory.context(&alice()).await.unwrap().is_empty());
    assert_eq!(memory.health(&alice()).await.unwrap(), Health::Healthy);
}

/// W26: a flush that restores health publishes an event.
pub(super) async fn a_flush_leaves_nothing_of_anybody_but_the_others(s: Fixture) {
    let memory = s.open();
    add(&memory, &alice(), 1000..1012).await;
    fold(&memory, &alice()).await;
    memory
        .add_turn(
            &alice(),
            NewTurn {
                once: Some("[1099]".into()),
                ..turn(1099)
            },
        )
        .await
        .unwrap();
    add(&memory, &bob(), 2000..2003).await;
    assert!(s.rows_with("is answered").await >= 16);
    let generation = memory.trace(&alice()).await.unwrap().generation;
    memory.flush(&alice()).await.unwrap();
    let after = s.another().open();
    for memory in [&memory, &after] {
        let patch = memory.context(&alice()).await.unwrap();
        assert!(patch.is_empty());
        assert_eq!((patch.tokens, patch.omitted_turns), (0, 0));
        assert_eq!(kept(memory, &alice()).await, Vec::<String>::new());
        assert_eq!(
            memory.trace(&alice()).await.unwrap().generation,
            generation + 1
        );
        assert_eq!(seen(memory, &bob()).await, numbers(2000..2003));
    }
    assert_eq!(
        s.rows_with("[10").await,
        0,
        "neither a turn nor a summary is left in any row"
    );
    assert_eq!(
        s.moves(&alice(), Health::Healthy),
        [(Health::Healthy, Reason::Flushed.as_str())]
    );
    let added = add(&memory, &alice(), 5..7).await;
    assert!(added[0].id.is_some());
    assert_eq!(
        (seen(&memory, &alice()).await, kept(&memory, &alice()).await),
        (numbers(5..7), numbers(5..7))
    );
}

pub(super) async fn an_empty_snapshot_goes_round(s: Fixture) {
    let memory = s.open();
    let snapshot = memory.snapshot(&alice()).await.unwrap();
    assert_eq!(snapshot.strategy, Some(s.strategy));
    memory
        .restore(&alice(), &Snapshot::default())
        .await
        .unwrap();
    let again = memory.snapshot(&alice()).await.unwrap();
    assert_eq!(again.strategy, Some(s.strategy));
    memory.restore(&alice(), &again).await.unwrap();
    let alone = Snapshot {
        strategy: Some(s.strategy),
        ..Snapshot::default()
    };
    memory.restore(&alice(), &alone).await.unwrap();
    assert!(memory.context(&alice()).await.unwrap().is_empty());
    assert_eq!(memory.health(&alice()).await.unwrap(), Health::Healthy);
}

/// Reference suite: `RollingSummary_AddTurn_TriggersSummarisation`.
///
/// It runs with data, and without a request to summarise.
pub(super) async fn older_turns_are_folded_by_themselves(s: Fixture) {
    let memory = s.open();
    add(&memory, &alice(), 0..10).await;
    super::eventually("all but the last four turns to be folded", async || {
        memory.trace(&alice()).await.unwrap().covers_through == 6
    })
    .await;
    for memory in [memory, s.another().open()] {
        let patch = memory.context(&alice()).await.unwrap();
        assert_eq!(patch.summary, "[0][1][2][3][4][5]");
        assert_eq!(recent(&patch), numbers(6..10));
        assert_eq!(patch.goal.as_deref(), Some("[0] is asked"));
        let trace = memory.trace(&alice()).await.unwrap();
        assert_eq!(
            (
                trace.kept_turns,
                trace.recent_turn_count,
                trace.backlog_turns,
                trace.omitted_turns
            ),
            (10, 4, 0, 0)
        );
        let rendered = memory
            .render(&alice(), crate::Format::Json)
            .await
            .unwrap()
            .patch;
        assert_eq!(
            (trace.summary, trace.estimated_tokens, trace.failures),
            (patch.summary, rendered.tokens, 0)
        );
        assert_eq!(trace.last_failure, None);
        let folded: Vec<bool> = items(&memory, &alice())
            .await
            .iter()
            .map(|item| item.folded)
            .collect();
        assert_eq!(
            folded,
            [
                true, true, true, true, true, true, false, false, false, false
            ]
        );
    }
    // The summarizer got each turn once, in order, on top of all before it.
    let sent: Vec<String> = s
        .summarizer
        .calls()
        .iter()
        .flat_map(|call| call.turns.clone())
        .collect();
    assert_eq!(sent, numbers(0..6));
    for call in s.summarizer.calls() {
        let before: usize = call.turns[0].parse().unwrap();
        assert_eq!(call.previous, numbers(0..before));
        assert!(call.turns.len() <= 4, "a batch has at most 4 turns here");
        assert_eq!(
            call.goal.as_deref(),
            Some("[0] is asked"),
            "the goal is told with every batch"
        );
    }
    assert_eq!(
        s.moves(&alice(), Health::Healthy),
        [],
        "a summary that succeeds moves nothing"
    );
}
