//! Feature tests in a real project and repository, with real programs as tests.

use super::*;
use crate::artifacts::Artifacts;
use crate::environment::ProjectEnvironment;
use crate::error::Category;
use crate::features::Features;
use crate::fixture::{made, write_entries};
use crate::git::fixture::Repository;

/// Fixture: a project whose test command is a script with chosen output and exit code.
fn project(repository: &Repository) -> Project {
    std::fs::create_dir_all(repository.path().join(".forge/memory/long-term")).unwrap();
    repository.write(
        ".forge/config.toml",
        "[verify]\nrunner = \"sh tests.sh {prefix}\"\ncount_regex = '(\\d+) passed'\ntimeout_s = 60\n",
    );
    Project::open(repository.path(), ProjectEnvironment::default())
        .unwrap()
        .unwrap()
}

fn tests(repository: &Repository, script: &str) {
    repository.write("tests.sh", script);
}

fn add(project: &Project, name: &str, tests: &[&str]) -> String {
    let tests = tests.iter().map(|test| (*test).to_owned()).collect();
    Features::new(project)
        .add(
            &Add {
                name: name.into(),
                tests,
                ..Add::default()
            },
            None,
        )
        .unwrap()
        .feature
        .id
}

fn standing(project: &Project, id: &str) -> Standing {
    let listed = Features::new(project).list().unwrap();
    listed
        .features
        .into_iter()
        .find(|item| item.feature.id == id)
        .unwrap()
        .standing
}

fn checkpoint(repository: &Repository, name: &str) {
    repository.run(&["add", "-f", ".forge/memory"]);
    repository.commit("agree");
    repository.run(&["tag", "-a", &format!("checkpoint/{name}"), "-m", "agreed"]);
}

#[test]
fn projects_without_a_runner_are_told_what_to_set() {
    let repository = Repository::new();
    drop(project(&repository));
    repository.write(".forge/config.toml", "");
    repository.commit("first");
    let project = Project::open(repository.path(), ProjectEnvironment::default())
        .unwrap()
        .unwrap();
    let id = add(&project, "A thing", &["a::*"]);
    let verified = Features::new(&project).verify(&id).unwrap();
    assert_eq!(
        (verified.passed, verified.problem),
        (false, Some(Problem::CannotStart))
    );
    let hint = verified.hint.unwrap();
    assert!(
        hint.contains("verify.runner") && !hint.contains("could not be started"),
        "{hint}"
    );
}

#[test]
fn feature_passes_only_when_its_tests_ran() {
    let repository = Repository::new();
    let project = project(&repository);
    let features = Features::new(&project);
    tests(&repository, "echo \"$1: 3 passed\"\n");
    repository.commit("first");
    let id = add(&project, "A thing", &["a::tests::*", "b::*"]);
    assert_eq!(id, "FORGE-001");
    let edit = Edit {
        status: Some(Status::Passing),
        ..Edit::default()
    };
    assert_eq!(
        features.set(&id, &edit, None).unwrap_err().category,
        Category::Refused
    );

    let verified = features.verify(&id).unwrap();
    assert!(verified.passed && !verified.dirty, "{verified:?}");
    assert_eq!((verified.executed, verified.runs.len()), (6, 2));
    assert_eq!(verified.runs[0].output, "a::tests::: 3 passed\n");
    let item = features.list().unwrap().features.remove(0);
    assert_eq!(item.standing, Standing::Passing);
    assert_eq!(item.feature.evidence, verified.evidence);
    assert_eq!(item.feature.verified_commit, verified.commit);
    let git = repository.git();
    assert_eq!(
        item.feature.verified_code_tree,
        Some(git.code_tree(&git.head().unwrap().unwrap()).unwrap())
    );
    let got = Artifacts::new(&project)
        .get(&verified.evidence.unwrap())
        .unwrap();
    let report: serde_json::Value =
        serde_json::from_slice(&Artifacts::new(&project).bytes(&got.entry).unwrap()).unwrap();
    assert_eq!(report["features"]["FORGE-001"]["executed"], 6);

    repository.write("other.txt", "changed");
    repository.commit("second");
    assert_eq!(standing(&project, &id), Standing::PassingStale);
    assert_eq!(features.list().unwrap().counts.passing, 1);
}

