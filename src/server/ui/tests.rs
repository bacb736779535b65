//! The pages through the whole router: what they show, what their forms change, who may see them.

mod operator;
mod project;
mod sign_in;

use std::time::Duration;

use helmdeck_core::{Secret, Timestamp};
use helmdeck_egress::Egress;
use helmdeck_system::System;
use helmdeck_system::tokens::NewToken;
use http::Method;
use serde_json::json;

use crate::fixture::{Answer, Fixture, START};
use crate::{Auth, AuthConfig, ServerConfig};

mod live;

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const ORIGIN: (&str, &str) = ("origin", "http://localhost");

/// Every page that is in the navigation.
const PAGES: [&str; 9] = [
    "/ui",
    "/ui/packs",
    "/ui/calls",
    "/ui/jobs",
    "/ui/cache",
    "/ui/memory",
    "/ui/conversations",
    "/ui/files",
    "/ui/project",
];

/// The token of the first form on a page.
fn form_token(page: &Answer) -> String {
    let (_, rest) = page
        .body
        .split_once("name=\"form_token\" value=\"")
        .unwrap_or_else(|| panic!("no form: {page:?}"));
    rest.split('"').next().unwrap().to_owned()
}

/// A page without our own script, which is the only one that it may have.
pub(crate) fn without_module(body: &str) -> String {
    let Some((before, rest)) = body.split_once("<script type=\"module\" src=\"/ui/assets/") else {
        return body.to_owned();
    };
    let (name, after) = rest.split_once("\"></script>").unwrap();
    assert!(
        name.ends_with(".js")
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'.'),
        "{name}"
    );
    format!("{before}{after}")
}

async fn submit(fixture: &Fixture, path: &str, fields: &[(&str, &str)]) -> Answer {
    let token = form_token(&fixture.get("/ui/packs/test.plain").await);
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("form_token", &token).extend_pairs(fields);
    fixture
        .send(Method::POST, path, &[FORM, ORIGIN], &form.finish())
        .await
}

#[tokio::test]
async fn every_page_is_whole_and_strict() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    for path in PAGES {
        let page = fixture.get(path).await;
        assert_eq!(
            (page.status.as_u16(), page.header("content-type")),
            (200, "text/html; charset=utf-8"),
            "{path}"
        );
        let policy = page.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{path}"
        );
        assert_eq!(page.header("cache-control"), "no-store", "{path}");
        assert!(
            page.body.starts_with("<!doctype html>") && page.body.trim_end().ends_with("</html>"),
            "{path}"
        );
        let body = without_module(&page.body);
        for forbidden in ["<script", " style=", " onclick=", " onload=", "javascript:"] {
            assert!(!body.contains(forbidden), "{path}: {forbidden}");
        }
        assert_eq!(
            page.body.matches("aria-current=\"page\"").count(),
            1,
            "{path}"
        );
    }
    let style = fixture
        .get("/ui")
        .await
        .body
        .split("href=\"")
        .find(|part| part.starts_with("/ui/assets/"))
        .unwrap()
        .to_owned();
    let style = fixture.get(style.split('"').next().unwrap()).await;
    assert_eq!(
        (style.status.as_u16(), style.header("content-type")),
        (200, "text/css; charset=utf-8")
    );
    assert_eq!(fixture.get("/ui/assets/other.css").await.status, 404);
}

#[tokio::test]
async fn pages_about_memory_need_it() {
    let fixture = Fixture::plain().await;
    let page = fixture.get("/ui").await;
    assert!(
        !page.body.contains("/ui/memory") && page.body.contains("Both gates are shut"),
        "{}",
        page.body
    );
    let memory = fixture.get("/ui/memory").await;
    assert_eq!(memory.status, 404);
    assert!(memory.body.contains("Memory is off"), "{}", memory.body);
}

#[tokio::test]
async fn browser_is_led_from_root_to_the_pages() {
    let fixture = Fixture::plain().await;
    let page = fixture
        .send(Method::GET, "/", &[("accept", "text/html,*/*")], "")
        .await;
    assert_eq!(
        (page.status.as_u16(), page.header("location")),
        (303, "/ui")
    );
    assert_eq!(fixture.get("/").await.problem(), "not_found");
}

