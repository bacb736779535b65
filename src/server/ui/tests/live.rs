//! Statistics, past calls and live updates: over REST, and as the pages show them.

use axum::Router;
use axum::body::{Body, BodyDataStream};
use futures_util::StreamExt;
use helmdeck_core::Identity;
use helmdeck_events::{EventKind, Who};
use http::{Request, StatusCode};
use serde_json::Value;
use tower::ServiceExt;

use super::*;

/// A stream that is open.
pub(super) struct Stream(BodyDataStream);

impl Stream {
    pub(super) async fn open(router: &Router, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut request = Request::builder().uri(path).header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = router
            .clone()
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        assert_eq!(
            (answer.status(), &answer.headers()["content-type"]),
            (StatusCode::OK, &"text/event-stream".parse().unwrap())
        );
        Self(answer.into_body().into_data_stream())
    }

    /// Returns the next message that is no comment.
    pub(super) async fn next(&mut self) -> String {
        loop {
            let chunk = self.0.next().await.unwrap().unwrap();
            if !chunk.starts_with(b":") {
                return String::from_utf8(chunk.to_vec()).unwrap();
            }
        }
    }
}

/// The data of a message.
fn data(message: &str) -> Value {
    serde_json::from_str(message.split_once("data: ").unwrap().1.trim_end()).unwrap()
}

fn id(message: &str) -> String {
    message
        .strip_prefix("id: ")
        .unwrap()
        .lines()
        .next()
        .unwrap()
        .to_owned()
}

async fn bearer(system: &System, user: &str, scope: &str) -> String {
    format!("Bearer {}", token(system, user, scope, None).await.expose())
}

#[tokio::test]
async fn statistics_count_calls_hits_and_errors() {
    let fixture = Fixture::with_memory().await;
    for _ in 0..3 {
        assert_eq!(
            fixture
                .post("/api/v1/packs/test.cached", "{\"text\":\"a\"}")
                .await
                .status,
            200
        );
    }
    fixture
        .post("/api/v1/packs/test.plain", "{\"fail\":\"timeout\"}")
        .await;
    fixture.engine.read_statistics();
    let all = fixture.get("/api/v1/stats").await.json();
    assert_eq!(
        (
            &all["window"],
            &all["total"]["calls"],
            &all["total"]["errors"]
        ),
        (&json!("hour"), &json!(4), &json!(1))
    );
    assert_eq!(all["total"]["cache"], json!({ "hit": 2, "miss": 1 }));
    assert_eq!(
        (
            all["slots"].as_array().unwrap().len(),
            &all["slots"][59]["calls"]
        ),
        (60, &json!(4))
    );
    assert_eq!(
        (&all["packs"][0]["pack"], &all["packs"][0]["saved_calls"]),
        (&json!("test.cached"), &json!(2))
    );
    let one = fixture
        .get("/api/v1/stats?window=week&pack=test.plain")
        .await
        .json();
    assert_eq!(
        (
            &one["total"]["calls"],
            one["packs"].as_array().unwrap().len()
        ),
        (&json!(1), 1)
    );
    assert_eq!(
        fixture.get("/api/v1/stats?window=year").await.problem(),
        "invalid_input"
    );

    let page = fixture.get("/ui?window=day").await;
    assert!(
        page.body.contains("2 hits, 0 stale, 0 coalesced, 1 misses"),
        "{}",
        page.body
    );
    assert!(
        page.body
            .contains("<title>Calls by quarter of an hour: 4, 1 failed</title>"),
        "{}",
        page.body
    );
    assert!(page.body.contains("Nothing is wrong."), "{}", page.body);
}

