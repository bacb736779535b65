//! Names of the files of issues, and the numbers of the local ones.
//!
//! The file of a local issue has its number and a mark, `LOCAL-3-k7f2q9.json`, so two clones that
//! give one number to two issues never write one file. Where both files are, the later issue gets
//! the next number, the same one in every clone that has the same files. The next change writes a
//! file that says so, `LOCAL-7-k7f2q9.json`; the issue stays where it is, so git never has two
//! versions of a moved file to merge. References in files have the mark, so they keep naming the
//! issue that was meant.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use helmdeck_forge_documents::marks;
use serde::{Deserialize, Serialize};

use super::{Issue, LOCAL, history, is_key, store};
use crate::error::Result;
use crate::files::Files;
use crate::layout::{self, HISTORY, ISSUES};
use crate::project::Project;
use crate::shared;
use crate::time::Time;

/// The first number that is not counted on from if its file has no mark: another program gave it.
const FOREIGN: u64 = 1_000;

/// The names of an issue.
#[derive(Debug, Default, Clone)]
pub(super) struct Name {
    mark: Option<String>,
    /// The numbers of its files. The first is its own file's, the last its number now.
    files: BTreeSet<u64>,
    /// The number of its summary, if it is done.
    summary: Option<u64>,
    /// Whether no file says its number yet.
    is_unsettled: bool,
    /// The key, for an issue of a tracker.
    key: Option<String>,
}

impl Name {
    /// Returns the name of its files, whether they are there or not.
    fn stem(&self) -> String {
        let number = self
            .files
            .first()
            .into_iter()
            .chain(&self.summary)
            .min()
            .copied()
            .unwrap_or_default();
        self.key
            .clone()
            .unwrap_or_else(|| marks::join(&local(number), self.mark.as_deref()))
    }

    /// Returns the name of its own file, if it is there.
    pub(super) fn file(&self) -> Option<String> {
        let first = self.files.first()?;
        self.summary
            .is_none_or(|summary| *first <= summary)
            .then(|| self.stem())
    }

    /// Returns the name of its summary.
    pub(super) fn summary(&self) -> Option<String> {
        self.summary.map(|_| self.stem())
    }

    fn number(&self) -> u64 {
        self.files
            .last()
            .into_iter()
            .chain(&self.summary)
            .max()
            .copied()
            .unwrap_or_default()
    }

    /// Returns when the issue was made. One that has another key now has no time, and comes first.
    fn created(&self, files: &Files) -> Result<Option<Time>> {
        match (self.file(), self.summary()) {
            (Some(name), _) => Ok(store::own(files, &name)?.and_then(|issue| issue.created_at)),
            (None, Some(name)) => {
                Ok(history::parsed(files, &name)?.and_then(|record| record.issue.created_at))
            }
            (None, None) => Ok(None),
        }
    }
}

/// The names of all issues.
#[derive(Debug, Default)]
pub(super) struct Names {
    all: BTreeMap<String, Name>,
    /// The key of each issue with a mark, by the mark.
    marked: BTreeMap<String, String>,
    /// The names of all files, with the key of the issue of each.
    files: Vec<(String, String)>,
    /// The highest number of a local issue.
    highest: u64,
}

