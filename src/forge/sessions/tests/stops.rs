//! What a session leaves in the commit, the event and the briefing.

use super::*;
use crate::checkpoints::{Checkpoints, Create};
use crate::events::Events;
use crate::features::Features;
use crate::prime;
use crate::sessions::Sessions;

fn data(event: &crate::events::Envelope) -> serde_json::Value {
    serde_json::to_value(&event.data).unwrap()
}

#[test]
fn learnings_appear_in_commit_and_end() {
    let fixture = Fixture::new();
    let project = fixture.open();
    start(&project);
    Sessions::new(&project).learn(learned()).unwrap();
    let ended = Sessions::new(&project).end(&End::default()).unwrap();
    assert_eq!(ended.learned.len(), 1);
    let message = fixture.repository.run(&["log", "-1", "--format=%B"]);
    assert!(message.contains("- Learned: Adding a subject"), "{message}");
    assert!(!message.contains("- None"), "{message}");
    let replayed = Events::new(&project)
        .replay(&Replay {
            about: vec![Subject::SessionEnd],
            ..Replay::default()
        })
        .unwrap();
    let data = data(&replayed.events[0]);
    assert_eq!(
        (data["learned"].as_u64(), data["reason"].as_str()),
        (Some(1), Some("done"))
    );
}

#[test]
fn repeated_pass_advises_no_checkpoint() {
    let fixture = Fixture::new();
    let config = "[verify]\nrunner = \"sh: echo ran {prefix}\"\ncount_regex = \"ran\"\ncommands = [\"true\"]\n";
    fixture.repository.write(".forge/config.toml", config);
    let path = ".forge/memory/long-term/features.json";
    let feature =
        |n: u8| format!(r#"{{"id":"A-00{n}","name":"n{n}","status":"failing","tests":["t"]}}"#);
    let features = |all: &[String]| {
        format!(
            r#"{{"schema_version":"1.0","features":[{}]}}"#,
            all.join(",")
        )
    };
    fixture
        .repository
        .write(path, features(&[feature(1), feature(2)]));
    fixture.repository.commit("Features");
    let project = fixture.open();
    start(&project);
    fixture.minutes(1);
    assert!(Features::new(&project).verify("A-001").unwrap().passed);
    assert_eq!(
        Sessions::new(&project).advice().unwrap(),
        Some(Advice::FeaturePassing)
    );
    Sessions::new(&project).end(&End::default()).unwrap();
    Checkpoints::new(&project)
        .create(&Create {
            key: Some("SX9-1".to_owned()),
            ..Create::default()
        })
        .unwrap();
    fixture.minutes(1);
    let project = fixture.open();
    assert_eq!(start(&project).probed.len(), 1);
    assert_eq!(
        Sessions::new(&project).advice().unwrap(),
        None,
        "it worked before"
    );
    assert!(Features::new(&project).verify("A-002").unwrap().passed);
    assert_eq!(
        Sessions::new(&project).advice().unwrap(),
        Some(Advice::FeaturePassing)
    );
}

#[test]
fn next_step_comes_from_the_last_session() {
    let fixture = Fixture::new();
    for (folder, next) in [
        ("2025-12-24-session-999", "Old"),
        ("2025-12-24-session-1000", "New"),
        ("2025-12-24-unnamed-0a1b2c3d", "Nobody's"),
        ("2025-12-23-session-1001", "Of the day before"),
    ] {
        let path = format!(".forge/memory/short-term/sessions/{folder}/progress.txt");
        fixture.repository.write(
            &path,
            format!("=== FORGE Session 2025-12-24 ===\n\n[10:00] Done\n\nNEXT: {next}\n"),
        );
    }
    let text = prime::prime(&fixture.open(), None).unwrap().text;
    assert!(
        text.contains("New") && !text.contains("Old") && !text.contains("body's"),
        "{text}"
    );
}

#[test]
fn memory_commits_do_not_count_as_work() {
    let fixture = Fixture::new();
    let from = fixture
        .repository
        .run(&["rev-parse", "HEAD"])
        .trim()
        .to_owned();
    let project = fixture.open();
    for key in [None, Some("SX9-1".to_owned())] {
        start(&project);
        Sessions::new(&project)
            .log(&Log {
                text: "Read the parser".to_owned(),
                next: None,
            })
            .unwrap();
        let ended = Sessions::new(&project)
            .end(&End {
                key,
                ..End::default()
            })
            .unwrap();
        assert!(ended.commit.is_some());
    }
    fixture.repository.commit("[SX9-1] Work");
    let git = project.git().unwrap();
    let range = format!("{from}..HEAD");
    assert_eq!(
        (git.count(&range).unwrap(), git.count_work(&range).unwrap()),
        (3, 1)
    );
}
