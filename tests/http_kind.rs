//! Packs of kind `http` with the real program and a packs folder: the cache in front of them, and
//! the guard behind them.
//!
//! 127.0.0.1 is open and stands for a public host; 127.0.0.2 is not and stands for an inner one.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};

use crate::support::program::{Home, SERVE, Server};
use crate::support::{KEY, wait_for};

/// What lets the program reach the host of these tests.
const OPEN: (&str, &str) = ("HELMDECK_EGRESS_ALLOW", "127.0.0.1");
const CANARY: &str = "canary-K9x2-shop";

/// A request that came in: `GET /path`, headers by name in lower case, body.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

/// A host whose answers a function makes, one connection per request.
pub(crate) struct Host {
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Host {
    pub(crate) fn start(
        ip: &str,
        answer: impl Fn(&Asked) -> String + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (answer, log) = (Arc::new(answer), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                std::thread::spawn(move || {
                    if let Some((asked, mut stream)) = read(stream) {
                        log.lock().unwrap().push(asked.clone());
                        // Who asked may have gone; that is its business.
                        let _ = stream.write_all(answer(&asked).as_bytes());
                    }
                });
            }
        });
        Self { address, asked }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

fn read(stream: TcpStream) -> Option<(Asked, TcpStream)> {
    let mut reader = BufReader::new(stream);
    let mut asked = Asked {
        line: String::new(),
        headers: HashMap::new(),
        body: String::new(),
    };
    let mut line = String::new();
    while reader.read_line(&mut line).ok()? > 2 {
        match line
            .trim_end()
            .split_once(": ")
            .filter(|_| !asked.line.is_empty())
        {
            Some((name, value)) => drop(
                asked
                    .headers
                    .insert(name.to_ascii_lowercase(), value.to_owned()),
            ),
            None => asked.line = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned(),
        }
        line.clear();
    }
    let length = asked
        .headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    asked.body = String::from_utf8(body).unwrap();
    Some((asked, reader.into_inner()))
}

pub(crate) fn answer(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
}

/// Writes a pack; `http` is its `[handler.http]`, `rest` follows.
fn install(home: &Home, name: &str, read_only: bool, http: &str, rest: &str) {
    let manifest = format!(
        "name = \"{name}\"\nversion = \"v1\"\ndescription = \"For tests\"\nread_only = {read_only}\ncredentials = [\"shop\"]\n\
         [handler.http]\n{http}\n[input]\ntype = \"object\"\nadditionalProperties = false\n[input.properties]\n\
         id = {{ type = \"string\" }}\n{rest}\n"
    );
    std::fs::write(home.packs().join(format!("{name}.toml")), manifest).unwrap();
}

#[test]
fn fifty_callers_share_a_request_until_write() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let held = Arc::clone(&gate);
    let host = Host::start("127.0.0.1", move |asked| {
        if asked.line == "GET /items/slow" {
            let (open, changed) = &*held;
            let _open = changed
                .wait_while(open.lock().unwrap(), |open| !*open)
                .unwrap();
        }
        answer(
            "200 OK",
            "content-type: application/json\r\n",
            &json!({"line": asked.line, "body": asked.body}).to_string(),
        )
    });
    let home = Home::new();
    let url = format!("url = \"http://{}/items/{{id}}\"", host.address);
    install(
        &home,
        "shop.item",
        true,
        &url,
        "[memory]\ncache = true\nttl = \"1h\"\ntags = [\"item:{id}\"]",
    );
    let write = format!("method = \"PUT\"\n{url}\nbody = {{ id = \"{{id}}\" }}");
    install(
        &home,
        "shop.change",
        false,
        &write,
        "[memory]\ninvalidates = [\"item:{id}\"]",
    );
    let server = Server::start_with(&home, KEY, &[OPEN]);

    let (seven, other) = (json!({"id": "7"}), json!({"id": "8"}));
    let expected = json!({"line": "GET /items/7", "body": ""});
    assert_eq!(
        server.call("shop.item", &seven),
        ("miss".to_owned(), expected.clone())
    );
    assert_eq!(
        server.call("shop.item", &seven),
        ("hit".to_owned(), expected.clone())
    );
    assert_eq!(server.call("shop.item", &other).0, "miss");
    assert_eq!(host.count(), 2);

