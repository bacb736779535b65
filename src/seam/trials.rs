//! Whole calls over real files.
