//! Whichever transport something goes through, the event server that the project names hears of it.

use std::path::Path;

use helmdeck_events::nats::{Nats, NatsOptions};
use helmdeck_forge::events::Replay;
use helmdeck_forge::subjects::{self, Subject};
use helmdeck_testkit::Nats as Server;
use serde_json::{Value, json};

use super::fixture::Fixture;
use super::nats::{guard, open};
use crate::support::program::{Home, Run, Server as Program};
use crate::support::{KEY, STUCK, wait_for};

/// Waits until the server has `count` learnings, and returns when each applies.
fn learned(server: &Server, count: usize) -> Vec<String> {
    let link = open(&server.url(), subjects::PREFIX);
    let mut contexts = Vec::new();
    wait_for("all learnings", || {
        let stored = Replay::default().stored(&link.replay(1, 1_000, STUCK).unwrap_or_default());
        let learned = stored
            .events
            .iter()
            .filter(|event| event.about() == Some(Subject::Learning));
        contexts = learned
            .map(|event| {
                serde_json::to_value(&event.data).unwrap()["context"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect::<Vec<String>>();
        contexts.len() >= count
    });
    contexts
}

fn learning(context: &str) -> Value {
    json!({"kind": "successful", "context": context, "approach": "Say so"})
}

#[test]
fn events_of_every_transport_are_published() {
    let nats = Server::start();
    let fixture = Fixture::light("[events]\nuse = \"team\"\n");
    let settings = format!("[forge.events]\nteam = {{ url = \"{}\" }}\n", nats.url());
    fixture.configure(&settings);
    let root = fixture.root();
    fixture.forge(&[
        "knowledge",
        "add",
        "--context",
        "By command",
        "--approach",
        "Say so",
    ]);

    let home = Home::new();
    home.configure(&settings);
    let project = root.to_str().unwrap();
    let trusted = home
        .command(KEY, &["forge", "--project", project, "trust", "--yes"])
        .output()
        .unwrap();
    assert!(
        trusted.status.success(),
        "{}",
        String::from_utf8_lossy(&trusted.stderr)
    );
    let pack = |context: &str| {
        let input = learning(context).to_string();
        let mut command =
            home.command(KEY, &["run", "forge.remember", "--json", "--input", &input]);
        let ran = Run::of(command.current_dir(&root).output().unwrap());
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    };
    pack("By pack");
    home.configure(&format!("[forge]\nroot = {root:?}\n{settings}"));
    let program = Program::start(&home, KEY);
    let ask = |context: &str| {
        let answer = program.ask(
            "POST /api/v1/packs/forge.remember",
            &learning(context).to_string(),
        );
        assert_eq!(answer.code, 200, "{}", answer.body);
    };
    ask("Over HTTP");
    // What a busy machine did not send in a quarter of a second waits.
    fixture.forge(&["events", "--server"]);
    assert_eq!(learned(&nats, 3), ["By command", "By pack", "Over HTTP"]);

    // The server goes away and comes back: no call waits for it, and nothing is lost.
    nats.kill9();
    ask("While it is away");
    let status = fixture.forge(&["events"]);
    assert!(status["waiting"].as_u64().unwrap() > 0, "{status}");
    nats.start_again();
    // The program sends what waits by itself.
    wait_for("the event to be sent", || {
        fixture.forge(&["events"])["waiting"] == 0
    });
    assert_eq!(learned(&nats, 4).last().unwrap(), "While it is away");
    ask("When it is back");
    fixture.forge(&["events", "--server"]);
    let all = [
        "By command",
        "By pack",
        "Over HTTP",
        "While it is away",
        "When it is back",
    ];
    assert_eq!(learned(&nats, 5), all);
}

/// Makes a certificate for this machine's loopback address, and an authority that signed it.
fn certificates(fixture: &Fixture, folder: &Path) {
    let run = |arguments: &[&str]| {
        let output = fixture
            .prepare("openssl", folder, arguments)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let ec = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-batch",
    ];
    let authority = [
        "req",
        "-x509",
        "-days",
        "2",
        "-subj",
        "/CN=Test authority",
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
    ];
    run(&[&authority[..], &ec].concat());
    run(&[
        &[
            "req",
            "-subj",
            "/CN=localhost",
            "-keyout",
            "key.pem",
            "-out",
            "request.pem",
        ],
        &ec[..],
    ]
    .concat());
    std::fs::write(
        folder.join("names"),
        "subjectAltName=IP:127.0.0.1,DNS:localhost\n",
    )
    .unwrap();
    let sign = [
        "x509",
        "-req",
        "-in",
        "request.pem",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
    ];
    run(&[
        &sign[..],
        &["-days", "2", "-extfile", "names", "-out", "cert.pem"],
    ]
    .concat());
}

#[test]
fn tls_server_needs_the_named_certificates() {
    let fixture = Fixture::light("[events]\nuse = \"team\"\n");
    let keys = fixture.beside("keys");
    std::fs::create_dir(&keys).unwrap();
    certificates(&fixture, &keys);
    let (cert, key) = (keys.join("cert.pem"), keys.join("key.pem"));
    let nats = Server::configured(&format!(
        "tls {{ cert_file: {cert:?}, key_file: {key:?} }}\n"
    ));
    let url = nats.url().replace("nats://", "tls://");
    let learn = |context: &str, settings: &str| {
        fixture.configure(&format!("[forge.events.team]\nurl = \"{url}\"\n{settings}"));
        fixture.forge(&[
            "knowledge",
            "add",
            "--context",
            context,
            "--approach",
            "Say so",
        ]);
        fixture.forge(&["events"])["waiting"].as_u64().unwrap()
    };
    assert_eq!(learn("Nobody knows the authority", ""), 1);
    // A path may be absolute, or one from the folder of the settings.
    let waiting = learn("It is named", "certificates = \"../../keys/ca.pem\"\n");
    let sent = fixture.forge(&["events", "--server"]);
    assert!(waiting == 0 || sent["waiting"] == 0, "{sent}");
    let options = NatsOptions {
        certificates: Some(keys.join("ca.pem")),
        ..NatsOptions::new(url.as_str(), subjects::all_with(subjects::PREFIX))
    };
    let stored = Nats::open(options, &guard(&url))
        .unwrap()
        .replay(1, 100, STUCK)
        .unwrap();
    assert_eq!(Replay::default().stored(&stored).events.len(), 2);
}
