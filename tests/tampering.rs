//! Tampering with answers by an attacker that can write the SQLite file, but has no key.
//!
//! The attacker can make them miss, and nothing else. The hot tier is off, so that every call asks
//! the file. Each call checks itself (`Fixture::call`): a hit is what this caller got before,
//! anything else comes from the handler.

use helmdeck_core::{CacheStatus, Identity};
use helmdeck_memory::{Kind, MemoryKey, Namespace, StoreError};
use rusqlite::types::Value;
use serde_json::json;
use std::time::Duration;

use crate::support::fixture::{Fixture, patient, tags};
use crate::support::program::{Home, Server};
use crate::support::{KEY, OTHER_KEY, outside};

const VICTIM: &str = "tags = '[\"repo:victim\",\"repo:*\",\"*\"]'";
const OTHER: &str = "tags = '[\"repo:other\",\"repo:*\",\"*\"]'";

async fn fixture() -> Fixture {
    let fixture = Fixture::new(patient(0)).await;
    fixture.fill(&["victim", "other", "neighbour"]).await;
    for repo in ["victim", "other", "neighbour"] {
        assert_eq!(fixture.call(repo).await, CacheStatus::Hit);
    }
    fixture
}

/// Runs SQL on the file from outside; every statement must change something.
#[track_caller]
fn tamper(fixture: &Fixture, sql: &[String]) {
    let connection = outside(&fixture.path);
    for sql in sql {
        assert!(
            connection.execute(sql, []).unwrap() > 0,
            "{sql} changed nothing"
        );
    }
}

