use super::*;
use crate::fixture::Fixture;
use crate::layout::{ACTIVE, FOCUS, HISTORY, ISSUES};

fn add(fixture: &Fixture, title: &str) -> Issue {
    fixture
        .project
        .issues()
        .add(&AddIssue {
            title: title.to_owned(),
            ..AddIssue::default()
        })
        .unwrap()
        .issue
}

#[test]
fn each_issue_has_a_file_of_its_own() {
    let fixture = Fixture::new();
    let issues = fixture.project.issues();
    let first = issues
        .add(&AddIssue {
            title: "  Fix   the login ".to_owned(),
            fields: IssueFields {
                kind: Some("bug".to_owned()),
                priority: Some(1),
                labels: Some(vec!["web".to_owned(), "auth".to_owned(), "web".to_owned()]),
                criteria: Some(vec!["It logs in".to_owned()]),
                ..IssueFields::default()
            },
            ..AddIssue::default()
        })
        .unwrap()
        .issue;
    assert_eq!(
        (first.linear_id.as_str(), first.title.as_str()),
        ("LOCAL-1", "Fix the login")
    );
    assert_eq!(add(&fixture, "Second").linear_id, "LOCAL-2");
    let text = fixture.text(&fixture.file_of(ISSUES, "LOCAL-1"));
    assert!(
        text.starts_with("{\n  \"linear_id\": \"LOCAL-1\",\n\n  \"title\": \"Fix the login\",\n\n"),
        "{text}"
    );
    assert!(
        text.contains("\n\n  \"labels\": [\n    \"auth\",\n\n    \"web\"\n  ],\n\n"),
        "{text}"
    );
    assert_eq!(
        fixture.project.issues().show("LOCAL-1").unwrap().item.issue,
        first
    );
    assert!(!fixture.has(ACTIVE), "nothing else is written");
    let listed = issues.list(Scope::Open).unwrap();
    let keys: Vec<_> = listed
        .issues
        .iter()
        .map(|item| item.issue.linear_id.as_str())
        .collect();
    assert_eq!(keys, ["LOCAL-1", "LOCAL-2"]);
    assert_eq!(
        listed.counts,
        IssueCounts {
            open: 2,
            ready: 2,
            blocked: 0,
            done: 0
        }
    );
}

const WORKER: &str = "issues::tests::a_worker_adds_issues";

#[test]
#[ignore = "a worker of another test"]
fn a_worker_adds_issues() {
    let Some((project, number)) = crate::fixture::given() else {
        return;
    };
    for n in 0..5 {
        let add = AddIssue {
            title: format!("{number} {n}"),
            ..AddIssue::default()
        };
        crate::fixture::in_turn(|| project.issues().add(&add));
    }
}

#[test]
fn eight_processes_give_no_key_twice() {
    let fixture = Fixture::new();
    fixture.eight(WORKER);
    let listed = fixture.project.issues().list(Scope::Open).unwrap();
    let keys: std::collections::BTreeSet<_> = listed
        .issues
        .iter()
        .map(|item| &item.issue.linear_id)
        .collect();
    let titles: std::collections::BTreeSet<_> =
        listed.issues.iter().map(|item| &item.issue.title).collect();
    assert_eq!((keys.len(), titles.len()), (40, 40));
    assert!(keys.contains(&"LOCAL-40".to_owned()));
}

#[test]
fn an_issue_of_the_list_is_changed_there() {
    let fixture = Fixture::new();
    let text =
        r#"{"issues": [{"linear_id": "SX9-7", "title": "t", "mine": [1.50]}], "theirs": true}"#;
    fixture.repository.write(ACTIVE, text);
    let issues = fixture.project.issues();
    let edit = IssueEdit {
        state: Some("In Progress".to_owned()),
        ..IssueEdit::default()
    };
    issues.set("SX9-7", &edit, None).unwrap();
    issues.comment("SX9-7", "Hm.").unwrap();
    let now = fixture.text(ACTIVE);
    assert!(
        now.contains("In Progress") && now.contains("1.50") && now.contains("theirs"),
        "{now}"
    );
    assert!(!fixture.has(".forge/linear/issues/SX9-7.json"));
    let shown = issues.show("SX9-7").unwrap().item.issue;
    assert_eq!(shown.comments.len(), 1);
    let path = format!(".forge/linear/comments/SX9-7/{}.json", shown.comments[0].id);
    assert!(fixture.text(&path).contains("\"text\": \"Hm.\""));
}

