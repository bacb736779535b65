//! `helmdeck conversation`, as people and scripts run it, with and without a key, beside others.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use helmdeck_testkit::{ChatReply, ChatServer};
use serde_json::{Value, json};

use crate::support::program::{Home, Run, Server};
use crate::support::{KEY, OTHER_KEY, wait_for};

/// What a model of tests answers.
const SUMMARY: &str = "- The user asked for a trip to Lisbon in May, and the assistant found two flights.";

fn run(home: &Home, arguments: &[&str]) -> Run {
    home.run(KEY, &[&["conversation"], arguments].concat())
}

#[track_caller]
fn ok(home: &Home, arguments: &[&str]) -> String {
    let run = run(home, arguments);
    assert_eq!(run.code, 0, "{arguments:?}: {}{}", run.stdout, run.stderr);
    run.stdout
}

#[track_caller]
fn json_of(home: &Home, arguments: &[&str]) -> Value {
    let text = ok(home, &[arguments, &["--json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[track_caller]
fn fails(home: &Home, code: i32, arguments: &[&str]) -> String {
    let run = run(home, arguments);
    assert_eq!(run.code, code, "{arguments:?}: {}{}", run.stdout, run.stderr);
    run.stderr
}

/// Runs with a text on stdin.
fn fed(home: &Home, arguments: &[&str], text: &[u8]) -> Run {
    let mut command = home.command(KEY, &[&["conversation"], arguments].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Who refuses the command line reads nothing.
    let _ = child.stdin.take().unwrap().write_all(text);
    Run::of(child.wait_with_output().unwrap())
}

#[track_caller]
fn add(home: &Home, session: &str, user: &str, assistant: &str) -> String {
    let added = json_of(home, &["add", session, "--user", user, "--assistant", assistant]);
    added["id"].as_str().unwrap().to_owned()
}

fn users(context: &Value) -> Vec<&str> {
    context["recent_turns"].as_array().unwrap().iter().map(|turn| turn["user_message"].as_str().unwrap()).collect()
}

#[test]
fn a_dialogue_is_written_and_read_by_people_and_by_programs() {
    let home = Home::new();
    let text = ok(&home, &["add", "trip", "--user", "A week in Lisbon", "--at", "2026-01-02T03:04:05.678901234Z"]);
    assert!(text.starts_with("added mem_") && text.contains("tokens"), "{text}");
    let key = add(&home, "trip", "And in May?", "Two flights.\nBoth direct.");

    let context = json_of(&home, &["context", "trip"]);
    assert_eq!(users(&context), ["A week in Lisbon", "And in May?"]);
    assert_eq!(context["recent_turns"][0]["timestamp"], "2026-01-02T03:04:05.678901234Z");
    assert_eq!((&context["recent_turns"][1]["id"], &context["strategy"]), (&json!(key), &json!("truncation")));
    let text = ok(&home, &["context", "trip"]);
    assert!(text.contains("A week in Lisbon") && text.contains("    Both direct."), "{text}");
    let prompt = ok(&home, &["context", "trip", "--prompt"]);
    assert!(prompt.contains("<read_only_conversation_memory>") && prompt.contains("Two flights"), "{prompt}");
    assert_eq!(json_of(&home, &["context", "trip", "--prompt"])["prompt"].as_str(), Some(prompt.trim_end()));

    assert_eq!(ok(&home, &["health", "trip"]), "healthy\n");
    assert_eq!(json_of(&home, &["health", "trip"])["health"], "healthy");
    let trace = json_of(&home, &["trace", "trip"]);
    assert_eq!((&trace["kept_turns"], &trace["recent_turn_count"]), (&json!(2), &json!(2)));
    assert_eq!(trace["estimated_tokens"], context["tokens"]);
    assert!(ok(&home, &["trace", "trip"]).contains("kept turns"), "a table");

    let list = json_of(&home, &["list", "trip"]);
    assert_eq!((&list["total"], &list["items"][0]["key"]), (&json!(2), &json!(key)), "the newest first");
    let found = json_of(&home, &["list", "trip", "--search", "LISBON"]);
    assert_eq!(found["items"].as_array().unwrap().len(), 1, "{found}");
    let text = ok(&home, &["list", "trip", "--limit", "1"]);
    assert!(text.contains(&key) && text.contains(&format!("more: --after {key}")), "{text}");
    let rest = json_of(&home, &["list", "trip", "--after", &key]);
    assert_eq!(rest["items"].as_array().unwrap().len(), 1, "{rest}");

    let shown = json_of(&home, &["show", "trip", &key]);
    assert_eq!((&shown["item"]["key"], &shown["value"]["user_message"]), (&json!(key), &json!("And in May?")));
    assert!(ok(&home, &["show", "trip", &key]).contains("Both direct."), "a text");

    add(&home, "other", "x", "y");
    let dialogues = json_of(&home, &["list"]);
    assert_eq!((&dialogues["total"], &dialogues["sessions"][1]["session"]), (&json!(2), &json!("trip")));
    let text = ok(&home, &["list"]);
    assert!(text.contains("local/local") && text.contains("trip") && text.contains("healthy"), "{text}");
    assert!(ok(&home, &["list", "--subject", "nobody"]).contains("no dialogues"), "narrowed");
}

#[test]
fn dialogues_of_others_are_apart() {
    let home = Home::new();
    add(&home, "s", "mine", "");
    json_of(&home, &["add", "s", "--user", "hers", "--subject", "alice"]);
    json_of(&home, &["add", "s", "--user", "theirs", "--subject", "alice", "--tenant", "acme"]);
    assert_eq!(users(&json_of(&home, &["context", "s"])), ["mine"]);
    assert_eq!(users(&json_of(&home, &["context", "s", "--subject", "alice"])), ["hers"]);
    let callers = json_of(&home, &["list"])["sessions"].as_array().unwrap().len();
    let of_acme = json_of(&home, &["list", "--tenant", "acme"]);
    assert_eq!((callers, &of_acme["sessions"][0]["user"]), (3, &json!("alice")));
    ok(&home, &["forget", "s", "--subject", "alice", "--yes"]);
    assert_eq!(users(&json_of(&home, &["context", "s", "--subject", "alice"])), [""; 0]);
    assert_eq!(users(&json_of(&home, &["context", "s", "--subject", "alice", "--tenant", "acme"])), ["theirs"]);
}

#[test]
fn texts_come_from_stdin_too_and_stay_out_of_every_log() {
    let home = Home::new();
    let run = fed(&home, &["add", "s", "--user", "-", "-vv"], "canary line\nand another\r\n".as_bytes());
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(!run.stderr.contains("canary"), "{}", run.stderr);
    let run = fed(&home, &["add", "s", "--assistant", "-", "--user", "-5 degrees"], b"");
    assert_eq!(run.code, 2, "a text that looks like a flag wants `=`");
    let run = fed(&home, &["add", "s", "--user=-5 degrees", "--assistant", "-"], b"cold");
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(users(&json_of(&home, &["context", "s"])), ["canary line\nand another", "-5 degrees"]);

    let both = fed(&home, &["add", "s", "--user", "-", "--assistant", "-"], b"x");
    assert!(both.code == 2 && both.stderr.contains("one text"), "{}", both.stderr);
    let binary = fed(&home, &["add", "s", "--user", "-"], b"\xff\xfe");
    assert!(binary.code == 2 && binary.stderr.contains("UTF-8"), "{}", binary.stderr);
    for arguments in [
        &["add", "s"][..],
        &["add", "s", "--user", "x", "--at", "yesterday"],
        &["add", "s", "--user", "x", "--once", ""],
        &["add", "", "--user", "x"],
        &["add", "a\nb", "--user", "x"],
        &["add", "s", "--user", "x", "--file", "y"],
        &["list", "--search", "x"],
        &["list", "s", "--after", "mem_5"],
        &["list", "s", "--limit", "0"],
    ] {
        fails(&home, 2, arguments);
    }
    assert_eq!(json_of(&home, &["trace", "s"])["kept_turns"], 2, "nothing else was added");
}

#[test]
fn what_a_text_does_to_a_terminal_is_made_visible() {
    let home = Home::new();
    let key = add(&home, "s", "\u{1b}]0;title\u{7}\u{202e}x", "mem_0  2026-01-01T00:00:00Z\n  user:\n  forged");
    for arguments in [&["context", "s"][..], &["context", "s", "--prompt"], &["show", "s", &key], &["list", "s"]] {
        let text = ok(&home, arguments);
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
        assert!(!text.lines().any(|line| line == "  user:" || line.starts_with("mem_0")) || arguments[0] != "list");
    }
    let forged = ok(&home, &["context", "s"]).lines().filter(|line| *line == "  user:").count();
    assert_eq!(forged, 1, "a text cannot look like a line of ours");
}

#[test]
fn a_file_is_added_in_order_up_to_the_first_bad_line() {
    let home = Home::new();
    let file = home.packs().join("turns.jsonl");
    let path = file.to_str().unwrap();
    let line =
        |n: u32| format!("{{\"user_message\": \"u{n}\", \"assistant_response\": \"a{n}\", \"once\": \"line-{n}\"}}\n");
    std::fs::write(&file, format!("{}\n{}{{\"user_text\": \"canary\"}}\n{}", line(1), line(2), line(3))).unwrap();
    let run = run(&home, &["add", "s", "--file", path]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("turns.jsonl, line 4: unknown field `user_text`"), "{}", run.stderr);
    assert!(!run.stderr.contains("canary") && run.stdout.contains("added 2 turns"), "{}{}", run.stdout, run.stderr);

    // The same file, mended: what is there is not added again.
    std::fs::write(&file, (1..=3).map(line).collect::<String>()).unwrap();
    let text = ok(&home, &["add", "s", "--file", path]);
    assert!(text.contains("added 1 turn to local/local/s; 2 turns there already"), "{text}");
    assert_eq!(users(&json_of(&home, &["context", "s"])), ["u1", "u2", "u3"]);

    let lines = [line(3), line(4), "{\"user_message\": ".to_owned(), line(5)].concat();
    let run = fed(&home, &["add", "s", "--file", "-", "--json"], lines.as_bytes());
    assert_eq!(run.code, 1);
    let told: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let repeated: Vec<&Value> = told.iter().map(|added| &added["repeated"]).collect();
    assert_eq!(repeated, [&json!(true), &json!(false)], "one line for each turn that is kept");
    let problem: Value = serde_json::from_str(&run.stderr).unwrap();
    assert!(problem["detail"].as_str().unwrap().contains("stdin, line 3"), "{problem}");
    assert_eq!(users(&json_of(&home, &["context", "s"])), ["u1", "u2", "u3", "u4"]);
    assert!(fails(&home, 2, &["add", "s", "--file", "/no/such"]).contains("/no/such"));
}

#[test]
fn a_snapshot_leaves_and_comes_back_byte_for_byte() {
    let home = Home::new();
    add(&home, "s", "first <&>", "one");
    let key = add(&home, "s", "second \u{2028}", "two");
    let snapshot = ok(&home, &["snapshot", "s"]);
    assert!(snapshot.starts_with("{\"strategy\":\"truncation\",\"turns\":[{\"UserMessage\":\"first \\u003c\\u0026"));
    assert!(!snapshot.ends_with('\n'), "nothing is added to the bytes");

    let file = home.packs().join("s.json");
    let path = file.to_str().unwrap();
    let wrote = json_of(&home, &["snapshot", "s", "-o", path]);
    assert_eq!(wrote["bytes"].as_u64(), Some(snapshot.len() as u64));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), snapshot);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fails(&home, 2, &["snapshot", "s", "-o", path]).contains("--force"));
    ok(&home, &["snapshot", "s", "-o", path, "--force"]);
    fails(&home, 1, &["snapshot", "s", "-o", "/no/such/folder/s.json"]);
    assert_eq!(
        std::fs::read_dir(file.parent().unwrap())
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".s.json") })
            .count(),
        0,
        "no draft stays"
    );

    let asked = fails(&home, 2, &["delete", "s", &key]);
    assert!(asked.contains("remove turn") && asked.contains("--yes"), "{asked}");
    assert_eq!(json_of(&home, &["delete", "s", &key, "--yes"])["remaining_turns"], 1);
    fails(&home, 3, &["show", "s", &key]);
    fails(&home, 3, &["delete", "s", &key, "--yes"]);
    fails(&home, 3, &["show", "s", "mem_nonsense"]);

    assert!(fails(&home, 2, &["flush", "s"]).contains("remove 1 turn of local/local/s"));
    ok(&home, &["flush", "s", "--yes"]);
    assert_eq!(users(&json_of(&home, &["context", "s"])), [""; 0]);

    add(&home, "s", "in the way", "");
    let asked = fails(&home, 2, &["restore", "s", path]);
    assert!(asked.contains("replace 1 turn of local/local/s by a snapshot"), "{asked}");
    assert_eq!(json_of(&home, &["restore", "s", path, "--yes"])["kept_turns"], 2);
    assert_eq!(ok(&home, &["snapshot", "s"]), snapshot);
    let run = fed(&home, &["restore", "copy", "-", "--yes"], snapshot.as_bytes());
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(ok(&home, &["snapshot", "copy"]), snapshot);

    // What is no snapshot of this strategy changes nothing, and an empty file clears nothing.
    for (text, code) in [
        ("", 2),
        (" \n", 2),
        ("{", 1),
        ("[]", 1),
        ("{\"strategy\":\"rolling_summary\",\"summary\":\"x\"}", 1),
        ("{\"strategy\":\"truncation\",\"turns\":[{\"user_message\":\"canary\"}]}", 1),
    ] {
        let run = fed(&home, &["restore", "copy", "-", "--yes"], text.as_bytes());
        assert_eq!(run.code, code, "{text}: {}", run.stderr);
        assert!(!run.stderr.contains("canary"), "{}", run.stderr);
    }
    assert_eq!(ok(&home, &["snapshot", "copy"]), snapshot);
    fails(&home, 2, &["restore", "copy", "/no/such", "--yes"]);

    assert_eq!(json_of(&home, &["forget", "copy", "--yes"])["forgotten_turns"], 2);
    assert_eq!(json_of(&home, &["list"])["total"], 1);
}

