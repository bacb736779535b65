//! Attacks on the pages: texts of others, requests of other sites, frames, cookies, and odd paths.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::checks::{foreign, outline};
use super::chromium::{Browser, Tab};
use super::corpus::{self, CORPUS};
use super::origins::Site;
use super::places::{PLACES, State};
use super::scene::{Scene, token};
use crate::support::program::Server;
use crate::support::wait_for;

/// Percent-encodes everything but letters and digits.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        plain if plain.is_ascii_alphanumeric() => char::from(plain).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// Fails if an attack ran, or left something in the page.
#[track_caller]
pub(super) fn is_harmless(tab: &Tab<'_>, what: &str) {
    let found = [tab.complaints(), foreign(tab)].concat();
    assert!(found.is_empty(), "{what}: {}", found.join("\n"));
    let own = tab.text("location.hostname");
    assert_eq!(own, "127.0.0.1", "{what} led elsewhere");
}

#[test]
fn hostile_addresses_are_shown_as_texts() {
    let scene = Scene::start(State::Busy);
    let browser = Browser::start();
    let tab = browser.tab();
    let names = [
        "done", "filter", "pack", "outcome", "tenant", "subject", "user", "prefix", "category",
        "state", "after",
    ];
    // A quarter of the attacks in each parameter of a page, another one in the next parameter and
    // on the next page; then each attack alone as part of a path.
    let parts: Vec<String> = CORPUS
        .chunks(CORPUS.len().div_ceil(4))
        .map(|attacks| encoded(&attacks.join(" ")))
        .collect();
    let query = |page: usize| -> String {
        let parameter =
            |(at, name): (usize, &&str)| format!("{name}={}&", parts[(page + at) % parts.len()]);
        names.iter().enumerate().map(parameter).collect()
    };
    let paths = PLACES
        .iter()
        .filter(|place| place.states.contains(&State::Busy))
        .map(|place| scene.path(place.path));
    let paths: BTreeSet<String> = paths
        .map(|path| path.split('?').next().unwrap().to_owned())
        .collect();
    for (number, path) in paths.iter().filter(|path| *path != "/docs").enumerate() {
        tab.open(&scene.server.url(&format!("{path}?{}", query(number))));
        is_harmless(&tab, path);
    }
    for (number, attack) in CORPUS.iter().enumerate() {
        let path = [
            "/ui/packs/",
            "/ui/conversations/",
            "/ui/jobs/",
            "/ui/vault/",
            "/ui/",
        ][number % 5];
        tab.open(&scene.server.url(&format!("{path}{}", encoded(attack))));
        is_harmless(&tab, path);
    }
}

