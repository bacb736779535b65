//! Test cases about what fits: case 1 of the reference, and W5, W14.

#![expect(clippy::unwrap_used, reason = "a failed test case panics")]

use helmdeck_events::EventKind;

use super::fixture::{Fixture, add, alice, fold, kept, numbers, recent, sized, turn};
use super::scripted_summarizer::Action;
use crate::config::{OnOversize, TokenCounter};
use crate::error::ConversationError;
use crate::health::Health;
use crate::patch::LlmContextPatch;
use crate::render::{self, Format, RenderedContext};
use crate::summarizer::Failure;
use crate::tokens::{Counter, HEAD_MARK};

/// Returns what the goal takes.
fn pinned(patch: &LlmContextPatch) -> u64 {
    patch
        .goal
        .as_deref()
        .map_or(0, |goal| Counter::Chars.count(goal))
}

/// Reference suite: `Truncation_EnforcesBudget`, with exact numbers.
pub(super) async fn a_budget_shows_the_newest_turns_that_fit(s: Fixture) {
    s.summarizer.always(Action::Fail(Failure::Unavailable));
    let memory = s.open_with(|config| config.budget_tokens = 64);
    // 28 tokens each.
    for number in 0..5 {
        let added = memory
            .add_turn(&alice(), sized(number, 52, 52))
            .await
            .unwrap();
        assert_eq!(added.tokens, 28);
        let patch = memory.context(&alice()).await.unwrap();
        let pinned = pinned(&patch);
        let shown = (number + 1).min(if pinned > 0 { 1 } else { 2 });
        assert_eq!(recent(&patch), numbers(number + 1 - shown..=number));
        assert_eq!(
            (patch.tokens, patch.omitted_turns),
            (28 * shown as u64 + pinned, (number + 1 - shown) as u64)
        );
        assert_eq!(
            pinned > 0,
            number > 1,
            "the goal is in sight once its turn is not"
        );
        assert!(!patch.over_budget);
        assert_eq!(
            memory.estimate_tokens(&alice()).await.unwrap(),
            patch.tokens
        );
    }
    // 36 tokens would not fit in beside the newest; 8 do, and a turn that does not fit hides all
    // before it.
    memory.add_turn(&alice(), sized(5, 12, 12)).await.unwrap();
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!(
        (recent(&patch), patch.tokens, patch.omitted_turns),
        (numbers(4..6), 36 + 14, 4)
    );
    memory.add_turn(&alice(), sized(6, 120, 4)).await.unwrap();
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!(
        (recent(&patch), patch.tokens, patch.omitted_turns),
        (numbers(5..7), 41 + pinned(&patch), 5)
    );
    assert_eq!(
        kept(&memory, &alice()).await,
        numbers(0..7),
        "what is out of sight is kept"
    );
    let fresh = s.another().open_with(|config| config.budget_tokens = 64);
    assert_eq!(fresh.context(&alice()).await.unwrap(), patch);
}

/// W5: a turn over the whole budget is never lost silently.
pub(super) async fn a_turn_over_the_budget_is_kept_whole(s: Fixture) {
    s.summarizer.always(Action::Fail(Failure::Unavailable));
    let memory = s.open_with(|config| config.budget_tokens = 64);
    memory.add_turn(&alice(), sized(0, 12, 12)).await.unwrap();
    let large = memory.add_turn(&alice(), sized(1, 200, 200)).await.unwrap();
    assert_eq!(large.tokens, 102);
    for memory in [&memory, &s.open_to_look(|config| config.budget_tokens = 64)] {
        let patch = memory.context(&alice()).await.unwrap();
        assert_eq!(
            (recent(&patch), patch.tokens),
            (numbers(1..2), 102 + pinned(&patch))
        );
        assert_eq!((patch.over_budget, patch.omitted_turns), (true, 1));
        assert_eq!(
            patch.recent_turns[0].turn.assistant_response.len(),
            200,
            "it is whole"
        );
    }
    memory.add_turn(&alice(), sized(2, 12, 12)).await.unwrap();
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!(
        (recent(&patch), patch.tokens),
        (numbers(2..3), 8 + pinned(&patch))
    );
    assert_eq!((patch.over_budget, patch.omitted_turns), (false, 2));
    assert_eq!(kept(&memory, &alice()).await, numbers(0..3));
}

