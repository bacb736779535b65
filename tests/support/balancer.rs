//! Three servers, each with its own data folder, behind a real HAProxy in plain round robin. They
//! share one PostgreSQL database, through a real `PgBouncer` in transaction mode.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use helmdeck_testkit::{PgBouncer, Postgres};

use super::program::{Home, Server};
use super::{KEY, wait_for};

/// Names of the servers, as the configuration of HAProxy names them too.
pub(crate) const NAMES: [&str; 3] = ["deck-1", "deck-2", "deck-3"];

/// Servers and the balancer in front of them.
pub(crate) struct Decks {
    /// Packs of all servers.
    pub(crate) home: Home,
    /// Homes of the servers, for their data.
    pub(crate) homes: Vec<Home>,
    /// The servers, in order of their names.
    pub(crate) servers: Vec<Server>,
    /// HAProxy.
    pub(crate) balancer: Server,
    environment: Vec<(String, String)>,
    _pooler: PgBouncer,
    _postgres: Arc<Postgres>,
}

impl Decks {
    /// Starts three servers on a new database, with packs of one home and more in their
    /// environment.
    pub(crate) fn start(home: Home, environment: &[(&str, &str)]) -> Self {
        let postgres = Postgres::shared();
        let pooler = PgBouncer::start(&postgres);
        let mut all = vec![
            (
                "HELMDECK_MEMORY_URL".to_owned(),
                pooler.url(&postgres.database()),
            ),
            (
                "HELMDECK_PACKS_DIR".to_owned(),
                home.packs().to_str().unwrap().to_owned(),
            ),
        ];
        all.extend(
            environment
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        );
        let homes: Vec<Home> = NAMES.iter().map(|_| Home::new()).collect();
        let servers: Vec<Server> = NAMES
            .iter()
            .zip(&homes)
            .map(|(name, home)| launch(home, name, &all))
            .collect();
        let balancer = balance(&servers);
        Self {
            home,
            homes,
            servers,
            balancer,
            environment: all,
            _pooler: pooler,
            _postgres: postgres,
        }
    }

    /// Starts another server with the data of one of them.
    pub(crate) fn restart(&self, index: usize) -> Server {
        launch(&self.homes[index], NAMES[index], &self.environment)
    }

    /// Prepares a run of the program with the environment and the data of a server.
    pub(crate) fn command(&self, index: usize, arguments: &[&str]) -> Command {
        let mut command = self.homes[index].command(KEY, arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Sends requests through the balancer until each server has answered one. Returns the answers'
    /// statuses.
    #[track_caller]
    pub(crate) fn ask_all(&self, head: &str, body: &str) -> Vec<u16> {
        let (mut seen, mut codes) = (BTreeSet::new(), Vec::new());
        wait_for("each server to answer", || {
            let answer = self.balancer.exchange(head, body).unwrap();
            codes.push(answer.code);
            seen.insert(
                answer
                    .header("helmdeck-server")
                    .unwrap_or_default()
                    .to_owned(),
            );
            NAMES.iter().all(|name| seen.contains(*name))
        });
        codes
    }
}

fn launch(home: &Home, name: &str, environment: &[(String, String)]) -> Server {
    let mut command = home.command(KEY, super::program::SERVE);
    command
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .env("HELMDECK_SERVER__REPLICA", name);
    Server::launch(command)
}

/// Starts HAProxy with the configuration that is for operators. It takes its listener as standard
/// input, so that no other program can take the port.
fn balance(servers: &[Server]) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let configuration = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/compose/haproxy.cfg");
    let mut command = haproxy();
    command
        .args(["-db", "-f"])
        .arg(configuration)
        .env("LISTEN", "fd@0");
    for (number, server) in servers.iter().enumerate() {
        command.env(format!("DECK_{}", number + 1), server.address());
    }
    let child = command
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let child =
        child.unwrap_or_else(|error| panic!("haproxy: {error}; install it (Debian: haproxy)"));
    let balancer = Server::beside(child, address);
    wait_for("HAProxy to reach a server", || {
        balancer
            .exchange("GET /healthz", "")
            .is_some_and(|answer| answer.code == 200)
    });
    balancer
}

/// Returns a run of HAProxy, which Debian keeps where only root looks.
pub(crate) fn haproxy() -> Command {
    let mut command = Command::new("haproxy");
    command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}
