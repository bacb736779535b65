//! `memory.forget`: deletes what is kept for the caller.

use async_trait::async_trait;
use helmdeck_core::{Context, Handler, Json, Reply, Result};

pub(super) struct Forget;

#[async_trait]
impl Handler for Forget {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        Reply::value(&context.facts()?.forget(input.read()?).await?)
    }
}
