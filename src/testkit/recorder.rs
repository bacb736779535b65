//! Recorder between a program and its PostgreSQL server: every statement that is sent, and its
//! plan.
//!
//! It reads the wire protocol (PostgreSQL 15, section 55.7), so it sees what the program sends,
//! whatever that says of itself. Connections through it are never encrypted.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use serde_json::Value;

use crate::postgres::Postgres;

/// Codes of the first message of a connection that asks for encryption: TLS and GSSAPI.
const ENCRYPTIONS: [u32; 2] = [80_877_103, 80_877_104];

/// Makes the server send the plan of each statement, with the buffers that it touched.
const EXPLAIN: &[(&str, &str)] = &[
    ("session_preload_libraries", "'auto_explain'"),
    ("auto_explain.log_min_duration", "0"),
    ("auto_explain.log_analyze", "on"),
    ("auto_explain.log_buffers", "on"),
    ("auto_explain.log_timing", "off"),
    ("auto_explain.log_format", "'json'"),
    ("auto_explain.log_level", "'notice'"),
];

/// Plan of a statement that was run.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedPlan {
    /// The statement.
    pub sql: String,
    /// Pages of tables and indexes that it read or found in the server's memory.
    pub buffers: u64,
    /// The plan, as JSON.
    pub plan: Value,
}

#[derive(Default)]
struct Log {
    statements: Vec<String>,
    plans: Vec<RecordedPlan>,
}

/// Recorder of statements. It ends with the process.
pub struct StatementRecorder {
    port: u16,
    log: Arc<Mutex<Log>>,
}

helmdeck_core::redacted_debug!(StatementRecorder, this => port = this.port);

#[allow(clippy::expect_used, reason = "a test without a server fails")]
impl StatementRecorder {
    /// Starts a recorder in front of a server.
    ///
    /// # Panics
    /// If there is no port.
    #[must_use]
    pub fn start(server: &Postgres) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (address, log) = (server.address(), Arc::<Mutex<Log>>::default());
        let shared = Arc::clone(&log);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (address, log) = (address.clone(), Arc::clone(&shared));
                thread::spawn(move || {
                    // A connection that fails ends, and its program notices.
                    let _ = serve(client, &address, &log);
                });
            }
        });
        Self { port, log }
    }

    /// Returns the URL of a database of the server, through the recorder.
    ///
    /// # Panics
    /// If `url` names no database.
    #[must_use]
    pub fn url(&self, url: &str) -> String {
        let (_, database) = url.rsplit_once('/').expect("a URL with a database");
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Makes the server explain every statement of new sessions in a database.
    pub fn explain(server: &Postgres, url: &str) {
        let name = url.rsplit_once('/').map_or("", |(_, name)| name);
        let set = EXPLAIN
            .iter()
            .map(|(setting, value)| format!("ALTER DATABASE {name} SET {setting} = {value};"));
        server.sql(&server.url(), &set.collect::<String>());
    }

    /// Returns the statements that were sent since the last time, in order.
    #[must_use]
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().statements)
    }

    /// Returns the statements that were sent since the last time, and leaves them.
    #[must_use]
    pub fn sent(&self) -> Vec<String> {
        self.log.lock().statements.clone()
    }

    /// Returns the plans of the statements that were run since the last time.
    #[must_use]
    pub fn take_plans(&self) -> Vec<RecordedPlan> {
        std::mem::take(&mut self.log.lock().plans)
    }
}

fn serve(mut client: TcpStream, address: &(String, u16), log: &Arc<Mutex<Log>>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let first = loop {
        let mut length = [0; 4];
        client.read_exact(&mut length)?;
        let mut rest = vec![0; (u32::from_be_bytes(length) as usize).saturating_sub(4)];
        client.read_exact(&mut rest)?;
        let code = rest
            .first_chunk()
            .map_or(0, |code| u32::from_be_bytes(*code));
        if ENCRYPTIONS.contains(&code) {
            client.write_all(b"N")?;
            continue;
        }
        break [&length[..], &rest].concat();
    };
    let mut server = TcpStream::connect((address.0.as_str(), address.1))?;
    server.set_nodelay(true)?;
    server.write_all(&first)?;
    let (from_server, to_client, answers) =
        (server.try_clone()?, client.try_clone()?, Arc::clone(log));
    let back = thread::spawn(move || {
        let mut writer = to_client;
        let _ = messages(from_server, |kind, body, whole| {
            match plan_of(kind, body) {
                Some(plan) => answers.lock().plans.push(plan),
                None => writer.write_all(whole)?,
            }
            Ok(())
        });
        let _ = writer.shutdown(Shutdown::Both);
    });
    let mut sending = Sending::default();
    let ended = messages(client, |kind, body, whole| {
        log.lock().statements.extend(sending.statement(kind, body));
        server.write_all(whole)
    });
    let _ = server.shutdown(Shutdown::Both);
    let _ = back.join();
    ended
}

