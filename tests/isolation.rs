//! Isolation of two tenants with two users each, over REST and MCP on one server.
//!
//! The users have the same names. No user sees, lists, purges, cancels, follows or joins anything
//! of another. Every user finds their own through both transports and with every token.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use helmdeck_testkit::Issuer;
use serde_json::{Value, json};

use crate::support::program::{Home, Server};
use crate::support::raw_mcp::{McpClient, bearer};
use crate::support::{KEY, wait_for};

/// Answers with what came in, says that it began, and waits until it is let go.
const HELD: &str = "#!/bin/sh\ninput=$(cat)\necho run >>held\nwhile [ ! -e go ]; do sleep 0.02; done\nprintf '{\"input\":%s}' \"$input\"\n";
const SECRET: &str = "a shared secret of 32 bytes or so";
const EVERYTHING: &str = "packs:run memory:read memory:write";
const CALLERS: [(&str, &str); 4] = [
    ("acme", "alice"),
    ("acme", "bob"),
    ("globex", "alice"),
    ("globex", "bob"),
];

/// A way in.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Transport {
    Rest,
    Mcp,
}

const DOORS: [Transport; 2] = [Transport::Rest, Transport::Mcp];

/// A user with a token, at one server.
struct Someone<'a> {
    server: &'a Server,
    name: (&'static str, &'static str),
    token: String,
    mcp: McpClient<'a>,
}

impl<'a> Someone<'a> {
    fn new(server: &'a Server, name: (&'static str, &'static str), scope: &str) -> Self {
        Self::with_token(server, name, token(name, scope, 600))
    }

    fn with_token(server: &'a Server, name: (&'static str, &'static str), token: String) -> Self {
        Self {
            server,
            name,
            mcp: McpClient::open(server, &token),
            token,
        }
    }

    /// Answers are compared, so all have the same request id.
    fn rest(&self, head: &str, body: &Value) -> (u16, Value) {
        let answer = self.server.ask(
            &format!(
                "{head}{}{}\r\nX-Request-Id: same",
                if head.contains('\n') { "\r\n" } else { "\n" },
                bearer(&self.token)
            ),
            &body.to_string(),
        );
        (answer.code, answer.json())
    }

    /// Calls a pack; returns the cache status (or the error's code) and the output.
    fn call(&self, transport: Transport, pack: &str, input: &Value) -> (String, Value) {
        self.directed(transport, pack, input, "default")
    }

    /// Asks for a cached answer and nothing else: `hit` or `cache_miss`.
    fn look(&self, transport: Transport, pack: &str, input: &Value) -> String {
        self.directed(transport, pack, input, "only_if_cached").0
    }

    fn directed(
        &self,
        transport: Transport,
        pack: &str,
        input: &Value,
        directive: &str,
    ) -> (String, Value) {
        match transport {
            Transport::Rest => {
                let header = if directive == "default" {
                    ""
                } else {
                    "\nCache-Control: only-if-cached"
                };
                let (_, answer) = self.rest(&format!("POST /api/v1/packs/{pack}{header}"), input);
                let status = answer["cache"]["status"]
                    .as_str()
                    .or(answer["code"].as_str());
                (
                    status.unwrap_or("none").to_owned(),
                    answer["output"].clone(),
                )
            }
            Transport::Mcp => {
                let result = self.mcp.call(pack, input, directive);
                let meta = &result["_meta"];
                let status = meta["helmdeck/cache"]["status"]
                    .as_str()
                    .or(meta["helmdeck/problem"]["code"].as_str());
                (
                    status.unwrap_or("none").to_owned(),
                    result["structuredContent"].clone(),
                )
            }
        }
    }
}

/// Makes a token that expires after `lives` seconds.
fn token((tenant, user): (&str, &str), scope: &str, lives: u64) -> String {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let claims =
        json!({"sub": user, "tenant": tenant, "scope": scope, "iat": now, "exp": now + lives});
    Issuer::shared(SECRET.as_bytes()).token(&claims)
}

