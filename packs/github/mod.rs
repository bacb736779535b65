//! The `github.*` family: GitHub over its REST API, on github.com or an Enterprise server.
//!
//! Reading packs revalidate their answers with conditional requests: an unchanged answer costs no
//! quota. Writing packs never repeat a request that may have been carried out. No error and no log
//! line contains a token.

mod classify;
mod client;
mod create;
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

use helmdeck_core::{Builtin, Clock};
use helmdeck_egress::Egress;
use url::Url;

use client::GitHubClient;
use create::{Create, NewComment, NewIssue, NewPull, NewRelease};

/// Settings of the `github.*` packs.
#[derive(Debug, Clone)]
pub struct Config {
    /// Root of the REST API: `https://api.github.com`, or `https://<host>/api/v3` on an Enterprise
    /// server.
    ///
    /// Its host and port are reachable even if they are not public.
    pub base_url: Url,
    /// The `User-Agent`; default `helmdeck/<version>`.
    pub user_agent: String,
    /// The wait before the first retry of a failed request, doubled for each further one; default
    /// 250 ms.
    pub retry_wait: Duration,
    /// Number of requests of a quota that are left for other uses than cached packs; default 0.
    pub keep_quota: u64,
}

impl Config {
    /// Makes a configuration with defaults for all but the root of the API.
    #[must_use]
    pub fn new(base_url: Url) -> Self {
        Self {
            base_url,
            user_agent: concat!("helmdeck/", env!("CARGO_PKG_VERSION")).to_owned(),
            retry_wait: Duration::from_millis(250),
            keep_quota: 0,
        }
    }

    /// Returns the host that repositories of this GitHub are fetched from.
    pub(crate) fn web_host(&self) -> Option<&str> {
        match self.base_url.host_str() {
            Some("api.github.com") => Some("github.com"),
            host => host,
        }
    }
}

/// The manifests of this family have their schemas.
const SCHEMAS: &str = "";

/// Returns the packs of this family. Connects to nothing yet.
pub(crate) fn packs(config: &Config, egress: &Egress, clock: &Arc<dyn Clock>) -> Vec<Builtin> {
    let shared = Arc::new(GitHubClient::new(config, egress, Arc::clone(clock)));
    let client = || Arc::clone(&shared);
    vec![
        pack!("github", "list_issues", list_issues::ListIssues(client())),
        pack!("github", "get_issue", get_issue::GetIssue(client())),
        pack!("github", "list_prs", list_prs::ListPrs(client())),
        pack!("github", "get_pr", get_pr::GetPr(client())),
        pack!("github", "search", search::Search(client())),
        pack!("github", "create_issue", Create::<NewIssue>::new(client())),
        pack!("github", "comment", Create::<NewComment>::new(client())),
        pack!("github", "create_pr", Create::<NewPull>::new(client())),
        pack!(
            "github",
            "create_release",
            Create::<NewRelease>::new(client())
        ),
    ]
}

#[cfg(test)]
mod tests;
