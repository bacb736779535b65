//! `helmdeck check`: checks configuration, keys, stores and packs. It changes and creates nothing.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};

use helmdeck_core::{Clock, SystemClock};
use helmdeck_engine::PackInfo;
use helmdeck_memory::open::Location;
use helmdeck_seam::Seam;
use helmdeck_vault::Book;

use super::conversation_check;
use super::report::Report;
use crate::args::Global;
use crate::config::{self, Loaded, Settings};
use crate::credentials::EnvironmentSecrets;
use crate::env::ProcessEnvironment;
use crate::exit::{Exit, Failure, Result};
use crate::gate;
use crate::logging;
use crate::output::Output;
use crate::replicas;
use crate::schedules;
use crate::system;
use crate::wire::{MemoryUse, Setup};
use crate::writable;
use crate::{s3, secret_file};

/// Open files of a server besides its connections: databases, logs, programs of packs.
const OTHER_FILES: u64 = 256;

/// Checks configuration, key, stores and packs.
///
/// # Errors
/// Exit 78 if anything is wrong, after printing all of it.
pub(crate) async fn run(global: &Global, env: ProcessEnvironment, output: Output) -> Result<()> {
    let loaded = config::load(global.config.as_deref(), Vec::new(), &env)?;
    let mut report = Report::default();
    configuration(&mut report, &loaded);
    let key_file = loaded
        .settings
        .as_ref()
        .map(|settings| settings.memory.key_file.clone())
        .unwrap_or_default();
    let ring = match gate::key_ring(&env, &key_file) {
        Ok(ring) => {
            match &ring {
                Some(ring) => report.fact("key", format!("well-formed, id {}", ring.current_id())),
                None => report.fact("key", "not set, so memory is off"),
            }
            Some(ring)
        }
        Err(failure) => {
            report.failed("key", &failure);
            None
        }
    };
    let vault_ring = match gate::vault_ring(&env, ring.as_ref().and_then(Option::as_ref)) {
        Ok(ring) => ring,
        Err(failure) => {
            report.failed("vault", &failure);
            None
        }
    };
    for path in secret_file::exposed(&env, &[crate::auth::SECRET_FILE, s3::SECRET_FILE]) {
        report.warnings.push(format!(
            "others than its owner can read the secret file {}; chmod 600 it",
            path.display()
        ));
    }
    if let Some(settings) = loaded.settings {
        logging::start(
            &settings.log.level,
            settings.log.format,
            "error",
            output.verbose,
            output.quiet,
        );
        warn(&mut report, &settings, &env);
        let setup = Setup {
            ring: ring.flatten(),
            vault_ring,
            ..Setup::new(settings, loaded.layers, env, global, output)
        };
        auth(&mut report, &setup).await;
        places(&mut report, &setup);
        system_database(&mut report, &setup).await;
        store(&mut report, &setup).await;
        vault(&mut report, &setup).await;
        conversation_check::run(&mut report, &setup).await;
        packs(&mut report, &setup).await;
        sessions(&mut report, &setup).await;
        notes(&mut report, &setup);
    }
    output.either(&report.value(), || report.text())?;
    if report.errors.is_empty() {
        Ok(())
    } else {
        Err(Failure::silent(Exit::Config))
    }
}

fn configuration(report: &mut Report, loaded: &Loaded) {
    let file = match &loaded.file {
        Some(found) if loaded.file_exists => found.path.display().to_string(),
        Some(found) => format!("defaults ({} is not there)", found.path.display()),
        None => "defaults (there is no configuration folder)".to_owned(),
    };
    report.fact("config", file);
    report
        .errors
        .extend(loaded.problems.iter().map(ToString::to_string));
}

fn warn(report: &mut Report, settings: &Settings, env: &ProcessEnvironment) {
    if !settings.memory.url.is_empty() && gate::source(env, &settings.memory.key_file).is_none() {
        report
            .warnings
            .push("a memory URL is set, but no memory key, so memory is off".to_owned());
    }
    let files = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let needed = settings.server.max_connections as u64 + OTHER_FILES;
    if files < needed {
        report.warnings.push(format!(
            "this process may open {files} files, and server.max_connections asks for {needed}; raise the limit (ulimit -Hn, \
             LimitNOFILE of the service), or lower server.max_connections"
        ));
    }
    for (name, variable) in EnvironmentSecrets::new(&settings.credentials, env).unset() {
        report.warnings.push(format!(
            "credential \"{name}\" comes from the variable {variable}, which is not set"
        ));
    }
}

async fn auth(report: &mut Report, setup: &Setup) {
    let settings = &setup.settings;
    match setup.authenticates() {
        Ok(true) => {}
        Ok(false) => return report.fact("auth", "off, so only this machine reaches the server"),
        Err(failure) => return report.failed("auth", &failure),
    }
    let mut ways = Vec::new();
    if settings.auth.api_tokens {
        ways.push("API tokens".to_owned());
    }
    if crate::auth::is_set(&setup.env) {
        ways.push("JSON Web Tokens of a shared secret".to_owned());
    }
    ways.extend(keys(report, setup).await);
    report.fact("auth", ways.join(", "));
    if !settings.server.listen.ip().is_loopback() && settings.server.allowed_hosts.is_empty() {
        report.warnings.push(format!(
            "the server listens on {} and server.allowed_hosts is empty, so it answers to the names of this machine only",
            settings.server.listen
        ));
    }
}

