//! `helmdeck conversation snapshot` and `restore`: copies a conversation to a file and back.
//!
//! The copy is exact, byte for byte.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use helmdeck_conversation::{Record, Snapshot, Strategy, wire};
use serde_json::json;

use super::context::{CommandContext, held, identity, read_all, shown};
use crate::args::{ConversationIdArgs, SnapshotArgs};
use crate::commands::archive::{PendingFile, taken};
use crate::exit::{Exit, Failure, Result};
use crate::output::size;

/// Limit of a snapshot that is read, in bytes. The memory has its own limits.
const MAX_BYTES: u64 = 1 << 30;

/// Writes a snapshot.
///
/// # Errors
/// A usage failure if the file exists.
pub(super) async fn take(on: &CommandContext<'_>, arguments: &SnapshotArgs) -> Result<()> {
    if let Some(path) = &arguments.output
        && !arguments.force
        && path.symlink_metadata().is_ok()
    {
        return Err(taken(path));
    }
    let identity = identity(&arguments.which);
    let snapshot = on.memory.snapshot(&identity).await?;
    let strategy = snapshot.strategy.unwrap_or(Strategy::None);
    // A strategy that keeps nothing has no bytes; an empty record names the strategy.
    let bytes = match snapshot.bytes.is_empty() {
        true => wire::write_record(&Record {
            strategy,
            ..Record::default()
        })
        .into(),
        false => snapshot.bytes,
    };
    let Some(path) = &arguments.output else {
        return on.setup.output.raw(&bytes);
    };
    let (pending, mut file) = PendingFile::beside(path)?;
    let failed =
        |error: io::Error| Failure::new(Exit::Failed, format!("{}: {error}", path.display()));
    file.write_all(&bytes).map_err(failed)?;
    pending.keep(&file, path, arguments.force)?;
    let value =
        json!({"file": path.display().to_string(), "bytes": bytes.len(), "strategy": strategy});
    on.print(&value, || {
        format!(
            "wrote {} ({}, {strategy}) to {}",
            shown(&identity),
            size(bytes.len() as u64),
            path.display()
        )
    })
}

/// Replaces a conversation by a snapshot.
///
/// # Errors
/// Exit 3 for a missing file; a usage failure if turns would be replaced without a confirmation;
/// exit 1 for a file that cannot be read, that is no snapshot, or that has another strategy. After
/// an error nothing has changed.
pub(super) async fn restore(
    on: &CommandContext<'_>,
    which: &ConversationIdArgs,
    file: &Path,
    yes: bool,
) -> Result<()> {
    let bytes = if file == Path::new("-") {
        read_all(io::stdin().lock(), MAX_BYTES, "stdin")?
    } else {
        let name = file.display().to_string();
        let opened = File::open(file).map_err(|error| Failure::of_file(&name, &error))?;
        read_all(opened, MAX_BYTES, &name)?
    };
    if bytes.trim_ascii().is_empty() {
        // An empty snapshot would clear the conversation; a broken pipe must not do that.
        return Err(Failure::usage("the snapshot is empty")
            .with_hint("`helmdeck conversation flush` deletes what is in a conversation"));
    }
    let identity = identity(which);
    let trace = on.trace(&identity).await?;
    // An empty conversation loses nothing.
    let yes = yes
        || trace
            .as_ref()
            .is_some_and(|trace| trace.kept_turns == 0 && trace.summary.is_empty());
    let question = format!(
        "replace {} by a snapshot of {}",
        held(&identity, trace.as_ref()),
        size(bytes.len() as u64)
    );
    on.setup.output.confirm(&question, yes)?;
    on.memory
        .restore(
            &identity,
            &Snapshot {
                strategy: None,
                bytes: bytes.into(),
            },
        )
        .await?;
    let trace = on.memory.trace(&identity).await?;
    let value = json!({"restored": true, "kept_turns": trace.kept_turns, "summary": !trace.summary.is_empty()});
    on.print(&value, || {
        format!(
            "restored {}: {}",
            shown(&identity),
            super::context::parts(&trace)
        )
    })
}
