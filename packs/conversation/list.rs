//! `conversation.list`: lists the turns of a conversation, or the conversations of the caller.
//!
//! Turns include their texts on request.

use async_trait::async_trait;
use helmdeck_conversation::{
    ConversationFilter, ConversationInfo, Conversations, Health, TurnFilter, TurnId,
};
use helmdeck_core::{Code, Context, Error, Handler, Json, Reply, Result};
use serde::{Deserialize, Serialize};

use super::target::Conversation;

pub(super) struct List(pub(super) Conversations);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    #[serde(default)]
    what: What,
    session: Option<String>,
    content_search: Option<String>,
    folded: Option<bool>,
    #[serde(default)]
    texts: bool,
    limit: Option<usize>,
    after: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum What {
    #[default]
    Turns,
    Conversations,
    /// Old name of `conversations`.
    Dialogues,
}

/// A page of the caller's conversations, without the counts over all callers.
#[derive(Serialize)]
struct Page {
    #[serde(skip_serializing_if = "Option::is_none")]
    conversations: Option<Vec<ListedConversation>>,
    /// For callers that requested `dialogues`.
    #[serde(skip_serializing_if = "Option::is_none")]
    dialogues: Option<Vec<ListedConversation>>,
    total: u64,
    next: Option<String>,
}

/// A conversation of the caller.
#[derive(Serialize)]
struct ListedConversation {
    session: String,
    turns: u64,
    bytes: u64,
    updated_at: String,
    expires_at: Option<String>,
    health: Health,
}

impl From<ConversationInfo> for ListedConversation {
    fn from(info: ConversationInfo) -> Self {
        Self {
            session: info.session,
            turns: info.turns,
            bytes: info.bytes,
            updated_at: info.updated_at.to_rfc3339(),
            expires_at: info.expires_at.map(helmdeck_core::Timestamp::to_rfc3339),
            health: info.health,
        }
    }
}

#[async_trait]
impl Handler for List {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let input: Input = input.read()?;
        let conversation = Conversation::of(&self.0, &context, input.session.as_deref())?;
        match input.what {
            What::Turns => {
                let filter = TurnFilter {
                    content_search: input.content_search,
                    folded: input.folded,
                    with_texts: input.texts,
                    limit: input.limit,
                    after: input.after.as_deref().map(turn_id).transpose()?,
                };
                Reply::value(
                    &conversation
                        .memory
                        .list_turns(&conversation.identity, &filter)
                        .await?,
                )
            }
            What::Conversations | What::Dialogues => {
                let of_turns = input.session.is_some()
                    || input.content_search.is_some()
                    || input.folded.is_some();
                if of_turns || input.texts {
                    return Err(invalid(
                        "\"session\", \"content_search\", \"folded\" and \"texts\" go with turns",
                    ));
                }
                let filter = ConversationFilter {
                    tenant: Some(context.identity.tenant().to_owned()),
                    user: Some(context.identity.user().to_owned()),
                    limit: input.limit,
                    after: input.after,
                };
                let page = conversation.memory.list_conversations(&filter).await?;
                let listed = Some(
                    page.sessions
                        .into_iter()
                        .map(ListedConversation::from)
                        .collect(),
                );
                let (conversations, dialogues) = match input.what {
                    What::Dialogues => (None, listed),
                    _ => (listed, None),
                };
                Reply::value(&Page {
                    conversations,
                    dialogues,
                    total: page.total,
                    next: page.next,
                })
            }
        }
    }
}

fn turn_id(after: &str) -> Result<TurnId> {
    TurnId::parse(after).ok_or_else(|| invalid("\"after\" is not the \"next\" of a page"))
}

fn invalid(message: &'static str) -> Error {
    Error::new(Code::InvalidInput, message)
}
