//! The way in of every request: who may call, how many at once, how often; then the routes.
//!
//! It is a plain function in front of the router and not a stack of middleware, because each layer of an `axum::Router`
//! costs a box and a clone per request, and a cache hit costs little more than that.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use helmdeck_core::{Caller, Clock};
use http::Request;
use tower::Service;

use crate::app::App;
use crate::config::ServerConfig;
use crate::guard::Guard;
use crate::limits::{InFlight, Permit, Rate};
use crate::mcp::Mcp;
use crate::problem::Problem;
use crate::rest;

/// Where the MCP door is.
const MCP: &str = "/mcp";

/// The door. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Front(Arc<Inner>);

struct Inner {
    guard: Guard,
    in_flight: InFlight,
    rate: Option<Rate>,
    /// Who everybody is on a server without authentication.
    local: Caller,
    clock: Arc<dyn Clock>,
    router: Router,
    mcp: Mcp,
}

impl Front {
    pub(crate) fn new(app: Arc<App>, mcp: Mcp, clock: Arc<dyn Clock>) -> Self {
        let config: &ServerConfig = &app.config;
        Self(Arc::new(Inner {
            guard: Guard::new(&config.allowed_hosts, &config.allowed_origins),
            in_flight: InFlight::new(config.max_requests),
            rate: Rate::new(config.rate_per_second, config.rate_burst),
            local: Caller::local(),
            clock,
            router: rest::router(app),
            mcp,
        }))
    }

    /// Answers one request.
    pub(crate) async fn handle(&self, mut request: Request<Body>) -> Response {
        let caller = self.0.local.clone();
        let _permit = match self.admit(&request, &caller) {
            Ok(permit) => permit,
            Err(problem) => return problem.into_response(),
        };
        if request.uri().path() == MCP {
            return self.0.mcp.handle(caller, request).await;
        }
        request.extensions_mut().insert(caller);
        match self.0.router.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// Health and metrics are not limited: they are asked for just when the server is busy.
    fn admit(&self, request: &Request<Body>, caller: &Caller) -> Result<Option<Permit<'_>>, Problem> {
        let inner = &self.0;
        inner.guard.check(request.uri(), request.headers())?;
        if !limited(request.uri().path()) {
            return Ok(None);
        }
        if let Some(rate) = &inner.rate {
            rate.take(&caller.identity, inner.clock.monotonic())?;
        }
        Ok(Some(inner.in_flight.enter()?))
    }
}

/// Says whether a path leads to the engine, so that how often and how many at once counts.
fn limited(path: &str) -> bool {
    path.starts_with("/api/") || path == "/mcp" || path.starts_with("/mcp/")
}
