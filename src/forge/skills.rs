//! Skills of a project: found by their triggers, and read only as far as needed.
//!
//! Metadata of all skills is cheap and always read. The instructions of a skill are read when it is shown, and its
//! resources file by file. A skill grants no permissions: its scripts run only when a user runs them, with that
//! user's rights.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Category, Error, Result};
use crate::events::{self, Events, Replay};
use crate::layout;
use crate::project::Project;
use crate::sessions::Sessions;
use crate::subjects::Subject;
use crate::time::Time;

use helmdeck_skills::source::{self, SkillFile};
pub use helmdeck_skills::{
    Chains, Dependencies, FIRES, Front, Imported, Kind, Logged, LoggedMatch, Manifest, Match, Pattern, Problem, Query,
    Read, Reason, Skill, Stat, Tokens, Triggers, Value, circles, estimate, export, import, matches, not_run, plan,
    read, samples, scan, stats,
};
use helmdeck_skills::{agent, folder, manifest};

/// The skills of a project.
#[derive(Debug, Clone, Copy)]
pub struct Skills<'a> {
    project: &'a Project,
}

/// A skill with its instructions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shown {
    /// Its metadata.
    pub skill: Skill,
    /// The instructions.
    pub instructions: String,
}

/// An activated skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Activated {
    /// Its name.
    pub skill: String,
    /// The skills to run, in their order; it is one of them.
    pub plan: Vec<String>,
}

/// A skill that was made of a `SKILL.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Taken {
    /// Its name.
    pub skill: String,
    /// The files that were written.
    pub files: Vec<String>,
    /// What could not be imported.
    pub warnings: Vec<Problem>,
}

/// Triggers that were imported from a `SKILL.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Synced {
    /// The name of the skill.
    pub skill: String,
    /// Whether anything was added.
    pub changed: bool,
    /// The keywords that the manifest has now.
    pub keywords: Vec<String>,
    /// The file patterns that the manifest has now.
    pub file_patterns: Vec<String>,
}

impl<'a> Skills<'a> {
    /// Returns the skills of a project.
    #[must_use]
    pub const fn new(project: &'a Project) -> Self {
        Self { project }
    }
}

