//! The two gates over every built-in pack: with either shut, a call is byte for byte what it is
//! where the lines about memory were left out. Clock and ids stand still, so nothing needs to be
//! taken out before comparing.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use helmdeck_core::{Builtin, Manifest};
use helmdeck_engine::Engine;
use helmdeck_server::{Server, ServerConfig};
use helmdeck_system::System;
use helmdeck_testkit::{ManualClock, call};
use http::Request;
use serde_json::{Value, json};
use tower::ServiceExt;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};

use crate::stand_in::GitHub;
use crate::support::engine::{self, Log, Wallet};

/// What a request may ask of the cache; with a gate shut, none of it means anything.
const DIRECTIVES: [Option<&str>; 4] = [None, None, Some("no-cache"), Some("only-if-cached")];

/// What the packs are run on.
struct Fixture {
    github: GitHub,
    source: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let source = tempfile::tempdir().unwrap();
        std::fs::write(
            source.path().join("lib.rs"),
            "pub fn greet() {}\npub fn twice() { greet(); greet() }\n",
        )
        .unwrap();
        for arguments in [
            &["init", "-q"][..],
            &["add", "."],
            &["commit", "-q", "-m", "x"],
        ] {
            let mut git = Command::new("git");
            git.args([
                "-c",
                "user.name=x",
                "-c",
                "user.email=x@x",
                "-c",
                "commit.gpgsign=false",
            ])
            .args(arguments);
            assert!(
                git.current_dir(source.path())
                    .env("GIT_CONFIG_GLOBAL", "/dev/null")
                    .status()
                    .unwrap()
                    .success()
            );
        }
        Self {
            github: GitHub::start(),
            source,
        }
    }

    /// Returns the calls of one pack: its examples, what GitHub has recordings of, and what is
    /// refused.
    fn inputs(&self, manifest: &Manifest) -> Vec<String> {
        let mut inputs: Vec<Value> = manifest
            .examples
            .iter()
            .map(|example| example.input.clone())
            .collect();
        inputs.extend(match manifest.name.as_str() {
            "github.create_issue" => Some(json!({"repo": "farrd/PyGithub", "title": "t"})),
            "github.comment" => {
                Some(json!({"repo": "sigmavirus24/github3.py", "number": 423, "body": "b"}))
            }
            "github.create_pr" => {
                Some(json!({"repo": "github3py/fork_this", "title": "t", "head": "a", "base": "b"}))
            }
            "github.create_release" => {
                Some(json!({"repo": "sigmavirus24/github3.py", "tag_name": "v1"}))
            }
            "github.get_issue" => Some(json!({"repo": "PyGithub/PyGithub", "number": 28})),
            _ => None,
        });
        inputs.extend([
            json!({}),
            json!({"nonsense": 1}),
            json!({"credential": "nobodys"}),
            json!([]),
        ]);
        for input in &mut inputs {
            if let Some(path) = input.get_mut("path") {
                *path = json!(self.source.path());
            }
        }
        inputs
            .iter()
            .map(Value::to_string)
            .chain(["{".to_owned()])
            .collect()
    }
}

/// How the author of a pack stands to memory.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Author {
    /// Never heard of it: there is no `[memory]`.
    Unaware,
    /// Gate 2 is shut: `[memory]` is there and does not say `cache = true`.
    Shut,
    /// As the packs are shipped.
    AsShipped,
}

impl Author {
    fn edit(self, manifest: &str) -> String {
        let mut in_memory = false;
        let kept = manifest.lines().filter(|line| {
            if line.starts_with('[') {
                in_memory = *line == "[memory]";
            }
            match self {
                Self::AsShipped => true,
                Self::Shut => {
                    !in_memory || !(line.starts_with("cache =") || line.starts_with("ttl ="))
                }
                Self::Unaware => !in_memory,
            }
        });
        kept.map(|line| format!("{line}\n")).collect()
    }
}

/// All that can be seen of a stack from outside.
#[derive(Debug, Default)]
struct Seen {
    /// Each call and its answer.
    answers: Vec<(String, String)>,
    /// What monitoring reads, line by line; metrics have no order.
    operations: Vec<String>,
    /// What our own code logged.
    log: String,
    /// The files that were made.
    files: Vec<PathBuf>,
    /// How many tasks live when only packs have run that keep no connection open and are no job.
    tasks: usize,
}

