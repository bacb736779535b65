//! Parses turns and records: in one pass, without recursion, strictly.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use helmdeck_core::Json;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::json_path::{At, JsonPath};
use super::{MAX_OTHER, is_shallow, keys};
use crate::config::Strategy;
use crate::error::{ConversationError, Result};
use crate::snapshot::Record;
use crate::turn::{ConversationTurn, TrajectoryDigest, TurnTime};

/// Parses a turn.
///
/// # Errors
/// A message with the path (`TrajectoryDigest.ToolsInvoked: must be null or a list of strings`) and
/// no text of the turn. A turn needs a user message or an assistant response.
pub fn read_turn(bytes: &[u8]) -> Result<ConversationTurn, String> {
    let at = At::default();
    read(bytes, Turn(&at), &at)
}

/// Parses a snapshot of at most `max_bytes` bytes and `max_turns` turns.
///
/// # Errors
/// `InvalidSnapshot` with the path (`turns[3].Timestamp: ...`) and no text of a turn; `TooLarge`.
pub fn read_record(bytes: &[u8], max_bytes: u64, max_turns: u64) -> Result<Record> {
    let size = bytes.len() as u64;
    if size > max_bytes {
        return Err(ConversationError::TooLarge {
            what: "snapshot",
            size,
            limit: max_bytes,
            unit: "bytes",
        });
    }
    let at = At::default();
    let wrapped = unwrap_go(bytes)?;
    let bytes = wrapped.as_deref().unwrap_or(bytes);
    let (record, turns) = read(bytes, Whole { at: &at, max_turns }, &at)
        .map_err(ConversationError::InvalidSnapshot)?;
    if turns > max_turns {
        return Err(ConversationError::TooLarge {
            what: "snapshot",
            size: turns,
            limit: max_turns,
            unit: "turns",
        });
    }
    Ok(record)
}

/// The `Snapshot` of the original as Go's `json.Marshal` writes it.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct GoSnapshot {
    #[serde(rename = "Strategy")]
    strategy: String,
    #[serde(rename = "Bytes")]
    bytes: Option<String>,
}

/// Unwraps the original's `{"Strategy": "..", "Bytes": "<base64>"}`.
///
/// Returns `None` if the bytes are something else.
fn unwrap_go(bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    let Ok(outer) = serde_json::from_slice::<GoSnapshot>(bytes) else {
        return Ok(None);
    };
    let text = outer.bytes.unwrap_or_default();
    if text.is_empty() {
        // Without bytes it is of a strategy and says no more.
        return Ok(Some(
            serde_json::json!({ "strategy": outer.strategy })
                .to_string()
                .into_bytes(),
        ));
    }
    let invalid = |what: &str| ConversationError::InvalidSnapshot(format!("Bytes: {what}"));
    let record = STANDARD
        .decode(text)
        .map_err(|_| invalid("must be base64"))?;
    let inner: StrategyField = serde_json::from_slice(&record).unwrap_or_default();
    if inner.strategy.is_some_and(|inner| inner != outer.strategy) {
        return Err(invalid("another strategy than Strategy says"));
    }
    Ok(Some(record))
}

/// The strategy of a record.
#[derive(Default, serde::Deserialize)]
struct StrategyField {
    strategy: Option<String>,
}

fn read<'de, S: DeserializeSeed<'de>>(
    bytes: &'de [u8],
    seed: S,
    at: &At,
) -> Result<S::Value, String> {
    // Checked once for the whole text.
    let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    seed.deserialize(&mut deserializer)
        .and_then(|value| {
            at.set(JsonPath::default());
            deserializer.end().map(|()| value)
        })
        .map_err(|error| at.message(&error))
}

/// A record and its number of turns; turns over `max_turns` are counted, not stored.
struct Whole<'a> {
    at: &'a At,
    max_turns: u64,
}

impl<'de> DeserializeSeed<'de> for Whole<'_> {
    type Value = (Record, u64);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = (Record, u64);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut record = Record::default();
        let mut members = Members::new(self.at, JsonPath::default(), &keys::RECORD);
        let (mut strategy, mut count) = (None, 0);
        while let Some(name) = members.next(&mut map, &mut record.other)? {
            match name {
                "strategy" => {
                    let name = map.next_value::<String>()?;
                    strategy = Some(Strategy::parse(&name).map_err(|_| {
                        self.at
                            .fail::<A::Error>("must be one of none, rolling_summary, truncation")
                    })?);
                }
                "turns" => {
                    (record.turns, count) = map.next_value_seed(Turns {
                        at: self.at,
                        max: self.max_turns,
                    })?;
                }
                "summary" => record.summary = map.next_value()?,
                "opening" => record.opening = map.next_value()?,
                _ => record.pinned = map.next_value()?,
            }
        }
        record.strategy = strategy.ok_or_else(|| self.at.fail("there is no strategy"))?;
        Ok((record, count))
    }
}

struct Turns<'a> {
    at: &'a At,
    max: u64,
}

