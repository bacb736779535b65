//! The pack manifest: a pack's contract, read strictly from TOML.
//!
//! An unknown key, a missing key or an invalid value is an error with file, line and a suggestion.
//! Core reads no files: the caller passes a function for `file = "..."` schemas.

mod head;
pub mod http;
mod parse;
mod raw;
pub mod schedule;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub use self::schedule::{ScheduleSpec, Timing};
use crate::error::Code;
use crate::ids::{PackName, Version};
use crate::schema::Schema;
use crate::template::Template;
use crate::upstream::Caching;

/// Reads a file named in a manifest, relative to the manifest's folder.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// A validated manifest.
#[derive(Debug)]
pub struct Manifest {
    /// The pack's name.
    pub name: PackName,
    /// Its version.
    pub version: Version,
    /// Short name for people; derived from the pack's name if absent.
    pub title: Option<String>,
    /// What it does, for people and agents.
    pub description: String,
    /// Whether calls have no side effects. Only such a pack can be cached.
    pub read_only: bool,
    /// Further hints on the effects of a call.
    pub hints: Hints,
    /// Hints for routing.
    pub metadata: Metadata,
    /// What runs.
    pub handler: HandlerSpec,
    /// Time limit of the handler. Default 30 s.
    pub timeout: Duration,
    /// Schema of the input.
    pub input: Schema,
    /// Schema of the output.
    pub output: Schema,
    /// The session that the handler needs, if any.
    pub session: Option<SessionSpec>,
    /// The credentials that the handler may use.
    pub credentials: Vec<Template>,
    /// Whether it runs as a job, unless the caller waits for the answer.
    pub asynchronous: bool,
    /// How often a job is run again whose server was lost or stopped. Only jobs of idempotent packs
    /// are.
    pub retry: u32,
    /// When it runs by itself, if its author wants that.
    pub schedule: Option<ScheduleSpec>,
    /// Whether no audit row is written.
    pub no_audit: bool,
    /// How long its artifacts are kept; the operator's default if absent.
    pub artifact_retention: Option<Duration>,
    /// Gate 2: `[memory]`.
    pub memory: Option<MemorySpec>,
    /// Example inputs.
    pub examples: Vec<Example>,
    /// The manifest's file, for messages.
    pub file: String,
}

/// Effects of a call, for clients that need confirmation by a person (MCP tool annotations).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    /// Whether a call may delete or overwrite something.
    pub destructive: Option<bool>,
    /// Whether a second call with the same input changes nothing more.
    pub idempotent: Option<bool>,
    /// Whether it reaches systems outside this machine.
    pub open_world: Option<bool>,
}

/// Hints for routing. Every list may be empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metadata {
    /// Kinds of input.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accepts: Vec<String>,
    /// Kinds of output.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub produces: Vec<String>,
    /// Search words of users.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intent_keywords: Vec<String>,
    /// When to use it, in a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub typical_use: String,
    /// Its limitations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limitations: Vec<String>,
}

/// Handler of a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandlerSpec {
    /// A function of this binary, by name.
    Builtin(String),
    /// A program: input on stdin, output on stdout.
    Command {
        /// Program and arguments. A program with a `/` is relative to the manifest's folder.
        argv: Vec<String>,
        /// Variables added to its short environment.
        env: BTreeMap<String, String>,
    },
    /// A tool of an MCP server that the operator's configuration names.
    Mcp {
        /// The server's name in `[[mcp.servers]]`.
        server: String,
        /// The tool's name as the server lists it.
        tool: String,
    },
    /// An HTTP request as a template over the input.
    Http(Box<http::HttpSpec>),
}

impl HandlerSpec {
    /// Returns the kind (`builtin`, `command`, `http` or `mcp`).
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Builtin(_) => "builtin",
            Self::Command { .. } => "command",
            Self::Mcp { .. } => "mcp",
            Self::Http(_) => "http",
        }
    }
}

/// The session that a handler needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSpec {
    /// Lifetime. Default 20 minutes.
    pub timeout: Duration,
    /// Whether only a call that pins a session has one; others run without.
    pub optional: bool,
    /// Whether it outlives the call.
    pub preserve: bool,
    /// Whether commands in it reach the network.
    pub network: bool,
    /// Memory limit in bytes.
    pub memory_bytes: Option<u64>,
}

/// `[memory]`: gate 2, the opt-in of the pack's author.
#[derive(Debug)]
pub struct MemorySpec {
    /// How answers are cached; `None` if `cache` is not true.
    pub cache: Option<CacheSpec>,
    /// The tags that are purged after a call of this (writing) pack.
    pub invalidates: Vec<Template>,
}

