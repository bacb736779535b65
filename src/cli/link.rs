//! Connections to the event servers that the user has defined and projects ask for by name.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use helmdeck_egress::Egress;
use helmdeck_events::nats::{NatsOptions, Shared};
use helmdeck_events::{Message, Receipt, Sink, SinkError, Stored};
use helmdeck_forge::Links;
use helmdeck_forge::subjects::all_with;
use url::Url;

use crate::config::{self, EventServer};
use crate::env::ProcessEnvironment;

/// Connections to NATS servers, shared by all commands and packs of this process.
pub(crate) struct Servers {
    config: Option<PathBuf>,
    env: ProcessEnvironment,
    /// The servers of the user's settings, read when a project first asks for one.
    known: OnceLock<Result<BTreeMap<String, EventServer>, String>>,
    shared: Shared,
}

impl Servers {
    /// Returns the servers of the user's settings. Reads nothing yet.
    pub(crate) fn new(config: Option<&Path>, env: &ProcessEnvironment) -> Self {
        let (known, shared) = (OnceLock::new(), Shared::default());
        Self {
            config: config.map(Path::to_owned),
            env: env.clone(),
            known,
            shared,
        }
    }

    fn find(&self, name: &str) -> Result<(EventServer, Egress), String> {
        let read = || {
            let settings =
                config::load(self.config.as_deref(), Vec::new(), &self.env)?.settings()?;
            Ok(settings.forge.events)
        };
        let known = self.known.get_or_init(|| {
            read().map_err(|failure: crate::exit::Failure| failure.message().to_owned())
        });
        let server = known.as_ref().map_err(Clone::clone)?.get(name).cloned().ok_or_else(|| {
            format!(
                "the project asks for the event server {name:?}; define [forge.events.{name}] in your helmdeck.toml"
            )
        })?;
        let url =
            Url::parse(&server.url).map_err(|_| format!("forge.events.{name}.url is no URL"))?;
        // Wherever it is: the user named it.
        Ok((
            server,
            Egress::new(helmdeck_egress::Config::default()).naming(&url),
        ))
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Links for Servers {
    fn link(&self, server: &str, prefix: &str) -> Arc<dyn Sink> {
        let (found, guard) = match self.find(server) {
            Ok(found) => found,
            Err(why) => return Arc::new(Undefined(why)),
        };
        let set = |path: PathBuf| Some(path).filter(|path| !path.as_os_str().is_empty());
        let options = NatsOptions {
            credentials: set(found.credentials),
            certificates: set(found.certificates),
            ..NatsOptions::new(found.url, all_with(prefix))
        };
        self.shared.link(options, guard)
    }
}

/// Sink for a server that the user has not defined: it says so.
#[derive(Debug)]
struct Undefined(String);

impl Sink for Undefined {
    fn publish(&self, _: &Message, _: Duration) -> Result<Receipt, SinkError> {
        Err(SinkError::Settings(self.0.clone()))
    }

    fn check(&self) -> Result<(), SinkError> {
        Err(SinkError::Settings(self.0.clone()))
    }

    fn stored(&self, _: u64, _: usize, _: Duration) -> Result<Vec<Stored>, SinkError> {
        Err(SinkError::Settings(self.0.clone()))
    }
}
