//! Configuration reload on SIGHUP: the packs folder and the settings that can change at run time.
//!
//! An invalid configuration changes nothing.

use helmdeck_engine::Engine;
use helmdeck_server::Reload;

use crate::args::Global;
use crate::config::{self, FlagSetting, Layers};
use crate::env::ProcessEnvironment;
use crate::exit::{Failure, Result};
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
    in_force: Layers,
}

impl Reloader {
    /// Stores the configuration that a command starts with, and the default log level of the command.
    ///
    /// # Errors
    /// As [`config::load`].
    pub(super) fn new(
        global: &Global,
        flags: Vec<FlagSetting>,
        env: &ProcessEnvironment,
        level: &'static str,
    ) -> Result<Self> {
        let in_force = config::load(global.config.as_deref(), flags.clone(), env)?.layers;
        Ok(Self { global: global.clone(), flags, level, in_force })
    }

    /// Returns every setting that the command started with, with its origin and without secrets.
    pub(super) fn settings(&self) -> serde_json::Value {
        config::show(&self.in_force, true, &[]).0
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
        let loaded = config::load(self.global.config.as_deref(), self.flags.clone(), env)?;
        let layers = loaded.layers.clone();
        let settings = loaded.settings()?;
        server.apply(&settings.server);
        let Global { verbose, quiet, .. } = self.global;
        logging::set_level(&settings.log.level, self.level, verbose, quiet);
        let changed = self.in_force.changed(&layers);
        let (now, later): (Vec<_>, Vec<_>) =
            changed.into_iter().partition(|key| RELOADED.iter().any(|known| key.iter().eq(*known)));
        if !later.is_empty() {
            let keys: Vec<String> = later.iter().map(|key| key.join(".")).collect();
            tracing::warn!(keys = keys.join(", "), "these settings have changed and need a restart");
        }
        for key in now {
            self.in_force.take(&key, &layers);
        }
        Ok(())
    }
}
