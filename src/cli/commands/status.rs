//! `helmdeck status`: one screen about this installation. It works without a running server and
//! creates nothing.

use helmdeck_core::text::count;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::SystemClock;
use helmdeck_engine::{JobBook, JobQuery};
use helmdeck_seam::Seam;
use serde_json::{Map, Value, json};

use super::health;
use crate::args::Global;
use crate::config;
use crate::env::ProcessEnvironment;
use crate::exit::Result;
use crate::gate;
use crate::output::{Output, size};
use crate::running;
use crate::wire::{MemoryUse, Setup};
use helmdeck_core::text::columns;

/// Time limit for the server's answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// Rows of the screen, and the same as JSON.
#[derive(Default)]
struct Screen {
    rows: Vec<Vec<String>>,
    value: Map<String, Value>,
}

impl Screen {
    fn add(&mut self, name: &str, text: impl Into<String>, value: Value) {
        self.rows.push(vec![name.to_owned(), text.into()]);
        self.value.insert(name.replace(' ', "_"), value);
    }
}

/// Prints gates, store, packs, servers, jobs, project and places.
///
/// # Errors
/// A configuration failure if configuration or key are malformed.
pub(crate) async fn run(global: &Global, env: ProcessEnvironment, output: Output) -> Result<()> {
    let loaded = config::load(global.config.as_deref(), Vec::new(), &env)?;
    let (file, exists) = (loaded.file.map(|found| found.path), loaded.file_exists);
    let setup = Setup::load(global, Vec::new(), env, output, "off")?;
    let mut screen = Screen::default();
    memory(&mut screen, &setup);
    store(&mut screen, &setup).await;
    packs(&mut screen, &setup).await;
    let listen = running::address(&setup.settings);
    let is_running = tokio::task::spawn_blocking(move || answers(listen))
        .await
        .unwrap_or(false);
    let state = if is_running { "running" } else { "not running" };
    screen.add(
        "server",
        format!("{state} on http://{listen}"),
        json!({"running": is_running, "listen": listen.to_string()}),
    );
    jobs(&mut screen, &setup).await;
    let seam = Seam::on_disk(crate::seam::config(&setup.settings.seam, &setup.env));
    let seen = seam.doctor(&helmdeck_seam::Context::default());
    let project = seen.project.clone().map_or_else(
        || "none here".to_owned(),
        |name| helmdeck_seam::one_line(&name),
    );
    screen.add(
        "project",
        project,
        json!({"name": seen.project, "vault": seen.vault}),
    );
    let shown = file.as_ref().map_or_else(
        || "none: there is no configuration folder".to_owned(),
        |path| {
            format!(
                "{}{}",
                path.display(),
                if exists {
                    ""
                } else {
                    " (not there: `helmdeck init` writes it)"
                }
            )
        },
    );
    screen.add("config", shown, json!({"path": file, "exists": exists}));
    let path = |path: Option<&std::path::PathBuf>| {
        path.map_or_else(|| "none".to_owned(), |path| path.display().to_string())
    };
    let data = setup.settings.data_dir().ok();
    screen.add("data", path(data), json!(data));
    let own = setup.settings.packs_dir.as_ref();
    screen.add("own packs", path(own), json!(own));
    let value = Value::Object(screen.value);
    output.either(&value, || columns(&screen.rows))
}

fn memory(screen: &mut Screen, setup: &Setup) {
    let source =
        gate::source(&setup.env, &setup.settings.memory.key_file).map(|source| source.to_string());
    let text = match (&setup.ring, &source) {
        (Some(ring), Some(source)) => format!("on, key {} from {source}", ring.current_id()),
        _ => "off: no memory key is set (`helmdeck init --memory` makes one)".to_owned(),
    };
    let key_id = setup
        .ring
        .as_ref()
        .map(|ring| ring.current_id().to_string());
    screen.add(
        "memory",
        text,
        json!({"enabled": setup.ring.is_some(), "key_id": key_id, "source": source}),
    );
    let vault = setup
        .vault_ring
        .as_ref()
        .map(|ring| ring.current_id().to_string());
    let text = vault.as_ref().map_or_else(
        || "off: no vault key is set".to_owned(),
        |id| format!("on, key {id}"),
    );
    screen.add(
        "vault",
        text,
        json!({"enabled": vault.is_some(), "key_id": vault}),
    );
}

