//! The second signal ends the process, even if the runtime is blocked.
//!
//! The first SIGINT or SIGTERM asks for a clean shutdown, which the runtime performs. If the
//! runtime does not notice the second signal, something blocks its threads, and a separate thread
//! ends the process. A runtime that notices it gets a few seconds for its last writes; a third
//! signal ends that too.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::exit::Result;
use crate::signals::{Stop, end};

/// Time for the runtime to notice the second signal.
const NOTICE: Duration = Duration::from_millis(300);
/// Time for the runtime to end after that.
const LAST_WRITES: Duration = Duration::from_secs(8);

/// How many signals the runtime has noticed.
static NOTICED: AtomicU32 = AtomicU32::new(0);
static WATCHING: Once = Once::new();

/// Records that the runtime noticed a signal.
pub(crate) fn noticed() {
    NOTICED.fetch_add(1, Ordering::SeqCst);
}

/// Starts the thread that ends the process. Later calls do nothing.
///
/// # Errors
/// A failure if the system takes no handler.
pub(crate) fn watch() -> Result<()> {
    let mut started = Ok(());
    WATCHING.call_once(|| started = start());
    started
}

fn start() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut stop = {
        let _inside = runtime.enter();
        Stop::unwatched()?
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    const CHILD: &str = "HELMDECK_TEST_FROZEN";

    /// The process of the test below: its runtime has one thread, which never comes back.
    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "says that this is the process that the other test started"
    )]
    fn frozen_runtime() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let _stop = Stop::catch().unwrap();
            std::fs::write("/dev/stdout", "\nready\n").unwrap();
            loop {
                std::thread::park();
            }
        });
    }

    #[test]
    fn second_signal_ends_a_frozen_process() {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "last_signal::tests::frozen_runtime",
                "--nocapture",
            ])
            .env(CHILD, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while lines.next().unwrap().unwrap() != "ready" {}
        let signal = || {
            assert!(
                Command::new("kill")
                    .args(["-TERM", &child.id().to_string()])
                    .status()
                    .unwrap()
                    .success()
            );
        };
        signal();
        // Two signals at once are one; the second comes when the first was taken.
        std::thread::sleep(Duration::from_millis(300));
        signal();
        assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    }
}
