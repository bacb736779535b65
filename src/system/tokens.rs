//! API tokens: their text form, and their rows. A row holds a digest, from which no token can be made.
//!
//! A token is `hd_<id>_<secret><check>` in lower case hex: 8 bytes of `id`, which lists may show; 32 bytes of
//! `secret`; and the first 4 bytes of the SHA-256 of all text before them, so that a leak scanner recognises real
//! tokens, and a mistyped token costs no query.

use std::ops::Deref;
use std::time::Duration;

use aes_gcm::aead::Generate;
use helmdeck_core::{Caller, Credential, Permission, Secret, Timestamp, hex};
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

/// Maximum number of tokens that a token descends from.
pub const MAX_ANCESTORS: usize = 8;

/// Token to create.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// Name in lists; may be empty.
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
    /// Ids of the tokens that it descends from, the one that makes it last. It ends with each of them.
    pub ancestors: Vec<String>,
}

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
    /// Ids of the tokens that it descends from, the one that made it last.
    pub ancestors: Vec<String>,
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
#[derive(Debug, Clone)]
pub struct TokenQuery {
    /// The reach of whoever asks. One that is for a single caller replaces `tenant` and `subject`.
    pub reach: TokenReach,
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

impl TokenQuery {
    /// Returns a query for all tokens of a reach.
    #[must_use]
    pub const fn new(reach: TokenReach, limit: usize) -> Self {
        Self { reach, tenant: None, subject: None, live_at: None, after: None, limit }
    }
}

/// A well-formed token, as presented by a client. Nothing is proven: anybody can write one with a known id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PresentedToken<'a> {
    pub(crate) id: &'a str,
    pub(crate) digest: [u8; 32],
}

impl<'a> PresentedToken<'a> {
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
}

/// A token whose secret was compared with its row. Only [`System::prove_token`] makes one.
///
/// The token may have ended since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenToken(ApiToken);

impl Deref for ProvenToken {
    type Target = ApiToken;

    fn deref(&self) -> &ApiToken {
        &self.0
    }
}

/// Tokens that somebody is allowed to list and revoke. An id alone gives no reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenReach {
    /// Only those of one tenant and user.
    pub(crate) caller: Option<(String, String)>,
    /// Only the token of this id and its descendants.
    pub(crate) family: Option<String>,
}

impl TokenReach {
    /// Reach of an operator: all tokens.
    #[must_use]
    pub const fn all() -> Self {
        Self { caller: None, family: None }
    }

    /// Reach of a caller: an administrator's is all tokens; that of an API token is itself and what descends from it; that
    /// of any other caller is the tokens of its user.
    #[must_use]
    pub fn of(caller: &Caller) -> Self {
        if caller.permissions.allow(&Permission::Admin) {
            return Self::all();
        }
        let family = match &caller.credential {
            Credential::Token(token) => Some(token.id.clone()),
            Credential::None | Credential::Jwt { .. } => None,
        };
        Self { caller: Some((caller.identity.tenant().to_owned(), caller.identity.user().to_owned())), family }
    }
}

/// Returns the ids of ancestors as their column has them: each one ends with `/`.
pub(crate) fn ancestors_text(ids: &[String]) -> String {
    ids.iter().map(|id| format!("{id}/")).collect()
}

/// Reads the column of the ancestors.
pub(crate) fn ancestors_of(text: &str) -> Vec<String> {
    text.split_terminator('/').map(str::to_owned).collect()
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
    /// It ends with each of its ancestors: it is revoked with them.
    ///
    /// # Errors
    /// `Invalid` if an ancestor has ended or expires earlier, or if they are more than [`MAX_ANCESTORS`]; `Unavailable`,
    /// `Corrupt`.
    pub async fn create_token(&self, new: NewToken) -> Result<(ApiToken, Secret)> {
        if new.ancestors.len() > MAX_ANCESTORS {
            return Err(StoreError::Invalid("a token descends from at most 8 others"));
        }
        let (mut id, random) = (random()?, random()?);
        id.truncate(ID_DIGITS);
        let token = ApiToken {
            id: id.to_string(),
            name: new.name,
            tenant: new.tenant,
            subject: new.subject,
            scope: new.scope,
            created_at: new.created_at,
            expires_at: new.expires_at,
            revoked_at: None,
            used_at: None,
            ancestors: new.ancestors,
        };
        let mut text = Zeroizing::new(format!("{PREFIX}{}_{}", token.id, *random));
        let check = check_of(&text);
        text.push_str(&check);
        if !self.driver().insert_token(token.clone(), digest_of(&random)).await? {
            return Err(StoreError::Invalid("a token that makes another one must be valid as long as that one"));
        }
        Ok((token, Secret::new(text.to_string())))
    }

    /// Compares the secret of a presented token, and returns its data; `None` if it does not exist.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn prove_token(&self, presented: &PresentedToken<'_>) -> Result<Option<ProvenToken>> {
        let found = self.driver().token(presented.id.to_owned()).await?;
        Ok(found.filter(|(_, kept)| same(kept, &presented.digest)).map(|(token, _)| ProvenToken(token)))
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
    pub async fn use_up_token(&self, token: &ProvenToken, now: Timestamp) -> Result<bool> {
        self.driver().use_up_token(token.id.clone(), now).await
    }

    /// Revokes a token within a reach and all that descend from it; `false` if the reach has none of this id.
    ///
    /// A second call keeps the first time. Creates no database.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn revoke_token(&self, id: &str, reach: &TokenReach, now: Timestamp) -> Result<bool> {
        self.driver().revoke_token(id.to_owned(), reach.clone(), now).await
    }

    /// Revokes a token, and all that descend from it, because its holder asked for it.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn give_up_token(&self, token: &ProvenToken, now: Timestamp) -> Result<bool> {
        let itself = TokenReach { caller: None, family: Some(token.id.clone()) };
        self.driver().revoke_token(token.id.clone(), itself, now).await
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
