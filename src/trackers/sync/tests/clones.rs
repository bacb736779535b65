//! Several clones and people at one tracker.

use super::*;

/// A small generator of random numbers: the same seed, the same run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

/// What was ever added, and must be there at the end.
#[derive(Default)]
struct Added {
    titles: BTreeSet<String>,
    criteria: BTreeSet<String>,
}

fn edit_here(clone: &Clone, number: usize, random: &mut Random, added: &mut Added) {
    let keys: Vec<String> = clone
        .project
        .issues()
        .read()
        .unwrap()
        .issues
        .into_iter()
        .map(|issue| issue.linear_id)
        .collect();
    if keys.is_empty() || random.below(6) == 0 {
        let title = format!("added {number}");
        clone.add(&title);
        added.titles.insert(title);
        return;
    }
    let key = &keys[random.below(keys.len())];
    let mut issue = clone.issue(key);
    match random.below(4) {
        0 => clone.set(
            key,
            &IssueEdit {
                fields: IssueFields {
                    description: Some(format!("text {number}")),
                    ..IssueFields::default()
                },
                ..IssueEdit::default()
            },
        ),
        1 => clone.set(
            key,
            &IssueEdit {
                fields: IssueFields {
                    priority: Some(u8::try_from(random.below(5)).unwrap()),
                    ..IssueFields::default()
                },
                ..IssueEdit::default()
            },
        ),
        2 => clone.set(
            key,
            &IssueEdit {
                state: Some(["Open", "In Progress"][random.below(2)].into()),
                ..IssueEdit::default()
            },
        ),
        _ => {
            let text = format!("criterion {number}");
            added.criteria.insert(text.clone());
            let mut all: Vec<String> = issue
                .acceptance_criteria
                .drain(..)
                .map(|one| one.text().to_owned())
                .collect();
            all.push(text);
            clone.set(
                key,
                &IssueEdit {
                    fields: IssueFields {
                        criteria: Some(all),
                        ..IssueFields::default()
                    },
                    ..IssueEdit::default()
                },
            );
        }
    }
}

fn edit_there(mock: &Mock, number: usize, random: &mut Random, added: &mut Added) {
    mock.with(|store| {
        if store.issues.is_empty() || random.below(6) == 0 {
            let title = format!("added {number}");
            store.add(&title);
            added.titles.insert(title);
            return;
        }
        let key = store.issues[random.below(store.issues.len())].key.clone();
        let pick = random.below(4);
        let value = random.below(5);
        store.edit(&key, |issue| match pick {
            0 => issue.priority = u8::try_from(value).unwrap(),
            1 => issue.state = ["Todo", "In Progress", "In Review"][value % 3].into(),
            2 => {
                if !issue.labels.remove("ui") {
                    issue.labels.insert("ui".into());
                }
            }
            _ => {
                let text = format!("criterion {number}");
                let (body, _) = crate::mark::split(&issue.description);
                let mut items = crate::describe::split(body).criteria;
                items.push(helmdeck_forge_documents::tracking::CheckItem {
                    text: text.clone(),
                    done: false,
                });
                issue.description = crate::describe::put(&issue.description, None, Some(&items));
                added.criteria.insert(text);
            }
        });
    });
}

/// Settles every conflict: an even one with the value here, an odd one with theirs.
fn settle_conflicts(clone: &Clone, random: &mut Random) {
    for conflict in clone.status().conflicts {
        let choice = if random.below(2) == 0 {
            Choice::Ours
        } else {
            Choice::Theirs
        };
        resolve(&clone.project, &conflict.key, conflict.field, &choice).unwrap();
    }
}

/// An issue as people see it on a board.
#[derive(Debug, PartialEq)]
struct Card {
    key: String,
    title: String,
    description: Option<String>,
    state: Option<String>,
    priority: u8,
    labels: BTreeSet<String>,
    criteria: BTreeSet<String>,
}

fn board(clone: &Clone) -> Vec<Card> {
    let issues = clone.project.issues().read().unwrap().issues.into_iter();
    let card = |issue: Issue| Card {
        criteria: issue
            .acceptance_criteria
            .iter()
            .map(|one| one.text().to_owned())
            .collect(),
        labels: issue.labels.iter().cloned().collect(),
        priority: issue.priority.unwrap_or(0),
        key: issue.linear_id,
        title: issue.title,
        description: issue.description,
        state: issue.state,
    };
    issues.map(card).collect()
}

