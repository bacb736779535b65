use std::time::Duration;

use helmdeck_conversation::Strategy;
use helmdeck_memory::Kind;

use super::*;
use crate::config::load;

fn loaded(pairs: &[(&str, &str)]) -> crate::config::Loaded {
    load(None, Vec::new(), &ProcessEnvironment::of(pairs)).unwrap()
}

fn problems(pairs: &[(&str, &str)]) -> Vec<String> {
    loaded(pairs)
        .problems
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn the_compiled_in_file_says_what_the_crates_default_to() {
    let settings = loaded(&[]).settings().unwrap();
    assert_eq!(settings.engine, helmdeck_engine::Config::default());
    assert_eq!(settings.server, ServerConfig::default());
    assert_eq!(
        settings.conversation,
        helmdeck_conversation::Config::default()
    );
    assert_eq!(
        format!("{:?}", settings.memory.store()),
        format!("{:?}", helmdeck_memory::config::Config::default())
    );
    assert_eq!(
        format!("{:?}", settings.egress),
        format!("{:?}", helmdeck_egress::Config::default())
    );
}

#[test]
fn the_compiled_in_file_names_every_setting_of_the_crates() {
    fn keys(value: &Value, at: &mut Key, out: &mut Vec<Key>) {
        match value {
            Value::Table(table) => {
                for (name, value) in table {
                    at.push(name.clone());
                    keys(value, at, out);
                    at.pop();
                }
            }
            _ => out.push(at.clone()),
        }
    }
    let layers = Layers::defaults();
    let mut expected = Vec::new();
    keys(
        &Value::try_from(helmdeck_engine::Config::default()).unwrap(),
        &mut Vec::new(),
        &mut expected,
    );
    keys(
        &Value::try_from(ServerConfig::default()).unwrap(),
        &mut vec!["server".to_owned()],
        &mut expected,
    );
    let conversation = Value::try_from(helmdeck_conversation::Config::default()).unwrap();
    keys(
        &conversation,
        &mut vec!["conversation".to_owned()],
        &mut expected,
    );
    assert!(
        expected
            .iter()
            .any(|key| key.join(".") == "conversation.summarizer.max_retry_wait")
    );
    for key in expected {
        assert!(
            layers.iter().any(|(known, _)| *known == key),
            "config/helmdeck.toml lacks {}",
            key.join(".")
        );
    }
}

#[test]
fn a_value_that_its_crate_refuses_is_named_with_its_origin() {
    assert_eq!(
        problems(&[
            ("HELMDECK_CACHE__READ_BUDGET", "soon"),
            ("HELMDECK_CACHE__WRITE_QUEUE", "5")
        ]),
        [
            "HELMDECK_CACHE__READ_BUDGET: cache.read_budget: \"soon\" is not a duration; write for example \"500ms\", \"30s\", \"5m\", \"1h30m\" or \"7d\""
        ]
    );
    for (name, value, expected) in [
        (
            "HELMDECK_SERVER__LISTEN",
            "0.0.0.0:80",
            "server.listen: refusing to listen",
        ),
        ("HELMDECK_SERVER__MAX_REQUESTS", "-1", "server.max_requests"),
        ("HELMDECK_EGRESS_ALLOW", "10.0.0.0/99", "egress.allow"),
        (
            "HELMDECK_GITHUB_BASE_URL",
            "ftp://x",
            "github.base_url must be an http",
        ),
        (
            "HELMDECK_GITHUB_BASE_URL",
            "api.github.com",
            "github.base_url",
        ),
        (
            "HELMDECK_MEMORY__FINGERPRINT",
            "none",
            "\"plain\" or \"keyed\"",
        ),
        (
            "HELMDECK_MEMORY__CACHE_BYTES",
            "0",
            "memory.cache_bytes is 0",
        ),
        ("HELMDECK_MEMORY__CACHE_BYTES", "much", "memory.cache_bytes"),
        (
            "HELMDECK_MEMORY__KINDS__NOTE__RETENTION",
            "soon",
            "memory.kinds.note.retention",
        ),
        (
            "HELMDECK_MEMORY__KINDS__FACT__RETENTION",
            "0s",
            "memory.kinds.fact.retention is 0",
        ),
        (
            "HELMDECK_MEMORY__KINDS__CONVERSATION__RETENTION",
            "7d",
            "set conversation.ttl",
        ),
        (
            "HELMDECK_MEMORY__KINDS__AUDIT__ROWS",
            "many",
            "memory.kinds.audit.rows must be a whole number",
        ),
        (
            "HELMDECK_MEMORY__KINDS__AUDIT__ROWS",
            "-1",
            "memory.kinds.audit.rows",
        ),
        (
            "HELMDECK_MEMORY__KINDS__CACHE__BYTES",
            "1 elephant",
            "memory.kinds.cache.bytes",
        ),
        (
            "HELMDECK_MEMORY__KINDS__NOTES__ROWS",
            "1",
            "unknown variable; did you mean \"HELMDECK_MEMORY__KINDS__NOTE__ROWS\"?",
        ),
        (
            "HELMDECK_CONVERSATION__STRATEGY",
            "summary",
            "there are none, rolling_summary, truncation",
        ),
        (
            "HELMDECK_CONVERSATION__BUDGET_TOKENS",
            "-1",
            "conversation.budget_tokens",
        ),
        (
            "HELMDECK_CONVERSATION__TOKENS",
            "gpt",
            "conversation.tokens",
        ),
        ("HELMDECK_CONVERSATION__TTL", "soon", "conversation.ttl"),
        (
            "HELMDECK_CONVERSATION__RECENT_TURNS",
            "0",
            "conversation.recent_turns is 0",
        ),
        (
            "HELMDECK_CONVERSATION__SUMMARIZER__CONCURRENCY",
            "0",
            "conversation.summarizer.concurrency is 0",
        ),
        (
            "HELMDECK_CONVERSATION__SUMMARIZER__ENDPOINT",
            "ftp://x",
            "conversation.summarizer.endpoint",
        ),
        (
            "HELMDECK_CONVERSATION__SUMARIZER__MODEL",
            "x",
            "unknown variable; did you mean \"HELMDECK_CONVERSATION__SUMMARIZER__MODEL\"?",
        ),
        ("HELMDECK_CACHE__CLUSTER_WAIT", "long", "cache.cluster_wait"),
        ("HELMDECK_LOG", "a=b=c", "log.level"),
        ("HELMDECK_LOG__FORMAT", "xml", "log.format"),
    ] {
        let problems = problems(&[(name, value)]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].starts_with(name) && problems[0].contains(expected),
            "{}",
            problems[0]
        );
    }
}

