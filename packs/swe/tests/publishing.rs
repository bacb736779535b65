//! Branches and pull requests.

use helmdeck_core::{Code, Error};
use serde_json::json;

use super::world::World;
use super::{fix, run, submit};
use crate::swe::repository::Address;

fn on_github(world: &World) {
    let address = Address { key: "github.com/o/r".into(), host: Some("github.com".into()) };
    *world.repository.address.lock().unwrap() = Some(address);
}

#[tokio::test]
async fn a_change_that_succeeded_is_pushed_as_a_branch_of_this_run() {
    let world = World::new(vec![fix(), submit(), fix(), submit()]).await;
    let output = world.solve(json!({"mode": "branch"})).await.unwrap();
    let again = world.solve(json!({"mode": "branch"})).await.unwrap();
    assert_eq!((&output["success"], &output["commit"]), (&json!(true), &json!("c0ffee")));
    let branch = output["branch"].as_str().unwrap();
    assert!(branch.starts_with("helmdeck/swe-solve-") && output["branch"] != again["branch"]);
    let pushed = world.repository.pushed.lock().unwrap().clone();
    assert_eq!((&*pushed[0].0, &*pushed[0].1), (output["patch"].as_str().unwrap(), branch));
    assert_eq!(pushed[0].2, "The greeting is \"helo\".\n\nThe greeting said helo.\n");
    assert!(
        output.get("pr_url").is_none() && world.packs.calls.lock().unwrap().iter().all(|call| call.0 == "repo.map")
    );
}

#[tokio::test]
async fn what_did_not_succeed_is_not_pushed() {
    for (replies, more) in [
        (vec![fix(), run("true")], json!({"max_steps": 2})),
        (vec![submit()], json!({})),
        (vec![fix(), submit()], json!({"test_command": "false"})),
    ] {
        let world = World::new(replies).await;
        let mut input = more;
        input["mode"] = "branch".into();
        let output = world.solve(input).await.unwrap();
        assert_eq!((&output["success"], output.get("branch")), (&json!(false), None));
        assert!(output["summary"].as_str().unwrap().ends_with("Nothing was pushed."));
        assert!(world.repository.pushed.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_refused_push_is_an_error_that_names_the_trajectory_with_the_patch() {
    let world = World::new(vec![fix(), submit()]).await;
    *world.repository.refuses.lock().unwrap() = Some(Error::new(Code::Conflict, "the remote refused the push"));
    let error = world.solve(json!({"mode": "branch"})).await.unwrap_err();
    assert_eq!(error.code(), Code::Conflict);
    assert!(error.message().contains("swe.solve/run/trajectory.json"), "{error}");
    world.apply(world.artifacts.trajectory()["patch"].as_str().unwrap());
}

#[tokio::test]
async fn a_pull_request_says_what_was_done_and_asks_for_a_review() {
    let world = World::new(vec![fix(), submit()]).await;
    on_github(&world);
    *world.packs.pull_request.lock().unwrap() = Some(Ok("https://github.com/o/r/pull/7".into()));
    let asked = json!({"mode": "pull_request", "test_command": "sh test.sh", "credential": "mine"});
    let output = world.solve(asked).await.unwrap();
    assert_eq!((&output["success"], &output["pr_url"]), (&json!(true), &json!("https://github.com/o/r/pull/7")));
    let (pack, input) = world.packs.calls.lock().unwrap().last().unwrap().clone();
    assert_eq!(pack, "github.create_pr");
    assert_eq!((&input["repo"], &input["base"], &input["credential"]), (&json!("o/r"), &json!("main"), &json!("mine")));
    assert_eq!((&input["head"], &input["title"]), (&output["branch"], &json!("The greeting is \"helo\".")));
    let body = input["body"].as_str().unwrap();
    for part in
        ["> Make it right.", "The greeting said helo.", "exited with 0", "swe.solve/run/trajectory.json", "Review it"]
    {
        assert!(body.contains(part), "{part}: {body}");
    }
}

#[tokio::test]
async fn a_pull_request_that_cannot_be_opened_leaves_the_branch_and_says_so() {
    let world = World::new(vec![fix(), submit()]).await;
    on_github(&world);
    *world.packs.pull_request.lock().unwrap() = Some(Err(Error::new(Code::Forbidden, "GitHub does not allow it")));
    let output = world.solve(json!({"mode": "pull_request"})).await.unwrap();
    assert_eq!((&output["success"], output.get("pr_url")), (&json!(false), None));
    assert!(output["branch"].is_string());
    assert!(output["summary"].as_str().unwrap().contains("GitHub does not allow it"), "{output}");
}

#[tokio::test]
async fn a_pull_request_elsewhere_than_on_github_is_refused_before_any_work() {
    let world = World::new(vec![fix(), submit()]).await;
    let error = world.solve(json!({"mode": "pull_request"})).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidInput);
    assert!(world.server.requests().is_empty());
}
