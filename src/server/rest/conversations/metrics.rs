//! The counters of conversations, as `OpenMetrics` text after those of the engine.

use std::collections::BTreeMap;
use std::fmt::Write;

use helmdeck_conversation::Metrics;

/// End marker of the text.
const END: &str = "# EOF\n";

/// Adds the counters to the engine's text.
pub(crate) fn add(mut text: String, metrics: &Metrics) -> String {
    if text.ends_with(END) {
        text.truncate(text.len() - END.len());
    }
    let Metrics {
        turns_added,
        turns_with_secret,
        summaries,
        summaries_discarded,
        summary_failures,
        turns_dropped,
        identities_rejected,
        health_moves,
        hot_hits,
        hot_misses,
        hot_bytes,
        backlog,
        long_backlogs,
    } = metrics;
    for (name, help, value) in [
        ("turns_added", "Turns that were added", turns_added),
        (
            "turns_with_secret",
            "Turns added that look like they hold a credential",
            turns_with_secret,
        ),
        ("folds", "Summaries that were made and stored", summaries),
        (
            "folds_discarded",
            "Summaries thrown away because the conversation was changed meanwhile",
            summaries_discarded,
        ),
        (
            "long_backlogs",
            "Times that more batches of a conversation waited than recovery_backlog_max",
            long_backlogs,
        ),
        (
            "turns_dropped",
            "Turns dropped before they were summarised",
            turns_dropped,
        ),
        (
            "identities_rejected",
            "Calls refused for an incomplete identity",
            identities_rejected,
        ),
        ("hot_hits", "Reads that were answered from memory", hot_hits),
        (
            "hot_misses",
            "Reads that were not answered from memory",
            hot_misses,
        ),
    ] {
        head(&mut text, name, "counter", help);
        line(&mut text, format_args!("{name}_total {value}"));
    }
    by(
        &mut text,
        "fold_failures",
        "Failures to make a summary, by reason",
        "reason",
        summary_failures,
    );
    by(
        &mut text,
        "health_moves",
        "Changes of health, by the new state",
        "state",
        health_moves,
    );
    for (name, help, value) in [
        ("backlog", "Conversations that wait for a summary", backlog),
        (
            "hot_bytes",
            "Size of the conversations in memory",
            hot_bytes,
        ),
    ] {
        head(&mut text, name, "gauge", help);
        line(&mut text, format_args!("{name} {value}"));
    }
    text.push_str(END);
    text
}

/// Adds a counter of several lines. The labels are constants that need no escaping.
fn by(
    text: &mut String,
    name: &str,
    help: &str,
    label: &str,
    values: &BTreeMap<&'static str, u64>,
) {
    head(text, name, "counter", help);
    for (word, value) in values {
        line(
            text,
            format_args!("{name}_total{{{label}=\"{word}\"}} {value}"),
        );
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    text.push_str("# HELP ");
    line(text, format_args!("{name} {help}."));
    text.push_str("# TYPE ");
    line(text, format_args!("{name} {kind}"));
}

fn line(text: &mut String, rest: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "helmdeck_conversation_{rest}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_stays_one_exposition() {
        let metrics = Metrics {
            turns_added: 3,
            summary_failures: [("garbage", 1), ("timeout", 2)].into(),
            backlog: 7,
            ..Metrics::default()
        };
        let text = add("# TYPE a counter\na_total 1\n# EOF\n".to_owned(), &metrics);
        for line in [
            "a_total 1",
            "# HELP helmdeck_conversation_turns_added Turns that were added.",
            "# TYPE helmdeck_conversation_turns_added counter",
            "helmdeck_conversation_turns_added_total 3",
            "helmdeck_conversation_fold_failures_total{reason=\"garbage\"} 1",
            "helmdeck_conversation_fold_failures_total{reason=\"timeout\"} 2",
            "# TYPE helmdeck_conversation_backlog gauge",
            "helmdeck_conversation_backlog 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert_eq!(
            (text.matches("# EOF").count(), text.ends_with("\n# EOF\n")),
            (1, true),
            "{text}"
        );
    }
}
