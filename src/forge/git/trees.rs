//! Trees: what a commit holds besides the memory, and commits that are made without the work tree.

use helmdeck_core::hex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::oid::Oid;
use super::repository::{Git, agent, complaint};
use super::run::Run;
use super::sha1;
use crate::error::{Error, Result};

/// An entry of a tree, as git stores it.
struct TreeEntry<'a> {
    name: &'a [u8],
    /// Mode, name and object.
    bytes: &'a [u8],
}

impl Git {
    /// Returns the tree of a commit without `.forge/`: the code that it holds. Nothing is written, so there need not be such an object.
    ///
    /// # Errors
    /// `E_GIT` if the commit is not here.
    pub fn code_tree(&self, commit: &Oid) -> Result<String> {
        self.code_tree_of(&format!("{commit}^{{tree}}"))
    }

    /// Returns a tree without the memory, for any name of a tree.
    pub(super) fn code_tree_of(&self, tree: &str) -> Result<String> {
        let path: Vec<&str> = self.memory().split('/').collect();
        Ok(sealed(&self.without(tree, &path, self.hash_bytes()?)?))
    }

    /// Returns the bytes of a tree without what lies at a path.
    fn without(&self, tree: &str, path: &[&str], hash_bytes: usize) -> Result<(Vec<u8>, usize)> {
        let bytes = self.read(&["cat-file", "tree", tree])?.stdout;
        let mut kept = Vec::new();
        for entry in entries(&bytes, hash_bytes) {
            match path {
                [first, rest @ ..] if entry.name == first.as_bytes() => {
                    let (head, oid) = entry.bytes.split_at(entry.bytes.len() - hash_bytes);
                    if !rest.is_empty() && head.starts_with(b"40000 ") {
                        let inner = self.without(&hex(oid), rest, hash_bytes)?;
                        // git has no empty folders.
                        if !inner.0.is_empty() {
                            kept.extend_from_slice(head);
                            kept.extend_from_slice(&digest(&inner.0, hash_bytes));
                        }
                    } else if !rest.is_empty() {
                        kept.extend_from_slice(entry.bytes);
                    }
                }
                _ => kept.extend_from_slice(entry.bytes),
            }
        }
        Ok((kept, hash_bytes))
    }

    /// Returns the code trees of several commits, with one run of git where the memory lies at the root. Commits that are not here are left out.
    ///
    /// # Errors
    /// What [`Git::succeed`] says.
    pub fn code_trees(&self, commits: &[Oid]) -> Result<HashMap<Oid, String>> {
        if self.memory().contains('/') {
            // The trees between are read one by one.
            let trees = commits.iter().filter_map(|commit| Some((commit.clone(), self.code_tree(commit).ok()?)));
            return Ok(trees.collect());
        }
        let names: String = commits.iter().map(|commit| format!("{commit}^{{tree}}\n")).collect();
        let objects = self.objects(&names)?;
        let trees = commits.iter().zip(objects).filter_map(|(commit, object)| {
            let object = object.filter(|object| object.kind == "tree")?;
            let hash_bytes = commit.as_str().len() / 2;
            let kept = entries(&object.bytes, hash_bytes).filter(|entry| entry.name != self.memory().as_bytes());
            Some((commit.clone(), sealed(&(kept.flat_map(|entry| entry.bytes).copied().collect(), hash_bytes))))
        });
        Ok(trees.collect())
    }

