//! Long packs as tasks: which calls become one, its states, its outcome, and its owner.

use std::time::Duration;

use helmdeck_testkit::ends;

use super::*;

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Capabilities of a client that supports tasks.
fn able() -> Value {
    json!({"extensions": {EXTENSION: {}}})
}

fn call(name: &str, arguments: Value) -> Value {
    json!({"name": name, "arguments": arguments})
}

/// Sends a request of the newest revision, with these client capabilities.
async fn ask_able(
    mcp: &Mcp,
    caller: &Caller,
    method: &str,
    mut params: Value,
    able: Value,
) -> Answer {
    let name = ["name", "uri", "taskId"]
        .iter()
        .find_map(|key| Some(params[key].as_str()?.to_owned()));
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = NEWEST.into();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = able;
    params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({"name": "t", "version": "1"});
    let mut request = Request::builder()
        .method(Method::POST)
        .uri("/mcp")
        .header("host", "localhost");
    for (name, value) in HEADERS
        .into_iter()
        .chain([("mcp-protocol-version", NEWEST), ("mcp-method", method)])
    {
        request = request.header(name, value);
    }
    if let Some(name) = name {
        request = request.header("mcp-name", name);
    }
    let request = request
        .body(Body::from(super::request(method, &params)))
        .unwrap();
    read(mcp.handle(caller.clone(), None, request).await).await
}

/// Sends a request as a client that supports tasks.
async fn ask(mcp: &Mcp, caller: &Caller, method: &str, params: Value) -> Value {
    message(&ask_able(mcp, caller, method, params, able()).await)
}

/// Begins a task and returns its id.
async fn task(mcp: &Mcp, caller: &Caller, arguments: Value) -> String {
    let begun = ask(mcp, caller, "tools/call", call("test__long", arguments)).await;
    assert_eq!(begun["result"]["resultType"], "task", "{begun}");
    begun["result"]["taskId"].as_str().unwrap().to_owned()
}

