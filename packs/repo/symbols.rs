//! Parses one source file: its definitions and the names it uses.
//!
//! Never trusts the file: it may be huge, binary, garbage, or gone.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;

use helmdeck_core::text::truncate;
use tree_sitter::{Node, ParseOptions, Parser, QueryCursor, QueryCursorOptions, StreamingIterator};

use super::languages::{Grammar, IGNORED, Ready};

/// The largest file that is read, in bytes.
///
/// Hand-written source is far smaller; a larger file was generated.
pub(super) const MAX_FILE_BYTES: u64 = 512 << 10;

/// Number of bytes to search for a zero byte, which no source text has. The same rule as git's.
const BINARY_SNIFF_BYTES: usize = 8 << 10;

/// A file whose lines are longer than this on average, in bytes, was minified: its names say
/// nothing.
const MAX_MEAN_LINE_BYTES: usize = 500;

/// Maximum length of a stored name, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// Maximum length of a stored signature, in characters.
const MAX_SIGNATURE_CHARS: usize = 160;

/// Maximum number of unfinished matches of a query, so that no file makes it slow.
const MATCH_LIMIT: u32 = 4096;

/// Symbols of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Symbols {
    /// Definitions, in the order of the text.
    pub(super) definitions: Vec<Definition>,
    /// The names it uses, with how often.
    pub(super) references: BTreeMap<Box<str>, u32>,
}

/// A named thing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Definition {
    pub(super) name: Box<str>,
    /// Kind: `function`, `struct`, ...
    pub(super) kind: &'static str,
    /// The line of its name, from 1.
    pub(super) line: usize,
    /// Its declaration in one line, without the body.
    pub(super) signature: String,
    /// The type or class that it belongs to.
    pub(super) parent: Option<String>,
}

/// Why a file has no symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Skip {
    /// Larger than [`MAX_FILE_BYTES`].
    TooLarge,
    /// Binary, or minified.
    NotText,
    /// Gone, or not ours to read.
    Unreadable,
    /// The caller no longer waits.
    Stopped,
}

/// Reads a file's symbols. Parsing ends early, with [`Skip::Stopped`], when `stopped` says so.
pub(super) fn read(
    file: io::Result<File>,
    grammar: &'static Grammar,
    stopped: &dyn Fn() -> bool,
) -> Result<Symbols, Skip> {
    let text = text(file)?;
    let ready = grammar.ready().ok_or(Skip::Unreadable)?;
    parse(&text, ready, stopped).ok_or(Skip::Stopped)
}

fn text(file: io::Result<File>) -> Result<Vec<u8>, Skip> {
    let mut text = Vec::new();
    let read = file.and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text));
    match read {
        Err(_) => Err(Skip::Unreadable),
        Ok(read) if read as u64 > MAX_FILE_BYTES => Err(Skip::TooLarge),
        Ok(_) if text[..text.len().min(BINARY_SNIFF_BYTES)].contains(&0) => Err(Skip::NotText),
        Ok(read)
            if read / (1 + text.iter().filter(|byte| **byte == b'\n').count())
                > MAX_MEAN_LINE_BYTES =>
        {
            Err(Skip::NotText)
        }
        Ok(_) => Ok(text),
    }
}

