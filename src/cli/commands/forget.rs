//! `helmdeck memory forget`: deletes all data of one person and prints a receipt. It needs no key.
//!
//! With the key it leaves a sealed record of the audit entries that it removed.

use helmdeck_core::text::count;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{Clock, SystemClock};
use helmdeck_memory::Store;
use helmdeck_memory::open::Location;
use helmdeck_system::forget::{Receipt, Removed, forget, preview};
use serde_json::{Value, json};

use crate::args::ForgetArgs;
use crate::commands::audit::OPERATOR;
use crate::exit::{Exit, Failure, Result};
use crate::wire::{MemoryUse, Setup};
use helmdeck_core::text::columns;

/// How many times emptying the store's log is tried, if a reader prevents it.
const TRIES: u32 = 50;

/// Deletes all data of a subject.
///
/// # Errors
/// A usage failure without a confirmation, or for an empty subject; exit 1 if rows kept being
/// written, or the store cannot be reached.
pub(crate) async fn run(setup: &Setup, arguments: &ForgetArgs) -> Result<()> {
    let (tenant, subject) = (arguments.tenant.as_str(), arguments.subject.as_str());
    if subject.is_empty() {
        return Err(Failure::usage(
            "an empty subject stands for what a tenant shares; `memory purge` removes that",
        ));
    }
    let (store, by) = open(setup).await?;
    let answer = async {
        let held = match &store {
            Some(store) => preview(&**store, tenant, subject).await?,
            None => Vec::new(),
        };
        setup
            .output
            .confirm(&question(tenant, subject, &held), arguments.yes)?;
        let file = arguments
            .receipt
            .as_deref()
            .map(ReceiptFile::make)
            .transpose()?;
        let system = setup.system()?;
        let now = SystemClock::default().now();
        // Delete the files first: if their storage does not answer, no receipt says that all is
        // done.
        let mut artifacts = forget_files(setup, tenant, subject).await?;
        let receipt = forget(store.as_deref(), Some(&system), (tenant, subject), by, now).await?;
        // Delete files that a running server wrote meanwhile.
        artifacts += forget_files(setup, tenant, subject).await?;
        Ok::<_, Failure>((receipt, artifacts, file))
    };
    let answer = answer.await;
    if let Some(store) = store {
        store.close().await?;
    }
    let (receipt, artifacts, mut file) = answer?;
    let log_emptied = empty_log(setup).await?;
    let mut value = serde_json::to_value(&receipt).unwrap_or_default();
    value["log_emptied"] = log_emptied.into();
    value["artifacts"] = artifacts.into();
    if let Some(file) = &mut file {
        file.keep(&value)?;
    }
    setup
        .output
        .either(&value, || text(&receipt, artifacts, log_emptied))?;
    if receipt.verified && log_emptied != Some(false) {
        return Ok(());
    }
    let why = if receipt.verified {
        "the log of the store could not be emptied"
    } else {
        "rows kept being written"
    };
    Err(Failure::new(Exit::Failed, why).with_hint("run it again; what went is gone"))
}

/// Opens the store, with the key if it is there. A lost key is no dead end.
async fn open(setup: &Setup) -> Result<(Option<Arc<dyn Store>>, Option<&'static str>)> {
    if setup.ring.is_some() {
        match setup.sealed_store().await {
            Err(failure) if failure.exit() == Exit::Config => {}
            opened => return Ok((opened?, Some(OPERATOR))),
        }
    }
    Ok((setup.clear_store().await?, None))
}

async fn forget_files(setup: &Setup, tenant: &str, subject: &str) -> Result<u64> {
    let engine = setup.engine_over(None, MemoryUse::Nothing, false).await?;
    let forgotten = engine.forget_artifacts(tenant, subject).await;
    engine.shutdown().await;
    forgotten.map_err(|error| {
        Failure::from(error).with_hint("rows are left until the files can go; run it again")
    })
}

