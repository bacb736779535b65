//! Failing trackers: nothing is lost, doubled or half done.

use helmdeck_forge_documents::tracking::{MAX_WAITING, OperationKind};
use helmdeck_testkit::linear::Fault;

use super::*;

fn http(status: u16, retry: &[(&str, &str)]) -> Fault {
    let headers = retry
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    Fault::Http(status, headers, String::new())
}

#[tokio::test]
async fn error_on_second_page_discards_the_batch() {
    let mock = Mock::start();
    mock.with(|store| {
        store.page = 2;
        for number in 0..5 {
            store.add(&format!("issue {number}"));
        }
    });
    let clone = Clone::new(&mock);
    mock.fail("Issues", 1, Fault::Code("FORBIDDEN".into()));
    clone.sync().pull(&Pull::default()).await.unwrap_err();
    assert_eq!(clone.project.issues().read().unwrap().issues.len(), 0);
    let failure = clone.status().failure.unwrap();
    assert!(failure.error.contains("does not allow"), "{failure:?}");
    assert_eq!(clone.pull().await.added.len(), 5);
    assert_eq!(clone.status().failure, None);
    conforms(&mock);
}

#[tokio::test]
async fn a_used_up_quota_keeps_every_change_for_later() {
    let mock = Mock::start();
    let clone = Clone::new(&mock);
    clone.add("One");
    for fault in [
        Fault::Code("RATELIMITED".into()),
        http(429, &[("Retry-After", "120")]),
    ] {
        for _ in 0..9 {
            mock.fail("Create", 0, fault.clone());
        }
        let pushed = clone.push().await;
        assert!(
            pushed.stopped.is_some() && pushed.failed.is_empty() && pushed.waiting == 1,
            "{pushed:?}"
        );
        let status = clone.status();
        assert_eq!(
            (status.failed.len(), mock.with(|store| store.issues.len())),
            (0, 0)
        );
        mock.forget_faults();
    }
    assert_eq!(
        clone.push().await.delivered,
        Vec::new(),
        "it waits as long as it was asked to"
    );
    clone.clock.advance(Duration::from_secs(121));
    assert_eq!(clone.push().await.delivered.len(), 1);
    conforms(&mock);
}

#[tokio::test]
async fn three_failures_are_reported_and_retried() {
    let mock = Mock::start();
    let clone = Clone::new(&mock);
    clone.add("One");
    for attempt in 1..=3 {
        mock.fail("Create", 0, http(500, &[]));
        let pushed = clone.push().await;
        assert_eq!((pushed.failed.len(), pushed.failed[0].retried), (1, true));
        assert_eq!(clone.status().failed.len(), usize::from(attempt == 3));
        clone.clock.advance(Duration::from_secs(600));
    }
    assert_eq!(clone.push().await.delivered.len(), 1);
    assert_eq!(
        (
            clone.status().failed.len(),
            mock.with(|store| store.issues.len())
        ),
        (0, 1)
    );
    conforms(&mock);
}

#[tokio::test]
async fn a_connection_cut_after_the_write_doubles_nothing() {
    let mock = Mock::start();
    let clone = Clone::new(&mock);
    clone.add("One");
    mock.fail("Create", 0, Fault::CutAfter);
    // The look whether it is there fails too.
    for _ in 0..9 {
        mock.fail("Issues", 0, Fault::CutBefore);
    }
    assert_eq!(clone.push().await.failed.len(), 1);
    mock.forget_faults();
    mock.with(|store| store.edit("SX9-1", |issue| issue.title = "Edited meanwhile".into()));
    clone.clock.advance(Duration::from_secs(600));
    let pushed = clone.push().await;
    assert_eq!(
        (pushed.failed.len(), pushed.waiting, pushed.conflicts),
        (0, 0, 0),
        "{pushed:?}"
    );
    assert_eq!(mock.with(|store| store.issues.len()), 1);
    assert_eq!(
        clone.issue("SX9-1").title,
        "Edited meanwhile",
        "the edit of people is not undone"
    );
    clone.set("SX9-1", &titled("Again"));
    mock.fail("Update", 0, Fault::CutAfter);
    clone.push().await;
    clone.clock.advance(Duration::from_secs(600));
    clone.push().await;
    assert_eq!(
        (mock.issue("SX9-1").title.as_str(), clone.status().waiting),
        ("Again", 0)
    );
    conforms(&mock);
}

