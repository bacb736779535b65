#![doc = include_str!("README.md")]

mod collector;
mod config;
mod download;
mod listing;
mod location;
mod names;
mod place;
#[cfg(feature = "s3")]
mod s3;
#[cfg(feature = "s3")]
mod skew;
mod store;
mod sweeping;
mod upload;

pub use collector::{Collector, earliest_end};
pub use config::ArtifactConfig;
pub use listing::{ArtifactPage, ListedArtifact};
pub use location::{S3Credentials, S3Location};
pub use place::ArtifactBackend;
#[cfg(feature = "s3")]
pub use s3::open as open_s3;
pub use store::{ArtifactMetrics, ArtifactStore, is_damaged};
pub use sweeping::Swept;
