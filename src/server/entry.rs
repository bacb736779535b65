//! Checks before each route: host and origin, the caller, concurrent requests, rate.
//!
//! It is a plain function in front of the router instead of a stack of middleware: each layer of an
//! `axum::Router` costs a box and a clone per request, and a cache hit costs little more than that.

use parking_lot::RwLock;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use helmdeck_core::{Caller, Clock, Code, Correlation, Error, Tracer};
use helmdeck_engine::Engine;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD,
    AUTHORIZATION, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body::Body as _;
use tower::Service;

use crate::ServerConfig;
use crate::access::Access;
use crate::app::App;
use crate::correlate;
use crate::guard::{Asked, Guard};
use crate::limits::{Admission, Each, InFlight, Rate, Replicas, RequestSlot};
use crate::mcp::Mcp;
use crate::position::{self, AFTER, Behind, POSITION};
use crate::problem::Problem;
use crate::rest::state::CallState;
use crate::rest::webhook::PATH as WEBHOOK;
use crate::rest::{operations, packs};
use crate::validity::{CHECK_EVERY, Standing, Validity};

/// Path of the `OpenAPI` document, which is public.
const DOCUMENT: &str = "/api/v1/openapi.json";

/// The path of the MCP transport.
pub(crate) const MCP: &str = "/mcp";

/// The listener's request handler. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct EntryService(Arc<Inner>);

helmdeck_core::redacted_debug!(EntryService);

struct Inner {
    live: RwLock<Live>,
    in_flight: InFlight,
    /// Requests of each caller, with authentication.
    callers: Each,
    /// Authentication; `None` = every caller is the local caller.
    access: Option<Arc<Access>>,
    local: Caller,
    clock: Arc<dyn Clock>,
    replicas: Replicas,
    app: App,
    router: LazyRouter,
    mcp: Mcp,
    /// `None` = no spans are made.
    tracer: Option<Tracer>,
}

/// The router of what this file does not answer itself, built by the first such request.
///
/// Health checks and calls of packs do not need it, and its routes come with their documentation,
/// which takes a tenth of the instructions of a start to build.
pub(crate) type LazyRouter = LazyLock<Router, Box<dyn FnOnce() -> Router + Send>>;

/// Settings that a reload of the configuration replaces.
struct Live {
    guard: Guard,
    rate: Option<Arc<Rate>>,
}

impl Live {
    fn new(config: &ServerConfig, replicas: &Replicas, authenticates: bool) -> Self {
        Self {
            guard: Guard::new(
                &config.allowed_hosts,
                &config.allowed_origins,
                authenticates,
            ),
            rate: Rate::new(config.rate_per_second, config.rate_burst, replicas.clone())
                .map(Arc::new),
        }
    }
}