#[test]
fn looking_makes_no_store_and_without_a_key_there_is_one_answer() {
    let home = Home::new();
    for arguments in [
        &["context", "s"][..],
        &["context", "s", "--prompt"],
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
        assert!(problem["detail"].as_str().unwrap().contains("memory is off"), "{problem}");
        assert_eq!(problem["code"], "not_found", "{problem}");
    }
    let mut command = home.command(KEY, &["conversation", "list"]);
    let run = Run::of(command.env_remove("HELMDECK_MEMORY_KEY").output().unwrap());
    assert!(run.stderr.contains("helmdeck key generate") && run.stderr.contains("HELMDECK_MEMORY_KEY_FILE"));
    assert!(!home.data().exists(), "no folder, no file");

    add(&home, "s", "x", "y");
    assert_eq!(home.run(OTHER_KEY, &["conversation", "context", "s"]).code, 78);
    assert_eq!(home.run("canary", &["conversation", "context", "s"]).code, 78);
}

#[test]
fn under_none_nothing_is_kept_and_everybody_is_told() {
    let home = Home::new();
    home.configure("[conversation]\nstrategy = \"\"\n");
    let run = run(&home, &["add", "s", "--user", "x"]);
    assert!(run.code == 0 && run.stderr.contains("nothing is kept"), "{}", run.stderr);
    assert_eq!(json_of(&home, &["add", "s", "--user", "x"])["id"], Value::Null);
    assert_eq!(json_of(&home, &["context", "s"])["strategy"], "none");
    assert_eq!(ok(&home, &["snapshot", "s"]), "{\"strategy\":\"none\"}");
    assert!(!home.store().exists());

    // What was kept before stays, and can be removed.
    home.configure("");
    add(&home, "s", "x", "y");
    home.configure("[conversation]\nstrategy = \"none\"\n");
    assert_eq!(users(&json_of(&home, &["context", "s"])), [""; 0]);
    ok(&home, &["add", "s", "--user", "z"]);
    home.configure("");
    assert_eq!(users(&json_of(&home, &["context", "s"])), ["x"]);
    home.configure("[conversation]\nstrategy = \"none\"\n");
    ok(&home, &["forget", "s", "--yes"]);
    home.configure("");
    assert_eq!(json_of(&home, &["list"])["total"], 0);
}

