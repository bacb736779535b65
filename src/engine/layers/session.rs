//! Gives a pack the session that its manifest asks for.
//!
//! It is the one that the caller pinned, or a new one. A new one ends with the call, unless the
//! manifest preserves it and the call succeeds. However the call ends, a session that is not kept
//! ends too.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use helmdeck_core::manifest::SessionSpec;
use helmdeck_core::{Call, Clock, Code, Error, Manifest, Outcome, Result};
use tower::{Layer, Service};

use helmdeck_sandbox::{Sessions, Used};

/// Settings of the sessions of one pack. Shared, because each call clones the stack.
pub(crate) struct Asks {
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) spec: SessionSpec,
    /// `None`: this engine has no sessions, and such a call is refused.
    pub(crate) sessions: Option<Sessions>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Gives sessions to one pack.
#[derive(Clone)]
pub(crate) struct SessionLayer(pub(crate) Arc<Asks>);

impl<S> Layer<S> for SessionLayer {
    type Service = SessionService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        SessionService {
            inner,
            asks: Arc::clone(&self.0),
        }
    }
}

/// The service of [`SessionLayer`].
#[derive(Clone)]
pub(crate) struct SessionService<S> {
    inner: S,
    asks: Arc<Asks>,
}

impl<S> Service<Call> for SessionService<S>
where
    S: Service<Call, Response = Outcome, Error = Error, Future: Send> + Clone + Send + 'static,
{
    type Response = Outcome;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        // The clone is not the service that was polled ready.
        let fresh = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, fresh);
        Box::pin(run(Arc::clone(&self.asks), inner, call))
    }
}

async fn run<S>(asks: Arc<Asks>, mut inner: S, mut call: Call) -> Result<Outcome>
where
    S: Service<Call, Response = Outcome, Error = Error>,
{
    let mut used = asks.session(&call).await?;
    call.stage.session = used.as_ref().map(Used::handle);
    let anonymous = call.identity.is_anonymous();
    let result = inner.call(call).await;
    let Some(used) = &mut used else { return result };
    let mut outcome = match result {
        Ok(outcome) => outcome,
        Err(error) => {
            used.finish().await;
            return Err(error);
        }
    };
    // An anonymous caller cannot prove that a session is its own.
    if asks.spec.preserve && !anonymous {
        used.keep(asks.clock.now().saturating_add(asks.spec.timeout))
            .await?;
    }
    used.finish().await;
    outcome.session_id = used.kept().then(|| Arc::from(used.id()));
    Ok(outcome)
}

impl Asks {
    async fn session(&self, call: &Call) -> Result<Option<Used>> {
        let Some(sessions) = &self.sessions else {
            if self.spec.optional && call.stage.pinned_session.is_none() {
                return Ok(None);
            }
            let message = format!(
                "pack \"{}\" needs a session, and this server has no session runtime",
                self.manifest.name
            );
            return Err(Error::new(Code::SessionUnavailable, message));
        };
        let pinned = &call.stage.pinned_session;
        // A pinned session has no more network than a fresh one.
        if self.spec.network && (pinned.is_some() || !self.spec.optional) {
            let message = format!(
                "pack \"{}\" asks for a session with network, and sessions have none here",
                self.manifest.name
            );
            return Err(Error::new(Code::SessionUnavailable, message));
        }
        match pinned {
            Some(id) => sessions.of(&call.identity, id).await.map(Some),
            None if self.spec.optional => Ok(None),
            None => sessions
                .create(&self.spec, &call.identity, &self.manifest.name)
                .await
                .map(Some),
        }
    }
}
