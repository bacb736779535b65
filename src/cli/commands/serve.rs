//! `helmdeck serve`: serves packs over REST and MCP until a signal, then drains running requests.

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{Clock, SystemClock};
use helmdeck_engine::Engine;
use helmdeck_forge::events::{CAP, Events};
use helmdeck_forge::{Project, ProjectEnvironment};
use helmdeck_memory::{JanitorConfig, KeyRing};
use helmdeck_server::{Auth, Operator, Replicas, Server};
use helmdeck_server_config::SessionMode;
use helmdeck_system::System;
use helmdeck_vault::Book;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use toml::Value;

use super::reload::Reloader;
use crate::args::{Global, ServeArgs};
use crate::config::{self, FlagSetting, LogFormat, Settings};
use crate::env::ProcessEnvironment;
use crate::exit::{Exit, Failure, Result};
use crate::gate;
use crate::notify::Notifier;
use crate::output::Output;
use crate::replicas;
use crate::running::Running;
use crate::runtime::block_on_threads;
use crate::schedules;
use crate::signals::{self, Stop};
use crate::telemetry::Export;
use crate::wire::Setup;

/// Default log level.
const LEVEL: &str = "info";
/// Limit of threads unless the operator sets one.
const THREADS: usize = 4;
/// Interval at which events that wait for their event server are looked for.
const SEND_EVERY: Duration = Duration::from_secs(5);
/// How long the goodbye to the other servers may take.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// How often the system database is swept.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// Interval at which the servers are counted.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// Serves until SIGINT or SIGTERM; SIGHUP reloads.
///
/// # Errors
/// A configuration failure for an address that is not served; exit 1 if it is taken; exit 130 after
/// Ctrl-C.
pub(crate) fn run(
    arguments: &ServeArgs,
    global: &Global,
    env: ProcessEnvironment,
    output: Output,
) -> Result<()> {
    let listen = arguments.listen.iter().map(|address| -> FlagSetting {
        (
            &["server", "listen"],
            Value::String(address.clone()),
            "--listen",
        )
    });
    let listen: Vec<FlagSetting> = listen.collect();
    let mut setup = Setup::load(global, listen.clone(), env, output, LEVEL)?;
    let reloader = Reloader::new(global, listen, Arc::clone(&setup.layers), LEVEL);
    setup.serves = true;
    let threads = match setup.settings.runtime.threads {
        0 => std::thread::available_parallelism()
            .map_or(1, NonZero::get)
            .min(THREADS),
        threads => threads,
    };
    raise_open_files();
    block_on_threads(threads, serve(setup, reloader, global))
}

/// Raises the limit of open files to the highest that is allowed: systemd gives a service 1024, and
/// every connection is one.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    ) {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
}

