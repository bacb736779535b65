//! Notes of one run for the next: those of its caller on the repository, and nothing else.
//!
//! The spelling of the repository does not matter.

use std::time::SystemTime;

use helmdeck_testkit::Issuer;
use serde_json::{Value, json};

use super::{Fixture, result, submit};
use crate::support::model::{Asked, Reply, SUBMIT, bash};
use crate::support::program::{SERVE, Server};

const SECRET: &str = "a shared secret of 32 bytes or so";
const TASK: &str =
    "  Mend \"%f\";\ttake 1 to 6 digits — <b>nothing</b> else\r\nand keep this line \u{1f41b}\n";

fn token(tenant: &str, user: &str) -> String {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let claims = json!({"sub": user, "tenant": tenant, "scope": "packs:run memory:read", "iat": now, "exp": now + 3600});
    Issuer::shared(SECRET.as_bytes()).token(&claims)
}

/// Submits without any change, with a word that the note is found by.
fn gives_up(word: &str) -> Reply {
    bash(format!(
        "{SUBMIT}; echo '{word}: the digits are counted in a table of patterns'"
    ))
}

/// Fixes the bug and submits, with a word to find the note by.
fn mends(fixture: &Fixture, word: &str) -> [Reply; 2] {
    [
        bash(fixture.task.mend()),
        bash(format!(
            "{SUBMIT}; echo '{word}: the table of patterns takes 1 to 6 digits now'"
        )),
    ]
}

/// Returns the message that holds the task.
fn task_of(asked: &Asked) -> String {
    let messages = asked.body["messages"].as_array().unwrap();
    let of_user = messages
        .iter()
        .find(|message| message["role"] == "user")
        .unwrap();
    of_user["content"].as_str().unwrap().to_owned()
}

/// Runs to the end and returns the output and the first request of the run.
#[track_caller]
fn run(fixture: &Fixture, server: &Server, url: &str, token: Option<&str>) -> (Value, Asked) {
    let before = fixture.model.asked().len();
    let input = fixture.input(json!({"repo_url": url, "task": TASK}));
    let (code, outcome) = result(server, &submit(server, &input, token), token);
    assert_eq!(code, 200, "{outcome}");
    (
        outcome["output"].clone(),
        fixture.model.asked()[before].clone(),
    )
}

#[test]
fn next_run_gets_notes_of_the_last() {
    let fixture = Fixture::new("parse", []);
    let server = fixture.server_with(&[("HELMDECK_JWT_SECRET", SECRET)]);
    let [alice, bob, other_alice] = [
        token("acme", "alice"),
        token("acme", "bob"),
        token("globex", "alice"),
    ];
    let plain = fixture.git.url("acme/parse.git");
    let spelled = [
        plain.clone(),
        fixture.git.url("acme/parse"),
        plain.replace("http://", "HTTP://"),
        fixture.git.url("acme/p%61rse.git/"),
    ];

    fixture.model.then([gives_up("heron-one")]);
    let (output, asked) = run(&fixture, &server, &spelled[0], Some(&alice));
    assert_eq!(output["success"], false, "nothing was changed: {output}");
    assert_eq!(task_of(&asked), TASK, "the first run has no note");

    fixture.model.then(mends(&fixture, "heron-two"));
    let (output, asked) = run(&fixture, &server, &spelled[1], Some(&alice));
    assert_eq!(output["success"], true, "{output}");
    let told = task_of(&asked);
    assert!(
        told.contains("heron-one") && told.ends_with(TASK),
        "the note of a failed run comes first: {told}"
    );

    for url in &spelled[2..] {
        fixture.model.then([gives_up("heron-more")]);
        let (_, asked) = run(&fixture, &server, url, Some(&alice));
        let told = task_of(&asked);
        assert!(
            told.contains("heron-one") && told.contains("heron-two") && told.ends_with(TASK),
            "{url}: {told}"
        );
    }
    for (who, token) in [("bob", &bob), ("alice of another tenant", &other_alice)] {
        fixture.model.then([gives_up("heron-other")]);
        let (_, asked) = run(&fixture, &server, &plain, Some(token));
        assert_eq!(task_of(&asked), TASK, "{who} is told nothing");
        assert!(
            !asked.prompt().contains("heron"),
            "{who}: {}",
            asked.prompt()
        );
    }
    // Another repository of the same host is another one.
    fixture.git.add("acme/parse2.git", &fixture.task.origin());
    fixture.model.then([gives_up("heron-else")]);
    assert_eq!(
        task_of(
            &run(
                &fixture,
                &server,
                &fixture.git.url("acme/parse2.git"),
                Some(&alice)
            )
            .1
        ),
        TASK
    );
}

#[test]
fn without_key_the_task_is_unchanged() {
    let fixture = Fixture::new("parse", []);
    let mut command = fixture.home.command(crate::support::KEY, SERVE);
    let server = Server::launch({
        command
            .env_remove("HELMDECK_MEMORY_KEY")
            .env("HELMDECK_VAULT_KEY", crate::vault::VAULT_KEY);
        command
    });
    for word in ["heron-one", "heron-two"] {
        fixture.model.then([gives_up(word)]);
        let (_, asked) = run(&fixture, &server, &fixture.git.url("acme/parse.git"), None);
        assert_eq!(task_of(&asked).as_bytes(), TASK.as_bytes());
        assert!(!asked.prompt().contains("heron"), "{}", asked.prompt());
    }
    assert!(!fixture.home.store().exists(), "no store is made");
}
