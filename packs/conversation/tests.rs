//! Tests of the contracts, without a memory and with one.
//!
//! Redaction and forgetting a whole caller need an engine; they are tested where there is one.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use helmdeck_conversation::{Config, ConversationMemory, Conversations, Dependencies, Strategy};
use helmdeck_core::clock::SystemClock;
use helmdeck_core::manifest::HandlerSpec;
use helmdeck_core::memory::{
    About, FactList, Forget, Forgotten, ListFacts, Memory, NewFact, NewNote, NoMemory, Note,
    NoteContext, NoteList, Owner, RecallFacts, Recalled, Views,
};
use helmdeck_core::{
    Builtin, Clock, Code, Context, Error, Identity, Json, Manifest, Result, RunId,
};
use helmdeck_testkit::{ManualClock, RecordingBus, sealed_memory};
use serde_json::{Value, json};

/// Views that keep nothing, and take one word out of what others keep.
struct Bare;

/// The secret of every call.
const CANARY: &str = "canary-5f1d";

fn unused() -> Error {
    Error::new(Code::Internal, "these packs keep no notes and no facts")
}

#[async_trait]
impl Views for Bare {
    async fn store_note(&self, _: &Owner, _: NewNote) -> Result<About> {
        Err(unused())
    }

    async fn recall_note(&self, _: &Owner, _: &str) -> Result<Option<Note>> {
        Err(unused())
    }

    async fn list_notes(
        &self,
        _: &Owner,
        _: &str,
        _: usize,
        _: Option<String>,
    ) -> Result<NoteList> {
        Err(unused())
    }

    async fn delete_note(&self, _: &Owner, _: &str) -> Result<bool> {
        Err(unused())
    }

    async fn note_context(&self, _: &Owner) -> Result<NoteContext> {
        Err(unused())
    }

    async fn store_fact(&self, _: &Owner, _: NewFact) -> Result<About> {
        Err(unused())
    }

    async fn recall_facts(&self, _: &Owner, _: RecallFacts) -> Result<Recalled> {
        Err(unused())
    }

    async fn list_facts(&self, _: &Owner, _: ListFacts) -> Result<FactList> {
        Err(unused())
    }

    async fn forget(&self, _: &Owner, _: Forget) -> Result<Forgotten> {
        Err(unused())
    }

    fn cleaned(&self, _: &Owner, names: &[&str], value: Bytes) -> Result<Bytes> {
        if names.iter().any(|name| name.contains(CANARY)) {
            return Err(Error::new(Code::InvalidInput, "a name holds a secret"));
        }
        Ok(String::from_utf8_lossy(&value)
            .replace(CANARY, "[secret]")
            .into())
    }
}

fn manifest(builtin: &Builtin) -> Manifest {
    Manifest::check_builtin(builtin.file, builtin.manifest, builtin.schemas).unwrap()
}

fn context(builtin: &Builtin, identity: Identity, memory: Result<Memory, NoMemory>) -> Context {
    let manifest = manifest(builtin);
    let run = RunId::next(SystemClock::default().now());
    let context = Context::new(manifest.name, manifest.version, Arc::new(identity), run);
    Context { memory, ..context }
}

/// The packs over one memory.
struct Desk {
    packs: Vec<Builtin>,
    conversations: Conversations,
    told: RecordingBus,
}

impl Desk {
    async fn new(strategy: Strategy) -> Self {
        let clock = Arc::new(ManualClock::default());
        let told = RecordingBus::new(Arc::clone(&clock) as _);
        let config = Config {
            strategy,
            ..Config::default()
        };
        let store = sealed_memory(Arc::clone(&clock) as _).await;
        let dependencies = Dependencies {
            store,
            events: told.bus().clone(),
            clock,
            summarizer: None,
        };
        let memory = ConversationMemory::open(config, dependencies).unwrap();
        let conversations = Conversations::of(memory);
        Self {
            packs: super::packs(&conversations),
            conversations,
            told,
        }
    }

