//! Attacks with tokens: revoking those of others, outliving one's own, deleting one's audit.

use std::io::Read as _;
use std::process::{Command, Stdio};

use super::*;
use crate::support::wait_for;

impl Target {
    /// Makes a token at the shell.
    fn token(&self, user: &str, scope: &str, more: &[&str]) -> String {
        let create = [
            &[
                "token", "create", "--tenant", "acme", "--user", user, "--scope", scope,
            ][..],
            more,
        ]
        .concat();
        let made = Run::of(self.home.command(KEY, &create).output().unwrap());
        assert_eq!(made.code, 0, "{}", made.stderr);
        made.stdout.trim().to_owned()
    }

    /// Sends a request with a token; returns status and answer.
    fn send_as(&self, token: &str, line: &str, body: &str) -> (u16, Value) {
        let head = format!("{line}\nAuthorization: Bearer {token}");
        let answer = self.server.exchange(&head, body).unwrap();
        (
            answer.code,
            serde_json::from_str(&answer.body).unwrap_or(Value::Null),
        )
    }

    fn is_good(&self, token: &str) -> bool {
        self.send_as(token, "GET /api/v1/tokens", "").0 == 200
    }
}

fn id(token: &str) -> &str {
    &token[3..19]
}

/// Puts a secret of one's own behind the id of a token, with the check digits that belong to it.
fn forged(token: &str) -> String {
    let body = format!("{}_{}", &token[..19], "0".repeat(64));
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(body.as_bytes())
        .unwrap();
    let digest = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    format!("{body}{}", &digest[..8])
}

#[test]
fn the_id_of_a_token_gives_no_power_over_it() {
    let target = Target::start(&[]);
    let (bob, eve) = (
        target.token("bob", "packs:run", &[]),
        target.token("eve", "packs:run", &[]),
    );
    let port = target
        .server
        .address()
        .rsplit(':')
        .next()
        .unwrap()
        .to_owned();
    for victim in [&bob, &target.token] {
        let forged = forged(victim);
        for name in [format!("helmdeck-{port}"), "__Host-helmdeck".to_owned()] {
            for (line, body) in [
                ("POST /ui/sign-out", String::new()),
                ("POST /ui/sign-in", format!("token={eve}")),
            ] {
                let head = format!(
                    "{line}\nCookie: {name}={forged}\r\nOrigin: http://{}\r\nContent-Type: application/x-www-form-urlencoded",
                    target.server.address()
                );
                let code = target.server.exchange(&head, &body).unwrap().code;
                assert!(code == 303 || code == 400, "{line}: {code}");
            }
        }
        for token in [&forged, &eve] {
            let (status, _) =
                target.send_as(token, &format!("DELETE /api/v1/tokens/{}", id(victim)), "");
            assert!(matches!(status, 401 | 403 | 404), "{status}");
        }
    }
    assert!(target.is_good(&bob) && target.is_good(&target.token) && target.is_good(&eve));
}

