//! End-to-end test with a crate whose tests are real.
//!
//! A session stops without an end, the next one continues its work and breaks the code, a rollback
//! follows, and two agents learn at the same time.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::checkpoints::{Checkpoints, Create};
use crate::environment::ProjectEnvironment;
use crate::events::{Events, Replay, Subject};
use crate::features::{Add, Features, Problem, Status};
use crate::focus::{Focused, SetFocus};
use crate::git::fixture::{Repository, run_at};
use crate::git::{Commits, NewCommit};
use crate::health::{self, Colour};
use crate::init::{self, Init};
use crate::knowledge::{Knowledge, Learning, What};
use crate::layout;
use crate::project::Project;
use crate::recovery::{Action, Apply, Assess, Class, Recovery};
use crate::sessions::{End, Log, Sessions, Start, State};

const MANIFEST: &str =
    "[package]\nname = \"sums\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[workspace]\n";
const SUMS: &str = "//! Sums.\n\n/// Adds.\npub fn add(a: i64, b: i64) -> i64 {\n    a + b\n}\n\n/// Doubles.\npub fn double(a: i64) -> i64 {\n    \
                    add(a, a)\n}\n\n#[cfg(test)]\nmod adding {\n    #[test]\n    fn two_and_two() {\n        assert_eq!(super::add(2, 2), 4);\n    \
                    }\n}\n\n#[cfg(test)]\nmod doubling {\n    #[test]\n    fn of_four() {\n        assert_eq!(super::double(4), 8);\n    }\n}\n";
/// The folder of what cargo builds is named, for this test may itself run in one that others wait
/// for.
const CONFIG: &str = "[verify]\nrunner = \"cargo test --offline --target-dir target {prefix}\"\n\
                      commands = [\"cargo test --offline --target-dir target\"]\n";

fn open(root: &Path) -> Project {
    Project::open(root, ProjectEnvironment::default())
        .unwrap()
        .unwrap()
}

fn agent(root: &Path, name: &str) -> Project {
    Project::open(
        root,
        ProjectEnvironment {
            agent: name.to_owned(),
            ..ProjectEnvironment::default()
        },
    )
    .unwrap()
    .unwrap()
}

/// A crate in a repository, with a memory.
fn begin() -> Repository {
    let repository = Repository::new();
    for (name, value) in [("user.name", "Ann"), ("user.email", "ann@example.com")] {
        repository.run(&["config", name, value]);
    }
    repository.write("Cargo.toml", MANIFEST);
    repository.write("src/lib.rs", SUMS);
    let lock = ["generate-lockfile", "--offline"];
    assert!(
        Command::new("cargo")
            .args(lock)
            .current_dir(repository.path())
            .status()
            .unwrap()
            .success()
    );
    repository.write(".gitignore", "/target/\n");
    let (project, begun) = init::init(
        repository.path(),
        ProjectEnvironment::default(),
        &Init::default(),
    )
    .unwrap();
    assert!(
        begun
            .created
            .iter()
            .any(|path| path == layout::KNOWLEDGE_ENTRIES),
        "{:?}",
        begun.created
    );
    drop(project);
    repository.write(layout::CONFIG, CONFIG);
    repository.commit("[session] Begin");
    repository
}

fn feature(name: &str, tests: &str) -> Add {
    Add {
        name: name.to_owned(),
        tests: vec![tests.to_owned()],
        ..Add::default()
    }
}

fn pattern(context: &str, approach: &str) -> Learning {
    Learning::new(What::Successful {
        context: context.to_owned(),
        approach: approach.to_owned(),
    })
}

/// Commits with the project's message format, as the active session.
fn commit(project: &Project, subject: &str, paths: &[&str]) -> String {
    let session = Sessions::new(project).current().unwrap().unwrap();
    let origin = Commits::new(project)
        .origin(&session.id, &session.uuid)
        .unwrap();
    let new = NewCommit {
        key: Some("SUM-1".to_owned()),
        subject: subject.to_owned(),
        what: vec![subject.to_owned()],
        why: "It was to be done".to_owned(),
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        ..NewCommit::default()
    };
    Commits::new(project)
        .create(&new, &origin)
        .unwrap()
        .oid
        .to_string()
}

