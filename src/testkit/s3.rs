//! S3-compatible store for tests (`SeaweedFS`), on loopback ports and in a temporary folder.
//!
//! A test without a server fails; it is never skipped.

use helmdeck_core::hex;
use parking_lot::Mutex;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::{digest, hmac};
use helmdeck_core::waiting::STUCK;

/// Environment variable with a running server: `http://key:secret@host:port`.
///
/// Its key may create buckets.
pub const S3_VARIABLE: &str = "HELMDECK_TEST_S3_URL";

const REGION: &str = "us-east-1";

static SHARED: Mutex<Weak<S3>> = Mutex::new(Weak::new());
static BUCKETS: AtomicU32 = AtomicU32::new(0);

/// S3 server: a private one, stopped and removed when dropped, or a running one.
pub struct S3 {
    authority: String,
    key_id: String,
    secret: String,
    server: Option<Server>,
}

struct Server {
    folder: tempfile::TempDir,
    program: PathBuf,
    ports: Vec<u16>,
    running: Mutex<Option<Child>>,
}

helmdeck_core::redacted_debug!(S3, this => own = this.server.is_some());

#[allow(clippy::expect_used, reason = "a test without a server fails")]
impl S3 {
    /// Starts a server.
    ///
    /// # Panics
    /// If the program is not available, or does not start.
    #[must_use]
    pub fn start() -> Self {
        let server = Server::create();
        let (key_id, secret) = ("tests".to_owned(), format!("secret-{}", nanos()));
        let identities = serde_json::json!({"identities": [{
            "name": "tests",
            "credentials": [{"accessKey": key_id, "secretKey": secret}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }]});
        fs::write(
            server.folder.path().join("identities.json"),
            identities.to_string(),
        )
        .expect("a file");
        server.run();
        Self {
            authority: format!("127.0.0.1:{}", server.ports[6]),
            key_id,
            secret,
            server: Some(server),
        }
    }

    /// Returns the server of the variable [`S3_VARIABLE`], or a server shared by this test process.
    ///
    /// Keep it as long as its buckets are used.
    ///
    /// # Panics
    /// As [`S3::start`].
    #[must_use]
    pub fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock();
        if let Some(server) = shared.upgrade() {
            return server;
        }
        #[expect(clippy::disallowed_methods, reason = "names the server for tests")]
        let given = std::env::var(S3_VARIABLE);
        let server = Arc::new(match given {
            Ok(url) => {
                let rest = url
                    .strip_prefix("http://")
                    .expect("http://key:secret@host:port");
                let (credentials, authority) = rest
                    .trim_end_matches('/')
                    .split_once('@')
                    .expect("credentials");
                let (key_id, secret) = credentials.split_once(':').expect("key:secret");
                Self {
                    authority: authority.to_owned(),
                    key_id: key_id.to_owned(),
                    secret: secret.to_owned(),
                    server: None,
                }
            }
            Err(_) => Self::start(),
        });
        *shared = Arc::downgrade(&server);
        server
    }

    /// Makes an empty bucket and returns its name.
    ///
    /// # Panics
    /// If the server refuses.
    #[must_use]
    pub fn bucket(&self) -> String {
        let name = format!(
            "b{}-{}-{}",
            std::process::id(),
            nanos(),
            BUCKETS.fetch_add(1, Ordering::Relaxed)
        );
        let (status, body) = self
            .ask("PUT", &format!("/{name}"), "", b"")
            .expect("an answer");
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        name
    }

    /// Deletes a bucket with everything in it.
    ///
    /// # Panics
    /// If the server refuses.
    pub fn drop_bucket(&self, name: &str) {
        for key in self.keys(name) {
            let _ = self.ask("DELETE", &format!("/{name}/{key}"), "", b"");
        }
        let (status, body) = self
            .ask("DELETE", &format!("/{name}"), "", b"")
            .expect("an answer");
        assert!(
            matches!(status, 200 | 204),
            "{status} {}",
            String::from_utf8_lossy(&body)
        );
    }

    /// Returns the setting `artifacts.url` for a bucket and a prefix.
    #[must_use]
    pub fn url(&self, bucket: &str, prefix: &str) -> String {
        format!(
            "s3://{bucket}/{prefix}?endpoint=http://{}&region={REGION}",
            self.authority
        )
    }

