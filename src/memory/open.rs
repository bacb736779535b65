//! Opens a store by its URL. Only this module knows all drivers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::Clock;

use crate::config::Config;
use crate::driver::DriverStore;
use crate::drivers::memory::Memory;
use crate::drivers::sqlite::Sqlite;
use crate::error::{Result, StoreError};
use crate::keyring::KeyRing;
use crate::late::LateStore;
use crate::store::Store;

/// The URL schemes that [`open`] knows.
pub const SCHEMES: &[&str] = &[
    "memory:",
    "sqlite:<path>",
    #[cfg(feature = "postgres")]
    "postgres://<user>@<host>/<database>",
];

/// Location of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// `memory:`; ends with the process.
    Memory,
    /// `sqlite:<path>`; `sqlite://<path>` means the same.
    Sqlite(PathBuf),
    /// `postgres://<user>:<password>@<host>/<database>`; `postgresql:` means the same.
    Postgres(PostgresUrl),
}

/// The URL of a PostgreSQL store. It may hold a password, so `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl(String);

impl PostgresUrl {
    /// Returns hosts and database, which are safe to show.
    ///
    /// # Errors
    /// `BadUrl`, which repeats no secret.
    pub fn shown(&self) -> Result<String> {
        #[cfg(feature = "postgres")]
        return crate::drivers::postgres::shown(&self.0);
        #[cfg(not(feature = "postgres"))]
        Err(no_postgres())
    }

    #[cfg(feature = "postgres")]
    async fn exists(&self, config: &Config) -> Result<bool> {
        crate::drivers::postgres::Postgres::exists(&self.0, config).await
    }

    #[cfg(not(feature = "postgres"))]
    #[expect(clippy::unused_async, reason = "it is not, with the driver")]
    async fn exists(&self, _: &Config) -> Result<bool> {
        Err(no_postgres())
    }

    #[cfg(feature = "postgres")]
    async fn connect(&self, config: &Config) -> Result<crate::drivers::postgres::Postgres> {
        crate::drivers::postgres::Postgres::open(&self.0, config).await
    }
}

helmdeck_core::redacted_debug!(PostgresUrl);

#[cfg(not(feature = "postgres"))]
fn no_postgres() -> StoreError {
    StoreError::BadUrl(
        "this program was built without the PostgreSQL driver (feature \"postgres\")".to_owned(),
    )
}

impl Location {
    /// Parses a URL; opens nothing.
    ///
    /// # Errors
    /// `BadUrl`, which lists the known schemes. It names only the scheme of the URL: the rest may
    /// hold a password.
    pub fn parse(url: &str) -> Result<Self> {
        let known = SCHEMES.join(", ");
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(StoreError::BadUrl(format!(
                "the store's URL has no scheme; there are {known}"
            )));
        };
        match (scheme, rest) {
            ("memory", "") => Ok(Self::Memory),
            ("memory", _) => Err(StoreError::BadUrl(
                "nothing may follow \"memory:\"".to_owned(),
            )),
            ("sqlite", path) => match path.strip_prefix("//").unwrap_or(path) {
                "" => Err(StoreError::BadUrl(
                    "\"sqlite:\" needs a path, for example sqlite:/var/lib/helmdeck/memory.db"
                        .to_owned(),
                )),
                ":memory:" => Err(StoreError::BadUrl(
                    "for a store that ends with the process use \"memory:\"".to_owned(),
                )),
                path => Ok(Self::Sqlite(path.into())),
            },
            ("postgres" | "postgresql", _) => Ok(Self::Postgres(PostgresUrl(url.to_owned()))),
            (other, _) => Err(StoreError::BadUrl(format!(
                "no store has the scheme \"{other}:\"; there are {known}"
            ))),
        }
    }
}

/// Returns whether a store exists; creates nothing. `memory:` never exists.
///
/// # Errors
/// As [`open`], but for `WrongKey`.
pub async fn exists(url: &str, config: &Config) -> Result<bool> {
    match Location::parse(url)? {
        Location::Memory => Ok(false),
        Location::Sqlite(path) => Ok(path.exists()),
        Location::Postgres(url) => url.exists(config).await,
    }
}

