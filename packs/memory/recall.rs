//! `memory.recall`: gives back facts about the caller, with their values.

use async_trait::async_trait;
use helmdeck_core::{Context, Handler, Json, Reply, Result};

pub(super) struct Recall;

#[async_trait]
impl Handler for Recall {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        Reply::value(&context.facts()?.recall(input.read()?).await?)
    }
}
