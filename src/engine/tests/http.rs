//! Packs that make an HTTP request, against a scripted server on loopback.
//!
//! 127.0.0.1 is allowed and represents the internet. 127.0.0.2 is allowed where a test says so;
//! otherwise it represents the internal network.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use helmdeck_core::secrets::{Grant, Secrets};
use helmdeck_core::{
    CacheStatus, Clock, Code, Error, Identity, NotKept, Outcome, PackName, Result, Secret,
};
use helmdeck_egress::Egress;
use helmdeck_engine::{Config, Engine};
use helmdeck_testkit::{ManualClock, call, memory};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use crate::support::status;

const CANARY: &str = "canary-7Hq2-token";

/// What came in.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    /// `GET /path?query`.
    line: String,
    pub(crate) headers: HashMap<String, String>,
    body: String,
}

/// A server whose answers a function makes. Every connection is for one request.
pub(crate) struct Upstream {
    pub(crate) address: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Upstream {
    pub(crate) async fn start(
        ip: &str,
        answer: impl Fn(&Request) -> String + Send + Sync + 'static,
    ) -> Self {
        Self::raw(ip, move |request| answer(request).into_bytes()).await
    }

    async fn raw(ip: &str, answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (answer, log) = (Arc::new(answer), Arc::clone(&requests));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    let mut request = Request::default();
                    let mut line = String::new();
                    while stream.read_line(&mut line).await.unwrap_or(0) > 2 {
                        let text = line.trim_end().to_owned();
                        match text.split_once(": ").filter(|_| !request.line.is_empty()) {
                            Some((name, value)) => {
                                request
                                    .headers
                                    .insert(name.to_ascii_lowercase(), value.to_owned());
                            }
                            None => request.line = text.trim_end_matches(" HTTP/1.1").to_owned(),
                        }
                        line.clear();
                    }
                    let length = request
                        .headers
                        .get("content-length")
                        .map_or(0, |length| length.parse().unwrap());
                    let mut body = vec![0; length];
                    stream.read_exact(&mut body).await.unwrap();
                    request.body = String::from_utf8(body).unwrap();
                    log.lock().unwrap().push(request.clone());
                    let _ = stream.get_mut().write_all(&answer(&request)).await;
                });
            }
        });
        Self { address, requests }
    }

    fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

pub(crate) fn answer(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
}

fn json(body: &str) -> String {
    answer(
        "200 OK",
        "content-type: application/json; charset=utf-8\r\n",
        body,
    )
}

struct Wallet(Option<&'static str>);

impl Secrets for Wallet {
    fn grant(&self, name: &str, _: &Identity, _: &PackName) -> Result<Option<Grant>> {
        Ok((name == "key")
            .then(|| Grant {
                name: name.to_owned(),
                version: 1,
            })
            .filter(|_| self.0.is_some()))
    }

    fn reveal(&self, _: &Grant, _: &Identity, _: &PackName) -> Result<Secret> {
        let host: helmdeck_core::caller::Glob = self.0.unwrap().parse().unwrap();
        Ok(Secret::new(format!("{CANARY}\n")).for_hosts(Arc::new([host])))
    }

    fn generation(&self) -> u64 {
        0
    }
}

struct Fixture {
    engine: Engine,
    clock: Arc<ManualClock>,
    folder: tempfile::TempDir,
}

impl Fixture {
    /// An engine with the packs of a folder; `host` is the host of the credential `key`, if any.
    async fn with(allow: &[&str], host: Option<&'static str>, packs: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (index, text) in packs.iter().enumerate() {
            write(folder.path(), &format!("{index}.toml"), text);
        }
        let clock = Arc::new(ManualClock::default());
        let allow = allow.iter().map(|text| text.parse().unwrap()).collect();
        let egress = Egress::new(helmdeck_egress::Config {
            allow,
            ..helmdeck_egress::Config::default()
        });
        let engine = Engine::builder(Config::default())
            .packs_dir(folder.path())
            .memory(memory(Arc::clone(&clock) as Arc<dyn Clock>).await)
            .secrets(Arc::new(Wallet(host)))
            .egress(egress)
            .clock(Arc::clone(&clock) as _)
            .build();
        assert!(engine.refused().is_empty(), "{:?}", engine.refused());
        Self {
            engine,
            clock,
            folder,
        }
    }

    async fn open(packs: &[String]) -> Self {
        Self::with(&["127.0.0.1"], None, packs).await
    }

    async fn run(&self, input: &str) -> Outcome {
        self.engine
            .call(call("t.http", input))
            .await
            .unwrap_or_else(|error| panic!("{error}: {}", error.cause()))
    }

    async fn fail(&self, input: &str) -> Error {
        let error = self.engine.call(call("t.http", input)).await.unwrap_err();
        assert!(
            !format!("{error} {}", error.cause()).contains("canary"),
            "{error}"
        );
        error
    }
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}

