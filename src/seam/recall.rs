//! Recall: what memory knows of where a caller works, within a budget.

mod gather;
mod pack;

use serde::Serialize;

use crate::config::SeamConfig;
use crate::context::Context;
use crate::error::Warning;
use crate::ground::Ground;
use crate::phase::Phase;
use crate::text::one_line;
use crate::tokens::quarters;

/// The largest budget, in tokens: what is larger counts as this.
const MOST_TOKENS: usize = 1_000_000;

/// What memory knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Recall {
    /// It, as Markdown: a header of two lines, then the notes. Empty if there are none.
    pub text: String,
    /// How many notes it holds.
    pub entries: usize,
    /// The notes that had no room, by what they are called.
    pub omitted: Vec<String>,
    /// What could not be read.
    pub warnings: Vec<Warning>,
}

impl Recall {
    pub(crate) fn of(
        mut ground: Ground<'_>,
        config: &SeamConfig,
        context: &Context,
        query: Option<&str>,
        limit: Option<usize>,
    ) -> Self {
        let phase = Phase::of(context.phase.as_deref().unwrap_or_default());
        let positive = |tokens: usize| Some(tokens).filter(|tokens| *tokens > 0);
        let set = || config.budgets.get(&phase).copied().and_then(positive);
        let budget = limit.and_then(positive).or_else(set).unwrap_or(phase.budget()).min(MOST_TOKENS);
        ground.warn_of_slug();
        let sources = gather::gather(&mut ground, config, phase, query);
        let name = ground.name().map_or_else(|| "(unknown)".to_owned(), ToString::to_string);
        let header = |entries: usize| {
            format!(
                "# Auto-context recall — phase: {phase}, project: {name}\n(budget: ~{budget} tokens, entries: {entries})\n\n"
            )
        };
        let all = budget.saturating_mul(4);
        // The number of entries has fewer digits than this in the end.
        let room = all.saturating_sub(quarters(&header(9_999)));
        // Something is kept to say what was left out.
        let kept = (all / 20).min(4 * 64);
        let packed = pack::pack(&ground, sources, room.saturating_sub(kept), config.kept_percent);
        let mut warnings = std::mem::take(&mut ground.warnings);
        warnings.extend(packed.warning);
        let entries = packed.parts.len();
        if entries == 0 {
            return Self { omitted: packed.omitted, warnings, ..Self::default() };
        }
        let mut text = header(entries);
        text.push_str(&packed.parts.join("\n"));
        text.push('\n');
        // That last line feed, too.
        let left = all.saturating_sub(quarters(&text));
        if let Some(line) = omission(&packed.omitted, left) {
            text.push_str(&line);
        }
        Self { text, entries, omitted: packed.omitted, warnings }
    }
}

/// Returns the line that names what was left out: as many as have room.
fn omission(omitted: &[String], room: usize) -> Option<String> {
    const MOST: usize = 20;
    if omitted.is_empty() {
        return None;
    }
    let count = omitted.len();
    let line = |named: usize| {
        let names: Vec<String> = omitted.iter().take(named).map(|name| one_line(name)).collect();
        let more = if named < count { format!(" and {} more", count - named) } else { String::new() };
        if named == 0 { format!("(left out: {count})\n") } else { format!("(left out: {}{more})\n", names.join("; ")) }
    };
    (0..=MOST.min(count)).rev().map(line).find(|line| quarters(line) <= room)
}
