//! Checkpoints in real repositories.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::checkpoints::Checkpoints;
use crate::error::Category;
use crate::fixture::file_of;
use crate::json::print;
use crate::recovery::Recovery;
use crate::recovery::tests::fixture::Fixture;

fn states(fixture: &Fixture) -> BTreeMap<String, State> {
    let list = Checkpoints::new(&fixture.project()).list().unwrap();
    list.into_iter()
        .map(|checkpoint| (checkpoint.name, checkpoint.state))
        .collect()
}

fn create(fixture: &Fixture, key: &str) -> Made {
    Checkpoints::new(&fixture.project())
        .create(&Create {
            key: Some(key.to_owned()),
            ..Create::default()
        })
        .unwrap()
}

fn nothing_was_made(fixture: &Fixture) {
    assert_eq!(fixture.run(&["tag", "--list"]), "");
    let files = std::fs::read_dir(fixture.path().join(".forge/git/checkpoints"));
    assert_eq!(
        files
            .into_iter()
            .flatten()
            .filter(|file| !file
                .as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with('.'))
            .count(),
        0
    );
}

#[test]
fn checkpoint_is_a_tag_and_its_mirror() {
    let fixture = Fixture::new();
    let made = create(&fixture, "SX9-123");
    assert_eq!(
        (made.tag.as_str(), made.can_rollback_to),
        ("checkpoint/SX9-123-v1", true)
    );
    assert_eq!(
        fixture.run(&["cat-file", "-t", "checkpoint/SX9-123-v1"]),
        "tag"
    );
    assert_eq!(
        fixture.run(&["rev-parse", "checkpoint/SX9-123-v1^{commit}"]),
        made.commit
    );
    let message = fixture.run(&[
        "for-each-ref",
        "--format=%(contents)",
        "refs/tags/checkpoint/",
    ]);
    assert_eq!(
        Manifest::of_message(&message).unwrap().unwrap(),
        made.manifest
    );
    assert_eq!(
        std::fs::read(fixture.path().join(&made.path)).unwrap(),
        print(&made.manifest).unwrap()
    );
    let manifest = &made.manifest;
    assert_eq!(manifest.verified_by, [fixture.verify()]);
    assert_eq!(manifest.features_passing, ["A-001", "A-002"]);
    assert_eq!(
        (manifest.features_total, manifest.checks[0].exit),
        (Some(3), Some(0))
    );
    assert_eq!(manifest.branch.as_deref(), Some("main"));
    assert_eq!(
        manifest.tree.as_deref(),
        Some(fixture.run(&["rev-parse", "HEAD^{tree}"]).as_str())
    );
    assert_ne!(manifest.tree, manifest.code_tree);
    let listed = Checkpoints::new(&fixture.project()).list().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (
            listed[0].state,
            listed[0].can_rollback_to,
            listed[0].notes.len()
        ),
        (State::Ok, true, 0)
    );
    // The checkpoint's own file does not make the tree dirty: the next one can be made at once.
    let second = create(&fixture, "SX9-123");
    assert_eq!(second.tag, "checkpoint/SX9-123-v2");
    assert_eq!(
        second.manifest.parent_checkpoint.as_deref(),
        Some("checkpoint/SX9-123-v1")
    );
}

#[test]
fn two_clones_may_give_one_name() {
    let fixture = Fixture::new();
    let there = tempfile::tempdir().unwrap();
    let clone = there.path().join("clone");
    fixture.run(&[
        "clone",
        "-q",
        fixture.path().to_str().unwrap(),
        clone.to_str().unwrap(),
    ]);
    let commit = |root: &Path, text: &str| {
        std::fs::write(root.join("b.txt"), text).unwrap();
        crate::recovery::tests::fixture::feed(root, &["add", "-A"], "");
        crate::recovery::tests::fixture::feed(
            root,
            &[
                "-c",
                "user.name=B",
                "-c",
                "user.email=b@b",
                "commit",
                "-qm",
                text,
            ],
            "",
        );
    };
    commit(&clone, "theirs");
    let theirs = Checkpoints::new(&Fixture::open(&clone))
        .create(&Create::default())
        .unwrap();
    commit(&clone, "memory");
    let ours = Checkpoints::new(&fixture.project())
        .create(&Create::default())
        .unwrap();
    assert_eq!(
        (ours.tag.as_str(), theirs.tag.as_str()),
        ("checkpoint/session-v1", "checkpoint/session-v1")
    );
    fixture.commit("memory");
    fixture.run(&["fetch", "-q", "--no-tags", clone.to_str().unwrap(), "HEAD"]);
    fixture.run(&["merge", "-q", "--no-edit", "FETCH_HEAD"]);
    let list = Checkpoints::new(&fixture.project()).list().unwrap();
    let found: BTreeMap<&str, _> = list
        .iter()
        .map(|one| (one.name.as_str(), one.state))
        .collect();
    let marked = format!("session-v1-{}", &theirs.commit[..8]);
    assert_eq!(
        found,
        [("session-v1", State::Ok), (marked.as_str(), State::Ok)].into()
    );
    assert_eq!(
        Checkpoints::new(&fixture.project())
            .show("session-v1")
            .unwrap()
            .commit,
        Some(ours.commit)
    );
}

