//! Ignore rules: `.ignore`, `.gitignore` and `.git/info/exclude` (gitignore(5)).
//!
//! The files are untrusted, like the sources: they are never read through a link, from a pipe or a
//! device, or beyond a limit. Such a file has no rules.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, statat};

use super::map_root::{MapRoot, open_file, open_folder};

/// Maximum bytes of a file of rules.
const MAX_BYTES: u64 = 256 << 10;

/// Maximum bytes of rules that one walk reads.
const MAX_ALL_BYTES: u64 = 1 << 20;

/// The files of rules, strongest first, and whether their rules end at another repository.
const FILES: [(&str, bool); 3] = [
    (".ignore", false),
    (".gitignore", true),
    (".git/info/exclude", true),
];

/// The rules of a tree, read on demand.
pub(super) struct Ignored {
    map_root: Arc<MapRoot>,
    top: PathBuf,
    known: Mutex<CachedRules>,
}

struct CachedRules {
    folders: HashMap<PathBuf, Arc<Rules>>,
    bytes_left: u64,
}

/// The rules in one folder.
#[derive(Default)]
struct Rules {
    /// Each with its index in [`FILES`].
    files: Vec<(usize, Gitignore)>,
    is_repository: bool,
}

impl Ignored {
    /// Prepares the ignore rules of a folder.
    ///
    /// They begin at `top`: its root, or a folder above it outside of sessions.
    pub(super) fn new(map_root: Arc<MapRoot>, top: &Path) -> Self {
        let known = CachedRules {
            folders: HashMap::new(),
            bytes_left: MAX_ALL_BYTES,
        };
        Self {
            map_root,
            top: top.to_owned(),
            known: Mutex::new(known),
        }
    }

    /// Returns whether to look at a file or folder, given its path below the top.
    ///
    /// Hidden ones need a rule that includes them.
    pub(super) fn shows(&self, path: &Path, is_folder: bool) -> bool {
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        self.says(path, is_folder).unwrap_or(!hidden)
    }

    /// Returns the decision of the strongest rule; `None` without one.
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
        let folder = match self.map_root.held() {
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
        Ok(Rules {
            files,
            is_repository,
        })
    }
}

/// Parses the rules of a file; `None` without rules, or with too many.
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
        // An invalid pattern is no rule; git ignores it too.
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().filter(|globs| !globs.is_empty())
}
