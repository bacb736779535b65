use super::super::fixture::Repository;
use super::super::message::parse;
use super::*;
use crate::git::Commits;

fn origin() -> Origin {
    Origin {
        session: "2025-12-24-session-001".to_owned(),
        session_id: "0193f8a0-0000-7000-8000-000000000000".to_owned(),
        checkpoint: None,
    }
}

fn new(paths: &[&str]) -> NewCommit {
    NewCommit {
        key: Some("SX9-123".to_owned()),
        subject: "Wire the daemon.".to_owned(),
        what: vec!["Connects on startup".to_owned()],
        why: "It must hear commands.".to_owned(),
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        ..NewCommit::default()
    }
}

const FEATURES: &str = ".forge/memory/long-term/features.json";

fn features(status: &str) -> String {
    format!(
        "{{\"schema_version\":\"1.0\",\"features\":[{{\"id\":\"FORGE-002\",\"name\":\"n\",\"status\":\"{status}\"}}]}}\n"
    )
}

/// Fixture: a repository with one commit and a project.
fn begun() -> (Repository, Project) {
    let repository = Repository::new();
    let project = repository.project();
    repository.write("a", "1\n");
    repository.write(FEATURES, features("not_implemented"));
    repository.commit("first");
    (repository, project)
}

#[test]
fn a_commit_closes_its_issue_when_merged() {
    let (repository, project) = begun();
    let closing = |key: &str| NewCommit {
        closes: true,
        key: Some(key.to_owned()),
        ..new(&["a"])
    };
    repository.write("a", "2\n");
    let error = Commits::new(&project)
        .create(&closing("LOCAL-1"), &origin())
        .unwrap_err();
    assert_eq!(error.code, "E_REFUSED");
    let made = Commits::new(&project)
        .create(&closing("SX9-123"), &origin())
        .unwrap();
    assert!(
        made.message.contains("\nCloses: SX9-123\n"),
        "{}",
        made.message
    );
    repository.write(
        ".forge/config.toml",
        "[tracker]\nkind = \"github\"\n[github]\nrepository = \"acme/app\"\n",
    );
    repository.write("a", "3\n");
    let made = Commits::new(&repository.project())
        .create(&closing("GH-7"), &origin())
        .unwrap();
    assert!(made.message.contains("\nCloses: #7\n"), "{}", made.message);
    assert_eq!(lint(&made.message), []);
}

#[test]
fn a_commit_follows_the_protocol_and_holds_what_was_named() {
    let (repository, project) = begun();
    let first = project.git().unwrap().head().unwrap().unwrap();
    repository.write("a", "2\n");
    repository.write("b*", "named\n");
    repository.write("bc", "not named\n");
    repository.write(FEATURES, features("passing"));
    let made = Commits::new(&project)
        .create(&new(&["a", "b*"]), &origin())
        .unwrap();
    assert_eq!(
        project.git().unwrap().head().unwrap(),
        Some(made.oid.clone())
    );
    assert_eq!(
        (made.parent.as_str(), made.previous),
        (first.as_str(), Some(first.clone()))
    );
    assert_eq!(
        project
            .git()
            .unwrap()
            .status()
            .unwrap()
            .untracked()
            .collect::<Vec<_>>(),
        ["bc"]
    );
    let stored = repository.run(&["log", "-1", "--format=%B"]);
    assert_eq!(stored.trim_end(), made.message.trim_end());
    assert_eq!(lint(&stored), []);
    let message = parse(&stored).messages.remove(0);
    assert_eq!(message.subject_line(), "[SX9-123] Wire the daemon");
    assert_eq!(
        message.memory,
        [Note::Updated(
            "features.json (FORGE-002 now passing)".to_owned()
        )]
    );
    assert_eq!(
        message.trailers.features,
        [Feature {
            id: "FORGE-002".to_owned(),
            status: "passing".to_owned()
        }]
    );
    assert_eq!(
        message.trailers.code_tree,
        Some(project.git().unwrap().code_tree(&made.oid).unwrap())
    );
    let interpreted = repository.run(&[
        "log",
        "-1",
        "--format=%(trailers:key=Forge-Session,valueonly)",
    ]);
    assert_eq!(interpreted.trim(), "2025-12-24-session-001");
    let recent = Commits::new(&project).recent().unwrap();
    assert_eq!(
        recent.last().map(|line| line.subject.as_str()),
        Some(message.subject_line().as_str())
    );
}

