use super::*;
use crate::checkpoints::Checkpoints;
use crate::features::{Add as AddFeature, Status as FeatureStatus};
use crate::fixture::Fixture;
use crate::issues::{AddIssue, BranchOutcome, IssueFields};
use crate::sessions::Start as StartSession;

/// Settings whose tests need no compiler.
const QUICK: &str = "[verify]\nrunner = 'sh: grep -q yes tested && echo ran {prefix}'\ncount_regex = '(?m)^ran '\n\
                     commands = ['true']\n[session]\nprobes = 0\n";

/// What belongs to one clone alone.
const IGNORED: &str = ".local/\nmemory/short-term/*\n!memory/short-term/sessions/\ngit/commits.log\ngit/branches.json\n";

fn fixture(config: &str) -> Fixture {
    let fixture = Fixture::with_config(&format!("{QUICK}{config}"));
    for (name, value) in [("user.name", "Ann"), ("user.email", "ann@example.com")] {
        fixture.repository.run(&["config", name, value]);
    }
    fixture.repository.write(".forge/.gitignore", IGNORED);
    fixture.repository.write("tested", "no\n");
    fixture.repository.commit("first");
    fixture
}

fn feature(fixture: &Fixture, name: &str) -> String {
    let add = AddFeature {
        name: name.to_owned(),
        tests: vec!["a::*".to_owned()],
        ..AddFeature::default()
    };
    Features::new(&fixture.project)
        .add(&add, None)
        .unwrap()
        .feature
        .id
}

fn start(what: &str) -> Start {
    Start {
        what: Some(what.to_owned()),
        ..Start::default()
    }
}

fn short(what: &str) -> Short {
    Short {
        what: what.to_owned(),
        ..Short::default()
    }
}

#[test]
fn a_feature_is_started_made_and_finished() {
    let fixture = fixture("");
    let work = Work::new(&fixture.project);
    let id = feature(&fixture, "Halve a number");
    fixture.repository.commit("plan");
    let started = work.start(&start(&id)).unwrap();
    assert!(started.new_issue && started.issue.as_ref().unwrap().linear_id == "LOCAL-1");
    assert_eq!(started.feature.unwrap().status, FeatureStatus::InProgress);
    let branch = started.branch.unwrap();
    assert_eq!(
        (branch.outcome, branch.name.as_str()),
        (BranchOutcome::Created, "feature/LOCAL-1-halve-a-number")
    );
    assert_eq!(work.features().unwrap(), std::slice::from_ref(&id));
    let early = work.done(&Done::default()).unwrap_err();
    assert!(
        early.code == "E_UNVERIFIED" && early.message.contains("FORGE-001 (in_progress)"),
        "{early}"
    );
    fixture.repository.write("tested", "yes\n");
    fixture.repository.write("new", "1\n");
    assert!(Features::new(&fixture.project).verify(&id).unwrap().passed);
    let made = work.commit(&short("Halve numbers.")).unwrap();
    assert_eq!(
        (made.key.as_deref(), made.paths.as_slice()),
        (
            Some("LOCAL-1"),
            &["new".to_owned(), "tested".to_owned()][..]
        )
    );
    assert!(
        made.commit.message.starts_with("[LOCAL-1] Halve numbers\n"),
        "{}",
        made.commit.message
    );
    assert!(
        made.commit.message.contains("LOCAL-1: Halve a number"),
        "{}",
        made.commit.message
    );
    assert!(
        made.commit.message.contains("FORGE-001"),
        "{}",
        made.commit.message
    );
    let done = work.done(&Done::default()).unwrap();
    assert_eq!(done.checkpoint.as_deref(), Some("checkpoint/LOCAL-1-v1"));
    let text = fixture.text(&fixture.file_of(crate::layout::HISTORY, "LOCAL-1"));
    assert!(
        text.contains("checkpoint/LOCAL-1-v1") && text.contains("Halve numbers"),
        "{text}"
    );
    assert_eq!(fixture.project.issues().read().unwrap().issues, []);
    assert!(Sessions::new(&fixture.project).current().unwrap().is_none());
    assert_eq!(
        fixture.repository.run(&["status", "--short"]),
        "",
        "everything is committed"
    );
}

