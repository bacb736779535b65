use super::*;
use crate::fixture::Fixture;
use crate::knowledge::{Knowledge, Learning, Search, What};

fn learn(fixture: &Fixture, context: &str) -> String {
    let what = What::Successful {
        context: context.to_owned(),
        approach: "do so".to_owned(),
    };
    let learning = Learning {
        paths: vec!["src/a.rs".to_owned()],
        ..Learning::new(what)
    };
    Knowledge::new(&fixture.project)
        .add(&learning, None)
        .unwrap()
        .id
}

fn wanted(limit: usize, after: Option<&str>) -> PageRequest {
    PageRequest {
        after: after.map(str::to_owned),
        limit,
    }
}

#[test]
fn parts_of_a_list_join_to_the_whole() {
    let all: Vec<String> = (0..5).map(|number| format!("n{number}")).collect();
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let part = ListPage::of(all.clone(), &wanted(2, after.as_deref()), String::clone).unwrap();
        assert_eq!(part.total, 5);
        seen.extend(part.items);
        after = part.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, all);
    let gone = ListPage::of(all, &wanted(2, Some("gone")), String::clone).unwrap_err();
    assert_eq!(gone.code, "E_USAGE");
}

#[test]
fn knowledge_of_an_earlier_commit_is_shown() {
    let fixture = Fixture::new();
    fixture.repository.write("src/a.rs", "one\n");
    fixture.repository.commit("first");
    let first = learn(&fixture, "one");
    let then = fixture.repository.commit("learned one");
    let second = learn(&fixture, "two");
    fixture.repository.commit("learned two");
    fixture.repository.write("src/a.rs", "two\n");

    let (search, all) = (Search::default(), wanted(10, None));
    let now = knowledge(&fixture.project, &search, None, &all).unwrap();
    assert_eq!((now.entries.total, now.as_of), (2, None));
    assert!(now.etag.is_some() && now.entries.items.iter().any(|entry| entry.id == second));
    assert_eq!(now.versions.len(), 2);

    let before = knowledge(&fixture.project, &search, Some("HEAD~1"), &all).unwrap();
    assert_eq!(
        (before.entries.total, before.as_of.as_deref()),
        (1, Some(then.as_str()))
    );
    assert_eq!(
        (before.entries.items[0].id.as_str(), before.etag),
        (first.as_str(), None)
    );
    let unknown = knowledge(&fixture.project, &search, Some("--all"), &all).unwrap_err();
    assert_eq!(
        unknown.category,
        crate::Category::NotFound,
        "an option is no name"
    );
}

#[test]
fn commits_come_in_parts_with_their_issue() {
    let fixture = Fixture::new();
    assert_eq!(
        commits(&fixture.project, &wanted(10, None)).unwrap().total,
        0,
        "before the first commit"
    );
    for number in 1..=3 {
        fixture.repository.commit(&format!(
            "[SX9-{number}] Change {number}\n\n## What\n- It\n"
        ));
    }
    let first = commits(&fixture.project, &wanted(2, None)).unwrap();
    assert_eq!((first.total, first.next.as_deref()), (3, Some("2")));
    assert_eq!(first.items[0].subject, "[SX9-3] Change 3");
    assert_eq!(first.items[0].issue.as_deref(), Some("SX9-3"));
    let rest = commits(&fixture.project, &wanted(2, Some("2"))).unwrap();
    assert_eq!((rest.items.len(), rest.next), (1, None));
    assert!(commits(&fixture.project, &wanted(2, Some("x"))).is_err());
}

#[test]
fn tree_names_damage_and_leaves_out_local_files() {
    let fixture = Fixture::new();
    learn(&fixture, "one");
    fixture.repository.write(crate::layout::FEATURES, "{");
    let project = crate::Project::open(
        fixture.repository.path(),
        fixture.project.environment().clone(),
    );
    let project = project.unwrap().unwrap().reading();
    let all = tree(&project, &wanted(100, None)).unwrap().items;
    assert!(
        all.iter()
            .all(|file| !file.path.starts_with(crate::layout::LOCAL)),
        "{all:?}"
    );
    let of = |path: &str| {
        all.iter()
            .find(|file| file.path == path)
            .unwrap_or_else(|| panic!("{path}: {all:?}"))
    };
    let is_learned =
        |path: &str| path.starts_with(crate::layout::KNOWLEDGE_ENTRIES) && path.ends_with(".json");
    let knowledge = all.iter().find(|file| is_learned(&file.path)).unwrap();
    assert_eq!(
        (knowledge.folder.as_deref(), knowledge.colour.as_deref()),
        (Some("long-term"), Some("#4CAF50"))
    );
    assert!(knowledge.etag.is_some() && knowledge.damage.is_none());
    let features = of(crate::layout::FEATURES);
    assert!(features.damage.is_some() && features.last_entry_at.is_none());
}

#[test]
fn difference_runs_no_program_of_the_settings() {
    let fixture = Fixture::new();
    fixture.repository.write("a.txt", "one\n");
    fixture
        .repository
        .write(".gitattributes", "*.txt diff=evil\n");
    let commit = fixture.repository.commit("first");
    fixture.repository.run(&["config", "user.name", "Ann"]);
    fixture
        .repository
        .run(&["config", "user.email", "ann@example.com"]);
    for name in ["diff.evil.command", "diff.evil.textconv", "diff.external"] {
        fixture.repository.run(&["config", name, "touch ran; cat"]);
    }
    let made = crate::checkpoints::Checkpoints::new(&fixture.project).create(
        &crate::checkpoints::Create {
            key: Some("SX9-1".to_owned()),
            message: Some("a checkpoint".to_owned()),
            verify: vec!["true".to_owned()],
            ..Default::default()
        },
    );
    let name = made
        .unwrap()
        .tag
        .trim_start_matches("checkpoint/")
        .to_owned();
    let key = |word: &str| format!("-----{word} {} KEY-----", "PRIVATE");
    fixture.repository.write(
        "a.txt",
        format!("two\n{}\nMIIsecret\n{}\n", key("BEGIN"), key("END")),
    );
    fixture.repository.write("new.txt", "new\n");
    let seen = diff(&fixture.project, &name, None).unwrap();
    assert_eq!(seen.commit, commit.as_str());
    assert_eq!(
        seen.files
            .iter()
            .map(|file| file.path.as_str())
            .collect::<Vec<_>>(),
        ["a.txt", "new.txt"]
    );
    assert!(
        seen.text.contains("-one\n+two\n") && !seen.truncated,
        "{}",
        seen.text
    );
    assert!(
        !seen.text.contains("MIIsecret"),
        "a credential is left out: {}",
        seen.text
    );
    assert!(!fixture.has("ran"));
    assert_eq!(
        diff(&fixture.project, &name, Some("new.txt"))
            .unwrap()
            .files
            .len(),
        1
    );
    assert!(diff(&fixture.project, "SX9-9-v1", None).is_err());
}
