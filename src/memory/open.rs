//! Opens a store by its URL. The only place that knows which drivers there are.

use std::path::PathBuf;
use std::sync::Arc;

use helmdeck_core::Clock;

use crate::config::Config;
use crate::drivers::memory::Memory;
use crate::drivers::sqlite::Sqlite;
use crate::error::{Result, StoreError};
use crate::keyring::KeyRing;
use crate::store::Store;
use crate::stored::Stored;

/// The URL schemes that [`open`] knows.
pub const SCHEMES: [&str; 2] = ["memory:", "sqlite:<path>"];

/// Where a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// `memory:`; ends with the process.
    Memory,
    /// `sqlite:<path>`; `sqlite://<path>` means the same.
    Sqlite(PathBuf),
}

impl Location {
    /// Reads a URL; touches nothing.
    ///
    /// # Errors
    /// `BadUrl`, which lists the schemes that there are. It names the scheme only: what follows may hold a password.
    pub fn parse(url: &str) -> Result<Self> {
        let known = SCHEMES.join(", ");
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(StoreError::BadUrl(format!("the store's URL has no scheme; there are {known}")));
        };
        match (scheme, rest) {
            ("memory", "") => Ok(Self::Memory),
            ("memory", _) => Err(StoreError::BadUrl("nothing may follow \"memory:\"".to_owned())),
            ("sqlite", path) => match path.strip_prefix("//").unwrap_or(path) {
                "" => Err(StoreError::BadUrl(
                    "\"sqlite:\" needs a path, for example sqlite:/var/lib/helmdeck/memory.db".to_owned(),
                )),
                ":memory:" => {
                    Err(StoreError::BadUrl("for a store that ends with the process use \"memory:\"".to_owned()))
                }
                path => Ok(Self::Sqlite(path.into())),
            },
            (other, _) => Err(StoreError::BadUrl(format!("no store has the scheme \"{other}:\"; there are {known}"))),
        }
    }
}

/// Opens a sealed store.
///
/// `sqlite:` makes the file and its folder if they are not there: whoever opens a store has set a key. Every URL gives the same
/// behaviour; only what survives differs.
///
/// # Errors
/// `BadUrl`; `WrongKey` if no key of the ring wrote the store; `Corrupt` if there is something else; `Unavailable`.
pub async fn open(url: &str, ring: KeyRing, config: Config, clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>> {
    match Location::parse(url)? {
        Location::Memory => Ok(Arc::new(Stored::sealed(Memory::new(), ring, &config, clock).await?)),
        Location::Sqlite(path) => {
            if path.is_dir() {
                return Err(StoreError::BadUrl(format!("{} is a folder; \"sqlite:\" needs a file", path.display())));
            }
            let options = config.clone();
            let opened = tokio::task::spawn_blocking(move || Sqlite::open(path, &options)).await;
            let driver = opened.map_err(StoreError::unavailable)??;
            Ok(Arc::new(Stored::sealed(driver, ring, &config, clock).await?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_driver() {
        assert_eq!(Location::parse("memory:").unwrap(), Location::Memory);
        for (url, path) in [("sqlite:a/b.db", "a/b.db"), ("sqlite:/a b.db", "/a b.db"), ("sqlite:///a.db", "/a.db")] {
            assert_eq!(Location::parse(url).unwrap(), Location::Sqlite(path.into()));
        }
    }

    #[test]
    fn an_unknown_scheme_lists_those_there_are_and_shows_no_password() {
        let message = Location::parse("redis://user:hunter2@host").unwrap_err().to_string();
        assert_eq!(message, "no store has the scheme \"redis:\"; there are memory:, sqlite:<path>");
        for url in ["", "memory", "memory:x", "sqlite:", "sqlite://", "sqlite::memory:"] {
            assert!(matches!(Location::parse(url), Err(StoreError::BadUrl(_))), "{url}");
        }
    }
}
