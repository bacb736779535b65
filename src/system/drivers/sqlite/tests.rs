//! Tests of the file: who makes it, what is left in it, and the locks of processes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use helmdeck_core::Timestamp;
use helmdeck_memory::StoreError;

use crate::conformance::jobs::{add, end_lost, find, row, save};
use crate::conformance::{self, DAY, Fixture, MINUTE, NOW};
use crate::counters::Counter;
use crate::idempotency::{Begun, KeyRequest};
use crate::jobs::JobRow;
use crate::system::System;
use crate::tokens::{NewToken, PresentedToken};
use crate::vault::VaultUse;

fn counter(value: u64) -> Counter {
    Counter {
        pack: "p".into(),
        name: "hits".into(),
        value,
    }
}

/// Returns whether a text is in a file of the folder.
fn holds(folder: &Path, text: &str) -> bool {
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.is_file());
    files.into_iter().any(|path| {
        let bytes = std::fs::read(path).unwrap();
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    })
}

fn locks(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("jobs")).map_or(0, Iterator::count)
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_conforms() {
    let folders = parking_lot::Mutex::new(Vec::new());
    conformance::run(|| {
        let folder = tempfile::tempdir().unwrap();
        let at = || System::at(folder.path().join("helmdeck.db"));
        let fixture = Fixture {
            one: at(),
            two: at(),
        };
        folders.lock().push(folder);
        fixture
    })
    .await;
}

#[tokio::test]
async fn only_writing_makes_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/helmdeck.db");
    let system = System::at(&path);
    assert!(system.counters().await.unwrap().is_empty());
    assert_eq!(system.sweep(Timestamp(1_000_000)).await.unwrap(), 0);
    system.add(Vec::new()).await.unwrap();
    assert!(!folder.path().join("new").exists());
    system.add(vec![counter(1)]).await.unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(
        folder
            .path()
            .join("new")
            .metadata()
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o700
    );
    assert_eq!(system.location(), path.display().to_string());
}

#[tokio::test]
async fn counters_survive_a_deleted_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("helmdeck.db");
    let (one, two) = (System::at(&path), System::at(&path));
    one.add(vec![counter(2)]).await.unwrap();
    for name in ["helmdeck.db", "helmdeck.db-wal", "helmdeck.db-shm"] {
        let _ = std::fs::remove_file(folder.path().join(name));
    }
    assert!(one.counters().await.unwrap().is_empty());
    one.add(vec![counter(1)]).await.unwrap();
    assert_eq!(two.counters().await.unwrap(), [counter(1)]);
}

#[tokio::test]
async fn a_foreign_file_is_an_error_and_stays_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("helmdeck.db");
    std::fs::write(&path, "not a database, but a foreign file").unwrap();
    let error = System::at(&path).add(vec![counter(1)]).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Corrupt(message) if message.contains("helmdeck.db")),
        "{error:?}"
    );
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "not a database, but a foreign file"
    );
}

#[tokio::test]
async fn no_secret_of_a_token_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let system = System::at(folder.path().join("helmdeck.db"));
    let token = NewToken {
        name: "ci-canary".to_owned(),
        tenant: "t".to_owned(),
        subject: "a".to_owned(),
        scope: "packs:run".to_owned(),
        created_at: NOW,
        expires_at: None,
        ancestors: Vec::new(),
    };
    let (_, text) = system.create_token(token).await.unwrap();
    assert!(PresentedToken::parse(text.expose()).is_some());
    assert!(holds(folder.path(), "ci-canary") && !holds(folder.path(), &text.expose()[20..84]));
}

