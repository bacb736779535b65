//! API tokens.

use async_trait::async_trait;
use helmdeck_core::Timestamp;
use helmdeck_core::numbers::unsigned;
use helmdeck_memory::drivers::postgres::session::Outcome;
use helmdeck_memory::{Result, StoreError};
use tokio_postgres::{Row, Transaction};

use super::args::args;
use super::{CHANGE, Postgres, READ, WRITE, on_server, text};
use crate::driver::{DecideSeals, Ended, NextHead, TokenRow, TokenRows, TokenSeals};
use crate::tokens::{ApiToken, TokenQuery, TokenReach, ancestors_of, ancestors_text};

const COLUMNS: &str = "id, name, tenant, subject, scope, created_at, expires_at, revoked_at, used_at, digest, ancestors";

/// Tokens with their seals, and the generation of the head.
const STORED: &str =
    "SELECT id, name, tenant, subject, scope, created_at, expires_at, revoked_at, used_at, digest,
    ancestors, seal, generation FROM system_tokens CROSS JOIN system_token_state";
const LOCK_HEAD: &str = "SELECT head FROM system_token_state FOR UPDATE";
const PUT_HEAD: &str = "UPDATE system_token_state SET head = $1, generation = generation + 1";

/// Of one caller, over the index by caller; a plan does not depend on its parameters.
const OF_CALLER: &str = "WHERE tenant = $1 AND subject = $2";
/// Of everybody, of a tenant, or of everybody with a name.
const OF_MANY: &str =
    "WHERE ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR subject = $2)";
const PAGE: &str = "
   AND ($7::text IS NULL OR id = $7 OR position('/' || $7 || '/' IN '/' || ancestors) > 0)
   AND ($3::bigint IS NULL OR (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $3)))
   AND ($4::bigint IS NULL OR (created_at, id) < ($4, $5))
 ORDER BY created_at DESC, id DESC LIMIT $6";

#[async_trait]
impl TokenRows for Postgres {
    async fn insert_token(
        &self,
        token: ApiToken,
        digest: [u8; 32],
        seal: Option<Vec<u8>>,
    ) -> Result<bool> {
        // The locks hold back whoever revokes an ancestor until the token is there, to be revoked
        // with it.
        let insert = format!(
            "INSERT INTO system_tokens ({COLUMNS}, seal) SELECT $1, $2, $3, $4, $5, $6, $7, NULL, NULL, $8, $9, $11
              WHERE cardinality($10::text[]) = (SELECT count(*) FROM (
                    SELECT 1 FROM system_tokens WHERE id = ANY($10) AND revoked_at IS NULL
                       AND (expires_at IS NULL OR (expires_at > $6 AND expires_at >= $7))
                     ORDER BY length(ancestors), id FOR SHARE) AS live)
             ON CONFLICT (id) DO UPDATE SET name = excluded.name WHERE system_tokens.digest = excluded.digest"
        );
        let created = on_server!(self, WRITE, |db| {
            let (name, scope, line) = (
                text(&token.name),
                text(&token.scope),
                ancestors_text(&token.ancestors),
            );
            let (created_at, expires_at) = (
                token.created_at.micros(),
                token.expires_at.map(Timestamp::micros),
            );
            let ApiToken {
                id,
                tenant,
                subject,
                ancestors,
                ..
            } = &token;
            let digest = &digest[..];
            Ok(db
                .execute_typed(
                    &insert,
                    args![
                        id, &*name, tenant, subject, &*scope, created_at, expires_at, digest, line,
                        ancestors, seal
                    ],
                )
                .await?)
        })?;
        Ok(created.unwrap_or(0) > 0)
    }

    async fn token(&self, id: String) -> Result<Option<TokenRow>> {
        let find = format!("{STORED} WHERE id = $1");
        let found = on_server!(self, READ, |db| {
            db.query_typed_opt(&find, args![id])
                .await?
                .as_ref()
                .map(stored)
                .transpose()
        })?;
        Ok(found.flatten())
    }

