//! Jobs of servers that share PostgreSQL: any of them runs a job that waits, and a server that ends
//! loses none.

use std::sync::Arc;

use helmdeck_testkit::Postgres;
use serde_json::{Value, json};

use crate::support::program::{Answer, Home, Run, SERVE, Server};
use crate::support::{KEY, wait_for};

/// Servers with separate homes on one database. Their packs write into one folder.
struct Deck {
    database: Arc<Postgres>,
    url: String,
    shared: tempfile::TempDir,
    homes: Vec<Home>,
    servers: Vec<Server>,
    environment: Vec<(&'static str, &'static str)>,
}

impl Deck {
    /// Prepares servers without starting one. `test.work` runs once, `test.again` may be run once
    /// more.
    fn new(environment: &[(&'static str, &'static str)]) -> Self {
        let (database, shared) = (Postgres::shared(), tempfile::tempdir().unwrap());
        let url = database.database();
        let environment = environment.to_vec();
        Self {
            database,
            url,
            shared,
            homes: Vec::new(),
            servers: Vec::new(),
            environment,
        }
    }

    fn start(environment: &[(&'static str, &'static str)], servers: usize) -> Self {
        let mut deck = Self::new(environment);
        (0..servers).for_each(|_| deck.add());
        deck
    }

    /// Makes one more home.
    fn home(&mut self) -> &Home {
        let home = Home::new();
        home.keep_memory_at(&self.url);
        let folder = self.shared.path().display();
        // Says where and with which input it began, waits until it is let go, and says that it has
        // ended.
        let held = format!(
            "#!/bin/sh\ninput=$(cat)\nprintf '%s %s\\n' \"$PWD\" \"$input\" >>{folder}/began\n\
             while [ ! -e {folder}/go ]; do sleep 0.02; done\nprintf '{{\"input\":%s}}' \"$input\"\n"
        );
        for (name, more) in [("test.work", ""), ("test.again", "idempotent = true\n")] {
            home.install(name, &held, "");
            let retry = if more.is_empty() {
                ""
            } else {
                "[job]\nretry = 1\n"
            };
            let manifest = format!(
                "name = \"{name}\"\nversion = \"v1\"\ndescription = \"For tests\"\n{more}[handler]\n\
                 command = [\"./{name}.sh\"]\ntimeout = \"10m\"\n{retry}"
            );
            std::fs::write(home.packs().join(format!("{name}.toml")), manifest).unwrap();
        }
        self.homes.push(home);
        self.homes.last().unwrap()
    }

    /// Starts one more server.
    fn add(&mut self) {
        self.home();
        self.launch();
    }

    /// Starts a server in the last home.
    fn launch(&mut self) {
        let mut command = self.homes.last().unwrap().command(KEY, SERVE);
        command.envs(self.environment.iter().copied());
        self.servers.push(Server::launch(command));
    }

    #[track_caller]
    fn submit(&self, server: usize, pack: &str, name: &str) -> String {
        id(&self.servers[server].ask(
            &format!("POST /api/v1/packs/{pack}/jobs"),
            &json!({"name": name}).to_string(),
        ))
    }

    #[track_caller]
    fn job(&self, server: usize, id: &str) -> Value {
        let answer = self.servers[server].ask(&format!("GET /api/v1/jobs/{id}"), "");
        assert_eq!(answer.code, 200, "{}", answer.body);
        answer.json()
    }

    #[track_caller]
    fn until(&self, server: usize, id: &str, state: &str) -> Value {
        wait_for(&format!("a job to be {state}"), || {
            self.job(server, id)["state"] == state
        });
        self.job(server, id)
    }

    /// Returns where jobs of a name began.
    fn began(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.shared.path().join("began")).unwrap_or_default();
        let name = json!({"name": name}).to_string();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        lines
            .filter(|(_, input)| *input == name)
            .map(|(place, _)| place.to_owned())
            .collect()
    }

    #[track_caller]
    fn until_began(&self, name: &str, count: usize) {
        wait_for("a run to begin", || self.began(name).len() >= count);
    }

    fn let_go(&self) {
        std::fs::write(self.shared.path().join("go"), "").unwrap();
    }

    fn query(&self, sql: &str) -> String {
        self.database.query(&self.url, sql).trim().to_owned()
    }
}

