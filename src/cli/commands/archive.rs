//! `helmdeck memory export`: exports the store, or a part of it, to one sealed archive.
//!
//! Leaves no partial file behind, and overwrites a file only with `--force`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use helmdeck_core::SystemClock;
use helmdeck_memory::archive::{ArchiveError, ArchiveFilter, Exported, export};
use helmdeck_memory::{KeyRing, Store};
use serde_json::json;

use crate::args::{ExportArgs, OnlyArgs};
use crate::exit::{Exit, Failure, Result};
use crate::progress::Steps;
use crate::signals::Stop;
use crate::wire::Setup;

/// Exports the store to an archive.
///
/// # Errors
/// Exit 3 without a key or a store; 2 if the file exists; 8 if rows do not open, after everything
/// else was written.
pub(crate) async fn run(setup: &Setup, arguments: &ExportArgs) -> Result<()> {
    let Some(ring) = &setup.ring else {
        return Err(Failure::new(
            Exit::Absent,
            "no memory key is set, so entries cannot be opened",
        ));
    };
    let to_stdout = arguments.file == Path::new("-");
    if !to_stdout && !arguments.force && arguments.file.symlink_metadata().is_ok() {
        return Err(taken(&arguments.file));
    }
    let Some(store) = setup.sealed_store().await? else {
        return Err(Failure::new(
            Exit::Absent,
            "there is no store yet; the first write creates it",
        ));
    };
    let answer = if to_stdout {
        write(setup, &*store, ring, arguments, io::stdout())
            .await
            .map(|(exported, _)| exported)
    } else {
        to_file(setup, &*store, ring, arguments).await
    };
    store.close().await?;
    report(setup, arguments, &answer?, to_stdout)
}

impl From<&OnlyArgs> for ArchiveFilter {
    fn from(only: &OnlyArgs) -> Self {
        Self {
            namespace: only.namespace.clone(),
            kind: only.kind,
        }
    }
}

async fn to_file(
    setup: &Setup,
    store: &dyn Store,
    ring: &KeyRing,
    arguments: &ExportArgs,
) -> Result<Exported> {
    let (pending, file) = PendingFile::beside(&arguments.file)?;
    let (exported, file) = write(setup, store, ring, arguments, file).await?;
    let (path, force) = (arguments.file.clone(), arguments.force);
    let keeping = tokio::task::spawn_blocking(move || pending.keep(&file, &path, force)).await;
    keeping.map_err(Failure::internal)??;
    Ok(exported)
}

async fn write<W: Write + Send + 'static>(
    setup: &Setup,
    store: &dyn Store,
    ring: &KeyRing,
    arguments: &ExportArgs,
    out: W,
) -> Result<(Exported, W)> {
    let filter = ArchiveFilter::from(&arguments.only);
    let (clock, mut signals) = (SystemClock::default(), Stop::catch()?);
    let mut steps = Steps::new(setup.output, "exported");
    let mut show = |count| steps.at(count, None);
    tokio::select! {
        answer = export(store, ring.clone(), &filter, out, &clock, &mut show) => answer.map_err(failure),
        () = signals.wait() => Err(Failure::new(Exit::Failed, "stopped; nothing was written")),
    }
}

fn report(
    setup: &Setup,
    arguments: &ExportArgs,
    exported: &Exported,
    to_stdout: bool,
) -> Result<()> {
    let text = || {
        let mut text = format!(
            "exported {}",
            helmdeck_core::text::count(exported.exported, "entry")
        );
        if !to_stdout {
            text.push_str(&format!(" to {}", arguments.file.display()));
        }
        if exported.expired > 0 {
            text.push_str(&format!(
                "; {} have ended and were left out",
                exported.expired
            ));
        }
        if exported.unreadable > 0 {
            text.push_str(&format!(
                "; {} do not open and were left out",
                exported.unreadable
            ));
        }
        text
    };
    if !to_stdout {
        setup.output.either(&json!(exported), text)?;
    } else if !setup.output.json {
        // The archive itself went to stdout.
        setup.output.note(&text());
    }
    if exported.unreadable == 0 {
        Ok(())
    } else {
        Err(Failure::silent(Exit::Corrupt))
    }
}

/// Turns an archive's error into a failure.
pub(crate) fn failure(error: ArchiveError) -> Failure {
    match error {
        ArchiveError::Store(error) => error.into(),
        ArchiveError::WrongKey { .. } => Failure::config(error.to_string()).with_hint(
            "set HELMDECK_MEMORY_KEY to that key, or name it in HELMDECK_MEMORY_KEY_PREVIOUS",
        ),
        ArchiveError::NotAnArchive
        | ArchiveError::OtherFormat(_)
        | ArchiveError::Damaged(_)
        | ArchiveError::Incomplete { .. } => Failure::new(Exit::Corrupt, error.to_string()),
        other => Failure::new(Exit::Failed, other.to_string()),
    }
}

/// Builds the error of a file that exists already.
pub(super) fn taken(path: &Path) -> Failure {
    Failure::usage(format!("{} already exists", path.display()))
        .with_hint("use --force to replace it")
}

/// Temporary file beside the target, removed unless it is kept.
pub(super) struct PendingFile(Option<PathBuf>);

impl PendingFile {
    /// Creates the temporary file, readable by its owner only.
    ///
    /// # Errors
    /// A failure that names the file.
    pub(super) fn beside(path: &Path) -> Result<(Self, File)> {
        let name = path
            .file_name()
            .ok_or_else(|| Failure::usage(format!("{} names no file", path.display())))?;
        let pending = path.with_file_name(format!(
            ".{}.{}",
            name.to_string_lossy(),
            std::process::id()
        ));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&pending);
        let file = file.map_err(|error| about(&pending, &error))?;
        Ok((Self(Some(pending)), file))
    }

    /// Renames the file to the target; replaces an existing file only with `force`.
    ///
    /// # Errors
    /// A failure that names the file; a usage failure if the target exists.
    pub(super) fn keep(mut self, file: &File, path: &Path, force: bool) -> Result<()> {
        let Some(pending) = &self.0 else {
            return Ok(());
        };
        file.sync_all().map_err(|error| about(pending, &error))?;
        if force {
            fs::rename(pending, path).map_err(|error| about(path, &error))?;
            self.0 = None;
            return Ok(());
        }
        // A hard link fails if the target exists. The temporary name goes when this value is
        // dropped.
        fs::hard_link(pending, path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => taken(path),
            _ => about(path, &error),
        })
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

fn about(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{}: {error}", path.display()))
}
