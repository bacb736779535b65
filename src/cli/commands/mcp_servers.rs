//! `helmdeck mcp add`, `list` and `remove`: edits the MCP servers in the configuration file.
//!
//! It writes no secret.

use std::path::{Path, PathBuf};

use helmdeck_core::text::line_of;
use helmdeck_engine::McpStatus;
use serde_json::json;
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value, value};

use super::pack::{IMPORT_LIMIT, late};
use crate::args::{Global, McpAddArgs};
use crate::config::{self, servers};
use crate::env::ProcessEnvironment;
use crate::exit::{Exit, Failure, Result};
use crate::output::Output;
use crate::progress::Progress;
use crate::table::table;
use crate::wire::{MemoryUse, Setup};
use crate::write_file;

/// Minimum length of a literal that counts as a secret when its name says so.
const MIN_SECRET_BYTES: usize = 8;
const REFERENCE_HINT: &str = "keep it in a variable of the environment and write env:NAME, or in [credentials] and write credential:NAME";

/// The configuration file, as an editable document.
struct File {
    path: PathBuf,
    document: DocumentMut,
}

/// Adds a server to the configuration file, which is created if it is missing.
///
/// # Errors
/// Exit 7 for a value that looks like a secret; usage for invalid arguments; configuration for a
/// file that cannot be read.
pub(crate) fn add(
    arguments: &McpAddArgs,
    global: &Global,
    env: &ProcessEnvironment,
    output: &Output,
) -> Result<()> {
    servers::check_name(&arguments.name).map_err(Failure::usage)?;
    let mut file = File::open(global, env)?;
    if file.position(&arguments.name)?.is_some() {
        if !arguments.force {
            let message = format!(
                "there is an MCP server \"{}\" in {} already",
                arguments.name,
                file.path.display()
            );
            return Err(Failure::usage(message)
                .with_hint("replace it with --force, or choose another name"));
        }
        file.remove(&arguments.name)?;
    }
    let table = server_table(arguments, global, env)?;
    file.servers()?.push(table);
    let text = file.document.to_string();
    // Parse it by the rules of `serve` before anything is written.
    if let Err(problems) = servers::read(&file.path, &text, env) {
        let lines: Vec<String> = problems
            .into_iter()
            .map(|problem| problem.message)
            .collect();
        return Err(Failure::usage(lines.join("; ")));
    }
    file.save()?;
    let path = file.path.display().to_string();
    output.either(&json!({"added": arguments.name, "file": path}), || {
        format!(
            "added the MCP server \"{}\" to {path}\nsee its tools:  helmdeck mcp list",
            arguments.name
        )
    })
}

/// Removes a server from the configuration file.
///
/// # Errors
/// Exit 3 if no server has that name.
pub(crate) fn remove(
    name: &str,
    global: &Global,
    env: &ProcessEnvironment,
    output: &Output,
) -> Result<()> {
    let mut file = File::open(global, env)?;
    if !file.remove(name)? {
        let message = format!(
            "there is no MCP server \"{}\" in {}",
            name.escape_debug(),
            file.path.display()
        );
        return Err(Failure::new(Exit::Absent, message)
            .with_hint("`helmdeck mcp list` names those that there are"));
    }
    file.save()?;
    let path = file.path.display().to_string();
    output.either(&json!({"removed": name, "file": path}), || {
        format!("removed the MCP server \"{name}\" from {path}")
    })
}

