//! Trouble with a real SQLite file costs the cache, never the call: every answer is right, the
//! handler runs exactly once for each call that is not a hit, and caching goes on afterwards
//! without a restart.
//!
//! Each trial is run with the hot tier off, so that every call asks the store, and on.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::waiting::Looks;
use helmdeck_core::{CacheStatus, Identity};
use helmdeck_engine::CacheConfig;
use helmdeck_testkit::Fault;
use serde_json::json;

use crate::support::fixture::{Fixture, hasty, patient};
use crate::support::{OTHER_KEY, outside};

/// The hot tier's size when it is on.
const HOT: u64 = 64 << 20;

/// Ends the trouble.
type Ending = Box<dyn FnOnce()>;

/// What is expected while the trouble lasts.
#[derive(Clone, Copy, PartialEq)]
enum Breaker {
    /// It opens.
    Opens,
    /// It stays shut.
    StaysShut,
    /// Either: it depends on what SQLite still holds in memory.
    Either,
}

async fn goes_through(begin: impl Fn(&Fixture) -> Ending, breaker: Breaker, counters: &[&str]) {
    for hot_bytes in [0, HOT] {
        let fixture = Fixture::new(patient(hot_bytes)).await;
        lasts(&fixture, begin(&fixture), breaker, counters).await;
    }
}

/// Makes calls while the trouble lasts, ends it, and sees the cache recover. The calls check
/// themselves (`Fixture::call`).
async fn lasts(fixture: &Fixture, end: Ending, breaker: Breaker, counters: &[&str]) {
    for index in 0..12 {
        assert_eq!(
            fixture.call(&format!("during-{index}")).await,
            CacheStatus::Miss
        );
        fixture.call("during-0").await;
        fixture.settle().await;
    }
    let memory = fixture.engine.memory().unwrap();
    for counter in counters {
        assert!(
            fixture.metric(counter) > 0,
            "{counter}:\n{}",
            fixture.engine.metrics()
        );
    }
    if breaker != Breaker::Either {
        assert_eq!(memory.breaker_is_open(), breaker == Breaker::Opens);
    }
    assert_eq!(
        fixture.metric("helmdeck_breaker_open"),
        u64::from(memory.breaker_is_open())
    );
    assert_eq!(
        fixture.metric("helmdeck_breaker_opened_total") > 0,
        memory.breaker_is_open()
    );

    end();
    recovers(fixture).await;
}

/// Calls until answers are in the file again and are served from there.
async fn recovers(fixture: &Fixture) {
    let mut looks = Looks::default();
    for index in 0.. {
        // The breaker lets a probe through every 5 seconds.
        fixture.clock.advance(Duration::from_secs(6));
        let repo = format!("after-{index}");
        assert_eq!(fixture.call(&repo).await, CacheStatus::Miss);
        fixture.settle().await;
        let hit = fixture.holds(&repo) && fixture.call(&repo).await == CacheStatus::Hit;
        // The hot tier may have answered while a slow probe keeps the breaker open.
        if hit && !fixture.engine.memory().unwrap().breaker_is_open() {
            break;
        }
        assert!(
            !looks.are_over(),
            "caching does not work again:\n{}",
            fixture.engine.metrics()
        );
        tokio::time::sleep(looks.pause()).await;
    }
    assert_eq!(fixture.metric("helmdeck_breaker_open"), 0);
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    format!("{}{suffix}", path.display()).into()
}

/// Runs a program: what another process does to the file. (Opening and closing the file in this
/// process would drop the locks that SQLite holds on it, which is POSIX's doing and not what is
/// tried here.)
#[track_caller]
fn sh(script: &str, path: &Path) {
    let status = Command::new("sh")
        .args(["-euc", script, "sh"])
        .arg(path)
        .status()
        .unwrap();
    assert!(status.success(), "{script}");
}

fn checkpoint(path: &Path) {
    outside(path)
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
}

