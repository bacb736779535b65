//! Credentials of the vault, with the real program.
//!
//! The tests show which callers may use them, and what becomes of cached answers. No part of a
//! secret is ever seen in any file, answer, log or process.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use helmdeck_core::secrets::{Secrets, credential_tag};
use helmdeck_core::{Identity, PackName, SystemClock};
use helmdeck_memory::KeyRing;
use helmdeck_system::System;
use helmdeck_testkit::Postgres;
use helmdeck_vault::Vault;
use serde_json::{Value, json};

use crate::stand_in::GitHub;
use crate::support::program::{Home, Run, SERVE, Server};
use crate::support::{KEY, OTHER_KEY, RARELY_POLLED, STUCK, wait_for};

/// A vault key.
pub(crate) const VAULT_KEY: &str =
    "aa112233445566778899aabbccddeeff00112233445566778899aabbccddee00";
/// Another one.
const OTHER_VAULT_KEY: &str = "bb112233445566778899aabbccddeeff00112233445566778899aabbccddee00";

/// Runs the program with a memory key and a vault key and something on stdin.
fn vault(home: &Home, key: &str, stdin: &str, arguments: &[&str]) -> Run {
    feed(
        home.command(KEY, arguments).env("HELMDECK_VAULT_KEY", key),
        stdin,
    )
}

pub(crate) fn feed(command: &mut Command, stdin: &str) -> Run {
    let command = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that refuses its arguments reads nothing.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    Run::of(child.wait_with_output().unwrap())
}

/// Sets an API key that the local caller may use with every pack.
#[track_caller]
pub(crate) fn set(home: &Home, name: &str, secret: &str) {
    let arguments = [
        "vault",
        "set",
        name,
        "--type",
        "api_key",
        "--host",
        "127.0.0.1",
        "--allow",
        "local/local",
        "--pack",
        "*",
    ];
    let run = vault(home, VAULT_KEY, secret, &arguments);
    assert_eq!(run.code, 0, "{}", run.stderr);
}

/// Adds a cached pack that is a shell script and declares credentials.
fn install(home: &Home, name: &str, script: &str, credentials: &str) {
    home.install(name, script, "");
    let path = home.packs().join(format!("{name}.toml"));
    let manifest = std::fs::read_to_string(&path).unwrap();
    let declared = format!("read_only = true\ncredentials = {credentials}\n");
    let manifest = manifest.replace("read_only = true\n", &declared);
    let input = "[input.properties]\ncredential = { type = \"string\" }\n";
    std::fs::write(path, manifest.replace("[input.properties]\n", input)).unwrap();
}

/// Says how often it ran.
const COUNT: &str =
    "#!/bin/sh\ncat >/dev/null\necho run >>runs\nprintf '{\"runs\":%d}' \"$(wc -l <runs)\"\n";

fn start(home: &Home, more: &[(&str, &str)]) -> Server {
    let settings = [&[("HELMDECK_VAULT_KEY", VAULT_KEY)], more].concat();
    Server::start_with(home, KEY, &settings)
}

/// Returns a home whose memory is a file, and one whose memory is in PostgreSQL; each with the pack
/// that counts and two credentials for it. The server may end when it is dropped.
fn homes() -> ([Home; 2], Arc<Postgres>) {
    let (homes, server) = ([Home::new(), Home::new()], Postgres::shared());
    homes[1].keep_memory_at(&server.database());
    for home in &homes {
        install(home, "test.count", COUNT, "[\"{credential|token}\"]");
        set(home, "token", "sparrow-one");
        set(home, "other", "sparrow-two");
    }
    (homes, server)
}

/// Returns a credential's secret as the engine would get it.
async fn reveal(home: &Home, key: &str, name: &str) -> Option<String> {
    let ring = KeyRing::parse(("K", key), None).unwrap();
    let system = System::at(home.data().join("helmdeck.db"));
    let vault = Vault::open(system, ring, Arc::new(SystemClock::default()))
        .await
        .unwrap();
    let pack = PackName::new("a.b").unwrap();
    let grant = vault.grant(name, &Identity::local(), &pack).unwrap()?;
    Some(
        vault
            .reveal(&grant, &Identity::local(), &pack)
            .unwrap()
            .expose()
            .to_owned(),
    )
}

