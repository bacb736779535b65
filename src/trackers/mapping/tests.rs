//! The mapping of a team with several states of a kind.

use super::*;
use crate::tracker::Label;

fn directory() -> Directory {
    let state = |name: &str, kind| State {
        id: format!("id of {name}"),
        name: name.to_owned(),
        kind,
    };
    let person = |name: &str, mail: &str| Person {
        id: format!("id of {name}"),
        name: name.to_owned(),
        others: vec![mail.to_owned()],
    };
    Directory {
        team: "SX9".to_owned(),
        states: vec![
            state("Backlog", StateKind::Open),
            state("Todo", StateKind::Open),
            state("Doing", StateKind::Started),
            state("In Review", StateKind::Started),
            state("Done", StateKind::Completed),
            state("Canceled", StateKind::Cancelled),
        ],
        labels: ["Feature", "Bug", "ui"]
            .map(|name| Label {
                id: name.to_owned(),
                name: name.to_owned(),
            })
            .into(),
        people: vec![
            person("Ada", "ada@example.com"),
            person("Grace", "grace@example.com"),
        ],
        ..Directory::default()
    }
}

fn settings(text: &str) -> LinearConfig {
    helmdeck_forge::Config::parse(text).unwrap().linear
}

const STATES: &str =
    "[linear.states]\n\"In Progress\" = \"Doing\"\n[linear.users]\nforge = \"ada@example.com\"\n";

fn theirs() -> tracker::Issue {
    let directory = directory();
    tracker::Issue {
        title: "A title".to_owned(),
        description: "Text.\n\n## Acceptance criteria\n\n- [ ] works\n".to_owned(),
        state: directory.states[2].clone(),
        priority: Some(2),
        labels: Some(vec!["Bug".to_owned(), "ui".to_owned()]),
        assignee: Some(directory.people[0].clone()),
        blocked_by: Some(vec!["SX9-1".to_owned()]),
        ..tracker::Issue::default()
    }
}

#[test]
fn ambiguous_states_are_refused_with_candidates() {
    let (directory, settings) = (directory(), settings(""));
    let mapping = Mapping::new(&settings, &directory, &Field::ALL);
    let error = mapping.state(IN_PROGRESS).unwrap_err();
    assert_eq!(error.kind, Kind::Settings);
    assert!(
        error.message.contains("\"Doing\", \"In Review\"")
            && error.message.contains("[linear.states]"),
        "{error}"
    );
    assert_eq!(mapping.state("in review").unwrap().name, "In Review");
    assert_eq!(mapping.state(CANCELLED).unwrap().name, "Canceled");
    assert!(
        mapping
            .state("nonsense")
            .unwrap_err()
            .message
            .contains("\"Backlog\"")
    );
}

#[test]
fn a_word_for_the_same_state_is_kept() {
    let (directory, settings) = (directory(), settings(STATES));
    let mapping = Mapping::new(&settings, &directory, &Field::ALL);
    let mut near = Fields::default();
    near.set(Field::State, Some(Value::Text("in review".to_owned())));
    let review = tracker::Issue {
        state: directory.states[3].clone(),
        ..theirs()
    };
    assert_eq!(
        mapping.theirs(&review, &[&near]).text(Field::State),
        "in review"
    );
    assert_eq!(mapping.theirs(&review, &[]).text(Field::State), IN_PROGRESS);
    assert_eq!(
        mapping.theirs(&theirs(), &[&near]).text(Field::State),
        IN_PROGRESS
    );
}

#[test]
fn fields_come_back_as_they_were_written() {
    let (directory, settings) = (directory(), settings(STATES));
    let mapping = Mapping::new(&settings, &directory, &Field::ALL);
    let fields = mapping.theirs(&theirs(), &[]);
    assert_eq!(
        (fields.text(Field::Type), fields.text(Field::Assignee)),
        ("bug", "forge")
    );
    assert_eq!(
        fields.names(Field::Labels),
        BTreeSet::from(["ui".to_owned()])
    );
    let mut issue = Issue {
        labels: vec!["only here".to_owned()],
        blocked_by: vec!["LOCAL-3".to_owned()],
        ..Issue::default()
    };
    mapping.write(&mut issue, &fields);
    assert_eq!(mapping.ours(&issue), fields);
    assert_eq!(
        (issue.labels.len(), issue.blocked_by.len()),
        (2, 2),
        "what only the project has stays: {issue:?}"
    );
    assert_eq!(issue.kind.as_deref(), Some("bug"));
    let before = issue.clone();
    mapping.write(&mut issue, &fields);
    assert_eq!(issue, before);
}

#[test]
fn only_what_changed_is_sent() {
    let (directory, settings) = (directory(), settings(STATES));
    let mapping = Mapping::new(&settings, &directory, &Field::ALL);
    let mut fields = mapping.theirs(&theirs(), &[]);
    fields.set(Field::Type, Some(Value::Text("feature".to_owned())));
    fields.set(Field::Labels, None);
    fields.set(Field::Assignee, None);
    fields.set(
        Field::Criteria,
        Some(Value::Criteria(vec![CheckItem {
            text: "works".to_owned(),
            done: true,
        }])),
    );
    let push = BTreeSet::from([Field::Type, Field::Labels, Field::Assignee, Field::Criteria]);
    let edit = mapping.edit(&fields, &push, &theirs()).unwrap();
    assert_eq!(edit.labels_added, ["Feature"]);
    assert_eq!(edit.labels_removed, ["ui", "Bug"]);
    assert_eq!(
        (edit.title, edit.state, edit.assignee),
        (None, None, Some(None))
    );
    assert_eq!(
        edit.description.as_deref(),
        Some("Text.\n\n## Acceptance criteria\n\n- [x] works")
    );
}

#[test]
fn unknown_people_and_long_texts_are_refused() {
    let (directory, settings) = (directory(), settings(STATES));
    let mapping = Mapping::new(&settings, &directory, &Field::ALL);
    let mut fields = Fields::default();
    fields.set(Field::Assignee, Some(Value::Text("nobody".to_owned())));
    let error = mapping.creation(&fields).unwrap_err();
    assert!(
        error.message.contains("\"Grace\"") && error.message.contains("[linear.users]"),
        "{error}"
    );
    let mut fields = Fields::default();
    fields.set(
        Field::Description,
        Some(Value::Text("é".repeat(MAX_DESCRIPTION + 1))),
    );
    assert_eq!(mapping.creation(&fields).unwrap_err().kind, Kind::TooLarge);
}

#[test]
fn credentials_of_a_tracker_are_not_taken_over() {
    let (directory, settings) = (directory(), settings(STATES));
    let mapping = Mapping::new(&settings, &directory, &Field::ALL);
    let leak = helmdeck_testkit::leaks::credentials().remove(0).1;
    let issue = tracker::Issue {
        description: format!("see {leak}"),
        title: format!("use {leak}"),
        ..theirs()
    };
    let fields = mapping.theirs(&issue, &[]);
    for field in [Field::Title, Field::Description] {
        assert!(
            fields
                .text(field)
                .starts_with("[not taken over: it looks like a credential"),
            "{fields:?}"
        );
    }
}