#[tokio::test]
async fn form_runs_pack_and_second_run_is_a_hit() {
    let fixture = Fixture::with_memory().await;
    let path = "/ui/packs/test.cached";
    let first = submit(
        &fixture,
        path,
        &[("input.text", "it's <b>"), ("input.steps", "2")],
    )
    .await;
    assert_eq!(first.status, 200, "{first:?}");
    assert!(
        first
            .body
            .contains("&quot;text&quot;: &quot;it&#39;s &lt;b&gt;&quot;"),
        "{}",
        first.body
    );
    assert!(
        first.body.contains("helmdeck run test.cached --input"),
        "{}",
        first.body
    );
    let second = submit(
        &fixture,
        path,
        &[("input.text", "it's <b>"), ("input.steps", "2")],
    )
    .await;
    assert!(
        second.body.contains("<span class=\"badge\">hit</span>"),
        "{}",
        second.body
    );
    assert_eq!(fixture.probe.runs(), 1);
    let json = submit(&fixture, path, &[("json", "{\"text\": \"x\"}")]).await;
    assert!(
        json.body.contains("&quot;text&quot;: &quot;x&quot;"),
        "{}",
        json.body
    );
    let wrong = submit(&fixture, path, &[("input.steps", "many")]).await;
    assert!(
        wrong.status == 400 && wrong.body.contains("steps: not a number"),
        "{}",
        wrong.body
    );
    assert_eq!(
        submit(&fixture, path, &[("json", "{\"other\": 1}")])
            .await
            .status,
        400
    );
    assert_eq!(fixture.probe.runs(), 2);
}

