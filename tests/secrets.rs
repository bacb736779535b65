//! Secrets never leave: canary credentials are put into everything that a handler, GitHub or an
//! operator can say, and then looked for in everything that comes out. What is looked for in the
//! log is looked for at its most talkative level.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use helmdeck_core::context::ProgressSink;
use helmdeck_core::error::Violation;
use helmdeck_core::{Code, Context, Error, Identity, Json, Reply, Result};
use helmdeck_engine::{AuditPage, Engine};
use helmdeck_memory::Order;
use helmdeck_memory::{Kind, Namespace};
use helmdeck_server::{Server, ServerConfig};
use helmdeck_testkit::{KEY, ManualClock, OTHER_KEY, call, function, manifest};
use http::Request;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::stand_in::GitHub;
use crate::support::PATIENT;
use crate::support::engine::{self, Log, Wallet};

/// A credential that JSON and URLs write differently, and one that fits into a file's name.
const ODD: &str = "sparrow w7zq\"9b/+";
const PLAIN: &str = "sparrow-k2vx";
/// Parts of the two that no spelling of them is without.
const NEEDLES: [&str; 3] = ["sparrow", "w7zq", "k2vx"];
/// What is no secret, to show that the places are looked into.
const MARKER: &str = "harmless-marker";

/// Returns everything that any crate logs in this process from now on.
fn log() -> Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    let start = || {
        let log = Log::default();
        let writer = log.clone();
        tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
            .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .init();
        log
    };
    LOG.get_or_init(start).clone()
}

#[track_caller]
fn assert_clean(what: &str, bytes: &[u8]) {
    for needle in NEEDLES {
        let at = bytes
            .windows(needle.len())
            .position(|window| window == needle.as_bytes());
        if let Some(at) = at {
            let near = &bytes[at.saturating_sub(200)..bytes.len().min(at + 100)];
            panic!(
                "{what} holds \"{needle}\": {}",
                String::from_utf8_lossy(near)
            );
        }
    }
}

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
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

/// Looks into every file, raw, and at its name.
#[track_caller]
fn assert_clean_files(folder: &Path) {
    for file in files(folder) {
        let name = file.strip_prefix(folder).unwrap().display().to_string();
        let bytes = std::fs::read(&file).unwrap();
        assert_clean(&name, name.as_bytes());
        assert_clean(&name, &bytes);
        let sealed = !name.ends_with(".txt");
        assert!(
            !sealed || !String::from_utf8_lossy(&bytes).contains(MARKER),
            "{name} is in the clear"
        );
    }
}

/// Says both credentials in the way that the input names.
async fn say(cx: Context, input: Json) -> Result<Reply> {
    let secrets = cx.secrets.clone().unwrap();
    let (odd, plain) = (secrets.get("odd")?.unwrap(), secrets.get("plain")?.unwrap());
    let (odd, plain) = (odd.expose(), plain.expose());
    let both = format!("{odd} and {plain}");
    cx.report(Some(1.0), &format!("logging in with {both}"));
    let fine = || Json::parse(format!("{{\"text\":\"{MARKER}\"}}")).unwrap();
    let way = input.to_value()["way"].as_str().unwrap().to_owned();
    match way.as_str() {
        "output" => Reply::value(&json!({
            "text": both, "url": "https://x/?q=sparrow%20w7zq%229b%2F%2B", "list": [{"deep": odd}], odd: 1, plain: null,
        })),
        "broken output" => Reply::value(&json!([both])),
        "no document" => Ok(Reply::json(Json::parse(format!("\"{plain}\"")).unwrap())),
        "validator" => Ok(Reply::json(fine()).with_validator(format!("\"{plain}\""))),
        "failed confirmation" if cx.stale.is_none() => Ok(Reply::json(fine()).with_validator("v1")),
        "error" | "failed confirmation" => {
            Err(Error::new(Code::HandlerFailed, both.clone())
                .with_source(std::io::Error::other(both)))
        }
        "violations" => Err(
            Error::new(Code::InvalidInput, both.clone()).with_violations(vec![Violation {
                pointer: format!("/{plain}"),
                detail: both,
            }]),
        ),
        "panic" => panic!("{both}"),
        "file" => {
            cx.put_artifact("notes.txt", "text/plain", format!("{MARKER} {both}"))
                .await?;
            Ok(Reply::json(fine()))
        }
        "name of a file" => {
            cx.put_artifact(&format!("{plain}.txt"), "text/plain", MARKER)
                .await?;
            Ok(Reply::json(fine()))
        }
        "type of a file" => {
            cx.put_artifact("typed.txt", &format!("text/plain; token={plain}"), MARKER)
                .await?;
            Ok(Reply::json(fine()))
        }
        // A pack that gets a secret from a handler may neither show nor store it.
        "told to another" | "told to another that fails" => {
            let told = Json::from_serialize(&json!({"said": both, "fail": way.ends_with("fails")}))
                .unwrap();
            let outcome = cx.call("t.told", told).await?;
            Ok(Reply::json(outcome.output))
        }
        _ => Ok(Reply::json(fine())),
    }
}

