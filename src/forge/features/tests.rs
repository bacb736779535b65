//! Feature tests in a real project and repository, with real programs as tests.

use super::*;
use crate::artifacts::Artifacts;
use crate::environment::ProjectEnvironment;
use crate::error::Category;
use crate::features::Features;
use crate::git::fixture::Repository;
use crate::layout::FEATURES;

/// Fixture: a project whose test command is a script with chosen output and exit code.
fn project(repository: &Repository) -> Project {
    std::fs::create_dir_all(repository.path().join(".forge/memory/long-term")).unwrap();
    repository.write(
        ".forge/config.toml",
        "[verify]\nrunner = \"sh tests.sh {prefix}\"\ncount_regex = '(\\d+) passed'\ntimeout_s = 60\n",
    );
    Project::open(repository.path(), ProjectEnvironment::default()).unwrap().unwrap()
}

fn tests(repository: &Repository, script: &str) {
    repository.write("tests.sh", script);
}

fn add(project: &Project, name: &str, tests: &[&str]) -> String {
    let tests = tests.iter().map(|test| (*test).to_owned()).collect();
    Features::new(project).add(&Add { name: name.into(), tests, ..Add::default() }, None).unwrap().feature.id
}

fn standing(project: &Project, id: &str) -> Standing {
    let listed = Features::new(project).list(true).unwrap();
    listed.features.into_iter().find(|item| item.feature.id == id).unwrap().standing
}

fn checkpoint(repository: &Repository, name: &str) {
    repository.run(&["add", "-f", FEATURES]);
    repository.commit("agree");
    repository.run(&["tag", "-a", &format!("checkpoint/{name}"), "-m", "agreed"]);
}

#[test]
fn projects_without_a_runner_are_told_what_to_set() {
    let repository = Repository::new();
    drop(project(&repository));
    repository.write(".forge/config.toml", "");
    repository.commit("first");
    let project = Project::open(repository.path(), ProjectEnvironment::default()).unwrap().unwrap();
    let id = add(&project, "A thing", &["a::*"]);
    let verified = Features::new(&project).verify(&id).unwrap();
    assert_eq!((verified.passed, verified.problem), (false, Some(Problem::CannotStart)));
    let hint = verified.hint.unwrap();
    assert!(hint.contains("verify.runner") && !hint.contains("could not be started"), "{hint}");
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
    let edit = Edit { status: Some(Status::Passing), ..Edit::default() };
    assert_eq!(features.set(&id, &edit, None).unwrap_err().category, Category::Refused);

    let verified = features.verify(&id).unwrap();
    assert!(verified.passed && !verified.dirty, "{verified:?}");
    assert_eq!((verified.executed, verified.runs.len()), (6, 2));
    assert_eq!(verified.runs[0].output, "a::tests::: 3 passed\n");
    let item = features.list(true).unwrap().features.remove(0);
    assert_eq!(item.standing, Standing::Passing);
    assert_eq!(item.feature.evidence, verified.evidence);
    assert_eq!(item.feature.verified_commit, verified.commit);
    let git = repository.git();
    assert_eq!(item.feature.verified_code_tree, Some(git.code_tree(&git.head().unwrap().unwrap()).unwrap()));
    let got = Artifacts::new(&project).get(&verified.evidence.unwrap()).unwrap();
    let report: serde_json::Value =
        serde_json::from_slice(&Artifacts::new(&project).bytes(&got.entry).unwrap()).unwrap();
    assert_eq!((&report["feature"], &report["executed"]), (&"FORGE-001".into(), &6.into()));

    repository.write("other.txt", "changed");
    repository.commit("second");
    assert_eq!(standing(&project, &id), Standing::PassingStale);
    assert_eq!(features.list(false).unwrap().counts.passing, 1);
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
        assert_eq!((verified.passed, verified.problem), (false, Some(problem)), "{script}");
        assert_eq!((verified.status, verified.regressed, verified.evidence), (Status::Failing, false, None));
    }
    let none = add(&project, "Another", &[]);
    assert_eq!(features.verify(&none).unwrap().problem, Some(Problem::NoTests));
    assert_eq!(features.verify("FORGE-099").unwrap_err().category, Category::NotFound);
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
    let probed = features.probe(None).unwrap();
    assert_eq!(probed.len(), 1);
    assert!(probed[0].regressed && !probed[0].passed);
    let chosen = features.next().unwrap().unwrap();
    assert_eq!((chosen.feature.id.as_str(), chosen.why), (second.as_str(), Next::Regressed));
    assert_eq!(features.list(false).unwrap().counts.regressed, 1);
    tests(&repository, "echo '1 passed'\n");
    assert!(features.verify(&second).unwrap().passed);
    assert_eq!(features.read().unwrap().get(&second).unwrap().regressed_at, None);
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
        status.entries.iter().all(|entry| entry.path.starts_with(".forge/.local/"))
    };
    let probed = features.probe(None).unwrap().remove(0);
    assert!(probed.passed && probed.executed == 1);
    assert_eq!(probed.evidence, verified.evidence);
    assert!(clean(), "the code is the same, and so is what is known of it");
    assert_ne!(features.verify(&id).unwrap().evidence, verified.evidence, "who asks for it gets a new report");
    repository.commit("verified again");
    repository.write("src/new.rs", "fn new() {}\n");
    repository.commit("other code");
    features.probe(None).unwrap();
    assert!(!clean(), "that it works on other code is new");
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
    assert_eq!(std::fs::read(repository.path().join(".git/index")).unwrap(), before, "the index is untouched");
    assert_eq!(standing(&project, &id), Standing::PassingStale, "that code is not committed");
    repository.commit("with it");
    assert_eq!(standing(&project, &id), Standing::Passing);
}

