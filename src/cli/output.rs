//! Output: the only file that writes to the terminal. Results go to stdout, everything else to
//! stderr.

use std::borrow::Cow;
use std::io::{self, BufRead, IsTerminal, Write};

use helmdeck_core::text::is_hidden;
use serde_json::Value;

use crate::env::ProcessEnvironment;
use crate::exit::{Failure, Result};
use crate::terminal::Terminals;

/// Output streams and format of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// Whether the caller wants JSON.
    pub(crate) json: bool,
    /// How often `-v` was given.
    pub(crate) verbose: u8,
    /// Whether only results and errors are wanted.
    pub(crate) quiet: bool,
    /// Whether a person can answer questions: stdin and stderr are terminals.
    pub(crate) interactive: bool,
    /// Capabilities of stdout and stderr.
    pub(crate) terminals: Terminals,
}

impl Output {
    /// Looks at the terminals of this process.
    pub(crate) fn of_process(env: &ProcessEnvironment, json: bool, verbose: u8) -> Self {
        let terminals = Terminals::of_process(env);
        Self {
            json,
            verbose,
            quiet: false,
            interactive: terminals.stderr && io::stdin().is_terminal(),
            terminals,
        }
    }

    /// Writes a result: the bytes and a newline if they do not end in one.
    ///
    /// # Errors
    /// A silent failure if the reader went away.
    pub(crate) fn result(&self, bytes: &[u8]) -> Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        if bytes.last() != Some(&b'\n') {
            stdout.write_all(b"\n")?;
        }
        Ok(stdout.flush()?)
    }

    /// Writes bytes as they are, with nothing after them.
    ///
    /// # Errors
    /// As [`Output::result`].
    pub(crate) fn raw(&self, bytes: &[u8]) -> Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        Ok(stdout.flush()?)
    }

    /// Writes a text result, with control characters made visible.
    ///
    /// # Errors
    /// As [`Output::result`].
    pub(crate) fn text(&self, text: &str) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.result(printable(text).as_bytes())
    }

    /// Writes a text result that is free of control characters but for its own colours.
    ///
    /// # Errors
    /// As [`Output::result`].
    pub(crate) fn painted(&self, text: &str) -> Result<()> {
        if text.is_empty() {
            Ok(())
        } else {
            self.result(text.as_bytes())
        }
    }

    /// Writes a JSON value as one line.
    ///
    /// # Errors
    /// As [`Output::result`].
    pub(crate) fn value(&self, value: &Value) -> Result<()> {
        self.result(value.to_string().as_bytes())
    }

    /// Writes a value as JSON, or as the text that `text` makes.
    ///
    /// # Errors
    /// As [`Output::result`].
    pub(crate) fn either(&self, value: &Value, text: impl FnOnce() -> String) -> Result<()> {
        if self.json {
            self.value(value)
        } else {
            self.text(&text())
        }
    }

    /// Says whether a line on stderr may move.
    pub(crate) const fn live(&self) -> bool {
        self.terminals.live() && !self.quiet
    }

    /// Writes a line to stderr, unless only results and errors are wanted. A failure is ignored.
    pub(crate) fn note(&self, line: &str) {
        self.painted_note(&printable(line));
    }

    /// As [`Output::note`], for a line that is free of control characters but for its own colours.
    pub(crate) fn painted_note(&self, line: &str) {
        if !self.quiet {
            let _ = writeln!(io::stderr().lock(), "{line}");
        }
    }

    /// Writes a text to stderr that is part of the result: what a program printed there, or what a
    /// question is about.
    pub(crate) fn text_on_stderr(&self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{}", printable(text));
    }

    /// Writes a problem to stderr as one line of JSON.
    pub(crate) fn problem(&self, problem: &Value) {
        let _ = writeln!(io::stderr().lock(), "{problem}");
    }

    /// Writes a failure to stderr: as one line of JSON, or as people read it.
    pub(crate) fn failure(&self, failure: &Failure) {
        if failure.is_silent() {
            return;
        }
        if self.json {
            return self.problem(&failure.problem());
        }
        self.error_text(&failure.shown(self.terminals.on_stderr()));
    }

    /// Writes an error to stderr that is free of control characters but for its own colours.
    pub(crate) fn error_text(&self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// Asks the user a question; the answer is no without a terminal.
    ///
    /// # Errors
    /// A failure if the terminal cannot be read.
    pub(crate) fn ask(&self, question: &str) -> Result<bool> {
        if !self.interactive {
            return Ok(false);
        }
        let mut stderr = io::stderr().lock();
        write!(stderr, "{}", printable(question))?;
        stderr.flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        Ok(matches!(
            answer.trim().to_ascii_lowercase().as_str(),
            "y" | "yes"
        ))
    }

    /// Asks the user for one line of text. `None` without a terminal, or for an empty answer.
    ///
    /// # Errors
    /// A failure if the terminal cannot be read.
    pub(crate) fn line(&self, question: &str) -> Result<Option<String>> {
        if !self.interactive {
            return Ok(None);
        }
        let mut stderr = io::stderr().lock();
        write!(stderr, "{} ", printable(question))?;
        stderr.flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        let answer = answer.trim();
        Ok((!answer.is_empty()).then(|| answer.to_owned()))
    }

    /// Asks the user for confirmation; without a terminal it requires `--yes`.
    ///
    /// # Errors
    /// A usage failure if there is no terminal, or if the answer is not yes.
    pub(crate) fn confirm(&self, what: &str, yes: bool) -> Result<()> {
        if yes {
            return Ok(());
        }
        if !self.interactive {
            return Err(
                Failure::usage(format!("this would {what}")).with_hint("say --yes to do it")
            );
        }
        let mut stderr = io::stderr().lock();
        write!(stderr, "This will {}. Go on? [y/N] ", printable(what))?;
        stderr.flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
            return Ok(());
        }
        Err(Failure::usage("nothing was removed"))
    }
}

