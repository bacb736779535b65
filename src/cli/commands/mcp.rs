//! `helmdeck mcp`: serves packs to one MCP client over stdio, until the client leaves or a signal.
//!
//! stdout carries only the protocol; the log goes to stderr.

use std::sync::Arc;

use helmdeck_core::Caller;
use helmdeck_server::mcp::{LocalClient, Stdio};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::first_request::answer_first_request;
use super::serve::{start_sweeping, sweep_system};
use crate::args::Global;
use crate::env::ProcessEnvironment;
use crate::exit::{Failure, Result};
use crate::input::absolute_paths;
use crate::logging::WARN;
use crate::output::Output;
use crate::runtime::block_on;
use crate::signals::{self, Stop};
use crate::telemetry::Export;
use crate::wire::Setup;

/// Serves the client that started the program.
///
/// # Errors
/// A configuration failure; exit 1 if the client cannot be written to.
pub(crate) fn run(global: &Global, env: ProcessEnvironment, output: Output) -> Result<()> {
    let setup = Setup::load(global, Vec::new(), env, output, WARN);
    let setup = setup.inspect_err(|failure| answer_first_request(failure, output))?;
    block_on(serve(setup))
}

async fn serve(setup: Setup) -> Result<()> {
    let mut signals = Stop::catch()?;
    let engine = setup.serving_engine().await;
    let engine = engine.inspect_err(|failure| answer_first_request(failure, setup.output))?;
    engine.import_in_background();
    // A client may run this for weeks without a `serve` process that sweeps.
    start_sweeping(&setup, &engine);
    let settings = &setup.settings;
    let export = Export::start(&setup, &engine, &setup.conversations);
    let export = export.inspect_err(|failure| answer_first_request(failure, setup.output))?;
    let mut stdio = Stdio::new(
        engine.clone(),
        &settings.server,
        settings.mcp.clone(),
        Caller::local(),
    );
    stdio = stdio.tracer(export.tracer());
    if let Some(folder) = setup.env.working_dir() {
        let (folder, env) = (folder.to_owned(), setup.env.place());
        // If a path cannot be made absolute, the pack refuses it.
        let absolute =
            move |schema: &Value, text: &str| absolute_paths(schema, text, &env).ok().flatten();
        stdio = stdio.place(LocalClient {
            folder,
            absolute: Arc::new(absolute),
        });
    }
    let stop = CancellationToken::new();
    if let Ok(system) = setup.system() {
        tokio::spawn(stop.clone().run_until_cancelled_owned(sweep_system(system)));
    }
    tracing::info!("serving MCP over standard input and output");
    let mut served = std::pin::pin!(stdio.serve(stop.clone()));
    let answer = tokio::select! {
        answer = &mut served => answer,
        () = signals.wait() => {
            stop.cancel();
            // A second signal ends the wait, not the write-behind.
            tokio::select! { answer = served => answer, () = signals.wait() => Ok(()) }
        }
    };
    setup.shut_down(&engine).await;
    export.finish().await;
    answer.map_err(Failure::internal)?;
    signals::end_of_server()
}
