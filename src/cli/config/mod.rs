//! The configuration: read in layers, validated as a whole, handed to each crate as its own
//! settings.

mod file;
mod layers;
mod origin;
mod parts;
#[cfg(test)]
mod schema;
mod seam;
pub(crate) mod servers;
mod settings;
mod show;
mod variables;

use helmdeck_core::text::count;
use std::path::Path;

use toml::Value;

use crate::env::ProcessEnvironment;
use crate::exit::{Failure, Result};

pub(crate) use file::{ConfigFile, find};
pub(crate) use layers::{DEFAULTS, Key, Layers, Setting};
pub(crate) use origin::{Origin, Problem};
#[cfg(feature = "nats")]
pub(crate) use parts::EventServer;
pub(crate) use parts::{LogFormat, SeamSettings, TrackerServer};
pub(crate) use seam::placed;
pub(crate) use settings::Settings;
pub(crate) use show::show;

/// A setting given by a flag: its key, its value and the flag.
pub(crate) type FlagSetting = (&'static [&'static str], Value, &'static str);

/// Result of reading the configuration, with all problems.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The configuration file, whether or not it exists.
    pub(crate) file: Option<ConfigFile>,
    /// Whether the file exists.
    pub(crate) file_exists: bool,
    /// Every value with its origin.
    pub(crate) layers: Layers,
    /// The settings; `None` if there is a problem.
    pub(crate) settings: Option<Settings>,
    /// What is wrong.
    pub(crate) problems: Vec<Problem>,
}

/// Reads the configuration and keeps going after problems, so that all of them can be shown at
/// once.
///
/// # Errors
/// A failure if the file's path is relative and there is no working directory.
pub(crate) fn load(
    file: Option<&Path>,
    flags: Vec<FlagSetting>,
    env: &ProcessEnvironment,
) -> Result<Loaded> {
    let mut layers = Layers::defaults();
    let mut problems = Vec::new();
    let file = file::find(file, env)?;
    let mut file_exists = false;
    let mut mcp_servers = Vec::new();
    if let Some(found) = &file {
        match file::read(found) {
            Ok(Some(text)) => {
                file_exists = true;
                problems.extend(file::add(
                    &mut layers,
                    &found.path.display().to_string(),
                    &text,
                ));
                match servers::read(&found.path, &text, env) {
                    Ok(found) => mcp_servers = found,
                    Err(more) => problems.extend(more),
                }
            }
            Ok(None) => {}
            Err(problem) => problems.push(problem),
        }
    }
    problems.extend(variables::add(&mut layers, env));
    for (key, value, flag) in flags {
        let key = key.iter().map(|part| (*part).to_owned()).collect();
        problems.extend(layers.set(key, value, Origin::Flag(flag)).err());
    }
    let settings = match settings::resolve(&layers, file.as_ref(), env) {
        Ok(mut settings) => {
            settings.mcp_servers = mcp_servers;
            Some(settings).filter(|_| problems.is_empty())
        }
        Err(more) => {
            problems.extend(more);
            None
        }
    };
    Ok(Loaded {
        file,
        file_exists,
        layers,
        settings,
        problems,
    })
}

impl Loaded {
    /// Returns the settings.
    ///
    /// # Errors
    /// A configuration failure that lists every problem.
    pub(crate) fn settings(self) -> Result<Settings> {
        self.into_parts().map(|(settings, _)| settings)
    }

    /// Returns the settings, and every one of them with its origin.
    ///
    /// # Errors
    /// As [`Loaded::settings`].
    pub(crate) fn into_parts(self) -> Result<(Settings, Layers)> {
        match self.settings {
            Some(settings) => Ok((settings, self.layers)),
            None => Err(failure(&self.problems).with_hint(
                "`helmdeck config show --origin` prints every setting and where it comes from",
            )),
        }
    }
}

/// Makes a failure that lists every problem, with its place.
pub(crate) fn failure(problems: &[Problem]) -> Failure {
    let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let lines = match problems {
        [only] => vec![only.message.clone(), only.place.clone()],
        _ => std::iter::once(format!(
            "the configuration has {}",
            count(problems.len(), "mistake")
        ))
        .chain(all.iter().cloned())
        .collect(),
    };
    Failure::config(all.join("; ")).with_lines(lines)
}
