//! The vault: state, credentials and the use log.

use async_trait::async_trait;
use helmdeck_core::Timestamp;
use helmdeck_core::numbers::{signed, unsigned};
use helmdeck_memory::Result;
use rusqlite::{Connection, OptionalExtension, Row};

use super::{Sqlite, empty_log};
use crate::driver::{Decide, VaultRows};
use crate::vault::{VaultChange, VaultRow, VaultState, VaultUse};

#[async_trait]
impl VaultRows for Sqlite {
    async fn vault_generation(&self) -> Result<u64> {
        Ok(self
            .0
            .read(|db| Ok(state(db)?.generation))
            .await?
            .unwrap_or(0))
    }

    async fn vault(&self) -> Result<(VaultState, Vec<VaultRow>)> {
        let found = self.0.read(|db| {
            let snapshot = db.unchecked_transaction()?;
            Ok((state(&snapshot)?, rows(&snapshot)?))
        });
        Ok(found.await?.unwrap_or_default())
    }

    async fn change_vault(&self, decide: Decide) -> Result<()> {
        let changing = self.0.write(move |db| {
            let change = decide(&state(db)?, rows(db)?);
            if let Some(change) = &change {
                apply(db, change)?;
            }
            Ok(change.is_some())
        });
        if changing.await? {
            // Old rows are sealed, so a reader may delay their removal from the log.
            let _ = self.0.read(empty_log).await;
        }
        Ok(())
    }

    async fn add_vault_uses(&self, uses: Vec<VaultUse>) -> Result<()> {
        self.0
            .write(move |db| {
                let mut add = db.prepare_cached(
                    "INSERT INTO vault_uses (name, tenant, subject, pack, day, granted, refused, last_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                 ON CONFLICT (name, tenant, subject, pack, day) DO UPDATE
                 SET granted = granted + ?6, refused = refused + ?7, last_at = max(last_at, ?8)",
                )?;
                for entry in &uses {
                    add.execute((
                        &entry.name,
                        &entry.tenant,
                        &entry.subject,
                        &entry.pack,
                        entry.day,
                        signed(entry.granted),
                        signed(entry.refused),
                        entry.last_at.micros(),
                    ))?;
                }
                Ok(())
            })
            .await
    }

    async fn forget_vault_uses(&self, tenant: String, subject: String) -> Result<u64> {
        let gone = self.0.read(move |db| {
            let gone = db
                .prepare_cached("DELETE FROM vault_uses WHERE tenant = ?1 AND subject = ?2")?
                .execute((&tenant, &subject))?;
            if gone > 0 {
                empty_log(db)?;
            }
            Ok(gone)
        });
        Ok(gone.await?.unwrap_or(0) as u64)
    }

    async fn vault_uses(
        &self,
        name: Option<String>,
        caller: Option<(String, String)>,
        limit: usize,
    ) -> Result<Vec<VaultUse>> {
        let found = self.0.read(move |db| {
            let mut all = db.prepare_cached(
                "SELECT name, tenant, subject, pack, day, granted, refused, last_at FROM vault_uses
                 WHERE (?1 IS NULL OR name = ?1) AND (?2 IS NULL OR (tenant = ?2 AND subject = ?3))
                 ORDER BY last_at DESC, name, tenant, subject, pack LIMIT ?4",
            )?;
            let (tenant, subject) = caller.unzip();
            let rows = all.query_map((name, tenant, subject, signed(limit as u64)), |row| {
                Ok(VaultUse {
                    name: row.get(0)?,
                    tenant: row.get(1)?,
                    subject: row.get(2)?,
                    pack: row.get(3)?,
                    day: row.get(4)?,
                    granted: unsigned(row.get(5)?),
                    refused: unsigned(row.get(6)?),
                    last_at: Timestamp(row.get(7)?),
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        });
        Ok(found.await?.unwrap_or_default())
    }
}

fn state(db: &Connection) -> Result<VaultState> {
    let state = db
        .prepare_cached("SELECT generation, key_id, head FROM vault_state WHERE one = 1")?
        .query_row([], |row| {
            Ok(VaultState {
                generation: unsigned(row.get(0)?),
                key_id: row.get(1)?,
                head: row.get(2)?,
            })
        })
        .optional()?;
    Ok(state.unwrap_or_default())
}

fn rows(db: &Connection) -> Result<Vec<VaultRow>> {
    let read = |row: &Row<'_>| {
        Ok(VaultRow {
            name: row.get(0)?,
            version: unsigned(row.get(1)?),
            key_id: row.get(2)?,
            sealed: row.get(3)?,
            created_at: Timestamp(row.get(4)?),
            updated_at: Timestamp(row.get(5)?),
        })
    };
    let mut all = db.prepare_cached(
        "SELECT name, version, key_id, sealed, created_at, updated_at FROM vault_credentials ORDER BY name",
    )?;
    let rows = all.query_map([], read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn apply(db: &Connection, change: &VaultChange) -> Result<()> {
    for row in &change.put {
        db.prepare_cached(
            "INSERT INTO vault_credentials (name, version, key_id, sealed, created_at, updated_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (name) DO UPDATE
             SET version = ?2, key_id = ?3, sealed = ?4, created_at = ?5, updated_at = ?6",
        )?
        .execute((
            &row.name,
            signed(row.version),
            &row.key_id,
            &row.sealed,
            row.created_at.micros(),
            row.updated_at.micros(),
        ))?;
    }
    for name in &change.remove {
        db.prepare_cached("DELETE FROM vault_credentials WHERE name = ?1")?
            .execute([name])?;
    }
    db.prepare_cached(
        "INSERT INTO vault_state (one, generation, key_id, head) VALUES (1, 1, ?1, ?2)
         ON CONFLICT (one) DO UPDATE
         SET generation = generation + 1, key_id = coalesce(?1, key_id), head = coalesce(?2, head)",
    )?
    .execute((&change.key_id, &change.head))?;
    Ok(())
}
