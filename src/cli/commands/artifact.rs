//! `helmdeck artifact`: lists, fetches and deletes files that packs produced, of all callers.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use futures_util::StreamExt;
use helmdeck_core::context::ByteStream;
use helmdeck_core::{Code, Error, Identity};
use helmdeck_engine::{ArtifactPage, Engine, is_damaged};
use serde_json::json;

use super::archive::{PendingFile, taken};
use crate::args::{ArtifactCommand, ArtifactGetArgs, ArtifactListArgs};
use crate::exit::{Exit, Failure, Result};
use crate::output::size;
use crate::signals::Stop;
use crate::wire::{MemoryUse, Setup};
use helmdeck_core::text::columns;

/// Limit of files in one list.
const MAX_LIMIT: usize = 10_000;

/// Runs `helmdeck artifact`.
///
/// # Errors
/// Exit 3 for a missing file; 2 for a target that exists; 8 for a damaged file; 1 if the artifact
/// storage does not answer.
pub(crate) async fn run(setup: &Setup, command: &ArtifactCommand) -> Result<()> {
    // These commands need no key, no vault and no packs folder.
    let engine = setup.engine_over(None, MemoryUse::Nothing, false).await?;
    let done = match command {
        ArtifactCommand::List(arguments) => list(setup, &engine, arguments).await,
        ArtifactCommand::Get(arguments) => get(setup, &engine, arguments).await,
        ArtifactCommand::Rm { keys } => remove(setup, &engine, keys).await,
        ArtifactCommand::Check => check(setup, &engine).await,
    };
    engine.shutdown().await;
    done
}

fn failure(error: Error) -> Failure {
    if is_damaged(&error) {
        return Failure::new(Exit::Corrupt, error.to_string());
    }
    let hint = match error.code() {
        Code::NotFound => "`helmdeck artifact list --all` shows the files that there are",
        _ => "`helmdeck artifact check` tries the place of the files; -v shows the cause",
    };
    tracing::debug!(cause = %error.cause(), "{error}");
    Failure::from(error).with_hint(hint)
}

async fn list(setup: &Setup, engine: &Engine, arguments: &ArtifactListArgs) -> Result<()> {
    if !(1..=MAX_LIMIT).contains(&arguments.limit) {
        return Err(Failure::usage(format!("--limit is 1 to {MAX_LIMIT}")));
    }
    let owner = match &arguments.user {
        _ if arguments.all => None,
        Some(user) => Some(Identity::new(&arguments.tenant, user).map_err(Failure::usage)?),
        None => Some(Identity::local()),
    };
    let page = engine
        .artifacts(
            owner.as_ref(),
            arguments.pack.as_ref(),
            arguments.limit,
            arguments.after.as_deref(),
        )
        .await;
    let page = page.map_err(failure)?;
    setup
        .output
        .either(&json!(page), || text(&page, arguments.all))
}

fn text(page: &ArtifactPage, all: bool) -> String {
    if page.artifacts.is_empty() && page.next.is_none() {
        let other = if all {
            ""
        } else {
            "; `helmdeck artifact list --all` lists the files of other callers"
        };
        return format!("there are no artifacts: a pack that makes files stores them{other}");
    }
    let mut rows = vec![
        ["CREATED", "ENDS", "SIZE", "TYPE", "KEY"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(page.artifacts.iter().map(|listed| {
        let artifact = &listed.artifact;
        // To the second: `2026-11-22T12:00:00`.
        let time = |text: String| {
            text.get(..19)
                .map_or(text.clone(), |time| time.replace('T', " "))
        };
        vec![
            time(listed.created_at.to_rfc3339()),
            time(artifact.expires_at.to_rfc3339()),
            size(artifact.size),
            artifact.media_type.clone(),
            artifact.key.clone(),
        ]
    }));
    if all {
        rows[0].insert(4, "OWNER".to_owned());
        for (row, listed) in rows[1..].iter_mut().zip(&page.artifacts) {
            row.insert(4, format!("{}/{}", listed.tenant, listed.user));
        }
    }
    let mut text = columns(&rows);
    if let Some(next) = &page.next {
        text.push_str(&format!("and more: --after {next}\n"));
    }
    text
}

async fn get(setup: &Setup, engine: &Engine, arguments: &ArtifactGetArgs) -> Result<()> {
    let to = &arguments.output;
    let to_stdout = to == Path::new("-");
    if !to_stdout && !arguments.force && to.symlink_metadata().is_ok() {
        return Err(taken(to));
    }
    let mut signals = Stop::catch()?;
    let (about, pieces) = engine
        .open_artifact(None, &arguments.key)
        .await
        .map_err(failure)?;
    let writing = async {
        if to_stdout {
            copy(pieces, io::stdout()).await?.flush()?;
            return Ok(());
        }
        let (pending, file) = PendingFile::beside(to)?;
        let file: File = copy(pieces, file).await?;
        let (path, force) = (to.clone(), arguments.force);
        tokio::task::spawn_blocking(move || pending.keep(&file, &path, force))
            .await
            .map_err(Failure::internal)?
    };
    tokio::select! {
        done = writing => done?,
        () = signals.wait() => return Err(Failure::new(Exit::Failed, "stopped before the file was whole")),
    }
    if to_stdout {
        return Ok(());
    }
    setup.output.either(&json!(about), || {
        format!(
            "{} ({}) written to {}",
            about.key,
            size(about.size),
            to.display()
        )
    })
}

/// Writes outside the runtime, because the reader of stdout may be slow.
async fn copy<W: Write + Send + 'static>(mut pieces: ByteStream, mut out: W) -> Result<W> {
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(failure)?;
        let write = move || out.write_all(&piece).map(|()| out);
        out = tokio::task::spawn_blocking(write)
            .await
            .map_err(Failure::internal)??;
    }
    Ok(out)
}

async fn remove(setup: &Setup, engine: &Engine, keys: &[String]) -> Result<()> {
    for key in keys {
        engine.delete_artifact(None, key).await.map_err(failure)?;
    }
    setup.output.either(&json!({"deleted": keys}), || {
        keys.iter()
            .map(|key| format!("deleted {key}\n"))
            .collect::<String>()
    })
}

async fn check(setup: &Setup, engine: &Engine) -> Result<()> {
    let place = crate::s3::shown_artifacts(&setup.settings);
    engine.probe_artifacts().await.map_err(failure)?;
    let value = json!({"place": place, "ok": true});
    setup
        .output
        .either(&value, || format!("{place}: written, read and deleted"))
}
