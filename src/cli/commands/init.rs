//! `helmdeck init`: writes the configuration and, on request, a memory key, and shows how to
//! connect MCP clients.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helmdeck_core::{Call, Identity, PackName, SystemClock};
use helmdeck_engine::Engine;
use helmdeck_memory::open::open_clear;
use serde_json::{Value, json};

use super::clients::{self, EntryState};
use crate::args::{Global, InitArgs};
use crate::config::{self, Loaded, Settings};
use crate::env::ProcessEnvironment;
use crate::exit::{Exit, Failure, Result};
use crate::gate;
use crate::key_file::{self, WrittenFiles};
use crate::logging::WARN;
use crate::output::Output;
use crate::render;
use crate::runtime::block_on;
use crate::wire::{MemoryUse, Setup};

/// The pack that shows the cache.
const DEMO: &str = "text.count_tokens";
/// Time limit for each of its calls.
const DEMO_LIMIT: Duration = Duration::from_secs(15);
const QUESTION: &str = "Turn memory on? Answers of packs are then cached, encrypted with a key that is written beside the \
                        configuration. [y/N] ";

/// Sets helmdeck up.
///
/// # Errors
/// A configuration failure for an existing configuration or key with a mistake; a failure if a file
/// cannot be written. Nothing was written then, except what the message says.
pub(crate) fn run(
    arguments: &InitArgs,
    global: &Global,
    env: ProcessEnvironment,
    output: Output,
) -> Result<()> {
    let loaded = config::load(global.config.as_deref(), Vec::new(), &env)?;
    let path = key_file::configuration(&loaded)?.to_owned();
    if !loaded.problems.is_empty() {
        return Err(left_alone(&loaded));
    }
    let lost = remake_lost_key(arguments, &loaded, &env)?;
    let named = loaded
        .file
        .as_ref()
        .filter(|found| found.named)
        .map(|found| found.path.clone());
    // A missing file that was named is a problem, so it is there.
    let setup = Setup::load(global, Vec::new(), env, output, WARN)?;
    block_on(async {
        if let Some(store) = setup.sealed_store().await? {
            store.close().await?;
        }
        Ok(())
    })?;
    let was_on = setup.ring.is_some();
    let key = !was_on && wants_memory(arguments, &output)?;
    if key {
        block_on(refuse_lost_store(&setup.settings))?;
    }
    let launch = clients::launch(&setup.env, named.as_deref());
    let mut written = key_file::write(&loaded, key)?;
    written.key = written.key.or(lost);
    let setup = Setup::load(global, Vec::new(), setup.env, output, WARN)?;
    let mut clients = Vec::new();
    let mut added = false;
    for place in clients::places(&setup.env, arguments.client) {
        let state = if arguments.write {
            place.add(&launch, arguments.force)?
        } else {
            place.state(&launch)
        };
        added |= state == EntryState::Added;
        if place.found || arguments.client.is_some() {
            clients.push((state, place));
        }
    }
    let changed = written.configuration.is_some() || written.key.is_some() || added;
    let demo = if changed && setup.ring.is_some() {
        block_on(demo(&setup))?
    } else {
        None
    };
    let source =
        gate::source(&setup.env, &setup.settings.memory.key_file).map(|source| source.to_string());
    let value = json!({
        "changed": changed,
        "configuration": {"path": path, "created": written.configuration.is_some()},
        "memory": {
            "enabled": setup.ring.is_some(), "created": written.key.is_some(), "source": source,
            "key_id": setup.ring.as_ref().map(|ring| ring.current_id()),
        },
        "clients": clients.iter().map(|(state, place)| json!({
            "name": place.name(), "file": place.file, "state": state.as_str(), "add": place.by_hand(&launch),
        })).collect::<Vec<_>>(),
        "demo": demo.as_ref().map(Demo::value),
    });
    output.either(&value, || {
        let mut text = files(&path, &written, changed);
        text.push_str(&memory(&setup, source.as_deref(), &written));
        for (state, place) in &clients {
            text.push_str(&client(*state, place, &launch));
        }
        if clients.is_empty() {
            text.push_str("\nNo MCP client was found. `helmdeck init --client NAME` prints how to connect one.\n");
        }
        if let Some(demo) = &demo {
            text.push_str(&demo.text());
        }
        text.push_str("\nNext: `helmdeck status` shows what is set up, `helmdeck pack list` what you can run.\n");
        text
    })
}

/// Fails for a configuration that this version cannot read.
fn left_alone(loaded: &Loaded) -> Failure {
    config::failure(&loaded.problems).with_hint(
        "nothing was written. Correct what is named above (an unknown key may belong to another version of helmdeck), then \
         run it again; `helmdeck check` checks everything",
    )
}

/// Makes a new key on request if the configuration names a key file that is missing, and the store
/// holds no entries.
fn remake_lost_key(
    arguments: &InitArgs,
    loaded: &Loaded,
    env: &ProcessEnvironment,
) -> Result<Option<(PathBuf, String)>> {
    let Some(settings) = loaded.settings.as_ref().filter(|_| arguments.memory) else {
        return Ok(None);
    };
    let Some(file) = gate::missing_file(env, &settings.memory.key_file) else {
        return Ok(None);
    };
    block_on(refuse_lost_store(settings))?;
    Ok(Some((
        file.to_owned(),
        key_file::create(file, key_file::configuration(loaded)?)?,
    )))
}

fn wants_memory(arguments: &InitArgs, output: &Output) -> Result<bool> {
    if arguments.memory || arguments.no_memory || output.json {
        return Ok(arguments.memory);
    }
    output.ask(QUESTION)
}

