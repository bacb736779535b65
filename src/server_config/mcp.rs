//! Settings of the MCP transport.

use std::time::Duration;

use helmdeck_core::duration::text;
use serde::{Deserialize, Serialize};

/// The settings of `[mcp]` that concern the server; durations are written as text (`"30m"`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpConfig {
    /// What continues a session of a revision before 2026-07-28; `auto` by default.
    pub sessions: SessionMode,
    /// How long a stateless session lasts; 24 h by default. Its client begins a new one then.
    #[serde(with = "text")]
    pub session_lifetime: Duration,
    /// Limit of open sessions of all callers; 256 by default.
    ///
    /// Sessions over the limit are answered `overloaded`.
    pub sessions_max: usize,
    /// Limit of open sessions per caller; 64 by default.
    ///
    /// One more closes the session that was idle longest. All clients without a token are one
    /// caller. Over the limit that caller is answered `overloaded`.
    pub sessions_per_caller: usize,
    /// How long a session may be idle before it is closed; 30 min by default.
    #[serde(with = "text")]
    pub session_idle: Duration,
    /// Interval of keep-alives on an open stream; 15 s by default.
    #[serde(with = "text")]
    pub keep_alive: Duration,
    /// Page size of lists: tools or resources per page; 200 by default.
    pub page_size: usize,
    /// Families of packs of which every pack is listed as a tool; none by default.
    ///
    /// A large family, such as `forge`, lists a few of its packs otherwise. All can be called.
    pub families: Vec<String>,
}

/// Which server can continue an MCP session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionMode {
    /// `stateless` if the memory store is PostgreSQL, else `local`.
    #[default]
    Auto,
    /// Every server with the same memory key: the session id contains the session, sealed.
    Stateless,
    /// Only the server that began it, until it restarts.
    Local,
}

impl Default for McpConfig {
    fn default() -> Self {
        Self {
            sessions: SessionMode::Auto,
            session_lifetime: Duration::from_secs(24 * 60 * 60),
            sessions_max: 256,
            sessions_per_caller: 64,
            session_idle: Duration::from_secs(30 * 60),
            keep_alive: Duration::from_secs(15),
            page_size: 200,
            families: Vec::new(),
        }
    }
}

impl McpConfig {
    /// Checks the settings.
    ///
    /// # Errors
    /// A message that names the setting, what is wrong with it and what to do.
    pub fn validate(&self) -> Result<(), String> {
        for (name, value) in [
            ("sessions_max", self.sessions_max),
            ("sessions_per_caller", self.sessions_per_caller),
            ("page_size", self.page_size),
        ] {
            if value == 0 {
                return Err(format!(
                    "mcp.{name} is 0: no client could be served; give at least 1"
                ));
            }
        }
        for (name, value) in [
            ("session_idle", self.session_idle),
            ("session_lifetime", self.session_lifetime),
            ("keep_alive", self.keep_alive),
        ] {
            if value < Duration::from_secs(1) {
                return Err(format!("mcp.{name} is under 1s; give for example \"30s\""));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_zero_limits_are_refused() {
        McpConfig::default().validate().unwrap();
        let text = serde_json::to_string(&McpConfig::default()).unwrap();
        assert_eq!(
            serde_json::from_str::<McpConfig>(&text).unwrap(),
            McpConfig::default()
        );
        for broken in [
            McpConfig {
                sessions_max: 0,
                ..McpConfig::default()
            },
            McpConfig {
                page_size: 0,
                ..McpConfig::default()
            },
            McpConfig {
                session_idle: Duration::ZERO,
                ..McpConfig::default()
            },
            McpConfig {
                session_lifetime: Duration::ZERO,
                ..McpConfig::default()
            },
        ] {
            assert!(
                broken.validate().unwrap_err().starts_with("mcp."),
                "{broken:?}"
            );
        }
    }
}