async fn store(screen: &mut Screen, setup: &Setup) {
    let shown = match setup.shown_url() {
        Ok(shown) => shown,
        Err(failure) => {
            return screen.add(
                "store",
                format!("none: {}", failure.message()),
                json!({"error": failure.message()}),
            );
        }
    };
    // A store elsewhere is used only with a key, so without one it is not connected to.
    if setup.ring.is_none() && !setup.settings.memory.url.is_empty() {
        return screen.add(
            "store",
            format!("{shown}: not looked at without a key"),
            json!({"url": shown}),
        );
    }
    let opened = match &setup.ring {
        Some(_) => setup.sealed_store().await,
        None => setup.clear_store().await,
    };
    let stats = match opened {
        Ok(None) => {
            return screen.add(
                "store",
                format!("{shown}: not there yet"),
                json!({"url": shown, "exists": false}),
            );
        }
        Ok(Some(store)) => {
            let stats = store.stats().await;
            // It was only read.
            let _ = store.close().await;
            stats.map_err(crate::exit::Failure::from)
        }
        Err(failure) => Err(failure),
    };
    match stats {
        Ok(stats) => {
            let text = format!(
                "{shown}: {}, {}",
                count(stats.rows, "entry"),
                size(stats.disk_bytes)
            );
            screen.add(
                "store",
                text,
                json!({"url": shown, "exists": true, "rows": stats.rows, "disk_bytes": stats.disk_bytes}),
            );
        }
        Err(failure) => {
            screen.add(
                "store",
                format!("{shown}: {}", failure.message()),
                json!({"url": shown, "error": failure.message()}),
            );
        }
    }
}

async fn packs(screen: &mut Screen, setup: &Setup) {
    let names: Vec<&str> = setup
        .settings
        .mcp_servers
        .iter()
        .map(|server| server.name.as_str())
        .collect();
    match setup.engine(MemoryUse::Nothing, false).await {
        Ok(engine) => {
            let (packs, refused) = (engine.packs(), engine.refused());
            let cacheable = packs.iter().filter(|pack| pack.cache.is_some()).count();
            let cached = if setup.ring.is_some() {
                "cached"
            } else {
                "would be cached with memory on"
            };
            let text = format!(
                "{} served, {cacheable} of them {cached}, {} refused",
                packs.len(),
                refused.len()
            );
            let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
            screen.add(
                "packs",
                text,
                json!({"served": packs.len(), "cacheable": cacheable, "refused": refused}),
            );
            screen.rows.extend(
                refused
                    .into_iter()
                    .map(|reason| vec![String::new(), format!("refused: {reason}")]),
            );
            engine.shutdown().await;
        }
        Err(failure) => screen.add(
            "packs",
            failure.message(),
            json!({"error": failure.message()}),
        ),
    }
    let text = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    screen.add("mcp servers", text, json!(names));
}

async fn jobs(screen: &mut Screen, setup: &Setup) {
    let Ok(system) = setup.system() else {
        return screen.add("jobs", "none", json!({"running": 0, "queued": 0}));
    };
    let location = system.location();
    screen.add("system", &location, json!({"location": location}));
    let ring = setup.ring.clone().map(Arc::new);
    let book = JobBook::new(
        system,
        ring,
        Arc::new(SystemClock::default()),
        setup.settings.engine.jobs.retention,
    );
    match book
        .jobs(
            None,
            &JobQuery {
                state: None,
                after: None,
                limit: 500,
            },
        )
        .await
    {
        Ok(page) => {
            let open = page.jobs.iter().filter(|job| !job.state.is_final()).count();
            let known = count(page.jobs.len(), "job");
            let more = if page.next.is_some() { " or more" } else { "" };
            screen.add(
                "jobs",
                format!("{open} open, {known}{more} in all"),
                json!({"open": open, "known": page.jobs.len()}),
            );
        }
        Err(error) => screen.add(
            "jobs",
            error.to_string(),
            json!({"error": error.to_string()}),
        ),
    }
}

/// Returns whether a helmdeck server answers on the address.
fn answers(listen: SocketAddr) -> bool {
    let answer = health::ask(listen, &listen.to_string(), ANSWER_WITHIN);
    answer.is_ok_and(|(_, body)| {
        serde_json::from_str(&body).is_ok_and(|body: Value| body["status"].is_string())
    })
}
