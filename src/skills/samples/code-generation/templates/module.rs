//! What this module is for, in one sentence.

/// What it returns, its unit, and what happens at the edges.
#[must_use]
pub fn name() -> u32 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_says_what_must_hold() {
        assert_eq!(name(), 0);
    }
}