#[test]
fn hostile_inputs_are_shown_as_texts() {
    let scene = Scene::start(State::Hostile);
    let browser = Browser::start();
    let tab = browser.tab();
    for (path, field) in [
        ("/ui/packs/test.echo", "input.repo"),
        ("/ui/packs/test.echo", "json"),
        ("/ui/packs/test.broken", "input.repo"),
    ] {
        for attack in [corpus::all(), json!({ "repo": corpus::all() }).to_string()] {
            tab.open(&scene.server.url(path));
            let field = json!(field);
            let fill = format!(
                "(() => {{ const at = document.getElementsByName({field})[0]; \
                 at.value = {}; at.form.id = 'filled'; }})()",
                json!(attack)
            );
            tab.eval(&fill);
            tab.leads(|tab| drop(tab.eval("document.getElementById('filled').requestSubmit()")));
            is_harmless(&tab, path);
            assert!(
                outline(&tab).contains("hit()"),
                "{path} does not show what was sent"
            );
        }
    }
    // What comes over the stream goes the same way.
    tab.open(&scene.server.url("/ui/jobs"));
    let rows = "document.querySelectorAll('#jobs tr').length";
    let before = tab.eval(rows).as_u64().unwrap();
    wait_for("the stream", || {
        tab.text("document.getElementById('live').textContent") == "live"
    });
    scene.post(
        "/api/v1/packs/test.broken/jobs",
        &json!({ "repo": corpus::all() }),
    );
    wait_for("the row of the job", || {
        tab.eval(rows).as_u64().unwrap() > before
    });
    wait_for("its end", || {
        tab.text("document.querySelector('#jobs tr').innerText")
            .contains("failed")
    });
    is_harmless(&tab, "the stream");
    // What is downloaded is saved, never shown: neither in the page's tab nor with its type.
    tab.open(&scene.server.url("/ui/files"));
    let link = tab.text("document.querySelector('td a').href");
    assert!(
        tab.try_open(&link).unwrap_err().contains("ERR_ABORTED"),
        "a download leaves the page as it is"
    );
    let path = link.split_once("/ui/").unwrap().1;
    let file = scene
        .server
        .exchange(&format!("GET /ui/{path}"), "")
        .unwrap();
    assert!(
        file.header("content-disposition")
            .unwrap()
            .starts_with("attachment"),
        "{}",
        file.head
    );
    assert_eq!(file.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(
        file.header("content-security-policy"),
        Some("default-src 'none'; sandbox")
    );
}

/// A page that sends whatever a browser lets it send to a server, and lists how that ended.
fn attacker(server: &Server) -> String {
    let target = server.url("");
    format!(
        "<!doctype html><title>evil</title><iframe id=frame src='{target}/ui'></iframe>\
         <form id=store method=post action='{target}/ui/memory/store'><input name=key value=stolen>\
         <input name=value value=x><input name=form_token value=0123456789abcdef0123456789abcdef></form>\
         <form id=out method=post action='{target}/ui/sign-out'></form>\
         <form id=in method=post action='{target}/ui/sign-in'><input name=token value=hd_of_the_attacker></form>\
         <script>async function tries() {{ const said = [];\
         const form = new URLSearchParams({{key: 'stolen', value: 'x', form_token: '0'}});\
         for (const [path, way] of [['/ui/memory/store', {{method: 'POST', body: form}}],\
           ['/ui/memory/store', {{method: 'POST', body: form, mode: 'no-cors'}}],\
           ['/ui/sign-out', {{method: 'POST', mode: 'no-cors', body: form}}],\
           ['/ui/memory', {{}}], ['/ui', {{mode: 'no-cors'}}], ['/ui/memory/forget', {{method: 'DELETE'}}]])\
           said.push(await fetch('{target}' + path, {{credentials: 'include', ...way}})\
             .then(answer => answer.type + ' ' + answer.status, () => 'failed'));\
         return said.join(', '); }}</script>"
    )
}

#[test]
fn other_sites_change_and_read_nothing() {
    let scene = Scene::with_tokens();
    let browser = Browser::start();
    let person = scene.visitor(&browser);
    let site = Site::showing(attacker(&scene.server));
    let signed_in = |tab: &Tab<'_>| {
        tab.open(&scene.server.url("/ui/memory"));
        let page = tab.text("document.body.innerText");
        page.contains("acme/ann") && !page.contains("stolen")
    };
    // Another port of the same name is the same site to a browser: it sends the cookie along.
    for name in ["127.0.0.1", "localhost"] {
        let evil = person.beside();
        evil.open(&site.url(name));
        let said = evil.text("tries()");
        assert_eq!(
            said, "failed, opaque 0, opaque 0, failed, opaque 0, failed",
            "{name}"
        );
        // A frame shows nothing of ours: neither the page nor its place to click.
        let shown = evil.text(
            "(() => { try { return frame.contentDocument?.body.innerText ?? 'closed' } catch { return 'closed' } })()",
        );
        assert_eq!(shown, "closed", "{name}");
        for form in ["store", "out", "in"] {
            evil.open(&site.url(name));
            let status = evil.leads(|tab| {
                drop(tab.eval(&format!("document.getElementById('{form}').submit()")))
            });
            assert_eq!(status, 403, "{name} {form}");
            assert!(signed_in(&person), "{name} {form}");
        }
        // A link may lead to a page, which is only shown.
        evil.open(&site.url(name));
        let status = evil.leads(|tab| {
            drop(tab.eval(&format!("location = '{}'", scene.server.url("/ui/calls"))))
        });
        assert_eq!(status, 200);
    }
}

#[test]
fn own_page_cannot_be_framed() {
    let scene = Scene::with_tokens();
    let site = Site::showing(format!(
        "<!doctype html><iframe src='{}'></iframe>",
        scene.server.url("/ui/sign-in")
    ));
    let browser = Browser::start();
    let tab = browser.tab();
    tab.open(&site.url("127.0.0.1"));
    let answer = scene
        .server
        .exchange("GET /ui/sign-in\nSec-Fetch-Dest: iframe\nSec-Fetch-Site: same-site\nSec-Fetch-Mode: navigate", "");
    assert_eq!(answer.unwrap().code, 403);
    let page = scene.server.ask("GET /ui/sign-in", "");
    assert!(
        page.header("content-security-policy")
            .unwrap()
            .contains("frame-ancestors 'none'"),
        "{}",
        page.head
    );
}

/// Posts a form as a browser does; returns the status and the cookie that is set.
pub(super) fn form(
    server: &Server,
    path: &str,
    cookie: &str,
    body: &str,
) -> (u16, Option<String>, String) {
    let origin = server.url("");
    let host = origin.strip_prefix("http://").unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nCookie: {cookie}\r\nConnection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = server.raw(request.as_bytes());
    let set = answer.lines().find_map(|line| {
        line.to_ascii_lowercase()
            .starts_with("set-cookie:")
            .then(|| &line[12..])
    });
    let cookie = set.map(|text| text.split(';').next().unwrap().trim().to_owned());
    (answer[9..12].parse().unwrap(), cookie, answer)
}