    /// Reads objects by name, one a line; `None` for those that are not here.
    pub(super) fn objects(&self, names: &str) -> Result<Vec<Option<Object>>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let args = ["cat-file", "--batch"];
        let output = self.succeed(&args, &Run { stdin: names.into(), ..Run::default() })?;
        let mut rest = output.stdout.as_slice();
        let mut all = Vec::new();
        for _ in names.lines() {
            let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            let line = String::from_utf8_lossy(&rest[..end]).into_owned();
            rest = rest.get(end + 1..).unwrap_or_default();
            let mut fields = line.split(' ');
            let (Some(name), Some(kind), Some(size)) = (fields.next(), fields.next(), fields.next()) else {
                all.push(None);
                continue;
            };
            let Some((size, oid)) = size.parse::<usize>().ok().zip(Oid::parse(name)) else {
                all.push(None);
                continue;
            };
            let bytes = rest.get(..size).ok_or_else(|| complaint(&args, &output))?.to_vec();
            rest = rest.get(size + 1..).unwrap_or_default();
            all.push(Some(Object { oid, kind: kind.to_owned(), bytes }));
        }
        Ok(all)
    }

    /// Returns the type of an object (`commit`, `tag`, `tree`, `blob`); `None` if it is not here.
    ///
    /// # Errors
    /// What [`Git::run`] says.
    pub fn object_type(&self, oid: &Oid) -> Result<Option<String>> {
        let output = self.run(&["cat-file", "-t", oid.as_str()], &Run::default())?;
        Ok(output.ok().then(|| output.text()))
    }

    /// Returns the tree of a commit.
    ///
    /// # Errors
    /// `E_GIT` if the commit is not here.
    pub fn tree(&self, commit: &Oid) -> Result<Oid> {
        let name = format!("{commit}^{{tree}}");
        self.oid_of(&["rev-parse", "--verify", "--quiet", "--end-of-options", &name], &Run::default())
    }

    /// Returns a file of a commit; `None` if the commit has no such file.
    ///
    /// # Errors
    /// What [`Git::run`] says.
    pub fn file_at(&self, commit: &Oid, path: &str) -> Result<Option<Vec<u8>>> {
        self.blob(&format!("{commit}:{path}"))
    }

    /// Returns a file of a tree; `None` if it has no such file.
    pub(super) fn file_of_tree(&self, tree: &Oid, path: &str) -> Result<Option<Vec<u8>>> {
        self.blob(&format!("{tree}:{path}"))
    }

    /// Returns the name of the tree that holds nothing, which every repository knows.
    pub(super) fn empty_tree(&self) -> Result<String> {
        Ok(sealed(&(Vec::new(), self.hash_bytes()?)))
    }

    pub(super) fn blob(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let output = self.run(&["cat-file", "blob", name], &Run::default())?;
        Ok(output.ok().then_some(output.stdout))
    }

    /// Returns what stays the same when a change is moved to other parents: `git patch-id --stable`. `None` for a merge and for a commit
    /// that changes nothing, or more than 64 MiB of text.
    ///
    /// # Errors
    /// `E_GIT` if the commit is not here.
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

    /// Copies the index of this work tree to a file in a folder, so that it can be changed without being changed. Returns the file,
    /// which is absent if nothing was ever staged.
    ///
    /// # Errors
    /// `E_IO` if it cannot be read or written.
    pub fn copy_index(&self, folder: &Path, name: &str) -> Result<PathBuf> {
        let (from, to) = (self.git_dir().join("index"), folder.join(name));
        let copied = std::fs::metadata(&from).and_then(|data| data.modified()).and_then(|modified| {
            std::fs::copy(&from, &to)?;
            // git looks into files that are as new as the index. In a copy that is newer, it would take a file that was changed in the
            // same tick for unchanged.
            std::fs::File::options().write(true).open(&to)?.set_modified(modified)
        });
        match copied {
            Ok(()) => Ok(to),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(to),
            Err(error) => Err(Error::io("cannot copy", &from, &error)),
        }
    }

    /// Returns this repository for trying something: what is read comes from it, and what is written goes into a folder that is removed.
    pub(super) fn aside(&self, folder: &Path) -> Result<Self> {
        let objects = folder.join("objects");
        let info = objects.join("info");
        let mut own = self.common_dir().join("objects").into_os_string();
        own.push("\n");
        std::fs::create_dir_all(&info)
            .and_then(|()| std::fs::write(info.join("alternates"), own.as_encoded_bytes()))
            .map_err(|error| Error::io("cannot write in", &objects, &error))?;
        Ok(self.clone().variable("GIT_OBJECT_DIRECTORY", objects))
    }

    /// Writes the tree of an index file that is not the repository's own.
    ///
    /// # Errors
    /// `E_GIT` if the index has conflicts or objects that are not here.
    pub fn write_tree(&self, index: &Path) -> Result<Oid> {
        self.oid_of(&["write-tree"], &Run::writing().variable("GIT_INDEX_FILE", index))
    }

    /// Makes a commit of a tree, by the agent and unsigned, which no branch holds yet.
    ///
    /// # Errors
    /// `E_GIT` if a parent is not here or nothing can be written.
    pub fn commit_tree(&self, tree: &Oid, parents: &[&Oid], message: &str) -> Result<Oid> {
        let mut args = vec!["-c", "i18n.commitEncoding=UTF-8", "-c", "core.fsync=all", "commit-tree", tree.as_str()];
        for parent in parents {
            args.extend(["-p", parent.as_str()]);
        }
        let mut run = Run::writing().stdin(message);
        run.environment.extend(["AUTHOR", "COMMITTER"].into_iter().flat_map(agent));
        self.oid_of(&args, &run)
    }

    pub(super) fn oid_of(&self, args: &[&str], run: &Run) -> Result<Oid> {
        let output = self.succeed(args, run)?;
        Oid::parse(&output.text()).ok_or_else(|| complaint(args, &output))
    }

    /// Returns how many bytes the name of an object has in this repository: 20, or 32 with SHA-256.
    pub(super) fn hash_bytes(&self) -> Result<usize> {
        if let Some(known) = self.hash_bytes.get() {
            return Ok(*known);
        }
        let output = self.read(&["rev-parse", "--show-object-format"])?;
        let bytes = if output.text() == "sha256" { 32 } else { 20 };
        Ok(*self.hash_bytes.get_or_init(|| bytes))
    }
}

