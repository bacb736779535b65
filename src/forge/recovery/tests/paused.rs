//! Pauses, and how they end.

use super::fixture::Fixture;
use crate::checkpoints::{Checkpoints, Create};
use crate::error::Category;
use crate::recovery::{Ack, Apply, Assess, By, Recovery};

fn ack(by: By) -> Ack {
    Ack {
        reason: "looked at it".into(),
        by,
    }
}

/// Fixture: a project that is paused because HEAD is detached.
fn paused() -> Fixture {
    let fixture = Fixture::new();
    let asked = Create {
        key: Some("A-1".into()),
        ..Create::default()
    };
    Checkpoints::new(&fixture.project()).create(&asked).unwrap();
    fixture.run(&["checkout", "-q", "--detach"]);
    let error = Recovery::new(&fixture.project())
        .apply(&Apply::default())
        .unwrap_err();
    assert_eq!(
        (error.code, error.category),
        ("E_UNKNOWN", Category::Unknown)
    );
    fixture
}

#[test]
fn what_is_unknown_pauses_and_whatever_changes_something_is_refused() {
    let fixture = paused();
    let project = fixture.project();
    let recovery = Recovery::new(&project);
    let paused = recovery.paused().unwrap().unwrap();
    assert!(paused.reason.contains("detached"));
    assert_eq!(paused.report.unwrap().unknown[0].reason.code(), "detached");
    assert_eq!(
        recovery
            .apply(&Apply::default())
            .unwrap_err()
            .category
            .exit_code(),
        4
    );
    assert_eq!(
        Checkpoints::new(&project)
            .create(&Create::default())
            .unwrap_err()
            .category,
        Category::Paused
    );
    assert!(Checkpoints::new(&project).list().is_ok(), "reading goes on");
    assert!(recovery.assess(Assess::default()).is_ok());
}

#[test]
fn a_person_ends_a_pause_and_is_not_asked_the_same_again() {
    let fixture = paused();
    let project = fixture.project();
    let recovery = Recovery::new(&project);
    assert_eq!(
        recovery
            .ack(&Ack {
                reason: " ".into(),
                by: By::Terminal
            })
            .unwrap_err()
            .category,
        Category::Usage
    );
    let answer = recovery.ack(&ack(By::Terminal)).unwrap();
    assert_eq!(answer.unknown[0].code(), "detached");
    assert!(project.check_not_paused().is_ok());
    let report = recovery.assess(Assess::default()).unwrap();
    assert!(report.acknowledged && !report.must_pause());
    // A new reason pauses again.
    fixture.write(".git/BISECT_LOG", "x");
    assert!(recovery.assess(Assess::default()).unwrap().must_pause());
    assert_eq!(
        recovery.ack(&ack(By::Terminal)).unwrap_err().category,
        Category::NotFound
    );
}

#[test]
fn a_token_ends_a_pause_once() {
    let fixture = paused();
    let project = fixture.project();
    let recovery = Recovery::new(&project);
    let old = recovery.token().unwrap();
    let token = recovery.token().unwrap();
    assert!(
        !fixture.read(".forge/.local/paused.json").contains(&token),
        "only its hash is kept"
    );
    for wrong in [old.as_str(), "", "0"] {
        let error = recovery.ack(&ack(By::Token(wrong.to_owned()))).unwrap_err();
        assert_eq!(error.code, "E_TOKEN", "{wrong}");
    }
    recovery.ack(&ack(By::Token(token.clone()))).unwrap();
    recovery.pause("again", None).unwrap();
    assert_eq!(
        recovery.ack(&ack(By::Token(token))).unwrap_err().code,
        "E_TOKEN"
    );
    assert!(project.check_not_paused().is_err());
}

#[test]
fn a_damaged_pause_ends_only_at_a_terminal() {
    let fixture = paused();
    fixture.write(".forge/.local/paused.json", "{");
    let project = fixture.project();
    assert!(project.check_not_paused().is_err());
    assert!(
        Recovery::new(&project)
            .ack(&ack(By::Token("x".into())))
            .is_err()
    );
    Recovery::new(&project).ack(&ack(By::Terminal)).unwrap();
    assert!(project.check_not_paused().is_ok());
}

#[test]
fn a_report_with_something_like_a_secret_pauses_all_the_same() {
    let fixture = Fixture::new();
    let asked = Create {
        key: Some("A-1".into()),
        ..Create::default()
    };
    Checkpoints::new(&fixture.project()).create(&asked).unwrap();
    // Assembled here, so that no scanner finds it in this file.
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    let project = fixture.project_with(&format!(
        "[verify]\ncommands = [\"sh: echo first; echo {token}; exit 1\"]\n"
    ));
    let error = Recovery::new(&project)
        .apply(&Apply::default())
        .unwrap_err();
    assert_eq!(error.code, "E_UNKNOWN", "{error}");
    let file = fixture.read(".forge/.local/paused.json");
    assert!(
        !file.contains(&token) && file.contains("withheld"),
        "{file}"
    );
    assert_eq!(
        project.check_not_paused().unwrap_err().category,
        Category::Paused
    );
    let answer = Recovery::new(&project).ack(&ack(By::Terminal)).unwrap();
    assert_eq!(
        answer.unknown[0].code(),
        "environment",
        "what was unknown is known still"
    );
    assert!(
        Recovery::new(&project)
            .pause(&format!("the key is {token}"), None)
            .unwrap()
            .reason
            .contains("withheld")
    );
}
