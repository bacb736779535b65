//! Checkpoint status: compares the checkpoint tags with the files that mirror them.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::manifest::Manifest;
use super::name::{Name, PREFIX};
use super::state::{CheckpointRef, State};
use crate::error::{Category, Error, Result};
use crate::git::{Git, Oid, Run, Tag};
use crate::json;
use crate::layout;
use crate::project::Project;
use crate::time::Time;

/// The checkpoints of a project.
#[derive(Debug, Clone, Copy)]
pub struct Checkpoints<'a> {
    pub(super) project: &'a Project,
}

/// A checkpoint, and its state.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Checkpoint {
    /// Its name: `<KEY>-v<N>`.
    pub name: String,
    /// Its tag: `checkpoint/<KEY>-v<N>`.
    pub tag: String,
    /// Its state.
    pub state: State,
    /// The full commit id, if it is in this clone. If tag and file disagree, the one in the file.
    pub commit: Option<String>,
    /// When it was created.
    pub timestamp: Option<Time>,
    /// Whether it is safe to roll back to.
    ///
    /// Its state is `ok`, and the tag holds checks that all succeeded on exactly this commit and code.
    pub can_rollback_to: bool,
    /// Further remarks.
    pub notes: Vec<String>,
    /// The manifest of the tag or, if it has none, of the file.
    pub manifest: Option<Manifest>,
}

/// Result of verifying the checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verified {
    /// The checkpoints, newest first.
    pub checkpoints: Vec<Checkpoint>,
    /// The missing files that were rebuilt from their tags.
    pub rebuilt: Vec<String>,
}

/// The manifests of a checkpoint: from its tag and from its file.
#[derive(Default)]
struct Both {
    tag: Option<Tag>,
    file: Option<Result<Manifest, String>>,
}

impl Checkpoint {
    /// Returns its commit, if the full id is known.
    #[must_use]
    pub fn oid(&self) -> Option<Oid> {
        self.commit.as_deref().and_then(Oid::parse)
    }
}

impl<'a> Checkpoints<'a> {
    /// Returns the checkpoints of a project.
    #[must_use]
    pub const fn new(project: &'a Project) -> Self {
        Self { project }
    }
}

