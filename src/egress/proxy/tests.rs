//! The proxy over real sockets, with a resolver that says what a test wants.
//!
//! 127.0.0.1 is open where a way in is needed and stands for a public address; 127.0.0.2 is not and
//! stands for an inner one.

mod attacks;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use url::Host;

use super::*;
use crate::Config;
use crate::resolver::Lookup;

/// Echoes what it gets and counts connections.
struct Echo {
    port: u16,
    count: Arc<AtomicUsize>,
}

impl Echo {
    async fn start(address: &str) -> Self {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                seen.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        Self { port, count }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

fn lookup(names: &[(&str, &[&str])]) -> Lookup {
    let names: HashMap<String, Vec<IpAddr>> = names
        .iter()
        .map(|(name, addresses)| {
            (
                (*name).to_owned(),
                addresses.iter().map(|a| a.parse().unwrap()).collect(),
            )
        })
        .collect();
    Arc::new(move |name| {
        let found = names
            .get(&name)
            .cloned()
            .ok_or_else(|| std::io::Error::other("no such name"));
        Box::pin(async move { found })
    })
}

fn egress(allow: &[&str], lookup: Lookup) -> Egress {
    let config = Config {
        allow: allow.iter().map(|text| text.parse().unwrap()).collect(),
        ..Config::default()
    };
    Egress::resolving_with(config, lookup)
}

/// A proxy for one target, or for any if there is none.
async fn proxy(egress: &Egress, target: Option<(&str, u16)>) -> Proxy {
    let target = target.map_or(Target::Any, |(host, port)| {
        Target::only(Host::parse(host).unwrap(), port)
    });
    egress.proxy(target, ProxyConfig::default()).await.unwrap()
}

/// Sends a head and returns the connection with the status that came back; 0 if nothing did.
async fn send(proxy: &Proxy, head: &str) -> (TcpStream, u16, String) {
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    let _ = stream.write_all(head.as_bytes()).await;
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte).await, Ok(1)) {
        answer.push(byte[0]);
    }
    let answer = String::from_utf8(answer).unwrap();
    let status = answer
        .get(9..12)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    (stream, status, answer)
}

async fn connect(proxy: &Proxy, target: &str) -> (TcpStream, u16) {
    let authorization = proxy.authorization();
    let head = format!(
        "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: {authorization}\r\n\r\n"
    );
    let (stream, status, _) = send(proxy, &head).await;
    (stream, status)
}

async fn get(proxy: &Proxy, url: &str) -> (u16, String) {
    let authorization = proxy.authorization();
    let head = format!(
        "GET {url} HTTP/1.1\r\nHost: whatever\r\nProxy-Authorization: {authorization}\r\nConnection: close\r\n\r\n"
    );
    let (mut stream, status, mut answer) = send(proxy, &head).await;
    let _ = stream.read_to_string(&mut answer).await;
    (status, answer)
}

/// Answers requests with what it was sent.
async fn mirror() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut got = Vec::new();
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                got.extend_from_slice(&buffer[..count]);
                let text = String::from_utf8_lossy(&got).to_lowercase();
                let whole = text.starts_with("get") || text.contains("the end");
                if text.contains("\r\n\r\n") && whole {
                    break;
                }
            }
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\nkeep-alive: x\r\n\r\n",
                got.len()
            );
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(&got).await;
        }
    });
    port
}

#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways_until_one_side_ends() {
    let echo = Echo::start("127.0.0.1").await;
    let proxy = proxy(
        &egress(&["127.0.0.1"], lookup(&[])),
        Some(("127.0.0.1", echo.port)),
    )
    .await;
    let (mut stream, status) = connect(&proxy, &format!("127.0.0.1:{}", echo.port)).await;
    assert_eq!(status, 200);
    let large = vec![7; 1 << 20];
    let (mut read, mut write) = stream.split();
    let mut back = Vec::new();
    let (sent, received) = tokio::join!(
        async {
            write.write_all(&large).await.unwrap();
            write.shutdown().await
        },
        read.read_to_end(&mut back),
    );
    assert!(sent.is_ok() && received.is_ok());
    assert_eq!(back, large);
    assert_eq!(proxy.trouble(), None);
}

