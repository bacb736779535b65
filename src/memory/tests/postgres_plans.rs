//! Plans of every statement of the driver: what they touch must not grow with the rows of the
//! store.
//!
//! The server explains each statement as it runs it, with its real parameters (`auto_explain`).
//! Rows come from SQL.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{ManualClock, Timestamp};
use helmdeck_testkit::{Postgres as Server, StatementRecorder};

use super::postgres_scale::PARTITION;
use super::{KEY_A, KEY_B, ring};
use crate::drivers::postgres::Postgres;
use crate::{
    Config, Delete, DriverStore, Kind, Limits, Namespace, Op, Order, Page, PostgresConfig, Put,
    Reach, Store,
};

/// Buffers of a statement in a large store, at most this many times those in a small one, ...
const TIMES: u64 = 2;
/// ... and so many more: a few indexes, each up to three levels deeper.
const MORE: u64 = 24;

/// Statements that grow with something, and with what. Their beginning, without spaces at the ends.
const GROWING: &[(&str, &str)] = &[
    (
        "SELECT id, tenant, subject, session, kind, rows, bytes FROM memory_spaces",
        "all namespaces: totals of the operator",
    ),
    (
        "SELECT kind, sum(rows)",
        "all namespaces: totals, once a minute on the elected server",
    ),
    (
        "SELECT key_id, sum(rows)",
        "all namespaces: totals, once a minute on the elected server",
    ),
    (
        "SELECT id, bytes, sum(bytes) OVER",
        "namespaces of kind cache: an eviction, once in 4 MiB of answers",
    ),
    (
        "SELECT s.id, EXISTS (",
        "a page of 4,096 namespaces: a purge for everybody",
    ),
    (
        "SELECT coalesce(max(id), 0)",
        "nothing, but the first statement of a session reads the catalogue",
    ),
];

/// Statements that look into every partition of the rows, and why. Their beginning.
const EVERY_PARTITION: &[(&str, &str)] = &[
    (
        "SELECT c.space_id, c.key, s.id IS NOT NULL FROM",
        "a sweep takes what has ended from any space",
    ),
    (
        "SELECT s.kind, e.key_id, count(*)",
        "the same, counted for a look",
    ),
    ("SELECT space_id, key_id, count(*)", "the same"),
    (
        "SELECT space_id, key, octet_length(value_ciphertext)",
        "a rotation goes through all rows",
    ),
    (
        "SELECT sum(pg_total_relation_size",
        "the size of all partitions",
    ),
    (
        "WITH gone AS (DELETE FROM memory_entries e USING (SELECT key FROM",
        "a full space takes from what has ended, by time",
    ),
];

/// Rows of the small store of the quick test, and of its large one.
const QUICK: [u64; 2] = [1_000, 100_000];
/// Rows of the stores of the whole measurement.
const WHOLE: [u64; 4] = [10_000, 100_000, 1_000_000, 10_000_000];

/// Ends what the server does in its background with each table: after it, every statement reads the
/// catalogue again.
const NO_AUTOVACUUM: &str = "DO $$ DECLARE name regclass; BEGIN
    FOR name IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
        EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = false, toast.autovacuum_enabled = false)', name);
    END LOOP;
END $$";

/// The time of the rows.
const NOW: i64 = 1_700_000_000_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn statements_touch_as_much_in_a_large_store() {
    let server = Server::shared();
    let [small, large] = [
        measure(&server, QUICK[0], "").await,
        measure(&server, QUICK[1], "").await,
    ];
    let missed: Vec<&String> = small
        .keys()
        .filter(|sql| !large.contains_key(*sql))
        .collect();
    assert!(
        missed.is_empty(),
        "both stores run the same statements: {missed:?}"
    );
    assert!(
        small.len() >= 35,
        "the driver has more statements: {}",
        small.len()
    );
    check(&small, &large, &[GROWING]);
    // A namespace is in one of the partitions: the other 63 are not looked at.
    let partitioned = measure(&server, QUICK[1], PARTITION).await;
    check(&small, &partitioned, &[GROWING, EVERY_PARTITION]);
}

