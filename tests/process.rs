//! Tests of the server as an operator's process.
//!
//! They cover reload at SIGHUP, exit codes after signals, and warnings at the start.

use crate::support::program::{Home, Run, Server};
use crate::support::{KEY, wait_for};

#[test]
fn sighup_reloads_configuration_and_packs() {
    let home = Home::new();
    home.configure("");
    let mut server = Server::start(&home, KEY);
    let named = |server: &Server| {
        let head = "GET /api/v1/packs/test.later HTTP/1.1\r\nHost: deck.example\r\nConnection: close\r\n\r\n";
        server.raw(head.as_bytes())[9..12].to_owned()
    };
    assert_eq!(named(&server), "403");
    home.configure("[server]\nallowed_hosts = [\"deck.example\"]\nmax_requests = 9\n[log]\nlevel = \"debug\"\n");
    home.install("test.later", "#!/bin/sh\necho '{}'\n", "");
    server.signal("-HUP");
    wait_for("the reload", || server.says("\"reloaded\""));
    assert_eq!(named(&server), "200");
    assert!(
        server.says("need a restart") && server.says("server.max_requests"),
        "{}",
        server.log()
    );
    assert!(!server.says("server.allowed_hosts, "), "{}", server.log());

    home.configure("[server]\nallowed_hosts = [\"other.example\"]\nmax_requsts = 9\n");
    server.signal("-HUP");
    wait_for("the refusal", || server.says("stays in force"));
    assert!(server.says("max_requsts"), "{}", server.log());
    assert_eq!(
        named(&server),
        "200",
        "the configuration before is in force"
    );

    server.signal("-INT");
    assert_eq!(server.ended(), Some(130));
}

#[test]
fn drained_server_ends_with_zero() {
    let home = Home::new();
    let mut server = Server::start(&home, KEY);
    server.signal("-TERM");
    assert_eq!(server.ended(), Some(0));
}

#[test]
fn listener_beyond_loopback_warns_without_allowed_hosts() {
    let home = Home::new();
    let tokens = ("HELMDECK_AUTH__API_TOKENS", "true");
    let listen = |environment: &[(&str, &str)]| {
        let mut command = home.command(KEY, &["serve", "--listen", "0.0.0.0:0"]);
        command.envs(environment.iter().copied());
        Server::launch(command).log()
    };
    assert!(listen(&[tokens]).contains("allowed_hosts is empty"));
    let named = listen(&[tokens, ("HELMDECK_SERVER__ALLOWED_HOSTS", "deck.example")]);
    assert!(!named.contains("allowed_hosts is empty"), "{named}");
}

#[test]
fn wrong_input_has_one_exit_code() {
    let home = Home::new();
    let manifest = "name = \"test.strict\"\nversion = \"v1\"\ndescription = \"For tests\"\nread_only = true\n\
        [handler]\ncommand = [\"./test.echo.sh\"]\n[input]\ntype = \"object\"\nadditionalProperties = false\n\
        required = [\"path\"]\n[input.properties]\npath = { type = \"string\" }\nlimit = { type = \"integer\", minimum = 1 }\n";
    std::fs::write(home.packs().join("test.strict.toml"), manifest).unwrap();
    let run = |arguments: &[&str]| -> Run {
        home.run(KEY, &[&["run", "test.strict"], arguments].concat())
    };
    for wrong in [
        &["path=a", "nope=1"][..],
        &["path=a", "limit=x"],
        &["path=a", "limit=0"],
        &[],
        &["--input", r#"{"path": "a", "nope": 1}"#],
        &["--input", r#"{"path": 1}"#],
        &["--input", r#"{"path": "a", "limit": 0}"#],
        &["--input", "{}"],
        &["--input", "no JSON"],
    ] {
        let run = run(wrong);
        assert_eq!(run.code, 2, "{wrong:?}: {}", run.stderr);
    }
    let missing = run(&[]).stderr;
    assert!(missing.contains("\"path\" is missing"), "{missing}");
    assert_eq!(run(&["path=a"]).code, 0);
    assert_eq!(home.run(KEY, &["run", "test.nowhere"]).code, 3);
}

#[test]
fn help_prints_the_exit_codes() {
    let home = Home::new();
    for words in [&["help", "exit-codes"][..], &["exit-codes"]] {
        let shown = home.run(KEY, words);
        assert!(
            shown.code == 0 && shown.stdout.contains("130  ended by SIGINT"),
            "{}",
            shown.stdout
        );
    }
}
