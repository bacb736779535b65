//! Test fixture: a small engine of real packs, with and without memory, and a manual clock.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use helmdeck_conversation::{ConversationMemory, Conversations, Dependencies, Summarizer};
use helmdeck_core::{Builtin, Code, Context, Error, Handler, Json, Need, Reply, Result, Timestamp};
use helmdeck_engine::{Engine, Memory};
use helmdeck_memory::KeyRing;
use helmdeck_system::System;
use helmdeck_testkit::ManualClock;
use http::{HeaderMap, Method, Request, StatusCode};
use serde_json::Value;
use tokio::sync::Semaphore;
use tower::ServiceExt;

use crate::ServerConfig;
use crate::access::Auth;
use crate::operator::Operator;
use crate::rest::project::ProjectSettings;
use crate::serve::Server;

/// Start time of every fixture.
pub(crate) const START: Timestamp = Timestamp(1_800_000_000_000_000);

/// Counters of the handlers, and the gate that blocks them.
pub(crate) struct Probe {
    runs: AtomicU32,
    /// A run with `"wait": true` first adds a permit here ...
    pub(crate) entered: Semaphore,
    /// ... and continues when it gets a permit from here.
    pub(crate) gate: Semaphore,
}

impl Probe {
    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    /// Waits until one more run is blocked at the gate.
    pub(crate) async fn someone_waits(&self) {
        self.entered.acquire().await.unwrap().forget();
    }
}

struct Echo(Arc<Probe>);

#[async_trait]
impl Handler for Echo {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let run = self.0.runs.fetch_add(1, Ordering::SeqCst) + 1;
        let input: Value = serde_json::from_slice(input.bytes()).unwrap();
        if input["wait"] == true {
            self.0.entered.add_permits(1);
            self.0.gate.acquire().await.unwrap().forget();
        }
        for step in 1..=input["steps"].as_u64().unwrap_or(0) {
            context.report(None, &format!("step {step}"));
            tokio::task::yield_now().await;
        }
        if let Some(code) = input["fail"].as_str() {
            let code = Code::ALL
                .iter()
                .find(|known| known.as_str() == code)
                .unwrap();
            return Err(Error::new(*code, "as asked").with_retry_after(Duration::from_millis(1500)));
        }
        if let Some(text) = input["file"].as_str() {
            context
                .put_artifact("page.html", "text/html", text.to_owned())
                .await?;
        }
        Reply::value(&serde_json::json!({ "run": run, "text": input["text"] }))
    }
}

const SCHEMAS: &str = r##"
[input]
type = "object"
additionalProperties = false
[input.properties]
text = { "$ref" = "#/$defs/text" }
wait = { type = "boolean" }
fail = { type = "string" }
steps = { type = "integer" }
file = { type = "string" }
[input."$defs".text]
type = "string"
[output]
type = "object"
[output.properties]
run = { type = "integer" }
text = {}
"##;

/// A pack called `long` is one that runs as a job unless its caller waits.
fn manifest(name: &str, version: &str, read_only: bool, rest: &str) -> &'static str {
    let long = name.ends_with(".long");
    let text = format!(
        "name = \"{name}\"\nversion = \"{version}\"\ndescription = \"Says <it> again\"\nread_only = {read_only}\n\
         async = {long}\n[handler]\nbuiltin = \"{name}\"\ntimeout = \"10m\"\n{SCHEMAS}\n{rest}"
    );
    Box::leak(text.into_boxed_str())
}

/// Settings of the conversation memory of a fixture.
#[derive(Clone, Default)]
pub(crate) struct ConversationSetup {
    pub(crate) config: helmdeck_conversation::Config,
    pub(crate) summarizer: Option<Arc<dyn Summarizer>>,
}

/// One engine behind one router.
pub(crate) struct Fixture {
    pub(crate) engine: Engine,
    /// Conversation memory; opened by the first route that uses it, if there is a memory key.
    pub(crate) conversations: Conversations,
    pub(crate) probe: Arc<Probe>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) router: Router,
    _folder: tempfile::TempDir,
}

