//! Server-side request forgery tests, one for each known technique.
//!
//! They go through both clients, to a server on loopback that counts connections. Where a way in is
//! needed, 127.0.0.1 is open and stands for a public address; 127.0.0.2 is not and stands for an
//! inner one.

use super::*;

/// A server at an inner address, forbidden to every client.
struct Inner {
    port: u16,
    count: Arc<AtomicUsize>,
}

impl Inner {
    async fn start(address: &str) -> Self {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                seen.fetch_add(1, Ordering::SeqCst);
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(OK.as_bytes()).await;
            }
        });
        Self { port, count }
    }

    fn assert_untouched(&self) {
        assert_eq!(
            self.count.load(Ordering::SeqCst),
            0,
            "the inner server was reached"
        );
    }
}

/// Asks through both clients and checks that both are refused for one reason.
async fn refused(egress: &Egress, url: &str) -> String {
    let mut reasons = Vec::new();
    for client in [
        egress.client().await.unwrap(),
        egress.single_step_client().await.unwrap(),
    ] {
        let error = client.get(url).send().await.unwrap_err();
        let refused = refusal(&error).unwrap_or_else(|| panic!("{url}: {error:?}"));
        assert!(!refused.to_string().contains("secret"), "{refused}");
        reasons.push(refused.reason.clone());
    }
    assert_eq!(reasons[0], reasons[1], "{url}");
    reasons.remove(0)
}

/// Asks for each of these hosts at the inner server's port.
async fn all_refused(hosts: &[&str]) {
    let inner = Inner::start("127.0.0.1").await;
    let guard = egress(&[], lookup(&[]));
    for host in hosts {
        let reason = refused(&guard, &format!("http://{host}:{}/", inner.port)).await;
        assert!(
            reason.starts_with("it") || reason == "its URL was refused",
            "{host}: {reason}"
        );
    }
    inner.assert_untouched();
}

#[tokio::test]
async fn ssrf_by_ipv4_mapped_ipv6() {
    all_refused(&[
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:127.0.0.1]",
        "[::127.0.0.1]",
    ])
    .await;
}

#[tokio::test]
async fn ssrf_by_decimal_octal_and_hexadecimal_ip() {
    all_refused(&[
        "2130706433",
        "017700000001",
        "0x7f000001",
        "0177.0.0.1",
        "0x7f.1",
        "127.1",
        "127.0.1",
        "00177.0x0.1",
    ])
    .await;
}

#[tokio::test]
async fn ssrf_by_nat64_6to4_and_teredo() {
    all_refused(&[
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[2001:0:7f00:1::]",
    ])
    .await;
}

#[tokio::test]
async fn ssrf_by_zero_addresses() {
    all_refused(&["0.0.0.0", "0", "0x0", "[::]", "[0:0:0:0:0:0:0:0]", "[::1]"]).await;
}

#[tokio::test]
async fn ssrf_by_unicode_digits_and_dots() {
    all_refused(&[
        "①②⑦.⓪.⓪.①",
        "１２７.0.0.1",
        "127。0。0。1",
        "127.0.0.1%E3%80%82",
        "0x7Ⓕ.1",
    ])
    .await;
}

#[tokio::test]
async fn ssrf_by_user_name() {
    all_refused(&[
        "public.example@127.0.0.1",
        "public.example%2F@127.0.0.1",
        "user:secret@127.0.0.1",
        "a@b@127.0.0.1",
    ])
    .await;
}

#[tokio::test]
async fn ssrf_by_trailing_dot() {
    all_refused(&["127.0.0.1.", "2130706433.", "0x7f.1."]).await;
    let inner = Inner::start("127.0.0.1").await;
    let guard = egress(
        &[],
        lookup(&[
            ("in.example", &["127.0.0.1"]),
            ("in.example.", &["127.0.0.1"]),
        ]),
    );
    for name in ["in.example", "in.example.", "IN.EXAMPLE."] {
        let reason = refused(&guard, &format!("http://{name}:{}/", inner.port)).await;
        assert_eq!(reason, "it resolves to a loopback address");
    }
    inner.assert_untouched();
}

#[tokio::test]
async fn ssrf_to_metadata_services() {
    let guard = egress(&[], lookup(&[("metadata.example", &["169.254.169.254"])]));
    for host in [
        "169.254.169.254",
        "0xa9fea9fe",
        "2852039166",
        "[::ffff:169.254.169.254]",
        "[fd00:ec2::254]",
    ] {
        let url = format!("http://{host}/latest/meta-data/");
        assert_eq!(refused(&guard, &url).await, "its URL was refused", "{host}");
        let said = guard
            .check_url(&Url::parse(&url).unwrap())
            .unwrap_err()
            .to_string();
        assert!(said.contains("it is a metadata service"), "{said}");
    }
    assert_eq!(
        refused(&guard, "http://metadata.example/").await,
        "it resolves to a metadata service"
    );
    let url = Url::parse("http://169.254.1.1/").unwrap();
    assert!(
        guard
            .check_url(&url)
            .unwrap_err()
            .to_string()
            .contains("it is a link-local address")
    );
}

