//! A push or pull that is killed at any step is finished by the next one.

use std::process::{Child, Command, Stdio};

use helmdeck_testkit::linear::Fault;

use super::*;

const WORKER: &str = "sync::tests::killed::worker";

/// Runs a push or pull in a process that the test kills, or that dies after some files.
#[test]
#[ignore = "it is run by the test below, in a process of its own"]
#[allow(
    clippy::disallowed_methods,
    reason = "the other process is told what to do by its environment"
)]
fn worker() {
    let Some(root) = std::env::var_os("SYNC_ROOT") else {
        return;
    };
    let text = |name: &str| std::env::var(name).unwrap();
    let clone = Clone::at(Path::new(&root), &text("SYNC_URL"), &text("SYNC_KEY"));
    clone.clock.advance(Duration::from_secs(86_400));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    if let Some(files) = std::env::var("SYNC_DIES")
        .ok()
        .and_then(|files| files.parse().ok())
    {
        helmdeck_forge_files::files::kill::after(files);
    }
    if text("SYNC_WHAT") == "pull" {
        runtime.block_on(clone.pull());
        return;
    }
    let pushed = runtime.block_on(clone.push());
    assert_eq!((pushed.failed, pushed.waiting), (Vec::new(), 0));
}

/// Returns a folder in memory, where the system has one: these tests write many files, one after
/// the other.
fn folder_in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

