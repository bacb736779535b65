//! Ways around the proxy, each by its name.

use super::*;

#[tokio::test]
async fn no_password_and_a_wrong_one_get_nothing() {
    let echo = Echo::start("127.0.0.1").await;
    let proxy = proxy(&egress(&["127.0.0.1"], lookup(&[])), None).await;
    let right = proxy.authorization();
    let other = self::proxy(&egress(&["127.0.0.1"], lookup(&[])), None)
        .await
        .authorization();
    assert_ne!(right, other, "each proxy has its own");
    let cut = &right[..right.len() - 1];
    let lines = [
        String::new(),
        "Proxy-Authorization: \r\n".to_owned(),
        "Proxy-Authorization: Basic\r\n".to_owned(),
        format!("Proxy-Authorization: {other}\r\n"),
        format!("Proxy-Authorization: {cut}\r\n"),
        format!("Proxy-Authorization: {right}A\r\n"),
        format!("Authorization: {right}\r\n"),
        format!("Proxy-Authorization: {other}\r\nProxy-Authorization: {right}\r\n"),
    ];
    for line in lines {
        for request in [
            format!("CONNECT 127.0.0.1:{}", echo.port),
            format!("GET http://127.0.0.1:{}/", echo.port),
        ] {
            let (_, status, _) = send(
                &proxy,
                &format!("{request} HTTP/1.1\r\nHost: x\r\n{line}\r\n"),
            )
            .await;
            assert_eq!(status, 407, "{request} {line}");
        }
    }
    assert_eq!(echo.count(), 0);
}

#[tokio::test]
async fn another_host_or_port_than_the_one_it_is_for_is_refused() {
    let (echo, other) = (
        Echo::start("127.0.0.1").await,
        Echo::start("127.0.0.1").await,
    );
    let egress = egress(&["127.0.0.1"], lookup(&[("other.example", &["127.0.0.1"])]));
    let proxy = proxy(&egress, Some(("127.0.0.1", echo.port))).await;
    for target in [
        format!("127.0.0.1:{}", other.port),
        format!("other.example:{}", echo.port),
    ] {
        assert_eq!(connect(&proxy, &target).await.1, 403, "{target}");
        assert_eq!(
            get(&proxy, &format!("http://{target}/")).await.0,
            403,
            "{target}"
        );
    }
    assert_eq!(echo.count() + other.count(), 0);
    // Every spelling of the one host is that host.
    for host in ["127.0.0.1", "2130706433", "0x7f.1"] {
        assert_eq!(
            connect(&proxy, &format!("{host}:{}", echo.port)).await.1,
            200,
            "{host}"
        );
    }
    assert_eq!(echo.count(), 3);
}

#[tokio::test]
async fn an_inner_address_is_refused_in_every_spelling() {
    let echo = Echo::start("127.0.0.1").await;
    let names = lookup(&[
        ("in.example", &["127.0.0.1"]),
        ("in.example.", &["127.0.0.1"]),
    ]);
    let proxy = proxy(&egress(&[], names), None).await;
    for host in [
        "127.0.0.1",
        "2130706433",
        "017700000001",
        "0x7f000001",
        "127.1",
        "127.0.0.1.",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "0.0.0.0",
        "[::]",
        "in.example",
        "IN.example.",
    ] {
        assert_eq!(
            connect(&proxy, &format!("{host}:{}", echo.port)).await.1,
            403,
            "{host}"
        );
        assert_eq!(
            get(&proxy, &format!("http://{host}:{}/", echo.port))
                .await
                .0,
            403,
            "{host}"
        );
    }
    assert_eq!(echo.count(), 0);
}

#[tokio::test]
async fn a_metadata_service_is_refused() {
    let proxy = proxy(
        &egress(&[], lookup(&[("meta.example", &["169.254.169.254"])])),
        None,
    )
    .await;
    for host in [
        "169.254.169.254",
        "2852039166",
        "[::ffff:169.254.169.254]",
        "[fd00:ec2::254]",
        "meta.example",
    ] {
        assert_eq!(
            connect(&proxy, &format!("{host}:80")).await.1,
            403,
            "{host}"
        );
        assert_eq!(
            get(&proxy, &format!("http://{host}/latest/meta-data/"))
                .await
                .0,
            403,
            "{host}"
        );
        assert!(
            matches!(proxy.trouble(), Some(Trouble::Refused(refused)) if refused.to_string().contains("metadata")
            || refused.reason == "its URL was refused")
        );
    }
}

#[tokio::test]
async fn a_name_is_resolved_once_and_the_connection_goes_to_what_was_checked() {
    let (outer, inner) = (
        Echo::start("127.0.0.1").await,
        Echo::start("127.0.0.2").await,
    );
    for port in [outer.port, inner.port] {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        // The first answer is fine, all others are inner.
        let rebinding: Lookup = Arc::new(move |_| {
            let first = count.fetch_add(1, Ordering::SeqCst) == 0;
            let address: IpAddr = if first { "127.0.0.1" } else { "127.0.0.2" }
                .parse()
                .unwrap();
            Box::pin(async move { Ok(vec![address]) })
        });
        let proxy = proxy(
            &egress(&["127.0.0.1"], rebinding),
            Some(("rebind.example", port)),
        )
        .await;
        let target = format!("rebind.example:{port}");
        assert_eq!(
            connect(&proxy, &target).await.1,
            if port == outer.port { 200 } else { 502 }
        );
        assert_eq!(
            asked.load(Ordering::SeqCst),
            1,
            "nobody resolves behind the guard's back"
        );
        assert_eq!(connect(&proxy, &target).await.1, 403);
    }
    assert_eq!((outer.count(), inner.count()), (1, 0));
}

