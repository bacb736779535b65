//! Fault injection: kills this process at a chosen step, or runs something there.

use std::cell::RefCell;
use std::sync::Mutex;

use crate::recovery::Step;

/// Point within a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::recovery) enum When {
    /// Before the step.
    Before,
    /// After the step is done, and before it is recorded.
    Between,
    /// After the step is recorded.
    After,
}

static AT: Mutex<Option<(Step, When)>> = Mutex::new(None);

/// Sets where to die. Only for worker processes, because the whole process dies.
pub(in crate::recovery) fn die_at(step: Step, when: When) {
    *AT.lock().unwrap() = Some((step, when));
}

type Deed = (Step, When, Box<dyn FnOnce()>);

thread_local! {
    static DEED: RefCell<Option<Deed>> = const { RefCell::new(None) };
}

/// Sets what to run once in this thread, and where.
pub(in crate::recovery) fn do_at(step: Step, when: When, deed: impl FnOnce() + 'static) {
    DEED.with(|place| *place.borrow_mut() = Some((step, when, Box::new(deed))));
}

fn reach(step: Step, when: When) {
    let here = |deed: &mut Deed| (deed.0, deed.1) == (step, when);
    if let Some((_, _, deed)) = DEED.with(|place| place.borrow_mut().take_if(here)) {
        deed();
    }
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
