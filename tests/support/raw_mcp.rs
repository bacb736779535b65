//! Raw MCP over HTTP (revision 2025-11-25): a test can be any client, also one that lies.

use serde_json::{Value, json};

use super::program::{Answer, Server};

const REVISION: &str = "2025-11-25";
const ACCEPT: &str = "Accept: application/json, text/event-stream";

/// A session of one client.
pub(crate) struct McpClient<'a> {
    server: &'a Server,
    /// Header lines, each ended, that every request has: `Authorization`.
    headers: String,
    session: String,
}

/// Returns the header line for a token.
pub(crate) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

impl<'a> McpClient<'a> {
    /// Opens a session.
    #[track_caller]
    pub(crate) fn open(server: &'a Server, token: &str) -> Self {
        Self::with_headers(server, format!("{}\r\n{ACCEPT}", bearer(token)))
    }

    /// Opens a session of a client that knows tasks.
    #[track_caller]
    pub(crate) fn with_tasks(server: &'a Server, token: &str) -> Self {
        let able = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
        Self::declaring(server, format!("{}\r\n{ACCEPT}", bearer(token)), &able)
    }

    /// Opens a session of a client without a token.
    #[track_caller]
    pub(crate) fn anonymous(server: &'a Server) -> Self {
        Self::with_headers(server, ACCEPT.to_owned())
    }

    #[track_caller]
    fn with_headers(server: &'a Server, headers: String) -> Self {
        Self::declaring(server, headers, &json!({}))
    }

    #[track_caller]
    fn declaring(server: &'a Server, headers: String, capabilities: &Value) -> Self {
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": REVISION, "capabilities": capabilities, "clientInfo": {"name": "test", "version": "1"}}});
        let answer = server
            .exchange(&format!("POST /mcp\n{headers}"), &hello.to_string())
            .unwrap();
        assert_eq!(answer.code, 200, "{}", answer.body);
        let session = answer
            .header("mcp-session-id")
            .expect("a session id")
            .to_owned();
        let client = Self {
            server,
            headers,
            session,
        };
        assert_eq!(
            client
                .post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
                .0,
            202
        );
        client
    }

    /// The same connection parameters, with the session id of another client.
    pub(crate) fn with_session_of(&self, other: &McpClient<'_>) -> Self {
        Self {
            server: self.server,
            headers: self.headers.clone(),
            session: other.session.clone(),
        }
    }

    /// Returns the id of the session.
    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// Sends one message; returns the HTTP status and the answer to it, if one came.
    pub(crate) fn post(&self, message: &Value) -> (u16, Option<Value>) {
        let answer = self.send(&message.to_string());
        let id = message.get("id");
        let found = messages(&answer.body)
            .into_iter()
            .find(|found| id.is_some() && found.get("id") == id);
        (answer.code, found)
    }

    /// Sends a text as it is; returns what came, as it is.
    pub(crate) fn send(&self, message: &str) -> Answer {
        let head = format!(
            "POST /mcp\n{}\r\nMcp-Session-Id: {}\r\nMCP-Protocol-Version: {REVISION}",
            self.headers, self.session
        );
        self.server.exchange(&head, message).unwrap()
    }

    /// Sends a request and returns its result.
    #[track_caller]
    pub(crate) fn ask(&self, method: &str, params: &Value) -> Value {
        let (code, answer) =
            self.post(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}));
        let answer = answer.unwrap_or_else(|| panic!("{method}: no answer, HTTP {code}"));
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Calls a pack; `directive` is that of the cache.
    #[track_caller]
    pub(crate) fn call(&self, pack: &str, input: &Value, directive: &str) -> Value {
        let params = json!({"name": pack.replace('.', "__"), "arguments": input,
            "_meta": {"helmdeck/cache": {"directive": directive}}});
        self.ask("tools/call", &params)
    }
}

/// Reads the messages of an answer: one JSON document, or server-sent events.
fn messages(body: &str) -> Vec<Value> {
    if let Ok(message) = serde_json::from_str(body) {
        return vec![message];
    }
    body.lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .filter_map(|data| serde_json::from_str(data.trim()).ok())
        .collect()
}
