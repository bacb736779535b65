//! The `github.*` family: GitHub over its REST API, on github.com or an Enterprise server.
//!
//! Reading packs confirm what they answered before with conditional requests, so that an unchanged answer costs no quota.
//! Writing packs never send a request twice that may have been carried out. No error and no log line holds a token.

mod classify;
mod client;
mod comment;
mod create_issue;
mod create_pr;
mod create_release;
mod exchange;
mod get_issue;
mod get_pr;
mod link;
mod list_issues;
mod list_prs;
mod model;
mod reading;
mod repo;
mod search;

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{Builtin, Clock, Handler};
use helmdeck_egress::Egress;
use url::Url;

use client::Client;

/// Where GitHub is and how it is spoken to.
#[derive(Debug, Clone)]
pub struct Config {
    /// The root of the REST API; `https://api.github.com` unless said otherwise, `https://<host>/api/v3` on an Enterprise
    /// server. Its host and port may be reached even where they are not public.
    pub base_url: Url,
    /// What helmdeck calls itself; `helmdeck/<version>` unless said otherwise.
    pub user_agent: String,
    /// The wait before the first repetition of a failed request, doubled for each one after it; 250 ms unless said otherwise.
    pub retry_wait: Duration,
}

impl Config {
    /// Makes a configuration with defaults for all but the root of the API.
    #[must_use]
    pub fn new(base_url: Url) -> Self {
        Self {
            base_url,
            user_agent: concat!("helmdeck/", env!("CARGO_PKG_VERSION")).to_owned(),
            retry_wait: Duration::from_millis(250),
        }
    }
}

impl Config {
    /// Returns the host that repositories of this GitHub are fetched from.
    pub(crate) fn web_host(&self) -> Option<&str> {
        match self.base_url.host_str() {
            Some("api.github.com") => Some("github.com"),
            host => host,
        }
    }
}

/// Returns the packs of this family. Connects to nothing yet.
pub(crate) fn packs(config: &Config, egress: &Egress, clock: &Arc<dyn Clock>) -> Vec<Builtin> {
    let client = Arc::new(Client::new(config, egress, Arc::clone(clock)));
    let pack = |file, manifest, handler: Arc<dyn Handler>| Builtin { file, manifest, handler };
    vec![
        pack(
            "packs/github/list_issues.toml",
            include_str!("list_issues.toml"),
            Arc::new(list_issues::ListIssues(Arc::clone(&client))),
        ),
        pack(
            "packs/github/get_issue.toml",
            include_str!("get_issue.toml"),
            Arc::new(get_issue::GetIssue(Arc::clone(&client))),
        ),
        pack(
            "packs/github/list_prs.toml",
            include_str!("list_prs.toml"),
            Arc::new(list_prs::ListPrs(Arc::clone(&client))),
        ),
        pack("packs/github/get_pr.toml", include_str!("get_pr.toml"), Arc::new(get_pr::GetPr(Arc::clone(&client)))),
        pack("packs/github/search.toml", include_str!("search.toml"), Arc::new(search::Search(Arc::clone(&client)))),
        pack(
            "packs/github/create_issue.toml",
            include_str!("create_issue.toml"),
            Arc::new(create_issue::CreateIssue(Arc::clone(&client))),
        ),
        pack(
            "packs/github/comment.toml",
            include_str!("comment.toml"),
            Arc::new(comment::Comment(Arc::clone(&client))),
        ),
        pack(
            "packs/github/create_pr.toml",
            include_str!("create_pr.toml"),
            Arc::new(create_pr::CreatePr(Arc::clone(&client))),
        ),
        pack(
            "packs/github/create_release.toml",
            include_str!("create_release.toml"),
            Arc::new(create_release::CreateRelease(client)),
        ),
    ]
}

#[cfg(test)]
mod tests;
