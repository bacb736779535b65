//! A memory below the root of the repository: a working day, and a rollback.

use super::fixture::{FEATURES, KNOWLEDGE};
use crate::checkpoints::{Checkpoints, Create};
use crate::environment::ProjectEnvironment;
use crate::features::Features;
use crate::git::fixture::Repository;
use crate::knowledge::{Knowledge, Learning, What};
use crate::project::Project;
use crate::recovery::{Apply, Recovery};
use crate::sessions::{End, Sessions, Start};

const FEATURE: &str = r#"{"schema_version":"1.0","features":[{"id":"A-001","name":"n","status":"failing","tests":["t::*"],"blocked_by":null}]}"#;

pub(super) fn begun() -> (Repository, Project) {
    let repository = Repository::new();
    for (name, value) in [("user.name", "Ann"), ("user.email", "ann@example.com")] {
        repository.run(&["config", name, value]);
    }
    repository.write(
        "sub/.forge/.gitignore",
        ".local/\nmemory/short-term/*\n!memory/short-term/sessions/\ngit/commits.log\ngit/branches.json\n",
    );
    repository.write(
        "sub/.forge/config.toml",
        "[verify]\ncommands = [\"sh: test ! -e broken\"]\n",
    );
    let knowledge = r#"{"schema_version":"1.0","patterns":{"successful":[],"failed":[]},"invariants":["Stay kind"]}"#;
    repository.write(&format!("sub/{KNOWLEDGE}"), knowledge);
    repository.write(&format!("sub/{FEATURES}"), FEATURE);
    repository.write("sub/a.txt", "one\n");
    repository.write("top.txt", "top\n");
    repository.commit("first");
    let project = Project::open(
        &repository.path().join("sub"),
        ProjectEnvironment::default(),
    )
    .unwrap()
    .unwrap();
    (repository, project)
}

#[test]
fn a_session_ends_with_its_memory_committed() {
    let (repository, project) = begun();
    Sessions::new(&project).start(&Start::default()).unwrap();
    let learning = Learning::new(What::Successful {
        context: "c".into(),
        approach: "a".into(),
    });
    Knowledge::new(&project).add(&learning, None).unwrap();
    let ended = Sessions::new(&project)
        .end(&End {
            next: Some("Go on".into()),
            ..End::default()
        })
        .unwrap();
    assert!(ended.commit.is_some(), "{:?}", ended.warnings);
    // The record of an ended session is committed with the next one.
    assert_eq!(
        repository.run(&[
            "status",
            "--porcelain",
            "--",
            ":!sub/.forge/memory/short-term/sessions"
        ]),
        ""
    );
    assert!(
        repository
            .run(&["show", "--format=", "--name-only"])
            .contains(&format!("sub/{KNOWLEDGE}"))
    );
    assert!(!repository.path().join(".forge").exists());
    // Changed code still counts as code, but for that of others.
    Sessions::new(&project).start(&Start::default()).unwrap();
    repository.write("sub/a.txt", "changed\n");
    assert_eq!(
        Sessions::new(&project)
            .end(&End::default())
            .unwrap_err()
            .code,
        "E_DIRTY"
    );
    repository.run(&["checkout", "-q", "--", "sub/a.txt"]);
    repository.write("top.txt", "changed\n");
    Sessions::new(&project).end(&End::default()).unwrap();
}

#[test]
fn a_rollback_leaves_what_is_outside_of_the_project() {
    let (repository, project) = begun();
    let made = Checkpoints::new(&project)
        .create(&Create {
            key: Some("A-1".into()),
            ..Create::default()
        })
        .unwrap();
    assert_eq!(made.tag, "checkpoint/sub/A-1-v1");
    let learning = Learning::new(What::Successful {
        context: "learned since".into(),
        approach: "a".into(),
    });
    Knowledge::new(&project).add(&learning, None).unwrap();
    repository.write("sub/a.txt", "wrong\n");
    repository.write("top.txt", "work of others\n");
    repository.commit("wrong");
    repository.write("sub/a.txt", "worse\n");
    repository.write("top.txt", "and more of it\n");
    let asked = Apply {
        checkpoint: Some(made.tag),
        ..Apply::default()
    };
    let done = Recovery::new(&project)
        .apply(&asked)
        .unwrap()
        .rollback
        .unwrap();
    assert_eq!(done.rescue, "refs/forge/rescue/sub/manual/1");
    let read = |path: &str| std::fs::read_to_string(repository.path().join(path)).unwrap();
    assert_eq!(
        (read("sub/a.txt").as_str(), read("top.txt").as_str()),
        ("one\n", "and more of it\n")
    );
    let knowledge = crate::fixture::made::<crate::knowledge::KnowledgeFile>(project.root());
    assert!(
        knowledge.contains("learned since") && knowledge.contains("A-1-v1"),
        "{knowledge}"
    );
    assert_eq!(repository.run(&["show", "HEAD:top.txt"]), "work of others");
    assert_eq!(repository.run(&["show", "HEAD:sub/a.txt"]), "one");
    assert!(Knowledge::new(&project).read().is_ok() && Features::new(&project).read().is_ok());
}

#[test]
fn the_contract_of_a_checkpoint_holds() {
    let (_repository, project) = begun();
    Checkpoints::new(&project)
        .create(&Create {
            key: Some("A-1".into()),
            ..Create::default()
        })
        .unwrap();
    assert_eq!(
        Features::new(&project)
            .remove("A-001", None, None)
            .unwrap_err()
            .code,
        "E_CONTRACT"
    );
}
