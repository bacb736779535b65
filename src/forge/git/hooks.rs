//! Git hooks for the message format.
//!
//! They are installed on request, run after existing hooks, and are removed without a trace.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Run;
use super::commits::{Commits, Origin};
use super::message::{
    Backtrace, Finding, Message, NONE, Note, Scope, Trailers, is_comment, lint, parse,
    strip_comments,
};
use crate::error::{Category, Error, Result};
use crate::layout::FORGE;

/// Marker line of our hooks.
const MARK: &str = "# forge hook";

/// A hook of git.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Hook {
    /// Checks a message before it is committed.
    CommitMsg,
    /// Fills in the known parts of a message before it is edited.
    PrepareCommitMsg,
    /// Adds the memory to a commit, if it travels with the work.
    PreCommit,
}

/// Result of installing or removing a hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Installed {
    /// The hook.
    pub hook: Hook,
    /// Its file.
    pub path: PathBuf,
    /// The path of the earlier hook, which runs first.
    pub before: Option<PathBuf>,
    /// Whether anything changed.
    pub changed: bool,
}

impl Hook {
    /// All hooks.
    pub const ALL: [Self; 3] = [Self::CommitMsg, Self::PrepareCommitMsg, Self::PreCommit];

    /// Returns its name, as git has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CommitMsg => "commit-msg",
            Self::PrepareCommitMsg => "prepare-commit-msg",
            Self::PreCommit => "pre-commit",
        }
    }

    /// Returns the hook script. It does nothing without a memory, or if the program is not
    /// installed.
    ///
    /// `memory` is the folder of the memory below the root of the work tree, where git runs hooks.
    fn script(self, program: &str, memory: &str) -> String {
        let (name, program) = (self.name(), quoted(program));
        let project = match memory
            .strip_suffix(FORGE)
            .and_then(|folder| folder.strip_suffix('/'))
        {
            Some(folder) => format!("--project {} ", quoted(folder)),
            None => String::new(),
        };
        let arguments = match self {
            Self::PreCommit => "\"${GIT_INDEX_FILE:-}\"",
            Self::CommitMsg | Self::PrepareCommitMsg => "\"$@\"",
        };
        let memory = if project.is_empty() {
            memory.to_owned()
        } else {
            quoted(memory)
        };
        format!(
            "#!/bin/sh\n{MARK} 1: {name}\nset -u\nbefore=\"$(dirname \"$0\")/{name}.before-forge\"\n\
             if [ -x \"$before\" ]; then\n    \"$before\" \"$@\" || exit $?\nfi\n\
             [ -d {memory} ] || exit 0\ncommand -v {program} >/dev/null 2>&1 || exit 0\n\
             exec {program} forge {project}hook run {name} {arguments}\n"
        )
    }
}

/// Says whether git generated a message: a revert, or a commit for `rebase --autosquash`.
fn is_of_git(text: &str) -> bool {
    let taken_back =
        |start: &str| text.starts_with(start) && text.contains("\nThis reverts commit ");
    ["fixup! ", "squash! ", "amend! "]
        .iter()
        .any(|start| text.starts_with(start))
        || ["Revert \"", "Reapply \""].into_iter().any(taken_back)
}

/// Quotes a text as one shell word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

