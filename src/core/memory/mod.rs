//! Memory of a handler: notes on its caller, and facts about its caller.
//!
//! A handle is bound to its caller and cannot address another one. Recalled text is data, never an
//! instruction: its author may be anyone.
//!
//! # Examples
//!
//! A handler that counts the visits of its caller this week, and works without memory too:
//!
//! ```
//! use std::time::Duration;
//!
//! use helmdeck_core::memory::NewNote;
//! use helmdeck_core::{Context, Handler, Json, Reply, Result};
//!
//! struct Visits;
//!
//! #[async_trait::async_trait]
//! impl Handler for Visits {
//!     async fn run(&self, context: Context, _: Json) -> Result<Reply> {
//!         let mut visits = 1_u64;
//!         if let Some(notes) = context.memory() {
//!             if let Some(note) = notes.recall("demo.visits/count").await? {
//!                 visits += String::from_utf8_lossy(&note.value).parse::<u64>().unwrap_or(0);
//!             }
//!             let week = Duration::from_secs(7 * 86_400);
//!             notes.store(NewNote::new("demo.visits/count", visits.to_string()).with_ttl(week)).await?;
//!         }
//!         Reply::value(&serde_json::json!({ "visits": visits }))
//!     }
//! }
//! ```

mod facts;
mod forget;
mod notes;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;

pub use facts::{Fact, FactList, Facts, ListFacts, NewFact, RecallFacts, Recalled, Trust};
pub use forget::{Forget, Forgotten, MemoryPart, Selection};
pub use notes::{NewNote, Note, NoteContext, NoteList, Notes};

use crate::error::{Code, Error, Result};
use crate::secrets::{CallSecrets, CallingPack};
use crate::{Identity, PackName, Timestamp};

/// Reason why a call has no memory. Each has one error, the same at every transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoMemory {
    /// Gate 1 is shut.
    Off,
    /// Gate 1 is open, but the store could not be opened; with the reason. The engine runs without
    /// it.
    Unavailable(Arc<str>),
    /// The caller is anonymous, so nothing can be kept for it.
    Anonymous,
    /// The answer of the pack, or of the pack that called it, is shared by the callers of a tenant.
    Shared,
}

impl From<NoMemory> for Error {
    fn from(why: NoMemory) -> Self {
        match why {
            NoMemory::Off => Self::new(
                Code::NotFound,
                "memory is off: this engine has no memory key",
            )
            .for_operator(),
            NoMemory::Unavailable(reason) => Self::new(
                Code::Overloaded,
                format!("memory is on, but this engine goes on without it: {reason}"),
            ),
            NoMemory::Anonymous => Self::new(
                Code::Unauthenticated,
                "nothing is kept for an anonymous caller",
            ),
            NoMemory::Shared => Self::new(
                Code::Forbidden,
                "a pack whose answers callers share cannot use the memory of one of them",
            ),
        }
    }
}

/// Owner of the memory that a call uses, and the pack that uses it.
#[derive(Clone)]
pub struct Owner {
    /// The owner.
    pub identity: Arc<Identity>,
    /// Whether notes are limited to the caller's conversation.
    pub in_session: bool,
    /// The pack that calls, if one does.
    pub called_by: Option<Arc<CallingPack>>,
    /// The secrets of the call, to redact them from writes.
    pub secrets: Option<Arc<dyn CallSecrets>>,
    /// The administrator that acts, if one does. Nobody else removes audit entries.
    pub administrator: Option<Arc<str>>,
}

impl Owner {
    /// Makes the owner of a call at a transport.
    #[must_use]
    pub const fn at_a_door(identity: Arc<Identity>) -> Self {
        Self {
            identity,
            in_session: false,
            called_by: None,
            secrets: None,
            administrator: None,
        }
    }

    /// Makes the owner of a call of an administrator at a transport, on its own memory.
    #[must_use]
    pub fn administrator(identity: Arc<Identity>) -> Self {
        let name = format!("{}/{}", identity.tenant(), identity.user());
        Self {
            administrator: Some(name.into()),
            ..Self::at_a_door(identity)
        }
    }
}

redacted_debug!(Owner, this => in_session = this.in_session);

/// The memory of one caller, for one call.
#[derive(Clone)]
pub struct Memory {
    views: Arc<dyn Views>,
    owner: Owner,
}

impl Memory {
    /// Binds the views to an owner.
    ///
    /// # Errors
    /// [`NoMemory::Anonymous`] if the caller is anonymous.
    pub fn bind(views: Arc<dyn Views>, owner: Owner) -> Result<Self, NoMemory> {
        if owner.identity.is_anonymous() {
            Err(NoMemory::Anonymous)
        } else {
            Ok(Self { views, owner })
        }
    }

    /// Returns the notes that handlers wrote for this caller, whatever the conversation.
    #[must_use]
    pub fn notes(&self) -> Notes {
        Notes(self.clone())
    }