#[tokio::test]
async fn ssrf_by_redirect_in_every_spelling() {
    let inner = Inner::start("127.0.0.2").await;
    let guard = egress(&["127.0.0.1"], lookup(&[("in.example", &["127.0.0.2"])]));
    for host in [
        "127.0.0.2",
        "2130706434",
        "0x7f.2",
        "[::ffff:127.0.0.2]",
        "127.0.0.2.",
        "x@127.0.0.2",
        "in.example",
    ] {
        for status in [
            "301 Moved",
            "302 Found",
            "303 See",
            "307 Temporary",
            "308 Permanent",
        ] {
            let answer =
                redirect_to(&format!("http://{host}:{}/", inner.port)).replace("302 Found", status);
            let (outer, _) = server(answer).await;
            let reason = reason(&guard, &format!("http://127.0.0.1:{outer}/")).await;
            assert!(reason.ends_with("a loopback address"), "{host}: {reason}");
        }
    }
    inner.assert_untouched();
}

#[tokio::test]
async fn ssrf_by_a_name_that_is_an_alias_of_an_inner_name() {
    let inner = Inner::start("127.0.0.1").await;
    // A resolver that follows aliases, as every one does: what it returns are the addresses of the
    // last name.
    let aliases: HashMap<&str, &str> = HashMap::from([
        ("www.example", "cdn.example"),
        ("cdn.example", "db.internal"),
    ]);
    let alias: Lookup = Arc::new(move |mut name| {
        while let Some(next) = aliases.get(name.as_str()) {
            name = (*next).to_owned();
        }
        assert_eq!(name, "db.internal");
        Box::pin(async { Ok(vec!["127.0.0.1".parse().unwrap()]) })
    });
    // The operator allowed the inner name. The request names another one.
    let guard = egress(&["db.internal"], alias);
    let reason = refused(&guard, &format!("http://www.example:{}/", inner.port)).await;
    assert_eq!(reason, "it resolves to a loopback address");
    inner.assert_untouched();
    let url = format!("http://db.internal:{}/", inner.port);
    assert_eq!(
        get(&guard, &url).await.unwrap(),
        "ok",
        "the server is there"
    );
}

#[tokio::test]
async fn ssrf_by_dns_that_answers_twice_differently() {
    let inner = Inner::start("127.0.0.2").await;
    let outer = Inner::start("127.0.0.1").await;
    // The first answer is fine, all others are inner. Both servers have their own port, so each is
    // asked at both.
    for port in [inner.port, outer.port] {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let rebinding: Lookup = Arc::new(move |_| {
            let first = count.fetch_add(1, Ordering::SeqCst) == 0;
            let address: IpAddr = if first { "127.0.0.1" } else { "127.0.0.2" }
                .parse()
                .unwrap();
            Box::pin(async move { Ok(vec![address]) })
        });
        let guard = egress(&["127.0.0.1"], rebinding);
        let client = guard.single_step_client().await.unwrap();
        let url = format!("http://rebind.example:{port}/");
        let first = client.get(&url).send().await;
        assert_eq!(
            first.is_ok(),
            port == outer.port,
            "the connection goes to the address that was checked"
        );
        assert_eq!(
            asked.load(Ordering::SeqCst),
            1,
            "nobody resolves behind the guard's back"
        );
        let second = client.get(&url).send().await.unwrap_err();
        assert_eq!(
            refusal(&second).unwrap().reason,
            "it resolves to a loopback address"
        );
    }
    inner.assert_untouched();
}

#[tokio::test]
async fn ssrf_by_other_schemes() {
    let inner = Inner::start("127.0.0.1").await;
    let guard = egress(&["127.0.0.1"], lookup(&[]));
    for scheme in ["ftp", "gopher", "unix", "ws", "wss"] {
        let url = format!("{scheme}://127.0.0.1:{}/", inner.port);
        assert!(
            guard.check_url(&Url::parse(&url).unwrap()).is_err(),
            "{scheme}"
        );
        assert!(
            guard
                .single_step_client()
                .await
                .unwrap()
                .get(&url)
                .send()
                .await
                .is_err(),
            "{scheme}"
        );
    }
    inner.assert_untouched();
}

#[tokio::test]
async fn the_single_step_client_follows_nothing() {
    let guard = egress(&["127.0.0.1"], lookup(&[]));
    let (inner, count) = server(OK).await;
    let (outer, _) = server(redirect_to(&format!("http://127.0.0.1:{inner}/"))).await;
    let client = guard.single_step_client().await.unwrap();
    let response = client
        .get(format!("http://127.0.0.1:{outer}/"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 302);
    assert_eq!(count.load(Ordering::SeqCst), 0);
}