#[test]
fn a_stale_copy_changes_nothing() {
    let fixture = Fixture::new();
    let issues = fixture.project.issues();
    add(&fixture, "One");
    let etag = issues.show("LOCAL-1").unwrap().etag;
    let edit = |title: &str| IssueEdit {
        title: Some(title.to_owned()),
        ..IssueEdit::default()
    };
    let changed = issues.set("LOCAL-1", &edit("Two"), Some(&etag)).unwrap();
    let error = issues
        .set("LOCAL-1", &edit("Three"), Some(&etag))
        .unwrap_err();
    assert_eq!(
        (error.code, error.current.map(|current| current.etag)),
        ("E_STALE", Some(changed.etag))
    );
    assert_eq!(issues.show("LOCAL-1").unwrap().item.issue.title, "Two");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let fixture = Fixture::new();
    let issues = fixture.project.issues();
    add(&fixture, "One");
    add(&fixture, "Two");
    let blocked = |keys: &[&str]| IssueEdit {
        fields: IssueFields {
            blocked_by: Some(keys.iter().map(|key| (*key).to_owned()).collect()),
            ..IssueFields::default()
        },
        ..IssueEdit::default()
    };
    issues.set("LOCAL-1", &blocked(&["LOCAL-2"]), None).unwrap();
    let refused = |key: &str, edit: &IssueEdit| issues.set(key, edit, None).unwrap_err();
    assert_eq!(refused("LOCAL-2", &blocked(&["LOCAL-1"])).code, "E_CYCLE");
    assert!(
        refused("LOCAL-2", &blocked(&["SX9-xxx"]))
            .message
            .contains("placeholder")
    );
    assert_eq!(
        refused("LOCAL-2", &blocked(&["LOCAL-9"])).code,
        "E_NOT_FOUND"
    );
    assert_eq!(
        refused("LOCAL-9", &IssueEdit::default()).code,
        "E_NOT_FOUND"
    );
    assert_eq!(
        refused(
            "LOCAL-1",
            &IssueEdit {
                state: Some("done".to_owned()),
                ..IssueEdit::default()
            }
        )
        .code,
        "E_REFUSED"
    );
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    assert_eq!(
        refused(
            "LOCAL-1",
            &IssueEdit {
                fields: IssueFields {
                    description: Some(token),
                    ..IssueFields::default()
                },
                ..IssueEdit::default()
            }
        )
        .code,
        "E_SECRET"
    );
    assert_eq!(
        issues
            .set("LOCAL-2", &blocked(&["SX9-4"]), None)
            .unwrap()
            .warnings
            .len(),
        1
    );
    let ready = issues.list(Scope::Ready).unwrap();
    assert!(
        ready.issues.is_empty() && ready.counts.blocked == 2,
        "{ready:?}"
    );
}

