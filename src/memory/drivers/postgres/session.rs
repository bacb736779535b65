//! Connections for other tables in the same database, such as those of the system database.
//!
//! Statements must not rely on the state of a session: a connection pooler may give each
//! transaction another one.

use std::future::Future;
use std::sync::Arc;

use super::connect::{self, Dialer};
use super::db::Database;
pub use super::error::{Failure, Outcome, Remedy};
use super::url::Target;
use crate::config::Config;
use crate::error::Result;
/// A connection of the pool, which goes back when it is dropped.
pub use deadpool_postgres::Object;

/// A small pool of connections. They open when needed. Cheap to clone; clones share the
/// connections.
#[derive(Clone)]
pub struct Connections(Arc<Shared>);

struct Shared {
    database: Database,
    url: String,
    shown: String,
}

helmdeck_core::redacted_debug!(Connections, this => shown = this.0.shown);

impl Connections {
    /// Creates a pool of at most `size` connections, without connecting.
    ///
    /// # Errors
    /// `BadUrl` if the URL is not understood; `Unavailable` if a certificate cannot be read.
    pub fn new(url: &str, size: usize, config: &Config) -> Result<Self> {
        let target = Target::parse(url)?;
        let database = Database::new(Dialer::new(&target, config)?, size.max(1))?;
        Ok(Self(Arc::new(Shared {
            database,
            url: url.to_owned(),
            shown: target.shown(),
        })))
    }

    /// Returns the shared connections of a configuration, if they are those of this URL.
    #[must_use]
    pub fn shared(url: &str, config: &Config) -> Option<Self> {
        config
            .connections
            .as_ref()
            .filter(|shared| shared.0.url == url)
            .cloned()
    }

    pub(super) fn database(&self) -> &Database {
        &self.0.database
    }

    /// Returns hosts and database, which are safe to show.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.0.shown
    }

    /// Takes a connection, and waits for one if all are in use.
    ///
    /// # Errors
    /// A failure with `Unavailable` if the server cannot be reached in time, or `Closed`.
    pub async fn take(&self) -> Outcome<Object> {
        self.0.database.object().await
    }

    /// Gives a connection back after its use, or closes it if the failure makes it unusable.
    pub fn give_back<T>(&self, connection: Object, outcome: &Outcome<T>) {
        if matches!(outcome, Err(failure) if failure.is_of_connection()) {
            connect::discard(connection);
        }
    }

    /// Closes all connections.
    pub fn close(&self) {
        self.0.database.close();
    }
}

/// Waits for a server's answer until a deadline.
///
/// # Errors
/// The failure of the work; a failure with `Unavailable` after the deadline.
pub async fn within<T>(work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    connect::within(work).await
}
