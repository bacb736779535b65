//! Prompts: the briefing of the project, and the end of the work.
//!
//! Each is offered if the pack behind it is listed and the caller may run it.

use helmdeck_core::{Caller, Result};
use rmcp::model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role};

use super::resources::{ask, is_listed, may_ask};
use super::state::McpState;

/// The prompts, and the packs that they need.
const PRIME: (&str, &str) = ("prime", "forge.prime");
const DONE: (&str, &str) = ("done", "forge.done");
/// The argument of `done`: what comes next.
const NEXT: &str = "next";
/// Maximum length of that argument, in characters.
const MAX_NEXT: usize = 500;

/// Says whether there are any prompts, for the capabilities.
pub(crate) fn are_offered(mcp: &McpState) -> bool {
    is_listed(mcp, PRIME.1)
}

/// Returns the prompts of a caller, sorted by name.
pub(crate) fn list(mcp: &McpState, caller: &Caller) -> Vec<Prompt> {
    let prime = Prompt::new(
        PRIME.0,
        Some("The briefing of the project: what a new session has to know"),
        None,
    );
    let next = PromptArgument::new(NEXT)
        .with_description("The next step, in one line")
        .with_required(false);
    let done = "Finish the work: checkpoint, close the issue, store what was learned, and name the next step";
    let done = Prompt::new(DONE.0, Some(done), Some(vec![next]));
    let all = [(DONE, done), (PRIME, prime)];
    all.into_iter()
        .filter(|((_, pack), _)| may_ask(mcp, caller, pack))
        .map(|(_, prompt)| prompt)
        .collect()
}

/// Returns a prompt. `None` if it is none of ours, or the caller has no such prompt.
///
/// # Errors
/// The errors of the pack.
pub(crate) async fn get(
    mcp: &McpState,
    caller: &Caller,
    name: &str,
    arguments: Option<&JsonObject>,
) -> Result<Option<GetPromptResult>> {
    let offered = |(own, pack): (&str, &str)| name == own && may_ask(mcp, caller, pack);
    let text = if offered(PRIME) {
        let primed = ask(mcp, caller, PRIME.1, "{}".to_owned()).await?;
        primed["text"].as_str().unwrap_or_default().to_owned()
    } else if offered(DONE) {
        let next = arguments
            .and_then(|arguments| arguments.get(NEXT))
            .and_then(|next| next.as_str())
            .unwrap_or_default();
        finish(&next.chars().take(MAX_NEXT).collect::<String>())
    } else {
        return Ok(None);
    };
    Ok(Some(GetPromptResult::new(vec![PromptMessage::new_text(
        Role::User,
        text,
    )])))
}

fn finish(next: &str) -> String {
    let mut text = "Finish the work on this project. First commit what is finished, with the tool forge__commit. Then \
                    call forge__done: in `learned`, what the next session should know; in `next`, the next step. If \
                    the work is unfinished, say why in `leave`."
        .to_owned();
    if !next.trim().is_empty() {
        text.push_str(&format!(" The next step is: {next}"));
    }
    text
}
