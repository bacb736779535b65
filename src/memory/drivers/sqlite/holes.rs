//! Row ids of rows that went from among others that stayed. SQLite puts a new row behind all others, and joins pages only when
//! they are two thirds empty: without this, whoever writes on and on while others rest would leave the file full of holes.
//!
//! Rows that went side by side leave whole pages, which are used again anyway: those ids are not kept, because filling such
//! pages in order from within leaves them half empty.

/// The most ids that are remembered (4 MiB); more are forgotten, and their pages stay as they are.
const MOST: usize = 512 << 10;

/// Row ids to use again.
#[derive(Debug, Default)]
pub(super) struct Holes {
    ids: Vec<i64>,
}

impl Holes {
    /// Returns an id, if there is one.
    pub(super) fn take(&mut self) -> Option<i64> {
        self.ids.pop()
    }

    /// Gives an id back that was not used.
    pub(super) fn give_back(&mut self, id: i64) {
        self.ids.push(id);
    }

    /// Forgets all, because another process uses them too.
    pub(super) fn forget(&mut self) {
        self.ids = Vec::new();
    }

    /// Adds ids of rows that went.
    pub(super) fn add(&mut self, ids: &[i64]) {
        let room = MOST - self.ids.len().min(MOST);
        self.ids.extend(&ids[..ids.len().min(room)]);
    }
}

/// Says whether rows that went together stood among others that stayed: less than seven of ten ids are theirs.
pub(super) fn are_scattered(ids: impl Iterator<Item = i64> + Clone) -> bool {
    let count = i64::try_from(ids.clone().count()).unwrap_or(i64::MAX);
    match (ids.clone().min(), ids.max()) {
        (Some(_), Some(_)) if count == 1 => true,
        (Some(first), Some(last)) => last.saturating_sub(first).saturating_add(1) > count.saturating_mul(10) / 7,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_side_by_side_are_not_scattered() {
        for (ids, scattered) in [
            (&[][..], false),
            (&[5], true),
            (&[5, 6, 7, 8], false),
            (&[8, 5, 6, 7, 9, 11, 12], false),
            (&[1, 3, 5, 7], true),
            (&[i64::MIN, i64::MAX], true),
        ] {
            assert_eq!(are_scattered(ids.iter().copied()), scattered, "{ids:?}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut holes = Holes::default();
        for _ in 0..3 {
            holes.add(&vec![7; MOST / 2 + 1]);
        }
        assert_eq!(holes.ids.len(), MOST);
    }
}