impl EntryService {
    #[expect(
        clippy::too_many_arguments,
        reason = "the one place that assembles a server calls it"
    )]
    pub(crate) fn new(
        app: App,
        router: LazyRouter,
        mcp: Mcp,
        access: Option<Arc<Access>>,
        clock: Arc<dyn Clock>,
        config: &ServerConfig,
        replicas: Replicas,
        tracer: Option<Tracer>,
    ) -> Self {
        // The default is a part of what one server can do; a number is what a caller gets from all
        // of them.
        let callers = match config.max_requests_per_caller {
            0 => Each::new(config.requests_per_caller()),
            limit => Each::over(limit, replicas.clone()),
        };
        Self(Arc::new(Inner {
            live: RwLock::new(Live::new(config, &replicas, access.is_some())),
            in_flight: InFlight::new(config.max_requests),
            callers,
            access,
            local: Caller::local(),
            clock,
            replicas,
            app,
            router,
            mcp,
            tracer,
        }))
    }

    /// Applies hosts, origins and rates of a configuration to new requests.
    pub(crate) fn reload(&self, config: &ServerConfig) {
        *self.0.live.write() = Live::new(config, &self.0.replicas, self.0.access.is_some());
    }

    /// Answers one request. `peer` counts the running requests of its address.
    ///
    /// Each answer has a request id. It is current, with the caller's trace, while the request is
    /// handled.
    pub(crate) async fn handle(&self, request: Request<Body>, peer: Option<&InFlight>) -> Response {
        let (id, shown) = correlate::request_id(request.headers());
        let correlation = Correlation {
            request_id: Some(id),
            trace: correlate::trace(request.headers()),
        };
        let mut response = match &self.0.tracer {
            None => correlation.scope(self.check(request, peer)).await,
            Some(tracer) => Box::pin(self.trace(tracer, correlation, request, peer)).await,
        };
        response
            .headers_mut()
            .insert(correlate::X_REQUEST_ID, shown);
        response
    }

    /// Answers one request within a span. Health checks and scrapes get none: they would be most of
    /// what is recorded.
    async fn trace(
        &self,
        tracer: &Tracer,
        mut correlation: Correlation,
        request: Request<Body>,
        peer: Option<&InFlight>,
    ) -> Response {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let quiet = is_health(&path) || path == "/metrics";
        let span = if quiet {
            None
        } else {
            correlate::begin(tracer, &request, &mut correlation)
        };
        let response = correlation.scope(self.check(request, peer)).await;
        if let Some(span) = span {
            correlate::end(span, &method, &path, &response);
        }
        response
    }

    /// Checks the request's host and origin, and answers it.
    async fn check(&self, request: Request<Body>, peer: Option<&InFlight>) -> Response {
        let (origin, rate) = match self.guard(&request) {
            Ok(checked) => checked,
            Err(problem) => return problem.into_response(),
        };
        let Some(origin) = origin else {
            return self.answer(request, rate, peer).await;
        };
        let preflight = request
            .headers()
            .contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        let mut response = if preflight && request.method() == Method::OPTIONS {
            allowed_requests()
        } else {
            Box::pin(self.answer(request, rate, peer)).await
        };
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(VARY, HeaderValue::from_name(ORIGIN));
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
        response
    }

    /// Returns the foreign origin that may read the answer, if any, and the current rate limit.
    fn guard(
        &self,
        request: &Request<Body>,
    ) -> Result<(Option<HeaderValue>, Option<Arc<Rate>>), Problem> {
        let asked = Asked {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            body: !request.body().is_end_stream(),
        };
        let live = self.0.live.read();
        let origin = live.guard.check(&asked)?;
        Ok((origin.cloned(), live.rate.clone()))
    }

    async fn answer(
        &self,
        mut request: Request<Body>,
        rate: Option<Arc<Rate>>,
        peer: Option<&InFlight>,
    ) -> Response {
        let (caller, admission) = match self
            .admit(request.uri(), request.headers(), rate, peer)
            .await
        {
            Ok(admitted) => admitted,
            Err(problem) => return problem.into_response(),
        };
        if self.0.access.is_none() {
            return self.route(request, caller, admission).await;
        }
        let (presented, began) = (Presented::of(&caller, &request), self.0.clock.monotonic());
        if request.uri().path() == MCP {
            request
                .extensions_mut()
                .insert(self.validity(presented.clone()));
        }
        let response = self.route(request, caller, admission).await;
        let took = self.0.clock.monotonic().saturating_sub(began);
        if took < CHECK_EVERY && response.body().size_hint().exact().is_some() {
            return response;
        }
        Box::pin(self.validity(presented).guard(response, took)).await
    }

    /// Passes a request of a known caller on.
    async fn route(
        &self,
        mut request: Request<Body>,
        caller: Caller,
        admission: Option<Admission>,
    ) -> Response {
        if request.uri().path() == MCP {
            // Boxed, so that REST requests do not carry its size.
            return Box::pin(self.0.mcp.handle(caller, admission, request)).await;
        }
        // The route of a span comes from the router.
        let named = if self.0.tracer.is_none() {
            packs::named(request.method(), request.uri().path())
        } else {
            None
        };
        if let Some(admission) = admission
            .as_ref()
            .filter(|_| !request.body().is_end_stream())
        {
            request.extensions_mut().insert(admission.slot.clone());
        }
        if request.headers().contains_key(AFTER)
            && let Err(problem) = Box::pin(self.catch_up(&mut request)).await
        {
            return problem.into_response();
        }
        if let Some(name) = named {
            // It names the position itself, if the pack writes.
            let response = Box::pin(packs::run_named(self.calls(), caller, name, request)).await;
            drop(admission);
            return response;
        }
        if *request.method() == Method::GET && is_health(request.uri().path()) {
            return Box::pin(operations::health(&self.0.app, request.uri().path())).await;
        }
        request.extensions_mut().insert(caller);
        let writes = position::writes(request.method(), request.uri().path());
        let answered = self.0.router.clone().call(request).await;
        drop(admission);
        match answered {
            Ok(mut response) => {
                if writes && response.status().is_success() {
                    response
                        .headers_mut()
                        .extend(position::header(self.engine()).map(|value| (POSITION, value)));
                }
                response
            }
            Err(never) => match never {},
        }
    }

    fn engine(&self) -> &Engine {
        &self.calls().engine.engine
    }

    fn calls(&self) -> &CallState {
        self.0.app.call_state()
    }

    /// Catches up with the deletes that the caller knows of. Marks the request if that fails.
    async fn catch_up(&self, request: &mut Request<Body>) -> Result<(), Problem> {
        if let Some(position) = position::asked(request.headers())?
            && position::is_behind(self.engine(), &position).await
        {
            request.extensions_mut().insert(Behind);
        }
        Ok(())
    }

    /// Returns a check, for later, whether a request's credential is still valid for its caller.
    fn validity(&self, Presented { caller, headers }: Presented) -> Validity {
        // A session keeps the check, and must not keep the whole server alive.
        let inner = Arc::downgrade(&self.0);
        Validity::new(move || {
            let (inner, caller, headers) = (inner.clone(), caller.clone(), headers.clone());
            async move {
                let Some(inner) = inner.upgrade() else {
                    return Standing::Revoked;
                };
                let Some(access) = &inner.access else {
                    return Standing::Good;
                };
                if caller
                    .credential
                    .expires_at()
                    .is_some_and(|expires| expires <= inner.clock.now())
                {
                    return Standing::Expired;
                }
                let found = match headers {
                    ShownHeaders::Page(headers) => {
                        access
                            .caller_of(true, &Uri::from_static(MCP), &headers)
                            .await
                    }
                    ShownHeaders::Token(token) => {
                        let headers = token
                            .map(|token| (AUTHORIZATION, token))
                            .into_iter()
                            .collect();
                        access
                            .caller_of(false, &Uri::from_static(MCP), &headers)
                            .await
                    }
                };
                match found {
                    Ok(found) if found.identity == caller.identity => Standing::Good,
                    // While the credential cannot be checked it counts as valid; the next check
                    // asks again.
                    Err(problem) if !problem.status().is_client_error() => Standing::Good,
                    _ => Standing::Revoked,
                }
            }
        })
    }

    /// Authenticates a request and counts it.
    ///
    /// Health and metrics are not limited, because they are needed just when the server is busy.
    /// With a token they are: checking it takes work.
    async fn admit(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        rate: Option<Arc<Rate>>,
        peer: Option<&InFlight>,
    ) -> Result<(Caller, Option<Admission>), Problem> {
        let inner = &self.0;
        let limited = is_limited(uri.path());
        let checked = inner.access.is_some() && headers.contains_key(AUTHORIZATION);
        let held = if limited || checked {
            // Without authentication all callers are one, on this machine.
            let full =
                |error: Error| error.with_message("too many requests at once from your address");
            let peer = peer
                .filter(|_| inner.access.is_some())
                .map(InFlight::enter)
                .transpose()
                .map_err(full)?;
            Some((RequestSlot::take(&inner.in_flight)?, peer))
        } else {
            None
        };
        let caller = match &inner.access {
            None => inner.local.clone(),
            Some(access) => access.caller_of(is_page(uri.path()), uri, headers).await?,
        };
        let mut share = None;
        if limited {
            if let Some(rate) = &rate {
                rate.take(&caller.identity.without_session(), inner.clock.monotonic())?;
            }
            let nobody = caller.identity.is_anonymous() && caller.permissions.is_empty();
            // A page sends a visitor without a token to where it can sign in.
            if nobody && uri.path() != DOCUMENT && uri.path() != WEBHOOK && !is_page(uri.path()) {
                return Err(Problem::new(
                    Code::Unauthenticated,
                    "this needs a bearer token",
                ));
            }
            if inner.access.is_some() {
                let full =
                    |error: Error| error.with_message("you have too many requests open at once");
                share = Some(
                    inner
                        .callers
                        .enter(&caller.identity.without_session())
                        .map_err(full)?,
                );
            }
        }
        Ok((
            caller,
            held.map(|(slot, peer)| Admission {
                slot,
                _caller: share,
                _peer: peer,
            }),
        ))
    }
}

