use std::collections::BTreeMap;

use helmdeck_core::Json;

use crate::config::Strategy;
use crate::snapshot::Record;
use crate::turn::{ConversationTurn, NewTurn, TrajectoryDigest, TurnTime};
use crate::wire::{MAX_DEPTH, read_record, read_turn, write_record, write_turn};

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn turn_is_written_like_the_original() {
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
    assert!(read_turn(&written).unwrap() == turn);
    assert_eq!(text(written), expected);
}

#[test]
fn an_empty_record_is_its_strategy() {
    for strategy in Strategy::ALL {
        let record = Record {
            strategy,
            ..Record::default()
        };
        assert_eq!(
            text(write_record(&record)),
            format!(r#"{{"strategy":"{strategy}"}}"#)
        );
    }
}

#[test]
fn the_goals_follow_the_summary() {
    let record = Record {
        summary: "s".to_owned(),
        opening: Some("<goal>".to_owned()),
        pinned: Some("p".to_owned()),
        ..Record::default()
    };
    let written = write_record(&record);
    assert!(read_record(&written, 1 << 10, 0).unwrap() == record);
    assert_eq!(
        text(written),
        r#"{"strategy":"truncation","summary":"s","opening":"\u003cgoal\u003e","pinned":"p"}"#
    );
}

#[test]
fn an_empty_strategy_means_none() {
    let record = read_record(br#"{"strategy":""}"#, 1 << 10, 0).unwrap();
    assert_eq!(record.strategy, Strategy::None);
}

#[test]
fn keys_come_in_any_order_with_spaces() {
    let turn = read_turn(
        b" { \"Timestamp\" : \"2026-05-14T09:30:00Z\" , \"z\" : [ 1 ] , \"a\":2,\n\"\\u0055serMessage\" : \"\\u0075\\/\" } ",
    )
    .unwrap();
    assert_eq!(
        text(write_turn(&turn)),
        r#"{"UserMessage":"u/","AssistantResponse":"","TrajectoryDigest":null,"ArtifactsShown":null,"ArtifactsHiddenRefs":null,"Timestamp":"2026-05-14T09:30:00Z","a":2,"z":[ 1 ]}"#
    );
}

#[test]
fn a_kept_member_never_makes_a_key_twice() {
    let mut turn = ConversationTurn::default();
    turn.other
        .insert("UserMessage".to_owned(), Json::parse("1").unwrap());
    assert!(read_turn(&write_turn(&turn)).unwrap() == ConversationTurn::default());
}

#[test]
fn unchecked_member_does_not_break_the_record() {
    let broken = Json::from_trusted(bytes::Bytes::from_static(b"{\"half"));
    let turn = ConversationTurn {
        artifacts_shown: Some(broken),
        ..ConversationTurn::default()
    };
    assert!(read_turn(&write_turn(&turn)).unwrap() == ConversationTurn::default());
}

#[test]
fn accepted_turn_can_be_read_again() {
    let nested = |depth: usize| {
        format!(
            "{}{}",
            r#"{"a":"#.repeat(depth),
            "1".to_owned() + &"}".repeat(depth)
        )
    };
    let taken = |shown: &str| {
        NewTurn {
            artifacts_shown: Some(Json::parse(shown.to_owned()).unwrap()),
            ..NewTurn::new("u", "a")
        }
        .into_turn(helmdeck_core::Timestamp(0))
    };
    let turn = taken(&nested(MAX_DEPTH)).unwrap();
    assert!(read_turn(&write_turn(&turn)).unwrap() == turn);
    assert!(taken(&nested(MAX_DEPTH + 1)).is_err());
    assert!(taken("[1]").is_err());
    assert!(taken(&nested(100_000)).is_err());
}

#[test]
fn time_of_the_original_is_kept_unchanged() {
    for good in [
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "2024-02-29T23:59:59.1Z",
        "2026-05-14T09:30:00.123456789123+23:59",
        "9999-12-31T23:59:59.999999999-00:00",
    ] {
        assert_eq!(TurnTime::parse(good).unwrap().as_str(), good);
    }
    for bad in [
        "",
        "Z",
        "2026-05-14",
        "2026-05-14T09:30:00",
        "2026-05-14T09:30Z",
        "2026-05-14 09:30:00Z",
        "2026-05-14t09:30:00Z",
        "2026-05-14T09:30:00z",
        "2026-05-14T09:30:00.Z",
        "2026-05-14T09:30:00,5Z",
        "2026-05-14T09:30:60Z",
        "2026-05-14T24:00:00Z",
        "2026-05-14T09:60:00Z",
        "2026-02-29T09:30:00Z",
        "2026-13-01T09:30:00Z",
        "2026-00-01T09:30:00Z",
        "2026-05-14T09:30:00+24:00",
        "2026-05-14T09:30:00+02:60",
        "2026-05-14T09:30:00+0200",
        "2026-05-14T09:30:00+02",
        "2026-05-14T09:30:00+2:00",
        "2026-05-14T09:30:00Z ",
        " 2026-05-14T09:30:00Z",
        "+2026-05-14T09:30:00Z",
        "-026-05-14T09:30:00Z",
        "2026-05-14T09:30:00Z[UTC]",
        "２026-05-14T09:30:00Z",
        "2026-05-14T09:30:00é",
    ] {
        assert!(TurnTime::parse(bad).is_err(), "{bad}");
    }
    let long = |digits: usize| format!("2026-05-14T09:30:00.{}Z", "1".repeat(digits));
    assert!(TurnTime::parse(&long(43)).is_ok());
    assert!(TurnTime::parse(&long(44)).is_err());
}
