//! API tokens.

use async_trait::async_trait;
use helmdeck_core::Timestamp;
use helmdeck_core::numbers::unsigned;
use helmdeck_memory::Result;
use helmdeck_memory::drivers::postgres::session::Outcome;
use tokio_postgres::Row;

use super::args::args;
use super::{CHANGE, Postgres, READ, WRITE, on_server, text};
use crate::driver::TokenRows;
use crate::tokens::{ApiToken, TokenQuery, TokenReach, ancestors_of, ancestors_text};

const COLUMNS: &str =
    "id, name, tenant, subject, scope, created_at, expires_at, revoked_at, used_at, digest, ancestors";

/// Of one caller, over the index by caller; a plan does not depend on its parameters.
const OF_CALLER: &str = "WHERE tenant = $1 AND subject = $2";
/// Of everybody, of a tenant, or of everybody with a name.
const OF_MANY: &str = "WHERE ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR subject = $2)";
const PAGE: &str = "
   AND ($7::text IS NULL OR id = $7 OR position('/' || $7 || '/' IN '/' || ancestors) > 0)
   AND ($3::bigint IS NULL OR (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $3)))
   AND ($4::bigint IS NULL OR (created_at, id) < ($4, $5))
 ORDER BY created_at DESC, id DESC LIMIT $6";

#[async_trait]
impl TokenRows for Postgres {
    async fn insert_token(&self, token: ApiToken, digest: [u8; 32]) -> Result<bool> {
        // The locks hold back whoever revokes an ancestor until the token is there, to be revoked with it.
        let insert = format!(
            "INSERT INTO system_tokens ({COLUMNS}) SELECT $1, $2, $3, $4, $5, $6, $7, NULL, NULL, $8, $9
              WHERE cardinality($10::text[]) = (SELECT count(*) FROM (
                    SELECT 1 FROM system_tokens WHERE id = ANY($10) AND revoked_at IS NULL
                       AND (expires_at IS NULL OR (expires_at > $6 AND expires_at >= $7)) FOR SHARE) AS live)
             ON CONFLICT (id) DO UPDATE SET name = excluded.name WHERE system_tokens.digest = excluded.digest"
        );
        let created = on_server!(self, WRITE, |db| {
            let (name, scope, line) = (text(&token.name), text(&token.scope), ancestors_text(&token.ancestors));
            let (created_at, expires_at) = (token.created_at.micros(), token.expires_at.map(Timestamp::micros));
            let ApiToken { id, tenant, subject, ancestors, .. } = &token;
            let digest = &digest[..];
            Ok(db
                .execute_typed(
                    &insert,
                    args![id, &*name, tenant, subject, &*scope, created_at, expires_at, digest, line, ancestors],
                )
                .await?)
        })?;
        Ok(created.unwrap_or(0) > 0)
    }

    async fn token(&self, id: String) -> Result<Option<(ApiToken, Vec<u8>)>> {
        let find = format!("SELECT {COLUMNS} FROM system_tokens WHERE id = $1");
        let found = on_server!(self, READ, |db| {
            match db.query_typed_opt(&find, args![id]).await? {
                Some(row) => Ok(Some((token(&row)?, row.try_get(9)?))),
                None => Ok(None),
            }
        })?;
        Ok(found.flatten())
    }

    async fn tokens(&self) -> Result<Vec<ApiToken>> {
        let all = format!("SELECT {COLUMNS} FROM system_tokens ORDER BY created_at, id");
        let found = on_server!(self, READ, |db| { db.query_typed(&all, &[]).await?.iter().map(token).collect() })?;
        Ok(found.unwrap_or_default())
    }

    async fn token_page(&self, query: TokenQuery) -> Result<Vec<ApiToken>> {
        let TokenReach { caller, family } = query.reach;
        let (tenant, subject) =
            caller.map_or((query.tenant, query.subject), |(tenant, subject)| (Some(tenant), Some(subject)));
        let whose = if tenant.is_some() && subject.is_some() { OF_CALLER } else { OF_MANY };
        let page = format!("SELECT {COLUMNS} FROM system_tokens {whose} {PAGE}");
        let (at, id) = query.after.map_or((None, None), |(at, id)| (Some(at.micros()), Some(id)));
        let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
        let live_at = query.live_at.map(Timestamp::micros);
        let found = on_server!(self, READ, |db| {
            let values = args![tenant, subject, live_at, at, id, limit, family];
            db.query_typed(&page, values).await?.iter().map(token).collect()
        })?;
        Ok(found.unwrap_or_default())
    }

