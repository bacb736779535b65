//! Maps a row of the Go original to an entry, by the row and what the file says about callers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use helmdeck_core::clock::rfc3339;
use helmdeck_core::{PackName, Timestamp, Version};
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};
use serde::{Deserialize, Serialize};

use super::file::GoRow;
use super::{NamespaceRead, Options, Sessions};
use crate::entry::{Kind, Namespace};
use crate::keyring::KeyRing;
use crate::ops::{Put, Restore};

/// Lifetimes that the facts API of the original allows.
const FACT_LIVES: std::ops::RangeInclusive<Duration> = Duration::from_secs(3600)..=Duration::from_secs(365 * 86_400);
/// Limit of findings of an audit row.
const MAX_FINDINGS: usize = 50;
/// The longest learnable input of an audit row.
const MAX_INPUT_BYTES: usize = 256;

/// Result of mapping a row.
pub(super) enum Mapped {
    /// An entry.
    Put(Box<Put>),
    /// Nothing, because it is this.
    Nothing(&'static str),
}

/// What each namespace of a file means.
pub(super) struct Namespaces {
    tenant: String,
    known: HashMap<String, (String, Option<String>, &'static str)>,
}

impl Namespaces {
    /// Decides for each namespace; `all` says of each whether it has rows that only callers have.
    pub(super) fn decide(all: Vec<(String, bool)>, options: &Options) -> Self {
        let callers: HashSet<&str> =
            all.iter().filter(|(name, proven)| *proven || !name.contains(':')).map(|(name, _)| name.as_str()).collect();
        let split = |name: &str, at: usize, why| (name[..at].to_owned(), Some(name[at + 1..].to_owned()), why);
        let decide = |name: &str| {
            let whole = (name.to_owned(), None, "whole");
            if callers.contains(name) {
                return whole;
            }
            let mut colons = name.rmatch_indices(':').map(|(at, _)| at);
            match options.sessions {
                Sessions::Never => whole,
                Sessions::Proven => {
                    colons.find(|at| callers.contains(&name[..*at])).map_or(whole, |at| split(name, at, "proven"))
                }
                Sessions::Always => colons.next().map_or(whole, |at| split(name, at, "assumed")),
            }
        };
        let known = all.iter().map(|(name, _)| (name.clone(), decide(name))).collect();
        Self { tenant: options.tenant.clone(), known }
    }

    /// Returns what was made of the namespaces with a colon, by name.
    pub(super) fn with_colon(&self) -> Vec<NamespaceRead> {
        let mut all: Vec<_> = self.known.iter().filter(|(name, _)| name.contains(':')).collect();
        all.sort();
        all.into_iter()
            .map(|(from, (subject, session, why))| NamespaceRead {
                from: from.clone(),
                subject: subject.clone(),
                session: session.clone(),
                why,
            })
            .collect()
    }

