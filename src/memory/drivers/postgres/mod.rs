//! Rows in a PostgreSQL database that several replicas share.
//!
//! A task writes in groups, a pool of connections reads, one connection listens. Losing the server
//! is a temporary error; nothing has to be restarted.

mod apply;
mod connect;
mod db;
mod error;
mod flush;
mod listen;
mod locked;
mod locks;
mod migrate;
mod new_rows;
mod outbox;
mod purge;
mod queries;
mod reseal;
mod rows;
pub mod session;
mod tls;
mod totals;
mod url;
mod wide;
mod work;
mod writer;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use helmdeck_core::Timestamp;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;

use self::connect::{Asking, Dialer, within};
use self::db::{Database, Db};
use self::error::{Failure, Remedy};
use self::listen::Watcher;
use self::new_rows::RecentRows;
use self::outbox::Outbox;
use self::session::Connections;
use self::url::Target;
use self::writer::{Command, Waiting, WriteLimits, Writer, again};
use crate::config::Config;
use crate::driver::Driver;
use crate::entry::{Entry, Kind, Namespace};
use crate::error::{Result, StoreError};
use crate::ops::{
    Changes, ListPage, Mark, NamespaceStats, Order, Resealed, Scan, Stats, Walk, Written,
};
use crate::position::{CaughtUp, DeletePosition};
use crate::requests::{Batch, Canary, NamespaceOwner, PendingOp, Position, Range};
use crate::sealed::Seal;

/// The driver's name.
const NAME: &str = "postgres";

/// KiB of writes that may wait at once; more of them wait for their turn.
const WAITING_WRITE_KIB: usize = 64 << 10;

/// The longest key that fits into an entry of an index, with room for the rest of it.
const MAX_KEY_BYTES: usize = 2048;

/// The driver.
#[derive(Debug)]
pub struct Postgres {
    database: Database,
    writes: mpsc::UnboundedSender<Command>,
    write_permits: Arc<Semaphore>,
    outbox: Arc<Outbox>,
    /// The advisory lock that shows that this process is alive; 0 behind a pooler, which has no
    /// sessions.
    session: i64,
    watcher: AbortHandle,
    closed: AtomicBool,
    /// Whether other parts of the program use the connections.
    shares: bool,
}

/// Returns what may be shown of a URL: hosts and database, no user, password or parameter.
///
/// # Errors
/// `BadUrl`.
pub fn shown(url: &str) -> Result<String> {
    Ok(Target::parse(url)?.shown())
}

impl Postgres {
    /// Connects to a database, and creates missing tables.
    ///
    /// Call it within a tokio runtime that has time and network. The driver uses that runtime.
    ///
    /// # Errors
    /// `BadUrl` if the URL is not understood, or the server refuses the user or the database;
    /// `Corrupt` if the tables are those of a newer version or another program; `Unavailable`.
    pub async fn open(url: &str, config: &Config) -> Result<Self> {
        if config.limits.key_bytes > MAX_KEY_BYTES {
            return Err(StoreError::BadUrl(format!(
                "a PostgreSQL store takes keys up to {MAX_KEY_BYTES} bytes; the configuration allows {}",
                config.limits.key_bytes
            )));
        }
        let shared = Connections::shared(url, config);
        let database = match &shared {
            Some(shared) => shared.database().clone(),
            None => Database::new(
                Dialer::new(&Target::parse(url)?, config)?,
                config.postgres.pool_size.max(1),
            )?,
        };
        let dialer = database.dialer().clone();
        let outbox = Arc::new(Self::prepare(&database).await.map_err(at_open)?);
        dialer.check()?;
        let interval = config.postgres.watch_interval;
        let watcher = Watcher {
            outbox: Arc::clone(&outbox),
            dialer,
            database: database.clone(),
            interval,
        };
        let listening = watcher.connect().await.map_err(at_open)?;
        let session = if listening.is_some() { outbox.id } else { 0 };
        let watcher = tokio::spawn(watcher.run(listening)).abort_handle();
        let (writes, commands) = mpsc::unbounded_channel();
        let writer = Writer {
            database: database.clone(),
            outbox: Arc::clone(&outbox),
            purges: TaskTracker::new(),
            recent: RecentRows::default(),
            limits: WriteLimits::of(config),
        };
        tokio::spawn(writer.run(commands));
        let write_permits = Arc::new(Semaphore::new(WAITING_WRITE_KIB));
        Ok(Self {
            database,
            writes,
            write_permits,
            outbox,
            session,
            watcher,
            closed: AtomicBool::new(false),
            shares: shared.is_some(),
        })
    }

