//! Hostile requests, over real TCP to the real program.
//!
//! Each has to be refused, and to leave the next caller alone.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use base64::Engine as _;
use helmdeck_testkit::leaks::credentials;
use serde_json::{Value, json};

use crate::support::program::{Home, Run, Server};
use crate::support::{KEY, STUCK};

mod tokens;

/// A server that asks for tokens, and one for everything.
struct Target {
    home: Home,
    server: Server,
    token: String,
}

impl Target {
    fn start(environment: &[(&str, &str)]) -> Self {
        Self::start_in(environment, |_| {})
    }

    /// As [`Self::start`], in a home that is prepared first.
    fn start_in(environment: &[(&str, &str)], prepare: impl FnOnce(&Home)) -> Self {
        let home = Home::new();
        prepare(&home);
        let create = [
            "token", "create", "--tenant", "acme", "--user", "root", "--scope", "admin",
        ];
        let made = Run::of(home.command(KEY, &create).output().unwrap());
        assert_eq!(made.code, 0, "{}", made.stderr);
        let environment = [environment, &[("HELMDECK_AUTH__API_TOKENS", "true")]].concat();
        let server = Server::start_with(&home, KEY, &environment);
        Self {
            home,
            server,
            token: made.stdout.trim().to_owned(),
        }
    }

    /// Sends a request with a good token; returns status and body.
    fn send(&self, line: &str, headers: &str, body: &[u8]) -> (u16, String) {
        let head = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n{headers}\r\n",
            self.token,
            body.len()
        );
        read(&self.server.raw(&[head.as_bytes(), body].concat()))
    }

    /// Sends a head as it is.
    fn head(&self, head: &str) -> (u16, String) {
        read(&self.server.raw(head.as_bytes()))
    }

    /// Runs the pack with a body and checks that it is refused as invalid input.
    ///
    /// The message must be well-formed.
    #[track_caller]
    fn refuses_input(&self, what: &str, body: &[u8]) {
        let (status, text) = self.send("POST /api/v1/packs/test.echo", "", body);
        let problem: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{what}: {error}: {text}"));
        assert_eq!(
            (status, problem["code"].as_str()),
            (400, Some("invalid_input")),
            "{what}: {text}"
        );
        assert!(
            text.len() < 2000,
            "{what}: the answer repeats what was sent"
        );
    }

    /// Checks that nothing ran, and that a good call still does.
    #[track_caller]
    fn stands(&self) {
        assert!(
            !self.home.packs().join("runs").exists(),
            "an attack ran the pack"
        );
        let (status, text) = self.send("POST /api/v1/packs/test.echo", "", br#"{"repo":"a"}"#);
        assert_eq!(status, 200, "{text}");
    }
}

fn read(answer: &str) -> (u16, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    (
        head.get(9..12)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0),
        body.to_owned(),
    )
}