/// Starts every server, asks for its tools and prints its state.
///
/// # Errors
/// Exit 1 if one does not answer, after printing all.
pub(crate) async fn list(setup: &Setup) -> Result<()> {
    let engine = setup.engine(MemoryUse::None, false).await?;
    Progress::of_call(setup.output, false)
        .beside(engine.import_all(IMPORT_LIMIT))
        .await;
    let found = engine.mcp_servers();
    let refused: Vec<_> = engine
        .refused()
        .into_iter()
        .filter(|error| error.file.starts_with("mcp:"))
        .chain(late(&engine))
        .map(|error| error.to_string())
        .chain(
            found
                .iter()
                .filter(|server| server.remembered)
                .map(not_confirmed),
        )
        .collect();
    setup.shut_down(&engine).await;
    let failed = found
        .iter()
        .any(|server| server.listed.is_none() || server.remembered);
    let value = json!({"servers": found, "refused": refused});
    setup.output.either(&value, || {
        if found.is_empty() {
            return "no MCP servers are configured\nadd one:  helmdeck mcp add <name> -- <command>"
                .to_owned();
        }
        let rows = found.iter().map(|server| {
            let tools = server.listed.map_or_else(
                || "-".to_owned(),
                |listed| match server.tools.len() {
                    taken if taken == listed => taken.to_string(),
                    taken => format!("{taken} of {listed}"),
                },
            );
            let cells = [
                &server.name,
                server.kind,
                server.state,
                &tools,
                &server.server,
                &server.protocol,
            ];
            cells.map(str::to_owned)
        });
        let mut text = table(
            ["NAME", "KIND", "STATE", "TOOLS", "SERVER", "PROTOCOL"],
            rows,
        );
        for server in &found {
            text.extend(
                server
                    .tools
                    .iter()
                    .map(|tool| format!("  mcp.{}.{tool}\n", server.name)),
            );
        }
        text.extend(refused.iter().map(|reason| format!("refused: {reason}\n")));
        text
    })?;
    if failed {
        Err(Failure::silent(Exit::Failed))
    } else {
        Ok(())
    }
}

/// Reports a server that does not answer now, with the tools of an earlier start.
fn not_confirmed(server: &McpStatus) -> String {
    let why = server
        .error
        .as_deref()
        .unwrap_or("it has not answered in time");
    format!(
        "mcp:{}: {why}; the tools are those of its last start",
        server.name
    )
}

fn server_table(
    arguments: &McpAddArgs,
    global: &Global,
    env: &ProcessEnvironment,
) -> Result<Table> {
    let mut table = Table::new();
    table["name"] = value(&arguments.name);
    if let Some(url) = &arguments.url {
        table["url"] = value(servers::parse_url(url).map_err(Failure::usage)?.as_str());
        let headers = literals("--header", &arguments.headers, servers::check_header)?;
        if !headers.is_empty() {
            table["headers"] = value(headers);
        }
    } else {
        let mut variables = literals("--env", &arguments.env, servers::check_variable)?;
        if let Some(index) = arguments
            .command
            .iter()
            .position(|word| is_secret_argument(word))
        {
            return Err(Failure::new(
                Exit::Secret,
                format!(
                    "word {} after -- looks like a secret; nothing was written",
                    index + 1
                ),
            )
            .with_hint(format!(
                "hand it over as a variable, --env NAME=...: {REFERENCE_HINT}"
            )));
        }
        let (argv, own_path) = argv(&arguments.command, global, env)?;
        if own_path && !variables.contains_key("PATH") {
            variables.insert("PATH", "env:PATH".into());
        }
        table["command"] = value(argv.iter().collect::<Array>());
        // An argument that is a relative path must mean the same file later.
        let from_here = |argument: &String| {
            argument == "." || argument.starts_with("./") || argument.starts_with("../")
        };
        let cwd = match &arguments.cwd {
            Some(cwd) => Some(env.absolute(cwd)?),
            None if argv.iter().skip(1).any(from_here) => {
                Some(env.absolute(Path::new("."))?.components().collect())
            }
            None => None,
        };
        if let Some(cwd) = cwd {
            table["cwd"] = value(cwd.display().to_string());
        }
        if !variables.is_empty() {
            table["env"] = value(variables);
        }
    }
    if !arguments.tools.is_empty() {
        table["tools"] = value(arguments.tools.iter().collect::<Array>());
    }
    Ok(table)
}