#[test]
fn a_commit_goes_on_from_the_checkpoint() {
    let (repository, project) = begun();
    let git = project.git().unwrap();
    let checkpoint = git.head().unwrap().unwrap();
    repository.write("a", "2\n");
    let previous = repository.commit("second");
    repository.write("a", "3\n");
    let tag = "checkpoint/SX9-123-v1".to_owned();
    let origin = Origin {
        checkpoint: Some((tag.clone(), checkpoint.clone())),
        ..origin()
    };
    let made = Commits::new(&project)
        .create(&new(&["a"]), &origin)
        .unwrap();
    assert_eq!(
        (made.parent.as_str(), made.checkpoint.as_ref()),
        (checkpoint.as_str(), Some(&tag))
    );
    let line = format!("- Parent: {} (checkpoint/SX9-123-v1)\n", checkpoint.short());
    assert!(
        made.message.contains(&line)
            && made
                .message
                .contains("\nForge-Checkpoint: checkpoint/SX9-123-v1\n")
    );
    repository.write("a", "4\n");
    let given = NewCommit {
        parent: Some("HEAD~1".to_owned()),
        ..new(&["a"])
    };
    assert_eq!(
        Commits::new(&project)
            .create(&given, &origin)
            .unwrap()
            .parent,
        previous.as_str()
    );
    // A state on another branch is not a valid parent.
    repository.run(&["switch", "--quiet", "--orphan", "other"]);
    repository.write("a", "5\n");
    repository.commit("elsewhere");
    repository.write("a", "6\n");
    let error = Commits::new(&project)
        .create(&new(&["a"]), &origin)
        .unwrap_err();
    assert_eq!(
        (error.code, error.category),
        ("E_PARENT", Category::Refused)
    );
}

#[test]
fn the_first_commit_goes_on_from_nothing() {
    let repository = Repository::new();
    let project = repository.project();
    repository.write("a", "1\n");
    let made = Commits::new(&project)
        .create(&new(&["a"]), &origin())
        .unwrap();
    assert_eq!((made.parent, made.previous), ("0".repeat(40), None));
    assert_eq!(lint(&made.message), []);
}

#[test]
fn every_refusal_leaves_everything_as_it_was() {
    let (repository, project) = begun();
    repository.write("a", "2\n");
    repository.write(
        "secret",
        format!("aws = \"{}{}\"\n", "AKIA", "Q3EGZ7PLMX5RT2WV"),
    );
    let long = "x".repeat(95);
    let cases: Vec<(&str, NewCommit)> = vec![
        (
            "E_COMMIT_MESSAGE",
            NewCommit {
                key: None,
                ..new(&["a"])
            },
        ),
        (
            "E_COMMIT_MESSAGE",
            NewCommit {
                key: Some("sx9-1".to_owned()),
                ..new(&["a"])
            },
        ),
        (
            "E_COMMIT_MESSAGE",
            NewCommit {
                learned: vec!["[key insight]".to_owned()],
                ..new(&["a"])
            },
        ),
        (
            "E_COMMIT_MESSAGE",
            NewCommit {
                subject: long,
                ..new(&["a"])
            },
        ),
        (
            "E_COMMIT_MESSAGE",
            NewCommit {
                what: vec![],
                ..new(&["a"])
            },
        ),
        (
            "E_COMMIT_MESSAGE",
            NewCommit {
                why: " ".to_owned(),
                ..new(&["a"])
            },
        ),
        (
            "E_PARENT",
            NewCommit {
                parent: Some("nothing".to_owned()),
                ..new(&["a"])
            },
        ),
        ("E_SECRET", new(&["a", "secret"])),
        (
            "E_SECRET",
            NewCommit {
                why: format!("the key is {}{}", "AKIA", "Q3EGZ7PLMX5RT2WV"),
                ..new(&["a"])
            },
        ),
        ("E_NOTHING_STAGED", new(&[])),
        ("E_GIT", new(&["absent"])),
        ("E_PATH", new(&["../a"])),
    ];
    let state = || {
        (
            repository.run(&["status", "--porcelain"]),
            repository.run(&["rev-parse", "HEAD"]),
        )
    };
    let before = state();
    for (code, new) in cases {
        let error = Commits::new(&project).create(&new, &origin()).unwrap_err();
        assert_eq!(error.code, code, "{error:?}");
        assert!(!format!("{error:?}").contains("Q3EGZ7"));
        assert_eq!(state(), before, "{code}");
    }
    let left = std::fs::read_dir(repository.path().join(".git")).unwrap();
    assert!(
        left.filter_map(Result::ok)
            .all(|entry| !entry.file_name().to_string_lossy().contains("forge-commit"))
    );
}