#[tokio::test]
async fn of_a_mixed_answer_only_the_checked_addresses_are_used() {
    let (outer, inner) = (
        Echo::start("127.0.0.1").await,
        Echo::start("127.0.0.2").await,
    );
    let mixed = lookup(&[("mixed.example", &["127.0.0.2", "::1", "127.0.0.1"])]);
    let proxy = proxy(&egress(&["127.0.0.1"], mixed), None).await;
    assert_eq!(
        connect(&proxy, &format!("mixed.example:{}", outer.port))
            .await
            .1,
        200
    );
    assert_eq!(
        connect(&proxy, &format!("mixed.example:{}", inner.port))
            .await
            .1,
        502
    );
    assert_eq!((outer.count(), inner.count()), (1, 0));
}

#[tokio::test]
async fn a_redirect_is_handed_back_and_not_followed() {
    let inner = Echo::start("127.0.0.2").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let location = format!("http://127.0.0.2:{}/", inner.port);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let answer = format!(
                "HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let proxy = proxy(&egress(&["127.0.0.1"], lookup(&[])), None).await;
    assert_eq!(
        get(&proxy, &format!("http://127.0.0.1:{port}/")).await.0,
        302
    );
    assert_eq!(inner.count(), 0);
}

#[tokio::test]
async fn requests_that_make_no_sense_reach_nobody() {
    let echo = Echo::start("127.0.0.1").await;
    let proxy = proxy(&egress(&["127.0.0.1"], lookup(&[])), None).await;
    let authorization = proxy.authorization();
    let port = echo.port;
    for request in [
        "CONNECT 127.0.0.1".to_owned(),
        "CONNECT :443".to_owned(),
        "CONNECT 127.0.0.1:99999".to_owned(),
        format!("CONNECT user@127.0.0.1:{port}"),
        format!("CONNECT http://127.0.0.1:{port}/"),
        format!("CONNECT 127.0.0.1:{port}/x"),
        "GET /".to_owned(),
        format!("GET https://127.0.0.1:{port}/"),
        format!("GET ftp://127.0.0.1:{port}/"),
        format!("GET http://user:secret@127.0.0.1:{port}/"),
        "GET http:///x".to_owned(),
        "NONSENSE".to_owned(),
    ] {
        let head = format!(
            "{request} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nProxy-Authorization: {authorization}\r\n\r\n"
        );
        let (_, status, answer) = send(&proxy, &head).await;
        assert!((400..500).contains(&status), "{request}: {answer:?}");
    }
    assert_eq!(echo.count(), 0);
}

#[tokio::test]
async fn a_flood_of_headers_is_cut_off() {
    let proxy = proxy(&egress(&[], lookup(&[])), None).await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream
        .write_all(b"CONNECT a.example:443 HTTP/1.1\r\n")
        .await
        .unwrap();
    let line = format!("X-Flood: {}\r\n", "x".repeat(1000));
    let mut sent = 0;
    // 64 MiB would fit without a count.
    while sent < 64 << 20 && stream.write_all(line.as_bytes()).await.is_ok() {
        sent += line.len();
    }
    assert!(sent < 64 << 20, "{sent} bytes were taken");
}

#[tokio::test]
async fn a_head_that_never_ends_and_one_that_never_comes_are_given_up() {
    let egress = egress(&[], lookup(&[]));
    let config = ProxyConfig {
        header_timeout: Duration::from_millis(20),
        ..ProxyConfig::default()
    };
    let proxy = egress.proxy(Target::Any, config).await.unwrap();
    for start in ["", "CONNECT a.example:443 HTTP/1.1\r\n"] {
        let (mut stream, _, _) = send(&proxy, start).await;
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
    }
}

#[tokio::test]
async fn more_connections_than_it_takes_wait() {
    let echo = Echo::start("127.0.0.1").await;
    let egress = egress(&["127.0.0.1"], lookup(&[]));
    let config = ProxyConfig {
        max_connections: 1,
        ..ProxyConfig::default()
    };
    let proxy = egress.proxy(Target::Any, config).await.unwrap();
    let target = format!("127.0.0.1:{}", echo.port);
    let (first, status) = connect(&proxy, &target).await;
    assert_eq!(status, 200);
    let second = connect(&proxy, &target);
    tokio::pin!(second);
    // The first tunnel holds the only place, also after its request was answered.
    assert!(
        tokio::time::timeout(Duration::from_millis(200), &mut second)
            .await
            .is_err()
    );
    drop(first);
    assert_eq!(second.await.1, 200);
}
