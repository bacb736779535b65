//! Other people's MCP clients in front of the real program: the official ones in Python and
//! TypeScript, the inspector, and a checker of servers; over HTTP and over stdio. What they see of
//! packs is what a person at the shell sees.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::mcp::{EVERYTHING, INSPECTOR, Programs};
use crate::support::program::{Home, Server};
use crate::support::{KEY, wait_for};

/// Says who it is, and goes on for ten minutes.
const WAIT: &str = "#!/bin/sh\necho $$ >pid.new\nmv pid.new pid\nsleep 600\nprintf '{}'\n";
const FAIL: &str = "#!/bin/sh\necho 'it broke' >&2\nexit 3\n";

/// How a client reaches the server.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Transport {
    Http,
    Stdio,
}

/// Whose client it is, and which protocol it opens with.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Client {
    /// The newest revision that both speak.
    Python,
    /// With the handshake of earlier revisions.
    PythonWithHandshake,
    TypeScript,
}

impl Client {
    fn protocol(self) -> &'static str {
        if self == Self::Python {
            "2026-07-28"
        } else {
            "2025-11-25"
        }
    }

    fn carry_out(self, mut plan: Value) -> Value {
        let programs = Programs::installed();
        match self {
            Self::Python => programs.python(&plan),
            Self::PythonWithHandshake => {
                plan["mode"] = json!("legacy");
                programs.python(&plan)
            }
            Self::TypeScript => programs.typescript(&plan),
        }
    }
}

/// A home with packs and a small tree of sources, and a server in it if there has to be one.
struct Fixture {
    home: Home,
    server: Option<Server>,
}

impl Fixture {
    fn open(transport: Transport) -> Self {
        let home = Home::new();
        home.install("test.wait", WAIT, "");
        home.install("test.fail", FAIL, "");
        let fixture = Self {
            server: (transport == Transport::Http).then(|| Server::start(&home, KEY)),
            home,
        };
        std::fs::create_dir(fixture.sources()).unwrap();
        std::fs::write(
            fixture.sources().join("lib.rs"),
            "pub struct Anchor;\npub fn weigh(anchor: &Anchor) {}\n",
        )
        .unwrap();
        fixture
    }

    fn sources(&self) -> PathBuf {
        self.home.packs().with_file_name("sources")
    }

    /// Where the server is, in the words of the clients' plans.
    fn target(&self) -> Value {
        match &self.server {
            Some(server) => json!({"url": server.url("/mcp")}),
            None => {
                json!({"command": [env!("CARGO_BIN_EXE_helmdeck"), "mcp"], "env": self.home.environment(KEY)})
            }
        }
    }

    /// What a person at the shell gets.
    fn at_the_shell(&self, arguments: &[&str]) -> Value {
        self.home.call(KEY, arguments).1
    }
}

/// Returns the value as a client in JavaScript has it, to whom 1.0 is 1.
fn as_seen(value: &Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => json!(float as i64),
            _ => value.clone(),
        },
        Value::Array(items) => items.iter().map(as_seen).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), as_seen(value)))
            .collect(),
        other => other.clone(),
    }
}

fn steps(answer: &Value) -> &[Value] {
    answer["steps"].as_array().unwrap()
}

