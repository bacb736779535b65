//! MCP servers behind helmdeck at its start.
//!
//! The tests show what a client sees that lists once, and what is known without a start.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::mcp_process::Spoken;
use crate::support::program::{Home, Server};
use crate::support::{KEY, wait_for};

const SCRIPT: &str = include_str!("../src/engine/tests/mcp_server.sh");

/// A home with servers; each has a folder, where its script looks how it is to behave.
struct Fixture {
    home: Home,
    folders: tempfile::TempDir,
    config: String,
}

impl Fixture {
    fn new() -> Self {
        Self {
            home: Home::new(),
            folders: tempfile::tempdir().unwrap(),
            config: String::new(),
        }
    }

    fn path(&self, server: &str, file: &str) -> PathBuf {
        self.folders.path().join(server).join(file)
    }

    fn write(&self, server: &str, file: &str, text: &str) {
        std::fs::write(self.path(server, file), text).unwrap();
    }

    /// Adds a server with these tools and these files beside its script.
    fn add(&mut self, name: &str, more: &str, tools: &Value, files: &[(&str, &str)]) {
        std::fs::create_dir(self.folders.path().join(name)).unwrap();
        self.write(name, "server.sh", SCRIPT);
        self.write(name, "tools.json", &tools.to_string());
        files
            .iter()
            .for_each(|(file, text)| self.write(name, file, text));
        let cwd = self.folders.path().join(name);
        self.config += &format!(
            "[[mcp.servers]]\nname = \"{name}\"\ncommand = [\"/bin/sh\", \"server.sh\"]\ncwd = \"{}\"\n{more}\n",
            cwd.display()
        );
        self.home.configure(&self.config);
    }

    fn wrap(&self, pack: &str, server: &str, rest: &str) {
        let text = format!(
            "name = \"{pack}\"\nversion = \"v1\"\ndescription = \"x\"\nread_only = true\n[handler]\nmcp = {{ server = \"{server}\", tool = \"count\" }}\n{rest}"
        );
        std::fs::write(self.home.packs().join(format!("{pack}.toml")), text).unwrap();
    }

    fn starts(&self, server: &str) -> usize {
        std::fs::read_to_string(self.path(server, "starts"))
            .unwrap_or_default()
            .lines()
            .count()
    }

    fn spoken(&self) -> Spoken {
        Spoken::start(self.home.command(KEY, &["mcp"]))
    }
}

fn count() -> Value {
    json!([{"name": "count", "inputSchema": {"type": "object"}}])
}

fn names(answer: &Value) -> Vec<&str> {
    let tools = answer["result"]["tools"]
        .as_array()
        .unwrap_or_else(|| panic!("no tools: {answer}"));
    tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect()
}

/// A slow server, one that never answers and one that ends at once.
fn mixed() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.add("slow", "", &count(), &[("delay", "1")]);
    fixture.add("hangs", "start_timeout = \"2s\"", &count(), &[("mute", "")]);
    fixture.add("broken", "", &count(), &[("refuse", "")]);
    fixture.wrap("team.read", "slow", "");
    fixture.wrap("team.lost", "broken", "");
    fixture
}

#[test]
fn first_list_over_stdio_has_slow_servers_tools() {
    let fixture = mixed();
    let mut client = fixture.spoken();
    let list = client.ask(1, "tools/list", json!({}));
    let listed = names(&list);
    assert!(
        listed.contains(&"mcp__slow__count") && listed.contains(&"team__read"),
        "{listed:?}"
    );
    assert!(!listed.contains(&"team__lost"));
    assert_eq!(list["result"]["ttlMs"], 0, "two servers are not known");
    client.leave();
}

