//! `forge.start`, `forge.verify`, `forge.commit`, `forge.done`: a day's work.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::knowledge::Learn;
use crate::error::Result;
use crate::prime::{self, Primed};
use crate::project::Project;
use crate::sessions::{End, Sessions, Start as StartSession};
use crate::verb::{Access, Verb};
use crate::work::{Done, Finished, Short, ShortCommit, Start, Started, Verification, Verify, Work};

/// Input of `forge.start`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StartWork {
    /// Key of an issue, id of a feature, or title of a new issue, which has several words. Default:
    /// chosen
    #[schemars(length(min = 1, max = 500))]
    pub what: Option<String>,
    /// Session to continue. Default: this agent's session, else a new one
    #[schemars(length(min = 1, max = 64))]
    pub session: Option<String>,
    /// Branch to create or check out. Default: feature/KEY-title
    #[schemars(length(min = 1, max = 255))]
    pub branch: Option<String>,
    /// Stay on the current branch
    pub no_branch: bool,
    /// Work beside an active session, with a separate focus and progress. Then pass `session` in
    /// later calls
    pub join: bool,
    /// End the primary session that another agent left, and work in its place
    pub take_over: bool,
    /// Run the project's .forge/init.sh
    pub bootstrap: bool,
    /// Do not re-check passing features
    pub no_probe: bool,
    /// Maximum length of the briefing, in estimated tokens. Default: the project's setting (300)
    #[schemars(range(min = 300, max = 20_000))]
    pub budget: Option<usize>,
}

/// What was started, with the briefing.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StartedWork {
    /// What was started.
    #[serde(flatten)]
    pub started: Started,
    /// The briefing of the session
    pub prime: Primed,
}

impl Verb for StartWork {
    const NAME: &'static str = "forge.start";
    const ACCESS: Access = Access::Read;
    type Output = StartedWork;

    fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    fn run(self, project: &Project) -> Result<StartedWork> {
        let session = StartSession {
            join: self.join,
            take_over: self.take_over,
            bootstrap: self.bootstrap,
            no_probe: self.no_probe,
            budget: self.budget,
        };
        let started = Work::new(project).start(&Start {
            what: self.what,
            branch: self.branch,
            no_branch: self.no_branch,
            session,
        })?;
        let prime = prime::prime(&project.within(&started.session), self.budget)?;
        Ok(StartedWork { started, prime })
    }
}

/// Input of `forge.verify`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VerifyWork {
    /// Work session. Default: this agent's only active session, if there is one
    #[schemars(length(min = 1, max = 64))]
    pub session: Option<String>,
    /// Ids of features, such as FORGE-001. Default: those of the focus
    #[schemars(length(max = 1000), inner(length(min = 1, max = 128)))]
    pub ids: Vec<String>,
    /// All features that have tests
    pub all: bool,
    /// The features that passed before and are untested on the current code
    pub stale: bool,
}

impl Verb for VerifyWork {
    const NAME: &'static str = "forge.verify";
    const ACCESS: Access = Access::Change;
    type Output = Verification;

    fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    fn run(self, project: &Project) -> Result<Verification> {
        Work::new(project).verify(&Verify {
            ids: self.ids,
            all: self.all,
            stale: self.stale,
        })
    }
}

/// Input of `forge.commit`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitWork {
    /// Work session. Default: this agent's only active session, if there is one
    #[serde(default)]
    #[schemars(length(min = 1, max = 64))]
    pub session: Option<String>,
    /// What was done, in one line, without the key: the subject
    #[schemars(length(min = 1, max = 100))]
    pub what: String,
    /// More of what was done, one entry for each change
    #[serde(default)]
    #[schemars(length(max = 50), inner(length(min = 1, max = 1000)))]
    pub more: Vec<String>,
    /// Reason for the change. Default: the title of the issue
    #[serde(default)]
    #[schemars(length(min = 1, max = 4000))]
    pub why: Option<String>,
    /// Key of the issue, such as SX9-123. Default: that of the focus, else of the branch
    #[serde(default)]
    #[schemars(
        length(max = 45),
        regex(pattern = "^[A-Z][A-Z0-9]{0,9}-[1-9][0-9]{0,8}$")
    )]
    pub key: Option<String>,
    /// What was learned
    #[serde(default)]
    #[schemars(length(max = 20), inner(length(min = 1, max = 1000)))]
    pub learned: Vec<String>,
    /// Close the issue in the tracker when the commit is merged
    #[serde(default)]
    pub closes: bool,
    /// Files and folders to commit, relative to the root. Default: what is staged, else the changed
    /// files of the focus, else all changed files
    #[serde(default)]
    #[schemars(length(max = 1000), inner(length(min = 1, max = 1024)))]
    pub paths: Vec<String>,
}

impl Verb for CommitWork {
    const NAME: &'static str = "forge.commit";
    const ACCESS: Access = Access::Read;
    type Output = ShortCommit;

    fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    fn run(self, project: &Project) -> Result<ShortCommit> {
        Work::new(project).commit(&Short {
            what: self.what,
            more: self.more,
            why: self.why,
            key: self.key,
            learned: self.learned,
            closes: self.closes,
            paths: self.paths,
        })
    }
}

/// Input of `forge.done`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FinishWork {
    /// Work session. Default: this agent's only active session, if there is one
    #[schemars(length(min = 1, max = 64))]
    pub session: Option<String>,
    /// What was done, in one line: the subject of the commit of what is not committed, and the title
    /// of the checkpoint. Default: the title of the issue
    #[schemars(length(min = 1, max = 500))]
    pub message: Option<String>,
    /// Reason for finishing although a criterion is open or a feature does not pass
    #[schemars(length(min = 1, max = 4000))]
    pub anyway: Option<String>,
    /// What was learned, in the form of forge.remember
    #[schemars(length(max = 20))]
    pub learned: Vec<Learn>,
    /// Next step, in one line
    #[schemars(length(min = 1, max = 500))]
    pub next: Option<String>,
    /// Reason for ending the session with unfinished work: no checkpoint is made, the issue stays
    /// open, and code may stay uncommitted. It becomes the next step if `next` is absent
    #[schemars(length(min = 1, max = 500))]
    pub leave: Option<String>,
}

impl Verb for FinishWork {
    const NAME: &'static str = "forge.done";
    const ACCESS: Access = Access::Read;
    type Output = Finished;

    fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    fn run(self, project: &Project) -> Result<Finished> {
        let learned = self.learned.into_iter();
        let learned = learned
            .map(|learn| learn.learning(project))
            .collect::<Result<_>>()?;
        if self.leave.is_some() {
            let session = Sessions::new(project).end(&End {
                learned,
                next: self.next,
                leave_dirty: self.leave,
                key: None,
            })?;
            return Ok(Finished {
                committed: None,
                checkpoint: None,
                issue: None,
                session,
                warnings: Vec::new(),
            });
        }
        Work::new(project).done(&Done {
            message: self.message,
            anyway: self.anyway,
            learned,
            next: self.next,
            ..Done::default()
        })
    }
}
