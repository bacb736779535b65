//! Outbox of deletes: each delete writes a row in its own transaction, and every replica reads the
//! rows by a cursor.
//!
//! The cursor is the snapshot of the last read. What that snapshot did not see is new, in whatever
//! order transactions commit, so nothing is skipped and nothing is read twice. Reading needs no
//! lock and no session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aes_gcm::aead::Generate;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, broadcast};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::db::{Database, Db};
use super::error::Outcome;
use super::rows::get;
use crate::entry::{Kind, Namespace, Reach};
use crate::error::{Result, StoreError};
use crate::ops::{Change, Changes, Delete};
use crate::position::{CaughtUp, DeletePosition, ServerRun};

/// The longest list of deletes in a row; a longer one says "anything".
const PAYLOAD_BYTES: usize = 64 << 10;

/// Notifications that are kept for a slow subscriber. It learns when it missed some.
const CHANGES: usize = 1024;

/// A replica that did not read for so long, in microseconds, may have missed rows.
///
/// It is half of the retention, because a row gets its time before its commit.
const MAX_GAP: i64 = 5 * 60 * 1_000_000;

/// Limit of rows per read; more mean "anything".
const MAX_ROWS: usize = 10_000;
/// One more than are used.
const LIMIT: i64 = 10_001;

/// Columns that say which server answers ([`server_run`]). On a standby that is not promoted they
/// fail.
macro_rules! server_columns {
    () => {
        "(SELECT system_identifier FROM pg_control_system()),
         ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint,
         (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"
    };
}
/// Rows that the snapshot of the cursor did not see: of later transactions, and of those that ran
/// then.
const READ: &str = concat!(
    "SELECT pg_current_snapshot()::text, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, c.origin, c.payload, ",
    server_columns!(),
    " FROM (VALUES (1)) AS one (n)
      LEFT JOIN LATERAL (SELECT origin, payload FROM memory_changes WHERE xact >= $1
                         UNION ALL SELECT origin, payload FROM memory_changes WHERE xact = ANY($2) LIMIT $3) c ON true"
);
/// Adds a row. Returns its transaction, and which server it is on.
pub(super) const ANNOUNCE: &str = concat!(
    "INSERT INTO memory_changes (origin, payload) VALUES ($1, $2) RETURNING xact, ",
    server_columns!()
);
/// The oldest rows, as far as they are past the retention of ten minutes, by the server's clock.
const SWEEP: &str = "
DELETE FROM memory_changes WHERE ctid = ANY(ARRAY(
    SELECT o.ctid FROM (SELECT ctid, at FROM memory_changes ORDER BY xact LIMIT $1) o WHERE o.at < now() - interval '10 minutes'))";
/// Rows that have a name; an empty payload means that anything may have changed.
const REDACT: &str = "UPDATE memory_changes SET payload = '' WHERE strpos(payload, $1) > 0";
/// Rows per step of a sweep.
const SWEEP_ROWS: i64 = 5000;

/// Position of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The first transaction after the snapshot.
    next: i64,
    /// Transactions that ran at the time of the snapshot.
    running: Vec<i64>,
    /// Which server it was: another one may count other transactions.
    server: ServerRun,
    /// The time of the snapshot by the server's clock, in Unix microseconds.
    at: i64,
}

/// New rows, and the position after them.
#[derive(Debug)]
pub(super) struct NewRows {
    cursor: Cursor,
    rows: Vec<(i64, String)>,
}

/// The outbox of one database, as this process reads and writes it.
#[derive(Debug)]
pub(super) struct Outbox {
    /// The channel of wake-ups that all replicas on the same tables share.
    pub(super) channel: String,
    /// Random id of this process: it skips its own rows, and names its advisory lock.
    pub(super) id: i64,
    cursor: Mutex<Cursor>,
    /// When the last read that was answered was sent: later deletes may be unknown.
    read_at: Mutex<Instant>,
    /// Number of deletes seen, of this process too.
    generation: AtomicU64,
    changes: broadcast::Sender<Change>,
    /// Number of marks sent.
    marks: AtomicU64,
    /// Deletes of this process.
    own: Mutex<OwnDeletes>,
    /// Asks for a wake-up of the other replicas.
    pub(super) written: Notify,
}

