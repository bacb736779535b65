//! Schema migration: runs numbered SQL files one by one, and records each in the ledger.
//!
//! If several replicas start it, one runs it and the others wait. A newer database and tables of
//! another program are refused and never changed.

use super::db::Db;
use super::error::{Failure, Outcome, Remedy};
use crate::error::StoreError;

/// Name and SQL, in order; the first has number 1.
const STEPS: &[(&str, &str)] = &[
    (
        "entries",
        include_str!("../../migrations/postgres/0001_entries.sql"),
    ),
    (
        "changes",
        include_str!("../../migrations/postgres/0002_changes.sql"),
    ),
    (
        "sieve",
        include_str!("../../migrations/postgres/0003_sieve.sql"),
    ),
];

/// Advisory lock of a migration: the first eight bytes of "helmdeck".
const LOCK: i64 = i64::from_be_bytes(*b"helmdeck");

const LEDGER: &str = "
CREATE TABLE IF NOT EXISTS memory_migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)";
const RECORD: &str = "
INSERT INTO memory_migrations (version, name, applied_at) VALUES ($1, $2, (extract(epoch FROM now()) * 1000000)::bigint)";

/// The tables of the schema, but for the ledger.
const TABLES: &[&str] = &[
    "memory_canary",
    "memory_changes",
    "memory_entries",
    "memory_generation",
    "memory_hands",
    "memory_keys",
    "memory_locks",
    "memory_spaces",
    "memory_tags",
];

/// Applies the missing steps, and returns a name that only the replicas on these tables share.
///
/// # Errors
/// `Corrupt` for tables of a newer program or of another one; `BadUrl` for a database that cannot
/// be used; `Unavailable`.
pub(super) async fn apply(db: &Db) -> Outcome<String> {
    check_database(db).await?;
    if done(db).await? < STEPS.len() {
        db.begin().await?;
        // The wait for another replica may take longer than the wait for a row.
        db.batch("SET LOCAL lock_timeout = 0").await?;
        db.query("SELECT pg_advisory_xact_lock($1)", &[&LOCK])
            .await?;
        let done = done(db).await?;
        if done == 0 {
            db.batch(LEDGER).await?;
        }
        for (index, (name, sql)) in STEPS.iter().enumerate().skip(done) {
            db.batch(sql).await?;
            let number = i32::try_from(index + 1).unwrap_or(i32::MAX);
            db.execute(RECORD, &[&number, name]).await?;
        }
        db.commit().await?;
    }
    let row = db
        .query_one("SELECT 'memory_migrations'::regclass::oid::bigint", &[])
        .await?;
    Ok(format!("helmdeck_memory_{}", row.try_get::<_, i64>(0)?))
}

/// Returns whether anything was done yet.
///
/// # Errors
/// As [`apply`].
pub(super) async fn is_there(db: &Db) -> Outcome<bool> {
    Ok(done(db).await? > 0)
}

/// Checks what no migration can change.
async fn check_database(db: &Db) -> Outcome<()> {
    let row = db
        .query_one("SELECT current_schema() IS NOT NULL, current_setting('server_encoding'), pg_is_in_recovery()", &[])
        .await?;
    let (has_schema, encoding, is_standby): (bool, String, bool) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let refuse = |why: String| {
        Err(StoreError::BadUrl(format!("the PostgreSQL database cannot be used: {why}")).into())
    };
    if !has_schema {
        return refuse("no schema of its search_path is there".to_owned());
    }
    if encoding != "UTF8" {
        return refuse(format!("its encoding is {encoding}, not UTF8"));
    }
    if is_standby {
        return refuse("it is a standby, which cannot be written".to_owned());
    }
    Ok(())
}

/// Returns how many steps are done.
async fn done(db: &Db) -> Outcome<usize> {
    let found = db
        .query(
            "SELECT tablename::text FROM pg_tables
              WHERE schemaname = current_schema() AND (tablename = 'memory_migrations' OR tablename = ANY($1))
              ORDER BY tablename <> 'memory_migrations', tablename",
            &[&TABLES],
        )
        .await?;
    let Some(first) = found.first() else {
        return Ok(0);
    };
    let first: String = first.try_get(0)?;
    if first != "memory_migrations" {
        return Err(
            StoreError::Corrupt(format!("the table {first} is one of another program")).into(),
        );
    }
    let row = db
        .query_one(
            "SELECT coalesce(max(version), 0)::bigint FROM memory_migrations",
            &[],
        )
        .await?;
    let (done, known): (i64, usize) = (row.try_get(0)?, STEPS.len());
    usize::try_from(done).ok().filter(|done| *done <= known).ok_or_else(|| {
        let error = StoreError::Corrupt(format!(
            "it was written by a newer version (schema {done}); this version knows schemas up to {known}"
        ));
        Failure { error, remedy: Remedy::None }
    })
}