/// W5, the other way: it is refused, loudly, and nothing is written.
pub(super) async fn a_turn_over_the_budget_is_refused_if_that_is_wanted(s: Fixture) {
    s.summarizer.always(Action::Fail(Failure::Unavailable));
    let memory = s.open_with(|config| {
        config.budget_tokens = 64;
        config.on_oversize = OnOversize::Refuse;
    });
    memory.add_turn(&alice(), sized(0, 12, 12)).await.unwrap();
    let writes = s.faults.writes();
    for _ in 0..2 {
        let refused = memory.add_turn(&alice(), sized(1, 200, 200)).await;
        assert!(
            matches!(
                refused,
                Err(ConversationError::Oversize {
                    tokens: 102,
                    budget: 64
                })
            ),
            "{refused:?}"
        );
        let refused = memory.put_turn(&alice(), sized(1, 200, 200)).await;
        assert!(
            matches!(
                refused,
                Err(ConversationError::Oversize {
                    tokens: 102,
                    budget: 64
                })
            ),
            "{refused:?}"
        );
    }
    assert_eq!(s.faults.writes(), writes);
    assert_eq!(
        recent(&memory.context(&alice()).await.unwrap()),
        numbers(0..1)
    );
    let exact = memory.add_turn(&alice(), sized(1, 124, 124)).await.unwrap();
    assert_eq!(exact.tokens, 64, "a turn that fills the budget fits");
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!(
        (recent(&patch), patch.tokens),
        (numbers(1..2), 64 + pinned(&patch))
    );
    assert!(
        patch.over_budget && patch.goal.is_some(),
        "the goal stays in sight, and the context says what it costs"
    );
}

/// The newest turn is always shown, whatever the sizes are.
///
/// Nothing else can take the context over the budget.
pub(super) async fn the_newest_turn_is_always_in_sight(s: Fixture) {
    let memory = s.open_with(|config| config.budget_tokens = 200);
    let fresh = s.another();
    let sizes = [
        4, 400, 40, 0, 1200, 8, 8, 8, 80, 80, 80, 80, 0, 2000, 16, 160, 160, 640, 4, 4, 4, 4, 320,
        40, 40, 40,
    ];
    for (number, size) in sizes.into_iter().enumerate() {
        memory
            .add_turn(&alice(), sized(number, size.max(8), size))
            .await
            .unwrap();
        let opened = fresh.open_with(|config| config.budget_tokens = 200);
        for memory in [&memory, &opened] {
            let patch = memory.context(&alice()).await.unwrap();
            let newest = recent(&patch).pop();
            assert_eq!(newest, Some(number.to_string()));
            let own = (size.max(8) / 4 + 1 + size / 4 + 1) as u64;
            assert_eq!(
                patch.over_budget,
                own + pinned(&patch) > 200,
                "turn {number}"
            );
            assert!(
                patch.tokens <= 200 || patch.recent_turns.len() == 1,
                "{} tokens",
                patch.tokens
            );
            assert!(
                patch.tokens <= own.max(200) + 200,
                "{} tokens",
                patch.tokens
            );
        }
        opened.close(super::fixture::STUCK).await;
    }
    assert_eq!(kept(&memory, &alice()).await.len(), sizes.len());
}

pub(super) async fn without_a_budget_everything_is_in_sight(s: Fixture) {
    let memory = s.open();
    for number in 0..150 {
        memory
            .add_turn(&alice(), sized(number, 396, 396))
            .await
            .unwrap();
    }
    for memory in [&memory, &s.another().open()] {
        let patch = memory.context(&alice()).await.unwrap();
        assert_eq!(
            (recent(&patch), patch.tokens, patch.omitted_turns),
            (numbers(0..150), 150 * 200, 0)
        );
    }
}

