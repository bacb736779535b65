//! Rows of the vault in the system database: sealed by the vault, never opened here.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::Timestamp;
use helmdeck_memory::{Result, StoreError};
use parking_lot::Mutex;

use crate::system::System;

/// How long a row of the use log is kept after its last use.
pub const USES_KEPT: Duration = Duration::from_secs(400 * 24 * 3600);

/// Stored credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultRow {
    /// Its name.
    pub name: String,
    /// Changes with the secret.
    pub version: u64,
    /// The id of the key that sealed it.
    pub key_id: String,
    /// All other data, sealed.
    pub sealed: Vec<u8>,
    /// Creation time.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

/// State of the whole vault.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VaultState {
    /// Grows with every change.
    pub generation: u64,
    /// The id of the key that the vault belongs to, `None` before the first change.
    pub key_id: Option<String>,
    /// What the vault says about its rows as a whole, sealed; `None` if it was never written.
    pub head: Option<Vec<u8>>,
}

/// Changes to rows.
#[derive(Debug, Default)]
pub struct VaultChange {
    /// The key that the vault belongs to from now on.
    pub key_id: Option<String>,
    /// The head from now on; `None` = as it is.
    pub head: Option<Vec<u8>>,
    /// Rows to write.
    pub put: Vec<VaultRow>,
    /// Names of rows to delete.
    pub remove: Vec<String>,
}

/// Uses of a credential by a caller and pack on one day, or the number to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultUse {
    /// The credential.
    pub name: String,
    /// The caller's tenant.
    pub tenant: String,
    /// The caller's user.
    pub subject: String,
    /// The pack.
    pub pack: String,
    /// The day: days since 1970-01-01, UTC.
    pub day: i64,
    /// Number of grants.
    pub granted: u64,
    /// Number of refusals.
    pub refused: u64,
    /// Time of the last use.
    pub last_at: Timestamp,
}

impl System {
    /// Returns a number that grows with every change of the vault; 0 without a vault.
    ///
    /// It reads one row and creates no database.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn vault_generation(&self) -> Result<u64> {
        self.driver().vault_generation().await
    }

    /// Returns the vault as it is at one moment: its state, and all rows by name. Creates no
    /// database.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn vault(&self) -> Result<(VaultState, Vec<VaultRow>)> {
        self.driver().vault().await
    }

    /// Changes the vault in one transaction.
    ///
    /// `decide` gets state and rows, and returns the change and an answer. SQLite overwrites the
    /// bytes of deleted and replaced rows. Without `make` a missing database stays missing, and
    /// `decide` is not called.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`. Then nothing was changed, unless the connection was lost in the
    /// middle.
    pub async fn change_vault<T: Send + 'static>(
        &self,
        make: bool,
        decide: impl FnOnce(&VaultState, Vec<VaultRow>) -> (Option<VaultChange>, T) + Send + 'static,
    ) -> Result<Option<T>> {
        if !make && !self.exists().await? {
            return Ok(None);
        }
        let answer = Arc::new(Mutex::new(None));
        let place = Arc::clone(&answer);
        let decide = Box::new(move |state: &VaultState, rows: Vec<VaultRow>| {
            let (change, answer) = decide(state, rows);
            *place.lock() = Some(answer);
            change
        });
        self.driver().change_vault(decide).await?;
        let answer = answer.lock().take();
        // A driver that succeeds has called it.
        answer.map(Some).ok_or(StoreError::Closed)
    }

    /// Adds to the use log.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn add_vault_uses(&self, uses: Vec<VaultUse>) -> Result<()> {
        if uses.is_empty() {
            return Ok(());
        }
        self.driver().add_vault_uses(uses).await
    }

    /// Deletes the use log of a caller, and returns how many rows. Creates no database.
    ///
    /// SQLite overwrites the bytes, and empties the log unless a reader prevents it.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn forget_vault_uses(&self, tenant: &str, subject: &str) -> Result<u64> {
        self.driver()
            .forget_vault_uses(tenant.to_owned(), subject.to_owned())
            .await
    }

    /// Returns the use log, of one credential or of all, the latest first. Creates no database.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn vault_uses(&self, name: Option<String>, limit: usize) -> Result<Vec<VaultUse>> {
        self.vault_uses_of(name, None, limit).await
    }

    /// Returns the use log as [`System::vault_uses`], of one caller (tenant and user) or of all.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn vault_uses_of(
        &self,
        name: Option<String>,
        caller: Option<(String, String)>,
        limit: usize,
    ) -> Result<Vec<VaultUse>> {
        self.driver().vault_uses(name, caller, limit).await
    }
}
