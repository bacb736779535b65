//! Outcome of a call: output, artifacts, cache status.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::secrets::Grant;
use crate::upstream::{Caching, Quota};
use crate::{Json, PackName, Timestamp, Version};

/// Cache status of an answer.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum CacheStatus {
    /// Answered from the cache.
    Hit,
    /// The handler ran.
    Miss,
    /// Answered from the cache past its freshness.
    Stale,
    /// The handler confirmed that the cached answer still holds.
    Revalidated,
    /// The caller asked to leave the cache alone.
    Bypass,
    /// Another caller's run of the handler answered this call too.
    Coalesced,
}

impl CacheStatus {
    /// Every status.
    pub const ALL: [Self; 6] = [
        Self::Hit,
        Self::Miss,
        Self::Stale,
        Self::Revalidated,
        Self::Bypass,
        Self::Coalesced,
    ];

    /// Returns the name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Cache metadata of an answer. Exists only when both gates are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheInfo {
    /// How the cache took part.
    pub status: CacheStatus,
    /// Age of the answer.
    pub age: Duration,
    /// How long it is fresh from its making on.
    pub ttl: Duration,
    /// The first 8 bytes of the entry's key; safe to log.
    pub key: [u8; 8],
    /// Reason why the store took no part, in one word, if it is in trouble and the handler ran.
    ///
    /// One of `locked`, `read_only`, `full`, `damaged`, `wrong_key`, `slow` or `unavailable`.
    pub store_error: Option<&'static str>,
    /// Why the call was not cached, missed, or got a stale answer, in one word: one of
    /// [`CacheInfo::REASONS`].
    pub reason: Option<&'static str>,
    /// Why the answer of a run was not kept; `None` if it was, or if nothing ran.
    pub not_kept: Option<NotKept>,
    /// When the handler is asked again, if it is left alone now.
    pub retry_after: Option<Duration>,
}

/// Why an answer was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotKept {
    /// For the reason that a word gives: one of [`NotKept::WORDS`].
    Because(&'static str),
    /// It looks like a credential to this rule of the leak scanner.
    Secret(&'static str),
}

impl NotKept {
    /// Every word.
    ///
    /// In order: its files belong to the caller that ran the pack; it contains a secret of the
    /// call; the handler does not want it; its upstream does not; its upstream says that it is for
    /// one caller; its upstream says that it is not fresh; it is too large; the program changed
    /// during the run; it was purged during the run; the queue of writes is full, so that this
    /// process keeps it in memory only.
    pub const WORDS: [&str; 10] = [
        "shared_artifact",
        "secret",
        "no_store",
        "upstream_no_store",
        "upstream_private",
        "upstream_not_fresh",
        "too_large",
        "program_changed",
        "purged",
        "writes_behind",
    ];

    /// Returns it as one word, or as `secret:` and the rule.
    #[must_use]
    pub fn text(self) -> Cow<'static, str> {
        match self {
            Self::Because(word) => word.into(),
            Self::Secret(rule) => format!("secret:{rule}").into(),
        }
    }

    /// Reads what [`NotKept::text`] wrote, with the rule that `rule` finds by its name.
    #[must_use]
    pub fn parse(text: &str, rule: impl Fn(&str) -> Option<&'static str>) -> Option<Self> {
        match text.strip_prefix("secret:") {
            Some(name) => rule(name).map(Self::Secret),
            None => Self::WORDS
                .into_iter()
                .find(|word| *word == text)
                .map(Self::Because),
        }
    }
}

impl CacheInfo {
    /// Every word of `store_error`.
    pub const STORE_ERRORS: [&str; 7] = [
        "locked",
        "read_only",
        "full",
        "damaged",
        "wrong_key",
        "slow",
        "unavailable",
    ];

