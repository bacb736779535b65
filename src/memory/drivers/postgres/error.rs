//! Maps PostgreSQL errors to store errors, and decides whether a transaction may be retried.
//!
//! Messages are the first line and the code of the server's error. Details are left out because
//! they can hold values.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use crate::error::StoreError;

/// A failure inside the driver.
#[derive(Debug)]
pub struct Failure {
    /// The error for the caller.
    pub error: StoreError,
    /// The possible reaction.
    pub remedy: Remedy,
}

/// Reaction to a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing.
    None,
    /// Roll back and retry: another transaction was in the way.
    Again,
    /// Retry over a new connection: this one is lost or unusable.
    Reconnect,
    /// Nothing, and the connection is unusable.
    Discard,
    /// Nothing, until an operator changes the URL or the rights of its user.
    Operator,
}

/// A result inside the driver.
pub type Outcome<T> = Result<T, Failure>;

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self {
            error,
            remedy: Remedy::None,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.as_db_error() {
            Some(db) => Self::of_server(db),
            None => Self {
                error: unavailable(with_causes(&error)),
                remedy: Remedy::Reconnect,
            },
        }
    }
}

impl Failure {
    /// Makes the failure of something that took too long; its connection is of no use any more.
    pub(super) fn timeout(what: &str) -> Self {
        Self {
            error: unavailable(format!("{what} took too long")),
            remedy: Remedy::Discard,
        }
    }

    /// Returns whether the connection must not be used again.
    pub(super) const fn is_of_connection(&self) -> bool {
        matches!(self.remedy, Remedy::Reconnect | Remedy::Discard)
    }

    /// Returns the failure of a statement that commits, after it was sent.
    ///
    /// If the connection is lost, it may have been committed: a retry could write twice.
    pub(super) fn after_commit(self) -> Self {
        if !self.is_of_connection() {
            return self;
        }
        Self {
            error: unavailable(format!(
                "whether the write was done is not known: {}",
                self.error
            )),
            remedy: Remedy::Discard,
        }
    }

    fn of_server(error: &DbError) -> Self {
        Self::of_code(error.code(), error.message())
    }

    fn of_code(code: &SqlState, message: &str) -> Self {
        let mut message = format!("{message} ({})", code.code());
        if is_of_pooler(code) {
            message.push_str(POOLER);
        }
        let remedy = match code.code().get(..2).unwrap_or_default() {
            _ if [
                SqlState::T_R_SERIALIZATION_FAILURE,
                SqlState::T_R_DEADLOCK_DETECTED,
            ]
            .contains(code) =>
            {
                Remedy::Again
            }
            // Shut down or starting; a server that became read-only after a failover; a statement
            // prepared before a change.
            "08" => Remedy::Reconnect,
            "57" if *code != SqlState::QUERY_CANCELED => Remedy::Reconnect,
            _ if [
                SqlState::READ_ONLY_SQL_TRANSACTION,
                SqlState::FEATURE_NOT_SUPPORTED,
            ]
            .contains(code) =>
            {
                Remedy::Reconnect
            }
            _ if is_of_pooler(code) => Remedy::Operator,
            "28" | "3D" => Remedy::Operator,
            _ if *code == SqlState::INSUFFICIENT_PRIVILEGE => Remedy::Operator,
            _ => Remedy::None,
        };
        let error = match code.code().get(..2).unwrap_or_default() {
            _ if remedy != Remedy::None => unavailable(message),
            // A missing table, a wrong type or a broken rule: the tables are not those that this
            // driver makes.
            "22" | "23" | "42" | "XX" => StoreError::Corrupt(message),
            _ => unavailable(message),
        };
        Self { error, remedy }
    }
}

/// Makes an [`StoreError::Unavailable`] of a text that holds no secret.
pub(super) const fn unavailable(message: String) -> StoreError {
    StoreError::Unavailable {
        message,
        source: None,
    }
}

/// Message for the operator if a connection pooler is in the way.
const POOLER: &str = ": this looks like a connection pooler in transaction mode (PgBouncer) that hides itself; set \
     memory.listen = \"off\", which uses no state of a session";

/// Returns whether a prepared statement is duplicate or missing.
///
/// Only a pooler that shares a connection causes that.
fn is_of_pooler(code: &SqlState) -> bool {
    [
        SqlState::DUPLICATE_PSTATEMENT,
        SqlState::INVALID_SQL_STATEMENT_NAME,
    ]
    .contains(code)
}

/// An error of the connection says little by itself: `error connecting to server`.
fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_pooler_is_reported_as_such() {
        for (code, message) in [
            ("42P05", "prepared statement \"s0\" already exists"),
            ("26000", "prepared statement \"s3\" does not exist"),
        ] {
            let failure = Failure::of_code(&SqlState::from_code(code), message);
            assert!(
                failure.error.is_temporary() && failure.remedy == Remedy::Operator,
                "{failure:?}"
            );
            let text = failure.error.to_string();
            assert!(
                text.contains("PgBouncer") && text.contains("memory.listen") && text.contains(code),
                "{text}"
            );
        }
        let damaged = Failure::of_code(&SqlState::UNDEFINED_TABLE, "relation does not exist");
        assert!(
            matches!(damaged.error, StoreError::Corrupt(_))
                && !damaged.error.to_string().contains("PgBouncer")
        );
    }
}
