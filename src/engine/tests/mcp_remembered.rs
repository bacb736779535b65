//! Stored tools between starts, first lists that wait, and schemas of servers that are too large.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{CacheStatus, Clock, Code};
use helmdeck_engine::{Builder, McpReach, McpServer};
use helmdeck_testkit::{ManualClock, STUCK, call, memory};
use serde_json::{Map, Value, json};

use super::mcp::{CACHED, Fixture, run, text, tool};

fn remembering(fixture: &Fixture, server: McpServer) -> Builder {
    fixture
        .builder(server)
        .remember_mcp(fixture.path().join("data/mcp"), None, true)
}

/// A server that was started once, by an engine that has ended.
async fn started_once(fixture: &Fixture) {
    let engine = remembering(fixture, fixture.server()).build();
    run(&engine, "mcp.x.count").await.unwrap();
    engine.shutdown().await;
}

fn starts(fixture: &Fixture) -> usize {
    fixture.lines("starts")
}

#[tokio::test]
async fn remembered_tools_are_packs_without_a_start() {
    let fixture = Fixture::new();
    fixture.manifest("read.toml", "team.read", "count", "");
    started_once(&fixture).await;
    let engine = remembering(&fixture, fixture.server()).build();
    assert!(engine.pack("mcp.x.count", None).is_ok() && engine.pack("team.read", None).is_ok());
    assert!(!engine.needs_import());
    engine.import_unknown(STUCK).await;
    assert_eq!(starts(&fixture), 1, "nothing was started to say so");
    assert!(engine.mcp_servers()[0].remembered);
    assert_eq!(text(&run(&engine, "team.read").await.unwrap()), "call 2");
    assert_eq!(
        (starts(&fixture), engine.mcp_servers()[0].remembered),
        (2, false)
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn another_configuration_remembers_nothing() {
    let fixture = Fixture::new();
    started_once(&fixture).await;
    let mut server = fixture.server();
    if let McpReach::Command { argv, .. } = &mut server.reach {
        argv.push("other".into());
    }
    let engine = remembering(&fixture, server).build();
    assert!(engine.pack("mcp.x.count", None).is_err());
    engine.shutdown().await;
}

#[tokio::test]
async fn hit_needs_no_running_server() {
    let fixture = Fixture::new();
    fixture.manifest("read.toml", "team.read", "count", CACHED);
    let clock = Arc::new(ManualClock::default());
    let memory = memory(Arc::clone(&clock) as Arc<dyn Clock>).await;
    let engine = || {
        remembering(&fixture, fixture.server())
            .memory(memory.clone())
            .clock(Arc::clone(&clock) as _)
            .build()
    };
    let first = engine();
    let outcome = first.call(call("team.read", "{}")).await.unwrap();
    assert_eq!(outcome.cache.unwrap().status, CacheStatus::Miss);
    first.memory().unwrap().flush().await;
    fixture
        .until("the tools to be kept", || {
            fixture.path().join("data/mcp/x.json").exists()
        })
        .await;
    fixture.write("refuse", "");
    let second = engine();
    let outcome = second.call(call("team.read", "{}")).await.unwrap();
    assert_eq!(
        (outcome.cache.unwrap().status, starts(&fixture)),
        (CacheStatus::Hit, 1)
    );
    let error = second
        .call(call("team.read", r#"{"other":1}"#))
        .await
        .unwrap_err();
    assert_eq!(
        error.code(),
        Code::HandlerFailed,
        "what is not in the store says why: {error}"
    );
    let hit = second.call(call("team.read", "{}")).await.unwrap();
    assert_eq!(
        hit.cache.unwrap().status,
        CacheStatus::Hit,
        "also after the server failed"
    );
    second.shutdown().await;
    first.shutdown().await;
}

#[tokio::test]
async fn changed_tool_never_answers_old_contract() {
    let fixture = Fixture::new();
    fixture.manifest("read.toml", "team.read", "count", CACHED);
    started_once(&fixture).await;
    let described =
        json!({"name": "count", "description": "new", "inputSchema": {"type": "object"}});
    fixture.write("tools.json", &json!([described]).to_string());
    let clock = Arc::new(ManualClock::default());
    let memory = memory(Arc::clone(&clock) as Arc<dyn Clock>).await;
    let engine = remembering(&fixture, fixture.server())
        .memory(memory)
        .clock(clock as _)
        .build();
    assert_eq!(
        engine.pack("mcp.x.count", None).unwrap().description,
        "does count"
    );
    assert_eq!(
        text(&run(&engine, "team.read").await.unwrap()),
        "call 2",
        "called once, under the new contract"
    );
    assert_eq!(engine.pack("mcp.x.count", None).unwrap().description, "new");
    let again = engine.call(call("team.read", "{}")).await.unwrap();
    assert_eq!(again.cache.unwrap().status, CacheStatus::Hit);
    assert_eq!(engine.packs().len(), 2, "tools that went are gone");
    engine.shutdown().await;
}

#[tokio::test]
async fn new_tool_is_found_by_its_call() {
    let fixture = Fixture::new();
    started_once(&fixture).await;
    let tools = json!([
        tool("count", json!({"type": "object"})),
        tool("fresh", json!({"type": "object"}))
    ]);
    fixture.write("tools.json", &tools.to_string());
    fixture.manifest("fresh.toml", "team.fresh", "fresh", "");
    let engine = remembering(&fixture, fixture.server()).build();
    assert!(
        engine.needs_import(),
        "the manifest waits and is not refused"
    );
    engine.await_tool("mcp__x__fresh").await.unwrap();
    assert!(engine.pack("mcp.x.fresh", None).is_ok() && engine.pack("team.fresh", None).is_ok());
    engine.shutdown().await;
}

fn named(fixture: &Fixture, name: &str) -> McpServer {
    McpServer {
        name: name.into(),
        ..fixture.server()
    }
}

#[tokio::test]
async fn first_list_waits_for_slow_not_broken_servers() {
    let (slow, hangs, broken) = (Fixture::new(), Fixture::new(), Fixture::new());
    slow.write("delay", "1");
    hangs.write("mute", "");
    broken.write("refuse", "");
    let impatient = McpServer {
        start_timeout: Duration::from_secs(3),
        ..named(&hangs, "hangs")
    };
    let engine = slow
        .builder(named(&slow, "slow"))
        .mcp(vec![impatient, named(&broken, "broken")])
        .build();
    engine.import_in_background();
    assert!(!engine.packs_settled().await, "two are not known");
    assert!(engine.pack("mcp.slow.count", None).is_ok());
    let states: Vec<_> = engine
        .mcp_servers()
        .iter()
        .map(|server| server.state)
        .collect();
    assert_eq!(states[2], "up", "{states:?}");
    let refused = engine.refused();
    assert!(
        refused.iter().any(|error| error.file == "mcp:broken"),
        "{refused:?}"
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn server_that_starts_again_stays_refused() {
    let broken = Fixture::new();
    broken.write("refuse", "");
    let engine = broken.builder(named(&broken, "broken")).build();
    engine.import_in_background();
    engine.packs_settled().await;
    broken.write("mute", "");
    std::fs::remove_file(broken.path().join("refuse")).unwrap();
    broken
        .until("the second start", || {
            engine.mcp_servers()[0].state == "starting"
        })
        .await;
    engine.reload();
    let refused = engine.refused();
    assert!(
        refused.iter().any(|error| error.file == "mcp:broken"),
        "{refused:?}"
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn call_of_pending_manifest_waits_or_explains() {
    let (slow, broken) = (Fixture::new(), Fixture::new());
    slow.write("delay", "1");
    broken.write("refuse", "");
    slow.manifest("good.toml", "team.good", "count", "");
    slow.write("packs/bad.toml", "name = \"team.bad\"\nversion = \"v1\"\ndescription = \"x\"\n[handler]\nmcp = { server = \"b\", tool = \"t\" }\n");
    let engine = slow
        .builder(slow.server())
        .mcp(vec![named(&broken, "b")])
        .build();
    engine.import_in_background();
    engine.await_tool("team__good").await.unwrap();
    assert!(engine.pack("team.good", None).is_ok());
    let error = engine.await_tool("team__bad").await.unwrap_err();
    assert!(error.message().contains("MCP server \"b\""), "{error}");
    // Also later, when the registry knows that the server failed.
    engine.packs_settled().await;
    assert!(engine.await_tool("team__bad").await.is_err());
    let error = engine.call(call("team.bad", "{}")).await.unwrap_err();
    assert!(error.message().contains("MCP server \"b\""), "{error}");
    engine.await_tool("mcp__x__no_such_tool").await.unwrap();
    engine.await_tool("no_such").await.unwrap();
    engine.shutdown().await;
}

/// Makes a schema of nested `anyOf` references, `levels` deep.
///
/// To check one number by it takes `wide` to the power of `levels` steps.
fn tower(wide: usize, levels: usize) -> Value {
    let mut defs = Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        defs.insert(format!("d{level}"), json!({"anyOf": vec![next; wide]}));
    }
    defs.insert(format!("d{levels}"), json!({"type": "integer"}));
    json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs})
}

#[tokio::test]
async fn exploding_schema_is_refused_with_reason() {
    let fixture = Fixture::new();
    let good = json!({"type": "object"});
    fixture.write(
        "tools.json",
        &json!([
            tool("in", tower(4, 14)),
            {"name": "out", "inputSchema": good, "outputSchema": tower(4, 14)},
            tool("count", good),
        ])
        .to_string(),
    );
    let text = "name = \"team.tower\"\nversion = \"v1\"\ndescription = \"x\"\n[handler]\ncommand = [\"true\"]\n[input]\nfile = \"tower.json\"\n";
    fixture.write("packs/tower.toml", text);
    fixture.write("packs/tower.json", &tower(4, 14).to_string());
    let engine = fixture.engine();
    engine.import_all(STUCK).await;
    assert_eq!(engine.packs().len(), 1, "the good one is there");
    for name in ["mcp.x.in", "mcp.x.out", "team.tower"] {
        let error = engine.pack(name, None).unwrap_err();
        assert!(
            error.message().contains("unfolds to more than 100000"),
            "{name}: {error}"
        );
    }
    engine.shutdown().await;
}

#[tokio::test]
async fn ambiguous_json_answers_fail_at_once() {
    let fixture = Fixture::new();
    let engine = fixture.engine();
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(200), "]".repeat(200));
    for answer in [deep.as_str(), r#"{"a":1,"a":2}"#] {
        fixture.write("nested.json", answer);
        let error = run(&engine, "mcp.x.nested").await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidOutput, "{error}");
        assert!(
            error
                .message()
                .contains("deeper than 128 levels, a key twice"),
            "{error}"
        );
    }
    fixture.write("nested.json", r#"{"a":{"a":1}}"#);
    assert_eq!(
        run(&engine, "mcp.x.nested").await.unwrap(),
        json!({"a": {"a": 1}})
    );
    engine.shutdown().await;
}

#[tokio::test]
async fn long_descriptions_and_lists_are_cut() {
    let fixture = Fixture::new();
    let mut tools: Vec<Value> = (0..600)
        .map(|n| tool(&format!("t{n}"), json!({"type": "object"})))
        .collect();
    tools[0]["description"] = "x".repeat(1_000_000).into();
    tools[0]["title"] = "y".repeat(1_000_000).into();
    fixture.write("tools.json", &Value::from(tools).to_string());
    let engine = fixture.engine();
    engine.import_all(STUCK).await;
    let pack = engine.pack("mcp.x.t0", None).unwrap();
    assert_eq!(
        (pack.description.len(), pack.title.unwrap().len()),
        (8 << 10, 200)
    );
    assert_eq!(engine.packs().len(), 500);
    let refused = engine.refused();
    assert!(
        refused
            .iter()
            .any(|error| error.message.contains("more than 500 tools")),
        "{refused:?}"
    );
    engine.shutdown().await;
}
