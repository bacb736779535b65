//! Authentication and authorization, through the real program.
//!
//! The cases are tokens from the shell, tokens of an issuer, and a misconfiguration that must let
//! no caller in.

use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use helmdeck_testkit::{Issuer, key_set};
use serde_json::{Value, json};

use crate::support::program::{Home, Run, SERVE, Server};
use crate::support::{KEY, wait_for};

const SECRET: &str = "a shared secret of 32 bytes or so";
const TOKENS: (&str, &str) = ("HELMDECK_AUTH__API_TOKENS", "true");

fn run(home: &Home, arguments: &[&str], environment: &[(&str, &str)]) -> Run {
    Run::of(
        home.command(KEY, arguments)
            .envs(environment.iter().copied())
            .output()
            .unwrap(),
    )
}

/// Makes a token and returns its text.
fn create(home: &Home, user: &str, scope: &str, expires: &str) -> String {
    let arguments = [
        "token",
        "create",
        "--tenant",
        "acme",
        "--user",
        user,
        "--scope",
        scope,
        "--expires",
        expires,
        "--name",
        "it's",
    ];
    let made = run(home, &arguments, &[TOKENS]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let token = made.stdout.trim_end().to_owned();
    // One line on stdout that a script can take, and the rest beside it.
    assert!(
        token.starts_with("hd_") && token.len() == 92 && !token.contains('\n'),
        "{}",
        made.stdout
    );
    assert!(
        made.stderr.contains(&token[3..19]) && !made.stderr.contains(&token),
        "{}",
        made.stderr
    );
    token
}

fn call(server: &Server, token: &str) -> u16 {
    server
        .ask(
            &format!("POST /api/v1/packs/test.echo\nAuthorization: Bearer {token}"),
            r#"{"repo":"a"}"#,
        )
        .code
}

fn claims(user: &str, more: &Value) -> Value {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let mut claims =
        json!({"sub": user, "tenant": "acme", "scope": "packs:run", "iat": now, "exp": now + 600});
    claims
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    claims
}

#[test]
fn api_token_is_created_used_listed_and_revoked() {
    let home = Home::new();
    assert_eq!(run(&home, &["token", "list"], &[]).code, 0);
    assert!(!home.data().exists(), "listing made the data folder");
    let token = create(&home, "ci", "packs:run:test.e* memory:read", "90d");
    let server = Server::start_with(&home, KEY, &[TOKENS]);
    assert_eq!(server.ask("POST /api/v1/packs/test.echo", "{}").code, 401);
    assert_eq!((call(&server, &token), call(&server, &token)), (200, 200));
    let narrow = format!("POST /api/v1/packs/test.plain\nAuthorization: Bearer {token}");
    assert_eq!(server.ask(&narrow, "{}").status(), "forbidden");

    let listed = run(&home, &["token", "list", "--json"], &[]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let (shown, id) = (&listed["tokens"][0], &token[3..19]);
    assert_eq!(
        (
            shown["id"].as_str(),
            shown["name"].as_str(),
            shown["user"].as_str()
        ),
        (Some(id), Some("it's"), Some("ci"))
    );
    assert_eq!(
        (shown["state"].as_str(), shown["scope"].as_str()),
        (Some("live"), Some("packs:run:test.e* memory:read"))
    );
    assert!(!listed.to_string().contains(&token[20..84]), "{listed}");

    assert_eq!(run(&home, &["token", "revoke", id], &[]).code, 0);
    let revoked = Instant::now();
    while revoked.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(
        call(&server, &token),
        401,
        "a second after it was revoked by another process"
    );
    assert!(
        run(&home, &["token", "list"], &[])
            .stdout
            .contains("revoked")
    );
    assert_eq!(
        run(&home, &["token", "revoke", "0000000000000000"], &[]).code,
        3
    );
}

#[test]
fn link_of_ui_signs_a_browser_in_once() {
    let home = Home::new();
    let plain = run(&home, &["ui"], &[]);
    assert_eq!(
        (plain.code, plain.stdout.trim_end()),
        (0, "http://127.0.0.1:7700/ui"),
        "{}",
        plain.stderr
    );
    assert!(!home.data().exists(), "without sign-in nothing is written");
    let server = Server::start_with(&home, KEY, &[TOKENS]);
    let found = run(&home, &["ui"], &[TOKENS]);
    let at = format!("http://{}/ui/sign-in#", server.address());
    assert!(
        found.stdout.starts_with(&at),
        "the address of the server that runs, {at}: {}",
        found.stdout
    );
    let link = [
        "ui",
        "--tenant",
        "acme",
        "--user",
        "ann",
        "--scope",
        "packs:run",
        "--url",
        "https://deck.example/x",
    ];
    let made = run(&home, &link, &[TOKENS]);
    let (address, code) = made
        .stdout
        .trim_end()
        .split_once('#')
        .unwrap_or_else(|| panic!("{}", made.stdout));
    assert_eq!(address, "https://deck.example/ui/sign-in");
    assert!(
        made.stderr.contains("acme/ann") && !made.stderr.contains(code),
        "{}",
        made.stderr
    );
    assert_eq!(call(&server, code), 401, "it is no token of the API");
    let signed = server.ask("POST /ui/sign-in", &format!("token={code}"));
    let cookie = signed
        .header("set-cookie")
        .and_then(|cookie| cookie.split(';').next())
        .unwrap()
        .to_owned();
    let page = server.ask(&format!("GET /ui\nCookie: {cookie}"), "");
    assert!(
        page.code == 200 && page.body.contains("acme/ann"),
        "{}",
        page.body
    );
    assert_eq!(
        server
            .ask("POST /ui/sign-in", &format!("token={code}"))
            .code,
        401
    );
    assert!(!server.says(code), "the log has the code");
    assert_eq!(run(&home, &["ui", "--url", "ftp://x"], &[]).code, 2);
}

#[test]
fn an_expired_api_token_is_refused() {
    let home = Home::new();
    let token = create(&home, "ci", "packs:run", "1s");
    let made = Instant::now();
    let server = Server::start_with(&home, KEY, &[TOKENS]);
    while made.elapsed() < Duration::from_millis(1100) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(call(&server, &token), 401);
}

#[test]
fn token_is_in_no_file_or_log() {
    let home = Home::new();
    let token = create(&home, "ci", "packs:run", "never");
    let jwt = Issuer::shared(SECRET.as_bytes()).token(&claims("ci", &json!({})));
    let forged = Issuer::shared(&[7; 32]).token(&claims("ci", &json!({})));
    let environment = [
        TOKENS,
        ("HELMDECK_JWT_SECRET", SECRET),
        ("HELMDECK_LOG", "trace"),
    ];
    let server = Server::start_with(&home, KEY, &environment);
    assert_eq!(
        (
            call(&server, &token),
            call(&server, &jwt),
            call(&server, &forged)
        ),
        (200, 200, 401)
    );
    for path in ["/api/v1/packs", "/healthz", "/nothing"] {
        assert_eq!(
            server
                .ask(&format!("GET {path}?access_token={token}"), "")
                .code,
            400,
            "{path}"
        );
    }
    wait_for("the reason to be logged", || {
        server.says("its signature does not fit")
    });
    for secret in [
        &token[20..84],
        &jwt[jwt.len() - 40..],
        &forged[forged.len() - 40..],
        SECRET,
    ] {
        assert!(!server.says(secret), "the log holds {secret}");
    }
    for file in std::fs::read_dir(home.data())
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.is_file())
    {
        let bytes = std::fs::read(&file).unwrap();
        let holds = |secret: &str| {
            bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes())
        };
        assert!(
            !holds(&token[20..84]) && !holds(&jwt) && !holds(SECRET),
            "{}",
            file.display()
        );
    }
    let shown = run(&home, &["config", "show", "--origin"], &environment);
    assert!(
        shown.stdout.contains("HELMDECK_JWT_SECRET") && !shown.stdout.contains(SECRET),
        "{}",
        shown.stdout
    );
}