// Minutes, and gigabytes of disk: `scripts/plans.sh` runs it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; scripts/plans.sh runs it"]
async fn statements_touch_as_much_in_ten_million_rows() {
    let server = Server::shared();
    let mut all = Vec::new();
    for rows in WHOLE {
        let of = measure(&server, rows, "").await;
        println!("{rows} rows: {of:?}");
        all.push(of);
    }
    println!(
        "| statement | {} |",
        WHOLE.map(|rows| format!("{rows} rows")).join(" | ")
    );
    println!("|---|{}", "---|".repeat(WHOLE.len()));
    for sql in all[0].keys() {
        let cells = all
            .iter()
            .map(|of| of.get(sql).map_or_else(|| "-".to_owned(), u64::to_string));
        println!(
            "| `{sql:.90}` | {} |",
            cells.collect::<Vec<_>>().join(" | ")
        );
    }
    for large in &all[1..] {
        check(&all[0], large, &[GROWING]);
    }
}

/// Compares the buffers of each statement, except of those that may grow.
fn check(small: &BTreeMap<String, u64>, large: &BTreeMap<String, u64>, but: &[&[(&str, &str)]]) {
    let grows = |sql: &str| {
        but.iter()
            .copied()
            .flatten()
            .any(|(begin, _)| sql.starts_with(begin))
    };
    let worse: Vec<String> = large
        .iter()
        .filter_map(|(sql, buffers)| Some((sql, *buffers, *small.get(sql)?)))
        .filter(|(sql, buffers, before)| *buffers > TIMES * before + MORE && !grows(sql))
        .map(|(sql, buffers, before)| format!("{before} -> {buffers} buffers: {sql}"))
        .collect();
    assert!(
        worse.is_empty(),
        "statements grow with the rows:\n{}",
        worse.join("\n")
    );
}

/// Fills a database and runs every statement of the driver in it, after some SQL. Returns the most
/// buffers of each.
async fn measure(server: &Server, rows: u64, first: &str) -> BTreeMap<String, u64> {
    let url = server.database();
    let config = Config {
        limits: Limits {
            cache_bytes: u64::MAX,
            rows: u64::MAX,
            bytes: u64::MAX,
            ..Limits::default()
        },
        // Nothing runs beside the workload, and all of it in one session: each session reads the
        // catalogue first.
        postgres: PostgresConfig {
            watch_interval: Duration::from_secs(3600),
            pool_size: 1,
            ..PostgresConfig::default()
        },
        ..Config::default()
    };
    let driver = Postgres::open(&url, &config).await.unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(NOW)));
    let store = DriverStore::sealed(driver, ring(KEY_A, None), &config, Arc::clone(&clock) as _)
        .await
        .unwrap();
    store.close().await.unwrap();
    server.sql(&url, &format!("BEGIN; {first}; COMMIT"));
    server.sql(&url, NO_AUTOVACUUM);
    for sql in fill(rows) {
        server.sql(&url, &sql);
    }
    let recorder = StatementRecorder::start(server);
    StatementRecorder::explain(server, &url);
    for warm in [true, false] {
        // A database explains statements of new sessions only. The first statement of a session
        // reads the catalogue.
        let driver = Postgres::open(&recorder.url(&url), &config).await.unwrap();
        let ring = if warm {
            ring(KEY_A, None)
        } else {
            ring(KEY_B, Some(KEY_A))
        };
        let store = DriverStore::sealed(driver, ring, &config, Arc::clone(&clock) as _)
            .await
            .unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        run(&store, &clock, "warm").await;
        let _ = recorder.take_plans();
        run(&store, &clock, "measured").await;
        if warm {
            // The first row of all, for the new key.
            store
                .put(Put::new(large(), Kind::Cache, "a", "v"))
                .await
                .unwrap();
        } else {
            assert_eq!(store.reseal(None, 16).await.unwrap().rows, 1);
            store.adopt_key().await.unwrap();
        }
        store.close().await.unwrap();
        small_quota(&recorder.url(&url), &config, &clock, rows / 5).await;
    }
    let mut most = BTreeMap::new();
    for plan in recorder.take_plans() {
        // It names the process, and has no plan of tables.
        if plan.sql.starts_with("LISTEN") {
            continue;
        }
        let text = plan.sql.split_whitespace().collect::<Vec<_>>().join(" ");
        let buffers: &mut u64 = most.entry(text).or_default();
        *buffers = plan.buffers.max(*buffers);
    }
    server.sql(
        &server.url(),
        &format!(
            "DROP DATABASE {} WITH (FORCE)",
            url.rsplit_once('/').unwrap().1
        ),
    );
    most
}

