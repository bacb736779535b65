//! Coding agents: the lines in their instruction files, the hooks in their settings, and what the
//! hooks do.
//!
//! `forge init --agent` writes both, and `--remove` takes them away again. What people wrote in
//! these files stays. A hook never fails: an agent must not stop because of its memory.

mod hooks;
mod settings;
mod text;

pub(crate) use text::without as without_lines;

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use strum::IntoStaticStr;

pub use hooks::{Event, HookInput, run};

use crate::error::{Category, Error, Result};
use crate::project::Project;

/// Maximum size of a file that is edited, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// A coding agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Agent {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Cursor.
    Cursor,
    /// Gemini CLI.
    Gemini,
}

impl Agent {
    /// All agents.
    pub const ALL: [Self; 4] = [Self::Claude, Self::Codex, Self::Cursor, Self::Gemini];

    /// Returns the name, as commands have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The file with instructions that the agent reads.
    const fn instructions(self) -> &'static str {
        match self {
            Self::Claude => "CLAUDE.md",
            Self::Codex | Self::Cursor => "AGENTS.md",
            Self::Gemini => "GEMINI.md",
        }
    }

    /// The file with the agent's hooks.
    const fn settings(self) -> &'static str {
        match self {
            Self::Claude => ".claude/settings.json",
            Self::Codex => ".codex/hooks.json",
            Self::Cursor => ".cursor/hooks.json",
            Self::Gemini => ".gemini/settings.json",
        }
    }

    /// What a person has to know of this agent.
    const fn note(self) -> Option<&'static str> {
        match self {
            Self::Codex => Some(
                "Codex has no hook at the end of a session: at the end of a turn, the session ends if its focus is DONE. Codex \
                 asks once whether it may run these hooks; versions before 0.139 need `[features] codex_hooks = true`",
            ),
            _ => None,
        }
    }
}

/// What was, or would be, written for an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentSetup {
    /// The agent.
    pub agent: Agent,
    /// The hooks: the agent's event, and the command that runs at it.
    pub hooks: Vec<AgentHook>,
    /// The files that change, below the root. Empty if everything is as wanted.
    pub changed: Vec<String>,
    /// What to know about this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
}

/// A hook of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentHook {
    /// The agent's name of the event.
    pub event: &'static str,
    /// The shell command.
    pub command: String,
}

/// A file, and its new content: `None` removes it.
struct Edit {
    file: &'static str,
    path: PathBuf,
    new: Option<String>,
}

/// Returns what a setup, or its removal, would change.
///
/// # Errors
/// As [`apply`], apart from writing.
pub fn plan(project: &Project, agent: Agent, remove: bool) -> Result<AgentSetup> {
    Ok(setup(agent, remove, &edits(project, agent, remove)?))
}

/// Writes the lines and hooks of an agent, or removes them. A repeat changes nothing.
///
/// # Errors
/// `Refused` if a file is a link that leads out of the project, is too large, or is not in the
/// agent's format; `Failed` if it cannot be written; `Paused`.
pub fn apply(project: &Project, agent: Agent, remove: bool) -> Result<AgentSetup> {
    project.check_not_paused()?;
    let edits = edits(project, agent, remove)?;
    for Edit { path, new, .. } in &edits {
        let Some(text) = new else {
            fs::remove_file(path).map_err(|error| Error::io("cannot remove", path, &error))?;
            if let Some(folder) = path.parent().filter(|folder| *folder != project.root()) {
                // A folder that is not empty stays.
                let _ = fs::remove_dir(folder);
            }
            continue;
        };
        write(path, text)?;
    }
    Ok(setup(agent, remove, &edits))
}

fn setup(agent: Agent, remove: bool, edits: &[Edit]) -> AgentSetup {
    let hooks = if remove {
        Vec::new()
    } else {
        settings::hooks(agent)
    };
    AgentSetup {
        agent,
        hooks,
        changed: edits.iter().map(|edit| edit.file.to_owned()).collect(),
        note: agent.note().filter(|_| !remove),
    }
}

/// Returns the edits that lead to the wanted state.
fn edits(project: &Project, agent: Agent, remove: bool) -> Result<Vec<Edit>> {
    let root = project.root();
    let mut edits = Vec::new();
    let mut edit = |file: &'static str, path: PathBuf, old: Option<String>, new: Option<String>| {
        if old != new {
            edits.push(Edit { file, path, new });
        }
    };
    let (path, old) = read(root, agent.settings())?;
    let wrong = |why: String| {
        Error::refused(format!("{} is left as it is: {why}", agent.settings()))
            .hint("repair it in an editor, then repeat")
    };
    let new = match remove {
        true => old
            .as_deref()
            .map(|old| settings::without(agent, old))
            .transpose()
            .map_err(wrong)?
            .flatten(),
        false => Some(settings::with(agent, old.as_deref()).map_err(wrong)?),
    };
    edit(agent.settings(), path, old, new);

    let (path, old) = read(root, agent.instructions())?;
    let new = match (remove, &old) {
        (false, _) => Some(text::with(old.as_deref().unwrap_or_default())),
        (true, Some(old)) if !is_needed_by_others(root, agent)? => text::without(old),
        (true, _) => old.clone(),
    };
    edit(agent.instructions(), path, old, new);
    Ok(edits)
}

/// Says whether another agent with the same instruction file has our hooks.
fn is_needed_by_others(root: &Path, agent: Agent) -> Result<bool> {
    for other in Agent::ALL {
        if other != agent
            && other.instructions() == agent.instructions()
            && read(root, other.settings())?
                .1
                .is_some_and(|text| text.contains(settings::MARK))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads a file of the project, and returns where it is: a link is followed, but not out of the
/// project.
fn read(root: &Path, file: &str) -> Result<(PathBuf, Option<String>)> {
    let path = root.join(file);
    let io = |error: std::io::Error| Error::io("cannot read", &path, &error);
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(error) if error.kind() == ErrorKind::NotFound && path.symlink_metadata().is_err() => {
            return Ok((path, None));
        }
        Err(error) => return Err(io(error)),
    };
    let root = root.canonicalize().map_err(io)?;
    if !real.starts_with(&root) {
        return Err(Error::refused(format!(
            "{file} is a link that leads out of the project"
        )));
    }
    let opened = fs::File::open(&real).map_err(io)?;
    if !opened.metadata().map_err(io)?.is_file() {
        return Err(Error::refused(format!("{file} is no file")));
    }
    let mut bytes = Vec::new();
    opened
        .take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(Error::new(
            Category::Refused,
            "E_TOO_LARGE",
            format!("{file} is larger than 1 MiB"),
        ));
    }
    let text =
        String::from_utf8(bytes).map_err(|_| Error::refused(format!("{file} is no UTF-8 text")))?;
    Ok((real, Some(text)))
}

/// Writes a file whole, with the permissions that it had.
fn write(path: &Path, text: &str) -> Result<()> {
    let put = || -> std::io::Result<()> {
        let folder = path.parent().ok_or(ErrorKind::NotFound)?;
        fs::create_dir_all(folder)?;
        // A new file gets the permissions that the user's umask gives.
        let Ok(about) = fs::metadata(path) else {
            return fs::write(path, text);
        };
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().set_permissions(about.permissions())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    put().map_err(|error| Error::io("cannot write", path, &error))
}

#[cfg(test)]
mod tests;
