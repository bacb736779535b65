//! Issues that were closed before the tracker had them.

use helmdeck_forge::issues::CloseIssue;
use helmdeck_testkit::linear::Fault;

use super::*;

fn closed() -> CloseIssue {
    CloseIssue {
        why: Some("It was asked for".into()),
        ..CloseIssue::default()
    }
}

fn histories(clone: &Clone) -> Vec<String> {
    let folder = clone.project.root().join(".forge/linear/history");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".md"))
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn issues_closed_before_their_first_push_are_created_closed() {
    let mock = Mock::start();
    let clone = Clone::new(&mock);
    let (one, two) = (clone.add("One"), clone.add("Two"));
    let issues = clone.project.issues();
    issues.done(&one, &closed(), None).unwrap();
    issues
        .done(
            &two,
            &CloseIssue {
                cancelled: true,
                ..CloseIssue::default()
            },
            None,
        )
        .unwrap();
    assert_eq!(clone.status().local, [one.clone(), two]);
    let plan = clone.sync().push(&Push { dry_run: true }).await.unwrap();
    assert_eq!(
        (plan.delivered.len(), mock.with(|store| store.issues.len())),
        (2, 0)
    );
    mock.fail("Create", 0, Fault::CutAfter);
    let pushed = clone.push().await;
    assert_eq!(
        (pushed.failed.len(), pushed.waiting, pushed.delivered.len()),
        (0, 0, 2),
        "{pushed:?}"
    );
    assert_eq!(
        (
            mock.issue("SX9-1").state.as_str(),
            mock.issue("SX9-2").state.as_str()
        ),
        ("Done", "Canceled")
    );
    assert_eq!(histories(&clone), ["SX9-1.md", "SX9-2.md"]);
    let shown = issues.show(&one).unwrap();
    assert_eq!(
        (shown.item.issue.linear_id.as_str(), shown.item.over),
        ("SX9-1", true)
    );
    assert!(shown.summary.unwrap().contains("It was asked for"));
    assert_eq!(
        (clone.push().await, clone.pull().await.changed),
        (Pushed::default(), Vec::new())
    );
    mock.with(|store| store.edit("SX9-1", |issue| issue.state = "In Progress".into()));
    assert_eq!(
        clone.pull().await.reopened,
        ["SX9-1"],
        "it is a tracked issue like any other"
    );
    conforms(&mock);
}

#[tokio::test]
async fn a_push_cut_short_of_a_closed_issue_is_finished_later() {
    let mock = Mock::start();
    let clone = Clone::new(&mock);
    let one = clone.add("One");
    clone.project.issues().done(&one, &closed(), None).unwrap();
    mock.fail("Create", 0, Fault::CutAfter);
    for _ in 0..9 {
        mock.fail("Issues", 0, Fault::CutBefore);
    }
    assert_eq!(clone.push().await.failed.len(), 1);
    mock.forget_faults();
    // People see it closed; the next push knows it by its id.
    clone.clock.advance(Duration::from_secs(600));
    assert_eq!(clone.push().await.delivered.len(), 1);
    assert_eq!(
        (mock.with(|store| store.issues.len()), histories(&clone)),
        (1, vec!["SX9-1.md".to_owned()])
    );
    conforms(&mock);
}

#[tokio::test]
async fn a_closed_issue_in_two_clones_is_created_once() {
    let mock = Mock::start();
    let clones = [Clone::new(&mock), Clone::new(&mock)];
    let one = clones[0].add("Shared");
    clones[0]
        .project
        .issues()
        .done(&one, &closed(), None)
        .unwrap();
    // As if git had carried the file.
    let file = format!(".forge/linear/history/{}", histories(&clones[0])[0]);
    let text = std::fs::read(clones[0].project.root().join(&file)).unwrap();
    std::fs::create_dir_all(clones[1].project.root().join(".forge/linear/history")).unwrap();
    std::fs::write(clones[1].project.root().join(&file), text).unwrap();
    for clone in &clones {
        clone.push().await;
        assert_eq!(histories(clone), ["SX9-1.md"]);
    }
    assert_eq!(mock.with(|store| store.issues.len()), 1);
    conforms(&mock);
}

#[tokio::test]
async fn a_closed_issue_follows_edits_of_the_tracker() {
    let mock = Mock::start();
    mock.with(|store| store.add("First"));
    let clone = Clone::new(&mock);
    clone.pull().await;
    mock.with(|store| store.edit("SX9-1", |issue| issue.title = "Edited there".into()));
    clone
        .project
        .issues()
        .done(
            "SX9-1",
            &helmdeck_forge::issues::CloseIssue::default(),
            None,
        )
        .unwrap();
    clone.push().await;
    assert_eq!(
        (
            clone.issue("SX9-1").title.as_str(),
            mock.issue("SX9-1").state.as_str()
        ),
        ("Edited there", "Done")
    );
    mock.with(|store| store.edit("SX9-1", |issue| issue.priority = 1));
    clone.pull().await;
    assert_eq!(
        (
            clone.issue("SX9-1").priority,
            clone.issue("SX9-1").is_over()
        ),
        (Some(1), true)
    );
    assert_eq!(clone.push().await, Pushed::default());
    conforms(&mock);
}