#[test]
fn a_closed_issue_is_in_the_history() {
    let fixture = Fixture::new();
    let issues = fixture.project.issues();
    issues
        .add(&AddIssue {
            title: "One".to_owned(),
            fields: IssueFields {
                criteria: Some(vec!["It works".to_owned()]),
                ..IssueFields::default()
            },
            ..AddIssue::default()
        })
        .unwrap();
    add(&fixture, "Two");
    let refused = issues
        .done("LOCAL-1", &CloseIssue::default(), None)
        .unwrap_err();
    assert!(
        refused.code == "E_CRITERIA" && refused.message.contains("1. It works"),
        "{refused}"
    );
    issues
        .set(
            "LOCAL-1",
            &IssueEdit {
                checked: vec!["1".to_owned()],
                evidence: Some("seen".to_owned()),
                ..IssueEdit::default()
            },
            None,
        )
        .unwrap();
    issues.comment("LOCAL-1", "Hm.").unwrap();
    let own = fixture.file_of(ISSUES, "LOCAL-1");
    let closed = issues
        .done(
            "LOCAL-1",
            &CloseIssue {
                why: Some("It was asked".to_owned()),
                ..CloseIssue::default()
            },
            None,
        )
        .unwrap();
    assert!(!closed.again);
    let summary = fixture.file_of(HISTORY, "LOCAL-1");
    let text = fixture.text(&summary);
    assert!(
        text.contains("- [x] It works (seen)") && text.contains("It was asked"),
        "{text}"
    );
    assert!(!fixture.has(&own), "no other branch has it");
    assert!(!fixture.has(FOCUS));
    assert!(
        issues
            .done("LOCAL-1", &CloseIssue::default(), None)
            .unwrap()
            .again
    );
    let listed = issues.list(Scope::All).unwrap();
    assert_eq!(
        listed.counts,
        IssueCounts {
            open: 1,
            ready: 1,
            blocked: 0,
            done: 1
        }
    );
    assert_eq!(listed.issues.len(), 2);
    // Its number is not given again.
    assert_eq!(add(&fixture, "Three").linear_id, "LOCAL-3");
    let open = issues.reopen("LOCAL-1", None).unwrap().issue;
    assert_eq!(
        (open.state.as_deref(), open.comments.len()),
        (Some("Open"), 2)
    );
    assert!(!fixture.has(&summary));
    let again = issues
        .done(
            "LOCAL-1",
            &CloseIssue {
                cancelled: true,
                ..CloseIssue::default()
            },
            None,
        )
        .unwrap();
    assert_eq!(again.record.issue.state.as_deref(), Some("Cancelled"));
}

#[test]
fn a_new_key_reaches_every_reference() {
    let fixture = Fixture::new();
    let issues = fixture.project.issues();
    add(&fixture, "One");
    issues
        .add(&AddIssue {
            title: "Two".to_owned(),
            fields: IssueFields {
                blocked_by: Some(vec!["LOCAL-1".to_owned()]),
                parent: Some("LOCAL-1".to_owned()),
                ..IssueFields::default()
            },
            ..AddIssue::default()
        })
        .unwrap();
    issues
        .start(
            "LOCAL-1",
            &Start {
                no_branch: true,
                ..Start::default()
            },
        )
        .unwrap();
    issues.comment("LOCAL-1", "Hm.").unwrap();
    let file = fixture.file_of(ISSUES, "LOCAL-1");
    for _ in 0..2 {
        let renamed = issues.rename("LOCAL-1", "SX9-4").unwrap().issue;
        let earlier: Vec<&str> = renamed.earlier_keys().collect();
        assert_eq!(
            (renamed.linear_id.as_str(), earlier),
            ("SX9-4", vec!["LOCAL-1"])
        );
        assert_eq!(renamed.comments.len(), 1);
    }
    let two = issues.show("LOCAL-2").unwrap().item;
    assert_eq!(
        (two.issue.parent(), two.waits_for.as_slice()),
        (Some("SX9-4"), &["SX9-4".to_owned()][..])
    );
    assert_eq!(
        issues.show("LOCAL-1").unwrap().item.issue.linear_id,
        "SX9-4"
    );
    assert!(fixture.text(FOCUS).contains("SX9-4"));
    let old = fixture.text(&file);
    assert!(old.contains("\"moved_to\": \"SX9-4\""), "{old}");
    issues
        .set(
            "LOCAL-1",
            &IssueEdit {
                fields: IssueFields {
                    labels: Some(vec!["web".to_owned()]),
                    ..IssueFields::default()
                },
                ..IssueEdit::default()
            },
            None,
        )
        .unwrap();
    // As a merge with another branch leaves it, which gave it a priority and a label meanwhile.
    let late = old
        .replace("\"priority\": null", "\"priority\": 2")
        .replace("\"labels\": []", "\"labels\": [\"db\"]");
    fixture.repository.write(&file, late);
    let moved = issues.show("LOCAL-1").unwrap().item.issue;
    assert_eq!((moved.title.as_str(), moved.priority), ("One", Some(2)));
    assert_eq!(moved.labels, ["web", "db"]);
    assert_eq!(
        add(&fixture, "Three").linear_id,
        "LOCAL-3",
        "an alias is not given again"
    );
    assert_eq!(
        issues.rename("LOCAL-3", "SX9-4").unwrap_err().code,
        "E_REFUSED"
    );
}