/// Reads the keys for tokens once, and says what they are; `None` if there is no key set.
#[cfg(feature = "serve")]
async fn keys(report: &mut Report, setup: &Setup) -> Option<String> {
    let Ok(Some(auth)) = setup.auth() else {
        return None;
    };
    match auth.try_keys(Arc::new(SystemClock::default())).await {
        Ok(keys) => keys.map(|keys| format!("JSON Web Tokens of {keys} keys")),
        Err(reason) => {
            report
                .errors
                .push(format!("auth.jwks: {}: {reason}", setup.settings.auth.jwks));
            Some("JSON Web Tokens of keys that cannot be read".to_owned())
        }
    }
}

#[cfg(not(feature = "serve"))]
async fn keys(_: &mut Report, setup: &Setup) -> Option<String> {
    let given = !setup.settings.auth.jwks.is_empty();
    given.then(|| {
        "JSON Web Tokens of keys that were not read (this helmdeck has no server)".to_owned()
    })
}

/// Checks the data folder and its databases, if a key or API tokens are set.
fn places(report: &mut Report, setup: &Setup) {
    let settings = &setup.settings;
    let kept = setup.ring.is_some() || setup.vault_ring.is_some() || settings.auth.api_tokens;
    let (Ok(data), true) = (settings.data_dir(), kept) else {
        return;
    };
    let mut files: Vec<_> = system::file(settings).into_iter().collect();
    if setup.ring.is_some()
        && let Ok(Ok(Location::Sqlite(store))) =
            settings.memory_url().map(|url| Location::parse(&url))
    {
        files.push(store);
    }
    let mut folders: Vec<_> = files.iter().filter_map(|file| file.parent()).collect();
    folders.dedup();
    for folder in folders {
        let mode = std::fs::metadata(folder).map_or(0, |folder| folder.permissions().mode());
        if mode & 0o022 != 0 {
            report.warnings.push(format!(
                "others than its owner can write in the data folder {} (its mode is {:04o}) and replace what is in it; chmod 700 it",
                folder.display(),
                mode & 0o7777
            ));
        }
    }
    let mut reasons: Vec<String> = files
        .iter()
        .filter_map(|file| writable::why_not(file))
        .collect();
    reasons.dedup();
    let state = if reasons.is_empty() {
        data.display().to_string()
    } else {
        "wrong".to_owned()
    };
    report.fact("data", state);
    report.errors.extend(
        reasons
            .into_iter()
            .map(|reason| format!("data: {reason}; set data_dir to a folder that can be written")),
    );
}

/// Says where the system database is, if anything may be in it, and whether it can be reached.
async fn system_database(report: &mut Report, setup: &Setup) {
    let settings = &setup.settings;
    let kept = setup.ring.is_some() || setup.vault_ring.is_some() || settings.auth.api_tokens;
    let (Ok(system), true) = (setup.system(), kept) else {
        return;
    };
    if let Some(file) = system::left_behind(settings) {
        report.warnings.push(format!(
            "{} is not used: the system database is {}; run `helmdeck system move --from sqlite:{}` to take its tokens, \
             credentials and jobs along, or delete it",
            file.display(),
            system.location(),
            file.display()
        ));
    }
    match system.exists().await {
        Ok(true) => {
            report.fact("system", system.location());
            match system.unsealed_tokens(SystemClock::default().now()).await {
                Ok(unsealed) if !unsealed.is_empty() => report.warnings.push(format!(
                    "{} valid API tokens are refused, because no seal under the memory key proves them: `helmdeck token \
                     adopt` shows them, and seals those that are yours",
                    unsealed.len()
                )),
                Ok(_) => {}
                Err(error) => report.failed("system", &Failure::from(error)),
            }
        }
        Ok(false) => report.fact(
            "system",
            format!(
                "{}, not there yet; the first write creates it",
                system.location()
            ),
        ),
        Err(error) => report.failed("system", &Failure::from(error)),
    }
}

async fn store(report: &mut Report, setup: &Setup) {
    let has_key = setup.ring.is_some();
    let not_shared = replicas::not_shared(&setup.settings).filter(|_| has_key);
    report
        .warnings
        .extend(not_shared.or_else(|| replicas::store_without_key(&setup.settings, has_key)));
    // Without a key a remote store is not used, so it is not connected to. A local file is checked
    // for what it may still hold.
    let elsewhere = !setup.settings.memory.url.is_empty();
    if elsewhere && setup.ring.is_none() {
        return report.fact("store", "not looked at: no memory key is set");
    }
    let opened = match setup.store_exists().await {
        Ok(false) => return report.fact("store", "not there yet; the first write creates it"),
        Ok(true) if setup.ring.is_some() => setup.sealed_store().await,
        Ok(true) => setup.clear_store().await,
        Err(failure) => return report.failed("store", &failure),
    };
    let stats = match opened {
        Ok(Some(store)) => {
            let stats = store.stats().await;
            let closed = store.close().await;
            stats
                .and_then(|stats| closed.map(|()| stats))
                .map_err(Failure::from)
        }
        Ok(None) => return report.fact("store", "not there yet; the first write creates it"),
        Err(failure) => Err(failure),
    };
    match stats {
        Ok(stats) => report.fact("store", helmdeck_core::text::count(stats.rows, "entry")),
        Err(failure) => report.failed("store", &failure),
    }
}

