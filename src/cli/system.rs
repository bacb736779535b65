//! The system database: where it is, and what replicas share of it.

use std::path::PathBuf;

use helmdeck_memory::Config;
use helmdeck_memory::open::Location;
use helmdeck_system::System;

use crate::config::Settings;
use crate::exit::{Failure, Result};

/// Returns the system database at a URL, which need not exist. Connects to nothing.
///
/// # Errors
/// A configuration failure if the URL cannot be used.
pub(crate) fn at(url: &str, config: &Config) -> Result<System> {
    match Location::parse(url)? {
        Location::Sqlite(path) => Ok(System::file(path, config.busy_timeout)),
        #[cfg(feature = "postgres")]
        Location::Postgres(_) => Ok(System::connect(url, config)?),
        #[cfg(not(feature = "postgres"))]
        Location::Postgres(_) => Err(Failure::config(
            "system.url: this helmdeck was built without PostgreSQL",
        )),
        Location::Memory => Err(Failure::config(
            "system.url: give postgres://... or sqlite:/path/helmdeck.db",
        )),
    }
}

/// Returns the path of the system database; `None` if it is in PostgreSQL.
pub(crate) fn file(settings: &Settings) -> Option<PathBuf> {
    match Location::parse(&settings.system_url().ok()?).ok()? {
        Location::Sqlite(path) => Some(path),
        Location::Postgres(_) | Location::Memory => None,
    }
}

/// Returns a file that an earlier version filled and that is no longer read, if the database is in
/// PostgreSQL.
pub(crate) fn left_behind(settings: &Settings) -> Option<PathBuf> {
    let path = settings.data_dir().ok()?.join("helmdeck.db");
    (file(settings).is_none() && path.is_file()).then_some(path)
}
