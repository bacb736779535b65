//! Progress of a call on stderr: a moving line on a terminal, plain lines with `-v`, nothing otherwise. Never on stdout.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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
