//! The layers of the pipeline, one file each. `pipeline.rs` defines their order.

pub(crate) mod artifacts;
pub(crate) mod backoff;
pub(crate) mod cache;
pub(crate) mod credentials;
mod finish;
mod heavy;
pub(crate) mod invalidate;
pub(crate) mod observe;
pub(crate) mod recall;
pub(crate) mod session;
pub(crate) mod validate_input;
pub(crate) mod validate_output;

use std::future::{Ready, ready};

use futures_util::future::Either;
use helmdeck_core::{Call, Outcome, Result};

/// A layer that can answer some calls at once: without a copy of the stack and without the future
/// of what is inside.
pub(crate) trait AnswerNow {
    /// Returns the result of a call, `None` if the call has to go through the stack.
    ///
    /// What was found out on the way stays in the call, so that the stack does not look again.
    fn answer_now(&self, call: &mut Call) -> Option<Result<Outcome>>;
}

/// The future of a layer that either answers at once or hands the call on.
type Answered<F> = Either<Ready<Result<Outcome>>, F>;

/// Answers at once.
fn answer<F>(result: Result<Outcome>) -> Answered<F> {
    Either::Left(ready(result))
}
