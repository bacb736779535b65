//! Writes turns and records in the JSON of the Go original.

use std::collections::BTreeMap;

use helmdeck_core::Json;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::format::go_into;
use super::keys;
use crate::snapshot::Record;
use crate::turn::{ConversationTurn, TrajectoryDigest};

/// Writes a turn.
#[must_use]
pub fn write_turn(turn: &ConversationTurn) -> Vec<u8> {
    let mut out = Vec::with_capacity(turn_size(turn));
    go_into(&mut out, &Turn(turn));
    out
}

/// Writes the JSON of a snapshot.
#[must_use]
pub fn write_record(record: &Record) -> Vec<u8> {
    let turns: usize = record.turns.iter().map(turn_size).sum();
    let mut out = Vec::with_capacity(64 + turns + record.summary.len() + record.summary.len() / 16);
    go_into(&mut out, &Whole(record));
    out
}

/// Approximate size of a turn.
fn turn_size(turn: &ConversationTurn) -> usize {
    let text = turn.user_message.len() + turn.assistant_response.len();
    192 + text + text / 16
}

struct Whole<'a>(&'a Record);

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let record = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("strategy", record.strategy.as_str())?;
        if !record.turns.is_empty() {
            map.serialize_entry("turns", &Turns(&record.turns))?;
        }
        if !record.summary.is_empty() {
            map.serialize_entry("summary", &record.summary)?;
        }
        if let Some(opening) = &record.opening {
            map.serialize_entry("opening", opening)?;
        }
        if let Some(pinned) = &record.pinned {
            map.serialize_entry("pinned", pinned)?;
        }
        others(&mut map, &record.other, &keys::RECORD)?;
        map.end()
    }
}

struct Turns<'a>(&'a [ConversationTurn]);

impl Serialize for Turns<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Turn))
    }
}

struct Turn<'a>(&'a ConversationTurn);

impl Serialize for Turn<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let turn = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("UserMessage", &turn.user_message)?;
        map.serialize_entry("AssistantResponse", &turn.assistant_response)?;
        map.serialize_entry(
            "TrajectoryDigest",
            &turn.trajectory_digest.as_ref().map(Digest),
        )?;
        map.serialize_entry("ArtifactsShown", &turn.artifacts_shown.as_ref().map(raw))?;
        map.serialize_entry("ArtifactsHiddenRefs", &turn.artifacts_hidden_refs)?;
        map.serialize_entry("Timestamp", turn.timestamp.as_str())?;
        others(&mut map, &turn.other, &keys::TURN)?;
        map.end()
    }
}

struct Digest<'a>(&'a TrajectoryDigest);

impl Serialize for Digest<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digest = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("ToolsInvoked", &digest.tools_invoked)?;
        map.serialize_entry("ObservationsSummary", &digest.observations_summary)?;
        map.serialize_entry("ReasoningSummary", &digest.reasoning_summary)?;
        map.serialize_entry("ArtifactsRefs", &digest.artifacts_refs)?;
        others(&mut map, &digest.other, &keys::DIGEST)?;
        map.end()
    }
}

/// Writes unknown members. One with a known name would be a duplicate key, and is left out.
fn others<M: SerializeMap>(
    map: &mut M,
    other: &BTreeMap<String, Json>,
    known: &[&str],
) -> Result<(), M::Error> {
    other
        .iter()
        .filter(|(name, _)| !known.contains(&name.as_str()))
        .try_for_each(|(name, value)| map.serialize_entry(name, raw(value)))
}

/// Returns the text of a value, or `null` if it is invalid JSON, so that the document stays JSON.
pub(crate) fn raw(json: &Json) -> &RawValue {
    serde_json::from_str(json.as_str()).unwrap_or(RawValue::NULL)
}