/// Polls until the task has ended.
async fn ended(mcp: &Mcp, caller: &Caller, id: &str) -> Value {
    let asking = async {
        loop {
            let task = ask(mcp, caller, "tasks/get", json!({"taskId": id})).await;
            if task["result"]["status"] != "working" {
                return task["result"].clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    ends("the answer", asking).await
}

/// Waits until a task reports progress.
async fn said(mcp: &Mcp, caller: &Caller, id: &str) -> Value {
    let asking = async {
        loop {
            let task = ask(mcp, caller, "tasks/get", json!({"taskId": id})).await;
            if task["result"]["status"] != "working"
                || task["result"]["statusMessage"] != "waiting for its turn"
            {
                return task["result"].clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    ends("the answer", asking).await
}

#[tokio::test]
async fn task_result_equals_the_answer_of_a_call() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    let (mcp, local) = (mcp_of(&fixture, McpConfig::default()), Caller::local());
    for arguments in [
        json!({"text": "x"}),
        json!({"text": "x", "file": "<p>"}),
        json!({"fail": "handler_failed"}),
        json!({"fail": "rate_limited"}),
    ] {
        let plain = ask_able(
            &mcp,
            &local,
            "tools/call",
            call("test__long", arguments.clone()),
            json!({}),
        )
        .await;
        let plain = message(&plain)["result"].clone();
        assert!(
            plain["content"][0]["text"].is_string() && plain.get("taskId").is_none(),
            "{plain}"
        );
        let id = task(&mcp, &local, arguments.clone()).await;
        let task = ended(&mcp, &local, &id).await;
        assert_eq!(
            (&task["status"], &task["taskId"], &task["resultType"]),
            (&"completed".into(), &id.into(), &"complete".into())
        );
        // Each run counts, and has separate files.
        let mut results = [plain, task["result"].clone()];
        for result in &mut results {
            for item in result["content"].as_array_mut().unwrap() {
                let own = if item["type"] == "text" {
                    "text"
                } else {
                    "uri"
                };
                assert!(item[own].take().is_string(), "{item}");
            }
            if let Some(structured) = result.get_mut("structuredContent") {
                assert!(structured["run"].take().is_u64());
            }
        }
        assert_eq!(results[0], results[1], "{arguments}");
    }
}

#[tokio::test]
async fn invalid_input_answers_at_once_and_server_error_fails_the_task() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    let (mcp, local) = (mcp_of(&fixture, McpConfig::default()), Caller::local());
    let refused = ask(
        &mcp,
        &local,
        "tools/call",
        call("test__long", json!({"text": 7})),
    )
    .await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert_eq!(
        refused["result"]["_meta"]["helmdeck/problem"]["code"],
        "invalid_input"
    );
    assert_eq!(fixture.probe.runs(), 0);
    let unknown = ask(&mcp, &local, "tools/call", call("test__nothing", json!({}))).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");

    let id = task(&mcp, &local, json!({"fail": "internal"})).await;
    let failed = ended(&mcp, &local, &id).await;
    assert_eq!(
        (&failed["status"], &failed["error"]["code"]),
        (&"failed".into(), &(-32603).into()),
        "{failed}"
    );
    assert_eq!(failed["error"]["data"]["code"], "internal");
    assert!(failed.get("result").is_none(), "{failed}");
}

#[tokio::test]
async fn task_survives_hang_up_and_ends_by_cancel() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    let (mcp, local) = (mcp_of(&fixture, McpConfig::default()), Caller::local());
    let id = task(&mcp, &local, json!({"wait": true})).await;
    ends("a call that waits", fixture.probe.someone_waits()).await;
    // A task does not belong to a connection or session: another client of the same caller finds
    // it.
    let working = said(&mcp_of(&fixture, McpConfig::default()), &local, &id).await;
    assert_eq!(working["status"], "working", "{working}");
    assert!(
        working.get("result").is_none()
            && working["ttlMs"].is_u64()
            && working["pollIntervalMs"].is_u64()
    );
    assert!(
        working["createdAt"].as_str().unwrap().ends_with('Z'),
        "{working}"
    );

    let nothing = json!({"taskId": id, "inputResponses": {"nobody asked": {"action": "accept"}}});
    let ack = json!({"resultType": "complete"});
    assert_eq!(
        ask(&mcp, &local, "tasks/update", nothing).await["result"],
        ack
    );
    for _ in 0..2 {
        assert_eq!(
            ask(&mcp, &local, "tasks/cancel", json!({"taskId": id})).await["result"],
            ack
        );
        let cancelled = ended(&mcp, &local, &id).await;
        assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
        assert!(
            cancelled.get("result").is_none() && cancelled.get("error").is_none(),
            "{cancelled}"
        );
    }
    // The handler at the gate is gone: a permit added now is still available.
    fixture.probe.gate.add_permits(1);
    ends("the call to go on", fixture.probe.gate.acquire())
        .await
        .unwrap()
        .forget();
}

#[tokio::test]
async fn foreign_tasks_look_like_unknown_ones() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    let mcp = mcp_of(&fixture, McpConfig::default());
    let owner = caller("acme", "alice", "packs:run");
    let id = task(&mcp, &owner, json!({"wait": true})).await;
    ends("a call that waits", fixture.probe.someone_waits()).await;
    let anonymous = Caller::new(Identity::anonymous(), Permissions::all());
    let others = [
        caller("acme", "bob", "packs:run"),
        caller("globex", "alice", "packs:run admin"),
        // The same person, by a token that may not run the pack.
        caller("acme", "alice", "packs:run:other.*"),
        Caller::local(),
        anonymous,
    ];
    let nowhere = "0".repeat(32);
    for other in &others {
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let asked = async |id: &str| {
                let answer = ask_able(
                    &mcp,
                    other,
                    method,
                    json!({"taskId": id, "inputResponses": {}}),
                    able(),
                )
                .await;
                (answer.status, message(&answer)["error"].clone())
            };
            let theirs = asked(&id).await;
            assert_eq!(theirs.1["code"], -32602, "{theirs:?}");
            for none in [nowhere.as_str(), "", "../x", "a b"] {
                let answer = ask_able(
                    &mcp,
                    other,
                    method,
                    json!({"taskId": none, "inputResponses": {}}),
                    able(),
                )
                .await;
                assert_eq!(
                    (answer.status, message(&answer)["error"].clone()),
                    theirs,
                    "{none}"
                );
            }
        }
        let listed = ask(&mcp, other, "resources/list", json!({}))
            .await
            .to_string();
        assert!(!listed.contains(&id), "{listed}");
        let refused = ask(
            &mcp,
            other,
            "resources/read",
            json!({"uri": format!("helmdeck://jobs/{id}")}),
        )
        .await;
        assert!(
            refused["error"]["code"].is_i64() && !refused.to_string().contains("test.long"),
            "{refused}"
        );
    }
    assert_eq!(said(&mcp, &owner, &id).await["status"], "working");
    fixture.probe.gate.add_permits(1);
    assert_eq!(ended(&mcp, &owner, &id).await["status"], "completed");
}

#[tokio::test]
async fn clients_without_tasks_wait_for_the_answer() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    let (mcp, local) = (mcp_of(&fixture, McpConfig::default()), Caller::local());
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({"taskId": "0".repeat(32), "inputResponses": {}});
        let refused = message(&ask_able(&mcp, &local, method, params, json!({})).await);
        assert_eq!(refused["error"]["code"], -32021, "{refused}");
        assert!(
            refused["error"]["data"]["requiredCapabilities"]["extensions"][EXTENSION].is_object(),
            "{refused}"
        );
    }
    // The methods of the experimental revision are not supported.
    for method in ["tasks/list", "tasks/result"] {
        let refused = ask(&mcp, &local, method, json!({"taskId": "0".repeat(32)})).await;
        assert_eq!(refused["error"]["code"], -32601, "{refused}");
    }
    let misfit = ask(&mcp, &local, "tasks/get", json!({"taskId": 7})).await;
    assert!(
        misfit["error"]["code"] == -32602 || misfit["error"]["code"] == -32020,
        "{misfit}"
    );

    // A quick pack never becomes a task, even if the client requests one.
    let mut quick = call("test__plain", json!({"text": "x"}));
    quick["task"] = json!({"ttl": 60_000});
    let answer = ask(&mcp, &local, "tools/call", quick).await;
    assert_eq!(
        (
            &answer["result"]["resultType"],
            &answer["result"]["isError"]
        ),
        (&"complete".into(), &false.into())
    );
    // Anonymous callers wait too: all of them would be one caller.
    let anonymous = Caller::new(Identity::anonymous(), Permissions::all());
    let answer = ask(
        &mcp,
        &anonymous,
        "tools/call",
        call("test__long", json!({})),
    )
    .await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
}