#[test]
fn done_commits_what_is_not_committed() {
    let fixture = fixture("");
    let work = Work::new(&fixture.project);
    let id = feature(&fixture, "Halve a number");
    fixture.repository.commit("plan");
    let plan = fixture.repository.run(&["rev-parse", "HEAD"]);
    work.start(&start(&id)).unwrap();
    fixture.repository.write("tested", "yes\n");
    assert!(Features::new(&fixture.project).verify(&id).unwrap().passed);
    let done = Done {
        message: Some("Halve numbers".to_owned()),
        ..Done::default()
    };
    let failing = Done {
        verify: vec!["false".to_owned()],
        ..done.clone()
    };
    assert_eq!(work.done(&failing).unwrap_err().code, "E_CHECK");
    fixture.repository.run(&["add", "tested"]);
    fixture.repository.write("rest", "1\n");
    assert_eq!(
        work.done(&done).unwrap_err().code,
        "E_DIRTY",
        "only what is staged would be committed"
    );
    std::fs::remove_file(fixture.repository.path().join("rest")).unwrap();
    assert_eq!(
        fixture.repository.run(&["rev-parse", "HEAD"]),
        plan,
        "nothing was done"
    );

    let finished = work.done(&done).unwrap();
    assert_eq!(
        finished.committed.as_deref(),
        Some("[LOCAL-1] Halve numbers")
    );
    assert_eq!(
        finished.checkpoint.as_deref(),
        Some("checkpoint/LOCAL-1-v1")
    );
    let range = format!("{plan}..");
    assert_eq!(
        fixture.repository.run(&["log", "--format=%s", &range]),
        "[LOCAL-1] Halve numbers"
    );
    assert_eq!(fixture.repository.run(&["status", "--short"]), "");
    let files = fixture
        .repository
        .run(&["diff", "--name-only", &plan, "HEAD", "--", ".forge"]);
    assert_eq!(
        files.lines().count(),
        3,
        "the feature, the summary and the checkpoint: {files}"
    );
    let listed = Features::new(&fixture.project).list().unwrap();
    assert_eq!(
        listed.features[0].standing,
        crate::features::Standing::Passing
    );
    let newest = Checkpoints::new(&fixture.project)
        .newest_usable()
        .unwrap()
        .unwrap();
    assert_eq!(
        newest.commit,
        Some(fixture.repository.run(&["rev-parse", "HEAD"]))
    );
    let shown = fixture.project.issues().show("LOCAL-1").unwrap().item;
    assert_eq!(
        shown.issue.git_refs.unwrap().commits,
        [fixture.repository.run(&["rev-parse", "HEAD"])]
    );
}

#[test]
fn start_without_a_word_takes_the_first_issue() {
    let fixture = fixture("");
    for title in ["Second", "First"] {
        let priority = Some(if title == "First" { 1 } else { 3 });
        let add = AddIssue {
            title: title.to_owned(),
            fields: IssueFields {
                priority,
                ..IssueFields::default()
            },
            ..AddIssue::default()
        };
        fixture.project.issues().add(&add).unwrap();
    }
    let work = Work::new(&fixture.project);
    let started = work.start(&Start::default()).unwrap();
    assert_eq!(started.focus.linear_issue.as_deref(), Some("LOCAL-2"));
    assert_eq!(started.branch.unwrap().outcome, BranchOutcome::Created);
    let session = Sessions::new(&fixture.project).current().unwrap().unwrap();
    assert_eq!(
        session.branch.as_deref(),
        Some("feature/LOCAL-2-first"),
        "the session goes along"
    );
    // In the same session, the focus moves.
    let again = work.start(&start("LOCAL-1")).unwrap();
    assert!(again.again && again.session == session.id);
    assert_eq!(work.status().unwrap().issue.unwrap().linear_id, "LOCAL-1");
}

#[test]
fn a_wrong_name_starts_nothing() {
    let fixture = fixture("");
    let work = Work::new(&fixture.project);
    for wrong in ["FORGE-009", "LOCAL-9", "word"] {
        assert_eq!(
            work.start(&start(wrong)).unwrap_err().code,
            "E_NOT_FOUND",
            "{wrong}"
        );
    }
    assert!(Sessions::new(&fixture.project).current().unwrap().is_none());
    let new = work.start(&start("Fix the login")).unwrap();
    assert!(new.new_issue && new.issue.unwrap().title == "Fix the login");
}

