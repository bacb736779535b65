//! Documents that are kept as a file for each of their entries, so that two branches add without
//! changing one file.
//!
//! The document as the RFC has it is made from the entries. One that somebody else wrote is read
//! once: its entries become files, and it goes.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, Hasher as _};

use super::{Document, Files, Loaded, Unreadable, decode, etag, lost, newer};
use crate::error::{Category, Error, Result};
use crate::json::{self, Json, Members};
use crate::time::Time;

/// How a document that is made begins: it is never read.
const MADE: &str = "{\n  \"made_from\": ";
/// Lengths of the mark of a name, in characters: the next one if the name is taken.
const MARKS: [usize; 4] = [0, 4, 8, 25];

/// How a document is kept: each of its entries is a file in a folder.
#[derive(Debug)]
pub struct Entries<D> {
    /// The folder.
    pub folder: &'static str,
    /// Makes the document from the files, which come in the order of their paths, and from one that
    /// somebody else wrote.
    pub join: fn(&[EntryFile], Option<D>) -> Joined<D>,
    /// Returns the entries of the document.
    pub split: fn(&D) -> Vec<StoredEntry>,
}

/// The file of an entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryFile {
    /// Its path.
    pub path: String,
    /// Its content.
    pub bytes: Vec<u8>,
    /// When it was changed last.
    pub modified: Time,
}

impl EntryFile {
    /// Says whether a file of this name may be the file of an entry.
    #[must_use]
    pub fn is_one(name: &str) -> bool {
        !name.starts_with('.')
            && (name.ends_with(".json")
                || name.ends_with(".md") && !name.eq_ignore_ascii_case("readme.md"))
    }

    /// Says whether somebody wrote it as Markdown.
    #[must_use]
    pub fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }
}

/// An entry, as its file has it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredEntry {
    /// Its name in the document. Of two with one name the first counts.
    pub key: String,
    /// What its file is called, without a mark that makes the name unique.
    pub slug: String,
    /// Whether that name does not say all that it is about, so that it has a mark.
    pub is_marked: bool,
    /// Its members.
    pub value: Members,
}

/// Where an entry is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EntryPlace {
    /// The number of its file.
    pub file: usize,
    /// Whether a newer program wrote it: it is never written.
    pub is_newer: bool,
    /// Whether its file has another id.
    pub is_renamed: bool,
    /// Whether somebody wrote it by hand: it is written in full with the next change.
    pub is_by_hand: bool,
}

/// A document, and where its entries are.
#[derive(Debug)]
pub struct Joined<D> {
    /// The document.
    pub document: D,
    /// The places of each entry that has files, by its key. Two branches that learned the same have
    /// two.
    pub places: HashMap<String, Vec<EntryPlace>>,
    /// The numbers of the files that cannot be read, and why. The others are.
    pub damaged: Vec<(usize, Unreadable)>,
    /// The numbers of Markdown files that an entry has taken over already.
    pub spent: Vec<usize>,
}

/// What is on disk of a document.
struct OnDisk<D> {
    files: Vec<EntryFile>,
    whole: Option<Vec<u8>>,
    is_foreign: bool,
    is_newer: bool,
    is_there: bool,
    joined: Joined<D>,
}

impl<D> OnDisk<D> {
    fn etag(&self) -> Option<String> {
        if !self.is_there {
            return None;
        }
        let whole = self
            .whole
            .as_deref()
            .filter(|_| self.is_foreign)
            .unwrap_or_default();
        if self.files.is_empty() {
            return Some(etag(whole));
        }
        let files = self
            .files
            .iter()
            .flat_map(|file| [file.path.as_bytes(), b"\0", &file.bytes, b"\0"].concat());
        Some(etag(
            &files.chain(whole.iter().copied()).collect::<Vec<_>>(),
        ))
    }
}

/// Says whether a document was made from its entries, and says nothing of its own.
#[must_use]
pub fn is_made(document: &[u8]) -> bool {
    document.starts_with(MADE.as_bytes())
}

/// Returns how the document at a path is kept, if each of its entries is a file.
pub(super) fn of<D: Document>(path: &str) -> Option<Entries<D>> {
    D::ENTRIES.filter(|_| path == D::PATH)
}

impl Files {
    /// Returns these files with the documents that are made from entries kept beside them.
    #[must_use]
    pub fn with_made_documents(self, wanted: bool) -> Self {
        Self {
            makes_documents: wanted,
            ..self
        }
    }

