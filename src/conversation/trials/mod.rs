//! Trials: the conformance suite on every driver, and what only real stores can show.
