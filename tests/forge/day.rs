//! A day in few words: from start to done with the real program and a real repository.

use serde_json::Value;

use super::fixture::{Ended, Fixture, SUMS};

/// Number of lines of a screen.
const SCREEN: usize = 24;

/// Code with a function more, and its test.
fn with_halving(result: i64) -> String {
    format!(
        "{SUMS}/// Halves.\npub fn halve(a: i64) -> i64 {{\n    a / 2\n}}\n\n#[cfg(test)]\nmod halving {{\n    #[test]\n    \
         fn of_eight() {{\n        assert_eq!(super::halve(8), {result});\n    }}\n}}\n"
    )
}

#[track_caller]
fn says(fixture: &Fixture, arguments: &[&str]) -> Ended {
    let ended = fixture.run(arguments);
    assert_eq!(ended.code, 0, "{arguments:?}: {}{}", ended.stdout, ended.stderr);
    let lines = ended.stdout.lines().count();
    assert!((1..=SCREEN).contains(&lines), "{arguments:?} prints {lines} lines:\n{}", ended.stdout);
    ended
}

#[test]
fn feature_takes_four_commands_and_few_words() {
    let fixture = Fixture::new("");
    fixture.forge(&["features", "add", "Halve a number", "--test", "halving"]);
    fixture.git(&["add", "."]);
    fixture.git(&["commit", "--quiet", "-m", "[session] Plan"]);

    let commands: [&[&str]; 4] = [&["start"], &["verify"], &["commit", "Halve numbers"], &["done"]];
    let words = commands.iter().flat_map(|words| words.iter()).flat_map(|word| word.split(' ')).count();
    assert!(words + 2 * commands.len() < 15, "with `helmdeck forge` before each: {words}");

    let started = says(&fixture, commands[0]).stdout;
    assert!(started.contains("issue LOCAL-1 Halve a number (feature, In Progress), new"), "{started}");
    assert_eq!(fixture.git(&["branch", "--show-current"]), "feature/LOCAL-1-halve-a-number");
    fixture.write("src/lib.rs", &with_halving(4));
    let verified = says(&fixture, commands[1]).stdout;
    assert!(verified.starts_with("FORGE-001 passes: 1 test ran\n"), "{verified}");
    let made = says(&fixture, commands[2]).stdout;
    assert!(made.contains("[LOCAL-1] Halve numbers\n") && made.contains("files: src/lib.rs\n"), "{made}");
    let done = says(&fixture, commands[3]).stdout;
    assert!(done.starts_with("checkpoint/LOCAL-1-v1\nLOCAL-1 is closed: "), "{done}");

    assert_eq!(fixture.git(&["status", "--porcelain"]), "");
    assert_eq!(fixture.git(&["tag", "--list"]), "checkpoint/LOCAL-1-v1");
    let message = fixture.git(&["log", "-1", "--format=%B", "checkpoint/LOCAL-1-v1"]);
    for part in ["Forge-Linear: LOCAL-1", "Forge-Feature: FORGE-001=passing", "LOCAL-1: Halve a number"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let history = std::fs::read_to_string(fixture.root().join(".forge/linear/history/LOCAL-1.md")).unwrap();
    assert!(history.contains("Halve numbers") && history.contains("checkpoint/LOCAL-1-v1"), "{history}");
    let listed = fixture.forge(&["features", "list"]);
    assert_eq!(listed["features"][0]["standing"], "passing", "{listed}");
}

#[test]
fn first_answers_fit_a_screen_and_go_on() {
    let fixture = Fixture::without_memory();
    let begun = says(&fixture, &["init"]).stdout;
    assert!(begun.contains("tests of a feature: cargo test {prefix} (Cargo.toml is there)\n"), "{begun}");
    fixture.git(&["add", "."]);
    fixture.git(&["commit", "--quiet", "-m", "[session] Begin"]);
    for command in [&["status"][..], &["ready"], &["start"]] {
        let said = says(&fixture, command).stdout;
        assert!(said.contains("next: helmdeck forge start \""), "{command:?}: {said}");
    }
    for command in [&["session", "status"][..], &["session", "end"], &["init"], &["issue", "list"]] {
        says(&fixture, command);
    }
}

#[test]
fn done_names_what_is_in_the_way_and_does_nothing() {
    let fixture = Fixture::light("");
    fixture.forge(&["issue", "add", "Add three", "--criterion", "It adds"]);
    fixture.git(&["add", "."]);
    fixture.git(&["commit", "--quiet", "-m", "[session] Plan"]);
    fixture.forge(&["start", "LOCAL-1"]);
    fixture.write("more.txt", "1\n");
    let error = |code: i32, arguments: &[&str]| fixture.ends_with(&fixture.root(), code, arguments)["code"].clone();
    assert_eq!(error(9, &["done"]), "E_CRITERIA");
    fixture.forge(&["issue", "set", "LOCAL-1", "--check", "1"]);
    assert_eq!(error(9, &["done"]), "E_DIRTY");
    assert_eq!(fixture.git(&["tag", "--list"]), "");
    assert_eq!(fixture.forge(&["issue", "list"])["counts"]["open"], 1);
    fixture.forge(&["commit", "Add three", "--why", "It was asked for"]);
    let done = fixture.forge(&["done"]);
    assert_eq!((&done["checkpoint"], &done["issue"]["again"]), (&"checkpoint/LOCAL-1-v1".into(), &false.into()));
    // Without a session there is nothing to finish.
    assert_eq!(error(3, &["done"]), "E_NOT_FOUND");
}

#[test]
fn merge_changes_no_number_that_others_name() {
    let fixture = Fixture::light("[files]\nper_entry = true\n");
    let (bare, clone) = (fixture.beside("bare.git"), fixture.beside("clone"));
    fixture.git(&["clone", "--quiet", "--bare", ".", bare.to_str().unwrap()]);
    fixture.git(&["remote", "add", "origin", bare.to_str().unwrap()]);
    fixture.git_in(fixture.root().parent().unwrap(), &["clone", "--quiet", bare.to_str().unwrap(), "clone"]);
    let added = |folder: &std::path::Path, name: &str| {
        let added = fixture.forge_in(folder, &["features", "add", name, "--test", "a"]);
        added["feature"]["id"].as_str().unwrap().to_owned()
    };
    let ours = [added(&fixture.root(), "Ours"), added(&fixture.root(), "Ours too")];
    let theirs = [added(&clone, "Theirs"), added(&clone, "Theirs too")];
    assert_eq!(ours, ["FORGE-001", "FORGE-002"]);
    fixture.forge_in(&clone, &["features", "set", &theirs[1], "--blocked-by", &theirs[0]]);
    fixture.forge_in(&clone, &["issue", "add", "About theirs", "--feature", &theirs[0]]);
    fixture.forge_in(&clone, &["focus", "set", "Theirs", "--feature", &theirs[0]]);
    for folder in [&fixture.root(), &clone] {
        fixture.git_in(folder, &["add", "."]);
        fixture.git_in(folder, &["commit", "--quiet", "-m", "[session] Plan"]);
    }
    fixture.git(&["push", "--quiet", "origin", "HEAD:ours"]);
    fixture.git_in(&clone, &["fetch", "--quiet"]);
    fixture.git_in(&clone, &["merge", "--quiet", "--no-edit", "origin/ours"]);

    let listed = fixture.forge_in(&clone, &["features", "list"]);
    let features = listed["features"].as_array().unwrap();
    assert_eq!(features.len(), 4, "{listed}");
    let named = |name: &str| features.iter().map(|item| &item["feature"]).find(|one| one["name"] == name).unwrap();
    assert_eq!(named("Theirs")["id"], theirs[0]);
    assert_eq!(named("Theirs too")["blocked_by"].to_string().matches(&theirs[0]).count(), 1, "{listed}");
    let issues = fixture.forge_in(&clone, &["issue", "list"]);
    assert_eq!(issues["issues"][0]["issue"]["features"], serde_json::json!([theirs[0]]));
    assert_eq!(fixture.forge_in(&clone, &["focus", "show"])["focus"]["feature_id"], theirs[0]);
}

#[test]
fn two_clones_add_issues_that_any_merge_keeps() {
    let fixture = Fixture::light("");
    let (bare, clone) = (fixture.beside("bare.git"), fixture.beside("clone"));
    fixture.git(&["clone", "--quiet", "--bare", ".", bare.to_str().unwrap()]);
    fixture.git(&["remote", "add", "origin", bare.to_str().unwrap()]);
    fixture.forge(&["issue", "add", "Ours"]);
    fixture.git_in(fixture.root().parent().unwrap(), &["clone", "--quiet", bare.to_str().unwrap(), "clone"]);
    let theirs = fixture.forge_in(&clone, &["issue", "add", "Theirs"]);
    fixture.forge_in(&clone, &["issue", "comment", theirs["issue"]["linear_id"].as_str().unwrap(), "A word."]);
    for folder in [&fixture.root(), &clone] {
        fixture.git_in(folder, &["add", "."]);
        fixture.git_in(folder, &["commit", "--quiet", "-m", "[session] An issue"]);
    }
    fixture.git_in(&clone, &["push", "--quiet", "origin", "HEAD:theirs"]);
    fixture.git(&["fetch", "--quiet"]);
    // As on a server: without the merge driver.
    fixture.git(&["-c", "merge.forge-json.driver=false", "merge", "--quiet", "--no-edit", "origin/theirs"]);
    let listed = fixture.forge(&["issue", "list"]);
    let titles: Vec<&Value> = listed["issues"].as_array().unwrap().iter().map(|item| &item["issue"]["title"]).collect();
    assert_eq!(titles, ["Ours", "Theirs"], "{listed}");
}
