//! Envelope of an event, as it is logged and sent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::subjects::Subject;
use crate::json::{Json, Members};
use crate::secrets;
use crate::time::Time;

/// Maximum size of a sent event, in bytes.
pub const MOST_BYTES: usize = 64 * 1024;

/// An event.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Envelope {
    /// The version of the envelope: 1.
    pub v: u32,
    /// Its id, a `UUIDv7`. Subscribers drop events whose id they have seen.
    #[serde(with = "id")]
    #[schemars(with = "String")]
    pub id: Uuid,
    /// The type of the Redux action: `forge/memory/session/start`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The subject: `sx9.forge.memory.session.start`.
    pub subject: String,
    /// When it happened.
    pub ts: Time,
    /// Sequence number of the event in this work tree, from 1. A gap means that an event was lost.
    pub seq: u64,
    /// The first commit of the repository, which all its clones share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,
    /// The work tree: the name of its folder, and a suffix that makes it unique.
    pub worktree: String,
    /// The branch that was checked out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit that was checked out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// The session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The agent.
    pub agent: String,
    /// Payload: references and counts. `{"withheld": [...]}` if the payload was redacted.
    #[serde(default)]
    pub data: Json,
    /// Members that this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

impl Envelope {
    /// Returns the event as one line.
    ///
    /// The payload is redacted if the line is too long or a secret scan finds something in it.
    pub(super) fn line(mut self) -> (Self, String) {
        let text = compact(&self);
        let mut reasons: Vec<_> = secrets::scan(&text)
            .into_iter()
            .map(|finding| finding.rule)
            .collect();
        if text.len() > MOST_BYTES {
            reasons.push("too_large");
        }
        if reasons.is_empty() {
            return (self, text);
        }
        reasons.dedup();
        let reasons = reasons
            .into_iter()
            .map(|reason| Json::String(reason.to_owned()))
            .collect();
        self.data = Json::Object(Members(
            [("withheld".to_owned(), Json::Array(reasons))]
                .into_iter()
                .collect(),
        ));
        let mut text = compact(&self);
        if text.len() > MOST_BYTES || !secrets::scan(&text).is_empty() {
            // The secret was not in the payload: a branch may have any name.
            self.branch = None;
            self.session = None;
            "withheld".clone_into(&mut self.worktree);
            "withheld".clone_into(&mut self.agent);
            text = compact(&self);
        }
        (self, text)
    }

    /// Parses an event. `None` if the bytes are not one.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bounded = bytes.len() <= MOST_BYTES;
        bounded
            .then(|| serde_json::from_slice(bytes).ok())
            .flatten()
    }

    /// Returns the subject of the event; `None` for a type that this program does not know.
    #[must_use]
    pub fn about(&self) -> Option<Subject> {
        Subject::of_redux(&self.kind)
    }
}

mod id {
    use std::borrow::Cow;

    use serde::{Deserialize as _, Deserializer, Serializer, de};
    use uuid::Uuid;

    pub(super) fn serialize<S: Serializer>(id: &Uuid, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Uuid, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

fn compact(envelope: &Envelope) -> String {
    serde_json::to_string(envelope).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn event(seq: u64, data: Json) -> Envelope {
        let subject = Subject::SessionStart;
        Envelope {
            v: 1,
            id: Uuid::from_u128(0x0198_0000_0000_7000_8000_0000_0000_0000 + u128::from(seq)),
            kind: subject.redux(),
            subject: subject.to_string(),
            ts: Time::parse("2025-12-24T10:30:00.25Z").unwrap(),
            seq,
            repo: Some("c0ffee".to_owned()),
            worktree: "deck-3nec5pfi".to_owned(),
            branch: Some("main".to_owned()),
            session: Some("2025-12-24-session-001".to_owned()),
            agent: "Forge".to_owned(),
            data,
            ..Envelope::default()
        }
    }

    #[test]
    fn an_event_is_one_line_of_known_form() {
        let data: Json =
            serde_json::from_str(r#"{"branch":"main","features":{"passing":2,"total":3}}"#)
                .unwrap();
        let (event, line) = event(7, data).line();
        assert_eq!(
            line,
            r#"{"v":1,"id":"01980000-0000-7000-8000-000000000007","type":"forge/memory/session/start","#.to_owned()
                + r#""subject":"sx9.forge.memory.session.start","ts":"2025-12-24T10:30:00.25Z","seq":7,"repo":"c0ffee","#
                + r#""worktree":"deck-3nec5pfi","branch":"main","session":"2025-12-24-session-001","agent":"Forge","#
                + r#""data":{"branch":"main","features":{"passing":2,"total":3}}}"#
        );
        assert_eq!(Envelope::parse(line.as_bytes()), Some(event));
    }

    #[test]
    fn what_others_add_to_an_event_is_kept() {
        let (_, line) = event(1, Json::Null).line();
        let more = line.replace("\"seq\":1", "\"seq\":1,\"trace\":\"x\"");
        let read = Envelope::parse(more.as_bytes()).unwrap();
        assert_eq!(read.other.0["trace"], Json::String("x".to_owned()));
        assert_eq!(Envelope::parse(b"{\"v\":1}"), None);
    }

    #[test]
    fn long_data_is_withheld_and_the_event_is_not() {
        let fits = event(1, Json::Null).line().1.len();
        let data = |length: usize| Json::String("x".repeat(length));
        // `null` becomes a quoted string.
        let most = MOST_BYTES - fits + 4 - 2;
        let (_, line) = event(1, data(most)).line();
        assert_eq!(line.len(), MOST_BYTES);
        let (event, line) = event(1, data(most + 1)).line();
        assert!(
            line.contains(r#""data":{"withheld":["too_large"]}"#),
            "{}",
            &line[..300]
        );
        assert_eq!(Envelope::parse(line.as_bytes()), Some(event));
    }

    #[test]
    fn a_secret_is_withheld_and_not_repeated() {
        let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
        let (_, line) = event(1, Json::String(format!("used {token}"))).line();
        assert!(
            !line.contains(&token) && line.contains("withheld"),
            "{line}"
        );
        let mut named = event(1, Json::Null);
        named.branch = Some(token.clone());
        let (_, line) = named.line();
        assert!(
            !line.contains(&token) && line.contains("\"seq\":1"),
            "{line}"
        );
    }
}
