//! PostgreSQL server for tests, on a loopback port and in a temporary folder.
//!
//! A test without a server fails; it is never skipped.

use parking_lot::Mutex;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use helmdeck_core::waiting::STUCK;

/// Environment variable with the URL of a running server: `postgres://user@host:port/database`.
///
/// Its user may create databases.
pub const SERVER_VARIABLE: &str = "HELMDECK_TEST_POSTGRES_URL";

static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// Options of a server.
#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    /// Password of the user `postgres` over TCP; `None` = every user is trusted.
    pub password: Option<String>,
    /// Files to put into the data folder, readable by the server only: name and content.
    pub files: Vec<(String, String)>,
    /// Settings of the server: name and value.
    pub settings: Vec<(String, String)>,
}

/// PostgreSQL server: a private one, stopped and removed when dropped, or a running one.
pub struct Postgres {
    /// `user@host:port`, or with a password.
    authority: String,
    server: Option<Server>,
}

struct Server {
    folder: tempfile::TempDir,
    programs: PathBuf,
    port: u16,
    password: Option<String>,
    settings: Vec<(String, String)>,
    running: Mutex<Option<Child>>,
}

helmdeck_core::redacted_debug!(Postgres, this => own = this.server.is_some());

#[allow(clippy::expect_used, reason = "a test without a server fails")]
impl Postgres {
    /// Starts a server.
    ///
    /// # Panics
    /// If PostgreSQL is not installed, or does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(PostgresOptions::default())
    }

    /// Starts a server with options.
    ///
    /// # Panics
    /// As [`Postgres::start`].
    #[must_use]
    pub fn start_with(options: PostgresOptions) -> Self {
        let server = Server::create(options);
        server.run();
        let credentials = match &server.password {
            Some(password) => format!("postgres:{password}"),
            None => "postgres".to_owned(),
        };
        Self {
            authority: format!("{credentials}@127.0.0.1:{}", server.port),
            server: Some(server),
        }
    }

    /// Starts a hot standby of a private server, on a port of its own.
    ///
    /// # Panics
    /// As [`Postgres::start`]; if the server has a password.
    #[must_use]
    pub fn standby(&self) -> Self {
        let primary = self.own();
        assert!(
            primary.password.is_none(),
            "a standby needs a server without a password"
        );
        let server = Server::empty(PostgresOptions::default());
        let mut copy = server.command("pg_basebackup");
        copy.args([
            "--no-sync",
            "-U",
            "postgres",
            "-h",
            "127.0.0.1",
            "-p",
            &primary.port.to_string(),
        ]);
        run(copy
            .args(["-R", "-X", "stream", "-c", "fast", "-D"])
            .arg(server.data()));
        server.run();
        Self {
            authority: format!("postgres@127.0.0.1:{}", server.port),
            server: Some(server),
        }
    }

    /// Promotes a standby: it takes writes from now on.
    ///
    /// # Panics
    /// If it is none.
    pub fn promote(&self) {
        let server = self.own();
        run(server
            .command("pg_ctl")
            .args(["promote", "-w", "-D"])
            .arg(server.data()));
    }

    /// Returns the server of the variable [`SERVER_VARIABLE`], or a server shared by this test
    /// process.
    ///
    /// Keep it as long as its databases are used.
    ///
    /// # Panics
    /// As [`Postgres::start`].
    #[must_use]
    pub fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock();
        if let Some(server) = shared.upgrade() {
            return server;
        }
        #[expect(clippy::disallowed_methods, reason = "names the server for tests")]
        let given = std::env::var(SERVER_VARIABLE);
        let server = Arc::new(match given {
            Ok(url) => {
                let authority = url
                    .split_once("://")
                    .expect("a URL")
                    .1
                    .split(['/', '?'])
                    .next()
                    .unwrap_or_default();
                Self {
                    authority: authority.to_owned(),
                    server: None,
                }
            }
            Err(_) => Self::start(),
        });
        *shared = Arc::downgrade(&server);
        server
    }

    /// Makes an empty database and returns its URL, without parameters.
    ///
    /// # Panics
    /// If the server refuses.
    #[must_use]
    pub fn database(&self) -> String {
        let moment = SystemTime::UNIX_EPOCH
            .elapsed()
            .map_or(0, |time| time.as_micros());
        let count = DATABASES.fetch_add(1, Ordering::Relaxed);
        let name = format!("t{moment}_{}_{count}", std::process::id());
        self.sql(&self.url(), &format!("CREATE DATABASE {name}"));
        self.url_of(&name)
    }

    /// Returns the URL of the database `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// Returns the port of a private server.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.own().port
    }

    /// Returns host and port of the server.
    ///
    /// # Panics
    /// If the URL of the server names none.
    #[must_use]
    pub fn address(&self) -> (String, u16) {
        let (_, address) = self
            .authority
            .rsplit_once('@')
            .unwrap_or(("", &self.authority));
        let (host, port) = address.rsplit_once(':').unwrap_or((address, "5432"));
        (host.to_owned(), port.parse().expect("a port"))
    }

    /// Returns the folder with the unix socket of a private server.
    #[must_use]
    pub fn socket_folder(&self) -> &Path {
        self.own().folder.path()
    }

    /// Returns the data folder of a private server.
    #[must_use]
    pub fn files(&self) -> PathBuf {
        self.own().data()
    }

    /// Runs SQL and returns its result: one row per line, columns separated by `|`.
    ///
    /// # Panics
    /// If the SQL fails.
    #[must_use]
    pub fn query(&self, url: &str, sql: &str) -> String {
        run(Command::new("psql").args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            url,
            "-c",
            sql,
        ]))
    }

    /// Runs SQL.
    ///
    /// # Panics
    /// If it fails.
    pub fn sql(&self, url: &str, sql: &str) {
        let _ = self.query(url, sql);
    }

    /// Returns a dump of a whole database as SQL.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn dump(&self, url: &str) -> String {
        let newest = newest_programs();
        run(Command::new(newest.join("pg_dump")).args(["-d", url]))
    }

    /// Kills every process of the server with SIGKILL.
    pub fn kill9(&self) {
        let mut running = self.own().lock();
        if let Some(mut server) = running.take() {
            let children = children_of(server.id());
            let _ = server.kill();
            for child in children {
                let _ = Command::new("kill")
                    .args(["-9", &child])
                    .stderr(Stdio::null())
                    .status();
            }
            let _ = server.wait();
        }
    }

    /// Freezes every process of the server until [`Postgres::go_on`]: it is silent to its clients.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Resumes a frozen server.
    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    /// Stops the server and disconnects its clients.
    pub fn stop(&self) {
        self.own().stop();
    }

    /// Starts the server again, with the same port and data.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&self) {
        self.own().run();
    }

    fn url_of(&self, database: &str) -> String {
        format!("postgres://{}/{database}", self.authority)
    }

    fn own(&self) -> &Server {
        self.server.as_ref().expect("a server of its own")
    }

    fn signal(&self, signal: &str) {
        let running = self.own().lock();
        let server = running.as_ref().expect("a running server").id();
        let mut all = children_of(server);
        all.push(server.to_string());
        let _ = Command::new("kill").arg(signal).args(all).status();
    }
}

