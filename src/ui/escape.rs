//! Escaping of values in templates: HTML, and characters that a reader cannot see.

use std::fmt::{self, Write};

use askama::filters::Escaper;
use helmdeck_core::text::is_hidden;

/// Escapes a value for HTML text and quoted attributes, and writes hidden characters by their
/// number.
///
/// Values are texts of others: a character that reorders or hides text must not change what a
/// person sees. `askama.toml` applies this to every value of every template.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visible;

impl Escaper for Visible {
    fn write_escaped_str<W: Write>(&self, mut dest: W, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(is_special) {
            dest.write_str(&rest[..at])?;
            let Some(character) = rest[at..].chars().next() else {
                break;
            };
            match character {
                '&' => dest.write_str("&amp;")?,
                '<' => dest.write_str("&lt;")?,
                '>' => dest.write_str("&gt;")?,
                '"' => dest.write_str("&quot;")?,
                '\'' => dest.write_str("&#39;")?,
                hidden => write!(dest, "\u{27e8}U+{:04X}\u{27e9}", u32::from(hidden))?,
            }
            rest = &rest[at + character.len_utf8()..];
        }
        dest.write_str(rest)
    }
}

fn is_special(character: char) -> bool {
    match character {
        '&' | '<' | '>' | '"' | '\'' => true,
        '\n' | '\t' => false,
        other => is_hidden(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str) -> String {
        let mut out = String::new();
        Visible.write_escaped_str(&mut out, text).unwrap();
        out
    }

    #[test]
    fn markup_is_text() {
        assert_eq!(
            escaped("<b a=\"1\" c='2'>&"),
            "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;"
        );
        assert_eq!(escaped("größer\n\tals"), "größer\n\tals");
        assert_eq!(escaped(""), "");
    }

    #[test]
    fn hidden_characters_are_shown_by_number() {
        assert_eq!(
            escaped("a\u{202e}b\u{0}\r"),
            "a\u{27e8}U+202E\u{27e9}b\u{27e8}U+0000\u{27e9}\u{27e8}U+000D\u{27e9}"
        );
        assert_eq!(escaped("\u{e0041}<"), "\u{27e8}U+E0041\u{27e9}&lt;");
    }
}
