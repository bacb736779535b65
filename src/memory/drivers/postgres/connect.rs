//! Connections: the same settings for all, a pool, and a deadline for every wait.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Connect, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, Timeouts,
};
use tokio::task::JoinHandle;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Error, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{Failure, Outcome, Remedy, unavailable};
use super::tls;
use super::url::Target;
use crate::config;
use crate::error::{Result, StoreError};

/// How long a statement may take on the server.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Client-side time limit of any operation on a connection.
///
/// It is longer than the limit of the server, so that it ends only connections to a silent server.
const PATIENCE: Duration = Duration::from_secs(35);

/// Client-side time limit of deletes of any number of rows.
const LONG_PATIENCE: Duration = Duration::from_mins(11);

/// How long a silent server keeps a connection before it counts as lost.
const SILENCE: Duration = Duration::from_secs(15);

/// How often a read is tried again over another connection.
const READS: usize = 3;

/// A future with a borrowed connection.
pub(super) type Asking<'c, T> = Pin<Box<dyn Future<Output = Outcome<T>> + Send + 'c>>;

/// One half of a connection: it moves bytes and hands out what the server says by itself.
pub(super) type PgConnection = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Makes connections.
#[derive(Clone)]
pub(super) struct Dialer {
    config: Config,
    tls: MakeRustlsConnect,
    /// The first statements of every session.
    greeting: String,
    timeout: Duration,
}

helmdeck_core::redacted_debug!(Dialer);

impl Dialer {
    /// Prepares for a target. Reads the file of certificates, if there is one.
    ///
    /// # Errors
    /// `BadUrl`; `Unavailable`.
    pub(super) fn new(target: &Target, config: &config::Config) -> Result<Self> {
        let timeout = config.postgres.connect_timeout;
        let mut to = target.config.clone();
        if to.get_connect_timeout().is_none() {
            to.connect_timeout(timeout);
        }
        if to.get_tcp_user_timeout().is_none() {
            to.tcp_user_timeout(SILENCE);
        }
        to.keepalives_idle(SILENCE / 3).keepalives_interval(SILENCE / 3).keepalives_retries(2);
        // Every query has one right plan, whatever the statistics say: from an index to the rows that it names.
        let greeting = format!(
            "SET statement_timeout = {}; SET lock_timeout = {}; SET idle_in_transaction_session_timeout = {};
             SET enable_seqscan = off; SET enable_sort = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
             SET plan_cache_mode = force_generic_plan; SET jit = off",
            STATEMENT_TIMEOUT.as_millis(),
            // 0 would be without end.
            config.busy_timeout.as_millis().max(1),
            (2 * PATIENCE).as_millis(),
        );
        Ok(Self { config: to, tls: tls::connector(&target.protection)?, greeting, timeout })
    }

    /// Makes a connection and leaves it to the caller to move its bytes.
    pub(super) async fn dial(&self) -> Outcome<(Client, PgConnection)> {
        match tokio::time::timeout(self.timeout, self.config.connect(self.tls.clone())).await {
            Ok(connected) => Ok(connected?),
            Err(_) => Err(Failure::timeout("connecting to the PostgreSQL server")),
        }
    }

    /// Makes a connection that moves its bytes by itself.
    pub(super) async fn session(&self) -> Outcome<ClientWrapper> {
        let (client, line) = self.dial().await?;
        let task = tokio::spawn(async move {
            // The user of the client gets the error.
            let _ = line.await;
        });
        let session = ClientWrapper::new(client, task);
        within(session.batch_execute(&self.greeting)).await?;
        Ok(session)
    }

    /// Returns the first statements of every session.
    pub(super) fn greeting(&self) -> &str {
        &self.greeting
    }

    /// Creates a pool with this limit; connections open when needed.
    ///
    /// # Errors
    /// `Unavailable` if there is no runtime.
    pub(super) fn pool(&self, size: usize) -> Result<Pool> {
        let manager = Manager::from_connect(
            self.config.clone(),
            self.clone(),
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let limit = Some(self.timeout);
        Pool::builder(manager)
            .max_size(size)
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts { wait: limit, create: limit, recycle: limit })
            .build()
            .map_err(|_| unavailable("there is no runtime to connect with".to_owned()))
    }
}

impl Connect for Dialer {
    fn connect(
        &self,
        to: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + '_>> {
        let to = to.clone();
        Box::pin(async move {
            let (client, line) = to.connect(self.tls.clone()).await?;
            let task = tokio::spawn(async move {
                let _ = line.await;
            });
            if let Err(error) = client.batch_execute(&self.greeting).await {
                task.abort();
                return Err(error);
            }
            Ok((client, task))
        })
    }
}

/// Takes a connection out of a pool.
pub(super) async fn take(pool: &Pool) -> Outcome<Object> {
    pool.get().await.map_err(|error| match error {
        PoolError::Backend(error) => Failure { remedy: Remedy::None, ..Failure::from(error) },
        PoolError::Closed => StoreError::Closed.into(),
        PoolError::Timeout(_) => Failure::timeout("waiting for a connection to the PostgreSQL server"),
        PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
            unavailable("no connection could be made".to_owned()).into()
        }
    })
}

/// Reads over a connection of the pool, and retries on another one if it is lost.
///
/// Dropping the future is safe: the pending answer of the server is discarded.
pub(super) async fn read<T>(pool: &Pool, ask: impl for<'c> Fn(&'c mut Object) -> Asking<'c, T>) -> Result<T> {
    for _ in 1..READS {
        match read_once(pool, &ask).await {
            Err(Failure { remedy: Remedy::Again | Remedy::Reconnect, .. }) => {}
            outcome => return outcome.map_err(|failure| failure.error),
        }
    }
    read_once(pool, &ask).await.map_err(|failure| failure.error)
}

async fn read_once<T>(pool: &Pool, ask: &impl for<'c> Fn(&'c mut Object) -> Asking<'c, T>) -> Outcome<T> {
    let mut connection = take(pool).await?;
    let outcome = within(ask(&mut connection)).await;
    if matches!(&outcome, Err(failure) if failure.is_of_connection()) {
        discard(connection);
    }
    outcome
}

/// Closes a connection instead of giving it back.
pub(super) fn discard(connection: Object) {
    drop(Object::take(connection));
}

/// As [`within`], for what may take minutes.
pub(super) async fn within_long<T>(asking: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    match tokio::time::timeout(LONG_PATIENCE, asking).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::timeout("the PostgreSQL server's answer")),
    }
}

/// Waits for a server's answer until a deadline.
pub(super) async fn within<T, E>(asking: impl Future<Output = Result<T, E>>) -> Outcome<T>
where
    Failure: From<E>,
{
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(outcome) => Ok(outcome?),
        Err(_) => Err(Failure::timeout("the PostgreSQL server's answer")),
    }
}
