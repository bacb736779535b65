//! The accept loop, over real loopback sockets.

use std::net::SocketAddr;
use std::time::Duration;

use helmdeck_testkit::{STUCK, ends};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use super::*;
use crate::fixture::Fixture;

struct Running {
    address: SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<io::Result<()>>,
    fixture: Fixture,
}

impl Running {
    async fn start(config: ServerConfig) -> Self {
        let fixture = Fixture::plain().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(serve(
            listener,
            fixture.engine.clone(),
            config,
            shutdown.clone(),
        ));
        Self {
            address,
            shutdown,
            task,
            fixture,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes on a new connection and reads until the server closes it.
    async fn exchange(&self, bytes: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        read_to_end(stream).await
    }

    async fn stopped(self) -> (io::Result<()>, Fixture) {
        self.shutdown.cancel();
        (
            ends("the end of the server", self.task).await.unwrap(),
            self.fixture,
        )
    }
}

async fn read_to_end(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    // A reset after the answer ends the connection too.
    let _ = ends("the stream", stream.read_to_end(&mut answer)).await;
    String::from_utf8(answer).unwrap()
}

fn post(body: &str) -> String {
    format!(
        "POST /api/v1/packs/test.plain HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn socket_call_is_answered_and_connection_kept() {
    let running = Running::start(ServerConfig::default()).await;
    let mut stream = running.connect().await;
    for run in 1..=2 {
        let request = post(r#"{"text":"a"}"#).replace("Connection: close\r\n", "");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = [0; 1024];
        let read = ends("the stream", stream.read(&mut answer)).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n")
                && answer.contains(&format!(r#""run":{run}"#)),
            "{answer}"
        );
    }
    running.stopped().await.0.unwrap();
}

#[tokio::test]
async fn unfinished_request_head_is_dropped() {
    let config = ServerConfig {
        header_timeout: Duration::from_millis(50),
        ..ServerConfig::default()
    };
    let running = Running::start(config).await;
    let answer = running
        .exchange("GET /healthz HTTP/1.1\r\nHost: local")
        .await;
    assert!(!answer.contains("200 OK"), "{answer}");
    assert_eq!(
        running.exchange("").await,
        "",
        "a connection without a request is dropped as well"
    );
}

#[tokio::test]
async fn a_body_that_dribbles_in_is_given_up() {
    let config = ServerConfig {
        body_timeout: Duration::from_millis(50),
        ..ServerConfig::default()
    };
    let running = Running::start(config).await;
    let answer = running
        .exchange(&post("{}").replace("Content-Length: 2", "Content-Length: 3"))
        .await;
    assert!(
        answer.starts_with("HTTP/1.1 408 ") && answer.contains("application/problem+json"),
        "{answer}"
    );
    assert_eq!(running.fixture.probe.runs(), 0);
}

#[tokio::test]
async fn declared_large_body_is_refused_before_it_is_sent() {
    let running = Running::start(ServerConfig::default()).await;
    let head = post("").replace(
        "Content-Length: 0",
        "Content-Length: 1048577\r\nExpect: 100-continue",
    );
    let answer = running.exchange(&head).await;
    assert!(
        answer.starts_with("HTTP/1.1 413 ") && !answer.contains("100 Continue"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_chunked_body_is_cut_off_at_the_limit() {
    let config = ServerConfig {
        max_body_bytes: 10,
        ..ServerConfig::default()
    };
    let running = Running::start(config).await;
    let head = post("").replace("Content-Length: 0", "Transfer-Encoding: chunked");
    let answer = running
        .exchange(&format!("{head}8\r\n{{\"text\":\r\n8\r\n\"aaaaaa\"\r\n"))
        .await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn a_request_head_that_is_too_large_is_refused() {
    let running = Running::start(ServerConfig::default()).await;
    let head = post("").replace(
        "Host:",
        &format!("X-Large: {}\r\nHost:", "x".repeat(40 << 10)),
    );
    let answer = running.exchange(&head).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn drain_finishes_running_requests_and_closes_the_rest() {
    let running = Running::start(ServerConfig::default()).await;
    let idle = running.connect().await;
    let mut busy = running.connect().await;
    busy.write_all(post(r#"{"wait":true}"#).as_bytes())
        .await
        .unwrap();
    running.fixture.probe.someone_waits().await;
    running.shutdown.cancel();
    assert_eq!(
        read_to_end(idle).await,
        "",
        "an idle connection is closed at once"
    );
    assert!(
        TcpStream::connect(running.address).await.is_err(),
        "no new connection is accepted"
    );
    assert!(!running.task.is_finished());
    running.fixture.probe.gate.add_permits(1);
    assert!(read_to_end(busy).await.starts_with("HTTP/1.1 200 OK"));
    running.stopped().await.0.unwrap();
}

#[tokio::test]
async fn a_drain_that_takes_too_long_is_ended() {
    let config = ServerConfig {
        drain_timeout: Duration::from_millis(50),
        ..ServerConfig::default()
    };
    let running = Running::start(config).await;
    let mut busy = running.connect().await;
    busy.write_all(post(r#"{"wait":true}"#).as_bytes())
        .await
        .unwrap();
    running.fixture.probe.someone_waits().await;
    let (result, fixture) = running.stopped().await;
    result.unwrap();
    assert_eq!(read_to_end(busy).await, "");
    assert_eq!(fixture.probe.runs(), 1);
}

#[tokio::test]
async fn drain_closes_conversations_after_last_request() {
    let fixture = Fixture::with_memory().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::new(fixture.engine.clone(), ServerConfig::default());
    let server = server.conversations(fixture.conversations.clone());
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(server.serve(listener, shutdown.clone()));
    let mut busy = TcpStream::connect(address).await.unwrap();
    busy.write_all(post(r#"{"wait":true}"#).as_bytes())
        .await
        .unwrap();
    fixture.probe.someone_waits().await;
    let memory = fixture.conversations.get().unwrap();
    let identity = helmdeck_conversation::Identity::new("t", "u", "s");
    shutdown.cancel();
    assert!(
        memory.health(&identity).await.is_ok(),
        "a request is still at work"
    );
    fixture.probe.gate.add_permits(1);
    assert!(read_to_end(busy).await.starts_with("HTTP/1.1 200 OK"));
    ends("the end of the server", task).await.unwrap().unwrap();
    let closed = memory.health(&identity).await.unwrap_err();
    assert!(
        matches!(closed, helmdeck_conversation::ConversationError::Closed),
        "{closed}"
    );
}

#[tokio::test]
async fn drain_waits_for_writes_of_lost_clients() {
    let running = Running::start(ServerConfig::default()).await;
    let mut client = running.connect().await;
    let request = post(r#"{"wait":true}"#).replace("test.plain", "test.write");
    let request = request.replace("Host:", "Idempotency-Key: k\r\nHost:");
    client.write_all(request.as_bytes()).await.unwrap();
    running.fixture.probe.someone_waits().await;
    drop(client);
    running.shutdown.cancel();
    let gate = running.fixture.probe.gate.available_permits();
    assert_eq!((gate, running.task.is_finished()), (0, false));
    running.fixture.probe.gate.add_permits(1);
    let (result, fixture) = running.stopped().await;
    result.unwrap();
    assert_eq!(
        fixture.probe.gate.available_permits(),
        0,
        "the write went on to its end"
    );
}

/// Requests a path on a new connection.
fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

/// Opens silent connections, and waits until the server has accepted them.
async fn idle(running: &Running, count: usize) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for _ in 0..count {
        open.push(running.connect().await);
    }
    // Connections are accepted in order, so this one comes after all of them.
    assert!(
        running
            .exchange(&get("/healthz"))
            .await
            .starts_with("HTTP/1.1 200 ")
    );
    open
}

#[tokio::test]
async fn idle_connections_of_one_peer_leave_health_answering() {
    for config in [
        ServerConfig {
            max_connections: 8,
            ..ServerConfig::default()
        },
        ServerConfig {
            max_connections_per_peer: 8,
            ..ServerConfig::default()
        },
    ] {
        let running = Running::start(config).await;
        // The limit of connections, and more than the reserve holds.
        let held = idle(&running, 8 + 2 * RESERVE).await;
        for path in ["/healthz", "/readyz"] {
            let answer = running.exchange(&get(path)).await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
        }
        let refused = running.exchange(&post("{}")).await;
        assert!(
            refused.starts_with("HTTP/1.1 503 ") && refused.contains(r#""code":"overloaded""#),
            "{refused}"
        );
        assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
        assert_eq!(running.fixture.probe.runs(), 0);
        drop(held);
        // The permits are free again once the server has seen that the connections are closed.
        let again = async {
            while !running
                .exchange(&post("{}"))
                .await
                .starts_with("HTTP/1.1 200 ")
            {
                tokio::task::yield_now().await;
            }
        };
        ends("a free place", again).await;
    }
}

#[tokio::test]
async fn listed_proxies_have_no_share() {
    let config = ServerConfig {
        max_connections_per_peer: 2,
        proxies: vec!["127.0.0.0/8".to_owned()],
        ..ServerConfig::default()
    };
    let running = Running::start(config).await;
    let _held = idle(&running, 8).await;
    assert!(
        running
            .exchange(&post("{}"))
            .await
            .starts_with("HTTP/1.1 200 ")
    );
}

/// A request whose body never ends.
fn endless(token: &str) -> String {
    post("").replace(
        "Content-Length: 0",
        &format!("Authorization: Bearer {token}\r\nContent-Length: 100"),
    ) + "{"
}

#[tokio::test]
async fn endless_bodies_do_not_block_other_callers() {
    let fixture = Fixture::plain().await;
    let folder = tempfile::tempdir().unwrap();
    let system = helmdeck_system::System::at(folder.path().join("helmdeck.db"));
    let mut tokens = Vec::new();
    for user in ["alice", "bob"] {
        let now = SystemClock::default().now();
        let token = helmdeck_system::tokens::NewToken {
            name: String::new(),
            tenant: "acme".to_owned(),
            subject: user.to_owned(),
            scope: "packs:run".to_owned(),
            created_at: now,
            expires_at: None,
            ancestors: Vec::new(),
        };
        tokens.push(
            system
                .create_token(token)
                .await
                .unwrap()
                .1
                .expose()
                .to_owned(),
        );
    }
    let settings = crate::AuthConfig {
        api_tokens: true,
        ..crate::AuthConfig::default()
    };
    let egress = helmdeck_egress::Egress::new(helmdeck_egress::Config::default());
    let auth = Auth::new(&settings, None, Some(system), &egress).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let server = Server::new(fixture.engine.clone(), ServerConfig::default()).auth(auth);
    let task = tokio::spawn(server.serve(listener, shutdown.clone()));
    let running = Running {
        address,
        shutdown,
        task,
        fixture,
    };
    let mut held = Vec::new();
    for _ in 0..300 {
        let mut stream = running.connect().await;
        stream
            .write_all(endless(&tokens[0]).as_bytes())
            .await
            .unwrap();
        held.push(stream);
    }
    let bob = post("{}").replace(
        "Host:",
        &format!("Authorization: Bearer {}\r\nHost:", tokens[1]),
    );
    let answer = running.exchange(&bob).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // A quarter of the slots is hers, and the rest of her requests was refused at once.
    let refused = async {
        for stream in held.split_off(64) {
            let answer = read_to_end(stream).await;
            assert!(
                answer.starts_with("HTTP/1.1 503 ")
                    && answer.contains("you have too many requests"),
                "{answer}"
            );
        }
    };
    ends("the refusals", refused).await;
    running.shutdown.cancel();
}

#[tokio::test]
async fn slow_bodies_hold_no_slot_of_anybody() {
    let config = ServerConfig {
        max_requests: 1,
        ..ServerConfig::default()
    };
    let running = Running::start(config).await;
    let mut slow = running.connect().await;
    slow.write_all(post("{}").strip_suffix("}").unwrap().as_bytes())
        .await
        .unwrap();
    // Whether or not the slow one was read before: its slot is free at the latest when its body is
    // waited for.
    let others = async {
        while !running
            .exchange(&post("{}"))
            .await
            .starts_with("HTTP/1.1 200 ")
        {
            tokio::task::yield_now().await;
        }
    };
    ends("a free place", others).await;
    slow.write_all(b"}").await.unwrap();
    assert!(read_to_end(slow).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn an_address_that_others_reach_is_refused() {
    let fixture = Fixture::plain().await;
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let error = serve(
        listener,
        fixture.engine,
        ServerConfig::default(),
        CancellationToken::new(),
    )
    .await
    .unwrap_err();
    assert!(
        error.to_string().contains("authentication is off"),
        "{error}"
    );
}

#[tokio::test]
async fn draining_server_answers_but_is_not_ready() {
    let config = ServerConfig {
        drain_for: 10 * STUCK,
        ..ServerConfig::default()
    };
    let running = Running::start(config).await;
    let mut kept = running.connect().await;
    assert!(
        running
            .exchange(&get("/readyz"))
            .await
            .contains(r#""status":"ready""#)
    );
    running.shutdown.cancel();
    let ready = async {
        loop {
            let answer = running.exchange(&get("/readyz")).await;
            if answer.starts_with("HTTP/1.1 503 ") {
                return answer;
            }
        }
    };
    let answer = ends("the draining", ready).await;
    assert!(answer.contains(r#""status":"draining""#), "{answer}");
    // A call over an older connection is answered, and the connection ends with it.
    let call = post(r#"{"text":"a"}"#).replace("Connection: close\r\n", "");
    kept.write_all(call.as_bytes()).await.unwrap();
    let answer = read_to_end(kept).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.contains("connection: close\r\n"),
        "{answer}"
    );
    running.task.abort();
}

#[tokio::test]
async fn server_ends_when_its_grace_is_over() {
    let config = ServerConfig {
        drain_for: Duration::from_millis(50),
        ..ServerConfig::default()
    };
    let running = Running::start(config).await;
    let address = running.address;
    running.stopped().await.0.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn drain_route_stops_the_server() {
    let running = Running::start(ServerConfig::default()).await;
    let mut busy = running.connect().await;
    busy.write_all(post(r#"{"wait":true}"#).as_bytes())
        .await
        .unwrap();
    running.fixture.probe.someone_waits().await;
    let drain = "POST /api/v1/drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let answer = running.exchange(drain).await;
    assert!(
        answer.starts_with("HTTP/1.1 202 ") && answer.contains(r#""drain_for_ms":0"#),
        "{answer}"
    );
    assert!(!running.task.is_finished());
    running.fixture.probe.gate.add_permits(1);
    assert!(read_to_end(busy).await.starts_with("HTTP/1.1 200 OK"));
    // It ends without a signal.
    ends("the end of the server", running.task)
        .await
        .unwrap()
        .unwrap();
}