/// Repeats its input.
async fn repeat(_: Context, input: Json) -> Result<Reply> {
    if input.to_value()["fail"] == true {
        return Err(Error::new(
            Code::HandlerFailed,
            format!("cannot repeat {}", input.as_str()),
        ));
    }
    Ok(Reply::json(input))
}

const WAYS: [&str; 14] = [
    "output",
    "broken output",
    "no document",
    "validator",
    "failed confirmation",
    "error",
    "violations",
    "panic",
    "file",
    "name of a file",
    "type of a file",
    "told to another",
    "told to another that fails",
    "nothing",
];

#[derive(Default)]
struct Progress(Mutex<String>);

impl ProgressSink for Progress {
    fn report(&self, _: Option<f32>, message: &str) {
        self.0.lock().unwrap().push_str(message);
    }
}

/// Sends a request and returns all of the answer: status, headers, body.
async fn send(router: &Router, request: http::request::Builder, body: String) -> String {
    let request = request
        .header("host", "localhost")
        .header("content-type", "application/json");
    let answer = router
        .clone()
        .oneshot(request.body(Body::from(body)).unwrap())
        .await
        .unwrap();
    let (parts, body) = answer.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    format!(
        "{} {:?}\n{}",
        parts.status,
        parts.headers,
        String::from_utf8_lossy(&body)
    )
}

/// Runs every way of one pack in process and over REST, and checks what it says.
async fn run_all(engine: &Engine, router: &Router, pack: &str) {
    for way in WAYS {
        let input = json!({"way": way}).to_string();
        let progress = Arc::new(Progress::default());
        let mut with_progress = call(pack, &input);
        with_progress.progress = Some(Arc::clone(&progress) as _);
        match engine.call(with_progress).await {
            Ok(outcome) => {
                assert_clean(way, &outcome.to_json());
                assert_clean(way, format!("{outcome:?}").as_bytes());
                for artifact in outcome.artifacts.iter() {
                    let path = format!("/api/v1/artifacts/{}", artifact.key);
                    assert_clean(
                        way,
                        send(router, Request::get(path), String::new())
                            .await
                            .as_bytes(),
                    );
                }
            }
            Err(error) => {
                assert_clean(
                    way,
                    format!("{error} {error:?} {} {}", error.problem(), error.cause()).as_bytes(),
                );
            }
        }
        let said = progress.0.lock().unwrap().clone();
        assert!(said.contains("logging in with [secret]"), "{way}: {said}");
        assert_clean(way, said.as_bytes());
        for key in ["one", "one", "two"] {
            let request = Request::post(format!("/api/v1/packs/{pack}")).header(
                "idempotency-key",
                format!("{}-{key}", way.replace(' ', "-")),
            );
            assert_clean(way, send(router, request, input.clone()).await.as_bytes());
        }
    }
}

