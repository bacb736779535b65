#![doc = include_str!("README.md")]

mod book;
mod error;
mod head;
mod record;
mod seal;
mod uses;
mod vault;

#[cfg(test)]
mod tests;

pub use book::{Book, Change, Listed, Rekeyed, Saved, list_in_the_clear, remove};
pub use error::{Result, VaultError};
pub use record::{About, Kind, Material, Subjects, check_name, parse_host};
pub use vault::{Vault, Watch};
