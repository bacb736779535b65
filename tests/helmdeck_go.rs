//! A database of the Go original, made as it makes them: what becomes of each kind of row, and that
//! nothing happens twice.

use std::path::{Path, PathBuf};

use aes_gcm::aead::{Aead, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce};
use helmdeck_core::Timestamp;
use helmdeck_engine::AuditPage;
use helmdeck_memory::{Entry, Kind, Namespace, Put, Store};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::program::{Home, Run};
use crate::support::{KEY, OTHER_KEY, store};

/// The original's table, from its sixth migration.
const SCHEMA: &str = "CREATE TABLE memory_entries (
    id TEXT PRIMARY KEY, namespace TEXT NOT NULL, key TEXT NOT NULL, value_ciphertext BLOB NOT NULL,
    value_nonce BLOB NOT NULL, fingerprint TEXT NOT NULL, category TEXT NOT NULL DEFAULT '',
    tags_json TEXT NOT NULL DEFAULT '[]', created_at TEXT NOT NULL, updated_at TEXT NOT NULL, expires_at TEXT,
    metadata_json TEXT NOT NULL DEFAULT '{}', UNIQUE(namespace, key));
    CREATE INDEX memory_entries_namespace ON memory_entries (namespace);
    CREATE TABLE schema_migrations (version INTEGER, applied_at TEXT);";

/// 2026-11-01T00:00:00Z, in microseconds (`date -u -d 2026-11-01 +%s`).
const NOVEMBER: i64 = 1_793_491_200_000_000;

/// A row of the original.
#[derive(Clone, Copy)]
struct Row<'a> {
    namespace: &'a str,
    key: &'a str,
    value: &'a [u8],
    category: &'a str,
    tags: &'a str,
    created: &'a str,
    updated: &'a str,
    expires: Option<&'a str>,
}

const ROW: Row<'static> = Row {
    namespace: "alice",
    key: "",
    value: b"value",
    category: "",
    tags: "[]",
    created: "2026-11-01T00:00:00Z",
    updated: "2026-11-01T00:00:00Z",
    expires: None,
};

/// The original's file.
struct Original {
    path: PathBuf,
    db: Connection,
    rows: u32,
}

impl Original {
    fn at(path: &Path) -> Self {
        let db = Connection::open(path).unwrap();
        assert_eq!(db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0)).unwrap(), "wal");
        db.execute_batch(SCHEMA).unwrap();
        Self { path: path.to_owned(), db, rows: 0 }
    }

    fn add(&mut self, row: Row<'_>) {
        self.rows += 1;
        let bytes: Vec<u8> = (0..32).map(|at| u8::from_str_radix(&KEY[2 * at..2 * at + 2], 16).unwrap()).collect();
        let cipher = Aes256Gcm::new_from_slice(&bytes).unwrap();
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&self.rows.to_be_bytes());
        let sealed = cipher.encrypt(&Nonce::from(nonce), row.value).unwrap();
        let id = format!("mem_{:032x}", self.rows);
        let values =
            (id, row.namespace, row.key, sealed, nonce, row.category, row.tags, row.created, row.updated, row.expires);
        self.db
            .execute(
                "INSERT INTO memory_entries (id, namespace, key, value_ciphertext, value_nonce, fingerprint, category,
                 tags_json, created_at, updated_at, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, 'f', ?6, ?7, ?8, ?9, ?10)",
                values,
            )
            .unwrap();
    }

    /// Ends the original's process: the log goes into the database.
    fn close(self) -> PathBuf {
        self.db.close().unwrap();
        self.path
    }
}

