//! Rollback: one commit on this branch, whose code is that of the checkpoint.
//!
//! The branch only moves forward, so that a merge, a rebase and a squash take the rollback along. A
//! killed rollback is done by the next one: it finds the branch where it is, and goes on from
//! there.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Recovery, carry, memory};
use crate::checkpoints::{self, Checkpoint};
use crate::error::{Category, Error, Result};
use crate::events::{self, Subject};
use crate::features::FeaturesFile;
use crate::git::{Git, Oid, Run, Updated};
use crate::json::Members;
use crate::knowledge::{Failed, Trace};
use helmdeck_core::text;

/// Maximum number of names to try before giving up.
const TRIES: u32 = 1_000;
/// Settings that keep git from running the user's hooks and programs.
const QUIET: [&str; 4] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "submodule.recurse=false",
];

/// A rollback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Rollback {
    /// The tag of the checkpoint.
    pub checkpoint: String,
    /// The commit whose code is there now.
    pub commit: String,
    /// The commit of HEAD before.
    pub before: String,
    /// The new commit. The same as before if only the work tree differed.
    pub made: String,
    /// The branch; absent if HEAD is detached.
    pub branch: Option<String>,
    /// The reference that holds the work tree, the index and the commit as they were.
    pub rescue: String,
    /// The reference that holds what was saved while the rollback was under way; absent if nothing
    /// was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rescue_meanwhile: Option<String>,
    /// The reason.
    pub why: String,
}

