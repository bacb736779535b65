//! `conversation.snapshot`: exports a conversation.

use async_trait::async_trait;
use helmdeck_conversation::{Conversations, Snapshot, Strategy};
use helmdeck_core::{Context, Handler, Json, Reply, Result};
use serde::Serialize;

use super::target::{Conversation, Named};

pub(super) struct Export(pub(super) Conversations);

#[derive(Serialize)]
struct Output {
    strategy: Strategy,
    snapshot: Snapshot,
}

#[async_trait]
impl Handler for Export {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let named: Named = input.read()?;
        let conversation = Conversation::of(&self.0, &context, named.session.as_deref())?;
        let snapshot = conversation.memory.snapshot(&conversation.identity).await?;
        let strategy = snapshot.strategy.unwrap_or(Strategy::None);
        // Where nothing was ever kept it is still an object, so that it can be given back.
        Reply::value(&Output { strategy, snapshot: Snapshot { strategy: Some(strategy), ..snapshot } })
    }
}