    /// Returns whether the tables exist. Creates nothing.
    ///
    /// # Errors
    /// As [`Postgres::open`].
    pub async fn exists(url: &str, config: &Config) -> Result<bool> {
        let look = async {
            let db = Database::new(Dialer::new(&Target::parse(url)?, config)?, 1)?
                .take()
                .await?;
            within(migrate::is_there(&db)).await
        };
        look.await.map_err(at_open)
    }

    async fn prepare(database: &Database) -> Result<Outbox, Failure> {
        let db = database.take().await?;
        let outcome = within(async { Outbox::open(&db, migrate::apply(&db).await?).await }).await;
        db.give_back(outcome).await
    }

    async fn read<T>(&self, ask: impl for<'c> Fn(&'c Db) -> Asking<'c, T> + Sync) -> Result<T> {
        self.check_open()?;
        self.database.read(ask).await
    }

    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            Err(StoreError::Closed)
        } else {
            Ok(())
        }
    }
}

/// Sweeps old rows of the outbox.
#[cfg(test)]
pub(crate) async fn sweep_changes(url: &str) -> Result<()> {
    let database = Database::new(Dialer::new(&Target::parse(url)?, &Config::default())?, 1)?;
    database.read(|db| Box::pin(outbox::sweep(db))).await
}

/// Turns a startup error that only the operator can fix into `BadUrl`.
fn at_open(failure: Failure) -> StoreError {
    match (failure.remedy, failure.error) {
        (Remedy::Operator, StoreError::Unavailable { message, .. }) => {
            StoreError::BadUrl(format!("the PostgreSQL server refuses: {message}"))
        }
        (_, error) => error,
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The writer ends when every sender is dropped.
        self.watcher.abort();
    }
}

#[async_trait]
impl Driver for Postgres {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn canary(&self, fresh: Canary) -> Result<Canary> {
        self.read(|db| {
            let fresh = fresh.clone();
            Box::pin(async move {
                let insert = "INSERT INTO memory_canary (id, key_id, sealed) VALUES (1, $1, $2) ON CONFLICT DO NOTHING";
                db.execute(insert, &[&fresh.key_id, &fresh.sealed]).await?;
                let row = db.query_one("SELECT key_id, sealed FROM memory_canary", &[]).await?;
                Ok(Canary { key_id: row.try_get(0)?, sealed: row.try_get(1)? })
            })
        })
        .await
    }

    async fn get(
        &self,
        namespace: &Namespace,
        kind: Kind,
        key: &str,
        now: Timestamp,
        seal: &Arc<dyn Seal>,
    ) -> Result<Option<Entry>> {
        self.read(|db| {
            let (namespace, key, seal) = (namespace.clone(), key.to_owned(), Arc::clone(seal));
            Box::pin(async move { queries::by_key(db, &namespace, kind, &key, now, &seal).await })
        })
        .await
    }

    async fn list(&self, range: Range, after: Option<Position>, limit: usize) -> Result<ListPage> {
        self.read(|db| {
            let (range, after) = (range.clone(), after.clone());
            Box::pin(async move { queries::list(db, &range, after.as_ref(), limit).await })
        })
        .await
    }

    async fn scan(
        &self,
        range: Range,
        order: Order,
        limit: usize,
        seal: &Arc<dyn Seal>,
    ) -> Result<Scan> {
        self.read(|db| {
            let (range, seal) = (range.clone(), Arc::clone(seal));
            Box::pin(async move { queries::scan(db, &range, order, limit, &seal).await })
        })
        .await
    }

    async fn namespaces(
        &self,
        of: Option<NamespaceOwner>,
        now: Timestamp,
    ) -> Result<Vec<NamespaceStats>> {
        self.read(|db| {
            let of = of.clone();
            Box::pin(async move { totals::namespaces(db, of.as_ref(), now).await })
        })
        .await
    }

    async fn stats(&self, now: Timestamp) -> Result<Stats> {
        self.read(|db| Box::pin(totals::stats(db, now))).await
    }

    async fn generation(&self) -> Result<u64> {
        self.read(|db| {
            let outbox = Arc::clone(&self.outbox);
            Box::pin(async move { outbox.read(db).await })
        })
        .await
    }

