//! SIGINT and SIGTERM: both ask the program to stop in good order. It never ends the process by itself.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Result;

/// Both signals, caught from the moment it is made.
#[derive(Debug)]
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Catches both signals. Made before anybody is told that the program is ready, so that none slips through.
    ///
    /// # Errors
    /// A failure if the system takes no handler.
    pub(crate) fn catch() -> Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next of either. Dropping the future loses none.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
