//! Advice for operators: what servers on one PostgreSQL database do not share.

use helmdeck_memory::open::Location;

use crate::config::Settings;
use crate::system;

/// Returns one line on what replicas do not share.
///
/// `None` unless the store is PostgreSQL and the server listens beyond this machine.
pub(crate) fn not_shared(settings: &Settings) -> Option<String> {
    let location = Location::parse(&settings.memory_url().ok()?).ok()?;
    if !matches!(location, Location::Postgres(_)) || settings.server.listen.ip().is_loopback() {
        return None;
    }
    let local = match system::file(settings) {
        Some(_) => {
            "Idempotency-Keys, API tokens, jobs, the vault (unset system.url to share them), MCP sessions and tasks, rate limits"
        }
        None => "MCP sessions and tasks, rate limits",
    };
    Some(format!("replicas share the store, not what each keeps on its machine: {local}"))
}
