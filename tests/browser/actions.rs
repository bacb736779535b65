//! Every action of the pages, by keyboard alone and without scripts: what it changes, and what the
//! page says then.

use serde_json::json;

use super::checks::{go_to, outline};
use super::chromium::{Browser, Tab};
use super::places::State;
use super::scene::Scene;

/// A person at the keyboard.
struct Person<'a> {
    tab: Tab<'a>,
    scene: &'a Scene,
}

impl Person<'_> {
    #[track_caller]
    fn opens(&self, path: &str) {
        assert_eq!(self.tab.open(&self.scene.server.url(path)), 200, "{path}");
    }

    /// Goes to a field and writes in it.
    #[track_caller]
    fn writes(&self, field: &str, text: &str) {
        go_to(&self.tab, field);
        self.tab.type_text(text);
    }

    /// Goes to a button or link and presses Enter; returns the page that this leads to.
    #[track_caller]
    fn chooses(&self, name: &str) -> String {
        go_to(&self.tab, name);
        let status = self.tab.leads(|tab| tab.press("Enter"));
        assert_eq!(status, 200, "{name}");
        outline(&self.tab)
    }

    /// Opens a part that is folded, then chooses what is in it.
    #[track_caller]
    fn unfolds_and_chooses(&self, part: &str, name: &str) -> String {
        go_to(&self.tab, part);
        self.tab.press("Enter");
        self.chooses(name)
    }
}

#[track_caller]
fn says(page: &str, text: &str) {
    assert!(page.contains(text), "{text:?} is not in:\n{page}");
}

#[test]
fn every_action_works_by_keyboard_without_scripts() {
    let scene = Scene::start(State::Busy);
    let browser = Browser::start();
    let person = Person {
        tab: browser.tab(),
        scene: &scene,
    };
    person.tab.scripts(false);

    // The link past the navigation leads to the content.
    person.opens("/ui");
    go_to(&person.tab, "Skip to the content");
    person.tab.press("Enter");
    assert_eq!(person.tab.text("location.hash"), "#main");

    packs(&person);
    memory(&person);
    cache(&person);
    conversation(&person);

    person.opens("/ui/files");
    says(
        &person.chooses("Delete report.html"),
        "status: The artifact was deleted.",
    );
    assert_eq!(scene.get("/api/v1/artifacts")["artifacts"], json!([]));

    person.opens(&scene.path("/ui/jobs/{running}"));
    person.chooses("Cancel");
    scene.reaches("running", "cancelled");
    person.opens("/ui/jobs");
    says(&person.chooses("cancelled"), "test.held");
}

#[test]
fn operator_works_by_keyboard_without_scripts() {
    let scene = Scene::start(State::Busy);
    let browser = Browser::start();
    let person = Person {
        tab: browser.tab(),
        scene: &scene,
    };
    person.tab.scripts(false);
    person.opens("/ui/vault");
    person.chooses("deploy");
    person.writes("Callers", "acme/*");
    says(&person.chooses("Grant"), "acme/*");
    let revoked = person.chooses("Revoke the caller acme/*");
    assert!(!revoked.contains("<Revoke the caller acme/*>"), "{revoked}");
    person.opens("/ui/servers");
    says(&person.chooses("Restart bottles"), "status: ");
    person.opens("/ui/operate");
    says(&person.chooses("Sweep now"), "status: ");
    person.unfolds_and_chooses("Rotate the key", "Rotate");

    person.opens("/ui/project/issues/LOCAL-1");
    person.writes("New comment", "Seen by keyboard");
    says(&person.chooses("Add the comment"), "Seen by keyboard");
    go_to(&person.tab, "Close the issue");
    person.tab.press("Enter");
    person.writes("What was done, and why", "Nothing");
    person.chooses("Close");
    person.opens("/ui/project/knowledge");
    let entry = person
        .tab
        .text("[...document.querySelectorAll('main a')].find(at => at.textContent.startsWith('confirm')).textContent");
    person.chooses(entry.trim());
    person.chooses("It still holds");
}

fn packs(person: &Person<'_>) {
    person.opens("/ui/packs");
    person.writes("Filter", "test.echo");
    says(&person.chooses("Show"), "1 pack\n");
    person.chooses("test.echo");
    person.writes("repo", "by keyboard");
    let ran = person.chooses("Run");
    says(&ran, "\"repo\": \"by keyboard\"");
    says(
        &ran,
        "helmdeck run test.echo --input '{\"repo\":\"by keyboard\"}'",
    );
    person.opens("/ui/packs/test.held");
    says(&person.chooses("Run as a job"), "# Job of [test.held]");
}