#[test]
fn issuer_tokens_are_checked_by_its_jwks() {
    let home = Home::new();
    let issuers = [Issuer::rsa("r"), Issuer::ec("e"), Issuer::ed("d")];
    let path = home.packs().join("../jwks.json");
    std::fs::write(&path, key_set(&issuers.iter().collect::<Vec<_>>())).unwrap();
    let jwks = ("HELMDECK_AUTH__JWKS", path.to_str().unwrap());
    let environment = [
        jwks,
        ("HELMDECK_AUTH__AUDIENCE", "helmdeck,other"),
        ("HELMDECK_AUTH__ISSUER", "https://issuer.example"),
    ];
    let checked = run(&home, &["check"], &environment);
    assert!(
        checked.code == 0 && checked.stdout.contains("3 keys"),
        "{}{}",
        checked.stdout,
        checked.stderr
    );
    let server = Server::start_with(&home, KEY, &environment);
    let good = json!({"aud": "helmdeck", "iss": "https://issuer.example"});
    for issuer in &issuers {
        assert_eq!(
            call(&server, &issuer.token(&claims("alice", &good))),
            200,
            "{}",
            issuer.algorithm()
        );
        for bad in [
            json!({"aud": "another", "iss": "https://issuer.example"}),
            json!({"aud": "helmdeck", "iss": "https://evil.example"}),
            json!({"aud": "helmdeck", "iss": "https://issuer.example", "exp": 1}),
        ] {
            assert_eq!(
                call(&server, &issuer.token(&claims("alice", &bad))),
                401,
                "{} {bad}",
                issuer.algorithm()
            );
        }
    }
    // The public key as a shared secret.
    for form in issuers[0].public_forms() {
        assert_eq!(
            call(
                &server,
                &Issuer::shared(&form).token(&claims("alice", &good))
            ),
            401
        );
    }
}

