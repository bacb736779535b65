//! Trials of folding, recovery, retention and the sweep.
