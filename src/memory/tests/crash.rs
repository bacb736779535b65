//! Several processes on one file, and processes killed while they write.
//!
//! The test binary runs itself as the writer.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{get, open_at, put};
use crate::Store;
use std::sync::Arc;

/// Environment variable that makes the test binary a writer.
///
/// It holds the path, the name of the writer, and the number of writes.
const ROLE: &str = "HELMDECK_TEST_WRITER";

fn writer(path: &Path, name: &str, count: u32) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::crash::the_writing_process", "--nocapture"])
        .env(ROLE, format!("{}\n{name}\n{count}", path.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Main function of a writer process, not a test. Writes with 4 callers at once.
///
/// Prints `acknowledged <key>` after each put.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "the child learns its role from its environment")]
async fn the_writing_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let [path, name, count] = role.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let count: u32 = count.parse().unwrap();
    let store = open_at(Path::new(path)).await.unwrap();
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let (store, name) = (Arc::clone(&store), name.to_owned());
            tokio::spawn(async move {
                for index in (caller..count).step_by(4) {
                    let key = format!("{name}/{index}");
                    // A write that can be lost gives up early if one process keeps the lock; on a busy machine one may.
                    while let Err(error) = store.put(put(&key, &value(&key))).await {
                        assert_eq!(error.trouble(), "locked", "{error}");
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    // One write call, so that a kill never leaves half a line that looks whole.
                    let mut out = std::io::stdout();
                    let told = out.write_all(format!("acknowledged {key}\n").as_bytes()).and_then(|()| out.flush());
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
        assert_eq!(entry.unwrap_or_else(|| panic!("{key} was acknowledged and is lost")).value, value(key));
    }
}

/// Number of writes of each of eight processes.
const WRITES: u32 = 300;

#[tokio::test(flavor = "multi_thread")]
async fn eight_processes_lose_no_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.db");
    let children: Vec<_> = (0..8).map(|index| writer(&path, &index.to_string(), WRITES)).collect();
    for child in children {
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success());
        let told = String::from_utf8(done.stdout).unwrap();
        assert_eq!(told.lines().filter(|line| line.contains("acknowledged ")).count(), WRITES as usize);
    }
    let store = open_at(&path).await.unwrap();
    assert_eq!(store.stats().await.unwrap().rows, 8 * u64::from(WRITES));
    let keys: Vec<_> = (0..8).flat_map(|name| (0..WRITES).map(move |index| format!("{name}/{index}"))).collect();
    all_there(&store, &keys).await;
    assert_eq!(integrity(&path), "ok");
}

fn integrity(path: &Path) -> String {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
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
        // Killed after a different number of writes each time, at whatever point of the next group that is.
        let until = 1 + (round * 37) % 97;
        while acknowledged.len() < until as usize {
            let line = lines.next().unwrap().unwrap();
            acknowledged.extend(line.split_once("acknowledged ").map(|(_, key)| key.to_owned()));
        }
        std::thread::sleep(Duration::from_micros(u64::from(round * 131 % 1000)));
        child.kill().unwrap();
        child.wait().unwrap();
        // Output from before the kill counts too; the last line may be cut.
        for line in lines.map_while(Result::ok) {
            acknowledged.extend(line.split_once("acknowledged ").map(|(_, key)| key.to_owned()));
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
