//! Merges of two versions, random ones too, and a real `git merge`.

mod in_git;
mod plain;

use std::collections::BTreeSet;

use super::*;
use crate::features::FeaturesFile;
use crate::files::Document;
use crate::json;
use crate::knowledge::{KnowledgeFile, Learning, What};
use crate::layout::{FEATURES, KNOWLEDGE};

const KNOWN: &str = include_str!("../../forge_documents/fixtures/knowledge.json");
const RFC: &str = include_str!("../../forge_documents/fixtures/features.json");

fn merged(path: &str, base: &str, ours: &str, theirs: &str) -> String {
    let merged = merge(path, base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
    assert_eq!(merged.conflicts, Vec::<String>::new());
    String::from_utf8(merged.bytes).unwrap()
}

fn features(text: &str) -> FeaturesFile {
    serde_json::from_str(text).unwrap()
}

/// Changes the first feature of the RFC's example.
fn first(change: impl FnOnce(&mut crate::features::Feature)) -> String {
    let mut file = features(RFC);
    change(&mut file.features[0]);
    String::from_utf8(json::print(&file).unwrap()).unwrap()
}

#[test]
fn one_side_alone_is_taken_as_it_is() {
    let other = KNOWN.replace("run tests", "run all tests");
    assert_eq!(merged(KNOWLEDGE, KNOWN, KNOWN, &other), other);
    assert_eq!(merged(KNOWLEDGE, KNOWN, &other, KNOWN), other);
    assert_eq!(merged(KNOWLEDGE, "", &other, &other), other);
}

#[test]
fn common_learning_is_one_and_counts_twice() {
    let entry = |at: &str| {
        format!(
            r#"{{"schema_version":"1.0","patterns":{{"successful":[{{"context":"c","approach":"a","learned_at":"{at}","seen":2}}],"failed":[]}},"invariants":[]}}"#
        )
    };
    let text = merged(KNOWLEDGE, "", &entry("2025-12-24T10:00:00Z"), &entry("2025-12-24T11:00:00Z"));
    let file: KnowledgeFile = serde_json::from_str(&text).unwrap();
    assert_eq!(file.patterns.successful.len(), 1);
    assert_eq!(file.patterns.successful[0].trace.seen, Some(4));
    assert_eq!(file.patterns.successful[0].learned_at.to_string(), "2025-12-24T11:00:00Z", "the newer");
    let seen = |count: u64| entry("2025-12-24T10:00:00Z").replace("\"seen\":2", &format!("\"seen\":{count}"));
    let text = merged(KNOWLEDGE, &seen(2), &seen(3), &seen(4));
    assert!(text.contains("\"seen\": 5"), "{text}");
}

#[test]
fn short_and_full_invariant_are_one() {
    let with = |invariant: &str| format!(r#"{{"schema_version":"1.0","invariants":[{invariant}]}}"#);
    let text = merged(KNOWLEDGE, &with(""), &with(r#""t""#), &with(r#"{"text":"t","check":"true"}, "u""#));
    let file: KnowledgeFile = serde_json::from_str(&text).unwrap();
    assert_eq!(file.invariants.len(), 2);
    assert_eq!(file.invariants[0].check(), Some("true"));
}

#[test]
fn a_status_that_both_changed_is_failing() {
    use crate::features::Status;
    let ours = first(|feature| feature.status = Status::InProgress);
    let theirs = first(|feature| feature.status = Status::Deferred);
    let file = features(&merged(FEATURES, RFC, &ours, &theirs));
    assert_eq!((file.features[0].status, &file.features[0].evidence), (Status::Failing, &None));
    let file = features(&merged(FEATURES, RFC, RFC, &theirs));
    assert_eq!(file.features[0].status, Status::Deferred, "one side alone");
    // Evidence does not outlive the pass it shows.
    let passing = first(|feature| {
        feature.evidence = Some("triv:abc_def_ghi".into());
        feature.verified_at = Some(crate::Time::parse("2025-12-25T10:00:00Z").unwrap());
    });
    let broken = first(|feature| feature.status = Status::Failing);
    let file = features(&merged(FEATURES, RFC, &passing, &broken));
    assert_eq!((file.features[0].status, &file.features[0].evidence), (Status::Failing, &None));
}

#[test]
fn removed_feature_stays_if_the_other_changed_it() {
    let removed = |text: &str| {
        let mut file = features(text);
        let gone = file.features.remove(0);
        file.retired.push(gone.id);
        String::from_utf8(json::print(&file).unwrap()).unwrap()
    };
    let mut file = features(RFC);
    file.features[1].name = "Other".into();
    file.features[1].blocked_by = None;
    let other = String::from_utf8(json::print(&file).unwrap()).unwrap();
    let mut base = features(RFC);
    base.features[1].blocked_by = None;
    let base = String::from_utf8(json::print(&base).unwrap()).unwrap();
    for (ours, theirs) in [(removed(&base), other.clone()), (other.clone(), removed(&base))] {
        for path in [FEATURES.to_owned(), format!("sub/{FEATURES}")] {
            let file = features(&merged(&path, &base, &ours, &theirs));
            assert_eq!(file.retired, ["FORGE-001"]);
            assert!(file.features.iter().all(|feature| feature.id != "FORGE-001"));
            assert_eq!(file.features[0].name, "Other");
        }
    }
    let mut file = features(&other);
    file.features[0].name = "Changed".into();
    let changed = String::from_utf8(json::print(&file).unwrap()).unwrap();
    let result = merge(FEATURES, base.as_bytes(), removed(&base).as_bytes(), changed.as_bytes());
    assert_eq!(result.conflicts.len(), 1);
}

#[test]
fn what_shows_a_pass_comes_from_one_side() {
    let seen = |day: u8| {
        first(|feature| {
            feature.evidence = Some(format!("triv:abc_def_{day}00"));
            feature.verified_at = Some(crate::Time::parse(&format!("2025-12-{day}T10:00:00Z")).unwrap());
            feature.verified_commit = (day == 26).then(|| "abc1234".into());
        })
    };
    for (ours, theirs) in [(25, 26), (26, 25)] {
        let file = features(&merged(FEATURES, RFC, &seen(ours), &seen(theirs)));
        assert_eq!(file.features[0].evidence.as_deref(), Some("triv:abc_def_2600"));
        assert_eq!(file.features[0].verified_commit.as_deref(), Some("abc1234"));
    }
}

#[test]
fn pass_does_not_outlive_changed_tests() {
    use crate::features::Status;
    let base = first(|feature| {
        feature.status = Status::InProgress;
        (feature.tests, feature.verified_at) = (Some(vec!["a".into()]), None);
    });
    let of_base = |change: &dyn Fn(&mut crate::features::Feature)| {
        let mut file = features(&base);
        change(&mut file.features[0]);
        String::from_utf8(json::print(&file).unwrap()).unwrap()
    };
    let verified = |feature: &mut crate::features::Feature| {
        feature.status = Status::Passing;
        feature.evidence = Some("triv:abc_def_ghi".into());
        feature.verified_at = Some(crate::Time::parse("2025-12-25T10:00:00Z").unwrap());
    };
    let passes = of_base(&verified);
    let more_tests = of_base(&|feature| feature.tests = Some(vec!["a".into(), "b".into()]));
    let manual = of_base(&|feature| feature.manual = Some(true));
    let same_tests = of_base(&|feature| feature.category = Some("c".into()));
    for (other, kept) in [(&more_tests, false), (&manual, false), (&same_tests, true)] {
        for (ours, theirs) in [(&passes, other), (other, &passes)] {
            let feature = features(&merged(FEATURES, &base, ours, theirs)).features.remove(0);
            assert_eq!((feature.status == Status::Passing, feature.evidence.is_some()), (kept, kept), "{feature:?}");
        }
    }
    // Both sides have a pass, and each has another test that a person added: no run covered all tests.
    let with = |tests: [&str; 2]| {
        of_base(&|feature| {
            verified(feature);
            feature.tests = Some(tests.map(str::to_owned).to_vec());
        })
    };
    let feature = features(&merged(FEATURES, &passes, &with(["a", "b"]), &with(["a", "c"]))).features.remove(0);
    assert_eq!((feature.status, feature.evidence), (Status::Failing, None));
}

#[test]
fn two_features_that_got_one_id_stay_two() {
    use crate::features::{BlockedBy, Feature, Status};
    let with = |new: Vec<Feature>, retired: &[&str]| {
        let mut file = features(RFC);
        file.features.extend(new);
        file.retired = retired.iter().map(|id| (*id).to_owned()).collect();
        String::from_utf8(json::print(&file).unwrap()).unwrap()
    };
    let new = |id: &str, name: &str| Feature::new(id, name);
    let mut import = new("FORGE-003", "Import");
    (import.status, import.evidence) = (Status::InProgress, None);
    let mut export = new("FORGE-003", "Export");
    (export.status, export.evidence) = (Status::Passing, Some("triv:abc_def_ghi".into()));
    let mut waits = new("FORGE-004", "Report");
    waits.blocked_by = Some(BlockedBy::Many(vec!["FORGE-003".into(), "FORGE-001".into()]));
    let (ours, theirs) = (with(vec![import], &["FORGE-007"]), with(vec![export, waits], &[]));
    let result = merge(FEATURES, RFC.as_bytes(), ours.as_bytes(), theirs.as_bytes());
    assert_eq!(result.conflicts.len(), 1, "{:?}", result.conflicts);
    assert!(result.conflicts[0].contains("FORGE-003 is another feature") && result.conflicts[0].contains("FORGE-008"));
    let file = features(std::str::from_utf8(&result.bytes).unwrap());
    file.validate().unwrap();
    let found: Vec<_> = file.features[2..].iter().map(|one| (one.id.as_str(), one.name.as_str(), one.status)).collect();
    let wanted = [
        ("FORGE-003", "Import", Status::InProgress),
        ("FORGE-008", "Export", Status::Failing),
        ("FORGE-004", "Report", Status::NotImplemented),
    ];
    assert_eq!(found, wanted);
    assert_eq!(file.features[3].evidence, None);
    assert_eq!(file.features[4].blockers().collect::<Vec<_>>(), ["FORGE-008", "FORGE-001"]);
    // A second merge of the same version adds nothing.
    let again = merge(FEATURES, RFC.as_bytes(), &result.bytes, theirs.as_bytes());
    assert_eq!(features(std::str::from_utf8(&again.bytes).unwrap()).features.len(), 5);

    // The same feature on both sides is one; a feature added and removed on one side is not that of the other side.
    let one = with(vec![new("FORGE-003", "One")], &[]);
    let mut same = new("FORGE-003", "One");
    same.category = Some("c".into());
    assert_eq!(features(&merged(FEATURES, RFC, &one, &with(vec![same], &[]))).features.len(), 3);
    let gone = with(vec![new("FORGE-004", "Kept")], &["FORGE-003"]);
    let file = features(&merged(FEATURES, RFC, &one, &gone));
    assert_eq!((file.features[2].id.as_str(), file.features.len(), file.retired.len()), ("FORGE-003", 4, 0));
    let result = merge(FEATURES, RFC.as_bytes(), gone.as_bytes(), one.as_bytes());
    let file = features(std::str::from_utf8(&result.bytes).unwrap());
    assert_eq!((file.features[3].id.as_str(), file.features[3].name.as_str()), ("FORGE-005", "One"));
    assert_eq!(file.retired, ["FORGE-003"]);
}

#[test]
fn superseded_entry_keeps_one_successor() {
    fn at(minute: u8) -> crate::Time {
        crate::Time::parse(&format!("2025-12-26T10:{minute:02}:00Z")).unwrap()
    }
    let works = |approach: &str| Learning::new(What::Successful { context: "c".into(), approach: approach.to_owned() });
    let mut base: KnowledgeFile = serde_json::from_str(KNOWN).unwrap();
    let first = base.add(&works("first"), at(1)).unwrap().id;
    let second = base.add(&works("second"), at(2)).unwrap().id;
    let text = |file: &KnowledgeFile| String::from_utf8(json::print(file).unwrap()).unwrap();
    let held = |ours: &KnowledgeFile, theirs: &KnowledgeFile| {
        let merged: KnowledgeFile =
            serde_json::from_str(&merged(KNOWLEDGE, &text(&base), &text(ours), &text(theirs))).unwrap();
        let mut held: Vec<String> = merged
            .patterns
            .successful
            .iter()
            .filter(|entry| entry.context == "c" && entry.trace.superseded_by.is_none())
            .map(|entry| entry.approach.clone())
            .collect();
        held.sort();
        (held, merged)
    };
    // Each took the other's place.
    let (mut ours, mut theirs) = (base.clone(), base.clone());
    ours.supersede(&first, &works("second"), at(3)).unwrap();
    theirs.supersede(&second, &works("first"), at(4)).unwrap();
    for (ours, theirs) in [(&ours, &theirs), (&theirs, &ours)] {
        assert_eq!(held(ours, theirs).0, ["second"], "the one learned last holds");
    }
    // Two took one's place.
    let (mut ours, mut theirs) = (base.clone(), base.clone());
    ours.supersede(&first, &works("ours"), at(5)).unwrap();
    let later = theirs.supersede(&first, &works("theirs"), at(6)).unwrap().by.id;
    for (ours, theirs) in [(&ours, &theirs), (&theirs, &ours)] {
        let (held, merged) = held(ours, theirs);
        assert_eq!(held, ["ours", "second", "theirs"]);
        let old = merged.patterns.successful.iter().find(|entry| entry.approach == "first").unwrap();
        assert_eq!(old.trace.superseded_by.as_ref(), Some(&later));
    }
}

#[test]
fn unsettled_conflict_keeps_ours() {
    let (ours, theirs) =
        (first(|feature| feature.name = "Ours".into()), first(|feature| feature.name = "Theirs".into()));
    let result = merge(FEATURES, RFC.as_bytes(), ours.as_bytes(), theirs.as_bytes());
    assert_eq!(result.conflicts, ["both sides changed features/FORGE-001/name"]);
    assert_eq!(String::from_utf8(result.bytes).unwrap(), ours);
    let damaged = merge(FEATURES, RFC.as_bytes(), ours.as_bytes(), b"{\"schema_version\"");
    assert_eq!((damaged.bytes, damaged.conflicts.len()), (ours.into_bytes(), 1));
    // Each alone is good; together they wait for each other.
    let waits = |from: usize, to: &str| {
        let mut file = features(RFC);
        file.features[from].blocked_by = Some(crate::features::BlockedBy::One(to.into()));
        json::print(&file).unwrap()
    };
    let ours = waits(0, "FORGE-002");
    let ring = merge(FEATURES, RFC.as_bytes(), &ours, &waits(1, "FORGE-001"));
    assert!(ring.conflicts[0].contains("wait for each other"), "{:?}", ring.conflicts);
    assert_eq!(ring.bytes, ours);
}

#[test]
fn issues_are_merged_by_their_keys() {
    let issue = |key: &str, title: &str| format!(r#"{{"linear_id":"{key}","title":"{title}"}}"#);
    let list = |issues: &[String]| format!("[{}]", issues.join(","));
    let base = list(&[issue("SX9-1", "a")]);
    let ours = list(&[issue("SX9-1", "a"), issue("SX9-2", "b")]);
    let theirs = list(&[issue("SX9-3", "c"), issue("SX9-1", "new")]);
    let text = merged(crate::layout::ACTIVE, &base, &ours, &theirs);
    let keys: Vec<String> = serde_json::from_str::<Vec<serde_json::Value>>(&text)
        .unwrap()
        .iter()
        .map(|issue| format!("{}={}", issue["linear_id"].as_str().unwrap(), issue["title"].as_str().unwrap()))
        .collect();
    assert_eq!(keys, ["SX9-1=new", "SX9-2=b", "SX9-3=c"]);
}

/// A sequence that is the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

fn learn(file: &mut KnowledgeFile, chance: &mut Chance) {
    for _ in 0..chance.below(6) {
        let pick = chance.below(12);
        let context = format!("context {pick}");
        let now = crate::Time::parse(&format!("2025-12-24T10:{:02}:00Z", chance.below(60))).unwrap();
        let what = match pick % 4 {
            0 => What::Successful { context, approach: "a".into() },
            1 => What::Failed { context, issue: "i".into(), resolution: "r".into() },
            2 => What::Decision { context, decision: "d".into(), rationale: "r".into() },
            _ => What::Invariant { text: context, check: None, severity: None },
        };
        file.add(&Learning::new(what), now).unwrap();
    }
}

fn work(file: &mut FeaturesFile, chance: &mut Chance) {
    use crate::features::{Feature, Status};
    const ALL: [Status; 6] = [
        Status::NotImplemented,
        Status::InProgress,
        Status::Failing,
        Status::Passing,
        Status::Blocked,
        Status::Deferred,
    ];
    for _ in 0..chance.below(6) {
        let id = format!("A-{:03}", chance.below(10));
        if file.get(&id).is_none() {
            file.features.push(Feature::new(id.as_str(), format!("feature {id}")));
        }
        let feature = file.features.iter_mut().find(|feature| feature.id == id).unwrap();
        feature.status = ALL[usize::try_from(chance.below(6)).unwrap()];
        if feature.status == Status::Passing {
            let day = 10 + chance.below(19);
            feature.evidence = Some(format!("triv:abc_def_{day}0"));
            feature.verified_at = Some(crate::Time::parse(&format!("2025-12-{day}T10:00:00Z")).unwrap());
        } else {
            feature.evidence = None;
        }
        let mut tests = feature.tests.take().unwrap_or_default();
        let test = format!("t{}", chance.below(5));
        if !tests.contains(&test) {
            tests.push(test);
        }
        feature.tests = Some(tests);
    }
}

#[test]
fn random_pairs_merge_without_losing_an_entry() {
    fn three<D: Document>(seed: u64, change: impl Fn(&mut D, &mut Chance)) -> [D; 3] {
        let mut chance = Chance(seed);
        let mut base = D::skeleton();
        change(&mut base, &mut chance);
        let (mut ours, mut theirs) = (base.clone(), base.clone());
        change(&mut ours, &mut chance);
        change(&mut theirs, &mut chance);
        [base, ours, theirs]
    }
    fn joined<D: Document>(all: &[D; 3], seed: u64) -> D {
        let [base, ours, theirs] = all.each_ref().map(|file| json::print(file).unwrap());
        let merged = merge(D::PATH, &base, &ours, &theirs);
        assert_eq!(merged.conflicts, Vec::<String>::new(), "{seed}");
        let again = merge(D::PATH, &base, &merged.bytes, &theirs);
        assert_eq!(again.conflicts, Vec::<String>::new(), "{seed}");
        let (value, newer) = crate::files::decode::<D>(&merged.bytes).unwrap_or_else(|why| panic!("{seed}: {why:?}"));
        assert!(!newer);
        value
    }
    let mut changed = 0;
    for seed in 0..200 {
        let all = three::<KnowledgeFile>(seed, learn);
        let merged = joined(&all, seed);
        let names = |file: &KnowledgeFile| file.entries().map(|entry| (entry.kind, entry.id())).collect::<Vec<_>>();
        let wanted: BTreeSet<_> = names(&all[1]).into_iter().chain(names(&all[2])).collect();
        let found = names(&merged);
        assert_eq!(found.len(), wanted.len(), "{seed}: none is there twice");
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), wanted, "{seed}");
        changed += usize::from(all[1] != all[0] && all[2] != all[0]);

        let all = three::<FeaturesFile>(seed, work);
        let merged = joined(&all, seed);
        let names = |file: &FeaturesFile| {
            let named = |feature: &crate::features::Feature| {
                feature.tests().iter().map(|test| (feature.id.clone(), test.clone())).collect::<Vec<_>>()
            };
            file.features.iter().flat_map(named).collect::<BTreeSet<_>>()
        };
        assert_eq!(names(&merged), names(&all[1]).union(&names(&all[2])).cloned().collect(), "{seed}");
        for feature in &merged.features {
            let passing = feature.status == crate::features::Status::Passing;
            assert_eq!(feature.evidence.is_some(), passing, "{seed}: {feature:?}");
        }
    }
    assert!(changed > 100, "{changed}");
}
