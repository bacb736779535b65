//! Recall: what memory knows of where a caller works, within a budget.

mod body;
mod filter;
mod gather;
mod pack;
mod trouble;

use serde::Serialize;

use crate::config::SeamConfig;
use crate::context::Context;
use crate::error::Warning;
use crate::phase::Phase;
use crate::resolved::Resolved;
use crate::text::quoted;
use crate::tokens::quarters;

/// Maximum budget, in tokens; a larger one counts as this.
const MOST_TOKENS: usize = 1_000_000;

/// Minimum room for the count of omitted notes, in quarters of a token.
const LEAST_KEPT: usize = 24;

/// Recalled memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Recall {
    /// Recalled memory as Markdown: a header of two lines, then the notes. Empty without notes.
    pub text: String,
    /// Number of notes in it.
    pub entries: usize,
    /// The first of the notes that had no room, by what they are called: at most 20, and fewer if
    /// their names are long for the budget.
    pub omitted: Vec<String>,
    /// Number of notes without room.
    pub omitted_count: usize,
    /// Warnings about what could not be read, and whether there are notes and none has room.
    pub warnings: Vec<Warning>,
}

impl Recall {
    pub(crate) fn of(
        mut resolved: Resolved<'_>,
        config: &SeamConfig,
        context: &Context,
        query: Option<&str>,
        limit: Option<usize>,
    ) -> Self {
        let phase = Phase::of(context.phase.as_deref().unwrap_or_default());
        let positive = |tokens: usize| Some(tokens).filter(|tokens| *tokens > 0);
        let set = || config.budgets.get(&phase).copied().and_then(positive);
        let budget = limit
            .and_then(positive)
            .or_else(set)
            .unwrap_or(phase.budget())
            .min(MOST_TOKENS);
        resolved.warn_of_slug();
        if let Some((word, meant)) = context
            .phase
            .as_deref()
            .and_then(|word| Some((word, Phase::meant(word)?)))
        {
            let why = format!(
                "{} is no phase, and counts as {phase}; for that phase write {meant}",
                quoted(word)
            );
            resolved.warnings.push(Warning::unknown_phase(why));
        }
        let name = resolved
            .name()
            .map_or_else(|| "(unknown)".to_owned(), ToString::to_string);
        let header = |entries: usize| {
            format!(
                "# Auto-context recall — phase: {phase}, project: {name}\n(budget: ~{budget} tokens, entries: {entries})\n\n"
            )
        };
        let all = budget.saturating_mul(4);
        // The number of entries has fewer digits than this in the end.
        let room = all.saturating_sub(quarters(&header(9_999)));
        // Something is kept to say what was left out.
        let room = room.saturating_sub((all / 20).clamp(LEAST_KEPT, 4 * 64));
        let sources = gather::gather(&mut resolved, config, phase, query, room >= pack::SMALLEST);
        let packed = pack::pack(&resolved, sources, all, room, config.kept_percent);
        let mut warnings = std::mem::take(&mut resolved.warnings);
        warnings.extend(packed.warning);
        let (entries, omitted_count) = (packed.parts.len(), packed.omitted_count);
        if entries == 0 && omitted_count > 0 {
            let first = packed
                .omitted
                .first()
                .map(String::as_str)
                .unwrap_or_default();
            warnings.push(Warning::nothing_fits(format!(
                "notes: {omitted_count}, the first is {first}; none has room in a budget of {budget} tokens"
            )));
        }
        let mut recall = Self {
            omitted: few(packed.omitted, all),
            omitted_count,
            warnings,
            ..Self::default()
        };
        if entries > 0 {
            recall.entries = entries;
            recall.text = header(entries);
            recall.text.push_str(&packed.parts.join("\n"));
            recall.text.push('\n');
            // That last line feed, too.
            let left = all.saturating_sub(quarters(&recall.text));
            recall
                .text
                .extend(omission(&recall.omitted, omitted_count, left));
        }
        recall
    }
}

/// Returns as many of the names as become a budget, in quarters of a token.
fn few(names: Vec<String>, budget: usize) -> Vec<String> {
    let mut left = budget / 8 + 512;
    let fits = |name: &String| {
        let fits = name.len() < left;
        left = left.saturating_sub(name.len());
        fits
    };
    names.into_iter().take_while(fits).collect()
}

/// Returns the line that says how many notes were left out, and names as many as have room.
fn omission(names: &[String], count: usize, room: usize) -> Option<String> {
    if count == 0 {
        return None;
    }
    let line = |named: usize| {
        let more = if named < count {
            format!(" and {} more", count - named)
        } else {
            String::new()
        };
        if named == 0 {
            format!("(left out: {count})\n")
        } else {
            format!("(left out: {}{more})\n", names[..named].join("; "))
        }
    };
    (0..=names.len())
        .rev()
        .map(line)
        .find(|line| quarters(line) <= room)
}
