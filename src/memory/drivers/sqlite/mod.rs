//! SQLite driver: one writer thread that groups commits, and a few reader threads.
//!
//! Each thread has its own connection. Several processes may use one file at a time. SQLite is
//! never called on the caller's thread.

mod apply;
mod error;
pub mod file;
mod free_row_ids;
mod locks;
pub mod migrate;
mod pool;
mod queries;
mod ranges;
mod reserve;
mod room;
mod rows;
mod tidy;
mod usage;
mod walk;
mod work_queue;
mod writer;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use crossbeam_channel::Sender;
use helmdeck_core::Timestamp;
use rusqlite::TransactionBehavior;
use tokio::sync::{Semaphore, oneshot};

use self::file::DatabaseFile;
use self::migrate::Migrations;
use self::pool::{ConnectionPool, PooledConnection, WRITER};
use self::work_queue::WorkQueue;
use self::writer::{Command, Waiting, Writer};
use crate::config::Config;
use crate::driver::Driver;
use crate::entry::{Entry, Kind, Namespace};
use crate::error::{Result, StoreError};
use crate::ops::{ListPage, Mark, NamespaceStats, Order, Resealed, Scan, Stats, Walk, Written};
use crate::requests::{Batch, Canary, NamespaceOwner, PendingOp, Position, Range};
use crate::sealed::Seal;

static MIGRATIONS: Migrations = Migrations {
    ledger: "memory_migrations",
    steps: &[
        (
            "entries",
            include_str!("../../migrations/sqlite/0001_entries.sql"),
        ),
        (
            "room",
            include_str!("../../migrations/sqlite/0002_room.sql"),
        ),
    ],
    additions: &[(
        "sieve",
        include_str!("../../migrations/sqlite/0003_sieve.sql"),
    )],
};

/// How long a caller spins for a point read if a reader is awake: a few times its duration.
const SPIN: Duration = Duration::from_micros(50);
/// Most reads in the queue; more of them wait outside.
const WAITING_READS: usize = 1024;
/// Most KiB of writes in the queue; more of them wait outside.
const WAITING_WRITE_KIB: usize = 64 << 10;

/// The driver.
#[derive(Debug)]
pub struct Sqlite {
    pool: Arc<ConnectionPool>,
    reads: Arc<WorkQueue<Read>>,
    writes: Sender<Command>,
    read_permits: Arc<Semaphore>,
    write_permits: Arc<Semaphore>,
    readers: usize,
    closed: AtomicBool,
    locked: bool,
}

/// Query to run on a connection.
type Query = Box<dyn FnOnce(&ConnectionPool, usize) + Send>;

/// Command of a reader thread.
enum Read {
    Run(Query),
    Stop(oneshot::Sender<()>),
}

impl Sqlite {
    /// Opens a file; creates it with mode 0600 (its folder with 0700) if missing. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// `Corrupt` if it is not a database, or not one of this program or version; `Unavailable`.
    pub fn open(path: impl Into<PathBuf>, config: &Config) -> Result<Self> {
        let readers = config.readers.max(1);
        let log_bytes = (config.limits.cache_bytes / 32).clamp(1 << 20, 16 << 20);
        let file = DatabaseFile::new(path.into(), config.busy_timeout, log_bytes, &MIGRATIONS);
        let pool = Arc::new(ConnectionPool::open(file, readers)?);
        let locked = pool.is_locked()?;
        let reads = Arc::new(WorkQueue::new(readers));
        let (writes, write_queue) = crossbeam_channel::unbounded();
        for index in WRITER + 1..=readers {
            let (pool, reads) = (Arc::clone(&pool), Arc::clone(&reads));
            spawn(format!("memory-read-{index}"), move || {
                read(&pool, index, &reads)
            })?;
        }
        let writer = Writer::new(Arc::clone(&pool), write_queue, locked);
        spawn("memory-write".to_owned(), move || writer.run())?;
        Ok(Self {
            pool,
            reads,
            writes,
            read_permits: Arc::new(Semaphore::new(WAITING_READS)),
            write_permits: Arc::new(Semaphore::new(WAITING_WRITE_KIB)),
            readers,
            closed: AtomicBool::new(false),
            locked,
        })
    }

