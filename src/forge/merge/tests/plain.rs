//! Merges by a git without our driver and without attributes, as on a server: additions never conflict.

use super::*;
use crate::environment::ProjectEnvironment;
use crate::features::{Add, Features};
use crate::git::fixture::Repository;
use crate::knowledge::Knowledge;
use crate::layout::CONFIG;
use crate::project::Project;

/// Number of pairs of branches; `HELMDECK_TEST_MERGE_PAIRS` sets another one.
const PAIRS: u64 = 25;
/// After so many pairs, a new project begins.
const RESTART: u64 = 10;

/// Random numbers from a seed (`SplitMix64`).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

#[expect(clippy::disallowed_methods, reason = "scripts ask for the full number of pairs")]
fn pairs() -> u64 {
    std::env::var("HELMDECK_TEST_MERGE_PAIRS").ok().and_then(|number| number.parse().ok()).unwrap_or(PAIRS)
}

fn project() -> Repository {
    let repository = Repository::new();
    repository.write(CONFIG, "[files]\nper_entry = true\n");
    repository.write(KNOWLEDGE, json::print(&KnowledgeFile::skeleton()).unwrap());
    repository.write(FEATURES, json::print(&FeaturesFile::skeleton()).unwrap());
    repository.write(".gitignore", ".forge/.local/\n");
    repository.commit("Begin");
    repository
}

fn open(repository: &Repository) -> Project {
    Project::open(repository.path(), ProjectEnvironment::default()).unwrap().unwrap()
}

/// Adds entries of every kind on a branch, and returns their texts. Both sides of a pair often add equal ones.
fn grow(repository: &Repository, branch: &str, pair: u64, random: &mut Random) -> BTreeSet<String> {
    repository.run(&["switch", "--quiet", "-c", branch, "main"]);
    let project = open(repository);
    let mut texts = BTreeSet::new();
    for _ in 0..=random.below(3) {
        let text = format!("text {pair} {}", random.below(6));
        let what = match random.below(5) {
            0 => What::Successful { context: text.clone(), approach: "a".into() },
            1 => What::Failed { context: text.clone(), issue: "i".into(), resolution: "r".into() },
            2 => What::Decision { context: text.clone(), decision: "d".into(), rationale: "r".into() },
            3 => What::Invariant { text: text.clone(), check: None, severity: None },
            _ => {
                // Another clone gives the same numbers.
                let _ = std::fs::remove_dir_all(repository.path().join(".git/forge"));
                let add = Add { name: text.clone(), tests: vec!["t".into()], ..Add::default() };
                Features::new(&project).add(&add, None).unwrap();
                texts.insert(format!("feature {text}"));
                continue;
            }
        };
        Knowledge::new(&project).add(&Learning::new(what), None).unwrap();
        texts.insert(text);
    }
    repository.commit(branch);
    texts
}

/// Returns every text of the project's knowledge and features. The ids of features are unique.
fn texts(repository: &Repository) -> BTreeSet<String> {
    let project = open(repository);
    let knowledge = Knowledge::new(&project).read().unwrap();
    let features = Features::new(&project).read().unwrap().features;
    let ids: BTreeSet<_> = features.iter().map(|feature| &feature.id).collect();
    assert_eq!(ids.len(), features.len());
    let known = knowledge.entries().flat_map(|entry| {
        let first = entry.texts().first().map(|(_, text)| (*text).to_owned());
        first.into_iter().collect::<Vec<_>>()
    });
    known.chain(features.iter().map(|feature| format!("feature {}", feature.name))).collect()
}

#[test]
fn random_additions_merge_without_our_driver() {
    let mut random = Random(7);
    let mut repository = project();
    let mut expected = BTreeSet::new();
    for pair in 0..pairs() {
        if pair % RESTART == 0 {
            (repository, expected) = (project(), BTreeSet::new());
        }
        let (ours, theirs) = (format!("ours-{pair}"), format!("theirs-{pair}"));
        expected.extend(grow(&repository, &theirs, pair, &mut random));
        expected.extend(grow(&repository, &ours, pair, &mut random));
        // It must succeed, and no file may be left in conflict.
        repository.run(&["merge", "--quiet", "--no-edit", &theirs]);
        assert_eq!(texts(&repository), expected, "pair {pair}");
        repository.run(&["branch", "--quiet", "--force", "main"]);
    }
}

#[test]
fn new_entries_go_into_files_of_their_own() {
    let repository = project();
    let before = std::fs::read(repository.path().join(KNOWLEDGE)).unwrap();
    let project = open(&repository);
    let what = What::Successful { context: "Halving".into(), approach: "Divide".into() };
    let added = Knowledge::new(&project).add(&Learning::new(what.clone()), None).unwrap();
    assert_eq!(std::fs::read(repository.path().join(KNOWLEDGE)).unwrap(), before);
    assert_eq!(Knowledge::new(&project).read().unwrap().patterns.successful.len(), 1);
    // A lost document comes back from git without its entries, which stay.
    std::fs::remove_file(repository.path().join(KNOWLEDGE)).unwrap();
    let request = crate::repair::RepairRequest { yes: true, from: Some(crate::repair::Source::Git) };
    crate::repair::repair(&project, KNOWLEDGE, request).unwrap();
    assert_eq!(Knowledge::new(&project).read().unwrap().patterns.successful.len(), 1);
    assert_eq!(std::fs::read(repository.path().join(KNOWLEDGE)).unwrap(), before);
    // Learning it again changes its file only, and the form of the RFC stays writable.
    assert!(!Knowledge::new(&project).add(&Learning::new(what), None).unwrap().new);
    repository.write(KNOWLEDGE, KNOWN);
    let file = Knowledge::new(&project).read().unwrap();
    assert!(file.entries().any(|entry| entry.id() == added.id) && file.patterns.successful.len() == 2);
}
