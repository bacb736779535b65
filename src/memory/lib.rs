#![doc = include_str!("README.md")]

pub mod archive;
pub mod config;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod doctor;
pub mod driver;
pub mod driver_store;
pub mod drivers;
pub mod entry;
pub mod error;
pub mod framing;
pub mod helmdeck_go;
pub mod janitor;
pub mod key;
pub mod keyring;
pub mod late;
pub mod lock;
pub mod open;
pub mod restore;
pub mod rotate;
pub mod sealed;
pub mod store;
#[cfg(test)]
mod tests;

pub use config::{Config, Fingerprint, KindLimits, Limits, PostgresConfig};
pub use driver_store::DriverStore;
pub use entry::{Entry, EntryMeta, Kind, Namespace, Reach};
pub use error::{Result, StoreError};
pub use janitor::{Janitor, JanitorConfig};
pub use key::MemoryKey;
pub use keyring::KeyRing;
pub use lock::Lock;
pub use open::open;
pub use store::{
    Change, Changes, Cursor, Delete, ListPage, Mark, NamespaceStats, Op, Order, Page, Put, ReadStore, Resealed,
    Restore, Scan, Stats, Store, Walk, Walked, Written,
};
