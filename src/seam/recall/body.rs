//! The text of a note below the heading it gets in a recall.

use std::borrow::Cow;

/// Level of the heading of a note: its number of `#` signs.
const LEVEL: usize = 3;
/// The lowest heading that Markdown has.
const LOWEST: usize = 6;

/// Sets the headings of a text below that of its note, and closes a code block that it leaves open,
/// so that no note can write what looks like another note, or swallow the next one. Code stays as
/// it is.
///
/// What is a heading and what a code block is as in `CommonMark` 0.31, sections 4.2 and 4.5.
pub(crate) fn nested(text: &str) -> Cow<'_, str> {
    if !text.contains(['#', '`', '~']) {
        return text.into();
    }
    let mut all = String::with_capacity(text.len() + 64);
    let mut open: Option<Fence> = None;
    for line in text.split_inclusive('\n') {
        let fence = Fence::of(line);
        match (open, fence) {
            (Some(opened), Some(fence)) if fence.closes(opened) => open = None,
            (None, Some(fence)) if fence.opens => open = Some(fence),
            (None, None) => {
                push_down(line, &mut all);
                continue;
            }
            _ => {}
        }
        all.push_str(line);
    }
    if let Some(Fence { sign, length, .. }) = open {
        if !all.ends_with('\n') {
            all.push('\n');
        }
        all.extend(std::iter::repeat_n(sign, length));
    }
    all.into()
}

/// Adds a line, with more signs if it is a heading.
fn push_down(line: &str, all: &mut String) {
    let Some(rest) = indented(line) else {
        return all.push_str(line);
    };
    all.push_str(&line[..line.len() - rest.len()]);
    let level = rest.bytes().take_while(|byte| *byte == b'#').count();
    let is_heading = (1..=LOWEST).contains(&level)
        && rest[level..]
            .chars()
            .next()
            .is_none_or(|next| matches!(next, ' ' | '\t' | '\r' | '\n'));
    if is_heading {
        all.extend(std::iter::repeat_n(
            '#',
            (level + LEVEL).min(LOWEST) - level,
        ));
    }
    all.push_str(rest);
}

/// Returns what follows up to three blanks.
fn indented(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches(' ');
    (line.len() - rest.len() <= 3).then_some(rest)
}

/// A line that may begin or end a block of code.
#[derive(Debug, Clone, Copy)]
struct Fence {
    sign: char,
    length: usize,
    opens: bool,
    ends: bool,
}

impl Fence {
    fn of(line: &str) -> Option<Self> {
        let rest = indented(line)?;
        let sign = rest
            .chars()
            .next()
            .filter(|sign| matches!(sign, '`' | '~'))?;
        let length = rest.chars().take_while(|next| *next == sign).count();
        let info = &rest[length..];
        let opens = sign == '~' || !info.contains('`');
        (length >= 3).then_some(Self {
            sign,
            length,
            opens,
            ends: info.trim().is_empty(),
        })
    }

    fn closes(self, opened: Self) -> bool {
        self.ends && self.sign == opened.sign && self.length >= opened.length
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headings_come_below_that_of_the_note() {
        for (text, expected) in [
            ("# A\n## B\ntext\n### C", "#### A\n##### B\ntext\n###### C"),
            (
                "###### F\n####### no heading\n#no heading\n#\n",
                "###### F\n####### no heading\n#no heading\n####\n",
            ),
            ("   # A\n    # code", "   #### A\n    # code"),
            ("no sign", "no sign"),
        ] {
            assert_eq!(nested(text), expected, "{text:?}");
        }
    }

    #[test]
    fn code_stays_as_it_is_and_is_closed() {
        for (text, expected) in [
            (
                "```sh\n# comment\n```\n# A",
                "```sh\n# comment\n```\n#### A",
            ),
            (
                "~~~~\n```\n# x\n~~~\n~~~~\n# A\n",
                "~~~~\n```\n# x\n~~~\n~~~~\n#### A\n",
            ),
            ("```\n# x", "```\n# x\n```"),
            ("```` `\n# A", "```` `\n#### A"),
            ("``` ```\n# A", "``` ```\n#### A"),
        ] {
            assert_eq!(nested(text), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_writes_a_heading_of_a_note(text in "[#`~ a\\n]{0,40}") {
            let all = nested(&text);
            let mut open: Option<Fence> = None;
            for line in all.lines() {
                match (open, Fence::of(line)) {
                    (Some(opened), Some(fence)) if fence.closes(opened) => open = None,
                    (None, Some(fence)) if fence.opens => open = Some(fence),
                    (None, _) => prop_assert!(!line.trim_start().starts_with("### "), "{text:?}: {line:?}"),
                    _ => {}
                }
            }
            prop_assert!(open.is_none(), "{text:?}");
        }
    }
}
