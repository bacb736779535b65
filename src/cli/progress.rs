//! Progress on stderr, never on stdout. Of a call: a moving line on a terminal, plain lines with `-v`, nothing otherwise. Of
//! work on the store: a bar on a terminal, a plain line now and then otherwise, nothing with `--json`.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use helmdeck_core::context::ProgressSink;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::{Output, printable};

/// Shows progress.
#[derive(Debug)]
pub(crate) struct Progress {
    output: Output,
    /// Made by the first report, so that a quick call draws nothing.
    bar: Mutex<Option<ProgressBar>>,
}

impl Progress {
    /// Shows progress where the output goes.
    pub(crate) const fn new(output: Output) -> Self {
        Self { output, bar: Mutex::new(None) }
    }

    /// Takes the moving line away.
    pub(crate) fn clear(&self) {
        if let Some(bar) = self.bar.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bar.finish_and_clear();
        }
    }
}

impl ProgressSink for Progress {
    fn report(&self, percent: Option<f32>, message: &str) {
        let text = line(percent, message);
        if self.output.stderr_terminal {
            let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
            bar.get_or_insert_with(spinner).set_message(text);
        } else if self.output.verbose > 0 {
            self.output.note(&text);
        }
    }
}

/// How often a line is written where no bar can be shown.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows how far work on many rows has come. Dropping it takes the bar away.
#[derive(Debug)]
pub(crate) struct Steps {
    output: Output,
    /// What happened to a row, for example `resealed`.
    what: &'static str,
    bar: Option<ProgressBar>,
    said: Instant,
}

impl Steps {
    /// Shows progress where the output goes.
    pub(crate) fn new(output: Output, what: &'static str) -> Self {
        Self { output, what, bar: None, said: Instant::now() }
    }

    /// Says how many rows are done, of how many if that is known.
    pub(crate) fn at(&mut self, done: u64, total: Option<u64>) {
        if self.output.stderr_terminal {
            let bar = self.bar.get_or_insert_with(|| bar(self.what, total));
            // Rows that came since it was counted are done too.
            bar.set_length(total.unwrap_or(done).max(done));
            bar.set_position(done);
        } else if (!self.output.json || self.output.verbose > 0) && self.said.elapsed() >= LINE_EVERY {
            self.said = Instant::now();
            let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
            self.output.note(&format!("{} {done}{of} rows", self.what));
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn bar(what: &'static str, total: Option<u64>) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
    let template = if total.is_some() {
        "{msg} {bar:30} {human_pos}/{human_len} rows, {per_sec}, {eta} left"
    } else {
        "{spinner} {msg} {human_pos} rows, {per_sec}"
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

fn line(percent: Option<f32>, message: &str) -> String {
    let message = printable(message).replace('\n', " ");
    match percent {
        Some(percent) => format!("{:3.0}% {message}", percent.clamp(0.0, 100.0)),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_one_line_without_control_characters() {
        assert_eq!(line(Some(12.4), "reading\nfiles\x1b[2J"), " 12% reading files\\u{1b}[2J");
        assert_eq!(line(None, "reading"), "reading");
    }
}