/// Everything that is work: all files but those git ignores, its own, and what belongs to this
/// clone.
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let listed = run_at(
        root,
        &[
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "-z",
        ],
    );
    let paths = listed
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    let read = |path: PathBuf| {
        std::fs::read(root.join(&path))
            .ok()
            .map(|bytes| (path, bytes))
    };
    paths.filter_map(read).collect()
}

/// Returns the bytes of a path in a commit.
fn in_commit(root: &Path, commit: &str, path: &Path) -> Option<Vec<u8>> {
    let mut child = Command::new("git")
        .args(["cat-file", "blob", &format!("{commit}:{}", path.display())])
        .current_dir(root)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut bytes = Vec::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut bytes)
        .unwrap();
    child.wait().unwrap().success().then_some(bytes)
}

/// Session 1: three features (two verified), a learning and a checkpoint. Returns its id.
fn first_session(repository: &Repository) -> String {
    let project = open(repository.path());
    let begun = Sessions::new(&project).start(&Start::default()).unwrap();
    assert_eq!((begun.session.state, begun.paused), (State::Live, None));
    assert_eq!(
        begun.recovery.as_deref(),
        Some("UNKNOWN"),
        "there is no checkpoint yet, which pauses nothing"
    );
    for add in [
        feature("Adding", "adding::*"),
        feature("Doubling", "doubling::*"),
        feature("Halving", "halving::*"),
    ] {
        Features::new(&project).add(&add, None).unwrap();
    }
    for id in ["FORGE-001", "FORGE-002"] {
        let found = Features::new(&project).verify(id).unwrap();
        assert!(
            found.passed && found.executed == 1 && found.evidence.is_some(),
            "{found:?}"
        );
    }
    let halving = Features::new(&project).verify("FORGE-003").unwrap();
    assert!(!halving.passed && halving.executed == 0, "{halving:?}");
    assert_eq!(
        halving.problem.map(Problem::as_str),
        Some("no_tests_matched")
    );
    assert!(
        Knowledge::new(&project)
            .add(&pattern("Adding a sum", "Write its test first"), None)
            .unwrap()
            .new
    );
    let focus = SetFocus {
        task: Some("Halve a number".to_owned()),
        feature_id: Some("FORGE-003".to_owned()),
        files: Some(vec!["src/lib.rs".to_owned()]),
        phase: Some("build".to_owned()),
        ..SetFocus::default()
    };
    assert!(Focused::new(&project).set(&focus).unwrap().changed);
    Sessions::new(&project)
        .log(&Log {
            text: "Two of three work".to_owned(),
            next: Some("Halve".to_owned()),
        })
        .unwrap();
    commit(&project, "Add two sums", &[]);
    let asked = Create {
        key: Some("SUM-1".to_owned()),
        ..Create::default()
    };
    let made = Checkpoints::new(&project).create(&asked).unwrap();
    assert_eq!(
        (made.tag.as_str(), made.can_rollback_to),
        ("checkpoint/SUM-1-v1", true)
    );
    assert_eq!(made.manifest.features_passing, ["FORGE-001", "FORGE-002"]);
    let health = health::measure(&project);
    assert_eq!(
        (health.features.colour, health.git.colour),
        (Colour::Yellow, Colour::Green),
        "{:?}",
        health.git
    );
    begun.session.id
}

