//! A change is pushed as a new branch, never as anything else, and proposed as a pull request.

use serde_json::{Value, json};

use super::{Fixture, result, submit};
use crate::stand_in::GitHub;
use crate::support::git::{git, try_git};
use crate::support::model::{bash, submit as done};

/// What a branch changes, as `git diff` says it.
fn difference(fixture: &Fixture, branch: &str) -> String {
    git(
        &fixture.git.bare(&fixture.repository()),
        &["diff", "--full-index", &format!("main..{branch}")],
    ) + "\n"
}

/// Runs to the end and returns the status of the answer and the answer.
fn run(fixture: &Fixture, more: Value) -> (u16, Value) {
    let server = fixture.server();
    let input = fixture.input(more);
    result(&server, &submit(&server, &input, None), None)
}

#[test]
fn change_is_pushed_as_a_new_branch() {
    let fixture = Fixture::new("parse", []);
    fixture.model.then([
        bash(fixture.task.mend()),
        bash("git commit -qam 'by myself' && git checkout -q -b mine"),
        done(),
    ]);
    let before = fixture.git.head(&fixture.repository(), "main");
    let (code, outcome) = run(&fixture, json!({"mode": "branch"}));
    assert_eq!(code, 200, "{outcome}");
    let output = &outcome["output"];
    let branch = output["branch"].as_str().unwrap();
    assert!(branch.starts_with("helmdeck/swe-solve-"), "{output}");
    let commit = output["commit"].as_str().unwrap().to_owned();
    assert_eq!(fixture.pushed(), [(branch.to_owned(), commit)]);
    assert_eq!(fixture.git.head(&fixture.repository(), "main"), before);
    // The pushed change is the reported one, and it fixes the bug.
    let pushed = difference(&fixture, branch);
    fixture.task.assert_mended_by(&pushed);
    fixture
        .task
        .assert_mended_by(output["patch"].as_str().unwrap());
    let bare = fixture.git.bare(&fixture.repository());
    let parents = git(&bare, &["rev-list", "--count", &format!("main..{branch}")]);
    assert_eq!(
        parents, "1",
        "one commit on top of the branch that it started from"
    );
    assert_eq!(
        git(&bare, &["rev-parse", &format!("{branch}^")]),
        before.unwrap()
    );
    assert!(output["pr_url"].is_null(), "{output}");
    git(&bare, &["fsck", "--strict"]);
}

#[test]
fn two_runs_on_one_commit_push_two_branches() {
    let fixture = Fixture::new("parse", []);
    for _ in 0..2 {
        fixture.model.then([bash(fixture.task.mend()), done()]);
        let (code, outcome) = run(&fixture, json!({"mode": "branch"}));
        assert_eq!(code, 200, "{outcome}");
    }
    let pushed = fixture.pushed();
    assert!(
        pushed.len() == 2 && pushed[0].0 != pushed[1].0,
        "{pushed:?}"
    );
}

#[test]
fn a_pull_request_is_opened_for_the_branch() {
    let github = GitHub::start();
    let fixture = Fixture::with(
        "parse",
        [],
        &format!("[github]\nbase_url = \"{}\"\n", github.url()),
    );
    fixture.model.then([bash(fixture.task.mend()), done()]);
    let end = |name: &str| json!({"ref": name, "sha": "0".repeat(40), "label": name, "repo": null, "user": null});
    github.control(&json!({"status": 201, "body": {
        "number": 7, "title": "t", "state": "open", "draft": false, "body": null, "user": {"login": "bot"}, "labels": [],
        "assignees": [], "requested_reviewers": [], "head": end("h"), "base": end("main"), "id": 7, "url": "https://x.test/7",
        "html_url": "https://github.example/acme/parse/pull/7", "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z", "closed_at": null, "merged_at": null}}));
    let (code, outcome) = run(&fixture, json!({"mode": "pull_request"}));
    assert_eq!(code, 200, "{outcome}");
    let output = &outcome["output"];
    assert_eq!(
        output["pr_url"], "https://github.example/acme/parse/pull/7",
        "{output}"
    );
    let branch = output["branch"].as_str().unwrap();
    assert_eq!(fixture.pushed()[0].0, branch);
    let log = github.log();
    let opened = log.iter().find(|entry| entry["method"] == "POST").unwrap();
    assert_eq!(opened["path"], "/repos/acme/parse/pulls", "{opened}");
    let body = match &opened["body"] {
        Value::String(text) => serde_json::from_str(text).unwrap(),
        body => body.clone(),
    };
    assert_eq!(
        (&body["head"], &body["base"]),
        (&json!(branch), &json!("main")),
        "{body}"
    );
    assert!(
        body["body"].as_str().unwrap().contains("Mend the bug"),
        "{body}"
    );
    github.check_bodies().unwrap();
}

