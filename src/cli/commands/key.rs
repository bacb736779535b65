//! `helmdeck key`: generates a key for memory or vault, or validates the memory key.
//!
//! It never prints the memory key.

use helmdeck_memory::MemoryKey;
use serde_json::json;

use crate::env::ProcessEnvironment;
use crate::exit::{Exit, Failure, Result};
use crate::gate;
use crate::output::Output;
use crate::{auth, s3, secret_file};

/// Prints a new key.
///
/// # Errors
/// A failure if the system provides no randomness.
pub(crate) fn generate(output: &Output) -> Result<()> {
    let key = MemoryKey::generate()?;
    output.text(key.expose())
}

/// Validates the key in the environment.
///
/// # Errors
/// A configuration failure if it is malformed; exit 3 if there is none.
pub(crate) fn check(env: &ProcessEnvironment, output: &Output) -> Result<()> {
    let Some(ring) = gate::key_ring(env)? else {
        return Err(Failure::new(Exit::Absent, "no memory key is set, so memory is off").with_hint(format!(
            "`helmdeck key generate` makes a key; put it in {} or in a file named by {}",
            gate::KEY,
            gate::KEY_FILE
        )));
    };
    for path in secret_file::exposed(env, &[auth::SECRET_FILE, s3::SECRET_FILE]) {
        output
            .note(&format!("warning: others than its owner can read the secret file {}; chmod 600 it", path.display()));
    }
    let previous: Vec<&str> = ring.ids().skip(1).collect();
    let value = json!({"key_id": ring.current_id(), "previous_key_ids": previous});
    output.either(&value, || {
        let mut text = format!("the memory key is well-formed; its id is {}", ring.current_id());
        if !previous.is_empty() {
            text.push_str(&format!("\nprevious keys: {}", previous.join(", ")));
        }
        text
    })
}
