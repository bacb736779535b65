//! A pack that was found, for transports that ask about it before the call.
//!
//! So it is not looked up twice.

use std::sync::Arc;

use helmdeck_core::manifest::HandlerSpec;
use helmdeck_core::{Call, Code, Error, Outcome, Result};

use super::inner::Inner;
use crate::registry::Registered;

/// One version of a pack.
///
/// A call of it runs this version even if the packs were reloaded in the meantime.
#[derive(Clone)]
pub struct Found {
    inner: Arc<Inner>,
    registered: Arc<Registered>,
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let manifest = &self.registered.manifest;
        f.debug_struct("Found")
            .field("name", &manifest.name)
            .field("version", &manifest.version)
            .finish()
    }
}

impl Found {
    pub(super) const fn new(inner: Arc<Inner>, registered: Arc<Registered>) -> Self {
        Self { inner, registered }
    }

    /// Returns whether the pack runs as a job unless its caller waits.
    #[must_use]
    pub fn is_async(&self) -> bool {
        self.registered.manifest.asynchronous
    }

    /// Returns whether the pack changes nothing.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.registered.manifest.read_only
    }

    /// Returns whether a second call with the same input has no further effect.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.registered.manifest.idempotent()
    }

    /// Runs the call that the pack was found for; see [`Engine::call`](crate::Engine::call).
    ///
    /// # Errors
    /// Any [`Code`].
    pub async fn call(&self, call: Call) -> Result<Outcome> {
        // The permission to run a pack is checked against the name in the call.
        if call.pack != self.registered.manifest.name {
            return Err(Error::new(
                Code::Internal,
                "internal error: the call was routed to the wrong pack",
            ));
        }
        run(&self.inner, &self.registered, call).await
    }
}

/// Runs a call through the pipeline of its pack.
pub(super) async fn run(
    inner: &Arc<Inner>,
    registered: &Arc<Registered>,
    call: Call,
) -> Result<Outcome> {
    if !matches!(registered.manifest.handler, HandlerSpec::Mcp { .. }) {
        return registered.service.call(call).await;
    }
    Box::pin(run_tool(inner, registered, call)).await
}

/// Runs a tool of an MCP server.
///
/// If the server has replaced the tool since the pack was made, the tool was not called. The call
/// then goes once to the current pack.
async fn run_tool(inner: &Arc<Inner>, registered: &Arc<Registered>, call: Call) -> Result<Outcome> {
    let again = call.clone();
    match registered.service.call(call).await {
        Err(error) if error.code() == Code::Conflict => {
            let now = inner.find(&again).await?;
            if Arc::ptr_eq(&now, registered) {
                return Err(error);
            }
            now.service.call(again).await
        }
        answer => answer,
    }
}