    async fn token_head(&self) -> Result<Option<(u64, Option<Vec<u8>>)>> {
        on_server!(self, READ, |db| {
            let row = db
                .query_typed_one("SELECT generation, head FROM system_token_state", &[])
                .await?;
            Ok((unsigned(row.try_get(0)?), row.try_get(1)?))
        })
    }

    async fn first_token_head(&self, head: Vec<u8>) -> Result<()> {
        let first = "UPDATE system_token_state SET head = $1, generation = generation + 1 WHERE head IS NULL";
        on_server!(self, WRITE, |db| {
            Ok(db.execute_typed(first, args![head]).await?)
        })?;
        Ok(())
    }

    async fn seal_tokens(&self, decide: DecideSeals) -> Result<()> {
        let mut decide = Some(decide);
        let in_the_way = || StoreError::Unavailable {
            message: "another change of the tokens was in the way".to_owned(),
            source: None,
        };
        let all = format!("{STORED} ORDER BY created_at, id");
        on_server!(self, CHANGE, |db| {
            let transaction = db.transaction().await?;
            let head: Option<Vec<u8>> = transaction
                .query_typed_one(LOCK_HEAD, &[])
                .await?
                .try_get(0)?;
            let rows = transaction.query_typed(&all, &[]).await?;
            let rows = rows.iter().map(stored).collect::<Outcome<_>>()?;
            let decide = decide.take().ok_or_else(in_the_way)?;
            if let Some(TokenSeals { head, rows }) = decide(head.as_deref(), rows)? {
                transaction.execute_typed(PUT_HEAD, args![head]).await?;
                let (ids, seals): (Vec<String>, Vec<Vec<u8>>) = rows.into_iter().unzip();
                let seal = "UPDATE system_tokens t SET seal = n.seal
                              FROM unnest($1::text[], $2::bytea[]) AS n(id, seal) WHERE t.id = n.id";
                transaction.execute_typed(seal, args![ids, seals]).await?;
            }
            Ok(transaction.commit().await?)
        })?;
        Ok(())
    }

    async fn tokens(&self) -> Result<Vec<ApiToken>> {
        let all = format!("SELECT {COLUMNS} FROM system_tokens ORDER BY created_at, id");
        let found = on_server!(self, READ, |db| {
            db.query_typed(&all, &[]).await?.iter().map(token).collect()
        })?;
        Ok(found.unwrap_or_default())
    }

    async fn token_page(&self, query: TokenQuery) -> Result<Vec<ApiToken>> {
        let TokenReach { caller, family } = query.reach;
        let (tenant, subject) = caller
            .map_or((query.tenant, query.subject), |(tenant, subject)| {
                (Some(tenant), Some(subject))
            });
        let whose = if tenant.is_some() && subject.is_some() {
            OF_CALLER
        } else {
            OF_MANY
        };
        let page = format!("SELECT {COLUMNS} FROM system_tokens {whose} {PAGE}");
        let (at, id) = query
            .after
            .map_or((None, None), |(at, id)| (Some(at.micros()), Some(id)));
        let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
        let live_at = query.live_at.map(Timestamp::micros);
        let found = on_server!(self, READ, |db| {
            let values = args![tenant, subject, live_at, at, id, limit, family];
            db.query_typed(&page, values)
                .await?
                .iter()
                .map(token)
                .collect()
        })?;
        Ok(found.unwrap_or_default())
    }

