//! GitHub issues against a stand-in.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use helmdeck_core::{ManualClock, Secret, SystemClock, Timestamp};
use helmdeck_egress::Egress;
use helmdeck_forge::issues::{AddIssue, CloseIssue, IssueEdit, IssueFields};
use helmdeck_forge::{Project, ProjectEnvironment};
use helmdeck_testkit::github_issues::GitHubIssues as Mock;

use super::*;
use crate::sync::{Pull, Push, Pushed, Sync};

mod faults;

const CONFIG: &str = "[git]\nenabled = false\n[linear]\nmode = \"live\"\n[tracker]\nkind = \"github\"\n\
                      [github]\nrepository = \"acme/app\"\n";

/// Number of clones. Without git each counts from LOCAL-1, so that issues differ in the time of
/// their creation.
static CLONES: AtomicI64 = AtomicI64::new(0);

pub(super) struct Clone {
    _folder: tempfile::TempDir,
    pub(super) project: Project,
    hub: GitHub,
}

impl Clone {
    pub(super) fn new(mock: &Mock) -> Self {
        Self::with(mock, "")
    }

    pub(super) fn with(mock: &Mock, settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join(".forge")).unwrap();
        std::fs::write(
            folder.path().join(".forge/config.toml"),
            format!("{CONFIG}{settings}"),
        )
        .unwrap();
        let clock = Arc::new(ManualClock::default());
        let number = CLONES.fetch_add(1, Ordering::Relaxed);
        clock.set(Timestamp((1_780_000_000 + number * 100_000) * 1_000_000));
        let environment = ProjectEnvironment {
            clock,
            ..ProjectEnvironment::default()
        };
        let project = Project::open(folder.path(), environment).unwrap().unwrap();
        let egress = Egress::new(helmdeck_egress::Config::default());
        let clock = Arc::new(SystemClock::default());
        let token = Secret::new("token-1".to_owned());
        let mut connection = Connection::new(egress, mock.url().parse().unwrap(), token, clock);
        connection.retry_wait = Duration::from_millis(1);
        connection.patience = Duration::from_millis(200);
        let hub = GitHub::new(connection, &project.config().github, false).unwrap();
        Self {
            _folder: folder,
            project,
            hub,
        }
    }

    pub(super) fn sync(&self) -> Sync<'_> {
        Sync::new(&self.project, &self.hub)
    }

    pub(super) async fn push(&self) -> Pushed {
        self.sync().push(&Push::default()).await.unwrap()
    }

    pub(super) fn issue(&self, key: &str) -> helmdeck_forge::issues::Issue {
        self.project.issues().show(key).unwrap().item.issue
    }
}

