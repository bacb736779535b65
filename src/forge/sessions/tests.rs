//! Session tests in real repositories: whole days, and a kill at every step.

mod claims;
mod clones;
mod ends;
mod leases;
mod quiet;
mod stops;
mod whose;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use helmdeck_core::{ManualClock, Timestamp};
use uuid::Uuid;

use super::*;
use crate::environment::{Ids, ProjectEnvironment};
use crate::error::{Category, Result};
use crate::events::{Events, Replay, Subject};
use crate::focus::{Focus, Focused};
use crate::git::fixture::{Repository, Snapshot};
use crate::init::{self, Init};
use crate::knowledge::{Learning, What};
use crate::project::Project;
use crate::time::Time;

/// Deterministic ids.
#[derive(Debug)]
struct Same;

impl Ids for Same {
    fn uuid(&self, _: Time) -> Uuid {
        Uuid::from_u128(7)
    }
}

struct Fixture {
    repository: Repository,
    clock: Arc<ManualClock>,
}

impl Fixture {
    fn new() -> Self {
        static FIRST: LazyLock<Snapshot> = LazyLock::new(|| {
            let fixture = Fixture::bare();
            init::init(fixture.path(), fixture.environment(), &Init::default()).unwrap();
            fixture.repository.write("src/main.rs", "fn main() {}\n");
            fixture.repository.commit("Begin");
            fixture.repository.snapshot()
        });
        Self::of(&FIRST)
    }

    /// Makes a fixture from a snapshot.
    fn of(snapshot: &Snapshot) -> Self {
        Self {
            repository: snapshot.repository(),
            clock: Self::clock(),
        }
    }

    fn bare() -> Self {
        Self {
            repository: Repository::new(),
            clock: Self::clock(),
        }
    }

    fn clock() -> Arc<ManualClock> {
        let start = Time::parse("2025-12-24T11:00:00Z")
            .unwrap()
            .0
            .as_microsecond();
        Arc::new(ManualClock::at(Timestamp(start)))
    }

    fn path(&self) -> &Path {
        self.repository.path()
    }

    fn environment(&self) -> ProjectEnvironment {
        ProjectEnvironment {
            clock: self.clock.clone(),
            ids: Arc::new(crate::environment::RandomIds),
            ..ProjectEnvironment::default()
        }
    }

    fn open(&self) -> Project {
        open(self.path(), self.environment())
    }

    fn as_agent(&self, agent: &str) -> Project {
        open(
            self.path(),
            ProjectEnvironment {
                agent: agent.to_owned(),
                ..self.environment()
            },
        )
    }

    fn in_session(&self, id: &str) -> Project {
        open(
            self.path(),
            ProjectEnvironment {
                session: Some(id.to_owned()),
                ..self.environment()
            },
        )
    }

    fn minutes(&self, minutes: u64) {
        self.clock.advance(Duration::from_secs(minutes * 60));
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path().join(path)).unwrap_or_default()
    }
}

fn open(path: &Path, environment: ProjectEnvironment) -> Project {
    Project::open(path, environment).unwrap().unwrap()
}

fn start(project: &Project) -> Started {
    Sessions::new(project).start(&Start::default()).unwrap()
}

fn count_events(project: &Project, subject: Subject) -> usize {
    Events::new(project)
        .replay(&Replay {
            about: vec![subject],
            ..Replay::default()
        })
        .unwrap()
        .events
        .len()
}

fn learned() -> Learning {
    let what = What::Successful {
        context: "Adding a subject".to_owned(),
        approach: "Run the tests".to_owned(),
    };
    Learning::new(what)
}

#[test]
fn start_writes_the_rfc_lines_once() {
    let fixture = Fixture::new();
    let project = fixture.open();
    let begun = start(&project);
    assert_eq!(
        (begun.session.id.as_str(), begun.again),
        ("2025-12-24-session-001", false)
    );
    assert_eq!(begun.session.state, State::Live);
    let progress = fixture.read(".forge/memory/short-term/progress.txt");
    assert!(
        progress.starts_with("=== FORGE Session 2025-12-24 ===\n"),
        "{progress}"
    );
    assert!(
        progress.contains("[11:00] Started - branch: main\n[11:00] Active issues: 0\n"),
        "{progress}"
    );
    let again = start(&project);
    assert!(again.again && again.chosen.is_none());
    assert_eq!(again.session.id, begun.session.id);
    assert_eq!(
        fixture.read(".forge/memory/short-term/progress.txt"),
        progress,
        "no second header"
    );
    assert_eq!(count_events(&project, Subject::SessionStart), 1);
    assert!(
        begun
            .prime
            .text
            .contains("session: \"2025-12-24-session-001\"\nbranch: \"main\"\n"),
        "{}",
        begun.prime.text
    );
}

