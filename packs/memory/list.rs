//! `memory.list`: lists facts about the caller, without their values.

use async_trait::async_trait;
use helmdeck_core::{Context, Handler, Json, Reply, Result};

pub(super) struct List;

#[async_trait]
impl Handler for List {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        Reply::value(&context.facts()?.list(input.read()?).await?)
    }
}
