//! `[[mcp.servers]]`: the MCP servers whose tools become packs.
//!
//! Errors name the line and never repeat a value that may be a secret.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use helmdeck_core::caller::Glob;
use helmdeck_core::duration::{parse_duration, parse_size};
use helmdeck_core::text;
use helmdeck_engine::{McpReach, McpServer, McpValue};
use serde::Deserialize;
use toml::Spanned;

use super::origin::{Origin, Problem};
use crate::env::ProcessEnvironment;
use helmdeck_core::suggest::did_you_mean;

/// Key of the servers among the settings.
pub(crate) const KEY: &[&str] = &["mcp", "servers"];

/// Limit of a server's name, in bytes; the names of its tools come after it.
const MAX_NAME_BYTES: usize = 40;

/// Headers that the protocol sets by itself, or that are about the connection.
const RESERVED_HEADERS: &[&str] = &[
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

/// Words in names of variables and headers whose values are secrets.
const SECRET_NAMES: &[&str] = &[
    "token",
    "secret",
    "password",
    "passwd",
    "api_key",
    "api-key",
    "apikey",
    "authorization",
    "credential",
];

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    mcp: Mcp,
}

#[derive(Deserialize, Default)]
struct Mcp {
    #[serde(default)]
    servers: Vec<Spanned<Raw>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: Spanned<String>,
    command: Option<Spanned<Vec<String>>>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<Spanned<String>, Spanned<String>>,
    url: Option<Spanned<String>>,
    #[serde(default)]
    headers: BTreeMap<Spanned<String>, Spanned<String>>,
    timeout: Option<Spanned<String>>,
    start_timeout: Option<Spanned<String>>,
    idle_timeout: Option<Spanned<String>>,
    tools: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    read_only_trust: bool,
    max_output_bytes: Option<Spanned<Size>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Size {
    Bytes(u64),
    Text(String),
}

/// Reads the servers of a configuration file.
///
/// # Errors
/// The problems, each with its line. A file that is not TOML gives none: another check reports
/// that.
pub(crate) fn read(
    path: &Path,
    text: &str,
    env: &ProcessEnvironment,
) -> Result<Vec<McpServer>, Vec<Problem>> {
    let reading = Reading { path, text, env };
    if toml::de::DeTable::parse(text).is_err() {
        return Ok(Vec::new());
    }
    let file: File = toml::from_str(text).map_err(|error| {
        vec![Problem::new(
            reading.origin(error.span().unwrap_or_default()),
            explain(error.message()),
        )]
    })?;
    let (mut servers, mut problems) = (Vec::<McpServer>::new(), Vec::new());
    for raw in &file.mcp.servers {
        match reading.server(raw) {
            Ok(server) if servers.iter().any(|known| known.name == server.name) => {
                let message = format!("there are two MCP servers \"{}\"", server.name);
                problems.push(Problem::new(
                    reading.origin(raw.get_ref().name.span()),
                    message,
                ));
            }
            Ok(server) => servers.push(server),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() {
        Ok(servers)
    } else {
        Err(problems)
    }
}

/// Validates the name of a server.
///
/// # Errors
/// A message that names the text and the accepted form.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(fits) {
        return Ok(());
    }
    let shown = text::escaped(name, MAX_NAME_BYTES);
    Err(format!(
        "\"{shown}\" is not the name of a server; a name is made of a-z, 0-9 and _, at most {MAX_NAME_BYTES} bytes"
    ))
}

/// Says whether a variable or header holds a secret by its name.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|word| name.contains(word))
}

/// Validates the name of a variable of a server's environment.
///
/// # Errors
/// A message that names it.
pub(crate) fn check_variable(name: &str) -> Result<(), String> {
    if name.starts_with("HELMDECK_") || name.is_empty() || name.contains(['=', '\0']) {
        return Err(format!(
            "env \"{}\" cannot be set for an MCP server",
            name.escape_debug()
        ));
    }
    Ok(())
}

/// Validates the name of a header (RFC 9110, section 5.1).
///
/// # Errors
/// A message that names it.
pub(crate) fn check_header(name: &str) -> Result<(), String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(fits) {
        return Err(format!(
            "\"{}\" is not the name of a header",
            name.escape_debug()
        ));
    }
    if RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(format!("the header \"{name}\" is set by the protocol"));
    }
    Ok(())
}

/// Parses the address of a server.
///
/// # Errors
/// Why it is invalid, without repeating it: it may hold a password.
pub(crate) fn parse_url(text: &str) -> Result<url::Url, String> {
    let url: url::Url = text
        .parse()
        .map_err(|error| format!("url is not an address: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(
            "url must be an http or https address, like \"https://mcp.example.com/mcp\"".to_owned(),
        );
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "url must not hold a user or password; use headers with a credential".to_owned(),
        );
    }
    Ok(url)
}

