//! Replicas on separate machines, as far as one machine can show it: two servers with separate
//! homes, one PostgreSQL.
//!
//! Tokens, Idempotency-Keys and jobs of one work on the other, and a replica that is gone leaves
//! nothing open.

use std::path::Path;
use std::sync::Arc;

use helmdeck_testkit::Postgres;
use serde_json::{Value, json};

use crate::support::program::{Answer, Home, SERVE, Server};
use crate::support::{KEY, wait_for};

/// Counts its runs.
const WRITE: &str =
    "#!/bin/sh\ncat >/dev/null\necho run >>runs\nprintf '{\"runs\":%d}' \"$(wc -l <runs)\"\n";
/// Says that it began, and waits until it is let go.
const HELD: &str = "#!/bin/sh\ninput=$(cat)\necho run >>began\nwhile [ ! -e go ]; do sleep 0.02; done\nprintf '{\"input\":%s}' \"$input\"\n";

/// Two replicas.
struct Replicas {
    database: Arc<Postgres>,
    url: String,
    homes: [Home; 2],
    servers: [Server; 2],
    token: String,
}

impl Replicas {
    fn start() -> Self {
        let database = Postgres::shared();
        let url = database.database();
        let homes = [(); 2].map(|()| Home::new());
        for (index, home) in homes.iter().enumerate() {
            home.configure(&format!(
                "[memory]\nurl = \"{url}\"\n[auth]\napi_tokens = true\n"
            ));
            // Only one of the replicas has it, so that the other one takes none of its jobs.
            let held = held(index);
            for (name, script) in [("test.write", WRITE), (held.as_str(), HELD)] {
                home.install(name, script, "");
                let manifest = home.packs().join(format!("{name}.toml"));
                let text = std::fs::read_to_string(&manifest)
                    .unwrap()
                    .replace("read_only = true", "read_only = false");
                std::fs::write(manifest, text.split("[memory]").next().unwrap()).unwrap();
            }
        }
        let token = token(&homes[0]);
        let servers = [0, 1].map(|index| Server::launch(homes[index].command(KEY, SERVE)));
        Self {
            database,
            url,
            homes,
            servers,
            token,
        }
    }

    /// Sends a request to a replica.
    #[track_caller]
    fn ask(&self, replica: usize, head: &str, body: &str) -> Answer {
        let authorization = format!("{head}\nAuthorization: Bearer {}", self.token);
        self.servers[replica].ask(&authorization, body)
    }