#[test]
fn pass_holds_while_its_test_files_do() {
    let repository = Repository::new();
    let project = project(&repository);
    tests(&repository, "echo '1 passed'\n");
    repository.write("src/nats/subjects.rs", "mod tests {}\n");
    repository.commit("first");
    let id = add(&project, "One", &["nats::subjects::tests::*"]);
    assert!(Features::new(&project).verify(&id).unwrap().passed);
    repository.write("README.md", "more\n");
    repository.commit("second");
    assert_eq!(standing(&project, &id), Standing::Passing);
    repository.write("src/nats/subjects.rs", "mod tests { }\n");
    assert_eq!(standing(&project, &id), Standing::PassingStale);
}

#[test]
fn what_was_agreed_changes_only_with_a_reason() {
    let repository = Repository::new();
    let project = project(&repository);
    let features = Features::new(&project);
    let id = add(&project, "One", &["a", "b"]);
    let rename = Edit { name: Some("First".into()), ..Edit::default() };
    features.set(&id, &rename, None).unwrap();
    checkpoint(&repository, "A-1-v1");

    let edits = [
        Edit { name: Some("Other".into()), ..Edit::default() },
        Edit { tests: Some(vec!["a".into()]), ..Edit::default() },
        Edit { manual: Some(true), ..Edit::default() },
    ];
    let before = std::fs::read(repository.path().join(FEATURES)).unwrap();
    for edit in &edits {
        let error = features.set(&id, edit, None).unwrap_err();
        assert_eq!((error.code, error.category.exit_code()), ("E_CONTRACT", 9));
    }
    assert_eq!(features.remove(&id, None, None).unwrap_err().code, "E_CONTRACT");
    assert_eq!(std::fs::read(repository.path().join(FEATURES)).unwrap(), before);
    let more = Edit { tests: Some(vec!["b".into(), "a".into(), "c".into()]), ..Edit::default() };
    features.set(&id, &more, None).unwrap();

    let amend = Edit { amend_contract: Some("b was wrong".into()), ..edits[1].clone() };
    let changed = features.set(&id, &amend, None).unwrap();
    assert_eq!(changed.amended.len(), 1);
    let file = features.read().unwrap();
    assert_eq!((file.amendments.len(), file.amendments[0].reason.as_str()), (1, "b was wrong"));
    let audit = features.audit(None).unwrap();
    assert_eq!((audit.since.as_str(), audit.differences.len(), audit.amendments.len()), ("checkpoint/A-1-v1", 1, 1));

    features.remove(&id, Some("not needed"), None).unwrap();
    assert_eq!(features.read().unwrap().retired, std::slice::from_ref(&id));
    assert_eq!(add(&project, "Two", &[]), "FORGE-002", "no id is given twice");
    let again = Add { id: Some(id), name: "Again".into(), ..Add::default() };
    assert!(features.add(&again, None).is_err());
}

