//! Golden numbers: the statements that a server sends to PostgreSQL for one call of each kind.
//!
//! A recorder between the server and the database reads the wire protocol, so nothing is missed. A
//! changed number has to be accepted in these tables. `BEGIN` and `COMMIT` are not counted: they
//! travel with other statements.

use std::cell::RefCell;
use std::collections::BTreeMap;

use helmdeck_core::waiting::Looks;
use helmdeck_testkit::{Postgres, StatementRecorder};
use serde_json::json;

use crate::support::program::{Answer, Home, SERVE, Server};
use crate::support::{KEY, wait_for};

/// Names of statements, by a part of their text. The first that fits counts.
const NAMES: &[(&str, &str)] = &[
    (
        "n(tenant, subject, kind, session, key, at)",
        "read rows to replace",
    ),
    (
        "CROSS JOIN LATERAL (SELECT s.id FROM memory_spaces",
        "lock spaces",
    ),
    ("FROM counted c", "insert new rows"),
    ("keyed AS (", "insert rows, count"),
    ("n.old_tags::bytea[]", "update rows"),
    ("INSERT INTO memory_spaces", "make spaces"),
    ("UPDATE memory_spaces s SET", "count"),
    ("INSERT INTO memory_keys", "count keys"),
    ("DELETE FROM memory_spaces", "tidy spaces"),
    ("DELETE FROM memory_keys", "tidy keys"),
    ("INSERT INTO memory_changes", "announce"),
    ("pg_notify", "wake"),
    ("SELECT s.id, EXISTS", "find spaces of a purge"),
    ("max(id), 0) FROM memory_spaces", "find the last space"),
    ("t.tag = $2 OFFSET 0", "delete by tag"),
    ("statement_timeout", "set the time limit"),
    (
        "FROM memory_spaces WHERE id = ANY($1) ORDER BY id FOR UPDATE",
        "lock spaces by id",
    ),
    ("ORDER BY e.key DESC", "scan"),
    ("ORDER BY e.key LIMIT", "scan"),
    ("e.key = $6", "get"),
    ("INSERT INTO system_keys", "take an idempotency key"),
    ("UPDATE system_keys", "finish an idempotency key"),
    (
        "pg_advisory_xact_lock(1785684595",
        "lock jobs of the caller",
    ),
    (
        "count(*) FILTER (WHERE ended_at IS NULL) FROM system_jobs",
        "count jobs of the caller",
    ),
    ("INSERT INTO system_jobs", "add a job"),
    ("new AS MATERIALIZED", "save jobs"),
    ("INSERT INTO system_job_calls", "add the call of a job"),
    (
        "WHERE owner = 'queue' AND ended_at IS NULL",
        "count jobs that wait",
    ),
    ("FROM system_jobs WHERE id = $1", "read a job"),
    (
        "FROM system_job_results WHERE id = $1",
        "read the result of a job",
    ),
];

/// What a server sends by itself, at intervals, whether it is called or not.
const BACKGROUND: &[&str] = &[
    "pg_current_snapshot",
    "system_replicas WHERE expires_at",
    "UPDATE system_replicas",
    "INTO system_replicas",
    "DELETE FROM system_replicas",
    "SELECT EXISTS (SELECT 1 FROM system_jobs j",
    "system_counters",
    "system_statistics",
    "ended_at IS NULL AND cancel",
    "asked (id)",
    "system_tokens",
    "memory_locks",
    // A poll comes at once with a job, and once a second. What it got is read apart.
    "system_claim_jobs",
    "sealed FROM system_job_calls WHERE id = ANY",
    "system_vault",
    "DELETE FROM memory_changes",
    // Every 5 s, while cached answers are read: whether anything was ever evicted, and if so, two
    // statements that mark them.
    "SELECT 1 FROM memory_hands LIMIT 1",
    "SELECT 1 FROM memory_hands h WHERE",
    "SET spared_until = 9223372036854775807",
    // While calls miss, once a second: upstreams that are left alone.
    "SELECT key, expires_at FROM system_keys",
];

/// A server on an empty database, behind a recorder.
struct Counted {
    server: Server,
    recorder: StatementRecorder,
    home: Home,
    /// What differs from the tables.
    wrong: RefCell<Vec<String>>,
    _database: std::sync::Arc<Postgres>,
}

