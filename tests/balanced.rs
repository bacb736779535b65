//! Three servers behind a balancer without sticky sessions: no request needs the server that
//! answered the one before.

use std::sync::Mutex;

use serde_json::{Value, json};

use crate::support::balancer::{Decks, NAMES};
use crate::support::program::{Home, Run, Server};
use crate::support::{KEY, RARELY_POLLED, wait_for};

fn decks(environment: &[(&str, &str)]) -> Decks {
    Decks::start(Home::new(), environment)
}

/// Sends an MCP message and returns the whole answer.
fn mcp(server: &Server, headers: &str, message: &Value) -> crate::support::program::Answer {
    let head = format!("POST /mcp\nAccept: application/json, text/event-stream{headers}");
    server.exchange(&head, &message.to_string()).unwrap()
}

fn request(id: u32, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// Begins a session of an older revision and returns its headers.
fn begin(server: &Server, revision: &str) -> String {
    let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let answer = mcp(server, "", &request(0, "initialize", &params));
    assert_eq!(answer.code, 200, "{}", answer.body);
    let session = answer
        .header("mcp-session-id")
        .expect("a session id")
        .to_owned();
    format!("\r\nMcp-Session-Id: {session}\r\nMCP-Protocol-Version: {revision}")
}

#[test]
fn reads_and_cached_answers_come_from_any_server() {
    let decks = decks(&[RARELY_POLLED]);
    let input = json!({"repo": "a/b"});
    assert_eq!(decks.servers[0].call("test.echo", &input).0, "miss");
    wait_for("the answer to be stored", || {
        decks.servers[1].look("test.echo", &input) == "hit"
    });
    let fact = json!({"key": "k", "value": "v"});
    assert_eq!(
        decks.servers[2]
            .ask("POST /api/v1/packs/memory.store", &fact.to_string())
            .code,
        200
    );
    for server in &decks.servers {
        assert_eq!(server.call("test.echo", &input).0, "hit");
        let recalled = server.ask("POST /api/v1/packs/memory.recall", r#"{"key": "k"}"#);
        assert!(
            recalled.code == 200 && recalled.body.contains("\"v\""),
            "{}",
            recalled.body
        );
    }
    let codes = decks.ask_all("POST /api/v1/packs/test.echo", &input.to_string());
    assert!(codes.iter().all(|code| *code == 200), "{codes:?}");
    let runs = std::fs::read_to_string(decks.home.packs().join("runs")).unwrap();
    assert_eq!(runs.lines().count(), 1);
}

#[test]
fn mcp_of_every_revision_works_behind_round_robin() {
    let decks = decks(&[]);
    for revision in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = begin(&decks.balancer, revision);
        let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(
            mcp(&decks.balancer, &session, &told).code,
            202,
            "{revision}"
        );
        for id in 1..=9 {
            let (method, params) = match id % 3 {
                0 => ("tools/list", json!({})),
                1 => (
                    "tools/call",
                    json!({"name": "test__plain", "arguments": {"repo": revision}}),
                ),
                _ => ("resources/list", json!({})),
            };
            let answer = mcp(&decks.balancer, &session, &request(id, method, &params));
            assert!(
                answer.code == 200 && answer.body.contains("\"result\""),
                "{revision} {method}: {}",
                answer.body
            );
        }
        for server in &decks.servers {
            let answer = mcp(server, &session, &request(10, "ping", &json!({})));
            assert_eq!(answer.code, 200, "{revision}: {}", answer.body);
        }
    }
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}, "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"}});
    let newest = "\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list";
    for id in 1..=6 {
        let answer = mcp(
            &decks.balancer,
            newest,
            &request(id, "tools/list", &json!({"_meta": meta})),
        );
        assert!(
            answer.code == 200 && answer.body.contains("test__plain"),
            "{}",
            answer.body
        );
    }
}

