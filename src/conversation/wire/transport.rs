//! Turns and snapshots in the JSON form of REST, the command line and packs.
//!
//! Names are in snake case, and absent members are left out.

use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};
use serde_json::value::RawValue;

use super::write::raw;
use crate::patch::RecentTurn;
use crate::snapshot::Snapshot;
use crate::turn::{ConversationTurn, TrajectoryDigest};
use crate::turn_id::TurnId;

/// A turn as a transport shows it:
///
/// ```text
/// {"id": "mem_...", "user_message": "..", "assistant_response": "..", "timestamp": "2026-11-22T16:00:00Z",
///  "trajectory_digest": {"tools_invoked": [], "observations_summary": "..", "reasoning_summary": "..", "artifacts_refs": []},
///  "artifacts_shown": {}, "artifacts_hidden_refs": []}
/// ```
///
/// `id` and the last three members are optional. Absent lists of a digest are written as empty
/// ones.
#[derive(Debug, Clone, Copy)]
pub struct TransportTurn<'a> {
    /// The id, unless it is written elsewhere.
    pub id: Option<TurnId>,
    /// The turn.
    pub turn: &'a ConversationTurn,
}

impl Serialize for TransportTurn<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(self.id, self.turn, true, serializer)
    }
}

/// The form in a context: a [`TransportTurn`] without the references that are hidden from the
/// model.
impl Serialize for RecentTurn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(Some(self.id), &self.turn, false, serializer)
    }
}

fn write<S: Serializer>(
    id: Option<TurnId>,
    turn: &ConversationTurn,
    hidden: bool,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    if let Some(id) = &id {
        map.serialize_entry("id", id)?;
    }
    map.serialize_entry("user_message", &turn.user_message)?;
    map.serialize_entry("assistant_response", &turn.assistant_response)?;
    map.serialize_entry("timestamp", turn.timestamp.as_str())?;
    if let Some(digest) = &turn.trajectory_digest {
        map.serialize_entry("trajectory_digest", &TransportDigest::from(digest))?;
    }
    if let Some(shown) = &turn.artifacts_shown {
        map.serialize_entry("artifacts_shown", raw(shown))?;
    }
    if let Some(refs) = turn.artifacts_hidden_refs.as_ref().filter(|_| hidden) {
        map.serialize_entry("artifacts_hidden_refs", refs)?;
    }
    map.end()
}

/// A digest as a transport shows it.
#[derive(serde::Serialize)]
pub(crate) struct TransportDigest<'a> {
    tools_invoked: &'a [String],
    observations_summary: &'a str,
    reasoning_summary: &'a str,
    artifacts_refs: &'a [String],
}

impl<'a> From<&'a TrajectoryDigest> for TransportDigest<'a> {
    fn from(digest: &'a TrajectoryDigest) -> Self {
        Self {
            tools_invoked: digest.tools_invoked.as_deref().unwrap_or_default(),
            observations_summary: &digest.observations_summary,
            reasoning_summary: &digest.reasoning_summary,
            artifacts_refs: digest.artifacts_refs.as_deref().unwrap_or_default(),
        }
    }
}

/// The JSON of the snapshot; for an empty one `{"strategy": ...}`, or `null` if that is missing
/// too.
impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.bytes.is_empty() {
            let raw: &RawValue =
                serde_json::from_slice(&self.bytes).map_err(serde::ser::Error::custom)?;
            return raw.serialize(serializer);
        }
        let Some(strategy) = self.strategy else {
            return serializer.serialize_unit();
        };
        let mut object = serializer.serialize_struct("Snapshot", 1)?;
        object.serialize_field("strategy", &strategy)?;
        object.end()
    }
}
