//! The environment of a project: session, agent, trust and event servers, from this process.

use std::path::Path;

use helmdeck_forge::{ProjectEnvironment, Trust, Zone};

use crate::env::ProcessEnvironment;
use crate::exit::Result;
#[cfg(feature = "nats")]
use crate::link;

/// The variable with the work session of a command.
const SESSION: &str = "HELMDECK_FORGE_SESSION";
/// The variable with the name of the agent.
const AGENT: &str = "HELMDECK_FORGE_AGENT";

/// Returns the environment of projects, for commands and packs.
///
/// A given session or agent wins over its variable. The event servers are those of the
/// configuration file.
///
/// # Errors
/// A configuration failure for a variable that is not text.
pub(crate) fn environment(
    env: &ProcessEnvironment,
    #[cfg_attr(
        not(feature = "nats"),
        expect(unused_variables, reason = "only event servers are looked up there")
    )]
    config: Option<&Path>,
    session: Option<&str>,
    agent: Option<&str>,
) -> Result<ProjectEnvironment> {
    let text = |given: Option<&str>, name: &str| -> Result<Option<String>> {
        let given = given.map_or_else(|| env.text(name), |given| Ok(Some(given)))?;
        Ok(given
            .filter(|text| !text.trim().is_empty())
            .map(str::to_owned))
    };
    let mut environment = ProjectEnvironment {
        zone: Zone::System,
        ..ProjectEnvironment::default()
    };
    #[cfg(feature = "nats")]
    {
        environment.links = Some(std::sync::Arc::new(link::Servers::new(config, env)));
    }
    let data = env
        .path("HELMDECK_DATA_DIR")
        .map(|path| env.absolute(&path))
        .transpose()?;
    if let Some(data) = data.or_else(|| env.xdg("XDG_DATA_HOME", ".local/share")) {
        environment.trust = Trust::Kept(data.join("forge-trust"));
    }
    environment.session = text(session, SESSION)?;
    if let Some(agent) = text(agent, AGENT)? {
        environment.agent = agent;
    }
    Ok(environment)
}