#[test]
fn forged_hosts_are_refused_before_authentication() {
    let target = Target::start(&[]);
    let token = &target.token;
    for host in [
        "Host: evil.example\r\n",
        "Host: evil.example:7700\r\n",
        "Host: localhost.evil.example\r\n",
        "Host: 127.0.0.1.evil.example\r\n",
        "Host: localhost@evil.example\r\n",
        "Host: 169.254.169.254\r\n",
        "Host: \r\n",
        "Host: localhost\r\nHost: evil.example\r\n",
        "X-Forwarded-Host: localhost\r\nHost: evil.example\r\n",
        "",
    ] {
        for path in ["/api/v1/packs", "/docs", "/mcp"] {
            let head = format!(
                "GET {path} HTTP/1.1\r\n{host}Authorization: Bearer {token}\r\nConnection: close\r\n\r\n"
            );
            let (status, body) = target.head(&head);
            assert!(
                matches!(status, 400 | 403),
                "{path} {host:?}: {status} {body}"
            );
            assert!(!body.contains("test.echo"), "{body}");
        }
    }
    // Balancers ask by the address of one server; a page that made its own name point here is a
    // browser.
    for (browser, status) in [
        ("", 200),
        ("Sec-Fetch-Site: same-origin\r\n", 403),
        ("Origin: http://evil.example\r\n", 403),
    ] {
        let head = format!(
            "GET /healthz HTTP/1.1\r\nHost: evil.example\r\n{browser}Connection: close\r\n\r\n"
        );
        assert_eq!(target.head(&head).0, status, "{browser}");
    }
    // A target in absolute form counts too.
    let absolute = format!(
        "GET http://evil.example/api/v1/packs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(target.head(&absolute).0, 403);
    target.stands();
}

#[test]
fn forged_origins_are_refused() {
    let target = Target::start(&[]);
    for origin in [
        "https://evil.example",
        "null",
        "http://localhost.evil.example",
        "file://",
        "https://localhost:x",
    ] {
        for line in [
            "GET /api/v1/packs",
            "POST /api/v1/packs/test.echo",
            "POST /mcp",
        ] {
            assert_eq!(
                target.send(line, &format!("Origin: {origin}\r\n"), b"{}").0,
                403,
                "{line} {origin}"
            );
        }
    }
    let two = "Origin: http://localhost\r\nOrigin: https://evil.example\r\n";
    assert_eq!(target.send("GET /api/v1/packs", two, b"").0, 403);
    target.stands();
}

#[test]
fn oversized_body_is_refused() {
    let target = Target::start(&[("HELMDECK_SERVER__MAX_BODY_BYTES", "64KiB")]);
    let large = format!(r#"{{"repo":"{}"}}"#, "x".repeat(64 << 10));
    assert_eq!(
        target
            .send("POST /api/v1/packs/test.echo", "", large.as_bytes())
            .0,
        413
    );
    let head = |more: &str| {
        format!(
            "POST /api/v1/packs/test.echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nConnection: close\r\n{more}\r\n",
            target.token
        )
    };
    // It says that it is huge, and sends nothing.
    assert_eq!(
        target.head(&head("Content-Length: 109951162777600\r\n")).0,
        413
    );
    // It says nothing, and sends too much.
    let chunked = format!(
        "{}{:x}\r\n{large}\r\n0\r\n\r\n",
        head("Transfer-Encoding: chunked\r\n"),
        large.len()
    );
    assert_eq!(target.head(&chunked).0, 413);
    target.stands();
}

#[test]
fn oversized_token_and_headers_are_refused() {
    let target = Target::start(&[]);
    for (size, expected) in [(9 << 10, 401), (100 << 10, 431)] {
        let head = format!(
            "GET /api/v1/packs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
            "a".repeat(size)
        );
        assert_eq!(target.head(&head).0, expected, "{size}");
    }
    target.stands();
}

#[test]
fn deeply_nested_json_is_refused() {
    let target = Target::start(&[]);
    for depth in [200, 100_000] {
        for (open, close) in [("[", "]"), ("{\"repo\":", "}")] {
            let body = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            target.refuses_input(&format!("{depth} {open}"), body.as_bytes());
            target.refuses_input("never closed", open.repeat(depth).as_bytes());
        }
    }
    target.stands();
}

#[test]
fn duplicate_keys_in_json_are_refused() {
    let target = Target::start(&[]);
    for body in [
        r#"{"repo":"a","repo":"b"}"#,
        r#"{"repo":"a","r\u0065po":"b"}"#,
        r#"{"repo":{"a":1,"a":2}}"#,
    ] {
        target.refuses_input(body, body.as_bytes());
    }
    target.stands();
}

#[test]
fn malformed_json_is_refused() {
    let target = Target::start(&[]);
    for body in [
        &b"{\"repo\":\"\xff\xfe\"}"[..],
        b"{\"repo\":\"\xc0\xaf\"}",
        b"{\"repo\":\"\xed\xa0\x80\"}",
        b"{\"repo\":\"\\ud800\"}",
        b"\xef\xbb\xbf{\"repo\":\"a\"}",
        b"{\"repo\":\"a\"}{\"repo\":\"b\"}",
        b"{\"repo\":NaN}",
        b"{\"repo\":1e999}",
        b"\0",
    ] {
        target.refuses_input(&String::from_utf8_lossy(body), body);
    }
    target.stands();
}

#[test]
fn slow_loris_is_cut_off_and_delays_nobody() {
    let target = Target::start(&[("HELMDECK_SERVER__HEADER_TIMEOUT", "2s")]);
    let mut slow: Vec<_> = (0..20).map(|_| target.server.connect()).collect();
    let began = Instant::now();
    for stream in &mut slow {
        stream
            .write_all(b"GET /api/v1/packs HTTP/1.1\r\nHost: localhost\r\nX-A: ")
            .unwrap();
        stream.set_nonblocking(true).unwrap();
    }
    let mut open = slow.len();
    while open > 0 {
        assert!(began.elapsed() < STUCK, "{open} connections are still open");
        open = 0;
        for stream in &mut slow {
            // One more byte of a head that never ends.
            let written = stream.write(b"a").is_ok();
            let closed = match stream.read(&mut [0; 512]) {
                Ok(0) => true,
                Ok(_) => false,
                Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
            };
            open += usize::from(written && !closed);
        }
        let (status, _) = target.send("GET /api/v1/packs", "", b"");
        assert_eq!(status, 200);
        std::thread::sleep(Duration::from_millis(20));
    }
    target.stands();
}

#[test]
fn a_slow_body_is_given_up() {
    let target = Target::start(&[("HELMDECK_SERVER__BODY_TIMEOUT", "1s")]);
    let mut stream = target.server.connect();
    let head = format!(
        "POST /api/v1/packs/test.echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Length: 1000\r\n\r\n{{",
        target.token
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let (began, mut answer) = (Instant::now(), Vec::new());
    while answer.is_empty() {
        assert!(
            began.elapsed() < STUCK,
            "the server still waits for the body"
        );
        let _ = stream.write(b" ");
        let mut bytes = [0; 1024];
        if let Ok(read) = stream.read(&mut bytes) {
            answer.extend_from_slice(&bytes[..read]);
            if read == 0 {
                break;
            }
        }
    }
    assert!(
        String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 408"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    target.stands();
}

#[test]
fn path_characters_in_pack_names_reach_no_file() {
    let target = Target::start(&[]);
    for name in [
        "..%2f..%2f..%2fetc%2fpasswd",
        "%2e%2e%2ftest.echo",
        "../packs/test.echo",
        "test.echo%00",
        "test.echo%00.toml",
        "test.echo%0d%0aX-A:%20b",
        "test.echo%20",
        "test.echo%2fv1%2f..",
        "test.echo%5c..",
        "test.%65cho.sh",
        "TEST.ECHO",
        "test%EF%BC%8Eecho",
        "%ff%fe",
        "*",
    ] {
        for method in ["POST", "GET"] {
            let (status, body) = target.send(&format!("{method} /api/v1/packs/{name}"), "", b"{}");
            assert!(
                matches!(status, 400 | 404),
                "{method} {name}: {status} {body}"
            );
            assert!(!body.contains("root:"), "{body}");
        }
    }
    for key in [
        "..%2f..%2fhelmdeck.db",
        "../../helmdeck.db",
        "%2e%2e/%2e%2e/helmdeck.db",
        "test.echo/%00/x",
    ] {
        let (status, body) = target.send(&format!("GET /api/v1/artifacts/{key}"), "", b"");
        assert!(matches!(status, 400 | 404), "{key}: {status}");
        assert!(!body.contains("SQLite"), "{key}");
    }
    target.stands();
}

#[test]
fn ambiguous_lengths_smuggle_no_request() {
    let target = Target::start(&[]);
    let smuggled = "GET /api/v1/packs HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for lengths in [
        "Content-Length: 2\r\nContent-Length: 70\r\n",
        "Content-Length: +2\r\n",
        "Content-Length: 2, 70\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
    ] {
        let head = format!(
            "POST /api/v1/packs/test.echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n{lengths}\r\n{{}}{smuggled}",
            target.token
        );
        let answer = target.server.raw(head.as_bytes());
        assert!(
            answer.matches("HTTP/1.1 ").count() <= 1,
            "{lengths:?}: {answer}"
        );
        assert!(!answer.starts_with("HTTP/1.1 200"), "{lengths:?}: {answer}");
    }
    target.stands();
}

/// Also spelled so that a reader, or a program, would still get the credential out of it.
fn spellings(credential: &str) -> [String; 4] {
    let encoded =
        base64::engine::general_purpose::STANDARD.encode(format!("export A\n{credential}\n"));
    let percent = credential
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect();
    let invisible = credential.chars().flat_map(|c| [c, '\u{200b}']).collect();
    [
        format!("they said {credential}, I think"),
        encoded,
        percent,
        invisible,
    ]
}

#[test]
fn credentials_are_stored_by_no_transport_unless_allowed() {
    let target = Target::start(&[]);
    let mut allowed = 0;
    for (rule, credential) in credentials() {
        for text in spellings(&credential) {
            for (line, fact) in [
                (
                    "POST /api/v1/memory/store",
                    json!({"key": "k", "value": text}),
                ),
                (
                    "POST /api/v1/packs/memory.store",
                    json!({"key": "k", "value": text}),
                ),
                (
                    "POST /api/v1/memory/store",
                    json!({"key": text, "value": "v"}),
                ),
            ] {
                let (status, answer) = target.send(line, "", fact.to_string().as_bytes());
                let problem: Value = serde_json::from_str(&answer).unwrap();
                assert_eq!(
                    (status, problem["code"].as_str()),
                    (400, Some("invalid_input")),
                    "{line}: {text}: {answer}"
                );
                assert!(
                    answer.contains(" (rule ") && answer.contains("allow_secret"),
                    "{rule}: {answer}"
                );
                assert!(
                    !answer.contains(&credential),
                    "{rule}: the answer repeats what was sent"
                );
            }
        }
        let fact = json!({"key": "k", "value": credential, "allow_secret": true});
        let (status, answer) =
            target.send("POST /api/v1/memory/store", "", fact.to_string().as_bytes());
        assert_eq!(status, 200, "{rule}: {answer}");
        allowed += 1;
    }
    let (status, audit) = target.send(
        "GET /api/v1/audit?tenant=acme&user=root&limit=1000",
        "",
        b"",
    );
    assert_eq!(
        (status, audit.matches("\"secret_allowed\"").count()),
        (200, allowed),
        "{audit}"
    );

    let home = Home::new();
    let (rule, credential) = credentials().swap_remove(1);
    let run = |more: &[&str]| {
        let value = format!("value={credential}");
        let command = [&["run", "memory.store", "key=k", &value][..], more].concat();
        Run::of(home.command(KEY, &command).output().unwrap())
    };
    let refused = run(&[]);
    assert!(
        refused.code != 0 && refused.stderr.contains(rule),
        "{}",
        refused.stderr
    );
    assert!(!refused.stderr.contains(&credential) && !refused.stdout.contains(&credential));
    assert_eq!(run(&["allow_secret=true"]).code, 0);
}

/// A schema of a few KB whose check by a large document takes hours: 8,100 times the same rule.
fn wide(rule: &Value) -> Value {
    let all_of = |next: &str| json!({"allOf": vec![json!({"$ref": next}); 90]});
    let defs = json!({"d0": all_of("#/$defs/d1"), "d1": all_of("#/$defs/d2"), "d2": rule});
    json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs})
}

/// The rule of the schema, and the document.
fn expensive() -> [(&'static str, Value, Value); 2] {
    // A text that the pattern has to read to its end, and that its automaton finds new again and
    // again.
    let text: String = (0..800_000_u32)
        .map(|n| char::from(b'c' + (n.wrapping_mul(n) >> 7).to_le_bytes()[0] % 13))
        .collect();
    let arrays: Value = (0..3_000).map(|n| json!([n])).collect();
    let pattern = json!({"pattern": r"(\w|[a-c]x|\d)[^b]{1,60}$|q"});
    [
        ("pattern", wide(&pattern), json!({"a": text})),
        (
            "unique",
            wide(&json!({"uniqueItems": true, "minItems": 1})),
            json!({"a": arrays}),
        ),
    ]
}

/// An MCP server whose tools answer with a file each, and describe their answers by a schema.
const ANSWERING: &str = r#"
cd "$(dirname "$0")"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case $line in
  *'"method":"initialize"'*)
    answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}' ;;
  *'"method":"tools/list"'*) answer "{\"tools\":$(cat tools.json)}" ;;
  *'"name":"pattern"'*) printf '{"jsonrpc":"2.0","id":%s,"result":' "$id"; cat pattern.json; echo '}' ;;
  *'"name":"unique"'*) printf '{"jsonrpc":"2.0","id":%s,"result":' "$id"; cat unique.json; echo '}' ;;
  esac
