//! Opens the conversation memory: lazily over an engine's store, or for a single command.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_conversation::summarizer::{ChatSummarizer, Summarizer, client_config};
use helmdeck_conversation::{Config, ConversationMemory, Dependencies, Identity, Result, Strategy};
use helmdeck_core::secrets::Secrets;
use helmdeck_core::{Clock, Code, Error, PackName, Secret};
use helmdeck_egress::Egress;
use helmdeck_events::Bus;
use helmdeck_llm::Client;
use helmdeck_memory::Store;

use crate::exit::Failure;

/// Pack name under which the summarizer's credential is used: a grant of the vault has to name it.
pub(crate) const SUMMARIZE: &str = "conversation.summarize";

/// Time limit for a conversation memory to stop its background work.
pub(crate) const CLOSING: Duration = Duration::from_secs(5);

/// Everything to open a conversation memory with, except its store.
#[derive(Clone)]
pub(crate) struct Opening {
    /// The settings.
    pub(crate) config: Config,
    /// The time.
    pub(crate) clock: Arc<dyn Clock>,
    /// The egress client.
    pub(crate) egress: Egress,
    /// The summarizer's credentials.
    pub(crate) secrets: Arc<dyn Secrets>,
    /// Whether turns are summarised in the background. A short-lived process leaves that to others.
    pub(crate) folds: bool,
}

impl Opening {
    /// Opens a conversation memory, within a runtime.
    ///
    /// # Errors
    /// `SummarizerRequired`, `Invalid`: the settings contradict each other.
    pub(crate) fn open(&self, store: Arc<dyn Store>, events: Bus) -> Result<ConversationMemory> {
        let dependencies = Dependencies {
            store,
            events,
            clock: Arc::clone(&self.clock),
            summarizer: self.summarizer()?,
        };
        let open = if self.folds {
            ConversationMemory::open
        } else {
            ConversationMemory::open_briefly
        };
        open(self.config.clone(), dependencies)
    }

    fn summarizer(&self) -> Result<Option<Arc<dyn Summarizer>>> {
        let settings = &self.config.summarizer;
        if lacks_summarizer(&self.config) || self.config.strategy != Strategy::RollingSummary {
            return Ok(None);
        }
        let invalid = helmdeck_conversation::ConversationError::Invalid;
        let client = Client::new(&self.egress, client_config(settings)).map_err(invalid)?;
        let pack = PackName::new(SUMMARIZE).map_err(invalid)?;
        let (name, secrets) = (settings.credential.clone(), Arc::clone(&self.secrets));
        let key = move |identity: &Identity| credential(&*secrets, &name, identity, &pack);
        Ok(Some(Arc::new(ChatSummarizer::new(client, settings, key))))
    }
}

/// Says whether `rolling_summary` is set without a summarizer.
pub(crate) fn lacks_summarizer(config: &Config) -> bool {
    let summarizer = &config.summarizer;
    config.strategy == Strategy::RollingSummary
        && (summarizer.endpoint.is_empty() || summarizer.model.is_empty())
}

/// Returns the credential for the summary of a conversation, `None` if the endpoint needs none.
///
/// It acts for the conversation's owner, so that a credential granted to one user is not spent on
/// another.
fn credential(
    secrets: &dyn Secrets,
    name: &str,
    identity: &Identity,
    pack: &PackName,
) -> helmdeck_core::Result<Option<Secret>> {
    if name.is_empty() {
        return Ok(None);
    }
    let caller = helmdeck_core::Identity::new(&identity.tenant, &identity.user)
        .map_err(|message| Error::new(Code::CredentialInvalid, message))?;
    let grant = secrets
        .grant(name, &caller, pack)?
        .ok_or_else(|| secrets.missing(name))?;
    secrets.reveal(&grant, &caller, pack).map(Some)
}

/// A memory for one command, and the store that it is kept in.
pub(crate) struct Alone {
    /// The memory.
    pub(crate) memory: ConversationMemory,
    /// The store.
    pub(crate) store: Arc<dyn Store>,
}

impl Alone {
    /// Closes both.
    ///
    /// # Errors
    /// A failure if the store refuses the last writes.
    pub(crate) async fn close(self) -> Result<(), Failure> {
        // Removal of turns over a limit runs in the background; this gives it its one chance to
        // finish.
        tokio::task::yield_now().await;
        self.memory.close(CLOSING).await;
        Ok(self.store.close().await?)
    }
}

#[cfg(test)]
mod tests {
    use helmdeck_core::secrets::Grant;

    use super::*;

    /// A vault that has one credential for one user and one pack.
    struct OneGrant;

    impl Secrets for OneGrant {
        fn grant(
            &self,
            name: &str,
            identity: &helmdeck_core::Identity,
            pack: &PackName,
        ) -> helmdeck_core::Result<Option<Grant>> {
            let granted = (name, identity.user(), pack.as_str())
                == ("llm", "alice", "conversation.summarize");
            Ok(granted.then(|| Grant {
                name: name.to_owned(),
                version: 1,
            }))
        }

        fn reveal(
            &self,
            _: &Grant,
            _: &helmdeck_core::Identity,
            _: &PackName,
        ) -> helmdeck_core::Result<Secret> {
            Ok(Secret::new("canary".to_owned()))
        }

        fn generation(&self) -> u64 {
            0
        }
    }

    #[test]
    fn the_credential_is_that_of_whose_conversation_it_is() {
        let pack = PackName::new(SUMMARIZE).unwrap();
        let ask = |name, user| credential(&OneGrant, name, &Identity::new("t", user, "s"), &pack);
        assert_eq!(ask("llm", "alice").unwrap().unwrap().expose(), "canary");
        assert!(ask("", "bob").unwrap().is_none());
        for (name, user) in [("llm", "bob"), ("other", "alice")] {
            let error = ask(name, user).unwrap_err();
            assert_eq!(error.code(), Code::CredentialInvalid, "{name} {user}");
            assert!(!error.to_string().contains("canary"));
        }
    }

    #[test]
    fn a_summary_needs_an_endpoint_and_a_model() {
        let with = |strategy, endpoint: &str, model: &str| {
            let mut config = Config {
                strategy,
                ..Config::default()
            };
            config.summarizer.endpoint = endpoint.to_owned();
            config.summarizer.model = model.to_owned();
            lacks_summarizer(&config)
        };
        assert!(
            with(Strategy::RollingSummary, "", "m")
                && with(Strategy::RollingSummary, "http://x", "")
        );
        assert!(
            !with(Strategy::RollingSummary, "http://x", "m") && !with(Strategy::Truncation, "", "")
        );
    }
}
