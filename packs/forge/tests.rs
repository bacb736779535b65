//! The contracts, and what the packs do with a real project in a real repository of git.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use helmdeck_core::clock::SystemClock;
use helmdeck_core::manifest::HandlerSpec;
use helmdeck_core::{Builtin, Clock, Code, Context, Error, Identity, Json, Manifest, Result, RunId};
use helmdeck_forge::init::Init;
use helmdeck_forge::{ProjectEnvironment, Trust};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Config;

mod issues;
mod over;

/// A text that looks like a credential.
///
/// It is assembled here, so that scanners do not take this file for one with a credential.
fn token() -> String {
    format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8")
}

/// Projects that these tests make may run their commands.
fn environment() -> ProjectEnvironment {
    ProjectEnvironment { trust: Trust::Everything, ..ProjectEnvironment::default() }
}

fn config() -> Config {
    Config { environment: environment(), ..Config::default() }
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn manifest(builtin: &Builtin) -> Manifest {
    Manifest::parse(builtin.file, builtin.manifest, &|_| Err("none".into())).unwrap()
}

fn context(builtin: &Builtin, identity: Identity) -> Context {
    let manifest = manifest(builtin);
    Context::new(manifest.name, manifest.version, Arc::new(identity), RunId::next(SystemClock::default().now()))
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
        let packs = super::packs(&Config { root: Some(root.to_owned()), run, ..config() });
        Self { folder, packs }
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn pack(&self, verb: &str) -> &Builtin {
        let file = format!("packs/forge/{verb}.toml");
        self.packs.iter().find(|pack| pack.file == file).unwrap_or_else(|| panic!("there is no {verb}"))
    }

    /// Calls a pack as the engine does: what goes in and out fits its schemas.
    async fn call_as(&self, identity: &Identity, verb: &str, input: Value) -> Result<Value> {
        let pack = self.pack(verb);
        let manifest = manifest(pack);
        let filled = manifest.input.fill(&input.to_string()).unwrap().into_owned();
        manifest
            .input
            .validate(&serde_json::from_str(&filled).unwrap())
            .map_err(|_| Error::new(Code::InvalidInput, "the input does not fit the schema"))?;
        let reply = pack.handler.run(context(pack, identity.clone()), Json::parse(filled).unwrap()).await?;
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
        let verb = manifest.name.as_str().strip_prefix("forge.").unwrap().to_owned();
        assert_eq!(manifest.handler, HandlerSpec::Builtin(manifest.name.to_string()));
        assert_eq!(builtin.file, format!("packs/forge/{verb}.toml"));
        assert!(manifest.memory.is_none() && !manifest.examples.is_empty(), "{verb}");
        for schema in [&manifest.input, &manifest.output] {
            assert_eq!(schema.source()["additionalProperties"], json!(false), "{verb}");
        }
        let inputs = manifest.input.source()["properties"].as_object().cloned().unwrap_or_default();
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
            assert!(!text || schema.get("maxLength").is_some(), "{verb}: {name} is unbounded");
            assert!(schema["type"] != "array" || schema.get("maxItems").is_some(), "{verb}: {name} is unbounded");
        }
        for example in &manifest.examples {
            manifest.input.validate(&example.input).unwrap_or_else(|why| panic!("{verb}: {why:?}"));
        }
        if manifest.read_only {
            reading.push(verb);
        }
    }
    let expected = [
        "prime",
        "health",
        "events_tail",
        "knowledge_search",
        "features_list",
        "features_next",
        "focus_show",
        "issue_list",
        "issue_show",
        "artifact_get",
        "artifact_list",
        "skill_list",
        "skill_show",
        "checkpoint_list",
        "checkpoint_show",
    ];
    assert_eq!(reading, expected);
}

