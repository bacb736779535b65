//! `github.list_prs`: the pull requests of a repository, over the requested number of pages.

use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::{Context, Handler, Json, Reply, Result, Upstream};
use serde::{Deserialize, Serialize};

use super::client::GitHubClient;
use super::model::Pull;
use super::reading::Reading;
use super::repo::Repo;

pub(super) struct ListPrs(pub(super) Arc<GitHubClient>);

#[derive(Deserialize)]
struct Input {
    repo: Repo,
    state: String,
    head: Option<String>,
    base: Option<String>,
    sort: String,
    direction: Option<String>,
    per_page: usize,
    max_items: usize,
}

#[derive(Serialize)]
struct Output {
    count: usize,
    truncated: bool,
    prs: Vec<Pull>,
}

#[async_trait]
impl Handler for ListPrs {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let input: Input = input.read()?;
        // GitHub ignores a head without its owner and lists everything.
        let head = input.head.map(|head| {
            if head.contains(':') {
                head
            } else {
                format!("{}:{head}", input.repo.owner)
            }
        });
        let per_page = input.per_page.to_string();
        let mut query = vec![("state", input.state.as_str())];
        query.extend(head.as_deref().map(|head| ("head", head)));
        query.extend(input.base.as_deref().map(|base| ("base", base)));
        query.push(("sort", &input.sort));
        query.extend(
            input
                .direction
                .as_deref()
                .map(|direction| ("direction", direction)),
        );
        query.push(("per_page", &per_page));
        let first = self.0.target(&input.repo.path(&["pulls"]), &query)?;

        let mut reading = Reading::new(&self.0, &context)?;
        if let Some(reply) = reading.unchanged(&first).await? {
            return Ok(reply);
        }
        let (prs, truncated) = reading
            .list(first, input.per_page, input.max_items, |_: &Pull| true)
            .await?;
        reading.reply(&Output {
            count: prs.len(),
            truncated,
            prs,
        })
    }

    fn upstream(&self) -> Option<Upstream> {
        Some(self.0.upstream())
    }
}
