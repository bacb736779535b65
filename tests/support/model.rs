//! A scripted model: an OpenAI-compatible chat endpoint on loopback that gives prepared answers in
//! their order and keeps every request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::wait_for;

/// What ends a run: the command that agents submit with.
pub(crate) const SUBMIT: &str = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT";

/// What the model does when it is asked.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Says a sentence and calls the tool `bash` with this command.
    Bash(String),
    /// Answers with this text, and no tool call.
    Text(String),
    /// Answers with this status, these headers and this body.
    Status(u16, Vec<(&'static str, String)>, Value),
    /// Does not answer until [`Model::go_on`], then gives the next answer.
    Hang,
}

/// Returns a step that runs a command.
pub(crate) fn bash(command: impl Into<String>) -> Reply {
    Reply::Bash(command.into())
}

/// Returns the step that ends the run.
pub(crate) fn submit() -> Reply {
    bash(SUBMIT)
}

/// A request that came in.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// The header `Authorization`.
    pub(crate) authorization: Option<String>,
    /// The body.
    pub(crate) body: Value,
}

impl Asked {
    /// Returns the messages' texts, in their order, joined by empty lines.
    pub(crate) fn prompt(&self) -> String {
        let messages = self.body["messages"].as_array().unwrap();
        messages
            .iter()
            .filter_map(|message| message["content"].as_str())
            .collect::<Vec<_>>()
            .join("\n\n")
    }

    /// Returns the text of the last message.
    pub(crate) fn last(&self) -> &str {
        self.body["messages"]
            .as_array()
            .and_then(|all| all.last()?["content"].as_str())
            .unwrap_or_default()
    }
}

#[derive(Default)]
struct Shared {
    script: Mutex<VecDeque<Reply>>,
    asked: Mutex<Vec<Asked>>,
    hanging: Mutex<usize>,
    go_on: Notify,
}

/// A running model. It ends when this value does.
pub(crate) struct Model {
    shared: Arc<Shared>,
    address: std::net::SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

/// How many tokens each answer says that it took: prompt and completion.
pub(crate) const TOKENS: (u64, u64) = (1000, 50);

impl Model {
    /// Starts a model with a script.
    pub(crate) fn start(script: impl IntoIterator<Item = Reply>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let shared = Arc::new(Shared::default());
        let app = axum::Router::new()
            .route("/v1/chat/completions", axum::routing::post(answer))
            .with_state(Arc::clone(&shared));
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move { axum::serve(listener, app).await });
        let model = Self {
            shared,
            address,
            _runtime: runtime,
        };
        model.then(script);
        model
    }

    /// Returns its base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Adds to the script.
    pub(crate) fn then(&self, script: impl IntoIterator<Item = Reply>) {
        self.shared.script.lock().unwrap().extend(script);
    }

    /// Forgets what is left of the script.
    pub(crate) fn forget(&self) {
        self.shared.script.lock().unwrap().clear();
    }

    /// Returns the requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// Returns how many answers of the script are unused.
    pub(crate) fn left(&self) -> usize {
        self.shared.script.lock().unwrap().len()
    }

    /// Waits until a request hangs here.
    #[track_caller]
    pub(crate) fn wait_until_hanging(&self) {
        wait_for("a request to hang at the model", || {
            *self.shared.hanging.lock().unwrap() > 0
        });
    }

    /// Lets what hangs go on.
    pub(crate) fn go_on(&self) {
        self.shared.go_on.notify_waiters();
    }
}

/// A request that hangs, until it goes on or its client is gone.
struct Hanging(Arc<Shared>);

impl Hanging {
    fn at(shared: &Arc<Shared>) -> Self {
        *shared.hanging.lock().unwrap() += 1;
        Self(Arc::clone(shared))
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        *self.0.hanging.lock().unwrap() -= 1;
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let authorization = headers
        .get("authorization")
        .map(|value| value.to_str().unwrap_or_default().to_owned());
    let number = {
        let mut asked = shared.asked.lock().unwrap();
        asked.push(Asked {
            authorization,
            body,
        });
        asked.len()
    };
    loop {
        let next = shared.script.lock().unwrap().pop_front();
        match next {
            Some(Reply::Hang) => {
                let go_on = shared.go_on.notified();
                let _hanging = Hanging::at(&shared);
                go_on.await;
            }
            Some(Reply::Bash(command)) => {
                return completion(number, &call_bash(number, &command), "tool_calls");
            }
            Some(Reply::Text(text)) => {
                return completion(
                    number,
                    &json!({"role": "assistant", "content": text}),
                    "stop",
                );
            }
            Some(Reply::Status(status, headers, body)) => {
                let mut response =
                    (StatusCode::from_u16(status).unwrap(), Json(body)).into_response();
                for (name, value) in headers {
                    response.headers_mut().insert(name, value.parse().unwrap());
                }
                return response;
            }
            None => {
                let error = json!({"error": {"message": "the script is over", "type": "invalid_request_error"}});
                return (StatusCode::BAD_REQUEST, Json(error)).into_response();
            }
        }
    }
}

fn call_bash(number: usize, command: &str) -> Value {
    let arguments = json!({"command": command}).to_string();
    let function = json!({"name": "bash", "arguments": arguments});
    let call = json!({"id": format!("call_{number}"), "type": "function", "function": function});
    json!({"role": "assistant", "content": format!("This is step {number}."), "tool_calls": [call]})
}

fn completion(number: usize, message: &Value, finish: &str) -> Response {
    let (prompt, completion) = TOKENS;
    let usage = json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion});
    let choice = json!({"index": 0, "message": message, "finish_reason": finish});
    Json(json!({
        "id": format!("chatcmpl-{number}"), "object": "chat.completion", "created": 1_700_000_000, "model": "scripted",
        "choices": [choice], "usage": usage,
    }))
    .into_response()
}
