//! The job routes, over a real engine.

use axum::body::Body;
use futures_util::StreamExt;
use helmdeck_core::Secret;
use helmdeck_engine::{JobQuery, JobState};
use helmdeck_testkit::{Issuer, STUCK, ends};
use http::{Method, Request};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::fixture::{Answer, Fixture, START};
use crate::{Auth, AuthConfig, ServerConfig};

const SECRET: &str = "a shared secret of 32 bytes or so";
async fn prefer(fixture: &Fixture, path: &str, prefer: &str, body: &str) -> Answer {
    let headers = [("content-type", "application/json"), ("prefer", prefer)];
    fixture.send(Method::POST, path, &headers, body).await
}

/// Waits until a job has ended and returns its path.
async fn ended(fixture: &Fixture, started: &Answer) -> String {
    let path = started.header("location").to_owned();
    let waiting = async {
        loop {
            let job = fixture.get(&path).await;
            if job.json()["ended_at"].is_string() {
                break;
            }
            assert_eq!(job.header("retry-after"), "2", "{job:?}");
            tokio::task::yield_now().await;
        }
    };
    ends("the job", waiting).await;
    path
}

#[tokio::test]
async fn job_result_equals_the_answer_of_the_call() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    for (path, preference) in [
        ("/api/v1/packs/test.plain/jobs", "handling=lenient"),
        ("/api/v1/packs/test.plain", "respond-async"),
        ("/api/v1/packs/test.plain/v1", "respond-async"),
        ("/api/v1/packs/test.long", "handling=lenient"),
    ] {
        let started = prefer(&fixture, path, preference, r#"{"text":"a"}"#).await;
        assert_eq!(started.status, 202, "{path}: {started:?}");
        assert_eq!(started.json()["state"], "queued");
        assert_eq!(
            started.header("location"),
            format!("/api/v1/jobs/{}", started.json()["id"].as_str().unwrap())
        );
        let applied = if preference == "respond-async" {
            preference
        } else {
            ""
        };
        assert_eq!(started.header("preference-applied"), applied, "{path}");
        let job = ended(&fixture, &started).await;
        assert_eq!(fixture.get(&job).await.json()["state"], "succeeded");
        let result = fixture.get(&format!("{job}/result")).await;
        assert_eq!(
            (result.status.as_u16(), &result.json()["output"]["text"]),
            (200, &json!("a")),
            "{result:?}"
        );
        assert_eq!(result.header("cache-control"), "no-store");
    }
    let version = fixture.get("/api/v1/jobs?limit=2").await.json()["jobs"][1]["version"].clone();
    assert_eq!(version, "v1", "the version that was named");
}

#[tokio::test]
async fn waiting_caller_gets_outcome_or_slow_job() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    for (path, preference) in [
        ("test.long", "wait"),
        ("test.long", "wait=60"),
        ("test.plain", "respond-async, wait=60"),
        ("test.plain/jobs", "wait=60"),
    ] {
        let answer = prefer(
            &fixture,
            &format!("/api/v1/packs/{path}"),
            preference,
            r#"{"text":"a"}"#,
        )
        .await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json()["output"]["text"]),
            (200, &json!("a")),
            "{answer:?}"
        );
        assert_eq!(answer.header("preference-applied"), preference);
    }
    let failed = prefer(
        &fixture,
        "/api/v1/packs/test.long",
        "wait",
        r#"{"fail":"conflict"}"#,
    )
    .await;
    assert_eq!(
        (failed.status.as_u16(), failed.problem()),
        (409, "conflict".to_owned())
    );
    let late = prefer(
        &fixture,
        "/api/v1/packs/test.long",
        "wait=0",
        r#"{"wait":true}"#,
    )
    .await;
    assert_eq!(
        (late.status.as_u16(), late.header("preference-applied")),
        (202, "wait=0"),
        "{late:?}"
    );
    fixture.probe.someone_waits().await;
    let unready = fixture
        .get(&format!("{}/result", late.header("location")))
        .await;
    assert_eq!(
        (unready.problem(), unready.header("retry-after")),
        ("conflict".to_owned(), "1")
    );
    fixture.probe.gate.add_permits(1);
    ended(&fixture, &late).await;
    // A pack that is not `async` is answered directly.
    let plain = prefer(&fixture, "/api/v1/packs/test.plain", "wait=1", "{}").await;
    assert_eq!(
        (plain.status.as_u16(), plain.header("preference-applied")),
        (200, "")
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_told_at_once() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    let start = async |pack: &str, body: &str| {
        fixture
            .post(&format!("/api/v1/packs/{pack}/jobs"), body)
            .await
    };
    assert_eq!(
        start("test.plain", r#"{"nonsense":1}"#).await.problem(),
        "invalid_input"
    );
    assert_eq!(start("test.none", "{}").await.problem(), "not_found");
    for path in [
        "/api/v1/jobs/x",
        "/api/v1/jobs/0123456789abcdef0123456789abcdef",
        "/api/v1/jobs/x/events",
    ] {
        assert_eq!(fixture.get(path).await.problem(), "not_found", "{path}");
    }
    for query in ["state=dancing", "after=x", "limit=-1", "of=me"] {
        assert_eq!(
            fixture
                .get(&format!("/api/v1/jobs?{query}"))
                .await
                .problem(),
            "invalid_input",
            "{query}"
        );
    }
    assert_eq!(
        fixture.get("/api/v1/jobs").await.json(),
        json!({"jobs": [], "next": null})
    );
}

#[tokio::test]
async fn job_error_equals_the_error_of_the_call() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    let body = r#"{"fail":"rate_limited"}"#;
    let called = fixture.post("/api/v1/packs/test.plain", body).await;
    let started = fixture.post("/api/v1/packs/test.plain/jobs", body).await;
    let job = ended(&fixture, &started).await;
    let result = fixture.get(&format!("{job}/result")).await;
    assert_eq!(
        (result.status, result.content()),
        (called.status, called.content())
    );
    assert_eq!(result.header("retry-after"), "2");
    let error = fixture.get(&job).await.json()["error"].clone();
    let expected = json!({"code": "rate_limited", "message": "as asked", "retry": "later", "retry_after_ms": 1500});
    assert_eq!(error, expected);
}