#[test]
fn a_start_switches_the_branch_if_the_tree_allows_it() {
    let fixture = Fixture::new();
    let issues = fixture.project.issues();
    add(&fixture, "Wire it");
    let start = |key: &str| issues.start(key, &Start::default()).unwrap();
    let outcome = |started: &Started| started.branch.as_ref().map(|branch| branch.outcome);
    assert_eq!(
        outcome(&start("LOCAL-1")),
        Some(BranchOutcome::NotSwitched),
        "there is no commit"
    );
    fixture.repository.write("a", "1");
    fixture.repository.commit("first");
    fixture.repository.write("a", "2");
    let dirty = start("LOCAL-1");
    assert_eq!(outcome(&dirty), Some(BranchOutcome::NotSwitched));
    assert!(
        dirty
            .branch
            .unwrap()
            .why
            .unwrap()
            .contains("1 file not committed (a)")
    );
    fixture.repository.run(&["checkout", "--quiet", "a"]);
    let created = start("LOCAL-1");
    assert_eq!(outcome(&created), Some(BranchOutcome::Created));
    assert_eq!(created.issue.state.as_deref(), Some("In Progress"));
    assert_eq!(
        created.issue.git_refs.unwrap().branch.as_deref(),
        Some("feature/LOCAL-1-wire-it")
    );
    assert_eq!(
        created.focus.now.focus.linear_issue.as_deref(),
        Some("LOCAL-1")
    );
    assert_eq!(
        outcome(&start("LOCAL-1")),
        Some(BranchOutcome::AlreadyThere)
    );
    assert_eq!(
        fixture.repository.run(&["branch", "--show-current"]).trim(),
        "feature/LOCAL-1-wire-it"
    );
    fixture.repository.run(&["switch", "--quiet", "main"]);
    assert_eq!(outcome(&start("LOCAL-1")), Some(BranchOutcome::Switched));
    issues
        .done("LOCAL-1", &CloseIssue::default(), None)
        .unwrap();
    assert_eq!(
        issues.start("LOCAL-1", &Start::default()).unwrap_err().code,
        "E_REFUSED"
    );
}

