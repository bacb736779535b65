//! `helmdeck memory import`: imports an archive. It is idempotent.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use helmdeck_core::{Clock, SystemClock};
use helmdeck_memory::KeyRing;
use helmdeck_memory::archive::{self, ArchiveFilter, Imported};
use helmdeck_memory::restore::{Destination, Restored, Target};
use serde_json::json;

use crate::args::ImportArgs;
use crate::commands::archive::failure;
use crate::exit::{Exit, Failure, Result};
use crate::progress::Steps;
use crate::wire::Setup;
use helmdeck_core::text::columns;

/// Imports an archive.
///
/// # Errors
/// Exit 3 without a key; 78 with another key than the file's; 8 if the file is damaged, after
/// everything that opens was written; 1 if entries were refused.
pub(crate) async fn run(setup: &Setup, arguments: &ImportArgs) -> Result<()> {
    let Some(ring) = &setup.ring else {
        return Err(Failure::new(
            Exit::Absent,
            "no memory key is set; set the key that the file was written with",
        ));
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let target = Target {
        store: destination(setup, arguments, ring, &clock).await?,
        dry_run: arguments.dry_run,
        clock,
    };
    let filter = ArchiveFilter::from(&arguments.only);
    let input: Box<dyn Read + Send> = if arguments.file == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(open(&arguments.file)?)
    };
    let mut steps = Steps::new(setup.output, "read");
    let mut show = |count| steps.at(count, None);
    let (imported, end) = archive::import(target, ring.clone(), &filter, input, &mut show).await;
    drop(steps);
    if imported.archive.is_empty() {
        // It ended before its first record: there is nothing to report.
        return end.map_err(failure);
    }
    setup
        .output
        .either(&json!(imported), || text(&imported, arguments.dry_run))?;
    end.map_err(failure)?;
    refused(&imported.restored)
}

/// Returns the store to import into.
///
/// It is opened only when the first entry decrypts: a store created with a wrong key would refuse
/// the right one.
async fn destination(
    setup: &Setup,
    arguments: &ImportArgs,
    ring: &KeyRing,
    clock: &Arc<dyn Clock>,
) -> Result<Destination> {
    // A dry run creates no store.
    if arguments.dry_run && !setup.store_exists().await? {
        return Ok(Destination::Nothing);
    }
    let (url, ring, clock) = (
        setup.settings.memory_url()?,
        ring.clone(),
        Arc::clone(clock),
    );
    let config = setup.settings.memory.store();
    Ok(Destination::Later(Box::pin(async move {
        helmdeck_memory::open(&url, ring, config, clock).await
    })))
}

fn open(file: &Path) -> Result<File> {
    File::open(file).map_err(|error| Failure::of_file(file.display(), &error))
}

fn text(imported: &Imported, dry_run: bool) -> String {
    let mut rows = counts(&imported.restored, dry_run);
    rows.push(vec![
        "not asked for".to_owned(),
        imported.filtered.to_string(),
    ]);
    rows.push(vec![
        "do not open".to_owned(),
        imported.unreadable.to_string(),
    ]);
    let rows: Vec<_> = rows
        .into_iter()
        .enumerate()
        .filter(|(at, row)| *at == 0 || row[1] != "0")
        .map(|(_, row)| row)
        .collect();
    let named: String = imported
        .restored
        .named
        .iter()
        .map(|line| format!("refused: {line}\n"))
        .collect();
    format!(
        "archive {}: {} records\n{}{named}",
        imported.archive,
        imported.read,
        columns(&rows)
    )
}

fn counts(restored: &Restored, dry_run: bool) -> Vec<Vec<String>> {
    let imported = if dry_run {
        "would be imported"
    } else {
        "imported"
    };
    [
        (imported, restored.imported),
        ("kept as they are", restored.kept),
        ("ended", restored.expired),
        ("refused", restored.refused),
    ]
    .iter()
    .map(|(name, count)| vec![(*name).to_owned(), count.to_string()])
    .collect()
}

fn refused(restored: &Restored) -> Result<()> {
    match restored.refused {
        0 => Ok(()),
        refused => Err(Failure::new(
            Exit::Failed,
            format!(
                "refused {}, see above",
                helmdeck_core::text::count(refused, "entry")
            ),
        )
        .with_hint(
            "raise the limits under [memory] and run it again; what is there stays as it is",
        )),
    }
}