#[test]
fn a_session_that_was_deleted_ends_at_every_server() {
    let decks = decks(&[]);
    let session = begin(&decks.servers[0], "2025-06-18");
    let ping = |server: &Server| mcp(server, &session, &request(1, "ping", &json!({}))).code;
    assert!(decks.servers.iter().all(|server| ping(server) == 200));
    let deleted = decks.servers[0]
        .exchange(&format!("DELETE /mcp\n{}", session.trim_start()), "")
        .unwrap();
    assert_eq!(deleted.code, 202, "{}", deleted.body);
    for server in &decks.servers {
        wait_for("the session to end", || ping(server) == 404);
    }
    // A server that was not there knows it, too.
    let late = decks.restart(0);
    assert_eq!(ping(&late), 404);
}

#[test]
fn sessions_survive_a_killed_server() {
    let decks = decks(&[]);
    let session = begin(&decks.servers[0], "2025-06-18");
    decks.servers[0].signal("-KILL");
    for server in &decks.servers[1..] {
        assert_eq!(
            mcp(server, &session, &request(1, "ping", &json!({}))).code,
            200
        );
    }
}

#[test]
fn local_sessions_end_with_their_server() {
    let decks = decks(&[("HELMDECK_MCP__SESSIONS", "local")]);
    let session = begin(&decks.servers[0], "2025-06-18");
    assert_eq!(
        mcp(&decks.servers[0], &session, &request(1, "ping", &json!({}))).code,
        200
    );
    assert_eq!(
        mcp(&decks.servers[1], &session, &request(1, "ping", &json!({}))).code,
        404
    );
}

#[test]
fn servers_count_each_other() {
    let decks = decks(&[]);
    for server in &decks.servers {
        wait_for("all servers to be counted", || {
            server.ask("GET /api/v1/status", "").json()["replicas"] == 3
        });
    }
}

#[test]
fn all_servers_together_allow_the_rate() {
    let limits = [
        ("HELMDECK_SERVER__REPLICAS", "3"),
        ("HELMDECK_SERVER__RATE_PER_SECOND", "1"),
        ("HELMDECK_SERVER__RATE_BURST", "60"),
    ];
    let decks = decks(&limits);
    let started = std::time::Instant::now();
    let allowed = (0..150).filter(|_| {
        let answer = decks.balancer.exchange("GET /api/v1/packs", "").unwrap();
        assert!([200, 429].contains(&answer.code), "{}", answer.body);
        answer.code == 200
    });
    let allowed = allowed.count();
    // The burst, what came back meanwhile, and one request per server for the rounding.
    let most = 60 + usize::try_from(started.elapsed().as_secs()).unwrap() + 1 + NAMES.len();
    assert!(
        (60..=most).contains(&allowed),
        "{allowed} of at most {most}"
    );
}

#[test]
fn hundred_turns_through_the_balancer_are_all_kept() {
    let decks = decks(&[]);
    let ids = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let (ids, balancer) = (&ids, &decks.balancer);
            scope.spawn(move || {
                for n in 0..25 {
                    let once = format!("{caller}-{n}");
                    let turn =
                        json!({"user_message": once, "assistant_response": "yes", "once": once})
                            .to_string();
                    // An add that loses every race to others is refused, and repeated.
                    let added = loop {
                        let answer = balancer.ask("POST /api/v1/conversations/talk/turns", &turn);
                        if answer.code != 503 {
                            assert_eq!(answer.code, 201, "{}", answer.body);
                            break answer.json();
                        }
                    };
                    ids.lock().unwrap().push(added["id"].clone());
                }
            });
        }
    });
    for server in &decks.servers {
        let kept = server
            .ask("GET /api/v1/conversations/talk/turns?limit=200", "")
            .json();
        let kept: Vec<&Value> = kept["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|turn| &turn["key"])
            .collect();
        let ids = ids.lock().unwrap();
        assert!(
            ids.len() == 100 && ids.iter().all(|id| kept.contains(&id)),
            "{} of {}",
            kept.len(),
            ids.len()
        );
    }
}