/// Transaction that wrote a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Transaction {
    /// Its number.
    pub(super) id: i64,
    /// Which server it was.
    pub(super) server: ServerRun,
}

/// The last deletes of this process: those that no later one is known to follow.
///
/// Whoever sees a transaction sees everything that was committed before it began. So one
/// transaction stands for all that this process had committed by then, and several are named only
/// if they ran at the same time.
#[derive(Debug, Default)]
struct OwnDeletes {
    /// Number of commits so far.
    commits: u64,
    /// The last transactions, each with its number among the commits.
    last: Vec<(u64, Transaction)>,
}

impl OwnDeletes {
    /// Adds a transaction that began after the first `began` commits.
    fn add(&mut self, began: u64, transaction: Transaction) {
        // After a restart of the server every reader assumes that anything changed before it.
        self.last
            .retain(|(commit, earlier)| *commit > began && earlier.server == transaction.server);
        self.commits += 1;
        self.last.push((self.commits, transaction));
    }
}

/// A delete as it is written.
#[derive(Debug, Serialize, Deserialize)]
enum Deleted {
    #[serde(rename = "k")]
    Key(Whose, Kind, String),
    #[serde(rename = "p")]
    Prefix(Option<Whose>, Option<Kind>, String),
    #[serde(rename = "t")]
    Tagged(Option<Whose>, Kind, String),
    /// Tenant and subject of a caller.
    #[serde(rename = "c")]
    TaggedFor(String, String, Kind, String),
}

/// Tenant, subject and session.
type Whose = (String, String, Option<String>);

impl Cursor {
    /// The position before any read: it covers no row.
    const NONE: Self = Self {
        next: i64::MAX,
        running: Vec::new(),
        server: ServerRun {
            system: 0,
            timeline: 0,
            started: 0,
        },
        at: 0,
    };

    /// Returns statement, parameters and their types of a read.
    pub(super) fn read(&self) -> (&'static str, [(&(dyn ToSql + Sync), Type); 3]) {
        let params: [(&(dyn ToSql + Sync), Type); 3] = [
            (&self.next, Type::INT8),
            (&self.running, Type::INT8_ARRAY),
            (&LIMIT, Type::INT8),
        ];
        (READ, params)
    }

    /// Returns whether the snapshot saw every transaction of a position; `is_new` if it was taken
    /// after the position was.
    ///
    /// The read that noticed a restart, a failover or another system told subscribers that anything
    /// changed. So a new snapshot of another server covers the position, unless this process still
    /// reads from the former primary.
    fn covers(&self, position: &DeletePosition, is_new: bool) -> bool {
        let saw =
            |transaction: &i64| *transaction < self.next && !self.running.contains(transaction);
        let (then, now) = (position.server, self.server);
        if then == now {
            return position.transactions.iter().all(saw);
        }
        if is_new {
            return then.system != now.system || then.timeline <= now.timeline;
        }
        then.system == now.system && (then.timeline, then.started) < (now.timeline, now.started)
    }

    /// Returns whether rows between two positions may be missing.
    fn has_gap(&self, later: &Self) -> bool {
        *self != Self::NONE
            && (later.server != self.server
                || later.next < self.next
                || later.at - self.at > MAX_GAP)
    }
}

