//! The rows of the vault in the system database: sealed by whoever stores them, never opened here.
