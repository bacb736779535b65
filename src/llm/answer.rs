//! What a model answers, read from the forms in which endpoints spell it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::{Message, ToolCall};

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// It was done.
    Stop,
    /// It wants tools called.
    ToolCalls,
    /// It reached the most tokens of an answer, so the answer is cut off.
    Length,
    /// The endpoint withheld the rest.
    ContentFilter,
    /// Anything else, or nothing was said about it.
    #[serde(other)]
    Other,
}

/// The tokens of one or more answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Usage {
    /// Of the prompt.
    pub prompt_tokens: u64,
    /// Of the answer.
    pub completion_tokens: u64,
    /// How many of the prompt's the endpoint had in its cache.
    pub cached_tokens: u64,
}

impl Usage {
    /// Adds those of another answer.
    pub const fn add(&mut self, other: &Self) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
    }
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The text; `None` if there is none.
    pub text: Option<String>,
    /// The tools that it wants called, in its order.
    pub tool_calls: Vec<ToolCall>,
    /// Why it stopped.
    pub finish: Finish,
    /// What it took; `None` if the endpoint does not say.
    pub usage: Option<Usage>,
    /// What it cost in USD; `None` if neither the endpoint nor a configured price tells.
    pub cost: Option<f64>,
    /// How often the request was sent.
    pub attempts: u32,
}

impl Answer {
    /// Returns the answer as a message of the dialogue that goes on.
    #[must_use]
    pub fn message(&self) -> Message {
        // A message must have one or the other.
        let content = match (&self.text, self.tool_calls.is_empty()) {
            (None, true) => Some(String::new()),
            (text, _) => text.clone(),
        };
        Message::Assistant { content, tool_calls: self.tool_calls.clone() }
    }
}

/// Reads the body of a successful answer. `None` if it is none: no JSON, or nothing chosen.
pub(crate) fn read(body: &[u8]) -> Option<Answer> {
    let completion: Completion = serde_json::from_slice(body).ok()?;
    let choice = completion.choices.into_iter().next()?;
    let tool_calls = choice.message.tool_calls.unwrap_or_default().into_iter().enumerate();
    let usage = completion.usage;
    Some(Answer {
        text: choice.message.content.and_then(Content::text).filter(|text| !text.is_empty()),
        tool_calls: tool_calls.map(|(index, call)| call.into_call(index)).collect(),
        finish: choice.finish_reason.unwrap_or(Finish::Other),
        usage: usage.as_ref().map(|usage| Usage {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            cached_tokens: usage.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens).unwrap_or(0),
        }),
        cost: usage.and_then(|usage| usage.cost).filter(|usd| usd.is_finite() && *usd >= 0.0),
        attempts: 1,
    })
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    usage: Option<Spent>,
}

#[derive(Deserialize)]
struct Choice {
    message: Said,
    finish_reason: Option<Finish>,
}

#[derive(Deserialize)]
struct Said {
    content: Option<Content>,
    tool_calls: Option<Vec<Wanted>>,
}

/// Text, or the parts of one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    text: String,
}

impl Content {
    fn text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            Self::Parts(parts) => Some(parts.into_iter().map(|part| part.text).collect()),
        }
    }
}

#[derive(Deserialize)]
struct Wanted {
    id: Option<String>,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    #[serde(default)]
    name: String,
    /// JSON in a text; some endpoints send the object itself.
    #[serde(default)]
    arguments: Value,
}

impl Wanted {
    fn into_call(self, index: usize) -> ToolCall {
        let arguments = match self.function.arguments {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let id = self.id.filter(|id| !id.is_empty()).unwrap_or_else(|| format!("call_{index}"));
        ToolCall { id, name: self.function.name, arguments }
    }
}

#[derive(Deserialize)]
struct Spent {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    prompt_tokens_details: Option<Details>,
    /// In USD: <https://openrouter.ai/docs/use-cases/usage-accounting>; LiteLLM's proxy can say it too.
    cost: Option<f64>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}
