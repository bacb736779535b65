//! Parses a model's answer from the forms that endpoints use.

use helmdeck_core::Error;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
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
    /// It reached the token limit of an answer, so the answer is cut off.
    Length,
    /// The endpoint filtered out the rest.
    ContentFilter,
    /// Anything else, or no reason.
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
    /// Number of prompt tokens from the endpoint's cache.
    pub cached_tokens: u64,
}

impl Usage {
    /// Adds those of another answer.
    pub const fn add(&mut self, other: &Self) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self
            .completion_tokens
            .saturating_add(other.completion_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
    }
}

/// Why there is no answer.
#[derive(Debug, Clone)]
pub struct Unanswered {
    /// Why.
    pub error: Error,
    /// Whether an answer got lost that may have to be paid for, at an unknown price.
    pub lost: bool,
}

impl From<Unanswered> for Error {
    fn from(unanswered: Unanswered) -> Self {
        unanswered.error
    }
}

/// Answer of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The text; `None` without one.
    pub text: Option<String>,
    /// The tools that it wants called, in its order.
    pub tool_calls: Vec<ToolCall>,
    /// Why it stopped.
    pub finish: Finish,
    /// Token usage, with the lost answers before it; `None` if the endpoint does not report it.
    pub usage: Option<Usage>,
    /// Cost in USD, with the lost answers before it.
    ///
    /// `None` if neither the endpoint nor a configured price gives it, or not for all of them.
    pub cost: Option<f64>,
    /// Number of times that the request was sent.
    pub attempts: u32,
}

impl Answer {
    /// Returns the answer as a message of the conversation that goes on.
    #[must_use]
    pub fn message(&self) -> Message {
        // A message must have one or the other.
        let content = match (&self.text, self.tool_calls.is_empty()) {
            (None, true) => Some(String::new()),
            (text, _) => text.clone(),
        };
        Message::Assistant {
            content,
            tool_calls: self.tool_calls.clone(),
        }
    }
}

/// Reads the body of a successful answer.
///
/// A field that cannot be understood counts as absent: an answer that was paid for is not thrown
/// away because of an odd field.
///
/// # Errors
/// What it took, as far as the body says, if it is no answer: no JSON, or no choice in it.
pub(crate) fn read(body: &[u8]) -> Result<Answer, Taken> {
    let completion: Completion = serde_json::from_slice(body).map_err(|_| Taken::default())?;
    let taken = completion.usage.taken();
    let choice = completion.choices.into_iter().next().ok_or(taken)?;
    let said: Said = serde_json::from_value(choice.message).map_err(|_| taken)?;
    let tool_calls = said.tool_calls.into_iter().enumerate();
    Ok(Answer {
        text: said
            .content
            .and_then(Content::text)
            .filter(|text| !text.is_empty()),
        tool_calls: tool_calls
            .map(|(index, call)| call.into_call(index))
            .collect(),
        finish: choice.finish_reason.unwrap_or(Finish::Other),
        usage: taken.usage,
        cost: taken.cost,
        attempts: 1,
    })
}

/// Usage of an answer, as far as its endpoint reports it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Taken {
    pub(crate) usage: Option<Usage>,
    pub(crate) cost: Option<f64>,
}

/// Reads a value; one of another form is as if it were not there.
fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}

#[derive(Deserialize)]
struct Completion {
    #[serde(default, deserialize_with = "lenient")]
    choices: Vec<Choice>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Spent,
}

#[derive(Deserialize)]
struct Choice {
    message: Value,
    #[serde(default, deserialize_with = "lenient")]
    finish_reason: Option<Finish>,
}

#[derive(Deserialize)]
struct Said {
    #[serde(default, deserialize_with = "lenient")]
    content: Option<Content>,
    #[serde(default, deserialize_with = "lenient")]
    tool_calls: Vec<RawToolCall>,
}

/// Text, or the parts of one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Deserialize)]
struct ContentPart {
    #[serde(default, deserialize_with = "lenient")]
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
struct RawToolCall {
    #[serde(default, deserialize_with = "lenient")]
    id: String,
    #[serde(default, deserialize_with = "lenient")]
    function: Function,
}

#[derive(Deserialize, Default)]
struct Function {
    #[serde(default, deserialize_with = "lenient")]
    name: String,
    /// JSON in a text; some endpoints send the object itself.
    #[serde(default)]
    arguments: Value,
}

impl RawToolCall {
    fn into_call(self, index: usize) -> ToolCall {
        let arguments = match self.function.arguments {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let id = if self.id.is_empty() {
            format!("call_{index}")
        } else {
            self.id
        };
        ToolCall {
            id,
            name: self.function.name,
            arguments,
        }
    }
}

#[derive(Deserialize, Default)]
struct Spent {
    #[serde(default)]
    prompt_tokens: Value,
    #[serde(default)]
    completion_tokens: Value,
    #[serde(default)]
    prompt_tokens_details: Value,
    /// In USD: <https://openrouter.ai/docs/use-cases/usage-accounting>; LiteLLM's proxy can say it
    /// too.
    #[serde(default)]
    cost: Value,
}

impl Spent {
    /// Returns the usage in the body.
    ///
    /// If only one of the two token counts can be read, both are unknown: a price of half of them
    /// would be wrong.
    fn taken(&self) -> Taken {
        let both = count(&self.prompt_tokens).zip(count(&self.completion_tokens));
        Taken {
            usage: both.map(|(prompt_tokens, completion_tokens)| Usage {
                prompt_tokens,
                completion_tokens,
                cached_tokens: count(&self.prompt_tokens_details["cached_tokens"]).unwrap_or(0),
            }),
            cost: self
                .cost
                .as_f64()
                .filter(|usd| usd.is_finite() && *usd >= 0.0),
        }
    }
}

/// Reads a number of tokens. It may be written with a fraction.
fn count(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        value
            .as_f64()
            .filter(|number| (0.0..1e15).contains(number))
            .map(|number| number as u64)
    })
}