#[test]
fn unsafe_auth_settings_stop_the_start() {
    let home = Home::new();
    let missing = home.packs().join("no.json");
    let (missing, secret_of_32) = (missing.to_str().unwrap(), "s".repeat(32));
    let audience = ("HELMDECK_AUTH__AUDIENCE", "helmdeck");
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("HELMDECK_JWT_SECRET", "canary")], "at least 32"),
        (&[("HELMDECK_JWT_SECRET", ""), TOKENS], "at least 32"),
        (
            &[
                ("HELMDECK_JWT_SECRET", &secret_of_32),
                ("HELMDECK_JWT_SECRET_FILE", "/x"),
            ],
            "both set",
        ),
        (&[("HELMDECK_AUTH__JWKS", missing), audience], missing),
        (&[("HELMDECK_AUTH__JWKS", missing)], "audience"),
        (
            &[("HELMDECK_AUTH__JWKS", "http://issuer.example/k"), audience],
            "https",
        ),
        (
            &[("HELMDECK_AUTH__ANONYMOUS_SCOPE", "admin"), TOKENS],
            "anonymous_scope",
        ),
        (
            &[("HELMDECK_AUTH__ANONYMOUS_SCOPE", "packs:run")],
            "nothing authenticates",
        ),
        (
            &[("HELMDECK_SERVER__LISTEN", "0.0.0.0:0")],
            "authentication",
        ),
    ];
    for (environment, expected) in cases {
        for command in [SERVE, &["check"]] {
            // The flag would hide the address of the environment.
            let command = if environment[0].0 == "HELMDECK_SERVER__LISTEN" {
                &command[..1]
            } else {
                command
            };
            let refused = run(&home, command, environment);
            let said = format!("{}{}", refused.stdout, refused.stderr);
            assert_eq!(refused.code, 78, "{command:?} {environment:?}: {said}");
            assert!(
                said.contains(expected) && !said.contains("canary"),
                "{command:?} {environment:?}: {said}"
            );
        }
    }
    let scope = [
        "token",
        "create",
        "--tenant",
        "t",
        "--user",
        "u",
        "--scope",
        "packs:run packs:walk",
    ];
    let refused = run(&home, &scope, &[]);
    assert_eq!(refused.code, 2);
    assert!(
        refused.stderr.contains("packs:walk") && refused.stderr.contains("memory:write"),
        "{}",
        refused.stderr
    );
    assert!(!home.data().exists());
}

#[test]
fn remote_callers_need_auth_and_an_allowed_host() {
    let home = Home::new();
    let token = create(&home, "ci", "packs:run", "1h");
    let mut command: Command = home.command(KEY, &["serve", "--listen", "0.0.0.0:0"]);
    command
        .env(TOKENS.0, TOKENS.1)
        .env("HELMDECK_SERVER__ALLOWED_HOSTS", "packs.example.com");
    let server = Server::launch(command);
    let ask = |host: &str, token: &str| {
        let request = format!(
            "GET /api/v1/packs HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        server.raw(request.as_bytes())[9..12].to_owned()
    };
    assert_eq!(ask("packs.example.com", &token), "200");
    assert_eq!(ask("evil.example", &token), "403");
    assert_eq!(ask("packs.example.com", "nonsense"), "401");
}