/// Makes an input that no call had before.
fn fresh() -> Value {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    json!({ "repo": format!("r{}", NEXT.fetch_add(1, Ordering::Relaxed)) })
}

fn home() -> Home {
    let home = Home::new();
    home.install("test.shared", ECHO_SHARED, "scope = \"shared\"");
    home.install("test.held", HELD, "");
    home
}

const ECHO_SHARED: &str = "#!/bin/sh\ninput=$(cat)\necho run >>shared-runs\nprintf '{\"runs\":%d,\"input\":%s}' \"$(wc -l <shared-runs)\" \"$input\"\n";

fn start(home: &Home) -> Server {
    Server::start_with(home, KEY, &[("HELMDECK_JWT_SECRET", SECRET)])
}

/// Every pair of different callers with every pair of transports.
fn pairs<'a, 'b>(
    all: &'a [Someone<'b>],
) -> impl Iterator<Item = (&'a Someone<'b>, Transport, &'a Someone<'b>, Transport)> {
    all.iter().flat_map(move |one| {
        all.iter()
            .filter(move |other| other.name != one.name)
            .flat_map(move |other| {
                DOORS.iter().flat_map(move |first| {
                    DOORS
                        .iter()
                        .map(move |second| (one, *first, other, *second))
                })
            })
    })
}

#[test]
fn nobody_is_served_what_another_was_answered() {
    let home = home();
    let server = start(&home);
    let all = CALLERS.map(|name| Someone::new(&server, name, EVERYTHING));
    let mut seen = 0;
    for (one, first, other, second) in pairs(&all) {
        let what = format!(
            "{:?} by {first:?}, then {:?} by {second:?}",
            one.name, other.name
        );
        let input = fresh();
        let (status, answer) = one.call(first, "test.echo", &input);
        assert_eq!(status, "miss", "{what}");
        assert_eq!(
            one.call(second, "test.echo", &input),
            ("hit".to_owned(), answer.clone()),
            "{what}"
        );
        assert_eq!(
            other.look(second, "test.echo", &input),
            "cache_miss",
            "{what}"
        );
        let (status, theirs) = other.call(second, "test.echo", &input);
        assert_eq!(status, "miss", "{what}");
        assert_ne!(theirs, answer, "{what}: the pack ran again");
        assert_eq!(
            one.call(first, "test.echo", &input),
            ("hit".to_owned(), answer),
            "{what}"
        );
        seen += 1;
    }
    assert_eq!(seen, 48);
}

#[test]
fn sharing_stays_within_a_tenant() {
    let home = home();
    let server = start(&home);
    let all = CALLERS.map(|name| Someone::new(&server, name, EVERYTHING));
    for (one, first, other, second) in pairs(&all) {
        let input = fresh();
        let (_, answer) = one.call(first, "test.shared", &input);
        let (status, theirs) = other.call(second, "test.shared", &input);
        let same_tenant = one.name.0 == other.name.0;
        assert_eq!(
            (status == "hit", theirs == answer),
            (same_tenant, same_tenant),
            "{:?} {:?}",
            one.name,
            other.name
        );
    }
}

