//! The `text.*` packs: answers about a text that depend on that text only.

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use helmdeck_conversation::TokenCounter;
use helmdeck_conversation::tokens::Counter;
use helmdeck_core::{Builtin, Code, Context, Error, Handler, Json, Reply, Result};
use serde::{Deserialize, Serialize};

use crate::blocking;

/// The manifests of this family have their schemas.
const SCHEMAS: &str = "";

/// Returns the packs of this family.
pub(crate) fn packs() -> Vec<Builtin> {
    vec![pack!("text", "count_tokens", CountTokens)]
}

/// Handler of `text.count_tokens`.
struct CountTokens;

#[derive(Deserialize)]
struct Input {
    text: String,
    encoding: TokenCounter,
}

#[derive(Serialize)]
struct Output {
    tokens: u64,
    characters: usize,
    bytes: usize,
}

#[async_trait]
impl Handler for CountTokens {
    async fn run(&self, _: Context, input: Json) -> Result<Reply> {
        let Input { text, encoding } = input.read()?;
        let counter = Counter::new(encoding).map_err(|error| Error::new(Code::Internal, error))?;
        // The first call builds the tokenizer's table.
        blocking(move || {
            Ok(Output {
                tokens: counter.count(&text),
                characters: text.chars().count(),
                bytes: text.len(),
            })
        })
        .await
    }
}
