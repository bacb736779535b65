//! What servers promise holds in the minutes around an outage of their database.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use helmdeck_testkit::Postgres;
use serde_json::json;

use crate::store_trouble::SmallDisk;
use crate::support::program::{Answer, Home, SERVE, Server};
use crate::support::{KEY, wait_for};

/// A relay to a database that may become another one: connections are broken off then.
struct Relay {
    port: u16,
    target: Arc<AtomicU16>,
}

impl Relay {
    fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, target) = (
            listener.local_addr().unwrap().port(),
            Arc::new(AtomicU16::new(target)),
        );
        let to = Arc::clone(&target);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", to.load(Ordering::SeqCst)))
                else {
                    continue;
                };
                for (mut from, mut into) in [
                    (client.try_clone().unwrap(), server.try_clone().unwrap()),
                    (server, client),
                ] {
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut into);
                        let _ = into.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Self { port, target }
    }
}

/// Two servers on one database, each with its own data folder.
struct Stand {
    postgres: Postgres,
    homes: [Home; 2],
    url: String,
}

const ECHO: &str = "echo";
const WRITE: &str = "POST /api/v1/packs/test.write";

impl Stand {
    fn new() -> Self {
        let postgres = Postgres::start();
        let url = postgres.database();
        let homes = [Home::hasty(), Home::hasty()];
        for home in &homes {
            // Both servers run the same files, so that they share answers.
            for name in [ECHO, "write"] {
                std::fs::remove_file(home.packs().join(format!("test.{name}.toml"))).ok();
            }
            install(
                home,
                ECHO,
                "read_only = true",
                "cache = true\nttl = \"1h\"\ntags = [\"repo:{repo}\"]",
                "cat",
            );
            install(
                home,
                "write",
                "read_only = false",
                "invalidates = [\"repo:{repo}\"]",
                "cat",
            );
            install(
                home,
                "late",
                "read_only = false",
                "",
                "touch begun; cat; sleep 2",
            );
        }
        Self {
            postgres,
            homes,
            url,
        }
    }

    fn start(&self, index: usize) -> Server {
        self.start_with(index, &[])
    }

    fn start_with(&self, index: usize, environment: &[(&str, &str)]) -> Server {
        Server::launch(self.command(index, environment))
    }

    fn command(&self, index: usize, environment: &[(&str, &str)]) -> std::process::Command {
        let mut command = self.homes[index].command(KEY, SERVE);
        command
            .env("HELMDECK_MEMORY_URL", &self.url)
            .envs(environment.iter().copied());
        command
    }
}

/// Adds a pack that answers with its input.
fn install(home: &Home, name: &str, hints: &str, memory: &str, script: &str) {
    let memory = if memory.is_empty() {
        String::new()
    } else {
        format!("[memory]\n{memory}\n")
    };
    let manifest = format!(
        "name = \"test.{name}\"\nversion = \"v1\"\ndescription = \"For tests\"\n{hints}\n\
         [handler]\ncommand = [\"/bin/sh\", \"-c\", \"{script}\"]\ntimeout = \"1m\"\n[input]\ntype = \"object\"\n\
         [input.properties]\nrepo = {{ type = \"string\" }}\n{memory}"
    );
    std::fs::write(home.packs().join(format!("test.{name}.toml")), manifest).unwrap();
}

/// Waits until both servers have the answer. The first one wrote its row: a server that loses sight
/// of the database takes its own new rows back.
fn have([first, second]: [&Server; 2]) {
    wait_for("both to have it", || {
        first.call("test.echo", &json!({ "repo": "a/b" }));
        [first, second]
            .iter()
            .all(|server| server.look("test.echo", &json!({ "repo": "a/b" })) == "hit")
    });
}

fn position(answer: &Answer) -> Option<&str> {
    answer.header("helmdeck-position")
}

