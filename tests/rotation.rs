//! A new memory key while a server answers and others write: nothing fails, nothing is lost,
//! however often it is killed.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use helmdeck_memory::{Kind, MemoryKey, Namespace, Op, Order, Put, Store};
use helmdeck_testkit::Postgres;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::support::program::{Home, Run, SERVE, Server};
use crate::support::{KEY as OLD, OTHER_KEY as NEW, RARELY_POLLED, outside, store_at, wait_for};

/// Rows that are there before the rotation.
const ROWS: usize = 5_000;
/// Rows that a process whose current key is the old one writes meanwhile.
const LATE: usize = 100;
/// Calls that are cached before the rotation.
const CALLS: usize = 20;

fn whose() -> Namespace {
    Namespace::new("local", "somebody", None)
}

fn id(key: &str) -> String {
    MemoryKey::parse("K", key).unwrap().id().to_owned()
}

async fn fill(url: &str) {
    let store = store_at(url, &[OLD]).await;
    for start in (0..ROWS).step_by(500) {
        let one = |n: usize| {
            Op::Put(Put::new(
                whose(),
                Kind::Fact,
                format!("k{n}"),
                format!("value {n}"),
            ))
        };
        store
            .write((start..start + 500).map(one).collect())
            .await
            .unwrap();
    }
    store.close().await.unwrap();
}