#[tokio::test]
async fn form_of_long_pack_leads_to_its_job() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    let started = submit(&fixture, "/ui/packs/test.long", &[("input.text", "a")]).await;
    assert_eq!(started.status, 303, "{started:?}");
    let job = fixture.get(started.header("location")).await;
    assert!(
        job.status == 200 && job.body.contains("test.long"),
        "{}",
        job.body
    );
    assert!(fixture.get("/ui/jobs").await.body.contains("test.long"));
    assert_eq!(
        fixture
            .get("/ui/jobs/00000000000000000000000000000000")
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn form_without_its_token_changes_nothing() {
    let fixture = Fixture::with_memory().await;
    let body = "form_token=0123456789abcdef0123456789abcdef&json=%7B%7D";
    for (headers, status) in [
        (vec![FORM, ORIGIN], 403),
        (vec![FORM, ("origin", "http://localhost:1")], 403),
        (vec![FORM, ("origin", "https://evil.example")], 403),
        (vec![FORM, ("sec-fetch-site", "cross-site")], 403),
        (vec![("content-type", "text/plain"), ORIGIN], 415),
        (vec![ORIGIN], 415),
    ] {
        let answer = fixture
            .send(Method::POST, "/ui/packs/test.write", &headers, body)
            .await;
        assert_eq!(answer.status, status, "{headers:?}");
    }
    // The forms of pages are no way into the API.
    let answer = fixture
        .send(
            Method::POST,
            "/api/v1/packs/test.write",
            &[FORM, ORIGIN],
            "{}",
        )
        .await;
    assert_eq!(answer.status, 415);
    assert_eq!(fixture.probe.runs(), 0);
}

#[tokio::test]
async fn texts_of_others_are_shown_as_text() {
    let fixture = Fixture::with_memory().await;
    let hostile = "<script>alert(1)</script>\u{202e}\" onload=\"x";
    let fact = json!({ "key": "k<i>", "value": hostile, "tags": ["<b>"] }).to_string();
    assert_eq!(
        fixture.post("/api/v1/memory/store", &fact).await.status,
        200
    );
    let turn = json!({ "user_message": hostile, "assistant_response": hostile }).to_string();
    assert_eq!(
        fixture
            .post("/api/v1/conversations/s%3Cu%3E/turns", &turn)
            .await
            .status,
        201
    );
    assert_eq!(
        fixture
            .post(
                "/api/v1/packs/test.cached",
                &json!({ "text": hostile }).to_string()
            )
            .await
            .status,
        200
    );
    let ran = submit(&fixture, "/ui/packs/test.plain", &[("input.text", hostile)]).await;
    let mut pages = vec![ran];
    for path in [
        "/ui",
        "/ui/memory",
        "/ui/cache",
        "/ui/calls",
        "/ui/conversations",
        "/ui/conversations/s%3Cu%3E",
        "/ui/packs?filter=%3Cscript%3E",
        "/ui/memory?done=%3Cscript%3E&prefix=%22%3E%3Cscript%3E",
    ] {
        pages.push(fixture.get(path).await);
    }
    for page in pages {
        let body = without_module(&page.body);
        for forbidden in ["<script", "<i>", "<b>", "<u>", "\u{202e}", "onload=\"x"] {
            assert!(!body.contains(forbidden), "{forbidden}: {body}");
        }
    }
    assert!(
        fixture
            .get("/ui/conversations/s%3Cu%3E")
            .await
            .body
            .contains("&lt;script&gt;alert(1)&lt;/script&gt;\u{27e8}U+202E\u{27e9}")
    );
}

#[tokio::test]
async fn facts_answers_and_turns_are_deleted_by_forms() {
    let fixture = Fixture::with_memory().await;
    let stored = submit(
        &fixture,
        "/ui/memory/store",
        &[("key", "answer.language"), ("value", "German")],
    )
    .await;
    assert_eq!(stored.status, 303, "{stored:?}");
    assert!(
        fixture
            .get("/ui/memory")
            .await
            .body
            .contains("answer.language")
    );
    let forgotten = submit(&fixture, "/ui/memory/forget", &[("key", "answer.language")]).await;
    assert!(
        forgotten.header("location").contains("1%20fact%20deleted"),
        "{forgotten:?}"
    );
    assert!(
        !fixture
            .get("/ui/memory")
            .await
            .body
            .contains("answer.language")
    );

    fixture
        .post("/api/v1/packs/test.cached", "{\"text\":\"a\"}")
        .await;
    fixture.engine.memory().unwrap().flush().await;
    let list = fixture.get("/ui/cache").await;
    assert!(
        list.body.contains("test:all") && list.body.contains("test.cached"),
        "{}",
        list.body
    );
    let purged = submit(
        &fixture,
        "/ui/cache/purge",
        &[("tenant", "local"), ("subject", "local")],
    )
    .await;
    assert!(
        purged.header("location").contains("Purged%201%20answer"),
        "{purged:?}"
    );
    assert!(
        fixture
            .get("/ui/cache")
            .await
            .body
            .contains("Nothing is cached here")
    );

    let turn = json!({ "user_message": "u", "assistant_response": "a" }).to_string();
    fixture.post("/api/v1/conversations/s1/turns", &turn).await;
    assert!(
        fixture
            .get("/ui/conversations/s1")
            .await
            .body
            .contains("Delete the turn mem_")
    );
    let gone = submit(&fixture, "/ui/conversations/s1/forget", &[]).await;
    assert!(
        gone.header("location")
            .starts_with("/ui/conversations?done="),
        "{gone:?}"
    );
    assert!(
        fixture
            .get("/ui/conversations")
            .await
            .body
            .contains("0 conversations")
    );
}

#[tokio::test]
async fn artifact_is_downloaded_never_rendered() {
    let fixture = Fixture::with_memory().await;
    let ran = submit(
        &fixture,
        "/ui/packs/test.plain",
        &[("input.file", "<script>1</script>")],
    )
    .await;
    let (_, rest) = ran.body.split_once("href=\"/ui/artifacts/").unwrap();
    let path = format!("/ui/artifacts/{}", rest.split('"').next().unwrap());
    assert!(fixture.get("/ui/files").await.body.contains("page.html"));
    let file = fixture.get(&path).await;
    assert!(
        file.header("content-disposition").starts_with("attachment"),
        "{file:?}"
    );
    assert_eq!(
        file.header("content-security-policy"),
        "default-src 'none'; sandbox"
    );
    assert_eq!(submit(&fixture, &path, &[]).await.status, 303);
    assert_eq!(fixture.get(&path).await.status, 404);
}

/// A server that wants tokens, and its database.
async fn with_auth(folder: &std::path::Path) -> (Fixture, System) {
    let path = folder.join("helmdeck.db");
    let config = AuthConfig {
        api_tokens: true,
        ..AuthConfig::default()
    };
    let egress = Egress::new(helmdeck_egress::Config::default());
    let auth = Auth::new(&config, None, Some(System::at(&path)), &egress)
        .unwrap()
        .unwrap();
    (
        Fixture::with_auth(ServerConfig::default(), auth).await,
        System::at(&path),
    )
}

async fn token(system: &System, user: &str, scope: &str, expires_at: Option<Timestamp>) -> Secret {
    let token = NewToken {
        name: String::new(),
        tenant: "acme".to_owned(),
        subject: user.to_owned(),
        scope: scope.to_owned(),
        created_at: START,
        expires_at,
        ancestors: Vec::new(),
    };
    system.create_token(token).await.unwrap().1
}

async fn sign_in(fixture: &Fixture, token: &str) -> Answer {
    fixture
        .send(
            Method::POST,
            "/ui/sign-in",
            &[FORM, ORIGIN],
            &format!("token={token}"),
        )
        .await
}

#[tokio::test]
async fn visitor_is_sent_to_sign_in() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, _) = with_auth(folder.path()).await;
    for path in PAGES {
        let answer = fixture.get(path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("location")),
            (303, "/ui/sign-in"),
            "{path}"
        );
    }
    let page = fixture.get("/ui/sign-in").await;
    assert!(
        page.status == 200 && page.body.contains("type=\"password\""),
        "{}",
        page.body
    );
    let wrong = sign_in(&fixture, "hd_0123").await;
    assert!(
        wrong.status == 401
            && wrong.body.contains("not valid")
            && wrong.header("set-cookie").is_empty(),
        "{wrong:?}"
    );
    let sent = fixture
        .send(
            Method::POST,
            "/ui/memory/forget",
            &[FORM, ORIGIN],
            "form_token=x",
        )
        .await;
    assert_eq!(sent.status, 401);
}