fn start(root: &Path, mock: &Mock, what: &str, dies: Option<usize>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    if let Some(files) = dies {
        command.env("SYNC_DIES", files.to_string());
    }
    command
        .env("SYNC_WHAT", what)
        .args(["--ignored", "--exact", "--nocapture", WORKER])
        .env("SYNC_ROOT", root)
        .env("SYNC_URL", mock.url())
        .env("SYNC_KEY", mock.key())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Runs it, and kills it at the request after so many others. Says whether it came to its end.
fn ends_before(root: &Path, mock: &Mock, what: &str, step: usize, carried_out: bool) -> bool {
    assert!(step < 40, "it does not end");
    let reached = mock.hang("", step, carried_out);
    let mut child = start(root, mock, what, None);
    let ended = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if reached.recv_timeout(Duration::from_millis(20)).is_ok() {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
    };
    mock.forget_faults();
    ended.is_some_and(|status| {
        assert!(status.success());
        true
    })
}

#[test]
fn a_push_killed_at_each_request_is_finished_later() {
    for carried_out in [false, true] {
        let mock = Mock::start();
        let folder = folder_in_memory();
        let clone = Clone::at(folder.path(), &mock.url(), mock.key());
        let one = clone.add("One");
        let two = clone.add("Two");
        clone.set(
            &two,
            &IssueEdit {
                fields: IssueFields {
                    blocked_by: Some(vec![one]),
                    labels: Some(vec!["ui".into()]),
                    ..IssueFields::default()
                },
                ..IssueEdit::default()
            },
        );
        // The first requests read the directory; each killed run gets one request further.
        let _ = (0..).find(|step| ends_before(folder.path(), &mock, "push", *step, carried_out));
        assert_eq!(
            mock.with(|store| store.issues.len()),
            2,
            "carried out: {carried_out}"
        );
        assert_eq!(mock.with(|store| store.relations.len()), 1);
        assert_eq!(mock.issue("SX9-2").labels.len(), 2, "the type and one more");
        let keys: Vec<String> = clone
            .project
            .issues()
            .read()
            .unwrap()
            .issues
            .into_iter()
            .map(|issue| issue.linear_id)
            .collect();
        assert_eq!(keys, ["SX9-1", "SX9-2"]);
        assert_eq!(clone.issue("SX9-2").blocked_by, ["SX9-1"]);
        assert_eq!(clone.status().waiting, 0);
        conforms(&mock);
    }
}

#[tokio::test]
async fn a_push_dropped_in_the_middle_is_finished_later() {
    let mock = Mock::start();
    let clone = Clone::new(&mock);
    for number in 0..4 {
        clone.add(&format!("issue {number}"));
    }
    for step in 0..12 {
        mock.fail("", step, Fault::Slow(Duration::from_millis(300)));
        let _ = tokio::time::timeout(
            Duration::from_millis(100),
            clone.sync().push(&Push::default()),
        )
        .await;
        mock.forget_faults();
    }
    clone.push().await;
    assert_eq!(mock.with(|store| store.issues.len()), 4);
    assert_eq!((clone.status().waiting, clone.status().local.len()), (0, 0));
    conforms(&mock);
}

/// A clone that knows three issues of the tracker, and two local ones, one of which the tracker has
/// by a lost answer. Meanwhile people changed the three.
async fn behind(mock: &Mock, root: &Path) -> Clone {
    mock.with(|store| ["Changed", "Completed", "Same"].map(|title| store.add(title)));
    let clone = Clone::at(root, &mock.url(), mock.key());
    clone.pull().await;
    let (lost, waits) = (clone.add("Lost"), clone.add("Waits"));
    clone.set(
        &waits,
        &IssueEdit {
            fields: IssueFields {
                blocked_by: Some(vec![lost.clone()]),
                ..IssueFields::default()
            },
            ..IssueEdit::default()
        },
    );
    let issue = clone.issue(&lost);
    let id = creation_id("SX9", &issue);
    mock.with(|store| {
        let key = store.add("Lost");
        store.edit(&key, |made| {
            made.id = id.to_string();
            made.description = crate::mark::add("", id);
            made.labels.insert("Task".into());
        });
        store.edit("SX9-1", |issue| {
            (issue.title, issue.priority) = ("Changed twice".into(), 1)
        });
        store.edit("SX9-2", |issue| issue.state = "Done".into());
    });
    clone
}

/// Checks the clone of [`behind`] after the next pull and push.
async fn is_up_to_date(mock: &Mock, clone: &Clone, what: &str) {
    clone.clock.advance(Duration::from_secs(86_400));
    let pulled = clone.pull().await;
    assert_eq!(
        (pulled.conflicts, pulled.warnings),
        (0, Vec::new()),
        "{what}"
    );
    let pushed = clone.push().await;
    assert_eq!(
        (pushed.failed, pushed.waiting, pushed.conflicts),
        (Vec::new(), 0, 0),
        "{what}"
    );
    let keys: Vec<String> = clone
        .project
        .issues()
        .read()
        .unwrap()
        .issues
        .into_iter()
        .map(|issue| issue.linear_id)
        .collect();
    assert_eq!(keys, ["SX9-1", "SX9-3", "SX9-4", "SX9-5"], "{what}");
    assert_eq!(clone.issue("LOCAL-1").linear_id, "SX9-4", "{what}");
    assert_eq!(clone.issue("SX9-5").blocked_by, ["SX9-4"], "{what}");
    assert_eq!(
        (
            clone.issue("SX9-1").title.as_str(),
            clone.issue("SX9-1").priority
        ),
        ("Changed twice", Some(1)),
        "{what}"
    );
    assert!(clone.issue("SX9-2").is_over(), "{what}");
    let titles = mock.with(|store| {
        store
            .issues
            .iter()
            .map(|issue| issue.title.clone())
            .collect::<Vec<_>>()
    });
    assert_eq!(
        titles,
        ["Changed twice", "Completed", "Same", "Lost", "Waits"],
        "{what}"
    );
    assert_eq!(
        (clone.pull().await.changed, clone.push().await),
        (Vec::new(), Pushed::default()),
        "{what}: quiet"
    );
    conforms(mock);
}

#[tokio::test]
async fn a_pull_killed_at_each_request_is_finished_later() {
    let (mock, folder) = (Mock::start(), folder_in_memory());
    let clone = behind(&mock, folder.path()).await;
    for step in 0.. {
        if ends_before(folder.path(), &mock, "pull", step, true) {
            assert!(step > 1, "it sends requests");
            break;
        }
    }
    is_up_to_date(&mock, &clone, "requests").await;
}

#[tokio::test]
async fn a_pull_killed_between_any_two_files_is_finished_later() {
    for files in 0.. {
        let (mock, folder) = (Mock::start(), folder_in_memory());
        let clone = behind(&mock, folder.path()).await;
        let ended = start(folder.path(), &mock, "pull", Some(files))
            .wait()
            .unwrap();
        is_up_to_date(&mock, &clone, &format!("{files} files")).await;
        if ended.success() {
            assert!(files > 8, "{files}");
            break;
        }
    }
}

#[tokio::test]
async fn a_push_killed_between_any_two_files_is_finished_later() {
    for files in 0.. {
        let (mock, folder) = (Mock::start(), folder_in_memory());
        let clone = behind(&mock, folder.path()).await;
        clone.pull().await;
        clone.set(
            "SX9-3",
            &IssueEdit {
                fields: IssueFields {
                    labels: Some(vec!["ui".into()]),
                    priority: Some(3),
                    ..IssueFields::default()
                },
                ..IssueEdit::default()
            },
        );
        let ended = start(folder.path(), &mock, "push", Some(files))
            .wait()
            .unwrap();
        is_up_to_date(&mock, &clone, &format!("{files} files")).await;
        assert_eq!(
            (
                mock.issue("SX9-3").priority,
                mock.issue("SX9-3").labels.len()
            ),
            (3, 1),
            "{files} files"
        );
        if ended.success() {
            assert!(files > 8, "{files}");
            break;
        }
    }
}
