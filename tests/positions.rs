//! Reading one's own deletes at another server: `Helmdeck-Position` and `Helmdeck-After`.
//!
//! The servers hear nothing of each other by themselves: the interval is an hour, and nobody
//! listens.

use std::sync::Arc;

use helmdeck_memory::{KeyRing, Namespace};
use helmdeck_testkit::{Postgres, StatementRecorder};
use serde_json::{Value, json};

use crate::support::program::{Answer, Home, SERVE, Server};
use crate::support::{KEY, wait_for};

/// Two servers on one database, each with its own data and the packs of one home.
struct Pair {
    _homes: [Home; 2],
    servers: [Server; 2],
    /// Between the second server and the database.
    recorder: StatementRecorder,
    _database: Arc<Postgres>,
}

impl Pair {
    fn start() -> Self {
        let database = Postgres::shared();
        let (url, recorder) = (database.database(), StatementRecorder::start(&database));
        let homes = [Home::new(), Home::new()];
        let urls = [url.clone(), recorder.url(&url)];
        let servers = [0, 1].map(|index: usize| {
            let mut command = homes[index].command(KEY, SERVE);
            command
                .env("HELMDECK_MEMORY_URL", &urls[index])
                .env("HELMDECK_PACKS_DIR", homes[0].packs());
            command
                .env("HELMDECK_MEMORY__LISTEN", "off")
                .env("HELMDECK_CACHE__WATCH_INTERVAL", "1h");
            Server::launch(command)
        });
        Self {
            _homes: homes,
            servers,
            recorder,
            _database: database,
        }
    }

    /// Makes both servers know an answer.
    fn warm(&self, input: &Value) {
        let [one, two] = &self.servers;
        assert_eq!(one.call("test.echo", input).0, "miss");
        wait_for("the answer to be stored", || {
            two.look("test.echo", input) == "hit"
        });
        assert_eq!(two.call("test.echo", input).0, "hit");
    }

    /// Returns how often the second server has read what others deleted, since the last time.
    fn reads(&self) -> usize {
        self.recorder
            .take()
            .iter()
            .filter(|sql| sql.contains("pg_current_snapshot"))
            .count()
    }
}

fn position(answer: &Answer) -> String {
    assert!((200..300).contains(&answer.code), "{}", answer.body);
    answer
        .header("helmdeck-position")
        .unwrap_or_else(|| panic!("no position: {}", answer.head))
        .to_owned()
}