/// Makes [hidden](is_hidden) characters visible, except newline and tab.
///
/// Output of packs must not control a terminal, change the direction of text, end a line, or be
/// invisible (Unicode Standard Annex 9; <https://trojansource.codes>).
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let steers = |c: char| is_hidden(c) && !matches!(c, '\n' | '\t');
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) {
            shown.extend(c.escape_unicode())
        } else {
            shown.push(c)
        }
    }
    Cow::Owned(shown)
}

/// Returns a size for people: `17 B`, `4.0 KiB`.
#[allow(
    clippy::cast_precision_loss,
    reason = "one decimal of a size for people"
)]
pub(crate) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 || unit == "GiB" {
            return if unit == "B" {
                format!("{bytes} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_a_pack_do_not_reach_the_terminal() {
        assert_eq!(printable("a\tb\nc"), "a\tb\nc");
        assert_eq!(
            printable("\x1b]0;x\x07\u{9b}m\r"),
            "\\u{1b}]0;x\\u{7}\\u{9b}m\\u{d}"
        );
        assert_eq!(
            printable("a\u{202e}b\u{2069}\u{2028}"),
            "a\\u{202e}b\\u{2069}\\u{2028}"
        );
        assert_eq!(printable("äöü – 漢字 שלום"), "äöü – 漢字 שלום");
    }

    #[test]
    fn without_a_person_nothing_is_destroyed() {
        let output = Output {
            json: false,
            verbose: 0,
            quiet: false,
            interactive: false,
            terminals: Terminals::default(),
        };
        assert!(
            output
                .confirm("remove everything", false)
                .unwrap_err()
                .message()
                .contains("remove everything")
        );
        assert!(output.confirm("remove everything", true).is_ok());
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!(
            (size(17), size(4096), size(1 << 30)),
            ("17 B".into(), "4.0 KiB".into(), "1.0 GiB".into())
        );
    }
}