#[test]
fn a_session_stops_the_next_goes_astray_and_comes_back_and_nothing_is_lost() {
    let repository = begin();
    let root = repository.path();
    let first = first_session(&repository);

    // Session 2 takes over its work.
    let project = open(root);
    let begun = Sessions::new(&project)
        .start(&Start {
            take_over: true,
            ..Start::default()
        })
        .unwrap();
    assert_eq!(begun.abandoned, std::slice::from_ref(&first));
    assert_eq!(begun.session.resumes.as_deref(), Some(first.as_str()));
    let probed: Vec<_> = begun
        .probed
        .iter()
        .map(|probed| (probed.id.as_str(), probed.passing))
        .collect();
    assert_eq!(probed, [("FORGE-001", true), ("FORGE-002", true)]);
    let focus = Focused::new(&project).show().unwrap().unwrap().focus;
    assert_eq!(focus.task.as_deref(), Some("Halve a number"));
    assert_eq!(focus.feature_id.as_deref(), Some("FORGE-003"));
    assert!(
        begun.prime.text.contains("Halve a number"),
        "{}",
        begun.prime.text
    );

    // It breaks a working feature.
    repository.write("src/lib.rs", SUMS.replace("a + b", "a - b"));
    let broken = Features::new(&project).verify("FORGE-001").unwrap();
    assert!(
        !broken.passed && broken.regressed && broken.status == Status::Failing,
        "{broken:?}"
    );
    let report = Recovery::new(&project).assess(Assess::default()).unwrap();
    assert_eq!(
        (report.class, report.row, report.action),
        (Class::Minor, 6, Action::Fix),
        "{report:?}"
    );
    let measures = report.measures.unwrap();
    assert_eq!((measures.files, measures.lines), (1, 2));
    assert_eq!(measures.regressions, ["FORGE-001"]);
    let nothing = Recovery::new(&project).apply(&Apply::default()).unwrap();
    assert_eq!(nothing.rollback, None, "what is small is not rolled back");

    // The other one depends on it.
    assert!(!Features::new(&project).verify("FORGE-002").unwrap().passed);
    commit(&project, "Subtract", &["src/lib.rs"]);
    repository.write("notes.txt", "not tracked, and worth keeping\n");
    repository.write("staged.txt", "staged\n");
    repository.run(&["add", "staged.txt"]);
    repository.write("staged.txt", "staged, and changed after\n");
    let report = Recovery::new(&project).assess(Assess::default()).unwrap();
    assert_eq!(
        (report.class, report.row, report.action),
        (Class::Major, 3, Action::RollBack),
        "{report:?}"
    );
    let learned = pattern("Subtracting by mistake", "Look at the sign");
    Knowledge::new(&project).add(&learned, None).unwrap();

    // The way back.
    let before = files(root);
    assert!(before.len() > 20, "{before:?}");
    let head = repository.run(&["rev-parse", "HEAD"]);
    let done = Recovery::new(&project)
        .apply(&Apply::default())
        .unwrap()
        .rollback
        .unwrap();
    let rescue = done.rescue;
    assert!(
        rescue.starts_with(&format!("refs/forge/rescue/{}/", begun.session.id)),
        "{rescue}"
    );
    for (path, bytes) in &before {
        assert_eq!(
            in_commit(root, &rescue, path).as_ref(),
            Some(bytes),
            "{} is not in the rescue",
            path.display()
        );
    }
    let index = in_commit(root, &format!("{rescue}^2"), Path::new("staged.txt"));
    assert_eq!(
        index.as_deref(),
        Some(b"staged\n".as_slice()),
        "what was staged alone"
    );
    assert_eq!(
        repository.run(&["rev-parse", "HEAD^"]),
        head,
        "the branch moved forward"
    );
    assert_eq!(
        std::fs::read(root.join("notes.txt")).unwrap(),
        before[Path::new("notes.txt")]
    );

    // The code is that of the checkpoint, and no knowledge is lost.
    assert_eq!(
        std::fs::read_to_string(root.join("src/lib.rs")).unwrap(),
        SUMS
    );
    let back = open(root);
    let known = Knowledge::new(&back).read().unwrap().patterns;
    let mut contexts: Vec<_> = known
        .successful
        .iter()
        .map(|entry| entry.context.as_str())
        .collect();
    contexts.sort_unstable();
    assert_eq!(contexts, ["Adding a sum", "Subtracting by mistake"]);
    let failed: Vec<_> = known
        .failed
        .iter()
        .map(|entry| format!("{} {}", entry.context, entry.issue))
        .collect();
    assert!(
        matches!(&failed[..], [why] if why.contains("SUM-1-v1") && why.contains("FORGE-001")),
        "{failed:?}"
    );
    let features = Features::new(&back).read().unwrap();
    assert!(features.get("FORGE-001").unwrap().regressed_at.is_some());
    assert_eq!(features.features.len(), 3);
    let again = Features::new(&back).verify("FORGE-001").unwrap();
    assert!(again.passed, "{again:?}");

    // Every event was emitted.
    let replayed = Events::new(&project).replay(&Replay::default()).unwrap();
    assert_eq!((replayed.gaps.len(), replayed.damaged), (0, 0));
    let subjects: Vec<Subject> = replayed
        .events
        .iter()
        .filter_map(crate::events::Envelope::about)
        .collect();
    for subject in [
        Subject::SessionStart,
        Subject::SessionAbandoned,
        Subject::Checkpoint,
        Subject::Learning,
        Subject::FocusChange,
        Subject::Feature,
        Subject::Recovery,
    ] {
        assert!(
            subjects.contains(&subject),
            "nothing tells of {subject}: {subjects:?}"
        );
    }
    let end = End {
        leave_dirty: Some("notes".to_owned()),
        ..End::default()
    };
    assert_eq!(
        Sessions::new(&project).end(&end).unwrap().session,
        begun.session.id
    );
    let colours = health::history(&project).unwrap();
    assert!(
        colours.len() >= 2,
        "how it was doing is kept at the start and at the end: {colours:?}"
    );
}

