//! Lease of this process: a row that is renewed, by the clock of the database.
//!
//! A lease that has ended is never renewed. The process takes a new one under a new id, and what it
//! still writes under the old id is refused. So a process that was frozen or cut off cannot change
//! what others have taken over.

use std::sync::Arc;
use std::time::Duration;

use aes_gcm::aead::Generate;
use async_trait::async_trait;
use helmdeck_core::hex;
use helmdeck_memory::{Result, StoreError};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::args::args;
use super::{CHANGE, Postgres, READ, WRITE, on_server};
use crate::replica::Lease;

/// How long a lease lasts without a renewal.
const LIVES: Duration = Duration::from_secs(20);
/// How often it is renewed.
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// How soon a renewal that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long before its end in the database this process no longer relies on it.
const MARGIN: Duration = Duration::from_secs(2);

/// Renews a lease that has not ended.
const RENEW: &str = "
UPDATE system_replicas SET expires_at = clock_timestamp() + make_interval(secs => $2)
 WHERE id = $1 AND expires_at > clock_timestamp()";
const TAKE: &str = "
INSERT INTO system_replicas (id, expires_at) VALUES ($1, clock_timestamp() + make_interval(secs => $2))
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at";

/// The lease. Dropping it ends it.
#[derive(Debug)]
pub(super) struct RowLease {
    held: Arc<Held>,
    renewing: AbortHandle,
}

#[derive(Debug)]
struct Held {
    driver: Postgres,
    now: Mutex<Current>,
}

#[derive(Debug, Clone)]
struct Current {
    id: Arc<str>,
    /// How long this process relies on it.
    until: Instant,
}

impl RowLease {
    /// Takes a lease under a new id, and renews it from now on.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub(super) async fn take(driver: Postgres) -> Result<Self> {
        let now = Mutex::new(take(&driver).await?);
        let held = Arc::new(Held { driver, now });
        let renewing = tokio::spawn(renew_always(Arc::clone(&held))).abort_handle();
        Ok(Self { held, renewing })
    }
}

#[async_trait]
impl Lease for RowLease {
    fn id(&self) -> Arc<str> {
        Arc::clone(&self.held.now.lock().id)
    }

    fn holds(&self, id: &str) -> bool {
        let now = self.held.now.lock();
        *now.id == *id && Instant::now() < now.until
    }

    async fn end(&self) -> Result<()> {
        self.renewing.abort();
        let id = {
            let mut now = self.held.now.lock();
            now.until = Instant::now();
            Arc::clone(&now.id)
        };
        end(&self.held.driver, &id).await
    }
}

impl Drop for RowLease {
    fn drop(&mut self) {
        self.renewing.abort();
        // Without a runtime, or if this fails, it ends by itself.
        let (held, id) = (Arc::clone(&self.held), self.id());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { end(&held.driver, &id).await });
        }
    }
}

async fn renew_always(held: Arc<Held>) {
    let mut pause = RENEW_EVERY;
    loop {
        tokio::time::sleep(pause).await;
        pause = match renew(&held).await {
            Ok(()) => RENEW_EVERY,
            Err(error) => {
                tracing::warn!(%error, "the lease of this replica could not be renewed; it is tried again");
                AGAIN
            }
        };
    }
}

async fn renew(held: &Held) -> Result<()> {
    let (Current { id, until }, sent) = (held.now.lock().clone(), Instant::now());
    // What this process has stopped to rely on, and has given up, is not its own again.
    if sent < until {
        let renewed = on_server!(&held.driver, READ, |db| {
            Ok(db
                .execute_typed(RENEW, args![&*id, LIVES.as_secs_f64()])
                .await?)
        })?;
        if renewed.unwrap_or(0) > 0 && Instant::now() < until {
            held.now.lock().until = sent + LIVES - MARGIN;
            return Ok(());
        }
    }
    let next = take(&held.driver).await?;
    tracing::warn!("this replica was not heard of for too long; the jobs that it ran have failed");
    *held.now.lock() = next;
    // It may last longer in the database, and others would wait for it.
    end(&held.driver, &id).await
}

async fn take(driver: &Postgres) -> Result<Current> {
    let id = hex(&<[u8; 16]>::try_generate().map_err(StoreError::unavailable)?);
    let sent = Instant::now();
    on_server!(driver, WRITE, |db| {
        Ok(db
            .execute_typed(TAKE, args![id, LIVES.as_secs_f64()])
            .await?)
    })?;
    Ok(Current {
        id: id.into(),
        until: sent + LIVES - MARGIN,
    })
}

async fn end(driver: &Postgres, id: &str) -> Result<()> {
    on_server!(driver, CHANGE, |db| {
        Ok(db
            .execute_typed("DELETE FROM system_replicas WHERE id = $1", args![id])
            .await?)
    })?;
    Ok(())
}
