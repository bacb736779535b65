//! `github.search`: issues, code, repositories or commits, by GitHub's search syntax.

use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::{Context, Handler, Json, Reply, Result, Upstream};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::client::{GitHubClient, Target};
use super::exchange::parse;
use super::model::{CodeHit, CommitHit, Issue, RawCommit, RepositoryHit};
use super::reading::{Reading, fill};

/// Maximum number of items in a page from GitHub.
const MAX_PER_PAGE: usize = 100;

pub(super) struct Search(pub(super) Arc<GitHubClient>);

#[derive(Deserialize)]
struct Input {
    query: String,
    #[serde(rename = "type")]
    kind: Kind,
    max_items: usize,
}

#[derive(Deserialize, Clone, Copy, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
enum Kind {
    Issues,
    Code,
    Repositories,
    Commits,
}

#[derive(Deserialize)]
struct Page<T> {
    total_count: u64,
    incomplete_results: bool,
    items: Vec<T>,
}

#[derive(Serialize)]
struct Output<T> {
    total_count: u64,
    /// GitHub ran out of time and did not look everywhere.
    incomplete: bool,
    truncated: bool,
    items: Vec<T>,
}

#[async_trait]
impl Handler for Search {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let input: Input = input.read()?;
        let per_page = input.max_items.min(MAX_PER_PAGE);
        let first = self.0.target(
            &["search", input.kind.into()],
            &[("q", &input.query), ("per_page", &per_page.to_string())],
        )?;

        let mut reading = Reading::new(&self.0, &context)?;
        if let Some(reply) = reading.unchanged(&first).await? {
            return Ok(reply);
        }
        match input.kind {
            Kind::Issues => find::<Issue, Issue>(reading, first, per_page, input.max_items).await,
            Kind::Code => find::<CodeHit, CodeHit>(reading, first, per_page, input.max_items).await,
            Kind::Repositories => {
                find::<RepositoryHit, RepositoryHit>(reading, first, per_page, input.max_items)
                    .await
            }
            Kind::Commits => {
                find::<RawCommit, CommitHit>(reading, first, per_page, input.max_items).await
            }
        }
    }

    fn upstream(&self) -> Option<Upstream> {
        // GitHub counts searches apart.
        let Upstream { name, keep_quota } = self.0.upstream();
        Some(Upstream {
            name: format!("{name}, search"),
            keep_quota,
        })
    }
}

async fn find<Raw: DeserializeOwned + Send, Hit: From<Raw> + Serialize>(
    mut reading: Reading<'_>,
    first: Target,
    per_page: usize,
    max_items: usize,
) -> Result<Reply> {
    let mut items: Vec<Raw> = Vec::new();
    let (mut total_count, mut incomplete) = (0, false);
    let more = reading
        .pages(first, per_page, |body| {
            let page: Page<Raw> = parse(body)?;
            total_count = page.total_count;
            incomplete |= page.incomplete_results;
            Ok(fill(&mut items, page.items, max_items, |_| true))
        })
        .await?;
    // Beyond the thousandth hit GitHub has no pages, whatever it counts.
    let truncated = more || total_count > items.len() as u64;
    let items = items.into_iter().map(Hit::from).collect();
    reading.reply(&Output::<Hit> {
        total_count,
        incomplete,
        truncated,
        items,
    })
}
