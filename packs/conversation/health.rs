//! `conversation.health`: how the summary of a conversation is doing.

use async_trait::async_trait;
use helmdeck_conversation::{Conversations, Folding};
use helmdeck_core::{Context, Handler, Json, Reply, Result};

use super::target::{Conversation, Named};

pub(super) struct ShowHealth(pub(super) Conversations);

#[async_trait]
impl Handler for ShowHealth {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let named: Named = input.read()?;
        let conversation = Conversation::of(&self.0, &context, named.session.as_deref())?;
        Reply::value(&Folding::from(conversation.memory.trace(&conversation.identity).await?))
    }
}
