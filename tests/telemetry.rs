//! Seen from outside: request ids, trace contexts and OTLP, through the real program and a
//! collector that decodes with Google's classes.

use serde_json::{Value, json};

use crate::http_kind::{Host, answer as reply};
use crate::support::otlp::{Collector, attribute};
use crate::support::program::{Answer, Home, SERVE, Server};
use crate::support::{KEY, wait_for};

/// Trace contexts of a caller.
const OVER_REST: &str = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-aaaaaaaaaaaaaaaa-01";
const OVER_HTTP: &str = "00-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb-bbbbbbbbbbbbbbbb-01";
const IN_META: &str = "00-cccccccccccccccccccccccccccccccc-cccccccccccccccc-01";

/// Answers with the trace context of its environment.
const TRACED: &str = "#!/bin/sh\ncat >/dev/null\nprintf '{\"parent\":\"%s\",\"state\":\"%s\"}' \"$TRACEPARENT\" \"$TRACESTATE\"\n";
const BROKEN: &str = "#!/bin/sh\ncat >/dev/null\nexit 3\n";

fn home() -> Home {
    let home = Home::new();
    home.install("test.traced", TRACED, "");
    home.install("test.broken", BROKEN, "");
    home
}

/// Starts a server without a memory.
fn start(home: &Home, environment: &[(&str, &str)]) -> Server {
    let mut command = home.command(KEY, SERVE);
    command
        .env_remove("HELMDECK_MEMORY_KEY")
        .envs(environment.iter().copied());
    Server::launch(command)
}

/// Starts a server without a memory that exports to a collector.
fn exporting(home: &Home, collector: &Collector, more: &[(&str, &str)]) -> Server {
    let url = collector.url();
    let endpoint = [
        ("HELMDECK_TELEMETRY__ENDPOINT", url.as_str()),
        ("HELMDECK_TELEMETRY__INTERVAL", "1h"),
    ];
    start(home, &[&endpoint[..], more].concat())
}

fn call(server: &Server, pack: &str, headers: &str) -> Answer {
    server.ask(
        &format!("POST /api/v1/packs/{pack}\n{headers}"),
        "{\"repo\":\"a\"}",
    )
}

/// Calls a tool by a self-contained message of 2026-07-28.
fn call_tool(server: &Server, tool: &str, headers: &str, meta: &Value) -> Answer {
    let mut all = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    all.as_object_mut()
        .unwrap()
        .extend(meta.as_object().unwrap().clone());
    let params = json!({"name": tool, "arguments": {"repo": "a"}, "_meta": all});
    let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
    let head = format!(
        "POST /mcp\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n{headers}"
    );
    server.ask(&head, &message.to_string())
}

/// Stops a server, which sends what waits.
fn stop(server: &mut Server) {
    server.signal("-TERM");
    assert_eq!(server.ended(), Some(0), "{}", server.log());
}

/// Returns the only span with a name.
#[track_caller]
fn span<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    let found: Vec<&Value> = spans.iter().filter(|span| span["name"] == name).collect();
    let [span] = found[..] else {
        panic!("{name}: {spans:#?}")
    };
    span
}

/// Returns trace id and parent's span id of a `traceparent`.
fn ids(parent: &str) -> (&str, &str) {
    (&parent[3..35], &parent[36..52])
}

