//! Command line of `helmdeck forge issue`, and of the commands in few words.

use clap::{Args, Subcommand};
use helmdeck_forge::issues::{AddIssue, CloseIssue, ListIssues, SetIssue, ShowIssue};

/// `helmdeck forge issue`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum IssueCommand {
    Add(Box<AddIssue>),
    #[command(visible_alias = "ls")]
    List(ListIssues),
    Show(ShowIssue),
    Set(Box<SetIssue>),
    /// Close an issue: its summary goes to .forge/linear/history/
    #[command(visible_alias = "close")]
    Done {
        /// Key
        key: String,
        #[command(flatten)]
        close: CloseIssue,
        /// Close it because nobody will finish it
        #[arg(long)]
        cancelled: bool,
    },
    /// Open a closed issue again
    Reopen {
        /// Key
        key: String,
    },
}

/// The branch of an issue.
#[derive(Debug, Args)]
pub(crate) struct BranchArgs {
    /// Branch to create or check out [default: feature/KEY-title]
    #[arg(long, value_name = "NAME", conflicts_with = "no_branch")]
    pub(crate) branch: Option<String>,
    /// Stay on the current branch
    #[arg(long)]
    pub(crate) no_branch: bool,
}

/// `helmdeck forge start`.
#[derive(Debug, Args)]
pub(crate) struct StartWorkArgs {
    /// Issue, feature, or title of a new issue [default: chosen as by `session start`]
    #[arg(value_name = "KEY|FEATURE|TITLE")]
    pub(crate) what: Option<String>,
    #[command(flatten)]
    pub(crate) branch: BranchArgs,
    /// Work in a work tree of its own, beside the repository; it is made if there is none
    #[arg(long, requires = "what", conflicts_with = "no_branch")]
    pub(crate) worktree: bool,
    /// Work beside an active session, with a separate focus
    #[arg(long)]
    pub(crate) join: bool,
    /// Take over a session that is stuck
    #[arg(long, conflicts_with = "join")]
    pub(crate) take_over: bool,
    /// Test no feature again
    #[arg(long)]
    pub(crate) no_probe: bool,
}

/// `helmdeck forge done`.
#[derive(Debug, Args)]
pub(crate) struct DoneWorkArgs {
    /// What was done, for the commit of what is not committed, and for the checkpoint [default: the
    /// title of the issue]
    #[arg(value_name = "WHAT")]
    pub(crate) what: Option<String>,
    /// Finish although a criterion is open or a feature fails, for this reason
    #[arg(long, value_name = "WHY")]
    pub(crate) anyway: Option<String>,
    /// Learning, as "when it applies: what works"; repeatable
    #[arg(long, value_name = "TEXT")]
    pub(crate) learned: Vec<String>,
    /// Next step
    #[arg(long, value_name = "TEXT")]
    pub(crate) next: Option<String>,
    /// Command that must succeed, instead of the configured ones; repeatable
    #[arg(long, value_name = "COMMAND")]
    pub(crate) verify: Vec<String>,
    /// Push the tag of the checkpoint
    #[arg(long)]
    pub(crate) push: bool,
}

/// `helmdeck forge form`.
#[derive(Debug, Subcommand)]
pub(crate) enum FormCommand {
    /// List the forms in .forge/linear/templates/, or the fields of one and what can be chosen
    List {
        /// Name of a form
        name: Option<String>,
    },
    /// Add an issue with a form; at a terminal, missing fields are asked for
    New {
        #[command(flatten)]
        form: FormValues,
        /// Label; repeatable
        #[arg(long, value_name = "LABEL")]
        label: Vec<String>,
        /// 1 urgent, 2 high, 3 normal, 4 low, 0 none
        #[arg(long, value_name = "NUMBER")]
        priority: Option<u8>,
    },
}

/// A form with values.
#[derive(Debug, Args)]
pub(crate) struct FormValues {
    /// Name of the form
    pub(crate) name: String,
    /// Value, as FIELD=VALUE; repeat a list for each item
    #[arg(short = 'f', long, value_name = "FIELD=VALUE")]
    pub(crate) field: Vec<String>,
    /// File with values, as a JSON object; - reads stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) values: Option<std::path::PathBuf>,
}
