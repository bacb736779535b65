//! `helmdeck seam doctor`: what the seam sees, what says so, and everything that is wrong.

use serde_json::{Value, json};

use super::{Ended, Fixture};

#[test]
fn doctor_reports_what_the_seam_sees() {
    let place = Fixture::new();
    place.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    place.write("repo/.git/objects/keep", "");
    place.write("repo/.git/refs/keep", "");
    place.write("repo/.harness/active-plan", "foo");
    place.write(
        "repo/.forge/memory/long-term/architecture.md",
        "# Built so\n",
    );
    place.write(
        "vault/projects/seam-fixture/_harness/PLAN-foo.md",
        "Status: open\n",
    );
    let at = |path: &str| place.path(path).display().to_string();
    let expected = format!(
        "root: {repo}\nproject: seam-fixture (vault_project)\nvault: {vault} (MEMORY_VAULT_PATH)\n\
         place: {vault}/projects/seam-fixture (projects)\nforge: {repo}\nstate: vault\n\
         plan: {vault}/projects/seam-fixture/_harness/PLAN-foo.md\nmarker: foo\nrecall: 2 of work, 0 left out\n\
         source: _always-load, 1\nsource: decisions, 1\n",
        repo = at("repo"),
        vault = at("vault")
    );
    let ended = place.run(&["doctor"]);
    assert_eq!(
        ended,
        Ended {
            code: 0,
            stdout: expected,
            stderr: String::new()
        }
    );
    let of_plan = place.run(&[
        "doctor",
        "--phase",
        "plan",
        "--cwd",
        &at("repo"),
        "--plan",
        "bar",
    ]);
    for line in [
        "source: .forge/architecture, 1\n",
        "marker: foo\n",
        "_harness/PLAN-bar.md\n",
        "recall: 3 of plan",
    ] {
        assert!(of_plan.stdout.contains(line), "{line}: {of_plan:?}");
    }
    let json = place.run(&["doctor", "--json"]);
    let seen: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        (&seen["ok"], &seen["project"], &seen["vault_from"]),
        (
            &json!(true),
            &json!("seam-fixture"),
            &json!("MEMORY_VAULT_PATH")
        )
    );
    assert_eq!(
        seen["sources"],
        json!([{"name": "_always-load", "found": 1}, {"name": "decisions", "found": 1}])
    );
}

#[test]
fn everything_that_is_wrong_has_a_line() {
    let place = Fixture::empty();
    place.write("home/.config/helmdeck/helmdeck.toml", b"[seam\n\xff");
    place.write("home/.claude/.agentm-config.json", b"{\xff");
    place.write("repo/.harness/project.json", "no json");
    let ended = Ended::of(
        place
            .bare(&["doctor"])
            .env("MEMORY_VAULT_PATH", place.path("gone")),
    );
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
    for part in [
        "helmdeck.toml",
        ".agentm-config.json",
        "project.json",
        "MEMORY_VAULT_PATH",
    ] {
        let lines = ended
            .stdout
            .lines()
            .filter(|line| line.starts_with("warning[memory-unreadable]: "));
        assert_eq!(
            lines.filter(|line| line.contains(part)).count(),
            1,
            "{part}: {ended:?}"
        );
    }
    for line in [
        "project: none\n",
        "vault: none\n",
        "forge: none\n",
        "state: project\n",
        "marker: none\n",
    ] {
        assert!(ended.stdout.contains(line), "{line}: {ended:?}");
    }
    let json = Ended::of(
        place
            .bare(&["--json", "doctor"])
            .env("MEMORY_VAULT_PATH", place.path("gone")),
    );
    let seen: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        (&seen["ok"], seen["warnings"].as_array().unwrap().len()),
        (&json!(false), 4),
        "{seen}"
    );
}

#[test]
fn doctor_fails_on_corrupt_or_unsafe_state() {
    let place = Fixture::new();
    place
        .run(&["doctor", "--plan", "../x"])
        .is_loud(2, "unsafe-name");
    place.write("repo/.harness/active-plan", "gone");
    place.run(&["doctor"]).is_loud(2, "corrupt-state");
    // Who names a plan does not ask the marker, but sees what it is.
    let named = place.run(&["doctor", "--plan", "foo"]);
    assert!(
        named.code == 0 && named.stdout.contains("marker: gone\n"),
        "{named:?}"
    );
    std::fs::remove_file(place.path("repo/.harness/active-plan")).unwrap();
    place.write("vault/projects/seam-fixture/tasks/001-a/plan.md", "x");
    let ended = place.run(&["doctor"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
    assert!(
        ended.stdout.contains("\nerror[task-name-required]: "),
        "{ended:?}"
    );
    assert_eq!(place.run(&["state-path", "plan"]).code, 4);
}

#[test]
fn check_has_a_line_for_vault_and_project() {
    let place = Fixture::new();
    let check = |vault: &str| -> Value {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_helmdeck"));
        command
            .env_clear()
            .env("HOME", place.path("home"))
            .env("PATH", "")
            .current_dir(place.path("repo"));
        command
            .env("MEMORY_VAULT_PATH", place.path(vault))
            .args(["check", "--json"]);
        let ended = Ended::of(command.stdin(std::process::Stdio::null()));
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
    };
    let sound = check("vault");
    let expected = format!(
        "vault {} (MEMORY_VAULT_PATH), project seam-fixture (vault_project)",
        place.path("vault").display()
    );
    assert_eq!(sound["parts"]["notes"], expected, "{sound}");
    let gone = check("gone");
    assert_eq!(
        gone["parts"]["notes"], "no vault, project seam-fixture (vault_project)",
        "{gone}"
    );
    let of_seam = |report: &Value| {
        let warnings = report["warnings"].as_array().unwrap().clone();
        warnings
            .iter()
            .filter(|line| {
                line.as_str()
                    .unwrap()
                    .starts_with("seam: MEMORY_VAULT_PATH: ")
            })
            .count()
    };
    assert_eq!((of_seam(&sound), of_seam(&gone)), (0, 1), "{gone}");
}
