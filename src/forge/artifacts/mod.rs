//! Artifacts of a project: code, documents and reports, named by content and origin.
//!
//! A file is written once and never changed. Nothing here runs an artifact.

mod entry;
mod index;
mod rebuild;
mod snapshot;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use entry::{Kind, ProjectArtifact, is_text, media_type};
pub use rebuild::State;
pub use snapshot::Snapshot;

use crate::committed;
use crate::error::{Category, Error, Result};
use crate::events::{self, Subject};
use crate::files::LONG_LIST;
use crate::focus::{Focus, Focused};
use crate::layout::ARTIFACT_INDEX;
use crate::project::Project;
use crate::sessions::Sessions;
use crate::triv::{self, Context, FileName, Reference, Triv};

/// Name of the report of a verification of features.
pub(crate) const VERIFICATION: &str = "verify.json";

/// Metadata of an artifact to store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Put {
    /// What kind of thing it is.
    pub kind: Kind,
    /// Its name with its ending: `qa_report.json`.
    pub name: String,
    /// What it was made from.
    #[serde(default)]
    pub produced_from: Vec<Reference>,
    /// What it replaces.
    #[serde(default)]
    pub supersedes: Option<Reference>,
    /// The session. Not given: that in which this is done, or that of the focus.
    #[serde(default)]
    pub session: Option<String>,
    /// The issue. Not given: that of the focus.
    #[serde(default)]
    pub linear: Option<String>,
    /// The skill. Not given: that of the focus.
    #[serde(default)]
    pub skill: Option<String>,
}

impl Put {
    /// Stores content under a name; the other metadata comes from the focus.
    #[must_use]
    pub fn new(kind: Kind, name: impl Into<String>) -> Self {
        Self {
            kind,
            name: name.into(),
            produced_from: Vec::new(),
            supersedes: None,
            session: None,
            linear: None,
            skill: None,
        }
    }
}

/// An artifact was stored.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Stored {
    /// Its index entry.
    pub entry: ProjectArtifact,
    /// Whether its file was there already: then only a line was added to the index.
    pub same: bool,
    /// Warnings: unresolved references, more than `total_bytes` of artifacts.
    pub warnings: Vec<String>,
}

/// An artifact, as a lookup returns it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Got {
    /// Its newest index entry.
    pub entry: ProjectArtifact,
    /// How many times it was made.
    pub made: usize,
    /// Whether its file is unchanged.
    pub state: State,
}

/// Filter of artifacts. A field that is not set matches all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Of this kind.
    pub kind: Option<Kind>,
    /// Made in this session.
    pub session: Option<String>,
    /// Made for this issue.
    pub linear: Option<String>,
    /// Made with this skill.
    pub skill: Option<String>,
    /// With this in its name.
    pub name: Option<String>,
    /// Maximum number of results; 0 = all.
    pub limit: usize,
}

/// The artifacts.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Listed {
    /// Those that were wanted, the newest first.
    pub artifacts: Vec<ProjectArtifact>,
    /// How many were wanted, with those beyond the limit.
    pub total: usize,
}

/// What was produced.
#[derive(Debug, Clone, Copy)]
pub struct Artifacts<'a> {
    project: &'a Project,
}

impl<'a> Artifacts<'a> {
    /// Returns the artifacts of a project.
    #[must_use]
    pub const fn new(project: &'a Project) -> Self {
        Self { project }
    }
}