#[test]
fn every_answer_has_a_request_id() {
    let home = home();
    let server = start(&home, &[]);
    let given = call(&server, "test.broken", "X-Request-Id: order-7");
    assert_eq!(given.header("x-request-id"), Some("order-7"));
    assert_eq!(given.json()["request_id"], "order-7", "{}", given.body);
    let mut found = None;
    wait_for("the log line of the call", || {
        found = server
            .log()
            .lines()
            .find(|line| line.contains("call failed"))
            .map(str::to_owned);
        found.is_some()
    });
    let line = found.unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&line["request_id"], &line["pack.name"]),
        (&json!("order-7"), &json!("test.broken"))
    );

    for (head, body) in [
        ("POST /api/v1/packs/test.traced", "{\"repo\":\"a\"}"),
        ("GET /healthz", ""),
        ("GET /metrics", ""),
        ("GET /nowhere", ""),
        ("GET /ui", ""),
        ("POST /mcp", "{}"),
        ("GET /healthz\nX-Request-Id: not well formed", ""),
    ] {
        let answer = server.exchange(head, body).unwrap();
        let id = answer.header("x-request-id").unwrap_or_default();
        assert!(
            id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{head}: {}",
            answer.head
        );
    }
    let failed = call_tool(&server, "test__broken", "X-Request-Id: order-8", &json!({}));
    let problem = &failed.json()["result"]["_meta"]["helmdeck/problem"];
    assert_eq!(
        (failed.header("x-request-id"), &problem["request_id"]),
        (Some("order-8"), &json!("order-8"))
    );
}

#[test]
fn audit_rows_name_the_callers_request() {
    let home = home();
    let server = Server::start(&home, KEY);
    let _ = call(&server, "test.traced", "X-Request-Id: order-7");
    let _ = call(&server, "test.plain", "");
    let mut calls = Value::Null;
    wait_for("the audit rows", || {
        calls = server.ask("GET /api/v1/audit", "").json()["calls"].clone();
        calls.as_array().is_some_and(|calls| calls.len() >= 2)
    });
    let of = |pack: &str| {
        calls
            .as_array()
            .unwrap()
            .iter()
            .find(|call| call["pack"] == pack)
            .unwrap()
            .clone()
    };
    assert_eq!(of("test.traced")["request_id"], "order-7");
    assert!(of("test.plain").get("request_id").is_none());
}

#[test]
fn trace_context_passes_through_without_a_collector() {
    let home = home();
    let host = Host::start("127.0.0.1", |_| {
        reply("200 OK", "content-type: application/json\r\n", "{}")
    });
    install_http(&home, &host.address);
    let server = start(&home, &[("HELMDECK_EGRESS_ALLOW", "127.0.0.1")]);
    let traced = format!("traceparent: {OVER_REST}\r\ntracestate: rojo=1");
    let answer = call(&server, "test.traced", &traced).json();
    assert_eq!(
        answer["output"],
        json!({"parent": OVER_REST, "state": "rojo=1"})
    );
    let untraced = call(&server, "test.traced", "X-Request-Id: a").json();
    assert_eq!(untraced["output"], json!({"parent": "", "state": ""}));
    let meta = json!({"traceparent": IN_META});
    let answer = call_tool(
        &server,
        "test__traced",
        &format!("traceparent: {OVER_HTTP}"),
        &meta,
    )
    .json();
    assert_eq!(
        answer["result"]["structuredContent"]["parent"], IN_META,
        "{answer}"
    );
    assert_eq!(call(&server, "test.fetched", &traced).code, 200);
    let asked = host.asked();
    assert_eq!(
        asked[0].headers.get("traceparent").map(String::as_str),
        Some(OVER_REST)
    );
    assert_eq!(
        asked[0].headers.get("tracestate").map(String::as_str),
        Some("rojo=1")
    );
}