    /// Returns the address of the server: `host:port`.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the id of the access key.
    #[must_use]
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// Returns the secret of the access key.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Returns the names of all objects in a bucket, sorted.
    ///
    /// # Panics
    /// If the server does not list them.
    #[must_use]
    pub fn keys(&self, bucket: &str) -> Vec<String> {
        let mut keys = Vec::new();
        let mut query = "list-type=2".to_owned();
        loop {
            let (status, body) = self
                .ask("GET", &format!("/{bucket}"), &query, b"")
                .expect("an answer");
            let body = String::from_utf8_lossy(&body).into_owned();
            assert_eq!(status, 200, "{body}");
            keys.extend(between(&body, "<Key>", "</Key>"));
            match between(&body, "<NextContinuationToken>", "</NextContinuationToken>").pop() {
                Some(token) if body.contains("<IsTruncated>true") => {
                    query = format!("continuation-token={}&list-type=2", encode(&token));
                }
                _ => break,
            }
        }
        keys.sort();
        keys
    }

    /// Returns an object, `None` if it does not exist.
    ///
    /// # Panics
    /// If the server does not answer.
    #[must_use]
    pub fn get(&self, bucket: &str, key: &str) -> Option<Vec<u8>> {
        let (status, body) = self
            .ask("GET", &format!("/{bucket}/{key}"), "", b"")
            .expect("an answer");
        (status == 200).then_some(body)
    }

    /// Writes an object.
    ///
    /// # Panics
    /// If the server refuses.
    pub fn put(&self, bucket: &str, key: &str, body: &[u8]) {
        let (status, answer) = self
            .ask("PUT", &format!("/{bucket}/{key}"), "", body)
            .expect("an answer");
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
    }

    /// Deletes an object.
    ///
    /// # Panics
    /// If the server refuses.
    pub fn delete(&self, bucket: &str, key: &str) {
        let (status, answer) = self
            .ask("DELETE", &format!("/{bucket}/{key}"), "", b"")
            .expect("an answer");
        assert!(
            matches!(status, 200 | 204),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }

    /// Kills a private server with SIGKILL.
    ///
    /// # Panics
    /// If the server is not a private one.
    pub fn kill9(&self) {
        self.own().kill();
    }

    /// Starts the server again, with the same ports and data.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&self) {
        self.own().run();
    }

    fn own(&self) -> &Server {
        self.server.as_ref().expect("a server of its own")
    }

    /// Sends a signed request (AWS Signature Version 4) and returns status and body.
    ///
    /// The names in a query must be sorted.
    fn ask(
        &self,
        method: &str,
        path: &str,
        query: &str,
        body: &[u8],
    ) -> std::io::Result<(u16, Vec<u8>)> {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let (day, time) = amazon_time(now);
        let hash = hex(digest::digest(&digest::SHA256, body).as_ref());
        let signed = "host;x-amz-content-sha256;x-amz-date";
        let headers = format!(
            "host:{}\nx-amz-content-sha256:{hash}\nx-amz-date:{time}\n",
            self.authority
        );
        let request = format!("{method}\n{path}\n{query}\n{headers}\n{signed}\n{hash}");
        let scope = format!("{day}/{REGION}/s3/aws4_request");
        let request = hex(digest::digest(&digest::SHA256, request.as_bytes()).as_ref());
        let mut key = format!("AWS4{}", self.secret).into_bytes();
        for part in [day.as_str(), REGION, "s3", "aws4_request"] {
            key = sign(&key, part);
        }
        let signature = hex(&sign(
            &key,
            &format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{request}"),
        ));
        let question = if query.is_empty() { "" } else { "?" };
        let head = format!(
            "{method} {path}{question}{query} HTTP/1.1\r\nhost: {}\r\nx-amz-date: {time}\r\nx-amz-content-sha256: {hash}\r\n\
             authorization: AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={signed}, Signature={signature}\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            self.authority,
            self.key_id,
            body.len()
        );
        let mut stream = TcpStream::connect(&self.authority)?;
        stream.set_read_timeout(Some(STUCK))?;
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let end = answer
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .unwrap_or(answer.len());
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0);
        let rest = answer.get(end + 4..).unwrap_or_default();
        let body = if head.contains("transfer-encoding: chunked") {
            unchunked(rest)
        } else {
            rest.to_vec()
        };
        Ok((status, body))
    }
}

