//! Settings of one MCP server. The command line reads them from `[[mcp.servers]]`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use helmdeck_core::caller::Glob;
use helmdeck_core::leaks;
use helmdeck_core::{Code, Error, Result, Secret};
use sha2::{Digest, Sha256};
use url::Url;

/// Settings of one MCP server: transport, imported tools, and limits.
#[derive(Debug, Clone)]
pub struct McpServer {
    /// Its name, `^[a-z0-9_]+$`: its tools are the packs `mcp.<name>.<tool>`.
    pub name: String,
    /// Its transport.
    pub reach: McpReach,
    /// Timeout of a call of an imported tool. A manifest that names a tool has its own timeout.
    pub timeout: Duration,
    /// Timeout of start, handshake and list of tools together.
    pub start_timeout: Duration,
    /// Idle time after which it is stopped. The next call starts it again.
    pub idle_timeout: Duration,
    /// Which tools are imported, by their own names.
    pub tools: Vec<Glob>,
    /// Whether to trust the server when it marks a tool as read-only. The default is no.
    ///
    /// Annotations of a server are untrusted (MCP 2025-11-25, "Tool Annotations").
    pub read_only_trust: bool,
    /// Size limit of an answer, in bytes.
    pub max_output_bytes: u64,
}

/// Transport of an MCP server.
#[derive(Debug, Clone)]
pub enum McpReach {
    /// A program with MCP over its stdin and stdout.
    Command {
        /// The program and its arguments.
        ///
        /// A program without a `/` is looked up in the search path of `[commands]`.
        argv: Vec<String>,
        /// Its working folder; that of this process if absent.
        cwd: Option<PathBuf>,
        /// Variables added to its short environment.
        env: BTreeMap<String, McpValue>,
    },
    /// A server over streamable HTTP.
    Http {
        /// Its address. Exactly this host and port are allowed, even if private.
        url: Url,
        /// Headers of every request.
        headers: BTreeMap<String, McpValue>,
    },
}

/// Text that can contain secrets.
///
/// `{credential:NAME}` is replaced by a credential, `{env:NAME}` by an environment variable. A
/// whole text of `credential:NAME` or `env:NAME` means the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpValue {
    /// The text as written in the settings.
    source: String,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    /// A variable, with its value if it was set when the program started.
    Variable(String, Option<Secret>),
    Credential(String),
}

impl PartialEq for Piece {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(a), Self::Text(b))
            | (Self::Variable(a, _), Self::Variable(b, _))
            | (Self::Credential(a), Self::Credential(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Piece {}

impl McpValue {
    /// Parses a value; `variable` looks up an environment variable.
    ///
    /// # Errors
    /// Why it is invalid, never with the value: an unclosed or unknown `{...}`, a variable of
    /// helmdeck itself, or a text that looks like a token (put it into a variable or the vault).
    pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut pieces = Vec::new();
        if text.starts_with("env:") || text.starts_with("credential:") {
            pieces.push(reference(text, &variable)?);
        } else {
            let mut rest = text;
            while let Some(start) = rest
                .find("{env:")
                .into_iter()
                .chain(rest.find("{credential:"))
                .min()
            {
                let end = rest[start..].find('}').ok_or("a \"{\" has no \"}\"")?;
                if start > 0 {
                    pieces.push(Piece::Text(rest[..start].to_owned()));
                }
                pieces.push(reference(&rest[start + 1..start + end], &variable)?);
                rest = &rest[start + end + 1..];
            }
            if !rest.is_empty() {
                pieces.push(Piece::Text(rest.to_owned()));
            }
        }
        if pieces
            .iter()
            .any(|piece| matches!(piece, Piece::Text(text) if leaks::has_leak(text.as_bytes())))
        {
            return Err(
                "the value looks like a token; name a variable (\"env:NAME\") or a credential \
                        (\"credential:NAME\") instead of writing it down"
                    .to_owned(),
            );
        }
        Ok(Self {
            source: text.to_owned(),
            pieces,
        })
    }

    /// Returns the text as written in the settings: names, never the secrets behind them.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns whether the text names a variable or a credential.
    #[must_use]
    pub fn is_reference(&self) -> bool {
        self.pieces
            .iter()
            .any(|piece| !matches!(piece, Piece::Text(_)))
    }

    fn credentials(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Credential(name) => Some(name.as_str()),
            Piece::Text(_) | Piece::Variable(..) => None,
        })
    }

    /// Returns the text with all values filled in, and the secrets that it contains.
    ///
    /// # Errors
    /// `credential_invalid` for an unset variable or a missing credential; `forbidden` for one that
    /// is not for this host.
    pub(crate) fn resolve(
        &self,
        host: Option<&str>,
        reveal: impl Fn(&str) -> Result<Secret>,
    ) -> Result<(String, Vec<Secret>)> {
        let (mut text, mut secrets) = (String::new(), Vec::new());
        for piece in &self.pieces {
            let secret = match piece {
                Piece::Text(part) => {
                    text.push_str(part);
                    continue;
                }
                Piece::Variable(name, value) => value.clone().ok_or_else(|| {
                    Error::new(
                        Code::CredentialInvalid,
                        format!("the variable {name} of the environment is not set"),
                    )
                })?,
                Piece::Credential(name) => reveal(name)?,
            };
            text.push_str(match host {
                Some(host) => secret.expose_for(host)?,
                None => secret.expose(),
            });
            secrets.push(secret);
        }
        Ok((text, secrets))
    }
}

