//! Deletes all data of a person: rows of every kind and conversation, and what belongs to them.
//!
//! Those are idempotency keys, jobs and uses of credentials.
//!
//! It deletes raw rows and never decrypts, so it works after a lost key. It never deletes what a
//! whole tenant shares. With the key, the removal of audit entries leaves a sealed tombstone, so
//! that `audit verify` does not see a cut.

use std::collections::BTreeMap;
use std::time::Duration;

use helmdeck_core::text::count;
use helmdeck_core::{Timestamp, clock::rfc3339};
use helmdeck_memory::audit;
use helmdeck_memory::{Delete, Kind, Namespace, Op, Page, Result, Store, StoreError, Written};
use serde::Serialize;

use crate::system::System;

/// Most looks for rows that a running server wrote meanwhile.
const LOOKS: u32 = 20;
/// The time between two looks: longer than a server lets a finished call's rows wait.
const PAUSE: Duration = Duration::from_millis(300);
/// Limit of rows per transaction.
const STEP: usize = 500;

/// Data that forgetting does not delete; listed in every receipt.
pub const NOT_COVERED: [&str; 3] = [
    "entries that the whole tenant shares, which belong to nobody alone",
    "backups and snapshots of the store, and exported archives",
    "what other systems were told, and answers that running servers hold in memory for an Idempotency-Key, at most 24 hours",
];

/// What PostgreSQL keeps of deleted rows, and how it goes.
const IN_POSTGRES: &str = "names, keys, tags and sessions of the removed rows, which PostgreSQL keeps in its files (values \
    are sealed) until `VACUUM FULL; CHECKPOINT` has run in that database; it locks one table after the other meanwhile";

/// Rows removed from one namespace and kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// The conversation, if the rows belonged to one.
    pub session: Option<String>,
    /// The kind.
    pub kind: Kind,
    /// Number of rows.
    pub rows: u64,
}

/// Receipt of forgetting: what was removed, and that nothing was left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// When it was done.
    #[serde(with = "rfc3339")]
    pub at: Timestamp,
    /// The tenant of the person.
    pub tenant: String,
    /// The person.
    pub subject: String,
    /// The driver of the store; `None` if there is no store.
    pub driver: Option<String>,
    /// The removed rows, by conversation and kind.
    pub removed: Vec<Removed>,
    /// Number of removed rows in total.
    pub rows: u64,
    /// Idempotency keys removed, with their answers.
    pub idempotency_keys: u64,
    /// Rows of the use log of the vault removed.
    pub vault_uses: u64,
    /// Jobs removed, with their results. Those that have not ended are left.
    pub jobs: u64,
    /// Number of API tokens of the person that are still valid.
    ///
    /// They stay, and name the person, until they are revoked. Ended tokens are removed.
    pub live_tokens: u64,
    /// Number of passes over the store.
    pub looks: u32,
    /// Whether the last two passes found nothing.
    pub verified: bool,
    /// Data that is not deleted.
    pub not_covered: Vec<String>,
}

/// Returns the live rows that a person has, by conversation and kind: what [`forget`] would remove.
///
/// # Errors
/// `Unavailable`, `Closed`.
pub async fn preview(store: &dyn Store, tenant: &str, subject: &str) -> Result<Vec<Removed>> {
    let held = store.namespaces_of(tenant, subject).await?;
    Ok(held
        .into_iter()
        .map(|held| Removed {
            session: held.namespace.session.as_deref().map(str::to_owned),
            kind: held.kind,
            rows: held.rows,
        })
        .collect())
}

