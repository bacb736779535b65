//! Forgetting a person: no row, no key, no byte; while a server runs too.

use std::process::Command;
use std::time::Duration;

use helmdeck_core::{Clock, SystemClock};
use helmdeck_memory::{Kind, Namespace, Put, Store};
use helmdeck_system::tokens::{NewToken, TokenReach};
use helmdeck_system::vault::VaultUse;
use helmdeck_system::{KeyRequest, System};
use helmdeck_testkit::Postgres;
use serde_json::{Value, json};

use crate::support::program::{Home, Server};
use crate::support::{KEY, outside, store, store_at, wait_for};

const SUBJECT: &str = "SUBJECT-alice-7f3a";
const MARKS: [&str; 5] = [
    SUBJECT,
    "KEY-mark-1b2c",
    "TAG-mark-3d4e",
    "ATTRIBUTE-mark-5f60",
    "CATEGORY-mark-7182",
];

/// Writes entries of every kind, in and out of a session, many of them, some ended.
async fn fill(store: &dyn Store, subject: &str) {
    for session in [None, Some("SESSION-mark-9304"), Some("ended")] {
        for kind in Kind::ALL {
            for n in 0..30 {
                let whose = Namespace::new("local", subject, session);
                let mut put = Put::new(
                    whose,
                    kind,
                    format!("{}-{n}", MARKS[1]),
                    vec![7; 300 + 100 * n],
                );
                put.tags = vec![MARKS[2].to_owned()];
                put.attributes
                    .insert("name".to_owned(), MARKS[3].to_owned());
                put.category = MARKS[4].to_owned();
                put.ttl = Some(if session == Some("ended") {
                    Duration::from_micros(1)
                } else {
                    Duration::from_secs(3600)
                });
                store.put(put).await.unwrap();
            }
        }
    }
}

/// Returns which of these texts occur in any file of the data folder.
fn found(home: &Home, texts: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(home.data()).unwrap() {
        let path = entry.unwrap().path();
        let Ok(bytes) = std::fs::read(&path) else {
            continue;
        };
        for text in texts {
            if bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes())
            {
                found.push(format!("{text} in {}", path.display()));
            }
        }
    }
    found
}