/// W14: what is shown under `rolling_summary` fits the budget too: summary, opening and turns.
pub(super) async fn a_rolling_context_fits_its_budget(s: Fixture) {
    let memory = s.open_with(|config| {
        config.budget_tokens = 300;
        config.summarizer.summary_tokens = 120;
    });
    let counter = Counter::new(memory.config().tokens).unwrap();
    for number in 0..40 {
        let size = if number % 9 == 8 { 280 } else { 40 };
        memory
            .add_turn(&alice(), sized(number, size, size))
            .await
            .unwrap();
        if number % 3 == 0 {
            fold(&memory, &alice()).await;
        }
        let patch = memory.context(&alice()).await.unwrap();
        let turns: u64 = patch
            .recent_turns
            .iter()
            .map(|recent| counter.turn(&recent.turn))
            .sum();
        let mut rest = if patch.summary.is_empty() {
            0
        } else {
            counter.count(&patch.summary)
        };
        rest += patch.goal.as_deref().map_or(0, |goal| counter.count(goal));
        assert_eq!(
            patch.tokens,
            turns + rest,
            "the tokens are those of what is shown"
        );
        assert!(
            patch.tokens <= 300,
            "turn {number}: {} tokens",
            patch.tokens
        );
        assert_eq!(recent(&patch).pop(), Some(number.to_string()));
    }
    fold(&memory, &alice()).await;
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!(
        patch.goal.as_deref().map(str::len),
        Some(40),
        "what was asked for at first stays in sight"
    );
    assert_eq!(memory.health(&alice()).await.unwrap(), Health::Healthy);
    let trace = memory.trace(&alice()).await.unwrap();
    let (covered, shown) = (trace.covers_through, trace.recent_turn_count);
    assert_eq!(
        covered + shown + trace.omitted_turns,
        40,
        "every turn is in the summary, in sight, or counted"
    );
}

/// A summary that stays over its limit is asked for three times, by halves, and then cut at the end
/// of a sentence.
///
/// Its end is kept, and everybody is told: the health, an event, the context. The next one that
/// fits ends that.
pub(super) async fn a_summary_over_its_limit_is_cut_and_told(s: Fixture) {
    let said: String = (0..400)
        .map(|number| format!("Fact {number} is known. "))
        .collect();
    s.summarizer.always(Action::Say(said));
    let memory = s.open_briefly(|config| {
        config.budget_tokens = 2000;
        config.summarizer.summary_tokens = 100;
    });
    let counter = Counter::new(memory.config().tokens).unwrap();
    add(&memory, &alice(), 0..8).await;
    fold(&memory, &alice()).await;
    let patch = memory.context(&alice()).await.unwrap();
    let tokens = counter.count(&patch.summary);
    assert!((80..=100).contains(&tokens), "{tokens} tokens");
    let sentences = patch.summary.strip_prefix(HEAD_MARK).unwrap();
    assert!(
        sentences.starts_with("Fact ") && sentences.ends_with("Fact 399 is known."),
        "{sentences}"
    );
    assert!(patch.summary_cut);
    assert_eq!(
        (recent(&patch), patch.tokens <= 2000),
        (numbers(4..8), true)
    );
    let asked: Vec<u64> = s
        .summarizer
        .calls()
        .iter()
        .map(|call| call.max_tokens)
        .collect();
    assert_eq!(asked, [100, 50, 25], "three requests for one batch");
    let trace = memory.trace(&alice()).await.unwrap();
    let why = trace.last_failure.as_deref();
    assert_eq!(
        (trace.health, why, trace.backlog_turns),
        (Health::Degraded, Some("over_limit"), 0)
    );
    let moves = s.moves_to(&alice(), Health::Degraded).await;
    assert_eq!(
        moves,
        [
            (Health::Retry, "summarizer_failed"),
            (Health::Degraded, "retries_exhausted")
        ]
    );
    let cuts = || {
        let cut = |event| match event {
            EventKind::MemorySummaryCut { tokens, limit, .. } => Some((tokens > 1000, limit)),
            _ => None,
        };
        s.events().into_iter().filter_map(cut).collect::<Vec<_>>()
    };
    super::eventually("the event", async || cuts() == [(true, 100)]).await;

    // Nothing waits, so nothing is asked, and the state stays, also for another process.
    assert_eq!(
        memory
            .summarise(&alice(), super::fixture::STUCK)
            .await
            .unwrap(),
        0
    );
    assert_eq!(s.summarizer.calls().len(), 3);
    let fresh = s.another().open();
    assert_eq!(fresh.health(&alice()).await.unwrap(), Health::Degraded);
    assert!(fresh.context(&alice()).await.unwrap().summary_cut);
    fresh.close(super::fixture::STUCK).await;

    s.summarizer.always(Action::Answer);
    add(&memory, &alice(), 8..12).await;
    fold(&memory, &alice()).await;
    super::eventually("healthy", async || {
        memory.health(&alice()).await.unwrap() == Health::Healthy
    })
    .await;
    let patch = memory.context(&alice()).await.unwrap();
    assert!(patch.summary_cut, "what is missing stays missing");
    s.moves_to(&alice(), Health::Healthy).await;
    memory.flush(&alice()).await.unwrap();
    assert!(!memory.context(&alice()).await.unwrap().summary_cut);
}