/// Removes everything of a person, and looks again until two looks in a row find nothing.
///
/// Expired rows of all callers are swept: they are invisible, and could be the person's.
///
/// `by` is who does it, if the store was opened with its key.
///
/// # Errors
/// `Invalid` for the empty subject, which stands for what a tenant shares; `Unavailable`, `Closed`:
/// deleted rows stay deleted, and the call can be repeated.
pub async fn forget(
    store: Option<&dyn Store>,
    system: Option<&System>,
    (tenant, subject): (&str, &str),
    by: Option<&str>,
    at: Timestamp,
) -> Result<Receipt> {
    if subject.is_empty() {
        return Err(StoreError::Invalid(
            "without a subject it would be everybody's; `memory purge` removes that",
        ));
    }
    let mut removed = BTreeMap::new();
    let (mut looks, mut nothing) = (0, 0);
    let mut driver = None;
    let (mut idempotency_keys, mut vault_uses, mut jobs) = (0, 0, 0);
    let (mut live_tokens, mut live_jobs) = (0, 0);
    while nothing < 2 && looks < LOOKS {
        if looks > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        looks += 1;
        let mut found = 0;
        if let Some(store) = store {
            found += remove(store, (tenant, subject), by, at, &mut removed).await?;
            driver = Some(store.stats().await?.driver.to_owned());
        }
        if let Some(system) = system {
            let keys = system.forget(tenant, subject).await?;
            let uses = system.forget_vault_uses(tenant, subject).await?;
            live_tokens = system.forget_ended_tokens(tenant, subject, at).await?;
            let ended;
            (ended, live_jobs) = system.forget_ended_jobs(tenant, subject).await?;
            jobs += ended;
            idempotency_keys += keys;
            vault_uses += uses;
            found += keys + uses + ended;
        }
        nothing = if found == 0 { nothing + 1 } else { 0 };
    }
    if let Some(store) = store {
        store.redact_changes(subject).await?;
    }
    let mut not_covered: Vec<String> = NOT_COVERED.map(str::to_owned).into();
    let in_postgres = |system: &System| system.location().starts_with("postgres:");
    if driver.as_deref() == Some("postgres") || system.is_some_and(in_postgres) {
        not_covered.push(IN_POSTGRES.to_owned());
    }
    if live_tokens > 0 {
        not_covered.push(format!(
            "{}, still good: `helmdeck token list` shows the id, `helmdeck token revoke <id>` ends one",
            count(live_tokens, "API token")
        ));
    }
    if live_jobs > 0 {
        not_covered.push(format!(
            "{}, not ended: `helmdeck job cancel <id>` ends one",
            count(live_jobs, "job")
        ));
    }
    if by.is_none() && removed.keys().any(|(_, kind)| *kind == Kind::Audit) {
        not_covered.push(
            "a record of the removed audit entries, for which the memory key was not given: `helmdeck audit verify` \
             misses this caller until `--accept`"
                .to_owned(),
        );
    }
    let removed: Vec<Removed> = removed
        .into_iter()
        .map(|((session, kind), rows)| Removed {
            session,
            kind,
            rows,
        })
        .collect();
    Ok(Receipt {
        at,
        tenant: tenant.to_owned(),
        subject: subject.to_owned(),
        driver,
        rows: removed.iter().map(|part| part.rows).sum(),
        removed,
        idempotency_keys,
        vault_uses,
        jobs,
        live_tokens,
        looks,
        verified: nothing >= 2,
        not_covered,
    })
}

/// Looks once and removes what is there.
async fn remove(
    store: &dyn Store,
    (tenant, subject): (&str, &str),
    by: Option<&str>,
    at: Timestamp,
    removed: &mut BTreeMap<(Option<String>, Kind), u64>,
) -> Result<u64> {
    let mut spaces: Vec<(Option<String>, Kind)> = preview(store, tenant, subject)
        .await?
        .into_iter()
        .map(|held| (held.session, held.kind))
        .collect();
    // Without a conversation the names are known, also when all rows have ended and none is listed.
    spaces.extend(Kind::ALL.map(|kind| (None, kind)));
    spaces.sort();
    spaces.dedup();
    let mut found = 0;
    for (session, kind) in spaces {
        let namespace = Namespace::new(tenant, subject, session.as_deref());
        let rows = match (kind, by) {
            (Kind::Audit, Some(by)) => audit::remove(store, &namespace, "", by, at).await?,
            // It goes with the entries that it counts.
            (Kind::Head, Some(_)) => audit::remove_other_heads(store, &namespace).await?,
            _ => {
                let rows = thin(store, &namespace, kind).await?;
                let rest = Delete::Prefix {
                    namespace: Some(namespace),
                    kind: Some(kind),
                    prefix: String::new(),
                };
                rows + store.delete(rest).await?
            }
        };
        found += rows;
        if rows > 0 {
            *removed.entry((session, kind)).or_default() += rows;
        }
    }
    // A conversation whose rows have all ended is not listed.
    while store.sweep_expired(STEP).await? >= STEP as u64 {}
    Ok(found)
}