/// Checks everything that a client can do with packs.
fn a_client_sees_what_the_shell_sees(client: Client, transport: Transport) {
    let fixture = Fixture::open(transport);
    let map = format!("path={}", fixture.sources().display());
    let map = as_seen(&fixture.at_the_shell(&["repo.map", &map]));
    let pid = fixture.home.packs().join("pid");
    let answer = client.carry_out(json!({"target": fixture.target(), "steps": [
        {"do": "tools"},
        {"do": "call", "name": "repo__map", "arguments": {"path": fixture.sources()}},
        {"do": "call", "name": "repo__map", "arguments": {"path": fixture.sources()},
         "meta": {"helmdeck/cache": {"directive": "bypass"}}},
        {"do": "call", "name": "test__echo", "arguments": {"repo": "ärger\n"}},
        {"do": "call", "name": "test__echo", "arguments": {"nonsense": 1}},
        {"do": "call", "name": "test__fail", "arguments": {}},
        {"do": "call", "name": "test__nothing", "arguments": {}},
        {"do": "cancel", "name": "test__wait", "arguments": {}, "once": pid},
        {"do": "call", "name": "test__echo", "arguments": {"repo": "ärger\n"}},
        {"do": "resources"},
        {"do": "read", "uri": "helmdeck://packs/test.echo"},
        {"do": "read", "uri": "helmdeck://packs/test.nothing"},
    ]}));
    let [
        tools,
        hit,
        run,
        miss,
        refused,
        failed,
        unknown,
        cancelled,
        again,
        resources,
        pack,
        no_pack,
    ] = steps(&answer)
    else {
        panic!("{answer}")
    };
    assert_eq!(answer["protocol"], client.protocol());
    assert_eq!(answer["server"]["name"], "helmdeck");

    let tools = &tools["result"]["tools"];
    let of = |name: &str| {
        tools
            .as_array()
            .unwrap()
            .iter()
            .find(|tool| tool["name"] == name)
            .unwrap_or_else(|| panic!("{name}: {tools}"))
    };
    assert_eq!(
        (
            &of("repo__map")["annotations"]["readOnlyHint"],
            &of("repo__map")["inputSchema"]["required"]
        ),
        (&json!(true), &json!(["path"]))
    );
    assert_eq!(of("test__echo")["description"], "For tests");

    // What the shell cached is served here, once the tree is confirmed to be the same: it is the
    // same caller, and the same memory.
    let content = |step: &Value| as_seen(&step["result"]["structuredContent"]);
    let cache = |step: &Value| step["result"]["_meta"]["helmdeck/cache"]["status"].clone();
    assert_eq!(
        (content(hit), cache(hit)),
        (map.clone(), json!("revalidated"))
    );
    let text = hit["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(
        as_seen(&serde_json::from_str(text).unwrap()),
        map,
        "the text is the output too"
    );
    assert_eq!(
        (content(run)["map"].clone(), cache(run)),
        (map["map"].clone(), json!("bypass"))
    );
    let progress = run["progress"].as_array().unwrap();
    let done: Vec<f64> = progress
        .iter()
        .map(|update| update["progress"].as_f64().unwrap())
        .collect();
    assert!(
        !done.is_empty()
            && done.windows(2).all(|pair| pair[0] < pair[1])
            && *done.last().unwrap() == 100.0,
        "{progress:?}"
    );

    assert_eq!(
        (content(miss), cache(miss)),
        (
            json!({"runs": 1, "input": {"repo": "ärger\n"}}),
            json!("miss")
        )
    );
    assert_eq!(
        (content(again), cache(again)),
        (content(miss), json!("hit"))
    );

    let problem = |step: &Value| {
        (
            step["result"]["isError"].clone(),
            step["result"]["_meta"]["helmdeck/problem"]["code"].clone(),
        )
    };
    assert_eq!(
        problem(refused),
        (json!(true), json!("invalid_input")),
        "{refused}"
    );
    assert_eq!(
        problem(failed),
        (json!(true), json!("handler_failed")),
        "{failed}"
    );
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");

    assert_eq!(cancelled["cancelled"], true, "{cancelled}");
    let process = Path::new("/proc").join(std::fs::read_to_string(&pid).unwrap().trim());
    wait_for("the cancelled program to end", || !process.exists());

    let resources = resources["result"]["resources"].as_array().unwrap();
    assert!(
        resources
            .iter()
            .any(|resource| resource["uri"] == "helmdeck://packs"),
        "{resources:?}"
    );
    let pack: Value =
        serde_json::from_str(pack["result"]["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(pack["name"], "test.echo");
    let not_found = if client.protocol() < "2026-07-28" {
        -32002
    } else {
        -32602
    };
    assert_eq!(no_pack["error"]["code"], not_found, "{no_pack}");
}

#[test]
fn the_python_client_over_http() {
    a_client_sees_what_the_shell_sees(Client::Python, Transport::Http);
}

#[test]
fn the_python_client_over_stdio() {
    a_client_sees_what_the_shell_sees(Client::Python, Transport::Stdio);
}

#[test]
fn the_python_client_with_the_handshake_over_http() {
    a_client_sees_what_the_shell_sees(Client::PythonWithHandshake, Transport::Http);
}

#[test]
fn the_python_client_with_the_handshake_over_stdio() {
    a_client_sees_what_the_shell_sees(Client::PythonWithHandshake, Transport::Stdio);
}

#[test]
fn the_typescript_client_over_http() {
    a_client_sees_what_the_shell_sees(Client::TypeScript, Transport::Http);
}

#[test]
fn the_typescript_client_over_stdio() {
    a_client_sees_what_the_shell_sees(Client::TypeScript, Transport::Stdio);
}

#[test]
fn a_token_decides_what_a_client_sees() {
    let home = Home::new();
    let server = Server::start_with(&home, KEY, &[("HELMDECK_AUTH__API_TOKENS", "true")]);
    let scope = ["--scope", "packs:run:test.*"];
    let made = home.run(
        KEY,
        &[
            &["token", "create", "--tenant", "acme", "--user", "ann"],
            &scope[..],
        ]
        .concat(),
    );
    assert_eq!(made.code, 0, "{}", made.stderr);
    let url = server.url("/mcp");
    let allowed =
        json!({"url": url, "headers": {"Authorization": format!("Bearer {}", made.stdout.trim())}});
    for (client, runs) in [
        (Client::Python, "miss"),
        (Client::PythonWithHandshake, "hit"),
        (Client::TypeScript, "hit"),
    ] {
        let answer = client.carry_out(json!({"target": allowed, "steps": [
            {"do": "tools"},
            {"do": "call", "name": "test__echo", "arguments": {"repo": "a"}},
            {"do": "call", "name": "repo__map", "arguments": {"path": "/"}},
            {"do": "read", "uri": "helmdeck://packs/repo.map"},
            {"do": "read", "uri": "helmdeck://memory"},
        ]}));
        let [tools, call, hidden, contract, memory] = steps(&answer) else {
            panic!("{answer}")
        };
        let tools = tools["result"]["tools"].as_array().unwrap();
        assert!(
            !tools.is_empty()
                && tools
                    .iter()
                    .all(|tool| tool["name"].as_str().unwrap().starts_with("test__"))
        );
        assert_eq!(
            call["result"]["_meta"]["helmdeck/cache"]["status"], runs,
            "{client:?}: {call}"
        );
        for refused in [hidden, contract, memory] {
            assert_eq!(
                refused["error"]["data"]["code"], "forbidden",
                "{client:?}: {refused}"
            );
        }
    }
    let greeting = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "nobody", "version": "1"},
    }});
    for header in ["", "\r\nAuthorization: Bearer hd_0000000000000000_00"] {
        let head = format!("POST /mcp\nAccept: application/json, text/event-stream{header}");
        assert_eq!(
            server.ask(&head, &greeting.to_string()).code,
            401,
            "{header:?}"
        );
    }
}

