//! Interrupted ends, and how they resume.

use super::*;
use crate::focus::Focused;
use crate::init;
use crate::sessions::Sessions;

/// A learning about some work.
fn about(context: &str, approach: &str) -> Learning {
    Learning::new(What::Successful {
        context: context.to_owned(),
        approach: approach.to_owned(),
    })
}

#[test]
fn invalid_end_leaves_the_session_active() {
    let fixture = Fixture::new();
    let project = fixture.open();
    start(&project);
    let next = |text: &str| End {
        next: Some(text.to_owned()),
        ..End::default()
    };
    let learned = |context: &str| End {
        learned: vec![about(context, "Run the tests")],
        ..End::default()
    };
    // Assembled here, so that no scanner finds it in this file.
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    let bad = [
        ("a next that is too long", next(&"x".repeat(501))),
        ("a next of two lines", next("one\ntwo")),
        ("an empty next", next(" ")),
        ("a next that nobody filled in", next("[key insight]")),
        ("a next with a secret", next(&format!("use {token}"))),
        (
            "a reason of two lines",
            End {
                leave_dirty: Some("one\ntwo".to_owned()),
                ..End::default()
            },
        ),
        ("a context that is too long", learned(&"x".repeat(501))),
        (
            "a context that nobody filled in",
            learned("Brief description"),
        ),
        ("a context with a secret", learned(&token)),
        (
            "an approach with a control character",
            End {
                learned: vec![about("a", "b\u{1b}c")],
                ..End::default()
            },
        ),
        (
            "a key too long to be one",
            End {
                key: Some("SX9-1234567890123".to_owned()),
                ..End::default()
            },
        ),
    ];
    for (what, end) in bad {
        Sessions::new(&project).end(&end).expect_err(what);
        assert_eq!(
            Sessions::new(&project).current().unwrap().unwrap().state,
            State::Live,
            "{what}"
        );
    }
    Sessions::new(&project).end(&next("Do more")).unwrap();
}

/// Stores an end with an invalid text in the session, as an earlier version could.
fn poison(project: &Project, id: &str, ending: Ending) {
    let edited = Sessions::new(project).change(id, |session| {
        session.state = State::Ending;
        session.ending = Some(ending);
    });
    assert_eq!(edited.unwrap().state, State::Ending);
}

#[test]
fn refused_end_resumes_with_another_text() {
    let fixture = Fixture::new();
    let project = fixture.open();
    let id = start(&project).session.id;
    let since = Some(fixture.environment().now());
    poison(
        &project,
        &id,
        Ending {
            since,
            next: Some("one\ntwo".to_owned()),
            ..Ending::default()
        },
    );
    Sessions::new(&project).end(&End::default()).unwrap_err();
    let ended = Sessions::new(&project)
        .end(&End {
            next: Some("Do more".to_owned()),
            ..End::default()
        })
        .unwrap();
    assert_eq!(
        (ended.session, ended.next.as_deref()),
        (id, Some("Do more"))
    );
}

#[test]
fn stopped_end_does_not_stop_the_next_start() {
    let fixture = Fixture::new();
    let project = fixture.open();
    let session = start(&project).session;
    let id = session.id.clone();
    let ending = Ending {
        since: Some(fixture.environment().now()),
        next: Some("one\ntwo".to_owned()),
        learned: vec![about(&"x".repeat(501), "y")],
        key: Some("no key".to_owned()),
        ..Ending::default()
    };
    poison(&project, &id, ending.clone());
    let begun = start(&project);
    assert_eq!(begun.session.id, "2025-12-24-session-002");
    assert_eq!(
        begun
            .warnings
            .iter()
            .filter(|warning| warning.contains("went on without"))
            .count(),
        3
    );
    let record = Sessions::new(&project)
        .archived(&session.folder())
        .unwrap()
        .unwrap();
    assert_eq!(
        (record.state, record.ending),
        (State::Ended, Some(ending)),
        "what was to be learned is not lost"
    );
}

