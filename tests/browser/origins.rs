//! Pages of other origins in a real browser: what they may and may not do with a server of this
//! machine without authentication.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use crate::support::program::{Home, Server};
use crate::support::{KEY, STUCK};

/// Asks for a run in the ways that a page has, and writes how each ended.
const PAGE: &str = r#"<!doctype html><body><script>
const path = "SERVER/api/v1/packs/test.plain", json = {"Content-Type": "application/json"};
const ways = {
  blob: {mode: "no-cors", body: new Blob(['{"repo":"blob"}'])},
  text: {mode: "no-cors", body: '{"repo":"text"}'},
  empty: {mode: "no-cors"},
  json: {headers: json, body: '{"repo":"json"}'},
};
(async () => {
  const said = [];
  for (const [name, way] of Object.entries(ways)) {
    const answer = await fetch(path, {method: "POST", ...way}).then(it => it.status, () => "failed");
    said.push(name + ":" + answer);
  }
  document.body.textContent = "said " + said.join(" ") + " end";
})();
</script>"#;

/// A web server that shows the page at `/page`.
///
/// It forwards everything else to a server, as a proxy that keeps `Host`.
pub(super) struct Site(SocketAddr);

impl Site {
    /// Shows a page that calls `target`, or the site itself if that is empty.
    fn start(target: &str, behind: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self::on(listener, target, behind)
    }

    /// Shows a page at every address, also for a form that is sent to it.
    pub(super) fn showing(page: String) -> Self {
        Self::of(
            TcpListener::bind("127.0.0.1:0").unwrap(),
            page,
            String::new(),
        )
    }

    /// Returns the address of the page, by the name `localhost` or by another one of this machine.
    pub(super) fn url(&self, name: &str) -> String {
        format!("http://{name}:{}/page", self.0.port())
    }

    fn on(listener: TcpListener, target: &str, behind: String) -> Self {
        Self::of(listener, PAGE.replace("SERVER", target), behind)
    }

    fn of(listener: TcpListener, page: String, behind: String) -> Self {
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (page, behind) = (page.clone(), behind.clone());
                std::thread::spawn(move || Self::answer(stream, &page, &behind));
            }
        });
        Self(address)
    }

    fn answer(mut stream: TcpStream, page: &str, behind: &str) -> Option<()> {
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            let mut byte = [0; 1024];
            let read = stream.read(&mut byte).ok().filter(|read| *read > 0)?;
            head.extend_from_slice(&byte[..read]);
        }
        if head.starts_with(b"GET ") {
            let length = page.len();
            let kind = "Content-Type: text/html\r\nConnection: close";
            return write!(
                stream,
                "HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{page}"
            )
            .ok();
        }
        let mut server = TcpStream::connect(behind).ok()?;
        server.write_all(&head).ok()?;
        let (mut from, mut to) = (stream.try_clone().ok()?, server.try_clone().ok()?);
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        std::io::copy(&mut server, &mut stream).ok().map(drop)
    }

    /// Opens the page in a browser and returns what it wrote.
    fn opened(&self) -> String {
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Command::new("timeout");
        browser
            .arg((STUCK.as_secs() * 2).to_string())
            .arg("chromium");
        browser.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ]);
        browser.args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ]);
        browser.args(["--virtual-time-budget=20000", "--dump-dom"]);
        browser.arg(format!("--user-data-dir={}", profile.path().display()));
        browser.arg(format!("http://localhost:{}/page", self.0.port()));
        let output = browser
            .env("HOME", profile.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let (page, errors) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        let said = page
            .rsplit_once("said ")
            .and_then(|(_, rest)| rest.split_once(" end"));
        said.unwrap_or_else(|| {
            panic!("chromium, which tests/run installs, wrote nothing: {page}\n{errors}")
        })
        .0
        .to_owned()
    }
}

fn runs(home: &Home) -> usize {
    std::fs::read_to_string(home.packs().join("runs")).map_or(0, |runs| runs.lines().count())
}

fn address(server: &Server) -> String {
    server.url("").strip_prefix("http://").unwrap().to_owned()
}

#[test]
fn page_of_another_port_runs_nothing() {
    let home = Home::new();
    let server = Server::start(&home, KEY);
    // As localhost and as 127.0.0.1: the same site and another one, of which each is another
    // origin.
    let port = address(&server).rsplit_once(':').unwrap().1.to_owned();
    for target in [server.url(""), format!("http://localhost:{port}")] {
        let said = Site::start(&target, address(&server)).opened();
        // What `no-cors` sends is answered, and the page cannot see how (status 0).
        assert_eq!(said, "blob:0 text:0 empty:0 json:failed", "{target}");
        assert_eq!(runs(&home), 0, "{target}");
    }
}

#[test]
fn page_of_the_same_origin_works() {
    let home = Home::new();
    let server = Server::start(&home, KEY);
    let said = Site::start("", address(&server)).opened();
    assert!(said.ends_with("json:200"), "{said}");
    assert!(
        said.starts_with("blob:415 text:415 "),
        "a page sends JSON as such: {said}"
    );
    assert!(runs(&home) > 0);
}

#[test]
fn page_of_a_listed_origin_works() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://localhost:{}", listener.local_addr().unwrap().port());
    let server = Server::start_with(&home, KEY, &[("HELMDECK_SERVER__ALLOWED_ORIGINS", &origin)]);
    let said = Site::on(listener, &server.url(""), address(&server)).opened();
    assert!(said.ends_with("json:200"), "{said}");
}
