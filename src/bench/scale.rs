//! Sealed SQLite with a million rows: speed against a thousand rows, and the store limit.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use helmdeck_core::{Clock, ManualClock};
use helmdeck_memory::janitor::Work;
use helmdeck_memory::{
    Config, JanitorConfig, KeyRing, Kind, Limits, Namespace, Op, Page, Put, Store,
};

use crate::calls::{KEY, runtime};
use crate::measure::{Table, percentile, resident_mib};

const MILLION: usize = 1_000_000;
const BATCH: usize = 64;
const MIB: f64 = 1_048_576.0;

/// Runs the selected parts.
pub(crate) fn scale(table: &mut Table, wants: impl Fn(&str) -> bool) {
    if wants("get") {
        runtime().block_on(reads(table));
    }
    if wants("sweep") {
        runtime().block_on(sweep(table));
    }
    for (part, what, rows, size, shape) in [
        (
            "cap-even",
            "1,000,000 keys, 100 B values, 8 namespaces alike",
            MILLION,
            100,
            Shape::Even,
        ),
        (
            "cap-8",
            "1,000,000 keys, 100 B values, one of 8 writes on alone",
            MILLION,
            100,
            Shape::OneGoesOn(8),
        ),
        (
            "cap-2",
            "1,000,000 keys, 100 B values, one of 2 writes on alone",
            MILLION,
            100,
            Shape::OneGoesOn(2),
        ),
        (
            "cap-large",
            "250,000 keys, 4 KiB values, 8 namespaces alike",
            MILLION / 4,
            4096,
            Shape::Even,
        ),
    ] {
        if wants(part) {
            runtime().block_on(cap(table, what, rows, size, shape));
        }
    }
}

/// Pattern of writers.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// All writers in turn.
    Even,
    /// This many writers in turn until the cap is nearly reached, then one alone.
    ///
    /// The pages of the others are then full of holes.
    OneGoesOn(usize),
}

pub(crate) async fn open(
    path: &Path,
    cache_bytes: u64,
    clock: &Arc<ManualClock>,
) -> Arc<dyn Store> {
    let limits = Limits {
        cache_bytes,
        rows: u64::MAX,
        bytes: u64::MAX,
        ..Limits::default()
    };
    let ring = KeyRing::parse(("KEY", KEY), None).unwrap();
    let url = format!("sqlite:{}", path.display());
    let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
    helmdeck_memory::open(
        &url,
        ring,
        Config {
            limits,
            ..Config::default()
        },
        clock,
    )
    .await
    .unwrap()
}

