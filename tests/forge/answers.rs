//! Output of every command: one object on stdout with `--json`, and exit codes for scripts.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::fixture::{Ended, Fixture};

/// A text that looks like a credential.
///
/// It is assembled here, so that scanners do not take this file for one with a credential.
fn token() -> String {
    format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8")
}

/// Returns every command below some words, as the program's own help lists them.
fn leaves(fixture: &Fixture, words: &[String]) -> BTreeSet<String> {
    let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
    arguments.push("--help");
    let help = fixture.run(&arguments).stdout;
    let Some((_, listed)) = help.split_once("\nCommands:\n") else {
        return [words.join(" ")].into();
    };
    let names = listed
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            // What goes on from the line before is set in deeper.
            let line = line.strip_prefix("  ")?;
            line.split(' ')
                .next()
                .filter(|name| !name.is_empty() && *name != "help")
        });
    names
        .flat_map(|name| leaves(fixture, &[words, &[name.to_owned()]].concat()))
        .collect()
}

/// Reads the one object that a command printed.
fn one_object(arguments: &[&str], ended: &Ended) -> Value {
    let read: Result<Value, _> = serde_json::from_str(&ended.stdout);
    let answer = read.unwrap_or_else(|error| {
        panic!(
            "{arguments:?}: {error} in {:?} {}",
            ended.stdout, ended.stderr
        )
    });
    let members: Vec<&str> = answer
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    if answer["ok"] == true {
        assert_eq!(members, ["data", "ok"], "{arguments:?}");
    } else {
        assert_eq!(
            (members.as_slice(), &answer["ok"]),
            (["error", "ok"].as_slice(), &json!(false)),
            "{arguments:?}"
        );
        for member in ["code", "category", "message"] {
            assert!(
                answer["error"][member].is_string(),
                "{arguments:?}: {answer}"
            );
        }
    }
    answer
}

/// Calls commands one after the other, and notes which.
struct Caller<'a> {
    fixture: &'a Fixture,
    all: BTreeSet<String>,
    called: BTreeSet<String>,
}

impl Caller<'_> {
    #[track_caller]
    fn call(&mut self, code: i32, arguments: &[&str]) -> Value {
        let whole = [&["--json"], arguments].concat();
        let ended = self.fixture.run(&whole);
        assert_eq!(
            ended.code, code,
            "{arguments:?}: {}{}",
            ended.stdout, ended.stderr
        );
        let called = (1..=arguments.len())
            .map(|count| arguments[..count].join(" "))
            .find(|name| self.all.contains(name));
        self.called
            .insert(called.unwrap_or_else(|| panic!("{arguments:?} is no command")));
        let answer = one_object(arguments, &ended);
        let failed = answer["ok"] != true;
        assert!(code != 0 || !failed, "{arguments:?}: {answer}");
        answer[if failed { "error" } else { "data" }].clone()
    }
}

