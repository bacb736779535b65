//! Tests of `memory export` and `memory import` with the real program.
//!
//! They go from one home to another, through files and pipes.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use helmdeck_memory::{Kind, Namespace, Put};
use helmdeck_testkit::Postgres;
use serde_json::Value;

use crate::support::program::{Home, Run};
use crate::support::{KEY, OTHER_KEY, store};

fn whose(session: Option<&str>) -> Namespace {
    Namespace::new("local", "MARKER-somebody", session)
}

async fn fill(home: &Home) {
    let store = store(&home.store(), &[KEY]).await;
    for kind in [Kind::Note, Kind::Fact, Kind::Conversation] {
        store
            .put(Put::new(whose(None), kind, "k", "MARKER-value"))
            .await
            .unwrap();
        store
            .put(Put::new(whose(Some("s")), kind, "k", vec![7; 50_000]))
            .await
            .unwrap();
    }
    store.close().await.unwrap();
}

/// Returns all rows but the heads, which belong to their store, and without the links of the audit
/// to its head.
async fn all(home: &Home) -> Vec<(String, Vec<u8>)> {
    let store = store(&home.store(), &[KEY]).await;
    let walk = store.walk(None, 1000).await.unwrap();
    store.close().await.unwrap();
    let mut rows: Vec<_> = walk
        .rows
        .into_iter()
        .filter(|row| row.meta.kind != Kind::Head)
        .map(|mut row| {
            match row.meta.kind {
                Kind::Audit => row.meta.attributes.clear(),
                // The epoch of its store.
                Kind::Fact => drop(row.meta.attributes.remove("epoch")),
                _ => {}
            }
            (format!("{:?}", row.meta), row.value.unwrap().to_vec())
        })
        .collect();
    rows.sort();
    rows
}

fn counts(run: &Run) -> Vec<u64> {
    let report: Value = serde_json::from_str(&run.stdout)
        .unwrap_or_else(|_| panic!("{}{}", run.stdout, run.stderr));
    ["imported", "kept", "expired", "unreadable", "refused"]
        .iter()
        .map(|name| report[name].as_u64().unwrap())
        .collect()
}

#[tokio::test]
async fn archive_moves_cached_answers_to_another_home() {
    let (here, there) = (Home::new(), Home::new());
    fill(&here).await;
    let (status, _) = here.call(KEY, &["test.echo", "repo=x"]);
    assert_eq!(status, "miss");
    let file = here.data().join("store.archive");
    let path = file.to_str().unwrap();
    let run = here.run(KEY, &["memory", "export", path]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let bytes = std::fs::read(&file).unwrap();
    assert!(!String::from_utf8_lossy(&bytes).contains("MARKER"));
    let left: Vec<_> = std::fs::read_dir(here.data())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        left.iter()
            .all(|name| !name.to_string_lossy().starts_with('.')),
        "{left:?}"
    );

    let again = here.run(KEY, &["memory", "export", path]);
    assert_eq!(
        (again.code, again.stderr.contains("--force")),
        (2, true),
        "{}",
        again.stderr
    );
    assert_eq!(std::fs::read(&file).unwrap(), bytes, "never overwritten");
    assert_eq!(
        here.run(KEY, &["memory", "export", path, "--force"]).code,
        0
    );

    let absent = here.run(KEY, &["memory", "import", "absent.archive"]);
    assert_eq!(
        (absent.code, absent.stderr.contains("absent.archive")),
        (3, true),
        "{}",
        absent.stderr
    );
    let run = there.run(OTHER_KEY, &["memory", "import", path]);
    assert_eq!(
        (run.code, run.stderr.contains("sealed with key")),
        (78, true),
        "{}",
        run.stderr
    );
    assert!(
        !there.store().exists(),
        "a store of the wrong key would refuse the right one"
    );
    let rows = all(&here).await;
    let dry = there.run(KEY, &["memory", "import", path, "--dry-run", "--json"]);
    assert_eq!(
        (dry.code, counts(&dry)),
        (0, vec![rows.len() as u64, 0, 0, 0, 0]),
        "{}",
        dry.stderr
    );
    assert!(!there.store().exists(), "looking makes no store");
    let first = there.run(KEY, &["memory", "import", path, "--json"]);
    assert_eq!(
        (first.code, counts(&first)),
        (0, vec![rows.len() as u64, 0, 0, 0, 0]),
        "{}",
        first.stderr
    );
    assert_eq!(all(&there).await, rows);
    let second = there.run(KEY, &["memory", "import", path, "--json"]);
    assert_eq!(
        (second.code, counts(&second)),
        (0, vec![0, rows.len() as u64, 0, 0, 0])
    );
    assert_eq!(all(&there).await, rows);
}

#[tokio::test]
async fn archive_round_trip_over_postgres_changes_nothing() {
    let (here, there, back, server) = (Home::new(), Home::new(), Home::new(), Postgres::shared());
    there.keep_memory_at(&server.database());
    fill(&here).await;
    let rows = all(&here).await;
    for (from, to) in [(&here, &there), (&there, &back)] {
        let file = from.packs().join("store.archive");
        let path = file.to_str().unwrap();
        assert_eq!(from.run(KEY, &["memory", "export", path]).code, 0);
        for expected in [vec![6, 0, 0, 0, 0], vec![0, 6, 0, 0, 0]] {
            let run = to.run(KEY, &["memory", "import", path, "--json"]);
            assert_eq!((run.code, counts(&run)), (0, expected), "{}", run.stderr);
        }
    }
    assert_eq!(all(&back).await, rows);
}

#[tokio::test]
async fn truncated_archive_in_a_pipe_is_an_error() {
    let (here, there) = (Home::new(), Home::new());
    fill(&here).await;
    let output = here
        .command(KEY, &["memory", "export", "-", "--kind", "fact"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let import = |bytes: &[u8]| {
        let mut command = there.command(KEY, &["memory", "import", "-", "--json"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        Run::of(child.wait_with_output().unwrap())
    };
    let cut = import(&output.stdout[..output.stdout.len() - 1]);
    assert_eq!((cut.code, counts(&cut)[0]), (8, 2), "{}", cut.stderr);
    assert!(
        cut.stderr.contains("incomplete: it ends after 2 records"),
        "{}",
        cut.stderr
    );
    let whole = import(&output.stdout);
    assert_eq!(
        (whole.code, counts(&whole)),
        (0, vec![0, 2, 0, 0, 0]),
        "{}",
        whole.stderr
    );
    let other = import(b"something else that is longer than a header of an archive is");
    assert_eq!(
        (other.code, other.stdout.as_str()),
        (8, ""),
        "{}",
        other.stderr
    );
}