#[test]
fn missing_and_failing_tests_do_not_pass() {
    let repository = Repository::new();
    let project = project(&repository);
    let features = Features::new(&project);
    let id = add(&project, "A thing", &["a"]);
    for (script, problem) in [
        ("echo '0 passed'\n", Problem::NoTestsMatched),
        ("echo 'all is well'\n", Problem::NoTestsMatched),
        ("echo '3 passed'; exit 1\n", Problem::TestsFailed),
        ("echo '3 passed'; kill -9 $$\n", Problem::TestsFailed),
    ] {
        tests(&repository, script);
        let verified = features.verify(&id).unwrap();
        assert_eq!(
            (verified.passed, verified.problem),
            (false, Some(problem)),
            "{script}"
        );
        assert_eq!(
            (verified.status, verified.regressed, verified.evidence),
            (Status::Failing, false, None)
        );
    }
    let none = add(&project, "Another", &[]);
    assert_eq!(
        features.verify(&none).unwrap().problem,
        Some(Problem::NoTests)
    );
    assert_eq!(
        features.verify("FORGE-099").unwrap_err().category,
        Category::NotFound
    );
}

#[test]
fn what_breaks_is_a_regression_and_comes_first() {
    let repository = Repository::new();
    let project = project(&repository);
    let features = Features::new(&project);
    tests(&repository, "echo '1 passed'\n");
    let (first, second) = (add(&project, "One", &["a"]), add(&project, "Two", &["b"]));
    features.verify(&second).unwrap();
    assert_eq!(features.next().unwrap().unwrap().feature.id, first);
    tests(&repository, "echo '0 passed, 1 failed'; exit 101\n");
    let probed = features.probe(2).unwrap();
    assert_eq!(probed.len(), 1);
    assert!(probed[0].regressed && !probed[0].passed);
    let chosen = features.next().unwrap().unwrap();
    assert_eq!(
        (chosen.feature.id.as_str(), chosen.why),
        (second.as_str(), Next::Regressed)
    );
    assert_eq!(features.list().unwrap().counts.regressed, 1);
    tests(&repository, "echo '1 passed'\n");
    assert!(features.verify(&second).unwrap().passed);
    assert_eq!(
        features.read().unwrap().get(&second).unwrap().regressed_at,
        None
    );
}

#[test]
fn probe_without_news_writes_nothing() {
    let repository = Repository::new();
    let project = project(&repository);
    let features = Features::new(&project);
    tests(&repository, "echo '1 passed'\n");
    let id = add(&project, "One", &["a"]);
    repository.commit("first");
    let verified = features.verify(&id).unwrap();
    repository.commit("verified");
    let clean = || {
        let status = project.git().unwrap().status().unwrap();
        status
            .entries
            .iter()
            .all(|entry| entry.path.starts_with(".forge/.local/"))
    };
    let probed = features.probe(2).unwrap().remove(0);
    assert!(probed.passed && probed.executed == 1);
    assert_eq!(probed.evidence, verified.evidence);
    assert!(
        clean(),
        "the code is the same, and so is what is known of it"
    );
    assert_eq!(features.verify(&id).unwrap().evidence, verified.evidence);
    assert!(clean(), "nothing new was seen");
    repository.write("src/new.rs", "fn new() {}\n");
    repository.commit("other code");
    features.probe(2).unwrap();
    assert!(
        clean(),
        "that it works on other code is known in this clone"
    );
    assert_eq!(standing(&project, &id), Standing::Passing);
}

#[test]
fn pass_before_the_commit_is_current_after_it() {
    let repository = Repository::new();
    let project = project(&repository);
    tests(&repository, "echo '1 passed'\n");
    repository.commit("first");
    repository.write("src/new.rs", "fn new() {}\n");
    let before = std::fs::read(repository.path().join(".git/index")).unwrap();
    let id = add(&project, "One", &["a"]);
    assert!(Features::new(&project).verify(&id).unwrap().dirty);
    assert_eq!(
        std::fs::read(repository.path().join(".git/index")).unwrap(),
        before,
        "the index is untouched"
    );
    assert_eq!(
        standing(&project, &id),
        Standing::PassingStale,
        "that code is not committed"
    );
    repository.commit("with it");
    assert_eq!(standing(&project, &id), Standing::Passing);
}