/// Statements that make a store of so many rows: a fifth of them in one namespace, the others 100
/// in each.
///
/// Each tenth row ends in time; no row has ended. Values are not sealed: the driver does not mind.
fn fill(rows: u64) -> Vec<String> {
    let (large, small) = (rows / 5, (rows * 4 / 5).div_ceil(100));
    let columns = "space_id, key, version, created_at, updated_at, expires_at, key_id, fingerprint, category, tags, \
                   attributes, cost, value_nonce, value_ciphertext";
    let row = format!(
        "convert_to('pack.' || (n / 10) || '/' || lpad(n::text, 9, '0'), 'UTF8'), 1, {NOW} - n, {NOW} - n,
         CASE WHEN n % 10 = 0 THEN {NOW} + 1000000000 + n END, '', '', '', ARRAY[convert_to('tag' || (n / 10), 'UTF8')],
         '{{}}', 500, '\\x00', convert_to(repeat('v', 100), 'UTF8')"
    );
    vec![
        format!(
            "INSERT INTO memory_spaces (tenant, subject, kind, rows, bytes) VALUES ('t', 'large', 'cache', {large}, {large} * 500);
             INSERT INTO memory_spaces (tenant, subject, kind, rows, bytes)
             SELECT 't', convert_to('user' || n, 'UTF8'), 'note', 100, 50000 FROM generate_series(1, {small}) n"
        ),
        format!(
            "INSERT INTO memory_entries ({columns})
             SELECT (SELECT id FROM memory_spaces WHERE subject = 'large'), {row} FROM generate_series(1, {large}) n"
        ),
        format!(
            "INSERT INTO memory_entries ({columns})
             SELECT s.id, {row} FROM memory_spaces s, generate_series(1, 100) n WHERE s.kind = 'note'"
        ),
        "INSERT INTO memory_tags SELECT e.space_id, e.tags[1], e.id FROM memory_entries e".to_owned(),
        "INSERT INTO memory_keys SELECT id, '', rows FROM memory_spaces".to_owned(),
        // Nothing was deleted for long: what a replica reads is a part of the outbox only.
        "INSERT INTO memory_changes (origin, payload) SELECT 1, '[]' FROM generate_series(1, 1000)".to_owned(),
        "VACUUM ANALYZE".to_owned(),
    ]
}

fn large() -> Namespace {
    Namespace::new("t", "large", None)
}

