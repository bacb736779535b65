//! The packs `forge.*` as agents reach them: the official clients in front of the real program, on
//! a real project in a real repository.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use helmdeck_forge::ProjectEnvironment;
use helmdeck_forge::init::Init;
use serde_json::{Value, json};

use crate::support::KEY;
use crate::support::mcp::Programs;
use crate::support::program::{Home, Run, SERVE, Server};

fn git(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null");
    let run = Run::of(command.output().unwrap());
    assert_eq!(run.code, 0, "git {arguments:?}: {}", run.stderr);
    run.stdout.trim().to_owned()
}

/// Makes a project with a memory in a repository.
fn project() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    git(folder.path(), &["init", "--quiet", "--initial-branch=main"]);
    for (name, value) in [
        ("user.name", "Ann"),
        ("user.email", "ann@example.com"),
        ("commit.gpgSign", "false"),
    ] {
        git(folder.path(), &["config", name, value]);
    }
    helmdeck_forge::init::init(
        folder.path(),
        ProjectEnvironment::default(),
        &Init::default(),
    )
    .unwrap();
    git(folder.path(), &["add", "-A"]);
    git(folder.path(), &["commit", "--quiet", "-m", "Begin"]);
    folder
}

fn call(verb: &str, input: Value) -> Value {
    json!({"do": "call", "name": format!("forge__{verb}"), "arguments": input})
}