    /// Calls a pack as the engine does: what goes in and out fits its schemas.
    async fn raw(&self, identity: &Identity, verb: &str, input: &str) -> Result<String> {
        let file = format!("packs/conversation/{verb}.toml");
        let pack = self.packs.iter().find(|pack| pack.file == file).unwrap();
        let manifest = manifest(pack);
        let filled = manifest.input.fill(input).unwrap().into_owned();
        manifest
            .input
            .validate(&serde_json::from_str(&filled).unwrap())
            .map_err(|_| Error::new(Code::InvalidInput, "the input does not fit the schema"))?;
        let memory = Memory::bind(Arc::new(Bare), Owner::at_a_door(Arc::new(identity.clone())));
        let context = context(pack, identity.clone(), memory);
        let output = pack
            .handler
            .run(context, Json::parse(filled).unwrap())
            .await?
            .output
            .unwrap();
        if let Err(violations) = manifest.output.validate(&output.to_value()) {
            panic!("{verb}: {violations:?}");
        }
        Ok(output.as_str().to_owned())
    }

    async fn call(&self, identity: &Identity, verb: &str, input: Value) -> Result<Value> {
        self.raw(identity, verb, &input.to_string())
            .await
            .map(|output| serde_json::from_str(&output).unwrap())
    }

    async fn add(&self, identity: &Identity, session: &str, said: &str) -> Value {
        let input = json!({"session": session, "user_message": said, "assistant_response": format!("{said}!")});
        self.call(identity, "add", input).await.unwrap()
    }
}

fn caller(tenant: &str, user: &str) -> Identity {
    Identity::new(tenant, user).unwrap()
}

