//! Chains of audit entries: what a program without the key does to them is seen.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{Clock, ManualClock};
use tokio_util::sync::CancellationToken;

use super::{KEY_A, KEY_B, ring};
use crate::audit::{AuditEntry, AuditFinding, ChainWriter, Verified, accept, remove, verify};
use crate::rotate::rotate;
use crate::{Config, Kind, KindLimits, Namespace, Put, Store, open};

const KEPT: Duration = Duration::from_secs(3600);

/// A database that can be reached from outside, too.
pub(super) struct Outside {
    url: String,
    pub(super) clock: Arc<ManualClock>,
    pub(super) sql: Box<dyn Fn(&str) + Send + Sync>,
    /// The folder of its file.
    _folder: Option<tempfile::TempDir>,
}

impl Outside {
    async fn open_with(&self, key: &str, config: Config) -> Arc<dyn Store> {
        open(
            &self.url,
            ring(key, (key == KEY_B).then_some(KEY_A)),
            config,
            Arc::clone(&self.clock) as _,
        )
        .await
        .unwrap()
    }

    pub(super) async fn open(&self) -> Arc<dyn Store> {
        self.open_with(KEY_A, Config::default()).await
    }

    async fn verify(&self) -> Verified {
        let store = self.open().await;
        let verified = verify(
            &*store,
            Config::default().limits.quota(Kind::Audit),
            &*self.clock,
        )
        .await
        .unwrap();
        store.close().await.unwrap();
        verified
    }

    fn entry(&self, user: &str, number: usize) -> AuditEntry {
        let pack = ["t.one", "t.two"][number % 2];
        let key = format!("pack/{pack}/{number:04}");
        let mut put = Put::new(
            Namespace::new("t", user, None),
            Kind::Audit,
            key,
            format!("{{\"call\":{number}}}"),
        );
        put.ttl = Some(KEPT);
        AuditEntry {
            put,
            calls: 10,
            until: self.clock.now().saturating_add(KEPT),
        }
    }

    /// Writes the entries 1 to `count` of each user, in transactions of up to three.
    async fn fill(&self, store: &dyn Store, users: &[&str], count: usize) {
        for user in users {
            let writer = ChainWriter::default();
            let entries: Vec<AuditEntry> =
                (1..=count).map(|number| self.entry(user, number)).collect();
            let (mut rest, mut size) = (entries.as_slice(), 1);
            while !rest.is_empty() {
                let (now, later) = rest.split_at(size.min(rest.len()));
                writer
                    .append(store, &Namespace::new("t", user, None), now)
                    .await
                    .unwrap();
                (rest, size) = (later, size % 3 + 1);
            }
        }
    }
}

fn findings(verified: &Verified) -> Vec<AuditFinding> {
    verified
        .callers
        .iter()
        .flat_map(|caller| caller.findings.clone())
        .chain(verified.findings.clone())
        .collect()
}

fn of(user: &str, kind: &str) -> String {
    format!(
        "space_id IN (SELECT id FROM memory_spaces WHERE subject = '{user}' AND kind = '{kind}')"
    )
}

fn one(number: usize) -> String {
    format!(
        "{} AND key = 'pack/t.{}/{number:04}'",
        of("alice", "audit"),
        ["one", "two"][number % 2]
    )
}

fn missing(from: u64, to: u64) -> Vec<AuditFinding> {
    vec![AuditFinding::Missing { from, to }]
}

/// Every cut of a chain of nine, by its first and last entry.
async fn cuts(outside: impl Fn() -> Outside) {
    for (from, to) in (1..=9).flat_map(|from| (from..=9).map(move |to| (from, to))) {
        let outside = outside();
        let store = outside.open().await;
        outside.fill(&*store, &["alice", "bob"], 9).await;
        store.close().await.unwrap();
        assert_eq!(findings(&outside.verify().await), [], "it is whole before");
        for number in from..=to {
            (outside.sql)(&format!("DELETE FROM memory_entries WHERE {}", one(number)));
        }
        let verified = outside.verify().await;
        assert_eq!(
            findings(&verified),
            missing(from as u64, to as u64),
            "{from} to {to}"
        );
        assert!(
            verified
                .callers
                .iter()
                .any(|caller| caller.user == "bob" && caller.findings.is_empty())
        );
        // The chain goes on, and the cut stays seen.
        let store = outside.open().await;
        let next = outside.entry("alice", 10);
        ChainWriter::default()
            .append(&*store, &Namespace::new("t", "alice", None), &[next])
            .await
            .unwrap();
        assert_eq!(
            findings(&outside.verify().await),
            missing(from as u64, to as u64),
            "{from} to {to}, later"
        );
        // Until it would have expired.
        outside.clock.advance(KEPT);
        assert_eq!(
            findings(&outside.verify().await),
            [],
            "{from} to {to}, expired"
        );
    }
}

