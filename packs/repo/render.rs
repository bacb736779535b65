//! Renders the highest-ranked symbols as text for a prompt, within a token budget.

use std::fmt::Write as _;

use serde::Serialize;

use super::rank::Ranks;
use super::symbols::{Definition, Symbols};
use super::walk::SourceFile;

/// Number of characters that count as one token.
///
/// A customary estimate for source text, a little high for most models.
const CHARS_PER_TOKEN: usize = 4;

/// A file of the map.
#[derive(Debug, Serialize)]
pub(super) struct MapFile<'a> {
    path: &'a str,
    language: &'static str,
    rank: f64,
    symbols: Vec<MapSymbol<'a>>,
}

/// A symbol of the map.
#[derive(Debug, Serialize)]
struct MapSymbol<'a> {
    name: &'a str,
    kind: &'static str,
    line: usize,
    signature: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<&'a str>,
}

/// The part of the map that fits.
pub(super) struct Map<'a> {
    /// The files, highest rank first.
    pub(super) files: Vec<MapFile<'a>>,
    pub(super) text: String,
    /// The text's size in tokens.
    pub(super) tokens: usize,
    /// Whether a symbol was left out.
    pub(super) cut: bool,
}

/// Takes symbols, highest rank first, as long as their lines fit into `budget` tokens.
pub(super) fn fit<'a>(
    files: &'a [(&'a SourceFile, Symbols)],
    ranks: &Ranks,
    budget: usize,
) -> Map<'a> {
    let (chosen, cut) = choose(files, ranks, budget.saturating_mul(CHARS_PER_TOKEN));
    let mut order: Vec<usize> = (0..files.len())
        .filter(|file| !chosen[*file].is_empty())
        .collect();
    // Stable, and the files come by path: ties stay in that order.
    order.sort_by(|a, b| ranks.files[*b].total_cmp(&ranks.files[*a]));

    let mut text = String::new();
    let mut mapped = Vec::with_capacity(order.len());
    for index in order {
        let (file, symbols) = &files[index];
        text.push_str(&heading(&file.path));
        let mut places = chosen[index].clone();
        places.sort_unstable();
        let symbols: Vec<&Definition> = places
            .iter()
            .map(|place| &symbols.definitions[*place])
            .collect();
        for definition in &symbols {
            text.push_str(&line(definition));
        }
        mapped.push(MapFile {
            path: &file.path,
            language: file.grammar.name,
            // Six places: enough to tell files apart, and the same bytes on every machine.
            rank: (ranks.files[index] * 1e6).round() / 1e6,
            symbols: symbols.into_iter().map(symbol).collect(),
        });
    }
    let tokens = text.chars().count().div_ceil(CHARS_PER_TOKEN);
    Map {
        files: mapped,
        text,
        tokens,
        cut,
    }
}

/// Returns the places of the chosen definitions per file, and whether any was left out.
fn choose(
    files: &[(&SourceFile, Symbols)],
    ranks: &Ranks,
    mut left: usize,
) -> (Vec<Vec<usize>>, bool) {
    let mut all: Vec<(usize, usize)> = ranks
        .definitions
        .iter()
        .enumerate()
        .flat_map(|(file, definitions)| (0..definitions.len()).map(move |place| (file, place)))
        .collect();
    let rank = |(file, place): &(usize, usize)| ranks.definitions[*file][*place];
    all.sort_by(|a, b| rank(b).total_cmp(&rank(a)));

    let mut chosen = vec![Vec::new(); files.len()];
    let mut cut = false;
    for (file, place) in all {
        let (source, symbols) = &files[file];
        let mut cost = line(&symbols.definitions[place]).chars().count();
        if chosen[file].is_empty() {
            cost += heading(&source.path).chars().count();
        }
        if cost <= left {
            left -= cost;
            chosen[file].push(place);
        } else {
            cut = true;
        }
    }
    (chosen, cut)
}

/// A file's name may hold line breaks; in a prompt they would let it pose as something else.
fn heading(path: &str) -> String {
    let mut heading: String = path
        .chars()
        .map(|character| {
            if character.is_control() {
                '?'
            } else {
                character
            }
        })
        .collect();
    heading.push('\n');
    heading
}

fn line(definition: &Definition) -> String {
    let mut line = format!("{:>6}: {}", definition.line, definition.signature);
    if let Some(parent) = &definition.parent {
        // Writing to a string cannot fail.
        let _ = write!(line, "  [{parent}]");
    }
    line.push('\n');
    line
}

fn symbol(definition: &Definition) -> MapSymbol<'_> {
    MapSymbol {
        name: &definition.name,
        kind: definition.kind,
        line: definition.line,
        signature: &definition.signature,
        parent: definition.parent.as_deref(),
    }
}