#[test]
fn what_git_takes_for_binary_is_looked_through_too() {
    let (repository, project) = begun();
    let secret = format!("aws = \"{}{}\"\n", "AKIA", "Q3EGZ7PLMX5RT2WV");
    repository.write(".gitattributes", "*.lock -diff\n*.pem binary\n");
    repository.write("a.lock", &secret);
    repository.write("b.pem", &secret);
    repository.write("c", format!("\0{secret}"));
    for path in ["a.lock", "b.pem", "c"] {
        assert_eq!(
            Commits::new(&project)
                .create(&new(&[path]), &origin())
                .unwrap_err()
                .code,
            "E_SECRET",
            "{path}"
        );
    }
    // Next to a huge file, too.
    let mut huge = vec![b'x'; 6 << 20];
    huge[0] = 0;
    repository.write("huge", &huge);
    assert_eq!(
        Commits::new(&project)
            .create(&new(&["huge", "b.pem"]), &origin())
            .unwrap_err()
            .code,
        "E_SECRET"
    );
    Commits::new(&project)
        .create(&new(&["huge"]), &origin())
        .unwrap();
}

#[test]
fn what_is_huge_is_looked_through_piece_by_piece() {
    let (repository, project) = begun();
    let secret = format!(" aws = \"{}{}\"\n", "AKIA", "Q3EGZ7PLMX5RT2WV");
    for begin in ["\0", "text"] {
        // The first chunk ends in the middle of it.
        let mut huge = format!("{begin}{}", "x\n".repeat(3 << 20)).into_bytes();
        let at = (4 << 20) - secret.len() / 2;
        huge[at..at + secret.len()].copy_from_slice(secret.as_bytes());
        repository.write("huge", &huge);
        let error = Commits::new(&project)
            .create(&new(&["huge"]), &origin())
            .unwrap_err();
        assert_eq!(error.code, "E_SECRET", "{begin:?}");
        assert!(error.message.contains("huge:"), "{error}");
        assert_eq!(project.git().unwrap().status().unwrap().staged().count(), 0);
    }
    // A removed credential adds nothing.
    repository.commit("By hand");
    std::fs::remove_file(repository.path().join("huge")).unwrap();
    Commits::new(&project)
        .create(&new(&["huge"]), &origin())
        .unwrap();
}

#[test]
fn nothing_is_committed_in_the_middle_of_something() {
    let (repository, project) = begun();
    repository.run(&["switch", "--quiet", "-c", "side"]);
    repository.write("a", "side\n");
    repository.commit("side");
    repository.run(&["switch", "--quiet", "main"]);
    repository.write("a", "main\n");
    repository.commit("main");
    let merge = project
        .git()
        .unwrap()
        .run(&["merge", "side"], &Run::writing())
        .unwrap();
    assert!(!merge.ok());
    let error = Commits::new(&project)
        .create(&new(&["a"]), &origin())
        .unwrap_err();
    assert_eq!(
        (error.code, error.category),
        ("E_OPERATION", Category::Refused)
    );
    assert!(error.message.contains("merge"), "{error}");
}

#[test]
fn the_commit_of_a_session_needs_no_issue() {
    let (repository, project) = begun();
    repository.write(FEATURES, features("failing"));
    let session = NewCommit {
        key: None,
        session_commit: true,
        subject: "Session checkpoint".to_owned(),
        ..new(&[])
    };
    let made = Commits::new(&project).create(&session, &origin()).unwrap();
    assert!(made.message.starts_with("[session] Session checkpoint\n"));
    assert!(
        made.message.contains("\n- Linear: none\n")
            && made.message.contains("\nForge-Linear: none\n")
    );
    assert_eq!(lint(&made.message), []);
}