impl Names {
    /// Reads the names. Files are opened only where two issues have one number.
    ///
    /// # Errors
    /// `Corrupt` if one of these is damaged; errors from reading.
    pub(super) fn read(files: &Files) -> Result<Self> {
        // By the mark, or else by the key.
        let mut found: BTreeMap<String, Name> = BTreeMap::new();
        let mut listed: Vec<(String, String)> = Vec::new();
        let mut names = Self::default();
        for (folder, end) in [(ISSUES, ".json"), (HISTORY, ".md")] {
            for entry in files.list(folder)? {
                let Some(name) = entry.name.strip_suffix(end) else {
                    continue;
                };
                let (key, mark) = marks::split(name);
                let number = number(key);
                if !is_key(key) || mark.is_some() && number.is_none() {
                    continue;
                }
                if let Some(number) = number.filter(|number| mark.is_some() || *number < FOREIGN) {
                    names.highest = names.highest.max(number);
                }
                let id = mark.unwrap_or(key).to_owned();
                let one = found.entry(id.clone()).or_default();
                one.mark = mark.map(str::to_owned);
                one.key = number.is_none().then(|| key.to_owned());
                if folder == ISSUES {
                    one.files.insert(number.unwrap_or_default());
                    listed.push((name.to_owned(), id));
                } else {
                    one.summary = number.or(Some(0)).max(one.summary);
                }
            }
        }
        names.give(files, found)?;
        let key = |id: &String| names.marked.get(id).unwrap_or(id).clone();
        names.files = listed
            .into_iter()
            .map(|(name, id)| (name, key(&id)))
            .collect();
        Ok(names)
    }

    /// Gives each issue its key: of several with one number, the oldest keeps it.
    fn give(&mut self, files: &Files, found: BTreeMap<String, Name>) -> Result<()> {
        let mut by_key: BTreeMap<String, Vec<Name>> = BTreeMap::new();
        for name in found.into_values() {
            let key = name.key.clone().unwrap_or_else(|| local(name.number()));
            by_key.entry(key).or_default().push(name);
        }
        let mut later = Vec::new();
        for (key, all) in by_key {
            let mut all: Vec<_> = if all.len() == 1 {
                all.into_iter().map(|name| (None, name)).collect()
            } else {
                all.into_iter()
                    .map(|name| Ok((name.created(files)?, name)))
                    .collect::<Result<_>>()?
            };
            // Those of one second are in the order of their marks. One without a mark cannot be
            // told from another.
            all.sort_by_key(|(created, name)| (name.mark.is_some(), *created));
            let mut all = all.into_iter().map(|(_, name)| name);
            if let Some(first) = all.next() {
                self.insert(key, first);
            }
            later.extend(all);
        }
        for name in later {
            let key = self.next();
            self.insert(
                key,
                Name {
                    is_unsettled: true,
                    ..name
                },
            );
        }
        Ok(())
    }

    /// Takes the next number.
    fn next(&mut self) -> String {
        loop {
            self.highest += 1;
            let key = local(self.highest);
            if !self.all.contains_key(&key) {
                return key;
            }
        }
    }

    fn insert(&mut self, key: String, name: Name) {
        if let Some(mark) = &name.mark {
            self.marked.insert(mark.clone(), key.clone());
        }
        self.all.insert(key, name);
    }

    /// Returns the names of an issue.
    pub(super) fn get(&self, key: &str) -> Option<&Name> {
        self.all.get(key)
    }