const SCHEMA: &str =
    "[input]\ntype = \"object\"\n[input.properties]\nid = {}\nq = { type = \"string\" }\n";

/// The pack `t.http`; `http` is its `[handler.http]`, `memory` the content of `[memory]`.
fn pack(http: &str, memory: &str) -> String {
    let memory = if memory.is_empty() {
        String::new()
    } else {
        format!("[memory]\ncache = true\n{memory}\n")
    };
    format!(
        "name = \"t.http\"\nversion = \"v1\"\ndescription = \"x\"\nread_only = true\ncredentials = [\"key\"]\n\
         [handler]\ntimeout = \"20s\"\n[handler.http]\n{http}\n{SCHEMA}\n{memory}"
    )
}

#[tokio::test]
async fn json_is_unchanged_and_text_a_string() {
    let upstream = Upstream::raw("127.0.0.1", |request| match request.line.as_str() {
        "GET /json?q=a%20b" => json("{ \"n\": 1.50,\n \"b\": 98765432109876543210 }").into_bytes(),
        "GET /problem" => answer(
            "200 OK",
            "content-type: application/problem+JSON\r\n",
            "[1]",
        )
        .into_bytes(),
        "GET /text" => {
            answer("200 OK", "content-type: text/plain\r\n", "{\"a\": \"ü\"}").into_bytes()
        }
        "GET /none" => answer("204 No Content", "", "").into_bytes(),
        "GET /broken" => json("{\"a\": ").into_bytes(),
        "GET /binary" => [
            answer("200 OK", "", "")
                .replace("length: 0", "length: 2")
                .as_bytes(),
            &[0xff, 0xfe],
        ]
        .concat(),
        "GET /twice" => json("{\"a\": 1, \"a\": 2}").into_bytes(),
        "GET /deep" => json(&format!("{}{}", "[".repeat(2000), "]".repeat(2000))).into_bytes(),
        "GET /zipped" => answer("200 OK", "content-encoding: gzip\r\n", "bomb").into_bytes(),
        line => panic!("{line}"),
    })
    .await;
    let url = format!("url = \"http://{}/{{id}}?q={{q}}\"", upstream.address);
    let fixture = Fixture::open(&[pack(&url, "")]).await;
    assert_eq!(
        fixture
            .run("{\"id\":\"json\",\"q\":\"a b\"}")
            .await
            .output
            .as_str(),
        "{ \"n\": 1.50,\n \"b\": 98765432109876543210 }"
    );
    assert_eq!(
        fixture.run("{\"id\":\"problem\"}").await.output.as_str(),
        "[1]"
    );
    assert_eq!(
        fixture.run("{\"id\":\"text\"}").await.output.as_str(),
        "\"{\\\"a\\\": \\\"ü\\\"}\""
    );
    assert_eq!(
        fixture.run("{\"id\":\"none\"}").await.output.as_str(),
        "null"
    );
    for id in ["broken", "binary", "twice", "deep", "zipped"] {
        assert_eq!(
            fixture.fail(&format!("{{\"id\":\"{id}\"}}")).await.code(),
            Code::InvalidOutput,
            "{id}"
        );
    }
    let first = &upstream.requests()[0];
    assert_eq!(first.headers["accept-encoding"], "identity");
    assert!(
        !first.headers.contains_key("authorization"),
        "no credential, no header"
    );
}