/// Returns what a user said in the turns that are shown.
fn said(context: &Value) -> Vec<&str> {
    context["recent_turns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|turn| turn["user_message"].as_str().unwrap())
        .collect()
}

#[test]
fn every_manifest_is_understood_and_keeps_no_trace() {
    let mut reading = Vec::new();
    for builtin in super::packs(&Conversations::default()) {
        let manifest = manifest(&builtin);
        assert_eq!(
            manifest.handler,
            HandlerSpec::Builtin(manifest.name.to_string())
        );
        assert_eq!(
            builtin.file,
            format!("packs/{}.toml", manifest.name.as_str().replace('.', "/"))
        );
        assert!(
            manifest.no_audit && manifest.memory.is_none() && !manifest.examples.is_empty(),
            "{}",
            manifest.name
        );
        for schema in [&manifest.input, &manifest.output] {
            assert_eq!(
                schema.source()["additionalProperties"],
                json!(false),
                "{}",
                manifest.name
            );
        }
        let inputs = manifest.input.source()["properties"]
            .as_object()
            .unwrap()
            .clone();
        assert!(inputs.contains_key("session"), "{}", manifest.name);
        assert!(
            ["tenant", "user"]
                .iter()
                .all(|name| !inputs.contains_key(*name)),
            "{}",
            manifest.name
        );
        for example in &manifest.examples {
            manifest
                .input
                .validate(&example.input)
                .unwrap_or_else(|why| panic!("{}: {why:?}", manifest.name));
        }
        if manifest.read_only {
            reading.push(manifest.name.to_string());
        }
    }
    assert_eq!(
        reading,
        ["context", "health", "trace", "list", "show", "snapshot"]
            .map(|verb| format!("conversation.{verb}"))
    );
}

#[tokio::test]
async fn without_a_memory_every_pack_says_why_in_the_same_words() {
    for builtin in super::packs(&Conversations::default()) {
        let input = Json::from(manifest(&builtin).examples[0].input.clone());
        for (why, code) in [
            (NoMemory::Off, Code::NotFound),
            (
                NoMemory::Unavailable("the store is not available".into()),
                Code::Overloaded,
            ),
            (NoMemory::Anonymous, Code::Unauthenticated),
            (NoMemory::Shared, Code::Forbidden),
        ] {
            let context = context(&builtin, Identity::local(), Err(why.clone()));
            let error = builtin
                .handler
                .run(context, input.clone())
                .await
                .unwrap_err();
            assert_eq!(
                (error.code(), error.message()),
                (code, Error::from(why).message()),
                "{}",
                builtin.file
            );
        }
        // A store, and nothing that keeps conversations in it.
        let memory = Memory::bind(
            Arc::new(Bare),
            Owner::at_a_door(Arc::new(Identity::local())),
        );
        let error = builtin
            .handler
            .run(context(&builtin, Identity::local(), memory), input)
            .await
            .unwrap_err();
        assert_eq!(error.code(), Code::NotFound, "{}", builtin.file);
    }
}

#[tokio::test]
async fn a_conversation_is_added_to_shown_exported_flushed_and_restored() {
    let desk = Desk::new(Strategy::Truncation).await;
    let me = caller("t", "alice");
    let first = desk.add(&me, "s", "one").await;
    desk.add(&me, "s", "two").await;
    let context = desk
        .call(&me, "context", json!({"session": "s"}))
        .await
        .unwrap();
    assert_eq!(
        (said(&context), &context["strategy"]),
        (vec!["one", "two"], &json!("truncation"))
    );
    assert_eq!(context["recent_turns"][0]["id"], first["id"]);
    let prompt = desk
        .call(&me, "context", json!({"session": "s", "format": "prompt"}))
        .await
        .unwrap();
    let text = prompt["prompt"].as_str().unwrap();
    assert!(
        text.contains("\"two!\"") && text.contains("</read_only_conversation_memory>"),
        "{text}"
    );
    assert!(
        prompt["tokens"].as_u64().unwrap() > 100,
        "with its rules: {prompt}"
    );
    let messages = desk
        .call(
            &me,
            "context",
            json!({"session": "s", "format": "messages"}),
        )
        .await
        .unwrap();
    let said_so = |role: &str, content: &str| json!({"role": role, "content": content});
    let expected = [
        said_so("user", "one"),
        said_so("assistant", "one!"),
        said_so("user", "two"),
        said_so("assistant", "two!"),
    ];
    assert_eq!(messages["messages"], json!(expected));
    let goal = |goal: &str, pinned: bool| json!({"goal": goal, "pinned": pinned});
    assert_eq!(
        desk.call(&me, "pin", json!({"session": "s"}))
            .await
            .unwrap(),
        goal("one", false)
    );
    let pin = json!({"session": "s", "goal": format!("ship it, {CANARY}")});
    assert_eq!(
        desk.call(&me, "pin", pin).await.unwrap(),
        goal("ship it, [secret]", true)
    );
    let pinned = desk
        .call(&me, "context", json!({"session": "s"}))
        .await
        .unwrap();
    assert_eq!(pinned["goal"], "ship it, [secret]");
    let both = desk
        .call(
            &me,
            "pin",
            json!({"session": "s", "goal": "x", "clear": true}),
        )
        .await
        .unwrap_err();
    assert_eq!(both.code(), Code::InvalidInput);
    assert_eq!(
        desk.call(&me, "pin", json!({"session": "s", "clear": true}))
            .await
            .unwrap(),
        goal("one", false)
    );

    let listed = desk
        .call(&me, "list", json!({"session": "s", "limit": 1}))
        .await
        .unwrap();
    assert_eq!(
        (&listed["total"], listed["items"].as_array().unwrap().len()),
        (&json!(2), 1)
    );
    let next = desk
        .call(
            &me,
            "list",
            json!({"session": "s", "after": listed["next"]}),
        )
        .await
        .unwrap();
    assert_eq!(
        (&next["items"][0]["key"], &next["next"]),
        (&first["id"], &Value::Null)
    );
    let found = desk
        .call(
            &me,
            "list",
            json!({"session": "s", "content_search": "TWO"}),
        )
        .await
        .unwrap();
    assert_eq!(found["items"][0]["key"], listed["items"][0]["key"]);
    let shown = desk
        .call(&me, "show", json!({"session": "s", "key": first["id"]}))
        .await
        .unwrap();
    assert_eq!(
        (&shown["value"]["user_message"], &shown["item"]["folded"]),
        (&json!("one"), &json!(false))
    );
    let whole = desk
        .call(&me, "list", json!({"session": "s", "texts": true}))
        .await
        .unwrap();
    assert_eq!(whole["items"][1]["value"], shown["value"], "{whole}");
    assert_eq!(
        (
            &whole["items"][0]["value"]["user_message"],
            &listed["items"][0]["value"]
        ),
        (&json!("two"), &Value::Null)
    );
    let health =
        json!({"health": "healthy", "backlog_turns": 0, "failures": 0, "last_failure": null});
    assert_eq!(
        desk.call(&me, "health", json!({"session": "s"}))
            .await
            .unwrap(),
        health
    );
    let trace = desk
        .call(&me, "trace", json!({"session": "s"}))
        .await
        .unwrap();
    assert_eq!(
        (&trace["kept_turns"], &trace["estimated_tokens"]),
        (&json!(2), &context["tokens"])
    );

    let exported = desk
        .call(&me, "snapshot", json!({"session": "s"}))
        .await
        .unwrap();
    assert_eq!(
        desk.call(&me, "flush", json!({"session": "s"}))
            .await
            .unwrap(),
        json!({"flushed": true})
    );
    let empty = desk
        .call(&me, "context", json!({"session": "s", "format": "prompt"}))
        .await
        .unwrap();
    assert_eq!(empty["prompt"], Value::Null);
    let restore = json!({"session": "s", "snapshot": exported["snapshot"]});
    assert_eq!(
        desk.call(&me, "restore", restore).await.unwrap(),
        json!({"restored": true})
    );
    let again = desk
        .call(&me, "context", json!({"session": "s"}))
        .await
        .unwrap();
    assert_eq!(
        (said(&again), &again["tokens"]),
        (vec!["one", "two"], &context["tokens"])
    );

    let key = &again["recent_turns"][0]["id"];
    let deleted = desk
        .call(&me, "delete", json!({"session": "s", "key": key}))
        .await
        .unwrap();
    assert_eq!(
        deleted,
        json!({"deleted": true, "remaining_turns": 1, "summary_rebuilt": false})
    );
    for verb in ["show", "delete"] {
        let gone = desk
            .call(&me, verb, json!({"session": "s", "key": key}))
            .await
            .unwrap_err();
        assert_eq!(gone.code(), Code::NotFound, "{verb}");
    }
    assert_eq!(
        desk.call(&me, "forget", json!({"session": "s"}))
            .await
            .unwrap(),
        json!({"removed_turns": 1})
    );
    let none = desk
        .call(&me, "list", json!({"what": "conversations"}))
        .await
        .unwrap();
    assert_eq!(none, json!({"conversations": [], "total": 0, "next": null}));
    let old_name = desk
        .call(&me, "list", json!({"what": "dialogues"}))
        .await
        .unwrap();
    assert_eq!(old_name, json!({"dialogues": [], "total": 0, "next": null}));
}

#[tokio::test]
async fn a_snapshot_goes_in_and_out_byte_for_byte() {
    let desk = Desk::new(Strategy::Truncation).await;
    let me = caller("t", "alice");
    // A reader that builds values would change digits, escapes, the order of members, and unknown
    // members.
    let turn = r#"{"UserMessage":"a \u003c b \u0026 c","AssistantResponse":"\u2028ä","TrajectoryDigest":null,"ArtifactsShown":{"z":123456789012345678901234567890,"a":1.10,"e":1E2,"n":{"b":-0.0,"a":[1.0]}},"ArtifactsHiddenRefs":null,"Timestamp":"2026-06-02T10:11:12.123456789+02:00","Later":{"y":9007199254740993,"x":"\u00e9"}}"#;
    let record = format!(
        r#"{{"strategy":"truncation","turns":[{turn}],"unknown":{{"big":1.0000000000000000001}}}}"#
    );
    let input = format!(r#" {{ "snapshot" : {record} , "session":"s" }} "#);
    desk.raw(&me, "restore", &input).await.unwrap();
    let output = desk
        .raw(&me, "snapshot", r#"{"session":"s"}"#)
        .await
        .unwrap();
    assert_eq!(
        output,
        format!(r#"{{"strategy":"truncation","snapshot":{record}}}"#)
    );
}

#[tokio::test]
async fn a_snapshot_that_is_none_changes_nothing() {
    let desk = Desk::new(Strategy::Truncation).await;
    let me = caller("t", "alice");
    desk.add(&me, "s", "one").await;
    for snapshot in [
        json!({"strategy": "rolling_summary", "turns": []}),
        json!({"strategy": "truncation", "turns": [{"user_message": "canary"}]}),
        json!({"strategy": "canary"}),
        json!({"turns": 7}),
    ] {
        let error = desk
            .call(
                &me,
                "restore",
                json!({"session": "s", "snapshot": snapshot}),
            )
            .await
            .unwrap_err();
        assert_eq!(error.code(), Code::InvalidInput, "{snapshot}");
        assert!(!error.message().contains("canary"), "{error}");
    }
    for input in [
        json!({"session": "s"}),
        json!({"session": "s", "snapshot": "x"}),
        json!({"session": "s", "snapshot": null}),
    ] {
        assert_eq!(
            desk.call(&me, "restore", input).await.unwrap_err().code(),
            Code::InvalidInput
        );
    }
    assert_eq!(
        said(
            &desk
                .call(&me, "context", json!({"session": "s"}))
                .await
                .unwrap()
        ),
        ["one"]
    );
}

#[tokio::test]
async fn no_caller_sees_a_conversation_of_another_one_whatever_it_is_called() {
    let desk = Desk::new(Strategy::Truncation).await;
    let callers = [
        ("t", "a"),
        ("t", "b"),
        ("u", "a"),
        ("t|a", "b"),
        ("t", "a|b"),
    ]
    .map(|(tenant, user)| caller(tenant, user));
    let sessions = [
        "s",
        "../s",
        "a|b",
        "t:a",
        "%2F",
        " ",
        "~head",
        "turn/00000000000000000001",
        "👩‍👩‍👧",
        "<missing>",
        "'; --",
    ];
    for identity in &callers {
        for session in sessions {
            desk.add(
                identity,
                session,
                &format!("{}/{}/{session}", identity.tenant(), identity.user()),
            )
            .await;
        }
    }
    for identity in &callers {
        for session in sessions {
            let context = desk
                .call(identity, "context", json!({"session": session}))
                .await
                .unwrap();
            assert_eq!(
                said(&context),
                [format!(
                    "{}/{}/{session}",
                    identity.tenant(),
                    identity.user()
                )]
            );
            let others = desk
                .call(&callers[0], "list", json!({"session": session}))
                .await
                .unwrap();
            let key = &desk
                .call(identity, "list", json!({"session": session}))
                .await
                .unwrap()["items"][0]["key"];
            if identity != &callers[0] {
                assert_ne!(&others["items"][0]["key"], key);
                for verb in ["show", "delete"] {
                    let input = json!({"session": session, "key": key});
                    let error = desk.call(&callers[0], verb, input).await.unwrap_err();
                    assert_eq!(error.code(), Code::NotFound, "{verb}");
                }
            }
        }
        let page = desk
            .call(identity, "list", json!({"what": "conversations"}))
            .await
            .unwrap();
        let mut own: Vec<&str> = page["conversations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["session"].as_str().unwrap())
            .collect();
        let mut wanted = sessions;
        own.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(
            (own, &page["total"]),
            (wanted.to_vec(), &json!(sessions.len()))
        );
    }
    for verb in ["flush", "forget"] {
        desk.call(&callers[0], verb, json!({"session": "s"}))
            .await
            .unwrap();
    }
    for identity in &callers[1..] {
        assert_eq!(
            said(
                &desk
                    .call(identity, "context", json!({"session": "s"}))
                    .await
                    .unwrap()
            )
            .len(),
            1
        );
    }
    for bad in ["a\nb", "\u{0}", &"x".repeat(257), &"ä".repeat(129)] {
        let error = desk
            .call(&callers[0], "context", json!({"session": bad}))
            .await
            .unwrap_err();
        assert_eq!(error.code(), Code::InvalidInput, "{bad:?}");
    }
}

#[tokio::test]
async fn the_conversation_of_the_call_is_meant_unless_one_is_named_and_without_any_there_is_one_event()
 {
    let desk = Desk::new(Strategy::Truncation).await;
    let bare = caller("t", "alice");
    let within = bare.clone().with_session("own").unwrap();
    desk.call(&within, "add", json!({"user_message": "in my own"}))
        .await
        .unwrap();
    desk.add(&within, "other", "in another").await;
    assert_eq!(
        said(&desk.call(&within, "context", json!({})).await.unwrap()),
        ["in my own"]
    );
    assert_eq!(
        said(
            &desk
                .call(&within, "context", json!({"session": "other"}))
                .await
                .unwrap()
        ),
        ["in another"]
    );
    assert_eq!(
        said(
            &desk
                .call(&bare, "context", json!({"session": "own"}))
                .await
                .unwrap()
        ),
        ["in my own"]
    );

    let rejected = || async {
        let told = desk.told.events().await;
        told.iter()
            .filter(|event| event.to_string().contains("session_id empty"))
            .count()
    };
    let mut expected = rejected().await;
    for pack in &desk.packs {
        let verb = manifest(pack).name.as_str().replace("conversation.", "");
        let mut input = manifest(pack).examples[0].input.clone();
        for session in [None, Some("")] {
            input.as_object_mut().unwrap().remove("session");
            input
                .as_object_mut()
                .unwrap()
                .extend(session.map(|session| ("session".to_owned(), json!(session))));
            let error = desk.call(&bare, &verb, input.clone()).await.unwrap_err();
            assert_eq!(
                (error.code(), error.message()),
                (
                    Code::InvalidInput,
                    "memory: identity triple incomplete: session_id empty; name the conversation with the argument `session`"
                ),
                "{verb}"
            );
            expected += 1;
            assert_eq!(rejected().await, expected, "{verb}");
        }
    }
    // To list one's conversations one need not be in one.
    let all = desk
        .call(&bare, "list", json!({"what": "conversations"}))
        .await
        .unwrap();
    assert_eq!((&all["total"], rejected().await), (&json!(2), expected));
    for mixed in [
        json!({"what": "conversations", "session": "own"}),
        json!({"what": "conversations", "folded": true}),
        json!({"what": "conversations", "texts": true}),
        json!({"session": "own", "after": "x"}),
    ] {
        assert_eq!(
            desk.call(&bare, "list", mixed).await.unwrap_err().code(),
            Code::InvalidInput
        );
    }
}

#[tokio::test]
async fn a_turn_under_one_name_is_added_once_and_everything_about_it_is_kept() {
    let desk = Desk::new(Strategy::Truncation).await;
    let me = caller("t", "alice").with_session("s").unwrap();
    let turn = json!({
        "user_message": "u", "assistant_response": "a", "timestamp": "2026-11-22T16:00:00.5+01:00", "once": "n",
        "trajectory_digest": {"tools_invoked": ["x.y"], "observations_summary": "saw", "reasoning_summary": "thought"},
        "artifacts_shown": {"file": "f"}, "artifacts_hidden_refs": ["h"],
    });
    let first = desk.call(&me, "add", turn.clone()).await.unwrap();
    let again = desk.call(&me, "add", turn.clone()).await.unwrap();
    assert_eq!(
        (&first["repeated"], &again["repeated"], &again["id"]),
        (&json!(false), &json!(true), &first["id"])
    );
    let context = desk.call(&me, "context", json!({})).await.unwrap();
    let kept = &context["recent_turns"][0];
    assert_eq!(context["recent_turns"].as_array().unwrap().len(), 1);
    for member in ["timestamp", "artifacts_shown"] {
        assert_eq!(kept[member], turn[member], "{member}");
    }
    assert!(
        kept.get("artifacts_hidden_refs").is_none(),
        "hidden from a model"
    );
    assert_eq!(first["key"], first["id"], "the word of list and show");
    let shown = desk
        .call(&me, "show", json!({"key": first["key"]}))
        .await
        .unwrap();
    assert_eq!(shown["value"]["artifacts_hidden_refs"], json!(["h"]));
    assert_eq!(kept["trajectory_digest"]["observations_summary"], "saw");
    for bad in [
        json!({}),
        json!({"user_message": "u", "role": "user"}),
        json!({"user_message": "u", "tenant": "t"}),
        json!({"user_message": "u", "timestamp": "yesterday"}),
        json!({"user_message": "u", "artifacts_shown": []}),
        json!({"user_message": "u", "once": ""}),
    ] {
        assert_eq!(
            desk.call(&me, "add", bad.clone()).await.unwrap_err().code(),
            Code::InvalidInput,
            "{bad}"
        );
    }
    assert_eq!(
        desk.call(&me, "trace", json!({})).await.unwrap()["kept_turns"],
        1
    );
}

#[tokio::test]
async fn a_secret_of_the_call_reaches_no_turn_and_no_name() {
    let desk = Desk::new(Strategy::Truncation).await;
    let me = caller("t", "alice").with_session("s").unwrap();
    let leak = format!("the key is {CANARY}.");
    let turn = json!({
        "user_message": leak, "assistant_response": leak, "artifacts_hidden_refs": [leak],
        "trajectory_digest": {"tools_invoked": [leak], "observations_summary": leak, "reasoning_summary": leak, "artifacts_refs": [leak]},
        "artifacts_shown": {"key": leak},
    });
    desk.call(&me, "add", turn.clone()).await.unwrap();
    let kept = desk.raw(&me, "snapshot", "{}").await.unwrap();
    assert_eq!(
        (
            kept.matches("the key is [secret].").count(),
            kept.contains(CANARY)
        ),
        (8, false),
        "{kept}"
    );
    let record = json!({"strategy": "truncation", "turns": [{"UserMessage": leak, "AssistantResponse": "", "Timestamp": "2026-11-22T16:00:00Z"}]});
    desk.call(&me, "restore", json!({"snapshot": record}))
        .await
        .unwrap();
    assert_eq!(
        said(&desk.call(&me, "context", json!({})).await.unwrap()),
        ["the key is [secret]."]
    );
    for (verb, input) in [
        ("add", json!({"session": CANARY, "user_message": "u"})),
        ("add", json!({"once": CANARY, "user_message": "u"})),
        ("restore", json!({"session": CANARY, "snapshot": record})),
    ] {
        assert_eq!(
            desk.call(&me, verb, input).await.unwrap_err().code(),
            Code::InvalidInput,
            "{verb}"
        );
    }
    assert_eq!(
        desk.call(&me, "list", json!({"what": "conversations"}))
            .await
            .unwrap()["total"],
        1
    );
}

#[tokio::test]
async fn under_none_nothing_is_kept_and_every_pack_answers() {
    let desk = Desk::new(Strategy::None).await;
    let me = caller("t", "alice").with_session("s").unwrap();
    assert_eq!(
        desk.call(&me, "add", json!({"user_message": "u"}))
            .await
            .unwrap()["id"],
        Value::Null
    );
    assert_eq!(
        said(&desk.call(&me, "context", json!({})).await.unwrap()),
        [""; 0]
    );
    assert_eq!(
        desk.call(&me, "context", json!({"format": "prompt"}))
            .await
            .unwrap()["prompt"],
        Value::Null
    );
    assert_eq!(
        desk.call(&me, "trace", json!({})).await.unwrap()["strategy"],
        "none"
    );
    let exported = desk.call(&me, "snapshot", json!({})).await.unwrap();
    assert_eq!(
        exported,
        json!({"strategy": "none", "snapshot": {"strategy": "none"}})
    );
    desk.call(&me, "restore", json!({"snapshot": exported["snapshot"]}))
        .await
        .unwrap();
    assert_eq!(
        desk.call(&me, "forget", json!({})).await.unwrap(),
        json!({"removed_turns": 0})
    );
}

#[tokio::test]
async fn after_the_end_every_pack_says_that_the_memory_is_closed() {
    let desk = Desk::new(Strategy::Truncation).await;
    let me = caller("t", "alice").with_session("s").unwrap();
    desk.conversations.close(Duration::from_secs(1)).await;
    for pack in &desk.packs {
        let verb = manifest(pack).name.as_str().replace("conversation.", "");
        let error = desk
            .call(&me, &verb, manifest(pack).examples[0].input.clone())
            .await
            .unwrap_err();
        assert_eq!(error.code(), Code::Overloaded, "{verb}");
    }
}
