//! Connections of tests to event servers.

use helmdeck_egress::Egress;
use helmdeck_events::nats::{Nats, NatsOptions};
use helmdeck_forge::subjects;

/// Returns a guard that names a server, as the user's settings do.
pub(super) fn guard(url: &str) -> Egress {
    Egress::new(helmdeck_egress::Config::default()).naming(&url.parse().unwrap())
}

/// Opens a connection for subjects with a prefix.
pub(super) fn open(url: &str, prefix: &str) -> Nats {
    Nats::open(
        NatsOptions::new(url, subjects::all_with(prefix)),
        &guard(url),
    )
    .unwrap()
}