#[tokio::test]
async fn forgotten_bytes_are_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let system = System::at(folder.path().join("helmdeck.db"));
    let replica = system.replica().await.unwrap();
    for subject in ["alice", "bob"] {
        let scope = System::scope("t", subject, "rest");
        let request = KeyRequest {
            scope: &scope,
            key: "k",
            digest: b"d",
            keep: MINUTE,
            repeatable: false,
        };
        let Begun::New(fence) = system.begin(request, &replica, NOW).await.unwrap() else {
            panic!("it is new")
        };
        let answer = Some(format!("the answer to {subject}").into_bytes());
        system
            .finish(&scope, "k", fence, answer, NOW.saturating_add(MINUTE))
            .await
            .unwrap();
    }
    let used = VaultUse {
        name: "n".to_owned(),
        tenant: "t".to_owned(),
        subject: "SUBJECT-a".to_owned(),
        pack: "p".to_owned(),
        day: 1,
        granted: 1,
        refused: 0,
        last_at: NOW,
    };
    system.add_vault_uses(vec![used]).await.unwrap();
    let job = add(&system, &replica, "alice", 1).await;
    let done = JobRow {
        state: "succeeded".into(),
        revision: 2,
        ended_at: Some(NOW),
        kept: "sealed".into(),
        ..job
    };
    system
        .save_jobs(replica.id(), vec![(done, Some(b"sealed-canary".to_vec()))])
        .await
        .unwrap();
    system.forget_ended_jobs("t", "alice").await.unwrap();
    system.forget_vault_uses("t", "SUBJECT-a").await.unwrap();
    assert_eq!(system.forget("t", "alice").await.unwrap(), 1);
    for text in ["the answer to alice", "SUBJECT-a", "sealed-canary"] {
        assert!(!holds(folder.path(), text), "{text}");
    }
    assert!(holds(folder.path(), "the answer to bob"));
}

#[tokio::test]
async fn keys_of_an_earlier_version_stay_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("helmdeck.db");
    let system = System::at(&path);
    let replica = system.replica().await.unwrap();
    let request = KeyRequest {
        scope: "s",
        key: "k",
        digest: b"d",
        keep: MINUTE,
        repeatable: true,
    };
    system.begin(request, &replica, NOW).await.unwrap();
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute("UPDATE idempotency_keys SET owner = NULL", [])
        .unwrap();
    assert_eq!(
        system.begin(request, &replica, NOW).await.unwrap(),
        Begun::InFlight {
            digest: b"d".into()
        }
    );
}

#[tokio::test]
async fn lock_of_a_killed_process_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let system = System::at(folder.path().join("helmdeck.db"));
    let replica = system.replica().await.unwrap();
    for (number, name) in [(1, "00ff"), (2, "00aa"), (3, "../helmdeck"), (4, "")] {
        let row = JobRow {
            owner: name.into(),
            ..row(&replica, "a", number)
        };
        assert!(system.add_job(row, 100).await.unwrap());
    }
    // A lock file without a holder, as after kill -9; the others have none.
    std::fs::write(folder.path().join("jobs/00ff.lock"), "").unwrap();
    assert_eq!(end_lost(&system).await, 4);
    assert_eq!(locks(folder.path()), 1);
    std::fs::write(folder.path().join("jobs/00ff.lock"), "").unwrap();
    std::fs::write(folder.path().join("jobs/notes.txt"), "").unwrap();
    let other = System::at(folder.path().join("helmdeck.db"));
    let next = other.replica().await.unwrap();
    assert_eq!(
        locks(folder.path()),
        3,
        "the two owners, and what is none of ours"
    );
    assert_ne!(replica.id(), next.id());
    drop(next);
    assert_eq!(locks(folder.path()), 2);
}

#[tokio::test]
async fn a_lock_that_cannot_be_looked_at_hides_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let system = System::at(folder.path().join("helmdeck.db"));
    let replica = system.replica().await.unwrap();
    let [odd, lost] = [(1, "00aa"), (2, "00ff")].map(|(number, name)| JobRow {
        owner: name.into(),
        ..row(&replica, "a", number)
    });
    for row in [&odd, &lost] {
        assert!(system.add_job(row.clone(), 100).await.unwrap());
    }
    // A link to itself cannot be opened by any user.
    std::os::unix::fs::symlink("00aa.lock", folder.path().join("jobs/00aa.lock")).unwrap();
    assert_eq!(end_lost(&system).await, 1);
    assert_eq!(find(&system, &lost).await.unwrap().state, "failed");
    assert_eq!(find(&system, &odd).await, Some(odd.clone()));
    assert!(save(&system, &[JobRow { revision: 2, ..odd }]).await);
    assert_eq!(system.sweep(NOW.saturating_add(DAY)).await.unwrap(), 1);
}
