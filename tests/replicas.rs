//! Several servers on one store: what one deletes is gone for all, and identical misses are one run
//! where the pack asks for it.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use helmdeck_testkit::Postgres;
use serde_json::json;

use crate::support::program::{Home, SERVE, Server};
use crate::support::{KEY, RARELY_POLLED, wait_for};

/// Two servers on one store.
struct Replicas {
    home: Home,
    servers: [Server; 2],
}

impl Replicas {
    /// Starts them on the store at a URL, or on one file. Runs are counted by what the handler
    /// writes down, so they share their packs.
    fn start(url: Option<&str>) -> Self {
        let home = Home::new();
        home.install(
            "test.cluster",
            "#!/bin/sh\ninput=$(cat)\necho run >>cluster-runs\nsleep 0.5\nprintf '{\"runs\":%d}' \"$(wc -l <cluster-runs)\"\n",
            "single_flight = \"cluster\"",
        );
        home.install(
            "test.alone",
            "#!/bin/sh\ninput=$(cat)\necho run >>alone-runs\nsleep 0.5\nprintf '{\"runs\":%d}' \"$(wc -l <alone-runs)\"\n",
            "",
        );
        let environment = url
            .map(|url| vec![("HELMDECK_MEMORY_URL", url), RARELY_POLLED])
            .unwrap_or_default();
        let servers = [(); 2].map(|()| Server::start_with(&home, KEY, &environment));
        Self { home, servers }
    }

    fn runs(&self, of: &str) -> usize {
        std::fs::read_to_string(self.home.packs().join(format!("{of}-runs")))
            .unwrap_or_default()
            .lines()
            .count()
    }

    /// Sends a pack's call fifty times to each server at once, and returns the cache statuses.
    fn fifty_and_fifty(&self, pack: &str, repo: &str) -> Vec<String> {
        let answers = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for n in 0..100 {
                let (server, answers) = (&self.servers[n % 2], &answers);
                scope.spawn(move || {
                    let (status, output) = server.call(pack, &json!({ "repo": repo }));
                    answers.lock().unwrap().push((status, output));
                });
            }
        });
        let answers = answers.into_inner().unwrap();
        assert_eq!(answers.len(), 100);
        answers.into_iter().map(|(status, _)| status).collect()
    }
}

/// One purge on A for each selector, seen on B.
fn purges_reach_the_other(replicas: &Replicas) {
    let [here, there] = &replicas.servers;
    for round in 0..8 {
        // Another key each time: what the other server wrote while the last purge went on is taken
        // back late, and with it whatever has its key by then.
        let input = json!({ "repo": format!("A/b{round}") });
        let selector = match round % 4 {
            0 => json!({ "tag": format!("repo:a/b{round}") }),
            1 => json!({ "pack": "test.echo" }),
            2 => json!({ "namespace": { "tenant": "local", "subject": "local" } }),
            _ => json!({ "all": true }),
        };
        wait_for("the other to have it too", || {
            here.call("test.echo", &input);
            there.look("test.echo", &input) == "hit"
        });
        let purged = here.ask("POST /api/v1/memory/purge", &selector.to_string());
        assert_eq!(purged.code, 200, "{}", purged.body);
        assert_eq!(purged.json()["pending"], false, "{}", purged.body);
        assert_eq!(here.look("test.echo", &input), "cache_miss");
        wait_for("the purge to be seen", || {
            there.look("test.echo", &input) == "cache_miss"
        });
        assert_eq!(there.call("test.echo", &input).0, "miss");
        // What was asked anew after the purge is believed again.
        assert_eq!(there.look("test.echo", &input), "hit");
        here.ask("POST /api/v1/memory/purge", "{\"all\": true}");
        wait_for("the other to be empty", || {
            there.look("test.echo", &input) == "cache_miss"
        });
    }
}

fn identical_misses(replicas: &Replicas) {
    for round in 1..=2 {
        let statuses = replicas.fifty_and_fifty("test.cluster", &format!("r{round}"));
        let misses = statuses.iter().filter(|status| *status == "miss").count();
        assert_eq!(
            (replicas.runs("cluster"), misses),
            (round, 1),
            "{statuses:?}"
        );
        replicas.fifty_and_fifty("test.alone", &format!("r{round}"));
        let alone = replicas.runs("alone");
        assert!(
            (round..=2 * round).contains(&alone),
            "{alone} runs in {round} rounds"
        );
    }
}

#[test]
fn sqlite_purge_reaches_the_other_server() {
    purges_reach_the_other(&Replicas::start(None));
}

#[test]
fn sqlite_cluster_misses_run_once() {
    identical_misses(&Replicas::start(None));
}

