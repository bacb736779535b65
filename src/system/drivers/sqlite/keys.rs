//! Idempotency keys.

use std::path::Path;

use async_trait::async_trait;
use helmdeck_core::Timestamp;
use helmdeck_core::numbers::signed;
use helmdeck_memory::Result;
use rusqlite::{Connection, OptionalExtension};

use super::{Sqlite, empty_log, locks};
use crate::driver::{KeyName, KeyRows, TakeKey};
use crate::idempotency::{Begun, Fence};

#[async_trait]
impl KeyRows for Sqlite {
    async fn begin_key(&self, taking: TakeKey) -> Result<Begun> {
        let folder = self.locks();
        self.0
            .write(move |db| {
                db.prepare_cached("DELETE FROM idempotency_keys WHERE scope = ?1 AND key = ?2 AND expires_at <= ?3")?
                    .execute((&taking.name.scope, &taking.name.key, taking.now.micros()))?;
                match state(db, &folder, &taking.name)? {
                    None => {}
                    Some(Begun::Lost { digest }) if taking.repeatable && digest == taking.digest => {}
                    Some(known) => return Ok(known),
                }
                db.prepare_cached(
                    "INSERT OR REPLACE INTO idempotency_keys (scope, key, digest, done, expires_at, owner, fence)
                 VALUES (?1, ?2, ?3, FALSE, ?4, ?5, ?6)",
                )?
                .execute((
                    &taking.name.scope,
                    &taking.name.key,
                    &taking.digest,
                    taking.expires_at.micros(),
                    &*taking.owner,
                    taking.fence.0,
                ))?;
                Ok(Begun::New(taking.fence))
            })
            .await
    }

    async fn finish_key(
        &self,
        key: KeyName,
        fence: Fence,
        answer: Option<Vec<u8>>,
        expires_at: Timestamp,
    ) -> Result<bool> {
        self.0
            .write(move |db| {
                let mut finish = db.prepare_cached(
                    "UPDATE idempotency_keys SET done = TRUE, answer = ?4, expires_at = ?5
                 WHERE scope = ?1 AND key = ?2 AND fence = ?3",
                )?;
                Ok(
                    finish.execute((
                        &key.scope,
                        &key.key,
                        fence.0,
                        &answer,
                        expires_at.micros(),
                    ))? > 0,
                )
            })
            .await
    }

    async fn abandon_key(&self, key: KeyName, fence: Fence) -> Result<()> {
        self.0
            .write(move |db| {
                db.prepare_cached(
                    "DELETE FROM idempotency_keys WHERE scope = ?1 AND key = ?2 AND fence = ?3 AND NOT done",
                )?
                .execute((&key.scope, &key.key, fence.0))?;
                Ok(())
            })
            .await
    }

    async fn mark_key(&self, key: KeyName, expires_at: Timestamp) -> Result<()> {
        self.0
            .write(move |db| {
                db.prepare_cached(
                    "INSERT INTO idempotency_keys (scope, key, digest, done, expires_at, owner, fence)
                 VALUES (?1, ?2, X'', TRUE, ?3, '', X'')
                 ON CONFLICT (scope, key) DO UPDATE SET expires_at = ?3",
                )?
                .execute((&key.scope, &key.key, expires_at.micros()))?;
                Ok(())
            })
            .await
    }

    async fn taken_keys(
        &self,
        scope: String,
        keys: Vec<String>,
        now: Timestamp,
    ) -> Result<Vec<String>> {
        let found = self.0.read(move |db| {
            let mut taken = db.prepare_cached(
                "SELECT 1 FROM idempotency_keys WHERE scope = ?1 AND key = ?2 AND expires_at > ?3",
            )?;
            let mut found = Vec::new();
            for key in keys {
                if taken.exists((&scope, &key, now.micros()))? {
                    found.push(key);
                }
            }
            Ok(found)
        });
        Ok(found.await?.unwrap_or_default())
    }

    async fn key_ends(
        &self,
        scope: String,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(String, Timestamp)>> {
        let found = self.0.read(move |db| {
            let mut ends = db.prepare_cached(
                "SELECT key, expires_at FROM idempotency_keys WHERE scope = ?1 AND expires_at > ?2 LIMIT ?3",
            )?;
            let rows = ends.query_map((&scope, now.micros(), signed(limit as u64)), |row| {
                Ok((row.get(0)?, Timestamp(row.get(1)?)))
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        });
        Ok(found.await?.unwrap_or_default())
    }

    async fn forget_keys(&self, caller: String) -> Result<u64> {
        let deleted = self.0.read(move |db| {
            let deleted = db
                .prepare_cached(
                    "DELETE FROM idempotency_keys WHERE scope >= ?1 || '/' AND scope < ?1 || '0'",
                )?
                .execute([&caller])?;
            if deleted > 0 {
                empty_log(db)?;
            }
            Ok(deleted)
        });
        Ok(deleted.await?.unwrap_or(0) as u64)
    }
}

fn state(db: &Connection, folder: &Path, name: &KeyName) -> Result<Option<Begun>> {
    let known = db
        .prepare_cached("SELECT done, digest, answer, owner FROM idempotency_keys WHERE scope = ?1 AND key = ?2")?
        .query_row((&name.scope, &name.key), |row| {
            let (done, owner): (bool, Option<String>) = (row.get(0)?, row.get(3)?);
            let digest = row.get(1)?;
            Ok((if done { Begun::Done { digest, answer: row.get(2)? } } else { Begun::InFlight { digest } }, owner))
        })
        .optional()?;
    Ok(known.map(|(state, owner)| match (state, owner) {
        // The lock of a dead owner stays for the jobs that it may have.
        (Begun::InFlight { digest }, Some(owner)) if locks::gone(folder, &owner).is_some() => {
            Begun::Lost { digest }
        }
        (state, _) => state,
    }))
}
