//! Commits of a project, made with and checked against the project's message format.

mod look;
mod travel;

use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Run;
use super::closing::Closing;
use super::features::changed_features;
use super::learned::{new_entries, one_line};
use super::message::{Backtrace, Feature, Message, Note, Scope, Severity, Trailers, is_key, lint};
use super::message::{NONE, placeholder};
use super::{Git, Oid};
use crate::checkpoints::Checkpoints;
use crate::error::{Category, Error, Result};
use crate::files::check_path;
use crate::layout;
use crate::project::Project;
use crate::repair;
use helmdeck_git::complaint;

/// Timeout of a commit, hooks and signing included.
const COMMIT_TIME: Duration = Duration::from_secs(900);

/// The commits of a project.
#[derive(Debug, Clone, Copy)]
pub struct Commits<'a> {
    pub(super) project: &'a Project,
}

impl<'a> Commits<'a> {
    /// Returns the commits of a project.
    #[must_use]
    pub const fn new(project: &'a Project) -> Self {
        Self { project }
    }
}

/// Request for a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NewCommit {
    /// The issue key (`SX9-123`). Only a session's own commit has none.
    pub key: Option<String>,
    /// Whether it is a session's own commit, which needs no issue.
    pub session_commit: bool,
    /// The subject without the key: at most 100 characters, key included.
    pub subject: String,
    /// The changes, one item each; at least one.
    pub what: Vec<String>,
    /// The rationale.
    pub why: String,
    /// What was learned.
    pub learned: Vec<String>,
    /// New invariants: what must always hold from now on.
    pub invariants: Vec<String>,
    /// Files and folders to stage, relative to the root.
    ///
    /// Nothing but these and the memory is staged. What is staged already is committed too.
    pub paths: Vec<String>,
    /// Whether the commit closes its issue in the tracker when it is merged: `Closes: #12`.
    pub closes: bool,
    /// Parent state: the last good checkpoint, or else the first parent, unless the caller names
    /// another.
    pub parent: Option<String>,
}

/// The author session of a commit, and its starting point.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The session (`2025-12-24-session-001`).
    pub session: String,
    /// The id of the session, a `UUIDv7`.
    pub session_id: String,
    /// The newest `ok` checkpoint that `HEAD` contains: its tag and its commit.
    pub checkpoint: Option<(String, Oid)>,
}

/// A new commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Committed {
    /// Its commit id.
    #[schemars(with = "String")]
    pub oid: Oid,
    /// The commit before it; `None` for the first.
    #[schemars(with = "Option<String>")]
    pub previous: Option<Oid>,
    /// The parent state; zeros if there is none.
    pub parent: String,
    /// The checkpoint that it starts from.
    pub checkpoint: Option<String>,
    /// Its code tree, which excludes the memory.
    pub code_tree: String,
    /// Whether a hook changed the commit, so that the trailer names another tree.
    pub changed_by_hook: bool,
    /// The feature changes.
    pub features: Vec<Feature>,
    /// The message as passed to git.
    pub message: String,
}

impl Commits<'_> {
    /// Returns the origin of a session's commits, with the newest `ok` checkpoint.
    ///
    /// # Errors
    /// `E_NOT_A_REPO`; errors from reading the checkpoints.
    pub fn origin(&self, session: &str, session_id: &str) -> Result<Origin> {
        let checkpoint = Checkpoints::new(self.project).newest_valid()?;
        let checkpoint =
            checkpoint.and_then(|found| Some((found.tag, Oid::parse(&found.commit?)?)));
        Ok(Origin {
            session: session.to_owned(),
            session_id: session_id.to_owned(),
            checkpoint,
        })
    }
}

/// Staged changes, in an index that is not the repository's own.
struct Staged {
    tree: Oid,
    code_tree: String,
    features: Vec<Feature>,
    learned: Vec<String>,
}

