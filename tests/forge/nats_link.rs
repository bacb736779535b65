//! The way to a NATS server, with a real one that is stopped, killed, frozen and started again.

use std::time::Duration;

use helmdeck_events::nats::Nats;
use helmdeck_events::{Message, Receipt, Sink as _, SinkError, Stored};

use helmdeck_testkit::{Nats as Server, STUCK, wait_for};

/// What a command waits for at most.
const CAP: Duration = Duration::from_millis(250);
fn open(server: &Server) -> Nats {
    super::nats::open(&server.url(), "sx9")
}

fn message(count: usize) -> Message {
    Message {
        subject: "sx9.forge.memory.learning".to_owned(),
        id: format!("id-{count}"),
        body: format!("{{\"seq\":{count}}}").into_bytes(),
    }
}

fn ids(stored: &[Stored]) -> Vec<String> {
    stored
        .iter()
        .map(|stored| stored.message.id.clone())
        .collect()
}

/// Tries until the server takes it.
fn insist(nats: &Nats, message: &Message) -> Receipt {
    let mut receipt = None;
    wait_for("the server to take it", || {
        receipt = nats.publish(message, CAP).ok();
        receipt.is_some()
    });
    receipt.unwrap()
}

#[test]
fn repeated_message_is_stored_once() {
    let server = Server::start();
    let nats = open(&server);
    assert_eq!(
        nats.publish(&message(1), STUCK),
        Ok(Receipt {
            sequence: 1,
            duplicate: false
        })
    );
    assert_eq!(
        nats.publish(&message(2), STUCK),
        Ok(Receipt {
            sequence: 2,
            duplicate: false
        })
    );
    assert_eq!(
        open(&server).publish(&message(1), STUCK),
        Ok(Receipt {
            sequence: 1,
            duplicate: true
        })
    );
    let all = nats.replay(1, 100, STUCK).unwrap();
    assert_eq!(
        all.iter()
            .map(|stored| (stored.sequence, &stored.message))
            .collect::<Vec<_>>(),
        [(1, &message(1)), (2, &message(2))]
    );
    assert_eq!(ids(&nats.replay(2, 100, STUCK).unwrap()), ["id-2"]);
    assert_eq!(ids(&nats.replay(1, 1, STUCK).unwrap()), ["id-1"]);
    assert!(nats.replay(3, 100, STUCK).unwrap().is_empty());
}

#[test]
fn acknowledged_messages_survive_kill_and_reconnect() {
    let server = Server::start();
    let nats = open(&server);
    let mut acknowledged = Vec::new();
    for count in 0..30 {
        match count {
            10 => {
                server.kill9();
                server.start_again();
            }
            20 => {
                server.stop();
                server.start_again();
            }
            _ => {}
        }
        insist(&nats, &message(count));
        acknowledged.push(format!("id-{count}"));
    }
    assert_eq!(
        ids(&nats.replay(1, 100, STUCK).unwrap()),
        acknowledged,
        "in order, none twice"
    );
    assert_eq!(
        ids(&open(&server).replay(1, 100, STUCK).unwrap()),
        acknowledged,
        "others see the same"
    );
}

#[test]
fn absent_server_is_reported_then_used() {
    let server = Server::stopped();
    let nats = open(&server);
    assert!(matches!(
        nats.publish(&message(1), STUCK),
        Err(SinkError::Unreachable(_))
    ));
    server.start_again();
    assert!(!insist(&nats, &message(2)).duplicate);
    server.kill9();
    wait_for("its absence to be noticed", || {
        matches!(
            nats.publish(&message(3), CAP),
            Err(SinkError::Unreachable(_))
        )
    });
}

