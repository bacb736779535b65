use super::*;
use crate::files::decode;
use crate::fixture::Fixture;
use crate::focus::Focused;
use crate::json::{self, Json};

const SAMPLE: &str = include_str!("../fixtures/focus.json");

fn task(task: &str) -> SetFocus {
    SetFocus {
        task: Some(task.to_owned()),
        ..SetFocus::default()
    }
}

#[test]
fn the_focus_of_the_rfc_loads_and_saves_unchanged() {
    let (focus, newer) = decode::<Focus>(SAMPLE.as_bytes()).unwrap();
    assert!(!newer);
    assert_eq!(focus.linear_issue.as_deref(), Some("SX9-123"));
    assert_eq!((focus.phase.clone(), focus.files.len()), (Phase::Plan, 2));
    assert_eq!(
        String::from_utf8(json::print(&focus).unwrap()).unwrap(),
        SAMPLE
    );

    let schema = serde_json::to_value(schemars::schema_for!(Focus)).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    assert!(validator.is_valid(&serde_json::from_str(SAMPLE).unwrap()));
    assert!(!validator.is_valid(&serde_json::json!({"files": "a"})));
}

#[test]
fn what_is_set_is_what_the_rfc_shows() {
    let fixture = Fixture::new();
    fixture.at("2025-12-24T11:35:00.25Z");
    let set = SetFocus {
        linear_issue: Some("SX9-123".into()),
        files: Some(vec![
            "crates/sx9-atlas-daemon/src/main.rs".into(),
            "crates/sx9-harness/src/nats/subjects.rs".into(),
        ]),
        ..task("Wire ATLAS daemon to NATS")
    };
    let done = Focused::new(&fixture.project).set(&set).unwrap();
    assert!(done.changed);
    assert_eq!((done.from, fixture.text(FOCUS)), (None, SAMPLE.to_owned()));
    assert_eq!(done.now.warnings.len(), 2, "{:?}", done.now.warnings);
    assert_eq!(done.now.etag, crate::files::etag(SAMPLE.as_bytes()));
}

#[test]
fn only_a_change_is_one_and_another_task_begins_anew() {
    let fixture = Fixture::new();
    let focus = Focused::new(&fixture.project);
    assert_eq!(focus.show().unwrap(), None);
    let first = SetFocus {
        feature_id: Some("FORGE-001".into()),
        blockers: Some(vec!["a".into()]),
        ..task("One")
    };
    assert!(focus.set(&first).unwrap().changed);
    let text = fixture.text(FOCUS);
    fixture.at("2025-12-24T13:00:00Z");
    assert!(!focus.set(&first).unwrap().changed);
    assert!(!focus.set(&task(" One ")).unwrap().changed);
    assert_eq!(fixture.text(FOCUS), text);

    let build = SetFocus {
        phase: Some("build".into()),
        feature_id: Some(String::new()),
        ..SetFocus::default()
    };
    let now = focus.set(&build).unwrap().now.focus;
    assert_eq!(
        (now.phase.as_str(), now.feature_id, now.blockers.len()),
        ("BUILD", None, 1)
    );
    assert_eq!(now.started_at.unwrap().to_string(), "2025-12-24T12:00:00Z");

    let head = fixture.repository.commit("First");
    let done = focus.set(&task("Two")).unwrap();
    let now = done.now.focus;
    assert_eq!(
        (done.from.as_deref(), now.phase, now.blockers.len()),
        (Some("One"), Phase::Plan, 0)
    );
    assert_eq!(now.started_at.unwrap().to_string(), "2025-12-24T13:00:00Z");
    assert_eq!(now.base_commit, Some(head.to_string()));
}

#[test]
fn a_change_is_told_and_nothing_else() {
    let fixture = Fixture::new();
    let focus = Focused::new(&fixture.project);
    for what in ["One", "One", "Two"] {
        focus.set(&task(what)).unwrap();
    }
    focus
        .set(&SetFocus {
            linear_issue: Some("SX9-7".into()),
            phase: Some("BUILD".into()),
            ..SetFocus::default()
        })
        .unwrap();
    focus.set(&task("a\nb")).unwrap_err();
    focus.clear(None, None).unwrap();
    let sent: Vec<serde_json::Value> = fixture
        .text(crate::layout::JOURNAL)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(
        sent.iter()
            .all(|event| event["subject"] == "sx9.forge.memory.focus")
    );
    let data: Vec<_> = sent
        .into_iter()
        .map(|event| event["data"].to_string())
        .collect();
    assert_eq!(
        data,
        [
            r#"{"from":null,"phase":"PLAN","to":"One"}"#,
            r#"{"from":"One","phase":"PLAN","to":"Two"}"#,
            r#"{"from":"Two","phase":"BUILD","to":"SX9-7"}"#,
            r#"{"from":"SX9-7","phase":"PLAN","to":null}"#,
        ]
    );
}