impl NewRows {
    /// Reads the answer to a read.
    ///
    /// # Errors
    /// `Corrupt` if the server's snapshot makes no sense.
    pub(super) fn of(found: &[Row]) -> Outcome<Self> {
        let odd = || {
            StoreError::Corrupt("the snapshot of the PostgreSQL server makes no sense".to_owned())
        };
        let first = found.first().ok_or_else(odd)?;
        let snapshot = first.try_get::<_, &str>(0)?;
        let mut parts = snapshot.split(':').skip(1);
        let next = parts
            .next()
            .and_then(|next| next.parse().ok())
            .ok_or_else(odd)?;
        let running = parts
            .next()
            .unwrap_or_default()
            .split(',')
            .filter(|xact| !xact.is_empty());
        let running = running.map(|xact| xact.parse::<i64>().map_err(|_| odd()));
        let running = running.collect::<Result<Vec<i64>>>()?;
        let rows = found
            .iter()
            .filter_map(|row| Some((get(row, 2)?, get(row, 3)?)))
            .collect();
        let server = server_run(first, 4).ok_or_else(odd)?;
        let cursor = Cursor {
            next,
            running,
            server,
            at: first.try_get(1)?,
        };
        Ok(Self { cursor, rows })
    }
}

impl Outbox {
    /// Makes a reader that starts at this moment.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(super) async fn open(db: &Db, channel: String) -> Outcome<Self> {
        let id = <[u8; 8]>::try_generate().map_err(StoreError::unavailable)?;
        let start = Cursor::NONE;
        let found = db
            .query(READ, &[&start.next, &start.running, &LIMIT])
            .await?;
        Ok(Self {
            channel,
            id: i64::from_le_bytes(id),
            cursor: Mutex::new(NewRows::of(&found)?.cursor),
            read_at: Mutex::new(Instant::now()),
            generation: AtomicU64::new(0),
            changes: broadcast::channel(CHANGES).0,
            marks: AtomicU64::new(0),
            own: Mutex::default(),
            written: Notify::new(),
        })
    }

    /// Returns how many deletes this process has committed. Ask before a transaction begins, for
    /// [`Outbox::committed`].
    pub(super) fn commits(&self) -> u64 {
        self.own.lock().commits
    }

    /// Records a transaction of this process that deleted and began after so many commits, and
    /// wakes other replicas.
    pub(super) fn committed(&self, began: u64, transaction: Option<Transaction>) {
        if let Some(transaction) = transaction {
            self.own.lock().add(began, transaction);
        }
        self.written.notify_one();
    }

    /// Returns the position after the deletes of this process; `None` if too many ran at the same
    /// time.
    pub(super) fn position(&self) -> Option<DeletePosition> {
        let server = self.cursor.lock().server;
        let own = self.own.lock();
        let server = own.last.last().map_or(server, |(_, last)| last.server);
        DeletePosition::new(
            server,
            own.last
                .iter()
                .map(|(_, transaction)| transaction.id)
                .collect(),
        )
    }

    /// Reads up to a position, if that was not read yet, and sends a mark; `None` is the moment of
    /// the call.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(super) async fn catch_up(
        self: &Arc<Self>,
        database: &Database,
        position: Option<&DeletePosition>,
    ) -> Result<CaughtUp> {
        if !position.is_some_and(|position| self.cursor.lock().covers(position, false)) {
            let read = database.read(|db| {
                let outbox = Arc::clone(self);
                Box::pin(async move { outbox.read(db).await })
            });
            read.await?;
            if position.is_some_and(|position| !self.cursor.lock().covers(position, true)) {
                return Ok(CaughtUp::Behind);
            }
        }
        let mark = self.marks.fetch_add(1, Ordering::AcqRel) + 1;
        self.send(Change::Mark(mark));
        Ok(CaughtUp::Mark(mark))
    }

    /// Returns the position of the last read.
    pub(super) fn cursor(&self) -> Cursor {
        self.cursor.lock().clone()
    }

    /// Reads new rows over a connection of the pool, and returns the number of deletes seen so far.
    pub(super) async fn read(&self, db: &Db) -> Outcome<u64> {
        loop {
            let (from, sent) = (self.cursor(), Instant::now());
            let found = db.query(READ, &[&from.next, &from.running, &LIMIT]).await?;
            if self.accept(&from, NewRows::of(&found)?, sent) {
                return Ok(self.generation.load(Ordering::Acquire));
            }
        }
    }

    /// Takes over what was read from a position by a read that was sent at `sent`; `false` if
    /// another read was faster.
    pub(super) fn accept(&self, from: &Cursor, new_rows: NewRows, sent: Instant) -> bool {
        let mut cursor = self.cursor.lock();
        if *cursor != *from {
            return false;
        }
        *self.read_at.lock() = sent;
        if from.has_gap(&new_rows.cursor) || new_rows.rows.len() > MAX_ROWS {
            self.count(1);
            self.send(Change::Anything);
        } else {
            self.count(new_rows.rows.len());
            let others = new_rows
                .rows
                .iter()
                .filter(|(origin, _)| *origin != self.id);
            others
                .flat_map(|(_, payload)| changes(payload))
                .for_each(|change| self.send(change));
        }
        *cursor = new_rows.cursor;
        true
    }

    fn count(&self, rows: usize) {
        self.generation.fetch_add(rows as u64, Ordering::AcqRel);
    }

    fn send(&self, change: Change) {
        // There may be no subscriber.
        let _ = self.changes.send(change);
    }

    /// Subscribes to the deletes of other processes.
    pub(super) fn subscribe(&self) -> Changes {
        self.changes.subscribe()
    }

    /// Returns how long ago the last read that was answered was sent.
    fn unread_for(&self) -> Duration {
        self.read_at.lock().elapsed()
    }

    /// Reports that anything may have changed when the outbox could not be read for `limit`, and
    /// again after each further `limit`, so that no answer in memory outlives a delete by much
    /// more.
    pub(super) async fn report_unread(self: Arc<Self>, limit: Duration) {
        loop {
            let unread = self.unread_for();
            if unread < limit {
                tokio::time::sleep(limit - unread).await;
                continue;
            }
            tracing::debug!(
                "what other replicas delete is not known: the PostgreSQL server does not answer"
            );
            self.send(Change::Anything);
            tokio::time::sleep(limit).await;
        }
    }
}

