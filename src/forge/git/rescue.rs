//! Rescue commit: all uncommitted files in one commit, made without changing anything.
//!
//! It has the shape of a stash entry: its tree is the work tree with the untracked files, its
//! parents are `HEAD` and a commit of the index. If git would not restore the exact bytes of a
//! file, the commit contains them as well. It is made from copies of the index, so the index,
//! `HEAD` and the status do not change.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::Git;
use super::Oid;
use super::Run;
use super::Updated;
use crate::error::{Category, Error, Result};

mod raw;

/// A rescue commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rescue {
    /// The reference that holds it: `refs/forge/rescue/<name>`.
    pub reference: String,
    /// The commit whose tree is the work tree.
    pub commit: Oid,
    /// The commit with the tree of the index. Conflict sides are below `.forge-unmerged/<1, 2 or
    /// 3>/`.
    pub index: Oid,
    /// The commit that was checked out; `None` before the first commit.
    pub head: Option<Oid>,
    /// Repositories inside this one: they stay on disk, and are not in the commit.
    pub left: Vec<String>,
    /// Files that git would not restore exactly, for example because of a filter.
    ///
    /// Their exact bytes are in the commit below `.forge-raw/`.
    pub raw: Vec<String>,
}

/// The rescued content, as git objects.
struct Gathered {
    /// The work tree.
    tree: Oid,
    /// The index.
    staged: Oid,
    left: Vec<String>,
    raw: Vec<String>,
}

fn taken(reference: &str) -> Error {
    Error::refused(format!("{reference} is there already")).hint("take another name")
}

/// Folder for the sides of conflicts in the tree of the index, which cannot hold them otherwise.
const UNMERGED: &str = ".forge-unmerged";

/// Settings that store content unchanged.
const EXACT: &[&str] = &[
    "-c",
    "core.autocrlf=false",
    "-c",
    "core.safecrlf=false",
    "-c",
    "core.fsync=all",
    "-c",
    "core.splitIndex=false",
];

impl Git {
    /// Saves the work tree and the index in a commit at `refs/forge/rescue/<name>`, which must be
    /// free.
    ///
    /// Untracked files are included. Ignored files and repositories inside this one are not: they
    /// stay on disk. It needs no identity, and runs no hook.
    ///
    /// # Errors
    /// `E_REFUSED` if the name is taken; `E_USAGE` if it is invalid; `E_GIT` or `E_IO` if a file
    /// cannot be read or nothing can be written. In that case nothing is rescued, and the caller
    /// must stop.
    pub fn rescue(&self, name: &str, message: &str) -> Result<Rescue> {
        let reference = self.free_rescue(name)?;
        let found = self.gather()?;
        self.hold(reference, name, message, found)
    }

    /// As [`Git::rescue`], unless the code in the work tree and in the index is as an earlier
    /// rescue holds it.
    ///
    /// # Errors
    /// As [`Git::rescue`].
    pub fn rescue_since(&self, last: &str, name: &str, message: &str) -> Result<Option<Rescue>> {
        let reference = self.free_rescue(name)?;
        let found = self.gather()?;
        let known = self.run(
            &[
                "rev-parse",
                &format!("{last}^{{tree}}"),
                &format!("{last}^2^{{tree}}"),
            ],
            &Run::default(),
        )?;
        let known: Vec<Oid> = known.text().lines().filter_map(Oid::parse).collect();
        let now = [found.tree.clone(), found.staged.clone()];
        let trees = self.code_trees(&[&known[..], &now].concat())?;
        if known.len() == 2
            && known
                .iter()
                .zip(&now)
                .all(|(then, now)| trees.get(then) == trees.get(now))
        {
            return Ok(None);
        }
        self.hold(reference, name, message, found).map(Some)
    }

    fn free_rescue(&self, name: &str) -> Result<String> {
        let reference = format!("refs/forge/rescue/{name}");
        if !self.is_reference_name(&reference)? {
            return Err(Error::usage(format!("{name:?} is no name of a reference")));
        }
        if self.reference(&reference)?.is_some() {
            return Err(taken(&reference));
        }
        Ok(reference)
    }

    /// Writes everything into objects. No reference leads to them yet.
    fn gather(&self) -> Result<Gathered> {
        let folder = tempfile::Builder::new()
            .prefix("forge-rescue-")
            .tempdir_in(self.git_dir())
            .map_err(|error| Error::io("cannot write in", self.git_dir(), &error))?;
        let staged = self.copy_index(folder.path(), "staged")?;
        let all = self.copy_index(folder.path(), "all")?;
        let left = self.add_everything(&all)?;
        let raw = self.add_raw(&all, folder.path())?;
        let tree = self.write_tree(&all)?;
        let staged = self.staged_tree(&staged)?;
        Ok(Gathered {
            tree,
            staged,
            left,
            raw,
        })
    }

