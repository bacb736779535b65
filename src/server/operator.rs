//! What operators act on beside the engine: tokens, the vault, the key of the store, the settings.

use std::fmt;
use std::sync::Arc;

use helmdeck_core::{Code, Error};
#[cfg(feature = "ui")]
use helmdeck_memory::Namespace;
use helmdeck_memory::{KeyRing, StoreError};
use helmdeck_system::System;
use helmdeck_vault::{Book, VaultError};
use serde_json::Value;

use crate::problem::Problem;

/// Parts of a deployment that the routes for operators show and change. Cheap to clone.
#[derive(Clone, Default)]
pub struct Operator {
    /// The system database: API tokens, the vault's use log, counters.
    pub system: Option<System>,
    /// The credentials, with the vault's keys; `None` = there is no vault.
    pub vault: Option<Book>,
    /// The keys of the memory store, for its rotation.
    pub keyring: Option<Arc<KeyRing>>,
    /// Returns every setting by name, as `{value, origin}`, without secrets.
    pub settings: Option<Arc<dyn Fn() -> Value + Send + Sync>>,
    /// Version of the program.
    pub version: &'static str,
    /// Whether the server accepts API tokens.
    pub api_tokens: bool,
    /// Whether callers with a JSON Web Token may create API tokens.
    pub tokens_by_jwt: bool,
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl Operator {
    /// Returns a key for the tokens of forms. Servers with the same memory key have the same one.
    #[cfg(feature = "ui")]
    pub(crate) fn form_key(&self) -> Option<[u8; 32]> {
        let everybody = Namespace::new("", "", None);
        self.keyring
            .as_ref()
            .map(|ring| ring.mac(&everybody, "ui/forms", &[]))
    }

    /// Returns the system database, or the error of a server without a data folder.
    pub(crate) fn system(&self) -> Result<&System, Problem> {
        let message = "this server has no data folder, so it keeps no tokens; set data_dir";
        self.system
            .as_ref()
            .ok_or_else(|| Problem::new(Code::NotFound, message))
    }

    /// Returns the credentials, or the error of a server without a vault.
    pub(crate) fn vault(&self) -> Result<&Book, Problem> {
        let message = "there is no vault: no vault key is set (HELMDECK_VAULT_KEY or HELMDECK_VAULT_KEY_FILE)";
        self.vault
            .as_ref()
            .ok_or_else(|| Problem::new(Code::NotFound, message))
    }
}

/// Makes the error of a failure of the system database. Its text stays in the log.
pub(crate) fn system_error(error: StoreError) -> Error {
    Error::new(
        Code::Overloaded,
        "the system database is not available; try again",
    )
    .with_source(error)
}

/// Makes the error of a failure of the vault.
pub(crate) fn vault_error(error: VaultError) -> Error {
    match error {
        VaultError::Store(error) => system_error(error),
        VaultError::Missing(_) => Error::new(Code::NotFound, error.to_string()),
        VaultError::Invalid(_) | VaultError::Refused(_) => {
            Error::new(Code::InvalidInput, error.to_string())
        }
        _ => Error::new(Code::Conflict, error.to_string()),
    }
}