/// Puts a row of every kind into a file.
fn fill(original: &mut Original) {
    let life = Some("2099-01-01T00:00:00Z");
    let year = Some("2027-10-31T00:00:00.5Z");
    let audit = json!({"pack": "github.list_issues", "version": "v1", "outcome": "ok", "at_unix": 1_793_491_200,
        "duration_ms": 12.5, "learn_inputs": {"persona": "editor"},
        "findings": [{"code": "long", "severity": "warning", "file": "a.md"}, {"code": "short"}]});
    let audit = audit.to_string();
    let digest = "ab".repeat(32);
    for row in [
        // Facts, in every form of time that Go writes, and some that it does not.
        Row {
            key: "city",
            value: "Zürich".as_bytes(),
            category: "user_facts",
            tags: "[\"b\",\"a\"]",
            created: "2026-11-01T00:00:00.1Z",
            updated: "2026-11-01T02:00:00.123+02:00",
            expires: year,
            ..ROW
        },
        Row {
            key: "nine",
            category: "own",
            created: "2026-11-01T00:00:00.123456789Z",
            updated: "2026-11-01T00:00:01.000001999Z",
            expires: year,
            ..ROW
        },
        Row { namespace: "ヘルム", key: "k", category: "user_facts", expires: year, ..ROW },
        // Notes: without an end, of a handler, in a session, not text.
        Row { key: "for ever", category: "own", ..ROW },
        Row { key: "long", category: "own", expires: life, ..ROW },
        Row { key: "swe.solve/0123456789abcdef/notes", category: "solve", expires: year, ..ROW },
        Row { key: "binary", category: "own", value: &[0xff, 0], expires: year, ..ROW },
        Row { namespace: "alice:7d9f:x", key: "of the session", category: "own", expires: year, ..ROW },
        Row { namespace: "org:bob", key: "bob's", category: "user_facts", expires: year, ..ROW },
        Row { namespace: "org:bob:s", key: "bob's session's", ..ROW },
        Row { namespace: "org:carol", key: "whose?", ..ROW },
        // The audit.
        Row {
            key: "pack_history/github.list_issues/01793491200000001234",
            category: "pack_history",
            value: audit.as_bytes(),
            expires: life,
            ..ROW
        },
        Row { key: "pipeline_history/p/01793491200000000000", category: "pipeline_history", ..ROW },
        Row { key: "plan_history/0123456789abcdef/01793491200000000000", category: "plan_history", ..ROW },
        // What looks like an audit row and is a fact.
        Row { key: "pack_history/x/1", category: "user_facts", expires: year, ..ROW },
        // The cache.
        Row { key: &format!("github.list_issues/{digest}"), category: "cache", expires: life, ..ROW },
        Row { key: &format!("cg:claim:{digest}"), category: "claims", expires: life, ..ROW },
        // Ended.
        Row { key: "ended", expires: Some("2026-11-01T00:00:00.000001Z"), ..ROW },
        // Bad ones.
        Row { key: "bad time", created: "yesterday", ..ROW },
        Row { key: "bad tags", tags: "{", ..ROW },
        Row { key: "pack_history/x/2", category: "pack_history", ..ROW },
        Row { key: "altered", ..ROW },
    ] {
        original.add(row);
    }
    let altered = "UPDATE memory_entries SET value_nonce = x'000000000000000000000000' WHERE key = 'altered'";
    assert_eq!(original.db.execute(altered, []).unwrap(), 1);
}

fn import(home: &Home, key: &str, path: &Path, more: &[&str]) -> Run {
    let arguments = [&["memory", "import", "--helmdeck-go", path.to_str().unwrap(), "--json"], more].concat();
    home.run(key, &arguments)
}

fn report(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{}{}", run.stdout, run.stderr))
}

async fn all(home: &Home) -> Vec<(String, Vec<u8>)> {
    let store = store(&home.store(), &[KEY]).await;
    let walk = store.walk(None, 1000).await.unwrap();
    store.close().await.unwrap();
    let mut rows: Vec<_> =
        walk.rows.into_iter().map(|row| (format!("{:?}", row.meta), row.value.unwrap().to_vec())).collect();
    rows.sort();
    rows
}

async fn get(store: &dyn Store, whose: (&str, Option<&str>), kind: Kind, key: &str) -> Entry {
    let found = store.get(&Namespace::new("local", whose.0, whose.1), kind, key).await.unwrap();
    found.unwrap_or_else(|| panic!("{whose:?} {kind} {key}"))
}

