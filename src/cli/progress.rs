//! Progress on stderr.
//!
//! For a call of over 300 ms: a moving line on a terminal, plain lines with `-v`, nothing
//! otherwise. Each step of an async pack stays above the line. For work on the store: a bar on a
//! terminal, periodic plain lines otherwise, nothing with `--json`. With `-q` there is none of it.

use parking_lot::Mutex;
use std::convert::Infallible;
use std::future::Future;
use std::time::{Duration, Instant};

use helmdeck_core::context::ProgressSink;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::output::{Output, printable};
use crate::terminal::{self, Look};

/// How long a call may take before a terminal shows that it runs.
const PATIENCE: Duration = Duration::from_millis(300);

/// Shows the progress of a call.
#[derive(Debug)]
pub(crate) struct Progress {
    output: Output,
    /// Whether each step stays on the terminal.
    lasting: bool,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The moving line. Made by the first report or after [`PATIENCE`], so that a quick call draws
    /// nothing.
    bar: Option<ProgressBar>,
    /// The step that was shown last.
    step: String,
}

impl Progress {
    /// Shows progress where the output goes; each step stays if the call is a long one.
    pub(crate) fn of_call(output: Output, long: bool) -> Self {
        // With `--json`, nothing else may appear between the lines of JSON.
        let lasting = long && output.terminals.stderr && !output.json && !output.quiet;
        let progress = Self {
            output,
            lasting,
            began: Instant::now(),
            state: Mutex::default(),
        };
        if lasting && output.live() {
            progress.state().bar = Some(progress.moving());
        }
        progress
    }

    /// Waits for work; after [`PATIENCE`] a terminal shows a moving line, until the work ends.
    pub(crate) async fn beside<T>(&self, work: impl Future<Output = T>) -> T {
        let appear = async {
            tokio::time::sleep(PATIENCE.saturating_sub(self.began.elapsed())).await;
            if self.output.live() {
                self.state().bar.get_or_insert_with(|| self.moving());
            }
            std::future::pending::<Infallible>().await
        };
        let done = tokio::select! {
            done = work => done,
            never = appear => match never {},
        };
        self.clear();
        done
    }

    /// Removes the moving line.
    pub(crate) fn clear(&self) {
        if let Some(bar) = self.state().bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Says that the call is being stopped.
    pub(crate) fn stopping(&self) {
        const LINE: &str = "stopping the call; a second signal (Ctrl-C) ends the program at once";
        match &self.state().bar {
            _ if self.output.json => {}
            Some(bar) => bar.suspend(|| self.output.note(LINE)),
            None => self.output.note(LINE),
        }
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Makes the moving line.
    fn moving(&self) -> ProgressBar {
        spinner("{spinner} {since} {msg}", self.began)
    }

    /// Shows a step of a long call once, as a line that stays, and updates the moving line.
    fn step(&self, percent: Option<f32>, message: &str) {
        let text = line(None, message);
        let mut state = self.state();
        let percent = percent.map(|percent| format!("{:.0}%", percent.clamp(0.0, 100.0)));
        if let (Some(bar), Some(percent)) = (&state.bar, percent) {
            bar.set_message(percent);
        }
        if text.is_empty() || text == state.step {
            return;
        }
        let since = clock(self.began.elapsed());
        let room = terminal::width().saturating_sub(since.len() + 4);
        let faint = self.output.terminals.on_stderr().text(Look::Faint, &since);
        let line = format!("  {faint}  {}", terminal::fit(&text, room));
        match &state.bar {
            // Not `println`: that fills the line with blanks and leaves it to the terminal to wrap.
            Some(bar) => bar.suspend(|| self.output.painted_note(&line)),
            None => self.output.painted_note(&line),
        }
        state.step = text;
    }
}

impl ProgressSink for Progress {
    fn report(&self, percent: Option<f32>, message: &str) {
        if self.lasting {
            self.step(percent, message);
        } else if self.output.live() {
            let since = clock(self.began.elapsed()).len();
            let text = terminal::fit(
                &line(percent, message),
                terminal::width().saturating_sub(since + 4),
            );
            self.state()
                .bar
                .get_or_insert_with(|| self.moving())
                .set_message(text);
        } else if self.output.verbose > 0 {
            self.output.note(&line(percent, message));
        }
    }
}

/// How often a line is written where no bar can be shown.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Progress of work on many rows. Dropping it removes the bar.
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
        Self {
            output,
            what,
            bar: None,
            said: Instant::now(),
        }
    }

    /// Says how many rows are done, of how many if that is known.
    pub(crate) fn at(&mut self, done: u64, total: Option<u64>) {
        if self.output.live() {
            let bar = self.bar.get_or_insert_with(|| bar(self.what, total));
            // Rows that came since it was counted are done too.
            bar.set_length(total.unwrap_or(done).max(done));
            bar.set_position(done);
        } else if (!self.output.json || self.output.verbose > 0)
            && self.said.elapsed() >= LINE_EVERY
        {
            self.said = Instant::now();
            let of = total
                .map(|total| format!(" of {total}"))
                .unwrap_or_default();
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

/// Makes a line that moves by itself; `{since}` is the time since the start.
fn spinner(template: &str, began: Instant) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        let since = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
            // Fails only if the line cannot be drawn, and then there is nothing to draw.
            let _ = out.write_str(&clock(began.elapsed()));
        };
        bar.set_style(style.with_key("since", since));
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// Writes a time since a start: `0:07`, `12:34`, `1:02:03`.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

/// Limit of characters that are read of a report.
const MAX_REPORT: usize = 4096;

/// Formats a report as one line without control characters.
fn line(percent: Option<f32>, message: &str) -> String {
    let end = message
        .char_indices()
        .nth(MAX_REPORT)
        .map_or(message.len(), |(at, _)| at);
    let message = printable(message[..end].trim()).replace(['\n', '\t'], " ");
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
        assert_eq!(
            line(Some(12.4), "reading\nfiles\x1b[2J"),
            " 12% reading files\\u{1b}[2J"
        );
        assert_eq!(
            line(None, "reading\t\r\u{9b}\u{202e}x\n"),
            "reading \\u{d}\\u{9b}\\u{202e}x"
        );
        assert_eq!(line(None, &"x".repeat(1 << 20)).len(), MAX_REPORT);
    }

    #[test]
    fn a_time_reads_like_a_clock() {
        let times = [0, 7, 60, 754, 3723].map(|seconds| clock(Duration::from_secs(seconds)));
        assert_eq!(times, ["0:00", "0:07", "1:00", "12:34", "1:02:03"]);
    }
}
