//! Idempotency keys: of all replicas, one run gets a key.

use async_trait::async_trait;
use helmdeck_core::Timestamp;
use helmdeck_core::numbers::signed;
use helmdeck_memory::{Result, StoreError};
use tokio_postgres::Row;

use super::args::args;
use super::{Postgres, READ, WRITE, on_server};
use crate::driver::{KeyName, KeyRows, TakeKey};
use crate::idempotency::{Begun, Fence};

/// How often a key is looked at that another run frees in the same moment.
const LOOKS: u32 = 5;

/// Takes a key that is new or has expired, or that a dead replica has and may be taken over. The
/// same run gets it again.
const TAKE: &str = "
INSERT INTO system_keys AS k (scope, key, digest, owner, fence, done, answer, expires_at)
VALUES ($1, $2, $3, $4, $5, FALSE, NULL, $6)
ON CONFLICT (scope, key) DO UPDATE
   SET digest = excluded.digest, owner = excluded.owner, fence = excluded.fence, done = FALSE, answer = NULL,
       expires_at = excluded.expires_at
 WHERE k.expires_at <= $7 OR k.fence = excluded.fence
    OR ($8 AND NOT k.done AND k.digest = excluded.digest AND NOT EXISTS
        (SELECT 1 FROM system_replicas r WHERE r.id = k.owner AND r.expires_at > clock_timestamp()))
RETURNING TRUE";

const MARK: &str = "
INSERT INTO system_keys (scope, key, digest, owner, fence, done, answer, expires_at)
VALUES ($1, $2, $3, '', $3, TRUE, NULL, $4)
ON CONFLICT (scope, key) DO UPDATE SET expires_at = excluded.expires_at";

const LOOK: &str = "
SELECT k.done, k.digest, k.answer, EXISTS
       (SELECT 1 FROM system_replicas r WHERE r.id = k.owner AND r.expires_at > clock_timestamp())
  FROM system_keys k WHERE k.scope = $1 AND k.key = $2";

#[async_trait]
impl KeyRows for Postgres {
    async fn begin_key(&self, taking: TakeKey) -> Result<Begun> {
        let KeyName { scope, key } = &taking.name;
        for _ in 0..LOOKS {
            let begun = on_server!(self, WRITE, |db| {
                let (now, expires_at) = (taking.now.micros(), taking.expires_at.micros());
                let (owner, fence) = (&*taking.owner, &taking.fence.0[..]);
                if db
                    .query_typed_opt(
                        TAKE,
                        args![
                            scope,
                            key,
                            taking.digest,
                            owner,
                            fence,
                            expires_at,
                            now,
                            taking.repeatable
                        ],
                    )
                    .await?
                    .is_some()
                {
                    return Ok(Some(Begun::New(taking.fence)));
                }
                let Some(row) = db.query_typed_opt(LOOK, args![scope, key]).await? else {
                    return Ok(None);
                };
                let (done, digest, alive): (bool, Vec<u8>, bool) =
                    (row.try_get(0)?, row.try_get(1)?, row.try_get(3)?);
                Ok(Some(match (done, alive) {
                    (true, _) => Begun::Done {
                        digest,
                        answer: row.try_get(2)?,
                    },
                    (false, true) => Begun::InFlight { digest },
                    (false, false) => Begun::Lost { digest },
                }))
            })?;
            if let Some(begun) = begun.flatten() {
                return Ok(begun);
            }
        }
        Err(StoreError::Unavailable {
            message: "an idempotency key changes too often".to_owned(),
            source: None,
        })
    }

    async fn finish_key(
        &self,
        key: KeyName,
        fence: Fence,
        answer: Option<Vec<u8>>,
        expires_at: Timestamp,
    ) -> Result<bool> {
        let finish = "UPDATE system_keys SET done = TRUE, answer = $4, expires_at = $5
                      WHERE scope = $1 AND key = $2 AND fence = $3";
        let finished = on_server!(self, WRITE, |db| {
            Ok(db
                .execute_typed(
                    finish,
                    args![
                        key.scope,
                        key.key,
                        &fence.0[..],
                        answer,
                        expires_at.micros()
                    ],
                )
                .await?)
        })?;
        Ok(finished.unwrap_or(0) > 0)
    }

    async fn abandon_key(&self, key: KeyName, fence: Fence) -> Result<()> {
        let abandon =
            "DELETE FROM system_keys WHERE scope = $1 AND key = $2 AND fence = $3 AND NOT done";
        on_server!(self, READ, |db| {
            Ok(db
                .execute_typed(abandon, args![key.scope, key.key, &fence.0[..]])
                .await?)
        })?;
        Ok(())
    }

    async fn mark_key(&self, key: KeyName, expires_at: Timestamp) -> Result<()> {
        on_server!(self, WRITE, |db| {
            Ok(db
                .execute_typed(
                    MARK,
                    args![key.scope, key.key, &[][..], expires_at.micros()],
                )
                .await?)
        })?;
        Ok(())
    }

    async fn taken_keys(
        &self,
        scope: String,
        keys: Vec<String>,
        now: Timestamp,
    ) -> Result<Vec<String>> {
        let taken = "SELECT key FROM system_keys WHERE scope = $1 AND key = ANY($2::text[]) AND expires_at > $3";
        let found = on_server!(self, READ, |db| {
            let rows = db
                .query_typed(taken, args![scope, keys, now.micros()])
                .await?;
            Ok(rows
                .iter()
                .map(|row| row.try_get(0))
                .collect::<Result<Vec<String>, _>>()?)
        })?;
        Ok(found.unwrap_or_default())
    }

    async fn key_ends(
        &self,
        scope: String,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(String, Timestamp)>> {
        let ends =
            "SELECT key, expires_at FROM system_keys WHERE scope = $1 AND expires_at > $2 LIMIT $3";
        let found = on_server!(self, READ, |db| {
            let rows = db
                .query_typed(ends, args![scope, now.micros(), signed(limit as u64)])
                .await?;
            let read = |row: &Row| Ok((row.try_get(0)?, Timestamp(row.try_get(1)?)));
            Ok(rows
                .iter()
                .map(read)
                .collect::<Result<Vec<_>, tokio_postgres::Error>>()?)
        })?;
        Ok(found.unwrap_or_default())
    }

    async fn forget_keys(&self, caller: String) -> Result<u64> {
        let forget = "DELETE FROM system_keys WHERE scope >= $1 || '/' AND scope < $1 || '0'";
        let deleted = on_server!(self, READ, |db| {
            Ok(db.execute_typed(forget, args![caller]).await?)
        })?;
        Ok(deleted.unwrap_or(0))
    }
}