/// Reads `NAME=VALUE` pairs.
///
/// # Errors
/// Exit 7 for a value that is a secret: it is in the history of the shell already, and must not get
/// into a file too.
fn literals(
    flag: &str,
    pairs: &[(String, String)],
    check: impl Fn(&str) -> std::result::Result<(), String>,
) -> Result<InlineTable> {
    let mut table = InlineTable::new();
    for (name, text) in pairs {
        check(name).map_err(|message| Failure::usage(format!("{flag}: {message}")))?;
        let refuse = || {
            Failure::new(
                Exit::Secret,
                format!("{flag} {name}: the value looks like a secret; nothing was written"),
            )
            .with_hint(REFERENCE_HINT)
        };
        let parsed = helmdeck_engine::McpValue::parse(text, |_| None);
        if helmdeck_core::leaks::has_leak(text.as_bytes())
            || (servers::is_secret_name(name)
                && text.len() >= MIN_SECRET_BYTES
                && parsed.as_ref().is_ok_and(|value| !value.is_reference()))
        {
            return Err(refuse());
        }
        parsed.map_err(|message| Failure::usage(format!("{flag} {name}: {message}")))?;
        table.insert(name, text.as_str().into());
    }
    Ok(table)
}

/// Says whether a word of a command holds a secret.
///
/// It does if it looks like one, or if it is `NAME=VALUE` or `--name=value` with a telling name and
/// a long enough value. A secret there would appear in the configuration and in every process list.
fn is_secret_argument(word: &str) -> bool {
    helmdeck_core::leaks::has_leak(word.as_bytes())
        || word.split_once('=').is_some_and(|(name, value)| {
            let is_path = value.starts_with(['/', '.', '~']);
            servers::is_secret_name(name.trim_start_matches('-'))
                && value.len() >= MIN_SECRET_BYTES
                && !is_path
        })
}

/// Finds the program in the configured search path, else in the shell's.
///
/// The second value says that it needs the shell's search path.
fn argv(
    command: &[String],
    global: &Global,
    env: &ProcessEnvironment,
) -> Result<(Vec<String>, bool)> {
    let mut argv = command.to_vec();
    let Some(program) = argv.first_mut() else {
        return Err(Failure::usage("name a command after --, or a --url"));
    };
    if program.contains('/') {
        let path = env.absolute(Path::new(&*program))?;
        if !path.is_file() {
            return Err(Failure::usage(format!(
                "the program {} does not exist",
                path.display()
            )));
        }
        *program = path.display().to_string();
        return Ok((argv, false));
    }
    let settings = config::load(global.config.as_deref(), Vec::new(), env)?.settings;
    let configured = settings.map_or_else(
        || helmdeck_engine::CommandConfig::default().path,
        |s| s.engine.commands.path,
    );
    if find(program, &configured).is_some() {
        return Ok((argv, false));
    }
    match env.text("PATH")?.and_then(|path| find(program, path)) {
        Some(path) => {
            *program = path.display().to_string();
            Ok((argv, true))
        }
        None => Err(Failure::usage(format!(
            "the program \"{program}\" is in no folder of the search path {configured}"
        ))
        .with_hint("name it with its folder")),
    }
}

fn find(program: &str, path: &str) -> Option<PathBuf> {
    path.split(':')
        .filter(|dir| dir.starts_with('/'))
        .map(|dir| Path::new(dir).join(program))
        .find(|path| path.is_file())
}

impl File {
    fn open(global: &Global, env: &ProcessEnvironment) -> Result<Self> {
        let found = config::find(global.config.as_deref(), env)?.ok_or_else(|| {
            Failure::config(
                "there is no configuration folder: neither XDG_CONFIG_HOME nor HOME is set",
            )
            .with_hint("name the file with --config")
        })?;
        let problem =
            |message: String| Failure::config(format!("{}: {message}", found.path.display()));
        let text = match std::fs::read_to_string(&found.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(problem(error.to_string())),
        };
        let document = text.parse::<DocumentMut>().map_err(|error| {
            let line = line_of(&text, error.span().unwrap_or_default().start);
            Failure::config(format!(
                "{}:{line}: {}",
                found.path.display(),
                error.message().replace('\n', ", ")
            ))
        })?;
        // A link stays a link: its target is replaced.
        let path = std::fs::canonicalize(&found.path).unwrap_or_else(|_| found.path.clone());
        Ok(Self { path, document })
    }