impl Commits<'_> {
    /// Installs a hook, which runs `<program> forge hook run <name> …`.
    ///
    /// An existing hook stays, runs first, and may refuse.
    ///
    /// # Errors
    /// `E_NOT_A_REPO`; `E_REFUSED` if the hooks folder is outside the repository, where other
    /// repositories use it too; `E_IO`.
    pub fn install_hook(&self, hook: Hook, program: &str) -> Result<Installed> {
        self.project.check_not_paused()?;
        let (path, before) = self.hook_paths(hook)?;
        let script = hook.script(program, self.project.git()?.memory());
        let there = read(&path)?;
        let keeps = |before: &Path| Some(before.to_owned()).filter(|before| before.exists());
        if there.as_deref() == Some(script.as_bytes()) {
            return Ok(Installed {
                hook,
                before: keeps(&before),
                path,
                changed: false,
            });
        }
        if there.as_deref().is_some_and(|text| !is_ours(text)) {
            if before.exists() {
                let message = format!(
                    "{} and {} are both there, and neither is ours",
                    path.display(),
                    before.display()
                );
                return Err(Error::refused(message).hint("keep one of them"));
            }
            fs::rename(&path, &before)
                .map_err(|error| Error::io("cannot rename", &path, &error))?;
        }
        let written = write(&path, &script);
        if written.is_err() && before.exists() && !path.exists() {
            // Restore the earlier hook.
            let _ = fs::rename(&before, &path);
        }
        written?;
        Ok(Installed {
            hook,
            before: keeps(&before),
            path,
            changed: true,
        })
    }

    /// Removes a hook, and restores the earlier one. A hook that is not ours stays.
    ///
    /// # Errors
    /// As [`Commits::install_hook`].
    pub fn remove_hook(&self, hook: Hook) -> Result<Installed> {
        self.project.check_not_paused()?;
        let (path, before) = self.hook_paths(hook)?;
        let ours = read(&path)?.is_some_and(|text| is_ours(&text));
        if ours {
            let done = if before.exists() {
                fs::rename(&before, &path)
            } else {
                fs::remove_file(&path)
            };
            done.map_err(|error| Error::io("cannot change", &path, &error))?;
        }
        Ok(Installed {
            hook,
            path,
            before: None,
            changed: ours,
        })
    }

    /// Checks a message for the hook `commit-msg`. Comments for the editor are ignored.
    ///
    /// Messages that git generates are not checked: those of merges, reverts, and fixup or squash
    /// commits.
    #[must_use]
    pub fn check_message(&self, text: &str) -> Vec<Finding> {
        let text = strip_comments(text);
        let merges = || {
            self.project
                .git()
                .is_ok_and(|git| git.git_dir().join("MERGE_HEAD").exists())
        };
        if is_of_git(&text) || merges() {
            Vec::new()
        } else {
            lint(&text)
        }
    }

    /// Fills in a message for the hook `prepare-commit-msg`, before it is edited.
    ///
    /// It adds the backtrace; `None` if the message does not change. `source` is git's second
    /// argument (`message`, `merge`, `squash`, …).
    ///
    /// # Errors
    /// `E_NOT_A_REPO`; errors from git.
    pub fn prepare_message(
        &self,
        text: &str,
        source: Option<&str>,
        key: Option<&str>,
        origin: &Origin,
    ) -> Result<Option<String>> {
        // A merge, a squash and a reused or amended commit already have a message.
        if matches!(source, Some("merge" | "squash" | "commit")) {
            return Ok(None);
        }
        let shown: usize = text
            .split_inclusive('\n')
            .take_while(|line| !is_comment(line))
            .map(str::len)
            .sum();
        let (said, comments) = text.split_at(shown);
        let parsed = parse(said);
        if is_of_git(said) || parsed.messages.iter().any(Message::is_ours) {
            return Ok(None);
        }
        let git = self.project.git()?;
        let head = git.head()?;
        let parent = match (&origin.checkpoint, &head) {
            (Some((_, oid)), _) | (None, Some(oid)) => oid.to_string(),
            (None, None) => "0".repeat(40),
        };
        let linear = Some(key.unwrap_or(NONE).to_owned());
        let mut message = parsed.messages.into_iter().next().unwrap_or_default();
        if message.scope == Scope::None {
            message.scope = key.map_or(Scope::Session, |key| Scope::Key(key.to_owned()));
        }
        if message.memory.is_empty() {
            message.memory.push(Note::None);
        }
        let session = Some(origin.session.clone());
        message.backtrace = Backtrace {
            parent: Some(parent[..12].to_owned()),
            remark: origin.checkpoint.as_ref().map(|(tag, _)| tag.clone()),
            linear: linear.clone(),
            session: session.clone(),
        };
        message.trailers = Trailers {
            parent: Some(parent),
            linear,
            session,
            session_id: Some(origin.session_id.clone()),
            checkpoint: origin.checkpoint.as_ref().map(|(tag, _)| tag.clone()),
            ..message.trailers
        };
        Ok(Some(format!("{message}{comments}")))
    }

    fn hook_paths(&self, hook: Hook) -> Result<(PathBuf, PathBuf)> {
        let git = self.project.git()?;
        let folder = git
            .succeed(
                &["rev-parse", "--git-path", "hooks"],
                &Run::default().with_hooks(),
            )?
            .text();
        let folder = git.root().join(folder);
        if !folder.starts_with(git.root()) && !folder.starts_with(git.common_dir()) {
            let message = format!(
                "hooks lie in {}, outside of this repository (core.hooksPath)",
                folder.display()
            );
            return Err(Error::refused(message)
                .hint("add the hook there by hand, or set core.hooksPath for this repository"));
        }
        Ok((
            folder.join(hook.name()),
            folder.join(format!("{}.before-forge", hook.name())),
        ))
    }
}

fn is_ours(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'\n')
        .nth(1)
        .is_some_and(|line| line.starts_with(MARK.as_bytes()))
}

fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("cannot read", path, &error)),
    }
}

fn write(path: &Path, script: &str) -> Result<()> {
    let failed = |error: std::io::Error| Error::io("cannot write", path, &error);
    let folder = path
        .parent()
        .ok_or_else(|| Error::new(Category::Failed, "E_IO", "hooks have no folder"))?;
    fs::create_dir_all(folder).map_err(failed)?;
    let mut file = tempfile::Builder::new()
        .prefix(".forge-hook-")
        .tempfile_in(folder)
        .map_err(failed)?;
    std::io::Write::write_all(&mut file, script.as_bytes()).map_err(failed)?;
    file.as_file()
        .set_permissions(fs::Permissions::from_mode(0o755))
        .map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path)
        .map(drop)
        .map_err(|error| failed(error.error))
}

#[cfg(test)]
mod tests;