#[test]
fn failing_check_leaves_neither_tag_nor_file() {
    let fixture = Fixture::new();
    for verify in ["sh: echo so much; exit 3", "no-such-program-anywhere", ""] {
        let asked = Create {
            key: Some("A-1".into()),
            verify: vec![fixture.verify(), verify.to_owned()],
            ..Create::default()
        };
        let error = Checkpoints::new(&fixture.project())
            .create(&asked)
            .unwrap_err();
        assert_ne!(error.code, "E_MOVED", "{error}");
        nothing_was_made(&fixture);
        if verify.starts_with("sh:") {
            assert_eq!((error.code, error.category), ("E_CHECK", Category::Failed));
            assert!(error.hint.unwrap().contains("so much"));
        }
    }
}

#[test]
fn features_that_are_not_committed_are_told() {
    let fixture = Fixture::new();
    assert_eq!(create(&fixture, "A-1").warnings, [""; 0]);
    fixture.features(&[
        ("A-001", "passing"),
        ("A-002", "passing"),
        ("A-004", "not_implemented"),
    ]);
    let warnings = create(&fixture, "A-1").warnings;
    assert!(
        warnings.len() == 1 && warnings[0].contains("features changed since"),
        "{warnings:?}"
    );
}

#[test]
fn secret_in_the_tag_message_is_refused() {
    let fixture = Fixture::new();
    let secret = ["ghp_", &"a1B2c3D4".repeat(5)[..36]].concat();
    let refused = |fixture: &Fixture, asked: Create| {
        let asked = Create {
            key: Some("A-1".into()),
            ..asked
        };
        let error = Checkpoints::new(&fixture.project())
            .create(&asked)
            .unwrap_err();
        assert_eq!(
            (error.code, error.category),
            ("E_SECRET", Category::Secret),
            "{error}"
        );
        assert!(!error.to_string().contains(&secret));
        nothing_was_made(fixture);
    };
    refused(
        &fixture,
        Create {
            verify: vec![format!("echo {secret}")],
            ..Create::default()
        },
    );
    refused(
        &fixture,
        Create {
            closes: vec![secret.clone()],
            ..Create::default()
        },
    );
    refused(
        &fixture,
        Create {
            message: Some(secret.clone()),
            ..Create::default()
        },
    );
    fixture.run(&["branch", "-m", &secret]);
    refused(&fixture, Create::default());
    fixture.run(&["branch", "-m", "main"]);
    create(&fixture, "A-1");
}

#[test]
fn broken_invariant_stops_a_checkpoint() {
    let fixture = Fixture::new();
    fixture.write(
        ".forge/memory/long-term/knowledge.json",
        r#"{"schema_version":"1.0","patterns":{"successful":[],"failed":[]},"invariants":["text",{"text":"no b","check":"sh: test ! -e b.txt"}]}"#,
    );
    fixture.commit("invariant");
    let project = fixture.project();
    let asked = Create {
        key: Some("A-1".into()),
        ..Create::default()
    };
    assert_eq!(
        Checkpoints::new(&project).create(&asked).unwrap_err().code,
        "E_CHECK"
    );
    nothing_was_made(&fixture);
}