#[allow(clippy::expect_used, reason = "a test without a server fails")]
impl Server {
    fn create() -> Self {
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/support/s3/install.sh"
        );
        let output = Command::new(script)
            .stdin(Stdio::null())
            .output()
            .expect("a script");
        assert!(
            output.status.success(),
            "{script}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let program = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let free: Vec<TcpListener> = (0..8)
            .map(|_| TcpListener::bind("127.0.0.1:0"))
            .collect::<Result<_, _>>()
            .expect("ports");
        let ports = free
            .iter()
            .map(|listener| listener.local_addr().map(|a| a.port()))
            .collect::<Result<_, _>>();
        let folder = tempfile::tempdir().expect("a folder");
        Self {
            folder,
            program,
            ports: ports.expect("ports"),
            running: Mutex::new(None),
        }
    }

    /// Starts the server and waits until it answers.
    fn run(&self) {
        let log = self.folder.path().join("log");
        let file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .expect("a log");
        let mut server = self
            .command()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("a server");
        let end = Instant::now() + STUCK;
        while Instant::now() < end && matches!(server.try_wait(), Ok(None)) {
            if answers(self.ports[6]) {
                *self.running.lock() = Some(server);
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = server.kill();
        let _ = server.wait();
        panic!(
            "the server does not start:\n{}",
            fs::read_to_string(log).unwrap_or_default()
        );
    }

    fn command(&self) -> Command {
        let folder: &Path = self.folder.path();
        let mut command = Command::new(&self.program);
        command.args([
            "-logtostderr=true",
            "server",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-s3",
        ]);
        let names = [
            "master.port",
            "master.port.grpc",
            "volume.port",
            "volume.port.grpc",
            "filer.port",
            "filer.port.grpc",
            "s3.port",
            "s3.port.grpc",
        ];
        command.args(
            names
                .iter()
                .zip(&self.ports)
                .map(|(name, port)| format!("-{name}={port}")),
        );
        command.args([
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.iam=false",
            "-s3.autoCreateBucket=false",
        ]);
        command.args(["-volume.max=0", "-master.volumeSizeLimitMB=64"]);
        command.arg(format!("-dir={}", folder.display()));
        command.arg(format!(
            "-s3.config={}",
            folder.join("identities.json").display()
        ));
        command.arg(format!(
            "-s3.localSocket={}",
            folder.join("s3.sock").display()
        ));
        command.current_dir(folder).process_group(0);
        command
    }

    fn kill(&self) {
        if let Some(mut server) = self.running.lock().take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A refusal of an unsigned request counts as an answer.
fn answers(port: u16) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(STUCK))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.contains(" 403 "))
    };
    ask().unwrap_or(false)
}

fn nanos() -> u128 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos()
}

fn sign(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
        .as_ref()
        .to_vec()
}

fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

fn between(text: &str, start: &str, end: &str) -> Vec<String> {
    text.split(start)
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(end)?.0.to_owned()))
        .collect()
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(at) = rest.windows(2).position(|window| window == b"\r\n") {
        let size = std::str::from_utf8(&rest[..at])
            .ok()
            .and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
        let (Some(size), Some(data)) = (size.filter(|size| *size > 0), rest.get(at + 2..)) else {
            break;
        };
        let size = size.min(data.len());
        body.extend_from_slice(&data[..size]);
        rest = data.get(size + 2..).unwrap_or_default();
    }
    body
}

/// Formats a Unix time in the forms of AWS: `20261122` and `20261122T120000Z`.
///
/// The date algorithm is <https://howardhinnant.github.io/date_algorithms.html#civil_from_days>.
fn amazon_time(seconds: u64) -> (String, String) {
    let days = seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let date = format!("{year:04}{month:02}{day:02}");
    let of_day = seconds % 86_400;
    let time = format!(
        "{date}T{:02}{:02}{:02}Z",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    );
    (date, time)
}
