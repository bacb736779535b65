//! Damage tests for every kind of file.
//!
//! Every command names the damage, an offered candidate repairs it, and no command gets stuck,
//! overwrites it or commits it.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use super::*;
use crate::artifacts::{Artifacts, Kind, Put};
use crate::environment::ProjectEnvironment;
use crate::focus::{Focused, SetFocus};
use crate::git::fixture::{Repository, Snapshot};
use crate::git::{Commits, NewCommit};
use crate::health::{self, Code};
use crate::init::{self, Init};
use crate::knowledge::{Knowledge, Learning, What};
use crate::layout::{
    ACTIVE, CONFIG, EVENTS_OUTBOX, FEATURES_ENTRIES, FOCUS, JOURNAL, KNOWLEDGE_ENTRIES, LIVING,
    PROGRESS,
};
use crate::prime;
use crate::repair;
use crate::sessions::{End, Session, Sessions, Start};

/// Fixture: a project with one ended and one active session.
fn ground() -> &'static (Snapshot, String) {
    static FIRST: LazyLock<(Snapshot, String)> = LazyLock::new(made);
    &FIRST
}

fn made() -> (Snapshot, String) {
    let repository = Repository::new();
    for (name, value) in [("user.name", "Ann"), ("user.email", "ann@example.com")] {
        repository.run(&["config", name, value]);
    }
    let (project, _) = init::init(
        repository.path(),
        ProjectEnvironment::default(),
        &Init::default(),
    )
    .unwrap();
    repository.commit("Begin");
    let session = Sessions::new(&project)
        .start(&Start::default())
        .unwrap()
        .session;
    let first = session.folder();
    Artifacts::new(&project)
        .put(b"one", &Put::new(Kind::Docs, "one.txt"))
        .unwrap();
    let what = What::Successful {
        context: "Damage".into(),
        approach: "Name it, and go on".into(),
    };
    let learning = Learning::new(what);
    Knowledge::new(&project).add(&learning, None).unwrap();
    crate::progress::Progress::new(&project)
        .log("Did it")
        .unwrap();
    Sessions::new(&project).end(&End::default()).unwrap();
    // Earlier versions committed the record of a session too.
    let record = crate::json::print(&Session {
        schema_version: Some("1.0".into()),
        ..session
    })
    .unwrap();
    std::fs::write(
        repository
            .path()
            .join(crate::layout::SESSIONS)
            .join(&first)
            .join("session.json"),
        record,
    )
    .unwrap();
    Sessions::new(&project).start(&Start::default()).unwrap();
    Focused::new(&project)
        .set(&SetFocus {
            task: Some("Work".into()),
            ..SetFocus::default()
        })
        .unwrap();
    Sessions::new(&project).end(&End::default()).unwrap();
    Sessions::new(&project).start(&Start::default()).unwrap();
    (repository.snapshot(), first)
}

fn open(folder: &Path) -> Project {
    Project::open_anyway(folder, ProjectEnvironment::default())
        .unwrap()
        .unwrap()
}

/// Returns the content of a file in the last commit.
fn committed(folder: &Path, path: &str) -> Vec<u8> {
    let show = ["show", &format!("HEAD:{path}")].map(str::to_owned);
    Command::new("git")
        .args(show)
        .current_dir(folder)
        .output()
        .unwrap()
        .stdout
}

/// Runs an operation that damage may block.
///
/// If it is blocked, its error must name the repair. After that repair, the operation runs.
fn or_repaired<T>(
    claim: &str,
    path: &str,
    folder: &Path,
    act: impl Fn(&Project) -> Result<T>,
) -> T {
    let opened = Project::open(folder, ProjectEnvironment::default()).map(Option::unwrap);
    match opened.and_then(|project| act(&project)) {
        Ok(done) => done,
        Err(error) => {
            assert_eq!(error.category, Category::Corrupt, "{claim}: {error}");
            assert_eq!(
                error.next,
                Some(format!("helmdeck forge repair {path}")),
                "{claim}: {error}"
            );
            repair::repair(
                &open(folder),
                path,
                RepairRequest {
                    yes: true,
                    from: None,
                },
            )
            .unwrap();
            act(&open(folder)).unwrap_or_else(|error| panic!("{claim}, repaired: {error}"))
        }
    }
}

