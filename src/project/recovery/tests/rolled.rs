//! Going back, from thirty states of the work tree, and what must be there afterwards.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::ground::{FEATURES, Ground, KNOWLEDGE, feed};
use crate::checkpoints::Create;
use crate::git::fixture::run_at;
use crate::recovery::{Applied, Apply, Mode};

/// Returns all files and links below a folder.
pub(super) fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            all.extend(walk(&entry.path()));
        } else {
            all.push(entry.path());
        }
    }
    all
}

/// Returns the names, as blobs of git, of all that lies on disk, but for git's own files and what belongs to this clone alone.
fn on_disk(root: &Path) -> BTreeSet<String> {
    let (mut files, mut found) = (String::new(), BTreeSet::new());
    for path in walk(root) {
        let below = path.strip_prefix(root).unwrap();
        let local = below.starts_with(".forge/.local") && !below.starts_with(".forge/.local/worktrees");
        // The progress is only ever added to.
        let local = local || below == Path::new(crate::layout::PROGRESS);
        if local || below.components().any(|part| part.as_os_str() == ".git") {
            continue;
        }
        let text = path.to_str().unwrap();
        if path.is_symlink() {
            let target = std::fs::read_link(&path).unwrap();
            found.insert(feed(root, &["hash-object", "--stdin"], target.to_str().unwrap()));
        } else if text.contains('\n') {
            found.insert(run_at(root, &["hash-object", "--no-filters", "--", text]));
        } else {
            files.push_str(&format!("{text}\n"));
        }
    }
    let hashes = feed(root, &["hash-object", "--no-filters", "--stdin-paths"], &files);
    found.extend(hashes.lines().map(str::to_owned));
    found
}

/// Returns the names of all objects to which a reference leads.
fn reachable(root: &Path) -> BTreeSet<String> {
    let all = run_at(root, &["rev-list", "--objects", "--all"]);
    all.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Returns every byte that must not be lost: on disk, staged, or in a commit.
pub(super) fn bytes(root: &Path) -> BTreeSet<String> {
    let mut all = staged(root);
    all.extend(on_disk(root));
    all.extend(reachable(root));
    all.insert(run_at(root, &["rev-parse", "HEAD"]));
    all
}

/// Returns what is staged. What is only intended to be added stands there without bytes.
pub(super) fn staged(root: &Path) -> BTreeSet<String> {
    let staged = run_at(root, &["ls-files", "-s"]);
    let staged = staged.lines().filter(|line| !line.starts_with("160000")).filter_map(|line| line.split(' ').nth(1));
    staged.filter(|oid| *oid != EMPTY).map(str::to_owned).collect()
}

/// The blob without bytes.
const EMPTY: &str = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";

/// Wants every byte to be there still.
pub(super) fn nothing_is_lost(root: &Path, before: &BTreeSet<String>, what: &str) {
    let (mut now, disk) = (reachable(root), on_disk(root));
    now.extend(disk);
    if let Some(lost) = before.difference(&now).next() {
        let content = run_at(root, &["cat-file", "-p", lost]);
        panic!("{what}: {lost} is neither on disk nor reachable: {content}");
    }
}

/// Returns a project with a checkpoint. It is made once, and copied.
pub(super) fn with_checkpoint() -> Ground {
    static FIRST: LazyLock<Ground> = LazyLock::new(|| {
        let ground = Ground::new();
        ground.write("run.sh", "#!/bin/sh\n");
        ground.commit("second");
        let asked = Create { key: Some("A-1".into()), ..Create::default() };
        ground.project().checkpoints().create(&asked).unwrap();
        ground.commit("the manifest");
        ground
    });
    FIRST.copy()
}

pub(super) fn back(mode: Mode) -> Apply {
    Apply { mode: Some(mode), checkpoint: Some("A-1-v1".into()), why: Some("a test".into()), worktree: None }
}

type Dirty = (&'static str, fn(&Ground));

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
    ("deleted", |g| std::fs::remove_file(g.path().join("a.txt")).unwrap()),
    ("deletion staged", |g| drop(g.run(&["rm", "-q", "a.txt"]))),
    ("renamed", |g| drop(g.run(&["mv", "a.txt", "renamed.txt"]))),
    ("renamed and changed", |g| {
        g.run(&["mv", "a.txt", "renamed.txt"]);
        g.write("renamed.txt", "renamed and changed\n");
    }),
    ("mode", |g| {
        std::fs::set_permissions(g.path().join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    }),
    ("a link", |g| symlink("a.txt", g.path().join("link")).unwrap()),
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
        g.run(&["sparse-checkout", "set", "--no-cone", "/a.txt", "/.forge/", "/.gitignore"]);
        g.write("b.txt", "outside of what is sparse\n");
    }),
    ("an unmerged path", |g| {
        g.run(&["checkout", "-q", "-b", "side"]);
        g.write("a.txt", "side\n");
        g.commit("side");
        g.run(&["checkout", "-q", "main"]);
        g.write("a.txt", "main\n");
        g.commit("main");
        let _ = std::process::Command::new("git").args(["merge", "-q", "side"]).current_dir(g.path()).output();
    }),
    ("a submodule with changes", |g| {
        let inner = Ground::new();
        g.run(&["submodule", "add", "-q", inner.path().to_str().unwrap(), "module"]);
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
        g.features(&[("A-001", "failing"), ("A-002", "passing"), ("A-004", "passing")]);
        g.write(".forge/memory/artifacts/docs/triv_abc123_x.md", "artifact\n");
        g.write(".forge/memory/short-term/scratch/note.txt", "scratch\n");
        g.write(".forge/skills/x/skill.toml", "skill\n");
    }),
];

