//! `conversation.delete`: deletes one turn, out of the summary too.

use async_trait::async_trait;
use helmdeck_conversation::Conversations;
use helmdeck_core::{Context, Handler, Json, Reply, Result};
use serde::Deserialize;

use super::target::Conversation;

pub(super) struct Delete(pub(super) Conversations);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    #[serde(default)]
    session: Option<String>,
    key: String,
}

#[async_trait]
impl Handler for Delete {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let input: Input = input.read()?;
        let conversation = Conversation::of(&self.0, &context, input.session.as_deref())?;
        Reply::value(&conversation.memory.delete_item(&conversation.identity, &input.key).await?)
    }
}
