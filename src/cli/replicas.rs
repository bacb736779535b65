//! Several servers on one PostgreSQL database: their names, and what they don't share.

use std::path::Path;

use helmdeck_memory::open::Location;
use helmdeck_server_config::SessionMode;
use sha2::{Digest, Sha256};

use crate::config::Settings;
use crate::{gate, system};

/// Says whether memory is in PostgreSQL, which servers share.
pub(crate) fn share_store(settings: &Settings) -> bool {
    let location = settings
        .memory_url()
        .ok()
        .and_then(|url| Location::parse(&url).ok());
    matches!(location, Some(Location::Postgres(_)))
}

/// Returns the name of this server among its replicas; `None` unless it is set or memory is in
/// PostgreSQL.
///
/// Without a set name it is made of the host's name and the data folder, so that it stays the same
/// after a restart.
pub(crate) fn name(settings: &Settings) -> Option<String> {
    if !settings.server.replica.is_empty() {
        return Some(settings.server.replica.clone());
    }
    share_store(settings).then(|| {
        made_name(
            settings
                .data_dir()
                .map_or(Path::new(""), |data| data.as_path()),
        )
    })
}

fn made_name(data: &Path) -> String {
    let system = rustix::system::uname();
    let mut hash = Sha256::new();
    hash.update(system.nodename().to_bytes_with_nul());
    hash.update(data.as_os_str().as_encoded_bytes());
    hash.finalize()
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Returns one line on a store in PostgreSQL that is not used, because there is no memory key.
pub(crate) fn store_without_key(settings: &Settings, has_key: bool) -> Option<String> {
    (!has_key && share_store(settings)).then(|| {
        format!(
            "memory is off: memory.url names PostgreSQL, but there is no memory key; set {} or {}",
            gate::KEY,
            gate::KEY_FILE
        )
    })
}

/// Returns one line on what replicas do not share.
///
/// `None` unless the store is PostgreSQL and there are several servers, or the server listens
/// beyond this machine.
pub(crate) fn not_shared(settings: &Settings) -> Option<String> {
    let one = settings.server.replicas <= 1 && settings.server.listen.ip().is_loopback();
    if one || !share_store(settings) {
        return None;
    }
    let mut local = Vec::new();
    if system::file(settings).is_some() {
        local.push("Idempotency-Keys, API tokens, jobs, MCP tasks, the vault (unset system.url to share them)");
    }
    if settings.engine.artifacts.url.is_empty() {
        local.push("artifacts (artifacts.url can name a bucket)");
    }
    if settings.packs_dir.as_deref().is_some_and(Path::exists) {
        local.push("packs of the packs folder");
    }
    local.push("sandbox sessions");
    if settings.mcp.sessions == SessionMode::Local {
        local.push("MCP sessions (mcp.sessions is \"local\")");
    }
    if settings.server.replicas == 1 && settings.server.rate_per_second > 0 {
        local.push("rate limits (server.replicas is 1; 0 counts the servers)");
    }
    Some(format!(
        "replicas share the store, not what each keeps on its machine: {}",
        local.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_names_differ_by_folder_and_stay_the_same() {
        let (a, b) = (made_name(Path::new("/a")), made_name(Path::new("/b")));
        assert!(a != b && a == made_name(Path::new("/a")), "{a} {b}");
        assert!(
            a.len() == 8 && a.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{a}"
        );
    }
}
