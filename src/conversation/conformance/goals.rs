//! Test cases about the goal: it is in sight in every state, and it is what the user says it is.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use super::eventually;
use super::fixture::{Fixture, STUCK, add, alice, fold, kept, sized, turn};
use super::scripted_summarizer::Action;
use crate::config::Strategy;
use crate::error::ConversationError;
use crate::health::Health;
use crate::identity::Identity;
use crate::memory::ConversationMemory;
use crate::summarizer::Failure;
use crate::turn::NewTurn;
use crate::views::Goal;

const GOAL: &str = "port the parser";

/// How the model of summaries does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Model {
    Works,
    DownFromTheStart,
    DownLater,
}

/// What comes before the user's first request.
const BEFORE: [&[(&str, &str)]; 3] = [
    &[],
    &[("Hello there!", "Hi, what can I do for you?")],
    &[
        ("", "Welcome."),
        ("hi", "Hello."),
        ("How are you?", "Fine."),
    ],
];

async fn in_sight(memory: &ConversationMemory, identity: &Identity, goal: &str) -> bool {
    let patch = memory.context(identity).await.unwrap();
    let said = patch
        .recent_turns
        .iter()
        .map(|recent| recent.turn.user_message.as_str());
    assert!(
        patch.tokens <= memory.config().budget_tokens,
        "{} tokens",
        patch.tokens
    );
    patch
        .goal
        .as_deref()
        .into_iter()
        .chain(said)
        .any(|text| text.contains(goal))
}

/// The goal is in sight after every turn, whatever the model does, and whichever strategy comes
/// next.
pub(super) async fn the_goal_is_in_sight_in_every_state(s: Fixture) {
    let mut number = 0;
    for model in [Model::Works, Model::DownFromTheStart, Model::DownLater] {
        for next in Strategy::ALL {
            for before in BEFORE {
                for pinned in [None, Some("PINNED: in German")] {
                    number += 1;
                    let identity = Identity {
                        session: format!("goal-{number}").into(),
                        ..alice()
                    };
                    let state = format!(
                        "{} {model:?}, then {next}, after {before:?}, {pinned:?}",
                        s.strategy
                    );
                    let one = s.another();
                    one.summarizer.always(Action::Say(
                        "The assistant does what it was asked.".to_owned(),
                    ));
                    if model == Model::DownFromTheStart {
                        one.summarizer.always(Action::Fail(Failure::Unavailable));
                    }
                    let memory = one.open_with(|config| config.budget_tokens = 300);
                    for (user, assistant) in before {
                        memory
                            .add_turn(&identity, NewTurn::new(*user, *assistant))
                            .await
                            .unwrap();
                        assert_eq!(
                            memory.goal(&identity).await.unwrap(),
                            Goal::default(),
                            "{state}: a greeting"
                        );
                    }
                    memory
                        .add_turn(&identity, NewTurn::new(GOAL, "I will."))
                        .await
                        .unwrap();
                    let goal = pinned.unwrap_or(GOAL);
                    if pinned.is_some() {
                        memory.pin(&identity, pinned).await.unwrap();
                    }
                    for turn in 0..12 {
                        if turn == 6 && model == Model::DownLater {
                            one.summarizer.always(Action::Fail(Failure::Unavailable));
                        }
                        if turn == 6 && model == Model::Works {
                            fold(&memory, &identity).await;
                        }
                        memory
                            .add_turn(&identity, sized(turn, 80, 80))
                            .await
                            .unwrap();
                        assert!(
                            in_sight(&memory, &identity, goal).await,
                            "{state}: turn {turn}"
                        );
                    }
                    if s.rolls() && model != Model::Works {
                        eventually("degraded", async || {
                            memory.health(&identity).await.unwrap() != Health::Healthy
                        })
                        .await;
                        assert!(
                            in_sight(&memory, &identity, goal).await,
                            "{state}: in the outage"
                        );
                    }
                    memory.close(STUCK).await;

                    let two = s.under(next);
                    two.summarizer.always(Action::Fail(Failure::Unavailable));
                    let memory = two.open_with(|config| config.budget_tokens = 300);
                    if next == Strategy::None {
                        assert!(
                            memory.context(&identity).await.unwrap().is_empty(),
                            "{state}"
                        );
                        assert_eq!(
                            memory.goal(&identity).await.unwrap(),
                            Goal::default(),
                            "{state}"
                        );
                    } else {
                        assert!(
                            in_sight(&memory, &identity, goal).await,
                            "{state}: after the switch"
                        );
                        memory.add_turn(&identity, sized(20, 80, 80)).await.unwrap();
                        assert!(
                            in_sight(&memory, &identity, goal).await,
                            "{state}: a turn later"
                        );
                    }
                    memory.close(STUCK).await;
                }
            }
        }
    }
}