#[tokio::test]
async fn created_issue_seen_by_pull_is_recognised() {
    let mock = Mock::start();
    let clone = Clone::new(&mock);
    clone.add("One");
    mock.fail("Create", 0, Fault::CutAfter);
    for _ in 0..9 {
        mock.fail("Issues", 0, Fault::CutBefore);
    }
    clone.push().await;
    mock.forget_faults();
    let pulled = clone.pull().await;
    assert_eq!(
        (pulled.added.len(), pulled.renamed),
        (0, vec![("LOCAL-1".to_owned(), "SX9-1".to_owned())])
    );
    clone.clock.advance(Duration::from_secs(600));
    let pushed = clone.push().await;
    assert_eq!((pushed.failed.len(), pushed.waiting), (0, 0), "{pushed:?}");
    assert_eq!(
        (
            mock.with(|store| store.issues.len()),
            clone.project.issues().read().unwrap().issues.len()
        ),
        (1, 1)
    );
    conforms(&mock);
}

#[tokio::test]
async fn a_wrong_key_changes_nothing_and_is_not_shown() {
    let mock = Mock::start();
    let folder = tempfile::tempdir().unwrap();
    let wrong = Clone::at(folder.path(), &mock.url(), "lin_api_canary-0123456789");
    wrong.add("One");
    let error = wrong.sync().push(&Push::default()).await.unwrap_err();
    assert_eq!(error.code, "E_TRACKER_AUTH");
    let error = wrong.sync().pull(&Pull::default()).await.unwrap_err();
    assert!(!format!("{error:?}{}", wrong.texts()).contains("canary"));
    assert_eq!(wrong.status().failed.len(), 0);
    let right = Clone::at(folder.path(), &mock.url(), mock.key());
    assert_eq!(right.push().await.delivered.len(), 1);
    assert!(!right.texts().contains(mock.key()));
    conforms(&mock);
}

#[tokio::test]
async fn a_clock_that_is_wrong_hides_no_change() {
    let mock = Mock::start();
    mock.with(|store| (store.add("First"), store.add("Second")));
    let clone = Clone::new(&mock);
    // One issue seems to be of the year 2060; the clock here is years behind the tracker's.
    mock.with(|store| store.issues[0].updated = 34 * 365 * 86_400);
    clone.pull().await;
    clone.clock.set(Timestamp(0));
    mock.with(|store| store.edit("SX9-2", |issue| issue.title = "Changed".into()));
    clone.pull().await;
    assert_eq!(clone.issue("SX9-2").title, "Changed");
    mock.with(|store| store.edit("SX9-2", |issue| issue.title = "And again".into()));
    assert_eq!(clone.pull().await.changed.len(), 1);
    conforms(&mock);
}

#[tokio::test]
async fn what_the_tracker_refuses_holds_up_nothing_else() {
    let mock = Mock::start();
    let clone = Clone::new(&mock);
    let long = clone.add("Long");
    clone.add("Short");
    // The limit counts what is added to a description too.
    clone.set(
        &long,
        &IssueEdit {
            fields: IssueFields {
                description: Some("x".repeat(249_990)),
                criteria: Some(vec!["y".repeat(100)]),
                ..IssueFields::default()
            },
            ..IssueEdit::default()
        },
    );
    let pushed = clone.push().await;
    assert_eq!(
        (
            pushed.delivered.len(),
            pushed.failed.len(),
            pushed.failed[0].retried
        ),
        (1, 1, false)
    );
    assert!(
        pushed.failed[0].error.contains("250000 are the most"),
        "{pushed:?}"
    );
    assert_eq!(clone.status().failed[0].issue, long);
    clone.set(
        &long,
        &IssueEdit {
            fields: IssueFields {
                description: Some("short".into()),
                ..IssueFields::default()
            },
            ..IssueEdit::default()
        },
    );
    let pushed = clone.push().await;
    assert_eq!(
        (pushed.delivered.len(), pushed.waiting),
        (1, 0),
        "a change of the issue is a new attempt: {pushed:?}"
    );
    conforms(&mock);
}