impl Counted {
    fn start() -> Self {
        let database = Postgres::shared();
        let (recorder, home) = (StatementRecorder::start(&database), Home::new());
        let write = "#!/bin/sh\ncat >/dev/null\nprintf '{}'\n";
        home.install("test.write", write, "");
        let manifest = home.packs().join("test.write.toml");
        let text = std::fs::read_to_string(&manifest)
            .unwrap()
            .replace("read_only = true", "read_only = false");
        std::fs::write(manifest, text.split("[memory]").next().unwrap()).unwrap();
        // Calls of `test.plain` leave no audit rows.
        let plain = home.packs().join("test.plain.toml");
        let text = std::fs::read_to_string(&plain).unwrap();
        std::fs::write(
            plain,
            text.replace("read_only = true", "read_only = true\nno_audit = true"),
        )
        .unwrap();
        let mut command = home.command(KEY, SERVE);
        // Audit rows wait until the server ends, and nothing is looked for meanwhile.
        command.env("HELMDECK_MEMORY_URL", recorder.url(&database.database()));
        // Nothing but what a call does, however long the test takes.
        for interval in [
            "AUDIT__LINGER",
            "CACHE__WATCH_INTERVAL",
            "MEMORY__SWEEP_INTERVAL",
            "CONVERSATION__SWEEP_INTERVAL",
        ] {
            command.env(format!("HELMDECK_{interval}"), "1h");
        }
        let server = Server::launch(command);
        Self {
            server,
            recorder,
            home,
            wrong: RefCell::default(),
            _database: database,
        }
    }

    fn ask(&self, head: &str, body: &str) -> Answer {
        let answer = self.server.ask(head, body);
        assert!((200..300).contains(&answer.code), "{head}: {}", answer.body);
        answer
    }

    /// Does something, and compares what was sent for it with the table.
    fn expect(&self, what: &str, golden: &[(&str, usize)], done: impl FnOnce()) {
        // What was done before may still be written.
        loop {
            let _ = self.recorder.take();
            std::thread::sleep(std::time::Duration::from_millis(150));
            if counted(&self.recorder.sent()).is_empty() {
                break;
            }
        }
        done();
        let golden: BTreeMap<String, usize> = golden
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect();
        let total = |of: &BTreeMap<String, usize>| of.values().sum::<usize>();
        // Rows are written after the answer. More than expected would be there for good.
        let mut looks = Looks::default();
        while total(&counted(&self.recorder.sent())) < total(&golden) && !looks.are_over() {
            std::thread::sleep(looks.pause());
        }
        std::thread::sleep(std::time::Duration::from_millis(150));
        self.compare(what, &golden);
    }

    fn compare(&self, what: &str, golden: &BTreeMap<String, usize>) {
        let mut sent = counted(&self.recorder.take());
        // A job that begins and ends at once is saved once, and one that begins later is read while
        // it waits.
        for name in ["save jobs", "read a job"] {
            if let Some(count) = sent.get_mut(name) {
                *count = (*count).max(2);
            }
        }
        if sent != *golden {
            self.wrong
                .borrow_mut()
                .push(format!("{what}: sent {sent:?}, not {golden:?}"));
        }
    }
}

/// Counts statements by name, without those of the background.
fn counted(statements: &[String]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for sql in statements {
        let is_of_transaction =
            ["BEGIN", "START TRANSACTION", "COMMIT", "ROLLBACK"].contains(&sql.as_str());
        if is_of_transaction || BACKGROUND.iter().any(|part| sql.contains(part)) {
            continue;
        }
        let named = NAMES
            .iter()
            .find(|(part, _)| sql.contains(part))
            .map(|(_, name)| *name);
        *counts.entry(named.unwrap_or(sql).to_owned()).or_default() += 1;
    }
    counts
}

/// A write of new rows of one space.
const NEW_ROWS: &[(&str, usize)] = &[("insert new rows", 1)];
/// A write of rows that replace others which this server wrote recently.
const OTHER_ROWS: &[(&str, usize)] = &[
    ("lock spaces", 1),
    ("read rows to replace", 1),
    ("update rows", 1),
];