impl Commits<'_> {
    /// Commits with the project's message format.
    ///
    /// Hooks run and commits are signed as in the user's git. If it refuses, nothing is staged.
    ///
    /// # Errors
    /// `E_PAUSED`; `E_OPERATION` during a merge, a rebase and the like; `E_COMMIT_MESSAGE`
    /// (refused) if the message breaks a rule; `E_PARENT` (refused) if the parent is no ancestor;
    /// `E_SECRET`; `E_CORRUPT` if a file of the memory is damaged; `E_NOTHING_STAGED`; `E_STALE` if
    /// files changed meanwhile; `E_GIT` with the error of git or of a hook.
    pub fn create(&self, new: &NewCommit, origin: &Origin) -> Result<Committed> {
        self.project.check_not_paused()?;
        let git = self.project.git()?;
        check_state(git)?;
        check_text(new)?;
        let head = git.head()?;
        let parent = parent(git, head.as_ref(), new, origin)?;
        let staged = self.stage_aside(git, head.as_ref(), new)?;
        let code_tree = staged.code_tree;
        let mut message = message(new, origin, &parent, &code_tree, &staged.features);
        message.trailers.other.extend(self.closes(new)?);
        note_learned(&mut message.memory, staged.learned);
        let text = message.to_string();
        check_rules(&text)?;
        self.project
            .files()
            .check_secrets("the message of the commit", text.as_bytes())?;

        let folder = private(git)?;
        self.stage(git, &new.paths, None)?;
        let index = git.copy_index(folder.path(), "again")?;
        if git.write_tree(&index)? != staged.tree {
            let message = "files changed while the commit was prepared";
            return Err(Error::new(Category::Stale, "E_STALE", message)
                .hint("what was named is staged; look at it, and commit again"));
        }
        let mut run = Run::writing()
            .stdin(text.as_str())
            .timeout(COMMIT_TIME)
            .with_hooks();
        run.environment = git.identity()?;
        git.succeed(
            &["commit", "--quiet", "--file=-", "--cleanup=whitespace"],
            &run,
        )?;
        let oid = git
            .head()?
            .ok_or_else(|| Error::not_found("the commit that was just made is not there"))?;
        let made = git.code_tree(&oid)?;
        Ok(Committed {
            changed_by_hook: made != code_tree,
            code_tree: made,
            oid,
            previous: head,
            parent: parent.0,
            checkpoint: message.trailers.checkpoint,
            features: staged.features,
            message: text,
        })
    }

    /// Returns the trailer that closes the issue of a commit.
    fn closes(&self, new: &NewCommit) -> Result<Option<(String, String)>> {
        if !new.closes {
            return Ok(None);
        }
        let key = new.key.as_deref().unwrap_or("the session");
        let reference = Closing::of(self.project.config())
            .reference(key)
            .ok_or_else(|| {
                Error::refused(format!(
                    "no tracker has {key}: a commit cannot close it there"
                ))
                .next("helmdeck forge tracker sync")
            })?;
        Ok(Some(("Closes".to_owned(), reference)))
    }

    /// Checks the texts of a commit before anything is staged.
    ///
    /// # Errors
    /// `E_COMMIT_MESSAGE` (refused) if the message breaks a rule; `E_SECRET`.
    pub(crate) fn check(&self, new: &NewCommit, origin: &Origin) -> Result<()> {
        check_text(new)?;
        let none = "0".repeat(40);
        let parent = (none.clone(), "no commit before".to_owned(), None);
        let text = message(new, origin, &parent, &none, &[]).to_string();
        check_rules(&text)?;
        self.project
            .files()
            .check_secrets("the message of the commit", text.as_bytes())
    }

    /// Stages in a copy of the index, and checks the result.
    fn stage_aside(&self, git: &Git, head: Option<&Oid>, new: &NewCommit) -> Result<Staged> {
        let folder = private(git)?;
        // This keeps a detected secret out of the repository's objects.
        let git = &git.aside(folder.path())?;
        let index = git.copy_index(folder.path(), "index")?;
        self.stage(git, &new.paths, Some(&index))?;
        let against = match head {
            Some(head) => head.to_string(),
            None => git.empty_tree()?,
        };
        if !self.check_staged(git, &against, &index, folder.path())? {
            return Err(Error::new(
                Category::Failed,
                "E_NOTHING_STAGED",
                "there is nothing to commit",
            )
            .hint("name the paths to be committed, or stage them with git add"));
        }
        let tree = git.write_tree(&index)?;
        let (old, new) = (
            head.map(|head| git.document_at(head)),
            git.document_at(&tree),
        );
        let features = match (old.transpose(), new) {
            (Ok(old), Ok(new)) => changed_features(old.flatten().as_ref(), new.as_ref()),
            // Features of a damaged file do not count as removed.
            _ => Vec::new(),
        };
        let old = head.and_then(|head| git.document_at(head).ok().flatten());
        let learned = new_entries(old.as_ref(), git.document_at(&tree).ok().flatten().as_ref());
        Ok(Staged {
            code_tree: git.code_tree(&tree)?,
            tree,
            features,
            learned,
        })
    }

    /// Checks what an index has and a tree does not: it holds no secret and no damaged file of the
    /// memory. Returns whether it has changes.
    fn check_staged(&self, git: &Git, against: &str, index: &Path, folder: &Path) -> Result<bool> {
        let run = Run::default().variable("GIT_INDEX_FILE", index);
        if !self.look_for_secrets(git, against, &run, folder)? {
            return Ok(false);
        }
        let args = [
            "diff",
            "--cached",
            "--name-status",
            "-z",
            "--no-ext-diff",
            "--no-renames",
            "--no-relative",
            against,
        ];
        let listed = git.succeed(&args, &run)?.stdout;
        let listed = String::from_utf8_lossy(&listed).into_owned();
        let fields: Vec<&str> = listed.split('\0').collect();
        let changed: Vec<(&str, String)> = fields
            .chunks_exact(2)
            .map(|field| (field[0], field[1].to_owned()))
            .collect();
        let names: Vec<String> = changed.iter().map(|(_, name)| name.clone()).collect();
        repair::check_whole(self.project, git, &names)?;
        // File names are visible in a commit too, so scan them for secrets. The error does not
        // repeat them.
        let new: Vec<String> = changed
            .into_iter()
            .filter(|(status, _)| *status == "A")
            .map(|(_, name)| name)
            .collect();
        self.project
            .files()
            .check_secrets("the names of new files", new.join("\n").as_bytes())?;
        Ok(true)
    }

    /// Stages the named paths and the memory, in the repository's index or in another one.
    fn stage(&self, git: &Git, named: &[String], index: Option<&Path>) -> Result<()> {
        let mut paths = Vec::new();
        for path in named {
            check_path(path.trim_end_matches('/'))?;
            paths.push(self.below_root(git, path.trim_end_matches('/')));
        }
        if self.project.root().join(layout::FORGE).is_dir() && !git.ignores_memory()? {
            paths.push(self.below_root(git, layout::FORGE));
        }
        if paths.is_empty() {
            return Ok(());
        }
        let list: Vec<u8> = paths
            .iter()
            .flat_map(|path| [path.as_bytes(), b"\0"].concat())
            .collect();
        let mut run = Run::writing().stdin(list).timeout(COMMIT_TIME);
        if let Some(index) = index {
            run = run.variable("GIT_INDEX_FILE", index);
        }
        let args = [
            "--literal-pathspecs",
            "add",
            "--all",
            "--pathspec-from-file=-",
            "--pathspec-file-nul",
        ];
        let output = git.run(&args, &run)?;
        if output.ok() {
            return Ok(());
        }
        let error = Error::from(complaint(&args, &output));
        let absent = output.stderr.contains("did not match any files");
        Err(if absent {
            Error {
                category: Category::NotFound,
                ..error
            }
        } else {
            error
        })
    }

    /// Returns a project path relative to the root of the work tree, as git names it.
    pub(super) fn below_root(&self, git: &Git, path: &str) -> String {
        let folder = self
            .project
            .root()
            .strip_prefix(git.root())
            .ok()
            .and_then(Path::to_str);
        match folder.filter(|folder| !folder.is_empty()) {
            Some(folder) => format!("{folder}/{path}"),
            None => path.to_owned(),
        }
    }
}