impl fmt::Display for McpValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

fn reference(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Piece, String> {
    let (kind, name) = text.split_once(':').unwrap_or((text, ""));
    let name = name.trim();
    if name.is_empty() || name.contains(['=', '\0', '{']) || name.chars().any(char::is_whitespace) {
        return Err(format!(
            "\"{kind}:\" needs a name, like \"{kind}:GITHUB_TOKEN\""
        ));
    }
    if kind == "credential" {
        return Ok(Piece::Credential(name.to_owned()));
    }
    if name.starts_with("HELMDECK_") {
        return Err(format!("{name} is helmdeck's own; no MCP server gets it"));
    }
    let value = variable(name).filter(|value| !value.is_empty());
    Ok(Piece::Variable(name.to_owned(), value.map(Secret::new)))
}

impl McpServer {
    /// Returns the settings of a server, with defaults for the rest.
    ///
    /// The defaults: 60 s for a call and for starting, 10 minutes idle, all tools, no trust, 4 MiB.
    #[must_use]
    pub fn new(name: impl Into<String>, reach: McpReach) -> Self {
        Self {
            name: name.into(),
            reach,
            timeout: Duration::from_secs(60),
            start_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(600),
            tools: "*".parse().into_iter().collect(),
            read_only_trust: false,
            max_output_bytes: 4 << 20,
        }
    }

    /// Returns whether a tool is imported.
    #[must_use]
    pub fn takes(&self, tool: &str) -> bool {
        self.tools.iter().any(|glob| glob.matches(tool))
    }

    fn values(&self) -> impl Iterator<Item = (&str, &McpValue)> {
        let values = match &self.reach {
            McpReach::Command { env, .. } => env,
            McpReach::Http { headers, .. } => headers,
        };
        values.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns the names of its credentials, each once.
    #[must_use]
    pub fn credentials(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .values()
            .flat_map(|(_, value)| value.credentials().map(str::to_owned))
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns the digest of the server's identity: program or address, and its inputs.
    ///
    /// It includes the names of variables and credentials, not their values.
    pub(crate) fn digest(&self) -> Vec<u8> {
        let mut hash = Sha256::new();
        let mut add = |part: &str| {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        match &self.reach {
            McpReach::Command { argv, cwd, .. } => {
                add("command");
                argv.iter().for_each(|part| add(part));
                add(&cwd.as_deref().unwrap_or("".as_ref()).to_string_lossy());
            }
            McpReach::Http { url, .. } => {
                add("http");
                add(url.as_str());
            }
        }
        for (name, value) in self.values() {
            add(name);
            add(value.source());
        }
        hash.finalize().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<McpValue, String> {
        McpValue::parse(text, |name| {
            (name == "TOKEN").then(|| "canary-1234".to_owned())
        })
    }

    fn resolve(text: &str) -> Result<(String, Vec<Secret>)> {
        parse(text)
            .unwrap()
            .resolve(Some("host"), |name| Ok(Secret::new(format!("<{name}>"))))
    }

    #[test]
    fn references_are_filled_in_and_remembered() {
        for (text, expected, secrets) in [
            ("env:TOKEN", "canary-1234", 1),
            ("Bearer {credential:a-b}", "Bearer <a-b>", 1),
            ("{env:TOKEN}:{credential:x}!", "canary-1234:<x>!", 2),
            ("{\"json\": true}", "{\"json\": true}", 0),
            ("", "", 0),
        ] {
            let (filled, found) = resolve(text).unwrap();
            assert_eq!(
                (filled.as_str(), found.len()),
                (expected, secrets),
                "{text}"
            );
        }
        assert_eq!(
            resolve("env:OTHER").unwrap_err().code(),
            Code::CredentialInvalid
        );
        assert!(!format!("{:?}", parse("env:TOKEN")).contains("canary"));
    }

    #[test]
    fn a_credential_goes_to_its_host_only() {
        let only =
            |_: &str| Ok(Secret::new("canary".into()).for_hosts(["other".parse().unwrap()].into()));
        let error = parse("credential:x")
            .unwrap()
            .resolve(Some("host"), only)
            .unwrap_err();
        assert_eq!(error.code(), Code::Forbidden);
    }

    #[test]
    fn tokens_and_bad_references_are_refused_unrepeated() {
        let token = format!("Bearer ghp_{}", "a1".repeat(18));
        let message = parse(&token).unwrap_err();
        assert!(
            message.contains("looks like a token") && !message.contains("ghp_"),
            "{message}"
        );
        assert!(
            parse("env:HELMDECK_MEMORY_KEY")
                .unwrap_err()
                .contains("helmdeck's own")
        );
        for bad in ["env:", "credential: ", "a {env:X", "{credential:}"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