#[test]
fn from_any_state_every_byte_is_reachable_or_on_disk() {
    assert!(STATES.len() >= 30);
    for (what, dirty) in STATES {
        for mode in [Mode::Branch, Mode::Restore] {
            let ground = with_checkpoint();
            dirty(&ground);
            let before = bytes(ground.path());
            let status = ground.run(&["status", "--porcelain=v2", "--untracked-files=all", "--", ":/", ":!.forge"]);
            let branch_before = std::fs::read_to_string(ground.path().join(".git/HEAD")).unwrap();
            let what = format!("{what}, {mode:?}");
            match ground.project().recovery().apply(&back(mode)) {
                Ok(Applied { rollback: Some(done), .. }) => {
                    assert!(done.rescue.is_some(), "{what}");
                    if done.worktree.is_some() {
                        // Nothing here was touched.
                        let head = std::fs::read_to_string(ground.path().join(".git/HEAD")).unwrap();
                        assert_eq!(head, branch_before, "{what}");
                        let args = ["status", "--porcelain=v2", "--untracked-files=all", "--", ":/", ":!.forge"];
                        assert_eq!(ground.run(&args), status, "{what}");
                    }
                    let made = done.made.unwrap();
                    let code = ground.run(&["diff", "--name-only", &made, "checkpoint/A-1-v1", "--", ":/", ":!.forge"]);
                    assert_eq!(code, "", "{what}: the code is not that of the checkpoint");
                }
                Err(error) if error.code == "E_UNKNOWN" => {
                    assert!(what.starts_with("an unmerged path"), "{what}: {error}")
                }
                Ok(other) => panic!("{what}: {other:?}"),
                Err(error) => assert_eq!((mode, error.code), (Mode::Restore, "E_IN_THE_WAY"), "{what}: {error}"),
            }
            nothing_is_lost(ground.path(), &before, &what);
        }
    }
}

fn lessons(text: &str) -> Vec<String> {
    let file: serde_json::Value = serde_json::from_str(text).unwrap();
    let all = file["patterns"]["failed"].as_array().unwrap();
    all.iter().map(|entry| format!("{}: {}", entry["context"], entry["issue"])).collect()
}

#[test]
fn a_clean_tree_is_switched_in_place_and_learning_survives() {
    let ground = with_checkpoint();
    ground.write("a.txt", "wrong way\n");
    ground.write(
        KNOWLEDGE,
        r#"{"schema_version":"1.0","patterns":{"successful":[{"context":"c","approach":"a","learned_at":"2025-12-24T10:30:00Z"}],"failed":[]},"invariants":["Stay kind"]}"#,
    );
    ground.write(".forge/linear/history/A-9.json", "{}\n");
    ground.features(&[("A-001", "failing"), ("A-002", "passing"), ("A-003", "passing"), ("A-004", "passing")]);
    ground.commit("wrong way");
    let wrong = ground.head();
    let applied = ground.project().recovery().apply(&back(Mode::Branch)).unwrap();
    let done = applied.rollback.unwrap();
    assert_eq!(done.worktree, None);
    assert_eq!(ground.run(&["branch", "--show-current"]), "forge/rollback/A-1-v1-1");
    assert_eq!(ground.run(&["rev-parse", "HEAD^"]), ground.run(&["rev-parse", "checkpoint/A-1-v1^{commit}"]));
    assert_eq!(ground.run(&["rev-parse", "main"]), wrong, "no branch is moved");
    assert_eq!(ground.read("a.txt"), "one\ntwo\nthree\n");
    assert!(ground.read(KNOWLEDGE).contains("\"approach\": \"a\""));
    assert!(ground.path().join(".forge/linear/history/A-9.json").exists());
    let lessons = lessons(&ground.read(KNOWLEDGE));
    assert_eq!(lessons.len(), 1, "{lessons:?}");
    assert!(lessons[0].contains("A-1-v1") && lessons[0].contains("a test"), "{lessons:?}");
    let features: serde_json::Value = serde_json::from_str(&ground.read(FEATURES)).unwrap();
    let of =
        |at: usize| (features["features"][at]["status"].as_str(), features["features"][at]["regressed_at"].is_string());
    assert_eq!(
        [of(0), of(1), of(2), of(3)],
        [
            (Some("passing"), true),
            (Some("passing"), false),
            (Some("not_implemented"), true),
            (Some("not_implemented"), true)
        ]
    );
    assert_eq!(ground.run(&["status", "--porcelain"]), "");
    let rescued = ground.run(&["show", "refs/forge/rescue/manual/1:a.txt"]);
    assert_eq!(rescued, "wrong way");
    // There is nothing more to do.
    let again = ground.project().recovery().apply(&Apply::default()).unwrap();
    assert_eq!((again.rollback, again.resumed), (None, false));
}

