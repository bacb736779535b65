//! MCP over stdin and stdout.

use helmdeck_core::Caller;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::ServerConfig;
use crate::mcp::{McpConfig, Stdio};

const SOON: std::time::Duration = std::time::Duration::from_secs(20);

/// A client at the other end of the lines.
pub(super) struct Client {
    input: WriteHalf<DuplexStream>,
    output: BufReader<ReadHalf<DuplexStream>>,
    served: JoinHandle<std::io::Result<()>>,
    stop: CancellationToken,
}

impl Client {
    pub(super) fn start(fixture: &Fixture, config: &ServerConfig) -> Self {
        Self::over(fixture, config, 1 << 20)
    }

    /// Makes a client with pipes of this many bytes.
    fn over(fixture: &Fixture, config: &ServerConfig, pipe: usize) -> Self {
        let (ours, theirs) = tokio::io::duplex(pipe);
        let (read, write) = tokio::io::split(theirs);
        let stop = CancellationToken::new();
        let stdio = Stdio::new(
            fixture.engine.clone(),
            config,
            McpConfig::default(),
            Caller::local(),
        );
        let served = tokio::spawn(stdio.serve_over(read, write, stop.clone()));
        let (output, input) = tokio::io::split(ours);
        Self {
            input,
            output: BufReader::new(output),
            served,
            stop,
        }
    }

    async fn send(&mut self, line: &str) {
        self.input.write_all(line.as_bytes()).await.unwrap();
        self.input.write_all(b"\n").await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let mut line = String::new();
        tokio::time::timeout(SOON, self.output.read_line(&mut line))
            .await
            .unwrap()
            .unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"))
    }

