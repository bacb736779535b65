//! API tokens: their text form, and their rows. A row holds a digest, from which no token can be made.
//!
//! A token is `hd_<id>_<secret><check>` in lower case hex: 8 bytes of `id`, which lists may show; 32 bytes of
//! `secret`; and the first 4 bytes of the SHA-256 of all text before them, so that a leak scanner recognises real
//! tokens, and a mistyped token costs no query.

use std::time::Duration;

use aes_gcm::aead::Generate;
use helmdeck_core::{Secret, Timestamp, hex};
use helmdeck_memory::{Result, StoreError};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::system::{System, before};

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
    pub(crate) id: &'a str,
    pub(crate) digest: [u8; 32],
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
        (token.revoked_at, token.used_at) = (None, None);
        let mut text = Zeroizing::new(format!("{PREFIX}{}_{}", token.id, *random));
        let check = check_of(&text);
        text.push_str(&check);
        self.driver().insert_token(token.clone(), digest_of(&random)).await?;
        Ok((token, Secret::new(text.to_string())))
    }

    /// Returns the data of a presented token, `None` if it does not exist. It may have expired.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn find_token(&self, shown: &Shown<'_>) -> Result<Option<ApiToken>> {
        let found = self.driver().token(shown.id.to_owned()).await?;
        Ok(found.filter(|(_, kept)| same(kept, &shown.digest)).map(|(token, _)| token))
    }

    /// Returns every token, the oldest first.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn tokens(&self) -> Result<Vec<ApiToken>> {
        self.driver().tokens().await
    }

    /// Returns a page of tokens, the newest first.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn token_page(&self, query: TokenQuery) -> Result<Vec<ApiToken>> {
        self.driver().token_page(query).await
    }

    /// Revokes a token that is valid, as its only use; `false` if it is not valid, or was used before.
    ///
    /// Of several callers at the same time, one gets `true`. Creates no database.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn use_up_token(&self, id: &str, now: Timestamp) -> Result<bool> {
        self.driver().use_up_token(id.to_owned(), now).await
    }

    /// Revokes a token of one user by its id; `false` if the user has none of this id. Creates no database.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn revoke_token_of(&self, tenant: &str, subject: &str, id: &str, now: Timestamp) -> Result<bool> {
        let caller = Some((tenant.to_owned(), subject.to_owned()));
        self.driver().revoke_token(id.to_owned(), caller, now).await
    }

    /// Revokes a token by its id; `false` if it does not exist.
    ///
    /// A second call keeps the first time. Creates no database.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn revoke_token(&self, id: &str, now: Timestamp) -> Result<bool> {
        self.driver().revoke_token(id.to_owned(), None, now).await
    }

    /// Deletes the ended tokens of a caller, and returns how many are still valid. Creates no database.
    ///
    /// SQLite overwrites the bytes, and empties the log unless a reader prevents it.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn forget_ended_tokens(&self, tenant: &str, subject: &str, now: Timestamp) -> Result<u64> {
        let (_, live) = self.driver().forget_ended_tokens(tenant.to_owned(), subject.to_owned(), now).await?;
        Ok(live)
    }

    /// Records the use of a token, at most once per [`USED_EVERY`]. Creates no database.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn token_used(&self, id: &str, now: Timestamp) -> Result<()> {
        self.driver().token_used(id.to_owned(), now, before(now, USED_EVERY)).await
    }
}

/// Returns 32 random bytes in hex.
fn random() -> Result<Zeroizing<String>> {
    let bytes = Zeroizing::new(<[u8; SECRET_DIGITS / 2]>::try_generate().map_err(StoreError::unavailable)?);
    Ok(Zeroizing::new(hex(&*bytes)))
}

#[cfg(test)]
mod tests;
