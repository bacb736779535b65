//! Progress reports of a run: a line per step.

use helmdeck_core::Context;
use helmdeck_core::session::{Ended, Executed};

use super::trajectory::Spent;

/// Start and end of the steps, in percent.
const STEPS: (f32, f32) = (15.0, 75.0);

/// Maximum length of a command in a line, in characters.
const MAX_COMMAND_CHARS: usize = 60;

/// Reports a step: `3/30 grep -n '%f' parse.py -> 0, 0.1 s, 1.2 kt, $0.0012`.
pub(super) fn report(context: &Context, step: u32, steps: u32, what: &str, spent: &Spent) {
    let part = step.min(steps) as f32 / steps.max(1) as f32;
    let percent = STEPS.0 + (STEPS.1 - STEPS.0) * part;
    context.report(
        Some(percent),
        &format!("{step}/{steps} {what}, {}", so_far(spent)),
    );
}

/// Describes a command and its end.
pub(super) fn command(command: &str, executed: &Executed) -> String {
    let mut lines = command.trim().lines();
    let first = lines.next().unwrap_or_default();
    let mut shown: String = first
        .chars()
        .take(MAX_COMMAND_CHARS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if lines.next().is_some() || first.chars().nth(MAX_COMMAND_CHARS).is_some() {
        shown.push('…');
    }
    let ended = match executed.ended {
        Ended::Exited(status) => status.to_string(),
        Ended::Signalled(signal) => format!("signal {signal}"),
        Ended::TimedOut => "timed out".to_owned(),
        Ended::OutOfMemory => "out of memory".to_owned(),
        Ended::OutOfDisk => "out of disk".to_owned(),
    };
    format!(
        "{shown} -> {ended}, {:.1} s",
        executed.duration.as_secs_f64()
    )
}

/// Describes the usage so far: `1.2 kt, $0.0012`.
pub(super) fn so_far(spent: &Spent) -> String {
    let tokens = spent.usage.prompt_tokens + spent.usage.completion_tokens;
    let cost = spent
        .known_cost()
        .map_or_else(String::new, |usd| format!(", ${usd:.4}"));
    format!("{:.1} kt{cost}", tokens as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use helmdeck_core::session::Captured;
    use helmdeck_llm::Usage;

    use super::*;

    #[test]
    fn a_line_shows_the_head_of_a_command_and_its_end() {
        let executed = |ended| Executed {
            stdout: Captured::default(),
            stderr: Captured::default(),
            ended,
            duration: Duration::from_millis(120),
        };
        assert_eq!(
            command("grep -n '%f' parse.py\n", &executed(Ended::Exited(0))),
            "grep -n '%f' parse.py -> 0, 0.1 s"
        );
        let long = command(
            &format!("cat > a\u{1b}[31m <<'E'\n{}", "x".repeat(200)),
            &executed(Ended::TimedOut),
        );
        assert_eq!(long, "cat > a [31m <<'E'… -> timed out, 0.1 s");
        assert!(
            command(&"ö".repeat(100), &executed(Ended::Exited(1)))
                .starts_with(&format!("{}…", "ö".repeat(60)))
        );
    }

    #[test]
    fn an_unknown_cost_is_not_shown_as_nothing() {
        let usage = Usage {
            prompt_tokens: 1000,
            completion_tokens: 240,
            cached_tokens: 0,
        };
        assert_eq!(
            so_far(&Spent {
                steps: 1,
                usage,
                cost: Some(0.0012)
            }),
            "1.2 kt, $0.0012"
        );
        assert_eq!(
            so_far(&Spent {
                steps: 1,
                usage,
                cost: None
            }),
            "1.2 kt"
        );
    }
}