#[tokio::test]
async fn statistics_need_their_scope() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, system) = with_auth(folder.path()).await;
    let plain = bearer(&system, "ann", "packs:run memory:read").await;
    let answer = fixture
        .send(
            Method::GET,
            "/api/v1/stats",
            &[("authorization", &plain)],
            "",
        )
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.problem().as_str()),
        (403, "forbidden")
    );
    let reader = bearer(&system, "bob", "metrics:read packs:run:test.plain").await;
    fixture.engine.read_statistics();
    assert_eq!(
        fixture
            .send(
                Method::GET,
                "/api/v1/stats",
                &[("authorization", &reader)],
                ""
            )
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn audit_is_filtered_and_paged() {
    let fixture = Fixture::with_memory().await;
    for number in 0..5 {
        let input = if number == 2 {
            "{\"fail\":\"timeout\"}"
        } else {
            "{}"
        };
        fixture.post("/api/v1/packs/test.plain", input).await;
        fixture.clock.advance(Duration::from_secs(60));
    }
    fixture.post("/api/v1/packs/test.write", "{}").await;
    let get = async |query: &str| fixture.get(&format!("/api/v1/audit?{query}")).await.json();
    let all = get("").await;
    assert_eq!(
        (all["calls"].as_array().unwrap().len(), &all["next"]),
        (6, &Value::Null)
    );
    assert_eq!(
        (&all["calls"][0]["pack"], &all["calls"][0]["user"]),
        (&json!("test.write"), &json!("local"))
    );
    let failed = get("outcome=failed&pack=test.plain").await;
    assert_eq!(
        (
            failed["calls"].as_array().unwrap().len(),
            &failed["calls"][0]["outcome"]
        ),
        (1, &json!("timeout"))
    );
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = get(&format!("limit=4&user=local{cursor}")).await;
        seen.extend(
            page["calls"]
                .as_array()
                .unwrap()
                .iter()
                .map(|call| call["at"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_str() else {
            break;
        };
        cursor = format!("&cursor={next}");
    }
    assert!(
        seen.len() == 6 && seen.is_sorted_by(|newer, older| newer > older),
        "{seen:?}"
    );
    assert_eq!(
        get(&format!("since={}", seen[1])).await["calls"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    for wrong in [
        "cursor=x",
        "since=yesterday",
        "limit=0",
        "pack=x",
        "other=1",
    ] {
        assert_eq!(
            fixture
                .get(&format!("/api/v1/audit?{wrong}"))
                .await
                .problem(),
            "invalid_input",
            "{wrong}"
        );
    }
    assert!(
        fixture
            .get("/ui/calls?outcome=failed")
            .await
            .body
            .contains("<span class=\"bad\">timeout</span>")
    );
}

#[tokio::test]
async fn callers_see_their_own_calls_only() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, system) = with_auth(folder.path()).await;
    let ann = bearer(&system, "ann", "packs:run memory:read").await;
    let bob = bearer(&system, "bob", "packs:run memory:read").await;
    let admin = bearer(&system, "root", "packs:run admin").await;
    let as_ann = [
        ("authorization", ann.as_str()),
        ("content-type", "application/json"),
    ];
    assert_eq!(
        fixture
            .send(Method::POST, "/api/v1/packs/test.plain", &as_ann, "{}")
            .await
            .status,
        200
    );
    let count = async |path: &str, who: &str| {
        let answer = fixture
            .send(Method::GET, path, &[("authorization", who)], "")
            .await;
        (
            answer.status.as_u16(),
            answer.json()["calls"].as_array().map_or(0, Vec::len),
        )
    };
    assert_eq!(count("/api/v1/audit", &ann).await, (200, 1));
    assert_eq!(count("/api/v1/audit", &bob).await, (200, 0));
    assert_eq!(count("/api/v1/audit?user=ann", &bob).await, (403, 0));
    assert_eq!(count("/api/v1/audit", &admin).await, (200, 1));
    assert_eq!(
        count("/api/v1/audit?user=ann&tenant=acme", &admin).await,
        (200, 1)
    );
    assert_eq!(count("/api/v1/audit?tenant=other", &admin).await, (200, 0));

    let mut own = Stream::open(
        &fixture.router,
        "/api/v1/events?topics=calls",
        &[("authorization", &ann)],
    )
    .await;
    assert_eq!(data(&own.next().await)["calls"][0]["user"], "ann");
    let mut others = Stream::open(
        &fixture.router,
        "/api/v1/events?topics=calls,jobs",
        &[("authorization", &bob)],
    )
    .await;
    assert!(
        others.0.next().await.unwrap().unwrap().starts_with(b":"),
        "only a comment"
    );
    let refused = fixture
        .send(
            Method::GET,
            "/api/v1/events?topics=calls&user=ann",
            &[("authorization", &bob)],
            "",
        )
        .await;
    assert_eq!(refused.status, 403);
    let refused = fixture
        .send(
            Method::GET,
            "/api/v1/events?topics=server",
            &[("authorization", &bob)],
            "",
        )
        .await;
    assert_eq!(refused.status, 403);
}

#[tokio::test]
async fn callers_follow_their_own_conversations_only() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, system) = with_auth(folder.path()).await;
    let tokens = ["ann", "bob"].map(|user| bearer(&system, user, "memory:read"));
    let [ann, bob] = tokens;
    let (ann, bob) = (ann.await, bob.await);
    let admin = bearer(&system, "root", "admin").await;
    let open = async |query: &str, who: &str| {
        let mut stream = Stream::open(
            &fixture.router,
            &format!("/api/v1/events?topics={query}"),
            &[("authorization", who)],
        )
        .await;
        assert!(
            stream.0.next().await.unwrap().unwrap().starts_with(b":"),
            "nothing yet"
        );
        stream
    };
    let mut of_ann = open("conversations", &ann).await;
    let mut of_bob = open("conversations", &bob).await;
    let mut of_all = open("conversations,server", &admin).await;
    let mut of_bob_too = open("conversations&user=bob&tenant=acme", &admin).await;
    let mut of_server = open("server", &admin).await;
    let publish = |user: &str, new: &'static str| {
        let text = |text: &str| Some(text.to_owned());
        let who = Who {
            tenant: text("acme"),
            user: text(user),
            session: text("s"),
        };
        let (prior, reason) = ("healthy", "summarizer_failed");
        fixture
            .engine
            .events()
            .publish(EventKind::MemoryHealthChanged {
                who,
                prior,
                new,
                reason,
            });
    };
    publish("ann", "retry");
    publish("bob", "retry");
    fixture.engine.events().publish(EventKind::CachePurged {
        what: "all".to_owned(),
        rows: 7,
    });
    let event = data(&of_ann.next().await);
    let expected = (
        "memory.health_changed",
        "ann",
        "s",
        "retry",
        "summarizer_failed",
    );
    let of = |name: &str| event[name].as_str().unwrap();
    assert_eq!(
        (
            of("type"),
            of("user"),
            of("session"),
            of("new"),
            of("reason")
        ),
        expected
    );
    assert_eq!(data(&of_bob.next().await)["user"], "bob");
    assert_eq!(data(&of_bob_too.next().await)["user"], "bob");
    assert_eq!(
        data(&of_server.next().await)["rows"],
        7,
        "the server's topic has no conversations"
    );
    let mut all = String::new();
    while !all.contains("cache_purged") {
        all.push_str(&of_all.next().await);
    }
    assert!(
        all.contains("\"ann\"") && all.contains("\"bob\"") && all.contains("event: conversations"),
        "{all}"
    );
    for (query, who) in [
        ("conversations&user=ann", &bob),
        ("conversations,server", &bob),
    ] {
        let path = format!("/api/v1/events?topics={query}");
        assert_eq!(
            fixture
                .send(Method::GET, &path, &[("authorization", who)], "")
                .await
                .status,
            403,
            "{query}"
        );
    }
    let unread = bearer(&system, "eve", "packs:run").await;
    let path = "/api/v1/events?topics=conversations";
    assert_eq!(
        fixture
            .send(Method::GET, path, &[("authorization", &unread)], "")
            .await
            .status,
        403
    );
}