    /// Returns whether another process held the write lock at the time of opening. Reads work
    /// regardless.
    #[must_use]
    pub const fn was_locked(&self) -> bool {
        self.locked
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.pool.file().path()
    }

    /// Runs a query on a reading thread. Dropping the future drops the query if it has not started.
    async fn read<T: Send + 'static>(
        &self,
        look: bool,
        query: impl FnOnce(&ConnectionPool, &mut PooledConnection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, _) = self.ask(look, query).await?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// As [`Sqlite::read`], for a query that takes microseconds.
    ///
    /// If a reader thread is awake, the caller spins for the answer.
    async fn read_point<T: Send + 'static>(
        &self,
        query: impl FnOnce(&ConnectionPool, &mut PooledConnection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (mut answer, awake) = self.ask(false, query).await?;
        if awake {
            let end = Instant::now() + SPIN;
            while Instant::now() < end {
                match answer.try_recv() {
                    Ok(answer) => return answer,
                    Err(oneshot::error::TryRecvError::Empty) => std::hint::spin_loop(),
                    Err(oneshot::error::TryRecvError::Closed) => return Err(StoreError::Closed),
                }
            }
        }
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Hands a query to a reading thread; says whether the thread was awake for it.
    async fn ask<T: Send + 'static>(
        &self,
        look: bool,
        query: impl FnOnce(&ConnectionPool, &mut PooledConnection) -> Result<T> + Send + 'static,
    ) -> Result<(oneshot::Receiver<Result<T>>, bool)> {
        self.check_open()?;
        let permit = Arc::clone(&self.read_permits)
            .acquire_owned()
            .await
            .map_err(|_| StoreError::Closed)?;
        let (reply, answer) = oneshot::channel();
        let run = move |pool: &ConnectionPool, pooled: usize| {
            if !reply.is_closed() {
                let _ = reply.send(pool.with(pooled, look, |pooled| query(pool, pooled)));
            }
            drop(permit);
        };
        let awake = self
            .reads
            .send(Read::Run(Box::new(run)))
            .map_err(|_| StoreError::Closed)?;
        Ok((answer, awake))
    }

    /// Runs work on the writer thread, after the waiting commands.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ConnectionPool) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.check_open()?;
        let (reply, answer) = oneshot::channel();
        let run = move |pool: &ConnectionPool| {
            let _ = reply.send(work(pool));
        };
        self.writes
            .send(Command::Run(Box::new(run)))
            .map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            Err(StoreError::Closed)
        } else {
            Ok(())
        }
    }
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new().name(name).spawn(work)?;
    Ok(())
}

fn read(pool: &ConnectionPool, pooled: usize, reads: &WorkQueue<Read>) {
    reads.run(pooled - WRITER - 1, |read| match read {
        Read::Run(run) => {
            run(pool, pooled);
            true
        }
        Read::Stop(reply) => {
            pool.close(pooled);
            let _ = reply.send(());
            false
        }
    });
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        // Closed or not, no thread outlives the driver; the writer ends when its queue does.
        if !self.closed.load(Ordering::Acquire) {
            for _ in 0..self.readers {
                let _ = self.reads.send(Read::Stop(oneshot::channel().0));
            }
        }
    }
}