#[test]
fn checkpoint_needs_a_clean_tree() {
    let fixture = Fixture::new();
    let asked = Create {
        key: Some("A-1".into()),
        ..Create::default()
    };
    fixture.write("new.txt", "x");
    let error = Checkpoints::new(&fixture.project())
        .create(&asked)
        .unwrap_err();
    assert_eq!((error.code, error.category.exit_code()), ("E_DIRTY", 9));
    std::fs::remove_file(fixture.path().join("new.txt")).unwrap();
    fixture.run(&["checkout", "-q", "-b", "side"]);
    fixture.write("a.txt", "side\n");
    fixture.commit("side");
    fixture.run(&["checkout", "-q", "main"]);
    fixture.write("c.txt", "main\n");
    fixture.commit("main");
    fixture.run(&["merge", "-q", "--no-commit", "--no-ff", "side"]);
    assert_eq!(
        Checkpoints::new(&fixture.project())
            .create(&asked)
            .unwrap_err()
            .code,
        "E_OPERATION"
    );
    nothing_was_made(&fixture);
}

#[test]
fn change_during_checks_is_not_tagged() {
    for change in [
        "sh: echo x > a.txt && git -c user.name=a -c user.email=a@b commit -q -a -m x",
        "sh: echo x > a.txt",
        "sh: echo x > new.txt",
    ] {
        let fixture = Fixture::new();
        let asked = Create {
            key: Some("A-1".into()),
            verify: vec![change.into()],
            ..Create::default()
        };
        let error = Checkpoints::new(&fixture.project())
            .create(&asked)
            .unwrap_err();
        assert!(matches!(error.code, "E_MOVED" | "E_DIRTY"), "{error}");
        if change.contains("commit") {
            assert_eq!((error.code, error.category.exit_code()), ("E_MOVED", 6));
        }
        nothing_was_made(&fixture);
    }
}

#[test]
fn each_state_is_told_from_the_others() {
    let fixture = Fixture::new();
    for key in ["A-1", "A-2", "A-3", "A-4", "A-5"] {
        create(&fixture, key);
    }
    let ok = fixture.head();
    // A-1 stays.
    fixture.run(&["tag", "-d", "checkpoint/A-2-v1"]);
    fixture.write("a.txt", "later\n");
    fixture.commit("later");
    fixture.run(&[
        "tag",
        "-f",
        "-a",
        "-m",
        "moved",
        "checkpoint/A-3-v1",
        "HEAD",
    ]);
    // The same message on another commit.
    let message = fixture.run(&[
        "for-each-ref",
        "--format=%(contents)",
        "refs/tags/checkpoint/A-5-v1",
    ]);
    fixture.run(&[
        "tag",
        "-f",
        "-a",
        "--cleanup=verbatim",
        "-m",
        &message,
        "checkpoint/A-5-v1",
        "HEAD",
    ]);
    // On a side branch.
    fixture.run(&["checkout", "-q", "-b", "side"]);
    fixture.write("side.txt", "side\n");
    fixture.commit("side");
    create(&fixture, "A-6");
    fixture.run(&["checkout", "-q", "main"]);
    let file = |key: &str| file_of(fixture.path(), ".forge/git/checkpoints", key);
    fixture.write(&file("A-4-v1"), "{\"tag\": ");
    std::fs::remove_file(fixture.path().join(file("A-5-v1"))).unwrap();
    let found = states(&fixture);
    for (name, state) in [
        ("A-1-v1", State::Ok),
        ("A-2-v1", State::Ok),
        ("A-3-v1", State::TagMoved),
        ("A-4-v1", State::ManifestCorrupt),
        ("A-5-v1", State::TagMoved),
        ("A-6-v1", State::NotAncestor),
    ] {
        assert_eq!(found.get(name), Some(&state), "{name}");
    }
    let usable = Checkpoints::new(&fixture.project())
        .newest_usable()
        .unwrap()
        .unwrap();
    assert_eq!(
        (usable.name.as_str(), usable.commit),
        ("A-2-v1", Some(ok)),
        "without its tag, by its file"
    );
}