/// Adds a suggestion to "unknown field" messages, and keeps values out of the others.
fn explain(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    if message.starts_with("unknown field") {
        let unknown = quoted.next().unwrap_or_default();
        return format!(
            "unknown key \"{unknown}\" of an MCP server{}",
            did_you_mean(unknown, quoted)
        );
    }
    match message.split_once(", expected ") {
        Some((_, expected)) => format!("mcp.servers: {expected} is expected here"),
        None => message.replace("missing field", "missing key of an MCP server:"),
    }
}

struct Reading<'a> {
    path: &'a Path,
    text: &'a str,
    env: &'a ProcessEnvironment,
}

impl Reading<'_> {
    fn origin(&self, span: Range<usize>) -> Origin {
        Origin::File {
            file: self.path.display().to_string(),
            line: text::line_of(self.text, span.start),
        }
    }

    fn fail(&self, span: Range<usize>, message: impl Into<String>) -> Problem {
        Problem::new(self.origin(span), message)
    }

    fn part<T, R>(
        &self,
        value: &Spanned<T>,
        read: impl FnOnce(&T) -> Result<R, String>,
    ) -> Result<R, Problem> {
        read(value.get_ref()).map_err(|message| self.fail(value.span(), message))
    }

    fn duration(
        &self,
        value: Option<&Spanned<String>>,
        default: Duration,
    ) -> Result<Duration, Problem> {
        let positive = |text: &String| match parse_duration(text)? {
            Duration::ZERO => Err("the duration is 0; nothing is that fast".to_owned()),
            duration => Ok(duration),
        };
        value.map_or(Ok(default), |value| self.part(value, positive))
    }

    fn values(
        &self,
        values: &BTreeMap<Spanned<String>, Spanned<String>>,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Result<BTreeMap<String, McpValue>, Problem> {
        values
            .iter()
            .map(|(name, value)| {
                self.part(name, |name| check(name))?;
                let variable = |name: &str| self.env.text(name).ok().flatten().map(str::to_owned);
                let value = self.part(value, |text| {
                    McpValue::parse(text, variable)
                        .map_err(|message| format!("{}: {message}", name.get_ref()))
                })?;
                Ok((name.get_ref().clone(), value))
            })
            .collect()
    }

    fn server(&self, raw: &Spanned<Raw>) -> Result<McpServer, Problem> {
        let (span, raw) = (raw.span(), raw.get_ref());
        self.part(&raw.name, |name| check_name(name))?;
        let mut server = McpServer::new(raw.name.get_ref(), self.reach(span, raw)?);
        server.timeout = self.duration(raw.timeout.as_ref(), server.timeout)?;
        server.start_timeout = self.duration(raw.start_timeout.as_ref(), server.start_timeout)?;
        server.idle_timeout = self.duration(raw.idle_timeout.as_ref(), server.idle_timeout)?;
        if let Some(tools) = &raw.tools {
            server.tools = tools
                .iter()
                .map(|tool| self.part(tool, |text| text.parse::<Glob>()))
                .collect::<Result<_, _>>()?;
        }
        server.read_only_trust = raw.read_only_trust;
        if let Some(size) = &raw.max_output_bytes {
            server.max_output_bytes = self.part(size, |size| match size {
                Size::Bytes(bytes) => Ok(*bytes),
                Size::Text(text) => parse_size(text),
            })?;
        }
        Ok(server)
    }

    fn reach(&self, span: Range<usize>, raw: &Raw) -> Result<McpReach, Problem> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        match (&raw.command, &raw.url) {
            (Some(command), None) => {
                if let Some((name, _)) = raw.headers.iter().next() {
                    return Err(self.fail(name.span(), "headers are for servers with a url"));
                }
                let mut argv = command.get_ref().clone();
                match argv.first_mut() {
                    Some(program) if program.trim().is_empty() => {
                        return Err(
                            self.fail(command.span(), "the program of the command is empty")
                        );
                    }
                    // A path is relative to the file that names it, wherever helmdeck is started.
                    Some(program) if program.contains('/') => {
                        *program = folder.join(&*program).display().to_string();
                    }
                    Some(_) => {}
                    None => {
                        return Err(self.fail(
                            command.span(),
                            "command is empty; write [\"program\", \"argument\", ...]",
                        ));
                    }
                }
                Ok(McpReach::Command {
                    argv,
                    cwd: raw.cwd.as_ref().map(|cwd| folder.join(cwd)),
                    env: self.values(&raw.env, check_variable)?,
                })
            }
            (None, Some(url)) => {
                if let Some((name, _)) = raw.env.iter().next() {
                    return Err(self.fail(name.span(), "env is for servers with a command"));
                }
                Ok(McpReach::Http {
                    url: self.part(url, |text| parse_url(text))?,
                    headers: self.values(&raw.headers, check_header)?,
                })
            }
            _ => Err(self.fail(
                span,
                format!(
                    "the MCP server \"{}\" needs either command or url",
                    raw.name.get_ref()
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<McpServer>, Vec<String>> {
        let env = ProcessEnvironment::of(&[("GITHUB_TOKEN", "canary-token")]);
        read(Path::new("/etc/h.toml"), text, &env)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn servers_of_both_kinds_are_read() {
        let servers = parse(
            "[log]\nlevel = \"info\"\n[[mcp.servers]]\nname = \"files\"\ncommand = [\"./run\", \"-y\"]\ncwd = \"data\"\n\
             env = { TOKEN = \"env:GITHUB_TOKEN\", DEBUG = \"1\" }\ntools = [\"read_*\"]\ntimeout = \"5s\"\nmax_output_bytes = \"1MiB\"\n\
             [[mcp.servers]]\nname = \"web\"\nurl = \"https://x.example/mcp\"\nread_only_trust = true\nmax_output_bytes = 5\n\
             [mcp.servers.headers]\nAuthorization = \"Bearer {credential:web}\"\n",
        )
        .unwrap();
        let McpReach::Command { argv, cwd, env } = &servers[0].reach else {
            panic!("a command")
        };
        assert_eq!(
            (argv[0].as_str(), cwd.as_deref()),
            ("/etc/./run", Some(Path::new("/etc/data")))
        );
        assert_eq!(env["TOKEN"].source(), "env:GITHUB_TOKEN");
        assert_eq!(
            (servers[0].timeout, servers[0].max_output_bytes),
            (Duration::from_secs(5), 1 << 20)
        );
        assert!(servers[0].takes("read_file") && !servers[0].takes("write_file"));
        assert_eq!(
            (servers[1].credentials(), servers[1].max_output_bytes),
            (vec!["web".to_owned()], 5)
        );
        assert!(servers[1].read_only_trust && !servers[0].read_only_trust);
        assert!(!format!("{servers:?}").contains("canary"));
    }

    #[test]
    fn every_problem_has_its_line_and_no_secret() {
        let problem = |lines: &str| {
            let problems = parse(&format!("[[mcp.servers]]\nname = \"x\"\n{lines}")).unwrap_err();
            assert!(!problems[0].contains("canary"), "{problems:?}");
            problems[0].clone()
        };
        assert_eq!(
            problem("comand = [\"x\"]"),
            "/etc/h.toml:3: unknown key \"comand\" of an MCP server; did you mean \"command\"?"
        );
        assert_eq!(
            problem(""),
            "/etc/h.toml:1: the MCP server \"x\" needs either command or url"
        );
        assert!(
            problem("command = [\"x\"]\nurl = \"http://x/\"").contains("either command or url")
        );
        assert!(problem("command = []").starts_with("/etc/h.toml:3: command is empty"));
        assert!(
            problem("command = [\"x\"]\nenv = { HELMDECK_MEMORY_KEY = \"x\" }")
                .starts_with("/etc/h.toml:4: env")
        );
        assert!(
            problem("command = [\"x\"]\nenv = { K = \"env:HELMDECK_MEMORY_KEY\" }")
                .contains("helmdeck's own")
        );
        let token = format!("ghp_canary{}", "a".repeat(30));
        assert!(
            problem(&format!("command = [\"x\"]\nenv = {{ K = \"{token}\" }}"))
                .contains("K: the value looks like a token")
        );
        assert!(
            problem("url = \"http://x/\"\nheaders = \"canary\"").contains("a map is expected here")
        );
        assert!(problem("url = \"http://u:canary@x/\"").contains("must not hold a user"));
        assert!(
            problem("url = \"http://x/\"\nheaders = { Host = \"y\" }")
                .contains("set by the protocol")
        );
        assert!(
            problem("command = [\"x\"]\ntimeout = \"0s\"")
                .starts_with("/etc/h.toml:4: the duration is 0")
        );
        assert!(
            problem("command = [\"x\"]\n[[mcp.servers]]\nname = \"x\"\ncommand = [\"y\"]")
                .starts_with("/etc/h.toml:5: there are two")
        );
        assert!(
            parse("[[mcp.servers]]\nname = \"X\"\ncommand = [\"y\"]").unwrap_err()[0]
                .contains("is not the name of a server")
        );
        assert!(
            parse("[[mcp.servers]]\ncommand = [\"y\"]").unwrap_err()[0]
                .contains("missing key of an MCP server: `name`")
        );
    }
}