#[test]
fn agent_works_a_session_over_stdio() {
    let (home, project) = (Home::new(), project());
    std::fs::write(project.path().join("answer"), "42\n").unwrap();
    // Before a person agreed to the commands of the project, an agent has no pack that runs them.
    let mut environment = json!(home.environment(KEY));
    environment["HELMDECK_FORGE__ROOT"] = json!(project.path());
    let target = json!({"command": [env!("CARGO_BIN_EXE_helmdeck"), "mcp"], "env": environment});
    let answer =
        Programs::installed().python(&json!({"target": target, "steps": [{"do": "tools"}]}));
    let tools = answer["steps"][0]["result"]["tools"].to_string();
    assert!(
        tools.contains("forge__prime") && !tools.contains("forge__verify"),
        "{tools}"
    );
    let trusted = home.run(
        KEY,
        &[
            "forge",
            "--project",
            project.path().to_str().unwrap(),
            "trust",
            "--yes",
        ],
    );
    assert_eq!(trusted.code, 0, "{}", trusted.stderr);
    let target = json!({"command": [env!("CARGO_BIN_EXE_helmdeck"), "mcp"], "env": environment});
    let steps = json!([
        {"do": "tools"},
        call("start", json!({"what": "Write the answer", "no_branch": true})),
        call("prime", json!({})),
        call("remember", json!({"text": "Answers: Write them down"})),
        call("features_add", json!({"name": "There is an answer", "tests": ["a::answers"]})),
        call("features_list", json!({})),
        call("commit", json!({"what": "Write the answer", "why": "Somebody asked", "paths": ["answer"]})),
        call("health", json!({})),
        call("remember", json!({"kind": "invariant", "text": "t", "check": "true"})),
    ]);
    let answer = Programs::installed().python(&json!({"target": target, "steps": steps}));
    let results: Vec<&Value> = answer["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| &step["result"])
        .collect();
    let tools = results[0]["tools"].as_array().unwrap();
    let hint = |name: &str| {
        let tool = tools
            .iter()
            .find(|tool| tool["name"] == name)
            .unwrap_or_else(|| panic!("no {name}"));
        tool["annotations"]["readOnlyHint"].clone()
    };
    assert_eq!(
        (hint("forge__prime"), hint("forge__commit")),
        (json!(true), json!(false))
    );
    let names: Vec<&str> = tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    let forge: Vec<&str> = names
        .into_iter()
        .filter(|name| name.starts_with("forge__"))
        .collect();
    let listed = ["commit", "done", "prime", "remember", "start", "verify"]
        .map(|verb| format!("forge__{verb}"));
    assert_eq!(forge, listed, "the others can be called, too");
    let output = |step: usize| {
        assert_ne!(
            results[step]["isError"],
            json!(true),
            "step {step}: {}",
            results[step]
        );
        &results[step]["structuredContent"]
    };
    let session = output(1)["session"].as_str().unwrap();
    assert!(
        output(2)["text"].as_str().unwrap().contains(session),
        "{}",
        output(2)
    );
    assert_eq!(output(3)["new"], json!(true));
    let feature = &output(4)["feature"];
    assert_eq!(
        (
            &output(5)["features"][0]["feature"]["id"],
            &output(5)["total"]
        ),
        (&feature["id"], &json!(1))
    );
    assert_eq!(
        output(6)["oid"],
        json!(git(project.path(), &["rev-parse", "HEAD"]))
    );
    let trailers = git(
        project.path(),
        &[
            "log",
            "-1",
            "--format=%(trailers:key=Forge-Session,valueonly)",
        ],
    );
    assert_eq!(trailers, session);
    assert_eq!(output(7)["long_term"]["colour"], "green", "{}", output(7));
    assert_eq!(
        results[8]["isError"],
        json!(true),
        "a command is no input: {}",
        results[8]
    );
}

#[test]
fn shell_uses_the_project_of_working_folder() {
    let (home, project) = (Home::new(), project());
    std::fs::create_dir(project.path().join("below")).unwrap();
    let run = |folder: &Path, pack: &str| {
        let mut command = home.command(KEY, &["run", pack, "--json"]);
        Run::of(command.current_dir(folder).output().unwrap())
    };
    let primed = run(&project.path().join("below"), "forge.prime");
    assert_eq!(primed.code, 0, "{}", primed.stderr);
    let primed: Value = serde_json::from_str(&primed.stdout).unwrap();
    assert!(
        primed["output"]["text"]
            .as_str()
            .unwrap()
            .contains("\nbranch: \"main\"\n"),
        "{primed}"
    );
    let nowhere = tempfile::tempdir().unwrap();
    let none = run(nowhere.path(), "forge.prime");
    assert_eq!(none.code, 3, "{} {}", none.stdout, none.stderr);
    assert!(format!("{}{}", none.stdout, none.stderr).contains("helmdeck forge init"));
}

#[test]
fn server_uses_its_project_and_runs_nothing() {
    let (home, project) = (Home::new(), project());
    std::fs::create_dir(project.path().join("below")).unwrap();
    let server = Server::start(&home, KEY);
    let answer = server.ask("POST /api/v1/packs/forge.prime", "{}");
    assert_eq!(
        (answer.code, answer.status()),
        (404, "not_found".to_owned()),
        "{}",
        answer.body
    );
    assert!(answer.body.contains("[forge] root"), "{}", answer.body);
    drop(server);
    let mut command = home.command(KEY, SERVE);
    command.current_dir(project.path().join("below"));
    let server = Server::launch(command);
    assert_eq!(server.ask("POST /api/v1/packs/forge.prime", "{}").code, 200);
    drop(server);
    home.configure(&format!("[forge]\nroot = {:?}\n", project.path()));
    let server = Server::start(&home, KEY);
    let answer = server.ask("POST /api/v1/packs/forge.prime", "{}");
    assert_eq!(answer.code, 200, "{}", answer.body);
    assert_eq!(
        server.ask("POST /api/v1/packs/forge.commit", "{}").code,
        404
    );
    let named = server.ask(
        "POST /api/v1/packs/forge.features_add",
        r#"{"name":"n","tests":["t"]}"#,
    );
    assert_eq!(
        (named.code, named.status()),
        (403, "forbidden".to_owned()),
        "{}",
        named.body
    );
}

#[test]
fn prompts_are_offered_with_a_project() {
    let (home, project) = (Home::new(), project());
    let messages = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
            "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "prompts/list"}),
        json!({"jsonrpc": "2.0", "id": 3, "method": "prompts/get", "params": {"name": "prime"}}),
        json!({"jsonrpc": "2.0", "id": 4, "method": "prompts/get", "params": {"name": "other"}}),
    ];
    let answers = |folder: &Path| {
        let mut command = home.command(KEY, &["mcp"]);
        let mut program = command
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = program.stdin.take().unwrap();
        let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let mut answers: Vec<Value> = Vec::new();
        for message in &messages {
            writeln!(stdin, "{message}").unwrap();
            if message.get("id").is_some() {
                answers.push(serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap());
            }
        }
        drop(stdin);
        program.wait().unwrap();
        answers
    };
    let with = answers(project.path());
    assert!(
        with[0]["result"]["capabilities"]["prompts"].is_object(),
        "{}",
        with[0]
    );
    // The end of a session runs commands of the project, which nobody has agreed to yet.
    assert_eq!(
        with[1]["result"]["prompts"][0]["name"], "prime",
        "{}",
        with[1]
    );
    let text = with[2]["result"]["messages"][0]["content"]["text"]
        .as_str()
        .unwrap();
    assert!(text.contains("branch: \"main\""), "{text}");
    assert_eq!(with[3]["error"]["code"], -32602, "{}", with[3]);
    let nowhere = tempfile::tempdir().unwrap();
    let without = answers(nowhere.path());
    assert!(
        without[0]["result"]["capabilities"]["prompts"].is_null()
            && without[1]["error"]["code"] == -32601
    );
}
