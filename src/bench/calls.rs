//! In-process calls: shut gates against a direct call, hits from the hot tier and from sealed
//! SQLite.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use helmdeck_core::{
    Builtin, CacheStatus, Call, Clock, Context, Handler, Identity, Json, Manifest, ManualClock,
    Need, PackName, Reply, Result, SystemClock, json,
};
use helmdeck_engine::{CacheConfig, Config, Engine, Memory};
use helmdeck_memory::KeyRing;
use tokio::runtime::Runtime;

use crate::measure::{ROUNDS, Table, median, per_operation, process_cpu, thread_cpu};

pub(crate) const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
pub(crate) const INPUT: &str =
    r#"{"repo":"octocat/hello-world","state":"open","labels":["bug","p1"],"per_page":50}"#;
const INPUT_SCHEMA: &str = r#"
[input]
type = "object"
additionalProperties = false
required = ["repo"]
[input.properties]
repo = { type = "string", pattern = "^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$" }
state = { type = "string", enum = ["open", "closed", "all"] }
labels = { type = "array", items = { type = "string" } }
per_page = { type = "integer", minimum = 1, maximum = 100 }
"#;
pub(crate) const FULL_OUTPUT: &str = r#"
[output]
type = "object"
required = ["issues"]
[output.properties.issues]
type = "array"
items = { type = "object", required = ["number", "title"], properties = { number = { type = "integer" }, title = { type = "string" }, body = { type = ["string", "null"] } } }
"#;
pub(crate) const CACHE: &str = "[memory]\ncache = true\nttl = \"1h\"\ntags = [\"github:{repo}\"]\n";

/// Answers with 4 KiB of issues, written once.
#[derive(Clone)]
struct Issues(Json);

impl Issues {
    fn new() -> Self {
        let issue = |n: usize| serde_json::json!({"number": n, "title": format!("Issue number {n}"), "body": "x".repeat(150)});
        let mut output =
            serde_json::json!({"issues": (0..19).map(issue).collect::<Vec<_>>(), "pad": ""});
        let short = 4096 - output.to_string().len();
        output["pad"] = "x".repeat(short).into();
        Self(Json::from(output))
    }
}

#[async_trait]
impl Handler for Issues {
    async fn run(&self, _: Context, _: Json) -> Result<Reply> {
        Ok(Reply::json(self.0.clone()))
    }
}

fn manifest(output: &str, memory: &str) -> String {
    let top = "name = \"bench.issues\"\nversion = \"v1\"\ndescription = \"x\"\nread_only = true\n[handler]\nbuiltin = \"x\"\n";
    format!("{top}{INPUT_SCHEMA}{output}{memory}")
}

/// A pack that answers 4 KiB.
pub(crate) fn pack(output: &str, memory: &str) -> Builtin {
    let manifest: &'static str = Box::leak(manifest(output, memory).into_boxed_str());
    Builtin {
        file: "bench.toml",
        schemas: "",
        manifest,
        handler: Arc::new(Issues::new()),
        need: Need::Nothing,
    }
}

pub(crate) fn cached_pack() -> Builtin {
    pack("[output]\ntype = \"object\"\n", CACHE)
}

