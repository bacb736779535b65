//! Several processes on one data folder: the shell beside a server, two servers, and a server that
//! is stopped or killed.

use std::collections::HashSet;
use std::process::Stdio;
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::support::program::{Home, Server};
use crate::support::{KEY, integrity, outside, wait_for};

fn rows(home: &Home) -> i64 {
    let sql = "SELECT coalesce(sum(rows), 0) FROM memory_spaces WHERE kind = 'cache'";
    outside(&home.store())
        .query_row(sql, [], |row| row.get(0))
        .unwrap()
}

/// Makes a small source tree and returns its path and the input that maps it.
fn tree(home: &Home, name: &str) -> (String, Value) {
    let folder = home.packs().join(name);
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(
        folder.join("lib.rs"),
        format!("pub fn the_function_of_{name}() {{}}\n"),
    )
    .unwrap();
    let path = folder.canonicalize().unwrap().to_str().unwrap().to_owned();
    (format!("path={path}"), json!({ "path": path }))
}

#[test]
fn second_process_revalidates() {
    let home = Home::new();
    let (argument, _) = tree(&home, "tree");
    let (first, output) = home.call(KEY, &["repo.map", &argument]);
    assert!(
        output.to_string().contains("the_function_of_tree"),
        "{output}"
    );
    assert_eq!(
        (first.as_str(), home.call(KEY, &["repo.map", &argument])),
        ("miss", ("revalidated".to_owned(), output))
    );
}

#[test]
fn runs_sweep_expired_rows_without_server() {
    let home = Home::new();
    let manifest = home.packs().join("test.echo.toml");
    let brief = std::fs::read_to_string(&manifest)
        .unwrap()
        .replace("ttl = \"1h\"", "ttl = \"1ms\"");
    std::fs::write(manifest, brief).unwrap();
    for n in 0..5 {
        home.call(KEY, &["test.echo", &format!("repo={n}")]);
    }
    // Each call's own row stays: it had not ended, or was not written, when the call swept.
    wait_for("the rows of earlier calls to go", || {
        home.call(KEY, &["test.echo", "repo=last"]);
        rows(&home) <= 1
    });
}

#[test]
fn processes_share_answers_in_both_directions() {
    let home = Home::new();
    let (one, one_input) = tree(&home, "one");
    let (two, two_input) = tree(&home, "two");
    let server = Server::start(&home, KEY);

    let (status, output) = home.call(KEY, &["repo.map", &one]);
    assert_eq!(status, "miss");
    assert_eq!(
        server.call("repo.map", &one_input),
        ("revalidated".to_owned(), output)
    );

    let (status, output) = server.call("repo.map", &two_input);
    assert_eq!(status, "miss");
    // The server writes behind its answer.
    wait_for("the server's answer to be in the file", || rows(&home) == 2);
    assert_eq!(
        home.call(KEY, &["repo.map", &two]),
        ("revalidated".to_owned(), output)
    );
}

#[test]
fn two_servers_share_their_answers() {
    let home = Home::new();
    let servers = [Server::start(&home, KEY), Server::start(&home, KEY)];
    for (index, (here, there)) in [(&servers[0], &servers[1]), (&servers[1], &servers[0])]
        .into_iter()
        .enumerate()
    {
        let input = json!({ "repo": index.to_string() });
        let (status, output) = here.call("test.echo", &input);
        assert_eq!(status, "miss");
        wait_for("the answer to be in the file", || {
            rows(&home) == index as i64 + 1
        });
        assert_eq!(there.call("test.echo", &input), ("hit".to_owned(), output));
    }
}

/// Asks a server until it has forgotten an answer.
fn forgets(server: &Server, input: &Value) {
    wait_for("the purge to be seen", || {
        let status = server.look("test.echo", input);
        assert!(status == "hit" || status == "cache_miss", "{status}");
        status == "cache_miss"
    });
}

