//! Where doors and packs find the conversation memory, which is there only behind gate 1, and opened only if somebody wants it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use helmdeck_core::memory::NoMemory;
use helmdeck_core::{Error, Result};

use crate::memory::ConversationMemory;

type Opener = Box<dyn Fn() -> Result<ConversationMemory> + Send + Sync>;

/// A place for one conversation memory. Cheap to clone; clones are the same place.
///
/// It is made before the engine, because packs are, and filled after it, because the store is the engine's.
#[derive(Clone, Default)]
pub struct Conversations(Arc<Place>);

#[derive(Default)]
struct Place {
    opener: OnceLock<Opener>,
    opened: OnceLock<Result<ConversationMemory>>,
}

impl Conversations {
    /// Makes a place that is filled already.
    #[must_use]
    pub fn of(memory: ConversationMemory) -> Self {
        let place = Self::default();
        place.provide(move || Ok(memory.clone()));
        place
    }

    /// Says how the memory is opened, once; a second time is of no effect.
    pub fn provide(&self, opener: impl Fn() -> Result<ConversationMemory> + Send + Sync + 'static) {
        let _ = self.0.opener.set(Box::new(opener));
    }

    /// Returns the memory, opened at the first call, within a tokio runtime.
    ///
    /// # Errors
    /// That of [`NoMemory::Off`] if there is none; else why it does not open, the same at every call.
    pub fn get(&self) -> Result<&ConversationMemory> {
        let Some(opener) = self.0.opener.get() else { return Err(NoMemory::Off.into()) };
        self.0.opened.get_or_init(opener).as_ref().map_err(Error::clone)
    }

    /// Returns the memory if it is open; opens nothing.
    #[must_use]
    pub fn opened(&self) -> Option<&ConversationMemory> {
        self.0.opened.get()?.as_ref().ok()
    }

    /// Drops what is held in memory of a caller whose dialogues were deleted from the store; nothing if the memory was not opened.
    pub fn forgotten(&self, caller: &helmdeck_core::Identity) {
        if let Some(memory) = self.opened() {
            memory.forgotten(caller.tenant(), caller.user());
        }
    }

    /// Closes the memory if it was opened.
    pub async fn close(&self, within: Duration) {
        if let Some(memory) = self.opened() {
            memory.close(within).await;
        }
    }
}

impl std::fmt::Debug for Conversations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversations").field("open", &self.0.opened.get().is_some()).finish_non_exhaustive()
    }
}
