//! Tests of the packs `conversation.*` in a real engine.
//!
//! They cover credentials of a call, shared conversations, and forgetting everything.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_conversation::{Config, ConversationMemory, Conversations, Dependencies};
use helmdeck_core::{Builtin, Call, Code, Identity, Json, PackName, Reply};
use helmdeck_engine::Engine;
use helmdeck_testkit::{ManualClock, function, manifest};
use serde_json::{Value, json};

use crate::support::engine::{self, Wallet};

const TOKEN: &str = "s3cr3t/t0ken+of the d\"eck";

/// An engine with every pack and a conversation memory, wired as the program wires it.
struct Fixture {
    engine: Engine,
    conversations: Conversations,
    _folder: tempfile::TempDir,
}

impl Fixture {
    async fn new(more: Vec<Builtin>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (engine, conversations) = open(folder.path(), more).await;
        Self {
            engine,
            conversations,
            _folder: folder,
        }
    }

    async fn call(
        &self,
        identity: &Identity,
        pack: &str,
        input: Value,
    ) -> Result<Value, (Code, String)> {
        let call = Call::new(
            PackName::new(pack).unwrap(),
            input.to_string(),
            Arc::new(identity.clone()),
        );
        let outcome = self
            .engine
            .call(call)
            .await
            .map_err(|error| (error.code(), error.message().to_owned()))?;
        assert!(
            outcome.cache.is_none() || !pack.starts_with("conversation."),
            "{pack}: no answer is cached"
        );
        Ok(outcome.output.to_value())
    }

    async fn said(&self, identity: &Identity, session: &str) -> usize {
        let context = self
            .call(
                identity,
                "conversation.context",
                json!({"session": session}),
            )
            .await
            .unwrap();
        context["recent_turns"].as_array().unwrap().len()
    }
}

async fn open(folder: &Path, more: Vec<Builtin>) -> (Engine, Conversations) {
    let clock = Arc::new(ManualClock::default());
    let conversations = Conversations::default();
    let mut packs = engine::builtins_with("http://127.0.0.1:1", &clock, &conversations);
    packs.extend(more);
    let memory = engine::memory(folder, &clock).await;
    let engine = engine::engine(
        packs,
        &clock,
        &Wallet::of(&[("deck", TOKEN)]),
        folder,
        Some(memory),
    );
    let control = engine.memory().unwrap();
    let place = conversations.clone();
    control.on_forgotten_conversations(move |caller| place.forgotten(caller));
    let dependencies = Dependencies {
        store: Arc::clone(control.store()),
        events: engine.events().clone(),
        clock,
        summarizer: None,
    };
    // What is held is never compared with the store.
    let config = Config {
        hot_for: Duration::from_secs(3600),
        ..Config::default()
    };
    conversations.provide(move || {
        ConversationMemory::open(config.clone(), dependencies.clone()).map_err(Into::into)
    });
    (engine, conversations)
}

/// A pack that hands its input on to another one, with its own credential in the place of `TOKEN`.
fn leaky(scope: &str) -> Builtin {
    let top = "read_only = true\ncredentials = [\"deck\"]";
    let rest = format!("[input]\ntype = \"object\"\n{scope}");
    function(
        &manifest("test.leaky", top, &rest),
        |context, input: Json| async move {
            let secret = context.credential()?.unwrap();
            let value = input.to_value();
            let written = json!(secret.expose()).to_string();
            let written = written
                .strip_prefix('"')
                .and_then(|text| text.strip_suffix('"'))
                .unwrap();
            let filled = value["input"].to_string().replace("TOKEN", written);
            let outcome = context
                .call(
                    value["pack"].as_str().unwrap(),
                    Json::parse(filled).unwrap(),
                )
                .await?;
            Ok(Reply::json(outcome.output))
        },
    )
    .0
}

