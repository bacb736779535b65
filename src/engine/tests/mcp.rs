//! Tools of MCP servers: real programs that follow the protocol, or break it.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use helmdeck_core::context::ProgressSink;
use helmdeck_core::{CacheStatus, Clock, Code, Error, Outcome};
use helmdeck_engine::{Builder, Config, Engine, McpReach, McpServer, McpValue, PackSource};
use helmdeck_testkit::{ManualClock, STUCK, call, memory};
use serde_json::{Value, json};

const SCRIPT: &str = include_str!("mcp_server.sh");
pub(crate) const TOKEN: &str = "canary-1234567890";
const TOOLS: &[&str] = &[
    "count",
    "slow",
    "hint",
    "structured",
    "list",
    "fail",
    "unknown",
    "die",
    "hang",
    "flood",
    "large",
    "garbage",
    "progress",
    "change",
    "token",
    "ask",
    "tell",
    "nested",
];

/// A folder with a server in it.
pub(crate) struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let fixture = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir(fixture.path().join("packs")).unwrap();
        fixture.write("server.sh", SCRIPT);
        let tools: Vec<Value> = TOOLS
            .iter()
            .map(|name| tool(name, json!({"type": "object"})))
            .collect();
        fixture.write("tools.json", &Value::from(tools).to_string());
        fixture
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    pub(crate) fn lines(&self, name: &str) -> usize {
        std::fs::read_to_string(self.path().join(name))
            .unwrap_or_default()
            .lines()
            .count()
    }

    pub(crate) fn server(&self) -> McpServer {
        let token = McpValue::parse("env:TOKEN", |_| Some(TOKEN.to_owned())).unwrap();
        let reach = McpReach::Command {
            argv: vec!["sh".into(), "server.sh".into()],
            cwd: Some(self.path().to_owned()),
            env: [("TOKEN".to_owned(), token)].into(),
        };
        McpServer {
            start_timeout: STUCK,
            timeout: STUCK,
            ..McpServer::new("x", reach)
        }
    }

    pub(crate) fn builder(&self, server: McpServer) -> Builder {
        Engine::builder(Config::default())
            .mcp(vec![server])
            .packs_dir(self.path().join("packs"))
    }

    pub(crate) fn engine(&self) -> Engine {
        self.builder(self.server()).build()
    }

    pub(crate) fn manifest(&self, file: &str, name: &str, tool: &str, rest: &str) {
        let text = format!(
            "name = \"{name}\"\nversion = \"v1\"\ndescription = \"x\"\n{rest}\n[handler]\nmcp = {{ server = \"x\", tool = \"{tool}\" }}\n"
        );
        let (top, tables) = text
            .split_once("[memory]")
            .map_or((text.as_str(), None), |(a, b)| (a, Some(b)));
        // Tables go to the end.
        let text = match tables.and_then(|tables| tables.split_once("[handler]")) {
            Some((memory, handler)) => format!("{top}[handler]{handler}[memory]{memory}"),
            None => text.clone(),
        };
        self.write(&format!("packs/{file}"), &text);
    }

    pub(crate) async fn until(&self, what: &str, done: impl Fn() -> bool) {
        helmdeck_testkit::until(what, async || done()).await;
    }
}

pub(crate) fn tool(name: &str, input: Value) -> Value {
    json!({"name": name, "description": format!("does {name}"), "inputSchema": input})
}

pub(crate) async fn run(engine: &Engine, name: &str) -> Result<Value, Error> {
    engine
        .call(call(name, "{}"))
        .await
        .map(|outcome: Outcome| outcome.output.to_value())
}

pub(crate) fn text(value: &Value) -> &str {
    value["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {value}"))
}

pub(crate) const CACHED: &str = "read_only = true\n[memory]\ncache = true\nttl = \"1h\"\n";

async fn cached_engine(fixture: &Fixture) -> (Engine, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let memory = memory(Arc::clone(&clock) as Arc<dyn Clock>).await;
    (
        fixture
            .builder(fixture.server())
            .memory(memory)
            .clock(Arc::clone(&clock) as _)
            .build(),
        clock,
    )
}

