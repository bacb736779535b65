//! The command line: every command and flag, and nothing that they do.

mod artifact;
mod cache;
mod conversation;
pub(crate) mod forge;
mod job;
mod key;
mod mcp;
pub(crate) mod seam;
mod session;
mod token;
mod vault;

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use helmdeck_core::call::Directive;
use helmdeck_core::duration::parse_duration;
use helmdeck_core::{PackName, Version};
use helmdeck_memory::{Kind, Namespace};

pub(crate) use artifact::{ArtifactCommand, ArtifactGetArgs, ArtifactListArgs};
pub(crate) use cache::{CacheCommand, PurgeArgs, Which};
pub(crate) use conversation::{
    AddArgs, ConversationCommand, ConversationListArgs, DialogueArgs, SnapshotArgs, WhoseArgs,
};
pub(crate) use job::{JobCommand, JobListArgs};
pub(crate) use key::KeyCommand;
pub(crate) use mcp::{McpAddArgs, McpArgs, McpCommand};
pub(crate) use session::{SessionCommand, SessionExecArgs};
pub(crate) use token::{TokenCommand, TokenCreateArgs};
pub(crate) use vault::{GrantArgs, SetArgs, VaultCommand};

/// Runs typed packs for agents and people, from the shell, over REST and over MCP, with a memory that is off until you turn it on.
#[derive(Debug, Parser)]
#[command(name = "helmdeck", version, propagate_version = false, max_term_width = 100)]
pub(crate) struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// The configuration file
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        long_help = "The configuration file; else the one that HELMDECK_CONFIG names, else helmdeck/helmdeck.toml in the XDG config folder"
    )]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON: results on stdout, problems (RFC 9457) on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say more: -v progress and information, -vv what happened inside
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a pack
    #[command(after_help = "Examples:\n  \
        helmdeck run repo.map path=. token_budget=500\n  \
        helmdeck run github.list_issues repo=rust-lang/rust labels=A-parser,C-bug --json\n  \
        echo '{\"path\": \"/src\"}' | helmdeck run repo.map@v1 --input -\n\n\
        Values are read as the types of the pack's input schema (`helmdeck pack show <pack>`); a list takes several, with\n\
        commas or repeated; a.b=value sets a member of an object; key:=json takes JSON as it is.")]
    Run(RunArgs),
    /// List, show, check and make packs
    #[command(subcommand)]
    Pack(PackCommand),
    /// List jobs, wait for one, get its result, cancel it
    #[command(subcommand)]
    Job(JobCommand),
    /// List, fetch and delete files that packs wrote
    #[command(subcommand)]
    Artifact(ArtifactCommand),
    /// Make, list and revoke API tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// Make a key, or check the memory key
    #[command(subcommand)]
    Key(KeyCommand),
    /// Look after the memory: what it holds, and forgetting
    #[command(subcommand)]
    Memory(MemoryCommand),
    /// Look after cached answers
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Look after sessions: list them, run a command in one, end one
    #[command(subcommand)]
    Session(SessionCommand),
    /// Look after dialogues: add turns, print what a model is shown, take and restore snapshots, forget
    #[command(subcommand)]
    Conversation(ConversationCommand),
    /// The memory of a project: what was learned, which features work, checkpoints, sessions
    Forge(Box<forge::ForgeArgs>),
    /// What a process sees of memory: recall, offers, the path of its plan; it never writes
    #[command(subcommand)]
    Seam(seam::SeamCommand),
    /// Look after credentials: set, rotate, grant, remove
    #[command(subcommand)]
    Vault(VaultCommand),
    /// Serve the packs over REST and MCP
    Serve(ServeArgs),
    /// Serve the packs to one MCP client over stdin and stdout; or add, list and remove MCP servers
    Mcp(McpArgs),
    /// Check configuration, key, stores and packs
    Check,
    /// Show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the version
    Version,
    /// Print the table of exit codes
    #[command(name = "exit-codes", before_help = crate::exit::TABLE)]
    ExitCodes,
}

/// `helmdeck run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// What to run.
    #[command(flatten)]
    pub(crate) call: CallArgs,
    /// What may be answered from the cache (of no effect unless the pack is cached)
    #[arg(long, value_enum, value_name = "HOW", default_value = "default")]
    pub(crate) cache: CacheUse,
    /// Do not read the cache, but store the fresh answer (the same as --cache refresh)
    #[arg(long, conflicts_with = "cache")]
    pub(crate) no_cache: bool,
    /// Take no cached answer older than this
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) max_age: Option<Duration>,
    /// Take a cached answer up to this long past its freshness
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) max_stale: Option<Duration>,
    /// Stop waiting after this long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,
}