done
"#;

/// Sends calls at once, and asks meanwhile whether the server lives; returns the answers to the
/// calls.
fn four_at_once(target: &Target, pack: &str, body: &str) -> Vec<(u16, String)> {
    let line = format!("POST /api/v1/packs/{pack}");
    std::thread::scope(|scope| {
        let send = || target.send(&line, "", body.as_bytes());
        let calls: Vec<_> = (0..4).map(|_| scope.spawn(send)).collect();
        let mut healthy = 0;
        while healthy < 3 || calls.iter().any(|call| !call.is_finished()) {
            assert_eq!(target.send("GET /healthz", "", b"").0, 200, "{pack}");
            healthy += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    })
}

#[test]
fn expensive_schemas_freeze_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let cases = expensive();
    let tools: Value = cases
        .iter()
        .map(|(name, schema, _)| json!({"name": name, "inputSchema": {"type": "object"}, "outputSchema": schema}))
        .collect();
    write("tools.json", &tools.to_string());
    write("server.sh", ANSWERING);
    let mut target = Target::start_in(&[("HELMDECK_SERVER__REQUEST_DEADLINE", "3s")], |home| {
        for (name, schema, document) in &cases {
            let manifest = format!(
                "name = \"test.{name}\"\nversion = \"v1\"\ndescription = \"x\"\n[handler]\ncommand = [\"true\"]\n\
                 [input]\nfile = \"{name}.json\"\n"
            );
            std::fs::write(home.packs().join(format!("{name}.toml")), manifest).unwrap();
            std::fs::write(
                home.packs().join(format!("{name}.json")),
                schema.to_string(),
            )
            .unwrap();
            write(
                &format!("{name}.json"),
                &json!({"content": [], "structuredContent": document}).to_string(),
            );
        }
        let server = folder.path().join("server.sh");
        let run = home.run(
            KEY,
            &["mcp", "add", "x", "--", "/bin/sh", server.to_str().unwrap()],
        );
        assert_eq!(run.code, 0, "{}", run.stderr);
    });
    for (name, _, document) in &cases {
        for (pack, body) in [
            (format!("test.{name}"), document.to_string()),
            (format!("mcp.x.{name}"), "{}".to_owned()),
        ] {
            for (status, text) in four_at_once(&target, &pack, &body) {
                let problem: Value = serde_json::from_str(&text)
                    .unwrap_or_else(|error| panic!("{pack}: {error}: {text}"));
                let code = problem["code"].as_str().unwrap_or_default();
                let expected = ["timeout", "overloaded", "invalid_input", "invalid_output"];
                assert!(
                    expected.contains(&code) && status >= 400,
                    "{pack}: {status} {text}"
                );
                assert!(
                    problem["detail"]
                        .as_str()
                        .is_some_and(|detail| !detail.is_empty()),
                    "{text}"
                );
            }
        }
    }
    target.stands();
    // It ends in good order while four such calls are under way.
    let (_, _, document) = &cases[0];
    let body = document.to_string();
    let head = format!(
        "POST /api/v1/packs/test.pattern HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
        target.token,
        body.len()
    );
    let _under_way: Vec<_> = (0..4)
        .map(|_| {
            let mut stream = target.server.connect();
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(body.as_bytes()).unwrap();
            stream
        })
        .collect();
    assert_eq!(target.send("GET /healthz", "", b"").0, 200);
    target.server.signal("-TERM");
    assert_eq!(target.server.ended(), Some(0));
}
