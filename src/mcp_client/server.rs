//! One supervised MCP server.
//!
//! It is started on demand and stopped when idle, has one connection for all callers, and backs off
//! after failures.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use helmdeck_core::secrets::{Grant, Secrets};
use helmdeck_core::{Code, Error, Identity, PackName, Result, Secret};
use helmdeck_egress::Egress;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::backoff::Failures;
use super::config::{McpReach, McpServer, McpValue};
use super::connection::{self, Connection, ConnectionEnd, Opened, Way};
use super::failure;
use super::listing::Listing;
use super::metrics::ServerMetrics;
use super::process::{self, Program, how};
use super::remembered::Remembered;

type Starting = Shared<Pin<Box<dyn Future<Output = Result<Arc<Connection>>> + Send>>>;
/// Callback for a changed list of tools. Its future completes when the registry is up to date.
pub type Changed = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Dependencies that all servers of an engine share.
#[derive(Clone)]
pub struct Surroundings {
    /// Credentials.
    pub secrets: Arc<dyn Secrets>,
    /// Egress, for servers over HTTP.
    pub egress: Egress,
    /// The search path of programs.
    pub path: String,
    /// Storage of lists between starts.
    pub remembered: Option<Remembered>,
    /// Cancelled when the engine stops.
    pub stop: CancellationToken,
    /// Tasks that the engine waits for at its end.
    pub tasks: TaskTracker,
}

/// Lifecycle of a server.
enum Lifecycle {
    /// Not started, or stopped as idle.
    Down,
    Starting(Starting),
    Up(Arc<Connection>),
    /// Failed; not started again before this time.
    Failed {
        until: Instant,
        error: Error,
    },
}

/// How much is known of a server's tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Discovery {
    /// Nothing: it was never queried.
    Nothing,
    /// It was queried and did not answer.
    Failed,
    /// Its stored list of an earlier start.
    Remembered,
    /// Its list of this process.
    Listed,
}

/// A call that waits for a connection.
pub(crate) struct ConnectionWaiter<'a>(&'a Server);

impl Drop for ConnectionWaiter<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One supervised server.
pub struct Server {
    pub(crate) config: McpServer,
    pub(crate) metrics: ServerMetrics,
    around: Surroundings,
    state: Mutex<Lifecycle>,
    /// Calls that wait for a connection, which is not idle then.
    waiting: AtomicUsize,
    failures: Mutex<Failures>,
    /// Why its last start failed; kept while it is started again.
    failure: Mutex<Option<Error>>,
    listing: Mutex<Option<Arc<Listing>>>,
    /// How much is known of its tools.
    known: watch::Sender<Discovery>,
    changed: Mutex<Option<Changed>>,
    this: Weak<Self>,
}

helmdeck_core::redacted_debug!(Server);

helmdeck_core::redacted_debug!(Surroundings);

impl Server {
    pub(crate) fn new(
        config: McpServer,
        around: Surroundings,
        metrics: ServerMetrics,
    ) -> Arc<Self> {
        let remembered = around
            .remembered
            .as_ref()
            .and_then(|remembered| remembered.load(&config))
            .map(Arc::new);
        let known = if remembered.is_some() {
            Discovery::Remembered
        } else {
            Discovery::Nothing
        };
        Arc::new_cyclic(|this| Self {
            config,
            metrics,
            around,
            state: Mutex::new(Lifecycle::Down),
            waiting: AtomicUsize::new(0),
            failures: Mutex::default(),
            failure: Mutex::default(),
            listing: Mutex::new(remembered),
            known: watch::Sender::new(known),
            changed: Mutex::default(),
            this: this.clone(),
        })
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Sets the callback for a changed list of tools.
    pub(crate) fn on_change(&self, changed: Changed) {
        *self.changed.lock() = Some(changed);
    }

    /// Returns its latest list, of this process or an earlier one; `None` if it never answered.
    pub fn listing(&self) -> Option<Arc<Listing>> {
        self.listing.lock().clone()
    }

    /// Returns why its last start failed, also while it is started again; `None` if it did not
    /// fail.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.lock().clone()
    }

    /// Returns how much is known of its tools.
    pub fn known(&self) -> Discovery {
        *self.known.borrow()
    }

    /// Waits until its tools are known, or it has failed.
    pub async fn settled(&self) {
        // `self` owns the sender, so it is not closed.
        let _ = self
            .known
            .subscribe()
            .wait_for(|known| *known > Discovery::Nothing)
            .await;
    }

