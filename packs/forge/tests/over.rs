//! A session that is over takes nothing any more.

use super::*;

impl Desk {
    /// Returns the packs of a program that was started in a session.
    fn within(self, session: &str) -> Self {
        let environment = ProjectEnvironment {
            session: Some(session.to_owned()),
            ..super::environment()
        };
        let config = Config {
            root: Some(self.root().to_owned()),
            run: true,
            environment,
        };
        Self {
            packs: super::super::packs(&config),
            ..self
        }
    }
}

#[tokio::test]
async fn in_a_session_that_ended_meanwhile_nothing_is_changed_and_everything_is_read() {
    let desk = Desk::new(true);
    let session = desk.call("start", json!({"what": "Make it answer"})).await["session"]
        .as_str()
        .unwrap()
        .to_owned();
    let desk = desk.within(&session);
    let added = desk
        .call("features_add", json!({"name": "It answers"}))
        .await;
    let learned = json!({"kind": "decision", "context": "c", "decision": "d", "rationale": "r"});
    desk.call("remember", learned.clone()).await;
    desk.call("done", json!({"leave": "enough"})).await;
    let head = git(desk.root(), &["rev-parse", "HEAD"]);
    let features = desk.call("features_list", json!({})).await;
    let id = &added["feature"]["id"];
    for (verb, input) in [
        ("remember", learned),
        ("features_add", json!({"name": "It waits"})),
        ("features_set", json!({"id": id, "status": "in_progress"})),
        ("issue_add", json!({"title": "It waits"})),
        ("verify", json!({"ids": [id]})),
        ("start", json!({})),
        ("commit", json!({"what": "Do it"})),
        ("checkpoint_create", json!({"key": "SUM-1", "message": "m"})),
    ] {
        let error = desk.refused(verb, input).await;
        assert_eq!(error.code(), Code::NotFound, "{verb}: {error}");
        assert!(
            error.message().contains("E_SESSION_OVER"),
            "{verb}: {error}"
        );
    }
    assert_eq!(desk.call("features_list", json!({})).await, features);
    assert_eq!(git(desk.root(), &["rev-parse", "HEAD"]), head);
    for verb in [
        "prime",
        "health",
        "knowledge_search",
        "issue_list",
        "skill",
        "checkpoint_list",
    ] {
        desk.call(verb, json!({})).await;
    }
}
