//! SIGINT and SIGTERM: both ask the program to stop in good order. Only [`end_after`] ends the process by itself.

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
        self.which().await;
    }

    /// As [`Self::wait`], and returns which one it was.
    async fn which(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
        }
    }
}

/// From now on either signal ends this process, as it does by itself, but after `last`: for what would go on without it.
///
/// # Errors
/// A failure if the system takes no handler.
pub(crate) fn end_after(last: impl FnOnce() + Send + 'static) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut stop = {
        let _inside = runtime.enter();
        Stop::catch()?
    };
    std::thread::spawn(move || {
        let signal = runtime.block_on(stop.which());
        last();
        end(128 + signal.as_raw_value());
    });
    Ok(())
}

#[expect(clippy::exit, reason = "a signal ends the process wherever it is")]
fn end(code: i32) -> ! {
    std::process::exit(code)
}
