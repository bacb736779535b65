//! Accept loop of the server, and its drain.
//!
//! It prints nothing and handles no signals; its caller does.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::IntoResponse;
use helmdeck_conversation::Conversations;
use helmdeck_core::{Clock, Code, Correlation, Error, SystemClock, Tracer};
use helmdeck_engine::Engine;
use helmdeck_memory::KeyRing;
use helmdeck_server_config::{ServerConfig, check_listen, network};
use helmdeck_system::System;
use http::HeaderValue;
use http::header::CONNECTION;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::access::{Access, Auth};
use crate::app::{App, AppParts};
use crate::correlate;
use crate::draining::Draining;
use crate::entry::{EntryService, LazyRouter, is_health};
use crate::idempotency::Ledger;
use crate::limits::{InFlight, Permit, Replicas};
use crate::mcp::{Extra, Mcp, McpConfig, SealedSessions, SessionSeal};
use crate::operator::Operator;
use crate::peers::{Peer, Peers};
use crate::problem::Problem;
use crate::rest;
use crate::rest::project::ProjectSettings;
use crate::rest::webhook::WebhookReceiver;

/// Pause after a failed accept: without free file handles, the next try would fail at once again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Maximum connections over the limits, which get health checks only. One more closes the oldest.
const RESERVE: usize = 64;
/// Time limit for the request head of a connection of the reserve.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Shortest time between two log lines about connections over the limits.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// Time limit for the conversations to stop their background work.
const CLOSING: Duration = Duration::from_secs(5);

/// Server of an engine, with its settings.
pub struct Server {
    engine: Engine,
    config: ServerConfig,
    clock: Arc<dyn Clock>,
    ledger: Option<Ledger>,
    operator: Operator,
    auth: Option<Auth>,
    mcp: McpConfig,
    /// Keys that seal MCP sessions into their ids.
    sealed_sessions: Option<(Arc<KeyRing>, System)>,
    extra: Option<Arc<dyn Extra>>,
    conversations: Conversations,
    receiver: Option<Arc<dyn WebhookReceiver>>,
    project: ProjectSettings,
    reload: Reload,
    replicas: Replicas,
    tracer: Option<Tracer>,
}

/// Handle that changes settings of a running server. Clones change the same server.
#[derive(Debug, Clone, Default)]
pub struct Reload(Arc<OnceLock<EntryService>>);

impl Reload {
    /// Applies `allowed_hosts`, `allowed_origins`, `rate_per_second` and `rate_burst`.
    ///
    /// Other settings need a restart. Before the server was started, this does nothing.
    pub fn apply(&self, config: &ServerConfig) {
        if let Some(entry) = self.0.get() {
            entry.reload(config);
        }
    }
}

helmdeck_core::redacted_debug!(Server, this => config = this.config);

impl Server {
    /// Makes a server of an engine.
    #[must_use]
    pub fn new(engine: Engine, config: ServerConfig) -> Self {
        Self {
            engine,
            config,
            clock: Arc::new(SystemClock::default()),
            ledger: None,
            operator: Operator::default(),
            auth: None,
            mcp: McpConfig::default(),
            sealed_sessions: None,
            extra: None,
            conversations: Conversations::default(),
            receiver: None,
            project: ProjectSettings::default(),
            reload: Reload::default(),
            replicas: Replicas::default(),
            tracer: None,
        }
    }

    /// Sets the number of servers that share limits of callers; one by default. It may change while
    /// they run.
    #[must_use]
    pub fn replicas(mut self, replicas: Replicas) -> Self {
        self.replicas = replicas;
        self
    }

    /// Returns a handle to change settings while the server runs.
    #[must_use]
    pub fn reload(&self) -> Reload {
        self.reload.clone()
    }

    /// Stores idempotency keys in the system database, so that they survive a restart.
    ///
    /// With a keyring their answers are stored too, sealed.
    #[must_use]
    pub fn remember(mut self, system: System, keyring: Option<Arc<KeyRing>>) -> Self {
        self.ledger = Some(Ledger::new(system, keyring));
        self
    }

    /// Sets what the routes for operators act on. Without it they find no tokens, no vault and no
    /// settings.
    #[must_use]
    pub fn operator(mut self, operator: Operator) -> Self {
        self.operator = operator;
        self
    }

