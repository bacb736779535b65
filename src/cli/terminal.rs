//! Capabilities of stdout and stderr: colours, moving lines, width. It writes nothing.

use std::io::{self, IsTerminal};

use unicode_width::UnicodeWidthChar;

use crate::env::ProcessEnvironment;

/// The width of a terminal that does not say its own.
const WIDTH: usize = 80;
/// No line is cut to fewer cells than this.
const NARROWEST: usize = 20;

/// Capabilities of stdout and stderr.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Terminals {
    /// Whether stdout is a terminal.
    pub(crate) stdout: bool,
    /// Whether stderr is a terminal.
    pub(crate) stderr: bool,
    /// Whether a line can be overwritten: `TERM` is set, and not `dumb`.
    pub(crate) moves: bool,
    /// Whether to use colours: as `moves`, `NO_COLOR` is unset or empty (<https://no-color.org>),
    /// `CLICOLOR` is not 0.
    pub(crate) colours: bool,
}

impl Terminals {
    /// Looks at stdout, stderr and the environment.
    pub(crate) fn of_process(env: &ProcessEnvironment) -> Self {
        Self {
            stdout: io::stdout().is_terminal(),
            stderr: io::stderr().is_terminal(),
            ..Self::wanted(env)
        }
    }

    /// Reads what the environment says about every terminal.
    fn wanted(env: &ProcessEnvironment) -> Self {
        let text = |name| env.text(name).ok().flatten().unwrap_or_default();
        let moves = !matches!(text("TERM"), "" | "dumb");
        Self {
            moves,
            colours: moves && text("NO_COLOR").is_empty() && text("CLICOLOR") != "0",
            ..Self::default()
        }
    }

    /// Says whether a line on stderr can be overwritten.
    pub(crate) const fn live(self) -> bool {
        self.stderr && self.moves
    }

    /// Returns how to paint on stdout.
    pub(crate) const fn on_stdout(self) -> Paint {
        Paint(self.stdout && self.colours)
    }

    /// Returns how to paint on stderr.
    pub(crate) const fn on_stderr(self) -> Paint {
        Paint(self.stderr && self.colours)
    }
}

/// Returns how many cells a line on stderr has.
pub(crate) fn width() -> usize {
    width_of(io::stderr())
}

/// Returns how many cells a line on stdout has.
pub(crate) fn width_of_stdout() -> usize {
    width_of(io::stdout())
}

fn width_of(terminal: impl std::os::fd::AsFd) -> usize {
    let columns =
        rustix::termios::tcgetwinsize(terminal).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 {
        WIDTH
    } else {
        columns.max(NARROWEST)
    }
}

/// Paints text, or leaves it as it is where there are no colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paint(pub(crate) bool);

/// How text looks: the parameter of "select graphic rendition" (ECMA-48, 8.3.117).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Bold = 1,
    Faint = 2,
    Red = 31,
    Green = 32,
    Cyan = 36,
}

impl Paint {
    /// Paints a text that is free of control characters.
    pub(crate) fn text(self, look: Look, text: &str) -> String {
        if self.0 && !text.is_empty() {
            format!("\x1b[{}m{text}\x1b[0m", look as u8)
        } else {
            text.to_owned()
        }
    }
}

/// Returns how many cells a text takes.
pub(crate) fn cells(text: &str) -> usize {
    text.chars().map(cells_of).sum()
}

/// Breaks a text between words into lines of at most this many cells; a longer word gets a line of
/// its own.
pub(crate) fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && cells(&line) + 1 + cells(word) > room {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

/// Cuts the end off a line, so that it fits in this many cells.
pub(crate) fn cut(line: &str, cells: usize) -> String {
    if self::cells(line) <= cells {
        return line.to_owned();
    }
    let mut used = 1;
    let head = line.chars().take_while(|c| {
        used += cells_of(*c);
        used <= cells
    });
    format!("{}…", head.collect::<String>().trim_end())
}

/// Cuts the middle out of a line, so that it fits in this many cells: its start and end both
/// matter.
pub(crate) fn fit(line: &str, cells: usize) -> String {
    if self::cells(line) <= cells {
        return line.to_owned();
    }
    let (mut used, half) = (0, cells.saturating_sub(1) / 2);
    let mut fits = |c: &char, room: usize| {
        used += cells_of(*c);
        used <= room
    };
    let head: String = line.chars().take_while(|c| fits(c, half)).collect();
    used = 0;
    let mut fits = |c: &char| {
        used += cells_of(*c);
        used <= cells.saturating_sub(1) - half
    };
    let tail: Vec<char> = line.chars().rev().take_while(|c| fits(c)).collect();
    format!("{head}…{}", tail.into_iter().rev().collect::<String>())
}

/// Returns the cells that a character takes (Unicode Standard Annex 11).
fn cells_of(c: char) -> usize {
    c.width().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_there_unless_the_environment_says_otherwise() {
        let wanted = |pairs: &[(&str, &str)]| {
            let terminals = Terminals::wanted(&ProcessEnvironment::of(pairs));
            (terminals.moves, terminals.colours)
        };
        assert_eq!(wanted(&[("TERM", "xterm")]), (true, true));
        assert_eq!(wanted(&[("TERM", "xterm"), ("NO_COLOR", "")]), (true, true));
        assert_eq!(
            wanted(&[("TERM", "xterm"), ("NO_COLOR", "0")]),
            (true, false)
        );
        assert_eq!(
            wanted(&[("TERM", "xterm"), ("CLICOLOR", "0")]),
            (true, false)
        );
        assert_eq!(
            wanted(&[("TERM", "xterm"), ("CLICOLOR", "1")]),
            (true, true)
        );
        assert_eq!(wanted(&[("TERM", "dumb")]), (false, false));
        assert_eq!(wanted(&[]), (false, false));
    }

    #[test]
    fn nothing_is_painted_where_no_terminal_is() {
        let terminals = Terminals {
            stdout: false,
            stderr: true,
            moves: true,
            colours: true,
        };
        assert_eq!(terminals.on_stdout().text(Look::Red, "a"), "a");
        assert_eq!(
            terminals.on_stderr().text(Look::Red, "a"),
            "\x1b[31ma\x1b[0m"
        );
        assert_eq!(terminals.on_stderr().text(Look::Red, ""), "");
    }

    #[test]
    fn cut_line_ends_with_an_ellipsis() {
        assert_eq!(cut("0123456789", 10), "0123456789");
        assert_eq!(cut("0123456789a", 10), "012345678…");
        assert_eq!(cut("01234567 9a", 10), "01234567…");
        assert_eq!(cut("漢字漢字", 7), "漢字漢…");
        assert_eq!(cut("e\u{301}te\u{301} – “x”", 9), "e\u{301}te\u{301} – “x”");
    }

    #[test]
    fn text_wraps_between_words() {
        assert_eq!(
            wrapped("one two  three\nfour", 8),
            ["one two", "three", "four"]
        );
        assert_eq!(
            wrapped("漢字 漢字 longer-than-room", 9),
            ["漢字 漢字", "longer-than-room"]
        );
        assert!(wrapped("", 9).is_empty());
    }

    #[test]
    fn a_line_that_does_not_fit_keeps_its_start_and_its_end() {
        assert_eq!(fit("0123456789", 10), "0123456789");
        assert_eq!(fit("0123456789a", 10), "0123…6789a");
        assert_eq!(fit("0123456789", 1), "…");
        assert_eq!(fit("漢字漢字漢字", 12), "漢字漢字漢字");
        assert_eq!(fit("漢字漢字漢字", 11), "漢字…漢字");
    }
}