pub(crate) fn call(identity: &Arc<Identity>) -> Call {
    let name = PackName::new("bench.issues").unwrap();
    Call::new(
        name,
        bytes::Bytes::from_static(INPUT.as_bytes()),
        Arc::clone(identity),
    )
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// An engine over sealed SQLite.
pub(crate) async fn sealed_engine(
    folder: &std::path::Path,
    hot_bytes: u64,
    packs: Vec<Builtin>,
) -> Engine {
    let keyring = KeyRing::parse(("KEY", KEY), None).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let url = format!("sqlite:{}", folder.join("memory.db").display());
    let store = helmdeck_memory::open(
        &url,
        keyring.clone(),
        helmdeck_memory::Config::default(),
        clock,
    )
    .await
    .unwrap();
    let config = Config {
        cache: CacheConfig {
            hot_bytes,
            ..CacheConfig::default()
        },
        ..Config::default()
    };
    Engine::builder(config)
        .builtins(packs)
        .memory(Memory {
            store,
            keyring: Arc::new(keyring),
            system: None,
        })
        .build()
}

/// Calls with shut gates, alone and against a direct call.
pub(crate) fn shut(table: &mut Table) {
    let identity = Arc::new(Identity::local());
    let runtime = runtime();
    for (what, output, target) in [
        (
            "output schema {type: object}",
            "[output]\ntype = \"object\"\n",
            true,
        ),
        ("4 KiB output schema check", FULL_OUTPUT, false),
    ] {
        let manifest =
            Manifest::parse("bench.toml", &manifest(output, ""), &|_| Err(String::new())).unwrap();
        let handler: Arc<dyn Handler> = Arc::new(Issues::new());
        let engine = runtime.block_on(async {
            Engine::builder(Config::default())
                .builtins(vec![pack(output, CACHE)])
                .build()
        });
        let _guard = runtime.enter();
        let [direct, piped] = per_operation(
            2000,
            [
                &mut || {
                    std::hint::black_box(runtime_free(direct_call(
                        &manifest,
                        &handler,
                        call(&identity),
                    )))
                    .unwrap();
                },
                &mut || {
                    std::hint::black_box(runtime_free(engine.call(call(&identity)))).unwrap();
                },
            ],
        );
        let more = piped - direct;
        table.add(
            &format!("direct call, {what}"),
            format!("{direct:.2} us CPU"),
            "",
            true,
        );
        let goal = if target { "<= 2 us" } else { "" };
        table.add(
            &format!("gates shut, {what}"),
            format!("{piped:.2} us CPU"),
            goal,
            piped <= 2.0,
        );
        table.add(
            "  over the direct call",
            format!("+{more:.2} us ({:.2}x)", piped / direct),
            "<= +1 us",
            more <= 1.0,
        );
    }
}

/// Polls a future that never waits, on this thread, without the cost of a runtime.
pub(crate) fn runtime_free<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("the benchmark's handler waits for nothing"),
    }
}

/// A direct call: the same validation and handler without the engine.
async fn direct_call(manifest: &Manifest, handler: &Arc<dyn Handler>, call: Call) -> Result<Json> {
    let value = json::read_strict(&call.input).unwrap();
    let text = std::str::from_utf8(&call.input).unwrap();
    let filled = manifest.input.fill(text).unwrap();
    manifest.input.validate(&value).unwrap();
    let input = match filled {
        std::borrow::Cow::Borrowed(_) => Json::from_trusted(call.input.clone()),
        std::borrow::Cow::Owned(text) => Json::from_trusted(text.into()),
    };
    let run = helmdeck_core::RunId::next(SystemClock::default().now());
    let context = Context::new(manifest.name.clone(), manifest.version, call.identity, run);
    let output = handler.run(context, input).await?.output.unwrap();
    if !manifest.output.accepts_unread(output.bytes()) {
        manifest
            .output
            .validate(&serde_json::from_slice(output.bytes()).unwrap())
            .unwrap();
    }
    Ok(output)
}

/// A hit from the hot tier: the same bytes again, with the audit row queued.
pub(crate) fn hot(table: &mut Table) {
    const CALLS: usize = 1000;
    let (folder, identity, runtime) = (
        tempfile::tempdir().unwrap(),
        Arc::new(Identity::local()),
        runtime(),
    );
    let engine = runtime.block_on(sealed_engine(folder.path(), 64 << 20, vec![cached_pack()]));
    let _guard = runtime.enter();
    runtime.block_on(engine.call(call(&identity))).unwrap();
    let (mut caller, mut writer) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let rows = audit_rows(&engine);
        let (process, thread) = (process_cpu(), thread_cpu());
        for _ in 0..CALLS {
            let outcome = std::hint::black_box(runtime_free(engine.call(call(&identity)))).unwrap();
            assert_eq!(outcome.cache.unwrap().status, CacheStatus::Hit);
        }
        let spent = thread_cpu() - thread;
        while audit_rows(&engine) < rows + CALLS as u64 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (process, thread) = (process_cpu() - process, thread_cpu() - thread);
        if round > 0 {
            caller.push(spent.as_secs_f64() * 1e6 / CALLS as f64);
            writer.push(process.saturating_sub(thread).as_secs_f64() * 1e6 / CALLS as f64);
        }
    }
    let (caller, writer) = (median(caller.into_iter()), median(writer.into_iter()));
    table.add(
        "hit, hot tier, 4 KiB, audit queued",
        format!("{caller:.2} us CPU (caller)"),
        "<= 3 us",
        caller <= 3.0,
    );
    table.add(
        "  audit writer, per row, sealed SQLite",
        format!("{writer:.2} us CPU"),
        "",
        true,
    );
    table.add(
        "  of the Go original's hit as shipped (33.7 us)",
        format!("1/{:.0}", 33.7 / caller),
        "",
        true,
    );
    runtime.block_on(engine.shutdown());
}

