//! The vault: state, credentials and the use log.

use async_trait::async_trait;
use helmdeck_core::Timestamp;
use helmdeck_core::numbers::{signed, unsigned};
use helmdeck_memory::drivers::postgres::session::Outcome;
use helmdeck_memory::{Result, StoreError};
use tokio_postgres::{GenericClient, Row};

use super::args::args;
use super::{Postgres, READ, WRITE_ONCE, on_server};
use crate::driver::{Decide, VaultRows};
use crate::vault::{VaultChange, VaultRow, VaultState, VaultUse};

const STATE: &str = "SELECT generation, key_id, head FROM system_vault_state WHERE one = 1";
const ROWS: &str =
    "SELECT name, version, key_id, sealed, created_at, updated_at FROM system_vault ORDER BY name";

const PUT: &str = "
INSERT INTO system_vault (name, version, key_id, sealed, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (name) DO UPDATE SET version = excluded.version, key_id = excluded.key_id, sealed = excluded.sealed,
       created_at = excluded.created_at, updated_at = excluded.updated_at";

const ADD_USES: &str = "
INSERT INTO system_vault_uses AS u (name, tenant, subject, pack, day, granted, refused, last_at)
SELECT name, tenant, subject, pack, day, sum(granted)::bigint, sum(refused)::bigint, max(last_at)
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
       AS n (name, tenant, subject, pack, day, granted, refused, last_at)
 GROUP BY name, tenant, subject, pack, day ORDER BY name, tenant, subject, pack, day
ON CONFLICT (name, tenant, subject, pack, day) DO UPDATE
   SET granted = u.granted + excluded.granted, refused = u.refused + excluded.refused,
       last_at = greatest(u.last_at, excluded.last_at)";

const USES: &str = "
SELECT name, tenant, subject, pack, day, granted, refused, last_at FROM system_vault_uses
 WHERE ($1::text IS NULL OR name = $1) AND ($2::text IS NULL OR (tenant = $2 AND subject = $3))
 ORDER BY last_at DESC, name, tenant, subject, pack LIMIT $4";

#[async_trait]
impl VaultRows for Postgres {
    async fn vault_generation(&self) -> Result<u64> {
        let found = on_server!(self, READ, |db| {
            Ok(state(&***db, STATE).await?.generation)
        })?;
        Ok(found.unwrap_or(0))
    }

    async fn vault(&self) -> Result<(VaultState, Vec<VaultRow>)> {
        let found = on_server!(self, READ, |db| {
            // One snapshot for both.
            let snapshot = db.transaction().await?;
            snapshot
                .batch_execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                .await?;
            let found = (state(&*snapshot, STATE).await?, rows(&*snapshot).await?);
            snapshot.commit().await?;
            Ok(found)
        })?;
        Ok(found.unwrap_or_default())
    }

    async fn change_vault(&self, decide: Decide) -> Result<()> {
        let mut decide = Some(decide);
        let in_the_way = || StoreError::Unavailable {
            message: "another change of the vault was in the way".to_owned(),
            source: None,
        };
        on_server!(self, WRITE_ONCE, |db| {
            let transaction = db.transaction().await?;
            let locked = format!("{STATE} FOR UPDATE");
            let (state, rows) = (
                state(&*transaction, &locked).await?,
                rows(&*transaction).await?,
            );
            let decide = decide.take().ok_or_else(in_the_way)?;
            if let Some(change) = decide(&state, rows) {
                apply(&*transaction, &change).await?;
            }
            Ok(transaction.commit().await?)
        })?;
        Ok(())
    }

    async fn add_vault_uses(&self, uses: Vec<VaultUse>) -> Result<()> {
        let texts = |of: fn(&VaultUse) -> &str| -> Vec<&str> { uses.iter().map(of).collect() };
        let numbers = |of: fn(&VaultUse) -> i64| -> Vec<i64> { uses.iter().map(of).collect() };
        let (names, tenants) = (texts(|entry| &entry.name), texts(|entry| &entry.tenant));
        let (subjects, packs) = (texts(|entry| &entry.subject), texts(|entry| &entry.pack));
        let (days, granted) = (
            numbers(|entry| entry.day),
            numbers(|entry| signed(entry.granted)),
        );
        let (refused, last) = (
            numbers(|entry| signed(entry.refused)),
            numbers(|entry| entry.last_at.micros()),
        );
        on_server!(self, WRITE_ONCE, |db| {
            Ok(db
                .execute_typed(
                    ADD_USES,
                    args![
                        names, tenants, subjects, packs, days, granted, refused, last
                    ],
                )
                .await?)
        })?;
        Ok(())
    }

    async fn forget_vault_uses(&self, tenant: String, subject: String) -> Result<u64> {
        let forget = "DELETE FROM system_vault_uses WHERE tenant = $1 AND subject = $2";
        let gone = on_server!(self, READ, |db| {
            Ok(db.execute_typed(forget, args![tenant, subject]).await?)
        })?;
        Ok(gone.unwrap_or(0))
    }

    async fn vault_uses(
        &self,
        name: Option<String>,
        caller: Option<(String, String)>,
        limit: usize,
    ) -> Result<Vec<VaultUse>> {
        let (tenant, subject) = caller.unzip();
        let limit = signed(limit as u64);
        let found = on_server!(self, READ, |db| {
            let rows = db
                .query_typed(USES, args![name, tenant, subject, limit])
                .await?;
            rows.iter().map(used).collect()
        })?;
        Ok(found.unwrap_or_default())
    }
}

async fn state(db: &(impl GenericClient + Sync), sql: &str) -> Outcome<VaultState> {
    match db.query_typed_opt(sql, &[]).await? {
        Some(row) => Ok(VaultState {
            generation: unsigned(row.try_get(0)?),
            key_id: row.try_get(1)?,
            head: row.try_get(2)?,
        }),
        None => Ok(VaultState::default()),
    }
}

async fn rows(db: &(impl GenericClient + Sync)) -> Outcome<Vec<VaultRow>> {
    let read = |row: &Row| {
        Ok(VaultRow {
            name: row.try_get(0)?,
            version: unsigned(row.try_get(1)?),
            key_id: row.try_get(2)?,
            sealed: row.try_get(3)?,
            created_at: Timestamp(row.try_get(4)?),
            updated_at: Timestamp(row.try_get(5)?),
        })
    };
    db.query_typed(ROWS, &[]).await?.iter().map(read).collect()
}

async fn apply(db: &(impl GenericClient + Sync), change: &VaultChange) -> Outcome<()> {
    for row in &change.put {
        let (created_at, updated_at) = (row.created_at.micros(), row.updated_at.micros());
        db.execute_typed(
            PUT,
            args![
                row.name,
                signed(row.version),
                row.key_id,
                row.sealed,
                created_at,
                updated_at
            ],
        )
        .await?;
    }
    db.execute_typed(
        "DELETE FROM system_vault WHERE name = ANY($1)",
        args![change.remove],
    )
    .await?;
    let count = "INSERT INTO system_vault_state AS s (one, generation, key_id, head) VALUES (1, 1, $1, $2)
        ON CONFLICT (one) DO UPDATE
        SET generation = s.generation + 1, key_id = coalesce($1, s.key_id), head = coalesce($2, s.head)";
    db.execute_typed(count, args![change.key_id, change.head])
        .await?;
    Ok(())
}

fn used(row: &Row) -> Outcome<VaultUse> {
    Ok(VaultUse {
        name: row.try_get(0)?,
        tenant: row.try_get(1)?,
        subject: row.try_get(2)?,
        pack: row.try_get(3)?,
        day: row.try_get(4)?,
        granted: unsigned(row.try_get(5)?),
        refused: unsigned(row.try_get(6)?),
        last_at: Timestamp(row.try_get(7)?),
    })
}
