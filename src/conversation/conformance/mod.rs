//! What every conversation memory must do, whatever its store and strategy.
