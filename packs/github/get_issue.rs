//! `github.get_issue`: one issue, with its comments on request.

use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::{Context, Handler, Json, Reply, Result, Upstream};
use serde::{Deserialize, Serialize};

use super::client::GitHubClient;
use super::model::{Comment, Issue};
use super::reading::Reading;
use super::repo::Repo;

/// Maximum number of comments in one answer.
const MAX_COMMENTS: usize = 1000;

pub(super) struct GetIssue(pub(super) Arc<GitHubClient>);

#[derive(Deserialize)]
struct Input {
    repo: Repo,
    number: u64,
    with_comments: bool,
}

#[derive(Serialize)]
struct Output {
    #[serde(flatten)]
    issue: Issue,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<Vec<Comment>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_truncated: Option<bool>,
}

#[async_trait]
impl Handler for GetIssue {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let input: Input = input.read()?;
        let number = input.number.to_string();
        let first = self.0.target(&input.repo.path(&["issues", &number]), &[])?;

        let mut reading = Reading::new(&self.0, &context)?;
        if let Some(reply) = reading.unchanged(&first).await? {
            return Ok(reply);
        }
        let issue = reading.object(first).await?;
        let (mut thread, mut thread_truncated) = (None, None);
        if input.with_comments {
            let comments = self.0.target(
                &input.repo.path(&["issues", &number, "comments"]),
                &[("per_page", "100")],
            )?;
            let (found, truncated) = reading.list(comments, 100, MAX_COMMENTS, |_| true).await?;
            (thread, thread_truncated) = (Some(found), Some(truncated));
        }
        reading.reply(&Output {
            issue,
            thread,
            thread_truncated,
        })
    }

    fn upstream(&self) -> Option<Upstream> {
        Some(self.0.upstream())
    }
}
