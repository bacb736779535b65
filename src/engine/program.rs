//! The files behind a pack of kind `command`, and whether they have changed since an answer.
//!
//! These files count: the program, and every argument that is a file of the manifest's folder (a
//! script). For each of these that has an extension, the files with the same extension in its
//! folder count too, because a script imports them; within the manifest's folder, two folders
//! further down as well. At most 256 files count. Changes of other files that a program reads are
//! not seen; raise `epoch` when they change.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

/// Limit of examined files.
const MAX_FILES: usize = 256;
/// Limit of folder entries read for them.
const MAX_NAMES: usize = 2048;
/// Limit of nesting of imports below a script's folder.
const MAX_DEPTH: usize = 2;
/// How long after a change a file's times are not trusted: its bytes are compared.
///
/// The file may change again without another time of change.
const SETTLED: Duration = Duration::from_millis(100);

/// The files behind a pack.
#[derive(Debug)]
pub(crate) struct Program {
    /// The program and its scripts.
    roots: Vec<PathBuf>,
    folder: PathBuf,
    state: Mutex<Arc<ProgramVersion>>,
}

/// State of the files at one moment. Equal states share one value.
#[derive(Debug)]
pub(crate) struct ProgramVersion {
    stamps: Vec<(PathBuf, Option<Stamp>)>,
    /// SHA-256 of all files.
    pub(crate) digest: Vec<u8>,
    settled: bool,
}

/// Identity of a file: device, inode, size, and times of the last changes.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

impl Program {
    /// Reads the files.
    pub(crate) fn read(roots: Vec<PathBuf>, folder: PathBuf) -> Self {
        let state = Mutex::new(Arc::new(ProgramVersion::read(&roots, &folder)));
        Self {
            roots,
            folder,
            state,
        }
    }

    /// Returns the state of the files at their first read.
    pub(crate) fn at_start(&self) -> Arc<ProgramVersion> {
        Arc::clone(&self.state.lock())
    }

    /// Returns the current state of the files; `None` if the runtime ends.
    ///
    /// Cost: a few stats on a thread that may block; the files are read again only if one of them
    /// changed.
    pub(crate) async fn now(self: &Arc<Self>) -> Option<Arc<ProgramVersion>> {
        let this = Arc::clone(self);
        tokio::task::spawn_blocking(move || this.look()).await.ok()
    }

    fn look(&self) -> Arc<ProgramVersion> {
        let known = self.at_start();
        if known.settled && stamps(&self.roots, &self.folder) == known.stamps {
            return known;
        }
        let read = ProgramVersion::read(&self.roots, &self.folder);
        let mut state = self.state.lock();
        if read.stamps == state.stamps && read.digest == state.digest && !read.settled {
            return Arc::clone(&state);
        }
        let same = read.stamps == state.stamps && read.digest == state.digest;
        if same && state.settled == read.settled {
            return Arc::clone(&state);
        }
        *state = Arc::new(read);
        Arc::clone(&state)
    }
}

impl ProgramVersion {
    fn read(roots: &[PathBuf], folder: &Path) -> Self {
        let before = stamps(roots, folder);
        let mut hash = Sha256::new();
        for (path, _) in &before {
            if let Ok(bytes) = std::fs::read(path) {
                hash.update((bytes.len() as u64).to_be_bytes());
                hash.update(bytes);
            }
        }
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let settled = |stamp: &Stamp| {
            let changed = Duration::new(
                u64::try_from(stamp.4.0).unwrap_or(0),
                u32::try_from(stamp.4.1).unwrap_or(0),
            );
            now.checked_sub(changed).is_some_and(|age| age > SETTLED)
        };
        let settled = before
            .iter()
            .all(|(_, stamp)| stamp.as_ref().is_none_or(settled));
        // A change while they were read is a change at the next look.
        Self {
            stamps: before,
            digest: hash.finalize().to_vec(),
            settled,
        }
    }

    /// Returns whether these are the same files with the same bytes.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.stamps == other.stamps && self.digest == other.digest
    }
}

fn stamps(roots: &[PathBuf], folder: &Path) -> Vec<(PathBuf, Option<Stamp>)> {
    let mut files: BTreeSet<PathBuf> = BTreeSet::new();
    let mut names = 0;
    for root in roots {
        if let (Some(extension), Some(parent)) = (root.extension(), root.parent()) {
            let depth = if root.starts_with(folder) {
                MAX_DEPTH
            } else {
                0
            };
            collect(parent, extension, depth, &mut names, &mut files);
        }
    }
    let beside = files
        .into_iter()
        .filter(|file| !roots.contains(file))
        .take(MAX_FILES);
    let all = roots.iter().cloned().chain(beside);
    all.map(|path| {
        let stamp = std::fs::metadata(&path)
            .ok()
            .filter(std::fs::Metadata::is_file)
            .map(|meta| {
                (
                    meta.dev(),
                    meta.ino(),
                    meta.size(),
                    (meta.mtime(), meta.mtime_nsec()),
                    (meta.ctime(), meta.ctime_nsec()),
                )
            });
        (path, stamp)
    })
    .collect()
}

fn collect(
    folder: &Path,
    extension: &std::ffi::OsStr,
    depth: usize,
    names: &mut usize,
    files: &mut BTreeSet<PathBuf>,
) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    let mut entries: Vec<_> = entries
        .flatten()
        .take(MAX_NAMES.saturating_sub(*names))
        .collect();
    *names += entries.len();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() {
            if depth > 0 {
                collect(&path, extension, depth - 1, names, files);
            }
        } else if path.extension() == Some(extension) {
            files.insert(path);
        }
    }
}
