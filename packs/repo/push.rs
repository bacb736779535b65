//! `repo.push`: pushes the changes of a session's work tree as a new branch.

use async_trait::async_trait;
use helmdeck_core::{Context, Handler, Json, Reply, Result};
use serde::{Deserialize, Serialize};

use super::changes::{self, Changed};
use super::checkout::Checkout;
use super::git::Git;
use super::publish::{self, Proposal};
use super::url::RepoUrl;

/// The largest patch that is pushed, in bytes.
const MAX_PATCH_BYTES: usize = 32 << 20;

/// The handler.
pub(super) struct Push(pub(super) Git);

#[derive(Deserialize)]
struct Input {
    path: String,
    branch: String,
    message: String,
    credential: Option<String>,
}

#[derive(Serialize)]
struct Output {
    branch: String,
    commit: String,
    base: String,
    files: Vec<Changed>,
    url: String,
}

#[async_trait]
impl Handler for Push {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let input: Input = input.read()?;
        let session = &**context.session()?;
        let checkout = Checkout::of(session, &input.path)?;
        context.report(Some(5.0), "looking for changes");
        let changes = changes::changes(session, &checkout, MAX_PATCH_BYTES).await?;
        let url = RepoUrl::parse(&checkout.url)?;
        let remote = self
            .0
            .open(&url, context.credential()?, input.credential.is_some())
            .await?;
        context.report(Some(50.0), "pushing");
        let proposal = Proposal {
            patch: &changes.patch,
            branch: &input.branch,
            message: &input.message,
        };
        let commit =
            publish::apply_and_push(&self.0, &remote, session, &checkout, proposal).await?;
        context.report(Some(100.0), "done");
        Reply::value(&Output {
            branch: input.branch,
            commit,
            base: checkout.commit,
            files: changes.files,
            url: checkout.url,
        })
    }
}
