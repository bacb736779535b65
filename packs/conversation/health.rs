//! `conversation.health`: how the summary of a dialogue is doing.

use async_trait::async_trait;
use helmdeck_conversation::{Conversations, Health};
use helmdeck_core::{Context, Handler, Json, Reply, Result};
use serde::Serialize;

use super::dialogue::{Dialogue, Named};

pub(super) struct ShowHealth(pub(super) Conversations);

#[derive(Serialize)]
struct Output {
    health: Health,
}

#[async_trait]
impl Handler for ShowHealth {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let named: Named = input.read()?;
        let dialogue = Dialogue::of(&self.0, &context, named.session.as_deref())?;
        Reply::value(&Output { health: dialogue.memory.health(&dialogue.identity).await? })
    }
}
