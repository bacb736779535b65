//! Connections: the same settings for all, a pool, and a deadline for every wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{
    Connect, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, Timeouts,
};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Error, SimpleQueryMessage, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{Failure, Outcome, Remedy, unavailable};
use super::tls;
use super::url::Target;
use crate::config::{self, Listen};
use crate::error::{Result, StoreError};

/// How long a statement may take on the server.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Client-side time limit of any operation on a connection.
///
/// It is longer than the limit of the server, so that it ends only connections to a silent server.
pub(super) const PATIENCE: Duration = Duration::from_secs(35);

/// Client-side time limit of deletes of any number of rows.
const LONG_PATIENCE: Duration = Duration::from_mins(11);

/// How long a silent server keeps a connection before it counts as lost.
const SILENCE: Duration = Duration::from_secs(15);

/// How often a read is tried again over another connection.
pub(super) const READS: usize = 3;

/// A future with a borrowed connection.
pub(super) type Asking<'c, T> = Pin<Box<dyn Future<Output = Outcome<T>> + Send + 'c>>;

/// One half of a connection: it moves bytes and hands out what the server says by itself.
pub(super) type PgConnection =
    Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Makes connections.
///
/// A direct session gets its settings as options of the start. A pooler in transaction mode refuses
/// those, or drops them; the first connection finds that out.
#[derive(Clone)]
pub(super) struct Dialer {
    /// For a direct session, with the settings.
    direct: Config,
    /// For a pooler, without options.
    plain: Config,
    tls: MakeRustlsConnect,
    /// The beginning of a transaction behind a pooler.
    beginning: Arc<str>,
    timeout: Duration,
    listen: Listen,
    is_pooled: Arc<AtomicBool>,
}

helmdeck_core::redacted_debug!(Dialer);

/// Setting without effect on the server: a session that knows it got its other settings too.
const MARKER: &str = "helmdeck.session";

/// Returns the settings of every session. Every query has one right plan, whatever the statistics
/// say: from an index to the rows that it names.
fn settings(config: &config::Config) -> Vec<(String, String)> {
    let planner = ["seqscan", "sort", "hashjoin", "mergejoin"]
        .map(|of| (format!("enable_{of}"), "off".to_owned()));
    let set = |name: &str, value: u128| (name.to_owned(), value.to_string());
    let mut settings = vec![
        set("statement_timeout", STATEMENT_TIMEOUT.as_millis()),
        // 0 would be without end.
        set("lock_timeout", config.busy_timeout.as_millis().max(1)),
        set(
            "idle_in_transaction_session_timeout",
            (2 * PATIENCE).as_millis(),
        ),
        (
            "plan_cache_mode".to_owned(),
            "force_generic_plan".to_owned(),
        ),
        ("jit".to_owned(), "off".to_owned()),
    ];
    settings.extend(planner);
    settings
}

impl Dialer {
    /// Prepares for a target. Reads the file of certificates, if there is one.
    ///
    /// # Errors
    /// `BadUrl`; `Unavailable`.
    pub(super) fn new(target: &Target, config: &config::Config) -> Result<Self> {
        let timeout = config.postgres.connect_timeout;
        let mut plain = target.config.clone();
        if plain.get_connect_timeout().is_none() {
            plain.connect_timeout(timeout);
        }
        if plain.get_tcp_user_timeout().is_none() {
            plain.tcp_user_timeout(SILENCE);
        }
        plain
            .keepalives_idle(SILENCE / 3)
            .keepalives_interval(SILENCE / 3)
            .keepalives_retries(2);
        let mut all = target.settings()?;
        all.extend(settings(config));
        let quoted = |text: &str| text.replace('\'', "''");
        let set = all.iter().map(|(name, value)| {
            format!("set_config('{}', '{}', true)", quoted(name), quoted(value))
        });
        let beginning = format!("BEGIN; SELECT {}", set.collect::<Vec<_>>().join(", ")).into();
        all.push((MARKER.to_owned(), "1".to_owned()));
        let escaped = |text: &str| text.replace('\\', "\\\\").replace(' ', "\\ ");
        let options = all
            .iter()
            .map(|(name, value)| format!("-c {}={}", escaped(name), escaped(value)));
        let mut direct = plain.clone();
        direct.options(options.collect::<Vec<_>>().join(" "));
        let listen = config.postgres.listen;
        let is_pooled = Arc::new(AtomicBool::new(listen == Listen::Off));
        Ok(Self {
            direct,
            plain,
            tls: tls::connector(&target.protection)?,
            beginning,
            timeout,
            listen,
            is_pooled,
        })
    }