#[tokio::test]
async fn a_request_is_passed_on_without_what_is_for_the_proxy() {
    let port = mirror().await;
    let proxy = proxy(
        &egress(
            &["repo.example"],
            lookup(&[("repo.example", &["127.0.0.1"])]),
        ),
        None,
    )
    .await;
    let (status, answer) = get(&proxy, &format!("http://repo.example:{port}/a/b?c=d")).await;
    assert_eq!(status, 200);
    let (head, got) = answer.split_once("\r\n\r\n").unwrap();
    assert!(!head.to_lowercase().contains("keep-alive: x"), "{head}");
    let got = got.to_lowercase();
    assert!(got.starts_with("get /a/b?c=d http/1.1"), "{got}");
    assert!(
        got.contains(&format!("host: repo.example:{port}")) && !got.contains("whatever"),
        "{got}"
    );
    assert!(!got.contains("proxy-authorization"), "{got}");

    let authorization = proxy.authorization();
    let head = format!(
        "POST http://repo.example:{port}/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: {authorization}\r\nX-Own: 1\r\nConnection: X-Own, close\r\nContent-Length: 12\r\n\r\nthis the end"
    );
    let (mut stream, status, mut answer) = send(&proxy, &head).await;
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(status, 200);
    assert!(
        answer.ends_with("this the end") && !answer.to_lowercase().contains("x-own"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_gateway_serves_any_stream_and_asks_for_no_password() {
    let echo = Echo::start("127.0.0.1").await;
    let end = CancellationToken::new();
    let gateway = egress(&["127.0.0.1"], lookup(&[])).gateway(
        Target::Any,
        ProxyConfig::default(),
        end.clone(),
    );
    let (mut near, far) = UnixStream::pair().unwrap();
    let serving = gateway.clone();
    tokio::spawn(async move { serving.serve_connection(far).await });
    near.write_all(format!("CONNECT 127.0.0.1:{} HTTP/1.1\r\n\r\n", echo.port).as_bytes())
        .await
        .unwrap();
    let mut answer = [0; 12];
    near.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    end.cancel();
    let mut rest = Vec::new();
    let _ = near.read_to_end(&mut rest).await;
    assert!(
        rest.ends_with(b"\r\n\r\n"),
        "the tunnel ends with the token"
    );
}

#[tokio::test]
async fn nothing_is_left_when_the_proxy_is_dropped() {
    let echo = Echo::start("127.0.0.1").await;
    let proxy = proxy(&egress(&["127.0.0.1"], lookup(&[])), None).await;
    let (mut stream, status) = connect(&proxy, &format!("127.0.0.1:{}", echo.port)).await;
    assert_eq!(status, 200);
    let address = proxy.address();
    drop(proxy);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert_eq!(rest, b"");
    while TcpStream::connect(address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_silent_tunnel_ends() {
    let echo = Echo::start("127.0.0.1").await;
    let egress = egress(&["127.0.0.1"], lookup(&[]));
    let config = ProxyConfig {
        idle_timeout: Duration::from_millis(20),
        ..ProxyConfig::default()
    };
    let proxy = egress.proxy(Target::Any, config).await.unwrap();
    let (mut stream, _) = connect(&proxy, &format!("127.0.0.1:{}", echo.port)).await;
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn what_was_not_reached_is_told_apart() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let egress = egress(
        &["127.0.0.1"],
        lookup(&[("in.example", &["127.0.0.2"]), ("none.example", &[])]),
    );
    for (target, status) in [
        (format!("127.0.0.1:{closed}"), 502),
        ("unknown.example:443".to_owned(), 502),
        ("none.example:443".to_owned(), 502),
        ("in.example:443".to_owned(), 403),
    ] {
        let proxy = proxy(&egress, None).await;
        assert_eq!(connect(&proxy, &target).await.1, status, "{target}");
        let trouble = proxy.trouble().unwrap();
        match target.split('.').next().unwrap() {
            "127" => assert_eq!(trouble, Trouble::Unreachable),
            "in" => assert!(
                matches!(trouble, Trouble::Refused(refused) if refused.reason.contains("loopback"))
            ),
            _ => assert_eq!(trouble, Trouble::Unresolved),
        }
    }
}

#[tokio::test]
async fn debug_output_shows_no_password() {
    let proxy = proxy(&egress(&[], lookup(&[])), None).await;
    let url = proxy.url();
    let password = url.split(['@', ':']).nth(2).unwrap();
    assert!(password.len() > 20 && !format!("{proxy:?} {:?}", proxy.gateway).contains(password));
}