#[test]
fn entries_of_others_cannot_be_read_or_forgotten() {
    let home = home();
    let server = start(&home);
    let all = CALLERS.map(|name| Someone::new(&server, name, EVERYTHING));
    for one in &all {
        let key = format!("{}.{}", one.name.0, one.name.1);
        let (code, answer) = one.rest(
            "POST /api/v1/memory/store",
            &json!({"key": key, "value": "v", "tags": ["t"]}),
        );
        assert_eq!(code, 200, "{answer}");
        one.call(Transport::Rest, "test.echo", &json!({"repo": key}));
    }
    for (one, first, other, _) in pairs(&all) {
        let theirs = format!("{}.{}", one.name.0, one.name.1);
        let lists = [
            other.rest("GET /api/v1/memory/facts", &Value::Null).1,
            other.rest("GET /api/v1/memory/entries", &Value::Null).1,
            other
                .rest("GET /api/v1/memory/entries?kind=fact", &Value::Null)
                .1,
            other.rest("GET /api/v1/memory/namespaces", &Value::Null).1,
            other.rest("POST /api/v1/memory/recall", &json!({})).1,
            other
                .rest("POST /api/v1/memory/recall", &json!({"key": theirs}))
                .1,
            other.call(first, "memory.recall", &json!({})).1,
            other.call(first, "memory.list", &json!({})).1,
            other
                .mcp
                .ask("resources/read", &json!({"uri": "helmdeck://memory"})),
        ];
        for list in lists {
            assert!(
                !list.to_string().contains(&theirs),
                "{:?} sees {theirs}: {list}",
                other.name
            );
        }
        // Naming the other's namespace gets a refusal, whether there is anything or not.
        for subject in [one.name.1, "nobody"] {
            let path = format!(
                "GET /api/v1/memory/entries?tenant={}&subject={subject}",
                one.name.0
            );
            let (code, answer) = other.rest(&path, &Value::Null);
            let own = (one.name.0, subject) == other.name;
            assert_eq!(
                code,
                if own { 200 } else { 403 },
                "{:?} {path}: {answer}",
                other.name
            );
        }
        let forgets = [
            other
                .rest("POST /api/v1/memory/forget", &json!({"key": theirs}))
                .1,
            other
                .call(first, "memory.forget", &json!({"key": theirs}))
                .1,
        ];
        for forgotten in forgets {
            assert_eq!(forgotten["removed"]["facts"], 0, "{forgotten}");
        }
        let (_, mine) = one.rest("POST /api/v1/memory/recall", &json!({"key": theirs}));
        assert_eq!(
            mine["facts"][0]["value"], "v",
            "{:?} lost a fact: {mine}",
            one.name
        );
    }
}

#[test]
fn nobody_purges_what_another_was_answered() {
    let home = home();
    let server = start(&home);
    let all = CALLERS.map(|name| Someone::new(&server, name, EVERYTHING));
    for (one, first, other, second) in pairs(&all) {
        let input = json!({"repo": "the same"});
        one.call(first, "test.echo", &input);
        let repo = "repo:the same";
        for what in [
            json!({"all": true}),
            json!({"pack": "test.echo"}),
            json!({"tag": repo}),
        ] {
            let (code, answer) = other.rest("POST /api/v1/memory/purge", &what);
            assert_eq!(
                (code, &answer["code"]),
                (403, &json!("forbidden")),
                "{what}: {answer}"
            );
        }
        let namespace = json!({"namespace": {"tenant": one.name.0, "subject": one.name.1}});
        let (code, answer) = other.rest("POST /api/v1/memory/purge", &namespace);
        assert_eq!(code, 403, "{answer}");
        other.call(
            second,
            "memory.forget",
            &json!({"all": true, "what": ["facts", "notes", "cache"]}),
        );
        assert_eq!(
            one.look(first, "test.echo", &input),
            "hit",
            "{:?} purged what {:?} had",
            other.name,
            one.name
        );
    }
}

#[test]
fn a_pinned_session_of_another_opens_nothing() {
    let home = home();
    let server = start(&home);
    let all = CALLERS.map(|name| Someone::new(&server, name, EVERYTHING));
    for pack in ["test.echo", "test.shared"] {
        for (one, first, other, second) in pairs(&all) {
            let what = format!(
                "{pack}: {:?} by {first:?}, then {:?} by {second:?}",
                one.name, other.name
            );
            let mut input = fresh();
            input["_session_id"] = "pinned".into();
            assert_eq!(one.call(first, pack, &input).0, "miss", "{what}");
            assert_eq!(one.look(second, pack, &input), "hit", "{what}");
            assert_eq!(other.look(second, pack, &input), "cache_miss", "{what}");
            assert_eq!(other.call(second, pack, &input).0, "miss", "{what}");
        }
    }
}