#[test]
fn damage_of_any_file_is_named_and_repaired() {
    let (snapshot, first) = ground();
    let [record, archive] = ["session.json", "progress.txt"]
        .map(|name| format!("{}/{first}/{name}", crate::layout::SESSIONS));
    let nothing: &[u8] = b"\0";
    let learned = open(snapshot.repository().path())
        .files()
        .list(KNOWLEDGE_ENTRIES)
        .unwrap()
        .pop()
        .unwrap()
        .name;
    let learned = format!("{KNOWLEDGE_ENTRIES}/{learned}");
    let cases: &[(&str, &[u8])] = &[
        (CONFIG, b"[verify]\n[verify]\n"),
        (CONFIG, nothing),
        (&learned, nothing),
        (&learned, b"[]"),
        (FOCUS, nothing),
        (ACTIVE, b"{"),
        (
            PROGRESS,
            b"=== FORGE Session 2025-12-24 ===\n\n[11:00] o\0ne\n",
        ),
        (LIVING, b"{\"sessions\": 3}"),
        (JOURNAL, b"no event\n"),
        (EVENTS_OUTBOX, nothing),
        (&record, b"{"),
        (&archive, b"\xff"),
    ];
    for (path, bytes) in cases {
        let claim = format!("{path} {:?}", String::from_utf8_lossy(bytes));
        let repository = snapshot.repository();
        let folder = repository.path();
        let at = folder.join(path);
        assert!(at.exists() || *path == EVENTS_OUTBOX, "{claim}");
        std::fs::write(&at, bytes).unwrap();
        let project = open(folder);

        // The damage is named.
        let doctor = init::doctor(&project, false).unwrap();
        let next = Some(format!("helmdeck forge repair {path}"));
        assert!(
            doctor
                .found
                .iter()
                .any(|one| one.path == *path && one.next == next),
            "{claim}: {doctor:?}"
        );
        let health = health::measure(&project);
        let named = health
            .components()
            .into_iter()
            .flat_map(|(_, _, reasons)| reasons)
            .any(|reason| {
                Some(&reason.next) == next.as_ref()
                    && reason.detail.contains(path.rsplit('/').next().unwrap())
            });
        assert!(
            named && health.overall == crate::health::Colour::Red,
            "{claim}: {health:#?}"
        );
        assert!(
            !health
                .features
                .reasons
                .iter()
                .any(|reason| reason.code == Code::FewPassing),
            "{claim}"
        );
        prime::prime(&project, None).unwrap();
        assert_eq!(
            std::fs::read(&at).unwrap(),
            *bytes,
            "{claim}: looking changes nothing"
        );

        // The damaged file is not committed.
        let before = committed(folder, path);
        let new = NewCommit {
            session_commit: true,
            subject: "All".into(),
            what: vec!["All of it".into()],
            why: "It is wanted".into(),
            ..NewCommit::default()
        };
        let origin = Commits::new(&project)
            .origin(
                "2025-12-24-session-001",
                &project.environment().uuid().to_string(),
            )
            .unwrap();
        let refused = Commits::new(&project).create(&new, &origin).err();
        let for_it = refused.as_ref().is_none_or(|error| {
            error.category == Category::Corrupt || error.code == "E_NOTHING_STAGED"
        });
        assert!(for_it, "{claim}: {refused:?}");
        assert_eq!(
            committed(folder, path),
            before,
            "{claim}: it is not committed"
        );

        // A session can end, and the next one can start.
        or_repaired(&format!("{claim}, end"), path, folder, |project| {
            Sessions::new(project).end(&End::default())
        });
        let now = std::fs::read(&at).unwrap();
        if now == *bytes {
            assert_eq!(committed(folder, path), before, "{claim}: nor at the end");
            let message = Command::new("git")
                .args(["log", "--format=%B"])
                .current_dir(folder)
                .output()
                .unwrap();
            assert!(
                !String::from_utf8_lossy(&message.stdout).contains("removed"),
                "{claim}"
            );
        }
        or_repaired(&format!("{claim}, start"), path, folder, |project| {
            Sessions::new(project).start(&Start::default())
        });

        // An offered candidate repairs it.
        let project = open(folder);
        if repair::damaged(&project)
            .unwrap()
            .iter()
            .any(|one| one == path)
        {
            let repaired = repair::repair(
                &project,
                path,
                RepairRequest {
                    yes: true,
                    from: None,
                },
            )
            .unwrap();
            assert!(
                repaired.applied.is_some() && repaired.copy.is_some(),
                "{claim}: {repaired:?}"
            );
        }
        assert_eq!(repair::damaged_files(&open(folder)).unwrap(), [], "{claim}");
        let project = Project::open(folder, ProjectEnvironment::default())
            .unwrap()
            .unwrap();
        Sessions::new(&project).end(&End::default()).unwrap();
    }
}

#[test]
fn lost_folders_are_restored_never_begun_anew() {
    let repository = ground().0.repository();
    let project = open(repository.path());
    let learn = |context: &str| {
        let what = What::Successful {
            context: context.into(),
            approach: "Look for it".into(),
        };
        Knowledge::new(&open(repository.path())).add(&Learning::new(what), None)
    };
    learn("Committed").unwrap();
    repository.commit("[session] Learned");
    for path in [KNOWLEDGE_ENTRIES, FEATURES_ENTRIES] {
        let tracked = || repository.run(&["ls-tree", "-r", "HEAD", path]);
        let before = tracked();
        std::fs::remove_dir_all(repository.path().join(path)).unwrap();
        let next = Some(format!("git restore -- {path}"));
        if path == KNOWLEDGE_ENTRIES {
            let error = learn("Something else").unwrap_err();
            assert_eq!(
                (error.category, &error.next),
                (Category::Corrupt, &next),
                "{error}"
            );
        }
        let doctor = init::doctor(&project, true).unwrap();
        assert!(
            !doctor.healthy
                && doctor
                    .found
                    .iter()
                    .any(|one| one.path == path && one.next == next),
            "{doctor:?}"
        );
        init::init(
            repository.path(),
            ProjectEnvironment::default(),
            &Init::default(),
        )
        .unwrap();
        assert!(
            !repository.path().join(path).exists(),
            "{path}: nobody begins it anew"
        );
        let reasons = health::measure(&project).long_term.reasons;
        assert!(
            reasons
                .iter()
                .any(|reason| Some(&reason.next) == next.as_ref()),
            "{path}"
        );
        assert_eq!(
            Sessions::new(&project)
                .start(&Start::default())
                .unwrap_err()
                .next,
            next,
            "{path}"
        );
        // The session ends, and the version in git does not change.
        let ended = Sessions::new(&project).end(&End::default()).unwrap();
        assert!(
            ended.warnings.iter().any(|warning| warning.contains(path)),
            "{path}: {:?}",
            ended.warnings
        );
        assert_eq!(tracked(), before, "{path}");
        repository.run(&["restore", "--", path]);
        Sessions::new(&project).start(&Start::default()).unwrap();
    }
    learn("Something else").unwrap();
}
