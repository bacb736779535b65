//! Strategies: how a conversation becomes a context, and which work they make.

pub(crate) mod due;
mod goal;
mod greeting;
#[cfg(test)]
mod tests;

pub(crate) use due::{backlog, oldest_raw, prune_due};
pub(crate) use goal::{goal_tokens, is_opening_of, opening};

use crate::config::{Config, Strategy};
use crate::hot_tier::CachedConversation;
use crate::patch::{LlmContextPatch, RecentTurn};
use crate::render::{Format, Measure};
use crate::tokens::Counter;

/// Returns the context of a conversation: the goal, the summary, and the newest turns that fit
/// beside them.
///
/// The budget holds for what is rendered in the format; without one, for the texts. Under
/// `truncation` there is no summary. Turns that are in neither stay stored; with `rolling_summary`
/// they wait to be summarised.
pub(crate) fn patch(
    config: &Config,
    counter: Counter,
    conversation: &CachedConversation,
    format: Option<Format>,
) -> LlmContextPatch {
    let (strategy, checkpoint) = (config.strategy, &conversation.state.checkpoint);
    let summary = match strategy {
        Strategy::None => {
            return LlmContextPatch {
                strategy,
                ..LlmContextPatch::default()
            };
        }
        Strategy::Truncation => "",
        Strategy::RollingSummary => checkpoint.summary.as_str(),
    };
    let budget = if config.budget_tokens == 0 {
        u64::MAX
    } else {
        config.budget_tokens
    };
    let measure = Measure { counter, format };
    let oldest = oldest_raw(
        strategy,
        &conversation.state.head,
        checkpoint.covers_through,
    );
    let newest = Newest::of(conversation, oldest, measure, budget);
    let goal = checkpoint
        .goal()
        .map(|goal| counter.clamp(goal, goal_tokens(config)).into_owned());
    let with = |count: usize, summary: &str, summary_cut: bool| {
        let recent_turns: Vec<RecentTurn> = newest.turns[..count].iter().rev().cloned().collect();
        // While its turn is shown, no opening is needed.
        let is_shown = |goal: &String| {
            checkpoint.pinned.is_none()
                && recent_turns
                    .iter()
                    .any(|recent| is_opening_of(goal, &recent.turn))
        };
        let patch = LlmContextPatch {
            strategy,
            goal: goal
                .clone()
                .filter(|goal| !goal.is_empty() && !is_shown(goal)),
            summary: summary.to_owned(),
            summary_cut,
            omitted_turns: conversation.raw_turns().saturating_sub(count as u64),
            recent_turns,
            unreadable: conversation.unreadable,
            ..LlmContextPatch::default()
        };
        LlmContextPatch {
            tokens: measure.whole(&patch, newest.tokens(count)),
            ..patch
        }
    };
    // The goal and the newest turn are shown whole. If these two exceed the budget, nothing else is
    // hidden for it.
    let mut count = newest.turns.len().min(1);
    if with(count, "", false).tokens > budget {
        return LlmContextPatch {
            over_budget: true,
            ..with(count, summary, checkpoint.summary_cut)
        };
    }
    count = newest.turns.len();
    let (mut summary, mut summary_cut) = (
        summary.to_owned(),
        checkpoint.summary_cut && !summary.is_empty(),
    );
    loop {
        let patch = with(count, &summary, summary_cut);
        let over = patch.tokens.saturating_sub(budget);
        if over == 0 {
            return patch;
        }
        if count > 1 {
            count = newest.without(count, over);
        } else {
            summary = counter
                .tail(&summary, counter.count(&summary).saturating_sub(over))
                .into_owned();
            summary_cut = true;
        }
    }
}

/// The newest turns, newest first, as many as may fit.
struct Newest {
    turns: Vec<RecentTurn>,
    /// The tokens that each adds.
    costs: Vec<u64>,
}

impl Newest {
    fn of(conversation: &CachedConversation, oldest: u64, measure: Measure, budget: u64) -> Self {
        let mut newest = Self {
            turns: Vec::new(),
            costs: Vec::new(),
        };
        let mut tokens = 0_u64;
        for kept in conversation
            .turns
            .iter()
            .rev()
            .take_while(|kept| kept.id.seq >= oldest)
        {
            let recent = RecentTurn {
                id: kept.id,
                turn: kept.turn.clone(),
            };
            let cost = measure.turn(kept, &recent);
            tokens = tokens.saturating_add(cost);
            if tokens > budget && !newest.turns.is_empty() {
                break;
            }
            newest.turns.push(recent);
            newest.costs.push(cost);
        }
        newest
    }

    /// Returns the tokens of the `count` newest turns.
    fn tokens(&self, count: usize) -> u64 {
        self.costs[..count]
            .iter()
            .fold(0, |sum, cost| sum.saturating_add(*cost))
    }

    /// Returns how many of the `count` newest turns are left once the oldest ones that free `over`
    /// tokens are gone.
    ///
    /// It is at least one.
    fn without(&self, mut count: usize, over: u64) -> usize {
        let mut freed = 0;
        while count > 1 && freed < over {
            count -= 1;
            freed += self.costs[count];
        }
        count
    }
}