    /// Every value of `reason`.
    ///
    /// In order, why a call was not cached: the scope is `session` and the call names none; the
    /// caller is anonymous; the answer would become part of one that callers share; the input has a
    /// number without a canonical form; the caller knows of a delete that this process could not
    /// read in time. Then why an answer is stale: the handler failed; it was slow; its upstream is
    /// left alone after a failure; the rest of a quota is kept.
    ///
    /// Last, why a call missed: nothing is stored; what is stored is past its time, or too old for
    /// this caller; it was purged, or may have been; it does not open; its files are gone; a
    /// credential behind it is not open to this caller any more; the caller asked for a new run;
    /// the answer of the run that it joined belongs to another caller.
    pub const REASONS: [&str; 18] = [
        "no_session",
        "anonymous",
        "shared_caller",
        "input",
        "behind",
        "upstream_error",
        "upstream_slow",
        "upstream_backoff",
        "quota_kept",
        "cold",
        "expired",
        "too_old",
        "purged",
        "unreadable",
        "files_gone",
        "grant_changed",
        "refresh",
        "of_another",
    ];

    /// Writes it as one JSON object: `{status, age_ms, ttl_ms, key, store_error?, reason?, kept?,
    /// why?, retry_after_ms?}`.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"status\":\"");
        out.extend_from_slice(self.status.as_str().as_bytes());
        out.extend_from_slice(b"\",\"age_ms\":");
        write_number(out, millis(self.age));
        out.extend_from_slice(b",\"ttl_ms\":");
        write_number(out, millis(self.ttl));
        out.extend_from_slice(b",\"key\":\"");
        out.extend_from_slice(&hex(&self.key));
        if let Some(word) = self.store_error {
            out.extend_from_slice(b"\",\"store_error\":\"");
            out.extend_from_slice(word.as_bytes());
        }
        if let Some(word) = self.reason {
            out.extend_from_slice(b"\",\"reason\":\"");
            out.extend_from_slice(word.as_bytes());
        }
        out.push(b'"');
        if let Some(why) = self.not_kept {
            out.extend_from_slice(b",\"kept\":false,\"why\":\"");
            out.extend_from_slice(why.text().as_bytes());
            out.push(b'"');
        }
        if let Some(after) = self.retry_after {
            out.extend_from_slice(b",\"retry_after_ms\":");
            write_number(out, millis(after));
        }
        out.push(b'}');
    }
}

/// Outcome of a call.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The pack that answered.
    pub pack: PackName,
    /// The version that answered.
    pub version: Version,
    /// The output, byte for byte what the handler returned.
    pub output: Json,
    /// The artifacts of the run.
    pub artifacts: Arc<[ArtifactRef]>,
    /// How long the call took, as its caller saw it.
    pub duration: Duration,
    /// The session that the run used, if it was kept.
    pub session_id: Option<Arc<str>>,
    /// Cache metadata; `None` unless both gates are open.
    pub cache: Option<CacheInfo>,
    /// What the pack invalidates is not deleted from the store yet: other processes may still
    /// answer with it. This one deletes it as soon as the store can be reached.
    pub pending: bool,
    /// State that the layers pass outwards. Never on the wire.
    pub remark: Remark,
}

/// State of an outcome that the handler and the layers pass outwards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remark {
    /// The handler does not want this answer stored.
    pub no_store: bool,
    /// The handler confirmed the stale answer it was given; `output` is that answer.
    pub not_modified: bool,
    /// What the handler can confirm this answer with later (an `ETag`).
    pub validator: Option<Arc<str>>,
    /// Number of the handler's requests that count against the quota of another service.
    pub upstream_calls: u32,
    /// What is left of the upstream's quota, if it says so.
    pub quota: Option<Quota>,
    /// What the upstream, and those of the packs that the handler called, say about storing the
    /// answer.
    pub caching: Caching,
    /// A secret was found in the output and taken out.
    pub had_secret: bool,
    /// The handler must confirm the stored answer before each use.
    pub confirm_always: bool,
    /// Credentials of the packs that the handler called, directly or indirectly.
    ///
    /// Empty while gate 1 is shut.
    pub used: Vec<UsedGrant>,
}

/// A credential that a pack could use for its part of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UsedGrant {
    /// The pack.
    pub pack: PackName,
    /// The credential.
    pub grant: Grant,
}