    /// Returns the files of a folder that may be those of entries, by path. One that cannot be read
    /// is left out.
    fn entry_files(&self, folder: &str) -> Result<Vec<EntryFile>> {
        let listed = self
            .list(folder)?
            .into_iter()
            .filter(|entry| !entry.folder && EntryFile::is_one(&entry.name));
        let read = listed.filter_map(|entry| {
            let path = format!("{folder}/{}", entry.name);
            let bytes = self.read(&path).ok()??;
            Some(EntryFile {
                path,
                bytes,
                modified: entry.modified.seconds(),
            })
        });
        Ok(read.collect())
    }

    fn held<D: Document>(&self, entries: &Entries<D>) -> Result<OnDisk<D>> {
        let files = self.entry_files(entries.folder)?;
        let whole = self.read(D::PATH)?;
        let foreign = whole.as_deref().filter(|bytes| !is_made(bytes));
        let is_there =
            !files.is_empty() || foreign.is_some() || self.entry(entries.folder)?.is_some();
        let foreign = foreign
            .map(|bytes| decode::<D>(bytes).map_err(|why| self.unreadable(D::PATH, bytes, why)));
        let (foreign, is_newer) = foreign.transpose()?.unzip();
        let is_foreign = foreign.is_some();
        let joined = (entries.join)(&files, foreign);
        for (file, why) in &joined.damaged {
            let EntryFile { path, bytes, .. } = &files[*file];
            let error = self.unreadable(path, bytes, why.clone());
            tracing::warn!(%error, "the other entries can be read");
        }
        Ok(OnDisk {
            files,
            whole,
            is_foreign,
            is_newer: is_newer.unwrap_or(false),
            is_there,
            joined,
        })
    }

    /// Reads a document that is kept as entries.
    pub(super) fn load_entries<D: Document>(
        &self,
        entries: &Entries<D>,
    ) -> Result<Option<Loaded<D>>> {
        let held = self.held(entries)?;
        let etag = held.etag();
        Ok(etag.map(|etag| Loaded {
            etag,
            read_only: held.is_newer,
            value: held.joined.document,
        }))
    }

    /// Changes a document that is kept as entries: only the files of those that changed are
    /// written.
    ///
    /// New files come first and removals last, so that no kill loses an entry.
    pub(super) fn edit_entries<D: Document, T>(
        &self,
        entries: &Entries<D>,
        if_match: Option<&str>,
        change: impl FnOnce(&mut D) -> Result<T>,
    ) -> Result<T> {
        let was_there = self.was_there(entries.folder)?;
        let _guard = self.lock()?;
        let held = self.held(entries)?;
        if !held.is_there && (was_there || self.has_good(entries.folder)?) {
            return Err(lost::error(entries.folder));
        }
        let text = || json::print(&held.joined.document).unwrap_or_default();
        self.check_match(D::PATH, if_match, held.etag(), text)?;
        if held.is_newer {
            return Err(newer(D::PATH, "with a newer major version"));
        }
        let Joined {
            mut document,
            mut places,
            spent,
            ..
        } = held.joined;
        let before: HashMap<String, Members> = (entries.split)(&document)
            .into_iter()
            .map(|entry| (entry.key, entry.value))
            .collect();
        let was_sound = document.check().is_ok();
        let answer = change(&mut document)?;
        // What two branches left together is no fault of this change.
        if was_sound {
            document.check().map_err(|what| invalid(D::PATH, &what))?;
        }
        let salt = RandomState::new().build_hasher().finish();
        let mut taken: HashSet<String> = held
            .files
            .iter()
            .map(|file| file.path.to_lowercase())
            .collect();
        let (mut writes, mut renames) = (Vec::new(), Vec::new());
        let mut removals: Vec<&str> = spent
            .iter()
            .map(|file| held.files[*file].path.as_str())
            .collect();
        let mut seen = HashSet::new();
        for entry in (entries.split)(&document) {
            let is_same = before.get(&entry.key) == Some(&entry.value);
            let there = places.remove(&entry.key).unwrap_or_default();
            if !seen.insert(entry.key.clone()) {
                continue;
            }
            if there.is_empty() {
                let bytes =
                    print(&entry, None).map_err(|error| invalid(D::PATH, &error.to_string()))?;
                self.check_entry(entries.folder, &bytes)?;
                // What was taken over has one name in all clones.
                let path = free(
                    entries.folder,
                    &entry,
                    (!is_same).then_some(salt),
                    &mut taken,
                );
                writes.push((path, bytes));
            }
            for place in there
                .into_iter()
                .filter(|place| !is_same || place.is_stale())
            {
                let old = &held.files[place.file];
                if place.is_newer {
                    return Err(newer(&old.path, "with a newer major version"));
                }
                let bytes = print(&entry, Some(old))
                    .map_err(|error| invalid(D::PATH, &error.to_string()))?;
                match self.check_entry(entries.folder, &bytes) {
                    Err(error) if is_same => {
                        tracing::warn!(%error, "an entry that was written by hand stays as it is");
                        continue;
                    }
                    checked => checked?,
                }
                let mut path = old.path.clone();
                if place.is_renamed || old.is_markdown() {
                    path = free(entries.folder, &entry, Some(salt), &mut taken);
                }
                if place.is_renamed {
                    renames.push((old.path.as_str(), path.clone()));
                } else if old.path != path {
                    removals.push(&old.path);
                }
                writes.push((path, bytes));
            }
        }
        // Of what is gone, every file goes.
        removals.extend(
            places
                .values()
                .flatten()
                .map(|place| held.files[place.file].path.as_str()),
        );
        for (old, new) in renames {
            self.rename(old, &new)?;
        }
        for (path, bytes) in &writes {
            self.put(path, bytes, None)?;
            // It only makes repair easier: the entry itself is written.
            if let Err(error) = self.keep_good(path, bytes) {
                tracing::warn!(path, %error, "no copy of the good file was kept");
            }
        }
        for path in removals {
            self.remove(path)?;
        }
        self.make(&document, entries.folder, held.whole)?;
        Ok(answer)
    }

