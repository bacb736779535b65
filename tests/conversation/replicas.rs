//! Two servers on one PostgreSQL, and one conversation that both add to.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use helmdeck_testkit::{ChatServer, Postgres};
use serde_json::{Value, json};

use super::marks;
use crate::support::program::{Home, Server};
use crate::support::{KEY, wait_for};

/// How many turns each server is given, by how many callers at once.
const TURNS: usize = 300;
const CALLERS: usize = 4;

/// Maximum number of adds that get "try again", of both servers together: one in twenty.
const REFUSALS: usize = 2 * TURNS / 20;

/// Adds all turns through both servers at once: `mk_<caller>_<number>`.
///
/// The callers of a server are those with its letter. Returns the ids, and how many adds had to be
/// repeated.
fn add_all(servers: &[Server; 2], session: &str) -> (HashSet<String>, usize) {
    let mut ids = HashSet::new();
    let refused = &AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let mut callers = Vec::new();
        for (server, letter) in servers.iter().zip(["a", "b"]) {
            for caller in 0..CALLERS {
                callers.push(scope.spawn(move || {
                    let mut ids = Vec::new();
                    for number in 0..TURNS / CALLERS {
                        let text = format!("mk_{letter}{caller}_{number:04}");
                        let turn = json!({ "user_message": text, "assistant_response": "yes", "once": text });
                        let path = format!("POST /api/v1/conversations/{session}/turns");
                        // Others write at the same time: an add that loses every race is refused
                        // and repeated. That is rare.
                        let added = loop {
                            let answer = server.ask(&path, &turn.to_string());
                            if answer.code != 503 {
                                assert_eq!(answer.code, 201, "{}", answer.body);
                                break answer.json();
                            }
                            let refused = refused.fetch_add(1, Ordering::SeqCst) + 1;
                            assert!(refused <= REFUSALS, "{refused} adds were refused: {}", answer.body);
                        };
                        ids.push(added["id"].as_str().unwrap().to_owned());
                    }
                    ids
                }));
            }
        }
        for caller in callers {
            ids.extend(caller.join().unwrap());
        }
    });
    (ids, refused.load(Ordering::SeqCst))
}

fn context(server: &Server, session: &str) -> Value {
    let answer = server.ask(&format!("GET /api/v1/conversations/{session}/context"), "");
    assert_eq!(answer.code, 200, "{}", answer.body);
    answer.json()
}

/// Returns what a model sees: the marks of the summary, then those of the turns.
fn sight(context: &Value) -> Vec<String> {
    let mut all = marks(context["summary"].as_str().unwrap_or_default());
    for turn in context["recent_turns"].as_array().unwrap() {
        all.extend(marks(turn["user_message"].as_str().unwrap()));
    }
    all
}

/// Returns the ids of all turns that are kept, oldest first.
fn kept(server: &Server, session: &str) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = server
            .ask(
                &format!("GET /api/v1/conversations/{session}/turns?limit=200{after}"),
                "",
            )
            .json();
        let items = page["items"].as_array().unwrap();
        all.extend(
            items
                .iter()
                .map(|item| item["key"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_str() else {
            break;
        };
        after = format!("&after={next}");
    }
    all.reverse();
    all
}

/// Checks that all turns are there once, and those of each caller in their order.
fn check(seen: &[String]) {
    assert_eq!(
        seen.iter().collect::<HashSet<_>>().len(),
        seen.len(),
        "a turn is there twice"
    );
    assert_eq!(seen.len(), 2 * TURNS);
    for letter in ["a", "b"] {
        for caller in 0..CALLERS {
            let prefix = format!("mk_{letter}{caller}_");
            let own: Vec<_> = seen
                .iter()
                .filter(|mark| mark.starts_with(&prefix))
                .cloned()
                .collect();
            let expected: Vec<_> = (0..TURNS / CALLERS)
                .map(|number| format!("{prefix}{number:04}"))
                .collect();
            assert_eq!(own, expected);
        }
    }
}

fn two(home: &Home, settings: &str) -> (std::sync::Arc<Postgres>, [Server; 2]) {
    let server = Postgres::shared();
    home.configure(&format!(
        "[memory]\nurl = \"{}\"\n[conversation]\nbudget_tokens = 0\n{settings}",
        server.database()
    ));
    let servers = [(); 2].map(|()| Server::start(home, KEY));
    (server, servers)
}

#[test]
fn two_servers_keep_each_turn_once_in_order() {
    let home = Home::new();
    let (_postgres, servers) = two(&home, "");
    let (ids, refused) = add_all(&servers, "s");
    println!("{refused} of {} adds were told to come again", 2 * TURNS);
    assert_eq!(ids.len(), 2 * TURNS, "no id was given twice");
    // What another server added is seen a moment later.
    wait_for("both to see all", || {
        servers
            .iter()
            .all(|server| sight(&context(server, "s")).len() == 2 * TURNS)
    });
    let [here, there] = servers.each_ref().map(|server| context(server, "s"));
    assert_eq!(here, there, "both see the same, in the same order");
    check(&sight(&here));
    let all = kept(&servers[0], "s");
    assert_eq!(all, kept(&servers[1], "s"));
    let shown = here["recent_turns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|turn| turn["id"].as_str().unwrap().to_owned());
    assert_eq!(all, shown.collect::<Vec<_>>());
    assert_eq!(all.into_iter().collect::<HashSet<_>>(), ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_summaries_of_two_servers_lose_nothing() {
    let model = ChatServer::start(|_, request| super::answer(request)).await;
    let home = Home::new();
    let settings = format!(
        "strategy = \"rolling_summary\"\n[conversation.summarizer]\nendpoint = \"{}\"\nmodel = \"m\"\n\
         summary_tokens = 100000\nbatch_turns = 60\nbatch_tokens = 100000\nretry_wait = \"10ms\"\n",
        model.url()
    );
    let (_postgres, servers) = two(&home, &settings);
    let (_, refused) = add_all(&servers, "s");
    println!("{refused} of {} adds were told to come again", 2 * TURNS);
    let trace = |server: &Server| server.ask("GET /api/v1/conversations/s/trace", "").json();
    wait_for("all to be folded", || {
        trace(&servers[0])["covers_through"] == 2 * TURNS - 4
    });
    wait_for("both to see it", || {
        context(&servers[0], "s") == context(&servers[1], "s")
    });
    let seen = context(&servers[0], "s");
    check(&sight(&seen));
    assert_eq!(
        marks(seen["summary"].as_str().unwrap()).len(),
        2 * TURNS - 4
    );
    for server in &servers {
        assert_eq!(trace(server)["health"], "healthy");
    }
}
