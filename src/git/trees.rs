//! Trees without the excluded folder, and commits made without the work tree.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use helmdeck_core::hex;

use crate::error::{Error, Result};
use crate::objects::digest;
use crate::oid::Oid;
use crate::repository::Git;
use crate::run::Run;

/// An entry of a tree, as git stores it.
struct TreeEntry<'a> {
    name: &'a [u8],
    /// Mode, name and object.
    bytes: &'a [u8],
}

impl Git {
    /// Returns the id of a commit's tree without the excluded folder.
    ///
    /// Nothing is written, so the object may not exist.
    ///
    /// # Errors
    /// `E_GIT` if the commit does not exist.
    pub fn code_tree(&self, commit: &Oid) -> Result<String> {
        self.code_tree_of(&format!("{commit}^{{tree}}"))
    }

    /// Returns the id of a tree without the excluded folder, for any name of the tree.
    ///
    /// # Errors
    /// `E_GIT` if the tree does not exist.
    pub fn code_tree_of(&self, tree: &str) -> Result<String> {
        let path: Vec<&str> = self.excluded().split('/').collect();
        let hash_bytes = self.hash_bytes()?;
        Ok(id(&self.without(tree, &path, hash_bytes)?, hash_bytes))
    }

    /// Returns the content of a tree without the entry at a path.
    fn without(&self, tree: &str, path: &[&str], hash_bytes: usize) -> Result<Vec<u8>> {
        let bytes = self.read(&["cat-file", "tree", tree])?.stdout;
        let mut kept = Vec::new();
        for entry in entries(&bytes, hash_bytes) {
            match path {
                [first, rest @ ..] if entry.name == first.as_bytes() => {
                    let (head, oid) = entry.bytes.split_at(entry.bytes.len() - hash_bytes);
                    if !rest.is_empty() && head.starts_with(b"40000 ") {
                        let inner = self.without(&hex(oid), rest, hash_bytes)?;
                        // git has no empty folders.
                        if !inner.is_empty() {
                            kept.extend_from_slice(head);
                            kept.extend_from_slice(&digest("tree", &inner, hash_bytes));
                        }
                    } else if !rest.is_empty() {
                        kept.extend_from_slice(entry.bytes);
                    }
                }
                _ => kept.extend_from_slice(entry.bytes),
            }
        }
        Ok(kept)
    }