/// Writes rows one after the other, with the old key as the current one.
async fn write_late(url: &str) {
    let late = store_at(url, &[OLD, NEW]).await;
    for n in 0..LATE {
        let put = Put::new(
            whose(),
            Kind::Note,
            format!("late{n}"),
            format!("late value {n}"),
        );
        late.put(put).await.unwrap();
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    late.close().await.unwrap();
}

async fn has_all(store: &dyn Store) {
    let facts = store
        .scan(&whose(), Kind::Fact, "k", Order::KeyAscending, 2 * ROWS)
        .await
        .unwrap();
    let facts: BTreeMap<_, _> = facts
        .entries
        .into_iter()
        .map(|row| (row.meta.key.clone(), row))
        .collect();
    assert_eq!(facts.len(), ROWS);
    for n in 0..ROWS {
        let found = &facts[&format!("k{n}")];
        assert_eq!(
            (&found.value[..], found.meta.version),
            (format!("value {n}").as_bytes(), 1)
        );
    }
    let notes = store
        .scan(&whose(), Kind::Note, "late", Order::KeyAscending, 2 * LATE)
        .await
        .unwrap();
    let notes: BTreeMap<_, _> = notes
        .entries
        .into_iter()
        .map(|row| (row.meta.key, row.value))
        .collect();
    assert_eq!(notes.len(), LATE);
    for n in 0..LATE {
        assert_eq!(notes[&format!("late{n}")], format!("late value {n}"));
    }
}

fn rotating(home: &Home) -> Command {
    let mut command = home.command_with(NEW, OLD, &["memory", "rotate", "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn sqlite_rotation_killed_twice_loses_nothing() {
    let home = Home::new();
    let url = format!("sqlite:{}", home.store().display());
    under_load(&home, &url);
}

#[test]
fn postgres_rotation_killed_twice_loses_nothing() {
    let (home, server) = (Home::new(), Postgres::shared());
    let url = server.database();
    home.keep_memory_at(&url);
    under_load(&home, &url);
}

#[allow(clippy::print_stdout, reason = "a figure beside the claim")]
fn under_load(home: &Home, url: &str) {
    let runtime = runtime();
    runtime.block_on(fill(url));
    let watch = runtime.block_on(store_at(url, &[NEW, OLD]));
    let rows_of = |key: &str| {
        let stats = runtime.block_on(watch.stats()).unwrap();
        stats.rows_by_key_id.get(&id(key)).copied().unwrap_or(0)
    };
    let mut serve = home.command_with(NEW, OLD, SERVE);
    // The same answer is asked for again and again, and nothing deletes it.
    serve.envs([RARELY_POLLED]);
    let server = Server::launch(serve);
    let input = |n: usize| json!({ "repo": n.to_string() });
    let answers: Vec<Value> = (0..CALLS)
        .map(|n| server.call("test.echo", &input(n)).1)
        .collect();

    let stop = AtomicBool::new(false);
    let calls = AtomicU64::new(0);
    let report = std::thread::scope(|scope| {
        for thread in 0..2 {
            let (server, answers, stop, calls) = (&server, &answers, &stop, &calls);
            scope.spawn(move || {
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let which = (n + thread) % CALLS;
                    assert_eq!(
                        server.call("test.echo", &input(which)),
                        ("hit".to_owned(), answers[which].clone())
                    );
                    // Fresh answers are written meanwhile.
                    if n % 20 == 0 {
                        server.call("test.echo", &json!({ "repo": format!("new/{thread}/{n}") }));
                    }
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let late = runtime.handle().clone();
        scope.spawn(move || late.block_on(write_late(url)));
        for kill in 1..=2 {
            let mut rotation = rotating(home).spawn().unwrap();
            wait_for("rows to be sealed anew", || {
                rows_of(NEW) >= kill * (ROWS as u64) / 4
            });
            rotation.kill().unwrap();
            // On a busy machine the look may take longer than what was left to do.
            match rotation.wait().unwrap().code() {
                None => assert!(rows_of(OLD) > 0, "it was killed, not done"),
                code => assert_eq!(code, Some(0)),
            }
        }
        let run = Run::of(rotating(home).output().unwrap());
        stop.store(true, Ordering::Relaxed);
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
        serde_json::from_str::<Value>(&run.stdout).unwrap()
    });
    assert!(calls.load(Ordering::Relaxed) > 0);
    // The process with the old key may have written after the last look, until it ended.
    let last = Run::of(rotating(home).output().unwrap());
    assert_eq!(last.code, 0, "{}{}", last.stdout, last.stderr);
    let rate = report["resealed"].as_f64().unwrap() / report["seconds"].as_f64().unwrap();
    println!("{report}: {rate:.0} rows/s beside {calls:?} calls");
    assert_eq!(
        (&report["end"], &report["unreadable"]),
        (&json!("done"), &json!(0))
    );
    assert_eq!((&report["key_id"], rows_of(OLD)), (&json!(id(NEW)), 0));
    drop(server);
    runtime.block_on(watch.close()).unwrap();

    runtime.block_on(async {
        let opened = store_at(url, &[NEW]).await;
        has_all(&*opened).await;
        opened.close().await.unwrap();
    });
    let doctor = home.run(NEW, &["memory", "doctor", "--json"]);
    assert_eq!(doctor.code, 0, "{}{}", doctor.stdout, doctor.stderr);
    let server = Server::start_with(home, NEW, &[RARELY_POLLED]);
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(
            server.call("test.echo", &input(n)),
            ("hit".to_owned(), answer.clone())
        );
    }
    assert_eq!(home.run(OLD, &["memory", "doctor"]).code, 78);
}

#[test]
fn rotation_reports_missing_keys_and_no_work() {
    let home = Home::new();
    assert_eq!(home.run(OLD, &["memory", "rotate"]).code, 3, "no store");
    home.call(OLD, &["test.echo"]);
    let run = home.run(OLD, &["memory", "rotate"]);
    assert_eq!(
        (run.code, run.stdout.contains("nothing to do")),
        (0, true),
        "{}{}",
        run.stdout,
        run.stderr
    );
    let run = home.run(NEW, &["memory", "rotate"]);
    assert_eq!(run.code, 78);
    assert!(
        run.stderr.contains(&id(OLD)) && run.stderr.contains(&id(NEW)),
        "{}",
        run.stderr
    );
    let run = Run::of(rotating(&home).output().unwrap());
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(home.run(NEW, &["memory", "doctor"]).code, 0);
    assert_eq!(home.run(OLD, &["memory", "rotate"]).code, 78);
}

#[test]
fn doctor_without_key_reports_what_it_skipped() {
    let home = Home::new();
    home.call(OLD, &["test.echo"]);
    let mut command = home.command(OLD, &["memory", "doctor"]);
    let run = Run::of(command.env_remove("HELMDECK_MEMORY_KEY").output().unwrap());
    assert_eq!(run.code, 3);
    for part in ["not checked", "local/local", &id(OLD)] {
        assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
    }
    let changed = outside(&home.store())
        .execute(
            "UPDATE memory_entries SET category = 'x' WHERE key LIKE 'test.echo/%'",
            [],
        )
        .unwrap();
    let run = home.run(OLD, &["memory", "doctor", "--json"]);
    assert_eq!(run.code, 8, "{}", run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (&report["unreadable"], &report["canary"]),
        (&json!(changed), &json!("ok"))
    );
    assert!(
        report["named"][0]
            .as_str()
            .unwrap()
            .starts_with("local/local cache test.echo/"),
        "{report}"
    );
    assert!(report["hints"].to_string().contains("altered"), "{report}");
}
