//! Facts: text entries of kind `fact` in the caller's namespace, independent of the conversation.

use std::time::Duration;

use helmdeck_core::memory::{
    About, Fact, FactList, ListFacts, NewFact, Owner, RecallFacts, Recalled, Trust,
};
use helmdeck_core::{Code, Error, Result};
use helmdeck_memory::floors::Floors;
use helmdeck_memory::{Entry, EntryMeta, Kind, Namespace, Put, StoreError, Written};

use super::forget::TRIES;
use super::listing::{self, EntryFilter};
use super::secrets::{Scanned, note_allowed, scan};
use super::{EngineViews, about, cleaned};

/// Default category.
const DEFAULT_CATEGORY: &str = "user_facts";
/// Default lifetime.
const DEFAULT_TTL: Duration = Duration::from_secs(90 * 86_400);
/// Shortest lifetime.
const MIN_TTL: Duration = Duration::from_secs(3600);
/// Longest lifetime.
const MAX_TTL: Duration = Duration::from_secs(365 * 86_400);
/// Limit of a list.
const MAX_LIST: usize = 1000;
/// Limit and default of facts recalled at once.
const MAX_RECALL: usize = 100;
const DEFAULT_RECALL: usize = 20;
/// Limit of a page of recalled facts, in bytes of values.
const MAX_RECALL_BYTES: usize = 1 << 20;
/// Limit of facts that one is made from.
const MAX_FROM: usize = 32;
/// The attribute that says how far a fact may be trusted.
const TRUST: &str = "trust";
/// Operation name in the metrics of store failures.
const FACT: &str = "fact";

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Code::InvalidInput, message)
}

/// Trims white space; the result must not be empty.
pub(super) fn trimmed(what: &str, text: &str) -> Result<String> {
    match text.trim() {
        "" => Err(invalid(format!("the {what} is blank"))),
        text => Ok(text.to_owned()),
    }
}

fn ttl(seconds: Option<u64>) -> Result<Duration> {
    let ttl = seconds.map_or(DEFAULT_TTL, Duration::from_secs);
    if (MIN_TTL..=MAX_TTL).contains(&ttl) {
        return Ok(ttl);
    }
    Err(invalid(format!(
        "ttl_seconds must be {} (1 h) to {} (365 d)",
        MIN_TTL.as_secs(),
        MAX_TTL.as_secs()
    )))
}

/// Returns how far a stored fact may be trusted. Facts of before there were classes have none.
pub(super) fn trust(meta: &EntryMeta) -> Trust {
    let word = meta.attributes.get(TRUST);
    word.map_or(Trust::default(), |word| {
        // A class that this version doesn't know is trusted least.
        Trust::ALL
            .into_iter()
            .find(|trust| trust.word() == word)
            .unwrap_or(Trust::Content)
    })
}

/// Returns how far a new fact may be trusted: no more than what it was made from, and than a pack
/// if one writes it.
async fn granted(views: &EngineViews, owner: &Owner, fact: &NewFact) -> Result<Trust> {
    // Through `memory.store` a caller writes itself, unless another pack called that one.
    let pack = views
        .pack
        .as_ref()
        .filter(|(name, _)| name.family() != "memory");
    let by_pack = pack.is_some() || owner.called_by.is_some();
    let mut granted = if by_pack {
        fact.trust.min(Trust::Agent)
    } else {
        fact.trust
    };
    if fact.from.len() > MAX_FROM {
        return Err(invalid(format!("\"from\" names at most {MAX_FROM} facts")));
    }
    let wanted = fact.from.iter().map(|key| RecallFacts {
        key: Some(key.clone()),
        ..RecallFacts::default()
    });
    for wanted in wanted {
        let key = wanted.key.clone().unwrap_or_default();
        let found = recall(views, owner, wanted).await?.facts.pop();
        let source = found
            .ok_or_else(|| invalid(format!("\"from\" names {key:?}, but there is no such fact")))?;
        granted = granted.min(source.about.trust.unwrap_or_default());
    }
    Ok(granted)
}