/// Everything else that can be done to the rows, and what is found.
async fn tricks(outside: impl Fn() -> Outside) {
    use AuditFinding as F;

    let delete = |what: &str| vec![format!("DELETE FROM memory_entries WHERE {what}")];
    let update =
        |set: &str, what: &str| vec![format!("UPDATE memory_entries SET {set} WHERE {what}")];
    let system = "space_id IN (SELECT id FROM memory_spaces WHERE subject = '' AND kind = 'head')";
    type Found = fn(&[AuditFinding]) -> bool;
    let cases: Vec<(&str, Vec<String>, Found)> = vec![
        ("head removed", delete(&of("alice", "head")), |found| {
            found.contains(&F::NoHead)
                && found.contains(&F::Callers {
                    expected: Some(2),
                    found: 1,
                })
        }),
        (
            "a caller removed whole",
            [delete(&of("alice", "head")), delete(&of("alice", "audit"))].concat(),
            |found| {
                found
                    == [F::Callers {
                        expected: Some(2),
                        found: 1,
                    }]
            },
        ),
        ("roster removed", delete(system), |found| {
            found
                == [F::Callers {
                    expected: None,
                    found: 2,
                }]
        }),
        (
            "head altered",
            update("value_nonce = value_ciphertext", &of("alice", "head")),
            |found| found.contains(&F::NoHead),
        ),
        (
            "head of another caller",
            update("version = version + 1", &of("alice", "head")),
            |found| found.contains(&F::NoHead),
        ),
        (
            "entry altered",
            update("value_ciphertext = value_nonce", &one(4)),
            |found| matches!(found, [F::Altered { .. }, F::Missing { from: 4, to: 4 }]),
        ),
        (
            "number altered",
            update(
                "attributes = replace(attributes, '\"number\":\"4\"', '\"number\":\"5\"')",
                &one(4),
            ),
            |found| matches!(found, [F::Altered { .. }, F::Missing { from: 4, to: 4 }]),
        ),
        (
            "link removed",
            update("attributes = '{}'", &one(9)),
            |found| matches!(found, [F::Altered { .. }, F::Missing { from: 9, to: 9 }]),
        ),
        (
            "expiry shortened",
            update("expires_at = expires_at - 3600000000", &one(9)),
            |found| found == [F::Missing { from: 9, to: 9 }],
        ),
        (
            "renamed",
            update("key = 'pack/t.one/9999'", &one(9)),
            |found| matches!(found, [F::Altered { .. }, F::Missing { from: 9, to: 9 }]),
        ),
    ];
    for (what, statements, expected) in cases {
        let outside = outside();
        let store = outside.open().await;
        outside.fill(&*store, &["alice", "bob"], 9).await;
        store.close().await.unwrap();
        for sql in &statements {
            (outside.sql)(sql);
        }
        let found = findings(&outside.verify().await);
        assert!(expected(&found), "{what}: {found:?}");
        let store = outside.open().await;
        let verified = outside.verify().await;
        accept(&*store, &verified, "operator", outside.clock.now())
            .await
            .unwrap();
        let left = findings(&outside.verify().await);
        let stays = |finding: &F| matches!(finding, F::Altered { .. } | F::NoHead);
        assert!(left.iter().all(stays), "{what}, accepted: {left:?}");
    }
}

/// An older head, an entry that was removed, and a whole chain that was removed, each put back.
async fn put_back(outside: impl Fn() -> Outside) {
    let (alice, columns) = (
        Namespace::new("t", "alice", None),
        "version, created_at, updated_at, key_id, fingerprint, \
         attributes, value_nonce, value_ciphertext",
    );
    // The head of four entries over that of nine.
    let outside_one = outside();
    let store = outside_one.open().await;
    outside_one.fill(&*store, &["alice"], 4).await;
    let writer = ChainWriter::default();
    writer
        .append(&*store, &alice, &[outside_one.entry("alice", 5)])
        .await
        .unwrap();
    (outside_one.sql)(&format!(
        "CREATE TABLE spare AS SELECT * FROM memory_entries WHERE {}",
        of("alice", "head")
    ));
    writer
        .append(&*store, &alice, &[outside_one.entry("alice", 6)])
        .await
        .unwrap();
    store.close().await.unwrap();
    let set: Vec<String> = columns
        .split(", ")
        .map(|name| format!("{name} = s.{name}"))
        .collect();
    (outside_one.sql)(&format!(
        "UPDATE memory_entries SET {} FROM spare s WHERE memory_entries.id = s.id",
        set.join(", ")
    ));
    (outside_one.sql)("DROP TABLE spare");
    assert_eq!(
        findings(&outside_one.verify().await),
        [AuditFinding::OldHead { number: 5 }]
    );

    // Entries that an administrator removed: of a pack, and all.
    for prefix in ["pack/t.one/", ""] {
        let outside = outside();
        let store = outside.open().await;
        outside.fill(&*store, &["alice", "bob"], 9).await;
        (outside.sql)(&format!(
            "CREATE TABLE spare AS SELECT * FROM memory_entries WHERE {}",
            one(4)
        ));
        let at = outside.clock.now();
        let gone = remove(&*store, &alice, prefix, "t/boss", at).await.unwrap();
        assert_eq!(gone, if prefix.is_empty() { 9 } else { 4 });
        let verified = outside.verify().await;
        assert_eq!(findings(&verified), [], "a removal is no cut");
        let told = verified
            .removed
            .iter()
            .map(|stone| (stone.by.as_str(), stone.user.as_str(), stone.calls));
        assert_eq!(told.collect::<Vec<_>>(), [("t/boss", "alice", gone * 10)]);
        ChainWriter::default()
            .append(&*store, &alice, &[outside.entry("alice", 50)])
            .await
            .unwrap();
        assert_eq!(
            findings(&outside.verify().await),
            [],
            "a chain begins again, or goes on"
        );
        store.close().await.unwrap();
        (outside.sql)(
            "UPDATE spare SET id = id + 100000, space_id = (SELECT id FROM memory_spaces WHERE subject = 'alice' AND kind = 'audit')",
        );
        (outside.sql)("INSERT INTO memory_entries OVERRIDING SYSTEM VALUE SELECT * FROM spare");
        (outside.sql)("DROP TABLE spare");
        let found = findings(&outside.verify().await);
        assert!(
            matches!(found.as_slice(), [AuditFinding::Stray { key }] if key == "pack/t.one/0004"),
            "{found:?}"
        );
    }
}

