//! The metrics of a server as one `OpenMetrics` text: its engine, its conversations, its build, its
//! process.

use std::fmt::Write as _;
use std::fs;

use helmdeck_conversation::Conversations;
use helmdeck_engine::Engine;

use crate::rest::conversation_metrics;

/// End marker of the text.
const END: &str = "# EOF\n";
/// Ticks per second of the times in `/proc` (`USER_HZ`): 100 on every architecture that this
/// program is built for.
const TICKS: f64 = 100.0;

/// Returns all metrics as `OpenMetrics` text, as `/metrics` answers.
#[must_use]
pub fn metrics(engine: &Engine, conversations: &Conversations) -> String {
    let mut text = engine.metrics();
    if let Some(memory) = conversations.opened() {
        text = conversation_metrics(text, &memory.metrics());
    }
    if text.ends_with(END) {
        text.truncate(text.len() - END.len());
    }
    add_build(&mut text);
    if let Some(process) = Process::read() {
        process.add(&mut text);
    }
    text.push_str(END);
    text
}

fn add_build(text: &mut String) {
    text.push_str("# HELP helmdeck_build The program that runs.\n# TYPE helmdeck_build info\n");
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "helmdeck_build_info{{version=\"{}\"}} 1",
        env!("CARGO_PKG_VERSION")
    );
}

/// Facts about this process, from `/proc`. Names and meanings are those that all clients of
/// Prometheus use.
#[derive(Debug, PartialEq)]
struct Process {
    cpu_seconds: f64,
    threads: u64,
    start_seconds: f64,
    virtual_bytes: u64,
    resident_bytes: u64,
    open_fds: Option<u64>,
    max_fds: Option<u64>,
}

impl Process {
    /// Reads them, `None` where there is no `/proc`.
    fn read() -> Option<Self> {
        let file = |name: &str| fs::read_to_string(format!("/proc/{name}")).ok();
        let mut process = Self::parse(&file("self/stat")?, &file("self/status")?, &file("stat")?)?;
        // The folder itself is open while it is listed.
        process.open_fds = fs::read_dir("/proc/self/fd")
            .ok()
            .map(|files| (files.count() as u64).saturating_sub(1));
        process.max_fds = file("self/limits").and_then(|limits| {
            let line = limits
                .lines()
                .find_map(|line| line.strip_prefix("Max open files"))?
                .trim_start();
            line.split(' ').next()?.parse().ok()
        });
        Some(process)
    }

    fn parse(stat: &str, status: &str, system: &str) -> Option<Self> {
        // The name of the program may contain spaces and parentheses; what follows it does not
        // (proc_pid_stat(5)).
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let kibibytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
        };
        let boot: f64 = system
            .lines()
            .find_map(|line| line.strip_prefix("btime "))?
            .trim()
            .parse()
            .ok()?;
        Some(Self {
            cpu_seconds: (number(11)? + number(12)?) as f64 / TICKS,
            threads: number(17)?,
            start_seconds: boot + number(19)? as f64 / TICKS,
            virtual_bytes: kibibytes("VmSize:")?,
            resident_bytes: kibibytes("VmRSS:")?,
            open_fds: None,
            max_fds: None,
        })
    }

    fn add(&self, text: &mut String) {
        let mut add = |name: &str, kind: &str, help: &str, value: &dyn std::fmt::Display| {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let _ = write!(
                text,
                "# HELP process_{name} {help}.\n# TYPE process_{name} {kind}\n"
            );
            let _ = writeln!(text, "process_{name}{suffix} {value}");
        };
        add(
            "cpu_seconds",
            "counter",
            "User and system CPU time in seconds",
            &self.cpu_seconds,
        );
        add("threads", "gauge", "Number of threads", &self.threads);
        add(
            "start_time_seconds",
            "gauge",
            "When the process started, in seconds since 1970",
            &self.start_seconds,
        );
        add(
            "virtual_memory_bytes",
            "gauge",
            "Size of the virtual memory in bytes",
            &self.virtual_bytes,
        );
        add(
            "resident_memory_bytes",
            "gauge",
            "Size of the memory in use in bytes",
            &self.resident_bytes,
        );
        if let Some(open) = self.open_fds {
            add("open_fds", "gauge", "Number of open files", &open);
        }
        if let Some(most) = self.max_fds {
            add("max_fds", "gauge", "Limit of open files", &most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_read_by_position_after_the_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 9 0 0 0 150 50 0 0 20 0 12 0 2500 1 2 3";
        let status = "Name:\ta\nVmSize:\t    2048 kB\nVmRSS:\t     100 kB\n";
        let process = Process::parse(stat, status, "cpu 1\nbtime 1000\n").unwrap();
        let wanted = Process {
            cpu_seconds: 2.0,
            threads: 12,
            start_seconds: 1025.0,
            virtual_bytes: 2 << 20,
            resident_bytes: 100 << 10,
            open_fds: None,
            max_fds: None,
        };
        assert_eq!(process, wanted);
    }

    #[test]
    fn counters_end_with_total() {
        let mut text = String::new();
        let process = Process::parse(
            "7 (a) S 1 7 7 0 -1 4194560 9 0 0 0 1 1 0 0 20 0 1 0 5 1",
            "VmSize: 1 kB\nVmRSS: 1 kB\n",
            "btime 1\n",
        );
        process.unwrap().add(&mut text);
        assert!(
            text.contains("# TYPE process_cpu_seconds counter\nprocess_cpu_seconds_total 0.02\n"),
            "{text}"
        );
        assert!(
            text.contains("\nprocess_resident_memory_bytes 1024\n"),
            "{text}"
        );
    }
}