#[tokio::test]
async fn cookie_opens_pages_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, system) = with_auth(folder.path()).await;
    let shown = token(&system, "ann", "packs:run memory:read", None).await;
    let signed = sign_in(&fixture, shown.expose()).await;
    assert_eq!(
        (signed.status.as_u16(), signed.header("location")),
        (303, "/ui"),
        "{signed:?}"
    );
    let header = signed.header("set-cookie").to_owned();
    assert!(
        header.contains("HttpOnly")
            && header.contains("SameSite=Strict")
            && header.contains("Max-Age=43200"),
        "{header}"
    );
    assert!(
        !header.contains(shown.expose()),
        "the browser gets a token of its own"
    );
    let cookie = header.split(';').next().unwrap();
    let page = fixture
        .send(Method::GET, "/ui", &[("cookie", cookie)], "")
        .await;
    assert!(
        page.status == 200 && page.body.contains("acme/ann"),
        "{page:?}"
    );
    // No right was added.
    let purge = fixture
        .send(Method::GET, "/ui/cache", &[("cookie", cookie)], "")
        .await;
    assert_eq!(purge.status, 200);
    let text = cookie.split_once('=').unwrap().1;
    let bearer = format!("Bearer {text}");
    for (path, headers) in [
        ("/api/v1/packs", vec![("cookie", cookie)]),
        ("/api/v1/packs", vec![("authorization", bearer.as_str())]),
        ("/docs", vec![("authorization", bearer.as_str())]),
    ] {
        assert_eq!(
            fixture.send(Method::GET, path, &headers, "").await.status,
            401,
            "{path} {headers:?}"
        );
    }
    // Another name for the same cookie is none, and on a public host the plain one is not taken.
    let other = format!("x{cookie}");
    assert_eq!(
        fixture
            .send(Method::GET, "/ui", &[("cookie", other.as_str())], "")
            .await
            .status,
        303
    );

    let out = fixture
        .send(
            Method::POST,
            "/ui/sign-out",
            &[FORM, ORIGIN, ("cookie", cookie)],
            "",
        )
        .await;
    assert!(
        out.status == 303 && out.header("set-cookie").contains("Max-Age=0"),
        "{out:?}"
    );
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(
        fixture
            .send(Method::GET, "/ui", &[("cookie", cookie)], "")
            .await
            .status,
        303,
        "revoked"
    );
}