#[tokio::test]
async fn import_maps_every_row_and_is_idempotent() {
    let home = Home::new();
    let path = home.packs().join("go.db");
    let mut original = Original::at(&path);
    fill(&mut original);
    let path = original.close();
    let before = std::fs::read(&path).unwrap();
    let files = std::fs::read_dir(home.packs()).unwrap().count();

    let run = import(&home, KEY, &path, &[]);
    assert_eq!(run.code, 8, "four rows are bad: {}", run.stderr);
    let first = report(&run);
    assert_eq!(first["rows"], 22);
    assert_eq!(first["skipped"], json!({"cache": 2, "pipeline_history": 1, "plan_history": 1}));
    assert_eq!((&first["imported"], &first["kept"], &first["expired"]), (&json!(13), &json!(0), &json!(1)));
    assert_eq!(first["kinds"], json!({"audit": 1, "fact": 5, "note": 7}));
    let bad: Vec<&str> = first["bad_rows"].as_array().unwrap().iter().map(|row| row.as_str().unwrap()).collect();
    assert_eq!((first["bad"].as_u64(), bad.len()), (Some(4), 4));
    assert!(bad.iter().all(|row| row.starts_with("mem_0000")), "{bad:?}");
    assert_eq!(
        first["namespaces"],
        json!([
            {"from": "alice:7d9f:x", "subject": "alice", "session": "7d9f:x", "why": "proven"},
            {"from": "org:bob", "subject": "org:bob", "session": null, "why": "whole"},
            {"from": "org:bob:s", "subject": "org:bob", "session": "s", "why": "proven"},
            {"from": "org:carol", "subject": "org:carol", "session": null, "why": "whole"},
        ])
    );

    let opened = store(&home.store(), &[KEY]).await;
    let city = get(&*opened, ("alice", None), Kind::Fact, "city").await;
    assert_eq!((city.value.as_ref(), city.meta.version), ("Zürich".as_bytes(), 1));
    assert_eq!((city.meta.category.as_str(), city.meta.tags), ("user_facts", vec!["b".to_owned(), "a".to_owned()]));
    assert_eq!(city.meta.created_at, Timestamp(NOVEMBER + 100_000));
    assert_eq!(city.meta.updated_at, Timestamp(NOVEMBER + 123_000));
    // 364 days and half a second after the first of November.
    assert_eq!(city.meta.expires_at, Some(Timestamp(NOVEMBER + 364 * 86_400_000_000 + 500_000)));
    let nine = get(&*opened, ("alice", None), Kind::Fact, "nine").await.meta;
    assert_eq!((nine.created_at, nine.updated_at), (Timestamp(NOVEMBER + 123_456), Timestamp(NOVEMBER + 1_000_001)));
    get(&*opened, ("ヘルム", None), Kind::Fact, "k").await;
    get(&*opened, ("alice", None), Kind::Fact, "pack_history/x/1").await;
    for key in ["for ever", "long", "binary", "swe.solve/0123456789abcdef/notes"] {
        get(&*opened, ("alice", None), Kind::Note, key).await;
    }
    assert_eq!(get(&*opened, ("alice", Some("7d9f:x")), Kind::Note, "of the session").await.meta.category, "own");
    get(&*opened, ("org:bob", Some("s")), Kind::Note, "bob's session's").await;
    get(&*opened, ("org:carol", None), Kind::Note, "whose?").await;

    let key = "pack/github.list_issues/00001793491200000001-000234-00000000";
    let audit = get(&*opened, ("alice", None), Kind::Audit, key).await;
    assert_eq!(audit.meta.category, "pack");
    let page: AuditPage = serde_json::from_slice(&audit.value).unwrap();
    assert_eq!(
        (page.pack.as_str(), page.version.number(), page.start),
        ("github.list_issues", 1, Timestamp(NOVEMBER + 1))
    );
    let row = &page.rows[0];
    assert_eq!((row.after_us, row.duration_us, row.outcome.as_ref(), page.rows.len()), (0, 12_500, "ok", 1));
    assert_eq!(row.inputs["persona"], "editor");
    let findings: Vec<_> =
        row.findings.iter().map(|found| (found.code.as_str(), found.severity.as_str(), found.file.as_str())).collect();
    assert_eq!(findings, [("long", "warning", "a.md"), ("short", "", "")]);
    opened.close().await.unwrap();

    let rows = all(&home).await;
    let second = report(&import(&home, KEY, &path, &[]));
    assert_eq!((&second["imported"], &second["kept"]), (&json!(0), &json!(13)));
    assert_eq!(all(&home).await, rows);
    assert_eq!(std::fs::read(&path).unwrap(), before, "the file is as it was");
    assert_eq!(std::fs::read_dir(home.packs()).unwrap().count(), files, "and nothing is beside it");
}

