//! The audit is the operator's: no caller removes its own, and a cut from outside is seen.

use serde_json::{Value, json};

use crate::support::program::{Home, Run, Server};
use crate::support::{KEY, outside, wait_for};

/// Makes a token of alice with a scope.
fn token(home: &Home, scope: &str) -> String {
    let create = [
        "token", "create", "--tenant", "acme", "--user", "alice", "--scope", scope,
    ];
    let made = Run::of(home.command(KEY, &create).output().unwrap());
    assert_eq!(made.code, 0, "{}", made.stderr);
    made.stdout.trim().to_owned()
}

/// Sends a request with a token; returns status and body.
fn send(server: &Server, token: &str, line: &str, body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let head = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = server.raw(head.as_bytes());
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, serde_json::from_str(body).unwrap_or_default())
}

/// Returns the number of alice's calls in the stored audit.
fn calls(server: &Server, admin: &str) -> usize {
    let (code, audit) = send(
        server,
        admin,
        "GET /api/v1/audit?tenant=acme&user=alice",
        &json!({}),
    );
    assert_eq!(code, 200, "{audit}");
    audit["calls"].as_array().unwrap().len()
}

fn without_key(home: &Home, arguments: &[&str]) -> Run {
    Run::of(
        home.command(KEY, arguments)
            .env_remove("HELMDECK_MEMORY_KEY")
            .output()
            .unwrap(),
    )
}

fn verify(home: &Home) -> (i32, Value) {
    let run = home.run(KEY, &["audit", "verify", "--json"]);
    (
        run.code,
        serde_json::from_str(&run.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", run.stdout, run.stderr)),
    )
}

#[test]
fn no_caller_removes_its_own_audit() {
    let home = Home::new();
    let scopes = [
        "packs:run",
        "packs:run:memory.*",
        "packs:run memory:read memory:write",
    ];
    let (tokens, admin) = (
        scopes.map(|scope| token(&home, scope)),
        token(&home, "admin"),
    );
    let server = Server::start_with(&home, KEY, &[("HELMDECK_AUTH__API_TOKENS", "true")]);
    for n in 0..3 {
        let (code, answer) = send(
            &server,
            &tokens[0],
            "POST /api/v1/packs/test.echo",
            &json!({"repo": format!("r{n}")}),
        );
        assert_eq!(code, 200, "{answer}");
    }
    wait_for("the calls in the audit", || calls(&server, &admin) == 3);
    let whats = [
        json!({"all": true, "what": ["audit"]}),
        json!({"pack": "test.echo", "what": ["audit"]}),
    ];
    let all = json!({"all": true, "what": ["facts", "notes", "audit", "cache", "artifacts", "conversations"]});
    for what in whats.iter().chain([&all]) {
        for token in &tokens {
            for route in [
                "POST /api/v1/packs/memory.forget",
                "POST /api/v1/memory/forget",
            ] {
                let (code, answer) = send(&server, token, route, what);
                assert!(
                    (400..404).contains(&code),
                    "{route} {what}: {code} {answer}"
                );
            }
        }
        let (code, answer) = send(&server, &admin, "POST /api/v1/packs/memory.forget", what);
        assert_eq!(code, 400, "the pack never removes audit rows: {answer}");
    }
    assert_eq!(calls(&server, &admin), 3);
    assert_eq!(verify(&home).0, 0);

    // An administrator may, and that is told.
    let (code, answer) = send(&server, &admin, "POST /api/v1/memory/forget", &whats[0]);
    assert_eq!(code, 200, "{answer}");
    wait_for("the audit to be empty", || calls(&server, &admin) == 0);
    let (code, told) = verify(&home);
    let removed = &told["audit"]["removed"][0];
    assert_eq!(code, 0, "{told}");
    assert_eq!(
        (&removed["by"], &removed["user"], &removed["calls"]),
        (&json!("acme/alice"), &json!("alice"), &json!(3))
    );
}

#[test]
fn audit_verify_shows_cuts_and_the_operators_own_removals() {
    let home = Home::new();
    for n in 0..4 {
        home.call(KEY, &["test.echo", &format!("repo=r{n}")]);
    }
    let (code, whole) = verify(&home);
    assert_eq!(
        (
            code,
            &whole["whole"],
            &whole["audit"]["callers"][0]["entries"]
        ),
        (0, &json!(true), &json!(4))
    );
    let text = home.run(KEY, &["audit", "verify"]).stdout;
    assert!(
        text.contains("local/local") && text.contains("whole"),
        "{text}"
    );
    assert_eq!(
        without_key(&home, &["audit", "verify"]).code,
        3,
        "it needs the key"
    );

    // Somebody deletes a row, with the counters of its space.
    let rows = "space_id IN (SELECT id FROM memory_spaces WHERE kind = 'audit')";
    let second = format!("SELECT id FROM memory_entries WHERE {rows} ORDER BY id LIMIT 1 OFFSET 1");
    let sql = format!("DELETE FROM memory_entries WHERE id = ({second})");
    assert_eq!(outside(&home.store()).execute(&sql, []).unwrap(), 1);
    let run = home.run(KEY, &["audit", "verify"]);
    assert_eq!(run.code, 8, "{}", run.stdout);
    assert!(
        run.stdout
            .contains("wrong: local/local: entry 2 is missing"),
        "{}",
        run.stdout
    );
    assert_eq!(home.run(KEY, &["audit", "verify", "--accept"]).code, 0);
    assert_eq!(verify(&home).0, 0, "it is known");

    // `memory purge` of a caller leaves its audit, `memory forget` removes it and says so.
    assert_eq!(
        home.run(
            KEY,
            &["memory", "purge", "--namespace", "local/local", "--yes"]
        )
        .code,
        0
    );
    assert_eq!(verify(&home).1["audit"]["callers"][0]["entries"], 3);
    assert_eq!(
        home.run(KEY, &["memory", "forget", "--subject", "local", "--yes"])
            .code,
        0
    );
    let (code, told) = verify(&home);
    let left = told["audit"]["callers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|caller| caller["entries"] != 0);
    assert_eq!((code, left.count()), (0, 0), "{told}");
    let removed = told["audit"]["removed"].as_array().unwrap();
    assert!(
        removed
            .iter()
            .any(|stone| stone["by"] == "operator" && stone["calls"] == 3),
        "{told}"
    );

    // Without the key it works too, and is missed until the operator accepts it.
    home.call(KEY, &["test.echo", "repo=again"]);
    let forgotten = without_key(&home, &["memory", "forget", "--subject", "local", "--yes"]);
    assert!(
        forgotten.code == 0 && forgotten.stdout.contains("audit verify"),
        "{}",
        forgotten.stdout
    );
    assert_eq!(verify(&home).0, 8);
    assert_eq!(home.run(KEY, &["audit", "verify", "--accept"]).code, 0);
    assert_eq!(verify(&home).0, 0);
}