#[tokio::test]
async fn stream_resumes_and_says_what_is_lost() {
    let fixture = Fixture::with_memory().await;
    let run = async || {
        fixture.post("/api/v1/packs/test.plain", "{}").await;
        let local = helmdeck_memory::Namespace::of_caller(&Identity::local());
        // Waits until the audit has the call.
        fixture
            .engine
            .memory()
            .unwrap()
            .calls(&local, helmdeck_engine::CallFilter::default())
            .await
            .unwrap();
    };
    run().await;
    let mut first = Stream::open(&fixture.router, "/api/v1/events?topics=calls,stats", &[]).await;
    let seen = first.next().await;
    assert_eq!(data(&seen)["calls"].as_array().unwrap().len(), 1, "{seen}");
    drop(first);
    run().await;
    run().await;
    let position = id(&seen);
    let again = [("last-event-id", position.as_str())];
    let mut second = Stream::open(&fixture.router, "/api/v1/events?topics=calls", &again).await;
    assert_eq!(
        data(&second.next().await)["calls"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let other = [("last-event-id", "1-0-0-0")];
    let mut third = Stream::open(&fixture.router, "/api/v1/events?topics=calls", &other).await;
    assert!(third.next().await.contains("event: lost"));
    for (wrong, code) in [
        ("", "invalid_input"),
        ("?topics=all", "invalid_input"),
        ("?topics=calls&pack=x", "invalid_input"),
    ] {
        assert_eq!(
            fixture
                .get(&format!("/api/v1/events{wrong}"))
                .await
                .problem(),
            code,
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn new_statistics_replace_those_on_the_page() {
    let fixture = Fixture::with_memory().await;
    let mut events = Stream::open(&fixture.router, "/api/v1/events?topics=stats", &[]).await;
    let mut page = Stream::open(
        &fixture.router,
        "/ui/stream?view=overview&topics=stats&window=day",
        &[],
    )
    .await;
    for stream in [&mut events, &mut page] {
        assert!(
            stream.0.next().await.unwrap().unwrap().starts_with(b":"),
            "nothing is new"
        );
    }
    fixture.post("/api/v1/packs/test.plain", "{}").await;
    fixture.engine.read_statistics();
    assert!(events.next().await.contains("event: stats\n"));
    let changes = data(&page.next().await);
    assert_eq!(
        (&changes[0]["op"], &changes[0]["id"]),
        (&json!("put"), &json!("statistics"))
    );
    let html = changes[0]["html"].as_str().unwrap();
    assert!(
        html.starts_with("<section id=\"statistics\"")
            && html.contains("window=day\" aria-current"),
        "{html}"
    );
    assert_eq!(changes[1]["id"], "server");
}

#[tokio::test]
async fn streams_of_a_caller_are_bounded() {
    let fixture = Fixture::plain().await;
    let mut open = Vec::new();
    for _ in 0..16 {
        open.push(Stream::open(&fixture.router, "/ui/stream?view=jobs", &[]).await);
    }
    let refused = fixture.get("/api/v1/events?topics=jobs").await;
    assert_eq!(
        (refused.status.as_u16(), refused.problem().as_str()),
        (503, "overloaded")
    );
    drop(open);
    drop(Stream::open(&fixture.router, "/ui/stream?view=jobs", &[]).await);
}

#[tokio::test]
async fn page_stream_sends_escaped_rows() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    let started = submit(
        &fixture,
        "/ui/packs/test.long",
        &[("input.steps", "2"), ("input.text", "a")],
    )
    .await;
    let id = started
        .header("location")
        .rsplit('/')
        .next()
        .unwrap()
        .to_owned();
    // It ends with the job.
    fixture.get(&format!("/api/v1/jobs/{id}/events")).await;
    let page = fixture.get("/ui/jobs").await;
    assert!(
        page.body.contains("data-live=\"/ui/stream?view=jobs\""),
        "{}",
        page.body
    );
    let mut stream = Stream::open(&fixture.router, "/ui/stream?view=jobs", &[]).await;
    let changes = data(&stream.next().await);
    assert_eq!(
        (&changes[0]["op"], &changes[0]["to"]),
        (&json!("add"), &json!("jobs"))
    );
    assert!(
        changes[0]["html"]
            .as_str()
            .unwrap()
            .starts_with(&format!("<tr id=\"job-{id}\">")),
        "{changes}"
    );
    let mut cancelled =
        Stream::open(&fixture.router, "/ui/stream?view=jobs&state=cancelled", &[]).await;
    assert_eq!(data(&cancelled.next().await)[0]["op"], "drop");
    let steps = fixture
        .get(&format!("/api/v1/jobs/{id}/progress"))
        .await
        .json();
    assert_eq!(steps["reports"][1]["message"], "step 2", "{steps}");
    assert!(
        fixture
            .get(&format!("/ui/jobs/{id}"))
            .await
            .body
            .contains("<code>step 1</code>")
    );
    for wrong in [
        "/ui/stream",
        "/ui/stream?view=x",
        "/ui/stream?view=job&id=x",
    ] {
        assert_eq!(fixture.get(wrong).await.status, 404, "{wrong}");
    }
}

#[tokio::test]
async fn stream_of_pages_needs_sign_in() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, _) = with_auth(folder.path()).await;
    let answer = fixture.get("/ui/stream?view=jobs").await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("location")),
        (303, "/ui/sign-in")
    );
}
