//! `conversation.restore`: puts an exported conversation in the place of what is there.

use async_trait::async_trait;
use helmdeck_conversation::{Conversations, Snapshot};
use helmdeck_core::{Context, Handler, Json, Reply, Result};
use serde::{Deserialize, Serialize};

use super::target::Conversation;

pub(super) struct Restore(pub(super) Conversations);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    #[serde(default)]
    session: Option<String>,
    /// Kept as it is written, digit for digit: another program may have made it.
    snapshot: Json,
}

#[derive(Serialize)]
struct Output {
    restored: bool,
}

#[async_trait]
impl Handler for Restore {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let input: Input = input.read()?;
        let conversation = Conversation::of(&self.0, &context, input.session.as_deref())?;
        let record = conversation.cleaned(input.snapshot.as_str().to_owned())?;
        // The record itself says under which strategy it was made.
        let snapshot = Snapshot { strategy: None, bytes: record.into() };
        conversation.memory.restore(&conversation.identity, &snapshot).await?;
        Reply::value(&Output { restored: true })
    }
}
