//! Random turns come back as they were.
//!
//! Random bytes and damaged snapshots are an error or a record, never anything else.

use std::collections::BTreeMap;

use helmdeck_core::Json;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use super::fixtures::ALL;
use crate::config::Strategy as Kind;
use crate::snapshot::Record;
use crate::turn::{ConversationTurn, TrajectoryDigest, TurnTime};
use crate::wire::{read_record, read_turn, write_record, write_turn};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        vec(any::<char>(), 0..40).prop_map(String::from_iter),
        "[ -~]{0,60}",
        "[<>&\"\\\\/\u{0}-\u{1f}\u{7f}\u{2027}-\u{202a}\u{fffd}]{0,20}",
    ]
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(text(), inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn other() -> impl Strategy<Value = BTreeMap<String, Json>> {
    let name = text().prop_map(|name| format!("x{name}"));
    btree_map(name, json().prop_map(Json::from), 0..3)
}

fn list() -> impl Strategy<Value = Option<Vec<String>>> {
    option::of(vec(text(), 0..4))
}

fn time() -> impl Strategy<Value = TurnTime> {
    "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-](0[0-9]|1[0-9]):[0-5][0-9])"
        .prop_map(|text| TurnTime::parse(&text).unwrap())
}

fn digest() -> impl Strategy<Value = TrajectoryDigest> {
    (list(), text(), text(), list(), other()).prop_map(
        |(tools, observations, reasoning, refs, other)| TrajectoryDigest {
            tools_invoked: tools,
            observations_summary: observations,
            reasoning_summary: reasoning,
            artifacts_refs: refs,
            other,
        },
    )
}

fn turn() -> impl Strategy<Value = ConversationTurn> {
    let shown = btree_map(text(), json(), 0..3)
        .prop_map(|map| Json::from(Value::Object(map.into_iter().collect())));
    (
        text(),
        text(),
        option::of(digest()),
        option::of(shown),
        list(),
        time(),
        other(),
    )
        .prop_map(
            |(
                user_message,
                assistant_response,
                trajectory_digest,
                artifacts_shown,
                artifacts_hidden_refs,
                timestamp,
                other,
            )| {
                ConversationTurn {
                    user_message,
                    assistant_response,
                    trajectory_digest,
                    artifacts_shown,
                    artifacts_hidden_refs,
                    timestamp,
                    other,
                }
            },
        )
}

fn record() -> impl Strategy<Value = Record> {
    let strategy = prop::sample::select(Kind::ALL.to_vec());
    (
        strategy,
        vec(turn(), 0..4),
        text(),
        option::of(text()),
        option::of(text()),
        other(),
    )
        .prop_map(
            |(strategy, turns, summary, opening, pinned, other)| Record {
                strategy,
                turns,
                summary,
                opening,
                pinned,
                other,
            },
        )
}

/// Takes a snapshot apart at random.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let wound = (
        0..5_u8,
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        any::<u8>(),
    );
    (prop::sample::select(ALL.to_vec()), vec(wound, 1..6)).prop_map(|((_, text), wounds)| {
        let mut bytes = text.as_bytes().to_vec();
        for (kind, at, to, byte) in wounds {
            if bytes.is_empty() {
                break;
            }
            let (at, to) = (at.index(bytes.len()), to.index(bytes.len()));
            let (from, to) = (at.min(to), at.max(to));
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.drain(from..to)),
                3 => bytes.truncate(at),
                _ => {
                    let copy = bytes[from..to].to_vec();
                    bytes.splice(from..from, copy);
                }
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_turn_comes_back(turn in turn()) {
        let written = write_turn(&turn);
        prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&written).is_ok());
        // What Go escapes is escaped in every text that is ours to write.
        if turn.artifacts_shown.is_none() && turn.other.is_empty() && turn.trajectory_digest.is_none() {
            let written = std::str::from_utf8(&written).unwrap();
            let escaped = !written.contains(['<', '>', '&', '\u{2028}', '\u{2029}']);
            prop_assert!(escaped);
        }
        prop_assert!(read_turn(&written) == Ok(turn));
    }

    #[test]
    fn any_record_comes_back(record in record()) {
        let written = write_record(&record);
        let read = read_record(&written, written.len() as u64, record.turns.len() as u64).unwrap();
        prop_assert!(read == record);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200), json in json()) {
        let _ = read_turn(&bytes);
        let _ = read_record(&bytes, 1 << 20, 10);
        let _ = read_turn(json.to_string().as_bytes());
        let _ = read_record(json.to_string().as_bytes(), 1 << 20, 10);
    }

    #[test]
    fn damaged_snapshot_is_refused_or_round_trips(bytes in damaged()) {
        if let Ok(record) = read_record(&bytes, 1 << 20, 100) {
            let written = write_record(&record);
            prop_assert!(read_record(&written, u64::MAX, u64::MAX).unwrap() == record);
            // Nothing is made up: what is kept is in the bytes.
            prop_assert!(written.len() <= bytes.len() * 6 + 200 * (record.turns.len() + 1));
        }
    }
}
