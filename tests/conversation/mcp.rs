//! Tests of the packs `conversation.*` over MCP, as agents reach them.
//!
//! The official clients run against the real program.

use std::time::SystemTime;

use helmdeck_testkit::Issuer;
use serde_json::{Value, json};

use crate::support::KEY;
use crate::support::mcp::Programs;
use crate::support::program::{Home, Server};
use crate::support::raw_mcp::McpClient;

const SECRET: &str = "a shared secret of 32 bytes or so";

/// A record of another program, with details that a parser of values would change.
///
/// They are digits, escapes and unknown members.
const RECORD: &str = r#"{"strategy":"truncation","turns":[{"UserMessage":"a \u003c b \u0026 c","AssistantResponse":"\u2028","TrajectoryDigest":null,"ArtifactsShown":{"z":123456789012345678901234567890,"a":1.10,"e":1E2},"ArtifactsHiddenRefs":null,"Timestamp":"2026-06-02T10:11:12.123456789+02:00","Later":{"y":9007199254740993}}],"unknown":{"big":1.0000000000000000001}}"#;

/// Carries out a plan, and returns what came of it.
type Client<'a> = dyn Fn(&Value) -> Value + 'a;

/// Makes a token of a user of the tenant `acme`.
fn token(user: &str) -> String {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let claims = json!({"sub": user, "tenant": "acme", "scope": "packs:run memory:read memory:write", "iat": now, "exp": now + 600});
    Issuer::shared(SECRET.as_bytes()).token(&claims)
}

/// A server that tells callers apart, and never asks its store about a conversation that it holds.
fn server(home: &Home) -> Server {
    home.configure("[conversation]\nhot_for = \"1h\"\n");
    Server::start_with(home, KEY, &[("HELMDECK_JWT_SECRET", SECRET)])
}

fn call(pack: &str, input: Value) -> Value {
    json!({"do": "call", "name": format!("conversation__{pack}"), "arguments": input})
}

