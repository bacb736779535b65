//! Cancelling: by a message, early and late, and by disconnecting.

use helmdeck_testkit::ends;

use super::*;

fn waiting(meta: Value) -> Value {
    json!({"name": "test__plain", "arguments": {"wait": true}, "_meta": meta})
}

fn cancel(id: u32) -> String {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
        .to_string()
}

/// Waits until no handler holds the gate any more, so that a permit added later is still available.
async fn nobody_waits(fixture: &Fixture) {
    fixture.probe.gate.add_permits(1);
    ends("the call to go on", fixture.probe.gate.acquire())
        .await
        .unwrap()
        .forget();
}

#[tokio::test]
async fn a_cancelled_call_ends_without_an_answer() {
    let fixture = Fixture::plain().await;
    let mcp = mcp_of(&fixture, McpConfig::default());
    let local = Caller::local();
    for meta in [json!({}), json!({"progressToken": 1})] {
        let session = begin_as(&mcp, &local).await.unwrap();
        let asking = async {
            let answer = ask_as(&mcp, &local, &session, "tools/call", waiting(meta)).await;
            assert!(
                !answer.body.contains("result") && !answer.body.contains("error"),
                "{}",
                answer.body
            );
        };
        let cancelling = async {
            fixture.probe.someone_waits().await;
            // First an unknown id, which cancels nothing.
            for id in [8, 7] {
                let answer =
                    read(send_as(&mcp, &local, Method::POST, Some(&session), cancel(id)).await)
                        .await;
                assert_eq!(answer.status, 202);
            }
        };
        ends(
            "the answer",
            Box::pin(futures_util::future::join(asking, cancelling)),
        )
        .await;
        nobody_waits(&fixture).await;
    }
}

#[tokio::test]
async fn early_cancel_is_not_lost() {
    let fixture = Fixture::plain().await;
    let session = begin(&fixture, "2025-11-25").await;
    assert_eq!(
        post(&fixture, &[("mcp-session-id", &session)], &cancel(7))
            .await
            .status,
        202
    );
    let params = json!({"name": "test__plain", "arguments": {}});
    let answer = post(
        &fixture,
        &[("mcp-session-id", &session)],
        &request("tools/call", &params),
    )
    .await;
    assert_eq!((answer.body.as_str(), fixture.probe.runs()), ("", 0));
    assert_eq!(
        ask(&fixture, &session, "tools/call", params).await["result"]["isError"],
        false
    );
}

#[tokio::test]
async fn hanging_up_cancels() {
    let fixture = Fixture::plain().await;
    let mcp = mcp_of(&fixture, McpConfig::default());
    let local = Caller::local();
    let session = begin_as(&mcp, &local).await.unwrap();
    for meta in [json!({}), json!({"progressToken": 1})] {
        let text = request("tools/call", &waiting(meta));
        let asking = send_as(&mcp, &local, Method::POST, Some(&session), text);
        tokio::select! {
            // The head of a stream comes at once; the answer is in its body.
            response = asking => {
                fixture.probe.someone_waits().await;
                drop(response);
            }
            () = fixture.probe.someone_waits() => {}
        }
        nobody_waits(&fixture).await;
    }
}

#[tokio::test]
async fn reused_request_id_is_refused_and_first_stays_cancellable() {
    let fixture = Fixture::plain().await;
    let mcp = mcp_of(&fixture, McpConfig::default());
    let local = Caller::local();
    let session = begin_as(&mcp, &local).await.unwrap();
    let asking = async { ask_as(&mcp, &local, &session, "tools/call", waiting(json!({}))).await };
    let cancelling = async {
        fixture.probe.someone_waits().await;
        for meta in [json!({}), json!({"progressToken": 1})] {
            let params = json!({"name": "test__plain", "arguments": {}, "_meta": meta});
            let again = ask_as(&mcp, &local, &session, "tools/call", params).await;
            let message = message(&again);
            assert_eq!(
                (again.status.as_u16(), &message["id"]),
                (400, &json!(7)),
                "{message}"
            );
            assert_eq!(message["error"]["code"], -32600, "{message}");
        }
        let answer =
            read(send_as(&mcp, &local, Method::POST, Some(&session), cancel(7)).await).await;
        assert_eq!(answer.status, 202);
    };
    let (answer, ()) = ends(
        "the answer",
        Box::pin(futures_util::future::join(asking, cancelling)),
    )
    .await;
    assert_eq!((answer.body.as_str(), fixture.probe.runs()), ("", 1));
}
