//! The conversation that a call is about.

use helmdeck_conversation::{ConversationMemory, Conversations, Identity};
use helmdeck_core::memory::Memory;
use helmdeck_core::{Code, Context, Error, Result};

/// A conversation of the caller.
pub(super) struct Conversation<'a> {
    pub(super) memory: &'a ConversationMemory,
    /// Identity of the conversation. Tenant and user come from the call, never from the input.
    ///
    /// Without a conversation id every method refuses it.
    pub(super) identity: Identity,
    own: &'a Memory,
}

impl<'a> Conversation<'a> {
    /// Finds the named conversation, or else the one that the caller belongs to.
    ///
    /// # Errors
    /// The reason, if there is no memory for this call.
    pub(super) fn of(
        conversations: &'a Conversations,
        context: &'a Context,
        session: Option<&str>,
    ) -> Result<Self> {
        let own = context.own_memory()?;
        let memory = conversations.get()?;
        Ok(Self {
            memory,
            identity: Identity::of(&context.identity, session),
            own,
        })
    }

    /// Redacts the secrets of the call in JSON or text.
    ///
    /// # Errors
    /// `invalid_input` if the conversation id contains one.
    pub(super) fn cleaned(&self, text: String) -> Result<String> {
        let clean = self.own.cleaned(&[&self.identity.session], text.into())?;
        String::from_utf8(clean.into())
            .map_err(|_| Error::new(Code::InvalidInput, "a secret cannot be taken out of a text"))
    }

    /// Returns a name that must not contain a secret.
    ///
    /// # Errors
    /// `invalid_input` if it does.
    pub(super) fn checked(&self, name: String) -> Result<String> {
        self.own
            .cleaned(&[&name], bytes::Bytes::new())
            .map(|_| name)
    }
}
