//! API tokens.

use async_trait::async_trait;
use helmdeck_core::Timestamp;
use helmdeck_core::numbers::unsigned;
use helmdeck_memory::Result;
use rusqlite::{OptionalExtension, Row};

use super::{Sqlite, empty_log};
use crate::driver::TokenRows;
use crate::tokens::{ApiToken, TokenQuery, TokenReach, ancestors_of, ancestors_text};

#[async_trait]
impl TokenRows for Sqlite {
    async fn insert_token(&self, token: ApiToken, digest: [u8; 32]) -> Result<bool> {
        self.write(move |db| {
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
                "INSERT INTO api_tokens (id, digest, name, tenant, subject, scope, created_at, expires_at, ancestors)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
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
            ))?;
            Ok(true)
        })
        .await
    }

    async fn token(&self, id: String) -> Result<Option<(ApiToken, Vec<u8>)>> {
        let found = self.read(move |db| {
            let mut find = db.prepare_cached("SELECT * FROM api_tokens WHERE id = ?1")?;
            Ok(find.query_row([&id], |found| Ok((row(found)?, found.get("digest")?))).optional()?)
        });
        Ok(found.await?.flatten())
    }

    async fn tokens(&self) -> Result<Vec<ApiToken>> {
        let found = self.read(|db| {
            let mut all = db.prepare_cached("SELECT * FROM api_tokens ORDER BY created_at, id")?;
            let rows = all.query_map([], row)?;
            Ok(rows.collect::<Result<_, _>>()?)
        });
        Ok(found.await?.unwrap_or_default())
    }

    async fn token_page(&self, query: TokenQuery) -> Result<Vec<ApiToken>> {
        let found = self.read(move |db| {
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

    async fn use_up_token(&self, id: String, now: Timestamp) -> Result<bool> {
        let changed = self.read(move |db| {
            let mut revoke = db.prepare_cached(
                "UPDATE api_tokens SET revoked_at = ?2, used_at = ?2
                 WHERE id = ?1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2)",
            )?;
            Ok(revoke.execute((&id, now.micros()))?)
        });
        Ok(changed.await?.unwrap_or(0) > 0)
    }

    async fn revoke_token(&self, id: String, reach: TokenReach, now: Timestamp) -> Result<bool> {
        let changed = self.read(move |db| {
            let mut revoke = db.prepare_cached(
                "WITH this AS MATERIALIZED (
                     SELECT id, ancestors || id AS line FROM api_tokens
                     WHERE id = ?1 AND (?2 IS NULL OR (tenant = ?2 AND subject = ?3))
                       AND (?4 IS NULL OR id = ?4 OR instr('/' || ancestors, '/' || ?4 || '/') > 0))
                 UPDATE api_tokens SET revoked_at = COALESCE(revoked_at, ?5)
                 WHERE id = (SELECT id FROM this)
                    OR (ancestors <> '' AND ancestors >= (SELECT line || '/' FROM this)
                        AND ancestors < (SELECT line || '0' FROM this))",
            )?;
            let (tenant, subject) = reach.caller.unzip();
            Ok(revoke.execute((&id, tenant, subject, reach.family, now.micros()))?)
        });
        Ok(changed.await?.unwrap_or(0) > 0)
    }

    async fn forget_ended_tokens(&self, tenant: String, subject: String, now: Timestamp) -> Result<(u64, u64)> {
        let forgotten = self.read(move |db| {
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
        let noted = self.read(move |db| {
            let mut note = db.prepare_cached(
                "UPDATE api_tokens SET used_at = ?2 WHERE id = ?1 AND (used_at IS NULL OR used_at <= ?3)",
            )?;
            Ok(note.execute((&id, now.micros(), last))?)
        });
        noted.await.map(drop)
    }
}

fn row(row: &Row<'_>) -> rusqlite::Result<ApiToken> {
    let time = |at: &str| row.get::<_, Option<i64>>(at).map(|micros| micros.map(Timestamp));
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
