//! Folders and their entries.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{Files, atomic, path};
use crate::error::{Error, Result};
use crate::layout::FORGE;
use crate::time::Time;

/// How far below the project's folder unfinished files are looked for. Nothing of ours lies deeper.
const MAX_DEPTH: usize = 8;

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEntry {
    /// Its name.
    pub name: String,
    /// Whether it is a folder. A link is not.
    pub folder: bool,
    /// How long it is, in bytes.
    pub bytes: u64,
    /// When it was changed last.
    pub modified: Time,
}

impl Files {
    /// Creates a folder and its parents. Returns whether it was created.
    ///
    /// # Errors
    /// `Refused`, `Failed`, also if something else has the name.
    pub fn create_folder(&self, path: &str) -> Result<bool> {
        self.check_writing(path)?;
        let place = self.place(path)?;
        let io = |error: Errno| Error::io("cannot create", &self.root().join(path), &error.into());
        match rustix::fs::mkdirat(
            &place.folder,
            place.name.as_str(),
            Mode::from_raw_mode(0o777),
        ) {
            Ok(()) => rustix::fs::fsync(&place.folder).map(|()| true).map_err(io),
            Err(Errno::EXIST) if self.entry(path)?.is_some_and(|entry| entry.folder) => Ok(false),
            Err(error) => Err(io(error)),
        }
    }

    /// Returns the entries of a folder, ordered by name. An absent folder has none.
    ///
    /// Names that are not UTF-8 and unfinished files are left out.
    ///
    /// # Errors
    /// `Refused`, `Failed`.
    pub fn list(&self, path: &str) -> Result<Vec<FolderEntry>> {
        let io = |error: Errno| Error::io("cannot list", &self.root().join(path), &error.into());
        let Some(place) = path::resolve(self.root(), path, false)? else {
            return Ok(Vec::new());
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder =
            match rustix::fs::openat(&place.folder, place.name.as_str(), flags, Mode::empty()) {
                Ok(folder) => folder,
                Err(Errno::NOENT) => return Ok(Vec::new()),
                Err(error) => return Err(io(error)),
            };
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::read_from(&folder).map_err(io)? {
            let entry = entry.map_err(io)?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if matches!(name, "." | "..") || name.ends_with(atomic::UNFINISHED) {
                continue;
            }
            match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => entries.push(about(name, &stat)),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(io(error)),
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Removes unfinished files below the project's folder: those of processes that were killed.
    ///
    /// # Errors
    /// `Refused`, `Failed`.
    pub fn remove_unfinished(&self) -> Result<()> {
        self.check_writing(FORGE)?;
        // Only the holder of the lock writes, so none of them is being written.
        let _guard = self.lock()?;
        let io = |error: Errno| Error::io("cannot tidy", &self.root().join(FORGE), &error.into());
        let Some(place) = path::resolve(self.root(), FORGE, false)? else {
            return Ok(());
        };
        match remove_unfinished(&place.folder, place.name.as_str(), MAX_DEPTH) {
            // It is a link: what it points to is not ours to tidy.
            Err(Errno::LOOP | Errno::NOTDIR) => Ok(()),
            removed => removed.map_err(io),
        }
    }

    /// Appends a line to an append-only list of lines.
    ///
    /// A list that is too long becomes an older part, and a new list begins: no part is ever too
    /// large to be read.
    ///
    /// # Errors
    /// As [`Files::append`].
    pub fn append_to_parts(&self, path: &str, line: &str, long: u64) -> Result<()> {
        self.check_writing(path)?;
        self.refuse_secrets(path, line.as_bytes())?;
        let _guard = self.lock()?;
        if self.entry(path)?.is_some_and(|entry| entry.bytes >= long) {
            let next = self
                .older_parts(path)?
                .last()
                .map_or(1, |(number, _)| number + 1);
            self.rename(path, &part(path, next))?;
        }
        self.append(path, line)
    }

    /// Returns the parts of a list of lines that are there, the oldest first.
    ///
    /// # Errors
    /// `Refused`, `Failed`.
    pub fn parts(&self, path: &str) -> Result<Vec<String>> {
        let mut all: Vec<String> = self
            .older_parts(path)?
            .into_iter()
            .map(|(_, part)| part)
            .collect();
        if self.entry(path)?.is_some() {
            all.push(path.to_owned());
        }
        Ok(all)
    }

    fn older_parts(&self, path: &str) -> Result<Vec<(u32, String)>> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let entries = self.list(folder)?.into_iter().filter(|entry| !entry.folder);
        let mut all: Vec<(u32, String)> = entries
            .filter_map(|entry| {
                Some((
                    part_of(name, &entry.name)?,
                    format!("{folder}/{}", entry.name),
                ))
            })
            .collect();
        all.sort();
        Ok(all)
    }

    /// Returns the entry at a path, if there is one.
    ///
    /// # Errors
    /// `Refused`, `Failed`.
    pub fn entry(&self, path: &str) -> Result<Option<FolderEntry>> {
        let Some(place) = path::resolve(self.root(), path, false)? else {
            return Ok(None);
        };
        match rustix::fs::statat(
            &place.folder,
            place.name.as_str(),
            AtFlags::SYMLINK_NOFOLLOW,
        ) {
            Ok(stat) => Ok(Some(about(&place.name, &stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(Error::io(
                "cannot read",
                &self.root().join(path),
                &error.into(),
            )),
        }
    }
}

fn remove_unfinished(
    parent: &OwnedFd,
    name: impl rustix::path::Arg,
    depth: usize,
) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    for entry in rustix::fs::Dir::read_from(&folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes().ends_with(atomic::UNFINISHED.as_bytes()) {
            rustix::fs::unlinkat(&folder, name, AtFlags::empty())?;
        } else if entry.file_type() == FileType::Directory
            && !matches!(name.to_bytes(), b"." | b"..")
            && depth > 0
        {
            remove_unfinished(&folder, name, depth - 1)?;
        }
    }
    Ok(())
}

/// Returns the path of an older part of a list: `index.3.jsonl` for `index.jsonl`.
fn part(path: &str, number: u32) -> String {
    let (stem, ending) = path.rsplit_once('.').unwrap_or((path, ""));
    format!("{stem}.{number}.{ending}")
}

/// Returns the number of a file that is an older part of a list.
pub fn part_of(list: &str, name: &str) -> Option<u32> {
    let (stem, ending) = list.rsplit_once('.')?;
    let number = name
        .strip_prefix(stem)?
        .strip_prefix('.')?
        .strip_suffix(ending)?
        .strip_suffix('.')?;
    number
        .parse()
        .ok()
        .filter(|number| part(list, *number) == name)
}

fn about(name: &str, stat: &rustix::fs::Stat) -> FolderEntry {
    let modified = jiff::Timestamp::new(stat.st_mtime, 0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    FolderEntry {
        name: name.to_owned(),
        folder: FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
        bytes: u64::try_from(stat.st_size).unwrap_or_default(),
        modified: Time(modified),
    }
}