#[test]
fn only_the_same_caller_joins_a_run() {
    let home = home();
    let server = start(&home);
    let all = CALLERS.map(|name| Someone::new(&server, name, EVERYTHING));
    let input = fresh();
    let runs = || {
        std::fs::read_to_string(home.packs().join("held"))
            .unwrap_or_default()
            .lines()
            .count()
    };
    std::thread::scope(|scope| {
        let input = &input;
        let call = move |one: &Someone<'_>, transport| one.call(transport, "test.held", input).0;
        let first: Vec<_> = all
            .iter()
            .map(|one| scope.spawn(move || call(one, Transport::Rest)))
            .collect();
        wait_for("one run for each caller", || runs() == CALLERS.len());
        // Whether they board before the run has ended or ask after it, they start none of their
        // own.
        let second: Vec<_> = all
            .iter()
            .map(|one| scope.spawn(move || call(one, Transport::Mcp)))
            .collect();
        std::fs::write(home.packs().join("go"), "").unwrap();
        for status in first.into_iter().map(|call| call.join().unwrap()) {
            assert_eq!(status, "miss");
        }
        for status in second.into_iter().map(|call| call.join().unwrap()) {
            assert!(status == "coalesced" || status == "hit", "{status}");
        }
    });
    assert_eq!(runs(), 4);
}

#[test]
fn calls_of_others_cannot_be_cancelled_or_resumed() {
    let home = home();
    let server = start(&home);
    let alice = Someone::new(&server, CALLERS[0], EVERYTHING);
    for other in [CALLERS[1], CALLERS[2], CALLERS[3]] {
        let other = Someone::new(&server, other, EVERYTHING);
        let stolen = other.mcp.with_session_of(&alice.mcp);
        let _ = std::fs::remove_file(home.packs().join("go"));
        let _ = std::fs::remove_file(home.packs().join("held"));
        std::thread::scope(|scope| {
            let call = scope.spawn(|| {
                let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
                    "params": {"name": "test__held", "arguments": fresh()}});
                alice.mcp.post(&message)
            });
            wait_for("the run to begin", || home.packs().join("held").exists());
            let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
            assert_eq!(
                other.mcp.post(&cancel).0,
                202,
                "it names a request of its own session, which there is not"
            );
            assert_eq!(stolen.post(&cancel).0, 404, "the session is not theirs");
            let list = json!({"jsonrpc": "2.0", "id": 8, "method": "tools/list", "params": {}});
            assert_eq!(stolen.post(&list).0, 404, "the session is not theirs");
            let end = server.exchange(
                &format!(
                    "DELETE /mcp\n{}\r\nMcp-Session-Id: {}",
                    bearer(&other.token),
                    alice.mcp.session()
                ),
                "",
            );
            assert_eq!(end.unwrap().code, 404);
            std::fs::write(home.packs().join("go"), "").unwrap();
            let (code, answer) = call.join().unwrap();
            let answer = answer.unwrap();
            assert!(
                code == 200 && answer["result"]["isError"] != true,
                "{answer}"
            );
        });
        assert_eq!(
            alice.mcp.ask("ping", &json!({})),
            json!({}),
            "the session lives on"
        );
    }
}