#[tokio::test]
async fn full_output_has_headers_without_cookies() {
    let upstream = Upstream::start("127.0.0.1", |_| {
        answer(
            "404 Not Found",
            "X-A: 1\r\nx-a: 2\r\nset-cookie: session=secret\r\ncontent-type: application/json\r\n",
            "{}",
        )
    })
    .await;
    let http = format!(
        "url = \"http://{}/\"\noutput = \"full\"\nok = [200, 404]",
        upstream.address
    );
    let output = Fixture::open(&[pack(&http, "")])
        .await
        .run("{}")
        .await
        .output
        .to_value();
    assert_eq!(
        (&output["status"], &output["body"]),
        (&404.into(), &serde_json::json!({}))
    );
    assert_eq!(output["headers"]["x-a"], "1, 2");
    assert!(output["headers"].get("set-cookie").is_none());

    let head = http.replace("url", "method = \"HEAD\"\nurl");
    let output = Fixture::open(&[pack(&head, "")])
        .await
        .run("{}")
        .await
        .output
        .to_value();
    assert_eq!(
        (&output["status"], &output["body"]),
        (&404.into(), &serde_json::Value::Null)
    );
}

#[tokio::test]
async fn bodies_are_json_or_form() {
    let upstream = Upstream::start("127.0.0.1", |_| json("1")).await;
    for (body, media_type, expected) in [
        (
            "body = { a = \"{id}\", b = \"{q}\" }",
            "application/json",
            "{\"a\":[1,2]}",
        ),
        (
            "body = { a = \"{id}\" }\nbody_type = \"form\"",
            "application/x-www-form-urlencoded",
            "a=1&a=2",
        ),
        (
            "body = { a = 1 }\nheaders = { Content-Type = \"application/vnd.api+json\" }",
            "application/vnd.api+json",
            "{\"a\":1}",
        ),
    ] {
        let http = format!(
            "method = \"POST\"\nurl = \"http://{}/search\"\n{body}",
            upstream.address
        );
        Fixture::open(&[pack(&http, "")])
            .await
            .run("{\"id\":[1,2]}")
            .await;
        let request = upstream.requests().pop().unwrap();
        assert_eq!(
            (request.line.as_str(), request.body.as_str()),
            ("POST /search", expected)
        );
        assert_eq!(request.headers["content-type"], media_type);
    }
}

#[tokio::test]
async fn statuses_become_closed_codes() {
    let upstream = Upstream::start("127.0.0.1", |request| {
        let status = request.line.trim_start_matches("GET /");
        let wait = if matches!(status, "429" | "503") {
            "retry-after: 7\r\n"
        } else {
            ""
        };
        answer(&format!("{status} X"), wait, "canary of the body")
    })
    .await;
    let fixture = Fixture::open(&[pack(
        &format!("url = \"http://{}/{{id}}\"", upstream.address),
        "",
    )])
    .await;
    for (status, code, wait) in [
        (400, Code::InvalidInput, None),
        (401, Code::CredentialInvalid, None),
        (403, Code::Forbidden, None),
        (404, Code::NotFound, None),
        (409, Code::Conflict, None),
        (410, Code::NotFound, None),
        (413, Code::TooLarge, None),
        (418, Code::HandlerFailed, None),
        (422, Code::InvalidInput, None),
        (429, Code::RateLimited, Some(7)),
        (500, Code::HandlerFailed, None),
        (503, Code::HandlerFailed, Some(7)),
        (504, Code::Timeout, None),
        (304, Code::HandlerFailed, None),
        (302, Code::HandlerFailed, None),
    ] {
        let error = fixture.fail(&format!("{{\"id\":{status}}}")).await;
        assert_eq!(
            (error.code(), error.retry_after()),
            (code, wait.map(Duration::from_secs)),
            "{status}"
        );
        // A body of no known type is not repeated.
        assert!(
            error.message().contains("127.0.0.1") && !error.message().contains("canary"),
            "{error}"
        );
    }
    assert_eq!(upstream.count(), 15, "an answer is never asked for twice");
}

