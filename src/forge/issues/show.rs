//! `forge.issue_show`: show an issue.

use helmdeck_forge_documents::marks;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::graph::Graph;
use super::list::Item;
use super::names::Names;
use super::{Issues, absent, check_key, history, lines, start, store};
use crate::error::{Error, Result};
use crate::layout::{COMMENTS, HISTORY, ISSUES};
use crate::project::Project;
use crate::sessions::Sessions;
use crate::verb::{Access, ShellVerb, Verb};
use crate::view::{self, SeenCommit};

/// Show an issue with its criteria, comments and commits; a closed one with its summary
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct ShowIssue {
    /// Key of the issue, or an earlier one
    #[schemars(length(min = 1, max = 45))]
    pub key: String,
    /// Number of the newest commits to name that changed the issue's files
    #[serde(default)]
    #[schemars(range(max = 50))]
    #[cfg_attr(feature = "cli", arg(long, default_value_t, value_name = "NUMBER"))]
    pub changes: usize,
}

/// An issue with its version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IssueView {
    /// Version of the issue, for `if_match`
    pub etag: String,
    /// The issue with its standing.
    #[serde(flatten)]
    pub item: Item,
    /// Keys of other issues that had this number in another clone
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// Summary of an issue that is closed, in Markdown
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The newest commits that changed the issue's files, newest first, if they were asked for
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<SeenCommit>,
}

impl Verb for ShowIssue {
    const NAME: &'static str = "forge.issue_show";
    const ACCESS: Access = Access::Observe;
    type Output = IssueView;

    fn run(self, project: &Project) -> Result<IssueView> {
        let mut view = project.issues().show(&self.key)?;
        if self.changes > 0 {
            let name = view.item.issue.stem();
            let files = [
                format!("{ISSUES}/{name}.json"),
                format!("{HISTORY}/{name}.md"),
                format!("{COMMENTS}/{name}"),
            ];
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            // Without git, no commit is known.
            view.changes = view::revisions(project, &files, self.changes).unwrap_or_default();
        }
        Ok(view)
    }
}

impl ShellVerb for ShowIssue {
    fn text(view: &IssueView) -> String {
        let issue = &view.item.issue;
        let mut lines = vec![lines::line(issue)];
        if !view.item.over {
            lines.push(format!("  {}", view.item.standing()));
        }
        let mut list = |name: &str, all: &[&str]| {
            if !all.is_empty() {
                lines.push(format!("  {name}: {}", all.join(", ")));
            }
        };
        list("labels", &texts(&issue.labels));
        list("features", &texts(&issue.features));
        list("blocked by", &texts(&issue.blocked_by));
        list("part of", issue.parent().as_slice());
        list("milestone", issue.milestone.as_deref().as_slice());
        list("earlier keys", &issue.earlier_keys().collect::<Vec<_>>());
        list("had this number too", &texts(&view.also));
        if let Some(refs) = &issue.git_refs {
            list("branch", refs.branch.as_deref().as_slice());
            let short = refs.commits.iter().map(|oid| oid.get(..12).unwrap_or(oid));
            list("commits", &short.collect::<Vec<_>>());
        }
        list("seen at", issue.url.as_deref().as_slice());
        if let Some(summary) = &view.summary {
            lines.push(String::new());
            lines.push(summary.trim_end().to_owned());
        } else {
            let text = issue.description.iter();
            lines.extend(text.flat_map(|text| [String::new(), text.clone()]));
            if !issue.acceptance_criteria.is_empty() {
                lines.push(String::new());
                lines.extend(lines::criteria(issue));
            }
            for comment in &issue.comments {
                let by = comment.by.as_deref().unwrap_or("somebody");
                let at = comment.at.map(|at| format!(", {at}")).unwrap_or_default();
                lines.push(format!("\n{by}{at}:\n{}", comment.text));
            }
        }
        lines.push(format!("\netag: {}", view.etag));
        lines.join("\n")
    }
}

fn texts(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

impl Issues<'_> {
    /// Returns an issue by its key, or by an earlier key of it; one that is done too.
    ///
    /// # Errors
    /// `NotFound`; `Usage` for what is no key; `Corrupt`.
    pub fn show(&self, key: &str) -> Result<IssueView> {
        let (number, _) = marks::split(key);
        check_key(number).map_err(Error::usage)?;
        let active = self.read()?;
        let names = Names::read(self.project.files())?;
        let done: Vec<String> = names.done().map(|(key, _)| key.to_owned()).collect();
        let claimed = Sessions::new(self.project).claimed();
        let (issue, summary) = match active.find(key) {
            Some(issue) => (issue.clone(), None),
            None => {
                let record = history::find(self.project.files(), key)?;
                let record = record.ok_or_else(|| absent(key))?;
                (record.issue, Some(record.summary))
            }
        };
        let mut item = Graph::new(&active.issues, &done).item(&issue, &claimed);
        start::fill_refs(self.project, &mut item.issue);
        Ok(IssueView {
            etag: store::etag(&issue)?,
            item,
            also: names.also(number),
            summary,
            changes: Vec::new(),
        })
    }
}