    /// Sets how callers authenticate. Without it every caller is local, on a loopback address only.
    #[must_use]
    pub fn auth(mut self, auth: Option<Auth>) -> Self {
        self.auth = auth;
        self
    }

    /// Sets the project that the project routes show. Without it they answer what to set.
    #[must_use]
    pub fn project(mut self, project: ProjectSettings) -> Self {
        self.project = project;
        self
    }

    /// Sets what makes spans of requests. Without it none are made, and trace contexts of callers
    /// are passed on.
    #[must_use]
    pub fn tracer(mut self, tracer: Option<Tracer>) -> Self {
        self.tracer = tracer;
        self
    }

    /// Sets the MCP settings.
    #[must_use]
    pub fn mcp(mut self, config: McpConfig) -> Self {
        self.mcp = config;
        self
    }

    /// Seals MCP sessions into their ids, so that every server with the same keys and system
    /// database continues them.
    ///
    /// Without it, a session belongs to the server that began it.
    #[must_use]
    pub fn seal_sessions(mut self, keyring: Arc<KeyRing>, system: System) -> Self {
        self.sealed_sessions = Some((keyring, system));
        self
    }

    /// Adds an extension to the MCP transport.
    #[must_use]
    pub fn extra(mut self, extra: Arc<dyn Extra>) -> Self {
        self.extra = Some(extra);
        self
    }

    /// Sets the conversations. Without them, every route of conversations answers that memory is
    /// off.
    #[must_use]
    pub fn conversations(mut self, conversations: Conversations) -> Self {
        self.conversations = conversations;
        self
    }

    /// Sets the receiver of webhooks at `/webhooks/linear`. Without one there is no such route.
    #[must_use]
    pub fn webhook(mut self, receiver: Option<Arc<dyn WebhookReceiver>>) -> Self {
        self.receiver = receiver;
        self
    }

    /// Sets the clock; the system clock by default.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Returns the whole server as one router, for tests and for callers with their own listener.
    ///
    /// Limits on connections, the time limit for a request head and the drain are up to that
    /// listener then, and closing the conversations is up to their owner.
    pub fn router(self) -> Router {
        let (_, _, entry) = self.assemble();
        Router::new().fallback(move |request: Request| {
            let entry = entry.clone();
            async move { entry.handle(request, None).await }
        })
    }

    /// Serves until `shutdown` is cancelled, or an administrator asks for a drain, and the running
    /// requests have ended.
    ///
    /// After that it answers for `drain_for` as before, but is not ready. Then it accepts no
    /// connection and starts no job. Running requests and jobs have `drain_timeout` to finish; then
    /// everything is closed, the conversations last. The engine stays open: its owner shuts it down
    /// afterwards.
    ///
    /// # Errors
    /// `InvalidInput` if the listener is not on a loopback address and there is no authentication,
    /// or a setting is invalid; the listener's error if its address cannot be read.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) -> io::Result<()> {
        let authenticated = self.auth.is_some();
        check_listen(listener.local_addr()?, authenticated)
            .and_then(|()| self.config.validate())
            .map_err(invalid)?;
        let config = self.config.clone();
        let (app, mcp, entry) = self.assemble();
        let draining = app.draining().clone();
        let mut connections = Connections::new(entry, &config, draining.clone());
        let stops = async {
            tokio::select! { () = shutdown.cancelled() => {} () = draining.begun() => {} }
        };
        connections.accept(&listener, stops).await;
        draining.begin();
        // Other servers run what waits; what waits in this process alone may still begin until the
        // listener closes.
        app.engine().leave_queued_jobs();
        if !config.drain_for.is_zero() {
            tracing::info!(
                seconds = config.drain_for.as_secs_f64(),
                "draining: not ready any more, still answering"
            );
            connections
                .accept(&listener, tokio::time::sleep(config.drain_for))
                .await;
        }
        drop(listener);

