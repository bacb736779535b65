//! Fault injection: kills this process at a chosen point, or runs something there.

use std::cell::RefCell;
use std::sync::Mutex;

use crate::recovery::rollback::Point;

static AT: Mutex<Option<Point>> = Mutex::new(None);

/// Sets where to die. Only for worker processes, because the whole process dies.
pub(in crate::recovery) fn die_at(point: Point) {
    *AT.lock().unwrap() = Some(point);
}

type Deed = (Point, Box<dyn FnOnce()>);

thread_local! {
    static DEED: RefCell<Option<Deed>> = const { RefCell::new(None) };
}

/// Sets what to run once in this thread, and where.
pub(in crate::recovery) fn do_at(point: Point, deed: impl FnOnce() + 'static) {
    DEED.with(|place| *place.borrow_mut() = Some((point, Box::new(deed))));
}

pub(in crate::recovery) fn reach(point: Point) {
    if let Some((_, deed)) = DEED.with(|place| place.borrow_mut().take_if(|deed| deed.0 == point)) {
        deed();
    }
    if *AT.lock().unwrap() == Some(point) {
        // No destructor runs, as with kill -9.
        std::process::abort();
    }
}