#[test]
fn edits_of_different_members_merge() {
    let path = ".forge/linear/issues/LOCAL-1.json";
    let text = |title: &str, priority: u8, labels: &str, at: &str| {
        format!(
            r#"{{"linear_id":"LOCAL-1","title":"{title}","priority":{priority},"labels":[{labels}],"acceptance_criteria":["a"],"updated_at":"2025-12-24T{at}:00:00Z"}}"#
        )
    };
    let (base, theirs) = (text("One", 1, "", "08"), text("One", 2, r#""web""#, "10"));
    let ours = text("Two", 1, r#""db""#, "09").replace(r#"["a"]"#, r#"[{"text":"a","done":true}]"#);
    let merged = crate::merge::merge(path, base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
    assert_eq!(merged.conflicts, [""; 0]);
    let issue: Issue = serde_json::from_slice(&merged.bytes).unwrap();
    assert_eq!(
        (issue.title.as_str(), issue.priority, issue.labels.len()),
        ("Two", Some(2), 2)
    );
    assert!(issue.acceptance_criteria[0].is_done());
    assert_eq!(
        issue.updated_at.unwrap().to_string(),
        "2025-12-24T10:00:00Z"
    );
}

#[test]
fn a_damaged_issue_is_named_and_never_overwritten() {
    let fixture = Fixture::new();
    add(&fixture, "One");
    let file = fixture.file_of(ISSUES, "LOCAL-1");
    fixture.repository.write(&file, "{");
    let issues = fixture.project.issues();
    let error = issues
        .set(
            "LOCAL-1",
            &IssueEdit {
                fields: IssueFields {
                    priority: Some(1),
                    ..IssueFields::default()
                },
                ..IssueEdit::default()
            },
            None,
        )
        .unwrap_err();
    assert!(
        error.code == "E_CORRUPT" && error.message.contains(&format!("{file}:1:")),
        "{error}"
    );
    assert_eq!(fixture.text(&file), "{");
    let damaged = crate::repair::damaged_files(&fixture.project).unwrap();
    assert!(
        damaged.iter().any(|damaged| damaged.path == file),
        "{damaged:?}"
    );
    // The last good copy comes first; without one, an issue with that key and nothing else.
    let skeleton = crate::repair::RepairRequest {
        yes: true,
        from: Some(crate::repair::Source::Skeleton),
    };
    crate::repair::repair(&fixture.project, &file, skeleton).unwrap();
    assert_eq!(issues.show("LOCAL-1").unwrap().item.issue.title, "LOCAL-1");
}

/// Fixture: two clones that give numbers to issues and features of their own, and meet.
struct Clones {
    ours: Fixture,
    theirs: crate::Project,
    _folder: tempfile::TempDir,
}

impl Clones {
    fn new() -> Self {
        let ours = Fixture::new();
        for (name, value) in [("user.name", "Ann"), ("user.email", "ann@example.com")] {
            ours.repository.run(&["config", name, value]);
        }
        ours.repository
            .write(".forge/.gitignore", include_str!("../init/gitignore"));
        add(&ours, "Shared");
        ours.repository.commit("Begin");
        let folder = tempfile::tempdir().unwrap();
        let clone = folder.path().join("clone");
        ours.repository
            .run(&["clone", "-q", ".", clone.to_str().unwrap()]);
        let theirs = crate::Project::open(&clone, crate::ProjectEnvironment::default())
            .unwrap()
            .unwrap();
        let clones = Self {
            ours,
            theirs,
            _folder: folder,
        };
        clones.there(&["config", "user.name", "Bob"]);
        clones.there(&["config", "user.email", "bob@example.com"]);
        clones
    }

    fn there(&self, args: &[&str]) -> String {
        self.theirs.git().unwrap().read(args).unwrap().text()
    }

    fn commit_theirs(&self, message: &str) {
        self.there(&["add", "-A"]);
        self.there(&["commit", "-qm", message]);
    }

    /// Takes what the other side has, on both sides.
    fn meet(&self) {
        self.ours
            .repository
            .run(&["fetch", "-q", self.theirs.root().to_str().unwrap(), "HEAD"]);
        self.ours
            .repository
            .run(&["merge", "-q", "--no-edit", "FETCH_HEAD"]);
        self.there(&["pull", "-q", "--no-rebase", "--no-edit", "origin", "main"]);
    }

    fn all(project: &crate::Project) -> Vec<(String, String)> {
        let listed = project.issues().list(Scope::All).unwrap().issues;
        let mut all: Vec<_> = listed
            .into_iter()
            .map(|item| (item.issue.linear_id, item.issue.title))
            .collect();
        all.sort();
        all
    }
}

#[test]
fn of_two_issues_with_one_number_the_later_gets_the_next_everywhere() {
    let clones = Clones::new();
    let (ours, theirs) = (clones.ours.project.issues(), clones.theirs.issues());
    let new = |title: &str, blocked_by: &[&str]| AddIssue {
        title: title.to_owned(),
        fields: IssueFields {
            blocked_by: Some(blocked_by.iter().map(|key| (*key).to_owned()).collect()),
            ..IssueFields::default()
        },
        ..AddIssue::default()
    };
    // The clock of the fixture stands still, before that of the machine.
    assert_eq!(
        ours.add(&new("Ours", &["LOCAL-1"]))
            .unwrap()
            .issue
            .linear_id,
        "LOCAL-2"
    );
    clones.ours.repository.write("ours", "1");
    clones
        .ours
        .repository
        .commit("[LOCAL-2] Do ours\n\nWHY: so\n");
    assert_eq!(
        theirs
            .add(&new("Theirs", &["LOCAL-1"]))
            .unwrap()
            .issue
            .linear_id,
        "LOCAL-2"
    );
    theirs.add(&new("Waits", &["LOCAL-2"])).unwrap();
    theirs.comment("LOCAL-2", "Hm.").unwrap();
    theirs.add(&new("Closed", &[])).unwrap();
    theirs
        .done("LOCAL-4", &CloseIssue::default(), None)
        .unwrap();
    ours.add(&new("Other", &[])).unwrap();
    ours.add(&new("Last", &["LOCAL-2"])).unwrap();
    clones.ours.repository.commit("More");
    std::fs::write(clones.theirs.root().join("theirs"), "1").unwrap();
    clones.commit_theirs("[LOCAL-2] Do theirs\n\nWHY: so\n");
    clones.meet();

    let expected = [
        ("LOCAL-1", "Shared"),
        ("LOCAL-2", "Ours"),
        ("LOCAL-3", "Other"),
        ("LOCAL-4", "Last"),
        ("LOCAL-5", "Theirs"),
        ("LOCAL-6", "Waits"),
        ("LOCAL-7", "Closed"),
    ];
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(key, title)| (key.to_owned(), title.to_owned()))
        .collect();
    assert_eq!(Clones::all(&clones.theirs), expected);
    assert_eq!(Clones::all(&clones.ours.project), expected);
    for (issues, project) in [(ours, &clones.ours.project), (theirs, &clones.theirs)] {
        let shown = issues.show("LOCAL-5").unwrap();
        assert_eq!(shown.item.issue.comments.len(), 1);
        assert_eq!(
            issues.show("LOCAL-2").unwrap().also,
            ["LOCAL-5"],
            "its old number is found"
        );
        assert_eq!(
            issues.show("LOCAL-6").unwrap().item.issue.blocked_by,
            ["LOCAL-5"]
        );
        assert_eq!(
            issues.show("LOCAL-4").unwrap().item.issue.blocked_by,
            ["LOCAL-2"]
        );
        assert!(issues.show("LOCAL-7").unwrap().item.over);
        let of = |key: &str| {
            let refs = issues
                .show(key)
                .unwrap()
                .item
                .issue
                .git_refs
                .map(|refs| refs.commits)
                .unwrap_or_default();
            let git = project.git().unwrap();
            refs.iter()
                .map(|oid| git.read(&["log", "-1", "--format=%s", oid]).unwrap().text())
                .collect::<String>()
        };
        assert_eq!(
            (of("LOCAL-2").trim(), of("LOCAL-5").trim()),
            ("[LOCAL-2] Do ours", "[LOCAL-2] Do theirs")
        );
    }
    // The next change writes the numbers down, on both sides alike.
    add(&clones.ours, "Newest");
    for number in ["LOCAL-5", "LOCAL-6", "LOCAL-7"] {
        let file = clones.ours.file_of(ISSUES, number);
        assert!(
            clones.ours.text(&file).contains("\"moved_to\": \"LOCAL-"),
            "{number}"
        );
    }
    theirs
        .set(
            "LOCAL-5",
            &IssueEdit {
                fields: IssueFields {
                    priority: Some(1),
                    ..IssueFields::default()
                },
                ..IssueEdit::default()
            },
            None,
        )
        .unwrap();
    clones.ours.repository.commit("Numbers");
    clones.commit_theirs("Numbers too");
    clones.meet();
    let all = Clones::all(&clones.ours.project);
    assert_eq!((all.len(), Clones::all(&clones.theirs)), (8, all.clone()));
    assert_eq!(all[7], ("LOCAL-8".to_owned(), "Newest".to_owned()));
    assert_eq!(ours.show("LOCAL-5").unwrap().item.issue.priority, Some(1));
    assert_eq!(
        ours.show("LOCAL-6").unwrap().item.issue.blocked_by,
        ["LOCAL-5"]
    );
}

#[test]
fn numbers_that_two_clones_give_anew_become_one() {
    let clones = Clones::new();
    let (ours, theirs) = (clones.ours.project.issues(), clones.theirs.issues());
    add(&clones.ours, "Ours");
    clones.ours.repository.commit("Ours");
    theirs
        .add(&AddIssue {
            title: "Theirs".to_owned(),
            ..AddIssue::default()
        })
        .unwrap();
    clones.commit_theirs("Theirs");
    clones.meet();
    // Each writes another number down, before it knows of the other.
    let before = clones.there(&["rev-parse", "HEAD"]);
    add(&clones.ours, "Next");
    clones.ours.repository.commit("Settled here");
    theirs
        .add(&AddIssue {
            title: "One".to_owned(),
            ..AddIssue::default()
        })
        .unwrap();
    clones.commit_theirs("Settled there");
    assert_ne!(clones.there(&["rev-parse", "HEAD"]), before);
    clones.meet();
    let all = Clones::all(&clones.ours.project);
    assert_eq!(all, Clones::all(&clones.theirs));
    let titles: std::collections::BTreeSet<&str> =
        all.iter().map(|(_, title)| title.as_str()).collect();
    assert_eq!(titles, ["Next", "One", "Ours", "Shared", "Theirs"].into());
    assert_eq!(ours.show("LOCAL-2").unwrap().item.issue.title, "Ours");
}

#[test]
fn of_two_features_with_one_id_each_issue_keeps_its_own() {
    use crate::features::{Add as AddFeature, Features};
    let clones = Clones::new();
    let feature = |project: &crate::Project, name: &str| {
        let add = AddFeature {
            name: name.to_owned(),
            tests: vec!["t".to_owned()],
            ..AddFeature::default()
        };
        Features::new(project).add(&add, None).unwrap().feature.id
    };
    for (project, name) in [(&clones.ours.project, "Zeta"), (&clones.theirs, "Alpha")] {
        assert_eq!(feature(project, name), "FORGE-001");
        let about = AddIssue {
            title: name.to_owned(),
            fields: IssueFields {
                features: Some(vec!["FORGE-001".to_owned()]),
                ..IssueFields::default()
            },
            ..AddIssue::default()
        };
        project.issues().add(&about).unwrap();
    }
    clones.ours.repository.commit("Ours");
    clones.commit_theirs("Theirs");
    clones.meet();
    for project in [&clones.ours.project, &clones.theirs] {
        let features = Features::new(project).read().unwrap();
        let named: Vec<_> = features
            .features
            .iter()
            .map(|one| (one.id.as_str(), one.name.as_str()))
            .collect();
        assert_eq!(
            named,
            [("FORGE-001", "Zeta"), ("FORGE-002", "Alpha")],
            "the older one keeps it"
        );
        assert_eq!(features.features[1].aliases, ["FORGE-001"]);
        assert_eq!(
            project
                .issues()
                .show("LOCAL-2")
                .unwrap()
                .item
                .issue
                .features,
            ["FORGE-001"]
        );
        assert_eq!(
            project
                .issues()
                .show("LOCAL-3")
                .unwrap()
                .item
                .issue
                .features,
            ["FORGE-002"]
        );
    }
}