/// A write at a server that cannot tell the others, and then ends by this signal.
fn purge_outlives(signal: &str, exit: Option<i32>) {
    let stand = Stand::new();
    // The second one keeps nothing in memory: what it answers is in the store.
    let (mut one, two) = (
        stand.start(0),
        stand.start_with(1, &[("HELMDECK_CACHE__HOT_BYTES", "0")]),
    );
    have([&one, &two]);
    let written = one.ask(WRITE, "{\"repo\":\"other\"}");
    assert!(
        position(&written).is_some() && !written.body.contains("pending"),
        "{}",
        written.body
    );

    // Not killed: answers are written without waiting for the disk.
    stand.postgres.stop();
    let written = one.ask(WRITE, "{\"repo\":\"a/b\"}");
    assert_eq!(
        (written.code, &written.json()["pending"]),
        (200, &json!(true)),
        "{}",
        written.body
    );
    assert_eq!(position(&written), None, "nobody can catch up with it");
    assert!(
        one.ask("GET /metrics", "")
            .body
            .contains("helmdeck_purges_pending 1")
    );
    one.signal(signal);
    assert_eq!(one.ended(), exit);
    assert!(
        exit.is_none() || one.says("the store has not carried out all purges"),
        "{}",
        one.log()
    );

    stand.postgres.start_again();
    let input = json!({ "repo": "a/b" });
    wait_for("the other to read the store again", || {
        two.look("test.echo", &input) == "hit"
    });
    let one = stand.start(0);
    wait_for("the purge", || {
        two.look("test.echo", &input) == "cache_miss"
    });
    wait_for("its end", || {
        one.ask("GET /metrics", "")
            .body
            .contains("helmdeck_purges_pending 0")
    });
    assert!(position(&one.ask(WRITE, "{\"repo\":\"other\"}")).is_some());
}

#[test]
fn purge_outlives_a_server_that_is_killed() {
    purge_outlives("-KILL", None);
}

#[test]
fn purge_outlives_a_server_that_is_stopped_and_says_so() {
    purge_outlives("-TERM", Some(1));
}

#[test]
fn answer_with_a_key_is_given_by_every_server_after_an_outage() {
    for restart in [false, true] {
        let stand = Stand::new();
        let (one, two) = (stand.start(0), stand.start(1));
        let request = "POST /api/v1/packs/test.late\nIdempotency-Key: \"k1\"";
        let answered = std::thread::scope(|scope| {
            let call = scope.spawn(|| one.ask(request, "{\"repo\":\"first\"}"));
            wait_for("the call to begin", || {
                stand.homes[0].packs().join("begun").exists()
            });
            stand.postgres.kill9();
            call.join().unwrap()
        });
        assert_eq!(answered.code, 200, "{}", answered.body);
        let mut running = Some(one);
        if restart {
            running.take();
        }
        stand.postgres.start_again();
        let _again = if restart {
            stand.start(0)
        } else {
            running.unwrap()
        };
        wait_for("the other to know the answer", || {
            two.ask(request, "{\"repo\":\"first\"}").code == 200
        });
        let repeated = two.ask(request, "{\"repo\":\"first\"}");
        assert_eq!(repeated.json()["output"], answered.json()["output"]);
    }
}

#[test]
fn end_of_a_job_outlives_its_server() {
    let stand = Stand::new();
    let (one, two) = (stand.start(0), stand.start(1));
    let submitted = one.ask(
        "POST /api/v1/packs/test.late\nPrefer: respond-async",
        r#"{"repo":"first"}"#,
    );
    let id = submitted.json()["id"]
        .as_str()
        .unwrap_or_else(|| panic!("{}", submitted.body))
        .to_owned();
    wait_for("the call to begin", || {
        stand
            .homes
            .iter()
            .any(|home| home.packs().join("begun").exists())
    });
    stand.postgres.stop();
    let job = |server: &Server| server.ask(&format!("GET /api/v1/jobs/{id}"), "");
    let runs_it = if stand.homes[0].packs().join("begun").exists() {
        0
    } else {
        1
    };
    let mut servers = [Some(one), Some(two)];
    let runner = servers[runs_it].take().unwrap();
    wait_for("its end", || {
        stand.homes[runs_it].data().join("journal.db").exists()
            && job(&runner).json()["state"] == "succeeded"
    });
    runner.signal("-KILL");
    drop(runner);
    stand.postgres.start_again();
    let _again = stand.start(runs_it);
    let other = servers.iter().flatten().next().unwrap();
    wait_for("the other to know the end", || {
        job(other).json()["state"] == "succeeded"
    });
    let result = other.ask(&format!("GET /api/v1/jobs/{id}/result"), "");
    assert_eq!(
        (result.code, &result.json()["output"]),
        (200, &json!({ "repo": "first" })),
        "{}",
        result.body
    );
}

