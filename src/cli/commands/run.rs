//! `helmdeck run`: one call of a pack, from the command line to the outcome.

use std::sync::Arc;
use std::time::{Duration, Instant};

use helmdeck_core::{Call, Code, Error, Identity, Outcome};
use helmdeck_engine::Engine;

use crate::args::{CallArgs, RunArgs};
use crate::exit::{Failure, Result};
use crate::input;
use crate::output::Output;
use crate::progress::Progress;
use crate::render;
use crate::signals::Stop;
use crate::wire::{MemoryUse, Setup};

/// The longest that a call's own sweep may take.
const SWEEP: Duration = Duration::from_millis(100);
/// The most rows that it takes.
const SWEEP_ROWS: usize = 256;

/// Runs a pack and prints what it answered.
///
/// # Errors
/// Whatever the call answers; a usage failure if the input does not fit.
pub(crate) async fn run(setup: &Setup, arguments: &RunArgs) -> Result<()> {
    let engine = setup.engine(MemoryUse::IfReachable, false).await?;
    let answer = call_and_print(setup, &engine, arguments).await;
    if let Some(memory) = engine.memory() {
        // Nobody else sweeps for who never runs `serve`: a few rows that have ended go with each call, if that is quick.
        let _ = tokio::time::timeout(SWEEP, memory.store().sweep_expired(SWEEP_ROWS)).await;
    }
    // The answer is stored behind the response: the process must not end before it is.
    engine.shutdown().await;
    setup.close_vault().await;
    answer
}

async fn call_and_print(setup: &Setup, engine: &Engine, arguments: &RunArgs) -> Result<()> {
    let mut call = make(setup, engine, &arguments.call).await?;
    let progress = Arc::new(Progress::new(setup.output));
    call.directive = arguments.directive();
    call.max_age = arguments.max_age;
    call.max_stale = arguments.max_stale;
    call.deadline = arguments.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    call.progress = Some(Arc::clone(&progress) as _);
    let mut stop = Stop::catch()?;
    let answer = tokio::select! {
        answer = engine.call(call) => answer.map_err(Failure::from),
        // Dropping the call cancels it.
        () = stop.wait() => Err(Error::new(Code::Cancelled, "interrupted").into()),
    };
    progress.clear();
    print(&setup.output, &answer?)
}

/// Makes a call of the command line: finds the pack, reads the input by its schema, makes paths absolute.
///
/// # Errors
/// `not_found` for an unknown pack, or why the MCP server behind it does not answer; a usage failure for an input that
/// cannot be read.
pub(crate) async fn make(setup: &Setup, engine: &Engine, arguments: &CallArgs) -> Result<Call> {
    engine.await_pack(arguments.pack.name.as_str()).await?;
    let pack = engine.pack(arguments.pack.name.as_str(), arguments.pack.version)?;
    let mut bytes = match &arguments.input {
        Some(option) => input::read(option, &setup.env)?,
        None => input::of_pairs(&pack.input, &arguments.pairs)?.into_bytes(),
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
    let mut call = Call::new(arguments.pack.name.clone(), bytes, Arc::new(identity));
    call.version = arguments.pack.version;
    Ok(call)
}

fn print(output: &Output, outcome: &Outcome) -> Result<()> {
    if output.json {
        return output.result(&outcome.to_json());
    }
    output.text(&render::outcome(outcome))?;
    output.note(&render::status(outcome));
    Ok(())
}
