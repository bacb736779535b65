//! `conversation.context`: what a model is to be shown of a conversation, as data or ready for a prompt.

use async_trait::async_trait;
use helmdeck_conversation::{Conversations, Strategy, prompt};
use helmdeck_core::{Context, Handler, Json, Reply, Result};
use serde::{Deserialize, Serialize};

use super::target::Conversation;

pub(super) struct ShowContext(pub(super) Conversations);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    #[serde(default)]
    session: Option<String>,
    #[serde(default)]
    format: Format,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Format {
    #[default]
    Json,
    Prompt,
}

/// The context as a text.
#[derive(Serialize)]
struct Prompt {
    strategy: Strategy,
    /// `None` = there is nothing to show.
    prompt: Option<String>,
    tokens: u64,
    omitted_turns: u64,
    over_budget: bool,
    unreadable: u64,
}

#[async_trait]
impl Handler for ShowContext {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let input: Input = input.read()?;
        let conversation = Conversation::of(&self.0, &context, input.session.as_deref())?;
        let patch = conversation.memory.context(&conversation.identity).await?;
        match input.format {
            Format::Json => Reply::value(&patch),
            Format::Prompt => Reply::value(&Prompt {
                strategy: patch.strategy,
                prompt: prompt::render(&patch),
                tokens: patch.tokens,
                omitted_turns: patch.omitted_turns,
                over_budget: patch.over_budget,
                unreadable: patch.unreadable,
            }),
        }
    }
}
