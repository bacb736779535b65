//! What git leaves out: the rules of `.ignore`, `.gitignore` and `.git/info/exclude` (gitignore(5)).
//!
//! Anybody may have put these files there, so they are read as little as the sources are trusted: never through a link, never a
//! pipe or a device, and never more than a limit. A file of rules that is none of this has no rules.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, statat};

use super::place::{MapRoot, open_file, open_folder};

/// The largest file of rules that is read, in bytes.
const MAX_BYTES: u64 = 256 << 10;

/// The most bytes of rules that one walk reads.
const MAX_ALL_BYTES: u64 = 1 << 20;

/// The files of rules, the strongest first, and whether their rules end where another repository begins.
const FILES: [(&str, bool); 3] = [(".ignore", false), (".gitignore", true), (".git/info/exclude", true)];

/// The rules of a tree, read as they are asked for.
pub(super) struct Ignored {
    place: Arc<MapRoot>,
    top: PathBuf,
    known: Mutex<Known>,
}

struct Known {
    folders: HashMap<PathBuf, Arc<Rules>>,
    bytes_left: u64,
}

/// The rules that stand in one folder.
#[derive(Default)]
struct Rules {
    /// Each with its place in [`FILES`].
    files: Vec<(usize, Gitignore)>,
    is_repository: bool,
}

impl Ignored {
    /// Prepares the rules of a place. They begin at `top`: its root, or a folder above if it is none of a session.
    pub(super) fn new(place: Arc<MapRoot>, top: &Path) -> Self {
        let known = Known { folders: HashMap::new(), bytes_left: MAX_ALL_BYTES };
        Self { place, top: top.to_owned(), known: Mutex::new(known) }
    }

    /// Says whether a file or folder, by its path below the top, is to be looked at. One with a dot in front is only if a rule
    /// says so.
    pub(super) fn shows(&self, path: &Path, is_folder: bool) -> bool {
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        self.says(path, is_folder).unwrap_or(!hidden)
    }

    /// Returns what the strongest rule says; `None` without one.
    fn says(&self, path: &Path, is_folder: bool) -> Option<bool> {
        let mut said = [None; FILES.len()];
        let mut left_repository = false;
        for folder in path.ancestors().skip(1) {
            let rules = self.rules(folder);
            let below = path.strip_prefix(folder).unwrap_or(path);
            for (kind, globs) in &rules.files {
                if said[*kind].is_none() && !(left_repository && FILES[*kind].1) {
                    let matched = globs.matched(below, is_folder);
                    said[*kind] = (!matched.is_none()).then(|| matched.is_whitelist());
                }
            }
            left_repository |= rules.is_repository;
        }
        said.into_iter().flatten().next()
    }

    fn rules(&self, folder: &Path) -> Arc<Rules> {
        let mut known = self.known.lock();
        if let Some(rules) = known.folders.get(folder) {
            return Arc::clone(rules);
        }
        let rules = Arc::new(self.read(folder, &mut known.bytes_left).unwrap_or_default());
        known.folders.insert(folder.to_owned(), Arc::clone(&rules));
        rules
    }

    fn read(&self, folder: &Path, bytes_left: &mut u64) -> io::Result<Rules> {
        let folder = match self.place.held() {
            Some(held) => open_folder(held, folder)?,
            None => open_folder(rustix::fs::CWD, &self.top.join(folder))?,
        };
        let is_repository = statat(&folder, ".git", AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let mut files = Vec::new();
        for (kind, (name, _)) in FILES.iter().enumerate() {
            if let Ok(file) = open_file(&folder, Path::new(name))
                && let Some(globs) = parse(&file, bytes_left)
            {
                files.push((kind, globs));
            }
        }
        Ok(Rules { files, is_repository })
    }
}

/// Reads the rules of a file; `None` if there are none, or too many.
fn parse(file: &File, bytes_left: &mut u64) -> Option<Gitignore> {
    let most = MAX_BYTES.min(*bytes_left);
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > most {
        return None;
    }
    *bytes_left -= bytes.len() as u64;
    let text = String::from_utf8_lossy(&bytes);
    let mut builder = GitignoreBuilder::new("");
    for line in text.trim_start_matches('\u{feff}').lines() {
        // A line that is no pattern is no rule; git says nothing about it either.
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().filter(|globs| !globs.is_empty())
}