/// How answers of a pack are cached. Durations are written as seconds.
#[derive(Debug, Clone, Serialize)]
pub struct CacheSpec {
    /// How long an answer is fresh, at most.
    #[serde(rename = "ttl_s", serialize_with = "seconds")]
    pub ttl: Duration,
    /// Whether the upstream says how long an answer is fresh (RFC 9111), up to `ttl`.
    pub ttl_of_upstream: bool,
    /// Part of `ttl`, from 0 to 1, by which each answer ends earlier, at random.
    pub ttl_jitter: f64,
    /// Whether calls renew an answer shortly before its end. Default: with
    /// `stale_while_revalidate`.
    pub early: bool,
    /// Whose word on storing an answer counts besides the manifest's.
    pub respect: Respect,
    /// Who shares an entry.
    pub scope: Scope,
    /// How long past `ttl` an answer may be served while it is refreshed (RFC 5861).
    #[serde(rename = "stale_while_revalidate_s", serialize_with = "seconds")]
    pub stale_while_revalidate: Duration,
    /// How long past `ttl` an answer may be served when the handler fails (RFC 5861).
    #[serde(rename = "stale_if_error_s", serialize_with = "seconds")]
    pub stale_if_error: Duration,
    /// How long a call waits for the handler before it gets an answer that `stale_if_error` allows.
    /// Default 1 s.
    #[serde(rename = "stale_if_slow_s", serialize_with = "seconds")]
    pub stale_if_slow: Duration,
    /// How long errors are fresh, by code. Other errors are not stored.
    #[serde(rename = "errors_s", serialize_with = "seconds_each")]
    pub errors: BTreeMap<Code, Duration>,
    /// Whether the handler understands a validator.
    pub revalidate: bool,
    /// How long past `ttl` an answer may still be confirmed. Default 24 h.
    #[serde(rename = "revalidate_for_s", serialize_with = "seconds")]
    pub revalidate_for: Duration,
    /// Labels of an entry, for purging, as templates.
    #[serde(serialize_with = "sources")]
    pub tags: Vec<Template>,
    /// Category of the entries. Default `cache`.
    pub category: String,
    /// Version of the stored entries. Raise it to abandon all of them.
    pub epoch: u32,
    /// Scope of singleflight.
    pub single_flight: SingleFlight,
    /// Limit of a stored output in bytes. Default 1 MiB.
    pub max_bytes: u64,
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

fn seconds_each<S: Serializer>(
    times: &BTreeMap<Code, Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(times.iter().map(|(code, time)| (code, time.as_secs_f64())))
}

fn sources<S: Serializer>(templates: &[Template], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(templates.iter().map(Template::source))
}

impl CacheSpec {
    /// Returns the longest time past its freshness that an answer is still usable.
    #[must_use]
    pub fn stale_for(&self) -> Duration {
        let revalidate = if self.revalidate {
            self.revalidate_for
        } else {
            Duration::ZERO
        };
        self.stale_while_revalidate
            .max(self.stale_if_error)
            .max(revalidate)
    }

    /// Returns how long an answer is fresh of which its upstream says this.
    #[must_use]
    pub fn ttl_of(&self, caching: &Caching) -> Duration {
        let said = if self.scope == Scope::Shared {
            caching.fresh_for_all
        } else {
            caching.fresh_for
        };
        let limit = if self.ttl_of_upstream {
            Some(said.unwrap_or_default())
        } else {
            caching.at_most
        };
        limit.map_or(self.ttl, |limit| limit.min(self.ttl))
    }

    /// Returns why an answer is not stored of which its upstream says this, if so: a word of
    /// [`NotKept::WORDS`](crate::NotKept::WORDS).
    #[must_use]
    pub fn refused_by_upstream(&self, caching: &Caching) -> Option<&'static str> {
        if caching.no_store {
            Some("upstream_no_store")
        } else if caching.private && self.scope == Scope::Shared {
            Some("upstream_private")
        } else {
            (self.ttl_of(caching).is_zero() && self.stale_for().is_zero())
                .then_some("upstream_not_fresh")
        }
    }
}

/// Who shares an entry.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Default,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Each caller (tenant and user) separately.
    #[default]
    Caller,
    /// Each conversation of a caller separately.
    Session,
    /// All callers of one tenant: only for outputs that do not depend on the caller.
    Shared,
}

impl Scope {
    /// Returns the name in manifests.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Whose word on storing an answer counts besides the manifest's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Respect {
    /// The upstream's: what nobody may store is not stored, and what is for one caller is not
    /// shared.
    #[default]
    Upstream,
    /// Nobody's.
    None,
}

/// Scope of singleflight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum SingleFlight {
    /// Within one process.
    #[default]
    Process,
    /// Across all replicas on one store.
    Cluster,
}

/// Example of a call.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// The input.
    pub input: Value,
    /// A schema that the output must match, besides the pack's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// What the example shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Error of a manifest: one problem, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestError {
    /// The file.
    pub file: String,
    /// The line, from 1; `None` if the problem is that something is missing.
    pub line: Option<usize>,
    /// The problem, and how to fix it.
    pub message: String,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for ManifestError {}

