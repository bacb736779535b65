//! Command line of `helmdeck init`.

use clap::{Args, ValueEnum};

/// `helmdeck init`.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Turn memory on: write a key file, and name it in the configuration
    #[arg(long, conflicts_with = "no_memory")]
    pub(crate) memory: bool,
    /// Leave memory off, without asking
    #[arg(long)]
    pub(crate) no_memory: bool,
    /// Only this MCP client
    #[arg(long, value_enum, value_name = "NAME")]
    pub(crate) client: Option<McpClient>,
    /// Add helmdeck to the client's configuration file
    #[arg(long, requires = "client")]
    pub(crate) write: bool,
    /// Replace an entry "helmdeck" that differs
    #[arg(long, requires = "write")]
    pub(crate) force: bool,
}

/// MCP client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum McpClient {
    /// Claude Code
    ClaudeCode,
    /// Claude Desktop
    ClaudeDesktop,
    /// Cursor
    Cursor,
    /// Visual Studio Code
    #[value(name = "vscode", alias = "vs-code")]
    VsCode,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
}
