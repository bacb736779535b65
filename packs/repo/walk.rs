//! Finds the source files of a folder, as git sees them.
//!
//! Never follows a symbolic link, so nothing outside the folder is read; never reads the user's git
//! settings.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use helmdeck_core::{Code, Error, Result};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::{DirEntry, WalkBuilder};
use sha2::{Digest, Sha256};

use super::ignored::Ignored;
use super::languages::{self, Grammar};
use super::map_root::MapRoot;
use super::symbols::MAX_FILE_BYTES;

/// Maximum source files; the first ones of the walk.
const MAX_FILES: usize = 10_000;

/// Maximum files and folders to look at.
const MAX_ENTRIES: usize = 500_000;

/// Maximum depth.
const MAX_DEPTH: usize = 64;

/// Increased when the same tree gives another map, so that older answers are not revalidated.
const MAP_VERSION: &str = "1";

/// A source file.
pub(super) struct SourceFile {
    /// Its path below the root.
    pub(super) file: PathBuf,
    /// The same as text.
    pub(super) path: String,
    /// Its grammar.
    pub(super) grammar: &'static Grammar,
}

/// Result of a walk.
#[derive(Default)]
pub(super) struct Walked {
    /// The files, by path.
    pub(super) files: Vec<SourceFile>,
    /// Number of source files, including those too large.
    pub(super) seen: usize,
    /// Number of those too large.
    pub(super) too_large: usize,
    /// Number of unreadable files and folders.
    pub(super) unreadable: usize,
    /// Whether a limit ended the walk.
    pub(super) cut: bool,
    /// Digest of everything that the answer depends on, in hex.
    pub(super) digest: String,
}

/// Which files to find.
pub(super) struct FileFilter<'a> {
    /// Only files that match one of these; all if empty.
    pub(super) paths: &'a Globs,
    /// Only these languages; all if empty.
    pub(super) languages: &'a [String],
}

/// Patterns of a `.gitignore` file, for paths below the root.
pub(super) struct Globs(Gitignore);

impl Globs {
    /// Compiles patterns.
    ///
    /// # Errors
    /// `invalid_input` naming the field and the pattern.
    pub(super) fn new(field: &str, patterns: &[String]) -> Result<Self> {
        let mut builder = GitignoreBuilder::new("");
        for pattern in patterns {
            let refused = || {
                Error::new(
                    Code::InvalidInput,
                    format!("{field}: \"{}\" is not a glob", pattern.escape_debug()),
                )
            };
            builder
                .add_line(None, pattern)
                .map_err(|error| refused().with_source(error))?;
        }
        let globs = builder.build().map_err(|error| {
            Error::new(
                Code::InvalidInput,
                format!("{field} is not a list of globs"),
            )
            .with_source(error)
        })?;
        Ok(Self(globs))
    }

    /// Returns whether it is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a file, or a folder above it, matches.
    pub(super) fn matches(&self, path: &str) -> bool {
        self.0.matched_path_or_any_parents(path, false).is_ignore()
    }
}

/// Walks a folder; `None` if `stopped` says so.
///
/// Inside a git repository with the folder `work_tree` its ignore rules apply, also those above the
/// folder. Elsewhere those below the folder apply. Hidden files are left out.
pub(super) fn walk(
    map_root: &Arc<MapRoot>,
    work_tree: Option<&Path>,
    commit: Option<&str>,
    filter: &FileFilter<'_>,
    stopped: &dyn Fn() -> bool,
) -> Option<Walked> {
    let mut found = Walked::default();
    let mut digest = Sha256::new();
    let start = map_root.start();
    let top = work_tree.unwrap_or(&map_root.root);
    let ignored = Ignored::new(Arc::clone(map_root), top);
    let (from, below_top) = (
        start.clone(),
        map_root
            .root
            .strip_prefix(top)
            .unwrap_or(Path::new(""))
            .to_owned(),
    );
    let shown = move |entry: &DirEntry| {
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        let below = entry.path().strip_prefix(&from).unwrap_or(Path::new(""));
        entry.depth() == 0 || ignored.shows(&below_top.join(below), is_folder)
    };
    // The library's own reader of rules has no limits, so it is off.
    let walk = WalkBuilder::new(&start)
        .standard_filters(false)
        .follow_links(false)
        .max_depth(Some(MAX_DEPTH))
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .filter_entry(shown)
        .build();
    for (entries, entry) in walk.enumerate() {
        if entries.is_multiple_of(64) && stopped() {
            return None;
        }
        if entries >= MAX_ENTRIES || found.files.len() >= MAX_FILES {
            found.cut = true;
            break;
        }
        let Ok(entry) = entry else {
            found.unreadable += 1;
            continue;
        };
        // Links, pipes and devices are not source files.
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        let Some(grammar) = languages::of(entry.path()) else {
            continue;
        };
        if !filter.languages.is_empty() && !filter.languages.iter().any(|name| name == grammar.name)
        {
            continue;
        }
        let Ok(below) = entry.path().strip_prefix(&start) else {
            continue;
        };
        let path = below.to_string_lossy().into_owned();
        if !filter.paths.is_empty() && !filter.paths.matches(&path) {
            continue;
        }
        let Ok(metadata) = entry.metadata() else {
            found.unreadable += 1;
            continue;
        };
        found.seen += 1;
        // With the change time, which can't be set back: a change that keeps size and modification
        // time is noticed.
        digest.update((path.len() as u64).to_be_bytes());
        digest.update(path.as_bytes());
        for number in [
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        ] {
            digest.update(number.to_be_bytes());
        }
        digest.update(metadata.len().to_be_bytes());
        if metadata.len() > MAX_FILE_BYTES {
            found.too_large += 1;
        } else {
            found.files.push(SourceFile {
                file: below.to_owned(),
                path,
                grammar,
            });
        }
    }
    digest.update((found.unreadable as u64).to_be_bytes());
    digest.update([u8::from(found.cut)]);
    digest.update(commit.unwrap_or_default());
    digest.update(MAP_VERSION);
    // A link to the folder may point elsewhere later.
    digest.update(map_root.root.as_os_str().as_encoded_bytes());
    found.digest = helmdeck_core::hex(&digest.finalize());
    // By the path as text, so that ties are broken alike everywhere.
    found.files.sort_by(|a, b| a.path.cmp(&b.path));
    Some(found)
}