/// A request for less is answered at once: the summary is whole, and nothing happened.
pub(super) async fn a_summary_that_fits_when_asked_again_is_whole(s: Fixture) {
    s.summarizer
        .next([Action::Say("word ".repeat(400)), Action::Answer]);
    let memory = s.open_briefly(|config| {
        config.budget_tokens = 2000;
        config.summarizer.summary_tokens = 100;
    });
    add(&memory, &alice(), 0..8).await;
    fold(&memory, &alice()).await;
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!(
        (patch.summary.as_str(), patch.summary_cut),
        ("[0][1][2][3]", false)
    );
    assert_eq!(s.summarizer.calls().len(), 2);
    assert_eq!(memory.metrics().summary_failures["over_limit"], 1);
    assert_eq!(s.moves(&alice(), Health::Healthy), []);
}

/// Texts of many kinds, by number.
fn text(number: usize, repeats: usize) -> String {
    let kinds = [
        "The port is 5433, and it was moved in March. ",
        "fn main() { let x = vec!(1, 2); println!(\"{:?}\", x); }\n",
        "我们决定在三月份把数据库迁移到新的服务器上。",
        "<b>\\ \"quoted\" & more</b>\t\r\n",
        "9f86d081884c7d659a2feaa0c55ad015",
        "🎉👩\u{200d}👩\u{200d}👧\u{202e}\u{e0041} ",
    ];
    kinds[number % kinds.len()].repeat(repeats)
}

/// Returns the tokens of a rendered context, by a counter of its own.
fn rendered_tokens(counter: Counter, context: &RenderedContext) -> u64 {
    match context.format {
        Format::Json => counter.count(&serde_json::to_string(context).unwrap()),
        Format::Prompt => render::prompt(&context.patch).map_or(0, |text| counter.count(&text)),
        Format::Messages => render::messages(&context.patch)
            .iter()
            .map(|message| counter.count(&message.content) + 4)
            .sum(),
    }
}

