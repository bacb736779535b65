//! The layers of the pipeline, one file each. `pipeline.rs` defines their order.

pub(crate) mod artifacts;
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
use helmdeck_core::{Outcome, Result};

/// The future of a layer that either answers at once or hands the call on.
type Answered<F> = Either<Ready<Result<Outcome>>, F>;

/// Answers at once.
fn answer<F>(result: Result<Outcome>) -> Answered<F> {
    Either::Left(ready(result))
}
