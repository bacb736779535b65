//! `github.create_pr`: opens a pull request.

use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::{Context, Handler, Json, Reply, Result};
use serde::{Deserialize, Serialize};

use super::client::Client;
use super::exchange::Exchange;
use super::model::Pull;
use super::repo::Repo;

pub(super) struct CreatePr(pub(super) Arc<Client>);

#[derive(Deserialize)]
struct Input {
    repo: Repo,
    #[serde(flatten)]
    pull: NewPull,
}

#[derive(Deserialize, Serialize)]
struct NewPull {
    title: String,
    head: String,
    base: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    draft: bool,
    maintainer_can_modify: bool,
}

#[async_trait]
impl Handler for CreatePr {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let input: Input = input.read()?;
        let target = self.0.target(&input.repo.path(&["pulls"]), &[])?;
        let mut exchange = Exchange::new(&self.0, &context)?;
        let pull: Pull = exchange.post(target, &input.pull).await?;
        exchange.reply(&pull)
    }
}
