//! What a call cannot cost less than: the primitives that it is made of, alone, in the same run.

use std::hint::black_box;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use helmdeck_memory::{KeyRing, Namespace};
use serde_json::Value;

use crate::calls::{INPUT, KEY, runtime};
use crate::measure::{ROUNDS, Table, median, process_cpu, thread_cpu};
use crate::rest;

const COUNT: usize = 2000;
const BYTES: usize = 4096;

pub(crate) fn floors(table: &mut Table) {
    cipher(table);
    json(table);
    sqlite(table);
    threads(table);
    read_by_another_thread(table);
    start(table);
    sockets(table);
}

/// Returns the processor time of this thread per run, in microseconds.
fn each(mut run: impl FnMut()) -> f64 {
    let rounds = (0..=ROUNDS).map(|_| {
        let before = thread_cpu();
        for _ in 0..COUNT {
            run();
        }
        (thread_cpu() - before).as_secs_f64() * 1e6 / COUNT as f64
    });
    median(rounds.collect::<Vec<_>>().into_iter().skip(1))
}

fn add(table: &mut Table, what: &str, micros: f64) {
    table.add(what, format!("{micros:.2} us CPU"), "", true);
}

fn cipher(table: &mut Table) {
    let (ring, namespace) = (
        KeyRing::parse(("KEY", KEY), None).unwrap(),
        Namespace::new("local", "local", None),
    );
    let sealed = ring
        .seal_blob(&namespace, "bench", b"bound", &[7; BYTES])
        .unwrap();
    let open = each(|| {
        drop(black_box(
            ring.open_blob(&namespace, "bench", b"bound", &sealed)
                .unwrap(),
        ))
    });
    add(table, "floor: 4 KiB opened, with its derived key", open);
    let seal = each(|| {
        drop(black_box(
            ring.seal_blob(&namespace, "bench", b"bound", &[7; BYTES])
                .unwrap(),
        ))
    });
    add(table, "floor: 4 KiB sealed, with its derived key", seal);
}

fn json(table: &mut Table) {
    let issue = |n: usize| serde_json::json!({"number": n, "title": format!("Issue number {n}"), "body": "x".repeat(150)});
    let text = serde_json::json!({"issues": (0..19).map(issue).collect::<Vec<_>>()}).to_string();
    let value = each(|| drop(black_box(serde_json::from_str::<Value>(&text).unwrap())));
    add(table, "floor: 4 KiB of JSON read into a value", value);
    let skipped = each(|| {
        black_box(serde_json::from_str::<serde::de::IgnoredAny>(&text).unwrap());
    });
    add(table, "floor: 4 KiB of JSON read and dropped", skipped);
    let input = each(|| drop(black_box(serde_json::from_str::<Value>(INPUT).unwrap())));
    add(table, "floor: the input of a call read into a value", input);
}

fn sqlite(table: &mut Table) {
    let folder = tempfile::tempdir().unwrap();
    let connection = rusqlite::Connection::open(folder.path().join("raw.db")).unwrap();
    connection
        .pragma_update(None, "journal_mode", "WAL")
        .unwrap();
    connection
        .pragma_update(None, "synchronous", "NORMAL")
        .unwrap();
    connection
        .execute_batch("CREATE TABLE t (key TEXT PRIMARY KEY, value BLOB)")
        .unwrap();
    let mut put = connection
        .prepare("INSERT OR REPLACE INTO t VALUES (?1, ?2)")
        .unwrap();
    put.execute(("key", vec![7_u8; BYTES])).unwrap();
    let mut get = connection
        .prepare("SELECT value FROM t WHERE key = ?1")
        .unwrap();
    let read = each(|| {
        drop(black_box(
            get.query_row(["key"], |row| row.get::<_, Vec<u8>>(0))
                .unwrap(),
        ))
    });
    add(table, "floor: 4 KiB read from SQLite by key", read);
    let value = vec![7_u8; BYTES];
    let write = each(|| {
        put.execute(("key", &value)).unwrap();
    });
    add(
        table,
        "floor: 4 KiB written to SQLite, a commit (NORMAL)",
        write,
    );
}

/// A question to another thread and its answer, which blocking work costs.
fn threads(table: &mut Table) {
    let (ask, asked) = mpsc::channel::<mpsc::Sender<()>>();
    let answering = thread::spawn(move || {
        for answer in asked {
            answer.send(()).unwrap();
        }
    });
    let (cpu, wall) = time_per_run(|| {
        let (reply, answer) = mpsc::channel();
        ask.send(reply).unwrap();
        answer.recv().unwrap();
    });
    drop(ask);
    answering.join().unwrap();
    table.add(
        "floor: a question to another thread",
        format!("{cpu:.2} us CPU, {wall:.2} us"),
        "",
        true,
    );
}