    /// Returns the name of each file of an issue, also of those with an earlier number, with its
    /// key.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .map(|(name, key)| (name.as_str(), key.as_str()))
    }

    /// Returns the names of the files that say which number an issue has got, and that of the
    /// issue's own file.
    pub(super) fn unsettled(&self) -> impl Iterator<Item = (String, String)> {
        let all = self.all.iter().filter(|(_, name)| name.is_unsettled);
        all.map(|(key, name)| (marks::join(key, name.mark.as_deref()), name.stem()))
    }

    /// Returns the keys of the issues that are done, with their names.
    pub(super) fn done(&self) -> impl Iterator<Item = (&str, &Name)> {
        self.all
            .iter()
            .filter(|(_, name)| name.summary.is_some())
            .map(|(key, name)| (key.as_str(), name))
    }

    /// Returns how a file refers to an issue.
    pub(super) fn reference(&self, key: &str) -> String {
        self.get(key).map_or_else(|| key.to_owned(), Name::stem)
    }

    /// Returns the keys of other issues that had a number as well, which another clone gave them.
    pub(super) fn also(&self, key: &str) -> Vec<String> {
        let mut had: Vec<String> = self
            .named(key)
            .filter(|(_, now)| *now != key)
            .map(|(_, now)| now.to_owned())
            .collect();
        had.sort();
        had.dedup();
        had
    }

    /// Returns the names of files with a number, also of issues that gave it up, with the key of
    /// the issue of each.
    pub(super) fn named(&self, number: &str) -> impl Iterator<Item = (String, &str)> {
        let all = self.files().map(|(name, key)| (name.to_owned(), key));
        let summaries = self
            .done()
            .filter_map(|(key, name)| Some((name.summary()?, key)));
        all.chain(summaries)
            .filter(move |(name, _)| marks::split(name).0 == number)
    }

    /// Returns the key of the issue that a reference means.
    pub(super) fn resolve(&self, reference: &str) -> String {
        let (key, mark) = marks::split(reference);
        mark.and_then(|mark| self.marked.get(mark))
            .map_or(key, String::as_str)
            .to_owned()
    }

    /// Gives an issue that was read its key; the earlier one is an alias then.
    pub(super) fn put(&self, issue: &mut Issue, key: &str) {
        if issue.linear_id != key {
            let earlier = issue.stem().to_owned();
            if !issue.aliases.contains(&earlier) {
                issue.aliases.push(earlier);
            }
            key.clone_into(&mut issue.linear_id);
        }
    }
}

/// Returns the key of a local issue.
fn local(number: u64) -> String {
    format!("{LOCAL}-{number}")
}

/// Returns the key of the issue that a reference means. What cannot be read is reported elsewhere.
pub(crate) fn resolve(files: &Files, reference: &str) -> String {
    let (key, mark) = marks::split(reference);
    let now = mark
        .and_then(|_| Names::read(files).ok())
        .map(|names| names.resolve(reference));
    now.unwrap_or_else(|| key.to_owned())
}

/// Returns how a file refers to an issue.
pub(crate) fn reference(files: &Files, key: &str) -> String {
    let names = number(key).and_then(|_| Names::read(files).ok());
    names.map_or_else(|| key.to_owned(), |names| names.reference(key))
}

/// Returns the number of a local issue.
fn number(key: &str) -> Option<u64> {
    key.strip_prefix(LOCAL)?.strip_prefix('-')?.parse().ok()
}

/// Name of the file with the highest number, below the folder shared by all work trees.
const FILE: &str = "forge/local-issues.json";

/// The highest number that was given in any work tree.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Numbers {
    highest: u64,
    #[serde(skip)]
    path: Option<PathBuf>,
}

impl Numbers {
    /// Reads the number. To give the next one, hold the common lock until it is written.
    pub(super) fn read(project: &Project) -> Self {
        let path = match project.git() {
            Ok(git) => git.common_dir().join(FILE),
            Err(_) => project.root().join(layout::LOCAL).join("local-issues.json"),
        };
        let read: Option<Self> =
            shared::read(&path).and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self {
            path: Some(path),
            ..read.unwrap_or_default()
        }
    }

    /// Gives an issue the next number, which no issue has or had here, and a mark.
    pub(super) fn give(&mut self, project: &Project, names: &Names, issue: &mut Issue) {
        self.highest = self.highest.max(names.highest) + 1;
        while names.get(&local(self.highest)).is_some() {
            self.highest += 1;
        }
        issue.linear_id = local(self.highest);
        let mark = marks::new(project.environment().uuid().as_u128());
        issue.file = Some(marks::join(&issue.linear_id, Some(&mark)));
    }

    /// Writes the number, durably and atomically.
    pub(super) fn write(&self) {
        let Some(path) = &self.path else { return };
        let write = || shared::write(path, &serde_json::to_vec(self)?);
        if let Err(error) = write() {
            tracing::warn!(path = %path.display(), %error, "the highest number of an issue is not kept");
        }
    }
}
