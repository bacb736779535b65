use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::super::fixture::{Repository, run_at};
use super::*;

/// Fixture: a repository with some committed files.
fn repository() -> Repository {
    let repository = Repository::new();
    for path in ["a", "b", "dir/c", "dir/d"] {
        repository.write(path, format!("{path} committed\n"));
    }
    repository.write(".gitignore", "ignored\n");
    repository.commit("first");
    repository
}

/// The state that a rescue must not change.
fn state(repository: &Repository) -> (Option<Vec<u8>>, String, String, String) {
    (
        fs::read(repository.path().join(".git/index")).ok(),
        fs::read_to_string(repository.path().join(".git/HEAD")).unwrap(),
        // Do not refresh the index: that would be a change by the test.
        run_at(
            repository.path(),
            &[
                "--no-optional-locks",
                "status",
                "--porcelain=v2",
                "--untracked-files=all",
                "--branch",
            ],
        ),
        repository.run(&["for-each-ref", "refs/heads", "refs/tags", "refs/stash"]),
    )
}

/// Returns the contents that are reachable from references.
fn held(repository: &Repository) -> BTreeSet<String> {
    repository
        .run(&["rev-list", "--objects", "--all"])
        .lines()
        .map(|line| line[..40].to_owned())
        .collect()
}

/// Rescues; asserts that nothing changed, and that all of these contents are reachable.
fn rescued(repository: &Repository, contents: &[&str]) -> Rescue {
    let before = state(repository);
    let rescue = Repository::bare_git_at(repository.path())
        .rescue("2025-12-24-session-001/1", "rescue\n")
        .unwrap();
    assert_eq!(state(repository), before);
    let held = held(repository);
    let hash = |content: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("content");
        fs::write(&path, content).unwrap();
        repository.run(&["hash-object", "--no-filters", path.to_str().unwrap()])
    };
    for content in contents {
        assert!(held.contains(&hash(content)), "lost: {content:?}");
    }
    rescue
}

#[test]
fn staged_and_unstaged_and_untracked_bytes_are_held() {
    let repository = repository();
    repository.write("a", "staged\n");
    repository.run(&["add", "a"]);
    repository.write("a", "unstaged\n");
    repository.write("new", "untracked\n");
    repository.write("added", "added, then removed from disk\n");
    repository.run(&["add", "added"]);
    fs::remove_file(repository.path().join("added")).unwrap();
    repository.write("ignored", "stays on disk\n");
    let rescue = rescued(
        &repository,
        &[
            "staged\n",
            "unstaged\n",
            "untracked\n",
            "added, then removed from disk\n",
        ],
    );
    let show = |path: &str| repository.run(&["show", &format!("{}:{path}", rescue.commit)]);
    assert_eq!(
        (show("a"), show("new"), show("b")),
        ("unstaged".into(), "untracked".into(), "b committed".into())
    );
    let files = repository.run(&["ls-tree", "-r", "--name-only", rescue.commit.as_str()]);
    assert!(
        !files.contains("ignored\n") && !files.contains("added"),
        "{files}"
    );
    assert_eq!(
        repository.run(&["show", &format!("{}:a", rescue.index)]),
        "staged"
    );
}

#[test]
fn git_itself_takes_it_for_an_entry_of_the_stash() {
    let repository = repository();
    repository.write("a", "staged\n");
    repository.run(&["add", "a"]);
    repository.write("b", "unstaged\n");
    let rescue = rescued(&repository, &["staged\n", "unstaged\n"]);
    let other = tempfile::tempdir().unwrap();
    let path = other.path().join("tree");
    repository.run(&[
        "worktree",
        "add",
        "--quiet",
        "--detach",
        path.to_str().unwrap(),
        rescue.head.unwrap().as_str(),
    ]);
    run_at(
        &path,
        &[
            "stash",
            "apply",
            "--quiet",
            "--index",
            rescue.commit.as_str(),
        ],
    );
    assert_eq!(run_at(&path, &["status", "--porcelain"]), "M  a\n M b");
}