fn page(server: &Server, path: &str, cookie: &str) -> (u16, String) {
    let answer = server
        .exchange(&format!("GET {path}\nCookie: {cookie}"), "")
        .unwrap();
    (answer.code, answer.body)
}

pub(super) fn form_token(page: &str) -> &str {
    page.split("name=\"form_token\" value=\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap()
}

#[test]
fn forms_need_the_token_of_their_caller() {
    let scene = Scene::with_tokens();
    let server = &scene.server;
    let sign_in = |text: &str| {
        form(server, "/ui/sign-in", "", &format!("token={text}"))
            .1
            .unwrap()
    };
    let ann = sign_in(scene.token());
    let bob = sign_in(&token(&scene.home, "bob", "admin"));
    let of_ann = form_token(&page(server, "/ui/memory", &ann).1).to_owned();
    let of_bob = form_token(&page(server, "/ui/memory", &bob).1).to_owned();
    let store = |cookie: &str, token: &str| {
        form(
            server,
            "/ui/memory/store",
            cookie,
            &format!("key=k&value=v{token}"),
        )
        .0
    };
    for (what, token, status) in [
        ("missing", String::new(), 403),
        ("empty", "&form_token=".to_owned(), 403),
        ("of another caller", format!("&form_token={of_bob}"), 403),
        (
            "of another process",
            format!("&form_token={}", "0".repeat(of_ann.len())),
            403,
        ),
        (
            "twice, the first one wrong",
            format!("&form_token=x&form_token={of_ann}"),
            403,
        ),
        ("right", format!("&form_token={of_ann}"), 303),
    ] {
        assert_eq!(store(&ann, &token), status, "{what}");
    }
    // After signing out neither the cookie nor the form is of use.
    assert_eq!(form(server, "/ui/sign-out", &ann, "").0, 303);
    wait_for("the sign-out", || page(server, "/ui/memory", &ann).0 == 303);
    assert_eq!(store(&ann, &format!("&form_token={of_ann}")), 401);
}

#[test]
fn link_of_others_shows_no_notice() {
    let scene = Scene::start(State::Empty);
    let notice = |query: &str| {
        page(&scene.server, &format!("/ui/memory{query}"), "")
            .1
            .contains("role=\"status\">The")
    };
    let done = scene.store_by_form("name", "Ann");
    assert!(notice(&done), "{done}");
    let (sentence, seal) = done.split_once("&seal=").unwrap();
    for link in [
        sentence.to_owned(),
        format!("{sentence}&seal="),
        format!("{sentence}%20Call%20us&seal={seal}"),
        format!("?done=The%20server%20moved&seal={seal}"),
        format!("?done=The%20server%20moved&seal={}", "0".repeat(seal.len())),
    ] {
        assert!(!notice(&link), "{link}");
    }
}

#[test]
fn signing_in_takes_no_cookie_of_others() {
    let scene = Scene::with_tokens();
    let server = &scene.server;
    // The attacker's own sign-in, put into the browser of the person before that signs in.
    let planted = form(
        server,
        "/ui/sign-in",
        "",
        &format!("token={}", token(&scene.home, "eve", "packs:run")),
    )
    .1
    .unwrap();
    let (status, fresh, _) = form(
        server,
        "/ui/sign-in",
        &planted,
        &format!("token={}", scene.token()),
    );
    let fresh = fresh.unwrap();
    assert_eq!(status, 303);
    assert_ne!(fresh, planted);
    assert!(page(server, "/ui", &fresh).1.contains("acme/ann"));
    assert!(!page(server, "/ui", &planted).1.contains("acme/ann"));
    // A token in the address signs nobody in, and an API token is no cookie.
    assert_eq!(
        page(server, &format!("/ui?token={}", scene.token()), "").0,
        400
    );
    let name = fresh.split('=').next().unwrap();
    assert_eq!(
        page(server, "/ui", &format!("{name}={}", scene.token())).0,
        303
    );
    // The neighbour of a public host can set a plain cookie for both; it is not taken there.
    let request = |cookie: &str| {
        let text = format!(
            "GET /ui HTTP/1.1\r\nHost: deck.example\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        );
        server.raw(text.as_bytes())
    };
    assert!(!request(&fresh).contains("acme/ann"));
}

#[test]
fn cookie_of_a_browser_is_of_no_use_elsewhere() {
    let scene = Scene::with_tokens();
    let browser = Browser::start();
    let tab = scene.visitor(&browser);
    assert_eq!(tab.text("document.cookie"), "", "no script reads it");
    let cookies: Value = tab.call("Network.getCookies", json!({}));
    let cookie = &cookies["cookies"][0];
    assert_eq!(
        (&cookie["httpOnly"], &cookie["sameSite"], &cookie["path"]),
        (&json!(true), &json!("Strict"), &json!("/"))
    );
    let header = format!(
        "{}={}",
        cookie["name"].as_str().unwrap(),
        cookie["value"].as_str().unwrap()
    );
    let bearer = header.split_once('=').unwrap().1;
    for path in ["/api/v1/packs", "/api/v1/memory/entries", "/metrics"] {
        assert_eq!(
            scene
                .server
                .exchange(&format!("GET {path}\nCookie: {header}"), "")
                .unwrap()
                .code,
            401,
            "{path}"
        );
        let asked = format!("GET {path}\nAuthorization: Bearer {bearer}");
        assert_eq!(
            scene.server.exchange(&asked, "").unwrap().code,
            401,
            "{path}"
        );
    }
}

#[test]
fn stream_has_nothing_of_another_caller() {
    let scene = Scene::with_tokens();
    let [bob, eve] =
        ["bob", "eve"].map(|user| token(&scene.home, user, "packs:run memory:read memory:write"));
    let browser = Browser::start();
    let tab = browser.tab();
    scene.sign_in(&tab, &bob);
    let call = |token: &str, pack: &str| {
        let head = format!("POST /api/v1/packs/{pack}/jobs\nAuthorization: Bearer {token}");
        assert_eq!(scene.server.ask(&head, "{}").code, 202);
    };
    for path in ["/ui", "/ui/calls", "/ui/jobs"] {
        tab.open(&scene.server.url(path));
        let stream = tab.text("document.querySelector('main').dataset.live");
        wait_for("the stream", || {
            tab.text("document.getElementById('live').textContent") == "live"
        });
        let own = || {
            tab.text("document.body.innerText")
                .matches("test.plain")
                .count()
        };
        let before = own();
        call(&eve, "test.echo");
        call(&bob, "test.plain");
        wait_for("the own call", || own() > before);
        let page = tab.text("document.body.innerText");
        assert!(
            !page.contains("test.echo") && !page.contains("acme/eve"),
            "{path}: {page}"
        );
        // Nobody, and no other site with the person's cookie, gets the stream.
        assert_eq!(
            scene
                .server
                .exchange(&format!("GET {stream}"), "")
                .unwrap()
                .code,
            303,
            "{path}"
        );
        let foreign =
            format!("GET {stream}\nOrigin: http://localhost:1\nSec-Fetch-Site: same-site");
        assert_eq!(
            scene.server.exchange(&foreign, "").unwrap().code,
            403,
            "{path}"
        );
    }
}

#[test]
fn odd_paths_reach_nothing() {
    let scene = Scene::start(State::Empty);
    std::fs::write(scene.home.data().join("secret"), "do not show me").unwrap();
    let long = "a/".repeat(4000);
    for path in [
        "/ui/..%2f..%2fsecret",
        "/ui/%2e%2e/%2e%2e/secret",
        "/ui/../../secret",
        "/ui/assets/..%2f..%2fsecret",
        "/ui/assets/%2e%2e%2f%2e%2e%2fCargo.toml",
        "/ui/artifacts/..%2f..%2fsecret",
        "/ui/artifacts/../../secret",
        "/ui/artifacts/t.files/..%2f..%2f..%2fsecret",
        "/ui/artifacts/%2fetc%2fpasswd",
        "/ui/artifacts//etc/passwd",
        "/ui/artifacts/%00",
        "/ui/packs/%00",
        "/ui/packs/..%2f..%2fsecret",
        "/ui/packs/test.echo%2f..%2fx",
        "/ui/packs/%ff%fe",
        "/ui/jobs/..%2f..%2fmemory%2fentries",
        "/ui/conversations/..%2f..%2fmemory%2fentries",
        "/ui/conversations/%00",
        "/ui//",
        "//ui/packs",
        "/ui\\..\\secret",
        "/ui/packs;x=1",
        "/UI/packs",
        "/ui/%75%69",
        &format!("/ui/{long}"),
        &format!("/ui/packs/{}", "a".repeat(20_000)),
        &format!("/ui/packs?filter={}", "%3C".repeat(2_000)),
    ] {
        let answer = scene.server.raw(
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                .as_bytes(),
        );
        let shown = path.get(..60).unwrap_or(path);
        let status: u16 = answer[9..12].parse().unwrap();
        assert!(status < 500, "{shown}: {answer}");
        assert!(
            !answer.contains("do not show me") && !answer.contains("root:"),
            "{shown}: {answer}"
        );
    }
    assert!(!scene.server.says("panic"), "{}", scene.server.log());
}
