#![doc = include_str!("README.md")]

pub mod archive;
pub mod audit;
pub mod config;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod doctor;
pub mod driver;
pub mod drivers;
pub mod entry;
pub mod error;
pub mod floors;
pub mod framing;
pub mod janitor;
pub mod key;
pub mod keyring;
pub mod late;
pub mod leaks;
pub mod lock;
pub mod open;
pub mod ops;
pub mod position;
pub mod requests;
pub mod restore;
pub mod rotate;
pub mod sealed;
pub mod sieve;
pub mod store;
#[cfg(test)]
mod tests;
mod xaes;

pub use config::{Config, KindLimits, Limits, Listen, PostgresConfig};
pub use driver::DriverStore;
pub use entry::{Entry, EntryMeta, Fingerprint, Kind, Namespace, Quota, Reach};
pub use error::{Result, StoreError};
pub use janitor::{Janitor, JanitorConfig};
pub use key::MemoryKey;
pub use keyring::KeyRing;
pub use lock::Lock;
pub use open::open;
pub use ops::{
    Change, Changes, Cursor, Delete, ListPage, Mark, NamespaceStats, Op, Order, Page, Put,
    Resealed, Restore, Scan, Stats, Walk, Walked, Written,
};
pub use position::{BadPosition, CaughtUp, DeletePosition};
pub use store::{Access, Maintenance, ReadStore, Store, StoreWrapper};
