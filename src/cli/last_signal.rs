//! The second signal ends the process, whatever the runtime does.
//!
//! The first SIGINT or SIGTERM asks for an end in good order, and the runtime sees to it. If the runtime does not even notice the
//! second one, something holds its threads: a thread of its own then ends the process. A runtime that notices gets a few
//! seconds for what it has to write; a third signal ends that too.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::exit::Result;
use crate::signals::{Stop, end};

/// How long the runtime has to notice the second signal.
const NOTICE: Duration = Duration::from_millis(300);
/// How long it then has to end.
const LAST_WRITES: Duration = Duration::from_secs(8);

/// How many signals the runtime has noticed.
static NOTICED: AtomicU32 = AtomicU32::new(0);
static WATCHING: Once = Once::new();

/// Takes note that the runtime noticed a signal.
pub(crate) fn noticed() {
    NOTICED.fetch_add(1, Ordering::SeqCst);
}

/// Starts the thread that ends the process; once, however often it is called.
///
/// # Errors
/// A failure if the system takes no handler.
pub(crate) fn watch() -> Result<()> {
    let mut started = Ok(());
    WATCHING.call_once(|| started = start());
    started
}

fn start() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut stop = {
        let _inside = runtime.enter();
        Stop::unwatched()?
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            stop.next().await;
            let second = stop.next().await;
            tokio::time::sleep(NOTICE).await;
            if NOTICED.load(Ordering::SeqCst) >= 2 {
                // It is about to end by itself.
                let _ = tokio::time::timeout(LAST_WRITES, stop.next()).await;
            }
            end(128 + second.as_raw_value());
        });
    })?;
    Ok(())
}
