//! The way in of every request: who may call, how many at once, how often; then the routes.
//!
//! It is a plain function in front of the router and not a stack of middleware, because each layer of an `axum::Router`
//! costs a box and a clone per request, and a cache hit costs little more than that.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use helmdeck_core::{Caller, Clock, Code};
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Uri};
use tower::Service;

use crate::access::Access;
use crate::app::App;
use crate::config::ServerConfig;
use crate::guard::Guard;
use crate::limits::{InFlight, Permit, Rate};
use crate::mcp::{Mcp, Validity};
use crate::problem::Problem;
use crate::rest;

/// The description of the API, which is open to everybody.
const DOCUMENT: &str = "/api/v1/openapi.json";

/// Where the MCP door is.
const MCP: &str = "/mcp";

/// The door. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Front(Arc<Inner>);

struct Inner {
    guard: Guard,
    in_flight: InFlight,
    rate: Option<Rate>,
    /// `None` = there is no authentication, and everybody is the one local caller.
    access: Option<Access>,
    local: Caller,
    clock: Arc<dyn Clock>,
    router: Router,
    mcp: Mcp,
}

impl Front {
    pub(crate) fn new(app: Arc<App>, mcp: Mcp, access: Option<Access>, clock: Arc<dyn Clock>) -> Self {
        let config: &ServerConfig = &app.config;
        Self(Arc::new(Inner {
            guard: Guard::new(&config.allowed_hosts, &config.allowed_origins),
            in_flight: InFlight::new(config.max_requests),
            rate: Rate::new(config.rate_per_second, config.rate_burst),
            access,
            local: Caller::local(),
            clock,
            router: rest::router(app),
            mcp,
        }))
    }

    /// Answers one request.
    pub(crate) async fn handle(&self, mut request: Request<Body>) -> Response {
        let (caller, permit) = match self.admit(request.uri(), request.headers()).await {
            Ok(admitted) => admitted,
            Err(problem) => return problem.into_response(),
        };
        if request.uri().path() == MCP {
            if self.0.access.is_some() {
                let validity = self.validity(&caller, request.headers());
                request.extensions_mut().insert(validity);
            }
            // Boxed, so that the other doors do not pay for its size.
            return Box::pin(self.0.mcp.handle(caller, permit, request)).await;
        }
        request.extensions_mut().insert(caller);
        let answered = self.0.router.clone().call(request).await;
        drop(permit);
        match answered {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// Returns what says later whether this request's token still stands for its caller.
    fn validity(&self, caller: &Caller, headers: &HeaderMap) -> Validity {
        // A session keeps it, and must not keep the whole server.
        let (inner, who) = (Arc::downgrade(&self.0), Arc::clone(&caller.identity));
        let shown: HeaderMap =
            headers.get_all(AUTHORIZATION).iter().map(|value| (AUTHORIZATION, value.clone())).collect();
        Validity::new(move || {
            let (inner, who, shown) = (inner.clone(), Arc::clone(&who), shown.clone());
            async move {
                let Some(inner) = inner.upgrade() else { return false };
                let Some(access) = &inner.access else { return true };
                match access.caller(&Uri::from_static(MCP), &shown).await {
                    Ok(caller) => caller.identity == who,
                    // What cannot be asked just now has refused nobody; the next check asks again.
                    Err(problem) => !problem.status().is_client_error(),
                }
            }
        })
    }

    /// Health and metrics are not limited: they are asked for just when the server is busy. Whoever shows a token there is, since
    /// to check it takes work.
    async fn admit(&self, uri: &Uri, headers: &HeaderMap) -> Result<(Caller, Option<Permit>), Problem> {
        let inner = &self.0;
        inner.guard.check(uri, headers)?;
        let limited = is_limited(uri.path());
        let checked = inner.access.is_some() && headers.contains_key(AUTHORIZATION);
        let permit = if limited || checked { Some(inner.in_flight.enter()?) } else { None };
        let caller = match &inner.access {
            None => inner.local.clone(),
            Some(access) => access.caller(uri, headers).await?,
        };
        if limited {
            if let Some(rate) = &inner.rate {
                rate.take(&caller.identity, inner.clock.monotonic())?;
            }
            let nobody = caller.identity.is_anonymous() && caller.permissions.is_empty();
            if nobody && uri.path() != DOCUMENT {
                return Err(Problem::new(Code::Unauthenticated, "this needs a bearer token"));
            }
        }
        Ok((caller, permit))
    }
}

/// Says whether a path leads to the engine, so that how often and how many at once counts.
fn is_limited(path: &str) -> bool {
    path.starts_with("/api/") || path == "/mcp" || path.starts_with("/mcp/")
}