    /// Returns the code trees of several commits. Unknown commits are left out.
    ///
    /// This takes one run of git if the excluded folder is at the root.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn code_trees(&self, commits: &[Oid]) -> Result<HashMap<Oid, String>> {
        if self.excluded().contains('/') {
            // The trees on the path are read one by one.
            let trees = commits.iter().filter_map(|commit| Some((commit.clone(), self.code_tree(commit).ok()?)));
            return Ok(trees.collect());
        }
        let names: String = commits.iter().map(|commit| format!("{commit}^{{tree}}\n")).collect();
        let objects = self.objects(&names)?;
        let trees = commits.iter().zip(objects).filter_map(|(commit, object)| {
            let object = object.filter(|object| object.kind == "tree")?;
            let hash_bytes = commit.as_str().len() / 2;
            let kept = entries(&object.bytes, hash_bytes).filter(|entry| entry.name != self.excluded().as_bytes());
            let kept: Vec<u8> = kept.flat_map(|entry| entry.bytes).copied().collect();
            Some((commit.clone(), id(&kept, hash_bytes)))
        });
        Ok(trees.collect())
    }

    /// Returns the tree of a commit.
    ///
    /// # Errors
    /// `E_GIT` if the commit does not exist.
    pub fn tree(&self, commit: &Oid) -> Result<Oid> {
        let name = format!("{commit}^{{tree}}");
        self.oid_of(&["rev-parse", "--verify", "--quiet", "--end-of-options", &name], &Run::default())
    }

    /// Returns the id of the empty tree, which every repository knows.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn empty_tree(&self) -> Result<String> {
        Ok(id(&[], self.hash_bytes()?))
    }

    /// Returns the stable patch id of a commit, which a cherry-pick or rebase keeps.
    ///
    /// `None` for a merge, an empty commit, and a commit with more than 64 MiB of changes.
    ///
    /// # Errors
    /// `E_GIT` if the commit does not exist.
    pub fn patch_id(&self, commit: &Oid) -> Result<Option<String>> {
        let args = ["diff-tree", "-p", "--root", "--no-ext-diff", "--no-textconv", "--full-index", "--no-renames"];
        let diff = match self.read(&[&args[..], &[commit.as_str()]].concat()) {
            Ok(diff) => diff.stdout,
            Err(error) if error.code == "E_TOO_LARGE" => return Ok(None),
            Err(error) => return Err(error),
        };
        if diff.is_empty() {
            return Ok(None);
        }
        let output = self.succeed(&["patch-id", "--stable"], &Run { stdin: diff, ..Run::default() })?;
        Ok(output.text().split(' ').next().filter(|id| !id.is_empty()).map(ToOwned::to_owned))
    }

    /// Copies the index of this work tree into a folder.
    ///
    /// The returned file does not exist if nothing was ever staged.
    ///
    /// # Errors
    /// `E_IO` if it cannot be read or written.
    pub fn copy_index(&self, folder: &Path, name: &str) -> Result<PathBuf> {
        let (from, to) = (self.git_dir().join("index"), folder.join(name));
        let copied = std::fs::metadata(&from).and_then(|data| data.modified()).and_then(|modified| {
            std::fs::copy(&from, &to)?;
            // git reads files that are as new as the index. With a newer copy, it would miss a file
            // that changed in the same tick.
            std::fs::File::options().write(true).open(&to)?.set_modified(modified)
        });
        match copied {
            Ok(()) => Ok(to),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(to),
            Err(error) => Err(Error::io("cannot copy", &from, &error)),
        }
    }

    /// Returns this repository with writes of objects redirected into a temporary folder.
    ///
    /// # Errors
    /// `E_IO` if the folder cannot be written.
    pub fn aside(&self, folder: &Path) -> Result<Self> {
        let objects = folder.join("objects");
        let info = objects.join("info");
        let mut own = self.common_dir().join("objects").into_os_string();
        own.push("\n");
        std::fs::create_dir_all(&info)
            .and_then(|()| std::fs::write(info.join("alternates"), own.as_encoded_bytes()))
            .map_err(|error| Error::io("cannot write in", &objects, &error))?;
        Ok(self.clone().variable("GIT_OBJECT_DIRECTORY", objects))
    }

    /// Writes the tree of an index file other than the repository's own.
    ///
    /// # Errors
    /// `E_GIT` if the index has conflicts or missing objects.
    pub fn write_tree(&self, index: &Path) -> Result<Oid> {
        self.oid_of(&["write-tree"], &Run::writing().variable("GIT_INDEX_FILE", index))
    }

    /// Creates a commit from a tree, by the agent and unsigned. No branch is changed.
    ///
    /// # Errors
    /// `E_GIT` if a parent does not exist or nothing can be written.
    pub fn commit_tree(&self, tree: &Oid, parents: &[&Oid], message: &str) -> Result<Oid> {
        let mut args = vec!["-c", "i18n.commitEncoding=UTF-8", "-c", "core.fsync=all", "commit-tree", tree.as_str()];
        for parent in parents {
            args.extend(["-p", parent.as_str()]);
        }
        let mut run = Run::writing().stdin(message);
        run.environment.extend(["AUTHOR", "COMMITTER"].into_iter().flat_map(|role| self.agent_as(role)));
        self.oid_of(&args, &run)
    }
}

/// Returns the id of a tree.
fn id(tree: &[u8], hash_bytes: usize) -> String {
    hex(&digest("tree", tree, hash_bytes))
}

fn entries(mut tree: &[u8], hash_bytes: usize) -> impl Iterator<Item = TreeEntry<'_>> {
    std::iter::from_fn(move || {
        let space = tree.iter().position(|byte| *byte == b' ')?;
        let end = tree.iter().position(|byte| *byte == 0)?;
        let (bytes, rest) = tree.split_at_checked(end + 1 + hash_bytes)?;
        tree = rest;
        Some(TreeEntry { name: bytes.get(space + 1..end)?, bytes })
    })
}

#[cfg(test)]
mod tests {
    use crate::fixture::Repository;

