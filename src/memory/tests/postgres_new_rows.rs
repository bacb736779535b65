//! Tests of new rows, which are written in one statement, and of writes to a server that falls
//! silent.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use helmdeck_core::{Clock, ManualClock, Timestamp};
use helmdeck_testkit::{PgBouncer, Postgres as Server};

use super::postgres::{counted, open_at, open_with};
use super::{KEY_A, alice, get, put, ring};
use crate::{Config, Kind, Limits, PostgresConfig, Put, Store, StoreError, open};

/// State of a relay.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Open,
    /// Answers wait; what clients send arrives.
    Silent,
    /// As `Silent`, and connections end.
    Cut,
}

type Shared = Arc<(Mutex<State>, Condvar)>;

/// Relay between stores and a server.
struct Relay {
    port: u16,
    state: Shared,
}

impl Relay {
    fn start(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state: Shared = Arc::new((Mutex::new(State::Open), Condvar::new()));
        let (address, shared) = (server.address(), Arc::clone(&state));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect((address.0.as_str(), address.1)).unwrap();
                let ends = [client.try_clone().unwrap(), server.try_clone().unwrap()];
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || copy(from, to, None));
                let answers = Arc::clone(&shared);
                thread::spawn(move || copy(server, client, Some(answers)));
                let ending = Arc::clone(&shared);
                thread::spawn(move || {
                    let state = ending.0.lock().unwrap();
                    drop(
                        ending
                            .1
                            .wait_while(state, |state| *state != State::Cut)
                            .unwrap(),
                    );
                    for end in ends {
                        let _ = end.shutdown(Shutdown::Both);
                    }
                });
            }
        });
        Self { port, state }
    }

    fn url(&self, url: &str) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{}/{}",
            self.port,
            url.rsplit_once('/').unwrap().1
        )
    }

    fn set(&self, state: State) {
        *self.state.0.lock().unwrap() = state;
        self.state.1.notify_all();
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, state: Option<Shared>) {
    let mut bytes = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if let Some(state) = &state {
            let held = state.0.lock().unwrap();
            drop(
                state
                    .1
                    .wait_while(held, |state| *state == State::Silent)
                    .unwrap(),
            );
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

async fn assert_exact(server: &Server, url: &str) {
    let (stored, real) = counted(server, url).await;
    assert_eq!(stored, real);
}

async fn race(server: &Server, url: &str, stores: [Arc<dyn Store>; 2]) {
    const KEYS: u32 = 50;
    for key in 0..KEYS {
        let key = key.to_string();
        let [one, other] = stores.each_ref().map(|store| {
            let (store, put) = (
                Arc::clone(store),
                Put {
                    tags: vec!["tag".into()],
                    ..put(&key, "v")
                },
            );
            tokio::spawn(async move { store.put(put).await.unwrap().version })
        });
        let mut versions = [one.await.unwrap(), other.await.unwrap()];
        versions.sort_unstable();
        assert_eq!(versions, [1, 2], "one of them replaces the other");
    }
    assert_eq!(
        server.query(url, "SELECT rows FROM memory_spaces"),
        KEYS.to_string()
    );
    assert_exact(server, url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn race_for_a_new_key_keeps_both_writes() {
    let server = Server::shared();
    let url = server.database();
    let stores = [open_at(&url).await.unwrap(), open_at(&url).await.unwrap()];
    race(&server, &url, stores).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn race_behind_a_pooler_keeps_both_writes() {
    let server = Server::shared();
    let (url, pooler) = (server.database(), PgBouncer::start(&server));
    let pooled = pooler.url(&url);
    let stores = [
        open_at(&pooled).await.unwrap(),
        open_at(&pooled).await.unwrap(),
    ];
    race(&server, &url, stores).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_rows_reach_a_quota_exactly() {
    let server = Server::shared();
    let url = server.database();
    let config = Config {
        limits: Limits {
            rows: 3,
            ..Limits::default()
        },
        ..Config::default()
    };
    let store = open_with(&url, config).await.unwrap();
    let fact = |key: &str| Put::new(alice(), Kind::Fact, key, "v");
    for key in ["1", "2", "3"] {
        store.put(fact(key)).await.unwrap();
    }
    let refused = store.put(fact("4")).await;
    assert!(
        matches!(
            refused,
            Err(StoreError::QuotaExceeded {
                what: "rows",
                limit: 3
            })
        ),
        "{refused:?}"
    );
    assert_eq!(server.query(&url, "SELECT rows FROM memory_spaces"), "3");
    assert_exact(&server, &url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_row_is_replaced_and_counted_once() {
    let server = Server::shared();
    let url = server.database();
    let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000_000)));
    let another = || {
        open(
            &url,
            ring(KEY_A, None),
            Config::default(),
            Arc::clone(&clock) as Arc<dyn Clock>,
        )
    };
    let store = another().await.unwrap();
    store
        .put(Put {
            ttl: Some(Duration::from_secs(1)),
            ..put("k", "old")
        })
        .await
        .unwrap();
    clock.advance(Duration::from_secs(2));
    // This one does not know that the row is there.
    let other = another().await.unwrap();
    assert_eq!(other.put(put("k", "new")).await.unwrap().version, 1);
    assert_eq!(get(&store, "k").await.unwrap().unwrap().value, "new");
    assert_eq!(server.query(&url, "SELECT rows FROM memory_spaces"), "1");
    assert_exact(&server, &url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn write_cut_off_after_its_statement_is_not_repeated() {
    let server = Server::shared();
    let url = server.database();
    let relay = Relay::start(&server);
    // One connection, which has prepared the statement when the answers stop.
    let config = Config {
        postgres: PostgresConfig {
            pool_size: 1,
            ..PostgresConfig::default()
        },
        ..Config::default()
    };
    let store = open_with(&relay.url(&url), config).await.unwrap();
    store.put(put("warm", "v")).await.unwrap();
    relay.set(State::Silent);
    let cut = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.put(put("k", "v")).await }
    });
    // It ends by itself if the statement was not sent.
    while !cut.is_finished() && server.query(&url, "SELECT rows FROM memory_spaces") != "2" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    relay.set(State::Cut);
    let error = cut.await.unwrap().unwrap_err();
    assert!(error.is_temporary(), "{error}");
    relay.set(State::Open);
    let reader = open_at(&url).await.unwrap();
    if let Some(stored) = get(&reader, "k").await.unwrap() {
        assert_eq!(stored.meta.version, 1);
        assert!(error.to_string().contains("is not known"), "{error}");
    }
    assert_exact(&server, &url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_server_fails_all_waiting_writes() {
    let server = Server::shared();
    let url = server.database();
    let relay = Relay::start(&server);
    let config = Config {
        busy_timeout: Duration::from_millis(200),
        postgres: PostgresConfig {
            connect_timeout: Duration::from_millis(250),
            ..PostgresConfig::default()
        },
        ..Config::default()
    };
    let store = open_with(&relay.url(&url), config).await.unwrap();
    store.put(put("warm", "v")).await.unwrap();
    relay.set(State::Silent);
    let mut errors = Vec::new();
    // The server never answers: only the limit of the write ends it.
    for key in ["a", "b", "c"] {
        errors.push(store.put(put(key, "v")).await.unwrap_err());
    }
    let first = errors[0].to_string();
    assert!(first.contains("is not known"), "{first}");
    assert!(errors.iter().all(StoreError::is_temporary), "{errors:?}");
    relay.set(State::Open);
    let reader = open_at(&url).await.unwrap();
    // The server may get it late, or never.
    let stored = get(&reader, "a").await.unwrap();
    assert!(
        stored.is_none_or(|entry| entry.meta.version == 1),
        "it was written twice"
    );
}