#[test]
fn pass_holds_while_its_package_does() {
    let repository = Repository::new();
    let project = project(&repository);
    tests(&repository, "echo '1 passed'\n");
    for file in [
        "web/package.json",
        "web/a.js",
        "api/pyproject.toml",
        "api/tests/test_a.py",
        "api/a.py",
        "docs/a.md",
    ] {
        repository.write(file, "x\n");
    }
    repository.commit("first");
    let features = Features::new(&project);
    let api = add(&project, "Api", &["api/tests/test_a.py"]);
    let all = add(&project, "All", &["other"]);
    let named = Add {
        name: "Docs".into(),
        tests: vec!["other".into()],
        paths: vec!["docs".into(), "web/a.js".into()],
        ..Add::default()
    };
    let named = features.add(&named, None).unwrap().feature.id;
    features.verify_each(&Which::All).unwrap();
    let stale = || [&api, &all, &named].map(|id| standing(&project, id) == Standing::PassingStale);
    assert_eq!(stale(), [false, false, false]);
    repository.write("web/b.js", "x\n");
    repository.commit("second");
    assert_eq!(stale(), [false, true, false], "only one is about all of it");
    assert_eq!(
        features.list().unwrap().counts.to_string(),
        "3 of 3 pass, 1 of them on older code"
    );
    repository.write("web/a.js", "y\n");
    assert_eq!(
        stale(),
        [false, true, false],
        "what is not committed makes nothing stale"
    );
    repository.commit("third");
    assert_eq!(stale(), [false, true, true]);
    repository.write("api/a.py", "y\n");
    repository.commit("fourth");
    assert_eq!(stale(), [true, true, true]);
    // Only the report is new.
    repository.run(&["add", "--all"]);
    features.verify_each(&Which::Stale).unwrap();
    assert_eq!(stale(), [false, false, false]);
    let changed = repository.run(&["status", "--porcelain", "--untracked-files=all"]);
    let changed: Vec<&str> = changed
        .lines()
        .filter(|line| !line.contains(".local") && !line.contains("index"))
        .collect();
    assert!(
        matches!(&changed[..], [one] if one.contains("_verify.json")),
        "{changed:?}"
    );
    let tree = repository.run(&["rev-parse", "HEAD^{tree}"]);
    repository.run(&["checkout", "-q", "--orphan", "squashed"]);
    repository.commit("all in one");
    assert_ne!(
        repository.run(&["rev-parse", "HEAD^{tree}"]),
        tree,
        "with the report"
    );
    assert_eq!(stale(), [false, false, false], "the commits may go");
}

#[test]
fn suite_of_many_features_runs_once() {
    let repository = Repository::new();
    drop(project(&repository));
    let config = "[verify]\nrunner = \"./cargo test {prefix}\"\n";
    repository.write(".forge/config.toml", config);
    let lines: String = (0..20)
        .map(|number| format!("echo 'test t{number}::it ... ok'\n"))
        .collect();
    let script = |last: &str| {
        format!(
            "#!/bin/sh\necho run >> .git/runs\n{lines}echo 'test last::it ... {last}'\necho 'test result: ok. 21 passed;'\n"
        )
    };
    repository.write("cargo", script("ok"));
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(repository.path().join("cargo"), executable).unwrap();
    repository.commit("first");
    let project = Project::open(repository.path(), ProjectEnvironment::default())
        .unwrap()
        .unwrap();
    crate::trust::agree(&project, &crate::trust::state(&project).unwrap()).unwrap();
    for number in 0..20 {
        add(
            &project,
            &format!("Number {number}"),
            &[&format!("t{number}::*")],
        );
    }
    let last = add(&project, "The last", &["last::*"]);
    let absent = add(&project, "None", &["absent::*"]);
    let runs = || {
        std::fs::read_to_string(repository.path().join(".git/runs"))
            .unwrap()
            .lines()
            .count()
    };
    let features = Features::new(&project);
    let all = features.verify_each(&Which::All).unwrap();
    assert_eq!(
        (all.len(), all.iter().filter(|one| one.passed).count()),
        (22, 22),
        "the last by a run of its own"
    );
    assert_eq!(runs(), 2);
    assert_eq!(
        all.iter()
            .filter(|one| one.id == absent)
            .map(|one| one.executed)
            .collect::<Vec<_>>(),
        [21]
    );
    let evidence: std::collections::BTreeSet<_> =
        all.iter().filter_map(|one| one.evidence.clone()).collect();
    assert_eq!(evidence.len(), 1, "one report");
    repository.write("cargo", script("FAILED"));
    let failed = features.verify_each(&Which::All).unwrap();
    let failed: Vec<&str> = failed
        .iter()
        .filter(|one| !one.passed)
        .map(|one| one.id.as_str())
        .collect();
    assert_eq!(failed, [last.as_str()]);
    // One of many runs alone.
    let before = runs();
    features.verify("FORGE-001").unwrap();
    assert_eq!(runs(), before + 1);
}

