//! Metrics of a real server: how many series there are, and that dashboard and alert rules use
//! those that exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::KEY;
use crate::support::program::{Home, Server};

/// Limit of series before the first call.
const MAX_SERIES: usize = 200;

fn contrib(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("contrib")
        .join(file)
}

/// Returns the samples of a server: names with labels, without values.
fn series(server: &Server) -> Vec<String> {
    let text = server.ask("GET /metrics", "").body;
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| line.rsplit_once(' ').unwrap().0.to_owned())
        .collect()
}

fn name(series: &str) -> &str {
    series.split('{').next().unwrap()
}

/// Returns what a test of Debian's `prometheus` package printed; it must succeed.
#[track_caller]
fn promtool(arguments: &[&str], folder: &Path) -> String {
    let output = Command::new("promtool")
        .args(arguments)
        .current_dir(folder)
        .output();
    let output =
        output.unwrap_or_else(|error| panic!("promtool (Debian package prometheus): {error}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{arguments:?}: {text}");
    text
}

#[test]
fn idle_server_has_few_series() {
    let home = Home::new();
    let server = Server::start(&home, KEY);
    let idle = series(&server);
    assert!(idle.len() <= MAX_SERIES, "{}: {idle:#?}", idle.len());
    assert!(
        !idle.iter().any(|series| series.contains("pack=\"")),
        "{idle:#?}"
    );
    for wanted in [
        "helmdeck_build_info",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
        "process_threads",
    ] {
        assert!(
            idle.iter().any(|series| name(series) == wanted),
            "{wanted}: {idle:#?}"
        );
    }
    server.call("test.echo", &json!({"repo": "a"}));
    let called = series(&server);
    let of_pack: BTreeSet<&str> = called
        .iter()
        .filter(|series| series.contains("pack=\"test.echo\""))
        .map(|series| name(series))
        .collect();
    let wanted = [
        "helmdeck_cache_answers_total",
        "helmdeck_call_duration_seconds_bucket",
        "helmdeck_call_duration_seconds_count",
        "helmdeck_call_duration_seconds_sum",
        "helmdeck_calls_total",
    ];
    assert_eq!(of_pack, BTreeSet::from(wanted));
    // Without this bucket, Prometheus computes no quantile.
    let last = "helmdeck_call_duration_seconds_bucket{le=\"+Inf\",pack=\"test.echo\"}";
    assert!(called.iter().any(|series| series == last), "{called:#?}");
}

/// Returns the names of metrics in an expression of `PromQL`.
fn names_in(expression: &str) -> impl Iterator<Item = &str> {
    let word = |char: char| char.is_ascii_alphanumeric() || char == '_';
    expression.split(move |char| !word(char)).filter(|word| {
        word.starts_with("helmdeck_") || (word.starts_with("process_") && *word != "process_")
    })
}

/// Collects the values of all members with a name.
fn collect<'a>(value: &'a Value, member: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                if name == member {
                    found.extend(value.as_str());
                }
                collect(value, member, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, member, found)),
        _ => {}
    }
}

#[test]
fn dashboard_and_alerts_use_metrics_that_exist() {
    let home = Home::new();
    let server = Server::start(&home, KEY);
    for _ in 0..2 {
        server.call("test.echo", &json!({"repo": "a"}));
    }
    let exist: BTreeSet<String> = series(&server)
        .iter()
        .map(|series| name(series).to_owned())
        .collect();

    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(contrib("grafana/helmdeck.json")).unwrap())
            .unwrap();
    let mut expressions = Vec::new();
    collect(&dashboard, "expr", &mut expressions);
    collect(&dashboard, "definition", &mut expressions);
    assert!(expressions.len() > 25, "{expressions:#?}");
    let alerts = std::fs::read_to_string(contrib("prometheus/alerts.yml")).unwrap();
    // The test has no parser of YAML: any word of the file that looks like a metric counts.
    let rules: String = alerts
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .collect::<Vec<_>>()
        .join("\n");
    let used: BTreeSet<&str> = expressions
        .into_iter()
        .chain([rules.as_str()])
        .flat_map(names_in)
        .collect();
    let missing: Vec<&&str> = used.iter().filter(|used| !exist.contains(**used)).collect();
    assert!(
        used.len() > 20 && missing.is_empty(),
        "{missing:?} of {used:?} are not in {exist:#?}"
    );
}

#[test]
fn alert_rules_pass_promtool() {
    let folder = contrib("prometheus");
    let checked = promtool(&["check", "rules", "alerts.yml"], &folder);
    assert!(checked.contains("12 rules found"), "{checked}");
    let tested = promtool(&["test", "rules", "alerts_test.yml"], &folder);
    assert!(tested.contains("SUCCESS"), "{tested}");
}

#[test]
fn dashboard_expressions_pass_promtool() {
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(contrib("grafana/helmdeck.json")).unwrap())
            .unwrap();
    let mut expressions = Vec::new();
    collect(&dashboard, "expr", &mut expressions);
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (number, expression) in expressions.iter().enumerate() {
        let expression = expression
            .replace("$__rate_interval", "5m")
            .replace("$job", ".*");
        let expression = expression.replace("$instance", ".*").replace("$pack", ".*");
        rules.push_str(&format!(
            "      - record: expression:{number}\n        expr: {}\n",
            json!(expression)
        ));
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("dashboard.yml"), rules).unwrap();
    let checked = promtool(&["check", "rules", "dashboard.yml"], folder.path());
    assert!(
        checked.contains(&format!("{} rules found", expressions.len())),
        "{checked}"
    );
}
