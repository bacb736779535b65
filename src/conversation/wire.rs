//! Turns and snapshots as JSON: in the form of the original, byte for byte, and in the form of our doors.