#[test]
fn silent_server_costs_only_the_deadline() {
    let server = Server::start();
    let nats = open(&server);
    insist(&nats, &message(1));
    server.freeze();
    assert_eq!(nats.publish(&message(2), CAP), Err(SinkError::Elapsed(CAP)));
    // One that was never heard of, too.
    assert_eq!(
        open(&server).publish(&message(3), CAP),
        Err(SinkError::Elapsed(CAP))
    );
    server.go_on();
    insist(&nats, &message(2));
    insist(&nats, &message(3));
    let mut seen = ids(&nats.replay(1, 100, STUCK).unwrap());
    seen.sort();
    assert_eq!(
        seen,
        ["id-1", "id-2", "id-3"],
        "what was late is there once"
    );
}

#[test]
fn durable_reader_resumes_after_restart() {
    let server = Server::start();
    let nats = open(&server);
    for count in 1..=5 {
        insist(&nats, &message(count));
    }
    let hear = |nats: &Nats, most, wanted: usize| {
        let mut heard = Vec::new();
        wait_for("the messages", || {
            let taken = nats.follow("reader", most, STUCK, |stored| {
                let wants = heard.len() < wanted;
                if wants {
                    heard.push(stored.message.id.clone());
                }
                wants
            });
            assert!(taken.unwrap() <= wanted);
            heard.len() == wanted
        });
        heard
    };
    assert_eq!(hear(&nats, 2, 2), ["id-1", "id-2"]);
    server.stop();
    server.start_again();
    let nats = open(&server);
    insist(&nats, &message(6));
    // One is taken and the others are handed back, to come again in any order.
    let mut rest = hear(&nats, 100, 1);
    rest.extend(hear(&nats, 100, 3));
    rest.sort();
    assert_eq!(rest, ["id-3", "id-4", "id-5", "id-6"]);
    assert_eq!(nats.follow("reader", 100, STUCK, |_| true), Ok(0));
}

#[test]
fn stream_is_created_and_recreated_as_specified() {
    let server = Server::start();
    let nats = open(&server);
    insist(&nats, &message(1));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(server.url()).await.unwrap();
        let jetstream = async_nats::jetstream::new(client);
        let info = jetstream
            .get_stream("FORGE_MEMORY")
            .await
            .unwrap()
            .get_info()
            .await
            .unwrap();
        let written = serde_json::to_value(&info.config).unwrap();
        for (name, value) in [
            ("subjects", serde_json::json!(["sx9.forge.memory.>"])),
            ("storage", serde_json::json!("file")),
            ("retention", serde_json::json!("limits")),
            ("discard", serde_json::json!("old")),
            (
                "max_age",
                serde_json::json!(30_u64 * 24 * 60 * 60 * 1_000_000_000),
            ),
            ("max_bytes", serde_json::json!(64 * 1024 * 1024)),
            ("duplicate_window", serde_json::json!(120_000_000_000_u64)),
        ] {
            assert_eq!(written[name], value, "{name}");
        }
        jetstream.delete_stream("FORGE_MEMORY").await.unwrap();
    });
    assert_eq!(
        nats.publish(&message(2), STUCK),
        Ok(Receipt {
            sequence: 1,
            duplicate: false
        })
    );
}

#[test]
fn what_the_stream_does_not_take_is_refused() {
    let server = Server::start();
    let nats = open(&server);
    insist(&nats, &message(1));
    let other = Message {
        subject: "other.forge.memory.learning".to_owned(),
        ..message(2)
    };
    assert!(matches!(
        nats.publish(&other, STUCK),
        Err(SinkError::Refused(_))
    ));
}

#[test]
fn stream_accepts_a_second_prefix() {
    let server = Server::start();
    insist(&open(&server), &message(1));
    let acme = super::nats::open(&server.url(), "acme");
    let other = Message {
        subject: "acme.forge.memory.learning".to_owned(),
        ..message(2)
    };
    assert_eq!(insist(&acme, &other).sequence, 2);
    assert_eq!(insist(&open(&server), &message(3)).sequence, 3);
    assert_eq!(ids(&acme.replay(1, 10, STUCK).unwrap()).len(), 3);
}