/// Creates a temporary folder that is deleted on drop.
fn private(git: &Git) -> Result<tempfile::TempDir> {
    let folder = tempfile::Builder::new()
        .prefix("forge-commit-")
        .tempdir_in(git.git_dir());
    folder.map_err(|error| Error::io("cannot write in", git.git_dir(), &error))
}

fn check_state(git: &Git) -> Result<()> {
    if let Some(operation) = git.operation()? {
        let message = format!("git is in the middle of a {}", operation.name());
        return Err(Error::new(Category::Refused, "E_OPERATION", message)
            .hint("finish it first, or give it up; then commit")
            .next("git status"));
    }
    let unmerged = git.read(&["ls-files", "-z", "--unmerged"])?;
    if let Some(entry) = unmerged.records().next() {
        let entry = String::from_utf8_lossy(entry);
        let path = entry.split_once('\t').map_or(&*entry, |(_, path)| path);
        let message = format!("{path} has a conflict that is not resolved");
        return Err(Error::new(Category::Refused, "E_OPERATION", message).next("git status"));
    }
    Ok(())
}

/// Refuses texts for which the rules for a whole message give no clear error.
fn check_text(new: &NewCommit) -> Result<()> {
    let refuse = |message: String| Err(Error::new(Category::Refused, "E_COMMIT_MESSAGE", message));
    match &new.key {
        None if !new.session_commit => {
            return refuse(
                "a commit needs the key of its issue; only the session's own has none".to_owned(),
            );
        }
        Some(key) if !is_key(key) => {
            return refuse(format!("{key:?} is no key of an issue; wanted is SX9-123"));
        }
        _ => {}
    }
    let texts = [&new.subject, &new.why]
        .into_iter()
        .chain(&new.what)
        .chain(&new.learned)
        .chain(&new.invariants);
    for text in texts {
        if text.trim().is_empty() {
            return refuse(
                "subject, why, and each line of what, learned and invariants must say something"
                    .to_owned(),
            );
        }
        if let Some(found) = placeholder(text) {
            return refuse(format!("{found:?} is to be replaced"));
        }
    }
    if new.what.is_empty() {
        return refuse("a commit says what it changes: at least one line".to_owned());
    }
    Ok(())
}

