//! Tests with a real PostgreSQL: the suite, several stores on one database, tampering.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use helmdeck_core::SystemClock;
use helmdeck_testkit::{Postgres as Server, until};

use super::{KEY_A, KEY_B, alice, get, id, put, ring};
use crate::drivers::postgres::Postgres;
use crate::open::{exists, open_clear};
use crate::{
    Config, Delete, DriverStore, Kind, Limits, Namespace, Op, Order, Put, Reach, Result, Store,
    StoreError, conformance, open,
};

pub(super) async fn open_at(url: &str) -> Result<Arc<dyn Store>> {
    open_with(url, Config::default()).await
}

pub(super) async fn open_with(url: &str, config: Config) -> Result<Arc<dyn Store>> {
    open(
        url,
        ring(KEY_A, None),
        config,
        Arc::new(SystemClock::default()),
    )
    .await
}

/// Schemas of one database, one after the other: what a URL can say.
pub(super) struct Schemas {
    pub(super) server: Arc<Server>,
    pub(super) url: String,
    count: AtomicU32,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let server = Server::shared();
        Self {
            url: server.database(),
            server,
            count: AtomicU32::new(0),
        }
    }

    pub(super) fn next(&self) -> String {
        let name = format!("case{}", self.count.fetch_add(1, Ordering::SeqCst));
        self.server.sql(&self.url, &format!("CREATE SCHEMA {name}"));
        format!("{}?options=-csearch_path%3D{name}", self.url)
    }
}

