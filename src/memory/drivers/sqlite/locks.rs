//! Locks as rows: taken and freed by single statements, so that of several processes one wins.

use helmdeck_core::Timestamp;
use rusqlite::Connection;

use crate::error::Result;

/// Takes a lock for an owner; returns whether this owner has it now.
pub(super) fn take(
    db: &Connection,
    name: &str,
    owner: &str,
    now: Timestamp,
    until: Timestamp,
) -> Result<bool> {
    let taken = db
        .prepare_cached(
            "INSERT INTO memory_locks (name, owner, held_until) VALUES (?1, ?2, ?4)
             ON CONFLICT (name) DO UPDATE SET owner = ?2, held_until = ?4 WHERE owner = ?2 OR held_until <= ?3",
        )?
        .execute((name, owner, now.micros(), until.micros()))?;
    Ok(taken > 0)
}

/// Frees a lock if this owner has it.
pub(super) fn free(db: &Connection, name: &str, owner: &str) -> Result<()> {
    db.prepare_cached("DELETE FROM memory_locks WHERE name = ?1 AND owner = ?2")?
        .execute((name, owner))?;
    Ok(())
}

/// Deletes expired locks: their owners are gone.
pub(super) fn sweep(db: &Connection, now: Timestamp) -> Result<()> {
    db.prepare_cached("DELETE FROM memory_locks WHERE held_until <= ?1")?
        .execute([now.micros()])?;
    Ok(())
}
