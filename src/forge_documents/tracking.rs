//! Documents of the sync with a tracker: fields, waiting operations, conflicts, state of a clone.
//!
//! They belong to one clone and are not in git. The network side is in `helmdeck-trackers`.

mod fields;
mod outbox;
mod state;

pub use fields::{CheckItem, Field, Fields, Value};
pub use outbox::{MAX_WAITING, Operation, OperationKind, Outbox};
pub use state::{Base, Conflict, Failure, SyncState, base_path};

/// Failed attempts after which an operation counts as failed.
pub const MAX_ATTEMPTS: u32 = 3;