#[tokio::test]
async fn servers_start_on_the_first_call() {
    let fixture = Fixture::new();
    let engine = fixture.engine();
    assert_eq!((engine.packs().len(), fixture.lines("starts")), (0, 0));
    assert_eq!(engine.mcp_servers()[0].state, "down");
    assert_eq!(text(&run(&engine, "mcp.x.count").await.unwrap()), "call 1");
    assert_eq!(fixture.lines("starts"), 1);
    let pack = engine.pack("mcp.x.count", None).unwrap();
    assert_eq!(
        (
            pack.source,
            pack.handler,
            pack.read_only,
            pack.description.as_str()
        ),
        (PackSource::Mcp, "mcp", false, "does count")
    );
    assert_eq!(engine.packs().len(), TOOLS.len());
    let status = &engine.mcp_servers()[0];
    assert_eq!(
        (
            status.state,
            status.server.as_str(),
            status.protocol.as_str()
        ),
        ("up", "script 1", "2025-11-25")
    );
    let error = run(&engine, "mcp.x.nope").await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert_eq!(
        run(&engine, "mcp.y.count").await.unwrap_err().code(),
        Code::NotFound
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn results_become_outputs_and_failures_are_typed() {
    let fixture = Fixture::new();
    let engine = fixture.engine();
    assert_eq!(
        run(&engine, "mcp.x.structured").await.unwrap(),
        json!({"n": 1})
    );
    assert_eq!(
        run(&engine, "mcp.x.list").await.unwrap(),
        json!({"content": [], "structuredContent": [1, 2]})
    );
    assert_eq!(
        text(&run(&engine, "mcp.x.garbage").await.unwrap()),
        "after garbage"
    );
    let error = run(&engine, "mcp.x.fail").await.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (
            Code::HandlerFailed,
            "tool \"fail\" failed: the disk is full"
        )
    );
    let error = run(&engine, "mcp.x.unknown").await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidInput);
    assert!(error.message().ends_with("no such tool"), "{error}");
    let error = engine.call(call("mcp.x.count", "[]")).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidInput);
    assert_eq!(fixture.lines("starts"), 1, "one server serves all");
    let metrics = engine.metrics();
    assert!(
        metrics.contains("helmdeck_mcp_server_up{server=\"x\"} 1"),
        "{metrics}"
    );
    assert!(
        metrics
            .contains("helmdeck_mcp_server_calls_total{server=\"x\",outcome=\"handler_failed\"} 1"),
        "{metrics}"
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn crash_fails_calls_in_flight_next_one_works() {
    let fixture = Fixture::new();
    let engine = fixture.engine();
    let hanging = tokio::spawn({
        let engine = engine.clone();
        async move { run(&engine, "mcp.x.hang").await }
    });
    fixture
        .until("the call that hangs", || fixture.lines("calls") == 1)
        .await;
    let error = run(&engine, "mcp.x.die").await.unwrap_err();
    assert_eq!(error.code(), Code::HandlerFailed);
    assert!(
        error
            .message()
            .contains("ended while tool \"die\" ran: it was killed by signal 9"),
        "{error}"
    );
    let error = hanging.await.unwrap().unwrap_err();
    assert!(error.message().contains("killed by signal 9"), "{error}");
    assert_eq!(
        text(&run(&engine, "mcp.x.count").await.unwrap()),
        "call 3",
        "the first crash is followed by a start at once"
    );
    assert_eq!(fixture.lines("starts"), 2);
    // Again: now it is left alone for a moment, and says for how long.
    run(&engine, "mcp.x.die").await.unwrap_err();
    let error = run(&engine, "mcp.x.count").await.unwrap_err();
    assert_eq!(error.code(), Code::HandlerFailed);
    let wait = error.retry_after().expect("a time to come back");
    assert!(wait <= Duration::from_millis(1250), "{wait:?}");
    assert_eq!(fixture.lines("starts"), 2, "nothing was started meanwhile");
    tokio::time::sleep(wait).await;
    assert_eq!(text(&run(&engine, "mcp.x.count").await.unwrap()), "call 5");
    assert!(
        engine
            .metrics()
            .contains("helmdeck_mcp_server_crashes_total{server=\"x\"} 2")
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn endless_messages_and_large_answers_are_bounded() {
    let fixture = Fixture::new();
    let server = McpServer {
        max_output_bytes: 100_000,
        ..fixture.server()
    };
    let engine = fixture.builder(server).build();
    let error = run(&engine, "mcp.x.large").await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidOutput);
    assert!(error.message().contains("the limit is 100000"), "{error}");
    assert_eq!(
        fixture.lines("starts"),
        1,
        "an answer that is too large ends no connection"
    );
    let error = run(&engine, "mcp.x.flood").await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidOutput);
    assert!(
        error
            .message()
            .contains("a message of more than 1048576 bytes"),
        "{error}"
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn failed_start_is_typed_backed_off_and_listed() {
    let fixture = Fixture::new();
    fixture.write("refuse", "");
    fixture.manifest("put.toml", "team.count", "count", CACHED);
    let engine = fixture.engine();
    let error = run(&engine, "mcp.x.count").await.unwrap_err();
    assert_eq!(error.code(), Code::HandlerFailed);
    assert_eq!(
        error.message(),
        "the MCP server \"x\" ended before it answered: it exited with status 4"
    );
    assert!(
        error
            .cause()
            .contains("its stderr ends: started with [secret]"),
        "{}",
        error.cause()
    );
    let again = run(&engine, "team.count").await.unwrap_err();
    assert!(again.retry_after().is_some(), "{again}");
    assert_eq!(fixture.lines("starts"), 1);
    engine.import_all(STUCK).await;
    let refused: Vec<String> = engine.refused().iter().map(ToString::to_string).collect();
    assert!(
        refused
            .iter()
            .any(|r| r.starts_with("mcp:x: the MCP server \"x\" ended before it answered")),
        "{refused:?}"
    );
    assert!(
        refused.iter().any(|r| r.contains("put.toml")),
        "{refused:?}"
    );
    assert_eq!(engine.mcp_servers()[0].state, "failed");

    std::fs::remove_file(fixture.path().join("refuse")).unwrap();
    engine.import_in_background();
    fixture
        .until("the server to be tried again", || {
            engine.pack("team.count", None).is_ok()
        })
        .await;
    assert!(engine.refused().is_empty(), "{:?}", engine.refused());
    engine.shutdown().await;
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let fixture = Fixture::new();
    fixture.write("mute", "");
    let server = McpServer {
        start_timeout: Duration::from_secs(1),
        ..fixture.server()
    };
    let engine = fixture.builder(server).build();
    let error = run(&engine, "mcp.x.count").await.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (
            Code::Timeout,
            "the MCP server \"x\" did not start within 1s"
        )
    );
    let pid = std::fs::read_to_string(fixture.path().join("starts"))
        .unwrap()
        .trim()
        .to_owned();
    fixture
        .until("its end", || {
            !Path::new("/proc").join(&pid).join("exe").exists()
        })
        .await;
    engine.shutdown().await;
}

#[tokio::test]
async fn newest_revision_needs_no_handshake() {
    let fixture = Fixture::new();
    fixture.write("modern", "");
    let engine = fixture.engine();
    assert_eq!(text(&run(&engine, "mcp.x.count").await.unwrap()), "call 1");
    assert_eq!(engine.mcp_servers()[0].protocol, "2026-07-28");
    assert_eq!(
        fixture.lines("starts"),
        2,
        "the second one was asked without"
    );
    engine.shutdown().await;
}

#[derive(Default)]
pub(crate) struct Reports(pub(crate) Mutex<Vec<(Option<f32>, String)>>);

impl ProgressSink for Reports {
    fn report(&self, percent: Option<f32>, message: &str) {
        self.0.lock().unwrap().push((percent, message.to_owned()));
    }
}

#[tokio::test]
async fn progress_is_forwarded_and_cancel_reaches_server() {
    let fixture = Fixture::new();
    let engine = fixture.engine();
    let reports = Arc::new(Reports(Mutex::default()));
    let mut progress = call("mcp.x.progress", "{}");
    progress.progress = Some(Arc::clone(&reports) as _);
    engine.call(progress).await.unwrap();
    assert_eq!(
        *reports.0.lock().unwrap(),
        [(Some(25.0), "a quarter".to_owned())]
    );

    let mut hang = call("mcp.x.hang", "{}");
    hang.deadline = Some(Instant::now() + Duration::from_millis(200));
    assert_eq!(engine.call(hang).await.unwrap_err().code(), Code::Timeout);
    fixture
        .until("the cancellation", || fixture.lines("cancelled") == 1)
        .await;
    let told = std::fs::read_to_string(fixture.path().join("cancelled")).unwrap();
    let call = std::fs::read_to_string(fixture.path().join("calls")).unwrap();
    let id = |line: &str, pointer: &str| {
        serde_json::from_str::<Value>(line)
            .unwrap()
            .pointer(pointer)
            .cloned()
    };
    assert_eq!(
        id(told.trim(), "/params/requestId"),
        id(call.lines().last().unwrap(), "/id")
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn what_a_server_asks_of_us_is_refused() {
    let fixture = Fixture::new();
    let engine = fixture.engine();
    run(&engine, "mcp.x.ask").await.unwrap();
    let refusals = std::fs::read_to_string(fixture.path().join("refusals")).unwrap();
    let codes: Vec<i64> = refusals
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["error"]["code"]
                .as_i64()
                .unwrap()
        })
        .collect();
    assert_eq!(codes, [-32601, -32601], "{refusals}");
    let calls = std::fs::read_to_string(fixture.path().join("calls")).unwrap();
    assert!(!calls.contains("local"), "who calls is not told: {calls}");
    engine.shutdown().await;
}

#[tokio::test]
async fn server_variables_are_redacted_environment_is_minimal() {
    let fixture = Fixture::new();
    let engine = fixture.engine();
    assert_eq!(
        text(&run(&engine, "mcp.x.token").await.unwrap()),
        "the token is [secret]"
    );
    let pid = std::fs::read_to_string(fixture.path().join("starts")).unwrap();
    let environment = std::fs::read(format!("/proc/{}/environ", pid.trim())).unwrap();
    let mut names: Vec<&str> = std::str::from_utf8(&environment)
        .unwrap()
        .split('\0')
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["LANG", "PATH", "TOKEN", "TZ"]);
    engine.shutdown().await;
}

#[tokio::test]
async fn manifest_puts_a_tool_behind_both_gates() {
    let fixture = Fixture::new();
    fixture.manifest("put.toml", "team.count", "count", CACHED);
    fixture.manifest("slow.toml", "team.slow", "slow", CACHED);
    let (engine, _) = cached_engine(&fixture).await;
    assert!(
        engine.refused().is_empty(),
        "a server that was not asked is no mistake: {:?}",
        engine.refused()
    );
    let first = engine.call(call("team.count", "{}")).await.unwrap();
    let second = engine.call(call("team.count", "{ }")).await.unwrap();
    assert_eq!(first.output, second.output);
    let status = |outcome: &Outcome| outcome.cache.as_ref().map(|cache| cache.status);
    assert_eq!(
        (status(&first), status(&second)),
        (Some(CacheStatus::Miss), Some(CacheStatus::Hit))
    );
    // The same tool by its own name is never cached.
    let direct = engine.call(call("mcp.x.count", "{}")).await.unwrap();
    assert!(direct.cache.is_none());
    assert_eq!(text(&direct.output.to_value()), "call 2");

    let all = join_all((0..50).map(|_| engine.call(call("team.slow", "{\"same\": 1}")))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(
        fixture.lines("calls"),
        3,
        "50 callers are one call of the server"
    );
    let cached = engine.pack("team.count", None).unwrap();
    assert!(cached.cached && cached.read_only);
    assert_eq!(
        cached.input,
        json!({"type": "object"}),
        "inherited from the tool"
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn errors_and_answers_with_secrets_are_not_stored() {
    let fixture = Fixture::new();
    fixture.manifest("fail.toml", "team.fail", "fail", CACHED);
    fixture.manifest("token.toml", "team.token", "token", CACHED);
    let (engine, _) = cached_engine(&fixture).await;
    for calls in 1..=2 {
        assert_eq!(
            run(&engine, "team.fail").await.unwrap_err().code(),
            Code::HandlerFailed
        );
        assert_eq!(fixture.lines("calls"), calls);
    }
    for calls in 3..=4 {
        assert!(
            !run(&engine, "team.token")
                .await
                .unwrap()
                .to_string()
                .contains("canary")
        );
        assert_eq!(fixture.lines("calls"), calls);
    }
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_schema_abandons_cached_entries() {
    let fixture = Fixture::new();
    fixture.manifest("put.toml", "team.count", "count", CACHED);
    fixture.manifest("gone.toml", "team.slow", "slow", CACHED);
    let changed = json!([
        tool(
            "count",
            json!({"type": "object", "properties": {"n": {"type": "integer"}}})
        ),
        tool("change", json!({"type": "object"})),
        tool("bad", json!({"type": "objekt"})),
    ]);
    fixture.write("changed.json", &changed.to_string());
    let (engine, _) = cached_engine(&fixture).await;
    let first = run(&engine, "team.count").await.unwrap();
    assert_eq!(run(&engine, "team.count").await.unwrap(), first);
    run(&engine, "mcp.x.change").await.unwrap();
    fixture
        .until("the new tools", || engine.packs().len() == 3)
        .await;
    assert_ne!(
        run(&engine, "team.count").await.unwrap(),
        first,
        "the old answer was for another tool"
    );
    let refused: Vec<String> = engine.refused().iter().map(ToString::to_string).collect();
    assert!(
        refused
            .iter()
            .any(|r| r.contains("mcp:x: tool \"bad\": its inputSchema cannot be used")),
        "{refused:?}"
    );
    assert!(
        refused
            .iter()
            .any(|r| r.contains("the MCP server \"x\" has no tool \"slow\"")),
        "{refused:?}"
    );
    assert_eq!(
        run(&engine, "mcp.x.die").await.unwrap_err().code(),
        Code::NotFound
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn a_reconnect_lists_anew() {
    let fixture = Fixture::new();
    let engine = fixture.engine();
    run(&engine, "mcp.x.count").await.unwrap();
    fixture.write(
        "tools.json",
        &json!([
            tool("count", json!({"type": "object", "required": ["n"]})),
            tool("die", json!({"type": "object"}))
        ])
        .to_string(),
    );
    run(&engine, "mcp.x.die").await.unwrap_err();
    assert_eq!(engine.packs().len(), TOOLS.len());
    // The start lists the tools anew, and the call is checked by the contract of today before the
    // tool is called.
    assert_eq!(
        run(&engine, "mcp.x.count").await.unwrap_err().code(),
        Code::InvalidInput
    );
    assert_eq!((engine.packs().len(), fixture.lines("calls")), (2, 2));
    engine.shutdown().await;
}

#[tokio::test]
async fn names_that_clash_are_refused() {
    let fixture = Fixture::new();
    fixture.manifest("same.toml", "mcp.x.count", "count", "");
    fixture.write(
        "tools.json",
        &json!([
            tool("count", json!({"type": "object"})),
            tool("a.b", json!({"type": "object"})),
            tool("a__b", json!({"type": "object"})),
        ])
        .to_string(),
    );
    let engine = fixture.engine();
    engine.import_all(STUCK).await;
    let names: Vec<String> = engine
        .packs()
        .iter()
        .map(|pack| pack.name.to_string())
        .collect();
    assert_eq!(names, ["mcp.x.a.b", "mcp.x.count"]);
    assert_eq!(
        engine.pack("mcp.x.count", None).unwrap().source,
        PackSource::Folder,
        "what the operator wrote wins"
    );
    let refused: Vec<String> = engine.refused().iter().map(ToString::to_string).collect();
    assert!(
        refused
            .iter()
            .any(|r| r.contains("same name where dots are not allowed (mcp__x__a__b)")),
        "{refused:?}"
    );
    assert!(
        refused.iter().any(|r| r.contains("is already defined by")),
        "{refused:?}"
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn idle_server_stops_restarts_and_shutdown_ends_all() {
    let fixture = Fixture::new();
    let server = McpServer {
        idle_timeout: Duration::from_millis(200),
        ..fixture.server()
    };
    let engine = fixture.builder(server).build();
    run(&engine, "mcp.x.count").await.unwrap();
    fixture
        .until("its end", || engine.mcp_servers()[0].state == "down")
        .await;
    // On a slow machine it stopped before the call already, too.
    let starts = std::fs::read_to_string(fixture.path().join("starts")).unwrap();
    let pid = starts.lines().last().unwrap();
    fixture
        .until("the end of its process", || {
            !Path::new("/proc").join(pid).join("exe").exists()
        })
        .await;
    assert!(
        engine.pack("mcp.x.count", None).is_ok(),
        "its tools stay known"
    );
    assert_eq!(text(&run(&engine, "mcp.x.count").await.unwrap()), "call 2");
    assert!(fixture.lines("starts") > starts.lines().count());
    let pid = std::fs::read_to_string(fixture.path().join("starts"))
        .unwrap()
        .lines()
        .last()
        .unwrap()
        .to_owned();
    engine.shutdown().await;
    fixture
        .until("the end of the second process", || {
            !Path::new("/proc").join(&pid).join("exe").exists()
        })
        .await;
    assert!(
        engine
            .metrics()
            .contains("helmdeck_mcp_server_crashes_total{server=\"x\"} 0")
    );
}

#[tokio::test]
async fn hints_of_a_server_limit_what_is_stored() {
    let fixture = Fixture::new();
    let shared = format!("{CACHED}scope = \"shared\"\n");
    for (name, memory) in [("own", CACHED), ("all", shared.as_str())] {
        fixture.manifest(
            &format!("{name}.toml"),
            &format!("team.{name}"),
            "hint",
            memory,
        );
        let upstream = memory.replace("\"1h\"", "\"upstream\"");
        assert_ne!(upstream, memory);
        fixture.manifest(
            &format!("{name}_up.toml"),
            &format!("team.{name}_up"),
            "hint",
            &upstream,
        );
    }
    let (engine, clock) = cached_engine(&fixture).await;
    // What the server says, and for how many seconds an answer is fresh: of one caller, of all,
    // with the server's ttl.
    for (meta, own, all, of_server) in [
        ("{}", 3600, 3600, 0),
        ("{\"ttlMs\": 5000}", 5, 5, 5),
        ("{\"ttlMs\": 90000, \"cacheScope\": \"public\"}", 90, 90, 90),
        ("{\"ttlMs\": 5000, \"cacheScope\": \"private\"}", 5, 0, 5),
        ("{\"cache_hint\": \"cache\"}", 3600, 3600, 0),
        ("{\"cache_hint\": \"no-cache\", \"ttlMs\": 5000}", 0, 0, 0),
        ("{\"ttlMs\": 0}", 0, 0, 0),
        ("{\"ttlMs\": \"soon\"}", 3600, 3600, 0),
    ] {
        fixture.write("meta.json", meta);
        for (pack, seconds) in [
            ("team.own", own),
            ("team.all", all),
            ("team.own_up", of_server),
        ] {
            clock.advance(Duration::from_secs(100_000));
            engine.call(call(pack, "{}")).await.unwrap();
            let before = fixture.lines("calls");
            if seconds > 0 {
                clock.advance(Duration::from_secs(seconds - 1));
                engine.call(call(pack, "{}")).await.unwrap();
                assert_eq!(fixture.lines("calls"), before, "{meta} {pack}: fresh");
                clock.advance(Duration::from_secs(1));
            }
            engine.call(call(pack, "{}")).await.unwrap();
            assert_eq!(fixture.lines("calls"), before + 1, "{meta} {pack}: over");
        }
    }
    engine.shutdown().await;
}