#[test]
fn first_call_over_stdio_waits_for_its_server() {
    let fixture = mixed();
    for tool in ["mcp__slow__count", "team__read", "team.read"] {
        std::fs::remove_dir_all(fixture.home.data()).ok();
        let mut client = fixture.spoken();
        let answer = client.call(1, tool);
        assert_eq!(answer["result"]["isError"], false, "{tool}: {answer}");
        client.leave();
    }
    let mut client = fixture.spoken();
    let answer = client.call(1, "team__lost");
    let text = answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"));
    assert!(text.contains("MCP server \"broken\""), "{text}");
    assert_eq!(client.call(2, "mcp__nobody__x")["error"]["code"], -32602);
    client.leave();
}

#[test]
fn first_list_and_call_over_http_wait() {
    let fixture = mixed();
    let server = Server::start(&fixture.home, KEY);
    let accept = "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list";
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"}});
    let request =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}});
    let answer = server.ask(&format!("POST /mcp\n{accept}"), &request.to_string());
    assert!(
        names(&answer.json()).contains(&"team__read"),
        "{}",
        answer.body
    );
    assert_eq!(server.ask("POST /api/v1/packs/team.read", "{}").code, 200);
}

#[test]
fn remembered_tools_list_at_once_and_update() {
    let mut fixture = Fixture::new();
    fixture.add("x", "", &count(), &[]);
    let mut client = fixture.spoken();
    assert!(names(&client.ask(1, "tools/list", json!({}))).contains(&"mcp__x__count"));
    client.leave();
    // The next start needs long, and the server has other tools by then.
    fixture.write("x", "delay", "1");
    fixture.write(
        "x",
        "tools.json",
        &json!([{"name": "fresh", "inputSchema": {"type": "object"}}]).to_string(),
    );
    let mut client = fixture.spoken();
    let list = client.ask(1, "tools/list", json!({}));
    assert!(
        names(&list).contains(&"mcp__x__count"),
        "what it had: {list}"
    );
    assert_eq!(
        client.receive()["method"],
        "notifications/tools/list_changed"
    );
    let list = client.ask(2, "tools/list", json!({}));
    assert!(
        names(&list).contains(&"mcp__x__fresh") && !names(&list).contains(&"mcp__x__count"),
        "{list}"
    );
    client.leave();
}

#[test]
fn hits_and_pack_lists_start_no_server() {
    let mut fixture = Fixture::new();
    fixture.add("x", "", &count(), &[]);
    fixture.wrap("team.read", "x", "[memory]\ncache = true\nttl = \"1h\"\n");
    assert_eq!(fixture.home.call(KEY, &["team.read"]).0, "miss");
    assert_eq!(fixture.starts("x"), 1);
    // It could not start any more.
    fixture.write("x", "refuse", "");
    assert_eq!(fixture.home.call(KEY, &["team.read"]).0, "hit");
    for command in [
        &["pack", "list"][..],
        &["pack", "show", "team.read"],
        &["pack", "show", "mcp.x.count"],
        &["pack", "check"],
    ] {
        let run = fixture.home.run(KEY, command);
        assert_eq!(run.code, 0, "{command:?}: {}{}", run.stdout, run.stderr);
    }
    assert_eq!(fixture.starts("x"), 1, "nothing was started");
    let run = fixture.home.run(KEY, &["mcp", "list"]);
    assert_eq!((run.code, fixture.starts("x")), (1, 2), "`mcp list` asks");
    assert!(
        run.stdout.contains("the tools are those of its last start"),
        "{}",
        run.stdout
    );
    // Without the key the file is of no use, and nothing of it can be read.
    let sealed = std::fs::read(fixture.home.data().join("mcp/x.sealed")).unwrap();
    assert!(!String::from_utf8_lossy(&sealed).contains("inputSchema"));
}

/// `anyOf` of four references, `levels` deep.
fn tower(levels: usize) -> Value {
    let mut defs = Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        defs.insert(
            format!("d{level}"),
            json!({"anyOf": [next, next, next, next]}),
        );
    }
    defs.insert(format!("d{levels}"), json!({"type": "integer"}));
    json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs})
}

