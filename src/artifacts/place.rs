//! Backend of the artifact store: a local folder, or a bucket of an S3-compatible store.
//!
//! The first write creates the local folder.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use helmdeck_core::Secret;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;

/// An object store, or why it could not be opened.
pub(super) type Opened<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Backend of the artifact store.
pub struct ArtifactBackend {
    kind: Kind,
    /// Name for callers: that of a bucket, but never a folder of the operator's machine.
    shown: String,
    /// Secrets that must not reach a log.
    hidden: Vec<Secret>,
}

enum Kind {
    /// Opened by the first write, or by the first read that finds the folder.
    Folder {
        path: PathBuf,
        opened: OnceLock<Arc<dyn ObjectStore>>,
    },
    /// A bucket.
    #[cfg_attr(
        not(feature = "s3"),
        expect(dead_code, reason = "made by the feature s3 only")
    )]
    Bucket(Arc<dyn ObjectStore>),
    /// It cannot be opened.
    Broken(String),
}

helmdeck_core::redacted_debug!(ArtifactBackend);

impl ArtifactBackend {
    /// Makes a backend of a local folder. It need not exist.
    pub fn folder(path: &Path) -> Self {
        let kind = Kind::Folder {
            path: path.to_owned(),
            opened: OnceLock::new(),
        };
        Self {
            kind,
            shown: "the artifact folder".to_owned(),
            hidden: Vec::new(),
        }
    }

    /// Makes a backend of a bucket, or of the reason why it cannot be opened.
    #[cfg(feature = "s3")]
    pub(super) fn bucket(
        store: Opened<Arc<dyn ObjectStore>>,
        shown: String,
        hidden: Vec<Secret>,
    ) -> Self {
        let kind = store.map_or_else(|error| Kind::Broken(error.to_string()), Kind::Bucket);
        Self {
            kind,
            shown,
            hidden,
        }
    }

    /// Makes a backend of a bucket that this build does not support.
    #[cfg(not(feature = "s3"))]
    pub fn unknown(shown: &str) -> Self {
        Self {
            kind: Kind::Broken("this build has no S3".to_owned()),
            shown: shown.to_owned(),
            hidden: Vec::new(),
        }
    }

    /// Returns its name for callers.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// Returns the secrets that must not reach a log.
    pub(super) fn hidden(&self) -> &[Secret] {
        &self.hidden
    }

    /// Returns whether it is a bucket: remote, and listing names in order.
    pub(super) const fn is_bucket(&self) -> bool {
        !matches!(self.kind, Kind::Folder { .. })
    }

    /// Returns the object store; `None` before the first write.
    pub(super) async fn existing(&self) -> Opened<Option<&Arc<dyn ObjectStore>>> {
        match &self.kind {
            Kind::Bucket(store) => Ok(Some(store)),
            Kind::Broken(why) => Err(why.clone().into()),
            Kind::Folder { path, opened } => {
                if opened.get().is_none() {
                    let folder = path.clone();
                    if let Some(store) =
                        tokio::task::spawn_blocking(move || open(&folder)).await??
                    {
                        // Another call may have opened it in the meantime; either works.
                        let _ = opened.set(store);
                    }
                }
                Ok(opened.get())
            }
        }
    }

    /// Returns the object store. Makes its folder (mode 0700) if it is missing.
    pub(super) async fn ready(&self) -> Opened<&Arc<dyn ObjectStore>> {
        if let Kind::Folder { path, opened } = &self.kind
            && opened.get().is_none()
        {
            let folder = path.clone();
            let make = move || {
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(folder)
            };
            tokio::task::spawn_blocking(make).await??;
        }
        self.existing()
            .await?
            .ok_or_else(|| "the folder cannot be made".into())
    }

    /// Deletes partial files of killed writers from a local folder, and returns how many.
    ///
    /// Partial files have a number after `#` and are in no list. Buckets show no partial uploads.
    pub(super) async fn remove_halves(&self, older: Duration) -> u64 {
        let Kind::Folder { path, .. } = &self.kind else {
            return 0;
        };
        let folder = path.clone();
        let remove = move || halves(&folder, SystemTime::now().checked_sub(older));
        tokio::task::spawn_blocking(remove).await.unwrap_or(0)
    }
}

/// Opens a folder; `None` if it does not exist.
fn open(folder: &Path) -> object_store::Result<Option<Arc<dyn ObjectStore>>> {
    if !folder.is_dir() {
        return Ok(None);
    }
    // After a power cut, no description may be left without its bytes.
    let store = LocalFileSystem::new_with_prefix(folder)?
        .with_automatic_cleanup(true)
        .with_fsync(true);
    Ok(Some(Arc::new(store)))
}

/// Walks a folder without following links. Unreadable entries are left for the next walk.
fn halves(folder: &Path, before: Option<SystemTime>) -> u64 {
    let mut removed = 0;
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() {
                open.push(entry.path());
            } else if is_half(&entry.file_name().to_string_lossy())
                && metadata
                    .modified()
                    .ok()
                    .zip(before)
                    .is_some_and(|(modified, before)| modified < before)
                && std::fs::remove_file(entry.path()).is_ok()
            {
                removed += 1;
            }
        }
    }
    removed
}

/// Returns whether a name is that of a partial file.
///
/// `object_store` writes to `<name>#<number>` and renames it.
fn is_half(name: &str) -> bool {
    name.split_once('#')
        .is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}
