//! Command line definitions: commands, flags and help texts.

mod artifact;
mod audit;
mod cache;
mod conversation;
mod drain;
pub(crate) mod forge;
mod health;
mod init;
mod job;
mod key;
mod mcp;
mod pack;
pub(crate) mod seam;
mod session;
mod system;
mod token;
mod ui;
mod vault;

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use helmdeck_core::call::Directive;
use helmdeck_core::duration::parse_duration;
use helmdeck_memory::{Kind, Namespace};

pub(crate) use artifact::{ArtifactCommand, ArtifactGetArgs, ArtifactListArgs};
pub(crate) use audit::AuditCommand;
pub(crate) use cache::{CacheCommand, PurgeArgs, Which};
pub(crate) use conversation::{
    AddArgs, ContextFormat, ConversationCommand, ConversationIdArgs, ConversationListArgs,
    SnapshotArgs, WhoseArgs,
};
pub(crate) use drain::DrainArgs;
pub(crate) use health::HealthArgs;
pub(crate) use init::{InitArgs, McpClient};
pub(crate) use job::{JobCommand, JobListArgs};
pub(crate) use key::KeyCommand;
pub(crate) use mcp::{McpAddArgs, McpArgs, McpCommand};
pub(crate) use pack::{PackCommand, PackKind, PackListArgs, PackRef};
pub(crate) use session::{SessionCommand, SessionExecArgs};
pub(crate) use system::{SystemCommand, SystemMoveArgs};
pub(crate) use token::{TokenCommand, TokenCreateArgs};
pub(crate) use ui::UiArgs;
pub(crate) use vault::{GrantArgs, SetArgs, VaultCommand};

/// Run typed packs from the shell, over REST and over MCP, with an optional encrypted memory (off
/// by default)
#[derive(Debug, Parser)]
#[command(
    name = "helmdeck",
    version,
    propagate_version = false,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// Global options.
    #[command(flatten)]
    pub(crate) global: Global,
    /// Subcommand.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Global options.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Configuration file
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        long_help = "Configuration file [default: $HELMDECK_CONFIG, else $XDG_CONFIG_HOME/helmdeck/helmdeck.toml]"
    )]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON: results on stdout, errors (RFC 9457) on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print more: -v for progress and info, -vv for debug logs
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Print only results and errors: no progress, status line or warnings
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
}