#[test]
fn ended_session_is_archived_once() {
    let fixture = Fixture::new();
    let project = fixture.open();
    let session = start(&project).session;
    let id = session.id.clone();
    fixture.minutes(5);
    Sessions::new(&project)
        .log(&Log {
            text: "Did it".to_owned(),
            next: None,
        })
        .unwrap();
    let end = End {
        learned: vec![learned()],
        next: Some("Do more".to_owned()),
        ..End::default()
    };
    let ended = Sessions::new(&project).end(&end).unwrap();
    assert_eq!(
        (ended.session.as_str(), ended.again, ended.duration_s),
        (id.as_str(), false, 300)
    );
    assert_eq!(ended.learned.len(), 1);
    let folder = format!(".forge/memory/short-term/sessions/{}", session.folder());
    let progress = fixture.read(&format!("{folder}/progress.txt"));
    assert!(
        progress.contains("[11:05] Did it\n[11:05] Session ending\n\nNEXT: Do more\n"),
        "{progress}"
    );
    let record = Sessions::new(&project)
        .archived(&session.folder())
        .unwrap()
        .unwrap();
    assert_eq!(
        (record.state, record.ended_at),
        (State::Ended, Some(fixture.environment().now()))
    );
    assert!(Sessions::new(&project).current().unwrap().is_none());
    assert_eq!(count_events(&project, Subject::SessionEnd), 1);
    assert_eq!(
        fixture.repository.run(&["status", "--porcelain"]),
        "",
        "the commit has the archive too"
    );
    let kept = fixture
        .repository
        .run(&["show", "--format=", "--name-only", "HEAD", "--", &folder]);
    assert_eq!(kept, format!("{folder}/progress.txt"), "one file a session");
    let again = Sessions::new(&project).end(&End::default()).unwrap();
    assert_eq!(
        again,
        Finished {
            again: true,
            ..ended
        }
    );
    let next = start(&project);
    assert_eq!(next.session.id, "2025-12-24-session-002");
    assert!(next.abandoned.is_empty());
    assert!(
        next.prime.text.contains("next: \"Do more\""),
        "what the session before said: {}",
        next.prime.text
    );
}

#[test]
fn uncommitted_code_needs_a_reason_to_stay() {
    let fixture = Fixture::new();
    let project = fixture.open();
    start(&project);
    fixture.repository.write("src/new.rs", "// new\n");
    let error = Sessions::new(&project).end(&End::default()).unwrap_err();
    assert_eq!((error.category, error.code), (Category::Refused, "E_DIRTY"));
    assert!(error.message.contains("src/new.rs"), "{error}");
    assert!(
        Sessions::new(&project).current().unwrap().is_some(),
        "it still lives"
    );
    let end = End {
        leave_dirty: Some("the parser is half done".to_owned()),
        ..End::default()
    };
    let ended = Sessions::new(&project).end(&end).unwrap();
    assert_eq!(ended.next.as_deref(), Some("the parser is half done"));
    assert_eq!(fixture.read("src/new.rs"), "// new\n");
}

#[test]
fn abandoned_focus_is_resumed() {
    let fixture = Fixture::new();
    let project = fixture.open();
    let old = start(&project).session;
    let set = crate::focus::SetFocus {
        task: Some("Wire it".to_owned()),
        ..Default::default()
    };
    Focused::new(&project).set(&set).unwrap();
    fixture.minutes(61);
    let other = fixture.as_agent("Axiom");
    let begun = start(&other);
    assert_eq!(
        (begun.session.id.as_str(), begun.abandoned.as_slice()),
        ("2025-12-24-session-002", [old.id.clone()].as_slice())
    );
    assert_eq!(begun.chosen.unwrap().rule, Rule::Abandoned);
    let focus: Focus =
        serde_json::from_str(&fixture.read(".forge/memory/short-term/focus.json")).unwrap();
    assert_eq!(
        (focus.task.as_deref(), focus.session),
        (Some("Wire it"), Some(begun.session.id))
    );
    let record = Sessions::new(&project)
        .archived(&old.folder())
        .unwrap()
        .unwrap();
    assert_eq!(record.state, State::Abandoned);
    assert_eq!(record.focus.unwrap().task.as_deref(), Some("Wire it"));
    assert_eq!(count_events(&project, Subject::SessionAbandoned), 1);
}

