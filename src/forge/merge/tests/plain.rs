//! Merges by a git without our driver and without attributes, as on a server: additions never conflict.

use super::*;
use crate::artifacts::{Artifacts, Kind, Put};
use crate::environment::ProjectEnvironment;
use crate::features::{Add, Features};
use crate::git::fixture::Repository;
use crate::issues::{self, CriterionDone, Done, NewComment};
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

fn switch(repository: &Repository, branch: &str) -> Project {
    repository.run(&["switch", "--quiet", "-C", branch, "main"]);
    open(repository)
}

/// Fixture: a project with an issue.
fn with_issue() -> Repository {
    let repository = project();
    let add = issues::Add {
        title: "Old".to_owned(),
        criteria: vec!["a".to_owned(), "b".to_owned(), "c".to_owned()],
        ..issues::Add::default()
    };
    let project = open(&repository);
    project.issues().add(&add).unwrap();
    project.issues().add(&issues::Add { title: "Other".to_owned(), ..issues::Add::default() }).unwrap();
    repository.commit("Plan");
    repository
}

/// One edit of each member that people change, in the order in which the members stand in the file.
fn edits() -> Vec<issues::Edit> {
    let some = |text: &str| Some(text.to_owned());
    let edit = issues::Edit::default;
    let check = |criterion: &str| issues::Edit {
        checked: vec![CriterionDone { criterion: criterion.to_owned(), done: true, evidence: some("seen") }],
        ..edit()
    };
    vec![
        issues::Edit { title: some("New"), ..edit() },
        issues::Edit { description: some("About"), ..edit() },
        issues::Edit { kind: some("bug"), ..edit() },
        issues::Edit { parent: some("LOCAL-2"), ..edit() },
        issues::Edit { persona: some("Axiom"), ..edit() },
        issues::Edit { mode: some("Build"), ..edit() },
        issues::Edit { complexity: some("small"), ..edit() },
        check("1"),
        check("2"),
        check("3"),
        issues::Edit { state: some("In Progress"), ..edit() },
        issues::Edit { priority: Some(1), ..edit() },
        issues::Edit { labels: Some(vec!["web".to_owned()]), ..edit() },
        issues::Edit { assignee: some("Ann"), ..edit() },
        issues::Edit { blocked_by: Some(vec!["LOCAL-2".to_owned()]), ..edit() },
    ]
}

#[test]
fn edits_of_different_members_merge_without_our_driver() {
    let repository = with_issue();
    let edits = edits();
    let apply = |branch: &str, edit: &issues::Edit| {
        let project = switch(&repository, branch);
        let issue = project.issues().set("LOCAL-1", edit, None).unwrap().issue;
        project.issues().comment("LOCAL-1", &NewComment { text: branch.to_owned(), by: None }).unwrap();
        repository.commit(branch);
        serde_json::to_value(issue).unwrap()
    };
    let old = serde_json::to_value(open(&repository).issues().show("LOCAL-1").unwrap().item.issue).unwrap();
    for (at, theirs) in edits.iter().enumerate() {
        // Neighbours in the file are the hardest to merge.
        let ours = &edits[(at + 1) % edits.len()];
        let (theirs, ours) = (apply("theirs", theirs), apply("ours", ours));
        repository.run(&["merge", "--quiet", "--no-edit", "theirs"]);
        let merged = open(&repository).issues().show("LOCAL-1").unwrap().item.issue;
        assert_eq!(merged.comments.len(), 2);
        let merged = serde_json::to_value(merged).unwrap();
        for (member, new) in theirs.as_object().unwrap().iter().chain(ours.as_object().unwrap()) {
            if new.is_object() || member == "acceptance_criteria" || old.get(member) == Some(new) {
                continue;
            }
            assert_eq!(merged.get(member), Some(new), "{at}: {member}");
        }
        let done = |issue: &serde_json::Value| issue["acceptance_criteria"].to_string().matches("true").count();
        let agents = |issue: &serde_json::Value| issue["agent_state"].as_object().map_or(0, serde_json::Map::len);
        assert_eq!(done(&merged), done(&theirs) + done(&ours), "{at}");
        assert_eq!(agents(&merged), agents(&theirs) + agents(&ours), "{at}");
    }
}

#[test]
fn closed_issue_takes_edits_of_other_branches() {
    let repository = with_issue();
    let project = switch(&repository, "theirs");
    project.issues().set("LOCAL-1", &issues::Edit { priority: Some(1), ..issues::Edit::default() }, None).unwrap();
    project.issues().comment("LOCAL-1", &NewComment { text: "Late.".to_owned(), by: None }).unwrap();
    repository.commit("theirs");
    let project = switch(&repository, "ours");
    project.issues().done("LOCAL-1", &Done { anyway: Some("enough".to_owned()), ..Done::default() }).unwrap();
    // To git, this file resembles that of the closed issue.
    let key = project.issues().add(&issues::Add { title: "Old".to_owned(), ..issues::Add::default() }).unwrap();
    repository.commit("ours");
    repository.run(&["merge", "--quiet", "--no-edit", "theirs"]);
    let project = open(&repository);
    assert_eq!(project.issues().show(&key.issue.linear_id).unwrap().item.issue.priority, None);
    let closed = project.issues().show("LOCAL-1").unwrap().item;
    assert!(closed.over && project.issues().read().unwrap().issues.iter().all(|issue| issue.linear_id != "LOCAL-1"));
    assert_eq!((closed.issue.priority, closed.issue.comments.len()), (Some(1), 1));
}

#[test]
fn reports_of_both_branches_merge() {
    let repository = project();
    let put = |project: &Project, number: usize| {
        let text = format!(
            "{{\n  \"report\": \"feature_verification\",\n  \"output\": \"{}\",\n  \"at\": {number}\n}}\n",
            "same ".repeat(40)
        );
        let put = Put::new(Kind::Reports, "verify_forge-001.json");
        Artifacts::new(project).put(text.as_bytes(), &put).unwrap();
    };
    put(&open(&repository), 0);
    repository.commit("Verify");
    for (number, branch) in [(1, "theirs"), (2, "ours")] {
        let project = switch(&repository, branch);
        put(&project, number);
        assert_eq!(Artifacts::new(&project).remove_superseded_reports().unwrap().removed.len(), 1);
        repository.commit(branch);
    }
    repository.run(&["merge", "--quiet", "--no-edit", "theirs"]);
    let artifacts = open(&repository);
    let verified = Artifacts::new(&artifacts).verify(None).unwrap();
    assert!(verified.ok && verified.artifacts.len() == 3, "{verified:?}");
    assert_eq!(Artifacts::new(&artifacts).list(&crate::artifacts::Filter::default()).unwrap().total, 2);
}
