//! Issues of a team: the program against a stand-in for Linear, its page, its webhook.

use std::process::Command;

use helmdeck_testkit::github_issues::GitHubIssues;
use helmdeck_testkit::linear::{Fault, Linear as Mock};
use helmdeck_trackers::webhook::Webhook;
use serde_json::{Value, json};

use super::fixture::{Ended, Fixture};
use crate::support::mcp::Programs;
use crate::support::program::Server;
use crate::support::wait_for;

const PAGE: &str = include_str!("../../docs/trackers.md");

/// A project with a team in the stand-in.
struct Team {
    fixture: Fixture,
    mock: Mock,
}

impl Team {
    fn new() -> Self {
        Self::with("")
    }

    fn with(settings: &str) -> Self {
        let mock = Mock::start();
        let fixture = Fixture::light(&format!(
            "[linear]\nmode = \"live\"\nteam = \"SX9\"\n{settings}[linear.states]\n\"Open\" = \"Todo\"\n\
             \"In Progress\" = \"In Progress\"\n[tracker]\nuse = \"mock\"\n"
        ));
        fixture.configure(&format!(
            "[forge.trackers]\nmock = {{ endpoint = \"{}\" }}\n",
            mock.url()
        ));
        Self { fixture, mock }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.fixture.command(&self.fixture.root(), arguments);
        command.env("LINEAR_API_KEY", self.mock.key());
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        let output = self.command(arguments).output().unwrap();
        Ended {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    fn forge(&self, arguments: &[&str]) -> Value {
        let ended = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(
            ended.code, 0,
            "{arguments:?}: {} {}",
            ended.stdout, ended.stderr
        );
        serde_json::from_str::<Value>(&ended.stdout).unwrap()["data"].clone()
    }
}

#[test]
fn a_page_of_trackers_is_as_written() {
    let team = Team::new();
    team.mock.with(|store| store.add("From a person"));
    let blocks = PAGE
        .split("\n```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.strip_prefix("sh\n"));
    let mut ran = 0;
    for line in blocks.flat_map(str::lines) {
        let mut shell = team
            .fixture
            .prepare("sh", &team.fixture.root(), &["-e", "-c", line]);
        let run = shell
            .env("LINEAR_API_KEY", team.mock.key())
            .output()
            .unwrap();
        assert!(
            run.status.success(),
            "{line}: {}",
            String::from_utf8_lossy(&run.stderr)
        );
        ran += 1;
    }
    assert!(ran >= 7, "{ran}");
    assert_eq!(team.mock.issue("SX9-2").title, "Reject empty names");
    assert!(
        team.mock
            .issue("SX9-2")
            .description
            .contains("- [ ] An empty name is an error")
    );
    for block in PAGE
        .split("\n```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.strip_prefix("toml\n"))
    {
        // That of the user, which has tests of its own.
        if block.starts_with("[forge.") {
            continue;
        }
        let config = helmdeck_forge::config::Config::parse(block).unwrap();
        assert!(
            config.linear.mode == helmdeck_forge::config::LinearMode::Live,
            "{block}"
        );
        assert!(
            helmdeck_forge::config::Config::unknown(block).is_empty(),
            "{block}"
        );
    }
    assert_eq!(team.mock.violations(), Vec::<String>::new());
}

#[test]
fn every_command_of_the_page_of_trackers_exists() {
    let fixture = Fixture::without_memory();
    for name in ["status", "sync", "resolve"] {
        assert!(PAGE.contains(&format!("tracker {name}")), "{name}");
        assert_eq!(fixture.run(&["tracker", name, "--help"]).code, 0, "{name}");
    }
}

#[test]
fn conflicts_turn_health_red_until_they_are_settled() {
    let team = Team::new();
    team.mock.with(|store| store.add("First"));
    team.forge(&["tracker", "sync", "--pull"]);
    team.forge(&["issue", "set", "SX9-1", "--title", "Ours"]);
    team.mock
        .with(|store| store.edit("SX9-1", |issue| issue.title = "Theirs".into()));
    let ended = team.run(&["tracker", "sync"]);
    assert_eq!(ended.code, 1, "{}", ended.stdout);
    let health = team.forge(&["health"]);
    assert_eq!(health["linear"]["colour"], "red", "{health}");
    let next = health["linear"]["reasons"][0]["next"]
        .as_str()
        .unwrap()
        .to_owned();
    let words: Vec<&str> = next.split_whitespace().skip(2).collect();
    let shown = team.run(&words);
    assert!(
        shown
            .stdout
            .contains("conflict: SX9-1 title: \"Ours\" here, \"Theirs\" in the tracker"),
        "{}",
        shown.stdout
    );
    team.forge(&["tracker", "resolve", "SX9-1", "--field", "title", "--ours"]);
    team.forge(&["tracker", "sync", "--push"]);
    assert_eq!(team.mock.issue("SX9-1").title, "Ours");
    assert_ne!(team.forge(&["health"])["linear"]["colour"], "red");
}

#[test]
fn failed_changes_turn_health_red_until_they_are_delivered() {
    let team = Team::new();
    team.mock.with(|store| store.add("First"));
    team.forge(&["tracker", "sync", "--pull"]);
    team.forge(&["issue", "set", "SX9-1", "--state", "Waiting"]);
    assert_eq!(team.run(&["tracker", "sync", "--push"]).code, 1);
    assert_eq!(team.forge(&["health"])["linear"]["colour"], "red");
    let status = team.run(&["status"]).stdout;
    assert!(
        status.contains("tracker: 1 change not delivered; see `helmdeck forge tracker status`"),
        "{status}"
    );
    assert_eq!(
        team.forge(&["tracker", "status"])["waiting"][0]["issue"],
        "SX9-1"
    );
    assert_eq!(team.run(&["tracker", "resolve", "SX9-1", "--ours"]).code, 2);
    team.forge(&["tracker", "resolve", "SX9-1", "--theirs"]);
    assert_ne!(team.forge(&["health"])["linear"]["colour"], "red");
    team.mock.fail("Issues", 0, Fault::Code("FORBIDDEN".into()));
    assert_eq!(team.run(&["tracker", "sync", "--pull"]).code, 9);
    assert_eq!(team.forge(&["health"])["linear"]["colour"], "red");
    assert!(team.forge(&["status"])["tracker"]["pull_failed"].is_string());
    team.forge(&["tracker", "sync", "--pull"]);
    assert!(team.forge(&["status"])["tracker"].is_null());
    assert_ne!(team.forge(&["health"])["linear"]["colour"], "red");
}

#[test]
fn nothing_is_sent_offline_untrusted_or_without_a_key() {
    let team = Team::new();
    let without = team.fixture.run(&["tracker", "sync", "--pull"]);
    assert_eq!(without.code, 9, "{}", without.stderr);
    assert!(
        without.stderr.contains("LINEAR_API_KEY"),
        "{}",
        without.stderr
    );
    team.forge(&["trust", "--revoke"]);
    let untrusted = team.run(&["tracker", "sync", "--pull"]);
    assert!(
        untrusted.code == 9 && untrusted.stderr.contains("helmdeck forge trust"),
        "{}",
        untrusted.stderr
    );
    let shown = team.run(&["trust", "--show"]);
    for setting in [
        "linear.mode = \"live\"",
        "linear.team = \"SX9\"",
        "tracker.use = \"mock\"",
    ] {
        assert!(shown.stdout.contains(setting), "{}", shown.stdout);
    }
    team.fixture.write(".forge/config.toml", "");
    let offline = team.run(&["tracker", "sync", "--push"]);
    assert!(
        offline.code == 9 && offline.stderr.contains("mode = \"live\""),
        "{}",
        offline.stderr
    );
    assert!(team.mock.asked().is_empty());
}

#[test]
fn a_key_is_in_no_file_and_no_output() {
    let team = Team::new();
    team.forge(&["issue", "add", "One"]);
    let run = team.run(&["tracker", "sync", "-vv"]);
    let key = team.mock.key();
    assert!(!run.stdout.contains(key) && !run.stderr.contains(key));
    let found = team
        .fixture
        .prepare("grep", &team.fixture.root(), &["-rlF", key, "."])
        .output()
        .unwrap();
    assert!(
        found.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&found.stdout)
    );
}

#[test]
fn sessions_synchronise_if_the_settings_say_so() {
    let team = Team::with("sync = \"start, end\"\nnotes = true\n");
    team.mock.with(|store| store.add("From a person"));
    let started = team.run(&["session", "start", "--no-probe"]);
    assert!(
        started.code == 0 && started.stderr.contains("issues: 1 taken over"),
        "{}",
        started.stderr
    );
    team.forge(&["focus", "set", "Work on it", "--issue", "SX9-1"]);
    team.forge(&["issue", "set", "SX9-1", "--priority", "1"]);
    let ended = team.run(&["session", "end", "--next", "Go on"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("issues: 0 taken over, 2 delivered"),
        "{}",
        ended.stderr
    );
    let comments = team.mock.with(|store| store.comments.clone());
    assert!(
        comments.len() == 1
            && comments[0]
                .body
                .starts_with("A session ended.\nNext: Go on"),
        "{comments:?}"
    );
    assert_eq!(team.mock.issue("SX9-1").priority, 1);
    for _ in 0..9 {
        team.mock.fail("Team", 0, Fault::Code("FORBIDDEN".into()));
    }
    let again = team.run(&["session", "start", "--no-probe"]);
    assert!(
        again.code == 0 && again.stderr.contains("issues: not synchronised"),
        "{}",
        again.stderr
    );
}

#[test]
fn a_team_on_github_has_the_same_commands() {
    let mock = GitHubIssues::start();
    mock.with(|store| {
        store.add("From a person");
        store.say(1, "grace", "Please look");
    });
    let fixture = Fixture::light(
        "[linear]\nmode = \"live\"\n[tracker]\nkind = \"github\"\nuse = \"mock\"\n[github]\nrepository = \"acme/app\"\n",
    );
    fixture.configure(&format!(
        "[forge.trackers]\nmock = {{ endpoint = \"{}\" }}\n",
        mock.url()
    ));
    let run = |arguments: &[&str]| {
        let mut command = fixture.command(&fixture.root(), arguments);
        let output = command.env("GITHUB_TOKEN", "token-1").output().unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let pulled = run(&["tracker", "sync", "--pull"]);
    assert!(
        pulled.contains("GH-1: new") && pulled.contains("1 comment"),
        "{pulled}"
    );
    assert!(run(&["issue", "show", "GH-1"]).contains("Please look"));
    run(&["issue", "add", "Ours", "--type", "bug"]);
    assert!(run(&["tracker", "sync", "--push"]).contains("LOCAL-1 is GH-2 now"));
    assert!(run(&["tracker", "status"]).starts_with("mode: live, GitHub acme/app\n"));
    run(&["tracker", "sync"]);
    // A commit of a person that closes an issue belongs to it.
    let orphans = || {
        let health: Value = serde_json::from_str(&run(&["health", "--json"])).unwrap();
        let reasons = health["data"]["linear"]["reasons"]
            .as_array()
            .unwrap()
            .clone();
        reasons
            .iter()
            .any(|reason| reason["code"] == "orphan_commits")
    };
    fixture.git(&["switch", "--quiet", "-c", "work"]);
    for (text, expected) in [("Closes #1", false), ("See #1", true)] {
        fixture.write("notes.txt", text);
        fixture.git(&["add", "notes.txt"]);
        fixture.git(&["commit", "--quiet", "-m", "Mend it", "-m", text]);
        assert_eq!(orphans(), expected, "{text}");
    }
    assert_eq!(
        mock.with(|store| store.unknown.clone()),
        Vec::<String>::new()
    );
}

/// The payload of a webhook.
fn payload(id: &str, now: i64) -> String {
    json!({
        "action": "update", "type": "Issue", "organizationId": "o", "webhookId": "w", "webhookTimestamp": now,
        "createdAt": "2026-01-01T00:00:00.000Z", "url": "https://linear.app/x",
        "data": {"id": id, "title": "of the payload, which is not taken over"},
    })
    .to_string()
}

fn now() -> i64 {
    i64::try_from(
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_millis(),
    )
    .unwrap()
}

#[test]
fn a_webhook_makes_the_server_read_the_issue() {
    let team = Team::new();
    team.mock.with(|store| store.add("First"));
    team.forge(&["tracker", "sync", "--pull"]);
    team.mock
        .with(|store| store.edit("SX9-1", |issue| issue.title = "Of the tracker".into()));
    let root = team.fixture.root();
    let start = |secret: Option<&str>| {
        let program = env!("CARGO_BIN_EXE_helmdeck");
        let mut command = team
            .fixture
            .prepare(program, &root, crate::support::program::SERVE);
        command
            .env("LINEAR_API_KEY", team.mock.key())
            .env("HELMDECK_FORGE__ROOT", &root);
        if let Some(secret) = secret {
            command.env("LINEAR_WEBHOOK_SECRET", secret);
        }
        Server::launch(command)
    };
    let (webhook, body) = (
        Webhook::new("shared", Vec::new()),
        payload(&team.mock.issue("SX9-1").id, now()),
    );
    let head = |signature: &str| {
        format!("POST /webhooks/linear\nLinear-Signature: {signature}\r\nLinear-Delivery: d-1")
    };
    assert_eq!(
        start(None)
            .ask(&head(&webhook.sign(body.as_bytes())), &body)
            .code,
        404,
        "it is off without a secret"
    );
    let server = start(Some("shared"));
    let wrong = Webhook::new("other", Vec::new()).sign(body.as_bytes());
    assert_eq!(server.ask(&head(&wrong), &body).code, 401);
    assert_eq!(
        server
            .exchange(&head(&webhook.sign(body.as_bytes())), &body)
            .unwrap()
            .code,
        200
    );
    wait_for("the issue to be read", || {
        team.forge(&["issue", "show", "SX9-1"])["issue"]["title"] == "Of the tracker"
    });
    let before = team.mock.asked().len();
    assert_eq!(
        server
            .exchange(&head(&webhook.sign(body.as_bytes())), &body)
            .unwrap()
            .code,
        200,
        "a repeated one is fine"
    );
    assert_eq!(team.mock.asked().len(), before);
}

#[test]
fn linears_library_and_we_accept_each_others_signatures() {
    let programs = Programs::installed();
    let (secret, body) = ("shared secret", payload("i-1", now()));
    let ours = Webhook::new(secret, Vec::new()).sign(body.as_bytes());
    let plan = json!({"secret": secret, "body": body, "signature": ours});
    let answer = programs.linear_webhook(&plan);
    assert_eq!(answer["accepted"], true, "{answer}");
    assert_eq!(
        (&answer["tampered"], &answer["other_secret"]),
        (&json!(false), &json!(false)),
        "{answer}"
    );
    let theirs = answer["signature"].as_str().unwrap();
    let now = helmdeck_core::Timestamp(self::now() * 1_000);
    let webhook = Webhook::new(secret, Vec::new());
    let hint = webhook
        .receive(body.as_bytes(), Some(theirs), Some("d"), now)
        .unwrap();
    assert_eq!(hint.issue.as_deref(), Some("i-1"));
    assert!(
        webhook
            .receive(format!("{body} ").as_bytes(), Some(theirs), Some("e"), now)
            .is_err()
    );
}