    fn hold(
        &self,
        reference: String,
        name: &str,
        message: &str,
        found: Gathered,
    ) -> Result<Rescue> {
        let Gathered {
            tree,
            staged,
            left,
            raw,
        } = found;
        let head = self.head()?;
        let parents: Vec<&Oid> = head.iter().collect();
        let index = self.commit_tree(&staged, &parents, &format!("index of {name}\n"))?;
        let parents: Vec<&Oid> = head.iter().chain([&index]).collect();
        let commit = self.commit_tree(&tree, &parents, message)?;
        match self.update_ref(&reference, Some(&commit), None, "forge: rescue")? {
            Updated::Done => Ok(Rescue {
                reference,
                commit,
                index,
                head,
                left,
                raw,
            }),
            Updated::Differs => Err(taken(&reference)),
        }
    }

    /// Adds the work tree to a copy of the index. Returns the repositories inside this one.
    fn add_everything(&self, index: &Path) -> Result<Vec<String>> {
        let run = || {
            Run::writing()
                .timeout(Duration::from_secs(600))
                .variable("GIT_INDEX_FILE", index)
        };
        // Paths marked assume-unchanged or skip-worktree may be changed all the same.
        let listed = self.succeed(&["ls-files", "-v", "-z"], &run())?;
        let (mut unchanged, mut skipped) = (Vec::new(), Vec::new());
        for record in listed.stdout.split(|byte| *byte == 0) {
            let Some((tag, path)) = record
                .split_first()
                .and_then(|(tag, rest)| Some((*tag, rest.get(1..)?)))
            else {
                continue;
            };
            if tag.is_ascii_lowercase() {
                unchanged.extend_from_slice(&[path, b"\0"].concat());
            }
            if tag.eq_ignore_ascii_case(&b'S') && self.on_disk(path) {
                skipped.extend_from_slice(&[path, b"\0"].concat());
            }
        }
        for (flag, paths) in [
            ("--no-assume-unchanged", unchanged),
            ("--no-skip-worktree", skipped),
        ] {
            if !paths.is_empty() {
                self.succeed(
                    &["update-index", flag, "-z", "--stdin"],
                    &run().stdin(paths),
                )?;
            }
        }
        let untracked = self.succeed(
            &["ls-files", "-z", "--others", "--exclude-standard"],
            &run(),
        )?;
        let inner = untracked
            .stdout
            .split(|byte| *byte == 0)
            .filter(|path| path.ends_with(b"/"));
        let left: Vec<String> = inner
            .map(|path| String::from_utf8_lossy(path).into_owned())
            .collect();
        let mut specs = b":/\0".to_vec();
        for path in untracked
            .stdout
            .split(|byte| *byte == 0)
            .filter(|path| path.ends_with(b"/"))
        {
            specs.extend_from_slice(b":(exclude,top,literal)");
            specs.extend_from_slice(&path[..path.len() - 1]);
            specs.push(0);
        }
        let args = [
            "add",
            "--all",
            "--sparse",
            "--pathspec-from-file=-",
            "--pathspec-file-nul",
        ];
        let output = self.run(&[EXACT, &args].concat(), &run().stdin(specs))?;
        if output.ok() {
            return Ok(left);
        }
        let mut error = Error::from(helmdeck_git::complaint(&args, &output));
        error.category = Category::Failed;
        Err(error.hint("something in the work tree cannot be read; nothing was changed"))
    }

    fn on_disk(&self, path: &[u8]) -> bool {
        use std::os::unix::ffi::OsStrExt;
        fs::symlink_metadata(self.root().join(std::ffi::OsStr::from_bytes(path))).is_ok()
    }

    /// Writes the tree of a copy of the index, with conflict sides moved to paths that a tree can
    /// hold.
    fn staged_tree(&self, index: &Path) -> Result<Oid> {
        let run = || Run::writing().variable("GIT_INDEX_FILE", index);
        let unmerged = self.succeed(&["ls-files", "-u", "-z"], &run())?;
        let mut info = Vec::new();
        for record in unmerged
            .stdout
            .split(|byte| *byte == 0)
            .filter(|record| !record.is_empty())
        {
            // mode SP object SP stage TAB path
            let Some(tab) = record.iter().position(|byte| *byte == b'\t') else {
                continue;
            };
            let (head, path) = (String::from_utf8_lossy(&record[..tab]), &record[tab + 1..]);
            let mut fields = head.split(' ');
            let (Some(mode), Some(oid), Some(stage)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let none = "0".repeat(oid.len());
            info.extend_from_slice(format!("0 {none} 0\t").as_bytes());
            info.extend_from_slice(path);
            info.extend_from_slice(format!("\0{mode} {oid} 0\t{UNMERGED}/{stage}/").as_bytes());
            info.extend_from_slice(path);
            info.push(0);
        }
        if !info.is_empty() {
            self.succeed(&["update-index", "-z", "--index-info"], &run().stdin(info))?;
        }
        Ok(self.write_tree(index)?)
    }
}

#[cfg(test)]
mod tests;
