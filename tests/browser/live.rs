//! Live updates: what happens appears without a reload, and what a reader does on the page stays.

use serde_json::json;

use super::chromium::{Browser, Tab};
use super::places::State;
use super::scene::Scene;
use crate::support::wait_for;

#[track_caller]
fn becomes(tab: &Tab<'_>, what: &str, expression: &str) {
    wait_for(what, || tab.eval(expression) == json!(true));
}

/// Opens a page and waits until it is live.
#[track_caller]
fn opens(tab: &Tab<'_>, scene: &Scene, path: &str) {
    assert_eq!(tab.open(&scene.server.url(path)), 200, "{path}");
    becomes(
        tab,
        "the stream",
        "document.getElementById('live').textContent === 'live'",
    );
}

#[test]
fn new_calls_appear_and_open_ones_stay_open() {
    let scene = Scene::start(State::Busy);
    let browser = Browser::start();
    let tab = browser.tab();
    opens(&tab, &scene, "/ui/calls?pack=test.echo");
    tab.eval(
        "window.first = document.querySelector('#calls details'); window.row = first.closest('tr').id; first.open = true; \
         first.querySelector('summary').focus(); window.count = document.querySelectorAll('#calls tr').length; true",
    );
    scene.post("/api/v1/packs/test.broken", &json!({}));
    scene.post("/api/v1/packs/test.echo", &json!({ "repo": "live" }));
    becomes(
        &tab,
        "the call",
        "document.querySelectorAll('#calls tr').length === count + 1",
    );
    // It may have been replaced by what is newer of it, which keeps what the reader did.
    let kept = "(row => row.querySelector('details').open && row.contains(document.activeElement))(document.getElementById(row))";
    assert_eq!(tab.eval(kept), json!(true));
    assert_eq!(tab.complaints(), [] as [String; 0]);
}

#[test]
fn hidden_page_pauses_and_catches_up() {
    let scene = Scene::start(State::Empty);
    let browser = Browser::start();
    let tab = browser.tab();
    opens(&tab, &scene, "/ui");
    let hide = |hidden: bool| {
        tab.eval(&format!(
            "Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }}); \
             document.dispatchEvent(new Event('visibilitychange')); document.getElementById('live').textContent"
        ))
    };
    assert_eq!(hide(true), json!("paused"));
    scene.post("/api/v1/packs/test.broken", &json!({}));
    hide(false);
    becomes(
        &tab,
        "the missed call",
        "document.querySelectorAll('#calls tr').length === 1",
    );
    assert_eq!(
        tab.eval("document.getElementById('calls-empty')"),
        json!(null)
    );
}

#[test]
fn job_page_ends_with_its_job() {
    let scene = Scene::start(State::Busy);
    let browser = Browser::start();
    let tab = browser.tab();
    opens(&tab, &scene, &scene.path("/ui/jobs/{running}"));
    std::fs::write(scene.home.packs().join("go"), "").unwrap();
    becomes(
        &tab,
        "the end",
        "document.getElementById('facts').textContent.includes('succeeded')",
    );
    becomes(
        &tab,
        "the result",
        "document.getElementById('result').textContent.includes('Result')",
    );
    becomes(
        &tab,
        "the actions",
        "document.querySelector('#actions button') === null",
    );
    assert_eq!(
        tab.eval("document.getElementById('live').hidden"),
        json!(true)
    );
}
