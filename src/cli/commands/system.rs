//! `helmdeck system move`: copies the system database into another one, of any driver.

use std::sync::Arc;

use helmdeck_core::{Clock, SystemClock};
use helmdeck_engine::{JobBook, JobQuery};
use helmdeck_system::System;
use serde_json::json;

use crate::args::{SystemCommand, SystemMoveArgs};
use crate::exit::{Exit, Failure, Result};
use crate::table::table;
use crate::wire::Setup;

/// Runs `helmdeck system`.
///
/// # Errors
/// A usage failure for two equal databases or one that is not a URL; exit 3 if the source does not
/// exist; a failure if a database cannot be reached, the target has rows of its own, a job has not
/// ended, or the copy differs.
pub(crate) async fn run(setup: &Setup, command: &SystemCommand) -> Result<()> {
    match command {
        SystemCommand::Move(arguments) => copy(setup, arguments).await,
    }
}

async fn copy(setup: &Setup, arguments: &SystemMoveArgs) -> Result<()> {
    let source = database(setup, arguments.from.as_deref())?;
    let target = database(setup, arguments.to.as_deref())?;
    let (from, to) = (source.location(), target.location());
    if from == to {
        return Err(Failure::usage(format!(
            "source and target are the same: {from}"
        )));
    }
    if !source.exists().await? {
        return Err(Failure::new(
            Exit::Absent,
            format!("there is no system database at {from}"),
        ));
    }
    end_lost(setup, &source).await?;
    let copied = source.copy_to(&target).await?;
    let rows = copied
        .iter()
        .map(|table| [table.table.to_owned(), table.rows.to_string()]);
    setup
        .output
        .either(&json!({"from": from, "to": to, "tables": copied}), || {
            format!(
                "{}\n{to} now holds the same as {from}",
                table(["TABLE", "ROWS"], rows)
            )
        })
}

fn database(setup: &Setup, url: Option<&str>) -> Result<System> {
    match url {
        Some(url) => crate::system::at(url, &setup.settings.memory.store()),
        None => setup.system(),
    }
}

/// Ends the jobs of servers that are gone. Reading jobs does it.
async fn end_lost(setup: &Setup, source: &System) -> Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let book = JobBook::new(
        source.clone(),
        None,
        clock,
        setup.settings.engine.jobs.retention,
    );
    book.jobs(
        None,
        &JobQuery {
            state: None,
            after: None,
            limit: 1,
        },
    )
    .await?;
    Ok(())
}
