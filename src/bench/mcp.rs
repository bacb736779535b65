//! A hit over MCP: requests per second against the same hit over REST in one server, and the round
//! trip over stdin and stdout of the real binary.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use helmdeck_core::Identity;
use tokio_util::sync::CancellationToken;

use crate::calls::{INPUT, KEY, cached_pack, call, runtime, sealed_engine};
use crate::measure::{Table, median, percentile};
use crate::rest::{CONNECTIONS, ID, PAIRS, cached, rate, rest_request};

const ROUND_TRIPS: usize = 20_000;
const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
const READY: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Compares the transports of one server.
pub(crate) fn requests(table: &mut Table) {
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let stop = CancellationToken::new();
    let address = runtime.block_on(async {
        let engine = sealed_engine(folder.path(), 64 << 20, vec![cached_pack()]).await;
        engine
            .call(call(&Arc::new(Identity::local())))
            .await
            .unwrap();
        cached(engine, &stop).await
    });
    let session = begin(&address);
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..PAIRS {
        let requests = [
            rest_request(&address),
            in_session(&address, &session),
            newest(&address),
        ];
        for (rates, request) in rates.iter_mut().zip(requests) {
            rates.push(rate(&address, &request, CONNECTIONS));
        }
    }
    let [rest, session, newest] = rates.map(|rates| median(rates.into_iter()));
    table.add(
        "MCP, the same hit over REST",
        format!("{rest:.0}/s"),
        "",
        true,
    );
    let share = session / rest * 100.0;
    table.add(
        "MCP, hit in a session (2025-11-25)",
        format!("{session:.0}/s, {share:.0} %"),
        ">= 50 %",
        share >= 50.0,
    );
    let share = newest / rest * 100.0;
    table.add(
        "MCP, hit without one (2026-07-28)",
        format!("{newest:.0}/s, {share:.0} %"),
        ">= 50 %",
        share >= 50.0,
    );
    stop.cancel();
}

fn post(address: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
}

fn in_session(address: &str, session: &str) -> String {
    let body = format!(
        r#"{{"jsonrpc":"2.0",{ID},"method":"tools/call","params":{{"name":"bench__issues","arguments":{INPUT}}}}}"#
    );
    post(
        address,
        &format!("mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n"),
        &body,
    )
}

pub(crate) fn newest(address: &str) -> String {
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let body = format!(
        r#"{{"jsonrpc":"2.0",{ID},"method":"tools/call","params":{{"name":"bench__issues","arguments":{INPUT},"_meta":{meta}}}}}"#
    );
    let headers =
        "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: bench__issues\r\n";
    post(address, headers, &body)
}

fn begin(address: &str) -> String {
    let exchange = |request: String| {
        let mut connection = TcpStream::connect(address).unwrap();
        connection
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        connection
            .write_all(
                request
                    .replacen("\r\n", "\r\nconnection: close\r\n", 1)
                    .as_bytes(),
            )
            .unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
        answer
    };
    let answer = exchange(post(address, "", HELLO));
    let session = answer
        .lines()
        .find_map(|line| line.strip_prefix("mcp-session-id: "))
        .unwrap()
        .trim()
        .to_owned();
    exchange(post(
        address,
        &format!("mcp-session-id: {session}\r\n"),
        READY,
    ));
    session
}

/// Measures the round trip of a hit, one after the other, as an agent makes them.
pub(crate) fn stdio(table: &mut Table) {
    let binary = crate::measure::program();
    if !binary.exists() {
        table.add(
            "MCP, stdio",
            "not measured: build the release binary first".to_owned(),
            "measured",
            false,
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let manifest = "name = \"bench.echo\"\nversion = \"v1\"\ndescription = \"Gives back what it gets\"\nread_only = true\n\
        [handler]\ncommand = [\"cat\"]\n[input]\ntype = \"object\"\n[output]\ntype = \"object\"\n\
        [memory]\ncache = true\nttl = \"1h\"\n";
    std::fs::write(folder.path().join("echo.toml"), manifest).unwrap();
    let mut child = Command::new(&binary)
        .arg("mcp")
        .env_clear()
        .env("HELMDECK_MEMORY_KEY", KEY)
        .env("HELMDECK_DATA_DIR", folder.path().join("data"))
        .env("HELMDECK_PACKS_DIR", folder.path())
        .env("HOME", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, mut output) = (
        child.stdin.take().unwrap(),
        BufReader::new(child.stdout.take().unwrap()),
    );
    let mut line = String::new();
    let mut ask = |text: &str| {
        line.clear();
        input.write_all(format!("{text}\n").as_bytes()).unwrap();
        output.read_line(&mut line).unwrap();
        assert!(line.contains("\"result\""), "{line}");
        line.contains("\"hit\"")
    };
    ask(HELLO);
    let hit = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"bench__echo","arguments":{INPUT}}}}}"#
    );
    ask(&hit);
    let mut times = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let started = Instant::now();
        assert!(ask(&hit), "not a hit");
        times.push(started.elapsed());
    }
    drop(input);
    assert!(child.wait().unwrap().success());
    let [half, most] =
        [50.0, 99.0].map(|percent| percentile(&mut times, percent).as_secs_f64() * 1e6);
    table.add(
        "MCP, hit over stdio, p50",
        format!("{half:.0} us"),
        "< 300 us",
        half < 300.0,
    );
    table.add(
        "MCP, hit over stdio, p99",
        format!("{most:.0} us"),
        "",
        true,
    );
}
