//! The commit that a work tree has checked out, read from git's files without running git.
//!
//! This never fails: a folder without git, or with files of git that are not understood, has no
//! commit.

use std::fs;
use std::io::Read;
use std::path::Path;

use crate::discover::linked;

/// Size limit for a file of git, in bytes.
///
/// `packed-refs` of a large repository has tens of thousands of lines.
const MAX_BYTES: u64 = 16 << 20;

/// Returns the folder with `.git`: the given one or the nearest above it.
#[must_use]
pub fn work_tree(folder: &Path) -> Option<&Path> {
    folder
        .ancestors()
        .find(|folder| folder.join(".git").exists())
}

/// Returns the commit that is checked out, as hex digits.
///
/// `None` without git or before the first commit.
///
/// See gitrepository-layout(5): a worktree or submodule has a file `.git` that names its folder,
/// and its branches are in the folder that its `commondir` names.
#[must_use]
pub fn commit(work_tree: &Path) -> Option<String> {
    let dot_git = work_tree.join(".git");
    let own = match read(&dot_git) {
        Some(text) => linked(&text, "gitdir: ", work_tree)?,
        None => dot_git,
    };
    let common = read(&own.join("commondir"))
        .and_then(|text| linked(&text, "", &own))
        .unwrap_or_else(|| own.clone());
    let head = read(&own.join("HEAD"))?;
    let Some(name) = head.strip_prefix("ref:").map(str::trim) else {
        return id(&head);
    };
    // The name becomes part of a path; git itself refuses names with "..".
    if name.starts_with('/') || name.contains("..") {
        return None;
    }
    [&own, &common]
        .into_iter()
        .find_map(|folder| id(&read(&folder.join(name))?))
        .or_else(|| {
            read(&common.join("packed-refs"))?.lines().find_map(|line| {
                let (id, branch) = line.split_once(' ')?;
                if branch.trim() == name {
                    self::id(id)
                } else {
                    None
                }
            })
        })
}

fn read(file: &Path) -> Option<String> {
    if !fs::metadata(file).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    fs::File::open(file)
        .ok()?
        .take(MAX_BYTES)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

/// Returns the object id of a line: 40 (SHA-1) or 64 (SHA-256) hex digits.
fn id(text: &str) -> Option<String> {
    let text = text.trim();
    (matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "1111111111111111111111111111111111111111";
    const TWO: &str = "2222222222222222222222222222222222222222";

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        folder
    }

    #[test]
    fn commit_is_read_loose_packed_detached_and_in_a_worktree() {
        let loose = tree(&[
            (".git/HEAD", "ref: refs/heads/main\n"),
            (".git/refs/heads/main", &format!("{ONE}\n")),
        ]);
        assert_eq!(commit(loose.path()).unwrap(), ONE);

        let packed = tree(&[
            (".git/HEAD", "ref: refs/heads/main\n"),
            (
                ".git/packed-refs",
                &format!("# pack-refs\n{TWO} refs/heads/main2\n{ONE} refs/heads/main\n^{TWO}\n"),
            ),
        ]);
        assert_eq!(commit(packed.path()).unwrap(), ONE);

        let detached = tree(&[(".git/HEAD", ONE)]);
        assert_eq!(commit(detached.path()).unwrap(), ONE);

        let linked = tree(&[
            ("main/.git/worktrees/side/HEAD", "ref: refs/heads/side\n"),
            ("main/.git/worktrees/side/commondir", "../..\n"),
            ("main/.git/refs/heads/side", TWO),
            ("side/.git", "gitdir: ../main/.git/worktrees/side\n"),
        ]);
        assert_eq!(commit(&linked.path().join("side")).unwrap(), TWO);
    }

    #[test]
    fn unknown_files_have_no_commit() {
        assert_eq!(commit(tree(&[]).path()), None);
        assert_eq!(
            commit(tree(&[(".git/HEAD", "ref: refs/heads/main\n")]).path()),
            None
        );
        assert_eq!(
            commit(tree(&[(".git/HEAD", "ref: ../../secret\n"), ("secret", ONE)]).path()),
            None
        );
        assert_eq!(commit(tree(&[(".git/HEAD", "garbage")]).path()), None);
        assert_eq!(commit(tree(&[(".git", "not a pointer")]).path()), None);
    }

    #[test]
    fn work_tree_is_the_nearest_folder_with_git() {
        let outer = tree(&[(".git/HEAD", ONE), ("a/b/x.rs", "")]);
        assert_eq!(work_tree(&outer.path().join("a/b")), Some(outer.path()));
    }
}
