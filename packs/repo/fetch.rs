//! `repo.fetch`: brings a repository into a session.

use async_trait::async_trait;
use helmdeck_core::{Context, Handler, Json, Reply, Result};
use serde::{Deserialize, Serialize};

use super::checkout;
use super::git::Git;
use super::mirror::Wish;
use super::url::RepoUrl;

/// The handler.
pub(super) struct Fetch(pub(super) Git);

#[derive(Deserialize)]
struct Input {
    repo_url: String,
    #[serde(rename = "ref")]
    reference: Option<String>,
    depth: Option<u32>,
    path: String,
    credential: Option<String>,
}

#[derive(Serialize)]
struct Output {
    path: String,
    commit: String,
    #[serde(rename = "ref")]
    reference: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_branch: Option<String>,
    url: String,
}

#[async_trait]
impl Handler for Fetch {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let input: Input = input.read()?;
        let session = context.session()?;
        let url = RepoUrl::parse(&input.repo_url)?;
        context.report(Some(5.0), "asking the repository");
        let remote = self
            .0
            .open(&url, context.credential()?, input.credential.is_some())
            .await?;
        context.report(Some(10.0), "fetching");
        let wish = Wish {
            reference: input.reference.clone(),
            depth: input.depth,
        };
        let checkout =
            checkout::check_out(&self.0, &remote, &**session, &input.path, &wish).await?;
        context.report(Some(100.0), "done");
        let reference = checkout
            .branch
            .clone()
            .or(input.reference)
            .unwrap_or_else(|| checkout.commit.clone());
        Reply::value(&Output {
            path: checkout.path,
            commit: checkout.commit,
            reference,
            default_branch: checkout.default_branch,
            url: checkout.url,
        })
    }
}
