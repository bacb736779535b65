//! The client against a stand-in that executes Linear's own schema.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{Secret, SystemClock};
use helmdeck_egress::Egress;
use helmdeck_testkit::linear::{Fault, Linear as Mock};

use super::*;

fn connection(endpoint: &str, key: &str) -> Connection {
    let egress = Egress::new(helmdeck_egress::Config::default());
    let clock = Arc::new(SystemClock::default());
    let mut connection = Connection::new(
        egress,
        endpoint.parse().unwrap(),
        Secret::new(key.to_owned()),
        clock,
    );
    connection.retry_wait = Duration::from_millis(1);
    connection.patience = Duration::from_millis(500);
    connection
}

fn client(mock: &Mock) -> Linear {
    Linear::new(connection(&mock.url(), mock.key()), "SX9", false).unwrap()
}

fn titled(title: &str) -> Edit {
    Edit {
        title: Some(title.to_owned()),
        ..Edit::default()
    }
}

#[track_caller]
fn conforms(mock: &Mock) {
    assert_eq!(mock.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn every_document_is_valid_for_linears_schema() {
    let mock = Mock::start();
    let linear = client(&mock);
    let directory = linear.identify().await.unwrap();
    assert_eq!(
        (directory.me.name.as_str(), directory.team.as_str()),
        ("Ada", "SX9")
    );
    assert_eq!(
        (
            directory.states.len(),
            directory.labels.len(),
            directory.people.len()
        ),
        (6, 6, 2)
    );
    let open = directory
        .states
        .iter()
        .find(|state| state.name == "In Progress")
        .unwrap();
    let edit = Edit {
        description: Some("text".into()),
        state: Some(open.id.clone()),
        priority: Some(2),
        labels_added: vec!["bug".into(), "ui".into()],
        assignee: Some(Some(directory.people[1].id.clone())),
        ..titled("one")
    };
    let one = linear.create(Uuid::from_u128(1), &edit).await.unwrap();
    assert_eq!(
        (one.key.as_str(), one.state.kind, one.priority),
        ("SX9-1", crate::StateKind::Started, Some(2))
    );
    assert_eq!(one.labels, Some(vec!["Bug".to_owned(), "ui".to_owned()]));
    let two = linear
        .create(Uuid::from_u128(2), &titled("two"))
        .await
        .unwrap();
    linear.relate(&two, &one.id, true).await.unwrap();
    let edit = Edit {
        parent: Some(Some(one.id.clone())),
        labels_added: vec!["ui".into()],
        ..Edit::default()
    };
    let two = linear.update(&two, &edit).await.unwrap();
    assert_eq!(
        (two.parent.as_deref(), two.blocked_by.clone()),
        (Some("SX9-1"), Some(vec!["SX9-1".to_owned()]))
    );
    let edit = Edit {
        parent: Some(None),
        labels_removed: vec!["ui".into()],
        ..Edit::default()
    };
    let two = linear.update(&two, &edit).await.unwrap();
    assert_eq!(
        (two.parent.clone(), two.labels.clone()),
        (None, Some(Vec::new()))
    );
    linear.relate(&two, &one.id, false).await.unwrap();
    linear
        .comment(&one.id, Uuid::from_u128(9), "said")
        .await
        .unwrap();
    let found = linear
        .fetch(&[
            one.id.clone(),
            two.id.clone(),
            Uuid::from_u128(3).to_string(),
        ])
        .await
        .unwrap();
    assert_eq!(found.len(), 2);
    assert!(mock.with(|store| store.relations.is_empty() && store.comments.len() == 1));
    conforms(&mock);
}

#[tokio::test]
async fn missing_labels_are_created_only_if_allowed() {
    let mock = Mock::start();
    let edit = Edit {
        labels_added: vec!["new".into()],
        ..titled("one")
    };
    let error = client(&mock)
        .create(Uuid::from_u128(1), &edit)
        .await
        .unwrap_err();
    assert_eq!(error.kind, Kind::Settings);
    let creating = Linear::new(connection(&mock.url(), mock.key()), "sx9", true).unwrap();
    let made = creating.create(Uuid::from_u128(1), &edit).await.unwrap();
    assert_eq!(made.labels, Some(vec!["new".to_owned()]));
    conforms(&mock);
}

#[tokio::test]
async fn a_document_linear_does_not_have_is_noticed() {
    let mock = Mock::start();
    let linear = client(&mock);
    let unknown = Query {
        name: "X",
        text: "query X { viewer { id nickname } }",
        writes: false,
    };
    let error = linear.ask::<Value>(unknown, json!({})).await.unwrap_err();
    assert_eq!(error.kind, Kind::Invalid);
    let input = json!({"input": {"title": "t", "teamId": "x", "colour": "red"}});
    assert_eq!(
        linear
            .change(queries::CREATE, input)
            .await
            .err()
            .map(|error| error.kind),
        Some(Kind::Invalid)
    );
    let violations = mock.violations();
    assert!(
        violations.len() == 2
            && violations[0].contains("nickname")
            && violations[1].contains("colour"),
        "{violations:?}"
    );
}

#[tokio::test]
async fn pages_follow_their_cursors() {
    let mock = Mock::start();
    mock.with(|store| {
        store.page = 3;
        for number in 0..8 {
            store.add(&format!("issue {number}"));
        }
        store.edit("SX9-2", |issue| issue.state = "Done".into());
    });
    let linear = client(&mock);
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = linear.changed(None, cursor.as_deref()).await.unwrap();
        all.extend(page.issues.into_iter().map(|issue| issue.key));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(
        all,
        [
            "SX9-8", "SX9-7", "SX9-6", "SX9-5", "SX9-4", "SX9-3", "SX9-1"
        ]
    );
    let since = linear.fetch(&[mock.issue("SX9-8").id]).await.unwrap()[0].updated_at;
    let page = linear.changed(since, None).await.unwrap();
    assert_eq!(
        page.issues
            .iter()
            .map(|issue| issue.key.as_str())
            .collect::<Vec<_>>(),
        ["SX9-2", "SX9-8"]
    );
    conforms(&mock);
}

#[tokio::test]
async fn errors_are_classified() {
    let mock = Mock::start();
    let http = |status, retry: &[(&str, &str)]| {
        let headers = retry
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Fault::Http(status, headers, "<html>".to_owned())
    };
    for (fault, kind, wait) in [
        (Fault::Code("RATELIMITED".into()), Kind::RateLimited, None),
        (Fault::Code("FORBIDDEN".into()), Kind::Forbidden, None),
        (Fault::Code("AUTHENTICATION_ERROR".into()), Kind::Auth, None),
        (Fault::Code("INPUT_ERROR".into()), Kind::Invalid, None),
        (
            http(429, &[("Retry-After", "7")]),
            Kind::RateLimited,
            Some(7),
        ),
        (
            http(429, &[("Retry-After", "86400")]),
            Kind::RateLimited,
            Some(300),
        ),
        (http(401, &[]), Kind::Auth, None),
        (http(200, &[]), Kind::Shape, None),
    ] {
        for _ in 0..5 {
            mock.fail("Team", 0, fault.clone());
        }
        let error = client(&mock).identify().await.unwrap_err();
        assert_eq!(
            (error.kind, error.retry_after.map(|wait| wait.as_secs())),
            (kind, wait),
            "{fault:?}"
        );
        mock.forget_faults();
    }
    let wrong = Linear::new(
        connection(&mock.url(), "lin_api_wrong-canary"),
        "SX9",
        false,
    )
    .unwrap();
    let error = wrong.identify().await.unwrap_err();
    assert_eq!(error.kind, Kind::Auth);
    assert!(
        !format!("{error:?} {wrong:?}").contains("canary"),
        "{error:?}"
    );
    let elsewhere = Linear::new(connection(&mock.url(), mock.key()), "ABC", false).unwrap();
    assert_eq!(elsewhere.identify().await.unwrap_err().kind, Kind::Settings);
    conforms(&mock);
}

#[tokio::test]
async fn passing_failures_of_reads_are_retried() {
    let mock = Mock::start();
    mock.fail("Team", 0, Fault::Http(500, Vec::new(), String::new()));
    mock.fail("Team", 0, Fault::CutBefore);
    mock.fail("Team", 0, Fault::Code("RATELIMITED".into()));
    client(&mock).identify().await.unwrap();
    assert_eq!(mock.count("Team"), 4);
}

#[tokio::test]
async fn a_create_whose_answer_got_lost_makes_one_issue() {
    let mock = Mock::start();
    for ignores in [false, true] {
        mock.with(|store| (store.issues.clear(), store.ignores_ids = ignores));
        let linear = client(&mock);
        mock.fail("Create", 0, Fault::CutAfter);
        let id = Uuid::from_u128(5);
        let edit = Edit {
            description: Some(crate::mark::add("text", id)),
            ..titled("one")
        };
        let first = linear.create(id, &edit).await.unwrap();
        assert_eq!(first.id == id.to_string(), !ignores);
        if !ignores {
            assert_eq!(linear.create(id, &edit).await.unwrap().id, first.id);
        }
        assert_eq!(mock.with(|store| store.issues.len()), 1);
    }
    let linear = client(&mock);
    let issue = linear
        .fetch(&[mock.with(|store| store.issues[0].id.clone())])
        .await
        .unwrap()
        .remove(0);
    mock.fail("AddComment", 0, Fault::CutAfter);
    linear
        .comment(&issue.id, Uuid::from_u128(6), "once")
        .await
        .unwrap();
    linear
        .comment(&issue.id, Uuid::from_u128(6), "once")
        .await
        .unwrap();
    assert_eq!(mock.with(|store| store.comments.len()), 1);
    conforms(&mock);
}

#[tokio::test]
async fn few_requests_left_stop_further_ones() {
    let mock = Mock::start();
    let later = (jiff::Timestamp::now().as_second() + 3_600) * 1_000;
    mock.set_headers(&[
        ("X-RateLimit-Requests-Limit", "1500"),
        ("X-RateLimit-Requests-Remaining", "99"),
        ("X-RateLimit-Requests-Reset", &later.to_string()),
    ]);
    let linear = client(&mock);
    let error = linear.identify().await.unwrap_err();
    assert_eq!(
        (error.kind, error.retry_after),
        (Kind::RateLimited, Some(Duration::from_secs(300)))
    );
    assert_eq!(mock.asked().len(), 1);
    assert_eq!(linear.limits()[0].remaining, 99);
}

#[test]
fn plain_http_to_another_machine_is_refused() {
    for endpoint in [
        "http://api.linear.app/graphql",
        "http://10.0.0.1/graphql",
        "ftp://127.0.0.1/",
    ] {
        let error = Linear::new(connection(endpoint, "lin_api_x"), "SX9", false).unwrap_err();
        assert_eq!(error.kind, Kind::Settings, "{endpoint}");
    }
    for endpoint in [
        ENDPOINT,
        "http://127.0.0.1:1/graphql",
        "http://localhost:1/graphql",
        "http://[::1]:1/graphql",
    ] {
        Linear::new(connection(endpoint, "lin_api_x"), "SX9", false).unwrap();
    }
    assert_eq!(
        Linear::new(connection(ENDPOINT, " "), "SX9", false)
            .unwrap_err()
            .kind,
        Kind::Auth
    );
}