#[test]
fn renames_modes_links_and_deletions_are_held() {
    let repository = repository();
    repository.run(&["mv", "a", "renamed"]);
    fs::set_permissions(
        repository.path().join("b"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    fs::remove_file(repository.path().join("dir/c")).unwrap();
    symlink("where it points", repository.path().join("link")).unwrap();
    // Replace a file by a folder, and a folder by a file.
    fs::remove_dir_all(repository.path().join("dir")).unwrap();
    repository.write("dir", "file now\n");
    let rescue = rescued(&repository, &["file now\n", "where it points"]);
    let tree = repository.run(&["ls-tree", "-r", rescue.commit.as_str()]);
    let short: Vec<_> = tree
        .lines()
        .map(|line| format!("{}{}", &line[..6], &line[52..]))
        .collect();
    assert_eq!(
        short,
        [
            "100644\t.gitignore",
            "100755\tb",
            "100644\tdir",
            "120000\tlink",
            "100644\trenamed"
        ]
    );
}

#[test]
fn paths_that_git_is_told_not_to_look_at_are_held() {
    let repository = repository();
    repository.run(&["update-index", "--assume-unchanged", "a"]);
    repository.run(&["update-index", "--skip-worktree", "b"]);
    repository.write("a", "assumed unchanged\n");
    repository.write("b", "skipped\n");
    repository.write("intent", "to add\n");
    repository.run(&["add", "--intent-to-add", "intent"]);
    rescued(
        &repository,
        &["assumed unchanged\n", "skipped\n", "to add\n"],
    );
}

#[test]
fn a_sparse_work_tree_is_held_and_stays_sparse() {
    let repository = repository();
    repository.run(&["sparse-checkout", "set", "--cone", "other"]);
    assert!(!repository.path().join("dir/c").exists());
    repository.write("dir/outside", "outside of the cone\n");
    repository.write("a", "inside\n");
    let rescue = rescued(&repository, &["outside of the cone\n", "inside\n"]);
    assert_eq!(
        repository.run(&["show", &format!("{}:dir/c", rescue.commit)]),
        "dir/c committed"
    );
    assert!(!repository.path().join("dir/c").exists());
}

#[test]
fn both_sides_of_a_conflict_are_held() {
    let repository = repository();
    repository.run(&["switch", "--quiet", "-c", "side"]);
    repository.write("a", "theirs\n");
    repository.commit("side");
    repository.run(&["switch", "--quiet", "main"]);
    repository.write("a", "ours\n");
    repository.commit("main");
    repository.refused(&["merge", "side"]);
    repository.write("a", "half resolved\n");
    let rescue = rescued(
        &repository,
        &["theirs\n", "ours\n", "a committed\n", "half resolved\n"],
    );
    let staged = repository.run(&["ls-tree", "-r", "--name-only", rescue.index.as_str()]);
    assert!(staged.contains(".forge-unmerged/3/a"), "{staged}");
    assert_eq!(
        repository.run(&["show", &format!("{}:a", rescue.commit)]),
        "half resolved"
    );
}

#[test]
fn repositories_inside_are_left_on_disk() {
    let repository = repository();
    let module = Repository::new();
    module.write("m", "module\n");
    module.commit("module");
    repository.run(&[
        "submodule",
        "--quiet",
        "add",
        module.path().to_str().unwrap(),
        "module",
    ]);
    repository.commit("submodule");
    repository.write("module/m", "changed in the module\n");
    repository.write("inner/x", "inner\n");
    run_at(&repository.path().join("inner"), &["init", "--quiet"]);
    repository.write("a", "changed\n");
    let rescue = rescued(&repository, &["changed\n"]);
    assert_eq!(rescue.left, ["inner/"]);
    assert_eq!(
        fs::read_to_string(repository.path().join("module/m")).unwrap(),
        "changed in the module\n"
    );
    let tree = repository.run(&["ls-tree", rescue.commit.as_str()]);
    assert!(tree.contains("160000") && !tree.contains("inner"), "{tree}");
}

#[test]
fn content_is_taken_as_it_is() {
    let repository = repository();
    repository.run(&["config", "core.autocrlf", "true"]);
    repository.run(&["config", "core.safecrlf", "true"]);
    repository.write("crlf", "one\r\ntwo\n");
    repository.write("name\nwith \"marks\" *", "odd name\n");
    rescued(&repository, &["one\r\ntwo\n", "odd name\n"]);
}

#[test]
fn there_need_be_no_commit_and_no_identity() {
    let repository = Repository::new();
    repository.write("a", "never staged\n");
    let rescue = rescued(&repository, &["never staged\n"]);
    assert_eq!(rescue.head, None);
    let who = repository.run(&[
        "log",
        "-1",
        "--format=%an <%ae> %cn",
        rescue.commit.as_str(),
    ]);
    assert_eq!(who, "forge-agent <forge-agent@localhost> forge-agent");
}

#[test]
fn a_linked_work_tree_is_rescued_from_its_own_index() {
    let repository = repository();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tree");
    repository.run(&[
        "worktree",
        "add",
        "--quiet",
        "-b",
        "other",
        path.to_str().unwrap(),
    ]);
    fs::write(path.join("a"), "in the other tree\n").unwrap();
    repository.write("a", "in the main tree\n");
    let rescue = Repository::bare_git_at(&path).rescue("s/1", "m\n").unwrap();
    assert_eq!(
        repository.run(&["show", &format!("{}:a", rescue.commit)]),
        "in the other tree"
    );
    assert_eq!(
        repository.run(&["rev-parse", "refs/forge/rescue/s/1"]),
        rescue.commit.as_str()
    );
}

#[test]
fn what_cannot_be_written_stops_the_rescue() {
    let repository = repository();
    let git = repository.git();
    git.rescue("s/1", "m\n").unwrap();
    assert_eq!(git.rescue("s/1", "m\n").unwrap_err().code, "E_REFUSED");
    assert_eq!(git.rescue("s/../1", "m\n").unwrap_err().code, "E_USAGE");
    fs::remove_dir_all(repository.path().join(".git/objects")).unwrap();
    let before = fs::read(repository.path().join(".git/index")).unwrap();
    assert_eq!(
        git.rescue("s/2", "m\n").unwrap_err().category,
        Category::Failed
    );
    assert_eq!(
        fs::read(repository.path().join(".git/index")).unwrap(),
        before
    );
    let left = fs::read_dir(repository.path().join(".git")).unwrap();
    assert!(
        left.filter_map(Result::ok)
            .all(|entry| !entry.file_name().to_string_lossy().contains("rescue"))
    );
}

#[test]
fn a_file_changed_in_the_same_tick_as_the_index_is_held() {
    let repository = repository();
    // Same size and time as the staged file; only the time of the index shows that it must be
    // compared.
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(86_400);
    let path = repository.path().join("a");
    let age = |path: &std::path::Path| {
        fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(old)
            .unwrap()
    };
    age(&path);
    repository.run(&["update-index", "--refresh"]);
    let content = "A COMMITTED\n";
    assert_eq!(content.len(), fs::read(&path).unwrap().len());
    fs::write(&path, content).unwrap();
    age(&path);
    age(&repository.path().join(".git/index"));
    repository.run(&["config", "core.trustctime", "false"]);
    rescued(&repository, &[content]);
}

#[test]
fn bytes_that_a_filter_or_an_end_of_line_drops_are_held() {
    let repository = repository();
    // This filter drops lines for good; the other one is reversible.
    repository.run(&["config", "filter.strip.clean", "grep -v OUTPUT || :"]);
    repository.run(&["config", "filter.turn.clean", "rev"]);
    repository.run(&["config", "filter.turn.smudge", "rev"]);
    repository.run(&["config", "filter.broken.clean", "cat"]);
    repository.run(&["config", "filter.broken.smudge", "false"]);
    repository.run(&["config", "filter.broken.required", "true"]);
    let attributes = "*.nb filter=strip\n*.turn filter=turn\n*.txt text eol=lf\n*.dos text eol=crlf\n*.u16 \
                      working-tree-encoding=UTF-16LE\n*.no filter=broken\n*.id ident\n";
    repository.write(".gitattributes", attributes);
    repository.write("kept.nb", "cell\n");
    repository.write("same.nb", "cell\nOUTPUT as committed\n");
    repository.write("dir/a.turn", "turned\n");
    repository.commit("filters");
    // git considers both clean, because it compares the output of the filter.
    repository.write("kept.nb", "cell\nOUTPUT of hours\n");
    repository.write("new.nb", "new\nOUTPUT of a new one\n");
    repository.write("mixed.txt", "one\r\ntwo\n");
    repository.write("mixed.dos", "three\r\nfour\n");
    repository.write("pure.dos", "five\r\nsix\r\n");
    repository.write("dir/a.turn", "turned twice\n");
    repository.write("w.u16", [b'w', 0, b'\n', 0]);
    repository.write("x.no", "no way back\n");
    repository.write("x.id", "$Id: mine $\n");
    fs::set_permissions(
        repository.path().join("new.nb"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    let rescue = rescued(
        &repository,
        &[
            "cell\nOUTPUT of hours\n",
            "cell\nOUTPUT as committed\n",
            "new\nOUTPUT of a new one\n",
            "one\r\ntwo\n",
            "three\r\nfour\n",
            "$Id: mine $\n",
        ],
    );
    // A reversible file needs no second copy: secrets of git-crypt, large files of LFS.
    assert_eq!(
        rescue.raw,
        [
            "kept.nb",
            "mixed.dos",
            "mixed.txt",
            "new.nb",
            "same.nb",
            "x.id"
        ]
    );
    let tree = repository.run(&["ls-tree", "-r", rescue.commit.as_str()]);
    assert!(
        tree.contains("\t.forge-raw/kept.nb") && !tree.contains(".forge-raw/dir"),
        "{tree}"
    );
    assert!(
        tree.lines()
            .any(|line| line.starts_with("100755") && line.ends_with(".forge-raw/new.nb")),
        "{tree}"
    );
    for ignored in ["*.txt", "*"] {
        repository.write(".gitattributes", format!("{ignored} -text\n"));
        assert_eq!(
            repository
                .git()
                .rescue(&format!("t/{}", ignored.len()), "m\n")
                .unwrap()
                .raw,
            [""; 0]
        );
    }
}

#[test]
fn what_auto_crlf_dropped_from_a_clean_file_is_held() {
    let repository = repository();
    repository.run(&["config", "core.autocrlf", "true"]);
    repository.run(&["config", "core.safecrlf", "false"]);
    repository.write("mixed", "one\r\ntwo\n");
    repository.write("pure", "one\r\nthree\r\n");
    // Older than the index, so git does not compare it again.
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for name in ["mixed", "pure"] {
        fs::File::options()
            .write(true)
            .open(repository.path().join(name))
            .unwrap()
            .set_modified(old)
            .unwrap();
    }
    repository.commit("mixed");
    assert_eq!(repository.run(&["status", "--porcelain"]), "");
    // The files of the first commit have no CR on disk, and a checkout would add it.
    let raw = rescued(&repository, &["one\r\ntwo\n"]).raw;
    assert!(
        raw.contains(&"mixed".to_owned()) && !raw.contains(&"pure".to_owned()),
        "{raw:?}"
    );
}

#[test]
fn no_hook_of_the_user_has_a_say_in_a_rescue() {
    let repository = repository();
    let folder = repository.path().join(".git/hooks");
    fs::create_dir_all(&folder).unwrap();
    let trace = repository.path().join(".git/started");
    for name in ["reference-transaction", "post-index-change", "pre-commit"] {
        fs::write(
            folder.join(name),
            format!("#!/bin/sh\ntouch {}\nexit 1\n", trace.display()),
        )
        .unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    repository.write("a", "changed\n");
    Repository::bare_git_at(repository.path())
        .rescue("s/1", "m\n")
        .unwrap();
    assert!(!trace.exists());
}
