//! Kills this process where a test says so.

use std::sync::Mutex;

use crate::recovery::Step;

/// Where within a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::recovery) enum When {
    /// Nothing of it is done.
    Before,
    /// It is done, and not noted.
    Between,
    /// It is noted.
    After,
}

static AT: Mutex<Option<(Step, When)>> = Mutex::new(None);

/// Says where to die. For worker processes only: it is the whole process that dies.
pub(in crate::recovery) fn die_at(step: Step, when: When) {
    *AT.lock().unwrap() = Some((step, when));
}

fn reach(step: Step, when: When) {
    if *AT.lock().unwrap() == Some((step, when)) {
        // No destructor runs, as with kill -9.
        std::process::abort();
    }
}

pub(in crate::recovery) fn before(step: Step) {
    reach(step, When::Before);
}

pub(in crate::recovery) fn between(step: Step) {
    reach(step, When::Between);
}

pub(in crate::recovery) fn after(step: Step) {
    reach(step, When::After);
}
