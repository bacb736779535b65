//! The contracts, and what the packs do with a real project in a real repository of git.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use helmdeck_core::clock::SystemClock;
use helmdeck_core::manifest::HandlerSpec;
use helmdeck_core::{
    Builtin, Clock, Code, Context, Error, Identity, Json, Manifest, Result, RunId,
};
use helmdeck_forge::init::Init;
use helmdeck_forge::{ProjectEnvironment, Trust};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Config;

mod issues;
mod over;
mod schemas;

/// A text that looks like a credential.
///
/// It is assembled here, so that scanners do not take this file for one with a credential.
fn token() -> String {
    format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8")
}

/// Projects that these tests make may run their commands.
fn environment() -> ProjectEnvironment {
    ProjectEnvironment {
        trust: Trust::Everything,
        ..ProjectEnvironment::default()
    }
}

fn config() -> Config {
    Config {
        environment: environment(),
        ..Config::default()
    }
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn manifest(builtin: &Builtin) -> Manifest {
    Manifest::check_builtin(builtin.file, builtin.manifest, builtin.schemas).unwrap()
}

fn context(builtin: &Builtin, identity: Identity) -> Context {
    let manifest = manifest(builtin);
    Context::new(
        manifest.name,
        manifest.version,
        Arc::new(identity),
        RunId::next(SystemClock::default().now()),
    )
}

fn all(run: bool) -> Vec<Builtin> {
    super::packs(&Config { run, ..config() })
}

/// A project in a repository, and the packs over it.
struct Desk {
    folder: tempfile::TempDir,
    packs: Vec<Builtin>,
}

impl Desk {
    /// Makes a fixture whose tests and checkpoint verification run programs that need no compiler.
    fn new(run: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        git(root, &["init", "--quiet", "--initial-branch=main"]);
        for (name, value) in [
            ("user.name", "Ann"),
            ("user.email", "ann@example.com"),
            ("commit.gpgSign", "false"),
            ("tag.gpgSign", "false"),
        ] {
            git(root, &["config", name, value]);
        }
        helmdeck_forge::init::init(root, environment(), &Init::default()).unwrap();
        let settings = concat!(
            "[verify]\n",
            "runner = 'sh: grep -q yes tested && echo ran {prefix}'\n",
            "count_regex = '(?m)^ran '\n",
            "commands = ['true']\n",
        );
        std::fs::write(root.join(".forge/config.toml"), settings).unwrap();
        std::fs::write(root.join("tested"), "yes\n").unwrap();
        git(root, &["add", "-A"]);
        git(root, &["commit", "--quiet", "-m", "Begin"]);
        let packs = super::packs(&Config {
            root: Some(root.to_owned()),
            run,
            ..config()
        });
        Self { folder, packs }
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn pack(&self, verb: &str) -> &Builtin {
        let file = format!("packs/forge/{verb}.toml");
        self.packs
            .iter()
            .find(|pack| pack.file == file)
            .unwrap_or_else(|| panic!("there is no {verb}"))
    }

    /// Calls a pack as the engine does: what goes in and out fits its schemas.
    async fn call_as(&self, identity: &Identity, verb: &str, input: Value) -> Result<Value> {
        let pack = self.pack(verb);
        let manifest = manifest(pack);
        let filled = manifest
            .input
            .fill(&input.to_string())
            .unwrap()
            .into_owned();
        manifest
            .input
            .validate(&serde_json::from_str(&filled).unwrap())
            .map_err(|_| Error::new(Code::InvalidInput, "the input does not fit the schema"))?;
        let reply = pack
            .handler
            .run(
                context(pack, identity.clone()),
                Json::parse(filled).unwrap(),
            )
            .await?;
        let output = reply.output.unwrap().to_value();
        if let Err(violations) = manifest.output.validate(&output) {
            panic!("{verb}: {violations:?} in {output}");
        }
        Ok(output)
    }

    async fn call(&self, verb: &str, input: Value) -> Value {
        let answer = self.call_as(&Identity::local(), verb, input.clone()).await;
        answer.unwrap_or_else(|error| panic!("{verb} {input}: {error}"))
    }

    async fn refused(&self, verb: &str, input: Value) -> Error {
        match self.call_as(&Identity::local(), verb, input.clone()).await {
            Ok(output) => panic!("{verb} {input} is answered with {output}"),
            Err(error) => error,
        }
    }
}

#[test]
fn every_manifest_is_understood_and_no_input_is_a_command() {
    let mut reading = Vec::new();
    for builtin in all(true) {
        let manifest = manifest(&builtin);
        let verb = manifest
            .name
            .as_str()
            .strip_prefix("forge.")
            .unwrap()
            .to_owned();
        assert_eq!(
            manifest.handler,
            HandlerSpec::Builtin(manifest.name.to_string())
        );
        assert_eq!(builtin.file, format!("packs/forge/{verb}.toml"));
        assert!(
            manifest.memory.is_none() && !manifest.examples.is_empty(),
            "{verb}"
        );
        assert_eq!(
            manifest.input.source()["additionalProperties"],
            json!(false),
            "{verb}"
        );
        let inputs = manifest.input.source()["properties"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        for (name, schema) in &inputs {
            for command in [
                "check",
                "checkpoint",
                "verify",
                "command",
                "runner",
                "worktree",
                "root",
                "remote",
                "push",
                "allow_secret",
            ] {
                assert!(name != command, "{verb} takes {name}");
            }
            let text = schema["type"] == "string" && schema.get("enum").is_none();
            assert!(
                !text || schema.get("maxLength").is_some(),
                "{verb}: {name} is unbounded"
            );
            assert!(
                schema["type"] != "array" || schema.get("maxItems").is_some(),
                "{verb}: {name} is unbounded"
            );
        }
        for example in &manifest.examples {
            manifest
                .input
                .validate(&example.input)
                .unwrap_or_else(|why| panic!("{verb}: {why:?}"));
        }
        if manifest.read_only {
            reading.push(verb);
        }
    }
    let expected = [
        "prime",
        "health",
        "knowledge_search",
        "features_list",
        "issue_list",
        "issue_show",
        "skill",
        "checkpoint_list",
    ];
    assert_eq!(reading, expected);
}

#[test]
fn what_runs_programs_is_offered_only_where_the_operator_says_so() {
    let files = |run| {
        all(run)
            .iter()
            .map(|pack| pack.file)
            .collect::<BTreeSet<_>>()
    };
    let (some, whole) = (files(false), files(true));
    let run: Vec<&str> = whole
        .difference(&some)
        .map(|file| &file["packs/forge/".len()..file.len() - 5])
        .collect();
    let expected = [
        "checkpoint_create",
        "commit",
        "done",
        "recover_apply",
        "recover_assess",
        "start",
        "verify",
    ];
    assert_eq!(run, expected);
    assert!(some.is_subset(&whole) && whole.iter().all(|file| !file.ends_with("ack.toml")));
}

#[tokio::test]
async fn without_a_project_every_pack_says_what_to_do() {
    let empty = tempfile::tempdir().unwrap();
    for (root, word) in [
        (None, "[forge] root"),
        (Some(empty.path().to_owned()), "helmdeck forge init"),
    ] {
        for pack in super::packs(&Config {
            root,
            run: true,
            ..config()
        }) {
            let input = Json::from(manifest(&pack).examples[0].input.clone());
            let error = pack
                .handler
                .run(context(&pack, Identity::local()), input)
                .await
                .unwrap_err();
            assert_eq!(error.code(), Code::NotFound, "{}", pack.file);
            assert!(error.message().contains(word), "{}: {error}", pack.file);
        }
    }
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn callers_whom_nobody_knows_learn_and_change_nothing() {
    let desk = Desk::new(true);
    let before = git(desk.root(), &["status", "--porcelain", "--ignored"]);
    for pack in &desk.packs {
        let input = Json::from(manifest(pack).examples[0].input.clone());
        let error = pack
            .handler
            .run(context(pack, Identity::anonymous()), input)
            .await
            .unwrap_err();
        assert_eq!(error.code(), Code::Unauthenticated, "{}", pack.file);
        assert!(
            !error.message().contains(&*desk.root().to_string_lossy()),
            "{error}"
        );
    }
    assert_eq!(
        git(desk.root(), &["status", "--porcelain", "--ignored"]),
        before
    );
}

#[tokio::test]
async fn work_is_started_done_and_finished() {
    let desk = Desk::new(true);
    let first = desk
        .call(
            "features_add",
            json!({"name": "It answers", "tests": ["a::answers"]}),
        )
        .await;
    let id = first["feature"]["id"].clone();
    desk.call(
        "features_add",
        json!({"name": "It waits", "blocked_by": id}),
    )
    .await;
    assert_eq!(
        desk.call("features_list", json!({})).await["next"]["feature"]["id"],
        id
    );
    git(desk.root(), &["add", "-A"]);
    git(desk.root(), &["commit", "--quiet", "-m", "Plan"]);
    let begun = desk.call("start", json!({"what": id})).await;
    let session = begun["session"].as_str().unwrap().to_owned();
    assert_eq!(
        (&begun["again"], &begun["new_issue"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(
        (&begun["focus"]["feature_id"], &begun["feature"]["status"]),
        (&id, &json!("in_progress"))
    );
    assert!(
        begun["prime"]["text"].as_str().unwrap().contains(&session),
        "{begun}"
    );
    let again = desk
        .call("start", json!({"what": id, "no_probe": true}))
        .await;
    assert_eq!(
        (&again["again"], &again["session"], &again["new_issue"]),
        (&json!(true), &json!(session), &json!(false))
    );

    let learned = json!({"kind": "failed", "context": "Caching", "issue": "stale values", "resolution": "parse again"});
    let known = desk.call("remember", learned.clone()).await;
    assert_eq!(
        (&known["new"], &desk.call("remember", learned).await["seen"]),
        (&json!(true), &json!(2))
    );
    let found = desk
        .call("knowledge_search", json!({"query": "caching"}))
        .await;
    assert_eq!(
        (&found["entries"][0]["id"], &found["total"]),
        (&known["id"], &json!(1))
    );
    let replaced = desk
        .call(
            "remember",
            json!({"replaces": known["id"], "text": "Caching: Ask each time"}),
        )
        .await;
    assert_eq!(
        (&replaced["replaced"], &replaced["new"]),
        (&known["id"], &json!(true))
    );
    let wrong = json!({"kind": "successful", "context": "Caching", "approach": "a", "check": "rm"});
    assert_eq!(
        desk.refused("remember", wrong).await.code(),
        Code::InvalidInput
    );
    desk.call(
        "remember",
        json!({"kind": "invariant", "text": "Nothing is lost", "severity": "warning"}),
    )
    .await;

    let set = desk
        .refused(
            "features_set",
            json!({"id": "FORGE-002", "status": "passing"}),
        )
        .await;
    assert_eq!(set.code(), Code::InvalidInput);
    let verified = desk.call("verify", json!({})).await;
    let feature = &verified["features"][0];
    assert_eq!(
        (&verified["passed"], &feature["executed"]),
        (&json!(true), &json!(1)),
        "{verified}"
    );
    assert!(
        feature["evidence"].is_string() && verified.get("invariants").is_none(),
        "{verified}"
    );
    let listed = desk
        .call("features_list", json!({"standing": ["passing"]}))
        .await;
    assert_eq!(
        (&listed["total"], &listed["counts"]["total"]),
        (&json!(1), &json!(2))
    );

    std::fs::write(desk.root().join("answer"), "42\n").unwrap();
    let made = desk
        .call(
            "commit",
            json!({"what": "Write the answer", "why": "It was asked for"}),
        )
        .await;
    assert_eq!(made["oid"], json!(git(desk.root(), &["rev-parse", "HEAD"])));
    assert_eq!(
        (&made["key"], &made["paths"]),
        (&json!("LOCAL-1"), &json!(["answer"]))
    );
    assert!(
        made["message"].as_str().unwrap().contains(&session),
        "{made}"
    );
    let assessed = desk.call("recover_assess", json!({})).await;
    assert_eq!(
        assessed["class"], "UNKNOWN",
        "there is no checkpoint: {assessed}"
    );

    let learned = json!([{"text": "Pace: Slow lasts"}]);
    let done = desk
        .call("done", json!({"next": "rest", "learned": learned}))
        .await;
    assert_eq!(
        (&done["checkpoint"], &done["issue"]["key"]),
        (&json!("checkpoint/LOCAL-1-v1"), &json!("LOCAL-1"))
    );
    let ended = &done["session"];
    assert_eq!(
        (&ended["session"], &ended["again"], &ended["next"]),
        (&json!(session), &json!(false), &json!("rest"))
    );
    assert_eq!(
        ended["learned"].as_array().unwrap().len(),
        4,
        "three were added before: {ended}"
    );
    let listed = desk
        .call("checkpoint_list", json!({"name": "LOCAL-1-v1"}))
        .await;
    assert_eq!(
        (&listed["checkpoints"][0]["tag"], &listed["total"]),
        (&done["checkpoint"], &json!(1))
    );
    assert_eq!(
        desk.refused("checkpoint_list", json!({"name": "LOCAL-1-v9"}))
            .await
            .code(),
        Code::NotFound
    );
    let prime = desk.call("prime", json!({"budget": 700})).await;
    assert!(
        prime["tokens"].as_u64().unwrap() <= 700
            && prime["text"]
                .as_str()
                .unwrap()
                .contains("\nsession: none\n"),
        "{prime}"
    );
    let health = desk.call("health", json!({})).await;
    assert_eq!(health["features"]["inputs"]["total"], json!(2), "{health}");
}

#[tokio::test]
async fn unfinished_work_is_left_with_a_reason() {
    let desk = Desk::new(true);
    desk.call("start", json!({"what": "Fix the login"})).await;
    std::fs::write(desk.root().join("half"), "1\n").unwrap();
    let left = desk
        .call("done", json!({"leave": "The parser is half written"}))
        .await;
    assert_eq!(
        (&left["checkpoint"], &left["issue"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(left["session"]["next"], json!("The parser is half written"));
    assert_eq!(
        desk.call("issue_list", json!({})).await["counts"]["open"],
        json!(1)
    );
}

#[tokio::test]
async fn going_back_is_a_commit_and_keeps_every_byte() {
    let desk = Desk::new(true);
    let config = desk.root().join(".forge/config.toml");
    let settings = std::fs::read_to_string(&config).unwrap();
    std::fs::write(
        config,
        settings.replace("['true']", "['sh: grep -q yes tested']"),
    )
    .unwrap();
    desk.call("start", json!({})).await;
    let checkpoint = desk
        .call("checkpoint_create", json!({"key": "SX9-1"}))
        .await;
    std::fs::write(desk.root().join("tested"), "broken\n").unwrap();
    // A little that is broken is mended; so much is gone back from.
    let minor = desk
        .call("recover_apply", json!({"why": "it was broken"}))
        .await;
    assert_eq!(
        (&minor["rollback"], &minor["report"]["row"]),
        (&Value::Null, &json!(6)),
        "{minor}"
    );
    for number in 0..11 {
        std::fs::write(desk.root().join(format!("more-{number}")), "more\n").unwrap();
    }
    let applied = desk
        .call("recover_apply", json!({"why": "it was broken"}))
        .await;
    assert_eq!(applied["rollback"]["checkpoint"], checkpoint["tag"]);
    let rescue = applied["rollback"]["rescue"].as_str().unwrap();
    assert_eq!(
        git(desk.root(), &["show", &format!("{rescue}:tested")]),
        "broken"
    );
    assert!(applied["rollback"]["made"].is_string(), "{applied}");
}

#[tokio::test]
async fn skills_are_listed_matched_and_shown() {
    let desk = Desk::new(false);
    let listed = desk.call("skill", json!({})).await;
    let names: Vec<&str> = listed["skills"]
        .as_array()
        .unwrap()
        .iter()
        .map(|skill| skill["name"].as_str().unwrap())
        .collect();
    assert_eq!(listed["total"], json!(names.len()));
    let folder = desk.root().join(".forge/skills/parsing");
    std::fs::create_dir_all(folder.join("templates")).unwrap();
    let manifest = "[skill]\nname = \"parsing\"\ndescription = \"How parsers are made here\"\nversion = \"1.0.0\"\n\
        [triggers]\nkeywords = [\"parser\"]\n[resources]\ninstructions = \"instructions.md\"\ntemplates = \"templates/\"\n";
    std::fs::write(folder.join("skill.toml"), manifest).unwrap();
    std::fs::write(folder.join("instructions.md"), "Bound the input.\n").unwrap();
    std::fs::write(folder.join("templates/parser.rs"), "fn parse() {}\n").unwrap();
    let matched = desk
        .call("skill", json!({"task": "write two parsers"}))
        .await;
    assert_eq!(
        (
            &matched["matches"][0]["skill"],
            &matched["matches"][0]["fires"]
        ),
        (&json!("parsing"), &json!(true))
    );
    let shown = desk.call("skill", json!({"name": "parsing"})).await;
    assert_eq!(shown["instructions"], "Bound the input.\n", "{shown}");
    assert_eq!(shown["order"], json!(["parsing"]));
    assert_eq!(
        shown["files"],
        json!([".forge/skills/parsing/templates/parser.rs"])
    );
    assert_eq!(
        desk.refused("skill", json!({"name": "none"})).await.code(),
        Code::NotFound
    );
    assert_eq!(
        desk.refused("skill", json!({"name": "parsing", "task": "t"}))
            .await
            .code(),
        Code::InvalidInput
    );
}

#[tokio::test]
async fn a_credential_is_refused_and_never_repeated() {
    let desk = Desk::new(false);
    let token = token();
    for (verb, input) in [
        (
            "remember",
            json!({"kind": "decision", "context": "c", "decision": token, "rationale": "r"}),
        ),
        ("remember", json!({"text": format!("Calls: use {token}")})),
        ("features_add", json!({"name": format!("use {token}")})),
        ("issue_add", json!({"title": format!("use {token}")})),
    ] {
        let error = desk.refused(verb, input).await;
        assert_eq!(error.code(), Code::InvalidInput, "{verb}: {error}");
        assert!(!error.message().contains(&token), "{verb}: {error}");
    }
}

#[tokio::test]
async fn who_may_not_run_programs_names_no_tests_either() {
    let desk = Desk::new(false);
    let refused = desk
        .refused(
            "features_add",
            json!({"name": "n", "tests": ["node:/tmp/x.js"]}),
        )
        .await;
    assert_eq!(refused.code(), Code::Forbidden, "{refused}");
    let added = desk
        .call("features_add", json!({"name": "n", "steps": ["look"]}))
        .await;
    let refused = desk
        .refused(
            "features_set",
            json!({"id": added["feature"]["id"], "tests": ["a"]}),
        )
        .await;
    assert_eq!(refused.code(), Code::Forbidden, "{refused}");
    for learning in [
        json!({"kind": "invariant", "text": "t", "check": "true"}),
        json!({"kind": "invariant", "context": "c", "text": "t"}),
        json!({"kind": "failed", "context": "c", "issue": "i"}),
        json!({"text": "t", "context": "c"}),
        json!({}),
    ] {
        assert_eq!(
            desk.refused("remember", learning).await.code(),
            Code::InvalidInput
        );
    }
}

#[tokio::test]
async fn a_damaged_file_is_told_and_a_pause_stops_what_changes_something() {
    let desk = Desk::new(true);
    std::fs::write(
        desk.root().join(".forge/memory/long-term/features.json"),
        "{\"features\": [",
    )
    .unwrap();
    let error = desk.refused("features_list", json!({})).await;
    assert_eq!(error.code(), Code::Internal);
    assert!(error.message().contains("features.json"), "{error}");
    std::fs::write(
        desk.root().join(".forge/.local/paused.json"),
        r#"{"reason":"odd","since":"2025-12-24T12:00:00Z"}"#,
    )
    .unwrap();
    for (verb, input) in [
        ("remember", json!({"text": "t"})),
        ("start", json!({})),
        ("recover_apply", json!({})),
        ("issue_add", json!({"title": "t"})),
    ] {
        let error = desk.refused(verb, input).await;
        assert_eq!(error.code(), Code::Forbidden, "{verb}: {error}");
        assert!(error.message().contains("odd"), "{error}");
    }
    assert!(
        desk.call("prime", json!({})).await["text"]
            .as_str()
            .unwrap()
            .contains("\nPAUSED")
    );
    desk.call("skill", json!({"task": "t"})).await;
}

#[tokio::test]
async fn who_works_is_the_caller_and_a_second_one_joins_with_a_session_of_its_own() {
    let desk = Desk::new(true);
    let first = desk
        .call("start", json!({"what": "Lead the way", "no_branch": true}))
        .await;
    let bob = Identity::new("acme", "bob").unwrap();
    let taken = desk.call_as(&bob, "start", json!({})).await.unwrap_err();
    assert_eq!(taken.code(), Code::Conflict, "{taken}");
    for (verb, input) in [("done", json!({})), ("commit", json!({"what": "Do it"}))] {
        let error = desk.call_as(&bob, verb, input).await.unwrap_err();
        assert_eq!(error.code(), Code::Conflict, "{verb}: {error}");
    }
    let help = json!({"join": true, "what": "Help a bit", "no_branch": true});
    let joined = desk.call_as(&bob, "start", help).await.unwrap();
    let session = &joined["session"];
    assert_ne!(session, &first["session"]);
    let primed = desk
        .call_as(&bob, "prime", json!({"session": session}))
        .await
        .unwrap();
    assert!(
        primed["text"]
            .as_str()
            .unwrap()
            .contains("focus: \"Help a bit\""),
        "{primed}"
    );
    let primed = desk.call("prime", json!({})).await;
    assert!(
        primed["text"]
            .as_str()
            .unwrap()
            .contains("focus: \"Lead the way\""),
        "{primed}"
    );
    let left = desk
        .call_as(&bob, "done", json!({"leave": "It is enough"}))
        .await
        .unwrap();
    assert_eq!(
        &left["session"]["session"], session,
        "it is the only one of his"
    );
    let none = json!({"session": "none", "leave": "t"});
    assert_eq!(desk.refused("done", none).await.code(), Code::NotFound);
    assert_eq!(
        desk.call("done", json!({"leave": "t"})).await["session"]["session"],
        first["session"]
    );
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_not_begun() {
    let desk = Desk::new(true);
    let pack = desk.pack("remember");
    let cancel = CancellationToken::new();
    cancel.cancel();
    let now = std::time::Instant::now();
    for (context, code) in [
        (
            Context {
                cancel: Some(cancel),
                ..context(pack, Identity::local())
            },
            Code::Cancelled,
        ),
        (
            Context {
                deadline: Some(now),
                ..context(pack, Identity::local())
            },
            Code::Timeout,
        ),
    ] {
        let error = pack
            .handler
            .run(context, Json::parse(r#"{"text":"t"}"#.to_owned()).unwrap())
            .await
            .unwrap_err();
        assert_eq!(error.code(), code);
    }
    assert_eq!(
        desk.call("knowledge_search", json!({})).await["total"],
        json!(0)
    );
}
