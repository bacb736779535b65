//! Trials: the conformance suite on every driver, and what only a real file can show.

mod conformance;