impl Manifest {
    /// Parses a manifest.
    ///
    /// # Errors
    /// The first problem, with file, line and a suggestion.
    ///
    /// # Examples
    /// ```
    /// use helmdeck_core::Manifest;
    ///
    /// let text = r#"
    /// name = "demo.greet"
    /// version = "v1"
    /// description = "Greets a person."
    ///
    /// [handler]
    /// builtin = "demo.greet"
    /// "#;
    /// let manifest = Manifest::parse("greet.toml", text, &|_| Err("not found".to_owned()))?;
    /// assert_eq!(manifest.name.as_str(), "demo.greet");
    /// # Ok::<(), helmdeck_core::manifest::ManifestError>(())
    /// ```
    pub fn parse(file: &str, text: &str, read_file: ReadFile<'_>) -> Result<Self, ManifestError> {
        parse::parse(file, text, read_file)
    }

    /// Parses the manifest of a built-in pack.
    ///
    /// `schemas` is [`Builtin::schemas`](crate::Builtin::schemas). The schemas are compiled by the first call, and its examples and schedule are not checked
    /// against them: a server starts with dozens of built-in packs. Check each with
    /// [`Manifest::check_builtin`] in a test.
    ///
    /// # Errors
    /// As [`Manifest::parse`].
    pub fn parse_builtin(file: &str, text: &str, schemas: &str) -> Result<Self, ManifestError> {
        parse::parse_builtin(file, text, schemas, false)
    }

    /// Parses the manifest of a built-in pack, and checks everything in it: for tests.
    ///
    /// # Errors
    /// As [`Manifest::parse`].
    pub fn check_builtin(file: &str, text: &str, schemas: &str) -> Result<Self, ManifestError> {
        parse::parse_builtin(file, text, schemas, true)
    }

    /// Returns name and version of the manifest of a built-in pack without parsing it.
    ///
    /// `None` if they are not its first two lines, or if the manifest has a schedule: then it must
    /// be parsed.
    ///
    /// # Examples
    /// ```
    /// use helmdeck_core::Manifest;
    ///
    /// let (name, version) = Manifest::head("name = \"demo.greet\"\nversion = \"v1\"\n").unwrap();
    /// assert_eq!((name.as_str(), version.number()), ("demo.greet", 1));
    /// ```
    #[must_use]
    pub fn head(text: &str) -> Option<(PackName, Version)> {
        head::read(text)
    }

    /// Returns whether a call may delete or overwrite something.
    ///
    /// A pack that writes may, unless its author says otherwise.
    #[must_use]
    pub fn destructive(&self) -> bool {
        !self.read_only && self.hints.destructive.unwrap_or(true)
    }

    /// Returns whether a second call with the same input changes nothing more.
    ///
    /// True for a pack that only reads, and for the HTTP methods that promise it (RFC 9110, section
    /// 9.2.2).
    #[must_use]
    pub fn idempotent(&self) -> bool {
        let by_method =
            || matches!(&self.handler, HandlerSpec::Http(spec) if spec.method.is_idempotent());
        self.read_only || self.hints.idempotent.unwrap_or_else(by_method)
    }

    /// Returns whether the pack reaches systems outside this machine.
    ///
    /// Code outside this binary may, unless its author says otherwise.
    #[must_use]
    pub fn open_world(&self) -> bool {
        self.hints
            .open_world
            .unwrap_or(!matches!(self.handler, HandlerSpec::Builtin(_)))
    }

    /// Returns the cache specification, if gate 2 is open.
    #[must_use]
    pub fn cache(&self) -> Option<&CacheSpec> {
        self.memory.as_ref()?.cache.as_ref()
    }

    /// Returns the digest of what an answer depends on besides its input.
    ///
    /// It covers both schemas, the handler and the epoch.
    ///
    /// `handler` is the digest of what runs, for handlers whose code is outside this binary; empty
    /// for `builtin`.
    #[must_use]
    pub fn contract(&self, handler: &[u8]) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        add(b"helmdeck/contract/v1");
        add(self.input.source().to_string().as_bytes());
        add(self.output.source().to_string().as_bytes());
        match &self.handler {
            HandlerSpec::Builtin(name) => add(name.as_bytes()),
            HandlerSpec::Command { argv, env } => {
                add(format!("{argv:?} {env:?}").as_bytes());
            }
            HandlerSpec::Mcp { server, tool } => add(format!("mcp {server:?} {tool:?}").as_bytes()),
            HandlerSpec::Http(spec) => {
                let spec = http::HttpSpec {
                    keep_quota: 0,
                    ..(**spec).clone()
                };
                add(format!("{spec:?} {:?}", self.credentials).as_bytes());
            }
        }
        add(handler);
        add(&self.cache().map_or(0, |cache| cache.epoch).to_be_bytes());
        hash.finalize().into()
    }
}

#[cfg(test)]
mod tests;
