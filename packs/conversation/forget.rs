//! `conversation.forget`: removes a conversation with everything about it, also if it does not open.

use async_trait::async_trait;
use helmdeck_conversation::Conversations;
use helmdeck_core::{Context, Handler, Json, Reply, Result};
use serde::Serialize;

use super::target::{Conversation, Named};

pub(super) struct Forget(pub(super) Conversations);

#[derive(Serialize)]
struct Output {
    removed_turns: u64,
}

#[async_trait]
impl Handler for Forget {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let named: Named = input.read()?;
        let conversation = Conversation::of(&self.0, &context, named.session.as_deref())?;
        Reply::value(&Output { removed_turns: conversation.memory.forget(&conversation.identity).await? })
    }
}