/// Reads messages until the connection ends: their type, their body, and all of their bytes.
fn messages(
    mut from: TcpStream,
    mut handle: impl FnMut(u8, &[u8], &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let (mut waiting, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let count = from.read(&mut chunk)?;
        if count == 0 {
            return Ok(());
        }
        waiting.extend_from_slice(&chunk[..count]);
        let mut start = 0;
        while let Some(length) = waiting[start..]
            .get(1..5)
            .and_then(|length| length.first_chunk::<4>())
        {
            let end = start + 1 + u32::from_be_bytes(*length) as usize;
            let Some(whole) = waiting.get(start..end) else {
                break;
            };
            handle(whole[0], &whole[5..], whole)?;
            start = end;
        }
        waiting.drain(..start);
    }
}

/// Statements and portals of one session, by name.
#[derive(Default)]
struct Sending {
    prepared: HashMap<String, String>,
    bound: HashMap<String, String>,
}

impl Sending {
    /// Returns the statement that a message runs, if it runs one.
    fn statement(&mut self, kind: u8, body: &[u8]) -> Option<String> {
        let mut texts = body
            .split(|byte| *byte == 0)
            .map(|text| String::from_utf8_lossy(text).into_owned());
        let mut next = || texts.next().unwrap_or_default();
        match kind {
            b'Q' => return Some(next()),
            b'P' => {
                let (name, sql) = (next(), next());
                self.prepared.insert(name, sql);
            }
            b'B' => {
                let (portal, name) = (next(), next());
                let sql = self.prepared.get(&name).cloned().unwrap_or_default();
                self.bound.insert(portal, sql);
            }
            b'E' => return self.bound.get(&next()).cloned(),
            _ => {}
        }
        None
    }
}

/// Reads a plan out of a notice of the server; `None` for any other message.
fn plan_of(kind: u8, body: &[u8]) -> Option<RecordedPlan> {
    if kind != b'N' {
        return None;
    }
    let text = body
        .split(|byte| *byte == 0)
        .find_map(|field| field.strip_prefix(b"M"))?;
    let (_, plan) = std::str::from_utf8(text).ok()?.split_once("plan:\n")?;
    let plan: Value = serde_json::from_str(plan).ok()?;
    let sql = plan["Query Text"].as_str()?.to_owned();
    Some(RecordedPlan {
        sql,
        buffers: buffers(&plan["Plan"]),
        plan,
    })
}

/// Returns the buffers of a node with all below it.
///
/// Changes in `WITH` that nobody reads run after the node above them, and are not in its figures.
fn buffers(node: &Value) -> u64 {
    let own = |name: &str| node[name].as_u64().unwrap_or_default();
    let beside = node["Plans"].as_array().into_iter().flatten();
    let beside = beside.filter(|below| {
        below["Parent Relationship"] == "InitPlan" && below["Node Type"] == "ModifyTable"
    });
    own("Shared Hit Blocks") + own("Shared Read Blocks") + beside.map(buffers).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_statements() {
        let mut sending = Sending::default();
        assert_eq!(
            sending.statement(b'Q', b"BEGIN\0").as_deref(),
            Some("BEGIN")
        );
        assert_eq!(sending.statement(b'P', b"s1\0SELECT 1\0\0\0"), None);
        assert_eq!(sending.statement(b'B', b"\0s1\0\0\0\0\0"), None);
        for _ in 0..2 {
            assert_eq!(
                sending.statement(b'E', b"\0\0\0\0\0").as_deref(),
                Some("SELECT 1")
            );
        }
    }

    #[test]
    fn plans_are_read_from_notices() {
        let notice =
            b"SNOTICE\0Mduration: 0.1 ms  plan:\n{\"Query Text\": \"SELECT 1\", \"Plan\": {\"Node Type\": \"Result\", \
            \"Shared Hit Blocks\": 2, \"Shared Read Blocks\": 1, \"Plans\": [{\"Parent Relationship\": \"InitPlan\", \
            \"Node Type\": \"ModifyTable\", \"Shared Hit Blocks\": 4}]}}\0\0";
        let plan = plan_of(b'N', notice).unwrap();
        assert_eq!((plan.sql.as_str(), plan.buffers), ("SELECT 1", 7));
        assert_eq!(plan_of(b'N', b"SNOTICE\0Mother\0\0"), None);
    }
}