impl Outcome {
    /// Writes the outcome as one JSON object. The output is copied byte for byte.
    ///
    /// Members: `pack, version, output, artifacts, duration_ms, session_id?, pending?, cache?`,
    /// where `cache` is `{status, age_ms, ttl_ms, key, store_error?, reason?, kept?, why?,
    /// retry_after_ms?}`.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.reserve(self.output.bytes().len() + 256);
        out.extend_from_slice(b"{\"pack\":\"");
        out.extend_from_slice(self.pack.as_str().as_bytes());
        out.extend_from_slice(b"\",\"version\":\"v");
        write_number(out, u64::from(self.version.number()));
        out.extend_from_slice(b"\",\"output\":");
        out.extend_from_slice(self.output.bytes());
        out.extend_from_slice(b",\"artifacts\":");
        if self.artifacts.is_empty() {
            out.extend_from_slice(b"[]");
        } else {
            // Artifact references are plain data; writing them to memory cannot fail.
            let _ = serde_json::to_writer(&mut *out, &self.artifacts[..]);
        }
        out.extend_from_slice(b",\"duration_ms\":");
        write_number(out, millis(self.duration));
        if let Some(session) = &self.session_id {
            out.extend_from_slice(b",\"session_id\":");
            let _ = serde_json::to_writer(&mut *out, session.as_ref());
        }
        if self.pending {
            out.extend_from_slice(b",\"pending\":true");
        }
        if let Some(cache) = &self.cache {
            out.extend_from_slice(b",\"cache\":");
            cache.write_json(out);
        }
        out.push(b'}');
    }

    /// Returns [`Outcome::write_json`] as text.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_json(&mut out);
        out
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn write_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn hex(bytes: &[u8; 8]) -> [u8; 16] {
    let mut text = [0; 16];
    data_encoding::HEXLOWER.encode_mut(bytes, &mut text);
    text
}

/// Artifact of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactRef {
    /// Key of the artifact: `<pack>/<run id>/<name>`.
    pub key: String,
    /// The name that the handler gave it.
    pub name: String,
    /// Its media type (RFC 6838), for example `application/json`.
    pub media_type: String,
    /// Its size in bytes.
    pub size: u64,
    /// SHA-256 of its bytes, 64 hex digits.
    pub sha256: String,
    /// When it is deleted.
    #[serde(with = "crate::clock::rfc3339")]
    pub expires_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_form_is_the_documented_one() {
        let mut outcome = Outcome {
            pack: PackName::new("a.b").unwrap(),
            version: Version::new(3).unwrap(),
            output: Json::parse(r#"{ "x": 1.0 }"#).unwrap(),
            artifacts: Arc::new([]),
            duration: Duration::from_micros(12_999),
            session_id: None,
            cache: None,
            pending: false,
            remark: Remark::default(),
        };
        assert_eq!(
            String::from_utf8(outcome.to_json()).unwrap(),
            r#"{"pack":"a.b","version":"v3","output":{ "x": 1.0 },"artifacts":[],"duration_ms":12}"#
        );
        outcome.session_id = Some("s\"1".into());
        outcome.cache = Some(CacheInfo {
            status: CacheStatus::Hit,
            age: Duration::from_secs(1),
            ttl: Duration::from_secs(300),
            key: [0, 1, 2, 3, 4, 5, 6, 255],
            store_error: None,
            reason: None,
            not_kept: None,
            retry_after: None,
        });
        let text = String::from_utf8(outcome.to_json()).unwrap();
        assert!(text.ends_with(r#","session_id":"s\"1","cache":{"status":"hit","age_ms":1000,"ttl_ms":300000,"key":"00010203040506ff"}}"#), "{text}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
        outcome.cache.as_mut().unwrap().store_error = Some("locked");
        let text = String::from_utf8(outcome.to_json()).unwrap();
        assert!(
            text.ends_with(r#""key":"00010203040506ff","store_error":"locked"}}"#),
            "{text}"
        );
        let cache = outcome.cache.as_mut().unwrap();
        (cache.store_error, cache.reason) = (None, Some("upstream_backoff"));
        cache.retry_after = Some(Duration::from_millis(1500));
        cache.not_kept = Some(NotKept::Secret("github-pat"));
        let text = String::from_utf8(outcome.to_json()).unwrap();
        assert!(
            text.ends_with(
                r#"","reason":"upstream_backoff","kept":false,"why":"secret:github-pat","retry_after_ms":1500}}"#
            ),
            "{text}"
        );
    }
}