/// Asks for answers, each of which must come from the handler, `unreadable` of them because a row
/// did not open; then sees that the neighbour was not harmed and that what was damaged is mended.
async fn missed(fixture: &Fixture, what: &str, repos: &[&str], unreadable: u64) {
    let before = fixture.unreadable();
    for repo in repos {
        assert_eq!(
            fixture.call(repo).await,
            CacheStatus::Miss,
            "{what}: {repo}"
        );
    }
    assert_eq!(fixture.unreadable() - before, unreadable, "{what}: counted");
    fixture.settle().await;
    for repo in repos.iter().chain(&["neighbour"]) {
        assert_eq!(fixture.call(repo).await, CacheStatus::Hit, "{what}: {repo}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn swapped_rows_do_not_open() {
    let trade = |columns: &str| {
        let set = |from: &str| {
            let sources: Vec<String> = columns
                .split(", ")
                .map(|name| format!("{name} = s.{name}"))
                .collect();
            format!(
                "UPDATE memory_entries SET {} FROM spare s WHERE memory_entries.{{}} AND s.{from}",
                sources.join(", ")
            )
        };
        vec![
            "CREATE TABLE spare AS SELECT * FROM memory_entries".to_owned(),
            set(OTHER).replace("{}", VICTIM),
            set(VICTIM).replace("{}", OTHER),
        ]
    };
    for columns in [
        "value_ciphertext",
        "value_nonce, value_ciphertext",
        "key_id, value_nonce, value_ciphertext, fingerprint, version",
    ] {
        let fixture = fixture().await;
        let connection = outside(&fixture.path);
        for sql in trade(columns) {
            connection.execute(&sql, []).unwrap();
        }
        connection.execute("DROP TABLE spare", []).unwrap();
        missed(&fixture, columns, &["victim", "other"], 2).await;
    }
    let fixture = fixture().await;
    let key = |repo: &str| -> String {
        let sql = "SELECT key FROM memory_entries WHERE tags = ?1";
        outside(&fixture.path)
            .query_row(sql, [tags(repo)], |row| row.get(0))
            .unwrap()
    };
    let (victim, other) = (key("victim"), key("other"));
    let rename = |from: &str, to: &str| {
        format!("UPDATE memory_entries SET key = '{to}' WHERE key = '{from}'")
    };
    tamper(
        &fixture,
        &[
            rename(&victim, "x"),
            rename(&other, &victim),
            rename("x", &other),
        ],
    );
    missed(&fixture, "places", &["victim", "other"], 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_row_does_not_open() {
    let fixture = fixture().await;
    let take = format!("UPDATE memory_entries SET key = (SELECT key FROM gone) WHERE {OTHER}");
    let connection = outside(&fixture.path);
    connection
        .execute(
            &format!("CREATE TABLE gone AS SELECT key FROM memory_entries WHERE {VICTIM}"),
            [],
        )
        .unwrap();
    tamper(
        &fixture,
        &[format!("DELETE FROM memory_entries WHERE {VICTIM}"), take],
    );
    connection.execute("DROP TABLE gone", []).unwrap();
    missed(&fixture, "renamed", &["victim"], 1).await;
    missed(&fixture, "gone", &["other"], 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_moved_to_another_caller_does_not_open() {
    let fixture = fixture().await;
    let bob = || Identity::new("local", "bob").unwrap();
    let input = json!({ "repo": "victim" });
    assert_eq!(
        fixture.call_as(bob(), input.clone()).await,
        CacheStatus::Miss,
        "another caller is another answer"
    );
    fixture.settle().await;
    // The local caller's row, under the key and in the space of Bob's.
    let space = |subject: &str| {
        format!("(SELECT id FROM memory_spaces WHERE subject = '{subject}' AND kind = 'cache')")
    };
    let connection = outside(&fixture.path);
    connection
        .execute(
            &format!(
                "CREATE TABLE bobs AS SELECT key, space_id FROM memory_entries WHERE space_id = {}",
                space("bob")
            ),
            [],
        )
        .unwrap();
    tamper(
        &fixture,
        &[
            format!("DELETE FROM memory_entries WHERE space_id = {}", space("bob")),
            format!(
                "UPDATE memory_entries SET key = (SELECT key FROM bobs), space_id = (SELECT space_id FROM bobs)
                  WHERE {VICTIM} AND space_id = {}",
                space("local")
            ),
        ],
    );
    connection.execute("DROP TABLE bobs", []).unwrap();
    assert_eq!(
        fixture.call_as(bob(), input.clone()).await,
        CacheStatus::Miss
    );
    assert_eq!(fixture.unreadable(), 1);
    missed(&fixture, "moved away", &["victim"], 0).await;
    fixture.settle().await;
    assert_eq!(
        fixture.call_as(bob(), input).await,
        CacheStatus::Hit,
        "mended"
    );
    // The spaces trade their names: no caller finds its rows there.
    let name = |from: &str, to: &str| {
        format!(
            "UPDATE memory_spaces SET subject = '{to}' WHERE subject = '{from}' AND kind = 'cache'"
        )
    };
    tamper(
        &fixture,
        &[name("bob", "x"), name("local", "bob"), name("x", "local")],
    );
    for repo in ["victim", "other", "neighbour"] {
        assert_eq!(fixture.call(repo).await, CacheStatus::Miss);
        assert_eq!(
            fixture.call_as(bob(), json!({ "repo": repo })).await,
            CacheStatus::Miss
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_row_is_replaced_by_next_answer() {
    for change in [
        "expires_at = expires_at + 31536000000000",
        "expires_at = NULL",
        "tags = '[\"repo:changed\"]'",
        "tags = '[]'",
        "category = 'other'",
        "fingerprint = '0000000000000000'",
        "attributes = '{}'",
        "version = version + 1",
        "version = 9223372036854775807",
        "version = -9223372036854775808",
        "created_at = -9223372036854775808",
        "updated_at = 9223372036854775807",
        "key_id = ''",
        "key_id = 'feedfeedfeedfeed'",
        "value_nonce = zeroblob(12)",
        "value_nonce = x''",
        "value_ciphertext = x''",
        "value_ciphertext = substr(value_ciphertext, 1, length(value_ciphertext) - 1)",
        "value_ciphertext = zeroblob(20000)",
    ] {
        let fixture = fixture().await;
        tamper(
            &fixture,
            &[format!("UPDATE memory_entries SET {change} WHERE {VICTIM}")],
        );
        missed(&fixture, change, &["victim"], 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn extended_expiry_in_the_file_is_ignored() {
    let fixture = fixture().await;
    tamper(
        &fixture,
        &["UPDATE memory_entries SET expires_at = expires_at + 31536000000000".to_owned()],
    );
    fixture.clock.advance(Duration::from_secs(3601));
    for repo in ["victim", "other", "neighbour"] {
        assert_eq!(fixture.call(repo).await, CacheStatus::Miss);
    }
    assert_eq!(fixture.unreadable(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planted_plaintext_is_never_an_answer() {
    let fixture = fixture().await;
    let sql = format!("SELECT key FROM memory_entries WHERE {VICTIM}");
    let key: String = outside(&fixture.path)
        .query_row(&sql, [], |row| row.get(0))
        .unwrap();
    let store = fixture.engine.memory().unwrap().store();
    let entry = store
        .get(&Namespace::new("local", "local", None), Kind::Cache, &key)
        .await
        .unwrap()
        .unwrap();
    // Exactly what the engine would take, were it sealed: the real plaintext with another output.
    let mut planted = entry.value.to_vec();
    let at = planted
        .windows(5)
        .position(|part| part == b"\"n\":1")
        .unwrap();
    planted[at + 4] = b'9';
    for key_id in ["''", "key_id"] {
        let sql = format!(
            "UPDATE memory_entries SET key_id = {key_id}, value_nonce = x'', value_ciphertext = ?1 WHERE {VICTIM}"
        );
        assert_eq!(outside(&fixture.path).execute(&sql, [&planted]).unwrap(), 1);
        missed(&fixture, key_id, &["victim"], 1).await;
    }
}

/// Returns the row of the victim: its id and its columns.
fn row(connection: &rusqlite::Connection) -> (i64, Vec<(String, Value)>) {
    let mut statement = connection
        .prepare(&format!("SELECT * FROM memory_entries WHERE {VICTIM}"))
        .unwrap();
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let columns = statement
        .query_row([], |row| {
            (0..names.len()).map(|index| row.get(index)).collect()
        })
        .unwrap();
    let mut columns: Vec<(String, Value)> = names.into_iter().zip::<Vec<Value>>(columns).collect();
    let (_, Value::Integer(id)) = columns.remove(0) else {
        panic!("the first column is the id")
    };
    (id, columns)
}

/// Flips a byte of a column; returns the SQL that stands for it and its parameter. `None` past the
/// end.
fn flip(value: &Value, at: usize) -> Option<(&'static str, Value)> {
    let mut bytes = match value {
        Value::Integer(number) => number.to_be_bytes().to_vec(),
        Value::Text(text) => text.clone().into_bytes(),
        Value::Blob(blob) => blob.clone(),
        other => panic!("{other:?}"),
    };
    *bytes.get_mut(at)? ^= if at.is_multiple_of(2) { 0xff } else { 0x01 };
    Some(match value {
        Value::Integer(_) => (
            "?1",
            Value::Integer(i64::from_be_bytes(bytes.try_into().unwrap())),
        ),
        // A text of any bytes: SQLite does not mind.
        Value::Text(_) => ("CAST(?1 AS TEXT)", Value::Blob(bytes)),
        _ => ("?1", Value::Blob(bytes)),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn any_flipped_byte_is_a_miss() {
    let fixture = fixture().await;
    let connection = outside(&fixture.path);
    connection
        .execute_batch("PRAGMA synchronous = OFF")
        .unwrap();
    let (mut flips, mut hidden) = (0, 0);
    for (index, (name, _)) in row(&connection).1.iter().enumerate() {
        // The answer is written anew after each flip, and may be a little longer or shorter then.
        let mut at = 0;
        loop {
            let (id, columns) = row(&connection);
            let Some((sql, flipped)) = flip(&columns[index].1, at) else {
                break;
            };
            let sql = format!("UPDATE memory_entries SET {name} = {sql} WHERE id = {id}");
            assert_eq!(connection.execute(&sql, [flipped]).unwrap(), 1);
            let before = fixture.unreadable();
            if name == "cost" {
                // It says what the row takes of the quota, which the entry itself tells too; the
                // answer does not depend on it.
                assert_eq!(
                    fixture.call("victim").await,
                    CacheStatus::Hit,
                    "{name}, byte {at}"
                );
                connection
                    .execute(
                        &format!("UPDATE memory_entries SET cost = 500 WHERE id = {id}"),
                        [],
                    )
                    .unwrap();
                at += 1;
                continue;
            }
            assert_eq!(
                fixture.call("victim").await,
                CacheStatus::Miss,
                "{name}, byte {at}"
            );
            // In another space, under another key or at its end there is nothing to open.
            let elsewhere = ["space_id", "key", "expires_at"].contains(&name.as_str());
            let unreadable = fixture.unreadable() - before;
            assert!(
                unreadable == 1 || (elsewhere && unreadable == 0),
                "{name}, byte {at}: {unreadable}"
            );
            hidden += 1 - unreadable;
            fixture.settle().await;
            if name == "space_id" || name == "key" {
                connection
                    .execute("DELETE FROM memory_entries WHERE id = ?1", [id])
                    .unwrap();
            }
            assert_eq!(
                fixture.call("victim").await,
                CacheStatus::Hit,
                "{name}, byte {at}: mended"
            );
            (at, flips) = (at + 1, flips + 1);
        }
    }
    println!(
        "{flips} bytes flipped, {} rows did not open, {hidden} were not found",
        flips - hidden
    );
    assert!(flips > 500, "{flips}");
    for repo in ["other", "neighbour"] {
        assert_eq!(fixture.call(repo).await, CacheStatus::Hit);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_file_is_an_error_or_a_miss() {
    let fixture = fixture().await;
    fixture.engine.shutdown().await;
    let whole = std::fs::read(&fixture.path).unwrap();
    let (mut refused, mut missed, mut hit) = (0, 0, 0);
    for eighth in 0..=8 {
        let path = fixture.path.with_file_name(format!("cut-{eighth}.db"));
        std::fs::write(&path, &whole[..whole.len() * eighth / 8]).unwrap();
        match Fixture::at(&path, patient(0)).await {
            Ok(cut) => {
                for repo in ["victim", "other", "neighbour"] {
                    // A fixture made just now knows no answer of before, so a hit is looked at
                    // here.
                    cut.expect(repo, &fixture);
                    match cut.call(repo).await {
                        CacheStatus::Hit => hit += 1,
                        _ => missed += 1,
                    }
                }
            }
            Err(error) => {
                let text = error.to_string();
                assert!(
                    matches!(
                        error,
                        StoreError::Corrupt(_) | StoreError::Unavailable { .. }
                    ),
                    "{error:?}"
                );
                assert!(text.contains(&format!("cut-{eighth}.db")), "{text}");
                refused += 1;
            }
        }
    }
    println!("{refused} opens refused, {missed} misses, {hit} hits");
    assert!(
        refused > 0 && missed > 0 && hit == 3,
        "{refused} {missed} {hit}"
    );
}

#[test]
fn wrong_key_is_one_error_naming_both_ids() {
    let home = Home::new();
    home.call(KEY, &["test.echo", "repo=a/b"]);
    let id = |key: &str| MemoryKey::parse("KEY", key).unwrap().id().to_owned();
    let expected = format!(
        "this store was written with key {}; the key given is {}",
        id(KEY),
        id(OTHER_KEY)
    );
    for arguments in [
        &["serve", "--listen", "127.0.0.1:0"][..],
        &["run", "test.echo", "repo=a/b"],
        &["memory", "doctor"],
    ] {
        let run = home.run(OTHER_KEY, arguments);
        assert_eq!(run.code, 78, "{arguments:?}: {}", run.stderr);
        assert_eq!(
            run.stderr.matches(&expected).count(),
            1,
            "{arguments:?}: {}",
            run.stderr
        );
        assert!(!run.stderr.contains(OTHER_KEY) && !run.stderr.contains(KEY));
    }
    assert_eq!(
        home.call(KEY, &["test.echo", "repo=a/b"]).0,
        "hit",
        "nothing was harmed"
    );
}

#[test]
fn stored_text_is_in_no_file_but_readable() {
    const MARKER: &str = "MARKER-7f3a9c-plaintext";
    let home = Home::new();
    let (status, output) = home.call(KEY, &["test.plain", &format!("repo={MARKER}")]);
    assert!(status == "miss" && output.to_string().contains(MARKER));
    let server = Server::start(&home, KEY);
    server.call("test.plain", &json!({ "repo": format!("{MARKER}-2") }));
    drop(server);
    let holds = |bytes: &[u8]| {
        bytes
            .windows(MARKER.len())
            .any(|part| part == MARKER.as_bytes())
    };
    let sql = "SELECT e.value_ciphertext FROM memory_entries e JOIN memory_spaces s ON s.id = e.space_id WHERE s.kind = 'cache'";
    let column: Vec<u8> = outside(&home.store())
        .query_row(sql, [], |row| row.get(0))
        .unwrap();
    assert!(column.len() > MARKER.len() && !holds(&column));
    let mut files = 0;
    for file in std::fs::read_dir(home.data()).unwrap() {
        let file = file.unwrap().path();
        if file.is_file() {
            assert!(!holds(&std::fs::read(&file).unwrap()), "{}", file.display());
            files += 1;
        }
    }
    assert!(files >= 2, "the store and the system database");
    assert_eq!(
        home.call(KEY, &["test.plain", &format!("repo={MARKER}")]),
        ("hit".to_owned(), output)
    );
}
