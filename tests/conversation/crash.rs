//! A server that is killed while conversations are written to and folded, again and again.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use helmdeck_testkit::{ChatReply, ChatServer};
use serde_json::{Value, json};

use super::marks;
use crate::support::program::{Home, Server};
use crate::support::{KEY, integrity, wait_for};

/// How often the server is killed.
const KILLS: usize = 40;
/// Number of callers that add at once.
///
/// Each shares a conversation with the next one: there are half as many conversations.
const CALLERS: usize = 4;

fn session(caller: usize) -> String {
    format!("s{}", caller / 2)
}

fn get(server: &Server, caller: usize, what: &str) -> Value {
    let answer = server.ask(
        &format!("GET /api/v1/conversations/{}/{what}", session(caller)),
        "",
    );
    assert_eq!(answer.code, 200, "{}", answer.body);
    answer.json()
}

/// Returns what a model sees of a conversation.
fn sight(server: &Server, caller: usize) -> Vec<String> {
    let context = get(server, caller, "context");
    let mut all = marks(context["summary"].as_str().unwrap_or_default());
    for turn in context["recent_turns"].as_array().unwrap() {
        all.extend(marks(turn["user_message"].as_str().unwrap()));
    }
    all
}

/// Checks that the health is one that its failures explain.
fn health(server: &Server, caller: usize) -> String {
    let trace = get(server, caller, "trace");
    let (health, failures) = (
        trace["health"].as_str().unwrap().to_owned(),
        trace["failures"].as_u64().unwrap(),
    );
    match health.as_str() {
        "healthy" => assert_eq!(failures, 0, "{trace}"),
        "retry" => assert!((1..3).contains(&failures), "{trace}"),
        "degraded" | "recovering" => {}
        other => panic!("{other} is no health"),
    }
    assert!(
        failures == 0 || trace["last_failure"] == "unavailable",
        "{trace}"
    );
    health
}

/// Adds turns `mk_<caller>_<number>` from `number` on until the server is gone; returns the number
/// of the first that was not acknowledged.
fn add(server: &Server, caller: usize, mut number: usize, acknowledged: &AtomicUsize) -> usize {
    loop {
        let text = format!("mk_{caller}_{number:05}");
        let turn =
            json!({ "user_message": text, "assistant_response": "yes", "once": text }).to_string();
        match server.try_ask(
            &format!("POST /api/v1/conversations/{}/turns", session(caller)),
            &turn,
        ) {
            Some(answer) if answer.code == 201 || answer.code == 200 => {}
            Some(answer) => panic!("{}: {}", answer.code, answer.body),
            None => return number,
        }
        acknowledged.fetch_add(1, Ordering::SeqCst);
        number += 1;
    }
}

/// Checks that every acknowledged turn is stored once, in order.
///
/// The turn after them may be stored too.
fn check(seen: &[String], caller: usize, next: usize) {
    let prefix = format!("mk_{caller}_");
    let own: Vec<_> = seen
        .iter()
        .filter(|mark| mark.starts_with(&prefix))
        .cloned()
        .collect();
    let expected: Vec<_> = (0..own.len())
        .map(|number| format!("{prefix}{number:05}"))
        .collect();
    assert_eq!(own, expected, "caller {caller}");
    assert!(
        own.len() == next || own.len() == next + 1,
        "{next} were acknowledged, {} are there",
        own.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_under_load_lose_no_acknowledged_turn() {
    let broken = Arc::new(AtomicBool::new(false));
    let always = Arc::clone(&broken);
    // Every second request fails, whatever its caller.
    let model = ChatServer::start(move |index, request| {
        if always.load(Ordering::SeqCst) || index % 2 == 1 {
            ChatReply::error(503, "overloaded")
        } else {
            super::answer(request)
        }
    })
    .await;
    let home = Home::new();
    home.configure(&format!(
        "[conversation]\nstrategy = \"rolling_summary\"\nbudget_tokens = 0\n[conversation.summarizer]\nendpoint = \"{}\"\n\
         model = \"m\"\nsummary_tokens = 1000000\nbatch_turns = 8\nretry_wait = \"5ms\"\nmax_retry_wait = \"50ms\"\n",
        model.url()
    ));
    let begun = Instant::now();
    let mut next = [0usize; CALLERS];
    let mut healths = HashSet::new();
    for round in 0..KILLS {
        let mut server = Server::start(&home, KEY);
        for (caller, next) in next.iter().enumerate() {
            if caller % 2 == 0 {
                healths.insert(health(&server, caller));
            }
            check(&sight(&server, caller), caller, *next);
        }
        let acknowledged = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let callers: Vec<_> = next
                .iter()
                .enumerate()
                .map(|(caller, number)| {
                    let (server, acknowledged, number) = (&server, &acknowledged, *number);
                    scope.spawn(move || add(server, caller, number, acknowledged))
                })
                .collect();
            let until = 1 + (round * 37) % 23;
            wait_for("turns to be acknowledged", || {
                acknowledged.load(Ordering::SeqCst) >= until
            });
            std::thread::sleep(Duration::from_micros((round * 1319 % 5000) as u64));
            server.signal("-KILL");
            for (caller, number) in callers.into_iter().zip(&mut next) {
                *number = caller.join().unwrap();
            }
        });
        assert_eq!(server.ended(), None, "it was killed");
    }
    assert_eq!(integrity(&home.store()), "ok");

    // In an outage: degraded when it is killed, degraded when it starts again.
    broken.store(true, Ordering::SeqCst);
    let mut server = Server::start(&home, KEY);
    for (caller, number) in next
        .iter()
        .enumerate()
        .filter(|(caller, _)| caller % 2 == 0)
    {
        for more in 0..8 {
            let turn = json!({ "user_message": format!("and {number} and {more}") }).to_string();
            let path = format!("POST /api/v1/conversations/{}/turns", session(caller));
            assert_eq!(server.ask(&path, &turn).code, 201);
        }
        wait_for("an outage to be told", || {
            health(&server, caller) == "degraded"
        });
    }
    server.signal("-KILL");
    server.ended();
    let server = Server::start(&home, KEY);
    for caller in (0..CALLERS).step_by(2) {
        let survived = health(&server, caller);
        assert!(
            survived == "degraded" || survived == "recovering",
            "{survived}"
        );
        healths.insert(survived);
    }
    broken.store(false, Ordering::SeqCst);

    let kept: usize = next.iter().sum();
    for (caller, next) in next.iter().enumerate() {
        wait_for("health to come back", || {
            health(&server, caller) == "healthy"
        });
        wait_for("all to be folded", || {
            get(&server, caller, "trace")["backlog_turns"] == 0
        });
        check(&sight(&server, caller), caller, *next);
    }
    assert_eq!(integrity(&home.store()), "ok");
    println!(
        "{KILLS} kills, {kept} acknowledged turns, all there once; {} requests for summaries; at starts {healths:?}; {:?}",
        model.requests().len(),
        begun.elapsed()
    );
    assert!(
        healths.len() > 1,
        "it was killed in more states than one: {healths:?}"
    );
}
