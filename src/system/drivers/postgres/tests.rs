//! Tests with a real PostgreSQL: the suite, replicas that start at once, and a lease that ends.

use std::sync::Arc;

use helmdeck_memory::{Config, StoreError};
use helmdeck_testkit::{PgBouncer, Postgres as Server};

use crate::conformance::jobs::{add, end_lost, find, row, save, until_gone};
use crate::conformance::{self, Fixture, NOW};
use crate::counters::Counter;
use crate::jobs::JobRow;
use crate::system::System;

fn at(url: &str) -> System {
    System::connect(url, &Config::default()).unwrap()
}

/// Ends every lease, as if their replicas had been frozen for long.
fn end_leases(server: &Server, url: &str) {
    server.sql(url, "UPDATE system_replicas SET expires_at = clock_timestamp() - interval '1 second'");
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_conforms() {
    let server = Server::shared();
    let url = server.database();
    let count = std::sync::atomic::AtomicU32::new(0);
    conformance::run(|| {
        // Schemas of one database, one after the other.
        let name = format!("case{}", count.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
        server.sql(&url, &format!("CREATE SCHEMA {name}"));
        let url = format!("{url}?options=-csearch_path%3D{name}");
        Fixture { one: at(&url), two: at(&url) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pooled_postgres_conforms() {
    let server = Server::shared();
    let pooler = PgBouncer::start(&server);
    conformance::run(|| {
        // A pooler in transaction mode takes no options of a session, so each case gets a database.
        let url = pooler.url(&server.database());
        Fixture { one: at(&url), two: at(&url) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_may_start_at_once_on_an_empty_database() {
    let server = Server::shared();
    let url = server.database();
    let starting: Vec<_> = (0..8)
        .map(|_| {
            let system = at(&url);
            tokio::spawn(async move {
                system.add(vec![Counter { pack: "p".into(), name: "n".into(), value: 1 }]).await.unwrap();
            })
        })
        .collect();
    for one in starting {
        one.await.unwrap();
    }
    assert_eq!(at(&url).counters().await.unwrap()[0].value, 8);
    assert_eq!(server.query(&url, "SELECT count(*) FROM system_migrations"), "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_tables_are_refused() {
    let server = Server::shared();
    let url = server.database();
    at(&url).replica().await.unwrap();
    server.sql(&url, "INSERT INTO system_migrations (version, name) VALUES (1000, 'future')");
    let error = at(&url).counters().await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Corrupt(message) if message.contains("newer version (schema 1000)")),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn location_shows_no_secret() {
    let system = at("postgres://ann:hunter2@db.example:5433/deck?sslmode=disable");
    assert_eq!(system.location(), "postgres://db.example:5433/deck");
    assert!(!format!("{system:?}").contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_replica_writes_nothing_after_its_lease() {
    let server = Server::shared();
    let url = server.database();
    let (frozen, other) = (at(&url), at(&url));
    let (here, there) = (frozen.replica().await.unwrap(), other.replica().await.unwrap());
    let job = add(&frozen, &here, "a", 1).await;
    // It wakes in a moment, and is somebody else then.
    let (id, late) = (here.id(), row(&here, "a", 2));
    server.sql(&url, &format!("UPDATE system_replicas SET expires_at = clock_timestamp() WHERE id = '{id}'"));
    let done = JobRow { state: "succeeded".into(), revision: 2, ended_at: Some(NOW), ..job.clone() };
    assert!(!save(&frozen, std::slice::from_ref(&done)).await, "nobody has ended the lease, and it has ended");
    assert_eq!(find(&other, &job).await, Some(job.clone()));
    let refused = frozen.add_job(late, 9).await.unwrap_err();
    assert!(refused.is_temporary(), "{refused:?}");

    assert_eq!(end_lost(&other).await, 1);
    assert!(!save(&frozen, &[done]).await);
    assert_eq!(find(&frozen, &job).await.unwrap().state, "failed");
    let left = server.query(&url, &format!("SELECT count(*) FROM system_replicas WHERE id = '{id}'"));
    assert_eq!(left, "0");
    let mine = add(&other, &there, "a", 3).await;
    assert_eq!(end_lost(&frozen).await, 0, "the other lives");
    assert_eq!(find(&other, &mine).await, Some(mine.clone()));
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_joins_again_under_a_new_id() {
    let server = Server::shared();
    let url = server.database();
    let system = at(&url);
    let replica = system.replica().await.unwrap();
    let before = replica.id();
    assert!(replica.holds(&before));
    end_leases(&server, &url);
    until_gone(async || replica.id() != before).await;
    assert!(!replica.holds(&before) && replica.holds(&replica.id()));
    assert!(Arc::ptr_eq(&replica, &system.replica().await.unwrap()), "a handle joins once");
    add(&system, &replica, "a", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_go_both_ways() {
    let server = Server::shared();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| System::at(folder.path().join(name).join("helmdeck.db"));
    conformance::transfer::a_copy_holds_the_same(file("a"), at(&server.database())).await;
    conformance::transfer::a_copy_holds_the_same(at(&server.database()), file("b")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn live_replicas_are_counted() {
    let server = Server::shared();
    let url = server.database();
    let (one, two) = (at(&url), at(&url));
    assert_eq!(one.live_replicas().await.unwrap(), 1, "there is at least this one");
    let (first, _second) = (one.replica().await.unwrap(), two.replica().await.unwrap());
    assert_eq!(two.live_replicas().await.unwrap(), 2);
    drop(first);
    until_gone(async || two.live_replicas().await.unwrap() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_survives_connections_that_end() {
    let server = Server::shared();
    let url = server.database();
    let system = at(&url);
    system.add(vec![Counter { pack: "p".into(), name: "n".into(), value: 1 }]).await.unwrap();
    for _ in 0..3 {
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        assert_ne!(server.query(&url, end), "");
        assert_eq!(system.counters().await.unwrap()[0].value, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_tables_are_made_again() {
    let server = Server::shared();
    let url = server.database();
    let system = at(&url);
    let count = || system.add(vec![Counter { pack: "p".into(), name: "n".into(), value: 1 }]);
    count().await.unwrap();
    server.sql(&url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public");
    assert!(matches!(count().await, Err(StoreError::Corrupt(_))));
    count().await.unwrap();
    assert_eq!(system.counters().await.unwrap()[0].value, 1);
}
