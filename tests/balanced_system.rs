//! What the system database shares between servers: tokens, idempotency keys, jobs and MCP tasks.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::balancer::Decks;
use crate::support::program::{Home, Run, Server};
use crate::support::{raw_mcp, wait_for};

/// A program that writes down each run. It waits for the file `go` if its input says so.
const WRITE: &str = "#!/bin/sh\ninput=$(cat)\nprintf '%s\\n' \"$input\" >>writes\n\
    case $input in *wait*) while [ ! -e go ]; do sleep 0.02; done;; esac\nprintf '{\"input\":%s}' \"$input\"\n";

fn home() -> Home {
    let home = Home::new();
    let program = home.packs().join("write.sh");
    std::fs::write(&program, WRITE).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    // Calls of the first are jobs.
    for (name, is_async) in [("test.write", true), ("test.once", false)] {
        let manifest = format!(
            "name = \"{name}\"\nversion = \"v1\"\ndescription = \"Writes\"\nasync = {is_async}\n\
             [handler]\ncommand = [\"./write.sh\"]\ntimeout = \"{}\"\n",
            if is_async { "10m" } else { "1m" }
        );
        std::fs::write(home.packs().join(format!("{name}.toml")), manifest).unwrap();
    }
    home
}

fn decks(environment: &[(&str, &str)]) -> Decks {
    Decks::start(home(), environment)
}

fn runs(decks: &Decks) -> usize {
    std::fs::read_to_string(decks.home.packs().join("writes"))
        .unwrap_or_default()
        .lines()
        .count()
}

fn let_go(decks: &Decks) {
    std::fs::write(decks.home.packs().join("go"), "").unwrap();
}