    async fn write(&self, batch: Batch) -> Result<Vec<Written>> {
        self.check_open()?;
        let kib = batch
            .ops
            .iter()
            .map(PendingOp::weight)
            .sum::<usize>()
            .div_ceil(1024)
            .clamp(1, WAITING_WRITE_KIB);
        let permits = Arc::clone(&self.write_permits)
            .acquire_many_owned(u32::try_from(kib).unwrap_or(1))
            .await;
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting {
            batch: Arc::new(batch),
            reply,
            _permit: permits.map_err(|_| StoreError::Closed)?,
        };
        self.writes
            .send(Command::Write(waiting))
            .map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    async fn walk(&self, after: Option<Mark>, limit: usize, seal: &Arc<dyn Seal>) -> Result<Walk> {
        self.read(|db| {
            let (after, seal) = (after.clone(), Arc::clone(seal));
            Box::pin(async move { queries::walk(db, after.as_ref(), limit, &seal).await })
        })
        .await
    }

    async fn reseal(
        &self,
        after: Option<Mark>,
        limit: usize,
        current: &str,
        seal: &Arc<dyn Seal>,
    ) -> Result<Resealed> {
        self.check_open()?;
        let (database, current, seal) =
            (self.database.clone(), current.to_owned(), Arc::clone(seal));
        // Not in the caller's future: were it dropped, the transaction would stay open in the pool.
        let step = tokio::spawn(async move {
            let mut tries = 0;
            loop {
                let db = database.take().await.map_err(|failure| failure.error)?;
                let outcome =
                    within(reseal::step(&db, after.as_ref(), limit, &current, &seal)).await;
                match db.give_back(outcome).await {
                    Ok(resealed) => return Ok(resealed),
                    Err(failure) => again(failure, &mut tries).await?,
                }
            }
        });
        step.await.map_err(StoreError::unavailable)?
    }

    async fn mark_read(&self, reads: HashMap<Namespace, HashSet<String>>) -> Result<()> {
        let reads = Arc::new(reads);
        self.read(|db| {
            let reads = Arc::clone(&reads);
            Box::pin(async move { wide::mark_read(db, &reads).await })
        })
        .await
    }

    async fn replace_canary(&self, canary: Canary) -> Result<()> {
        self.read(|db| {
            let canary = canary.clone();
            Box::pin(async move {
                let replace = "INSERT INTO memory_canary (id, key_id, sealed) VALUES (1, $1, $2)
                               ON CONFLICT (id) DO UPDATE SET key_id = excluded.key_id, sealed = excluded.sealed";
                db.execute(replace, &[&canary.key_id, &canary.sealed]).await?;
                Ok(())
            })
        })
        .await
    }

    async fn adopt_if_empty(&self, canary: Canary, now: Timestamp) -> Result<bool> {
        self.read(|db| {
            let canary = canary.clone();
            Box::pin(async move {
                let adopt = "UPDATE memory_canary SET key_id = $1, sealed = $2 WHERE NOT EXISTS
                             (SELECT 1 FROM memory_entries WHERE expires_at IS NULL OR expires_at > $3)";
                Ok(db.execute(adopt, &[&canary.key_id, &canary.sealed, &now.micros()]).await? > 0)
            })
        })
        .await
    }

    async fn try_lock(
        &self,
        name: &str,
        owner: &str,
        _now: Timestamp,
        hold: Duration,
    ) -> Result<bool> {
        let session = self.session;
        self.read(|db| {
            let (name, owner) = (name.to_owned(), owner.to_owned());
            Box::pin(async move { locks::take(db, &name, &owner, hold, session).await })
        })
        .await
    }

    async fn unlock(&self, name: &str, owner: &str) -> Result<()> {
        self.read(|db| {
            let (name, owner) = (name.to_owned(), owner.to_owned());
            Box::pin(async move { locks::free(db, &name, &owner).await })
        })
        .await
    }

    async fn redact_changes(&self, subject: &str) -> Result<()> {
        let name = outbox::written_name(subject);
        self.read(|db| {
            let name = name.clone();
            Box::pin(async move { outbox::redact(db, &name).await })
        })
        .await
    }

    fn changes(&self) -> Option<Changes> {
        Some(self.outbox.subscribe())
    }

    fn position(&self) -> Option<DeletePosition> {
        self.outbox.position()
    }

    async fn catch_up(&self, position: Option<&DeletePosition>) -> Result<CaughtUp> {
        self.check_open()?;
        self.outbox.catch_up(&self.database, position).await
    }

    async fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let (reply, answer) = oneshot::channel();
        if self.writes.send(Command::Close(reply)).is_ok() {
            let _ = answer.await;
        }
        self.watcher.abort();
        if !self.shares {
            self.database.close();
        }
        Ok(())
    }
}