/// Removes live rows in small transactions until few are left.
///
/// A person may have a million rows, and no writer should wait until all are deleted.
async fn thin(store: &dyn Store, namespace: &Namespace, kind: Kind) -> Result<u64> {
    let mut removed = 0;
    loop {
        let page = store
            .list(
                namespace,
                kind,
                "",
                Page {
                    limit: STEP,
                    after: None,
                },
            )
            .await?;
        if page.entries.len() < STEP {
            return Ok(removed);
        }
        let delete = |key| {
            Op::Delete(Delete::Key {
                namespace: namespace.clone(),
                kind,
                key,
            })
        };
        let batch = page
            .entries
            .into_iter()
            .map(|meta| delete(meta.key))
            .collect();
        let written = store.write(batch).await?;
        let gone = Written::deleted(&written);
        if gone == 0 {
            // Rows that are listed and cannot be named: the rest goes at once.
            return Ok(removed);
        }
        removed += gone;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use helmdeck_core::SystemClock;
    use helmdeck_memory::drivers::memory::Memory;
    use helmdeck_memory::{Config, DriverStore, Put};

    use super::*;
    use crate::tokens::{NewToken, TokenReach};
    use crate::vault::VaultUse;

    fn store() -> Arc<dyn Store> {
        Arc::new(DriverStore::plain(
            Memory::new(),
            &Config::default(),
            Arc::new(SystemClock::default()),
        ))
    }

    fn put(subject: &str, session: Option<&str>, kind: Kind, key: String) -> Put {
        Put::new(Namespace::new("t", subject, session), kind, key, "v")
    }

    #[tokio::test]
    async fn all_rows_of_a_person_go_and_those_of_others_stay() {
        let store = store();
        for n in 0..2500 {
            store
                .put(put("alice", Some("s"), Kind::Note, format!("k{n}")))
                .await
                .unwrap();
        }
        for subject in ["alice", "alice2", "", "s"] {
            store
                .put(put(subject, None, Kind::Cache, "k".to_owned()))
                .await
                .unwrap();
        }
        store
            .put(Put::new(
                Namespace::new("u", "alice", None),
                Kind::Cache,
                "k",
                "v",
            ))
            .await
            .unwrap();
        let mut ended = put("alice", Some("ended"), Kind::Fact, "k".to_owned());
        ended.ttl = Some(Duration::from_micros(1));
        store.put(ended).await.unwrap();

        let receipt = forget(Some(&*store), None, ("t", "alice"), None, Timestamp(5))
            .await
            .unwrap();
        let part = |session: Option<&str>, kind, rows| Removed {
            session: session.map(str::to_owned),
            kind,
            rows,
        };
        assert_eq!(
            receipt.removed,
            [
                part(None, Kind::Cache, 1),
                part(Some("s"), Kind::Note, 2500)
            ]
        );
        assert_eq!(
            (receipt.rows, receipt.looks, receipt.verified),
            (2501, 3, true)
        );
        let stats = store.stats().await.unwrap();
        assert_eq!((stats.rows, stats.expired), (4, 0));
        assert_eq!(
            serde_json::to_value(&receipt).unwrap()["at"],
            "1970-01-01T00:00:00.000005Z"
        );
    }

    #[tokio::test]
    async fn forget_repeats_while_rows_are_written() {
        let store = store();
        let writer = Arc::clone(&store);
        let writing = tokio::spawn(async move {
            for n in 0..8 {
                writer
                    .put(put("alice", None, Kind::Audit, format!("k{n}")))
                    .await
                    .unwrap();
                tokio::time::sleep(PAUSE / 3).await;
            }
        });
        tokio::task::yield_now().await;
        let receipt = forget(Some(&*store), None, ("t", "alice"), None, Timestamp(5))
            .await
            .unwrap();
        writing.await.unwrap();
        assert_eq!((receipt.rows, receipt.verified), (8, true), "{receipt:?}");
        assert_eq!(store.stats().await.unwrap().rows, 0);
    }

    #[tokio::test]
    async fn forget_removes_uses_and_reports_live_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let system = System::at(folder.path().join("helmdeck.db"));
        let now = Timestamp(1_000_000);
        for subject in ["alice", "bob"] {
            let used = VaultUse {
                name: "n".to_owned(),
                tenant: "t".to_owned(),
                subject: subject.to_owned(),
                pack: "p".to_owned(),
                day: 1,
                granted: 1,
                refused: 0,
                last_at: now,
            };
            system.add_vault_uses(vec![used]).await.unwrap();
        }
        let mut ids = Vec::new();
        for (subject, expires_at) in [
            ("alice", None),
            ("alice", Some(now)),
            ("alice", None),
            ("bob", Some(now)),
        ] {
            let token = NewToken {
                name: String::new(),
                tenant: "t".to_owned(),
                subject: subject.to_owned(),
                scope: "packs:run".to_owned(),
                created_at: Timestamp(5),
                expires_at,
                ancestors: Vec::new(),
            };
            ids.push(system.create_token(token).await.unwrap().0.id);
        }
        system
            .revoke_token(&ids[2], &TokenReach::all(), now)
            .await
            .unwrap();
        let receipt = forget(None, Some(&system), ("t", "alice"), None, now)
            .await
            .unwrap();
        assert_eq!(
            (receipt.vault_uses, receipt.live_tokens, receipt.verified),
            (1, 1, true)
        );
        let note = receipt.not_covered.last().unwrap();
        assert!(
            note.starts_with("1 API token, still good") && note.contains("helmdeck token revoke"),
            "{note}"
        );
        assert_eq!(system.vault_uses(None, 9).await.unwrap()[0].subject, "bob");
        let mut left: Vec<String> = system
            .tokens()
            .await
            .unwrap()
            .into_iter()
            .map(|token| token.id)
            .collect();
        let mut expected = vec![ids[0].clone(), ids[3].clone()];
        left.sort();
        expected.sort();
        assert_eq!(left, expected, "nothing is revoked silently");

        system
            .revoke_token(&ids[0], &TokenReach::all(), now)
            .await
            .unwrap();
        let receipt = forget(None, Some(&system), ("t", "alice"), None, now)
            .await
            .unwrap();
        assert_eq!(
            (
                receipt.vault_uses,
                receipt.live_tokens,
                receipt.not_covered.len()
            ),
            (0, 0, NOT_COVERED.len())
        );
        assert_eq!(
            system.tokens().await.unwrap().len(),
            1,
            "what was revoked goes with the person"
        );
    }

    #[tokio::test]
    async fn the_empty_subject_is_refused() {
        let refused = forget(Some(&*store()), None, ("t", ""), None, Timestamp(5)).await;
        assert!(matches!(refused, Err(StoreError::Invalid(_))));
    }
}