fn faulty(fixture: &Fixture, fault: Fault) -> Ending {
    let store = Arc::clone(&fixture.faulty);
    store.set(fault);
    Box::new(move || store.set(Fault::None))
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_that_fail() {
    goes_through(
        |fixture| faulty(fixture, Fault::Reads),
        Breaker::Opens,
        &["helmdeck_store_errors_total"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_fail() {
    let counters = [
        "helmdeck_store_errors_total",
        "helmdeck_cache_writes_dropped_total",
    ];
    goes_through(
        |fixture| faulty(fixture, Fault::Writes),
        Breaker::Opens,
        &counters,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_takes_5_seconds_for_everything() {
    let counters = [
        "helmdeck_store_errors_total",
        "helmdeck_cache_writes_dropped_total",
    ];
    for hot_bytes in [0, HOT] {
        let fixture = Fixture::new(hasty(hot_bytes)).await;
        lasts(
            &fixture,
            faulty(&fixture, Fault::Stall),
            Breaker::Opens,
            &counters,
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_another_program_holds_locked() {
    let lock = |fixture: &Fixture| -> Ending {
        let other = outside(&fixture.path);
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        Box::new(move || other.execute_batch("COMMIT").unwrap())
    };
    let counters = [
        "helmdeck_store_errors_total",
        "helmdeck_cache_writes_dropped_total",
    ];
    goes_through(lock, Breaker::Opens, &counters).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_database_still_serves_hits() {
    let fixture = Fixture::new(patient(0)).await;
    fixture.fill(&["stored"]).await;
    let other = outside(&fixture.path);
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert_eq!(fixture.call("stored").await, CacheStatus::Hit);
    other.execute_batch("COMMIT").unwrap();
}

/// A file in the place of the data folder: no user can open anything, not even root.
#[tokio::test(flavor = "multi_thread")]
async fn data_folder_disappears_and_returns() {
    let away = |fixture: &Fixture| -> Ending {
        let folder = fixture.path.parent().unwrap().to_owned();
        // Again, if the store made the folder anew in between.
        sh(
            r#"mv "$1" "$1.away"; : >"$1.file"; until { rm -rf "$1"; ln -T "$1.file" "$1"; } 2>/dev/null; do :; done"#,
            &folder,
        );
        Box::new(move || {
            sh(
                r#"until { rm -rf "$1"; mv -T "$1.away" "$1"; } 2>/dev/null; do :; done"#,
                &folder,
            )
        })
    };
    let counters = [
        "helmdeck_store_errors_total",
        "helmdeck_cache_writes_dropped_total",
    ];
    goes_through(away, Breaker::Opens, &counters).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_deleted() {
    for gone in [
        r#"rm "$1" "$1-wal" "$1-shm""#,
        r#"rm "$1""#,
        r#"rm -r "$(dirname "$1")""#,
    ] {
        for hot_bytes in [0, HOT] {
            // A watcher takes a new file for a purge by another process, and removes what it wrote
            // at that moment.
            let unwatched = CacheConfig {
                watch_interval: Duration::from_secs(3600),
                ..patient(hot_bytes)
            };
            let fixture = Fixture::new(unwatched).await;
            fixture.fill(&["before"]).await;
            sh(gone, &fixture.path);
            lasts(&fixture, Box::new(|| {}), Breaker::StaysShut, &[]).await;
            let held = (0..12).any(|index| fixture.holds(&format!("during-{index}")));
            assert!(held, "{gone}: it is made anew by a write");
        }
    }
}

/// Puts a file of another program in the place of the database.
fn replaced_by(fixture: &Fixture, make: impl Fn(&Path)) -> Ending {
    let (path, other) = (fixture.path.clone(), beside(&fixture.path, ".other"));
    make(&other);
    sh(r#"mv "$1.other" "$1""#, &path);
    Box::new(move || std::fs::remove_file(path).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_another_program_in_its_place() {
    let replace = |fixture: &Fixture| {
        replaced_by(fixture, |other| {
            outside(other)
                .execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)")
                .unwrap()
        })
    };
    goes_through(replace, Breaker::Opens, &["helmdeck_store_errors_total"]).await;
    let fixture = Fixture::new(patient(0)).await;
    drop(replace(&fixture));
    for index in 0..10 {
        fixture.call(&index.to_string()).await;
    }
    fixture.settle().await;
    let tables: Vec<String> = outside(&fixture.path)
        .prepare("SELECT name FROM sqlite_schema")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(tables, ["theirs"], "nothing is written into it");
}

#[tokio::test(flavor = "multi_thread")]
async fn store_of_another_key_is_left_alone() {
    let fixture = Fixture::new(patient(0)).await;
    fixture.fill(&["before"]).await;
    let other = beside(&fixture.path, ".other");
    let ring = helmdeck_memory::KeyRing::parse(("KEY", OTHER_KEY), None).unwrap();
    let url = format!("sqlite:{}", other.display());
    let clock = Arc::clone(&fixture.clock) as _;
    let theirs = helmdeck_memory::open(&url, ring, helmdeck_memory::Config::default(), clock)
        .await
        .unwrap();
    theirs.close().await.unwrap();
    let end = replaced_by(&fixture, |_| {});
    // Asked before the trouble ends: afterwards the file is another one.
    let rows = |fixture: &Fixture| -> i64 {
        outside(&fixture.path)
            .query_row("SELECT count(*) FROM memory_entries", [], |row| row.get(0))
            .unwrap()
    };
    // A write looks at once what file it is, a read every 200 ms.
    fixture.call("new").await;
    fixture.settle().await;
    for _ in 0..5 {
        assert_eq!(fixture.call("before").await, CacheStatus::Miss);
        fixture.settle().await;
    }
    assert_eq!(
        rows(&fixture),
        0,
        "two keys in one store would make the next start impossible to explain"
    );
    lasts(
        &fixture,
        end,
        Breaker::Opens,
        &["helmdeck_store_errors_total"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_written_over_the_database() {
    for hot_bytes in [0, HOT] {
        let fixture = Fixture::new(patient(hot_bytes)).await;
        fixture.fill(&["a", "b", "c"]).await;
        checkpoint(&fixture.path);
        sh(
            r#"head -c "$(stat -c %s "$1")" /dev/urandom | dd of="$1" conv=notrunc status=none"#,
            &fixture.path,
        );
        for repo in ["a", "b", "c"] {
            fixture.call(repo).await;
        }
        let path = fixture.path.clone();
        // What an operator does: a damaged file is taken away; nothing is restarted.
        let end = Box::new(move || std::fs::remove_file(path).unwrap());
        lasts(&fixture, end, Breaker::Either, &[]).await;
    }
}

/// A small separate file system, unmounted at the end.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    pub(crate) fn mount(path: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir_all(path).unwrap();
        let size = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(path)
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then(|| Self(path.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk() {
    for hot_bytes in [0, HOT] {
        let folder = tempfile::tempdir().unwrap();
        let Some(_disk) = SmallDisk::mount(&folder.path().join("disk"), "256k") else {
            let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
            assert!(
                !root,
                "no file system could be mounted, so a full disk was not tried"
            );
            println!("NOT TRIED: only root can mount a file system, so a full disk was not tried");
            return;
        };
        let path = folder.path().join("disk/memory.db");
        let fixture = Fixture::at(&path, patient(hot_bytes)).await.unwrap();
        let filler = path.with_file_name("filler");
        // A little room is left, so that the disk fills in the middle of things.
        let used = sizes(&path);
        std::fs::write(&filler, vec![0; 256 * 1024 - used - 100_000]).unwrap();
        for index in 0..20 {
            let input = json!({ "repo": format!("fill-{index}"), "padding": 1000 });
            assert_eq!(
                fixture.call_as(Identity::local(), input.clone()).await,
                CacheStatus::Miss
            );
            fixture.call_as(Identity::local(), input).await;
            fixture.settle().await;
        }
        let stored = (0..20)
            .filter(|index| fixture.holds(&format!("fill-{index}")))
            .count();
        println!("{stored} of 20 answers were stored before the disk was full");
        assert!(0 < stored && stored < 20, "{stored}");
        let end = Box::new(move || std::fs::remove_file(filler).unwrap());
        let counters = [
            "helmdeck_store_errors_total",
            "helmdeck_cache_writes_dropped_total",
        ];
        lasts(&fixture, end, Breaker::Opens, &counters).await;
        fixture.engine.shutdown().await;
    }
}

/// Returns the bytes of the database and its companions.
fn sizes(path: &Path) -> usize {
    let files = ["", "-wal", "-shm"].map(|suffix| beside(path, suffix));
    files
        .iter()
        .filter_map(|file| file.metadata().ok())
        .map(|file| file.len().next_multiple_of(4096) as usize)
        .sum()
}
