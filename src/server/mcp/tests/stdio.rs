//! Over lines.

use helmdeck_core::Caller;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::config::ServerConfig;
use crate::mcp::{McpConfig, Stdio};

/// A client at the other end of the lines.
struct Client {
    input: WriteHalf<DuplexStream>,
    output: BufReader<ReadHalf<DuplexStream>>,
    served: JoinHandle<std::io::Result<()>>,
    stop: CancellationToken,
}

impl Client {
    fn start(fixture: &Fixture, config: &ServerConfig) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (read, write) = tokio::io::split(theirs);
        let stop = CancellationToken::new();
        let stdio = Stdio::new(fixture.engine.clone(), config, McpConfig::default(), Caller::local());
        let served = tokio::spawn(stdio.serve_over(read, write, stop.clone()));
        let (output, input) = tokio::io::split(ours);
        Self { input, output: BufReader::new(output), served, stop }
    }

    async fn send(&mut self, line: &str) {
        self.input.write_all(line.as_bytes()).await.unwrap();
        self.input.write_all(b"\n").await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"))
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(&request(method, &params)).await;
        self.receive().await
    }

    async fn begin(&mut self) {
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let answer = self.ask("initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
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
    assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 3, "{list}");
    let answer = client.ask("tools/call", json!({"name": "test__plain", "arguments": {"text": "hi"}})).await;
    assert_eq!(answer["result"]["structuredContent"], json!({"run": 1, "text": "hi"}), "{answer}");
    client.end().await;
    let mut stopped = Client::start(&fixture, &ServerConfig::default());
    stopped.begin().await;
    stopped.stop.cancel();
    stopped.served.await.unwrap().unwrap();
}
