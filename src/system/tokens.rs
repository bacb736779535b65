//! API tokens: their text form, and their rows. A row holds a digest, from which no token can be
//! made.
//!
//! A token is `hd_<id>_<secret><check>` in lower case hex: 8 bytes of `id`, which lists may show;
//! 32 bytes of `secret`; and the first 4 bytes of the SHA-256 of all text before them, so that a
//! leak scanner recognises real tokens, and a mistyped token costs no query.

mod seal;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use aes_gcm::aead::Generate;
use helmdeck_core::{Caller, Credential, Permission, Secret, SignIn, Timestamp, hex};
use helmdeck_memory::{Result, StoreError};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use self::seal::TokenHead;
pub(crate) use self::seal::TokenSeal;
use crate::driver::{NextHead, TokenRow, TokenSeals};
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

/// Word in the scope of a browser's token: it is good for the pages only. No permission has this
/// name.
pub const PAGES: &str = "ui";

/// Word in the scope of a browser's token whose person signed in with a JSON Web Token. No
/// permission has this name.
pub const OF_JWT: &str = "jwt";

/// Word in the scope of a sign-in link: it is exchanged once for a browser's token. No permission
/// has this name.
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
    /// Ids of the tokens that it descends from, the one that makes it last. It ends with each of
    /// them.
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
        self.scope
            .split_ascii_whitespace()
            .any(|known| known == word)
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
        Self {
            reach,
            tenant: None,
            subject: None,
            live_at: None,
            after: None,
            limit,
        }
    }
}

