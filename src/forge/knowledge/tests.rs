//! Knowledge in a real project, in a real repository.

use super::*;
use crate::environment::ProjectEnvironment;
use crate::git::fixture::Repository;
use crate::knowledge::Knowledge;

fn project(repository: &Repository) -> Project {
    std::fs::create_dir_all(repository.path().join(".forge/memory/long-term")).unwrap();
    Project::open(repository.path(), ProjectEnvironment::default()).unwrap().unwrap()
}

fn works(context: &str, approach: &str) -> Learning {
    Learning::new(What::Successful { context: context.into(), approach: approach.into() })
}

#[test]
fn what_is_learned_is_there_afterwards() {
    let repository = Repository::new();
    let project = project(&repository);
    let knowledge = Knowledge::new(&project);
    assert_eq!(knowledge.read().unwrap().entries().count(), 0, "absent is empty");
    let added = knowledge.add(&works("c", "a"), None).unwrap();
    assert!(added.new);
    assert!(!knowledge.add(&works("c", "a"), None).unwrap().new);
    let error = knowledge.add(&works("c", "b"), Some("0000000000000000000000000")).unwrap_err();
    assert_eq!(error.category, Category::Stale);
    let found = knowledge.search(&Search { query: "c".into(), ..Search::default() }).unwrap();
    assert_eq!((found.total, found.entries[0].seen), (1, 2));
    assert!(knowledge.export(Format::Json).unwrap().starts_with("{\n  \"schema_version\": \"1.0\",\n"));
    assert_eq!(knowledge.oversize().unwrap(), None);
}

#[test]
fn what_was_learned_of_files_that_changed_may_be_stale() {
    let repository = Repository::new();
    repository.write("src/a.rs", "one\n");
    repository.write("src/b.rs", "one\n");
    let first = repository.commit("first");
    let project = project(&repository);
    let knowledge = Knowledge::new(&project);
    let mut about_a = works("a", "x");
    about_a.paths = vec!["src/a.rs".into()];
    let a = knowledge.add(&about_a, None).unwrap().id;
    assert_eq!(knowledge.read().unwrap().patterns.successful[0].trace.commit.as_deref(), Some(first.as_str()));
    let mut about_folder = works("folder", "x");
    about_folder.paths = vec!["src".into()];
    knowledge.add(&about_folder, None).unwrap();
    let mut lost = works("lost", "x");
    lost.paths = vec!["src".into()];
    lost.commit = Some("0123456789012345678901234567890123456789".into());
    let lost = knowledge.add(&lost, None).unwrap().id;
    let drift = knowledge.drift().unwrap();
    assert_eq!((drift.maybe_stale.len(), drift.looked_at, drift.commit_missing), (0, 3, vec![lost]));

    repository.write("src/a.rs", "one\ntwo\n");
    repository.write("src/a.rs.txt", "no part of it\n");
    let drift = knowledge.drift().unwrap();
    assert_eq!(drift.maybe_stale.len(), 2);
    let change = &drift.maybe_stale.iter().find(|stale| stale.id == a).unwrap().changed[0];
    assert_eq!((change.path.as_str(), change.added, change.deleted), ("src/a.rs", 1, 0));

    repository.commit("second");
    knowledge.confirm(&a, None).unwrap();
    let drift = knowledge.drift().unwrap();
    assert_eq!(drift.maybe_stale.iter().map(|stale| stale.text.as_str()).collect::<Vec<_>>(), ["folder"]);
}

#[test]
fn files_of_a_project_below_the_root_of_the_repository_are_its_own() {
    let repository = Repository::new();
    repository.write("sub/src/a.rs", "one\n");
    repository.write("src/a.rs", "one\n");
    repository.commit("first");
    std::fs::create_dir_all(repository.path().join("sub/.forge/memory/long-term")).unwrap();
    let project = Project::open(&repository.path().join("sub"), ProjectEnvironment::default()).unwrap().unwrap();
    let mut about = works("a", "x");
    about.paths = vec!["src".into()];
    Knowledge::new(&project).add(&about, None).unwrap();
    repository.write("src/a.rs", "one\ntwo\n");
    assert_eq!(Knowledge::new(&project).drift().unwrap().maybe_stale, []);
    repository.write("sub/src/a.rs", "one\ntwo\n");
    assert_eq!(Knowledge::new(&project).drift().unwrap().maybe_stale[0].changed[0].path, "src/a.rs");
}

#[test]
fn entries_are_merged_only_when_git_keeps_them() {
    let repository = Repository::new();
    let project = project(&repository);
    let knowledge = Knowledge::new(&project);
    knowledge.add(&works("new subject", "add it to the subjects file, run the tests"), None).unwrap();
    knowledge.add(&works("new subject", "add it to the subjects file, then run the tests"), None).unwrap();
    let proposal = knowledge.propose().unwrap();
    assert_eq!(proposal.merges.len(), 1);
    assert_eq!(knowledge.compact(&proposal.etag, &[]).unwrap_err().code, "E_NOT_COMMITTED");
    repository.run(&["add", "-f", ".forge/memory"]);
    repository.commit("keep it");
    assert_eq!(knowledge.compact("0000000000000000000000000", &[]).unwrap_err().category, Category::Stale);
    let done = knowledge.compact(&proposal.etag, &[]).unwrap();
    assert_eq!((done.before, done.after), (2, 1));
    assert_eq!(knowledge.read().unwrap().patterns.successful[0].trace.seen, Some(2));
}

#[test]
fn a_damaged_file_is_loud_and_stays() {
    let repository = Repository::new();
    let project = project(&repository);
    repository.write(KNOWLEDGE, "{\"schema_version\": \"1.0\"");
    assert_eq!(Knowledge::new(&project).add(&works("c", "a"), None).unwrap_err().category, Category::Corrupt);
    assert_eq!(Knowledge::new(&project).search(&Search::default()).unwrap_err().category, Category::Corrupt);
    assert_eq!(std::fs::read_to_string(repository.path().join(KNOWLEDGE)).unwrap(), "{\"schema_version\": \"1.0\"");
}