fn memory(person: &Person<'_>) {
    person.opens("/ui/memory");
    person.writes("Key", "by.keyboard");
    person.writes("Value", "yes");
    says(&person.chooses("Store"), "status: The fact was stored.");
    says(&outline(&person.tab), "by.keyboard | yes");
    says(
        &person.chooses("Forget by.keyboard"),
        "status: Receipt: 1 fact deleted.",
    );
    person.writes("Key begins with", "answer.");
    let found = person.chooses("Show");
    says(&found, "answer.language");
    assert!(!found.contains("Ann"), "{found}");
    person.opens("/ui/memory?edit=name");
    person.writes("Tags", "short");
    says(&person.chooses("Store"), "name short | Ann");
    person.unfolds_and_chooses("All facts about you", "Delete all facts");
    assert_eq!(
        person.scene.post("/api/v1/memory/recall", &json!({}))["facts"],
        json!([])
    );
}

fn cache(person: &Person<'_>) {
    person.opens("/ui/cache?pack=test.echo");
    let key = person.text_of_first_key();
    says(
        &person.chooses(&format!("Purge {key}")),
        "status: Purged 1 answer.",
    );
    person.opens("/ui/cache?pack=test.echo");
    says(&person.chooses("Look"), "would be deleted");
    says(&person.chooses("Purge them"), "status: Purged");
    person
        .scene
        .post("/api/v1/packs/test.echo", &json!({ "repo": "z" }));
    crate::support::wait_for("the cache", || {
        !person.scene.get("/api/v1/memory/entries")["entries"]
            .as_array()
            .unwrap()
            .is_empty()
    });
    person.opens("/ui/cache");
    says(
        &person.chooses("All answers of local/local"),
        "would be deleted",
    );
    person.chooses("Purge them");
    assert_eq!(
        person.scene.get("/api/v1/memory/entries")["entries"],
        json!([])
    );
}

impl Person<'_> {
    fn text_of_first_key(&self) -> String {
        self.tab
            .text("document.querySelector('td code').textContent")
    }
}

fn conversation(person: &Person<'_>) {
    let path = person.scene.path("/ui/conversations/{conversation}");
    person.opens(&path);
    let first = person
        .tab
        .text("document.querySelector('.turns button').getAttribute('aria-label')");
    says(&person.chooses(&first), "status: The turn was deleted.");
    says(
        &person.unfolds_and_chooses("Empty it", "Delete all turns"),
        "status: The conversation was emptied.",
    );
    let left = person.unfolds_and_chooses("Forget it", "Forget the conversation");
    says(&left, "status: The conversation was deleted.");
    says(&left, "0 conversations");
}

#[test]
fn person_signs_in_and_out_by_keyboard() {
    let scene = Scene::with_tokens();
    let browser = Browser::start();
    let person = Person {
        tab: browser.tab(),
        scene: &scene,
    };
    person.tab.scripts(false);
    person.opens("/ui/memory");
    assert_eq!(person.tab.text("location.pathname"), "/ui/sign-in");
    person.writes("Token", "hd_of_nobody");
    go_to(&person.tab, "Sign in");
    assert_eq!(person.tab.leads(|tab| tab.press("Enter")), 401);
    says(&outline(&person.tab), "alert: ");
    person.writes("Token", scene.token());
    person.chooses("Sign in");
    says(&person.tab.text("document.body.innerText"), "acme/ann");
    // Another tab of the same browser is signed in as well, another browser is not.
    let beside = person.tab.beside();
    beside.open(&scene.server.url("/ui/calls"));
    assert_eq!(beside.text("location.pathname"), "/ui/calls");
    let other = browser.tab();
    other.open(&scene.server.url("/ui/calls"));
    assert_eq!(other.text("location.pathname"), "/ui/sign-in");
    person.opens("/ui/tokens");
    person.writes("Name", "by keyboard");
    says(&person.chooses("Make the token"), "# Your new token");
    person.opens("/ui/tokens");
    says(&outline(&person.tab), "by keyboard");
    let first = "document.querySelector('td button[aria-label^=Revoke]')";
    let name = person
        .tab
        .text(&format!("{first}.getAttribute('aria-label')"));
    person.chooses(&name);
    says(&person.chooses("Sign out"), "# Sign in");
    person.opens("/ui");
    assert_eq!(person.tab.text("location.pathname"), "/ui/sign-in");
}