#[tokio::test]
async fn a_refused_request_says_what_the_server_said() {
    let upstream = Upstream::start("127.0.0.1", |request| {
        match request.line.trim_start_matches("GET /") {
            "json" => answer(
                "422 X",
                "content-type: application/json\r\n",
                "{\"message\":\n \"no such\u{1b}[2J city\"}",
            ),
            "long" => answer(
                "500 X",
                "content-type: text/plain\r\n",
                &format!("begin {} end", "x".repeat(100_000)),
            ),
            "echo" => answer(
                "401 X",
                "content-type: text/plain\r\n",
                &format!("bad key {}", request.headers["x-api-key"]),
            ),
            "token" => answer(
                "400 X",
                "content-type: text/plain\r\n",
                &format!("gh{}_{}", "p", "aB3dE6gH9j".repeat(4)),
            ),
            "page" => answer("404 X", "content-type: text/html\r\n", "<p>canary</p>"),
            "zip" => answer(
                "404 X",
                "content-type: application/json\r\ncontent-encoding: gzip\r\n",
                "canary",
            ),
            _ => answer("404 X", "content-type: application/json\r\n", ""),
        }
    })
    .await;
    let http = format!(
        "url = \"http://{}/{{id}}\"\nheaders = {{ X-Api-Key = \"k {{credential:key}}\" }}",
        upstream.address
    );
    let fixture = Fixture::with(&["127.0.0.1"], Some("127.0.0.1"), &[pack(&http, "")]).await;
    let said = async |id: &str| {
        fixture
            .fail(&format!("{{\"id\":\"{id}\"}}"))
            .await
            .message()
            .to_owned()
    };
    let json = "127.0.0.1 rejected the input (status 422); the server says: \"{\"message\": \"no such\\u{1b}[2J city\"}\"";
    assert_eq!(said("json").await, json);
    let long = said("long").await;
    assert!(
        long.contains("the server says: \"begin xxx")
            && long.ends_with("x...\"")
            && long.len() < 1200,
        "{long}"
    );
    let echo = said("echo").await;
    assert!(
        echo.ends_with("the server says: \"bad key k [secret]\""),
        "{echo}"
    );
    let token = said("token").await;
    assert!(
        token.contains("not repeated") && !token.contains("aB3dE6gH9j"),
        "{token}"
    );
    for id in ["page", "zip", "empty"] {
        assert_eq!(
            said(id).await,
            "127.0.0.1 found nothing at this address (status 404)",
            "{id}"
        );
    }
}

#[tokio::test]
async fn long_answer_is_refused_announced_or_not() {
    let upstream = Upstream::start("127.0.0.1", |request| match request.line.as_str() {
        "GET /announced" => json(&format!("\"{}\"", "x".repeat(2000))),
        "GET /endless" => format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}",
            "x".repeat(2000)
        ),
        _ => json(&format!("\"{}\"", "x".repeat(1022))),
    })
    .await;
    let http = format!(
        "url = \"http://{}/{{id}}\"\nmax_response_bytes = \"1KiB\"",
        upstream.address
    );
    let fixture = Fixture::open(&[pack(&http, "")]).await;
    fixture.run("{\"id\":\"fits\"}").await;
    for id in ["announced", "endless"] {
        let error = fixture.fail(&format!("{{\"id\":\"{id}\"}}")).await;
        assert_eq!(
            (error.code(), error.message()),
            (
                Code::InvalidOutput,
                "the answer of 127.0.0.1 is over 1024 bytes"
            )
        );
    }
}