#[test]
fn commit_of_another_clone_is_missing() {
    let fixture = Fixture::new();
    create(&fixture, "A-1");
    fixture.write("a.txt", "later\n");
    fixture.commit("later");
    create(&fixture, "A-1");
    let folder = tempfile::tempdir().unwrap();
    let clone = folder.path().join("clone");
    let from = format!("file://{}", fixture.path().display());
    fixture.run(&[
        "clone",
        "-q",
        "--depth=1",
        "--no-tags",
        &from,
        clone.to_str().unwrap(),
    ]);
    // Only the tag object, as in a damaged or partial store.
    let tag = fixture.run(&["cat-file", "tag", "checkpoint/A-1-v1"]) + "\n";
    let tag = crate::recovery::tests::fixture::feed(
        &clone,
        &["hash-object", "-t", "tag", "-w", "--stdin", "--literally"],
        &tag,
    );
    std::fs::create_dir_all(clone.join(".git/refs/tags/checkpoint")).unwrap();
    std::fs::write(clone.join(".git/refs/tags/checkpoint/A-1-v1"), tag + "\n").unwrap();
    std::fs::create_dir_all(clone.join(".forge/git/checkpoints")).unwrap();
    let file = file_of(fixture.path(), ".forge/git/checkpoints", "A-1-v2");
    std::fs::copy(fixture.path().join(&file), clone.join(file)).unwrap();
    let project = Fixture::open(&clone);
    let list = Checkpoints::new(&project).list().unwrap();
    let found: BTreeMap<_, _> = list
        .iter()
        .map(|one| (one.name.as_str(), (one.state, one.can_rollback_to)))
        .collect();
    assert_eq!(found["A-1-v1"], (State::CommitMissing, false));
    assert_eq!(found["A-1-v2"], (State::Ok, true));
}

#[test]
fn tag_or_file_is_enough() {
    let fixture = Fixture::new();
    let [no_file, no_tag] = [create(&fixture, "A-1"), create(&fixture, "A-2")];
    std::fs::remove_file(fixture.path().join(&no_file.path)).unwrap();
    fixture.run(&["tag", "-d", &no_tag.tag]);
    for checkpoint in Checkpoints::new(&fixture.project()).list().unwrap() {
        assert!(
            checkpoint.can_rollback_to && checkpoint.notes.len() == 1,
            "{checkpoint:?}"
        );
    }
}

#[test]
fn manual_tag_is_listed_but_not_usable() {
    let fixture = Fixture::new();
    fixture.run(&[
        "tag",
        "-a",
        "checkpoint/SX9-123-v1",
        "-m",
        "Working ATLAS-NATS connection",
    ]);
    let head = fixture.head();
    let file = include_str!("../../forge_documents/fixtures/checkpoint.json")
        .replace("abc1234def5678", &head[..14]);
    fixture.write(".forge/git/checkpoints/SX9-123-v1.json", file);
    let listed = Checkpoints::new(&fixture.project())
        .show("SX9-123-v1")
        .unwrap();
    assert_eq!(
        (listed.state, listed.can_rollback_to, listed.notes.len()),
        (State::Ok, false, 1)
    );
    assert!(
        listed.manifest.unwrap().can_rollback_to,
        "the file says so, and nothing shows it"
    );
    assert_eq!(
        Checkpoints::new(&fixture.project())
            .newest_usable()
            .unwrap(),
        None
    );
    assert!(
        Checkpoints::new(&fixture.project())
            .newest_valid()
            .unwrap()
            .is_some()
    );
    assert_eq!(
        Checkpoints::new(&fixture.project())
            .show("SX9-123-v2")
            .unwrap_err()
            .category,
        Category::NotFound
    );
}

#[test]
fn unknown_checks_are_explained_and_then_set() {
    let fixture = Fixture::new();
    let asked = Create {
        key: Some("A-1".into()),
        ..Create::default()
    };
    let project = fixture.project_with("[git]\nstyle = \"forge\"\n");
    let error = Checkpoints::new(&project).create(&asked).unwrap_err();
    assert_eq!(
        (error.code, error.category),
        ("E_NO_CHECKS", Category::Refused),
        "{error}"
    );
    assert!(error.hint.unwrap().contains("verify.commands"));
    nothing_was_made(&fixture);
    crate::init::set_check(&project, "true").unwrap();
    let settings = std::fs::read_to_string(fixture.path().join(crate::layout::CONFIG)).unwrap();
    let project = fixture.project_with(&settings);
    assert!(
        settings.starts_with("[git]\nstyle = \"forge\"\n"),
        "{settings}"
    );
    assert_eq!(
        Checkpoints::new(&project)
            .create(&asked)
            .unwrap()
            .manifest
            .verified_by,
        ["true"]
    );
}

