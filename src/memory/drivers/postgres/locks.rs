//! Locks across all processes on one database: rows with an expiry, by the clock of the database.
//!
//! A lock is free before its expiry when the process of its owner is gone. The server knows that by
//! the advisory lock that each process holds while it is alive. Behind a pooler in transaction mode
//! there is no such lock (session 0): the lock of a dead process is free at its expiry.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::db::Db;
use super::error::Outcome;

/// Takes or extends a lock, in its own transaction.
///
/// Taking the lock of a dead process leaves a shared advisory lock, which ends with the
/// transaction.
const TAKE: &str = "
INSERT INTO memory_locks AS l (name, owner, until, session)
SELECT $1::bytea, $2::text, micros + $3::bigint, $4::bigint
  FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now (micros)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until, session = excluded.session
 WHERE l.owner = excluded.owner OR l.until <= excluded.until - $3::bigint
    OR (l.session <> 0 AND pg_try_advisory_xact_lock_shared(l.session))";
const FREE: &str = "DELETE FROM memory_locks WHERE name = $1 AND owner = $2";
const SWEEP: &str = "DELETE FROM memory_locks WHERE until <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// Takes or extends a lock; `false` if another owner has it.
pub(super) async fn take(
    db: &Db,
    name: &str,
    owner: &str,
    hold: Duration,
    session: i64,
) -> Outcome<bool> {
    let name = digest(name);
    // Half the range, so that the sum with the time fits.
    let hold = i64::try_from(hold.as_micros())
        .unwrap_or(i64::MAX)
        .min(i64::MAX / 2);
    Ok(db.execute(TAKE, &[&name, &owner, &hold, &session]).await? > 0)
}

/// Frees a lock if this owner has it.
pub(super) async fn free(db: &Db, name: &str, owner: &str) -> Outcome<()> {
    let name = digest(name);
    db.execute(FREE, &[&name, &owner]).await?;
    Ok(())
}

/// Deletes expired locks: their owners are gone.
pub(super) async fn sweep(db: &Db) -> Outcome<()> {
    db.execute(SWEEP, &[]).await?;
    Ok(())
}

/// A name may be of any length.
fn digest(name: &str) -> Vec<u8> {
    Sha256::digest(name).to_vec()
}
