//! Chat endpoint on loopback with scripted answers.

use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Size limit of a request, in bytes.
const MAX_REQUEST_BYTES: usize = 64 << 20;

/// Received request.
#[derive(Debug, Clone)]
pub struct ChatRequest {
    /// Request line and headers, unchanged.
    pub head: String,
    /// The body; null if it is not JSON.
    pub body: Value,
}

impl ChatRequest {
    /// Returns the value of a header, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'));
        lines
            .into_iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }

    /// Returns the content of a message, counted from the end if negative; empty if it has none.
    #[must_use]
    pub fn content(&self, index: isize) -> &str {
        let messages = self.body["messages"]
            .as_array()
            .map_or(&[] as &[Value], Vec::as_slice);
        let index = if index < 0 {
            messages.len().checked_add_signed(index)
        } else {
            usize::try_from(index).ok()
        };
        index
            .and_then(|index| messages.get(index)?["content"].as_str())
            .unwrap_or_default()
    }
}

/// Scripted answer to a request.
#[derive(Debug, Clone)]
pub enum ChatReply {
    /// Answers with a status, more headers (`retry-after: 1`), and a body.
    Http(u16, Vec<String>, Vec<u8>),
    /// Sends a body that never ends.
    Endless,
    /// Never answers, and keeps the connection open.
    Silent,
    /// Answers 200 with a body, with a pause of this length in the middle.
    Slow(Duration, Vec<u8>),
    /// Closes the connection in the middle of the answer.
    Broken,
}

impl ChatReply {
    /// Answers 200 with JSON.
    #[must_use]
    pub fn json(body: &Value) -> Self {
        Self::Http(200, Vec::new(), body.to_string().into_bytes())
    }

    /// Answers with an error of this status and code.
    #[must_use]
    pub fn error(status: u16, code: &str) -> Self {
        let body = json!({"error": {"message": "words of the endpoint", "type": "some_error", "code": code}});
        Self::Http(status, Vec::new(), body.to_string().into_bytes())
    }

    /// Answers with text only, with a pause of this length in the middle.
    #[must_use]
    pub fn slow_text(wait: Duration, text: &str) -> Self {
        match Self::text(text) {
            Self::Http(_, _, body) => Self::Slow(wait, body),
            other => other,
        }
    }

    /// Adds a header line.
    #[must_use]
    pub fn with_header(mut self, line: &str) -> Self {
        if let Self::Http(_, headers, _) = &mut self {
            headers.push(line.to_owned());
        }
        self
    }

    /// Answers with text only: 100 prompt tokens, 10 answer tokens.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::message(&json!({"role": "assistant", "content": text}), "stop")
    }

    /// Answers with some text, then a call of the tool `bash`.
    #[must_use]
    pub fn bash(text: &str, command: &str) -> Self {
        let arguments = json!({"command": command}).to_string();
        let call = json!({"id": "call_x", "type": "function", "function": {"name": "bash", "arguments": arguments}});
        Self::message(
            &json!({"role": "assistant", "content": text, "tool_calls": [call]}),
            "tool_calls",
        )
    }

    /// Answers with this message.
    #[must_use]
    pub fn message(message: &Value, finish: &str) -> Self {
        Self::json(&json!({
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
        }))
    }
}

type Script = dyn Fn(usize, &ChatRequest) -> ChatReply + Send + Sync;

/// The endpoint. It stops when dropped.
pub struct ChatServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<ChatRequest>>>,
    task: tokio::task::JoinHandle<()>,
}

helmdeck_core::redacted_debug!(ChatServer, this => address = this.address);

impl ChatServer {
    /// Starts an endpoint on a free port of loopback; `script` gets the number of earlier requests.
    ///
    /// # Panics
    /// If it cannot listen.
    pub async fn start(
        script: impl Fn(usize, &ChatRequest) -> ChatReply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap_or_else(|error| panic!("cannot listen: {error}"));
        let address = listener
            .local_addr()
            .unwrap_or_else(|error| panic!("no address: {error}"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, script): (_, Arc<Script>) = (Arc::clone(&requests), Arc::new(script));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&seen), Arc::clone(&script)));
            }
        });
        Self {
            address,
            requests,
            task,
        }
    }

    /// Starts an endpoint that gives these answers in turn, and repeats the last one.
    ///
    /// # Panics
    /// If it cannot listen.
    pub async fn playing(replies: Vec<ChatReply>) -> Self {
        let last = replies.last().cloned().unwrap_or(ChatReply::Silent);
        Self::start(move |index, _| replies.get(index).unwrap_or(&last).clone()).await
    }

    /// Returns its base URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns the requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<ChatRequest> {
        self.requests.lock().clone()
    }
}

impl Drop for ChatServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    seen: Arc<Mutex<Vec<ChatRequest>>>,
    script: Arc<Script>,
) -> Option<()> {
    let request = receive(&mut stream).await?;
    let reply = {
        let mut seen = seen.lock();
        let reply = script(seen.len(), &request);
        seen.push(request);
        reply
    };
    match reply {
        ChatReply::Http(status, headers, body) => {
            let more: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\nconnection: close\r\n{more}content-length: {length}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.ok()?;
            stream.write_all(&body).await.ok()?;
        }
        ChatReply::Broken => {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"choices\":")
                .await
                .ok()?;
        }
        ChatReply::Endless => {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"choices\":[\"")
                .await
                .ok()?;
            while stream.write_all(&vec![b'x'; 65_536]).await.is_ok() {}
        }
        ChatReply::Silent => tokio::time::sleep(Duration::from_secs(3600)).await,
        ChatReply::Slow(wait, body) => {
            let head = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let (first, second) = body.split_at(body.len() / 2);
            stream.write_all(head.as_bytes()).await.ok()?;
            stream.write_all(first).await.ok()?;
            tokio::time::sleep(wait).await;
            stream.write_all(second).await.ok()?;
        }
    }
    stream.shutdown().await.ok()
}

async fn receive(stream: &mut TcpStream) -> Option<ChatRequest> {
    let mut bytes = Vec::new();
    loop {
        let mut chunk = vec![0; 65_536];
        let read = stream
            .read(&mut chunk)
            .await
            .ok()
            .filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let Some(end) = end.filter(|_| bytes.len() <= MAX_REQUEST_BYTES) else {
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut request = ChatRequest {
            head,
            body: Value::Null,
        };
        let length: usize = request
            .header("content-length")
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        if bytes.len() >= end + 4 + length {
            request.body = serde_json::from_slice(&bytes[end + 4..]).unwrap_or(Value::Null);
            return Some(request);
        }
    }
}
