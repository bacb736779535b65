//! Locks across all processes on one database: rows with an expiry.
//!
//! A lock is free before its expiry when the process of its owner is gone. The server knows that by the advisory lock
//! that each process holds while it is alive. Behind a pooler in transaction mode there is no such lock (session 0):
//! the lock of a dead process is free at its expiry.

use helmdeck_core::Timestamp;
use sha2::{Digest, Sha256};

use super::db::Db;
use super::error::Outcome;

/// Takes or extends a lock, in its own transaction.
///
/// Taking the lock of a dead process leaves a shared advisory lock, which ends with the transaction.
const TAKE: &str = "
INSERT INTO memory_locks AS l (name, owner, until, session) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until, session = excluded.session
 WHERE l.owner = excluded.owner OR l.until <= $5 OR (l.session <> 0 AND pg_try_advisory_xact_lock_shared(l.session))";
const FREE: &str = "DELETE FROM memory_locks WHERE name = $1 AND owner = $2";

/// Request for a lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct LockRequest<'c> {
    /// The lock.
    pub(super) name: &'c str,
    /// The owner.
    pub(super) owner: &'c str,
    /// The time.
    pub(super) now: Timestamp,
    /// The end.
    pub(super) until: Timestamp,
}

/// Takes or extends a lock; `false` if another owner has it.
pub(super) async fn take(db: &Db, request: LockRequest<'_>, session: i64) -> Outcome<bool> {
    let name = digest(request.name);
    let (now, until) = (request.now.micros(), request.until.micros());
    Ok(db.execute(TAKE, &[&name, &request.owner, &until, &session, &now]).await? > 0)
}

/// Frees a lock if this owner has it.
pub(super) async fn free(db: &Db, name: &str, owner: &str) -> Outcome<()> {
    let name = digest(name);
    db.execute(FREE, &[&name, &owner]).await?;
    Ok(())
}

/// A name may be of any length.
fn digest(name: &str) -> Vec<u8> {
    Sha256::digest(name).to_vec()
}