/// A row as the cache of packs writes it: ten of them share a pack.
pub(crate) fn row(namespace: &Namespace, n: usize, size: usize) -> Put {
    let digest = |salt: usize| {
        let word = (n as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(salt as u64)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9);
        format!(
            "{word:016x}{:016x}{:016x}{:016x}",
            word.rotate_left(17) ^ 1,
            word.rotate_left(31) ^ 2,
            !word
        )
    };
    let mut put = Put::new(namespace.clone(), Kind::Cache, key(n), vec![7; size]);
    put.category = "issues".to_owned();
    put.tags = vec![format!("repo:owner/project-{}", n % 5000)];
    put.attributes = [
        ("pack", "github.list_issues".to_owned()),
        ("version", "1".to_owned()),
        ("scope", "caller".to_owned()),
        ("contract", digest(1)),
        ("credentials", digest(2)),
        ("input", digest(3)),
        ("fresh_until", "1700000000000000".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    put.ttl = Some(Duration::from_secs(86_400));
    put
}

pub(crate) fn key(n: usize) -> String {
    let word = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!(
        "pack.{:06}/v1/{word:016x}{:016x}{:016x}{:016x}",
        n / 10,
        word.rotate_left(13),
        !word,
        word ^ 5
    )
}

fn alice() -> Namespace {
    Namespace::new("local", "alice", None)
}

/// Writes rows in batches, four at a time; `each` is called after each, with its number.
pub(crate) async fn fill(
    store: &Arc<dyn Store>,
    range: std::ops::Range<usize>,
    put: impl Fn(usize) -> Put,
    mut each: impl FnMut(usize),
) {
    let mut batches = range.step_by(BATCH).map(|from| {
        (from..from + BATCH)
            .map(|n| Op::Put(put(n)))
            .collect::<Vec<_>>()
    });
    let mut running = tokio::task::JoinSet::new();
    let mut done = 0;
    loop {
        while running.len() < 4
            && let Some(batch) = batches.next()
        {
            let store = Arc::clone(store);
            running.spawn(async move { store.write(batch).await.unwrap() });
        }
        if running.join_next().await.is_none() {
            return;
        }
        done += 1;
        each(done);
    }
}

/// Pseudorandom number from the previous one.
fn next(seed: &mut usize) -> usize {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

async fn reads(table: &mut Table) {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let small = open(&folder.path().join("small.db"), u64::MAX, &clock).await;
    let large = open(&folder.path().join("large.db"), u64::MAX, &clock).await;
    let alice = alice();
    fill(&small, 0..1024, |n| row(&alice, n, 100), |_| ()).await;
    let started = Instant::now();
    fill(
        &large,
        0..MILLION,
        |n| row(&alice, n, 100),
        |_| clock.advance(Duration::from_millis(1)),
    )
    .await;
    let rate = MILLION as f64 / started.elapsed().as_secs_f64();
    table.add(
        "sealed rows written, batches of 64",
        format!("{rate:.0}/s"),
        "",
        true,
    );

    let (mut gets, mut seed) = ([Vec::new(), Vec::new()], 1);
    for round in 0..66 {
        for (store, rows, times) in [(&small, 1000, 0), (&large, MILLION, 1)] {
            for _ in 0..250 {
                let key = key(next(&mut seed) % rows);
                let started = Instant::now();
                assert!(
                    store
                        .get(&alice, Kind::Cache, &key)
                        .await
                        .unwrap()
                        .is_some()
                );
                // The first rounds warm up.
                if round >= 6 {
                    gets[times].push(started.elapsed());
                }
            }
        }
    }
    let [few, many] = gets.each_mut().map(|times| percentile(times, 50.0));
    let ratio = many.as_secs_f64() / few.as_secs_f64();
    let figure = format!(
        "{:.1} us / {:.1} us = {ratio:.2}",
        micros(many),
        micros(few)
    );
    table.add(
        "get p50, 1,000,000 rows / 1,000 rows",
        figure,
        "<= 1.5",
        ratio <= 1.5,
    );

    for (what, prefixes, limit) in [
        ("list of a prefix of 10 rows", true, 100),
        ("list of the newest 100 of 1,000,000", false, 100),
    ] {
        let mut times = Vec::new();
        for _ in 0..1000 {
            let prefix = if prefixes {
                format!("pack.{:06}/", next(&mut seed) % (MILLION / 10))
            } else {
                String::new()
            };
            let started = Instant::now();
            let page = large
                .list(&alice, Kind::Cache, &prefix, Page { limit, after: None })
                .await
                .unwrap();
            times.push(started.elapsed());
            assert_eq!(page.entries.len(), if prefixes { 10 } else { 100 });
        }
        let (p50, p99) = (percentile(&mut times, 50.0), percentile(&mut times, 99.0));
        let figure = format!("p50 {:.0} us, p99 {:.0} us", micros(p50), micros(p99));
        table.add(what, figure, "p99 < 1 ms", p99 < Duration::from_millis(1));
    }
    let started = Instant::now();
    let page = large
        .list(
            &alice,
            Kind::Cache,
            "pack.0",
            Page {
                limit: 100,
                after: None,
            },
        )
        .await
        .unwrap();
    assert_eq!(page.entries.len(), 100);
    table.add(
        "list of a prefix of every row",
        format!("{:.0} us", micros(started.elapsed())),
        "",
        true,
    );
    small.close().await.unwrap();
    large.close().await.unwrap();
}

async fn sweep(table: &mut Table) {
    const HALF: usize = MILLION / 2;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.db");
    let clock = Arc::new(ManualClock::default());
    let store = open(&path, u64::MAX, &clock).await;
    let alice = alice();
    // Every second row ends: no page goes as a whole, so that all the new rows have to go where the
    // old ones were.
    let ttl = |n: usize| {
        Some(Duration::from_secs(if n.is_multiple_of(2) {
            60
        } else {
            86_400
        }))
    };
    fill(
        &store,
        0..MILLION,
        |n| Put {
            ttl: ttl(n),
            ..row(&alice, n, 100)
        },
        |_| (),
    )
    .await;
    clock.advance(Duration::from_secs(60));
    let before = file_mib(&path);

    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..4)
        .map(|reader| {
            let (store, stop, alice) = (Arc::clone(&store), Arc::clone(&stop), alice.clone());
            tokio::spawn(async move {
                let (mut times, mut seed) = (Vec::new(), reader);
                while !stop.load(Ordering::Relaxed) {
                    let key = key((next(&mut seed) % HALF) * 2 + 1);
                    let started = Instant::now();
                    assert!(
                        store
                            .get(&alice, Kind::Cache, &key)
                            .await
                            .unwrap()
                            .is_some()
                    );
                    times.push(started.elapsed());
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                times
            })
        })
        .collect();
    let work = Work::default();
    work.run(
        &*store,
        JanitorConfig {
            most: u64::MAX,
            ..JanitorConfig::default()
        },
    )
    .await;
    let took = work.snapshot().last_duration;
    stop.store(true, Ordering::Relaxed);
    let mut times = Vec::new();
    for reader in readers {
        times.extend(reader.await.unwrap());
    }
    assert_eq!(work.snapshot().swept, HALF as u64);
    let (p50, p99) = (percentile(&mut times, 50.0), percentile(&mut times, 99.0));
    table.add(
        "sweep of 500,000 of 1,000,000 rows",
        format!("{:.1} s", took.as_secs_f64()),
        "",
        true,
    );
    let figure = format!(
        "p50 {:.0} us, p99 {:.0} us of {}",
        micros(p50),
        micros(p99),
        times.len()
    );
    table.add(
        "  reads of 4 readers meanwhile",
        figure,
        "p99 < 5 ms",
        p99 < Duration::from_millis(5),
    );

    // The rest is freed while no one writes.
    let (mut after, mut same) = (file_mib(&path), 0);
    while same < 30 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = file_mib(&path);
        same = if (now - after).abs() < 0.1 {
            same + 1
        } else {
            0
        };
        after = now;
    }
    fill(
        &store,
        MILLION..MILLION + HALF,
        |n| row(&alice, n, 100),
        |_| (),
    )
    .await;
    store.close().await.unwrap();
    let again = file_mib(&path);
    let figure = format!("{before:.0} -> {after:.0} -> {again:.0} MiB");
    table.add(
        "  file before, after, with 500,000 new rows",
        figure,
        "grows < 10 %",
        again < before * 1.1,
    );
}

async fn cap(table: &mut Table, what: &str, rows: usize, size: usize, shape: Shape) {
    const CAP: u64 = 64 << 20;
    const MOST: f64 = 64.0 * 1.1;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.db");
    let clock = Arc::new(ManualClock::default());
    let store = open(&path, CAP, &clock).await;
    let resident = resident_mib(std::process::id());
    let namespaces: Vec<_> = (0..8)
        .map(|n| Namespace::new("local", &format!("user-{n}"), None))
        .collect();
    // About what fits when everything is counted.
    let fits = (CAP as usize / (size + 1100)) / BATCH * BATCH;
    let put = |n: usize| {
        let namespace = match shape {
            Shape::Even => n % namespaces.len(),
            Shape::OneGoesOn(of) if n < fits => n % of,
            Shape::OneGoesOn(_) => 0,
        };
        row(&namespaces[namespace], n, size)
    };
    let (mut largest, mut most_resident) = (0.0_f64, 0.0_f64);
    let started = Instant::now();
    let each = |batch: usize| {
        clock.advance(Duration::from_millis(1));
        if !batch.is_multiple_of(64) {
            return;
        }
        largest = largest.max(file_mib(&path));
        most_resident = most_resident.max(resident_mib(std::process::id()) - resident);
    };
    fill(&store, 0..rows, put, each).await;
    let rate = rows as f64 / started.elapsed().as_secs_f64();
    let stats = store.stats().await.unwrap();
    let kept = format!(
        "{} rows, {:.1} MiB counted, {rate:.0} rows/s",
        stats.rows,
        stats.bytes as f64 / MIB
    );
    table.add(&format!("cap of 64 MiB: {what}"), kept, "", true);
    table.add(
        "  largest file with its log",
        format!("{largest:.1} MiB"),
        "<= 70.4 MiB",
        largest <= MOST,
    );
    let met = most_resident <= MOST;
    table.add(
        "  process memory, growth",
        format!("{most_resident:.1} MiB"),
        "<= 70.4 MiB",
        met,
    );
    store.close().await.unwrap();
}

fn file_mib(path: &Path) -> f64 {
    let log = format!("{}-wal", path.display());
    let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    (bytes(path) + bytes(Path::new(&log))) as f64 / MIB
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