#[test]
fn what_was_agreed_changes_only_with_a_reason() {
    let repository = Repository::new();
    let project = project(&repository);
    let features = Features::new(&project);
    let id = add(&project, "One", &["a", "b"]);
    let rename = Edit {
        name: Some("First".into()),
        ..Edit::default()
    };
    features.set(&id, &rename, None).unwrap();
    checkpoint(&repository, "A-1-v1");

    let edits = [
        Edit {
            name: Some("Other".into()),
            ..Edit::default()
        },
        Edit {
            tests: Some(vec!["a".into()]),
            ..Edit::default()
        },
    ];
    let before = made::<FeaturesFile>(repository.path());
    for edit in &edits {
        let error = features.set(&id, edit, None).unwrap_err();
        assert_eq!((error.code, error.category.exit_code()), ("E_CONTRACT", 9));
    }
    assert_eq!(
        features.remove(&id, None, None).unwrap_err().code,
        "E_CONTRACT"
    );
    assert_eq!(made::<FeaturesFile>(repository.path()), before);
    let more = Edit {
        tests: Some(vec!["b".into(), "a".into(), "c".into()]),
        ..Edit::default()
    };
    features.set(&id, &more, None).unwrap();

    let amend = Edit {
        reason: Some("b was wrong".into()),
        ..edits[1].clone()
    };
    let changed = features.set(&id, &amend, None).unwrap();
    assert_eq!(changed.amended.len(), 1);
    let file = features.read().unwrap();
    assert_eq!(
        (file.amendments.len(), file.amendments[0].reason.as_str()),
        (1, "b was wrong")
    );

    features.remove(&id, Some("not needed"), None).unwrap();
    assert_eq!(features.read().unwrap().retired, std::slice::from_ref(&id));
    assert_eq!(
        add(&project, "Two", &[]),
        "FORGE-002",
        "no id is given twice"
    );
    let again = Add {
        id: Some(id),
        name: "Again".into(),
        ..Add::default()
    };
    assert!(features.add(&again, None).is_err());
}

#[test]
fn a_status_needs_what_it_says() {
    let repository = Repository::new();
    let project = project(&repository);
    let features = Features::new(&project);
    let id = add(&project, "One", &["a"]);
    let set = |status: Status, reason: Option<&str>, blocker: Option<&str>| {
        let blocked_by = blocker.map(|blocker| BlockedBy::One(blocker.into()));
        features.set(
            &id,
            &Edit {
                status: Some(status),
                reason: reason.map(Into::into),
                blocked_by,
                ..Edit::default()
            },
            None,
        )
    };
    assert!(set(Status::Blocked, None, None).is_err());
    assert!(set(Status::Deferred, None, None).is_err());
    assert!(
        set(Status::Blocked, None, Some("FORGE-007")).is_err(),
        "that is not there"
    );
    assert!(set(Status::Blocked, None, Some(&id)).is_err(), "itself");
    set(Status::Blocked, None, Some("the vendor")).unwrap();
    set(Status::InProgress, None, None).unwrap();
    assert_eq!(
        features.read().unwrap().features[0].agent.as_deref(),
        Some("Forge")
    );
    set(Status::Deferred, Some("later"), None).unwrap();
    let listed = features.list().unwrap();
    assert_eq!((listed.counts.total, listed.counts.counted), (1, 0));
}