/// Reads the columns of `server_columns!`, from the first of them on.
pub(super) fn server_run(row: &Row, first: usize) -> Option<ServerRun> {
    Some(ServerRun {
        system: get(row, first)?,
        timeline: get(row, first + 1)?,
        started: get(row, first + 2)?,
    })
}

/// Deletes rows past the retention, in steps of one transaction each.
pub(super) async fn sweep(db: &Db) -> Outcome<()> {
    // A step may delete fewer than it looks at: rows are in the order of transactions, not quite in
    // that of time.
    while db.execute(SWEEP, &[&SWEEP_ROWS]).await? > 0 {}
    Ok(())
}

/// Returns a name as payloads have it.
pub(super) fn written_name(name: &str) -> String {
    serde_json::to_string(name).unwrap_or_default()
}

/// Empties the payloads that have a name.
pub(super) async fn redact(db: &Db, name: &str) -> Outcome<()> {
    db.execute(REDACT, &[&name]).await.map(drop)
}

/// Writes the payload of a row.
pub(super) fn payload(deletes: &[Delete]) -> String {
    let deleted: Vec<Deleted> = deletes.iter().map(Deleted::of).collect();
    let payload = serde_json::to_string(&deleted).unwrap_or_default();
    if payload.len() > PAYLOAD_BYTES {
        String::new()
    } else {
        payload
    }
}

/// Reads a payload of another process.
fn changes(payload: &str) -> Vec<Change> {
    match serde_json::from_str::<Vec<Deleted>>(payload) {
        Ok(deleted) => deleted
            .into_iter()
            .map(|deleted| Change::Deleted(deleted.into_delete()))
            .collect(),
        // Too many to list, or written by another version.
        Err(_) => vec![Change::Anything],
    }
}

