//! `helmdeck conversation`, as people and scripts run it, with and without a key, beside others.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::program::{Home, Run};
use crate::support::{KEY, OTHER_KEY};

pub(super) fn run(home: &Home, arguments: &[&str]) -> Run {
    home.run(KEY, &[&["conversation"], arguments].concat())
}

#[track_caller]
pub(super) fn ok(home: &Home, arguments: &[&str]) -> String {
    let run = run(home, arguments);
    assert_eq!(run.code, 0, "{arguments:?}: {}{}", run.stdout, run.stderr);
    run.stdout
}

#[track_caller]
pub(super) fn json_of(home: &Home, arguments: &[&str]) -> Value {
    let text = ok(home, &[arguments, &["--json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[track_caller]
pub(super) fn fails(home: &Home, code: i32, arguments: &[&str]) -> String {
    let run = run(home, arguments);
    assert_eq!(
        run.code, code,
        "{arguments:?}: {}{}",
        run.stdout, run.stderr
    );
    run.stderr
}

/// Runs with a text on stdin.
pub(super) fn fed(home: &Home, arguments: &[&str], text: &[u8]) -> Run {
    let mut command = home.command(KEY, &[&["conversation"], arguments].concat());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Who refuses the command line reads nothing.
    let _ = child.stdin.take().unwrap().write_all(text);
    Run::of(child.wait_with_output().unwrap())
}

#[track_caller]
pub(super) fn add(home: &Home, session: &str, user: &str, assistant: &str) -> String {
    let added = json_of(
        home,
        &["add", session, "--user", user, "--assistant", assistant],
    );
    added["id"].as_str().unwrap().to_owned()
}

pub(super) fn users(context: &Value) -> Vec<&str> {
    context["recent_turns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|turn| turn["user_message"].as_str().unwrap())
        .collect()
}

#[test]
fn conversation_reads_as_text_and_json() {
    let home = Home::new();
    let text = ok(
        &home,
        &[
            "add",
            "trip",
            "--user",
            "A week in Lisbon",
            "--at",
            "2026-01-02T03:04:05.678901234Z",
        ],
    );
    assert!(
        text.starts_with("added mem_") && text.contains("tokens"),
        "{text}"
    );
    let key = add(&home, "trip", "And in May?", "Two flights.\nBoth direct.");

    let context = json_of(&home, &["context", "trip"]);
    assert_eq!(users(&context), ["A week in Lisbon", "And in May?"]);
    assert_eq!(
        context["recent_turns"][0]["timestamp"],
        "2026-01-02T03:04:05.678901234Z"
    );
    assert_eq!(
        (&context["recent_turns"][1]["id"], &context["strategy"]),
        (&json!(key), &json!("truncation"))
    );
    let text = ok(&home, &["context", "trip"]);
    assert!(
        text.contains("A week in Lisbon") && text.contains("    Both direct."),
        "{text}"
    );
    let prompt = ok(&home, &["context", "trip", "--format", "prompt"]);
    assert!(
        prompt.contains("<read_only_conversation_memory>") && prompt.contains("Two flights"),
        "{prompt}"
    );
    assert_eq!(
        json_of(&home, &["context", "trip", "--format", "prompt"])["prompt"].as_str(),
        Some(prompt.trim_end())
    );

    let messages = json_of(&home, &["context", "trip", "--format", "messages"])["messages"].clone();
    assert_eq!(
        messages[0],
        json!({"role": "user", "content": "A week in Lisbon"})
    );
    assert_eq!(
        serde_json::from_str::<Value>(&ok(&home, &["context", "trip", "--format", "messages"]))
            .unwrap(),
        messages
    );
    assert_eq!(
        ok(&home, &["pin", "trip"]),
        "asked first: A week in Lisbon\n"
    );
    assert_eq!(
        ok(&home, &["pin", "trip", "For 900 euros"]),
        "pinned: For 900 euros\n"
    );
    assert_eq!(
        json_of(&home, &["context", "trip"])["goal"],
        "For 900 euros"
    );
    assert_eq!(
        json_of(&home, &["pin", "trip", "--clear"]),
        json!({"goal": "A week in Lisbon", "pinned": false})
    );
    fails(&home, 2, &["pin", "trip", "x", "--clear"]);
    assert_eq!(
        ok(&home, &["pin", "nowhere"]),
        "local/local/nowhere has no goal\n"
    );

    assert_eq!(ok(&home, &["health", "trip"]), "healthy\n");
    let health =
        json!({"health": "healthy", "backlog_turns": 0, "failures": 0, "last_failure": null});
    assert_eq!(json_of(&home, &["health", "trip"]), health);
    let trace = json_of(&home, &["trace", "trip"]);
    assert_eq!(
        (&trace["kept_turns"], &trace["recent_turn_count"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(trace["estimated_tokens"], context["tokens"]);
    assert!(
        ok(&home, &["trace", "trip"]).contains("kept turns"),
        "a table"
    );

    let list = json_of(&home, &["list", "trip"]);
    assert_eq!(
        (&list["total"], &list["items"][0]["key"]),
        (&json!(2), &json!(key)),
        "the newest first"
    );
    assert!(!ok(&home, &["list", "trip"]).contains("Lisbon"), "no texts");
    let whole = json_of(&home, &["list", "trip", "--texts"]);
    assert_eq!(
        whole["items"][1]["value"]["user_message"], "A week in Lisbon",
        "{whole}"
    );
    let text = ok(&home, &["list", "trip", "--texts"]);
    assert!(
        text.starts_with(&key)
            && text.contains("    Both direct.")
            && text.contains("A week in Lisbon"),
        "{text}"
    );
    let found = json_of(&home, &["list", "trip", "--search", "LISBON"]);
    assert_eq!(found["items"].as_array().unwrap().len(), 1, "{found}");
    let text = ok(&home, &["list", "trip", "--limit", "1"]);
    assert!(
        text.contains(&key) && text.contains(&format!("more: --after {key}")),
        "{text}"
    );
    let rest = json_of(&home, &["list", "trip", "--after", &key]);
    assert_eq!(rest["items"].as_array().unwrap().len(), 1, "{rest}");

    let shown = json_of(&home, &["show", "trip", &key]);
    assert_eq!(
        (&shown["item"]["key"], &shown["value"]["user_message"]),
        (&json!(key), &json!("And in May?"))
    );
    assert!(
        ok(&home, &["show", "trip", &key]).contains("Both direct."),
        "a text"
    );

    add(&home, "other", "x", "y");
    let conversations = json_of(&home, &["list"]);
    assert_eq!(
        (
            &conversations["total"],
            &conversations["sessions"][1]["session"]
        ),
        (&json!(2), &json!("trip"))
    );
    let text = ok(&home, &["list"]);
    assert!(
        text.contains("local/local") && text.contains("trip") && text.contains("healthy"),
        "{text}"
    );
    assert!(
        ok(&home, &["list", "--subject", "nobody"]).contains("no conversations"),
        "narrowed"
    );
}

#[test]
fn conversations_of_others_are_apart() {
    let home = Home::new();
    add(&home, "s", "mine", "");
    json_of(&home, &["add", "s", "--user", "hers", "--subject", "alice"]);
    json_of(
        &home,
        &[
            "add",
            "s",
            "--user",
            "theirs",
            "--subject",
            "alice",
            "--tenant",
            "acme",
        ],
    );
    assert_eq!(users(&json_of(&home, &["context", "s"])), ["mine"]);
    assert_eq!(
        users(&json_of(&home, &["context", "s", "--subject", "alice"])),
        ["hers"]
    );
    let callers = json_of(&home, &["list"])["sessions"]
        .as_array()
        .unwrap()
        .len();
    let of_acme = json_of(&home, &["list", "--tenant", "acme"]);
    assert_eq!(
        (callers, &of_acme["sessions"][0]["user"]),
        (3, &json!("alice"))
    );
    ok(&home, &["forget", "s", "--subject", "alice", "--yes"]);
    assert_eq!(
        users(&json_of(&home, &["context", "s", "--subject", "alice"])),
        [""; 0]
    );
    assert_eq!(
        users(&json_of(
            &home,
            &["context", "s", "--subject", "alice", "--tenant", "acme"]
        )),
        ["theirs"]
    );
}

#[test]
fn texts_come_from_stdin_and_stay_unlogged() {
    let home = Home::new();
    let run = fed(
        &home,
        &["add", "s", "--user", "-", "-vv"],
        "canary line\nand another\r\n".as_bytes(),
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(!run.stderr.contains("canary"), "{}", run.stderr);
    let run = fed(
        &home,
        &["add", "s", "--assistant", "-", "--user", "-5 degrees"],
        b"",
    );
    assert_eq!(run.code, 2, "a text that looks like a flag wants `=`");
    let run = fed(
        &home,
        &["add", "s", "--user=-5 degrees", "--assistant", "-"],
        b"cold",
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(
        users(&json_of(&home, &["context", "s"])),
        ["canary line\nand another", "-5 degrees"]
    );

    let both = fed(
        &home,
        &["add", "s", "--user", "-", "--assistant", "-"],
        b"x",
    );
    assert!(
        both.code == 2 && both.stderr.contains("one text"),
        "{}",
        both.stderr
    );
    let binary = fed(&home, &["add", "s", "--user", "-"], b"\xff\xfe");
    assert!(
        binary.code == 2 && binary.stderr.contains("UTF-8"),
        "{}",
        binary.stderr
    );
    for arguments in [
        &["add", "s"][..],
        &["add", "s", "--user", ""],
        &["add", "s", "--user", "-"],
        &["add", "s", "--user", "x", "--at", "yesterday"],
        &["add", "s", "--user", "x", "--once", ""],
        &["add", "", "--user", "x"],
        &["add", "a\nb", "--user", "x"],
        &["add", "s", "--user", "x", "--file", "y"],
        &["list", "--search", "x"],
        &["list", "--texts"],
        &["list", "s", "--after", "mem_5"],
        &["list", "s", "--limit", "0"],
    ] {
        fails(&home, 2, arguments);
    }
    assert_eq!(
        json_of(&home, &["trace", "s"])["kept_turns"],
        2,
        "nothing else was added"
    );
}

#[test]
fn terminal_control_codes_are_made_visible() {
    let home = Home::new();
    let key = add(
        &home,
        "s",
        "\u{1b}]0;title\u{7}\u{202e}x",
        "mem_0  2026-01-01T00:00:00Z\n  user:\n  forged",
    );
    for arguments in [
        &["context", "s"][..],
        &["context", "s", "--format", "prompt"],
        &["show", "s", &key],
        &["list", "s"],
    ] {
        let text = ok(&home, arguments);
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
    }
    let forged = ok(&home, &["context", "s"])
        .lines()
        .filter(|line| *line == "  user:")
        .count();
    assert_eq!(forged, 1, "a text cannot look like a line of ours");
}

#[test]
fn file_import_stops_at_first_bad_line() {
    let home = Home::new();
    let file = home.packs().join("turns.jsonl");
    let path = file.to_str().unwrap();
    let line = |n: u32| {
        format!(
            "{{\"user_message\": \"u{n}\", \"assistant_response\": \"a{n}\", \"once\": \"line-{n}\"}}\n"
        )
    };
    std::fs::write(
        &file,
        format!(
            "{}\n{}{{\"user_text\": \"canary\"}}\n{}",
            line(1),
            line(2),
            line(3)
        ),
    )
    .unwrap();
    let run = run(&home, &["add", "s", "--file", path]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(
        run.stderr
            .contains("turns.jsonl, line 4: unknown field `user_text`"),
        "{}",
        run.stderr
    );
    assert!(
        !run.stderr.contains("canary") && run.stdout.contains("added 2 turns"),
        "{}{}",
        run.stdout,
        run.stderr
    );

    // The same file, mended: what is there is not added again.
    std::fs::write(&file, (1..=3).map(line).collect::<String>()).unwrap();
    let text = ok(&home, &["add", "s", "--file", path]);
    assert!(
        text.contains("added 1 turn to local/local/s; 2 turns there already"),
        "{text}"
    );
    assert_eq!(
        users(&json_of(&home, &["context", "s"])),
        ["u1", "u2", "u3"]
    );

    let lines = [line(3), line(4), "{\"user_message\": ".to_owned(), line(5)].concat();
    let run = fed(
        &home,
        &["add", "s", "--file", "-", "--json"],
        lines.as_bytes(),
    );
    assert_eq!(run.code, 1);
    let told: Vec<Value> = run
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let repeated: Vec<&Value> = told.iter().map(|added| &added["repeated"]).collect();
    assert_eq!(
        repeated,
        [&json!(true), &json!(false)],
        "one line for each turn that is kept"
    );
    let problem: Value = serde_json::from_str(&run.stderr).unwrap();
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("stdin, line 3"),
        "{problem}"
    );
    assert_eq!(
        users(&json_of(&home, &["context", "s"])),
        ["u1", "u2", "u3", "u4"]
    );
    assert!(fails(&home, 3, &["add", "s", "--file", "/no/such"]).contains("/no/such"));
}

#[test]
fn snapshot_round_trip_is_byte_identical() {
    let home = Home::new();
    add(&home, "s", "first <&>", "one");
    let key = add(&home, "s", "second \u{2028}", "two");
    let snapshot = ok(&home, &["snapshot", "s"]);
    assert!(snapshot.starts_with(
        "{\"strategy\":\"truncation\",\"turns\":[{\"UserMessage\":\"first \\u003c\\u0026"
    ));
    assert!(!snapshot.ends_with('\n'), "nothing is added to the bytes");

    let file = home.packs().join("s.json");
    let path = file.to_str().unwrap();
    let wrote = json_of(&home, &["snapshot", "s", "-o", path]);
    assert_eq!(wrote["bytes"].as_u64(), Some(snapshot.len() as u64));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), snapshot);
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert!(fails(&home, 2, &["snapshot", "s", "-o", path]).contains("--force"));
    ok(&home, &["snapshot", "s", "-o", path, "--force"]);
    fails(&home, 1, &["snapshot", "s", "-o", "/no/such/folder/s.json"]);
    assert_eq!(
        std::fs::read_dir(file.parent().unwrap())
            .unwrap()
            .filter(|entry| {
                entry
                    .as_ref()
                    .unwrap()
                    .file_name()
                    .to_string_lossy()
                    .starts_with(".s.json")
            })
            .count(),
        0,
        "no draft stays"
    );

    let asked = fails(&home, 2, &["delete", "s", &key]);
    assert!(
        asked.contains("remove turn") && asked.contains("--yes"),
        "{asked}"
    );
    assert_eq!(
        json_of(&home, &["delete", "s", &key, "--yes"])["remaining_turns"],
        1
    );
    fails(&home, 3, &["show", "s", &key]);
    fails(&home, 3, &["delete", "s", &key, "--yes"]);
    fails(&home, 3, &["show", "s", "mem_nonsense"]);

    assert!(fails(&home, 2, &["flush", "s"]).contains("remove 1 turn of local/local/s"));
    ok(&home, &["flush", "s", "--yes"]);
    assert_eq!(users(&json_of(&home, &["context", "s"])), [""; 0]);

    add(&home, "s", "in the way", "");
    let asked = fails(&home, 2, &["restore", "s", path]);
    assert!(
        asked.contains("replace 1 turn of local/local/s by a snapshot"),
        "{asked}"
    );
    assert_eq!(
        json_of(&home, &["restore", "s", path, "--yes"])["kept_turns"],
        2
    );
    assert_eq!(ok(&home, &["snapshot", "s"]), snapshot);
    // A new conversation loses nothing, so `restore` doesn't ask.
    let run = fed(&home, &["restore", "copy", "-"], snapshot.as_bytes());
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(ok(&home, &["snapshot", "copy"]), snapshot);

    // What is no snapshot of this strategy changes nothing, and an empty file clears nothing.
    for (text, code) in [
        ("", 2),
        (" \n", 2),
        ("{", 1),
        ("[]", 1),
        ("{\"strategy\":\"rolling_summary\",\"summary\":\"x\"}", 1),
        (
            "{\"strategy\":\"truncation\",\"turns\":[{\"user_message\":\"canary\"}]}",
            1,
        ),
    ] {
        let run = fed(&home, &["restore", "copy", "-", "--yes"], text.as_bytes());
        assert_eq!(run.code, code, "{text}: {}", run.stderr);
        assert!(!run.stderr.contains("canary"), "{}", run.stderr);
    }
    assert_eq!(ok(&home, &["snapshot", "copy"]), snapshot);
    fails(&home, 3, &["restore", "copy", "/no/such", "--yes"]);

    assert_eq!(
        json_of(&home, &["forget", "copy", "--yes"])["removed_turns"],
        2
    );
    assert_eq!(json_of(&home, &["list"])["total"], 1);
}

#[test]
fn reading_without_key_creates_no_store() {
    let home = Home::new();
    for arguments in [
        &["context", "s"][..],
        &["context", "s", "--format", "prompt"],
        &["health", "s"],
        &["trace", "s"],
        &["list"],
        &["list", "s"],
        &["snapshot", "s"],
        &["flush", "s", "--yes"],
        &["forget", "s", "--yes"],
        &["fold", "s"],
    ] {
        ok(&home, arguments);
        assert!(!home.store().exists(), "{arguments:?} made a store");
    }
    fails(&home, 3, &["show", "s", "mem_000000000000000100000000"]);

    let verbs: [&[&str]; 12] = [
        &["add", "s", "--user", "x"],
        &["context", "s"],
        &["health", "s"],
        &["trace", "s"],
        &["list"],
        &["show", "s", "k"],
        &["snapshot", "s"],
        &["restore", "s", "/no/such", "--yes"],
        &["delete", "s", "k", "--yes"],
        &["flush", "s", "--yes"],
        &["forget", "s", "--yes"],
        &["fold", "s"],
    ];
    for arguments in verbs {
        let mut command = home.command(KEY, &[&["conversation"], arguments, &["--json"]].concat());
        let run = Run::of(command.env_remove("HELMDECK_MEMORY_KEY").output().unwrap());
        assert_eq!(run.code, 3, "{arguments:?}: {}", run.stderr);
        let problem: Value = serde_json::from_str(&run.stderr).unwrap();
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains("memory is off"),
            "{problem}"
        );
        assert_eq!(problem["code"], "not_found", "{problem}");
    }
    let mut command = home.command(KEY, &["conversation", "list"]);
    let run = Run::of(command.env_remove("HELMDECK_MEMORY_KEY").output().unwrap());
    assert!(
        run.stderr.contains("helmdeck key generate")
            && run.stderr.contains("HELMDECK_MEMORY_KEY_FILE")
    );
    assert!(!home.data().exists(), "no folder, no file");

    add(&home, "s", "x", "y");
    assert_eq!(
        home.run(OTHER_KEY, &["conversation", "context", "s"]).code,
        78
    );
    assert_eq!(
        home.run("canary", &["conversation", "context", "s"]).code,
        78
    );
}

#[test]
fn two_processes_add_each_turn_exactly_once() {
    let home = Home::new();
    let file = |who: &str| {
        let path = home.packs().join(format!("{who}.jsonl"));
        let lines: String = (0..100)
            .map(|n| format!("{{\"user_message\": \"{who}-{n}\"}}\n"))
            .collect();
        std::fs::write(&path, lines).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let children = ["left", "right"].map(|who| {
        home.command(KEY, &["conversation", "add", "s", "--file", &file(who)])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    });
    for child in children {
        let run = Run::of(child.wait_with_output().unwrap());
        assert!(
            run.code == 0 && run.stdout.contains("added 100 turns"),
            "{}{}",
            run.stdout,
            run.stderr
        );
    }
    let context = json_of(&home, &["context", "s"]);
    let turns = users(&context);
    assert_eq!(turns.len(), 200);
    for who in ["left", "right"] {
        let own: Vec<String> = turns
            .iter()
            .filter(|turn| turn.starts_with(who))
            .map(|turn| (*turn).to_owned())
            .collect();
        assert_eq!(
            own,
            (0..100).map(|n| format!("{who}-{n}")).collect::<Vec<_>>(),
            "each in its order"
        );
    }
    let keys = json_of(&home, &["list", "s", "--limit", "1000"]);
    let keys: std::collections::BTreeSet<&str> = keys["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys.len(), 200);
}

#[test]
fn forgetting_leaves_no_text_in_any_file() {
    let home = Home::new();
    for session in ["s", "t"] {
        for n in 0..20 {
            json_of(
                &home,
                &[
                    "add",
                    session,
                    "--user",
                    &format!("canary text {n}"),
                    "--subject",
                    "SUBJECT-alice",
                ],
            );
        }
    }
    add(&home, "s", "mine", "");
    let in_files = |text: &str| {
        let files = std::fs::read_dir(home.data())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        files
            .filter(|path| path.is_file())
            .any(|path| holds(&path, text))
    };
    assert!(
        in_files("SUBJECT-alice") && !in_files("canary text"),
        "texts are sealed, names are not"
    );
    let listed = home.run(
        KEY,
        &[
            "memory",
            "list",
            "--kind",
            "conversation",
            "--namespace",
            "local/SUBJECT-alice/t",
        ],
    );
    assert!(listed.stdout.contains("turn/"), "{}", listed.stdout);

    let run = home.run(
        KEY,
        &[
            "memory",
            "forget",
            "--subject",
            "SUBJECT-alice",
            "--yes",
            "--json",
        ],
    );
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let receipt: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(receipt["verified"], true, "{receipt}");
    assert!(
        receipt["removed"].to_string().contains("conversation"),
        "{receipt}"
    );
    assert!(!in_files("SUBJECT-alice"));
    let conversations = json_of(&home, &["list"]);
    assert_eq!(
        (
            &conversations["total"],
            &conversations["sessions"][0]["user"]
        ),
        (&json!(1), &json!("local"))
    );
    assert_eq!(users(&json_of(&home, &["context", "s"])), ["mine"]);
    for session in ["s", "t"] {
        assert_eq!(
            users(&json_of(
                &home,
                &["context", session, "--subject", "SUBJECT-alice"]
            )),
            [""; 0]
        );
    }

    let run = home.run(
        KEY,
        &["memory", "purge", "--namespace", "local/local/s", "--yes"],
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(json_of(&home, &["list"])["total"], 0);
}

fn holds(path: &Path, text: &str) -> bool {
    std::fs::read(path)
        .unwrap()
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

#[test]
fn help_knows_the_commands() {
    let home = Home::new();
    let help = ok(&home, &["--help"]);
    for verb in [
        "add", "context", "health", "trace", "snapshot", "restore", "list", "show", "delete",
        "flush", "forget", "fold",
    ] {
        assert!(
            help.lines()
                .any(|line| line.trim_start().starts_with(&format!("{verb} "))),
            "{verb}: {help}"
        );
        assert!(ok(&home, &[verb, "--help"]).contains("--subject"), "{verb}");
    }
    assert!(ok(&home, &["add", "--help"]).contains("turns.jsonl"));
    assert_eq!(home.run(KEY, &["conversation"]).code, 2);
    assert_eq!(home.run(KEY, &["conversation", "summarise", "s"]).code, 2);
}
