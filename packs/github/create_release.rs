//! `github.create_release`: publishes a release, or drafts one.

use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::{Context, Handler, Json, Reply, Result};
use serde::{Deserialize, Serialize};

use super::client::Client;
use super::exchange::Exchange;
use super::model::Release;
use super::repo::Repo;

pub(super) struct CreateRelease(pub(super) Arc<Client>);

#[derive(Deserialize)]
struct Input {
    repo: Repo,
    #[serde(flatten)]
    release: NewRelease,
}

#[derive(Deserialize, Serialize)]
struct NewRelease {
    tag_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_commitish: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    draft: bool,
    prerelease: bool,
    generate_release_notes: bool,
}

#[async_trait]
impl Handler for CreateRelease {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let input: Input = input.read()?;
        let target = self.0.target(&input.repo.path(&["releases"]), &[])?;
        let mut exchange = Exchange::new(&self.0, &context)?;
        let release: Release = exchange.post(target, &input.release).await?;
        exchange.reply(&release)
    }
}
