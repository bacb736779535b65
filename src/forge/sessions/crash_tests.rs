//! Fault injection: kills the process at a chosen point.

use std::sync::atomic::{AtomicUsize, Ordering};

static LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Makes this process die at the given point, counted from here.
pub(super) fn at(point: usize) {
    LEFT.store(point, Ordering::SeqCst);
}

/// A point at which the process may die.
pub(super) fn point() {
    let left = LEFT.load(Ordering::SeqCst);
    if left == 0 {
        std::process::abort();
    }
    if left != usize::MAX {
        LEFT.store(left - 1, Ordering::SeqCst);
    }
}
