//! Texts of others that pages get from jobs while these run, and from a tracker of issues.

use serde_json::json;

use super::attacks::is_harmless;
use super::chromium::{Browser, Tab};
use super::corpus::{self, CORPUS};
use super::project;
use super::scene::Scene;
use crate::support::program::{Home, Server};
use crate::support::{KEY, wait_for};

/// An MCP server that reports progress in two parts.
const STEPS: &str = include_str!("steps.sh");

#[track_caller]
fn shows(tab: &Tab<'_>, text: &str) {
    wait_for(text, || {
        tab.text("document.querySelector('main').textContent")
            .contains(text)
    });
}

/// Opens a page and waits until it is live.
#[track_caller]
fn opens<'a>(browser: &'a Browser, scene: &Scene, path: &str) -> Tab<'a> {
    let tab = browser.tab();
    assert_eq!(tab.open(&scene.server.url(path)), 200, "{path}");
    wait_for("the stream", || {
        tab.text("document.getElementById('live').textContent") == "live"
    });
    tab
}

#[test]
fn hostile_progress_is_shown_as_texts() {
    let home = Home::new();
    let folder = home.packs().join("../steps");
    std::fs::create_dir_all(&folder).unwrap();
    let folder = folder.canonicalize().unwrap();
    std::fs::write(folder.join("steps.sh"), STEPS).unwrap();
    let lines = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| format!("{}\n", json!(text)))
            .collect::<String>()
    };
    let (first, second) = CORPUS.split_at(CORPUS.len() / 2);
    std::fs::write(folder.join("first"), lines(first)).unwrap();
    std::fs::write(folder.join("second"), lines(second)).unwrap();
    home.configure(&format!(
        "[[mcp.servers]]\nname = \"steps\"\ncommand = [\"/bin/sh\", \"steps.sh\"]\ncwd = \"{}\"\n",
        folder.display()
    ));
    let server = Server::start(&home, KEY);
    let scene = Scene::of(home, server);
    let job = scene.post("/api/v1/packs/mcp.steps.walk/jobs", &json!({}))["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("/ui/jobs/{job}");
    let progress = || scene.get(&format!("/api/v1/jobs/{job}"))["progress"]["message"].clone();
    wait_for("the first steps", || progress() == "through first");

    // First as the server writes the pages, then as the stream adds to them.
    let browser = Browser::start();
    let pages = ["/ui", "/ui/jobs", &path].map(|path| (path, opens(&browser, &scene, path)));
    for (path, tab) in &pages {
        shows(tab, "through first");
        is_harmless(tab, path);
    }
    let steps = || {
        pages[2]
            .1
            .eval("document.querySelectorAll('#steps li').length")
            .as_u64()
            .unwrap()
    };
    assert!(steps() > 2, "{}", steps());
    assert!(
        pages[2]
            .1
            .text("document.getElementById('steps').textContent")
            .contains(CORPUS[0])
    );
    let before = steps();
    std::fs::write(folder.join("next"), "").unwrap();
    for (path, tab) in &pages {
        shows(tab, "through second");
        is_harmless(tab, path);
    }
    assert!(steps() > before + 2, "{before} and then {}", steps());
    std::fs::write(folder.join("go"), "").unwrap();
    shows(&pages[2].1, "walked");
    is_harmless(&pages[2].1, &path);
}

#[test]
fn hostile_tracker_is_shown_as_texts() {
    let home = Home::new();
    let root = project::tracked(&home, &corpus::all());
    let server = Server::start_with(
        &home,
        KEY,
        &[("HELMDECK_FORGE__ROOT", root.to_str().unwrap())],
    );
    let scene = Scene::of(home, server);
    let browser = Browser::start();
    let tab = browser.tab();
    for (path, shown) in [
        ("/ui/project", ""),
        ("/ui/project/issues", "hit()"),
        ("/ui/project/issues?scope=all", "hit()"),
        ("/ui/project/issues/SX9-1", "hit()"),
        ("/ui/project/tracker", "Changed on both sides"),
        ("/ui/project/timeline", ""),
        ("/ui/project/events", "SX9-1"),
        ("/ui/project/files", "SX9-1"),
    ] {
        assert_eq!(tab.open(&scene.server.url(path)), 200, "{path}");
        let text = tab.text("document.querySelector('main').textContent");
        assert!(text.contains(shown), "{path} does not show {shown}: {text}");
        is_harmless(&tab, path);
    }
    // Both values of a conflict, and why the tracker was not reached.
    tab.open(&scene.server.url("/ui/project/tracker"));
    let text = tab.text("document.querySelector('main').innerText");
    for said in [
        "Ours <script>",
        "Theirs <script>",
        "The tracker has not been reached",
    ] {
        assert!(text.contains(said), "{said:?} is not in {text}");
    }
}
