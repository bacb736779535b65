//! Shared context of the conversation commands: the conversation they name, reading, printing.

use std::io::Read;

use helmdeck_conversation::{ConversationMemory, Identity, Trace};
use serde::Serialize;

use crate::args::{ConversationIdArgs, WhoseArgs};
use crate::exit::{Failure, Result};
use crate::wire::Setup;

/// The default tenant and user.
pub(super) const LOCAL: &str = "local";

/// Context of a conversation command.
pub(super) struct CommandContext<'a> {
    pub(super) setup: &'a Setup,
    pub(super) memory: &'a ConversationMemory,
}

impl CommandContext<'_> {
    /// Prints a value as JSON, or as the text that `text` makes.
    pub(super) fn print<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        let output = &self.setup.output;
        // Serialize straight to bytes, so that numbers in stored text stay unchanged.
        if output.json {
            output.result(&serde_json::to_vec(value).map_err(Failure::internal)?)
        } else {
            output.text(&text())
        }
    }

    /// Describes what a conversation holds, as an object of "replace" and "remove".
    pub(super) async fn held(&self, identity: &Identity) -> Result<String> {
        Ok(held(identity, self.trace(identity).await?.as_ref()))
    }

    /// Returns the trace of a conversation; `None` if the conversation is damaged.
    pub(super) async fn trace(&self, identity: &Identity) -> Result<Option<Trace>> {
        match self.memory.trace(identity).await {
            Ok(trace) => Ok(Some(trace)),
            Err(helmdeck_conversation::ConversationError::Corrupt(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Describes what a conversation holds, by its trace; `None` = it is damaged.
pub(super) fn held(identity: &Identity, trace: Option<&Trace>) -> String {
    let name = shown(identity);
    trace.map_or_else(
        || format!("the damaged conversation {name}"),
        |trace| format!("{} of {name}", parts(trace)),
    )
}

pub(super) fn parts(trace: &Trace) -> String {
    let turns = helmdeck_core::text::count(trace.kept_turns, "turn");
    if trace.summary.is_empty() {
        turns
    } else {
        format!("{turns} and the summary")
    }
}

/// Returns the conversation that the arguments name.
pub(super) fn identity(which: &ConversationIdArgs) -> Identity {
    let WhoseArgs { subject, tenant } = &which.whose;
    Identity::new(
        tenant.as_deref().unwrap_or(LOCAL),
        subject.as_deref().unwrap_or(LOCAL),
        &which.session,
    )
}

/// Returns a conversation as people write it: `tenant/user/session`.
pub(super) fn shown(identity: &Identity) -> String {
    format!("{}/{}/{}", identity.tenant, identity.user, identity.session)
}

/// Reads all of an input that may be endless.
///
/// # Errors
/// A usage failure if it cannot be read or has more than `limit` bytes.
pub(super) fn read_all(from: impl Read, limit: u64, name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    if bytes.len() as u64 > limit {
        return Err(Failure::usage(format!(
            "{name} has more than {limit} bytes"
        )));
    }
    Ok(bytes)
}

/// Cuts the fraction off an RFC 3339 time.
pub(super) fn seconds(time: &str) -> &str {
    time.split_once('.').map_or(time, |(whole, _)| whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_is_the_local_callers_unless_said_otherwise() {
        let which = |subject: Option<&str>, tenant: Option<&str>| {
            let whose = WhoseArgs {
                subject: subject.map(str::to_owned),
                tenant: tenant.map(str::to_owned),
            };
            shown(&identity(&ConversationIdArgs {
                session: "s".to_owned(),
                whose,
            }))
        };
        assert_eq!(which(None, None), "local/local/s");
        assert_eq!(which(Some("alice"), Some("acme")), "acme/alice/s");
    }

    #[test]
    fn an_endless_input_is_cut_off() {
        assert!(
            read_all(std::io::repeat(b' '), 10, "x")
                .unwrap_err()
                .message()
                .contains("more than 10 bytes")
        );
        assert_eq!(read_all(&b"0123456789"[..], 10, "x").unwrap().len(), 10);
    }
}
