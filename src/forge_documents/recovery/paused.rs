//! The record of a pause: `.forge/.local/paused.json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::report::Report;
use helmdeck_forge_files::files::Document;
use helmdeck_forge_files::json::Members;
use helmdeck_forge_files::layout::PAUSED;
use helmdeck_forge_files::time::Time;

/// For how long a token works, in seconds.
pub const TOKEN_SECONDS: i64 = 900;

/// Why nothing may be changed: `.forge/.local/paused.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Paused {
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: Time,
    /// What the assessment found.
    pub report: Option<Report>,
    /// The token that may end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// Members this version does not know.
    #[serde(flatten)]
    pub other: Members,
}

/// A token, of which only the hash is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    /// The SHA-256 of the token, in hex.
    pub sha256: String,
    /// Until when it works.
    pub until: Time,
}

impl Token {
    /// Makes the record of a token.
    pub fn new(secret: &str, now: Time) -> Self {
        let until = jiff::Timestamp::from_second(now.0.as_second().saturating_add(TOKEN_SECONDS));
        Self {
            sha256: hash(secret),
            until: until.map_or(now, Time),
        }
    }

    /// Says whether this is the token, and is still valid.
    pub fn accepts(&self, secret: &str, now: Time) -> bool {
        // Hashes are compared, so the time it takes reveals nothing about the token.
        now <= self.until && self.sha256 == hash(secret)
    }
}

impl Document for Paused {
    const PATH: &'static str = PAUSED;

    fn skeleton() -> Self {
        Self::default()
    }
}

/// Returns the SHA-256 of a text, in hex.
#[must_use]
pub fn hash(text: &str) -> String {
    helmdeck_core::hex(&Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_works_for_a_quarter_of_an_hour_and_is_kept_as_a_hash() {
        let at = |text: &str| Time::parse(text).unwrap();
        let token = Token::new("secret", at("2025-12-24T12:00:00Z"));
        assert!(token.accepts("secret", at("2025-12-24T12:15:00Z")));
        assert!(!token.accepts("secret", at("2025-12-24T12:15:01Z")));
        assert!(!token.accepts("Secret", at("2025-12-24T12:00:00Z")));
        assert!(!token.accepts("", at("2025-12-24T12:00:00Z")));
        assert!(
            !serde_json::to_string(&token)
                .unwrap()
                .contains("\"secret\"")
        );
        // From `printf secret | sha256sum`.
        assert_eq!(
            token.sha256,
            "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
        );
    }
}
