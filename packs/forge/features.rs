//! `forge.features_*`: features and their state.

use helmdeck_forge::Project;
use helmdeck_forge::error::Error;
use helmdeck_forge::features::{Add, Changed, Chosen, Counts, Edit, Features, Item, Standing, Verified};
use serde::{Deserialize, Serialize};

use super::place::{Done, Nothing};

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
    closely: bool,
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
}

pub(super) fn list(project: &Project, input: List) -> Done<Listed> {
    let listed = Features::new(project).list(input.closely)?;
    let mut features = listed.features;
    features.retain(|item| input.standing.is_empty() || input.standing.contains(&item.standing));
    let total = features.len();
    features.truncate(input.limit.unwrap_or(LISTED));
    Ok(Listed { etag: listed.etag, counts: listed.counts, total, features })
}

#[derive(Serialize)]
pub(super) struct NextOne {
    next: Option<Chosen>,
}

pub(super) fn next(project: &Project, _: Nothing) -> Done<NextOne> {
    Ok(NextOne { next: Features::new(project).next()? })
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
    #[serde(flatten)]
    edit: Edit,
}

pub(super) fn set(project: &Project, input: Set) -> Done<Changed> {
    Features::new(project).set(&input.id, &input.edit, input.if_match.as_deref())
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
    Err(Error::refused("tests may only be named by who may run programs here")
        .hint("leave \"tests\" out, or set [forge] run in the configuration of helmdeck"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    id: String,
}

pub(super) fn verify(project: &Project, input: Named) -> Done<Verified> {
    Features::new(project).verify(&input.id)
}
