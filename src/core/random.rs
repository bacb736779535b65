//! Random numbers that need not be secret.

use std::hash::{BuildHasher, RandomState};

/// Returns a random number, cheaply: no lock and no system call after the first one of a thread.
///
/// The randomness is that of hash maps: each thread has keys from the system, and each number other
/// ones. Do not use it for secrets.
#[must_use]
pub fn random_u64() -> u64 {
    RandomState::new().hash_one(0_u8)
}
