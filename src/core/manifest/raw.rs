//! The manifest as deserialized from TOML, before validation.
//!
//! The comments of these keys are the tables of `docs/manifest.md`.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::{Metadata, Respect, Scope, SingleFlight};

/// Top of a manifest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    /// Two or more parts in lower case: `team.look_up`. The first part is the family.
    pub(super) name: Spanned<String>,
    /// `v1`, `v2` and so on. A caller without a version gets the highest.
    pub(super) version: Spanned<String>,
    /// Short name for people. Default: made from `name`.
    pub(super) title: Option<Spanned<String>>,
    /// What it does, for people and models: shown in every list of tools.
    pub(super) description: Spanned<String>,
    /// Whether calls change nothing. Only such a pack can be cached. Default `false`.
    #[serde(default)]
    pub(super) read_only: bool,
    /// Whether a call may delete or overwrite something. Default `true` for packs that write.
    pub(super) destructive: Option<Spanned<bool>>,
    /// Whether a second equal call changes nothing more. Default: as the HTTP method says, else
    /// `false`.
    pub(super) idempotent: Option<Spanned<bool>>,
    /// Whether it reaches systems outside this machine. Default `true`, for built-in packs `false`.
    pub(super) open_world: Option<bool>,
    /// Hints for the choice of a pack.
    #[serde(default)]
    pub(super) metadata: Metadata,
    /// What runs. Exactly one of `builtin`, `command`, `http` and `mcp`.
    pub(super) handler: Spanned<Handler>,
    /// JSON Schema of the input, or `{ file = "schema.json" }`. Default: anything.
    pub(super) input: Option<Spanned<toml::Value>>,
    /// JSON Schema of the output, or `{ file = "schema.json" }`. Default: anything.
    pub(super) output: Option<Spanned<toml::Value>>,
    /// Private folder with a sandbox for commands.
    pub(super) session: Option<SessionTable>,
    /// Names of at most 8 credentials that the handler may use; `{input}` placeholders are allowed.
    #[serde(default)]
    pub(super) credentials: Vec<Spanned<String>>,
    /// Whether a call becomes a job unless its caller waits. Default `false`.
    #[serde(default, rename = "async")]
    pub(super) asynchronous: bool,
    /// How its jobs run.
    pub(super) job: Option<Job>,
    /// When it runs by itself.
    pub(super) schedule: Option<Spanned<Schedule>>,
    /// Whether calls leave no audit row. Default `false`.
    #[serde(default)]
    pub(super) no_audit: bool,
    /// Files that the pack writes.
    pub(super) artifacts: Option<Artifacts>,
    /// Gate 2: how answers are cached, and what a write purges.
    pub(super) memory: Option<Spanned<Memory>>,
    /// Calls that `pack check` checks, and `pack check --run` runs.
    #[serde(default)]
    pub(super) examples: Vec<Spanned<Example>>,
}

/// `[handler]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Handler {
    /// Name of a function in the program. Only for packs in Rust.
    pub(super) builtin: Option<String>,
    /// Program and arguments. A program with a `/` is relative to the folder of the manifest.
    pub(super) command: Option<Spanned<Vec<String>>>,
    /// HTTP request.
    pub(super) http: Option<Spanned<super::http::Raw>>,
    /// Tool of an MCP server: `{ server = "files", tool = "read_text_file" }`.
    pub(super) mcp: Option<McpTool>,
    /// Variables for a `command`, besides `PATH`, `LANG` and `TZ`. Never secrets.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Time limit of a run. Default `30s`.
    pub(super) timeout: Option<Spanned<String>>,
}

/// `[handler.mcp]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct McpTool {
    /// Name of the server in `[[mcp.servers]]`.
    pub(super) server: Spanned<String>,
    /// Name of the tool, as the server lists it.
    pub(super) tool: Spanned<String>,
}

/// `[session]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionTable {
    /// Lifetime. Default `20m`.
    pub(super) timeout: Option<Spanned<String>>,
    /// Whether only a call that names a session has one. Default `false`.
    #[serde(default)]
    pub(super) optional: bool,
    /// Whether it outlives the call. Default `false`.
    #[serde(default)]
    pub(super) preserve: bool,
    /// Whether commands in it reach the network. Default `false`.
    #[serde(default)]
    pub(super) network: bool,
    /// Memory limit. Default: `[session]` of the configuration.
    pub(super) memory: Option<Spanned<String>>,
}