pub(super) async fn store(views: &EngineViews, owner: &Owner, fact: NewFact) -> Result<About> {
    let (key, value, ttl) = (
        trimmed("key", &fact.key)?,
        trimmed("value", &fact.value)?,
        ttl(fact.ttl_seconds)?,
    );
    let category = fact
        .category
        .as_deref()
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .unwrap_or(DEFAULT_CATEGORY);
    let tags = fact
        .tags
        .iter()
        .map(|tag| trimmed("tag", tag))
        .collect::<Result<Vec<String>>>()?;
    let names: Vec<&str> = [key.as_str(), category]
        .into_iter()
        .chain(tags.iter().map(String::as_str))
        .collect();
    let value = cleaned(owner, &names, value.into())?;
    let scanned = Scanned {
        kind: FACT,
        names: &names,
        value: &value,
        allowed: fact.allow_secret,
    };
    let allowed = scan(views, scanned).await?;
    let trust = granted(views, owner, &fact).await?;
    let mut put = Put::new(
        Namespace::of_caller(&owner.identity),
        Kind::Fact,
        key,
        value,
    );
    put.category = category.to_owned();
    (put.tags, put.ttl, put.attributes) = (tags, Some(ttl), views.attributes(owner));
    put.attributes
        .insert(TRUST.to_owned(), trust.word().to_owned());
    let mut tries = 1;
    loop {
        let floors = floors(views, &put.namespace).await?;
        let ops = floors
            .put(put.clone(), views.hub.clock.now())
            .map_err(|error| views.trouble(FACT, error))?;
        match views
            .store()
            .write(ops)
            .await
            .map(|written| written.into_iter().next())
        {
            // All were forgotten meanwhile: it is written again, as one of after that.
            Ok(Some(Written::Put(meta)))
                if tries < TRIES && !self::floors(views, &put.namespace).await?.admit(&meta) =>
            {
                tries += 1;
            }
            Ok(Some(Written::Put(meta))) => {
                views.hub.store_works(&views.hub.writing);
                if let Some(rule) = allowed {
                    note_allowed(views, owner, FACT, rule);
                }
                return Ok(about(*meta));
            }
            Ok(_) => {
                return Err(Error::new(
                    Code::Internal,
                    "the store answered a write with something else",
                ));
            }
            // Somebody else wrote the first head.
            Err(StoreError::VersionMismatch { .. }) if tries < TRIES => tries += 1,
            Err(error) => return Err(views.trouble(FACT, error)),
        }
    }
}

async fn floors(views: &EngineViews, namespace: &Namespace) -> Result<Floors> {
    Floors::read(views.store(), namespace)
        .await
        .map_err(|error| views.trouble(FACT, error))
}

/// Returns whether a fact may be served, and says so if not.
fn admit(views: &EngineViews, floors: &Floors, meta: &EntryMeta) -> bool {
    let admitted = floors.admit(meta);
    if !admitted {
        views.hub.metrics.totals.unreadable.inc();
        tracing::warn!(
            tenant = &*meta.namespace.tenant,
            user = &*meta.namespace.subject,
            "a fact that was forgotten is in the store again, or its head was removed: it was put back from outside, and \
             is left out"
        );
    }
    admitted
}

pub(super) async fn list(
    views: &EngineViews,
    owner: &Owner,
    wanted: ListFacts,
) -> Result<FactList> {
    let least = wanted.min_trust.unwrap_or(Trust::Content);
    let wanted = EntryFilter {
        category: wanted.category.as_deref(),
        tag: wanted.tag.as_deref(),
        prefix: wanted.prefix.as_deref().unwrap_or_default(),
        limit: listing::limit(wanted.limit, 100, MAX_LIST)?,
        after: wanted.after,
    };
    let namespace = Namespace::of_caller(&owner.identity);
    let found = listing::find(views, FACT, (&namespace, Kind::Fact), wanted).await?;
    // After the list: a fact that was written meanwhile has no later epoch.
    let floors = floors(views, &namespace).await?;
    let entries = found
        .entries
        .into_iter()
        .filter(|meta| trust(meta) >= least && admit(views, &floors, meta));
    Ok(FactList {
        facts: entries.map(about).collect(),
        next: found.next,
    })
}

