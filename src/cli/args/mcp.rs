//! `helmdeck mcp`: serving over stdin and stdout, and the MCP servers whose tools become packs.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `helmdeck mcp`.
#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// What to do with the MCP servers of the configuration; serve if absent.
    #[command(subcommand)]
    pub(crate) command: Option<McpCommand>,
}

/// What to do with the MCP servers of the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Add an MCP server to the configuration file; its tools become packs mcp.<name>.<tool>
    #[command(after_help = "Examples:\n  \
        helmdeck mcp add files -- npx -y @modelcontextprotocol/server-filesystem ~/notes\n  \
        helmdeck mcp add tracker --url https://mcp.example.com/mcp --header 'Authorization=Bearer {credential:tracker}'\n\n\
        Values of --env and --header name their secrets: env:NAME for a variable of the environment, credential:NAME for a\n\
        credential. A token itself is refused.")]
    Add(McpAddArgs),
    /// Ask the MCP servers for their tools and say where each stands
    List,
    /// Remove an MCP server from the configuration file
    Remove {
        /// Its name
        name: String,
    },
}

/// `helmdeck mcp add`.
#[derive(Debug, Args)]
pub(crate) struct McpAddArgs {
    /// Its name: a-z, 0-9 and _
    pub(crate) name: String,
    /// The address of a server over HTTP
    #[arg(long, value_name = "URL", conflicts_with_all = ["command", "env", "cwd"], required_unless_present = "command")]
    pub(crate) url: Option<String>,
    /// A header of every request, as NAME=VALUE or "Name: value" (repeat for more)
    #[arg(long = "header", value_name = "NAME=VALUE", requires = "url", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// A variable of the program's environment (repeat for more)
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) env: Vec<(String, String)>,
    /// The program's working folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) cwd: Option<PathBuf>,
    /// Take only tools whose names fit; * stands for any characters (repeat for more)
    #[arg(long = "tool", value_name = "PATTERN")]
    pub(crate) tools: Vec<String>,
    /// Replace a server of this name
    #[arg(long)]
    pub(crate) force: bool,
    /// The program and its arguments, after --
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    // The text may hold a secret, so it is not repeated.
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

/// Reads a header: `NAME=VALUE`, or `Name: value` as curl has it. No name of a header holds either sign (RFC 9110, section 5.1).
fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(['=', ':']).ok_or("write NAME=VALUE or \"Name: value\"")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