#[test]
fn done_or_foreign_focus_is_not_resumed() {
    for (branch, phase) in [("other", "BUILD"), ("main", "DONE")] {
        let fixture = Fixture::new();
        let project = fixture.open();
        start(&project);
        let set = crate::focus::SetFocus {
            task: Some("Wire it".to_owned()),
            phase: Some(phase.to_owned()),
            ..Default::default()
        };
        Focused::new(&project).set(&set).unwrap();
        if branch != "main" {
            fixture.repository.run(&["switch", "--quiet", "-c", branch]);
        }
        fixture.minutes(61);
        assert_eq!(
            start(&fixture.open()).chosen.unwrap().rule,
            Rule::Nothing,
            "{branch} {phase}"
        );
    }
}

#[test]
fn joined_session_has_its_own_folder() {
    let fixture = Fixture::new();
    let project = fixture.open();
    let first = start(&project).session.id;
    let before = fixture.read(".forge/memory/short-term/progress.txt");
    let other = fixture.as_agent("Axiom");
    let refused = Sessions::new(&other).start(&Start::default()).unwrap_err();
    assert_eq!(
        (refused.category, refused.code),
        (Category::Locked, "E_SESSION_LIVE")
    );
    assert!(refused.message.contains(&first), "{refused}");
    let joined = Sessions::new(&other)
        .start(&Start {
            join: true,
            ..Start::default()
        })
        .unwrap()
        .session;
    assert!(!joined.primary);
    let inside = fixture.in_session(&joined.id);
    Sessions::new(&inside)
        .log(&Log {
            text: "Beside".to_owned(),
            next: None,
        })
        .unwrap();
    let own = fixture.read(&format!(
        ".forge/memory/short-term/sessions/{}/progress.txt",
        joined.folder()
    ));
    assert!(own.contains("Beside"), "{own}");
    assert_eq!(
        fixture.read(".forge/memory/short-term/progress.txt"),
        before
    );
    Sessions::new(&inside).end(&End::default()).unwrap();
    assert_eq!(
        Sessions::new(&project).current().unwrap().unwrap().id,
        first
    );
}

#[test]
fn session_names_are_unique_across_work_trees() {
    let fixture = Fixture::new();
    fixture
        .repository
        .commit("Other\n\nForge-Session: 2025-12-24-session-004\n");
    assert_eq!(start(&fixture.open()).session.id, "2025-12-24-session-005");
    let second = tempfile::tempdir().unwrap();
    let path = second.path().join("tree");
    fixture.repository.run(&[
        "worktree",
        "add",
        "--quiet",
        "-b",
        "two",
        path.to_str().unwrap(),
    ]);
    let other = open(&path, fixture.environment());
    assert_eq!(start(&other).session.id, "2025-12-24-session-006");
}

#[test]
fn damaged_memory_stops_the_start_until_repaired() {
    let fixture = Fixture::new();
    let path = ".forge/memory/long-term/knowledge.json";
    fixture.repository.write(path, "{");
    let error = Sessions::new(&fixture.open())
        .start(&Start::default())
        .unwrap_err();
    assert_eq!(
        (error.category, error.code),
        (Category::Corrupt, "E_CORRUPT")
    );
    assert_eq!(fixture.read(path), "{");
    std::fs::remove_file(fixture.path().join(path)).unwrap();
    let begun = start(&fixture.open());
    assert_eq!(
        (begun.session.id.as_str(), begun.again),
        ("2025-12-24-session-001", false)
    );
}

