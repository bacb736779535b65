//! `helmdeck memory import`: imports an archive, or a database of the Go original. It is idempotent.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use helmdeck_core::{Clock, SystemClock};
use helmdeck_memory::KeyRing;
use helmdeck_memory::archive::{self, ArchiveFilter, Imported};
use helmdeck_memory::helmdeck_go::{self, GoError, Options, Report, Sessions};
use helmdeck_memory::restore::{Destination, Restored, Target};
use serde_json::json;

use crate::args::{ImportArgs, SplitSessions};
use crate::commands::archive::failure;
use crate::exit::{Exit, Failure, Result};
use crate::output::columns;
use crate::progress::Steps;
use crate::table::table;
use crate::wire::Setup;

/// Limit of namespaces in the text report.
const SHOWN: usize = 20;

/// Imports an archive or a database.
///
/// # Errors
/// Exit 3 without a key; 78 with another key than the file's; 8 if the file is damaged, after everything that opens was
/// written; 1 if entries were refused.
pub(crate) async fn run(setup: &Setup, arguments: &ImportArgs) -> Result<()> {
    let Some(ring) = &setup.ring else {
        return Err(Failure::new(Exit::Absent, "no memory key is set; set the key that the file was written with"));
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let target =
        Target { store: destination(setup, arguments, ring, &clock).await?, dry_run: arguments.dry_run, clock };
    if arguments.helmdeck_go {
        original(setup, arguments, ring, target).await
    } else {
        of_archive(setup, arguments, ring, target).await
    }
}

/// Returns the store to import into.
///
/// It is opened only when the first entry decrypts: a store created with a wrong key would refuse the right one.
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
    let (url, ring, clock) = (setup.settings.memory_url()?, ring.clone(), Arc::clone(clock));
    let config = setup.settings.memory.store();
    Ok(Destination::Later(Box::pin(async move { helmdeck_memory::open(&url, ring, config, clock).await })))
}

fn open(file: &Path) -> Result<File> {
    File::open(file).map_err(|error| Failure::of_file(file.display(), &error))
}

async fn of_archive(setup: &Setup, arguments: &ImportArgs, ring: &KeyRing, target: Target) -> Result<()> {
    let filter = ArchiveFilter::from(&arguments.only);
    let input: Box<dyn Read + Send> =
        if arguments.file == Path::new("-") { Box::new(io::stdin()) } else { Box::new(open(&arguments.file)?) };
    let mut steps = Steps::new(setup.output, "read");
    let mut show = |count| steps.at(count, None);
    let (imported, end) = archive::import(target, ring.clone(), &filter, input, &mut show).await;
    drop(steps);
    if imported.archive.is_empty() {
        // It ended before its first record: there is nothing to report.
        return end.map_err(failure);
    }
    setup.output.either(&json!(imported), || of_archive_text(&imported, arguments.dry_run))?;
    end.map_err(failure)?;
    refused(&imported.restored)
}

fn of_archive_text(imported: &Imported, dry_run: bool) -> String {
    let mut rows = counts(&imported.restored, dry_run);
    rows.push(vec!["not asked for".to_owned(), imported.filtered.to_string()]);
    rows.push(vec!["do not open".to_owned(), imported.unreadable.to_string()]);
    let rows: Vec<_> =
        rows.into_iter().enumerate().filter(|(at, row)| *at == 0 || row[1] != "0").map(|(_, row)| row).collect();
    let named: String = imported.restored.named.iter().map(|line| format!("refused: {line}\n")).collect();
    format!("archive {}: {} records\n{}{named}", imported.archive, imported.read, columns(&rows))
}

async fn original(setup: &Setup, arguments: &ImportArgs, ring: &KeyRing, target: Target) -> Result<()> {
    if ArchiveFilter::from(&arguments.only) != ArchiveFilter::default() {
        return Err(Failure::usage("--namespace and --kind choose from an archive, not with --helmdeck-go"));
    }
    // SQLite would only say that it cannot open it.
    drop(open(&arguments.file)?);
    let sessions = match arguments.split_sessions {
        SplitSessions::Proven => Sessions::Proven,
        SplitSessions::Always => Sessions::Always,
        SplitSessions::Never => Sessions::Never,
    };
    let options = Options { tenant: arguments.tenant.clone(), sessions };
    let scratch = setup.settings.data_dir()?;
    let mut steps = Steps::new(setup.output, "read");
    let mut show = |count, total| steps.at(count, Some(total));
    let report = helmdeck_go::import(&arguments.file, scratch, target, ring.clone(), options, &mut show).await;
    drop(steps);
    let report = report.map_err(|error| match error {
        GoError::Store(error) => error.into(),
        GoError::WrongKey { .. } => Failure::config(error.to_string()).with_hint(
            "set HELMDECK_MEMORY_KEY to the key of the Go program, or name that in HELMDECK_MEMORY_KEY_PREVIOUS",
        ),
        other => Failure::new(Exit::Corrupt, other.to_string()),
    })?;
    setup.output.either(&json!(report), || original_text(&report, arguments.dry_run))?;
    refused(&report.restored)?;
    if report.bad == 0 { Ok(()) } else { Err(Failure::silent(Exit::Corrupt)) }
}

fn original_text(report: &Report, dry_run: bool) -> String {
    let mut rows = counts(&report.restored, dry_run);
    rows.extend(report.restored.kinds.iter().map(|(kind, count)| vec![format!("  {kind}"), count.to_string()]));
    rows.extend(report.skipped.iter().map(|(what, count)| vec![format!("skipped: {what}"), count.to_string()]));
    rows.push(vec!["bad".to_owned(), report.bad.to_string()]);
    let mut text = format!("{} rows\n{}", report.rows, columns(&rows));
    text.extend(report.bad_rows.iter().map(|line| format!("bad: {line}\n")));
    text.extend(report.restored.named.iter().map(|line| format!("refused: {line}\n")));
    if !report.namespaces.is_empty() {
        let rows = report.namespaces.iter().take(SHOWN).map(|read| {
            let session = read.session.clone().unwrap_or_else(|| "-".to_owned());
            [read.from.clone(), read.subject.clone(), session, read.why.to_owned()]
        });
        text.push('\n');
        text.push_str(&table(["NAMESPACE", "CALLER", "SESSION", "WHY"], rows));
        if report.namespaces.len() > SHOWN {
            text.push_str(&format!("and {} more; --json lists them all\n", report.namespaces.len() - SHOWN));
        }
    }
    text
}

fn counts(restored: &Restored, dry_run: bool) -> Vec<Vec<String>> {
    let imported = if dry_run { "would be imported" } else { "imported" };
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
            format!("refused {}, see above", helmdeck_core::text::count(refused, "entry")),
        )
        .with_hint("raise the limits under [memory] and run it again; what is there stays as it is")),
    }
}
