//! Free row ids: ids of deleted rows between rows that still exist.
//!
//! SQLite appends a new row after all others, and merges pages only when they are two thirds empty.
//! Without reuse of ids, a store with steady writes would fill with half-empty pages. Adjacent
//! deleted rows free whole pages, which SQLite reuses: their ids are not kept, because filling such
//! pages in order leaves them half empty.

/// Most ids that are kept (4 MiB). More are dropped, and their pages stay as they are.
const MOST: usize = 512 << 10;

/// Number of adjacent rows that fill pages by themselves.
const RUN: usize = 16;

/// Row ids to reuse.
#[derive(Debug, Default)]
pub(super) struct FreeRowIds {
    ids: Vec<i64>,
}

impl FreeRowIds {
    /// Returns an id, if there is one.
    pub(super) fn take(&mut self) -> Option<i64> {
        self.ids.pop()
    }

    /// Gives an id back that was not used.
    pub(super) fn give_back(&mut self, id: i64) {
        self.ids.push(id);
    }

    /// Drops all ids, because another process uses them too.
    pub(super) fn forget(&mut self) {
        self.ids = Vec::new();
    }

    /// Adds ids of deleted rows.
    pub(super) fn add(&mut self, ids: &[i64]) {
        let room = MOST - self.ids.len().min(MOST);
        self.ids.extend(&ids[..ids.len().min(room)]);
    }
}

/// Returns the deleted ids that stand alone or in short runs, largest first.
///
/// [`FreeRowIds::take`] then returns the smallest first, so that rows stay roughly in order of age.
pub(super) fn scattered(mut ids: Vec<i64>) -> Vec<i64> {
    ids.sort_unstable_by(|a, b| b.cmp(a));
    let runs = ids.chunk_by(|a, b| a.checked_sub(1) == Some(*b));
    runs.filter(|run| run.len() < RUN)
        .flatten()
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_side_by_side_are_not_scattered() {
        let run = (100..100 + RUN as i64).collect::<Vec<_>>();
        assert!(scattered(run.clone()).is_empty());
        assert_eq!(scattered(run[1..].to_vec()).len(), RUN - 1);
        let mixed = [&[3, 1, 2, 7], run.as_slice(), &[i64::MIN, i64::MAX]].concat();
        assert_eq!(scattered(mixed), [i64::MAX, 7, 3, 2, 1, i64::MIN]);
    }

    #[test]
    fn free_ids_are_bounded() {
        let mut free_row_ids = FreeRowIds::default();
        for _ in 0..3 {
            free_row_ids.add(&vec![7; MOST / 2 + 1]);
        }
        assert_eq!(free_row_ids.ids.len(), MOST);
    }
}