#[test]
fn other_tests_than_those_that_ran_show_nothing() {
    let repository = Repository::new();
    let project = project(&repository);
    tests(&repository, "echo '1 passed'\n");
    let id = add(&project, "One", &["a"]);
    Features::new(&project).verify(&id).unwrap();
    let edit = Edit {
        tests: Some(vec!["a".into(), "b".into()]),
        ..Edit::default()
    };
    let changed = Features::new(&project).set(&id, &edit, None).unwrap();
    assert_eq!(
        (changed.feature.status, changed.feature.evidence),
        (Status::Failing, None)
    );
    assert_eq!(changed.feature.regressed_at, None, "nothing broke");
}

#[test]
fn credentials_do_not_reach_the_report() {
    let repository = Repository::new();
    let project = project(&repository);
    let token = format!("{}{}", "gh", "p_0123456789abcdefABCDEF0123456789abcd");
    tests(
        &repository,
        &format!("echo token {token}\necho '1 passed'\n"),
    );
    let id = add(&project, "One", &["a"]);
    let verified = Features::new(&project).verify(&id).unwrap();
    assert!(verified.passed);
    assert!(
        !verified.runs[0].output.contains("0123456789"),
        "{}",
        verified.runs[0].output
    );
    assert!(verified.runs[0].output.ends_with("1 passed\n"));
}

#[test]
fn printed_private_keys_reach_no_report() {
    let repository = Repository::new();
    let project = project(&repository);
    let key = |word: &str| format!("-----{word} RSA PRIVATE {}-----", "KEY");
    let script = format!(
        "cat <<'E'\n{}\nMIIEow\nAAKCAQ\n{}\nE\necho '1 passed'\n",
        key("BEGIN"),
        key("END")
    );
    tests(&repository, &script);
    let id = add(&project, "One", &["a"]);
    let verified = Features::new(&project).verify(&id).unwrap();
    assert!(
        verified.passed && verified.runs[0].output.ends_with("1 passed\n"),
        "{verified:?}"
    );
    let entry = Artifacts::new(&project)
        .get(&verified.evidence.unwrap())
        .unwrap()
        .entry;
    let report = String::from_utf8(Artifacts::new(&project).bytes(&entry).unwrap()).unwrap();
    assert!(
        report.contains("1 passed") && !report.contains("MIIEow") && !report.contains("AAKCAQ"),
        "{report}"
    );
}

#[test]
fn evidence_shows_only_the_feature_it_is_of() {
    let repository = Repository::new();
    let project = project(&repository);
    tests(&repository, "echo '1 passed'\n");
    let (first, second) = (add(&project, "One", &["a"]), add(&project, "Two", &["b"]));
    let evidence = Features::new(&project)
        .verify(&first)
        .unwrap()
        .evidence
        .unwrap();
    let text = made::<FeaturesFile>(repository.path());
    let say = |evidence: &str| {
        let mut file: FeaturesFile = serde_json::from_str(&text).unwrap();
        let from = file.features[0].clone();
        let to = &mut file.features[1];
        (to.status, to.verified_at, to.evidence) =
            (Status::Passing, from.verified_at, Some(evidence.to_owned()));
        (to.verified_commit, to.verified_code_tree) =
            (from.verified_commit, from.verified_code_tree);
        write_entries::<FeaturesFile>(repository.path(), &serde_json::to_string(&file).unwrap());
        standing(&project, &second)
    };
    assert_eq!(say(&evidence), Standing::UnverifiedPass, "that of another");
    let short = format!("{}_{}", &evidence[..8], ["abc", "def"].join("_"));
    assert_eq!(say(&short), Standing::UnverifiedPass);
    let put = crate::artifacts::Put::new(crate::artifacts::Kind::Code, "verify_forge-002.json");
    let code = Artifacts::new(&project)
        .put(b"{}", &put)
        .unwrap()
        .entry
        .triv
        .to_string();
    assert_eq!(say(&code), Standing::UnverifiedPass, "no report");
    let own = Features::new(&project)
        .verify(&second)
        .unwrap()
        .evidence
        .unwrap();
    assert_eq!(standing(&project, &second), Standing::Passing);
    let entry = Artifacts::new(&project).get(&own).unwrap().entry;
    std::fs::remove_file(repository.path().join(&entry.path)).unwrap();
    assert_eq!(
        standing(&project, &second),
        Standing::UnverifiedPass,
        "the report is gone"
    );
    assert_eq!(standing(&project, &first), Standing::Passing);
    // A checkpoint keeps the passes of its code.
    repository.write(
        ".forge/git/checkpoints/A-1-v1.json",
        format!(
            r#"{{"timestamp": "2025-12-24T12:00:00Z", "code_tree": null, "passes": {{"{second}": {{"executed": 1}}}}}}"#
        ),
    );
    assert_ne!(standing(&project, &second), Standing::UnverifiedPass);
}

