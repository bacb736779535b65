//! Explains the cache for a call.
//!
//! Shows the parts of its key, whether there is an entry, and how the nearest entry differs.

use std::collections::BTreeMap;
use std::fmt::Write;

use helmdeck_core::manifest::CacheSpec;
use helmdeck_core::{Call, Manifest, Result, Timestamp};
use helmdeck_memory::{EntryMeta, Kind, Namespace, Page};
use serde::Serialize;

use super::freshness::Freshness;
use super::key::hex;
use super::pack::{Located, PackCache, place, tags_of};
use super::tags::is_family;

/// Parts whose digests are compared, in the order of the output.
const PARTS: &[&str] = &["version", "contract", "credentials", "input"];

/// Explanation of the cache for a call.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// The pack.
    pub pack: String,
    /// Parts of the key: names, and digests (16 hex digits) of parts that may be secret.
    pub key_parts: BTreeMap<&'static str, String>,
    /// The first 16 hex digits of the key; absent without a memory key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The key under which the store holds the answer; absent without a memory key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_key: Option<String>,
    /// Tags of entries of this call.
    pub tags: Vec<String>,
    /// Whether there is an entry: `none`, `fresh` or `stale`.
    pub entry: &'static str,
    /// How old the entry is, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_s: Option<f64>,
    /// When the entry stops being fresh, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fresh_until: Option<String>,
    /// The nearest entry, if there is none for exactly this call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<Nearest>,
    /// Why the last answer was not kept, within a day: a word of [`helmdeck_core::NotKept`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// An entry of another call.
#[derive(Debug, Clone, Serialize)]
pub struct Nearest {
    /// Its key in the store.
    pub stored_key: String,
    /// When it was written, RFC 3339.
    pub written_at: String,
    /// What differs: `version`, `contract` (schemas, handler or epoch), `credentials`, `input`.
    pub differs_in: Vec<&'static str>,
}

impl Explanation {
    /// Returns the explanation for people, a line a fact.
    #[must_use]
    pub fn render(&self) -> String {
        let key = self
            .key
            .as_deref()
            .unwrap_or("none: no memory key is set, so nothing is cached");
        let mut text = format!("pack       {}\nkey        {key}\n", self.pack);
        for (name, value) in &self.key_parts {
            let _ = writeln!(text, "  {name:<11} {value}");
        }
        if !self.tags.is_empty() {
            let _ = writeln!(text, "tags       {}", self.tags.join(", "));
        }
        let age = self
            .age_s
            .map(|age| format!(", {age:.0} s old"))
            .unwrap_or_default();
        let until = self
            .fresh_until
            .as_deref()
            .map(|until| format!(", fresh until {until}"))
            .unwrap_or_default();
        let _ = writeln!(text, "entry      {}{age}{until}", self.entry);
        if let Some(why) = &self.refused {
            let _ = writeln!(text, "not kept   the last answer: {why}");
        }
        match &self.nearest {
            Some(nearest) => {
                let _ = writeln!(
                    text,
                    "nearest    {}\n           differs in {}",
                    nearest.stored_key,
                    nearest.differs_in.join(", ")
                );
            }
            None if self.entry == "none" && self.key.is_some() => {
                text.push_str("nearest    there is no entry of this pack for this caller\n")
            }
            None => {}
        }
        text
    }
}