    let written = server.ask("POST /api/v1/packs/shop.change", &seven.to_string());
    assert_eq!(
        (written.code, &written.json()["output"]["body"]),
        (200, &json!("{\"id\":\"7\"}")),
        "{}",
        written.body
    );
    assert_eq!(
        server.call("shop.item", &seven).0,
        "miss",
        "the write purged it"
    );
    assert_eq!(server.call("shop.item", &other).0, "hit", "and only it");

    let before = host.count();
    let statuses = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..50)
            .map(|_| scope.spawn(|| server.call("shop.item", &json!({"id": "slow"})).0))
            .collect();
        wait_for("the request", || host.count() > before);
        // The rest may come while the host is busy or after it answered: in both cases no other
        // caller may ask it.
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        calls
            .into_iter()
            .map(|call| call.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert_eq!(host.count(), before + 1, "{statuses:?}");
    assert_eq!(
        statuses.iter().filter(|status| *status == "miss").count(),
        1,
        "{statuses:?}"
    );
    assert!(
        statuses
            .iter()
            .all(|status| ["miss", "hit", "coalesced"].contains(&status.as_str())),
        "{statuses:?}"
    );

    let (status, output) = {
        drop(server);
        let mut command = home.command(KEY, &["run", "shop.item", "id=7", "--json"]);
        let run = crate::support::program::Run::of(command.env(OPEN.0, OPEN.1).output().unwrap());
        let outcome: Value =
            serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{}", run.stderr));
        (
            outcome["cache"]["status"].clone(),
            outcome["output"].clone(),
        )
    };
    assert_eq!(
        (status, output),
        (json!("hit"), expected),
        "another process has the answer too"
    );
    assert_eq!(host.count(), before + 1);
}

#[test]
fn an_old_answer_is_confirmed_by_its_etag() {
    let host = Host::start("127.0.0.1", |asked| {
        match asked.headers.get("if-none-match").map(String::as_str) {
            Some("\"v1\"") => answer("304 Not Modified", "etag: \"v1\"\r\n", ""),
            other => answer(
                "200 OK",
                "etag: \"v1\"\r\ncontent-type: application/json\r\n",
                &format!("{{\"was\":{other:?}}}").replace("None", "null"),
            ),
        }
    });
    let home = Home::new();
    let url = format!("url = \"http://{}/\"", host.address);
    install(
        &home,
        "shop.tagged",
        true,
        &url,
        "[memory]\ncache = true\nttl = \"1s\"\nrevalidate = true",
    );
    let server = Server::start_with(&home, KEY, &[OPEN]);
    assert_eq!(
        server.call("shop.tagged", &json!({})),
        ("miss".to_owned(), json!({"was": null}))
    );
    let mut last = String::new();
    wait_for("the answer to grow old", || {
        let (status, output) = server.call("shop.tagged", &json!({}));
        assert_eq!(output, json!({"was": null}));
        last = status;
        last != "hit"
    });
    assert_eq!(last, "revalidated");
    assert!(
        host.asked()[1..]
            .iter()
            .all(|asked| asked.headers.contains_key("if-none-match"))
    );
}