#[tokio::test]
async fn credential_reaches_only_its_host_and_is_redacted() {
    let upstream = Upstream::start("127.0.0.1", |request| {
        json(&format!("{:?}", request.headers["x-api-key"]))
    })
    .await;
    let http = format!(
        "url = \"http://{}/\"\nheaders = {{ X-Api-Key = \"k {{credential:key}}\" }}",
        upstream.address
    );
    let fixture = Fixture::with(
        &["127.0.0.1"],
        Some("127.0.0.1"),
        &[pack(&http, "ttl = \"60s\"")],
    )
    .await;
    let outcome = fixture.run("{}").await;
    assert_eq!(
        upstream.requests()[0].headers["x-api-key"],
        format!("k {CANARY}")
    );
    assert_eq!(outcome.output.as_str(), "\"k [secret]\"");
    assert_eq!(
        status(&fixture.run("{}").await),
        CacheStatus::Miss,
        "an answer with a secret in it is not stored"
    );

    let other = Fixture::with(&["127.0.0.1"], Some("api.example.com"), &[pack(&http, "")]).await;
    let error = other.fail("{}").await;
    assert_eq!(error.code(), Code::Forbidden, "{error}");
    assert_eq!(upstream.count(), 2, "nothing was sent");
}

#[tokio::test]
async fn no_header_follows_a_redirect_to_another_host() {
    let elsewhere = Upstream::start("127.0.0.2", |_| json("\"moved\"")).await;
    let target = elsewhere.address.clone();
    let upstream = Upstream::start("127.0.0.1", move |request| match request.line.as_str() {
        "GET /away" => answer(
            "302 Found",
            &format!("location: http://u:p@{target}/x\r\n"),
            "",
        ),
        "GET /near" => answer("307 Temporary Redirect", "location: /there?a=b\r\n", ""),
        "GET /there?a=b" => json(&format!(
            "\"{}\"",
            request.headers.contains_key("x-api-key")
        )),
        line => panic!("{line}"),
    })
    .await;
    let http = format!(
        "url = \"http://{}/{{id}}\"\nheaders = {{ X-Api-Key = \"{{credential:key}}\", Authorization = \"Bearer {{q}}\", Accept = \"a/b\" }}",
        upstream.address
    );
    let fixture = Fixture::with(&["127.0.0.1", "127.0.0.2"], Some("*"), &[pack(&http, "")]).await;
    assert_eq!(
        fixture
            .run("{\"id\":\"near\",\"q\":\"mine\"}")
            .await
            .output
            .as_str(),
        "\"true\"",
        "the same host"
    );
    assert_eq!(
        fixture
            .run("{\"id\":\"away\",\"q\":\"mine\"}")
            .await
            .output
            .as_str(),
        "\"moved\""
    );
    let seen = &elsewhere.requests()[0];
    assert_eq!(seen.line, "GET /x");
    assert_eq!(seen.headers["accept"], "a/b");
    for gone in ["x-api-key", "authorization", "cookie", "referer"] {
        assert!(!seen.headers.contains_key(gone), "{gone}: {seen:?}");
    }
}

