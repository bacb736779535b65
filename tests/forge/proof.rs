//! The whole story with the real program and a real event server: a session that stops, one that
//! takes up its work and goes astray, the way back, and two agents who learn at the same time.

use std::path::{Path, PathBuf};

use helmdeck_forge::events::{Envelope, Replay};
use helmdeck_forge::subjects::{self, Subject};
use helmdeck_testkit::{Nats as Server, STUCK, wait_for};
use serde_json::{Value, json};

use super::fixture::{Fixture, SUMS};
use super::nats::open;

/// Every file that git knows or would add, with its bytes.
fn files(fixture: &Fixture) -> Vec<(String, Vec<u8>)> {
    let listed = fixture.git(&[
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ]);
    let paths = listed.split('\0').filter(|path| !path.is_empty());
    paths
        .filter_map(|path| {
            Some((
                path.to_owned(),
                std::fs::read(fixture.root().join(path)).ok()?,
            ))
        })
        .collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// Three features, two of which work, something learned, and a checkpoint. Returns the session.
fn first_session(fixture: &Fixture) -> String {
    let begun = fixture.forge(&["session", "start"]);
    assert_eq!(begun["session"]["state"], "live", "{begun}");
    for (name, test) in [
        ("Adding", "adding::*"),
        ("Doubling", "doubling::*"),
        ("Halving", "halving::*"),
    ] {
        fixture.forge(&["features", "add", name, "--test", test]);
    }
    for id in ["FORGE-001", "FORGE-002"] {
        let found = fixture.forge(&["verify", id])["features"][0].clone();
        assert_eq!(
            (&found["passed"], &found["executed"]),
            (&json!(true), &json!(1)),
            "{found}"
        );
    }
    let halving =
        fixture.ends_with(&fixture.root(), 1, &["verify", "FORGE-003"])["features"][0].clone();
    assert_eq!(halving["problem"], "no_tests_matched", "{halving}");
    let by_hand = fixture.ends_with(
        &fixture.root(),
        9,
        &["features", "set", "FORGE-003", "--status", "passing"],
    );
    assert_eq!(
        text(&by_hand["message"]),
        "FORGE-003 is passing only when its tests have shown it"
    );
    fixture.forge(&[
        "knowledge",
        "add",
        "--context",
        "Adding a sum",
        "--approach",
        "Write its test first",
    ]);
    let focus = [
        "focus",
        "set",
        "Halve a number",
        "--feature",
        "FORGE-003",
        "--file",
        "src/lib.rs",
        "--phase",
        "build",
    ];
    fixture.forge(&focus);
    fixture.forge(&["session", "log", "Two of three work", "--next", "Halve"]);
    let commit = [
        "commit",
        "--key",
        "SUM-1",
        "-m",
        "Add two sums",
        "--what",
        "Verify two",
        "--why",
        "They work",
    ];
    fixture.forge(&commit);
    let made = fixture.forge(&["checkpoint", "create", "--key", "SUM-1"]);
    assert_eq!(
        (&made["tag"], &made["can_rollback_to"]),
        (&json!("checkpoint/SUM-1-v1"), &json!(true)),
        "{made}"
    );
    assert_eq!(
        made["manifest"]["features_passing"],
        json!(["FORGE-001", "FORGE-002"])
    );
    text(&begun["session"]["id"]).to_owned()
}

/// The next session takes over from the one that died, breaks what worked, and fails to repair it.
fn astray(fixture: &Fixture, first: &str) -> String {
    let root = fixture.root();
    let begun = fixture.forge(&["session", "start", "--take-over"]);
    assert_eq!(begun["abandoned"], json!([first]), "{begun}");
    assert_eq!(begun["session"]["resumes"], first);
    let probed: Vec<_> = begun["probed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|probed| &probed["passing"])
        .collect();
    assert_eq!(probed, [&json!(true), &json!(true)], "{begun}");
    let focus = fixture.forge(&["status"]);
    assert_eq!(
        (&focus["focus"]["task"], &focus["focus"]["feature_id"]),
        (&json!("Halve a number"), &json!("FORGE-003"))
    );
    assert!(fixture.run(&["prime"]).stdout.contains("Halve a number"));

    fixture.write("src/lib.rs", &SUMS.replace("a + b", "a - b"));
    let broken = fixture.ends_with(&root, 1, &["verify", "FORGE-001"])["features"][0].clone();
    assert_eq!(
        (&broken["regressed"], &broken["status"]),
        (&json!(true), &json!("failing")),
        "{broken}"
    );
    let report = fixture.forge(&["recover", "assess"]);
    assert_eq!(
        (&report["class"], &report["row"]),
        (&json!("MINOR"), &json!(6)),
        "{report}"
    );
    assert_eq!(report["measures"]["regressions"], json!(["FORGE-001"]));
    let said = fixture.run(&["recover", "assess", "--no-verify"]).stdout;
    assert!(said.starts_with("MINOR (row "), "{said}");
    let nothing = fixture.forge(&["recover", "apply"]);
    assert_eq!(
        nothing["rollback"],
        Value::Null,
        "what is small is not rolled back: {nothing}"
    );

    // The other one depends on it.
    fixture.ends_with(&root, 1, &["verify", "FORGE-002"]);
    let report = fixture.forge(&["recover", "assess"]);
    assert_eq!(
        (&report["class"], &report["row"]),
        (&json!("MAJOR"), &json!(3)),
        "{report}"
    );
    fixture.forge(&[
        "knowledge",
        "add",
        "--context",
        "Subtracting by mistake",
        "--approach",
        "Look at the sign",
    ]);
    text(&begun["session"]["id"]).to_owned()
}

/// Rolls back. That loses nothing, and what was learned comes along.
fn back(fixture: &Fixture, session: &str) {
    fixture.write("notes.txt", "not tracked, and worth keeping\n");
    fixture.write("staged.txt", "staged\n");
    fixture.git(&["add", "staged.txt"]);
    fixture.write("staged.txt", "staged, and changed after\n");
    let (before, head) = (files(fixture), fixture.git(&["rev-parse", "HEAD"]));
    assert!(before.len() > 20, "{before:?}");
    let done = fixture.forge(&["recover", "apply"])["rollback"].clone();
    let rescue = text(&done["rescue"]);
    assert!(
        rescue.starts_with(&format!("refs/forge/rescue/{session}/")),
        "{rescue}"
    );
    for (path, bytes) in &before {
        assert_eq!(
            fixture.in_commit(rescue, path).as_ref(),
            Some(bytes),
            "{path} is not in the rescue"
        );
    }
    let staged = fixture.in_commit(&format!("{rescue}^2"), "staged.txt");
    assert_eq!(
        staged.as_deref(),
        Some(b"staged\n".as_slice()),
        "what was only staged"
    );
    assert_eq!(
        fixture.git(&["rev-parse", "HEAD^"]),
        head,
        "the branch moved forward"
    );
    assert_eq!(done["made"], fixture.git(&["rev-parse", "HEAD"]));
    let root = fixture.root();
    assert_eq!(
        std::fs::read_to_string(root.join("src/lib.rs")).unwrap(),
        SUMS
    );
    assert_eq!(
        std::fs::read_to_string(root.join("notes.txt")).unwrap(),
        "not tracked, and worth keeping\n"
    );
    let known = fixture.forge(&["export"])["knowledge"].clone();
    let contexts = |kind: &str| {
        let all = known["patterns"][kind].as_array().unwrap().iter();
        let mut all: Vec<String> = all
            .map(|entry| text(&entry["context"]).to_owned())
            .collect();
        all.sort_unstable();
        all
    };
    assert_eq!(
        contexts("successful"),
        ["Adding a sum", "Subtracting by mistake"]
    );
    assert!(
        matches!(&contexts("failed")[..], [why] if why.contains("SUM-1-v1")),
        "{known}"
    );
    assert_eq!(fixture.forge(&["verify", "FORGE-001"])["passed"], true);
}

/// Returns what the server keeps once nothing waits for it any more, and as often as one looks.
fn kept(server: &Server, ids: &[String]) -> Vec<Envelope> {
    let link = open(&server.url(), subjects::PREFIX);
    let mut events = Vec::new();
    wait_for("all events", || {
        events = Replay::default()
            .stored(&link.replay(1, 10_000, STUCK).unwrap_or_default())
            .events;
        ids.iter()
            .all(|id| events.iter().any(|event| event.id.to_string() == *id))
    });
    events
}

#[test]
fn dead_session_and_rollback_are_published() {
    let server = Server::start();
    let fixture = Fixture::new("[events]\nuse = \"team\"\n");
    fixture.configure(&format!(
        "[forge.events]\nteam = {{ url = \"{}\" }}\n",
        server.url()
    ));
    let root = fixture.root();
    let first = first_session(&fixture);

    // The server dies, and no command waits for it.
    server.kill9();
    let second = astray(&fixture, &first);
    assert!(fixture.forge(&["events"])["waiting"].as_u64().unwrap() > 0);
    server.start_again();
    back(&fixture, &second);

    // Two of three features pass again.
    let health = fixture.ends_with(&root, 11, &["health", "--exit-code"]);
    let colours = (&health["overall"], &health["features"]["colour"]);
    assert_eq!(colours, (&json!("yellow"), &json!("yellow")), "{health}");
    fixture.ends_with(&root, 9, &["session", "end"]);
    let ended = fixture.forge(&[
        "session",
        "end",
        "--leave-dirty",
        "went astray; go on in the other work tree",
    ]);
    assert_eq!(ended["session"], json!(second));
    let again = fixture.forge(&["session", "end"]);
    assert_eq!(again["again"], true);

    // What the journal has, the server has, also after one more death of it.
    assert_eq!(fixture.forge(&["events", "--server"])["waiting"], 0);
    let told = fixture.forge(&["events"]);
    assert_eq!(told["gaps"], json!([]));
    let ids: Vec<String> = told["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| text(&event["id"]).to_owned())
        .collect();
    let before = kept(&server, &ids);
    server.kill9();
    server.start_again();
    let after = kept(&server, &ids);
    assert_eq!(before, after);
    // Whatever became of the journal.
    std::fs::remove_file(root.join(".forge/.local/journal.jsonl")).unwrap();
    let read = fixture.forge(&["events", "--server"]);
    let read: Vec<&str> = read["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| text(&event["id"]))
        .collect();
    assert!(ids.iter().all(|id| read.contains(&id.as_str())), "{read:?}");
    for subject in [
        Subject::SessionStart,
        Subject::SessionAbandoned,
        Subject::SessionEnd,
        Subject::Checkpoint,
        Subject::Learning,
        Subject::FocusChange,
        Subject::Feature,
        Subject::Recovery,
    ] {
        assert!(
            after.iter().any(|event| event.about() == Some(subject)),
            "nothing tells of {subject}"
        );
    }
}

#[test]
fn two_agents_merge_what_they_learned() {
    let fixture = Fixture::new("");
    let other = fixture.beside("other");
    fixture.git(&[
        "worktree",
        "add",
        "--quiet",
        "-b",
        "other",
        other.to_str().unwrap(),
    ]);
    let mut sessions = Vec::new();
    for (root, name) in [(fixture.root(), "Forge"), (other, "Axiom")] {
        let begun = fixture.forge_in(&root, &["session", "start", "--agent", name]);
        sessions.push(begun["session"]["id"].clone());
        fixture.forge_in(
            &root,
            &[
                "features",
                "add",
                &format!("What {name} does"),
                "--test",
                "adding::*",
            ],
        );
        for context in [
            "Both of us learned this",
            &format!("Only {name} learned this"),
        ] {
            fixture.forge_in(
                &root,
                &[
                    "knowledge",
                    "add",
                    "--context",
                    context,
                    "--approach",
                    "Remember it",
                ],
            );
        }
        let ended = fixture.forge_in(&root, &["session", "end", "--agent", name]);
        assert!(ended["commit"].is_string(), "{ended}");
    }
    assert_ne!(
        sessions[0], sessions[1],
        "ids are given out once in all work trees"
    );
    fixture.git(&["merge", "--quiet", "--no-edit", "other"]);
    assert_eq!(fixture.git(&["status", "--porcelain"]), "");
    let known = fixture.run(&["export"]).stdout;
    for context in [
        "Both of us learned this",
        "Only Forge learned this",
        "Only Axiom learned this",
    ] {
        assert_eq!(known.matches(context).count(), 1, "{known}");
    }
    let listed = fixture.forge(&["features", "list"]);
    let ids: Vec<_> = listed["features"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| text(&item["feature"]["id"]))
        .collect();
    assert_eq!(ids, ["FORGE-001", "FORGE-002"], "{listed}");
}

/// Everything below a folder: bytes, and when it was changed.
fn everything(folder: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let mut all = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(path) = left.pop() {
        let found = std::fs::symlink_metadata(&path).unwrap();
        if found.is_dir() {
            left.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        let bytes = if found.is_file() {
            std::fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        all.push((path, bytes, found.modified().unwrap()));
    }
    all.sort();
    all
}

#[test]
fn looking_changes_nothing_on_disk() {
    let fixture = Fixture::new("");
    fixture.forge(&["session", "start"]);
    fixture.write("src/lib.rs", &format!("{SUMS}// more\n"));
    // git's index has times that no longer hold: it would like to write them anew.
    let same = std::fs::read_to_string(fixture.root().join("Cargo.toml")).unwrap();
    fixture.write("Cargo.toml", &same);
    let before = everything(&fixture.root());
    for look in [
        &["health"][..],
        &["prime"],
        &["features", "list"],
        &["status"],
        &["export"],
        &["knowledge", "search", "sum"],
        &["skill", "list"],
        &["skill", "match", "review a change"],
        &["skill", "show", "qa-review"],
        &["checkpoint", "list"],
        &["recover", "assess", "--no-verify"],
        &["events"],
        &["artifact", "list"],
    ] {
        let ended = fixture.run(look);
        assert!(matches!(ended.code, 0 | 10), "{look:?}: {}", ended.stderr);
        let after = everything(&fixture.root());
        let changed: Vec<_> = after
            .iter()
            .filter(|found| !before.contains(found))
            .map(|found| &found.0)
            .collect();
        assert!(
            changed.is_empty() && after.len() == before.len(),
            "{look:?} changed {changed:?}"
        );
    }
}