/// Reads, opening and parsing together, asked of another thread: a hit from sealed SQLite, and a
/// context of 50 turns.
fn read_by_another_thread(table: &mut Table) {
    const TURN: &str = concat!(
        r#"{"UserMessage":"","AssistantResponse":"","TrajectoryDigest":null,"ArtifactsShown":null,"#,
        r#""ArtifactsHiddenRefs":null,"Timestamp":"2026-01-02T03:04:05Z"}"#
    );
    let text = "x".repeat(400);
    let turn = TURN.replacen(r#"e":"""#, &format!(r#"e":"{text}""#), 2);
    for (what, rows, value) in [
        (
            "floor: 4 KiB read from SQLite and opened, by another thread",
            1,
            vec![b'x'; BYTES],
        ),
        (
            "floor: 50 turns read from SQLite, opened and parsed, by another thread",
            50,
            turn.into_bytes(),
        ),
    ] {
        let parsed = rows > 1;
        let (ask, asked) = mpsc::channel::<mpsc::Sender<usize>>();
        let reading = thread::spawn(move || {
            let (ring, namespace) = (
                KeyRing::parse(("KEY", KEY), None).unwrap(),
                Namespace::new("local", "local", None),
            );
            let folder = tempfile::tempdir().unwrap();
            let connection = rusqlite::Connection::open(folder.path().join("raw.db")).unwrap();
            connection
                .execute_batch(
                    "PRAGMA journal_mode = WAL; CREATE TABLE t (key TEXT PRIMARY KEY, value BLOB)",
                )
                .unwrap();
            for row in 0..rows {
                let sealed = ring
                    .seal_blob(&namespace, "bench", b"bound", &value)
                    .unwrap();
                connection
                    .execute(
                        "INSERT INTO t VALUES (?1, ?2)",
                        (format!("{row:03}"), sealed),
                    )
                    .unwrap();
            }
            let mut get = connection
                .prepare("SELECT value FROM t WHERE key >= ?1 ORDER BY key")
                .unwrap();
            for answer in asked {
                let mut found = get.query(["000"]).unwrap();
                let mut read = 0;
                while let Some(row) = found.next().unwrap() {
                    let sealed = row.get_ref(0).unwrap().as_blob().unwrap();
                    let opened = ring
                        .open_blob(&namespace, "bench", b"bound", sealed)
                        .unwrap();
                    read += opened.len();
                    if parsed {
                        black_box(helmdeck_conversation::wire::read_turn(&opened).unwrap());
                    }
                }
                answer.send(read).unwrap();
            }
        });
        let (cpu, wall) = time_per_run(|| {
            let (reply, answer) = mpsc::channel();
            ask.send(reply).unwrap();
            black_box(answer.recv().unwrap());
        });
        drop(ask);
        reading.join().unwrap();
        table.add(what, format!("{cpu:.2} us CPU, {wall:.2} us"), "", true);
    }
}

/// Returns the processor time of all threads and the time by the clock per run, in microseconds.
fn time_per_run(mut run: impl FnMut()) -> (f64, f64) {
    let mut rounds = Vec::new();
    for round in 0..=ROUNDS {
        let (cpu, wall) = (process_cpu(), Instant::now());
        for _ in 0..COUNT {
            run();
        }
        if round > 0 {
            let count = COUNT as f64;
            rounds.push((
                (process_cpu() - cpu).as_secs_f64() * 1e6 / count,
                wall.elapsed().as_secs_f64() * 1e6 / count,
            ));
        }
    }
    (
        median(rounds.iter().map(|(cpu, _)| *cpu)),
        median(rounds.iter().map(|(_, wall)| *wall)),
    )
}

/// Starts of a small program, and of this one, which is as large as helmdeck, when it does nothing.
fn start(table: &mut Table) {
    let this = std::env::current_exe().unwrap();
    let mut all = [Vec::new(), Vec::new()];
    for _ in 0..100 {
        for (times, (program, words)) in all.iter_mut().zip([
            (std::path::Path::new("/bin/true"), None),
            (&*this, Some(["path", "--list"])),
        ]) {
            let mut command = Command::new(program);
            command
                .args(words.into_iter().flatten())
                .env_clear()
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            let started = Instant::now();
            assert!(command.status().unwrap().success());
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
    }
    let [small, large] = all.map(|times| median(times.into_iter()));
    let size = this.metadata().unwrap().len() as f64 / 1e6;
    let what = format!("floor: start of a program of {size:.0} MB that does nothing");
    table.add(
        &what,
        format!("{large:.2} ms, {:.1} x /bin/true", large / small),
        "",
        true,
    );
}

/// The same bytes over the same connections, from a server that only counts them: what the kernel
/// and the load cost.
fn sockets(table: &mut Table) {
    let runtime = runtime();
    let request = rest::rest_request("127.0.0.1:65535");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4096\r\n\r\n";
    let mut answer = head.as_bytes().to_vec();
    answer.write_all(&[b'x'; BYTES]).unwrap();
    let address = runtime.block_on(rest::echo(request.len(), answer));
    let rates = (0..rest::PAIRS).map(|_| {
        let before = process_cpu();
        let rate = rest::rate(&address, &request, rest::CONNECTIONS);
        (
            rate,
            (process_cpu() - before).as_secs_f64() * 1e6 / (rate * rest::SECONDS as f64),
        )
    });
    let rates: Vec<(f64, f64)> = rates.collect();
    let (rate, cpu) = (
        median(rates.iter().map(|(rate, _)| *rate)),
        median(rates.iter().map(|(_, cpu)| *cpu)),
    );
    table.add(
        "floor: the same bytes without HTTP",
        format!("{rate:.0}/s, {cpu:.1} us CPU each"),
        "",
        true,
    );
}