#[test]
fn rotation_and_removal_purge_answers_in_every_process() {
    let (homes, _server) = homes();
    for (home, settings) in homes.into_iter().zip([&[][..], &[RARELY_POLLED]]) {
        let server = start(&home, settings);
        let (mine, others) = (
            json!({"repo": "a"}),
            json!({"repo": "a", "credential": "other"}),
        );
        let call = |input: &Value| server.call("test.count", input).0;
        for input in [&mine, &others] {
            assert_eq!(
                (call(input).as_str(), call(input).as_str()),
                ("miss", "hit")
            );
        }
        wait_for("both answers to be stored", || rows(&home) == 2);

        let rotated = vault(
            &home,
            VAULT_KEY,
            "sparrow-three",
            &["vault", "rotate", "token", "--json"],
        );
        let rotated: Value = serde_json::from_str(&rotated.stdout).unwrap();
        assert_eq!(rotated["purged"], 1, "{rotated}");
        // The row of the other may be gone too: where a store tells only that something was
        // deleted, a server takes back what it wrote shortly before.
        assert_eq!(
            made_with(&home, "token"),
            0,
            "the row is gone, not only out of use"
        );
        wait_for("the server to see the rotation", || {
            server.look("test.count", &mine) == "cache_miss"
        });
        assert_eq!(call(&mine), "miss");
        // The server sees the new version and is notified of the purge one after the other, in any
        // order. At a purge it takes no chances with what was written about then: both may run once
        // more. And what ran before it saw the new version is kept under the old one, where no call
        // looks.
        wait_for("both answers to be kept", || {
            call(&mine) == "hit"
                && call(&others) == "hit"
                && made_with(&home, "token") > 0
                && made_with(&home, "other") == 1
        });

        let removed = vault(
            &home,
            VAULT_KEY,
            "",
            &["vault", "remove", "other", "--yes", "--json"],
        );
        assert_eq!(removed.code, 0, "{}", removed.stderr);
        wait_for("its answer to be gone", || made_with(&home, "other") == 0);
        let refused = |input: &Value| {
            let answer = server.ask("POST /api/v1/packs/test.count", &input.to_string());
            (answer.code, answer.body)
        };
        wait_for("the server to see the removal", || {
            refused(&others).0 == 403
        });

        // A revoked grant takes effect as fast, and gives the same message as a missing credential.
        let revoked = vault(
            &home,
            VAULT_KEY,
            "",
            &["vault", "revoke", "token", "--allow", "local/local"],
        );
        assert_eq!(revoked.code, 0, "{}", revoked.stderr);
        let named = json!({"repo": "a", "credential": "token"});
        wait_for("the server to see the revocation", || {
            refused(&named).0 == 403
        });
        let words = |(_, body): (u16, String), name: &str| {
            let problem: Value = serde_json::from_str(&body).unwrap();
            (
                problem["code"].clone(),
                problem["detail"]
                    .as_str()
                    .unwrap_or_default()
                    .replace(name, "<name>"),
            )
        };
        assert_eq!(
            words(refused(&named), "token"),
            words(refused(&others), "other")
        );
        let granted = vault(
            &home,
            VAULT_KEY,
            "",
            &["vault", "grant", "token", "--allow", "local/*"],
        );
        assert_eq!(granted.code, 0, "{}", granted.stderr);
        wait_for("the server to see the grant", || refused(&mine).0 == 200);
    }
}

#[test]
fn removal_counts_the_purged_answers() {
    let (homes, _server) = homes();
    for home in homes {
        for (repo, credential) in [("a", "token"), ("a", "other"), ("b", "other")] {
            let arguments = [
                "run",
                "test.count",
                &format!("repo={repo}"),
                &format!("credential={credential}"),
            ];
            let run = vault(&home, VAULT_KEY, "", &arguments);
            assert_eq!(run.code, 0, "{}", run.stderr);
        }
        assert_eq!((rows(&home), made_with(&home, "other")), (3, 2));
        let removed = vault(
            &home,
            VAULT_KEY,
            "",
            &["vault", "remove", "other", "--yes", "--json"],
        );
        assert_eq!(
            serde_json::from_str::<Value>(&removed.stdout).unwrap()["purged"],
            2,
            "{}",
            removed.stderr
        );
        assert_eq!((rows(&home), made_with(&home, "token")), (1, 1));
    }
}

