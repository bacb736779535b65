//! The languages that `repo.map` reads: their file endings, grammars and queries.
//!
//! To add one: a line in [`GRAMMARS`], a query in `queries/`, and its name in `map.toml`.

use std::path::Path;
use std::sync::OnceLock;

use tree_sitter::{Language, Query};

/// A grammar and its query.
pub(super) struct Grammar {
    /// The language's name in input and output.
    pub(super) name: &'static str,
    /// Languages of one family see each other's names.
    pub(super) family: &'static str,
    endings: &'static [&'static str],
    language: fn() -> Language,
    query: &'static [&'static str],
    ready: OnceLock<Option<Ready>>,
}

/// A loaded grammar with its compiled query.
///
/// Compiling costs milliseconds and is done once per process.
pub(super) struct Ready {
    pub(super) language: Language,
    pub(super) query: Query,
    /// The index of the capture `@name`.
    pub(super) name: u32,
    /// The index of the capture `@reference`.
    pub(super) reference: u32,
    /// Kind of symbol of each capture; `None` for captures that only a predicate uses.
    pub(super) kinds: Vec<Option<&'static str>>,
}

/// The kind of definitions that are left out.
pub(super) const IGNORED: &str = "ignored";

const ECMASCRIPT: &str = include_str!("queries/ecmascript.scm");
const TYPESCRIPT: &str = include_str!("queries/typescript.scm");

/// Every grammar.
pub(super) static GRAMMARS: [Grammar; 8] = [
    grammar(
        "c",
        "c",
        &["c", "h"],
        || tree_sitter_c::LANGUAGE.into(),
        &[include_str!("queries/c.scm")],
    ),
    grammar(
        "go",
        "go",
        &["go"],
        || tree_sitter_go::LANGUAGE.into(),
        &[include_str!("queries/go.scm")],
    ),
    grammar(
        "java",
        "java",
        &["java"],
        || tree_sitter_java::LANGUAGE.into(),
        &[include_str!("queries/java.scm")],
    ),
    grammar(
        "javascript",
        "ecmascript",
        &["js", "jsx", "mjs", "cjs"],
        || tree_sitter_javascript::LANGUAGE.into(),
        &[ECMASCRIPT, include_str!("queries/javascript.scm")],
    ),
    grammar(
        "python",
        "python",
        &["py", "pyi"],
        || tree_sitter_python::LANGUAGE.into(),
        &[include_str!("queries/python.scm")],
    ),
    grammar(
        "rust",
        "rust",
        &["rs"],
        || tree_sitter_rust::LANGUAGE.into(),
        &[include_str!("queries/rust.scm")],
    ),
    grammar(
        "typescript",
        "ecmascript",
        &["ts", "mts", "cts"],
        || tree_sitter_typescript::LANGUAGE_TYPESCRIPT.into(),
        &[ECMASCRIPT, TYPESCRIPT],
    ),
    grammar(
        "typescript",
        "ecmascript",
        &["tsx"],
        || tree_sitter_typescript::LANGUAGE_TSX.into(),
        &[ECMASCRIPT, TYPESCRIPT],
    ),
];

const fn grammar(
    name: &'static str,
    family: &'static str,
    endings: &'static [&'static str],
    language: fn() -> Language,
    query: &'static [&'static str],
) -> Grammar {
    Grammar {
        name,
        family,
        endings,
        language,
        query,
        ready: OnceLock::new(),
    }
}

/// Returns the grammar for a file, by its ending.
pub(super) fn of(file: &Path) -> Option<&'static Grammar> {
    let ending = file.extension()?.to_str()?.to_ascii_lowercase();
    GRAMMARS
        .iter()
        .find(|grammar| grammar.endings.contains(&ending.as_str()))
}

impl Grammar {
    /// Returns the grammar with its compiled query.
    ///
    /// `None` if the query does not fit the grammar, which a test rules out.
    pub(super) fn ready(&'static self) -> Option<&'static Ready> {
        self.ready
            .get_or_init(|| {
                let language = (self.language)();
                let query = Query::new(&language, &self.query.join("\n")).ok()?;
                let name = query.capture_index_for_name("name")?;
                let reference = query.capture_index_for_name("reference")?;
                let kinds = query
                    .capture_names()
                    .iter()
                    .map(|name| kind(name))
                    .collect();
                Some(Ready {
                    language,
                    query,
                    name,
                    reference,
                    kinds,
                })
            })
            .as_ref()
    }
}

/// The kinds that the manifest lists.
///
/// A mistyped capture name can thus never reach the output.
const KINDS: &[&str] = &[
    "class",
    "constant",
    "enum",
    "function",
    IGNORED,
    "interface",
    "macro",
    "method",
    "struct",
    "trait",
    "type",
    "union",
    "variable",
];

fn kind(capture: &str) -> Option<&'static str> {
    KINDS.iter().find(|kind| **kind == capture).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_fits_its_grammar() {
        for grammar in &GRAMMARS {
            if let Err(error) = Query::new(&(grammar.language)(), &grammar.query.join("\n")) {
                panic!("{} {:?}: {error}", grammar.name, grammar.endings);
            }
            let ready = grammar.ready().unwrap();
            for capture in ready.query.capture_names() {
                let known = kind(capture).is_some()
                    || ["name", "reference"].contains(capture)
                    || capture.starts_with('_');
                assert!(known, "{}: @{capture}", grammar.name);
            }
        }
    }

    #[test]
    fn a_file_is_known_by_its_ending_whatever_its_case() {
        assert_eq!(of(Path::new("a/B.RS")).unwrap().name, "rust");
        assert_eq!(of(Path::new("a.tsx")).unwrap().name, "typescript");
        assert!(of(Path::new("rs")).is_none());
        assert!(of(Path::new("README.md")).is_none());
    }
}