    pub(super) async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(&request(method, &params)).await;
        self.receive().await
    }

    pub(super) async fn begin(&mut self) {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let answer = self.ask("initialize", params).await;
        assert_eq!(
            answer["result"]["protocolVersion"], "2025-11-25",
            "{answer}"
        );
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .await;
    }

    async fn end(mut self) {
        self.input.shutdown().await.unwrap();
        self.served.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_client_lists_calls_and_leaves() {
    let fixture = Fixture::plain().await;
    let mut client = Client::start(&fixture, &ServerConfig::default());
    client.begin().await;
    let list = client.ask("tools/list", json!({})).await;
    assert_eq!(
        list["result"]["tools"].as_array().unwrap().len(),
        3,
        "{list}"
    );
    let answer = client
        .ask(
            "tools/call",
            json!({"name": "test__plain", "arguments": {"text": "hi"}}),
        )
        .await;
    assert_eq!(
        answer["result"]["structuredContent"],
        json!({"run": 1, "text": "hi"}),
        "{answer}"
    );
    client.end().await;
    let mut stopped = Client::start(&fixture, &ServerConfig::default());
    stopped.begin().await;
    stopped.stop.cancel();
    stopped.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn malformed_lines_are_answered_and_skipped() {
    let fixture = Fixture::plain().await;
    let config = ServerConfig {
        max_body_bytes: 4096,
        ..ServerConfig::default()
    };
    let mut client = Client::start(&fixture, &config);
    client.begin().await;
    let large = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#,
        "x".repeat(10_000)
    );
    let cases = [
        ("{", -32700),
        (large.as_str(), -32600),
        ("[]", -32600),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
    ];
    for (line, code) in cases {
        client.send("").await;
        client.send(line).await;
        let answer = client.receive().await;
        assert_eq!(
            (&answer["id"], answer["error"]["code"].as_i64()),
            (&Value::Null, Some(code)),
            "{line:.40}"
        );
    }
    client.input.write_all(b"\"\xff\"\n").await.unwrap();
    assert_eq!(client.receive().await["error"]["code"], -32700);
    assert_eq!(client.ask("ping", json!({})).await["result"], json!({}));
    client.end().await;
}

#[tokio::test]
async fn the_newest_revision_needs_no_greeting() {
    let fixture = Fixture::plain().await;
    let mut client = Client::start(&fixture, &ServerConfig::default());
    let meta = json!({"io.modelcontextprotocol/protocolVersion": NEWEST, "io.modelcontextprotocol/clientCapabilities": {}});
    let answer = client.ask("server/discover", json!({"_meta": meta})).await;
    assert!(
        answer["result"]["supportedVersions"]
            .as_array()
            .unwrap()
            .len()
            == 5,
        "{answer}"
    );
    let call = client
        .ask(
            "tools/call",
            json!({"name": "test__plain", "arguments": {}, "_meta": meta}),
        )
        .await;
    assert_eq!(call["result"]["resultType"], "complete", "{call}");
    let list = client.ask("tools/list", json!({"_meta": meta})).await;
    assert_eq!(list["result"]["cacheScope"], "private", "{list}");
    // Without those members, and without a handshake, nothing runs.
    let bare = client
        .ask(
            "tools/call",
            json!({"name": "test__plain", "arguments": {}}),
        )
        .await;
    assert_eq!(bare["error"]["code"], -32602, "{bare}");
    assert_eq!(fixture.probe.runs(), 1);
    client.end().await;
}

#[tokio::test]
async fn calls_run_concurrently_and_can_be_cancelled() {
    let fixture = Fixture::plain().await;
    let mut client = Client::start(&fixture, &ServerConfig::default());
    client.begin().await;
    for progress in [json!({}), json!({"progressToken": 1})] {
        let waiting =
            json!({"name": "test__plain", "arguments": {"wait": true}, "_meta": progress});
        client.send(&request("tools/call", &waiting)).await;
        fixture.probe.someone_waits().await;
        client
            .send(r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#)
            .await;
        assert_eq!(client.receive().await["id"], 9);
        client
            .send(
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
            )
            .await;
        client
            .send(r#"{"jsonrpc":"2.0","id":10,"method":"ping"}"#)
            .await;
        assert_eq!(client.receive().await["id"], 10);
        // The call is gone: a permit for it remains, and it gets no answer.
        fixture.probe.gate.add_permits(1);
        tokio::time::timeout(SOON, fixture.probe.gate.acquire())
            .await
            .unwrap()
            .unwrap()
            .forget();
    }
    client.end().await;
}

#[tokio::test]
async fn running_calls_are_answered_after_input_ends() {
    let fixture = Fixture::plain().await;
    let mut client = Client::start(&fixture, &ServerConfig::default());
    client.begin().await;
    client
        .send(&request(
            "tools/call",
            &json!({"name": "test__plain", "arguments": {"wait": true}}),
        ))
        .await;
    fixture.probe.someone_waits().await;
    client.input.shutdown().await.unwrap();
    fixture.probe.gate.add_permits(1);
    assert_eq!(client.receive().await["result"]["isError"], false);
    client.served.await.unwrap().unwrap();
}

/// With a paused clock, a timeout ends only when no other task can run.
#[tokio::test]
async fn client_that_does_not_read_has_to_wait() {
    let fixture = Fixture::plain().await;
    let call = request(
        "tools/call",
        &json!({"name": "test__plain", "arguments": {}}),
    );
    for line in ["{", &call, r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#] {
        let mut client = Client::over(&fixture, &ServerConfig::default(), 4096);
        client.begin().await;
        tokio::time::pause();
        let mut sent = 0;
        // The id of a call must differ from those of running calls.
        while tokio::time::timeout(
            SOON,
            client.send(&line.replace("\"id\":7", &format!("\"id\":{}", 100 + sent))),
        )
        .await
        .is_ok()
        {
            sent += 1;
            assert!(sent < 5000, "{line}: read on and on");
        }
        // Accepted calls are answered once the client reads.
        for _ in 0..sent {
            client.receive().await;
        }
        tokio::time::resume();
        client.served.abort();
    }
}

#[tokio::test]
async fn at_the_most_calls_no_more_lines_are_read() {
    for meta in [json!({}), json!({"progressToken": 1})] {
        let fixture = Fixture::plain().await;
        let mut client = Client::start(
            &fixture,
            &ServerConfig {
                max_requests: 3,
                ..ServerConfig::default()
            },
        );
        client.begin().await;
        tokio::time::pause();
        for id in 1..=5 {
            let params = json!({"name": "test__plain", "arguments": {"wait": true}, "_meta": meta});
            let call =
                json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
            client.send(&call.to_string()).await;
        }
        for _ in 0..3 {
            tokio::time::timeout(SOON, fixture.probe.someone_waits())
                .await
                .unwrap();
        }
        // Much less than a pack's time limit, which the paused clock would reach at once.
        let moment = std::time::Duration::from_millis(100);
        let fourth = tokio::time::timeout(moment, fixture.probe.someone_waits()).await;
        assert!(fourth.is_err(), "a fourth call runs: {meta}");
        fixture.probe.gate.add_permits(5);
        for _ in 0..5 {
            assert_eq!(client.receive().await["result"]["isError"], false);
        }
        tokio::time::resume();
        client.end().await;
    }
}
