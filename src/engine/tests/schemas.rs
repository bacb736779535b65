//! Schemas of others whose check takes very long: calls end, and nobody else waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use helmdeck_core::{Code, Error};
use helmdeck_engine::Engine;
use helmdeck_testkit::call;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::mcp::{Fixture, run, tool};

/// A schema that branches at each level of the document.
fn branching() -> Value {
    let alternatives = vec![json!({"properties": {"a": {"$ref": "#/$defs/n"}}}); 4];
    json!({"type": "object", "allOf": [{"$ref": "#/$defs/n"}], "$defs": {"n": {"anyOf": alternatives, "not": {"const": 1}}}})
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!({"a": inner}))
}

/// A schema that applies a rule to the member `a`, 8,100 times.
fn wide(rule: &Value) -> Value {
    let all_of = |next: &str| json!({"allOf": vec![json!({"$ref": next}); 90]});
    let defs = json!({"d0": all_of("#/$defs/d1"), "d1": all_of("#/$defs/d2"), "d2": rule});
    json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs})
}

/// Schemas by the keyword that makes them expensive, each with its document.
fn expensive() -> Vec<(&'static str, Value, Value)> {
    let text: String = (0..800_000_u32)
        .map(|n| char::from(b'c' + (n.wrapping_mul(n) >> 7).to_le_bytes()[0] % 13))
        .collect();
    let text = json!(text);
    let arrays: Value = (0..3_000).map(|n| json!([n])).collect();
    let members: Value = (0..20_000)
        .map(|n| (format!("m{n}"), json!(n)))
        .collect::<Map<_, _>>()
        .into();
    let pattern = r"(\w|[a-c]x|\d)[^b]{1,60}$|q";
    let mut cases = vec![("branching", branching(), nested(100))];
    for (keyword, rule, value) in [
        ("pattern", json!({"pattern": pattern}), &text),
        ("minLength", json!({"minLength": 1}), &text),
        ("const", json!({"const": arrays}), &arrays),
        ("uniqueItems", json!({"uniqueItems": true}), &arrays),
        (
            "contains",
            json!({"contains": {"const": 1}, "minContains": 0, "maxContains": 1}),
            &arrays,
        ),
        (
            "propertyNames",
            json!({"propertyNames": {"pattern": pattern}}),
            &members,
        ),
        (
            "patternProperties",
            json!({"patternProperties": {pattern: true}}),
            &members,
        ),
        (
            "unevaluatedProperties",
            json!({"properties": {"x": true}, "unevaluatedProperties": {"minimum": 0}}),
            &members,
        ),
    ] {
        cases.push((keyword, wide(&rule), json!({"a": value})));
    }
    cases
}

/// The check ended by its own limits, and says so.
#[track_caller]
fn ended_by_a_limit(what: &str, error: &Error, code: Code) {
    let too_much = error.code() == code && error.to_string().contains("too many steps");
    // On a slow machine the caller's own limit may end first.
    let late = error.code() == Code::Timeout && error.to_string().contains(" in time");
    assert!(too_much || late, "{what}: {error}");
}

/// Calls a tool on a runtime of one thread, and counts how often something else ran meanwhile.
///
/// That is 0 or 1 if the check runs on the runtime, and more otherwise, on however slow a machine.
async fn beside(engine: &Engine, tool: &str, input: &str) -> (Error, u32) {
    let ticks = Arc::new(AtomicU32::new(0));
    let ticking = tokio::spawn({
        let ticks = Arc::clone(&ticks);
        async move {
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                ticks.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let mut hurried = call(&format!("mcp.x.{tool}"), input);
    hurried.deadline = Some(Instant::now() + Duration::from_secs(2));
    let error = engine.call(hurried).await.unwrap_err();
    ticking.abort();
    (error, ticks.load(Ordering::SeqCst))
}

#[tokio::test]
async fn expensive_inputs_end_and_leave_the_runtime_alone() {
    let fixture = Fixture::new();
    let cases = expensive();
    let tools: Value = cases
        .iter()
        .map(|(keyword, schema, _)| tool(keyword, schema.clone()))
        .collect();
    fixture.write("tools.json", &tools.to_string());
    let engine = fixture.engine();
    engine.import_all(Duration::from_secs(60)).await;
    for (keyword, _, document) in &cases {
        let (error, ticks) = beside(&engine, keyword, &document.to_string()).await;
        ended_by_a_limit(keyword, &error, Code::InvalidInput);
        assert!(ticks > 1, "{keyword}: {ticks}");
    }
    engine.shutdown().await;
}

#[tokio::test]
async fn expensive_answers_end_and_leave_the_runtime_alone() {
    for (keyword, schema, document) in expensive() {
        if !["branching", "pattern", "uniqueItems"].contains(&keyword) {
            continue;
        }
        let fixture = Fixture::new();
        let described =
            json!({"name": "nested", "inputSchema": {"type": "object"}, "outputSchema": schema});
        fixture.write("tools.json", &json!([described]).to_string());
        fixture.write("nested.json", &document.to_string());
        let engine = fixture.engine();
        engine.await_pack("mcp.x.nested").await.unwrap();
        let error = run(&engine, "mcp.x.nested").await.unwrap_err();
        ended_by_a_limit(keyword, &error, Code::InvalidOutput);
        let (error, ticks) = beside(&engine, "nested", "{}").await;
        ended_by_a_limit(keyword, &error, Code::InvalidOutput);
        assert!(ticks > 1, "{keyword}: {ticks}");
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn a_deadline_or_a_cancelled_call_ends_a_check() {
    let fixture = Fixture::new();
    fixture.write(
        "tools.json",
        &json!([tool("nested", branching())]).to_string(),
    );
    fixture.write("nested.json", "{}");
    let engine = fixture.engine();
    engine.await_pack("mcp.x.nested").await.unwrap();
    let mut hurried = call("mcp.x.nested", &nested(100).to_string());
    hurried.deadline = Some(Instant::now() + Duration::from_millis(1));
    assert_eq!(
        engine.call(hurried).await.unwrap_err().code(),
        Code::Timeout
    );
    let mut unwanted = call("mcp.x.nested", &nested(100).to_string());
    let cancel = CancellationToken::new();
    cancel.cancel();
    unwanted.cancel = Some(cancel);
    assert_eq!(
        engine.call(unwanted).await.unwrap_err().code(),
        Code::Cancelled
    );
    // The threads are free again: what is quick is quick.
    assert_eq!(run(&engine, "mcp.x.nested").await.unwrap(), json!({}));
    engine.shutdown().await;
}

#[tokio::test]
async fn defaults_make_no_input_too_large() {
    let fixture = Fixture::new();
    let items = json!({"properties": {"b": {"type": "string", "default": "x".repeat(20_000)}}});
    let schema = json!({"type": "object", "properties": {"a": {"type": "array", "items": items}}});
    fixture.write("tools.json", &json!([tool("nested", schema)]).to_string());
    fixture.write("nested.json", "{}");
    let engine = fixture.engine();
    engine.await_pack("mcp.x.nested").await.unwrap();
    let input = json!({"a": vec![json!({}); 1_000]}).to_string();
    let error = engine.call(call("mcp.x.nested", &input)).await.unwrap_err();
    assert_eq!(error.code(), Code::TooLarge, "{error}");
    assert!(
        error.to_string().contains("defaults of the schema"),
        "{error}"
    );
    engine.shutdown().await;
}
