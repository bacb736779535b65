//! The pages over TLS: the real program behind a proxy that ends it, and cookies that neighbours of
//! its name plant.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::attacks::form;
use super::chromium::{Browser, Tab};
use super::origins::Site;
use super::scene::{Scene, token};
use crate::support::wait_for;

/// Name of the server, and of a neighbour that an attacker has.
const NAME: &str = "deck.example";
const NEIGHBOUR: &str = "evil.deck.example";
const COOKIE: &str = "__Host-helmdeck";

/// A proxy that ends TLS with a certificate of its own.
struct Proxy {
    child: Child,
    /// Ports of TLS and of plain HTTP.
    tls: u16,
    plain: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Fails only if it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a port that nobody listens on.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

impl Proxy {
    /// Leads the name to the server over TLS, and everything else to the attacker's site.
    fn start(server: &str, attacker: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let mut openssl = Command::new("openssl");
        openssl.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ]);
        openssl.args([
            "-subj",
            "/CN=deck.example",
            "-addext",
            "subjectAltName=DNS:deck.example,DNS:*.deck.example",
        ]);
        let made = openssl
            .args(["-keyout", &path("key"), "-out", &path("certificate")])
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        let pem = [path("certificate"), path("key")]
            .map(|file| std::fs::read_to_string(file).unwrap())
            .concat();
        std::fs::write(path("pem"), pem).unwrap();
        let (tls, plain) = (free_port(), free_port());
        let settings = format!(
            "global\n  maxconn 200\ndefaults\n  mode http\n  timeout connect 60s\n  timeout client 5m\n  timeout server 5m\n\
             frontend tls\n  bind 127.0.0.1:{tls} ssl crt {} alpn h2,http/1.1\n  acl deck hdr(host) -i {NAME}:{tls}\n\
             \x20 use_backend deck if deck\n  default_backend attacker\n\
             frontend plain\n  bind 127.0.0.1:{plain}\n  default_backend attacker\n\
             backend deck\n  server deck {server}\nbackend attacker\n  server attacker {attacker}\n",
            path("pem")
        );
        std::fs::write(path("settings"), settings).unwrap();
        let child = Command::new("/usr/sbin/haproxy")
            .args(["-q", "-db", "-f", &path("settings")])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("haproxy, which tests/run installs");
        let proxy = Self {
            child,
            tls,
            plain,
            _folder: folder,
        };
        wait_for("the proxy", || {
            std::net::TcpStream::connect(("127.0.0.1", tls)).is_ok()
        });
        proxy
    }

    fn url(&self, name: &str, path: &str) -> String {
        format!("https://{name}:{}{path}", self.tls)
    }
}

/// Returns the cookies that a browser sends to the server, by name.
fn cookies(tab: &Tab<'_>, proxy: &Proxy) -> Vec<Value> {
    let asked = json!({ "urls": [proxy.url(NAME, "/ui")] });
    tab.call("Network.getCookies", asked)["cookies"]
        .as_array()
        .unwrap()
        .clone()
}

fn names(cookies: &[Value]) -> Vec<&str> {
    cookies
        .iter()
        .map(|cookie| cookie["name"].as_str().unwrap())
        .collect()
}

fn sign_in(tab: &Tab<'_>, proxy: &Proxy, token: &str) {
    assert_eq!(tab.open(&proxy.url(NAME, "/ui/sign-in")), 200);
    tab.eval("document.querySelector('#token').focus()");
    tab.type_text(token);
    assert_eq!(tab.leads(|tab| tab.press("Enter")), 200);
    assert_eq!(tab.text("location.pathname"), "/ui");
}