    async fn use_up_token(&self, id: String, now: Timestamp) -> Result<bool> {
        let revoke = "UPDATE system_tokens SET revoked_at = $2, used_at = $2
                      WHERE id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)";
        let used = on_server!(self, CHANGE, |db| { Ok(db.execute_typed(revoke, args![id, now.micros()]).await?) })?;
        Ok(used.unwrap_or(0) > 0)
    }

    async fn revoke_token(&self, id: String, reach: TokenReach, now: Timestamp) -> Result<bool> {
        let find = "SELECT ancestors || id FROM system_tokens
                     WHERE id = $1 AND ($2::text IS NULL OR (tenant = $2 AND subject = $3))
                       AND ($4::text IS NULL OR id = $4 OR position('/' || $4 || '/' IN '/' || ancestors) > 0)
                       FOR UPDATE";
        let revoke = "UPDATE system_tokens SET revoked_at = coalesce(revoked_at, $2) WHERE id = $1";
        let revoke_descendants = "UPDATE system_tokens SET revoked_at = coalesce(revoked_at, $2)
                                   WHERE ancestors <> '' AND ancestors >= $1 || '/' AND ancestors < $1 || '0'";
        let TokenReach { caller, family } = reach;
        let (tenant, subject) = caller.unzip();
        let revoked = on_server!(self, READ, |db| {
            let transaction = db.transaction().await?;
            // Its own statement: once the row is locked, no new descendant can come, and the next statement sees all.
            let Some(row) = transaction.query_typed_opt(find, args![id, tenant, subject, family]).await? else {
                return Ok(false);
            };
            let line: String = row.try_get(0)?;
            transaction.execute_typed(revoke, args![id, now.micros()]).await?;
            transaction.execute_typed(revoke_descendants, args![line, now.micros()]).await?;
            transaction.commit().await?;
            Ok(true)
        })?;
        Ok(revoked.unwrap_or(false))
    }

    async fn forget_ended_tokens(&self, tenant: String, subject: String, now: Timestamp) -> Result<(u64, u64)> {
        let forget = "DELETE FROM system_tokens
                      WHERE tenant = $1 AND subject = $2 AND (revoked_at IS NOT NULL OR expires_at <= $3)";
        let forgotten = on_server!(self, READ, |db| {
            let gone = db.execute_typed(forget, args![tenant, subject, now.micros()]).await?;
            let count = "SELECT count(*) FROM system_tokens WHERE tenant = $1 AND subject = $2";
            let live = db.query_typed_one(count, args![tenant, subject]).await?;
            Ok((gone, unsigned(live.try_get(0)?)))
        })?;
        Ok(forgotten.unwrap_or((0, 0)))
    }

    async fn token_used(&self, id: String, now: Timestamp, last: i64) -> Result<()> {
        let note = "UPDATE system_tokens SET used_at = $2 WHERE id = $1 AND (used_at IS NULL OR used_at <= $3)";
        on_server!(self, READ, |db| { Ok(db.execute_typed(note, args![id, now.micros(), last]).await?) })?;
        Ok(())
    }
}

fn token(row: &Row) -> Outcome<ApiToken> {
    let time = |index: usize| row.try_get::<_, Option<i64>>(index).map(|micros| micros.map(Timestamp));
    Ok(ApiToken {
        id: row.try_get(0)?,
        name: row.try_get(1)?,
        tenant: row.try_get(2)?,
        subject: row.try_get(3)?,
        scope: row.try_get(4)?,
        created_at: Timestamp(row.try_get(5)?),
        expires_at: time(6)?,
        revoked_at: time(7)?,
        used_at: time(8)?,
        ancestors: ancestors_of(row.try_get(10)?),
    })
}