#[test]
fn a_dirty_tree_stays_and_work_goes_on_in_another() {
    let ground = with_checkpoint();
    ground.write("a.txt", "staged\n");
    ground.run(&["add", "a.txt"]);
    ground.write("new.txt", "untracked\n");
    let index = std::fs::read(ground.path().join(".git/index")).unwrap();
    let done = ground.project().recovery().apply(&back(Mode::Branch)).unwrap().rollback.unwrap();
    assert!(std::fs::read(ground.path().join(".git/index")).unwrap() == index, "the index was written");
    let folder = PathBuf::from(done.worktree.unwrap());
    assert_eq!(std::fs::read_to_string(folder.join("a.txt")).unwrap(), "one\ntwo\nthree\n");
    assert!(!folder.join("new.txt").exists());
    assert_eq!(run_at(&folder, &["branch", "--show-current"]), done.target.unwrap());
    for knowledge in [folder.join(KNOWLEDGE), ground.path().join(KNOWLEDGE)] {
        assert_eq!(lessons(&std::fs::read_to_string(knowledge).unwrap()).len(), 1);
    }
    assert_eq!(ground.read("a.txt"), "staged\n");
    // The same again takes other names.
    let again = ground.project().recovery().apply(&back(Mode::Branch)).unwrap().rollback.unwrap();
    assert_eq!(again.target.as_deref(), Some("forge/rollback/A-1-v1-2"));
    assert_eq!(again.rescue.as_deref(), Some("refs/forge/rescue/manual/2"));
}

#[test]
fn no_hook_runs_while_one_goes_back() {
    let ground = with_checkpoint();
    for hook in ["post-checkout", "post-commit", "pre-commit", "reference-transaction"] {
        let path = ground.path().join(".git/hooks").join(hook);
        ground.write(
            &format!(".git/hooks/{hook}"),
            format!("#!/bin/sh\necho {hook} >> {}/ran\n", ground.path().display()),
        );
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    ground.run(&["-c", "core.hooksPath=/dev/null", "commit", "-q", "--allow-empty", "-m", "x"]);
    ground.project().recovery().apply(&back(Mode::Branch)).unwrap();
    let ran = std::fs::read_to_string(ground.path().join("ran")).unwrap_or_default();
    assert!(!ran.contains("checkout") && !ran.contains("commit"), "{ran}");
}

#[test]
fn a_restore_goes_forward_on_the_same_branch_and_leaves_what_is_untracked() {
    let ground = with_checkpoint();
    ground.write("a.txt", "wrong\n");
    ground.write("more.txt", "more\n");
    ground.commit("wrong");
    let wrong = ground.head();
    ground.write("a.txt", "worse\n");
    ground.write("new.txt", "untracked\n");
    ground.write("x.ignored", "ignored\n");
    ground.features(&[("A-001", "failing"), ("A-002", "passing"), ("A-003", "not_implemented")]);
    let done = ground.project().recovery().apply(&back(Mode::Restore)).unwrap().rollback.unwrap();
    assert_eq!((done.target.as_deref(), done.worktree), (Some("main"), None));
    assert_eq!(ground.run(&["rev-parse", "HEAD^"]), wrong);
    assert_eq!(ground.read("a.txt"), "one\ntwo\nthree\n");
    assert!(!ground.path().join("more.txt").exists());
    assert_eq!((ground.read("new.txt").as_str(), ground.read("x.ignored").as_str()), ("untracked\n", "ignored\n"));
    assert_eq!(ground.run(&["status", "--porcelain", "--", ":/", ":!.forge"]), "?? new.txt");
    let features: serde_json::Value = serde_json::from_str(&ground.read(FEATURES)).unwrap();
    assert_eq!(features["features"][0]["status"], "passing");
    assert_eq!(lessons(&ground.read(KNOWLEDGE)).len(), 1);
    assert_eq!(ground.run(&["show", "refs/forge/rescue/manual/1:a.txt"]), "worse");
}

#[test]
fn major_is_rolled_back_and_minor_is_not() {
    let ground = with_checkpoint();
    ground.write("a.txt", "x\n");
    let applied = ground.project().recovery().apply(&Apply::default()).unwrap();
    assert_eq!((applied.rollback, applied.report.unwrap().row), (None, 4));
    ground.features(&[("A-001", "failing"), ("A-002", "failing")]);
    let applied = ground.project().recovery().apply(&Apply::default()).unwrap();
    let done = applied.rollback.unwrap();
    assert_eq!((done.row, done.regressions.len()), (2, 2));
    assert!(done.why.contains("A-001, A-002"), "{}", done.why);
    let error = ground.project().recovery().apply(&Apply { checkpoint: Some("A-1-v9".into()), ..Apply::default() });
    assert_eq!(error.unwrap_err().category.exit_code(), 3);
}
