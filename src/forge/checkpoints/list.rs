//! Checkpoint status: compares the checkpoint tags with the files that mirror them and with the
//! commits of this branch.

use std::collections::{BTreeMap, BTreeSet};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::JsonSchema;
use serde::Serialize;

use super::manifest::Manifest;
use super::name::{Name, PREFIX};
use super::same;
use super::state::State;
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
    /// Its tag: `checkpoint/<KEY>-v<N>`, with the folder of the project before the name if that is
    /// not the root.
    pub tag: String,
    /// Its state.
    pub state: State,
    /// The full id of the commit of this branch that is the checkpoint; without one, that of its
    /// own commit if it is in this clone. If tag and file disagree, the one in the file.
    pub commit: Option<String>,
    /// When it was created.
    pub timestamp: Option<Time>,
    /// Whether it is safe to roll back to.
    ///
    /// Its state is `ok`, and its manifest names checks that all succeeded on exactly this code.
    pub can_rollback_to: bool,
    /// Further remarks.
    pub notes: Vec<String>,
    /// The manifest of the tag or, if it has none, of the file.
    pub manifest: Option<Manifest>,
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

    /// Says whether its manifest proves that its code was verified.
    fn is_proven(&self) -> bool {
        self.manifest.as_ref().is_some_and(Manifest::proven)
    }
}

impl<'a> Checkpoints<'a> {
    /// Returns the checkpoints of a project.
    #[must_use]
    pub const fn new(project: &'a Project) -> Self {
        Self { project }
    }

    /// Returns the part of tags before the name: `checkpoint/`, with the folder of the project if
    /// it is not the root.
    ///
    /// Other projects of the repository have other tags.
    pub(crate) fn prefix(git: &Git) -> String {
        let folder = encode(git.scope());
        if folder.is_empty() {
            PREFIX.to_owned()
        } else {
            format!("{PREFIX}{folder}/")
        }
    }
}

/// Bytes of a folder that are written as `%XX` in a reference: git allows some of them in none.
const IN_REFERENCE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'/');

/// Writes a folder as the part of a reference.
pub(crate) fn encode(folder: &str) -> String {
    utf8_percent_encode(folder, IN_REFERENCE).to_string()
}