pub(super) async fn recall(
    views: &EngineViews,
    owner: &Owner,
    wanted: RecallFacts,
) -> Result<Recalled> {
    let namespace = Namespace::of_caller(&owner.identity);
    let least = wanted.min_trust.unwrap_or(Trust::Content);
    let mut recalled = Opened::default();
    if let Some(key) = &wanted.key {
        let RecallFacts {
            key: _,
            min_trust: _,
            category,
            tag,
            prefix,
            limit,
            after,
        } = &wanted;
        if [category, tag, prefix, after]
            .iter()
            .any(|other| other.is_some())
            || limit.is_some()
        {
            return Err(invalid(
                "\"key\" names one fact and goes with \"min_trust\" only",
            ));
        }
        open(views, &namespace, &trimmed("key", key)?, &mut recalled).await?;
        return served(views, &namespace, recalled, least).await;
    }
    let wanted = EntryFilter {
        category: wanted.category.as_deref(),
        tag: wanted.tag.as_deref(),
        prefix: wanted.prefix.as_deref().unwrap_or_default(),
        limit: listing::limit(wanted.limit, DEFAULT_RECALL, MAX_RECALL)?,
        after: wanted.after,
    };
    let mut found = listing::find(views, FACT, (&namespace, Kind::Fact), wanted).await?;
    let mut bytes = 0;
    for index in 0..found.entries.len() {
        // The stored size is that of the value plus a small overhead.
        bytes += usize::try_from(found.entries[index].size)
            .unwrap_or(usize::MAX)
            .min(usize::MAX / 2);
        if index > 0 && bytes > MAX_RECALL_BYTES {
            found.cut(index);
            break;
        }
        open(views, &namespace, &found.entries[index].key, &mut recalled).await?;
    }
    recalled.next = found.next;
    served(views, &namespace, recalled, least).await
}

/// Leaves out facts that are trusted less than `least`, and those that were put back.
async fn served(
    views: &EngineViews,
    namespace: &Namespace,
    mut opened: Opened,
    least: Trust,
) -> Result<Recalled> {
    opened.facts.retain(|(meta, _)| trust(meta) >= least);
    if !opened.facts.is_empty() {
        let floors = floors(views, namespace).await?;
        let before = opened.facts.len();
        opened.facts.retain(|(meta, _)| admit(views, &floors, meta));
        opened.unreadable += (before - opened.facts.len()) as u64;
    }
    let facts = opened
        .facts
        .into_iter()
        .map(|(meta, value)| Fact {
            about: about(meta),
            value,
        })
        .collect();
    Ok(Recalled {
        facts,
        next: opened.next,
        unreadable: opened.unreadable,
    })
}

/// Facts as they were opened.
#[derive(Default)]
struct Opened {
    facts: Vec<(EntryMeta, String)>,
    next: Option<String>,
    unreadable: u64,
}

/// Opens one fact. One that expired since the list is skipped.
async fn open(
    views: &EngineViews,
    namespace: &Namespace,
    key: &str,
    recalled: &mut Opened,
) -> Result<()> {
    match views.store().get(namespace, Kind::Fact, key).await {
        Ok(Some(Entry { meta, value })) => match String::from_utf8(value.into()) {
            Ok(value) => recalled.facts.push((meta, value)),
            Err(_) => recalled.unreadable += 1,
        },
        Ok(None) => {}
        Err(StoreError::Unreadable { reason }) => {
            views.hub.metrics.totals.unreadable.inc();
            tracing::warn!(reason, "a fact does not open; it is left out");
            recalled.unreadable += 1;
        }
        Err(error) => return Err(views.trouble(FACT, error)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetime_bounds_are_exact_and_never_overflow() {
        let seconds = |seconds| ttl(Some(seconds)).ok().map(|ttl| ttl.as_secs());
        assert_eq!(ttl(None).unwrap().as_secs(), 7_776_000);
        assert_eq!(
            (seconds(3_600), seconds(31_536_000)),
            (Some(3_600), Some(31_536_000))
        );
        // 18446747674 s, times 1,000,000,000, wraps to about an hour in 64 bits.
        for outside in [0, 3_599, 31_536_001, 18_446_747_674, u64::MAX] {
            assert_eq!(
                ttl(Some(outside)).unwrap_err().code(),
                Code::InvalidInput,
                "{outside}"
            );
        }
    }

    #[test]
    fn unicode_white_space_is_trimmed_and_alone_refused() {
        assert_eq!(trimmed("key", "\u{3000} k\u{a0}é \n").unwrap(), "k\u{a0}é");
        for blank in ["", " ", "\t\r\n", "\u{2003}\u{3000}"] {
            assert!(
                trimmed("key", blank).unwrap_err().message().contains("key"),
                "{blank:?}"
            );
        }
    }
}
