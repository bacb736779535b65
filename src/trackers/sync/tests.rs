//! The sync of projects with a stand-in that executes Linear's own schema.

mod clones;
mod closed;
mod comments;
mod faults;
mod killed;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{Clock, ManualClock, Secret, Timestamp};
use helmdeck_egress::Egress;
use helmdeck_forge::issues::{AddIssue, Issue, IssueEdit, IssueFields};
use helmdeck_forge::{Project, ProjectEnvironment, Time};
use helmdeck_testkit::linear::Linear as Mock;

use super::*;
use crate::http::Connection;
use crate::linear::Linear;

const CONFIG: &str = "[git]\nenabled = false\n[linear]\nmode = \"live\"\nteam = \"SX9\"\n[linear.states]\n\
                      \"Open\" = \"Todo\"\n\"In Progress\" = \"In Progress\"\n";

/// A project and its way to the stand-in.
pub(super) struct Clone {
    _folder: Option<tempfile::TempDir>,
    pub(super) project: Project,
    pub(super) linear: Linear,
    pub(super) clock: Arc<ManualClock>,
}

impl Clone {
    pub(super) fn new(mock: &Mock) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clone = Self::at(folder.path(), &mock.url(), mock.key());
        Self {
            _folder: Some(folder),
            ..clone
        }
    }

    pub(super) fn at(root: &Path, url: &str, key: &str) -> Self {
        std::fs::create_dir_all(root.join(".forge")).unwrap();
        std::fs::write(root.join(".forge/config.toml"), CONFIG).unwrap();
        let clock = Arc::new(ManualClock::default());
        clock.set(Timestamp(
            Time::parse("2026-06-01T12:00:00Z")
                .unwrap()
                .0
                .as_microsecond(),
        ));
        let environment = ProjectEnvironment {
            clock: clock.clone(),
            ..ProjectEnvironment::default()
        };
        let project = Project::open(root, environment).unwrap().unwrap();
        let egress = Egress::new(helmdeck_egress::Config::default());
        let time: Arc<dyn Clock> = clock.clone();
        let mut connection = Connection::new(
            egress,
            url.parse().unwrap(),
            Secret::new(key.to_owned()),
            time,
        );
        connection.retry_wait = Duration::from_millis(1);
        connection.patience = Duration::from_millis(200);
        let linear = Linear::new(connection, "SX9", false).unwrap();
        Self {
            _folder: None,
            project,
            linear,
            clock,
        }
    }

    pub(super) fn sync(&self) -> Sync<'_> {
        Sync::new(&self.project, &self.linear)
    }

    pub(super) fn add(&self, title: &str) -> String {
        self.clock.advance(Duration::from_secs(1));
        let add = AddIssue {
            title: title.to_owned(),
            ..AddIssue::default()
        };
        self.project.issues().add(&add).unwrap().issue.linear_id
    }

    pub(super) fn set(&self, key: &str, edit: &IssueEdit) {
        self.project.issues().set(key, edit, None).unwrap();
    }

    pub(super) fn issue(&self, key: &str) -> Issue {
        self.project.issues().show(key).unwrap().item.issue
    }

    pub(super) async fn pull(&self) -> Pulled {
        self.sync().pull(&Pull::default()).await.unwrap()
    }

    pub(super) async fn push(&self) -> Pushed {
        self.sync().push(&Push::default()).await.unwrap()
    }

    pub(super) fn status(&self) -> Status {
        status(&self.project).unwrap()
    }

    /// Every file of the memory as one text.
    pub(super) fn texts(&self) -> String {
        let mut all = String::new();
        let mut folders = vec![self.project.root().join(".forge")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                } else {
                    all.push_str(&String::from_utf8_lossy(
                        &std::fs::read(entry.path()).unwrap(),
                    ));
                }
            }
        }
        all
    }
}

pub(super) fn titled(title: &str) -> IssueEdit {
    IssueEdit {
        title: Some(title.to_owned()),
        ..IssueEdit::default()
    }
}

