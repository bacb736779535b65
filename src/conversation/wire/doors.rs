//! The forms in which REST, the command line and packs show turns: snake case, with absent members left out.

use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};
use serde_json::value::RawValue;

use super::write::raw;
use crate::item::{ItemDetail, ItemId};
use crate::patch::{LlmContextPatch, RecentTurn};
use crate::snapshot::Snapshot;
use crate::turn::{ConversationTurn, TrajectoryDigest};

/// A turn as a transport shows it:
///
/// ```text
/// {"id": "mem_...", "user_message": "..", "assistant_response": "..", "timestamp": "2026-11-22T16:00:00Z",
///  "trajectory_digest": {"tools_invoked": [], "observations_summary": "..", "reasoning_summary": "..", "artifacts_refs": []},
///  "artifacts_shown": {}, "artifacts_hidden_refs": []}
/// ```
///
/// `id` is there if there is one; the last three are left out if the turn has none. Lists of a digest that are absent are empty.
#[derive(Debug, Clone, Copy)]
pub struct DoorTurn<'a> {
    /// The id, where it does not stand elsewhere.
    pub id: Option<ItemId>,
    /// The turn.
    pub turn: &'a ConversationTurn,
}

impl Serialize for DoorTurn<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(self.id, self.turn, true, serializer)
    }
}

/// A turn as a model is shown it: as [`DoorTurn`], without the references that are hidden from it.
struct ShownTurn<'a>(&'a RecentTurn);

impl Serialize for ShownTurn<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(Some(self.0.id), &self.0.turn, false, serializer)
    }
}

fn write<S: Serializer>(
    id: Option<ItemId>,
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
        map.serialize_entry("trajectory_digest", &DoorDigest(digest))?;
    }
    if let Some(shown) = &turn.artifacts_shown {
        map.serialize_entry("artifacts_shown", raw(shown))?;
    }
    if let Some(refs) = turn.artifacts_hidden_refs.as_ref().filter(|_| hidden) {
        map.serialize_entry("artifacts_hidden_refs", refs)?;
    }
    map.end()
}

struct DoorDigest<'a>(&'a TrajectoryDigest);

impl Serialize for DoorDigest<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digest = self.0;
        let mut form = serializer.serialize_struct("TrajectoryDigest", 4)?;
        form.serialize_field("tools_invoked", digest.tools_invoked.as_deref().unwrap_or_default())?;
        form.serialize_field("observations_summary", &digest.observations_summary)?;
        form.serialize_field("reasoning_summary", &digest.reasoning_summary)?;
        form.serialize_field("artifacts_refs", digest.artifacts_refs.as_deref().unwrap_or_default())?;
        form.end()
    }
}

/// The form of the transports, as the type's own documentation says.
impl Serialize for LlmContextPatch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Turns<'a>(&'a LlmContextPatch);

        impl Serialize for Turns<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.0.recent_turns.iter().map(ShownTurn))
            }
        }

        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("strategy", &self.strategy)?;
        if !self.summary.is_empty() {
            map.serialize_entry("summary", &self.summary)?;
        }
        if let Some(opening) = &self.opening {
            map.serialize_entry("opening", opening)?;
        }
        map.serialize_entry("recent_turns", &Turns(self))?;
        map.serialize_entry("tokens", &self.tokens)?;
        map.serialize_entry("omitted_turns", &self.omitted_turns)?;
        map.serialize_entry("over_budget", &self.over_budget)?;
        map.serialize_entry("unreadable", &self.unreadable)?;
        map.end()
    }
}

/// `{"item": {...}, "value": {...}}`: the item as it is listed, and the turn as a [`DoorTurn`] without an id.
impl Serialize for ItemDetail {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut form = serializer.serialize_struct("ItemDetail", 2)?;
        form.serialize_field("item", &self.item)?;
        form.serialize_field("value", &DoorTurn { id: None, turn: &self.turn })?;
        form.end()
    }
}

/// The record's JSON itself; for an empty one `{"strategy": ...}`, or `null` if there is not even that.
impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.bytes.is_empty() {
            let raw: &RawValue = serde_json::from_slice(&self.bytes).map_err(serde::ser::Error::custom)?;
            return raw.serialize(serializer);
        }
        let Some(strategy) = self.strategy else { return serializer.serialize_unit() };
        let mut form = serializer.serialize_struct("Snapshot", 1)?;
        form.serialize_field("strategy", &strategy)?;
        form.end()
    }
}