#[track_caller]
fn id(answer: &Answer) -> String {
    assert_eq!(answer.code, 202, "{}", answer.body);
    answer.json()["id"].as_str().unwrap().to_owned()
}

const ONE_AT_A_TIME: &[(&str, &str)] = &[
    ("HELMDECK_JOBS__CONCURRENCY", "1"),
    ("HELMDECK_SERVER__DRAIN_TIMEOUT", "1s"),
];

#[test]
fn full_server_leaves_jobs_to_others() {
    let deck = Deck::start(ONE_AT_A_TIME, 2);
    let (one, two) = (
        deck.submit(0, "test.work", "one"),
        deck.submit(0, "test.work", "two"),
    );
    deck.until_began("one", 1);
    deck.until_began("two", 1);
    assert_ne!(deck.began("one"), deck.began("two"), "each server runs one");
    let waits = deck.submit(0, "test.work", "canary");
    assert_eq!(deck.job(1, &waits)["state"], "queued");
    let sealed = deck.query(
        "SELECT count(*), bool_or(position('canary'::bytea IN sealed) > 0) FROM system_job_calls",
    );
    assert_eq!(sealed, "3|f");
    deck.let_go();
    for (id, name) in [(&one, "one"), (&two, "two"), (&waits, "canary")] {
        let job = deck.until(0, id, "succeeded");
        assert_eq!(
            (job.get("attempt"), job.get("schedule")),
            (None, None),
            "{job}"
        );
        for server in &deck.servers {
            let result = server.ask(&format!("GET /api/v1/jobs/{id}/result"), "");
            assert_eq!(
                result.json()["output"]["input"]["name"],
                name,
                "{}",
                result.body
            );
        }
        assert_eq!(deck.began(name).len(), 1);
    }
    assert_eq!(
        deck.query("SELECT count(*) FROM system_job_calls"),
        "0",
        "inputs are not kept"
    );
}

#[test]
fn waiting_jobs_of_a_killed_server_run_once_elsewhere() {
    let mut deck = Deck::start(ONE_AT_A_TIME, 1);
    let running = deck.submit(0, "test.work", "running");
    deck.until_began("running", 1);
    let names = ["a", "b", "c", "d", "e"];
    let waiting = names.map(|name| deck.submit(0, "test.work", name));
    let cancelled = deck.submit(0, "test.work", "never");
    deck.servers[0].signal("-KILL");
    assert_eq!(deck.servers[0].ended(), None, "it was killed");
    deck.add();
    let answer = deck.servers[1].ask(&format!("DELETE /api/v1/jobs/{cancelled}"), "");
    assert_eq!(
        (answer.code, answer.json()["state"].clone()),
        (200, json!("cancelled")),
        "{}",
        answer.body
    );
    deck.let_go();
    for id in &waiting {
        deck.until(1, id, "succeeded");
    }
    let lost = deck.until(1, &running, "failed");
    assert!(
        lost["error"]["message"]
            .as_str()
            .unwrap()
            .contains("start it again"),
        "{lost}"
    );
    for name in names {
        assert_eq!(deck.began(name).len(), 1, "{name}");
    }
    assert!(deck.began("never").is_empty());
    let metrics = deck.servers[1].ask("GET /metrics", "").body;
    assert!(
        metrics.contains("helmdeck_jobs_claimed_total 5"),
        "{metrics}"
    );
}

