//! `github.get_pr`: one pull request, with its diff on request.

use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::{Code, Context, Handler, Json, Reply, Result, Upstream};
use serde::{Deserialize, Serialize};

use super::client::{Form, GitHubClient, Target};
use super::model::PullDetail;
use super::reading::Reading;
use super::repo::Repo;

pub(super) struct GetPr(pub(super) Arc<GitHubClient>);

#[derive(Deserialize)]
struct Input {
    repo: Repo,
    number: u64,
    with_diff: bool,
}

#[derive(Serialize)]
struct Output {
    #[serde(flatten)]
    pull: PullDetail,
    /// Absent unless requested; `null` if it is too large for GitHub or for us.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<Option<String>>,
}

#[async_trait]
impl Handler for GetPr {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let input: Input = input.read()?;
        let first = self
            .0
            .target(&input.repo.path(&["pulls", &input.number.to_string()]), &[])?;
        let as_diff = Target(Form::Diff, first.1.clone());

        let mut reading = Reading::new(&self.0, &context)?;
        if let Some(reply) = reading.unchanged(&first).await? {
            return Ok(reply);
        }
        let pull = reading.object(first).await?;
        let mut diff = None;
        if input.with_diff {
            diff = Some(match reading.read(as_diff).await {
                // Files in a repository may be in any encoding.
                Ok(received) => Some(String::from_utf8_lossy(&received.body).into_owned()),
                Err(error) if error.code() == Code::TooLarge => None,
                Err(error) => return Err(error),
            });
        }
        reading.reply(&Output { pull, diff })
    }

    fn upstream(&self) -> Option<Upstream> {
        Some(self.0.upstream())
    }
}
