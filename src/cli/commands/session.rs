//! `helmdeck session`: lists sessions, runs a command in one, or ends one, also while a server uses
//! it.

use std::io::Read;
use std::time::Duration;

use helmdeck_core::session::{Captured, Ended, Exec, Executed};
use helmdeck_core::{Clock, Identity, SystemClock};
use helmdeck_engine::{Engine, SessionInfo};
use serde_json::json;

use crate::args::{SessionCommand, SessionExecArgs};
use crate::exit::{Exit, Failure, Result};
use crate::signals::Stop;
use crate::table::table;
use crate::wire::{MemoryUse, Setup};

/// Limit of stdin for a command, in bytes.
const MAX_STDIN: u64 = 64 << 20;

/// Runs `helmdeck session`.
///
/// # Errors
/// Exit 3 for a session that is not found or not the local caller's; the exit code of a command
/// that fails, after printing its output, and 1 if it was killed for exceeding a limit; a failure
/// if sessions cannot be used here.
pub(crate) async fn run(setup: &Setup, command: &SessionCommand) -> Result<()> {
    let engine = setup.engine(MemoryUse::Nothing, false).await?;
    let answer = match command {
        SessionCommand::List => list(setup, &engine).await,
        SessionCommand::Exec(arguments) => exec(setup, &engine, arguments).await,
        SessionCommand::End { id } => end(setup, &engine, id).await,
    };
    engine.shutdown().await;
    answer
}

async fn list(setup: &Setup, engine: &Engine) -> Result<()> {
    let sessions = engine.sessions(None).await?;
    let now = SystemClock::default().now();
    setup.output.either(&json!({ "sessions": sessions }), || {
        if sessions.is_empty() {
            return "there are no sessions".to_owned();
        }
        let rows = sessions.iter().map(|session: &SessionInfo| {
            let left = Duration::from_secs(session.expires_at.since(now).as_secs());
            [
                session.id.clone(),
                format!("{}/{}", session.tenant, session.user),
                session.pack.clone(),
                if session.preserved { "yes" } else { "no" }.to_owned(),
                format!("in {}", helmdeck_core::duration::format_duration(left)),
            ]
        });
        table(["ID", "CALLER", "PACK", "KEPT", "ENDS"], rows)
    })
}

async fn end(setup: &Setup, engine: &Engine, id: &str) -> Result<()> {
    engine.end_session(None, id).await.map_err(missing)?;
    setup
        .output
        .either(&json!({ "ended": id }), || format!("ended {id}"))
}

async fn exec(setup: &Setup, engine: &Engine, arguments: &SessionExecArgs) -> Result<()> {
    let session = engine
        .session(&Identity::local(), &arguments.id)
        .await
        .map_err(missing)?;
    let mut command = Exec::new(arguments.argv.clone());
    command.timeout = arguments.timeout;
    command.cwd.clone_from(&arguments.cwd);
    if arguments.stdin {
        command.stdin = stdin()?.into();
    }
    let mut stop = Stop::catch()?;
    let executed = tokio::select! {
        executed = session.exec(command) => executed?,
        // Dropping the command kills it.
        () = stop.wait() => return Err(Failure::new(Exit::Failed, "interrupted, and the command was killed")),
    };
    print(setup, &executed)?;
    let how = match executed.ended {
        Ended::Exited(0) => return Ok(()),
        // The command printed its own error.
        Ended::Exited(status) => return Err(Failure::of_child(exit_code(status))),
        Ended::Signalled(signal) => {
            return Err(Failure::of_child(exit_code(signal.saturating_add(128))));
        }
        Ended::TimedOut => "the command took longer than it may and was killed".to_owned(),
        Ended::OutOfMemory => "the command took more memory than it may and was killed".to_owned(),
        Ended::OutOfDisk => {
            "the session's folder holds more than it may, and the command was killed".to_owned()
        }
    };
    Err(if setup.output.json {
        Failure::silent(Exit::Failed)
    } else {
        Failure::new(Exit::Failed, how)
    })
}

/// Returns the exit code of the command as an exit code of this process.
fn exit_code(status: i32) -> u8 {
    u8::try_from(status).unwrap_or(Exit::Failed as u8)
}

fn stdin() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(MAX_STDIN + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_STDIN {
        return Err(Failure::usage("what comes on stdin is over 64 MiB"));
    }
    Ok(bytes)
}

fn print(setup: &Setup, executed: &Executed) -> Result<()> {
    let text = |captured: &Captured| -> String {
        let mut text = String::from_utf8_lossy(&captured.head).into_owned();
        if captured.left_out > 0 {
            text.push_str(&format!("\n[{} bytes left out]\n", captured.left_out));
            text.push_str(&String::from_utf8_lossy(&captured.tail));
        }
        text
    };
    let (stdout, stderr) = (text(&executed.stdout), text(&executed.stderr));
    if setup.output.json {
        let (ended, status) = match executed.ended {
            Ended::Exited(status) => ("exited", Some(status)),
            Ended::Signalled(signal) => ("signalled", Some(signal)),
            Ended::TimedOut => ("timed_out", None),
            Ended::OutOfMemory => ("out_of_memory", None),
            Ended::OutOfDisk => ("out_of_disk", None),
        };
        return setup.output.value(&json!({
            "ended": ended, "status": status, "stdout": stdout, "stderr": stderr,
            "duration_ms": u64::try_from(executed.duration.as_millis()).unwrap_or(u64::MAX),
        }));
    }
    if !stderr.trim().is_empty() {
        setup.output.text_on_stderr(stderr.trim_end());
    }
    match stdout.is_empty() {
        true => Ok(()),
        false => setup.output.text(stdout.trim_end_matches('\n')),
    }
}

fn missing(error: helmdeck_core::Error) -> Failure {
    let absent = error.code() == helmdeck_core::Code::NotFound;
    let failure = Failure::from(error);
    if absent {
        failure.with_hint("`helmdeck session list` shows those that there are")
    } else {
        failure
    }
}