#[test]
fn lists_and_readings_stay_in_the_cache_of_a_client_that_asks_again() {
    let fixture = Fixture::open(Transport::Http);
    let twice = |step: Value| [step.clone(), step];
    let reading = json!({"do": "read", "uri": "helmdeck://packs/test.echo"});
    let call = json!({"do": "call", "name": "test__echo", "arguments": {"repo": "a"}});
    let steps_of = [
        twice(json!({"do": "tools"})),
        twice(json!({"do": "resources"})),
        twice(reading),
        twice(call),
    ];
    let plan = json!({"target": fixture.target(), "steps": steps_of.concat()});
    // Each client has a cache of its own: what one was answered saves another no request.
    for client in ["first", "second"] {
        let answer = Client::Python.carry_out(plan.clone());
        for (pair, asked) in steps(&answer).chunks(2).zip([1, 1, 1, 2]) {
            let [first, again] = pair else {
                panic!("{answer}")
            };
            let sent = [first, again].map(|step| step["sent"].as_u64().unwrap());
            assert!(
                sent[0] > 0 && (sent[1] == 0) == (asked == 1),
                "{client}: {sent:?}: {first}"
            );
            if asked == 1 {
                assert_eq!(first["result"], again["result"], "{client}");
            }
        }
    }
}

