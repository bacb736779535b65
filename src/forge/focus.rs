//! The current focus: `focus.json`.

use std::borrow::Cow;
use std::path::Path;

use helmdeck_forge_documents::marks;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::committed;
use crate::error::{Category, Error, Result};
use crate::events::{self, Subject, data};
use crate::features::FeaturesFile;
use crate::files::{Document, Files, Loaded, check_path};
use crate::json::Members;
use crate::layout::{FOCUS, session_folder};
use crate::project::Project;
use crate::time::Time;

/// The longest task, in characters.
const TASK_MAX: usize = 500;
/// Maximum number of files, and of blockers.
const LIST_MAX: usize = 200;

/// Phase of the work.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Phase {
    /// It is being planned.
    #[default]
    Plan,
    /// It is being made.
    Build,
    /// It is being tested.
    Verify,
    /// It is being reviewed.
    Review,
    /// It waits for something.
    Blocked,
    /// It is finished.
    Done,
    /// A phase that this program does not know. It is kept unchanged.
    #[serde(untagged)]
    Other(String),
}

impl Phase {
    /// Every known phase.
    pub const ALL: [Self; 6] = [
        Self::Plan,
        Self::Build,
        Self::Verify,
        Self::Review,
        Self::Blocked,
        Self::Done,
    ];

    /// Returns the word in the file.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Plan => "PLAN",
            Self::Build => "BUILD",
            Self::Verify => "VERIFY",
            Self::Review => "REVIEW",
            Self::Blocked => "BLOCKED",
            Self::Done => "DONE",
            Self::Other(word) => word,
        }
    }

    /// Returns the phase of a word; any other word is kept.
    #[must_use]
    pub fn of(word: &str) -> Self {
        Self::ALL
            .into_iter()
            .find(|phase| phase.as_str() == word)
            .unwrap_or_else(|| Self::Other(word.to_owned()))
    }
}

impl JsonSchema for Phase {
    fn schema_name() -> Cow<'static, str> {
        "Phase".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "PLAN, BUILD, VERIFY, REVIEW, BLOCKED or DONE; another word is kept, with a warning."
        })
    }
}

/// Current focus of an agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Focus {
    /// The version of the file's shape; absent = `1.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_version: Option<String>,
    /// The task, 1 to 500 characters. `null` = none.
    pub task: Option<String>,
    /// The issue it belongs to: `SX9-123`. `null` = none.
    pub linear_issue: Option<String>,
    /// The files it is about, below the root.
    pub files: Vec<String>,
    /// The phase.
    pub phase: Phase,
    /// What it waits for.
    pub blockers: Vec<String>,
    /// When it was begun.
    pub started_at: Option<Time>,
    /// The skill that is followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_skill: Option<String>,
    /// The feature it is about: `FORGE-001`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feature_id: Option<String>,
    /// The session whose focus it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The commit that was checked out when it was begun, in hex.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<String>,
    /// Why it is the task, or why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Members this program does not know.
    #[serde(flatten)]
    pub other: Members,
}

impl Document for Focus {
    const PATH: &'static str = FOCUS;

    fn skeleton() -> Self {
        Self::default()
    }

    /// Only misleading values are refused; everything else is a warning.
    fn check(&self) -> Result<(), String> {
        if let Some(task) = &self.task
            && (task.trim().is_empty()
                || task.chars().count() > TASK_MAX
                || task.chars().any(char::is_control))
        {
            return Err(format!(
                "task is not one line of 1 to {TASK_MAX} characters"
            ));
        }
        let number = self.linear_issue.as_deref().map(|key| marks::split(key).0);
        if let Some(key) = number.filter(|key| !crate::issues::is_key(key)) {
            return Err(format!(
                "linear_issue {key:?} is neither null nor a key as SX9-123"
            ));
        }
        for path in &self.files {
            check_path(path).map_err(|error| format!("files: {error}"))?;
        }
        if let Phase::Other(word) = &self.phase
            && (word.chars().count() > 32 || word.chars().any(char::is_control))
        {
            return Err("phase is not a word of at most 32 characters".to_owned());
        }
        if self
            .blockers
            .iter()
            .any(|blocker| blocker.trim().is_empty() || blocker.chars().count() > 4000)
        {
            return Err("blockers: each has 1 to 4000 characters".to_owned());
        }
        if self.files.len() > LIST_MAX || self.blockers.len() > LIST_MAX {
            return Err(format!("there are more than {LIST_MAX} files or blockers"));
        }
        Ok(())
    }
}

impl Focus {
    /// Returns the warnings about it: an unknown phase, files that are missing or lead out of the
    /// root.
    #[must_use]
    pub fn warnings(&self, root: &Path) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Phase::Other(word) = &self.phase {
            let known: Vec<_> = Phase::ALL.iter().map(Phase::as_str).collect();
            warnings.push(format!(
                "phase {word:?} is none of {}; it is kept",
                known.join(", ")
            ));
        }
        let real = root.canonicalize();
        for path in &self.files {
            match (root.join(path).canonicalize(), &real) {
                (Ok(file), Ok(root)) if !file.starts_with(root) => {
                    warnings.push(format!("{path} leads out of the project"));
                }
                (Ok(_), _) => {}
                (Err(_), _) => warnings.push(format!("{path} does not exist")),
            }
        }
        warnings
    }
}