    /// Returns the digest of a listed tool; `None` if it is not listed.
    pub(crate) fn digest(&self, tool: &str) -> Option<Vec<u8>> {
        let listing = self.listing()?;
        let listed = listing.tools.iter().find(|listed| listed.name == tool)?;
        Some(listed.digest(&self.config, &listing))
    }

    /// Keeps every new connection from being stopped as idle, for a call that waits for one.
    pub(crate) fn wait(&self) -> ConnectionWaiter<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        ConnectionWaiter(self)
    }

    /// Returns its state in one word, and the reason if it is not up.
    pub(crate) fn state(&self) -> (&'static str, Option<Error>) {
        match &*self.state.lock() {
            Lifecycle::Up(connection) if connection.is_open() => ("up", None),
            Lifecycle::Starting(_) => ("starting", None),
            Lifecycle::Failed { error, .. } => ("failed", Some(error.clone())),
            Lifecycle::Up(_) | Lifecycle::Down => ("down", None),
        }
    }

    /// Returns the rest of the backoff after a failure.
    pub(crate) fn left_alone(&self) -> Duration {
        match &*self.state.lock() {
            Lifecycle::Failed { until, .. } => until.saturating_duration_since(Instant::now()),
            _ => Duration::ZERO,
        }
    }

    /// Returns the connection, and opens it if there is none.
    ///
    /// It is opened once for all waiting callers, and the opening completes even if they leave.
    ///
    /// # Errors
    /// Why it cannot be started; during backoff, the last error with the time to retry.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>> {
        let fresh = self.grants().map(|(grants, _)| grants);
        let starting = {
            let mut state = self.state.lock();
            match &*state {
                // A rotated or revoked credential needs a new connection.
                Lifecycle::Up(connection)
                    if connection.is_open()
                        && fresh
                            .as_ref()
                            .is_ok_and(|grants| *grants == connection.grants) =>
                {
                    return Ok(Arc::clone(connection));
                }
                Lifecycle::Starting(starting) => starting.clone(),
                Lifecycle::Failed { until, error } if *until > Instant::now() => {
                    let wait = until.duration_since(Instant::now());
                    return Err(error.clone().with_retry_after(wait));
                }
                _ => {
                    if let Lifecycle::Up(old) = &*state {
                        old.retire.cancel();
                    }
                    let starting = self.start();
                    *state = Lifecycle::Starting(starting.clone());
                    starting
                }
            }
        };
        starting.await
    }

    /// Opens a new connection, also during backoff. Calls in progress finish on the old one.
    ///
    /// # Errors
    /// Why it cannot be started.
    pub async fn restart(&self) -> Result<()> {
        {
            let mut state = self.state.lock();
            if let Lifecycle::Up(old) = &*state {
                old.retire.cancel();
                self.metrics.up.set(0);
            }
            // A start that is under way is as good as a new one.
            if !matches!(*state, Lifecycle::Starting(_)) {
                *state = Lifecycle::Down;
            }
        }
        self.connection().await.map(drop)
    }

    fn start(&self) -> Starting {
        let Some(this) = self.this.upgrade() else {
            return async { Err(Error::new(Code::Cancelled, "the engine is shutting down")) }
                .boxed()
                .shared();
        };
        // A separate task, because the first caller may leave.
        let task = self.around.tasks.spawn(async move {
            let limit = this.config.start_timeout;
            let stop = this.around.stop.clone();
            let started = tokio::select! {
                started = tokio::time::timeout(limit, this.open()) => started.unwrap_or_else(|_| {
                    let limit = helmdeck_core::duration::format_duration(limit);
                    let message = format!("the MCP server \"{}\" did not start within {limit}", this.name());
                    Err(Error::new(Code::Timeout, message))
                }),
                () = stop.cancelled() => Err(Error::new(Code::Cancelled, "the engine is shutting down")),
            };
            this.started(started).await
        });
        async move {
            task.await.unwrap_or_else(|_| {
                Err(Error::new(Code::Internal, "starting an MCP server failed"))
            })
        }
        .boxed()
        .shared()
    }

    async fn open(&self) -> Result<(Opened, Listing)> {
        let (grants, reveal) = self.grants()?;
        let (way, secrets) = self.way(&reveal)?;
        self.metrics.starts.inc();
        tracing::debug!(mcp.server = self.name(), "starting an MCP server");
        let opened = connection::open(
            self.name(),
            &way,
            self.config.max_output_bytes,
            secrets.clone(),
            grants,
        )
        .await;
        let opened = opened.map_err(|error| helmdeck_redact::error(error, &secrets))?;
        let listing = opened.connection.list(self.name()).await;
        match listing {
            Ok(listing) => Ok((opened, listing)),
            Err(error) => {
                // This is the only handle on the connection; dropping it ends the program too.
                drop(opened);
                Err(error)
            }
        }
    }

    /// Returns the grants of its credentials for the operator, with their secrets.
    fn grants(&self) -> Result<(Vec<Grant>, BTreeMap<String, Secret>)> {
        let names = self.config.credentials();
        let (mut grants, mut revealed) = (Vec::with_capacity(names.len()), BTreeMap::new());
        if names.is_empty() {
            return Ok((grants, revealed));
        }
        let identity = Identity::local();
        let pack = PackName::new(&format!("mcp.{}.tools", self.name()))
            .map_err(|message| Error::new(Code::Internal, message))?;
        for name in names {
            let missing = || {
                Error::new(
                    Code::CredentialInvalid,
                    format!("credential \"{}\" does not exist", name.escape_debug()),
                )
            };
            let grant = self
                .around
                .secrets
                .grant(&name, &identity, &pack)?
                .ok_or_else(missing)?;
            revealed.insert(name, self.around.secrets.reveal(&grant, &identity, &pack)?);
            grants.push(grant);
        }
        Ok((grants, revealed))
    }

    fn way(&self, revealed: &BTreeMap<String, Secret>) -> Result<(Way, Vec<Secret>)> {
        let reveal = |name: &str| {
            let missing = || {
                Error::new(
                    Code::CredentialInvalid,
                    format!("credential \"{name}\" does not exist"),
                )
            };
            revealed.get(name).cloned().ok_or_else(missing)
        };
        let mut secrets = Vec::new();
        let mut fill = |values: &BTreeMap<String, McpValue>,
                        host: Option<&str>|
         -> Result<BTreeMap<String, String>> {
            values
                .iter()
                .map(|(name, value)| {
                    let (text, found) = value.resolve(host, reveal)?;
                    secrets.extend(found);
                    Ok((name.clone(), text))
                })
                .collect()
        };
        let way = match &self.config.reach {
            McpReach::Command { argv, cwd, env } => Way::Program(Program {
                argv: argv.clone(),
                cwd: cwd.clone(),
                path: self.around.path.clone(),
                env: fill(env, None)?.into_iter().collect(),
            }),
            McpReach::Http { url, headers } => {
                let headers = fill(headers, url.host_str())?;
                Way::Http {
                    url: url.clone(),
                    headers,
                    egress: self.around.egress.clone(),
                }
            }
        };
        Ok((way, secrets))
    }

    async fn started(
        self: Arc<Self>,
        started: Result<(Opened, Listing)>,
    ) -> Result<Arc<Connection>> {
        match started {
            Ok((opened, listing)) => {
                let connection = Arc::clone(&opened.connection);
                tracing::info!(
                    mcp.server = self.name(),
                    server = listing.server,
                    protocol = listing.protocol,
                    tools = listing.tools.len(),
                    "an MCP server is up"
                );
                self.metrics.up.set(1);
                *self.failure.lock() = None;
                // Callers that wait for the connection use the new registry.
                self.learn(listing).await;
                *self.state.lock() = Lifecycle::Up(Arc::clone(&connection));
                self.around.tasks.spawn(Arc::clone(&self).supervise(opened));
                Ok(connection)
            }
            Err(error) => {
                let wait = match error.code() {
                    Code::Cancelled => Duration::ZERO,
                    _ => self.failures.lock().start_failed(),
                };
                tracing::warn!(mcp.server = self.name(), %error, cause = error.cause(), wait_ms = wait.as_millis(), "an MCP server cannot be started");
                *self.failure.lock() = Some(error.clone());
                *self.state.lock() = Lifecycle::Failed {
                    until: Instant::now() + wait,
                    error: error.clone(),
                };
                if self.known() == Discovery::Nothing {
                    // The registry learns the reason before the waiting callers continue.
                    self.notify().await;
                    self.learnt(Discovery::Failed);
                }
                Err(error)
            }
        }
    }

    /// Stores a new list, and waits until the registry is up to date.
    async fn learn(&self, listing: Listing) {
        let listing = {
            let mut known = self.listing.lock();
            match &*known {
                Some(same) if **same == listing => None,
                _ => Some(Arc::clone(known.insert(Arc::new(listing)))),
            }
        };
        if let Some(listing) = listing {
            if let Some(this) = self.this.upgrade()
                && let Some(remembered) = self.around.remembered.clone()
            {
                // Only the shutdown of the engine waits for it.
                self.around
                    .tasks
                    .spawn_blocking(move || remembered.keep(&this.config, &listing));
            }
            self.notify().await;
        }
        let confirmed = self.known() == Discovery::Remembered;
        self.learnt(Discovery::Listed);
        if confirmed {
            // A manifest that did not match the stored list waited for this answer. Now it is
            // refused, or matches.
            self.notify().await;
        }
    }

    async fn notify(&self) {
        let changed = self.changed.lock().clone();
        if let Some(changed) = changed {
            changed().await;
        }
    }

    fn learnt(&self, now: Discovery) {
        self.known.send_if_modified(|known| {
            let news = *known < now;
            *known = now.max(*known);
            news
        });
    }

    /// Supervises a connection until it ends.
    async fn supervise(self: Arc<Self>, opened: Opened) {
        let Opened {
            connection,
            service,
            group,
            too_long,
        } = opened;
        let cancel = service.cancellation_token();
        let mut running = std::pin::pin!(service.waiting());
        let asked = tokio::select! {
            _ = &mut running => false,
            () = self.attend(&connection) => true,
        };
        if asked {
            // Closes stdin, or ends the transport session; then the program can end by itself.
            cancel.cancel();
            let _ = tokio::time::timeout(Duration::from_secs(2), running).await;
            if let Some(group) = group {
                process::end(group).await;
            }
            self.down(&connection, None);
            return;
        }
        let status = match group {
            Some(group) => process::kill(group).await,
            None => None,
        };
        let ended = match too_long.get() {
            Some(limit) => ConnectionEnd {
                code: Code::InvalidOutput,
                why: format!("it wrote a message of more than {limit} bytes"),
            },
            None if matches!(self.config.reach, McpReach::Http { .. }) => ConnectionEnd {
                code: Code::HandlerFailed,
                why: "it closed the connection".to_owned(),
            },
            None => ConnectionEnd {
                code: Code::HandlerFailed,
                why: how(status),
            },
        };
        self.down(&connection, Some(ended));
    }

    /// Returns when the connection must end: idle, retired, or the engine stops.
    ///
    /// Until then it follows changes of the tools.
    async fn attend(&self, connection: &Arc<Connection>) {
        let news = async {
            if connection.must_subscribe()
                && let Err(error) = connection.listen().await
            {
                let cause = failure::cause(&error, &connection.secrets);
                tracing::debug!(
                    mcp.server = self.name(),
                    cause,
                    "an MCP server tells no news of its tools"
                );
            }
            std::future::pending::<()>().await;
        };
        let relist = async {
            loop {
                connection.client.changed.notified().await;
                match connection.list(self.name()).await {
                    Ok(listing) => self.learn(listing).await,
                    Err(error) => {
                        tracing::warn!(mcp.server = self.name(), %error, "tools cannot be listed anew")
                    }
                }
            }
        };
        let idle = async {
            loop {
                let left = (connection.last_used() + self.config.idle_timeout)
                    .saturating_duration_since(Instant::now());
                if left.is_zero()
                    && connection.calls() == 0
                    && self.waiting.load(Ordering::SeqCst) == 0
                {
                    tracing::debug!(mcp.server = self.name(), "stopping an idle MCP server");
                    return;
                }
                tokio::time::sleep(left.max(Duration::from_millis(10))).await;
            }
        };
        let retired = async {
            connection.retire.cancelled().await;
            // Calls in progress may finish; they have deadlines.
            while connection.calls() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = news => {}
            () = relist => {}
            () = idle => {}
            () = retired => {}
            () = self.around.stop.cancelled() => {}
        }
        connection.retire.cancel();
    }

    /// Records the end of a connection; `ended` is the reason if it was unexpected.
    fn down(&self, connection: &Arc<Connection>, ended: Option<ConnectionEnd>) {
        let mut state = self.state.lock();
        let current = matches!(&*state, Lifecycle::Up(current) if Arc::ptr_eq(current, connection));
        if current {
            self.metrics.up.set(0);
        }
        match &ended {
            Some(ConnectionEnd { code, why }) => {
                let wait = self.failures.lock().ended(connection.since.elapsed());
                tracing::warn!(
                    mcp.server = self.name(),
                    why,
                    wait_ms = wait.as_millis(),
                    "an MCP server ended"
                );
                self.metrics.crashes.inc();
                if current {
                    let error = Error::new(
                        *code,
                        format!("the MCP server \"{}\" ended: {why}", self.name()),
                    );
                    *state = Lifecycle::Failed {
                        until: Instant::now() + wait,
                        error,
                    };
                }
            }
            None if current => *state = Lifecycle::Down,
            None => {}
        }
        drop(state);
        let stopped = || ConnectionEnd {
            code: Code::HandlerFailed,
            why: "it was stopped".to_owned(),
        };
        connection.set_ended(ended.unwrap_or_else(stopped));
    }
}
