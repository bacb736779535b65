//! Clocks, medians and the table.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Number of rounds of which a figure is the median.
pub(crate) const ROUNDS: usize = 31;

/// Returns the processor time of this thread.
pub(crate) fn thread_cpu() -> Duration {
    of(ClockId::ThreadCPUTime)
}

/// Returns the processor time of the whole process.
pub(crate) fn process_cpu() -> Duration {
    of(ClockId::ProcessCPUTime)
}

fn of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Runs two operations in turn, `count` times a round each, and returns the medians of the thread's
/// CPU microseconds per operation. In turn, so that whatever else the machine does meets both.
pub(crate) fn per_operation(count: usize, mut operations: [&mut dyn FnMut(); 2]) -> [f64; 2] {
    let mut rounds = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        for (operation, rounds) in operations.iter_mut().zip(&mut rounds) {
            let before = thread_cpu();
            for _ in 0..count {
                operation();
            }
            // The first round warms up.
            if round > 0 {
                rounds.push((thread_cpu() - before).as_secs_f64() * 1e6 / count as f64);
            }
        }
    }
    rounds.map(|rounds| median(rounds.into_iter()))
}

/// Returns the median.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Sorts the times, and returns the given percentile.
pub(crate) fn percentile(times: &mut [Duration], percent: f64) -> Duration {
    times.sort();
    times[((times.len() - 1) as f64 * percent / 100.0).round() as usize]
}

/// Returns the resident memory of a process.
pub(crate) fn resident_mib(process: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim()
        .trim_end_matches(" kB")
        .trim()
        .parse::<f64>()
        .unwrap()
        / 1024.0
}

/// Returns the release program: the one that `HELMDECK_RELEASE_PROGRAM` names, or that beside this
/// one.
#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark is no part of the program"
)]
pub(crate) fn program() -> std::path::PathBuf {
    let named = std::env::var_os("HELMDECK_RELEASE_PROGRAM").map(std::path::PathBuf::from);
    named.unwrap_or_else(|| std::env::current_exe().unwrap().with_file_name("helmdeck"))
}

/// Table of the results.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<(String, String, String, &'static str)>);

impl Table {
    /// Adds a figure with its target; `met` says whether it is reached.
    pub(crate) fn add(&mut self, what: &str, figure: String, target: &str, met: bool) {
        let verdict = match (target.is_empty(), met) {
            (true, _) => "",
            (_, true) => "met",
            (_, false) => "MISSED",
        };
        self.0
            .push((what.to_owned(), figure, target.to_owned(), verdict));
    }

    /// Returns whether a target is not reached.
    pub(crate) fn has_missed(&self) -> bool {
        self.0.iter().any(|(_, _, _, verdict)| *verdict == "MISSED")
    }

    pub(crate) fn print(&self) {
        let width = |pick: fn(&(String, String, String, &'static str)) -> usize| {
            self.0.iter().map(pick).max().unwrap_or(0)
        };
        let (a, b, c) = (
            width(|r| r.0.len()),
            width(|r| r.1.len()),
            width(|r| r.2.len()),
        );
        for (what, figure, target, verdict) in &self.0 {
            println!("{what:<a$}  {figure:>b$}  {target:<c$}  {verdict}");
        }
    }
}
