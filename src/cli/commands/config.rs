//! `helmdeck config`: prints the settings and their origins, even if the configuration is invalid.

use serde_json::json;

use crate::args::{ConfigCommand, Global};
use crate::auth;
use crate::config::{self, show};
use crate::env::ProcessEnvironment;
use crate::exit::{Exit, Failure, Result};
use crate::gate;
use crate::output::Output;
use crate::s3;
use helmdeck_core::text::columns;

/// Runs `helmdeck config`.
///
/// # Errors
/// Exit 78 if the configuration is wrong, after showing it; exit 3 if there is no folder for a
/// configuration file.
pub(crate) fn run(
    command: &ConfigCommand,
    global: &Global,
    env: &ProcessEnvironment,
    output: &Output,
) -> Result<()> {
    let loaded = config::load(global.config.as_deref(), Vec::new(), env)?;
    match command {
        ConfigCommand::Path => {
            let found = loaded.file.ok_or_else(|| {
                Failure::new(
                    Exit::Absent,
                    "there is no configuration folder: neither XDG_CONFIG_HOME nor HOME is set",
                )
            })?;
            let value = json!({"path": found.path, "exists": loaded.file_exists});
            output.either(&value, || found.path.display().to_string())
        }
        ConfigCommand::Show { origin } => {
            let secrets: Vec<(&str, String)> = [
                gate::KEY,
                gate::KEY_FILE,
                gate::KEY_PREVIOUS,
                auth::SECRET,
                auth::SECRET_FILE,
                auth::CLIENT_SECRET,
                auth::CLIENT_SECRET_FILE,
            ]
            .into_iter()
            .chain([s3::KEY_ID, s3::SECRET, s3::SECRET_FILE])
            .filter(|name| !matches!(env.text(name), Ok(None)))
            .map(|name| (name, "(set)".to_owned()))
            .collect();
            let (value, rows) = show(&loaded.layers, *origin, &secrets);
            output.either(&value, || columns(&rows))?;
            loaded.settings().map(drop)
        }
    }
}
