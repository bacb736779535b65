//! Ranks symbols by their users, with `PageRank` over files.
//!
//! A file that uses a name votes for the files that define it. The idea is Aider's repository map
//! (<https://aider.chat/2023/10/22/repomap.html>). The same input gives the same numbers, bit for
//! bit: every sum runs in a fixed order.

use std::collections::BTreeMap;

use super::symbols::Symbols;

/// The part of a file's rank that its votes pass on. The customary value.
///
/// The rest is spread evenly over all files.
const DAMPING: f64 = 0.85;

/// Number of rounds that pass ranks on.
///
/// At 0.85 what is left to move after 40 rounds is under 0.2 %.
const ROUNDS: usize = 40;

/// The share of the even part that goes to the files in focus.
const FOCUS_SHARE: f64 = 0.9;

/// A name that more files define than this (`new`, `main`) tells nothing about which one is meant.
const MAX_DEFINERS: usize = 20;

/// A file as the ranking sees it.
pub(super) struct Ranked<'a> {
    /// The languages that see each other's names.
    pub(super) family: &'static str,
    /// Symbols that it defines and uses.
    pub(super) symbols: &'a Symbols,
    /// Whether the caller requested it.
    pub(super) focus: bool,
}

/// The outcome, in the order of the files that went in.
pub(super) struct Ranks {
    /// Each file's rank; all add up to 1.
    pub(super) files: Vec<f64>,
    /// Each definition's share of its file's rank.
    pub(super) definitions: Vec<Vec<f64>>,
}

/// A file that defines a name, and where among its definitions.
struct Definer {
    file: usize,
    places: Vec<usize>,
}

struct Vote {
    from: usize,
    definer: usize,
    weight: f64,
}

