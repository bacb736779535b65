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
    assert_eq!(
        ended.code, 0,
        "{arguments:?}: {}{}",
        ended.stdout, ended.stderr
    );
    let lines = ended.stdout.lines().count();
    assert!(
        (1..=SCREEN).contains(&lines),
        "{arguments:?} prints {lines} lines:\n{}",
        ended.stdout
    );
    ended
}

#[test]
fn feature_takes_four_commands_and_few_words() {
    let fixture = Fixture::new("");
    fixture.forge(&["features", "add", "Halve a number", "--test", "halving"]);
    fixture.git(&["add", "."]);
    fixture.git(&["commit", "--quiet", "-m", "[session] Plan"]);

    let commands: [&[&str]; 4] = [
        &["start"],
        &["verify"],
        &["commit", "Halve numbers"],
        &["done"],
    ];
    let words = commands
        .iter()
        .flat_map(|words| words.iter())
        .flat_map(|word| word.split(' '))
        .count();
    assert!(
        words + 2 * commands.len() < 15,
        "with `helmdeck forge` before each: {words}"
    );

    let started = says(&fixture, commands[0]).stdout;
    assert!(
        started.contains("issue LOCAL-1 Halve a number (feature, In Progress), new"),
        "{started}"
    );
    assert_eq!(
        fixture.git(&["branch", "--show-current"]),
        "feature/LOCAL-1-halve-a-number"
    );
    fixture.write("src/lib.rs", &with_halving(4));
    let verified = says(&fixture, commands[1]).stdout;
    assert!(
        verified.starts_with("FORGE-001 passes: 1 test ran\n"),
        "{verified}"
    );
    let made = says(&fixture, commands[2]).stdout;
    assert!(
        made.contains("[LOCAL-1] Halve numbers\n") && made.contains("files: src/lib.rs\n"),
        "{made}"
    );
    let done = says(&fixture, commands[3]).stdout;
    assert!(
        done.starts_with("checkpoint/LOCAL-1-v1\nLOCAL-1 is closed: "),
        "{done}"
    );

    assert_eq!(fixture.git(&["status", "--porcelain"]), "");
    assert_eq!(fixture.git(&["tag", "--list"]), "checkpoint/LOCAL-1-v1");
    let message = fixture.git(&["log", "-1", "--format=%B", "checkpoint/LOCAL-1-v1"]);
    for part in [
        "Forge-Linear: LOCAL-1",
        "Forge-Feature: FORGE-001=passing",
        "LOCAL-1: Halve a number",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let (_, path) = done.lines().nth(1).unwrap().split_once(": ").unwrap();
    let history = std::fs::read_to_string(fixture.root().join(path)).unwrap();
    assert!(
        history.contains("Halve numbers") && history.contains("checkpoint/LOCAL-1-v1"),
        "{history}"
    );
    let listed = fixture.forge(&["features", "list"]);
    assert_eq!(listed["features"][0]["standing"], "passing", "{listed}");
}

/// A small day: three features that were planned, each started, made, verified and finished.
#[test]
fn small_day_costs_git_one_commit_and_three_files_a_feature() {
    let fixture = Fixture::light("");
    for name in ["Log in", "Log out", "Stay logged in"] {
        fixture.forge(&["features", "add", name, "--test", "login"]);
    }
    fixture.git(&["add", "."]);
    fixture.git(&["commit", "--quiet", "-m", "[session] Plan"]);
    let morning = fixture.git(&["rev-parse", "HEAD"]);

    let (mut commands, mut words) = (0, 0);
    let mut type_in = |arguments: &[&str]| {
        commands += 1;
        words += 2 + arguments
            .iter()
            .flat_map(|argument| argument.split(' '))
            .count();
        says(&fixture, arguments).stdout
    };
    for (number, what) in [
        "Let customers log in",
        "Let them log out",
        "Remember who is logged in",
    ]
    .into_iter()
    .enumerate()
    {
        type_in(&["start"]);
        fixture.write("src/lib.rs", &format!("{SUMS}// {number}\n"));
        type_in(&["verify"]);
        let done = type_in(&["done", what]);
        let key = number + 1;
        assert!(
            done.starts_with(&format!(
                "[LOCAL-{key}] {what}\ncheckpoint/LOCAL-{key}-v1\nLOCAL-{key} is closed"
            )),
            "{done}"
        );
        assert_eq!(fixture.git(&["status", "--porcelain"]), "");
    }
    assert!(
        commands <= 9 && words <= 50,
        "{commands} commands, {words} words"
    );
    let log = fixture.git(&["log", "--format=%s", &format!("{morning}..")]);
    assert_eq!(log.lines().count(), 3, "{log}");
    assert!(
        log.lines().all(|subject| subject.starts_with("[LOCAL-")),
        "{log}"
    );
    let files = fixture.git(&["diff", "--name-only", &morning, "--", ".forge"]);
    assert!(files.lines().count() <= 9, "{files}");

    // Nothing of it is lost: features pass with evidence, checkpoints can be gone back to, another
    // clone has all of it.
    fixture.git(&["switch", "--quiet", "main"]);
    fixture.git(&[
        "merge",
        "--quiet",
        "--ff-only",
        "feature/LOCAL-3-stay-logged-in",
    ]);
    let clone = fixture.beside("clone");
    fixture.git(&[
        "clone",
        "--quiet",
        "--no-tags",
        ".",
        clone.to_str().unwrap(),
    ]);
    for folder in [fixture.root(), clone] {
        let listed = fixture.forge_in(&folder, &["features", "list"]);
        // The code of the first two changed since.
        assert_eq!(
            (
                &listed["counts"]["passing"],
                &listed["counts"]["unverified"]
            ),
            (&3.into(), &0.into()),
            "{listed}"
        );
        let checkpoints = fixture.forge_in(&folder, &["checkpoint", "list"]);
        let usable = |all: &Value| {
            all.as_array()
                .unwrap()
                .iter()
                .filter(|one| one["can_rollback_to"] == true)
                .count()
        };
        assert_eq!(usable(&checkpoints), 3, "{checkpoints}");
        let shown = fixture.forge_in(&folder, &["issue", "show", "LOCAL-1"]);
        assert_eq!(
            shown["issue"]["git_refs"]["commits"]
                .as_array()
                .map(Vec::len),
            Some(1),
            "{shown}"
        );
    }
    // An empty day changes nothing.
    let before = fixture.git(&["rev-parse", "HEAD"]);
    fixture.forge(&["session", "start"]);
    fixture.forge(&["session", "end"]);
    assert_eq!(
        (
            fixture.git(&["rev-parse", "HEAD"]),
            fixture.git(&["status", "--porcelain"])
        ),
        (before, String::new())
    );
}

#[test]
fn first_answers_fit_a_screen_and_go_on() {
    let fixture = Fixture::without_memory();
    let begun = says(&fixture, &["init"]).stdout;
    assert!(
        begun.contains("tests of a feature: cargo test {prefix} (Cargo.toml is there)\n"),
        "{begun}"
    );
    fixture.git(&["add", "."]);
    fixture.git(&["commit", "--quiet", "-m", "[session] Begin"]);
    for command in [&["status"][..], &["ready"], &["start"]] {
        let said = says(&fixture, command).stdout;
        assert!(
            said.contains("next: helmdeck forge start \""),
            "{command:?}: {said}"
        );
    }
    for command in [
        &["status"][..],
        &["session", "end"],
        &["init"],
        &["issue", "list"],
    ] {
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
    let error = |code: i32, arguments: &[&str]| {
        fixture.ends_with(&fixture.root(), code, arguments)["code"].clone()
    };
    assert_eq!(error(9, &["done"]), "E_CRITERIA");
    fixture.forge(&["issue", "set", "LOCAL-1", "--check", "1"]);
    // A commit of what is staged would leave the rest.
    fixture.git(&["add", "more.txt"]);
    fixture.write("rest.txt", "1\n");
    assert_eq!(error(9, &["done"]), "E_DIRTY");
    fixture.git(&["add", "rest.txt"]);
    assert_eq!(error(1, &["done", "--verify", "false"]), "E_CHECK");
    assert_eq!(fixture.git(&["tag", "--list"]), "");
    assert_eq!(fixture.git(&["log", "-1", "--format=%s"]), "[session] Plan");
    assert_eq!(fixture.forge(&["issue", "list"])["counts"]["open"], 1);
    let done = fixture.forge(&["done"]);
    assert_eq!(
        (&done["checkpoint"], &done["issue"]["again"]),
        (&"checkpoint/LOCAL-1-v1".into(), &false.into())
    );
    assert_eq!(done["committed"], "[LOCAL-1] Add three");
    // Without a session there is nothing to finish.
    assert_eq!(error(3, &["done"]), "E_NOT_FOUND");
}

#[test]
fn what_names_a_feature_follows_it_through_a_merge() {
    let fixture = Fixture::light("");
    let (bare, clone) = (fixture.beside("bare.git"), fixture.beside("clone"));
    fixture.git(&["clone", "--quiet", "--bare", ".", bare.to_str().unwrap()]);
    fixture.git(&["remote", "add", "origin", bare.to_str().unwrap()]);
    fixture.git_in(
        fixture.root().parent().unwrap(),
        &["clone", "--quiet", bare.to_str().unwrap(), "clone"],
    );
    let added = |folder: &std::path::Path, name: &str| {
        let added = fixture.forge_in(folder, &["features", "add", name, "--test", "a"]);
        added["feature"]["id"].as_str().unwrap().to_owned()
    };
    let ours = [
        added(&fixture.root(), "Ours"),
        added(&fixture.root(), "Ours too"),
    ];
    // Of two that were added in one second, either may be the older.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let theirs = [added(&clone, "Theirs"), added(&clone, "Theirs too")];
    assert_eq!(
        (&ours, &theirs),
        (&["FORGE-001".to_owned(), "FORGE-002".to_owned()], &ours)
    );
    fixture.forge_in(
        &clone,
        &["features", "set", &theirs[1], "--blocked-by", &theirs[0]],
    );
    fixture.forge_in(
        &clone,
        &["issue", "add", "About theirs", "--feature", &theirs[0]],
    );
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
    let named = |name: &str| {
        features
            .iter()
            .map(|item| &item["feature"])
            .find(|one| one["name"] == name)
            .unwrap()
    };
    let now = ["Ours", "Ours too", "Theirs", "Theirs too"]
        .map(|name| named(name)["id"].as_str().unwrap());
    assert_eq!(now, ["FORGE-001", "FORGE-002", "FORGE-003", "FORGE-004"]);
    assert_eq!(
        named("Theirs too")["blocked_by"]
            .to_string()
            .matches("FORGE-003")
            .count(),
        1,
        "{listed}"
    );
    let issues = fixture.forge_in(&clone, &["issue", "list"]);
    assert_eq!(
        issues["items"][0]["issue"]["features"],
        serde_json::json!(["FORGE-003"])
    );
    assert_eq!(
        fixture.forge_in(&clone, &["status"])["focus"]["feature_id"],
        "FORGE-003"
    );
}

#[test]
fn two_clones_add_issues_that_any_merge_keeps() {
    let fixture = Fixture::light("");
    let (bare, clone) = (fixture.beside("bare.git"), fixture.beside("clone"));
    fixture.git(&["clone", "--quiet", "--bare", ".", bare.to_str().unwrap()]);
    fixture.git(&["remote", "add", "origin", bare.to_str().unwrap()]);
    fixture.forge(&["issue", "add", "Ours"]);
    fixture.git_in(
        fixture.root().parent().unwrap(),
        &["clone", "--quiet", bare.to_str().unwrap(), "clone"],
    );
    let theirs = fixture.forge_in(&clone, &["issue", "add", "Theirs"]);
    fixture.forge_in(
        &clone,
        &[
            "issue",
            "set",
            theirs["issue"]["linear_id"].as_str().unwrap(),
            "--comment",
            "A word.",
        ],
    );
    for folder in [&fixture.root(), &clone] {
        fixture.git_in(folder, &["add", "."]);
        fixture.git_in(folder, &["commit", "--quiet", "-m", "[session] An issue"]);
    }
    fixture.git_in(&clone, &["push", "--quiet", "origin", "HEAD:theirs"]);
    fixture.git(&["fetch", "--quiet"]);
    // As on a server: without the merge driver.
    fixture.git(&[
        "-c",
        "merge.forge-json.driver=false",
        "merge",
        "--quiet",
        "--no-edit",
        "origin/theirs",
    ]);
    let listed = fixture.forge(&["issue", "list"]);
    let titles: Vec<&Value> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["issue"]["title"])
        .collect();
    assert!(
        titles == ["Ours", "Theirs"] || titles == ["Theirs", "Ours"],
        "{listed}"
    );
}
