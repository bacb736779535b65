//! Notes: texts that a handler keeps for a caller's later calls.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::{About, Memory};
use crate::Result;

/// The notes of one caller, or of one of its conversations.
#[derive(Debug, Clone)]
pub struct Notes(pub(super) Memory);

/// New note.
#[derive(Clone)]
pub struct NewNote {
    /// Name of the note: any text of 1 byte to 1 KiB, compared byte for byte.
    ///
    /// The packs of a caller share one set of names, so begin it with the name of the pack.
    pub key: String,
    /// Its value: any bytes, up to 1 MiB by default.
    pub value: Bytes,
    /// Category; may be empty.
    pub category: String,
    /// Labels.
    pub tags: Vec<String>,
    /// Lifetime; `None` = as long as the operator keeps notes.
    pub ttl: Option<Duration>,
    /// Whether it is stored although it looks like it holds a credential. The audit notes each use.
    pub allow_secret: bool,
}

impl NewNote {
    /// Makes a note without category, tags and end.
    pub fn new(key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        let (category, tags) = (String::new(), Vec::new());
        Self {
            key: key.into(),
            value: value.into(),
            category,
            tags,
            ttl: None,
            allow_secret: false,
        }
    }

    /// Groups it.
    #[must_use]
    pub fn with_category(mut self, category: impl Into<String>) -> Self {
        self.category = category.into();
        self
    }

    /// Allows what looks like a credential in it.
    #[must_use]
    pub const fn allowing_secret(mut self) -> Self {
        self.allow_secret = true;
        self
    }

    /// Sets the lifetime.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }
}

redacted_debug!(NewNote, this => bytes = this.value.len());

/// A note.
#[derive(Clone, PartialEq, Eq)]
pub struct Note {
    /// The metadata.
    pub about: About,
    /// Its value.
    pub value: Bytes,
}

redacted_debug!(Note, this => bytes = this.value.len());

/// A page of notes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NoteList {
    /// The notes, newest first.
    pub notes: Vec<About>,
    /// The `after` of the next page; `None` = this was the last.
    pub next: Option<String>,
}

/// The newest notes of each category.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NoteContext {
    /// By category (`uncategorized` for none), newest first, at most 50 of each.
    pub categories: BTreeMap<String, Vec<About>>,
    /// Whether the caller has more notes than were looked at (the newest 20,000).
    pub truncated: bool,
}

impl Notes {
    /// Narrows to the caller's conversation, `None` if the caller named none.
    #[must_use]
    pub fn session(&self) -> Option<Self> {
        self.0.owner.identity.session()?;
        let mut memory = self.0.clone();
        memory.owner.in_session = true;
        Some(Self(memory))
    }

    /// Writes a note, over the one of the same key. Secrets of this call are taken out of the
    /// value.
    ///
    /// # Errors
    /// `invalid_input` for an empty key or one that holds a secret of this call, and for what looks
    /// like a credential, unless the note allows it; `too_large`, `resource_exhausted`,
    /// `overloaded`.
    pub async fn store(&self, note: NewNote) -> Result<About> {
        self.0.views.store_note(&self.0.owner, note).await
    }

    /// Returns a note, `None` if there is none, it has ended, or it does not open.
    ///
    /// # Errors
    /// `overloaded`.
    pub async fn recall(&self, key: &str) -> Result<Option<Note>> {
        self.0.views.recall_note(&self.0.owner, key).await
    }

    /// Lists notes whose key begins with `prefix`, without their values, newest first: 1 to 1000 a
    /// page.
    ///
    /// # Errors
    /// `invalid_input` for an `after` that is no `next` of a page, `overloaded`.
    pub async fn list(
        &self,
        prefix: &str,
        limit: usize,
        after: Option<String>,
    ) -> Result<NoteList> {
        self.0
            .views
            .list_notes(&self.0.owner, prefix, limit, after)
            .await
    }

    /// Deletes a note, and says whether it was there.
    ///
    /// # Errors
    /// `overloaded`.
    pub async fn delete(&self, key: &str) -> Result<bool> {
        self.0.views.delete_note(&self.0.owner, key).await
    }

    /// Returns the newest notes of each category, without their values: what is known, for a first
    /// look.
    ///
    /// # Errors
    /// `overloaded`.
    pub async fn context(&self) -> Result<NoteContext> {
        self.0.views.note_context(&self.0.owner).await
    }
}