    fn check_entry(&self, folder: &str, bytes: &[u8]) -> Result<()> {
        self.check_secrets(folder, bytes)?;
        self.check_size(folder, bytes.len() as u64)
    }

    /// Writes the document that is made from the entries if it is wanted, or removes it.
    fn make<D: Document>(&self, document: &D, folder: &str, there: Option<Vec<u8>>) -> Result<()> {
        if !self.makes_documents {
            return if there.is_some() {
                self.remove(D::PATH).map(drop)
            } else {
                Ok(())
            };
        }
        let name = folder.rsplit('/').next().unwrap_or(folder);
        let printed = document
            .print()
            .map_err(|error| invalid(D::PATH, &error.to_string()))?;
        let made = [
            format!("{MADE}\"{name}\",").as_bytes(),
            printed.strip_prefix(b"{").unwrap_or(&printed),
        ]
        .concat();
        if there.as_ref() == Some(&made) {
            Ok(())
        } else {
            self.put(D::PATH, &made, None)
        }
    }
}

impl EntryPlace {
    /// Says whether the file does not have the entry as it is written.
    const fn is_stale(self) -> bool {
        self.is_renamed || self.is_by_hand
    }
}

fn invalid(path: &str, what: &str) -> Error {
    Error::new(
        Category::Usage,
        "E_INVALID",
        format!("{path} would be invalid: {what}"),
    )
}

/// Formats an entry for its file, with the version of the file that it had.
fn print(
    entry: &StoredEntry,
    old: Option<&EntryFile>,
) -> std::result::Result<Vec<u8>, serde_json::Error> {
    let text = old.and_then(|old| std::str::from_utf8(&old.bytes).ok());
    let version = text.and_then(|text| {
        serde_json::from_str::<Members>(text)
            .ok()?
            .0
            .shift_remove("schema_version")
    });
    let version = version.unwrap_or_else(|| Json::String("1.0".to_owned()));
    let members = std::iter::once(("schema_version".to_owned(), version));
    let members = members.chain(
        entry
            .value
            .0
            .iter()
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    let bytes = json::print(&Members(members.collect()))?;
    // Unknown members may have numbers with more digits than Rust's number types keep.
    Ok(match text {
        Some(text) => json::Numbers::of(text).put_back(bytes),
        None => bytes,
    })
}

/// Returns the path of a new entry: what it says, with a mark if it has one or the name is taken.
///
/// With a random salt, two clones that add entries with equal words give them different names.
fn free(
    folder: &str,
    entry: &StoredEntry,
    salt: Option<u64>,
    taken: &mut HashSet<String>,
) -> String {
    let hash = etag(
        &[
            entry.key.as_bytes(),
            &salt.unwrap_or_default().to_be_bytes(),
        ]
        .concat(),
    );
    let mark = |length: usize| {
        hash.get(..length)
            .filter(|mark| !mark.is_empty())
            .map(|mark| format!("-{mark}"))
    };
    let path = |length| {
        format!(
            "{folder}/{}{}.json",
            entry.slug,
            mark(length).unwrap_or_default()
        )
    };
    let all: Vec<String> = MARKS
        .into_iter()
        .skip(usize::from(entry.is_marked))
        .map(path)
        .collect();
    let path = all
        .iter()
        .find(|path| !taken.contains(&path.to_lowercase()))
        .or(all.last())
        .cloned()
        .unwrap_or_default();
    taken.insert(path.to_lowercase());
    path
}