#[tokio::test]
async fn a_job_is_cancelled_and_stays_so() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    let started = fixture
        .post("/api/v1/packs/test.plain/jobs", r#"{"wait":true}"#)
        .await;
    fixture.probe.someone_waits().await;
    for _ in 0..2 {
        let cancelled = fixture
            .send(Method::DELETE, started.header("location"), &[], "")
            .await;
        assert_eq!(
            (cancelled.status.as_u16(), &cancelled.json()["state"]),
            (200, &json!("cancelled"))
        );
    }
    let result = fixture
        .get(&format!("{}/result", started.header("location")))
        .await;
    assert_eq!(
        (result.status.as_u16(), result.problem()),
        (499, "cancelled".to_owned())
    );
}

#[tokio::test]
async fn repeated_key_gets_same_job() {
    let fixture = Fixture::with_memory().await;
    let start = async |path: &str, body: &str| {
        let headers = [
            ("content-type", "application/json"),
            ("idempotency-key", "k"),
            ("prefer", "respond-async"),
        ];
        fixture.send(Method::POST, path, &headers, body).await
    };
    let first = start("/api/v1/packs/test.write/jobs", r#"{"text":"a"}"#).await;
    ended(&fixture, &first).await;
    for path in ["/api/v1/packs/test.write/jobs", "/api/v1/packs/test.write"] {
        let again = start(path, r#"{"text":"a"}"#).await;
        assert_eq!(
            (again.status.as_u16(), again.header("idempotency-replayed")),
            (202, "true"),
            "{again:?}"
        );
        assert_eq!(
            (&again.json()["id"], &again.json()["state"]),
            (&first.json()["id"], &json!("succeeded"))
        );
    }
    assert_eq!(
        start("/api/v1/packs/test.write/jobs", r#"{"text":"b"}"#)
            .await
            .status,
        422
    );
    let headers = [
        ("content-type", "application/json"),
        ("idempotency-key", "k"),
    ];
    let call = fixture
        .send(
            Method::POST,
            "/api/v1/packs/test.write",
            &headers,
            r#"{"text":"a"}"#,
        )
        .await;
    assert_eq!(call.status, 422, "a call is not a job");
    assert_eq!(fixture.probe.runs(), 1);
}

/// Reads events off a stream until it ends: number, name and data of each.
fn events(text: &str) -> Vec<(u64, String, Value)> {
    let field = |block: &str, name: &str| {
        block
            .lines()
            .find_map(|line| line.strip_prefix(name).map(|value| value.trim().to_owned()))
    };
    let blocks = text.split("\n\n").filter(|block| block.starts_with("id:"));
    blocks
        .map(|block| {
            let data = serde_json::from_str(&field(block, "data:").unwrap()).unwrap();
            (
                field(block, "id:").unwrap().parse().unwrap(),
                field(block, "event:").unwrap(),
                data,
            )
        })
        .collect()
}

#[tokio::test]
async fn events_are_numbered_and_resume_until_the_end() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    let started = fixture
        .post(
            "/api/v1/packs/test.plain/jobs",
            r#"{"wait":true,"steps":3}"#,
        )
        .await;
    fixture.probe.someone_waits().await;
    let path = format!("{}/events", started.header("location"));
    let follow = fixture.get(&path);
    fixture.probe.gate.add_permits(1);
    let stream = follow.await;
    assert_eq!(
        (stream.status.as_u16(), stream.header("content-type")),
        (200, "text/event-stream")
    );
    let all = events(&stream.body);
    let names: Vec<_> = all.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["state", "progress", "progress", "progress", "state"],
        "{}",
        stream.body
    );
    assert_eq!(all[2].2["progress"]["message"], "step 2");
    let last = all.last().unwrap();
    assert_eq!(last.2["state"], "succeeded");
    assert!(all.is_sorted_by(|one, other| one.0 < other.0));
    let after = async |number: u64| {
        fixture
            .send(
                Method::GET,
                &path,
                &[("last-event-id", &number.to_string())],
                "",
            )
            .await
    };
    assert_eq!(
        events(&after(all[2].0).await.body)[..],
        all[3..]
            .iter()
            .cloned()
            .map(|mut event| {
                // The first event of a stream is named `state`, whatever its name was before.
                if event.0 == all[3].0 {
                    event.1 = "state".to_owned();
                }
                event
            })
            .collect::<Vec<_>>()[..]
    );
    assert_eq!(
        after(last.0).await.status,
        204,
        "an EventSource comes no more"
    );
}

#[tokio::test]
async fn event_streams_are_limited_and_released() {
    let config = ServerConfig {
        max_event_streams: 1,
        ..ServerConfig::default()
    };
    let fixture = Fixture::build(config, false).await;
    let started = fixture
        .post("/api/v1/packs/test.plain/jobs", r#"{"wait":true}"#)
        .await;
    fixture.probe.someone_waits().await;
    let path = format!("{}/events", started.header("location"));
    let request = Request::builder()
        .uri(&path)
        .header("host", "localhost")
        .body(Body::empty())
        .unwrap();
    let open = fixture.router.clone().oneshot(request).await.unwrap();
    let mut body = open.into_body().into_data_stream();
    assert!(body.next().await.unwrap().unwrap().starts_with(b"id: "));
    assert_eq!(fixture.get(&path).await.problem(), "overloaded");
    drop(body);
    fixture.probe.gate.add_permits(1);
    assert_eq!(fixture.get(&path).await.status, 200);
}

#[tokio::test]
async fn one_caller_cannot_take_all_streams() {
    let config = AuthConfig::default();
    let egress = helmdeck_egress::Egress::new(helmdeck_egress::Config::default());
    let auth = Auth::new(&config, Some(Secret::new(SECRET.to_owned())), None, &egress).unwrap();
    let fixture = Fixture::with_long_and_auth(auth.unwrap()).await;
    let bearer = |user: &str| {
        let now = START.micros() / 1_000_000;
        let claims =
            json!({"sub": user, "tenant": "t", "scope": "admin", "iat": now, "exp": now + 600});
        format!(
            "Bearer {}",
            Issuer::shared(SECRET.as_bytes()).token(&claims)
        )
    };
    let (a, b) = (bearer("a"), bearer("b"));
    let headers = [
        ("content-type", "application/json"),
        ("authorization", a.as_str()),
    ];
    let started = fixture
        .send(
            Method::POST,
            "/api/v1/packs/test.plain/jobs",
            &headers,
            r#"{"wait":true}"#,
        )
        .await;
    fixture.probe.someone_waits().await;
    let path = format!("{}/events", started.header("location"));
    let open = async |token: &str| {
        let request = Request::builder()
            .uri(&path)
            .header("host", "localhost")
            .header("authorization", token);
        fixture
            .router
            .clone()
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap()
    };
    let mut held = Vec::new();
    for _ in 0..16 {
        held.push(open(&a).await);
        assert_eq!(held.last().unwrap().status(), 200);
    }
    assert_eq!(open(&a).await.status(), 503);
    assert_eq!(
        open(&b).await.status(),
        200,
        "another caller has streams of its own"
    );
    held.pop();
    assert_eq!(open(&a).await.status(), 200);
    fixture.probe.gate.add_permits(1);
}

#[tokio::test]
async fn jobs_need_a_token_and_are_private() {
    let config = AuthConfig {
        anonymous_scope: "packs:run".to_owned(),
        ..AuthConfig::default()
    };
    let egress = helmdeck_egress::Egress::new(helmdeck_egress::Config::default());
    let auth = Auth::new(&config, Some(Secret::new(SECRET.to_owned())), None, &egress).unwrap();
    let fixture = Fixture::with_long_and_auth(auth.unwrap()).await;
    let bearer = |user: &str, scope: &str| {
        let now = START.micros() / 1_000_000;
        let claims =
            json!({"sub": user, "tenant": "t", "scope": scope, "iat": now, "exp": now + 600});
        format!(
            "Bearer {}",
            Issuer::shared(SECRET.as_bytes()).token(&claims)
        )
    };
    let send = async |method: Method, path: &str, token: &str| {
        let headers = [
            ("content-type", "application/json"),
            ("authorization", token),
        ];
        let headers = if token.is_empty() {
            &headers[..1]
        } else {
            &headers[..]
        };
        fixture.send(method, path, headers, "").await
    };
    let (a, b, admin) = (
        bearer("a", "packs:run"),
        bearer("b", "packs:run"),
        bearer("c", "admin"),
    );
    let narrow = bearer("a", "packs:run:other.*");
    let started = send(Method::POST, "/api/v1/packs/test.plain/jobs", &a).await;
    assert_eq!(started.status, 202, "{started:?}");
    let job = started.header("location");
    for path in [job, &format!("{job}/result"), &format!("{job}/events")] {
        assert_eq!(
            send(Method::GET, path, &b).await.problem(),
            "not_found",
            "{path}"
        );
        assert_eq!(
            send(Method::GET, path, "").await.problem(),
            "unauthenticated",
            "{path}"
        );
        assert_eq!(
            send(Method::GET, path, &narrow).await.problem(),
            "forbidden",
            "{path}"
        );
        assert_eq!(send(Method::GET, path, &admin).await.status, 200, "{path}");
    }
    assert_eq!(send(Method::DELETE, job, &b).await.problem(), "not_found");
    assert_eq!(
        send(Method::DELETE, job, "").await.problem(),
        "unauthenticated"
    );
    let count = async |token: &str| {
        send(Method::GET, "/api/v1/jobs", token).await.json()["jobs"]
            .as_array()
            .map_or(0, Vec::len)
    };
    assert_eq!(
        (
            count(&a).await,
            count(&b).await,
            count(&narrow).await,
            count(&admin).await
        ),
        (1, 0, 0, 1)
    );
    assert_eq!(
        send(Method::GET, "/api/v1/jobs", "").await.problem(),
        "unauthenticated"
    );
    assert_eq!(
        send(Method::POST, "/api/v1/packs/test.plain/jobs", "")
            .await
            .problem(),
        "unauthenticated"
    );
    assert_eq!(
        send(Method::POST, "/api/v1/packs/test.long", "")
            .await
            .problem(),
        "unauthenticated"
    );
    assert_eq!(
        send(Method::POST, "/api/v1/packs/test.plain/jobs", &narrow)
            .await
            .problem(),
        "forbidden"
    );
    // A caller that owns no job may still wait for a call.
    let headers = [("content-type", "application/json"), ("prefer", "wait")];
    assert_eq!(
        fixture
            .send(Method::POST, "/api/v1/packs/test.long", &headers, "")
            .await
            .status,
        200
    );
    assert_eq!(
        fixture
            .engine
            .jobs(None, &JobQuery::default())
            .await
            .unwrap()
            .jobs
            .len(),
        1
    );
}

#[tokio::test]
async fn drain_ends_streams_and_queued_jobs_do_not_delay_it() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    let config = ServerConfig {
        drain_timeout: STUCK,
        ..ServerConfig::default()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let server = tokio::spawn(crate::serve(
        listener,
        fixture.engine.clone(),
        config,
        stop.clone(),
    ));
    let jobs = async || {
        let page = fixture
            .engine
            .jobs(None, &JobQuery::default())
            .await
            .unwrap();
        page.jobs
            .into_iter()
            .map(|job| job.state)
            .collect::<Vec<_>>()
    };
    // Two of one caller run at once, so the third waits.
    let mut location = String::new();
    for _ in 0..3 {
        let started = fixture
            .post("/api/v1/packs/test.plain/jobs", r#"{"wait":true}"#)
            .await;
        location = started.header("location").to_owned();
    }
    fixture.probe.someone_waits().await;
    fixture.probe.someone_waits().await;
    let reading = tokio::task::spawn_blocking(move || {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(
            stream,
            "GET {location}/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        .unwrap();
        let mut first = [0; 1];
        stream.read_exact(&mut first).unwrap();
        (stream, first)
    });
    let (mut stream, _) = reading.await.unwrap();
    stop.cancel();
    let closed = tokio::task::spawn_blocking(move || {
        std::io::Read::read_to_end(&mut stream, &mut Vec::new())
    });
    ends("the end of the server", closed)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        jobs().await,
        [JobState::Failed, JobState::Running, JobState::Running]
    );
    assert!(!server.is_finished(), "what runs may end");
    fixture.probe.gate.add_permits(2);
    ends("the end of the server", server)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        jobs().await,
        [JobState::Failed, JobState::Succeeded, JobState::Succeeded]
    );
}