    fn of(&self, name: &str) -> Namespace {
        match self.known.get(name) {
            Some((subject, session, _)) => Namespace::new(&self.tenant, subject, session.as_deref()),
            // Written since the file was looked through.
            None => Namespace::new(&self.tenant, name, None),
        }
    }
}

/// Decides what a row becomes, or says why it cannot be.
pub(super) fn row(row: GoRow, ring: &KeyRing, namespaces: &Namespaces) -> Result<Mapped, String> {
    if is_cached(&row) {
        return Ok(Mapped::Nothing("cache"));
    }
    for history in ["pipeline_history", "plan_history"] {
        if is_history(&row, history) {
            return Ok(Mapped::Nothing(history));
        }
    }
    let value = ring.open_legacy(&row.nonce, &row.sealed).map_err(|error| error.to_string())?;
    let created_at = time(&row.created_at).ok_or("created_at is no time")?;
    let updated_at = time(&row.updated_at).ok_or("updated_at is no time")?;
    let expires_at = match row.expires_at.as_deref() {
        // Go's zero time stands for none.
        None | Some("" | "0001-01-01T00:00:00Z") => None,
        Some(text) => Some(time(text).ok_or("expires_at is no time")?),
    };
    let life = Restore { version: 1, created_at, updated_at, expires_at };
    let namespace = namespaces.of(&row.namespace);
    if is_history(&row, "pack_history") {
        return audit(&row, &value, namespace, life).map(|put| Mapped::Put(Box::new(put)));
    }
    let kind = if is_fact(&row, &value, &namespace, &life) { Kind::Fact } else { Kind::Note };
    let mut put = Put::new(namespace, kind, row.key, value);
    put.category = row.category;
    put.tags = match row.tags.as_str() {
        "" | "null" => Vec::new(),
        json => serde_json::from_str(json).map_err(|_| "tags_json is no list of texts")?,
    };
    put.restore = Some(life);
    Ok(Mapped::Put(Box::new(put)))
}

fn is_cached(row: &GoRow) -> bool {
    let is_digest = |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let of_pack = || row.key.rsplit_once('/').is_some_and(|(pack, digest)| !pack.is_empty() && is_digest(digest));
    (row.category == "cache" && of_pack()) || row.key.strip_prefix("cg:claim:").is_some_and(is_digest)
}

/// Handlers may choose any category or key; only the original's own audit chooses both so.
fn is_history(row: &GoRow, history: &str) -> bool {
    row.category == history && row.key.strip_prefix(history).is_some_and(|rest| rest.starts_with('/'))
}

fn is_fact(row: &GoRow, value: &[u8], namespace: &Namespace, life: &Restore) -> bool {
    let is_text = |text: &str| !text.trim().is_empty() && text.trim() == text;
    let lives = life.expires_at.map(|end| end.since(life.updated_at));
    namespace.session.is_none()
        && !matches!(row.category.as_str(), "" | "solve")
        && lives.is_some_and(|lives| FACT_LIVES.contains(&lives))
        && is_text(&row.key)
        && std::str::from_utf8(value).is_ok_and(is_text)
}

/// An audit row as the original writes it.
#[derive(Deserialize)]
struct GoAudit {
    pack: String,
    #[serde(default)]
    version: String,
    outcome: String,
    #[serde(default)]
    at_unix: i64,
    #[serde(default)]
    duration_ms: f64,
    #[serde(default)]
    learn_inputs: Option<BTreeMap<String, serde_json::Value>>,
    #[serde(default)]
    findings: Option<Vec<Finding>>,
}

#[derive(Serialize, Deserialize)]
struct Finding {
    code: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    severity: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    file: String,
}

/// A page of the audit as the engine reads it (`AuditPage` there): the names are its format.
#[derive(Serialize)]
struct Page<'a> {
    pack: &'a str,
    version: String,
    start: i64,
    rows: [PageRow<'a>; 1],
}

#[derive(Serialize)]
struct PageRow<'a> {
    t: i64,
    us: u64,
    #[serde(skip_serializing_if = "is_ok")]
    o: &'a str,
    #[serde(rename = "in", skip_serializing_if = "BTreeMap::is_empty")]
    inputs: BTreeMap<String, serde_json::Value>,
    #[serde(rename = "f", skip_serializing_if = "Vec::is_empty")]
    findings: Vec<Finding>,
}

fn is_ok(outcome: &&str) -> bool {
    *outcome == "ok"
}

fn audit(row: &GoRow, value: &[u8], namespace: Namespace, life: Restore) -> Result<Put, String> {
    let audit: GoAudit = serde_json::from_slice(value).map_err(|_| "the audit row is not what the original writes")?;
    let pack = PackName::new(&audit.pack).map_err(|_| "the audit row names no pack")?;
    // The original leaves the version out where a pack has none.
    let version = Version::parse(&audit.version).map_or_else(|_| "v1".to_owned(), |version| version.to_string());
    let nanos = row.key.rsplit('/').next().and_then(|text| text.parse::<i64>().ok()).filter(|nanos| *nanos > 0);
    let nanos = nanos.unwrap_or_else(|| audit.at_unix.saturating_mul(1_000_000_000));
    let start = nanos.div_euclid(1000);
    let is_short = |value: &serde_json::Value| {
        value.as_str().is_some_and(|text| !text.is_empty() && text.len() <= MAX_INPUT_BYTES)
    };
    let mut inputs = audit.learn_inputs.unwrap_or_default();
    inputs.retain(|_, value| is_short(value));
    let mut findings = audit.findings.unwrap_or_default();
    findings.retain(|finding| !finding.code.is_empty());
    findings.truncate(MAX_FINDINGS);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates, which is what is wanted")]
    let us = (audit.duration_ms * 1000.0).round() as u64;
    let row = PageRow { t: 0, us, o: &audit.outcome, inputs, findings };
    let page = Page { pack: pack.as_str(), version, start, rows: [row] };
    let json = serde_json::to_vec(&page).map_err(|error| error.to_string())?;
    // As the engine makes them, and the same each time: what is below a microsecond, and no process.
    let key = format!("pack/{pack}/{:020}-{:06}-00000000", start.max(0), nanos.rem_euclid(1000));
    let mut put = Put::new(namespace, Kind::Audit, key, json);
    put.category = "pack".to_owned();
    put.restore = Some(life);
    Ok(put)
}

/// Reads an RFC 3339 time with a fraction of any length; what is below a microsecond is cut off.
fn time(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let digits =
        |from: usize| bytes.get(from..).map_or(0, |rest| rest.iter().take_while(|b| b.is_ascii_digit()).count());
    // `2026-01-02T03:04:05` and then a fraction or an offset: stricter than what reads it below.
    if bytes.len() > 64 || bytes.get(10).is_none_or(|t| !matches!(t, b'T' | b't')) {
        return None;
    }
    let fraction = if bytes.get(19) == Some(&b'.') { digits(20) } else { 0 };
    let zone = text.get(19 + if bytes.get(19) == Some(&b'.') { 1 + fraction } else { 0 }..)?;
    let offset = matches!(zone.as_bytes(), [b'Z' | b'z'] | [b'+' | b'-', _, _, b':', _, _]);
    if !offset || (bytes.get(19) == Some(&b'.') && fraction == 0) {
        return None;
    }
    let kept = fraction.min(9);
    let exact = if kept == 0 { format!("{}{zone}", &text[..19]) } else { format!("{}{zone}", &text[..20 + kept]) };
    let reader: StrDeserializer<'_, ValueError> = exact.as_str().into_deserializer();
    rfc3339::deserialize(reader).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_any_fraction_and_offset_are_read_exactly() {
        // 2026-01-02T03:04:05Z is 1767323045 s after the epoch (date -u -d ... +%s).
        const SECOND: i64 = 1_767_323_045_000_000;
        for (text, micros) in [
            ("2026-01-02T03:04:05Z", SECOND),
            ("2026-01-02T03:04:05.5Z", SECOND + 500_000),
            ("2026-01-02T03:04:05.123Z", SECOND + 123_000),
            ("2026-01-02T03:04:05.123456789Z", SECOND + 123_456),
            ("2026-01-02T03:04:05.123456789012345Z", SECOND + 123_456),
            ("2026-01-02T05:04:05.000001+02:00", SECOND + 1),
            ("2026-01-01T21:34:05-05:30", SECOND),
        ] {
            assert_eq!(time(text), Some(Timestamp(micros)), "{text}");
        }
        for text in [
            "",
            "x",
            "2026-01-02",
            "2026-01-02 03:04:05Z",
            "2026-01-02T03:04:05",
            "2026-01-02T03:04:05.Z",
            "2026-13-02T03:04:05Z",
            "2026-01-02T03:04:05Z[UTC]",
            "2026-01-02T03:04:05.é",
        ] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    fn decide(names: &[(&str, bool)], sessions: Sessions) -> Vec<(String, Option<String>)> {
        let all = names.iter().map(|(name, proven)| ((*name).to_owned(), *proven)).collect();
        let namespaces = Namespaces::decide(all, &Options { tenant: "t".into(), sessions });
        names
            .iter()
            .map(|(name, _)| {
                let namespace = namespaces.of(name);
                (namespace.subject.to_string(), namespace.session.as_deref().map(str::to_owned))
            })
            .collect()
    }

    #[test]
    fn a_namespace_is_split_where_the_file_proves_it() {
        let names = [
            ("alice", false),
            ("alice:s1", false),
            ("alice:s1:x", false),
            ("org:bob", true),
            ("org:bob:s2", false),
            ("org:carol", false),
            ("alice:dave", true),
        ];
        let pair = |subject: &str, session: Option<&str>| (subject.to_owned(), session.map(str::to_owned));
        assert_eq!(
            decide(&names, Sessions::Proven),
            [
                pair("alice", None),
                pair("alice", Some("s1")),
                pair("alice", Some("s1:x")),
                pair("org:bob", None),
                pair("org:bob", Some("s2")),
                pair("org:carol", None),
                pair("alice:dave", None),
            ]
        );
        assert_eq!(decide(&names, Sessions::Always)[5], pair("org", Some("carol")));
        assert_eq!(decide(&names, Sessions::Always)[6], pair("alice:dave", None));
        assert!(decide(&names, Sessions::Never).iter().all(|(_, session)| session.is_none()));
    }
}