#[test]
fn unknown_phases_and_members_are_kept() {
    let fixture = Fixture::new();
    fixture.repository.write(
        FOCUS,
        "{\n  \"phase\": \"DREAM\",\n  \"mood\": {\"z\": 1, \"a\": [2]},\n  \"task\": \"One\"\n}\n",
    );
    let focus = Focused::new(&fixture.project);
    let shown = focus.show().unwrap().unwrap();
    assert!(shown.warnings[0].contains("DREAM"), "{:?}", shown.warnings);
    focus
        .set(&SetFocus {
            feature_id: Some("FORGE-002".into()),
            ..SetFocus::default()
        })
        .unwrap();
    let tree: Json = serde_json::from_str(&fixture.text(FOCUS)).unwrap();
    let Json::Object(members) = tree else {
        panic!("no object")
    };
    assert_eq!(members.0["phase"], Json::String("DREAM".into()));
    assert_eq!(
        serde_json::to_string(&members.0["mood"]).unwrap(),
        r#"{"z":1,"a":[2]}"#
    );
}

#[test]
fn files_are_below_the_root_and_a_missing_one_is_a_warning() {
    let fixture = Fixture::new();
    let focus = Focused::new(&fixture.project);
    fixture.repository.write("src/main.rs", "");
    std::os::unix::fs::symlink("/etc/hostname", fixture.project.root().join("out")).unwrap();
    let files = |files: &[&str]| SetFocus {
        files: Some(files.iter().map(|file| (*file).to_owned()).collect()),
        ..task("T")
    };
    let warnings = focus
        .set(&files(&["src/main.rs", "src/none.rs", "out"]))
        .unwrap()
        .now
        .warnings;
    assert_eq!(
        warnings,
        ["src/none.rs does not exist", "out leads out of the project"]
    );
    for bad in ["/etc/passwd", "../a", "a/../../b", "a\0", ""] {
        assert_eq!(
            focus.set(&files(&[bad])).unwrap_err().category.exit_code(),
            2,
            "{bad:?}"
        );
    }
    assert_eq!(focus.show().unwrap().unwrap().focus.files.len(), 3);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let fixture = Fixture::new();
    let focus = Focused::new(&fixture.project);
    let key = |key: &str| SetFocus {
        linear_issue: Some(key.into()),
        ..task("T")
    };
    for bad in ["sx9-1", "SX9", "SX9-", "9SX-1", "SX9-1x", "SX9-1-2", "-1"] {
        assert_eq!(
            focus.set(&key(bad)).unwrap_err().category.exit_code(),
            2,
            "{bad}"
        );
    }
    for bad in ["a\nb", &"x".repeat(501)] {
        assert_eq!(focus.set(&task(bad)).unwrap_err().category.exit_code(), 2);
    }
    for bad in ["", "  "] {
        let error = focus.set(&task(bad)).unwrap_err();
        assert_eq!(
            (error.code, error.next.as_deref()),
            ("E_USAGE", Some("helmdeck forge focus set --clear")),
            "{bad:?}"
        );
    }
    let phase = |phase: &str| SetFocus {
        phase: Some(phase.into()),
        ..task("T")
    };
    assert!(
        focus
            .set(&phase("nope"))
            .unwrap_err()
            .message
            .contains("REVIEW")
    );
    let feature = |id: &str| SetFocus {
        feature_id: Some(id.into()),
        ..task("T")
    };
    let features = "{\"schema_version\": \"1.0\", \"features\": [{\"id\": \"A-001\", \"name\": \"n\", \"status\": \"failing\", \"tests\": [], \"blocked_by\": null}]}";
    fixture.repository.write(crate::layout::FEATURES, features);
    assert_eq!(
        focus.set(&feature("A-099")).unwrap_err().code,
        "E_NOT_FOUND"
    );
    assert!(focus.set(&phase(&"x".repeat(33))).is_err());
    assert!(!fixture.has(FOCUS));
    assert!(focus.set(&feature("A-001")).is_ok());
    assert!(focus.set(&key("SX9-1")).is_ok());
}

