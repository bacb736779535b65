//! `conversation.flush`: deletes every turn and the summary of a conversation.

use async_trait::async_trait;
use helmdeck_conversation::Conversations;
use helmdeck_core::{Context, Handler, Json, Reply, Result};
use serde::Serialize;

use super::target::{Conversation, Named};

pub(super) struct Flush(pub(super) Conversations);

#[derive(Serialize)]
struct Output {
    flushed: bool,
}

#[async_trait]
impl Handler for Flush {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let named: Named = input.read()?;
        let conversation = Conversation::of(&self.0, &context, named.session.as_deref())?;
        conversation.memory.flush(&conversation.identity).await?;
        Reply::value(&Output { flushed: true })
    }
}