    async fn use_up_token(&self, id: String, now: Timestamp, next: NextHead) -> Result<bool> {
        let revoke = "UPDATE system_tokens SET revoked_at = $2, used_at = $2
                      WHERE id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)
                      RETURNING id, expires_at";
        let used = on_server!(self, CHANGE, |db| {
            let transaction = db.transaction().await?;
            let ended = transaction
                .query_typed(revoke, args![id, now.micros()])
                .await?;
            end(&transaction, &ended, &next).await?;
            transaction.commit().await?;
            Ok(!ended.is_empty())
        })?;
        Ok(used.unwrap_or(false))
    }

    async fn revoke_token(
        &self,
        id: String,
        reach: TokenReach,
        now: Timestamp,
        next: NextHead,
    ) -> Result<bool> {
        let find = "SELECT ancestors || id FROM system_tokens
                     WHERE id = $1 AND ($2::text IS NULL OR (tenant = $2 AND subject = $3))
                       AND ($4::text IS NULL OR id = $4 OR position('/' || $4 || '/' IN '/' || ancestors) > 0)
                       FOR UPDATE";
        let revoke = "UPDATE system_tokens SET revoked_at = coalesce(revoked_at, $2) WHERE id = $1
                      RETURNING id, expires_at";
        let revoke_descendants = "UPDATE system_tokens SET revoked_at = coalesce(revoked_at, $2)
                                   WHERE ancestors <> '' AND ancestors >= $1 || '/' AND ancestors < $1 || '0'
                                   RETURNING id, expires_at";
        let TokenReach { caller, family } = reach;
        let (tenant, subject) = caller.unzip();
        let revoked = on_server!(self, READ, |db| {
            let transaction = db.transaction().await?;
            // Its own statement: once the row is locked, no new descendant can come, and the next
            // statement sees all.
            let Some(row) = transaction
                .query_typed_opt(find, args![id, tenant, subject, family])
                .await?
            else {
                return Ok(false);
            };
            let line: String = row.try_get(0)?;
            let mut ended = transaction
                .query_typed(revoke, args![id, now.micros()])
                .await?;
            ended.extend(
                transaction
                    .query_typed(revoke_descendants, args![line, now.micros()])
                    .await?,
            );
            end(&transaction, &ended, &next).await?;
            transaction.commit().await?;
            Ok(true)
        })?;
        Ok(revoked.unwrap_or(false))
    }

    async fn forget_ended_tokens(
        &self,
        tenant: String,
        subject: String,
        now: Timestamp,
    ) -> Result<(u64, u64)> {
        let forget = "DELETE FROM system_tokens
                      WHERE tenant = $1 AND subject = $2 AND (revoked_at IS NOT NULL OR expires_at <= $3)";
        let forgotten = on_server!(self, READ, |db| {
            let gone = db
                .execute_typed(forget, args![tenant, subject, now.micros()])
                .await?;
            let count = "SELECT count(*) FROM system_tokens WHERE tenant = $1 AND subject = $2";
            let live = db.query_typed_one(count, args![tenant, subject]).await?;
            Ok((gone, unsigned(live.try_get(0)?)))
        })?;
        Ok(forgotten.unwrap_or((0, 0)))
    }

    async fn token_used(&self, id: String, now: Timestamp, last: i64) -> Result<()> {
        let note = "UPDATE system_tokens SET used_at = $2 WHERE id = $1 AND (used_at IS NULL OR used_at <= $3)";
        on_server!(self, READ, |db| {
            Ok(db
                .execute_typed(note, args![id, now.micros(), last])
                .await?)
        })?;
        Ok(())
    }
}

/// Writes the next head for tokens that were ended in a transaction.
async fn end(transaction: &Transaction<'_>, rows: &[Row], next: &NextHead) -> Outcome<()> {
    let ended: Vec<Ended> = rows
        .iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect::<Outcome<_>>()?;
    if ended.is_empty() {
        return Ok(());
    }
    let head: Option<Vec<u8>> = transaction
        .query_typed_one(LOCK_HEAD, &[])
        .await?
        .try_get(0)?;
    if let Some(head) = next(head.as_deref(), &ended) {
        transaction.execute_typed(PUT_HEAD, args![head]).await?;
    }
    Ok(())
}

fn stored(row: &Row) -> Outcome<TokenRow> {
    let (digest, seal) = (row.try_get(9)?, row.try_get(11)?);
    Ok(TokenRow {
        token: token(row)?,
        digest,
        seal,
        generation: unsigned(row.try_get(12)?),
    })
}

fn token(row: &Row) -> Outcome<ApiToken> {
    let time = |index: usize| {
        row.try_get::<_, Option<i64>>(index)
            .map(|micros| micros.map(Timestamp))
    };
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