/// Lets a client make calls; returns the structured output of each, or the problem.
fn outputs(answer: &Value) -> Vec<Value> {
    let results = answer["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| &step["result"]);
    results
        .map(|result| match result["isError"].as_bool() {
            Some(true) => result["_meta"]["helmdeck/problem"].clone(),
            _ => result["structuredContent"].clone(),
        })
        .collect()
}

fn said(context: &Value) -> Vec<&str> {
    context["recent_turns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|turn| turn["user_message"].as_str().unwrap())
        .collect()
}

#[test]
fn agents_export_and_restore_their_own_conversations() {
    let home = Home::new();
    let server = server(&home);
    let programs = Programs::installed();
    let target = |user| json!({"url": server.url("/mcp"), "headers": {"Authorization": format!("Bearer {}", token(user))}});
    let agents: [(&str, &Client<'_>); 2] = [
        ("alice", &|plan| programs.python(plan)),
        ("bob", &|plan| programs.typescript(plan)),
    ];
    for (user, client) in &agents {
        let mut steps = vec![json!({"do": "tools"})];
        for session in ["s", "../s", "a|b", "%2F", "👩‍👧", " "] {
            for said in ["one", "two"] {
                let said = format!("{user} {session} {said}");
                steps.push(call(
                    "add",
                    json!({"session": session, "user_message": said, "assistant_response": "ok"}),
                ));
            }
            steps.push(call("context", json!({"session": session})));
        }
        let answer = client(&json!({"target": target(user), "steps": steps}));
        let tools = answer["steps"][0]["result"]["tools"].as_array().unwrap();
        let of = |name: &str| {
            tools
                .iter()
                .find(|tool| tool["name"] == name)
                .unwrap_or_else(|| panic!("no {name}"))
        };
        assert_eq!(
            of("conversation__context")["annotations"]["readOnlyHint"],
            true
        );
        assert_eq!(
            of("conversation__add")["annotations"]["readOnlyHint"],
            false
        );
        for (index, session) in ["s", "../s", "a|b", "%2F", "👩‍👧", " "]
            .into_iter()
            .enumerate()
        {
            let context = &answer["steps"][3 + 3 * index]["result"]["structuredContent"];
            assert_eq!(
                said(context),
                [
                    format!("{user} {session} one"),
                    format!("{user} {session} two")
                ],
                "{context}"
            );
        }
    }
    for (user, client) in &agents {
        let first = client(&json!({"target": target(user), "steps": [
            call("context", json!({"session": "s", "format": "prompt"})), call("snapshot", json!({"session": "s"})),
            call("list", json!({"what": "conversations"})), call("health", json!({"session": "s"})),
            call("trace", json!({"session": "s"})), call("list", json!({"session": "s"})),
        ]}));
        let [prompt, snapshot, conversations, health, trace, turns] =
            outputs(&first).try_into().unwrap();
        let prompt = prompt["prompt"].as_str().unwrap();
        assert!(
            prompt.contains(&format!("{user} s two"))
                && prompt.ends_with("</read_only_conversation_memory>")
        );
        assert_eq!(
            (
                &conversations["total"],
                &health["health"],
                &trace["kept_turns"]
            ),
            (&json!(6), &json!("healthy"), &json!(2))
        );
        let key = &turns["items"][0]["key"];
        let second = client(&json!({"target": target(user), "steps": [
            call("flush", json!({"session": "s"})), call("context", json!({"session": "s"})),
            call("restore", json!({"session": "s", "snapshot": snapshot["snapshot"]})), call("context", json!({"session": "s"})),
            call("show", json!({"session": "s", "key": key})), call("forget", json!({"session": "../s"})),
            call("context", json!({"session": "../s"})),
        ]}));
        let [flushed, empty, restored, again, gone, forgotten, none] =
            outputs(&second).try_into().unwrap();
        assert_eq!((flushed, said(&empty).len()), (json!({"flushed": true}), 0));
        assert_eq!(
            (restored, said(&again)),
            (
                json!({"restored": true}),
                vec![&*format!("{user} s one"), &format!("{user} s two")]
            )
        );
        assert_eq!(
            gone["code"], "not_found",
            "a restored turn has another id: {gone}"
        );
        assert_eq!(
            (forgotten, said(&none).len()),
            (json!({"removed_turns": 2}), 0)
        );
    }
}

#[test]
fn a_snapshot_passes_both_doors_byte_for_byte() {
    let home = Home::new();
    let server = server(&home);
    let client = McpClient::open(&server, &token("alice"));
    let request = |id, name: &str, input: &str| {
        let params = format!(r#"{{"name":"conversation__{name}","arguments":{input}}}"#);
        client
            .send(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#
            ))
            .body
    };
    let restored = request(
        1,
        "restore",
        &format!(r#"{{ "snapshot":{RECORD}, "session":"raw" }}"#),
    );
    assert!(restored.contains(r#""restored":true"#), "{restored}");
    let exported = request(2, "snapshot", r#"{"session":"raw"}"#);
    assert!(
        exported.contains(&format!(r#""snapshot":{RECORD}"#)),
        "{exported}"
    );
    let head = |pack| {
        format!(
            "POST /api/v1/packs/conversation.{pack}\nAuthorization: Bearer {}",
            token("bob")
        )
    };
    let restored = server.ask(
        &head("restore"),
        &format!(r#"{{"session":"raw","snapshot": {RECORD}}}"#),
    );
    assert_eq!(restored.code, 200, "{}", restored.body);
    let exported = server.ask(&head("snapshot"), r#"{"session":"raw"}"#);
    assert!(
        exported.body.contains(&format!(r#""snapshot":{RECORD}"#)),
        "{}",
        exported.body
    );
}

#[test]
fn connection_session_is_the_default_conversation() {
    let home = Home::new();
    let server = server(&home);
    let clients = [
        McpClient::open(&server, &token("alice")),
        McpClient::open(&server, &token("alice")),
    ];
    let context = |client: &McpClient<'_>, input| {
        client.call("conversation.context", &input, "default")["structuredContent"].clone()
    };
    for (client, text) in clients.iter().zip(["first", "second"]) {
        client.call(
            "conversation.add",
            &json!({"user_message": text}),
            "default",
        );
    }
    for (client, text) in clients.iter().zip(["first", "second"]) {
        assert_eq!(said(&context(client, json!({}))), [text]);
    }
    let others = json!({"session": clients[1].session()});
    assert_eq!(
        said(&context(&clients[0], others)),
        ["second"],
        "the other connection is the same caller's"
    );
    let of_bob = McpClient::open(&server, &token("bob"));
    assert_eq!(
        said(&context(&of_bob, json!({"session": clients[1].session()}))),
        [""; 0]
    );
    let end = json!({"all": true, "what": ["conversations"]});
    let gone = clients[0].call("memory.forget", &end, "default");
    assert!(
        gone["structuredContent"]["removed"]["conversations"]
            .as_u64()
            .unwrap()
            >= 4,
        "{gone}"
    );
    for client in &clients {
        assert_eq!(
            said(&context(client, json!({}))),
            [""; 0],
            "nothing of it is held either"
        );
    }
}

#[test]
fn stdio_process_has_its_own_conversation() {
    let home = Home::new();
    let mut environment = json!(home.environment(KEY));
    let mut target =
        json!({"command": [env!("CARGO_BIN_EXE_helmdeck"), "mcp"], "env": environment});
    let steps = json!([
        call("add", json!({"user_message": "own"})),
        call("context", json!({})),
        call("add", json!({"session": "s", "user_message": "u"})),
        call("context", json!({"session": "s"})),
        call("context", json!({"session": "a\nb"})),
    ]);
    let answer = Programs::installed().python(&json!({"target": target, "steps": steps}));
    let [unnamed, own, added, context, hostile] = outputs(&answer).try_into().unwrap();
    assert!(
        unnamed["id"].as_str().unwrap().starts_with("mem_"),
        "{unnamed}"
    );
    assert_eq!(said(&own), ["own"]);
    // Another process is another session.
    let again = Programs::installed()
        .python(&json!({"target": target, "steps": [call("context", json!({}))]}));
    assert_eq!(said(&outputs(&again)[0]), [""; 0]);
    assert!(added["id"].as_str().unwrap().starts_with("mem_"), "{added}");
    assert_eq!(
        (said(&context), &hostile["code"]),
        (vec!["u"], &json!("invalid_input"))
    );

    let shut = Home::new();
    environment = json!(shut.environment(KEY));
    environment
        .as_object_mut()
        .unwrap()
        .remove("HELMDECK_MEMORY_KEY");
    target["env"] = environment;
    let key = json!({"session": "s", "key": "mem_000000000000000100000000"});
    let calls = [
        ("add", json!({"session": "s", "user_message": "u"})),
        ("context", json!({"session": "s"})),
        ("health", json!({"session": "s"})),
        ("trace", json!({})),
        ("list", json!({"what": "conversations"})),
        ("show", key.clone()),
        ("delete", key),
        ("snapshot", json!({"session": "s"})),
        (
            "restore",
            json!({"session": "s", "snapshot": {"strategy": "truncation"}}),
        ),
        ("flush", json!({"session": "s"})),
        ("forget", json!({})),
    ];
    let steps: Vec<Value> = calls.map(|(pack, input)| call(pack, input)).into();
    let answer = Programs::installed().python(&json!({"target": target, "steps": steps}));
    let problems = outputs(&answer);
    assert_eq!(problems.len(), 11);
    for problem in problems {
        assert_eq!(problem["code"], "not_found", "{problem}");
        assert!(problem.to_string().contains("memory is off"), "{problem}");
    }
    assert!(!shut.store().exists());
}