#[tokio::test]
async fn sign_in_ends_after_half_a_day() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, system) = with_auth(folder.path()).await;
    let shown = token(&system, "ann", "admin", None).await;
    let signed = sign_in(&fixture, shown.expose()).await;
    let cookie = signed
        .header("set-cookie")
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let visit = async || {
        fixture
            .send(Method::GET, "/ui", &[("cookie", cookie.as_str())], "")
            .await
            .status
            .as_u16()
    };
    assert_eq!(visit().await, 200);
    fixture.clock.advance(Duration::from_secs(12 * 3600 - 1));
    assert_eq!(visit().await, 200);
    fixture.clock.advance(Duration::from_secs(2));
    assert_eq!(visit().await, 303);
}

#[tokio::test]
async fn form_token_of_another_caller_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (fixture, system) = with_auth(folder.path()).await;
    let mut visitors = Vec::new();
    for user in ["ann", "bob"] {
        let shown = token(&system, user, "packs:run memory:read memory:write", None).await;
        let signed = sign_in(&fixture, shown.expose()).await;
        let cookie = signed
            .header("set-cookie")
            .split(';')
            .next()
            .unwrap()
            .to_owned();
        let page = fixture
            .send(
                Method::GET,
                "/ui/packs/test.write",
                &[("cookie", cookie.as_str())],
                "",
            )
            .await;
        visitors.push((cookie, form_token(&page)));
    }
    let [(ann, of_ann), (_, of_bob)] = visitors.try_into().unwrap();
    for (token, status) in [(of_bob, 403), (of_ann, 200)] {
        let body = format!("form_token={token}&json=%7B%7D");
        let headers = [FORM, ORIGIN, ("cookie", ann.as_str())];
        let answer = fixture
            .send(Method::POST, "/ui/packs/test.write", &headers, &body)
            .await;
        assert_eq!(answer.status, status);
    }
    assert_eq!(fixture.probe.runs(), 1);
}

#[tokio::test]
async fn sign_in_needs_https_beyond_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("helmdeck.db");
    let config = AuthConfig {
        api_tokens: true,
        ..AuthConfig::default()
    };
    let egress = Egress::new(helmdeck_egress::Config::default());
    let auth = Auth::new(&config, None, Some(System::at(&path)), &egress)
        .unwrap()
        .unwrap();
    let access = crate::access::Access::new(
        auth,
        std::sync::Arc::new(helmdeck_testkit::ManualClock::at(START)),
    );
    let shown = token(&System::at(&path), "ann", "admin", None).await;
    let headers = |host: &str, origin: &str| {
        http::HeaderMap::from_iter([
            (http::header::HOST, host.parse().unwrap()),
            (http::header::ORIGIN, origin.parse().unwrap()),
        ])
    };
    let plain = access
        .sign_in(
            shown.expose(),
            &headers("deck.example", "http://deck.example"),
        )
        .await;
    assert!(plain.unwrap_err().contains("HTTPS"));
    let secure = access
        .sign_in(
            shown.expose(),
            &headers("deck.example", "https://deck.example"),
        )
        .await
        .unwrap();
    assert!(secure.to_str().unwrap().starts_with("__Host-helmdeck=hd_"));
}

#[tokio::test]
async fn token_of_one_session_does_not_sign_in() {
    let folder = tempfile::tempdir().unwrap();
    let text = "a shared secret of 32 bytes or so";
    let egress = Egress::new(helmdeck_egress::Config::default());
    let system = System::at(folder.path().join("helmdeck.db"));
    let secret = Some(Secret::new(text.to_owned()));
    let auth = Auth::new(&AuthConfig::default(), secret, Some(system), &egress)
        .unwrap()
        .unwrap();
    let fixture = Fixture::with_auth(ServerConfig::default(), auth).await;
    let sign = |session: Option<&str>| {
        let seconds = START.micros() / 1_000_000;
        let mut claims = json!({"sub": "ann", "tenant": "acme", "scope": "admin", "exp": seconds + 600, "iat": seconds});
        if let Some(session) = session {
            claims["session_id"] = session.into();
        }
        let key = jsonwebtoken::EncodingKey::from_secret(text.as_bytes());
        jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap()
    };
    let refused = sign_in(&fixture, &sign(Some("s1"))).await;
    assert!(
        refused.status == 401 && refused.body.contains("one session only"),
        "{refused:?}"
    );
    assert!(refused.header("set-cookie").is_empty());
    assert_eq!(sign_in(&fixture, &sign(None)).await.status, 303);
}