#[test]
fn only_jobs_that_may_run_again_do() {
    let mut deck = Deck::start(&[], 1);
    let (again, once) = (
        deck.submit(0, "test.again", "again"),
        deck.submit(0, "test.work", "once"),
    );
    deck.until_began("again", 1);
    deck.until_began("once", 1);
    assert_eq!(deck.job(0, &again)["attempt"], 1);
    deck.add();
    deck.servers[0].signal("-KILL");
    assert_eq!(deck.servers[0].ended(), None, "it was killed");
    deck.until_began("again", 2);
    deck.until(1, &once, "failed");
    let job = deck.until(1, &again, "running");
    assert_eq!(job["attempt"], 2, "{job}");
    deck.let_go();
    deck.until(1, &again, "succeeded");
    assert_eq!(
        (deck.began("again").len(), deck.began("once").len()),
        (2, 1)
    );
}

#[test]
fn frozen_server_changes_no_job_that_another_took() {
    let mut deck = Deck::start(&[], 1);
    let again = deck.submit(0, "test.again", "again");
    deck.until_began("again", 1);
    deck.add();
    deck.servers[0].signal("-STOP");
    deck.until_began("again", 2);
    deck.let_go();
    let done = deck.until(1, &again, "succeeded");
    assert_eq!(done["attempt"], 2, "{done}");
    // Its run has ended too, and it would write that.
    deck.servers[0].signal("-CONT");
    wait_for("it to join again", || {
        deck.servers[0].says("not heard of for too long")
    });
    wait_for("it to see the end", || {
        deck.job(0, &again)["state"] == "succeeded"
    });
    let next = deck.submit(0, "test.work", "next");
    deck.until(0, &next, "succeeded");
    assert_eq!(
        (deck.job(0, &again), deck.job(1, &again)),
        (done.clone(), done)
    );
}

#[test]
fn stopped_server_hands_jobs_back() {
    let mut deck = Deck::start(
        &[
            ("HELMDECK_JOBS__PER_CALLER", "2"),
            ("HELMDECK_SERVER__DRAIN_TIMEOUT", "1s"),
        ],
        1,
    );
    let (again, once) = (
        deck.submit(0, "test.again", "again"),
        deck.submit(0, "test.work", "once"),
    );
    deck.until_began("again", 1);
    deck.until_began("once", 1);
    let waits = deck.submit(0, "test.work", "waits");
    deck.servers[0].signal("-TERM");
    assert_eq!(
        deck.servers[0].ended(),
        Some(0),
        "{}",
        deck.servers[0].log()
    );
    let states = "SELECT string_agg(state || attempt, ' ' ORDER BY id) FROM system_jobs";
    assert_eq!(deck.query(states), "queued2 failed1 queued1");
    deck.add();
    deck.let_go();
    deck.until(1, &again, "succeeded");
    deck.until(1, &waits, "succeeded");
    let job = deck.job(1, &once);
    assert_eq!(
        (&job["state"], &job["error"]["retry"]),
        (&json!("failed"), &json!("later")),
        "{job}"
    );
    assert_eq!(
        (
            deck.began("again").len(),
            deck.began("once").len(),
            deck.began("waits").len()
        ),
        (2, 1, 1)
    );
}

#[test]
fn limit_of_a_caller_holds_over_all_servers() {
    let mut deck = Deck::new(&[
        ("HELMDECK_AUTH__API_TOKENS", "true"),
        ("HELMDECK_JOBS__PER_CALLER", "2"),
    ]);
    deck.add();
    deck.add();
    let token = |user: &str| {
        let create = [
            "token",
            "create",
            "--tenant",
            "t",
            "--user",
            user,
            "--scope",
            "packs:run",
        ];
        let run = Run::of(
            deck.homes[0]
                .command(KEY, &create)
                .env("HELMDECK_AUTH__API_TOKENS", "true")
                .output()
                .unwrap(),
        );
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout.trim().to_owned()
    };
    let submit = |server: usize, token: &str, name: &str| {
        let head = format!("POST /api/v1/packs/test.work/jobs\nAuthorization: Bearer {token}");
        id(&deck.servers[server].ask(&head, &json!({"name": name}).to_string()))
    };
    let (ann, bob) = (token("ann"), token("bob"));
    for n in 0..8 {
        submit(n % 2, &ann, "ann");
    }
    deck.until_began("ann", 2);
    // Both servers have room, and look for jobs again before they run this one.
    for n in 0..2 {
        submit(n, &bob, "bob");
    }
    deck.until_began("bob", 2);
    assert_eq!(deck.began("ann").len(), 2);
    deck.let_go();
    wait_for("all jobs to end", || {
        deck.query("SELECT count(*) FROM system_jobs WHERE state = 'succeeded'") == "10"
    });
    assert_eq!(deck.began("ann").len(), 8);
}

