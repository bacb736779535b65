//! The environment of a project: session, agent, trust and event servers, from this process; and its waiting events.

use std::path::PathBuf;
use std::time::Duration;

use helmdeck_forge::events::{CAP, Events};
use helmdeck_forge::{Project, ProjectEnvironment, Trust};

use crate::env::ProcessEnvironment;
use crate::exit::Result;
#[cfg(feature = "nats")]
use crate::link;

/// The variable with the work session of a command.
const SESSION: &str = helmdeck_forge::sessions::VARIABLE;
/// The variable with the name of the agent.
const AGENT: &str = "HELMDECK_FORGE_AGENT";
/// Interval at which a server looks for events that wait.
const SEND_EVERY: Duration = Duration::from_secs(5);

/// Returns the environment of projects, for commands and packs.
///
/// A given session or agent wins over its variable.
///
/// # Errors
/// A configuration failure for a variable that is not text.
pub(crate) fn environment(
    env: &ProcessEnvironment,
    session: Option<&str>,
    agent: Option<&str>,
) -> Result<ProjectEnvironment> {
    let text = |given: Option<&str>, name: &str| -> Result<Option<String>> {
        let given = given.map_or_else(|| env.text(name), |given| Ok(Some(given)))?;
        Ok(given.filter(|text| !text.trim().is_empty()).map(str::to_owned))
    };
    let mut environment = ProjectEnvironment { zone: jiff::tz::TimeZone::system(), ..ProjectEnvironment::default() };
    #[cfg(feature = "nats")]
    {
        environment.links = Some(std::sync::Arc::new(link::Servers::default()));
    }
    let data = env.path("HELMDECK_DATA_DIR").map(|path| env.absolute(&path)).transpose()?;
    if let Some(data) = data.or_else(|| env.xdg("XDG_DATA_HOME", ".local/share")) {
        environment.trust = Trust::Kept(data.join("forge-trust"));
    }
    environment.session = text(session, SESSION)?;
    if let Some(agent) = text(agent, AGENT)? {
        environment.agent = agent;
    }
    Ok(environment)
}

/// Sends the events of a server's project that wait for their event server, again and again.
///
/// Without it they would wait for the next event.
pub(crate) async fn send_waiting(root: PathBuf, environment: ProjectEnvironment) {
    loop {
        tokio::time::sleep(SEND_EVERY).await;
        let (root, environment) = (root.clone(), environment.clone());
        // A project that cannot be read is reported where it is used.
        let sent = tokio::task::spawn_blocking(move || {
            let project = Project::open_anyway(&root, environment).ok()??;
            let events = Events::new(&project);
            let waits = events.status().is_ok_and(|status| status.server && status.waiting > 0);
            waits.then(|| events.drain(CAP).ok())?
        });
        if let Ok(Some(drained)) = sent.await
            && drained.sent > 0
        {
            tracing::info!(sent = drained.sent, waiting = drained.waiting, "events that waited were sent");
        }
    }
}
