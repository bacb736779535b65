//! Explains the cache for a call.
//!
//! Shows the parts of its key, whether there is an entry, and how the nearest entry differs.

use std::collections::BTreeMap;
use std::fmt::Write;

use helmdeck_core::{Call, Result, Timestamp};
use helmdeck_memory::{EntryMeta, Kind, Page};
use serde::Serialize;

use super::freshness::Freshness;
use super::key::hex;
use super::pack::{Located, PackCache};
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
    /// The first 16 hex digits of the key.
    pub key: String,
    /// The key under which the store holds the answer.
    pub stored_key: String,
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
        let mut text = format!("pack       {}\nkey        {}\n", self.pack, self.key);
        for (name, value) in &self.key_parts {
            let _ = writeln!(text, "  {name:<11} {value}");
        }
        if !self.tags.is_empty() {
            let _ = writeln!(text, "tags       {}", self.tags.join(", "));
        }
        let age = self.age_s.map(|age| format!(", {age:.0} s old")).unwrap_or_default();
        let until = self.fresh_until.as_deref().map(|until| format!(", fresh until {until}")).unwrap_or_default();
        let _ = writeln!(text, "entry      {}{age}{until}", self.entry);
        match &self.nearest {
            Some(nearest) => {
                let _ = writeln!(
                    text,
                    "nearest    {}\n           differs in {}",
                    nearest.stored_key,
                    nearest.differs_in.join(", ")
                );
            }
            None if self.entry == "none" => {
                text.push_str("nearest    there is no entry of this pack for this caller\n")
            }
            None => {}
        }
        text
    }
}

/// Explains a call that was validated and whose credentials are resolved.
pub(crate) async fn explain(cache: &PackCache, call: &Call, located: &Located) -> Result<Explanation> {
    let (hub, location) = (&cache.hub, &located.location);
    let digests = cache.digests(located)?;
    let spec = cache.spec()?;
    let stored_key = location.key.stored(&location.pack, location.version);
    let now = hub.clock.now();
    let session = location.namespace.session.as_deref().map(|session| format!("/{session}")).unwrap_or_default();
    let key_parts = BTreeMap::from([
        ("pack", location.pack.to_string()),
        ("version", location.version.to_string()),
        ("scope", spec.scope.as_str().to_owned()),
        ("namespace", format!("{}/{}{session}", location.namespace.tenant, location.namespace.subject)),
        ("contract", digests.contract.clone()),
        ("credentials", digests.credentials.clone()),
        ("input", digests.input.clone()),
    ]);
    let found = match hub.hot.get(&location.key) {
        Some(found) => Some(found),
        None => hub.read(location, &located.contract.hex, cache.read_budget()).await.ok().map(std::sync::Arc::new),
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
    let nearest = if found.is_none() { nearest(cache, located, &ours).await } else { None };
    Ok(Explanation {
        pack: location.pack.to_string(),
        key_parts,
        key: hex(&location.key.short()),
        stored_key,
        tags: location.tags.iter().filter(|tag| !is_family(tag)).cloned().collect(),
        entry,
        age_s: found.as_ref().map(|found| now.since(found.made_at).as_secs_f64()),
        fresh_until: found.as_ref().map(|found| cache.bounds(found).0.to_rfc3339()),
        nearest,
    })
}

async fn nearest(cache: &PackCache, located: &Located, ours: &BTreeMap<&'static str, String>) -> Option<Nearest> {
    let location = &located.location;
    let page = Page { limit: 1000, after: None };
    let listed =
        cache.hub.store.list(&location.namespace, Kind::Cache, &format!("{}/", location.pack), page).await.ok()?;
    let differences = |entry: &EntryMeta| -> Vec<&'static str> {
        PARTS.iter().copied().filter(|part| entry.attributes.get(*part) != ours.get(part)).collect()
    };
    // Newest first, so the newest of equally near entries is chosen.
    let nearest = listed.entries.iter().min_by_key(|entry| differences(entry).len())?;
    Some(Nearest {
        stored_key: nearest.key.clone(),
        written_at: Timestamp::to_rfc3339(nearest.updated_at),
        differs_in: differences(nearest),
    })
}
