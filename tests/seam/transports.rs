//! Tests of the seam over REST and MCP, by the real server.
//!
//! They show which caller sees what, and that every transport answers the same.

use std::process::Command;

use serde_json::{Value, json};

use super::Fixture;
use crate::support::KEY;
use crate::support::program::{Home, Run, Server};
use crate::support::raw_mcp::{McpClient, bearer};

const PLANS: &str = "helmdeck://seam/plans";
const RECALL: &str = "helmdeck://seam/recall";
const RECALL_OF_PLAN: &str = "helmdeck://seam/recall/plan";
const TOKENS: (&str, &str) = ("HELMDECK_AUTH__API_TOKENS", "true");
const ANYBODY: (&str, &str) = ("HELMDECK_AUTH__ANONYMOUS_SCOPE", "packs:run");

/// A project with memory of both kinds, and a home.
struct ServerFixture {
    project: Fixture,
    home: Home,
}

impl ServerFixture {
    /// Both are set for a server.
    fn new() -> Self {
        let fixture = Self::without_vault();
        let (root, vault) = (fixture.project.path("repo"), fixture.project.path("vault"));
        fixture.home.configure(&format!(
            "[forge]\nroot = {root:?}\n[seam]\nvault = {vault:?}\n"
        ));
        fixture
    }

    /// Only the project is.
    fn without_vault() -> Self {
        let (project, home) = (Fixture::new(), Home::new());
        project.write("repo/.git/HEAD", "ref: refs/heads/main\n");
        project.write("repo/.git/objects/keep", "");
        project.write("repo/.git/refs/keep", "");
        project.write("repo/.forge/memory/long-term/architecture.md", "BUILT so\n");
        home.configure(&format!("[forge]\nroot = {:?}\n", project.path("repo")));
        Self { project, home }
    }

    /// Makes a token.
    fn token(&self, scope: &str) -> String {
        let words = [
            "token",
            "create",
            "--tenant",
            "acme",
            "--user",
            "u",
            "--scope",
            scope,
            "--expires",
            "1d",
        ];
        let made = Run::of(
            self.home
                .command(KEY, &words)
                .envs([TOKENS])
                .output()
                .unwrap(),
        );
        assert_eq!(made.code, 0, "{}", made.stderr);
        made.stdout.trim_end().to_owned()
    }

    /// Prepares a command at a shell in the project.
    fn shell(&self, words: &[&str]) -> Command {
        let mut command = self.home.command(KEY, words);
        command.current_dir(self.project.path("repo"));
        command
    }

    #[track_caller]
    fn at_a_shell(&self, words: &[&str]) -> Run {
        Run::of(self.shell(words).output().unwrap())
    }
}

/// Returns the addresses of the seam that a client is shown, and those with a part to fill in.
fn shown(client: &McpClient<'_>) -> (Vec<String>, Vec<String>) {
    let of = |list: &Value, name: &str| {
        let all = list
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one[name].as_str().unwrap().to_owned());
        all.filter(|address| address.starts_with("helmdeck://seam"))
            .collect::<Vec<String>>()
    };
    let list = client.ask("resources/list", &json!({}));
    let templates = client.ask("resources/templates/list", &json!({}));
    (
        of(&list["resources"], "uri"),
        of(&templates["resourceTemplates"], "uriTemplate"),
    )
}

/// Returns the media type and the text that an address leads to.
#[track_caller]
fn text(client: &McpClient<'_>, address: &str) -> (String, String) {
    let read = client.ask("resources/read", &json!({"uri": address}));
    let contents = &read["contents"][0];
    let of = |name: &str| {
        contents[name]
            .as_str()
            .unwrap_or_else(|| panic!("{read}"))
            .to_owned()
    };
    (of("mimeType"), of("text"))
}