        app.calls().close();
        app.drain().cancel();
        app.engine().drain_jobs().await;
        mcp.drain();
        connections.drain.cancel();
        let finished = async {
            while connections.open.join_next().await.is_some() {}
            app.calls().wait().await;
            app.engine().jobs_ended().await;
        };
        if tokio::time::timeout(config.drain_timeout, finished)
            .await
            .is_err()
        {
            let (connections, calls) = (connections.open.len(), app.calls().len());
            tracing::warn!(
                connections,
                calls,
                "the drain timed out, closing what is left"
            );
        }
        mcp.stop();
        connections.open.shutdown().await;
        // There are no requests any more. Running summaries are abandoned, and made again after the
        // next start.
        app.conversations().close(CLOSING).await;
        Ok(())
    }

    fn assemble(self) -> (App, Mcp, EntryService) {
        let lifetime = self.mcp.session_lifetime;
        let sealed = self.sealed_sessions.map(|(ring, system)| SealedSessions {
            seal: SessionSeal::new(ring, Arc::clone(&self.clock), lifetime),
            system,
        });
        let (tracer, clock) = (self.tracer, Arc::clone(&self.clock));
        let mcp = Mcp::new(
            self.engine.clone(),
            &self.config,
            self.mcp,
            clock,
            self.extra,
            sealed,
            tracer.clone(),
        );
        let clock = Arc::clone(&self.clock);
        let access = self
            .auth
            .map(|auth| Arc::new(Access::new(auth, Arc::clone(&clock))));
        #[cfg(feature = "ui")]
        let parts = crate::ui::Parts {
            memory: self.engine.memory().is_some(),
            tokens: self.operator.system.is_some(),
            vault: self.operator.vault.is_some(),
            form_key: self.operator.form_key(),
        };
        let app_parts = AppParts {
            ledger: self.ledger,
            operator: self.operator,
            project: self.project,
            access: access.clone(),
            replicas: self.replicas.clone(),
        };
        let app = App::new(
            self.engine,
            self.conversations,
            &self.config,
            clock,
            app_parts,
        );
        let build = {
            let (app, receiver, spans) = (app.clone(), self.receiver, tracer.is_some());
            #[cfg(feature = "ui")]
            let (access, clock) = (access.clone(), Arc::clone(&self.clock));
            move || {
                let routes = rest::router(app, receiver);
                #[cfg(feature = "ui")]
                let routes = crate::ui::with_pages(routes, parts, access, &clock);
                if spans {
                    routes.layer(axum::middleware::from_fn(correlate::note_route))
                } else {
                    routes
                }
            }
        };
        let (routes, clock) = (LazyRouter::new(Box::new(build)), self.clock);
        let entry = EntryService::new(
            app.clone(),
            routes,
            mcp.clone(),
            access,
            clock,
            &self.config,
            self.replicas,
            tracer,
        );
        // Set once: a server is assembled once.
        let _ = self.reload.0.set(entry.clone());
        (app, mcp, entry)
    }
}

/// Serves an engine with settings only; see [`Server::serve`].
///
/// # Errors
/// As [`Server::serve`].
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    config: ServerConfig,
    shutdown: CancellationToken,
) -> io::Result<()> {
    Server::new(engine, config).serve(listener, shutdown).await
}

