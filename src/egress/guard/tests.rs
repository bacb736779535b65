//! The client against servers on loopback, with a resolver that says what a test wants.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::error::{never_connected, refusal};

mod attacks;

/// Answers every request with one text and counts them.
async fn server(answer: impl Into<String>) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (answer, count) = (answer.into(), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            seen.fetch_add(1, Ordering::SeqCst);
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (port, count)
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";

fn redirect_to(url: &str) -> String {
    format!(
        "HTTP/1.1 302 Found\r\nlocation: {url}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    )
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
    Egress::build(config, None, lookup)
}

async fn get(egress: &Egress, url: &str) -> Result<String, reqwest::Error> {
    egress
        .client()
        .await
        .unwrap()
        .get(url)
        .send()
        .await?
        .error_for_status()?
        .text()
        .await
}

async fn reason(egress: &Egress, url: &str) -> String {
    let error = get(egress, url).await.unwrap_err();
    refusal(&error)
        .unwrap_or_else(|| panic!("{url}: {error:?}"))
        .reason
        .clone()
}

#[tokio::test]
async fn the_client_refuses_addresses_even_if_nobody_checked_the_url() {
    let (port, count) = server(OK).await;
    let guard = egress(&[], lookup(&[]));
    for host in ["127.0.0.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"] {
        for scheme in ["http", "https"] {
            reason(&guard, &format!("{scheme}://{host}:{port}/")).await;
        }
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_name_that_resolves_inward_is_refused_and_the_address_stays_unsaid() {
    let (port, count) = server(OK).await;
    let guard = egress(
        &[],
        lookup(&[
            ("evil.example", &["127.0.0.1", "::1"]),
            ("meta.example", &["169.254.169.254"]),
        ]),
    );
    assert_eq!(
        reason(&guard, &format!("http://evil.example:{port}/")).await,
        "it resolves to a loopback address"
    );
    assert_eq!(
        reason(&guard, "http://meta.example/").await,
        "it resolves to a metadata service"
    );
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn of_a_mixed_answer_only_the_checked_addresses_are_used() {
    let (port, count) = server(OK).await;
    // 127.0.0.1 is open here and stands for a public address; ::1 and 127.0.0.9 are not.
    let guard = egress(
        &["127.0.0.1"],
        lookup(&[("mixed.example", &["127.0.0.9", "::1", "127.0.0.1"])]),
    );
    assert_eq!(
        get(&guard, &format!("http://mixed.example:{port}/"))
            .await
            .unwrap(),
        "ok"
    );
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_name_is_resolved_once_and_the_connection_goes_to_what_was_checked() {
    let (port, _) = server(OK).await;
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    // The second answer would be an inner address: a rebinding name server.
    let rebinding: Lookup = Arc::new(move |_| {
        let mut asked = count.lock().unwrap();
        *asked += 1;
        let address: IpAddr = if *asked == 1 {
            "127.0.0.1"
        } else {
            "127.0.0.2"
        }
        .parse()
        .unwrap();
        Box::pin(async move { Ok(vec![address]) })
    });
    let guard = egress(&["127.0.0.1"], rebinding);
    assert_eq!(
        get(&guard, &format!("http://rebind.example:{port}/"))
            .await
            .unwrap(),
        "ok"
    );
    assert_eq!(*asked.lock().unwrap(), 1);
    assert_eq!(
        reason(&guard, &format!("http://rebind.example:{port}/")).await,
        "it resolves to a loopback address"
    );
}

#[tokio::test]
async fn a_redirect_is_checked_again() {
    let (inner, count) = server(OK).await;
    let guard = egress(
        &["out.example"],
        lookup(&[
            ("out.example", &["127.0.0.1"]),
            ("in.example", &["127.0.0.1"]),
        ]),
    );
    for (target, expected) in [
        (
            format!("http://127.0.0.1:{inner}/"),
            "it is a loopback address",
        ),
        (
            format!("http://in.example:{inner}/"),
            "it resolves to a loopback address",
        ),
    ] {
        let (outer, _) = server(redirect_to(&target)).await;
        assert_eq!(
            reason(&guard, &format!("http://out.example:{outer}/")).await,
            expected
        );
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);

    let (outer, _) = server(redirect_to("file:///etc/passwd")).await;
    assert_eq!(
        get(&guard, &format!("http://out.example:{outer}/"))
            .await
            .unwrap(),
        "",
        "the redirect itself"
    );
}

#[tokio::test]
async fn a_redirect_to_an_open_host_is_followed_and_a_loop_ends() {
    let guard = egress(&["out.example"], lookup(&[("out.example", &["127.0.0.1"])]));
    let (inner, _) = server(OK).await;
    let (outer, _) = server(redirect_to(&format!("http://out.example:{inner}/"))).await;
    assert_eq!(
        get(&guard, &format!("http://out.example:{outer}/"))
            .await
            .unwrap(),
        "ok"
    );

    let (round, count) = server(redirect_to("/again")).await;
    assert!(
        reason(&guard, &format!("http://out.example:{round}/"))
            .await
            .contains("more than 5 times")
    );
    assert_eq!(count.load(Ordering::SeqCst), 6);
}

#[tokio::test]
async fn a_named_host_is_open_to_its_own_guard_only() {
    let (port, _) = server(OK).await;
    let (other, count) = server(OK).await;
    let base = egress(&[], lookup(&[("ghe.internal", &["127.0.0.1"])]));
    let named = base.naming(&Url::parse(&format!("http://ghe.internal:{port}/api/v3")).unwrap());
    assert_eq!(
        get(&named, &format!("http://ghe.internal:{port}/x"))
            .await
            .unwrap(),
        "ok"
    );
    reason(&named, &format!("http://ghe.internal:{other}/")).await;
    reason(&named, &format!("http://127.0.0.1:{port}/")).await;
    reason(&base, &format!("http://ghe.internal:{port}/x")).await;
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_refusal_becomes_forbidden_and_names_host_and_setting() {
    let guard = egress(&[], lookup(&[]));
    let url = Url::parse("http://user:canary@10.0.0.1/canary?canary").unwrap();
    let error = helmdeck_core::Error::from(guard.check_url(&url).unwrap_err());
    assert_eq!(error.code(), helmdeck_core::Code::Forbidden);
    assert_eq!(
        error.message(),
        "host \"10.0.0.1\" may not be reached: it is a private address; the operator can allow it with \
         HELMDECK_EGRESS_ALLOW=10.0.0.1 or `[egress] allow = [\"10.0.0.1\"]`"
    );
}

#[tokio::test]
async fn a_failed_connection_is_known_to_have_sent_nothing() {
    let port = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let guard = egress(&["127.0.0.1"], lookup(&[]));
    assert!(never_connected(
        &get(&guard, &format!("http://127.0.0.1:{port}/"))
            .await
            .unwrap_err()
    ));

    let (silent, _) = server("").await;
    assert!(!never_connected(
        &get(&guard, &format!("http://127.0.0.1:{silent}/"))
            .await
            .unwrap_err()
    ));
}
