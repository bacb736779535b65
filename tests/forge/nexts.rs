//! The next commands that health names run as they are printed.

use helmdeck_forge::health::Code;
use serde_json::Value;

use super::fixture::Fixture;

/// Runs a command line as a person would paste it, and returns its exit code and its stderr.
fn paste(fixture: &Fixture, line: &str) -> (i32, String) {
    let output = fixture
        .prepare("sh", &fixture.root(), &["-c", line])
        .output()
        .unwrap();
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// Returns the reasons that health names: code and next command.
fn reasons(fixture: &Fixture) -> Vec<(String, String)> {
    let health = fixture.forge(&["health"]);
    let components = ["long_term", "short_term", "features", "git", "linear"];
    let of = |name: &str| health[name]["reasons"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    components
        .iter()
        .flat_map(|name| of(name))
        .map(|one| (text(&one["code"]), text(&one["next"])))
        .collect()
}

#[test]
fn every_next_command_is_one_the_program_takes() {
    let fixture = Fixture::light("");
    for code in Code::ALL {
        let (exit, stderr) = paste(&fixture, code.next());
        assert!(
            exit != 2 && exit != 127,
            "{}: {}: {exit} {stderr}",
            code.as_str(),
            code.next()
        );
    }
}

#[test]
fn next_commands_run_and_help() {
    let fixture = Fixture::light("");
    fixture.write(
        ".forge/config.toml",
        "[verify]\nrunner = \"sh: test ! -e broken && echo ran {prefix}\"\ncount_regex = \"ran\"\ncommands = [\"true\"]\n",
    );
    fixture.forge(&["trust", "--yes"]);
    for name in ["Adding", "Doubling"] {
        fixture.forge(&["features", "add", name, "--test", "sums"]);
    }
    fixture.forge(&["features", "add", "Looks"]);
    fixture.forge(&["verify", "FORGE-001", "FORGE-002"]);
    fixture.write("broken", "");
    let (exit, _) = paste(&fixture, "helmdeck forge verify FORGE-001");
    assert_eq!(exit, 1);
    std::fs::remove_file(fixture.root().join("broken")).unwrap();
    let folder =
        std::fs::read_dir(fixture.root().join(".forge/memory/long-term/features")).unwrap();
    let mut files = folder.map(|file| file.unwrap().path());
    let path = files
        .find(|path| path.to_string_lossy().contains("FORGE-003-looks-"))
        .unwrap();
    let feature = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, feature.replace("\"not_implemented\"", "\"passing\"")).unwrap();
    fixture.git(&["switch", "--quiet", "-c", "work"]);
    fixture.write("notes.txt", "notes");
    fixture.git(&["add", "notes.txt"]);
    fixture.git(&["commit", "--quiet", "-m", "[SUM-1] Notes of nobody's issue"]);
    fixture.write("more.txt", "not committed");

    let found = reasons(&fixture);
    let next = |code: &str| {
        let found = found.iter().find(|(found, _)| found == code);
        found
            .unwrap_or_else(|| panic!("no {code} in {found:?}"))
            .1
            .clone()
    };
    assert_eq!(next("regression"), "helmdeck forge verify FORGE-001");
    assert_eq!(next("unverified_pass"), "helmdeck forge verify FORGE-003");
    for (code, next) in &found {
        let (exit, stderr) = paste(&fixture, next);
        assert!(exit != 2 && exit != 127, "{code}: {next}: {exit} {stderr}");
    }
    assert_eq!(next("orphan_commits"), "helmdeck forge issue list all");
    assert!(
        reasons(&fixture)
            .iter()
            .all(|(code, _)| code != "regression"),
        "the next command settled it"
    );
}

#[test]
fn verify_takes_focus_feature_or_several() {
    let fixture = Fixture::light("");
    let alone = fixture.run(&["verify"]);
    assert_eq!(alone.code, 2, "{}", alone.stderr);
    for name in ["Adding", "Doubling"] {
        fixture.forge(&["features", "add", name, "--test", "sums"]);
    }
    fixture.forge(&["session", "start"]);
    fixture.forge(&["focus", "set", "Double", "--feature", "FORGE-002"]);
    assert_eq!(fixture.forge(&["verify"])["features"][0]["id"], "FORGE-002");
    let all = fixture.forge(&["verify", "--all"]);
    assert_eq!(all["features"].as_array().unwrap().len(), 2, "{all}");
    assert_eq!(
        fixture.forge(&["verify", "--stale"])["features"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
    fixture.forge(&[
        "knowledge",
        "add",
        "--invariant",
        "It holds",
        "--check",
        "sh:test ! -e broken",
    ]);
    fixture.forge(&["trust", "--yes"]);
    assert_eq!(
        fixture.forge(&["verify", "--all"])["invariants"]["passed"],
        1
    );
    fixture.write("broken", "");
    let broken = fixture.ends_with(&fixture.root(), 1, &["verify", "--all"]);
    assert_eq!(
        (&broken["passed"], &broken["invariants"]["holds"]),
        (&false.into(), &false.into()),
        "{broken}"
    );
}
