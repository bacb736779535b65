//! Requests per second of a hit, against a bare axum handler that sends the same bytes.
//!
//! Both servers run in this process. The load comes from a separate process (this binary again), so
//! that client and server do not share a runtime.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use helmdeck_core::Identity;
use helmdeck_server::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::calls::{INPUT, cached_pack, call, runtime, sealed_engine, without_audit};
use crate::measure::{Table, median};

pub(crate) const CONNECTIONS: usize = 16;
pub(crate) const SECONDS: u64 = 2;
pub(crate) const PAIRS: usize = 5;

pub(crate) fn requests(table: &mut Table) {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let runtime = runtime();
    let stop = CancellationToken::new();
    let (bare, audited, quiet) = runtime.block_on(async {
        let engine = sealed_engine(folders[0].path(), 64 << 20, vec![cached_pack()]).await;
        let identity = std::sync::Arc::new(Identity::local());
        engine.call(call(&identity)).await.unwrap();
        let body = bytes::Bytes::from(engine.call(call(&identity)).await.unwrap().to_json());
        let quiet = sealed_engine(
            folders[1].path(),
            64 << 20,
            vec![without_audit(cached_pack())],
        )
        .await;
        quiet.call(call(&identity)).await.unwrap();
        (
            bare(body).await,
            cached(engine, &stop).await,
            cached(quiet, &stop).await,
        )
    });
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..PAIRS {
        for (rates, address) in rates.iter_mut().zip([&bare, &audited, &quiet]) {
            rates.push(rate(address, &rest_request(address), CONNECTIONS));
        }
    }
    let [bare, audited, quiet] = rates.map(|rates| median(rates.into_iter()));
    table.add(
        "REST, bare axum handler, the same bytes",
        format!("{bare:.0}/s"),
        "",
        true,
    );
    let share = audited / bare * 100.0;
    table.add(
        "REST, hit, an audit row each",
        format!("{audited:.0}/s, {share:.0} %"),
        ">= 80 %",
        share >= 80.0,
    );
    let share = quiet / bare * 100.0;
    table.add(
        "REST, hit, no_audit",
        format!("{quiet:.0}/s, {share:.0} %"),
        ">= 80 %",
        share >= 80.0,
    );
    stop.cancel();
}

/// Server that only sends these bytes.
async fn bare(body: bytes::Bytes) -> String {
    let answer = move |_: bytes::Bytes| {
        let body = body.clone();
        async move {
            (
                [(axum::http::header::CONTENT_TYPE, "application/json")],
                body,
            )
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let router = Router::new().route("/api/v1/packs/{name}", post(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Server that sends these bytes after every so many bytes that it gets, whatever they are.
pub(crate) async fn echo(request: usize, answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let answer: std::sync::Arc<[u8]> = answer.into();
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = std::sync::Arc::clone(&answer);
            stream.set_nodelay(true).unwrap();
            tokio::spawn(async move {
                let mut buffer = vec![0; request];
                while stream.read_exact(&mut buffer).await.is_ok()
                    && stream.write_all(&answer).await.is_ok()
                {}
            });
        }
    });
    address
}

/// Answers whatever arrives on a connection with an answer of so many bytes, until it is killed;
/// prints where it listens. What is left is what the kernel and the load cost.
pub(crate) fn answer_anything(bytes: usize) {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {bytes}\r\n\r\n"
    );
    let answer: std::sync::Arc<[u8]> = [head.into_bytes(), vec![b'x'; bytes]].concat().into();
    crate::calls::runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = std::sync::Arc::clone(&answer);
            stream.set_nodelay(true).unwrap();
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).await.is_ok_and(|count| count > 0)
                    && stream.write_all(&answer).await.is_ok()
                {}
            });
        }
    });
}

/// A helmdeck server.
pub(crate) async fn cached(engine: helmdeck_engine::Engine, stop: &CancellationToken) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(helmdeck_server::serve(
        listener,
        engine,
        ServerConfig::default(),
        stop.clone(),
    ));
    address
}

/// Returns the answers per second to this request, sent over so many connections.
pub(crate) fn rate(address: &str, request: &str, connections: usize) -> f64 {
    let binary = std::env::current_exe().unwrap();
    let output = Command::new(binary)
        .args(["load", address, request, &connections.to_string()])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

/// The call of the pack over REST.
pub(crate) fn rest_request(address: &str) -> String {
    format!(
        "POST /api/v1/packs/bench.issues HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{INPUT}",
        INPUT.len()
    )
}

/// What the load puts another number of the same length in place of on each connection: a session
/// has one call of an id at a time.
pub(crate) const ID: &str = r#""id":10"#;

/// Sends requests over kept connections for a while, from one thread, and prints the rate.
///
/// All connections are written to before any is read, as many clients would.
pub(crate) fn load(arguments: &[String]) {
    let [address, head, count] = arguments else {
        panic!("an address, a request and a number of connections")
    };
    let count: usize = count.parse().unwrap();
    let mut connections: Vec<TcpStream> = (0..count)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    for connection in &connections {
        connection.set_nodelay(true).unwrap();
        connection
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
    }
    let requests: Vec<String> = (10..)
        .take(count)
        .map(|id| head.replacen(ID, &format!(r#""id":{id}"#), 1))
        .collect();
    let mut buffer = vec![0; 64 << 10];
    let (started, mut answered) = (Instant::now(), 0_u64);
    while started.elapsed() < Duration::from_secs(SECONDS) {
        for (connection, request) in connections.iter_mut().zip(&requests) {
            connection.write_all(request.as_bytes()).unwrap();
        }
        for connection in &mut connections {
            read_answer(connection, &mut buffer);
            answered += 1;
        }
    }
    println!("{:.0}", answered as f64 / started.elapsed().as_secs_f64());
}

fn read_answer(connection: &mut TcpStream, buffer: &mut [u8]) {
    let (mut filled, mut wanted) = (0, usize::MAX);
    while filled < wanted {
        let count = connection.read(&mut buffer[filled..]).unwrap();
        assert!(count > 0, "the server closed the connection");
        filled += count;
        if wanted == usize::MAX {
            wanted = answer_length(&buffer[..filled]).unwrap_or(usize::MAX);
        }
    }
}

/// Returns the length in bytes of the answer that begins here, with its head, as soon as the head
/// is whole.
pub(crate) fn answer_length(begun: &[u8]) -> Option<usize> {
    let end = begun.windows(4).position(|part| part == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&begun[..end]).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap();
    Some(end + 4 + length.parse::<usize>().unwrap())
}