#[test]
fn shell_purge_reaches_a_running_server() {
    let replicas = Replicas::start(None);
    let (home, server) = (&replicas.home, &replicas.servers[0]);
    let input = json!({ "repo": "a/b" });
    let verbs: [&[&str]; 2] = [
        &["memory", "purge", "--yes", "--tag", "repo:a/b"],
        &["memory", "purge", "--yes", "--all"],
    ];
    for verb in verbs {
        server.call("test.echo", &input);
        wait_for("the answer to be in the file", || {
            replicas.servers[1].look("test.echo", &input) == "hit"
        });
        assert_eq!(server.look("test.echo", &input), "hit");
        let run = home.run(KEY, verb);
        assert_eq!(run.code, 0, "{}", run.stderr);
        wait_for("the server to forget", || {
            server.look("test.echo", &input) == "cache_miss"
        });
    }
}

#[test]
fn killed_leader_delays_waiters_for_the_cluster_wait() {
    let home = Home::new();
    home.install(
        "test.hang",
        "#!/bin/sh\ncat >/dev/null\necho run >>hang-runs\nif [ \"$(wc -l <hang-runs)\" = 1 ]; then sleep 600; fi\nprintf '{\"ok\":true}'\n",
        "single_flight = \"cluster\"",
    );
    let wait = [("HELMDECK_CACHE__CLUSTER_WAIT", "1s")];
    let servers = [(); 2].map(|()| Server::start_with(&home, KEY, &wait));
    let [first, second] = &servers;
    std::thread::scope(|scope| {
        // The connection breaks when the server is killed.
        scope.spawn(|| {
            assert!(
                first
                    .try_ask("POST /api/v1/packs/test.hang", "{}")
                    .is_none()
            )
        });
        wait_for("the run to begin", || {
            home.packs().join("hang-runs").exists()
        });
        first.signal("-KILL");
        assert_eq!(second.call("test.hang", &json!({})).0, "miss");
    });
}

#[test]
fn server_without_a_key_says_that_its_database_is_not_used() {
    let (home, database) = (Home::new(), Postgres::shared());
    let start = |has_key: bool| {
        let mut command = home.command(KEY, SERVE);
        command.env("HELMDECK_MEMORY_URL", database.url());
        if !has_key {
            command.env_remove("HELMDECK_MEMORY_KEY");
        }
        Server::launch(command)
    };
    let server = start(false);
    wait_for("the warning", || {
        server.says("memory is off: memory.url names PostgreSQL")
    });
    let ready = server.ask("GET /readyz", "").json();
    assert!(
        ready["status"] == "ready" && ready["checks"].get("store").is_none(),
        "{ready}"
    );
    assert!(!start(true).says("memory is off"));
}

#[test]
fn postgres_purge_reaches_the_other_server() {
    let postgres = Postgres::shared();
    purges_reach_the_other(&Replicas::start(Some(&postgres.database())));
}

#[test]
fn postgres_cluster_misses_run_once() {
    let postgres = Postgres::shared();
    identical_misses(&Replicas::start(Some(&postgres.database())));
}

#[test]
fn postgres_writes_are_read_on_the_other_server() {
    let postgres = Postgres::shared();
    let replicas = Replicas::start(Some(&postgres.database()));
    for round in 0..20 {
        let [here, there] = if round % 2 == 0 { [0, 1] } else { [1, 0] }
            .map(|index: usize| &replicas.servers[index]);
        let text = format!("question {round}");
        let turn = json!({ "user_message": text, "assistant_response": "answer" });
        assert_eq!(
            here.ask("POST /api/v1/conversations/s/turns", &turn.to_string())
                .code,
            201
        );
        let context = there.ask("GET /api/v1/conversations/s/context", "");
        assert!(
            context.body.contains(&format!("\"{text}\"")),
            "{}",
            context.body
        );
        let fact = json!({ "key": "fact", "value": text });
        assert_eq!(
            here.ask("POST /api/v1/packs/memory.store", &fact.to_string())
                .code,
            200
        );
        let recalled = there.ask(
            "POST /api/v1/packs/memory.recall",
            &json!({ "key": "fact" }).to_string(),
        );
        assert!(recalled.body.contains(&text), "{}", recalled.body);
        assert_eq!(
            here.ask(
                "POST /api/v1/packs/memory.forget",
                &json!({ "key": "fact" }).to_string()
            )
            .code,
            200
        );
        let gone = there.ask(
            "POST /api/v1/packs/memory.recall",
            &json!({ "key": "fact" }).to_string(),
        );
        assert!(!gone.body.contains(&text), "{}", gone.body);
    }
}

