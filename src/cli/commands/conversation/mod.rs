//! `helmdeck conversation`: conversations on the command line, with or without a running server.
//!
//! Only `fold` summarises: the other commands end before a model could answer. A server summarises
//! in the background.

mod add;
mod change;
mod context;
mod read;
mod snapshot;

use self::context::CommandContext;
use crate::args::ConversationCommand;
use crate::exit::Result;
use crate::wire::Setup;

/// Runs a command.
///
/// # Errors
/// Exit 3 without a memory key, or for a turn that is not found; 78 if no summarizer is configured;
/// 8 if a stored row does not open; 2 for an invalid argument; 1 if the store cannot be reached, or
/// a turn or snapshot is refused.
pub(crate) async fn run(setup: &Setup, command: &ConversationCommand) -> Result<()> {
    use ConversationCommand as C;
    let writes = matches!(
        command,
        C::Add(_) | C::Restore { .. } | C::Pin { goal: Some(_), .. }
    );
    let opened = setup
        .conversation(writes, matches!(command, C::Fold { .. }))
        .await?;
    let on = CommandContext {
        setup,
        memory: &opened.memory,
    };
    let answer = match command {
        C::Add(arguments) => add::run(&on, arguments).await,
        C::Context { which, format } => read::context(&on, which, *format).await,
        C::Health { which } => read::health(&on, which).await,
        C::Trace { which } => read::trace(&on, which).await,
        C::Snapshot(arguments) => snapshot::take(&on, arguments).await,
        C::Restore { which, file, yes } => snapshot::restore(&on, which, file, *yes).await,
        C::List(arguments) => read::list(&on, arguments).await,
        C::Show { which, key } => read::show(&on, which, key).await,
        C::Delete { which, key, yes } => change::delete(&on, which, key, *yes).await,
        C::Pin { which, goal, clear } => change::pin(&on, which, goal.as_deref(), *clear).await,
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