#[test]
fn write_with_a_key_runs_once_at_all_servers() {
    let decks = decks(&[]);
    let head = "POST /api/v1/packs/test.once\nIdempotency-Key: k-1";
    let first = decks.servers[0].ask(head, r#"{"n": 1}"#);
    assert_eq!(first.code, 200, "{}", first.body);
    for server in &decks.servers {
        let again = server.ask(head, r#"{"n": 1}"#);
        assert_eq!(
            (again.code, again.header("idempotency-replayed")),
            (200, Some("true")),
            "{}",
            again.body
        );
        assert_eq!(again.json()["output"], first.json()["output"]);
    }
    assert_eq!(runs(&decks), 1);
    // At once, from everywhere: one runs, the others are told to come back or get its answer.
    let head = "POST /api/v1/packs/test.once\nIdempotency-Key: k-2";
    let codes: Vec<u16> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..12)
            .map(|n| {
                let server = &decks.servers[n % 3];
                scope.spawn(move || server.ask(head, r#"{"n": 2}"#).code)
            })
            .collect();
        asked
            .into_iter()
            .map(|asked| asked.join().unwrap())
            .collect()
    });
    assert!(
        codes.iter().all(|code| [200, 409].contains(code)) && codes.contains(&200),
        "{codes:?}"
    );
    assert_eq!(runs(&decks), 2);
}

#[test]
fn token_of_one_server_is_good_at_all() {
    let decks = decks(&[("HELMDECK_AUTH__API_TOKENS", "true")]);
    let arguments = [
        "token",
        "create",
        "--tenant",
        "acme",
        "--user",
        "ann",
        "--scope",
        "packs:run memory:read",
    ];
    let made = Run::of(decks.command(0, &arguments).output().unwrap());
    assert_eq!(made.code, 0, "{}", made.stderr);
    let token = made.stdout.trim_end();
    let head = format!("POST /api/v1/packs/test.plain\n{}", raw_mcp::bearer(token));
    for server in &decks.servers {
        assert_eq!(server.ask(&head, r#"{"repo": "a"}"#).code, 200);
    }
    let id = &token[3..19];
    let revoked = Run::of(decks.command(1, &["token", "revoke", id]).output().unwrap());
    assert_eq!(revoked.code, 0, "{}", revoked.stderr);
    for server in &decks.servers {
        wait_for("the token to be refused", || {
            server.ask(&head, r#"{"repo": "a"}"#).code == 401
        });
    }
}

fn start(server: &Server, input: &Value) -> String {
    let answer = server.ask("POST /api/v1/packs/test.write/jobs", &input.to_string());
    assert_eq!(answer.code, 202, "{}", answer.body);
    answer.json()["id"].as_str().unwrap().to_owned()
}

#[test]
fn job_is_seen_followed_and_read_at_all_servers() {
    let decks = decks(&[]);
    let id = start(&decks.servers[0], &json!({"wait": true}));
    wait_for("the run to begin", || runs(&decks) == 1);
    for server in &decks.servers {
        assert_eq!(
            server.ask(&format!("GET /api/v1/jobs/{id}"), "").json()["state"],
            "running"
        );
        let listed = server.ask("GET /api/v1/jobs", "").json();
        assert!(listed["jobs"].to_string().contains(&id), "{listed}");
    }
    std::thread::scope(|scope| {
        let followers: Vec<_> = decks
            .servers
            .iter()
            .map(|server| {
                scope.spawn(|| {
                    server
                        .exchange(&format!("GET /api/v1/jobs/{id}/events"), "")
                        .unwrap()
                        .body
                })
            })
            .collect();
        let_go(&decks);
        for follower in followers {
            let events = follower.join().unwrap();
            assert!(events.contains("\"succeeded\""), "{events}");
            // Going on after the last event at another server: there is nothing more.
            let last = events
                .lines()
                .rev()
                .find_map(|line| line.strip_prefix("id: "))
                .unwrap()
                .to_owned();
            let head = format!("GET /api/v1/jobs/{id}/events\nLast-Event-ID: {last}");
            assert_eq!(decks.servers[2].exchange(&head, "").unwrap().code, 204);
        }
    });
    for server in &decks.servers {
        let result = server.ask(&format!("GET /api/v1/jobs/{id}/result"), "");
        assert_eq!(
            (result.code, &result.json()["output"]["input"]["wait"]),
            (200, &json!(true)),
            "{}",
            result.body
        );
    }
    assert_eq!(runs(&decks), 1);
}

#[test]
fn job_is_cancelled_from_another_server() {
    let decks = decks(&[]);
    let id = start(&decks.servers[0], &json!({"wait": true}));
    wait_for("the run to begin", || runs(&decks) == 1);
    let told = decks.servers[1].ask(&format!("DELETE /api/v1/jobs/{id}"), "");
    assert!(
        [200, 202].contains(&told.code),
        "{} {}",
        told.code,
        told.body
    );
    for server in &decks.servers {
        wait_for("the job to be cancelled", || {
            server.ask(&format!("GET /api/v1/jobs/{id}"), "").json()["state"] == "cancelled"
        });
    }
}

#[test]
fn mcp_task_is_polled_and_cancelled_at_any_server() {
    const NEWEST: &str = "2026-07-28";
    let decks = decks(&[]);
    let ask = |server: &Server, method: &str, mut params: Value| {
        let name = ["name", "taskId"]
            .iter()
            .find_map(|key| Some(params[key].as_str()?.to_owned()))
            .unwrap();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": NEWEST,
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        });
        let head = format!(
            "POST /mcp\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: {NEWEST}\r\n\
             Mcp-Method: {method}\r\nMcp-Name: {name}"
        );
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        server.exchange(&head, &request.to_string()).unwrap().json()
    };
    let call = |n: u32| json!({"name": "test__write", "arguments": {"wait": true, "n": n}});
    let begun = ask(&decks.servers[0], "tools/call", call(1));
    let task = begun["result"]["taskId"]
        .as_str()
        .unwrap_or_else(|| panic!("{begun}"))
        .to_owned();
    let cancelled = ask(&decks.servers[0], "tools/call", call(2))["result"]["taskId"]
        .as_str()
        .unwrap()
        .to_owned();
    for server in &decks.servers {
        let state = ask(server, "tasks/get", json!({"taskId": task}));
        assert_eq!(state["result"]["status"], "working", "{state}");
    }
    ask(
        &decks.servers[1],
        "tasks/cancel",
        json!({"taskId": cancelled}),
    );
    let_go(&decks);
    for server in &decks.servers {
        let has = |id: &str, status: &str| {
            ask(server, "tasks/get", json!({"taskId": id}))["result"]["status"] == status
        };
        wait_for("the task to complete", || has(&task, "completed"));
        wait_for("the task to be cancelled", || has(&cancelled, "cancelled"));
    }
}

#[test]
fn jobs_of_a_killed_server_end_and_none_runs_twice() {
    let decks = decks(&[]);
    // While the others stand still, the first one takes the job.
    decks.servers[1..]
        .iter()
        .for_each(|server| server.signal("-STOP"));
    let lost = start(&decks.servers[0], &json!({"wait": true, "n": 0}));
    wait_for("the run to begin", || runs(&decks) == 1);
    decks.servers[0].signal("-KILL");
    decks.servers[1..]
        .iter()
        .for_each(|server| server.signal("-CONT"));
    let other = start(&decks.servers[1], &json!({"n": 1}));
    for server in &decks.servers[1..] {
        wait_for("the lost job to fail", || {
            server.ask(&format!("GET /api/v1/jobs/{lost}"), "").json()["state"] == "failed"
        });
        wait_for("the other job to end", || {
            server.ask(&format!("GET /api/v1/jobs/{other}"), "").json()["state"] == "succeeded"
        });
    }
    assert_eq!(runs(&decks), 2, "nothing ran twice");
}
