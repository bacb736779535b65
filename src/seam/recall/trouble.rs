//! Unreadable notes: one warning for all of them.

use crate::error::Warning;

/// Notes that could not be read.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    /// The first, and why.
    first: Option<String>,
    count: usize,
}

impl Troubles {
    /// Adds that something could not be read.
    pub(super) fn add(&mut self, place: impl std::fmt::Display, why: impl std::fmt::Display) {
        self.count += 1;
        self.first.get_or_insert_with(|| format!("{place}: {why}"));
    }

    /// Returns one line for all of them.
    pub(super) fn warning(self) -> Option<Warning> {
        let more = if self.count > 1 {
            format!(" (and {} more notes)", self.count - 1)
        } else {
            String::new()
        };
        Some(Warning::unreadable(format!("{}{more}", self.first?)))
    }
}