#[test]
fn every_command_prints_exactly_one_object() {
    let fixture = Fixture::light("");
    let all = leaves(&fixture, &[]);
    assert!((30..=60).contains(&all.len()), "{all:?}");
    let mut caller = Caller {
        fixture: &fixture,
        all,
        called: BTreeSet::new(),
    };
    let mut call = |code: i32, arguments: &[&str]| caller.call(code, arguments);
    let text = |value: &Value| {
        value
            .as_str()
            .unwrap_or_else(|| panic!("no text: {value}"))
            .to_owned()
    };

    call(0, &["init"]);
    call(0, &["doctor"]);
    call(0, &["repair"]);
    call(0, &["session", "start"]);
    call(0, &["session", "log", "Began"]);

    let id = text(
        &call(
            0,
            &[
                "knowledge",
                "add",
                "--context",
                "Adding",
                "--approach",
                "Carry",
            ],
        )["id"],
    );
    let better = ["--context", "Adding", "--approach", "Carry the one"];
    let replaced = call(
        0,
        &[&["knowledge", "add", "--replaces", &id], &better[..]].concat(),
    );
    assert_eq!(replaced["id"], id.as_str());
    call(0, &["knowledge", "search", "adding"]);
    assert_eq!(
        call(0, &["export"])["knowledge"]["patterns"]["successful"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );

    call(0, &["trust", "--show"]);
    call(0, &["features", "add", "Adding", "--test", "adding"]);
    call(0, &["features", "add", "Looks well"]);
    call(
        0,
        &[
            "features",
            "set",
            "FORGE-002",
            "--reason",
            "later",
            "--status",
            "deferred",
        ],
    );
    assert_eq!(
        call(0, &["features", "list"])["next"]["feature"]["id"],
        "FORGE-001"
    );
    call(0, &["features", "set", "FORGE-002", "--remove"]);
    call(0, &["verify", "FORGE-001"]);
    call(0, &["focus", "set", "Add"]);
    call(3, &["focus", "set", "--issue", "NOPE-77"]);
    call(0, &["focus", "set", "--clear"]);

    fixture.write("report.txt", "all is well\n");
    let stored = call(0, &["artifact", "put", "report.txt", "--kind", "reports"]);
    let triv = text(&stored["entry"]["triv"]);
    call(0, &["artifact", "get", &triv]);
    call(0, &["artifact", "list"]);

    call(0, &["skill", "list"]);
    call(0, &["skill", "show", "qa-review"]);
    call(0, &["skill", "match", "review a change"]);

    let what = ["--what", "Write a report", "--why", "Somebody asked"];
    call(
        0,
        &[
            &["commit", "report.txt", "--key", "SUM-1", "-m", "Report"],
            &what[..],
        ]
        .concat(),
    );
    call(0, &["hook", "install", "commit-msg"]);
    call(0, &["hook", "install", "commit-msg", "--remove"]);
    fixture.write(".git/MESSAGE", "Add it\n");
    call(1, &["hook", "run", "commit-msg", ".git/MESSAGE"]);
    call(0, &["hook", "run", "pre-commit"]);
    call(0, &["hook", "run", "prepare-commit-msg", ".git/MESSAGE"]);
    call(0, &["hook", "run", "agent-start", "claude"]);
    call(0, &["checkpoint", "create", "--key", "SUM-1"]);
    call(0, &["checkpoint", "list"]);
    call(0, &["checkpoint", "show", "SUM-1-v1"]);
    call(0, &["recover", "assess"]);
    call(0, &["recover", "apply"]);
    call(9, &["recover", "ack", "--reason", "It is fine"]);
    call(0, &["prime"]);
    call(0, &["health"]);
    assert_eq!(
        call(0, &["events", "-n", "1"])["events"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    let unsent = call(3, &["events", "--server"]);
    assert!(
        text(&unsent["message"]).contains("no event server"),
        "{unsent}"
    );
    let features = ".forge/memory/long-term/features";
    let file = std::fs::read_dir(fixture.root().join(features))
        .unwrap()
        .map(|file| file.unwrap().file_name());
    let file = file
        .map(|name| name.into_string().unwrap())
        .find(|name| name.starts_with("FORGE-001-"))
        .unwrap();
    let features = &*format!("{features}/{file}");
    for copy in ["base", "ours", "theirs"] {
        std::fs::copy(fixture.root().join(features), fixture.beside(copy)).unwrap();
    }
    let [base, ours, theirs] =
        ["base", "ours", "theirs"].map(|copy| fixture.beside(copy).display().to_string());
    call(0, &["merge-driver", &base, &ours, &theirs, features]);
    call(
        0,
        &[
            "issue",
            "add",
            "Subtract",
            "--criterion",
            "It subtracts",
            "--type",
            "feature",
        ],
    );
    call(0, &["issue", "add", "Divide", "--blocked-by", "LOCAL-1"]);
    call(0, &["issue", "list", "all"]);
    call(0, &["issue", "show", "LOCAL-1"]);
    call(
        0,
        &[
            "issue",
            "set",
            "LOCAL-1",
            "--check",
            "1",
            "--evidence",
            "seen",
        ],
    );
    call(
        0,
        &["issue", "set", "LOCAL-1", "--comment", "Not below zero."],
    );
    call(0, &["issue", "done", "LOCAL-1"]);
    call(0, &["issue", "reopen", "LOCAL-1"]);
    call(0, &["ready"]);
    call(0, &["status"]);
    call(0, &["verify", "FORGE-001"]);
    call(0, &["remember", "Subtracting: mind the sign"]);
    let filled = [
        "bug",
        "--field",
        "title=[BUG] No sign",
        "--field",
        "reproduction_steps=Subtract.",
    ];
    // The mode is offline: nothing is asked and nothing is sent.
    for offline in [
        &["tracker", "sync"][..],
        &["tracker", "sync", "--pull"],
        &["tracker", "sync", "--push"],
    ] {
        call(9, offline);
    }
    call(0, &["tracker", "status"]);
    call(
        3,
        &["tracker", "resolve", "NONE-1", "--field", "title", "--ours"],
    );
    call(3, &["tracker", "resolve", "LOCAL-1", "--theirs"]);
    call(0, &["form", "list"]);
    call(0, &["form", "list", "bug"]);
    call(2, &["form", "new", "bug"]);
    call(0, &[&["form", "new"], &filled[..]].concat());
    call(0, &["start", "LOCAL-1", "--no-branch"]);
    call(0, &["done"]);
    assert_eq!(
        fixture.git(&["status", "--porcelain"]),
        "",
        "an end leaves nothing behind"
    );
    call(0, &["session", "end", "--next", "Subtract"]);
    assert_eq!(
        fixture.git(&["status", "--porcelain"]),
        "",
        "an end leaves nothing behind"
    );

    let left: Vec<_> = caller.all.difference(&caller.called).collect();
    assert!(
        left.is_empty(),
        "nobody looks at what these print: {left:?}"
    );
}

#[test]
fn wrong_command_line_prints_one_object() {
    let fixture = Fixture::light("");
    for wrong in [
        &["session", "log"][..],
        &["commit", "-m", "x"],
        &["nonsense"],
        &["features", "list", "--no-such-option"],
        &["features", "set", "FORGE-001", "--status", "splendid"],
        &["session", "end", "--learned", "no colon"],
        &["prime", "--allow-secret", "no-such-rule"],
    ] {
        let ended = fixture.run(&[wrong, &["--json"]].concat());
        assert_eq!(ended.code, 2, "{wrong:?}: {}{}", ended.stdout, ended.stderr);
        let error = one_object(wrong, &ended)["error"].clone();
        assert_eq!(
            (&error["code"], &error["category"]),
            (&json!("E_USAGE"), &json!("usage")),
            "{wrong:?}"
        );
        assert_eq!(ended.stderr, "", "{wrong:?}");
        let plain = fixture.run(wrong);
        assert_eq!((plain.code, plain.stdout.as_str()), (2, ""), "{wrong:?}");
        assert!(
            plain.stderr.starts_with("error: "),
            "{wrong:?}: {}",
            plain.stderr
        );
    }
}

#[test]
fn without_project_reads_are_empty_writes_explain() {
    let fixture = Fixture::without_memory();
    for read in [
        &["health"][..],
        &["prime"],
        &["repair"],
        &["knowledge", "search"],
        &["export"],
        &["features", "list"],
        &["artifact", "list"],
        &["skill", "list"],
        &["skill", "match", "review a change"],
        &["hook", "run", "commit-msg", "none"],
        &["hook", "run", "prepare-commit-msg", "none"],
        &["status"],
        &["checkpoint", "list"],
        &["recover", "assess"],
        &["events"],
    ] {
        let ended = fixture.run(&[read, &["--json"]].concat());
        assert_eq!(ended.code, 0, "{read:?}: {}", ended.stdout);
        assert_eq!(one_object(read, &ended)["data"], Value::Null, "{read:?}");
        let plain = fixture.run(read);
        assert_eq!((plain.code, plain.stdout.trim()), (0, ""), "{read:?}");
    }
    let add = ["knowledge", "add", "--context", "a", "--approach", "b"];
    let error = fixture.ends_with(&fixture.root(), 3, &add);
    assert_eq!(error["next"], "helmdeck forge init");
    assert!(!fixture.root().join(".forge").exists());
}

/// Ends a command with a code, and returns its error.
fn ends(fixture: &Fixture, code: i32, arguments: &[&str]) -> Value {
    fixture.ends_with(&fixture.root(), code, arguments)
}

#[test]
fn every_exit_code_is_met() {
    let fixture = Fixture::light("");
    let add = |approach: &str| {
        [
            "knowledge",
            "add",
            "--context",
            "Adding",
            "--approach",
            approach,
        ]
        .map(str::to_owned)
        .to_vec()
    };
    let run = |code: i32, arguments: Vec<String>| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        ends(&fixture, code, &arguments)
    };
    // 11 before anything else: there is no checkpoint.
    let health = ends(&fixture, 11, &["health", "--exit-code"]);
    assert_eq!(health["overall"], "yellow", "{health}");
    assert_eq!(
        ends(&fixture, 3, &["verify", "NONE-001"])["category"],
        "not_found"
    );
    ends(&fixture, 0, &["session", "start"]);
    assert_eq!(
        ends(&fixture, 5, &["session", "start", "--agent", "Axiom"])["category"],
        "locked"
    );
    ends(
        &fixture,
        0,
        &["features", "add", "Adding", "--test", "adding"],
    );
    assert_eq!(
        ends(
            &fixture,
            9,
            &["features", "set", "FORGE-001", "--status", "passing"]
        )["category"],
        "refused"
    );
    let stale = [
        "features",
        "set",
        "FORGE-001",
        "--reason",
        "x",
        "--if-match",
        "0123456789abcdef",
    ];
    let stale = ends(&fixture, 6, &stale);
    assert!(
        stale["category"] == "stale" && stale["current"]["etag"].is_string(),
        "{stale}"
    );
    let secret = run(7, add(&token()));
    assert!(
        secret["category"] == "secret" && !secret.to_string().contains(&token()),
        "{secret}"
    );
    fixture.write(".git/MESSAGE", "Add it\n");
    ends(&fixture, 1, &["hook", "run", "commit-msg", ".git/MESSAGE"]);

    let path = ".forge/memory/long-term/knowledge.json";
    fixture.write(path, "{");
    assert_eq!(run(8, add("b"))["category"], "corrupt");
    let health = ends(&fixture, 12, &["health", "--exit-code"]);
    assert_eq!(health["long_term"]["colour"], "red");
    std::fs::remove_file(fixture.root().join(path)).unwrap();

    // The state of a tree in the middle of a merge is unknown.
    ends(&fixture, 0, &["session", "end"]);
    ends(&fixture, 0, &["session", "start"]);
    ends(&fixture, 0, &["checkpoint", "create", "--key", "SUM-1"]);
    ends(&fixture, 0, &["session", "end"]);
    let head = fixture.git(&["rev-parse", "HEAD"]);
    fixture.write(".git/MERGE_HEAD", &format!("{head}\n"));
    assert_eq!(
        ends(&fixture, 10, &["recover", "assess"])["class"],
        "UNKNOWN"
    );
    let started = ends(&fixture, 4, &["session", "start"]);
    assert!(started["paused"].is_string(), "{started}");
    assert_eq!(run(4, add("b"))["category"], "paused");
    assert_eq!(
        ends(&fixture, 0, &["knowledge", "search"])["entries"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
}

#[test]
fn new_project_and_fresh_clone_are_healthy() {
    let fixture = Fixture::light("");
    let health = fixture.forge(&["health"]);
    let colours = ["long_term", "short_term", "features", "git", "linear"]
        .map(|part| health[part]["colour"].clone());
    assert_eq!(
        colours,
        ["green", "green", "grey", "yellow", "green"].map(Value::from),
        "{health}"
    );
    let clone = fixture.beside("clone");
    fixture.git(&["clone", "--quiet", ".", clone.to_str().unwrap()]);
    let doctor = fixture.forge_in(&clone, &["doctor"]);
    let next: Vec<&Value> = doctor["found"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| &found["next"])
        .collect();
    assert_eq!(doctor["healthy"], true);
    assert_eq!(
        next,
        [
            "helmdeck forge init --merge-driver",
            "helmdeck forge session start"
        ]
    );
    // No session has worked in it yet, which is no defect: it is grey until the session begins that
    // the doctor names. A second request changes nothing.
    for _ in 0..2 {
        let grey = fixture.forge_in(&clone, &["health"]);
        let found = (
            &grey["short_term"]["colour"],
            &grey["short_term"]["reasons"][0]["code"],
        );
        assert_eq!(found, (&json!("grey"), &json!("not_begun")), "{grey}");
    }
    fixture.forge_in(&clone, &["session", "start"]);
    assert_eq!(
        fixture.forge_in(&clone, &["health"])["short_term"]["colour"],
        "green"
    );
}

/// Runs git, and says whether it succeeded.
fn succeeds(fixture: &Fixture, folder: &Path, arguments: &[&str]) -> bool {
    fixture
        .prepare("git", folder, arguments)
        .output()
        .unwrap()
        .status
        .success()
}

#[test]
fn hooks_allow_merge_revert_and_fixup() {
    let fixture = Fixture::light("");
    let root = fixture.root();
    fixture.forge(&["session", "start"]);
    for hook in ["commit-msg", "prepare-commit-msg"] {
        fixture.forge(&["hook", "install", hook]);
    }
    fixture.git(&["branch", "other"]);
    let commit = |path: &str, subject: &str| {
        fixture.write(path, "x\n");
        fixture.forge(&[
            "commit",
            path,
            "--key",
            "SUM-1",
            "-m",
            subject,
            "--what",
            "Write it",
            "--why",
            "Asked for",
        ]);
    };
    commit("here", "Write here");
    fixture.git(&["switch", "--quiet", "other"]);
    commit("there", "Write there");
    assert!(succeeds(
        &fixture,
        &root,
        &["merge", "--no-ff", "--no-edit", "main"]
    ));
    assert_eq!(
        fixture
            .git(&["log", "-1", "--format=%P"])
            .split(' ')
            .count(),
        2
    );
    assert!(succeeds(&fixture, &root, &["revert", "--no-edit", "main"]));
    assert!(
        fixture
            .git(&["log", "-1", "--format=%s"])
            .starts_with("Revert ")
    );
    fixture.write("there", "y\n");
    assert!(succeeds(
        &fixture,
        &root,
        &["commit", "--quiet", "--fixup", "HEAD~1^1", "there"]
    ));
    assert!(
        fixture
            .git(&["log", "-1", "--format=%B"])
            .starts_with("fixup! [SUM-1] Write there")
    );
    fixture.write("there", "z\n");
    assert!(!succeeds(
        &fixture,
        &root,
        &[
            "-c",
            "core.editor=true",
            "commit",
            "--quiet",
            "-m",
            "Bad.",
            "there"
        ]
    ));
}

#[test]
fn unreachable_event_server_fails_with_its_name() {
    let fixture = Fixture::light("[events]\nuse = \"team\"\n");
    fixture.configure("[forge.events]\nteam = { url = \"nats://127.0.0.1:1\" }\n");
    fixture.forge(&[
        "knowledge",
        "add",
        "--context",
        "here",
        "--approach",
        "this",
    ]);
    let sent = fixture.run(&["--json", "events", "--server"]);
    assert_eq!(sent.code, 1, "{}", sent.stdout);
    assert!(sent.stdout.contains("no event server"), "{}", sent.stdout);
}