/// A pack and its input.
#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// The pack, with its version if not the latest: name or name@v1
    #[arg(value_name = "PACK[@VERSION]", value_parser = PackRef::parse)]
    pub(crate) pack: PackRef,
    /// The input: key=value or key:=json
    #[arg(value_name = "KEY=VALUE", conflicts_with = "input")]
    pub(crate) pairs: Vec<String>,
    /// The whole input: a JSON object, @file, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) input: Option<String>,
    /// The dialogue that the call belongs to
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
}

/// What may be answered from the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CacheUse {
    /// As the pack says
    Default,
    /// Neither read nor write
    Bypass,
    /// Do not read; store the fresh answer
    Refresh,
    /// Answer from the cache or not at all
    OnlyIfCached,
}

impl RunArgs {
    /// Returns the cache directive.
    pub(crate) fn directive(&self) -> Directive {
        match self.cache {
            _ if self.no_cache => Directive::Refresh,
            CacheUse::Default => Directive::Default,
            CacheUse::Bypass => Directive::Bypass,
            CacheUse::Refresh => Directive::Refresh,
            CacheUse::OnlyIfCached => Directive::OnlyIfCached,
        }
    }
}

/// A pack by name, with or without a version.
#[derive(Debug, Clone)]
pub(crate) struct PackRef {
    /// The name.
    pub(crate) name: PackName,
    /// The version; `None` = the latest.
    pub(crate) version: Option<Version>,
}

impl PackRef {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, version) = text.split_once('@').map_or((text, None), |(name, version)| (name, Some(version)));
        let version = version.filter(|version| *version != "latest");
        Ok(Self { name: PackName::new(name)?, version: version.map(Version::parse).transpose()? })
    }
}

/// `helmdeck pack`.
#[derive(Debug, Subcommand)]
pub(crate) enum PackCommand {
    /// List the packs that there are
    List,
    /// Show what a pack takes and gives
    Show {
        /// The pack, with its version if not the latest
        #[arg(value_name = "PACK[@VERSION]", value_parser = PackRef::parse)]
        pack: PackRef,
    },
    /// Check manifests, schemas and examples
    Check {
        /// A manifest or a folder of manifests; the configured packs folder and the built-in packs if absent
        path: Option<PathBuf>,
        /// Run the examples of command packs too, and send those of http packs
        #[arg(long)]
        run: bool,
    },
    /// Write a working pack to start from
    New {
        /// Its name, like team.lookup
        #[arg(value_parser = PackName::new)]
        name: PackName,
        /// What runs: a program, an HTTP request, or a function of this project's source
        #[arg(long, value_enum, default_value = "command")]
        kind: PackKind,
        /// The folder to write to; the configured packs folder if absent
        #[arg(long, value_name = "FOLDER")]
        dir: Option<PathBuf>,
    },
}

/// What runs when a pack is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PackKind {
    /// A program
    Command,
    /// A tool of an MCP server, behind the cache
    Mcp,
    /// An HTTP request
    Http,
    /// A Rust function of this project
    Builtin,
}

/// `helmdeck memory`.
#[derive(Debug, Subcommand)]
pub(crate) enum MemoryCommand {
    /// Say whether memory is on, and what it holds
    Status,
    /// List entries without their values (works without the key)
    List(ListArgs),
    /// Open one entry and print its value
    Get(GetArgs),
    /// Say what the audit shows of a caller's habits: packs, usual inputs, findings
    Defaults(DefaultsArgs),
    /// Forget entries of every kind (works without the key)
    Purge(PurgeArgs),
    /// Empty the store for good, so that the next key can take it; a damaged file is removed (works without the key)
    #[command(
        after_help = "For a lost key: without it nothing in the store can be read again. Stop servers with the old key first; one\n\
        that goes on writes entries that the next key cannot open."
    )]
    Reset(ResetArgs),
    /// Open every entry and report those that do not, what each takes, and what to do
    Doctor,
    /// Seal every entry with the current key, while servers run; then previous keys can go
    #[command(
        after_help = "Set HELMDECK_MEMORY_KEY to the new key and HELMDECK_MEMORY_KEY_PREVIOUS to the old one, restart\n\
        servers with both, and run this. It can be stopped or killed at any time and run again."
    )]
    Rotate,
    /// Write entries to a sealed archive
    Export(ExportArgs),
    /// Read entries from an archive, or from a database of the Go original; twice is the same as once
    Import(ImportArgs),
    /// Remove everything of one person, and print a receipt (works without the key)
    Forget(ForgetArgs),
}

