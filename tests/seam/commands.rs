//! What each command prints.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;

use super::{Ended, Fixture};

fn with_stdin(place: &Fixture, words: &[&str], text: &[u8]) -> Ended {
    let mut command = place.command(words);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Who ends before it reads everything has said why.
    let _ = child.stdin.take().unwrap().write_all(text);
    let output = child.wait_with_output().unwrap();
    Ended {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn recall_is_markdown_with_final_newline() {
    let place = Fixture::new();
    let ended = place.run(&["recall-here"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
    assert!(
        ended
            .stdout
            .starts_with("# Auto-context recall — phase: work, project: seam-fixture\n"),
        "{ended:?}"
    );
    assert!(
        ended.stdout.ends_with('\n')
            && ended.stdout.contains("ALWAYS this")
            && ended.stdout.contains("DECIDED that")
    );
    assert!(!ended.stdout.contains("kind: rule"));
    let odd = place.run(&[
        "recall-here",
        "--phase",
        "not-a-real-phase",
        "--limit",
        "-5",
        "--query",
        "-none",
    ]);
    assert_eq!(
        odd, ended,
        "a phase that is unknown is work, no limit is the phase's, and a query does nothing"
    );
}

#[test]
fn typos_warn_on_stderr_and_change_nothing() {
    let place = Fixture::new();
    let work = place.run(&["recall-here"]);
    let told = |ended: &Ended, code: &str| {
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (0, work.stdout.as_str()),
            "{ended:?}"
        );
        assert!(
            ended.stderr.starts_with(&format!("warning[{code}]: ")),
            "{ended:?}"
        );
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    };
    told(
        &place.run(&["recall-here", "--phase", "PLAN"]),
        "unknown-phase",
    );
    let budget = |words: &[&str]| {
        Ended::of(
            place
                .command(words)
                .env("HARNESS_RECALL_BUDGET_WORK", "12k"),
        )
    };
    told(&budget(&["recall-here"]), "budget-unknown");
    assert_eq!(budget(&["plans"]).stderr, "", "nothing is recalled");
    let json: Value = serde_json::from_str(
        &place
            .run(&["recall-here", "--phase", "Plan", "--json"])
            .stdout,
    )
    .unwrap();
    assert_eq!(json["warnings"][0]["code"], "unknown-phase", "{json}");
}

#[test]
fn a_query_filters_only_if_that_is_set() {
    let place = Fixture::new();
    place.write(
        "home/.config/helmdeck/helmdeck.toml",
        "[seam]\nquery = \"filter\"\n",
    );
    assert!(
        !place
            .run(&["recall-here", "--query", "unheard"])
            .stdout
            .contains("DECIDED")
    );
    assert!(
        place
            .run(&["recall-here", "--query", "decided"])
            .stdout
            .contains("DECIDED")
    );
}

#[test]
fn settings_name_the_vault_without_variables() {
    let place = Fixture::new();
    let vault = place.path("vault");
    place.write(
        "home/.config/helmdeck/helmdeck.toml",
        format!("[seam]\nvault = \"{}\"\n", vault.display()),
    );
    assert!(
        Ended::of(&mut place.bare(&["recall-here"]))
            .stdout
            .contains("ALWAYS")
    );
    let hidden = Ended::of(
        place
            .bare(&["recall-here"])
            .env("HELMDECK_MEMORY", place.path("gone")),
    );
    assert_eq!((hidden.code, hidden.stdout.as_str()), (0, ""));
    assert!(
        hidden.stderr.starts_with("warning[memory-unreadable]: ")
            && hidden.stderr.contains("HELMDECK_MEMORY")
    );
    assert_eq!(hidden.stderr.lines().count(), 1, "{hidden:?}");
}

#[test]
fn a_state_path_is_one_line() {
    let place = Fixture::new();
    let path = |name: &str| {
        place
            .path(&format!("vault/projects/seam-fixture/_harness/{name}"))
            .display()
            .to_string()
    };
    assert_eq!(
        place.run(&["state-path", "plan"]).stdout,
        format!("{}\n", path("PLAN.md"))
    );
    assert_eq!(
        place
            .run(&["state-path", "progress", "--plan", "foo"])
            .stdout,
        format!("{}\n", path("progress-foo.md"))
    );
    let both = place.run(&["state-path", "both", "--plan", ""]);
    assert_eq!(
        both.stdout,
        format!("{}\t{}\n", path("PLAN.md"), path("progress.md"))
    );
    let tracker = place.run(&["state-path", "tracker"]);
    assert_eq!(
        (
            tracker.code,
            tracker.stdout.lines().count(),
            tracker.stderr.as_str()
        ),
        (0, 1, ""),
        "{tracker:?}"
    );
    let json: Value =
        serde_json::from_str(&place.run(&["state-path", "plan", "--json"]).stdout).unwrap();
    assert_eq!(
        (json["plan"].as_str(), json["store"].as_str()),
        (Some(&*path("PLAN.md")), Some("vault"))
    );
}

#[test]
fn empty_plan_argument_means_the_bound_plan() {
    let place = Fixture::new();
    place.write("repo/.harness/active-plan", "foo\n");
    place.write(
        "vault/projects/seam-fixture/_harness/PLAN-foo.md",
        "# Foo\n",
    );
    assert!(
        place
            .run(&["state-path", "plan", "--plan", ""])
            .stdout
            .ends_with("/PLAN-foo.md\n")
    );
    assert!(
        place
            .run(&["state-path", "plan", "--plan", "PLAN"])
            .stdout
            .ends_with("/PLAN.md\n")
    );
}

#[test]
fn offer_is_a_list_in_fixed_order() {
    let place = Fixture::new();
    let words = [
        "offer-save-here",
        "--kind",
        "fix",
        "--slug",
        "a-b",
        "--phase",
        "review",
        "--confidence",
        "0.9",
        "--confidence-reason",
        "seen",
    ];
    let ended = with_stdin(&place, &words, "the body ä\n".as_bytes());
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
    assert!(ended.stdout.starts_with(
        "[\n  {\n    \"kind\": \"fix\",\n    \"slug\": \"a-b\",\n    \"body\": \"the body ä\\n\","
    ));
    let names: Vec<&str> = ended
        .stdout
        .lines()
        .filter_map(|line| line.trim().strip_prefix('"')?.split('"').next())
        .collect();
    let expected = [
        "kind",
        "slug",
        "body",
        "confidence",
        "confidence_reason",
        "project",
        "phase",
        "target",
        "target_key",
    ];
    assert_eq!(names[..9], expected, "{names:?}");
    let offers: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        (
            offers[0]["project"].as_str(),
            offers[0]["confidence"].as_f64()
        ),
        (Some("seam-fixture"), Some(0.9))
    );

    place.write("repo/body.txt", "from a file");
    let from_file = place.run(&[
        "offer-save-here",
        "--kind",
        "fix",
        "--slug",
        "a",
        "--body-file",
        "body.txt",
    ]);
    assert!(
        from_file.stdout.contains("\"body\": \"from a file\""),
        "{from_file:?}"
    );
}

#[test]
fn a_whole_candidate_may_be_any_json() {
    let place = Fixture::new();
    let offer = |text: &str| {
        let ended = with_stdin(
            &place,
            &["offer-save-here", "--candidate-json", "-"],
            text.as_bytes(),
        );
        assert_eq!(ended.code, 0, "{ended:?}");
        serde_json::from_str::<Value>(&ended.stdout).unwrap()
    };
    assert_eq!(offer("\"words\"")[0]["body"], "words");
    assert_eq!(offer("{\"kind\": \"fix\", \"more\": [1]}")[0]["more"][0], 1);
    for nothing in ["null", "{}", "\"\""] {
        assert_eq!(offer(nothing), serde_json::json!([]), "{nothing}");
    }
}

#[test]
fn plan_list_marks_the_bound_plan() {
    let place = Fixture::new();
    place.write("repo/.harness/active-plan", "foo");
    place.write(
        "vault/projects/seam-fixture/_harness/PLAN-foo.md",
        "Status: open\n",
    );
    let ended = place.run(&["plans"]);
    let folder = place
        .path("vault/projects/seam-fixture/_harness")
        .display()
        .to_string();
    let expected = format!(
        "{folder}/PLAN.md\tin work\tlast words\n{folder}/PLAN-foo.md\topen\t\nactive-binding=foo\n"
    );
    assert_eq!((ended.code, ended.stdout), (0, expected));
}

#[test]
fn a_reader_who_goes_away_is_no_failure() {
    let place = Fixture::new();
    let mut child = place
        .command(&["recall-here"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    if let Ok(full) = full {
        let output = place
            .command(&["recall-here"])
            .stdout(full)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("error[output]: stdout: "));
    }
}
