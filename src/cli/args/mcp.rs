//! Command line of `helmdeck mcp`: serving over stdio, and the MCP servers whose tools become
//! packs.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `helmdeck mcp`.
#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// Subcommand; serves over stdio if absent.
    #[command(subcommand)]
    pub(crate) command: Option<McpCommand>,
}

/// `helmdeck mcp` subcommands: manage the configured MCP servers.
#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Add an MCP server to the configuration; its tools become packs mcp.<name>.<tool>
    #[command(after_help = "Examples:\n  \
        helmdeck mcp add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes\n  \
        helmdeck mcp add tracker --url https://mcp.example.com/mcp --header 'Authorization=Bearer {credential:tracker}'\n\n\
        In --env and --header, refer to secrets by name: env:NAME for an environment variable, credential:NAME for a\n\
        credential. A literal token is rejected.")]
    Add(McpAddArgs),
    /// List the MCP servers with their status and tools
    List,
    /// Remove an MCP server from the configuration
    Remove {
        /// Server name
        name: String,
    },
}

/// `helmdeck mcp add`.
#[derive(Debug, Args)]
pub(crate) struct McpAddArgs {
    /// Server name: a-z, 0-9 and _
    pub(crate) name: String,
    /// URL of an HTTP server
    #[arg(long, value_name = "URL", conflicts_with_all = ["command", "env", "cwd"], required_unless_present = "command")]
    pub(crate) url: Option<String>,
    /// Header of every request, as NAME=VALUE or "Name: value" (repeatable)
    #[arg(long = "header", value_name = "NAME=VALUE", requires = "url", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// Environment variable of the program (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) env: Vec<(String, String)>,
    /// Working folder of the program
    #[arg(long, value_name = "FOLDER")]
    pub(crate) cwd: Option<PathBuf>,
    /// Only tools whose names match; * matches any characters (repeatable)
    #[arg(long = "tool", value_name = "PATTERN")]
    pub(crate) tools: Vec<String>,
    /// Replace an existing server of this name
    #[arg(long)]
    pub(crate) force: bool,
    /// Program and its arguments, after --
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    // The text may contain a secret, so the error does not repeat it.
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

/// Parses a header: `NAME=VALUE`, or `Name: value` as in curl. A header name contains neither sign
/// (RFC 9110, section 5.1).
fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once(['=', ':'])
        .ok_or("write NAME=VALUE or \"Name: value\"")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