#[allow(clippy::expect_used, reason = "a test without a server fails")]
impl Server {
    /// Makes a server without data.
    fn empty(options: PostgresOptions) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a port")
            .port();
        let server = Self {
            folder,
            programs: newest_programs(),
            port,
            password: options.password,
            settings: options.settings,
            running: Mutex::new(None),
        };
        fs::set_permissions(server.folder.path(), fs::Permissions::from_mode(0o755))
            .expect("a mode");
        own(server.folder.path());
        server
    }

    fn create(options: PostgresOptions) -> Self {
        let files = options.files.clone();
        let server = Self::empty(options);
        let password_file = server.folder.path().join("password");
        let mut initdb = server.command("initdb");
        initdb.args([
            "--no-sync",
            "-U",
            "postgres",
            "-E",
            "UTF8",
            "--locale=C",
            "--auth-local=trust",
            "-D",
        ]);
        initdb.arg(server.data());
        match &server.password {
            None => initdb.arg("--auth-host=trust"),
            Some(password) => {
                fs::write(&password_file, password).expect("a file");
                own(&password_file);
                initdb
                    .arg("--auth-host=scram-sha-256")
                    .arg("--pwfile")
                    .arg(&password_file)
            }
        };
        run(&mut initdb);
        for (name, content) in files {
            let path = server.data().join(name);
            fs::write(&path, content).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
            own(&path);
        }
        server
    }

    /// Starts the server and waits until it answers. After a SIGKILL the first try may fail.
    fn run(&self) {
        let end = Instant::now() + STUCK;
        while Instant::now() < end {
            let log = fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(self.folder.path().join("log"))
                .expect("a log");
            let mut command = self.command("postgres");
            command.arg("-D").arg(self.data()).args([
                "-p",
                &self.port.to_string(),
                "-c",
                "listen_addresses=127.0.0.1",
            ]);
            command.arg("-k").arg(self.folder.path());
            // Files in the data folder instead of shared memory that a killed server leaves behind.
            command.args([
                "-c",
                "dynamic_shared_memory_type=mmap",
                "-c",
                "max_connections=200",
            ]);
            for (name, value) in &self.settings {
                command.args(["-c", &format!("{name}={value}")]);
            }
            let mut server = command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .expect("a server");
            while Instant::now() < end && matches!(server.try_wait(), Ok(None)) {
                if self.answers() {
                    *self.lock() = Some(server);
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = server.kill();
            let _ = server.wait();
        }
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        panic!("the server does not start:\n{log}");
    }

    fn answers(&self) -> bool {
        Command::new(self.programs.join("pg_isready"))
            .args([
                "-q",
                "-t",
                "5",
                "-h",
                "127.0.0.1",
                "-p",
                &self.port.to_string(),
            ])
            .status()
            .is_ok_and(|status| status.success())
    }

    fn stop(&self) {
        let Some(mut server) = self.lock().take() else {
            return;
        };
        let id = server.id().to_string();
        // A frozen server gets no signal.
        let _ = Command::new("kill")
            .args(["-CONT", &id])
            .args(children_of(server.id()))
            .stderr(Stdio::null())
            .status();
        let _ = Command::new("kill")
            .args(["-INT", &id])
            .stderr(Stdio::null())
            .status();
        let end = Instant::now() + STUCK;
        while Instant::now() < end && matches!(server.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = server.kill();
        let _ = server.wait();
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Option<Child>> {
        self.running.lock()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A program of the server. PostgreSQL refuses to run as root.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command
            .current_dir(self.folder.path())
            .env("LC_ALL", "C")
            .process_group(0);
        if let Some((user, group)) = other_user() {
            command.uid(user).gid(group);
        }
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

#[allow(clippy::expect_used, reason = "a test without a server fails")]
fn run(command: &mut Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .output()
        .expect("a program of PostgreSQL");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned()
}

/// Returns the folder with the programs of the newest PostgreSQL of this machine.
fn newest_programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let newest = versions
        .filter_map(|entry| {
            Some((
                entry.file_name().to_str()?.parse::<u32>().ok()?,
                entry.path().join("bin"),
            ))
        })
        .filter(|(_, programs)| programs.join("initdb").exists())
        .max();
    // Elsewhere than on Debian they are on the path.
    newest.map_or_else(PathBuf::new, |(_, programs)| programs)
}

/// Returns the user of the server's processes if this process is root.
#[allow(clippy::expect_used, reason = "a test without a server fails")]
pub(crate) fn other_user() -> Option<(u32, u32)> {
    use std::os::unix::fs::MetadataExt;

    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    is_root.then(|| {
        let users = fs::read_to_string("/etc/passwd").expect("a list of users");
        let line = users
            .lines()
            .find(|line| line.starts_with("postgres:"))
            .expect("a user \"postgres\"");
        let fields: Vec<&str> = line.split(':').collect();
        (
            fields[2].parse().expect("a user"),
            fields[3].parse().expect("a group"),
        )
    })
}

#[allow(clippy::expect_used, reason = "root may")]
pub(crate) fn own(path: &Path) {
    if let Some((user, group)) = other_user() {
        chown(path, Some(user), Some(group)).expect("a change of owner");
    }
}

/// A server has one thread, so its children are all listed there.
fn children_of(parent: u32) -> Vec<String> {
    let listed =
        fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    listed.split_whitespace().map(ToOwned::to_owned).collect()
}
