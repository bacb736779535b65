//! Access to conversations, per caller.

use super::*;

/// The same conversation, named with its owner.
const OF_ALICE: &str = "tenant=acme&user=alice";

#[tokio::test]
async fn each_route_asks_for_its_scope() {
    let client = RestClient::plain().await;
    for held in [
        "packs:run",
        "metrics:read",
        "memory:read",
        "memory:write",
        "admin",
    ] {
        let who = Who("acme", "alice", held);
        for (method, route, body) in ROUTES {
            let scope = if method == GET {
                "memory:read"
            } else {
                "memory:write"
            };
            let answer = client
                .ask(who, method.clone(), &format!("{ROOT}/s{route}"), body)
                .await;
            if held == scope || held == "admin" {
                assert!(
                    answer.status.is_success() || answer.status == 404,
                    "{method} {route} with {held}: {answer:?}"
                );
                continue;
            }
            assert_eq!(
                (answer.status.as_u16(), answer.problem().as_str()),
                (403, "forbidden"),
                "{method} {route} {held}"
            );
            assert!(
                answer
                    .header("www-authenticate")
                    .contains(&format!("scope=\"{scope}\"")),
                "{answer:?}"
            );
        }
        let listed = client.get(who, "").await;
        assert_eq!(
            listed.status == 200,
            ["memory:read", "admin"].contains(&held),
            "{held}: {listed:?}"
        );
    }
}

#[tokio::test]
async fn equal_conversation_names_stay_separate() {
    let client = RestClient::plain().await;
    for who in [ALICE, BOB, OTHER] {
        client
            .say(who, "s", &format!("{}/{} said it", who.0, who.1))
            .await;
    }
    let address = client.say(ALICE, "s", "canary").await;
    let key = address.rsplit('/').next().unwrap();
    let before = client.get(ALICE, "/s/snapshot").await.body;
    for who in [BOB, OTHER] {
        for (method, route, body) in ROUTES {
            let route = route.replace("mem_000000000000000100000000", key);
            let own = client
                .ask(who, method.clone(), &format!("{ROOT}/s{route}"), body)
                .await;
            assert!(
                !own.body.contains("canary") && !own.body.contains("acme/alice said it"),
                "{method} {route}: {own:?}"
            );
            if route.contains(key) {
                assert_eq!(
                    own.problem(),
                    "not_found",
                    "a turn of somebody else is none at all"
                );
            }
        }
        let listed = client.get(who, "").await.json();
        assert!(
            listed["sessions"]
                .as_array()
                .unwrap()
                .iter()
                .all(|s| s["user"] == who.1 && s["tenant"] == who.0)
        );
        assert!(
            listed.get("identity_rejected_24h").is_none(),
            "what is counted of all is not for everybody: {listed}"
        );
    }
    assert_eq!(
        client.get(ALICE, "/s/snapshot").await.body,
        before,
        "nothing of it changed"
    );
}

#[tokio::test]
async fn only_an_administrator_names_another_owner_on_any_route() {
    let client = RestClient::plain().await;
    client.say(ALICE, "s", "canary").await;
    let before = client.get(ALICE, "/s/snapshot").await.body;
    for who in [BOB, OTHER] {
        for (method, route, body) in ROUTES {
            for owner in [OF_ALICE, "user=carol", "tenant=c"] {
                let path = format!("{ROOT}/s{route}?{owner}");
                let answer = client.ask(who, method.clone(), &path, body).await;
                assert_eq!(
                    (answer.status.as_u16(), answer.problem().as_str()),
                    (403, "forbidden"),
                    "{method} {path}"
                );
                assert!(
                    answer
                        .header("www-authenticate")
                        .contains("scope=\"admin\""),
                    "{answer:?}"
                );
            }
        }
        for owner in [OF_ALICE, "user=carol", "tenant=c"] {
            let listed = client.get(who, &format!("?{owner}")).await;
            assert_eq!(
                (listed.status.as_u16(), listed.problem().as_str()),
                (403, "forbidden"),
                "an error, not an empty page"
            );
        }
    }
    assert_eq!(client.get(ALICE, "/s/snapshot").await.body, before);
    // To name oneself as the owner changes nothing.
    assert_eq!(
        client
            .get(ALICE, &format!("/s/context?{OF_ALICE}"))
            .await
            .status,
        200
    );
    assert_eq!(
        client.get(ALICE, &format!("?{OF_ALICE}")).await.json()["total"],
        1
    );
}