#[test]
fn jobs_of_others_are_not_found() {
    let home = home();
    let server = start(&home);
    let all = CALLERS.map(|name| Someone::new(&server, name, EVERYTHING));
    let begin = |one: &Someone<'_>| {
        let (code, job) = one.rest("POST /api/v1/packs/test.held/jobs", &fresh());
        assert_eq!(code, 202, "{job}");
        assert_eq!(
            (&job["tenant"], &job["user"]),
            (&json!(one.name.0), &json!(one.name.1))
        );
        job["id"].as_str().unwrap().to_owned()
    };
    let jobs: Vec<_> = all.iter().map(begin).collect();
    wait_for("the jobs to run", || {
        std::fs::read_to_string(home.packs().join("held"))
            .unwrap_or_default()
            .lines()
            .count()
            == jobs.len()
    });
    let nobody_else = |state: &str| {
        for (one, job) in all.iter().zip(&jobs) {
            for other in all.iter().filter(|other| other.name != one.name) {
                for head in [
                    "GET /api/v1/jobs/{}",
                    "GET /api/v1/jobs/{}/result",
                    "GET /api/v1/jobs/{}/events",
                    "DELETE /api/v1/jobs/{}",
                ] {
                    let head = head.replace("{}", job);
                    let (code, answer) = other.rest(&head, &Value::Null);
                    assert_eq!(
                        (code, &answer["code"]),
                        (404, &json!("not_found")),
                        "{:?} {head}: {answer}",
                        other.name
                    );
                    let never = "0123456789abcdef0123456789abcdef";
                    let (_, absent) = other.rest(&head.replace(job.as_str(), never), &Value::Null);
                    assert_eq!(
                        answer.to_string().replace(job.as_str(), never),
                        absent.to_string(),
                        "as one that never was"
                    );
                }
            }
            let (_, list) = one.rest("GET /api/v1/jobs", &Value::Null);
            let listed = list["jobs"].as_array().unwrap();
            assert_eq!(
                (listed.len(), &listed[0]["id"]),
                (1, &json!(job)),
                "{:?}: {list}",
                one.name
            );
            assert_eq!(listed[0]["state"], state);
        }
    };
    nobody_else("running");
    std::fs::write(home.packs().join("go"), "").unwrap();
    for (one, job) in all.iter().zip(&jobs) {
        wait_for("the job to end", || {
            one.rest(&format!("GET /api/v1/jobs/{job}"), &Value::Null).1["ended_at"].is_string()
        });
        assert_eq!(
            one.rest(&format!("GET /api/v1/jobs/{job}/result"), &Value::Null)
                .0,
            200
        );
    }
    nobody_else("succeeded");
}

