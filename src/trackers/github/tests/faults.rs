//! A failing GitHub, and several clones at it: nothing is lost, doubled or half done.

use helmdeck_testkit::github_issues::HubFault;

use super::*;
use crate::sync::{Choice, resolve, retry, status};

fn http(status: u16, headers: &[(&str, &str)]) -> HubFault {
    HubFault::Http(
        status,
        headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    )
}

fn add(clone: &Clone, title: &str) -> String {
    let add = AddIssue {
        title: title.to_owned(),
        ..AddIssue::default()
    };
    clone.project.issues().add(&add).unwrap().issue.linear_id
}

#[tokio::test]
async fn error_on_second_page_discards_the_batch() {
    let mock = Mock::start();
    mock.with(|store| {
        store.page = 2;
        for number in 0..5 {
            store.add(&format!("issue {number}"));
        }
    });
    let clone = Clone::new(&mock);
    mock.fail("per_page=100&page=2", 0, http(422, &[]));
    clone.sync().pull(&Pull::default()).await.unwrap_err();
    assert_eq!(clone.project.issues().read().unwrap().issues.len(), 0);
    assert!(status(&clone.project).unwrap().failure.is_some());
    assert_eq!(
        clone
            .sync()
            .pull(&Pull::default())
            .await
            .unwrap()
            .added
            .len(),
        5
    );
    assert_eq!(status(&clone.project).unwrap().failure, None);
}

#[tokio::test]
async fn limits_keep_every_change_for_later() {
    let mock = Mock::start();
    let clone = Clone::new(&mock);
    add(&clone, "One");
    for fault in [
        http(429, &[("Retry-After", "120")]),
        http(403, &[("Retry-After", "120")]),
        http(
            403,
            &[
                ("X-RateLimit-Remaining", "0"),
                ("X-RateLimit-Limit", "5000"),
                ("X-RateLimit-Reset", "1"),
            ],
        ),
    ] {
        for _ in 0..9 {
            mock.fail("POST", 0, fault.clone());
        }
        let pushed = clone.push().await;
        assert!(
            pushed.stopped.is_some() && pushed.failed.is_empty() && pushed.waiting == 1,
            "{pushed:?}"
        );
        mock.forget_faults();
        retry(&clone.project).unwrap();
        helmdeck_forge_documents::tracking::Outbox::edit(clone.project.files(), |waiting| {
            waiting.iter_mut().for_each(|one| one.next_at = None);
        })
        .unwrap();
    }
    assert_eq!(clone.push().await.delivered.len(), 1);
    assert_eq!(mock.with(|store| store.issues.len()), 1);
}

#[tokio::test]
async fn server_errors_and_cut_connections_double_nothing() {
    let mock = Mock::start();
    let clone = Clone::new(&mock);
    add(&clone, "One");
    for fault in [http(500, &[]), HubFault::CutAfter] {
        mock.fail("POST", 0, fault);
        // The look whether it is there fails too, after the one before the request.
        for _ in 0..9 {
            mock.fail("direction=desc", 1, HubFault::CutBefore);
        }
        assert_eq!(clone.push().await.failed.len(), 1);
        mock.forget_faults();
        retry(&clone.project).unwrap();
    }
    assert_eq!(clone.push().await.delivered.len(), 1);
    assert_eq!(
        (
            mock.with(|store| store.issues.len()),
            clone.issue("LOCAL-1").linear_id.as_str()
        ),
        (1, "GH-1")
    );
}

#[tokio::test]
async fn a_wrong_token_changes_nothing() {
    let mock = Mock::start();
    let clone = Clone::new(&mock);
    add(&clone, "One");
    for _ in 0..9 {
        mock.fail("GET", 0, http(401, &[]));
    }
    assert_eq!(
        clone.sync().push(&Push::default()).await.unwrap_err().code,
        "E_TRACKER_AUTH"
    );
    mock.forget_faults();
    assert_eq!(status(&clone.project).unwrap().failed.len(), 0);
    assert_eq!(clone.push().await.delivered.len(), 1);
}

#[tokio::test]
async fn texts_too_long_or_with_credentials_hold_up_nothing() {
    let mock = Mock::start();
    let leak = helmdeck_testkit::leaks::credentials().remove(0).1;
    mock.with(|store| {
        store.add("First");
        store.edit(1, |issue| issue.body = format!("use {leak}"));
    });
    let clone = Clone::new(&mock);
    clone.sync().pull(&Pull::default()).await.unwrap();
    let text = clone.issue("GH-1").description.unwrap();
    assert!(
        text.starts_with("[not taken over: it looks like a credential"),
        "{text}"
    );
    let long = AddIssue {
        title: "Long".into(),
        fields: IssueFields {
            description: Some("x".repeat(70_000)),
            ..IssueFields::default()
        },
        ..AddIssue::default()
    };
    clone.project.issues().add(&long).unwrap();
    add(&clone, "Short");
    let pushed = clone.push().await;
    assert_eq!(
        (pushed.delivered.len(), pushed.failed.len()),
        (1, 1),
        "{pushed:?}"
    );
    assert!(
        pushed.failed[0].error.contains("65536 are the most"),
        "{pushed:?}"
    );
    assert!(
        mock.issue(1).body.contains(&leak),
        "it is not overwritten by the note"
    );
}

