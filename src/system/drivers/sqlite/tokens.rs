//! API tokens.

use async_trait::async_trait;
use helmdeck_core::Timestamp;
use helmdeck_core::numbers::unsigned;
use helmdeck_memory::Result;
use rusqlite::{Connection, OptionalExtension, Params, Row, Transaction, TransactionBehavior};

use super::{Sqlite, empty_log};
use crate::driver::{DecideSeals, Ended, NextHead, TokenRow, TokenRows, TokenSeals};
use crate::tokens::{ApiToken, TokenQuery, TokenReach, ancestors_of, ancestors_text};

#[async_trait]
impl TokenRows for Sqlite {
    async fn insert_token(
        &self,
        token: ApiToken,
        digest: [u8; 32],
        seal: Option<Vec<u8>>,
    ) -> Result<bool> {
        self.0
            .write(move |db| {
                let (created_at, expires_at) = (token.created_at.micros(), token.expires_at.map(Timestamp::micros));
                let mut is_live = db.prepare_cached(
                    "SELECT 1 FROM api_tokens
                 WHERE id = ?1 AND revoked_at IS NULL
                   AND (expires_at IS NULL OR (expires_at > ?2 AND expires_at >= ?3))",
                )?;
                for id in &token.ancestors {
                    if !is_live.exists((id, created_at, expires_at))? {
                        return Ok(false);
                    }
                }
                db.prepare_cached(
                "INSERT INTO api_tokens (id, digest, name, tenant, subject, scope, created_at, expires_at, ancestors,
                     seal)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .execute((
                &token.id,
                digest,
                &token.name,
                &token.tenant,
                &token.subject,
                &token.scope,
                created_at,
                expires_at,
                ancestors_text(&token.ancestors),
                seal,
            ))?;
                Ok(true)
            })
            .await
    }

    async fn token(&self, id: String) -> Result<Option<TokenRow>> {
        let found = self.0.read(move |db| {
            let mut find =
                db.prepare_cached("SELECT * FROM api_tokens, token_state WHERE id = ?1")?;
            Ok(find.query_row([&id], stored).optional()?)
        });
        Ok(found.await?.flatten())
    }

    async fn token_head(&self) -> Result<Option<(u64, Option<Vec<u8>>)>> {
        self.0
            .read(|db| {
                let mut find = db.prepare_cached("SELECT generation, head FROM token_state")?;
                Ok(find.query_row([], |row| Ok((unsigned(row.get(0)?), row.get(1)?)))?)
            })
            .await
    }

    async fn first_token_head(&self, head: Vec<u8>) -> Result<()> {
        self.0
            .write(move |db| {
                let mut first = db.prepare_cached(
                    "UPDATE token_state SET head = ?1, generation = generation + 1 WHERE head IS NULL",
                )?;
                first.execute([head])?;
                Ok(())
            })
            .await
    }

    async fn seal_tokens(&self, decide: DecideSeals) -> Result<()> {
        let sealed = self.0.read(move |db| {
            let transaction = Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
            let head: Option<Vec<u8>> = transaction
                .prepare_cached("SELECT head FROM token_state")?
                .query_row([], |row| row.get(0))?;
            let rows = transaction
                .prepare_cached("SELECT * FROM api_tokens, token_state ORDER BY created_at, id")?
                .query_map([], stored)?
                .collect::<rusqlite::Result<_>>()?;
            if let Some(TokenSeals { head, rows }) = decide(head.as_deref(), rows)? {
                put_head(&transaction, &head)?;
                let mut seal =
                    transaction.prepare_cached("UPDATE api_tokens SET seal = ?2 WHERE id = ?1")?;
                for row in rows {
                    seal.execute(row)?;
                }
            }
            Ok(transaction.commit()?)
        });
        sealed.await.map(drop)
    }

    async fn tokens(&self) -> Result<Vec<ApiToken>> {
        let found = self.0.read(|db| {
            let mut all = db.prepare_cached("SELECT * FROM api_tokens ORDER BY created_at, id")?;
            let rows = all.query_map([], row)?;
            Ok(rows.collect::<Result<_, _>>()?)
        });
        Ok(found.await?.unwrap_or_default())
    }