    #[test]
    fn excluded_folder_is_not_in_the_code_tree() {
        let repository = Repository::new();
        let git = repository.git().excluding(".forge");
        repository.write("src/main.rs", "fn main() {}\n");
        repository.write("z", "z\n");
        let without = repository.commit("code");
        assert_eq!(git.code_tree(&without).unwrap(), git.tree(&without).unwrap().as_str());
        repository.write(".forge/memory/x.json", "{}\n");
        let with = repository.commit("memory");
        assert_ne!(git.tree(&with).unwrap(), git.tree(&without).unwrap());
        assert_eq!(git.code_tree(&with).unwrap(), git.code_tree(&without).unwrap());
        repository.write("src/main.rs", "fn main() { }\n");
        let other = repository.commit("code");
        assert_ne!(git.code_tree(&other).unwrap(), git.code_tree(&without).unwrap());
        let missing = without.none_like();
        let trees = git.code_trees(&[without.clone(), missing.clone(), with.clone(), other.clone()]).unwrap();
        assert_eq!(trees.len(), 3);
        for commit in [without, with, other] {
            assert_eq!(trees[&commit], git.code_tree(&commit).unwrap());
        }
        assert_eq!(git.code_tree(&missing).unwrap_err().code, "E_GIT");
    }

    #[test]
    fn excluded_subfolder_is_not_in_the_code_tree() {
        let repository = Repository::new();
        let git = repository.git().excluding("sub/dir/.forge");
        repository.write("sub/a", "a\n");
        repository.write("z", "z\n");
        repository.write("sub/dirty/.forge", "code\n");
        let without = repository.commit("code");
        assert_eq!(git.code_tree(&without).unwrap(), git.tree(&without).unwrap().as_str());
        repository.write("sub/dir/.forge/x", "memory\n");
        let with = repository.commit("memory");
        let code = git.code_tree(&without).unwrap();
        assert_eq!(git.code_tree(&with).unwrap(), code);
        assert_eq!(git.code_trees(&[with.clone(), without.clone()]).unwrap()[&with], code);
        assert_eq!(git.changes(&without).unwrap(), []);
        repository.write("sub/dir/b", "b\n");
        let other = repository.commit("code");
        assert_ne!(git.code_tree(&other).unwrap(), code);
    }

    #[test]
    fn sha256_code_trees_match_git() {
        let folder = tempfile::tempdir().unwrap();
        let run = |args: &[&str]| crate::fixture::run_at(folder.path(), args);
        run(&["init", "--quiet", "--object-format=sha256", "--initial-branch=main"]);
        std::fs::write(folder.path().join("a"), "a").unwrap();
        run(&["add", "a"]);
        run(&["commit", "--quiet", "-m", "first"]);
        let git = Repository::git_at(folder.path()).excluding(".forge");
        let before = git.head().unwrap().unwrap();
        std::fs::create_dir(folder.path().join(".forge")).unwrap();
        std::fs::write(folder.path().join(".forge/b"), "b").unwrap();
        run(&["add", ".forge"]);
        run(&["commit", "--quiet", "-m", "second"]);
        let after = git.head().unwrap().unwrap();
        assert_eq!(git.code_tree(&after).unwrap(), git.tree(&before).unwrap().as_str());
        assert_eq!(after.as_str().len(), 64);
    }

    #[test]
    fn cherry_pick_keeps_the_patch_id() {
        let repository = Repository::new();
        let git = repository.git();
        repository.write("a", "1\n");
        let first = repository.commit("first");
        repository.run(&["switch", "--quiet", "-c", "side"]);
        repository.write("b", "side\n");
        let side = repository.commit("side");
        repository.run(&["switch", "--quiet", "main"]);
        repository.write("c", "main\n");
        repository.commit("main");
        repository.run(&["cherry-pick", side.as_str()]);
        let moved = git.head().unwrap().unwrap();
        assert_ne!(side, moved);
        assert_eq!(git.patch_id(&side).unwrap(), git.patch_id(&moved).unwrap());
        assert!(git.patch_id(&first).unwrap().is_some());
        let empty = repository.commit("empty");
        assert_eq!(git.patch_id(&empty).unwrap(), None);
    }
}
