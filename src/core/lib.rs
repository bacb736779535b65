#![doc = include_str!("README.md")]

mod metrics;
#[macro_use]
mod redacted;

pub mod call;
pub mod caller;
pub mod canonical;
pub mod clock;
pub mod context;
pub mod correlation;
pub mod duration;
pub mod error;
pub mod handler;
mod hex;
pub mod identity;
pub mod ids;
pub mod jitter;
pub mod json;
mod json_string;
pub mod leaks;
pub mod manifest;
#[cfg(any(test, feature = "testing"))]
pub mod manual_clock;
pub mod memory;
pub mod numbers;
pub mod outcome;
pub mod random;
pub mod schema;
pub mod secrets;
pub mod session;
pub mod suggest;
pub mod template;
pub mod text;
pub mod trace;
pub mod upstream;
#[cfg(any(test, feature = "testing"))]
pub mod waiting;

pub use call::{Call, Directive};
pub use caller::{Caller, Credential, Permission, Permissions, SignIn, TokenCredential};
pub use clock::{Clock, SystemClock, Timestamp};
pub use context::{ArtifactRef, Context};
pub use correlation::{Correlation, RequestId};
pub use error::{Code, Error, Fault, Result};
pub use handler::{Builtin, Check, Handler, Need, Reply};
pub use hex::{hex, hex_digits};
pub use identity::Identity;
pub use ids::{PackName, RunId, Version};
pub use json::Json;
pub use json_string::write_json_string;
pub use manifest::Manifest;
#[cfg(any(test, feature = "testing"))]
pub use manual_clock::ManualClock;
pub use outcome::{CacheInfo, CacheStatus, NotKept, Outcome};
pub use schema::Schema;
pub use secrets::Secret;
pub use trace::{Span, Trace, Tracer};
pub use upstream::{Caching, Quota, Upstream};