#[test]
fn cookie_over_tls_is_taken_from_nobody_else() {
    let scene = Scene::with_tokens_at(NAME);
    let address = |url: String| url.split('/').nth(2).unwrap().to_owned();
    let site = Site::showing("<!doctype html><title>evil</title>".to_owned());
    let proxy = Proxy::start(
        &address(scene.server.url("")),
        &address(site.url("127.0.0.1")),
    );
    let browser = Browser::start_with(&[
        "--ignore-certificate-errors",
        "--disable-features=HttpsUpgrades",
        &format!("--host-resolver-rules=MAP {NAME} 127.0.0.1, MAP {NEIGHBOUR} 127.0.0.1"),
    ]);
    let person = browser.tab();
    sign_in(&person, &proxy, scene.token());
    assert!(person.text("document.body.innerText").contains("acme/ann"));
    assert_eq!(
        person.text("performance.getEntriesByType('navigation')[0].nextHopProtocol"),
        "h2"
    );
    let own = cookies(&person, &proxy);
    assert_eq!(names(&own), [COOKIE]);
    let flags =
        ["secure", "httpOnly", "sameSite", "path", "domain"].map(|name| own[0][name].clone());
    assert_eq!(
        flags,
        [
            json!(true),
            json!(true),
            json!("Strict"),
            json!("/"),
            json!(NAME)
        ]
    );
    // Forms and the stream of changes work as over HTTP/1.1.
    person.open(&proxy.url(NAME, "/ui/calls"));
    wait_for("the stream", || {
        person.text("document.getElementById('live').textContent") == "live"
    });

    // The attacker has a cookie of its own, and sets it for the name of the server.
    let eve = form(
        &scene.server,
        "/ui/sign-in",
        "",
        &format!("token={}", token(&scene.home, "eve", "packs:run")),
    )
    .1;
    let value = eve.unwrap().split_once('=').unwrap().1.to_owned();
    let plain = format!("helmdeck-{}", proxy.tls);
    let plant = |tab: &Tab<'_>, more: &str| {
        for name in [COOKIE, &plain] {
            tab.eval(&format!(
                "document.cookie = '{name}={value}; Path=/; {more}'; true"
            ));
        }
    };
    let [over_tls, over_http] = ["; Secure", ""].map(|secure| format!("Domain={NAME}{secure}"));
    for (page, more) in [
        (proxy.url(NEIGHBOUR, "/page"), over_tls.as_str()),
        (format!("http://{NAME}:{}/page", proxy.plain), ""),
        (
            format!("http://{NEIGHBOUR}:{}/page", proxy.plain),
            over_http.as_str(),
        ),
    ] {
        // A browser that has signed in nowhere, and that of the person.
        for (tab, signed_in) in [(browser.tab(), false), (person.beside(), true)] {
            assert_eq!(tab.open(&page), 200, "{page}");
            plant(&tab, more);
            let sent = cookies(&tab, &proxy);
            assert!(
                names(&sent).contains(&plain.as_str()),
                "{page}: the plain cookie is sent: {sent:?}"
            );
            assert_eq!(
                names(&sent).contains(&COOKIE),
                signed_in,
                "{page}: {sent:?}"
            );
            tab.open(&proxy.url(NAME, "/ui/calls"));
            let shown = tab.text("document.body.innerText");
            assert!(!shown.contains("acme/eve"), "{page}: {shown}");
            assert_eq!(
                tab.text("location.pathname"),
                if signed_in {
                    "/ui/calls"
                } else {
                    "/ui/sign-in"
                },
                "{page}"
            );
            assert_eq!(shown.contains("acme/ann"), signed_in, "{page}: {shown}");
        }
    }
    // Without TLS nobody signs in by that name.
    let refused = scene.server.raw(
        format!(
            "POST /ui/sign-in HTTP/1.1\r\nHost: {NAME}\r\nOrigin: http://{NAME}\r\nConnection: close\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\ntoken={}",
            6 + scene.token().len(),
            scene.token()
        )
        .as_bytes(),
    );
    assert!(
        refused.contains("HTTPS") && !refused.to_lowercase().contains("set-cookie"),
        "{refused}"
    );
    // Signing out ends the cookie.
    person.open(&proxy.url(NAME, "/ui"));
    person.leads(|tab| {
        drop(
            tab.eval(
                "[...document.forms].find(form => form.action.endsWith('/sign-out')).submit()",
            ),
        )
    });
    assert_eq!(person.text("location.pathname"), "/ui/sign-in");
    assert!(!names(&cookies(&person, &proxy)).contains(&COOKIE));
}
