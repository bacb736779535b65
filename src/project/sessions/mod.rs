//! Sessions: how work begins, is logged, ends, and is taken up again by the next when it did not end.

mod advice;
mod id;
mod record;
mod select;

pub use advice::{Advice, Since, advise};
pub use id::SessionId;
pub use record::{Ending, Holder, LEASE, Learned, Living, Session, State, Step};
pub use select::{Choice, Inputs, Named, Rule, Unfinished, select_next_task};
