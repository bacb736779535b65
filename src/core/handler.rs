//! Handlers of packs, and their replies.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;

use crate::context::Context;
use crate::error::{Code, Error, Result};
use crate::json::Json;
use crate::upstream::{Caching, Quota, Upstream};

/// Answer of a handler.
///
/// # Examples
/// ```
/// use helmdeck_core::Reply;
///
/// let reply = Reply::value(&serde_json::json!({ "stars": 12 }))?.with_validator("v7");
/// assert_eq!(reply.output.unwrap().as_str(), r#"{"stars":12}"#);
/// assert_eq!(reply.validator.as_deref(), Some("v7"));
/// # Ok::<(), helmdeck_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Reply {
    /// The output, or `None` for "the stale answer that I was given still holds".
    pub output: Option<Json>,
    /// Do not store this answer.
    pub no_store: bool,
    /// Validator to confirm this answer with later (an `ETag`).
    pub validator: Option<Arc<str>>,
    /// Number of requests that count against the quota of another service.
    pub upstream_calls: u32,
    /// What is left of a quota of the upstream, if it says so.
    pub quota: Option<Quota>,
    /// What the upstream says about storing the answer.
    pub caching: Caching,
    /// The handler must confirm the stored answer before each use.
    pub confirm_always: bool,
}

impl Reply {
    /// Answers with JSON text.
    #[must_use]
    pub fn json(output: Json) -> Self {
        Self {
            output: Some(output),
            ..Self::not_modified()
        }
    }

    /// Answers with a value.
    ///
    /// # Errors
    /// `internal` if the value cannot be written as JSON.
    pub fn value<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        Json::from_serialize(value)
            .map(Self::json)
            .map_err(|error| {
                Error::new(Code::Internal, "the output cannot be written as JSON")
                    .with_source(error)
            })
    }

    /// Confirms the stale answer in [`Context::stale`]; only allowed when there is one.
    #[must_use]
    pub fn not_modified() -> Self {
        Self {
            output: None,
            no_store: false,
            validator: None,
            upstream_calls: 0,
            quota: None,
            caching: Caching::default(),
            confirm_always: false,
        }
    }

    /// Sets the validator to confirm the answer with later.
    #[must_use]
    pub fn with_validator(mut self, validator: impl Into<Arc<str>>) -> Self {
        self.validator = Some(validator.into());
        self
    }

    /// Sets the number of requests that count against the quota of another service.
    #[must_use]
    pub const fn with_upstream_calls(mut self, calls: u32) -> Self {
        self.upstream_calls = calls;
        self
    }

    /// Sets what is left of the upstream's quota.
    #[must_use]
    pub const fn with_quota(mut self, quota: Option<Quota>) -> Self {
        self.quota = quota;
        self
    }

    /// Sets what the upstream says about storing the answer. The manifest's `respect` decides
    /// whether it counts.
    #[must_use]
    pub const fn with_caching(mut self, caching: Caching) -> Self {
        self.caching = caching;
        self
    }

    /// Requires confirmation of the stored answer before each use (`no-cache` in RFC 9111).
    ///
    /// This applies whatever the ttl: for an answer that is cheap to confirm and may change at any
    /// moment. Needs a validator and `revalidate = true`.
    #[must_use]
    pub const fn confirm_always(mut self) -> Self {
        self.confirm_always = true;
        self
    }

    /// Prevents storing this answer.
    #[must_use]
    pub const fn no_store(mut self) -> Self {
        self.no_store = true;
        self
    }
}

/// Handler of a pack: the trait that a pack author implements.
///
/// The future is dropped when the deadline passes or no caller waits any more. So hold no state
/// across an `await` that a drop would leave half done.
///
/// # Examples
/// ```
/// use helmdeck_core::{Context, Handler, Json, Reply, Result};
///
/// #[derive(serde::Deserialize)]
/// struct Input {
///     name: String,
/// }
///
/// struct Greet;
///
/// #[async_trait::async_trait]
/// impl Handler for Greet {
///     async fn run(&self, _: Context, input: Json) -> Result<Reply> {
///         let input: Input = input.read()?;
///         Reply::value(&serde_json::json!({ "greeting": format!("Hello, {}", input.name) }))
///     }
/// }
/// ```
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Runs the pack once on an input that its schema accepts, with defaults filled in.
    ///
    /// # Errors
    /// Any [`Error`]; its public message must not hold the cause or a secret.
    async fn run(&self, context: Context, input: Json) -> Result<Reply>;

    /// Returns the service that the handler asks; `None` if only this pack asks it, or nothing is
    /// asked.
    ///
    /// While it refuses requests, no cached pack with the same upstream and credential asks it.
    fn upstream(&self) -> Option<Upstream> {
        None
    }
}

/// A built-in pack: its manifest as TOML, and its handler.
#[derive(Clone)]
pub struct Builtin {
    /// The path of the manifest in the source tree, for messages.
    pub file: &'static str,
    /// The manifest.
    pub manifest: &'static str,
    /// Schemas of a family of packs, for manifests that leave out `[input]` and `[output]`: JSON,
    /// `{"<pack>": {"input": {}, "output": {}}}`. Empty: there are none.
    pub schemas: &'static str,
    /// The handler that the manifest names.
    pub handler: Arc<dyn Handler>,
    /// Condition for the pack to be listed.
    pub need: Need,
}

/// Condition for a built-in pack to be listed. A pack that is not listed can be called, and its
/// error says why it fails.
#[derive(Clone, Default)]
pub enum Need {
    /// Always listed.
    #[default]
    Nothing,
    /// Gate 1 is open.
    Memory,
    /// The check finds nothing missing.
    Check(Check),
}

/// Check of a need: returns what is missing and how to supply it, without paths or secrets.
///
/// For example `a project: run ... in its repository`. It may block for a moment. A server repeats
/// it every second, so that the packs appear as soon as nothing is missing.
pub type Check = Arc<dyn Fn() -> Option<&'static str> + Send + Sync>;

impl Need {
    /// Makes a need of a check.
    pub fn check(check: impl Fn() -> Option<&'static str> + Send + Sync + 'static) -> Self {
        Self::Check(Arc::new(check))
    }
}

impl std::fmt::Debug for Need {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Memory => "Memory",
            Self::Check(_) => "Check",
        })
    }
}

redacted_debug!(Builtin, this => file = this.file);
