//! `helmdeck conversation context`, `health`, `trace`, `list` and `show`.
//!
//! They are read-only and create no store.

use helmdeck_conversation::{
    ConversationFilter, ConversationInfo, ConversationPage, ConversationTurn, Format, Health,
    LlmContextPatch, Strategy, SummaryStatus, Trace, TurnFilter, TurnId, TurnInfo, TurnPage,
    render,
};

use super::context::{CommandContext, identity, seconds, shown};
use crate::args::{ContextFormat, ConversationIdArgs, ConversationListArgs};
use crate::exit::{Failure, Result};
use crate::output::size;
use crate::table::table;
use helmdeck_core::text::columns;

/// Page size of a list.
const PAGE: usize = 200;

/// Prints the context for the next model call.
///
/// # Errors
/// Exit 8 if the conversation does not open.
pub(super) async fn context(
    on: &CommandContext<'_>,
    which: &ConversationIdArgs,
    format: Option<ContextFormat>,
) -> Result<()> {
    let format = match format {
        None => Format::Json,
        Some(ContextFormat::Prompt) => Format::Prompt,
        Some(ContextFormat::Messages) => Format::Messages,
    };
    let context = on.memory.render(&identity(which), format).await?;
    on.print(&context, || match format {
        Format::Json => text(&context.patch),
        Format::Prompt => render::prompt(&context.patch).unwrap_or_default(),
        Format::Messages => serde_json::json!(render::messages(&context.patch)).to_string(),
    })
}

