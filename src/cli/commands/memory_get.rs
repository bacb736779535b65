//! `helmdeck memory get`: opens one entry and prints its value. Needs the key; read-only.

use helmdeck_core::Timestamp;
use helmdeck_memory::Entry;
use serde_json::{Value, json};

use super::memory::name;
use crate::args::GetArgs;
use crate::exit::{Exit, Failure, Result};
use crate::wire::Setup;

/// Prints the value of an entry, with control characters made visible.
///
/// With `--raw` it prints the value byte for byte.
///
/// # Errors
/// A failure if there is no key or the entry is not found; `Corrupt` if it does not open.
pub(crate) async fn run(setup: &Setup, arguments: &GetArgs) -> Result<()> {
    let store = setup.opened_store().await?;
    let found = store
        .get(&arguments.namespace, arguments.kind, &arguments.key)
        .await;
    store.close().await?;
    let Some(entry) = found? else {
        let (namespace, kind, key) = (name(&arguments.namespace), arguments.kind, &arguments.key);
        return Err(Failure::new(
            Exit::Absent,
            format!("there is no {kind} \"{key}\" of {namespace}"),
        )
        .with_hint("`helmdeck memory list` names the entries that there are"));
    };
    match (arguments.raw, setup.output.json) {
        (true, _) => setup.output.raw(&entry.value),
        (false, true) => setup.output.value(&shown(&entry)),
        (false, false) => setup.output.text(&String::from_utf8_lossy(&entry.value)),
    }
}

/// A value that is not text is shown as hex digits.
fn shown(entry: &Entry) -> Value {
    let Entry { meta, value } = entry;
    let mut shown = json!({
        "namespace": name(&meta.namespace), "kind": meta.kind, "key": meta.key, "category": meta.category,
        "tags": meta.tags, "attributes": meta.attributes, "fingerprint": meta.fingerprint, "version": meta.version,
        "created_at": meta.created_at.to_rfc3339(), "updated_at": meta.updated_at.to_rfc3339(),
        "expires_at": meta.expires_at.map(Timestamp::to_rfc3339),
    });
    match std::str::from_utf8(value) {
        Ok(text) => shown["value"] = text.into(),
        Err(_) => shown["value_hex"] = helmdeck_core::hex(value).into(),
    }
    shown
}
