//! `helmdeck memory doctor`: opens every row and reports problems with a remedy. It is read-only.

use helmdeck_core::text::count;
use std::collections::BTreeMap;

use helmdeck_memory::doctor::{Examined, examine};
use helmdeck_memory::{NamespaceStats, Stats, Store};
use serde_json::{Value, json};

use crate::commands::memory::name;
use crate::exit::{Exit, Failure, Result};
use crate::output::size;
use crate::progress::Steps;
use crate::table::table;
use crate::wire::Setup;
use helmdeck_core::text::columns;

/// How many bad rows are named; all are counted.
const NAMED: usize = 20;
/// How many namespaces are shown to people.
const SHOWN: usize = 20;

/// What can be read without the key.
struct Clear {
    stats: Stats,
    namespaces: Vec<NamespaceStats>,
}

/// Checks the store.
///
/// # Errors
/// Exit 3 without a key or a store, after printing what can be read without one; 78 with another
/// key, likewise; 8 if any row does not open, after printing which.
pub(crate) async fn run(setup: &Setup) -> Result<()> {
    let Some(clear) = look(setup).await? else {
        let what = if setup.ring.is_some() {
            "there is no store yet; the first write creates it"
        } else {
            "no memory key is set, and there is no store"
        };
        return Err(Failure::new(Exit::Absent, what));
    };
    let (examined, failure) = match open(setup).await {
        Ok(examined) => (examined, None),
        Err(failure) => (None, Some(failure)),
    };
    let hints = hints(setup, &clear, examined.as_ref());
    let value = value(setup, &clear, examined.as_ref(), failure.as_ref(), &hints);
    setup
        .output
        .either(&value, || text(setup, &clear, examined.as_ref(), &hints))?;
    match (failure, examined) {
        (Some(failure), _) => Err(failure),
        (None, Some(examined)) if examined.unreadable > 0 => Err(Failure::silent(Exit::Corrupt)),
        (None, Some(_)) => Ok(()),
        (None, None) => Err(Failure::new(
            Exit::Absent,
            "no memory key is set, so entries cannot be opened",
        )
        .with_hint("set HELMDECK_MEMORY_KEY to check that every entry opens")),
    }
}

async fn look(setup: &Setup) -> Result<Option<Clear>> {
    let Some(store) = setup.clear_store().await? else {
        return Ok(None);
    };
    let looked = async {
        Ok::<_, Failure>(Clear {
            stats: store.stats().await?,
            namespaces: store.namespaces().await?,
        })
    };
    let looked = looked.await;
    store.close().await?;
    looked.map(Some)
}

async fn open(setup: &Setup) -> Result<Option<Examined>> {
    let Some(store) = setup.sealed_store().await? else {
        return Ok(None);
    };
    let examined = walk(setup, &*store).await;
    store.close().await?;
    examined.map(Some)
}

async fn walk(setup: &Setup, store: &dyn Store) -> Result<Examined> {
    let stats = store.stats().await?;
    let mut steps = Steps::new(setup.output, "opened");
    let mut show = |count| steps.at(count, Some(stats.rows + stats.expired));
    Ok(examine(store, NAMED, &mut show).await?)
}

/// Says whether the keyring has a key id.
fn standing(setup: &Setup, id: &str) -> &'static str {
    match &setup.ring {
        _ if id.is_empty() => "not sealed",
        None => "unknown",
        Some(ring) if ring.current_id() == id => "current",
        Some(ring) if ring.knows(id) => "previous",
        Some(_) => "missing",
    }
}

fn hints(setup: &Setup, clear: &Clear, examined: Option<&Examined>) -> Vec<String> {
    let mut hints = Vec::new();
    for (id, rows) in clear
        .stats
        .rows_by_key_id
        .iter()
        .filter(|(_, rows)| **rows > 0)
    {
        match standing(setup, id) {
            "previous" => hints.push(format!(
                "{rows} rows are sealed with key {id}, a previous key or in an older format: `helmdeck memory rotate` seals them anew"
            )),
            "missing" => hints.push(format!(
                "{rows} rows are sealed with key {id}, which is not given: name it in HELMDECK_MEMORY_KEY_PREVIOUS"
            )),
            _ => {}
        }
    }
    let missing: u64 = examined
        .iter()
        .flat_map(|found| &found.unreadable_by_key)
        .fold(0, |sum, (id, rows)| {
            if standing(setup, id) == "missing" {
                sum
            } else {
                sum + rows
            }
        });
    if missing > 0 {
        hints.push(format!(
            "{missing} rows were altered, moved or never sealed: they count as absent, and `helmdeck memory purge` removes them"
        ));
    }
    if clear.stats.expired > 0 {
        hints.push(format!(
            "{} rows have ended and are invisible; a running `helmdeck serve` or `helmdeck mcp` sweeps them",
            clear.stats.expired
        ));
    }
    hints
}