#[test]
fn purge_of_another_process_reaches_a_server() {
    let home = Home::new();
    let servers = [Server::start(&home, KEY), Server::start(&home, KEY)];
    let input = json!({ "repo": "A/b" });
    for purge in [
        &["--tag", "repo:a/b"][..],
        &["--pack", "test.echo"],
        &["--all"],
        &["--namespace", "local/local"],
    ] {
        servers[0].call("test.echo", &input);
        wait_for("the answer to be in the file", || rows(&home) == 1);
        assert_eq!(
            servers[0].look("test.echo", &input),
            "hit",
            "from the hot tier"
        );
        let arguments = [&["cache", "purge", "--yes"], purge].concat();
        let mut purging = home
            .command(KEY, &arguments)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        forgets(&servers[0], &input);
        assert!(purging.wait().unwrap().success());
    }
    for _ in 0..4 {
        servers[0].call("test.echo", &input);
        wait_for("the answer to be in the file", || rows(&home) == 1);
        assert_eq!(
            servers[0].look("test.echo", &input),
            "hit",
            "from the hot tier"
        );
        assert_eq!(
            servers[1]
                .ask("POST /api/v1/memory/purge", "{\"all\": true}")
                .json()["rows"],
            1
        );
        forgets(&servers[0], &input);
    }
}

#[test]
fn stopped_server_finishes_calls_and_stores_all() {
    let home = Home::new();
    let mut server = Server::start(&home, KEY);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| server.call("test.slow", &json!({ "repo": "slow" })));
        wait_for("the slow call to begin", || {
            home.packs().join("began").exists()
        });
        for index in 0..40 {
            assert_eq!(
                server
                    .call("test.echo", &json!({ "repo": index.to_string() }))
                    .0,
                "miss"
            );
        }
        server.signal("-TERM");
        wait_for("the server to stop", || server.says("stopping"));
        std::fs::write(home.packs().join("go"), "").unwrap();
        let (status, output) = slow.join().unwrap();
        assert_eq!(
            (status.as_str(), &output["input"]["repo"]),
            ("miss", &json!("slow"))
        );
    });
    assert_eq!(server.ended(), Some(0));
    assert_eq!(
        (rows(&home), integrity(&home.store())),
        (41, "ok".to_owned())
    );
    for (pack, repo) in [
        ("test.slow", "repo=slow"),
        ("test.echo", "repo=0"),
        ("test.echo", "repo=39"),
    ] {
        assert_eq!(home.call(KEY, &[pack, repo]).0, "hit", "{repo}");
    }
}

#[test]
fn server_killed_under_load_restarts_without_repair() {
    let home = Home::new();
    let answered = Mutex::new(HashSet::new());
    for round in 0..5 {
        let mut server = Server::start(&home, KEY);
        let before = answered.lock().unwrap().len();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (server, answered) = (&server, &answered);
                scope.spawn(move || {
                    for index in 0.. {
                        let input =
                            json!({ "repo": format!("{round}/{thread}/{index}") }).to_string();
                        let Some(answer) = server.try_ask("POST /api/v1/packs/test.echo", &input)
                        else {
                            return;
                        };
                        assert_eq!(answer.status(), "miss", "{}", answer.body);
                        answered.lock().unwrap().insert(input);
                    }
                });
            }
            wait_for("calls to be answered", || {
                answered.lock().unwrap().len() >= before + 25 + 3 * round
            });
            server.signal("-KILL");
        });
        assert_eq!(server.ended(), None, "it was killed");
    }
    let server = Server::start(&home, KEY);
    let mut kept = 0;
    let answered = answered.into_inner().unwrap();
    for input in &answered {
        let answer = server.ask(
            "POST /api/v1/packs/test.echo\nCache-Control: only-if-cached",
            input,
        );
        if answer.code == 200 {
            kept += 1;
            assert_eq!(
                answer.json()["output"]["input"].to_string(),
                *input,
                "never the answer of another call"
            );
        } else {
            assert_eq!(answer.status(), "cache_miss", "{}", answer.body);
        }
    }
    println!(
        "5 kills: {kept} of {} answers were in the file; they are written behind the response",
        answered.len()
    );
    assert!(kept > 0);
    let input = json!({ "repo": "after" });
    assert_eq!(
        (
            server.call("test.echo", &input).0,
            server.call("test.echo", &input).0
        ),
        ("miss".into(), "hit".into())
    );
    drop(server);
    let doctor = home.run(KEY, &["memory", "doctor"]);
    assert_eq!(
        (doctor.code, integrity(&home.store())),
        (0, "ok".to_owned()),
        "{}{}",
        doctor.stdout,
        doctor.stderr
    );
}