/// Change of a focus.
///
/// Fields that are not set stay, unless the task changes: that is a new focus, where fields that
/// are not set are empty.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SetFocus {
    /// The task.
    pub task: Option<String>,
    /// The issue it belongs to; empty = none.
    pub linear_issue: Option<String>,
    /// The files it is about.
    pub files: Option<Vec<String>>,
    /// The phase, in upper or lower case.
    pub phase: Option<String>,
    /// What it waits for.
    pub blockers: Option<Vec<String>>,
    /// The skill that is followed; empty = none.
    pub active_skill: Option<String>,
    /// The feature it is about; empty = none.
    pub feature_id: Option<String>,
    /// Why it is the task; empty = not given.
    pub reason: Option<String>,
    /// The session that sets it. A focus of another session is refused.
    pub session: Option<String>,
    /// The etag it must have.
    pub if_match: Option<String>,
}

impl SetFocus {
    /// Applies the change.
    fn apply(&self, focus: &mut Focus, now: Time, head: Option<String>) {
        let text = |new: &Option<String>, old: &mut Option<String>| {
            if let Some(new) = new {
                *old = Some(new.trim().to_owned()).filter(|new| !new.is_empty());
            }
        };
        let task = self.task.as_deref().map(str::trim);
        if task.is_some_and(|task| focus.task.as_deref() != Some(task)) {
            *focus = Focus {
                schema_version: focus.schema_version.take(),
                session: focus.session.take(),
                started_at: Some(now.seconds()),
                base_commit: head,
                other: std::mem::take(&mut focus.other),
                ..Focus::default()
            };
            text(&self.task, &mut focus.task);
        }
        text(&self.linear_issue, &mut focus.linear_issue);
        text(&self.active_skill, &mut focus.active_skill);
        text(&self.feature_id, &mut focus.feature_id);
        text(&self.reason, &mut focus.reason);
        text(&self.session, &mut focus.session);
        if let Some(files) = &self.files {
            focus.files.clone_from(files);
        }
        if let Some(blockers) = &self.blockers {
            focus.blockers.clone_from(blockers);
        }
        if let Some(phase) = &self.phase {
            focus.phase = Phase::of(&phase.trim().to_ascii_uppercase());
        }
    }
}

/// A focus with its etag and warnings.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Shown {
    /// The focus.
    pub focus: Focus,
    /// The etag of these bytes; for [`SetFocus::if_match`].
    pub etag: String,
    /// Whether a newer program wrote it: then it is read only.
    pub read_only: bool,
    /// Warnings about it.
    pub warnings: Vec<String>,
}

/// A focus was set.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Set {
    /// Whether anything changed. An event is sent only then.
    pub changed: bool,
    /// The task before.
    pub from: Option<String>,
    /// The focus now.
    #[serde(flatten)]
    pub now: Shown,
}

/// Reads a focus, with the numbers that its issue and its feature have now.
pub(crate) fn read(files: &Files, path: &str) -> Result<Option<Loaded<Focus>>> {
    let mut loaded: Option<Loaded<Focus>> = files.load_at(path)?;
    if let Some(loaded) = &mut loaded {
        resolve(files, &mut loaded.value);
    }
    Ok(loaded)
}

/// Replaces references by the numbers of now. What cannot be read is reported elsewhere.
fn resolve(files: &Files, focus: &mut Focus) {
    if let Some(key) = &mut focus.linear_issue {
        *key = crate::issues::resolve(&files.reading(), key);
    }
    if let Some(id) = focus
        .feature_id
        .as_mut()
        .filter(|id| marks::split(id).1.is_some())
    {
        let features = files.reading().load::<FeaturesFile>().ok().flatten();
        *id = features.map_or_else(
            || marks::split(id).0.to_owned(),
            |features| features.value.resolve(id),
        );
    }
}

/// Replaces numbers by references, which a merge does not change.
fn refer(files: &Files, focus: &mut Focus) {
    if let Some(key) = &mut focus.linear_issue {
        *key = crate::issues::reference(&files.reading(), key);
    }
    if let Some(id) = &mut focus.feature_id
        && let Ok(Some(features)) = files.reading().load::<FeaturesFile>()
    {
        *id = features.value.reference(id);
    }
}

/// The focus of one session.
#[derive(Debug, Clone)]
pub struct Focused<'a> {
    project: &'a Project,
    path: String,
}

impl<'a> Focused<'a> {
    /// Returns the focus of the primary session of a project.
    #[must_use]
    pub fn new(project: &'a Project) -> Self {
        Self {
            project,
            path: FOCUS.to_owned(),
        }
    }

    /// Returns the focus in the folder of a session: a secondary one, or one that is over.
    ///
    /// # Errors
    /// `Usage` if the name is not valid for such a folder.
    pub fn of(self, folder: &str) -> Result<Self> {
        Ok(Self {
            path: format!("{}/focus.json", session_folder(folder)?),
            ..self
        })
    }