/// What sixteen callers were answered.
#[derive(Default)]
struct Load {
    answers: AtomicUsize,
    hits: AtomicUsize,
    /// Facts that a server said it has stored.
    stored: Mutex<Vec<String>>,
    over: AtomicBool,
}

impl Load {
    /// Stores facts until it is over, and keeps count of those that were acknowledged.
    fn store(&self, server: &Server) {
        for n in 0.. {
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            let key = format!("fact-{n}");
            let fact = json!({ "key": key, "value": format!("value of {key}") });
            if server
                .ask("POST /api/v1/packs/memory.store", &fact.to_string())
                .code
                == 200
            {
                self.stored.lock().unwrap().push(key);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Calls until it is over. Every answer must be right, whatever the store does.
    fn call(&self, servers: &[Server; 2], caller: usize) {
        for n in 0.. {
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            // Mostly repeated requests, and now and then a new one that reaches the store.
            let repo = if n % 8 == 0 {
                format!("{caller}/{n}")
            } else {
                format!("{}", (caller + n) % 40)
            };
            let input = json!({ "repo": repo });
            let (status, output) = servers[(caller + n) % 2].call("test.echo", &input);
            assert_eq!(output["input"], input, "{status}");
            self.hits
                .fetch_add(usize::from(status == "hit"), Ordering::SeqCst);
            self.answers.fetch_add(1, Ordering::SeqCst);
            // A load, and not a flood that leaves the store no time on a small machine.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for this many more answers.
    fn more(&self, what: &str, answers: usize) {
        let enough = self.answers.load(Ordering::SeqCst) + answers;
        wait_for(what, || self.answers.load(Ordering::SeqCst) >= enough);
    }
}

/// Ends the load, also when the test fails.
struct Ending<'a>(&'a Load);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
    }
}

fn metric(server: &Server, line: &str) -> bool {
    server
        .ask("GET /metrics", "")
        .body
        .lines()
        .any(|of_metrics| of_metrics == line)
}

/// Asks one server for something new until the other has one of the last answers from the store:
/// each is written behind its answer, or lost if the store is still left alone.
fn wait_until_shared(servers: &[Server; 2], name: &str) {
    let mut inputs = VecDeque::new();
    wait_for("answers to be shared again", || {
        let input = json!({ "repo": format!("{name}-{}", inputs.len()) });
        servers[0].call("test.echo", &input);
        inputs.push_front(input);
        inputs
            .iter()
            .take(20)
            .any(|input| servers[1].look("test.echo", input) == "hit")
    });
}

#[test]
fn postgres_restart_loses_no_answer() {
    let postgres = Postgres::start();
    let replicas = Replicas::start(Some(&postgres.database()));
    let (servers, load) = (&replicas.servers, &Load::default());
    std::thread::scope(|scope| {
        for caller in 0..16 {
            scope.spawn(move || load.call(servers, caller));
        }
        scope.spawn(|| load.store(&servers[0]));
        let _ending = Ending(load);
        load.more("calls before", 60);
        for round in 0..2 {
            postgres.kill9();
            load.more("calls without a store", 60);
            wait_for("the breaker to open", || {
                servers
                    .iter()
                    .all(|server| metric(server, "helmdeck_breaker_open 1"))
            });
            postgres.start_again();
            wait_for("the breaker to close", || {
                servers
                    .iter()
                    .all(|server| metric(server, "helmdeck_breaker_open 0"))
            });
            wait_until_shared(servers, &format!("after-{round}"));
            load.more("calls after", 30);
        }
    });
    println!(
        "{:?} answers, {:?} of them hits; none wrong, none failed",
        load.answers, load.hits
    );
    let stored = std::mem::take(&mut *load.stored.lock().unwrap());
    assert!(stored.len() > 10, "{} facts", stored.len());
    for key in &stored {
        let recalled = servers[1].ask(
            "POST /api/v1/packs/memory.recall",
            &json!({ "key": key }).to_string(),
        );
        assert!(
            recalled.body.contains(&format!("value of {key}")),
            "{key} was acknowledged: {}",
            recalled.body
        );
    }
    println!(
        "{} facts were acknowledged, and all are there",
        stored.len()
    );
    // Invalidations reach the other again, too.
    let input = json!({ "repo": "news" });
    servers[0].call("test.echo", &input);
    wait_for("the other to have it", || {
        servers[1].look("test.echo", &input) == "hit"
    });
    assert_eq!(
        servers[0]
            .ask("POST /api/v1/memory/purge", "{\"all\": true}")
            .code,
        200
    );
    wait_for("the purge to be seen", || {
        servers[1].look("test.echo", &input) == "cache_miss"
    });
}