#[tokio::test]
async fn two_clones_and_people_end_with_equal_boards() {
    for seed in [0x9E37_79B9_7F4A_7C15, 0xD1B5_4A32_D192_ED03] {
        let mock = Mock::start();
        let clones = [Clone::new(&mock), Clone::new(&mock)];
        clones[1].clock.advance(Duration::from_secs(500_000));
        let (mut random, mut added) = (Random(seed), Added::default());
        for number in 0..200 {
            match random.below(3) {
                2 => edit_there(&mock, number, &mut random, &mut added),
                at => edit_here(&clones[at], number, &mut random, &mut added),
            }
            if random.below(5) == 0 {
                let clone = &clones[random.below(2)];
                clone.sync().sync(&Pull::default()).await.unwrap();
                settle_conflicts(clone, &mut random);
            }
        }
        for _ in 0..6 {
            for clone in &clones {
                let (_, pushed) = clone.sync().sync(&Pull::default()).await.unwrap();
                assert_eq!(pushed.failed, Vec::new());
                settle_conflicts(clone, &mut random);
            }
        }
        let [one, two] = [board(&clones[0]), board(&clones[1])];
        assert_eq!(one, two, "seed {seed}");
        let theirs = mock.with(|store| store.issues.clone());
        let titles: Vec<String> = one.iter().map(|issue| issue.title.clone()).collect();
        assert_eq!(
            titles.iter().cloned().collect::<BTreeSet<_>>(),
            added.titles,
            "none is lost"
        );
        assert_eq!(titles.len(), added.titles.len(), "none is doubled");
        assert_eq!(theirs.len(), titles.len());
        let criteria: BTreeSet<String> = one
            .iter()
            .flat_map(|issue| issue.criteria.clone())
            .collect();
        assert_eq!(criteria, added.criteria);
        for issue in &theirs {
            let here = one.iter().find(|here| here.key == issue.key).unwrap();
            let labels = issue
                .labels
                .iter()
                .filter(|label| *label != "Task")
                .cloned()
                .collect();
            assert_eq!(
                (&here.title, here.priority, here.labels.clone()),
                (&issue.title, issue.priority, labels),
                "{}",
                issue.key
            );
        }
        let asked = mock.asked().len();
        for clone in &clones {
            let (pulled, pushed) = clone.sync().sync(&Pull::default()).await.unwrap();
            assert_eq!(
                (pulled.changed, pushed),
                (Vec::new(), Pushed::default()),
                "it is quiet"
            );
        }
        assert!(
            mock.asked()[asked..]
                .iter()
                .all(|asked| matches!(asked.operation.as_str(), "Issues" | "Comments"))
        );
        conforms(&mock);
    }
}

#[tokio::test]
async fn one_issue_in_two_clones_is_created_once() {
    let mock = Mock::start();
    let clones = [Clone::new(&mock), Clone::new(&mock)];
    clones[0].add("Shared");
    // As if git had carried the file.
    let file = format!(
        ".forge/linear/issues/{}.json",
        clones[0].issue("LOCAL-1").stem()
    );
    let text = std::fs::read(clones[0].project.root().join(&file)).unwrap();
    std::fs::create_dir_all(clones[1].project.root().join(".forge/linear/issues")).unwrap();
    std::fs::write(clones[1].project.root().join(&file), text).unwrap();
    clones[0].push().await;
    clones[0].set("SX9-1", &titled("Renamed"));
    clones[0].push().await;
    clones[1].push().await;
    clones[1].pull().await;
    assert_eq!(mock.with(|store| store.issues.len()), 1);
    assert_eq!(
        (
            clones[1].issue("LOCAL-1").linear_id.as_str(),
            clones[1].issue("SX9-1").title.as_str()
        ),
        ("SX9-1", "Renamed")
    );
    conforms(&mock);
}

#[tokio::test]
async fn a_new_clone_knows_what_another_one_synchronised() {
    let mock = Mock::start();
    mock.with(|store| store.add("First"));
    let first = Clone::new(&mock);
    first.pull().await;
    let second = Clone::new(&mock);
    let folder = second.project.root().join(".forge/linear/issues");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(
        first.project.root().join(".forge/linear/issues/SX9-1.json"),
        folder.join("SX9-1.json"),
    )
    .unwrap();
    mock.with(|store| store.edit("SX9-1", |issue| issue.title = "Theirs".into()));
    let pulled = second.pull().await;
    assert_eq!(
        (pulled.conflicts, second.issue("SX9-1").title.as_str()),
        (0, "Theirs")
    );
    conforms(&mock);
}
