//! `forge.issue_list`: list issues.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::graph::Graph;
use super::{Issue, Issues, history, lines};
use crate::error::Result;
use crate::project::Project;
use crate::sessions::Sessions;
use crate::verb::{Access, ShellVerb, Verb};
use crate::view::{ListPage, PageRequest};
use helmdeck_core::text::columns;

/// List issues, the most urgent first
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct ListIssues {
    /// Which issues
    #[cfg_attr(
        feature = "cli",
        arg(value_enum, default_value_t, hide_default_value = true)
    )]
    pub scope: Scope,
    /// Which page of them.
    #[serde(flatten)]
    #[cfg_attr(feature = "cli", command(flatten))]
    pub page: PageRequest,
}

/// Which issues a list holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Those that are not closed (default)
    #[default]
    Open,
    /// Open ones of mine
    Mine,
    /// Open ones that wait for nothing, and that no other session works on
    Ready,
    /// Closed ones
    Done,
    /// All of them
    All,
}

/// A list of issues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IssueList {
    /// Number of all issues by standing
    pub counts: IssueCounts,
    /// The issues.
    #[serde(flatten)]
    pub page: ListPage<Item>,
}

/// Number of issues by standing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IssueCounts {
    /// Not closed
    pub open: u64,
    /// Open, and can be started
    pub ready: u64,
    /// Open, and waiting for others
    pub blocked: u64,
    /// Closed
    pub done: u64,
}

/// An issue in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Item {
    /// True if it is closed
    pub over: bool,
    /// True if it is open, waits for nothing, and no other session works on it
    pub ready: bool,
    /// Issues that must be done first; absent if there are none
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// True if another session works on it
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub claimed: bool,
    /// The issue, as stored
    pub issue: Issue,
}

/// All issues of a scope.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// Number of all issues by standing.
    pub counts: IssueCounts,
    /// The issues: by priority, then by age, then by key. Those that are done come last, by key.
    pub issues: Vec<Item>,
}

impl Verb for ListIssues {
    const NAME: &'static str = "forge.issue_list";
    const ACCESS: Access = Access::Observe;
    type Output = IssueList;

    fn run(self, project: &Project) -> Result<IssueList> {
        let listed = project.issues().list(self.scope)?;
        let page = ListPage::of(listed.issues, &self.page, |item| {
            item.issue.linear_id.clone()
        })?;
        Ok(IssueList {
            counts: listed.counts,
            page,
        })
    }
}

impl ShellVerb for ListIssues {
    fn text(list: &IssueList) -> String {
        let rows: Vec<Vec<String>> = list.page.items.iter().map(Item::row).collect();
        let counts = &list.counts;
        let mut total = format!(
            "{} open, {} ready, {} waiting, {} done",
            counts.open, counts.ready, counts.blocked, counts.done
        );
        if let Some(next) = &list.page.next {
            total.push_str(&format!(", more with --after {next}"));
        }
        if rows.is_empty() && counts.open == 0 {
            return format!(
                "{total}\nnext: helmdeck forge start \"TITLE\" begins an issue, helmdeck forge \
                 issue add \"TITLE\" only adds it"
            );
        }
        format!("{}{total}", columns(&rows))
    }
}

impl Item {
    fn row(&self) -> Vec<String> {
        let issue = &self.issue;
        let text = |text: Option<&str>| text.unwrap_or("-").to_owned();
        vec![
            issue.linear_id.clone(),
            text(lines::priority(issue.priority)),
            text(issue.kind.as_deref()),
            text(issue.state.as_deref()),
            self.standing(),
            issue.title.clone(),
        ]
    }

    /// Returns whether it can be started, in words.
    pub(super) fn standing(&self) -> String {
        if self.over {
            "done".to_owned()
        } else if !self.waits_for.is_empty() {
            format!("waits for {}", self.waits_for.join(", "))
        } else if self.claimed {
            "another session".to_owned()
        } else if self.ready {
            "ready".to_owned()
        } else {
            "blocked".to_owned()
        }
    }
}

impl Issues<'_> {
    /// Lists issues.
    ///
    /// # Errors
    /// `Corrupt` if a file is damaged.
    pub fn list(&self, scope: Scope) -> Result<Listed> {
        let active = self.read()?;
        let done = history::keys(self.project.files())?;
        let claimed = Sessions::new(self.project).claimed();
        let graph = Graph::new(&active.issues, &done);
        let issues = active.issues.iter();
        let mut all: Vec<Item> = issues.map(|issue| graph.item(issue, &claimed)).collect();
        all.sort_by(|a, b| {
            (a.over, crate::sessions::issue_order(&a.issue))
                .cmp(&(b.over, crate::sessions::issue_order(&b.issue)))
        });
        let is_active = |key: &str| active.issues.iter().any(|issue| issue.linear_id == *key);
        let closed = done.iter().filter(|key| !is_active(key)).count();
        let count = |is: &dyn Fn(&Item) -> bool| all.iter().filter(|item| is(item)).count() as u64;
        let counts = IssueCounts {
            open: count(&|item| !item.over),
            ready: count(&|item| item.ready),
            blocked: count(&|item| !item.over && !item.waits_for.is_empty()),
            done: count(&|item| item.over) + closed as u64,
        };
        let me = self.me();
        all.retain(|item| match scope {
            Scope::Open => !item.over,
            Scope::Mine => {
                let owner = item.issue.owner();
                !item.over && owner.is_some_and(|owner| owner.trim().eq_ignore_ascii_case(me))
            }
            Scope::Ready => item.ready,
            Scope::Done => item.over,
            Scope::All => true,
        });
        if matches!(scope, Scope::Done | Scope::All) {
            for record in history::all(self.project.files())? {
                if !is_active(&record.issue.linear_id) {
                    all.push(graph.item(&record.issue, &claimed));
                }
            }
        }
        Ok(Listed {
            counts,
            issues: all,
        })
    }
}