async fn vault(report: &mut Report, setup: &Setup) {
    let Some(ring) = &setup.vault_ring else {
        return;
    };
    let key = ring.current_id();
    let system = match setup.system() {
        Ok(system) => system,
        Err(failure) => return report.failed("vault", &failure),
    };
    match Book::new(system, ring.clone(), Arc::new(SystemClock::default()))
        .check()
        .await
    {
        Ok((count, unreadable)) => {
            report.fact("vault", format!("{count} credentials, key {key}"));
            report
                .errors
                .extend(unreadable.iter().map(ToString::to_string));
        }
        Err(error) => report.failed("vault", &error.into()),
    }
}

async fn packs(report: &mut Report, setup: &Setup) {
    if let Some(folder) = setup
        .settings
        .packs_dir
        .as_ref()
        .filter(|folder| !folder.exists())
    {
        let message = format!("no folder {}", folder.display());
        report.fact("own packs", message);
    }
    match setup.engine(MemoryUse::Nothing, false).await {
        Ok(engine) => {
            let refused = engine.refused();
            match engine.reach_artifacts().await {
                Ok(()) => report.fact("artifacts", s3::shown_artifacts(&setup.settings)),
                Err(error) => report.failed("artifacts", &error.into()),
            }
            let packs = engine.all_packs();
            let served = packs.iter().filter(|pack| pack.waits_for.is_none()).count();
            report.fact(
                "packs",
                format!("{served} served, {} refused", refused.len()),
            );
            waiting(report, &packs);
            scheduled(report, setup, &packs);
            report
                .errors
                .extend(refused.iter().map(ToString::to_string));
            engine.shutdown().await;
        }
        Err(failure) => report.failed("packs", &failure),
    }
}

/// Reports the packs that run by a schedule, and whose jobs their runs are.
fn scheduled(report: &mut Report, setup: &Setup, packs: &[PackInfo]) {
    let names: Vec<_> = packs
        .iter()
        .filter(|pack| pack.schedule.is_some())
        .map(|pack| pack.name.to_string())
        .collect();
    if names.is_empty() {
        return;
    }
    let names = names.join(", ");
    let authenticated = matches!(setup.authenticates(), Ok(true));
    match schedules::caller(&setup.settings, authenticated) {
        Ok(Some(caller)) => report.fact("schedules", format!("{names}, as {}/{}", caller.tenant(), caller.user())),
        Ok(None) => report.warnings.push(format!(
            "packs have schedules ({names}), and schedule.caller is not set, so none runs; name the caller that their \
             runs belong to"
        )),
        Err(failure) => report.failed("schedules", &failure),
    }
}

/// Reports the packs that are not listed, by family and what they wait for.
fn waiting(report: &mut Report, packs: &[PackInfo]) {
    let mut groups: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for pack in packs {
        if let Some(missing) = pack.waits_for {
            *groups.entry((pack.family(), missing)).or_default() += 1;
        }
    }
    for ((family, missing), count) in groups {
        report.fact(
            format!("packs {family}"),
            format!("{count} not listed, waiting for {missing}"),
        );
    }
}

/// Reports what `helmdeck seam` finds: the note vault and the project. Problems are warnings only.
fn notes(report: &mut Report, setup: &Setup) {
    let seam = Seam::on_disk(crate::seam::config(&setup.settings.seam, &setup.env));
    let seen = seam.doctor(&helmdeck_seam::Context::default());
    let by = |from: Option<&str>| from.map(|from| format!(" ({from})")).unwrap_or_default();
    let vault = seen.vault.map_or_else(
        || "no vault".to_owned(),
        |path| format!("vault {}", path.display()),
    );
    let project = seen
        .project
        .map_or_else(|| "no project".to_owned(), |name| format!("project {name}"));
    let fact = format!(
        "{vault}{}, {project}{}",
        by(seen.vault_from.as_deref()),
        by(seen.project_from)
    );
    report.fact("notes", helmdeck_seam::one_line(&fact));
    report.warnings.extend(
        seen.warnings
            .into_iter()
            .map(|warning| format!("seam: {}", warning.message)),
    );
}

/// Checks the sandbox. Only packs that run commands need it, so a failure is a warning.
async fn sessions(report: &mut Report, setup: &Setup) {
    let Ok(engine) = setup.engine(MemoryUse::Nothing, false).await else {
        return;
    };
    match engine.probe_sessions().await {
        Ok(how) => report.fact("sessions", how),
        Err(error) => {
            report.fact("sessions", "none");
            report.warnings.push(error.message().to_owned());
        }
    }
    engine.shutdown().await;
}
