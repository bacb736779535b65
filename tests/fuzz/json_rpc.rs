//! The MCP transport: messages over HTTP, with a session and without one, and lines as over stdin.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;

use axum::body::{Body, HttpBody};
use helmdeck_core::Caller;
use helmdeck_server::ServerConfig;
use helmdeck_server::mcp::{McpConfig, Stdio};
use helmdeck_testkit::ends;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::{check_problem, fixture, media_type};

/// The revision that has no sessions: each request brings everything along.
const NEWEST: &str = "2026-07-28";
/// What stands for [`META`] in an input, so that inputs stay short.
const PLACE: &[u8] = b"$meta";
/// What [`NEWEST`] wants in the `_meta` of each request.
const META: &[u8] = br#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}},"io.modelcontextprotocol/clientInfo":{"name":"fuzz","version":"0"}"#;
/// The longest line over stdin; inputs are longer.
const MAX_LINE_BYTES: u64 = 16 << 10;

/// What the transport answered.
#[derive(Debug)]
pub struct Answer {
    /// The status, 200 for lines.
    pub status: u16,
    /// All of it, as it was written.
    pub text: String,
    /// Its messages.
    pub messages: Vec<Value>,
}

/// Hands bytes to the MCP transport.
pub fn json_rpc(data: &[u8]) {
    answer(data);
}

/// The first byte chooses how the rest gets to the transport: `0` as a message with no more than
/// any request has, `1` with the headers of the newest revision, which repeat what the message
/// says, `2` in a session, `3` as lines over stdin. `None` if there is nothing.
pub fn answer(data: &[u8]) -> Option<Answer> {
    let (way, rest) = data.split_first()?;
    let bytes = filled(rest);
    let request: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let answer = match way % 4 {
        0 => post(&bytes, &[]),
        1 => post(&bytes, &said_in_headers(&request)),
        2 => in_a_session(&bytes),
        _ => return Some(lines(bytes)),
    };
    // An answer is to its request, or to a message whose id could not be read.
    for message in answer.messages.iter().filter(|message| is_last(message)) {
        // -0 is 0.
        let number = message["id"]
            .as_f64()
            .is_some_and(|id| request["id"].as_f64() == Some(id));
        assert!(
            message["id"].is_null() || number || message["id"] == request["id"],
            "{message} to {request}"
        );
    }
    Some(answer)
}

fn filled(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    let mut rest = data;
    while let Some(at) = rest.windows(PLACE.len()).position(|window| window == PLACE) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(META);
        rest = &rest[at + PLACE.len()..];
    }
    out.extend_from_slice(rest);
    out
}

fn said_in_headers(request: &Value) -> Vec<(&'static str, HeaderValue)> {
    let params = &request["params"];
    let name = ["name", "uri", "taskId"]
        .iter()
        .find_map(|key| params.get(key))
        .unwrap_or(&Value::Null);
    let mut headers = vec![("mcp-protocol-version", HeaderValue::from_static(NEWEST))];
    for (header, said) in [("mcp-method", &request["method"]), ("mcp-name", name)] {
        headers.extend(
            said.as_str()
                .and_then(|text| HeaderValue::from_str(text).ok())
                .map(|text| (header, text)),
        );
    }
    headers
}

/// Sends a message in the session that all inputs of a thread share.
///
/// If the session was closed because others began too many, it begins another one.
fn in_a_session(bytes: &[u8]) -> Answer {
    thread_local! {
        static SESSION: RefCell<Option<HeaderValue>> = const { RefCell::new(None) };
    }
    if let Some(id) = SESSION.with_borrow(Clone::clone) {
        let answer = post(bytes, &[("mcp-session-id", id)]);
        if answer.status != StatusCode::NOT_FOUND {
            return answer;
        }
    }
    let id = begin();
    SESSION.set(Some(id.clone()));
    post(bytes, &[("mcp-session-id", id)])
}

