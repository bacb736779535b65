//! The events of a project on their way to a real server.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use helmdeck_events::nats::Nats;
use helmdeck_forge::events::{CAP, Events, Replay, Replayed};
use helmdeck_forge::subjects::{self, Subject};
use helmdeck_forge::{Project, ProjectEnvironment};

use helmdeck_testkit::{Nats as Server, STUCK, wait_for};

use super::nats::open;

const ROOT: &str = "HELMDECK_TRIAL_ROOT";
const URL: &str = "HELMDECK_TRIAL_URL";

fn link(url: &str) -> Arc<Nats> {
    Arc::new(open(url, subjects::PREFIX))
}

fn project(root: &Path, nats: Arc<Nats>) -> Project {
    std::fs::create_dir_all(root.join(".forge")).unwrap();
    Project::open(root, ProjectEnvironment::default())
        .unwrap()
        .unwrap()
        .sending(nats)
}

fn say(project: &Project) {
    helmdeck_forge::events::emit(
        project,
        Subject::Feature,
        serde_json::json!({"id": "f-1", "status": "passing"}),
    );
}

/// Sends until nothing waits, and returns what the stream holds.
fn settle(project: &Project, nats: &Nats) -> Replayed {
    wait_for("the outbox to be empty", || {
        Events::new(project).drain(CAP).unwrap().waiting == 0
    });
    Replay::default().stored(&nats.replay(1, 10_000, STUCK).unwrap())
}

#[test]
fn events_arrive_in_order_despite_nats_outages() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::stopped();
    let nats = link(&server.url());
    let project = project(folder.path(), nats.clone());
    for count in 0..60 {
        match count {
            5 | 25 | 55 => server.start_again(),
            15 => server.kill9(),
            30 => server.freeze(),
            32 => server.go_on(),
            45 => server.stop(),
            _ => {}
        }
        say(&project);
    }
    let stored = settle(&project, &nats);
    let seqs: Vec<_> = stored.events.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, (1..=60).collect::<Vec<_>>());
    assert_eq!(
        stored,
        Events::new(&project).replay(&Replay::default()).unwrap(),
        "word for word what the journal has"
    );
}

#[test]
fn commands_connect_independently() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start();
    for _ in 0..5 {
        say(&project(folder.path(), link(&server.url())));
    }
    let nats = link(&server.url());
    let project = project(folder.path(), nats.clone());
    assert_eq!(settle(&project, &nats).events.len(), 5);
}

#[test]
fn killed_command_loses_no_written_event() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start();
    let nats = link(&server.url());
    let project = project(folder.path(), nats.clone());
    for round in 1..=4 {
        let mut worker = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "forge::nats_events::says_without_end",
                "--ignored",
            ])
            .env(ROOT, folder.path())
            .env(URL, server.url())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("seven more events", || {
            assert!(worker.try_wait().unwrap().is_none(), "it has ended");
            let events = Events::new(&project)
                .replay(&Replay::default())
                .unwrap()
                .events;
            events.last().is_some_and(|last| last.seq >= 7 * round)
        });
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
    let stored = settle(&project, &nats);
    let journal = Events::new(&project).replay(&Replay::default()).unwrap();
    for event in &journal.events {
        assert!(stored.events.contains(event), "the server has no {event:?}");
    }
    assert!(journal.events.len() >= 28 && journal.gaps.is_empty());
}

#[test]
#[ignore = "what killed_command_loses_no_written_event runs"]
#[allow(
    clippy::disallowed_methods,
    reason = "a test that is run by another is told so what to do"
)]
fn says_without_end() {
    let (Ok(root), Ok(url)) = (std::env::var(ROOT), std::env::var(URL)) else {
        return;
    };
    let project = project(Path::new(&root), link(&url));
    loop {
        say(&project);
    }
}