/// The budget holds for what is rendered, with fences and rules, in every format and by every
/// counter.
///
/// Once nothing waits for a summary, no turn is left out in any format.
pub(super) async fn what_is_rendered_fits_its_budget(s: Fixture) {
    let counters: &[TokenCounter] = if cfg!(feature = "tiktoken") {
        &[TokenCounter::Chars, TokenCounter::O200kBase]
    } else {
        &[TokenCounter::Chars]
    };
    let mut random = super::random_operations::numbers(37);
    let mut below = |limit: u64| usize::try_from(random.next().unwrap() % limit).unwrap();
    for tokens in counters {
        for budget in [1200, 2500] {
            let identity = crate::Identity {
                session: format!("{tokens:?}-{budget}").into(),
                ..alice()
            };
            let memory = s.open_with(|config| {
                (config.tokens, config.budget_tokens) = (*tokens, budget);
                config.summarizer.summary_tokens = 200;
            });
            let counter = Counter::new(*tokens).unwrap();
            for number in 0..30 {
                let (user, assistant) = (below(8), below(8));
                let mut turn = turn(number);
                turn.user_message.push_str(&text(below(6), user));
                turn.assistant_response.push_str(&text(below(6), assistant));
                if below(3) == 0 {
                    turn.trajectory_digest = Some(crate::NewDigest {
                        tools_invoked: vec!["bash".to_owned(), "repo.fetch".to_owned()],
                        observations_summary: text(below(6), 3),
                        ..crate::NewDigest::default()
                    });
                    let shown = serde_json::json!({ "path": text(below(6), 2) }).to_string();
                    turn.artifacts_shown = Some(helmdeck_core::Json::parse(shown).unwrap());
                }
                memory.add_turn(&identity, turn).await.unwrap();
                if number % 7 == 6 {
                    fold(&memory, &identity).await;
                }
                for format in Format::ALL {
                    let context = memory.render(&identity, format).await.unwrap();
                    let (counted, patch) = (rendered_tokens(counter, &context), &context.patch);
                    let state =
                        format!("{tokens:?}, {format:?}, turn {number}: {counted} of {budget}");
                    assert!(
                        counted <= patch.tokens,
                        "{state}, but it says {}",
                        patch.tokens
                    );
                    assert!(patch.tokens <= budget && !patch.over_budget, "{state}");
                    assert_eq!(recent(patch).pop(), Some(number.to_string()), "{state}");
                    if s.rolls() && number % 7 == 6 {
                        assert_eq!(patch.omitted_turns, 0, "{state}: nothing waits");
                    }
                }
            }
            memory.close(super::fixture::STUCK).await;
        }
    }
}

/// What is summarised is due by its tokens too, not only by its number.
pub(super) async fn turns_that_do_not_fit_are_folded_though_they_are_few(s: Fixture) {
    let memory = s.open_with(|config| config.budget_tokens = 200);
    memory.add_turn(&alice(), sized(0, 396, 0)).await.unwrap();
    memory.add_turn(&alice(), sized(1, 396, 0)).await.unwrap();
    memory.add_turn(&alice(), turn(2)).await.unwrap();
    fold(&memory, &alice()).await;
    let patch = memory.context(&alice()).await.unwrap();
    let trace = memory.trace(&alice()).await.unwrap();
    assert!(trace.covers_through >= 1, "something was folded");
    assert_eq!((patch.omitted_turns, trace.backlog_turns), (0, 0));
    assert!(patch.tokens <= 200, "{}", patch.tokens);
    assert_eq!(super::fixture::sight(&patch), numbers(0..3));
    // The newest is never summarised, however large.
    memory.add_turn(&alice(), sized(3, 4000, 0)).await.unwrap();
    fold(&memory, &alice()).await;
    let patch = memory.context(&alice()).await.unwrap();
    assert_eq!(
        (recent(&patch).pop(), patch.over_budget),
        (Some("3".to_owned()), true)
    );
    assert_eq!(super::fixture::sight(&patch), numbers(0..4));
    add(&memory, &alice(), 4..5).await;
    fold(&memory, &alice()).await;
    assert_eq!(super::fixture::seen(&memory, &alice()).await, numbers(0..5));
}
