//! The GitHub stand-in: starts `replay.py` over recorded exchanges.
//!
//! They are fetched once; it never talks to GitHub.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

/// The scripts, from the root of the workspace.
const SCRIPTS: &str = "tests/support/github";

/// A running stand-in. It ends when this value does.
#[derive(Debug)]
pub struct GitHub {
    process: Child,
    port: u16,
    log: PathBuf,
}

impl GitHub {
    /// Starts one on a free port.
    ///
    /// It fetches the recordings if they are missing (about half a minute, once).
    #[must_use]
    pub fn start() -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(0);

        let folder = target_folder().join("testdata/github/recordings");
        let scripts = workspace().join(SCRIPTS);
        let fetched = Command::new(scripts.join("fetch.sh"))
            .arg(&folder)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(
            fetched.success(),
            "the recordings cannot be fetched; see above"
        );

        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let log = std::env::temp_dir().join(format!(
            "helmdeck-github-{}-{number}.jsonl",
            std::process::id()
        ));
        let mut process = Command::new("python3")
            .arg(scripts.join("replay.py"))
            .arg(&folder)
            .arg("--log")
            .arg(&log)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let port = line
            .trim()
            .strip_prefix("ready ")
            .and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("the stand-in did not start: {line:?}"));
        Self { process, port, log }
    }

    /// Returns the root of its API.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Tells it what to do next; the words are in `replay.py`.
    pub fn control(&self, wish: &Value) {
        let (status, _) = self.request("POST", "/__ctl", &wish.to_string());
        assert_eq!(status, 204);
    }

    /// Returns its requests so far, in order.
    ///
    /// Each has method, path, `if_none_match`, `with_credential`, body and more.
    #[must_use]
    pub fn log(&self) -> Vec<Value> {
        let (_, body) = self.request("GET", "/__log", "");
        serde_json::from_str(&body).unwrap()
    }

    /// Checks every body it was sent against GitHub's own `OpenAPI` description, which is fetched
    /// once.
    ///
    /// # Errors
    /// What is wrong with which body.
    pub fn check_bodies(&self) -> Result<String, String> {
        let output = Command::new(workspace().join(SCRIPTS).join("contract.sh"))
            .arg(target_folder().join("testdata/github/contract"))
            .arg(&self.log)
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            Ok(said)
        } else {
            Err(said)
        }
    }

    fn request(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (
            head.split(' ').nth(1).unwrap().parse().unwrap(),
            body.to_owned(),
        )
    }
}

impl Drop for GitHub {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.log);
    }
}

fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .find(|folder| folder.join("Cargo.lock").exists())
        .unwrap_or(here)
        .to_owned()
}

/// Returns cargo's target folder, found from where this test runs, so that it is the right one
/// wherever it was moved to.
fn target_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let target = program
        .ancestors()
        .find(|folder| folder.join("CACHEDIR.TAG").exists());
    target.map_or_else(|| workspace().join("target"), Path::to_owned)
}