/// Subcommand.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a pack
    #[command(after_help = "Examples:\n  \
        helmdeck run repo.map path=. token_budget=500\n  \
        helmdeck run github.list_issues repo=rust-lang/rust labels=A-parser,C-bug --json\n  \
        echo '{\"path\": \"/src\"}' | helmdeck run repo.map@v1 --input -\n\n\
        Values are parsed by the types in the pack's input schema (`helmdeck pack show <pack>`). For a list, separate\n\
        values with commas or repeat the key. a.b=value sets a member of an object; key:=json takes raw JSON.\n\
        key=@file takes the text of a file, key=@- that of stdin, and key:=@file JSON; key=@@text begins with an @.")]
    Run(RunArgs),
    /// List, show, check and create packs
    #[command(subcommand)]
    Pack(PackCommand),
    /// List, wait for and cancel jobs, and print their results
    #[command(subcommand)]
    Job(JobCommand),
    /// List, fetch and delete files that packs produced
    #[command(subcommand)]
    Artifact(ArtifactCommand),
    /// Create, list and revoke API tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// Make, check, show and find the memory key
    #[command(subcommand)]
    Key(KeyCommand),
    /// Inspect and manage the memory: list, open, purge, export, import, rotate
    #[command(subcommand)]
    Memory(MemoryCommand),
    /// Check that the audit is whole
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Inspect and purge cached answers
    #[command(subcommand)]
    Cache(CacheCommand),
    /// List sessions, run a command in one, end one
    #[command(subcommand)]
    Session(SessionCommand),
    /// Manage conversations: add turns, print the model context, take and restore snapshots, delete
    #[command(subcommand)]
    Conversation(ConversationCommand),
    /// Manage project memory in .forge/: knowledge, features, checkpoints, work sessions
    Forge(Box<forge::ForgeArgs>),
    /// Query project memory, read-only, for scripts and hooks: recall, save offers, plan paths
    #[command(subcommand)]
    Seam(seam::SeamCommand),
    /// Manage credentials: set, rotate, grant, remove
    #[command(subcommand)]
    Vault(VaultCommand),
    /// Copy the system database: tokens, jobs, credentials and counters
    #[command(subcommand)]
    System(SystemCommand),
    /// Serve packs over REST and MCP
    Serve(ServeArgs),
    /// Print the address of the pages, with a link that signs a browser in once
    #[command(
        after_help = "Without authentication the pages need no sign-in, and the link has none.\n\n\
        Examples:\n  \
        helmdeck ui\n  \
        helmdeck ui --url https://deck.example --tenant acme --user ann --scope \"packs:run memory:read\""
    )]
    Ui(UiArgs),
    /// Serve packs to one MCP client over stdio; or add, list and remove MCP servers
    Mcp(McpArgs),
    /// Set helmdeck up: configuration, memory on request, MCP clients
    #[command(after_help = INIT_HELP)]
    Init(InitArgs),
    /// Show on one screen: gates, store, packs, servers, jobs, project, and where everything is
    Status,
    /// Check configuration, key, stores and packs
    Check,
    /// Ask a running server whether it is ready; exit 1 if it is not
    Health(HealthArgs),
    /// Stop a running server in good order: not ready at once, then it finishes what runs and ends
    #[command(
        after_help = "If callers need a token, it is HELMDECK_TOKEN, which needs the scope admin; with API tokens a new one is made."
    )]
    Drain(DrainArgs),
    /// Show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a completion script for a shell
    #[command(after_help = "Examples:\n  \
        source <(helmdeck completions bash)    # in ~/.bashrc\n  \
        source <(helmdeck completions zsh)     # in ~/.zshrc, after compinit\n  \
        helmdeck completions fish >~/.config/fish/completions/helmdeck.fish\n\n\
        The packages install these scripts.")]
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Write a man page for each command to a folder, which is created
    #[command(hide = true)]
    Man {
        /// Folder
        folder: PathBuf,
    },
    /// Print the version
    Version,
    /// Print the table of exit codes
    #[command(name = "exit-codes", before_help = crate::exit::TABLE)]
    ExitCodes,
}

const INIT_HELP: &str = "Memory stays off until you agree: with --memory, or a yes at the terminal. An existing configuration keeps\n\
    everything that is in it. Run it again at any time: what is set up is left alone.\n\n\
    Examples:\n  \
    helmdeck init --memory\n  \
    helmdeck init --no-memory --client cursor --write";

/// `helmdeck run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Pack and input.
    #[command(flatten)]
    pub(crate) call: CallArgs,
    /// How to use the cache (no effect unless the pack is cached)
    #[arg(long, value_enum, value_name = "HOW", default_value = "default")]
    pub(crate) cache: CacheUse,
    /// Skip the cached answer and store a fresh one (same as --cache refresh)
    #[arg(long, conflicts_with = "cache")]
    pub(crate) no_cache: bool,
    /// Accept no cached answer older than this
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) max_age: Option<Duration>,
    /// Accept a cached answer up to this long after it became stale
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) max_stale: Option<Duration>,
    /// Stop waiting after this long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,
}

/// Pack reference and input of a call.
#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// Pack: name, or name@v1 for a version other than the latest; none, or a family, lists packs
    #[arg(value_name = "PACK[@VERSION]", value_parser = PackRef::parse)]
    pub(crate) pack: Option<PackRef>,
    /// Input: key=value, key:=json, key=@file or key=@- (stdin)
    #[arg(value_name = "KEY=VALUE", conflicts_with = "input")]
    pub(crate) pairs: Vec<String>,
    /// Whole input: a JSON object, @file, or - (or @-) for stdin
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) input: Option<String>,
    /// Conversation that the call belongs to
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
}

/// Cache directive of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CacheUse {
    /// Follow the pack's manifest
    Default,
    /// Neither read nor write
    Bypass,
    /// Do not read; store the fresh answer
    Refresh,
    /// Answer from the cache or fail
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

