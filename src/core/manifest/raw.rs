//! The manifest as deserialized from TOML, before validation.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::{Metadata, Scope, SingleFlight};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) name: Spanned<String>,
    pub(super) version: Spanned<String>,
    pub(super) title: Option<Spanned<String>>,
    pub(super) description: Spanned<String>,
    #[serde(default)]
    pub(super) read_only: bool,
    pub(super) destructive: Option<Spanned<bool>>,
    pub(super) idempotent: Option<Spanned<bool>>,
    pub(super) open_world: Option<bool>,
    #[serde(default)]
    pub(super) metadata: Metadata,
    pub(super) handler: Spanned<Handler>,
    pub(super) input: Option<Spanned<toml::Value>>,
    pub(super) output: Option<Spanned<toml::Value>>,
    pub(super) session: Option<Session>,
    #[serde(default)]
    pub(super) credentials: Vec<Spanned<String>>,
    #[serde(default, rename = "async")]
    pub(super) asynchronous: bool,
    #[serde(default)]
    pub(super) no_audit: bool,
    pub(super) artifacts: Option<Artifacts>,
    pub(super) memory: Option<Spanned<Memory>>,
    #[serde(default)]
    pub(super) examples: Vec<Spanned<Example>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Handler {
    pub(super) builtin: Option<String>,
    pub(super) command: Option<Spanned<Vec<String>>>,
    pub(super) http: Option<Spanned<super::http::Raw>>,
    pub(super) mcp: Option<McpTool>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    pub(super) timeout: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct McpTool {
    pub(super) server: Spanned<String>,
    pub(super) tool: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Session {
    pub(super) timeout: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) optional: bool,
    #[serde(default)]
    pub(super) preserve: bool,
    #[serde(default)]
    pub(super) network: bool,
    pub(super) memory: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Artifacts {
    pub(super) retention: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Memory {
    pub(super) cache: Option<Spanned<bool>>,
    pub(super) ttl: Option<Spanned<String>>,
    pub(super) category: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) scope: Scope,
    pub(super) stale_while_revalidate: Option<Spanned<String>>,
    pub(super) stale_if_error: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) revalidate: bool,
    pub(super) revalidate_for: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) tags: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) invalidates: Vec<Spanned<String>>,
    pub(super) epoch: Option<u32>,
    #[serde(default)]
    pub(super) single_flight: SingleFlight,
    pub(super) max_bytes: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Example {
    pub(super) input: toml::Value,
    pub(super) output: Option<toml::Value>,
    pub(super) description: Option<String>,
}