/// Two processes on one database write entries of one caller at the same time.
async fn writers(outside: Outside) {
    let stores = [outside.open().await, outside.open().await];
    let writing = (0..4).map(|writer: usize| {
        let store = Arc::clone(&stores[writer % 2]);
        let entries: Vec<AuditEntry> = (0..12)
            .map(|n| outside.entry("alice", writer * 100 + n))
            .collect();
        tokio::spawn(async move {
            let (chain, alice) = (ChainWriter::default(), Namespace::new("t", "alice", None));
            for entry in entries {
                while chain
                    .append(&*store, &alice, std::slice::from_ref(&entry))
                    .await
                    .is_err()
                {}
            }
        })
    });
    for task in writing.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let verified = outside.verify().await;
    assert_eq!(findings(&verified), []);
    assert_eq!(
        (verified.callers[0].entries, verified.callers.len()),
        (48, 1)
    );
}

pub(super) fn sqlite() -> Outside {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.db");
    let at = path.clone();
    let sql = move |sql: &str| {
        rusqlite::Connection::open(&at)
            .unwrap()
            .execute_batch(&sql.replace("OVERRIDING SYSTEM VALUE ", ""))
            .unwrap();
    };
    let url = format!("sqlite:{}", path.display());
    Outside {
        url,
        clock: Arc::default(),
        sql: Box::new(sql),
        _folder: Some(folder),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_audit_shows_every_cut() {
    cuts(sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_audit_shows_tampering() {
    tricks(sqlite).await;
    put_back(sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_writers_share_a_chain() {
    writers(sqlite()).await;
}

#[cfg(feature = "postgres")]
pub(super) mod on_postgres {
    use helmdeck_testkit::Postgres as Server;

    use super::*;

    pub(in crate::tests) fn postgres() -> Outside {
        let server = Server::shared();
        let url = server.database();
        let at = url.clone();
        let sql = move |sql: &str| server.sql(&at, sql);
        Outside {
            url,
            clock: Arc::default(),
            sql: Box::new(sql),
            _folder: None,
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn postgres_audit_shows_tampering() {
        tricks(postgres).await;
        put_back(postgres).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn postgres_writers_share_a_chain() {
        writers(postgres()).await;
    }
}

#[tokio::test]
async fn dropped_entries_of_a_full_namespace_are_no_cut() {
    let outside = sqlite();
    let mut config = Config::default();
    config.limits.kinds.insert(
        Kind::Audit,
        KindLimits {
            rows: Some(8),
            ..KindLimits::default()
        },
    );
    let store = outside.open_with(KEY_A, config.clone()).await;
    let (writer, alice) = (ChainWriter::default(), Namespace::new("t", "alice", None));
    for number in 1..=20 {
        writer
            .append(&*store, &alice, &[outside.entry("alice", number)])
            .await
            .unwrap();
        outside.clock.advance(Duration::from_secs(1));
    }
    let verified = verify(&*store, config.limits.quota(Kind::Audit), &*outside.clock)
        .await
        .unwrap();
    assert_eq!(findings(&verified), []);
    assert_eq!(
        (verified.callers[0].entries, verified.callers[0].dropped),
        (8, 12)
    );
    // With room left they are a cut.
    assert_eq!(findings(&outside.verify().await), missing(1, 12));
}

#[tokio::test]
async fn a_rotation_keeps_chains_whole() {
    let outside = sqlite();
    let store = outside.open().await;
    outside.fill(&*store, &["alice", "bob"], 5).await;
    store.close().await.unwrap();
    let store = outside.open_with(KEY_B, Config::default()).await;
    let keys = ring(KEY_B, Some(KEY_A));
    rotate(&*store, &keys, &CancellationToken::new(), &mut |_| {})
        .await
        .unwrap();
    outside.fill(&*store, &["carol"], 3).await;
    let verified = verify(
        &*store,
        Config::default().limits.quota(Kind::Audit),
        &*outside.clock,
    )
    .await
    .unwrap();
    assert_eq!((findings(&verified), verified.callers.len()), (vec![], 3));
}