#[tokio::test]
async fn redirects_are_checked_limited_and_reads_only() {
    let inner = Upstream::start("127.0.0.2", |_| json("\"inner\"")).await;
    let target = inner.address.clone();
    let upstream = Upstream::start("127.0.0.1", move |request| {
        let location = match request.line.split(' ').nth(1).unwrap() {
            "/inner" => format!("http://{target}/"),
            "/mapped" => format!(
                "http://[::ffff:127.0.0.2]:{}/",
                target.rsplit(':').next().unwrap()
            ),
            "/user" => format!("http://127.0.0.1@{target}/"),
            "/name" => format!("http://localhost:{}/", target.rsplit(':').next().unwrap()),
            "/meta" => "http://169.254.169.254/latest/meta-data/".to_owned(),
            "/file" => "file:///etc/passwd".to_owned(),
            "/bad" => "http://".to_owned(),
            _ => "/loop".to_owned(),
        };
        answer("302 Found", &format!("location: {location}\r\n"), "")
    })
    .await;
    let http = format!("url = \"http://{}/{{id}}\"", upstream.address);
    let fixture = Fixture::open(&[pack(&http, "")]).await;
    for (id, code, why) in [
        ("inner", Code::Forbidden, "it is a loopback address"),
        ("mapped", Code::Forbidden, "it is a loopback address"),
        ("user", Code::Forbidden, "it is a loopback address"),
        ("name", Code::Forbidden, "it resolves to a loopback address"),
        ("meta", Code::Forbidden, "it is a metadata service"),
        ("file", Code::HandlerFailed, "redirects to an invalid URL"),
        ("bad", Code::HandlerFailed, "redirects to an invalid URL"),
        ("loop", Code::HandlerFailed, "more than 5 times"),
    ] {
        // `localhost` may resolve to the open address too; then the connection goes there and finds
        // no server.
        let error = fixture.fail(&format!("{{\"id\":\"{id}\"}}")).await;
        if id == "name" && error.code() == Code::HandlerFailed {
            continue;
        }
        assert_eq!(error.code(), code, "{id}: {error}");
        assert!(error.message().contains(why), "{id}: {error}");
    }
    assert_eq!(inner.count(), 0);
    let before = upstream.count();
    let post = Fixture::open(&[pack(
        &format!("method = \"POST\"\n{http}\nbody = {{ a = 1 }}"),
        "",
    )])
    .await;
    assert!(
        post.fail("{\"id\":\"loop\"}")
            .await
            .message()
            .contains("this is not followed")
    );
    assert_eq!(upstream.count(), before + 1);
}

#[tokio::test]
async fn the_packs_own_host_is_no_exception() {
    let inner = Upstream::start("127.0.0.1", |_| json("1")).await;
    let port = inner.address.rsplit(':').next().unwrap();
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "127.0.0.1.",
        "localhost",
    ] {
        let fixture = Fixture::with(
            &[],
            None,
            &[pack(&format!("url = \"http://{host}:{port}/\""), "")],
        )
        .await;
        let error = fixture.fail("{}").await;
        assert_eq!(error.code(), Code::Forbidden, "{host}: {error}");
        assert!(error.message().contains("HELMDECK_EGRESS_ALLOW"), "{error}");
    }
    assert_eq!(inner.count(), 0);
}

#[tokio::test]
async fn unsent_requests_are_retried_if_harmless() {
    // A port that is free now, and taken after the first try failed.
    let held = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = held.local_addr().unwrap();
    drop(held);
    let get = pack(&format!("url = \"http://{address}/\""), "");
    let error = Fixture::open(std::slice::from_ref(&get))
        .await
        .fail("{}")
        .await;
    assert_eq!(
        (error.code(), error.message()),
        (Code::HandlerFailed, "127.0.0.1 cannot be reached")
    );

    let lost = Upstream::start("127.0.0.1", |_| String::new()).await;
    for method in ["GET", "POST"] {
        let before = lost.count();
        let fixture = Fixture::open(&[pack(
            &format!("method = \"{method}\"\nurl = \"http://{}/\"", lost.address),
            "",
        )])
        .await;
        let error = fixture.fail("{}").await;
        assert_eq!(error.code(), Code::HandlerFailed);
        assert_eq!(
            error.message().contains("may have been done"),
            method == "POST",
            "{error}"
        );
        assert_eq!(
            lost.count(),
            before + 1,
            "{method}: an answer that got lost is not asked for again"
        );
    }
}

#[tokio::test]
async fn a_slow_host_is_a_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = format!("url = \"http://{}/\"", listener.local_addr().unwrap());
    let fixture = Fixture::open(&[pack(&http, "").replace("20s", "300ms")]).await;
    assert_eq!(fixture.fail("{}").await.code(), Code::Timeout);
}