impl Skills<'_> {
    /// Returns all skills by name, invalid ones with the reasons.
    ///
    /// Only manifests are read: no instructions, no resources.
    ///
    /// # Errors
    /// `Failed` if the folder cannot be read.
    pub fn list(&self) -> Result<Vec<Skill>> {
        scan(self.project.root())
    }

    /// Returns a skill with its instructions.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` if it is invalid or its instructions are no text; `Refused`
    /// (`E_TOO_LARGE`) if these are more than about 20,000 tokens.
    pub fn show(&self, name: &str) -> Result<Shown> {
        let skill = self.named(name)?;
        if skill.tokens.instructions > folder::TOO_MANY {
            let message = format!(
                "the instructions of {name:?} are about {} tokens, and at most {} are shown",
                skill.tokens.instructions,
                folder::TOO_MANY
            );
            return Err(
                Error::new(Category::Refused, "E_TOO_LARGE", message).hint("move details into resources of the skill")
            );
        }
        let skill = usable(skill)?;
        let path = skill.resources.get("instructions").map(String::as_str).unwrap_or(agent::INSTRUCTIONS);
        let bytes = self.file(name, path)?;
        let instructions = String::from_utf8(bytes)
            .map_err(|_| Error::new(Category::Corrupt, "E_CORRUPT", format!("{path} of {name:?} is no UTF-8 text")))?;
        Ok(Shown { skill, instructions })
    }

    /// Returns one file that a skill brings, by its path below the skill's folder.
    ///
    /// # Errors
    /// `NotFound`; `Refused` if the path leads out of the skill.
    pub fn resource(&self, name: &str, path: &str) -> Result<Vec<u8>> {
        self.named(name)?;
        self.file(name, path)
    }

    /// Returns the skills that have points for a query; see [`matches()`].
    ///
    /// Invalid skills have none. Nothing is logged.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub fn matching(&self, query: &Query) -> Result<Vec<Match>> {
        Ok(matching(&self.list()?, query))
    }

    /// As [`Self::matching`], and logs in the journal which skills fired, for [`Self::stats`].
    ///
    /// `by` names the caller. While work is paused nothing is logged, but the matches are returned.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub fn ask(&self, query: &Query, by: &str) -> Result<Vec<Match>> {
        let found = self.matching(query)?;
        let line = Logged::matched(&found, by);
        if !line.matched.is_empty() && self.project.check_not_paused().is_ok() {
            events::emit(self.project, Subject::Skill, line);
        }
        Ok(found)
    }

    /// Returns the skills to run for these names, in the order of running; see [`plan`].
    ///
    /// # Errors
    /// `NotFound`; `Refused` (`E_CYCLE`).
    pub fn plan(&self, names: &[&str]) -> Result<Vec<String>> {
        plan(&chains(&self.list()?), names)
    }

    /// Logs that a skill is activated, and returns the skills that run before and after it.
    ///
    /// If there is a `focus.json`, it names the skill from then on. `by` names the caller.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` if the skill is invalid; `Refused` (`E_CYCLE`); `Paused`; errors of changing the focus.
    pub fn activate(&self, name: &str, by: &str) -> Result<Activated> {
        self.project.check_not_paused()?;
        let skill = usable(self.named(name)?)?;
        let plan = self.plan(&[name])?;
        let (focus, _) = Sessions::new(self.project).focus_to_change()?;
        if focus.show()?.is_some() {
            let change = crate::focus::SetFocus { active_skill: Some(skill.name.clone()), ..Default::default() };
            focus.set(&change)?;
        }
        events::emit(self.project, Subject::Skill, Logged::activated(&skill.name, by));
        Ok(Activated { skill: skill.name, plan })
    }

    /// Returns how often each skill fired and was activated, as far as the journal goes back.
    ///
    /// # Errors
    /// The errors of reading the folder or the journal.
    pub fn stats(&self) -> Result<Vec<Stat>> {
        let skills = self.list()?;
        let lines = self.noted(None)?;
        Ok(stats(skills.iter().map(|skill| skill.name.as_str()), lines))
    }

    /// Returns the skills that are chained to those activated in a session, but were not activated.
    ///
    /// # Errors
    /// As [`Self::stats`].
    pub fn not_run(&self, session: &str) -> Result<Vec<String>> {
        let ran: BTreeSet<String> =
            self.noted(Some(session))?.into_iter().flat_map(|(_, line)| line.activated).collect();
        Ok(not_run(&chains(&self.list()?), &ran))
    }

    /// Makes a skill of the text of a `SKILL.md`; see [`import`].
    ///
    /// # Errors
    /// `Usage` if the text makes no skill; `Refused` (`E_EXISTS`) if there is a skill of that name; `Secret`, `Paused`.
    pub fn import(&self, text: &str) -> Result<Taken> {
        self.take_over(text, &[], Vec::new())
    }

    /// Imports a skill from a `SKILL.md`, or from a folder with a `SKILL.md` and other files.
    ///
    /// From a folder, all files are imported (scripts, references). From a `SKILL.md` that has files beside it, only
    /// the text is imported, with a warning that names those files.
    ///
    /// # Errors
    /// As [`Self::import`]; `Refused` for a folder with links or too much in it; `Failed` if something cannot be read.
    pub fn import_path(&self, from: &Path) -> Result<Taken> {
        if from.is_dir() {
            let content = source::read(from)?;
            return self.take_over(&content.text, &content.files, content.warnings);
        }
        let text = source::text(from)?;
        self.take_over(&text, &[], source::beside(from))
    }

    fn take_over(&self, text: &str, brought: &[SkillFile], mut warnings: Vec<Problem>) -> Result<Taken> {
        self.project.check_not_paused()?;
        let skill = import(text).map_err(Error::usage)?;
        if skill.instructions.trim().is_empty() {
            return Err(Error::usage(
                "the SKILL.md has no text after its front matter, so the skill would have no instructions",
            ));
        }
        let name = &skill.manifest.name;
        let files = self.project.files();
        let path = |file: &str| format!("{}/{name}/{file}", layout::SKILLS);
        // The lock keeps two imports from sharing a folder.
        let _guard = files.lock()?;
        // An import that was killed has left these very instructions, and no more.
        let half = files.entry(&path("skill.toml"))?.is_none()
            && files.read(&path(agent::INSTRUCTIONS))?.as_deref() == Some(skill.instructions.as_bytes());
        if !half && files.entry(&format!("{}/{name}", layout::SKILLS))?.is_some() {
            let message = format!("there is a skill {name:?} already, which is left as it is");
            return Err(Error::new(Category::Refused, "E_EXISTS", message));
        }
        let front = text.strip_suffix(skill.instructions).unwrap_or_default();
        // A credential in any of them is found before anything is written.
        files.check_secrets(&path("skill.toml"), skill.text.as_bytes())?;
        files.check_secrets(&path(agent::FRONT_MATTER), front.as_bytes())?;
        for file in brought {
            files.check_secrets(&path(&file.path), &file.bytes)?;
        }
        files.create(&path(agent::INSTRUCTIONS), skill.instructions.as_bytes())?;
        for file in brought {
            let path = path(&file.path);
            let mode = file.executable.then_some(file.mode());
            if !files.create_with(&path, &file.bytes, mode)? && files.read(&path)?.as_deref() != Some(&*file.bytes) {
                let message = format!("{path} is there already with another content, and is left as it is");
                return Err(Error::new(Category::Refused, "E_EXISTS", message));
            }
        }
        files.create(&path(agent::FRONT_MATTER), front.as_bytes())?;
        // The manifest comes last: without it the import is not complete, and can be repeated.
        files.create(&path("skill.toml"), skill.text.as_bytes())?;
        let mut written = vec![path("skill.toml"), path(agent::INSTRUCTIONS), path(agent::FRONT_MATTER)];
        written.extend(brought.iter().map(|file| path(&file.path)));
        warnings.extend(skill.warnings);
        Ok(Taken { skill: name.clone(), files: written, warnings })
    }

    /// Returns a skill as the text of a `SKILL.md`; see [`export`].
    ///
    /// An imported skill whose manifest has not changed since gets its own front matter back. Its resources other than
    /// the instructions are not included.
    ///
    /// # Errors
    /// As [`Self::show`].
    pub fn export(&self, name: &str) -> Result<String> {
        let shown = self.show(name)?;
        let manifest = self.manifest(name)?;
        let front = self.project.files().read(&format!("{}/{name}/{}", layout::SKILLS, agent::FRONT_MATTER))?;
        if let Some(front) = front.and_then(|front| String::from_utf8(front).ok()) {
            let text = format!("{front}{}", shown.instructions);
            if import(&text).is_ok_and(|skill| skill.text == manifest && skill.instructions == shown.instructions) {
                return Ok(text);
            }
        }
        export(&manifest, &shown.instructions).map_err(|why| Error::new(Category::Corrupt, "E_CORRUPT", why))
    }

    /// Writes a skill as the folder of an Agent Skill: `SKILL.md`, and every file that the skill brings.
    ///
    /// Scripts stay executable. Returns the files, below the folder.
    ///
    /// # Errors
    /// As [`Self::show`]; `Refused` (`E_EXISTS`) if the folder is there and not empty; `Failed` if it cannot be written.
    pub fn export_to(&self, name: &str, folder: &Path) -> Result<Vec<String>> {
        let text = self.export(name)?;
        let skill = self.named(name)?;
        let instructions = skill.resources.get("instructions").map_or(agent::INSTRUCTIONS, String::as_str);
        let new = |path: String, bytes: Vec<u8>, executable: bool| SkillFile { path, bytes, executable };
        let mut all = vec![new(source::SKILL_MD.to_owned(), text.into_bytes(), false)];
        for path in self.files_below(&format!("{}/{name}", layout::SKILLS))? {
            let own = path.strip_prefix(&format!("{}/{name}/", layout::SKILLS)).unwrap_or(&path).to_owned();
            if !["skill.toml", agent::FRONT_MATTER, instructions].contains(&own.as_str()) {
                let bytes = self.project.files().read(&path)?.unwrap_or_default();
                let about = std::fs::symlink_metadata(self.project.root().join(&path));
                all.push(new(own, bytes, about.is_ok_and(|about| about.permissions().mode() & 0o111 != 0)));
            }
        }
        let io = |error: std::io::Error| Error::io("cannot write in", folder, &error);
        if std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
            let message = format!("{} is there already, and not empty", folder.display());
            return Err(Error::new(Category::Refused, "E_EXISTS", message).hint("name a folder that does not exist"));
        }
        for file in &all {
            let path = folder.join(&file.path);
            std::fs::create_dir_all(path.parent().unwrap_or(folder)).map_err(io)?;
            let mut options = std::fs::OpenOptions::new();
            let mut to = options.write(true).create_new(true).mode(file.mode()).open(path).map_err(io)?;
            to.write_all(&file.bytes).map_err(io)?;
        }
        Ok(all.into_iter().map(|file| file.path).collect())
    }

    fn files_below(&self, folder: &str) -> Result<Vec<String>> {
        let mut all = Vec::new();
        for entry in self.project.files().list(folder)? {
            let path = format!("{folder}/{}", entry.name);
            if entry.folder {
                all.extend(self.files_below(&path)?);
            } else {
                all.push(path);
            }
        }
        Ok(all)
    }

    /// Adds the triggers that a `SKILL.md` has for other clients (`triggers`, `paths`) to a skill.
    ///
    /// Everything else in its manifest stays.
    ///
    /// # Errors
    /// `NotFound`; `Usage` if the text is not a `SKILL.md`, or a manifest cannot hold one of the triggers; `Corrupt` if
    /// the manifest is not TOML; `Secret`, `Paused`.
    pub fn sync_triggers(&self, name: &str, text: &str) -> Result<Synced> {
        self.project.check_not_paused()?;
        self.named(name)?;
        let (keywords, patterns) = agent::triggers(text).map_err(Error::usage)?;
        let files = self.project.files();
        let _guard = files.lock()?;
        let old = self.manifest(name)?;
        if let Err(error) = old.parse::<toml_edit::DocumentMut>() {
            let before = error.span().map_or(0, |span| span.start);
            let line = 1 + old.get(..before).unwrap_or_default().matches('\n').count();
            let damage = crate::files::Damage { line, column: 1, what: error.message().to_owned() };
            let path = format!("{}/{name}/skill.toml", layout::SKILLS);
            return Err(files.unreadable(&path, old.as_bytes(), crate::files::Unreadable::Damaged(damage)));
        }
        let new = manifest::add_triggers(&old, &keywords, &patterns).map_err(Error::usage)?;
        let read = manifest::read(new.as_deref().unwrap_or(&old));
        if let Some(new) = &new {
            if let Some(error) =
                read.errors.iter().find(|error| manifest::read(&old).errors.iter().all(|old| old.code != error.code))
            {
                return Err(Error::usage(error.message.clone()));
            }
            files.write(&format!("{}/{name}/skill.toml", layout::SKILLS), new.as_bytes())?;
        }
        let Triggers { keywords, file_patterns, .. } = read.manifest.triggers;
        Ok(Synced { skill: name.to_owned(), changed: new.is_some(), keywords, file_patterns })
    }

    fn named(&self, name: &str) -> Result<Skill> {
        let found = self.list()?.into_iter().find(|skill| skill.name == name);
        found.ok_or_else(|| {
            Error::not_found(format!("there is no skill {name:?} in {}", layout::SKILLS))
                .next("helmdeck forge skill list")
        })
    }

    fn manifest(&self, name: &str) -> Result<String> {
        let bytes = self.file(name, "skill.toml")?;
        String::from_utf8(bytes)
            .map_err(|_| Error::new(Category::Corrupt, "E_CORRUPT", format!("skill.toml of {name:?} is no UTF-8 text")))
    }

    /// Reads a file of a skill, which must lie inside it.
    fn file(&self, name: &str, path: &str) -> Result<Vec<u8>> {
        let folder = self.project.root().join(layout::SKILLS).join(name);
        let found = folder::inside(&folder, path).map_err(|problem| match problem.code.as_str() {
            "missing" => Error::not_found(format!("the skill {name:?}: {}", problem.message)),
            _ => Error::refused(format!("the skill {name:?}: {}", problem.message)),
        })?;
        if !found.is_file() {
            return Err(Error::usage(format!("{path} of the skill {name:?} is no file")));
        }
        let inner = format!("{}/{name}/{path}", layout::SKILLS);
        self.project.files().read(&inner)?.ok_or_else(|| Error::not_found(format!("there is no {inner}")))
    }

    /// Returns the journal lines about skills, oldest first.
    fn noted(&self, session: Option<&str>) -> Result<Vec<(Time, Logged)>> {
        let asked = Replay { about: vec![Subject::Skill], session: session.map(str::to_owned), ..Replay::default() };
        let events = Events::new(self.project).replay(&asked)?.events;
        let line = |data: &crate::Json| serde_json::from_slice::<Logged>(&serde_json::to_vec(data).ok()?).ok();
        Ok(events.iter().filter_map(|event| Some((event.ts, line(&event.data)?))).collect())
    }
}

/// Returns which of these skills have points; invalid ones have none.
pub(crate) fn matching(skills: &[Skill], query: &Query) -> Vec<Match> {
    let valid = skills.iter().filter(|skill| skill.valid);
    matches(valid.map(|skill| (skill.name.as_str(), &skill.triggers)), query)
}

fn chains(skills: &[Skill]) -> Chains<'_> {
    skills.iter().map(|skill| (skill.name.as_str(), &skill.dependencies)).collect()
}

fn usable(skill: Skill) -> Result<Skill> {
    let Some(first) = skill.errors.first() else { return Ok(skill) };
    let more = match skill.errors.len() {
        1 => String::new(),
        more => format!(" (and {} more)", more - 1),
    };
    let message = format!("the skill {:?} cannot be used: {}{more}", skill.name, first.message);
    Err(Error::new(Category::Corrupt, "E_SKILL_INVALID", message).next("helmdeck forge skill list"))
}
