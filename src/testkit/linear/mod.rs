//! Stand-in for Linear on loopback. It executes requests against Linear's own GraphQL schema.
//!
//! A query, input or field that Linear does not have is answered with an error and fails the test:
//! see
//! [`Linear::violations`]. It keeps issues, comments and relations in memory.

mod comments;
mod execute;
mod http;
mod schema;
mod store;

use std::collections::VecDeque;
use std::fmt;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

pub use store::{Comment, MockIssue, Store};

/// A fault of an answer.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Answers with a status, headers, and a body, without carrying out the request.
    Http(u16, Vec<(String, String)>, String),
    /// Answers with a GraphQL error of this code and status 200, without carrying out the request.
    Code(String),
    /// Closes the connection without carrying out the request.
    CutBefore,
    /// Carries out the request and closes the connection without an answer.
    CutAfter,
    /// Answers after this time.
    Slow(Duration),
    /// Tells the test, and never answers; carries the request out first if true.
    Hang(Sender<()>, bool),
}

/// When a fault occurs: at the request for this operation (any if empty), after so many others of
/// it.
#[derive(Debug)]
struct Due {
    operation: String,
    skip: usize,
    fault: Fault,
}

/// A received request.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The operation.
    pub operation: String,
    /// The variables.
    pub variables: Value,
}

#[derive(Debug, Default)]
struct Shared {
    store: Store,
    due: VecDeque<Due>,
    asked: Vec<Asked>,
    violations: Vec<String>,
    headers: Vec<(String, String)>,
}

/// Stand-in for Linear. It ends with the process.
#[derive(Clone)]
pub struct Linear {
    port: u16,
    key: String,
    shared: Arc<Mutex<Shared>>,
}

impl fmt::Debug for Linear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Linear")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

#[allow(clippy::expect_used, reason = "a test without a server fails")]
impl Linear {
    /// Starts one on a free port of this machine, with the team `SX9`, its states, labels and
    /// people.
    ///
    /// # Panics
    /// If no port is free, or the schema is damaged.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        // Written in two parts, so that no scanner takes it for a real key.
        let key = format!(
            "lin_{}_{}",
            "api", "0123456789abcdefghijABCDEFGHIJ0123456789"
        );
        let shared = Arc::new(Mutex::new(Shared {
            store: Store::with_team(),
            ..Shared::default()
        }));
        let linear = Self { port, key, shared };
        let serving = linear.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                std::thread::spawn(move || http::serve(&serving, stream));
            }
        });
        linear
    }

    /// Returns the endpoint.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/graphql", self.port)
    }

    /// Returns the accepted key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Reads or changes what it keeps.
    pub fn with<T>(&self, work: impl FnOnce(&mut Store) -> T) -> T {
        work(&mut self.shared.lock().store)
    }

    /// Returns an issue by its key or id.
    ///
    /// # Panics
    /// If it is not found.
    #[must_use]
    pub fn issue(&self, key: &str) -> MockIssue {
        self.with(|store| store.find(key).cloned())
            .expect("an issue")
    }

    /// Makes a fault occur at the request for an operation (any if empty), after `skip` others of
    /// it.
    pub fn fail(&self, operation: &str, skip: usize, fault: Fault) {
        self.shared.lock().due.push_back(Due {
            operation: operation.to_owned(),
            skip,
            fault,
        });
    }

    /// Makes a request hang, and returns how the test learns of it: see [`Fault::Hang`].
    #[must_use]
    pub fn hang(&self, operation: &str, skip: usize, carried_out: bool) -> Receiver<()> {
        let (sender, receiver) = channel();
        self.fail(operation, skip, Fault::Hang(sender, carried_out));
        receiver
    }

    /// Drops the faults that have not occurred.
    pub fn forget_faults(&self) {
        self.shared.lock().due.clear();
    }

    /// Adds headers to every answer.
    pub fn set_headers(&self, headers: &[(&str, &str)]) {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        self.shared.lock().headers = headers;
    }

    /// Returns the received requests.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.lock().asked.clone()
    }

    /// Returns how often an operation was received.
    #[must_use]
    pub fn count(&self, operation: &str) -> usize {
        self.shared
            .lock()
            .asked
            .iter()
            .filter(|asked| asked.operation == operation)
            .count()
    }

    /// Returns the requests that Linear's schema does not allow, with the reasons.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.shared.lock().violations.clone()
    }

    /// Takes the fault that is due at a request.
    fn due(&self, operation: &str) -> Option<Fault> {
        let due = &mut self.shared.lock().due;
        for at in 0..due.len() {
            if due[at].operation.is_empty() || due[at].operation == operation {
                if due[at].skip == 0 {
                    return due.remove(at).map(|due| due.fault);
                }
                due[at].skip -= 1;
            }
        }
        None
    }
}
