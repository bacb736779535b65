//! `github.list_issues`: the issues of a repository, over the requested number of pages.

use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::{Context, Handler, Json, Reply, Result, Upstream};
use serde::{Deserialize, Serialize};

use super::client::GitHubClient;
use super::model::Issue;
use super::reading::Reading;
use super::repo::Repo;

pub(super) struct ListIssues(pub(super) Arc<GitHubClient>);

#[derive(Deserialize)]
struct Input {
    repo: Repo,
    state: String,
    #[serde(default)]
    labels: Vec<String>,
    assignee: Option<String>,
    since: Option<String>,
    sort: String,
    direction: String,
    per_page: usize,
    max_items: usize,
    include_pulls: bool,
}

#[derive(Serialize)]
struct Output {
    count: usize,
    truncated: bool,
    issues: Vec<Issue>,
}

#[async_trait]
impl Handler for ListIssues {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let input: Input = input.read()?;
        let (labels, per_page) = (input.labels.join(","), input.per_page.to_string());
        let mut query = vec![("state", input.state.as_str())];
        if !labels.is_empty() {
            query.push(("labels", &labels));
        }
        query.extend(
            input
                .assignee
                .as_deref()
                .map(|assignee| ("assignee", assignee)),
        );
        query.extend(input.since.as_deref().map(|since| ("since", since)));
        query.extend([
            ("sort", input.sort.as_str()),
            ("direction", &input.direction),
            ("per_page", &per_page),
        ]);
        let first = self.0.target(&input.repo.path(&["issues"]), &query)?;

        let mut reading = Reading::new(&self.0, &context)?;
        if let Some(reply) = reading.unchanged(&first).await? {
            return Ok(reply);
        }
        // GitHub lists pull requests among the issues and cannot be asked not to.
        let wanted = |issue: &Issue| input.include_pulls || !issue.is_pull_request;
        let (issues, truncated) = reading
            .list(first, input.per_page, input.max_items, wanted)
            .await?;
        reading.reply(&Output {
            count: issues.len(),
            truncated,
            issues,
        })
    }

    fn upstream(&self) -> Option<Upstream> {
        Some(self.0.upstream())
    }
}
