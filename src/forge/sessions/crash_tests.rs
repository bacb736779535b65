//! Sudden death at a step, for tests.

use std::sync::atomic::{AtomicUsize, Ordering};

static LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Makes this process die at the so-manieth point from here.
pub(super) fn at(point: usize) {
    LEFT.store(point, Ordering::SeqCst);
}

/// A point at which it may die.
pub(super) fn point() {
    let left = LEFT.load(Ordering::SeqCst);
    if left == 0 {
        std::process::abort();
    }
    if left != usize::MAX {
        LEFT.store(left - 1, Ordering::SeqCst);
    }
}
