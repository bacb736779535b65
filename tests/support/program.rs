//! The real program: one run of it, or a server in the background.
//!
//! It gets nothing of this process's environment.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::{PATIENT, STUCK, wait_for};

/// A pack that answers with its input and how often it ran.
const ECHO: &str = "#!/bin/sh\ninput=$(cat)\necho run >>runs\nprintf '{\"runs\":%d,\"input\":%s}' \"$(wc -l <runs)\" \"$input\"\n";
/// The same, but it says that it began and waits until it is let go.
const SLOW: &str = "#!/bin/sh\ninput=$(cat)\n: >began\nwhile [ ! -e go ]; do sleep 0.02; done\nprintf '{\"input\":%s}' \"$input\"\n";

/// What makes a run a server.
pub(crate) const SERVE: &[&str] = &["serve", "--listen", "127.0.0.1:0"];

/// A separate home folder, and the time budgets of the program in it.
pub(crate) struct Home {
    folder: tempfile::TempDir,
    budgets: Vec<(&'static str, &'static str)>,
}

impl Home {
    /// Makes a home with the packs `test.echo` (tagged `repo:<repo>`), `test.plain` (the same
    /// without tags) and `test.slow`.
    pub(crate) fn new() -> Self {
        Self::with_budgets(PATIENT.to_vec())
    }

    /// Makes a home in which the program has its usual time for the store: for tests of a store
    /// that does not answer.
    ///
    /// A read alone has more, because a slow one would be a miss.
    pub(crate) fn hasty() -> Self {
        Self::with_budgets(vec![PATIENT[0]])
    }

    fn with_budgets(budgets: Vec<(&'static str, &'static str)>) -> Self {
        let home = Self {
            folder: tempfile::tempdir().unwrap(),
            budgets,
        };
        std::fs::create_dir_all(home.packs()).unwrap();
        home.install("test.echo", ECHO, "tags = [\"repo:{repo}\"]");
        home.install("test.plain", ECHO, "");
        home.install("test.slow", SLOW, "");
        home
    }

    /// Returns the folder of the packs, which is their working folder too.
    pub(crate) fn packs(&self) -> PathBuf {
        self.folder.path().join(".config/helmdeck/packs")
    }