impl Checkpoints<'_> {
    /// Returns all checkpoints, newest first. Changes nothing.
    ///
    /// # Errors
    /// `NotFound` (`E_NOT_A_REPO`) without git.
    pub fn list(&self) -> Result<Vec<Checkpoint>> {
        let git = self.project.git()?;
        let prefix = Self::prefix(git);
        let mut both = self.files(&prefix)?;
        for tag in git.tags(&prefix)? {
            if let Some((_, name)) = Name::of_tag(&tag.name).filter(|(of, _)| *of == prefix) {
                let of_name = |other: &&Name| other.plain() == name;
                let its = tag
                    .commit
                    .as_ref()
                    .map(|commit| name.at(commit.as_str()))
                    .filter(|its| both.contains_key(its));
                // The file of another commit is that of another clone's, or the tag was moved.
                let its = its
                    .or_else(|| both.keys().find(of_name).cloned())
                    .unwrap_or(name);
                both.entry(its).or_default().tag = Some(tag);
            }
        }
        let plain: Vec<Name> = both.keys().map(Name::plain).collect();
        let mut all: Vec<(Name, Checkpoint)> = Vec::new();
        for (name, both) in both {
            let tag = format!("{prefix}{}", name.plain());
            let mut checkpoint = judge(git, tag, &both)?;
            let is_alone = plain.iter().filter(|other| **other == name.plain()).count() == 1;
            if !is_alone && both.tag.is_none() {
                checkpoint.name = name.to_string();
            }
            all.push((name, checkpoint));
        }
        self.place(git, &mut all)?;
        all.sort_by(|(a, x), (b, y)| (y.timestamp, b).cmp(&(x.timestamp, a)));
        Ok(all.into_iter().map(|(_, checkpoint)| checkpoint).collect())
    }

    /// Finds out which commits of this branch the checkpoints are.
    fn place(&self, git: &Git, all: &mut [(Name, Checkpoint)]) -> Result<()> {
        let Some(head) = git.head()? else {
            return Ok(());
        };
        let here: BTreeSet<Oid> = all
            .iter()
            .filter(|(_, one)| one.state == State::NotAncestor)
            .filter_map(|(_, one)| one.oid())
            .collect();
        let merged = merged(git, &head, here)?;
        for (_, checkpoint) in &mut *all {
            let is_ancestor = checkpoint
                .oid()
                .is_some_and(|commit| merged.contains(&commit));
            if is_ancestor && checkpoint.state == State::NotAncestor {
                checkpoint.state = State::Ok;
                checkpoint.can_rollback_to = checkpoint.is_proven();
            }
        }
        let usable = all
            .iter()
            .filter(|(_, one)| one.can_rollback_to)
            .filter_map(|(_, one)| one.timestamp)
            .max();
        let lost = |one: &Checkpoint| {
            matches!(one.state, State::NotAncestor | State::CommitMissing) && one.is_proven()
        };
        let manifests: Vec<&Manifest> = all
            .iter()
            .filter(|(_, one)| lost(one))
            .filter_map(|(_, one)| one.manifest.as_ref())
            .collect();
        let same = same::find(git, &manifests, usable)?;
        for (_, checkpoint) in all {
            let found = checkpoint
                .manifest
                .as_ref()
                .and_then(|manifest| same.get(&manifest.commit));
            if let Some(commit) = found.filter(|_| lost(checkpoint)) {
                (checkpoint.state, checkpoint.commit) = (State::Ok, Some(commit.to_string()));
                checkpoint.can_rollback_to = true;
            }
        }
        Ok(())
    }

    /// Returns one checkpoint. Changes nothing.
    ///
    /// # Errors
    /// `NotFound` if no checkpoint has that name.
    pub fn show(&self, name: &str) -> Result<Checkpoint> {
        let name = name
            .strip_prefix(&Self::prefix(self.project.git()?))
            .unwrap_or(name);
        let name = Name::asked(name)?.to_string();
        let mut all = self.list()?;
        let is_its = |checkpoint: &Checkpoint| {
            Name::parse(&checkpoint.name).is_some_and(|one| one.plain().to_string() == name)
        };
        let at = all
            .iter()
            .position(|one| one.name == name)
            .or_else(|| all.iter().position(is_its));
        at.map(|at| all.swap_remove(at)).ok_or_else(|| {
            Error::not_found(format!("there is no checkpoint {name}"))
                .next("helmdeck forge checkpoint list")
        })
    }

    /// Returns the newest checkpoint that is safe to roll back to.
    ///
    /// # Errors
    /// See [`Checkpoints::list`].
    pub fn newest_usable(&self) -> Result<Option<Checkpoint>> {
        Ok(self
            .list()?
            .into_iter()
            .find(|checkpoint| checkpoint.can_rollback_to))
    }

    /// Returns the newest checkpoint whose state is `ok`.
    ///
    /// It is reachable from HEAD, but not necessarily safe to roll back to.
    ///
    /// # Errors
    /// See [`Checkpoints::list`].
    pub fn newest_valid(&self) -> Result<Option<Checkpoint>> {
        Ok(self
            .list()?
            .into_iter()
            .find(|checkpoint| checkpoint.state == State::Ok))
    }

    /// Returns the tag of a checkpoint, and the expected content of its mirror file.
    ///
    /// `None` if the tag does not exist, or has no manifest.
    pub(crate) fn mirror(&self, name: &str) -> Result<Option<(String, Vec<u8>)>> {
        let Some(name) = Name::parse(name) else {
            return Ok(None);
        };
        let git = self.project.git()?;
        let Some(tag) = git.tag(&format!("{}{}", Self::prefix(git), name.plain()))? else {
            return Ok(None);
        };
        let held = Manifest::of_message(&tag.message)
            .ok()
            .flatten()
            .filter(|held| held.tag == tag.name);
        let held = held.filter(|held| name.mark.is_none() || name.at(&held.commit) == name);
        held.map(|held| Ok((tag.name, print(&held)?))).transpose()
    }

    /// Reads the files that mirror the tags.
    ///
    /// A damaged file is not an error here: its checkpoint gets the status `manifest_corrupt`.
    fn files(&self, prefix: &str) -> Result<BTreeMap<Name, Both>> {
        let files = self.project.files().reading();
        let mut all = BTreeMap::new();
        for entry in files.list(layout::CHECKPOINTS)? {
            let Some(name) = entry.name.strip_suffix(".json").and_then(Name::parse) else {
                continue;
            };
            let path = name.path();
            let file = match files.load_at::<Manifest>(&path) {
                Ok(None) => continue,
                Ok(Some(loaded)) if loaded.value.tag != format!("{prefix}{}", name.plain()) => {
                    Err(format!("{path} speaks of {:?}", loaded.value.tag))
                }
                Ok(Some(loaded)) => Ok(loaded.value),
                Err(error) if matches!(error.category, Category::Corrupt | Category::Refused) => {
                    Err(error.message)
                }
                Err(error) => return Err(error),
            };
            all.insert(
                name,
                Both {
                    tag: None,
                    file: Some(file),
                },
            );
        }
        Ok(all)
    }
}

