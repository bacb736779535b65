//! The tracker of a project: its settings, and the key from the environment or a credential.

use std::path::Path;
use std::sync::Arc;

use helmdeck_core::{Identity, PackName, Secret, SystemClock};
use helmdeck_egress::Egress;
use helmdeck_forge::config::{Config, LabelMode, LinearMode, TrackerKind};
use helmdeck_forge::{Category, Error, Project, trust};
use helmdeck_trackers::github::GitHub;
use helmdeck_trackers::linear::Linear;
use helmdeck_trackers::{Connection, Tracker, github, linear};

use crate::args::Global;
use crate::config::{self, Loaded, TrackerServer};
use crate::env::ProcessEnvironment;
use crate::exit::Failure;
use crate::output::Output;
use crate::runtime::block_on;
use crate::wire::{MemoryUse, Setup};

/// Where the key of a tracker is looked for.
struct KeyPlace<'a> {
    tracker: &'static str,
    /// A variable that comes first; none if the user names a credential.
    variable: Option<&'static str>,
    credential: &'a str,
}

impl<'a> KeyPlace<'a> {
    fn of(config: &Config, server: Option<&'a TrackerServer>) -> Self {
        let named = server
            .map(|server| &*server.credential)
            .filter(|credential| !credential.is_empty());
        let (tracker, variable, usual) = match config.tracker.kind {
            TrackerKind::Linear => ("Linear", "LINEAR_API_KEY", "linear-key"),
            TrackerKind::Github => ("GitHub", "GITHUB_TOKEN", "github-token"),
        };
        Self {
            tracker,
            variable: named.is_none().then_some(variable),
            credential: named.unwrap_or(usual),
        }
    }
}

/// Returns the tracker that a project asks for by name, from the user's own settings.
fn defined(
    project: &Project,
    config_file: Option<&Path>,
    env: &ProcessEnvironment,
) -> helmdeck_forge::Result<Option<TrackerServer>> {
    let Some(name) = project.config().tracker.server.as_deref() else {
        return Ok(None);
    };
    let settings = config::load(config_file, Vec::new(), env).and_then(Loaded::settings);
    let settings = settings.map_err(|failure| Error::usage(failure.message().to_owned()))?;
    let server = settings.forge.trackers.get(name).cloned();
    server.map(Some).ok_or_else(|| {
        Error::new(
            Category::Refused,
            "E_TRACKER_UNDEFINED",
            format!("this project asks for the tracker {name:?}"),
        )
        .hint(format!(
            "define [forge.trackers.{name}] with endpoint and credential in your helmdeck.toml"
        ))
    })
}

/// Makes the client of a project's tracker. Connects to nothing yet.
///
/// # Errors
/// `Refused` unless the mode is `live` and the clone is trusted; `Refused` (`E_TRACKER_AUTH`)
/// without a key; `Usage` for settings that do not fit.
pub(crate) fn open(
    project: &Project,
    config_file: Option<&Path>,
    env: &ProcessEnvironment,
    output: Output,
) -> helmdeck_forge::Result<Box<dyn Tracker>> {
    let config = project.config();
    if config.linear.mode != LinearMode::Live {
        let message = "issues of this project are kept in files only: nothing was asked, and nothing was sent";
        return Err(Error::new(Category::Refused, "E_TRACKER_OFFLINE", message)
            .hint("set mode = \"live\" under [linear] in .forge/config.toml, and the team"));
    }
    // The settings name what is sent to whose tracker, and they may be somebody else's.
    trust::check(project)?;
    let server = defined(project, config_file, env)?;
    let place = KeyPlace::of(config, server.as_ref());
    let key = key(&place, config_file, env, output)?;
    let endpoint = match (&server, config.tracker.kind) {
        (Some(server), _) => &server.endpoint,
        (None, TrackerKind::Linear) => linear::ENDPOINT,
        (None, TrackerKind::Github) => github::ENDPOINT,
    };
    let endpoint = endpoint.parse().map_err(|_| {
        Error::usage(format!(
            "the endpoint of {} is no URL: {endpoint:?}",
            place.tracker
        ))
    })?;
    let egress = Egress::new(helmdeck_egress::Config::default());
    let connection = Connection::new(egress, endpoint, key, Arc::new(SystemClock::default()));
    let create = config.linear.labels == LabelMode::Create;
    Ok(match config.tracker.kind {
        TrackerKind::Linear => Box::new(Linear::new(
            connection,
            config.linear.team.as_deref().unwrap_or_default(),
            create,
        )?),
        TrackerKind::Github => Box::new(GitHub::new(connection, &config.github, create)?),
    })
}

/// Returns the key: of the variable, else of the credential in helmdeck's settings, else of the
/// vault.
fn key(
    place: &KeyPlace<'_>,
    config_file: Option<&Path>,
    env: &ProcessEnvironment,
    output: Output,
) -> helmdeck_forge::Result<Secret> {
    let failed = |failure: Failure| {
        Error::new(
            Category::Refused,
            "E_TRACKER_AUTH",
            failure.message().to_owned(),
        )
    };
    let set = place
        .variable
        .map(|variable| env.text(variable))
        .transpose()
        .map_err(failed)?
        .flatten();
    let set = set.filter(|text| !text.trim().is_empty());
    if let Some(text) = set {
        return Ok(Secret::new(text.trim().to_owned()));
    }
    let KeyPlace {
        tracker,
        variable,
        credential,
    } = place;
    let missing = || {
        let variable = variable
            .map(|variable| format!("{variable}, or "))
            .unwrap_or_default();
        Error::new(Category::Refused, "E_TRACKER_AUTH", format!("there is no key for {tracker}")).hint(format!(
            "set {variable}the credential {credential:?} under [credentials] in helmdeck's settings or in the vault"
        ))
    };
    let global = Global {
        config: config_file.map(Path::to_owned),
        json: output.json,
        verbose: output.verbose,
        quiet: output.quiet,
    };
    let setup = Setup::load(&global, Vec::new(), env.clone(), output, "warn").map_err(failed)?;
    let name = PackName::new("forge.linear").map_err(Error::usage)?;
    let found = block_on(async {
        let secrets = setup.secrets(MemoryUse::None).await?;
        let identity = Identity::local();
        match secrets.grant(credential, &identity, &name)? {
            Some(grant) => Ok(Some(secrets.reveal(&grant, &identity, &name)?)),
            None => Ok(None),
        }
    });
    found.map_err(failed)?.ok_or_else(missing)
}