/// Returns what a session leaves behind, without the parts that differ from run to run.
fn left(fixture: &Fixture, project: &Project) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut folders = vec![fixture.path().join(".forge/memory")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                let path = entry
                    .path()
                    .strip_prefix(fixture.path())
                    .unwrap()
                    .display()
                    .to_string();
                // The name of an entry's file ends in random characters.
                let path = match path.rsplit_once('-') {
                    Some((start, _)) if path.contains("/long-term/") => {
                        start.rsplit('/').next().unwrap().to_owned()
                    }
                    _ => path,
                };
                all.insert(path, fixture.read(entry.path().to_str().unwrap()));
            }
        }
    }
    for subject in [
        Subject::SessionStart,
        Subject::SessionEnd,
        Subject::SessionAbandoned,
    ] {
        all.insert(subject.redux(), count_events(project, subject).to_string());
    }
    // git's own times give each commit another id.
    for (number, commit) in fixture
        .repository
        .run(&["log", "--format=%H"])
        .lines()
        .enumerate()
    {
        for value in all.values_mut() {
            *value = value.replace(commit, &format!("<{number} commits ago>"));
        }
    }
    all.insert(
        "subjects".to_owned(),
        fixture.repository.run(&["log", "--format=%s"]),
    );
    all.insert(
        "status".to_owned(),
        fixture.repository.run(&["status", "--porcelain"]),
    );
    all
}

/// Variables that control a worker process.
const ROOT: &str = "HELMDECK_TEST_ROOT";
const DIE_AT: &str = "HELMDECK_TEST_DIE_AT";

fn worker_world() -> ProjectEnvironment {
    let start = Time::parse("2025-12-24T13:00:00Z")
        .unwrap()
        .0
        .as_microsecond();
    ProjectEnvironment {
        clock: Arc::new(ManualClock::at(Timestamp(start))),
        ids: Arc::new(Same),
        ..ProjectEnvironment::default()
    }
}

fn day(project: &Project) -> Result<()> {
    Sessions::new(project).start(&Start::default())?;
    Sessions::new(project).end(&End {
        learned: vec![learned()],
        next: Some("More".to_owned()),
        ..End::default()
    })?;
    Ok(())
}

#[test]
#[ignore = "a worker of another test"]
#[expect(
    clippy::disallowed_methods,
    reason = "a test that starts itself has no other way to know"
)]
fn worker_that_dies_at_a_step() {
    let root = std::env::var(ROOT).unwrap();
    crash_tests::at(std::env::var(DIE_AT).unwrap().parse().unwrap());
    day(&open(Path::new(&root), worker_world())).unwrap();
}

/// Fixture: a project with an abandoned session.
fn abandoned() -> Fixture {
    let fixture = Fixture::new();
    let project = open(
        fixture.path(),
        ProjectEnvironment {
            ids: Arc::new(Same),
            ..fixture.environment()
        },
    );
    start(&project);
    let set = crate::focus::SetFocus {
        task: Some("Wire it".to_owned()),
        ..Default::default()
    };
    Focused::new(&project).set(&set).unwrap();
    fixture
}

#[test]
fn killed_at_any_step_the_same_commands_resume() {
    let template = abandoned().repository.snapshot();
    let clean = Fixture::of(&template);
    let project = open(clean.path(), worker_world());
    day(&project).unwrap();
    let expected = left(&clean, &project);
    let mut deaths = 0;
    loop {
        let fixture = Fixture::of(&template);
        let worker = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "sessions::tests::worker_that_dies_at_a_step",
            ])
            .env(ROOT, fixture.path())
            .env(DIE_AT, deaths.to_string())
            .output()
            .unwrap();
        let project = open(fixture.path(), worker_world());
        if worker.status.success() {
            break;
        }
        // The next process does not know where the worker stopped. After a kill in the end, only
        // repeat the end.
        let ending = Sessions::new(&project)
            .current()
            .unwrap()
            .is_some_and(|session| session.state == State::Ending);
        if ending
            || Sessions::new(&project)
                .living()
                .unwrap()
                .sessions
                .is_empty()
        {
            Sessions::new(&project).end(&End::default()).unwrap();
        } else {
            day(&project).unwrap();
        }
        let got = left(&fixture, &project);
        for (name, value) in &expected {
            assert_eq!(got.get(name), Some(value), "{name}, after death {deaths}");
        }
        assert_eq!(got.len(), expected.len(), "after death {deaths}");
        deaths += 1;
    }
    assert!(deaths >= 14, "only {deaths} deaths");
}