const NO_FILE: &str = "the file of its manifest is missing, and can be written anew from the tag";

/// Prints a manifest as its file holds it.
pub(super) fn print(manifest: &Manifest) -> Result<Vec<u8>> {
    json::print(manifest).map_err(|error| {
        Error::new(
            Category::Failed,
            "E_INVALID",
            format!("a manifest: {error}"),
        )
    })
}

/// Returns those of some commits that are ancestors of HEAD.
fn merged(git: &Git, head: &Oid, commits: BTreeSet<Oid>) -> Result<BTreeSet<Oid>> {
    if commits.is_empty() {
        return Ok(commits);
    }
    let known: String = commits.iter().map(|commit| format!("{commit}\n")).collect();
    // A commit that HEAD reaches is left out.
    let args = ["rev-list", "--no-walk", "--stdin", &format!("^{head}")];
    let others = git.succeed(&args, &Run::default().stdin(known))?.text();
    let others: BTreeSet<Oid> = others.lines().filter_map(Oid::parse).collect();
    Ok(commits.difference(&others).cloned().collect())
}

/// Judges a checkpoint from its tag and its file. One whose commit is here is not an ancestor until
/// that is known.
fn judge(git: &Git, tag_name: String, both: &Both) -> Result<Checkpoint> {
    let mut notes = Vec::new();
    let held = both
        .tag
        .as_ref()
        .map(|tag| Manifest::of_message(&tag.message))
        .transpose();
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
    let names = |manifest: &Manifest| {
        marked
            .as_ref()
            .is_some_and(|oid| manifest.names(oid.as_str()))
    };
    let agree = marked.is_some()
        && held
            .as_ref()
            .is_none_or(|held| names(held) && held.tag == tag_name)
        && file.is_none_or(names);
    // The commit in the file is where the tag should be.
    let named = file
        .map(|file| file.commit.clone())
        .or_else(|| held.as_ref().map(|held| held.commit.clone()));
    let commit = if agree {
        marked
    } else {
        named
            .as_deref()
            .map_or(Ok(None), |named| git.resolve(named))?
    };
    let here = match &both.tag {
        Some(tag) if agree => tag.here,
        _ => commit.is_some(),
    };
    let state = match (corrupt, both.tag.is_some() && !agree, here) {
        (true, ..) => State::ManifestCorrupt,
        (_, true, _) => State::TagMoved,
        (.., false) => State::CommitMissing,
        _ => State::NotAncestor,
    };
    if both.tag.is_none() {
        notes.push("its tag is not in this clone".to_owned());
    }
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
    let manifest = held.or_else(|| file.cloned());
    Ok(Checkpoint {
        name: tag_name.rsplit('/').next().unwrap_or_default().to_owned(),
        tag: tag_name,
        state,
        commit: commit.map(|oid| oid.to_string()).or(named),
        timestamp: manifest
            .as_ref()
            .map(|manifest| manifest.timestamp)
            .or(both.tag.as_ref().and_then(|tag| tag.time.map(Time::from))),
        can_rollback_to: false,
        notes,
        manifest,
    })
}

/// Checks that its own commit has the code that the manifest names.
pub(crate) fn check_trees(git: &Git, checkpoint: &mut Checkpoint) -> Result<()> {
    let (Some(commit), Some(manifest)) = (checkpoint.oid(), &checkpoint.manifest) else {
        return Ok(());
    };
    if checkpoint.state != State::Ok || !manifest.names(commit.as_str()) {
        return Ok(());
    }
    if manifest
        .code_tree
        .as_ref()
        .is_some_and(|named| git.code_tree(&commit).is_ok_and(|code| code != *named))
    {
        checkpoint
            .notes
            .push("the commit holds other code than what was checked".to_owned());
        checkpoint.can_rollback_to = false;
        checkpoint.state = State::ManifestCorrupt;
    }
    Ok(())
}
