//! Waits of tests: they end with a condition, and share one limit that no slow machine reaches.

use std::time::{Duration, Instant};

/// Time limit for anything that a test waits for. Nothing is measured with it.
///
/// A test takes that long only if what it waits for never happens. Time budgets of the product that
/// a test is not about are set to it too.
pub const STUCK: Duration = Duration::from_secs(300);

/// Shortest and longest pause between two looks at a condition.
///
/// To look costs time too, which what is waited for could have.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// Waits until a condition holds, on this thread.
///
/// # Panics
/// If it does not hold within [`STUCK`].
#[track_caller]
#[allow(clippy::panic, reason = "only tests wait here")]
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let mut looks = Looks::default();
    while !holds() {
        assert!(!looks.are_over(), "waited {} s for {what}", STUCK.as_secs());
        std::thread::sleep(looks.pause());
    }
}

/// Looks at a condition, from the first to the last that [`STUCK`] allows.
#[derive(Debug)]
pub struct Looks {
    began: Instant,
    pause: Duration,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            pause: PAUSES.0,
        }
    }
}

impl Looks {
    /// Returns whether it is too late for another look.
    #[must_use]
    pub fn are_over(&self) -> bool {
        self.began.elapsed() >= STUCK
    }

    /// Returns the pause until the next look: longer each time, and never long.
    pub fn pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSES.1);
        pause
    }
}
