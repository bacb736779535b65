#![doc = include_str!("README.md")]

pub mod error;
pub mod files;
pub mod json;
pub mod layout;
pub mod secrets;
pub mod time;
pub mod triv;
pub mod yaml;

pub use error::{Category, Current, Error, Result};
pub use files::{Document, Files, Guard, Loaded};
pub use json::{Json, Members};
pub use time::Time;
pub use triv::Triv;
pub use yaml::Yaml;