/// Fails if the store holds entries of a key that is not set: a new key could not open them.
///
/// # Errors
/// As said, with exit 78; a failure if the store cannot be read.
pub(super) async fn refuse_lost_store(settings: &Settings) -> Result<()> {
    let clock = Arc::new(SystemClock::default());
    let Some(store) = open_clear(&settings.memory_url()?, &settings.memory.store(), clock).await?
    else {
        return Ok(());
    };
    let stats = store.stats().await;
    store.close().await?;
    let stats = stats?;
    let keys: Vec<&str> = stats
        .rows_by_key_id
        .keys()
        .map(String::as_str)
        .filter(|id| !id.is_empty())
        .collect();
    if keys.is_empty() {
        return Ok(());
    }
    let message = format!(
        "the store holds {} of key {}; a new key could not open them, so none was made",
        helmdeck_core::text::count(stats.rows + stats.expired, "entry"),
        keys.join(", ")
    );
    Err(Failure::config(message).with_hint(format!(
        "set {} to that key, or name its file as key_file below [memory]; if it is lost, `helmdeck memory reset` empties \
         the store for a new one",
        gate::KEY
    )))
}

fn files(path: &std::path::Path, written: &WrittenFiles, changed: bool) -> String {
    match (&written.configuration, changed) {
        (Some(_), _) => format!("wrote the configuration {}\n", path.display()),
        (None, true) => format!("kept the configuration {}\n", path.display()),
        (None, false) => format!(
            "helmdeck is set up already ({}); nothing was changed\n",
            path.display()
        ),
    }
}

fn memory(setup: &Setup, source: Option<&str>, written: &WrittenFiles) -> String {
    if let Some((file, id)) = &written.key {
        return format!(
            "wrote the memory key {}\nmemory is on, key {id}. Keep a copy of the key apart from the store: without it, the \
             store cannot be read.\n",
            file.display()
        );
    }
    let (Some(ring), Some(source)) = (&setup.ring, source) else {
        return "memory is off: nothing is cached or stored. `helmdeck init --memory` turns it on.\n".to_owned();
    };
    let mut text = format!("memory is on, key {} from {source}\n", ring.current_id());
    if source == gate::KEY || source == gate::KEY_FILE {
        text.push_str(&format!(
            "{source} is set in this shell only and wins over a key file; an MCP client needs it in its own environment\n"
        ));
    }
    text
}

fn client(
    state: EntryState,
    place: &clients::ClientFile,
    launch: &super::client_file::Launch,
) -> String {
    let (title, file) = (place.title(), place.file.display());
    match state {
        EntryState::Added => format!("\n{title}: added helmdeck to {file}. Restart the client.\n"),
        EntryState::Present => format!("\n{title}: {file} has helmdeck\n"),
        EntryState::Differs => {
            format!(
                "\n{title}: {file} has another entry \"helmdeck\"\n  helmdeck init --client {} --write --force\n",
                place.name()
            )
        }
        EntryState::Absent => format!(
            "\n{title} ({file}):\n  {}\n  or: helmdeck init --client {} --write\n",
            place.by_hand(launch),
            place.name()
        ),
    }
}

/// Outcome of calling one pack twice.
struct Demo {
    runs: Vec<(&'static str, Duration)>,
    error: Option<String>,
}

impl Demo {
    fn value(&self) -> Value {
        let runs: Vec<Value> = self
            .runs
            .iter()
            .map(|(status, took)| json!({"cache": status, "ms": took.as_secs_f64() * 1000.0}))
            .collect();
        json!({"pack": DEMO, "runs": runs, "error": self.error})
    }

    fn text(&self) -> String {
        let mut text = format!("\n{DEMO} of the default configuration, twice:\n");
        for (status, took) in &self.runs {
            let millis = took.as_secs_f64() * 1000.0;
            let shown = if millis < 10.0 {
                format!("{millis:.1} ms")
            } else {
                render::took(*took)
            };
            text.push_str(&format!("  {status:<12}{shown}\n"));
        }
        if self.runs.last().is_some_and(|(status, _)| *status == "hit") {
            text.push_str("hit: the stored answer was sent, and the pack did not run\n");
        }
        if let Some(error) = &self.error {
            text.push_str(&format!("  not shown: {error}\n"));
        }
        text
    }
}

/// Calls the same pack twice; `None` in a build without it.
async fn demo(setup: &Setup) -> Result<Option<Demo>> {
    let engine = setup.engine(MemoryUse::IfReachable, false).await?;
    let ended = call_twice(&engine).await;
    setup.shut_down(&engine).await;
    ended
}

async fn call_twice(engine: &Engine) -> Result<Option<Demo>> {
    if engine.pack(DEMO, None).is_err() {
        return Ok(None);
    }
    let mut demo = Demo {
        runs: Vec::new(),
        error: None,
    };
    let input = json!({"text": config::DEFAULTS}).to_string().into_bytes();
    for _ in 0..2 {
        let name = PackName::new(DEMO).map_err(|error| Failure::new(Exit::Failed, error))?;
        let mut call = Call::new(name, input.clone(), Arc::new(Identity::local()));
        let start = Instant::now();
        call.deadline = start.checked_add(DEMO_LIMIT);
        match engine.call(call).await {
            Ok(outcome) => {
                let status = outcome
                    .cache
                    .as_ref()
                    .map_or("not cached", |cache| cache.status.as_str());
                demo.runs.push((status, start.elapsed()));
            }
            Err(error) => {
                demo.error = Some(error.message().to_owned());
                break;
            }
        }
    }
    Ok(Some(demo))
}