/// Explains a call that was validated and whose credentials are resolved.
pub(crate) async fn explain(
    cache: &PackCache,
    call: &Call,
    located: &Located,
) -> Result<Explanation> {
    let (hub, location) = (&cache.hub, &located.location);
    let digests = cache.digests(located)?;
    let spec = cache.spec()?;
    let now = hub.clock.now();
    let mut key_parts = clear_parts(
        &cache.manifest,
        spec,
        &location.namespace,
        digests.contract.clone(),
    );
    key_parts.extend([
        ("credentials", digests.credentials.clone()),
        ("input", digests.input.clone()),
    ]);
    let found = match hub.hot.get(&location.key) {
        Some(found) => Some(found),
        None => hub
            .read(location, &located.contract.hex, cache.read_budget())
            .await
            .ok()
            .map(std::sync::Arc::new),
    };
    let found = found.filter(|found| cache.may_still_use(found, call));
    let entry = match &found {
        Some(found) => match cache.freshness(found, call, now) {
            Freshness::Fresh => "fresh",
            Freshness::Expired => "none",
            Freshness::StaleAllowed | Freshness::StaleWhileRevalidate | Freshness::Stale => "stale",
        },
        None => "none",
    };
    let found = found.filter(|_| entry != "none");
    let ours = BTreeMap::from([
        ("version", location.version.to_string()),
        ("contract", digests.contract),
        ("credentials", digests.credentials),
        ("input", digests.input),
    ]);
    let nearest = if found.is_none() {
        nearest(cache, located, &ours).await
    } else {
        None
    };
    Ok(Explanation {
        pack: location.pack.to_string(),
        key_parts,
        key: Some(hex(&location.key.short())),
        stored_key: Some(location.key.stored(&location.pack, location.version)),
        tags: shown(&location.tags),
        entry,
        age_s: found
            .as_ref()
            .map(|found| now.since(found.made_at).as_secs_f64()),
        fresh_until: found
            .as_ref()
            .map(|found| cache.bounds(found).0.to_rfc3339()),
        nearest,
        refused: hub
            .refusals
            .last(location.key, hub.system.as_ref(), &*hub.clock)
            .await,
    })
}

/// Explains what can be said without a memory key.
///
/// # Errors
/// Why the call would not be cached with one: a word of [`helmdeck_core::CacheInfo::REASONS`].
pub(crate) fn without_key(
    manifest: &Manifest,
    spec: &CacheSpec,
    contract: &[u8; 32],
    call: &Call,
) -> Result<Explanation, &'static str> {
    let (namespace, input) = place(spec, call)?;
    Ok(Explanation {
        pack: manifest.name.to_string(),
        key_parts: clear_parts(manifest, spec, &namespace, hex(&contract[..8])),
        key: None,
        stored_key: None,
        tags: shown(&tags_of(spec, &input, call.stage.secrets.as_ref())),
        entry: "none",
        age_s: None,
        fresh_until: None,
        nearest: None,
        refused: None,
    })
}

/// Returns the parts of a key that are no secrets.
fn clear_parts(
    manifest: &Manifest,
    spec: &CacheSpec,
    namespace: &Namespace,
    contract: String,
) -> BTreeMap<&'static str, String> {
    let session = namespace
        .session
        .as_deref()
        .map(|session| format!("/{session}"))
        .unwrap_or_default();
    BTreeMap::from([
        ("pack", manifest.name.to_string()),
        ("version", manifest.version.to_string()),
        ("scope", spec.scope.as_str().to_owned()),
        (
            "namespace",
            format!("{}/{}{session}", namespace.tenant, namespace.subject),
        ),
        ("contract", contract),
    ])
}

/// Returns the tags that a pack's author knows.
fn shown(tags: &[String]) -> Vec<String> {
    tags.iter().filter(|tag| !is_family(tag)).cloned().collect()
}

async fn nearest(
    cache: &PackCache,
    located: &Located,
    ours: &BTreeMap<&'static str, String>,
) -> Option<Nearest> {
    let location = &located.location;
    let page = Page {
        limit: 1000,
        after: None,
    };
    let listed = cache
        .hub
        .store
        .list(
            &location.namespace,
            Kind::Cache,
            &format!("{}/", location.pack),
            page,
        )
        .await
        .ok()?;
    let differences = |entry: &EntryMeta| -> Vec<&'static str> {
        PARTS
            .iter()
            .copied()
            .filter(|part| entry.attributes.get(*part) != ours.get(part))
            .collect()
    };
    // Newest first, so the newest of equally near entries is chosen.
    let nearest = listed
        .entries
        .iter()
        .min_by_key(|entry| differences(entry).len())?;
    Some(Nearest {
        stored_key: nearest.key.clone(),
        written_at: Timestamp::to_rfc3339(nearest.updated_at),
        differs_in: differences(nearest),
    })
}
