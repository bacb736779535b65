//! Capabilities of stdout and stderr: colours, moving lines, width. It writes nothing.

use std::io::{self, IsTerminal};

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
    /// Whether to use colours: as `moves`, and `NO_COLOR` is unset or empty (<https://no-color.org>).
    pub(crate) colours: bool,
}

impl Terminals {
    /// Looks at stdout, stderr and the environment.
    pub(crate) fn of_process(env: &ProcessEnvironment) -> Self {
        Self { stdout: io::stdout().is_terminal(), stderr: io::stderr().is_terminal(), ..Self::wanted(env) }
    }

    /// Reads what the environment says about every terminal.
    fn wanted(env: &ProcessEnvironment) -> Self {
        let text = |name| env.text(name).ok().flatten().unwrap_or_default();
        let moves = !matches!(text("TERM"), "" | "dumb");
        Self { moves, colours: moves && text("NO_COLOR").is_empty(), ..Self::default() }
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
    let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { WIDTH } else { columns.max(NARROWEST) }
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
        if self.0 && !text.is_empty() { format!("\x1b[{}m{text}\x1b[0m", look as u8) } else { text.to_owned() }
    }
}

/// Cuts the middle out of a line, so that it fits in this many cells: its start and end both matter.
pub(crate) fn fit(line: &str, cells: usize) -> String {
    if line.chars().map(cells_of).sum::<usize>() <= cells {
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

/// Returns an upper bound of the cells that a character takes.
///
/// Wide scripts begin at U+1100 (Unicode Standard Annex 11). Some later scripts are narrow; a line of them is cut a
/// little early.
const fn cells_of(c: char) -> usize {
    if c < '\u{1100}' { 1 } else { 2 }
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
        assert_eq!(wanted(&[("TERM", "xterm"), ("NO_COLOR", "0")]), (true, false));
        assert_eq!(wanted(&[("TERM", "dumb")]), (false, false));
        assert_eq!(wanted(&[]), (false, false));
    }

    #[test]
    fn nothing_is_painted_where_no_terminal_is() {
        let terminals = Terminals { stdout: false, stderr: true, moves: true, colours: true };
        assert_eq!(terminals.on_stdout().text(Look::Red, "a"), "a");
        assert_eq!(terminals.on_stderr().text(Look::Red, "a"), "\x1b[31ma\x1b[0m");
        assert_eq!(terminals.on_stderr().text(Look::Red, ""), "");
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