    /// The path of the file, below the root.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Reads the focus. `None` if the file is absent.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn show(&self) -> Result<Option<Shown>> {
        Ok(read(self.project.files(), &self.path)?.map(
            |Loaded {
                 value,
                 etag,
                 read_only,
             }| {
                let mut warnings = value.warnings(self.project.root());
                if read_only {
                    warnings.push(
                        "schema_newer: a newer program wrote it; it is read only here".to_owned(),
                    );
                }
                Shown {
                    focus: value,
                    etag,
                    read_only,
                    warnings,
                }
            },
        ))
    }

    /// Changes the focus.
    ///
    /// # Errors
    /// `Usage` for an empty task, and for an unknown phase that the focus does not have already;
    /// `NotFound` for a feature that does not exist; `Locked` (`E_FOCUS_TAKEN`) if another session
    /// has the focus, `Stale`, `Corrupt`, `Secret`, `Paused`.
    pub fn set(&self, change: &SetFocus) -> Result<Set> {
        if change
            .task
            .as_deref()
            .is_some_and(|task| task.trim().is_empty())
        {
            return Err(Error::usage("a focus says what is to be done")
                .next("helmdeck forge focus set --clear"));
        }
        if let Some(id) = change
            .feature_id
            .as_deref()
            .map(str::trim)
            .filter(|id| !id.is_empty())
        {
            self.check_feature(id)?;
        }
        if let Some(phase) = &change.phase
            && let Phase::Other(word) = Phase::of(&phase.trim().to_ascii_uppercase())
            && self
                .show()?
                .is_none_or(|now| now.focus.phase.as_str() != word)
        {
            let known: Vec<_> = Phase::ALL.iter().map(Phase::as_str).collect();
            return Err(Error::usage(format!(
                "{phase:?} is no phase; there are {}",
                known.join(", ")
            )));
        }
        self.change(change.if_match.as_deref(), |focus, now, head| {
            if let (Some(mine), Some(theirs)) = (&change.session, &focus.session)
                && mine != theirs
            {
                let message = format!("{} is the focus of the session {theirs}", self.path);
                let error = Error::new(Category::Locked, "E_FOCUS_TAKEN", message);
                return Err(error
                    .hint("end that session, or join it as a second one with a focus of its own"));
            }
            change.apply(focus, now, head);
            Ok(())
        })
    }

    /// Refuses a feature that does not exist.
    ///
    /// Passes if there is no list of features, or it cannot be read: that is reported elsewhere.
    fn check_feature(&self, id: &str) -> Result<()> {
        let features = self.project.files().reading().load::<FeaturesFile>();
        let absent = features.is_ok_and(|file| {
            file.is_some_and(|file| !file.value.features.iter().any(|feature| feature.id == id))
        });
        if absent {
            return Err(Error::not_found(format!("there is no feature {id}"))
                .next("helmdeck forge features list"));
        }
        Ok(())
    }

    /// Begins a focus for a session, in place of the focus of any other session.
    ///
    /// With the same task, the focus continues where the previous one was.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn begin(&self, session: &str, change: &SetFocus) -> Result<Set> {
        session_folder(session)?;
        self.change(change.if_match.as_deref(), |focus, now, head| {
            SetFocus {
                session: Some(session.to_owned()),
                ..change.clone()
            }
            .apply(focus, now, head);
            Ok(())
        })
    }

    /// Clears the focus: no task is in progress.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn clear(&self, session: Option<&str>, reason: Option<&str>) -> Result<Set> {
        self.change(None, |focus, _, _| {
            *focus = Focus {
                schema_version: focus.schema_version.take(),
                session: session.map(str::to_owned),
                reason: reason.map(str::to_owned),
                ..Focus::default()
            };
            Ok(())
        })
    }

    fn change(
        &self,
        if_match: Option<&str>,
        change: impl FnOnce(&mut Focus, Time, Option<String>) -> Result<()>,
    ) -> Result<Set> {
        self.project.check_not_paused()?;
        let now = self.project.environment().now();
        let head = committed::head(self.project);
        let guard = self.project.files().lock()?;
        let (old, new) =
            self.project
                .files()
                .edit_at(&self.path, if_match, |focus: &mut Focus| {
                    resolve(self.project.files(), focus);
                    let old = focus.clone();
                    change(focus, now, head)?;
                    let new = focus.clone();
                    refer(self.project.files(), focus);
                    Ok((old, new))
                })?;
        let changed = old != new;
        let shown = self
            .show()?
            .ok_or_else(|| Error::not_found(format!("{} is gone", self.path)))?;
        drop(guard);
        if changed {
            let named = |focus: &Focus| focus.linear_issue.clone().or_else(|| focus.task.clone());
            let phase = Some(new.phase.as_str().to_owned());
            events::emit(
                self.project,
                Subject::FocusChange,
                data::Focused {
                    from: named(&old),
                    to: named(&new),
                    phase,
                },
            );
        }
        Ok(Set {
            changed,
            from: old.task,
            now: shown,
        })
    }
}

#[cfg(test)]
mod tests;
