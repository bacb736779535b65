//! What dialogues are in use, held in memory within a cap.
