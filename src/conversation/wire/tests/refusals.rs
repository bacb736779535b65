use crate::error::ConversationError;
use crate::wire::{MAX_DEPTH, MAX_OTHER, read_record, read_turn};

fn turn_error(text: &str) -> String {
    match read_turn(text.as_bytes()) {
        Ok(_) => panic!("read: {text}"),
        Err(message) => message,
    }
}

fn record_error(text: &str) -> String {
    match read_record(text.as_bytes(), 1 << 24, 3) {
        Err(ConversationError::InvalidSnapshot(message)) => message,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn keys_in_another_spelling_make_no_empty_turn() {
    // The original takes this for a turn without texts.
    let expected = "there is neither UserMessage nor AssistantResponse";
    assert_eq!(
        turn_error(r#"{"user_message":"u","assistant_response":"a"}"#),
        expected
    );
    assert_eq!(
        record_error(r#"{"strategy":"truncation","turns":[{"user_message":"u"}]}"#),
        format!("turns[0]: {expected}")
    );
    assert_eq!(turn_error("{}"), expected);
    assert_eq!(turn_error(r#"{"usermessage":"u"}"#), expected);
}

#[test]
fn message_has_position_but_no_text() {
    let turn = |rest: &str| format!(r#"{{"UserMessage":"SECRET",{rest}}}"#);
    let cases = [
        (
            turn(r#""AssistantResponse":5"#),
            "AssistantResponse: must be a string",
        ),
        (
            turn(r#""AssistantResponse":null"#),
            "AssistantResponse: must be a string",
        ),
        (
            turn(r#""AssistantResponse":["SECRET"]"#),
            "AssistantResponse: must be a string",
        ),
        (
            turn(r#""UserMessage":"SECRET""#),
            "UserMessage: is there twice",
        ),
        (
            turn(r#""\u0055serMessage":"SECRET""#),
            "UserMessage: is there twice",
        ),
        (
            turn(r#""Timestamp":"SECRET""#),
            "Timestamp: must be a time in the form of RFC 3339",
        ),
        (
            turn(r#""TrajectoryDigest":"SECRET""#),
            "TrajectoryDigest: must be null or an object",
        ),
        (
            turn(r#""TrajectoryDigest":["SECRET"]"#),
            "TrajectoryDigest: must be null or an object",
        ),
        (
            turn(r#""TrajectoryDigest":{"ToolsInvoked":"SECRET"}"#),
            "TrajectoryDigest.ToolsInvoked: must be null or a list of strings",
        ),
        (
            turn(r#""TrajectoryDigest":{"ArtifactsRefs":["SECRET",{"SECRET":1}]}"#),
            "TrajectoryDigest.ArtifactsRefs: must be null or a list of strings",
        ),
        (
            turn(r#""TrajectoryDigest":{"SECRET":1,"SECRET":1}"#),
            "TrajectoryDigest: an unknown member is there twice",
        ),
        (
            turn(r#""SECRET":1,"SECRET":"SECRET""#),
            "an unknown member is there twice",
        ),
        (
            turn(r#""ArtifactsShown":["SECRET"]"#),
            "ArtifactsShown: must be null or an object",
        ),
        (
            turn(r#""ArtifactsShown":"SECRET""#),
            "ArtifactsShown: must be null or an object",
        ),
        (
            turn(r#""ArtifactsHiddenRefs":{"SECRET":1}"#),
            "ArtifactsHiddenRefs: must be null or a list of strings",
        ),
        (turn(r#""Other":SECRET"#), "no JSON at line 1, column 33"),
        (
            turn(r#""AssistantResponse":"\uSECRET""#),
            "AssistantResponse: no JSON at line 1, column 49",
        ),
        (
            turn(r#""AssistantResponse":"\ud800""#),
            "AssistantResponse: no JSON at line 1, column 51",
        ),
        (
            r#"{"UserMessage":"SECRET"#.to_owned(),
            "UserMessage: the JSON ends too early",
        ),
        (
            r#"{"UserMessage":"SECRET"} SECRET"#.to_owned(),
            "no JSON at line 1, column 26",
        ),
        (r#""SECRET""#.to_owned(), "must be an object"),
        (r#"["SECRET"]"#.to_owned(), "must be an object"),
        (String::new(), "the JSON ends too early"),
    ];
    for (text, expected) in &cases {
        let message = turn_error(text);
        assert!(!message.contains("SECRET"), "{message}");
        assert_eq!(
            message.split(", column").next(),
            expected.split(", column").next(),
            "{text}"
        );
        // The same within a record, where the text is one.
        if text.starts_with('{') && text.ends_with('}') {
            let record = format!(
                r#"{{"strategy":"truncation","turns":[{{"UserMessage":"u","TrajectoryDigest":{{}}}},{text}],"summary":"SECRET"}}"#
            );
            let message = record_error(&record);
            assert!(
                message.starts_with("turns[1]") && !message.contains("SECRET"),
                "{message}"
            );
        }
    }
}

#[test]
fn refusal_names_position_of_fault() {
    for (text, expected) in [
        ("{}", "there is no strategy"),
        (r#"{"turns":[]}"#, "there is no strategy"),
        (
            r#"{"strategy":"SECRET"}"#,
            "strategy: must be one of none, rolling_summary, truncation",
        ),
        (r#"{"strategy":null}"#, "strategy: must be a string"),
        (
            r#"{"strategy":"none","strategy":"none"}"#,
            "strategy: is there twice",
        ),
        (r#"{"strategy":"none","turns":{}}"#, "turns: must be a list"),
        (
            r#"{"strategy":"none","turns":null}"#,
            "turns: must be a list",
        ),
        (
            r#"{"strategy":"none","turns":["SECRET"]}"#,
            "turns[0]: must be an object",
        ),
        (
            r#"{"strategy":"none","turns":[{"UserMessage":"","TrajectoryDigest":{}},null]}"#,
            "turns[1]: must be an object",
        ),
        (
            r#"{"strategy":"none","summary":["SECRET"]}"#,
            "summary: must be a string",
        ),
        (
            r#"{"strategy":"none","opening":7}"#,
            "opening: must be null or a string",
        ),
        (
            r#"{"strategy":"none","pinned":7}"#,
            "pinned: must be null or a string",
        ),
        (
            r#"{"strategy":"none","turns":[{"UserMessage":""}],"x":1,"x":2}"#,
            "an unknown member is there twice",
        ),
        ("[]", "must be an object"),
        ("null", "must be an object"),
        ("", "the JSON ends too early"),
        ("\u{feff}{}", "no JSON at line 1, column 1"),
    ] {
        assert_eq!(record_error(text), expected, "{text}");
    }
    assert!(matches!(
        read_record(b"{\"strategy\":\"none\",\"summary\":\"\xff\"}", 1 << 10, 1),
        Err(ConversationError::InvalidSnapshot(message)) if message == "not UTF-8"
    ));
}

#[test]
fn snapshot_over_limit_reports_its_size() {
    let text = format!(
        r#"{{"strategy":"truncation","turns":[{}]}}"#,
        [r#"{"UserMessage":"u"}"#; 5].join(",")
    );
    let size = text.len() as u64;
    assert!(read_record(text.as_bytes(), size, 5).is_ok());
    assert!(matches!(
        read_record(text.as_bytes(), size - 1, 5),
        Err(ConversationError::TooLarge { what: "snapshot", unit: "bytes", size: is, limit }) if is == size && limit == size - 1
    ));
    for limit in [0, 1, 4] {
        assert!(matches!(
            read_record(text.as_bytes(), size, limit),
            Err(ConversationError::TooLarge { what: "snapshot", unit: "turns", size: 5, limit: is }) if is == limit
        ));
    }
}

#[test]
fn turns_over_limit_are_counted_not_kept() {
    // A million elements; the error that they are no turns shows that none of them is built.
    let text = format!(
        r#"{{"strategy":"truncation","turns":[{{"UserMessage":"u"}}{}]}}"#,
        ",0".repeat(1_000_000)
    );
    assert!(matches!(
        read_record(text.as_bytes(), u64::MAX, 1),
        Err(ConversationError::TooLarge {
            unit: "turns",
            size: 1_000_001,
            ..
        })
    ));
}

#[test]
fn depth_is_bounded_wherever_anything_may_stand() {
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let turn = |name: &str, value: &str| format!(r#"{{"UserMessage":"","{name}":{value}}}"#);
    assert!(read_turn(turn("Other", &deep(MAX_DEPTH)).as_bytes()).is_ok());
    assert_eq!(
        turn_error(&turn("Other", &deep(MAX_DEPTH + 1))),
        "nested too deep"
    );
    let shown = |depth: usize| format!(r#"{{"a":{}}}"#, deep(depth));
    assert!(read_turn(turn("ArtifactsShown", &shown(MAX_DEPTH - 1)).as_bytes()).is_ok());
    assert_eq!(
        turn_error(&turn("ArtifactsShown", &shown(MAX_DEPTH))),
        "ArtifactsShown: nested too deep"
    );
    // Brackets in texts are no depth.
    assert!(read_turn(turn("Other", &format!("\"\\\"{}\"", "[".repeat(1000))).as_bytes()).is_ok());
    for (text, closed) in [
        (deep(200_000), true),
        ("[".repeat(200_000), false),
        (r#"{"a":"#.repeat(200_000), false),
    ] {
        for name in [
            "Other",
            "UserMessage",
            "TrajectoryDigest",
            "ArtifactsShown",
            "ArtifactsHiddenRefs",
            "Timestamp",
        ] {
            turn_error(&format!(r#"{{"{name}":{text}"#));
        }
        record_error(&format!(r#"{{"strategy":"none","turns":{text}"#));
        record_error(&text);
        assert_eq!(text.ends_with(']'), closed);
    }
}

#[test]
fn an_object_has_only_so_many_unknown_members() {
    let turn = |count: usize| {
        let members: String = (0..count)
            .map(|number| format!(r#","m{number}":0"#))
            .collect();
        format!(r#"{{"UserMessage":""{members}}}"#)
    };
    assert!(read_turn(turn(MAX_OTHER).as_bytes()).is_ok());
    assert_eq!(
        turn_error(&turn(MAX_OTHER + 1)),
        "more than 256 unknown members"
    );
}