#[test]
fn the_key_is_that_of_the_focus_or_of_the_branch() {
    let fixture = fixture("");
    let work = Work::new(&fixture.project);
    assert_eq!(work.key().unwrap(), None);
    fixture
        .repository
        .run(&["switch", "--quiet", "--create", "feature/SX9-7-a"]);
    assert_eq!(work.key().unwrap().as_deref(), Some("SX9-7"));
    Sessions::new(&fixture.project)
        .start(&crate::sessions::Start::default())
        .unwrap();
    fixture.repository.write("a", "1");
    let made = work
        .commit(&Short {
            why: Some("It was asked".to_owned()),
            ..short("Add a")
        })
        .unwrap();
    assert_eq!(
        (made.key.as_deref(), made.why.as_str()),
        (Some("SX9-7"), "It was asked")
    );
    fixture
        .repository
        .run(&["switch", "--quiet", "--create", "plain"]);
    fixture.repository.write("a", "2");
    assert_eq!(work.commit(&short("Change a")).unwrap_err().code, "E_USAGE");
}

#[test]
fn staged_files_are_committed_alone() {
    let fixture = fixture("");
    let work = Work::new(&fixture.project);
    work.start(&start("Do a thing")).unwrap();
    fixture.repository.write("a", "1");
    fixture.repository.write("b", "1");
    fixture.repository.run(&["add", "a"]);
    let made = work.commit(&short("Add a")).unwrap();
    assert_eq!(
        (made.paths.len(), made.left.as_slice()),
        (0, &["b".to_owned()][..])
    );
    let made = work
        .commit(&Short {
            paths: vec!["b".to_owned()],
            ..short("Add b")
        })
        .unwrap();
    assert_eq!(
        (made.paths.as_slice(), made.left.len()),
        (&["b".to_owned()][..], 0)
    );
}

#[test]
fn open_criteria_keep_an_issue_open() {
    let fixture = fixture("");
    let work = Work::new(&fixture.project);
    let add = AddIssue {
        title: "One".to_owned(),
        fields: IssueFields {
            criteria: Some(vec!["It works".to_owned()]),
            ..IssueFields::default()
        },
        ..AddIssue::default()
    };
    fixture.project.issues().add(&add).unwrap();
    work.start(&start("LOCAL-1")).unwrap();
    assert_eq!(work.done(&Done::default()).unwrap_err().code, "E_CRITERIA");
    assert_eq!(
        fixture.repository.run(&["tag"]),
        "",
        "no checkpoint is made"
    );
    let done = work
        .done(&Done {
            anyway: Some("No time".to_owned()),
            ..Done::default()
        })
        .unwrap();
    assert_eq!(
        done.issue.unwrap().record.anyway.as_deref(),
        Some("No time")
    );
}

#[test]
fn without_issues_a_feature_alone_is_enough() {
    let fixture = fixture("[linear]\nmode = 'off'\n");
    let work = Work::new(&fixture.project);
    let id = feature(&fixture, "Halve");
    let started = work.start(&start(&id)).unwrap();
    assert!(started.issue.is_none() && started.focus.feature_id == Some(id));
    fixture.repository.write("a", "1");
    assert_eq!(work.commit(&short("Add a")).unwrap().key, None);
}

#[test]
fn a_text_is_remembered_with_its_context() {
    let fixture = fixture("");
    let work = Work::new(&fixture.project);
    work.start(&start("Fix the login")).unwrap();
    work.remember("Rounding: write down which way").unwrap();
    work.remember("The cookie is set late").unwrap();
    let file = crate::knowledge::Knowledge::new(&fixture.project)
        .read()
        .unwrap();
    let mut texts: Vec<_> = file
        .patterns
        .successful
        .iter()
        .map(|entry| (entry.context.as_str(), entry.approach.as_str()))
        .collect();
    texts.sort_unstable();
    assert_eq!(
        texts,
        [
            ("Fix the login", "The cookie is set late"),
            ("Rounding", "write down which way")
        ]
    );
    assert!(
        file.patterns
            .successful
            .iter()
            .all(|entry| entry.trace.linear.as_deref() == Some("LOCAL-1"))
    );
}

#[test]
fn the_briefing_names_an_issue_that_can_be_started_since() {
    let fixture = fixture("");
    Sessions::new(&fixture.project)
        .start(&crate::sessions::Start::default())
        .unwrap();
    let briefing = || crate::prime::prime(&fixture.project, None).unwrap().text;
    assert!(
        briefing().contains("focus: none, \"no issue is open"),
        "{}",
        briefing()
    );
    fixture
        .project
        .issues()
        .add(&AddIssue {
            title: "One".to_owned(),
            ..AddIssue::default()
        })
        .unwrap();
    assert!(
        briefing().contains("focus: none, \"LOCAL-1 can be started: helmdeck forge start\""),
        "{}",
        briefing()
    );
}

