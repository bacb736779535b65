//! Which conversation a call means.

use helmdeck_conversation::{ConversationMemory, Conversations, Identity};
use helmdeck_core::memory::Memory;
use helmdeck_core::{Code, Context, Error, Result};
use serde::Deserialize;

/// The input of packs that want to know no more than which conversation is meant.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    /// Its name; `None` = the caller's own.
    #[serde(default)]
    pub(super) session: Option<String>,
}

/// A conversation of the caller.
pub(super) struct Conversation<'a> {
    /// What keeps it.
    pub(super) memory: &'a ConversationMemory,
    /// Whose it is: tenant and user of the call, never of its input. Without a session every method of the memory refuses it.
    pub(super) identity: Identity,
    own: &'a Memory,
}

impl<'a> Conversation<'a> {
    /// Finds the conversation that is named, or that the call itself belongs to.
    ///
    /// # Errors
    /// Why there is no memory for this call.
    pub(super) fn of(conversations: &'a Conversations, context: &'a Context, session: Option<&str>) -> Result<Self> {
        let own = context.own_memory()?;
        let memory = conversations.get()?;
        Ok(Self { memory, identity: Identity::of(&context.identity, session), own })
    }

    /// Returns JSON or text without the secrets of the call, as it may be kept.
    ///
    /// # Errors
    /// `invalid_input` if the conversation's name holds one.
    pub(super) fn cleaned(&self, text: String) -> Result<String> {
        let clean = self.own.cleaned(&[&self.identity.session], text.into())?;
        String::from_utf8(clean.into())
            .map_err(|_| Error::new(Code::InvalidInput, "a secret cannot be taken out of a text"))
    }

    /// Returns a name that must not hold a secret.
    ///
    /// # Errors
    /// `invalid_input` if it does.
    pub(super) fn checked(&self, name: String) -> Result<String> {
        self.own.cleaned(&[&name], bytes::Bytes::new()).map(|_| name)
    }
}