/// Runs every pack through a separate stack, in process and over REST.
fn observe(fixture: &Fixture, gate_one: bool, author: Author) -> Seen {
    let log = Log::default();
    let writer = log.clone();
    let ours =
        tracing_subscriber::filter::filter_fn(|metadata| metadata.target().starts_with("helmdeck"));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(move || writer.clone())
        .without_time()
        .with_ansi(false);
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(ours));
    let _while_here = tracing_subscriber::util::SubscriberInitExt::set_default(subscriber);
    // One thread, so that the log of this stack is complete and of no other.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut seen = runtime.block_on(run_all(fixture, gate_one, author));
    seen.log = log.text();
    seen
}

async fn run_all(fixture: &Fixture, gate_one: bool, author: Author) -> Seen {
    let (clock, folder) = (
        Arc::new(ManualClock::default()),
        tempfile::tempdir().unwrap(),
    );
    let mut packs = engine::builtins(&fixture.github.url(), &clock);
    for pack in &mut packs {
        pack.manifest = Box::leak(author.edit(pack.manifest).into_boxed_str());
    }
    // These last, because connections that are kept open, and jobs, are tasks too.
    let has_tasks = |pack: &Builtin| pack.file.contains("/github/") || pack.file.contains("/swe/");
    packs.sort_by_key(has_tasks);
    let memory = if gate_one {
        Some(engine::memory(folder.path(), &clock).await)
    } else {
        None
    };
    let keyring = memory.as_ref().map(|memory| Arc::clone(&memory.keyring));
    let wallet = Wallet::of(&[("github-token", "a-token-of-nobody")]);
    let engine = engine::engine(packs.clone(), &clock, &wallet, folder.path(), memory);
    let server = Server::new(engine.clone(), ServerConfig::default()).clock(clock);
    let router = server
        .remember(System::at(folder.path().join("helmdeck.db")), keyring)
        .router();

    let mut seen = Seen {
        tasks: usize::MAX,
        ..Seen::default()
    };
    for pack in &packs {
        if has_tasks(pack) && seen.tasks == usize::MAX {
            seen.tasks = tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks();
        }
        run_pack(fixture, pack, &engine, &router, &mut seen.answers).await;
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        let answer = send(&router, Request::get(path).body(Body::empty()).unwrap()).await;
        // Of the process itself: its time, its memory, and thus the length of the text.
        let varies =
            |line: &&str| line.starts_with("process_") || line.starts_with("content-length: ");
        seen.operations.extend(
            answer
                .lines()
                .filter(|line| !varies(line))
                .map(str::to_owned),
        );
    }
    seen.operations.sort();
    seen.files = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    engine.shutdown().await;
    seen
}

async fn run_pack(
    fixture: &Fixture,
    pack: &Builtin,
    engine: &Engine,
    router: &Router,
    answers: &mut Vec<(String, String)>,
) {
    let manifest = Manifest::check_builtin(pack.file, pack.manifest, pack.schemas).unwrap();
    let name = manifest.name.as_str();
    for input in fixture.inputs(&manifest) {
        // Twice in process and four times over REST: GitHub's stand-in answers writes with its
        // recordings in turn, and six calls bring each of these inputs back to the first.
        for _ in 0..2 {
            let answer = match engine.call(call(name, &input)).await {
                Ok(outcome) => String::from_utf8(outcome.to_json()).unwrap(),
                Err(error) => format!("{error}\n{}", error.problem()),
            };
            answers.push((format!("call {name} {input}"), answer));
        }
        for directive in DIRECTIVES {
            let mut request = Request::post(format!("/api/v1/packs/{name}"))
                .header("content-type", "application/json");
            if let Some(directive) = directive {
                request = request.header("cache-control", directive);
            }
            if manifest.asynchronous {
                // Else the answer is a job, whose id is another one each time.
                request = request.header("prefer", "wait");
            }
            let answer = send(router, request.body(Body::from(input.clone())).unwrap()).await;
            answers.push((format!("POST {name} {directive:?} {input}"), answer));
        }
    }
}

