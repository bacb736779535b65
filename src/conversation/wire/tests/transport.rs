use std::sync::Arc;

use serde_json::json;

use super::fixtures::ALL;
use crate::config::Strategy;
use crate::patch::{LlmContextPatch, RecentTurn};
use crate::render::{Format, RenderedContext};
use crate::snapshot::Snapshot;
use crate::summarizer::{SummarizeRequest, SummarizeResponse};
use crate::turn::{ConversationTurn, NewTurn};
use crate::turn_id::TurnId;
use crate::views::{Trace, TurnDetail, TurnInfo};
use crate::wire::{read_record, read_turn};

fn turns(name: &str) -> Vec<Arc<ConversationTurn>> {
    let (_, text) = ALL.iter().find(|(known, _)| *known == name).unwrap();
    read_record(text.as_bytes(), 1 << 20, 100)
        .unwrap()
        .turns
        .into_iter()
        .map(Arc::new)
        .collect()
}

#[test]
fn patch_has_the_form_of_the_transports() {
    let turns = turns("rolling_summary");
    let id = |seq| TurnId { seq, nonce: 0xabc };
    let patch = LlmContextPatch {
        strategy: Strategy::RollingSummary,
        summary: String::new(),
        goal: Some("goal".to_owned()),
        recent_turns: turns
            .iter()
            .zip(5..)
            .map(|(turn, seq)| RecentTurn {
                id: id(seq),
                turn: turn.clone(),
            })
            .collect(),
        summary_cut: false,
        tokens: 77,
        omitted_turns: 2,
        over_budget: true,
        unreadable: 1,
    };
    let expected = concat!(
        r#"{"strategy":"rolling_summary","goal":"goal","recent_turns":["#,
        r#"{"id":"mem_000000000000000500000abc","user_message":"u4","assistant_response":"a4","timestamp":"2026-05-14T09:34:00Z"},"#,
        r#"{"id":"mem_000000000000000600000abc","user_message":"u5","assistant_response":"a5","timestamp":"2026-05-14T09:35:00.123456789Z","#,
        r#""trajectory_digest":{"tools_invoked":["repo.fetch","fs.read"],"observations_summary":"two files & a test","#,
        r#""reasoning_summary":"the test is newer","artifacts_refs":["art_01"]},"artifacts_shown":{"path":"src/main.go"}}],"#,
        r#""summary_cut":false,"tokens":77,"omitted_turns":2,"over_budget":true,"unreadable":1}"#,
    );
    let rendered = RenderedContext {
        format: Format::Json,
        patch,
    };
    assert_eq!(serde_json::to_string(&rendered).unwrap(), expected);
}

#[test]
fn an_empty_patch_says_so() {
    assert_eq!(
        serde_json::to_value(RenderedContext {
            format: Format::Json,
            patch: LlmContextPatch::default()
        })
        .unwrap(),
        json!({"strategy": "truncation", "recent_turns": [], "summary_cut": false, "tokens": 0, "omitted_turns": 0, "over_budget": false, "unreadable": 0})
    );
}

#[test]
fn a_detail_is_the_item_and_the_value() {
    let turn =
        read_turn(br#"{"UserMessage":"u","AssistantResponse":"","TrajectoryDigest":{"ToolsInvoked":null},"x":1}"#)
            .unwrap();
    let detail = TurnDetail {
        item: TurnInfo {
            key: TurnId { seq: 1, nonce: 2 },
            strategy: Strategy::Truncation,
            timestamp: "2026-05-14T09:30:00Z".to_owned(),
            created_at: helmdeck_core::Timestamp(0),
            size_bytes: 3,
            tokens: 4,
            folded: false,
            value: None,
        },
        turn: Arc::new(turn),
    };
    assert_eq!(
        serde_json::to_value(&detail).unwrap(),
        json!({
            "item": {"key": "mem_000000000000000100000002", "strategy": "truncation", "timestamp": "2026-05-14T09:30:00Z",
                "created_at": "1970-01-01T00:00:00.000000Z", "size_bytes": 3, "tokens": 4, "folded": false},
            "value": {"user_message": "u", "assistant_response": "", "timestamp": "0001-01-01T00:00:00Z",
                "trajectory_digest": {"tools_invoked": [], "observations_summary": "", "reasoning_summary": "", "artifacts_refs": []}},
        })
    );
}

#[test]
fn transport_snapshot_is_its_own_json() {
    for (name, text) in ALL {
        let snapshot = Snapshot {
            strategy: None,
            bytes: text.as_bytes().into(),
        };
        assert_eq!(serde_json::to_string(&snapshot).unwrap(), *text, "{name}");
    }
    let empty = |strategy| {
        serde_json::to_string(&Snapshot {
            strategy,
            ..Snapshot::default()
        })
        .unwrap()
    };
    assert_eq!(empty(Some(Strategy::None)), r#"{"strategy":"none"}"#);
    assert_eq!(empty(None), "null");
    assert!(
        serde_json::to_string(&Snapshot {
            bytes: "{".into(),
            ..Snapshot::default()
        })
        .is_err()
    );
}

#[test]
fn debug_output_shows_no_text() {
    for (_, text) in ALL {
        let record = read_record(text.as_bytes(), 1 << 20, 100).unwrap();
        let turns: Vec<_> = record.turns.iter().cloned().map(Arc::new).collect();
        let request = SummarizeRequest {
            previous_summary: record.summary.clone(),
            turns,
            ..Default::default()
        };
        let snapshot = Snapshot {
            strategy: None,
            bytes: text.as_bytes().into(),
        };
        let response = SummarizeResponse {
            summary: record.summary.clone(),
        };
        let trace = Trace {
            summary: record.summary.clone(),
            ..Trace::default()
        };
        let new = NewTurn::new("u0", "u0");
        let shown = format!(
            "{record:?} {:?} {request:?} {snapshot:?} {response:?} {trace:?} {new:?}",
            record.turns
        );
        assert!(
            !shown.contains("u0") && !shown.contains("port") && !shown.contains("script"),
            "{shown}"
        );
    }
}
