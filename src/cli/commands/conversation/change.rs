//! `helmdeck conversation delete`, `pin`, `flush`, `forget` and `fold`.

use helmdeck_core::text::count;
use std::time::Duration;

use helmdeck_conversation::SummaryStatus;
use serde_json::json;

use super::context::{CommandContext, identity, shown};
use crate::args::ConversationIdArgs;
use crate::exit::{Exit, Failure, Result};
use crate::signals::Stop;

/// Deletes a turn.
///
/// # Errors
/// Exit 3 if the turn is not found.
pub(super) async fn delete(
    on: &CommandContext<'_>,
    which: &ConversationIdArgs,
    key: &str,
    yes: bool,
) -> Result<()> {
    let identity = identity(which);
    // A missing turn fails before the question.
    on.memory.get_turn(&identity, key).await?;
    on.setup
        .output
        .confirm(&format!("remove turn {key} of {}", shown(&identity)), yes)?;
    let deleted = on.memory.delete_turn(&identity, key).await?;
    on.print(&deleted, || {
        let left = count(deleted.remaining_turns, "turn");
        let summary = if deleted.summary_rebuilt {
            "; it was in the summary, which is made anew"
        } else {
            ""
        };
        format!("deleted {key}, {left} left{summary}")
    })
}

/// Pins, shows or clears the goal.
///
/// # Errors
/// Exit 1 for a goal that is refused.
pub(super) async fn pin(
    on: &CommandContext<'_>,
    which: &ConversationIdArgs,
    goal: Option<&str>,
    clear: bool,
) -> Result<()> {
    let identity = identity(which);
    let goal = if goal.is_some() || clear {
        on.memory.pin(&identity, goal).await?
    } else {
        on.memory.goal(&identity).await?
    };
    on.print(&goal, || match (&goal.goal, goal.pinned) {
        (Some(text), true) => format!("pinned: {text}"),
        (Some(text), false) => format!("asked first: {text}"),
        (None, _) => format!("{} has no goal", shown(&identity)),
    })
}

/// Deletes all turns and the summary.
///
/// # Errors
/// A usage failure without a confirmation.
pub(super) async fn flush(
    on: &CommandContext<'_>,
    which: &ConversationIdArgs,
    yes: bool,
) -> Result<()> {
    let identity = identity(which);
    let held = on.held(&identity).await?;
    on.setup.output.confirm(&format!("remove {held}"), yes)?;
    on.memory.flush(&identity).await?;
    on.print(&json!({"flushed": true}), || {
        format!("flushed {}: {held}", shown(&identity))
    })
}

/// Removes a conversation.
///
/// # Errors
/// A usage failure without a confirmation.
pub(super) async fn forget(
    on: &CommandContext<'_>,
    which: &ConversationIdArgs,
    yes: bool,
) -> Result<()> {
    let identity = identity(which);
    let held = on.held(&identity).await?;
    on.setup
        .output
        .confirm(&format!("remove {held}, and everything else about it"), yes)?;
    let turns = on.memory.forget(&identity).await?;
    on.print(&json!({"removed_turns": turns}), || {
        let turns = count(turns, "turn");
        format!("forgot {}: {turns}", shown(&identity))
    })
}

/// Summarises the turns that are due.
///
/// # Errors
/// Exit 1 if turns still wait for a summary.
pub(super) async fn fold(
    on: &CommandContext<'_>,
    which: &ConversationIdArgs,
    within: Duration,
) -> Result<()> {
    let identity = identity(which);
    let mut stop = Stop::catch()?;
    let waiting = tokio::select! {
        waiting = on.memory.summarise(&identity, within) => waiting?,
        () = stop.wait() => return Err(Failure::new(Exit::Failed, "interrupted; what was summed up is kept")),
    };
    let folding = SummaryStatus {
        backlog_turns: waiting,
        ..on.memory.trace(&identity).await?.into()
    };
    let name = shown(&identity);
    if on.setup.output.json || waiting == 0 {
        on.print(&folding, || {
            format!("nothing of {name} waits for a summary")
        })?;
    }
    if waiting == 0 {
        return Ok(());
    }
    if on.setup.output.json {
        return Err(Failure::silent(Exit::Failed));
    }
    let turns = count(waiting, "turn");
    let why = folding
        .last_failure
        .map(|why| format!(" ({why})"))
        .unwrap_or_default();
    Err(Failure::new(
        Exit::Failed,
        format!(
            "{turns} of {name} still to be summed up{why}; the conversation is {}",
            folding.health
        ),
    ))
}