/// An object as git stores it.
pub(super) struct Object {
    pub(super) oid: Oid,
    pub(super) kind: String,
    pub(super) bytes: Vec<u8>,
}

/// Returns the name of a tree, by its bytes and how many bytes a name has.
fn sealed((tree, hash_bytes): &(Vec<u8>, usize)) -> String {
    hex(&digest(tree, *hash_bytes))
}

fn digest(tree: &[u8], hash_bytes: usize) -> Vec<u8> {
    named("tree", tree, hash_bytes)
}

/// Returns the name that git would give to a blob, in hexadecimal digits.
pub(super) fn blob_name(bytes: &[u8], hash_bytes: usize) -> String {
    hex(&named("blob", bytes, hash_bytes))
}

fn named(kind: &str, bytes: &[u8], hash_bytes: usize) -> Vec<u8> {
    let header = format!("{kind} {}\0", bytes.len());
    if hash_bytes == 20 {
        return sha1::digest(&[header.as_bytes(), bytes]).to_vec();
    }
    let mut hash = Sha256::new();
    hash.update(header.as_bytes());
    hash.update(bytes);
    hash.finalize().to_vec()
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
    use super::super::fixture::Repository;

    #[test]
    fn memory_is_no_part_of_the_code_tree() {
        let repository = Repository::new();
        let git = repository.git();
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
    fn a_memory_further_down_is_no_part_of_the_code_tree_either() {
        let repository = Repository::new();
        let git = repository.git().with_memory("sub/dir/.forge");
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
    fn code_trees_of_sha256_are_those_of_git() {
        let folder = tempfile::tempdir().unwrap();
        let run = |args: &[&str]| super::super::fixture::run_at(folder.path(), args);
        run(&["init", "--quiet", "--object-format=sha256", "--initial-branch=main"]);
        std::fs::write(folder.path().join("a"), "a").unwrap();
        run(&["add", "a"]);
        run(&["commit", "--quiet", "-m", "first"]);
        let git = Repository::git_at(folder.path());
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
    fn a_moved_change_keeps_its_patch_id() {
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