#[tokio::test]
async fn no_handler_output_contains_a_secret() {
    let log = log();
    let (clock, folder) = (
        Arc::new(ManualClock::default()),
        tempfile::tempdir().unwrap(),
    );
    let schemas = "[input]\ntype = \"object\"\n[output]\ntype = \"object\"\n";
    let cached = format!(
        "{schemas}[memory]\ncache = true\nttl = \"1m\"\nrevalidate = true\nstale_if_error = \"1h\"\n"
    );
    let names = "credentials = [\"odd\", \"plain\"]";
    let told = manifest(
        "t.told",
        "read_only = true",
        "[memory]\ncache = true\nttl = \"1m\"\n",
    );
    let mut packs = vec![function(&told, repeat).0];
    for (name, read_only, rest) in [
        ("t.read", true, cached.as_str()),
        ("t.write", false, schemas),
    ] {
        packs.push(
            function(
                &manifest(name, &format!("read_only = {read_only}\n{names}"), rest),
                say,
            )
            .0,
        );
    }
    let memory = engine::memory(folder.path(), &clock).await;
    let (keyring, system) = (Arc::clone(&memory.keyring), memory.system.clone().unwrap());
    let wallet = Wallet::of(&[("odd", ODD), ("plain", PLAIN)]);
    let engine = engine::engine(packs, &clock, &wallet, folder.path(), Some(memory));
    let server =
        Server::new(engine.clone(), ServerConfig::default()).clock(Arc::clone(&clock) as _);
    let router = server.remember(system, Some(keyring)).router();

    for pack in ["t.read", "t.write"] {
        run_all(&engine, &router, pack).await;
        // Once more with answers that have ended, which a failing handler falls back to.
        clock.advance(Duration::from_secs(61));
        run_all(&engine, &router, pack).await;
    }
    let explained = engine
        .explain(call("t.read", "{\"way\":\"validator\"}"))
        .await
        .unwrap();
    assert_clean("explain", format!("{explained:?}").as_bytes());
    for path in [
        "/metrics",
        "/readyz",
        "/api/v1/packs/t.read",
        "/api/v1/memory/namespaces",
    ] {
        assert_clean(
            path,
            send(&router, Request::get(path), String::new())
                .await
                .as_bytes(),
        );
    }
    let metrics = engine.metrics();
    assert!(
        metrics.contains("helmdeck_cache_refused_total{reason=\"secret\"}"),
        "{metrics}"
    );

    engine.memory().unwrap().flush().await;
    assert!(
        files(folder.path())
            .iter()
            .any(|file| file.ends_with("memory.db-wal")),
        "the log of the file is looked into"
    );
    assert_clean_files(folder.path());
    engine.shutdown().await;
    assert_clean_files(folder.path());

    // Nothing is seen in a sealed file, so the rows are opened too.
    let store = engine::memory(folder.path(), &clock).await.store;
    for kind in Kind::ALL {
        let rows = store
            .scan(
                &Namespace::of_caller(&Identity::local()),
                kind,
                "",
                Order::KeyAscending,
                1000,
            )
            .await
            .unwrap();
        let values: Vec<_> = rows
            .entries
            .iter()
            .map(|entry| String::from_utf8_lossy(&entry.value))
            .collect();
        assert_clean(kind.as_str(), format!("{values:?} {rows:?}").as_bytes());
        assert_clean(kind.as_str(), values.concat().as_bytes());
        match kind {
            Kind::Cache => assert!(values.concat().contains(MARKER)),
            Kind::Audit => {
                let pages = values
                    .iter()
                    .map(|page| serde_json::from_str::<AuditPage>(page).unwrap().rows);
                let rows = pages.flatten().count();
                assert!(rows >= 8 * WAYS.len(), "{rows}");
            }
            Kind::Head => assert_eq!(values.len(), 1, "of the audit"),
            _ => assert!(values.is_empty()),
        }
    }
    let text = log.text();
    assert!(
        text.contains("call failed: ") && text.contains("a stale answer is served"),
        "the log is looked into"
    );
    assert_clean("the log", text.as_bytes());
}