/// An MCP server whose tool answers with the `_meta` of the call.
const UPSTREAM: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    params = message.get("params", {})
    if message["method"] == "initialize":
        info = {"name": "up", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "meta", "description": "x", "inputSchema": {"type": "object"}}]}
    else:
        result = {"content": [], "structuredContent": {"meta": params.get("_meta", {})}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

#[test]
fn tools_of_other_servers_get_the_trace() {
    let home = Home::new();
    let program = home.packs().with_file_name("upstream.py");
    std::fs::write(&program, UPSTREAM).unwrap();
    let command = json!(["/usr/bin/python3", program.to_str().unwrap()]);
    home.configure(&format!(
        "[[mcp.servers]]\nname = \"up\"\ncommand = {command}\n"
    ));
    let server = start(&home, &[]);
    let answer = call(
        &server,
        "mcp.up.meta",
        &format!("traceparent: {OVER_REST}\r\ntracestate: rojo=1"),
    );
    assert_eq!(answer.code, 200, "{}", answer.body);
    let meta = &answer.json()["output"]["meta"];
    assert_eq!(
        (&meta["traceparent"], &meta["tracestate"]),
        (&json!(OVER_REST), &json!("rojo=1"))
    );
}

/// Installs a pack that makes an HTTP request.
fn install_http(home: &Home, address: &str) {
    let manifest = format!(
        "name = \"test.fetched\"\nversion = \"v1\"\ndescription = \"x\"\nread_only = true\n\
         [handler.http]\nurl = \"http://{address}/x\"\n[input]\ntype = \"object\"\n[output]\ntype = \"object\"\n"
    );
    std::fs::write(home.packs().join("test.fetched.toml"), manifest).unwrap();
}

#[test]
fn rest_call_is_one_trace() {
    let (home, collector) = (home(), Collector::refusing(1));
    let host = Host::start("127.0.0.1", |_| {
        reply("200 OK", "content-type: application/json\r\n", "{}")
    });
    install_http(&home, &host.address);
    let mut server = exporting(&home, &collector, &[("HELMDECK_EGRESS_ALLOW", "127.0.0.1")]);
    assert_eq!(
        call(
            &server,
            "test.fetched",
            &format!("traceparent: {OVER_REST}\r\ntracestate: rojo=1")
        )
        .code,
        200
    );
    let broken = call(
        &server,
        "test.broken",
        &format!("traceparent: {OVER_HTTP}\r\nX-Request-Id: order-7"),
    );
    assert!(broken.code >= 400);
    assert_eq!(server.ask("GET /healthz", "").code, 200);
    stop(&mut server);

    let (trace, parent) = ids(OVER_REST);
    let spans: Vec<Value> = collector
        .spans()
        .into_iter()
        .filter(|span| span["traceId"] == trace)
        .collect();
    let chain = [
        "POST /api/v1/packs/{name}",
        "pack test.fetched",
        "run test.fetched",
        "GET",
    ];
    let mut above = parent.to_owned();
    for name in chain {
        let span = span(&spans, name);
        assert_eq!(
            (&span["parentSpanId"], &span["traceState"]),
            (&json!(above), &json!("rojo=1")),
            "{name}"
        );
        span["spanId"].as_str().unwrap().clone_into(&mut above);
    }
    assert_eq!(spans.len(), chain.len(), "{spans:#?}");
    let asked = host.asked();
    assert_eq!(
        asked[0].headers["traceparent"],
        format!("00-{trace}-{above}-01")
    );
    let outer = span(&spans, chain[0]);
    assert_eq!(outer["kind"], "SPAN_KIND_SERVER");
    assert_eq!(
        attribute(outer, "http.route").as_deref(),
        Some("/api/v1/packs/{name}")
    );
    assert_eq!(
        attribute(outer, "http.response.status_code").as_deref(),
        Some("200")
    );

    let (trace, _) = ids(OVER_HTTP);
    let spans = collector.spans();
    let failed = spans
        .iter()
        .find(|span| span["name"] == "pack test.broken")
        .unwrap();
    assert_eq!(
        (&failed["traceId"], &failed["status"]["code"]),
        (&json!(trace), &json!("STATUS_CODE_ERROR"))
    );
    assert_eq!(
        attribute(failed, "error.type").as_deref(),
        Some("handler_failed")
    );
    assert!(
        !spans
            .iter()
            .any(|span| span["name"].as_str().unwrap().contains("healthz")),
        "{spans:#?}"
    );
    let logs = collector.logs();
    let line = logs
        .iter()
        .find(|line| attribute(line, "pack.name").as_deref() == Some("test.broken"))
        .unwrap();
    assert_eq!(
        (&line["traceId"], &line["severityText"]),
        (&json!(trace), &json!("WARN"))
    );
    assert_eq!(
        attribute(line, "helmdeck.request_id").as_deref(),
        Some("order-7")
    );
}

#[test]
fn mcp_call_is_in_the_trace_of_its_meta() {
    let (home, collector) = (home(), Collector::refusing(0));
    let mut server = exporting(&home, &collector, &[]);
    let meta = json!({"traceparent": IN_META, "tracestate": "rojo=1"});
    let answer = call_tool(
        &server,
        "test__traced",
        &format!("traceparent: {OVER_HTTP}"),
        &meta,
    )
    .json();
    let given = answer["result"]["structuredContent"].clone();
    stop(&mut server);

    let spans = collector.spans();
    let ((trace, parent), (of_http, above_http)) = (ids(IN_META), ids(OVER_HTTP));
    let (tool, http) = (
        span(&spans, "tools/call test__traced"),
        span(&spans, "POST /mcp"),
    );
    assert_eq!(
        (&http["traceId"], &http["parentSpanId"]),
        (&json!(of_http), &json!(above_http))
    );
    assert_eq!(
        (&tool["traceId"], &tool["parentSpanId"]),
        (&json!(trace), &json!(parent))
    );
    assert_eq!(
        (&tool["kind"], &tool["traceState"]),
        (&json!("SPAN_KIND_SERVER"), &json!("rojo=1"))
    );
    assert_eq!(tool["links"][0]["spanId"], http["spanId"]);
    for (name, value) in [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.tool.name", "test__traced"),
        ("gen_ai.operation.name", "execute_tool"),
        ("jsonrpc.request.id", "7"),
        ("mcp.protocol.version", "2026-07-28"),
        ("network.transport", "tcp"),
    ] {
        assert_eq!(attribute(tool, name).as_deref(), Some(value), "{name}");
    }
    let (pack, run) = (
        span(&spans, "pack test.traced"),
        span(&spans, "run test.traced"),
    );
    assert_eq!(
        (&pack["parentSpanId"], &run["parentSpanId"]),
        (&tool["spanId"], &pack["spanId"])
    );
    let inner = format!("00-{trace}-{}-01", run["spanId"].as_str().unwrap());
    assert_eq!(given, json!({"parent": inner, "state": "rojo=1"}));
}

#[test]
fn cached_calls_show_cache_and_store() {
    let (home, collector) = (home(), Collector::refusing(0));
    let url = collector.url();
    let mut server = Server::start_with(
        &home,
        KEY,
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &url),
            ("OTEL_SERVICE_NAME", "deck"),
        ],
    );
    for parent in [OVER_REST, OVER_HTTP] {
        assert_eq!(
            call(&server, "test.traced", &format!("traceparent: {parent}")).code,
            200
        );
    }
    let _ = call(&server, "test.traced", "X-Request-Id: new-trace");
    stop(&mut server);
    let spans = collector.spans();
    let (miss, _) = ids(OVER_REST);
    let of_miss: Vec<Value> = spans
        .iter()
        .filter(|span| span["traceId"] == miss)
        .cloned()
        .collect();
    let (pack, cache) = (span(&of_miss, "pack test.traced"), span(&of_miss, "cache"));
    assert_eq!(cache["parentSpanId"], pack["spanId"]);
    for inner in ["store get", "run test.traced"] {
        assert_eq!(
            span(&of_miss, inner)["parentSpanId"],
            cache["spanId"],
            "{inner}"
        );
    }
    assert_eq!(
        attribute(pack, "helmdeck.cache.status").as_deref(),
        Some("miss")
    );
    let (hit, _) = ids(OVER_HTTP);
    let of_hit: Vec<Value> = spans
        .iter()
        .filter(|span| span["traceId"] == hit)
        .cloned()
        .collect();
    assert_eq!(
        attribute(span(&of_hit, "pack test.traced"), "helmdeck.cache.status").as_deref(),
        Some("hit")
    );
    // Without a trace of the caller, one begins here.
    let first = spans
        .iter()
        .find(|span| attribute(span, "helmdeck.request_id").as_deref() == Some("new-trace"));
    assert!(first.unwrap().get("parentSpanId").is_none(), "{first:?}");
    let resource = &collector.received()[0].message["resourceSpans"][0]["resource"];
    assert_eq!(attribute(resource, "service.name").as_deref(), Some("deck"));
}

