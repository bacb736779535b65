//! Knowledge in a real project, in a real repository.

use super::*;
use crate::environment::ProjectEnvironment;
use crate::error::Category;
use crate::git::fixture::Repository;
use crate::knowledge::Knowledge;
use crate::layout::KNOWLEDGE;

fn project(repository: &Repository) -> Project {
    std::fs::create_dir_all(repository.path().join(".forge/memory/long-term")).unwrap();
    Project::open(repository.path(), ProjectEnvironment::default())
        .unwrap()
        .unwrap()
}

fn works(context: &str, approach: &str) -> Learning {
    Learning::new(What::Successful {
        context: context.into(),
        approach: approach.into(),
    })
}

#[test]
fn what_is_learned_is_there_afterwards() {
    let repository = Repository::new();
    let project = project(&repository);
    let knowledge = Knowledge::new(&project);
    assert_eq!(
        knowledge.read().unwrap().entries().count(),
        0,
        "absent is empty"
    );
    let added = knowledge.add(&works("c", "a"), None).unwrap();
    assert!(added.new);
    assert!(!knowledge.add(&works("c", "a"), None).unwrap().new);
    let error = knowledge
        .add(&works("c", "b"), Some("0000000000000000000000000"))
        .unwrap_err();
    assert_eq!(error.category, Category::Stale);
    let found = knowledge
        .search(&Search {
            query: "c".into(),
            ..Search::default()
        })
        .unwrap();
    assert_eq!((found.total, found.entries[0].seen), (1, 2));
}

#[test]
fn a_damaged_file_is_loud_and_stays() {
    let repository = Repository::new();
    let project = project(&repository);
    repository.write(KNOWLEDGE, "{\"schema_version\": \"1.0\"");
    assert_eq!(
        Knowledge::new(&project)
            .add(&works("c", "a"), None)
            .unwrap_err()
            .category,
        Category::Corrupt
    );
    assert_eq!(
        Knowledge::new(&project)
            .search(&Search::default())
            .unwrap_err()
            .category,
        Category::Corrupt
    );
    assert_eq!(
        std::fs::read_to_string(repository.path().join(KNOWLEDGE)).unwrap(),
        "{\"schema_version\": \"1.0\""
    );
}
