//! Configuration reload on SIGHUP: the packs folder and the settings that can change at run time.
//!
//! An invalid configuration changes nothing.

use std::sync::Arc;

use helmdeck_engine::Engine;
use helmdeck_server::Reload;

use crate::args::Global;
use crate::config::{self, FlagSetting, Layers};
use crate::env::ProcessEnvironment;
use crate::exit::Failure;
use crate::logging;

/// Settings that a reload applies; all others need a restart.
const RELOADED: &[&[&str]] = &[
    &["log", "level"],
    &["server", "allowed_hosts"],
    &["server", "allowed_origins"],
    &["server", "rate_per_second"],
    &["server", "rate_burst"],
];

/// The configuration in force, and where it came from.
pub(super) struct Reloader {
    global: Global,
    flags: Vec<FlagSetting>,
    level: &'static str,
    in_force: Arc<Layers>,
}

impl Reloader {
    /// Returns a reloader. `in_force` is the configuration of the start, `level` the default log
    /// level of the command.
    pub(super) fn new(
        global: &Global,
        flags: Vec<FlagSetting>,
        in_force: Arc<Layers>,
        level: &'static str,
    ) -> Self {
        Self {
            global: global.clone(),
            flags,
            level,
            in_force,
        }
    }

    /// Reads configuration and packs again, and logs the outcome.
    pub(super) async fn run(&mut self, env: &ProcessEnvironment, server: &Reload, engine: &Engine) {
        if let Err(failure) = self.configure(env, server) {
            tracing::error!(
                reason = failure.message(),
                "the configuration has mistakes, so the one before stays in force"
            );
        }
        let engine = engine.clone();
        let packs = tokio::task::spawn_blocking(move || {
            engine.reload();
            (engine.pack_count(), engine.refused().len())
        });
        match packs.await {
            Ok((packs, refused)) => tracing::info!(packs, refused, "reloaded"),
            Err(error) => tracing::error!(%error, "the packs could not be reloaded"),
        }
    }

    fn configure(&mut self, env: &ProcessEnvironment, server: &Reload) -> Result<(), Failure> {
        let (settings, layers) =
            config::load(self.global.config.as_deref(), self.flags.clone(), env)?.into_parts()?;
        server.apply(&settings.server);
        let Global { verbose, quiet, .. } = self.global;
        logging::set_level(&settings.log.level, self.level, verbose, quiet);
        let changed = self.in_force.changed(&layers);
        let (now, later): (Vec<_>, Vec<_>) = changed
            .into_iter()
            .partition(|key| RELOADED.iter().any(|known| key.iter().eq(*known)));
        if !later.is_empty() {
            let keys: Vec<String> = later.iter().map(|key| key.join(".")).collect();
            tracing::warn!(
                keys = keys.join(", "),
                "these settings have changed and need a restart"
            );
        }
        let in_force = Arc::make_mut(&mut self.in_force);
        for key in now {
            in_force.take(&key, &layers);
        }
        Ok(())
    }
}
