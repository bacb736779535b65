//! SIGINT and SIGTERM: both ask the program to stop in good order. A second one ends it at once.

use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Result;

/// Waits for the first SIGINT or SIGTERM. From the first call on, neither ends the process by itself.
///
/// # Errors
/// A failure if the system takes no handler.
pub(crate) async fn stop() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
