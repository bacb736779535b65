//! The packs that call one method of the conversation memory.

use async_trait::async_trait;
use helmdeck_conversation::{Conversations, Format, Snapshot, Strategy, SummaryStatus};
use helmdeck_core::{Code, Context, Error, Handler, Json, Reply, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::target::Conversation;

/// Declares the handler of a pack: reads the input, finds its conversation and runs the body.
macro_rules! handler {
    ($(#[$doc:meta])* $name:ident, |$conversation:ident, $input:ident: $type:ty| $body:expr) => {
        $(#[$doc])*
        pub(super) struct $name(pub(super) Conversations);

        #[async_trait]
        impl Handler for $name {
            async fn run(&self, context: Context, input: Json) -> Result<Reply> {
                let $input: $type = input.read()?;
                let $conversation = Conversation::of(&self.0, &context, $input.session.as_deref())?;
                $body
            }
        }
    };
}

/// Input that names a conversation only.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    session: Option<String>,
}

/// Input that names a turn.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnTarget {
    session: Option<String>,
    key: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContextInput {
    session: Option<String>,
    #[serde(default)]
    format: Format,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PinInput {
    session: Option<String>,
    goal: Option<String>,
    #[serde(default)]
    clear: bool,
}

#[derive(Serialize)]
struct Exported {
    strategy: Strategy,
    snapshot: Snapshot,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RestoreInput {
    session: Option<String>,
    /// Stored byte for byte: another program may have made it.
    snapshot: Json,
}

handler!(
    /// `conversation.context`: the context of the next model call.
    ShowContext, |conversation, input: ContextInput| {
        Reply::value(&conversation.memory.render(&conversation.identity, input.format).await?)
    }
);

handler!(
    /// `conversation.health`: the state of summarising.
    ShowHealth, |conversation, input: Target| {
        Reply::value(&SummaryStatus::from(conversation.memory.trace(&conversation.identity).await?))
    }
);

handler!(
    /// `conversation.trace`: what the strategy makes of a conversation right now.
    ShowTrace, |conversation, input: Target| {
        Reply::value(&conversation.memory.trace(&conversation.identity).await?)
    }
);

handler!(
    /// `conversation.show`: returns one turn with its texts.
    Show, |conversation, input: TurnTarget| {
        Reply::value(&conversation.memory.get_turn(&conversation.identity, &input.key).await?)
    }
);

handler!(
    /// `conversation.delete`: deletes one turn, from the summary too.
    Delete, |conversation, input: TurnTarget| {
        Reply::value(&conversation.memory.delete_turn(&conversation.identity, &input.key).await?)
    }
);

handler!(
    /// `conversation.snapshot`: exports a conversation.
    Export, |conversation, input: Target| {
        let snapshot = conversation.memory.snapshot(&conversation.identity).await?;
        let strategy = snapshot.strategy.unwrap_or(Strategy::None);
        // An empty snapshot is an object too, so that it can be restored.
        Reply::value(&Exported { strategy, snapshot: Snapshot { strategy: Some(strategy), ..snapshot } })
    }
);

handler!(
    /// `conversation.restore`: replaces a conversation by an exported one.
    Restore, |conversation, input: RestoreInput| {
        let record = conversation.cleaned(input.snapshot.as_str().to_owned())?;
        // The record itself names its strategy.
        let snapshot = Snapshot { strategy: None, bytes: record.into() };
        conversation.memory.restore(&conversation.identity, &snapshot).await?;
        Reply::value(&json!({ "restored": true }))
    }
);

handler!(
    /// `conversation.pin`: pins, shows or clears the goal of a conversation.
    Pin, |conversation, input: PinInput| {
        let Conversation { memory, identity, .. } = &conversation;
        let goal = input.goal.map(|goal| conversation.cleaned(goal)).transpose()?;
        Reply::value(&match (&goal, input.clear) {
            (None, false) => memory.goal(identity).await?,
            (Some(_), true) => return Err(Error::new(Code::InvalidInput, "\"goal\" and \"clear\" exclude each other")),
            (goal, _) => memory.pin(identity, goal.as_deref()).await?,
        })
    }
);

handler!(
    /// `conversation.flush`: deletes every turn and the summary of a conversation.
    Flush, |conversation, input: Target| {
        conversation.memory.flush(&conversation.identity).await?;
        Reply::value(&json!({ "flushed": true }))
    }
);

handler!(
    /// `conversation.forget`: removes a conversation and all its data, even an unreadable one.
    Forget, |conversation, input: Target| {
        Reply::value(&json!({ "removed_turns": conversation.memory.forget(&conversation.identity).await? }))
    }
);
