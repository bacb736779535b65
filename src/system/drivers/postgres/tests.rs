//! Tests with a real PostgreSQL: the suite, replicas that start at once, and a lease that ends.

use std::sync::Arc;

use helmdeck_memory::{Config, StoreError};
use helmdeck_testkit::{PgBouncer, Postgres as Server};

use crate::conformance::jobs::{add, end_lost, find, look_for_lost, row, save, until_gone};
use crate::conformance::queue::{claim, queue, wish};
use crate::conformance::{self, Fixture, NOW};
use crate::counters::Counter;
use crate::jobs::JobRow;
use crate::system::System;

fn at(url: &str) -> System {
    System::connect(url, &Config::default()).unwrap()
}

/// Ends every lease, as if their replicas had been frozen for long.
fn end_leases(server: &Server, url: &str) {
    server.sql(
        url,
        "UPDATE system_replicas SET expires_at = clock_timestamp() - interval '1 second'",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_conforms() {
    let server = Server::shared();
    let url = server.database();
    let count = std::sync::atomic::AtomicU32::new(0);
    conformance::run(|| {
        // Schemas of one database, one after the other.
        let name = format!(
            "case{}",
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst)
        );
        server.sql(&url, &format!("CREATE SCHEMA {name}"));
        let url = format!("{url}?options=-csearch_path%3D{name}");
        Fixture {
            one: at(&url),
            two: at(&url),
        }
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
        Fixture {
            one: at(&url),
            two: at(&url),
        }
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
                system
                    .add(vec![Counter {
                        pack: "p".into(),
                        name: "n".into(),
                        value: 1,
                    }])
                    .await
                    .unwrap();
            })
        })
        .collect();
    for one in starting {
        one.await.unwrap();
    }
    assert_eq!(at(&url).counters().await.unwrap()[0].value, 8);
    assert_eq!(
        server.query(&url, "SELECT count(*) FROM system_migrations"),
        "1"
    );
    assert_eq!(
        server.query(&url, "SELECT count(*) FROM system_additions"),
        "6"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_tables_are_refused() {
    let server = Server::shared();
    let url = server.database();
    at(&url).replica().await.unwrap();
    server.sql(
        &url,
        "INSERT INTO system_migrations (version, name) VALUES (1000, 'future')",
    );
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
    let (here, there) = (
        frozen.replica().await.unwrap(),
        other.replica().await.unwrap(),
    );
    let job = add(&frozen, &here, "a", 1).await;
    // It wakes in a moment, and is somebody else then.
    let (id, late) = (here.id(), row(&here, "a", 2));
    server.sql(
        &url,
        &format!("UPDATE system_replicas SET expires_at = clock_timestamp() WHERE id = '{id}'"),
    );
    let done = JobRow {
        state: "succeeded".into(),
        revision: 2,
        ended_at: Some(NOW),
        ..job.clone()
    };
    assert!(
        !save(&frozen, std::slice::from_ref(&done)).await,
        "nobody has ended the lease, and it has ended"
    );
    assert_eq!(find(&other, &job).await, Some(job.clone()));
    let refused = frozen.add_job(late, 9).await.unwrap_err();
    assert!(refused.is_temporary(), "{refused:?}");

    assert_eq!(end_lost(&other).await, 1);
    assert!(!save(&frozen, &[done]).await);
    assert_eq!(find(&frozen, &job).await.unwrap().state, "failed");
    let left = server.query(
        &url,
        &format!("SELECT count(*) FROM system_replicas WHERE id = '{id}'"),
    );
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
    assert!(
        Arc::ptr_eq(&replica, &system.replica().await.unwrap()),
        "a handle joins once"
    );
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
    assert_eq!(
        one.live_replicas().await.unwrap(),
        1,
        "there is at least this one"
    );
    let (first, _second) = (one.replica().await.unwrap(), two.replica().await.unwrap());
    assert_eq!(two.live_replicas().await.unwrap(), 2);
    drop(first);
    until_gone(async || two.live_replicas().await.unwrap() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_that_leaves_is_gone_at_once() {
    let server = Server::shared();
    let url = server.database();
    let (one, two) = (at(&url), at(&url));
    let (here, _there) = (one.replica().await.unwrap(), two.replica().await.unwrap());
    let job = add(&one, &here, "a", 1).await;
    one.leave().await.unwrap();
    assert_eq!(two.live_replicas().await.unwrap(), 1);
    assert!(!here.holds(&here.id()), "it owns nothing any more");
    assert!(!save(&one, &[JobRow { revision: 2, ..job }]).await);
    assert_eq!(end_lost(&two).await, 1);
    one.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_survives_connections_that_end() {
    let server = Server::shared();
    let url = server.database();
    let system = at(&url);
    system
        .add(vec![Counter {
            pack: "p".into(),
            name: "n".into(),
            value: 1,
        }])
        .await
        .unwrap();
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
    let count = || {
        system.add(vec![Counter {
            pack: "p".into(),
            name: "n".into(),
            value: 1,
        }])
    };
    count().await.unwrap();
    server.sql(&url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public");
    assert!(matches!(count().await, Err(StoreError::Corrupt(_))));
    count().await.unwrap();
    assert_eq!(system.counters().await.unwrap()[0].value, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn previous_version_runs_beside_this_one() {
    runs_beside("", "1").await;
    // For a while the indexes were a step.
    let indexes = include_str!("../../migrations/postgres/added_callers.sql");
    let callers =
        format!("{indexes}; INSERT INTO system_migrations (version, name) VALUES (2, 'callers')");
    runs_beside(&callers, "2").await;
}

async fn runs_beside(more: &str, version: &str) {
    let server = Server::shared();
    let url = server.database();
    // The tables as the previous version made them, with a job of a replica of it.
    let ledger = "CREATE TABLE system_migrations
        (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TIMESTAMPTZ NOT NULL DEFAULT now());
        INSERT INTO system_migrations (version, name) VALUES (1, 'system')";
    server.sql(
        &url,
        &format!(
            "{}; {ledger}; {more}",
            include_str!("../../migrations/postgres/0001_system.sql")
        ),
    );
    let add = |id: &str| {
        server.sql(
            &url,
            &format!(
                "INSERT INTO system_replicas (id, expires_at) VALUES ('old{id}', clock_timestamp() + interval '1 hour');
                 INSERT INTO system_jobs (id, tenant, subject, pack, version, state, owner, revision, created_at, expires_at)
                 VALUES ('{id}', 't', 'a', 'a.b', 2, 'queued', 'old{id}', 1, 0, 0)"
            ),
        );
    };
    add("01");
    let system = at(&url);
    let replica = system.replica().await.unwrap();
    add("02");
    let waits = queue(&system, &replica, "a", 3).await;
    assert_eq!(
        server.query(&url, "SELECT max(version) FROM system_migrations"),
        version,
        "it refuses higher ones"
    );
    // How the previous version ends jobs without a live owner.
    let ended = "WITH ended AS (UPDATE system_jobs j SET state = 'failed', ended_at = 1 WHERE j.ended_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM system_replicas r WHERE r.id = j.owner AND r.expires_at > clock_timestamp())
        RETURNING 1) SELECT count(*) FROM ended";
    assert_eq!(server.query(&url, ended), "0");
    assert_eq!(find(&system, &waits).await, Some(waits.clone()));
    assert_eq!(
        look_for_lost(&system).await,
        crate::jobs::LostJobs::default()
    );
    let claimed = claim(&system, &replica, 9, 9).await;
    assert_eq!(
        claimed.iter().map(|job| &job.row.id).collect::<Vec<_>>(),
        [&waits.id],
        "theirs have no call"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_replica_claims_nothing_after_its_lease() {
    let server = Server::shared();
    let url = server.database();
    let (frozen, other) = (at(&url), at(&url));
    let (here, there) = (
        frozen.replica().await.unwrap(),
        other.replica().await.unwrap(),
    );
    queue(&frozen, &here, "a", 1).await;
    let id = here.id();
    server.sql(
        &url,
        &format!("UPDATE system_replicas SET expires_at = clock_timestamp() WHERE id = '{id}'"),
    );
    assert!(
        frozen
            .claim_jobs(wish(id, &["label"], 9, 9))
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(claim(&other, &there, 9, 9).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_for_jobs_reads_an_index_only() {
    let server = Server::shared();
    let url = server.database();
    let system = at(&url);
    let replica = system.replica().await.unwrap();
    server.sql(
        &url,
        "INSERT INTO system_jobs (id, tenant, subject, pack, version, state, owner, revision, created_at, ended_at, expires_at)
         SELECT lpad(n::text, 32, '0'), 't', 'u' || n % 50, 'a.b', 1, 'succeeded', 'gone', 1, 0, 1, 1 FROM generate_series(1, 20000) n;
         ANALYZE system_jobs",
    );
    let look = "EXPLAIN (COSTS OFF) SELECT EXISTS (SELECT 1 FROM system_jobs WHERE owner = 'queue' AND ended_at IS NULL)";
    let plan = server.query(&url, look);
    assert!(
        plan.contains("Index") && !plan.contains("Seq Scan"),
        "{plan}"
    );
    assert!(claim(&system, &replica, 9, 9).await.is_empty());
}