impl Recovery<'_> {
    /// Rolls the code of the project back to a checkpoint.
    ///
    /// # Errors
    /// `Refused` (`E_IN_THE_WAY`) if an untracked file is in the place of one of the checkpoint's;
    /// `Stale` (`E_MOVED`) if HEAD moved meanwhile; errors from git and the files. What was there
    /// is kept under the rescue reference in any case.
    pub(super) fn roll_back(&self, checkpoint: &Checkpoint, why: &str) -> Result<Rollback> {
        let git = self.project.git()?;
        let _guard = self.project.files().rollback_lock()?;
        let (Some(head), Some(commit)) = (git.head()?, checkpoint.oid()) else {
            return Err(Error::refused(
                "there is no commit to go back from, or none to go back to",
            ));
        };
        let branch = git.branch()?;
        check_in_the_way(git, &commit)?;
        let (name, message) = self.free_rescue(git, &checkpoint.tag, why)?;
        let rescue = git.rescue(&name, &message)?.reference;
        fault::reach(fault::Point::Rescued);
        let made = if is_done(git, &head, &commit)? {
            head.clone()
        } else {
            self.remember(
                git,
                &commit,
                self.lesson(checkpoint, branch.as_deref(), &head, why, &rescue),
            )?;
            fault::reach(fault::Point::Remembered);
            let tree = tree(git, &head, &commit)?;
            let message = self.message(checkpoint, &head, why, &rescue);
            let made = git.commit_tree(&tree, &[&head], &message)?;
            let reference = branch
                .as_ref()
                .map_or_else(|| "HEAD".to_owned(), |name| format!("refs/heads/{name}"));
            if git.branch()? != branch
                || git.update_ref(&reference, Some(&made), Some(&head), "forge: roll back")?
                    != Updated::Done
            {
                return Err(Error::new(
                    Category::Stale,
                    "E_MOVED",
                    "HEAD moved while the rollback was under way",
                )
                .hint(format!("what was there is kept at {rescue}"))
                .next("helmdeck forge recover assess"));
            }
            made
        };
        fault::reach(fault::Point::Committed);
        check_in_the_way(git, &commit)?;
        let (name, message) = self.free_rescue(git, &checkpoint.tag, why)?;
        let meanwhile = git.rescue_since(&rescue, &name, &message)?;
        restore(git, &made)?;
        fault::reach(fault::Point::Restored);
        let rollback = Rollback {
            checkpoint: checkpoint.tag.clone(),
            commit: commit.to_string(),
            before: head.to_string(),
            made: made.to_string(),
            branch,
            rescue,
            rescue_meanwhile: meanwhile.map(|rescue| rescue.reference),
            why: why.to_owned(),
        };
        memory::note(
            self.project,
            &format!("Rolled back to {}: {why}", checkpoint.tag),
        );
        let told = serde_json::json!({
            "what": "rolled_back",
            "checkpoint": rollback.checkpoint,
            "branch": rollback.branch,
            "commit": rollback.made,
            "rescue": rollback.rescue,
        });
        events::emit(self.project, Subject::Recovery, told);
        Ok(rollback)
    }

    /// Returns a free name for a rescue, which holds every byte of the work tree and of the index,
    /// and its message.
    fn free_rescue(&self, git: &Git, checkpoint: &str, why: &str) -> Result<(String, String)> {
        let session = memory::session(self.project).unwrap_or_else(|| "manual".to_owned());
        let folder = format!("{}/{session}", checkpoints::encode(git.scope()));
        let folder = folder.trim_start_matches('/');
        let prefix = format!("refs/forge/rescue/{folder}/");
        let taken: BTreeSet<String> = git
            .references(&prefix)?
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let free = (1..TRIES).find(|number| !taken.contains(&format!("{prefix}{number}")));
        let Some(number) = free else {
            return Err(Error::new(
                Category::Failed,
                "E_NAMES",
                format!("{TRIES} names below {prefix} are taken"),
            ));
        };
        let message = format!(
            "Rescue before going back to {checkpoint}\n\n{}\n",
            one_line(why)
        );
        Ok((format!("{folder}/{number}"), message))
    }

    /// Writes the memory of what is true after the rollback: why it was done, and the features as
    /// they were then.
    ///
    /// A file that cannot be written (a newer program wrote it, or it would hold a credential)
    /// stays as it is.
    fn remember(&self, git: &Git, commit: &Oid, lesson: Failed) -> Result<()> {
        let at = lesson.learned_at;
        let written = |what: &str, result: Result<()>| match result {
            Err(error)
                if matches!(error.category, Category::Secret | Category::Refused)
                    || error.code == "E_INVALID" =>
            {
                tracing::warn!(%error, "{what} stays as it is");
                Ok(())
            }
            result => result,
        };
        written("the knowledge", memory::learn(self.project, lesson))?;
        let then = match git.document_at::<FeaturesFile>(commit) {
            Err(error) if error.category == Category::Corrupt => None,
            then => then?,
        };
        let files = self.project.files();
        let (Some(then), Ok(Some(_))) = (then, files.reading().load::<FeaturesFile>()) else {
            return Ok(());
        };
        let reset = files.edit::<FeaturesFile, _>(None, |file| {
            *file = carry::reset(file, then, at);
            Ok(())
        });
        written("the list of features", reset)
    }

    /// Returns the lesson of a rollback, for later sessions.
    fn lesson(
        &self,
        checkpoint: &Checkpoint,
        branch: Option<&str>,
        head: &Oid,
        why: &str,
        rescue: &str,
    ) -> Failed {
        let cut = |text: &str, most: usize| text.chars().take(most).collect::<String>();
        let (branch, tag) = (branch.unwrap_or("a detached HEAD"), &checkpoint.tag);
        Failed {
            context: cut(
                &format!(
                    "What was tried on {branch} up to {}, after {tag}",
                    head.short()
                ),
                500,
            ),
            issue: cut(why, 4_000),
            resolution: cut(
                &format!("Rolled back to {tag}; what was there is kept at {rescue}"),
                4_000,
            ),
            learned_at: self.project.environment().now().seconds(),
            trace: Trace::default(),
            other: Members::default(),
        }
    }

    /// Returns the message of the commit, in the form of all session commits.
    fn message(&self, checkpoint: &Checkpoint, head: &Oid, why: &str, rescue: &str) -> String {
        let (tag, why) = (&checkpoint.tag, one_line(why));
        let session = memory::session(self.project).unwrap_or_else(|| "none".to_owned());
        format!(
            "[session] Go back to {tag}\n\n## What\n- The code of {tag}\n\n## Why\n{why}\n\n## Memory\n- Learned: why it was \
             given up\n\n## Backtrace\n- Parent: {head}\n- Linear: none\n- Session: {session}\n\nForge-Parent: {head}\n\
             Forge-Linear: none\nForge-Session: {session}\nForge-Checkpoint: {tag}\nForge-Rescue: {rescue}\n"
        )
    }
}

