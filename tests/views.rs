//! The views over the store, from outside: the packs `memory.*`, the routes and the commands, in
//! processes of their own that share one sealed file.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{Call, Code, Identity, PackName};
use helmdeck_engine::Engine;
use helmdeck_testkit::ManualClock;
use serde_json::{Value, json};

use crate::support::engine::{self, Wallet};
use crate::support::program::{Home, Server};
use crate::support::{KEY, OTHER_KEY, outside, wait_for};

/// Text that must never occur in a file.
const MARKER: &str = "marker-8d1f-of-a-fact";

/// Runs a pack in a separate process and returns its output.
#[track_caller]
fn run(home: &Home, arguments: &[&str]) -> Value {
    let run = home.run(KEY, &[&["run"], arguments, &["--json"]].concat());
    assert_eq!(run.code, 0, "{arguments:?}: {}", run.stderr);
    let outcome: Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(
        outcome.get("cache").is_none(),
        "{arguments:?}: no answer about memory is cached"
    );
    outcome["output"].clone()
}

fn keys(output: &Value) -> Vec<&str> {
    output["facts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fact| fact["key"].as_str().unwrap())
        .collect()
}

/// Returns whether a text occurs in any file of a folder.
fn stands_in(folder: &std::path::Path, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return stands_in(&path, text);
        }
        std::fs::read(path)
            .unwrap()
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    })
}

#[test]
fn processes_share_and_forget_facts() {
    let home = Home::new();
    let value = format!("value={MARKER}");
    let kept = run(
        &home,
        &[
            "memory.store",
            "key=g",
            &value,
            "category=work",
            "tags=a,b",
            "ttl_seconds=3600",
        ],
    );
    assert_eq!(
        (&kept["pack"], &kept["tags"]),
        (&json!("memory.store"), &json!(["a", "b"]))
    );
    run(&home, &["memory.store", "key=gh", "value=other"]);

    let recalled = run(&home, &["memory.recall", "key=g"]);
    assert_eq!(
        (&recalled["facts"][0]["value"], &recalled["unreadable"]),
        (&json!(MARKER), &json!(0))
    );
    assert_eq!(keys(&run(&home, &["memory.recall"])), ["gh", "g"]);
    assert_eq!(keys(&run(&home, &["memory.list", "category=work"])), ["g"]);
    assert!(
        run(&home, &["memory.list"])["facts"][0]
            .get("value")
            .is_none()
    );

    assert!(
        outside(&home.store())
            .query_row("SELECT count(*) FROM memory_entries", [], |row| row
                .get::<_, i64>(0))
            .unwrap()
            >= 2
    );
    assert!(
        !stands_in(&home.data(), MARKER),
        "values are sealed at rest"
    );
    let got = home.run(KEY, &["memory", "get", "local/local", "fact", "g"]);
    assert_eq!((got.code, got.stdout), (0, format!("{MARKER}\n")));
    let raw = home.run(KEY, &["memory", "get", "local/local", "fact", "g", "--raw"]);
    assert_eq!((raw.code, raw.stdout.as_str()), (0, MARKER));
    let json: Value = serde_json::from_str(
        &home
            .run(
                KEY,
                &["memory", "get", "local/local", "fact", "g", "--json"],
            )
            .stdout,
    )
    .unwrap();
    assert_eq!(
        (&json["value"], &json["attributes"]["pack"]),
        (&json!(MARKER), &json!("memory.store"))
    );

    assert_eq!(
        run(&home, &["memory.forget", "key=g"]),
        json!({"removed": {"facts": 1}, "pending": false})
    );
    assert_eq!(
        keys(&run(&home, &["memory.list"])),
        ["gh"],
        "a key is exact"
    );
    let gone = home.run(KEY, &["memory", "get", "local/local", "fact", "g"]);
    assert!(
        gone.code == 3 && gone.stderr.contains("there is no fact"),
        "{}",
        gone.stderr
    );
    run(
        &home,
        &[
            "memory.forget",
            "--input",
            r#"{"all": true, "what": ["facts", "notes", "cache"]}"#,
        ],
    );
    assert_eq!(keys(&run(&home, &["memory.recall"])), [""; 0]);
    let rows = "SELECT group_concat(s.kind || ' ' || e.key) FROM memory_entries e JOIN memory_spaces s ON s.id = e.space_id";
    let left = outside(&home.store()).query_row(rows, [], |row| row.get::<_, String>(0));
    assert_eq!(
        left.unwrap(),
        "head floors",
        "these packs leave no rows about their calls, and forgotten facts a head"
    );
}

