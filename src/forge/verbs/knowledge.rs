//! `forge.remember`, `forge.knowledge_search`: durable knowledge.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::knowledge::{Added, Kind, Knowledge, Learning, Search, SearchHit, What};
use crate::project::Project;
use crate::sessions::Sessions;
use crate::verb::{Access, Verb};
use crate::work::Work;

/// A new entry; without a kind, a text alone. The check of an invariant is a command, so callers
/// can't set it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Learn {
    /// successful: something that works. failed: something that does not. decision: something that
    /// was decided. invariant: something that must always hold
    pub kind: Option<Kind>,
    /// successful, failed, decision: the situation, what was tried, or the topic
    #[schemars(length(min = 1, max = 500))]
    pub context: Option<String>,
    /// successful: what to do
    #[schemars(length(min = 1, max = 4000))]
    pub approach: Option<String>,
    /// failed: what went wrong
    #[schemars(length(min = 1, max = 4000))]
    pub issue: Option<String>,
    /// failed: what helped, or why it was dropped
    #[schemars(length(min = 1, max = 4000))]
    pub resolution: Option<String>,
    /// decision: what was decided
    #[schemars(length(min = 1, max = 4000))]
    pub decision: Option<String>,
    /// decision: the reason
    #[schemars(length(min = 1, max = 4000))]
    pub rationale: Option<String>,
    /// Without kind: what was learned, as "when it applies: what works". invariant: what must hold
    #[schemars(length(min = 1, max = 4000))]
    pub text: Option<String>,
    /// invariant: severity if it does not hold. Default: error
    pub severity: Option<Severity>,
    /// Key of the issue, such as SX9-123
    #[schemars(
        length(max = 45),
        regex(pattern = "^[A-Z][A-Z0-9]{0,9}-[1-9][0-9]{0,8}$")
    )]
    pub linear: Option<String>,
    /// Files and folders it is about, relative to the root of the repository
    #[schemars(length(max = 100), inner(length(min = 1, max = 1024)))]
    pub paths: Vec<String>,
}

/// How bad it is if an invariant does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The project is broken.
    Error,
    /// It should be looked at.
    Warning,
    /// It is worth knowing.
    Info,
}

impl Learn {
    /// Returns what was learned.
    ///
    /// # Errors
    /// `Usage` if a text is missing that its kind has, or there is one that it has not.
    pub(super) fn learning(mut self, project: &Project) -> Result<Learning> {
        let (linear, paths) = (self.linear.take(), std::mem::take(&mut self.paths));
        let Some(kind) = self.kind else {
            let text = self
                .text
                .take()
                .ok_or_else(|| Error::usage("say what to remember: \"text\", or a \"kind\""))?;
            self.refuse_left("a learning without a kind")?;
            let learning = Work::new(project).learning(&text)?;
            return Ok(Learning {
                linear: linear.or(learning.linear),
                paths,
                ..Learning::new(learning.what)
            });
        };
        let what = match kind {
            Kind::Successful => What::Successful {
                context: wanted(kind, "context", self.context.take())?,
                approach: wanted(kind, "approach", self.approach.take())?,
            },
            Kind::Failed => What::Failed {
                context: wanted(kind, "context", self.context.take())?,
                issue: wanted(kind, "issue", self.issue.take())?,
                resolution: wanted(kind, "resolution", self.resolution.take())?,
            },
            Kind::Decision => What::Decision {
                context: wanted(kind, "context", self.context.take())?,
                decision: wanted(kind, "decision", self.decision.take())?,
                rationale: wanted(kind, "rationale", self.rationale.take())?,
            },
            Kind::Invariant => What::Invariant {
                text: wanted(kind, "text", self.text.take())?,
                severity: self.severity.take().map(Severity::word),
                check: None,
            },
        };
        self.refuse_left(&format!("a learning of the kind {}", word(kind)))?;
        Ok(Learning {
            linear,
            paths,
            ..Learning::new(what)
        })
    }

    /// Refuses the texts that are not used.
    fn refuse_left(self, what: &str) -> Result<()> {
        let left = [
            ("context", self.context.is_some()),
            ("approach", self.approach.is_some()),
            ("issue", self.issue.is_some()),
            ("resolution", self.resolution.is_some()),
            ("decision", self.decision.is_some()),
            ("rationale", self.rationale.is_some()),
            ("text", self.text.is_some()),
            ("severity", self.severity.is_some()),
        ];
        match left.iter().find(|(_, left)| *left) {
            Some((name, _)) => Err(Error::usage(format!("{name:?} is nothing that {what} has"))),
            None => Ok(()),
        }
    }
}

impl Severity {
    fn word(self) -> String {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
        .to_owned()
    }
}

fn wanted(kind: Kind, name: &str, text: Option<String>) -> Result<String> {
    text.ok_or_else(|| {
        Error::usage(format!(
            "a learning of the kind {} needs {name:?}",
            word(kind)
        ))
    })
}

const fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Successful => "successful",
        Kind::Failed => "failed",
        Kind::Decision => "decision",
        Kind::Invariant => "invariant",
    }
}

/// Input of `forge.remember`: what is remembered, and what it replaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Remember {
    /// Work session. Default: this agent's only active session, if there is one
    #[schemars(length(min = 1, max = 64))]
    pub session: Option<String>,
    /// Id of an entry that no longer holds, or its first 6 or more characters. It stays, and names
    /// this one
    #[schemars(length(min = 6, max = 64))]
    pub replaces: Option<String>,
    /// What is remembered.
    #[serde(flatten)]
    pub what: Learn,
}

/// What was remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Remembered {
    /// The entry.
    #[serde(flatten)]
    pub added: Added,
    /// Id of the entry that it replaces
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<String>,
}

impl Verb for Remember {
    const NAME: &'static str = "forge.remember";
    const ACCESS: Access = Access::Change;
    type Output = Remembered;

    fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    fn run(self, project: &Project) -> Result<Remembered> {
        let learning = self.what.learning(project)?;
        let Some(id) = self.replaces else {
            return Ok(Remembered {
                added: Sessions::new(project).learn(learning)?,
                replaced: None,
            });
        };
        let session = Sessions::new(project).mine()?.map(|session| session.id);
        let learning = Learning {
            session,
            ..learning
        };
        let done = Knowledge::new(project).supersede(&id, &learning, None)?;
        Ok(Remembered {
            added: done.by,
            replaced: Some(done.id),
        })
    }
}

/// Input of `forge.knowledge_search`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SearchKnowledge {
    /// Words to search for; or an id, or its first 6 characters
    #[schemars(length(max = 2048))]
    pub query: String,
    /// Maximum number of entries
    #[schemars(range(min = 1, max = 50))]
    pub limit: usize,
    /// Only these kinds
    #[schemars(length(max = 4))]
    pub kinds: Vec<Kind>,
    /// Include superseded entries
    pub superseded: bool,
}

impl Default for SearchKnowledge {
    fn default() -> Self {
        Self {
            query: String::new(),
            limit: 10,
            kinds: Vec::new(),
            superseded: false,
        }
    }
}

impl Verb for SearchKnowledge {
    const NAME: &'static str = "forge.knowledge_search";
    const ACCESS: Access = Access::Read;
    type Output = SearchHit;

    fn run(self, project: &Project) -> Result<SearchHit> {
        Knowledge::new(project).search(&Search {
            query: self.query,
            limit: Some(self.limit),
            kinds: self.kinds,
            superseded: self.superseded,
        })
    }
}
