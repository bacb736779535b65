//! Pack calls: what a transport (REST, MCP, CLI, another pack) hands to the engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::context::{Artifacts, CallSecrets, ProgressSink, Stale};
pub use crate::secrets::CallingPack;
use crate::session::Session;
use crate::{Correlation, Identity, PackName, RunId, Version};

/// Cache directive of a call. It has no effect unless both gates are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Directive {
    /// Read and write as the manifest specifies.
    #[default]
    Default,
    /// Neither read nor write.
    Bypass,
    /// Do not read; write the fresh answer.
    Refresh,
    /// Answer from the cache only; otherwise fail with `cache_miss`.
    OnlyIfCached,
}

impl Directive {
    /// Returns the name used in configuration and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Call of a pack.
#[derive(Clone)]
pub struct Call {
    /// The pack.
    pub pack: PackName,
    /// The version; `None` = the latest.
    pub version: Option<Version>,
    /// The input as raw bytes, not yet parsed.
    pub input: Bytes,
    /// The caller.
    pub identity: Arc<Identity>,
    /// The cache directive.
    pub directive: Directive,
    /// Maximum age of a cached answer that the caller accepts (`max-age` of RFC 9111).
    pub max_age: Option<Duration>,
    /// How stale a cached answer may be (`max-stale` of RFC 9111).
    pub max_stale: Option<Duration>,
    /// How long a cached answer must stay fresh (`min-fresh` of RFC 9111).
    pub min_fresh: Option<Duration>,
    /// How stale an answer may be that covers a failure (`stale-if-error` of RFC 5861), besides
    /// what the pack allows.
    pub stale_if_error: Option<Duration>,
    /// Whether the caller is an administrator, who may have any fresh answer made anew
    /// ([`Directive::Refresh`]).
    pub administrator: bool,
    /// This process may not know of every delete that the caller knows of: no cached answer is
    /// used.
    pub behind: bool,
    /// Receiver of progress reports.
    pub progress: Option<Arc<dyn ProgressSink>>,
    /// Deadline of the caller.
    pub deadline: Option<Instant>,
    /// Cancels the call. Dropping the call's future cancels it too.
    pub cancel: Option<CancellationToken>,
    /// Nesting depth: 0 from a transport, one more for each `cx.call`.
    pub depth: u8,
    /// Request id and trace of the call.
    pub correlation: Correlation,
    /// State that the layers pass inwards. A transport leaves it empty.
    pub stage: Stage,
}

impl Call {
    /// Makes a call that has only a pack, an input and a caller.
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
            min_fresh: None,
            stale_if_error: None,
            administrator: false,
            behind: false,
            progress: None,
            deadline: None,
            cancel: None,
            depth: 0,
            correlation: Correlation::default(),
            stage: Stage::default(),
        }
    }
}

redacted_debug!(Call, this => pack = this.pack, version = this.version, input_bytes = this.input.len(),
    directive = this.directive, depth = this.depth);

/// The bytes of a call as they came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw {
    /// The bytes.
    pub input: Bytes,
    /// Generation of the secrets ([`crate::secrets::Secrets::generation`]) when the call came in.
    ///
    /// Grants are resolved after this. So an answer made while grants changed does not pass for one
    /// made with the new grants.
    pub secrets: u64,
}

/// State that the layers of the pipeline pass inwards, in the order in which they set it.
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
    /// Set by `credentials`: the credentials of the handler.
    pub secrets: Option<Arc<dyn CallSecrets>>,
    /// Set by `cache`: the stale answer that the handler may confirm.
    pub stale: Option<Stale>,
    /// Set by `cache`: the first half of the key of the stored answer that covers a failure of the
    /// handler.
    pub covered_by: Option<u128>,
    /// Set by `session`: where the handler runs commands.
    pub session: Option<Arc<dyn Session>>,
    /// Set by `artifacts`: receiver of the handler's files.
    pub artifacts: Option<Arc<dyn Artifacts>>,
    /// Set by `artifacts`: the id of this run.
    pub run: Option<RunId>,
}

redacted_debug!(Stage, this => run = this.run);
