//! The tracker of a project: its settings, and the key from the environment or a credential.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use helmdeck_core::{Clock as _, Identity, PackName, Secret, SystemClock};
use helmdeck_egress::Egress;
use helmdeck_forge::config::{Config, LabelMode, LinearMode, TrackerKind};
use helmdeck_forge::{Category, Error, Project, trust};
use helmdeck_server::{WebhookAnswer, WebhookReceiver};
use helmdeck_trackers::github::GitHub;
use helmdeck_trackers::linear::Linear;
use helmdeck_trackers::sync::{Pull, Sync, remember_deliveries, status};
use helmdeck_trackers::webhook::{DELIVERY, Rejected, SIGNATURE, Webhook};
use helmdeck_trackers::{Connection, Tracker, github, linear};
use http::HeaderMap;

use crate::args::Global;
use crate::env::ProcessEnvironment;
use crate::exit::Failure;
use crate::output::Output;
use crate::runtime::block_on;
use crate::wire::{MemoryUse, Setup};

/// Where the key of a tracker is looked for.
struct KeyPlace<'a> {
    tracker: &'static str,
    variable: &'static str,
    credential: &'a str,
}

impl<'a> KeyPlace<'a> {
    fn of(config: &'a Config) -> Self {
        match config.tracker.kind {
            TrackerKind::Linear => Self {
                tracker: "Linear",
                variable: "LINEAR_API_KEY",
                credential: config.linear.credential.as_deref().unwrap_or("linear-key"),
            },
            TrackerKind::Github => Self {
                tracker: "GitHub",
                variable: "GITHUB_TOKEN",
                credential: config.github.credential.as_deref().unwrap_or("github-token"),
            },
        }
    }
}

/// Makes the client of a project's tracker. Connects to nothing yet.
///
/// # Errors
/// `Refused` unless the mode is `live` and the clone is trusted; `Refused` (`E_TRACKER_AUTH`) without a key; `Usage`
/// for settings that do not fit.
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
    // The settings name where the key goes, and they may be somebody else's.
    trust::check(project)?;
    let place = KeyPlace::of(config);
    let key = key(&place, config_file, env, output)?;
    let endpoint = match config.tracker.kind {
        TrackerKind::Linear => config.linear.endpoint.as_deref().unwrap_or(linear::ENDPOINT),
        TrackerKind::Github => config.github.endpoint.as_deref().unwrap_or(github::ENDPOINT),
    };
    let endpoint = endpoint
        .parse()
        .map_err(|_| Error::usage(format!("the endpoint of {} is no URL: {endpoint:?}", place.tracker)))?;
    let egress = Egress::new(helmdeck_egress::Config::default());
    let connection = Connection::new(egress, endpoint, key, Arc::new(SystemClock::default()));
    let create = config.linear.labels == LabelMode::Create;
    Ok(match config.tracker.kind {
        TrackerKind::Linear => {
            Box::new(Linear::new(connection, config.linear.team.as_deref().unwrap_or_default(), create)?)
        }
        TrackerKind::Github => Box::new(GitHub::new(connection, &config.github, create)?),
    })
}