impl<'de> DeserializeSeed<'de> for Turns<'_> {
    type Value = (Vec<ConversationTurn>, u64);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Turns<'_> {
    type Value = (Vec<ConversationTurn>, u64);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut turns = Vec::new();
        let mut count = 0;
        loop {
            self.at.set(JsonPath::turn(turns.len()));
            let Some(turn) = items.next_element_seed(Turn(self.at))? else {
                break;
            };
            turns.push(turn);
            count += 1;
            if count >= self.max {
                self.at.set(JsonPath::default());
                while items.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                break;
            }
        }
        Ok((turns, count))
    }
}

struct Turn<'a>(&'a At);

impl<'de> DeserializeSeed<'de> for Turn<'_> {
    type Value = ConversationTurn;

    fn deserialize<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<ConversationTurn, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Turn<'_> {
    type Value = ConversationTurn;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a turn")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ConversationTurn, A::Error> {
        let mut turn = ConversationTurn::default();
        let mut members = Members::new(self.0, self.0.get(), &keys::TURN);
        let mut has_text = false;
        while let Some(name) = members.next(&mut map, &mut turn.other)? {
            match name {
                "UserMessage" => turn.user_message = map.next_value()?,
                "AssistantResponse" => turn.assistant_response = map.next_value()?,
                "TrajectoryDigest" => {
                    turn.trajectory_digest = map.next_value_seed(Digest(self.0))?
                }
                "ArtifactsShown" => turn.artifacts_shown = shown(self.0, map.next_value()?)?,
                "ArtifactsHiddenRefs" => turn.artifacts_hidden_refs = map.next_value()?,
                _ => {
                    let time = TurnTime::of(map.next_value()?);
                    turn.timestamp =
                        time.ok_or_else(|| self.0.fail("must be a time in the form of RFC 3339"))?;
                }
            }
            has_text |= matches!(name, "UserMessage" | "AssistantResponse");
        }
        if has_text {
            Ok(turn)
        } else {
            Err(self
                .0
                .fail("there is neither UserMessage nor AssistantResponse"))
        }
    }
}

fn shown<E: serde::de::Error>(at: &At, raw: &RawValue) -> Result<Option<Json>, E> {
    match raw.get() {
        "null" => Ok(None),
        text if text.starts_with('{') => kept(at, raw).map(Some),
        _ => Err(at.fail("must be null or an object")),
    }
}

struct Digest<'a>(&'a At);

impl<'de> DeserializeSeed<'de> for Digest<'_> {
    type Value = Option<TrajectoryDigest>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Digest<'_> {
    type Value = Option<TrajectoryDigest>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a digest")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut digest = TrajectoryDigest::default();
        let turn = self.0.get();
        let mut members = Members::new(self.0, turn.digest(), &keys::DIGEST);
        while let Some(name) = members.next(&mut map, &mut digest.other)? {
            match name {
                "ToolsInvoked" => digest.tools_invoked = map.next_value()?,
                "ObservationsSummary" => digest.observations_summary = map.next_value()?,
                "ReasoningSummary" => digest.reasoning_summary = map.next_value()?,
                _ => digest.artifacts_refs = map.next_value()?,
            }
        }
        self.0.set(turn);
        Ok(Some(digest))
    }
}

/// Members of an object: returns the known ones, stores the others, and rejects duplicates.
struct Members<'a> {
    at: &'a At,
    object: JsonPath,
    known: &'static [&'static str],
    seen: u8,
}

impl<'a> Members<'a> {
    fn new(at: &'a At, object: JsonPath, known: &'static [&'static str]) -> Self {
        Self {
            at,
            object: object.member(None),
            known,
            seen: 0,
        }
    }

    /// Returns the name of the next known member; its value is next in the map.
    fn next<'de, A: MapAccess<'de>>(
        &mut self,
        map: &mut A,
        other: &mut BTreeMap<String, Json>,
    ) -> Result<Option<&'static str>, A::Error> {
        loop {
            self.at.set(self.object);
            match map.next_key_seed(Name(self.known))? {
                None => return Ok(None),
                Some(Key::Known(index)) => {
                    let name = self.known[index];
                    self.at.set(self.object.member(Some(name)));
                    let bit = 1 << index;
                    if self.seen & bit != 0 {
                        return Err(self.at.fail("is there twice"));
                    }
                    self.seen |= bit;
                    return Ok(Some(name));
                }
                Some(Key::Other(name)) => {
                    if other.len() == MAX_OTHER {
                        return Err(self.at.fail("more than 256 unknown members"));
                    }
                    let value = kept(self.at, map.next_value()?)?;
                    if other.insert(name, value).is_some() {
                        return Err(self.at.fail("an unknown member is there twice"));
                    }
                }
            }
        }
    }
}

fn kept<E: serde::de::Error>(at: &At, raw: &RawValue) -> Result<Json, E> {
    if is_shallow(raw.get()) {
        Ok(Json::from_trusted(Bytes::copy_from_slice(
            raw.get().as_bytes(),
        )))
    } else {
        Err(at.fail("nested too deep"))
    }
}

enum Key {
    Known(usize),
    Other(String),
}

/// Parses a key; only unknown ones are copied.
struct Name(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, name: &str) -> Result<Key, E> {
        let known = self.0.iter().position(|known| *known == name);
        Ok(known.map_or_else(|| Key::Other(name.to_owned()), Key::Known))
    }
}
