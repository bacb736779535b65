//! The operator's packs folder: every `*.toml` in it, at any depth, is a manifest.
//!
//! Changes are picked up without a restart.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::Manifest;
use helmdeck_core::leaks;
use helmdeck_core::manifest::{HandlerSpec, ManifestError};
use notify::{RecursiveMode, Watcher};
use tokio::sync::mpsc;

/// Size limit of a manifest or schema file.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Limit of manifests in a folder.
const MAX_MANIFESTS: usize = 2000;
const MAX_DEPTH: usize = 4;
/// Editors write a file in several steps; a reload waits until they are done.
const SETTLE: Duration = Duration::from_millis(100);

/// Interval of checks whether the folder still exists and is the same.
const LOOK: Duration = Duration::from_secs(1);

/// One manifest of the folder.
pub(crate) struct Read {
    /// Its file, as shown in messages.
    pub(crate) file: String,
    /// Name of its pack, also of a refused file if the name can be read there.
    pub(crate) name: Option<String>,
    /// The manifest, with its folder.
    pub(crate) manifest: Result<(Manifest, PathBuf), ManifestError>,
}

/// Reads every manifest of a folder, in the order of their paths.
///
/// A folder that does not exist has none.
pub(crate) fn read(folder: &Path) -> Vec<Read> {
    let mut files = Vec::new();
    collect(folder, 0, &mut files);
    files.sort();
    files.truncate(MAX_MANIFESTS);
    let read = |file: PathBuf| {
        let manifest = read_one(&file);
        let name = match &manifest {
            Ok((manifest, _)) => Some(manifest.name.to_string()),
            Err(_) => bounded(&file).ok().and_then(|text| name_in(&text)),
        };
        Read {
            file: file.display().to_string(),
            name,
            manifest,
        }
    };
    files.into_iter().map(read).collect()
}

/// Finds `name = "..."` at the top of a manifest that cannot be read otherwise.
fn name_in(text: &str) -> Option<String> {
    let top = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with('['));
    let mut values =
        top.filter_map(|line| line.strip_prefix("name")?.trim_start().strip_prefix('='));
    let name = values.next()?.trim().trim_matches(['"', '\'']);
    helmdeck_core::PackName::new(name)
        .ok()
        .map(|name| name.to_string())
}

/// Reads one manifest; the returned path is its folder.
///
/// # Errors
/// Why it was refused, with file and line.
pub(crate) fn read_one(file: &Path) -> Result<(Manifest, PathBuf), ManifestError> {
    let shown = file.display().to_string();
    let folder = file.parent().unwrap_or(Path::new(".")).to_owned();
    let text = bounded(file).map_err(|message| ManifestError {
        file: shown.clone(),
        line: None,
        message,
    })?;
    let manifest = Manifest::parse(&shown, &text, &|name| {
        let path = folder.join(name);
        let inside = !Path::new(name).is_absolute()
            && !Path::new(name)
                .components()
                .any(|part| part == std::path::Component::ParentDir);
        if inside {
            bounded(&path)
        } else {
            Err(format!("{name} must lie in the manifest's folder"))
        }
    })?;
    if matches!(manifest.handler, HandlerSpec::Http(_))
        && let Some(line) = token_line(&text)
    {
        let message =
            "the line holds what looks like a token; declare it in `credentials` and write \"{credential:<name>}\" \
                       instead of writing it down"
                .to_owned();
        return Err(ManifestError {
            file: shown,
            line: Some(line),
            message,
        });
    }
    Ok((manifest, folder))
}

/// Returns the line of a manifest that contains a token of a well-known form, counted from 1.
///
/// Comments count too, because readers of the file see them.
fn token_line(text: &str) -> Option<usize> {
    text.lines()
        .position(|line| leaks::has_leak(line.as_bytes()))
        .map(|index| index + 1)
}

fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let (path, Ok(kind)) = (entry.path(), entry.file_type()) else {
            continue;
        };
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if hidden {
            continue;
        }
        if kind.is_dir() && depth < MAX_DEPTH {
            collect(&path, depth + 1, files);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "toml")
            && path.is_file()
        {
            files.push(path);
        }
    }
}

fn bounded(file: &Path) -> Result<String, String> {
    let name = file
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let size = std::fs::metadata(file)
        .map_err(|error| format!("{name} cannot be read: {error}"))?
        .len();
    if size > MAX_FILE_BYTES {
        return Err(format!(
            "{name} is {size} bytes, the limit is {MAX_FILE_BYTES}"
        ));
    }
    std::fs::read_to_string(file).map_err(|error| format!("{name} cannot be read: {error}"))
}

/// Watches a folder: calls `changed` after every change, once changes have settled.
///
/// Ends when the returned guard is dropped.
///
/// # Errors
/// If the system cannot watch the folder, for example because it does not exist.
pub(crate) fn watch(
    folder: &Path,
    changed: impl Fn() + Send + Sync + 'static,
) -> notify::Result<Watch> {
    let (sender, mut receiver) = mpsc::channel::<()>(1);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading the folder makes access events; only changes count. A full channel means a reload
        // is due anyway.
        if event.is_ok_and(|event| !event.kind.is_access()) {
            let _ = sender.try_send(());
        }
    })?;
    watcher.watch(folder, RecursiveMode::Recursive)?;
    let task = tokio::spawn(async move {
        while receiver.recv().await.is_some() {
            while tokio::time::timeout(SETTLE, receiver.recv())
                .await
                .is_ok_and(|more| more.is_some())
            {}
            changed();
        }
    });
    Ok(Watch {
        _watcher: Box::new(watcher),
        task,
    })
}

/// Keeps a watch alive.
pub(crate) struct Watch {
    _watcher: Box<dyn Watcher + Send + Sync>,
    task: tokio::task::JoinHandle<()>,
}

/// Watches a folder that may be created, removed and replaced.
///
/// Calls `changed` after every change of it or in it.
pub(crate) fn follow(folder: PathBuf, changed: impl Fn() + Send + Sync + 'static) -> Follow {
    let changed = Arc::new(changed);
    let mut following = Following {
        folder,
        changed,
        seen: None,
        watch: None,
        warned: false,
    };
    following.look();
    let task = tokio::spawn(async move {
        loop {
            tokio::time::sleep(LOOK).await;
            if following.look() {
                (following.changed)();
            }
        }
    });
    Follow { task }
}

struct Following<F> {
    folder: PathBuf,
    changed: Arc<F>,
    /// Device and inode of the folder at the last check.
    seen: Option<(u64, u64)>,
    watch: Option<Watch>,
    warned: bool,
}

impl<F: Fn() + Send + Sync + 'static> Following<F> {
    /// Watches the folder if it exists. Returns whether it was replaced, or removed.
    fn look(&mut self) -> bool {
        let about = std::fs::metadata(&self.folder)
            .ok()
            .filter(std::fs::Metadata::is_dir);
        let now = about.map(|about| (about.dev(), about.ino()));
        if now == self.seen {
            return false;
        }
        self.seen = now;
        self.watch = None;
        if now.is_some() {
            let changed = Arc::clone(&self.changed);
            match watch(&self.folder, move || changed()) {
                Ok(watch) => self.watch = Some(watch),
                Err(error) if !self.warned => {
                    self.warned = true;
                    let folder = self.folder.display();
                    tracing::warn!(%folder, %error, "changes of the packs folder will not be noticed");
                }
                Err(_) => {}
            }
        }
        true
    }
}

/// Guard of [`follow`], which ends when it is dropped.
pub(crate) struct Follow {
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}