#[test]
fn edited_mirror_does_not_outweigh_the_tag() {
    let fixture = Fixture::new();
    let asked = Create {
        key: Some("A-1".into()),
        ..Create::default()
    };
    let project = fixture.project_with("[verify]\ncommands = []\n");
    let made = Checkpoints::new(&project).create(&asked).unwrap();
    assert!(!made.can_rollback_to, "nothing was checked");
    let path = fixture.path().join(&made.path);
    let text = std::fs::read_to_string(&path)
        .unwrap()
        .replace("\"can_rollback_to\": false", "\"can_rollback_to\": true");
    std::fs::write(&path, text).unwrap();
    let listed = Checkpoints::new(&fixture.project()).show("A-1-v1").unwrap();
    assert_eq!((listed.state, listed.can_rollback_to), (State::Ok, false));
    assert!(listed.notes[0].contains("differs"), "{:?}", listed.notes);
}

#[test]
fn concurrent_checkpoints_get_unique_numbers() {
    let fixture = Fixture::new();
    let mut tags: Vec<String> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| create(&fixture, "A-1").tag))
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    tags.sort();
    assert_eq!(
        tags,
        (1..=4)
            .map(|number| format!("checkpoint/A-1-v{number}"))
            .collect::<Vec<_>>()
    );
    assert!(states(&fixture).values().all(|state| *state == State::Ok));
}

#[test]
fn remote_numbers_are_skipped_and_tags_pushed() {
    let fixture = Fixture::new();
    let folder = tempfile::tempdir().unwrap();
    let remote = folder.path().join("remote.git");
    fixture.run(&["init", "-q", "--bare", remote.to_str().unwrap()]);
    fixture.run(&["remote", "add", "origin", remote.to_str().unwrap()]);
    fixture.run(&["tag", "-a", "-m", "theirs", "checkpoint/A-1-v4"]);
    fixture.run(&["push", "-q", "origin", "checkpoint/A-1-v4"]);
    fixture.run(&["tag", "-d", "checkpoint/A-1-v4"]);
    let asked = Create {
        key: Some("A-1".into()),
        push: true,
        ..Create::default()
    };
    let made = Checkpoints::new(&fixture.project()).create(&asked).unwrap();
    assert_eq!(
        (made.tag.as_str(), made.pushed, made.warnings.len()),
        ("checkpoint/A-1-v5", true, 0)
    );
    let refs = fixture.run(&["ls-remote", "origin"]);
    assert!(
        refs.contains("checkpoint/A-1-v5") && !refs.contains("refs/heads/"),
        "{refs}"
    );
    std::fs::remove_dir_all(&remote).unwrap();
    let made = Checkpoints::new(&fixture.project()).create(&asked).unwrap();
    assert_eq!(
        (made.tag.as_str(), made.pushed),
        ("checkpoint/A-1-v6", false)
    );
    assert_eq!(
        made.warnings.len(),
        2,
        "that it was neither asked nor reached: {:?}",
        made.warnings
    );
}

#[test]
fn credentials_in_outputs_are_not_repeated() {
    let fixture = Fixture::new();
    // Assembled here, so that no scanner finds it in this file.
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    std::fs::write(
        fixture.path().join(".git/said"),
        format!("begin\n{token}\nend\n"),
    )
    .unwrap();
    let verify = "sh: cat .git/said; exit 3".to_owned();
    let asked = Create {
        key: Some("A-1".into()),
        verify: vec![verify.clone()],
        ..Create::default()
    };
    let error = Checkpoints::new(&fixture.project())
        .create(&asked)
        .unwrap_err();
    let hint = error.hint.as_deref().unwrap_or_default();
    assert!(error.code == "E_CHECK" && hint.contains("end"), "{error:?}");
    assert!(!hint.contains(&token), "{error:?}");
    create(&fixture, "A-1");
    let config = ".forge/config.toml";
    std::fs::write(
        fixture.path().join(config),
        format!("[verify]\ncommands = [\"{verify}\"]\n"),
    )
    .unwrap();
    let report = Recovery::new(&fixture.project())
        .assess(crate::recovery::Assess { verify: true })
        .unwrap();
    let output = &report.measures.as_ref().unwrap().verify.output;
    assert!(
        output.contains("begin") && !output.contains(&token),
        "{output}"
    );
}