/// Credential of a request as its client presented it, and the caller that it proved.
#[derive(Clone)]
struct Presented {
    caller: Caller,
    headers: ShownHeaders,
}

#[derive(Clone)]
enum ShownHeaders {
    /// All headers of a request for a page: its cookie depends on the host.
    Page(Arc<HeaderMap>),
    Token(Option<HeaderValue>),
}

impl Presented {
    fn of(caller: &Caller, request: &Request<Body>) -> Self {
        let headers = if is_page(request.uri().path()) {
            ShownHeaders::Page(Arc::new(request.headers().clone()))
        } else {
            ShownHeaders::Token(request.headers().get(AUTHORIZATION).cloned())
        };
        Self {
            caller: caller.clone(),
            headers,
        }
    }
}

/// Answers a CORS preflight request (Fetch standard).
fn allowed_requests() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(
        ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("GET, HEAD, POST, DELETE"),
    );
    headers.insert(
        ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static("*, Authorization"),
    );
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

/// Says whether a path is a health check, which is always answered.
pub(crate) fn is_health(path: &str) -> bool {
    path == "/healthz" || path == "/readyz"
}

/// Says whether a path is one of the pages for people.
pub(crate) fn is_page(path: &str) -> bool {
    path == "/ui" || path.starts_with("/ui/")
}

/// Says whether a path reaches the engine, so that its requests are limited.
fn is_limited(path: &str) -> bool {
    path.starts_with("/api/")
        || path == MCP
        || path.starts_with("/mcp/")
        || path == WEBHOOK
        || is_page(path)
}