    async fn token_page(&self, query: TokenQuery) -> Result<Vec<ApiToken>> {
        let found = self.0.read(move |db| {
            let mut page = db.prepare_cached(
                "SELECT * FROM api_tokens
                 WHERE (?1 IS NULL OR tenant = ?1) AND (?2 IS NULL OR subject = ?2)
                   AND (?3 IS NULL OR (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?3)))
                   AND (?4 IS NULL OR (created_at, id) < (?4, ?5))
                   AND (?7 IS NULL OR id = ?7 OR instr('/' || ancestors, '/' || ?7 || '/') > 0)
                 ORDER BY created_at DESC, id DESC LIMIT ?6",
            )?;
            let TokenReach { caller, family } = query.reach;
            let (tenant, subject) =
                caller.map_or((query.tenant, query.subject), |(tenant, subject)| (Some(tenant), Some(subject)));
            let (at, id) = query.after.map_or((None, None), |(at, id)| (Some(at.micros()), Some(id)));
            let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
            let live_at = query.live_at.map(Timestamp::micros);
            let params = (tenant, subject, live_at, at, id, limit, family);
            let rows = page.query_map(params, row)?;
            Ok(rows.collect::<Result<_, _>>()?)
        });
        Ok(found.await?.unwrap_or_default())
    }

    async fn use_up_token(&self, id: String, now: Timestamp, next: NextHead) -> Result<bool> {
        let changed = self.0.read(move |db| {
            end(
                db,
                "UPDATE api_tokens SET revoked_at = ?2, used_at = ?2
                 WHERE id = ?1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2)
                 RETURNING id, expires_at",
                (&id, now.micros()),
                &next,
            )
        });
        Ok(changed.await?.unwrap_or(false))
    }

    async fn revoke_token(
        &self,
        id: String,
        reach: TokenReach,
        now: Timestamp,
        next: NextHead,
    ) -> Result<bool> {
        let changed = self.0.read(move |db| {
            let (tenant, subject) = reach.caller.unzip();
            end(
                db,
                "WITH this AS MATERIALIZED (
                     SELECT id, ancestors || id AS line FROM api_tokens
                     WHERE id = ?1 AND (?2 IS NULL OR (tenant = ?2 AND subject = ?3))
                       AND (?4 IS NULL OR id = ?4 OR instr('/' || ancestors, '/' || ?4 || '/') > 0))
                 UPDATE api_tokens SET revoked_at = COALESCE(revoked_at, ?5)
                 WHERE id = (SELECT id FROM this)
                    OR (ancestors <> '' AND ancestors >= (SELECT line || '/' FROM this)
                        AND ancestors < (SELECT line || '0' FROM this))
                 RETURNING id, expires_at",
                (&id, tenant, subject, reach.family, now.micros()),
                &next,
            )
        });
        Ok(changed.await?.unwrap_or(false))
    }

    async fn forget_ended_tokens(
        &self,
        tenant: String,
        subject: String,
        now: Timestamp,
    ) -> Result<(u64, u64)> {
        let forgotten = self.0.read(move |db| {
            let gone = db
                .prepare_cached(
                    "DELETE FROM api_tokens
                     WHERE tenant = ?1 AND subject = ?2 AND (revoked_at IS NOT NULL OR expires_at <= ?3)",
                )?
                .execute((&tenant, &subject, now.micros()))?;
            if gone > 0 {
                empty_log(db)?;
            }
            let live: i64 = db
                .prepare_cached("SELECT count(*) FROM api_tokens WHERE tenant = ?1 AND subject = ?2")?
                .query_row((&tenant, &subject), |row| row.get(0))?;
            Ok((gone as u64, unsigned(live)))
        });
        Ok(forgotten.await?.unwrap_or((0, 0)))
    }

    async fn token_used(&self, id: String, now: Timestamp, last: i64) -> Result<()> {
        let noted = self.0.read(move |db| {
            let mut note = db.prepare_cached(
                "UPDATE api_tokens SET used_at = ?2 WHERE id = ?1 AND (used_at IS NULL OR used_at <= ?3)",
            )?;
            Ok(note.execute((&id, now.micros(), last))?)
        });
        noted.await.map(drop)
    }
}

/// Ends tokens by a statement that returns them, and writes the next head in the same transaction.
/// Returns whether there were any.
fn end(db: &Connection, sql: &str, params: impl Params, next: &NextHead) -> Result<bool> {
    let transaction = Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
    let ended: Vec<Ended> = transaction
        .prepare_cached(sql)?
        .query_map(params, |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    if !ended.is_empty() {
        let head: Option<Vec<u8>> = transaction
            .prepare_cached("SELECT head FROM token_state")?
            .query_row([], |row| row.get(0))?;
        if let Some(head) = next(head.as_deref(), &ended) {
            put_head(&transaction, &head)?;
        }
    }
    transaction.commit()?;
    Ok(!ended.is_empty())
}

fn put_head(db: &Connection, head: &[u8]) -> Result<()> {
    db.prepare_cached("UPDATE token_state SET head = ?1, generation = generation + 1")?
        .execute([head])?;
    Ok(())
}

fn stored(found: &Row<'_>) -> rusqlite::Result<TokenRow> {
    let (digest, seal) = (found.get("digest")?, found.get("seal")?);
    Ok(TokenRow {
        token: row(found)?,
        digest,
        seal,
        generation: unsigned(found.get("generation")?),
    })
}

fn row(row: &Row<'_>) -> rusqlite::Result<ApiToken> {
    let time = |at: &str| {
        row.get::<_, Option<i64>>(at)
            .map(|micros| micros.map(Timestamp))
    };
    Ok(ApiToken {
        id: row.get("id")?,
        name: row.get("name")?,
        tenant: row.get("tenant")?,
        subject: row.get("subject")?,
        scope: row.get("scope")?,
        created_at: Timestamp(row.get("created_at")?),
        expires_at: time("expires_at")?,
        revoked_at: time("revoked_at")?,
        used_at: time("used_at")?,
        ancestors: ancestors_of(&row.get::<_, String>("ancestors")?),
    })
}