#[test]
fn rejected_push_keeps_the_patch() {
    for reject in ["the server's hook", "the server"] {
        let fixture = Fixture::new("parse", []);
        fixture.model.then([bash(fixture.task.mend()), done()]);
        if reject == "the server" {
            fixture.git.tell("refuse-push");
        } else {
            hook(
                &fixture,
                "pre-receive",
                "echo 'protected by sparrows' >&2; exit 1",
            );
        }
        let (code, problem) = run(&fixture, json!({"mode": "branch"}));
        let expected = if reject == "the server" {
            [403, 409, 424]
        } else {
            [409, 409, 409]
        };
        assert!(expected.contains(&code), "{reject}: {code} {problem}");
        if reject != "the server" {
            assert_eq!(problem["code"], "conflict", "{problem}");
        }
        assert_eq!(fixture.pushed(), [], "{reject}");
        // The work is not lost: what the message names holds it.
        assert!(
            problem["detail"].as_str().unwrap().contains("swe.solve/"),
            "the trajectory is named: {problem}"
        );
    }
}

#[test]
fn branch_of_somebody_else_is_left_alone() {
    let fixture = Fixture::new("parse", []);
    fixture.model.then([bash(fixture.task.mend()), done()]);
    // Another push is faster by a moment, whatever the name of the branch.
    hook(
        &fixture,
        "pre-receive",
        "read old new ref; env -u GIT_QUARANTINE_PATH git update-ref \"$ref\" main",
    );
    let (code, problem) = run(&fixture, json!({"mode": "branch"}));
    assert_eq!(
        (code, &problem["code"]),
        (409, &json!("conflict")),
        "{problem}"
    );
    let pushed = fixture.pushed();
    assert_eq!(pushed.len(), 1);
    assert_eq!(
        Some(pushed[0].1.clone()),
        fixture.git.head(&fixture.repository(), "main"),
        "theirs is still theirs"
    );
}

#[test]
fn no_change_or_failing_tests_push_nothing() {
    let fixture = Fixture::new("parse", [done()]);
    let (code, outcome) = run(&fixture, json!({"mode": "branch"}));
    assert!(
        code == 200 && outcome["output"]["success"] == false,
        "{outcome}"
    );
    assert_eq!(fixture.pushed(), []);

    let fixture = Fixture::new("parse", [bash("echo '# more' >> parse.py"), done()]);
    let (code, outcome) = run(
        &fixture,
        json!({"mode": "branch", "test_command": "exit 3"}),
    );
    let output = &outcome["output"];
    assert!(
        code == 200 && output["success"] == false && output["tests"]["exit"] == 3,
        "{outcome}"
    );
    assert!(
        output["patch"].as_str().unwrap().contains("+# more"),
        "{output}"
    );
    assert_eq!(fixture.pushed(), []);
}

/// Gives the server's repository a hook.
fn hook(fixture: &Fixture, name: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    let file = fixture
        .git
        .bare(&fixture.repository())
        .join("hooks")
        .join(name);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(
        try_git(
            &fixture.git.bare(&fixture.repository()),
            &["rev-parse", "main"]
        )
        .status
        .success()
    );
}