#[test]
fn no_inner_address_is_reached_no_credential_leaks() {
    let inner = Host::start("127.0.0.2", |_| answer("200 OK", "", "inner"));
    let port = inner.address.rsplit(':').next().unwrap().to_owned();
    let target = port.clone();
    let host = Host::start("127.0.0.1", move |asked| {
        let location = match asked.line.as_str() {
            "GET /plain" => "127.0.0.2".to_owned(),
            "GET /decimal" => "2130706434".to_owned(),
            "GET /octal" => "0177.0.0.2".to_owned(),
            "GET /hex" => "0x7f.0x2".to_owned(),
            "GET /mapped" => "[::ffff:127.0.0.2]".to_owned(),
            "GET /nat64" => "[64:ff9b::7f00:2]".to_owned(),
            "GET /6to4" => "[2002:7f00:2::]".to_owned(),
            "GET /user" => "127.0.0.1@127.0.0.2".to_owned(),
            "GET /dot" => "127.0.0.2.".to_owned(),
            "GET /zero" => "0.0.0.0".to_owned(),
            "GET /any" => "[::]".to_owned(),
            "GET /unicode" => "%E2%91%A0%E2%91%A1%E2%91%A6.0.0.2".to_owned(),
            "GET /meta" => "169.254.169.254".to_owned(),
            line => panic!("{line}"),
        };
        answer(
            "302 Found",
            &format!("location: http://{location}:{target}/\r\n"),
            "",
        )
    });
    let home = Home::new();
    std::fs::write(
        home.packs().parent().unwrap().join("helmdeck.toml"),
        "[credentials]\nshop = \"env:SHOP_TOKEN\"\n",
    )
    .unwrap();
    let headers = "headers = { X-Api-Key = \"{credential:shop}\" }";
    install(
        &home,
        "shop.go",
        true,
        &format!("url = \"http://{}/{{id}}\"\n{headers}", host.address),
        "",
    );
    let direct = [
        "127.0.0.2",
        "2130706434",
        "0x7f.2",
        "[::ffff:127.0.0.2]",
        "[::]",
        "0.0.0.0",
        "127.0.0.2.",
    ];
    for (index, name) in direct.iter().enumerate() {
        install(
            &home,
            &format!("shop.direct{index}"),
            true,
            &format!("url = \"http://{name}:{port}/\"\n{headers}"),
            "",
        );
    }
    let mut command = home.command(KEY, SERVE);
    command
        .env(OPEN.0, OPEN.1)
        .env("SHOP_TOKEN", CANARY)
        .env("HELMDECK_LOG", "trace");
    let server = Server::launch(command);

    for id in [
        "plain", "decimal", "octal", "hex", "mapped", "nat64", "6to4", "user", "dot", "zero",
        "any", "unicode", "meta",
    ] {
        let refused = server.ask("POST /api/v1/packs/shop.go", &json!({"id": id}).to_string());
        assert_eq!(
            (refused.code, refused.status().as_str()),
            (403, "forbidden"),
            "{id}: {}",
            refused.body
        );
        assert!(
            refused.json()["detail"]
                .as_str()
                .unwrap()
                .contains("HELMDECK_EGRESS_ALLOW"),
            "{id}: {}",
            refused.body
        );
        assert!(!refused.body.contains(CANARY));
    }
    assert_eq!(host.count(), 13);
    assert!(
        host.asked()
            .iter()
            .all(|asked| asked.headers["x-api-key"] == CANARY),
        "its own host gets the credential"
    );
    for (index, name) in direct.iter().enumerate() {
        let refused = server.ask(&format!("POST /api/v1/packs/shop.direct{index}"), "{}");
        assert_eq!(
            (refused.code, refused.status().as_str()),
            (403, "forbidden"),
            "{name}: {}",
            refused.body
        );
    }
    assert_eq!(inner.count(), 0, "{:?}", inner.asked());
    assert!(!server.says(CANARY), "the log holds the credential");
    drop(server);

    // With both open, the redirect is followed, and the credential stays behind.
    let mut command = home.command(KEY, SERVE);
    command
        .env(OPEN.0, "127.0.0.1,127.0.0.2")
        .env("SHOP_TOKEN", CANARY);
    let server = Server::launch(command);
    let went = server.ask(
        "POST /api/v1/packs/shop.go",
        &json!({"id": "plain"}).to_string(),
    );
    assert_eq!(
        (went.code, &went.json()["output"]),
        (200, &json!("inner")),
        "{}",
        went.body
    );
    assert!(
        !inner.asked()[0].headers.contains_key("x-api-key"),
        "{:?}",
        inner.asked()
    );
}