/// `[job]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Job {
    /// How often, at most 10, another server runs a job again whose server was lost or stopped.
    /// Needs `idempotent`. Default 0.
    pub(super) retry: Option<Spanned<u32>>,
}

/// `[schedule]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Schedule {
    /// Interval between two runs, counted from 1970: `1h` runs at each full hour. Either this or
    /// `cron`.
    pub(super) every: Option<Spanned<String>>,
    /// Minute, hour, day of the month, month and day of the week, in UTC: `0 3 * * *`. Either this
    /// or `every`.
    pub(super) cron: Option<Spanned<String>>,
    /// Input of each run. Default: an empty object.
    pub(super) input: Option<Spanned<toml::Value>>,
}

/// `[artifacts]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Artifacts {
    /// How long its files are kept. Default: `[artifacts] retention` of the configuration.
    pub(super) retention: Option<Spanned<String>>,
}

/// `[memory]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Memory {
    /// Whether answers are cached. Needs `read_only` and `ttl`. Default `false`.
    pub(super) cache: Option<Spanned<bool>>,
    /// How long an answer is fresh. `upstream`: as long as the upstream of an `http` or `mcp`
    /// handler says, at most `max_ttl`.
    pub(super) ttl: Option<Spanned<String>>,
    /// Limit of `ttl = "upstream"`. Default `24h`.
    pub(super) max_ttl: Option<Spanned<String>>,
    /// `upstream` or `none`: whether an upstream may forbid to store or share its answers. Default
    /// `upstream`.
    #[serde(default)]
    pub(super) respect: Respect,
    /// Category of the entries. Default `cache`.
    pub(super) category: Option<Spanned<String>>,
    /// Who shares an answer: `caller`, `session` or `shared` (all users of a tenant). Default
    /// `caller`.
    #[serde(default)]
    pub(super) scope: Scope,
    /// How long past `ttl` an answer is served while it is renewed. Default `0s`.
    pub(super) stale_while_revalidate: Option<Spanned<String>>,
    /// How long past `ttl` an answer is served if the handler fails or is late. Default `0s`.
    pub(super) stale_if_error: Option<Spanned<String>>,
    /// How long a call waits for the handler before it gets an answer that `stale_if_error` allows.
    /// Default `1s`.
    pub(super) stale_if_slow: Option<Spanned<String>>,
    /// How long errors of the handler are stored like answers, by code: `{ not_found = "30s" }`.
    /// Default: not at all.
    #[serde(default)]
    pub(super) errors: BTreeMap<String, Spanned<String>>,
    /// Whether calls renew an answer shortly before its end, the dearer the sooner. Default: with
    /// `stale_while_revalidate`.
    pub(super) early: Option<bool>,
    /// Part of `ttl`, from 0 to 1, by which each answer ends earlier, at random. Default 0.
    pub(super) ttl_jitter: Option<Spanned<f64>>,
    /// Whether the handler can confirm a stale answer, as with an `ETag`. Default `false`.
    #[serde(default)]
    pub(super) revalidate: bool,
    /// How long past `ttl` an answer can be confirmed. Default `24h`.
    pub(super) revalidate_for: Option<Spanned<String>>,
    /// At most 16 labels for purging; `{input}` placeholders are allowed: `city:{city}`. Stored in
    /// lower case.
    #[serde(default)]
    pub(super) tags: Vec<Spanned<String>>,
    /// Tags that a call of this writing pack purges.
    #[serde(default)]
    pub(super) invalidates: Vec<Spanned<String>>,
    /// Raise it to abandon all cached answers of the pack. Default 1.
    pub(super) epoch: Option<u32>,
    /// `process` or `cluster`: whether equal misses of all replicas run once. Default `process`.
    #[serde(default)]
    pub(super) single_flight: SingleFlight,
    /// Size limit of a stored answer, at most `64MiB`. Default `1MiB`.
    pub(super) max_bytes: Option<Spanned<String>>,
}

/// `[[examples]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Example {
    /// Input of the call.
    pub(super) input: toml::Value,
    /// JSON Schema that the answer must match, besides `[output]`.
    pub(super) output: Option<toml::Value>,
    /// What the example shows.
    pub(super) description: Option<String>,
}