/// `helmdeck memory reset`.
#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Which entries of an archive are meant; all of them unless said otherwise.
#[derive(Debug, Args)]
pub(crate) struct OnlyArgs {
    /// Only of this namespace: tenant/user (its sessions too) or tenant/user/session
    #[arg(long, value_name = "NAMESPACE", value_parser = parse_namespace)]
    pub(crate) namespace: Option<Namespace>,
    /// Only of this kind: cache, note, fact, audit or conversation
    #[arg(long, value_parser = parse_kind)]
    pub(crate) kind: Option<Kind>,
}

/// `helmdeck memory export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Where to; - for stdout
    #[arg(value_name = "FILE|-")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) only: OnlyArgs,
    /// Replace a file that is there
    #[arg(long)]
    pub(crate) force: bool,
}

/// `helmdeck memory import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The archive, - for stdin; with --helmdeck-go the database
    #[arg(value_name = "FILE|-")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) only: OnlyArgs,
    /// Read and verify, and say what would be imported, without writing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The file is a SQLite database of the Go original, written with this memory key
    #[arg(long)]
    pub(crate) helmdeck_go: bool,
    /// The tenant that rows of the Go original go to
    #[arg(long, default_value = "local", requires = "helmdeck_go")]
    pub(crate) tenant: String,
    /// How the Go original's namespaces with a colon are read
    #[arg(long, value_enum, default_value = "proven", requires = "helmdeck_go")]
    pub(crate) split_sessions: SplitSessions,
}

/// How `a:b` is read, which may be caller `a` in session `b`, or caller `a:b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SplitSessions {
    /// As caller and session where the file proves that there is such a caller
    Proven,
    /// As caller and session, at the last colon, unless the file proves otherwise
    Always,
    /// As a caller
    Never,
}

/// `helmdeck memory forget`.
#[derive(Debug, Args)]
pub(crate) struct ForgetArgs {
    /// The user
    #[arg(long, value_name = "USER")]
    pub(crate) subject: String,
    /// The tenant of the user
    #[arg(long, default_value = "local")]
    pub(crate) tenant: String,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
    /// Write the receipt as JSON to this file too
    #[arg(long, value_name = "FILE")]
    pub(crate) receipt: Option<PathBuf>,
}

/// Which entries to list.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only of this kind: cache, note, fact, audit or conversation
    #[arg(long, value_parser = parse_kind)]
    pub(crate) kind: Option<Kind>,
    /// Only of this namespace: tenant/user or tenant/user/session
    #[arg(long, value_name = "NAMESPACE", value_parser = parse_namespace)]
    pub(crate) namespace: Option<Namespace>,
    /// Only keys that start with this
    #[arg(long, default_value = "")]
    pub(crate) prefix: String,
    /// The most entries
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub(crate) limit: usize,
}

/// Which entry to open.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Whose: tenant/user or tenant/user/session
    #[arg(value_parser = parse_namespace)]
    pub(crate) namespace: Namespace,
    /// Its kind: cache, note, fact, audit or conversation
    #[arg(value_parser = parse_kind)]
    pub(crate) kind: Kind,
    /// Its exact key
    pub(crate) key: String,
    /// Write the value byte for byte, with nothing after it
    #[arg(long)]
    pub(crate) raw: bool,
}

/// `helmdeck memory defaults`.
#[derive(Debug, Args)]
pub(crate) struct DefaultsArgs {
    /// Whose: tenant/user; the local caller if absent
    #[arg(long, value_name = "NAMESPACE", value_parser = parse_namespace)]
    pub(crate) namespace: Option<Namespace>,
}

/// `helmdeck serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen, instead of [server] listen
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,
}

/// `helmdeck config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting
    Show {
        /// Say where each comes from
        #[arg(long)]
        origin: bool,
    },
    /// Print the path of the configuration file
    Path,
}

fn parse_kind(text: &str) -> Result<Kind, String> {
    Kind::parse(text).ok_or_else(|| {
        let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("there are {}", names.join(", "))
    })
}

fn parse_namespace(text: &str) -> Result<Namespace, String> {
    let mut parts = text.splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(tenant), Some(subject), session) if !tenant.is_empty() && session != Some("") => {
            Ok(Namespace::new(tenant, subject, session))
        }
        _ => Err("write tenant/user or tenant/user/session; tenant/ alone is what a whole tenant shares".to_owned()),
    }
}

#[cfg(test)]
mod tests;