    /// Returns whether sessions have no state of their own: transactions bring their settings
    /// along.
    pub(super) fn is_pooled(&self) -> bool {
        self.is_pooled.load(Ordering::Acquire)
    }

    /// Returns the beginning of a transaction behind a pooler, as SQL.
    pub(super) fn beginning(&self) -> Arc<str> {
        Arc::clone(&self.beginning)
    }

    /// Refuses a pooler where the configuration wants a direct session.
    ///
    /// # Errors
    /// `BadUrl`.
    pub(super) fn check(&self) -> Result<()> {
        if self.listen == Listen::On && self.is_pooled() {
            return Err(StoreError::BadUrl(
                "memory.listen is \"on\", but a connection pooler in transaction mode is between here and the \
                 PostgreSQL server; set it to \"auto\", or point memory.url at the server"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Makes a direct session and leaves it to the caller to move its bytes.
    pub(super) async fn dial(&self) -> Outcome<(Client, PgConnection)> {
        match tokio::time::timeout(self.timeout, self.direct.connect(self.tls.clone())).await {
            Ok(connected) => Ok(connected?),
            Err(_) => Err(Failure::timeout("connecting to the PostgreSQL server")),
        }
    }

    /// Creates a pool with this limit; connections open when needed.
    ///
    /// # Errors
    /// `Unavailable` if there is no runtime.
    pub(super) fn pool(&self, size: usize) -> Result<Pool> {
        let manager = Manager::from_connect(
            self.plain.clone(),
            self.clone(),
            ManagerConfig {
                recycling_method: RecyclingMethod::Fast,
            },
        );
        let limit = Some(self.timeout);
        Pool::builder(manager)
            .max_size(size)
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts {
                wait: limit,
                create: limit,
                recycle: limit,
            })
            .build()
            .map_err(|_| unavailable("there is no runtime to connect with".to_owned()))
    }

    /// Makes a connection that moves its bytes by itself.
    async fn open(&self, to: &Config) -> Result<(Client, JoinHandle<()>), Error> {
        let (client, line) = to.connect(self.tls.clone()).await?;
        let task = tokio::spawn(async move {
            // The user of the client gets the error.
            let _ = line.await;
        });
        Ok((client, task))
    }

    /// Makes a direct session; `None` if a pooler is in between.
    async fn open_direct(&self) -> Result<Option<(Client, JoinHandle<()>)>, Error> {
        let (client, task) = match self.open(&self.direct).await {
            Ok(opened) => opened,
            Err(error) if is_refused_setting(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        match has_settings(&client).await {
            Ok(true) => Ok(Some((client, task))),
            unsuitable => {
                task.abort();
                unsuitable.map(|_| None)
            }
        }
    }
}

/// Returns whether a pooler refused the options of the start, which it cannot keep.
fn is_refused_setting(error: &Error) -> bool {
    error.as_db_error().is_some_and(|error| {
        *error.code() == SqlState::PROTOCOL_VIOLATION
            && error.message().contains("startup parameter")
    })
}

/// Returns whether the session got its settings.
async fn has_settings(client: &Client) -> Result<bool, Error> {
    let found = client
        .simple_query(&format!("SELECT current_setting('{MARKER}', true)"))
        .await?;
    Ok(found
        .iter()
        .any(|message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("1"))))
}

impl Connect for Dialer {
    fn connect(
        &self,
        _to: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + '_>> {
        Box::pin(async move {
            if !self.is_pooled() {
                if let Some(opened) = self.open_direct().await? {
                    return Ok(opened);
                }
                self.is_pooled.store(true, Ordering::Release);
                tracing::info!(
                    "a connection pooler is in front of the PostgreSQL server: settings go into transactions"
                );
            }
            self.open(&self.plain).await
        })
    }
}

/// Takes a connection out of a pool.
pub(super) async fn take(pool: &Pool) -> Outcome<Object> {
    pool.get().await.map_err(|error| match error {
        PoolError::Backend(error) => match Failure::from(error) {
            failure @ Failure {
                remedy: Remedy::Operator,
                ..
            } => failure,
            failure => Failure {
                remedy: Remedy::None,
                ..failure
            },
        },
        PoolError::Closed => StoreError::Closed.into(),
        PoolError::Timeout(_) => {
            Failure::timeout("waiting for a connection to the PostgreSQL server")
        }
        PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
            unavailable("no connection could be made".to_owned()).into()
        }
    })
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