#[test]
fn start_beside_another_session_moves_no_branch() {
    let fixture = fixture("");
    let first = Work::new(&fixture.project);
    for title in ["One thing", "Another thing"] {
        fixture
            .project
            .issues()
            .add(&AddIssue {
                title: title.to_owned(),
                ..AddIssue::default()
            })
            .unwrap();
    }
    fixture.repository.commit("plan");
    let started = first.start(&start("LOCAL-1")).unwrap();
    let branch = started.branch.unwrap().name;
    let environment = fixture.project.environment().clone();
    let environment = crate::ProjectEnvironment {
        agent: "Axiom".to_owned(),
        ..environment
    };
    let other = crate::Project::open(fixture.project.root(), environment)
        .unwrap()
        .unwrap();
    let beside = Start {
        session: StartSession {
            join: true,
            ..StartSession::default()
        },
        ..start("LOCAL-2")
    };
    let joined = Work::new(&other).start(&beside).unwrap();
    let stayed = joined.branch.unwrap();
    assert_eq!(stayed.outcome, BranchOutcome::NotSwitched);
    assert!(stayed.why.unwrap().contains("works in this work tree"));
    assert_eq!(
        joined.issue.unwrap().git_refs.and_then(|refs| refs.branch),
        None,
        "that branch does not exist"
    );
    assert_eq!(
        fixture.repository.run(&["branch", "--show-current"]),
        branch
    );
    fixture.repository.write("new", "1\n");
    first.commit(&short("Did it")).unwrap();
    assert_eq!(
        fixture.repository.run(&["log", "-1", "--format=%D"]),
        format!("HEAD -> {branch}")
    );
}

#[test]
fn a_work_tree_of_its_own_takes_an_issue() {
    let fixture = fixture("");
    let (work, git) = (Work::new(&fixture.project), fixture.repository.git());
    let issues = fixture.project.issues();
    issues
        .add(&AddIssue {
            title: "Sum numbers".to_owned(),
            ..AddIssue::default()
        })
        .unwrap();
    issues.comment("LOCAL-1", "Hm.").unwrap();
    let file = fixture.file_of(crate::layout::ISSUES, "LOCAL-1");
    let there = work.worktree("LOCAL-1", None).unwrap();
    assert!(
        there.root().ends_with("LOCAL-1")
            && !fixture.has(&file)
            && there.root().join(file).exists()
    );
    assert_eq!(
        there
            .issues()
            .show("LOCAL-1")
            .unwrap()
            .item
            .issue
            .comments
            .len(),
        1
    );
    assert_eq!(
        std::fs::read_dir(fixture.project.root().join(crate::layout::COMMENTS))
            .unwrap()
            .flat_map(|folder| std::fs::read_dir(folder.unwrap().path()))
            .flatten()
            .count(),
        0,
        "the comment went with it"
    );
    let begun = Work::new(&there).start(&start("LOCAL-1")).unwrap();
    assert_eq!(begun.branch.unwrap().name, "feature/LOCAL-1-sum-numbers");
    assert_eq!(begun.worktree.as_deref(), Some(there.root()));
    assert_eq!(
        git.branch().unwrap().as_deref(),
        Some("main"),
        "the branch here stays"
    );
    let elsewhere = work.status().unwrap().elsewhere;
    assert_eq!(
        (elsewhere[0].what.as_str(), elsewhere[0].worktree.as_path()),
        ("LOCAL-1", there.root())
    );
    let again = Work::new(&there).worktree("LOCAL-1", None).unwrap();
    assert_eq!(again.root(), there.root());

    let titled = work.worktree("Halve a number", None).unwrap();
    let begun = Work::new(&titled).start(&start("Halve a number")).unwrap();
    assert_eq!(
        begun.issue.unwrap().linear_id,
        "LOCAL-2",
        "numbers are those of the repository"
    );
    assert_eq!(
        work.worktree("Halve a number", None).unwrap_err().code,
        "E_REFUSED"
    );
    assert_eq!(
        work.worktree("LOCAL-9", None).unwrap_err().code,
        "E_NOT_FOUND"
    );
    let id = feature(&fixture, "Not committed");
    let trees = git.worktrees().unwrap().len();
    assert!(
        work.worktree(&id, None)
            .unwrap_err()
            .message
            .contains("is not committed")
    );
    assert_eq!(
        git.worktrees().unwrap().len(),
        trees,
        "the new one is removed"
    );
    // They are beside the folder that is removed with the fixture.
    std::fs::remove_dir_all(there.root().parent().unwrap()).unwrap();
}
