//! API tokens: their text form, and their rows. A row holds a digest, from which no token can be made.
//!
//! A token is `hd_<id>_<secret><check>` in lower case hex: 8 bytes of `id`, which lists may show; 32 bytes of
//! `secret`; and the first 4 bytes of the SHA-256 of all text before them, so that a leak scanner recognises real
//! tokens, and a mistyped token costs no query.

use std::time::Duration;

use aes_gcm::aead::Generate;
use helmdeck_core::numbers::unsigned;
use helmdeck_core::{Secret, Timestamp, hex};
use helmdeck_memory::{Result, StoreError};
use rusqlite::{Connection, OptionalExtension, Row};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::database::{System, before, empty_log};

/// Prefix of every token.
pub const PREFIX: &str = "hd_";

const ID_DIGITS: usize = 16;
const SECRET_DIGITS: usize = 64;
const CHECK_DIGITS: usize = 8;

/// How often a use is written: `used_at` is accurate to within this.
pub const USED_EVERY: Duration = Duration::from_secs(60);

/// How long a token stays in lists after it was revoked or expired.
pub const TOKENS_KEPT: Duration = Duration::from_secs(90 * 24 * 3600);

/// Word in the scope of a browser's token: it is good for the pages only. No permission has this name.
pub const PAGES: &str = "ui";

/// Word in the scope of a sign-in link: it is exchanged once for a browser's token. No permission has this name.
pub const LINK: &str = "link";

/// Lifetime of a sign-in link.
pub const LINK_LIVES: Duration = Duration::from_secs(60);

/// Data of a token; never the token itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiToken {
    /// Id of the token in lists and for revoking: 16 hex digits.
    pub id: String,
    /// Name given at creation; may be empty.
    pub name: String,
    /// Tenant of the token.
    pub tenant: String,
    /// User of the token.
    pub subject: String,
    /// Scope, as words.
    pub scope: String,
    /// Creation time.
    pub created_at: Timestamp,
    /// When it expires; `None` = never.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// When it was last used, to within [`USED_EVERY`].
    pub used_at: Option<Timestamp>,
}

impl ApiToken {
    /// Returns whether the token is still valid.
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }

    /// Returns whether its scope has a word, which need not be a permission.
    #[must_use]
    pub fn has_word(&self, word: &str) -> bool {
        self.scope.split_ascii_whitespace().any(|known| known == word)
    }
}

/// Which tokens to list: those that fit every member that is set.
#[derive(Debug, Clone, Default)]
pub struct TokenQuery {
    /// The tenant.
    pub tenant: Option<String>,
    /// The user.
    pub subject: Option<String>,
    /// A time at which they are valid.
    pub live_at: Option<Timestamp>,
    /// Creation time and id of the last token of the page before.
    pub after: Option<(Timestamp, String)>,
    /// Maximum number of tokens.
    pub limit: usize,
}

/// A well-formed token, as presented by a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown<'a> {
    id: &'a str,
    digest: [u8; 32],
}

impl<'a> Shown<'a> {
    /// Reads the text of a token, `None` if it is not one.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let (id, rest) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let hex_digits = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if id.len() != ID_DIGITS || rest.len() != SECRET_DIGITS + CHECK_DIGITS || !hex_digits(id) || !hex_digits(rest) {
            return None;
        }
        let (secret, check) = rest.split_at(SECRET_DIGITS);
        (check_of(&text[..text.len() - CHECK_DIGITS]) == check).then(|| Self { id, digest: digest_of(secret) })
    }

    /// Returns the id.
    #[must_use]
    pub const fn id(&self) -> &'a str {
        self.id
    }
}

fn digest_of(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

fn check_of(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes())[..CHECK_DIGITS / 2])
}

/// Compares in a time that does not depend on where two digests differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
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
    })
}

