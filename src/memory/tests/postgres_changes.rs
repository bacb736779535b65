//! Tests of the outbox: what replicas hear of the deletes of others.

use helmdeck_testkit::{Postgres as Server, ends};

use super::postgres::open_at;
use super::{alice, put};
use crate::{Change, Delete, Kind, Reach};

#[tokio::test(flavor = "multi_thread")]
async fn deletes_are_notified_also_after_a_lost_connection() {
    let server = Server::shared();
    let url = server.database();
    let (one, two) = (open_at(&url).await.unwrap(), open_at(&url).await.unwrap());
    let (mut heard_by_one, mut heard_by_two) = (one.changes().unwrap(), two.changes().unwrap());
    let hear = async |changes: &mut crate::Changes| ends("a change", changes.recv()).await.unwrap();
    let delete = Delete::Tagged {
        whose: Reach::Everybody,
        kind: Kind::Cache,
        tag: "repo:a\0b".into(),
    };
    one.delete(delete.clone()).await.unwrap();
    assert_eq!(
        hear(&mut heard_by_two).await,
        Change::Deleted(delete.clone())
    );
    one.put(put("k", "v")).await.unwrap();

    // A listening process holds a lock that shows that it is alive.
    let cut =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
                AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)";
    assert_eq!(server.query(&url, cut).lines().count(), 2);
    two.delete(delete.clone()).await.unwrap();
    assert_eq!(hear_deleted(&mut heard_by_one).await, delete);
    assert!(
        !std::iter::from_fn(|| heard_by_two.try_recv().ok())
            .any(|change| change == Change::Deleted(delete.clone()))
    );
}

/// Waits for the next delete; a busy machine may also have said that anything changed.
async fn hear_deleted(changes: &mut crate::Changes) -> Delete {
    let hear = async {
        loop {
            if let Change::Deleted(delete) = changes.recv().await.unwrap() {
                return delete;
            }
        }
    };
    ends("a delete", hear).await
}

fn note(key: &str) -> Delete {
    Delete::Key {
        namespace: alice(),
        kind: Kind::Note,
        key: key.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_off_replica_reads_what_it_missed() {
    let server = Server::shared();
    let url = server.database();
    let (_, name) = url.rsplit_once('/').unwrap();
    let here = open_at(&url).await.unwrap();
    let there = open_at(&format!("{url}?application_name=there"))
        .await
        .unwrap();
    let mut heard = there.changes().unwrap();
    // Connected before the door is shut.
    here.delete(note("before")).await.unwrap();
    assert_eq!(hear_deleted(&mut heard).await, note("before"));
    let door = |open: bool| {
        server.sql(
            &server.url(),
            &format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {open}"),
        )
    };
    door(false);
    let cut = format!(
        "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity
          WHERE datname = '{name}' AND application_name = 'there'"
    );
    server.sql(&server.url(), &cut);
    for key in ["a", "b", "c"] {
        here.delete(note(key)).await.unwrap();
    }
    // It says so as long as it is cut off: what it keeps meanwhile may be deleted meanwhile.
    for _ in 0..3 {
        let said = ends("a change", heard.recv()).await.unwrap();
        assert_eq!(said, Change::Anything);
    }
    door(true);
    for key in ["a", "b", "c"] {
        assert_eq!(hear_deleted(&mut heard).await, note(key));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deletes_that_commit_out_of_order_are_all_heard() {
    let server = Server::shared();
    let url = server.database();
    let store = open_at(&url).await.unwrap();
    let mut heard = store.changes().unwrap();
    let before = store.generation().await.unwrap();
    let mut transactions = Vec::new();
    for key in ["first", "second", "third"] {
        let (client, line) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(line);
        let payload = format!("[{{\"k\":[[\"t\",\"alice\",null],\"note\",\"{key}\"]}}]");
        let insert =
            format!("BEGIN; INSERT INTO memory_changes (origin, payload) VALUES (0, '{payload}')");
        client.batch_execute(&insert).await.unwrap();
        transactions.push(client);
    }
    for (index, key) in [(1, "second"), (0, "first"), (2, "third")] {
        transactions[index].batch_execute("COMMIT").await.unwrap();
        assert_eq!(hear_deleted(&mut heard).await, note(key));
    }
    assert_eq!(store.generation().await.unwrap(), before + 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_deletes_are_swept_and_the_version_before_is_heard() {
    let server = Server::shared();
    let url = server.database();
    let store = open_at(&url).await.unwrap();
    let mut heard = store.changes().unwrap();
    server.sql(&url, "UPDATE memory_generation SET value = value + 1");
    let change = ends("a change", heard.recv()).await.unwrap();
    assert_eq!(change, Change::Anything);
    store.delete(note("k")).await.unwrap();
    let old = "INSERT INTO memory_changes (origin, payload, at) SELECT 0, '[]', now() - interval '11 minutes'
                 FROM generate_series(1, 12000)";
    server.sql(&url, old);
    crate::drivers::postgres::sweep_changes(&url).await.unwrap();
    assert_eq!(
        server.query(&url, "SELECT count(*) FROM memory_changes"),
        "2"
    );
}