#[tokio::test]
async fn a_token_for_github_stays_between_the_two() {
    let log = log();
    let (github, clock, folder) = (
        GitHub::start(),
        Arc::new(ManualClock::default()),
        tempfile::tempdir().unwrap(),
    );
    let memory = engine::memory(folder.path(), &clock).await;
    let wallet = Wallet::of(&[("github-token", PLAIN)]);
    let engine = engine::engine(
        engine::builtins(&github.url(), &clock),
        &clock,
        &wallet,
        folder.path(),
        Some(memory),
    );
    let list = json!({"repo": "octokit-fixture-org/paginate-issues", "per_page": 3}).to_string();
    let mut ends = Vec::new();
    for wish in [
        json!({"status": 200, "headers": {"etag": format!("\"{PLAIN}\"")}, "body": []}),
        json!({"status": 422, "body": {"message": format!("bad token {PLAIN}"), "errors": [PLAIN]}}),
        json!({"status": 403, "headers": {"x-github-sso": format!("required; url=https://x/{PLAIN}")}}),
        json!({"status": 302, "headers": {"location": format!("https://10.0.0.1/{PLAIN}")}}),
        json!({"status": 200, "headers": {"link": format!("<http://127.0.0.1/{PLAIN}>; rel=\"next\"")}, "body": []}),
        json!({"status": 200, "body": PLAIN}),
        json!({"status": 500, "times": 4, "body": {"message": PLAIN}}),
        json!({}),
    ] {
        github.control(&wish);
        match engine.call(call("github.list_issues", &list)).await {
            Ok(outcome) => {
                assert_clean(
                    "an outcome",
                    format!("{outcome:?} {}", outcome.output.as_str()).as_bytes(),
                );
                ends.push("ok");
            }
            Err(error) => {
                assert_clean(
                    "an error",
                    format!("{error} {error:?} {} {}", error.problem(), error.cause()).as_bytes(),
                );
                ends.push(error.code().as_str());
            }
        }
        // The next one is asked anew.
        clock.advance(Duration::from_secs(7200));
    }
    assert_eq!(
        (ends[0], ends[1], *ends.last().unwrap()),
        ("ok", "invalid_input", "ok"),
        "{ends:?}"
    );
    assert!(
        github
            .log()
            .iter()
            .all(|entry| entry["with_credential"] == true && entry["if_none_match"].is_null())
    );
    engine.shutdown().await;
    assert_clean_files(folder.path());
    let text = log.text();
    assert!(
        text.contains("hyper"),
        "the log of what sends the requests is looked into"
    );
    assert_clean("the log", text.as_bytes());
}

#[test]
fn program_prints_no_key_and_no_credential() {
    let (github, home) = (GitHub::start(), tempfile::tempdir().unwrap());
    let config = home.path().join("helmdeck.toml");
    let text = format!(
        "[github]\nbase_url = \"{}\"\n[credentials]\ngithub-token = \"env:GITHUB_TOKEN\"\n",
        github.url()
    );
    std::fs::write(&config, text).unwrap();
    let list = [
        "run",
        "github.list_issues",
        "repo=octokit-fixture-org/paginate-issues",
        "per_page=3",
        "--json",
    ];
    let explain = [
        "cache",
        "explain",
        "github.list_issues",
        "repo=octokit-fixture-org/paginate-issues",
        "per_page=3",
    ];
    let malformed = format!("{OTHER_KEY}0");
    for (arguments, key, code, shows) in [
        (&["check"][..], KEY, 0, "well-formed"),
        (&["key", "check"], KEY, 0, ""),
        (&["config", "show", "--origin"], KEY, 0, "(set)"),
        (&list, KEY, 0, "\"status\":\"miss\""),
        (&list, KEY, 0, "\"status\":\"hit\""),
        (&explain, KEY, 0, "fresh"),
        (&["memory", "status"], KEY, 0, ""),
        (&["memory", "list"], KEY, 0, ""),
        (&["memory", "doctor"], KEY, 0, ""),
        (&["cache", "savings"], KEY, 0, ""),
        (&list, OTHER_KEY, 78, "this store was written with key"),
        (
            &["memory", "doctor"],
            OTHER_KEY,
            78,
            "this store was written with key",
        ),
        (&list, &malformed, 78, "HELMDECK_MEMORY_KEY"),
        (&["key", "check"], &malformed, 78, "HELMDECK_MEMORY_KEY"),
    ] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_helmdeck"));
        program
            .args(arguments)
            .env_clear()
            .current_dir(home.path())
            .stdin(Stdio::null());
        let ended = program
            .envs([("HOME", home.path()), ("HELMDECK_CONFIG", &config)])
            .envs([
                ("HELMDECK_MEMORY_KEY", key),
                ("GITHUB_TOKEN", PLAIN),
                ("HELMDECK_LOG", "trace"),
                ("PATH", "/usr/bin:/bin"),
            ])
            .envs(PATIENT)
            .output()
            .unwrap();
        let said = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
        assert_eq!(
            (ended.status.code(), said.contains(shows)),
            (Some(code), true),
            "{arguments:?}: {said}"
        );
        assert_clean(&format!("{arguments:?}"), said.as_bytes());
        for key in [KEY, OTHER_KEY] {
            let half = &key[..32];
            assert!(
                !said.to_lowercase().contains(half),
                "{arguments:?} shows a key"
            );
        }
    }
    assert!(
        github
            .log()
            .iter()
            .all(|entry| entry["with_credential"] == Value::Bool(true))
    );
    assert_clean_files(home.path());
}
