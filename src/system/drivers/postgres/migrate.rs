//! Schema migration: runs numbered SQL files one by one, and records each in the ledger.
//!
//! If several replicas start it, one runs it and the others wait. The lock ends with its
//! transaction.

use helmdeck_memory::StoreError;
use helmdeck_memory::drivers::postgres::session::{Object, Outcome};
use tokio_postgres::GenericClient;

use super::args::args;

/// Name and SQL, in order; the first has number 1.
const STEPS: &[(&str, &str)] = &[(
    "system",
    include_str!("../../migrations/postgres/0001_system.sql"),
)];

/// Name and SQL of additions, which programs that know only the steps do not notice. They run after
/// the steps.
const ADDITIONS: &[(&str, &str)] = &[
    (
        "callers",
        include_str!("../../migrations/postgres/added_callers.sql"),
    ),
    (
        "queue",
        include_str!("../../migrations/postgres/added_queue.sql"),
    ),
    (
        "labels",
        include_str!("../../migrations/postgres/added_labels.sql"),
    ),
    (
        "ancestors",
        include_str!("../../migrations/postgres/added_ancestors.sql"),
    ),
    (
        "heads",
        include_str!("../../migrations/postgres/added_heads.sql"),
    ),
    (
        "token seals",
        include_str!("../../migrations/postgres/added_token_seals.sql"),
    ),
];

/// Advisory lock of a migration: the first eight bytes of `hd_system`.
const LOCK: i64 = i64::from_be_bytes(*b"hd_syste");

/// Returns whether the tables are there, and brings those of an older version up to date.
///
/// # Errors
/// `Corrupt` for tables of a newer version; `Unavailable`.
pub(super) async fn update(db: &mut Object) -> Outcome<bool> {
    match done(&***db).await? {
        0 => Ok(false),
        _ => apply(db).await.map(|()| true),
    }
}

/// Applies the missing steps.
///
/// # Errors
/// As [`update`].
pub(super) async fn apply(db: &mut Object) -> Outcome<()> {
    if done(&***db).await? == STEPS.len() && missing(&***db).await?.is_empty() {
        return Ok(());
    }
    let transaction = db.transaction().await?;
    // The wait for another replica may take longer than the wait for a row.
    transaction
        .batch_execute("SET LOCAL lock_timeout = 0")
        .await?;
    transaction
        .query_typed("SELECT pg_advisory_xact_lock($1)", args![LOCK])
        .await?;
    let done = done(&*transaction).await?;
    if done == 0 {
        transaction
            .batch_execute(
                "CREATE TABLE system_migrations
                     (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TIMESTAMPTZ NOT NULL DEFAULT now())",
            )
            .await?;
    }
    for (index, (name, sql)) in STEPS.iter().enumerate().skip(done) {
        transaction.batch_execute(sql).await?;
        let number = i64::try_from(index + 1).unwrap_or(i64::MAX);
        let record =
            "INSERT INTO system_migrations (version, name) VALUES ($1::bigint::integer, $2)";
        transaction
            .execute_typed(record, args![number, name])
            .await?;
    }
    for (name, sql) in missing(&*transaction).await? {
        transaction
            .batch_execute(
                "CREATE TABLE IF NOT EXISTS system_additions
                     (name TEXT PRIMARY KEY, applied_at TIMESTAMPTZ NOT NULL DEFAULT now())",
            )
            .await?;
        transaction.batch_execute(sql).await?;
        transaction
            .execute_typed(
                "INSERT INTO system_additions (name) VALUES ($1)",
                args![name],
            )
            .await?;
    }
    Ok(transaction.commit().await?)
}

/// Returns the additions that did not run.
async fn missing(db: &(impl GenericClient + Sync)) -> Outcome<Vec<(&'static str, &'static str)>> {
    let mut missing = ADDITIONS.to_vec();
    // One of them was a step for a while.
    for table in ["system_additions", "system_migrations"] {
        if has_table(db, table).await? {
            for row in db
                .query_typed(&format!("SELECT name FROM {table}"), &[])
                .await?
            {
                let done: String = row.try_get(0)?;
                missing.retain(|(name, _)| *name != done);
            }
        }
    }
    Ok(missing)
}

async fn has_table(db: &(impl GenericClient + Sync), name: &str) -> Outcome<bool> {
    // Not to_regclass: it may still answer from before the wait for a lock.
    let there = "SELECT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename::text = $1)";
    Ok(db.query_typed_one(there, args![name]).await?.try_get(0)?)
}

/// Returns how many steps are done.
async fn done(db: &(impl GenericClient + Sync)) -> Outcome<usize> {
    if !has_table(db, "system_migrations").await? {
        return Ok(0);
    }
    let highest =
        "SELECT coalesce(max(version), 0)::bigint FROM system_migrations WHERE name <> ALL ($1)";
    let additions: Vec<&str> = ADDITIONS.iter().map(|(name, _)| *name).collect();
    let row = db.query_typed_one(highest, args![additions]).await?;
    let (done, known): (i64, usize) = (row.try_get(0)?, STEPS.len());
    usize::try_from(done).ok().filter(|done| *done <= known).ok_or_else(|| {
        StoreError::Corrupt(format!(
            "the system tables were written by a newer version (schema {done}); this version knows schemas up to {known}"
        ))
        .into()
    })
}