// What a seal keeps from the driver: values as they are, and their sizes. All else is the same with
// one.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_plain_keeps_values_and_limits() {
    let schemas = Schemas::new();
    conformance::run_of(
        &["entries", "hostile", "limits", "restores"],
        |config, clock| {
            let url = schemas.next();
            Box::pin(async move {
                let driver = Postgres::open(&url, &config).await.unwrap();
                Arc::new(DriverStore::plain(driver, &config, clock)) as Arc<dyn Store>
            })
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_sealed_conforms() {
    let schemas = Schemas::new();
    conformance::run(|config, clock| {
        let url = schemas.next();
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
async fn postgres_changes_its_key() {
    let server = Server::shared();
    let urls: Vec<String> = (0..4).map(|_| server.database()).collect();
    conformance::rotation::run(|number, ring, clock| {
        let url = urls[number as usize].clone();
        Box::pin(async move {
            let config = Config::default();
            let driver = Postgres::open(&url, &config).await?;
            Ok(
                Arc::new(DriverStore::sealed(driver, ring, &config, clock).await?)
                    as Arc<dyn Store>,
            )
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_may_start_at_once_on_an_empty_database() {
    let server = Server::shared();
    let url = server.database();
    let starting: Vec<_> = (0..8)
        .map(|index| {
            let url = url.clone();
            tokio::spawn(async move {
                let store = open_at(&url).await.unwrap();
                store.put(put(&index.to_string(), "v")).await.unwrap();
                store
            })
        })
        .collect();
    let mut stores = Vec::new();
    for one in starting {
        stores.push(one.await.unwrap());
    }
    assert_eq!(stores[0].stats().await.unwrap().rows, 8);
    assert_eq!(
        server.query(&url, "SELECT count(*) FROM memory_migrations"),
        "3"
    );
    assert_eq!(
        server.query(&url, "SELECT count(*) FROM memory_spaces"),
        "1"
    );
}

#[tokio::test]
async fn foreign_and_newer_tables_are_refused_unchanged() {
    let server = Server::shared();
    let url = server.database();
    server.sql(
        &url,
        "CREATE TABLE memory_entries (x int); CREATE TABLE other (x int)",
    );
    let error = open_at(&url).await.err().unwrap();
    assert!(
        matches!(&error, StoreError::Corrupt(why) if why == "the table memory_entries is one of another program"),
        "{error}"
    );
    assert_eq!(
        server.query(
            &url,
            "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'memory%'"
        ),
        "1"
    );
    server.sql(&url, "DROP TABLE memory_entries");
    open_at(&url).await.unwrap().close().await.unwrap();
    server.sql(&url, "INSERT INTO memory_migrations VALUES (7, 'later', 0)");
    let error = open_at(&url).await.err().unwrap();
    assert!(
        matches!(&error, StoreError::Corrupt(why) if why.contains("newer version (schema 7)")),
        "{error}"
    );
}

#[tokio::test]
async fn unusable_database_is_a_bad_url() {
    let server = Server::shared();
    let url = server.database();
    let refused = async |url: &str| match open_at(url).await.err().unwrap() {
        StoreError::BadUrl(why) => why,
        other => panic!("{other}"),
    };
    assert!(
        refused(&format!("{url}?options=-csearch_path%3Dnowhere"))
            .await
            .contains("search_path")
    );
    assert!(
        refused(&format!("{url}x"))
            .await
            .contains("does not exist (3D000)")
    );
    let latin = format!("latin{}", std::process::id());
    server.sql(
        &url,
        &format!("CREATE DATABASE {latin} TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'"),
    );
    let (all, _) = url.rsplit_once('/').unwrap();
    assert!(refused(&format!("{all}/{latin}")).await.contains("LATIN1"));
    server.sql(&url, &format!("DROP DATABASE {latin} WITH (FORCE)"));
    let user = format!("nobody{}", std::process::id());
    server.sql(
        &url,
        &format!("CREATE ROLE {user} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC"),
    );
    let (_, host) = url.split_once('@').unwrap();
    assert!(
        refused(&format!("postgres://{user}@{host}"))
            .await
            .contains("permission denied")
    );
    server.sql(&url, &format!("DROP ROLE {user}"));
    let large = Config {
        limits: Limits {
            key_bytes: 4096,
            ..Limits::default()
        },
        ..Config::default()
    };
    assert!(matches!(
        open_with(&url, large).await,
        Err(StoreError::BadUrl(_))
    ));
}

#[tokio::test]
async fn looking_makes_nothing() {
    let server = Server::shared();
    let url = server.database();
    let (config, clock) = (Config::default(), Arc::new(SystemClock::default()));
    assert!(!exists(&url, &config).await.unwrap());
    assert!(
        open_clear(&url, &config, clock.clone())
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(
        server.query(
            &url,
            "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'memory%'"
        ),
        "0"
    );
    open_at(&url)
        .await
        .unwrap()
        .put(put("k", "v"))
        .await
        .unwrap();
    assert!(exists(&url, &config).await.unwrap());
    let clear = open_clear(&url, &config, clock).await.unwrap().unwrap();
    assert_eq!(clear.stats().await.unwrap().rows, 1);
    assert!(
        matches!(get(&clear, "k").await, Err(StoreError::Unreadable { .. })),
        "without a key nothing opens"
    );
}

#[tokio::test]
async fn another_key_is_one_clear_error() {
    let server = Server::shared();
    let url = server.database();
    let clock = || Arc::new(SystemClock::default());
    // Without rows the next key is taken, here and back again.
    open_at(&url).await.unwrap().close().await.unwrap();
    open(&url, ring(KEY_B, None), Config::default(), clock())
        .await
        .unwrap()
        .close()
        .await
        .unwrap();
    let store = open_at(&url).await.unwrap();
    store.put(put("k", "v")).await.unwrap();
    store.close().await.unwrap();
    let error = open(&url, ring(KEY_B, None), Config::default(), clock())
        .await
        .err()
        .unwrap();
    assert!(
        matches!(&error, StoreError::WrongKey { store, given } if *store == id(KEY_A) && *given == id(KEY_B))
    );
}

#[tokio::test]
async fn postgres_rows_are_sealed_and_tamper_proof() {
    const MARKER: &str = "the canary sings at dawn";
    let server = Server::shared();
    let changes = [
        "UPDATE memory_entries SET key = 'other'",
        "UPDATE memory_spaces SET subject = 'bob'",
        "UPDATE memory_entries SET category = 'x'",
        "UPDATE memory_entries SET tags = '{x}'",
        "UPDATE memory_entries SET tags = '{NULL,x}'",
        "UPDATE memory_entries SET attributes = '{\"a\":\"b\"}'",
        "UPDATE memory_entries SET attributes = 'no json'",
        "UPDATE memory_entries SET version = 2",
        "UPDATE memory_entries SET version = -1",
        "UPDATE memory_entries SET created_at = created_at - 1",
        "UPDATE memory_entries SET expires_at = 9000000000000000",
        "UPDATE memory_entries SET fingerprint = 'x'",
        "UPDATE memory_entries SET key_id = ''",
        "UPDATE memory_entries SET value_nonce = ''",
        "UPDATE memory_entries SET value_ciphertext = set_byte(value_ciphertext, 3, get_byte(value_ciphertext, 3) # 1)",
        "UPDATE memory_entries SET value_ciphertext = ''",
    ];
    let url = server.database();
    let store = open_at(&url).await.unwrap();
    for change in changes {
        let attributes = [("pack".to_owned(), "p".to_owned())].into();
        store
            .put(Put {
                tags: vec!["t".into()],
                attributes,
                ..put("k", MARKER)
            })
            .await
            .unwrap();
        assert_eq!(get(&store, "k").await.unwrap().unwrap().value, MARKER);
        assert!(!server.dump(&url).contains(MARKER));
        server.sql(&url, change);
        let (subject, key) = if change.contains("bob") {
            ("bob", "k")
        } else {
            ("alice", "k")
        };
        let key = if change.contains("'other'") {
            "other"
        } else {
            key
        };
        let read = store
            .get(&Namespace::new("t", subject, None), Kind::Cache, key)
            .await;
        assert!(
            matches!(read, Err(StoreError::Unreadable { .. })),
            "{change}: {read:?}"
        );
        let all = Delete::Prefix {
            namespace: None,
            kind: None,
            prefix: String::new(),
        };
        assert_eq!(
            store.delete(all).await.unwrap(),
            1,
            "{change}: forgetting works all the same"
        );
    }
    assert_eq!(
        server.query(&url, "SELECT count(*) FROM memory_spaces"),
        "0"
    );
    assert_eq!(server.query(&url, "SELECT count(*) FROM memory_keys"), "0");
    assert_eq!(server.query(&url, "SELECT count(*) FROM memory_tags"), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn compare_and_set_is_exact_among_eight_stores() {
    const STORES: u64 = 8;
    const TIMES: u64 = 100;
    let server = Server::shared();
    let url = server.database();
    let mut counting = Vec::new();
    for _ in 0..STORES {
        let store = open_at(&url).await.unwrap();
        counting.push(tokio::spawn(async move {
            for _ in 0..TIMES {
                loop {
                    let now = get(&store, "n").await.unwrap();
                    let (version, number) = now.map_or((0, 0), |entry| {
                        (
                            entry.meta.version,
                            std::str::from_utf8(&entry.value)
                                .unwrap()
                                .parse::<u64>()
                                .unwrap(),
                        )
                    });
                    let next = Put {
                        expect_version: Some(version),
                        ..put("n", &(number + 1).to_string())
                    };
                    match store.put(next).await {
                        Ok(_) => break,
                        Err(StoreError::VersionMismatch { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        }));
    }
    for one in counting {
        one.await.unwrap();
    }
    let store = open_at(&url).await.unwrap();
    let entry = get(&store, "n").await.unwrap().unwrap();
    assert_eq!(entry.value, (STORES * TIMES).to_string());
    assert_eq!(entry.meta.version, STORES * TIMES);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_exact_among_four_stores() {
    let server = Server::shared();
    let url = server.database();
    let mut filling = Vec::new();
    for store in 0..4 {
        let limits = Limits {
            rows: 100,
            ..Limits::default()
        };
        let opened = open_with(
            &url,
            Config {
                limits,
                ..Config::default()
            },
        )
        .await
        .unwrap();
        filling.push(tokio::spawn(async move {
            let mut written = 0;
            for index in 0..60 {
                let key = format!("{store}/{index}");
                match opened.put(Put::new(alice(), Kind::Note, key, "v")).await {
                    Ok(_) => written += 1,
                    Err(StoreError::QuotaExceeded {
                        what: "rows",
                        limit: 100,
                    }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            written
        }));
    }
    let mut written = 0;
    for one in filling {
        written += one.await.unwrap();
    }
    assert_eq!(written, 100);
    let stats = open_at(&url).await.unwrap().stats().await.unwrap();
    assert_eq!(stats.rows, 100);
    assert_eq!(stats.rows_by_key_id[&id(KEY_A)], 100);
}

/// The counters, and the counted rows.
pub(super) async fn counted(server: &Server, url: &str) -> (String, String) {
    (
        server.query(
            url,
            "SELECT (SELECT coalesce(sum(rows), 0) FROM memory_spaces), (SELECT coalesce(sum(bytes), 0) FROM memory_spaces),
                    (SELECT coalesce(sum(rows), 0) FROM memory_keys), (SELECT count(*) FROM memory_tags),
                    (SELECT count(*) FROM memory_spaces)",
        ),
        server.query(
            url,
            "SELECT count(*), coalesce(sum(cost), 0), count(*), coalesce(sum(cardinality(tags)), 0), count(DISTINCT space_id)
               FROM memory_entries",
        ),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn three_busy_stores_keep_counters_exact() {
    let server = Server::shared();
    let url = server.database();
    let mut working = Vec::new();
    for number in 0..3_u64 {
        let limits = Limits {
            cache_bytes: 60_000,
            rows: 40,
            ..Limits::default()
        };
        let store = open_with(
            &url,
            Config {
                limits,
                ..Config::default()
            },
        )
        .await
        .unwrap();
        for task in 0..4_u64 {
            let store = Arc::clone(&store);
            working.push(tokio::spawn(async move {
                for round in 0..60_u64 {
                    let dice = (number * 31 + task * 17 + round * 7) % 23;
                    let whose = Namespace::new("t", &format!("user{}", dice % 5), None);
                    let tags = (0..dice % 3).map(|tag| format!("tag{tag}")).collect();
                    let ttl = (dice % 4 == 0).then_some(Duration::from_millis(dice));
                    let key = format!("{}", (task + round) % 50);
                    let value = "v".repeat(usize::try_from(dice).unwrap() * 40);
                    let new = Put {
                        tags,
                        ttl,
                        ..Put::new(whose.clone(), Kind::Cache, key.clone(), value)
                    };
                    let deleted = match dice {
                        0 => {
                            store
                                .delete(Delete::Tagged {
                                    whose: Reach::Everybody,
                                    kind: Kind::Cache,
                                    tag: "tag1".into(),
                                })
                                .await
                        }
                        1 => {
                            store
                                .delete(Delete::Prefix {
                                    namespace: Some(whose),
                                    kind: None,
                                    prefix: "1".into(),
                                })
                                .await
                        }
                        2 => {
                            store
                                .delete(Delete::Key {
                                    namespace: whose,
                                    kind: Kind::Cache,
                                    key,
                                })
                                .await
                        }
                        3 => store.sweep_expired(10).await,
                        4 => store.trim(5).await,
                        5 => {
                            let old = Put {
                                key: format!("x{key}"),
                                ..new.clone()
                            };
                            store
                                .write(vec![Op::Put(old), Op::Put(new)])
                                .await
                                .map(|_| 0)
                        }
                        _ => store.put(new).await.map(|_| 0),
                    };
                    deleted.unwrap();
                }
            }));
        }
    }
    for one in working {
        one.await.unwrap();
    }
    let (counters, truth) = counted(&server, &url).await;
    assert_eq!(counters, truth);
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_is_exclusive_and_freed_with_its_store() {
    let server = Server::shared();
    let url = server.database();
    let (one, two) = (open_at(&url).await.unwrap(), open_at(&url).await.unwrap());
    let hour = Duration::from_secs(3600);
    let lock = one.try_lock("flight", hour).await.unwrap().unwrap();
    assert!(two.try_lock("flight", hour).await.unwrap().is_none());
    assert!(
        one.try_lock("flight", hour).await.unwrap().is_none(),
        "another owner in the same process"
    );
    assert!(two.try_lock("other", hour).await.unwrap().is_some());
    assert!(lock.renew(hour).await.unwrap());
    lock.release().await.unwrap();
    let held = two.try_lock("flight", hour).await.unwrap().unwrap();
    assert!(one.try_lock("flight", hour).await.unwrap().is_none());
    // As if the process had ended: the lock is not given back.
    std::mem::forget(held);
    two.close().await.unwrap();
    drop(two);
    until("a lock without an owner", async || {
        one.try_lock("flight", hour).await.unwrap().is_some()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_futures_harms_nothing() {
    let server = Server::shared();
    let url = server.database();
    let store = open_at(&url).await.unwrap();
    store.put(put("k", "v")).await.unwrap();
    let namespace = alice();
    for round in 0..500 {
        let mut asking: Vec<std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>>> = vec![
            Box::pin(async { drop(store.get(&namespace, Kind::Cache, "k").await) }),
            Box::pin(async {
                drop(
                    store
                        .scan(&namespace, Kind::Cache, "", crate::Order::KeyAscending, 9)
                        .await,
                )
            }),
            Box::pin(async {
                drop(
                    store
                        .list(&namespace, Kind::Cache, "", crate::Page::default())
                        .await,
                )
            }),
            Box::pin(async { drop(store.reseal(None, 10).await) }),
            Box::pin(async { drop(store.put(put("dropped", "v")).await) }),
        ];
        // Each a little further than the one before.
        let patience = Duration::from_micros(round * 5);
        drop(tokio::time::timeout(patience, futures_util::future::join_all(&mut asking)).await);
    }
    for _ in 0..20 {
        assert_eq!(get(&store, "k").await.unwrap().unwrap().value, "v");
    }
    store.put(put("after", "v")).await.unwrap();
    let idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'";
    // The last of those that were dropped may be on its way to its end.
    until("the end of every transaction", async || {
        server.query(&url, idle) == "0"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_without_hands_are_migrated_with_their_rows() {
    let server = Server::shared();
    let url = server.database();
    let limits = Limits {
        rows: 3,
        ..Limits::default()
    };
    let config = Config {
        limits,
        ..Config::default()
    };
    let store = open_with(&url, config.clone()).await.unwrap();
    for key in ["a", "b", "c"] {
        store.put(put(key, "v")).await.unwrap();
    }
    store.close().await.unwrap();
    server.sql(
        &url,
        "DROP TABLE memory_hands; ALTER TABLE memory_entries DROP COLUMN spared_until;
         DELETE FROM memory_migrations WHERE version = 3",
    );
    let store = open_with(&url, config).await.unwrap();
    assert!(get(&store, "a").await.unwrap().is_some());
    store.put(put("d", "v")).await.unwrap();
    let scan = store
        .scan(&alice(), Kind::Cache, "", Order::KeyAscending, 10)
        .await
        .unwrap();
    let keys: Vec<_> = scan
        .entries
        .iter()
        .map(|entry| entry.meta.key.as_str())
        .collect();
    assert_eq!(keys, ["a", "c", "d"], "a is older than b, but was read");
    store.close().await.unwrap();
}