#[tokio::test]
async fn wrong_key_is_one_error_and_writes_nothing() {
    let home = Home::new();
    let path = home.packs().join("go.db");
    let mut original = Original::at(&path);
    original.add(Row { key: "k", ..ROW });
    let path = original.close();
    let run = import(&home, OTHER_KEY, &path, &[]);
    assert_eq!((run.code, run.stdout.as_str()), (78, ""));
    assert!(run.stderr.contains("none of the 1 rows opens"), "{}", run.stderr);
    assert!(!home.store().exists(), "a store of the wrong key would refuse the right one");
    // The key of the file as a previous one opens it too.
    let mut command = home.command_with(OTHER_KEY, KEY, &["memory", "import", "--helmdeck-go", path.to_str().unwrap()]);
    let run = Run::of(command.output().unwrap());
    assert_eq!((run.code, run.stdout.contains("imported")), (0, true), "{}", run.stderr);
}

#[tokio::test]
async fn import_reads_rows_of_the_log() {
    for running in [true, false] {
        let home = Home::new();
        let path = home.packs().join("go.db");
        let mut original = Original::at(&path);
        original.add(Row { key: "in the log", ..ROW });
        let log = home.packs().join("go.db-wal");
        assert!(log.metadata().unwrap().len() > 0);
        let copy = home.packs().join("killed.db");
        if !running {
            // As after a power cut: a database and its log, open in no process.
            std::fs::copy(&path, &copy).unwrap();
            std::fs::copy(&log, home.packs().join("killed.db-wal")).unwrap();
        }
        let read = if running { &path } else { &copy };
        let state = || {
            let mut files: Vec<_> = std::fs::read_dir(home.packs())
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| !path.to_string_lossy().ends_with("-shm"))
                .map(|path| (path.clone(), std::fs::read(&path).unwrap()))
                .collect();
            files.sort();
            files
        };
        let before = state();
        let run = import(&home, KEY, read, &[]);
        assert_eq!((run.code, &report(&run)["imported"]), (0, &json!(1)), "{}", run.stderr);
        assert!(state() == before, "neither database nor log changed");
        assert!(!home.packs().join("killed.db-shm").exists(), "nothing is made beside it");
        let left = std::fs::read_dir(home.data()).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with("import-")), "no copy stays");
        original.db.close().unwrap();
    }
}

#[tokio::test]
async fn import_options_choose_tenant_and_sessions() {
    let home = Home::new();
    let path = home.packs().join("go.db");
    let mut original = Original::at(&path);
    original.add(Row { namespace: "org:carol", key: "k", ..ROW });
    let path = original.close();
    let options = ["--tenant", "acme", "--split-sessions", "always"];
    let dry = import(&home, KEY, &path, &[&options[..], &["--dry-run"]].concat());
    assert_eq!((dry.code, &report(&dry)["imported"]), (0, &json!(1)), "{}", dry.stderr);
    assert!(!home.store().exists());
    let run = import(&home, KEY, &path, &options);
    assert_eq!(report(&run)["namespaces"][0]["why"], "assumed");
    let opened = store(&home.store(), &[KEY]).await;
    let namespace = Namespace::new("acme", "org", Some("carol"));
    assert!(opened.get(&namespace, Kind::Note, "k").await.unwrap().is_some());

    // What is newer here stays, and what the original wrote since is taken.
    opened.put(Put::new(namespace.clone(), Kind::Note, "k", "newer")).await.unwrap();
    import(&home, KEY, &path, &options);
    assert_eq!(opened.get(&namespace, Kind::Note, "k").await.unwrap().unwrap().value, "newer");
    let db = Connection::open(&path).unwrap();
    db.execute("UPDATE memory_entries SET updated_at = '2098-01-01T00:00:00Z'", []).unwrap();
    db.close().unwrap();
    import(&home, KEY, &path, &options);
    assert_eq!(opened.get(&namespace, Kind::Note, "k").await.unwrap().unwrap().value, "value");
}

#[test]
fn what_is_no_such_database_is_left_alone() {
    let home = Home::new();
    home.call(KEY, &["test.echo"]);
    let text = home.packs().join("test.echo.toml");
    for (path, message, code) in [
        (&home.store(), "as the Go original makes it", 8),
        (&text, "not a database", 8),
        (&home.packs().join("absent.db"), "No such file", 3),
    ] {
        let run = import(&home, KEY, path, &[]);
        assert_eq!((run.code, run.stderr.contains(message)), (code, true), "{}", run.stderr);
    }
}