fn parse(text: &[u8], ready: &'static Ready, stopped: &dyn Fn() -> bool) -> Option<Symbols> {
    let go_on = || {
        if stopped() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let mut parser = Parser::new();
    parser.set_language(&ready.language).ok()?;
    let mut parsing = |_: &_| go_on();
    let tree = parser.parse_with_options(
        &mut |at, _| text.get(at..).unwrap_or_default(),
        None,
        Some(ParseOptions::new().progress_callback(&mut parsing)),
    )?;

    let mut cursor = QueryCursor::new();
    cursor.set_match_limit(MATCH_LIMIT);
    let mut matching = |_: &_| go_on();
    let mut matches = cursor.matches_with_options(
        &ready.query,
        tree.root_node(),
        text,
        QueryCursorOptions::new().progress_callback(&mut matching),
    );
    // Both by the place of the name: several patterns may match one, and a definition's name is no
    // use of it.
    let mut defined: BTreeMap<usize, (usize, Definition)> = BTreeMap::new();
    let mut used: BTreeMap<usize, &str> = BTreeMap::new();
    while let Some(found) = matches.next() {
        let by = |index| {
            found
                .captures
                .iter()
                .find(|capture| capture.index == index)
                .map(|capture| capture.node)
        };
        if let Some(node) = by(ready.reference) {
            if let Some(name) = name_of(node, text) {
                used.insert(node.start_byte(), name);
            }
            continue;
        }
        let whole = found
            .captures
            .iter()
            .find_map(|capture| Some((capture.node, ready.kinds[capture.index as usize]?)));
        let (Some((node, kind)), Some(name)) = (whole, by(ready.name)) else {
            continue;
        };
        let Some(name_text) = name_of(name, text) else {
            continue;
        };
        if defined
            .get(&name.start_byte())
            .is_none_or(|(pattern, _)| found.pattern_index < *pattern)
        {
            defined.insert(
                name.start_byte(),
                (
                    found.pattern_index,
                    definition(node, name, name_text, kind, text),
                ),
            );
        }
    }
    if stopped() {
        return None;
    }
    let mut references = BTreeMap::new();
    for (_, name) in used.into_iter().filter(|(at, _)| !defined.contains_key(at)) {
        *references.entry(Box::from(name)).or_insert(0) += 1;
    }
    let kept = defined
        .into_values()
        .map(|(_, definition)| definition)
        .filter(|definition| definition.kind != IGNORED);
    Some(Symbols {
        definitions: kept.collect(),
        references,
    })
}

fn name_of<'text>(node: Node<'_>, text: &'text [u8]) -> Option<&'text str> {
    let name = std::str::from_utf8(text.get(node.byte_range())?).ok()?;
    (!name.is_empty() && name.len() <= MAX_NAME_BYTES && name != "_").then_some(name)
}

fn definition(
    node: Node<'_>,
    name: Node<'_>,
    name_text: &str,
    kind: &'static str,
    text: &[u8],
) -> Definition {
    Definition {
        name: name_text.into(),
        kind,
        line: name.start_position().row + 1,
        signature: signature(node, text),
        parent: parent(node, text),
    }
}

/// The text before the body, or the first line of what has no body, on one line.
fn signature(node: Node<'_>, text: &[u8]) -> String {
    let body = node
        .child_by_field_name("body")
        .or_else(|| {
            node.child_by_field_name("value")?
                .child_by_field_name("body")
        })
        .or_else(|| {
            node.child_by_field_name("right")?
                .child_by_field_name("body")
        });
    let end = body.map_or_else(|| node.end_byte(), |body| body.start_byte());
    let declaration = String::from_utf8_lossy(text.get(node.start_byte()..end).unwrap_or_default());
    let declaration = if body.is_some() {
        &*declaration
    } else {
        declaration.lines().next().unwrap_or_default()
    };
    one_line(declaration)
}

/// Joins a text's words with single spaces, removes the start of a body, and shortens it.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    // A line comment would swallow what follows it once the lines are joined.
    for word in text
        .lines()
        .flat_map(|line| line.split(" //").next())
        .flat_map(str::split_whitespace)
    {
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().filter(|character| !character.is_control()));
        if line.len() > MAX_SIGNATURE_CHARS * 4 {
            break;
        }
    }
    let line = line
        .trim_end_matches(['{', ':', '=', ';', ' '])
        .trim_end_matches(" =>");
    truncate(line, MAX_SIGNATURE_CHARS).into_owned()
}

/// The type or class around a definition.
fn parent(node: Node<'_>, text: &[u8]) -> Option<String> {
    let mut above = node.parent();
    while let Some(node) = above {
        let field = match node.kind() {
            "impl_item" => "type",
            "trait_item"
            | "class"
            | "class_definition"
            | "class_declaration"
            | "abstract_class_declaration"
            | "interface_declaration"
            | "enum_declaration"
            | "record_declaration" => "name",
            _ => {
                above = node.parent();
                continue;
            }
        };
        let name = node.child_by_field_name(field)?;
        return Some(one_line(&String::from_utf8_lossy(
            text.get(name.byte_range())?,
        )));
    }
    None
}

#[cfg(test)]
mod tests;