#[test]
fn limits_of_a_kind_are_those_above_unless_it_says_otherwise() {
    let limits = |pairs| loaded(pairs).settings().unwrap().memory.store().limits;
    assert!(limits(&[]).kinds.is_empty());
    let of_kinds = limits(&[
        ("HELMDECK_MEMORY__MAX_ROWS", "7"),
        ("HELMDECK_MEMORY__CACHE_BYTES", "1GiB"),
        ("HELMDECK_MEMORY__KINDS__NOTE__ROWS", "3"),
        ("HELMDECK_MEMORY__KINDS__CACHE__BYTES", "2MiB"),
        ("HELMDECK_MEMORY__KINDS__AUDIT__RETENTION", "7d"),
    ]);
    assert_eq!((of_kinds.cache_bytes, of_kinds.kinds.len()), (1 << 30, 3));
    assert_eq!(
        (
            of_kinds.quota(Kind::Note).rows,
            of_kinds.quota(Kind::Fact).rows
        ),
        (3, 7)
    );
    assert_eq!(
        (
            of_kinds.quota(Kind::Cache).bytes,
            of_kinds.quota(Kind::Note).bytes
        ),
        (2 << 20, 4 << 30)
    );
    assert_eq!(
        of_kinds.retention(Kind::Audit),
        Some(Duration::from_secs(7 * 86_400))
    );
    assert_eq!(of_kinds.retention(Kind::Note), None);
}

#[test]
fn no_strategy_at_all_is_none() {
    let strategy = |pairs| loaded(pairs).settings().unwrap().conversation.strategy;
    assert_eq!(strategy(&[]), Strategy::Truncation);
    assert_eq!(
        strategy(&[("HELMDECK_CONVERSATION__STRATEGY", "")]),
        Strategy::None
    );
    assert_eq!(
        strategy(&[("HELMDECK_CONVERSATION__STRATEGY", "rolling_summary")]),
        Strategy::RollingSummary
    );
}

#[test]
fn a_tokenizer_is_there_or_refused() {
    let problems = problems(&[("HELMDECK_CONVERSATION__TOKENS", "cl100k_base")]);
    let known = cfg!(feature = "tiktoken");
    assert_eq!(problems.is_empty(), known, "{problems:?}");
    assert!(
        known || problems[0].contains("HELMDECK_CONVERSATION__TOKENS"),
        "{problems:?}"
    );
}

#[test]
fn a_secret_written_as_a_credential_is_refused_and_not_repeated() {
    let problems = problems(&[("HELMDECK_CREDENTIALS__GITHUB_TOKEN", "ghp_canary")]);
    assert!(
        problems[0].contains("credentials.github-token") && !problems[0].contains("canary"),
        "{problems:?}"
    );
}

#[test]
fn folders_follow_their_layer() {
    let settings = |pairs| loaded(pairs).settings().unwrap();
    let home = settings(&[("HOME", "/home/a")]);
    assert_eq!(
        home.data_dir().unwrap(),
        &PathBuf::from("/home/a/.local/share/helmdeck")
    );
    assert_eq!(
        home.packs_dir.unwrap(),
        PathBuf::from("/home/a/.config/helmdeck/packs")
    );
    assert_eq!(
        settings(&[("HELMDECK_DATA_DIR", "d")]).data_dir().unwrap(),
        &PathBuf::from("/work/d")
    );
    assert_eq!(
        settings(&[("HELMDECK_DATA_DIR", "/d")])
            .memory_url()
            .unwrap(),
        "sqlite:/d/memory.db"
    );
    assert_eq!(settings(&[]).data_dir().unwrap_err().exit() as u8, 78);
}

#[test]
fn a_file_is_read_and_its_folders_are_relative_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("h.toml");
    std::fs::write(
        &path,
        "data_dir = \"d\"\n[server]\ndrain_timeout = \"1s\"\n",
    )
    .unwrap();
    let loaded = load(Some(&path), Vec::new(), &ProcessEnvironment::of(&[])).unwrap();
    assert!(loaded.file_exists);
    let settings = loaded.settings().unwrap();
    assert_eq!(settings.data_dir().unwrap(), &dir.path().join("d"));
    assert_eq!(settings.packs_dir, Some(dir.path().join("packs")));
    assert_eq!(settings.server.drain_timeout, Duration::from_secs(1));
}

#[test]
fn the_example_is_understood() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/example.toml");
    let loaded = load(Some(&path), Vec::new(), &ProcessEnvironment::of(&[])).unwrap();
    assert_eq!(loaded.problems, []);
    assert_eq!(
        loaded.settings().unwrap().credentials["github-token"],
        "GITHUB_TOKEN"
    );
}
