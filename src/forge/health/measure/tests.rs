//! Health of a real repository. Measuring must leave no trace.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::environment::ProjectEnvironment;
use crate::features::FeaturesFile;
use crate::fixture::write_entries;
use crate::git::fixture::Repository;
use crate::health::{self, Code, Colour, Health, Source};
use crate::knowledge::KnowledgeFile;
use crate::layout;
use crate::project::Project;

fn forge() -> Repository {
    let repository = Repository::new();
    repository.write(".gitignore", ".forge/.local/\n");
    write_entries::<KnowledgeFile>(
        repository.path(),
        include_str!("../../../forge_documents/fixtures/knowledge.json"),
    );
    write_entries::<FeaturesFile>(
        repository.path(),
        include_str!("../../../forge_documents/fixtures/features.json"),
    );
    repository.write(
        layout::PROGRESS,
        include_str!("../../../forge_documents/fixtures/progress.txt"),
    );
    repository.write("src/lib.rs", "//! x\n");
    repository.commit("[session] Begin");
    repository
}

fn open(path: &Path) -> Project {
    Project::open(path, ProjectEnvironment::default())
        .unwrap()
        .unwrap()
}

fn health(repository: &Repository) -> Health {
    health::measure(&open(repository.path()))
}

fn codes(reasons: &[crate::health::Reason]) -> Vec<Code> {
    reasons.iter().map(|reason| reason.code).collect()
}

