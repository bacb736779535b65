//! Measurement, not a test: how long ten servers on one PostgreSQL take to see a purge.
//! `scripts/invalidation.sh` runs it.

use std::time::{Duration, Instant};

use helmdeck_testkit::Postgres;
use serde_json::{Value, json};

use crate::support::program::{Home, SERVE, Server};
use crate::support::{KEY, wait_for};

const SERVERS: usize = 10;
/// Purges before, between and after the two restarts of PostgreSQL.
const ROUNDS: usize = 200;
/// Pause between two looks at a server: the figures are too large by up to so much.
const PAUSE: Duration = Duration::from_millis(2);
/// What 99 of 100 must stay below.
const TARGET: Duration = Duration::from_millis(250);

fn input(round: usize) -> Value {
    json!({"repo": format!("a/{round}")})
}

/// Makes the first server and others hold an answer in memory.
fn warm(first: &Server, others: &[Server], round: usize) {
    let status = |server: &Server| {
        server
            .ask("POST /api/v1/packs/test.echo", &input(round).to_string())
            .status()
    };
    for server in others {
        wait_for("the answer to be shared", || {
            status(first);
            status(server) == "hit"
        });
    }
}

/// Waits until none of some servers has the answer.
fn time(servers: &[Server], round: usize) -> Duration {
    let start = Instant::now();
    for server in servers {
        while server.look("test.echo", &input(round)) == "hit" {
            std::thread::sleep(PAUSE);
        }
    }
    start.elapsed()
}

/// Purges an answer at the first server, and returns whether the store has obeyed.
fn purge(servers: &[Server], round: usize) -> bool {
    let answer = servers[0].ask(
        "POST /api/v1/memory/purge",
        &json!({"tag": format!("repo:a/{round}")}).to_string(),
    );
    assert_eq!(answer.code, 200, "{}", answer.body);
    answer.json()["pending"] == false
}

#[test]
#[ignore = "a measurement; scripts/invalidation.sh runs it"]
fn purge_reaches_ten_servers() {
    let database = Postgres::start();
    let url = database.database();
    let homes: Vec<Home> = (0..SERVERS).map(|_| Home::new()).collect();
    let start = |home: &Home| {
        let mut command = home.command(KEY, SERVE);
        command
            .env("HELMDECK_MEMORY_URL", &url)
            .env("HELMDECK_PACKS_DIR", homes[0].packs());
        Server::launch(command)
    };
    let servers: Vec<Server> = homes.iter().map(start).collect();
    let mut all = Vec::new();
    for (part, what) in ["at rest", "after a restart", "after a crash"]
        .into_iter()
        .enumerate()
    {
        let mut of_part = Vec::new();
        for round in part * ROUNDS..(part + 1) * ROUNDS {
            if part > 0 && round == part * ROUNDS {
                warm(&servers[0], &servers[1..], round);
                // A purge in the outage: it holds at its own server, and reaches the others after
                // it.
                if part == 1 {
                    database.stop()
                } else {
                    database.kill9()
                }
                assert!(!purge(&servers, round), "nobody could obey");
                database.start_again();
                let all_know = time(&servers[1..], round);
                println!(
                    "{what}: a purge in the outage is seen by all {} ms after it",
                    all_know.as_millis()
                );
                continue;
            }
            // One of the others in turn: asking all of them all the time would be most of what is
            // measured.
            let other = 1 + round % (SERVERS - 1);
            let other = &servers[other..=other];
            warm(&servers[0], other, round);
            wait_for("a purge that the store obeys", || purge(&servers, round));
            of_part.push(time(other, round));
        }
        println!("{what}: {}", summary(&mut of_part));
        all.extend(of_part);
    }
    println!("all: {}", summary(&mut all));
    assert!(percentile(&all, 99) < TARGET, "the target is missed");
}

fn summary(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let [half, most, max] = [50, 99, 100].map(|percent| percentile(times, percent).as_millis());
    format!(
        "{} samples, p50 {half} ms, p99 {most} ms, max {max} ms",
        times.len()
    )
}

/// Returns a percentile of sorted times.
fn percentile(times: &[Duration], percent: usize) -> Duration {
    times[(times.len() * percent / 100).min(times.len() - 1)]
}
