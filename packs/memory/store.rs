//! `memory.store`: keeps a fact about the caller.

use async_trait::async_trait;
use helmdeck_core::{Context, Handler, Json, Reply, Result};

pub(super) struct Store;

#[async_trait]
impl Handler for Store {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        Reply::value(&context.facts()?.store(input.read()?).await?)
    }
}