/// A goal is pinned, shown, replaced and cleared, and goes with the conversation.
pub(super) async fn a_pinned_goal_replaces_the_opening(s: Fixture) {
    let memory = s.open();
    let goal = async |memory: &ConversationMemory| memory.goal(&alice()).await.unwrap();
    let said = |goal: &str, pinned| Goal {
        goal: Some(goal.to_owned()),
        pinned,
    };
    assert_eq!(memory.pin(&alice(), None).await.unwrap(), Goal::default());
    assert_eq!(
        s.faults.writes(),
        0,
        "nothing was pinned, so nothing is cleared"
    );
    // Before the first turn, too.
    assert_eq!(
        memory.pin(&alice(), Some(" ship it \n")).await.unwrap(),
        said("ship it", true)
    );
    assert_eq!(
        memory.context(&alice()).await.unwrap().goal.as_deref(),
        Some("ship it")
    );
    add(&memory, &alice(), 0..9).await;
    assert_eq!(
        memory
            .pin(&alice(), Some("ship it tomorrow"))
            .await
            .unwrap(),
        said("ship it tomorrow", true)
    );
    fold(&memory, &alice()).await;
    add(&memory, &alice(), 9..12).await;
    fold(&memory, &alice()).await;
    assert_eq!(kept(&memory, &alice()).await.len(), 12);
    let snapshot = memory.snapshot(&alice()).await.unwrap();
    for (memory, identity) in [
        (&memory, alice()),
        (&s.another().open(), alice()),
        (&memory, super::fixture::bob()),
    ] {
        if identity != alice() {
            memory.restore(&identity, &snapshot).await.unwrap();
        }
        assert_eq!(
            memory.goal(&identity).await.unwrap(),
            said("ship it tomorrow", true)
        );
        let context = memory.context(&identity).await.unwrap();
        assert_eq!(
            context.goal.as_deref(),
            Some("ship it tomorrow"),
            "though the first turn may be shown"
        );
    }
    if s.rolls() {
        let told = s.summarizer.calls().pop().unwrap().goal;
        assert_eq!(told.as_deref(), Some("ship it tomorrow"));
    }
    assert_eq!(
        memory.pin(&alice(), None).await.unwrap(),
        said("[0] is asked", false)
    );
    memory.pin(&alice(), Some("again")).await.unwrap();
    memory.flush(&alice()).await.unwrap();
    assert_eq!(goal(&memory).await, Goal::default());
    assert_eq!(s.rows_with("again").await, 0);
}

/// A goal that is none, or too long, is refused, and nothing is written.
pub(super) async fn a_goal_that_is_none_is_refused(s: Fixture) {
    let memory = s.open_with(|config| config.budget_tokens = 400);
    let empty = memory.pin(&alice(), Some(" \n")).await;
    assert!(
        matches!(&empty, Err(ConversationError::Invalid(why)) if why.contains("empty")),
        "{empty:?}"
    );
    let long = "word ".repeat(200);
    let refused = memory.pin(&alice(), Some(&long)).await;
    if s.strategy == Strategy::None {
        assert!(
            matches!(refused, Err(ConversationError::Invalid(_))),
            "{refused:?}"
        );
        let refused = memory.pin(&alice(), Some("a goal")).await;
        assert!(
            matches!(&refused, Err(ConversationError::Invalid(why)) if why.contains("none")),
            "{refused:?}"
        );
    } else {
        let too_large = matches!(
            refused,
            Err(ConversationError::TooLarge {
                what: "goal",
                limit: 100,
                ..
            })
        );
        assert!(too_large, "{refused:?}");
    }
    assert_eq!(s.faults.writes(), 0);
}

/// A goal that is pinned while a summary is made is in the checkpoint with it, and costs no second
/// request.
pub(super) async fn a_goal_pinned_during_a_summary_is_kept(s: Fixture) {
    s.summarizer.always(Action::Wait);
    let memory = s.open();
    add(&memory, &alice(), 0..5).await;
    s.summarizer.reached(1).await;
    memory.pin(&alice(), Some("in the middle")).await.unwrap();
    s.summarizer.let_go();
    eventually("the summary", async || {
        memory.trace(&alice()).await.unwrap().covers_through == 1
    })
    .await;
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!(
        (patch.goal.as_deref(), patch.summary.as_str()),
        (Some("in the middle"), "[0]")
    );
    assert_eq!(
        (s.summarizer.calls().len(), s.summarizer.cancelled()),
        (1, 0)
    );
}

/// With its turn, an opening goes; the next request takes its place.
pub(super) async fn a_deleted_opening_leaves_the_next(s: Fixture) {
    let memory = s.open();
    memory
        .add_turn(&alice(), NewTurn::new("hi", "hello"))
        .await
        .unwrap();
    let first = memory
        .add_turn(&alice(), turn(1))
        .await
        .unwrap()
        .id
        .unwrap();
    memory.add_turn(&alice(), turn(2)).await.unwrap();
    assert_eq!(
        memory.goal(&alice()).await.unwrap().goal.as_deref(),
        Some("[1] is asked")
    );
    memory
        .delete_turn(&alice(), &first.to_string())
        .await
        .unwrap();
    assert_eq!(
        memory.goal(&alice()).await.unwrap().goal.as_deref(),
        Some("[2] is asked")
    );
    assert_eq!(s.rows_with("[1]").await, 0);
}
