//! How much work a check may do, and when it has to end.
//!
//! Every keyword of the evaluator pays before it works, in units of about five nanoseconds, and a
//! payment looks at the clock now and then. So a check ends soon after it should, whatever the
//! schema and the document are: no keyword works for long between two payments.

/// Units of a check on the caller's own thread: about half a millisecond.
const LIGHT: u64 = 100_000;
/// Units of a check in all: about a second.
const FULL: u64 = 200_000_000;
/// Units between two looks at the clock: about 0.1 ms.
const LOOK_EVERY: u64 = 20_000;
/// Units of one piece of work that cannot be interrupted: about 0.1 s.
const MAX_PIECE: u64 = 20_000_000;
/// Limit of nested subschemas on the caller's own thread, which has a stack of unknown size.
const LIGHT_DEPTH: usize = 256;
/// Limit of nested subschemas in all.
const FULL_DEPTH: usize = 1_200;

/// Stack that a check with [`Effort::full`] needs at most.
pub const STACK_BYTES: usize = 16 << 20;

/// Why a check has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfinished {
    /// It needs more work than it may do.
    TooMuch,
    /// Its time is over, or nobody waits for it any more.
    Stopped,
}

/// The work that a check may still do.
pub struct Effort<'a> {
    /// What may be spent before the next look at the clock, and after it.
    until_look: u64,
    later: u64,
    pub(super) depth: usize,
    light: bool,
    stop: Option<&'a dyn Fn() -> bool>,
}

impl std::fmt::Debug for Effort<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Effort")
            .field("left", &(self.until_look + self.later))
            .finish_non_exhaustive()
    }
}

impl Effort<'static> {
    /// Enough for the usual small documents, and little enough for a thread of an async runtime.
    #[must_use]
    pub const fn light() -> Self {
        Self {
            until_look: LIGHT,
            later: 0,
            depth: LIGHT_DEPTH,
            light: true,
            stop: None,
        }
    }
}

impl<'a> Effort<'a> {
    /// Enough for every document that is worth the wait. `stop` says whether the check has to end.
    ///
    /// It needs a thread of its own, with [`STACK_BYTES`] of stack.
    #[must_use]
    pub fn full(stop: &'a dyn Fn() -> bool) -> Self {
        Self {
            until_look: 0,
            later: FULL,
            depth: FULL_DEPTH,
            light: false,
            stop: Some(stop),
        }
    }

    /// As much as [`Effort::full`], on a stack of unknown size and to the end.
    pub(super) const fn patient() -> Self {
        Self {
            until_look: FULL,
            later: 0,
            depth: LIGHT_DEPTH,
            light: false,
            stop: None,
        }
    }

    /// Whether a check that needs more should be done with [`Effort::full`].
    pub(super) const fn is_light(&self) -> bool {
        self.light
    }

    /// Pays for work that is about to be done.
    #[inline]
    pub(super) fn spend(&mut self, units: u64) -> Result<(), Unfinished> {
        match self.until_look.checked_sub(units) {
            Some(left) => {
                self.until_look = left;
                Ok(())
            }
            None => self.look(units),
        }
    }

    /// Pays for a piece of work that cannot be interrupted.
    pub(super) fn spend_piece(&mut self, units: u64) -> Result<(), Unfinished> {
        if units > MAX_PIECE {
            return Err(Unfinished::TooMuch);
        }
        self.spend(units)
    }

    #[cold]
    fn look(&mut self, units: u64) -> Result<(), Unfinished> {
        let left = self.until_look + self.later;
        let left = left.checked_sub(units).ok_or(Unfinished::TooMuch)?;
        self.until_look = left.min(LOOK_EVERY);
        self.later = left - self.until_look;
        match self.stop {
            Some(stop) if stop() => Err(Unfinished::Stopped),
            _ => Ok(()),
        }
    }
}

/// Units for reading a text of this many bytes once.
pub(super) const fn reading(bytes: usize) -> u64 {
    1 + (bytes as u64) / 16
}