#[test]
fn a_key_for_repeats_is_its_callers_own() {
    let home = home();
    home.install(
        "test.write",
        "#!/bin/sh\ncat >/dev/null\necho run >>writes\nprintf '{\"n\":%d}' \"$(wc -l <writes)\"\n",
        "",
    );
    let manifest = home.packs().join("test.write.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let text = text
        .replace("read_only = true\n", "")
        .split("[memory]")
        .next()
        .unwrap()
        .to_owned();
    std::fs::write(manifest, text).unwrap();
    let server = start(&home);
    let all = CALLERS.map(|name| Someone::new(&server, name, EVERYTHING));
    let mut answers: Vec<u64> = Vec::new();
    for one in &all {
        for _ in 0..2 {
            let (code, answer) = one.rest(
                "POST /api/v1/packs/test.write\nIdempotency-Key: \"same\"",
                &json!({}),
            );
            assert_eq!(code, 200, "{answer}");
            answers.push(answer["output"]["n"].as_u64().unwrap());
        }
    }
    assert_eq!(
        answers,
        [1, 1, 2, 2, 3, 3, 4, 4],
        "a repeat is answered, another caller's call is no repeat"
    );
}

#[test]
fn refreshed_token_still_hits() {
    let home = home();
    let server = start(&home);
    let alice = Someone::new(&server, CALLERS[0], EVERYTHING);
    let input = fresh();
    alice.call(Transport::Rest, "test.echo", &input);
    let refreshed = token(CALLERS[0], EVERYTHING, 1200);
    assert_ne!(refreshed, alice.token);
    let again = Someone::with_token(&server, CALLERS[0], refreshed);
    for transport in DOORS {
        assert_eq!(
            again.look(transport, "test.echo", &input),
            "hit",
            "{transport:?}"
        );
    }
}

#[test]
fn anonymous_calls_are_cached_only_if_shared() {
    let home = home();
    let environment = [
        ("HELMDECK_JWT_SECRET", SECRET),
        ("HELMDECK_AUTH__ANONYMOUS_SCOPE", "packs:run"),
    ];
    let server = Server::start_with(&home, KEY, &environment);
    let call = |pack: &str, input: &Value| {
        let answer = server.ask(&format!("POST /api/v1/packs/{pack}"), &input.to_string());
        assert_eq!(answer.code, 200, "{}", answer.body);
        (
            answer.status(),
            answer.json()["output"]["runs"].as_u64().unwrap(),
        )
    };
    let input = fresh();
    let (first, second) = (call("test.echo", &input), call("test.echo", &input));
    assert!(
        second.1 > first.1 && second.0 != "hit",
        "{first:?} {second:?}"
    );
    let (first, second) = (call("test.shared", &input), call("test.shared", &input));
    assert!(
        second.1 == first.1 && second.0 == "hit",
        "{first:?} {second:?}"
    );
    // Over MCP as well.
    let client = McpClient::anonymous(&server);
    let call = |pack: &str, input: &Value| {
        let result = client.call(pack, input, "default");
        assert_eq!(result["isError"], false, "{result}");
        let status = result["_meta"]["helmdeck/cache"]["status"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        (
            status,
            result["structuredContent"]["runs"].as_u64().unwrap(),
        )
    };
    let input = fresh();
    let (first, second) = (call("test.echo", &input), call("test.echo", &input));
    assert!(
        second.1 > first.1 && second.0 != "hit",
        "{first:?} {second:?}"
    );
    let (first, second) = (call("test.shared", &input), call("test.shared", &input));
    assert!(
        second.1 == first.1 && second.0 == "hit",
        "{first:?} {second:?}"
    );
    let facts = server.ask("POST /api/v1/memory/recall", "{}");
    assert!([401, 403].contains(&facts.code), "{}", facts.body);
}

#[test]
fn tasks_of_others_are_not_found() {
    let home = home();
    home.install("test.long", HELD, "");
    let file = home.packs().join("test.long.toml");
    let manifest = std::fs::read_to_string(&file).unwrap();
    std::fs::write(
        &file,
        manifest.replace("[handler]", "async = true\n[handler]"),
    )
    .unwrap();
    let server = start(&home);
    let all: Vec<McpClient<'_>> = CALLERS
        .iter()
        .map(|name| McpClient::with_tasks(&server, &token(*name, EVERYTHING, 600)))
        .collect();
    let begin = |client: &McpClient<'_>| {
        let begun = client.ask(
            "tools/call",
            &json!({"name": "test__long", "arguments": fresh()}),
        );
        begun["taskId"]
            .as_str()
            .unwrap_or_else(|| panic!("no task: {begun}"))
            .to_owned()
    };
    let tasks: Vec<String> = all.iter().map(begin).collect();
    let error = |client: &McpClient<'_>, method: &str, params: Value| {
        let (_, answer) =
            client.post(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}));
        let error = answer.unwrap()["error"].clone();
        assert!(error.is_object(), "{method} {params} was answered");
        error
    };
    let nothing = "0".repeat(32);
    let foreign = |of: usize| {
        tasks
            .iter()
            .enumerate()
            .filter(move |(at, _)| *at != of)
            .map(|(_, id)| id)
    };
    for (at, client) in all.iter().enumerate() {
        for id in foreign(at) {
            for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
                let params = |id: &str| json!({"taskId": id, "inputResponses": {}});
                assert_eq!(
                    error(client, method, params(id)),
                    error(client, method, params(&nothing)),
                    "{method}"
                );
            }
            let read = |id: &str| {
                let mut error = error(
                    client,
                    "resources/read",
                    json!({"uri": format!("helmdeck://jobs/{id}")}),
                );
                assert!(!error.to_string().contains("test.long"), "{error}");
                error["data"].take()
            };
            assert_eq!(read(id), read(&nothing));
        }
        for list in [
            client.ask("resources/read", &json!({"uri": "helmdeck://jobs"})),
            client.ask("resources/list", &json!({})),
        ] {
            assert!(
                foreign(at).all(|id| !list.to_string().contains(id.as_str())),
                "{list}"
            );
        }
    }
    // No attempt had an effect.
    std::fs::write(home.packs().join("go"), "").unwrap();
    for (client, id) in all.iter().zip(&tasks) {
        let task = || client.ask("tasks/get", &json!({"taskId": id}))["status"].clone();
        wait_for("the task to end", || task() != "working");
        assert_eq!(task(), "completed");
        let read = client.ask(
            "resources/read",
            &json!({"uri": format!("helmdeck://jobs/{id}")}),
        );
        assert!(read.to_string().contains("test.long"), "{read}");
    }
}