impl Deleted {
    fn of(delete: &Delete) -> Self {
        let whose = |namespace: &Namespace| {
            let session = namespace.session.as_deref().map(ToOwned::to_owned);
            (
                namespace.tenant.to_string(),
                namespace.subject.to_string(),
                session,
            )
        };
        match delete {
            Delete::Key {
                namespace,
                kind,
                key,
            } => Self::Key(whose(namespace), *kind, key.clone()),
            Delete::Prefix {
                namespace,
                kind,
                prefix,
            } => Self::Prefix(namespace.as_ref().map(whose), *kind, prefix.clone()),
            Delete::Tagged {
                whose: Reach::Everybody,
                kind,
                tag,
            } => Self::Tagged(None, *kind, tag.clone()),
            Delete::Tagged {
                whose: Reach::One(namespace),
                kind,
                tag,
            } => Self::Tagged(Some(whose(namespace)), *kind, tag.clone()),
            Delete::Tagged {
                whose: Reach::Caller { tenant, subject },
                kind,
                tag,
            } => Self::TaggedFor(tenant.to_string(), subject.to_string(), *kind, tag.clone()),
        }
    }

    fn into_delete(self) -> Delete {
        let namespace = |(tenant, subject, session): Whose| {
            Namespace::new(&tenant, &subject, session.as_deref())
        };
        match self {
            Self::Key(whose, kind, key) => Delete::Key {
                namespace: namespace(whose),
                kind,
                key,
            },
            Self::Prefix(whose, kind, prefix) => Delete::Prefix {
                namespace: whose.map(namespace),
                kind,
                prefix,
            },
            Self::Tagged(whose, kind, tag) => Delete::Tagged {
                whose: whose.map_or(Reach::Everybody, |whose| Reach::One(namespace(whose))),
                kind,
                tag,
            },
            Self::TaggedFor(tenant, subject, kind, tag) => {
                let whose = Reach::Caller {
                    tenant: tenant.into(),
                    subject: subject.into(),
                };
                Delete::Tagged { whose, kind, tag }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(timeline: i64, started: i64) -> ServerRun {
        ServerRun {
            system: 1,
            timeline,
            started,
        }
    }

    #[test]
    fn late_answer_is_as_old_as_its_question() {
        let cursor = Cursor {
            next: 10,
            running: Vec::new(),
            server: run(1, 5),
            at: 0,
        };
        let outbox = Outbox {
            channel: String::new(),
            id: 1,
            cursor: Mutex::new(cursor.clone()),
            read_at: Mutex::new(Instant::now()),
            generation: AtomicU64::new(0),
            changes: broadcast::channel(1).0,
            marks: AtomicU64::new(0),
            own: Mutex::default(),
            written: Notify::new(),
        };
        let (sent, age) = (Instant::now(), Duration::from_millis(20));
        std::thread::sleep(age);
        assert!(outbox.accept(
            &cursor,
            NewRows {
                cursor: cursor.clone(),
                rows: Vec::new()
            },
            sent
        ));
        assert!(
            outbox.unread_for() >= age,
            "what was deleted since the question is not in the answer"
        );
    }

    #[test]
    fn payload_names_deletes() {
        let alice = Namespace::new("t", "al\0ice", Some(""));
        let deletes = [
            Delete::Key {
                namespace: alice.clone(),
                kind: Kind::Note,
                key: "k\"\0😀".into(),
            },
            Delete::Prefix {
                namespace: None,
                kind: None,
                prefix: String::new(),
            },
            Delete::Prefix {
                namespace: Some(alice),
                kind: Some(Kind::Cache),
                prefix: "p".into(),
            },
            Delete::Tagged {
                whose: Reach::Everybody,
                kind: Kind::Cache,
                tag: "x".into(),
            },
            Delete::Tagged {
                whose: Reach::One(Namespace::new("t", "", None)),
                kind: Kind::Fact,
                tag: "x".into(),
            },
            Delete::Tagged {
                whose: Reach::Caller {
                    tenant: "t".into(),
                    subject: "al\0ice".into(),
                },
                kind: Kind::Cache,
                tag: "x".into(),
            },
        ];
        let written = payload(&deletes);
        assert!(!written.contains('\0'), "{written}");
        assert_eq!(changes(&written), deletes.map(Change::Deleted));
    }

    #[test]
    fn too_much_to_say_or_nonsense_means_anything() {
        let one = |length| Delete::Prefix {
            namespace: None,
            kind: None,
            prefix: "p".repeat(length),
        };
        for deletes in [
            vec![one(70_000)],
            vec![one(500); 200],
            vec![one(0); 100_000],
        ] {
            assert_eq!(changes(&payload(&deletes)), [Change::Anything]);
        }
        assert_eq!(changes(""), [Change::Anything]);
        assert_eq!(changes("[{\"z\":1}]"), [Change::Anything]);
    }

    #[test]
    fn positions_are_covered_by_what_the_snapshot_saw() {
        let cursor = Cursor {
            next: 10,
            running: vec![7],
            server: run(2, 5),
            at: 0,
        };
        let covers = |is_new, server, transactions: &[i64]| {
            cursor.covers(
                &DeletePosition::new(server, transactions.to_vec()).unwrap(),
                is_new,
            )
        };
        let other_system = ServerRun {
            system: 9,
            ..run(2, 5)
        };
        for is_new in [false, true] {
            let covers = |server, transactions: &[i64]| covers(is_new, server, transactions);
            assert!(covers(run(2, 5), &[]) && covers(run(2, 5), &[6, 9]), "seen");
            assert!(
                !covers(run(2, 5), &[9, 7]),
                "it ran at the time of the snapshot, though a later one was committed"
            );
            assert!(!covers(run(2, 5), &[10]), "it began later");
            assert!(covers(run(2, 4), &[99]), "before a restart");
            assert!(
                covers(run(1, 6), &[99]),
                "of a former primary, which started later"
            );
            assert!(!covers(run(3, 1), &[1]), "of a later primary");
            // A clock that was wrong when the server started, or a copy of the database on another
            // system.
            assert_eq!(covers(run(2, 6), &[99]), is_new);
            assert_eq!(covers(other_system, &[1]), is_new);
        }
    }

    #[test]
    fn position_names_what_no_later_transaction_stands_for() {
        let mut own = OwnDeletes::default();
        let at = |started| {
            move |id| Transaction {
                id,
                server: run(1, started),
            }
        };
        let ids = |own: &OwnDeletes| {
            own.last
                .iter()
                .map(|(_, transaction)| transaction.id)
                .collect::<Vec<_>>()
        };
        own.add(0, at(1)(20));
        assert_eq!(ids(&own), [20]);
        // Two that ran at the same time; the second has the smaller number.
        own.add(1, at(1)(22));
        own.add(1, at(1)(21));
        assert_eq!(ids(&own), [22, 21]);
        // One that began between their commits stands for the first only.
        own.add(2, at(1)(30));
        assert_eq!(ids(&own), [21, 30]);
        own.add(4, at(1)(31));
        assert_eq!(ids(&own), [31]);
        own.add(4, at(2)(1));
        assert_eq!(ids(&own), [1], "of a server that was started again");
    }

    #[test]
    fn gaps_are_found_by_time_and_server() {
        let then = Cursor {
            next: 10,
            running: vec![7],
            server: run(1, 1),
            at: 0,
        };
        let now = |next, started, at| Cursor {
            next,
            running: Vec::new(),
            server: run(1, started),
            at,
        };
        assert!(!then.has_gap(&now(10, 1, 5)) && !then.has_gap(&now(99, 1, MAX_GAP)));
        assert!(
            then.has_gap(&now(99, 1, MAX_GAP + 1)),
            "rows may have been swept"
        );
        assert!(then.has_gap(&now(99, 2, 5)), "another server");
        assert!(then.has_gap(&now(9, 1, 5)), "transactions were lost");
        assert!(!Cursor::NONE.has_gap(&now(9, 1, 5)));
    }
}
