//! `github.comment`: adds a comment to an issue or a pull request.

use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::{Context, Handler, Json, Reply, Result};
use serde::{Deserialize, Serialize};

use super::client::Client;
use super::exchange::Exchange;
use super::model;
use super::repo::Repo;

pub(super) struct Comment(pub(super) Arc<Client>);

#[derive(Deserialize)]
struct Input {
    repo: Repo,
    number: u64,
    body: String,
}

#[derive(Serialize)]
struct NewComment {
    body: String,
}

#[async_trait]
impl Handler for Comment {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let input: Input = input.read()?;
        let target = self.0.target(&input.repo.path(&["issues", &input.number.to_string(), "comments"]), &[])?;
        let mut exchange = Exchange::new(&self.0, &context)?;
        let comment: model::Comment = exchange.post(target, &NewComment { body: input.body }).await?;
        exchange.reply(&comment)
    }
}
