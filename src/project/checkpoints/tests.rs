//! Checkpoints in real repositories.
