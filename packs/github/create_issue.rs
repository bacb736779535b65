//! `github.create_issue`: opens an issue.

use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::{Context, Handler, Json, Reply, Result};
use serde::{Deserialize, Serialize};

use super::client::Client;
use super::exchange::Exchange;
use super::model::Issue;
use super::repo::Repo;

pub(super) struct CreateIssue(pub(super) Arc<Client>);

#[derive(Deserialize)]
struct Input {
    repo: Repo,
    #[serde(flatten)]
    issue: NewIssue,
}

#[derive(Deserialize, Serialize)]
struct NewIssue {
    title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    labels: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    assignees: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    milestone: Option<u64>,
}

#[async_trait]
impl Handler for CreateIssue {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let input: Input = input.read()?;
        let target = self.0.target(&input.repo.path(&["issues"]), &[])?;
        let mut exchange = Exchange::new(&self.0, &context)?;
        let issue: Issue = exchange.post(target, &input.issue).await?;
        exchange.reply(&issue)
    }
}
