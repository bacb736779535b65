//! Issues through the packs.

use super::*;

#[tokio::test]
async fn issue_is_added_changed_and_closed() {
    let desk = Desk::new(false);
    let added = desk
        .call(
            "issue_add",
            json!({"title": "Fix it", "type": "bug", "criteria": ["It works"]}),
        )
        .await;
    assert_eq!(added["issue"]["linear_id"], "LOCAL-1");
    desk.call(
        "issue_add",
        json!({"title": "Then this", "blocked_by": ["LOCAL-1"]}),
    )
    .await;
    let ready = desk.call("issue_list", json!({"scope": "ready"})).await;
    assert_eq!(
        (&ready["total"], &ready["counts"]["blocked"]),
        (&json!(1), &json!(1))
    );
    let close = json!({"key": "LOCAL-1", "state": "Done"});
    let refused = desk.refused("issue_set", close.clone()).await;
    assert_eq!(refused.code(), Code::Forbidden);
    let etag = desk.call("issue_show", json!({"key": "LOCAL-1"})).await["etag"].clone();
    let checked = json!({"key": "LOCAL-1", "checked": ["1"], "comment": "Seen.", "if_match": etag});
    let changed = desk.call("issue_set", checked.clone()).await;
    assert_eq!(changed["issue"]["comments"][0]["text"], "Seen.");
    assert_eq!(
        desk.refused("issue_set", checked).await.code(),
        Code::Conflict
    );
    let closed = desk.call("issue_set", close).await;
    assert!(
        closed["summary"]
            .as_str()
            .unwrap()
            .contains("- [x] It works"),
        "{closed}"
    );
    let shown = desk.call("issue_show", json!({"key": "LOCAL-1"})).await;
    assert_eq!(
        (&shown["over"], &shown["summary"]),
        (&json!(true), &closed["summary"])
    );
}
