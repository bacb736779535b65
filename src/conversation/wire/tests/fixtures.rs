use crate::config::Strategy;
use crate::wire::{read_record, read_turn, write_record, write_turn};

macro_rules! fixtures {
    ($($name:literal),* $(,)?) => {
        /// Every fixture: its name and its text.
        pub(super) const ALL: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../fixtures/", $name, ".json")).trim_ascii_end())),*];
    };
}

fixtures!(
    "none",
    "truncation_empty",
    "truncation_one",
    "truncation_three",
    "rolling_summary",
    "rolling_summary_only",
    "nulls_and_empty_lists",
    "html",
    "unicode",
    "times",
    "unknown_members",
    "artifacts_shown",
);

fn fixture(name: &str) -> &'static str {
    ALL.iter().find(|(known, _)| *known == name).unwrap().1
}

#[test]
fn original_snapshots_round_trip_byte_for_byte() {
    for (name, text) in ALL {
        let record = read_record(text.as_bytes(), 1 << 20, 100)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(
            String::from_utf8(write_record(&record)).unwrap(),
            *text,
            "{name}"
        );
        for turn in &record.turns {
            assert!(read_turn(&write_turn(turn)).unwrap() == *turn, "{name}");
        }
    }
}

#[test]
fn the_values_are_those_that_the_original_meant() {
    let record = read_record(fixture("rolling_summary").as_bytes(), 1 << 20, 100).unwrap();
    assert_eq!(record.strategy, Strategy::RollingSummary);
    assert!(record.summary.ends_with("who tells the \"ops\" team?"));
    let [first, second] = &record.turns[..] else {
        panic!("{} turns", record.turns.len())
    };
    assert_eq!(
        (&*first.user_message, &*first.assistant_response),
        ("u4", "a4")
    );
    assert!(
        first.trajectory_digest.is_none()
            && first.artifacts_shown.is_none()
            && first.artifacts_hidden_refs.is_none()
    );
    let digest = second.trajectory_digest.as_ref().unwrap();
    assert_eq!(
        digest.tools_invoked.as_deref().unwrap(),
        ["repo.fetch", "fs.read"]
    );
    assert_eq!(digest.observations_summary, "two files & a test");
    assert_eq!(digest.artifacts_refs.as_deref().unwrap(), ["art_01"]);
    assert_eq!(
        second.artifacts_shown.as_ref().unwrap().as_str(),
        r#"{"path":"src/main.go"}"#
    );
    assert_eq!(
        second.artifacts_hidden_refs.as_deref().unwrap(),
        ["art_02", "art_03"]
    );
    assert_eq!(second.timestamp.as_str(), "2026-05-14T09:35:00.123456789Z");
}

#[test]
fn escapes_are_decoded() {
    let record = read_record(fixture("html").as_bytes(), 1 << 20, 100).unwrap();
    assert_eq!(
        record.turns[0].user_message,
        "<script>alert(1 && 2)</script>"
    );
    let record = read_record(fixture("unicode").as_bytes(), 1 << 20, 100).unwrap();
    assert_eq!(
        record.turns[0].assistant_response,
        "\u{2028}\u{2029}\t\r\n\u{8}\u{c}\0\u{1f}\u{7f}"
    );
}

#[test]
fn unknown_members_survive_on_every_level() {
    let record = read_record(fixture("unknown_members").as_bytes(), 1 << 20, 100).unwrap();
    let turn = &record.turns[0];
    assert_eq!(record.other["schema_version"].as_str(), "2");
    assert_eq!(turn.other["Vector"].as_str(), "[0.1,-2.50,1e-7]");
    assert_eq!(
        turn.trajectory_digest.as_ref().unwrap().other["Steps"].as_str(),
        "12345678901234567890"
    );
}

#[test]
fn go_snapshot_restores_unchanged() {
    use base64::Engine as _;

    let wrap = |strategy: &str, record: &str| {
        let bytes = base64::engine::general_purpose::STANDARD.encode(record);
        format!("{{\"Strategy\":\"{strategy}\",\"Bytes\":\"{bytes}\"}}")
    };
    for (name, text) in ALL {
        let plain = read_record(text.as_bytes(), 1 << 20, 100).unwrap();
        let wrapped = wrap(plain.strategy.as_str(), text);
        let record = read_record(wrapped.as_bytes(), 1 << 20, 100)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(record == plain, "{name}");
    }
    for empty in [
        "{\"Strategy\":\"truncation\",\"Bytes\":null}",
        "{\"Strategy\":\"truncation\",\"Bytes\":\"\"}",
    ] {
        assert_eq!(
            read_record(empty.as_bytes(), 1 << 20, 100)
                .unwrap()
                .strategy,
            Strategy::Truncation
        );
    }
    let mixed = wrap("none", fixture("truncation_one"));
    let error = read_record(mixed.as_bytes(), 1 << 20, 100)
        .unwrap_err()
        .to_string();
    assert!(error.contains("another strategy"), "{error}");
    let error = read_record(br#"{"Strategy":"truncation","Bytes":"%%"}"#, 1 << 20, 100)
        .unwrap_err()
        .to_string();
    assert!(error.contains("base64"), "{error}");
}
