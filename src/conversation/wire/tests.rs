use std::collections::BTreeMap;

use helmdeck_core::Json;

use super::{read_record, read_turn, write_record, write_turn};
use crate::config::Strategy;
use crate::turn::{ConversationTurn, TrajectoryDigest, TurnTime};

#[test]
fn a_turn_is_written_as_the_original_writes_it() {
    let turn = ConversationTurn {
        user_message: "a < b && \"c\" > d\u{2028}\t\u{8}\u{c}\u{1}\u{7f}é".to_owned(),
        assistant_response: "\\ / \r\n".to_owned(),
        trajectory_digest: Some(TrajectoryDigest {
            tools_invoked: Some(vec!["repo.fetch".to_owned()]),
            observations_summary: "saw".to_owned(),
            ..TrajectoryDigest::default()
        }),
        artifacts_shown: Some(Json::parse(r#"{"n":12345678901234567890,"t":"<"}"#).unwrap()),
        artifacts_hidden_refs: Some(Vec::new()),
        timestamp: TurnTime::parse("2026-11-22T16:00:00.000000001+02:00").unwrap(),
        other: BTreeMap::from([("Later".to_owned(), Json::parse("[1.0, 2]").unwrap())]),
    };
    let expected = concat!(
        r#"{"UserMessage":"a \u003c b \u0026\u0026 \"c\" \u003e d\u2028\t\b\f\u0001"#,
        "\u{7f}é",
        r#"","AssistantResponse":"\\ / \r\n","TrajectoryDigest":{"ToolsInvoked":["repo.fetch"],"ObservationsSummary":"saw","#,
        r#""ReasoningSummary":"","ArtifactsRefs":null},"ArtifactsShown":{"n":12345678901234567890,"t":"<"},"#,
        r#""ArtifactsHiddenRefs":[],"Timestamp":"2026-11-22T16:00:00.000000001+02:00","Later":[1.0, 2]}"#,
    );
    let written = write_turn(&turn);
    assert_eq!(String::from_utf8(written.clone()).unwrap(), expected);
    assert!(read_turn(&written).unwrap() == turn);
}

#[test]
fn a_record_of_the_original_comes_out_as_it_came_in() {
    let text = r#"{"strategy":"rolling_summary","turns":[{"UserMessage":"u","AssistantResponse":"a","TrajectoryDigest":null,"ArtifactsShown":null,"ArtifactsHiddenRefs":null,"Timestamp":"0001-01-01T00:00:00Z"}],"summary":"s","later":{"b":1,"a":[]}}"#;
    let record = read_record(text.as_bytes(), 1 << 20, 10).unwrap();
    assert_eq!((record.strategy, record.turns.len(), &*record.summary), (Strategy::RollingSummary, 1, "s"));
    assert_eq!(String::from_utf8(write_record(&record)).unwrap(), text);
}