#[test]
fn refusing_hook_stops_an_end_only() {
    let fixture = Fixture::new();
    let project = fixture.open();
    start(&project);
    fixture
        .repository
        .write("hooks/pre-commit", "#!/bin/sh\nexit 1\n");
    fixture.repository.run(&["add", "hooks"]);
    fixture.repository.commit("Add a hook");
    let hook = fixture.path().join("hooks/pre-commit");
    assert!(
        Command::new("chmod")
            .arg("+x")
            .arg(&hook)
            .status()
            .unwrap()
            .success()
    );
    fixture
        .repository
        .run(&["config", "core.hooksPath", "hooks"]);
    fixture
        .repository
        .run(&["config", "core.fileMode", "false"]);
    let end = End {
        learned: vec![learned()],
        ..End::default()
    };
    assert_eq!(Sessions::new(&project).end(&end).unwrap_err().code, "E_GIT");
    let begun = start(&project);
    assert_eq!(begun.session.id, "2025-12-24-session-002");
    assert!(
        begun
            .warnings
            .iter()
            .any(|warning| warning.contains("went on without")),
        "{:?}",
        begun.warnings
    );
}

#[test]
fn ignored_memory_is_not_committed() {
    let fixture = Fixture::bare();
    fixture.repository.write(".git/info/exclude", ".forge/\n");
    init::init(fixture.path(), fixture.environment(), &Init::default()).unwrap();
    fixture.repository.write("src/main.rs", "fn main() {}\n");
    fixture.repository.commit("Begin");
    let project = fixture.open();
    start(&project);
    let ended = Sessions::new(&project)
        .end(&End {
            next: Some("x".to_owned()),
            ..End::default()
        })
        .unwrap();
    assert_eq!(ended.commit, None);
    assert!(
        ended
            .warnings
            .iter()
            .any(|warning| warning.contains("git ignores it")),
        "{:?}",
        ended.warnings
    );
}

#[test]
fn joined_session_has_its_own_active_skill() {
    let fixture = Fixture::new();
    let project = fixture.open();
    start(&project);
    let set = |task: &str| crate::focus::SetFocus {
        task: Some(task.to_owned()),
        ..Default::default()
    };
    Focused::new(&project).set(&set("First")).unwrap();
    let other = fixture.as_agent("Axiom");
    let joined = Sessions::new(&other)
        .start(&Start {
            join: true,
            ..Start::default()
        })
        .unwrap()
        .session;
    let inside = fixture.in_session(&joined.id);
    let second = crate::focus::SetFocus {
        active_skill: Some("code-generation".to_owned()),
        ..set("Second")
    };
    Sessions::new(&inside)
        .focus_now()
        .unwrap()
        .set(&second)
        .unwrap();
    let active =
        |focus: crate::focus::Focused<'_>| focus.show().unwrap().unwrap().focus.active_skill;
    assert_eq!(
        active(Sessions::new(&inside).focus_now().unwrap()).as_deref(),
        Some("code-generation")
    );
    assert_eq!(active(Focused::new(&project)), None);
}

#[test]
fn empty_session_leaves_no_commit_and_no_file() {
    let fixture = Fixture::new();
    let project = fixture.open();
    start(&project);
    Sessions::new(&project)
        .end(&End {
            next: Some("Begin".to_owned()),
            ..End::default()
        })
        .unwrap();
    let head = || project.git().unwrap().head().unwrap();
    let changed = || project.git().unwrap().status().unwrap().entries.len();
    let (before, dirty) = (head(), changed());
    let session = start(&project).session;
    let ended = Sessions::new(&project).end(&End::default()).unwrap();
    assert_eq!(
        (ended.commit, ended.commits, ended.warnings),
        (None, 0, Vec::new())
    );
    assert!(
        Sessions::new(&project).end(&End::default()).unwrap().again,
        "it is known that it has ended"
    );
    let next = start(&project).session;
    assert_ne!(next.id, session.id);
    assert_eq!(
        (head(), changed()),
        (before.clone(), dirty),
        "nothing of it is put away either"
    );
    Sessions::new(&project)
        .log(&Log {
            text: "Read the parser".to_owned(),
            next: None,
        })
        .unwrap();
    assert!(
        Sessions::new(&project)
            .end(&End::default())
            .unwrap()
            .commit
            .is_some(),
        "a word is worth a commit"
    );
    assert_ne!(head(), before);
}