fn text(patch: &LlmContextPatch) -> String {
    let mut text = format!("{}, {} tokens", patch.strategy, patch.tokens);
    if patch.summary_cut {
        text.push_str(", summary cut");
    }
    for (count, what) in [
        (patch.omitted_turns, "left out"),
        (patch.unreadable, "unreadable"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    text.push_str(if patch.over_budget {
        ", over the budget\n"
    } else {
        "\n"
    });
    for (name, part) in [
        ("goal", patch.goal.as_deref().unwrap_or_default()),
        ("summary", &patch.summary),
    ] {
        if !part.is_empty() {
            text.push_str(&format!("\n{name}:\n{}\n", indented(part)));
        }
    }
    for recent in &patch.recent_turns {
        text.push_str(&format!("\n{}", turn_text(recent.id, &recent.turn)));
    }
    text
}

/// Returns a turn, with its key above it.
fn turn_text(key: TurnId, turn: &ConversationTurn) -> String {
    format!("{key}  {}\n{}", turn.timestamp.as_str(), said(turn))
}

/// Returns the texts of a turn. Every line is indented, so that no text looks like program output.
fn said(turn: &ConversationTurn) -> String {
    let mut text = String::new();
    for (who, words) in [
        ("user", &turn.user_message),
        ("assistant", &turn.assistant_response),
    ] {
        if !words.is_empty() {
            text.push_str(&format!(
                "  {who}:\n  {}\n",
                indented(words).replace('\n', "\n  ")
            ));
        }
    }
    text
}

fn indented(text: &str) -> String {
    format!("  {}", text.trim_end_matches('\n').replace('\n', "\n  "))
}

/// Prints the health of a conversation's summary.
///
/// # Errors
/// As [`context`].
pub(super) async fn health(on: &CommandContext<'_>, which: &ConversationIdArgs) -> Result<()> {
    let folding = SummaryStatus::from(on.memory.trace(&identity(which)).await?);
    on.print(&folding, || match (&folding.last_failure, folding.health) {
        (Some(why), Health::Retry | Health::Degraded | Health::Recovering) => {
            format!(
                "{}: {} failures in a row, the last one {why}",
                folding.health, folding.failures
            )
        }
        _ => folding.health.to_string(),
    })
}

/// Prints the trace of a conversation: its summary and its turns.
///
/// # Errors
/// As [`context`].
pub(super) async fn trace(on: &CommandContext<'_>, which: &ConversationIdArgs) -> Result<()> {
    let trace = on.memory.trace(&identity(which)).await?;
    on.print(&trace, || trace_text(&trace))
}

fn trace_text(trace: &Trace) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut fact = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    fact("strategy", trace.strategy.to_string());
    fact("health", trace.health.to_string());
    fact(
        "kept turns",
        format!("{}, {}", trace.kept_turns, size(trace.kept_bytes)),
    );
    fact("in sight", trace.recent_turn_count.to_string());
    fact("left out", trace.omitted_turns.to_string());
    fact("tokens", trace.estimated_tokens.to_string());
    fact("generation", trace.generation.to_string());
    if trace.strategy == Strategy::RollingSummary {
        fact("to be summed up", trace.backlog_turns.to_string());
        fact("summed up through", trace.covers_through.to_string());
        fact("failures", trace.failures.to_string());
        fact(
            "last failure",
            trace.last_failure.clone().unwrap_or_else(|| "-".to_owned()),
        );
    }
    let mut text = columns(&rows);
    if !trace.summary.is_empty() {
        text.push_str(&format!("\nsummary:\n{}\n", indented(&trace.summary)));
    }
    text
}

/// Lists conversations, or the turns of one.
///
/// # Errors
/// A usage failure for an `--after` that is not the end of a list.
pub(super) async fn list(on: &CommandContext<'_>, arguments: &ConversationListArgs) -> Result<()> {
    match &arguments.session {
        Some(_) => turns(on, arguments).await,
        None => conversations(on, arguments).await,
    }
}

async fn turns(on: &CommandContext<'_>, arguments: &ConversationListArgs) -> Result<()> {
    let whose = &arguments.whose;
    let whose = crate::args::WhoseArgs {
        subject: whose.subject.clone(),
        tenant: whose.tenant.clone(),
    };
    let session = arguments.session.clone().unwrap_or_default();
    let identity = identity(&ConversationIdArgs { session, whose });
    let mut after = match &arguments.after {
        None => None,
        Some(text) => Some(
            TurnId::parse(text)
                .ok_or_else(|| Failure::usage(format!("{text:?} is not the key of a turn")))?,
        ),
    };
    let mut all = TurnPage::default();
    loop {
        let limit = PAGE.min(arguments.limit - all.items.len());
        let filter = TurnFilter {
            content_search: arguments.search.clone(),
            with_texts: arguments.texts,
            limit: Some(limit),
            after,
            ..TurnFilter::default()
        };
        let page = on.memory.list_turns(&identity, &filter).await?;
        after = page.next;
        all.items.extend(page.items);
        (all.total, all.next) = (page.total, page.next);
        all.unreadable += page.unreadable;
        if after.is_none() || all.items.len() >= arguments.limit {
            break;
        }
    }
    on.print(&all, || turns_text(&all, &shown(&identity)))
}

fn turns_text(page: &TurnPage, name: &str) -> String {
    if page.items.is_empty() && page.unreadable == 0 {
        return format!("no turn of {name} is listed, of {}", page.total);
    }
    let mut text = if page.items.iter().any(|item| item.value.is_some()) {
        let turn = |item: &TurnInfo| {
            item.value
                .as_deref()
                .map(|turn| turn_text(item.key, turn))
                .unwrap_or_default()
        };
        page.items.iter().map(turn).collect::<Vec<_>>().join("\n")
    } else {
        let rows = page.items.iter().map(|item: &TurnInfo| {
            [
                item.key.to_string(),
                item.timestamp.clone(),
                size(item.size_bytes),
                item.tokens.to_string(),
                if item.folded { "yes" } else { "no" }.to_owned(),
            ]
        });
        table(["KEY", "WHEN", "SIZE", "TOKENS", "IN SUMMARY"], rows)
    };
    if page.unreadable > 0 {
        text.push_str(&format!("unreadable: {}\n", page.unreadable));
    }
    if let Some(next) = &page.next {
        text.push_str(&format!("more: --after {next}\n"));
    }
    text
}

async fn conversations(on: &CommandContext<'_>, arguments: &ConversationListArgs) -> Result<()> {
    let mut all = ConversationPage {
        next: arguments.after.clone(),
        ..ConversationPage::default()
    };
    loop {
        let filter = ConversationFilter {
            tenant: arguments.whose.tenant.clone(),
            user: arguments.whose.subject.clone(),
            limit: Some(PAGE.min(arguments.limit - all.sessions.len())),
            after: all.next.take(),
        };
        let page = on.memory.list_conversations(&filter).await?;
        let sessions = std::mem::take(&mut all.sessions);
        all = page;
        all.sessions.splice(0..0, sessions);
        if all.next.is_none() || all.sessions.len() >= arguments.limit {
            break;
        }
    }
    on.print(&all, || conversations_text(&all))
}

fn conversations_text(page: &ConversationPage) -> String {
    if page.sessions.is_empty() {
        return "there are no conversations".to_owned();
    }
    let rows = page.sessions.iter().map(|session: &ConversationInfo| {
        let end = session.expires_at.map(helmdeck_core::Timestamp::to_rfc3339);
        [
            session.session.clone(),
            format!("{}/{}", session.tenant, session.user),
            session.turns.to_string(),
            size(session.bytes),
            format!(
                "{}Z",
                seconds(&session.updated_at.to_rfc3339()).trim_end_matches('Z')
            ),
            end.map_or_else(
                || "never".to_owned(),
                |end| format!("{}Z", seconds(&end).trim_end_matches('Z')),
            ),
            session.health.to_string(),
        ]
    });
    let mut text = table(
        [
            "SESSION", "CALLER", "TURNS", "SIZE", "CHANGED", "ENDS", "HEALTH",
        ],
        rows,
    );
    if let Some(next) = &page.next {
        text.push_str(&format!("more: --after '{next}'\n"));
    }
    text
}

/// Shows a turn.
///
/// # Errors
/// Exit 3 if the turn is not found.
pub(super) async fn show(
    on: &CommandContext<'_>,
    which: &ConversationIdArgs,
    key: &str,
) -> Result<()> {
    let detail = on.memory.get_turn(&identity(which), key).await?;
    on.print(&detail, || {
        let item = &detail.item;
        let mut rows: Vec<Vec<String>> = Vec::new();
        let mut fact = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
        fact("turn", item.key.to_string());
        fact("when", item.timestamp.clone());
        fact("stored", item.created_at.to_rfc3339());
        fact(
            "size",
            format!("{}, {} tokens", size(item.size_bytes), item.tokens),
        );
        fact(
            "in summary",
            if item.folded { "yes" } else { "no" }.to_owned(),
        );
        if let Some(digest) = &detail.turn.trajectory_digest {
            fact(
                "tools",
                digest
                    .tools_invoked
                    .iter()
                    .flatten()
                    .cloned()
                    .collect::<Vec<_>>()
                    .join(", "),
            );
        }
        format!("{}\n{}", columns(&rows), said(&detail.turn))
    })
}
