//! `helmdeck memory doctor`: opens every entry, one at a time, and reports those that do not. Changes nothing.

use helmdeck_memory::{Kind, Namespace, Page, Store, StoreError};
use serde_json::json;

use crate::commands::memory::name;
use crate::exit::{Exit, Failure, Result};
use crate::wire::Setup;

/// How many bad entries are named; all are counted.
const NAMED: usize = 20;

/// What was found.
#[derive(Default)]
struct Findings {
    read: u64,
    unreadable: u64,
    named: Vec<String>,
}

/// Checks the store.
///
/// # Errors
/// Exit 3 without a key or a store; exit 8 if any entry does not open, after printing which.
pub(crate) async fn run(setup: &Setup) -> Result<()> {
    if setup.ring.is_none() {
        return Err(Failure::new(Exit::Absent, "no memory key is set, so entries cannot be opened")
            .with_hint("`helmdeck memory status` shows what is there without the key"));
    }
    let Some(store) = setup.sealed_store().await? else {
        return Err(Failure::new(Exit::Absent, "there is no store yet; it is made by the first write"));
    };
    let findings = examine(&*store).await;
    store.close().await?;
    let findings = findings?;
    let value = json!({"read": findings.read, "unreadable": findings.unreadable, "named": findings.named});
    setup.output.either(&value, || {
        let mut text: String = findings.named.iter().map(|line| format!("does not open: {line}\n")).collect();
        text.push_str(&format!("{} entries open, {} do not\n", findings.read, findings.unreadable));
        if findings.unreadable > 0 {
            text.push_str("What does not open counts as absent. `helmdeck memory purge` removes it.\n");
        }
        text
    })?;
    if findings.unreadable == 0 { Ok(()) } else { Err(Failure::silent(Exit::Corrupt)) }
}

async fn examine(store: &dyn Store) -> Result<Findings> {
    let mut findings = Findings::default();
    for held in store.namespaces().await? {
        let mut after = None;
        loop {
            let page = store.list(&held.namespace, held.kind, "", Page { limit: 500, after }).await?;
            for meta in &page.entries {
                open(store, &held.namespace, held.kind, &meta.key, &mut findings).await?;
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
    }
    Ok(findings)
}

async fn open(store: &dyn Store, namespace: &Namespace, kind: Kind, key: &str, findings: &mut Findings) -> Result<()> {
    match store.get(namespace, kind, key).await {
        // An entry that ended since it was listed is as good as one that opens.
        Ok(_) => findings.read += 1,
        Err(StoreError::Unreadable { reason }) => {
            findings.unreadable += 1;
            if findings.named.len() < NAMED {
                findings.named.push(format!("{} {kind} {key}: {reason}", name(namespace)));
            }
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
