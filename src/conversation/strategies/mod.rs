//! What a model is shown of a dialogue: one file a strategy.