/// A well-formed token, as presented by a client. Nothing is proven: anybody can write one with a
/// known id.
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
        let hex_digits = |text: &str| {
            text.bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        if id.len() != ID_DIGITS
            || rest.len() != SECRET_DIGITS + CHECK_DIGITS
            || !hex_digits(id)
            || !hex_digits(rest)
        {
            return None;
        }
        let (secret, check) = rest.split_at(SECRET_DIGITS);
        (check_of(&text[..text.len() - CHECK_DIGITS]) == check).then(|| Self {
            id,
            digest: digest_of(secret),
        })
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
        Self {
            caller: None,
            family: None,
        }
    }

    /// Reach of a caller: an administrator's is all tokens; that of an API token is itself and what
    /// descends from it, and so is that of a browser that was signed in with it; that of any other
    /// caller is the tokens of its user.
    #[must_use]
    pub fn of(caller: &Caller) -> Self {
        if caller.permissions.allow(&Permission::Admin) {
            return Self::all();
        }
        let family = match &caller.credential {
            Credential::Token(token) => match token.browser {
                Some(SignIn::Token) => token.ancestors.last().cloned(),
                Some(SignIn::Link) => None,
                Some(SignIn::Jwt) | None => Some(token.id.clone()),
            },
            Credential::None | Credential::Jwt { .. } => None,
        };
        Self {
            caller: Some((
                caller.identity.tenant().to_owned(),
                caller.identity.user().to_owned(),
            )),
            family,
        }
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
    /// `Invalid` if an ancestor has ended or expires earlier, or if they are more than
    /// [`MAX_ANCESTORS`]; `Unavailable`, `Corrupt`.
    pub async fn create_token(&self, new: NewToken) -> Result<(ApiToken, Secret)> {
        if new.ancestors.len() > MAX_ANCESTORS {
            return Err(StoreError::Invalid(
                "a token descends from at most 8 others",
            ));
        }
        let (mut id, random) = (random()?, random()?);
        id.truncate(ID_DIGITS);
        // No text in PostgreSQL can hold it, and the seal binds what is stored.
        let clean = |text: String| {
            if text.contains('\0') {
                text.replace('\0', "\u{FFFD}")
            } else {
                text
            }
        };
        let token = ApiToken {
            id: id.to_string(),
            name: clean(new.name),
            tenant: new.tenant,
            subject: new.subject,
            scope: clean(new.scope),
            created_at: new.created_at,
            expires_at: new.expires_at,
            revoked_at: None,
            used_at: None,
            ancestors: new.ancestors,
        };
        let mut text = Zeroizing::new(format!("{PREFIX}{}_{}", token.id, *random));
        let check = check_of(&text);
        text.push_str(&check);
        let digest = digest_of(&random);
        let seal = self.seal_of(&token, &digest).await?;
        if !self
            .driver()
            .insert_token(token.clone(), digest, seal)
            .await?
        {
            return Err(StoreError::Invalid(
                "a token that makes another one must be valid as long as that one",
            ));
        }
        Ok((token, Secret::new(text.to_string())))
    }

    /// Returns the seal of a new token, if there is a memory key.
    async fn seal_of(&self, token: &ApiToken, digest: &[u8]) -> Result<Option<Vec<u8>>> {
        let stored = self
            .driver()
            .token_head()
            .await?
            .and_then(|(_, sealed)| sealed);
        let Some(seal) = self.token_seal() else {
            return match stored {
                None => Ok(None),
                Some(_) => Err(StoreError::Invalid(
                    "tokens here are sealed with the memory key, and it is not set",
                )),
            };
        };
        let stored = match stored {
            Some(stored) => stored,
            None => {
                self.driver()
                    .first_token_head(seal.seal(&TokenHead::new()?, None)?)
                    .await?;
                self.driver()
                    .token_head()
                    .await?
                    .and_then(|(_, sealed)| sealed)
                    .unwrap_or_default()
            }
        };
        let broken = StoreError::Invalid(
            "the head of the tokens does not open; `helmdeck token adopt` makes a new one",
        );
        let head = seal.open(&stored).ok_or(broken)?;
        seal.seal_row((&head, &stored), token, digest).map(Some)
    }

    /// Returns what makes the next head when tokens end.
    fn next_head(&self, now: Timestamp) -> NextHead {
        match self.token_seal() {
            Some(seal) => seal.next_head(now),
            None => Arc::new(|_, _| None),
        }
    }

    /// Returns whether a row is a token: where there is a memory key, only one that was sealed with
    /// it and has not ended.
    async fn is_sealed(&self, row: &TokenRow) -> Result<bool> {
        let Some(seal) = self.token_seal() else {
            return Ok(true);
        };
        let head = match seal.known(row.generation) {
            Some(head) => head,
            None => {
                let (generation, sealed) = self.driver().token_head().await?.unwrap_or_default();
                seal.learn(generation, sealed.as_deref())
            }
        };
        let sealed = head.is_some_and(|head| seal.proves(&head, row));
        if !sealed && row.token.revoked_at.is_none() {
            tracing::warn!(
                token = row.token.id,
                "an API token is refused: it was made without the memory key, altered, or put back; `helmdeck token adopt` \
                 shows those that were made before there was a key"
            );
        }
        Ok(sealed)
    }

    /// Returns the valid tokens that are refused because no seal proves them. Empty without a
    /// memory key.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn unsealed_tokens(&self, now: Timestamp) -> Result<Vec<ApiToken>> {
        let Some(seal) = self.token_seal().cloned() else {
            return Ok(Vec::new());
        };
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let look = move |sealed: Option<&[u8]>, rows: Vec<TokenRow>| {
            let head = sealed.and_then(|sealed| seal.open(sealed));
            // What has ended is not asked about: somebody put it back.
            let counts = |row: &TokenRow| {
                head.as_ref()
                    .is_some_and(|h| h.has_ended(&row.token) || seal.proves(h, row))
            };
            let unsealed = rows
                .into_iter()
                .filter(|row| row.token.is_live(now) && !counts(row));
            // Nobody waits for it if the call was given up.
            let _ = sender.send(unsealed.map(|row| row.token).collect::<Vec<_>>());
            Ok(None)
        };
        self.driver().seal_tokens(Box::new(look)).await?;
        Ok(receiver.await.unwrap_or_default())
    }

    /// Seals tokens, because an operator says that they are genuine: they were made before there
    /// was a memory key, or the head is lost. A token that is known to have ended stays so.
    ///
    /// # Errors
    /// `Invalid` without a memory key; `Unavailable`, `Corrupt`.
    pub async fn adopt_tokens(&self, ids: Vec<String>, now: Timestamp) -> Result<()> {
        let no_key = StoreError::Invalid("there is no memory key to seal tokens with");
        let seal = self.token_seal().cloned().ok_or(no_key)?;
        let adopt = move |before: Option<&[u8]>, rows: Vec<TokenRow>| {
            let (mut head, before) = match before.and_then(|before| seal.open(before)) {
                Some(head) => (head, before),
                None => (TokenHead::new()?, None),
            };
            head.end(&[], now);
            let sealed = seal.seal(&head, before)?;
            let adopted = rows
                .iter()
                .filter(|row| ids.contains(&row.token.id) && !head.has_ended(&row.token));
            let row = |row: &TokenRow| {
                Ok((
                    row.token.id.clone(),
                    seal.seal_row((&head, &sealed), &row.token, &row.digest)?,
                ))
            };
            let rows = adopted.map(row).collect::<Result<_>>()?;
            Ok(Some(TokenSeals { head: sealed, rows }))
        };
        self.driver().seal_tokens(Box::new(adopt)).await
    }

    /// Seals all sealed tokens with the current memory key; returns how many there are. Others stay
    /// as they are.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn reseal_tokens(&self, now: Timestamp) -> Result<u64> {
        let Some(seal) = self.token_seal().cloned() else {
            return Ok(0);
        };
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let reseal = move |sealed: Option<&[u8]>, rows: Vec<TokenRow>| {
            let Some(mut head) = sealed.and_then(|sealed| seal.open(sealed)) else {
                return Ok(None);
            };
            let rows: Vec<_> = rows
                .into_iter()
                .filter(|row| seal.proves(&head, row))
                .collect();
            head.end(&[], now);
            let sealed = seal.seal(&head, None)?;
            let row = |row: TokenRow| {
                Ok((
                    row.token.id.clone(),
                    seal.seal_row((&head, &sealed), &row.token, &row.digest)?,
                ))
            };
            let rows = rows.into_iter().map(row).collect::<Result<Vec<_>>>()?;
            let _ = sender.send(rows.len() as u64);
            Ok(Some(TokenSeals { head: sealed, rows }))
        };
        self.driver().seal_tokens(Box::new(reseal)).await?;
        Ok(receiver.await.unwrap_or(0))
    }

    /// Compares the secret of a presented token, and returns its data; `None` if it does not exist.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn prove_token(&self, presented: &PresentedToken<'_>) -> Result<Option<ProvenToken>> {
        let found = self.driver().token(presented.id.to_owned()).await?;
        let Some(row) = found.filter(|row| same(&row.digest, &presented.digest)) else {
            return Ok(None);
        };
        Ok(self
            .is_sealed(&row)
            .await?
            .then_some(ProvenToken(row.token)))
    }

    /// Returns when tokens made with a credential expire at the latest; `None` = never.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn latest_expiry(&self, credential: &Credential) -> Result<Option<Timestamp>> {
        let Credential::Token(token) = credential else {
            return Ok(credential.expires_at());
        };
        match (token.browser, token.ancestors.last()) {
            (Some(SignIn::Token), Some(parent)) => {
                let parent = self.driver().token(parent.clone()).await?;
                Ok(parent.map_or(token.expires_at, |parent| parent.token.expires_at))
            }
            (Some(SignIn::Link), _) => Ok(None),
            _ => Ok(token.expires_at),
        }
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

    /// Revokes a token that is valid, as its only use; `false` if it is not valid, or was used
    /// before.
    ///
    /// Of several callers at the same time, one gets `true`. Creates no database.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn use_up_token(&self, token: &ProvenToken, now: Timestamp) -> Result<bool> {
        self.driver()
            .use_up_token(token.id.clone(), now, self.next_head(now))
            .await
    }

    /// Revokes a token within a reach and all that descend from it; `false` if the reach has none
    /// of this id.
    ///
    /// A second call keeps the first time. Creates no database.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn revoke_token(&self, id: &str, reach: &TokenReach, now: Timestamp) -> Result<bool> {
        self.driver()
            .revoke_token(id.to_owned(), reach.clone(), now, self.next_head(now))
            .await
    }

    /// Revokes a token, and all that descend from it, because its holder asked for it.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn give_up_token(&self, token: &ProvenToken, now: Timestamp) -> Result<bool> {
        let itself = TokenReach {
            caller: None,
            family: Some(token.id.clone()),
        };
        self.driver()
            .revoke_token(token.id.clone(), itself, now, self.next_head(now))
            .await
    }

    /// Deletes the ended tokens of a caller, and returns how many are still valid. Creates no
    /// database.
    ///
    /// SQLite overwrites the bytes, and empties the log unless a reader prevents it.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn forget_ended_tokens(
        &self,
        tenant: &str,
        subject: &str,
        now: Timestamp,
    ) -> Result<u64> {
        let (_, live) = self
            .driver()
            .forget_ended_tokens(tenant.to_owned(), subject.to_owned(), now)
            .await?;
        Ok(live)
    }

    /// Records the use of a token, at most once per [`USED_EVERY`]. Creates no database.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn token_used(&self, id: &str, now: Timestamp) -> Result<()> {
        self.driver()
            .token_used(id.to_owned(), now, before(now, USED_EVERY))
            .await
    }
}

/// Returns 32 random bytes in hex.
fn random() -> Result<Zeroizing<String>> {
    let bytes =
        Zeroizing::new(<[u8; SECRET_DIGITS / 2]>::try_generate().map_err(StoreError::unavailable)?);
    Ok(Zeroizing::new(hex(&*bytes)))
}

#[cfg(test)]
mod tests;