impl Fixture {
    /// Makes a fixture with a memory key.
    pub(crate) async fn with_memory() -> Self {
        Self::build(ServerConfig::default(), true).await
    }

    /// Makes a fixture without a memory key.
    pub(crate) async fn plain() -> Self {
        Self::build(ServerConfig::default(), false).await
    }

    /// Makes a fixture that stores idempotency keys in a system database.
    pub(crate) async fn with_ledger(path: &Path, memory: bool) -> Self {
        Self::assemble(ServerConfig::default(), memory, Some(path), None).await
    }

    pub(crate) async fn build(config: ServerConfig, memory: bool) -> Self {
        Self::assemble(config, memory, None, None).await
    }

    /// Makes a fixture with a memory key and authentication.
    pub(crate) async fn with_auth(config: ServerConfig, auth: Auth) -> Self {
        Self::assemble(config, true, None, Some(auth)).await
    }

    /// Makes a fixture with a memory key and the pack `test.long`.
    pub(crate) async fn with_long(config: ServerConfig) -> Self {
        Self::of_packs(
            config,
            true,
            None,
            None,
            &["test.long"],
            ConversationSetup::default(),
            None,
        )
        .await
    }

    /// Makes a fixture with a memory key, authentication and the pack `test.long`.
    pub(crate) async fn with_long_and_auth(auth: Auth) -> Self {
        Self::of_packs(
            ServerConfig::default(),
            true,
            None,
            Some(auth),
            &["test.long"],
            ConversationSetup::default(),
            None,
        )
        .await
    }

    /// Makes a fixture with a memory key and the pack `test.session`, whose answers belong to a
    /// session.
    pub(crate) async fn with_session_pack(auth: Option<Auth>) -> Self {
        Self::of_packs(
            ServerConfig::default(),
            true,
            None,
            auth,
            &["test.session"],
            ConversationSetup::default(),
            None,
        )
        .await
    }

    /// Makes a fixture without a memory key, with the pack `test.waits` that needs one.
    pub(crate) async fn with_waiting_pack() -> Self {
        Self::of_packs(
            ServerConfig::default(),
            false,
            None,
            None,
            &["test.waits"],
            ConversationSetup::default(),
            None,
        )
        .await
    }

    /// Makes a fixture with a memory key, authentication and these conversation settings.
    pub(crate) async fn with_conversations(
        config: ServerConfig,
        auth: Auth,
        setup: ConversationSetup,
    ) -> Self {
        Self::of_packs(config, true, None, Some(auth), &[], setup, None).await
    }

    /// Makes a fixture without a memory key, with a project.
    pub(crate) async fn with_project(project: ProjectSettings, auth: Option<Auth>) -> Self {
        let fixture = Self::of_packs(
            ServerConfig::default(),
            false,
            None,
            None,
            &[],
            ConversationSetup::default(),
            Some(&project),
        )
        .await;
        let server = Server::new(fixture.engine.clone(), ServerConfig::default()).auth(auth);
        let server = server
            .clock(Arc::clone(&fixture.clock) as _)
            .project(project);
        Self {
            router: server.router(),
            ..fixture
        }
    }

    async fn assemble(
        config: ServerConfig,
        memory: bool,
        ledger: Option<&Path>,
        auth: Option<Auth>,
    ) -> Self {
        Self::of_packs(
            config,
            memory,
            ledger,
            auth,
            &[],
            ConversationSetup::default(),
            None,
        )
        .await
    }