/// Returns the router of an engine with settings only; see [`Server::router`].
pub fn router(engine: Engine, config: ServerConfig) -> Router {
    Server::new(engine, config).router()
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

fn protocol(config: &ServerConfig) -> http1::Builder {
    let max_header_bytes = usize::try_from(config.max_header_bytes).unwrap_or(usize::MAX);
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(config.header_timeout)
        // The first limits a complete head, the second how much of an incomplete one is read.
        .max_header_size(max_header_bytes)
        .max_buf_size(max_header_bytes);
    protocol
}

struct Connections {
    entry: EntryService,
    protocol: http1::Builder,
    /// For connections of the reserve: one request each.
    once: http1::Builder,
    open: JoinSet<()>,
    places: InFlight,
    peers: Arc<Peers>,
    /// Connections of the reserve, oldest first.
    reserve: VecDeque<AbortHandle>,
    /// When the log last warned about connections over the limits.
    warned: Option<Instant>,
    draining: Draining,
    /// Cancelled when every connection has to end after its current request.
    drain: CancellationToken,
}

impl Connections {
    fn new(entry: EntryService, config: &ServerConfig, draining: Draining) -> Self {
        let mut once = protocol(config);
        once.keep_alive(false)
            .header_read_timeout(config.header_timeout.min(RESERVE_TIMEOUT));
        // The configuration was checked, so each can be read.
        let proxies = config
            .proxies
            .iter()
            .filter_map(|proxy| network(proxy))
            .collect();
        Self {
            entry,
            protocol: protocol(config),
            once,
            open: JoinSet::new(),
            places: InFlight::new(config.max_connections),
            peers: Peers::new(
                config.max_connections_per_peer,
                config.max_requests.div_ceil(2),
                proxies,
            ),
            reserve: VecDeque::new(),
            warned: None,
            draining,
            drain: CancellationToken::new(),
        }
    }

    async fn accept(&mut self, listener: &TcpListener, until: impl Future<Output = ()>) {
        let mut until = std::pin::pin!(until);
        loop {
            tokio::select! {
                biased;
                () = &mut until => return,
                Some(_) = self.open.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => self.start(stream, address.ip()),
                    Err(error) => {
                        tracing::warn!(error = %error, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }

    fn start(&mut self, stream: TcpStream, address: IpAddr) {
        // An answer is one write, so Nagle's algorithm would only delay it. A failure only makes
        // answers slower.
        let _ = stream.set_nodelay(true);
        match self.admit(address) {
            Ok(admitted) => self.serve(stream, admitted),
            Err(reason) => {
                if self
                    .warned
                    .is_none_or(|warned| warned.elapsed() >= WARN_EVERY)
                {
                    self.warned = Some(Instant::now());
                    tracing::warn!(peer = %address, "{reason}: only /healthz and /readyz are answered on further ones");
                }
                self.serve_health(stream, reason);
            }
        }
    }

    fn admit(&self, address: IpAddr) -> Result<(Permit, Peer), &'static str> {
        let peer = self
            .peers
            .enter(address)
            .ok_or("too many connections from one address")?;
        let place = self.places.enter().map_err(|_| "too many connections")?;
        Ok((place, peer))
    }

    fn serve(&mut self, stream: TcpStream, (place, peer): (Permit, Peer)) {
        let (entry, peer, draining) = (self.entry.clone(), Arc::new(peer), self.draining.clone());
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let (entry, peer, draining) = (entry.clone(), Arc::clone(&peer), draining.clone());
            async move {
                let mut response = entry.handle(request.map(Body::new), peer.requests()).await;
                if draining.has_begun() {
                    // The next request of this client comes over a new connection, to another
                    // replica.
                    response
                        .headers_mut()
                        .insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        });
        let connection = self
            .protocol
            .serve_connection(TokioIo::new(stream), service);
        // Its own token: with a shared one, all connections would contend for its lock at each
        // wake-up.
        let drain = self.drain.child_token();
        self.open.spawn(async move {
            let _place = place;
            let mut connection = std::pin::pin!(connection);
            let result = tokio::select! {
                biased;
                result = connection.as_mut() => result,
                () = drain.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = result {
                tracing::debug!(error = %error, "a connection ended early");
            }
        });
    }

    /// Answers one request of a connection over the limits: health, or `overloaded`.
    fn serve_health(&mut self, stream: TcpStream, reason: &'static str) {
        self.reserve.retain(|connection| !connection.is_finished());
        if self.reserve.len() >= RESERVE
            && let Some(oldest) = self.reserve.pop_front()
        {
            oldest.abort();
        }
        let entry = self.entry.clone();
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let entry = entry.clone();
            async move {
                if is_health(request.uri().path()) {
                    return Ok::<_, Infallible>(entry.handle(request.map(Body::new), None).await);
                }
                let (id, shown) = correlate::request_id(request.headers());
                let correlation = Correlation {
                    request_id: Some(id),
                    trace: None,
                };
                let error =
                    Error::new(Code::Overloaded, reason).with_retry_after(Duration::from_secs(1));
                let mut response = correlation
                    .scope(async { Problem::from(error).into_response() })
                    .await;
                response
                    .headers_mut()
                    .insert(correlate::X_REQUEST_ID, shown);
                response
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
                Ok(response)
            }
        });
        let connection = self.once.serve_connection(TokioIo::new(stream), service);
        let drain = self.drain.child_token();
        self.reserve.push_back(self.open.spawn(async move {
            // A connection that is not done at the drain can ask another server.
            let _ = drain.run_until_cancelled(connection).await;
        }));
    }
}

#[cfg(test)]
mod tests;
