//! Tests with a PostgreSQL server in trouble: killed, stopped, silent; and refusals by TLS.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use helmdeck_testkit::{Postgres as Server, PostgresOptions, ends, until};

use super::postgres::{open_at, open_with};
use super::{alice, get, put};
use crate::{Change, Config, Delete, Kind, PostgresConfig, Put, Store, StoreError};

/// Client of a store whose server is stopped and started.
struct Caller {
    number: usize,
    acknowledged: BTreeMap<String, String>,
    counts: Arc<Counts>,
}

/// How often all callers together were acknowledged and refused a write or read.
#[derive(Default)]
struct Counts {
    acknowledged: AtomicUsize,
    refused: AtomicUsize,
}

/// Waits until a count has grown by as much.
async fn grows(what: &str, count: &AtomicUsize, by: usize) {
    let enough = count.load(Ordering::SeqCst) + by;
    until(what, async || count.load(Ordering::SeqCst) >= enough).await;
}

impl Caller {
    async fn work(mut self, store: Arc<dyn Store>, stop: Arc<AtomicBool>) -> Self {
        for round in 0.. {
            if stop.load(Ordering::SeqCst) {
                break;
            }
            let (key, value) = (
                format!("{}/{round}", self.number),
                format!("value {round} of {}", self.number),
            );
            match store
                .put(Put::new(alice(), Kind::Note, key.clone(), value.clone()))
                .await
            {
                Ok(meta) => {
                    assert_eq!(meta.version, 1, "{key} was written once");
                    self.acknowledged.insert(key, value);
                    self.counts.acknowledged.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => self.refuse(&error).await,
            }
            if let Some((key, value)) = self.acknowledged.iter().next_back() {
                match store.get(&alice(), Kind::Note, key).await {
                    Ok(entry) => assert_eq!(entry.unwrap().value, *value),
                    Err(error) => self.refuse(&error).await,
                }
            }
        }
        self
    }

    async fn refuse(&self, error: &StoreError) {
        assert!(error.is_temporary(), "{error:?}");
        self.counts.refused.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_crash_loses_no_acknowledged_write() {
    let server = Server::start();
    let url = server.database();
    let store = open_at(&url).await.unwrap();
    let mut changes = store.changes().unwrap();
    let (stop, counts) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(Counts::default()),
    );
    let callers: Vec<_> = (0..16)
        .map(|number| {
            let caller = Caller {
                number,
                acknowledged: BTreeMap::new(),
                counts: Arc::clone(&counts),
            };
            tokio::spawn(caller.work(Arc::clone(&store), Arc::clone(&stop)))
        })
        .collect();
    for round in 0..2 {
        grows("writes before", &counts.acknowledged, 50).await;
        let server = &server;
        tokio::task::block_in_place(|| {
            if round == 0 {
                server.kill9()
            } else {
                server.stop()
            }
        });
        grows("refusals", &counts.refused, 16).await;
        tokio::task::block_in_place(|| server.start_again());
        let key = format!("again {round}");
        until("it to recover by itself", async || {
            store.put(put(&key, "v")).await.is_ok()
        })
        .await;
    }
    grows("writes after", &counts.acknowledged, 50).await;
    stop.store(true, Ordering::SeqCst);
    let reader = open_at(&url).await.unwrap();
    for caller in callers {
        let caller = caller.await.unwrap();
        for (key, value) in &caller.acknowledged {
            let entry = reader.get(&alice(), Kind::Note, key).await.unwrap();
            assert_eq!(
                entry
                    .unwrap_or_else(|| panic!("{key} was acknowledged"))
                    .value,
                *value
            );
        }
    }
    assert_eq!(
        changes.recv().await.unwrap(),
        Change::Anything,
        "the connection that listens was lost too"
    );
    let delete = Delete::Prefix {
        namespace: None,
        kind: None,
        prefix: String::new(),
    };
    let hears = async {
        loop {
            // Without the listening connection, notifications are lost, and the store says so.
            reader.delete(delete.clone()).await.unwrap();
            if let Ok(Ok(Change::Deleted(heard))) =
                tokio::time::timeout(Duration::from_millis(50), changes.recv()).await
            {
                return heard;
            }
        }
    };
    assert_eq!(ends("a delete", hears).await, delete);
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_server_times_out_and_recovers() {
    let server = Server::start();
    let url = server.database();
    let postgres = PostgresConfig {
        connect_timeout: Duration::from_millis(500),
        ..PostgresConfig::default()
    };
    let config = Config {
        postgres,
        ..Config::default()
    };
    let store = open_with(&url, config.clone()).await.unwrap();
    store.put(put("k", "v")).await.unwrap();
    server.freeze();
    for _ in 0..10 {
        // As the engine does: its patience is short.
        assert!(
            tokio::time::timeout(Duration::from_millis(20), get(&store, "k"))
                .await
                .is_err()
        );
    }
    let opened = ends("the try to open", open_with(&url, config)).await;
    assert!(opened.is_err_and(|error| error.is_temporary()));
    server.go_on();
    // What it was asked meanwhile comes first, so the first to ask now may still find it silent.
    let used = async || {
        assert_eq!(get(&store, "k").await?.unwrap().value, "v");
        store.put(put("after", "v")).await?;
        assert_eq!(get(&store, "after").await?.unwrap().value, "v");
        Ok::<_, StoreError>(())
    };
    let is_usable = async || match used().await {
        Ok(()) => true,
        Err(error) => {
            assert!(error.is_temporary(), "{error:?}");
            false
        }
    };
    until("the store to be used again", is_usable).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_for_a_locked_row_is_bounded() {
    let server = Server::shared();
    let url = server.database();
    let config = Config {
        busy_timeout: Duration::from_millis(50),
        ..Config::default()
    };
    let store = open_with(&url, config).await.unwrap();
    store.put(put("k", "v")).await.unwrap();
    let mut holding = Command::new("psql")
        .args([
            "-X",
            "-q",
            "-d",
            &url,
            "-c",
            "BEGIN; SELECT * FROM memory_spaces FOR UPDATE; SELECT pg_sleep(60)",
        ])
        .spawn()
        .unwrap();
    let is_held = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
    while server.query(&url, is_held) == "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let refused = store.put(put("k", "w")).await;
    assert!(refused.is_err_and(|error| error.is_temporary()));
    assert_eq!(
        get(&store, "k").await.unwrap().unwrap().value,
        "v",
        "reads go on"
    );
    assert_eq!(store.sweep_expired(10).await.unwrap(), 0);
    holding.kill().unwrap();
    holding.wait().unwrap();
    // Its locks are free when it is gone.
    server.sql(
        &url,
        "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event = 'PgSleep'",
    );
    store.put(put("k", "w")).await.unwrap();
}

/// Certificates, made by the program `openssl`.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn new() -> Self {
        let certificates = Self(tempfile::tempdir().unwrap());
        for authority in ["authority", "other"] {
            certificates.openssl(&format!(
                "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={authority} -keyout {authority}.key -out {authority}.pem"
            ));
        }
        let names = certificates.path("names");
        std::fs::write(
            names,
            "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n",
        )
        .unwrap();
        certificates.openssl(
            "req -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr",
        );
        certificates.openssl(
            "x509 -req -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 -extfile names \
             -out server.pem",
        );
        certificates
    }

    fn openssl(&self, arguments: &str) {
        let output = Command::new("openssl")
            .args(arguments.split_whitespace())
            .current_dir(self.0.path())
            .output();
        let output = output.expect("the program openssl");
        assert!(
            output.status.success(),
            "{arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }
}

fn tls_server(certificates: &Certificates, password: &str) -> Server {
    let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Server::start_with(PostgresOptions {
        password: Some(password.to_owned()),
        files: vec![
            ("server.crt".to_owned(), certificates.read("server.pem")),
            ("server.key".to_owned(), certificates.read("server.key")),
        ],
        settings: vec![
            setting("ssl", "on"),
            setting("ssl_cert_file", "server.crt"),
            setting("ssl_key_file", "server.key"),
        ],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_checks_certificate_and_name() {
    const PASSWORD: &str = "canary";
    let certificates = Certificates::new();
    let server = tls_server(&certificates, PASSWORD);
    let port = server.port();
    let root = |name: &str| certificates.path(name).display().to_string();
    let url = |host: &str, password: &str, rest: &str| {
        format!("postgres://postgres:{password}@{host}:{port}/postgres{rest}")
    };
    let trusted = format!("?sslmode=verify-full&sslrootcert={}", root("authority.pem"));

    let store = open_at(&url("localhost", PASSWORD, &trusted))
        .await
        .unwrap();
    store.put(put("k", "v")).await.unwrap();
    let encrypted = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a ON a.pid = s.pid
                      WHERE a.application_name = 'helmdeck' AND NOT s.ssl";
    assert_eq!(server.query(&server.url(), encrypted), "0");
    let connected = "SELECT count(*) > 1 FROM pg_stat_activity WHERE application_name = 'helmdeck'";
    assert_eq!(server.query(&server.url(), connected), "t");
    // Unasked, what stays on this machine may go in the clear.
    open_at(&url("localhost", PASSWORD, ""))
        .await
        .unwrap()
        .close()
        .await
        .unwrap();

    let other = format!("?sslrootcert={}", root("other.pem"));
    let no_file = format!("?sslrootcert={}", root("nowhere.pem"));
    let no_certificate = format!("?sslrootcert={}", root("authority.key"));
    for (what, url, word) in [
        (
            "another authority",
            url("localhost", PASSWORD, &other),
            "certificate",
        ),
        (
            "another name",
            url("127.0.0.1", PASSWORD, &trusted),
            "certificate",
        ),
        (
            "the system's authorities",
            url("localhost", PASSWORD, "?sslmode=require"),
            "certificate",
        ),
        (
            "another password",
            url("localhost", "canary2", &trusted),
            "password authentication failed",
        ),
        (
            "no file",
            url("localhost", PASSWORD, &no_file),
            "nowhere.pem",
        ),
        (
            "no certificate",
            url("localhost", PASSWORD, &no_certificate),
            "no certificate",
        ),
        (
            "no server",
            format!("postgres://u:{PASSWORD}@127.0.0.1:1/d"),
            "refused",
        ),
    ] {
        let error = open_at(&url)
            .await
            .err()
            .unwrap_or_else(|| panic!("{what} was accepted"));
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(word), "{what}: {shown}");
        assert!(!shown.contains(PASSWORD), "{what}: {shown}");
    }
    assert!(Path::new(&root("authority.pem")).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_will_do() {
    let server = Server::start();
    let folder = server
        .socket_folder()
        .display()
        .to_string()
        .replace('/', "%2F");
    let store = open_at(&format!(
        "postgres://postgres@{folder}:{}/postgres",
        server.port()
    ))
    .await
    .unwrap();
    store.put(put("k", "v")).await.unwrap();
    assert_eq!(get(&store, "k").await.unwrap().unwrap().value, "v");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_hosts_one_that_answers_will_do() {
    let server = Server::start();
    let url = format!(
        "postgres://postgres@127.0.0.1:1,127.0.0.1:{}/postgres",
        server.port()
    );
    open_at(&url)
        .await
        .unwrap()
        .put(put("k", "v"))
        .await
        .unwrap();
}
