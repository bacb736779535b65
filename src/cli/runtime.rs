//! The runtimes of the commands.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::exit::Result;

/// Time limit for abandoned work on other threads at the end.
const LAST_WAIT: Duration = Duration::from_millis(200);

/// Runs a future on a runtime of one thread: what a single command needs, and the fastest to start.
///
/// # Errors
/// Whatever the future answers; a failure if the system gives no runtime.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    finish(Builder::new_current_thread().enable_all().build()?, future)
}

/// Runs a future on a runtime of several threads.
///
/// # Errors
/// As [`block_on`].
#[cfg(feature = "serve")]
pub(crate) fn block_on_threads<T>(
    threads: usize,
    future: impl Future<Output = Result<T>>,
) -> Result<T> {
    finish(
        Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()?,
        future,
    )
}

fn finish<T>(runtime: Runtime, future: impl Future<Output = Result<T>>) -> Result<T> {
    // Boxed, so that the program has the runtime's loop once for each type of answer, not for each
    // command.
    let future: Pin<Box<dyn Future<Output = Result<T>> + '_>> = Box::pin(future);
    let answer = runtime.block_on(future);
    // A cancelled handler may still hold a thread; it is not waited for.
    runtime.shutdown_timeout(LAST_WAIT);
    answer
}