#[test]
fn metrics_arrive_with_headers_of_the_operator() {
    let (home, collector) = (home(), Collector::refusing(0));
    let headers = home.packs().with_file_name("headers");
    std::fs::write(
        &headers,
        "# for the collector\nauthorization: Bearer canary-otlp\n",
    )
    .unwrap();
    let file = headers.to_str().unwrap();
    let mut server = exporting(
        &home,
        &collector,
        &[("HELMDECK_TELEMETRY__HEADERS_FILE", file)],
    );
    let _ = call(&server, "test.traced", "X-Request-Id: a");
    stop(&mut server);
    assert!(!server.says("canary-otlp"), "{}", server.log());
    let received = collector.received();
    assert!(
        received
            .iter()
            .all(|one| one.headers["authorization"] == "Bearer canary-otlp"),
        "{received:#?}"
    );
    let metrics = collector.metrics();
    let named = |name: &str| {
        metrics
            .iter()
            .find(|metric| metric["name"] == name)
            .unwrap()
    };
    let calls = &named("helmdeck_calls")["sum"];
    assert_eq!(
        (&calls["isMonotonic"], &calls["dataPoints"][0]["asDouble"]),
        (&json!(true), &json!(1.0))
    );
    assert_eq!(
        attribute(&calls["dataPoints"][0], "pack").as_deref(),
        Some("test.traced")
    );
    let took = &named("helmdeck_call_duration_seconds")["histogram"]["dataPoints"][0];
    let (counts, bounds) = (
        took["bucketCounts"].as_array().unwrap(),
        took["explicitBounds"].as_array().unwrap(),
    );
    assert_eq!(
        (&took["count"], counts.len()),
        (&json!("1"), bounds.len() + 1)
    );
    assert!(
        named("process_resident_memory_bytes")["gauge"]["dataPoints"][0]["asDouble"]
            .as_f64()
            .unwrap()
            > 0.0
    );
}

