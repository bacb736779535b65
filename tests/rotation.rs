//! A new memory key while a server answers and others write: nothing fails, nothing is lost, however often it is killed.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use helmdeck_memory::{Kind, MemoryKey, Namespace, Op, Put, Store};
use serde_json::{Value, json};

use crate::support::program::{Home, Run, SERVE, Server};
use crate::support::{KEY as OLD, OTHER_KEY as NEW, outside, store, wait_for};

/// Rows that are there before the rotation.
const ROWS: usize = 12_000;
/// Rows that a process whose current key is the old one writes meanwhile.
const LATE: usize = 300;
/// Calls that are cached before the rotation.
const CALLS: usize = 20;

fn whose() -> Namespace {
    Namespace::new("local", "somebody", None)
}

fn id(key: &str) -> String {
    MemoryKey::parse("K", key).unwrap().id().to_owned()
}

async fn fill(home: &Home) {
    let store = store(&home.store(), &[OLD]).await;
    for start in (0..ROWS).step_by(500) {
        let one = |n: usize| Op::Put(Put::new(whose(), Kind::Fact, format!("k{n}"), format!("value {n}")));
        store.write((start..start + 500).map(one).collect()).await.unwrap();
    }
    store.close().await.unwrap();
}

async fn has_all(store: &dyn Store) {
    for n in 0..ROWS {
        let found = store.get(&whose(), Kind::Fact, &format!("k{n}")).await.unwrap().unwrap();
        assert_eq!((found.value, found.meta.version), (format!("value {n}").into(), 1));
    }
    for n in 0..LATE {
        let found = store.get(&whose(), Kind::Note, &format!("late{n}")).await.unwrap().unwrap();
        assert_eq!(found.value, format!("late value {n}"));
    }
}

fn rotating(home: &Home) -> Command {
    let mut command = home.command_with(NEW, OLD, &["memory", "rotate", "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns how many rows a key sealed.
fn rows_of(home: &Home, key: &str) -> u64 {
    let sql = "SELECT coalesce(sum(rows), 0) FROM memory_keys WHERE key_id = ?1";
    outside(&home.store()).query_row(sql, [id(key)], |row| row.get::<_, i64>(0)).unwrap().unsigned_abs()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_under_load_killed_twice_loses_nothing_and_fails_no_call() {
    let home = Home::new();
    fill(&home).await;
    let server = Server::launch(home.command_with(NEW, OLD, SERVE));
    let input = |n: usize| json!({ "repo": n.to_string() });
    let answers: Vec<Value> = (0..CALLS).map(|n| server.call("test.echo", &input(n)).1).collect();

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
                    assert_eq!(server.call("test.echo", &input(which)), ("hit".to_owned(), answers[which].clone()));
                    // Fresh answers are written meanwhile.
                    if n % 20 == 0 {
                        server.call("test.echo", &json!({ "repo": format!("new/{thread}/{n}") }));
                    }
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let path = home.store();
        scope.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let late = store(&path, &[OLD, NEW]).await;
                for n in 0..LATE {
                    let put = Put::new(whose(), Kind::Note, format!("late{n}"), format!("late value {n}"));
                    late.put(put).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(3)).await;
                }
                late.close().await.unwrap();
            });
        });
        for kill in 1..=2 {
            let mut rotation = rotating(&home).spawn().unwrap();
            wait_for("rows to be sealed anew", || rows_of(&home, NEW) >= kill * (ROWS as u64) / 4);
            rotation.kill().unwrap();
            assert_eq!(rotation.wait().unwrap().code(), None, "it was killed, not done");
            assert!(rows_of(&home, OLD) > 0);
        }
        let run = Run::of(rotating(&home).output().unwrap());
        stop.store(true, Ordering::Relaxed);
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
        serde_json::from_str::<Value>(&run.stdout).unwrap()
    });
    assert!(calls.load(Ordering::Relaxed) > 0);
    // The process with the old key may have written after the last look, until it ended.
    let last = Run::of(rotating(&home).output().unwrap());
    assert_eq!(last.code, 0, "{}{}", last.stdout, last.stderr);
    let rate = report["resealed"].as_f64().unwrap() / report["seconds"].as_f64().unwrap();
    println!("{report}: {rate:.0} rows/s beside {calls:?} calls");
    assert_eq!(
        (&report["end"], &report["unreadable"], &report["key_id"]),
        (&json!("done"), &json!(0), &json!(id(NEW)))
    );
    assert_eq!(rows_of(&home, OLD), 0);
    drop(server);

    let opened = store(&home.store(), &[NEW]).await;
    has_all(&*opened).await;
    opened.close().await.unwrap();
    let doctor = home.run(NEW, &["memory", "doctor", "--json"]);
    assert_eq!(doctor.code, 0, "{}{}", doctor.stdout, doctor.stderr);
    let server = Server::start(&home, NEW);
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(server.call("test.echo", &input(n)), ("hit".to_owned(), answer.clone()));
    }
    assert_eq!(home.run(OLD, &["memory", "doctor"]).code, 78);
}

#[test]
fn a_rotation_says_what_is_missing_and_when_there_is_nothing_to_do() {
    let home = Home::new();
    assert_eq!(home.run(OLD, &["memory", "rotate"]).code, 3, "no store");
    home.call(OLD, &["test.echo"]);
    let run = home.run(OLD, &["memory", "rotate"]);
    assert_eq!((run.code, run.stdout.contains("nothing to do")), (0, true), "{}{}", run.stdout, run.stderr);
    let run = home.run(NEW, &["memory", "rotate"]);
    assert_eq!(run.code, 78);
    assert!(run.stderr.contains(&id(OLD)) && run.stderr.contains(&id(NEW)), "{}", run.stderr);
    let run = Run::of(rotating(&home).output().unwrap());
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(home.run(NEW, &["memory", "doctor"]).code, 0);
    assert_eq!(home.run(OLD, &["memory", "rotate"]).code, 78);
}

#[test]
fn a_doctor_without_the_key_tells_what_is_in_the_clear_and_what_it_could_not_check() {
    let home = Home::new();
    home.call(OLD, &["test.echo"]);
    let mut command = home.command(OLD, &["memory", "doctor"]);
    let run = Run::of(command.env_remove("HELMDECK_MEMORY_KEY").output().unwrap());
    assert_eq!(run.code, 3);
    for part in ["not checked", "local/local", &id(OLD)] {
        assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
    }
    let changed = outside(&home.store())
        .execute("UPDATE memory_entries SET category = 'x' WHERE key LIKE 'test.echo/%'", [])
        .unwrap();
    let run = home.run(OLD, &["memory", "doctor", "--json"]);
    assert_eq!(run.code, 8, "{}", run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&report["unreadable"], &report["canary"]), (&json!(changed), &json!("ok")));
    assert!(report["named"][0].as_str().unwrap().starts_with("local/local cache test.echo/"), "{report}");
    assert!(report["hints"].to_string().contains("altered"), "{report}");
}
