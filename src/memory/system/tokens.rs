//! API tokens in the system database.
