//! `helmdeck conversation`: conversations on the command line, beside a running server or without one.
//!
//! A command folds nothing by itself: it ends before a model would have answered. A server does, and `fold`.

mod add;
mod change;
mod read;
mod snapshot;

use std::io::Read;

use helmdeck_conversation::{ConversationMemory, Identity, Trace};
use serde::Serialize;

use crate::app::internal;
use crate::args::{ConversationCommand, ConversationIdArgs, WhoseArgs};
use crate::exit::{Failure, Result};
use crate::wire::Setup;

/// The tenant and the user of whoever runs a command.
const LOCAL: &str = "local";

/// Runs one of the commands.
///
/// # Errors
/// Exit 3 without a memory key, or for a turn that there is not; 78 if nobody can sum up; 8 if what is stored does not open; 2 for an
/// argument that cannot be; 1 if the store cannot be reached, or a turn or snapshot is refused.
pub(crate) async fn run(setup: &Setup, command: &ConversationCommand) -> Result<()> {
    use ConversationCommand as C;
    let writes = matches!(command, C::Add(_) | C::Restore { .. });
    let opened = setup.conversation(writes, matches!(command, C::Fold { .. })).await?;
    let on = CommandContext { setup, memory: &opened.memory };
    let answer = match command {
        C::Add(arguments) => add::run(&on, arguments).await,
        C::Context { which, prompt } => read::context(&on, which, *prompt).await,
        C::Health { which } => read::health(&on, which).await,
        C::Trace { which } => read::trace(&on, which).await,
        C::Snapshot(arguments) => snapshot::take(&on, arguments).await,
        C::Restore { which, file, yes } => snapshot::restore(&on, which, file, *yes).await,
        C::List(arguments) => read::list(&on, arguments).await,
        C::Show { which, key } => read::show(&on, which, key).await,
        C::Delete { which, key, yes } => change::delete(&on, which, key, *yes).await,
        C::Flush { which, yes } => change::flush(&on, which, *yes).await,
        C::Forget { which, yes } => change::forget(&on, which, *yes).await,
        C::Fold { which, within } => change::fold(&on, which, *within).await,
    };
    let closed = opened.close().await;
    if matches!(command, C::Fold { .. }) {
        setup.close_vault().await;
    }
    answer.and(closed)
}

/// What a command works on.
struct CommandContext<'a> {
    setup: &'a Setup,
    memory: &'a ConversationMemory,
}

impl CommandContext<'_> {
    /// Prints a value as JSON, or as the text that `text` makes, as the caller wishes.
    fn print<T: Serialize>(&self, value: &T, text: impl FnOnce() -> String) -> Result<()> {
        let output = &self.setup.output;
        // Straight into bytes: numbers in what a user was shown stay as they were written.
        if output.json { output.result(&serde_json::to_vec(value).map_err(internal)?) } else { output.text(&text()) }
    }

    /// Says what is there of a conversation, in words that follow "replace" and "remove". What does not open is there too.
    async fn held(&self, identity: &Identity) -> Result<String> {
        let name = shown(identity);
        match self.memory.trace(identity).await {
            Ok(trace) => Ok(format!("{} of {name}", parts(&trace))),
            Err(helmdeck_conversation::ConversationError::Corrupt(_)) => Ok(format!("the damaged conversation {name}")),
            Err(error) => Err(error.into()),
        }
    }
}

fn parts(trace: &Trace) -> String {
    let turns = crate::output::count(usize::try_from(trace.kept_turns).unwrap_or(usize::MAX), "turn");
    if trace.summary.is_empty() { turns } else { format!("{turns} and the summary") }
}

/// Returns the conversation that is meant.
fn identity(which: &ConversationIdArgs) -> Identity {
    let WhoseArgs { subject, tenant } = &which.whose;
    Identity::new(tenant.as_deref().unwrap_or(LOCAL), subject.as_deref().unwrap_or(LOCAL), &which.session)
}

/// Returns a conversation as people write it: `tenant/user/session`.
fn shown(identity: &Identity) -> String {
    format!("{}/{}/{}", identity.tenant, identity.user, identity.session)
}

/// Reads all of an input that may be endless.
///
/// # Errors
/// A usage failure if it cannot be read or has more than `limit` bytes.
fn read_all(from: impl Read, limit: u64, name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    if bytes.len() as u64 > limit {
        return Err(Failure::usage(format!("{name} has more than {limit} bytes")));
    }
    Ok(bytes)
}

/// Cuts the fraction off an RFC 3339 time.
fn seconds(time: &str) -> &str {
    time.split_once('.').map_or(time, |(whole, _)| whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_is_the_local_callers_unless_said_otherwise() {
        let which = |subject: Option<&str>, tenant: Option<&str>| {
            let whose = WhoseArgs { subject: subject.map(str::to_owned), tenant: tenant.map(str::to_owned) };
            shown(&identity(&ConversationIdArgs { session: "s".to_owned(), whose }))
        };
        assert_eq!(which(None, None), "local/local/s");
        assert_eq!(which(Some("alice"), Some("acme")), "acme/alice/s");
    }

    #[test]
    fn an_endless_input_is_cut_off() {
        assert!(read_all(std::io::repeat(b' '), 10, "x").unwrap_err().message().contains("more than 10 bytes"));
        assert_eq!(read_all(&b"0123456789"[..], 10, "x").unwrap().len(), 10);
    }
}
