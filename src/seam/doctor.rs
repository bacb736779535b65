//! Diagnosis of the seam, to explain its answers.

use std::fmt;
use std::path::PathBuf;

use crate::readers::{Layout, Topic};
use serde::Serialize;

use crate::config::SeamConfig;
use crate::context::Context;
use crate::error::{StateError, Warning};
use crate::phase::{Phase, Read};
use crate::plan::Meant;
use crate::recall::Recall;
use crate::resolved::Resolved;
use crate::state::{PlanFiles, Store};
use crate::text::one_line;

/// A source of notes: the number of its notes, and of those without room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Source {
    /// Name of the source: `_always-load`, `decisions`, `.forge/invariants`.
    pub name: String,
    /// Number of notes.
    pub found: usize,
}

/// Diagnosis of the seam.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Doctor {
    /// Whether nothing is wrong.
    pub ok: bool,
    /// The root of the project.
    #[serde(serialize_with = "crate::text::lossy")]
    pub root: PathBuf,
    /// Name of the project.
    pub project: Option<String>,
    /// Source of the name: `vault_project`, `github.repo` or `origin`.
    pub project_from: Option<&'static str>,
    /// The root of the vault.
    #[serde(serialize_with = "crate::text::lossy_or_none")]
    pub vault: Option<PathBuf>,
    /// Source of its location: a variable, or a setting.
    pub vault_from: Option<String>,
    /// Folder of the project in the vault. It need not exist.
    #[serde(serialize_with = "crate::text::lossy_or_none")]
    pub place: Option<PathBuf>,
    /// The folder that holds `.forge/`.
    #[serde(serialize_with = "crate::text::lossy_or_none")]
    pub forge: Option<PathBuf>,
    /// Location of the files of the plan, if it is known.
    pub state: Option<PlanFiles>,
    /// Why it cannot.
    pub error: Option<StateError>,
    /// Number of notes recalled in the phase of the context.
    pub recalled: usize,
    /// Warnings about what cannot be read.
    pub warnings: Vec<Warning>,
    /// Layout of the vault: `projects`, `desk`, `personal-projects`, or `spaces` if the settings
    /// say.
    pub layout: Option<&'static str>,
    /// Whether the project is in the vault yet.
    pub in_vault: bool,
    /// Whether `.project-mode` or `state_mode` keeps state in the project, even if there is a
    /// vault.
    pub local: bool,
    /// The plan that `.harness/active-plan` binds the work tree to, or why it is unknown.
    ///
    /// None without a marker.
    pub marker: Option<String>,
    /// The phase whose notes are counted.
    pub phase: Phase,
    /// Sources of its notes.
    pub sources: Vec<Source>,
    /// Number of notes without room.
    pub omitted: usize,
}

impl Doctor {
    pub(crate) fn of(resolved: Resolved<'_>, config: &SeamConfig, context: &Context) -> Self {
        let look = resolved.look;
        let recall = Recall::of(
            Resolved::of(look, config, context),
            config,
            context,
            None,
            None,
        );
        let slug = resolved.slug.as_ref().ok().and_then(Option::as_ref);
        let vault = resolved.vault.as_ref();
        let place = vault
            .zip(slug)
            .map(|((vault, _), slug)| vault.project(&slug.name));
        let phase = Phase::of(context.phase.as_deref().unwrap_or_default());
        let mut doctor = Self {
            ok: false,
            root: resolved.root.clone(),
            project: slug.map(|slug| slug.name.to_string()),
            project_from: slug.map(|slug| slug.from),
            vault: vault.map(|(vault, _)| vault.root().to_owned()),
            vault_from: vault.map(|(_, by)| by.clone()),
            layout: place.as_ref().map(|place| layout(place.layout)),
            in_vault: place.as_ref().is_some_and(|place| place.exists),
            place: place.map(|place| place.path),
            forge: resolved
                .forge(config)
                .ok()
                .flatten()
                .map(|forge| forge.root().to_owned()),
            state: None,
            error: None,
            recalled: recall.entries,
            warnings: recall.warnings,
            local: resolved.local,
            marker: match Meant::of(&resolved, None) {
                Ok(meant) => meant.name().map(ToString::to_string),
                Err(error) => Some(error.cause),
            },
            phase,
            sources: sources(&resolved, config, phase),
            omitted: recall.omitted_count,
        };
        match PlanFiles::of(&resolved, context.plan.as_deref()) {
            Ok(state) => {
                let new = state
                    .warnings
                    .iter()
                    .filter(|warning| !doctor.warnings.contains(warning))
                    .cloned();
                let new: Vec<Warning> = new.collect();
                doctor.warnings.extend(new);
                doctor.state = Some(state);
            }
            Err(error) => doctor.error = Some(error),
        }
        doctor.ok = doctor.error.is_none() && doctor.warnings.is_empty();
        doctor
    }
}