#[test]
fn rolling_summary_without_somebody_to_sum_up_refuses_to_start() {
    let home = Home::new();
    home.configure("[conversation]\nstrategy = \"rolling_summary\"\n[conversation.summarizer]\nmodel = \"m\"\n");
    for arguments in [&["add", "s", "--user", "x"][..], &["context", "s"]] {
        assert!(fails(&home, 78, arguments).contains("conversation.summarizer.endpoint"));
    }
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["mcp"]] {
        let run = home.run(KEY, arguments);
        assert!(run.code == 78 && run.stderr.contains("conversation.summarizer.endpoint"), "{}", run.stderr);
    }
    let check = home.run(KEY, &["check"]);
    assert!(
        check.code == 78 && check.stdout.contains("error: conversation.strategy is rolling_summary"),
        "{}",
        check.stdout
    );

    home.configure("[conversation]\nstrategy = \"summary\"\n");
    assert!(fails(&home, 78, &["list"]).contains("there are none, rolling_summary, truncation"));
}

#[test]
fn check_says_what_would_not_work() {
    let home = Home::new();
    let check = |settings: &str, environment: &[(&str, &str)]| {
        home.configure(settings);
        let mut command = home.command(KEY, &["check"]);
        command.envs(environment.iter().copied());
        let run = Run::of(command.output().unwrap());
        (run.code, run.stdout)
    };
    let (code, text) = check("", &[]);
    assert!(code == 0 && text.contains("truncation, 8000 tokens"), "{text}");
    let rolling = |more: &str| {
        format!(
            "[conversation]\nstrategy = \"rolling_summary\"\n[conversation.summarizer]\nendpoint = \"https://api.example.com/v1\"\nmodel = \"small\"\n{more}"
        )
    };
    let (code, text) = check(&rolling(""), &[]);
    assert!(code == 0 && text.contains("rolling_summary, 8000 tokens, summed up by small"), "{text}");
    let (code, text) = check(&rolling("credential = \"llm\"\n"), &[]);
    assert!(code == 78 && text.contains("there is no credential \"llm\""), "{text}");
    let (code, text) = check(&rolling("credential = \"llm\"\n[credentials]\nllm = \"env:LLM\"\n"), &[("LLM", "x")]);
    assert!(code == 0 && !text.contains("warning"), "{text}");

    let vault = [("HELMDECK_VAULT_KEY", OTHER_KEY)];
    let (code, text) = check(&rolling("credential = \"llm\"\n"), &vault);
    assert!(code == 78 && text.contains("there is no credential \"llm\""), "{text}");
    let mut command =
        home.command(KEY, &["vault", "set", "llm", "--host", "api.example.com", "--allow", "local/local"]);
    let mut child = command.envs(vault).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"sk-canary").unwrap();
    assert!(child.wait().unwrap().success());
    let (code, text) = check(&rolling("credential = \"llm\"\n"), &vault);
    assert!(code == 0 && text.contains("vault grant llm --pack conversation.summarize"), "{text}");
    let mut command = home.command(KEY, &["vault", "grant", "llm", "--pack", "conversation.summarize"]);
    assert!(command.envs(vault).status().unwrap().success());
    let (code, text) = check(&rolling("credential = \"llm\"\n"), &vault);
    assert!(code == 0 && !text.contains("warning"), "{text}");

    // Without a key there is nothing to say, unless somebody set something.
    for (settings, warned) in [("", false), ("[conversation]\nbudget_tokens = 5\n", true)] {
        home.configure(settings);
        let mut command = home.command(KEY, &["check"]);
        let run = Run::of(command.env_remove("HELMDECK_MEMORY_KEY").output().unwrap());
        assert_eq!((run.code, run.stdout.contains("warning: conversation settings")), (0, warned), "{}", run.stdout);
    }
    let shown = home.run(KEY, &["config", "show", "--origin"]).stdout;
    assert!(
        shown.lines().any(|line| line.starts_with("conversation.budget_tokens") && line.contains("helmdeck.toml:2"))
    );
    assert!(shown.lines().any(|line| line.starts_with("conversation.summarizer.model") && line.ends_with("# default")));
}

