//! NATS server with `JetStream` for tests, on a loopback port and in a temporary folder.
//!
//! A test without a server fails; it is never skipped.

use parking_lot::{Mutex, MutexGuard};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use helmdeck_core::waiting::STUCK;

/// Environment variable with the program, instead of the one in `PATH`.
pub const NATS_VARIABLE: &str = "HELMDECK_TEST_NATS_SERVER";

/// A private NATS server, stopped and removed when dropped. Its streams survive restarts.
pub struct Nats {
    folder: tempfile::TempDir,
    program: PathBuf,
    port: u16,
    /// File with more settings.
    settings: Option<PathBuf>,
    running: Mutex<Option<Child>>,
}

helmdeck_core::redacted_debug!(Nats, this => port = this.port);

#[allow(clippy::expect_used, reason = "a test without a server fails")]
impl Nats {
    /// Starts a server.
    ///
    /// # Panics
    /// If no NATS server is installed, or it does not start.
    #[must_use]
    pub fn start() -> Self {
        let server = Self::stopped();
        server.start_again();
        server
    }

    /// Prepares a server without starting it.
    ///
    /// # Panics
    /// If no folder or port is available.
    #[must_use]
    pub fn stopped() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a port")
            .port();
        Self {
            folder,
            program: program(),
            port,
            settings: None,
            running: Mutex::new(None),
        }
    }

    /// Starts a server with more settings: `tls`, `authorization`.
    ///
    /// # Panics
    /// As [`Nats::start`].
    #[must_use]
    pub fn configured(settings: &str) -> Self {
        let mut server = Self::stopped();
        let file = server.folder.path().join("settings");
        fs::write(&file, settings).expect("a file of settings");
        server.settings = Some(file);
        server.start_again();
        server
    }

    /// Returns the URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Starts the server, with the same port and streams, and waits until it answers.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&self) {
        let end = Instant::now() + STUCK;
        while Instant::now() < end {
            let mut server = self
                .command()
                .spawn()
                .expect("a NATS server (Debian: nats-server)");
            while Instant::now() < end && matches!(server.try_wait(), Ok(None)) {
                if self.answers() {
                    *self.lock() = Some(server);
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = server.kill();
            let _ = server.wait();
        }
        panic!(
            "the server does not start:\n{}",
            fs::read_to_string(self.log()).unwrap_or_default()
        );
    }

    /// Kills the server with SIGKILL.
    pub fn kill9(&self) {
        if let Some(mut server) = self.lock().take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Freezes the server until [`Nats::go_on`]: it is silent to its clients.
    pub fn freeze(&self) {
        self.signal("-STOP");
        // A thread that is running goes on until the signal reaches it.
        let Some(id) = self.lock().as_ref().map(Child::id) else {
            return;
        };
        let end = Instant::now() + STUCK;
        while Instant::now() < end && !is_stopped(id) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Resumes a frozen server.
    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    /// Stops the server as an administrator would.
    pub fn stop(&self) {
        self.signal("-CONT");
        self.signal("-TERM");
        if let Some(mut server) = self.lock().take() {
            let end = Instant::now() + STUCK;
            while Instant::now() < end && matches!(server.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    fn signal(&self, signal: &str) {
        if let Some(server) = self.lock().as_ref() {
            let _ = Command::new("kill")
                .args([signal, &server.id().to_string()])
                .stderr(Stdio::null())
                .status();
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args([
                "-a",
                "127.0.0.1",
                "-p",
                &self.port.to_string(),
                "-js",
                "-sd",
            ])
            .arg(self.folder.path().join("js"));
        command.arg("-l").arg(self.log());
        if let Some(file) = &self.settings {
            command.arg("-c").arg(file);
        }
        // A test that is interrupted from the keyboard ends its server itself.
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        command
    }

    /// Returns whether the server answers, with `JetStream`.
    fn answers(&self) -> bool {
        let Ok(stream) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return false;
        };
        let mut line = String::new();
        stream
            .set_read_timeout(Some(Duration::from_secs(1)))
            .is_ok()
            && BufReader::new(stream).read_line(&mut line).is_ok()
            && line.starts_with("INFO ")
            && line.contains("\"jetstream\":true")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.running.lock()
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// Returns the program: the configured one, the one in `PATH`, or that of Debian.
fn program() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "names the program for tests")]
    let named = std::env::var_os(NATS_VARIABLE).map(PathBuf::from);
    named.unwrap_or_else(|| {
        let debian = Path::new("/usr/sbin/nats-server");
        if debian.exists() {
            debian.to_owned()
        } else {
            PathBuf::from("nats-server")
        }
    })
}

/// Whether every thread of a process has stopped.
fn is_stopped(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return false;
    };
    threads.flatten().all(|thread| {
        let state = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name in parentheses.
        state
            .rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}
