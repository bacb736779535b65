//! What the seam sees, for whoever wonders why it says what it says.

use std::path::PathBuf;

use serde::Serialize;

use crate::config::SeamConfig;
use crate::context::Context;
use crate::error::{StateError, Warning};
use crate::ground::Ground;
use crate::recall::Recall;
use crate::state::State;

/// What the seam sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Doctor {
    /// Whether nothing is wrong.
    pub ok: bool,
    /// The root of the project.
    #[serde(serialize_with = "crate::text::lossy")]
    pub root: PathBuf,
    /// What the project is called.
    pub project: Option<String>,
    /// What says so: `vault_project`, `github.repo` or `origin`.
    pub project_from: Option<&'static str>,
    /// The root of the vault.
    #[serde(serialize_with = "crate::text::lossy_or_none")]
    pub vault: Option<PathBuf>,
    /// What says where it is: a variable, or a setting.
    pub vault_from: Option<String>,
    /// Where the project lies in the vault, whether it is there or not.
    #[serde(serialize_with = "crate::text::lossy_or_none")]
    pub place: Option<PathBuf>,
    /// The folder that holds `.forge/`.
    #[serde(serialize_with = "crate::text::lossy_or_none")]
    pub forge: Option<PathBuf>,
    /// Where the files of the plan lie, if that can be told.
    pub state: Option<State>,
    /// Why it cannot.
    pub error: Option<StateError>,
    /// How many notes are recalled in the phase of the context.
    pub recalled: usize,
    /// What cannot be read.
    pub warnings: Vec<Warning>,
}

impl Doctor {
    pub(crate) fn of(ground: Ground<'_>, config: &SeamConfig, context: &Context) -> Self {
        let look = ground.look;
        let recall = Recall::of(Ground::of(look, config, context), config, context, None, None);
        let slug = ground.slug.as_ref().ok().and_then(Option::as_ref);
        let vault = ground.vault.as_ref();
        let mut doctor = Self {
            ok: false,
            root: ground.root.clone(),
            project: slug.map(|slug| slug.name.to_string()),
            project_from: slug.map(|slug| slug.from),
            vault: vault.map(|(vault, _)| vault.root().to_owned()),
            vault_from: vault.map(|(_, by)| by.clone()),
            place: vault.zip(slug).map(|((vault, _), slug)| vault.project(&slug.name).path),
            forge: ground.forge(config).ok().flatten().map(|forge| forge.root().to_owned()),
            state: None,
            error: None,
            recalled: recall.entries,
            warnings: recall.warnings,
        };
        match State::of(&ground, context.plan.as_deref()) {
            Ok(state) => {
                let new = state.warnings.iter().filter(|warning| !doctor.warnings.contains(warning)).cloned();
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