#[tokio::test]
async fn administrators_act_for_others_and_are_logged() {
    let client = RestClient::plain().await;
    client.say(ALICE, "a%20b", "hers").await;
    client.say(BOB, "t", "his").await;
    client.say(OTHER, "t", "theirs").await;
    let everybody = client.get(BOSS, "").await.json();
    assert_eq!(
        (
            &everybody["total"],
            everybody["sessions"].as_array().unwrap().len()
        ),
        (&json!(3), 3),
        "{everybody}"
    );
    assert_eq!(
        (
            &everybody["identity_rejected_24h"],
            &everybody["recovery_dropped_24h"]
        ),
        (&json!(0), &json!(0))
    );
    for (query, total) in [
        ("tenant=acme", 2),
        ("user=alice", 2),
        (OF_ALICE, 1),
        ("tenant=acme&user=nobody", 0),
    ] {
        let page = client.get(BOSS, &format!("?{query}")).await.json();
        assert_eq!(
            (&page["total"], page["sessions"].as_array().unwrap().len()),
            (&json!(total), total),
            "{query}: {page}"
        );
    }
    let first = client.get(BOSS, "?limit=2").await.json();
    let next = crate::rest::request::segment(first["next"].as_str().unwrap());
    let last = client
        .get(BOSS, &format!("?limit=2&after={next}"))
        .await
        .json();
    assert_eq!(
        (last["sessions"].as_array().unwrap().len(), &last["next"]),
        (1, &Value::Null),
        "{last}"
    );

    let added = client
        .post(
            BOSS,
            &format!("/a%20b/turns?{OF_ALICE}"),
            r#"{"user_message":"put"}"#,
        )
        .await;
    assert_eq!(
        added.header("location").split_once('?').unwrap().1,
        OF_ALICE
    );
    assert_eq!(client.said(ALICE, "a%20b").await, ["hers", "put"]);
    assert_eq!(
        client
            .ask(BOSS, GET, added.header("location"), "")
            .await
            .json()["value"]["user_message"],
        "put"
    );
    assert_eq!(
        client
            .ask(BOSS, DELETE, added.header("location"), "")
            .await
            .status,
        200
    );
    for kind in ["memory.item_put", "memory.item_deleted"] {
        let events = client.events(kind);
        assert_eq!(events.len(), 1, "{kind}");
        let text = events[0].to_string();
        assert!(
            text.contains("\"alice\"")
                && text.contains("mem_")
                && !text.contains("put\",\"user_message"),
            "{text}"
        );
    }
    assert!(
        client.said(BOSS, "a%20b").await.is_empty(),
        "the administrator's own conversation is another"
    );
    // An administrator's own turn is an ordinary one.
    client.say(BOSS, "own", "mine").await;
    assert_eq!(client.events("memory.item_put").len(), 1);
    assert_eq!(
        client
            .delete(BOSS, &format!("/a%20b?{OF_ALICE}"))
            .await
            .json(),
        json!({"removed_turns": 1})
    );
    assert!(client.said(ALICE, "a%20b").await.is_empty());
}

#[tokio::test]
async fn nothing_is_kept_for_callers_without_a_token() {
    let client = RestClient::plain().await;
    for (method, route, body) in ROUTES {
        let answer = client
            .ask(NOBODY, method.clone(), &format!("{ROOT}/s{route}"), body)
            .await;
        assert_eq!(
            (answer.status.as_u16(), answer.problem().as_str()),
            (401, "unauthenticated"),
            "{method} {route}"
        );
    }
    assert_eq!(client.get(NOBODY, "").await.status, 401);
}

#[tokio::test]
async fn without_memory_key_every_route_says_memory_is_off() {
    let fixture = Fixture::plain().await;
    let paths = ROUTES
        .iter()
        .map(|(method, route, body)| (method.clone(), format!("{ROOT}/s{route}"), *body));
    for (method, path, body) in paths.chain([(GET, ROOT.to_owned(), "")]) {
        let answer = fixture.send(method.clone(), &path, &[], body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.problem().as_str()),
            (404, "not_found"),
            "{method} {path}"
        );
        assert_eq!(
            answer.json()["detail"],
            "memory is off: this engine has no memory key",
            "{method} {path}"
        );
    }
    assert!(
        !fixture
            .get("/metrics")
            .await
            .body
            .contains("helmdeck_conversation")
    );
}