#[test]
fn an_audit_lists_weakened_tests_and_unverified_passes() {
    let repository = Repository::new();
    let project = project(&repository);
    add(&project, "One", &["a"]);
    repository.write("src/a.rs", "#[test]\nfn a() {}\n#[test]\nfn b() {}\n");
    repository.write("src/b.rs", "#[test]\nfn a() {}\n");
    assert_eq!(Features::new(&project).audit(None).unwrap_err().category, Category::NotFound);
    checkpoint(&repository, "A-1-v1");
    repository.write("src/a.rs", "#[test]\n#[ignore]\nfn a() {}\n#[test]\nfn b() {}\n");
    std::fs::remove_file(repository.path().join("src/b.rs")).unwrap();
    let text = std::fs::read_to_string(repository.path().join(FEATURES)).unwrap();
    repository.write(FEATURES, text.replace("not_implemented", "passing"));
    let audit = Features::new(&project).audit(Some("A-1-v1")).unwrap();
    let paths: Vec<_> = audit.weakened.iter().map(|weak| (weak.path.as_str(), weak.tests_after)).collect();
    assert_eq!(paths, [("src/a.rs", 2), ("src/b.rs", 0)]);
    assert_eq!((audit.unverified, audit.put_off), (vec!["FORGE-001".to_owned()], vec![]));
    let later = Edit { status: Some(Status::Deferred), reason: Some("later".into()), ..Edit::default() };
    Features::new(&project).set("FORGE-001", &later, None).unwrap();
    assert_eq!(Features::new(&project).audit(None).unwrap().put_off, ["FORGE-001"]);
    assert_eq!(Features::new(&project).audit(Some("none")).unwrap_err().category, Category::NotFound);
}

#[test]
fn manual_features_need_a_person() {
    let repository = Repository::new();
    let project = project(&repository);
    let features = Features::new(&project);
    let add = Add { name: "Looks good".into(), manual: true, ..Add::default() };
    let id = features.add(&add, None).unwrap().feature.id;
    assert_eq!(features.verify(&id).unwrap_err().category, Category::Usage);
    let mut manual = Manual { evidence: "triv:abc_def_ghi".into(), by: "Ada".into() };
    assert_eq!(features.manual(&id, &manual).unwrap_err().category, Category::NotFound);
    let put = crate::artifacts::Put::new(crate::artifacts::Kind::Reports, "seen.md");
    manual.evidence = Artifacts::new(&project).put(b"I saw it.\n", &put).unwrap().entry.triv.to_string();
    manual.by = "Forge".into();
    assert_eq!(features.manual(&id, &manual).unwrap_err().category, Category::Refused);
    manual.by = "Ada".into();
    features.manual(&id, &manual).unwrap();
    assert_eq!(standing(&project, &id), Standing::Passing);
    let tested = super::tests::add(&project, "Tested", &["a"]);
    assert_eq!(features.manual(&tested, &manual).unwrap_err().category, Category::Usage);
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
            &Edit { status: Some(status), reason: reason.map(Into::into), blocked_by, ..Edit::default() },
            None,
        )
    };
    assert!(set(Status::Blocked, None, None).is_err());
    assert!(set(Status::Deferred, None, None).is_err());
    assert!(set(Status::Blocked, None, Some("FORGE-007")).is_err(), "that is not there");
    assert!(set(Status::Blocked, None, Some(&id)).is_err(), "itself");
    set(Status::Blocked, None, Some("the vendor")).unwrap();
    set(Status::InProgress, None, None).unwrap();
    assert_eq!(features.read().unwrap().features[0].agent.as_deref(), Some("Forge"));
    set(Status::Deferred, Some("later"), None).unwrap();
    let listed = features.list(true).unwrap();
    assert_eq!((listed.counts.total, listed.counts.counted), (1, 0));
}

#[test]
fn other_tests_than_those_that_ran_show_nothing() {
    let repository = Repository::new();
    let project = project(&repository);
    tests(&repository, "echo '1 passed'\n");
    let id = add(&project, "One", &["a"]);
    Features::new(&project).verify(&id).unwrap();
    let edit = Edit { tests: Some(vec!["a".into(), "b".into()]), ..Edit::default() };
    let changed = Features::new(&project).set(&id, &edit, None).unwrap();
    assert_eq!((changed.feature.status, changed.feature.evidence), (Status::Failing, None));
    assert_eq!(changed.feature.regressed_at, None, "nothing broke");
}

#[test]
fn credentials_do_not_reach_the_report() {
    let repository = Repository::new();
    let project = project(&repository);
    let token = format!("{}{}", "gh", "p_0123456789abcdefABCDEF0123456789abcd");
    tests(&repository, &format!("echo token {token}\necho '1 passed'\n"));
    let id = add(&project, "One", &["a"]);
    let verified = Features::new(&project).verify(&id).unwrap();
    assert!(verified.passed);
    assert!(!verified.runs[0].output.contains("0123456789"), "{}", verified.runs[0].output);
    assert!(verified.runs[0].output.ends_with("1 passed\n"));
}

