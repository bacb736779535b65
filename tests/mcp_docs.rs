//! `docs/mcp.md`: what a reader copies from it works.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::KEY;
use crate::support::mcp::Programs;
use crate::support::program::Home;

const PAGE: &str = include_str!("../docs/mcp.md");

/// A code block: its chapter, its language, and its text.
struct Block {
    chapter: String,
    language: String,
    text: String,
}

fn blocks() -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut chapter, mut open) = (String::new(), false);
    for line in PAGE.lines() {
        if let Some(language) = line.strip_prefix("```") {
            open = !open;
            if open {
                let language = language.split(' ').next().unwrap_or_default();
                let (chapter, language) = (chapter.clone(), language.to_owned());
                blocks.push(Block {
                    chapter,
                    language,
                    text: String::new(),
                });
            }
        } else if open {
            let block = blocks.last_mut().unwrap();
            block.text.push_str(line);
            block.text.push('\n');
        } else if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut chapter);
        }
    }
    assert!(!open, "a code block does not end");
    blocks
}

/// The words by which each client's file has its servers: what they stand under, what is a
/// program's kind, and a web server's.
struct Format {
    client: &'static str,
    servers: &'static str,
    url: &'static str,
    kinds: Option<[&'static str; 2]>,
    /// Whether the file can name a web server at all.
    http: bool,
}

const FORMATS: &[Format] = &[
    Format {
        client: "Claude Code",
        servers: "mcpServers",
        url: "url",
        kinds: Some(["stdio", "http"]),
        http: true,
    },
    Format {
        client: "Claude Desktop",
        servers: "mcpServers",
        url: "",
        kinds: None,
        http: false,
    },
    Format {
        client: "Cursor",
        servers: "mcpServers",
        url: "url",
        kinds: None,
        http: true,
    },
    Format {
        client: "VS Code",
        servers: "servers",
        url: "url",
        kinds: Some(["stdio", "http"]),
        http: true,
    },
    Format {
        client: "Codex",
        servers: "mcp_servers",
        url: "url",
        kinds: None,
        http: true,
    },
    Format {
        client: "Gemini CLI",
        servers: "mcpServers",
        url: "httpUrl",
        kinds: None,
        http: true,
    },
];

/// Lets a client start the program as a file says, and returns how many tools it saw.
fn start_as_written(server: &Value) -> usize {
    let home = Home::new();
    let command = server["command"].as_str().unwrap();
    assert_eq!(command.rsplit('/').next(), Some("helmdeck"));
    let mut environment = json!(home.environment(KEY));
    for name in server["env"]
        .as_object()
        .into_iter()
        .flat_map(|env| env.keys())
    {
        assert_eq!(name, "HELMDECK_MEMORY_KEY_FILE");
        let file = home.packs().with_file_name("memory.key");
        std::fs::write(&file, KEY).unwrap();
        let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, owner_only).unwrap();
        environment
            .as_object_mut()
            .unwrap()
            .remove("HELMDECK_MEMORY_KEY");
        environment[name] = json!(file);
    }
    let mut words = vec![json!(env!("CARGO_BIN_EXE_helmdeck"))];
    words.extend(server["args"].as_array().unwrap().iter().cloned());
    let target = json!({"command": words, "env": environment});
    let answer =
        Programs::installed().typescript(&json!({"target": target, "steps": [{"do": "tools"}]}));
    answer["steps"][0]["result"]["tools"]
        .as_array()
        .unwrap()
        .len()
}