async fn serve(setup: Setup, mut reloader: Reloader, global: &Global) -> Result<()> {
    let listen = setup.settings.server.listen;
    let auth = setup.auth()?;
    let authenticated = auth.is_some();
    if let Some(auth) = &auth {
        keys(&setup, auth).await?;
    }
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot listen on {listen}: {error}"))
            .with_hint("choose another address with --listen, for example --listen 127.0.0.1:0 for any free port")
    })?;
    let address = listener.local_addr()?;
    let engine = setup.serving_engine().await?;
    let _running = Running::at(&setup.settings, address);
    engine.import_in_background();
    start_sweeping(&setup, &engine);
    engine.serve_jobs(schedules::caller(&setup.settings, authenticated)?);
    engine.start_statistics();
    let export = Export::start(&setup, &engine, &setup.conversations)?;

    let (stop, project) = (CancellationToken::new(), setup.project()?);
    let replicas = Replicas::default();
    replicas.set(setup.settings.server.replicas);
    let mut server = Server::new(engine.clone(), setup.settings.server.clone())
        .mcp(setup.settings.mcp.clone())
        .replicas(replicas.clone())
        .tracer(export.tracer())
        .conversations(setup.conversations.clone())
        .project(project.clone());
    if let Some(root) = project.root.clone() {
        let sending = send_waiting(root, project.environment);
        tokio::spawn(stop.clone().run_until_cancelled_owned(sending));
    }
    if let Some(keys) = session_keys(&setup.settings, setup.ring.as_ref())? {
        server = server.seal_sessions(keys, setup.system()?);
    }
    if let (Ok(system), true) = (setup.system(), setup.settings.auth.api_tokens) {
        tokio::spawn(tell_of_unsealed_tokens(system));
    }
    if let Ok(system) = setup.system() {
        tokio::spawn(
            stop.clone()
                .run_until_cancelled_owned(sweep_system(system.clone())),
        );
        if setup.settings.server.replicas == 0 {
            tokio::spawn(
                stop.clone()
                    .run_until_cancelled_owned(count(system.clone(), replicas)),
            );
        }
        let ending = system.clone();
        tokio::spawn(async move {
            if let Err(error) = ending.resume_ends().await {
                tracing::warn!(%error, "the journal of ended calls cannot be read");
            }
        });
        let joining = system.clone();
        tokio::spawn(async move { joining.stay_joined().await });
        server = server.remember(system, setup.ring.clone().map(Arc::new));
    }
    server = server
        .webhook(crate::webhook::receiver(&setup)?)
        .operator(operator(&setup));
    let reload = server.reload();
    let server = server.auth(auth).serve(listener, stop.clone());
    let (mut signals, mut hangups) = (Stop::catch()?, signal(SignalKind::hangup())?);
    let terminal = io::stderr().is_terminal();
    if let (Some(line), true) = (replicas::not_shared(&setup.settings), setup.ring.is_some()) {
        tracing::warn!("{line}");
    }
    if let Some(line) = replicas::store_without_key(&setup.settings, setup.ring.is_some()) {
        tracing::warn!("{line}");
    }
    if !address.ip().is_loopback() && setup.settings.server.allowed_hosts.is_empty() {
        tracing::warn!(
            "server.allowed_hosts is empty, so requests must address localhost or a loopback address; name this server in it"
        );
    }
    if terminal && setup.settings.log.format != LogFormat::Json && !setup.output.json {
        setup
            .output
            .note(&banner(&setup, &engine, address, authenticated, global));
    } else {
        announce(&setup.output, &format!("listening on http://{address}"));
    }
    let notifier = Notifier::new(&setup.env);
    notifier.ready(&format!("listening on http://{address}"));
    let mut server = std::pin::pin!(server);
    let ended = loop {
        tokio::select! {
            answer = &mut server => break Some(answer),
            () = signals.wait() => break None,
            _ = hangups.recv() => {
                // The terminal that started the server is closed, so this hangup is not a request
                // to reload.
                if terminal && !io::stderr().is_terminal() {
                    break None;
                }
                tracing::info!("SIGHUP: reloading configuration and packs");
                notifier.reloading();
                reloader.run(&setup.env, &reload, &engine).await;
                notifier.ready(&format!("listening on http://{address}"));
            }
        }
    };
    let answer = match ended {
        Some(answer) => answer.map_err(Failure::internal),
        None => {
            stop.cancel();
            notifier.stopping();
            tracing::info!("stopping: finishing what is under way");
            // A second signal ends the wait, not the write-behind.
            tokio::select! {
                answer = server => answer.map_err(Failure::internal),
                () = signals.wait() => Ok(()),
            }
        }
    };
    let pending = setup.shut_down(&engine).await;
    if let Ok(system) = setup.system()
        && !matches!(
            tokio::time::timeout(LEAVE_WITHIN, system.leave()).await,
            Ok(Ok(()))
        )
    {
        tracing::debug!("this server could not leave the others; they count it for a while longer");
    }
    export.finish().await;
    answer?;
    if pending > 0 {
        signals::clear_received();
        let purges = if pending == 1 {
            "1 purge is".to_owned()
        } else {
            format!("{pending} purges are")
        };
        return Err(Failure::new(
            Exit::Failed,
            format!("{purges} left for the next start: the store did not carry them out"),
        )
        .with_hint("start a server with this data folder as soon as the store is back"));
    }
    signals::end_of_server()
}

/// Counts the servers that share a system database, again and again. While it does not answer, the
/// last count holds.
async fn count(system: System, replicas: Replicas) {
    loop {
        match system.live_replicas().await {
            Ok(live) => replicas.set(usize::try_from(live).unwrap_or(usize::MAX)),
            Err(error) => tracing::debug!(%error, "the servers cannot be counted"),
        }
        tokio::time::sleep(COUNT_EVERY).await;
    }
}

/// Returns the keys that seal MCP sessions into their ids; `None` if a session belongs to the
/// server that began it.
///
/// # Errors
/// A configuration failure if stateless sessions are wanted and there is no memory key.
fn session_keys(settings: &Settings, ring: Option<&KeyRing>) -> Result<Option<Arc<KeyRing>>> {
    let ring = ring.cloned().map(Arc::new);
    match (settings.mcp.sessions, ring) {
        (SessionMode::Local, _) | (SessionMode::Auto, None) => Ok(None),
        (SessionMode::Auto, ring) => Ok(ring.filter(|_| replicas::share_store(settings))),
        (SessionMode::Stateless, Some(ring)) => Ok(Some(ring)),
        (SessionMode::Stateless, None) => Err(Failure::config(
            "mcp.sessions is \"stateless\", which needs a memory key, and there is none",
        )
        .with_hint(format!("set {}, or mcp.sessions = \"local\"", gate::KEY))),
    }
}

/// Says in the log if valid tokens are refused because they were made without the memory key.
async fn tell_of_unsealed_tokens(system: System) {
    match system.unsealed_tokens(SystemClock::default().now()).await {
        Ok(unsealed) if !unsealed.is_empty() => tracing::warn!(
            tokens = unsealed.len(),
            "valid API tokens are refused, because no seal under the memory key proves them; `helmdeck token adopt` shows \
             them, and seals those that are yours"
        ),
        _ => {}
    }
}

