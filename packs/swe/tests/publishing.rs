//! Branches and pull requests.

use helmdeck_core::{Code, Error};
use serde_json::json;

use super::fixture::{Fixture, git};
use super::{fix, run, submit};
use crate::swe::repository::Address;

fn on_github(fixture: &Fixture) {
    let address = Address {
        key: "github.com/o/r".into(),
        host: Some("github.com".into()),
    };
    *fixture.repository.address.lock().unwrap() = Some(address);
}

#[tokio::test]
async fn a_change_that_succeeded_is_pushed_as_a_branch_of_this_run() {
    let fixture = Fixture::new(vec![fix(), submit(), fix(), submit()]).await;
    let output = fixture.solve(json!({"mode": "branch"})).await.unwrap();
    let again = fixture.solve(json!({"mode": "branch"})).await.unwrap();
    assert_eq!(
        (&output["success"], &output["commit"]),
        (&json!(true), &json!("c0ffee"))
    );
    let branch = output["branch"].as_str().unwrap();
    assert!(branch.starts_with("helmdeck/swe-solve-") && output["branch"] != again["branch"]);
    let pushed = fixture.repository.pushed.lock().unwrap().clone();
    assert_eq!(
        (&*pushed[0].0, &*pushed[0].1),
        (output["patch"].as_str().unwrap(), branch)
    );
    assert_eq!(
        pushed[0].2,
        "The greeting is \"helo\".\n\nThe greeting said helo.\n"
    );
    assert!(output.get("pr_url").is_none() && fixture.packs.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_did_not_succeed_is_not_pushed() {
    for (replies, more) in [
        (vec![fix(), run("true")], json!({"max_steps": 2})),
        (vec![submit()], json!({})),
        (vec![fix(), submit()], json!({"test_command": "false"})),
    ] {
        let fixture = Fixture::new(replies).await;
        let mut input = more;
        input["mode"] = "branch".into();
        let output = fixture.solve(input).await.unwrap();
        assert_eq!(
            (&output["success"], output.get("branch")),
            (&json!(false), None)
        );
        assert!(
            output["summary"]
                .as_str()
                .unwrap()
                .ends_with("Nothing was pushed.")
        );
        assert!(fixture.repository.pushed.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_refused_push_is_an_error_that_names_the_trajectory_with_the_patch() {
    let fixture = Fixture::new(vec![fix(), submit()]).await;
    *fixture.repository.refuses.lock().unwrap() =
        Some(Error::new(Code::Conflict, "the remote refused the push"));
    let error = fixture.solve(json!({"mode": "branch"})).await.unwrap_err();
    assert_eq!(error.code(), Code::Conflict);
    assert!(
        error.message().contains("swe.solve/run/trajectory.json"),
        "{error}"
    );
    fixture.apply(fixture.artifacts.trajectory()["patch"].as_str().unwrap());
}

#[tokio::test]
async fn a_pull_request_says_what_was_done_and_asks_for_a_review() {
    let fixture = Fixture::new(vec![fix(), submit()]).await;
    on_github(&fixture);
    *fixture.packs.pull_request.lock().unwrap() = Some(Ok("https://github.com/o/r/pull/7".into()));
    let asked = json!({"mode": "pull_request", "test_command": "sh test.sh", "credential": "mine"});
    let output = fixture.solve(asked).await.unwrap();
    assert_eq!(
        (&output["success"], &output["pr_url"]),
        (&json!(true), &json!("https://github.com/o/r/pull/7"))
    );
    let (pack, input) = fixture.packs.calls.lock().unwrap().last().unwrap().clone();
    assert_eq!(pack, "github.create_pr");
    assert_eq!(
        (&input["repo"], &input["base"], &input["credential"]),
        (&json!("o/r"), &json!("main"), &json!("mine"))
    );
    assert_eq!(
        (&input["head"], &input["title"]),
        (&output["branch"], &json!("The greeting is \"helo\"."))
    );
    let body = input["body"].as_str().unwrap();
    for part in [
        "> Make it right.",
        "```text\nThe greeting said helo.\n```",
        "exited with 0",
        "swe.solve/run/trajectory.json",
        "Review it",
    ] {
        assert!(body.contains(part), "{part}: {body}");
    }
}

#[tokio::test]
async fn a_pull_request_that_cannot_be_opened_leaves_the_branch_and_says_so() {
    let fixture = Fixture::new(vec![fix(), submit()]).await;
    on_github(&fixture);
    *fixture.packs.pull_request.lock().unwrap() =
        Some(Err(Error::new(Code::Forbidden, "GitHub does not allow it")));
    let output = fixture
        .solve(json!({"mode": "pull_request"}))
        .await
        .unwrap();
    assert_eq!(
        (&output["success"], output.get("pr_url")),
        (&json!(false), None)
    );
    assert!(output["branch"].is_string());
    assert!(
        output["summary"]
            .as_str()
            .unwrap()
            .contains("GitHub does not allow it"),
        "{output}"
    );
}

#[tokio::test]
async fn a_pull_request_elsewhere_than_on_github_is_refused_before_any_work() {
    let fixture = Fixture::new(vec![fix(), submit()]).await;
    let error = fixture
        .solve(json!({"mode": "pull_request"}))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::InvalidInput);
    assert!(fixture.server.requests().is_empty());
}

#[tokio::test]
async fn a_real_repository_gets_the_branch_with_exactly_the_patch() {
    // What commands plant in the work tree must neither run nor change what is pushed.
    let plant = "printf '#!/bin/sh\\ntouch ../canary\\n' > .git/hooks/pre-push; chmod +x .git/hooks/pre-push; \
                 git config core.hooksPath .git/hooks; git config core.fsmonitor 'touch ../canary; false'";
    let mut fixture = Fixture::new(vec![fix(), run(plant), submit()]).await;
    fixture.real_git = true;
    let output = fixture
        .solve(json!({"mode": "branch", "test_command": "sh test.sh"}))
        .await
        .unwrap();
    assert_eq!(
        (&output["success"], &output["tests"]["exit"]),
        (&json!(true), &json!(0)),
        "{output}"
    );
    fixture.apply(output["patch"].as_str().unwrap());
    let (branch, commit) = (
        output["branch"].as_str().unwrap(),
        output["commit"].as_str().unwrap(),
    );
    let upstream = fixture.upstream.path();
    assert_eq!(git(upstream, &["rev-parse", branch]), commit);
    assert_eq!(
        git(upstream, &["rev-parse", &format!("{branch}^")]),
        fixture.upstream_commit()
    );
    assert_eq!(
        git(upstream, &["diff", "--stat", "--format=", "main", branch]),
        "greet.sh | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)"
    );
    assert_eq!(
        git(upstream, &["log", "-1", "--format=%B", branch]),
        "The greeting is \"helo\".\n\nThe greeting said helo."
    );
}

#[tokio::test]
async fn what_is_not_there_or_not_an_address_is_said_before_any_work() {
    let mut fixture = Fixture::new(vec![submit()]).await;
    fixture.real_git = true;
    for (input, code) in [
        (json!({"repo_url": "/no/such/repository"}), Code::NotFound),
        (json!({"ref": "no-such-branch"}), Code::NotFound),
        (
            json!({"repo_url": "https://user:pw-canary@example.com/a/b"}),
            Code::InvalidInput,
        ),
        (json!({"repo_url": "ext::sh -c id"}), Code::InvalidInput),
    ] {
        let error = fixture.solve(input).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(!error.to_string().contains("pw-canary"));
    }
    assert!(fixture.server.requests().is_empty());
}

#[tokio::test]
async fn a_patch_that_is_no_text_is_kept_byte_for_byte_beside_it() {
    let fixture = Fixture::new(vec![
        run("printf 'caf\\351\\n' > latin1.txt; sed -i s/helo/hello/ greet.sh"),
        submit(),
    ])
    .await;
    let output = fixture.solve(json!({})).await.unwrap();
    let summary = output["summary"].as_str().unwrap();
    assert!(
        summary.contains("the exact one is the artifact swe.solve/run/patch.diff"),
        "{summary}"
    );
    let exact = fixture.artifacts.files.lock().unwrap()["swe.solve/run/patch.diff"].clone();
    assert!(exact.windows(5).any(|window| window == b"caf\xe9\n"));
}

#[tokio::test]
async fn every_patch_is_an_artifact_and_of_a_long_one_only_the_start_is_answered() {
    let fixture = Fixture::new(vec![fix(), submit()]).await;
    let output = fixture.solve(json!({})).await.unwrap();
    let kept = |fixture: &Fixture| {
        fixture.artifacts.files.lock().unwrap()["swe.solve/run/patch.diff"].clone()
    };
    assert_eq!(
        (&output["patch_truncated"], &output["patch_artifact_key"]),
        (&json!(false), &json!("swe.solve/run/patch.diff"))
    );
    assert_eq!(
        output["patch"].as_str().unwrap().as_bytes(),
        &*kept(&fixture)
    );

    let long =
        "sed -i s/helo/hello/ greet.sh; for i in $(seq 1 1000); do seq 100000 100200; done > z.txt";
    let mut fixture = Fixture::new(vec![run(long), submit()]).await;
    fixture.real_git = true;
    let output = fixture.solve(json!({"mode": "branch"})).await.unwrap();
    assert_eq!(
        (&output["success"], &output["patch_truncated"]),
        (&json!(true), &json!(true)),
        "{}",
        output["summary"]
    );
    let (patch, kept) = (output["patch"].as_str().unwrap(), kept(&fixture));
    assert!(patch.len() <= 512 << 10 && kept.len() > 1 << 20 && kept.starts_with(patch.as_bytes()));
    assert!(patch.ends_with('\n') && output["summary"].as_str().unwrap().contains("patch.diff"));
    fixture.apply(std::str::from_utf8(&kept).unwrap());

    let mut fixture = Fixture::new(vec![run(long), submit()]).await;
    fixture.real_git = true;
    *fixture.artifacts.full.lock().unwrap() = true;
    let output = fixture.solve(json!({})).await.unwrap();
    assert_eq!(output["patch_truncated"], false, "nowhere else to be had");
    fixture.apply(output["patch"].as_str().unwrap());
}

#[tokio::test]
async fn the_credential_of_the_model_goes_to_no_repository() {
    let fixture = Fixture::new(vec![submit()]).await;
    let error = fixture
        .solve(json!({"credential": "llm"}))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::InvalidInput);
    assert!(error.message().contains("that of the model"), "{error}");
    assert!(fixture.server.requests().is_empty());
}
