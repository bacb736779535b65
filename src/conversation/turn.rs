//! Turns of a conversation.

use std::collections::BTreeMap;
use std::fmt;

use helmdeck_core::{Json, Timestamp};
use serde::{Deserialize, Serialize};

use crate::wire::{MAX_DEPTH, is_shallow};

/// A turn: one user message, the reply, and what the assistant did in between.
///
/// Its JSON (see [`crate::wire`]) has the keys of the Go original, in its order: `UserMessage`,
/// `AssistantResponse`, `TrajectoryDigest`, `ArtifactsShown`, `ArtifactsHiddenRefs`, `Timestamp`,
/// then unknown members.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ConversationTurn {
    /// Message of the user.
    pub user_message: String,
    /// Reply of the assistant.
    pub assistant_response: String,
    /// What the assistant did between message and reply.
    pub trajectory_digest: Option<TrajectoryDigest>,
    /// Artifacts shown to the user: a JSON object.
    pub artifacts_shown: Option<Json>,
    /// References to artifacts hidden from the user.
    pub artifacts_hidden_refs: Option<Vec<String>>,
    /// When it happened.
    pub timestamp: TurnTime,
    /// Members that this version doesn't know, by name, as they were written.
    pub other: BTreeMap<String, Json>,
}

/// Short report of what an assistant did in a turn.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct TrajectoryDigest {
    /// The tools that it called; `None` = `null`, as the original writes an absent list.
    pub tools_invoked: Option<Vec<String>>,
    /// Summary of its observations.
    pub observations_summary: String,
    /// Summary of its reasoning.
    pub reasoning_summary: String,
    /// The files that it made; `None` = `null`.
    pub artifacts_refs: Option<Vec<String>>,
    /// Members that this version doesn't know, by name, as they were written.
    pub other: BTreeMap<String, Json>,
}

/// An RFC 3339 time as text: a snapshot of another program may be more exact than our times.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TurnTime(String);

impl TurnTime {
    /// Parses a time such as `2026-11-22T16:00:00Z`.
    ///
    /// It may have a fraction (64 characters in all) and any offset.
    ///
    /// # Errors
    /// A message, if it isn't RFC 3339. Lower case and leap seconds are refused, as in the
    /// original.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::of(text.to_owned())
            .ok_or_else(|| "a timestamp must be RFC 3339, like \"2026-11-22T16:00:00Z\"".to_owned())
    }

    /// Checks and takes a text.
    pub(crate) fn of(text: String) -> Option<Self> {
        is_time(text.as_bytes()).then_some(Self(text))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// Not jiff's timestamps: their range is smaller, and they accept forms beside RFC 3339.
fn is_time(text: &[u8]) -> bool {
    let (Some((start, rest)), true) = (text.split_at_checked(19), text.len() <= 64) else {
        return false;
    };
    let digits = rest.strip_prefix(b".").map_or(0, |rest| {
        rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    });
    let offset = match (rest, digits) {
        ([b'.', ..], 0) => return false,
        ([b'.', ..], _) => &rest[1 + digits..],
        _ => rest,
    };
    let offset_fits = match offset {
        b"Z" => true,
        [b'+' | b'-', hours @ .., b':', _, _] => {
            number(hours, 2, 23) && number(&offset[4..], 2, 59)
        }
        _ => false,
    };
    let [
        year @ ..,
        b'-',
        m1,
        m2,
        b'-',
        d1,
        d2,
        b'T',
        h1,
        h2,
        b':',
        n1,
        n2,
        b':',
        s1,
        s2,
    ] = start
    else {
        return false;
    };
    offset_fits
        && number(year, 4, 9999)
        && number(&[*h1, *h2], 2, 23)
        && number(&[*n1, *n2], 2, 59)
        && number(&[*s1, *s2], 2, 59)
        && std::str::from_utf8(&start[..10])
            .is_ok_and(|date| date.parse::<jiff::civil::Date>().is_ok())
        && [m1, m2, d1, d2].iter().all(|byte| byte.is_ascii_digit())
}

fn number(digits: &[u8], length: usize, most: u16) -> bool {
    digits.len() == length
        && digits.iter().all(u8::is_ascii_digit)
        && digits
            .iter()
            .fold(0, |number, digit| number * 10 + u16::from(digit - b'0'))
            <= most
}

impl From<Timestamp> for TurnTime {
    fn from(time: Timestamp) -> Self {
        Self(time.to_rfc3339())
    }
}

impl Default for TurnTime {
    /// The zero time of Go.
    fn default() -> Self {
        Self("0001-01-01T00:00:00Z".to_owned())
    }
}

impl fmt::Debug for TurnTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A turn to add, as transports read it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTurn {
    /// Message of the user; may be empty.
    #[serde(default)]
    pub user_message: String,
    /// Reply of the assistant; may be empty.
    #[serde(default)]
    pub assistant_response: String,
    /// When it happened, RFC 3339; `None` = now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// What the assistant did between message and reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trajectory_digest: Option<NewDigest>,
    /// Artifacts shown to the user: a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts_shown: Option<Json>,
    /// References to artifacts hidden from the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts_hidden_refs: Option<Vec<String>>,
    /// Idempotency key, 1 to 256 bytes.
    ///
    /// Adding the same turn again within a day adds nothing and returns the first result; adding
    /// another turn under it is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once: Option<String>,
}

/// Report of what an assistant did in a turn, as transports read it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NewDigest {
    /// The tools that it called.
    pub tools_invoked: Vec<String>,
    /// Summary of its observations.
    pub observations_summary: String,
    /// Summary of its reasoning.
    pub reasoning_summary: String,
    /// The files that it made.
    pub artifacts_refs: Vec<String>,
}