#[test]
fn server_starts_before_its_database() {
    let stand = Stand::new();
    stand.postgres.stop();
    let server = stand.start_with(0, &[("HELMDECK_VAULT_KEY", &"5e".repeat(32))]);
    let ready = || server.ask("GET /readyz", "");
    let answer = ready();
    assert_eq!(
        (answer.code, &answer.json()["status"]),
        (200, &json!("degraded")),
        "{}",
        answer.body
    );
    assert!(
        answer.json()["checks"]["vault"]
            .as_str()
            .unwrap()
            .contains("cannot be read yet"),
        "{}",
        answer.body
    );
    assert_eq!(server.ask(WRITE, "{\"repo\":\"a\"}").code, 200);
    stand.postgres.start_again();
    wait_for("the vault and the store", || {
        ready().json()["status"] == "ready"
    });
}

#[test]
fn tokens_survive_a_blink_of_the_database() {
    let stand = Stand::new();
    let token = stand.homes[0]
        .command(
            KEY,
            &[
                "token",
                "create",
                "--tenant",
                "local",
                "--user",
                "me",
                "--scope",
                "packs:run",
            ],
        )
        .env("HELMDECK_MEMORY_URL", &stand.url)
        .output()
        .unwrap();
    let token = String::from_utf8(token.stdout).unwrap();
    let server = stand.start_with(0, &[("HELMDECK_AUTH__API_TOKENS", "true")]);
    let call = |pack: &str| {
        let head = format!(
            "POST /api/v1/packs/test.{pack}\nAuthorization: Bearer {}",
            token.trim()
        );
        server.ask(&head, "{\"repo\":\"a\"}").code
    };
    assert_eq!((call(ECHO), call(ECHO)), (200, 200));
    stand.postgres.stop();
    let tokens = || {
        server.ask("GET /readyz", "").json()["checks"]["tokens"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    wait_for("the record to be missed", || {
        assert_eq!(call(ECHO), 200);
        tokens().contains("auth.grace")
    });
    assert_eq!(call(ECHO), 200);
    let ready = server.ask("GET /readyz", "");
    assert_eq!(ready.json()["status"], "degraded", "{}", ready.body);
    stand.postgres.start_again();
    wait_for("the record of tokens", || {
        server.ask("GET /readyz", "").json()["status"] == "ready"
    });
    assert_eq!(call(ECHO), 200);
}

#[test]
fn position_of_a_former_primary_does_not_turn_the_cache_off() {
    let mut stand = Stand::new();
    let standby = stand.postgres.standby();
    // The primary started later than the standby.
    stand.postgres.stop();
    stand.postgres.start_again();
    let relay = Relay::start(stand.postgres.port());
    let of_primary = std::mem::take(&mut stand.url);
    stand.url = of_primary.replace(
        &format!(":{}/", stand.postgres.port()),
        &format!(":{}/", relay.port),
    );
    let (one, two) = (stand.start(0), stand.start(1));
    have([&one, &two]);
    let written = one.ask(WRITE, "{\"repo\":\"other\"}");
    let before = position(&written).unwrap().to_owned();
    let ask = |position: &str| {
        let head = format!("POST /api/v1/packs/test.echo\nHelmdeck-After: {position}");
        let answer = two.ask(&head, "{\"repo\":\"a/b\"}");
        (answer.status(), answer.json()["cache"]["reason"].clone())
    };
    assert_eq!(ask(&before), ("hit".to_owned(), json!(null)));
    let written = stand
        .postgres
        .query(&of_primary, "SELECT pg_current_wal_lsn()");
    let of_standby = of_primary.replace(
        &format!(":{}/", stand.postgres.port()),
        &format!(":{}/", standby.port()),
    );
    let replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{}'", written.trim());
    wait_for("the standby to have all", || {
        standby.query(&of_standby, &replayed).trim() == "t"
    });

    stand.postgres.kill9();
    standby.promote();
    relay.target.store(standby.port(), Ordering::SeqCst);
    wait_for("the new primary", || {
        one.ask("GET /readyz", "").json()["status"] == "ready"
    });
    wait_for("a position of the new primary", || {
        position(&one.ask(WRITE, "{\"repo\":\"other\"}")).is_some()
    });
    wait_for("the cache", || {
        ask(&before) == ("hit".to_owned(), json!(null))
    });
    let after = position(&one.ask(WRITE, "{\"repo\":\"other\"}"))
        .unwrap()
        .to_owned();
    wait_for("its own position", || {
        ask(&after) == ("hit".to_owned(), json!(null))
    });
}

#[test]
fn server_that_stood_still_answers_nothing_from_before() {
    let home = Home::new();
    let (one, two) = (Server::start(&home, KEY), Server::start(&home, KEY));
    let input = json!({ "repo": "a/b" });
    wait_for("both to have it", || {
        one.call("test.echo", &input);
        two.call("test.echo", &input).0 == "hit"
    });
    let mut rounds = 0;
    while rounds < 5 {
        two.call("test.echo", &input);
        two.signal("-STOP");
        let purged = one.ask("POST /api/v1/memory/purge", r#"{"pack": "test.echo"}"#);
        assert_eq!(purged.code, 200, "{}", purged.body);
        if purged.json()["pending"] == true {
            // It was stopped within a write, and holds the lock of the file.
            two.signal("-CONT");
            continue;
        }
        rounds += 1;
        // As long as others may take to see a purge, and longer.
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        two.signal("-CONT");
        assert_eq!(
            two.look("test.echo", &input),
            "cache_miss",
            "the first answer after it woke up"
        );
    }
}

#[test]
fn full_disk_is_named_and_deletes_still_work() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let Some(_disk) = SmallDisk::mount(&disk, "12m") else {
        assert!(
            !rustix::process::geteuid().is_root(),
            "no file system could be mounted, so a full disk was not tried"
        );
        println!("NOT TRIED: only root can mount a file system, so a full disk was not tried");
        return;
    };
    let home = Home::hasty();
    let data = disk.to_str().unwrap();
    // A log of 1 MiB, so that the reserve is 2 MiB.
    let small = [
        ("HELMDECK_DATA_DIR", data),
        ("HELMDECK_MEMORY__CACHE_BYTES", "32MiB"),
    ];
    let server = Server::start_with(&home, KEY, &small);
    let store = |key: &str| {
        let fact = json!({ "key": key, "value": "v".repeat(60_000) });
        server.ask("POST /api/v1/memory/store", &fact.to_string())
    };
    assert_eq!(store("first").code, 200);
    wait_for("the reserve", || {
        std::fs::metadata(disk.join("memory.db-reserve")).is_ok_and(|file| file.len() == 2 << 20)
    });
    let refused = (0..400)
        .map(|n| store(&format!("k{n}")))
        .find(|answer| answer.code != 200)
        .expect("12 MB are full");
    assert_eq!(
        refused.json()["code"],
        "resource_exhausted",
        "{}",
        refused.body
    );
    assert!(
        refused
            .body
            .contains("the disk of the memory store is full"),
        "{}",
        refused.body
    );
    let ready = server.ask("GET /readyz", "");
    assert_eq!(
        (ready.code, &ready.json()["status"]),
        (200, &json!("degraded")),
        "{}",
        ready.body
    );
    assert!(
        ready.json()["checks"]["store"]
            .as_str()
            .unwrap()
            .ends_with(": full"),
        "{}",
        ready.body
    );

    let forgotten = server.ask("POST /api/v1/memory/forget", "{\"key\":\"k0\"}");
    assert_eq!(
        (forgotten.code, &forgotten.json()["removed"]["facts"]),
        (200, &json!(1)),
        "{}",
        forgotten.body
    );
    // The reserve was used. It is there again once there is room for it, and has room for a delete
    // from the shell.
    for n in 1..30 {
        let forget = || {
            server
                .ask(
                    "POST /api/v1/memory/forget",
                    &format!("{{\"key\":\"k{n}\"}}"),
                )
                .code
                == 200
        };
        // While a reader needs the log, its room is not free.
        wait_for("the delete", forget);
    }
    let mut shell = home.command(KEY, &["run", "memory.forget", "key=k30"]);
    let run = shell.envs(small).output().unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    wait_for("room", || store("again").code == 200);
    wait_for("readiness", || {
        server.ask("GET /readyz", "").json()["status"] == "ready"
    });
}
