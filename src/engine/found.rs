//! A pack that was found, so that a transport which asks it something first does not look for it twice.

use std::sync::Arc;

use crate::engine::Engine;
use crate::registry::Registered;
use helmdeck_core::{Call, Code, Error, Outcome, Result};

/// One version of a pack, as it was when it was looked for: a call of it runs that, also if packs were read anew meanwhile.
#[derive(Clone)]
pub struct Found {
    engine: Engine,
    registered: Arc<Registered>,
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let manifest = &self.registered.manifest;
        f.debug_struct("Found").field("name", &manifest.name).field("version", &manifest.version).finish()
    }
}

impl Engine {
    /// Finds the pack of a call.
    ///
    /// # Errors
    /// `not_found` if there is no such pack or version; what asking a server for its tools ends in.
    pub async fn find(&self, call: &Call) -> Result<Found> {
        let registered = self.registered(call).await?;
        Ok(Found { engine: self.clone(), registered })
    }
}

impl Found {
    /// Says whether the pack runs as a job unless its caller waits.
    #[must_use]
    pub fn is_async(&self) -> bool {
        self.registered.manifest.asynchronous
    }

    /// Says whether the pack changes nothing.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.registered.manifest.read_only
    }

    /// Runs the call that the pack was found for; see [`Engine::call`].
    ///
    /// # Errors
    /// Any [`Code`].
    pub async fn call(&self, call: Call) -> Result<Outcome> {
        // Who may run a pack is decided by the name in the call.
        if call.pack != self.registered.manifest.name {
            return Err(Error::new(Code::Internal, "a call reached another pack than it names"));
        }
        self.engine.run(Arc::clone(&self.registered), call).await
    }
}
