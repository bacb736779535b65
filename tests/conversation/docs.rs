//! `docs/conversation.md`: its settings work, and the figures in it are the defaults.

use helmdeck_conversation::health::Reason;
use helmdeck_conversation::summarizer::Failure;
use helmdeck_conversation::{Config, Health, Strategy};

use crate::support::KEY;
use crate::support::program::Home;

const PAGE: &str = include_str!("../../docs/conversation.md");

/// Returns the text of the code blocks of a language.
fn blocks(language: &str) -> Vec<&'static str> {
    // Between two fences there is always a block, then prose.
    let parts = PAGE.split("\n```").skip(1).step_by(2);
    parts
        .filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n'))
        .collect()
}

#[test]
fn the_settings_are_read_as_written() {
    let home = Home::new();
    for block in blocks("toml") {
        home.configure(block);
        let shown = home.run(KEY, &["config", "show"]);
        assert!(
            shown.code == 0 && shown.stdout.contains("rolling_summary"),
            "{}{}",
            shown.stdout,
            shown.stderr
        );
    }
    home.configure("[conversation]\nstrategy = \"rolling_summary\"\n");
    assert_eq!(
        home.run(KEY, &["serve", "--listen", "127.0.0.1:0"]).code,
        78,
        "no stand-in is ever used"
    );
}

#[test]
fn the_figures_are_the_defaults() {
    let config = Config::default();
    let summarizer = &config.summarizer;
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    for words in [
        format!("`{}` (default)", config.strategy),
        format!("`recent_turns` ({})", config.recent_turns),
        format!(
            "`batch_turns` ({}) and `batch_tokens` ({})",
            summarizer.batch_turns, summarizer.batch_tokens
        ),
        format!("`budget_tokens` ({})", config.budget_tokens),
        format!(
            "`summarizer.summary_tokens` ({})",
            summarizer.summary_tokens
        ),
        format!("`retry_wait` ({} s)", summarizer.retry_wait.as_secs()),
        format!("`max_attempts` ({})", summarizer.max_attempts),
        format!(
            "`max_retry_wait` ({} min)",
            summarizer.max_retry_wait.as_secs() / 60
        ),
        format!(
            "| `ttl` | ends after {} days",
            config.ttl.as_secs() / 86_400
        ),
        format!("| `max_turns` | the newest {},000", config.max_turns / 1000),
        format!("| `max_bytes` | {}", mib(config.max_bytes)),
        format!("`hot_for` ({} ms)", config.hot_for.as_millis()),
        format!("`max_turn_bytes`, {} KiB", config.max_turn_bytes >> 10),
        format!("`hot_bytes`, {}", mib(config.hot_bytes)),
        format!("`summarizer.concurrency`, {}", summarizer.concurrency),
    ] {
        assert!(PAGE.contains(&words), "the page does not say {words:?}");
    }
    for name in Strategy::ALL
        .map(Strategy::as_str)
        .into_iter()
        .chain(Health::ALL.map(Health::as_str))
    {
        assert!(
            PAGE.contains(&format!("| `{name}`")),
            "the page has no row or column for {name}"
        );
    }
}

#[test]
fn every_fixed_word_is_explained() {
    // A new name must be added here, or this does not build.
    const FAILURES: [Failure; 10] = {
        use Failure as F;
        const fn listed(failure: Failure) -> Failure {
            match failure {
                F::Unavailable
                | F::Timeout
                | F::RateLimited
                | F::Credential
                | F::Refused
                | F::TooLong
                | F::Truncated
                | F::OverLimit
                | F::Garbage
                | F::Looping => failure,
            }
        }
        [
            listed(F::Unavailable),
            listed(F::Timeout),
            listed(F::RateLimited),
            listed(F::Credential),
            listed(F::Refused),
            listed(F::TooLong),
            listed(F::Truncated),
            listed(F::OverLimit),
            listed(F::Garbage),
            listed(F::Looping),
        ]
    };
    const REASONS: [Reason; 9] = {
        use Reason as R;
        const fn listed(reason: Reason) -> Reason {
            match reason {
                R::SummarizerFailed
                | R::SummarizerSucceeded
                | R::RetriesExhausted
                | R::RecoveryLoopAttempt
                | R::RecoveryBatchFailed
                | R::RecoveryBatchDrained
                | R::RecoveryLoopDrained
                | R::Flushed
                | R::Restored => reason,
            }
        }
        [
            listed(R::SummarizerFailed),
            listed(R::SummarizerSucceeded),
            listed(R::RetriesExhausted),
            listed(R::RecoveryLoopAttempt),
            listed(R::RecoveryBatchFailed),
            listed(R::RecoveryBatchDrained),
            listed(R::RecoveryLoopDrained),
            listed(R::Flushed),
            listed(R::Restored),
        ]
    };
    let rows: Vec<&str> = PAGE
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let explained = |word: &str| {
        let word = format!("`{word}`");
        rows.iter().any(|row| {
            row[1..]
                .split('|')
                .next()
                .is_some_and(|first| first.contains(&word))
        })
    };
    let words = FAILURES
        .map(Failure::as_str)
        .into_iter()
        .chain(REASONS.map(Reason::as_str));
    for word in words.chain(dropped()) {
        assert!(explained(word), "no row says what {word} is");
    }
    // The transports that list the words list all of them.
    let document = include_str!("../../src/server/openapi/conversations.json");
    let manifest = include_str!("../../packs/conversation/health.toml");
    for word in FAILURES.map(Failure::as_str) {
        assert!(
            document.contains(&format!("\"{word}\"")) && manifest.contains(word),
            "{word}"
        );
    }
}

/// Returns the reasons of dropped turns, as the code has them.
fn dropped() -> Vec<&'static str> {
    let sources = [
        include_str!("../../src/conversation/worker/summarise.rs"),
        include_str!("../../src/conversation/memory/replace.rs"),
        include_str!("../../src/conversation/worker/prune.rs"),
    ];
    let calls = sources
        .iter()
        .flat_map(|source| source.split("recovery_dropped(").skip(1));
    let mut words: Vec<&str> = calls
        .filter_map(|call| call.split(';').next()?.split('"').nth(1))
        .collect();
    words.extend(
        ["max_turns", "max_bytes"]
            .into_iter()
            .filter(|word| sources[2].contains(&format!("\"{word}\""))),
    );
    assert!(words.len() >= 4, "{words:?}");
    words
}

#[test]
fn every_pack_of_the_family_is_named() {
    let home = Home::new();
    let listed = home.run(KEY, &["pack", "list"]);
    let first = listed
        .stdout
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let names: Vec<&str> = first
        .filter(|word| word.starts_with("conversation."))
        .collect();
    assert_eq!(names.len(), 12, "{}", listed.stdout);
    for name in names {
        assert!(PAGE.contains(&format!("`{name}`")), "{name}");
    }
}
