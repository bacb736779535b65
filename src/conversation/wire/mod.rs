//! JSON forms of a conversation: rows, snapshots, transports.
//!
//! Rows and snapshots have the JSON of the Go original, byte for byte as `encoding/json` writes it:
//! no white space, keys in a fixed order, `<`, `>`, `&`, U+2028 and U+2029 escaped. A snapshot of
//! the original can be restored and exported again unchanged:
//!
//! ```text
//! {"strategy":"rolling_summary","turns":[{"UserMessage":"..","AssistantResponse":"..","TrajectoryDigest":null,
//!  "ArtifactsShown":null,"ArtifactsHiddenRefs":null,"Timestamp":"2026-11-22T16:00:00.000000001Z"}],"summary":".."}
//! ```
//!
//! - Left out if empty: `turns`, `summary`, `opening`, `pinned`. Everything else is always written.
//! - A digest has the keys `ToolsInvoked`, `ObservationsSummary`, `ReasoningSummary`,
//!   `ArtifactsRefs`.
//! - `ArtifactsShown` and members that this version does not know keep their text; the latter
//!   follow the known ones, by name.
//! - What comes out is what the original writes for the same values, so another spelling of a text
//!   (`\/`, `\u0041`) is not kept.
//!
//! Reading is strict: one document, no key twice, no wrong type, bounded depth. An error names the
//! path and never the text.
//!
//! The transports have their own, snake-case form, and no members that this version does not know:
//! see
//! [`TransportTurn`].

mod format;
mod json_path;
mod read;
mod transport;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use format::escape_into;
pub use read::{read_record, read_turn};
pub(crate) use transport::TransportDigest;
pub use transport::TransportTurn;
pub(crate) use write::raw;
pub use write::{write_record, write_turn};

/// The keys of a record, a turn and a digest.
mod keys {
    pub(super) const RECORD: [&str; 5] = ["strategy", "turns", "summary", "opening", "pinned"];
    pub(super) const TURN: [&str; 6] = [
        "UserMessage",
        "AssistantResponse",
        "TrajectoryDigest",
        "ArtifactsShown",
        "ArtifactsHiddenRefs",
        "Timestamp",
    ];
    pub(super) const DIGEST: [&str; 4] = [
        "ToolsInvoked",
        "ObservationsSummary",
        "ReasoningSummary",
        "ArtifactsRefs",
    ];
}

/// Maximum nesting of the values of `ArtifactsShown` and of unknown members.
///
/// Well under the 128 levels at which readers of the enclosing documents give up.
pub(crate) const MAX_DEPTH: usize = 100;

/// Maximum number of unknown members of an object.
pub(crate) const MAX_OTHER: usize = 256;

/// Returns whether JSON text is nested at most [`MAX_DEPTH`] deep.
pub(crate) fn is_shallow(json: &str) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return false;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    true
}