#[test]
fn failing_test_outweighs_one_that_cannot_start() {
    let repository = Repository::new();
    let project = project(&repository);
    let mut config = std::fs::read_to_string(repository.path().join(".forge/config.toml")).unwrap();
    config.push_str("[verify.runners.missing]\ncommand = \"there-is-no-such-program {prefix}\"\n");
    tests(&repository, "echo '1 passed'\n");
    let id = add(&project, "One", &["a"]);
    Features::new(&project).verify(&id).unwrap();
    let mut file = Features::new(&project).read().unwrap();
    file.features[0].tests = Some(vec!["missing:x".into(), "a".into()]);
    write_entries::<FeaturesFile>(repository.path(), &serde_json::to_string(&file).unwrap());
    repository.write(".forge/config.toml", config);
    let project = Project::open(repository.path(), ProjectEnvironment::default())
        .unwrap()
        .unwrap();
    let verified = Features::new(&project).verify(&id).unwrap();
    assert_eq!(
        (verified.problem, verified.status),
        (Some(Problem::CannotStart), Status::Passing),
        "it tells nothing"
    );
    let mut file = Features::new(&project).read().unwrap();
    file.features[0].tests = Some(vec!["missing:x".into()]);
    write_entries::<FeaturesFile>(repository.path(), &serde_json::to_string(&file).unwrap());
    let hint = Features::new(&project).verify(&id).unwrap().hint.unwrap();
    let new = add(&project, "Two", &["missing:y"]);
    let verified = Features::new(&project).verify(&new).unwrap();
    assert_eq!(
        (verified.problem, verified.status),
        (Some(Problem::CannotStart), Status::NotImplemented)
    );
    let mut file = Features::new(&project).read().unwrap();
    assert!(
        hint.contains("`there-is-no-such-program x` could not be started"),
        "{hint}"
    );
    file.features[0].tests = Some(vec!["missing:x".into(), "a".into()]);
    write_entries::<FeaturesFile>(repository.path(), &serde_json::to_string(&file).unwrap());
    tests(&repository, "echo '0 passed'; exit 1\n");
    let verified = Features::new(&project).verify(&id).unwrap();
    assert_eq!(
        (verified.problem, verified.status),
        (Some(Problem::TestsFailed), Status::Failing)
    );
    assert!(verified.regressed);
}

#[test]
fn a_damaged_feature_hides_no_other() {
    let repository = Repository::new();
    let project = project(&repository);
    let (first, second) = (add(&project, "One", &["a"]), add(&project, "Two", &["b"]));
    let path = crate::fixture::file_of(
        repository.path(),
        crate::layout::FEATURES_ENTRIES,
        &format!("{first}-one"),
    );
    repository.write(&path, "{");
    let ids = || -> Vec<String> {
        let listed = Features::new(&project).list().unwrap();
        listed
            .features
            .into_iter()
            .map(|item| item.feature.id)
            .collect()
    };
    assert_eq!(ids(), [second.as_str()]);
    let third = add(&project, "Three", &["c"]);
    assert_eq!(ids(), [second, third]);
    assert_eq!(
        std::fs::read_to_string(repository.path().join(&path)).unwrap(),
        "{"
    );
    assert_eq!(crate::repair::damaged(&project).unwrap(), [path]);
}
