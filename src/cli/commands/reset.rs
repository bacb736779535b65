//! `helmdeck memory reset`: empties the store, so that a new key can be used. Needs no key; asks
//! first.

use helmdeck_core::SystemClock;
use helmdeck_core::text::count;
use helmdeck_memory::open::{Location, open_clear};
use helmdeck_memory::{Delete, Store, StoreError};
use serde_json::json;

use crate::args::ResetArgs;
use crate::exit::Result;
use crate::output::size;
use crate::wire::Setup;

/// Empties the store; a damaged SQLite file is removed.
///
/// # Errors
/// A usage failure without a confirmation; a failure if the store cannot be reached.
pub(crate) async fn run(setup: &Setup, arguments: &ResetArgs) -> Result<()> {
    let (url, config) = (setup.settings.memory_url()?, setup.settings.memory.store());
    let clock = std::sync::Arc::new(SystemClock::default());
    let (done, removed) = match (
        open_clear(&url, &config, clock).await,
        Location::parse(&url)?,
    ) {
        (Ok(None), _) => (
            "there is no store, so there is nothing to reset".to_owned(),
            0,
        ),
        (Ok(Some(store)), _) => {
            let answer = empty(setup, &*store, arguments).await;
            store.close().await?;
            let removed = answer?;
            (
                format!(
                    "removed {}; the store takes the next key",
                    count(removed, "entry")
                ),
                removed,
            )
        }
        (Err(StoreError::Corrupt(reason)), Location::Sqlite(path)) => {
            let question = format!(
                "remove the damaged store {}: all that it holds is lost ({reason})",
                path.display()
            );
            setup.output.confirm(&question, arguments.yes)?;
            for suffix in ["", "-wal", "-shm", "-reserve"] {
                let mut name = path.clone().into_os_string();
                name.push(suffix);
                match std::fs::remove_file(&name) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(error.into());
                    }
                    _ => {}
                }
            }
            (
                format!(
                    "removed {}; the next call makes a new store",
                    path.display()
                ),
                0,
            )
        }
        (Err(error), _) => return Err(error.into()),
    };
    setup.output.either(&json!({"removed": removed}), || done)
}

async fn empty(setup: &Setup, store: &dyn Store, arguments: &ResetArgs) -> Result<u64> {
    let stats = store.stats().await?;
    let kinds: Vec<String> = stats
        .rows_by_kind
        .iter()
        .map(|(kind, rows)| format!("{kind} {rows}"))
        .collect();
    let keys: Vec<&str> = stats.rows_by_key_id.keys().map(String::as_str).collect();
    let lost = if kinds.is_empty() {
        "it holds no entries".to_owned()
    } else {
        let held = format!(
            "{} ({}; {})",
            count(stats.rows + stats.expired, "entry"),
            kinds.join(", "),
            size(stats.bytes)
        );
        format!(
            "{held}, sealed with key {}, are lost for good",
            keys.join(", ")
        )
    };
    let shown = setup.shown_url()?;
    setup.output.confirm(
        &format!("empty the store {shown}, of every caller: {lost}"),
        arguments.yes,
    )?;
    Ok(store
        .delete(Delete::Prefix {
            namespace: None,
            kind: None,
            prefix: String::new(),
        })
        .await?)
}
