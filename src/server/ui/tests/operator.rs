//! Pages of operators: tokens, vault, servers, operate; what they show to whom, and what their
//! forms change.

use helmdeck_core::Secret;
use http::Method;

use super::{FORM, ORIGIN, form_token, sign_in};
use crate::fixture::{Answer, Fixture};
use crate::rest::operator_tests::Operated;

/// A visitor who has signed in.
struct Visitor<'a> {
    server: &'a Operated,
    cookie: String,
}

impl<'a> Visitor<'a> {
    async fn new(server: &'a Operated, token: &Secret) -> Self {
        let signed = sign_in(&server.fixture, token.expose()).await;
        Self {
            server,
            cookie: signed
                .header("set-cookie")
                .split(';')
                .next()
                .unwrap()
                .to_owned(),
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.server
            .fixture
            .send(Method::GET, path, &[("cookie", self.cookie.as_str())], "")
            .await
    }

    async fn submit(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let token = form_token(&self.get("/ui/packs/test.plain").await);
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("form_token", &token).extend_pairs(fields);
        let headers = [FORM, ORIGIN, ("cookie", self.cookie.as_str())];
        self.server
            .fixture
            .send(Method::POST, path, &headers, &form.finish())
            .await
    }
}

#[tokio::test]
async fn token_is_shown_once_and_revoked() {
    let server = Operated::new().await;
    let ann = Visitor::new(
        &server,
        &server
            .token("ann", "packs:run memory:read tokens:write")
            .await,
    )
    .await;
    let made = ann
        .submit(
            "/ui/tokens",
            &[
                ("name", "ci <b>"),
                ("scope", "packs:run:test.*"),
                ("days", "30"),
            ],
        )
        .await;
    assert_eq!(made.status, 200, "{made:?}");
    let (_, rest) = made
        .body
        .split_once("<pre tabindex=\"0\"><code>hd_")
        .unwrap();
    let text = rest.split('<').next().unwrap();
    assert_eq!(text.len(), 89);
    let list = ann.get("/ui/tokens").await;
    assert!(
        list.body.contains("ci &lt;b&gt;") && !list.body.contains(text),
        "{}",
        list.body
    );
    let id = text.split('_').next().unwrap();
    let gone = ann.submit(&format!("/ui/tokens/{id}/revoke"), &[]).await;
    assert!(
        gone.header("location").starts_with("/ui/tokens?done="),
        "{gone:?}"
    );
    let refused = ann
        .submit("/ui/tokens", &[("scope", "admin"), ("name", "kept")])
        .await;
    assert!(
        refused.status == 403 && refused.body.contains("value=\"kept\""),
        "{refused:?}"
    );
}

#[tokio::test]
async fn navigation_shows_what_its_visitor_can_use() {
    let server = Operated::new().await;
    let ann = Visitor::new(&server, &server.token("ann", "packs:run").await).await;
    let boss = Visitor::new(&server, &server.token("boss", "admin").await).await;
    for (path, for_ann) in [
        ("/ui/tokens", true),
        ("/ui/vault", true),
        ("/ui/servers", false),
        ("/ui/operate", false),
    ] {
        let link = format!("href=\"{path}\"");
        assert!(boss.get("/ui/packs").await.body.contains(&link), "{path}");
        assert_eq!(
            ann.get("/ui/packs").await.body.contains(&link),
            for_ann,
            "{path}"
        );
        assert_eq!(boss.get(path).await.status, 200, "{path}");
        let page = ann.get(path).await;
        assert_eq!(
            page.status.as_u16(),
            if for_ann { 200 } else { 403 },
            "{path}"
        );
        assert!(
            for_ann || page.body.contains("lacks a right"),
            "{}",
            page.body
        );
    }
    // Without a data folder and a vault there is neither.
    let plain = Fixture::plain().await.get("/ui").await;
    assert!(
        !plain.body.contains("/ui/tokens") && !plain.body.contains("/ui/vault"),
        "{}",
        plain.body
    );
}

#[tokio::test]
async fn grants_change_and_no_value_shows() {
    let server = Operated::new().await;
    server.credential("github").await;
    let ann = Visitor::new(&server, &server.token("ann", "packs:run").await).await;
    let boss = Visitor::new(&server, &server.token("boss", "admin").await).await;
    let granted = boss
        .submit(
            "/ui/vault/github/grant",
            &[("subjects", "acme/bob acme/<b>"), ("packs", "")],
        )
        .await;
    assert_eq!(granted.status, 303, "{granted:?}");
    let page = boss.get("/ui/vault/github").await;
    assert!(
        page.body.contains("acme/bob") && page.body.contains("acme/&lt;b&gt;"),
        "{}",
        page.body
    );
    let own = ann.get("/ui/vault/github").await;
    assert!(
        own.status == 200 && !own.body.contains("acme/bob") && !own.body.contains("api.example"),
        "{}",
        own.body
    );
    let revoked = boss
        .submit("/ui/vault/github/revoke", &[("subjects", "acme/ann")])
        .await;
    assert_eq!(revoked.status, 303);
    assert_eq!(
        ann.get("/ui/vault/github").await.status,
        404,
        "no longer granted"
    );
    assert_eq!(
        ann.submit("/ui/vault/github/grant", &[("subjects", "acme/ann")])
            .await
            .status,
        403
    );
    for page in [boss.get("/ui/vault").await, page, own] {
        assert!(!page.body.contains("canary"), "{}", page.body);
    }
}

#[tokio::test]
async fn operate_shows_settings_and_sweeps() {
    let server = Operated::new().await;
    let boss = Visitor::new(&server, &server.token("boss", "admin").await).await;
    let page = boss.get("/ui/operate").await;
    assert!(
        page.body.contains("1.2.3") && page.body.contains("server.listen"),
        "{}",
        page.body
    );
    assert!(
        boss.get("/ui/operate?filter=%3Cb%3E")
            .await
            .body
            .contains("No setting matches")
    );
    let swept = boss.submit("/ui/operate/sweep", &[]).await;
    assert!(swept.header("location").contains("Swept"), "{swept:?}");
    let rotating = boss.submit("/ui/operate/rotate", &[]).await;
    assert!(
        rotating.header("location").contains("rotation"),
        "{rotating:?}"
    );
    assert_eq!(boss.submit("/ui/operate/other", &[]).await.status, 404);
    let drains = boss.submit("/ui/operate/drain", &[]).await;
    assert!(drains.header("location").contains("drains"), "{drains:?}");
}

#[tokio::test]
async fn purge_shows_what_goes_before_it_goes() {
    let fixture = Fixture::with_memory().await;
    fixture
        .post("/api/v1/packs/test.cached", "{\"text\":\"a\"}")
        .await;
    fixture.engine.memory().unwrap().flush().await;
    let look = fixture.get("/ui/cache/purge?pack=test.cached").await;
    assert!(
        look.body.contains("1 answer") && look.body.contains("name=\"pack\" value=\"test.cached\""),
        "{}",
        look.body
    );
    assert!(
        fixture
            .get("/ui/cache?tag=test:all")
            .await
            .body
            .contains("test.cached"),
        "it is still there"
    );
    let none = fixture.get("/ui/cache/purge?tag=%3Cb%3E").await;
    assert!(
        none.body.contains("nothing would be deleted") && !none.body.contains("<b>"),
        "{}",
        none.body
    );
    let purged = super::submit(&fixture, "/ui/cache/purge", &[("pack", "test.cached")]).await;
    assert!(
        purged.header("location").contains("Purged%201%20answer"),
        "{purged:?}"
    );
}

#[tokio::test]
async fn pack_page_explains_the_cache() {
    let fixture = Fixture::with_memory().await;
    let path = "/ui/packs/test.cached";
    let told = super::submit(&fixture, path, &[("input.text", "a"), ("do", "explain")]).await;
    assert!(
        told.body.contains("Cache decision") && told.body.contains("none for exactly this call"),
        "{}",
        told.body
    );
    assert_eq!(fixture.probe.runs(), 0);
    let ran = super::submit(&fixture, path, &[("input.text", "a")]).await;
    assert!(
        ran.body.contains("fresh, ") && ran.body.contains("test:all"),
        "{}",
        ran.body
    );
    let job = super::submit(&fixture, path, &[("input.text", "b"), ("do", "job")]).await;
    assert!(
        job.status == 303 && job.header("location").starts_with("/ui/jobs/"),
        "{job:?}"
    );
}

#[tokio::test]
async fn fact_is_edited_and_exported() {
    let fixture = Fixture::with_memory().await;
    let fields = [
        ("key", "k"),
        ("value", "one\n<b>"),
        ("tags", "a, b"),
        ("category", "c"),
    ];
    assert_eq!(
        super::submit(&fixture, "/ui/memory/store", &fields)
            .await
            .status,
        303
    );
    let edited = fixture.get("/ui/memory?edit=k").await;
    assert!(
        edited.body.contains("Edit a fact") && edited.body.contains("value=\"a, b\""),
        "{}",
        edited.body
    );
    let file = fixture.get("/ui/memory/export").await;
    assert!(
        file.header("content-disposition").starts_with("attachment"),
        "{file:?}"
    );
    assert_eq!(file.json()["facts"][0]["value"], "one\n<b>");
    assert!(
        fixture
            .get("/ui/memory?tag=none")
            .await
            .body
            .contains("No fact matches")
    );
    let forgotten = super::submit(&fixture, "/ui/memory/forget", &[("category", "c")]).await;
    assert!(
        forgotten.header("location").contains("1%20fact%20deleted"),
        "{forgotten:?}"
    );
}

#[tokio::test]
async fn turns_are_searched_and_exported() {
    let fixture = Fixture::with_memory().await;
    for text in ["apples", "pears"] {
        let turn =
            serde_json::json!({ "user_message": text, "assistant_response": "yes" }).to_string();
        assert_eq!(
            fixture
                .post("/api/v1/conversations/s1/turns", &turn)
                .await
                .status,
            201
        );
    }
    let found = fixture
        .get("/ui/conversations/s1?content_search=pears")
        .await;
    assert!(
        found.body.contains("said\">pears") && !found.body.contains("said\">apples"),
        "{}",
        found.body
    );
    let file = fixture
        .get("/ui/conversations/s1/export?tenant=local&user=local")
        .await;
    assert!(
        file.header("content-disposition")
            .contains("conversation.json")
            && file.body.contains("apples"),
        "{file:?}"
    );
    assert!(
        fixture
            .get("/ui/conversations?user=none")
            .await
            .body
            .contains("No conversation matches")
    );
}