#[tokio::test]
async fn forgetting_clears_every_file_of_one_person() {
    let home = Home::new();
    let other = store(&home.store(), &[KEY]).await;
    fill(&*other, SUBJECT).await;
    other
        .put(Put::new(
            Namespace::new("local", "bob", None),
            Kind::Fact,
            "bobs",
            "value",
        ))
        .await
        .unwrap();
    other
        .put(Put::new(
            Namespace::new("else", SUBJECT, None),
            Kind::Fact,
            "elsewhere",
            "value",
        ))
        .await
        .unwrap();
    other.close().await.unwrap();
    let system = System::at(home.data().join("helmdeck.db"));
    let now = SystemClock::default().now();
    for (subject, key) in [(SUBJECT, "one"), (SUBJECT, "two"), ("bob", "one")] {
        let scope = System::scope("local", subject, "rest");
        let hour = Duration::from_secs(3600);
        let request = KeyRequest {
            scope: &scope,
            key,
            digest: b"digest",
            keep: hour,
            repeatable: false,
        };
        system
            .begin(request, &system.replica().await.unwrap(), now)
            .await
            .unwrap();
    }
    let mut tokens = Vec::new();
    for (subject, expires_at) in [
        (SUBJECT, None),
        (SUBJECT, Some(now)),
        (SUBJECT, None),
        ("bob", None),
    ] {
        system
            .add_vault_uses(vec![VaultUse {
                name: "github-token".to_owned(),
                tenant: "local".to_owned(),
                subject: subject.to_owned(),
                pack: "github.list_issues".to_owned(),
                day: 1,
                granted: 1,
                refused: 0,
                last_at: now,
            }])
            .await
            .unwrap();
        let token = NewToken {
            name: String::new(),
            tenant: "local".to_owned(),
            subject: subject.to_owned(),
            scope: "packs:run".to_owned(),
            created_at: now,
            expires_at,
            ancestors: Vec::new(),
        };
        tokens.push(system.create_token(token).await.unwrap().0.id);
    }
    system
        .revoke_token(&tokens[2], &TokenReach::all(), now)
        .await
        .unwrap();
    assert!(!found(&home, &MARKS).is_empty());

    let asked = home.run("", &["memory", "forget", "--subject", SUBJECT]);
    assert_eq!(asked.code, 78, "an empty key is no key: {}", asked.stderr);
    let asked = home.run(KEY, &["memory", "forget", "--subject", SUBJECT]);
    assert_eq!(
        (asked.code, asked.stderr.contains("360 entries: 60 cache")),
        (2, true),
        "{}",
        asked.stderr
    );
    let receipt = home.data().join("receipt.json");
    let mut command = home.command(
        KEY,
        &[
            "memory",
            "forget",
            "--subject",
            SUBJECT,
            "--yes",
            "--json",
            "--receipt",
        ],
    );
    let output = command
        .arg(&receipt)
        .env_remove("HELMDECK_MEMORY_KEY")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        printed,
        serde_json::from_slice::<Value>(&std::fs::read(&receipt).unwrap()).unwrap()
    );
    std::fs::remove_file(&receipt).unwrap();
    assert_eq!(
        (&printed["verified"], &printed["log_emptied"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(
        (&printed["idempotency_keys"], &printed["driver"]),
        (&json!(2), &json!("sqlite"))
    );
    assert_eq!(
        (&printed["vault_uses"], &printed["live_tokens"]),
        (&json!(1), &json!(1))
    );
    assert!(
        printed["not_covered"]
            .to_string()
            .contains("helmdeck token revoke <id>"),
        "{printed}"
    );
    let uses = system.vault_uses(None, 10).await.unwrap();
    assert_eq!(
        uses.iter()
            .map(|used| used.subject.as_str())
            .collect::<Vec<_>>(),
        ["bob"]
    );
    let left: Vec<String> = system
        .tokens()
        .await
        .unwrap()
        .into_iter()
        .map(|token| token.id)
        .collect();
    assert!(
        left.len() == 2 && left.contains(&tokens[0]) && left.contains(&tokens[3]),
        "nothing is revoked silently"
    );
    // A user that learns of the token and revokes it can forget again, and then nothing is left to
    // report.
    assert_eq!(home.run(KEY, &["token", "revoke", &tokens[0]]).code, 0);
    let again = home.run(KEY, &["memory", "forget", "--subject", SUBJECT, "--yes"]);
    assert!(
        again.code == 0 && !again.stdout.contains("still good"),
        "{}{}",
        again.stdout,
        again.stderr
    );
    let notes = printed["removed"]
        .as_array()
        .unwrap()
        .iter()
        .find(|part| part["kind"] == "note")
        .unwrap();
    assert_eq!(notes, &json!({"session": null, "kind": "note", "rows": 30}));

    let elsewhere = home.run(
        KEY,
        &[
            "memory",
            "forget",
            "--subject",
            SUBJECT,
            "--tenant",
            "else",
            "--yes",
        ],
    );
    assert_eq!(elsewhere.code, 0, "{}", elsewhere.stderr);
    assert_eq!(
        found(
            &home,
            &[&MARKS[..], &["SESSION-mark-9304", "elsewhere"]].concat()
        ),
        Vec::<String>::new()
    );
    assert_eq!(found(&home, &["bobs"]).len(), 1);
    assert_eq!(
        System::at(home.data().join("helmdeck.db"))
            .forget("local", "bob")
            .await
            .unwrap(),
        1
    );
    assert_eq!(home.run(KEY, &["memory", "doctor"]).code, 0);
}

#[tokio::test]
async fn forgetting_clears_postgres_dump() {
    let (home, server) = (Home::new(), Postgres::shared());
    let url = server.database();
    home.keep_memory_at(&url);
    let opened = store_at(&url, &[KEY]).await;
    fill(&*opened, SUBJECT).await;
    opened
        .put(Put::new(
            Namespace::new("local", "bob", None),
            Kind::Fact,
            "bobs",
            "value",
        ))
        .await
        .unwrap();
    opened.close().await.unwrap();
    let marks = [&MARKS[..], &["SESSION-mark-9304"]].concat();
    let held = |mark: &str| {
        // In a dump, texts of any bytes are hex.
        let hex: String = mark.bytes().map(|byte| format!("{byte:02x}")).collect();
        let dump = server.dump(&url);
        dump.contains(mark) || dump.contains(&hex)
    };
    for mark in [&marks[..], &["bobs"]].concat() {
        assert!(held(mark), "{mark}");
    }
    let run = home.run(
        KEY,
        &["memory", "forget", "--subject", SUBJECT, "--yes", "--json"],
    );
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let receipt: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (&receipt["verified"], &receipt["driver"]),
        (&json!(true), &json!("postgres"))
    );
    let left: Vec<_> = marks.iter().filter(|mark| held(mark)).collect();
    assert!(left.is_empty() && held("bobs"), "{left:?}");
}

#[tokio::test]
async fn receipt_says_what_postgres_keeps_in_its_files() {
    let (home, server) = (Home::new(), Postgres::start());
    let url = server.database();
    home.keep_memory_at(&url);
    let opened = store_at(&url, &[KEY]).await;
    fill(&*opened, SUBJECT).await;
    opened.close().await.unwrap();
    let run = home.run(
        KEY,
        &["memory", "forget", "--subject", SUBJECT, "--yes", "--json"],
    );
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let receipt: Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(receipt["log_emptied"].is_null(), "{receipt}");
    let not_covered: Vec<_> = receipt["not_covered"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let line = not_covered
        .iter()
        .find(|line| line.contains("PostgreSQL"))
        .unwrap();
    let statements = line.split('`').nth(1).unwrap();
    let held = || {
        server.sql(&url, "CHECKPOINT");
        let marks = [&MARKS[..], &["SESSION-mark-9304"]].concat();
        let files = |mark: &&str| {
            let found = Command::new("grep")
                .args(["-rlaF", mark])
                .arg(server.files().join("base"))
                .output()
                .unwrap();
            !found.stdout.is_empty()
        };
        marks.into_iter().filter(files).collect::<Vec<_>>()
    };
    assert!(!held().is_empty(), "the receipt would say what is not so");
    for statement in statements.split(';') {
        server.sql(&url, statement);
    }
    assert_eq!(held(), Vec::<&str>::new());
}

#[test]
fn forgetting_clears_a_running_server() {
    let home = Home::new();
    let server = Server::start(&home, KEY);
    let input = json!({ "repo": "x" });
    assert_eq!(server.call("test.echo", &input).0, "miss");
    let rows = || -> i64 {
        let sql = "SELECT count(*) FROM memory_entries e JOIN memory_spaces s ON s.id = e.space_id WHERE s.kind <> 'head'";
        outside(&home.store())
            .query_row(sql, [], |row| row.get(0))
            .unwrap()
    };
    wait_for("the answer and its audit row to be in the file", || {
        rows() == 2
    });
    assert_eq!(server.look("test.echo", &input), "hit", "from the hot tier");
    let run = home.run(KEY, &["memory", "forget", "--subject", "local", "--yes"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    for part in ["verified", "cache", "audit", "backups"] {
        assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
    }
    wait_for("the server to forget", || {
        server.look("test.echo", &input) == "cache_miss"
    });
    assert_eq!(server.call("test.echo", &input).0, "miss");
}

#[test]
fn rows_that_a_server_writes_meanwhile_go_too() {
    let home = Home::new();
    let server = Server::start(&home, KEY);
    std::thread::scope(|scope| {
        let calls = scope.spawn(|| {
            for n in 0..100 {
                server.call("test.echo", &json!({ "repo": n.to_string() }));
            }
        });
        let sql = "SELECT count(*) FROM memory_entries e JOIN memory_spaces s ON s.id = e.space_id WHERE s.kind <> 'head'";
        wait_for("the first rows", || {
            outside(&home.store())
                .query_row(sql, [], |row| row.get::<_, i64>(0))
                .unwrap()
                > 3
        });
        calls.join().unwrap();
        // The server writes behind its last answer.
        let run = home.run(
            KEY,
            &["memory", "forget", "--subject", "local", "--yes", "--json"],
        );
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
        let receipt: Value = serde_json::from_str(&run.stdout).unwrap();
        assert!(
            receipt["rows"].as_u64().unwrap() > 0 && receipt["verified"] == true,
            "{receipt}"
        );
        assert_eq!(
            outside(&home.store())
                .query_row(sql, [], |row| row.get::<_, i64>(0))
                .unwrap(),
            0
        );
    });
}

#[test]
fn what_a_tenant_shares_is_nobodys_to_forget() {
    let home = Home::new();
    let run = home.run(KEY, &["memory", "forget", "--subject", "", "--yes"]);
    assert_eq!(
        (run.code, run.stderr.contains("what a tenant shares")),
        (2, true),
        "{}",
        run.stderr
    );
    let run = home.run(KEY, &["memory", "forget", "--subject", "nobody", "--yes"]);
    assert_eq!(run.code, 0, "no store, nothing to forget: {}", run.stderr);
    assert!(!home.store().exists());
}
