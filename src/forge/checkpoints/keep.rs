//! Retention rule: which checkpoints may be pruned.
//!
//! The newest of each key stay, and so do those that an open issue names and the one to roll back to.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::name::Name;

/// Default number of checkpoints kept for each key.
pub const KEPT: usize = 3;

/// Facts about a checkpoint for the retention rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    pub name: Name,
    /// An open issue names it.
    pub referenced: bool,
    /// It is the newest one that is safe to roll back to.
    pub newest_usable: bool,
    /// Its commit is reachable from a local or remote branch.
    pub reachable: bool,
}

/// Why a checkpoint stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// It is one of the newest of its key.
    Newest,
    /// An open issue names it.
    Referenced,
    /// It is the newest one that is safe to roll back to.
    Usable,
    /// Its commit is not reachable otherwise.
    OnlyWay,
}

/// Returns for each checkpoint why it stays, or `None` if it may be pruned.
pub(super) fn keep(known: &[Known], kept: usize) -> BTreeMap<Name, Option<Kept>> {
    let mut numbers: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for known in known {
        numbers.entry(&known.name.key).or_default().insert(known.name.number);
    }
    let why = |known: &Known| {
        let newer = numbers.get(known.name.key.as_str()).map_or(0, |all| all.range(known.name.number + 1..).count());
        if newer < kept {
            Some(Kept::Newest)
        } else if known.referenced {
            Some(Kept::Referenced)
        } else if known.newest_usable {
            Some(Kept::Usable)
        } else if !known.reachable {
            Some(Kept::OnlyWay)
        } else {
            None
        }
    };
    known.iter().map(|known| (known.name.clone(), why(known))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(text: &str) -> Known {
        Known { name: Name::parse(text).unwrap(), referenced: false, newest_usable: false, reachable: true }
    }

    #[test]
    fn the_newest_three_of_each_key_stay_by_number_and_not_by_text() {
        let all: Vec<_> = ["A-1-v1", "A-1-v2", "A-1-v9", "A-1-v10", "B-1-v1"].map(known).into();
        let kept = keep(&all, KEPT);
        let gone: Vec<String> =
            kept.iter().filter(|(_, why)| why.is_none()).map(|(name, _)| name.to_string()).collect();
        assert_eq!(gone, ["A-1-v1"]);
        assert_eq!(keep(&all, 0).values().flatten().count(), 0);
        assert_eq!(keep(&all, 100).values().flatten().count(), 5);
    }

    #[test]
    fn what_is_still_needed_stays_however_old() {
        let mut all: Vec<_> = (1..=7).map(|number| known(&format!("A-1-v{number}"))).collect();
        all[0].referenced = true;
        all[1].newest_usable = true;
        all[2].reachable = false;
        let kept: Vec<_> = keep(&all, KEPT).into_values().collect();
        assert_eq!(
            kept,
            [
                Some(Kept::Referenced),
                Some(Kept::Usable),
                Some(Kept::OnlyWay),
                None,
                Some(Kept::Newest),
                Some(Kept::Newest),
                Some(Kept::Newest)
            ]
        );
    }
}
