//! What goes on behind the callers' backs: turns are folded into summaries, old turns and ended dialogues are removed.

mod line;
mod moves;
mod wait;
