//! Membership of this process: the proof for other processes that it is alive.

use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use helmdeck_memory::Result;
use tokio::sync::Mutex;

use crate::system::System;

/// How soon joining is tried again.
const JOIN_AGAIN: Duration = Duration::from_secs(5);

/// The proof that a process is alive, in the way of its driver. It ends when it is dropped, or soon
/// after that.
#[async_trait]
pub(crate) trait Lease: Debug + Send + Sync {
    /// Returns the id under which the process writes now.
    fn id(&self) -> Arc<str>;

    /// Returns whether the process may still write under an id.
    fn holds(&self, id: &str) -> bool;

    /// Ends it now, for a process that is about to stop.
    ///
    /// # Errors
    /// `Unavailable`: it ends by itself later.
    async fn end(&self) -> Result<()>;
}

/// This process as an owner of jobs and idempotency keys. Dropping it gives up all that has not
/// ended.
///
/// In SQLite it is a locked file, which the kernel frees with the process. In PostgreSQL it is a
/// row that is renewed every few seconds. A process that was frozen or cut off for longer gets a
/// new id: what it still writes under the old one is refused.
#[derive(Debug)]
pub struct Replica(Arc<dyn Lease>);

impl Replica {
    /// Returns the id under which this process owns what it begins now.
    #[must_use]
    pub fn id(&self) -> Arc<str> {
        self.0.id()
    }

    /// Returns whether this process still owns what it began under an id.
    #[must_use]
    pub fn holds(&self, id: &str) -> bool {
        self.0.holds(id)
    }
}

/// The membership that the clones of a handle share, while somebody uses it.
pub(crate) type SharedReplica = Mutex<Weak<Replica>>;

impl System {
    /// Returns this process as an owner of jobs and idempotency keys, and joins if it has not.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn replica(&self) -> Result<Arc<Replica>> {
        let mut joined = self.joined().lock().await;
        if let Some(replica) = joined.upgrade() {
            return Ok(replica);
        }
        let replica = Arc::new(Replica(self.driver().join().await?));
        *joined = Arc::downgrade(&replica);
        Ok(replica)
    }

    /// Returns the number of servers that share this database and are alive: 1 if it is a file of
    /// this machine.
    ///
    /// In PostgreSQL those count that have joined ([`System::replica`]), until they leave
    /// ([`System::leave`]), or 20 seconds after they were last heard of.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn live_replicas(&self) -> Result<u64> {
        Ok(self
            .driver()
            .live_replicas()
            .await?
            .map_or(1, |live| live.max(1)))
    }

    /// Leaves, as the last act of a process: others need not wait until its lease has run out.
    ///
    /// What it has not ended is given up.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`: it counts as alive for up to 20 seconds more.
    pub async fn leave(&self) -> Result<()> {
        let joined = std::mem::take(&mut *self.joined().lock().await).upgrade();
        match joined {
            Some(replica) => replica.0.end().await,
            None => Ok(()),
        }
    }

    /// Joins if servers of many machines share this database, and stays so until the future is
    /// dropped.
    ///
    /// If the database is not available, it tries again.
    pub async fn stay_joined(&self) {
        if matches!(self.driver().live_replicas().await, Ok(None)) {
            return;
        }
        loop {
            match self.replica().await {
                Ok(_joined) => std::future::pending().await,
                Err(error) => {
                    tracing::warn!(%error, "this server could not join the others; it is tried again")
                }
            }
            tokio::time::sleep(JOIN_AGAIN).await;
        }
    }
}
