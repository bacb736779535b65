//! Requests per second of a hit, against a bare axum handler in the same process that answers the same bytes.
//!
//! The load comes from a process of its own (this binary again), so that client and server do not share a runtime.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use helmdeck_core::Identity;
use helmdeck_server::ServerConfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::calls::{INPUT, cached_pack, call, runtime, sealed_engine};
use crate::measure::{Table, median};

const CONNECTIONS: usize = 16;
const SECONDS: u64 = 2;
const PAIRS: usize = 5;

pub(crate) fn requests(table: &mut Table) {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    let (bare, cached, stop) = runtime.block_on(async {
        let engine = sealed_engine(folder.path(), 64 << 20, vec![cached_pack()]).await;
        let identity = std::sync::Arc::new(Identity::local());
        engine.call(call(&identity)).await.unwrap();
        let body = bytes::Bytes::from(engine.call(call(&identity)).await.unwrap().to_json());
        let answer = move |_: bytes::Bytes| {
            let body = body.clone();
            async move { ([(axum::http::header::CONTENT_TYPE, "application/json")], body) }
        };
        let path = "/api/v1/packs/bench.issues";
        let bare = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cached = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = (bare.local_addr().unwrap(), cached.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(bare, Router::new().route(path, post(answer))).await });
        let stop = CancellationToken::new();
        tokio::spawn(helmdeck_server::serve(cached, engine, ServerConfig::default(), stop.clone()));
        (addresses.0.to_string(), addresses.1.to_string(), stop)
    });
    let (mut of_bare, mut of_cached) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        of_bare.push(rate(&bare));
        of_cached.push(rate(&cached));
    }
    let (bare, cached) = (median(of_bare.into_iter()), median(of_cached.into_iter()));
    let share = cached / bare * 100.0;
    table.add("REST, bare axum handler, the same bytes", format!("{bare:.0}/s"), "", true);
    table.add("REST, hit", format!("{cached:.0}/s, {share:.0} %"), ">= 80 %", share >= 80.0);
    stop.cancel();
}

fn rate(address: &str) -> f64 {
    let binary = std::env::current_exe().unwrap();
    let output = Command::new(binary).args(["load", address]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// Sends requests over kept connections for a while, from one thread, and prints the rate.
///
/// All connections are written to before any is read, as many clients would.
pub(crate) fn load(arguments: &[String]) {
    let address = &arguments[0];
    let head = format!(
        "POST /api/v1/packs/bench.issues HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{INPUT}",
        INPUT.len()
    );
    let mut connections: Vec<TcpStream> = (0..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
    for connection in &connections {
        connection.set_nodelay(true).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    }
    let mut buffer = vec![0; 64 << 10];
    let (started, mut answered) = (Instant::now(), 0_u64);
    while started.elapsed() < Duration::from_secs(SECONDS) {
        for connection in &mut connections {
            connection.write_all(head.as_bytes()).unwrap();
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
        if wanted == usize::MAX
            && let Some(end) = buffer[..filled].windows(4).position(|part| part == b"\r\n\r\n")
        {
            let head = std::str::from_utf8(&buffer[..end]).unwrap();
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            wanted = end + 4 + length.parse::<usize>().unwrap();
        }
    }
}
