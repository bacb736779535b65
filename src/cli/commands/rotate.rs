//! `helmdeck memory rotate`: re-encrypts every row with the current key while servers run.

use helmdeck_core::text::count;
use helmdeck_core::{Clock, SystemClock};
use std::time::Instant;

use helmdeck_memory::rotate::{End, RotateError, rotate};
use helmdeck_memory::{KeyRing, Store};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::exit::{Exit, Failure, Result};
use crate::gate;
use crate::progress::Steps;
use crate::signals::Stop;
use crate::wire::Setup;

/// Rotates the key of the store.
///
/// # Errors
/// Exit 3 without a key or a store; 78 if a key is missing; 8 if rows do not open, after everything
/// else is done; 1 if it was stopped, if another rotation runs, or if another process keeps writing
/// with another key.
pub(crate) async fn run(setup: &Setup) -> Result<()> {
    let Some(ring) = &setup.ring else {
        return Err(Failure::new(
            Exit::Absent,
            "no memory key is set, so there is nothing to rotate",
        ));
    };
    let Some(store) = setup.sealed_store().await? else {
        return Err(Failure::new(
            Exit::Absent,
            "there is no store yet; the first write creates it",
        ));
    };
    let answer = with_store(setup, &*store, ring).await;
    let closed = store.close().await;
    answer?;
    Ok(closed?)
}

async fn with_store(setup: &Setup, store: &dyn Store, ring: &KeyRing) -> Result<()> {
    let mut signals = Stop::catch()?;
    let (stop, start) = (CancellationToken::new(), Instant::now());
    let mut steps = Steps::new(setup.output, "resealed");
    let mut show = |progress: helmdeck_memory::rotate::Progress| {
        steps.at(progress.resealed, Some(progress.total))
    };
    let mut rotation = std::pin::pin!(rotate(store, ring, &stop, &mut show));
    let answer = tokio::select! {
        answer = &mut rotation => answer,
        () = signals.wait() => {
            stop.cancel();
            rotation.await
        }
    };
    let rotated = answer.map_err(failure)?;
    if rotated.end == End::Done {
        setup
            .system()?
            .reseal_tokens(SystemClock::default().now())
            .await?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let mut value = serde_json::to_value(&rotated).unwrap_or_default();
    value["seconds"] = json!((seconds * 1000.0).round() / 1000.0);
    setup.output.either(&value, || {
        let key = &rotated.key_id;
        let mut text = match (rotated.resealed, rotated.end) {
            (0, End::Done) => {
                format!("nothing to do: every row that opens is sealed with key {key}\n")
            }
            (rows, _) => format!(
                "sealed {} with key {key} in {seconds:.1} s\n",
                count(rows, "row")
            ),
        };
        if rotated.unreadable > 0 {
            let rows = rotated.unreadable;
            text.push_str(&format!(
                "{rows} rows do not open with the keys given; `helmdeck memory doctor` names them\n"
            ));
        }
        if rotated.end == End::Done && rotated.resealed > 0 {
            text.push_str(
                "the store now proves this key; previous keys can go once no process uses them\n",
            );
        }
        text
    })?;
    match rotated.end {
        End::Done if rotated.unreadable > 0 => Err(Failure::silent(Exit::Corrupt)),
        End::Done => Ok(()),
        End::Stopped => Err(Failure::new(
            Exit::Failed,
            format!("stopped with {} left", count(rotated.remaining, "row")),
        )
        .with_hint("run it again to go on; nothing was lost")),
        End::StillWritten => Err(Failure::new(
            Exit::Failed,
            format!(
                "{} rows of other keys were written meanwhile",
                rotated.remaining
            ),
        )
        .with_hint("restart every process with the new key as the current one, then run it again")),
    }
}

fn failure(error: RotateError) -> Failure {
    let hint = format!(
        "name the other keys in {}, separated by commas",
        gate::KEY_PREVIOUS
    );
    match error {
        RotateError::KeysMissing { .. } => {
            Failure::config(format!("memory: {error}")).with_hint(hint)
        }
        RotateError::Store(error) => error.into(),
        other => Failure::new(Exit::Failed, format!("memory: {other}")),
    }
}
