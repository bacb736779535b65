//! The packs that create something: `github.create_issue`, `comment`, `create_pr` and
//! `create_release`.

use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::{Context, Handler, Json, Reply, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::client::GitHubClient;
use super::exchange::Exchange;
use super::model::{Comment, Issue, Pull, Release};
use super::repo::Repo;

/// A body of a `POST` request, which is the pack's input without the repository.
pub(super) trait Body: DeserializeOwned + Serialize + Send + Sync + 'static {
    /// Answer of GitHub.
    type Created: DeserializeOwned + Serialize + Send + Sync;

    /// Returns the path below the repository.
    fn path(&self) -> Vec<String>;
}

/// Creates what a body describes.
pub(super) struct Create<B>(Arc<GitHubClient>, PhantomData<fn() -> B>);

impl<B> Create<B> {
    pub(super) const fn new(client: Arc<GitHubClient>) -> Self {
        Self(client, PhantomData)
    }
}

#[derive(Deserialize)]
struct Input<B> {
    repo: Repo,
    #[serde(flatten)]
    body: B,
}

#[async_trait]
impl<B: Body> Handler for Create<B> {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let Input { repo, body } = input.read::<Input<B>>()?;
        let path = body.path();
        let target = self.0.target(
            &repo.path(&path.iter().map(String::as_str).collect::<Vec<_>>()),
            &[],
        )?;
        let mut exchange = Exchange::new(&self.0, &context)?;
        let created: B::Created = exchange.post(target, &body).await?;
        exchange.reply(&created)
    }
}

#[derive(Deserialize, Serialize)]
pub(super) struct NewIssue {
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

impl Body for NewIssue {
    type Created = Issue;

    fn path(&self) -> Vec<String> {
        vec!["issues".to_owned()]
    }
}

#[derive(Deserialize, Serialize)]
pub(super) struct NewComment {
    #[serde(skip_serializing)]
    number: u64,
    body: String,
}

impl Body for NewComment {
    type Created = Comment;

    fn path(&self) -> Vec<String> {
        vec![
            "issues".to_owned(),
            self.number.to_string(),
            "comments".to_owned(),
        ]
    }
}

#[derive(Deserialize, Serialize)]
pub(super) struct NewPull {
    title: String,
    head: String,
    base: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    draft: bool,
    maintainer_can_modify: bool,
}

impl Body for NewPull {
    type Created = Pull;

    fn path(&self) -> Vec<String> {
        vec!["pulls".to_owned()]
    }
}

#[derive(Deserialize, Serialize)]
pub(super) struct NewRelease {
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

impl Body for NewRelease {
    type Created = Release;

    fn path(&self) -> Vec<String> {
        vec!["releases".to_owned()]
    }
}