/// `helmdeck memory`.
#[derive(Debug, Subcommand)]
pub(crate) enum MemoryCommand {
    /// Show whether memory is on and what it holds
    Status,
    /// List entries without their values (works without the key)
    List(ListArgs),
    /// Print the value of one entry
    Get(GetArgs),
    /// Delete entries of any kind but the audit of a caller (works without the key)
    Purge(PurgeArgs),
    /// Delete the whole store so that a new key can be used; also removes a damaged file (works
    /// without the key)
    #[command(
        after_help = "Use this after losing the key: without it, nothing in the store can be read. First stop all\n\
        servers that use the old key; they would write entries that the new key cannot open."
    )]
    Reset(ResetArgs),
    /// Open every entry; report damaged ones, space used, and what to do
    Doctor,
    /// Re-encrypt every entry with the current key while servers run; then remove the previous keys
    #[command(
        after_help = "Set HELMDECK_MEMORY_KEY to the new key and HELMDECK_MEMORY_KEY_PREVIOUS to the old one, restart\n\
        servers with both, and run this. It is safe to interrupt at any time and run again."
    )]
    Rotate,
    /// Export entries to an encrypted archive
    Export(ExportArgs),
    /// Import entries from an archive; safe to repeat
    Import(ImportArgs),
    /// Delete all data of one person and print a receipt (works without the key)
    Forget(ForgetArgs),
}

/// `helmdeck memory reset`.
#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    /// Skip the confirmation prompt
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Filter on the entries of an archive; all by default.
#[derive(Debug, Args)]
pub(crate) struct OnlyArgs {
    /// Only this namespace: tenant/user (with its sessions) or tenant/user/session
    #[arg(long, value_name = "NAMESPACE", value_parser = parse_namespace)]
    pub(crate) namespace: Option<Namespace>,
    /// Only this kind: cache, note, fact, audit, conversation or head
    #[arg(long, value_parser = parse_kind)]
    pub(crate) kind: Option<Kind>,
}

/// `helmdeck memory export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Output file; - for stdout
    #[arg(value_name = "FILE|-")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) only: OnlyArgs,
    /// Overwrite an existing file
    #[arg(long)]
    pub(crate) force: bool,
}

/// `helmdeck memory import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Archive, - for stdin
    #[arg(value_name = "FILE|-")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) only: OnlyArgs,
    /// Read and verify, and report what would be imported, without writing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `helmdeck memory forget`.
#[derive(Debug, Args)]
pub(crate) struct ForgetArgs {
    /// User
    #[arg(long, value_name = "USER")]
    pub(crate) subject: String,
    /// Tenant of the user
    #[arg(long, default_value = "local")]
    pub(crate) tenant: String,
    /// Skip the confirmation prompt
    #[arg(long)]
    pub(crate) yes: bool,
    /// Also write the receipt as JSON to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) receipt: Option<PathBuf>,
}

/// `helmdeck memory list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only this kind: cache, note, fact, audit, conversation or head
    #[arg(long, value_parser = parse_kind)]
    pub(crate) kind: Option<Kind>,
    /// Only this namespace: tenant/user or tenant/user/session
    #[arg(long, value_name = "NAMESPACE", value_parser = parse_namespace)]
    pub(crate) namespace: Option<Namespace>,
    /// Only keys with this prefix
    #[arg(long, default_value = "")]
    pub(crate) prefix: String,
    /// Maximum number of entries
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub(crate) limit: usize,
}

/// `helmdeck memory get`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Namespace: tenant/user or tenant/user/session
    #[arg(value_parser = parse_namespace)]
    pub(crate) namespace: Namespace,
    /// Kind: cache, note, fact, audit, conversation or head
    #[arg(value_parser = parse_kind)]
    pub(crate) kind: Kind,
    /// Exact key
    pub(crate) key: String,
    /// Write the exact bytes of the value, without a trailing newline
    #[arg(long)]
    pub(crate) raw: bool,
}

/// `helmdeck serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address to listen on, instead of [server] listen
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,
}

/// `helmdeck config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting
    Show {
        /// Show where each setting comes from
        #[arg(long)]
        origin: bool,
    },
    /// Print the path of the configuration file
    Path,
}

fn parse_kind(text: &str) -> Result<Kind, String> {
    Kind::parse(text).ok_or_else(|| {
        let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

fn parse_namespace(text: &str) -> Result<Namespace, String> {
    let mut parts = text.splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(tenant), Some(subject), session) if !tenant.is_empty() && session != Some("") => {
            Ok(Namespace::new(tenant, subject, session))
        }
        _ => Err(
            "write tenant/user or tenant/user/session; tenant/ is shared by the whole tenant"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests;