#[tokio::test]
async fn stale_answer_is_revalidated_by_etag_or_date() {
    let changed = Arc::new(AtomicUsize::new(0));
    let version = Arc::clone(&changed);
    let upstream = Upstream::start("127.0.0.1", move |request| {
        let now = version.load(Ordering::SeqCst);
        let (etag, date) = (
            format!("W/\"v{now}\""),
            format!("Mon, 01 Jan 2024 00:00:0{now} GMT"),
        );
        let by_date = request.line.ends_with("/date");
        let (asked, current) = match by_date {
            true => (request.headers.get("if-modified-since"), &date),
            false => (request.headers.get("if-none-match"), &etag),
        };
        let validator = if by_date {
            format!("last-modified: {date}\r\n")
        } else {
            format!("etag: {etag}\r\n")
        };
        if asked == Some(current) {
            return answer("304 Not Modified", &validator, "");
        }
        answer(
            "200 OK",
            &format!("{validator}content-type: application/json\r\n"),
            &format!("{{\"v\":{now}}}"),
        )
    })
    .await;
    let http = format!("url = \"http://{}/{{id}}\"", upstream.address);
    let fixture = Fixture::open(&[pack(&http, "ttl = \"60s\"\nrevalidate = true")]).await;
    for id in ["{\"id\":\"tag\"}", "{\"id\":\"date\"}"] {
        let run = async || {
            let outcome = fixture.run(id).await;
            (
                status(&outcome),
                outcome.output.to_value()["v"].as_u64().unwrap(),
            )
        };
        let now = changed.load(Ordering::SeqCst) as u64;
        assert_eq!(
            (run().await, run().await),
            ((CacheStatus::Miss, now), (CacheStatus::Hit, now))
        );
        for _ in 0..2 {
            fixture.clock.advance(Duration::from_secs(61));
            assert_eq!(run().await, (CacheStatus::Revalidated, now), "{id}");
        }
        changed.fetch_add(1, Ordering::SeqCst);
        fixture.clock.advance(Duration::from_secs(61));
        assert_eq!(run().await, (CacheStatus::Miss, now + 1), "{id}");
    }
    assert_eq!(upstream.count(), 8);
}

#[tokio::test]
async fn what_an_upstream_says_about_storing_counts() {
    let headers: Arc<Mutex<String>> = Arc::default();
    let said = Arc::clone(&headers);
    let upstream = Upstream::start("127.0.0.1", move |_| {
        answer(
            "200 OK",
            &format!("content-type: application/json\r\n{}", said.lock().unwrap()),
            "{}",
        )
    })
    .await;
    let http = format!("url = \"http://{}/\"", upstream.address);
    let not_kept = |word| Some(NotKept::Because(word));
    let (no_store, private) = (not_kept("upstream_no_store"), not_kept("upstream_private"));
    let stale = not_kept("upstream_not_fresh");
    // The headers; why an answer with a ttl of its own is not kept, for one caller and shared; and
    // with the upstream's ttl for how many seconds it is fresh, for one caller and shared, or why
    // it is not kept.
    for (said, one, all, fresh, fresh_for_all) in [
        ("", None, None, Err(stale), Err(stale)),
        (
            "cache-control: no-store\r\n",
            no_store,
            no_store,
            Err(no_store),
            Err(no_store),
        ),
        (
            "vary: *\r\n",
            no_store,
            no_store,
            Err(no_store),
            Err(no_store),
        ),
        (
            "cache-control: private, max-age=60\r\n",
            None,
            private,
            Ok(60),
            Err(private),
        ),
        (
            "cache-control: max-age=60\r\nset-cookie: a=b\r\n",
            None,
            private,
            Ok(60),
            Err(private),
        ),
        (
            "cache-control: max-age=60, s-maxage=600\r\nvary: accept\r\n",
            None,
            None,
            Ok(60),
            Ok(600),
        ),
        (
            "cache-control: max-age=60\r\nage: 45\r\n",
            None,
            None,
            Ok(15),
            Ok(15),
        ),
        (
            "cache-control: max-age=60\r\nage: 3600\r\n",
            None,
            None,
            Err(stale),
            Err(stale),
        ),
        (
            "cache-control: no-cache, max-age=60\r\n",
            None,
            None,
            Err(stale),
            Err(stale),
        ),
        (
            "cache-control: max-age=100000\r\n",
            None,
            None,
            Ok(3600),
            Ok(3600),
        ),
    ] {
        *headers.lock().unwrap() = said.to_owned();
        for (ttl, scope, expected) in [
            (
                "ttl = \"60s\"",
                "caller",
                one.map_or(Ok(60), |why| Err(Some(why))),
            ),
            (
                "ttl = \"60s\"",
                "shared",
                all.map_or(Ok(60), |why| Err(Some(why))),
            ),
            ("ttl = \"60s\"\nrespect = \"none\"", "shared", Ok(60)),
            ("ttl = \"upstream\"\nmax_ttl = \"1h\"", "caller", fresh),
            (
                "ttl = \"upstream\"\nmax_ttl = \"1h\"",
                "shared",
                fresh_for_all,
            ),
        ] {
            let fixture =
                Fixture::open(&[pack(&http, &format!("{ttl}\nscope = \"{scope}\""))]).await;
            let first = fixture.run("{}").await.cache.unwrap();
            let case = format!("{said:?} {ttl:?} {scope}");
            assert_eq!(
                (first.status, first.not_kept),
                (CacheStatus::Miss, expected.err().flatten()),
                "{case}"
            );
            if let Ok(seconds) = expected {
                fixture.clock.advance(Duration::from_secs(seconds - 1));
                assert_eq!(status(&fixture.run("{}").await), CacheStatus::Hit, "{case}");
                fixture.clock.advance(Duration::from_secs(1));
            }
            assert_eq!(
                status(&fixture.run("{}").await),
                CacheStatus::Miss,
                "{case}"
            );
        }
    }
}