/// Gives a home a pack that runs every second.
fn install_tick(home: &Home, folder: &std::path::Path) {
    let script = format!(
        "#!/bin/sh\ncat >>{0}/ticks\necho >>{0}/ticks\nprintf '{{}}'\n",
        folder.display()
    );
    home.install("test.tick", &script, "");
    let manifest = "name = \"test.tick\"\nversion = \"v1\"\ndescription = \"For tests\"\n[handler]\n\
                    command = [\"./test.tick.sh\"]\n[schedule]\nevery = \"1s\"\ninput = { name = \"tick\" }\n";
    std::fs::write(home.packs().join("test.tick.toml"), manifest).unwrap();
}

#[test]
fn each_due_time_runs_once_on_three_servers() {
    let mut deck = Deck::new(&[]);
    for _ in 0..3 {
        deck.home();
        install_tick(deck.homes.last().unwrap(), deck.shared.path());
        deck.launch();
    }
    let ticks = || std::fs::read_to_string(deck.shared.path().join("ticks")).unwrap_or_default();
    wait_for("runs of the schedule", || ticks().lines().count() >= 5);
    assert!(
        ticks().lines().all(|line| line == "{\"name\":\"tick\"}"),
        "{}",
        ticks()
    );
    let counts = deck.query(
        "SELECT count(*) = count(DISTINCT due_at), count(DISTINCT due_at) >= 5 FROM system_jobs",
    );
    assert_eq!(counts, "t|t");
    let list = deck.servers[0].ask("GET /api/v1/jobs", "").json();
    let job = &list["jobs"][0];
    assert_eq!(
        (&job["pack"], &job["user"]),
        (&json!("test.tick"), &json!("local")),
        "{job}"
    );
    assert!(
        job["schedule"]["due_at"]
            .as_str()
            .unwrap()
            .ends_with(".000000Z"),
        "{job}"
    );
    let started = deck.servers.iter().any(|server| {
        server
            .ask("GET /metrics", "")
            .body
            .contains("helmdeck_schedule_runs_total{result=\"started\"}")
    });
    assert!(started);
    let shown = deck.homes[0].run(KEY, &["pack", "show", "test.tick"]);
    assert!(
        shown.stdout.contains("every 1s (UTC), next at "),
        "{}",
        shown.stdout
    );
}

#[test]
fn schedule_runs_on_one_machine_and_needs_a_caller() {
    let home = Home::new();
    let shared = tempfile::tempdir().unwrap();
    install_tick(&home, shared.path());
    {
        let server = Server::start(&home, KEY);
        wait_for("two runs of the schedule", || {
            let done = server.ask("GET /api/v1/jobs?state=succeeded", "").json();
            done["jobs"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|job| job["schedule"].is_object())
                .count()
                >= 2
        });
    }
    let check = |settings: &str| {
        home.configure(settings);
        home.run(KEY, &["check"])
    };
    let local = check("");
    assert!(
        local.stdout.contains("test.tick, as local/local"),
        "{}",
        local.stdout
    );
    let unset = check("[auth]\napi_tokens = true\n");
    assert!(
        unset.stdout.contains("schedule.caller is not set"),
        "{}",
        unset.stdout
    );
    let set = check("[auth]\napi_tokens = true\n[schedule]\ncaller = \"acme/robot\"\n");
    assert!(
        set.stdout.contains("test.tick, as acme/robot"),
        "{}",
        set.stdout
    );
    let wrong = check("[schedule]\ncaller = \"robot\"\n");
    assert_eq!(
        (wrong.code, wrong.stdout.contains("tenant/user")),
        (78, true),
        "{}",
        wrong.stdout
    );
}