fn begin() -> HeaderValue {
    let client = json!({"name": "fuzz", "version": "0"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let (head, answer) = exchange(hello.to_string().as_bytes(), &[]);
    assert_eq!(answer.status, 200, "{}", answer.text);
    let id = head.headers()["mcp-session-id"].clone();
    let told = post(
        br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        &[("mcp-session-id", id.clone())],
    );
    assert_eq!(told.status, 202, "{}", told.text);
    id
}

fn post(bytes: &[u8], headers: &[(&'static str, HeaderValue)]) -> Answer {
    exchange(bytes, headers).1
}

/// Sends a message to the router.
///
/// The answer is never a 500, and contains only JSON-RPC or a problem.
fn exchange(bytes: &[u8], headers: &[(&'static str, HeaderValue)]) -> (Response<()>, Answer) {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri("/mcp")
        .header("host", "localhost")
        .header(CONTENT_TYPE, "application/json")
        .header("accept", "application/json, text/event-stream");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let request = request.body(Body::from(bytes.to_vec())).unwrap();
    let fixture = fixture();
    let (head, text) = fixture.runtime.block_on(async {
        let (parts, body) = fixture
            .router
            .clone()
            .oneshot(request)
            .await
            .unwrap()
            .into_parts();
        let head = Response::from_parts(parts, ());
        let is_stream = media_type(&head) == "text/event-stream";
        let what = format!("an answer to {:?}", String::from_utf8_lossy(bytes));
        (head, ends(what, read(body, is_stream)).await)
    });
    let status = head.status().as_u16();
    assert_ne!(status, 500, "{text}");
    let messages = match media_type(&head).as_str() {
        "application/json" => {
            vec![serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))]
        }
        "text/event-stream" => events(&text),
        "application/problem+json" => {
            check_problem(status, &serde_json::from_str(&text).unwrap(), "POST /mcp");
            Vec::new()
        }
        _ => Vec::new(),
    };
    messages.iter().for_each(check_message);
    (
        head,
        Answer {
            status,
            text,
            messages,
        },
    )
}

/// Reads a body.
///
/// A stream is read only up to the answer, or up to the acknowledgement of a subscription.
async fn read(mut body: Body, is_stream: bool) -> String {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if let Ok(data) = frame.unwrap().into_data() {
            bytes.extend_from_slice(&data);
        }
        let ends = |message: &Value| {
            is_last(message) || message["method"] == "notifications/subscriptions/acknowledged"
        };
        if is_stream
            && bytes.ends_with(b"\n\n")
            && events(&String::from_utf8_lossy(&bytes)).iter().any(ends)
        {
            break;
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn events(text: &str) -> Vec<Value> {
    let data = text
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(str::trim)
        .filter(|data| !data.is_empty());
    data.map(|data| serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}")))
        .collect()
}

fn is_last(message: &Value) -> bool {
    message.get("result").is_some() || message.get("error").is_some()
}

fn check_message(message: &Value) {
    assert_eq!(message["jsonrpc"], "2.0", "{message}");
    let parts = ["result", "error", "method"]
        .iter()
        .filter(|part| message.get(part).is_some())
        .count();
    assert_eq!(parts, 1, "{message}");
    if let Some(error) = message.get("error") {
        assert!(
            error["code"].is_i64() && error["message"].is_string(),
            "{message}"
        );
    }
}

/// Serves a client that says this and leaves. Every line that it gets is a message.
fn lines(input: Vec<u8>) -> Answer {
    let fixture = fixture();
    let config = ServerConfig {
        max_body_bytes: MAX_LINE_BYTES,
        ..ServerConfig::default()
    };
    let stdio = Stdio::new(
        fixture.engine.clone(),
        &config,
        McpConfig::default(),
        Caller::local(),
    );
    let text = fixture.runtime.block_on(async {
        let (mut says, heard) = tokio::io::duplex(1 << 16);
        let (told, mut hears) = tokio::io::duplex(1 << 16);
        let client = async move {
            // There may be no reader any more.
            let _ = says.write_all(&input).await;
            // Lets the requests end that rmcp answers: it drops them when the client leaves.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        };
        let mut text = String::new();
        let served = stdio.serve_over(heard, told, CancellationToken::new());
        let all = async { tokio::join!(client, served, hears.read_to_string(&mut text)) };
        let ((), served, read) = ends("the end of the lines", Box::pin(all)).await;
        served.unwrap();
        read.unwrap();
        text
    });
    let messages: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    messages.iter().for_each(check_message);
    Answer {
        status: 200,
        text,
        messages,
    }
}