#[test]
fn tokens_do_not_outlive_what_made_them() {
    let target = Target::start(&[]);
    let parent = target.token("ann", "packs:run tokens:write", &["--expires", "1h"]);
    let other = target.token("ann", "packs:run admin", &[]);
    let plain = target.token("ann", "packs:run", &[]);
    // Every way to ask for a longer life, three generations deep.
    let lives = [
        json!({}),
        json!({"ttl_seconds": 7_776_000}),
        json!({"ttl_seconds": 7_776_000, "scope": "packs:run"}),
    ];
    let expires_at = |answer: &Value| answer["expires_at"].as_str().unwrap().to_owned();
    let list = |token: &str| {
        target.send_as(token, "GET /api/v1/tokens", "").1["tokens"]
            .as_array()
            .unwrap()
            .clone()
    };
    let limit = expires_at(&list(&parent)[0]);
    let mut made = Vec::new();
    let mut makers = vec![parent.clone()];
    for _ in 0..3 {
        let mut next = Vec::new();
        for (maker, wanted) in makers
            .iter()
            .flat_map(|maker| lives.iter().map(move |wanted| (maker, wanted)))
        {
            let (status, answer) =
                target.send_as(maker, "POST /api/v1/tokens", &wanted.to_string());
            let may = list(maker).iter().any(|token| {
                token["id"] == id(maker)
                    && token["scope"]
                        .as_str()
                        .is_some_and(|scope| scope.contains("tokens:write"))
            });
            assert_eq!(status, if may { 201 } else { 403 }, "{answer}");
            if may {
                assert!(expires_at(&answer) <= limit, "{answer}");
                next.push(answer["token"].as_str().unwrap().to_owned());
            }
        }
        made.extend(next.iter().cloned());
        makers = next;
    }
    assert!(made.len() > 20, "{}", made.len());
    for wanted in [
        json!({"never_expires": true}),
        json!({"scope": "admin"}),
        json!({"user": "root"}),
    ] {
        assert_eq!(
            target
                .send_as(&parent, "POST /api/v1/tokens", &wanted.to_string())
                .0,
            403,
            "{wanted}"
        );
    }
    assert_eq!(
        target.send_as(&plain, "POST /api/v1/tokens", "{}").0,
        403,
        "that is a scope of its own"
    );
    // A token sees and revokes itself and what it made.
    assert_eq!(list(&plain).len(), 1);
    assert_eq!(list(&parent).len(), 1 + made.len());
    let (status, _) = target.send_as(
        &made[0],
        &format!("DELETE /api/v1/tokens/{}", id(&other)),
        "",
    );
    assert_eq!(status, 404);
    // The first one takes all with it.
    assert_eq!(
        target
            .send_as(
                &parent,
                &format!("DELETE /api/v1/tokens/{}", id(&parent)),
                ""
            )
            .0,
        204
    );
    for token in made.iter().chain([&parent]) {
        wait_for("the descendants to end", || {
            target.send_as(token, "GET /api/v1/tokens", "").0 == 401
        });
    }
    assert!(target.is_good(&plain));
}