#[tokio::test]
async fn credentials_of_calling_packs_are_redacted() {
    let fixture = Fixture::new(vec![leaky("")]).await;
    let me = Identity::local().with_session("s").unwrap();
    let url = "https://x/?t=s3cr3t%2Ft0ken%2Bof%20the%20d%22eck";
    let turn = json!({
        "user_message": "it is TOKEN", "assistant_response": url, "artifacts_hidden_refs": ["it is TOKEN"],
        "trajectory_digest": {"tools_invoked": ["TOKEN"], "observations_summary": "TOKEN", "reasoning_summary": "TOKEN"},
        "artifacts_shown": {"TOKEN": ["TOKEN"]},
    });
    let through = |pack: &str, input: Value| json!({"pack": pack, "input": input});
    fixture
        .call(&me, "test.leaky", through("conversation.add", turn))
        .await
        .unwrap();
    let kept = fixture
        .call(&me, "conversation.snapshot", json!({}))
        .await
        .unwrap()
        .to_string();
    assert!(
        !kept.contains("s3cr3t") && kept.matches("[secret]").count() == 8,
        "{kept}"
    );
    let record = json!({"strategy": "truncation", "turns": [{"UserMessage": "it is TOKEN", "AssistantResponse": "", "Timestamp": "2026-11-22T16:00:00Z"}]});
    fixture
        .call(
            &me,
            "test.leaky",
            through("conversation.restore", json!({"snapshot": record})),
        )
        .await
        .unwrap();
    let kept = fixture
        .call(&me, "conversation.snapshot", json!({}))
        .await
        .unwrap()
        .to_string();
    assert!(
        !kept.contains("s3cr3t") && kept.contains("it is [secret]"),
        "{kept}"
    );
    for input in [
        json!({"session": "TOKEN", "user_message": "u"}),
        json!({"once": "TOKEN", "user_message": "u"}),
    ] {
        let (code, message) = fixture
            .call(&me, "test.leaky", through("conversation.add", input))
            .await
            .unwrap_err();
        assert_eq!(code, Code::InvalidInput, "{message}");
    }
    // No handler got the credential here: the same words are plain text.
    fixture
        .call(
            &me,
            "conversation.add",
            json!({"session": "plain", "user_message": TOKEN}),
        )
        .await
        .unwrap();
    let plain = fixture
        .call(&me, "conversation.context", json!({"session": "plain"}))
        .await
        .unwrap();
    assert_eq!(plain["recent_turns"][0]["user_message"], TOKEN);
}

#[tokio::test]
async fn anonymous_and_shared_callers_have_no_conversations() {
    let shared = leaky("[memory]\ncache = true\nttl = \"1h\"\nscope = \"shared\"");
    let fixture = Fixture::new(vec![shared]).await;
    let add = json!({"session": "s", "user_message": "u"});
    let (code, message) = fixture
        .call(&Identity::anonymous(), "conversation.add", add.clone())
        .await
        .unwrap_err();
    assert_eq!(code, Code::Unauthenticated, "{message}");
    let input = json!({"pack": "conversation.add", "input": add});
    let (code, message) = fixture
        .call(&Identity::local(), "test.leaky", input)
        .await
        .unwrap_err();
    assert_eq!(code, Code::Forbidden, "{message}");
    assert!(
        fixture.conversations.opened().is_none(),
        "nobody had to look"
    );
}

#[tokio::test]
async fn forgetting_empties_caches_of_that_caller_only() {
    let fixture = Fixture::new(Vec::new()).await;
    let callers = [("t", "alice"), ("t", "bob"), ("u", "alice")]
        .map(|(tenant, user)| Identity::new(tenant, user).unwrap());
    for identity in &callers {
        for session in ["a", "b"] {
            fixture
                .call(
                    identity,
                    "conversation.add",
                    json!({"session": session, "user_message": "u"}),
                )
                .await
                .unwrap();
            assert_eq!(fixture.said(identity, session).await, 1);
        }
    }
    let all = json!({"all": true, "what": ["conversations"]});
    let gone = fixture
        .call(&callers[0], "memory.forget", all.clone())
        .await
        .unwrap();
    assert!(
        gone["removed"]["conversations"].as_u64().unwrap() >= 6,
        "head, checkpoint and turn of each: {gone}"
    );
    for (identity, left) in callers.iter().zip([0, 1, 1]) {
        for session in ["a", "b"] {
            assert_eq!(
                fixture.said(identity, session).await,
                left,
                "{identity:?} {session}"
            );
        }
    }
    fixture
        .call(
            &callers[0],
            "conversation.add",
            json!({"session": "a", "user_message": "anew"}),
        )
        .await
        .unwrap();
    assert_eq!(fixture.said(&callers[0], "a").await, 1);
    let rows = fixture
        .engine
        .memory()
        .unwrap()
        .store()
        .stats()
        .await
        .unwrap()
        .rows_by_kind;
    assert!(
        !rows.contains_key("audit"),
        "no audit row tells of turns: {rows:?}"
    );
    // A transport forgets the same way.
    let facts = fixture
        .engine
        .memory()
        .unwrap()
        .facts(&Arc::new(callers[1].clone()))
        .unwrap();
    facts
        .forget(serde_json::from_value(all).unwrap())
        .await
        .unwrap();
    assert_eq!(fixture.said(&callers[1], "a").await, 0);
}