#[async_trait]
impl Driver for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn canary(&self, fresh: Canary) -> Result<Canary> {
        self.run(move |pool| pool.set_canary(fresh)).await
    }

    async fn get(
        &self,
        namespace: &Namespace,
        kind: Kind,
        key: &str,
        now: Timestamp,
        seal: &Arc<dyn Seal>,
    ) -> Result<Option<Entry>> {
        let (namespace, key, seal) = (namespace.clone(), key.to_owned(), Arc::clone(seal));
        self.read_point(move |_, pooled| {
            queries::get(&pooled.connection, &namespace, kind, &key, now, &seal)
        })
        .await
    }

    async fn list(&self, range: Range, after: Option<Position>, limit: usize) -> Result<ListPage> {
        self.read(false, move |_, pooled| {
            ranges::list(&pooled.connection, &range, after, limit)
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
        let seal = Arc::clone(seal);
        self.read(false, move |_, pooled| {
            ranges::scan(&pooled.connection, &range, order, limit, &seal)
        })
        .await
    }

    async fn namespaces(
        &self,
        of: Option<NamespaceOwner>,
        now: Timestamp,
    ) -> Result<Vec<NamespaceStats>> {
        self.read(false, move |_, pooled| {
            queries::namespaces(&pooled.connection, of.as_ref(), now)
        })
        .await
    }

    async fn stats(&self, now: Timestamp) -> Result<Stats> {
        self.read(false, move |pool, pooled| {
            let stats = queries::stats(&pooled.connection, now)?;
            Ok(Stats {
                disk_bytes: pool.file().disk_bytes(),
                ..stats
            })
        })
        .await
    }

    async fn generation(&self) -> Result<u64> {
        self.read(true, |pool, pooled| pool.generation(pooled))
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
            batch,
            reply,
            _permit: permits.map_err(|_| StoreError::Closed)?,
        };
        self.writes
            .send(Command::Write(waiting))
            .map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    async fn walk(&self, after: Option<Mark>, limit: usize, seal: &Arc<dyn Seal>) -> Result<Walk> {
        let seal = Arc::clone(seal);
        self.read(false, move |_, pooled| {
            walk::walk(&pooled.connection, after.as_ref(), limit, &seal)
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
        let (current, seal) = (current.to_owned(), Arc::clone(seal));
        self.run(move |pool| {
            pool.with(WRITER, true, |pooled| {
                pooled.set_durable(true)?;
                let transaction = pooled
                    .connection
                    .transaction_with_behavior(TransactionBehavior::Immediate)?;
                let done = walk::reseal(&transaction, after.as_ref(), limit, &current, &seal)?;
                transaction.commit()?;
                Ok(done)
            })
        })
        .await
    }

    async fn mark_read(&self, reads: HashMap<Namespace, HashSet<String>>) -> Result<()> {
        self.run(move |pool| {
            pool.with(WRITER, true, |pooled| {
                pooled.set_durable(false)?;
                // A store that never evicted anything is not locked for this.
                if !pooled
                    .connection
                    .prepare_cached("SELECT 1 FROM memory_hands")?
                    .exists([])?
                {
                    return Ok(());
                }
                // Nor does it wait long: a hint is lost at most.
                pooled.connection.busy_timeout(pool.file().brief_wait())?;
                let marked = room::mark_read(&mut pooled.connection, &reads);
                pooled.connection.busy_timeout(pool.file().busy_timeout())?;
                marked
            })
        })
        .await
    }

    async fn replace_canary(&self, canary: Canary) -> Result<()> {
        self.run(move |pool| pool.replace_canary(canary)).await
    }

    async fn adopt_if_empty(&self, canary: Canary, now: Timestamp) -> Result<bool> {
        self.run(move |pool| pool.adopt_if_empty(canary, now)).await
    }

    async fn try_lock(
        &self,
        name: &str,
        owner: &str,
        now: Timestamp,
        hold: Duration,
    ) -> Result<bool> {
        let until = now.saturating_add(hold);
        let (name, owner) = (name.to_owned(), owner.to_owned());
        self.run(move |pool| {
            pool.with(WRITER, true, |pooled| {
                pooled.set_durable(false)?;
                locks::take(&pooled.connection, &name, &owner, now, until)
            })
        })
        .await
    }

    async fn unlock(&self, name: &str, owner: &str) -> Result<()> {
        let (name, owner) = (name.to_owned(), owner.to_owned());
        self.run(move |pool| {
            pool.with(WRITER, true, |pooled| {
                pooled.set_durable(false)?;
                locks::free(&pooled.connection, &name, &owner)
            })
        })
        .await
    }

    async fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // The readers first: the log can be emptied only without readers.
        for _ in 0..self.readers {
            let (reply, answer) = oneshot::channel();
            if self.reads.send(Read::Stop(reply)).is_ok() {
                let _ = answer.await;
            }
        }
        let (reply, answer) = oneshot::channel();
        self.writes
            .send(Command::Close(reply))
            .map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}