#[test]
fn turn_is_in_the_next_context_of_every_server() {
    let decks = decks(&[]);
    for n in 0..12 {
        let text = format!("mark-{n}");
        let turn = json!({"user_message": text, "assistant_response": "yes"}).to_string();
        let added = decks.servers[n % 3].ask("POST /api/v1/conversations/talk/turns", &turn);
        assert_eq!(added.code, 201, "{}", added.body);
        for server in &decks.servers {
            let context = server.ask("GET /api/v1/conversations/talk/context", "");
            assert!(
                context.body.contains(&text),
                "{text} is missing: {}",
                context.body
            );
        }
    }
}

#[test]
fn session_of_another_server_is_refused_by_name() {
    let decks = decks(&[]);
    let id = format!("{}.{}", NAMES[1], "0123456789abcdef".repeat(2));
    let refused = decks.servers[0].ask(&format!("DELETE /api/v1/sessions/{id}"), "");
    assert_eq!(
        (refused.code, refused.status().as_str()),
        (503, "session_unavailable"),
        "{}",
        refused.body
    );
    assert_eq!(refused.json()["replica"], NAMES[1]);
    let none = decks.servers[1].ask(&format!("DELETE /api/v1/sessions/{id}"), "");
    assert_eq!(none.status(), "not_found", "{}", none.body);
}

#[test]
fn check_says_what_servers_do_not_share() {
    let decks = decks(&[
        ("HELMDECK_MCP__SESSIONS", "local"),
        ("HELMDECK_SERVER__REPLICAS", "3"),
    ]);
    let checked = Run::of(decks.command(0, &["check"]).output().unwrap());
    let line = checked
        .stderr
        .lines()
        .chain(checked.stdout.lines())
        .find(|line| line.contains("replicas share the store"));
    let line = line.unwrap_or_else(|| panic!("{} {}", checked.stdout, checked.stderr));
    for local in ["artifacts", "sandbox sessions", "MCP sessions"] {
        assert!(line.contains(local), "{line}");
    }
}

/// Calls until it is told to stop, through the balancer. Returns how many calls were answered.
fn call_until(balancer: &Server, over: &std::sync::atomic::AtomicBool) -> usize {
    let mut answered = 0;
    while !over.load(std::sync::atomic::Ordering::SeqCst) {
        let answer = balancer.exchange("POST /api/v1/packs/test.plain", r#"{"repo": "a"}"#);
        let answer = answer.expect("every call is answered");
        assert_eq!(answer.code, 200, "{}", answer.body);
        answered += 1;
    }
    answered
}

#[test]
fn rolling_restart_fails_no_call() {
    let mut decks = decks(&[("HELMDECK_SERVER__DRAIN_FOR", "4s")]);
    let over = std::sync::atomic::AtomicBool::new(false);
    let (balancer, over) = (&decks.balancer, &over);
    let answered = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..3)
            .map(|_| scope.spawn(move || call_until(balancer, over)))
            .collect();
        // One is told by a signal, one by the command; the third goes on.
        decks.servers[0].signal("-TERM");
        assert_eq!(decks.servers[0].ended(), Some(0));
        let url = decks.servers[1].url("");
        let told = decks.homes[1].run(KEY, &["drain", "--url", &url, "--json"]);
        assert!(
            told.code == 0 && told.stdout.contains("\"drain_for_ms\":4000"),
            "{} {}",
            told.stdout,
            told.stderr
        );
        let ready = decks.servers[1].exchange("GET /readyz", "").unwrap();
        assert!(
            ready.code == 503 && ready.body.contains("draining"),
            "{}",
            ready.body
        );
        assert_eq!(decks.servers[1].ended(), Some(0));
        over.store(true, std::sync::atomic::Ordering::SeqCst);
        callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .sum::<usize>()
    });
    assert!(answered > 0);
}