#[test]
fn a_revoked_token_reads_no_more_of_what_is_under_way() {
    let target = Target::start(&[]);
    let revoked = target.token("ann", "admin", &[]);
    let lines = [
        "GET /api/v1/events?topics=calls",
        "GET /api/v1/events?topics=calls,stats,server",
        "GET /ui/stream?view=calls",
    ];
    let streams: Vec<_> = lines
        .iter()
        .map(|line| {
            let mut stream = target.server.connect();
            let head = format!(
                "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {revoked}\r\nAccept: text/event-stream\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).unwrap();
            let mut status = [0; 12];
            stream.read_exact(&mut status).unwrap();
            assert_eq!(&status, b"HTTP/1.1 200", "{line}");
            stream
        })
        .collect();
    assert_eq!(
        target
            .send_as(
                &target.token,
                &format!("DELETE /api/v1/tokens/{}", id(&revoked)),
                ""
            )
            .0,
        204
    );
    wait_for("the token to be refused", || !target.is_good(&revoked));
    // Each ends by itself, whatever comes; nothing that happens from now on is in it.
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let calls = scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                target.send("POST /api/v1/packs/test.plain", "", br#"{"repo":"a"}"#);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        for (line, mut stream) in lines.iter().zip(streams) {
            let mut text = String::new();
            let ended = stream.read_to_string(&mut text);
            // A stream that is broken off counts, too; a wait that is over does not.
            let waits = ended
                .as_ref()
                .err()
                .is_some_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
            assert!(!waits, "{line}: it goes on: {text}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        calls.join().unwrap();
    });
}

#[test]
fn the_audited_deletes_no_audit() {
    let target = Target::start(&[]);
    let alice = target.token("alice", "packs:run", &[]);
    let audit = || {
        let (status, answer) = target.send_as(
            &target.token,
            "GET /api/v1/audit?tenant=acme&user=alice&limit=100",
            "",
        );
        assert_eq!(status, 200, "{answer}");
        answer["calls"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|call| call["pack"] == "test.echo")
            .count()
    };
    assert_eq!(
        target
            .send_as(&alice, "POST /api/v1/packs/test.echo", r#"{"repo":"a"}"#)
            .0,
        200
    );
    wait_for("the call to be in the audit", || audit() == 1);
    for what in [
        json!(["audit"]),
        json!(["facts", "audit"]),
        json!(["audit", "notes", "facts"]),
        Value::Null,
    ] {
        let mut wanted = json!({"all": true});
        if !what.is_null() {
            wanted["what"] = what;
        }
        for line in [
            "POST /api/v1/packs/memory.forget",
            "POST /api/v1/memory/forget",
        ] {
            let (status, answer) = target.send_as(&alice, line, &wanted.to_string());
            assert!(
                status >= 400 || answer["audit"].as_u64().unwrap_or(0) == 0,
                "{line} {wanted}: {status} {answer}"
            );
            assert_eq!(audit(), 1, "{line} {wanted}");
        }
    }
    // The operator's removal leaves a record, and the chain is whole.
    let removed = target.home.run(
        KEY,
        &[
            "memory",
            "forget",
            "--subject",
            "alice",
            "--tenant",
            "acme",
            "--yes",
        ],
    );
    assert_eq!(removed.code, 0, "{}", removed.stderr);
    assert_eq!(audit(), 0);
    let verified = target.home.run(KEY, &["--json", "audit", "verify"]);
    assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
    assert!(
        verified.stdout.contains("\"user\":\"alice\"")
            || verified.stdout.contains("\"user\": \"alice\""),
        "{}",
        verified.stdout
    );
}

#[test]
fn a_token_in_the_database_is_none_without_the_key() {
    let target = Target::start(&[]);
    let (bob, eve) = (
        target.token("bob", "packs:run", &[]),
        target.token("eve", "packs:run", &[]),
    );
    let file = target.home.data().join("helmdeck.db");
    let database = rusqlite::Connection::open(&file).unwrap();
    database.busy_timeout(STUCK).unwrap();
    let change = |sql: &str| database.execute_batch(sql).unwrap();
    for (what, there, back) in [
        ("a scope", "scope = 'admin'", "scope = 'packs:run'"),
        ("a user", "subject = 'root'", "subject = 'eve'"),
        ("no end", "expires_at = NULL, name = 'x'", "name = ''"),
    ] {
        change(&format!(
            "UPDATE api_tokens SET {there} WHERE id = '{}'",
            id(&eve)
        ));
        wait_for(what, || !target.is_good(&eve));
        if what != "no end" {
            change(&format!(
                "UPDATE api_tokens SET {back} WHERE id = '{}'",
                id(&eve)
            ));
            wait_for("the row to be as it was", || target.is_good(&eve));
        }
    }
    // Revoked, and put back.
    change("CREATE TABLE copy AS SELECT * FROM api_tokens");
    let revoked = target.home.run(KEY, &["token", "revoke", id(&bob)]);
    assert_eq!(revoked.code, 0, "{}", revoked.stderr);
    wait_for("the token to end", || !target.is_good(&bob));
    change("DELETE FROM api_tokens; INSERT INTO api_tokens SELECT * FROM copy");
    wait_for("the other rows to be read", || {
        target.is_good(&target.token)
    });
    for _ in 0..20 {
        assert!(!target.is_good(&bob));
        std::thread::sleep(Duration::from_millis(100));
    }
    let check = target
        .home
        .command(KEY, &["check"])
        .env("HELMDECK_AUTH__API_TOKENS", "true")
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&check.stdout),
        String::from_utf8_lossy(&check.stderr)
    );
    assert!(said.contains("helmdeck token adopt"), "{said}");
    let adopted = target.home.run(KEY, &["token", "adopt", id(&eve), "--yes"]);
    assert_eq!(adopted.code, 0, "{}", adopted.stderr);
    wait_for("the adopted token", || target.is_good(&eve));
    assert!(!target.is_good(&bob));
}