/// Runs the operations of a store; `name` makes the rows different from those of another run.
async fn run(store: &Arc<dyn Store>, clock: &ManualClock, name: &str) {
    let new = |key: &str| Put {
        tags: vec![name.to_owned()],
        ..Put::new(large(), Kind::Cache, key, "v")
    };
    let (own, key) = (format!("own/{name}/"), format!("own/{name}/1"));
    // Rows that are new, replaced, both at once, and deleted.
    store.put(new(&key)).await.unwrap();
    store.put(new(&key)).await.unwrap();
    store
        .write(vec![Op::Put(new(&key)), Op::Put(new(&format!("{own}2")))])
        .await
        .unwrap();
    store
        .put(Put {
            ttl: Some(Duration::from_secs(60)),
            ..new(&format!("{own}3"))
        })
        .await
        .unwrap();
    let by_key = |key: &str| Delete::Key {
        namespace: large(),
        kind: Kind::Cache,
        key: key.to_owned(),
    };
    store.delete(by_key(&key)).await.unwrap();
    store
        .write(vec![
            Op::Delete(by_key(&format!("{own}2"))),
            Op::Put(new(&format!("{own}4"))),
        ])
        .await
        .unwrap();
    // A namespace that comes and goes.
    let alone = Namespace::new("t", name, Some("s"));
    store
        .put(Put::new(alone.clone(), Kind::Fact, "k", "v"))
        .await
        .unwrap();
    store
        .delete(Delete::Key {
            namespace: alone,
            kind: Kind::Fact,
            key: "k".into(),
        })
        .await
        .unwrap();

    store
        .get(&large(), Kind::Cache, "pack.7/000000070")
        .await
        .unwrap_err();
    for prefix in ["", "pack.7/"] {
        store
            .list(&large(), Kind::Cache, prefix, Page::default())
            .await
            .unwrap();
    }
    for order in [
        Order::KeyAscending,
        Order::KeyDescending,
        Order::NewestFirst,
    ] {
        // The rows of this run: the others are not sealed, and the scan would look for more of
        // them.
        store
            .scan(&large(), Kind::Cache, &own, order, 10)
            .await
            .unwrap();
    }
    assert_eq!(
        store
            .scan(&large(), Kind::Cache, "", Order::NewestFirst, 1)
            .await
            .unwrap()
            .entries
            .len(),
        1
    );

    let whose = [
        Reach::One(large()),
        Reach::Caller {
            tenant: "t".into(),
            subject: "large".into(),
        },
        Reach::Everybody,
    ];
    for whose in whose {
        store.put(new(&format!("{own}5"))).await.unwrap();
        store
            .delete(Delete::Tagged {
                whose,
                kind: Kind::Cache,
                tag: name.to_owned(),
            })
            .await
            .unwrap();
    }
    for namespace in [Some(large()), None] {
        store.put(new(&format!("{own}6"))).await.unwrap();
        store
            .delete(Delete::Prefix {
                namespace,
                kind: Some(Kind::Cache),
                prefix: own.clone(),
            })
            .await
            .unwrap();
    }
    store
        .put(Put {
            ttl: Some(Duration::from_secs(1)),
            ..new(&format!("{own}7"))
        })
        .await
        .unwrap();
    clock.advance(Duration::from_secs(2));
    assert_eq!(store.sweep_expired(10).await.unwrap(), 1);
    store.trim(10).await.unwrap();
    let mark = store.walk(None, 10).await.unwrap().next;
    store.walk(mark, 10).await.unwrap();
    let lock = store
        .try_lock(name, Duration::from_secs(60))
        .await
        .unwrap()
        .unwrap();
    lock.release().await.unwrap();
    store.generation().await.unwrap();
    store.redact_changes(name).await.unwrap();
    store.stats().await.unwrap();
    store.namespaces().await.unwrap();
    store.namespaces_of("t", "few").await.unwrap();
}

/// Fills a small and a large namespace beyond their quotas: the driver makes room.
async fn small_quota(url: &str, config: &Config, clock: &Arc<ManualClock>, large_rows: u64) {
    let open = async |rows: u64| {
        let config = Config {
            limits: Limits {
                rows,
                cache_bytes: u64::MAX,
                ..Limits::default()
            },
            ..config.clone()
        };
        let driver = Postgres::open(url, &config).await.unwrap();
        let store: Arc<dyn Store> =
            Arc::new(DriverStore::plain(driver, &config, Arc::clone(clock) as _));
        store
    };
    let store = open(3).await;
    for key in 0..5 {
        let put = Put::new(
            Namespace::new("t", "few", None),
            Kind::Cache,
            format!("k{key}"),
            "v",
        );
        store.put(put).await.unwrap();
    }
    store.close().await.unwrap();
    let store = open(large_rows).await;
    for key in 0..3 {
        store.note_read(&large(), "pack.7/000000070");
        store
            .put(Put::new(large(), Kind::Cache, format!("more{key}"), "v"))
            .await
            .unwrap();
        // Now there is a hand: what is read from here on is written down.
        store.note_read(&large(), "pack.6/000000060");
        store.flush_reads().await.unwrap();
    }
    store.close().await.unwrap();
}
