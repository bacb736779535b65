//! What settings make of `helmdeck conversation`: the strategies, who sums up, and what `check`
//! says.

use std::io::Write;
use std::process::Stdio;

use helmdeck_testkit::{ChatReply, ChatServer};
use serde_json::{Value, json};

use super::cli::{add, fails, json_of, ok, run, users};
use crate::support::program::{Home, Run, Server};
use crate::support::{KEY, OTHER_KEY, wait_for};

/// What a model of tests answers.
const SUMMARY: &str =
    "- The user asked for a trip to Lisbon in May, and the assistant found two flights.";

#[test]
fn strategy_none_keeps_nothing_and_warns() {
    let home = Home::new();
    home.configure("[conversation]\nstrategy = \"\"\n");
    let run = run(&home, &["add", "s", "--user", "x"]);
    assert!(
        run.code == 0 && run.stderr.contains("nothing is kept"),
        "{}",
        run.stderr
    );
    assert_eq!(
        json_of(&home, &["add", "s", "--user", "x"])["id"],
        Value::Null
    );
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
fn rolling_summary_without_summarizer_refuses_to_start() {
    let home = Home::new();
    home.configure("[conversation]\nstrategy = \"rolling_summary\"\n[conversation.summarizer]\nmodel = \"m\"\n");
    for arguments in [&["add", "s", "--user", "x"][..], &["context", "s"]] {
        assert!(fails(&home, 78, arguments).contains("conversation.summarizer.endpoint"));
    }
    assert!(
        !home.store().exists(),
        "a wrong setting leaves nothing behind"
    );
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["mcp"]] {
        let run = home.run(KEY, arguments);
        assert!(
            run.code == 78 && run.stderr.contains("conversation.summarizer.endpoint"),
            "{}",
            run.stderr
        );
    }
    let check = home.run(KEY, &["check"]);
    assert!(
        check.code == 78
            && check
                .stdout
                .contains("error: conversation.strategy is rolling_summary"),
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
    assert!(
        code == 0 && text.contains("truncation, 8000 tokens"),
        "{text}"
    );
    let rolling = |more: &str| {
        format!(
            "[conversation]\nstrategy = \"rolling_summary\"\n[conversation.summarizer]\nendpoint = \"https://api.example.com/v1\"\nmodel = \"small\"\n{more}"
        )
    };
    let (code, text) = check(&rolling(""), &[]);
    assert!(
        code == 0 && text.contains("rolling_summary, 8000 tokens, summed up by small"),
        "{text}"
    );
    let (code, text) = check(&rolling("credential = \"llm\"\n"), &[]);
    assert!(
        code == 78 && text.contains("there is no credential \"llm\""),
        "{text}"
    );
    let (code, text) = check(
        &rolling("credential = \"llm\"\n[credentials]\nllm = \"env:LLM\"\n"),
        &[("LLM", "x")],
    );
    assert!(code == 0 && !text.contains("warning"), "{text}");

    let vault = [("HELMDECK_VAULT_KEY", OTHER_KEY)];
    let (code, text) = check(&rolling("credential = \"llm\"\n"), &vault);
    assert!(
        code == 78 && text.contains("there is no credential \"llm\""),
        "{text}"
    );
    let mut command = home.command(
        KEY,
        &[
            "vault",
            "set",
            "llm",
            "--type",
            "api_key",
            "--host",
            "api.example.com",
            "--allow",
            "local/local",
        ],
    );
    let mut child = command.envs(vault).stdin(Stdio::piped()).spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"sk-canary-0123456789")
        .unwrap();
    assert!(child.wait().unwrap().success());
    let (code, text) = check(&rolling("credential = \"llm\"\n"), &vault);
    assert!(
        code == 0 && text.contains("vault grant llm --pack conversation.summarize"),
        "{text}"
    );
    let mut command = home.command(
        KEY,
        &["vault", "grant", "llm", "--pack", "conversation.summarize"],
    );
    assert!(command.envs(vault).status().unwrap().success());
    let (code, text) = check(&rolling("credential = \"llm\"\n"), &vault);
    assert!(code == 0 && !text.contains("warning"), "{text}");

    // Without a key there is no warning, unless a setting is present.
    for (settings, warned) in [("", false), ("[conversation]\nbudget_tokens = 5\n", true)] {
        home.configure(settings);
        let mut command = home.command(KEY, &["check"]);
        let run = Run::of(command.env_remove("HELMDECK_MEMORY_KEY").output().unwrap());
        assert_eq!(
            (
                run.code,
                run.stdout.contains("warning: conversation settings")
            ),
            (0, warned),
            "{}",
            run.stdout
        );
    }
    let shown = home.run(KEY, &["config", "show", "--origin"]).stdout;
    assert!(
        shown
            .lines()
            .any(|line| line.starts_with("conversation.budget_tokens")
                && line.contains("helmdeck.toml:2"))
    );
    assert!(shown.lines().any(
        |line| line.starts_with("conversation.summarizer.model") && line.ends_with("# default")
    ));
}