/// Returns why an address is not read: a code of ours.
#[track_caller]
fn refused(client: &McpClient<'_>, address: &str) -> String {
    let ask =
        json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": address}});
    let answer = client.post(&ask).1.unwrap();
    answer["error"]["data"]["code"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
        .to_owned()
}

#[test]
fn callers_see_and_read_what_they_may_ask() {
    let fixture = ServerFixture::new();
    let full = fixture.token("packs:run");
    let some = fixture.token("packs:run:seam.plans");
    let lesser = fixture.token("packs:run:test.*");
    let server = Server::start_with(&fixture.home, KEY, &[TOKENS, ANYBODY]);
    let template = vec!["helmdeck://seam/recall/{phase}".to_owned()];

    let client = McpClient::open(&server, &full);
    assert_eq!(
        shown(&client),
        (vec![PLANS.to_owned(), RECALL.to_owned()], template.clone())
    );
    let (kind, plans) = text(&client, PLANS);
    let plans: Value = serde_json::from_str(&plans).unwrap();
    assert_eq!(
        (kind.as_str(), &plans["plans"][0]["status"]),
        ("application/json", &json!("in work")),
        "{plans}"
    );
    let (kind, recalled) = text(&client, RECALL);
    assert!(
        kind == "text/markdown"
            && recalled.contains("phase: work")
            && recalled.contains("DECIDED that"),
        "{recalled}"
    );
    let (_, recalled) = text(&client, RECALL_OF_PLAN);
    assert!(
        recalled.contains("phase: plan") && recalled.contains("BUILT so"),
        "{recalled}"
    );
    assert_eq!(text(&client, "helmdeck://seam/recall/%70lan").1, recalled);

    let client = McpClient::open(&server, &some);
    assert_eq!(shown(&client), (vec![PLANS.to_owned()], template.clone()));
    assert_eq!(text(&client, PLANS).1, plans.to_string());
    for address in [RECALL, RECALL_OF_PLAN] {
        assert_eq!(refused(&client, address), "forbidden");
    }

    let client = McpClient::open(&server, &lesser);
    assert_eq!(shown(&client), (Vec::new(), template.clone()));
    for address in [PLANS, RECALL, RECALL_OF_PLAN] {
        assert_eq!(refused(&client, address), "forbidden");
    }

    // A caller that runs other packs without a token is anonymous here.
    let client = McpClient::anonymous(&server);
    assert_eq!(shown(&client), (Vec::new(), template));
    for address in [PLANS, RECALL, RECALL_OF_PLAN] {
        assert_eq!(refused(&client, address), "unauthenticated");
    }
    let rest = |token: &str, pack: &str| {
        let head = if token.is_empty() {
            String::new()
        } else {
            format!("\n{}", bearer(token))
        };
        server
            .ask(&format!("POST /api/v1/packs/{pack}{head}"), "{}")
            .code
    };
    for pack in ["seam.recall_here", "seam.state_path", "seam.plans"] {
        assert_eq!(
            (rest(&full, pack), rest(&lesser, pack), rest("", pack)),
            (200, 403, 401),
            "{pack}"
        );
    }
}

#[test]
fn every_door_answers_the_same() {
    let fixture = ServerFixture::new();
    fixture.project.write("repo/.harness/active-plan", "foo");
    fixture.project.write(
        "vault/projects/seam-fixture/_harness/PLAN-foo.md",
        "Status: open\n",
    );
    fixture.project.write(
        "vault/projects/seam-fixture/_harness/PLAN.md",
        "Status: done\n",
    );
    let token = fixture.token("packs:run");
    let server = Server::start_with(&fixture.home, KEY, &[TOKENS]);
    let client = McpClient::open(&server, &token);
    let rest = |pack: &str, input: &Value| {
        server.ask(
            &format!("POST /api/v1/packs/{pack}\n{}", bearer(&token)),
            &input.to_string(),
        )
    };
    let candidate = r#"{"kind":"fix","slug":"s","body":"DECIDED that"}"#;
    for (pack, input, words) in [
        (
            "seam.recall_here",
            json!({}),
            &["--json", "recall-here"][..],
        ),
        (
            "seam.recall_here",
            json!({"phase": "plan", "limit": 500}),
            &["--json", "recall-here", "--phase", "plan", "--limit", "500"],
        ),
        (
            "seam.recall_here",
            json!({"limit": 40}),
            &["--json", "recall-here", "--limit", "40"],
        ),
        (
            "seam.state_path",
            json!({}),
            &["--json", "state-path", "plan"],
        ),
        (
            "seam.state_path",
            json!({"plan": "PLAN"}),
            &["--json", "state-path", "plan", "--plan", "PLAN"],
        ),
        ("seam.plans", json!({}), &["--json", "plans"]),
    ] {
        let shell = fixture.at_a_shell(&[&["seam"], words].concat());
        assert_eq!(shell.code, 0, "{words:?}: {}", shell.stderr);
        let shell: Value = serde_json::from_str(&shell.stdout).unwrap();
        let answer = rest(pack, &input);
        assert_eq!(
            (answer.code, &answer.json()["output"]),
            (200, &shell),
            "{words:?}"
        );
        assert_eq!(
            client.call(pack, &input, "default")["structuredContent"],
            shell,
            "{words:?}"
        );
    }
    let (pack, input) = (
        "seam.offer_save_here",
        json!({"phase": "review", "candidate": serde_json::from_str::<Value>(candidate).unwrap()}),
    );
    fixture.project.write("candidate.json", candidate);
    let file = fixture.project.path("candidate.json").display().to_string();
    let shell = fixture.at_a_shell(&[
        "seam",
        "offer-save-here",
        "--phase",
        "review",
        "--candidate-json",
        &file,
    ]);
    let shell: Value = serde_json::from_str(&shell.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", shell.stderr));
    assert_eq!(shell[0]["phase"], "review", "{shell}");
    assert_eq!(rest(pack, &input).json()["output"]["candidates"], shell);
    assert_eq!(
        client.call(pack, &input, "default")["structuredContent"]["candidates"],
        shell
    );

    // What is unsafe or corrupt has one code and one text.
    let same = |input: Value, words: &[&str], code: &str| {
        let shell = fixture.at_a_shell(&[&["seam", "state-path", "plan"], words].concat());
        let line = shell
            .stderr
            .trim_end()
            .strip_prefix(&format!("error[{code}]: "))
            .unwrap_or_else(|| panic!("{}", shell.stderr));
        let answer = rest("seam.state_path", &input);
        assert!(
            answer.code >= 400 && answer.body.contains(&format!("{code}: ")),
            "{}",
            answer.body
        );
        let cause = line.split("; ").next().unwrap().split(": ").nth(1).unwrap();
        assert!(
            answer.json()["detail"].as_str().unwrap().contains(cause),
            "{line}: {}",
            answer.body
        );
        let called = client.call("seam.state_path", &input, "default");
        assert!(
            called["isError"] == json!(true) && called.to_string().contains(&format!("{code}: ")),
            "{called}"
        );
    };
    same(json!({"plan": "../x"}), &["--plan", "../x"], "unsafe-name");
    fixture.project.write("repo/.harness/active-plan", "gone");
    same(json!({}), &[], "corrupt-state");
}

#[test]
fn server_shows_only_its_configured_vault() {
    let fixture = ServerFixture::without_vault();
    let vault = fixture.project.path("vault").display().to_string();
    let settings = fixture
        .home
        .data()
        .ancestors()
        .nth(3)
        .unwrap()
        .join(".claude");
    std::fs::create_dir_all(&settings).unwrap();
    std::fs::write(
        settings.join(".agentm-config.json"),
        json!({"vault_path": vault}).to_string(),
    )
    .unwrap();
    let input = json!({"phase": "plan"});
    let offered = json!({"candidate": {"kind": "fix", "body": "DECIDED that"}});
    for ambient in [
        "HELMDECK_MEMORY",
        "MEMORY_ROOT",
        "MEMORY_VAULT_PATH",
        "UNRELATED",
    ] {
        let server = Server::start_with(&fixture.home, KEY, &[(ambient, &vault)]);
        let recalled = server.call("seam.recall_here", &input).1;
        let text = recalled["text"].as_str().unwrap();
        assert!(
            text.contains("BUILT so") && !text.contains("ALWAYS") && !text.contains("DECIDED"),
            "{ambient}: {text}"
        );
        assert_eq!(recalled["warnings"], json!([]), "{ambient}");
        for (pack, input) in [
            ("seam.offer_save_here", &offered),
            ("seam.state_path", &json!({})),
            ("seam.plans", &json!({})),
        ] {
            let answer = server.call(pack, input).1;
            assert!(!answer.to_string().contains(&vault), "{ambient}: {answer}");
        }
    }
    // At a shell they are the person's own.
    let words = [
        "run",
        "seam.recall_here",
        "--json",
        "--input",
        "{\"phase\":\"plan\"}",
    ];
    let shell = Run::of(
        fixture
            .shell(&words)
            .env("MEMORY_VAULT_PATH", &vault)
            .output()
            .unwrap(),
    );
    assert!(
        shell.stdout.contains("ALWAYS"),
        "{}{}",
        shell.stdout,
        shell.stderr
    );
    // The operator says which one is for callers.
    let server = Server::start_with(
        &fixture.home,
        KEY,
        &[
            ("HELMDECK_SEAM__VAULT", &vault),
            ("MEMORY_VAULT_PATH", "/nowhere"),
        ],
    );
    let text = server.call("seam.recall_here", &input).1.to_string();
    assert!(
        text.contains("ALWAYS") && text.contains("BUILT so"),
        "{text}"
    );
}

#[test]
fn without_project_no_seam_is_offered() {
    let home = Home::new();
    let server = Server::start(&home, KEY);
    for pack in ["seam.recall_here", "seam.plans"] {
        let answer = server.ask(&format!("POST /api/v1/packs/{pack}"), "{}");
        assert_eq!(
            (answer.code, answer.status()),
            (404, "not_found".to_owned()),
            "{}",
            answer.body
        );
    }
    let client = McpClient::anonymous(&server);
    assert_eq!(shown(&client), (Vec::new(), Vec::new()));
    let tools = client.ask("tools/list", &json!({})).to_string();
    assert!(
        tools.contains("\"test__echo\"") && !tools.contains("\"seam__"),
        "{tools}"
    );
    for address in [PLANS, RECALL, RECALL_OF_PLAN] {
        assert_eq!(refused(&client, address), "not_found");
    }
}