/// Returns everything below a folder: bytes, mode, and modification time.
fn everything(folder: &Path) -> BTreeMap<String, (Vec<u8>, u32, i64, i64)> {
    let mut all = BTreeMap::new();
    let mut left = vec![folder.to_owned()];
    while let Some(path) = left.pop() {
        let found = std::fs::symlink_metadata(&path).unwrap();
        let bytes = if found.is_file() {
            std::fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        if found.is_dir() {
            left.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        all.insert(
            path.display().to_string(),
            (bytes, found.mode(), found.mtime(), found.mtime_nsec()),
        );
    }
    all
}

#[test]
fn measuring_changes_no_byte_no_index_and_no_time() {
    let repository = forge();
    repository.write("src/lib.rs", "//! y\n");
    repository.write("new.txt", "x");
    repository.run(&["add", "new.txt"]);
    // The index holds outdated times, which git would normally refresh.
    let same = std::fs::read(repository.path().join(".gitignore")).unwrap();
    std::fs::remove_file(repository.path().join(".gitignore")).unwrap();
    repository.write(".gitignore", same);
    for damaged in [false, true] {
        if damaged {
            repository.write(layout::KNOWLEDGE, "{");
            repository.write(layout::FEATURES, "");
            repository.write(layout::ACTIVE, "[");
            repository.write(layout::PROGRESS, [0xff]);
        }
        let before = everything(repository.path());
        let health = health(&repository);
        assert_eq!(everything(repository.path()), before);
        assert_eq!(health.long_term.colour == Colour::Red, damaged);
        assert!(!repository.path().join(layout::LOCAL).exists());
    }
    let before = everything(repository.path());
    repository.run(&["status"]);
    assert_ne!(
        everything(repository.path()),
        before,
        "there was something that could have been written"
    );
}

#[test]
fn what_files_hold_makes_the_colours() {
    let repository = forge();
    let found = health(&repository);
    // The examples of the RFC are years old.
    assert_eq!(codes(&found.long_term.reasons), [Code::Stale]);
    assert_eq!(
        found.long_term.inputs.last.unwrap().at.to_string(),
        "2025-12-24T11:00:00Z"
    );
    assert_eq!(codes(&found.short_term.reasons), [Code::StaleIdle]);
    assert_eq!(
        found.short_term.inputs.last.unwrap().at.to_string(),
        "2025-12-24T11:30:00Z"
    );
    assert_eq!(
        (found.features.inputs.passing, found.features.inputs.total),
        (0, 2)
    );
    assert_eq!(
        codes(&found.features.reasons),
        [Code::FewPassing, Code::UnverifiedPass],
        "nothing shows that it passes"
    );
    assert_eq!(codes(&found.git.reasons), [Code::NoCheckpoint]);
    assert_eq!(found.git.inputs.base.as_deref(), Some("main"));
    assert_eq!(
        (found.linear.colour, found.overall),
        (Colour::Green, Colour::Red)
    );

    repository.write(layout::KNOWLEDGE, "{");
    repository.write(layout::FEATURES, "[]");
    repository.write(layout::ACTIVE, "[");
    repository.write(layout::PROGRESS, [0xff]);
    let found = health(&repository);
    assert_eq!(
        codes(&found.long_term.reasons),
        [Code::KnowledgeCorrupt, Code::FeaturesCorrupt]
    );
    assert_eq!(codes(&found.short_term.reasons), [Code::ProgressNotText]);
    assert_eq!(codes(&found.features.reasons), [Code::FeaturesCorrupt]);
    assert_eq!(codes(&found.linear.reasons), [Code::ActiveCorrupt]);
    assert_eq!(
        codes(&found.git.reasons),
        [Code::NoCheckpoint],
        "what is kept of the work is no work"
    );

    for path in [
        layout::KNOWLEDGE,
        layout::FEATURES,
        layout::ACTIVE,
        layout::PROGRESS,
    ] {
        std::fs::remove_file(repository.path().join(path)).unwrap();
    }
    for folder in [layout::KNOWLEDGE_ENTRIES, layout::FEATURES_ENTRIES] {
        std::fs::remove_dir_all(repository.path().join(folder)).unwrap();
    }
    let found = health(&repository);
    let gone = [Code::KnowledgeMissing, Code::FileCorrupt, Code::FileCorrupt];
    assert_eq!(
        codes(&found.long_term.reasons),
        gone,
        "git has them: they are to be put back"
    );
    assert_eq!(found.linear.colour, Colour::Green);
    repository.run(&["rm", "-q", "-r", "--cached", ".forge"]);
    let found = health(&repository);
    assert_eq!(codes(&found.long_term.reasons), [Code::KnowledgeMissing]);
    assert_eq!(codes(&found.short_term.reasons), [Code::NotBegun]);
    repository.write(layout::JOURNAL, "");
    assert_eq!(
        codes(&health(&repository).short_term.reasons),
        [Code::ProgressMissing],
        "a session was here"
    );
    assert_eq!(
        (found.features.colour, found.linear.colour),
        (Colour::Grey, Colour::Green)
    );
}

#[test]
fn an_empty_knowledge_is_as_old_as_its_last_commit() {
    let repository = forge();
    write_entries::<KnowledgeFile>(repository.path(), "{\"schema_version\": \"1.0\"}\n");
    repository.commit("[session] Nothing learned yet");
    let found = health(&repository);
    assert_eq!(found.long_term.inputs.last.unwrap().source, Source::Commit);
    assert_eq!(found.long_term.colour, Colour::Green);
}

#[test]
fn the_repository_makes_the_colour() {
    let repository = forge();
    repository.write("src/lib.rs", "//! y\n");
    repository.write("a/b", "x");
    assert_eq!(
        codes(&health(&repository).git.reasons),
        [Code::Uncommitted, Code::NoCheckpoint]
    );
    assert_eq!(health(&repository).git.inputs.uncommitted, 2);
    repository.run(&["switch", "--quiet", "-c", "work"]);
    repository.write(
        layout::ACTIVE,
        "[{\"linear_id\": \"SX9-1\", \"title\": \"t\"}]",
    );
    repository.write(".forge/linear/history/SX9-2.json", "{}");
    repository.commit("[SX9-1] One");
    repository.commit("Two\n\nLinear: SX9-2");
    repository.commit("[session] Session checkpoint");
    repository.commit("No key");
    repository.commit("[SX9-3] A key that nobody knows");
    let found = health(&repository);
    assert_eq!((found.git.inputs.ahead, found.git.inputs.behind), (5, 0));
    assert_eq!(
        (found.linear.inputs.orphans, codes(&found.linear.reasons)),
        (2, vec![Code::OrphanCommits])
    );
    repository.run(&["switch", "--quiet", "main"]);
    repository.write("src/lib.rs", "//! z\n");
    repository.commit("Main goes on");
    repository.run(&["switch", "--quiet", "work"]);
    let found = health(&repository);
    assert_eq!(
        (found.git.colour, found.git.inputs.merges_cleanly),
        (Colour::Red, Some(false))
    );
    assert_eq!(
        codes(&found.git.reasons),
        [Code::Diverged, Code::NoCheckpoint]
    );
    // The merge fails on purpose, with a conflict.
    let merge = ["merge", "--quiet", "--no-edit", "main"];
    let git = Repository::git_at(repository.path());
    assert!(!git.run(&merge, &crate::git::Run::writing()).unwrap().ok());
    let found = health(&repository);
    assert_eq!(
        codes(&found.git.reasons),
        [
            Code::Unmerged,
            Code::Diverged,
            Code::Uncommitted,
            Code::NoCheckpoint,
            Code::Operation
        ]
    );
}

#[test]
fn a_checkpoint_counts_if_it_proves_what_it_says() {
    let repository = forge();
    let commit = repository.commit("[session] Good");
    let manifest = |extra: &str| {
        format!(
            "Good\n\nForge-Manifest:\n{{\"tag\": \"checkpoint/SX9-1-v1\", \"commit\": \"{commit}\", \
             \"timestamp\": \"2025-12-24T12:00:00Z\", \"verified_by\": [], \"features_passing\": [], \
             \"linear_issues_closed\": [], \"can_rollback_to\": true, \"code_tree\": \"{commit}\"{extra}}}\n"
        )
    };
    let checked = manifest(", \"checks\": [{\"cmd\": \"true\", \"exit\": 0, \"ms\": 1}]");
    repository.run(&["tag", "-a", "-m", &manifest(""), "checkpoint/SX9-1-v1"]);
    assert_eq!(
        codes(&health(&repository).git.reasons),
        [Code::NoCheckpoint],
        "set by hand"
    );
    repository.run(&["tag", "-f", "-a", "-m", &checked, "checkpoint/SX9-1-v1"]);
    for _ in 0..10 {
        repository.commit("[SX9-1] More");
        repository.commit("[session] Session checkpoint");
        repository.commit("[SX9-1] Session checkpoint");
    }
    let found = health(&repository);
    assert_eq!(
        (found.git.colour, found.git.inputs.commits_since),
        (Colour::Green, 10)
    );
    assert_eq!(found.git.inputs.checkpoint.as_deref(), Some("SX9-1-v1"));
    repository.commit("[SX9-1] One too many");
    assert_eq!(
        codes(&health(&repository).git.reasons),
        [Code::CheckpointLag]
    );
    repository.run(&["checkout", "--quiet", "--orphan", "elsewhere"]);
    repository.commit("[session] Another root");
    assert!(
        codes(&health(&repository).git.reasons).contains(&Code::NoCheckpoint),
        "nothing leads to it from here"
    );
}

#[test]
fn before_the_first_commit_and_without_git_it_still_answers() {
    let repository = Repository::new();
    write_entries::<KnowledgeFile>(repository.path(), "{\"schema_version\": \"1.0\"}\n");
    let found = health(&repository);
    assert_eq!(
        codes(&found.git.reasons),
        [Code::NoCheckpoint, Code::NoBase]
    );
    assert_eq!(found.long_term.inputs.last.unwrap().source, Source::Mtime);

    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join(".forge")).unwrap();
    assert_eq!(
        codes(&health::measure(&open(folder.path())).git.reasons),
        [Code::RepositoryLost]
    );
    std::fs::write(
        folder.path().join(layout::CONFIG),
        "[git]\nenabled = false\n",
    )
    .unwrap();
    let found = health::measure(&open(folder.path()));
    assert_eq!(
        (found.git.colour, found.linear.colour),
        (Colour::Grey, Colour::Grey)
    );
}

#[test]
fn a_session_that_stopped_is_told() {
    let repository = forge();
    let session = |state: &str, lease: &str| {
        format!(
            "{{\"schema_version\": \"1.0\", \"sessions\": [{{\"id\": \"2025-12-24-session-001\", \"uuid\": \"u\", \"agent\": \"Forge\", \
             \"primary\": true, \"state\": \"{state}\", \"started_at\": \"2025-12-24T11:00:00Z\", \"seen_at\": \
             \"2025-12-24T11:00:00Z\", \"lease_until\": \"{lease}\", \"branch\": null, \"head\": null, \"steps\": []}}]}}"
        )
    };
    for (state, lease, code) in [
        ("live", "2999-01-01T00:00:00Z", Code::StaleActive),
        ("live", "2025-12-24T12:00:00Z", Code::AbandonedSession),
        ("abandoned", "2999-01-01T00:00:00Z", Code::AbandonedSession),
        ("ended", "2025-12-24T12:00:00Z", Code::StaleIdle),
    ] {
        repository.write(layout::LIVING, session(state, lease));
        let found = health(&repository);
        assert!(
            codes(&found.short_term.reasons).contains(&code),
            "{state}: {:?}",
            found.short_term.reasons
        );
    }
}

#[test]
fn a_note_of_the_health_is_no_work() {
    let repository = forge();
    let event =
        |kind: &str, ts: &str| format!("{{\"type\": \"forge/memory/{kind}\", \"ts\": \"{ts}\"}}\n");
    let lines = event("focus", "2026-01-02T03:04:05.5Z")
        + &event("health", "2026-05-01T00:00:00Z")
        + "{\"torn";
    repository.write(layout::JOURNAL, lines);
    let last = health(&repository).short_term.inputs.last.unwrap();
    assert_eq!(
        (last.source, last.at.to_string().as_str()),
        (Source::Journal, "2026-01-02T03:04:05.5Z")
    );
}

#[test]
fn colours_are_kept_only_when_asked() {
    let repository = forge();
    let project = open(repository.path());
    let found = health::measure(&project);
    assert!(!repository.path().join(layout::HEALTH).exists());
    assert_eq!(
        health::record(&project, &found).unwrap(),
        None,
        "the first is no change"
    );
    let history = health::history(&project).unwrap();
    assert_eq!((history.len(), history[0].colours), (1, found.colours()));
    let text = std::fs::read(repository.path().join(layout::HEALTH)).unwrap();
    health::record(&project, &found).unwrap();
    assert_eq!(
        std::fs::read(repository.path().join(layout::HEALTH)).unwrap(),
        text,
        "nothing new"
    );
}

#[test]
#[ignore = "prints how long it takes on 10,000 files, 500 features and 2,000 commits"]
fn a_large_repository() {
    let repository = forge();
    for n in 0..10_000 {
        repository.write(&format!("src/d{}/f{n}.rs", n / 100), format!("// {n}\n"));
    }
    let feature =
        |n: u32| format!("{{\"id\": \"F-{n:03}\", \"name\": \"n\", \"status\": \"failing\"}}");
    let features: Vec<String> = (0..500).map(feature).collect();
    write_entries::<FeaturesFile>(
        repository.path(),
        &format!(
            "{{\"schema_version\": \"1.0\", \"features\": [{}]}}",
            features.join(",")
        ),
    );
    repository.commit("[session] Many files");
    repository.run(&["switch", "--quiet", "-c", "work"]);
    let mut stream = String::new();
    for n in 0..2_000 {
        stream.push_str(&format!(
            "commit refs/heads/work\ncommitter a <a@b> {} +0000\ndata 6\n[A-1]\n",
            1_700_000_000 + n
        ));
        if n == 0 {
            stream.push_str("from refs/heads/work^0\n");
        }
        stream.push_str(&format!("M 644 inline n\ndata <<E\n{n}\nE\n\n"));
    }
    let run = crate::git::Run::writing().stdin(stream);
    repository
        .git()
        .succeed(&["fast-import", "--quiet", "--force"], &run)
        .unwrap();
    repository.run(&["read-tree", "HEAD"]);
    repository.write("n", "1999\n");
    let project = open(repository.path());
    for _ in 0..5 {
        let began = std::time::Instant::now();
        let found = health::measure(&project);
        println!(
            "{:?} {:?} ahead {}",
            began.elapsed(),
            found.overall,
            found.git.inputs.ahead
        );
    }
}