    async fn of_packs(
        config: ServerConfig,
        memory: bool,
        ledger: Option<&Path>,
        auth: Option<Auth>,
        more: &[&'static str],
        setup: ConversationSetup,
        project: Option<&ProjectSettings>,
    ) -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let probe = Arc::new(Probe {
            runs: AtomicU32::new(0),
            entered: Semaphore::new(0),
            gate: Semaphore::new(0),
        });
        let pack = |name, version, read_only, rest| Builtin {
            file: "packs/test.toml",
            schemas: "",
            manifest: manifest(name, version, read_only, rest),
            handler: Arc::new(Echo(Arc::clone(&probe))),
            need: if name == "test.waits" {
                Need::Memory
            } else {
                Need::Nothing
            },
        };
        let mut packs = vec![
            pack(
                "test.cached",
                "v1",
                true,
                "[memory]\ncache = true\nttl = \"5m\"\ntags = [\"test:all\"]\n[[examples]]\ninput = { text = \"it's\" }",
            ),
            pack("test.plain", "v1", true, ""),
            pack("test.plain", "v2", true, ""),
            pack("test.write", "v1", false, ""),
        ];
        packs.extend(more.iter().map(|name| match name.ends_with(".session") {
            true => pack(
                name,
                "v1",
                true,
                "[memory]\ncache = true\nttl = \"5m\"\nscope = \"session\"",
            ),
            false => pack(name, "v1", true, ""),
        }));
        packs.extend(project.into_iter().flat_map(|project| {
            helmdeck_packs::forge::packs(&helmdeck_packs::forge::Config {
                root: project.root.clone(),
                run: false,
                environment: project.environment.clone(),
            })
        }));
        let folder = tempfile::tempdir().unwrap();
        let builder = Engine::builder(helmdeck_testkit::patient()).builtins(packs);
        let mut builder = builder
            .artifacts(folder.path().join("artifacts"))
            .clock(Arc::clone(&clock) as _);
        let ring = || KeyRing::parse(("key", &"5a".repeat(32)), None).unwrap();
        if memory {
            let store = helmdeck_memory::open(
                "memory:",
                ring(),
                helmdeck_memory::Config::default(),
                Arc::clone(&clock) as _,
            );
            builder = builder.memory(Memory {
                store: store.await.unwrap(),
                keyring: Arc::new(ring()),
                system: None,
            });
        }
        let engine = builder.build();
        let conversations = Conversations::default();
        if let Some(memory) = engine.memory() {
            let dependencies = Dependencies {
                store: Arc::clone(memory.store()),
                events: engine.events().clone(),
                clock: Arc::clone(&clock) as _,
                summarizer: setup.summarizer,
            };
            let config = setup.config;
            conversations.provide(move || {
                Ok(ConversationMemory::open(
                    config.clone(),
                    dependencies.clone(),
                )?)
            });
        }
        let mut server = Server::new(engine.clone(), config)
            .auth(auth)
            .clock(Arc::clone(&clock) as _);
        server = server.conversations(conversations.clone());
        if let Some(path) = ledger {
            server = server.remember(System::at(path), memory.then(|| Arc::new(ring())));
        }
        let router = server.router();
        Self {
            engine,
            conversations,
            probe,
            clock,
            router,
            _folder: folder,
        }
    }

    /// Replaces the server: one with what operators act on, and with authentication.
    pub(crate) fn operated(mut self, operator: Operator, auth: Option<Auth>) -> Self {
        let server = Server::new(self.engine.clone(), ServerConfig::default());
        let server = server
            .auth(auth)
            .clock(Arc::clone(&self.clock) as _)
            .conversations(self.conversations.clone());
        self.router = server.operator(operator).router();
        self
    }

    /// Sends a request to the router.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let (parts, body) = self
            .router
            .clone()
            .oneshot(request)
            .await
            .unwrap()
            .into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.send(
            Method::POST,
            path,
            &[("content-type", "application/json")],
            body,
        )
        .await
    }
}

/// Response of the router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the body without the id of its request.
    pub(crate) fn content(&self) -> Value {
        let mut body = self.json();
        body.as_object_mut()
            .map(|members| members.remove("request_id"));
        body
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    /// Checks all members of a problem, and returns its code.
    pub(crate) fn problem(&self) -> String {
        let body = self.json();
        assert_eq!(
            self.header("content-type"),
            "application/problem+json",
            "{self:?}"
        );
        assert_eq!(body["status"], self.status.as_u16(), "{self:?}");
        assert!(
            body["type"].is_string() && body["title"].is_string() && body["detail"].is_string(),
            "{self:?}"
        );
        body["code"].as_str().unwrap().to_owned()
    }
}