const fn layout(layout: Layout) -> &'static str {
    match layout {
        Layout::Root => "projects",
        Layout::Desk => "desk",
        Layout::Legacy => "personal-projects",
        Layout::Set => "spaces",
    }
}

/// Counts what can be recalled. The recall reported what cannot be read.
fn sources(resolved: &Resolved<'_>, config: &SeamConfig, phase: Phase) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut add = |name: String, found: usize| {
        if found > 0 {
            sources.push(Source { name, found });
        }
    };
    if let Some((vault, _)) = &resolved.vault {
        add("_always-load".to_owned(), vault.always_load().notes.len());
        let place = resolved.name().map(|name| vault.project(name));
        for read in phase.reads() {
            let Some(path) = place.as_ref().map(|place| place.path.join(read.path())) else {
                continue;
            };
            let found = match read {
                Read::Index => usize::from(
                    resolved
                        .look
                        .behind(&path)
                        .is_ok_and(|about| about.is_some()),
                ),
                _ => vault.notes(&path).map_or(0, |notes| notes.len()),
            };
            add(read.path().to_owned(), found);
        }
    }
    if let Ok(Some(forge)) = resolved.forge(config) {
        let learned = forge.learned().unwrap_or_default();
        let of = |topic: Topic| learned.iter().filter(|entry| entry.topic == topic).count();
        add(".forge/invariants".to_owned(), of(Topic::Invariant));
        for read in phase.reads() {
            let (name, found) = match read {
                Read::Index => (
                    "architecture",
                    usize::from(forge.architecture().is_ok_and(|text| text.is_some())),
                ),
                Read::Questions => (
                    "features",
                    forge.open_features().map_or(0, |lines| lines.len()),
                ),
                Read::Decisions => (read.path(), of(Topic::Decision)),
                Read::Issues => (read.path(), of(Topic::Issue)),
                Read::Style => continue,
            };
            add(format!(".forge/{name}"), found);
        }
    }
    sources
}

/// A line for each thing that is seen, then one for each that is wrong.
impl fmt::Display for Doctor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, value: String| writeln!(f, "{name}: {}", one_line(&value));
        let by = |value: String, by: Option<&str>| {
            by.map_or_else(|| value.clone(), |by| format!("{value} ({by})"))
        };
        let none = || "none".to_owned();
        line("root", self.root.display().to_string())?;
        line(
            "project",
            self.project
                .clone()
                .map_or_else(none, |name| by(name, self.project_from)),
        )?;
        let vault = self.vault.as_ref().map(|path| path.display().to_string());
        line(
            "vault",
            vault.map_or_else(none, |path| by(path, self.vault_from.as_deref())),
        )?;
        if let Some(place) = &self.place {
            let layout = self.layout.unwrap_or_default();
            let there = if self.in_vault {
                layout.to_owned()
            } else {
                format!("{layout}, not there yet")
            };
            line("place", by(place.display().to_string(), Some(&there)))?;
        }
        line(
            "forge",
            self.forge
                .as_ref()
                .map_or_else(none, |path| path.display().to_string()),
        )?;
        let store = match (&self.state, self.local) {
            (None, _) => none(),
            (_, true) => "project (local)".to_owned(),
            (
                Some(PlanFiles {
                    store: Store::Vault,
                    ..
                }),
                _,
            ) => "vault".to_owned(),
            _ => "project".to_owned(),
        };
        line("state", store)?;
        if let Some(state) = &self.state {
            line("plan", state.plan.display().to_string())?;
        }
        line("marker", self.marker.clone().unwrap_or_else(none))?;
        line(
            "recall",
            format!(
                "{} of {}, {} left out",
                self.recalled, self.phase, self.omitted
            ),
        )?;
        for Source { name, found } in &self.sources {
            line("source", format!("{name}, {found}"))?;
        }
        for warning in &self.warnings {
            line(
                &format!("warning[{}]", warning.code),
                warning.message.clone(),
            )?;
        }
        if let Some(error) = &self.error {
            line(&format!("error[{}]", error.fault.code()), error.to_string())?;
        }
        Ok(())
    }
}
