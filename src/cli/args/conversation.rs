//! Command line of `helmdeck conversation`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use helmdeck_conversation::TurnTime;
use helmdeck_core::duration::parse_duration;

/// `helmdeck conversation`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConversationCommand {
    /// Add one turn, or the turns of a file
    #[command(after_help = "Examples:\n  \
        helmdeck conversation add trip --user 'A week in Lisbon' --assistant 'In May or in June?'\n  \
        helmdeck conversation add trip --user - <question.txt\n  \
        helmdeck conversation add trip --file turns.jsonl\n\n\
        Each line of a file is a turn: {\"user_message\": \"...\", \"assistant_response\": \"...\"}. Optional members: \"timestamp\",\n\
        \"trajectory_digest\", \"artifacts_shown\", \"artifacts_hidden_refs\" and \"once\". If every line has a \"once\", the file can be\n\
        added again after a failure: turns that exist are not added twice.")]
    Add(AddArgs),
    /// Print the context for the next model call: summary plus recent turns
    Context {
        #[command(flatten)]
        which: ConversationIdArgs,
        /// Print the context as a model gets it
        #[arg(long, value_enum)]
        format: Option<ContextFormat>,
    },
    /// Show the health of a conversation's summary
    Health {
        #[command(flatten)]
        which: ConversationIdArgs,
    },
    /// Show what the strategy currently does with a conversation
    Trace {
        #[command(flatten)]
        which: ConversationIdArgs,
    },
    /// Write a snapshot: the summary, and every turn that is not in it
    Snapshot(SnapshotArgs),
    /// Replace a conversation by a snapshot
    Restore {
        #[command(flatten)]
        which: ConversationIdArgs,
        /// Snapshot; - for stdin
        #[arg(value_name = "FILE|-")]
        file: PathBuf,
        /// Skip the confirmation prompt
        #[arg(long)]
        yes: bool,
    },
    /// List conversations, or the turns of one
    List(ConversationListArgs),
    /// Show a turn
    Show {
        #[command(flatten)]
        which: ConversationIdArgs,
        /// Key of the turn, as shown by `list` and `context`
        key: String,
    },
    /// Delete a turn; a summary that includes it is rebuilt
    Delete {
        #[command(flatten)]
        which: ConversationIdArgs,
        /// Key of the turn, as shown by `list` and `context`
        key: String,
        /// Skip the confirmation prompt
        #[arg(long)]
        yes: bool,
    },
    /// Pin, show or clear the goal, which every context shows
    #[command(after_help = "Examples:\n  \
        helmdeck conversation pin trip 'A week in Lisbon for 900 euros'\n  \
        helmdeck conversation pin trip              # show it\n  \
        helmdeck conversation pin trip --clear      # the goal is again what the user asked for first")]
    Pin {
        #[command(flatten)]
        which: ConversationIdArgs,
        /// The goal [default: show the goal]
        #[arg(conflicts_with = "clear")]
        goal: Option<String>,
        /// Clear the pinned goal
        #[arg(long)]
        clear: bool,
    },
    /// Delete all turns and the summary, but keep the conversation
    Flush {
        #[command(flatten)]
        which: ConversationIdArgs,
        /// Skip the confirmation prompt
        #[arg(long)]
        yes: bool,
    },
    /// Delete a conversation with all its data
    Forget {
        #[command(flatten)]
        which: ConversationIdArgs,
        /// Skip the confirmation prompt
        #[arg(long)]
        yes: bool,
    },
    /// Summarise the waiting turns now; exit 1 if some still wait
    Fold {
        #[command(flatten)]
        which: ConversationIdArgs,
        /// Stop waiting after this time
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "5m")]
        within: Duration,
    },
}

/// Format of a context for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ContextFormat {
    /// One text, with every turn fenced as untrusted data
    Prompt,
    /// A JSON list of {role, content}, with the user's own words as the user's
    Messages,
}

/// Conversation id and its owner.
#[derive(Debug, Args)]
pub(crate) struct ConversationIdArgs {
    /// Conversation id
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) whose: WhoseArgs,
}

/// Owner of a conversation.
#[derive(Debug, Args)]
pub(crate) struct WhoseArgs {
    /// Owner of the conversation [default: the local caller]
    #[arg(long, value_name = "USER")]
    pub(crate) subject: Option<String>,
    /// Tenant of the owner [default: the local caller's]
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
}

/// `helmdeck conversation add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    pub(crate) which: ConversationIdArgs,
    /// User message; - for stdin, without its last line break
    #[arg(long, value_name = "TEXT|-", required_unless_present_any = ["assistant", "file"])]
    pub(crate) user: Option<String>,
    /// Assistant reply; - for stdin, without its last line break
    #[arg(long, value_name = "TEXT|-")]
    pub(crate) assistant: Option<String>,
    /// Time of the turn, like 2026-11-22T16:00:00Z [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) at: Option<String>,
    /// Idempotency key: adding a turn with the same name again within a day adds nothing
    #[arg(long, value_name = "NAME")]
    pub(crate) once: Option<String>,
    /// File of turns, one per line; - for stdin
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["user", "assistant", "at", "once"])]
    pub(crate) file: Option<PathBuf>,
}

/// `helmdeck conversation snapshot`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    #[command(flatten)]
    pub(crate) which: ConversationIdArgs,
    /// Output file [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}

/// `helmdeck conversation list`.
#[derive(Debug, Args)]
pub(crate) struct ConversationListArgs {
    /// List the turns of this conversation [default: list all conversations, of all owners unless
    /// filtered]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) whose: WhoseArgs,
    /// Only turns that contain this text, ignoring case
    #[arg(long, value_name = "TEXT", requires = "session")]
    pub(crate) search: Option<String>,
    /// Also show the texts of the turns
    #[arg(long, requires = "session")]
    pub(crate) texts: bool,
    /// Maximum number of rows
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    pub(crate) limit: usize,
    /// Continue after the previous page: the `next` it ended with
    #[arg(long, value_name = "NEXT")]
    pub(crate) after: Option<String>,
}

fn parse_time(text: &str) -> Result<String, String> {
    TurnTime::parse(text).map(|time| time.as_str().to_owned())
}