/// Sends a request and writes down all of the answer: status, headers, body.
async fn send(router: &Router, mut request: Request<Body>) -> String {
    request
        .headers_mut()
        .insert("host", "localhost".parse().unwrap());
    // Two answers are compared, so their ids must be equal.
    request
        .headers_mut()
        .insert("x-request-id", "same".parse().unwrap());
    let (parts, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let mut text = format!("{}\n", parts.status);
    for (name, value) in &parts.headers {
        writeln!(text, "{name}: {}", value.to_str().unwrap()).unwrap();
    }
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    text + std::str::from_utf8(&body).unwrap()
}

fn assert_same(left: &[(String, String)], right: &[(String, String)], stack: &str) {
    assert_eq!(left.len(), right.len(), "{stack}");
    for ((request, left), (_, right)) in left.iter().zip(right) {
        assert_eq!(left, right, "{stack}: {request}");
    }
}

fn is_cached(answer: &str) -> bool {
    answer.contains("\ncache-status: helmdeck; ")
        && answer.contains("\nage: ")
        && answer.contains("\"cache\":{")
}

#[test]
fn shut_gate_leaves_every_pack_unchanged() {
    let fixture = Fixture::new();
    let plain = observe(&fixture, false, Author::Unaware);
    let answered: BTreeSet<&str> = plain
        .answers
        .iter()
        .filter(|(_, answer)| answer.starts_with("200"))
        .map(|(request, _)| request.split(' ').nth(1).unwrap())
        .collect();
    assert_eq!(
        answered.len(),
        11,
        "a pack that never succeeds shows little: {answered:?}"
    );
    assert!(
        plain
            .answers
            .iter()
            .all(|(_, answer)| !answer.to_lowercase().contains("cache-status"))
    );
    for line in ["call refused", "call failed"] {
        assert!(plain.log.contains(line), "the log is caught: {}", plain.log);
    }

    for author in [Author::Shut, Author::AsShipped] {
        let shut = observe(&fixture, false, author);
        assert_same(
            &plain.answers,
            &shut.answers,
            &format!("gate 1 shut, {author:?}"),
        );
        assert_eq!(
            (&plain.operations, &plain.log),
            (&shut.operations, &shut.log),
            "gate 1 shut, {author:?}"
        );
        assert_eq!(
            (shut.files.as_slice(), shut.tasks),
            (&[] as &[PathBuf], 0),
            "gate 1 shut, {author:?}"
        );
    }
    let second_shut = observe(&fixture, true, Author::Shut);
    // What the packs `memory.*` do is gate 1 itself.
    let rest = |answers: &[(String, String)]| -> Vec<(String, String)> {
        answers
            .iter()
            .filter(|(request, _)| !request.contains(" memory."))
            .cloned()
            .collect()
    };
    assert_same(
        &rest(&plain.answers),
        &rest(&second_shut.answers),
        "gate 1 open, gate 2 shut",
    );

    // Were there no difference with both open, all of the above would say nothing.
    let open = observe(&fixture, true, Author::AsShipped);
    let cached: BTreeSet<&str> = open
        .answers
        .iter()
        .filter(|(_, answer)| is_cached(answer))
        .map(|(request, _)| request.split(' ').nth(1).unwrap())
        .collect();
    let reading = ["get_issue", "get_pr", "list_issues", "list_prs", "search"]
        .map(|verb| format!("github.{verb}"));
    assert_eq!(
        cached,
        reading
            .iter()
            .map(String::as_str)
            .chain(["repo.map", "text.count_tokens"])
            .collect()
    );
    let hits = open
        .answers
        .iter()
        .filter(|(request, answer)| request.starts_with("call") && answer.contains("\"hit\""));
    assert!(hits.count() >= 6, "the second call of an example is a hit");
    assert_ne!((open.operations, open.tasks), (plain.operations, 0));
    assert!(
        open.files
            .iter()
            .any(|file| file.file_name() == Path::new("memory.db").file_name())
    );
}

#[test]
fn leaving_out_memory_leaves_nothing_else_out() {
    let text = "name = \"a.b\"\n[memory]\ncache = true\nttl = \"5m\"\nepoch = 2\n\n[[examples]]\ninput = { cache = 1 }\n";
    assert_eq!(
        Author::Unaware.edit(text),
        "name = \"a.b\"\n[[examples]]\ninput = { cache = 1 }\n"
    );
    assert_eq!(
        Author::Shut.edit(text),
        "name = \"a.b\"\n[memory]\nepoch = 2\n\n[[examples]]\ninput = { cache = 1 }\n"
    );
    assert_eq!(Author::AsShipped.edit(text), text);
}