/// Configures a home for summaries of a model.
fn summed_up_by(home: &Home, model: &ChatServer) {
    home.configure(&format!(
        "[conversation]\nstrategy = \"rolling_summary\"\nrecent_turns = 1\n[conversation.summarizer]\nendpoint = \"{}\"\n\
         model = \"small\"\ncredential = \"llm\"\nretry_wait = \"10ms\"\n[credentials]\nllm = \"env:LLM\"\n",
        model.url()
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_fold_nothing_behind_the_back_and_fold_does_when_it_is_told() {
    let (home, model) = (Home::new(), ChatServer::start(|_, _| ChatReply::text(SUMMARY)).await);
    summed_up_by(&home, &model);
    let conversation = |arguments: &[&str]| {
        let mut command = home.command(KEY, &[&["conversation"], arguments].concat());
        Run::of(command.env("LLM", "sk-canary").output().unwrap())
    };
    for n in 1..=4 {
        let run = conversation(&["add", "s", "--user", &format!("question {n}"), "--assistant", "answer"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert_eq!(run.stderr.contains("helmdeck conversation fold"), n > 1, "{n}: {}", run.stderr);
    }
    conversation(&["context", "s"]);
    assert!(model.requests().is_empty(), "nothing was sent");
    assert_eq!(json_of(&home, &["trace", "s"])["backlog_turns"], 3);

    let run = conversation(&["fold", "s", "-vv"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(!run.stderr.contains("canary") && !run.stderr.contains("question"), "{}", run.stderr);
    let requests = model.requests();
    assert!(!requests.is_empty());
    assert_eq!(requests[0].header("authorization"), Some("Bearer sk-canary"));
    let context = json_of(&home, &["context", "s"]);
    assert_eq!((context["summary"].as_str(), users(&context)), (Some(SUMMARY), vec!["question 4"]));
    assert_eq!(context["opening"], "question 1");
    assert!(ok(&home, &["context", "s"]).contains(&format!("summary:\n  {SUMMARY}")));
    assert_eq!(json_of(&home, &["fold", "s"])["backlog_turns"], 0, "nothing is left to do");
    assert_eq!(model.requests().len(), requests.len());

    let snapshot = ok(&home, &["snapshot", "s"]);
    assert!(snapshot.contains(SUMMARY) && snapshot.contains("\"opening\":\"question 1\""), "{snapshot}");
    assert!(fails(&home, 2, &["flush", "s"]).contains("and the summary"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_that_fails_is_told_and_loses_nothing() {
    let (home, model) = (Home::new(), ChatServer::start(|_, _| ChatReply::error(500, "server_error")).await);
    summed_up_by(&home, &model);
    for n in 1..=3 {
        add(&home, "s", &format!("question {n}"), "answer");
    }
    // Without the variable there is no key, and nobody is asked without one.
    let run = run(&home, &["fold", "s", "--within", "2s"]);
    assert!(run.code == 1 && run.stderr.contains("credential"), "{}", run.stderr);
    assert!(model.requests().is_empty());

    let mut command = home.command(KEY, &["conversation", "fold", "s", "--within", "2s", "--json"]);
    let run = Run::of(command.env("LLM", "k").output().unwrap());
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    let told: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&told["backlog_turns"], &told["last_failure"]), (&json!(2), &json!("unavailable")));
    assert_ne!(told["health"], "healthy");
    let health = ok(&home, &["health", "s"]);
    assert!(health.contains("failures in a row") && health.contains("unavailable"), "{health}");
    assert_eq!(users(&json_of(&home, &["context", "s"])), ["question 1", "question 2", "question 3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_folds_what_a_command_left_and_shows_what_a_command_adds() {
    let (home, model) = (Home::new(), ChatServer::start(|_, _| ChatReply::text(SUMMARY)).await);
    summed_up_by(&home, &model);
    for n in 1..=3 {
        add(&home, "s", &format!("question {n}"), "answer");
    }
    let server = Server::start_with(&home, KEY, &[("LLM", "k")]);
    wait_for("the server to fold", || json_of(&home, &["context", "s"])["summary"] == SUMMARY);
    let context = || server.ask("GET /api/v1/conversations/s/context", "").json();
    wait_for("the server to show the summary", || context()["summary"] == SUMMARY);
    add(&home, "s", "question 4", "answer");
    wait_for("the server to show the turn", || context().to_string().contains("question 4"));
    ok(&home, &["forget", "s", "--yes"]);
    wait_for("the server to forget", || context()["recent_turns"] == json!([]) && context().get("summary").is_none());
}

#[test]
fn two_processes_add_to_one_dialogue_and_every_turn_is_there_once() {
    let home = Home::new();
    let file = |who: &str| {
        let path = home.packs().join(format!("{who}.jsonl"));
        let lines: String = (0..100).map(|n| format!("{{\"user_message\": \"{who}-{n}\"}}\n")).collect();
        std::fs::write(&path, lines).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let children = ["left", "right"].map(|who| {
        home.command(KEY, &["conversation", "add", "s", "--file", &file(who)]).stdout(Stdio::piped()).spawn().unwrap()
    });
    for child in children {
        let run = Run::of(child.wait_with_output().unwrap());
        assert!(run.code == 0 && run.stdout.contains("added 100 turns"), "{}{}", run.stdout, run.stderr);
    }
    let context = json_of(&home, &["context", "s"]);
    let turns = users(&context);
    assert_eq!(turns.len(), 200);
    for who in ["left", "right"] {
        let own: Vec<String> =
            turns.iter().filter(|turn| turn.starts_with(who)).map(|turn| (*turn).to_owned()).collect();
        assert_eq!(own, (0..100).map(|n| format!("{who}-{n}")).collect::<Vec<_>>(), "each in its order");
    }
    let keys = json_of(&home, &["list", "s", "--limit", "1000"]);
    let keys: std::collections::BTreeSet<&str> =
        keys["items"].as_array().unwrap().iter().map(|item| item["key"].as_str().unwrap()).collect();
    assert_eq!(keys.len(), 200);
}

#[test]
fn forgetting_a_person_takes_all_dialogues_and_no_file_keeps_a_word() {
    let home = Home::new();
    for session in ["s", "t"] {
        for n in 0..20 {
            json_of(&home, &["add", session, "--user", &format!("canary text {n}"), "--subject", "SUBJECT-alice"]);
        }
    }
    add(&home, "s", "mine", "");
    let in_files = |text: &str| {
        let files = std::fs::read_dir(home.data()).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.is_file()).any(|path| holds(&path, text))
    };
    assert!(in_files("SUBJECT-alice") && !in_files("canary text"), "texts are sealed, names are not");
    let listed = home.run(KEY, &["memory", "list", "--kind", "conversation", "--namespace", "local/SUBJECT-alice/t"]);
    assert!(listed.stdout.contains("turn/"), "{}", listed.stdout);

    let run = home.run(KEY, &["memory", "forget", "--subject", "SUBJECT-alice", "--yes", "--json"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let receipt: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(receipt["verified"], true, "{receipt}");
    assert!(receipt["removed"].to_string().contains("conversation"), "{receipt}");
    assert!(!in_files("SUBJECT-alice"));
    let dialogues = json_of(&home, &["list"]);
    assert_eq!((&dialogues["total"], &dialogues["sessions"][0]["user"]), (&json!(1), &json!("local")));
    assert_eq!(users(&json_of(&home, &["context", "s"])), ["mine"]);
    for session in ["s", "t"] {
        assert_eq!(users(&json_of(&home, &["context", session, "--subject", "SUBJECT-alice"])), [""; 0]);
    }

    let run = home.run(KEY, &["memory", "purge", "--namespace", "local/local/s", "--yes"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(json_of(&home, &["list"])["total"], 0);
}

fn holds(path: &Path, text: &str) -> bool {
    std::fs::read(path).unwrap().windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn help_and_completions_know_the_commands() {
    let home = Home::new();
    let help = ok(&home, &["--help"]);
    for verb in [
        "add", "context", "health", "trace", "snapshot", "restore", "list", "show", "delete", "flush", "forget", "fold",
    ] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(&format!("{verb} "))), "{verb}: {help}");
        assert!(ok(&home, &[verb, "--help"]).contains("--subject"), "{verb}");
    }
    assert!(ok(&home, &["add", "--help"]).contains("turns.jsonl"));
    let script = home.run(KEY, &["completions", "bash"]).stdout;
    assert!(script.contains("helmdeck__conversation__snapshot") || script.contains("conversation__subcmd__snapshot"));
    assert_eq!(home.run(KEY, &["conversation"]).code, 2);
    assert_eq!(home.run(KEY, &["conversation", "summarise", "s"]).code, 2);
}
