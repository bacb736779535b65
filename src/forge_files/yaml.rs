//! YAML as a tree of texts, lists and maps, read with limits.
//!
//! The files come from other people's repositories. Size, depth and number of values are bounded,
//! and what could make a small text large (anchors, aliases) is refused, as are tags, several
//! documents and names that are not texts.

use indexmap::IndexMap;
use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use crate::files::Damage;

/// The largest text that is parsed, in bytes.
pub const MAX_BYTES: usize = 64 * 1024;
/// Maximum depth of nested values.
const MAX_DEPTH: usize = 32;
/// Maximum number of values and names.
const MAX_VALUES: usize = 10_000;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Yaml {
    /// A text as it is written, without its quotes; a value that is absent is empty and plain.
    Text {
        /// The text.
        text: String,
        /// Whether it has no quotes and is no block, so that `1` or `true` may be meant as
        /// something else.
        plain: bool,
    },
    /// A list.
    List(Vec<Self>),
    /// A map, in the order of the file.
    Map(IndexMap<String, Self>),
}

impl Yaml {
    const fn nothing() -> Self {
        Self::Text {
            text: String::new(),
            plain: true,
        }
    }
}

/// A list or map that is not closed yet.
enum Open {
    List(Vec<Yaml>),
    /// A map, and the name whose value comes next.
    Map(IndexMap<String, Yaml>, Option<String>),
}

/// Reads a text of one document. An empty one is an empty text.
///
/// # Errors
/// Where and why it is not read. Nothing is parsed of a text over [`MAX_BYTES`].
pub fn parse(text: &str) -> Result<Yaml, Damage> {
    if text.len() > MAX_BYTES {
        let what = format!("it has {} bytes; at most {MAX_BYTES} are read", text.len());
        return Err(Damage {
            line: 1,
            column: 1,
            what,
        });
    }
    let mut open: Vec<Open> = Vec::new();
    let mut whole = None;
    let mut values = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let at = error.marker();
            Damage {
                line: at.line(),
                column: at.col() + 1,
                what: error.info().to_owned(),
            }
        })?;
        let refuse = |what: &str| Err(damage(&span, what));
        values += usize::from(!matches!(event, Event::SequenceEnd | Event::MappingEnd));
        let value = match event {
            Event::Alias(_) => {
                return refuse(
                    "an alias (*) is not read here: write the value, or put it in quotes",
                );
            }
            Event::Scalar(_, _, 1.., _)
            | Event::SequenceStart(1.., _)
            | Event::MappingStart(1.., _) => {
                return refuse("an anchor (&) is not read here: put the text in quotes");
            }
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => {
                return refuse("a tag (!) is not read here: put the text in quotes");
            }
            Event::DocumentStart(_) if whole.is_some() => {
                return refuse("a second document begins");
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => {
                continue;
            }
            Event::Scalar(text, style, ..) => Some(Yaml::Text {
                text: text.into_owned(),
                plain: style == ScalarStyle::Plain,
            }),
            Event::SequenceStart(..) => {
                open.push(Open::List(Vec::new()));
                None
            }
            Event::MappingStart(..) => {
                open.push(Open::Map(IndexMap::new(), None));
                None
            }
            Event::SequenceEnd | Event::MappingEnd => open.pop().map(|closed| match closed {
                Open::List(items) => Yaml::List(items),
                Open::Map(members, _) => Yaml::Map(members),
            }),
        };
        if values > MAX_VALUES {
            return refuse(&format!("it has more than {MAX_VALUES} values"));
        }
        if open.len() > MAX_DEPTH {
            return refuse(&format!("it is nested deeper than {MAX_DEPTH} levels"));
        }
        let Some(value) = value else { continue };
        match open.last_mut() {
            None => whole = Some(value),
            Some(Open::List(items)) => items.push(value),
            Some(Open::Map(members, name)) => match (name.take(), value) {
                (Some(name), value) => drop(members.insert(name, value)),
                (None, Yaml::Text { text, .. }) if members.contains_key(&text) => {
                    return refuse(&format!("{text:?} stands there twice"));
                }
                (None, Yaml::Text { text, .. }) => *name = Some(text),
                (None, _) => return refuse("the name of a member is a text"),
            },
        }
    }
    Ok(whole.unwrap_or(Yaml::nothing()))
}

