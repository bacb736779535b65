//! Tests of the conversation memory from outside.
//!
//! They cover the transports, the documentation, and what no single crate can see.

mod cli;
mod cli_settings;
mod crash;
mod docs;
mod mcp;
mod packs;
mod replicas;
mod small_model;

use helmdeck_testkit::{ChatReply, ChatRequest};

/// Returns the marks of a text in their order: words like `mk_a_0001`.
fn marks(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("mk_"))
        .map(str::to_owned)
        .collect()
}

/// Answers as a model that never forgets: with all marks of the request, once each.
fn answer(request: &ChatRequest) -> ChatReply {
    let mut all = Vec::new();
    let mut known = std::collections::HashSet::new();
    for mark in marks(request.content(-1)) {
        if known.insert(mark.clone()) {
            all.push(mark);
        }
    }
    ChatReply::text(&all.join(" "))
}