    /// Starts a job that only this replica can run, and returns its id.
    #[track_caller]
    fn submit(&self, replica: usize) -> String {
        let answer = self.ask(
            replica,
            &format!("POST /api/v1/packs/{}/jobs", held(replica)),
            "{}",
        );
        assert_eq!(answer.code, 202, "{}", answer.body);
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn job(&self, replica: usize, id: &str) -> Value {
        let answer = self.ask(replica, &format!("GET /api/v1/jobs/{id}"), "");
        assert_eq!(answer.code, 200, "{}", answer.body);
        answer.json()
    }

    fn lines(&self, replica: usize, file: &str) -> usize {
        std::fs::read_to_string(self.homes[replica].packs().join(file))
            .unwrap_or_default()
            .lines()
            .count()
    }

    fn let_go(&self, replica: usize) {
        std::fs::write(self.homes[replica].packs().join("go"), "").unwrap();
    }

    /// Waits until the first replica runs jobs.
    fn until_runs(&self, count: usize) {
        wait_for("the jobs to run", || self.lines(0, "began") >= count);
    }
}

/// Returns the name of the pack of a replica.
fn held(replica: usize) -> String {
    format!("test.held{replica}")
}

fn token(home: &Home) -> String {
    let create = [
        "token",
        "create",
        "--tenant",
        "acme",
        "--user",
        "ann",
        "--scope",
        "admin packs:run",
    ];
    let run = home.run(KEY, &create);
    assert_eq!(run.code, 0, "{}", run.stderr);
    run.stdout.trim().to_owned()
}

#[test]
fn a_replica_has_three_connections_at_most() {
    let replicas = Replicas::start();
    std::thread::scope(|scope| {
        for caller in 0..8 {
            let replicas = &replicas;
            scope.spawn(move || {
                for number in 0..10 {
                    let fact = json!({"key": format!("k{caller}"), "value": format!("v{number}")})
                        .to_string();
                    assert_eq!(
                        replicas
                            .ask(caller % 2, "POST /api/v1/memory/store", &fact)
                            .code,
                        200
                    );
                    let write = format!(
                        "POST /api/v1/packs/test.write\nIdempotency-Key: {caller}-{number}"
                    );
                    assert_eq!(replicas.ask(caller % 2, &write, "{}").code, 200);
                }
            });
        }
    });
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'helmdeck'";
    let open: usize = replicas
        .database
        .query(&replicas.url, open)
        .parse()
        .unwrap();
    assert!(
        (4..=6).contains(&open),
        "two replicas have {open} connections"
    );
}

#[test]
fn tokens_and_keys_of_one_replica_work_on_the_other() {
    let replicas = Replicas::start();
    assert!(
        !replicas
            .homes
            .iter()
            .any(|home| home.data().join("helmdeck.db").exists()),
        "nothing is on one machine"
    );
    let second = token(&replicas.homes[1]);
    let whoami = format!("GET /api/v1/packs\nAuthorization: Bearer {second}");
    assert_eq!(replicas.servers[0].ask(&whoami, "").code, 200);

    let write = "POST /api/v1/packs/test.write\nIdempotency-Key: one";
    let (first, repeat) = (replicas.ask(0, write, "{}"), replicas.ask(1, write, "{}"));
    assert_eq!(
        (first.code, first.header("idempotency-replayed")),
        (200, None),
        "{}",
        first.body
    );
    assert_eq!(
        (repeat.code, repeat.header("idempotency-replayed")),
        (200, Some("true")),
        "{}",
        repeat.body
    );
    assert_eq!(first.json()["output"], repeat.json()["output"]);
    assert_eq!(
        (replicas.lines(0, "runs"), replicas.lines(1, "runs")),
        (1, 0)
    );
    assert_eq!(replicas.ask(1, write, "{\"repo\":\"other\"}").code, 422);

    // A key is of one caller: the same key of the same user under another token is the same key.
    let again = format!(
        "POST /api/v1/packs/test.write\nIdempotency-Key: one\nAuthorization: Bearer {second}"
    );
    assert_eq!(
        replicas.servers[1]
            .ask(&again, "{}")
            .header("idempotency-replayed"),
        Some("true")
    );

    let list: Value = serde_json::from_str(
        &replicas.homes[0]
            .run(KEY, &["token", "list", "--json"])
            .stdout,
    )
    .unwrap();
    assert_eq!(list["tokens"].as_array().unwrap().len(), 2, "{list}");
    let id = &second[3..19];
    assert_eq!(replicas.homes[0].run(KEY, &["token", "revoke", id]).code, 0);
    wait_for("the other to refuse it", || {
        replicas.servers[1].ask(&whoami, "").code == 401
    });
}

#[test]
fn jobs_of_one_replica_are_shared() {
    let replicas = Replicas::start();
    let (running, wanted) = (replicas.submit(0), replicas.submit(0));
    replicas.until_runs(2);
    wait_for("the row to say so", || {
        replicas.job(1, &running)["state"] == "running"
    });
    let list = replicas.ask(1, "GET /api/v1/jobs", "").json();
    let listed: Vec<_> = list["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["id"].as_str().unwrap())
        .collect();
    assert_eq!(listed, [&*wanted, &*running]);

    let cancelled = replicas.ask(1, &format!("DELETE /api/v1/jobs/{wanted}"), "");
    assert_eq!(cancelled.code, 200, "{}", cancelled.body);
    wait_for("the cancel to reach the owner", || {
        replicas.job(0, &wanted)["state"] == "cancelled"
    });
    assert_eq!(
        replicas
            .ask(1, &format!("GET /api/v1/jobs/{running}/result"), "")
            .code,
        409
    );

    replicas.let_go(0);
    wait_for("the other to see the end", || {
        replicas.job(1, &running)["state"] == "succeeded"
    });
    let result = replicas.ask(1, &format!("GET /api/v1/jobs/{running}/result"), "");
    assert_eq!(
        (result.code, result.json()["output"]["input"].clone()),
        (200, json!({})),
        "{}",
        result.body
    );
    // The events of a job that ended go on after the last one seen, on any replica.
    let events = |after: &str| {
        let path = format!("GET /api/v1/jobs/{running}/events");
        let head = format!(
            "{path}\nLast-Event-ID: {after}\nAuthorization: Bearer {}",
            replicas.token
        );
        replicas.servers[1].exchange(&head, "").unwrap().body
    };
    let all = events("0");
    assert!(all.contains("succeeded"), "{all}");
    let last = all
        .lines()
        .filter_map(|line| line.strip_prefix("id:"))
        .next_back()
        .unwrap()
        .trim();
    assert!(!events(last).contains("succeeded"), "none comes twice");
}

#[test]
fn jobs_of_a_killed_replica_fail() {
    let mut replicas = Replicas::start();
    let lost = replicas.submit(0);
    replicas.until_runs(1);
    let mine = replicas.submit(1);
    replicas.servers[0].signal("-KILL");
    assert_eq!(replicas.servers[0].ended(), None, "it was killed");
    wait_for("its lease to end", || {
        replicas.job(1, &lost)["state"] == "failed"
    });
    let job = replicas.job(1, &lost);
    assert!(
        job["error"]["message"]
            .as_str()
            .unwrap()
            .contains("start it again"),
        "{job}"
    );
    replicas.let_go(1);
    wait_for("the other's job to end well", || {
        replicas.job(1, &mine)["state"] == "succeeded"
    });
    replicas.let_go(0);
}

#[test]
fn frozen_replica_changes_nothing_when_it_wakes() {
    let replicas = Replicas::start();
    let lost = replicas.submit(0);
    replicas.until_runs(1);
    replicas.servers[0].signal("-STOP");
    wait_for("its lease to end", || {
        replicas.job(1, &lost)["state"] == "failed"
    });
    replicas.let_go(0);
    replicas.servers[0].signal("-CONT");
    wait_for("it to join again", || {
        replicas.servers[0].says("not heard of for too long")
    });
    wait_for("it to give its job up", || {
        replicas.job(0, &lost)["state"] == "failed"
    });
    assert_eq!(replicas.job(1, &lost)["state"], "failed");
    let states = replicas
        .database
        .query(&replicas.url, "SELECT DISTINCT state FROM system_jobs");
    assert_eq!(states.trim(), "failed");
    let next = replicas.submit(0);
    wait_for("new jobs to run", || {
        replicas.job(1, &next)["state"] == "succeeded"
    });
    assert!(Path::new(&replicas.homes[0].packs().join("began")).exists());
}

#[test]
fn moved_system_database_keeps_tokens() {
    let home = Home::new();
    home.configure("[auth]\napi_tokens = true\n");
    let token = token(&home);
    let file = home.data().join("helmdeck.db");
    assert!(file.is_file());
    let database = Postgres::shared();
    let url = database.database();
    home.configure(&format!(
        "[memory]\nurl = \"{url}\"\n[auth]\napi_tokens = true\n"
    ));
    let before = home.run(KEY, &["check"]);
    assert!(
        before.stdout.contains("system move --from")
            || before.stderr.contains("system move --from"),
        "{}",
        before.stdout
    );
    let from = format!("sqlite:{}", file.display());
    let moved = home.run(KEY, &["system", "move", "--from", &from, "--json"]);
    assert_eq!(moved.code, 0, "{}", moved.stderr);
    let report: Value = serde_json::from_str(&moved.stdout).unwrap();
    let tokens = report["tables"]
        .as_array()
        .unwrap()
        .iter()
        .find(|table| table["table"] == "API tokens")
        .unwrap();
    assert_eq!(tokens["rows"], 1, "{report}");
    assert!(!moved.stdout.contains("postgres@"), "no user is shown");
    std::fs::remove_file(&file).unwrap();
    let server = Server::launch(home.command(KEY, SERVE));
    assert_eq!(
        server
            .ask(
                &format!("GET /api/v1/packs\nAuthorization: Bearer {token}"),
                ""
            )
            .code,
        200
    );
    let back = home.run(KEY, &["system", "move", "--to", &from]);
    assert_eq!(back.code, 0, "{}", back.stderr);
    assert!(
        back.stdout.contains("now holds the same as postgres://") && file.is_file(),
        "{}",
        back.stdout
    );
}