    /// Returns the folder of the data.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join(".local/share/helmdeck")
    }

    /// Keeps the memory at another place than the data folder.
    pub(crate) fn keep_memory_at(&self, url: &str) {
        self.configure(&format!("[memory]\nurl = \"{url}\"\n"));
    }

    /// Writes the configuration.
    pub(crate) fn configure(&self, settings: &str) {
        std::fs::write(
            self.folder.path().join(".config/helmdeck/helmdeck.toml"),
            settings,
        )
        .unwrap();
    }

    /// Returns the path of the store.
    pub(crate) fn store(&self) -> PathBuf {
        self.data().join("memory.db")
    }

    /// Adds a pack that is a shell script; `memory` is added to `[memory]`.
    pub(crate) fn install(&self, name: &str, script: &str, memory: &str) {
        let program = self.packs().join(format!("{name}.sh"));
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let manifest = format!(
            "name = \"{name}\"\nversion = \"v1\"\ndescription = \"For tests\"\nread_only = true\n\
             [handler]\ncommand = [\"./{name}.sh\"]\ntimeout = \"10m\"\n[input]\ntype = \"object\"\nadditionalProperties = false\n\
             [input.properties]\nrepo = {{ type = \"string\" }}\n[memory]\ncache = true\nttl = \"1h\"\n{memory}\n"
        );
        std::fs::write(self.packs().join(format!("{name}.toml")), manifest).unwrap();
    }

    /// Returns the whole environment of a run with a memory key.
    ///
    /// It is for tests that start the program themselves.
    pub(crate) fn environment(&self, key: &str) -> BTreeMap<&'static str, String> {
        let home = self.folder.path().to_str().unwrap().to_owned();
        let budgets = self
            .budgets
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        let own = [
            ("HOME", home),
            ("PATH", "/usr/bin:/bin".to_owned()),
            ("HELMDECK_MEMORY_KEY", key.to_owned()),
        ];
        budgets.chain(own).collect()
    }

    /// Prepares a run with a memory key.
    pub(crate) fn command(&self, key: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_helmdeck"));
        command
            .args(arguments)
            .env_clear()
            .envs(self.environment(key))
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// Prepares a run with a memory key and a previous one.
    pub(crate) fn command_with(&self, key: &str, previous: &str, arguments: &[&str]) -> Command {
        let mut command = self.command(key, arguments);
        command.env("HELMDECK_MEMORY_KEY_PREVIOUS", previous);
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, key: &str, arguments: &[&str]) -> Run {
        Run::of(self.command(key, arguments).output().unwrap())
    }

    /// Calls a pack and returns its cache status and output.
    #[track_caller]
    pub(crate) fn call(&self, key: &str, arguments: &[&str]) -> (String, Value) {
        let run = self.run(key, &[&["run"], arguments, &["--json"]].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        let outcome: Value = serde_json::from_str(&run.stdout).unwrap();
        (
            outcome["cache"]["status"].as_str().unwrap().to_owned(),
            outcome["output"].clone(),
        )
    }
}

/// How a run ended.
pub(crate) struct Run {
    /// The exit code.
    pub(crate) code: i32,
    /// What it printed.
    pub(crate) stdout: String,
    /// What it complained about.
    pub(crate) stderr: String,
}

impl Run {
    /// Reads what a run left behind.
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// A running server, killed when it is dropped.
pub(crate) struct Server {
    child: Child,
    address: String,
    log: Arc<Mutex<Vec<String>>>,
}

/// What a server answered.
pub(crate) struct Answer {
    /// The HTTP status.
    pub(crate) code: u16,
    /// The header lines.
    pub(crate) head: String,
    /// The body.
    pub(crate) body: String,
}

impl Answer {
    /// Returns a header's value, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Returns the body's JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// Returns the cache status, or the error code.
    pub(crate) fn status(&self) -> String {
        let json = self.json();
        json["cache"]["status"]
            .as_str()
            .or(json["code"].as_str())
            .unwrap_or_default()
            .to_owned()
    }
}

/// Takes a body out of its chunks (RFC 9112, section 7.1), `None` if the last one is missing.
fn join_chunks(mut rest: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n")?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.push_str(after.get(..size)?);
        rest = after.get(size..)?.strip_prefix("\r\n")?;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only if it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts a server and waits until it listens.
    pub(crate) fn start(home: &Home, key: &str) -> Self {
        Self::start_with(home, key, &[])
    }

    /// Starts a server with more in its environment, and waits until it listens.
    pub(crate) fn start_with(home: &Home, key: &str, environment: &[(&str, &str)]) -> Self {
        let mut command = home.command(key, SERVE);
        command.envs(environment.iter().copied());
        Self::launch(command)
    }

    /// Starts a server by a command with [`SERVE`] and waits until it listens.
    pub(crate) fn launch(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (stderr, lines) = (
            BufReader::new(child.stderr.take().unwrap()),
            Arc::clone(&log),
        );
        // A program that logs to a pipe without a reader would stop when it is full.
        std::thread::spawn(move || {
            stderr
                .lines()
                .map_while(Result::ok)
                .for_each(|line| lines.lock().unwrap().push(line))
        });
        let mut server = Self {
            child,
            address: String::new(),
            log,
        };
        wait_for("the server to listen", || {
            let ended = server.child.try_wait().unwrap();
            assert!(
                ended.is_none(),
                "the server ended ({ended:?}): {:?}",
                server.log.lock().unwrap()
            );
            server.says("listening on http://")
        });
        let log = server.log.lock().unwrap().join("\n");
        server.address = log
            .split("listening on http://")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .to_owned();
        server
    }

    /// Takes another program that answers HTTP at an address: a balancer.
    pub(crate) fn beside(child: Child, address: String) -> Self {
        Self {
            child,
            address,
            log: Arc::default(),
        }
    }

    /// Returns its address and port.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the whole log.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// Returns the id of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the URL of a path on the server.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Says whether the log holds a text.
    pub(crate) fn says(&self, text: &str) -> bool {
        self.log
            .lock()
            .unwrap()
            .iter()
            .any(|line| line.contains(text))
    }

    /// Sends a request, `None` if the connection failed before the answer was whole.
    pub(crate) fn try_ask(&self, head: &str, body: &str) -> Option<Answer> {
        let answer = self.exchange(head, body)?;
        let announced = answer
            .header("content-length")
            .and_then(|length| length.parse().ok());
        (announced == Some(answer.body.len())).then_some(answer)
    }

    /// Sends a request and reads until the server closes: also an answer in chunks, and one without
    /// a body.
    pub(crate) fn exchange(&self, head: &str, body: &str) -> Option<Answer> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(STUCK)).unwrap();
        let (line, headers) = head.split_once('\n').unwrap_or((head, ""));
        let headers = if headers.is_empty() {
            String::new()
        } else {
            format!("{headers}\r\n")
        };
        let (address, length) = (&self.address, body.len());
        write!(stream, "{line} HTTP/1.1\r\nHost: {address}\r\n{headers}Connection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let mut answer = Answer {
            code: head[9..12].parse().unwrap(),
            head: head.to_owned(),
            body: body.to_owned(),
        };
        if answer.header("transfer-encoding") == Some("chunked") {
            answer.body = join_chunks(&answer.body)?;
        }
        Some(answer)
    }

    /// Opens a connection.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(STUCK)).unwrap();
        stream
    }

    /// Sends bytes as they are, and returns what comes back until the server closes.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may answer and close before it has taken everything.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Sends a request.
    #[track_caller]
    pub(crate) fn ask(&self, head: &str, body: &str) -> Answer {
        self.try_ask(head, body).unwrap()
    }

    /// Calls a pack and returns its cache status and output.
    #[track_caller]
    pub(crate) fn call(&self, pack: &str, input: &Value) -> (String, Value) {
        let answer = self.ask(&format!("POST /api/v1/packs/{pack}"), &input.to_string());
        assert_eq!(answer.code, 200, "{}", answer.body);
        (answer.status(), answer.json()["output"].clone())
    }

    /// Asks for a cached answer and nothing else; returns `hit` or `cache_miss`.
    #[track_caller]
    pub(crate) fn look(&self, pack: &str, input: &Value) -> String {
        self.ask(
            &format!("POST /api/v1/packs/{pack}\nCache-Control: only-if-cached"),
            &input.to_string(),
        )
        .status()
    }

    /// Sends a signal: `-TERM` or `-KILL`.
    pub(crate) fn signal(&self, signal: &str) {
        assert!(
            Command::new("kill")
                .args([signal, &self.child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Waits for the end and returns the exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}
