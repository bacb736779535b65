//! Prompts: the briefing of the project, and the end of a work session.
//!
//! Each is offered if the pack behind it is listed and the caller may run it.

use helmdeck_core::{Caller, Result};
use rmcp::model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role};

use super::resources::{ask, is_listed, may_ask};
use super::state::McpState;

/// The prompts, and the packs that they need.
const PRIME: (&str, &str) = ("prime", "forge.prime");
const SESSION_END: (&str, &str) = ("session_end", "forge.session_end");
/// The argument of `session_end`: what comes next.
const NEXT: &str = "next";
/// Maximum length of that argument, in characters.
const MAX_NEXT: usize = 500;

/// Says whether there are any prompts, for the capabilities.
pub(crate) fn are_offered(mcp: &McpState) -> bool {
    is_listed(mcp, PRIME.1)
}

/// Returns the prompts of a caller, sorted by name.
pub(crate) fn list(mcp: &McpState, caller: &Caller) -> Vec<Prompt> {
    let prime = Prompt::new(PRIME.0, Some("The briefing of the project: what a new session has to know"), None);
    let next = PromptArgument::new(NEXT).with_description("The next step, in one line").with_required(false);
    let end = "End the work session: store what was learned, and name the next step";
    let end = Prompt::new(SESSION_END.0, Some(end), Some(vec![next]));
    let all = [(PRIME, prime), (SESSION_END, end)];
    all.into_iter().filter(|((_, pack), _)| may_ask(mcp, caller, pack)).map(|(_, prompt)| prompt).collect()
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
    } else if offered(SESSION_END) {
        let next =
            arguments.and_then(|arguments| arguments.get(NEXT)).and_then(|next| next.as_str()).unwrap_or_default();
        end(&next.chars().take(MAX_NEXT).collect::<String>())
    } else {
        return Ok(None);
    };
    Ok(Some(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)])))
}

fn end(next: &str) -> String {
    let mut text = "End the work session of this project. First commit what is finished, with the tool forge__commit. \
                    Then call forge__session_end: in `learned`, what the next session should know; in `next`, the next \
                    step. If code stays uncommitted, say why in `leave_dirty`."
        .to_owned();
    if !next.trim().is_empty() {
        text.push_str(&format!(" The next step is: {next}"));
    }
    text
}
