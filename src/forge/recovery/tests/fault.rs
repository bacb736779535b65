//! Kills this process where a test says so, or does something else there.

use std::cell::RefCell;
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

type Deed = (Step, When, Box<dyn FnOnce()>);

thread_local! {
    static DEED: RefCell<Option<Deed>> = const { RefCell::new(None) };
}

/// Says what to do once in this thread, and where.
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