/// Returns a position with its MAC under a key.
fn signed(key: &str, position: &str) -> String {
    let ring = KeyRing::parse(("key", key), None).unwrap();
    let mac = ring.mac(
        &Namespace::new("", "", None),
        "delete position",
        &[position.as_bytes()],
    );
    let mac: String = mac[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{position}-{mac}")
}

fn after(server: &Server, position: &str, directive: &str, input: &Value) -> Answer {
    server.ask(
        &format!("POST /api/v1/packs/test.echo\nHelmdeck-After: {position}{directive}"),
        &input.to_string(),
    )
}

#[test]
fn caller_sees_its_own_purge_at_the_other_server() {
    let pair = Pair::start();
    let [one, two] = &pair.servers;
    for (number, (delete, body)) in [
        ("POST /api/v1/memory/purge", r#"{"tag": "repo:a/0"}"#),
        ("POST /api/v1/memory/purge", r#"{"pack": "test.echo"}"#),
        (
            "POST /api/v1/memory/purge",
            r#"{"namespace": {"tenant": "local", "subject": "local"}}"#,
        ),
        (
            "POST /api/v1/memory/forget",
            r#"{"what": ["cache"], "all": true}"#,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let input = json!({"repo": format!("a/{number}")});
        pair.warm(&input);
        let deleted = one.ask(delete, body);
        let position = position(&deleted);
        // Without the header the second server does not know: this is what the header is for.
        assert_eq!(two.call("test.echo", &input).0, "hit", "{body}");
        let _ = pair.reads();
        assert_eq!(after(two, &position, "", &input).status(), "miss", "{body}");
        assert_eq!(pair.reads(), 1, "one statement");
        // It knows now.
        assert_eq!(after(two, &position, "", &input).status(), "hit");
        assert_eq!(two.call("test.echo", &input).0, "hit");
        assert_eq!(pair.reads(), 0);
    }
}

#[test]
fn writes_have_a_position_and_reads_have_none() {
    let pair = Pair::start();
    let [one, two] = &pair.servers;
    let turn = json!({"user_message": "a", "assistant_response": "b"}).to_string();
    let fact = r#"{"key": "k", "value": "v"}"#;
    for (head, body) in [
        ("POST /api/v1/memory/store", fact),
        ("POST /api/v1/packs/memory.store", fact),
        ("POST /api/v1/conversations/s/turns", &*turn),
        ("DELETE /api/v1/conversations/s", ""),
    ] {
        let position = position(&one.ask(head, body));
        let context = two.ask(
            &format!("GET /api/v1/conversations/s/context\nHelmdeck-After: {position}"),
            "",
        );
        assert!([200, 404].contains(&context.code), "{}", context.body);
    }
    for (head, body) in [
        ("POST /api/v1/packs/test.echo", "{}"),
        ("GET /api/v1/memory/facts", ""),
    ] {
        let answer = one.ask(head, body);
        assert!(
            answer.code == 200 && answer.header("helmdeck-position").is_none(),
            "{head}: {}",
            answer.head
        );
    }
}

#[test]
fn malformed_position_is_refused() {
    let pair = Pair::start();
    let two = &pair.servers[1];
    let long = "p3-1-1".repeat(100);
    for (wrong, why) in [
        ("x", "no server made it"),
        (&*long, "longer than"),
        ("p3-1\nHelmdeck-After: p3-1", "twice"),
    ] {
        let answer = after(two, wrong, "", &json!({}));
        assert_eq!(
            (answer.code, answer.json()["code"].as_str()),
            (400, Some("invalid_input")),
            "{}",
            answer.body
        );
        let detail = answer.json()["detail"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(
            detail.contains("Helmdeck-After") && detail.contains(why),
            "{detail}"
        );
    }
}

#[test]
fn server_that_cannot_catch_up_uses_no_cached_answer() {
    let pair = Pair::start();
    let [one, two] = &pair.servers;
    let input = json!({"repo": "a/b"});
    pair.warm(&input);
    let position = position(&one.ask("POST /api/v1/memory/purge", r#"{"tag": "repo:a/b"}"#));
    // A transaction that no server has made.
    let (server, transaction) = position
        .rsplit_once('-')
        .unwrap()
        .0
        .rsplit_once('-')
        .unwrap();
    let future = signed(
        KEY,
        &format!(
            "{server}-{}",
            transaction.parse::<i64>().unwrap() + 1_000_000
        ),
    );
    let answer = after(two, &future, "", &input);
    assert_eq!(
        (
            answer.status().as_str(),
            answer.json()["cache"]["reason"].as_str()
        ),
        ("bypass", Some("behind"))
    );
    assert!(
        answer
            .header("cache-status")
            .unwrap()
            .contains("detail=behind"),
        "{}",
        answer.head
    );
    assert_eq!(
        after(two, &future, "\nCache-Control: only-if-cached", &input).status(),
        "cache_miss"
    );
}

#[test]
fn position_of_a_key_or_a_system_that_is_gone_stands_for_now() {
    type Made<'a> = &'a dyn Fn(&str) -> String;
    let pair = Pair::start();
    let [one, two] = &pair.servers;
    let purge = |input: &Value| {
        pair.warm(input);
        position(&one.ask("POST /api/v1/memory/purge", r#"{"pack": "test.echo"}"#))
    };
    let unsigned = |position: &str| position.rsplit_once('-').unwrap().0.to_owned();
    let of_system = |position: &str, system: u64| {
        let (version, rest) = position.split_once('-').unwrap();
        format!("{version}-{system}-{}", rest.split_once('-').unwrap().1)
    };
    let by_a_removed_key: Made<'_> = &|position| signed(&"7e".repeat(32), &unsigned(position));
    let forged: Made<'_> = &|position| format!("{}-{}", unsigned(position), "0".repeat(32));
    let of_another_system: Made<'_> =
        &|position| signed(KEY, &of_system(&unsigned(position), u64::MAX));
    for (number, made) in [by_a_removed_key, forged, of_another_system]
        .into_iter()
        .enumerate()
    {
        let input = json!({"repo": format!("a/{number}")});
        let gone = made(&purge(&input));
        assert_eq!(two.call("test.echo", &input).0, "hit");
        let _ = pair.reads();
        // It has read what was deleted by now, and keeps using its cache.
        assert_eq!(after(two, &gone, "", &input).status(), "miss", "{number}");
        assert_eq!(after(two, &gone, "", &input).status(), "hit", "{number}");
        assert_eq!(pair.reads(), 2, "{number}");
    }
}

#[test]
fn mcp_calls_take_and_return_positions() {
    let pair = Pair::start();
    let [one, two] = &pair.servers;
    let input = json!({"repo": "a/b"});
    pair.warm(&input);
    let call = |server: &Server, tool: &str, arguments: &Value, more: &Value| {
        let mut meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}, "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"}});
        meta.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let head = format!(
            "POST /mcp\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}"
        );
        server.exchange(&head, &message.to_string()).unwrap().json()
    };
    let forgotten = call(
        one,
        "memory__forget",
        &json!({"what": ["cache"], "all": true}),
        &json!({}),
    );
    let position = &forgotten["result"]["_meta"]["helmdeck/position"];
    assert!(position.is_string(), "{forgotten}");
    let status = |answer: &Value| {
        answer["result"]["_meta"]["helmdeck/cache"]["status"]
            .as_str()
            .map(str::to_owned)
    };
    let without = call(two, "test__echo", &input, &json!({}));
    assert_eq!(status(&without).as_deref(), Some("hit"), "{without}");
    let with = call(
        two,
        "test__echo",
        &input,
        &json!({"helmdeck/after": position}),
    );
    assert_eq!(status(&with).as_deref(), Some("miss"), "{with}");
    assert!(
        with["result"]["_meta"].get("helmdeck/position").is_none(),
        "it only reads: {with}"
    );
    let wrong = call(two, "test__echo", &input, &json!({"helmdeck/after": 7}));
    let message = wrong["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("helmdeck/after"), "{wrong}");
}
