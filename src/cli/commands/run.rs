//! `helmdeck run`: calls one pack and prints the outcome.

use std::sync::Arc;
use std::time::{Duration, Instant};

use helmdeck_core::{Call, Code, Error, Identity, Outcome};
use helmdeck_engine::{Engine, PackInfo};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::args::{CallArgs, RunArgs};
use crate::exit::{Exit, Failure, Result};
use crate::input;
use crate::lookup;
use crate::output::Output;
use crate::progress::Progress;
use crate::render::{self, OutputStyle};
use crate::signals::Stop;
use crate::wire::{MemoryUse, Setup};

/// Time limit for the sweep of a call.
const SWEEP: Duration = Duration::from_millis(100);
/// Limit of rows that the sweep removes.
const SWEEP_ROWS: usize = 256;

/// Runs a pack and prints its output.
///
/// Ctrl-C cancels the call, which then ends cleanly; a second one ends the program.
///
/// # Errors
/// The error of the call; a usage failure if the input does not fit.
pub(crate) async fn run(setup: &Setup, arguments: &RunArgs) -> Result<()> {
    if arguments.call.pack.is_none() {
        return Err(lookup::no_pack(setup, "run").await);
    }
    let starting = Progress::of_call(setup.output, false);
    let engine = Box::pin(starting.beside(setup.engine(MemoryUse::IfReachable, false))).await?;
    let mut stop = None;
    let ended = call_and_print(setup, &engine, arguments, &mut stop).await;
    let Some(answer) = ended.transpose() else {
        return Err(at_once());
    };
    match stop {
        None => leave(setup, &engine).await,
        Some(mut stop) => tokio::select! {
            () = leave(setup, &engine) => {}
            () = stop.wait() => return Err(at_once()),
        },
    }
    answer
}

/// Says whether a pack uses the store, so that a wrong key must be reported.
///
/// The manifest or the family of the pack decides.
fn needs_store(pack: &PackInfo) -> bool {
    let family = pack.name.as_str().split('.').next().unwrap_or_default();
    pack.cache.is_some()
        || !pack.invalidates.is_empty()
        || matches!(family, "memory" | "conversation")
}

fn at_once() -> Failure {
    Failure::new(
        Exit::Failed,
        "interrupted before everything had come to its end",
    )
}

/// Finishes the background work of a call.
async fn leave(setup: &Setup, engine: &Engine) {
    // Without `serve`, no other process sweeps. Each call removes expired files and a few expired
    // rows, if that is quick.
    let sweep = async {
        if let Some(memory) = engine.memory() {
            let _ = memory.store().sweep_expired(SWEEP_ROWS).await;
        }
        engine.sweep_files_once().await;
    };
    let _ = tokio::time::timeout(SWEEP, sweep).await;
    // A stale answer was printed already. Its revalidation must finish before the process ends, or
    // it would be stale the next time too.
    if let Some(memory) = engine.memory() {
        memory.finish_renewals().await;
    }
    // The answer is stored behind the response: the process must not end before it is.
    setup.shut_down(engine).await;
}

/// Runs the call; `None` if the program must end at once. Signals are caught from the start.
async fn call_and_print(
    setup: &Setup,
    engine: &Engine,
    arguments: &RunArgs,
    stop: &mut Option<Stop>,
) -> Result<Option<()>> {
    let waiting = Progress::of_call(setup.output, false);
    let (mut call, pack) = waiting.beside(make(setup, engine, &arguments.call)).await?;
    if let Some(error) = setup.refused_store.get()
        && needs_store(&pack)
    {
        return Err(error.clone().into());
    }
    let progress = Arc::new(Progress::of_call(setup.output, pack.asynchronous));
    call.directive = arguments.directive();
    call.administrator = true;
    call.max_age = arguments.max_age;
    call.max_stale = arguments.max_stale;
    call.deadline = arguments
        .timeout
        .and_then(|timeout| Instant::now().checked_add(timeout));
    call.progress = Some(Arc::clone(&progress) as _);
    let running = until_stopped(engine, call, &progress, stop.insert(Stop::catch()?));
    let Some(answer) = progress.beside(running).await else {
        return Ok(None);
    };
    let answer = answer.map_err(|error| explained(error, &pack))?;
    print(&setup.output, &answer, &pack.output).map(Some)
}

/// Adds what the pack waits for, if it waits for something, and the pack's name to the hint.
pub(crate) fn explained(error: Error, pack: &PackInfo) -> Failure {
    let failure = Failure::from(error).about_pack(pack.name.as_str());
    match pack.waits_for {
        Some(missing) => failure.with_hint(format!("{} waits for {missing}", pack.name)),
        None => failure,
    }
}

/// Waits for the answer of a call. The first signal cancels it; `None` at the second.
async fn until_stopped(
    engine: &Engine,
    mut call: Call,
    progress: &Progress,
    stop: &mut Stop,
) -> Option<Result<Outcome, Error>> {
    let cancel = CancellationToken::new();
    call.cancel = Some(cancel.clone());
    let mut running = std::pin::pin!(engine.call(call));
    tokio::select! {
        answer = &mut running => return Some(answer),
        () = stop.wait() => {}
    }
    progress.stopping();
    cancel.cancel();
    tokio::select! {
        // The call, its programs and its session have then all ended.
        answer = running => Some(answer.map_err(interrupted)),
        () = stop.wait() => None,
    }
}

/// Says whose doing it was.
fn interrupted(error: Error) -> Error {
    if error.code() == Code::Cancelled {
        Error::new(Code::Cancelled, "interrupted")
    } else {
        error
    }
}

/// Builds a call of the command line.
///
/// It finds the pack, reads the input by its schema and makes paths absolute.
///
/// # Errors
/// `not_found` for an unknown pack, or why the MCP server behind it does not answer; a usage
/// failure for an input that cannot be read.
pub(crate) async fn make(
    setup: &Setup,
    engine: &Engine,
    arguments: &CallArgs,
) -> Result<(Call, PackInfo)> {
    let wanted = arguments
        .pack
        .as_ref()
        .ok_or_else(|| Failure::usage("no pack is named"))?;
    let pack = lookup::find(engine, wanted, setup.output).await?;
    let mut bytes = match &arguments.input {
        Some(option) => input::read(option, &setup.env)?,
        None => input::of_pairs(&pack.input, &arguments.pairs, &setup.env)
            .map_err(|failure| {
                failure.or_hint(format!(
                    "`helmdeck pack show {}` prints what it takes",
                    pack.name
                ))
            })?
            .into_bytes(),
    };
    if let Ok(text) = std::str::from_utf8(&bytes)
        && let Some(absolute) = input::absolute_paths(&pack.input, text, &setup.env)?
    {
        bytes = absolute.into_bytes();
    }
    let mut identity = Identity::local();
    if let Some(session) = &arguments.session {
        identity = identity.with_session(session).map_err(Failure::usage)?;
    }
    let mut call = Call::new(pack.name.clone(), bytes, Arc::new(identity));
    call.version = wanted.version;
    Ok((call, pack))
}

/// Prints an outcome, for a person by the output schema of its pack.
pub(super) fn print(output: &Output, outcome: &Outcome, schema: &Value) -> Result<()> {
    if output.json {
        return output.result(&outcome.to_json());
    }
    let place = OutputStyle {
        terminal: output.terminals.stdout,
        paint: output.terminals.on_stdout(),
    };
    output.painted(&render::outcome(outcome, schema, place))?;
    output.note(&render::status(outcome));
    Ok(())
}
