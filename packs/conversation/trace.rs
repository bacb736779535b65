//! `conversation.trace`: what the strategy makes of a conversation right now.

use async_trait::async_trait;
use helmdeck_conversation::Conversations;
use helmdeck_core::{Context, Handler, Json, Reply, Result};

use super::target::{Conversation, Named};

pub(super) struct ShowTrace(pub(super) Conversations);

#[async_trait]
impl Handler for ShowTrace {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let named: Named = input.read()?;
        let conversation = Conversation::of(&self.0, &context, named.session.as_deref())?;
        Reply::value(&conversation.memory.trace(&conversation.identity).await?)
    }
}