impl Artifacts<'_> {
    /// Stores a copy of any file on this machine.
    ///
    /// # Errors
    /// As [`Self::put`]; `NotFound` if the file does not exist, `Usage` if it is not a regular
    /// file, `Failed` if it cannot be read.
    pub fn put_file(&self, file: &Path, put: &Put) -> Result<Stored> {
        let io = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::not_found(format!("there is no file {}", file.display()))
            }
            _ => Error::io("cannot read", file, &error),
        };
        // `NONBLOCK`: to open a pipe without a writer would otherwise block for ever.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let source =
            rustix::fs::open(file, flags, Mode::empty()).map_err(|error| io(error.into()))?;
        let source = File::from(source);
        let about = source.metadata().map_err(io)?;
        if !about.is_file() {
            return Err(Error::usage(format!(
                "cannot store {}: it is no file",
                file.display()
            )));
        }
        self.check_size(about.len())?;
        let mut bytes = Vec::new();
        source
            .take(self.project.config().artifacts.max_bytes + 1)
            .read_to_end(&mut bytes)
            .map_err(io)?;
        self.put(&bytes, put)
    }

    /// Stores bytes as an artifact.
    ///
    /// The same bytes of the same kind share one file, whatever their names. Each call adds a line
    /// to the index.
    ///
    /// # Errors
    /// `Refused` (`E_TOO_LARGE`) over `[artifacts] max_bytes`, `Secret` if it holds a credential,
    /// `Usage`, `Paused`, `Locked`.
    pub fn put(&self, bytes: &[u8], put: &Put) -> Result<Stored> {
        self.project.check_not_paused()?;
        self.check_size(bytes.len() as u64)?;
        if put.name.trim().is_empty()
            || put.name.chars().count() > 255
            || put.name.chars().any(char::is_control)
        {
            return Err(Error::usage(
                "the name of an artifact has 1 to 255 characters, and no control characters",
            ));
        }
        let environment = self.project.environment();
        let head = committed::head(self.project);
        let focus = self.focus();
        let session = put
            .session
            .clone()
            .or_else(|| environment.session.clone())
            .or(focus.session);
        let linear = put.linear.clone().or(focus.linear_issue);
        let context = Context {
            kind: put.kind.as_str(),
            session: session.as_deref().unwrap_or("-"),
            agent: &environment.agent,
            key: linear.as_deref(),
            head: head.as_deref(),
            name: &put.name,
        };
        let triv = Triv::new(bytes, &context, environment.uuid())?;

        let files = self.project.files();
        let guard = files.lock()?;
        let (path, same) = self.place(put.kind, &put.name, triv.sch(), bytes)?;
        let mut warnings = Vec::new();
        let references: Vec<&Reference> = put.produced_from.iter().chain(&put.supersedes).collect();
        let known = if references.is_empty() {
            Vec::new()
        } else {
            index::read(self.project)?
        };
        for reference in references {
            if !known.iter().any(|entry| entry.answers_to(reference)) {
                warnings.push(format!("dangling: {reference} stands for no artifact"));
            }
        }
        let entry = ProjectArtifact {
            triv,
            path,
            kind: put.kind,
            name: put.name.clone(),
            media_type: media_type(&put.name, bytes).to_owned(),
            bytes: bytes.len() as u64,
            created_at: environment.now(),
            session,
            agent: Some(environment.agent.clone()),
            linear,
            skill: put.skill.clone().or(focus.active_skill),
            commit: head,
            produced_from: put.produced_from.clone(),
            supersedes: put.supersedes.clone(),
            sha256: Some(helmdeck_core::hex(&Sha256::digest(bytes))),
            rebuilt: false,
            other: crate::json::Members::default(),
        };
        let line = serde_json::to_string(&entry)
            .map_err(|error| Error::usage(format!("the artifact: {error}")))?;
        // Its name may be refused too: then there must be no file with that name.
        files.refuse_secrets(ARTIFACT_INDEX, line.as_bytes())?;
        if !same {
            self.create(&entry.path, bytes)?;
        }
        files.append_to_parts(ARTIFACT_INDEX, &line, LONG_LIST)?;
        drop(guard);
        let payload = serde_json::json!({ "triv": entry.triv, "kind": entry.kind, "bytes": entry.bytes, "same": same });
        events::emit(self.project, Subject::Artifact, payload);
        let (total, most) = (self.total()?, self.project.config().artifacts.total_bytes);
        if total > most {
            warnings
                .push(format!("the artifacts have {total} bytes, more than {most}: see which of them nothing needs"));
        }
        Ok(Stored {
            entry,
            same,
            warnings,
        })
    }

    /// Finds the file with these bytes, or a name for one that no other content has.
    fn place(&self, kind: Kind, name: &str, sch: &str, bytes: &[u8]) -> Result<(String, bool)> {
        let (files, folder) = (self.project.files(), kind.folder());
        let mut shorts = Vec::new();
        for file in files.list(&folder)? {
            let Ok(there) = FileName::parse(&file.name) else {
                continue;
            };
            if sch.starts_with(there.short()) {
                let path = format!("{folder}/{}", file.name);
                if files.read(&path)?.as_deref() == Some(bytes) {
                    return Ok((path, true));
                }
            }
            shorts.push(there.short().to_owned());
        }
        let path = format!(
            "{folder}/{}",
            FileName::new(sch, name, |short| shorts.iter().any(|taken| taken == short))
        );
        Ok((path, false))
    }

    fn create(&self, path: &str, bytes: &[u8]) -> Result<()> {
        if self.project.files().create(path, bytes)? {
            return Ok(());
        }
        let error = Error::new(
            Category::Corrupt,
            "E_CORRUPT",
            format!("{path} is not what its name says"),
        );
        Err(error
            .hint("it was changed after it was stored; nothing was written over it")
            .next("helmdeck forge artifact list"))
    }

    /// Finds an artifact by name, file or hash.
    ///
    /// The name may be shortened (`triv:abc_def_ghi`). A file is given by its name or path, a hash
    /// by its first six or more characters.
    ///
    /// # Errors
    /// `NotFound` (`E_DANGLING`) if there is none, `Usage` (`E_AMBIGUOUS`) if there are several.
    pub fn get(&self, name: &str) -> Result<Got> {
        let entries = index::read(self.project)?;
        let reference = Reference::parse(name).ok();
        let is_hash = (6..=triv::SCH_LEN).contains(&name.len());
        let file = name
            .rsplit('/')
            .next()
            .filter(|file| file.starts_with("triv_"));
        let found: Vec<&ProjectArtifact> = entries
            .iter()
            .filter(|entry| match (&reference, file) {
                (Some(reference), _) => entry.answers_to(reference),
                (None, Some(file)) if name == file => entry.path.rsplit('/').next() == Some(file),
                (None, Some(_)) => entry.path.ends_with(name.trim_start_matches("./")),
                (None, None) => is_hash && entry.triv.sch().starts_with(name),
            })
            .collect();
        let Some(entry) = found.iter().max_by_key(|entry| entry.created_at).copied() else {
            return Err(Error::new(
                Category::NotFound,
                "E_DANGLING",
                format!("{name} stands for no artifact"),
            )
            .next("helmdeck forge artifact list"));
        };
        if found.iter().any(|other| other.path != entry.path) {
            let message = format!(
                "{name} stands for {} lines of the index, of more than one file",
                found.len()
            );
            return Err(
                Error::new(Category::Usage, "E_AMBIGUOUS", message).hint("write more of the name")
            );
        }
        let made = entries
            .iter()
            .filter(|other| other.path == entry.path)
            .count();
        Ok(Got {
            state: rebuild::state(self.project, entry)?,
            entry: entry.clone(),
            made,
        })
    }

    /// Returns the bytes of an artifact.
    ///
    /// # Errors
    /// `NotFound` if the file is missing, `Corrupt` if it is not what was stored.
    pub fn bytes(&self, entry: &ProjectArtifact) -> Result<Vec<u8>> {
        let bytes = self.project.files().read(&entry.path)?;
        let bytes = bytes.ok_or_else(|| Error::not_found(format!("{} is missing", entry.path)))?;
        if triv::sch(&bytes) == entry.triv.sch() {
            return Ok(bytes);
        }
        let error = Error::new(
            Category::Corrupt,
            "E_CORRUPT",
            format!("{} is not what was stored", entry.path),
        );
        Err(error
            .hint("it was changed after it was stored")
            .next("helmdeck forge artifact list"))
    }

    /// Lists the index entries of artifacts.
    ///
    /// # Errors
    /// The errors of reading the index.
    pub fn list(&self, filter: &Filter) -> Result<Listed> {
        let is =
            |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        let mut artifacts: Vec<ProjectArtifact> = index::read(self.project)?
            .into_iter()
            .filter(|entry| {
                filter.kind.is_none_or(|kind| kind == entry.kind)
                    && is(&filter.session, &entry.session)
                    && is(&filter.linear, &entry.linear)
                    && is(&filter.skill, &entry.skill)
                    && filter
                        .name
                        .as_ref()
                        .is_none_or(|name| entry.name.contains(name.as_str()))
            })
            .collect();
        // Of lines with the same time, the later line comes first.
        artifacts.reverse();
        artifacts.sort_by_key(|entry| std::cmp::Reverse(entry.created_at));
        let total = artifacts.len();
        if filter.limit > 0 {
            artifacts.truncate(filter.limit);
        }
        Ok(Listed { artifacts, total })
    }

    /// Returns how long all artifacts are together, in bytes.
    ///
    /// # Errors
    /// The errors of listing the folders.
    pub fn total(&self) -> Result<u64> {
        let mut total = 0;
        for kind in Kind::ALL {
            total += self
                .project
                .files()
                .list(&kind.folder())?
                .iter()
                .map(|file| file.bytes)
                .sum::<u64>();
        }
        Ok(total)
    }

    fn check_size(&self, bytes: u64) -> Result<()> {
        let config = self.project.config();
        // A file over the size limit for reading could be stored, but never read again.
        let (most, which) =
            (config.artifacts.max_bytes, "[artifacts]").min((config.files.max_bytes, "[files]"));
        if bytes <= most {
            return Ok(());
        }
        let message =
            format!("the artifact has {bytes} bytes or more, and at most {most} are stored");
        let error = Error::new(Category::Refused, "E_TOO_LARGE", message);
        Err(error.hint(format!(
            "if it must be so large, raise max_bytes under {which} in .forge/config.toml"
        )))
    }

    /// Returns the focus of the session that stores an artifact.
    ///
    /// It is empty if it is absent or unreadable, because the artifact is stored anyway.
    fn focus(&self) -> Focus {
        let load = |focus: Result<Focused<'_>>| focus.ok()?.show().ok()?.map(|shown| shown.focus);
        let primary = || load(Ok(Focused::new(self.project)));
        let focus = match &self.project.environment().session {
            // The focus of another agent does not apply to what this one stores.
            None => load(
                Sessions::new(self.project)
                    .focus_to_change()
                    .map(|(focus, _)| focus),
            ),
            Some(session) => load(Focused::new(self.project).of(session)).or_else(|| {
                primary().filter(|focus| focus.session.as_ref().is_none_or(|of| of == session))
            }),
        };
        focus.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
