//! `PgBouncer` for tests, in transaction mode, in front of a PostgreSQL server.
//!
//! A test without the program fails; it is never skipped.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use helmdeck_core::waiting::STUCK;

use crate::postgres::{Postgres, other_user, own};

/// Environment variable with the program, instead of the one in `PATH` or `/usr/sbin`.
pub const PGBOUNCER_VARIABLE: &str = "HELMDECK_TEST_PGBOUNCER";

/// Connection pooler in transaction mode; stopped when dropped.
///
/// Each database has few server connections, so that clients share them.
pub struct PgBouncer {
    running: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

helmdeck_core::redacted_debug!(PgBouncer, this => port = this.port);

#[allow(clippy::expect_used, reason = "a test without a pooler fails")]
impl PgBouncer {
    /// Starts a pooler in front of a server that trusts its clients.
    ///
    /// # Panics
    /// If `PgBouncer` is not installed, or does not start.
    #[must_use]
    pub fn start(server: &Postgres) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        own(folder.path());
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a port")
            .port();
        let (host, server_port) = server.address();
        let settings = format!(
            "[databases]\n* = host={host} port={server_port} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 500\n\
             ignore_startup_parameters = extra_float_digits\nquery_wait_timeout = 60\nserver_login_retry = 1\n"
        );
        let file = folder.path().join("pgbouncer.ini");
        fs::write(&file, settings).expect("a file");
        own(&file);
        let mut command = Command::new(program());
        command
            .arg("-q")
            .arg(&file)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command.stderr(Stdio::null());
        if let Some((user, group)) = other_user() {
            command.uid(user).gid(group);
        }
        let mut pooler = Self {
            running: command.spawn().expect("the program pgbouncer"),
            port,
            _folder: folder,
        };
        pooler.wait();
        pooler
    }

    /// Returns the URL of a database of the server, through the pooler.
    ///
    /// # Panics
    /// If `url` names no database.
    #[must_use]
    pub fn url(&self, url: &str) -> String {
        let (_, database) = url.rsplit_once('/').expect("a URL with a database");
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    fn wait(&mut self) {
        let end = Instant::now() + STUCK;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = self.running.try_wait().expect("a process");
            assert!(ended.is_none(), "pgbouncer ended: {ended:?}");
            assert!(Instant::now() < end, "pgbouncer does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

/// Returns the program; Debian's place for it is not in everybody's path.
fn program() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "names the pooler for tests")]
    let (given, path) = (
        std::env::var_os(PGBOUNCER_VARIABLE),
        std::env::var_os("PATH").unwrap_or_default(),
    );
    let found = || {
        let folders = std::env::split_paths(&path)
            .chain(["/usr/sbin".into()])
            .collect::<Vec<_>>();
        folders
            .into_iter()
            .map(|folder| folder.join("pgbouncer"))
            .find(|file| file.is_file())
    };
    given
        .map(PathBuf::from)
        .or_else(found)
        .unwrap_or_else(|| "pgbouncer".into())
}
