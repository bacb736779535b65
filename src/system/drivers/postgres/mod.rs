//! The system database in tables of a PostgreSQL database, for the replicas of many machines.
//!
//! The first write creates the tables; reading without them finds nothing. Statements use no state
//! of a session and nothing that was prepared, and every transaction stands alone, so a connection
//! pooler in transaction mode may be in between.

mod args;
mod counters;
mod jobs;
mod keys;
mod lease;
mod migrate;
#[cfg(test)]
mod plans;
mod queue;
#[cfg(test)]
mod tests;
mod tokens;
mod transfer;
mod vault;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use helmdeck_core::numbers::unsigned;
use helmdeck_memory::drivers::postgres::session::{
    Connections, Failure, Object, Outcome, Remedy, within,
};
use helmdeck_memory::{Config, Result, StoreError};

use self::args::args;
use self::lease::RowLease;
use crate::driver::{Driver, SweepTimes};
use crate::replica::Lease;

/// Limit of connections of one process, if it does not share those of the store.
const CONNECTIONS: usize = 2;

/// Deletes runs of schedules, but for the last one of each pack.
const DELETE_RUNS: &str = "
DELETE FROM system_schedule_runs s WHERE s.due_at < $1
   AND s.due_at < (SELECT max(r.due_at) FROM system_schedule_runs r WHERE r.pack = s.pack)";

/// How often work is tried that may be done twice.
const TRIES: u32 = 3;

/// The driver. Cheap to clone; clones share the connections.
#[derive(Debug, Clone)]
pub(crate) struct Postgres(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    connections: Connections,
    /// Whether the tables are known to be there.
    ready: AtomicBool,
}

/// How work may be done.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Whether it has the same effect if it is done twice, so that a lost connection is no reason
    /// to give up.
    repeatable: bool,
    /// Whether it creates missing tables.
    creates: bool,
}

/// A read, or a change that may be made twice. Without tables it finds nothing.
const READ: Plan = Plan {
    repeatable: true,
    creates: false,
};
/// A change of what must be there, which is made once.
const CHANGE: Plan = Plan {
    repeatable: false,
    creates: false,
};
/// A write that may be made twice.
const WRITE: Plan = Plan {
    repeatable: true,
    creates: true,
};
/// A write that is made once.
const WRITE_ONCE: Plan = Plan {
    repeatable: false,
    creates: true,
};

/// Runs statements on a connection; `None` if there are no tables and none are created.
///
/// A transaction that was rolled back because another one was in the way is tried again.
macro_rules! on_server {
    ($driver:expr, $plan:expr, |$db:ident| $work:block) => {{
        let (driver, plan): (
            &$crate::drivers::postgres::Postgres,
            $crate::drivers::postgres::Plan,
        ) = ($driver, $plan);
        let mut tries = 0;
        loop {
            tries += 1;
            let outcome = match driver.session(plan).await {
                Ok(Some(mut session)) => {
                    let outcome = {
                        let $db = &mut session;
                        helmdeck_memory::drivers::postgres::session::within(async { $work }).await
                    };
                    driver.give_back(session, &outcome);
                    outcome.map(Some)
                }
                Ok(None) => Ok(None),
                Err(failure) => Err(failure),
            };
            match outcome {
                Err(failure) if plan.may_repeat(tries, &failure) => {}
                outcome => break outcome.map_err(|failure| failure.error),
            }
        }
    }};
}
use on_server;

impl Plan {
    fn may_repeat(self, tries: u32, failure: &Failure) -> bool {
        tries < TRIES
            && match failure.remedy {
                Remedy::Again => true,
                Remedy::Reconnect => self.repeatable,
                Remedy::None | Remedy::Discard | Remedy::Operator => false,
            }
    }
}

impl Postgres {
    /// Prepares connections to a database, without connecting.
    ///
    /// # Errors
    /// `BadUrl`, `Unavailable`.
    pub(crate) fn new(url: &str, config: &Config) -> Result<Self> {
        let connections = match Connections::shared(url, config) {
            Some(shared) => shared,
            None => Connections::new(url, CONNECTIONS, config)?,
        };
        Ok(Self(Arc::new(Shared {
            connections,
            ready: AtomicBool::new(false),
        })))
    }

    /// Takes a connection to a database with tables; `None` if there are none and none are created.
    async fn session(&self, plan: Plan) -> Outcome<Option<Object>> {
        let mut session = self.0.connections.take().await?;
        if self.0.ready.load(Ordering::Acquire) {
            return Ok(Some(session));
        }
        let outcome = within(async {
            match plan.creates {
                true => migrate::apply(&mut session).await.map(|()| true),
                false => migrate::update(&mut session).await,
            }
        })
        .await;
        if let Ok(true) = outcome {
            self.0.ready.store(true, Ordering::Release);
            return Ok(Some(session));
        }
        self.give_back(session, &outcome);
        outcome.map(|_| None)
    }

    fn give_back<T>(&self, session: Object, outcome: &Outcome<T>) {
        if matches!(
            outcome,
            Err(Failure {
                error: StoreError::Corrupt(_),
                ..
            })
        ) {
            // The tables may be gone.
            self.0.ready.store(false, Ordering::Release);
        }
        self.0.connections.give_back(session, outcome);
    }
}

#[async_trait]
impl Driver for Postgres {
    fn location(&self) -> String {
        self.0.connections.shown().to_owned()
    }

    async fn exists(&self) -> Result<bool> {
        Ok(on_server!(self, READ, |_db| { Ok(()) })?.is_some())
    }

    async fn live_replicas(&self) -> Result<Option<u64>> {
        let count = "SELECT count(*) FROM system_replicas WHERE expires_at > clock_timestamp() AND id <> 'queue'";
        let live = on_server!(self, READ, |db| {
            Ok(db.query_typed_one(count, &[]).await?.try_get::<_, i64>(0)?)
        })?;
        Ok(Some(unsigned(live.unwrap_or(0))))
    }

    async fn join(&self) -> Result<Arc<dyn Lease>> {
        Ok(Arc::new(RowLease::take(self.clone()).await?))
    }

    async fn sweep(&self, ended: SweepTimes) -> Result<u64> {
        let deleted = on_server!(self, READ, |db| {
            // A replica that is gone matters to none of its jobs any more: they have ended.
            let replicas = "DELETE FROM system_replicas r WHERE r.expires_at < clock_timestamp() - interval '1 day'
                AND NOT EXISTS (SELECT 1 FROM system_jobs j WHERE j.owner = r.id AND j.ended_at IS NULL)";
            db.execute_typed(replicas, &[]).await?;
            // Of jobs that the previous version ended.
            db.execute_typed(queue::DELETE_CALLS, &[]).await?;
            let mut deleted = 0;
            for (sql, time) in [
                ("DELETE FROM system_keys WHERE expires_at <= $1", ended.now),
                (
                    "DELETE FROM system_vault_uses WHERE last_at < $1",
                    ended.uses,
                ),
                (
                    "DELETE FROM system_tokens WHERE revoked_at < $1 OR expires_at < $1",
                    ended.tokens,
                ),
                (
                    "DELETE FROM system_jobs WHERE ended_at IS NOT NULL AND expires_at <= $1",
                    ended.now,
                ),
                (DELETE_RUNS, ended.schedules),
            ] {
                deleted += db.execute_typed(sql, args![time]).await?;
            }
            Ok(deleted)
        })?;
        Ok(deleted.unwrap_or(0))
    }
}

/// Replaces what no text in PostgreSQL can hold.
fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{FFFD}"))
    } else {
        Cow::Borrowed(text)
    }
}
