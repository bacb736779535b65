//! A server on loopback that answers what a test's closure says and keeps what it was asked.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A request as it came in.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) head: String,
    pub(super) body: String,
}

impl Asked {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// An answer; without a status the connection is closed in silence.
#[derive(Debug, Default)]
pub(super) struct Answer {
    status: Option<u16>,
    head: String,
    body: String,
}

impl Answer {
    pub(super) fn new(status: u16, body: &Value) -> Self {
        Self {
            status: Some(status),
            head: String::new(),
            body: body.to_string(),
        }
    }

    pub(super) fn silence() -> Self {
        Self::default()
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    /// Answers 304 if the request names this `ETag`.
    pub(super) fn etag(self, asked: &Asked, etag: &str) -> Self {
        if asked.header("if-none-match") == Some(etag) {
            return Self {
                status: Some(304),
                ..Self::default()
            };
        }
        self.header("etag", etag)
    }
}

pub(super) struct Server {
    pub(super) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub(super) async fn start(
        answer: impl Fn(&Asked, &str) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, base) = (Arc::clone(&asked), url.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = Vec::new();
                let request = loop {
                    let mut buffer = [0; 4096];
                    let count = stream.read(&mut buffer).await.unwrap_or(0);
                    bytes.extend_from_slice(&buffer[..count]);
                    match parse(&bytes) {
                        Some(request) => break Some(request),
                        None if count == 0 => break None,
                        None => {}
                    }
                };
                let Some(request) = request else { continue };
                let answer = answer(&request, &base);
                log.lock().unwrap().push(request);
                let Some(status) = answer.status else {
                    continue;
                };
                let length = if status == 304 {
                    String::new()
                } else {
                    format!("content-length: {}\r\n", answer.body.len())
                };
                let body = if status == 304 { "" } else { &answer.body };
                let text = format!(
                    "HTTP/1.1 {status} x\r\nconnection: close\r\n{length}{}\r\n{body}",
                    answer.head
                );
                let _ = stream.write_all(text.as_bytes()).await;
            }
        });
        Self { url, asked }
    }

    /// Returns what was asked since the last time.
    pub(super) fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    pub(super) fn paths(&self) -> Vec<String> {
        self.take().into_iter().map(|asked| asked.path).collect()
    }
}

fn parse(bytes: &[u8]) -> Option<Asked> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut words = head.lines().next()?.split(' ');
    let asked = Asked {
        method: words.next()?.to_owned(),
        path: words.next()?.to_owned(),
        head: head.to_owned(),
        body: body.to_owned(),
    };
    if asked.header("transfer-encoding").is_some() {
        // One chunk is enough for what tests send: size, text, the empty chunk.
        let (size, rest) = body.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        return rest.ends_with("0\r\n\r\n").then(|| Asked {
            body: rest[..size].to_owned(),
            ..asked
        });
    }
    let length: usize = asked
        .header("content-length")
        .map_or(0, |length| length.parse().unwrap());
    (body.len() >= length).then_some(asked)
}