impl Checkpoints<'_> {
    /// Returns all checkpoints, newest first. Changes nothing.
    ///
    /// # Errors
    /// `NotFound` (`E_NOT_A_REPO`) without git.
    pub fn list(&self) -> Result<Vec<Checkpoint>> {
        let git = self.project.git()?;
        let mut both = self.files()?;
        for tag in git.tags(PREFIX)? {
            if let Some(name) = Name::parse(&tag.name) {
                both.entry(name).or_default().tag = Some(tag);
            }
        }
        let head = git.head()?;
        let merged = merged(git, head.as_ref(), &both)?;
        let mut all: Vec<(Name, Checkpoint)> = Vec::new();
        for (name, both) in both {
            let checkpoint = judge(git, &name, &both, &merged)?;
            all.push((name, checkpoint));
        }
        all.sort_by(|(a, x), (b, y)| (y.timestamp, b).cmp(&(x.timestamp, a)));
        Ok(all.into_iter().map(|(_, checkpoint)| checkpoint).collect())
    }

    /// Returns one checkpoint. Changes nothing.
    ///
    /// # Errors
    /// `NotFound` if no checkpoint has that name.
    pub fn show(&self, name: &str) -> Result<Checkpoint> {
        let name = Name::asked(name)?.to_string();
        self.list()?.into_iter().find(|checkpoint| checkpoint.name == name).ok_or_else(|| {
            Error::not_found(format!("there is no checkpoint {name}")).next("helmdeck forge checkpoint list")
        })
    }

    /// Returns the newest checkpoint that is safe to roll back to.
    ///
    /// # Errors
    /// See [`Checkpoints::list`].
    pub fn newest_usable(&self) -> Result<Option<Checkpoint>> {
        Ok(self.list()?.into_iter().find(|checkpoint| checkpoint.can_rollback_to))
    }

    /// Returns the newest checkpoint whose state is `ok`.
    ///
    /// It is reachable from HEAD, but not necessarily safe to roll back to.
    ///
    /// # Errors
    /// See [`Checkpoints::list`].
    pub fn newest_valid(&self) -> Result<Option<Checkpoint>> {
        Ok(self.list()?.into_iter().find(|checkpoint| checkpoint.state == State::Ok))
    }

    /// Verifies all checkpoints or one, and rebuilds missing files from their tags.
    ///
    /// It checks that the commits have the trees that the tags name. It never creates a tag: a file without
    /// a tag is reported.
    ///
    /// # Errors
    /// `NotFound` if no checkpoint has that name; errors from writing a file.
    pub fn verify(&self, name: Option<&str>) -> Result<Verified> {
        self.project.check_not_paused()?;
        let git = self.project.git()?;
        let mut checkpoints = match name {
            Some(name) => vec![self.show(name)?],
            None => self.list()?,
        };
        let mut rebuilt = Vec::new();
        for checkpoint in &mut checkpoints {
            check_trees(git, checkpoint)?;
            let tag = git.tag(&checkpoint.tag)?;
            let held = tag.and_then(|tag| Manifest::of_message(&tag.message).ok().flatten());
            let Some(name) = Name::parse(&checkpoint.name) else { continue };
            if let Some(held) = held.filter(|held| held.tag == checkpoint.tag)
                && self.project.files().create(&name.path(), &print(&held)?)?
            {
                checkpoint.notes.retain(|note| note != NO_FILE);
                rebuilt.push(name.path());
            }
        }
        Ok(Verified { checkpoints, rebuilt })
    }

    /// Returns the tag of a checkpoint, and the expected content of its mirror file.
    ///
    /// `None` if the tag does not exist, or has no manifest.
    pub(crate) fn mirror(&self, name: &str) -> Result<Option<(String, Vec<u8>)>> {
        let Some(name) = Name::parse(name) else { return Ok(None) };
        let Some(tag) = self.project.git()?.tag(&name.tag())? else { return Ok(None) };
        let held = Manifest::of_message(&tag.message).ok().flatten().filter(|held| held.tag == tag.name);
        held.map(|held| Ok((tag.name, print(&held)?))).transpose()
    }

    /// Reads the files that mirror the tags.
    ///
    /// A damaged file is not an error here: its checkpoint gets the status `manifest_corrupt`.
    fn files(&self) -> Result<BTreeMap<Name, Both>> {
        let files = self.project.files().reading();
        let mut all = BTreeMap::new();
        for entry in files.list(layout::CHECKPOINTS)? {
            let Some(name) = entry.name.strip_suffix(".json").and_then(Name::parse) else { continue };
            let path = name.path();
            let file = match files.load_at::<Manifest>(&path) {
                Ok(None) => continue,
                Ok(Some(loaded)) if loaded.value.tag != name.tag() => {
                    Err(format!("{path} speaks of {:?}", loaded.value.tag))
                }
                Ok(Some(loaded)) => Ok(loaded.value),
                Err(error) if matches!(error.category, Category::Corrupt | Category::Refused) => Err(error.message),
                Err(error) => return Err(error),
            };
            all.insert(name, Both { tag: None, file: Some(file) });
        }
        Ok(all)
    }
}

const NO_FILE: &str = "the file of its manifest is missing, and can be written anew from the tag";

/// Prints a manifest as its file holds it.
pub(super) fn print(manifest: &Manifest) -> Result<Vec<u8>> {
    json::print(manifest).map_err(|error| Error::new(Category::Failed, "E_INVALID", format!("a manifest: {error}")))
}

/// Returns the commits of the tags that are ancestors of HEAD.
fn merged(git: &Git, head: Option<&Oid>, both: &BTreeMap<Name, Both>) -> Result<BTreeSet<Oid>> {
    let Some(head) = head else { return Ok(BTreeSet::new()) };
    let here = both.values().filter_map(|both| both.tag.as_ref().filter(|tag| tag.here)?.commit.clone());
    let here: BTreeSet<Oid> = here.collect();
    if here.is_empty() {
        return Ok(here);
    }
    let merged = format!("--merged={head}");
    let args = ["for-each-ref", &merged, "--format=%(objectname) %(*objectname)", "refs/tags/checkpoint/"];
    let output = git.run(&args, &Run::default())?;
    if output.ok() {
        return Ok(output.text().split_ascii_whitespace().filter_map(Oid::parse).collect());
    }
    // One tag whose commit is missing makes the whole query fail, so test each commit on its own.
    let mut inside = BTreeSet::new();
    for oid in here {
        if git.is_ancestor(&oid, head)? {
            inside.insert(oid);
        }
    }
    Ok(inside)
}