#[test]
fn what_runs_programs_is_offered_only_where_the_operator_says_so() {
    let files = |run| all(run).iter().map(|pack| pack.file).collect::<BTreeSet<_>>();
    let (some, whole) = (files(false), files(true));
    let run: Vec<&str> = whole.difference(&some).map(|file| &file["packs/forge/".len()..file.len() - 5]).collect();
    let expected = [
        "checkpoint_create",
        "commit",
        "features_verify",
        "invariants_check",
        "recover_apply",
        "recover_assess",
        "session_end",
        "session_start",
    ];
    assert_eq!(run, expected);
    assert!(some.is_subset(&whole) && whole.iter().all(|file| !file.ends_with("ack.toml")));
}

#[tokio::test]
async fn without_a_project_every_pack_says_what_to_do() {
    let empty = tempfile::tempdir().unwrap();
    for (root, word) in [(None, "[forge] root"), (Some(empty.path().to_owned()), "helmdeck forge init")] {
        for pack in super::packs(&Config { root, run: true, ..config() }) {
            let input = Json::from(manifest(&pack).examples[0].input.clone());
            let error = pack.handler.run(context(&pack, Identity::local()), input).await.unwrap_err();
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
        let error = pack.handler.run(context(pack, Identity::anonymous()), input).await.unwrap_err();
        assert_eq!(error.code(), Code::Unauthenticated, "{}", pack.file);
        assert!(!error.message().contains(&*desk.root().to_string_lossy()), "{error}");
    }
    assert_eq!(git(desk.root(), &["status", "--porcelain", "--ignored"]), before);
}

#[tokio::test]
async fn a_session_is_begun_worked_in_and_ended() {
    let desk = Desk::new(true);
    let begun = desk.call("session_start", json!({})).await;
    let session = begun["session"]["id"].as_str().unwrap().to_owned();
    assert_eq!((&begun["again"], &begun["session"]["agent"]), (&json!(false), &json!("Forge")));
    assert!(begun["prime"]["text"].as_str().unwrap().contains(&session), "{begun}");
    let again = desk.call("session_start", json!({"no_probe": true})).await;
    assert_eq!((&again["again"], &again["session"]["id"]), (&json!(true), &json!(session)));

    let logged = desk.call("session_log", json!({"text": "looked around", "next": "build"})).await;
    assert_eq!(logged["session"], json!(session));
    let learned = json!({"kind": "failed", "context": "Caching", "issue": "stale values", "resolution": "parse again"});
    let known = desk.call("knowledge_add", learned.clone()).await;
    assert_eq!((&known["new"], &desk.call("knowledge_add", learned).await["seen"]), (&json!(true), &json!(2)));
    let found = desk.call("knowledge_search", json!({"query": "caching"})).await;
    assert_eq!((&found["entries"][0]["id"], &found["total"]), (&known["id"], &json!(1)));
    let confirmed = desk.call("knowledge_confirm", json!({"id": known["id"]})).await;
    assert_eq!(confirmed["id"], known["id"]);
    let better = json!({"id": known["id"], "kind": "successful", "context": "Caching", "approach": "Ask each time"});
    let replaced = desk.call("knowledge_supersede", better).await;
    assert_eq!((&replaced["id"], &replaced["by"]["new"]), (&known["id"], &json!(true)));
    let wrong = json!({"id": known["id"], "kind": "successful", "context": "Caching", "approach": "a", "check": "rm"});
    assert_eq!(desk.refused("knowledge_supersede", wrong).await.code(), Code::InvalidInput);
    desk.call("knowledge_add", json!({"kind": "invariant", "text": "Nothing is lost", "severity": "warning"})).await;
    let checked = desk.call("invariants_check", json!({})).await;
    assert_eq!((&checked["holds"], &checked["unchecked"]), (&json!(true), &json!(1)));

    let first = desk.call("features_add", json!({"name": "It answers", "tests": ["a::answers"]})).await;
    let id = first["feature"]["id"].clone();
    desk.call("features_add", json!({"name": "It waits", "blocked_by": id})).await;
    assert_eq!(desk.call("features_next", json!({})).await["next"]["feature"]["id"], id);
    let working = desk.call("features_set", json!({"id": id, "status": "in_progress"})).await;
    assert_eq!(working["feature"]["status"], "in_progress");
    let focus = desk.call("focus_set", json!({"task": "Make it answer", "feature_id": id, "phase": "BUILD"})).await;
    assert_eq!((&focus["changed"], &focus["focus"]["session"]), (&json!(true), &json!(session)));
    let shown = desk.call("focus_show", json!({})).await;
    assert_eq!((&shown["focus"]["task"], &shown["etag"]), (&json!("Make it answer"), &focus["etag"]));
    let stale = desk.refused("focus_set", json!({"phase": "DONE", "if_match": "0000000000000000000000000"})).await;
    assert_eq!(stale.code(), Code::Conflict, "{stale}");

    let verified = desk.call("features_verify", json!({"id": id})).await;
    assert_eq!((&verified["passed"], &verified["executed"]), (&json!(true), &json!(1)), "{verified}");
    let evidence = desk.call("artifact_get", json!({"name": verified["evidence"]})).await;
    assert!(evidence["text"].as_str().unwrap().contains("It answers"), "{evidence}");
    let listed = desk.call("features_list", json!({"standing": ["passing"]})).await;
    assert_eq!((&listed["total"], &listed["counts"]["total"]), (&json!(1), &json!(2)));
    let set = desk.refused("features_set", json!({"id": "FORGE-002", "status": "passing"})).await;
    assert_eq!(set.code(), Code::InvalidInput);

    std::fs::write(desk.root().join("answer"), "42\n").unwrap();
    let refused = desk.refused("session_end", json!({})).await;
    assert_eq!(refused.code(), Code::Forbidden, "{refused}");
    let commit = json!({"key": "SX9-1", "subject": "Answer", "what": ["Write the answer"], "why": "It was asked for",
        "paths": ["answer"], "forge": true});
    let made = desk.call("commit", commit).await;
    assert_eq!(made["oid"], json!(git(desk.root(), &["rev-parse", "HEAD"])));
    assert!(made["message"].as_str().unwrap().contains(&session), "{made}");
    let checkpoint = desk.call("checkpoint_create", json!({"key": "SX9-1", "message": "It answers"})).await;
    assert_eq!((&checkpoint["commit"], &checkpoint["pushed"]), (&made["oid"], &json!(false)));
    let listed = desk.call("checkpoint_list", json!({})).await;
    assert_eq!((&listed["checkpoints"][0]["tag"], &listed["total"]), (&checkpoint["tag"], &json!(1)));
    let shown = desk.call("checkpoint_show", json!({"name": listed["checkpoints"][0]["name"]})).await;
    assert_eq!(shown, listed["checkpoints"][0]);
    assert_eq!(desk.refused("checkpoint_show", json!({"name": "SX9-1-v9"})).await.code(), Code::NotFound);
    std::fs::write(desk.root().join("answer"), "41\n").unwrap();
    let tried = desk.call("recover_tried", json!({"passed": false, "what": "The page is empty"})).await;
    assert_eq!((&tried["failed"], &tried["what"]), (&json!(1), &json!("The page is empty")));
    std::fs::write(desk.root().join("answer"), "42\n").unwrap();
    assert_eq!(desk.call("recover_tried", json!({"passed": true, "what": "The page"})).await["failed"], json!(0));
    let snapshot = desk.call("artifact_snapshot", json!({})).await;
    let stored = desk.call("artifact_get", json!({"name": snapshot["entry"]["triv"]})).await;
    assert!(stored["text"].as_str().unwrap().contains("features"), "{stored}");
    let assessed = desk.call("recover_assess", json!({})).await;
    assert_eq!(assessed["class"], "IN_SYNC", "{assessed}");
    let nothing = desk.call("recover_apply", json!({})).await;
    assert_eq!(nothing["rollback"], Value::Null);

    let ended = desk
        .call(
            "session_end",
            json!({"next": "rest", "learned": [{"kind": "decision", "context": "Pace",
        "decision": "Slow", "rationale": "It lasts"}]}),
        )
        .await;
    assert_eq!((&ended["session"], &ended["again"]), (&json!(session), &json!(false)));
    assert_eq!(ended["learned"].as_array().unwrap().len(), 3, "two were added before: {ended}");
    let prime = desk.call("prime", json!({"budget": 700})).await;
    assert!(prime["tokens"].as_u64().unwrap() <= 700 && prime["brief"]["session"].is_null(), "{prime}");
    let told = desk.call("events_tail", json!({"about": ["session_start", "session_end"]})).await;
    let kinds: Vec<&str> =
        told["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["forge/memory/session/start", "forge/memory/session/end"]);
    let health = desk.call("health", json!({})).await;
    assert_eq!(health["features"]["inputs"]["total"], json!(2), "{health}");
}

#[tokio::test]
async fn going_back_is_to_a_branch_and_keeps_every_byte() {
    let desk = Desk::new(true);
    let config = desk.root().join(".forge/config.toml");
    let settings = std::fs::read_to_string(&config).unwrap();
    std::fs::write(config, settings.replace("['true']", "['sh: grep -q yes tested']")).unwrap();
    desk.call("session_start", json!({})).await;
    let checkpoint = desk.call("checkpoint_create", json!({"key": "SX9-1"})).await;
    std::fs::write(desk.root().join("tested"), "broken\n").unwrap();
    // A little that is broken is mended; so much is gone back from.
    let minor = desk.call("recover_apply", json!({"why": "it was broken"})).await;
    assert_eq!((&minor["rollback"], &minor["report"]["row"]), (&Value::Null, &json!(8)), "{minor}");
    for number in 0..11 {
        std::fs::write(desk.root().join(format!("more-{number}")), "more\n").unwrap();
    }
    let applied = desk.call("recover_apply", json!({"why": "it was broken"})).await;
    assert_eq!(applied["rollback"]["checkpoint"], checkpoint["tag"]);
    let rescue = applied["rollback"]["rescue"].as_str().unwrap();
    assert_eq!(git(desk.root(), &["show", &format!("{rescue}:tested")]), "broken");
    assert!(applied["rollback"]["target"].is_string(), "{applied}");
}

#[tokio::test]
async fn skills_are_found_shown_and_read_file_by_file() {
    let desk = Desk::new(false);
    let listed = desk.call("skill_list", json!({})).await;
    let names: Vec<&str> =
        listed["skills"].as_array().unwrap().iter().map(|skill| skill["name"].as_str().unwrap()).collect();
    assert_eq!(listed["total"], json!(names.len()));
    let folder = desk.root().join(".forge/skills/parsing");
    std::fs::create_dir_all(folder.join("templates")).unwrap();
    let manifest = "[skill]\nname = \"parsing\"\ndescription = \"How parsers are made here\"\nversion = \"1.0.0\"\n\
        [triggers]\nkeywords = [\"parser\"]\n[resources]\ninstructions = \"instructions.md\"\ntemplates = \"templates/\"\n";
    std::fs::write(folder.join("skill.toml"), manifest).unwrap();
    std::fs::write(folder.join("instructions.md"), "Bound the input.\n").unwrap();
    std::fs::write(folder.join("templates/parser.rs"), "fn parse() {}\n").unwrap();
    let matched = desk.call("skill_match", json!({"text": "write a parser"})).await;
    assert_eq!((&matched["matches"][0]["skill"], &matched["matches"][0]["fires"]), (&json!("parsing"), &json!(true)));
    let taken = desk.call("skill_activate", json!({"name": "parsing"})).await;
    assert_eq!(taken, json!({"skill": "parsing", "plan": ["parsing"]}));
    let shown = desk.call("skill_show", json!({"name": "parsing"})).await;
    assert_eq!(shown["instructions"], "Bound the input.\n", "{shown}");
    let file = desk.call("skill_show", json!({"name": "parsing", "resource": "templates/parser.rs"})).await;
    assert_eq!(file["resource"], json!({"path": "templates/parser.rs", "bytes": 14, "text": "fn parse() {}\n"}));
    let out = desk.refused("skill_show", json!({"name": "parsing", "resource": "../../config.toml"})).await;
    assert_eq!(out.code(), Code::Forbidden, "{out}");
    assert_eq!(desk.refused("skill_show", json!({"name": "none"})).await.code(), Code::NotFound);
}

#[tokio::test]
async fn artifacts_go_in_and_out_as_they_are() {
    let desk = Desk::new(false);
    let put = desk.call("artifact_put", json!({"kind": "reports", "name": "a.md", "text": "# A\n"})).await;
    let got = desk.call("artifact_get", json!({"name": put["entry"]["triv"]})).await;
    assert_eq!((&got["text"], &got["state"], &got["left_out"]), (&json!("# A\n"), &json!("ok"), &json!(false)));
    let short = desk.call("artifact_get", json!({"name": put["entry"]["triv"], "max_bytes": 3})).await;
    assert_eq!((short.get("text"), &short["left_out"]), (None, &json!(true)));
    let binary = json!({"kind": "code", "name": "b.bin", "base64": "AP8=", "produced_from": [put["entry"]["triv"]]});
    let binary = desk.call("artifact_put", binary).await;
    let got = desk.call("artifact_get", json!({"name": binary["entry"]["path"]})).await;
    assert_eq!((&got["base64"], got.get("text")), (&json!("AP8="), None));
    let listed = desk.call("artifact_list", json!({"kind": "code"})).await;
    assert_eq!((&listed["total"], &listed["artifacts"][0]["name"]), (&json!(1), &json!("b.bin")));
    for wrong in [
        json!({"kind": "code", "name": "c"}),
        json!({"kind": "code", "name": "c", "text": "t", "base64": "AP8="}),
        json!({"kind": "code", "name": "c", "base64": "?"}),
    ] {
        assert_eq!(desk.refused("artifact_put", wrong).await.code(), Code::InvalidInput);
    }
}

#[tokio::test]
async fn a_credential_is_refused_and_never_repeated() {
    let desk = Desk::new(false);
    let token = token();
    for (verb, input) in [
        ("knowledge_add", json!({"kind": "decision", "context": "c", "decision": token, "rationale": "r"})),
        ("features_add", json!({"name": format!("use {token}")})),
        ("session_log", json!({"text": format!("used {token}")})),
        ("focus_set", json!({"task": format!("use {token}")})),
        ("artifact_put", json!({"kind": "docs", "name": "a.md", "text": format!("key: {token}\n")})),
    ] {
        let error = desk.refused(verb, input).await;
        assert_eq!(error.code(), Code::InvalidInput, "{verb}: {error}");
        assert!(!error.message().contains(&token), "{verb}: {error}");
    }
}

#[tokio::test]
async fn who_may_not_run_programs_names_no_tests_either() {
    let desk = Desk::new(false);
    let refused = desk.refused("features_add", json!({"name": "n", "tests": ["node:/tmp/x.js"]})).await;
    assert_eq!(refused.code(), Code::Forbidden, "{refused}");
    let added = desk.call("features_add", json!({"name": "n", "steps": ["look"]})).await;
    let refused = desk.refused("features_set", json!({"id": added["feature"]["id"], "tests": ["a"]})).await;
    assert_eq!(refused.code(), Code::Forbidden, "{refused}");
    for learning in [
        json!({"kind": "invariant", "text": "t", "check": "true"}),
        json!({"kind": "invariant", "context": "c", "text": "t"}),
        json!({"kind": "failed", "context": "c", "issue": "i"}),
    ] {
        assert_eq!(desk.refused("knowledge_add", learning).await.code(), Code::InvalidInput);
    }
}

#[tokio::test]
async fn a_damaged_file_is_told_and_a_pause_stops_what_changes_something() {
    let desk = Desk::new(true);
    std::fs::write(desk.root().join(".forge/memory/long-term/features.json"), "{\"features\": [").unwrap();
    let error = desk.refused("features_list", json!({})).await;
    assert_eq!(error.code(), Code::Internal);
    assert!(error.message().contains("features.json"), "{error}");
    std::fs::write(desk.root().join(".forge/.local/paused.json"), r#"{"reason":"odd","since":"2025-12-24T12:00:00Z"}"#)
        .unwrap();
    for (verb, input) in [
        ("session_log", json!({"text": "t"})),
        ("session_start", json!({})),
        ("recover_apply", json!({})),
        ("focus_set", json!({"task": "t"})),
    ] {
        let error = desk.refused(verb, input).await;
        assert_eq!(error.code(), Code::Forbidden, "{verb}: {error}");
        assert!(error.message().contains("odd"), "{error}");
    }
    assert!(desk.call("prime", json!({})).await["brief"]["paused"].is_string());
    desk.call("skill_match", json!({"text": "t"})).await;
}

#[tokio::test]
async fn who_works_is_the_caller_and_a_second_one_joins_with_a_session_of_its_own() {
    let desk = Desk::new(true);
    let first = desk.call("session_start", json!({})).await;
    let bob = Identity::new("acme", "bob").unwrap();
    let taken = desk.call_as(&bob, "session_start", json!({})).await.unwrap_err();
    assert_eq!(taken.code(), Code::Conflict, "{taken}");
    let commit =
        json!({"session_commit": true, "subject": "Do it", "what": ["Do it"], "why": "It is needed.", "forge": true});
    for (verb, input) in [
        ("session_log", json!({"text": "t"})),
        ("focus_set", json!({"task": "t"})),
        ("session_end", json!({})),
        ("commit", commit),
    ] {
        let error = desk.call_as(&bob, verb, input).await.unwrap_err();
        assert_eq!(error.code(), Code::Conflict, "{verb}: {error}");
    }
    let joined = desk.call_as(&bob, "session_start", json!({"join": true})).await.unwrap();
    assert_eq!((&joined["session"]["agent"], &joined["session"]["primary"]), (&json!("bob"), &json!(false)));
    let session = &joined["session"]["id"];
    assert_ne!(session, &first["session"]["id"]);
    desk.call_as(&bob, "focus_set", json!({"session": session, "task": "Help"})).await.unwrap();
    desk.call("focus_set", json!({"task": "Lead"})).await;
    let focus = desk.call_as(&bob, "focus_show", json!({"session": session})).await.unwrap();
    assert_eq!(focus["focus"]["task"], "Help");
    assert_eq!(desk.call("focus_show", json!({})).await["focus"]["task"], "Lead");
    let logged = desk.call_as(&bob, "session_log", json!({"session": session, "text": "helped"})).await.unwrap();
    assert_eq!(&logged["session"], session);
    let logged = desk.call_as(&bob, "session_log", json!({"text": "helped again"})).await.unwrap();
    assert_eq!(&logged["session"], session, "it is the only one of his");
    let ended = desk.call_as(&bob, "session_end", json!({})).await.unwrap();
    assert_eq!(&ended["session"], session);
    assert_eq!(desk.call("session_log", json!({"text": "t"})).await["session"], first["session"]["id"]);
    for verb in ["focus_show", "session_log"] {
        let input =
            if verb == "session_log" { json!({"session": "none", "text": "t"}) } else { json!({"session": "none"}) };
        assert_eq!(desk.refused(verb, input).await.code(), Code::NotFound, "{verb}");
    }
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_not_begun() {
    let desk = Desk::new(true);
    let pack = desk.pack("session_log");
    let cancel = CancellationToken::new();
    cancel.cancel();
    let now = std::time::Instant::now();
    for (context, code) in [
        (Context { cancel: Some(cancel), ..context(pack, Identity::local()) }, Code::Cancelled),
        (Context { deadline: Some(now), ..context(pack, Identity::local()) }, Code::Timeout),
    ] {
        let error = pack.handler.run(context, Json::parse(r#"{"text":"t"}"#.to_owned()).unwrap()).await.unwrap_err();
        assert_eq!(error.code(), code);
    }
    let progress = std::fs::read_to_string(desk.root().join(".forge/memory/short-term/progress.txt")).unwrap();
    assert!(!progress.contains("] t\n"), "{progress}");
}
