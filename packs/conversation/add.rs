//! `conversation.add`: appends a turn to a conversation.

use async_trait::async_trait;
use helmdeck_conversation::{Conversations, NewDigest, NewTurn};
use helmdeck_core::{Code, Context, Error, Handler, Json, Reply, Result};

use super::target::Conversation;

pub(super) struct Add(pub(super) Conversations);

#[async_trait]
impl Handler for Add {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let (session, turn) = crate::take_session(input)?;
        let conversation = Conversation::of(&self.0, &context, session.as_deref())?;
        let turn = redacted(&conversation, turn.read()?)?;
        Reply::value(
            &conversation
                .memory
                .add_turn(&conversation.identity, turn)
                .await?,
        )
    }
}

/// Redacts the texts: a calling pack may have put its own credential into them.
fn redacted(conversation: &Conversation<'_>, turn: NewTurn) -> Result<NewTurn> {
    let text = |text| conversation.cleaned(text);
    let texts = |texts: Vec<String>| texts.into_iter().map(text).collect::<Result<Vec<String>>>();
    let digest = |digest: NewDigest| {
        Ok::<_, Error>(NewDigest {
            tools_invoked: texts(digest.tools_invoked)?,
            observations_summary: text(digest.observations_summary)?,
            reasoning_summary: text(digest.reasoning_summary)?,
            artifacts_refs: texts(digest.artifacts_refs)?,
        })
    };
    let shown = |shown: Json| {
        let clean = text(shown.as_str().to_owned())?;
        Json::parse(clean)
            .map_err(|_| Error::new(Code::InvalidInput, "artifacts_shown contains a secret"))
    };
    Ok(NewTurn {
        user_message: text(turn.user_message)?,
        assistant_response: text(turn.assistant_response)?,
        timestamp: turn.timestamp,
        trajectory_digest: turn.trajectory_digest.map(digest).transpose()?,
        artifacts_shown: turn.artifacts_shown.map(shown).transpose()?,
        artifacts_hidden_refs: turn.artifacts_hidden_refs.map(texts).transpose()?,
        once: turn
            .once
            .map(|name| conversation.checked(name))
            .transpose()?,
    })
}