#[tokio::test]
async fn issues_are_pulled_without_pull_requests() {
    let mock = Mock::start();
    mock.with(|store| {
        store.page = 2;
        for title in ["First", "A pull request", "Third", "Fourth"] {
            store.add(title);
        }
        store.edit(2, |issue| issue.pull_request = true);
        store.edit(1, |issue| {
            issue.labels = ["bug", "in progress", "ui"].map(str::to_owned).into();
            issue.assignee = Some("grace".into());
            issue.parent = Some(3);
            issue.blocked_by = BTreeSet::from([4]);
            issue.body = "Text.\r\n\r\n## Acceptance criteria\r\n\r\n- [x] done\r\n".into();
        });
    });
    let clone = Clone::new(&mock);
    let mut added = clone.sync().pull(&Pull::default()).await.unwrap().added;
    added.sort();
    assert_eq!(added, ["GH-1", "GH-3", "GH-4"]);
    let issue = clone.issue("GH-1");
    assert_eq!(
        (issue.kind.as_deref(), issue.state.as_deref()),
        (Some("bug"), Some("In Progress"))
    );
    assert_eq!(
        (
            issue.assignee.as_deref(),
            issue.parent(),
            issue.labels.as_slice()
        ),
        (Some("grace"), Some("GH-3"), ["ui".to_owned()].as_slice())
    );
    assert_eq!(
        (issue.blocked_by, issue.acceptance_criteria.len()),
        (vec!["GH-4".to_owned()], 1)
    );
    assert_eq!(clone.push().await, Pushed::default());
    assert_eq!(
        mock.with(|store| store.unknown.clone()),
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn local_issues_and_their_changes_are_delivered_once() {
    let mock = Mock::start();
    let clone = Clone::new(&mock);
    let issues = clone.project.issues();
    let add = |title: &str| AddIssue {
        title: title.to_owned(),
        fields: IssueFields {
            kind: Some("bug".into()),
            labels: Some(vec!["ui".into()]),
            ..IssueFields::default()
        },
        ..AddIssue::default()
    };
    let one = issues.add(&add("One")).unwrap().issue.linear_id;
    let two = issues
        .add(&AddIssue {
            fields: IssueFields {
                blocked_by: Some(vec![one.clone()]),
                parent: Some(one.clone()),
                ..add("Two").fields
            },
            ..add("Two")
        })
        .unwrap();
    mock.with(|store| store.cut_next_post = true);
    let pushed = clone.push().await;
    assert_eq!((pushed.failed.len(), pushed.waiting), (0, 0), "{pushed:?}");
    assert_eq!(mock.with(|store| store.issues.len()), 2);
    let there = mock.issue(2);
    assert_eq!(
        (there.parent, there.blocked_by),
        (Some(1), BTreeSet::from([1]))
    );
    assert_eq!(there.labels, ["bug", "ui"].map(str::to_owned).into());
    assert_eq!(clone.issue(&two.issue.linear_id).linear_id, "GH-2");
    assert_eq!(clone.push().await, Pushed::default());

    issues
        .start(
            "GH-1",
            &helmdeck_forge::issues::Start {
                no_branch: true,
                ..Default::default()
            },
        )
        .unwrap();
    issues
        .set(
            "GH-2",
            &IssueEdit {
                fields: IssueFields {
                    parent: Some(String::new()),
                    blocked_by: Some(Vec::new()),
                    ..IssueFields::default()
                },
                ..IssueEdit::default()
            },
            None,
        )
        .unwrap();
    clone.push().await;
    assert!(mock.issue(1).labels.contains("in progress"));
    assert_eq!(
        (mock.issue(2).parent, mock.issue(2).blocked_by.len()),
        (None, 0)
    );
    issues.done("GH-1", &CloseIssue::default(), None).unwrap();
    clone.push().await;
    let closed = mock.issue(1);
    assert_eq!(
        (closed.closed, closed.reason.as_deref()),
        (true, Some("completed"))
    );
    assert!(!closed.labels.contains("in progress"));
    mock.with(|store| {
        store.edit(2, |issue| {
            (issue.closed, issue.reason) = (true, Some("not_planned".into()))
        })
    });
    assert_eq!(
        clone.sync().pull(&Pull::default()).await.unwrap().closed,
        ["GH-2"]
    );
    assert_eq!(clone.issue("GH-2").state.as_deref(), Some("Cancelled"));
    assert_eq!(
        mock.with(|store| store.unknown.clone()),
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn closed_local_issues_are_created_closed() {
    let mock = Mock::start();
    let clone = Clone::new(&mock);
    let issues = clone.project.issues();
    for (title, cancelled) in [("One", false), ("Two", true)] {
        let key = issues
            .add(&AddIssue {
                title: title.into(),
                ..AddIssue::default()
            })
            .unwrap()
            .issue
            .linear_id;
        issues
            .done(
                &key,
                &CloseIssue {
                    cancelled,
                    ..CloseIssue::default()
                },
                None,
            )
            .unwrap();
    }
    mock.with(|store| store.cut_next_post = true);
    let pushed = clone.push().await;
    assert_eq!(
        (pushed.delivered.len(), pushed.failed.len()),
        (2, 0),
        "{pushed:?}"
    );
    for (number, reason) in [(1, "completed"), (2, "not_planned")] {
        let there = mock.issue(number);
        assert_eq!(
            (there.closed, there.reason.as_deref()),
            (true, Some(reason))
        );
        assert!(
            issues
                .show(&format!("GH-{number}"))
                .unwrap()
                .summary
                .is_some()
        );
    }
    assert_eq!(clone.push().await, Pushed::default());
}

#[tokio::test]
async fn comments_are_delivered_once() {
    let mock = Mock::start();
    mock.with(|store| store.add("First"));
    let clone = Clone::new(&mock);
    clone.sync().pull(&Pull::default()).await.unwrap();
    clone.project.issues().comment("GH-1", "said").unwrap();
    mock.with(|store| store.cut_next_post = true);
    assert_eq!(clone.push().await.failed.len(), 1);
    crate::sync::retry(&clone.project).unwrap();
    assert_eq!(clone.push().await.delivered.len(), 1);
    let comments = mock.issue(1).comments;
    assert!(
        comments.len() == 1 && comments[0].body.starts_with("said"),
        "{comments:?}"
    );
    let full = Pull {
        full: true,
        ..Pull::default()
    };
    assert_eq!(
        clone.sync().pull(&full).await.unwrap().comments,
        0,
        "ours do not come back"
    );
}

#[tokio::test]
async fn comments_are_pulled_edited_and_removed() {
    let mock = Mock::start();
    mock.with(|store| {
        store.add("First");
        store.say(1, "grace", "one\r\ntwo");
        store.say(1, "ghost", "three");
    });
    let clone = Clone::new(&mock);
    assert_eq!(
        clone.sync().pull(&Pull::default()).await.unwrap().comments,
        2
    );
    let texts = || {
        clone
            .issue("GH-1")
            .comments
            .into_iter()
            .map(|one| one.text)
            .collect::<Vec<_>>()
    };
    assert_eq!(texts(), ["one\ntwo", "three"]);
    assert_eq!(clone.issue("GH-1").comments[0].by.as_deref(), Some("grace"));
    mock.with(|store| store.edit_comment(1, 0, "edited"));
    assert_eq!(
        clone.sync().pull(&Pull::default()).await.unwrap().comments,
        1
    );
    mock.with(|store| store.edit(1, |issue| drop(issue.comments.pop())));
    let full = Pull {
        full: true,
        ..Pull::default()
    };
    assert_eq!(clone.sync().pull(&full).await.unwrap().comments, 1);
    assert_eq!(texts(), ["edited"]);
    assert_eq!(clone.push().await, Pushed::default());
    assert_eq!(
        mock.with(|store| store.unknown.clone()),
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn milestones_and_labelled_states_go_both_ways() {
    let mock = Mock::start();
    mock.with(|store| {
        store.milestones = vec!["v1".into(), "v2".into()];
        store.add("First");
        store.edit(1, |issue| {
            issue.milestone = Some("v1".into());
            issue.labels = ["review", "ui"].map(str::to_owned).into();
        });
    });
    let clone = Clone::with(&mock, "[github.states]\n\"In Review\" = \"review\"\n");
    clone.sync().pull(&Pull::default()).await.unwrap();
    let issue = clone.issue("GH-1");
    assert_eq!(
        (issue.milestone.as_deref(), issue.state.as_deref()),
        (Some("v1"), Some("In Progress"))
    );
    assert_eq!(issue.labels, ["ui"]);
    let issues = clone.project.issues();
    let edit = |milestone: &str, state: &str| IssueEdit {
        state: Some(state.into()),
        fields: IssueFields {
            milestone: Some(milestone.into()),
            ..IssueFields::default()
        },
        ..IssueEdit::default()
    };
    issues
        .set("GH-1", &edit("V2", "In Progress"), None)
        .unwrap();
    clone.push().await;
    assert_eq!(mock.issue(1).milestone.as_deref(), Some("v2"));
    issues.set("GH-1", &edit("", "In Review"), None).unwrap();
    clone.push().await;
    assert_eq!(
        (mock.issue(1).milestone, mock.issue(1).labels),
        (None, ["review", "ui"].map(str::to_owned).into())
    );
    issues.set("GH-1", &edit("", "Open"), None).unwrap();
    clone.push().await;
    assert_eq!(mock.issue(1).labels, ["ui".to_owned()].into());
    issues.set("GH-1", &edit("v9", "Open"), None).unwrap();
    let failed = clone.push().await.failed;
    assert!(
        failed[0].error.contains("no milestone \"v9\"") && failed[0].error.contains("\"v1\""),
        "{failed:?}"
    );
    assert_eq!(
        mock.with(|store| store.unknown.clone()),
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn an_issue_closed_by_a_merge_names_the_commit() {
    let mock = Mock::start();
    mock.with(|store| {
        (
            store.add("By a pull request"),
            store.add("By a commit"),
            store.add("By hand"),
        )
    });
    let clone = Clone::new(&mock);
    clone.sync().pull(&Pull::default()).await.unwrap();
    let [one, two] = ["a", "b"].map(|digit| digit.repeat(40));
    mock.with(|store| {
        store.merge(7, 1, &one);
        for number in [2, 3] {
            store.edit(number, |issue| {
                (issue.closed, issue.reason) = (true, Some("completed".into()))
            });
        }
        let closed = serde_json::json!({"event": "closed", "commit_id": two});
        store.edit(2, |issue| issue.timeline.push(closed));
    });
    assert_eq!(
        clone
            .sync()
            .pull(&Pull::default())
            .await
            .unwrap()
            .closed
            .len(),
        3
    );
    for (key, commit) in [("GH-1", Some(&one)), ("GH-2", Some(&two)), ("GH-3", None)] {
        let shown = clone.project.issues().show(key).unwrap();
        let commits = shown
            .item
            .issue
            .git_refs
            .map(|refs| refs.commits)
            .unwrap_or_default();
        assert_eq!((commits.first(), shown.item.over), (commit, true), "{key}");
        assert_eq!(
            shown.summary.unwrap().contains("## Commits"),
            commit.is_some(),
            "{key}"
        );
    }
    assert_eq!(
        mock.with(|store| store.unknown.clone()),
        Vec::<String>::new()
    );
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let connection = |url: &str| {
        let egress = Egress::new(helmdeck_egress::Config::default());
        let clock = Arc::new(SystemClock::default());
        Connection::new(
            egress,
            url.parse().unwrap(),
            Secret::new("token-1".to_owned()),
            clock,
        )
    };
    for (repository, prefix, url) in [
        ("acme", "GH", ENDPOINT),
        ("acme/../x", "GH", ENDPOINT),
        ("acme/app", "gh", ENDPOINT),
        ("acme/app", "LOCAL", ENDPOINT),
        ("acme/app", "GH", "http://api.github.com"),
    ] {
        let settings = GithubConfig {
            repository: Some(repository.to_owned()),
            prefix: Some(prefix.to_owned()),
            ..GithubConfig::default()
        };
        assert_eq!(
            GitHub::new(connection(url), &settings, false)
                .unwrap_err()
                .kind,
            Kind::Settings,
            "{repository} {prefix}"
        );
    }
}