/// Judges a checkpoint from its tag and its file.
fn judge(git: &Git, name: &Name, both: &Both, merged: &BTreeSet<Oid>) -> Result<Checkpoint> {
    let mut notes = Vec::new();
    let held = both.tag.as_ref().map(|tag| Manifest::of_message(&tag.message)).transpose();
    let held = match held {
        Ok(held) => held.flatten(),
        Err(what) => {
            notes.push(what);
            None
        }
    };
    let damaged = !notes.is_empty();
    let file = match &both.file {
        Some(Ok(manifest)) => Some(manifest),
        Some(Err(what)) => {
            notes.push(what.clone());
            None
        }
        None => None,
    };
    let corrupt = damaged || matches!(both.file, Some(Err(_)));
    let marked = both.tag.as_ref().and_then(|tag| tag.commit.clone());
    let names = |manifest: &Manifest| marked.as_ref().is_some_and(|oid| manifest.names(oid.as_str()));
    let agree = marked.is_some()
        && held.as_ref().is_none_or(|held| names(held) && held.tag == name.tag())
        && file.is_none_or(names);
    // The commit in the file is where the tag should be.
    let named = file.map(|file| file.commit.clone()).or_else(|| held.as_ref().map(|held| held.commit.clone()));
    let commit = if agree { marked } else { named.as_deref().map_or(Ok(None), |named| git.resolve(named))? };
    let here = match &both.tag {
        Some(tag) if agree => tag.here,
        _ => commit.is_some(),
    };
    let ancestor = commit.as_ref().is_some_and(|commit| merged.contains(commit));
    let state = CheckpointRef { corrupt, tag: both.tag.is_some(), agree, commit: here, ancestor }.state();
    if both.tag.is_some() && held.is_none() && !damaged {
        notes.push(
            "its tag holds no manifest: a person made it, and nothing shows that anything was checked".to_owned(),
        );
    }
    if both.tag.is_some() && both.file.is_none() && held.is_some() {
        notes.push(NO_FILE.to_owned());
    }
    if let (Some(held), Some(file)) = (&held, file)
        && held != file
    {
        notes.push("the file of its manifest differs from the tag; the tag counts".to_owned());
    }
    let can_rollback_to = state == State::Ok && held.as_ref().is_some_and(Manifest::proven);
    let manifest = held.or_else(|| file.cloned());
    Ok(Checkpoint {
        name: name.to_string(),
        tag: name.tag(),
        state,
        commit: commit.map(|oid| oid.to_string()).or(named),
        timestamp: manifest
            .as_ref()
            .map(|manifest| manifest.timestamp)
            .or(both.tag.as_ref().and_then(|tag| tag.time.map(Time::from))),
        can_rollback_to,
        notes,
        manifest,
    })
}

/// Checks that the commit has the trees that the manifest names.
pub(crate) fn check_trees(git: &Git, checkpoint: &mut Checkpoint) -> Result<()> {
    if checkpoint.state != State::Ok {
        return Ok(());
    }
    let (Some(commit), Some(manifest)) = (checkpoint.oid(), &checkpoint.manifest) else { return Ok(()) };
    let tree = git.tree(&commit)?;
    let code_tree = git.code_tree(&commit)?;
    let tree_differs = manifest.tree.as_deref().is_some_and(|named| named != tree.as_str());
    if tree_differs || manifest.code_tree.as_deref().is_some_and(|named| named != code_tree) {
        checkpoint.notes.push("the commit holds another tree than the one that was checked".to_owned());
        checkpoint.can_rollback_to = false;
        checkpoint.state = State::ManifestCorrupt;
    }
    Ok(())
}