#[test]
fn shell_and_server_share_facts() {
    let home = Home::new();
    let server = Server::start(&home, KEY);
    let kept = server.ask(
        "POST /api/v1/memory/store",
        r#"{"key":"lang","value":"German"}"#,
    );
    assert_eq!(kept.code, 200, "{}", kept.body);
    let recalled = run(&home, &["memory.recall", "key=lang"]);
    assert_eq!(recalled["facts"][0]["value"], "German");
    assert!(
        recalled["facts"][0].get("pack").is_none(),
        "the caller itself kept it"
    );
    run(&home, &["memory.store", "key=lang", "value=French"]);
    let recalled = server
        .ask("POST /api/v1/memory/recall", r#"{"key":"lang"}"#)
        .json();
    assert_eq!(
        (
            &recalled["facts"][0]["value"],
            &recalled["facts"][0]["version"]
        ),
        (&json!("French"), &json!(2))
    );

    home.call(KEY, &["test.echo", "repo=a"]);
    server.call("test.echo", &json!({"repo": "b"}));
    // The rows are written behind the answers.
    let calls = || {
        server.ask("GET /api/v1/audit", "").json()["calls"]
            .as_array()
            .map(Vec::len)
    };
    wait_for("both calls to be noted", || calls() >= Some(2));
    let gone = server
        .ask(
            "POST /api/v1/memory/forget",
            r#"{"all":true,"what":["facts","audit","cache"]}"#,
        )
        .json();
    assert_eq!(
        (&gone["removed"]["facts"], &gone["removed"]["cache"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(home.call(KEY, &["test.echo", "repo=a"]).0, "miss");
}

#[test]
fn missing_or_wrong_key_opens_nothing() {
    let home = Home::new();
    let commands: [&[&str]; 5] = [
        &["run", "memory.recall"],
        &["run", "memory.list"],
        &["run", "memory.store", "key=k", "value=v"],
        &["run", "memory.forget", "all=true"],
        &["memory", "get", "local/local", "fact", "k"],
    ];
    for arguments in commands {
        let output = home
            .command(KEY, arguments)
            .env_remove("HELMDECK_MEMORY_KEY")
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {stderr}");
        assert!(
            stderr.contains("no memory key") && output.stdout.is_empty(),
            "{arguments:?}: {stderr}"
        );
        assert!(!home.data().exists(), "{arguments:?} made a file");
    }
    for arguments in &commands[4..] {
        let run = home.run(KEY, arguments);
        assert!(
            run.code == 3 && run.stderr.contains("there is no store yet"),
            "{arguments:?}: {}",
            run.stderr
        );
        assert!(!home.data().exists(), "{arguments:?} made a file");
    }
    run(&home, &["memory.store", "key=k", "value=v"]);
    for arguments in commands {
        let run = home.run(OTHER_KEY, arguments);
        assert!(
            run.code == 78 && run.stderr.contains("was written with key"),
            "{arguments:?}: {}",
            run.stderr
        );
    }
}

/// An engine with every pack, over a real file.
async fn engine(folder: &std::path::Path) -> (Engine, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let packs = engine::builtins("http://127.0.0.1:1", &clock);
    let memory = engine::memory(folder, &clock).await;
    (
        engine::engine(packs, &clock, &Wallet::of(&[]), folder, Some(memory)),
        clock,
    )
}

async fn call(
    engine: &Engine,
    identity: &Identity,
    pack: &str,
    input: Value,
) -> Result<Value, Code> {
    let call = Call::new(
        PackName::new(pack).unwrap(),
        input.to_string(),
        Arc::new(identity.clone()),
    );
    engine
        .call(call)
        .await
        .map(|outcome| outcome.output.to_value())
        .map_err(|error| error.code())
}

#[tokio::test]
async fn facts_are_isolated_per_caller() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, clock) = engine(folder.path()).await;
    let callers = [("t", "alice"), ("t", "bob"), ("u", "alice")]
        .map(|(tenant, user)| Identity::new(tenant, user).unwrap());
    for identity in &callers {
        let value = format!("{}/{}", identity.tenant(), identity.user());
        call(
            &engine,
            identity,
            "memory.store",
            json!({"key": "k", "value": value, "ttl_seconds": 3600}),
        )
        .await
        .unwrap();
    }
    for identity in &callers {
        let recalled = call(&engine, identity, "memory.recall", json!({}))
            .await
            .unwrap();
        assert_eq!(keys(&recalled), ["k"]);
        assert_eq!(
            recalled["facts"][0]["value"],
            format!("{}/{}", identity.tenant(), identity.user())
        );
    }
    call(
        &engine,
        &callers[0],
        "memory.forget",
        json!({"all": true, "what": ["facts", "notes", "cache"]}),
    )
    .await
    .unwrap();
    for (identity, left) in callers.iter().zip([0, 1, 1]) {
        assert_eq!(
            keys(
                &call(&engine, identity, "memory.list", json!({}))
                    .await
                    .unwrap()
            )
            .len(),
            left
        );
    }
    for pack in [
        "memory.store",
        "memory.recall",
        "memory.list",
        "memory.forget",
    ] {
        let input = if pack == "memory.store" {
            json!({"key": "k", "value": "v"})
        } else {
            json!({})
        };
        assert_eq!(
            call(&engine, &Identity::anonymous(), pack, input).await,
            Err(Code::Unauthenticated),
            "{pack}"
        );
    }
    clock.advance(Duration::from_secs(3600));
    assert_eq!(
        keys(
            &call(&engine, &callers[1], "memory.list", json!({}))
                .await
                .unwrap()
        ),
        [""; 0]
    );
    let rows = engine
        .memory()
        .unwrap()
        .store()
        .stats()
        .await
        .unwrap()
        .rows_by_kind;
    assert!(
        !rows.contains_key("audit"),
        "no audit row tells what was remembered: {rows:?}"
    );
}

#[tokio::test]
async fn fact_packs_refuse_invalid_input() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, _) = engine(folder.path()).await;
    let me = Identity::local();
    for (pack, input) in [
        ("memory.store", json!({"key": "k"})),
        ("memory.store", json!({"key": "k", "value": 7})),
        ("memory.store", json!({"key": "", "value": "v"})),
        ("memory.store", json!({"key": " \n", "value": "v"})),
        ("memory.store", json!({"key": "k", "value": "\u{2003}"})),
        (
            "memory.store",
            json!({"key": "k", "value": "v", "ttl_seconds": 3599}),
        ),
        (
            "memory.store",
            json!({"key": "k", "value": "v", "ttl_seconds": 31_536_001}),
        ),
        (
            "memory.store",
            json!({"key": "k", "value": "v", "ttl_seconds": 18_446_747_674_u64}),
        ),
        (
            "memory.store",
            json!({"key": "k", "value": "v", "namespace": "t/bob"}),
        ),
        ("memory.recall", json!({"key": "k", "limit": 1})),
        ("memory.recall", json!({"limit": 0})),
        ("memory.list", json!({"limit": 1001})),
        ("memory.list", json!({"after": "nobody made this"})),
        ("memory.forget", json!({})),
        ("memory.forget", json!({"key": "k", "all": true})),
        ("memory.forget", json!({"key": "k", "what": ["cache"]})),
        ("memory.forget", json!({"all": true, "what": ["vault"]})),
        ("memory.forget", json!({"pack": "*", "what": ["audit"]})),
        ("memory.forget", json!({"prefix": "k"})),
    ] {
        assert_eq!(
            call(&engine, &me, pack, input.clone()).await,
            Err(Code::InvalidInput),
            "{pack} {input}"
        );
    }
    let long = json!({"key": "k".repeat(1025), "value": "v"});
    assert_eq!(
        call(&engine, &me, "memory.store", long).await,
        Err(Code::TooLarge)
    );
    let large = json!({"key": "k", "value": "v".repeat((1 << 20) + 1)});
    assert_eq!(
        call(&engine, &me, "memory.store", large).await,
        Err(Code::TooLarge)
    );
    let (name, text) = ("ключ 🦀", "v".repeat(1 << 20));
    for ttl in [3600, 31_536_000] {
        let input = json!({"key": name, "value": text, "ttl_seconds": ttl});
        call(&engine, &me, "memory.store", input).await.unwrap();
    }
    let recalled = call(&engine, &me, "memory.recall", json!({"key": name}))
        .await
        .unwrap();
    assert_eq!(recalled["facts"][0]["value"], Value::from(text));
}