fn audit_rows(engine: &Engine) -> u64 {
    let metrics = engine.metrics();
    let count = |name: &str| {
        metrics
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map_or(0, |n| n.trim().parse().unwrap_or(0))
    };
    assert_eq!(
        count("helmdeck_audit_rows_dropped_total"),
        0,
        "no row may be lost in this figure"
    );
    count("helmdeck_audit_rows_total")
}

/// A hit from sealed SQLite, the hot tier turned off.
pub(crate) fn cold(table: &mut Table) {
    const CALLS: usize = 300;
    let (folder, identity, runtime) = (
        tempfile::tempdir().unwrap(),
        Arc::new(Identity::local()),
        runtime(),
    );
    let engine = runtime.block_on(sealed_engine(
        folder.path(),
        0,
        vec![without_audit(cached_pack())],
    ));
    runtime.block_on(async {
        engine.call(call(&identity)).await.unwrap();
        engine.memory().unwrap().flush().await;
    });
    let (mut cpu, mut wall) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (before, started) = (process_cpu(), Instant::now());
        runtime.block_on(async {
            for _ in 0..CALLS {
                let outcome = engine.call(call(&identity)).await.unwrap();
                assert_eq!(outcome.cache.unwrap().status, CacheStatus::Hit);
            }
        });
        if round > 0 {
            cpu.push((process_cpu() - before).as_secs_f64() * 1e6 / CALLS as f64);
            wall.push(started.elapsed().as_secs_f64() * 1e6 / CALLS as f64);
        }
    }
    let (cpu, wall) = (median(cpu.into_iter()), median(wall.into_iter()));
    table.add(
        "hit, sealed SQLite, hot tier cold, 4 KiB",
        format!("{cpu:.1} us CPU (all threads)"),
        "<= 40 us",
        cpu <= 40.0,
    );
    table.add(
        "  by the clock on the wall",
        format!("{wall:.1} us"),
        "",
        true,
    );
    table.add(
        "  of the Go original's, without audit (90 us)",
        format!("1/{:.1}", 90.0 / cpu),
        "",
        true,
    );
    runtime.block_on(engine.shutdown());
}

pub(crate) fn without_audit(mut pack: Builtin) -> Builtin {
    pack.manifest = Box::leak(
        pack.manifest
            .replace("read_only = true", "read_only = true\nno_audit = true")
            .into_boxed_str(),
    );
    pack
}

/// Calls with gate 1 shut, for an instruction counter.
///
/// `opted-in`: the manifest enables the cache; `plain`: it does not.
pub(crate) fn callgrind(stack: &str) {
    // A comment of the same length, so that both find the same memory.
    let comment = format!("#{}\n", "x".repeat(CACHE.len() - 2));
    let memory = match stack {
        "opted-in" => CACHE,
        "plain" => &comment,
        _ => panic!("callgrind opted-in | plain"),
    };
    let identity = Arc::new(Identity::local());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _guard = runtime.enter();
    let packs = vec![pack("[output]\ntype = \"object\"\n", memory)];
    let engine = Engine::builder(Config::default())
        .builtins(packs)
        .clock(Arc::new(ManualClock::default()))
        .build();
    // The first call sets things up that are hashed under a random seed.
    runtime_free(engine.call(call(&identity))).unwrap();
    measured(&engine, &identity);
}

/// The only function whose instructions are counted (`--toggle-collect`).
#[inline(never)]
fn measured(engine: &Engine, identity: &Arc<Identity>) {
    for _ in 0..1000 {
        runtime_free(engine.call(call(identity))).unwrap();
    }
}
