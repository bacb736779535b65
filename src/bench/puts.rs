//! Sealed SQLite puts of 8 writers, against raw rusqlite with the same durability.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use helmdeck_core::SystemClock;
use helmdeck_memory::{KeyRing, Kind, Namespace, Put, Store};

use crate::calls::{KEY, runtime};
use crate::measure::{Table, median};

const WRITERS: usize = 8;
const EACH: usize = 500;
const VALUE: usize = 1024;
const PAIRS: usize = 7;

pub(crate) fn puts(table: &mut Table) {
    for (kind, level) in [(Kind::Cache, "NORMAL"), (Kind::Note, "FULL")] {
        let (mut sealed, mut alone, mut grouped) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            sealed.push(sealed_puts(kind));
            alone.push(raw_puts(level, 1));
            grouped.push(raw_puts(level, WRITERS));
        }
        let [sealed, alone, grouped] =
            [sealed, alone, grouped].map(|rates| median(rates.into_iter()));
        table.add(
            &format!("sealed SQLite put, 8 writers, {level}"),
            format!("{sealed:.0}/s"),
            "",
            true,
        );
        let share = sealed / alone * 100.0;
        table.add(
            "  of raw rusqlite, 8 threads, a commit each",
            format!("{share:.0} % of {alone:.0}/s"),
            ">= 70 %",
            share >= 70.0,
        );
        let share = sealed / grouped * 100.0;
        table.add(
            "  of raw rusqlite, one thread, 8 rows a commit",
            format!("{share:.0} % of {grouped:.0}/s"),
            "",
            true,
        );
    }
}

fn sealed_puts(kind: Kind) -> f64 {
    let (folder, runtime) = (tempfile::tempdir().unwrap(), runtime());
    runtime.block_on(async {
        let url = format!("sqlite:{}", folder.path().join("memory.db").display());
        let keyring = KeyRing::parse(("KEY", KEY), None).unwrap();
        let clock = Arc::new(SystemClock::default());
        let store: Arc<dyn Store> =
            helmdeck_memory::open(&url, keyring, helmdeck_memory::Config::default(), clock)
                .await
                .unwrap();
        let started = Instant::now();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    let namespace = Namespace::new("local", "local", None);
                    for n in 0..EACH {
                        let put = Put::new(
                            namespace.clone(),
                            kind,
                            format!("bench/{writer}/{n}"),
                            vec![7; VALUE],
                        );
                        store.put(put).await.unwrap();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        let rate = (WRITERS * EACH) as f64 / started.elapsed().as_secs_f64();
        store.close().await.unwrap();
        rate
    })
}

/// Writes the same rows with plain SQLite into a table of the same shape.
///
/// It uses one connection, as SQLite has one writer, and commits every `group` rows.
fn raw_puts(level: &str, group: usize) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let connection = rusqlite::Connection::open(folder.path().join("raw.db")).unwrap();
    connection
        .pragma_update(None, "journal_mode", "WAL")
        .unwrap();
    connection
        .pragma_update(None, "synchronous", level)
        .unwrap();
    connection
        .execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, tenant TEXT, subject TEXT, kind TEXT, key TEXT, value BLOB, at INTEGER, UNIQUE (tenant, subject, kind, key))")
        .unwrap();
    let connection = Mutex::new(connection);
    let insert = |from: usize, writer: usize, count: usize| {
        let connection = connection.lock().unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut statement = connection
            .prepare_cached("INSERT INTO t (tenant, subject, kind, key, value, at) VALUES ('local', 'local', 'cache', ?1, ?2, ?3) ON CONFLICT (tenant, subject, kind, key) DO UPDATE SET value = ?2, at = ?3")
            .unwrap();
        for n in from..from + count {
            statement
                .execute((
                    format!("bench/{writer}/{n}"),
                    vec![7_u8; VALUE],
                    i64::try_from(n).unwrap(),
                ))
                .unwrap();
        }
        drop(statement);
        connection.execute_batch("COMMIT").unwrap();
    };
    let started = Instant::now();
    if group == 1 {
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let insert = &insert;
                scope.spawn(move || (0..EACH).for_each(|n| insert(n, writer, 1)));
            }
        });
    } else {
        (0..WRITERS * EACH / group).for_each(|n| insert(n * group, 0, group));
    }
    (WRITERS * EACH) as f64 / started.elapsed().as_secs_f64()
}
