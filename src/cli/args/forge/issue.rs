//! Command line of `helmdeck forge issue`, and of the commands in few words.

use clap::{Args, Subcommand};

/// `helmdeck forge issue`.
#[derive(Debug, Subcommand)]
pub(crate) enum IssueCommand {
    /// Add an issue with a local key, like LOCAL-1
    Add(IssueFields),
    /// List open issues
    #[command(visible_alias = "ls")]
    List {
        /// Only issues that wait for nothing, and that no other session works on
        #[arg(long, conflicts_with_all = ["mine", "done", "all"])]
        ready: bool,
        /// Only mine
        #[arg(long, conflicts_with_all = ["done", "all"])]
        mine: bool,
        /// Only closed ones
        #[arg(long, conflicts_with = "all")]
        done: bool,
        /// Closed ones too
        #[arg(long)]
        all: bool,
    },
    /// Show an issue with its comments and commits
    Show {
        /// Key
        key: String,
    },
    /// Change an issue, or add a comment; an empty text or list removes
    Set(IssueEdit),
    /// Close an issue: its summary goes to .forge/linear/history/
    #[command(visible_alias = "close")]
    Done {
        /// Key
        key: String,
        /// Close it although a criterion is open, for this reason
        #[arg(long, value_name = "WHY")]
        anyway: Option<String>,
        /// Close it because nobody will finish it
        #[arg(long)]
        cancelled: bool,
        /// What was done, besides what its commits say; repeatable
        #[arg(long, value_name = "TEXT")]
        what: Vec<String>,
        /// Why, besides what its commits say
        #[arg(long, value_name = "TEXT")]
        why: Option<String>,
        /// Learning; repeatable
        #[arg(long, value_name = "TEXT")]
        learned: Vec<String>,
    },
    /// Open a closed issue again
    Reopen {
        /// Key
        key: String,
    },
}

/// `helmdeck forge issue add`.
#[derive(Debug, Args)]
pub(crate) struct IssueFields {
    /// Title
    pub(crate) title: String,
    /// Type: feature, bug, task or chore [default: task]
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// 1 urgent, 2 high, 3 normal, 4 low, 0 none
    #[arg(long, value_name = "NUMBER")]
    pub(crate) priority: Option<u8>,
    /// Text, in Markdown
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Label; repeatable
    #[arg(long, value_name = "LABEL")]
    pub(crate) label: Vec<String>,
    /// Assignee
    #[arg(long, value_name = "NAME")]
    pub(crate) assignee: Option<String>,
    /// Issue that must be done first; repeatable
    #[arg(long, value_name = "KEY")]
    pub(crate) blocked_by: Vec<String>,
    /// Issue that it is part of
    #[arg(long, value_name = "KEY")]
    pub(crate) parent: Option<String>,
    /// Milestone that it belongs to
    #[arg(long, value_name = "NAME")]
    pub(crate) milestone: Option<String>,
    /// What must hold before it is done; repeatable
    #[arg(long, value_name = "TEXT")]
    pub(crate) criterion: Vec<String>,
    /// Feature that it is about; repeatable
    #[arg(long, value_name = "ID")]
    pub(crate) feature: Vec<String>,
    /// Agent that is to work on it
    #[arg(long, value_name = "NAME")]
    pub(crate) persona: Option<String>,
    /// How the agent is to work on it
    #[arg(long, value_name = "WORD")]
    pub(crate) mode: Option<String>,
    /// Amount of work: small, medium, large
    #[arg(long, value_name = "WORD")]
    pub(crate) complexity: Option<String>,
    /// What led to it
    #[arg(long, value_name = "TEXT")]
    pub(crate) from: Option<String>,
    /// Store a snapshot of the current state, and link it
    #[arg(long)]
    pub(crate) snapshot: bool,
}

/// `helmdeck forge issue set`.
#[derive(Debug, Args)]
pub(crate) struct IssueEdit {
    /// Key
    pub(crate) key: String,
    /// New title
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// New type
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// New state
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
    /// 1 urgent, 2 high, 3 normal, 4 low, 0 none
    #[arg(long, value_name = "NUMBER")]
    pub(crate) priority: Option<u8>,
    /// New text, in Markdown
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// New labels, replacing the old ones; repeatable
    #[arg(long, value_name = "LABEL")]
    pub(crate) label: Vec<String>,
    /// New assignee
    #[arg(long, value_name = "NAME")]
    pub(crate) assignee: Option<String>,
    /// Issues that must be done first, replacing the old ones; repeatable
    #[arg(long, value_name = "KEY")]
    pub(crate) blocked_by: Vec<String>,
    /// Issue that it is part of
    #[arg(long, value_name = "KEY")]
    pub(crate) parent: Option<String>,
    /// Milestone that it belongs to
    #[arg(long, value_name = "NAME")]
    pub(crate) milestone: Option<String>,
    /// Criteria, replacing the old ones; those with the same text keep their mark; repeatable
    #[arg(long, value_name = "TEXT")]
    pub(crate) criterion: Vec<String>,
    /// Criterion that holds, by number or text; repeatable
    #[arg(long, value_name = "NUMBER")]
    pub(crate) check: Vec<String>,
    /// What shows it
    #[arg(long, value_name = "TEXT", requires = "check")]
    pub(crate) evidence: Option<String>,
    /// Criterion that does not hold; repeatable
    #[arg(long, value_name = "NUMBER")]
    pub(crate) uncheck: Vec<String>,
    /// Features that it is about, replacing the old ones; repeatable
    #[arg(long, value_name = "ID")]
    pub(crate) feature: Vec<String>,
    /// Agent that is to work on it
    #[arg(long, value_name = "NAME")]
    pub(crate) persona: Option<String>,
    /// How the agent is to work on it
    #[arg(long, value_name = "WORD")]
    pub(crate) mode: Option<String>,
    /// Amount of work
    #[arg(long, value_name = "WORD")]
    pub(crate) complexity: Option<String>,
    /// Comment to add, in Markdown
    #[arg(long, value_name = "TEXT")]
    pub(crate) comment: Option<String>,
    /// Author of the comment [default: the agent]
    #[arg(long, value_name = "NAME", requires = "comment")]
    pub(crate) by: Option<String>,
    /// Expected etag of the issue
    #[arg(long, value_name = "ETAG")]
    pub(crate) if_match: Option<String>,
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