#[track_caller]
pub(super) fn conforms(mock: &Mock) {
    assert_eq!(mock.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn open_issues_are_pulled_with_their_fields() {
    let mock = Mock::start();
    mock.with(|store| {
        let (first, done) = (store.add("First"), store.add("Done already"));
        store.edit(&done, |issue| issue.state = "Done".into());
        store.edit(&first, |issue| {
            issue.description = "Text.\n\n## Acceptance criteria\n\n- [ ] one\n- [x] two\n".into();
            issue.state = "In Review".into();
            issue.priority = 2;
            issue.labels = ["Bug", "ui"].map(str::to_owned).into();
            issue.assignee = Some("Grace".into());
        });
    });
    let clone = Clone::new(&mock);
    let pulled = clone.pull().await;
    assert_eq!(
        (pulled.added, pulled.read, pulled.conflicts),
        (vec!["SX9-1".to_owned()], 1, 0)
    );
    let issue = clone.issue("SX9-1");
    assert_eq!(
        (
            issue.title.as_str(),
            issue.kind.as_deref(),
            issue.state.as_deref()
        ),
        ("First", Some("bug"), Some("In Progress"))
    );
    assert_eq!(
        (
            issue.priority,
            issue.assignee.as_deref(),
            issue.labels.as_slice()
        ),
        (Some(2), Some("Grace"), ["ui".to_owned()].as_slice())
    );
    assert_eq!(
        issue
            .acceptance_criteria
            .iter()
            .map(|one| one.is_done())
            .collect::<Vec<_>>(),
        [false, true]
    );
    assert!(issue.url.is_some() && remote_id(&issue).is_some());
    let again = clone.pull().await;
    assert_eq!((again.added.len(), again.changed.len()), (0, 0));
    assert_eq!(
        clone.push().await,
        Pushed::default(),
        "nothing is to be pushed"
    );
    conforms(&mock);
}

#[tokio::test]
async fn local_issues_are_created_once_and_renamed() {
    let mock = Mock::start();
    let clone = Clone::new(&mock);
    let (one, two) = (clone.add("One"), clone.add("Two"));
    clone.set(
        &two,
        &IssueEdit {
            fields: IssueFields {
                blocked_by: Some(vec![one.clone()]),
                criteria: Some(vec!["works".into()]),
                ..IssueFields::default()
            },
            ..IssueEdit::default()
        },
    );
    let plan = clone.sync().push(&Push { dry_run: true }).await.unwrap();
    assert_eq!(
        (plan.delivered.len(), mock.with(|store| store.issues.len())),
        (2, 0)
    );
    let pushed = clone.push().await;
    assert_eq!(
        (pushed.failed.len(), pushed.waiting, pushed.delivered.len()),
        (0, 0, 3),
        "{pushed:?}"
    );
    assert_eq!(
        clone.issue(&one).linear_id,
        "SX9-1",
        "the old key is an alias"
    );
    assert_eq!(clone.issue("SX9-2").blocked_by, ["SX9-1"]);
    assert_eq!(mock.issue("SX9-2").state, "Todo");
    assert!(mock.issue("SX9-2").description.contains("- [ ] works"));
    assert_eq!(mock.with(|store| store.relations.len()), 1);
    assert_eq!(clone.push().await, Pushed::default());
    assert_eq!(clone.pull().await.changed, Vec::new());
    clone.set(
        "SX9-2",
        &IssueEdit {
            fields: IssueFields {
                blocked_by: Some(Vec::new()),
                ..IssueFields::default()
            },
            ..IssueEdit::default()
        },
    );
    clone.push().await;
    assert_eq!(mock.with(|store| store.relations.len()), 0);
    conforms(&mock);
}

#[tokio::test]
async fn each_side_keeps_its_own_changes() {
    let mock = Mock::start();
    mock.with(|store| store.add("First"));
    let clone = Clone::new(&mock);
    clone.pull().await;
    clone.set(
        "SX9-1",
        &IssueEdit {
            title: Some("Ours".into()),
            fields: IssueFields {
                labels: Some(vec!["ui".into(), "only here".into()]),
                ..IssueFields::default()
            },
            ..IssueEdit::default()
        },
    );
    mock.with(|store| {
        store.edit("SX9-1", |issue| {
            issue.priority = 1;
            issue.labels.insert("backend".into());
            issue.description = "words of people".into();
        })
    });
    let pushed = clone.push().await;
    assert_eq!(pushed.delivered[0].fields, [Field::Title, Field::Labels]);
    let (ours, theirs) = (clone.issue("SX9-1"), mock.issue("SX9-1"));
    assert_eq!(
        (ours.priority, ours.description.as_deref()),
        (Some(1), Some("words of people")),
        "taken while pushing"
    );
    assert_eq!(theirs.title, "Ours");
    assert_eq!(theirs.labels, ["backend", "ui"].map(str::to_owned).into());
    assert_eq!(
        ours.labels
            .iter()
            .map(String::as_str)
            .collect::<BTreeSet<_>>(),
        ["backend", "only here", "ui"].into()
    );
    assert_eq!(
        (clone.pull().await.changed, clone.push().await),
        (Vec::new(), Pushed::default())
    );
    conforms(&mock);
}

#[tokio::test]
async fn different_values_on_both_sides_wait_for_a_person() {
    let mock = Mock::start();
    mock.with(|store| store.add("First"));
    let clone = Clone::new(&mock);
    clone.pull().await;
    for (choice, ours, theirs) in [
        (Choice::Ours, "ours 0", "ours 0"),
        (Choice::Theirs, "theirs 1", "theirs 1"),
        (Choice::Value("third".into()), "third", "third"),
    ] {
        let round = mock.count("Update");
        let number = ["ours 0", "theirs 1", "third"]
            .iter()
            .position(|one| *one == ours)
            .unwrap();
        clone.set("SX9-1", &titled(&format!("ours {number}")));
        mock.with(|store| store.edit("SX9-1", |issue| issue.title = format!("theirs {number}")));
        let pushed = clone.push().await;
        assert_eq!(
            (pushed.conflicts, mock.count("Update")),
            (1, round),
            "nothing is pushed"
        );
        assert_eq!(
            (clone.pull().await.conflicts, clone.push().await.conflicts),
            (1, 1)
        );
        let conflict = clone.status().conflicts.remove(0);
        assert_eq!(
            (conflict.key.as_str(), conflict.field),
            ("SX9-1", Field::Title)
        );
        assert_eq!(
            conflict.theirs,
            Some(Value::Text(format!("theirs {number}")))
        );
        resolve(&clone.project, "SX9-1", Field::Title, &choice).unwrap();
        clone.push().await;
        assert_eq!(
            (
                clone.issue("SX9-1").title.as_str(),
                mock.issue("SX9-1").title.as_str()
            ),
            (ours, theirs)
        );
        assert_eq!(clone.status().conflicts, Vec::new());
    }
    assert_eq!(
        resolve(&clone.project, "SX9-1", Field::Title, &Choice::Ours)
            .unwrap_err()
            .code,
        "E_NOT_FOUND"
    );
    conforms(&mock);
}

#[tokio::test]
async fn completed_issues_go_to_the_history_on_both_sides() {
    let mock = Mock::start();
    mock.with(|store| (store.add("Theirs"), store.add("Ours"), store.add("Dropped")));
    let clone = Clone::new(&mock);
    clone.pull().await;
    clone
        .project
        .issues()
        .done(
            "SX9-2",
            &helmdeck_forge::issues::CloseIssue::default(),
            None,
        )
        .unwrap();
    clone.push().await;
    assert_eq!(mock.issue("SX9-2").state, "Done");
    mock.with(|store| {
        store.edit("SX9-1", |issue| issue.state = "Done".into());
        store.edit("SX9-3", |issue| issue.state = "Canceled".into());
    });
    let mut closed = clone.pull().await.closed;
    closed.sort();
    assert_eq!(closed, ["SX9-1", "SX9-3"]);
    assert_eq!(clone.project.issues().read().unwrap().issues.len(), 0);
    assert_eq!(clone.issue("SX9-3").state.as_deref(), Some("Cancelled"));
    assert_eq!(clone.push().await, Pushed::default());
    mock.with(|store| store.edit("SX9-1", |issue| issue.state = "In Progress".into()));
    assert_eq!(clone.pull().await.reopened, ["SX9-1"]);
    assert_eq!(
        clone.project.issues().read().unwrap().issues[0]
            .state
            .as_deref(),
        Some("In Progress")
    );
    assert_eq!(clone.push().await.delivered, Vec::new());
    assert_eq!(mock.issue("SX9-1").state, "In Progress");
    conforms(&mock);
}

#[tokio::test]
async fn moved_and_archived_issues_are_marked_and_kept() {
    let mock = Mock::start();
    mock.with(|store| {
        (
            store.add("Moves"),
            store.add("Archived"),
            store.add("Hidden"),
        )
    });
    let clone = Clone::new(&mock);
    clone.pull().await;
    mock.with(|store| {
        store.edit("SX9-1", |issue| {
            issue
                .earlier
                .push(std::mem::replace(&mut issue.key, "OPS-5".into()));
            issue.team = "OPS".into();
        });
        store.edit("SX9-2", |issue| issue.archived = true);
        store.issues.retain(|issue| issue.key != "SX9-3");
    });
    let pulled = clone
        .sync()
        .pull(&Pull {
            full: true,
            ..Pull::default()
        })
        .await
        .unwrap();
    assert_eq!(pulled.renamed, [("SX9-1".to_owned(), "OPS-5".to_owned())]);
    assert!(
        pulled.warnings[0].starts_with("SX9-3 is not visible"),
        "{:?}",
        pulled.warnings
    );
    let moved = clone.issue("SX9-1");
    assert_eq!(
        (moved.linear_id.as_str(), remote_text(&moved, "team")),
        ("OPS-5", Some("OPS"))
    );
    assert!(clone.texts().contains("\"archived\": true"));
    assert_eq!(clone.project.issues().read().unwrap().issues.len(), 3);
    conforms(&mock);
}