/// Sends the events of a server's project that wait for their event server, again and again.
///
/// Without it they would wait for the next event.
async fn send_waiting(root: PathBuf, environment: ProjectEnvironment) {
    loop {
        tokio::time::sleep(SEND_EVERY).await;
        let (root, environment) = (root.clone(), environment.clone());
        // A project that cannot be read is reported where it is used.
        let sent = tokio::task::spawn_blocking(move || {
            let project = Project::open_anyway(&root, environment).ok()??;
            Events::new(&project).drain(CAP).ok()
        });
        if let Ok(Some(drained)) = sent.await
            && drained.sent > 0
        {
            tracing::info!(
                sent = drained.sent,
                waiting = drained.waiting,
                "events that waited were sent"
            );
        }
    }
}

/// Returns what the routes for operators act on.
fn operator(setup: &Setup) -> Operator {
    let (system, layers) = (setup.system().ok(), Arc::clone(&setup.layers));
    let book = |ring: &KeyRing| {
        Some(Book::new(
            system.clone()?,
            ring.clone(),
            Arc::new(SystemClock::default()),
        ))
    };
    Operator {
        vault: setup.vault_ring.as_ref().and_then(book),
        keyring: setup.ring.clone().map(Arc::new),
        settings: Some(Arc::new(move || config::show(&layers, true, &[]).0)),
        version: env!("CARGO_PKG_VERSION"),
        api_tokens: setup.settings.auth.api_tokens,
        tokens_by_jwt: setup.settings.auth.tokens_by_jwt,
        system,
    }
}

/// Reads the keys for tokens once.
///
/// An unusable file is an error. An address that does not answer is not: it may answer later.
async fn keys(setup: &Setup, auth: &Auth) -> Result<()> {
    let place = &setup.settings.auth.jwks;
    match auth.try_keys(Arc::new(SystemClock::default())).await {
        Ok(_) => Ok(()),
        Err(reason) if place.contains("://") => {
            tracing::warn!(%reason, "the key set for tokens cannot be read yet; until then its tokens are answered with 503");
            Ok(())
        }
        Err(reason) => Err(Failure::config(format!("auth.jwks: {place}: {reason}"))),
    }
}

/// Starts the sweeps of the engine.
pub(super) fn start_sweeping(setup: &Setup, engine: &Engine) {
    let interval = setup.settings.memory.sweep_interval;
    engine.start_sweeping(JanitorConfig {
        interval,
        ..JanitorConfig::default()
    });
}

/// Removes expired rows from the system database, at once and then every hour.
///
/// A missing database is not created.
pub(super) async fn sweep_system(system: System) {
    let clock = SystemClock::default();
    loop {
        if let Err(error) = system.sweep(clock.now()).await {
            tracing::warn!(%error, "the system database cannot be swept; the next try is in an hour");
        }
        tokio::time::sleep(SWEEP_INTERVAL).await;
    }
}

/// Returns what a person wants to know at the start, in five lines.
fn banner(
    setup: &Setup,
    engine: &Engine,
    address: SocketAddr,
    authenticated: bool,
    global: &Global,
) -> String {
    let path = |path: Option<&Path>| {
        path.map_or_else(|| "none".to_owned(), |path| path.display().to_string())
    };
    let config = config::find(global.config.as_deref(), &setup.env)
        .ok()
        .flatten()
        .filter(|found| found.path.exists());
    let auth = if authenticated {
        "on"
    } else {
        "off, so only this machine is served"
    };
    let memory = match &setup.ring {
        Some(ring) => format!("on, key {}", ring.current_id()),
        None => "off (`helmdeck init --memory` turns it on)".to_owned(),
    };
    let (packs, refused) = (engine.packs(), engine.refused());
    let cached = packs.iter().filter(|pack| pack.cached).count();
    let mut served = format!(
        "{} served, {cached} cached, {} refused",
        packs.len(),
        refused.len()
    );
    if !refused.is_empty() {
        let files: Vec<String> = refused.iter().map(|error| error.file.clone()).collect();
        served.push_str(&format!(": {}", files.join(", ")));
    }
    let data = setup
        .settings
        .data_dir()
        .ok()
        .map(std::path::PathBuf::as_path);
    let project = setup.project().ok().and_then(|project| project.root);
    format!(
        "  serves   REST http://{address}/api/v1, MCP http://{address}/mcp, docs /docs, metrics /metrics\n  \
         auth     {auth}\n  memory   {memory}\n  packs    {served}\n  \
         folders  config {}, data {}, project {}",
        path(config.as_ref().map(|found| found.path.as_path())),
        path(data),
        path(project.as_deref())
    )
}

/// Prints the server's address at any log level: scripts wait for it.
fn announce(output: &Output, message: &str) {
    if tracing::enabled!(tracing::Level::INFO) {
        tracing::info!("{message}");
    } else {
        output.note(message);
    }
}
