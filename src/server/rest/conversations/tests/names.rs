//! Names of conversations with special characters of a path, a query or a key.

use super::*;

/// A conversation's name, and its encoding in a path.
const HOSTILE: [(&str, &str); 14] = [
    ("..", ".."),
    (".", "%2E"),
    ("../../memory/purge", "..%2F..%2Fmemory%2Fpurge"),
    ("a/b", "a%2Fb"),
    ("a%2Fb", "a%252Fb"),
    ("a|b", "a%7Cb"),
    ("a:b", "a:b"),
    ("a?b#c", "a%3Fb%23c"),
    ("a&user=bob", "a&user=bob"),
    (" ", "%20"),
    ("a+b", "a+b"),
    ("turns", "turns"),
    ("{session}", "%7Bsession%7D"),
    ("😀é", "%F0%9F%98%80%C3%A9"),
];

#[tokio::test]
async fn a_name_is_a_name_whatever_it_looks_like() {
    let client = RestClient::plain().await;
    for (name, written) in HOSTILE {
        let place = client.say(ALICE, written, name).await;
        let shown = client.ask(ALICE, GET, &place, "").await;
        assert_eq!(
            (
                shown.status.as_u16(),
                &shown.json()["value"]["user_message"]
            ),
            (200, &json!(name)),
            "{place}"
        );
    }
    for (name, written) in HOSTILE {
        assert_eq!(client.said(ALICE, written).await, [name]);
        let snapshot = client.get(ALICE, &format!("/{written}/snapshot")).await;
        assert_eq!(
            snapshot.json()["turns"].as_array().unwrap().len(),
            1,
            "{name}"
        );
    }
    let listed = client.get(ALICE, "").await.json();
    let mut names: Vec<&str> = listed["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| found["session"].as_str().unwrap())
        .collect();
    let mut all = HOSTILE.map(|(name, _)| name);
    names.sort_unstable();
    all.sort_unstable();
    assert_eq!(names, all);
    for (name, written) in HOSTILE {
        let gone = client.delete(ALICE, &format!("/{written}")).await;
        assert_eq!(gone.json(), json!({"removed_turns": 1}), "{name}");
    }
    assert_eq!(client.get(ALICE, "").await.json()["total"], 0);
}

#[tokio::test]
async fn invalid_names_are_refused_on_every_route() {
    let client = RestClient::plain().await;
    let long = "x".repeat(257);
    for name in ["%00", "a%0Ab", "%FF", "%C3", &long] {
        for (method, route, body) in ROUTES {
            let answer = client
                .ask(
                    ALICE,
                    method.clone(),
                    &format!("{ROOT}/{name}{route}"),
                    body,
                )
                .await;
            assert_eq!(
                (answer.status.as_u16(), answer.problem().as_str()),
                (400, "invalid_input"),
                "{method} {name} {route}"
            );
        }
    }
    // Without a name: nothing that could stand for all conversations.
    for (method, route, body) in ROUTES {
        let answer = client
            .ask(ALICE, method.clone(), &format!("{ROOT}/{route}"), body)
            .await;
        if route.is_empty() {
            assert_eq!(
                (answer.status.as_u16(), answer.problem().as_str()),
                (404, "not_found"),
                "{answer:?}"
            );
        } else {
            assert_eq!(answer.status, 400, "{method} {route}: {answer:?}");
            assert!(
                answer.json()["detail"]
                    .as_str()
                    .unwrap()
                    .contains("session_id empty"),
                "{answer:?}"
            );
        }
    }
    assert_eq!(
        client.events("memory.identity_rejected").len(),
        ROUTES.len() - 1,
        "each is told once"
    );
    client.say(ALICE, &long[1..], "a").await;
}

#[tokio::test]
async fn invalid_owner_is_refused_and_logged_once() {
    let client = RestClient::plain().await;
    let answer = client.get(BOSS, "/s/context?tenant=acme&user=").await;
    assert_eq!(
        (answer.status.as_u16(), answer.problem().as_str()),
        (400, "invalid_input")
    );
    assert!(
        answer.json()["detail"]
            .as_str()
            .unwrap()
            .contains("user_id empty"),
        "{answer:?}"
    );
    assert_eq!(client.events("memory.identity_rejected").len(), 1);
    assert_eq!(
        client.get(BOSS, "").await.json()["identity_rejected_24h"],
        1
    );
    assert_eq!(
        client.get(ALICE, "/s/context?user=").await.problem(),
        "forbidden",
        "it is not the caller's own"
    );
    assert_eq!(
        client
            .get(ALICE, "/s/context?user=alice&user=bob")
            .await
            .problem(),
        "invalid_input"
    );
}