#[test]
fn printed_private_keys_reach_no_report() {
    let repository = Repository::new();
    let project = project(&repository);
    let key = |word: &str| format!("-----{word} RSA PRIVATE {}-----", "KEY");
    let script = format!("cat <<'E'\n{}\nMIIEow\nAAKCAQ\n{}\nE\necho '1 passed'\n", key("BEGIN"), key("END"));
    tests(&repository, &script);
    let id = add(&project, "One", &["a"]);
    let verified = Features::new(&project).verify(&id).unwrap();
    assert!(verified.passed && verified.runs[0].output.ends_with("1 passed\n"), "{verified:?}");
    let entry = Artifacts::new(&project).get(&verified.evidence.unwrap()).unwrap().entry;
    let report = String::from_utf8(Artifacts::new(&project).bytes(&entry).unwrap()).unwrap();
    assert!(report.contains("1 passed") && !report.contains("MIIEow") && !report.contains("AAKCAQ"), "{report}");
}

#[test]
fn evidence_shows_only_the_feature_it_is_of() {
    let repository = Repository::new();
    let project = project(&repository);
    tests(&repository, "echo '1 passed'\n");
    let (first, second) = (add(&project, "One", &["a"]), add(&project, "Two", &["b"]));
    let evidence = Features::new(&project).verify(&first).unwrap().evidence.unwrap();
    let text = std::fs::read_to_string(repository.path().join(FEATURES)).unwrap();
    let say = |evidence: &str| {
        let mut file: FeaturesFile = serde_json::from_str(&text).unwrap();
        let from = file.features[0].clone();
        let to = &mut file.features[1];
        (to.status, to.verified_at, to.evidence) = (Status::Passing, from.verified_at, Some(evidence.to_owned()));
        (to.verified_commit, to.verified_code_tree) = (from.verified_commit, from.verified_code_tree);
        repository.write(FEATURES, serde_json::to_string(&file).unwrap());
        standing(&project, &second)
    };
    assert_eq!(say(&evidence), Standing::UnverifiedPass, "that of another");
    let short = format!("{}_{}", &evidence[..8], ["abc", "def"].join("_"));
    assert_eq!(say(&short), Standing::UnverifiedPass);
    let put = crate::artifacts::Put::new(crate::artifacts::Kind::Code, "verify_forge-002.json");
    let code = Artifacts::new(&project).put(b"{}", &put).unwrap().entry.triv.to_string();
    assert_eq!(say(&code), Standing::UnverifiedPass, "no report");
    let own = Features::new(&project).verify(&second).unwrap().evidence.unwrap();
    assert_eq!(standing(&project, &second), Standing::Passing);

    // The index was lost: the file of the report is enough, with or without a new index.
    let index = repository.path().join(crate::layout::ARTIFACT_INDEX);
    let before = std::fs::read(&index).unwrap();
    std::fs::remove_file(&index).unwrap();
    assert_eq!(standing(&project, &second), Standing::Passing);
    assert_eq!(say(&evidence), Standing::UnverifiedPass, "that of another, by its file");
    assert_eq!(say(&own), Standing::Passing);
    Artifacts::new(&project).rebuild().unwrap();
    assert_eq!(standing(&project, &second), Standing::Passing);
    assert_eq!(say(&evidence), Standing::UnverifiedPass);
    std::fs::write(&index, before).unwrap();
    let entry = Artifacts::new(&project).get(&own).unwrap().entry;
    say(&own);
    std::fs::remove_file(repository.path().join(&entry.path)).unwrap();
    assert_eq!(standing(&project, &second), Standing::UnverifiedPass, "the report is gone");
    assert_eq!(standing(&project, &first), Standing::Passing);
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
    repository.write(FEATURES, serde_json::to_string(&file).unwrap());
    repository.write(".forge/config.toml", config);
    let project = Project::open(repository.path(), ProjectEnvironment::default()).unwrap().unwrap();
    let verified = Features::new(&project).verify(&id).unwrap();
    assert_eq!((verified.problem, verified.status), (Some(Problem::CannotStart), Status::Passing), "it tells nothing");
    let mut file = Features::new(&project).read().unwrap();
    file.features[0].tests = Some(vec!["missing:x".into()]);
    repository.write(FEATURES, serde_json::to_string(&file).unwrap());
    let hint = Features::new(&project).verify(&id).unwrap().hint.unwrap();
    let new = add(&project, "Two", &["missing:y"]);
    let verified = Features::new(&project).verify(&new).unwrap();
    assert_eq!((verified.problem, verified.status), (Some(Problem::CannotStart), Status::NotImplemented));
    let mut file = Features::new(&project).read().unwrap();
    assert!(hint.contains("`there-is-no-such-program x` could not be started"), "{hint}");
    file.features[0].tests = Some(vec!["missing:x".into(), "a".into()]);
    repository.write(FEATURES, serde_json::to_string(&file).unwrap());
    tests(&repository, "echo '0 passed'; exit 1\n");
    let verified = Features::new(&project).verify(&id).unwrap();
    assert_eq!((verified.problem, verified.status), (Some(Problem::TestsFailed), Status::Failing));
    assert!(verified.regressed);
}