    fn servers(&mut self) -> Result<&mut ArrayOfTables> {
        let problem = format!(
            "{}: mcp.servers is not written as tables [[mcp.servers]]; rewrite it",
            self.path.display()
        );
        let mcp = self.document.entry("mcp").or_insert_with(|| {
            let mut table = Table::new();
            table.set_implicit(true);
            Item::Table(table)
        });
        let item = mcp
            .as_table_mut()
            .ok_or_else(|| Failure::config(problem.clone()))?
            .entry("servers")
            .or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
        if item.as_array().is_some_and(Array::is_empty) {
            *item = Item::ArrayOfTables(ArrayOfTables::new());
        }
        item.as_array_of_tables_mut()
            .ok_or_else(|| Failure::config(problem))
    }

    fn position(&mut self, name: &str) -> Result<Option<usize>> {
        let named = |table: &Table| {
            table
                .get("name")
                .and_then(Item::as_value)
                .and_then(Value::as_str)
                == Some(name)
        };
        Ok(self.servers()?.iter().position(named))
    }

    fn remove(&mut self, name: &str) -> Result<bool> {
        let Some(position) = self.position(name)? else {
            return Ok(false);
        };
        self.servers()?.remove(position);
        Ok(true)
    }

    fn save(&self) -> Result<()> {
        write_file::replace(&self.path, self.document.to_string().as_bytes()).map_err(|error| {
            Failure::new(
                Exit::Failed,
                format!("{} cannot be written: {error}", self.path.display()),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command, McpCommand};

    struct Fixture {
        folder: tempfile::TempDir,
        env: ProcessEnvironment,
    }

    impl Fixture {
        fn new(text: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            if !text.is_empty() {
                std::fs::write(folder.path().join("h.toml"), text).unwrap();
            }
            Self {
                folder,
                env: ProcessEnvironment::of(&[("PATH", "/bin:/usr/bin")]),
            }
        }

        fn text(&self) -> String {
            std::fs::read_to_string(self.folder.path().join("h.toml")).unwrap_or_default()
        }

        fn run(&self, arguments: &[&str]) -> Result<()> {
            let file = self.folder.path().join("h.toml").display().to_string();
            let cli = Cli::try_parse_from(
                ["helmdeck", "--config", &file, "mcp"]
                    .iter()
                    .chain(arguments),
            )
            .unwrap();
            let output = Output::of_process(&self.env, true, 0);
            let Command::Mcp(mcp) = cli.command else {
                unreachable!()
            };
            match mcp.command.unwrap() {
                McpCommand::Add(arguments) => add(&arguments, &cli.global, &self.env, &output),
                McpCommand::Remove { name } => remove(&name, &cli.global, &self.env, &output),
                McpCommand::List => unreachable!(),
            }
        }
    }

    const BEFORE: &str = "# mine\n[log]   # loud\nlevel = \"info\"\n\n[[mcp.servers]] # first\nname = \"a\"\ncommand = [\"sh\"]\n";

    #[test]
    fn a_server_is_added_and_removed_and_everything_else_stays() {
        let fixture = Fixture::new(BEFORE);
        fixture
            .run(&[
                "add",
                "b",
                "--env",
                "TOKEN=env:GITHUB_TOKEN",
                "--tool",
                "read_*",
                "--",
                "sh",
                "-c",
                "x",
            ])
            .unwrap();
        let expected = "\n[[mcp.servers]]\nname = \"b\"\ncommand = [\"sh\", \"-c\", \"x\"]\nenv = { TOKEN = \"env:GITHUB_TOKEN\" }\ntools = [\"read_*\"]\n";
        assert_eq!(fixture.text(), format!("{BEFORE}{expected}"));
        assert_eq!(
            fixture.run(&["add", "b", "--", "sh"]).unwrap_err().exit(),
            Exit::Usage
        );
        fixture
            .run(&[
                "add",
                "b",
                "--force",
                "--url",
                "https://x.example/mcp",
                "--header",
                "Authorization: Bearer {credential:t}",
            ])
            .unwrap();
        assert!(
            fixture
                .text()
                .contains("url = \"https://x.example/mcp\"\nheaders = { Authorization = \"Bearer {credential:t}\" }"),
            "{}",
            fixture.text()
        );
        fixture.run(&["remove", "b"]).unwrap();
        assert_eq!(fixture.text().trim_end(), BEFORE.trim_end());
        assert_eq!(
            fixture.run(&["remove", "b"]).unwrap_err().exit(),
            Exit::Absent
        );
        fixture.run(&["remove", "a"]).unwrap();
        assert!(
            fixture
                .text()
                .starts_with("# mine\n[log]   # loud\nlevel = \"info\"\n"),
            "{}",
            fixture.text()
        );
        assert!(!fixture.text().contains("mcp"), "{}", fixture.text());
    }

    #[test]
    fn the_file_is_made_for_its_owner_alone() {
        let fixture = Fixture::new("");
        fixture.run(&["add", "a", "--", "sh", "./x"]).unwrap();
        assert!(
            fixture
                .text()
                .starts_with("[[mcp.servers]]\nname = \"a\"\n"),
            "{}",
            fixture.text()
        );
        assert!(
            fixture.text().contains("cwd = \"/work\""),
            "an argument from here: {}",
            fixture.text()
        );
        let mode = std::fs::metadata(fixture.folder.path().join("h.toml"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(
            std::fs::read_dir(fixture.folder.path()).unwrap().count(),
            1,
            "nothing is left aside"
        );
    }

    #[test]
    fn a_secret_is_refused_and_nothing_written() {
        let fixture = Fixture::new(BEFORE);
        let token = format!("A=ghp_{}", "a1".repeat(18));
        for arguments in [
            ["add", "b", "--env", &token, "--", "sh"].as_slice(),
            &["add", "b", "--env", "API_TOKEN=canary-canary", "--", "sh"],
            &[
                "add",
                "b",
                "--url",
                "https://x/",
                "--header",
                "Authorization=Bearer canary-canary",
            ],
            &[
                "add",
                "b",
                "--url",
                "https://x/",
                "--header",
                "Authorization: Bearer canary-canary",
            ],
            &["add", "b", "--", "env", &token, "npx", "foo"],
            &[
                "add",
                "b",
                "--",
                "env",
                "API_TOKEN=canary-canary",
                "npx",
                "foo",
            ],
            &["add", "b", "--", "npx", "foo", "--api-token=canary-canary"],
        ] {
            let failure = fixture.run(arguments).unwrap_err();
            assert_eq!(failure.exit(), Exit::Secret, "{arguments:?}");
            assert!(
                !failure.text().contains("canary") && !failure.text().contains("ghp_"),
                "{}",
                failure.text()
            );
            assert!(failure.text().contains("env:NAME"), "{}", failure.text());
        }
        assert_eq!(fixture.text(), BEFORE);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let fixture = Fixture::new("[mcp]\nservers = [{ name = \"a\", command = [\"sh\"] }]\n");
        assert_eq!(
            fixture.run(&["add", "b", "--", "sh"]).unwrap_err().exit(),
            Exit::Config
        );
        let fixture = Fixture::new("x = \n");
        assert!(
            fixture
                .run(&["add", "b", "--", "sh"])
                .unwrap_err()
                .message()
                .contains("h.toml:1:")
        );
        let fixture = Fixture::new("");
        for arguments in [
            ["add", "B", "--", "sh"].as_slice(),
            &["add", "b", "--", "no-such-program-anywhere"],
            &["add", "b", "--", "./none"],
            &["add", "b", "--url", "ftp://x/"],
            &["add", "b", "--env", "HELMDECK_MEMORY_KEY=x", "--", "sh"],
            &["add", "b", "--env", "K=env:HELMDECK_MEMORY_KEY", "--", "sh"],
        ] {
            assert_eq!(
                fixture.run(arguments).unwrap_err().exit(),
                Exit::Usage,
                "{arguments:?}"
            );
        }
        assert_eq!(fixture.text(), "");
        assert!(Cli::try_parse_from(["helmdeck", "mcp", "add", "a"]).is_err());
        assert!(
            Cli::try_parse_from([
                "helmdeck",
                "mcp",
                "add",
                "a",
                "--url",
                "http://x/",
                "--",
                "sh"
            ])
            .is_err()
        );
    }
}