fn with(
    golden: &[(&'static str, usize)],
    more: &[(&'static str, usize)],
) -> Vec<(&'static str, usize)> {
    [golden, more].concat()
}

#[test]
fn statements_of_calls_are_as_in_the_table() {
    let mut counted = Counted::start();
    // The first write of a kind makes its space, and the first answer checks the limit of the
    // store.
    let plain = |input: &str| {
        let answer = counted.ask(
            "POST /api/v1/packs/test.plain",
            &json!({"repo": input}).to_string(),
        );
        answer.status()
    };
    assert_eq!(plain("warm"), "miss");
    wait_for("the answer to be stored", || {
        counted.server.look("test.plain", &json!({"repo": "warm"})) == "hit"
    });
    counted.ask(
        "POST /api/v1/memory/store",
        r#"{"key": "warm", "value": "v"}"#,
    );

    counted.expect("a cached answer of this process", &[], || {
        assert_eq!(plain("warm"), "hit")
    });
    // One read before the answer; the write of the row after it.
    counted.expect("a miss", &with(NEW_ROWS, &[("get", 1)]), || {
        assert_eq!(plain("one"), "miss")
    });
    // Each time the head, which tells whether somebody put a forgotten fact back.
    counted.expect("a fact", &with(NEW_ROWS, &[("get", 2)]), || {
        counted.ask("POST /api/v1/memory/store", r#"{"key": "k", "value": "v"}"#);
    });
    counted.expect(
        "a fact that is replaced",
        &with(OTHER_ROWS, &[("get", 2)]),
        || {
            counted.ask("POST /api/v1/memory/store", r#"{"key": "k", "value": "w"}"#);
        },
    );
    counted.expect("a fact by its key", &[("get", 2)], || {
        counted.ask("POST /api/v1/memory/recall", r#"{"key": "k"}"#);
    });

    let turn = |text: &str| json!({"user_message": text, "assistant_response": "yes"}).to_string();
    counted.ask("POST /api/v1/conversations/talk/turns", &turn("warm"));
    counted.expect("a turn", GOLDEN_TURN, || {
        counted.ask("POST /api/v1/conversations/talk/turns", &turn("one"));
    });
    counted.expect("the context of a conversation", GOLDEN_CONTEXT, || {
        counted.ask("GET /api/v1/conversations/talk/context", "");
    });

    let once = |key: &str| {
        counted.ask(
            &format!("POST /api/v1/packs/test.write\nIdempotency-Key: {key}"),
            "{}",
        );
    };
    once("warm");
    let keys = &[
        ("take an idempotency key", 1),
        ("finish an idempotency key", 1),
    ];
    counted.expect("a call with an Idempotency-Key", keys, || once("one"));

    let job = || {
        assert_eq!(
            counted
                .ask("POST /api/v1/packs/test.write/jobs\nPrefer: wait=60", "{}")
                .code,
            200
        )
    };
    job();
    counted.expect("a job, from its start to its end", GOLDEN_JOB, job);

    let tagged = json!({"repo": "a/b"});
    assert_eq!(counted.server.call("test.echo", &tagged).0, "miss");
    wait_for("the answer to be stored", || {
        counted.server.look("test.echo", &tagged) == "hit"
    });
    counted.expect("a purge by tag", GOLDEN_PURGE, || {
        counted.ask("POST /api/v1/memory/purge", r#"{"tag": "repo:a/b"}"#);
    });

    // Hits with an audit: nothing, until a page of their rows is written; here, at the end of the
    // server.
    assert_eq!(counted.server.call("test.echo", &tagged).0, "miss");
    wait_for("the answer to be stored", || {
        counted.server.look("test.echo", &tagged) == "hit"
    });
    counted.expect("hits with an audit", &[], || {
        for _ in 0..100 {
            assert_eq!(counted.server.call("test.echo", &tagged).0, "hit");
        }
    });
    counted.server.signal("-TERM");
    assert_eq!(counted.server.ended(), Some(0), "{}", counted.server.log());
    // The callers and packs of all pages are in one group.
    let audit: BTreeMap<String, usize> = GOLDEN_AUDIT
        .iter()
        .map(|(name, n)| ((*name).to_owned(), *n))
        .collect();
    counted.compare("the audit rows of all calls above", &audit);
    let wrong = counted.wrong.take().join("\n");
    assert!(
        wrong.is_empty(),
        "{wrong}\nif that is right, accept it in the tables; docs/scale.md has them too"
    );
    drop(counted.home);
}

/// The turn and the head of its conversation, in one group and in one statement.
const GOLDEN_TURN: &[(&str, usize)] = &[
    ("lock spaces", 1),
    ("read rows to replace", 1),
    ("insert rows, count", 1),
];
/// The conversation as it is now: another server may have added a turn.
const GOLDEN_CONTEXT: &[(&str, usize)] = &[("scan", 1)];
const GOLDEN_JOB: &[(&str, usize)] = &[
    ("lock jobs of the caller", 1),
    ("count jobs of the caller", 1),
    ("count jobs that wait", 1),
    ("add a job", 1),
    ("add the call of a job", 1),
    ("save jobs", 2),
    ("read a job", 2),
    ("read the result of a job", 1),
];
/// One namespace has the tag.
const GOLDEN_PURGE: &[(&str, usize)] = &[
    ("find the last space", 1),
    ("find spaces of a purge", 1),
    ("set the time limit", 1),
    ("lock spaces by id", 1),
    ("delete by tag", 1),
    ("count", 1),
    ("count keys", 1),
    ("tidy keys", 1),
    ("announce", 1),
    ("wake", 1),
];
const GOLDEN_AUDIT: &[(&str, usize)] = &[
    ("get", 2),
    ("make spaces", 1),
    ("lock spaces", 2),
    ("read rows to replace", 2),
    ("insert rows, count", 1),
];
