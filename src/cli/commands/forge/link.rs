//! The way to the event server that the settings of a project name.

use std::sync::Arc;

use helmdeck_events::Sink;
use helmdeck_events::nats::{NatsOptions, Shared};
use helmdeck_forge::subjects::all_with;
use helmdeck_forge::{Links, Project};

/// The ways to the servers of NATS, for all commands and packs of this process.
#[derive(Debug, Default)]
pub(super) struct Servers(Shared);

impl Links for Servers {
    fn link(&self, project: &Project) -> Option<Arc<dyn Sink>> {
        let events = &project.config().events;
        let options = NatsOptions {
            credentials: events.credentials.as_ref().map(|path| project.root().join(path)),
            certificates: events.certificates.as_ref().map(|path| project.root().join(path)),
            remote: events.remote,
            ..NatsOptions::new(events.url.as_ref()?, all_with(project.events().prefix()))
        };
        Some(self.0.link(options))
    }
}