#[tokio::test]
async fn confirmation_keeps_the_ttl_that_the_upstream_gave() {
    let upstream = Upstream::start("127.0.0.1", |request| {
        match request.headers.get("if-none-match") {
            Some(_) => answer("304 Not Modified", "etag: \"1\"\r\n", ""),
            None => answer(
                "200 OK",
                "etag: \"1\"\r\ncache-control: max-age=60\r\n",
                "text",
            ),
        }
    })
    .await;
    let http = format!("url = \"http://{}/\"", upstream.address);
    let fixture = Fixture::open(&[pack(
        &http,
        "ttl = \"upstream\"\nrevalidate = true\nttl_jitter = 0.5",
    )])
    .await;
    fixture.run("{}").await;
    for _ in 0..20 {
        fixture.clock.advance(Duration::from_secs(60));
        assert_eq!(status(&fixture.run("{}").await), CacheStatus::Revalidated);
        // A part of the ttl is random, but no confirmation starts from what the one before has left
        // of it.
        fixture.clock.advance(Duration::from_secs(29));
        assert_eq!(status(&fixture.run("{}").await), CacheStatus::Hit);
    }
}

#[tokio::test]
async fn changed_request_changes_contract_bad_one_is_listed() {
    let upstream = Upstream::start("127.0.0.1", |request| {
        json(&format!("\"{}\"", request.line))
    })
    .await;
    let http = |path: &str| format!("url = \"http://{}/{path}\"", upstream.address);
    let fixture = Fixture::open(&[pack(&http("one"), "ttl = \"60s\"")]).await;
    assert_eq!(fixture.run("{}").await.output.as_str(), "\"GET /one\"");
    write(
        fixture.folder.path(),
        "0.toml",
        &pack(&http("two"), "ttl = \"60s\""),
    );
    let wrong = pack(&http("{nobody}"), "").replace("t.http", "t.wrong");
    write(fixture.folder.path(), "1.toml", &wrong);
    fixture.engine.reload();
    assert_eq!(
        fixture.run("{}").await.output.as_str(),
        "\"GET /two\"",
        "not the answer of the request before"
    );
    let refused: Vec<String> = fixture
        .engine
        .refused()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        matches!(refused.as_slice(), [one] if one.contains("1.toml:9: the template names \"nobody\"")),
        "{refused:?}"
    );
}
