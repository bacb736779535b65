//! Several processes on one file, and processes killed while they write.
//!
//! The test binary runs itself as the writer.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{get, open_at, put};
use crate::{Delete, Op, Store};
use std::sync::Arc;

/// Environment variable that makes the test binary a writer.
///
/// It holds the path, the name of the writer, and the number of writes.
const ROLE: &str = "HELMDECK_TEST_WRITER";

fn writer(path: &Path, name: &str, count: u32) -> Child {
    process(
        "the_writing_process",
        &format!("{}\n{name}\n{count}", path.display()),
    )
}

fn process(main: &str, role: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("tests::crash::{main}"), "--nocapture"])
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Main function of a writer process, not a test. Writes with 4 callers at once.
///
/// Prints `acknowledged <key>` after each put.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(
    clippy::disallowed_methods,
    reason = "the child learns its role from its environment"
)]
async fn the_writing_process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let [path, name, count] = role.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let count: u32 = count.parse().unwrap();
    let store = open_at(Path::new(path)).await.unwrap();
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let (store, name) = (Arc::clone(&store), name.to_owned());
            tokio::spawn(async move {
                for index in (caller..count).step_by(4) {
                    let key = format!("{name}/{index}");
                    // A write that can be lost gives up early if one process keeps the lock; on a
                    // busy machine one may.
                    while let Err(error) = store.put(put(&key, &value(&key))).await {
                        assert_eq!(error.trouble(), "locked", "{error}");
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    // One write call, so that a kill never leaves half a line that looks whole.
                    let mut out = std::io::stdout();
                    let told = out
                        .write_all(format!("acknowledged {key}\n").as_bytes())
                        .and_then(|()| out.flush());
                    if told.is_err() {
                        return;
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    store.close().await.unwrap();
}

fn value(key: &str) -> String {
    format!("{key}:{}", "v".repeat(1000))
}

async fn all_there(store: &Arc<dyn Store>, keys: &[String]) {
    for key in keys {
        let entry = get(store, key).await.unwrap();
        assert_eq!(
            entry
                .unwrap_or_else(|| panic!("{key} was acknowledged and is lost"))
                .value,
            value(key)
        );
    }
}

/// Number of writes of each of eight processes.
const WRITES: u32 = 300;

#[tokio::test(flavor = "multi_thread")]
async fn eight_processes_lose_no_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.db");
    let children: Vec<_> = (0..8)
        .map(|index| writer(&path, &index.to_string(), WRITES))
        .collect();
    for child in children {
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success());
        let told = String::from_utf8(done.stdout).unwrap();
        assert_eq!(
            told.lines()
                .filter(|line| line.contains("acknowledged "))
                .count(),
            WRITES as usize
        );
    }
    let store = open_at(&path).await.unwrap();
    assert_eq!(store.stats().await.unwrap().rows, 8 * u64::from(WRITES));
    let keys: Vec<_> = (0..8)
        .flat_map(|name| (0..WRITES).map(move |index| format!("{name}/{index}")))
        .collect();
    all_there(&store, &keys).await;
    assert_eq!(integrity(&path), "ok");
}

fn integrity(path: &Path) -> String {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap()
}

/// How often the writer is killed.
const KILLS: u32 = 30;

#[tokio::test(flavor = "multi_thread")]
async fn kills_lose_no_acknowledged_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.db");
    let mut total = 0;
    for round in 0..KILLS {
        let mut child = writer(&path, &format!("r{round}"), u32::MAX);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = Vec::new();
        // Killed after a different number of writes each time, at whatever point of the next group
        // that is.
        let until = 1 + (round * 37) % 97;
        while acknowledged.len() < until as usize {
            let line = lines.next().unwrap().unwrap();
            acknowledged.extend(
                line.split_once("acknowledged ")
                    .map(|(_, key)| key.to_owned()),
            );
        }
        std::thread::sleep(Duration::from_micros(u64::from(round * 131 % 1000)));
        child.kill().unwrap();
        child.wait().unwrap();
        // Output from before the kill counts too; the last line may be cut.
        for line in lines.map_while(Result::ok) {
            acknowledged.extend(
                line.split_once("acknowledged ")
                    .map(|(_, key)| key.to_owned()),
            );
        }
        let store = open_at(&path).await.unwrap();
        all_there(&store, &acknowledged).await;
        total += acknowledged.len();
        if round % 10 == 0 {
            store.close().await.unwrap();
        }
    }
    assert_eq!(integrity(&path), "ok");
    println!("{KILLS} kills, {total} acknowledged writes, all there");
}

/// Rows that a purge removes, and rows that it leaves.
const GONE: usize = 2000;
const KEPT: usize = 100;

/// Main function of a process that purges most of a file, and is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(
    clippy::disallowed_methods,
    reason = "the child learns its role from its environment"
)]
async fn the_purging_process() {
    let Ok(path) = std::env::var(ROLE) else {
        return;
    };
    let store = open_at(Path::new(&path)).await.unwrap();
    for (prefix, count) in [("gone", GONE), ("kept", KEPT)] {
        let keys = (0..count)
            .map(|index| format!("{prefix}{index}"))
            .collect::<Vec<_>>();
        for keys in keys.chunks(250) {
            let puts = keys
                .iter()
                .map(|key| Op::Put(put(key, &value(key).repeat(4))));
            store.write(puts.collect()).await.unwrap();
        }
    }
    let gone = Delete::Prefix {
        namespace: None,
        kind: None,
        prefix: "gone".into(),
    };
    assert_eq!(store.delete(gone).await.unwrap(), GONE as u64);
    let mut out = std::io::stdout();
    out.write_all(b"purged\n")
        .and_then(|()| out.flush())
        .unwrap();
    // Shrinks the file meanwhile, until it is killed.
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_purge_still_shrinks_the_file() {
    for in_the_middle in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.db");
        let mut child = process("the_purging_process", &path.display().to_string());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while !lines.next().unwrap().unwrap().ends_with("purged") {}
        let free = || {
            let db = rusqlite::Connection::open_with_flags(
                &path,
                rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY,
            )
            .unwrap();
            db.query_row("PRAGMA freelist_count", [], |row| row.get::<_, i64>(0))
                .unwrap()
        };
        let before = free();
        assert!(before > 1000, "{before} free pages");
        if in_the_middle {
            helmdeck_testkit::until("a step", async || free() < before).await;
        }
        child.kill().unwrap();
        child.wait().unwrap();

        let store = open_at(&path).await.unwrap();
        // As the janitor does at the start of a server.
        assert_eq!(store.sweep_expired(10).await.unwrap(), 0);
        // About 1 MiB is in use, and 1 MiB is spare.
        let is_small = async || std::fs::metadata(&path).unwrap().len() < 3 << 20;
        helmdeck_testkit::until("a smaller file", is_small).await;
        for index in 0..KEPT {
            let key = format!("kept{index}");
            assert_eq!(
                get(&store, &key).await.unwrap().unwrap().value,
                value(&key).repeat(4)
            );
        }
        assert_eq!(store.stats().await.unwrap().rows, KEPT as u64);
        store.close().await.unwrap();
        assert_eq!(integrity(&path), "ok");
    }
}
