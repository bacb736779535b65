//! `forge.features_*`: features and their state.

use helmdeck_forge::Project;
use helmdeck_forge::error::Error;
use helmdeck_forge::features::{Add, Changed, Chosen, Counts, Edit, Features, Item, Standing};
use serde::{Deserialize, Serialize};

use super::place::Done;

/// Default number of features in a list.
const LISTED: usize = 100;

/// Adds a feature.
pub(super) type Adding = fn(&Project, Add) -> Done<Changed>;
/// Changes a feature.
pub(super) type Setting = fn(&Project, Set) -> Done<Changed>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    #[serde(default)]
    standing: Vec<Standing>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct Listed {
    etag: Option<String>,
    counts: Counts,
    /// Number of features that match, including those beyond the limit.
    total: usize,
    features: Vec<Item>,
    /// The feature to work on next.
    next: Option<Chosen>,
}

pub(super) fn list(project: &Project, input: List) -> Done<Listed> {
    let listed = Features::new(project).list()?;
    let mut features = listed.features;
    features.retain(|item| input.standing.is_empty() || input.standing.contains(&item.standing));
    let total = features.len();
    features.truncate(input.limit.unwrap_or(LISTED));
    let next = Features::new(project).next()?;
    Ok(Listed {
        etag: listed.etag,
        counts: listed.counts,
        total,
        features,
        next,
    })
}

pub(super) fn add(project: &Project, input: Add) -> Done<Changed> {
    Features::new(project).add(&input, None)
}

pub(super) fn add_untested(project: &Project, input: Add) -> Done<Changed> {
    refuse_tests(!input.tests.is_empty())?;
    add(project, input)
}

#[derive(Deserialize)]
pub(super) struct Set {
    id: String,
    if_match: Option<String>,
    #[serde(default)]
    remove: bool,
    #[serde(flatten)]
    edit: Edit,
}

pub(super) fn set(project: &Project, input: Set) -> Done<Changed> {
    let (features, if_match) = (Features::new(project), input.if_match.as_deref());
    if !input.remove {
        return features.set(&input.id, &input.edit, if_match);
    }
    if (Edit {
        reason: None,
        ..input.edit.clone()
    }) != Edit::default()
    {
        return Err(Error::usage(
            "a feature that is removed is not changed too: give only a reason",
        ));
    }
    features.remove(&input.id, input.edit.reason.as_deref(), if_match)
}

pub(super) fn set_untested(project: &Project, input: Set) -> Done<Changed> {
    refuse_tests(input.edit.tests.is_some())?;
    set(project, input)
}

/// A named test is a file that another caller's `verify` runs.
fn refuse_tests(named: bool) -> Done<()> {
    if !named {
        return Ok(());
    }
    Err(
        Error::refused("tests may only be named by who may run programs here")
            .hint("leave \"tests\" out, or set [forge] run in the configuration of helmdeck"),
    )
}