#[test]
fn hooks_of_the_user_run_and_may_refuse() {
    use std::os::unix::fs::PermissionsExt;
    let (repository, project) = begun();
    let hook = repository.path().join(".git/hooks/pre-commit");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let script = |text: &str| {
        std::fs::write(&hook, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    script("echo 'error: not today' >&2; exit 1");
    repository.write("a", "2\n");
    let error = Commits::new(&project)
        .create(&new(&["a"]), &origin())
        .unwrap_err();
    assert!(error.message.contains("not today"), "{error}");
    // A hook that adds to the commit is reported.
    script("echo more > more; git add more");
    assert!(
        Commits::new(&project)
            .create(&new(&["a"]), &origin())
            .unwrap()
            .changed_by_hook
    );
}

#[test]
fn who_commits_is_the_user_or_else_the_agent() {
    let repository = Repository::new();
    repository.write(".forge/x", "1\n");
    repository.commit("first");
    repository.write(".git/forge-worker", "");
    let mut worker = std::process::Command::new(std::env::current_exe().unwrap());
    worker.args([
        "--exact",
        "--ignored",
        "git::commits::tests::worker_without_identity",
    ]);
    worker
        .current_dir(repository.path())
        .env("GIT_CONFIG_GLOBAL", "/dev/null");
    worker
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env_remove("EMAIL");
    for name in [
        "GIT_AUTHOR_NAME",
        "GIT_AUTHOR_EMAIL",
        "GIT_COMMITTER_NAME",
        "GIT_COMMITTER_EMAIL",
    ] {
        worker.env_remove(name);
    }
    let output = worker.output().unwrap();
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("1 passed"),
        "{output:?}"
    );
    assert_eq!(
        repository.run(&["log", "-1", "--format=%an <%ae> %cn"]),
        "forge-agent <forge-agent@localhost> forge-agent"
    );
    let project = repository.project();
    repository.write("a", "3\n");
    Commits::new(&project)
        .create(&new(&["a"]), &origin())
        .unwrap();
    assert_eq!(
        repository.run(&["log", "-1", "--format=%an <%ae> %cn"]),
        "Ann <ann@example.com> Ann"
    );
}

#[test]
#[ignore = "started by another test"]
fn worker_without_identity() {
    // A run of all ignored tests must not touch a repository: this one needs the marker file.
    if !Path::new(".git/forge-worker").exists() {
        return;
    }
    let project = Project::open(Path::new("."), crate::ProjectEnvironment::default())
        .unwrap()
        .unwrap();
    std::fs::write(Path::new("a"), "2\n").unwrap();
    Commits::new(&project)
        .create(&new(&["a"]), &origin())
        .unwrap();
}

#[test]
fn what_is_new_in_the_knowledge_stands_in_the_message() {
    use crate::knowledge::{Learning, What};
    let (repository, project) = begun();
    let learn = |context: &str| {
        let what = What::Successful {
            context: context.into(),
            approach: "a".into(),
        };
        crate::knowledge::Knowledge::new(&project)
            .add(&Learning::new(what), None)
            .unwrap();
    };
    learn("before");
    Commits::new(&project).create(&new(&[]), &origin()).unwrap();
    learn("connect once");
    learn("said already");
    repository.write("a", "2\n");
    let asked = NewCommit {
        learned: vec!["said  already".to_owned()],
        ..new(&["a"])
    };
    let made = Commits::new(&project).create(&asked, &origin()).unwrap();
    let message = parse(&made.message).messages.remove(0);
    let learned = |text: &str| Note::Learned(text.to_owned());
    assert_eq!(
        message.memory,
        [learned("said already"), learned("connect once")]
    );
    assert_eq!(lint(&made.message), []);
    repository.write("a", "3\n");
    let made = Commits::new(&project)
        .create(&new(&["a"]), &origin())
        .unwrap();
    assert_eq!(parse(&made.message).messages.remove(0).memory, [Note::None]);
}

#[test]
fn a_name_that_looks_like_a_credential_is_not_committed() {
    let (repository, project) = begun();
    let name = format!("notes/{}{}.txt", concat!("gh", "p_"), "aB3x".repeat(9));
    repository.write(&name, "");
    let error = Commits::new(&project)
        .create(&new(&["notes"]), &origin())
        .unwrap_err();
    assert_eq!((error.code, error.category.exit_code()), ("E_SECRET", 7));
    assert!(!error.message.contains("aB3x"), "{error}");
    assert_eq!(project.git().unwrap().status().unwrap().staged().count(), 0);
}