/// Says whether a rollback to the code of `commit` made `head`, and was killed before it wrote the
/// work tree.
fn is_done(git: &Git, head: &Oid, commit: &Oid) -> Result<bool> {
    let is_rollback = git
        .commit(head.as_str())?
        .is_some_and(|head| head.trailer("Forge-Rescue").next().is_some());
    Ok(is_rollback && git.code_tree(head)? == git.code_tree(commit)?)
}

/// Writes the tree of the rollback: of the scope the code of `commit` and the memory of the work
/// tree, and the rest of `head`. It is built in a separate index, so neither the work tree nor the
/// index changes.
fn tree(git: &Git, head: &Oid, commit: &Oid) -> Result<Oid> {
    let folder = tempfile::Builder::new()
        .prefix("forge-rollback-")
        .tempdir_in(git.git_dir())
        .map_err(|error| Error::io("cannot write in", git.git_dir(), &error))?;
    let index = folder.path().join("index");
    let run = || slow().variable("GIT_INDEX_FILE", &index);
    git.succeed(&["read-tree", head.as_str()], &run())?;
    let scope = git.scope_pathspecs();
    let scope: Vec<&str> = scope.iter().map(String::as_str).collect();
    let now = git.succeed(&[&["ls-files", "-z", "--"], &scope[..]].concat(), &run())?;
    git.succeed(
        &["update-index", "-z", "--force-remove", "--stdin"],
        &run().stdin(now.stdout),
    )?;
    let mut args = vec!["ls-tree", "-r", "-z", "--full-tree", commit.as_str(), "--"];
    if !git.scope().is_empty() {
        args.push(git.scope());
    }
    let then = git.succeed(&args, &Run::default())?;
    let is_code = |line: &&[u8]| {
        let path = line
            .iter()
            .position(|byte| *byte == b'\t')
            .map(|tab| &line[tab + 1..]);
        path.is_some_and(|path| !git.is_memory(path))
    };
    let code = nul_terminated(then.records().filter(is_code));
    git.succeed(&["update-index", "-z", "--index-info"], &run().stdin(code))?;
    // The memory as it is, without what git ignores.
    let args = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        git.memory(),
    ];
    let listed = git.succeed(&args, &Run::default())?;
    let is_file = |path: &&[u8]| {
        // A file name need not be UTF-8.
        let place = git.root().join(OsStr::from_bytes(path));
        std::fs::symlink_metadata(place).is_ok_and(|about| !about.is_dir())
    };
    let (there, gone): (Vec<&[u8]>, Vec<&[u8]>) = listed.records().partition(is_file);
    git.succeed(
        &["update-index", "-z", "--add", "--replace", "--stdin"],
        &run().stdin(nul_terminated(there)),
    )?;
    git.succeed(
        &["update-index", "-z", "--force-remove", "--stdin"],
        &run().stdin(nul_terminated(gone)),
    )?;
    Ok(git.write_tree(&index)?)
}

