//! SIGINT and SIGTERM: both ask the program to stop in good order. [`end_after`] and
//! the second signal ([`crate::last_signal`]) end the process by themselves.

use std::sync::atomic::{AtomicI32, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};

#[cfg(feature = "serve")]
use crate::exit;
use crate::exit::Result;
use crate::last_signal;

/// The first signal that a command acted on; 0 = none.
static RECEIVED: AtomicI32 = AtomicI32::new(0);

/// Handler of both signals, active from its creation.
#[derive(Debug)]
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Catches both signals.
    ///
    /// Call it before the program reports that it is ready, so that no signal is missed.
    ///
    /// # Errors
    /// A failure if the system takes no handler.
    pub(crate) fn catch() -> Result<Self> {
        last_signal::watch()?;
        Self::unwatched()
    }

    /// As [`Self::catch`], without the thread that ends the process at the second signal.
    ///
    /// # Errors
    /// As [`Self::catch`].
    pub(crate) fn unwatched() -> Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next of either. Dropping the future loses none.
    pub(crate) async fn wait(&mut self) {
        let signal = self.next().await;
        let _ =
            RECEIVED.compare_exchange(0, signal.as_raw_value(), Ordering::SeqCst, Ordering::SeqCst);
        last_signal::noticed();
    }

    /// As [`Self::wait`], and returns the signal.
    pub(crate) async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
        }
    }
}

/// Returns the exit code that shells expect after the first handled signal: 128 plus its number.
pub(crate) fn exit_code() -> Option<u8> {
    let signal = RECEIVED.load(Ordering::SeqCst);
    u8::try_from(signal)
        .ok()
        .filter(|signal| *signal > 0)
        .map(|signal| 128 + signal)
}

/// Makes the exit code that of the failure which follows, not that of the signal.
#[cfg(feature = "serve")]
pub(crate) fn clear_received() {
    RECEIVED.store(0, Ordering::SeqCst);
}

/// Returns the outcome of a server that ended cleanly: success after SIGTERM, which is how to stop
/// it.
///
/// After Ctrl-C (SIGINT) the exit code is that of the signal, as everywhere.
#[cfg(feature = "serve")]
pub(crate) fn end_of_server() -> Result<()> {
    let interrupted = RECEIVED.load(Ordering::SeqCst) == SignalKind::interrupt().as_raw_value();
    if interrupted {
        Err(exit::Failure::silent(exit::Exit::Failed))
    } else {
        Ok(())
    }
}

/// Makes either signal end this process from now on, after running `last`.
///
/// `last` stops what would otherwise outlive the process.
///
/// # Errors
/// A failure if the system takes no handler.
pub(crate) fn end_after(last: impl FnOnce() + Send + 'static) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut stop = {
        let _inside = runtime.enter();
        Stop::unwatched()?
    };
    std::thread::spawn(move || {
        let signal = runtime.block_on(stop.next());
        last();
        end(128 + signal.as_raw_value());
    });
    Ok(())
}

#[expect(clippy::exit, reason = "a signal ends the process wherever it is")]
pub(crate) fn end(code: i32) -> ! {
    std::process::exit(code)
}
