//! Progress notifications of a running call: increasing, rate limited, and never after the result.

use parking_lot::Mutex;
use std::time::Duration;

use helmdeck_core::context::ProgressSink;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Shortest time between two reports. Of those in between, the last one is sent.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the result waits for the last report to be sent.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// Increment for a report with a new message and no higher percentage.
const NUDGE: f64 = 0.001;

/// A progress report for the client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Report {
    /// Greater than in every report before.
    pub(crate) progress: f64,
    /// 100 if `progress` is a percentage.
    pub(crate) total: Option<f64>,
    pub(crate) message: String,
}

/// Receiver of the reports of one call.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Report>,
    waiting: Option<Report>,
    sent_at: Option<Instant>,
}

impl ProgressSink for Reports {
    fn report(&self, percent: Option<f32>, message: &str) {
        let mut state = self.state.lock();
        let Some(report) = next(state.last.as_ref(), percent.map(f64::from), message) else {
            return;
        };
        state.last = Some(report.clone());
        state.waiting = Some(report);
        drop(state);
        self.wake.notify_one();
    }
}

fn next(last: Option<&Report>, percent: Option<f64>, message: &str) -> Option<Report> {
    let percent = percent
        .filter(|percent| percent.is_finite())
        .map(|percent| percent.clamp(0.0, 100.0));
    let report = |progress, total| {
        Some(Report {
            progress,
            total,
            message: message.to_owned(),
        })
    };
    match (last, percent) {
        (None, None) => report(1.0, None),
        (None, Some(percent)) => report(percent, Some(100.0)),
        (Some(last), Some(percent)) if percent > last.progress => report(percent, Some(100.0)),
        (Some(last), _) if last.message == message => None,
        (
            Some(Report {
                progress,
                total: None,
                ..
            }),
            _,
        ) => report(progress + 1.0, None),
        (
            Some(Report {
                progress, total, ..
            }),
            _,
        ) => report(progress + NUDGE, *total),
    }
}

impl Reports {
    fn take(&self) -> Option<Report> {
        let mut state = self.state.lock();
        state.sent_at = Some(Instant::now());
        state.waiting.take()
    }

    /// Waits for the next report that may be sent.
    async fn next(&self) -> Report {
        loop {
            let due = {
                let state = self.state.lock();
                state
                    .waiting
                    .as_ref()
                    .map(|_| state.sent_at.map(|at| at + PAUSE))
            };
            match due {
                None => self.wake.notified().await,
                Some(Some(at)) if at > Instant::now() => tokio::time::sleep_until(at).await,
                Some(_) => {
                    if let Some(report) = self.take() {
                        return report;
                    }
                }
            }
        }
    }
}

/// Waits for an answer and sends reports meanwhile. Nothing is sent after it returns.
pub(crate) async fn reporting<T, S: Future<Output = ()>>(
    reports: &Reports,
    send: impl Fn(Report) -> S,
    answer: impl Future<Output = T>,
) -> T {
    let mut answer = std::pin::pin!(answer);
    loop {
        let report = tokio::select! {
            biased;
            answer = &mut answer => {
                if let Some(report) = reports.take() {
                    let _ = tokio::time::timeout(LAST_WAIT, send(report)).await;
                }
                return answer;
            }
            report = reports.next() => report,
        };
        // The call continues while a report is sent to a slow client.
        let mut sending = std::pin::pin!(send(report));
        tokio::select! {
            biased;
            () = &mut sending => {}
            answer = &mut answer => {
                let _ = tokio::time::timeout(LAST_WAIT, sending).await;
                return answer;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_only_grows_and_a_repeat_is_dropped() {
        let reports = Reports::default();
        let mut seen: Vec<Report> = Vec::new();
        for (percent, message) in [
            (Some(10.0), "a"),
            (Some(10.0), "a"),
            (Some(5.0), "b"),
            (None, "c"),
            (Some(f32::NAN), "c"),
            (Some(90.0), "c"),
        ] {
            reports.report(percent, message);
            seen.extend(reports.take());
        }
        assert!(
            seen.windows(2)
                .all(|pair| pair[0].progress < pair[1].progress),
            "{seen:?}"
        );
        assert_eq!(
            seen.iter()
                .map(|report| report.message.as_str())
                .collect::<String>(),
            "abcc"
        );
        assert!(seen.iter().all(|report| report.total == Some(100.0)));
        let counted = Reports::default();
        counted.report(None, "a");
        assert_eq!(
            counted.take(),
            Some(Report {
                progress: 1.0,
                total: None,
                message: "a".to_owned()
            })
        );
        counted.report(None, "b");
        assert_eq!(counted.take().unwrap().progress, 2.0);
    }

    #[tokio::test(start_paused = true)]
    async fn reports_are_rate_limited_and_end_before_the_answer() {
        let reports = Reports::default();
        let sent = Mutex::new(Vec::new());
        let work = async {
            for step in 1..=50_u8 {
                reports.report(Some(f32::from(step)), "working");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            reports.report(Some(99.0), "nearly");
            "done"
        };
        let send = |report: Report| {
            sent.lock().push(report);
            std::future::ready(())
        };
        assert_eq!(reporting(&reports, send, work).await, "done");
        let sent = sent.into_inner();
        assert!((4..=8).contains(&sent.len()), "{sent:?}");
        assert!(
            sent.windows(2)
                .all(|pair| pair[0].progress < pair[1].progress)
        );
        assert_eq!(sent.last().unwrap().message, "nearly");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_client_delays_the_answer_briefly() {
        let reports = Reports::default();
        reports.report(None, "a");
        let started = Instant::now();
        let work = tokio::time::sleep(Duration::from_secs(5));
        reporting(&reports, |_| std::future::pending(), work).await;
        assert!(started.elapsed() <= Duration::from_secs(6) + PAUSE);
    }
}
