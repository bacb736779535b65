//! Pack calls: what a transport (REST, MCP, CLI, another pack) hands to the engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::context::{Artifacts, CallSecrets, ProgressSink, Stale};
pub use crate::secrets::CallingPack;
use crate::session::Session;
use crate::{Identity, PackName, RunId, Version};

/// What the caller wants of the cache. Without both gates open it changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Directive {
    /// Read and write as the manifest says.
    #[default]
    Default,
    /// Neither read nor write.
    Bypass,
    /// Do not read; write the fresh answer.
    Refresh,
    /// Answer from the cache or not at all (`cache_miss`).
    OnlyIfCached,
}

impl Directive {
    /// Returns the name used in configuration and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Bypass => "bypass",
            Self::Refresh => "refresh",
            Self::OnlyIfCached => "only_if_cached",
        }
    }
}

/// One call.
#[derive(Clone)]
pub struct Call {
    /// The pack.
    pub pack: PackName,
    /// The version; `None` = the latest.
    pub version: Option<Version>,
    /// The input, raw: the very bytes that came in, not yet parsed.
    pub input: Bytes,
    /// The caller.
    pub identity: Arc<Identity>,
    /// What the caller wants of the cache.
    pub directive: Directive,
    /// The oldest answer that the caller takes from the cache.
    pub max_age: Option<Duration>,
    /// How long past its freshness an answer may be and still be taken.
    pub max_stale: Option<Duration>,
    /// Where progress goes.
    pub progress: Option<Arc<dyn ProgressSink>>,
    /// When the caller stops waiting.
    pub deadline: Option<Instant>,
    /// Cancelled when the caller wants it to stop. Dropping the call's future cancels too.
    pub cancel: Option<CancellationToken>,
    /// How many packs deep: 0 from a transport, one more for each `cx.call`.
    pub depth: u8,
    /// What the layers hand to each other on the way in. A transport leaves it empty.
    pub stage: Stage,
}

impl Call {
    /// Makes a call with nothing but a pack, an input and a caller.
    #[must_use]
    pub fn new(pack: PackName, input: impl Into<Bytes>, identity: Arc<Identity>) -> Self {
        Self {
            pack,
            version: None,
            input: input.into(),
            identity,
            directive: Directive::Default,
            max_age: None,
            max_stale: None,
            progress: None,
            deadline: None,
            cancel: None,
            depth: 0,
            stage: Stage::default(),
        }
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("pack", &self.pack)
            .field("version", &self.version)
            .field("input_bytes", &self.input.len())
            .field("directive", &self.directive)
            .field("depth", &self.depth)
            .finish_non_exhaustive()
    }
}

/// The bytes of a call as they came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw {
    /// The bytes.
    pub input: Bytes,
    /// Generation of the secrets ([`crate::secrets::Secrets::generation`]) when the call came in.
    ///
    /// Grants are resolved after this. So an answer made while grants changed does not pass for one made with the new
    /// grants.
    pub secrets: u64,
}

/// What the layers of the pipeline hand to each other, in the order in which they set it.
#[derive(Clone, Default)]
pub struct Stage {
    /// Set when a pack calls this one; not while gate 1 is shut.
    pub called_by: Option<Arc<CallingPack>>,
    /// Set by `recall`: the bytes as they came in, before defaults were filled in.
    pub raw: Option<Raw>,
    /// Set by `validate_input`: the session that the input pinned (`_session_id`).
    pub pinned_session: Option<Arc<str>>,
    /// Set by `validate_input`: the input with its defaults, parsed.
    pub value: Option<Arc<Value>>,
    /// Set by `credentials`: what the handler may ask for.
    pub secrets: Option<Arc<dyn CallSecrets>>,
    /// Set by `cache`: the stale answer that the handler may confirm.
    pub stale: Option<Stale>,
    /// Set by `session`: where the handler runs commands.
    pub session: Option<Arc<dyn Session>>,
    /// Set by `artifacts`: where the handler writes.
    pub artifacts: Option<Arc<dyn Artifacts>>,
    /// Set by `artifacts`: the id of this run.
    pub run: Option<RunId>,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("run", &self.run).finish_non_exhaustive()
    }
}
