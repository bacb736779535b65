#![doc = include_str!("README.md")]

mod config;
#[cfg(feature = "export")]
mod exporter;
#[cfg(feature = "export")]
mod log_layer;
#[cfg(feature = "export")]
mod logs;
#[cfg(feature = "export")]
mod message;
#[cfg(feature = "export")]
mod metrics;
#[cfg(feature = "export")]
mod openmetrics;
#[cfg(feature = "export")]
mod spans;

pub use config::{Config, Protocol};
#[cfg(feature = "export")]
pub use exporter::{Resource, Telemetry};
#[cfg(feature = "export")]
pub use log_layer::LogLayer;