fn check_rules(text: &str) -> Result<()> {
    match lint(text)
        .into_iter()
        .find(|finding| finding.severity == Severity::Error)
    {
        Some(finding) => {
            let message = format!(
                "the message breaks the rule {}: {}",
                finding.rule, finding.message
            );
            Err(Error::new(Category::Refused, "E_COMMIT_MESSAGE", message))
        }
        None => Ok(()),
    }
}

/// Returns the parent state of a commit, its remark, and the checkpoint if it is one.
fn parent(
    git: &Git,
    head: Option<&Oid>,
    new: &NewCommit,
    origin: &Origin,
) -> Result<(String, String, Option<String>)> {
    let refuse = |what: &str| {
        let message = format!("{what} is no ancestor of what is checked out");
        Err(Error::new(Category::Refused, "E_PARENT", message)
            .hint("a commit goes on from a state that it contains"))
    };
    let Some(head) = head else {
        return match &new.parent {
            Some(name) => refuse(name),
            None => Ok((
                "0".repeat(2 * git.hash_bytes()?),
                "no commit before".to_owned(),
                None,
            )),
        };
    };
    let checkpoint = |oid: &Oid| {
        origin
            .checkpoint
            .as_ref()
            .filter(|(_, commit)| commit == oid)
            .map(|(tag, _)| tag.clone())
    };
    let (oid, otherwise) = match (&new.parent, &origin.checkpoint) {
        (Some(name), _) => match git.resolve(name)? {
            Some(oid) => (oid, "as given"),
            None => return refuse(name),
        },
        (None, Some((tag, oid))) if !git.is_ancestor(oid, head)? => return refuse(tag),
        (None, Some((_, oid))) => (oid.clone(), ""),
        (None, None) => (head.clone(), "first parent"),
    };
    if !git.is_ancestor(&oid, head)? {
        return refuse(oid.short());
    }
    let tag = checkpoint(&oid);
    let remark = tag.clone().unwrap_or_else(|| otherwise.to_owned());
    Ok((oid.to_string(), remark, tag))
}

fn message(
    new: &NewCommit,
    origin: &Origin,
    (parent, remark, checkpoint): &(String, String, Option<String>),
    code_tree: &str,
    features: &[Feature],
) -> Message {
    let mut memory: Vec<Note> = new.learned.iter().cloned().map(Note::Learned).collect();
    if !features.is_empty() {
        let each = features
            .iter()
            .map(|feature| match feature.status.as_str() {
                "removed" => format!("{} removed", feature.id),
                status => format!("{} now {status}", feature.id),
            });
        memory.push(Note::Updated(format!(
            "features.json ({})",
            each.collect::<Vec<_>>().join(", ")
        )));
    }
    memory.extend(new.invariants.iter().cloned().map(Note::Invariant));
    if memory.is_empty() {
        memory.push(Note::None);
    }
    let linear = Some(new.key.clone().unwrap_or_else(|| NONE.to_owned()));
    Message {
        scope: new.key.clone().map_or(Scope::Session, Scope::Key),
        subject: without_period(new.subject.trim()).to_owned(),
        what: new.what.clone(),
        why: new.why.clone(),
        memory,
        backtrace: Backtrace {
            parent: Some(parent[..12].to_owned()),
            remark: Some(remark.clone()),
            linear: linear.clone(),
            session: Some(origin.session.clone()),
        },
        trailers: Trailers {
            parent: Some(parent.clone()),
            linear,
            session: Some(origin.session.clone()),
            session_id: Some(origin.session_id.clone()),
            code_tree: Some(code_tree.to_owned()),
            checkpoint: checkpoint.clone(),
            features: features.to_vec(),
            other: Vec::new(),
        },
        sections: Vec::new(),
    }
}

/// Returns a subject without its final period. Several periods stay, because they have a meaning.
fn without_period(subject: &str) -> &str {
    subject
        .strip_suffix('.')
        .filter(|rest| !rest.ends_with('.'))
        .unwrap_or(subject)
}

/// Adds the new lessons to the memory notes, unless the notes name them already.
fn note_learned(memory: &mut Vec<Note>, learned: Vec<String>) {
    let said: Vec<String> = memory
        .iter()
        .filter_map(|note| match note {
            Note::Learned(text) | Note::Invariant(text) => Some(one_line(text)),
            _ => None,
        })
        .collect();
    let at = memory
        .iter()
        .take_while(|note| matches!(note, Note::Learned(_)))
        .count();
    let new: Vec<Note> = learned
        .into_iter()
        .filter(|text| !said.contains(text))
        .map(Note::Learned)
        .collect();
    if !new.is_empty() {
        memory.retain(|note| *note != Note::None);
        memory.splice(at.min(memory.len())..at.min(memory.len()), new);
    }
}

#[cfg(test)]
mod tests;
