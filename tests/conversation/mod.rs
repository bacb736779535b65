//! Conversations through the doors of the real program.

mod cli;