#[test]
fn documented_client_files_start_the_program() {
    let blocks = blocks();
    for format in FORMATS {
        let files: Vec<Value> = blocks
            .iter()
            .filter(|block| block.chapter == format.client && block.language != "sh")
            .map(|block| match block.language.as_str() {
                "json" => serde_json::from_str(&block.text).unwrap(),
                "toml" => toml::from_str(&block.text).unwrap(),
                other => panic!("{}: a block in {other:?}", format.client),
            })
            .collect();
        let servers: Vec<&Value> = files
            .iter()
            .map(|file| &file[format.servers]["helmdeck"])
            .collect();
        let (programs, urls): (Vec<&Value>, Vec<&Value>) = servers
            .into_iter()
            .partition(|server| server["command"].is_string());
        assert_eq!(
            (programs.len(), urls.len()),
            (1, usize::from(format.http)),
            "{}",
            format.client
        );
        for (server, at) in programs
            .iter()
            .map(|it| (it, 0))
            .chain(urls.iter().map(|it| (it, 1)))
        {
            let kind = server.get("type").and_then(Value::as_str);
            assert_eq!(
                kind,
                format.kinds.map(|kinds| kinds[at]),
                "{}: {server}",
                format.client
            );
        }
        for server in urls {
            assert_eq!(
                server[format.url], "https://deck.example/mcp",
                "{}",
                format.client
            );
            let token = server["headers"]["Authorization"]
                .as_str()
                .and_then(|it| it.strip_prefix("Bearer $"));
            let named = server["bearer_token_env_var"] == "HELMDECK_TOKEN";
            assert!(
                token.is_some() || named,
                "{}: no token, or one in the clear: {server}",
                format.client
            );
        }
        assert!(start_as_written(programs[0]) > 0, "{}", format.client);
    }
    let chapters = blocks
        .iter()
        .filter(|block| block.text.contains("ervers"))
        .map(|block| block.chapter.as_str());
    let mut chapters: Vec<&str> = chapters.collect();
    chapters.dedup();
    assert_eq!(
        chapters,
        FORMATS
            .iter()
            .map(|format| format.client)
            .collect::<Vec<_>>(),
        "every file is looked at"
    );
}

/// Splits a line into words.
fn as_the_shell_reads(line: &str) -> Vec<String> {
    let output = Command::new("sh")
        .args(["-c", &format!("printf '%s\\0' {line}")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}");
    let words = String::from_utf8(output.stdout).unwrap();
    words.split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn documented_command_lines_are_accepted() {
    let home = Home::new();
    let mut seen = 0;
    for block in blocks().iter().filter(|block| block.language == "sh") {
        for line in block.text.lines() {
            let words = as_the_shell_reads(line);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let ours: &[&str] = match (
                words.as_slice(),
                words.iter().position(|word| *word == "--"),
            ) {
                (["claude" | "codex", "mcp", "add", ..], Some(at)) => &words[at + 1..],
                // Nothing of it is ours: the client connects to an address.
                (
                    [
                        "claude",
                        "mcp",
                        "add",
                        "--transport",
                        "http",
                        "helmdeck",
                        "https://deck.example/mcp",
                        ..,
                    ],
                    None,
                ) => {
                    continue;
                }
                (["helmdeck", ..], None) => &words,
                _ => panic!("{}: what is this: {line}", block.chapter),
            };
            assert_eq!(ours[0], "helmdeck", "{line}");
            // `--help` at the end is only reached if everything before it is known.
            let arguments = [&ours[1..], &["--help"]].concat();
            let run = home.run(KEY, &arguments);
            assert_eq!(run.code, 0, "{line}: {}", run.stderr);
            seen += 1;
        }
    }
    assert!(seen >= 2, "{seen}");
    assert_ne!(
        home.run(KEY, &["mcp", "--no-such-flag", "--help"]).code,
        0,
        "the check can fail"
    );
}

#[test]
fn the_example_of_a_call_is_one() {
    let example = blocks()
        .into_iter()
        .find(|block| block.chapter == "What a client sees")
        .unwrap();
    let call: Value = serde_json::from_str(&example.text).unwrap();
    assert_eq!(call["name"], "github__list_issues");
    let home = Home::new();
    let plan = json!({"target": {"command": [env!("CARGO_BIN_EXE_helmdeck"), "mcp"], "env": home.environment(KEY)}, "steps": [
        {"do": "tools"},
        {"do": "call", "name": "test__echo", "arguments": {}, "meta": call["_meta"]},
        {"do": "call", "name": "test__echo", "arguments": {}, "meta": call["_meta"]},
        {"do": "call", "name": "test__echo", "arguments": {}, "meta": {"helmdeck/cache": {"directive": "only_if_cached"}}},
    ]});
    let answer = Programs::installed().typescript(&plan);
    let tools = answer["steps"][0]["result"]["tools"].as_array().unwrap();
    assert!(
        tools.iter().any(|tool| tool["name"] == call["name"]),
        "{tools:?}"
    );
    let runs: Vec<&Value> = (1..4)
        .map(|step| &answer["steps"][step]["result"]["structuredContent"]["runs"])
        .collect();
    assert_eq!(
        runs,
        [&json!(1), &json!(2), &json!(2)],
        "refreshed twice, then answered by the cache: {answer}"
    );
}
