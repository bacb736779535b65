//! `helmdeck cache`: explains keys, lists and counts answers.
//!
//! Only `explain` needs the key; no command creates a store.

use std::collections::BTreeMap;

use helmdeck_core::{CacheStatus, PackName};
use helmdeck_memory::Kind;
use serde::Serialize;
use serde_json::json;

use crate::args::CallArgs;
use crate::commands::{memory, run};
use crate::exit::Result;
use crate::lookup;
use crate::wire::{MemoryUse, Setup};
use helmdeck_core::text::columns;

/// Counters of one pack by name.
type Counts = BTreeMap<String, u64>;

/// Explains the cache key of a call, and whether an answer is stored for it.
///
/// # Errors
/// A failure if the pack is not cached, naming the gate that is shut.
pub(crate) async fn explain(setup: &Setup, arguments: &CallArgs) -> Result<()> {
    if arguments.pack.is_none() {
        return Err(lookup::no_pack(setup, "cache explain").await);
    }
    let engine = setup.engine(MemoryUse::ReadOnly, false).await?;
    let explanation = match run::make(setup, &engine, arguments).await {
        Ok((call, pack)) => engine
            .explain(call)
            .await
            .map_err(|error| run::explained(error, &pack)),
        Err(failure) => Err(failure),
    };
    engine.shutdown().await;
    let explanation = explanation?;
    let value = serde_json::to_value(&explanation).unwrap_or_default();
    setup.output.either(&value, || explanation.render())
}

/// Counts answers by status and pack.
///
/// # Errors
/// A failure if the counters cannot be read.
pub(crate) async fn stats(setup: &Setup) -> Result<()> {
    let packs = counters(setup).await?;
    let statuses = CacheStatus::ALL.map(CacheStatus::as_str);
    let value = json!(
        packs
            .iter()
            .map(|(pack, counts)| (
                pack.as_str(),
                statuses
                    .iter()
                    .map(|s| (*s, count(counts, s)))
                    .collect::<BTreeMap<_, _>>()
            ))
            .collect::<BTreeMap<_, _>>()
    );
    setup.output.either(&value, || {
        let mut rows = vec![
            std::iter::once("PACK".to_owned())
                .chain(statuses.map(str::to_uppercase))
                .collect::<Vec<_>>(),
        ];
        rows.extend(packs.iter().map(|(pack, counts)| {
            std::iter::once(pack.clone())
                .chain(statuses.iter().map(|s| count(counts, s).to_string()))
                .collect()
        }));
        if packs.is_empty() {
            NOTHING.to_owned()
        } else {
            columns(&rows)
        }
    })
}

/// What cached answers of a pack saved.
#[derive(Serialize)]
struct PackSavings {
    calls: u64,
    ms: u64,
    upstream_calls: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    usd: Option<f64>,
}

/// Prints what the cache saved: calls, time, and upstream requests that count against a quota.
///
/// # Errors
/// As [`stats`].
pub(crate) async fn savings(setup: &Setup) -> Result<()> {
    let packs = counters(setup).await?;
    let engine = setup.engine(MemoryUse::None, false).await?;
    let saved: BTreeMap<&str, PackSavings> = packs
        .iter()
        .map(|(pack, counts)| {
            let [calls, us, upstream_calls] =
                ["saved_calls", "saved_us", "saved_upstream_calls"].map(|name| count(counts, name));
            let usd = engine.saved_usd(pack, calls, upstream_calls);
            (
                pack.as_str(),
                PackSavings {
                    calls,
                    ms: us / 1000,
                    upstream_calls,
                    usd,
                },
            )
        })
        .collect();
    engine.shutdown().await;
    setup.output.either(&json!(saved), || {
        if saved.is_empty() {
            return NOTHING.to_owned();
        }
        let priced = saved.values().any(|saved| saved.usd.is_some());
        let titles = [
            "PACK",
            "CALLS SAVED",
            "TIME SAVED",
            "UPSTREAM REQUESTS SAVED",
            "USD SAVED",
        ];
        let cells = |(pack, saved): (&&str, &PackSavings)| {
            let usd = saved
                .usd
                .map_or_else(|| "-".to_owned(), |usd| format!("{usd:.2}"));
            let (calls, requests) = (saved.calls.to_string(), saved.upstream_calls.to_string());
            vec![
                (*pack).to_owned(),
                calls,
                format!("{} ms", saved.ms),
                requests,
                usd,
            ]
        };
        let mut rows = vec![titles.map(str::to_owned).to_vec()];
        rows.extend(saved.iter().map(cells));
        for row in &mut rows {
            row.truncate(titles.len() - usize::from(!priced));
        }
        columns(&rows)
    })
}

/// Lists cached answers without their values.
///
/// # Errors
/// A failure if the store cannot be read.
pub(crate) async fn ls(setup: &Setup, pack: Option<&PackName>, limit: usize) -> Result<()> {
    let entries = match setup.clear_store().await? {
        None => Vec::new(),
        Some(store) => {
            let prefix = pack.map(|pack| format!("{pack}/")).unwrap_or_default();
            let found =
                memory::collect(&*store, |kind, _| kind == Kind::Cache, &prefix, limit).await;
            store.close().await?;
            found?
        }
    };
    memory::print(setup, &entries)
}

const NOTHING: &str = "nothing was counted yet";

async fn counters(setup: &Setup) -> Result<BTreeMap<String, Counts>> {
    let mut packs: BTreeMap<String, Counts> = BTreeMap::new();
    for counter in setup.system()?.counters().await? {
        packs
            .entry(counter.pack)
            .or_default()
            .insert(counter.name, counter.value);
    }
    Ok(packs)
}

fn count(counts: &Counts, name: &str) -> u64 {
    counts.get(name).copied().unwrap_or(0)
}
