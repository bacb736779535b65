//! Chat requests: messages, the tools that the model may call, and both together.

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

/// A message of the conversation, as the protocol spells it: `{"role": "user", "content": "..."}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Message {
    /// The rules.
    System {
        /// The text.
        content: String,
    },
    /// Message of the user.
    User {
        /// The text.
        content: String,
    },
    /// Answer of the model.
    Assistant {
        /// The text; `None` beside tool calls alone.
        content: Option<String>,
        /// The tools that it wants called.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
    },
    /// Result of a tool.
    Tool {
        /// The id of the call.
        tool_call_id: String,
        /// The text.
        content: String,
    },
}

impl Message {
    /// Makes a message of the system.
    pub fn system(content: impl Into<String>) -> Self {
        Self::System {
            content: content.into(),
        }
    }

    /// Makes a message of the user.
    pub fn user(content: impl Into<String>) -> Self {
        Self::User {
            content: content.into(),
        }
    }

    /// Returns its size: the bytes of its texts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::System { content } | Self::User { content } | Self::Tool { content, .. } => {
                content.len()
            }
            Self::Assistant {
                content,
                tool_calls,
            } => {
                let calls: usize = tool_calls
                    .iter()
                    .map(|call| call.name.len() + call.arguments.len())
                    .sum();
                content.as_ref().map_or(0, String::len) + calls
            }
        }
    }
}

/// A call of a tool that a model wants made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Its id, which the answer to it names.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments: JSON text if the model kept to the protocol.
    pub arguments: String,
}

impl Serialize for ToolCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut call = serializer.serialize_struct("ToolCall", 3)?;
        call.serialize_field("id", &self.id)?;
        call.serialize_field("type", "function")?;
        call.serialize_field(
            "function",
            &json!({"name": self.name, "arguments": self.arguments}),
        )?;
        call.end()
    }
}

/// A tool that a model may call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// A JSON Schema of its arguments.
    pub parameters: Value,
}

impl Serialize for Tool {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json!({
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": self.parameters},
        })
        .serialize(serializer)
    }
}

/// A question to a model.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request<'a> {
    /// The conversation so far, oldest first.
    pub messages: &'a [Message],
    /// Tools that the model may call. Default: none.
    pub tools: &'a [Tool],
    /// Sampling temperature, 0 to 2. `None` = the endpoint's default.
    ///
    /// Some models accept no other.
    pub temperature: Option<f32>,
    /// Maximum number of tokens in the answer. `None` = the endpoint's default.
    pub max_tokens: Option<u32>,
}

/// The body of a request.
#[derive(Serialize)]
pub(crate) struct Body<'a> {
    pub(crate) model: &'a str,
    pub(crate) messages: &'a [Message],
    #[serde(skip_serializing_if = "<[Tool]>::is_empty")]
    pub(crate) tools: &'a [Tool],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_tokens: Option<u32>,
}