fn damage(span: &Span, what: &str) -> Damage {
    Damage {
        line: span.start.line(),
        column: span.start.col() + 1,
        what: what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;

    /// Writes a tree on one line: plain texts bare, others in quotes.
    fn shown(value: &Yaml) -> String {
        match value {
            Yaml::Text { text, plain: true } => text.clone(),
            Yaml::Text { text, plain: false } => format!("{text:?}"),
            Yaml::List(items) => format!(
                "[{}]",
                items.iter().map(shown).collect::<Vec<_>>().join(",")
            ),
            Yaml::Map(members) => {
                let members: Vec<_> = members
                    .iter()
                    .map(|(name, value)| format!("{name}={}", shown(value)))
                    .collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }

    #[test]
    fn texts_lists_and_maps_are_read() {
        for (text, expected) in [
            ("", ""),
            ("# nothing\n", ""),
            (
                "\u{feff}a: 1\nb: two words # not this\n",
                "{a=1,b=two words}",
            ),
            ("---\na:\n  b: true\n  c: ~\n  d:\n", "{a={b=true,c=~,d=}}"),
            (
                "a:\n- 1\n- x: 2\n  y: 3\n-\n  z: 4\n",
                "{a=[1,{x=2,y=3},{z=4}]}",
            ),
            ("a: [from: skills]\n", "{a=[{from=skills}]}"),
            (
                "a: [x, \"y, z\", 'it''s', {b: 1}]\n",
                "{a=[x,\"y, z\",\"it's\",{b=1}]}",
            ),
            ("a: [\n  x,\n  y\n]\nb: 1\n", "{a=[x,y],b=1}"),
            ("a: \"RFC-\\\\d{4}\"\n", "{a=\"RFC-\\\\d{4}\"}"),
            (
                "a: '[BUG] *'\nb: http://x/y\n",
                "{a=\"[BUG] *\",b=http://x/y}",
            ),
            (
                "a: |\n  one\n    two\n\n  # three\nb: >-\n  x\n  y\n",
                "{a=\"one\\n  two\\n\\n# three\\n\",b=\"x y\"}",
            ),
            ("'a b': 1\r\n\"c\": -2.5\r\n", "{a b=1,c=-2.5}"),
            ("- a\n- b: c\n- - d\n", "[a,{b=c},[d]]"),
            ("a: one\n  two\n", "{a=one two}"),
        ] {
            assert_eq!(
                shown(&parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"))),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn refused_yaml_names_its_line() {
        for (text, line, why) in [
            ("a: 1\na: 2\n", 2, "twice"),
            ("a: &x 1\n", 1, "anchor"),
            ("a: &x [1]\n", 1, "anchor"),
            ("b: 1\na: *x\n", 2, "anchor"),
            ("a: !tag x\n", 1, "tag"),
            ("a: !!map {}\n", 1, "tag"),
            ("a: [x\n", 2, "']'"),
            ("a: \"x\n", 1, "quoted"),
            ("a: 1\n    b: 2\n", 2, "mapping"),
            ("a:\n\tb: 1\n", 2, "tabs"),
            ("a: [x] y\n", 1, "key"),
            ("a: b: c\n", 1, "mapping"),
            ("a: 1\n---\nb: 2\n", 2, "second document"),
            ("? [a]\n: b\n", 1, "name"),
        ] {
            let damage = parse(text).unwrap_err();
            assert_eq!(damage.line, line, "{text}: {damage:?}");
            assert!(
                damage.what.contains(why) || text.contains('*'),
                "{text}: {damage:?}"
            );
        }
    }

    /// Texts whose cost could grow faster than their length, filled up to a number of bytes.
    fn growing(bytes: usize) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        let heads = [
            "", "a: [x\n", "a: {x\n", "a: \"x\n", "a: 'x\n", "a: |\n", "a: >\n", "- &a x\n",
            "a: x\n", "? ",
        ];
        let units = [
            "x\n",
            "x,\n",
            " x\n",
            "[",
            "{",
            "]",
            "- ",
            "? ",
            ": ",
            "a: ",
            "- a\n",
            "-\n",
            "[],",
            "{a: b},",
            "a: 1,",
            "''",
            "\\\"",
            "\"a\"\n",
            "\"a\":1,",
            "&a ",
            "- *a\n",
            "*a,",
            "!a ",
            "- !a x\n",
            "%TAG ! x\n",
            "---\n",
            "...\n",
            "#\n",
            " #",
            "\t",
            "\n",
            " ",
            "    \n",
            ",",
            "\u{feff}",
            "\u{e9}",
            "\r\n",
            "\u{2028}",
        ];
        for head in heads {
            all.extend(
                units.iter().map(|unit| {
                    format!("{head}{}", unit.repeat((bytes - head.len()) / unit.len()))
                }),
            );
        }
        let mut deep = String::new();
        for level in 0.. {
            if deep.len() + level + 4 > bytes {
                break;
            }
            let _ = writeln!(deep, "{}a:", " ".repeat(level));
        }
        all.push(deep);
        // Each line doubles the one above.
        let bomb: String = (1..200)
            .map(|at| format!("a{at}: &a{at} [*a{}, *a{}]\n", at - 1, at - 1))
            .collect();
        all.push(format!("a0: &a0 [x]\n{bomb}"));
        all
    }

    /// Counts the events of the parser, which bound what is kept of a text.
    fn events(text: &str) -> usize {
        Parser::new_from_str(text).take_while(Result::is_ok).count()
    }

    #[test]
    fn growing_texts_end_within_their_limits() {
        for text in growing(MAX_BYTES) {
            // Either result is fine: what counts is that it comes.
            let _ = parse(&text);
            assert!(events(&text) <= 2 * text.len() + 8, "{:?}", &text[..20]);
        }
        let damage = parse(&"x".repeat(MAX_BYTES + 1)).unwrap_err();
        assert!(damage.what.contains("65537 bytes"), "{damage:?}");
        let deep = format!("{}{}", "[".repeat(MAX_DEPTH + 1), "]".repeat(MAX_DEPTH + 1));
        assert!(parse(&deep).unwrap_err().what.contains("nested"));
        assert!(parse(&deep[1..=2 * MAX_DEPTH]).is_ok());
        assert!(
            parse(&"- a\n".repeat(MAX_VALUES))
                .unwrap_err()
                .what
                .contains("values")
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[-a: \\n\\[\\]{}'\"|>#,&*!?%\\t\\r\\\\~é]{0,80}") {
            let _ = parse(&text);
        }
    }
}