/// Makes the code of the work tree, and the index, that of the commit.
fn restore(git: &Git, made: &Oid) -> Result<()> {
    let scope = git.scope_pathspecs().swap_remove(0);
    let (mut code, mut memory) = (BTreeSet::new(), BTreeSet::new());
    for place in [&[][..], &["--cached"]] {
        let fixed = [
            "diff",
            "--name-only",
            "-z",
            "--no-renames",
            "--no-ext-diff",
            "--ignore-submodules=dirty",
        ];
        let output = git.succeed(
            &[&fixed[..], place, &[made.as_str(), "--", &scope]].concat(),
            &Run::default(),
        )?;
        for path in output.records() {
            let paths = if git.is_memory(path) {
                &mut memory
            } else {
                &mut code
            };
            paths.insert(path.to_vec());
        }
    }
    let source = format!("--source={made}");
    for (paths, places) in [
        (code, &["--staged", "--worktree"][..]),
        (memory, &["--staged"]),
    ] {
        if paths.is_empty() {
            continue;
        }
        let fixed = ["--literal-pathspecs", "restore", "--quiet", &source];
        let args = [
            &QUIET[..],
            &fixed,
            places,
            &["--pathspec-from-file=-", "--pathspec-file-nul"],
        ]
        .concat();
        git.succeed(
            &args,
            &slow().stdin(nul_terminated(paths.iter().map(Vec::as_slice))),
        )?;
    }
    Ok(())
}

fn check_in_the_way(git: &Git, commit: &Oid) -> Result<()> {
    let found = in_the_way(git, commit)?;
    if found.is_empty() {
        return Ok(());
    }
    let some = found
        .iter()
        .take(5)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    let message = format!("untracked files are where the checkpoint has others: {some}");
    Err(Error::new(Category::Refused, "E_IN_THE_WAY", message)
        .hint("move them elsewhere")
        .next("git status"))
}

/// Returns the untracked paths of the scope in whose place a commit has files or folders.
fn in_the_way(git: &Git, commit: &Oid) -> Result<Vec<String>> {
    let scope = git.scope_pathspecs();
    let scope: Vec<&str> = scope.iter().map(String::as_str).collect();
    let args = [
        &["ls-files", "-z", "--others", "--directory", "--"],
        &scope[..],
    ]
    .concat();
    let others = git.succeed(&args, &Run::default())?;
    let tree = git.succeed(
        &[
            "ls-tree",
            "-r",
            "-z",
            "--name-only",
            "--full-tree",
            commit.as_str(),
        ],
        &Run::default(),
    )?;
    let tree: BTreeSet<&[u8]> = tree.records().collect();
    let mut found = Vec::new();
    for other in others.records() {
        let path = other.strip_suffix(b"/").unwrap_or(other);
        let below = [path, b"/"].concat();
        let holds = tree
            .range(&below[..]..)
            .next()
            .is_some_and(|first| first.starts_with(&below));
        let file_above = path
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'/')
            .any(|(at, _)| tree.contains(&path[..at]));
        if tree.contains(path) || holds || file_above {
            found.push(String::from_utf8_lossy(path).into_owned());
        }
    }
    Ok(found)
}

/// Returns a text as one line, so that it cannot act as a heading or trailer of a message.
fn one_line(text: &str) -> String {
    text::collapse_whitespace(text)
        .trim_start_matches('#')
        .trim_start()
        .to_owned()
}

fn nul_terminated<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    lines
        .into_iter()
        .flat_map(|line| [line, b"\0"])
        .flatten()
        .copied()
        .collect()
}

fn slow() -> Run {
    Run::writing().timeout(std::time::Duration::from_secs(600))
}

/// Fault injection: where a test kills the process.
mod fault {
    /// A point of a rollback: what is done.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(in crate::recovery) enum Point {
        Rescued,
        Remembered,
        Committed,
        Restored,
    }

    #[cfg(not(test))]
    pub(super) const fn reach(_: Point) {}

    #[cfg(test)]
    pub(super) use crate::recovery::tests::fault::reach;
}
#[cfg(test)]
pub(super) use fault::Point;
