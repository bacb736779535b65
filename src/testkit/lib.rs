#![doc = include_str!("README.md")]

mod chat;
mod faulty_store;
#[cfg(feature = "trackers")]
pub mod github_issues;
mod issuer;
#[cfg(feature = "trackers")]
pub mod linear;
mod nats;
mod packs;
mod pgbouncer;
mod postgres;
mod recorder;
mod recording_bus;
mod replica_store;
mod s3;
mod session;
#[cfg(feature = "trackers")]
mod small_http;
mod stores;
mod waiting;

pub use helmdeck_core::ManualClock;
pub use helmdeck_core::leaks::samples as leaks;
pub use helmdeck_core::waiting::{STUCK, wait_for};

pub use chat::{ChatReply, ChatRequest, ChatServer};
pub use faulty_store::{Fault, FaultyStore};
pub use issuer::{Issuer, key_set};
pub use nats::{NATS_VARIABLE, Nats};
pub use packs::{Counted, call, function, manifest};
pub use pgbouncer::{PGBOUNCER_VARIABLE, PgBouncer};
pub use postgres::{Postgres, PostgresOptions, SERVER_VARIABLE};
pub use recorder::{RecordedPlan, StatementRecorder};
pub use recording_bus::RecordingBus;
pub use replica_store::{Gate, ReplicaStore};
pub use s3::{S3, S3_VARIABLE};
pub use session::FolderSession;
pub use stores::{KEY, OTHER_KEY, keyring, memory, patient, sealed_memory};
pub use waiting::{ends, until};