/// Opens a store without a key, to read clear columns and to delete; `None` if it does not exist.
///
/// # Errors
/// As [`open`], but for `WrongKey`.
pub async fn open_clear(
    url: &str,
    config: &Config,
    clock: Arc<dyn Clock>,
) -> Result<Option<Arc<dyn Store>>> {
    if !exists(url, config).await? {
        return Ok(None);
    }
    match Location::parse(url)? {
        Location::Memory => Ok(None),
        Location::Sqlite(path) => Ok(Some(Arc::new(DriverStore::plain(
            sqlite(path, config).await?,
            config,
            clock,
        )))),
        #[cfg(feature = "postgres")]
        Location::Postgres(url) => Ok(Some(Arc::new(DriverStore::plain(
            url.connect(config).await?,
            config,
            clock,
        )))),
        #[cfg(not(feature = "postgres"))]
        Location::Postgres(_) => Err(no_postgres()),
    }
}

async fn sqlite(path: PathBuf, config: &Config) -> Result<Sqlite> {
    if path.is_dir() {
        return Err(StoreError::BadUrl(format!(
            "{} is a folder; \"sqlite:\" needs a file",
            path.display()
        )));
    }
    let config = config.clone();
    tokio::task::spawn_blocking(move || Sqlite::open(path, &config))
        .await
        .map_err(StoreError::unavailable)?
}

/// Opens a sealed store.
///
/// `sqlite:` creates the missing file and its folder, `postgres:` creates missing tables. Every URL
/// gives the same behaviour; only persistence differs.
///
/// # Errors
/// `BadUrl`; `WrongKey` if no key of the ring wrote the store; `Corrupt` if the data is not a valid
/// store; `Unavailable`.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use helmdeck_core::SystemClock;
/// use helmdeck_memory::{Config, KeyRing, Kind, MemoryKey, Namespace, Put};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let key = MemoryKey::generate()?;
/// let ring = KeyRing::parse(("HELMDECK_MEMORY_KEY", key.expose()), None)?;
/// let store = helmdeck_memory::open("memory:", ring, Config::default(), Arc::new(SystemClock::default())).await?;
///
/// let alice = Namespace::new("acme", "alice", None);
/// store.put(Put::new(alice.clone(), Kind::Note, "colour", "blue")).await?;
/// let entry = store.get(&alice, Kind::Note, "colour").await?.unwrap();
/// assert_eq!(entry.value, "blue");
/// # Ok::<(), helmdeck_memory::StoreError>(())
/// # }).unwrap();
/// ```
pub async fn open(
    url: &str,
    ring: KeyRing,
    config: Config,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Store>> {
    match Location::parse(url)? {
        Location::Memory => Ok(Arc::new(
            DriverStore::sealed(Memory::new(), ring, &config, clock).await?,
        )),
        Location::Sqlite(path) => Ok(Arc::new(
            DriverStore::sealed(sqlite(path, &config).await?, ring, &config, clock).await?,
        )),
        #[cfg(feature = "postgres")]
        Location::Postgres(url) => Ok(Arc::new(
            DriverStore::sealed(url.connect(&config).await?, ring, &config, clock).await?,
        )),
        #[cfg(not(feature = "postgres"))]
        Location::Postgres(_) => Err(no_postgres()),
    }
}

/// Opens a sealed store now or later.
///
/// As [`open`], but it does not fail if the store cannot be opened now: every call of the store
/// fails with the reason then, until a later try opens it. `retry` says how often that is tried;
/// `None` = never.
///
/// # Errors
/// `BadUrl`.
pub async fn open_or_later(
    url: &str,
    ring: KeyRing,
    config: Config,
    clock: Arc<dyn Clock>,
    retry: Option<Duration>,
) -> Result<Opened> {
    let location = Location::parse(url)?;
    let sends_changes = matches!(location, Location::Postgres(_));
    if let Location::Sqlite(path) = location {
        // As `open`, but what the driver saw of others is kept.
        let opened = match sqlite(path, &config).await {
            Ok(driver) => {
                let locked = driver.was_locked();
                let store =
                    DriverStore::sealed(driver, ring.clone(), &config, Arc::clone(&clock)).await;
                store.map(|store| (Arc::new(store) as Arc<dyn Store>, locked.then(locked_error)))
            }
            Err(error) => Err(error),
        };
        match opened {
            Ok((store, trouble)) => return Ok(Opened { store, trouble }),
            Err(error @ StoreError::BadUrl(_)) => return Err(error),
            Err(error) => return Ok(later(url, ring, config, clock, retry, sends_changes, error)),
        }
    }
    match open(url, ring.clone(), config.clone(), Arc::clone(&clock)).await {
        Ok(store) => Ok(Opened {
            store,
            trouble: None,
        }),
        Err(error @ StoreError::BadUrl(_)) => Err(error),
        Err(error) => Ok(later(url, ring, config, clock, retry, sends_changes, error)),
    }
}

/// Result of opening a store: the store, and its trouble if any.
#[derive(Clone)]
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Why it could not be opened, or that another process holds it locked; `None` if nothing is
    /// wrong.
    pub trouble: Option<StoreError>,
}

