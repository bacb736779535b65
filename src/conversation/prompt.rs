//! A context as a model is to be told it: as data that others wrote, fenced, never as instructions.