#[tokio::test]
async fn sessions_have_tasks_only_if_declared() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    let (mcp, local) = (mcp_of(&fixture, McpConfig::default()), Caller::local());
    let begin = async |able: Value| {
        let info = json!({"name": "t", "version": "1"});
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": able, "clientInfo": info});
        let answer = read(
            send_as(
                &mcp,
                &local,
                Method::POST,
                None,
                request("initialize", &params),
            )
            .await,
        )
        .await;
        assert!(
            message(&answer)["result"]["capabilities"]["extensions"][EXTENSION].is_object(),
            "{answer:?}"
        );
        answer.headers["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned()
    };
    let (with, without) = (begin(able()).await, begin(json!({})).await);
    let params = call("test__long", json!({"text": "x"}));
    let plain = message(&ask_as(&mcp, &local, &without, "tools/call", params.clone()).await);
    assert_eq!(plain["result"]["structuredContent"]["text"], "x", "{plain}");
    let begun = message(&ask_as(&mcp, &local, &with, "tools/call", params).await);
    let id = begun["result"]["taskId"].as_str().unwrap();
    let refused =
        message(&ask_as(&mcp, &local, &without, "tasks/get", json!({"taskId": id})).await);
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    let asking = async {
        loop {
            let task =
                message(&ask_as(&mcp, &local, &with, "tasks/get", json!({"taskId": id})).await);
            if task["result"]["status"] != "working" {
                return task["result"].clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let task = ends("the answer", asking).await;
    assert_eq!(
        (
            &task["status"],
            &task["result"]["structuredContent"]["text"]
        ),
        (&"completed".into(), &"x".into())
    );
    // The task outlives its session.
    read(send_as(&mcp, &local, Method::DELETE, Some(&with), String::new()).await).await;
    assert_eq!(ended(&mcp, &local, id).await["status"], "completed");
}

#[tokio::test]
async fn tasks_extension_is_announced_and_headers_checked() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    let (mcp, local) = (mcp_of(&fixture, McpConfig::default()), Caller::local());
    let found = ask(&mcp, &local, "server/discover", json!({})).await;
    assert!(
        found["result"]["capabilities"]["extensions"][EXTENSION].is_object(),
        "{found}"
    );
    assert!(
        found["result"]["capabilities"].get("tasks").is_none(),
        "{found}"
    );

    let id = task(&mcp, &local, json!({})).await;
    let params = json!({"taskId": id, "_meta": {
        "io.modelcontextprotocol/protocolVersion": NEWEST, "io.modelcontextprotocol/clientCapabilities": able(),
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"}}});
    let headers = [
        ("mcp-protocol-version", NEWEST),
        ("mcp-method", "tasks/get"),
        ("mcp-name", "another"),
    ];
    let answer = post(&fixture, &headers, &request("tasks/get", &params)).await;
    assert_eq!(
        (answer.status.as_u16(), &message(&answer)["error"]["code"]),
        (400, &(-32020).into()),
        "{answer:?}"
    );
}

#[tokio::test]
async fn long_packs_ignore_the_request_deadline() {
    let config = ServerConfig {
        request_deadline: Duration::from_millis(500),
        ..ServerConfig::default()
    };
    let fixture = Fixture::with_long(config.clone()).await;
    let mcp = Mcp::new(
        fixture.engine.clone(),
        &config,
        McpConfig::default(),
        Arc::clone(&fixture.clock) as _,
        None,
        None,
        None,
    );
    let local = Caller::local();
    let wait = json!({"wait": true});
    let late = message(
        &ask_able(
            &mcp,
            &local,
            "tools/call",
            call("test__plain", wait.clone()),
            json!({}),
        )
        .await,
    );
    assert_eq!(
        late["result"]["_meta"]["helmdeck/problem"]["code"], "timeout",
        "{late}"
    );
    fixture.probe.someone_waits().await;
    let let_go = async {
        fixture.probe.someone_waits().await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        fixture.probe.gate.add_permits(1);
    };
    let asking = ask_able(
        &mcp,
        &local,
        "tools/call",
        call("test__long", wait),
        json!({}),
    );
    let (answer, ()) = ends("the answer", futures_util::future::join(asking, let_go)).await;
    assert_eq!(message(&answer)["result"]["isError"], false, "{answer:?}");
}

#[tokio::test]
async fn what_came_of_a_job_can_be_read_as_a_resource() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    let (mcp, local) = (mcp_of(&fixture, McpConfig::default()), Caller::local());
    let read = async |uri: &str| {
        let answer = ask(&mcp, &local, "resources/read", json!({"uri": uri})).await;
        let contents = &answer["result"]["contents"][0];
        assert_eq!(
            (&contents["uri"], &contents["mimeType"]),
            (&uri.into(), &"application/json".into()),
            "{answer}"
        );
        serde_json::from_str::<Value>(contents["text"].as_str().unwrap()).unwrap()
    };
    let (good, bad) = (
        task(&mcp, &local, json!({"text": "x"})).await,
        task(&mcp, &local, json!({"fail": "conflict"})).await,
    );
    let held = task(&mcp, &local, json!({"wait": true})).await;
    for id in [&good, &bad] {
        ended(&mcp, &local, id).await;
    }
    ends("a call that waits", fixture.probe.someone_waits()).await;
    let address = |id: &str| format!("helmdeck://jobs/{id}");
    let result = read(&address(&good)).await;
    assert_eq!(
        (
            &result["job"]["state"],
            &result["outcome"]["output"]["text"]
        ),
        (&"succeeded".into(), &"x".into())
    );
    let problem = read(&address(&bad)).await;
    assert_eq!(
        (&problem["job"]["state"], &problem["problem"]["code"]),
        (&"failed".into(), &"conflict".into())
    );
    let running = read(&address(&held)).await;
    assert!(
        running.get("outcome").is_none() && running.get("problem").is_none(),
        "{running}"
    );

    let list = ask(&mcp, &local, "resources/list", json!({})).await;
    let listed: Vec<&str> = list["result"]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["uri"].as_str().unwrap())
        .collect();
    assert!(listed.is_sorted(), "{listed:?}");
    let (good, bad, held) = (address(&good), address(&bad), address(&held));
    assert!(
        listed.contains(&good.as_str()) && listed.contains(&bad.as_str()),
        "{listed:?}"
    );
    assert!(
        listed.contains(&"helmdeck://jobs") && !listed.contains(&held.as_str()),
        "only what has ended: {listed:?}"
    );
    assert_eq!(
        read("helmdeck://jobs").await["jobs"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    fixture.probe.gate.add_permits(1);
}

#[tokio::test]
async fn client_without_tasks_waits_and_cancels_its_job_by_hanging_up() {
    let fixture = Fixture::with_long(ServerConfig::default()).await;
    let (mcp, local) = (mcp_of(&fixture, McpConfig::default()), Caller::local());
    let jobs = async || {
        fixture
            .engine
            .jobs(None, &helmdeck_engine::JobQuery::default())
            .await
            .unwrap()
            .jobs
    };
    for (n, meta) in [json!({}), json!({"progressToken": "p"})]
        .into_iter()
        .enumerate()
    {
        let mut params = call("test__long", json!({"wait": true}));
        params["_meta"] = meta;
        {
            let mut asking = Box::pin(ask_able(&mcp, &local, "tools/call", params, json!({})));
            let waits = async {
                tokio::select! {
                    answer = &mut asking => panic!("{answer:?}"),
                    () = fixture.probe.someone_waits() => {}
                }
            };
            ends("a call that waits", waits).await;
            let all = jobs().await;
            assert_eq!(
                (all.len(), all[0].state),
                (n + 1, helmdeck_engine::JobState::Running),
                "{all:?}"
            );
        }
        // The client disconnected.
        let cancelled = async {
            while jobs().await[0].state != helmdeck_engine::JobState::Cancelled {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        ends("the cancelled call", cancelled).await;
    }
}
