//! Connections to the event servers that projects name.

use std::path::Path;
use std::sync::Arc;

use helmdeck_events::Sink;
use helmdeck_events::nats::{NatsOptions, Shared};
use helmdeck_forge::Links;
use helmdeck_forge::config::EventsConfig;
use helmdeck_forge::subjects::all_with;

/// Connections to NATS servers, shared by all commands and packs of this process.
#[derive(Debug, Default)]
pub(crate) struct Servers(Shared);

impl Links for Servers {
    fn link(&self, root: &Path, events: &EventsConfig) -> Option<Arc<dyn Sink>> {
        let options = NatsOptions {
            credentials: events.credentials.as_ref().map(|path| root.join(path)),
            certificates: events.certificates.as_ref().map(|path| root.join(path)),
            remote: events.remote,
            ..NatsOptions::new(events.url.as_ref()?, all_with(events.valid_prefix()))
        };
        Some(self.0.link(options))
    }
}