/// Runs the inspector on one method and reads what it prints.
fn inspect(fixture: &Fixture, arguments: &[&str]) -> Value {
    let mut inspector = Programs::installed().node(INSPECTOR);
    inspector
        .env_clear()
        .envs(fixture.home.environment(KEY))
        .arg("--cli");
    match &fixture.server {
        Some(server) => inspector.args([&server.url("/mcp"), "--transport", "http"]),
        None => inspector.args([env!("CARGO_BIN_EXE_helmdeck"), "mcp"]),
    };
    let output = inspector.args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{inspector:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn inspector_lists_calls_and_accepts_schemas() {
    for transport in [Transport::Http, Transport::Stdio] {
        let fixture = Fixture::open(transport);
        let sources = fixture.sources();
        let path = format!("path={}", sources.display());
        let listed = inspect(&fixture, &["--method", "tools/list", "--strict"]);
        let mut names: Vec<&str> = listed["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        let shown = names.clone();
        names.sort_unstable();
        assert_eq!(
            shown, names,
            "{transport:?}: the order of a list is the same at each time"
        );
        assert!(
            names.contains(&"repo__map") && names.contains(&"test__echo"),
            "{transport:?}: {names:?}"
        );
        let called = inspect(
            &fixture,
            &[
                "--method",
                "tools/call",
                "--tool-name",
                "repo__map",
                "--tool-arg",
                &path,
            ],
        );
        let shown = fixture.at_the_shell(&["repo.map", &path]);
        assert_eq!(
            as_seen(&called["structuredContent"]),
            as_seen(&shown),
            "{transport:?}"
        );
        let guide = inspect(
            &fixture,
            &["--method", "resources/read", "--uri", "helmdeck://guide"],
        );
        assert!(
            guide["contents"][0]["text"]
                .as_str()
                .unwrap()
                .contains("repo__map"),
            "{transport:?}: {guide}"
        );
    }
}

/// What the checker warns of, and why that is right.
const WARNED: &[(&str, &str)] = &[
    (
        "handshake.server_info_missing",
        "the server says who it is when it is asked (server/discover), not in every answer",
    ),
    (
        "schemas.output_schema_missing",
        "the packs of this test say nothing about their output",
    ),
];

/// `jbt-mcpcheck` knows the revision 2026-07-28 and has nothing to do with the official suite.
#[test]
fn an_independent_checker_finds_nothing_wrong() {
    let fixture = Fixture::open(Transport::Http);
    let url = fixture.server.as_ref().unwrap().url("/mcp");
    let mut checker = Programs::installed().python_program("jbt-mcpcheck");
    let output = checker
        .args(["--json", "--legacy-probes", &url])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_str(&said).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let names: Vec<&str> = checks
        .iter()
        .map(|check| check["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "handshake",
            "session",
            "discover",
            "protocol",
            "schemas",
            "errors",
            "cache",
            "origin"
        ]
    );
    for check in checks {
        assert!(
            check["status"] == "pass" || check["status"] == "warn",
            "{check}"
        );
        for warning in check["warnings"].as_array().unwrap() {
            assert!(
                WARNED.iter().any(|(code, _)| warning["code"] == *code),
                "{warning}"
            );
        }
    }
}

/// A control: another project's server passes the requests of the other tests here.
#[test]
fn the_clients_speak_to_somebody_elses_server() {
    let programs = Programs::installed();
    let server = [programs.node_script(EVERYTHING), vec!["stdio".to_owned()]].concat();
    let plan = json!({"target": {"command": server}, "steps": [
        {"do": "tools"},
        {"do": "call", "name": "echo", "arguments": {"message": "hello"}},
        {"do": "call", "name": "trigger-long-running-operation", "arguments": {"duration": 0.1, "steps": 3}},
    ]});
    for answer in [programs.python(&plan), programs.typescript(&plan)] {
        assert_eq!(answer["protocol"], "2025-11-25");
        let tools = answer["steps"][0]["result"]["tools"].as_array().unwrap();
        assert!(tools.iter().any(|tool| tool["name"] == "echo"), "{tools:?}");
        assert_eq!(
            answer["steps"][1]["result"]["content"],
            json!([{"type": "text", "text": "Echo: hello"}])
        );
        // This server does not wait for its last notification to be sent before it answers.
        assert_eq!(
            answer["steps"][2]["progress"][0]["progress"].as_f64(),
            Some(1.0),
            "{answer}"
        );
    }
}