/// The merge driver that git starts in a test below.
///
/// It is this test program; a variable passes it the arguments of git.
#[test]
#[ignore = "git starts it"]
#[expect(
    clippy::disallowed_methods,
    reason = "a test that starts itself has no other way to know"
)]
fn driver() {
    let Ok(said) = std::env::var("HELMDECK_TEST_PROOF_MERGE") else {
        return;
    };
    let words: Vec<&str> = said.split(' ').collect();
    let [base, ours, theirs, path] = words[..] else {
        panic!("{said}")
    };
    let root = std::env::current_dir().unwrap();
    let (base, ours, theirs) = (Path::new(base), Path::new(ours), Path::new(theirs));
    let done = crate::merge::drive(
        &root,
        ProjectEnvironment::default(),
        base,
        ours,
        theirs,
        path,
    )
    .unwrap();
    assert_eq!(done.conflicts, Vec::<String>::new());
}

#[test]
fn two_agents_in_two_work_trees_learn_and_merge_without_a_conflict() {
    let repository = begin();
    let command = format!(
        "HELMDECK_TEST_PROOF_MERGE='%O %A %B %P' '{}' --ignored --exact tests::proof::driver",
        std::env::current_exe().unwrap().display()
    );
    repository.run(&["config", "merge.forge-json.driver", &command]);
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other");
    repository.run(&[
        "worktree",
        "add",
        "--quiet",
        "-b",
        "other",
        other.to_str().unwrap(),
    ]);
    let mut sessions = Vec::new();
    for (root, name) in [(repository.path(), "Forge"), (&other, "Axiom")] {
        let project = agent(root, name);
        sessions.push(
            Sessions::new(&project)
                .start(&Start::default())
                .unwrap()
                .session,
        );
        Features::new(&project)
            .add(&feature(&format!("What {name} does"), "adding::*"), None)
            .unwrap();
        for text in [
            "Both of us learned this",
            &format!("Only {name} learned this"),
        ] {
            Knowledge::new(&project)
                .add(&pattern(text, "Remember it"), None)
                .unwrap();
        }
        crate::progress::Progress::new(&project)
            .log(&format!("{name} looked around"))
            .unwrap();
        let ended = Sessions::new(&project).end(&End::default()).unwrap();
        assert!(ended.commit.is_some(), "{ended:?}");
    }
    assert_ne!(
        sessions[0].id, sessions[1].id,
        "ids are given out once in all work trees"
    );
    repository.run(&["merge", "--quiet", "--no-edit", "other"]);
    // The archive of the session that ended is committed with the next one.
    assert_eq!(
        repository.run(&[
            "status",
            "--porcelain",
            "--",
            ":/",
            ":!.forge/memory/short-term/sessions"
        ]),
        ""
    );
    let project = open(repository.path());
    let known = Knowledge::new(&project).read().unwrap().patterns.successful;
    let mut contexts: Vec<_> = known.iter().map(|entry| entry.context.as_str()).collect();
    contexts.sort_unstable();
    assert_eq!(
        contexts,
        [
            "Both of us learned this",
            "Only Axiom learned this",
            "Only Forge learned this"
        ]
    );
    let ids: Vec<_> = Features::new(&project)
        .read()
        .unwrap()
        .features
        .into_iter()
        .map(|feature| feature.id)
        .collect();
    assert_eq!(ids, ["FORGE-001", "FORGE-002"]);
    for (root, session) in [repository.path(), &other].into_iter().zip(sessions) {
        assert!(
            root.join(layout::SESSIONS)
                .join(session.folder())
                .join("progress.txt")
                .exists(),
            "{session:?}"
        );
    }
}