#[test]
fn each_session_has_its_own_focus() {
    let fixture = Fixture::new();
    let focus = Focused::new(&fixture.project);
    let of = |session: &str, what: &str| SetFocus {
        session: Some(session.to_owned()),
        ..task(what)
    };
    focus.begin("s-1", &task("One")).unwrap();
    let error = focus.set(&of("s-2", "Two")).unwrap_err();
    assert_eq!(
        (error.code, error.category.exit_code()),
        ("E_FOCUS_TAKEN", 5)
    );
    assert!(error.message.contains("s-1"));
    let second = focus.clone().of("s-2").unwrap();
    second.set(&of("s-2", "Two")).unwrap();
    assert_eq!(
        second.path(),
        ".forge/memory/short-term/sessions/s-2/focus.json"
    );
    assert_eq!(
        focus.show().unwrap().unwrap().focus.task.as_deref(),
        Some("One")
    );

    // The next session continues the same task.
    focus
        .set(&SetFocus {
            phase: Some("BUILD".into()),
            ..SetFocus::default()
        })
        .unwrap();
    let started = focus.show().unwrap().unwrap().focus.started_at;
    fixture.at("2025-12-25T12:00:00Z");
    let now = focus.begin("s-3", &task("One")).unwrap().now.focus;
    assert_eq!(
        (now.session.as_deref(), now.started_at, now.phase),
        (Some("s-3"), started, Phase::Build)
    );
    let cleared = focus.clear(Some("s-3"), Some("nothing is ready")).unwrap();
    assert_eq!(
        (cleared.now.focus.task, cleared.now.focus.reason.as_deref()),
        (None, Some("nothing is ready"))
    );
    assert!(
        fixture
            .text(FOCUS)
            .starts_with("{\n  \"task\": null,\n  \"linear_issue\": null,\n")
    );
}

#[test]
fn who_has_a_stale_copy_is_told_what_it_is_now() {
    let fixture = Fixture::new();
    let focus = Focused::new(&fixture.project);
    let etag = focus.set(&task("One")).unwrap().now.etag;
    let two = SetFocus {
        if_match: Some(etag),
        ..task("Two")
    };
    assert!(focus.set(&two).unwrap().changed);
    let error = focus.set(&two).unwrap_err();
    assert_eq!(error.category.exit_code(), 6);
    assert!(error.current.unwrap().text.contains("Two"));
}

#[test]
fn a_damaged_focus_is_loud_and_not_written_over() {
    let fixture = Fixture::new();
    for end in 0..SAMPLE.len() - 1 {
        if SAMPLE[..end].trim_end() == SAMPLE.trim_end() {
            continue;
        }
        fixture.repository.write(FOCUS, &SAMPLE[..end]);
        assert_eq!(
            Focused::new(&fixture.project).show().unwrap_err().code,
            "E_CORRUPT",
            "cut at {end}"
        );
        assert_eq!(
            Focused::new(&fixture.project)
                .set(&task("One"))
                .unwrap_err()
                .code,
            "E_CORRUPT"
        );
        assert_eq!(fixture.text(FOCUS), SAMPLE[..end]);
    }
}

#[test]
fn keys_are_keys_and_placeholders_are_none() {
    // Every input that takes a key accepts the same ones.
    let all = [crate::issues::is_key, crate::git::message::is_key];
    for key in [
        "SX9-123",
        "A-1",
        "LOCAL-1",
        "ABCDEFGHIJ-99999",
        "A-999999999",
    ] {
        assert!(
            all.iter().all(|is_key| is_key(key)) && !crate::issues::is_placeholder(key),
            "{key}"
        );
        assert!(
            crate::checkpoints::Name::asked(&format!("{key}-v1")).is_ok(),
            "{key}"
        );
    }
    for no in [
        "",
        "SX9",
        "SX9-",
        "SX9-0",
        "SX9-012",
        "sx9-1",
        "9SX-1",
        "ABCDEFGHIJK-1",
        "SX9-1 ",
        "SX9-1-2",
        "SX9-xxx",
        "A-1234567890",
    ] {
        assert!(!all.iter().any(|is_key| is_key(no)), "{no}");
    }
    assert!(crate::issues::is_placeholder("SX9-xxx"));
    let mut keys = ["SX9-10", "B-1", "SX9-9"];
    keys.sort_by_key(|key| crate::issues::key_order(key));
    assert_eq!(keys, ["B-1", "SX9-9", "SX9-10"]);
}
