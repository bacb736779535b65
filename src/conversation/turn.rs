//! A turn of a conversation: what the user said, what the assistant answered, and what it did in between. One unit, never split.

use std::collections::BTreeMap;
use std::fmt;

use helmdeck_core::{Json, Timestamp};
use serde::{Deserialize, Serialize};

use crate::wire::{MAX_DEPTH, is_shallow};

/// A turn of a conversation.
///
/// Its JSON (see [`crate::wire`]) has the keys of the original, in its order: `UserMessage`, `AssistantResponse`,
/// `TrajectoryDigest`, `ArtifactsShown`, `ArtifactsHiddenRefs`, `Timestamp`, then whatever else a reader found there.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ConversationTurn {
    /// What the user said.
    pub user_message: String,
    /// What the assistant answered.
    pub assistant_response: String,
    /// What the assistant did in between.
    pub trajectory_digest: Option<TrajectoryDigest>,
    /// What the user was shown: an object of any values, kept as it was written.
    pub artifacts_shown: Option<Json>,
    /// What the user was not shown.
    pub artifacts_hidden_refs: Option<Vec<String>>,
    /// When it happened.
    pub timestamp: TurnTime,
    /// Members that this version does not know, by name, kept as they were written.
    pub other: BTreeMap<String, Json>,
}

/// What an assistant did in a turn, in short.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct TrajectoryDigest {
    /// The tools that it called; `None` = `null`, as the original writes an absent list.
    pub tools_invoked: Option<Vec<String>>,
    /// What it saw.
    pub observations_summary: String,
    /// What it thought.
    pub reasoning_summary: String,
    /// The files that it made; `None` = `null`.
    pub artifacts_refs: Option<Vec<String>>,
    /// Members that this version does not know, by name, kept as they were written.
    pub other: BTreeMap<String, Json>,
}

/// A time as RFC 3339 text, kept as it was written: a snapshot of another program may be more exact than we are.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TurnTime(String);

impl TurnTime {
    /// Reads a time: `2026-11-22T16:00:00Z`, with a fraction of any length (64 characters in all) and any offset.
    ///
    /// # Errors
    /// A message, if the text is no RFC 3339 time. Small letters and leap seconds are refused too: the original does not read them.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::of(text.to_owned())
            .ok_or_else(|| "a timestamp must be RFC 3339, like \"2026-11-22T16:00:00Z\"".to_owned())
    }

    /// Takes a text that is a time.
    pub(crate) fn of(text: String) -> Option<Self> {
        is_time(text.as_bytes()).then_some(Self(text))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// Not jiff's timestamps: they end a day before the original's latest time, and several forms beside RFC 3339 pass for one.
fn is_time(text: &[u8]) -> bool {
    let (Some((start, rest)), true) = (text.split_at_checked(19), text.len() <= 64) else { return false };
    let digits = rest.strip_prefix(b".").map_or(0, |rest| rest.iter().take_while(|byte| byte.is_ascii_digit()).count());
    let offset = match (rest, digits) {
        ([b'.', ..], 0) => return false,
        ([b'.', ..], _) => &rest[1 + digits..],
        _ => rest,
    };
    let offset_fits = match offset {
        b"Z" => true,
        [b'+' | b'-', hours @ .., b':', _, _] => number(hours, 2, 23) && number(&offset[4..], 2, 59),
        _ => false,
    };
    let [year @ .., b'-', m1, m2, b'-', d1, d2, b'T', h1, h2, b':', n1, n2, b':', s1, s2] = start else { return false };
    offset_fits
        && number(year, 4, 9999)
        && number(&[*h1, *h2], 2, 23)
        && number(&[*n1, *n2], 2, 59)
        && number(&[*s1, *s2], 2, 59)
        && std::str::from_utf8(&start[..10]).is_ok_and(|date| date.parse::<jiff::civil::Date>().is_ok())
        && [m1, m2, d1, d2].iter().all(|byte| byte.is_ascii_digit())
}

fn number(digits: &[u8], length: usize, most: u16) -> bool {
    digits.len() == length
        && digits.iter().all(u8::is_ascii_digit)
        && digits.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0')) <= most
}

impl From<Timestamp> for TurnTime {
    fn from(time: Timestamp) -> Self {
        Self(time.to_rfc3339())
    }
}

impl Default for TurnTime {
    /// The zero time of the original.
    fn default() -> Self {
        Self("0001-01-01T00:00:00Z".to_owned())
    }
}

impl fmt::Debug for TurnTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A turn to be added, as a transport reads it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTurn {
    /// What the user said; may be empty.
    #[serde(default)]
    pub user_message: String,
    /// What the assistant answered; may be empty.
    #[serde(default)]
    pub assistant_response: String,
    /// When it happened, RFC 3339; `None` = now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// What the assistant did in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trajectory_digest: Option<NewDigest>,
    /// What the user was shown: a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts_shown: Option<Json>,
    /// What the user was not shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts_hidden_refs: Option<Vec<String>>,
    /// A name of the caller's for this turn, 1 to 256 bytes: adding it again within a day adds nothing and answers the first;
    /// adding another turn under it is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once: Option<String>,
}

/// What an assistant did in a turn, as a transport reads it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NewDigest {
    /// The tools that it called.
    pub tools_invoked: Vec<String>,
    /// What it saw.
    pub observations_summary: String,
    /// What it thought.
    pub reasoning_summary: String,
    /// The files that it made.
    pub artifacts_refs: Vec<String>,
}

impl NewTurn {
    /// Makes a turn of two texts, now.
    pub fn new(user_message: impl Into<String>, assistant_response: impl Into<String>) -> Self {
        Self { user_message: user_message.into(), assistant_response: assistant_response.into(), ..Self::default() }
    }

    /// Returns the turn.
    ///
    /// # Errors
    /// A message, for a timestamp that is none or artifacts that are no object.
    pub fn into_turn(self, now: Timestamp) -> Result<ConversationTurn, String> {
        if let Some(shown) = &self.artifacts_shown {
            if !shown.as_str().trim_start().starts_with('{') {
                return Err("artifacts_shown must be an object".to_owned());
            }
            // What is deeper could be written, and never read again.
            if !is_shallow(shown.as_str()) {
                return Err(format!("artifacts_shown is nested more than {MAX_DEPTH} levels deep"));
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
            timestamp: self.timestamp.as_deref().map(TurnTime::parse).transpose()?.unwrap_or_else(|| now.into()),
            other: BTreeMap::new(),
        })
    }
}

impl fmt::Debug for NewTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.user_message.len() + self.assistant_response.len();
        f.debug_struct("NewTurn").field("bytes", &bytes).finish_non_exhaustive()
    }
}
impl fmt::Debug for NewDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewDigest").finish_non_exhaustive()
    }
}

// A turn is what people said: no log shows it by accident.
impl fmt::Debug for ConversationTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.user_message.len() + self.assistant_response.len();
        f.debug_struct("ConversationTurn").field("bytes", &bytes).finish_non_exhaustive()
    }
}

impl fmt::Debug for TrajectoryDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrajectoryDigest").finish_non_exhaustive()
    }
}
