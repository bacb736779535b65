//! Test fixture: an engine with one pack, and a manual clock.

use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{Builtin, CacheStatus, Call, Clock, Json, Outcome, Reply};
use helmdeck_engine::{Config, Engine};
use helmdeck_testkit::{Counted, ManualClock, function, manifest, memory, patient};

pub(crate) struct EngineFixture {
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<ManualClock>,
}

impl EngineFixture {
    /// An engine with gate 1 open, over a sealed store in memory.
    pub(crate) async fn open(builtins: Vec<Builtin>) -> Self {
        Self::with(builtins, patient()).await
    }

    pub(crate) async fn with(builtins: Vec<Builtin>, config: Config) -> Self {
        let clock = Arc::new(ManualClock::default());
        let memory = memory(Arc::clone(&clock) as Arc<dyn Clock>).await;
        let engine = Engine::builder(config)
            .builtins(builtins)
            .memory(memory)
            .clock(Arc::clone(&clock) as _)
            .build();
        assert!(engine.refused().is_empty(), "{:?}", engine.refused());
        Self { engine, clock }
    }

    /// An engine with gate 1 shut.
    pub(crate) fn shut(builtins: Vec<Builtin>) -> Self {
        let clock = Arc::new(ManualClock::default());
        let engine = Engine::builder(patient())
            .builtins(builtins)
            .clock(Arc::clone(&clock) as _)
            .build();
        assert!(engine.refused().is_empty(), "{:?}", engine.refused());
        Self { engine, clock }
    }

    pub(crate) async fn run(&self, pack: &str, input: &str) -> Outcome {
        self.call(helmdeck_testkit::call(pack, input))
            .await
            .unwrap()
    }

    pub(crate) async fn call(&self, call: Call) -> helmdeck_core::Result<Outcome> {
        self.engine.call(call).await
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// Waits until the queued writes are in the store.
    pub(crate) async fn settle(&self) {
        self.engine.memory().unwrap().flush().await;
    }
}

pub(crate) fn status(outcome: &Outcome) -> CacheStatus {
    outcome.cache.expect("both gates are open").status
}

/// A cached pack `t.echo` (ttl 60 s) that answers `{"n": <how often it ran>, "input": <input>}`;
/// `memory` is added to `[memory]`.
pub(crate) fn echo(memory: &str) -> (Builtin, Counted) {
    let runs = std::sync::atomic::AtomicUsize::new(0);
    let text = manifest(
        "t.echo",
        "read_only = true",
        &format!("[memory]\ncache = true\nttl = \"60s\"\n{memory}"),
    );
    function(&with_input(&text), move |_, input: Json| {
        let n = runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
        async move {
            Ok(Reply::json(
                Json::parse(format!("{{\"n\":{n},\"input\":{}}}", input.as_str())).unwrap(),
            ))
        }
    })
}

/// Adds an input schema with defaults to a manifest, before its `[memory]`.
pub(crate) fn with_input(text: &str) -> String {
    let schema = "[input]\ntype = \"object\"\n[input.properties]\nrepo = { type = \"string\" }\nn = { type = \"number\" }\nstate = { type = \"string\", default = \"open\" }\ncredential = { type = \"string\" }\n";
    match text.find("[memory]") {
        Some(at) => format!("{}{schema}{}", &text[..at], &text[at..]),
        None => format!("{text}{schema}"),
    }
}