fn question(tenant: &str, subject: &str, held: &[Removed]) -> String {
    let rows: u64 = held.iter().map(|part| part.rows).sum();
    let mut kinds: Vec<String> = Vec::new();
    for kind in helmdeck_memory::Kind::ALL {
        let of_kind: u64 = held
            .iter()
            .filter(|part| part.kind == kind)
            .map(|part| part.rows)
            .sum();
        if of_kind > 0 {
            kinds.push(format!("{of_kind} {kind}"));
        }
    }
    let kinds = if kinds.is_empty() {
        String::new()
    } else {
        format!(": {}", kinds.join(", "))
    };
    format!(
        "remove everything of {tenant}/{subject} ({}{kinds}), with all sessions, idempotency keys, ended jobs and artifacts",
        count(rows, "entry")
    )
}

/// Empties the log of the store.
///
/// Deleted rows are overwritten in the database, and may remain in its log until that is truncated.
/// A concurrent reader prevents that. `None` = the store has no such log: the receipt says what
/// remains.
async fn empty_log(setup: &Setup) -> Result<Option<bool>> {
    let Location::Sqlite(path) = Location::parse(&setup.settings.memory_url()?)? else {
        return Ok(None);
    };
    let mut log = path.into_os_string();
    log.push("-wal");
    for _ in 0..TRIES {
        if !std::fs::metadata(&log).is_ok_and(|file| file.len() > 0) {
            return Ok(Some(true));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        if let Some(store) = setup.clear_store().await? {
            store.close().await?;
        }
    }
    Ok(Some(
        !std::fs::metadata(&log).is_ok_and(|file| file.len() > 0),
    ))
}

/// File of the receipt. It is created before anything is removed, and deleted if nothing was.
struct ReceiptFile<'a> {
    path: &'a Path,
    file: File,
    kept: bool,
}

impl<'a> ReceiptFile<'a> {
    fn make(path: &'a Path) -> Result<Self> {
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
        {
            Ok(file) => Ok(Self {
                path,
                file,
                kept: false,
            }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Failure::usage(format!(
                "{} already exists; name another file",
                path.display()
            ))),
            Err(error) => Err(Failure::usage(format!(
                "the receipt cannot be written: {}: {error}; nothing was removed",
                path.display()
            ))),
        }
    }

    fn keep(&mut self, value: &Value) -> Result<()> {
        // A partial receipt is better than none.
        self.kept = true;
        let written = writeln!(self.file, "{value:#}").and_then(|()| self.file.sync_all());
        written.map_err(|error| {
            let path = self.path.display();
            Failure::new(
                Exit::Failed,
                format!("everything was removed, but the receipt was not written: {path}: {error}"),
            )
        })
    }
}

impl Drop for ReceiptFile<'_> {
    fn drop(&mut self) {
        if !self.kept {
            // The file is empty. If it stays, the next run reports that it exists.
            let _ = std::fs::remove_file(self.path);
        }
    }
}

fn text(receipt: &Receipt, artifacts: u64, log_emptied: Option<bool>) -> String {
    let at = json!(receipt)["at"].as_str().unwrap_or_default().to_owned();
    let mut text = format!("{at}: forgot {}/{}\n", receipt.tenant, receipt.subject);
    let mut rows: Vec<Vec<String>> = vec![["SESSION", "KIND", "ROWS"].map(str::to_owned).to_vec()];
    rows.extend(receipt.removed.iter().map(|part| {
        vec![
            part.session.clone().unwrap_or_else(|| "-".to_owned()),
            part.kind.to_string(),
            part.rows.to_string(),
        ]
    }));
    if !receipt.removed.is_empty() {
        text.push_str(&columns(&rows));
    }
    let driver = receipt.driver.as_deref().unwrap_or("none");
    text.push_str(&format!(
        "{}, {}, {} and {} removed; store: {driver}; looked {}\n",
        count(receipt.rows, "row"),
        count(receipt.idempotency_keys, "idempotency key"),
        count(receipt.jobs, "job"),
        count(artifacts, "artifact"),
        count(receipt.looks, "time")
    ));
    text.push_str(match (receipt.verified, log_emptied) {
        (true, Some(true) | None) => "verified: the last two looks found nothing\n",
        (true, Some(false)) => "verified, but bytes may stand in the log of the store\n",
        (false, _) => "not verified: rows kept being written\n",
    });
    text.push_str("not covered:\n");
    text.extend(receipt.not_covered.iter().map(|what| format!("  {what}\n")));
    text
}