/// Configures a home for summaries of a model.
fn summed_up_by(home: &Home, model: &ChatServer) {
    home.configure(&format!(
        "[conversation]\nstrategy = \"rolling_summary\"\nrecent_turns = 1\n[conversation.summarizer]\nendpoint = \"{}\"\n\
         model = \"small\"\ncredential = \"llm\"\nretry_wait = \"10ms\"\n[credentials]\nllm = \"env:LLM\"\n",
        model.url()
    ));
}

fn has_summary(context: &Value) -> bool {
    context["summary"]
        .as_str()
        .is_some_and(|summary| summary.contains(SUMMARY))
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_summarise_only_on_request() {
    let (home, model) = (
        Home::new(),
        ChatServer::start(|_, _| ChatReply::text(SUMMARY)).await,
    );
    summed_up_by(&home, &model);
    let conversation = |arguments: &[&str]| {
        let mut command = home.command(KEY, &[&["conversation"], arguments].concat());
        Run::of(command.env("LLM", "sk-canary").output().unwrap())
    };
    for n in 1..=4 {
        let run = conversation(&[
            "add",
            "s",
            "--user",
            &format!("question {n}"),
            "--assistant",
            "answer",
        ]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert_eq!(
            run.stderr.contains("helmdeck conversation fold"),
            n > 1,
            "{n}: {}",
            run.stderr
        );
    }
    conversation(&["context", "s"]);
    assert!(model.requests().is_empty(), "nothing was sent");
    assert_eq!(json_of(&home, &["trace", "s"])["backlog_turns"], 3);

    let run = conversation(&["fold", "s", "-vv"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(
        !run.stderr.contains("canary") && !run.stderr.contains("question"),
        "{}",
        run.stderr
    );
    let requests = model.requests();
    assert!(!requests.is_empty());
    assert_eq!(
        requests[0].header("authorization"),
        Some("Bearer sk-canary")
    );
    let context = json_of(&home, &["context", "s"]);
    assert_eq!(
        (has_summary(&context), users(&context)),
        (true, vec!["question 4"])
    );
    assert_eq!(context["goal"], "question 1");
    assert!(ok(&home, &["context", "s"]).contains(&format!("summary:\n  {SUMMARY}")));
    assert_eq!(
        json_of(&home, &["fold", "s"])["backlog_turns"],
        0,
        "nothing is left to do"
    );
    assert_eq!(model.requests().len(), requests.len());

    let snapshot = ok(&home, &["snapshot", "s"]);
    assert!(
        snapshot.contains(SUMMARY) && snapshot.contains("\"opening\":\"question 1\""),
        "{snapshot}"
    );
    assert!(fails(&home, 2, &["flush", "s"]).contains("and the summary"));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_summary_is_reported_and_loses_nothing() {
    let (home, model) = (
        Home::new(),
        ChatServer::start(|_, _| ChatReply::error(500, "server_error")).await,
    );
    summed_up_by(&home, &model);
    for n in 1..=3 {
        add(&home, "s", &format!("question {n}"), "answer");
    }
    // Without the variable there is no key, and no request is sent without one.
    let run = run(&home, &["fold", "s", "--within", "2s"]);
    assert!(
        run.code == 1 && run.stderr.contains("credential"),
        "{}",
        run.stderr
    );
    assert!(model.requests().is_empty());

    let mut command = home.command(
        KEY,
        &["conversation", "fold", "s", "--within", "2s", "--json"],
    );
    let run = Run::of(command.env("LLM", "k").output().unwrap());
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    let told: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (&told["backlog_turns"], &told["last_failure"]),
        (&json!(2), &json!("unavailable"))
    );
    assert!(
        told["health"] == "retry" || told["health"] == "degraded",
        "nobody recovers it: {told}"
    );
    assert_eq!(
        json_of(&home, &["health", "s"])["health"],
        told["health"],
        "what is left is what was said"
    );
    let health = ok(&home, &["health", "s"]);
    assert!(
        health.contains("failures in a row") && health.contains("unavailable"),
        "{health}"
    );
    assert_eq!(
        users(&json_of(&home, &["context", "s"])),
        ["question 1", "question 2", "question 3"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn server_summarises_and_shows_turns_of_commands() {
    let (home, model) = (
        Home::new(),
        ChatServer::start(|_, _| ChatReply::text(SUMMARY)).await,
    );
    summed_up_by(&home, &model);
    for n in 1..=3 {
        add(&home, "s", &format!("question {n}"), "answer");
    }
    let server = Server::start_with(&home, KEY, &[("LLM", "k")]);
    wait_for("the server to fold", || {
        has_summary(&json_of(&home, &["context", "s"]))
    });
    let context = || server.ask("GET /api/v1/conversations/s/context", "").json();
    wait_for("the server to show the summary", || has_summary(&context()));
    add(&home, "s", "question 4", "answer");
    wait_for("the server to show the turn", || {
        context().to_string().contains("question 4")
    });
    ok(&home, &["forget", "s", "--yes"]);
    wait_for("the server to forget", || {
        context()["recent_turns"] == json!([]) && context().get("summary").is_none()
    });
}
