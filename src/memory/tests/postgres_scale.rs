//! Tests of PostgreSQL at scale: behind a pooler, in partitions, and with many namespaces.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_testkit::{PgBouncer, Postgres as Server};

use super::postgres::{Schemas, counted, open_at, open_with};
use super::{KEY_A, get, put, ring};
use crate::drivers::postgres::Postgres;
use crate::{
    Config, Delete, DriverStore, Kind, Listen, Namespace, PostgresConfig, Put, Reach, Store,
    StoreError, conformance,
};

#[tokio::test(flavor = "multi_thread")]
async fn postgres_conforms_behind_a_transaction_pooler() {
    let schemas = Schemas::new();
    let pooler = PgBouncer::start(&schemas.server);
    conformance::run(|config, clock| {
        let url = schemas
            .next()
            .replace(&schemas.url, &pooler.url(&schemas.url));
        Box::pin(async move {
            let driver = Postgres::open(&url, &config).await.unwrap();
            Arc::new(
                DriverStore::sealed(driver, ring(KEY_A, None), &config, clock)
                    .await
                    .unwrap(),
            ) as Arc<dyn Store>
        })
    })
    .await;
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%LISTEN%'";
    assert_eq!(
        schemas.server.query(&schemas.url, sessions).trim(),
        "1",
        "only this query names it"
    );
    let refused = open_with(&pooler.url(&schemas.url), listening(Listen::On))
        .await
        .err()
        .unwrap();
    assert!(
        matches!(&refused, StoreError::BadUrl(why) if why.contains("memory.listen")),
        "{refused}"
    );
}

fn listening(listen: Listen) -> Config {
    Config {
        postgres: PostgresConfig {
            listen,
            ..PostgresConfig::default()
        },
        ..Config::default()
    }
}

// As for a pooler that hides itself.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_can_be_left_without_state() {
    let server = Server::shared();
    let url = server.database();
    let store = open_with(&url, listening(Listen::Off)).await.unwrap();
    store.put(put("k", "v")).await.unwrap();
    assert_eq!(get(&store, "k").await.unwrap().unwrap().value, "v");
    let stateful = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(server.query(&url, stateful), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_has_three_connections_at_most() {
    let server = Server::shared();
    let url = server.database();
    let store = open_at(&url).await.unwrap();
    let busy = (0..64).map(|index| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let key = index.to_string();
            store.put(put(&key, "v")).await.unwrap();
            assert_eq!(get(&store, &key).await.unwrap().unwrap().value, "v");
        })
    });
    for one in busy.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    let connections = "SELECT count(*) FROM pg_stat_activity
                        WHERE datname = current_database() AND application_name = 'helmdeck'";
    let count: u32 = server.query(&url, connections).parse().unwrap();
    assert!((2..=3).contains(&count), "{count}");
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_of_all_namespaces_waits_for_one_space_only() {
    let server = Server::shared();
    let url = server.database();
    let store = open_at(&url).await.unwrap();
    let whose = |user: u32| Namespace::new("t", &format!("user{user}"), None);
    let tagged = |user, tag: &str| Put {
        tags: vec![tag.into()],
        ..Put::new(whose(user), Kind::Cache, "k", "v")
    };
    for user in 0..200 {
        store
            .put(tagged(user, if user % 2 == 0 { "x" } else { "y" }))
            .await
            .unwrap();
    }
    // A stranger holds the last of the spaces that are purged.
    let (client, line) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(line);
    let hold = "BEGIN; SELECT * FROM memory_spaces WHERE subject = 'user198' FOR UPDATE";
    client.batch_execute(hold).await.unwrap();
    let purge = Delete::Tagged {
        whose: Reach::Everybody,
        kind: Kind::Cache,
        tag: "x".into(),
    };
    let purging = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.delete(purge).await }
    });
    while server.query(&url, "SELECT count(*) FROM pg_locks WHERE NOT granted") == "0" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Other spaces are free for writers, also those that the purge has been to.
    for user in [0, 1, 199] {
        store.put(tagged(user, "y")).await.unwrap();
    }
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(purging.await.unwrap().unwrap(), 100);
    assert_eq!(store.stats().await.unwrap().rows, 101);
    let (counters, truth) = counted(&server, &url).await;
    assert_eq!(counters, truth);
}

/// What operators run to split the table of entries.
pub(super) const PARTITION: &str = include_str!("../../../contrib/postgres/partition.sql");

#[tokio::test(flavor = "multi_thread")]
async fn postgres_conforms_in_64_partitions() {
    let server = Server::shared();
    let url = server.database();
    open_at(&url).await.unwrap().close().await.unwrap();
    server.sql(&url, &format!("BEGIN; {PARTITION}; COMMIT"));
    let parts = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'memory_entries'::regclass";
    assert_eq!(server.query(&url, parts), "64");
    conformance::run(|config, clock| {
        // A new store takes the time of 64 tables; an empty one will do.
        let tables = ["entries", "spaces", "tags", "keys", "canary", "locks"];
        server.sql(
            &url,
            &tables
                .map(|table| format!("DELETE FROM memory_{table};"))
                .concat(),
        );
        let url = url.clone();
        Box::pin(async move {
            let driver = Postgres::open(&url, &config).await.unwrap();
            Arc::new(
                DriverStore::sealed(driver, ring(KEY_A, None), &config, clock)
                    .await
                    .unwrap(),
            ) as Arc<dyn Store>
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_partitioned_under_a_running_store() {
    let server = Server::shared();
    let url = server.database();
    let store = open_at(&url).await.unwrap();
    for index in 0..50 {
        let whose = Namespace::new("t", &format!("user{index}"), None);
        store
            .put(Put {
                tags: vec!["x".into()],
                ..Put::new(whose, Kind::Note, "k", "v")
            })
            .await
            .unwrap();
    }
    server.sql(&url, &format!("BEGIN; {PARTITION}; COMMIT"));
    for index in 0..50 {
        let whose = Namespace::new("t", &format!("user{index}"), None);
        let entry = store.get(&whose, Kind::Note, "k").await.unwrap().unwrap();
        assert_eq!((entry.value.as_ref(), entry.meta.version), (&b"v"[..], 1));
        store
            .put(Put::new(whose.clone(), Kind::Note, "k", "w"))
            .await
            .unwrap();
        store
            .put(Put {
                tags: vec!["x".into()],
                ..Put::new(whose, Kind::Note, "new", "v")
            })
            .await
            .unwrap();
    }
    let tagged = Delete::Tagged {
        whose: Reach::Everybody,
        kind: Kind::Note,
        tag: "x".into(),
    };
    assert_eq!(
        store.delete(tagged).await.unwrap(),
        50,
        "the replacements have no tag"
    );
    let (counters, truth) = counted(&server, &url).await;
    assert_eq!(counters, truth);
}