/// Returns the key: of the variable, else of the credential in helmdeck's settings, else of the vault.
fn key(
    place: &KeyPlace<'_>,
    config_file: Option<&Path>,
    env: &ProcessEnvironment,
    output: Output,
) -> helmdeck_forge::Result<Secret> {
    let failed = |failure: Failure| Error::new(Category::Refused, "E_TRACKER_AUTH", failure.message().to_owned());
    let set = env.text(place.variable).map_err(failed)?.filter(|text| !text.trim().is_empty());
    if let Some(text) = set {
        return Ok(Secret::new(text.trim().to_owned()));
    }
    let KeyPlace { tracker, variable, credential } = place;
    let missing = || {
        Error::new(Category::Refused, "E_TRACKER_AUTH", format!("there is no key for {tracker}")).hint(format!(
            "set {variable}, or the credential {credential:?} under [credentials] in helmdeck's settings or in the vault"
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

/// The variable with the secret of Linear's webhook.
const WEBHOOK_SECRET: &str = "LINEAR_WEBHOOK_SECRET";
/// How long further deliveries are waited for before issues are read.
const GATHER: Duration = Duration::from_millis(200);

/// Receiver of Linear's webhook: hands the ids of issues to a thread that reads them again.
#[derive(Debug)]
struct Hints {
    webhook: Arc<Webhook>,
    changed: Sender<String>,
}

impl WebhookReceiver for Hints {
    fn receive(&self, headers: &HeaderMap, body: &[u8]) -> WebhookAnswer {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let now = SystemClock::default().now();
        match self.webhook.receive(body, header(SIGNATURE), header(DELIVERY), now) {
            Ok(hint) => {
                if let Some(issue) = hint.issue {
                    // The thread lives as long as the process.
                    let _ = self.changed.send(issue);
                }
                WebhookAnswer::Accepted
            }
            Err(Rejected::Repeated) => WebhookAnswer::Accepted,
            Err(Rejected::Signature | Rejected::Time) => WebhookAnswer::Unauthorised,
            Err(Rejected::Malformed | Rejected::TooLarge) => WebhookAnswer::Malformed,
        }
    }
}

/// Returns the receiver of Linear's webhook, if its secret is set and the server has a project.
///
/// # Errors
/// A configuration failure for a variable that is not text, or a secret without a project.
pub(crate) fn receiver(setup: &Setup) -> Result<Option<Arc<dyn WebhookReceiver>>, Failure> {
    let Some(secret) = setup.env.text(WEBHOOK_SECRET)?.map(str::trim).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let root = setup.settings.forge.packs(true, setup.env.working_dir()).root;
    let root =
        root.ok_or_else(|| Failure::config(format!("{WEBHOOK_SECRET} is set, and [forge] root names no project")))?;
    let environment = crate::project::environment(&setup.env, None, None)?;
    let project = Project::open(&root, environment)?
        .ok_or_else(|| Failure::config(format!("{WEBHOOK_SECRET} is set, and {} has no .forge/", root.display())))?;
    let seen = status(&project)?.deliveries;
    let webhook = Arc::new(Webhook::new(secret, seen));
    let (changed, received) = channel();
    let worker = Worker { project, webhook: Arc::clone(&webhook), env: setup.env.clone(), output: setup.output };
    std::thread::Builder::new().name("issues".to_owned()).spawn(move || worker.run(&received))?;
    Ok(Some(Arc::new(Hints { webhook, changed })))
}

/// Reads changed issues, a few at a time.
struct Worker {
    project: Project,
    webhook: Arc<Webhook>,
    env: ProcessEnvironment,
    output: Output,
}

impl Worker {
    fn run(&self, received: &Receiver<String>) {
        while let Ok(first) = received.recv() {
            let mut ids = vec![first];
            while let Ok(next) = received.recv_timeout(GATHER) {
                if !ids.contains(&next) {
                    ids.push(next);
                }
            }
            if let Err(error) = self.pull(ids) {
                tracing::warn!(
                    error = error.message,
                    "issues named by the webhook were not read; the next pull reads them"
                );
            }
        }
    }

    fn pull(&self, ids: Vec<String>) -> helmdeck_forge::Result<()> {
        let tracker = open(&self.project, None, &self.env, self.output)?;
        let pull = Pull { only: Some(ids), ..Pull::default() };
        let pulled = block_on(async { Ok(Sync::new(&self.project, &*tracker).pull(&pull).await) });
        let failed = |failure: Failure| Error::new(Category::Failed, "E_FAILED", failure.message().to_owned());
        let pulled = pulled.map_err(failed)??;
        tracing::info!(read = pulled.read, changed = pulled.changed.len(), "issues named by the webhook were read");
        remember_deliveries(&self.project, self.webhook.seen())
    }
}
