//! Unified diffs in colour: files bold, hunks cyan, additions green, removals red.
//!
//! All other text is printed unchanged, without control characters. Lines keep a CR LF end, so that
//! a diff written to a file applies; a terminal shows `^M`, as git does.

use std::borrow::Cow;
use std::ops::ControlFlow;

use crate::output::printable;
use crate::terminal::{Look, Paint};

/// Media type of a unified diff, for an artifact and for a property's `contentMediaType`.
///
/// See JSON Schema 2020-12, Validation 8.4.
pub(crate) const MEDIA_TYPE: &str = "text/x-diff";

/// Returns the first `limit` lines of a diff, coloured, and the number of lines left out.
///
/// Control characters are made visible. `terminal` says that the output goes to a terminal.
pub(crate) fn shown(diff: &str, paint: Paint, terminal: bool, limit: usize) -> (String, usize) {
    let end = if terminal { "^M" } else { "\r" };
    let mut hunk = Hunk::default();
    let (mut text, mut left_out) = (String::with_capacity(diff.len()), 0);
    for (at, line) in diff.split_terminator('\n').enumerate() {
        if at >= limit {
            left_out += 1;
            continue;
        }
        text.push_str(&painted(line, &mut hunk, paint, end));
        text.push('\n');
    }
    (text, left_out)
}

/// Colours a line by its position: within a hunk, `--- a` is the removed line `-- a`.
///
/// `end` stands for a carriage return at its end.
fn painted(line: &str, hunk: &mut Hunk, paint: Paint, end: &str) -> String {
    let safe = match line.strip_suffix('\r') {
        Some(line) => Cow::Owned(format!("{}{end}", printable(line))),
        None => printable(line),
    };
    if let ControlFlow::Break(look) = hunk.take(line) {
        return look.map_or_else(|| safe.clone().into_owned(), |look| paint.text(look, &safe));
    }
    match Hunk::starts(line) {
        Some(found) => {
            *hunk = found;
            // The rest names the function, and may hold anything.
            let end = safe
                .get(2..)
                .and_then(|rest| rest.find("@@"))
                .map_or(safe.len(), |at| at + 4);
            format!("{}{}", paint.text(Look::Cyan, &safe[..end]), &safe[end..])
        }
        None => paint.text(Look::Bold, &safe),
    }
}

/// Lines of a hunk that remain, of the old file and of the new one.
#[derive(Debug, Default, PartialEq, Eq)]
struct Hunk {
    old: u64,
    new: u64,
}

impl Hunk {
    /// Reads the line that starts a hunk: `@@ -3,7 +3,9 @@`; a missing count is 1.
    fn starts(line: &str) -> Option<Self> {
        let (old, rest) = line.strip_prefix("@@ -")?.split_once(" +")?;
        let (new, _) = rest.split_once(" @@")?;
        let count = |range: &str| {
            range
                .split_once(',')
                .map_or(Some(1), |(_, count)| count.parse().ok())
        };
        Some(Self {
            old: count(old)?,
            new: count(new)?,
        })
    }

    /// Counts a line and returns its style; continues if the line is outside the hunk.
    fn take(&mut self, line: &str) -> ControlFlow<Option<Look>> {
        let (old, new, look) = match line.as_bytes().first() {
            Some(b'+') if self.new > 0 => (0, 1, Some(Look::Green)),
            Some(b'-') if self.old > 0 => (1, 0, Some(Look::Red)),
            // Some programs strip trailing blanks, and with them the blank that starts an empty
            // line.
            Some(b' ') | None if self.old > 0 && self.new > 0 => (1, 1, None),
            Some(b'\\') => (0, 0, Some(Look::Faint)),
            _ => {
                *self = Self::default();
                return ControlFlow::Continue(());
            }
        };
        self.old -= old;
        self.new -= new;
        ControlFlow::Break(look)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@ fn main() {\n one\n--- two\n+++ zwei\n three\n\
        \\ No newline at end of file\n--- a/y\n";

    #[test]
    fn a_line_is_what_its_place_says() {
        let (text, left_out) = shown(DIFF, Paint(true), true, 100);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "\x1b[1mdiff --git a/x b/x\x1b[0m");
        assert_eq!(lines[3], "\x1b[1m+++ b/x\x1b[0m");
        assert_eq!(lines[4], "\x1b[36m@@ -1,3 +1,3 @@\x1b[0m fn main() {");
        assert_eq!(lines[5], " one");
        assert_eq!(lines[6], "\x1b[31m--- two\x1b[0m");
        assert_eq!(lines[7], "\x1b[32m+++ zwei\x1b[0m");
        assert_eq!(lines[9], "\x1b[2m\\ No newline at end of file\x1b[0m");
        assert_eq!(lines[10], "\x1b[1m--- a/y\x1b[0m", "the next file");
        assert_eq!(left_out, 0);
    }

    #[test]
    fn without_colours_it_is_the_diff_itself_and_a_long_one_is_cut() {
        assert_eq!(shown(DIFF, Paint(false), false, 100), (DIFF.to_owned(), 0));
        assert_eq!(
            shown(DIFF, Paint(false), true, 2),
            ("diff --git a/x b/x\nindex 1..2 100644\n".to_owned(), 9)
        );
        assert_eq!(shown("", Paint(true), true, 2), (String::new(), 0));
    }

    #[test]
    fn what_a_repository_holds_does_not_steer_the_terminal() {
        let hostile = "+++ b/\x1b]0;x\x07\n@@ -0,0 +1 @@ \u{202e}\x1b[2J\n+a\rb\u{9b}m\u{2066}\n";
        for paint in [Paint(true), Paint(false)] {
            let (text, _) = shown(hostile, paint, paint.0, 100);
            let bare = ["\x1b[1m", "\x1b[36m", "\x1b[32m", "\x1b[0m"]
                .iter()
                .fold(text, |text, code| text.replace(code, ""));
            assert_eq!(
                bare,
                "+++ b/\\u{1b}]0;x\\u{7}\n@@ -0,0 +1 @@ \\u{202e}\\u{1b}[2J\n+a\\u{d}b\\u{9b}m\\u{2066}\n"
            );
        }
    }

    #[test]
    fn the_line_ends_of_windows_stay_and_a_terminal_shows_them() {
        let windows =
            "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\r\n-two\r\n+zw\rei\r\r\n";
        let piped = windows.replace("zw\rei\r\r", "zw\\u{d}ei\\u{d}\r");
        assert_eq!(shown(windows, Paint(false), false, 100).0, piped);
        assert_eq!(
            shown(windows, Paint(false), true, 100).0,
            piped.replace('\r', "^M")
        );
        assert!(
            shown(windows, Paint(true), true, 100)
                .0
                .contains("\x1b[31m-two^M\x1b[0m\n")
        );
    }

    #[test]
    fn a_hunk_that_lies_about_its_size_breaks_nothing() {
        let lies = "@@ -1,99999999999999999999 +1 @@\n@@ -1 @@\n@@ -0,0 +0,0 @@\n+x\n@@ -1,2 +1,2 @@\n+a\n+b\n+c\n";
        assert_eq!(shown(lies, Paint(false), false, 100).0, lies);
    }
}