#[tokio::test]
async fn names_without_a_counterpart_are_refused_with_the_setting() {
    let mock = Mock::start();
    mock.with(|store| store.add("First"));
    let clone = Clone::new(&mock);
    clone.pull().await;
    clone.set(
        "SX9-1",
        &IssueEdit {
            state: Some("Waiting".into()),
            ..IssueEdit::default()
        },
    );
    let pushed = clone.push().await;
    assert!(
        pushed.failed[0].error.contains("[linear.states]"),
        "{pushed:?}"
    );
    assert_eq!(
        clone.push().await.failed.len(),
        0,
        "it fails the same way until a person changes something"
    );
    assert_eq!(retry(&clone.project).unwrap(), 1);
    assert_eq!(clone.push().await.failed.len(), 1);
    assert_eq!(give_up(&clone.project, "SX9-1").unwrap().len(), 1);
    assert_eq!(
        give_up(&clone.project, "SX9-1").unwrap_err().category,
        helmdeck_forge::Category::NotFound
    );
    assert_eq!(
        (
            clone.issue("SX9-1").state.as_deref(),
            clone.status().waiting
        ),
        (Some("Open"), 0)
    );
    assert_eq!(clone.push().await, Pushed::default());
}

#[tokio::test]
async fn credentials_in_a_tracker_stay_there() {
    let mock = Mock::start();
    let leak = helmdeck_testkit::leaks::credentials().remove(0).1;
    mock.with(|store| {
        let key = store.add("First");
        store.add("Second");
        store.edit(&key, |issue| issue.description = format!("use {leak}"));
    });
    let clone = Clone::new(&mock);
    assert_eq!(
        clone.pull().await.added.len(),
        2,
        "the rest of the batch is taken"
    );
    assert!(!clone.texts().contains(&leak));
    clone.set("SX9-1", &titled("Ours"));
    clone.push().await;
    assert!(
        mock.issue("SX9-1").description.contains(&leak),
        "it is not overwritten by the note"
    );
    conforms(&mock);
}

#[test]
fn a_full_outbox_refuses_and_drops_nothing() {
    let clone = Clone::new(&Mock::start());
    let files = clone.project.files();
    let now = clone.project.environment().now();
    let operation = |number: usize| {
        Operation::new(
            format!("op {number}"),
            OperationKind::Comment,
            "SX9-1".into(),
            now,
        )
    };
    Outbox::edit(files, |waiting| {
        waiting.extend((0..MAX_WAITING).map(operation))
    })
    .unwrap();
    let error = Outbox::edit(files, |waiting| waiting.push(operation(MAX_WAITING))).unwrap_err();
    assert_eq!(error.code, "E_OUTBOX_FULL");
    assert_eq!(clone.status().waiting, MAX_WAITING);
    Outbox::edit(files, |waiting| waiting.truncate(1)).unwrap();
    assert_eq!(Outbox::read(files).unwrap().waiting, [operation(0)]);
}

#[tokio::test]
async fn damaged_lines_of_the_outbox_stay() {
    let mock = Mock::start();
    let clone = Clone::new(&mock);
    clone.add("One");
    let path = clone.project.root().join(".forge/linear/outbox.jsonl");
    std::fs::write(&path, "not json\n").unwrap();
    assert_eq!(clone.push().await.delivered.len(), 1);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "not json\n");
    assert_eq!((clone.status().damaged, clone.status().waiting), (1, 0));
}
