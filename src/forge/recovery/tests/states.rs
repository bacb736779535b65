//! Rollback from many work tree states: afterwards every byte is on disk or reachable from a
//! reference.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::bytes::{bytes, nothing_is_lost, staged};
use super::fixture::{Fixture, KNOWLEDGE};
use super::rolled::{back, with_checkpoint};
use crate::checkpoints::{Checkpoints, Create};
use crate::git::fixture::{Repository, run_at};
use crate::recovery::{Applied, Recovery};

const ARTIFACTS: &str = ".forge/memory/artifacts/docs";

type Dirty = (&'static str, fn(&Fixture));

const STATES: &[Dirty] = &[
    ("clean", |_| {}),
    ("changed", |g| g.write("a.txt", "changed\n")),
    ("staged", |g| {
        g.write("a.txt", "staged\n");
        g.run(&["add", "a.txt"]);
    }),
    ("staged and changed again", |g| {
        g.write("a.txt", "staged\n");
        g.run(&["add", "a.txt"]);
        g.write("a.txt", "changed after\n");
    }),
    ("staged only: gone from disk", |g| {
        g.write("only.txt", "only staged\n");
        g.run(&["add", "only.txt"]);
        std::fs::remove_file(g.path().join("only.txt")).unwrap();
    }),
    ("untracked", |g| g.write("new.txt", "untracked\n")),
    ("untracked in folders", |g| {
        g.write("x/y/z.txt", "deep\n");
        g.write("src/deep/new.txt", "beside\n");
    }),
    ("ignored", |g| {
        g.write("x.ignored", "ignored\n");
        g.write("target/big", "ignored too\n");
    }),
    ("an ignored file where the checkpoint has one", |g| {
        g.run(&["rm", "-q", "--cached", "b.txt"]);
        g.write(".gitignore", "*.ignored\n/target/\nb.txt\n");
        g.run(&["add", ".gitignore"]);
        g.run(&["commit", "-q", "-m", "ignore b"]);
        g.write("b.txt", "precious and ignored\n");
    }),
    ("an untracked file where the checkpoint has one", |g| {
        g.run(&["rm", "-q", "b.txt"]);
        g.run(&["commit", "-q", "-m", "no b"]);
        g.write("b.txt", "precious\n");
    }),
    ("an ignored folder where the checkpoint has a file", |g| {
        g.run(&["rm", "-q", "b.txt"]);
        g.run(&["commit", "-q", "-m", "no b"]);
        g.write("b.txt/inner.ignored", "in a folder\n");
    }),
    ("an ignored file where the checkpoint has a folder", |g| {
        g.run(&["rm", "-q", "-r", "src"]);
        g.write(".gitignore", "*.ignored\n/src\n");
        g.run(&["commit", "-q", "-a", "-m", "no src"]);
        g.write("src", "a file now\n");
    }),
    ("deleted", |g| {
        std::fs::remove_file(g.path().join("a.txt")).unwrap()
    }),
    ("deletion staged", |g| drop(g.run(&["rm", "-q", "a.txt"]))),
    ("renamed", |g| drop(g.run(&["mv", "a.txt", "renamed.txt"]))),
    ("renamed and changed", |g| {
        g.run(&["mv", "a.txt", "renamed.txt"]);
        g.write("renamed.txt", "renamed and changed\n");
    }),
    ("mode", |g| {
        std::fs::set_permissions(
            g.path().join("run.sh"),
            std::fs::Permissions::from_mode(0o755),
        )
        .unwrap();
    }),
    ("a link", |g| {
        symlink("a.txt", g.path().join("link")).unwrap()
    }),
    ("a file became a link", |g| {
        std::fs::remove_file(g.path().join("a.txt")).unwrap();
        symlink("b.txt", g.path().join("a.txt")).unwrap();
    }),
    ("a file became a folder", |g| {
        std::fs::remove_file(g.path().join("a.txt")).unwrap();
        g.write("a.txt/inside.txt", "inside\n");
    }),
    ("a folder became a file", |g| {
        std::fs::remove_dir_all(g.path().join("src")).unwrap();
        g.write("src", "no folder\n");
    }),
    ("later commits", |g| {
        for number in 1..4 {
            g.write("a.txt", format!("commit {number}\n"));
            g.commit("later");
        }
    }),
    ("later commits and changes", |g| {
        g.write("later.txt", "later\n");
        g.commit("later");
        g.write("later.txt", "later, changed\n");
    }),
    ("detached with commits", |g| {
        g.run(&["checkout", "-q", "--detach"]);
        g.write("detached.txt", "detached\n");
        g.commit("detached");
    }),
    ("intent to add", |g| {
        g.write("intent.txt", "intended\n");
        g.run(&["add", "-N", "intent.txt"]);
    }),
    ("assumed unchanged", |g| {
        g.run(&["update-index", "--assume-unchanged", "a.txt"]);
        g.write("a.txt", "hidden from git\n");
    }),
    ("sparse", |g| {
        g.run(&[
            "sparse-checkout",
            "set",
            "--no-cone",
            "/a.txt",
            "/.forge/",
            "/.gitignore",
        ]);
        g.write("b.txt", "outside of what is sparse\n");
    }),
    ("an unmerged path", |g| {
        g.run(&["checkout", "-q", "-b", "side"]);
        g.write("a.txt", "side\n");
        g.commit("side");
        g.run(&["checkout", "-q", "main"]);
        g.write("a.txt", "main\n");
        g.commit("main");
        let _ = std::process::Command::new("git")
            .args(["merge", "-q", "side"])
            .current_dir(g.path())
            .output();
    }),
    ("a submodule with changes", |g| {
        let inner = Fixture::new();
        g.run(&[
            "submodule",
            "add",
            "-q",
            inner.path().to_str().unwrap(),
            "module",
        ]);
        g.run(&["commit", "-q", "-m", "module"]);
        g.write("module/a.txt", "changed in the module\n");
        g.write("module/new.txt", "new in the module\n");
    }),
    ("a repository inside", |g| {
        g.run(&["init", "-q", "inner"]);
        g.write("inner/file.txt", "in another repository\n");
    }),
    ("names that are hard to write", |g| {
        g.write("with space.txt", "space\n");
        g.write("-dash", "dash\n");
        g.write(":(top)magic", "magic\n");
        g.write("line\nfeed.txt", "feed\n");
        g.write("ünïcode.txt", "unicode\n");
        g.write("*", "star\n");
    }),
    ("line ends and bytes", |g| {
        g.run(&["config", "core.autocrlf", "true"]);
        g.write("a.txt", "one\r\ntwo\nthree\r\n");
        g.write("binary", [0, 1, 2, 255, 254, 13, 10]);
    }),
    ("memory with changes", |g| {
        g.write(KNOWLEDGE, r#"{"schema_version":"1.0","patterns":{"successful":[],"failed":[]},"invariants":["new"]}"#);
        g.features(&[
            ("A-001", "failing"),
            ("A-002", "passing"),
            ("A-004", "passing"),
        ]);
        g.write(
            ".forge/memory/artifacts/docs/triv_abc123_x.md",
            "artifact\n",
        );
        g.write(".forge/memory/short-term/scratch/note.txt", "scratch\n");
        g.write(".forge/skills/x/skill.toml", "skill\n");
    }),
    ("a filter that drops a line", |g| {
        g.run(&["config", "filter.drop.clean", "sed /private/d"]);
        g.write(".git/info/attributes", "*.txt filter=drop\n");
        g.write("a.txt", "one\nprivate, and nowhere else\n");
        g.write("new.txt", "untracked\nprivate too\n");
    }),
    ("ends of lines by attribute", |g| {
        g.write(".git/info/attributes", "*.txt text=auto eol=crlf\n");
        g.write("a.txt", "one\r\nmixed\nthree\r\n");
        g.write("new.txt", "untracked\nmixed\r\n");
    }),
    ("another encoding", |g| {
        g.write(
            ".git/info/attributes",
            "/a.txt working-tree-encoding=UTF-16\n/new.txt working-tree-encoding=UTF-16\n",
        );
        // Big and little endian: git writes only one of them.
        g.write("a.txt", [0xfe, 0xff, 0, b'a', 0, b'\n']);
        g.write("new.txt", [0xff, 0xfe, b'b', 0, b'\n', 0]);
    }),
    ("an unborn branch", |g| {
        g.run(&["checkout", "-q", "--orphan", "unborn"]);
        g.write("a.txt", "on the unborn branch\n");
        g.run(&["add", "a.txt"]);
        g.write("a.txt", "and changed\n");
    }),
    ("detached at an older commit, with changes", |g| {
        g.run(&["checkout", "-q", "--detach", "HEAD^"]);
        g.write("a.txt", "changed\n");
        g.write("new.txt", "new\n");
    }),
    ("names that are no text", |g| {
        let odd = |folder: &str, text: &str| {
            let folder = g.path().join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(OsStr::from_bytes(b"odd\xff\xfe.md")), text).unwrap();
        };
        odd("", "odd name\n");
        odd("src", "odd name in a folder\n");
        odd(ARTIFACTS, "odd name in the memory\n");
    }),
];

/// Rolls back, and asserts that no byte is lost. `forge` is the folder of the memory.
fn goes_back(what: &str, root: &Path, forge: &str) {
    let mut before = bytes(root);
    let project = root.join(forge);
    let scope = format!(
        ":(top){}",
        forge.strip_suffix(".forge").unwrap().trim_end_matches('/')
    );
    let checkpoint = format!("checkpoint/{}A-1-v1", forge.strip_suffix(".forge").unwrap());
    match Recovery::new(&Fixture::open(project.parent().unwrap())).apply(&back()) {
        Ok(Applied {
            rollback: Some(done),
            ..
        }) => {
            assert!(
                !what.starts_with("an unmerged path") && !what.starts_with("an unborn"),
                "{what}"
            );
            let not_forge = format!(":(top,exclude){forge}");
            let code = run_at(
                root,
                &[
                    "diff",
                    "--name-only",
                    &done.made,
                    &checkpoint,
                    "--",
                    &scope,
                    &not_forge,
                ],
            );
            assert_eq!(code, "", "{what}: the code is not that of the checkpoint");
            if what.starts_with("names that are no text") {
                let carried = run_at(
                    root,
                    &[
                        "-c",
                        "core.quotePath=true",
                        "ls-tree",
                        "-r",
                        "--name-only",
                        &done.made,
                        ARTIFACTS,
                    ],
                );
                assert!(carried.contains("odd\\377\\376.md"), "{what}: {carried}");
            }
        }
        Err(error) if error.code == "E_UNKNOWN" => {
            assert!(what.starts_with("an unmerged path"), "{what}: {error}")
        }
        Err(error) if error.code == "E_REFUSED" => {
            assert!(what.starts_with("an unborn branch"), "{what}: {error}");
            // Nothing was done, so staged content is only in the index, as before.
            before = before.difference(&staged(root)).cloned().collect();
        }
        Ok(other) => panic!("{what}: {other:?}"),
        // An untracked file is in the place of a checkpoint's file.
        Err(error) => {
            assert_eq!(error.code, "E_IN_THE_WAY", "{what}: {error}");
            assert!(
                ["where the checkpoint has", "became a file"]
                    .iter()
                    .any(|why| what.contains(why)),
                "{what}: {error}"
            );
        }
    }
    nothing_is_lost(root, &before, what);
}

/// Rolls back from every other state, starting at this index.
fn every_other(from: usize) {
    assert!(STATES.len() >= 36);
    for (what, dirty) in STATES.iter().skip(from).step_by(2) {
        let fixture = with_checkpoint();
        dirty(&fixture);
        goes_back(what, fixture.path(), ".forge");
    }
}

// Two tests, so that they run in parallel.

#[test]
fn from_any_state_every_byte_is_reachable_or_on_disk() {
    every_other(0);
}

#[test]
fn from_any_other_state_every_byte_is_reachable_or_on_disk() {
    every_other(1);
}

fn some_changes(root: &Path) {
    std::fs::write(root.join("a.txt"), "staged\n").unwrap();
    run_at(root, &["add", "a.txt"]);
    std::fs::write(root.join("a.txt"), "changed after\n").unwrap();
    std::fs::write(root.join("new.txt"), "untracked\n").unwrap();
}

#[test]
fn nothing_is_lost_in_a_linked_work_tree() {
    let fixture = with_checkpoint();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("linked");
    fixture.run(&[
        "worktree",
        "add",
        "-q",
        "-b",
        "linked",
        root.to_str().unwrap(),
    ]);
    some_changes(&root);
    let main = (fixture.head(), bytes(fixture.path()));
    goes_back("a linked work tree", &root, ".forge");
    assert_eq!(fixture.head(), main.0);
    nothing_is_lost(fixture.path(), &main.1, "the main work tree");
}

#[test]
fn nothing_is_lost_where_objects_have_longer_names() {
    let fixture = Fixture::of(Repository::with_format("sha256"));
    Checkpoints::new(&fixture.project())
        .create(&Create {
            key: Some("A-1".into()),
            ..Create::default()
        })
        .unwrap();
    assert_eq!(fixture.head().len(), 64);
    some_changes(fixture.path());
    fixture.write(".git/info/attributes", "*.txt text eol=crlf\n");
    goes_back("names of 64 digits", fixture.path(), ".forge");
}

#[test]
fn nothing_is_lost_where_the_memory_lies_deeper() {
    let (repository, project) = super::below::begun();
    Checkpoints::new(&project)
        .create(&Create {
            key: Some("A-1".into()),
            ..Create::default()
        })
        .unwrap();
    some_changes(repository.path());
    repository.write("sub/a.txt", "changed below\n");
    repository.write("sub/.forge/memory/artifacts/docs/note.md", "noted\n");
    goes_back("a memory further down", repository.path(), "sub/.forge");
}