fn value(
    setup: &Setup,
    clear: &Clear,
    examined: Option<&Examined>,
    failure: Option<&Failure>,
    hints: &[String],
) -> Value {
    let stats = &clear.stats;
    let keys: BTreeMap<&str, Value> = stats
        .rows_by_key_id
        .iter()
        .map(|(id, rows)| {
            (
                id.as_str(),
                json!({"rows": rows, "key": standing(setup, id)}),
            )
        })
        .collect();
    let named = |found: &Examined| -> Vec<String> { found.named.iter().map(line).collect() };
    json!({
        "driver": stats.driver,
        "canary": canary(setup, failure),
        "rows": stats.rows,
        "expired": stats.expired,
        "bytes": stats.bytes,
        "disk_bytes": stats.disk_bytes,
        "keys": keys,
        "read": examined.map(|found| found.read),
        "unreadable": examined.map(|found| found.unreadable),
        "reasons": examined.map(|found| &found.reasons),
        "named": examined.map(named),
        "namespaces": clear.namespaces.iter().map(|held| json!({
            "namespace": name(&held.namespace), "kind": held.kind, "rows": held.rows, "bytes": held.bytes,
        })).collect::<Vec<_>>(),
        "hints": hints,
    })
}

/// Says whether the keys given are those of the store.
fn canary(setup: &Setup, failure: Option<&Failure>) -> &'static str {
    match failure.map(Failure::exit) {
        _ if setup.ring.is_none() => "not checked",
        None => "ok",
        Some(Exit::Config) => "another key",
        Some(_) => "failed",
    }
}

fn text(setup: &Setup, clear: &Clear, examined: Option<&Examined>, hints: &[String]) -> String {
    let stats = &clear.stats;
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut fact = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    fact(
        "store",
        format!("{}, {} on disk", stats.driver, size(stats.disk_bytes)),
    );
    fact(
        "rows",
        format!(
            "{} ({}), and {} that have ended",
            stats.rows,
            size(stats.bytes),
            stats.expired
        ),
    );
    for (id, rows) in &stats.rows_by_key_id {
        let id = if id.is_empty() { "none" } else { id };
        fact(
            "key",
            format!("{id} ({}): {}", standing(setup, id), count(*rows, "row")),
        );
    }
    match examined {
        Some(found) => fact(
            "opened",
            format!("{} rows open, {} do not", found.read, found.unreadable),
        ),
        None => fact("opened", "not checked: it takes the memory key".to_owned()),
    }
    let mut text = columns(&rows);
    if !clear.namespaces.is_empty() {
        let rows = clear.namespaces.iter().take(SHOWN).map(|held| {
            [
                name(&held.namespace),
                held.kind.to_string(),
                held.rows.to_string(),
                size(held.bytes),
            ]
        });
        text.push_str(&format!(
            "\n{}",
            table(["NAMESPACE", "KIND", "ROWS", "SIZE"], rows)
        ));
        if clear.namespaces.len() > SHOWN {
            text.push_str(&format!(
                "and {} more; --json lists them all\n",
                clear.namespaces.len() - SHOWN
            ));
        }
    }
    if let Some(found) = examined.filter(|found| found.unreadable > 0) {
        text.push('\n');
        text.extend(
            found
                .named
                .iter()
                .map(|row| format!("does not open: {}\n", line(row))),
        );
        text.extend(
            found
                .reasons
                .iter()
                .map(|(reason, rows)| format!("{}: {reason}\n", count(*rows, "row"))),
        );
    }
    if !hints.is_empty() {
        text.push('\n');
        text.extend(hints.iter().map(|hint| format!("{hint}\n")));
    }
    text
}

fn line(row: &helmdeck_memory::doctor::Unreadable) -> String {
    format!(
        "{} {} {}: {}",
        name(&row.namespace),
        row.kind,
        row.key,
        row.reason
    )
}