impl NewTurn {
    /// Makes a turn of two texts, with the current time.
    pub fn new(user_message: impl Into<String>, assistant_response: impl Into<String>) -> Self {
        Self {
            user_message: user_message.into(),
            assistant_response: assistant_response.into(),
            ..Self::default()
        }
    }

    /// Returns whether the turn has neither texts nor a digest nor artifacts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let texts = [&self.user_message, &self.assistant_response];
        texts.iter().all(|text| text.is_empty())
            && self.trajectory_digest.is_none()
            && self.artifacts_shown.is_none()
            && self.artifacts_hidden_refs.is_none()
    }

    /// Returns the turn.
    ///
    /// # Errors
    /// A message, if the timestamp isn't one or the artifacts aren't an object.
    pub fn into_turn(self, now: Timestamp) -> Result<ConversationTurn, String> {
        if let Some(shown) = &self.artifacts_shown {
            if !shown.as_str().trim_start().starts_with('{') {
                return Err("artifacts_shown must be an object".to_owned());
            }
            // A deeper value could be written and never read again.
            if !is_shallow(shown.as_str()) {
                return Err(format!(
                    "artifacts_shown is nested more than {MAX_DEPTH} levels deep"
                ));
            }
        }
        Ok(ConversationTurn {
            user_message: self.user_message,
            assistant_response: self.assistant_response,
            trajectory_digest: self.trajectory_digest.map(|digest| TrajectoryDigest {
                tools_invoked: Some(digest.tools_invoked),
                observations_summary: digest.observations_summary,
                reasoning_summary: digest.reasoning_summary,
                artifacts_refs: Some(digest.artifacts_refs),
                other: BTreeMap::new(),
            }),
            artifacts_shown: self.artifacts_shown,
            artifacts_hidden_refs: self.artifacts_hidden_refs,
            timestamp: self
                .timestamp
                .as_deref()
                .map(TurnTime::parse)
                .transpose()?
                .unwrap_or_else(|| now.into()),
            other: BTreeMap::new(),
        })
    }
}

helmdeck_core::redacted_debug!(NewTurn, this => bytes = this.user_message.len() + this.assistant_response.len());
helmdeck_core::redacted_debug!(NewDigest);
helmdeck_core::redacted_debug!(ConversationTurn, this =>
    bytes = this.user_message.len() + this.assistant_response.len());
helmdeck_core::redacted_debug!(TrajectoryDigest);
