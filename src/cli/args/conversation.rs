//! The command line of `helmdeck conversation`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use helmdeck_conversation::TurnTime;
use helmdeck_core::duration::parse_duration;

/// `helmdeck conversation`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConversationCommand {
    /// Add a turn, or the turns of a file
    #[command(after_help = "Examples:\n  \
        helmdeck conversation add trip --user 'A week in Lisbon' --assistant 'In May or in June?'\n  \
        helmdeck conversation add trip --user - <question.txt\n  \
        helmdeck conversation add trip --file turns.jsonl\n\n\
        Each line of a file is a turn: {\"user_message\": \"...\", \"assistant_response\": \"...\"}, and if wanted \"timestamp\",\n\
        \"trajectory_digest\", \"artifacts_shown\", \"artifacts_hidden_refs\" and \"once\". A file whose lines all have a \"once\" can be\n\
        given again after a failure: what is there already is not added twice.")]
    Add(AddArgs),
    /// Print what a model is to be shown of a dialogue
    Context {
        #[command(flatten)]
        which: DialogueArgs,
        /// Print it as a block of a prompt, fenced as untrusted data
        #[arg(long)]
        prompt: bool,
    },
    /// Say how the summary of a dialogue is doing
    Health {
        #[command(flatten)]
        which: DialogueArgs,
    },
    /// Say what the strategy makes of a dialogue right now
    Trace {
        #[command(flatten)]
        which: DialogueArgs,
    },
    /// Write a dialogue as a snapshot: the summary, and every turn that is not in it
    Snapshot(SnapshotArgs),
    /// Put a snapshot in the place of a dialogue
    Restore {
        #[command(flatten)]
        which: DialogueArgs,
        /// The snapshot; - for stdin
        #[arg(value_name = "FILE|-")]
        file: PathBuf,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// List dialogues, or the turns of one
    List(ConversationListArgs),
    /// Show a turn
    Show {
        #[command(flatten)]
        which: DialogueArgs,
        /// The turn's key, as `list` and `context` show it
        key: String,
    },
    /// Delete a turn; a summary that it is in is made anew
    Delete {
        #[command(flatten)]
        which: DialogueArgs,
        /// The turn's key, as `list` and `context` show it
        key: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Delete every turn and the summary of a dialogue, and go on with it
    Flush {
        #[command(flatten)]
        which: DialogueArgs,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Remove a dialogue with everything about it
    Forget {
        #[command(flatten)]
        which: DialogueArgs,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Sum up now what waits for it; exit 1 if something still waits
    Fold {
        #[command(flatten)]
        which: DialogueArgs,
        /// Stop waiting after this long
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "5m")]
        within: Duration,
    },
}

/// Which dialogue is meant.
#[derive(Debug, Args)]
pub(crate) struct DialogueArgs {
    /// The dialogue
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) whose: WhoseArgs,
}

/// Whose dialogue is meant.
#[derive(Debug, Args)]
pub(crate) struct WhoseArgs {
    /// The user whose dialogue it is; the local caller if absent
    #[arg(long, value_name = "USER")]
    pub(crate) subject: Option<String>,
    /// The tenant of the user; the local caller's if absent
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
}

/// `helmdeck conversation add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    pub(crate) which: DialogueArgs,
    /// What the user said; - for stdin, without its last line break
    #[arg(long, value_name = "TEXT|-", required_unless_present_any = ["assistant", "file"])]
    pub(crate) user: Option<String>,
    /// What the assistant answered; - for stdin, without its last line break
    #[arg(long, value_name = "TEXT|-")]
    pub(crate) assistant: Option<String>,
    /// When it happened, like 2026-11-22T16:00:00Z; now if absent
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) at: Option<String>,
    /// A name for the turn: adding it again within a day adds nothing
    #[arg(long, value_name = "NAME")]
    pub(crate) once: Option<String>,
    /// A file of turns, one a line; - for stdin
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["user", "assistant", "at", "once"])]
    pub(crate) file: Option<PathBuf>,
}

/// `helmdeck conversation snapshot`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    #[command(flatten)]
    pub(crate) which: DialogueArgs,
    /// Where to; stdout if absent
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}

/// `helmdeck conversation list`.
#[derive(Debug, Args)]
pub(crate) struct ConversationListArgs {
    /// List the turns of this dialogue; the dialogues if absent, of everybody unless narrowed
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) whose: WhoseArgs,
    /// Only turns whose texts hold this, whatever the case
    #[arg(long, value_name = "TEXT", requires = "session")]
    pub(crate) search: Option<String>,
    /// Show the texts of the turns too
    #[arg(long, requires = "session")]
    pub(crate) texts: bool,
    /// At most so many
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    pub(crate) limit: usize,
    /// Only those after this one, which the list before ended with
    #[arg(long, value_name = "NEXT")]
    pub(crate) after: Option<String>,
}

fn parse_time(text: &str) -> Result<String, String> {
    TurnTime::parse(text).map(|time| time.as_str().to_owned())
}