helmdeck_core::redacted_debug!(Opened, this => trouble = this.trouble);

fn locked_error() -> StoreError {
    let message =
        "another process holds the database locked; answers can be read and not stored".to_owned();
    StoreError::Unavailable {
        message,
        source: None,
    }
}

fn later(
    url: &str,
    ring: KeyRing,
    config: Config,
    clock: Arc<dyn Clock>,
    retry: Option<Duration>,
    sends_changes: bool,
    trouble: StoreError,
) -> Opened {
    let url = url.to_owned();
    let opener = move || -> crate::late::Opening {
        let (url, ring, config, clock) = (
            url.clone(),
            ring.clone(),
            config.clone(),
            Arc::clone(&clock),
        );
        Box::pin(async move { open(&url, ring, config, clock).await })
    };
    let store = LateStore::start(trouble.clone(), Box::new(opener), retry, sends_changes);
    Opened {
        store,
        trouble: Some(trouble),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_driver() {
        assert_eq!(Location::parse("memory:").unwrap(), Location::Memory);
        for (url, path) in [
            ("sqlite:a/b.db", "a/b.db"),
            ("sqlite:/a b.db", "/a b.db"),
            ("sqlite:///a.db", "/a.db"),
        ] {
            assert_eq!(Location::parse(url).unwrap(), Location::Sqlite(path.into()));
        }
    }

    #[test]
    fn the_url_of_a_postgresql_store_is_not_shown() {
        for url in [
            "postgres://u:hunter2@h/d",
            "postgresql://u:hunter2@h/d?sslmode=disable",
        ] {
            let location = Location::parse(url).unwrap();
            assert!(!format!("{location:?}").contains("hunter2"));
            let Location::Postgres(url) = location else {
                panic!("another driver")
            };
            #[cfg(feature = "postgres")]
            assert_eq!(url.shown().unwrap(), "postgres://h:5432/d");
            #[cfg(not(feature = "postgres"))]
            assert!(url.shown().unwrap_err().to_string().contains("without"));
        }
    }

    #[test]
    fn unknown_scheme_error_lists_schemes_without_password() {
        let message = Location::parse("redis://user:hunter2@host")
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with(
                "no store has the scheme \"redis:\"; there are memory:, sqlite:<path>"
            ),
            "{message}"
        );
        assert!(!message.contains("hunter2"), "{message}");
        for url in [
            "",
            "memory",
            "memory:x",
            "sqlite:",
            "sqlite://",
            "sqlite::memory:",
        ] {
            assert!(
                matches!(Location::parse(url), Err(StoreError::BadUrl(_))),
                "{url}"
            );
        }
    }
}