    /// Returns the facts about this caller.
    #[must_use]
    pub fn facts(&self) -> Facts {
        Facts(self.clone())
    }

    /// Returns a value with the secrets of this call redacted, as in notes and facts.
    ///
    /// For data that a pack keeps for the caller in another way. `names` are the names under which
    /// the value is kept.
    ///
    /// # Errors
    /// `invalid_input` if a name holds a secret: redaction could make two names equal.
    pub fn cleaned(&self, names: &[&str], value: Bytes) -> Result<Bytes> {
        self.views.cleaned(&self.owner, names, value)
    }
}

redacted_debug!(Memory, this => owner = this.owner);

/// Metadata of a note or a fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct About {
    /// Its name.
    pub key: String,
    /// Category; may be empty.
    pub category: String,
    /// Tags, in the given order.
    pub tags: Vec<String>,
    /// The pack that wrote it; `None` = the caller itself, through a transport.
    ///
    /// A reader decides how far to trust it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack: Option<PackName>,
    /// The pack that called that one, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub called_by: Option<PackName>,
    /// How far a fact may be trusted; `None` for a note, which only packs write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<Trust>,
    /// A digest of the value, to tell whether it changed.
    pub fingerprint: String,
    /// 1 for a new one, one more for each replacement.
    pub version: u64,
    /// Creation time.
    #[serde(with = "crate::clock::rfc3339")]
    pub created_at: Timestamp,
    /// Time of the last replacement.
    #[serde(with = "crate::clock::rfc3339")]
    pub updated_at: Timestamp,
    /// Expiry; `None` = never.
    #[serde(serialize_with = "crate::clock::rfc3339::optional")]
    pub expires_at: Option<Timestamp>,
}

/// Storage behind the handles; the engine implements it over its store.
///
/// It acts with the rights of the owner and does not check the caller. So only [`Memory`] holds it,
/// never a handler.
///
/// Every method has these errors: `invalid_input` for impossible values, `too_large` over a limit
/// of the store, `resource_exhausted` if the namespace is full, `overloaded` (with a wait) if the
/// store is not available.
#[async_trait]
pub trait Views: Send + Sync + 'static {
    /// Writes a note, over the one of the same key.
    async fn store_note(&self, owner: &Owner, note: NewNote) -> Result<About>;
    /// Returns a note, `None` if there is none or it does not open.
    async fn recall_note(&self, owner: &Owner, key: &str) -> Result<Option<Note>>;
    /// Lists notes without their values, newest first.
    async fn list_notes(
        &self,
        owner: &Owner,
        prefix: &str,
        limit: usize,
        after: Option<String>,
    ) -> Result<NoteList>;
    /// Deletes a note, and says whether it was there.
    async fn delete_note(&self, owner: &Owner, key: &str) -> Result<bool>;
    /// Returns the newest notes of each category, without values.
    async fn note_context(&self, owner: &Owner) -> Result<NoteContext>;
    /// Writes a fact, over the one of the same key.
    async fn store_fact(&self, owner: &Owner, fact: NewFact) -> Result<About>;
    /// Returns facts with their values.
    async fn recall_facts(&self, owner: &Owner, wanted: RecallFacts) -> Result<Recalled>;
    /// Lists facts without their values, newest first.
    async fn list_facts(&self, owner: &Owner, wanted: ListFacts) -> Result<FactList>;
    /// Deletes what is kept for the owner.
    async fn forget(&self, owner: &Owner, what: Forget) -> Result<Forgotten>;
    /// Returns a value without the secrets of the owner's call, unless a name holds one.
    fn cleaned(&self, owner: &Owner, names: &[&str], value: Bytes) -> Result<Bytes>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_for_no_memory_has_one_error() {
        let code = |why: NoMemory| Error::from(why).code();
        assert_eq!(code(NoMemory::Off), Code::NotFound);
        let error = Error::from(NoMemory::Unavailable(
            "the store is not available: x".into(),
        ));
        assert_eq!(error.code(), Code::Overloaded);
        assert!(
            error
                .message()
                .ends_with("without it: the store is not available: x"),
            "{error}"
        );
        assert_eq!(code(NoMemory::Anonymous), Code::Unauthenticated);
        assert_eq!(code(NoMemory::Shared), Code::Forbidden);
    }

    #[test]
    fn times_are_rfc_3339_and_for_ever_is_null() {
        let about = About {
            key: "k".into(),
            category: String::new(),
            tags: Vec::new(),
            pack: None,
            called_by: None,
            trust: None,
            fingerprint: "f".into(),
            version: 1,
            created_at: Timestamp(0),
            updated_at: Timestamp(1_500_000),
            expires_at: None,
        };
        let json = serde_json::to_value(&about).unwrap();
        assert_eq!(json["updated_at"], "1970-01-01T00:00:01.500000Z");
        assert!(json["expires_at"].is_null() && json.get("pack").is_none());
    }
}
