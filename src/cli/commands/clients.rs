//! MCP clients on this machine: where each keeps its servers, and how it starts helmdeck.

use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use helmdeck_core::text::shell_quoted;
use serde_json::{Value, json};

use super::client_file::{self, ENTRY, Edit, Launch};
use crate::args::McpClient;
use crate::env::ProcessEnvironment;
use crate::exit::{Exit, Failure, Result};
use crate::write_file;

/// A client and its configuration file.
#[derive(Debug)]
pub(super) struct ClientFile {
    client: McpClient,
    /// The file of the user's servers, which need not exist.
    pub(super) file: PathBuf,
    /// Whether the client was used on this machine.
    pub(super) found: bool,
}

/// State of the client's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum EntryState {
    /// The file has the entry.
    Present,
    /// The file has another entry with that name.
    Differs,
    /// The file has no entry, or cannot be read.
    Absent,
    /// The entry was just added.
    Added,
}

impl EntryState {
    /// Returns the name in JSON.
    pub(super) fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Returns all clients, or the one that is asked for. Nothing without a home folder.
pub(super) fn places(env: &ProcessEnvironment, only: Option<McpClient>) -> Vec<ClientFile> {
    let wanted = |client: &&McpClient| only.is_none_or(|only| only == **client);
    McpClient::value_variants()
        .iter()
        .filter(wanted)
        .filter_map(|client| place(*client, env))
        .collect()
}

fn place(client: McpClient, env: &ProcessEnvironment) -> Option<ClientFile> {
    let home = env.path("HOME").filter(|home| home.is_absolute())?;
    let absolute = |name: &str| env.path(name).filter(|path| path.is_absolute());
    let applications = match cfg!(target_os = "macos") {
        true => home.join("Library/Application Support"),
        false => absolute("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")),
    };
    let (folder, file) = match client {
        McpClient::ClaudeCode => (home.join(".claude"), home.join(".claude.json")),
        McpClient::ClaudeDesktop => {
            within(applications.join("Claude"), "claude_desktop_config.json")
        }
        McpClient::Cursor => within(home.join(".cursor"), "mcp.json"),
        McpClient::VsCode => within(applications.join("Code/User"), "mcp.json"),
        McpClient::Codex => within(
            absolute("CODEX_HOME").unwrap_or_else(|| home.join(".codex")),
            "config.toml",
        ),
        McpClient::Gemini => within(home.join(".gemini"), "settings.json"),
    };
    let found = folder.exists() || file.exists();
    Some(ClientFile {
        client,
        file,
        found,
    })
}

fn within(folder: PathBuf, name: &str) -> (PathBuf, PathBuf) {
    let file = folder.join(name);
    (folder, file)
}

impl ClientFile {
    /// Returns the client's name.
    pub(super) const fn title(&self) -> &'static str {
        match self.client {
            McpClient::ClaudeCode => "Claude Code",
            McpClient::ClaudeDesktop => "Claude Desktop",
            McpClient::Cursor => "Cursor",
            McpClient::VsCode => "VS Code",
            McpClient::Codex => "Codex",
            McpClient::Gemini => "Gemini CLI",
        }
    }

    /// Returns the client's name on the command line.
    pub(super) fn name(&self) -> String {
        self.client
            .to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }

    const fn member(&self) -> &'static str {
        if matches!(self.client, McpClient::VsCode) {
            "servers"
        } else {
            "mcpServers"
        }
    }

    fn entry(&self, launch: &Launch) -> Value {
        launch.entry(matches!(
            self.client,
            McpClient::ClaudeCode | McpClient::VsCode
        ))
    }

    /// Returns what adds helmdeck by hand: a command, or text for the file.
    pub(super) fn by_hand(&self, launch: &Launch) -> String {
        let words: Vec<String> = std::iter::once(&launch.program)
            .chain(&launch.arguments)
            .map(|word| shell_quoted(word))
            .collect();
        let words = words.join(" ");
        match self.client {
            McpClient::ClaudeCode => format!("claude mcp add --scope user {ENTRY} -- {words}"),
            McpClient::Codex => format!("codex mcp add {ENTRY} -- {words}"),
            McpClient::VsCode => {
                let mut entry = launch.entry(false);
                entry["name"] = ENTRY.into();
                format!("code --add-mcp {}", shell_quoted(&entry.to_string()))
            }
            _ => json!({self.member(): {ENTRY: self.entry(launch)}}).to_string(),
        }
    }

    fn edit(&self, launch: &Launch, force: bool) -> std::result::Result<Edit, String> {
        let text = match std::fs::read_to_string(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error.to_string()),
        };
        match self.client {
            McpClient::Codex => client_file::toml(&text, launch, force),
            _ => client_file::json(&text, self.member(), &self.entry(launch), force),
        }
    }

    /// Says whether the file has the entry.
    pub(super) fn state(&self, launch: &Launch) -> EntryState {
        match self.edit(launch, false) {
            Ok(Edit::Same) => EntryState::Present,
            Ok(Edit::Differs) => EntryState::Differs,
            Ok(Edit::Text(_)) | Err(_) => EntryState::Absent,
        }
    }

    /// Adds the entry to the file.
    ///
    /// # Errors
    /// A failure if another entry has that name and `force` is not set, if the file cannot be
    /// edited without loss, or if it cannot be written. The file is then unchanged.
    pub(super) fn add(&self, launch: &Launch, force: bool) -> Result<EntryState> {
        let file = self.file.display();
        let text = match self.edit(launch, force) {
            Ok(Edit::Same) => return Ok(EntryState::Present),
            Ok(Edit::Text(text)) => text,
            Ok(Edit::Differs) => {
                return Err(Failure::new(
                    Exit::Refused,
                    format!("{file} has another entry \"{ENTRY}\"; it was not changed"),
                )
                .with_hint("replace it with --force"));
            }
            Err(reason) => {
                return Err(Failure::new(
                    Exit::Refused,
                    format!("{file} was not changed: {reason}"),
                )
                .with_hint(format!("add this yourself: {}", self.by_hand(launch))));
            }
        };
        write_file::replace(&self.file, text.as_bytes()).map_err(|error| {
            Failure::new(Exit::Failed, format!("{file} cannot be written: {error}"))
        })?;
        Ok(EntryState::Added)
    }
}

/// Returns how a client starts this program, with the configuration file that the user named.
pub(super) fn launch(env: &ProcessEnvironment, named: Option<&Path>) -> Launch {
    let program = env
        .program()
        .map_or_else(|| "helmdeck".to_owned(), |path| path.display().to_string());
    let mut arguments: Vec<String> = Vec::new();
    if let Some(path) = named {
        arguments.extend(["--config".to_owned(), path.display().to_string()]);
    }
    arguments.push("mcp".to_owned());
    Launch { program, arguments }
}