#[tokio::test]
async fn two_clones_and_people_end_with_equal_boards() {
    let mock = Mock::start();
    mock.with(|store| store.milestones = vec!["v1".into(), "v2".into()]);
    let clones = [Clone::new(&mock), Clone::new(&mock)];
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut below = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % limit as u64).unwrap()
    };
    let mut titles = BTreeSet::new();
    let settle = |clone: &Clone, pick: usize| {
        for conflict in status(&clone.project).unwrap().conflicts {
            let choice = if pick == 0 {
                Choice::Ours
            } else {
                Choice::Theirs
            };
            resolve(&clone.project, &conflict.key, conflict.field, &choice).unwrap();
        }
    };
    for number in 0..200 {
        let (who, what) = (below(3), below(6));
        let title = format!("added {number}");
        if who == 2 {
            let known = mock.with(|store| store.issues.len());
            if known == 0 || what == 0 {
                mock.with(|store| store.add(&title));
                titles.insert(title);
            } else {
                let at = below(known) as u64 + 1;
                mock.with(|store| {
                    store.edit(at, |issue| match what {
                        1 => issue.body = format!("text {number}"),
                        2 => issue.milestone = Some(["v1", "v2"][number % 2].into()),
                        3 => drop(issue.labels.insert("ui".into())),
                        4 => drop(issue.labels.insert("in progress".into())),
                        _ => drop(issue.labels.remove("ui")),
                    });
                });
            }
        } else {
            let issues = clones[who].project.issues();
            let keys: Vec<String> = issues
                .read()
                .unwrap()
                .issues
                .into_iter()
                .map(|issue| issue.linear_id)
                .collect();
            if keys.is_empty() || what == 0 {
                add(&clones[who], &title);
                titles.insert(title);
            } else {
                let edit = match what {
                    1 => IssueEdit {
                        fields: IssueFields {
                            description: Some(format!("text {number}")),
                            ..IssueFields::default()
                        },
                        ..IssueEdit::default()
                    },
                    2 => IssueEdit {
                        fields: IssueFields {
                            milestone: Some(["v1", "v2"][number % 2].into()),
                            ..IssueFields::default()
                        },
                        ..IssueEdit::default()
                    },
                    3 => IssueEdit {
                        fields: IssueFields {
                            labels: Some(vec!["ui".into()]),
                            ..IssueFields::default()
                        },
                        ..IssueEdit::default()
                    },
                    _ => IssueEdit {
                        state: Some(["Open", "In Progress"][number % 2].into()),
                        ..IssueEdit::default()
                    },
                };
                issues.set(&keys[below(keys.len())], &edit, None).unwrap();
            }
        }
        if below(5) == 0 {
            let at = below(2);
            clones[at].sync().sync(&Pull::default()).await.unwrap();
            settle(&clones[at], below(2));
        }
    }
    for round in 0..6 {
        for clone in &clones {
            let (_, pushed) = clone.sync().sync(&Pull::default()).await.unwrap();
            assert_eq!(pushed.failed, Vec::new());
            settle(clone, round % 2);
        }
    }
    let board = |clone: &Clone| {
        let issues = clone.project.issues().read().unwrap().issues.into_iter();
        let card = |issue: helmdeck_forge::issues::Issue| {
            (
                issue.linear_id,
                issue.title,
                issue.description,
                issue.state,
                issue.milestone,
                issue.labels,
            )
        };
        issues.map(card).collect::<Vec<_>>()
    };
    let [one, two] = [board(&clones[0]), board(&clones[1])];
    assert_eq!(one, two);
    let found: BTreeSet<String> = one.iter().map(|card| card.1.clone()).collect();
    assert_eq!(
        (found.len(), one.len()),
        (titles.len(), titles.len()),
        "none is doubled"
    );
    assert_eq!(found, titles, "none is lost");
    for card in &one {
        let number: u64 = card.0.strip_prefix("GH-").unwrap().parse().unwrap();
        let there = mock.issue(number);
        assert_eq!(
            (&card.1, &card.4),
            (&there.title, &there.milestone),
            "{}",
            card.0
        );
        assert_eq!(
            card.3.as_deref() == Some("In Progress"),
            there.labels.contains("in progress"),
            "{}",
            card.0
        );
    }
    assert_eq!(
        mock.with(|store| store.unknown.clone()),
        Vec::<String>::new()
    );
}