#[test]
fn json_is_exported_and_outages_cost_no_call() {
    let (home, collector) = (home(), Collector::refusing(0));
    let json = [
        ("HELMDECK_TELEMETRY__PROTOCOL", "http/json"),
        ("HELMDECK_TELEMETRY__SAMPLE_RATIO", "0"),
    ];
    let mut server = exporting(&home, &collector, &json);
    let _ = call(&server, "test.traced", &format!("traceparent: {OVER_REST}"));
    let _ = call(&server, "test.traced", "X-Request-Id: not-sampled");
    stop(&mut server);
    let spans = collector.spans();
    let (trace, _) = ids(OVER_REST);
    assert!(
        !spans.is_empty() && spans.iter().all(|span| span["traceId"] == trace),
        "{spans:#?}"
    );
    assert_eq!(span(&spans, "run test.traced")["kind"], 1);

    let gone = collector.url();
    drop(collector);
    let server = start(&home, &[("HELMDECK_TELEMETRY__ENDPOINT", &gone)]);
    assert_eq!(
        call(&server, "test.traced", &format!("traceparent: {OVER_REST}")).code,
        200
    );
    wait_for("the warning", || {
        server.says("the collector took no telemetry")
    });
    assert!(server.says("it cannot be reached"), "{}", server.log());
    assert_eq!(
        call(&server, "test.traced", &format!("traceparent: {OVER_REST}")).code,
        200
    );
}