impl System {
    /// Creates a token and returns its text, which is stored nowhere.
    ///
    /// `token` gives everything but the id; `revoked_at` and `used_at` are ignored.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn create_token(&self, mut token: ApiToken) -> Result<(ApiToken, Secret)> {
        let (mut id, random) = (random()?, random()?);
        id.truncate(ID_DIGITS);
        token.id = id.to_string();
        let mut text = Zeroizing::new(format!("{PREFIX}{}_{}", token.id, *random));
        let check = check_of(&text);
        text.push_str(&check);
        let (stored, digest) = (token.clone(), digest_of(&random));
        self.write(move |db| {
            db.prepare_cached(
                "INSERT INTO api_tokens (id, digest, name, tenant, subject, scope, created_at, expires_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute((
                &stored.id,
                digest,
                &stored.name,
                &stored.tenant,
                &stored.subject,
                &stored.scope,
                stored.created_at.micros(),
                stored.expires_at.map(Timestamp::micros),
            ))?;
            Ok(())
        })
        .await?;
        Ok((ApiToken { revoked_at: None, used_at: None, ..token }, Secret::new(text.to_string())))
    }

    /// Returns the data of a presented token, `None` if it does not exist. It may have expired.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn find_token(&self, shown: &Shown<'_>) -> Result<Option<ApiToken>> {
        let (id, digest) = (shown.id.to_owned(), shown.digest);
        let found = self.read(move |db| {
            let found = db
                .prepare_cached("SELECT * FROM api_tokens WHERE id = ?1")?
                .query_row([&id], |found| Ok((found.get::<_, Vec<u8>>("digest")?, row(found)?)))
                .optional()?;
            Ok(found.filter(|(kept, _)| same(kept, &digest)).map(|(_, token)| token))
        });
        Ok(found.await?.flatten())
    }

    /// Returns every token, the oldest first.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn tokens(&self) -> Result<Vec<ApiToken>> {
        let found = self.read(|db| {
            let mut all = db.prepare_cached("SELECT * FROM api_tokens ORDER BY created_at, id")?;
            let rows = all.query_map([], row)?;
            Ok(rows.collect::<Result<_, _>>()?)
        });
        Ok(found.await?.unwrap_or_default())
    }

    /// Returns a page of tokens, the newest first.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn token_page(&self, query: TokenQuery) -> Result<Vec<ApiToken>> {
        let found = self.read(move |db| {
            let mut page = db.prepare_cached(
                "SELECT * FROM api_tokens
                 WHERE (?1 IS NULL OR tenant = ?1) AND (?2 IS NULL OR subject = ?2)
                   AND (?3 IS NULL OR (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?3)))
                   AND (?4 IS NULL OR (created_at, id) < (?4, ?5))
                 ORDER BY created_at DESC, id DESC LIMIT ?6",
            )?;
            let (at, id) = query.after.map_or((None, None), |(at, id)| (Some(at.micros()), Some(id)));
            let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
            let live_at = query.live_at.map(Timestamp::micros);
            let rows = page.query_map((query.tenant, query.subject, live_at, at, id, limit), row)?;
            Ok(rows.collect::<Result<_, _>>()?)
        });
        Ok(found.await?.unwrap_or_default())
    }

    /// Revokes a token that is valid, as its only use; `false` if it is not valid, or was used before.
    ///
    /// Of several callers at the same time, one gets `true`. Creates no file.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn use_up_token(&self, id: &str, now: Timestamp) -> Result<bool> {
        let id = id.to_owned();
        let changed = self.read(move |db| {
            let mut revoke = db.prepare_cached(
                "UPDATE api_tokens SET revoked_at = ?2, used_at = ?2
                 WHERE id = ?1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2)",
            )?;
            Ok(revoke.execute((&id, now.micros()))?)
        });
        Ok(changed.await?.unwrap_or(0) > 0)
    }

    /// Revokes a token of one user by its id; `false` if the user has none of this id. Creates no file.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn revoke_token_of(&self, tenant: &str, subject: &str, id: &str, now: Timestamp) -> Result<bool> {
        let (tenant, subject, id) = (tenant.to_owned(), subject.to_owned(), id.to_owned());
        let changed = self.read(move |db| {
            let mut revoke = db.prepare_cached(
                "UPDATE api_tokens SET revoked_at = COALESCE(revoked_at, ?4)
                 WHERE id = ?1 AND tenant = ?2 AND subject = ?3",
            )?;
            Ok(revoke.execute((&id, &tenant, &subject, now.micros()))?)
        });
        Ok(changed.await?.unwrap_or(0) > 0)
    }

    /// Revokes a token by its id; `false` if it does not exist.
    ///
    /// A second call keeps the first time. Creates no file.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn revoke_token(&self, id: &str, now: Timestamp) -> Result<bool> {
        let id = id.to_owned();
        let changed = self.read(move |db| {
            let mut revoke =
                db.prepare_cached("UPDATE api_tokens SET revoked_at = COALESCE(revoked_at, ?2) WHERE id = ?1")?;
            Ok(revoke.execute((&id, now.micros()))?)
        });
        Ok(changed.await?.unwrap_or(0) > 0)
    }

    /// Deletes the ended tokens of a caller, and returns how many are still valid. Creates no file.
    ///
    /// The bytes are overwritten, and the log is emptied unless a reader prevents it.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn forget_ended_tokens(&self, tenant: &str, subject: &str, now: Timestamp) -> Result<u64> {
        let (tenant, subject) = (tenant.to_owned(), subject.to_owned());
        let live = self.read(move |db| {
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
            Ok(unsigned(live))
        });
        Ok(live.await?.unwrap_or(0))
    }

    /// Records the use of a token, at most once per [`USED_EVERY`]. Creates no file.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn token_used(&self, id: &str, now: Timestamp) -> Result<()> {
        let id = id.to_owned();
        let last = before(now, USED_EVERY);
        let noted = self.read(move |db| {
            let mut note = db.prepare_cached(
                "UPDATE api_tokens SET used_at = ?2 WHERE id = ?1 AND (used_at IS NULL OR used_at <= ?3)",
            )?;
            Ok(note.execute((&id, now.micros(), last))?)
        });
        noted.await.map(drop)
    }
}

/// Deletes tokens that ended longer ago than [`TOKENS_KEPT`].
pub(crate) fn sweep(db: &Connection, now: Timestamp) -> Result<usize> {
    let last = before(now, TOKENS_KEPT);
    Ok(db.prepare_cached("DELETE FROM api_tokens WHERE revoked_at < ?1 OR expires_at < ?1")?.execute([last])?)
}

/// Returns 32 random bytes in hex.
fn random() -> Result<Zeroizing<String>> {
    let bytes = Zeroizing::new(<[u8; SECRET_DIGITS / 2]>::try_generate().map_err(StoreError::unavailable)?);
    Ok(Zeroizing::new(hex(&*bytes)))
}

#[cfg(test)]
mod tests;
