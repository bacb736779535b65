//! Handle through which transports and packs find the conversation memory; opened on first use.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use helmdeck_core::memory::NoMemory;
use helmdeck_core::{Error, Result};

use crate::error::ConversationError;
use crate::memory::ConversationMemory;

type Opener = Box<dyn Fn() -> Result<ConversationMemory> + Send + Sync>;

/// Handle of a conversation memory that may be set later. Clones share one memory.
///
/// It is created before the engine, because packs need it, and set after it, because it uses the
/// engine's store.
#[derive(Clone, Default)]
pub struct Conversations(Arc<LazyMemory>);

#[derive(Default)]
struct LazyMemory {
    opener: OnceLock<Opener>,
    opened: OnceLock<Result<ConversationMemory>>,
}

impl Conversations {
    /// Makes a handle of an open memory.
    #[must_use]
    pub fn of(memory: ConversationMemory) -> Self {
        let place = LazyMemory {
            opener: OnceLock::new(),
            opened: Ok(memory).into(),
        };
        Self(Arc::new(place))
    }

    /// Sets how to open the memory; only the first call counts.
    pub fn provide(&self, opener: impl Fn() -> Result<ConversationMemory> + Send + Sync + 'static) {
        let _ = self.0.opener.set(Box::new(opener));
    }

    /// Returns the memory; the first call opens it, within a tokio runtime.
    ///
    /// # Errors
    /// [`NoMemory::Off`] if there is none, `Closed` if it was closed before its first use, or the error of opening it.
    pub fn get(&self) -> Result<&ConversationMemory> {
        let opened = match (self.0.opened.get(), self.0.opener.get()) {
            (Some(opened), _) => opened,
            (None, Some(opener)) => self.0.opened.get_or_init(opener),
            (None, None) => return Err(NoMemory::Off.into()),
        };
        opened.as_ref().map_err(Error::clone)
    }

    /// Returns the memory if it is open.
    #[must_use]
    pub fn opened(&self) -> Option<&ConversationMemory> {
        self.0.opened.get()?.as_ref().ok()
    }

    /// Drops the cached conversations of a caller after their rows were deleted.
    pub fn forgotten(&self, caller: &helmdeck_core::Identity) {
        if let Some(memory) = self.opened() {
            memory.forgotten(caller.tenant(), caller.user());
        }
    }

    /// Closes the memory. One that was never opened can't be opened any more.
    pub async fn close(&self, within: Duration) {
        if self.0.opener.get().is_some() {
            let _ = self
                .0
                .opened
                .get_or_init(|| Err(ConversationError::Closed.into()));
        }
        if let Some(memory) = self.opened() {
            memory.close(within).await;
        }
    }
}

helmdeck_core::redacted_debug!(Conversations, this => open = this.0.opened.get().is_some());

#[cfg(test)]
mod tests {
    use helmdeck_core::Code;
    use helmdeck_events::Bus;
    use helmdeck_testkit::{ManualClock, sealed_memory};

    use super::*;
    use crate::{Config, Dependencies};

    async fn memory() -> ConversationMemory {
        let clock = Arc::new(ManualClock::default());
        let (store, events) = (
            sealed_memory(Arc::clone(&clock) as _).await,
            Bus::new(1, Arc::clone(&clock) as _),
        );
        let dependencies = Dependencies {
            store,
            events,
            clock,
            summarizer: None,
        };
        ConversationMemory::open(Config::default(), dependencies).unwrap()
    }

    #[tokio::test]
    async fn closed_memory_stays_closed() {
        let never = Conversations::default();
        assert_eq!(never.get().unwrap_err().code(), Code::NotFound);
        never.close(Duration::ZERO).await;
        assert_eq!(
            never.get().unwrap_err().code(),
            Code::NotFound,
            "there was none to close"
        );

        let opens = memory().await;
        let late = Conversations::default();
        late.provide(move || Ok(opens.clone()));
        late.close(Duration::ZERO).await;
        assert_eq!(
            late.get().unwrap_err().code(),
            Code::Overloaded,
            "nobody opens it after the end"
        );
        assert!(late.opened().is_none());

        let identity = crate::Identity::new("t", "u", "s");
        let filled = Conversations::of(memory().await);
        filled.close(Duration::ZERO).await;
        let error = filled.get().unwrap().context(&identity).await.unwrap_err();
        assert!(matches!(error, ConversationError::Closed), "{error}");
    }
}
