//! Packs that a caller may not run: it does not learn that they exist.

use std::sync::Arc;

use ::http::Request;
use async_trait::async_trait;
use axum::body::Body;
use helmdeck_core::{
    Builtin, Caller, Context, Handler, Identity, Json, Need, Permissions, Reply, Result,
};
use helmdeck_engine::{Config, Engine};
use serde_json::json;

use super::*;
use crate::ServerConfig;
use crate::mcp::{Mcp, McpConfig};

struct Still;

#[async_trait]
impl Handler for Still {
    async fn run(&self, _: Context, _: Json) -> Result<Reply> {
        Reply::value(&json!({}))
    }
}

/// Three packs: callers may see `a.seen`; names or headers could reveal the other two.
fn mcp() -> Mcp {
    let pack = |name: &str, property: &str| {
        let manifest = format!(
            "name = \"{name}\"\nversion = \"v1\"\ndescription = \"Says it again\"\nread_only = true\n[handler]\n\
             builtin = \"{name}\"\n[input]\ntype = \"object\"\n[input.properties]\n{property}\n[output]\n"
        );
        let manifest = Box::leak(manifest.into_boxed_str());
        Builtin {
            file: "packs/t.toml",
            schemas: "",
            manifest,
            handler: Arc::new(Still),
            need: Need::Nothing,
        }
    };
    let headers = "region = { type = \"string\", x-mcp-header = \"Region\" }";
    let packs = vec![
        pack("a.seen", ""),
        pack("b.hidden", ""),
        pack("b.asks", headers),
    ];
    let engine = Engine::builder(Config::default()).builtins(packs).build();
    assert!(engine.refused().is_empty(), "{:?}", engine.refused());
    let clock = Arc::new(helmdeck_core::SystemClock::default());
    Mcp::new(
        engine,
        &ServerConfig::default(),
        McpConfig::default(),
        clock,
        None,
        None,
        None,
    )
}

fn caller(scope: &str) -> Caller {
    Caller::new(
        Identity::new("t", "alice").unwrap(),
        Permissions::of_scope(scope),
    )
}

/// Sends a message of the newest revision and returns the status and the message that comes back.
async fn ask_as(mcp: &Mcp, caller: &Caller, method: &str, name: &str) -> (u16, Value) {
    let key = if method == "tools/call" {
        "name"
    } else {
        "uri"
    };
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": NEWEST, "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    });
    let mut params = json!({"_meta": meta});
    params[key] = name.into();
    if method == "tools/call" {
        params["arguments"] = json!({"region": "eu"});
    }
    let mut built = Request::builder()
        .method(Method::POST)
        .uri("/mcp")
        .header("host", "localhost");
    let headers = [
        ("mcp-protocol-version", NEWEST),
        ("mcp-method", method),
        ("mcp-name", name),
    ];
    for (header, value) in HEADERS.into_iter().chain(headers) {
        built = built.header(header, value);
    }
    let response = mcp
        .handle(
            caller.clone(),
            None,
            built.body(Body::from(request(method, &params))).unwrap(),
        )
        .await;
    let (parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let body = String::from_utf8(body.to_vec()).unwrap();
    (
        parts.status.as_u16(),
        message(&Answer {
            status: parts.status,
            headers: parts.headers,
            body,
        }),
    )
}

/// Asks for an existing pack and for a missing one, and returns the one answer to both.
async fn same(
    mcp: &Mcp,
    caller: &Caller,
    method: &str,
    [real, unreal]: [&str; 2],
) -> (u16, String) {
    let there = ask_as(mcp, caller, method, real).await;
    let not_there = ask_as(mcp, caller, method, unreal).await;
    let without = |text: String, name: &str| {
        text.replace(name, "*")
            .replace(&name.replace("__", "."), "*")
    };
    let (there, not_there) = (
        (there.0, without(there.1.to_string(), real)),
        (not_there.0, without(not_there.1.to_string(), unreal)),
    );
    assert_eq!(there, not_there, "{real} {unreal}");
    assert!(there.1.contains("\"error\""), "{}", there.1);
    there
}

#[tokio::test]
async fn forbidden_tools_look_like_unknown_ones() {
    let mcp = mcp();
    for scope in ["packs:run:a.*", "packs:run:b.x*", "memory:read"] {
        let caller = caller(scope);
        for real in ["b__hidden", "b__asks"] {
            let (_, told) = same(&mcp, &caller, "tools/call", [real, "b__nothin"]).await;
            assert!(told.contains("packs:run:*"), "{told}");
        }
    }
    let seen = ask_as(&mcp, &caller("packs:run:a.*"), "tools/call", "a__seen").await;
    assert!(seen.1["result"].is_object(), "{seen:?}");
    let missing = ask_as(&mcp, &caller("packs:run:a.*"), "tools/call", "a__sen")
        .await
        .1
        .to_string();
    assert!(missing.contains("Unknown tool: a__sen"), "{missing}");
    let asks = ask_as(&mcp, &caller("packs:run"), "tools/call", "b__asks").await;
    assert_eq!(
        (asks.0, asks.1["error"]["code"].as_i64()),
        (400, Some(-32020)),
        "the header is missing: {asks:?}"
    );
}

#[tokio::test]
async fn forbidden_packs_look_like_unknown_ones() {
    let mcp = mcp();
    let address = |pack: &str| format!("helmdeck://packs/{pack}");
    let read = async |scope: &str, pack: &str| {
        ask_as(&mcp, &caller(scope), "resources/read", &address(pack))
            .await
            .1
    };
    for scope in ["packs:run:a.*", "memory:read"] {
        let (there, not_there) = (read(scope, "b.hidden").await, read(scope, "b.hiddem").await);
        assert_eq!(
            there.to_string(),
            not_there.to_string().replace("b.hiddem", "b.hidden"),
            "{scope}"
        );
        assert_eq!(there["error"]["data"]["code"], "forbidden", "{there}");
    }
    assert!(read("packs:run:a.*", "a.seen").await["result"]["contents"].is_array());
    // One that may be run if there were one: the engine's suggestions are of all packs.
    let missing = read("packs:run:b.hiddem", "b.hiddem").await;
    assert_eq!(missing["error"]["data"]["code"], "not_found", "{missing}");
    assert!(!missing.to_string().contains("b.hidden"), "{missing}");
    let suggested = read("packs:run", "b.hiddem").await;
    assert!(suggested.to_string().contains("b.hidden"), "{suggested}");
}