/// Lists stored answers of the pack.
fn stored(home: &Home) -> String {
    let run = home.run(KEY, &["cache", "ls", "--pack", "test.count", "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    run.stdout
}

/// Counts stored answers of the pack.
fn rows(home: &Home) -> usize {
    stored(home).matches("test.count/v1/").count()
}

/// Counts those that were made with a credential.
fn made_with(home: &Home, credential: &str) -> usize {
    stored(home)
        .matches(&format!("\"{}\"", credential_tag(credential)))
        .count()
}

#[test]
fn vault_works_without_memory_key() {
    let home = Home::new();
    install(&home, "test.count", COUNT, "[\"{credential|token}\"]");
    let run = |stdin: &str, arguments: &[&str]| {
        let mut command = home.command(KEY, arguments);
        feed(
            command
                .env_remove("HELMDECK_MEMORY_KEY")
                .env("HELMDECK_VAULT_KEY", VAULT_KEY),
            stdin,
        )
    };
    // Reading makes nothing.
    for arguments in [
        &["vault", "list"][..],
        &["vault", "log"],
        &["check"],
        &["run", "test.count"],
    ] {
        assert_eq!(run("", arguments).code, 0, "{arguments:?}");
        assert!(
            !home.data().join("helmdeck.db").exists(),
            "{arguments:?} made a file"
        );
    }
    let arguments = [
        "vault", "set", "token", "--type", "api_key", "--host", "*", "--allow", "*/*", "--pack",
        "test.*",
    ];
    assert_eq!(run("sparrow-one\n", &arguments).code, 0);
    assert_eq!(run("", &["run", "test.count", "credential=token"]).code, 0);
    assert_eq!(run("", &["run", "test.count", "credential=nobody"]).code, 9);
    assert_eq!(run("sparrow-two", &["vault", "rotate", "token"]).code, 0);
    assert_eq!(run("", &["vault", "remove", "token", "--yes"]).code, 0);
    assert!(!home.store().exists());
    // And without a vault key nothing of the vault runs.
    let mut command = home.command(KEY, &["run", "test.count", "credential=token"]);
    let run = feed(command.env_remove("HELMDECK_MEMORY_KEY"), "");
    assert!(
        run.code == 1 && run.stderr.contains("does not exist"),
        "{} {}",
        run.code,
        run.stderr
    );
}

#[test]
fn the_exit_codes_and_messages_of_the_vault() {
    let home = Home::new();
    set(&home, "token", "sparrow-one");
    let set_more = [
        "vault", "set", "more", "--type", "api_key", "--host", "a.test",
    ];
    let ssh = ["vault", "set", "more", "--type", "ssh", "--host", "a.test"];
    let login = [
        "vault", "set", "more", "--type", "login", "--host", "a.test",
    ];
    let ids = [VAULT_KEY, OTHER_VAULT_KEY].map(|key| {
        KeyRing::parse(("K", key), None)
            .unwrap()
            .current_id()
            .to_owned()
    });
    for (key, stdin, arguments, code, says) in [
        (VAULT_KEY, "", &set_more[..], 7, "empty"),
        (
            VAULT_KEY,
            "sparrow\nsparrow",
            &set_more,
            7,
            "more than one line",
        ),
        (VAULT_KEY, "sparrow-no-key", &ssh, 7, "not a private key"),
        (VAULT_KEY, "sparrow", &login, 2, "needs its user"),
        (VAULT_KEY, "sparrow", &set_more[..5], 2, "--host"),
        (
            VAULT_KEY,
            "x",
            &[
                "vault", "set", "No Name", "--type", "api_key", "--host", "a.test",
            ],
            2,
            "like github-token",
        ),
        (
            VAULT_KEY,
            "x",
            &[
                "vault",
                "set",
                "n",
                "--type",
                "api_key",
                "--host",
                "https://a",
            ],
            2,
            "without scheme",
        ),
        (
            VAULT_KEY,
            "x",
            &["vault", "rotate", "nobody"],
            3,
            "there is no credential",
        ),
        (
            VAULT_KEY,
            "",
            &["vault", "remove", "nobody", "--yes"],
            3,
            "there is no credential",
        ),
        (VAULT_KEY, "", &["vault", "remove", "token"], 2, "--yes"),
        (
            VAULT_KEY,
            "",
            &["vault", "revoke", "token", "--allow", "a/b"],
            2,
            "not allowed as such",
        ),
        (VAULT_KEY, "", &["check"], 0, "1 credentials"),
        (OTHER_VAULT_KEY, "", &["vault", "list"], 78, &ids[0]),
        (OTHER_VAULT_KEY, "", &["vault", "list"], 78, &ids[1]),
        (OTHER_VAULT_KEY, "x", &set_more, 78, "sealed with key"),
        (OTHER_VAULT_KEY, "", &["check"], 78, "sealed with key"),
        (
            OTHER_VAULT_KEY,
            "",
            &["run", "test.echo"],
            78,
            "sealed with key",
        ),
        (KEY, "", &["vault", "list"], 78, "of its own"),
        (KEY, "", SERVE, 78, "of its own"),
        (KEY, "", &["check"], 78, "of its own"),
        (
            &VAULT_KEY[1..],
            "",
            &["vault", "list"],
            78,
            "HELMDECK_VAULT_KEY",
        ),
    ] {
        let run = vault(&home, key, stdin, arguments);
        let said = run.stdout + &run.stderr;
        assert_eq!(
            (run.code, said.contains(says)),
            (code, true),
            "{arguments:?}: {said}"
        );
        assert!(!said.contains("sparrow"), "{said}");
    }
    // Without the key: names, versions and times, and removal.
    let listed = home.run(KEY, &["vault", "list", "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["hosts"]),
        (&json!("token"), &Value::Null)
    );
    assert_eq!(home.run(KEY, &["vault", "rotate", "token"]).code, 3);
    // Another key takes over by name, and then the old one opens nothing.
    let mut command = home.command(KEY, &["vault", "rekey", "--json"]);
    command
        .env("HELMDECK_VAULT_KEY", OTHER_VAULT_KEY)
        .env("HELMDECK_VAULT_KEY_PREVIOUS", VAULT_KEY);
    let rekeyed: Value = serde_json::from_str(&feed(&mut command, "").stdout).unwrap();
    assert_eq!(
        (&rekeyed["resealed"], &rekeyed["key_id"]),
        (&json!(1), &json!(ids[1]))
    );
    assert_eq!(vault(&home, VAULT_KEY, "", &["vault", "list"]).code, 78);
    assert_eq!(
        vault(&home, OTHER_VAULT_KEY, "", &["vault", "list"]).code,
        0
    );
    assert_eq!(
        home.run(KEY, &["vault", "remove", "token", "--yes"]).code,
        0
    );
}

#[tokio::test]
async fn eight_concurrent_sets_are_all_kept() {
    let home = Home::new();
    std::thread::scope(|scope| {
        for n in 0..8 {
            let home = &home;
            scope.spawn(move || {
                set(home, &format!("own-{n}"), &format!("sparrow-own-{n}"));
                set(home, "shared", &format!("sparrow-shared-{n}"));
            });
        }
    });
    for n in 0..8 {
        assert_eq!(
            reveal(&home, VAULT_KEY, &format!("own-{n}")).await,
            Some(format!("sparrow-own-{n}"))
        );
    }
    let shared = reveal(&home, VAULT_KEY, "shared").await.unwrap();
    assert!(
        (0..8).any(|n| shared == format!("sparrow-shared-{n}")),
        "{shared}"
    );
}

#[tokio::test]
async fn killed_rotation_leaves_old_or_new_secret() {
    let home = Home::new();
    set(&home, "token", "sparrow-0");
    let (mut last, mut kept, mut taken) = ("sparrow-0".to_owned(), 0, 0);
    // How long a whole rotation takes here, to kill all along it.
    let start = Instant::now();
    assert_eq!(
        vault(&home, VAULT_KEY, &last, &["vault", "rotate", "token"]).code,
        0
    );
    let whole = start.elapsed();
    let begun = Instant::now();
    for n in 1_u32.. {
        if kept >= 8 && taken >= 8 {
            break;
        }
        assert!(
            begun.elapsed() < STUCK,
            "killed before {kept} times and after {taken} times"
        );
        let new = format!("sparrow-{n}");
        let mut command = home.command(KEY, &["vault", "rotate", "token"]);
        command
            .env("HELMDECK_VAULT_KEY", VAULT_KEY)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(new.as_bytes())
            .unwrap();
        // From at once to twice as long as it takes, again and again.
        std::thread::sleep(whole * (n % 24) / 12);
        child.kill().unwrap();
        child.wait().unwrap();
        let now = reveal(&home, VAULT_KEY, "token").await.unwrap();
        assert!(
            now == last || now == new,
            "{now} is neither {last} nor {new}"
        );
        if now == last {
            kept += 1
        } else {
            taken += 1
        }
        last = now;
    }
    assert_eq!(vault(&home, VAULT_KEY, "", &["vault", "list"]).code, 0);
}

/// What is looked for: parts of the three secrets that no spelling of them is without, and what
/// base64 and hex make of those.
pub(crate) struct Canaries(Vec<String>);

impl Canaries {
    pub(crate) const API_KEY: &str = "canary7Kq2ApiKey";
    const PASSWORD: &str = "pass canary9Zw4 word/+";
    const PASSPHRASE: &str = "canary3Fx8Phrase";
    const SSH: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\ncanary5Tm1b3BlbnNzaC1rZXk\ncanary6Uj0AAAABG5vbmUAAAA\n-----END OPENSSH PRIVATE KEY-----\n";

    pub(crate) fn new() -> Self {
        let mut needles: Vec<String> = [
            "canary7Kq2",
            "canary9Zw4",
            "canary3Fx8",
            "canary5Tm1",
            "canary6Uj0",
        ]
        .map(str::to_owned)
        .into();
        for plain in needles.clone() {
            needles.push(plain.bytes().map(|byte| format!("{byte:02x}")).collect());
            needles.push(plain.bytes().map(|byte| format!("{byte:02X}")).collect());
            for offset in 0..3 {
                needles
                    .push(base64(&[&b"xx"[..offset], plain.as_bytes()].concat())[4..12].to_owned());
            }
        }
        Self(needles)
    }

    #[track_caller]
    pub(crate) fn absent(&self, what: &str, bytes: &[u8]) {
        for needle in &self.0 {
            if let Some(at) = bytes
                .windows(needle.len())
                .position(|window| window == needle.as_bytes())
            {
                let near = &bytes[at.saturating_sub(200)..bytes.len().min(at + 100)];
                panic!(
                    "{what} holds \"{needle}\": {}",
                    String::from_utf8_lossy(near)
                );
            }
        }
    }
}

/// Writes base64 (RFC 4648) without padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<u8> = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1))
        .collect();
    let digit = |bits: &[u8]| {
        bits.iter()
            .chain(&[0; 6])
            .take(6)
            .fold(0, |digit, bit| digit << 1 | usize::from(*bit))
    };
    bits.chunks(6)
        .map(|bits| char::from(DIGITS[digit(bits)]))
        .collect()
}

/// Returns the process and all below it, as (id, `cmdline`, `environ`).
pub(crate) fn processes(root: u32) -> Vec<(u32, Vec<u8>, Vec<u8>)> {
    let mut all = vec![root];
    let mut at = 0;
    while at < all.len() {
        let children = format!("/proc/{0}/task", all[at]);
        for task in std::fs::read_dir(children).into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(
                text.split_whitespace()
                    .filter_map(|id| id.parse::<u32>().ok()),
            );
        }
        at += 1;
    }
    let read =
        |id: u32, name: &str| std::fs::read(format!("/proc/{id}/{name}")).unwrap_or_default();
    all.into_iter()
        .map(|id| (id, read(id, "cmdline"), read(id, "environ")))
        .collect()
}

/// Returns all files below a folder.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Shows what it was given, and waits until it is let go.
const SHOW: &str = "#!/bin/sh\n\
    cat /proc/self/environ /proc/$$/cmdline >&2\n\
    input=$(cat)\n: >began\nwhile [ ! -e go ]; do sleep 0.02; done\nprintf '{\"input\":%s,\"env\":\"%s\"}' \"$input\" \"$(env | tr '\\n\"' ' _')\"\n";

#[test]
fn no_secret_of_any_type_is_seen_anywhere() {
    let (github, home, canaries) = (GitHub::start(), Home::new(), Canaries::new());
    install(&home, "test.show", SHOW, "[\"api\", \"login\", \"ssh\"]");
    let passphrase = home
        .packs()
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("passphrase");
    std::fs::write(&passphrase, format!("{}\n", Canaries::PASSPHRASE)).unwrap();
    let grants = [
        "--host",
        "127.0.0.1",
        "--allow",
        "local/local",
        "--pack",
        "*",
    ];
    for (name, kind, secret, more) in [
        ("api", "api_key", Canaries::API_KEY, &[][..]),
        ("login", "login", Canaries::PASSWORD, &["--user", "bot"]),
        (
            "ssh",
            "ssh",
            Canaries::SSH,
            &["--passphrase-file", passphrase.to_str().unwrap()],
        ),
        // The same with another host: it must never be sent to this one.
        (
            "elsewhere",
            "api_key",
            Canaries::API_KEY,
            &["--host", "api.example.com"],
        ),
    ] {
        let grants = if name == "elsewhere" {
            &grants[2..]
        } else {
            &grants[..]
        };
        let arguments = [&["vault", "set", name, "--type", kind], grants, more].concat();
        let mut command = home.command(KEY, &arguments);
        let run = feed(
            command
                .env("HELMDECK_VAULT_KEY", VAULT_KEY)
                .env("HELMDECK_LOG", "trace"),
            secret,
        );
        assert_eq!(run.code, 0, "{}", run.stderr);
        canaries.absent(name, (run.stdout + &run.stderr).as_bytes());
    }
    std::fs::remove_file(&passphrase).unwrap();
    let settings = [
        ("HELMDECK_LOG", "trace"),
        ("HELMDECK_GITHUB_BASE_URL", &*github.url()),
    ];
    let mut server = start(&home, &settings);

    // A program of a pack that declares them gets none of them; nor is one in the arguments or
    // environment of any process.
    let shown = std::thread::scope(|scope| {
        let show = scope.spawn(|| server.ask("POST /api/v1/packs/test.show", "{}"));
        wait_for("the program to run", || home.packs().join("began").exists());
        let running = processes(server.pid());
        assert!(running.len() >= 2, "the program is among them");
        for (id, arguments, environment) in running {
            canaries.absent(&format!("cmdline of {id}"), &arguments);
            canaries.absent(&format!("environ of {id}"), &environment);
        }
        std::fs::write(home.packs().join("go"), "").unwrap();
        show.join().unwrap()
    });
    assert!(
        shown.code == 200 && shown.body.contains("PATH="),
        "{}",
        shown.body
    );
    canaries.absent("a program's output", shown.body.as_bytes());

    // GitHub is given each, and says it back in every way.
    let list = |credential: &str| {
        json!({"repo": "octokit-fixture-org/paginate-issues", "per_page": 3, "credential": credential}).to_string()
    };
    let said = |secret: &str| {
        let basic = base64(format!("bot:{secret}").as_bytes());
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        format!(
            "{secret} {basic} {hex} {} {}",
            basic.replace('+', "-"),
            secret.replace('/', "%2F").replace(' ', "+")
        )
    };
    for (name, secret) in [("api", Canaries::API_KEY), ("login", Canaries::PASSWORD)] {
        for (wish, code) in [
            (
                json!({"status": 422, "body": {"message": said(secret), "errors": [said(secret)]}}),
                400,
            ),
            (
                json!({"status": 500, "times": 4, "body": {"message": said(secret)}}),
                502,
            ),
            (
                json!({"status": 200, "body": [{"number": 1, "title": said(secret), "state": "open", "labels": [],
                    "user": {"login": said(secret)}, "body": said(secret), "html_url": said(secret),
                    "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z"}]}),
                200,
            ),
        ] {
            github.control(&wish);
            let answer = server.ask(
                "POST /api/v1/packs/github.list_issues\nCache-Control: no-cache",
                &list(name),
            );
            canaries.absent(name, answer.body.as_bytes());
            assert_eq!(answer.code, code, "{}", answer.body);
            assert!(
                code != 200 || answer.body.contains("[secret]"),
                "{}",
                answer.body
            );
            let kept = server.look(
                "github.list_issues",
                &serde_json::from_str(&list(name)).unwrap(),
            );
            assert_eq!(
                kept, "cache_miss",
                "an answer with a secret in it is never stored"
            );
        }
        for status in ["miss", "hit"] {
            let answer = server.ask("POST /api/v1/packs/github.list_issues", &list(name));
            canaries.absent(name, answer.body.as_bytes());
            assert_eq!(
                (answer.code, answer.status().as_str()),
                (200, status),
                "{name}"
            );
        }
    }
    // A private key fits no header; what is said about it does not say it.
    let refused = server.ask("POST /api/v1/packs/github.list_issues", &list("ssh"));
    assert_eq!(refused.status(), "credential_invalid", "{}", refused.body);
    canaries.absent("ssh", refused.body.as_bytes());
    let before = github.log().len();
    let elsewhere = server.ask("POST /api/v1/packs/github.list_issues", &list("elsewhere"));
    assert!(
        elsewhere.code == 403 && elsewhere.body.contains("not for the host"),
        "{}",
        elsewhere.body
    );
    assert_eq!(
        github.log().len(),
        before,
        "nothing is sent to a host that it is not for"
    );

    for path in [
        "GET /metrics",
        "GET /readyz",
        "GET /api/v1/memory/entries",
        "GET /api/v1/packs/github.list_issues",
    ] {
        canaries.absent(path, server.ask(path, "").body.as_bytes());
    }
    for arguments in [
        &["vault", "list", "--json"][..],
        &["vault", "list"],
        &["vault", "log"],
        &["memory", "list"],
        &["cache", "ls"],
        &["check"],
        &["config", "show", "--origin"],
        &["run", "test.show", "--json"],
        &["run", "github.list_issues", "repo=a/b", "credential=ssh"],
        &[
            "cache",
            "explain",
            "github.list_issues",
            "repo=octokit-fixture-org/paginate-issues",
            "per_page=3",
            "credential=api",
        ],
    ] {
        let mut command = home.command(KEY, arguments);
        command.envs(settings).env("HELMDECK_VAULT_KEY", VAULT_KEY);
        let run = feed(&mut command, "");
        canaries.absent(
            &format!("{arguments:?}"),
            (run.stdout + &run.stderr).as_bytes(),
        );
    }
    let used = vault(&home, VAULT_KEY, "", &["vault", "log", "api", "--json"]);
    let used: Value = serde_json::from_str(&used.stdout).unwrap();
    let of_github = used
        .as_array()
        .unwrap()
        .iter()
        .find(|line| line["pack"] == "github.list_issues")
        .unwrap();
    assert!(
        of_github["granted"].as_u64().unwrap() >= 3 && of_github["user"] == "local",
        "{used}"
    );

    let looked_into = |folder: &Path| {
        let all = files(folder);
        for file in &all {
            canaries.absent(&file.display().to_string(), &std::fs::read(file).unwrap());
        }
        all.len()
    };
    let home_folder = home.data().ancestors().nth(3).unwrap().to_owned();
    assert!(looked_into(&home_folder) > 5);
    server.signal("-TERM");
    assert_eq!(server.ended(), Some(0));
    looked_into(&home_folder);
    let log = server.log();
    assert!(
        log.contains("hyper") && log.contains("wrote to stderr"),
        "the log is looked into at its most talkative"
    );
    canaries.absent("the log", log.as_bytes());
    assert!(
        github
            .log()
            .iter()
            .any(|entry| entry["with_credential"] == true),
        "the credential was sent"
    );
}

#[test]
fn different_memory_keys_share_no_vault_key() {
    // The key of the one must not be the other's by mistake, whichever variable it is in.
    let home = Home::new();
    let run = feed(
        home.command(OTHER_KEY, &["check"])
            .env("HELMDECK_VAULT_KEY", OTHER_KEY),
        "",
    );
    assert!(
        run.code == 78 && run.stdout.contains("of its own"),
        "{}{}",
        run.stdout,
        run.stderr
    );
}
