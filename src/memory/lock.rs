//! Lock across all processes on one store. It is kept in the store, so it works with every driver.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;

/// Storage of locks.
#[async_trait]
pub(crate) trait Keeper: Send + Sync {
    /// Takes a lock, or extends it if this owner has it.
    async fn hold(&self, name: &str, owner: &str, hold: Duration) -> Result<bool>;

    /// Frees a lock if this owner has it.
    async fn free(&self, name: &str, owner: &str) -> Result<()>;
}

/// Held lock. Dropping it frees it soon; [`Lock::release`] frees it now.
pub struct Lock {
    held: Option<LockOwner>,
}

struct LockOwner {
    keeper: Arc<dyn Keeper>,
    name: String,
    owner: String,
}

impl Lock {
    pub(crate) fn new(keeper: Arc<dyn Keeper>, name: String, owner: String) -> Self {
        Self {
            held: Some(LockOwner {
                keeper,
                name,
                owner,
            }),
        }
    }

    /// Extends the lock to `hold` from now; `false` if another owner has taken it.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`.
    pub async fn renew(&self, hold: Duration) -> Result<bool> {
        match &self.held {
            Some(held) => held.keeper.hold(&held.name, &held.owner, hold).await,
            None => Ok(false),
        }
    }

    /// Frees the lock and waits until it is free.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`: it is then free after its time.
    pub async fn release(mut self) -> Result<()> {
        match self.held.take() {
            Some(held) => held.keeper.free(&held.name, &held.owner).await,
            None => Ok(()),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(held) = self.held.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            // A failure costs waiting: the lock is free after its time.
            runtime.spawn(async move { held.keeper.free(&held.name, &held.owner).await });
        }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.held.as_ref().map(|held| &held.name);
        f.debug_struct("Lock")
            .field("name", &name)
            .finish_non_exhaustive()
    }
}