/// Ranks the definitions of all files.
pub(super) fn rank(files: &[Ranked<'_>]) -> Ranks {
    let even = even_part(files);
    let (definers, votes, cast) = votes(files);
    let ranks = settle(&definers, &votes, &cast, &even);

    let mut definitions: Vec<Vec<f64>> = files
        .iter()
        .map(|file| vec![0.0; file.symbols.definitions.len()])
        .collect();
    // The rank of a file without any vote is shared by all its definitions: it orders symbols
    // without users.
    for (index, shares) in definitions.iter_mut().enumerate() {
        let share = (1.0 - DAMPING) * even[index] / shares.len().max(1) as f64;
        shares.fill(share);
    }
    for vote in &votes {
        let Definer { file, places } = &definers[vote.definer];
        let strength = DAMPING * ranks[vote.from] * vote.weight / cast[vote.from];
        for place in places {
            definitions[*file][*place] += strength / places.len() as f64;
        }
    }
    Ranks {
        files: ranks,
        definitions,
    }
}

/// Returns the rank of every file before any vote.
fn even_part(files: &[Ranked<'_>]) -> Vec<f64> {
    let focused = files.iter().filter(|file| file.focus).count();
    let all = if focused == 0 { 1.0 } else { 1.0 - FOCUS_SHARE } / files.len().max(1) as f64;
    let extra = FOCUS_SHARE / focused.max(1) as f64;
    files
        .iter()
        .map(|file| if file.focus { all + extra } else { all })
        .collect()
}

/// Returns the definers of each name, all votes, and for each file the sum of its votes.
fn votes(files: &[Ranked<'_>]) -> (Vec<Definer>, Vec<Vote>, Vec<f64>) {
    let mut definers: Vec<Definer> = Vec::new();
    let mut by_name: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (file, ranked) in files.iter().enumerate() {
        for (place, definition) in ranked.symbols.definitions.iter().enumerate() {
            let known = by_name
                .entry((ranked.family, &*definition.name))
                .or_default();
            match known.last().map(|last| &mut definers[*last]) {
                Some(last) if last.file == file => last.places.push(place),
                _ => {
                    known.push(definers.len());
                    definers.push(Definer {
                        file,
                        places: vec![place],
                    });
                }
            }
        }
    }
    let mut votes = Vec::new();
    let mut cast = vec![0.0; files.len()];
    for (from, file) in files.iter().enumerate() {
        for (name, count) in &file.symbols.references {
            let Some(known) = by_name.get(&(file.family, &**name)) else {
                continue;
            };
            if known.len() > MAX_DEFINERS {
                continue;
            }
            // The square root: a name used a hundred times in one file is not a hundred times as
            // important.
            let weight = f64::from(*count).sqrt() * telling(name) / known.len() as f64;
            for definer in known {
                // Use within one's own file says little to a reader of the whole.
                let weight = if definers[*definer].file == from {
                    weight * 0.1
                } else {
                    weight
                };
                cast[from] += weight;
                votes.push(Vote {
                    from,
                    definer: *definer,
                    weight,
                });
            }
        }
    }
    (definers, votes, cast)
}

/// Returns how distinctive a name is.
///
/// Long names of several words seldom mean two things at once; private ones are seldom meant for
/// others.
fn telling(name: &str) -> f64 {
    let several_words = name.contains('_')
        || name.contains(char::is_uppercase) && name.contains(char::is_lowercase);
    let mut factor = 1.0;
    if name.starts_with('_') {
        factor *= 0.1;
    }
    if name.chars().count() >= 8 && several_words {
        factor *= 5.0;
    }
    if name.chars().count() <= 2 {
        factor *= 0.1;
    }
    factor
}

/// Passes ranks on until they converge. A file without votes for others gives its rank back to all.
fn settle(definers: &[Definer], votes: &[Vote], cast: &[f64], even: &[f64]) -> Vec<f64> {
    let mut ranks = even.to_vec();
    for _ in 0..ROUNDS {
        let idle: f64 = ranks
            .iter()
            .zip(cast)
            .filter(|(_, cast)| **cast == 0.0)
            .map(|(rank, _)| rank)
            .sum();
        let mut next: Vec<f64> = even
            .iter()
            .map(|even| (1.0 - DAMPING + DAMPING * idle) * even)
            .collect();
        for vote in votes {
            next[definers[vote.definer].file] +=
                DAMPING * ranks[vote.from] * vote.weight / cast[vote.from];
        }
        ranks = next;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::super::symbols::Definition;
    use super::*;

    fn symbols(defines: &[&str], uses: &[(&str, u32)]) -> Symbols {
        let definition = |(line, name): (usize, &&str)| Definition {
            name: (**name).into(),
            kind: "function",
            line,
            signature: (*name).to_owned(),
            parent: None,
        };
        Symbols {
            definitions: defines.iter().enumerate().map(definition).collect(),
            references: uses
                .iter()
                .map(|(name, count)| ((*name).into(), *count))
                .collect(),
        }
    }

    fn ranked<'a>(symbols: &'a [Symbols], focus: &[usize]) -> Vec<Ranked<'a>> {
        let one = |(index, symbols): (usize, &'a Symbols)| Ranked {
            family: "x",
            symbols,
            focus: focus.contains(&index),
        };
        symbols.iter().enumerate().map(one).collect()
    }

    #[test]
    fn what_more_files_use_ranks_higher_and_ranks_add_up_to_one() {
        let files = [
            symbols(&["seldom", "often"], &[]),
            symbols(&["a"], &[("often", 1)]),
            symbols(&["b"], &[("often", 1), ("seldom", 1)]),
        ];
        let ranks = rank(&ranked(&files, &[]));
        assert!(ranks.definitions[0][1] > ranks.definitions[0][0]);
        assert!(ranks.definitions[0][0] > ranks.definitions[1][0]);
        assert!(ranks.files[0] > ranks.files[1] && ranks.files[0] > ranks.files[2]);
        assert!((ranks.files.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn two_files_that_use_each_other_rank_alike() {
        // Calculated on paper: by symmetry each has half.
        let files = [
            symbols(&["left"], &[("right", 3)]),
            symbols(&["right"], &[("left", 3)]),
        ];
        let ranks = rank(&ranked(&files, &[]));
        assert!((ranks.files[0] - 0.5).abs() < 1e-9 && (ranks.files[1] - 0.5).abs() < 1e-9);
        // 0.15 / 2 as the base rank and 0.85 * 0.5 from votes.
        assert!((ranks.definitions[0][0] - 0.5).abs() < 1e-9);
    }

    #[test]
    fn focus_raises_a_file_and_what_it_uses() {
        let files = [
            symbols(&["one"], &[]),
            symbols(&["two"], &[]),
            symbols(&["user_one"], &[("one", 1)]),
            symbols(&["user_two"], &[("two", 1)]),
        ];
        let plain = rank(&ranked(&files, &[]));
        assert!((plain.definitions[0][0] - plain.definitions[1][0]).abs() < 1e-12);
        let focused = rank(&ranked(&files, &[3]));
        assert!(focused.definitions[1][0] > focused.definitions[0][0]);
        assert!(focused.files[3] > focused.files[2]);
    }

    #[test]
    fn names_of_another_family_and_names_that_everybody_defines_get_no_votes() {
        let files = [symbols(&["shared"], &[]), symbols(&[], &[("shared", 1)])];
        let mut other = ranked(&files, &[]);
        other[1].family = "y";
        let ranks = rank(&other);
        assert!((ranks.files[0] - ranks.files[1]).abs() < 1e-12);

        let mut many: Vec<Symbols> = (0..=MAX_DEFINERS).map(|_| symbols(&["new"], &[])).collect();
        many.push(symbols(&[], &[("new", 9)]));
        let ranks = rank(&ranked(&many, &[]));
        assert!((ranks.files[0] - ranks.files[MAX_DEFINERS + 1]).abs() < 1e-12);
    }

    #[test]
    fn nothing_ranks_as_nothing() {
        assert!(rank(&[]).files.is_empty());
        let lonely = [symbols(&[], &[])];
        assert!((rank(&ranked(&lonely, &[])).files[0] - 1.0).abs() < 1e-9);
    }
}