#[test]
fn hostile_schemas_do_not_stop_a_server() {
    let node = vec![json!({"properties": {"a": {"$ref": "#/$defs/n"}}}); 4];
    let branching = json!({"type": "object", "allOf": [{"$ref": "#/$defs/n"}], "$defs": {"n": {"anyOf": node, "not": {"const": 1}}}});
    let deep = (0..100).fold(json!(1), |inner, _| json!({"a": inner}));
    let mut fixture = Fixture::new();
    let tools = json!([
        {"name": "in", "inputSchema": tower(14)},
        {"name": "out", "inputSchema": {"type": "object"}, "outputSchema": tower(14)},
        {"name": "count", "inputSchema": branching},
        {"name": "nested", "inputSchema": {"type": "object"}, "outputSchema": branching},
    ]);
    fixture.add("e", "", &tools, &[("nested.json", &deep.to_string())]);
    let server = Server::start(&fixture.home, KEY);
    for name in ["in", "out"] {
        let answer = server.ask(&format!("POST /api/v1/packs/mcp.e.{name}"), r#"{"a":"x"}"#);
        assert_eq!(answer.code, 404, "{}", answer.body);
        assert!(
            answer
                .body
                .contains("unfolds to more than 100000 subschemas"),
            "{}",
            answer.body
        );
    }
    let deep = deep.to_string();
    std::thread::scope(|scope| {
        let calls: Vec<_> = [("count", deep.as_str(), 400), ("nested", "{}", 502)]
            .into_iter()
            .cycle()
            .take(2)
            .map(|(name, input, code)| {
                let server = &server;
                scope.spawn(move || {
                    let answer = server.ask(&format!("POST /api/v1/packs/mcp.e.{name}"), input);
                    let too_much = answer.code == code && answer.body.contains("too many steps");
                    let late = answer.code == 504 && answer.body.contains("did not end in time");
                    assert!(too_much || late, "{}", answer.body);
                })
            })
            .collect();
        while !calls.iter().all(|call| call.is_finished()) {
            assert_eq!(server.ask("GET /healthz", "").code, 200);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    });
}

#[test]
fn packs_folder_created_after_start_is_served() {
    let home = Home::new();
    let folder = home.packs().with_file_name("later");
    let server = Server::start_with(
        &home,
        KEY,
        &[("HELMDECK_PACKS_DIR", folder.to_str().unwrap())],
    );
    assert_eq!(server.ask("POST /api/v1/packs/first.tool", "{}").code, 404);
    std::fs::create_dir(&folder).unwrap();
    let manifest = "name = \"first.tool\"\nversion = \"v1\"\ndescription = \"x\"\n[handler]\ncommand = [\"cat\"]\n";
    std::fs::write(folder.join("first.toml"), manifest).unwrap();
    wait_for("the new pack", || {
        server.ask("POST /api/v1/packs/first.tool", "{}").code == 200
    });
    // A mistake leaves it serving, and is reported.
    std::fs::write(
        folder.join("first.toml"),
        manifest.replace("command", "comand"),
    )
    .unwrap();
    wait_for("the refusal", || {
        server.ask("GET /readyz", "").body.contains("degraded")
    });
    assert_eq!(server.ask("POST /api/v1/packs/first.tool", "{}").code, 200);
    wait_for("the log line", || {
        server
            .log()
            .contains("the last good version goes on serving")
    });
}

#[test]
fn built_in_manifests_have_title_and_hints() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("packs");
    let mut seen = 0;
    for family in std::fs::read_dir(root)
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().is_dir())
    {
        for file in std::fs::read_dir(family.path())
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
        {
            if file.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let manifest: toml::Table = std::fs::read_to_string(&file).unwrap().parse().unwrap();
            let has = |key: &str| manifest.contains_key(key);
            let reads = manifest.get("read_only").and_then(toml::Value::as_bool) == Some(true);
            assert!(has("title") && has("open_world"), "{}", file.display());
            assert_eq!(
                (has("destructive"), has("idempotent")),
                (!reads, !reads),
                "{}",
                file.display()
            );
            seen += 1;
        }
    }
    assert!(seen >= 50, "{seen}");
}