#[test]
fn new_http_pack_checks_without_sending_examples() {
    let home = Home::new();
    let packs = home.packs();
    let folder = packs.join("new");
    let made = home.run(
        KEY,
        &[
            "pack",
            "new",
            "team.look_up",
            "--kind",
            "http",
            "--dir",
            folder.to_str().unwrap(),
        ],
    );
    assert_eq!(made.code, 0, "{}", made.stderr);
    let checked = home.run(KEY, &["pack", "check", folder.to_str().unwrap()]);
    assert_eq!(
        (checked.code, checked.stdout.trim()),
        (0, "1 pack checked, 0 problems"),
        "{}",
        checked.stderr
    );

    let host = Host::start("127.0.0.1", |_| {
        answer("200 OK", "content-type: application/json\r\n", "{\"n\": 1}")
    });
    let examples = "[[examples]]\ninput = { id = \"a\" }\noutput = { type = \"object\", required = [\"n\"] }\n";
    install(
        &home,
        "shop.item",
        true,
        &format!("url = \"http://{}/{{id}}\"", host.address),
        examples,
    );
    let file = packs.join("shop.item.toml");
    let check = |more: &[&str]| {
        let mut command = home.command(
            KEY,
            &[&["pack", "check", file.to_str().unwrap()], more].concat(),
        );
        crate::support::program::Run::of(command.env(OPEN.0, OPEN.1).output().unwrap())
    };
    assert_eq!(check(&[]).code, 0);
    assert_eq!(host.count(), 0, "nothing is sent unasked");
    let run = check(&["--run"]);
    assert_eq!(
        (run.code, host.count()),
        (0, 1),
        "{}{}",
        run.stdout,
        run.stderr
    );

    let text = std::fs::read_to_string(&file)
        .unwrap()
        .replace("id = \"a\"", "id = \"..\"");
    std::fs::write(&file, text).unwrap();
    let refused = check(&[]);
    assert_eq!(refused.code, 1);
    assert!(
        refused.stdout.contains("the example makes no request"),
        "{}",
        refused.stdout
    );
}

#[test]
fn check_says_what_would_not_be_stored() {
    let home = Home::new();
    let host = Host::start("127.0.0.1", |asked| {
        let said = asked.line.trim_start_matches("GET /").replace('+', " ");
        answer(
            "200 OK",
            &format!("content-type: application/json\r\ncache-control: {said}\r\n"),
            "{}",
        )
    });
    let check = |said: &str, memory: &str| {
        let rest = format!("[[examples]]\ninput = {{}}\n[memory]\ncache = true\n{memory}");
        install(
            &home,
            "shop.item",
            true,
            &format!("url = \"http://{}/{said}\"", host.address),
            &rest,
        );
        let mut command = home.command(KEY, &["pack", "check", "--run"]);
        let run = crate::support::program::Run::of(command.env(OPEN.0, OPEN.1).output().unwrap());
        (run.code, format!("{}{}", run.stdout, run.stderr))
    };
    for (said, memory, warned) in [
        ("max-age=60", "ttl = \"1h\"", None),
        ("no-store", "ttl = \"1h\"", Some("upstream_no_store")),
        ("no-store", "ttl = \"1h\"\nrespect = \"none\"", None),
        ("private", "ttl = \"1h\"", None),
        (
            "private",
            "ttl = \"1h\"\nscope = \"shared\"",
            Some("upstream_private"),
        ),
        ("public", "ttl = \"upstream\"", Some("upstream_not_fresh")),
        ("max-age=60", "ttl = \"upstream\"", None),
    ] {
        let (code, text) = check(said, memory);
        assert_eq!(code, 0, "a warning is no problem: {text}");
        assert_eq!(
            text.contains("warning: the answer would not be stored"),
            warned.is_some(),
            "{said} {memory}: {text}"
        );
        assert!(
            warned.is_none_or(|word| text.contains(word)),
            "{said} {memory}: {text}"
        );
    }
    let (code, text) = check("max-age=60", "ttl = \"1h\"\nmax_bytes = \"64MiB\"");
    assert_eq!(code, 0, "{text}");
    let (code, text) = check("max-age=60", "ttl = \"1h\"\nmax_bytes = \"65MiB\"");
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("max_bytes is over 64MiB"), "{text}");
}
