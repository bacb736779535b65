//! Memory in commits of work: in one that a person makes with git, by the hook `pre-commit`, and in
//! one that was made before.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Commits, private};
use crate::checkpoints::Checkpoints;
use crate::error::{Error, Result};
use crate::git::{Git, Oid, Run, Updated};

/// Beginning of the name of the index that git makes for `git commit PATH`.
const PARTIAL: &str = "next-index-";

impl Commits<'_> {
    /// Adds the memory to the commit that git is about to make. Returns whether it added something.
    ///
    /// Nothing but `.forge/` is staged. `index` is the index of the commit, as git names it to the
    /// hook. A commit of named paths stays as it is, because the repository's own index would lack
    /// the memory afterwards; so does one in the middle of a merge or a rebase.
    ///
    /// # Errors
    /// `Secret`, or `Corrupt` for a damaged file: then nothing is staged. Errors from git.
    pub fn add_memory(&self, index: Option<&str>) -> Result<bool> {
        let git = self.project.git()?;
        let is_partial = index
            .and_then(|index| index.rsplit('/').next())
            .is_some_and(|name| name.starts_with(PARTIAL));
        if is_partial || git.operation()?.is_some() {
            return Ok(false);
        }
        let index = index.map(|index| git.root().join(index));
        let folder = private(git)?;
        // A secret that is found gets into no object of the repository.
        let aside = git.aside(folder.path())?;
        let copy = match &index {
            Some(index) => copied(index, folder.path())?,
            None => git.copy_index(folder.path(), "index")?,
        };
        let before = aside.write_tree(&copy)?;
        self.stage(&aside, &[], Some(&copy))?;
        if !self.check_staged(&aside, before.as_str(), &copy, folder.path())? {
            return Ok(false);
        }
        self.stage(git, &[], index.as_deref())?;
        Ok(true)
    }

    /// Adds the memory to the commit of work that is checked out, if nobody else can know that
    /// commit.
    ///
    /// `since` is the commit at the start of the session. The commit keeps its message and its
    /// author; only its memory changes. The hooks of the user do not run again. After a kill,
    /// either the old or the new commit is checked out. `None` if nothing was added: the commit is
    /// not this session's, it is a merge, or another reference leads to it.
    ///
    /// # Errors
    /// As [`Commits::add_memory`].
    pub(crate) fn amend(&self, since: Option<&str>) -> Result<Option<(Oid, Oid)>> {
        let git = self.project.git()?;
        let reference = git
            .branch()?
            .map_or_else(|| "HEAD".to_owned(), |name| format!("refs/heads/{name}"));
        let Some(head) = git.head()? else {
            return Ok(None);
        };
        if !is_own(git, &head, &reference, since)? {
            return Ok(None);
        }
        let folder = private(git)?;
        let (of_head, index) = (folder.path().join("head"), folder.path().join("index"));
        git.succeed(
            &["read-tree", head.as_str()],
            &Run::writing().variable("GIT_INDEX_FILE", &of_head),
        )?;
        let with_memory = |git: &Git| -> Result<Oid> {
            std::fs::copy(&of_head, &index)
                .map_err(|error| Error::io("cannot write", &index, &error))?;
            self.stage(git, &[], Some(&index))?;
            Ok(git.write_tree(&index)?)
        };
        let aside = git.aside(folder.path())?;
        let checked = with_memory(&aside)?;
        if !self.check_staged(&aside, head.as_str(), &index, folder.path())? {
            return Ok(None);
        }
        self.stage(git, &[], None)?;
        if with_memory(git)? != checked {
            return Ok(None);
        }
        let Some(made) = git.commit_with_tree(&head, &checked)? else {
            return Ok(None);
        };
        let updated = git.update_ref(
            &reference,
            Some(&made),
            Some(&head),
            "forge: add the memory",
        )?;
        Ok(Some((head, made)).filter(|_| updated == Updated::Done))
    }
}

/// Says whether a commit was made by this user since a commit, and no other branch, tag or remote
/// leads to it.
///
/// A tag of a checkpoint may: it is about the code, which stays the same.
fn is_own(git: &Git, head: &Oid, reference: &str, since: Option<&str>) -> Result<bool> {
    let is_later = match since.map(Oid::parse) {
        None => true,
        Some(Some(since)) => since != *head && git.is_ancestor(&since, head)?,
        Some(None) => false,
    };
    if !is_later {
        return Ok(false);
    }
    let user = Run {
        environment: git.identity()?,
        ..Run::default()
    };
    let user = git.succeed(&["var", "GIT_COMMITTER_IDENT"], &user)?.text();
    let made_by = git
        .read(&["log", "-1", "--format=<%ce>", head.as_str(), "--"])?
        .text();
    let holders = git
        .read(&[
            "for-each-ref",
            "--contains",
            head.as_str(),
            "--format=%(refname)",
        ])?
        .text();
    let tags = format!("refs/tags/{}", Checkpoints::prefix(git));
    let is_ours = |name: &str| {
        name == reference
            || name.starts_with("refs/forge/")
            || name
                .strip_prefix(&tags)
                .is_some_and(|rest| !rest.contains('/'))
    };
    Ok(user.contains(&made_by) && holders.lines().all(is_ours))
}

/// Copies the index of a commit into a folder. A missing one is an empty one.
fn copied(index: &Path, folder: &Path) -> Result<PathBuf> {
    let to = folder.join("index");
    let copied = fs::metadata(index)
        .and_then(|about| about.modified())
        .and_then(|modified| {
            fs::copy(index, &to)?;
            // With a newer index, git would miss a file that changed in the same tick.
            fs::File::options()
                .write(true)
                .open(&to)?
                .set_modified(modified)
        });
    match copied {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("cannot copy", index, &error))
        }
        _ => Ok(to),
    }
}
